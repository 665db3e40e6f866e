/* SPDX-License-Identifier: Apache-2.0 */
/* Which calls a signal handler interrupts, which SA_RESTART restarts, and which always end in EINTR. */
#include "show.h"
#include <linux/futex.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>

static volatile sig_atomic_t count;
static int pipes[2], full[2], sockets[2], futex_word;
static pid_t sleeper;

static void on_alarm(int sig)
{
    (void)sig;
    count++;
}

/* After 60 ms a signal for the parent; 80 ms later what it waits for happens. */
static long run(const char *what, bool restart, long (*call)(void), void (*finish)(void))
{
    struct sigaction act = {.sa_handler = on_alarm, .sa_flags = restart ? SA_RESTART : 0};
    sigaction(SIGUSR1, &act, NULL);
    count = 0;
    fflush(stdout);
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        sleep_ms(60);
        kill(parent, SIGUSR1);
        sleep_ms(80);
        if (finish)
            finish();
        _exit(0);
    }
    long result = call();
    int error = errno;
    char name[64];
    snprintf(name, sizeof(name), "%s%s", what, restart ? " with SA_RESTART" : "");
    errno = error;
    show_result(name, result, true);
    while (waitpid(pid, NULL, 0) < 0)
        continue;
    if (count != 1)
        printf("handler ran %d times\n", count);
    return result;
}

static void feed_pipe(void)
{
    if (write(pipes[1], "x", 1) != 1)
        _exit(1);
}

static void drain(void)
{
    char bytes[4096];
    for (int i = 0; i < 16; i++) {
        if (read(full[0], bytes, sizeof(bytes)) < 0)
            _exit(1);
    }
}

static void feed_socket(void)
{
    if (write(sockets[1], "x", 1) != 1)
        _exit(1);
}

static void wake(void)
{
    futex_word = 1;
    syscall(SYS_futex, &futex_word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static long call_read(void)
{
    char byte;
    long n = read(pipes[0], &byte, 1);
    return n;
}

static long call_write(void)
{
    static char bytes[4096];
    return write(full[1], bytes, sizeof(bytes));
}

static long call_recv(void)
{
    char byte;
    return recv(sockets[0], &byte, 1, 0);
}

static long call_poll(void)
{
    struct pollfd fd = {pipes[0], POLLIN, 0};
    return poll(&fd, 1, 5000);
}

static long call_select(void)
{
    fd_set set;
    struct timeval timeout = {5, 0};
    FD_ZERO(&set);
    FD_SET(pipes[0], &set);
    return select(pipes[0] + 1, &set, NULL, NULL, &timeout);
}

static long call_epoll(void)
{
    struct epoll_event event = {.events = EPOLLIN};
    int fd = epoll_create1(0);
    epoll_ctl(fd, EPOLL_CTL_ADD, pipes[0], &event);
    long n = epoll_wait(fd, &event, 1, 5000);
    int error = errno;
    close(fd);
    errno = error;
    return n;
}

static long call_nanosleep(void)
{
    struct timespec ts = {0, 200000000}, left = {0, 0};
    long r = nanosleep(&ts, &left);
    int error = errno;
    printf("left %s\n", left.tv_nsec > 0 && left.tv_nsec < 190000000 ? "some" : left.tv_nsec ? "ODD" : "none");
    errno = error;
    return r;
}

static long call_wait(void)
{
    return waitpid(sleeper, NULL, 0) == sleeper ? 1 : -1;
}

static void end_sleeper(void)
{
    kill(sleeper, SIGKILL);
}

static long call_futex(void)
{
    struct timespec timeout = {0, 250000000};
    return syscall(SYS_futex, &futex_word, FUTEX_WAIT, 0, &timeout, NULL, 0);
}

static long call_futex_forever(void)
{
    struct timespec timeout;
    clock_gettime(CLOCK_MONOTONIC, &timeout);
    timeout.tv_sec += 1;
    return syscall(SYS_futex, &futex_word, FUTEX_WAIT_BITSET, 0, &timeout, NULL, 1);
}

static long call_flock(void)
{
    int fd = open("lock", O_RDWR);
    long r = flock(fd, LOCK_EX);
    int error = errno;
    close(fd);
    errno = error;
    return r;
}

static long call_setlkw(void)
{
    struct flock lock = {.l_type = F_WRLCK};
    int fd = open("lock2", O_RDWR);
    long r = fcntl(fd, F_SETLKW, &lock);
    int error = errno;
    close(fd);
    errno = error;
    return r;
}

static long call_open_fifo(void)
{
    int fd = open("fifo", O_RDONLY);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}

static void open_other_end(void)
{
    close(open("fifo", O_WRONLY));
}

static void both(const char *what, long (*call)(void), void (*finish)(void))
{
    run(what, false, call, NULL);
    run(what, true, call, finish);
}

int main(void)
{
    start_in_dir();
    char byte;
    OK(pipe(pipes));
    OK(pipe(full));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets));
    OK(mkfifo("fifo", 0600));
    for (int i = 0; i < 16; i++)
        call_write();
    both("read", call_read, feed_pipe);
    both("write", call_write, drain);
    both("recv", call_recv, feed_socket);
    both("open of a fifo", call_open_fifo, open_other_end);
    both("poll", call_poll, feed_pipe);
    VAL(read(pipes[0], &byte, 1));
    both("select", call_select, feed_pipe);
    VAL(read(pipes[0], &byte, 1));
    both("epoll_wait", call_epoll, feed_pipe);
    VAL(read(pipes[0], &byte, 1));
    both("nanosleep", call_nanosleep, NULL);
    both("futex with timeout", call_futex, wake);
    both("futex until", call_futex_forever, NULL);
    sleeper = fork();
    if (sleeper == 0) {
        for (;;)
            pause();
    }
    both("waitpid", call_wait, end_sleeper);

    close(make_file("lock", "")), close(make_file("lock2", ""));
    sleeper = fork();
    if (sleeper == 0) {
        struct flock lock = {.l_type = F_WRLCK};
        int fd = open("lock", O_RDWR), fd2 = open("lock2", O_RDWR);
        flock(fd, LOCK_EX);
        fcntl(fd2, F_SETLK, &lock);
        if (write(pipes[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    VAL(read(pipes[0], &byte, 1));
    run("flock", false, call_flock, NULL);
    run("F_SETLKW", false, call_setlkw, NULL);
    run("F_SETLKW", true, call_setlkw, end_sleeper);
    reap("holder", sleeper);
    return 0;
}
