/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C half of wakeable.h. The handler runs on whichever host thread of ours waits; it touches
 * nothing but that thread's saved instruction pointer.
 */
#include "sentry/platform/wakeable.h"

#include "base/host.h"
#include <errno.h>
#include <signal.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

long wakeable_enter(const _Atomic uint32_t *woken, long nr, long a0, long a1, long a2, long a3);
extern const char wakeable_window[], wakeable_window_end[], wakeable_cancelled[];

/* #syscalls rt_sigreturn: the end of the handler */
static void on_wake(int signo, siginfo_t *info, void *context)
{
    (void)signo, (void)info;
    ucontext_t *uc = context;
    uintptr_t rip = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
    if (rip >= (uintptr_t)wakeable_window && rip < (uintptr_t)wakeable_window_end)
        uc->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)wakeable_cancelled;
}

int wakeable_install(void)
{
    struct sigaction action = {.sa_sigaction = on_wake, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigemptyset(&action.sa_mask);
    /* Start-up only: the libc's function knows the restorer. It fails for no other reason. */
    return sigaction(WAKEABLE_SIGNAL, &action, NULL) == 0 ? 0 : -EINVAL;
}

/* Start-up only: these calls are made before the filter. */
void wakeable_init(struct wakeable *w)
{
    w->tgid = (pid_t)host_call0(SYS_getpid);
    w->tid = (pid_t)host_call0(SYS_gettid);
    /* Whoever started us may have left it blocked. */
    uint64_t mask = 1ull << (WAKEABLE_SIGNAL - 1);
    (void)host_call4(SYS_rt_sigprocmask, SIG_UNBLOCK, &mask, NULL, sizeof(mask));
    atomic_init(&w->woken, 0);
    atomic_init(&w->waiting, 0);
}

long wakeable_call(struct wakeable *w, long nr, long a0, long a1, long a2, long a3)
{
    /* Both sides store, then load, sequentially consistent: either the waker sees `waiting` and sends
     * the signal, or wakeable_enter() sees `woken`. */
    atomic_store(&w->waiting, 1);
    long r = wakeable_enter(&w->woken, nr, a0, a1, a2, a3);
    atomic_store(&w->waiting, 0);
    return r;
}

/* #syscalls tgkill: wake-ups of our own threads and kicks of guest threads */
void wakeable_wake(struct wakeable *w)
{
    if (atomic_exchange(&w->woken, 1) == 0 && atomic_load(&w->waiting) != 0)
        (void)host_call3(SYS_tgkill, w->tgid, w->tid, WAKEABLE_SIGNAL);
}

bool wakeable_take(struct wakeable *w)
{
    return atomic_load(&w->woken) != 0 && atomic_exchange(&w->woken, 0) != 0;
}
