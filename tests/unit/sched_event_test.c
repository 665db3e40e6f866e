/* SPDX-License-Identifier: Apache-2.0 */
/* Timers, event sources and SIGCHLD of the event thread; wait queues and the sleeping lock. */
#include "sched_fixture.h"
#include <sys/epoll.h>

static void sleep_ms(unsigned ms)
{
    uint64_t deadline = in_ms(ms);
    while (fiber_park(FIBER_UNINTERRUPTIBLE, deadline) == 0)
        ;
}

/* ---- timers ---------------------------------------------------------------------------------- */

static struct timer g_timers[4];
static _Atomic unsigned g_fired, g_fire_order[4];

static void note_fire(struct timer *t)
{
    unsigned n = g_fired++;
    if (n < 4)
        g_fire_order[n] = (unsigned)(t - g_timers);
}

static void timers_body(void)
{
    uint64_t start = in_ms(10);
    for (unsigned i = 0; i < 4; i++)
        timer_init(&g_timers[i], note_fire);
    timer_arm(&g_timers[2], start + MS(6));
    timer_arm(&g_timers[1], start + MS(3));
    timer_arm(&g_timers[3], start + MS(100000));
    timer_arm(&g_timers[0], start);
    timer_arm(&g_timers[3], start + MS(9)); /* armed again: earlier */
    while (g_fired < 4)
        sleep_ms(1);
    for (unsigned i = 0; i < 4; i++)
        cr_assert_eq(g_fire_order[i], i);
    timer_arm(&g_timers[0], in_ms(10));
    timer_cancel(&g_timers[0]);
    timer_cancel(&g_timers[0]);
    sleep_ms(20);
    cr_assert_eq(g_fired, 4);
}

Test(timer, fires_in_order_and_not_after_cancel)
{
    fixture_init(1, 0, false);
    fixture_run(timers_body);
}

static struct timer g_periodic;
static _Atomic bool g_in_fire;
static _Atomic unsigned g_periods;

static void periodic_fire(struct timer *t)
{
    g_in_fire = true;
    g_periods++;
    timer_arm(t, host_monotonic_ns() + 1000);
    for (volatile int i = 0; i < 2000; i++)
        ;
    g_in_fire = false;
}

static void cancel_race_body(void)
{
    timer_init(&g_periodic, periodic_fire);
    for (unsigned i = 0; i < 500; i++) {
        timer_arm(&g_periodic, host_monotonic_ns());
        if (i % 3)
            fiber_park(FIBER_UNINTERRUPTIBLE, host_monotonic_ns() + i * 100);
        timer_cancel(&g_periodic);
        cr_assert(!g_in_fire);
        unsigned periods = g_periods;
        if (i % 50 == 0)
            sleep_ms(1);
        cr_assert_eq(g_periods, periods);
    }
}

Test(timer, cancel_waits_for_a_running_fire_that_arms_again)
{
    fixture_init(1, 0, false);
    fixture_run(cancel_race_body);
}

/* ---- event sources --------------------------------------------------------------------------- */

static struct event_source g_source;
static _Atomic unsigned g_ready;
static int g_pipe[2];

static void source_ready(struct event_source *s, uint32_t events)
{
    cr_assert(s == &g_source);
    cr_assert(events & EPOLLIN);
    g_ready++;
    fiber_wake(&g_fixture_fiber);
}

static void source_body(void)
{
    cr_assert_eq(pipe(g_pipe), 0);
    g_source = (struct event_source){.hfd = g_pipe[0], .ready = source_ready, .interest = EPOLLIN};
    for (unsigned i = 0; i < 300; i++) {
        unsigned before = g_ready;
        cr_assert_eq(event_source_add(&g_source), 0);
        cr_assert_eq(write(g_pipe[1], "x", 1), 1);
        while (i % 3 && g_ready == before)
            fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
        event_source_remove(&g_source);
        unsigned after = g_ready;
        char byte;
        cr_assert_eq(read(g_pipe[0], &byte, 1), 1);
        cr_assert_eq(write(g_pipe[1], "x", 1), 1);
        cr_assert_eq(read(g_pipe[0], &byte, 1), 1);
        cr_assert_eq(g_ready, after);
    }
    FILE *file = tmpfile();
    g_source.hfd = fileno(file);
    cr_assert_eq(event_source_add(&g_source), -EPERM);
    fclose(file);
}

