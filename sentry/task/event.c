/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a platform event to a system call, a fault or a signal, and back into guest code: what every
 * activation of a task's fiber does. Runs on the task's fiber; task_poll() on the worker's loop.
 */
#define LOG_MODULE "task"
#include "base/log.h"
#include "sentry/task/restart.h"
#include "sentry/task/table.h"
#include <errno.h>
#include <signal.h>

struct task *task_current(void)
{
    struct fiber *f = fiber_current();
    bool is_task = f != NULL && (f->entry == task_event_entry || f->entry == task_first_entry);
    return is_task ? container_of(f, struct task, fiber) : NULL;
}

void task_poll(void *arg, unsigned worker, bool may_block)
{
    struct platform *p = arg;
    struct platform_event event;
    struct platform_thread *pt = platform_wait(p, worker, may_block, &event);
    if (pt == NULL)
        return;
    struct task *t = platform_thread_owner(pt);
    t->event = event;
    fiber_start(&t->fiber, task_event_entry, t);
}

static void handle_syscall(struct task *t)
{
    struct guest_regs *regs = platform_thread_regs(t->pt);
    const uint64_t args[6] = {regs->rdi, regs->rsi, regs->rdx, regs->r10, regs->r8, regs->r9};
    t->syscall_nr = (int64_t)regs->rax;
    t->regs_replaced = false;
    int64_t result = g_sandbox.dispatch(t, regs->rax, args);
    if (t->regs_replaced || t->exit_requested || t->pt == NULL)
        return;
    if (unlikely(result <= -ERESTARTSYS && result >= -ERESTART_RESTARTBLOCK)) {
        t->restart_code = (int)-result;
        atomic_store(&t->fiber.interrupted, true); /* delivery settles it */
        result = -EINTR;
    }
    platform_thread_regs(t->pt)->rax = (uint64_t)result; /* execve changes the thread: ask anew */
}

static void handle_fault(struct task *t)
{
    struct guest_regs *regs = platform_thread_regs(t->pt);
    struct linux_siginfo info;
    signal_info_kernel(&info, t->event.signo, t->event.code);
    if (t->event.signo == SIGSEGV || t->event.signo == SIGBUS) {
        struct mm_limits limits;
        task_mm_limits(t, &limits);
        int code = t->event.code;
        int signo = mm_fault(t->mm, t->pt, &t->event, regs->rsp, &limits, &code);
        if (signo == 0)
            return;
        info.signo = signo;
        info.code = code;
    }
    info.fault.addr = t->event.addr.va;
    if (info.signo == SIGTRAP || info.signo == SIGILL || info.signo == SIGFPE)
        info.fault.addr = t->event.code == SI_KERNEL ? 0 : t->event.addr.va;
    signal_force(t, &info);
}

static void handle_order_failed(struct task *t)
{
    int64_t result = mm_order_failed(t->mm, t->pt, t->event.error);
    platform_thread_regs(t->pt)->rax = (uint64_t)result;
}

/* Everything between "something happened" and "guest code runs on". */
static void return_to_guest(struct task *t)
{
    if (t->exit_requested) {
        task_exit(t, t->exit_code);
        return;
    }
    if (atomic_load_explicit(&t->fiber.interrupted, memory_order_acquire)) {
        if (platform_thread_fetch(t->pt) != 0) { /* its process died: the resume says so */
            platform_thread_resume(t->pt);
            return;
        }
        if (!signal_deliver_pending(t))
            return;
    }
    if (t->signals.restore_saved_mask)
        signal_mask_restore(t);
    if (unlikely(atomic_load_explicit(&t->affinity_changed, memory_order_relaxed))) {
        atomic_store(&t->affinity_changed, false);
        platform_thread_set_affinity(t->pt, t->cpu_mask);
    }
    t->syscall_nr = -1;
    platform_thread_resume(t->pt); /* from here on the next activation may begin */
}

void task_event_entry(void *arg)
{
    struct task *t = arg;
    switch (t->event.kind) {
    case PLATFORM_EVENT_SYSCALL:
        handle_syscall(t);
        break;
    case PLATFORM_EVENT_FAULT:
        handle_fault(t);
        break;
    case PLATFORM_EVENT_ORDER_FAILED:
        handle_order_failed(t);
        break;
    case PLATFORM_EVENT_DEAD: {
        int signo = t->event.error > 0 ? t->event.error : SIGKILL;
        group_exit(t->group, signo);
        task_exit(t, signo);
        return;
    }
    case PLATFORM_EVENT_KICK:
    case PLATFORM_EVENT_COUNT:
        break;
    }
    return_to_guest(t);
}

/* First activation of a new task: its registers are set, it has only to go. */
void task_first_entry(void *arg)
{
    return_to_guest(arg);
}
