/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers: starts, parks, wake-ups from everywhere, deadlines, interruptions, hand-off, overflow. */
#include "sched_fixture.h"

static void one_switch(void)
{
    cr_assert(fiber_current() == &g_fixture_fiber);
    fiber_yield();
    cr_assert(fiber_current() == &g_fixture_fiber);
}

Test(fiber, current_is_found_without_thread_local_storage)
{
    cr_assert(fiber_current() == NULL);
    fixture_init(1, 0, false);
    fixture_run(one_switch);
    cr_assert(fiber_current() == NULL);
}

static void early_wake(void)
{
    fiber_wake(fiber_current());
    cr_assert_eq(fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE), 0);
}

Test(fiber, wake_before_the_park_is_not_lost)
{
    fixture_init(1, 0, false);
    fixture_run(early_wake);
}

static void deadlines(void)
{
    uint64_t deadline = in_ms(20);
    int r;
    while ((r = fiber_park(FIBER_UNINTERRUPTIBLE, deadline)) == 0)
        ;
    cr_assert_eq(r, -ETIMEDOUT);
    cr_assert(host_monotonic_ns() >= deadline);
    cr_assert_eq(fiber_park(FIBER_UNINTERRUPTIBLE, 1), -ETIMEDOUT);
}

Test(fiber, park_ends_at_its_deadline)
{
    fixture_init(1, 0, false);
    fixture_run(deadlines);
}

static void interruptions(void)
{
    struct fiber *f = fiber_current();
    f->interrupted = true;
    cr_assert_eq(fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE), -EINTR);
    cr_assert_eq(fiber_park(FIBER_KILLABLE, in_ms(5)), -ETIMEDOUT);
    f->killed = true;
    cr_assert_eq(fiber_park(FIBER_KILLABLE, FIBER_NO_DEADLINE), -EINTR);
    cr_assert_eq(fiber_park(FIBER_UNINTERRUPTIBLE, in_ms(5)), -ETIMEDOUT);
}

Test(fiber, flags_end_a_park_as_its_mode_says)
{
    fixture_init(1, 0, false);
    fixture_run(interruptions);
}

/* Pairs that hand a token to and fro across workers, while host threads wake them at random. */
#define PAIRS  8
#define ROUNDS 3000
struct pair {
    struct fiber fibers[2];
    _Atomic unsigned turn;
    _Atomic unsigned done;
};
static struct pair g_pairs[PAIRS];
static _Atomic bool g_stop_storm;

static void pair_main(void *arg)
{
    struct fiber *self = fiber_current();
    struct pair *p = arg;
    unsigned me = self == &p->fibers[1];
    for (unsigned i = 0; i < ROUNDS; i++) {
        while (p->turn != me)
            fiber_park(FIBER_UNINTERRUPTIBLE, i % 7 == 0 ? in_ms(1000) : FIBER_NO_DEADLINE);
        p->turn = !me;
        fiber_wake(&p->fibers[!me]);
    }
    p->done++;
    fiber_wake(&g_fixture_fiber);
}

static void *storm(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    while (!g_stop_storm) {
        struct pair *p = &g_pairs[rand_r(&seed) % PAIRS];
        fiber_wake(&p->fibers[rand_r(&seed) % 2]);
        if (rand_r(&seed) % 64 == 0)
            usleep(50);
    }
    return NULL;
}

static void pairs_body(void)
{
    pthread_t threads[2];
    for (unsigned i = 0; i < PAIRS; i++) {
        fiber_init(&g_pairs[i].fibers[0], i % 3, "even");
        fiber_init(&g_pairs[i].fibers[1], (i + i / 3) % 3, "odd");
    }
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, storm, (void *)(i + 1));
    for (unsigned i = 0; i < PAIRS; i++) {
        fiber_start(&g_pairs[i].fibers[0], pair_main, &g_pairs[i]);
        fiber_start(&g_pairs[i].fibers[1], pair_main, &g_pairs[i]);
    }
    for (unsigned i = 0; i < PAIRS; i++) {
        while (g_pairs[i].done != 2)
            fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
    }
    g_stop_storm = true;
    for (unsigned i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
}

Test(fiber, wake_ups_survive_a_storm_from_several_host_threads)
{
    fixture_init(3, 1, true);
    fixture_run(pairs_body);
}

