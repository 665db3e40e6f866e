/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fibers. fiber_start() and fiber_wake() run on any host thread, fiber_run() on a worker's loop, the rest
 * on fibers.
 *
 * Theory of operation. All that several threads may do to a fiber at once is a transition of its state
 * word, always by an atomic read-modify-write, also where the state stays as it is: the transitions of
 * one fiber form one order, and each sees what the earlier ones' threads had written. So a waker that
 * stored its condition and then finds RUNNING or QUEUED leaves a mark or is seen by the next check.
 *
 *   state    meaning                               fiber_wake()         the fiber or its loop
 *   IDLE     not active                            stays                fiber_start() → QUEUED
 *   QUEUED   in a runnable queue, inbox or         stays                fiber_run() → RUNNING
 *            waiting for a stack
 *   RUNNING  executing                             → WOKEN              park → PARKING; yield → QUEUED;
 *                                                                       end → IDLE
 *   WOKEN    executing; the next park returns      stays                park → RUNNING; yield → QUEUED;
 *            at once                                                    end → IDLE
 *   PARKING  asked to park, its stack still in     → PARKING_WOKEN      loop, off its stack → PARKED
 *            use
 *   PARKING_WOKEN  the same, woken meanwhile       stays                loop → QUEUED, enqueue
 *   PARKED   off its stack                         → QUEUED, enqueue    (nobody)
 *
 * Who makes a fiber QUEUED enqueues it, once. RESTART is a bit beside RUNNING and WOKEN: fiber_start() came
 * while the previous activation had not ended; its end goes to QUEUED instead of IDLE.
 *
 * A fiber's plain fields belong to who runs it; they pass through the state word.
 */
#include "sentry/sched/fiber.h"

#include "base/host.h"
#define LOG_MODULE "sched"
#include "base/log.h"
#include "sentry/sched/sanitizer.h"
#include "sentry/sched/sched.h"
#include "sentry/sched/stack.h"
#include "sentry/sched/worker.h"
#include <errno.h>

enum fiber_state {
    FIBER_IDLE,
    FIBER_QUEUED,
    FIBER_RUNNING,
    FIBER_WOKEN,
    FIBER_PARKING,
    FIBER_PARKING_WOKEN,
    FIBER_PARKED,
    FIBER_STATE_COUNT,
};
#define FIBER_RESTART 0x80u

void fiber_init(struct fiber *f, unsigned worker, const char *name)
{
    *f = (struct fiber){.name = name, .worker = worker};
    worker_count_home(worker, 1);
}

void fiber_fini(struct fiber *f)
{
    ASSERT(atomic_load_explicit(&f->state, memory_order_relaxed) == FIBER_IDLE);
    worker_count_home(f->worker, -1);
}

/* hot */
struct fiber *fiber_current(void)
{
    struct fiber_stack *s = stack_here();
    return s ? s->fiber : NULL;
}

bool fiber_is_parked(const struct fiber *f)
{
    uint32_t state = atomic_load_explicit(&f->state, memory_order_relaxed);
    return state == FIBER_PARKED || state == FIBER_PARKING;
}

void fiber_set_epilogue(void (*epilogue)(void *arg), void *arg)
{
    struct fiber_stack *s = stack_here();
    ASSERT(s && s->fiber);
    s->epilogue = epilogue;
    s->epilogue_arg = arg;
}

/* entry and arg are read at the begin of an activation, so a restart may set them before its end. */
void fiber_start(struct fiber *f, void (*entry)(void *arg), void *arg)
{
    f->entry = entry;
    f->arg = arg;
    uint32_t old = FIBER_IDLE;
    if (likely(atomic_compare_exchange_strong_explicit(&f->state, &old, FIBER_QUEUED,
                                                       memory_order_acq_rel, memory_order_relaxed))) {
        worker_enqueue(f);
        return;
    }
    for (;;) {
        ASSERT(old == FIBER_IDLE || old == FIBER_RUNNING || old == FIBER_WOKEN);
        uint32_t next = old == FIBER_IDLE ? FIBER_QUEUED : old | FIBER_RESTART;
        if (!atomic_compare_exchange_weak_explicit(&f->state, &old, next, memory_order_acq_rel,
                                                   memory_order_relaxed))
            continue;
        if (next == FIBER_QUEUED)
            worker_enqueue(f);
        return;
    }
}

