/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sleeping lock of fibers. It is handed over: unlock gives it to the longest waiter, takes that waiter
 * out of the queue and wakes it; `held` stays true meanwhile. So a waiter that is in no queue any more
 * owns the lock. The queue's list is protected by the mutex's own short lock, not by the queue's.
 */
#include "sentry/sched/wait_queue.h"

#define LOG_MODULE "sched"
#include "base/log.h"
#include <errno.h>

void fmutex_init(struct fmutex *m)
{
    lock_init(&m->lock);
    m->held = false;
    wait_queue_init(&m->waiters);
}

void fmutex_fini(struct fmutex *m)
{
    ASSERT(!m->held);
    wait_queue_fini(&m->waiters);
    lock_fini(&m->lock);
}

static bool was_granted(struct fmutex *m, const struct waiter *w)
{
    lock_acquire(&m->lock);
    bool granted = !w->queue;
    lock_release(&m->lock);
    return granted;
}

/* False if the lock was granted meanwhile. */
static bool give_up(struct fmutex *m, struct waiter *w)
{
    lock_acquire(&m->lock);
    bool is_waiting = w->queue;
    if (is_waiting) {
        TAILQ_REMOVE(&m->waiters.waiters, w, entry);
        w->queue = NULL;
    }
    lock_release(&m->lock);
    return is_waiting;
}

static int lock_in_mode(struct fmutex *m, enum fiber_park_mode mode)
{
    struct waiter w;
    lock_acquire(&m->lock);
    if (!m->held) {
        m->held = true;
        lock_release(&m->lock);
        return 0;
    }
    waiter_init(&w);
    ASSERT(w.fiber); /* only fibers can wait */
    w.queue = &m->waiters;
    TAILQ_INSERT_TAIL(&m->waiters.waiters, &w, entry);
    lock_release(&m->lock);

    do {
        int r = fiber_park(mode, FIBER_NO_DEADLINE);
        if (r < 0 && give_up(m, &w))
            return r;
    } while (!was_granted(m, &w));
    return 0;
}

void fmutex_lock(struct fmutex *m) NO_LOCK_ANALYSIS
{
    (void)lock_in_mode(m, FIBER_UNINTERRUPTIBLE);
}

int fmutex_lock_killable(struct fmutex *m)
{
    return lock_in_mode(m, FIBER_KILLABLE);
}

void fmutex_unlock(struct fmutex *m) NO_LOCK_ANALYSIS
{
    lock_acquire(&m->lock);
    ASSERT(m->held);
    struct waiter *w = TAILQ_FIRST(&m->waiters.waiters);
    if (w) {
        struct fiber *f = w->fiber;
        TAILQ_REMOVE(&m->waiters.waiters, w, entry);
        w->queue = NULL;
        fiber_wake(f); /* under the lock: until it is released the waiter cannot go away */
    } else {
        m->held = false;
    }
    lock_release(&m->lock);
}
