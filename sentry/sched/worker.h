/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers and host threads as the files of sentry/sched see them. Private to sentry/sched.
 *
 * Who touches what: a worker's plain fields belong to the host thread that holds it; it is passed on
 * through `offer` (release by who lends it, acquire by who takes it). A host thread's fields are its own.
 */
#pragma once

#include "base/compiler.h"
#include "sentry/sched/sched.h"
#include "sentry/sched/stack.h"
#include <bsd/sys/queue.h>
#include <stdatomic.h>
#include <stdint.h>

/* worker.offer: even while a host thread holds the worker, odd while its fiber is in a blocking host call:
 * who adds one to an odd value by compare-and-exchange has the worker. Grows by two with each offer, so that
 * a watcher knows a long call from many short ones. */
#define OFFER_IS_OPEN(offer) ((offer) & 1u)

struct CACHE_ALIGNED worker {
    TAILQ_HEAD(, fiber) runnable; /* FIFO */
    struct fiber_stack_list stacks; /* a few hot stacks, without the pool's lock */
    unsigned stack_count;
    unsigned index;
    /* Written by other threads: */
    CACHE_ALIGNED _Atomic(struct fiber *) inbox; /* LIFO, linked by inbox_next; drained as a whole */
    _Atomic bool is_sleeping;                    /* in poll(may_block) with nothing in the inbox */
    _Atomic uint32_t offer;
    _Atomic uint32_t homes; /* fibers that were initialised here */
};

/* Why a fiber switched to its host thread's loop. */
enum switch_reason { SWITCH_PARK, SWITCH_YIELD, SWITCH_END };

struct host_thread {
    struct worker *worker; /* held; NULL for a standby and while `lent` */
    struct worker *lent;   /* offered by this thread's fiber between blocking_begin and _end */
    uint32_t lent_offer;   /* the value of its `offer` */
    enum switch_reason reason;
    void *loop_sp; /* of the loop while a fiber runs */
    void *host_sp; /* of the thread's own stack while the loop runs */
    struct fiber_stack *loop_stack;
    unsigned index;
    void *tsan_context;
    void *loop_fake_stack; /* AddressSanitizer's */
    void *host_fake_stack;
    const void *host_stack_bottom;
    size_t host_stack_size;
};

/* sched.c: puts a fiber in state QUEUED into its home's queue and wakes that worker if need be. */
void worker_enqueue(struct fiber *f);
void worker_count_home(unsigned worker, int change);

/* fiber.c: runs `f` (QUEUED, with a stack) until it parks, yields or ends; on a loop's stack. On return
 * `t` may have lost its worker. */
void fiber_run(struct host_thread *t, struct fiber *f);
/* fiber.c: what a fiber's stack executes. */
NORETURN void fiber_main(struct fiber_stack *s);
/* sched.c */
NORETURN void worker_loop_main(struct host_thread *t);
/* sched.c: a stack that an ended fiber left, for the next one. */
void worker_put_stack(struct host_thread *t, struct fiber_stack *s);

/* event.c. event_thread_start() makes the descriptors and the thread, which waits for event_thread_go(). */
MUST_CHECK int event_thread_start(const struct sched_ops *ops, unsigned thread_index);
void event_thread_go(void);
void event_thread_stop(void); /* any thread */
void event_thread_join(void);
/* event.c: a new thread for `main` with a small stack. */
MUST_CHECK int host_thread_create(void *(*main)(void *arg), void *arg, unsigned long *ret_thread);
/* overflow.c: blocks signals, sets up the alternate stack; at each new thread's begin. */
void host_thread_setup(unsigned index);
MUST_CHECK int host_thread_setup_init(unsigned thread_count);
/* Each new thread says so after its setup; sched_init() waits for all, so that what they have done until
 * then needs no place in the filter. */
void host_thread_is_ready(void);
void host_threads_wait_ready(unsigned thread_count);

/* timer.c, for the event thread */
MUST_CHECK int timers_init(int *ret_timerfd);
void timers_run(void);
