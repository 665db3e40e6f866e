/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spaces and threads of the ptrace platform: forked off the template, off each other, and ended.
 * Tracer thread only. New host threads are attached by the kernel and stopped before their first
 * instruction, so nobody has to be believed about who they are.
 */
#include "sentry/platform/ptrace/ptrace_platform.h"

#include "base/host.h"
#include "base/log.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define THREAD_FLAGS                                                                               \
    (CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM)

static struct tracee *of(struct platform_thread *thread)
{
    return container_of(thread, struct tracee, thread);
}

static struct tracee_space *space_of(const struct tracee *t)
{
    return container_of(t->thread.space, struct tracee_space, space);
}

/* ---- table ------------------------------------------------------------------------------------- */

static struct tracee_list *bucket_of(struct tracer *p, pid_t tid)
{
    return &p->buckets[(uint32_t)tid % TRACEE_BUCKETS];
}

void tracer_add(struct tracer *p, struct tracee *t)
{
    LIST_REMOVE(t, bucket);
    LIST_INSERT_HEAD(bucket_of(p, t->tid), t, bucket);
}

struct tracee *tracer_find(struct tracer *p, pid_t tid)
{
    struct tracee *t;
    LIST_FOREACH (t, bucket_of(p, tid), bucket) {
        if (t->tid == tid)
            return t;
    }
    return NULL;
}

/* ---- structs ----------------------------------------------------------------------------------- */

struct tracee *tracee_new(struct tracer *p, pid_t tid, struct tracee_space *s)
{
    struct tracee *t = calloc(1, sizeof(*t));
    if (t == NULL)
        return NULL;
    t->tracer = p;
    t->tid = tid;
    t->thread.ops = &ptrace_ops;
    t->thread.space = &s->space;
    atomic_init(&t->state, TRACEE_STOPPED);
    atomic_init(&t->kicked, false);
    s->thread_count++;
    s->host_count++;
    LIST_INSERT_HEAD(&s->threads, t, sibling);
    LIST_INSERT_HEAD(&p->loose, t, bucket);
    return t;
}

static void space_free(struct tracee_space *s)
{
    container_of(s->space.platform, struct tracer, platform)->space_count--;
    free(s);
}

void tracee_destroy(struct tracee *t)
{
    struct tracee_space *s = space_of(t);
    LIST_REMOVE(t, sibling);
    LIST_REMOVE(t, bucket);
    free(t);
    if (--s->host_count == 0 && s->released)
        space_free(s);
}

static struct tracee_space *space_alloc(struct tracer *p)
{
    struct tracee_space *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return NULL;
    s->space.ops = &ptrace_ops;
    s->space.platform = &p->platform;
    atomic_init(&s->space.references, 1);
    LIST_INIT(&s->threads);
    p->space_count++;
    return s;
}

/* ---- birth ------------------------------------------------------------------------------------- */

/* The kernel attached `tid` and stops it with SIGSTOP before it runs: wait for that. */
static int await_first_stop(const struct tracer *p, pid_t tid)
{
    if (p->early_tid == tid)
        return 0;
    for (;;) {
        int status = 0;
        long r = host_call4(SYS_wait4, tid, &status, __WALL, NULL);
        if (r == -EINTR)
            continue;
        if (r < 0 || !WIFSTOPPED(status))
            return -EAGAIN;
        if (WSTOPSIG(status) == SIGSTOP)
            return 0;
        (void)host_call4(SYS_ptrace, PTRACE_CONT, tid, 0, 0);
    }
}

/* `parent` executes clone(flags): the new host thread's id, or -errno. */
static long clone_from(struct tracee *parent, unsigned long flags)
{
    struct tracer *p = parent->tracer;
    parent->new_tid = p->early_tid = 0;
    long r = tracee_call(parent, SYS_clone, flags, 0, 0, 0, 0, 0);
    pid_t tid = parent->new_tid;
    if (tid != 0 && (r = await_first_stop(p, tid)) == 0)
        return tid; /* what the stub says about it does not matter */
    if (r >= 0)
        return -EAGAIN;
    return r == -ESRCH || r == -ENOMEM ? r : -EAGAIN;
}