/* The same without the storm: a lost wake-up is not covered up by a random one. */
static void quiet_pairs_body(void)
{
    for (unsigned i = 0; i < PAIRS; i++) {
        fiber_init(&g_pairs[i].fibers[0], i % 2, "even");
        fiber_init(&g_pairs[i].fibers[1], !(i % 2), "odd");
        fiber_start(&g_pairs[i].fibers[0], pair_main, &g_pairs[i]);
        fiber_start(&g_pairs[i].fibers[1], pair_main, &g_pairs[i]);
    }
    for (unsigned i = 0; i < PAIRS; i++) {
        while (g_pairs[i].done != 2)
            fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
    }
}

Test(fiber, no_wake_up_between_workers_is_lost)
{
    fixture_init(2, 0, true);
    fixture_run(quiet_pairs_body);
}

/* ---- starts ---------------------------------------------------------------------------------- */

static struct fiber g_short;
static _Atomic unsigned g_runs, g_epilogues;

static void short_end(void *arg)
{
    (void)arg;
    cr_assert(fiber_current() == NULL);
    g_epilogues++;
    fiber_wake(&g_fixture_fiber);
}

static void short_main(void *arg)
{
    (void)arg;
    if (++g_runs < 1000)
        fiber_start(&g_short, short_main, NULL); /* the restart of an activation that has not ended */
    else
        fiber_set_epilogue(short_end, NULL);
}

static void restarts(void)
{
    fiber_init(&g_short, 1, "short");
    fiber_start(&g_short, short_main, NULL);
    while (!g_epilogues)
        fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
    cr_assert_eq(g_runs, 1000);
    fiber_fini(&g_short);
}

Test(fiber, start_before_the_end_of_the_last_activation_runs_after_it)
{
    fixture_init(2, 0, false);
    fixture_run(restarts);
}

static void heap_end(void *arg)
{
    fiber_fini(arg);
    free(arg);
    if (++g_epilogues == 100)
        fiber_wake(&g_fixture_fiber);
}

static void heap_main(void *arg)
{
    fiber_set_epilogue(heap_end, arg);
    fiber_yield();
}

static void heap_body(void)
{
    for (unsigned i = 0; i < 100; i++) {
        struct fiber *f = malloc(sizeof(*f));
        fiber_init(f, i % 2, "heap");
        fiber_start(f, heap_main, f);
    }
    while (g_epilogues < 100)
        fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
    cr_assert_eq(sched_pick_worker(), 1); /* worker 0 still has the test's own fiber */
}

Test(fiber, epilogue_may_free_its_fiber)
{
    fixture_init(2, 0, false);
    fixture_run(heap_body);
}

static char g_order[64];
static struct fiber g_ordered[8];

static void ordered_main(void *arg)
{
    strcat(g_order, arg);
    fiber_yield();
    strcat(g_order, arg);
}

static void order_body(void)
{
    static char names[][2] = {"a", "b", "c", "d"};
    for (unsigned i = 0; i < 4; i++) {
        fiber_init(&g_ordered[i], 0, names[i]);
        fiber_start(&g_ordered[i], ordered_main, names[i]);
    }
    for (unsigned i = 0; i < 4; i++)
        fiber_yield();
    cr_assert_eq(strcmp(g_order, "abcdabcd"), 0);
}

Test(fiber, runnable_fibers_run_in_order)
{
    fixture_init(1, 0, false);
    fixture_run(order_body);
}

/* ---- many ------------------------------------------------------------------------------------ */

#ifdef BAILEY_SANITIZED
#define MANY 1000
#else
#define MANY 10000
#endif
static struct fiber g_many[MANY];
static struct wait_queue g_many_queue;
static _Atomic bool g_many_go;
static _Atomic unsigned g_many_parked, g_many_done;

static bool many_may_go(void *arg)
{
    (void)arg;
    return g_many_go;
}

static void many_main(void *arg)
{
    (void)arg;
    g_many_parked++;
    cr_assert_eq(wait_queue_sleep(&g_many_queue, many_may_go, NULL, FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE), 0);
    if (++g_many_done == MANY)
        fiber_wake(&g_fixture_fiber);
}

static void many_body(void)
{
    wait_queue_init(&g_many_queue);
    for (unsigned i = 0; i < MANY; i++) {
        fiber_init(&g_many[i], i % 2, "many");
        fiber_start(&g_many[i], many_main, NULL);
    }
    while (g_many_parked < MANY)
        fiber_park(FIBER_UNINTERRUPTIBLE, in_ms(1));
    g_many_go = true;
    wait_queue_wake(&g_many_queue, 0);
    while (g_many_done < MANY)
        fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
}