Test(event_source, reports_edges_until_it_is_removed)
{
    fixture_init(1, 0, false);
    fixture_run(source_body);
}

static void remove_itself(struct event_source *s, uint32_t events)
{
    (void)events;
    event_source_remove(s);
    g_ready++;
    fiber_wake(&g_fixture_fiber);
}

static void remove_itself_body(void)
{
    cr_assert_eq(pipe(g_pipe), 0);
    g_source = (struct event_source){.hfd = g_pipe[0], .ready = remove_itself, .interest = EPOLLIN};
    cr_assert_eq(event_source_add(&g_source), 0);
    cr_assert_eq(write(g_pipe[1], "x", 1), 1);
    while (!g_ready)
        fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
}

Test(event_source, may_be_removed_by_its_own_callback)
{
    fixture_init(1, 0, false);
    fixture_run(remove_itself_body);
}

static void child_body(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    while (!g_fixture_children)
        sleep_ms(1);
    cr_assert_eq(waitpid(pid, NULL, 0), pid);
}

Test(event_thread, reports_the_death_of_a_child)
{
    fixture_init(1, 0, false);
    fixture_run(child_body);
}

/* ---- wait queues ------------------------------------------------------------------------------ */

static struct wait_queue g_queue;
static struct fiber g_waiting[4];
static unsigned g_tokens, g_taken;

static void exclusive_main(void *arg)
{
    (void)arg;
    struct waiter w;
    waiter_init(&w);
    w.exclusive = true;
    wait_queue_add(&g_queue, &w);
    while (!g_tokens)
        fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
    g_tokens--;
    g_taken++;
    wait_queue_remove(&w);
}

static void exclusive_body(void)
{
    wait_queue_init(&g_queue);
    for (unsigned i = 0; i < 4; i++) {
        fiber_init(&g_waiting[i], 0, "waiting");
        fiber_start(&g_waiting[i], exclusive_main, NULL);
    }
    fiber_yield();
    g_tokens = 1;
    wait_queue_wake(&g_queue, EPOLLIN);
    fiber_yield();
    cr_assert_eq(g_taken, 1);
    g_tokens = 2; /* two wake-ups before anybody ran reach two waiters */
    wait_queue_wake(&g_queue, EPOLLIN);
    wait_queue_wake(&g_queue, EPOLLIN);
    fiber_yield();
    cr_assert_eq(g_taken, 3);
    g_tokens = 1;
    wait_queue_wake_all(&g_queue, EPOLLIN);
    fiber_yield();
    cr_assert_eq(g_taken, 4);
    wait_queue_fini(&g_queue);
}

Test(wait_queue, wakes_one_exclusive_waiter_at_a_time)
{
    fixture_init(1, 0, false);
    fixture_run(exclusive_body);
}

static unsigned g_calls;
static uint32_t g_call_events;

static bool note_call(struct waiter *w, uint32_t events)
{
    (void)w;
    g_calls++;
    g_call_events = events;
    return true;
}

Test(wait_queue, callbacks_get_only_the_events_that_they_want)
{
    struct waiter in, all;
    wait_queue_init(&g_queue);
    waiter_init_callback(&in, note_call, EPOLLIN);
    waiter_init_callback(&all, note_call, 0);
    wait_queue_add(&g_queue, &in);
    wait_queue_wake(&g_queue, EPOLLOUT);
    cr_assert_eq(g_calls, 0);
    wait_queue_wake(&g_queue, EPOLLIN | EPOLLHUP);
    cr_assert_eq(g_calls, 1);
    cr_assert_eq(g_call_events, EPOLLIN | EPOLLHUP);
    wait_queue_add(&g_queue, &all);
    wait_queue_wake(&g_queue, 0);
    cr_assert_eq(g_calls, 3);
    wait_queue_remove(&in);
    wait_queue_remove(&all);
    wait_queue_remove(&all);
    wait_queue_wake(&g_queue, 0);
    cr_assert_eq(g_calls, 3);
    wait_queue_fini(&g_queue);
}

