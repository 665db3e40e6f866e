/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One host thread of a stub seen from its tracer: registers, and the execution of single steps in the
 * stub's page. Tracer thread only. Registers are the kernel's word; what is in the tracee's memory is
 * the guest's.
 */
#include "sentry/platform/ptrace/ptrace_platform.h"

#include "base/host.h"
#include "base/log.h"
#include "sentry/platform/stub_range.h"
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define USER_CS 0x33 /* the kernel's selectors of 64-bit code and of data */
#define USER_DS 0x2b
#define EFLAGS_CLEAR 0x202
#define RESTART_FIRST 512 /* the kernel's -ERESTARTSYS and kin: never a result */

uint64_t tracee_code(const unsigned char *label)
{
    return STUB_CODE + (uint64_t)(label - ptrace_stub_image);
}

/* #syscalls ptrace: the ptrace platform controls its stubs */
long tracee_request(const struct tracee *t, int request, unsigned long addr, void *data)
{
    return host_call4(SYS_ptrace, request, t->tid, addr, data);
}

int tracee_read_user(struct tracee *t)
{
    return tracee_request(t, PTRACE_GETREGS, 0, &t->user) == 0 ? 0 : -ESRCH;
}

int tracee_write_user(struct tracee *t, const struct user_regs_struct *user)
{
    /* Not SETREGSET: its format follows the tracee's mode, and guests may enter 32-bit code. */
    struct user_regs_struct copy = *user;
    long r = tracee_request(t, PTRACE_SETREGS, 0, &copy);
    /* A guest may have loaded a segment base from the kernel's half (wrfsbase takes it), which ptrace
     * refuses to write back. The kernel writes in the order of the struct, so all before the bases is
     * done then, and what nobody changed may stay. */
    bool fs_stays = user->fs_base >= STUB_USER_END && user->fs_base == t->user.fs_base;
    bool gs_stays = user->gs_base >= STUB_USER_END && user->gs_base == t->user.gs_base;
    if (r == -EIO && (fs_stays || gs_stays)) {
        r = 0;
        if (!gs_stays)
            r = tracee_request(t, PTRACE_POKEUSER, offsetof(struct user_regs_struct, gs_base),
                               (void *)(uintptr_t)user->gs_base);
    }
    return r == 0 ? 0 : (r == -ESRCH ? -ESRCH : -EIO);
}

void tracee_regs_from_user(struct tracee *t)
{
    const struct user_regs_struct *u = &t->user;
    t->thread.regs = (struct guest_regs){
        .r8 = u->r8,   .r9 = u->r9,   .r10 = u->r10, .r11 = u->r11, .r12 = u->r12, .r13 = u->r13,
        .r14 = u->r14, .r15 = u->r15, .rdi = u->rdi, .rsi = u->rsi, .rbp = u->rbp, .rbx = u->rbx,
        .rdx = u->rdx, .rax = u->rax, .rcx = u->rcx, .rsp = u->rsp, .rip = u->rip,
        .eflags = u->eflags,
        .csgsfs = u->cs | u->gs << 16 | u->fs << 32 | u->ss << 48,
        .fs_base = u->fs_base, .gs_base = u->gs_base,
    };
}

int tracee_write_regs(struct tracee *t)
{
    const struct guest_regs *r = &t->thread.regs;
    struct user_regs_struct u = t->user;
    if (r->rip != u.rip) {
        /* The sentry sends it elsewhere (signal handler, exec): that is 64-bit code. */
        u.cs = USER_CS;
        u.ss = USER_DS;
    }
    u.r8 = r->r8, u.r9 = r->r9, u.r10 = r->r10, u.r11 = r->r11;
    u.r12 = r->r12, u.r13 = r->r13, u.r14 = r->r14, u.r15 = r->r15;
    u.rdi = r->rdi, u.rsi = r->rsi, u.rbp = r->rbp, u.rbx = r->rbx;
    u.rdx = r->rdx, u.rax = r->rax, u.rcx = r->rcx, u.rsp = r->rsp;
    u.rip = r->rip, u.eflags = r->eflags;
    u.fs_base = r->fs_base, u.gs_base = r->gs_base;
    u.orig_rax = UINT64_MAX; /* no system call to restart */
    return tracee_write_user(t, &u);
}

/* ---- steps in the stub's page ------------------------------------------------------------------ */

