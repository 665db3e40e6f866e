/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "Wait until its callback is not running": for timers and event sources, whose callbacks all run on the
 * event thread, one at a time, without locks held. Private to sentry/sched. The lock that protects the
 * fields is the caller's.
 */
#pragma once

#include "base/lock.h"
#include "sentry/sched/futex.h"
#include <stdint.h>

struct quiesce {
    const void *running;   /* whose callback runs now; compared only, it may be freed */
    _Atomic uint32_t ends; /* futex: grows with each end of a callback */
    unsigned waiters;
};

/* With `l` held, which it releases meanwhile. */
static inline void quiesce_wait_locked(struct quiesce *q, struct lock *l, const void *object) REQUIRES(l)
{
    while (q->running == object) {
        uint32_t ends = atomic_load(&q->ends);
        q->waiters++;
        lock_release(l);
        futex_wait(&q->ends, ends, NULL);
        lock_acquire(l);
        q->waiters--;
    }
}

static inline void quiesce_end_locked(struct quiesce *q)
{
    q->running = NULL;
    atomic_fetch_add(&q->ends, 1);
    if (q->waiters)
        futex_wake(&q->ends, INT_MAX);
}
