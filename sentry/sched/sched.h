/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers, the event thread and timers.
 *
 * A *worker* is a run queue and a platform event loop; a *host thread* executes one worker at a time
 * or none. A fiber that has to make a host call that may block calls sched_blocking_begin(): the worker
 * goes on to a standby host thread, and the fiber finishes on its own. All host threads exist before
 * lockdown.
 *
 * The *event thread* sleeps in epoll_wait: timers (one timerfd), donated descriptors, SIGCHLD.
 * An idle sandbox wakes nobody.
 */
#pragma once

#include "base/compiler.h"
#include "sentry/sched/fiber.h"
#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stdint.h>

/* What the sandbox plugs in: where events of guest threads come from. */
struct sched_ops {
    /* Waits for and handles events of `worker`: starts fibers by fiber_start(), which run when it has
     * returned. Returns after at least one event or when woken by `wake_worker`. With may_block false
     * it only looks. Called by whatever host thread has the worker, by one at a time. */
    void (*poll)(void *arg, unsigned worker, bool may_block);
    void (*wake_worker)(void *arg, unsigned worker); /* any host thread, never lost */
    void (*child_died)(void *arg);                   /* event thread, on SIGCHLD */
    void *arg;
};

struct sched_config {
    unsigned workers;        /* 1 .. SCHED_WORKERS_MAX */
    unsigned standby;        /* host threads beyond one for each worker; 0 with may_hand_off false */
    bool may_hand_off;
    struct sched_ops ops;
};
#define SCHED_WORKERS_MAX 64

/* Creates all host threads; they sleep until sched_run(). Blocks all but synchronous signals in the
 * caller, who gets an alternate stack. Once in a process's life. 0 or -errno. */
MUST_CHECK int sched_init(const struct sched_config *config);
/* Fills the caller's place as worker 0's host thread (with ptrace it is the tracer and must be the one
 * that made the platform), and returns after sched_stop(), when every worker has left its loop and the
 * event thread has ended. Fibers that are parked or in a blocking host call then simply stay there. */
void sched_run(void);
void sched_stop(void); /* any thread; every worker leaves its loop */
unsigned sched_pick_worker(void); /* home for a new task: the one with the fewest fibers */

/* The calling fiber is about to make a host call that may block (class B of docs/platform 6). No lock
 * of any kind that another fiber may want may be held. Cheap when nobody needs the worker. Nests not. */
void sched_blocking_begin(void);
void sched_blocking_end(void);

/* ---- timers: CLOCK_MONOTONIC, nanoseconds ------------------------------------------------------ */

struct timer {
    RB_ENTRY(timer) node;
    uint64_t deadline_ns;
    /* Runs on the event thread without locks held; may re-arm or free its timer, may not sleep. */
    void (*fire)(struct timer *t);
    bool armed; /* under the timer lock: in the tree */
};
void timer_init(struct timer *t, void (*fire)(struct timer *t));
void timer_arm(struct timer *t, uint64_t deadline_ns); /* re-arms an armed one; any thread */
/* After it returns fire() is not running and will not run. Not from fire() itself (-> use arm). */
void timer_cancel(struct timer *t);

/* ---- donated host descriptors ------------------------------------------------------------------ */

struct event_source {
    int hfd; /* borrowed */
    /* Event thread; `events` are EPOLL* bits; may not sleep, may wake fibers and wait queues. */
    void (*ready)(struct event_source *s, uint32_t events);
    uint32_t interest;
    uint64_t id; /* sched's */
    RB_ENTRY(event_source) node;
};
/* Edge-triggered registration; `s` stays allocated until event_source_remove() has returned. -EPERM for
 * files that are always ready (regular files). */
MUST_CHECK int event_source_add(struct event_source *s);
/* After it returns ready() is not running (unless it is the caller) and will not run. */
void event_source_remove(struct event_source *s);
