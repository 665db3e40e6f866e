/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes: clone, exec, exit, wait, ids, sessions, pidfds. Handlers run on the calling task's fiber.
 */
#define LOG_MODULE "syscalls"
#include "sentry/syscalls/syscalls.h"
#include "base/host.h"
#include "sentry/syscalls/rusage.h"
#include "sentry/task/pidfd.h"
#include "sentry/task/restart.h"
#include "sentry/task/table.h"
#include "sentry/task/wait.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#ifndef P_PIDFD
#define P_PIDFD 3
#endif

/* ---- clone -------------------------------------------------------------------------------------- */

int64_t sys_clone(struct task *task, uint64_t flags, guest_addr stack, guest_addr parent_tid,
                  guest_addr child_tid, uint64_t tls)
{
    struct task_clone_args args = {
        .flags = flags & 0xffffffffu & ~(uint64_t)CSIGNAL,
        .pidfd = parent_tid, /* clone(2): CLONE_PIDFD shares the argument */
        .parent_tid = parent_tid,
        .child_tid = child_tid,
        .exit_signal = (int)(flags & CSIGNAL),
        .stack = stack,
        .tls = tls,
    };
    if ((flags & CLONE_PIDFD) && (flags & CLONE_PARENT_SETTID))
        return -EINVAL;
    return task_clone(task, &args);
}

int64_t sys_fork(struct task *task)
{
    return task_clone(task, &(struct task_clone_args){.exit_signal = SIGCHLD});
}

int64_t sys_vfork(struct task *task)
{
    return task_clone(
        task, &(struct task_clone_args){.flags = CLONE_VM | CLONE_VFORK, .exit_signal = SIGCHLD});
}

struct linux_clone_args {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls;
    uint64_t set_tid, set_tid_size, cgroup;
};
#define CLONE_ARGS_SIZE_VER0 64

int64_t sys_clone3(struct task *task, guest_addr addr, uint64_t size)
{
    struct linux_clone_args a = {0};
    if (size < CLONE_ARGS_SIZE_VER0)
        return -EINVAL;
    if (size > PAGE_SIZE)
        return -E2BIG;
    uint64_t known = size < sizeof a ? size : sizeof a;
    int r = copy_in(task->mm, &a, addr, known);
    if (r != 0)
        return r;
    for (uint64_t at = known; at < size; at++) { /* fields that we don't know must be zero */
        uint8_t byte;
        r = copy_in_obj(task->mm, &byte, GUEST_ADDR(addr.va + at));
        if (r != 0 || byte != 0)
            return r != 0 ? r : -E2BIG;
    }
    if (a.exit_signal > LINUX_NSIG || (a.flags & (CSIGNAL | CLONE_DETACHED)))
        return -EINVAL;
    if ((a.flags & (CLONE_THREAD | CLONE_PARENT)) && a.exit_signal != 0)
        return -EINVAL;
    if ((a.stack == 0) != (a.stack_size == 0))
        return -EINVAL;
    if (a.set_tid_size != 0 || (a.flags & 0x200000000ULL /* CLONE_INTO_CGROUP */))
        return -EPERM;
    if (a.flags & ~0x3ffffffffULL)
        return -EINVAL;
    struct task_clone_args args = {
        .flags = a.flags,
        .pidfd = GUEST_ADDR(a.pidfd),
        .child_tid = GUEST_ADDR(a.child_tid),
        .parent_tid = GUEST_ADDR(a.parent_tid),
        .exit_signal = (int)a.exit_signal,
        .stack = GUEST_ADDR(a.stack + a.stack_size),
        .tls = a.tls,
    };
    return task_clone(task, &args);
}

/* ---- execve ------------------------------------------------------------------------------------- */

#define EXEC_BYTES_MAX MIB(8)
#define EXEC_STRINGS_MAX 0x7ffffU
#define EXEC_STRING_MAX KIB(128) /* MAX_ARG_STRLEN */

static void strings_fini(struct exec_strings *s)
{
    for (size_t i = 0; i < s->count; i++)
        free(s->strings[i]);
    free(s->strings);
}

static int copy_in_string(struct task *task, uint64_t addr, char *buffer, char **ret, size_t *ret_size)
{
    ssize_t len = copy_in_str(task->mm, buffer, EXEC_STRING_MAX, GUEST_ADDR(addr));
    if (len < 0)
        return len == -ENAMETOOLONG ? -E2BIG : (int)len;
    char *copy = malloc((size_t)len + 1);
    if (copy == NULL)
        return -ENOMEM;
    memcpy(copy, buffer, (size_t)len + 1);
    *ret = copy;
    *ret_size = (size_t)len + 1;
    return 0;
}