Test(fiber, ten_thousand_may_be_parked)
{
    fixture_init(2, 0, true);
    fixture_run(many_body);
}

/* ---- hand-off -------------------------------------------------------------------------------- */

static int g_pipe[2];
static struct fiber g_blocked;
static _Atomic bool g_blocked_done;

static void blocked_main(void *arg)
{
    (void)arg;
    char byte = 0;
    sched_blocking_begin();
    ssize_t got = read(g_pipe[0], &byte, 1);
    sched_blocking_end();
    cr_assert_eq(got, 1);
    cr_assert_eq(byte, 'x');
    fiber_yield(); /* back to its worker, wherever that is */
    g_blocked_done = true;
    fiber_wake(&g_fixture_fiber);
}

static void handoff_body(void)
{
    cr_assert_eq(pipe(g_pipe), 0);
    fiber_init(&g_blocked, 0, "blocked");
    for (unsigned i = 0; i < 200; i++) {
        g_blocked_done = false;
        fiber_start(&g_blocked, blocked_main, NULL);
        fiber_yield(); /* it blocks; this fiber goes on only if the worker went to another thread */
        if (i % 2)
            fiber_park(FIBER_UNINTERRUPTIBLE, host_monotonic_ns() + 100000);
        cr_assert_eq(write(g_pipe[1], "x", 1), 1);
        while (!g_blocked_done)
            fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
    }
}

Test(fiber, others_run_while_one_is_in_a_blocking_host_call)
{
    fixture_init(1, 1, true);
    fixture_run(handoff_body);
}

static _Atomic unsigned g_mixed_done;
static struct fiber g_mixed[12];

static void mixed_main(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < 200; i++) {
        sched_blocking_begin();
        if (rand_r(&seed) % 4 == 0)
            usleep(rand_r(&seed) % 100);
        sched_blocking_end();
        if (rand_r(&seed) % 2)
            fiber_yield();
        else
            fiber_wake(&g_mixed[rand_r(&seed) % 12]);
        if (rand_r(&seed) % 8 == 0)
            fiber_park(FIBER_UNINTERRUPTIBLE, host_monotonic_ns() + 20000);
    }
    g_mixed_done++;
    fiber_wake(&g_fixture_fiber);
}

static void mixed_body(void)
{
    for (uintptr_t i = 0; i < 12; i++)
        fiber_init(&g_mixed[i], i % 2, "mixed");
    for (uintptr_t i = 0; i < 12; i++)
        fiber_start(&g_mixed[i], mixed_main, (void *)i);
    while (g_mixed_done < 12)
        fiber_park(FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE);
}

Test(fiber, hand_offs_mix_with_yields_parks_and_wakes)
{
    fixture_init(2, 2, true);
    fixture_run(mixed_body);
}

/* ---- overflow -------------------------------------------------------------------------------- */

__attribute__((noinline)) static unsigned eat_stack(unsigned depth)
{
    volatile char buffer[512];
    buffer[depth % 512] = (char)depth;
    return depth > 100000 ? 0 : eat_stack(depth + 1) + (unsigned)buffer[depth % 512];
}

static void overflow_body(void)
{
    cr_assert_eq(eat_stack(0), 1);
}

static struct fiber g_greedy;
static void greedy_main(void *arg)
{
    (void)arg;
    overflow_body();
}

static void start_greedy(void)
{
    fiber_init(&g_greedy, 0, "greedy fiber");
    fiber_start(&g_greedy, greedy_main, NULL);
    fiber_yield();
}

Test(fiber, overflow_is_logged_with_the_name_and_ends_the_process)
{
    int fds[2];
    cr_assert_eq(pipe(fds), 0);
    pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], 2);
        fixture_init(1, 0, false);
        fixture_run(start_greedy);
        _exit(0);
    }
    close(fds[1]);
    static char text[65536];
    size_t size = 0;
    ssize_t got;
    while (size < sizeof(text) - 1 && (got = read(fds[0], text + size, sizeof(text) - 1 - size)) > 0)
        size += (size_t)got;
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    cr_assert(!WIFEXITED(status) || WEXITSTATUS(status) != 0);
    cr_assert(strstr(text, "stack overflow in fiber greedy fiber") != NULL);
}
