/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event loop of a worker: receive a notification, let notify.c decide, hand out events. Runs on
 * whichever host thread leads the worker at the moment.
 *
 * Polling of slots (issue of the in-stub answers) has its place at the top of worker_wait(): before the
 * loop blocks it may look at the slots of recently active threads for a bounded time.
 */
#include "sentry/platform/systrap/systrap.h"

#include "base/host.h"
#define LOG_MODULE "systrap"
#include "base/log.h"
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <time.h>

#define KERNEL_ERESTARTNOINTR 513

/* ---- threads by tid ------------------------------------------------------------------------------ */

static size_t bucket_of(pid_t tid)
{
    return (size_t)tid % SYSTRAP_BUCKETS;
}

struct systrap_thread *worker_find_locked(struct worker *w, pid_t tid)
{
    struct systrap_thread *t;
    LIST_FOREACH(t, &w->buckets[bucket_of(tid)], bucket)
        if (t->tid == tid)
            return t;
    return NULL;
}

void worker_hash_locked(struct worker *w, struct systrap_thread *t)
{
    LIST_INSERT_HEAD(&w->buckets[bucket_of(t->tid)], t, bucket);
}

/* ---- answers ------------------------------------------------------------------------------------- */

static int send_response(struct worker *w, struct seccomp_notif_resp *response)
{
    return (int)host_call3(SYS_ioctl, w->listener, SECCOMP_IOCTL_NOTIF_SEND, response);
}

/* #syscalls ioctl: SECCOMP_IOCTL_NOTIF_RECV, _SEND, _ADDFD on the listeners of the stubs' filters */
int worker_reply(struct worker *w, uint64_t id, int64_t value)
{
    struct seccomp_notif_resp response = {.id = id, .val = value};
    return send_response(w, &response);
}

int worker_continue(struct worker *w, uint64_t id)
{
    struct seccomp_notif_resp response = {.id = id, .flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE};
    return send_response(w, &response);
}

/* ---- held and parked threads --------------------------------------------------------------------- */

void worker_hold_locked(struct systrap_thread *t, uint64_t id)
{
    struct worker *w = t->worker;
    t->notif_id = id;
    t->is_held = true;
    TAILQ_INSERT_TAIL(&w->held, t, held);
    w->held_count++;
}

void worker_forget_locked(struct systrap_thread *t)
{
    if (!t->is_held)
        return;
    t->is_held = false;
    TAILQ_REMOVE(&t->worker->held, t, held);
    t->worker->held_count--;
}

void worker_set_park_word(struct systrap_thread *t, uint32_t value)
{
    /* SAFETY: an aligned word of the slot; the guest may write it too, and wake itself for nothing. */
    __atomic_store_n((uint32_t *)(void *)(frame_slot(t) + STUB_HDR_PARK), value, __ATOMIC_SEQ_CST);
}

/* The kick is pending before the call is answered, so the kernel restarts the call and calls the handler
 * first; what the sentry then gets is the frame of before the call. */
void worker_fetch_locked(struct systrap_thread *t)
{
    worker_forget_locked(t);
    t->is_light = false;
    t->is_fetching = true;
    t->pending = 0;
    (void)host_call3(SYS_tgkill, t->space->pid, t->tid, STUB_KICK_SIGNAL);
    struct seccomp_notif_resp again = {.id = t->notif_id, .error = -KERNEL_ERESTARTNOINTR};
    (void)send_response(t->worker, &again);
}

/* #syscalls futex: wakes parked threads of stubs */
struct systrap_reply worker_unhold_locked(struct systrap_thread *t, int64_t value)
{
    worker_forget_locked(t);
    if (t->is_light)
        worker_fetch_locked(t);
    if (t->is_fetching) {
        t->pending = value;
        return (struct systrap_reply){0};
    }
    if (!t->is_parked)
        return (struct systrap_reply){.id = t->notif_id, .value = value};
    t->pending = value;
    worker_set_park_word(t, 1);
    (void)host_call3(SYS_futex, frame_slot(t) + STUB_HDR_PARK, FUTEX_WAKE, 1);
    return (struct systrap_reply){0};
}

void worker_send(struct worker *w, struct systrap_reply reply)
{
    if (reply.id != 0)
        (void)worker_reply(w, reply.id, reply.value); /* -ENOENT: it is dying, the reaper will tell */
}

/* Parks who has been stopped for longest. Loop only, when it has nothing else to do. */
static void park_some(struct worker *w)
{
    lock_acquire(&w->lock);
    while (w->held_count > SYSTRAP_HELD_MAX) {
        struct systrap_thread *t = TAILQ_FIRST(&w->held);
        worker_forget_locked(t);
        if (t->is_light) { /* to the handler first; it is held again then, as the last */
            worker_fetch_locked(t);
            continue;
        }
        worker_set_park_word(t, 0);
        t->is_parked = true;
        t->pending = 0;
        (void)worker_reply(w, t->notif_id, STUB_REPLY_PARK);
    }
    lock_release(&w->lock);
}

/* ---- the ready list ------------------------------------------------------------------------------ */

void worker_push_locked(struct worker *w, struct systrap_thread *t)
{
    if (t->is_ready)
        return;
    t->is_ready = true;
    TAILQ_INSERT_TAIL(&w->ready, t, ready);
    atomic_store_explicit(&w->has_ready, true, memory_order_release);
}

void worker_wake_waiter_locked(struct worker *w, struct systrap_thread *t)
{
    t->waiting = false;
    if (t->waiter == NULL)
        return;
    fiber_wake(t->waiter);
    atomic_store(&w->woke_fiber, true);
}

