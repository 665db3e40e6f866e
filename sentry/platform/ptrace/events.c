/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of the ptrace platform: wait4 statuses become platform events, in the order in which
 * they were collected. Tracer thread only, tracee_kick() and tracer_worker_wake() excepted.
 *
 * All statuses that are there are collected before the first one is handed out: the kernel reports
 * children in the order of its own list, and a busy thread early in it would starve the later ones.
 */
#include "sentry/platform/ptrace/ptrace_platform.h"

#include "base/host.h"
#include "base/log.h"
#include "sentry/platform/stub_range.h"
#include <errno.h>
#include <linux/audit.h>
#include <linux/ptrace.h>
#include <signal.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define SYSCALL_STOP (SIGTRAP | 0x80) /* PTRACE_O_TRACESYSGOOD */
#ifndef SYS_SECCOMP
#define SYS_SECCOMP 1 /* si_code of SIGSYS: by a filter (asm-generic/siginfo.h) */
#endif
#define TRAPNO_PAGE_FAULT 14
#define ERR_PRESENT 1u /* page-fault error code bits */
#define ERR_WRITE 2u
#define ERR_USER 4u
#define ERR_FETCH 16u
#define INSTRUCTION_SIZE_MAX 15

static void enqueue(struct tracee *t)
{
    if (t->is_queued)
        return;
    t->is_queued = true;
    TAILQ_INSERT_TAIL(&t->tracer->queue, t, queued);
}

static void dequeue(struct tracee *t)
{
    if (!t->is_queued)
        return;
    t->is_queued = false;
    TAILQ_REMOVE(&t->tracer->queue, t, queued);
}

static void push_event(struct tracee *t, struct platform_event event)
{
    t->event = event;
    t->has_event = true;
    enqueue(t);
}

void tracee_set_gone(struct tracee *t, int status)
{
    if (t->gone)
        return;
    t->gone = true;
    if (t->end_signal == 0)
        t->end_signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    LIST_REMOVE(t, bucket); /* its number may be another's from now on */
    LIST_INSERT_HEAD(&t->tracer->loose, t, bucket);
    struct tracee_space *s = container_of(t->thread.space, struct tracee_space, space);
    if (t->tid == s->pid)
        s->killed = true; /* the leader is reaped last: nobody may use the process's number again */
    if (t == t->tracer->template && atomic_load(&t->state) != TRACEE_ENDING)
        log_err("the template process died: no new processes from now on");
    switch (atomic_load(&t->state)) {
    case TRACEE_ENDING:
        dequeue(t);
        tracee_destroy(t);
        break;
    case TRACEE_RUNNING:
        enqueue(t);
        break;
    default: /* its owner learns it from the next order or resume */
        break;
    }
}

/* ---- from a status to an event ----------------------------------------------------------------- */

static bool guest_goes_on(struct tracee *t)
{
    (void)tracee_request(t, PTRACE_SYSEMU, 0, NULL); /* failure: its death is reported */
    return false;
}

/* i386 entries never reach the sentry: the process dies as it does by the filter of systrap. */
static bool kill_for_arch(struct tracee *t)
{
    t->end_signal = SIGSYS;
    tracee_space_kill(t->thread.space);
    return false;
}

/* Drills only: the control run, in which the protection is removed and the guest's call is the host's. */
static bool let_through(struct tracee *t)
{
    const struct user_regs_struct u = t->user;
    long r = tracee_call(t, (long)u.orig_rax, u.rdi, u.rsi, u.rdx, u.r10, u.r8, u.r9);
    t->thread.regs.rax = (uint64_t)r;
    return t->gone || tracee_write_regs(t) != 0 ? false : guest_goes_on(t);
}

static bool on_syscall(struct tracee *t, struct platform_event *ret)
{
    struct ptrace_syscall_info info;
    memset(&info, 0, sizeof(info));
    if (tracee_request(t, PTRACE_GET_SYSCALL_INFO, sizeof(info), &info) < 0)
        return false;
    if (info.arch != AUDIT_ARCH_X86_64)
        return kill_for_arch(t);
    if (t->tracer->open_filter && (uint32_t)t->user.r9 == STUB_OPEN_MAGIC)
        return let_through(t);
    t->thread.regs.rax = t->user.orig_rax;
    *ret = (struct platform_event){.kind = PLATFORM_EVENT_SYSCALL};
    return true;
}

/* The filter trapped: an emulated vsyscall, which does not pass by SYSEMU. rax is the number and rip
 * the return address, as for any other call. */
static bool on_trapped(struct tracee *t, const siginfo_t *info, struct platform_event *ret)
{
    if (info->si_code != SYS_SECCOMP)
        return guest_goes_on(t);
    if (info->si_arch != AUDIT_ARCH_X86_64)
        return kill_for_arch(t);
    *ret = (struct platform_event){.kind = PLATFORM_EVENT_SYSCALL};
    return true;
}

/* ptrace does not show the page fault's error code; it is rebuilt from what else is known. An access
 * that was refused where reading is possible was a write; one where nothing is mapped may be either,
 * and counts as a read. */
