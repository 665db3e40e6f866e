/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A scheduler without a platform for unit tests: workers poll eventfds. One scheduler for each process,
 * which Criterion gives each test. With SCHED_TEST_PLAIN the tests build without Criterion (which does not
 * run under ThreadSanitizer): each Test() runs in a forked child of a plain main().
 */
#pragma once

#include "base/host.h"
#include "sentry/sched/sched.h"
#include "sentry/sched/wait_queue.h"
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef SCHED_TEST_PLAIN
struct plain_test {
    const char *name;
    void (*run)(void);
    struct plain_test *next;
};
static struct plain_test *g_plain_tests;
#define Test(suite, test, ...)                                                                     \
    static void suite##_##test(void);                                                              \
    __attribute__((constructor)) static void suite##_##test##_register(void)                       \
    {                                                                                              \
        static struct plain_test t = {#suite "." #test, suite##_##test, NULL};                     \
        t.next = g_plain_tests;                                                                    \
        g_plain_tests = &t;                                                                        \
    }                                                                                              \
    static void suite##_##test(void)
#define cr_assert(e)                                                                               \
    do {                                                                                           \
        if (!(e)) {                                                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #e);                                \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
#define cr_assert_eq(a, b)                                                                         \
    do {                                                                                           \
        long long plain_a = (long long)(a), plain_b = (long long)(b);                              \
        if (plain_a != plain_b) {                                                                  \
            fprintf(stderr, "%s:%d: %s = %lld, %s = %lld\n", __FILE__, __LINE__, #a, plain_a, #b,  \
                    plain_b);                                                                      \
            _exit(1);                                                                              \
        }                                                                                          \
    } while (0)
int main(int argc, char **argv)
{
    int failed = 0;
    for (struct plain_test *t = g_plain_tests; t; t = t->next) {
        if (argc > 1 && !strstr(t->name, argv[1]))
            continue;
        pid_t pid = fork();
        if (pid == 0) {
            t->run();
            exit(0);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        printf("%s %s (%#x)\n", status ? "FAIL" : "ok  ", t->name, (unsigned)status);
        failed |= status != 0;
    }
    return failed;
}
#else
#include <criterion/criterion.h>
#endif

static int g_fixture_hfd[SCHED_WORKERS_MAX];
static _Atomic unsigned g_fixture_children;
static void (*g_fixture_event)(unsigned worker); /* runs in poll() after a wake-up */

static void fixture_poll(void *arg, unsigned worker, bool may_block)
{
    (void)arg;
    struct pollfd p = {.fd = g_fixture_hfd[worker], .events = POLLIN};
    uint64_t count;
    if (poll(&p, 1, may_block ? -1 : 0) != 1)
        return;
    if (read(p.fd, &count, sizeof(count)) != (ssize_t)sizeof(count))
        return;
    if (g_fixture_event)
        g_fixture_event(worker);
}

static void fixture_wake(void *arg, unsigned worker)
{
    (void)arg;
    uint64_t one = 1;
    if (write(g_fixture_hfd[worker], &one, sizeof(one)) != (ssize_t)sizeof(one))
        abort();
}

static void fixture_child_died(void *arg)
{
    (void)arg;
    g_fixture_children++;
}

static void fixture_init(unsigned workers, unsigned standby, bool may_hand_off)
{
    for (unsigned i = 0; i < workers; i++)
        g_fixture_hfd[i] = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    struct sched_config config = {
        .workers = workers,
        .standby = standby,
        .may_hand_off = may_hand_off,
        .ops = {.poll = fixture_poll, .wake_worker = fixture_wake, .child_died = fixture_child_died},
    };
    cr_assert_eq(sched_init(&config), 0);
}

static void (*g_fixture_body)(void);
static struct fiber g_fixture_fiber;

static void fixture_main(void *arg)
{
    (void)arg;
    g_fixture_body();
    sched_stop();
}

/* Runs body() as a fiber of worker 0 and stops when it returns. */
static void fixture_run(void (*body)(void))
{
    g_fixture_body = body;
    fiber_init(&g_fixture_fiber, 0, "test body");
    fiber_start(&g_fixture_fiber, fixture_main, NULL);
    sched_run();
}

#define MS(n) ((uint64_t)(n) * 1000000u)
static inline uint64_t in_ms(unsigned n)
{
    return host_monotonic_ns() + MS(n);
}
