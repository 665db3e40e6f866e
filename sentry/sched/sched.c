/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Workers and the host threads that run them.
 *
 * Theory of operation. A host thread that holds a worker runs its loop: up to DIRECT_MAX runnable fibers,
 * then poll(). A fiber that is queued by the thread that holds its home goes straight to the runnable
 * queue; from anywhere else into the home's inbox, and the pusher wakes the worker only if it sleeps:
 *     pusher:  push to inbox;       if (exchange(is_sleeping, false)) wake_worker()
 *     loop:    is_sleeping = true;  if (inbox is empty) poll(may_block)
 * both sequentially consistent, so one of the two sees the other.
 *
 * Hand-off: sched_blocking_begin() offers the worker; who closes the offer has it (worker.h). Most of these
 * host calls are short, and waking a thread for each would cost more than they do. So one standby *watches*:
 * it looks every WATCH_NS and takes a worker that has been in the same call for that long; when it saw no
 * offer twice it goes back to sleep. begin() wakes a standby only if none watches. The fiber's own thread
 * closes the offer at the end of a short call; a thread whose fiber parks or ends after it lost its worker
 * becomes a standby. With no standby idle the offer simply stands.
 *     begin:    offer = odd;         if (!is_watched) wake a standby
 *     watcher:  is_watched = false;  if (an offer is open) watch on
 *
 * Everything runs on stacks of the region (stack.h), the loops too.
 */
#include "sentry/sched/sched.h"

#include "base/host.h"
#define LOG_MODULE "sched"
#include "base/log.h"
#include "sentry/sched/futex.h"
#include "sentry/sched/sanitizer.h"
#include "sentry/sched/stack.h"
#include "sentry/sched/worker.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

#define DIRECT_MAX        16 /* fibers run between two looks at the platform */
#define WORKER_STACKS_MAX 8
#define THREADS_MAX       (2 * SCHED_WORKERS_MAX)
#define WATCH_NS          50000

static struct {
    struct sched_config config; /* immutable after init */
    unsigned thread_count;      /* immutable after init */
    struct host_thread threads[THREADS_MAX];
    struct worker workers[SCHED_WORKERS_MAX];

    _Atomic uint32_t has_begun; /* futex: threads wait for sched_run() */
    _Atomic bool is_stopping;
    _Atomic uint32_t call_count; /* futex: standbys sleep on it; grows with each call for one */
    _Atomic uint32_t idle_count; /* standbys that sleep, are about to, or watch */
    _Atomic bool is_watched;     /* a standby watches, or is about to */
    _Atomic uint32_t never;      /* futex for sleeping by time */
    _Atomic uint32_t left_count;  /* futex: workers whose loop was left for good */
} g_sched;

/* ---- queues ------------------------------------------------------------------------------------ */

static void wake_worker(struct worker *w)
{
    if (atomic_load(&w->is_sleeping) && atomic_exchange(&w->is_sleeping, false))
        g_sched.config.ops.wake_worker(g_sched.config.ops.arg, w->index);
}

/* hot */
void worker_enqueue(struct fiber *f)
{
    struct worker *w = &g_sched.workers[f->worker];
    struct fiber_stack *s = stack_here();
    if (s && s->thread->worker == w) {
        TAILQ_INSERT_TAIL(&w->runnable, f, runnable);
        return;
    }
    struct fiber *head = atomic_load_explicit(&w->inbox, memory_order_relaxed);
    do {
        f->inbox_next = head;
    } while (!atomic_compare_exchange_weak(&w->inbox, &head, f));
    wake_worker(w);
}

/* The inbox is newest first; the queue is not. */
static void drain_inbox(struct worker *w)
{
    if (!atomic_load_explicit(&w->inbox, memory_order_relaxed))
        return;
    struct fiber *newest_first = atomic_exchange(&w->inbox, NULL);
    struct fiber *oldest_first = NULL;
    while (newest_first) {
        struct fiber *f = newest_first;
        newest_first = f->inbox_next;
        f->inbox_next = oldest_first;
        oldest_first = f;
    }
    while (oldest_first) {
        struct fiber *f = oldest_first;
        oldest_first = f->inbox_next;
        TAILQ_INSERT_TAIL(&w->runnable, f, runnable);
    }
}

