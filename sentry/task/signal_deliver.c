/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happens to a task's pending signals before it returns to guest code: default actions, stops,
 * handler frames, restarting of system calls; and rt_sigreturn. Runs on the task's own fiber.
 *
 * The frame is Linux's, byte for byte (arch/x86/kernel/signal_64.c), because debuggers and unwinders
 * read it. The frame that rt_sigreturn finds is the guest's: every field is sanitised.
 */
#define LOG_MODULE "signal"
#include "base/log.h"
#include "sentry/task/restart.h"
#include "sentry/task/table.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#define CORE_SIGNALS                                                                               \
    (SIGSET_BIT(SIGQUIT) | SIGSET_BIT(SIGILL) | SIGSET_BIT(SIGTRAP) | SIGSET_BIT(SIGABRT) |        \
     SIGSET_BIT(SIGBUS) | SIGSET_BIT(SIGFPE) | SIGSET_BIT(SIGSEGV) | SIGSET_BIT(SIGXCPU) |         \
     SIGSET_BIT(SIGXFSZ) | SIGSET_BIT(SIGSYS))
#define IGNORED_BY_DEFAULT                                                                         \
    (SIGSET_BIT(SIGCHLD) | SIGSET_BIT(SIGCONT) | SIGSET_BIT(SIGURG) | SIGSET_BIT(SIGWINCH))
#define STOP_SIGNALS                                                                               \
    (SIGSET_BIT(SIGSTOP) | SIGSET_BIT(SIGTSTP) | SIGSET_BIT(SIGTTIN) | SIGSET_BIT(SIGTTOU))

#define FLAG_SA_AUTODISARM (1U << 31)
#define EFLAGS_USER 0x50DD5UL /* AC OF DF TF SF ZF AF PF CF RF */
#define REDZONE 128

void (*g_first_stop_hook)(int signo);

/* ---- restarting --------------------------------------------------------------------------------- */

static void rewind_syscall(struct task *t, uint64_t nr)
{
    struct guest_regs *regs = platform_thread_regs(t->pt);
    regs->rip -= 2; /* the length of `syscall` */
    regs->rax = nr;
}

/* `action`: the handler that is about to run, or NULL. */
static void settle_restart(struct task *t, const struct linux_sigaction *action)
{
    int code = t->restart_code;
    if (code == 0)
        return;
    t->restart_code = 0;
    bool restart = true;
    if (action != NULL)
        restart = code == ERESTARTNOINTR || (code == ERESTARTSYS && (action->flags & SA_RESTART));
    if (!restart)
        platform_thread_regs(t->pt)->rax = (uint64_t)-EINTR;
    else if (code == ERESTART_RESTARTBLOCK)
        rewind_syscall(t, SYS_restart_syscall);
    else
        rewind_syscall(t, (uint64_t)t->syscall_nr);
}

/* ---- handler frames ----------------------------------------------------------------------------- */

static bool on_altstack(const struct task *t, uint64_t sp)
{
    const struct linux_stack *s = &t->signals.altstack;
    if (s->flags & (int32_t)FLAG_SA_AUTODISARM)
        return false;
    return s->size != 0 && sp > s->sp && sp - s->sp <= s->size;
}

static uint8_t *xstate_buffer(struct task *t)
{
    if (t->xstate_buffer == NULL)
        t->xstate_buffer = malloc(g_sandbox.info->xstate_size);
    return t->xstate_buffer;
}

static void fill_sigcontext(struct linux_sigcontext *sc, const struct guest_regs *regs,
                            const struct task *t, signal_set mask)
{
    memset(sc, 0, sizeof *sc);
    memcpy(sc, regs, offsetof(struct linux_sigcontext, cs)); /* r8 … eflags in the same order */
    sc->cs = 0x33;
    sc->ss = 0x2b;
    if (t->event.kind == PLATFORM_EVENT_FAULT) {
        sc->err = regs->err;
        sc->trapno = regs->trapno;
        sc->cr2 = regs->cr2;
    }
    sc->oldmask = mask;
}