static uint32_t page_fault_error(struct tracee *t, int signo, int code, uint64_t addr)
{
    const struct guest_regs *regs = &t->thread.regs;
    const struct tracee_space *s = container_of(t->thread.space, struct tracee_space, space);
    bool starts_page = (addr & ~PAGE_MASK) == 0;
    uint32_t error = ERR_USER;
    if (addr == regs->rip ||
        (starts_page && addr > regs->rip && addr - regs->rip < INSTRUCTION_SIZE_MAX))
        error |= ERR_FETCH;
    if (signo == SIGSEGV && code == SEGV_ACCERR) {
        char byte;
        error |= ERR_PRESENT;
        if ((error & ERR_FETCH) == 0 && platform_vm_read(s->pid, GUEST_ADDR(addr), &byte, 1) == 1)
            error |= ERR_WRITE;
    }
    return error;
}

static bool on_fault(struct tracee *t, int signo, const siginfo_t *info, struct platform_event *ret)
{
    struct guest_regs *regs = &t->thread.regs;
    uint64_t addr = (uint64_t)(uintptr_t)info->si_addr;
    bool page_fault = (signo == SIGSEGV && info->si_code != SI_KERNEL) ||
                      (signo == SIGBUS && info->si_code == BUS_ADRERR);
    if (page_fault) {
        regs->trapno = TRAPNO_PAGE_FAULT;
        regs->err = page_fault_error(t, signo, info->si_code, addr);
        regs->cr2 = addr;
    } else {
        static const uint8_t trap_numbers[32] = {
            [SIGILL] = 6, [SIGTRAP] = 3, [SIGFPE] = 16, [SIGBUS] = 17, [SIGSEGV] = 13};
        regs->trapno = trap_numbers[signo];
        if (signo == SIGFPE && info->si_code == FPE_INTDIV)
            regs->trapno = 0;
        if (signo == SIGTRAP && info->si_code == TRAP_TRACE)
            regs->trapno = 1;
    }
    *ret = (struct platform_event){.kind = PLATFORM_EVENT_FAULT,
                                   .signo = signo,
                                   .code = info->si_code,
                                   .addr = GUEST_ADDR(addr),
                                   .is_write = page_fault && (regs->err & ERR_WRITE) != 0,
                                   .is_exec = page_fault && (regs->err & ERR_FETCH) != 0};
    return true;
}

static bool on_signal(struct tracee *t, int signo, struct platform_event *ret)
{
    siginfo_t info;
    memset(&info, 0, sizeof(info));
    if (signo == TRACEE_KICK_SIGNAL) {
        /* Already reported with an earlier resume: this is what is left of it. */
        if (!atomic_exchange(&t->kicked, false))
            return guest_goes_on(t);
        *ret = (struct platform_event){.kind = PLATFORM_EVENT_KICK};
        return true;
    }
    if (tracee_request(t, PTRACE_GETSIGINFO, 0, &info) != 0)
        return false;
    switch (signo) {
    case SIGSYS:
        return on_trapped(t, &info, ret);
    case SIGSEGV:
    case SIGBUS:
    case SIGILL:
    case SIGFPE:
    case SIGTRAP:
        if (info.si_code > 0)
            return on_fault(t, signo, &info, ret);
        break;
    default:
        break;
    }
    return guest_goes_on(t); /* somebody's kill(2) on a stub: not the guest's business */
}

static bool decode(struct tracee *t, int status, struct platform_event *ret)
{
    if (tracee_read_user(t) != 0)
        return false; /* dying: the end is reported next */
    tracee_regs_from_user(t);
    int signo = WSTOPSIG(status);
    if (status >> 16 != 0) { /* no guest can cause one */
        log_err("stub %d: unexpected ptrace event %#x; killing it", t->tid, status);
        tracee_space_kill(t->thread.space);
        return false;
    }
    return signo == SYSCALL_STOP ? on_syscall(t, ret) : on_signal(t, signo, ret);
}

/* Whether queued `t` has an event for its owner; then it is stopped. */
static bool take_event(struct tracee *t, struct platform_event *ret)
{
    bool found = true;
    if (t->gone)
        *ret = (struct platform_event){.kind = PLATFORM_EVENT_DEAD, .error = t->end_signal};
    else if (t->has_event)
        *ret = t->event;
    else
        found = t->has_status && decode(t, t->status, ret);
    t->has_status = t->has_event = false;
    if (found)
        atomic_store(&t->state, TRACEE_STOPPED);
    return found;
}

/* ---- collecting -------------------------------------------------------------------------------- */