void worker_count_home(unsigned worker, int change)
{
    ASSERT(worker < SCHED_WORKERS_MAX);
    atomic_fetch_add_explicit(&g_sched.workers[worker].homes, (uint32_t)change, memory_order_relaxed);
}

unsigned sched_pick_worker(void)
{
    unsigned best = 0;
    uint32_t best_homes = UINT32_MAX;
    for (unsigned i = 0; i < g_sched.config.workers; i++) {
        uint32_t homes = atomic_load_explicit(&g_sched.workers[i].homes, memory_order_relaxed);
        if (homes < best_homes) {
            best = i;
            best_homes = homes;
        }
    }
    return best;
}

/* ---- stacks ------------------------------------------------------------------------------------ */

/* False: there is none; the fiber waits in the pool. */
static bool lend_stack(struct worker *w, struct fiber *f)
{
    if (f->stack)
        return true;
    struct fiber_stack *s = SLIST_FIRST(&w->stacks);
    if (s) {
        SLIST_REMOVE_HEAD(&w->stacks, free);
        w->stack_count--;
    } else {
        s = stack_get(f);
        if (!s)
            return false;
    }
    f->stack = s;
    return true;
}

void worker_put_stack(struct host_thread *t, struct fiber_stack *s)
{
    struct worker *w = t->worker;
    s->fiber = NULL;
    s->epilogue = NULL;
    if (w && w->stack_count < WORKER_STACKS_MAX && !stack_is_wanted()) {
        SLIST_INSERT_HEAD(&w->stacks, s, free);
        w->stack_count++;
        return;
    }
    struct fiber *waiting = stack_put(s);
    if (waiting)
        worker_enqueue(waiting);
}

/* ---- the loop ---------------------------------------------------------------------------------- */

static bool is_stopping(void)
{
    return atomic_load(&g_sched.is_stopping);
}

static void poll_worker(struct worker *w)
{
    const struct sched_ops *ops = &g_sched.config.ops;
    if (!TAILQ_EMPTY(&w->runnable)) {
        ops->poll(ops->arg, w->index, false);
        return;
    }
    atomic_store(&w->is_sleeping, true);
    if (!atomic_load(&w->inbox) && !is_stopping())
        ops->poll(ops->arg, w->index, true);
    atomic_store_explicit(&w->is_sleeping, false, memory_order_relaxed);
}

/* Returns when the sandbox stops or this thread's worker was taken over while its fiber was blocked. */
static void run_worker(struct host_thread *t)
{
    struct worker *w = t->worker;
    while (!is_stopping()) {
        drain_inbox(w);
        for (int n = 0; n < DIRECT_MAX && !TAILQ_EMPTY(&w->runnable); n++) {
            struct fiber *f = TAILQ_FIRST(&w->runnable);
            TAILQ_REMOVE(&w->runnable, f, runnable);
            if (!lend_stack(w, f))
                continue;
            fiber_run(t, f);
            if (t->worker != w)
                return;
        }
        poll_worker(w);
    }
}

static void leave_worker(struct host_thread *t)
{
    t->worker = NULL;
    atomic_fetch_add(&g_sched.left_count, 1);
    futex_wake(&g_sched.left_count, 1);
}

static bool take_worker(struct host_thread *t, struct worker *w, uint32_t offer)
{
    if (!atomic_compare_exchange_strong(&w->offer, &offer, offer + 1))
        return false;
    t->worker = w;
    return true;
}

static bool take_any_worker(struct host_thread *t)
{
    for (unsigned i = 0; i < g_sched.config.workers; i++) {
        struct worker *w = &g_sched.workers[i];
        uint32_t offer = atomic_load(&w->offer);
        if (OFFER_IS_OPEN(offer) && take_worker(t, w, offer))
            return true;
    }
    return false;
}

