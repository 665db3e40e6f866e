/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wait queues: who waits for an event of an object, fibers and callbacks (epoll, poll) alike.
 * Modelled after Linux's <linux/wait.h>: each waiter has a function that runs at the wake-up.
 *
 *     struct waiter w;
 *     waiter_init(&w);                                  the calling fiber
 *     wait_queue_add(&q, &w);
 *     while (!condition)
 *         if ((r = fiber_park(FIBER_INTERRUPTIBLE, deadline)) != 0)
 *             break;
 *     wait_queue_remove(&w);                            always, before w goes away
 *
 * or, the same in one line, wait_queue_sleep(&q, condition, arg, mode, deadline).
 * Lock order: any object's lock → wait_queue.lock → (callback's locks).
 */
#pragma once

#include "base/lock.h"
#include "sentry/sched/fiber.h"
#include <bsd/sys/queue.h>
#include <stdint.h>

struct waiter;
/* Runs under the queue's lock on whatever host thread woke it; may not sleep, add or remove waiters of
 * this queue. `events` is a mask of EPOLL* bits that became ready, 0 = anything. Returns true when it
 * consumed an exclusive wake-up. */
typedef bool (*waiter_fn)(struct waiter *w, uint32_t events);

struct waiter {
    TAILQ_ENTRY(waiter) entry;
    struct wait_queue *queue; /* NULL while in none */
    waiter_fn wake;
    struct fiber *fiber; /* borrowed: for waiter_init() */
    uint32_t events;     /* wanted EPOLL* bits; 0 = all */
    bool exclusive;      /* wake-one: at the tail, stops the walk */
};

struct wait_queue {
    struct lock lock;
    TAILQ_HEAD(, waiter) waiters;
    _Atomic uint32_t count; /* lets wake-ups of an empty queue skip the lock */
};

void wait_queue_init(struct wait_queue *q);
void wait_queue_fini(struct wait_queue *q); /* must be empty */
void waiter_init(struct waiter *w);         /* wakes the calling fiber */
void waiter_init_callback(struct waiter *w, waiter_fn wake, uint32_t events);
void wait_queue_add(struct wait_queue *q, struct waiter *w);
void wait_queue_remove(struct waiter *w); /* no-op if it is in none */

/* Wakes all plain waiters whose mask meets `events` (0 = all) and at most one exclusive one. */
void wait_queue_wake(struct wait_queue *q, uint32_t events);
void wait_queue_wake_all(struct wait_queue *q, uint32_t events);

/* Sleeps until condition(arg) is true: 0, -EINTR or -ETIMEDOUT. The condition runs without the queue's
 * lock, and takes what it needs itself. */
MUST_CHECK int wait_queue_sleep(struct wait_queue *q, bool (*condition)(void *arg), void *arg,
                                enum fiber_park_mode mode, uint64_t deadline_ns);

/* The sleeping lock of fibers: may be held across parks, host calls and uaccess. Not recursive; FIFO. */
struct CAPABILITY("mutex") fmutex {
    struct lock lock;
    bool held;
    struct wait_queue waiters;
};
void fmutex_init(struct fmutex *m);
void fmutex_fini(struct fmutex *m);
void fmutex_lock(struct fmutex *m) ACQUIRES(m);
MUST_CHECK int fmutex_lock_killable(struct fmutex *m); /* 0 or -EINTR */
void fmutex_unlock(struct fmutex *m) RELEASES(m);
