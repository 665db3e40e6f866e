/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the systrap platform share.
 *
 * Theory of operation. A space's host threads talk to the sentry by seccomp notifications only, on the
 * listener of the worker whose template the space descends from. Each host thread is in one state:
 *
 *   STARTING  ordered by a clone; its first doorbell carries the nonce, then it maps its mailbox
 *   STOPPED   its doorbell is held (notif_id); registers and orders are its owner's
 *   CALLS     it executes `calls`; a fiber waits in `waiter`
 *   RUNNING   guest code, or the calls queued for this resume
 *   EXITING   its owner is gone; the exit order is the next that it may do
 *   PARKED    a leader without owner, in the park futex until the process ends
 *
 * A STOPPED thread is *light* if what is held is the guest's own call, notified from where it was made:
 * only number, arguments and rip are known, the other words of base.regs hold a poison that no register
 * has. If at its resume only rax changed, the reply is that value. For all else its registers have to be
 * fetched: the call is answered with "restart" and a kick is pending, so that the thread comes to the
 * handler, with the frame of before the call; what the owner changed meanwhile is merged in. `pending`
 * says what follows the fetch. A light call is never continued.
 *
 * Many held notifications make each doorbell slow, so of the STOPPED threads the ones that stopped
 * first are sent into the park futex when there are more than SYSTRAP_HELD_MAX (`is_parked`). What is
 * to be replied to such a thread waits in `pending`: it is woken, rings READY, and gets it.
 *
 * A notification that the state does not explain kills the space. The pid in a notification is the
 * kernel's and identifies the thread; nothing else does. `calls` is the private copy against which each
 * notified call is compared; the list in the slot is only what the stub is told.
 *
 * Locks: worker.lock (short) protects everything of a worker, its spaces and their threads, except what
 * belongs to a stopped thread's owner (base.regs, the slot's contents, `calls` before the reply).
 * Order: space.gate (fmutex) → worker.lock.
 */
#pragma once

#include "base/lock.h"
#include "sentry/platform/platform_ops.h"
#include "sentry/platform/systrap/stub/stub_abi.h"
#include "sentry/platform/wakeable.h"
#include "sentry/sched/fiber.h"
#include "sentry/sched/wait_queue.h"
#include <assert.h>
#include <bsd/sys/queue.h>
#include <linux/seccomp.h>
#include <sched.h>

#define SYSTRAP_WORKERS_MAX 64
#define SYSTRAP_BUCKETS 1024
#define SYSTRAP_CALLS_MAX 16 /* of one list: orders plus closes */
#define SYSTRAP_POOL_TARGET 2
#define SYSTRAP_DEAD_RING 32
#define SYSTRAP_HELD_MAX 48 /* at 100 a doorbell takes half as long again (docs/platform 1) */

enum thread_state {
    THREAD_STARTING,
    THREAD_STOPPED,
    THREAD_CALLS,
    THREAD_RUNNING,
    THREAD_EXITING,
    THREAD_PARKED,
};

/* What a STARTING task has to do next. */
enum start_step { START_HELLO, START_MAP, START_CLOSE, START_ADVISE, START_READY };

/* A host call that a stub was told to make. */
struct systrap_call {
    uint64_t nr;
    uint64_t args[6];
    bool always;    /* made even after an earlier one failed */
    int hfd;        /* to be added as descriptor 0 at its notification, or -1; borrowed */
    uint16_t order; /* orders before it in the caller's array that are complete once it is */
};

struct systrap_thread {
    struct platform_thread base;
    struct systrap_space *space;
    struct worker *worker;
    LIST_ENTRY(systrap_thread) bucket; /* by tid, when tid != 0 */
    LIST_ENTRY(systrap_thread) sibling;
    LIST_ENTRY(systrap_thread) starting; /* while its hello is awaited */
    TAILQ_ENTRY(systrap_thread) ready;
    pid_t tid;
    enum thread_state state;
    uint64_t notif_id;
    unsigned slot;
    uint64_t frame; /* the stub's address of its signal frame */
    uint64_t host_fs, host_gs;
    struct fiber *waiter; /* borrowed: parked until the state changes */
    bool waiting;         /* somebody without a fiber does (start-up, tests) */