void fiber_wake(struct fiber *f)
{
    static const uint8_t after_wake[FIBER_STATE_COUNT] = {
        [FIBER_IDLE] = FIBER_IDLE,
        [FIBER_QUEUED] = FIBER_QUEUED,
        [FIBER_RUNNING] = FIBER_WOKEN,
        [FIBER_WOKEN] = FIBER_WOKEN,
        [FIBER_PARKING] = FIBER_PARKING_WOKEN,
        [FIBER_PARKING_WOKEN] = FIBER_PARKING_WOKEN,
        [FIBER_PARKED] = FIBER_QUEUED,
    };
    uint32_t old = atomic_load_explicit(&f->state, memory_order_relaxed);
    uint32_t next;
    do {
        next = after_wake[old & ~FIBER_RESTART] | (old & FIBER_RESTART);
    } while (!atomic_compare_exchange_weak_explicit(&f->state, &old, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (old == FIBER_PARKED)
        worker_enqueue(f);
}

/* From a fiber to its host thread's loop. Returns when the fiber runs again, perhaps on another thread. */
SWITCHES_STACKS static void switch_to_loop(struct fiber_stack *s, enum switch_reason reason)
{
    struct fiber *f = s->fiber;
    struct host_thread *t = s->thread;
    t->reason = reason;
    __sanitizer_start_switch_fiber(reason == SWITCH_END ? NULL : &f->sanitizer_fake_stack,
                                   stack_bottom(t->loop_stack), STACK_SIZE);
    __tsan_switch_to_fiber(t->tsan_context, 0);
    stack_switch(&f->sp, t->loop_sp);
    __sanitizer_finish_switch_fiber(f->sanitizer_fake_stack, NULL, NULL);
}

SWITCHES_STACKS static void switch_to_fiber(struct host_thread *t, struct fiber *f)
{
    __sanitizer_start_switch_fiber(&t->loop_fake_stack, stack_bottom(f->stack), STACK_SIZE);
    __tsan_switch_to_fiber(f->stack->tsan_fiber, 0);
    stack_switch(&t->loop_sp, f->sp);
    __sanitizer_finish_switch_fiber(t->loop_fake_stack, NULL, NULL);
}

SWITCHES_STACKS NORETURN void fiber_main(struct fiber_stack *s)
{
    __sanitizer_finish_switch_fiber(NULL, NULL, NULL);
    struct fiber *f = s->fiber;
    f->entry(f->arg);
    switch_to_loop(s, SWITCH_END);
    __builtin_unreachable();
}

/* Off the fiber's stack: it may run elsewhere as soon as its state says so. */
static void finish_park(struct fiber *f)
{
    uint32_t old = atomic_load_explicit(&f->state, memory_order_relaxed);
    uint32_t next;
    do {
        uint32_t kind = old & ~FIBER_RESTART;
        ASSERT(kind == FIBER_PARKING || kind == FIBER_PARKING_WOKEN);
        next = (kind == FIBER_PARKING ? FIBER_PARKED : FIBER_QUEUED) | (old & FIBER_RESTART);
    } while (!atomic_compare_exchange_weak_explicit(&f->state, &old, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if ((next & ~FIBER_RESTART) == FIBER_QUEUED)
        worker_enqueue(f);
}

static void finish_end(struct host_thread *t, struct fiber *f)
{
    struct fiber_stack *s = f->stack;
    void (*epilogue)(void *arg) = s->epilogue;
    void *arg = s->epilogue_arg;
    f->stack = NULL;
    worker_put_stack(t, s);

    uint32_t old = atomic_load_explicit(&f->state, memory_order_relaxed);
    uint32_t next;
    do {
        next = old & FIBER_RESTART ? FIBER_QUEUED : FIBER_IDLE;
    } while (!atomic_compare_exchange_weak_explicit(&f->state, &old, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if (next == FIBER_QUEUED) {
        ASSERT(!epilogue);
        worker_enqueue(f);
        return;
    }
    if (epilogue)
        epilogue(arg);
}

void fiber_run(struct host_thread *t, struct fiber *f)
{
    if (!f->sp) {
        f->stack->fiber = f;
        f->sp = stack_prepare(f->stack);
        if (!f->stack->tsan_fiber)
            f->stack->tsan_fiber = __tsan_create_fiber(0);
    }
    f->stack->thread = t;
    /* A QUEUED fiber keeps a RESTART bit that came before it yielded or parked. */
    uint32_t old = atomic_fetch_add_explicit(&f->state, FIBER_RUNNING - FIBER_QUEUED, memory_order_acq_rel);
    ASSERT((old & ~FIBER_RESTART) == FIBER_QUEUED);
    switch_to_fiber(t, f);
    switch (t->reason) {
    case SWITCH_PARK:
        finish_park(f);
        break;
    case SWITCH_YIELD: {
        /* No transition but RUNNING → WOKEN and the RESTART bit can interfere. */
        uint32_t now = atomic_load_explicit(&f->state, memory_order_relaxed);
        while (!atomic_compare_exchange_weak_explicit(&f->state, &now,
                                                      FIBER_QUEUED | (now & FIBER_RESTART),
                                                      memory_order_acq_rel, memory_order_relaxed))
            ;
        worker_enqueue(f);
        break;
    }
    case SWITCH_END:
        f->sp = NULL;
        finish_end(t, f);
        break;
    }
}

/* Parks unless a wake-up is already there; consumes it. */
static void park_once(struct fiber_stack *s)
{
    struct fiber *f = s->fiber;
    uint32_t old = atomic_load_explicit(&f->state, memory_order_relaxed);
    uint32_t next;
    do {
        uint32_t kind = old & ~FIBER_RESTART;
        next = (kind == FIBER_WOKEN ? FIBER_RUNNING : FIBER_PARKING) | (old & FIBER_RESTART);
    } while (!atomic_compare_exchange_weak_explicit(&f->state, &old, next, memory_order_acq_rel,
                                                    memory_order_relaxed));
    if ((next & ~FIBER_RESTART) == FIBER_PARKING)
        switch_to_loop(s, SWITCH_PARK);
}

static bool is_interrupted(struct fiber *f, enum fiber_park_mode mode)
{
    if (mode == FIBER_UNINTERRUPTIBLE)
        return false;
    if (atomic_load_explicit(&f->killed, memory_order_acquire))
        return true;
    return mode == FIBER_INTERRUPTIBLE && atomic_load_explicit(&f->interrupted, memory_order_acquire);
}

struct park_timer {
    struct timer timer;
    struct fiber *fiber;
    _Atomic bool has_fired;
};

static void park_timer_fire(struct timer *timer)
{
    struct park_timer *t = container_of(timer, struct park_timer, timer);
    atomic_store_explicit(&t->has_fired, true, memory_order_release);
    fiber_wake(t->fiber);
}

static int park_until(struct fiber_stack *s, enum fiber_park_mode mode, uint64_t deadline_ns)
{
    if (host_monotonic_ns() >= deadline_ns)
        return -ETIMEDOUT;
    struct park_timer t = {.fiber = s->fiber};
    timer_init(&t.timer, park_timer_fire);
    timer_arm(&t.timer, deadline_ns);
    park_once(s);
    timer_cancel(&t.timer); /* from here on nobody else knows `t` */
    if (atomic_load_explicit(&t.has_fired, memory_order_acquire))
        return -ETIMEDOUT;
    return is_interrupted(s->fiber, mode) ? -EINTR : 0;
}

int fiber_park(enum fiber_park_mode mode, uint64_t deadline_ns)
{
    struct fiber_stack *s = stack_here();
    ASSERT(s && s->fiber);
    /* A flag that is set after this check is followed by a wake-up, which ends the park. */
    if (is_interrupted(s->fiber, mode))
        return -EINTR;
    if (deadline_ns != FIBER_NO_DEADLINE)
        return park_until(s, mode, deadline_ns);
    park_once(s);
    return is_interrupted(s->fiber, mode) ? -EINTR : 0;
}

void fiber_yield(void)
{
    struct fiber_stack *s = stack_here();
    if (s && s->fiber)
        switch_to_loop(s, SWITCH_YIELD);
}
