/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The platform: how guest code runs on the host and how its system calls, faults and kicks reach the
 * sentry. This header is the whole interface; systrap and ptrace both implement it and pass the same
 * tests (design section 3, docs/platform rules).
 *
 * Vocabulary
 *   space    an address space: one host process (a "stub"). All of its host threads are one host thread
 *            group, whatever guest processes they serve (CLONE_VM without CLONE_THREAD included).
 *   thread   what a guest thread runs on: one host thread of a space.
 *   event    why a thread stopped running guest code. From its event on until platform_thread_resume()
 *            a thread is *stopped*: its registers are the sentry's to read and write, and it can execute
 *            orders. Exactly one fiber owns a stopped thread.
 *   order    a host system call that the stub executes because the sentry computed it. Results of
 *            orders are claims of the stub: a false one hurts only that space.
 *
 * Threads of the sentry: every function may be called from any fiber on any worker, except where it
 * says "event loop". "Sleeps" means that the calling fiber may park; no short lock may be held then.
 *
 * Ownership: spaces are reference-counted (each thread holds one). The owner pointer of a thread is
 * opaque to the platform and handed back with each event.
 */
#pragma once

#include "abi/guest_addr.h"
#include "abi/regs.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct platform;
struct platform_space;
struct platform_thread;

enum platform_event_kind {
    PLATFORM_EVENT_SYSCALL, /* regs.rax = number, arguments as the ABI has them, rip after the insn */
    PLATFORM_EVENT_FAULT,   /* a synchronous signal: signo, code, addr; regs at the faulting insn */
    PLATFORM_EVENT_KICK,    /* platform_thread_kick(), or spurious: look at what is pending, resume */
    PLATFORM_EVENT_ORDER_FAILED, /* an order queued for resume failed: `error`; the guest has not run */
    PLATFORM_EVENT_DEAD,         /* the host process is gone or was killed for breaking a rule */
    PLATFORM_EVENT_COUNT,
};

struct platform_event {
    enum platform_event_kind kind;
    int signo;       /* FAULT: SIGSEGV SIGBUS SIGILL SIGFPE SIGTRAP */
    int code;        /* FAULT: si_code as the host gave it */
    guest_addr addr; /* FAULT: si_addr */
    int error;       /* ORDER_FAILED: -errno; DEAD: 0 or the terminating host signal */
    bool is_write;   /* FAULT: SIGSEGV by a write access (page-fault error code bit 1) */
    bool is_exec;    /* FAULT: by an instruction fetch (bit 4) */
};

struct platform_info {
    const char *name;        /* "systrap" or "ptrace" */
    guest_addr min_addr;     /* lowest address that a guest may map (vm.mmap_min_addr) */
    guest_addr max_addr;     /* first address above what a guest may map: the stub's range starts there */
    guest_addr vdso;         /* where the host's vDSO is in every space; 0 = none (AT_SYSINFO_EHDR) */
    uint64_t vdso_size;      /* bytes, with vvar's pages just below when vvar_size is not 0 */
    uint64_t vvar_size;
    guest_addr sigreturn;    /* unused by x86-64 guests; 0 */
    unsigned worker_count;   /* event loops that it wants: CPUs for systrap, 1 for ptrace */
    bool may_hand_off;       /* the leader role of a worker may move between host threads */
    size_t xstate_size;      /* bytes of extended state that read/write_xstate move */
};

struct platform_config {
    const char *name;       /* "systrap", "ptrace", or NULL for the best that works here */
    unsigned cpu_count;     /* CPUs of the sandbox: upper bound for workers */
    int max_processes;      /* spaces alive at once */
    bool open_filter;       /* test builds only (BAILEY_DRILLS): the stub's filter allows everything */
};

/* Starts the stub templates. Runs before the sentry installs its own filter and before its second
 * thread, as pid 1 of the sandbox's pid namespace (or any process in tests). 0 or -errno; on failure
 * `*ret_why` (static storage) says what is missing. */
MUST_CHECK int platform_new(const struct platform_config *config, struct platform **ret,
                            const char **ret_why);
const struct platform_info *platform_info(const struct platform *p);
/* Kills every space and frees it. Event loop of no worker may be running. */
void platform_free(struct platform *p);