static int setup_frame(struct task *t, const struct linux_sigaction *action,
                       const struct linux_siginfo *info)
{
    struct guest_regs *regs = platform_thread_regs(t->pt);
    uint64_t sp = regs->rsp - REDZONE;
    struct linux_stack *alt = &t->signals.altstack;
    bool nested = on_altstack(t, regs->rsp);
    if ((action->flags & SA_ONSTACK) && alt->size != 0 && !nested)
        sp = alt->sp + alt->size;
    if (!(action->flags & LINUX_SA_RESTORER))
        return -EFAULT; /* x86-64 has no other way back */

    uint8_t *xstate = xstate_buffer(t);
    if (xstate == NULL)
        return -ENOMEM;
    ssize_t xsize = platform_thread_read_xstate(t->pt, xstate, g_sandbox.info->xstate_size);
    if (xsize < 0)
        return (int)xsize;
    sp = (sp - (uint64_t)xsize) & ~63UL;
    uint64_t fpstate = sp;
    sp = ((sp - sizeof(struct linux_rt_sigframe)) & ~15UL) - 8;
    /* A handler that overflows the alternate stack that it runs on dies of it. */
    if (nested && !on_altstack(t, sp))
        return -EFAULT;

    signal_set mask = t->signals.restore_saved_mask ? t->signals.saved_mask : t->signals.blocked;
    struct linux_rt_sigframe frame = {.pretcode = action->restorer, .info = *info};
    frame.uc.flags = LINUX_UC_FP_XSTATE | LINUX_UC_SIGCONTEXT_SS | LINUX_UC_STRICT_RESTORE_SS;
    frame.uc.stack = *alt;
    if (alt->size != 0 && nested)
        frame.uc.stack.flags |= SS_ONSTACK;
    frame.uc.sigmask = mask;
    fill_sigcontext(&frame.uc.mcontext, regs, t, mask);
    frame.uc.mcontext.fpstate = fpstate;
    int r = copy_out(t->mm, GUEST_ADDR(fpstate), xstate, (size_t)xsize);
    if (r == 0)
        r = copy_out_obj(t->mm, GUEST_ADDR(sp), &frame);
    if (r != 0)
        return r;
    if (alt->flags & (int32_t)FLAG_SA_AUTODISARM)
        *alt = (struct linux_stack){.flags = SS_DISABLE};

    regs->rdi = (uint64_t)info->signo;
    regs->rsi = sp + offsetof(struct linux_rt_sigframe, info);
    regs->rdx = sp + offsetof(struct linux_rt_sigframe, uc);
    regs->rax = 0;
    regs->rip = action->handler;
    regs->rsp = sp;
    regs->eflags &= ~0x50500UL; /* DF, TF, RF, AC as Linux clears them */
    return platform_thread_write_xstate(t->pt, NULL, 0);
}

static void deliver_to_handler(struct task *t, const struct linux_sigaction *action,
                               const struct linux_siginfo *info)
{
    settle_restart(t, action);
    int r = setup_frame(t, action, info);
    if (r != 0) {
        struct linux_siginfo segv;
        signal_info_kernel(&segv, SIGSEGV, SI_KERNEL);
        if (info->signo == SIGSEGV) { /* no way to deliver it: as force_sigsegv() */
            lock_acquire(&t->group->sighand->lock);
            t->group->sighand->actions[SIGSEGV - 1].handler = (uint64_t)(uintptr_t)SIG_DFL;
            lock_release(&t->group->sighand->lock);
        }
        signal_force(t, &segv);
        return;
    }
    signal_set blocked = t->signals.blocked | action->mask;
    if (!(action->flags & SA_NODEFER))
        blocked |= SIGSET_BIT(info->signo);
    t->signals.restore_saved_mask = false;
    signal_set_blocked(t, blocked);
}

/* ---- default actions ---------------------------------------------------------------------------- */

/* sighand->lock held on entry and return. */
static void stop_here_locked(struct task *t)
{
    struct thread_group *g = t->group;
    struct sighand *sh = g->sighand;
    struct waiter w;
    waiter_init(&w);
    wait_queue_add(&g->stop_wait, &w);
    t->state = 'T';
    while (g->stopped && !g->group_exiting) {
        lock_release(&sh->lock);
        (void)fiber_park(FIBER_KILLABLE, FIBER_NO_DEADLINE);
        lock_acquire(&sh->lock);
        if (t->fiber.killed)
            break;
    }
    t->state = 'R';
    lock_release(&sh->lock);
    wait_queue_remove(&w);
    lock_acquire(&sh->lock);
}

static bool may_stop(struct thread_group *g, int signo)
{
    if (signo == SIGSTOP)
        return true;
    tasks_lock();
    bool orphaned = pgrp_is_orphaned_locked(g->pgrp, NULL);
    tasks_unlock();
    return !orphaned;
}