struct systrap_thread *worker_pop_locked(struct worker *w, struct platform_event *ret_event)
{
    struct systrap_thread *t = TAILQ_FIRST(&w->ready);
    if (t == NULL) {
        atomic_store_explicit(&w->has_ready, false, memory_order_relaxed); /* under the lock */
        return NULL;
    }
    TAILQ_REMOVE(&w->ready, t, ready);
    t->is_ready = false;
    t->state = THREAD_STOPPED;
    *ret_event = t->event;
    return t;
}

/* Who pushes from elsewhere wakes the loop afterwards, so the hint may be read late. */
static struct systrap_thread *pop_ready(struct worker *w, struct platform_event *ret_event)
{
    if (!atomic_load_explicit(&w->has_ready, memory_order_acquire))
        return NULL;
    lock_acquire(&w->lock);
    struct systrap_thread *t = worker_pop_locked(w, ret_event);
    lock_release(&w->lock);
    return t;
}

/* ---- receiving ----------------------------------------------------------------------------------- */

/* #syscalls poll: a look at a listener without waiting */
static bool has_notification(struct worker *w)
{
    struct pollfd pfd = {.fd = w->listener, .events = POLLIN};
    return host_call3(SYS_poll, &pfd, 1, 0) == 1 && (pfd.revents & POLLIN) != 0;
}

/* The template is dead and so is every space: some kernels answer ENOENT at once for ever.
 * #syscalls nanosleep: until the sandbox ends */
static void wait_without_stubs(struct worker *w)
{
    struct timespec moment = {.tv_nsec = 10000000};
    (void)wakeable_call(&w->wake, SYS_nanosleep, HOST_ARG(&moment), 0, 0, 0);
}

/* #syscalls gettid: whom a wake-up of the loop has to interrupt
 * Host threads of the sentry do not end while workers run, so the thread pointer identifies one, and
 * costs nothing. It is not thread-local storage of a fiber: the loop runs on no fiber. */
static void set_leader(struct worker *w)
{
    uintptr_t self;
    __asm__ volatile("mov %%fs:0, %0" : "=r"(self));
    if (likely(w->leader == self))
        return;
    w->leader = self;
    w->wake.tid = (pid_t)host_call0(SYS_gettid);
}

/* Receives and handles one notification: 1, 0 when there was none (woken, or none to wait for). What
 * event came of it is in *ret, or NULL. */
static bool serve_one(struct worker *w, bool may_block, struct systrap_thread **ret,
                      struct platform_event *ret_event)
{
    *ret = NULL;
    space_refill(w, may_block);
    if (!may_block && !has_notification(w))
        return false;
    if (may_block && unlikely(atomic_load_explicit(&w->held_count, memory_order_relaxed) >
                              SYSTRAP_HELD_MAX))
        park_some(w);
    struct seccomp_notif n = {0};
    set_leader(w);
    long r = wakeable_call(&w->wake, SYS_ioctl, w->listener, (long)SECCOMP_IOCTL_NOTIF_RECV,
                           HOST_ARG(&n), 0);
    if (r == 0) {
        *ret = notify_handle(w, &n, ret_event);
        return true;
    }
    if (r == -ENOENT && w->template_dead && may_block)
        wait_without_stubs(w);
    return r == -ENOENT; /* whoever rang died meanwhile */
}

/* hot */
struct platform_thread *worker_wait(struct platform *p, unsigned worker, bool may_block,
                                    struct platform_event *ret_event)
{
    struct systrap *systrap = container_of(p, struct systrap, base);
    struct worker *w = &systrap->workers[worker];
    struct systrap_thread *t = pop_ready(w, ret_event);
    while (t == NULL) {
        if (wakeable_take(&w->wake))
            return NULL;
        bool served = serve_one(w, may_block, &t, ret_event);
        if (t == NULL && (!served || atomic_load(&w->woke_fiber))) {
            atomic_store(&w->woke_fiber, false);
            return NULL;
        }
    }
    return &t->base;
}

void worker_wake(struct platform *p, unsigned worker)
{
    struct systrap *systrap = container_of(p, struct systrap, base);
    wakeable_wake(&systrap->workers[worker].wake);
}

/* ---- sleeping ------------------------------------------------------------------------------------ */

static void serve_without_fibers(struct worker *w)
{
    struct systrap_thread *t;
    struct platform_event event;
    bool served = serve_one(w, true, &t, &event);
    if (t != NULL) { /* for a later worker_wait() */
        lock_acquire(&w->lock);
        t->state = THREAD_RUNNING;
        worker_push_locked(w, t);
        lock_release(&w->lock);
    }
    if (!served && wakeable_take(&w->wake))
        space_reap(&w->platform->base); /* no event thread does */
}

bool worker_sleep_until(struct worker *w, bool (*condition)(void *arg), void *arg,
                        uint64_t deadline_ns)
{
    bool has_fiber = fiber_current() != NULL;
    bool late = false;
    for (;;) {
        lock_acquire(&w->lock);
        bool done = condition(arg);
        lock_release(&w->lock);
        if (done || late)
            return done;
        if (has_fiber)
            late = fiber_park(FIBER_UNINTERRUPTIBLE, deadline_ns) == -ETIMEDOUT;
        else
            serve_without_fibers(w);
    }
}

void worker_sleep(struct worker *w, bool (*condition)(void *arg), void *arg)
{
    (void)worker_sleep_until(w, condition, arg, FIBER_NO_DEADLINE);
}