/* ---- event loop of a worker -------------------------------------------------------------------- */

/* Waits until a thread has an event, and returns that thread, now stopped; NULL when woken by
 * platform_worker_wake() or by a signal, or (with `may_block` false) when nothing is there.
 * `worker` is below info.worker_count; at most one host thread at a time calls it for one worker, and
 * for ptrace it is always the same one. A thread has one home worker. */
struct platform_thread *platform_wait(struct platform *p, unsigned worker, bool may_block,
                                      struct platform_event *ret_event);
/* Makes platform_wait(worker) return soon. Any host thread; never lost, never blocks. */
void platform_worker_wake(struct platform *p, unsigned worker);
/* The host reported that a child died (SIGCHLD): reap, and turn deaths into DEAD events, which come
 * out of platform_wait(). Event thread only. Calls platform_worker_wake() where needed. */
void platform_reap(struct platform *p);

/* Why the sandbox must end: a process that all spaces depend on (a template) died. NULL while all is
 * well; static storage. To be looked at after platform_reap(). Any thread. */
const char *platform_failure(const struct platform *p);

/* ---- spaces ------------------------------------------------------------------------------------ */

/* An empty space (nothing mapped but stub and vDSO) with one stopped thread, its host leader, whose
 * registers are all zero. `worker` is the home wished for (a hint). Sleeps. -EAGAIN: limit reached;
 * -ENOMEM. */
MUST_CHECK int platform_space_new(struct platform *p, unsigned worker, struct platform_space **ret,
                                  struct platform_thread **ret_leader);
/* Host copy-on-write fork of `parent`'s space, executed by `parent` (stopped). `*ret_child` is a
 * stopped copy of it: same registers and extended state. Sleeps. -EAGAIN, -ENOMEM. */
MUST_CHECK int platform_space_fork(struct platform_thread *parent, struct platform_space **ret_space,
                                   struct platform_thread **ret_child);
/* One more thread in `parent`'s space, stopped, with a copy of its registers and extended state.
 * Sleeps. -EAGAIN. */
MUST_CHECK int platform_thread_new(struct platform_thread *parent, struct platform_thread **ret);

struct platform_space *platform_thread_space(struct platform_thread *t);
void platform_space_get(struct platform_space *s);
void platform_space_put(struct platform_space *s); /* the last reference kills what still runs */
/* Kills the host process now. Its threads that are not stopped yield DEAD; stopped ones answer every
 * further order with -ESRCH. */
void platform_space_kill(struct platform_space *s);
/* Host pid of the space's leader, for accounting through the gofer's procfs. */
pid_t platform_space_host_pid(const struct platform_space *s);

/* ---- threads ----------------------------------------------------------------------------------- */

/* Pins the thread to the CPUs of `mask`: bit k is the k-th of the CPUs that the sentry itself may use, so that the
 * vDSO's getcpu agrees with what the guest asked for. A hint: errors are ignored. Not for a running `t`. */
void platform_thread_set_affinity(struct platform_thread *t, uint64_t mask);
void platform_thread_set_owner(struct platform_thread *t, void *owner);
void *platform_thread_owner(const struct platform_thread *t);
unsigned platform_thread_worker(const struct platform_thread *t); /* its home */

/* The registers of a stopped thread: the sentry's own copy, valid until resume, written back then.
 * After a SYSCALL event only rax, the six arguments and rip are sure to be there; the others may be
 * written (all of them, or single ones), but are to be read only after platform_thread_fetch(). */
struct guest_regs *platform_thread_regs(struct platform_thread *t);
/* Completes the registers of a stopped thread; what the owner has changed already stays as it is. Nearly
 * free if they are complete. Sleeps. 0, -ESRCH. */
MUST_CHECK int platform_thread_fetch(struct platform_thread *t);
/* Extended state of a stopped thread: reads into / writes from `bytes` (info.xstate_size at most).
 * The write is sanitised: a state that the CPU would refuse is -EINVAL. `bytes` NULL: reset to the
 * initial state (execve). */
MUST_CHECK ssize_t platform_thread_read_xstate(struct platform_thread *t, void *bytes, size_t size);
MUST_CHECK int platform_thread_write_xstate(struct platform_thread *t, const void *bytes, size_t size);

