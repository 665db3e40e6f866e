/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers: straight-line blocking code in the sentry. A fiber is one activation of `entry(arg)` on a
 * lent 64 KiB stack; when entry returns the stack goes back to the pool. A guest thread that runs
 * guest code has no fiber; its next event starts one.
 *
 * Rules (docs/platform 6): no buffer over 1 KiB on a fiber's stack; neither errno nor thread-local
 * storage nor a short lock is live across a park; a fiber moves between host threads only while parked
 * or around sched_blocking_begin().
 *
 * A fiber is woken by fiber_wake() from any host thread, and becomes runnable on the worker on which it
 * was started. The wake-up is never lost: a wake that comes before the park makes the park return at
 * once.
 */
#pragma once

#include "base/compiler.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <bsd/sys/queue.h>

struct fiber_stack;

/* Embedded in what it works for (struct task); all fields are sched's. */
struct fiber {
    TAILQ_ENTRY(fiber) runnable; /* home worker's queue; or the pool's, waiting for a stack */
    struct fiber *inbox_next;    /* home worker's inbox, while queued from elsewhere */
    struct fiber_stack *stack;   /* lent; NULL while not active */
    void *sp;                    /* saved stack pointer while switched out */
    void (*entry)(void *arg);
    void *arg;
    const char *name;       /* borrowed, for backtraces */
    unsigned worker;        /* home; immutable after init */
    _Atomic uint32_t state; /* see fiber.c */
    /* Why a park may end early. Set by signal code from any thread, before fiber_wake(). */
    _Atomic bool interrupted; /* a signal is pending that the guest thread does not block */
    _Atomic bool killed;      /* SIGKILL, group exit, or the host process died */
    void *sanitizer_fake_stack;
};

/* Prepares `f` (not active), and counts it as one of its worker's (sched_pick_worker). `name` is
 * borrowed. */
void fiber_init(struct fiber *f, unsigned worker, const char *name);
/* Ends what fiber_init() began. `f` is not active, or this runs in its epilogue. */
void fiber_fini(struct fiber *f);
/* Runs entry(arg) as a fiber on its worker. Called by that worker's poll(): as soon as poll() has
 * returned, without an atomic operation beyond the state word; from elsewhere: queued, and the worker
 * is woken. Never sleeps. May be called while f's previous activation is still on its way to the end
 * (its guest thread was resumed and already has its next event); not while it is parked. */
void fiber_start(struct fiber *f, void (*entry)(void *arg), void *arg);
/* The calling fiber wants `epilogue(arg)` to run after its entry has returned and nothing of sched uses
 * the fiber any more: the only place from which a fiber may free the memory that it is embedded in.
 * Runs on the host thread's loop: may not park. One for each activation; not with a restart pending. */
void fiber_set_epilogue(void (*epilogue)(void *arg), void *arg);
/* The fiber that is executing; NULL on a host thread that runs none (event thread, unit tests). */
struct fiber *fiber_current(void);

enum fiber_park_mode {
    FIBER_UNINTERRUPTIBLE, /* short waits for another fiber of ours only */
    FIBER_KILLABLE,        /* ends with -EINTR when `killed` */
    FIBER_INTERRUPTIBLE,   /* ends with -EINTR when `interrupted` or `killed` */
};
#define FIBER_NO_DEADLINE UINT64_MAX

/* Parks until fiber_wake(), the deadline (CLOCK_MONOTONIC ns) or an interruption. 0, -ETIMEDOUT or
 * -EINTR. Wake-ups may be spurious: the caller re-checks its condition in a loop. */
int fiber_park(enum fiber_park_mode mode, uint64_t deadline_ns);
/* Any host thread, under short locks too. `f` must stay allocated until it returns. No-op on a fiber
 * that is not active. */
void fiber_wake(struct fiber *f);
/* Is `f` asleep right now? For reports (/proc/PID/stat): it may change at once. Any host thread. */
bool fiber_is_parked(const struct fiber *f);
/* Lets others run first. No-op on a host thread that runs no fiber. */
void fiber_yield(void);

/* For a crash handler: if `fault_addr` is in a fiber's guard pages, logs which fiber overflowed its stack
 * and returns true. Async-signal-safe. sched_init() installs a handler for SIGSEGV and SIGBUS that does
 * this and goes on to the handler that was there before. */
bool fiber_report_overflow(const void *fault_addr);
