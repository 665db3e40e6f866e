/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Spaces and their threads: how they come (template, fork, clone), are pooled, and go. Runs on any host
 * thread; space_refill() in the event loop, space_reap() on the event thread.
 *
 * A space lives as long as somebody refers to it or its process is not reaped, whichever is later. A
 * thread whose owner is gone (EXITING, PARKED) lives until its host thread left or its process died.
 */
#include "sentry/platform/systrap/systrap.h"

#include "base/host.h"
#define LOG_MODULE "systrap"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define NONCE_MAX (1ULL << 62)

static struct systrap *systrap_of(struct platform *p)
{
    return container_of(p, struct systrap, base);
}

static struct systrap_space *space_of(struct platform_space *s)
{
    return container_of(s, struct systrap_space, base);
}

/* ---- slots --------------------------------------------------------------------------------------- */

static int slot_take_locked(struct systrap_space *s)
{
    for (unsigned i = 0; i < ARRAY_COUNT(s->slots); i++) {
        if (s->slots[i] == UINT64_MAX)
            continue;
        unsigned bit = (unsigned)__builtin_ctzll(~s->slots[i]);
        s->slots[i] |= 1ULL << bit;
        return (int)(i * 64 + bit);
    }
    return -EAGAIN;
}

static void slot_put_locked(struct systrap_space *s, unsigned slot)
{
    s->slots[slot / 64] &= ~(1ULL << slot % 64);
}

/* ---- objects ------------------------------------------------------------------------------------- */

/* #syscalls memfd_create,ftruncate,fcntl,mmap,munmap: the mailbox of each space
 * A memfd of its own, never a part of a common one: a stub keeps what it mapped. */
