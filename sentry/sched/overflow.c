/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What each host thread of the scheduler needs before it runs: signals blocked but for the synchronous
 * ones, and an alternate stack, on which a fiber that overflowed its own is named in the log. The handler
 * then leaves the process to whoever handled the signal before, or to its default action.
 */
#include "base/host.h"
#define LOG_MODULE "sched"
#include "base/log.h"
#include "sentry/sched/futex.h"
#include "sentry/sched/worker.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* #syscalls rt_sigaction,rt_sigreturn: the handler of stack overflows hands on and goes back
 * (sigaltstack, rt_sigprocmask come before lockdown) */

#define ALTERNATE_SIZE KIB(64) /* touched by a crash only */

static char *g_alternate;              /* immutable after init: one stack for each thread */
static struct sigaction g_previous[2]; /* immutable after init: SIGSEGV, SIGBUS */

/* Returning repeats the fault, so the action that is set here decides. */
static void on_fault(int signo, siginfo_t *info, void *context)
{
    (void)fiber_report_overflow(info->si_addr);
    const struct sigaction *previous = &g_previous[signo == SIGBUS];
    if (previous->sa_flags & SA_SIGINFO) {
        previous->sa_sigaction(signo, info, context);
        return;
    }
    struct sigaction next = *previous;
    if (next.sa_handler == SIG_IGN)
        next.sa_handler = SIG_DFL;
    (void)sigaction(signo, &next, NULL);
}

static _Atomic uint32_t g_ready_count; /* futex */

void host_thread_is_ready(void)
{
    atomic_fetch_add(&g_ready_count, 1);
    futex_wake(&g_ready_count, 1);
}

void host_threads_wait_ready(unsigned thread_count)
{
    uint32_t ready;
    while ((ready = atomic_load(&g_ready_count)) < thread_count)
        futex_wait(&g_ready_count, ready, NULL);
}

int host_thread_setup_init(unsigned thread_count)
{
    long r = host_call6(SYS_mmap, NULL, thread_count * ALTERNATE_SIZE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (r < 0 && r > -4096)
        return (int)r;
    g_alternate = (char *)r; // NOLINT: the kernel's result

    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    (void)sigaction(SIGSEGV, &action, &g_previous[0]);
    (void)sigaction(SIGBUS, &action, &g_previous[1]);
    return 0;
}

void host_thread_setup(unsigned index)
{
    static const int synchronous[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT, SIGSYS};
    stack_t alternate = {.ss_sp = g_alternate + index * ALTERNATE_SIZE, .ss_size = ALTERNATE_SIZE};
    (void)host_call2(SYS_sigaltstack, &alternate, NULL);
    sigset_t blocked;
    sigfillset(&blocked);
    for (size_t i = 0; i < ARRAY_COUNT(synchronous); i++)
        sigdelset(&blocked, synchronous[i]);
    /* The platform ends its blocking calls with one of these. */
    for (int signo = SIGRTMIN; signo <= SIGRTMAX; signo++)
        sigdelset(&blocked, signo);
    pthread_sigmask(SIG_SETMASK, &blocked, NULL);
}
