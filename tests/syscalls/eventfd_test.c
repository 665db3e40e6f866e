/* SPDX-License-Identifier: Apache-2.0 */
/* eventfd(2), signalfd(2), timerfd_create(2). */
#include "show.h"
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>

static int ready(int fd)
{
    struct pollfd poller = {fd, POLLIN | POLLOUT, 0};
    poll(&poller, 1, 0);
    return poller.revents;
}

static void events(void)
{
    uint64_t value = 0;
    int fd = eventfd(3, EFD_NONBLOCK | EFD_CLOEXEC);
    VAL(fcntl(fd, F_GETFD));
    VAL(ready(fd));
    VAL(read(fd, &value, 8));
    VAL((long)value);
    VAL(ready(fd));
    OK(read(fd, &value, 8));
    OK(read(fd, &value, 7));
    OK(write(fd, &value, 7));
    value = UINT64_MAX;
    OK(write(fd, &value, 8));
    value = UINT64_MAX - 1;
    VAL(write(fd, &value, 8));
    VAL(ready(fd));
    value = 1;
    OK(write(fd, &value, 8));
    value = 0;
    VAL(write(fd, &value, 8));
    VAL(read(fd, &value, 8));
    YES(value == UINT64_MAX - 1);
    char bytes[16] = {0};
    bytes[0] = 5;
    VAL(write(fd, bytes, 16));
    VAL(read(fd, bytes, 16));
    OK(lseek(fd, 0, SEEK_CUR));
    OK(pread(fd, bytes, 8, 0));
    int semaphore = eventfd(2, EFD_SEMAPHORE | EFD_NONBLOCK);
    for (int i = 0; i < 3; i++)
        VAL(read(semaphore, &value, 8));
    YES(value == 1);
    OK(eventfd(0, 0x1000));
    int blocking = eventfd(0, 0);
    pid_t pid = fork();
    if (pid == 0) {
        sleep_ms(20);
        value = 9;
        _exit(write(blocking, &value, 8) == 8 ? 0 : 1);
    }
    VAL(read(blocking, &value, 8));
    VAL((long)value);
    reap("writer", pid);
}

static void change(int how, sigset_t *set, int sig)
{
    sigemptyset(set);
    sigaddset(set, sig);
    sigprocmask(how, set, NULL);
}

static void signals(void)
{
    sigset_t set;
    struct signalfd_siginfo info[2];
    change(SIG_BLOCK, &set, SIGUSR2);
    change(SIG_BLOCK, &set, SIGUSR1);
    int fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    VAL(ready(fd));
    OK(read(fd, info, sizeof(info[0])));
    sigqueue(getpid(), SIGUSR1, (union sigval){.sival_int = 55});
    kill(getpid(), SIGUSR2);
    VAL(ready(fd));
    OK(read(fd, info, 10));
    VAL(read(fd, info, sizeof(info)));
    printf("signo %u code %d int %d pid %d uid %d\n", info[0].ssi_signo, info[0].ssi_code, info[0].ssi_int,
           info[0].ssi_pid == (uint32_t)getpid(), info[0].ssi_uid == getuid());
    VAL(ready(fd));
    sigaddset(&set, SIGUSR2);
    YES(signalfd(fd, &set, 0) == fd);
    VAL(ready(fd));
    kill(getpid(), SIGUSR1);
    VAL(read(fd, info, sizeof(info)));
    printf("signo %u and %u\n", info[0].ssi_signo, info[1].ssi_signo);
    OK(signalfd(0, &set, 0));
    OK(signalfd(-1, &set, 0x1000));
    OK(signalfd(999, &set, 0));
    OK(syscall(SYS_signalfd4, -1, &set, 4, 0));
    OK(write(fd, info, 1));
    pid_t pid = fork();
    if (pid == 0) { /* a reader sees its own signals */
        kill(getppid(), SIGUSR1);
        bool mine = read(fd, info, sizeof(info)) < 0 && errno == EAGAIN;
        kill(getpid(), SIGUSR2);
        _exit(mine && read(fd, info, sizeof(info)) == sizeof(info[0]) ? (int)info[0].ssi_signo : 1);
    }
    reap("child", pid);
    VAL(read(fd, info, sizeof(info)) / (long)sizeof(info[0]));
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    int chld = signalfd(-1, &set, 0);
    pid = fork();
    if (pid == 0)
        _exit(6);
    VAL(read(chld, info, sizeof(info)) / (long)sizeof(info[0]));
    printf("SIGCHLD code %d status %d pid %d\n", info[0].ssi_code, info[0].ssi_status, info[0].ssi_pid == (uint32_t)pid);
    reap("child", pid);
}

static void timers(void)
{
    struct itimerspec spec = {.it_value = {0, 20000000}}, old;
    uint64_t value = 0;
    int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
    VAL(ready(fd));
    OK(timerfd_gettime(fd, &old));
    YES(old.it_value.tv_sec == 0 && old.it_value.tv_nsec == 0);
    long before = now_ms();
    OK(timerfd_settime(fd, 0, &spec, NULL));
    OK(timerfd_gettime(fd, &old));
    YES(old.it_value.tv_nsec > 0 && old.it_value.tv_nsec <= 20000000);
    VAL(read(fd, &value, 8));
    YES(now_ms() - before >= 19 && value == 1);
    spec.it_interval.tv_nsec = 5000000;
    spec.it_value.tv_nsec = 5000000;
    OK(timerfd_settime(fd, 0, &spec, NULL));
    sleep_ms(60);
    VAL(ready(fd));
    VAL(read(fd, &value, 8));
    YES(value >= 8);
    OK(timerfd_settime(fd, 0, &(struct itimerspec){0}, &old));
    YES(old.it_interval.tv_nsec == 5000000);
    OK(fcntl(fd, F_SETFL, O_NONBLOCK));
    OK(read(fd, &value, 8));
    OK(read(fd, &value, 4));
    OK(write(fd, &value, 8));
    clock_gettime(CLOCK_MONOTONIC, &spec.it_value);
    spec.it_value.tv_sec -= 1;
    spec.it_interval = (struct timespec){0, 0};
    OK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL)); /* in the past: at once */
    VAL(read(fd, &value, 8));
    OK(timerfd_create(77, 0));
    OK(timerfd_create(CLOCK_MONOTONIC, 1));
    OK(timerfd_create(CLOCK_PROCESS_CPUTIME_ID, 0));
    spec.it_value.tv_nsec = 1000000000;
    OK(timerfd_settime(fd, 0, &spec, NULL));
    OK(timerfd_settime(fd, 64, &old, NULL));
    OK(timerfd_settime(0, 0, &old, NULL));
    OK(timerfd_gettime(0, &old));
    fd = timerfd_create(CLOCK_REALTIME, TFD_NONBLOCK);
    clock_gettime(CLOCK_REALTIME, &spec.it_value);
    spec.it_value.tv_nsec += 15000000;
    if (spec.it_value.tv_nsec >= 1000000000)
        spec.it_value.tv_sec++, spec.it_value.tv_nsec -= 1000000000;
    OK(timerfd_settime(fd, TFD_TIMER_ABSTIME, &spec, NULL));
    struct pollfd poller = {fd, POLLIN, 0};
    VAL(poll(&poller, 1, 5000));
    VAL(read(fd, &value, 8));
    YES(timerfd_create(CLOCK_BOOTTIME, 0) >= 0);
}

int main(void)
{
    start();
    events();
    signals();
    timers();
    return 0;
}
