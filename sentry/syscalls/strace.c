/* SPDX-License-Identifier: Apache-2.0 */
/*
 * `--strace`. Runs on the calling task's fiber. Strings of the guest are escaped.
 */
#define LOG_MODULE "strace"
#include "sentry/syscalls/strace.h"
#include "base/log.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The first argument of these is a path; of the *at family the second. */
static int path_argument(const char *name)
{
    static const char *const first[] = {"open", "stat", "lstat", "access", "execve", "readlink", "mkdir",
                                        "rmdir", "unlink", "chdir", "creat", "chmod", "rename",
                                        "truncate", "statfs", "getxattr", "lgetxattr", "chown"};
    static const char *const second[] = {"openat", "newfstatat", "faccessat", "faccessat2", "statx",
                                         "readlinkat", "mkdirat", "unlinkat", "openat2", "execveat",
                                         "renameat", "renameat2", "fchownat", "utimensat", "symlinkat"};
    for (size_t i = 0; i < ARRAY_COUNT(first); i++)
        if (strcmp(name, first[i]) == 0)
            return 0;
    for (size_t i = 0; i < ARRAY_COUNT(second); i++)
        if (strcmp(name, second[i]) == 0)
            return 1;
    return -1;
}

void strace_enter(struct task *task, uint64_t nr, const uint64_t args[6])
{
    const char *name = syscall_name(nr);
    char path[96] = "", escaped[200] = "";
    int which = path_argument(name);
    if (which >= 0 && task->mm != NULL) {
        ssize_t len = copy_in_str(task->mm, path, sizeof path, GUEST_ADDR(args[which]));
        if (len == -ENAMETOOLONG)
            len = (ssize_t)sizeof path - 1;
        if (len > 0)
            log_escape(escaped, sizeof escaped, path, (size_t)len);
    }
    log_info("[%d] %s(%lx, %lx, %lx, %lx, %lx, %lx)%s%s", task->tid, name, (unsigned long)args[0],
             (unsigned long)args[1], (unsigned long)args[2], (unsigned long)args[3],
             (unsigned long)args[4], (unsigned long)args[5], escaped[0] != '\0' ? " " : "", escaped);
}

void strace_exit(struct task *task, uint64_t nr, const uint64_t args[6], int64_t result)
{
    (void)args;
    if (result < 0 && result > -4096)
        log_info("[%d] %s = -%ld", task->tid, syscall_name(nr), (long)-result);
    else
        log_info("[%d] %s = %lx", task->tid, syscall_name(nr), (unsigned long)result);
}
