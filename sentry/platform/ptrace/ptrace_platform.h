/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the ptrace platform share.
 *
 * Theory of operation. One host thread, the *tracer*, makes the platform, waits for events and runs
 * every fiber, so all of this runs on it without locks, tracee_kick() and wakeable_wake() excepted.
 *
 * A stub runs guest code under PTRACE_SYSEMU: the kernel stops it at each system call and executes
 * none. An order is one `syscall; int3` of the stub's page, executed under PTRACE_CONT with registers
 * that the tracer set: it is complete, and its result known, at the int3. So a stub executes a host
 * call only while the tracer waits for exactly this thread. Beneath that lies a seccomp filter that
 * knows the orders and where they come from, and traps all else.
 *
 * States of a tracee (host thread), and who may do what:
 *   STOPPED  its owner's: registers and orders. No wait status is outstanding.
 *   RUNNING  guest code, or an event of it lies in the queue.
 *   ENDING   freed by its owner; parked (leader) or on the way out; the struct lives until it is reaped.
 * `gone` is set when the kernel reported its end; whoever waits next learns it as DEAD or -ESRCH.
 */
#pragma once

#include "sentry/platform/platform_ops.h"
#include "sentry/platform/wakeable.h"
#include <bsd/sys/queue.h>
#include <sys/user.h>

#define TRACEE_KICK_SIGNAL 10 /* SIGUSR1: never delivered, it only stops the thread */
#define TRACEE_BUCKETS 1024
#define TRACEE_DOORBELL 0x0ba11e70 /* no system call's number: what asks for a descriptor */
#define TRACEE_XSTATE_BUFFER 16384 /* all that the kernel knows, AMX included */

enum tracee_state { TRACEE_STOPPED, TRACEE_RUNNING, TRACEE_ENDING };

struct tracee;
LIST_HEAD(tracee_list, tracee);
TAILQ_HEAD(tracee_queue, tracee);

struct tracer {
    struct platform platform;
    struct wakeable wakeable;
    int listener;            /* of the stubs' filter; owned; passes descriptors */
    struct tracee *template; /* owned: what new spaces are forked from */
    struct tracee_list buckets[TRACEE_BUCKETS]; /* every tracee that was not reaped, by tid */
    struct tracee_list loose;                   /* those without a host thread (any more) */
    struct tracee_queue queue;                  /* those with something to report */
    pid_t early_tid; /* a new host thread whose first stop was already collected */
    int space_count;
    int space_limit;
    bool open_filter;
    uint64_t vdso_low; /* first byte of vvar and vDSO, or 0 */
    uint64_t vdso_high;
    uint64_t xstate_mask; /* features that guests have */
    uint32_t xstate_size; /* of a signal frame, without FP_XSTATE_MAGIC2 */
    unsigned char xstate[TRACEE_XSTATE_BUFFER] __attribute__((aligned(64))); /* scratch */
};

struct tracee_space {
    struct platform_space space;
    pid_t pid;
    unsigned thread_count; /* in use by an owner */
    unsigned host_count;   /* not reaped */
    bool killed;
    bool released; /* no references; freed with its last host thread */
    struct tracee_list threads;
};

struct tracee {
    struct platform_thread thread;
    LIST_ENTRY(tracee) bucket;
    LIST_ENTRY(tracee) sibling;
    TAILQ_ENTRY(tracee) queued;
    struct tracer *tracer;
    pid_t tid;
    _Atomic int state;          /* enum tracee_state; written by the tracer thread */
    _Atomic bool kicked;        /* a kick that no event has reported */
    struct user_regs_struct user; /* as the kernel has them; segments are kept from here */
    bool is_queued;
    bool has_status; /* `status` is what wait4 said */
    bool has_event;  /* `event` was made by us */
    bool gone;
    int status;
    int end_signal;
    pid_t new_tid; /* the last clone's result */
    struct platform_event event;
    unsigned order_count;
    struct platform_order orders[PLATFORM_QUEUE_MAX];
};

/* ---- stub_image_asm.S ---- */
extern const unsigned char ptrace_stub_image[], ptrace_stub_image_end[];
extern const unsigned char ptrace_stub_call[], ptrace_stub_cmpxchg[];
extern const unsigned char ptrace_stub_load[], ptrace_stub_store[];
extern const unsigned char ptrace_stub_load8[], ptrace_stub_store8[];
/* Where a label of the image is in every stub. */
uint64_t tracee_code(const unsigned char *label);

/* ---- tracee.c: one host thread ---- */