static int strings_reserve(struct exec_strings *s, size_t *capacity)
{
    if (s->count + 1 < *capacity)
        return 0;
    size_t bigger = *capacity == 0 ? 64 : *capacity * 2;
    char **strings = realloc(s->strings, bigger * sizeof *strings);
    if (strings == NULL)
        return -ENOMEM;
    s->strings = strings;
    *capacity = bigger;
    return 0;
}

static int strings_copy_in(struct task *task, guest_addr array, struct exec_strings *s)
{
    size_t capacity = 0;
    char *buffer = malloc(EXEC_STRING_MAX);
    int r = buffer != NULL ? strings_reserve(s, &capacity) : -ENOMEM;
    for (guest_addr at = array; r == 0 && !guest_addr_is_null(array); at.va += 8) {
        uint64_t pointer;
        r = copy_in_obj(task->mm, &pointer, at);
        if (r != 0 || pointer == 0)
            break;
        r = s->count >= EXEC_STRINGS_MAX ? -E2BIG : strings_reserve(s, &capacity);
        size_t size = 0;
        if (r == 0)
            r = copy_in_string(task, pointer, buffer, &s->strings[s->count], &size);
        if (r != 0)
            break;
        s->count++;
        s->bytes += size;
        if (s->bytes > EXEC_BYTES_MAX)
            r = -E2BIG;
    }
    free(buffer);
    if (s->strings != NULL)
        s->strings[s->count] = NULL;
    return r;
}

static int64_t exec_file(struct task *task, struct file *file, const char *path, bool path_is_lost,
                         guest_addr argv, guest_addr envp)
{
    struct exec_strings args = {0}, env = {0};
    int r = strings_copy_in(task, argv, &args);
    if (r == 0)
        r = strings_copy_in(task, envp, &env);
    if (r == 0)
        r = task_exec(task, file, path, path_is_lost, &args, &env);
    strings_fini(&args);
    strings_fini(&env);
    return r;
}

int64_t sys_execveat(struct task *task, int dirfd, guest_addr path, guest_addr argv, guest_addr envp,
                     int flags)
{
    if (flags & ~(AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW))
        return -EINVAL;
    AUTO_FREE char *name = NULL;
    int r = copy_in_path(task->mm, path, flags & AT_EMPTY_PATH, &name);
    struct path base = {0};
    if (r == 0)
        r = task_at_base(task, name[0] == '/' ? AT_FDCWD : dirfd, &base);
    if (r != 0)
        return r;
    struct walk_context ctx;
    task_walk_begin(task, &ctx);
    uint32_t walk = (flags & AT_SYMLINK_NOFOLLOW) ? 0 : WALK_FOLLOW;
    if (flags & AT_EMPTY_PATH)
        walk |= WALK_EMPTY;
    struct path p = {0};
    struct file *file = NULL;
    r = vfs_walk(&ctx, &base, name, walk, &p);
    if (r == 0 && S_ISLNK(p.dentry->inode->mode))
        r = -ELOOP;
    if (r == 0)
        r = exec_open_path(&ctx, &p, &file);
    path_put(&p);
    path_put(&base);
    task_walk_end(&ctx);
    if (r != 0)
        return r;
    AUTO_FREE char *fd_name = NULL;
    if (dirfd != AT_FDCWD && name[0] != '/') { /* what a script is told: execveat(2) */
        int n = name[0] != '\0' ? asprintf(&fd_name, "/dev/fd/%d/%s", dirfd, name)
                                : asprintf(&fd_name, "/dev/fd/%d", dirfd);
        if (n < 0)
            fd_name = NULL;
    }
    const char *shown = fd_name != NULL ? fd_name : name;
    int64_t result = exec_file(task, file, shown, fd_name != NULL && fd_table_get_cloexec(task->fds, dirfd) == 1,
                               argv, envp);
    file_put(file);
    return result;
}

int64_t sys_execve(struct task *task, guest_addr path, guest_addr argv, guest_addr envp)
{
    return sys_execveat(task, AT_FDCWD, path, argv, envp, 0);
}

/* ---- exit and wait ------------------------------------------------------------------------------ */

int64_t sys_exit(struct task *task, int status)
{
    task->exit_requested = true;
    task->exit_code = (status & 0xff) << 8;
    return 0;
}

int64_t sys_exit_group(struct task *task, int status)
{
    task->exit_requested = true;
    task->exit_code = (status & 0xff) << 8;
    group_exit(task->group, task->exit_code);
    return 0;
}

