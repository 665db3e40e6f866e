/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a syscall test prints: one line for each case, the expression and what it gave, never an
 * address, pid or time. The programs run natively and in the sandbox; a difference is the failure.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* OK: "ok" or the errno; VAL: the value or the errno; YES: a condition; ERR: a returned errno. */
#define OK(e)  show_result(#e, (long)(e), false)
#define VAL(e) show_result(#e, (long)(e), true)
#define YES(e) show_yes(#e, (e))
#define ERR(e) show_err(#e, (e))

static inline long show_result(const char *what, long result, bool has_value)
{
    int error = errno;
    if (result == -1)
        printf("%s: %s\n", what, strerrorname_np(error));
    else if (has_value)
        printf("%s = %ld\n", what, result);
    else
        printf("%s: ok\n", what);
    return result;
}

static inline void show_yes(const char *what, bool value)
{
    printf("%s: %s\n", what, value ? "yes" : "NO");
}

static inline void show_err(const char *what, int error)
{
    printf("%s: %s\n", what, error ? strerrorname_np(error) : "ok");
}

static inline void show_status(const char *what, int status)
{
    if (WIFEXITED(status))
        printf("%s: exit %d\n", what, WEXITSTATUS(status));
    else if (WIFSIGNALED(status))
        printf("%s: signal %s\n", what, sigabbrev_np(WTERMSIG(status)));
    else if (WIFSTOPPED(status))
        printf("%s: stopped by %s\n", what, sigabbrev_np(WSTOPSIG(status)));
    else if (WIFCONTINUED(status))
        printf("%s: continued\n", what);
    else
        printf("%s: odd status\n", what);
}

static inline int reap(const char *what, pid_t pid)
{
    int status = 0;
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            printf("%s: waitpid %s\n", what, strerrorname_np(errno));
            return -1;
        }
    }
    show_status(what, status);
    return status;
}

/* Runs `body` in a child, whose exit status is its result, and prints how it ended. */
static inline void child(const char *what, int (*body)(void))
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(body());
    reap(what, pid);
}

static inline void sleep_ms(long ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) < 0 && errno == EINTR)
        continue;
}

static inline long now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static char show_dir[64];
static pid_t show_owner;

static inline int show_remove(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st, (void)type, (void)ftw;
    remove(path);
    return 0;
}

static inline void show_cleanup(void)
{
    if (getpid() != show_owner || !show_dir[0] || chdir("/") < 0)
        return;
    nftw(show_dir, show_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Lines leave at once, so that children and crashes lose or double none. */
static inline void start(void)
{
    static char buffer[4096]; /* no heap for stdio: some tests move the break */
    setvbuf(stdout, buffer, _IOLBF, sizeof(buffer));
    umask(022);
}

/* start() in an empty directory of our own that goes away at exit. */
static inline void start_in_dir(void)
{
    start();
    show_owner = getpid();
    strcpy(show_dir, "/tmp/syscall-test.XXXXXX");
    if (!mkdtemp(show_dir) || chdir(show_dir) < 0 || chmod(show_dir, 0755) < 0) {
        printf("no temporary directory\n");
        exit(1);
    }
    atexit(show_cleanup);
}

static inline int make_file(const char *name, const char *content)
{
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (fd < 0 || write(fd, content, strlen(content)) != (ssize_t)strlen(content))
        printf("make_file %s: %s\n", name, strerrorname_np(errno));
    return fd;
}