static void begin_stop(struct task *t, int signo)
{
    struct thread_group *g = t->group;
    struct sighand *sh = g->sighand;
    struct task *other;
    if (!may_stop(g, signo))
        return;
    lock_acquire(&sh->lock);
    bool first = !g->stopped && !g->group_exiting;
    if (first) {
        g->stopped = true;
        g->stop_signal = signo;
        g->stop_reported = false;
        TAILQ_FOREACH(other, &g->threads, thread_entry)
            if (other != t)
                task_interrupt_locked(other, false);
    }
    lock_release(&sh->lock);
    if (!first)
        return;
    tasks_lock();
    group_notify_parent_locked(g, CLD_STOPPED, signo);
    tasks_unlock();
    if (g->is_first && g_first_stop_hook != NULL)
        g_first_stop_hook(signo);
}

/* True: the task goes on. */
static void default_action(struct task *t, int signo)
{
    signal_set bit = SIGSET_BIT(signo);
    if (bit & IGNORED_BY_DEFAULT)
        return;
    if (bit & STOP_SIGNALS) {
        begin_stop(t, signo);
        return;
    }
    /* No core files are written (RLIMIT_CORE is 0 unless raised): the flag stays off. */
    group_exit(t->group, signo);
}

bool signal_deliver_pending(struct task *t)
{
    struct thread_group *g = t->group;
    struct sighand *sh = g->sighand;
    for (;;) {
        struct linux_siginfo info;
        struct linux_sigaction action;
        lock_acquire(&sh->lock);
        if (g->group_exiting || (g->exec_task != NULL && g->exec_task != t)) {
            int code = g->exit_code;
            lock_release(&sh->lock);
            task_exit(t, code);
            return false;
        }
        if (g->stopped) {
            stop_here_locked(t);
            lock_release(&sh->lock);
            continue;
        }
        int signo = signal_dequeue_locked(t, ~t->signals.blocked, &info);
        if (signo != 0) {
            action = sh->actions[signo - 1];
            if ((action.flags & SA_RESETHAND) && action.handler > 1)
                sh->actions[signo - 1].handler = (uint64_t)(uintptr_t)SIG_DFL;
        }
        lock_release(&sh->lock);
        if (signo == 0)
            break;
        if (action.handler == (uint64_t)(uintptr_t)SIG_IGN)
            continue;
        if (action.handler == (uint64_t)(uintptr_t)SIG_DFL)
            default_action(t, signo);
        else
            deliver_to_handler(t, &action, &info);
    }
    settle_restart(t, NULL);
    signal_mask_restore(t);
    if (atomic_load(&t->fiber.interrupted)) /* the restored mask lets one through */
        return signal_deliver_pending(t);
    return true;
}

/* ---- rt_sigreturn ------------------------------------------------------------------------------- */

static int restore_xstate(struct task *t, uint64_t fpstate)
{
    if (fpstate == 0)
        return platform_thread_write_xstate(t->pt, NULL, 0);
    uint8_t *xstate = xstate_buffer(t);
    if (xstate == NULL)
        return -ENOMEM;
    int r = copy_in(t->mm, xstate, GUEST_ADDR(fpstate), g_sandbox.info->xstate_size);
    if (r != 0)
        return r;
    return platform_thread_write_xstate(t->pt, xstate, g_sandbox.info->xstate_size);
}

int64_t signal_return(struct task *t)
{
    struct guest_regs *regs = platform_thread_regs(t->pt);
    struct linux_ucontext uc;
    guest_addr at = GUEST_ADDR(regs->rsp - 8 + offsetof(struct linux_rt_sigframe, uc));
    int r = copy_in_obj(t->mm, &uc, at);
    if (r == 0)
        r = restore_xstate(t, uc.mcontext.fpstate);
    if (r != 0) {
        struct linux_siginfo info;
        signal_info_kernel(&info, SIGSEGV, SI_KERNEL);
        signal_force(t, &info);
        return 0;
    }
    uint64_t eflags = (regs->eflags & ~EFLAGS_USER) | (uc.mcontext.eflags & EFLAGS_USER);
    memcpy(regs, &uc.mcontext, offsetof(struct linux_sigcontext, cs));
    regs->eflags = eflags;
    t->regs_replaced = true;
    t->restart_code = 0;
    struct linux_stack *alt = &t->signals.altstack;
    if (!on_altstack(t, regs->rsp) && (uc.stack.flags & ~(int32_t)(SS_ONSTACK | SS_DISABLE |
                                                                   (int32_t)FLAG_SA_AUTODISARM)) == 0) {
        if (uc.stack.flags & SS_DISABLE)
            *alt = (struct linux_stack){.flags = SS_DISABLE};
        else if (uc.stack.size >= 2048)
            *alt = (struct linux_stack){.sp = uc.stack.sp,
                                        .flags = uc.stack.flags & ~SS_ONSTACK,
                                        .size = uc.stack.size};
    }
    signal_set_blocked(t, uc.sigmask);
    return 0;
}