static bool never(void *arg)
{
    (void)arg;
    return false;
}

static void sleep_results(void)
{
    wait_queue_init(&g_queue);
    cr_assert_eq(wait_queue_sleep(&g_queue, never, NULL, FIBER_KILLABLE, in_ms(2)), -ETIMEDOUT);
    fiber_current()->killed = true;
    cr_assert_eq(wait_queue_sleep(&g_queue, never, NULL, FIBER_KILLABLE, FIBER_NO_DEADLINE), -EINTR);
    wait_queue_fini(&g_queue);
}

Test(wait_queue, sleep_says_why_it_ended)
{
    fixture_init(1, 0, false);
    fixture_run(sleep_results);
}

/* ---- fmutex ----------------------------------------------------------------------------------- */

static struct fmutex g_mutex;
static char g_order[16];

static void fifo_main(void *arg)
{
    fmutex_lock(&g_mutex);
    strcat(g_order, arg);
    fiber_yield();
    fmutex_unlock(&g_mutex);
}

static void killed_main(void *arg)
{
    (void)arg;
    cr_assert_eq(fmutex_lock_killable(&g_mutex), -EINTR);
    strcat(g_order, "k");
}

static void fifo_body(void)
{
    static char names[][2] = {"a", "b", "c"};
    fmutex_init(&g_mutex);
    fmutex_lock(&g_mutex);
    for (unsigned i = 0; i < 3; i++) {
        fiber_init(&g_waiting[i], 0, names[i]);
        fiber_start(&g_waiting[i], fifo_main, names[i]);
    }
    fiber_init(&g_waiting[3], 0, "killed");
    fiber_start(&g_waiting[3], killed_main, NULL);
    fiber_yield();
    g_waiting[3].killed = true;
    fiber_wake(&g_waiting[3]);
    fiber_wake(&g_waiting[0]); /* spurious */
    fiber_yield();
    cr_assert_eq(strcmp(g_order, "k"), 0);
    fmutex_unlock(&g_mutex);
    fmutex_lock(&g_mutex); /* behind the others */
    cr_assert_eq(strcmp(g_order, "kabc"), 0);
    fmutex_unlock(&g_mutex);
    fmutex_fini(&g_mutex);
}

Test(fmutex, is_handed_over_in_order_and_waiting_for_it_is_killable)
{
    fixture_init(1, 0, false);
    fixture_run(fifo_body);
}

#define LOCKERS 6
static struct fiber g_lockers[LOCKERS];
static _Atomic unsigned g_lockers_done;
static unsigned g_counter; /* protected by g_mutex */

static void locker_main(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < 2000; i++) {
        fmutex_lock(&g_mutex);
        unsigned seen = g_counter;
        if (rand_r(&seed) % 8 == 0)
            fiber_yield();
        g_counter = seen + 1;
        fmutex_unlock(&g_mutex);
    }
    g_lockers_done++;
    fiber_wake(&g_fixture_fiber);
}

static void lockers_body(void)
{
    fmutex_init(&g_mutex);
    for (uintptr_t i = 0; i < LOCKERS; i++) {
        fiber_init(&g_lockers[i], i % 2, "locker");
        fiber_start(&g_lockers[i], locker_main, (void *)i);
    }
    while (g_lockers_done < LOCKERS)
        fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
    cr_assert_eq(g_counter, LOCKERS * 2000);
    fmutex_fini(&g_mutex);
}

Test(fmutex, excludes_fibers_of_several_workers)
{
    fixture_init(2, 0, true);
    fixture_run(lockers_body);
}
