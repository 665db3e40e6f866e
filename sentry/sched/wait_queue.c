/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wait queues. Woken from any host thread.
 *
 * A waker changes the object's condition first and looks at `count` then; a waiter adds itself to `count`
 * first and looks at the condition then. Both touch `count` by an atomic read-modify-write, so one of the
 * two sees the other.
 */
#include "sentry/sched/wait_queue.h"

#define LOG_MODULE "sched"
#include "base/log.h"
#include <errno.h>

void wait_queue_init(struct wait_queue *q)
{
    lock_init(&q->lock);
    TAILQ_INIT(&q->waiters);
    atomic_init(&q->count, 0);
}

void wait_queue_fini(struct wait_queue *q)
{
    ASSERT(TAILQ_EMPTY(&q->waiters));
    lock_fini(&q->lock);
}

static bool wake_fiber(struct waiter *w, uint32_t events)
{
    (void)events;
    if (w->fiber)
        fiber_wake(w->fiber);
    return true;
}

void waiter_init(struct waiter *w)
{
    *w = (struct waiter){.wake = wake_fiber, .fiber = fiber_current()};
}

void waiter_init_callback(struct waiter *w, waiter_fn wake, uint32_t events)
{
    *w = (struct waiter){.wake = wake, .events = events};
}

void wait_queue_add(struct wait_queue *q, struct waiter *w)
{
    lock_acquire(&q->lock);
    w->queue = q;
    if (w->exclusive)
        TAILQ_INSERT_TAIL(&q->waiters, w, entry);
    else
        TAILQ_INSERT_HEAD(&q->waiters, w, entry);
    atomic_fetch_add(&q->count, 1);
    lock_release(&q->lock);
}

void wait_queue_remove(struct waiter *w)
{
    struct wait_queue *q = w->queue;
    if (!q)
        return;
    lock_acquire(&q->lock);
    TAILQ_REMOVE(&q->waiters, w, entry);
    w->queue = NULL;
    atomic_fetch_sub_explicit(&q->count, 1, memory_order_relaxed);
    lock_release(&q->lock);
}

static bool is_wanted(const struct waiter *w, uint32_t events)
{
    return !events || !w->events || (w->events & events);
}

/* An exclusive waiter that was woken goes to the tail, so that a second wake-up which comes before it has
 * run reaches another one. */
static void wake_waiters(struct wait_queue *q, uint32_t events, bool all)
{
    struct waiter *next;
    lock_acquire(&q->lock);
    for (struct waiter *w = TAILQ_FIRST(&q->waiters); w; w = next) {
        next = TAILQ_NEXT(w, entry);
        if (!is_wanted(w, events))
            continue;
        bool consumed = w->wake(w, events);
        if (!all && w->exclusive && consumed) {
            TAILQ_REMOVE(&q->waiters, w, entry);
            TAILQ_INSERT_TAIL(&q->waiters, w, entry);
            break;
        }
    }
    lock_release(&q->lock);
}

void wait_queue_wake(struct wait_queue *q, uint32_t events)
{
    if (atomic_fetch_add(&q->count, 0))
        wake_waiters(q, events, false);
}

void wait_queue_wake_all(struct wait_queue *q, uint32_t events)
{
    if (atomic_fetch_add(&q->count, 0))
        wake_waiters(q, events, true);
}

int wait_queue_sleep(struct wait_queue *q, bool (*condition)(void *arg), void *arg,
                     enum fiber_park_mode mode, uint64_t deadline_ns)
{
    if (condition(arg))
        return 0;
    struct waiter w;
    waiter_init(&w);
    wait_queue_add(q, &w);
    int r = 0;
    while (!condition(arg)) {
        r = fiber_park(mode, deadline_ns);
        if (r < 0) {
            if (condition(arg))
                r = 0;
            break;
        }
    }
    wait_queue_remove(&w);
    return r;
}
