/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The systrap platform: table of its functions, start, end, and what it says about itself.
 */
#include "sentry/platform/systrap/systrap.h"

#include "base/host.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdalign.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define HWCAP2_HAS_FSGSBASE 2
#define DEFAULT_MIN_ADDR 65536

static void worker_init(struct systrap *p, unsigned index)
{
    struct worker *w = &p->workers[index];
    memset(w, 0, sizeof *w);
    w->platform = p;
    w->index = index;
    w->listener = w->template_pidfd = -1;
    lock_init(&w->lock);
    wakeable_init(&w->wake);
    wait_queue_init(&w->pool_waiters);
    LIST_INIT(&w->starting);
    LIST_INIT(&w->spaces);
    TAILQ_INIT(&w->ready);
    TAILQ_INIT(&w->held);
    TAILQ_INIT(&w->pool);
}

static unsigned count_workers(const struct platform_config *config, const cpu_set_t *cpus)
{
    unsigned count = (unsigned)CPU_COUNT(cpus);
    if (config->cpu_count != 0 && config->cpu_count < count)
        count = config->cpu_count;
    if (count > SYSTRAP_WORKERS_MAX)
        count = SYSTRAP_WORKERS_MAX;
    return count > 0 ? count : 1;
}

static int systrap_start(struct systrap *p, const char **ret_why)
{
    *ret_why = "the CPU or the kernel has no FSGSBASE";
    if ((getauxval(AT_HWCAP2) & HWCAP2_HAS_FSGSBASE) == 0)
        return -ENOTSUP;
    *ret_why = "signal frames of this kernel have an unknown layout";
    int r = frame_probe_xstate(p);
    if (host_call3(SYS_getrandom, &p->poison, sizeof p->poison, 0) != sizeof p->poison)
        r = -EAGAIN;
    if (r == 0)
        r = wakeable_install();
    return r == 0 ? templates_start(p, ret_why) : r;
}

static void systrap_free(struct platform *platform);

static int systrap_new(const struct platform_config *config, struct platform **ret,
                       const char **ret_why)
{
    struct systrap *p = calloc(1, sizeof *p);
    *ret_why = "no memory";
    if (p == NULL)
        return -ENOMEM;
    p->open_filter = config->open_filter;
    if (host_call3(SYS_sched_getaffinity, 0, sizeof p->cpus, &p->cpus) < 0)
        CPU_SET(0, &p->cpus);
    p->worker_count = count_workers(config, &p->cpus);
    p->max_processes = (config->max_processes > 0 ? config->max_processes : 32768) +
                       (int)p->worker_count * SYSTRAP_POOL_TARGET;
    p->base = (struct platform){
        .ops = &systrap_ops,
        .info = {.name = systrap_ops.name,
                 .min_addr = GUEST_ADDR(DEFAULT_MIN_ADDR),
                 .max_addr = GUEST_ADDR(STUB_BASE),
                 .worker_count = p->worker_count,
                 .may_hand_off = true},
    };
    p->workers = aligned_alloc(alignof(struct worker), p->worker_count * sizeof *p->workers);
    if (p->workers == NULL) {
        free(p);
        return -ENOMEM;
    }
    for (unsigned i = 0; i < p->worker_count; i++)
        worker_init(p, i);
    int r = systrap_start(p, ret_why);
    if (r != 0) {
        systrap_free(&p->base);
        return r;
    }
    *ret = &p->base;
    return 0;
}

static void kill_all_spaces(struct worker *w)
{
    lock_acquire(&w->lock);
    struct systrap_space *s;
    LIST_FOREACH(s, &w->spaces, entry) {
        space_kill_locked(s);
        siginfo_t info;
        if (s->pid != 0)
            while (host_call5(SYS_waitid, P_PID, s->pid, &info, WEXITED | __WALL, 0) == -EINTR) {
            }
    }
    lock_release(&w->lock);
}

static void systrap_free(struct platform *platform)
{
    struct systrap *p = container_of(platform, struct systrap, base);
    for (unsigned i = 0; i < p->worker_count; i++)
        kill_all_spaces(&p->workers[i]);
    templates_stop(p);
    for (unsigned i = 0; i < p->worker_count; i++) {
        space_free_all(&p->workers[i]);
        wait_queue_fini(&p->workers[i].pool_waiters);
        lock_fini(&p->workers[i].lock);
    }
    free(p->workers);
    free(p);
}

static ssize_t systrap_read(struct platform_space *s, guest_addr src, void *dst, size_t size)
{
    pid_t pid = space_host_pid(s);
    return pid > 0 ? platform_vm_read(pid, src, dst, size) : -ESRCH;
}

static ssize_t systrap_write(struct platform_space *s, guest_addr dst, const void *src, size_t size)
{
    pid_t pid = space_host_pid(s);
    return pid > 0 ? platform_vm_write(pid, dst, src, size) : -ESRCH;
}

static void systrap_describe(const struct platform *platform, char *out, size_t size)
{
    const struct systrap *p = (const struct systrap *)platform; /* its first member */
    const struct worker *w = &p->workers[0];
    snprintf(out, size,
             "platform=systrap\nworkers=%u\nseccomp.sync_wake_up=%d\nseccomp.wait_killable=%d\n"
             "calls=%s\n"
             "oom_score_adj=%s\nxstate_size=%zu\nvdso=%d\n",
             p->worker_count, w->sync, w->killable, w->killable ? "notified" : "trapped",
             (p->findings & STUB_FOUND_OOM_SCORE) != 0 ? "1000" : "inherited",
             p->base.info.xstate_size, p->base.info.vdso_size != 0);
}

static pid_t thread_host_tid(const struct platform_thread *t)
{
    return ((const struct systrap_thread *)t)->tid;
}

const struct platform_ops systrap_ops = {
    .name = "systrap",
    .new = systrap_new,
    .free = systrap_free,
    .wait = worker_wait,
    .worker_wake = worker_wake,
    .reap = space_reap,
    .space_new = space_new,
    .space_fork = space_fork,
    .thread_new = thread_new,
    .space_release = space_release,
    .space_kill = space_kill,
    .space_host_pid = space_host_pid,
    .fetch = thread_fetch,
    .read_xstate = frame_read_xstate,
    .write_xstate = frame_write_xstate,
    .resume = thread_resume,
    .host_tid = thread_host_tid,
    .kick = thread_kick,
    .thread_free = thread_free,
    .execute = thread_execute,
    .queue = thread_queue,
    .read = systrap_read,
    .write = systrap_write,
    .cmpxchg32 = thread_cmpxchg32,
    .describe = systrap_describe,
};