void tracer_on_status(struct tracer *p, pid_t tid, int status)
{
    struct tracee *t = tracer_find(p, tid);
    if (t == NULL) {
        if (WIFSTOPPED(status) && WSTOPSIG(status) == SIGSTOP)
            p->early_tid = tid; /* a clone's child, seen before its parent's call returned */
        else
            log_dbg("status %#x of unknown process %d, ignoring", status, tid);
        return;
    }
    if (!WIFSTOPPED(status)) {
        tracee_set_gone(t, status);
        return;
    }
    switch (atomic_load(&t->state)) {
    case TRACEE_ENDING: /* a late kick on the way out */
        (void)tracee_request(t, PTRACE_CONT, 0, NULL);
        break;
    case TRACEE_RUNNING:
        t->status = status;
        t->has_status = true;
        enqueue(t);
        break;
    default:
        log_err("stub %d: status %#x while stopped, ignoring", tid, status);
        break;
    }
}

/* #syscalls pause: waits where no child is left */
static void collect(struct tracer *p, bool may_block)
{
    int status = 0;
    if (may_block) {
        int *where = &status;
        long r = wakeable_call(&p->wakeable, SYS_wait4, -1, (long)where, __WALL, 0);
        if (r == -ECHILD)
            r = wakeable_call(&p->wakeable, SYS_pause, 0, 0, 0, 0);
        if (r <= 0)
            return;
        tracer_on_status(p, (pid_t)r, status);
    }
    for (;;) {
        long r = host_call4(SYS_wait4, -1, &status, __WALL | WNOHANG, NULL);
        if (r <= 0)
            return;
        tracer_on_status(p, (pid_t)r, status);
    }
}

struct platform_thread *tracer_wait(struct platform *base, unsigned worker, bool may_block,
                                    struct platform_event *ret_event)
{
    struct tracer *p = container_of(base, struct tracer, platform);
    (void)worker;
    for (;;) {
        struct tracee *t;
        while ((t = TAILQ_FIRST(&p->queue)) != NULL) {
            dequeue(t);
            if (take_event(t, ret_event))
                return &t->thread;
        }
        if (wakeable_take(&p->wakeable))
            return NULL;
        collect(p, may_block);
        if (TAILQ_EMPTY(&p->queue) && !may_block)
            return NULL;
    }
}

void tracer_worker_wake(struct platform *base, unsigned worker)
{
    (void)worker;
    wakeable_wake(&container_of(base, struct tracer, platform)->wakeable);
}

static struct tracee *first_in_table(struct tracer *p)
{
    for (size_t i = 0; i < TRACEE_BUCKETS; i++) {
        if (!LIST_EMPTY(&p->buckets[i]))
            return LIST_FIRST(&p->buckets[i]);
    }
    return NULL;
}

static void end_one(struct tracee *t)
{
    struct tracee_space *s = container_of(t->thread.space, struct tracee_space, space);
    atomic_store(&t->state, TRACEE_ENDING);
    s->released = true;
    tracee_space_kill(&s->space);
}

void tracer_end_all(struct tracer *p)
{
    struct tracee *t;
    for (size_t i = 0; i < TRACEE_BUCKETS; i++) {
        LIST_FOREACH (t, &p->buckets[i], bucket)
            end_one(t);
    }
    /* The threads of a process first, in the kernel's order; its leader is reported last. */
    while (first_in_table(p) != NULL) {
        int status = 0;
        long tid = host_call4(SYS_wait4, -1, &status, __WALL, NULL);
        if (tid == -EINTR)
            continue;
        if (tid < 0)
            break;
        t = tracer_find(p, (pid_t)tid);
        if (t != NULL && !WIFSTOPPED(status))
            tracee_set_gone(t, status);
    }
    while ((t = LIST_FIRST(&p->loose)) != NULL) {
        container_of(t->thread.space, struct tracee_space, space)->released = true;
        tracee_destroy(t);
    }
}

/* ---- resume and kick --------------------------------------------------------------------------- */

void tracee_resume(struct platform_thread *thread)
{
    struct tracee *t = container_of(thread, struct tracee, thread);
    ASSERT(atomic_load(&t->state) == TRACEE_STOPPED);
    int error = tracee_execute_queued(t);
    /* Store, then load; tracee_kick() has it the other way round: one of the two sees the other. */
    atomic_store(&t->state, TRACEE_RUNNING);
    if (t->gone)
        enqueue(t);
    else if (error == -ESRCH)
        return; /* dying: wait4 reports it */
    else if (error != 0)
        push_event(t, (struct platform_event){.kind = PLATFORM_EVENT_ORDER_FAILED, .error = error});
    else if (atomic_exchange(&t->kicked, false))
        push_event(t, (struct platform_event){.kind = PLATFORM_EVENT_KICK});
    else if (tracee_write_regs(t) == -EIO)
        push_event(t, (struct platform_event){.kind = PLATFORM_EVENT_FAULT, .signo = SIGSEGV,
                                              .code = SI_KERNEL});
    else
        (void)guest_goes_on(t);
}

void tracee_kick(struct platform_thread *thread)
{
    struct tracee *t = container_of(thread, struct tracee, thread);
    struct tracee_space *s = container_of(thread->space, struct tracee_space, space);
    atomic_store(&t->kicked, true);
    if (atomic_load(&t->state) == TRACEE_RUNNING)
        (void)host_call3(SYS_tgkill, s->pid, t->tid, TRACEE_KICK_SIGNAL);
}
