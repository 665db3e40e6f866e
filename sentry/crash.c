/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The crash handler. It runs on the alternate stack of whatever host thread failed; by libunwind it walks
 * that thread's own stack (a fiber's included), never guest memory. Addresses are printed relative to the
 * executable, so that addr2line reads them in spite of ASLR; nothing is opened.
 *
 * SAFETY: in a process that may be under attack this handler must not make things worse: it allocates
 * nothing, takes no lock, and ends the process. As pid 1's death that ends every stub.
 */
#define LOG_MODULE "crash"
#include "sentry/crash.h"
#include "base/host.h"
#include "base/log.h"
#include <signal.h>
#include <stdint.h>
#include <sys/syscall.h>
#define UNW_LOCAL_ONLY
#include <libunwind.h>

/* #syscalls rt_sigprocmask,mincore: libunwind, in a crash
 * #syscalls writev: the message of the libc's own checks (to /dev/null) before it aborts */

#define FRAMES_MAX 48

extern const char __executable_start, etext; /* the linker's */

static void print_backtrace(void *context)
{
    unw_cursor_t cursor;
    unw_word_t ip;
    if (unw_init_local2(&cursor, context, UNW_INIT_SIGNAL_FRAME) != 0)
        return;
    for (int i = 0; i < FRAMES_MAX; i++) {
        if (unw_get_reg(&cursor, UNW_REG_IP, &ip) != 0)
            return;
        log_err("  #%d bailey-sentry+0x%lx", i, (unsigned long)(ip - (uintptr_t)&__executable_start));
        if (unw_step(&cursor) <= 0)
            return;
    }
}

/* A jump to nowhere has no unwind data, but its caller's address is on top of the stack: goes on there. */
static void *after_bad_jump(const siginfo_t *info, void *context)
{
    ucontext_t *uc = context;
    uintptr_t rip = (uintptr_t)uc->uc_mcontext.gregs[REG_RIP];
    uintptr_t start = (uintptr_t)&__executable_start, end = (uintptr_t)&etext;
    if ((rip >= start + 4096 && rip < end) || info->si_signo != SIGSEGV || (uintptr_t)info->si_addr != rip)
        return context;
    uintptr_t *sp = (uintptr_t *)(uintptr_t)uc->uc_mcontext.gregs[REG_RSP]; // NOLINT
    uc->uc_mcontext.gregs[REG_RIP] = (greg_t)*sp;
    uc->uc_mcontext.gregs[REG_RSP] += 8;
    return context;
}

static void on_crash(int signo, siginfo_t *info, void *context)
{
    static volatile int depth;
    struct sigaction fatal = {.sa_handler = SIG_DFL};
    (void)sigaction(signo, &fatal, NULL);
    if (depth++ == 0) {
        const ucontext_t *uc = context;
        log_err("the sentry crashed: signal %d at 0x%lx, address 0x%lx", signo,
                (unsigned long)uc->uc_mcontext.gregs[REG_RIP] - (uintptr_t)&__executable_start,
                (unsigned long)(uintptr_t)info->si_addr);
        print_backtrace(after_bad_jump(info, context));
    }
    /* pid 1 of a namespace survives default actions: so an exit, with the status of a signal.
     * #syscalls exit_group: a crash ends the sandbox */
    host_call1(SYS_exit_group, 128 + signo);
}

void crash_init(void)
{
    static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGABRT};
    unw_set_caching_policy(unw_local_addr_space, UNW_CACHE_NONE);
    struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
    sigfillset(&action.sa_mask);
    for (size_t i = 0; i < ARRAY_COUNT(signals); i++)
        (void)sigaction(signals[i], &action, NULL);
}