    TAILQ_ENTRY(systrap_thread) held; /* while STOPPED with a held notification */
    bool is_held;
    bool is_parked;  /* in the park futex instead; until its READY */
    bool is_light;    /* what is held is the guest's own call */
    bool is_fetching; /* on its way from there to the handler */
    struct guest_regs seen; /* what base.regs was at the light stop */
    int64_t pending; /* what READY is answered with; 0 = nothing to come yet */

    bool kicked;
    bool is_ready; /* on the worker's ready list with `event` */
    bool is_freed; /* no owner any more */
    struct platform_event event;

    /* STARTING */
    enum start_step step;
    uint64_t nonce;
    bool is_thread; /* of an existing space: has the mailbox */
    pid_t claimed;  /* what the cloning stub says is its pid; 0 = nothing yet */
    bool failed;    /* will never come */

    /* CALLS and RUNNING */
    struct systrap_call calls[SYSTRAP_CALLS_MAX];
    unsigned call_count;
    unsigned call_next;
    bool calls_failed; /* it skipped to an `always` call */
    bool calls_resume; /* they ran within a resume */
    unsigned queued_count; /* for the next resume; the owner's while stopped */
    struct systrap_call queued[PLATFORM_QUEUE_MAX];
    bool atomic; /* it runs the stub's cmpxchg: its next event goes to `waiter` */
    bool atomic_done;
    uint64_t done_count; /* claims of the stub: calls done, error, last value */
    int64_t done_error;
    int64_t done_value;
};

LIST_HEAD(systrap_thread_list, systrap_thread);
TAILQ_HEAD(systrap_ready, systrap_thread);
TAILQ_HEAD(systrap_held, systrap_thread);

struct systrap_space {
    struct platform_space base;
    struct worker *worker;
    LIST_ENTRY(systrap_space) entry;
    TAILQ_ENTRY(systrap_space) pooled;
    pid_t pid;     /* 0 until its first doorbell */
    bool killed;   /* SIGKILL was sent, or there is nothing to kill */
    bool dead;     /* reaped, or it never came to life */
    bool released; /* no references */
    bool is_pooled;
    int end_signal;
    struct systrap_thread *fd_holder; /* descriptor 0 is there, for calls of this thread; or NULL */
    unsigned char *mailbox; /* owned mapping */
    int mailbox_hfd;        /* owned until the stub has mapped it */
    unsigned thread_count;  /* with an owner */
    struct systrap_thread_list threads;
    uint64_t slots[STUB_SLOT_COUNT / 64]; /* 1 = used */
    struct fmutex gate; /* one clone or passing of a descriptor at a time */
};

LIST_HEAD(systrap_space_list, systrap_space);
TAILQ_HEAD(systrap_pool, systrap_space);

struct worker {
    struct systrap *platform;
    unsigned index;
    int listener;      /* owned */
    int template_pidfd; /* owned */
    pid_t template_pid;
    struct wakeable wake;
    uintptr_t leader; /* thread pointer of who waited last, whose tid `wake` has */
    bool killable; /* WAIT_KILLABLE_RECV */
    bool sync;     /* SYNC_WAKE_UP */

    _Atomic bool has_ready;     /* hint: look at `ready` */
    _Atomic bool may_refill;    /* hint: look at the pool */

    struct lock lock; /* all below, and what systrap.h says above */
    bool template_dead;
    uint64_t template_id; /* its held doorbell; 0 = busy */
    bool template_cloning; /* a clone by the template is ordered and not yet notified */
    uint64_t template_nonce;
    struct systrap_thread_list buckets[SYSTRAP_BUCKETS];
    struct systrap_thread_list starting; /* hello awaited */
    struct systrap_space_list spaces;
    struct systrap_ready ready;
    struct systrap_held held; /* stopped threads, the longest first */
    _Atomic unsigned held_count;
    struct systrap_pool pool; /* stopped leaders in spaces nobody has */
    unsigned pool_count;
    unsigned refill_failures;
    unsigned pool_coming; /* ordered, not in the pool yet */
    struct wait_queue pool_waiters;
    _Atomic bool woke_fiber; /* a fiber was made runnable: the loop may be needed for it */
    pid_t dead_pids[SYSTRAP_DEAD_RING]; /* reaped before their first doorbell */
    unsigned dead_next;
} CACHE_ALIGNED;