int64_t sys_wait4(struct task *task, int pid, guest_addr status, int options, guest_addr rusage)
{
    if ((unsigned)options & ~(unsigned)(WNOHANG | WUNTRACED | WCONTINUED | __WALL | (int)__WCLONE |
                                        __WNOTHREAD))
        return -EINVAL;
    if (pid == INT32_MIN)
        return -ESRCH;
    struct wait_request request = {.which = WAIT_FOR_PID, .id = pid, .options = options | WEXITED};
    if (pid == -1) {
        request.which = WAIT_FOR_ANY;
    } else if (pid <= 0) {
        request.which = WAIT_FOR_PGRP;
        tasks_lock();
        request.id = pid == 0 ? task->group->pgrp->pgid : -pid;
        tasks_unlock();
    }
    struct wait_result result;
    int r = task_wait(task, &request, &result);
    if (r <= 0)
        return r;
    int32_t value = result.wait_status;
    if (!guest_addr_is_null(status) && copy_out_obj(task->mm, status, &value) != 0)
        return -EFAULT;
    if (!guest_addr_is_null(rusage)) {
        struct linux_rusage usage = {0};
        rusage_set_times(&usage, result.utime_ns, result.stime_ns);
        if (copy_out_obj(task->mm, rusage, &usage) != 0)
            return -EFAULT;
    }
    return result.pid;
}

static int waitid_request(struct task *task, int idtype, int id, struct wait_request *request)
{
    switch (idtype) {
    case P_ALL:
        request->which = WAIT_FOR_ANY;
        return 0;
    case P_PID:
        request->which = WAIT_FOR_PID;
        request->id = id;
        return id > 0 ? 0 : -EINVAL;
    case P_PGID:
        request->which = WAIT_FOR_PGRP;
        request->id = id;
        if (id == 0) {
            tasks_lock();
            request->id = task->group->pgrp->pgid;
            tasks_unlock();
        }
        return id >= 0 ? 0 : -EINVAL;
    case P_PIDFD: {
        AUTO_FILE f = fd_table_get_file(task->fds, id);
        struct thread_group *g = f != NULL ? pidfd_group(f) : NULL;
        if (g == NULL)
            return -EBADF;
        request->which = WAIT_FOR_PID;
        request->id = g->tgid;
        if (f->flags & O_NONBLOCK)
            request->options |= WNOHANG;
        group_put(g);
        return 0;
    }
    default:
        return -EINVAL;
    }
}

int64_t sys_waitid(struct task *task, int idtype, int id, guest_addr info, int options,
                   guest_addr rusage)
{
    unsigned known = (unsigned)(WNOHANG | WNOWAIT | WEXITED | WSTOPPED | WCONTINUED | __WALL |
                                __WNOTHREAD) | (unsigned)__WCLONE;
    if (((unsigned)options & ~known) || !(options & (WEXITED | WSTOPPED | WCONTINUED)))
        return -EINVAL;
    struct wait_request request = {.options = options};
    int r = waitid_request(task, idtype, id, &request);
    if (r != 0)
        return r;
    struct wait_result result;
    r = task_wait(task, &request, &result);
    if (r < 0)
        return r;
    if (r == 0 && !(options & WNOHANG))
        return -EAGAIN; /* a nonblocking pidfd */
    struct linux_siginfo si;
    signal_info_kernel(&si, r > 0 ? SIGCHLD : 0, result.code);
    si.chld.pid = result.pid;
    si.chld.uid = result.uid;
    si.chld.status = result.status;
    if (!guest_addr_is_null(info) && copy_out_obj(task->mm, info, &si) != 0)
        return -EFAULT;
    if (r > 0 && !guest_addr_is_null(rusage)) {
        struct linux_rusage usage = {0};
        rusage_set_times(&usage, result.utime_ns, result.stime_ns);
        if (copy_out_obj(task->mm, rusage, &usage) != 0)
            return -EFAULT;
    }
    return 0;
}

/* ---- ids ---------------------------------------------------------------------------------------- */

int64_t sys_getpid(struct task *task)
{
    return task->group->tgid;
}

int64_t sys_gettid(struct task *task)
{
    return task->tid;
}

int64_t sys_getppid(struct task *task)
{
    tasks_lock();
    struct thread_group *parent = task->group->parent;
    int pid = parent != NULL ? parent->tgid : 0;
    tasks_unlock();
    return pid;
}

int64_t sys_set_tid_address(struct task *task, guest_addr addr)
{
    task->clear_child_tid = addr;
    return task->tid;
}

/* ---- process groups and sessions ---------------------------------------------------------------- */

