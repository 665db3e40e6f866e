/* SPDX-License-Identifier: Apache-2.0 */
/* epoll(7): level, edge, oneshot, exclusive, nested, closing, wrong use. */
#include "show.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static int ep;

static int control(int op, int fd, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.u64 = (uint64_t)fd << 32 | 77};
    return epoll_ctl(ep, op, fd, &event);
}

/* Prints the events, sorted by descriptor. */
static void wait_for(const char *what, int timeout)
{
    struct epoll_event events[16];
    int n = epoll_wait(ep, events, 16, timeout);
    printf("%s: %d", what, n);
    for (int i = 1; i < n; i++) {
        for (int k = i; k > 0 && events[k].data.u64 < events[k - 1].data.u64; k--) {
            struct epoll_event swap = events[k];
            events[k] = events[k - 1], events[k - 1] = swap;
        }
    }
    for (int i = 0; i < n; i++)
        printf(" %x%s", events[i].events, (uint32_t)events[i].data.u64 == 77 ? "" : " DATA");
    printf("\n");
}

static void levels(void)
{
    int p[2];
    char byte;
    OK(pipe2(p, O_NONBLOCK));
    OK(control(EPOLL_CTL_ADD, p[0], EPOLLIN));
    OK(control(EPOLL_CTL_ADD, p[1], EPOLLOUT));
    wait_for("writable", 0);
    OK(control(EPOLL_CTL_MOD, p[1], 0));
    wait_for("nothing", 0);
    VAL(write(p[1], "ab", 2));
    wait_for("level", 0);
    wait_for("level again", 0);
    OK(control(EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLET));
    wait_for("edge", 0);
    wait_for("edge again", 0);
    VAL(read(p[0], &byte, 1));
    wait_for("edge, some left", 0);
    VAL(write(p[1], "c", 1));
    wait_for("edge, new data", 0);
    OK(control(EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLET));
    wait_for("edge, re-armed", 0);
    OK(control(EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLONESHOT));
    wait_for("oneshot", 0);
    VAL(write(p[1], "d", 1));
    wait_for("oneshot spent", 0);
    OK(control(EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLONESHOT));
    wait_for("oneshot re-armed", 0);
    OK(control(EPOLL_CTL_MOD, p[0], EPOLLIN));
    close(p[1]);
    wait_for("hang-up", 0);
    while (read(p[0], &byte, 1) == 1)
        continue;
    wait_for("hang-up without data", 0);
    OK(control(EPOLL_CTL_DEL, p[0], 0));
    wait_for("deleted", 0);
    close(p[0]);
    OK(pipe(p));
    OK(control(EPOLL_CTL_ADD, p[1], 0));
    close(p[0]);
    wait_for("broken pipe", 0);
    close(p[1]);
    wait_for("closed", 0);
}

static void edge_write(void)
{
    int p[2];
    static char bytes[65536];
    OK(pipe2(p, O_NONBLOCK));
    OK(control(EPOLL_CTL_ADD, p[1], EPOLLOUT | EPOLLET));
    wait_for("writable", 0);
    wait_for("no edge", 0);
    VAL(write(p[1], bytes, sizeof(bytes)));
    OK(write(p[1], bytes, 1));
    wait_for("full", 0);
    VAL(read(p[0], bytes, sizeof(bytes)));
    wait_for("drained", 0);
    wait_for("no edge", 0);
    close(p[0]), close(p[1]);
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, s));
    OK(control(EPOLL_CTL_ADD, s[0], EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET));
    wait_for("socket", 0);
    wait_for("no edge", 0);
    VAL(write(s[1], "x", 1));
    wait_for("data", 0);
    VAL(write(s[1], "y", 1));
    wait_for("more data", 0);
    OK(shutdown(s[1], SHUT_WR));
    wait_for("half closed", 0);
    close(s[1]);
    wait_for("closed", 0);
    close(s[0]);
}

static void closing(void)
{
    int p[2];
    OK(pipe(p));
    OK(control(EPOLL_CTL_ADD, p[0], EPOLLIN));
    int copy = dup(p[0]);
    VAL(write(p[1], "x", 1));
    close(p[0]);
    wait_for("closed, but a copy is open", 0);
    OK(control(EPOLL_CTL_DEL, p[0], 0));
    close(copy);
    wait_for("all closed", 0);
    close(p[1]);
    OK(pipe(p));
    OK(control(EPOLL_CTL_ADD, p[0], EPOLLIN));
    copy = dup(p[0]);
    OK(control(EPOLL_CTL_ADD, copy, EPOLLIN)); /* another number is another entry */
    VAL(write(p[1], "x", 1));
    wait_for("twice", 0);
    close(p[0]), close(copy), close(p[1]);
}

static void nested(void)
{
    int inner = epoll_create1(EPOLL_CLOEXEC), event = eventfd(0, EFD_NONBLOCK), outer = ep;
    uint64_t value = 1;
    ep = inner;
    OK(control(EPOLL_CTL_ADD, event, EPOLLIN));
    ep = outer;
    OK(control(EPOLL_CTL_ADD, inner, EPOLLIN));
    wait_for("nothing", 0);
    VAL(write(event, &value, 8));
    wait_for("nested", 0);
    ep = inner;
    wait_for("inner", 0);
    OK(control(EPOLL_CTL_ADD, outer, EPOLLIN)); /* a loop */
    OK(control(EPOLL_CTL_ADD, inner, EPOLLIN));
    ep = outer;
    VAL(read(event, &value, 8));
    wait_for("nothing", 0);
    int chain[8], top = 0;
    for (top = 0; top < 8; top++) {
        chain[top] = epoll_create1(0);
        ep = chain[top];
        if (top > 0 && control(EPOLL_CTL_ADD, chain[top - 1], EPOLLIN) < 0)
            break;
    }
    printf("depth %d: %s\n", top, top < 8 ? strerrorname_np(errno) : "no limit");
    ep = outer;
    OK(control(EPOLL_CTL_DEL, inner, 0));
    close(inner), close(event);
}

