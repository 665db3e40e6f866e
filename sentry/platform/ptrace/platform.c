/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ptrace platform as a whole: start, end, and what it says about itself. The host thread that makes
 * it is the tracer, and stays it.
 */
#include "sentry/platform/ptrace/ptrace_platform.h"

#include "base/host.h"
#include "sentry/platform/stub_range.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#define MMAP_MIN_ADDR 65536 /* vm.mmap_min_addr where nobody changed it */

/* Stops of stubs must not raise SIGCHLD: each would wake the event thread. Deaths still do. */
static void quiet_sigchld(void)
{
    struct sigaction action = {.sa_handler = SIG_DFL, .sa_flags = SA_NOCLDSTOP};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGCHLD, &action, NULL);
}

static void tracer_free(struct platform *base)
{
    struct tracer *p = container_of(base, struct tracer, platform);
    tracer_end_all(p);
    host_close(p->listener);
    free(p);
}

static int add_template(struct tracer *p)
{
    struct tracee_space *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return -ENOMEM;
    s->space.ops = &ptrace_ops;
    s->space.platform = &p->platform;
    atomic_init(&s->space.references, 1);
    LIST_INIT(&s->threads);
    p->template = tracee_new(p, 0, s);
    if (p->template == NULL) {
        free(s);
        return -ENOMEM;
    }
    return 0;
}

static int tracer_new(const struct platform_config *config, struct platform **ret,
                      const char **ret_why)
{
    *ret_why = "out of memory";
    struct tracer *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return -ENOMEM;
    p->platform.ops = &ptrace_ops;
    p->platform.info = (struct platform_info){
        .name = "ptrace",
        .min_addr = GUEST_ADDR(MMAP_MIN_ADDR),
        .max_addr = GUEST_ADDR(STUB_BASE),
        .worker_count = 1,
        .may_hand_off = false,
    };
    p->listener = -1;
    p->space_limit = config->max_processes > 0 ? config->max_processes : INT32_MAX;
    p->open_filter = config->open_filter;
    TAILQ_INIT(&p->queue);
    for (size_t i = 0; i < TRACEE_BUCKETS; i++)
        LIST_INIT(&p->buckets[i]);
    LIST_INIT(&p->loose);
    wakeable_init(&p->wakeable);
    quiet_sigchld();
    int r = wakeable_install();
    if (r == 0)
        r = add_template(p);
    if (r == 0)
        r = tracer_setup(p, ret_why);
    if (r != 0) {
        tracer_free(&p->platform);
        return r;
    }
    p->platform.info.vdso_size = p->vdso_high - p->platform.info.vdso.va;
    p->platform.info.vvar_size = p->platform.info.vdso.va - p->vdso_low;
    *ret = &p->platform;
    return 0;
}

/* wait4 of another thread would take the tracer's statuses away; the tracer sees deaths by itself. */
static void tracer_reap(struct platform *p)
{
    (void)p;
}

static void tracer_describe(const struct platform *base, char *out, size_t size)
{
    const struct tracer *p = (const struct tracer *)base; /* its first member */
    snprintf(out, size,
             "platform=ptrace\nworkers=1\nsysemu=1\n"
             "xstate_size=%zu\nxstate_features=%#llx\nvdso=%d\n",
             base->info.xstate_size, (unsigned long long)p->xstate_mask, p->vdso_low != 0);
}

static pid_t tracee_host_tid(const struct platform_thread *t)
{
    return ((const struct tracee *)t)->tid;
}

const struct platform_ops ptrace_ops = {
    .name = "ptrace",
    .new = tracer_new,
    .free = tracer_free,
    .wait = tracer_wait,
    .worker_wake = tracer_worker_wake,
    .reap = tracer_reap,
    .space_new = tracer_space_new,
    .space_fork = tracee_space_fork,
    .thread_new = tracee_thread_new,
    .space_release = tracee_space_release,
    .space_kill = tracee_space_kill,
    .space_host_pid = tracee_space_host_pid,
    .read_xstate = tracee_read_xstate,
    .write_xstate = tracee_write_xstate,
    .resume = tracee_resume,
    .host_tid = tracee_host_tid,
    .kick = tracee_kick,
    .thread_free = tracee_thread_free,
    .execute = tracee_execute,
    .queue = tracee_queue_order,
    .read = tracee_read,
    .write = tracee_write,
    .cmpxchg32 = tracee_cmpxchg32,
    .describe = tracer_describe,
};