int64_t sys_setpgid(struct task *task, int pid, int pgid)
{
    struct thread_group *self = task->group;
    int target = pid == 0 ? self->tgid : pid;
    if (pgid == 0)
        pgid = target;
    if (pgid < 0)
        return -EINVAL;
    tasks_lock();
    struct thread_group *g = group_find_locked(target);
    int r = 0;
    if (g == NULL || g->state != GROUP_ALIVE || g->pgrp == NULL)
        r = -ESRCH;
    else if (g != self && g->parent != self)
        r = -ESRCH;
    else if (g != self && g->pgrp->session != self->pgrp->session)
        r = -EPERM;
    else if (g != self && g->has_execed)
        r = -EACCES;
    else if (g->pgrp->session->sid == g->tgid)
        r = -EPERM;
    struct process_group *pg = r == 0 ? pgrp_find_locked(pgid) : NULL;
    if (r == 0 && pg == NULL) {
        if (pgid != target) {
            r = -EPERM;
        } else {
            pg = pgrp_new_locked(pgid, g->pgrp->session);
            r = pg == NULL ? -ENOMEM : 0;
        }
    } else if (r == 0 && pg->session != g->pgrp->session) {
        r = -EPERM;
    }
    if (r == 0 && g->pgrp != pg)
        pgrp_join_locked(pg, g);
    tasks_unlock();
    return r;
}

int64_t sys_getpgid(struct task *task, int pid)
{
    tasks_lock();
    struct thread_group *g = pid == 0 ? task->group : NULL;
    struct task *t = pid != 0 ? task_find_locked(pid) : NULL;
    if (t != NULL)
        g = t->group;
    int64_t r = g != NULL && g->pgrp != NULL ? g->pgrp->pgid : -ESRCH;
    tasks_unlock();
    return r;
}

int64_t sys_getpgrp(struct task *task)
{
    return sys_getpgid(task, 0);
}

int64_t sys_getsid(struct task *task, int pid)
{
    tasks_lock();
    struct thread_group *g = pid == 0 ? task->group : NULL;
    struct task *t = pid != 0 ? task_find_locked(pid) : NULL;
    if (t != NULL)
        g = t->group;
    int64_t r = g != NULL && g->pgrp != NULL ? g->pgrp->session->sid : -ESRCH;
    tasks_unlock();
    return r;
}

int64_t sys_setsid(struct task *task)
{
    struct thread_group *g = task->group;
    int64_t r = -EPERM;
    tasks_lock();
    if (pgrp_find_locked(g->tgid) == NULL) {
        struct session *s = session_new_locked(g->tgid);
        struct process_group *pg = s != NULL ? pgrp_new_locked(g->tgid, s) : NULL;
        if (pg != NULL) {
            pgrp_join_locked(pg, g);
            r = g->tgid;
        } else {
            r = -ENOMEM;
        }
        if (s != NULL)
            session_put_locked(s); /* the group's reference keeps it */
    }
    tasks_unlock();
    return r;
}

/* ---- pidfds ------------------------------------------------------------------------------------- */

int64_t sys_pidfd_open(struct task *task, int pid, uint32_t flags)
{
    if ((flags & ~(uint32_t)O_NONBLOCK) || pid <= 0)
        return -EINVAL;
    struct thread_group *g = group_find(pid);
    if (g == NULL) {
        struct task *t = task_find(pid); /* a thread that isn't a leader */
        task_put(t);
        return t != NULL ? -EINVAL : -ESRCH;
    }
    struct file *f;
    int r = pidfd_new(g, task->creds, flags, &f);
    group_put(g);
    if (r != 0)
        return r;
    int fd = fd_table_install(task->fds, f, 0, task_rlimit(task, RLIMIT_NOFILE), true);
    if (fd < 0)
        file_put(f);
    return fd;
}

int64_t sys_pidfd_getfd(struct task *task, int pidfd, int targetfd, uint32_t flags)
{
    if (flags != 0)
        return -EINVAL;
    AUTO_FILE f = fd_table_get_file(task->fds, pidfd);
    if (f == NULL)
        return -EBADF;
    struct thread_group *g = pidfd_group(f);
    if (g == NULL)
        return -EBADF;
    struct task *t = group_next_task(g, 0);
    group_put(g);
    if (t == NULL)
        return -ESRCH;
    struct fd_table *fds = task_get_fds(t);
    bool allowed = task_may_attach(task, t);
    task_put(t);
    struct file *target = allowed && fds != NULL ? fd_table_get_any(fds, targetfd) : NULL;
    fd_table_put(fds);
    if (target == NULL)
        return allowed ? -EBADF : -EPERM;
    int fd = fd_table_install(task->fds, target, 0, task_rlimit(task, RLIMIT_NOFILE), true);
    if (fd < 0)
        file_put(target);
    return fd;
}