static bool is_any_offered(void)
{
    for (unsigned i = 0; i < g_sched.config.workers; i++) {
        if (OFFER_IS_OPEN(atomic_load(&g_sched.workers[i].offer)))
            return true;
    }
    return false;
}

static void call_standby(void)
{
    if (!atomic_load(&g_sched.idle_count))
        return;
    atomic_fetch_add(&g_sched.call_count, 1);
    futex_wake(&g_sched.call_count, 1);
}

/* One look: takes a worker whose offer is the same as at the last look. */
static bool look_at_offers(struct host_thread *t, uint32_t *last_offers, bool *ret_any)
{
    *ret_any = false;
    for (unsigned i = 0; i < g_sched.config.workers; i++) {
        struct worker *w = &g_sched.workers[i];
        uint32_t offer = atomic_load(&w->offer);
        if (!OFFER_IS_OPEN(offer))
            continue;
        *ret_any = true;
        if (offer == last_offers[i] && take_worker(t, w, offer))
            return true;
        last_offers[i] = offer;
    }
    return false;
}

/* True: got a worker. */
static bool watch(struct host_thread *t)
{
    static const struct timespec interval = {.tv_nsec = WATCH_NS};
    uint32_t last_offers[SCHED_WORKERS_MAX] = {0};
    bool taken = false;
    int quiet_looks = 0;
    while (!taken && quiet_looks < 2 && !is_stopping()) {
        bool any;
        taken = look_at_offers(t, last_offers, &any);
        quiet_looks = any ? 0 : quiet_looks + 1;
        if (!taken)
            futex_wait(&g_sched.never, 0, &interval);
    }
    atomic_store(&g_sched.is_watched, false);
    if (taken && is_any_offered())
        call_standby();
    return taken;
}

/* Sleeps until it got a worker. False: the sandbox stops. */
static bool stand_by(struct host_thread *t)
{
    atomic_fetch_add(&g_sched.idle_count, 1);
    bool taken = false;
    while (!taken && !is_stopping()) {
        uint32_t seen = atomic_load(&g_sched.call_count);
        if (is_any_offered() && !atomic_exchange(&g_sched.is_watched, true))
            taken = watch(t);
        else if (!is_stopping())
            futex_wait(&g_sched.call_count, seen, NULL);
    }
    atomic_fetch_sub(&g_sched.idle_count, 1);
    return taken;
}

/* On the thread's loop stack; ends by going back to the thread's own. */
SWITCHES_STACKS void worker_loop_main(struct host_thread *t)
{
    __sanitizer_finish_switch_fiber(NULL, &t->host_stack_bottom, &t->host_stack_size);
    do {
        if (t->worker)
            run_worker(t);
        if (t->worker)
            leave_worker(t);
    } while (stand_by(t));
    __sanitizer_start_switch_fiber(NULL, t->host_stack_bottom, t->host_stack_size);
    stack_switch(&t->loop_sp, t->host_sp);
    __builtin_unreachable();
}

SWITCHES_STACKS NORETURN void stack_main(struct fiber_stack *s)
{
    if (s->fiber)
        fiber_main(s);
    worker_loop_main(s->thread);
}

/* ---- host threads ------------------------------------------------------------------------------ */

SWITCHES_STACKS static void run_loop(struct host_thread *t)
{
    t->tsan_context = __tsan_get_current_fiber();
    __sanitizer_start_switch_fiber(&t->host_fake_stack, stack_bottom(t->loop_stack), STACK_SIZE);
    stack_switch(&t->host_sp, stack_prepare(t->loop_stack));
    __sanitizer_finish_switch_fiber(t->host_fake_stack, NULL, NULL);
}

static void *thread_main(void *arg)
{
    struct host_thread *t = arg;
    host_thread_setup(t->index);
    host_thread_is_ready();
    while (!atomic_load(&g_sched.has_begun))
        futex_wait(&g_sched.has_begun, 0, NULL);
    run_loop(t);
    return NULL;
}

