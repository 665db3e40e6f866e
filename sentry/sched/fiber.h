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
    TAILQ_ENTRY(fiber) runnable;
    struct fiber_stack *stack; /* lent; NULL while not active */
    void *sp;                  /* saved stack pointer while switched out */
    void (*entry)(void *arg);
    void *arg;
    const char *name;     /* borrowed, for backtraces */
    unsigned worker;      /* home */
    _Atomic uint32_t state; /* see fiber.c */
    /* Why a park may end early. Set by signal code from any thread, before fiber_wake(). */
    _Atomic bool interrupted; /* a signal is pending that the guest thread does not block */
    _Atomic bool killed;      /* SIGKILL, group exit, or the host process died */
    void *sanitizer_fake_stack;
    void *tsan_fiber;
};

/* Prepares `f` (not active). `name` is borrowed. */
void fiber_init(struct fiber *f, unsigned worker, const char *name);
/* Runs entry(arg) as a fiber on its worker: now, when called in that worker's loop with nothing else
 * active (the usual case), else when its turn comes. Never sleeps. */
void fiber_start(struct fiber *f, void (*entry)(void *arg), void *arg);
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
/* Any host thread, under short locks too. `f` must stay allocated until it returns. */
void fiber_wake(struct fiber *f);
/* Lets others run first. */
void fiber_yield(void);
