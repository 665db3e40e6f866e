/* SPDX-License-Identifier: Apache-2.0 */
/* poll, ppoll, select, pselect. */
#include "show.h"
#include <poll.h>
#include <pthread.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>

static int p[2];

static void *write_later(void *fd)
{
    sleep_ms(30);
    return (void *)write((int)(intptr_t)fd, "x", 1);
}

static void polling(void)
{
    struct pollfd fds[4] = {{p[0], POLLIN, 77}, {p[1], POLLOUT, 77}, {-1, POLLIN, 77}, {999, POLLIN, 0}};
    VAL(poll(fds, 4, 0));
    printf("%x %x %x %x, events %x\n", fds[0].revents, fds[1].revents, fds[2].revents, fds[3].revents, fds[1].events);
    fds[0].events = fds[1].events = 0;
    VAL(poll(fds, 3, 0));
    long before = now_ms();
    VAL(poll(fds, 1, 30));
    YES(now_ms() - before >= 29);
    VAL(poll(NULL, 0, 1));
    OK(syscall(SYS_poll, NULL, 1, 0));
    OK(syscall(SYS_poll, fds, 100000000, 0));
    pthread_t thread;
    pthread_create(&thread, NULL, write_later, (void *)(intptr_t)p[1]);
    fds[0].events = POLLIN | POLLRDNORM;
    VAL(poll(fds, 1, -1));
    printf("%x\n", fds[0].revents);
    pthread_join(thread, NULL);
    int file = make_file("f", ""), dir = open(".", O_RDONLY), null = open("/dev/null", O_RDWR);
    struct pollfd others[3] = {{file, POLLIN | POLLOUT, 0}, {dir, POLLIN | POLLOUT, 0}, {null, POLLIN | POLLOUT, 0}};
    VAL(poll(others, 3, 0));
    printf("file %x, dir %x, null %x\n", others[0].revents, others[1].revents, others[2].revents);
    struct pollfd path = {open("f", O_PATH), POLLIN, 0};
    VAL(poll(&path, 1, 0));
    printf("O_PATH %x\n", path.revents);
    int s[2];
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    struct pollfd sock = {s[0], POLLIN | POLLOUT | POLLRDHUP, 0};
    VAL(poll(&sock, 1, 0));
    printf("socket %x\n", sock.revents);
    OK(shutdown(s[1], SHUT_WR));
    VAL(poll(&sock, 1, 0));
    printf("peer shut down %x\n", sock.revents);
    OK(close(s[1]));
    VAL(poll(&sock, 1, 0));
    printf("peer closed %x\n", sock.revents);
}

static volatile sig_atomic_t count;

static void on_signal(int sig)
{
    (void)sig;
    count++;
}

static void masks(void)
{
    sigset_t blocked, none;
    struct timespec ts = {5, 0}, soon = {0, 10000000}, bad = {0, -1};
    struct pollfd fd = {p[0], 0, 0};
    signal(SIGUSR1, on_signal);
    sigemptyset(&none);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, NULL);
    raise(SIGUSR1);
    OK(ppoll(&fd, 1, &ts, &none)); /* atomically lets it in */
    VAL(count);
    VAL(ppoll(&fd, 1, &soon, &none));
    OK(ppoll(&fd, 1, &bad, NULL));
    raise(SIGUSR1);
    fd.events = POLLIN;
    VAL(ppoll(&fd, 1, &ts, &none)); /* ready: the signal stays pending */
    VAL(count);
    OK(pselect(0, NULL, NULL, NULL, &ts, &none));
    VAL(count);
    ts = (struct timespec){5, 0};
    raise(SIGUSR1);
    OK(syscall(SYS_ppoll, NULL, 0, &ts, &none, 8));
    YES(ts.tv_sec == 4); /* the raw call tells what's left */
    OK(syscall(SYS_ppoll, NULL, 0, &soon, &none, 7));
    sigprocmask(SIG_UNBLOCK, &blocked, NULL);
}

static void selecting(void)
{
    fd_set in, out, ex;
    struct timeval zero = {0, 0}, long_time = {5, 500000}, soon = {0, 20000};
    FD_ZERO(&in);
    FD_ZERO(&out);
    FD_ZERO(&ex);
    FD_SET(p[0], &in);
    FD_SET(p[1], &in);
    FD_SET(p[1], &out);
    FD_SET(p[0], &ex);
    VAL(select(p[1] + 1, &in, &out, &ex, &long_time));
    printf("%d %d %d %d\n", FD_ISSET(p[0], &in), FD_ISSET(p[1], &in), FD_ISSET(p[1], &out), FD_ISSET(p[0], &ex));
    YES(long_time.tv_sec == 5 || long_time.tv_sec == 4);
    FD_SET(p[0], &in);
    VAL(select(0, &in, NULL, NULL, &zero));
    VAL(select(p[0], &in, NULL, NULL, &zero)); /* the highest isn't counted */
    FD_ZERO(&in);
    FD_SET(30, &in); /* not open */
    OK(select(31, &in, NULL, NULL, &zero));
    OK(select(-1, &in, NULL, NULL, &zero));
    FD_ZERO(&in);
    VAL(select(1000, &in, NULL, NULL, &zero)); /* more than the table has */
    OK(select(1, NULL, NULL, NULL, &(struct timeval){-1, 0}));
    OK(syscall(SYS_select, 1, 8, NULL, NULL, &zero));
    char byte;
    VAL(read(p[0], &byte, 1));
    FD_SET(p[0], &in);
    long before = now_ms();
    VAL(select(p[0] + 1, &in, NULL, NULL, &soon));
    YES(now_ms() - before >= 19 && soon.tv_usec == 0 && !FD_ISSET(p[0], &in));
    close(p[1]);
    FD_SET(p[0], &in);
    VAL(select(p[0] + 1, &in, NULL, NULL, NULL)); /* end of file is readable */
}

int main(void)
{
    start_in_dir();
    OK(pipe(p));
    polling();
    masks();
    selecting();
    return 0;
}