static void wrong_use(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int file = make_file("f", ""), p[2];
    OK(pipe(p));
    OK(epoll_create(0));
    OK(epoll_create1(1));
    OK(control(EPOLL_CTL_ADD, file, EPOLLIN));
    OK(control(EPOLL_CTL_ADD, 999, EPOLLIN));
    OK(control(EPOLL_CTL_ADD, ep, EPOLLIN));
    OK(control(EPOLL_CTL_MOD, p[0], EPOLLIN));
    OK(control(EPOLL_CTL_DEL, p[0], EPOLLIN));
    OK(control(EPOLL_CTL_ADD, p[0], EPOLLIN));
    OK(control(EPOLL_CTL_ADD, p[0], EPOLLIN));
    OK(control(9, p[0], EPOLLIN));
    OK(epoll_ctl(p[0], EPOLL_CTL_ADD, p[1], &event));
    OK(epoll_ctl(999, EPOLL_CTL_ADD, p[1], &event));
    struct epoll_event *volatile bad = NULL;
    OK(syscall(SYS_epoll_ctl, ep, EPOLL_CTL_ADD, p[1], bad));
    OK(syscall(SYS_epoll_wait, ep, &event, 0, 0));
    OK(syscall(SYS_epoll_wait, ep, &event, -1, 0));
    OK(epoll_wait(p[0], &event, 1, 0));
    OK(control(EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLEXCLUSIVE));
    OK(control(EPOLL_CTL_ADD, p[1], EPOLLOUT | EPOLLEXCLUSIVE | EPOLLONESHOT));
    OK(control(EPOLL_CTL_ADD, p[1], EPOLLOUT | EPOLLEXCLUSIVE));
    OK(control(EPOLL_CTL_MOD, p[1], EPOLLOUT));
    VAL(write(p[1], "x", 1));
    OK(syscall(SYS_epoll_wait, ep, 8, 1, 0));
    OK(read(ep, &event, 1));
    close(p[0]), close(p[1]);
}

static void *write_later(void *fd)
{
    sleep_ms(30);
    return (void *)write((int)(intptr_t)fd, "x", 1);
}

static void *add_later(void *fd)
{
    sleep_ms(30);
    control(EPOLL_CTL_ADD, (int)(intptr_t)fd, EPOLLIN);
    return NULL;
}

static int woken;

static void *wait_once(void *fd)
{
    struct epoll_event event;
    if (epoll_wait((int)(intptr_t)fd, &event, 1, 300) == 1)
        __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static void blocking(void)
{
    int p[2];
    char byte;
    pthread_t threads[4];
    OK(pipe(p));
    OK(control(EPOLL_CTL_ADD, p[0], EPOLLIN));
    long before = now_ms();
    wait_for("times out", 30);
    YES(now_ms() - before >= 29);
    pthread_create(&threads[0], NULL, write_later, (void *)(intptr_t)p[1]);
    wait_for("woken", -1);
    pthread_join(threads[0], NULL);
    OK(control(EPOLL_CTL_DEL, p[0], 0));
    pthread_create(&threads[0], NULL, add_later, (void *)(intptr_t)p[0]);
    wait_for("added while waiting", 5000);
    pthread_join(threads[0], NULL);
    VAL(read(p[0], &byte, 1));
    OK(control(EPOLL_CTL_MOD, p[0], EPOLLIN | EPOLLET));
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, wait_once, (void *)(intptr_t)ep);
    sleep_ms(60);
    VAL(write(p[1], "x", 1)); /* an edge wakes one thread */
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    VAL(woken);
    struct timespec soon = {0, 10000000};
    struct epoll_event event;
    sigset_t set;
    sigemptyset(&set);
    VAL(syscall(SYS_epoll_pwait2, ep, &event, 1, &soon, &set, 8));
    close(p[0]), close(p[1]);
}

static void many(void)
{
    int fds[100][2];
    struct epoll_event events[16];
    bool seen[1024] = {false};
    int rounds = 0, count = 0;
    for (int i = 0; i < 100; i++) {
        if (pipe(fds[i]) < 0 || write(fds[i][1], "x", 1) != 1)
            printf("pipe: %s\n", strerrorname_np(errno));
        control(EPOLL_CTL_ADD, fds[i][0], EPOLLIN);
    }
    for (rounds = 0; rounds < 20; rounds++) { /* no descriptor starves */
        int n = epoll_wait(ep, events, 16, 0);
        for (int i = 0; i < n; i++)
            seen[events[i].data.u64 >> 32] = true;
    }
    for (int i = 0; i < 100; i++)
        count += seen[fds[i][0]];
    VAL(count);
    for (int i = 0; i < 100; i++)
        close(fds[i][0]), close(fds[i][1]);
    wait_for("nothing left", 0);
}

int main(void)
{
    start_in_dir();
    ep = epoll_create1(EPOLL_CLOEXEC);
    VAL(fcntl(ep, F_GETFD));
    levels();
    edge_write();
    closing();
    nested();
    wrong_use();
    blocking();
    many();
    return 0;
}