int tracee_start(struct tracee *t, const struct tracee_call *call)
{
    if (t->gone)
        return -ESRCH;
    struct user_regs_struct u = t->user;
    u.rip = call->rip, u.rax = call->rax, u.rcx = call->rcx;
    u.rdi = call->rdi, u.rsi = call->rsi, u.rdx = call->rdx;
    u.r10 = call->r10, u.r8 = call->r8, u.r9 = call->r9;
    u.cs = USER_CS, u.ss = USER_DS;
    u.eflags = EFLAGS_CLEAR;
    u.orig_rax = UINT64_MAX;
    int r = tracee_write_user(t, &u);
    if (r != 0)
        return -ESRCH; /* what we write is writable: only death explains it */
    return tracee_request(t, PTRACE_CONT, 0, NULL) == 0 ? 0 : -ESRCH;
}

/* #syscalls wait4: events of stubs, and their deaths */
int tracee_wait(struct tracee *t, int options, int *ret_status)
{
    if (t->gone)
        return -ESRCH;
    struct tracer *p = t->tracer;
    const struct tracee_space *s = container_of(t->thread.space, struct tracee_space, space);
    for (;;) {
        int status = 0;
        /* A killed leader is not reported before its other threads were reaped. */
        bool others = t->tid == s->pid && s->host_count > 1;
        long r = host_call4(SYS_wait4, others ? -1 : t->tid, &status, options | __WALL, NULL);
        if (r == -EINTR)
            continue;
        if (r == 0)
            return 0;
        if (r > 0 && r != t->tid) {
            tracer_on_status(p, (pid_t)r, status);
            continue;
        }
        if (r < 0 || !WIFSTOPPED(status)) {
            tracee_set_gone(t, r < 0 ? SIGKILL : status);
            return -ESRCH;
        }
        *ret_status = status;
        return 1;
    }
}

static int broke_a_rule(struct tracee *t, int status)
{
    log_err("stub %d stopped with status %#x inside an order; killing it", t->tid, status);
    tracee_space_kill(t->thread.space);
    return -ESRCH;
}

int tracee_step(struct tracee *t, int status, bool *ret_done, uint64_t *ret_rax)
{
    int signo = WSTOPSIG(status);
    int event = status >> 16;
    *ret_done = false;
    if (event == PTRACE_EVENT_CLONE || event == PTRACE_EVENT_FORK) {
        unsigned long tid = 0;
        if (tracee_request(t, PTRACE_GETEVENTMSG, 0, &tid) == 0)
            t->new_tid = (pid_t)tid;
    } else if (event != 0) {
        return broke_a_rule(t, status);
    } else if (signo == SIGTRAP) {
        struct user_regs_struct u;
        if (tracee_request(t, PTRACE_GETREGS, 0, &u) != 0)
            return -ESRCH;
        if (u.rip <= STUB_CODE || u.rip > STUB_CODE + PAGE_SIZE)
            return broke_a_rule(t, status);
        *ret_done = true;
        *ret_rax = u.rax;
        return 0;
    } else if (signo == SIGSEGV || signo == SIGBUS) {
        *ret_done = true;
        return -EFAULT;
    } else if (signo == SIGSYS) {
        return broke_a_rule(t, status); /* the filter trapped an order: ours is not in its list */
    }
    /* A kick that was late, or somebody else's signal: swallow it. The kernel restarts the call. */
    return tracee_request(t, PTRACE_CONT, 0, NULL) == 0 ? 0 : -ESRCH;
}

int tracee_finish(struct tracee *t, uint64_t *ret_rax)
{
    for (;;) {
        int status;
        bool done;
        int r = tracee_wait(t, 0, &status);
        if (r < 0)
            return r;
        r = tracee_step(t, status, &done, ret_rax);
        if (r == -ESRCH) {
            /* Dying: learn it now, so that -ESRCH always means `gone`. */
            while (tracee_wait(t, 0, &status) > 0)
                continue;
            return r;
        }
        if (done || r != 0)
            return r;
    }
}

long tracee_call(struct tracee *t, long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
                 uint64_t a4, uint64_t a5)
{
    struct tracee_call call = {.rip = tracee_code(ptrace_stub_call), .rax = (uint64_t)nr,
                               .rdi = a0, .rsi = a1, .rdx = a2, .r10 = a3, .r8 = a4, .r9 = a5};
    uint64_t rax = 0;
    int r = tracee_start(t, &call);
    if (r == 0)
        r = tracee_finish(t, &rax);
    if (r != 0)
        return r;
    long value = (long)rax;
    if (value <= -RESTART_FIRST && value >= -4095)
        return -EINTR;
    return value;
}