/* A tracee for the attached, stopped `tid`, with the registers of `parent` (NULL: all zero). */
static int adopt(struct tracer *p, pid_t tid, struct tracee_space *s, const struct tracee *parent,
                 struct tracee **ret)
{
    struct tracee *t = tracee_new(p, tid, s);
    if (t == NULL) {
        /* The whole space, for a thread that nobody controls must not stay in it. */
        (void)host_call2(SYS_kill, s->pid, SIGKILL);
        return -ENOMEM;
    }
    tracer_add(p, t);
    if (tracee_read_user(t) == 0 && parent != NULL) {
        t->user = parent->user;
        t->thread.regs = parent->thread.regs;
    } else {
        t->user.rip = 0; /* makes any other value a 64-bit entry */
    }
    *ret = t;
    return 0;
}

static int new_space(struct tracer *p, struct tracee *source, const struct tracee *parent,
                     struct platform_space **ret_space, struct platform_thread **ret_thread)
{
    if (p->space_count >= p->space_limit)
        return -EAGAIN;
    struct tracee_space *s = space_alloc(p);
    if (s == NULL)
        return -ENOMEM;
    struct tracee *t;
    long r = clone_from(source, CLONE_PARENT | SIGCHLD);
    if (r > 0) {
        s->pid = (pid_t)r;
        r = adopt(p, s->pid, s, parent, &t);
    }
    if (r != 0) {
        space_free(s);
        return (int)r;
    }
    platform_space_get(&s->space); /* the thread's */
    *ret_space = &s->space;
    *ret_thread = &t->thread;
    return 0;
}

int tracer_space_new(struct platform *base, unsigned worker, struct platform_space **ret,
                     struct platform_thread **ret_leader)
{
    struct tracer *p = container_of(base, struct tracer, platform);
    (void)worker; /* there is one */
    if (p->template->gone)
        return -EAGAIN;
    return new_space(p, p->template, NULL, ret, ret_leader);
}

int tracee_space_fork(struct platform_thread *parent, struct platform_space **ret_space,
                      struct platform_thread **ret_child)
{
    struct tracee *t = of(parent);
    int r = tracee_execute_queued(t); /* or the child would not have what they map */
    if (r != 0)
        return r;
    return new_space(t->tracer, t, t, ret_space, ret_child);
}

int tracee_thread_new(struct platform_thread *parent, struct platform_thread **ret)
{
    struct tracee *t = of(parent);
    struct tracee_space *s = space_of(t);
    struct tracee *child;
    long r = tracee_execute_queued(t);
    if (r != 0)
        return (int)r;
    r = clone_from(t, THREAD_FLAGS);
    if (r > 0)
        r = adopt(t->tracer, (pid_t)r, s, t, &child);
    if (r != 0)
        return r == -ESRCH ? -ESRCH : -EAGAIN;
    platform_space_get(&s->space);
    *ret = &child->thread;
    return 0;
}

/* ---- death ------------------------------------------------------------------------------------- */

/* #syscalls kill: ends a stub */
void tracee_space_kill(struct platform_space *space)
{
    struct tracee_space *s = container_of(space, struct tracee_space, space);
    /* Its number is its own until the leader is reaped, which comes last. */
    if (!s->killed && s->host_count != 0)
        (void)host_call2(SYS_kill, s->pid, SIGKILL);
    s->killed = true;
}

void tracee_space_release(struct platform_space *space)
{
    struct tracee_space *s = container_of(space, struct tracee_space, space);
    s->released = true;
    if (s->host_count == 0)
        space_free(s);
    else
        tracee_space_kill(space);
}

pid_t tracee_space_host_pid(const struct platform_space *space)
{
    return ((const struct tracee_space *)space)->pid; /* its first member */
}

/* Sets a host thread off into exit(2); its end is reported like any other. */
static void leave(struct tracee *t)
{
    struct tracee_call call = {.rip = tracee_code(ptrace_stub_call), .rax = SYS_exit};
    if (tracee_start(t, &call) != 0)
        log_dbg("host thread %d died before it could leave", t->tid);
}

void tracee_thread_free(struct platform_thread *thread)
{
    struct tracee *t = of(thread);
    struct tracee_space *s = space_of(t);
    ASSERT(atomic_load(&t->state) == TRACEE_STOPPED);
    s->thread_count--;
    if (t->gone) {
        tracee_destroy(t);
    } else {
        atomic_store(&t->state, TRACEE_ENDING);
        if (s->thread_count == 0)
            tracee_space_kill(&s->space);
        else if (t->tid != s->pid)
            leave(t);
    }
    platform_space_put(&s->space);
}