/* Lets guest code run with the registers as they stand. Never sleeps. After it the thread belongs to
 * the platform until its next event. Queued orders run first. */
void platform_thread_resume(struct platform_thread *t);
/* Makes a running thread stop soon with KICK; if it is stopped or about to stop, the next resume
 * yields KICK at once, before guest code runs. Any host thread, under short locks too. */
void platform_thread_kick(struct platform_thread *t);
/* Ends the host thread of a stopped `t` (a host leader parks until its process ends) and frees it.
 * With the last thread of a space the process ends. */
void platform_thread_free(struct platform_thread *t);

/* ---- orders ------------------------------------------------------------------------------------ */

enum platform_order_kind {
    PLATFORM_ORDER_MAP_ANON, /* addr size prot flags(MAP_PRIVATE plus MAP_NORESERVE, MAP_STACK): always
                              * MAP_FIXED */
    PLATFORM_ORDER_MAP_FILE, /* addr size prot flags(PRIVATE or SHARED) hfd offset: always MAP_FIXED */
    PLATFORM_ORDER_UNMAP,    /* addr size */
    PLATFORM_ORDER_PROTECT,  /* addr size prot */
    PLATFORM_ORDER_REMAP,    /* addr size → new_addr new_size, flags as mremap(2); always FIXED if moved */
    PLATFORM_ORDER_ADVISE,   /* addr size advice */
    PLATFORM_ORDER_MINCORE,  /* addr size, new_addr: where the kernel writes a byte for each page */
    PLATFORM_ORDER_UNMAP_ALL, /* everything but the stub's range (execve that stays) */
    PLATFORM_ORDER_COUNT,
};

struct platform_order {
    enum platform_order_kind kind;
    guest_addr addr;
    uint64_t size;
    int prot;
    int flags;
    int hfd; /* MAP_FILE: borrowed; the platform duplicates nothing: keep it open until completion */
    uint64_t offset;
    guest_addr new_addr;
    uint64_t new_size;
    int advice;
};

/* Executes `count` orders on stopped `t`, in order, stopping at the first that fails, and sleeps until
 * they are complete (killably: -ESRCH once the space is dead). `*ret_done` = how many succeeded.
 * What platform_queue() left in `t` runs first (`count` 0: nothing else); if one of those fails, that
 * is the result, with *ret_done 0, the queue is empty then, and no ORDER_FAILED follows.
 * Adjacent MAP_FILE orders of one hfd share one descriptor passing. Ranges outside
 * [min_addr, max_addr) are refused with -EINVAL here, in one function, for both platforms. */
MUST_CHECK int platform_execute(struct platform_thread *t, const struct platform_order *orders,
                                size_t count, size_t *ret_done);
/* Queues one order to run within the next resume: no crossing of its own. On failure the resume ends in
 * ORDER_FAILED. At most PLATFORM_QUEUE_MAX; -ENOSPC then: use platform_execute(). */
#define PLATFORM_QUEUE_MAX 4
MUST_CHECK int platform_queue(struct platform_thread *t, const struct platform_order *order);

/* ---- memory ------------------------------------------------------------------------------------ */

/* Copies between the sentry and a space (process_vm_readv/writev, or through the stopped thread where
 * the host forbids those). Return the bytes moved before the first inaccessible page, or -EFAULT if
 * none, -ESRCH if the process is gone. May fault pages in: with more than 16 KiB the host call counts
 * as blocking and the caller has left the leadership. Uses the process's page protections. */
MUST_CHECK ssize_t platform_read(struct platform_space *s, guest_addr src, void *dst, size_t size);
MUST_CHECK ssize_t platform_write(struct platform_space *s, guest_addr dst, const void *src, size_t size);

/* What `bailey features` prints: one "key=value" line each, into `out`. */
void platform_describe(const struct platform *p, char *out, size_t size);

/* `lock cmpxchg` on an aligned guest word, executed by stopped `t`, so that it is atomic against running
 * guest threads (robust futexes, FUTEX_WAKE_OP). Sleeps. 0 with the old value in *ret_old (equal to
 * `expected` if it was exchanged), -EFAULT. */
MUST_CHECK int platform_cmpxchg32(struct platform_thread *t, guest_addr addr, uint32_t expected,
                                  uint32_t desired, uint32_t *ret_old);