static int mailbox_make(struct systrap_space *s)
{
    long hfd = host_call2(SYS_memfd_create, "bailey-mailbox", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (hfd < 0)
        return (int)hfd;
    s->mailbox_hfd = (int)hfd;
    long r = host_call2(SYS_ftruncate, hfd, STUB_MAILBOX_SIZE);
    if (r == 0)
        r = host_call3(SYS_fcntl, hfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (r != 0)
        return (int)r;
    long at = host_call6(SYS_mmap, 0, STUB_MAILBOX_SIZE, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_NORESERVE, hfd, 0);
    if (at < 0)
        return (int)at;
    s->mailbox = (unsigned char *)(uintptr_t)at;
    return 0;
}

static void space_destroy(struct systrap_space *s)
{
    if (s->mailbox != NULL)
        (void)host_call2(SYS_munmap, s->mailbox, STUB_MAILBOX_SIZE);
    host_close(s->mailbox_hfd);
    atomic_fetch_sub(&s->worker->platform->space_count, 1);
    fmutex_fini(&s->gate);
    free(s);
}

/* Without a process yet. 0, -EAGAIN at the limit, -ENOMEM. */
static int space_make(struct worker *w, struct systrap_space **ret)
{
    struct systrap *p = w->platform;
    if (atomic_fetch_add(&p->space_count, 1) >= p->max_processes) {
        atomic_fetch_sub(&p->space_count, 1);
        return -EAGAIN;
    }
    struct systrap_space *s = calloc(1, sizeof *s);
    if (s == NULL) {
        atomic_fetch_sub(&p->space_count, 1);
        return -ENOMEM;
    }
    s->base = (struct platform_space){.ops = &systrap_ops, .platform = &p->base};
    atomic_init(&s->base.references, 1);
    s->worker = w;
    s->mailbox_hfd = -1;
    LIST_INIT(&s->threads);
    fmutex_init(&s->gate);
    int r = mailbox_make(s);
    if (r != 0) {
        space_destroy(s);
        return r == -EMFILE || r == -ENFILE ? -EAGAIN : -ENOMEM;
    }
    lock_acquire(&w->lock);
    LIST_INSERT_HEAD(&w->spaces, s, entry);
    lock_release(&w->lock);
    *ret = s;
    return 0;
}

/* A host thread that is about to be ordered, with a slot and a frame. Takes a reference of the space.
 * #syscalls getrandom: nonces of new host threads */
static int thread_make(struct systrap_space *s, const struct systrap_thread *from, bool is_thread,
                       struct systrap_thread **ret)
{
    struct worker *w = s->worker;
    struct systrap_thread *t = calloc(1, sizeof *t);
    if (t == NULL)
        return -ENOMEM;
    long r = host_call3(SYS_getrandom, &t->nonce, sizeof t->nonce, 0);
    if (r != sizeof t->nonce) {
        free(t);
        return -EAGAIN;
    }
    t->nonce = (t->nonce & (NONCE_MAX - 1)) | 1;
    t->base = (struct platform_thread){
        .ops = &systrap_ops, .space = &s->base, .worker = w->index};
    t->space = s;
    t->worker = w;
    t->state = THREAD_STARTING;
    t->is_thread = is_thread;
    lock_acquire(&w->lock);
    int slot = s->killed ? -EAGAIN : slot_take_locked(s);
    if (slot >= 0) {
        t->slot = (unsigned)slot;
        LIST_INSERT_HEAD(&s->threads, t, sibling);
        LIST_INSERT_HEAD(&w->starting, t, starting);
        s->thread_count++;
        platform_space_get(&s->base);
    }
    lock_release(&w->lock);
    if (slot < 0) {
        free(t);
        return slot;
    }
    if (from != NULL) {
        t->base.regs = from->base.regs;
        t->host_fs = from->host_fs;
        t->host_gs = from->host_gs;
    }
    frame_build(t, from);
    *ret = t;
    return 0;
}

/* Takes it out of every table and frees it; not its reference. */
void thread_destroy_locked(struct systrap_thread *t)
{
    struct systrap_space *s = t->space;
    if (t->tid != 0)
        LIST_REMOVE(t, bucket);
    if (t->nonce != 0)
        LIST_REMOVE(t, starting);
    worker_forget_locked(t);
    if (t->is_ready)
        TAILQ_REMOVE(&t->worker->ready, t, ready);
    if (s->fd_holder == t)
        s->fd_holder = NULL;
    LIST_REMOVE(t, sibling);
    slot_put_locked(s, t->slot);
    free(t);
}

/* ---- death --------------------------------------------------------------------------------------- */

/* #syscalls kill: stubs */
void space_kill_locked(struct systrap_space *s)
{
    if (s->killed)
        return;
    s->killed = true;
    if (s->pid != 0)
        (void)host_call2(SYS_kill, s->pid, SIGKILL);
}

void space_kill(struct platform_space *space)
{
    struct systrap_space *s = space_of(space);
    lock_acquire(&s->worker->lock);
    space_kill_locked(s);
    lock_release(&s->worker->lock);
}

/* A pooled space died before anybody wanted it. */
static void pool_remove_locked(struct systrap_thread *t)
{
    struct worker *w = t->worker;
    TAILQ_REMOVE(&w->pool, t->space, pooled);
    w->pool_count--;
    atomic_store(&w->may_refill, true);
    t->space->released = true;
    thread_destroy_locked(t);
}

static void thread_set_dead_locked(struct systrap_thread *t, int end_signal)
{
    if (t->tid != 0) { /* another task may get it at once */
        LIST_REMOVE(t, bucket);
        t->tid = 0;
    }
    switch (t->state) {
    case THREAD_RUNNING:
        if (t->atomic) {
            worker_wake_waiter_locked(t->worker, t);
            return;
        }
        t->event = (struct platform_event){.kind = PLATFORM_EVENT_DEAD, .error = end_signal};
        worker_push_locked(t->worker, t);
        return;
    case THREAD_CALLS:
        worker_wake_waiter_locked(t->worker, t);
        return;
    case THREAD_STARTING:
        t->failed = true;
        if (t->space->is_pooled)
            space_arrived_locked(t->worker, t);
        else
            worker_wake_waiter_locked(t->worker, t);
        return;
    case THREAD_EXITING:
    case THREAD_PARKED:
        thread_destroy_locked(t);
        return;
    case THREAD_STOPPED:
        if (t->space->is_pooled)
            pool_remove_locked(t);
        else
            worker_wake_waiter_locked(t->worker, t); /* who fetches its registers */
        return;
    }
}

void space_set_dead_locked(struct systrap_space *s, int end_signal)
{
    s->killed = s->dead = true;
    s->end_signal = end_signal;
    struct systrap_thread *t, *next;
    LIST_FOREACH_SAFE(t, &s->threads, sibling, next)
        thread_set_dead_locked(t, end_signal);
}

void space_collect_locked(struct systrap_space *s)
{
    if (!s->dead || !s->released || !LIST_EMPTY(&s->threads))
        return;
    LIST_REMOVE(s, entry);
    space_destroy(s);
}

/* The end of a child of ours that no space of this worker has as its pid yet: maybe it died before its
 * first doorbell, and a cloning stub says or will say which pid it was. */
static void note_unknown_locked(struct worker *w, pid_t pid)
{
    w->dead_pids[w->dead_next++ % SYSTRAP_DEAD_RING] = pid;
    struct systrap_thread *t;
    LIST_FOREACH(t, &w->starting, starting)
        if (!t->is_thread && t->claimed == pid)
            break;
    if (t != NULL) {
        struct systrap_space *s = t->space;
        space_set_dead_locked(s, SIGKILL);
        space_collect_locked(s);
    }
}

bool space_died_unseen_locked(const struct worker *w, pid_t pid)
{
    for (size_t i = 0; i < SYSTRAP_DEAD_RING; i++)
        if (w->dead_pids[i] == pid)
            return true;
    return false;
}

static void worker_reaped(struct worker *w, pid_t pid, int end_signal)
{
    lock_acquire(&w->lock);
    struct systrap_space *s;
    LIST_FOREACH(s, &w->spaces, entry)
        if (s->pid == pid)
            break;
    if (s != NULL) {
        s->pid = 0;
        space_set_dead_locked(s, end_signal);
        space_collect_locked(s);
    } else if (pid == w->template_pid) {
        log_err("template of worker %u died by signal %d", w->index, end_signal);
        atomic_store(&w->platform->base.failure, "a template of the stubs was killed");
        w->template_dead = true;
        w->template_pid = 0;
    } else {
        note_unknown_locked(w, pid);
    }
    bool wake = !TAILQ_EMPTY(&w->ready) || w->template_dead;
    bool lost = w->template_dead;
    lock_release(&w->lock);
    if (lost)
        wait_queue_wake_all(&w->pool_waiters, 0);
    if (wake)
        wakeable_wake(&w->wake);
}

/* Looks first and reaps then, so that no pid is another's before the tables have forgotten it.
 * #syscalls waitid: ends of stubs */
void space_reap(struct platform *platform)
{
    struct systrap *p = systrap_of(platform);
    for (;;) {
        siginfo_t info = {0};
        if (host_call5(SYS_waitid, P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL, 0) != 0 ||
            info.si_pid == 0)
            return;
        int end_signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
        for (unsigned i = 0; i < p->worker_count; i++)
            worker_reaped(&p->workers[i], info.si_pid, end_signal);
        (void)host_call5(SYS_waitid, P_PID, info.si_pid, &info, WEXITED | WNOHANG | __WALL, 0);
    }
}

void space_release(struct platform_space *space)
{
    struct systrap_space *s = space_of(space);
    struct worker *w = s->worker;
    lock_acquire(&w->lock);
    space_kill_locked(s);
    s->released = true;
    space_collect_locked(s); /* else when it was reaped */
    lock_release(&w->lock);
}

/* ---- from the template --------------------------------------------------------------------------- */

/* Orders one more space from an idle template. */
static bool refill_one(struct worker *w)
{
    struct systrap_space *s;
    struct systrap_thread *t;
    if (space_make(w, &s) != 0)
        return false;
    s->is_pooled = true;
    if (thread_make(s, NULL, false, &t) != 0) {
        lock_acquire(&w->lock);
        s->killed = s->dead = true;
        lock_release(&w->lock);
        platform_space_put(&s->base);
        return false;
    }
    platform_space_put(&s->base); /* the thread's is left */
    lock_acquire(&w->lock);
    w->pool_coming++;
    w->template_nonce = t->nonce;
    w->template_cloning = true;
    uint64_t id = w->template_id;
    w->template_id = 0;
    lock_release(&w->lock);
    (void)worker_reply(w, id, (int64_t)t->nonce);
    return true;
}

void space_refill(struct worker *w, bool is_idle)
{
    if (!atomic_load_explicit(&w->may_refill, memory_order_acquire))
        return;
    unsigned target = is_idle ? SYSTRAP_POOL_TARGET : 1;
    lock_acquire(&w->lock);
    bool wanted = w->template_id != 0 && w->pool_count + w->pool_coming < target;
    if (w->template_id == 0 || w->pool_count + w->pool_coming >= SYSTRAP_POOL_TARGET)
        atomic_store(&w->may_refill, false); /* until one is taken or the template is idle */
    lock_release(&w->lock);
    if (!wanted || refill_one(w))
        return;
    lock_acquire(&w->lock);
    w->refill_failures++;
    lock_release(&w->lock);
    wait_queue_wake_all(&w->pool_waiters, 0);
}

void space_arrived_locked(struct worker *w, struct systrap_thread *t)
{
    struct systrap_space *s = t->space;
    w->pool_coming--;
    if (t->failed) {
        s->released = true;
        thread_destroy_locked(t);
        w->refill_failures++;
        atomic_store(&w->may_refill, true);
    } else {
        TAILQ_INSERT_TAIL(&w->pool, s, pooled);
        w->pool_count++;
    }
    wait_queue_wake(&w->pool_waiters, 0);
    atomic_store(&w->woke_fiber, true);
}

struct pool_wish {
    struct worker *w;
    struct systrap_space *got;
    unsigned failures; /* refill_failures at the start */
    bool hopeless;
};

static bool pool_take(void *arg)
{
    struct pool_wish *wish = arg;
    struct worker *w = wish->w;
    wish->got = TAILQ_FIRST(&w->pool);
    if (wish->got != NULL) {
        TAILQ_REMOVE(&w->pool, wish->got, pooled);
        w->pool_count--;
        atomic_store(&w->may_refill, true);
        wish->got->is_pooled = false;
        return true;
    }
    wish->hopeless = w->template_dead || w->refill_failures != wish->failures;
    return wish->hopeless;
}

int space_new(struct platform *platform, unsigned worker, struct platform_space **ret,
              struct platform_thread **ret_leader)
{
    struct systrap *p = systrap_of(platform);
    struct worker *w = &p->workers[worker % p->worker_count];
    lock_acquire(&w->lock);
    struct pool_wish wish = {.w = w, .failures = w->refill_failures};
    lock_release(&w->lock);
    struct waiter waiter;
    bool has_fiber = fiber_current() != NULL;
    if (has_fiber) {
        waiter_init(&waiter);
        wait_queue_add(&w->pool_waiters, &waiter);
        wakeable_wake(&w->wake); /* the loop refills */
    } else {
        space_refill(w, true);
    }
    worker_sleep(w, pool_take, &wish);
    if (has_fiber)
        wait_queue_remove(&waiter);
    if (wish.hopeless)
        return -EAGAIN;
    lock_acquire(&w->lock);
    struct systrap_thread *leader = LIST_FIRST(&wish.got->threads);
    lock_release(&w->lock);
    platform_space_get(&wish.got->base); /* the caller's */
    *ret = &wish.got->base;
    *ret_leader = &leader->base;
    return 0;
}

/* ---- fork and clone ------------------------------------------------------------------------------ */

static bool child_is_over(void *arg)
{
    struct systrap_thread *t = arg;
    return t->state == THREAD_STOPPED || t->failed || t->space->dead;
}

/* Runs the one clone in parent->calls and waits for the child's doorbell. */
static int clone_child(struct systrap_thread *parent, struct systrap_thread *child)
{
    struct worker *w = parent->worker;
    lock_acquire(&w->lock);
    child->waiter = fiber_current();
    lock_release(&w->lock);
    int r = thread_run_calls(parent);
    if (r == 0)
        r = (int)parent->done_error;
    if (r != 0)
        return r == -ESRCH ? r : -EAGAIN;
    lock_acquire(&w->lock);
    if (!child->is_thread && child->tid == 0) {
        child->claimed = (pid_t)parent->done_value;
        if (space_died_unseen_locked(w, child->claimed))
            child->failed = true;
    }
    lock_release(&w->lock);
    worker_sleep(w, child_is_over, child);
    lock_acquire(&w->lock);
    child->waiter = NULL;
    bool came = child->state == THREAD_STOPPED && !child->failed;
    lock_release(&w->lock);
    return came ? 0 : -EAGAIN;
}

/* A child that does not come, or of which the stub said so. If it comes after all, nothing knows its
 * nonce, and it is killed. */
static void drop_child(struct systrap_thread *child)
{
    struct worker *w = child->worker;
    struct systrap_space *s = child->space;
    lock_acquire(&w->lock);
    if (!child->is_thread) {
        if (s->pid != 0 && !s->dead)
            space_kill_locked(s);
        else
            s->killed = s->dead = true;
    }
    s->thread_count--;
    thread_destroy_locked(child);
    lock_release(&w->lock);
    platform_space_put(&s->base);
}

static int clone_gated(struct systrap_thread *parent, struct systrap_thread *child)
{
    uint64_t flags = child->is_thread ? CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND |
                                            CLONE_THREAD | CLONE_SYSVSEM
                                      : CLONE_PARENT | SIGCHLD;
    bool has_fiber = fiber_current() != NULL;
    if (has_fiber)
        fmutex_lock(&parent->space->gate);
    /* A thread gets a stack of its own, which it does not use. */
    call_set(&parent->calls[0], SYS_clone, flags, child->is_thread ? child->frame : 0, 0, 0, 0,
             child->nonce);
    parent->call_count = 1;
    int r = clone_child(parent, child);
    if (has_fiber)
        fmutex_unlock(&parent->space->gate);
    return r;
}

int space_fork(struct platform_thread *thread, struct platform_space **ret_space,
               struct platform_thread **ret_child)
{
    struct systrap_thread *parent = container_of(thread, struct systrap_thread, base);
    struct systrap_space *s;
    struct systrap_thread *child;
    int r = thread_flush(thread);
    if (r == 0)
        r = thread_fetch(thread);
    if (r != 0)
        return r;
    r = space_make(parent->worker, &s);
    if (r != 0)
        return r;
    r = thread_make(s, parent, false, &child);
    if (r == 0) {
        r = clone_gated(parent, child);
        if (r != 0)
            drop_child(child);
    } else {
        s->killed = s->dead = true;
    }
    if (r != 0) {
        platform_space_put(&s->base);
        return r;
    }
    *ret_space = &s->base;
    *ret_child = &child->base;
    return 0;
}

int thread_new(struct platform_thread *thread, struct platform_thread **ret)
{
    struct systrap_thread *parent = container_of(thread, struct systrap_thread, base);
    struct systrap_thread *child;
    int r = thread_flush(thread);
    if (r == 0)
        r = thread_fetch(thread);
    if (r != 0)
        return r;
    r = thread_make(parent->space, parent, true, &child);
    if (r != 0)
        return r;
    r = clone_gated(parent, child);
    if (r != 0) {
        drop_child(child);
        return r;
    }
    *ret = &child->base;
    return 0;
}

void thread_free(struct platform_thread *thread)
{
    struct systrap_thread *t = container_of(thread, struct systrap_thread, base);
    struct systrap_space *s = t->space;
    struct worker *w = t->worker;
    lock_acquire(&w->lock);
    ASSERT(t->state == THREAD_STOPPED);
    struct systrap_reply reply = {0};
    s->thread_count--;
    if (s->thread_count == 0)
        space_kill_locked(s); /* nothing that it could do any more is of use */
    if (s->killed) {
        thread_destroy_locked(t);
    } else if (t->tid == s->pid) {
        t->state = THREAD_PARKED;
        if (t->is_parked) { /* it stays where it is */
            t->pending = 0;
        } else {
            worker_set_park_word(t, 0);
            reply = worker_unhold_locked(t, STUB_REPLY_PARK);
        }
    } else {
        t->state = THREAD_EXITING;
        reply = worker_unhold_locked(t, STUB_REPLY_EXIT);
    }
    lock_release(&w->lock);
    worker_send(w, reply);
    platform_space_put(&s->base);
}

pid_t space_host_pid(const struct platform_space *space)
{
    return ((const struct systrap_space *)space)->pid; /* its first member */
}

void space_free_all(struct worker *w)
{
    lock_acquire(&w->lock);
    while (!LIST_EMPTY(&w->spaces)) {
        struct systrap_space *s = LIST_FIRST(&w->spaces);
        while (!LIST_EMPTY(&s->threads))
            thread_destroy_locked(LIST_FIRST(&s->threads));
        LIST_REMOVE(s, entry);
        space_destroy(s);
    }
    lock_release(&w->lock);
}