struct systrap {
    struct platform base;
    unsigned worker_count;
    int max_processes;
    _Atomic int space_count;
    uint64_t table[STUB_TABLE_WORDS]; /* the stub image's */
    uint32_t findings;                /* STUB_FOUND_*, of the first template */
    cpu_set_t cpus;                   /* where guests may run */
    uint64_t xfeatures;
    uint32_t xstate_size; /* without FP_XSTATE_MAGIC2 */
    uint32_t pkru_offset; /* in the extended state; 0: this CPU or kernel has no protection keys */
    uint32_t mxcsr_mask;
    uint64_t poison; /* random: what registers of a light stop hold that are not known */
    bool open_filter;
    struct worker *workers; /* owned, worker_count of them; immutable */
};

/* ---- embed_asm.S ---- */
extern const unsigned char systrap_stub_image[], systrap_stub_image_end[];

/* ---- template.c: start-up ---- */
MUST_CHECK int templates_start(struct systrap *p, const char **ret_why);
void templates_stop(struct systrap *p);

/* ---- frame.c: registers and extended state in a slot; of a stopped thread, by its owner ---- */
MUST_CHECK int frame_probe_xstate(struct systrap *p);
/* The slot of a thread, header first. Untrusted memory that other threads write meanwhile. */
unsigned char *frame_slot(const struct systrap_thread *t);
/* Where the kernel would put a frame in a fresh slot. */
uint64_t frame_home(const struct systrap *p, unsigned slot);
/* Whether `frame` is one in this thread's slot. */
MUST_CHECK bool frame_is_valid(const struct systrap_thread *t, uint64_t frame);
/* Reads the registers of t->frame into t->base.regs, and the fault into `ret`. */
void frame_load(struct systrap_thread *t, int signo, struct platform_event *ret);
/* Writes t->base.regs; true if the stub has to load fs and gs from the header. */
bool frame_store(struct systrap_thread *t, bool always_bases);
/* A whole frame at frame_home() of `t`, with the extended state of `from` (NULL: initial). */
void frame_build(struct systrap_thread *t, const struct systrap_thread *from);
ssize_t frame_read_xstate(struct platform_thread *thread, void *bytes, size_t size);
int frame_write_xstate(struct platform_thread *thread, const void *bytes, size_t size);

/* ---- worker.c: the event loop ---- */
struct platform_thread *worker_wait(struct platform *p, unsigned worker, bool may_block,
                                    struct platform_event *ret_event);
void worker_wake(struct platform *p, unsigned worker);
/* Sleeps until condition(arg) holds, which is evaluated under w->lock: parks the fiber, or, where there
 * is none (start-up, tests), serves the worker meanwhile. Who makes it true wakes `fiber`. */
void worker_sleep(struct worker *w, bool (*condition)(void *arg), void *arg);
/* The same with a deadline (CLOCK_MONOTONIC; only with a fiber): whether the condition holds. */
bool worker_sleep_until(struct worker *w, bool (*condition)(void *arg), void *arg,
                        uint64_t deadline_ns);
/* What a thread in the park futex waits for to change from 0. */
void worker_set_park_word(struct systrap_thread *t, uint32_t value);
/* Answers a held notification. 0, or -ENOENT when its process is dying. */
int worker_reply(struct worker *w, uint64_t id, int64_t value);
/* Takes a stopped thread out of the held ones; what has to be replied to it, once w->lock is free, is
 * in the result (id 0: it is parked and was woken to fetch it). */
struct systrap_reply {
    uint64_t id;
    int64_t value;
};
struct systrap_reply worker_unhold_locked(struct systrap_thread *t, int64_t value)
    REQUIRES(&t->worker->lock);