long tracee_request(const struct tracee *t, int request, unsigned long addr, void *data);
/* Fetches the registers of a stopped tracee into t->user. 0 or -ESRCH. */
MUST_CHECK int tracee_read_user(struct tracee *t);
MUST_CHECK int tracee_write_user(struct tracee *t, const struct user_regs_struct *user);
void tracee_regs_from_user(struct tracee *t); /* t->user to t->thread.regs */
/* Writes t->thread.regs to the host thread: 0, -ESRCH, -EIO for values that the CPU has not. */
MUST_CHECK int tracee_write_regs(struct tracee *t);

/* Sets a stopped tracee off at `rip` of the stub's page. Only the registers named here matter. */
struct tracee_call {
    uint64_t rip, rax, rdi, rsi, rdx, r10, r8, r9, rcx;
};
MUST_CHECK int tracee_start(struct tracee *t, const struct tracee_call *call);
/* Waits for what tracee_start() began. 0 with rax, -EFAULT when it faulted, -ESRCH. */
MUST_CHECK int tracee_finish(struct tracee *t, uint64_t *ret_rax);
/* The same in one, `status` being the first thing that wait4 said. */
MUST_CHECK int tracee_step(struct tracee *t, int status, bool *ret_done, uint64_t *ret_rax);
/* A host call as an order: its value, -errno, or -ESRCH if the tracee is dead. */
long tracee_call(struct tracee *t, long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3,
                 uint64_t a4, uint64_t a5);
/* Waits for any status of this one thread (with WNOHANG in `options`: 0 if there is none). A death is
 * recorded, and reported as -ESRCH. 1 with a status. */
MUST_CHECK int tracee_wait(struct tracee *t, int options, int *ret_status);

/* ---- events.c ---- */

struct platform_thread *tracer_wait(struct platform *p, unsigned worker, bool may_block,
                                    struct platform_event *ret_event);
void tracer_worker_wake(struct platform *p, unsigned worker);
void tracee_resume(struct platform_thread *thread);
void tracee_kick(struct platform_thread *thread);
/* Files what wait4 said about `tid`: a queue entry or an end. */
void tracer_on_status(struct tracer *p, pid_t tid, int status);
/* Kills and reaps every stub and frees what is left of them. */
void tracer_end_all(struct tracer *p);
/* wait4 reported the end of `t`. Frees it if its owner already did. */
void tracee_set_gone(struct tracee *t, int status);

/* ---- space.c ---- */

void tracer_add(struct tracer *p, struct tracee *t);
struct tracee *tracer_find(struct tracer *p, pid_t tid);
/* A tracee for host thread `tid`, not yet in the table. NULL without memory. */
struct tracee *tracee_new(struct tracer *p, pid_t tid, struct tracee_space *s);
void tracee_destroy(struct tracee *t); /* after it was reaped */
int tracer_space_new(struct platform *p, unsigned worker, struct platform_space **ret,
                     struct platform_thread **ret_leader);
int tracee_space_fork(struct platform_thread *parent, struct platform_space **ret_space,
                      struct platform_thread **ret_child);
int tracee_thread_new(struct platform_thread *parent, struct platform_thread **ret);
void tracee_thread_free(struct platform_thread *t);
void tracee_space_release(struct platform_space *s);
void tracee_space_kill(struct platform_space *s);
pid_t tracee_space_host_pid(const struct platform_space *s);

/* ---- orders.c, memory.c, xstate.c, setup.c ---- */

/* Runs what tracee_queue_order() left in `t`, and forgets it. 0 or the first error. */
MUST_CHECK int tracee_execute_queued(struct tracee *t);
int tracee_execute(struct platform_thread *thread, const struct platform_order *orders,
                   size_t count, size_t *ret_done);
int tracee_queue_order(struct platform_thread *thread, const struct platform_order *order);

ssize_t tracee_read(struct platform_space *s, guest_addr src, void *dst, size_t size);
ssize_t tracee_write(struct platform_space *s, guest_addr dst, const void *src, size_t size);
int tracee_cmpxchg32(struct platform_thread *thread, guest_addr addr, uint32_t expected,
                     uint32_t desired, uint32_t *ret_old);

MUST_CHECK int tracer_xstate_probe(struct tracer *p);
ssize_t tracee_read_xstate(struct platform_thread *thread, void *bytes, size_t size);
int tracee_write_xstate(struct platform_thread *thread, const void *bytes, size_t size);

/* Starts the template. 0 or -errno with what is missing. */
MUST_CHECK int tracer_setup(struct tracer *p, const char **ret_why);
