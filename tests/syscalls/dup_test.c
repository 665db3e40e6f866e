/* SPDX-License-Identifier: Apache-2.0 */
/* Descriptors: dup family, close_range, close-on-exec, limits, fcntl flags. */
#include "show.h"
#include <sys/resource.h>
#include <sys/syscall.h>

#ifndef CLOSE_RANGE_UNSHARE
#define CLOSE_RANGE_UNSHARE 2U
#define CLOSE_RANGE_CLOEXEC 4U
#endif

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static long range(unsigned first, unsigned last, unsigned flags)
{
    return syscall(SYS_close_range, first, last, flags);
}

static void duplicates(void)
{
    int fd = make_file("f", "0123456789");
    OK(dup(999));
    OK(dup(-1));
    VAL(dup2(fd, 40));
    YES(dup2(fd, fd) == fd);
    OK(dup2(999, 999));
    OK(dup2(fd, -1));
    OK(dup2(fd, 1 << 30));
    OK(dup2(999, 40));
    YES(is_open(40));
    VAL(dup3(fd, 41, O_CLOEXEC));
    VAL(fcntl(41, F_GETFD));
    VAL(fcntl(40, F_GETFD));
    OK(dup3(fd, fd, 0));
    OK(dup3(fd, 42, O_NONBLOCK));
    VAL(fcntl(fd, F_DUPFD, 45));
    VAL(fcntl(fd, F_DUPFD, 45));
    VAL(fcntl(fd, F_DUPFD_CLOEXEC, 45));
    VAL(fcntl(47, F_GETFD));
    OK(fcntl(fd, F_DUPFD, -1));
    OK(fcntl(fd, F_DUPFD, 1 << 30));
    OK(fcntl(fd, 9999, 0));
    char byte = 0;
    lseek(40, 4, SEEK_SET);
    VAL(read(45, &byte, 1)); /* one offset for all */
    YES(byte == '4' && lseek(fd, 0, SEEK_CUR) == 5);
    int other = open("f", O_RDONLY);
    VAL(lseek(other, 0, SEEK_CUR));
    OK(fcntl(40, F_SETFL, O_APPEND | O_NONBLOCK | O_WRONLY)); /* the access mode is ignored */
    printf("flags %o\n", fcntl(41, F_GETFL) & ~O_LARGEFILE);
    OK(fcntl(40, F_SETFL, 0));
    OK(fcntl(40, F_SETFD, FD_CLOEXEC));
    VAL(fcntl(40, F_GETFD));
    OK(close(999));
    OK(close(-1));
    OK(close(40));
    OK(close(40));
    int lowest = dup(fd);
    close(lowest);
    VAL(open("f", O_RDONLY) == lowest);
    int path = open("f", O_PATH);
    OK(read(path, &byte, 1));
    OK(write(path, &byte, 1));
    OK(fchmod(path, 0600));
    OK(ftruncate(path, 0));
    OK(fcntl(path, F_SETFL, O_NONBLOCK));
    printf("flags %o\n", fcntl(path, F_GETFL));
    YES(dup(path) >= 0);
}

static void ranges(void)
{
    for (int fd = 60; fd < 80; fd++)
        dup2(1, fd);
    OK(range(65, 70, 0));
    YES(is_open(64) && !is_open(65) && !is_open(70) && is_open(71));
    OK(range(71, 72, CLOSE_RANGE_CLOEXEC));
    VAL(fcntl(72, F_GETFD));
    VAL(fcntl(73, F_GETFD));
    OK(range(74, 73, 0));
    OK(range(74, 75, 0x100));
    OK(range(1000, 2000, 0));
    pid_t pid = fork();
    if (pid == 0)
        _exit(range(75, ~0U, CLOSE_RANGE_UNSHARE) == 0 && !is_open(79) ? 2 : 1);
    reap("child", pid);
    YES(is_open(79));
    OK(range(60, ~0U, 0));
    YES(!is_open(60) && !is_open(79));
}

static int open_after_exec(void)
{
    char *argv[] = {"sh", "-c", "for fd in 10 11 12; do if [ -e /proc/self/fd/$fd ]; then echo $fd; fi; done", NULL};
    close(9);
    dup2(1, 10);
    dup3(1, 11, O_CLOEXEC);
    dup2(1, 12);
    fcntl(12, F_SETFD, FD_CLOEXEC);
    execve("/bin/sh", argv, (char *[]){NULL});
    return 1;
}

static int limited(void)
{
    struct rlimit limit = {20, 20};
    setrlimit(RLIMIT_NOFILE, &limit);
    int last = -1, fd;
    while ((fd = open("/dev/null", O_RDONLY)) >= 0)
        last = fd;
    VAL(last);
    OK(open("/dev/null", O_RDONLY));
    OK(dup(1));
    OK(dup2(1, 20));
    OK(dup2(1, 19));
    OK(fcntl(1, F_DUPFD, 20));
    int p[2];
    OK(pipe(p));
    OK(close(5));
    OK(pipe(p)); /* two are needed */
    VAL(open("/dev/null", O_RDONLY));
    return 0;
}

static int many(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    rlim_t wanted = 3000;
    if (limit.rlim_max < wanted)
        return 1;
    limit.rlim_cur = wanted;
    setrlimit(RLIMIT_NOFILE, &limit);
    int count = 0;
    while (count < 2900 && dup(1) >= 0)
        count++;
    VAL(count);
    return is_open(2800) && range(3, ~0U, 0) == 0 && !is_open(2800) ? 7 : 1;
}

int main(void)
{
    start_in_dir();
    duplicates();
    ranges();
    child("exec", open_after_exec);
    child("limit", limited);
    child("many", many);
    return 0;
}