void worker_send(struct worker *w, struct systrap_reply reply);
/* Sends a light thread to the handler. */
void worker_fetch_locked(struct systrap_thread *t) REQUIRES(&t->worker->lock);
/* `t` has just stopped: its notification is held. */
void worker_hold_locked(struct systrap_thread *t, uint64_t id) REQUIRES(&t->worker->lock);
/* Forgets about it: it dies or leaves. */
void worker_forget_locked(struct systrap_thread *t) REQUIRES(&t->worker->lock);
int worker_continue(struct worker *w, uint64_t id);
/* Puts `t` with its event on the ready list. */
void worker_push_locked(struct worker *w, struct systrap_thread *t) REQUIRES(&w->lock);
void worker_wake_waiter_locked(struct worker *w, struct systrap_thread *t) REQUIRES(&w->lock);
struct systrap_thread *worker_find_locked(struct worker *w, pid_t tid) REQUIRES(&w->lock);
void worker_hash_locked(struct worker *w, struct systrap_thread *t) REQUIRES(&w->lock);

/* Takes the first of the ready list, stopped. */
struct systrap_thread *worker_pop_locked(struct worker *w, struct platform_event *ret_event)
    REQUIRES(&w->lock);

/* Makes the registers of a stopped thread complete: 0, -ESRCH. */
int thread_fetch(struct platform_thread *thread);
/* The reply that lets `t` run guest code, its frame and list written. */
int64_t thread_resume_value_locked(struct systrap_thread *t);

/* ---- notify.c: what a notification means ---- */
/* Returns the first thread that has an event now, stopped, or NULL. */
struct systrap_thread *notify_handle(struct worker *w, const struct seccomp_notif *n,
                                     struct platform_event *ret_event);
/* A rule was broken: the space dies. `why` is static storage. */
void notify_violation_locked(struct systrap_space *s, const char *why);
/* Adds the call's descriptor as fd 0 of the notified thread. */
int notify_add_fd(struct worker *w, uint64_t id, pid_t tid, int hfd);

/* ---- space.c ---- */
int space_new(struct platform *p, unsigned worker, struct platform_space **ret,
              struct platform_thread **ret_leader);
int space_fork(struct platform_thread *parent, struct platform_space **ret_space,
               struct platform_thread **ret_child);
int thread_new(struct platform_thread *parent, struct platform_thread **ret);
void thread_free(struct platform_thread *thread);
void space_release(struct platform_space *s);
void space_kill(struct platform_space *s);
void space_kill_locked(struct systrap_space *s);
pid_t space_host_pid(const struct platform_space *s);
void space_reap(struct platform *p);
/* Orders the template to make a space if the pool is short: empty, or, when the loop is idle anyway,
 * below its target. Event loop only. */
void space_refill(struct worker *w, bool is_idle);
/* Frees `s` if it is dead and released. */
void space_collect_locked(struct systrap_space *s);
/* Whether a child of this pid died before its first doorbell. */
bool space_died_unseen_locked(const struct worker *w, pid_t pid);
/* A pooled space's leader has come, or will not. */
void space_arrived_locked(struct worker *w, struct systrap_thread *t);
/* The host process is gone for good: turns that into events and wake-ups. */
void space_set_dead_locked(struct systrap_space *s, int end_signal);
void thread_destroy_locked(struct systrap_thread *t);
/* Frees everything that is left; every process is dead. */
void space_free_all(struct worker *w);

/* ---- order.c ---- */
int thread_execute(struct platform_thread *thread, const struct platform_order *orders,
                   size_t count, size_t *ret_done);
int thread_queue(struct platform_thread *thread, const struct platform_order *order);
/* Runs what is queued for the next resume now: 0 or its error. */
MUST_CHECK int thread_flush(struct platform_thread *thread);
void thread_resume(struct platform_thread *thread);
void thread_kick(struct platform_thread *thread);
int thread_cmpxchg32(struct platform_thread *thread, guest_addr addr, uint32_t expected,
                     uint32_t desired, uint32_t *ret_old);
/* Runs t->calls and sleeps until they are complete: 0 or -ESRCH; t->done_* say what the stub claims. */
MUST_CHECK int thread_run_calls(struct systrap_thread *t);
void call_set(struct systrap_call *c, uint64_t nr, uint64_t a0, uint64_t a1, uint64_t a2,
              uint64_t a3, uint64_t a4, uint64_t a5);