static int threads_create(void)
{
    for (unsigned i = 0; i < g_sched.thread_count; i++) {
        struct host_thread *t = &g_sched.threads[i];
        t->index = i;
        t->worker = i < g_sched.config.workers ? &g_sched.workers[i] : NULL;
        t->loop_stack = stack_get(NULL);
        if (!t->loop_stack)
            return -ENOMEM;
        t->loop_stack->thread = t;
        if (i == 0)
            continue; /* sched_run()'s caller */
        unsigned long thread;
        int r = host_thread_create(thread_main, t, &thread);
        if (r < 0)
            return r;
        pthread_detach(thread);
    }
    return 0;
}

int sched_init(const struct sched_config *config)
{
    if (config->workers < 1 || config->workers > SCHED_WORKERS_MAX)
        return -EINVAL;
    g_sched.config = *config;
    if (!config->may_hand_off)
        g_sched.config.standby = 0;
    g_sched.thread_count = config->workers + g_sched.config.standby;
    if (g_sched.thread_count > THREADS_MAX)
        return -EINVAL;
    for (unsigned i = 0; i < SCHED_WORKERS_MAX; i++) {
        struct worker *w = &g_sched.workers[i];
        TAILQ_INIT(&w->runnable);
        SLIST_INIT(&w->stacks);
        w->index = i;
    }
    int r = stack_region_init();
    if (r < 0)
        return r;
    /* One more for the event thread. */
    r = host_thread_setup_init(g_sched.thread_count + 1);
    if (r < 0)
        return r;
    r = event_thread_start(&g_sched.config.ops, g_sched.thread_count);
    if (r < 0)
        return r;
    r = threads_create();
    if (r < 0)
        return r;
    host_thread_setup(0);
    host_threads_wait_ready(g_sched.thread_count); /* the caller is none of them, the event thread is one */
    return 0;
}

void sched_run(void)
{
    struct host_thread *t = &g_sched.threads[0];
    atomic_store(&g_sched.has_begun, 1);
    futex_wake(&g_sched.has_begun, INT_MAX);
    event_thread_go();
    run_loop(t);

    /* A worker that is offered now has no loop, and a later offer finds no standby. */
    for (;;) {
        while (take_any_worker(t))
            leave_worker(t);
        uint32_t left = atomic_load(&g_sched.left_count);
        if (left >= g_sched.config.workers)
            break;
        struct timespec look_again = {.tv_nsec = 10000000};
        futex_wait(&g_sched.left_count, left, &look_again);
    }
    event_thread_join();
}

void sched_stop(void)
{
    atomic_store(&g_sched.is_stopping, true);
    for (unsigned i = 0; i < g_sched.config.workers; i++)
        g_sched.config.ops.wake_worker(g_sched.config.ops.arg, i);
    atomic_fetch_add(&g_sched.call_count, 1);
    futex_wake(&g_sched.call_count, INT_MAX);
    event_thread_stop();
}

/* ---- hand-off ---------------------------------------------------------------------------------- */

void sched_blocking_begin(void)
{
    if (!g_sched.config.may_hand_off)
        return;
    struct fiber_stack *s = stack_here();
    if (!s || !s->fiber || !s->thread->worker)
        return;
    struct host_thread *t = s->thread;
    struct worker *w = t->worker;
    t->worker = NULL;
    t->lent = w;
    t->lent_offer = atomic_load_explicit(&w->offer, memory_order_relaxed) + 1;
    atomic_store(&w->offer, t->lent_offer);
    if (!atomic_load(&g_sched.is_watched))
        call_standby();
}

void sched_blocking_end(void)
{
    struct fiber_stack *s = stack_here();
    if (!s || !s->fiber || !s->thread->lent)
        return;
    struct host_thread *t = s->thread;
    (void)take_worker(t, t->lent, t->lent_offer);
    t->lent = NULL;
}
