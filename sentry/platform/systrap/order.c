/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a stopped thread is told to do: orders, resume, kick. Runs on any host thread, for the fiber that
 * owns the thread. An order becomes one host call (two with the close of a descriptor), which notify.c
 * lets through when the kernel reports exactly that call.
 */
#include "sentry/platform/systrap/systrap.h"

#include "base/host.h"
#include "base/log.h"
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define FETCH_PATIENCE_NS 10000000000ULL

static struct systrap_thread *systrap_thread_of(struct platform_thread *thread)
{
    return container_of(thread, struct systrap_thread, base);
}

/* ---- lists of calls ------------------------------------------------------------------------------ */

void call_set(struct systrap_call *c, uint64_t nr, uint64_t a0, uint64_t a1, uint64_t a2,
              uint64_t a3, uint64_t a4, uint64_t a5)
{
    *c = (struct systrap_call){.nr = nr, .args = {a0, a1, a2, a3, a4, a5}, .hfd = -1};
}

static void set_unmap(struct systrap_call *c, uint64_t addr, uint64_t size)
{
    call_set(c, SYS_munmap, addr, size, 0, 0, 0, 0);
}

static void set_order(struct systrap_call *c, const struct platform_order *o)
{
    uint64_t addr = o->addr.va;
    switch (o->kind) {
    case PLATFORM_ORDER_MAP_ANON:
        call_set(c, SYS_mmap, addr, o->size, (uint64_t)o->prot,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | (uint64_t)(o->flags & (MAP_NORESERVE | MAP_STACK)),
                 UINT64_MAX, 0);
        break;
    case PLATFORM_ORDER_MAP_FILE:
        call_set(c, SYS_mmap, addr, o->size, (uint64_t)o->prot, (uint64_t)o->flags | MAP_FIXED, 0,
                 o->offset);
        c->hfd = o->hfd;
        break;
    case PLATFORM_ORDER_UNMAP:
        set_unmap(c, addr, o->size);
        break;
    case PLATFORM_ORDER_PROTECT:
        call_set(c, SYS_mprotect, addr, o->size, (uint64_t)o->prot, 0, 0, 0);
        break;
    case PLATFORM_ORDER_REMAP:
        call_set(c, SYS_mremap, addr, o->size, o->new_size, (uint64_t)o->flags, o->new_addr.va, 0);
        break;
    case PLATFORM_ORDER_ADVISE:
        call_set(c, SYS_madvise, addr, o->size, (uint64_t)o->advice, 0, 0, 0);
        break;
    case PLATFORM_ORDER_MINCORE:
        call_set(c, SYS_mincore, addr, o->size, o->new_addr.va, 0, 0, 0);
        break;
    case PLATFORM_ORDER_UNMAP_ALL:
        set_unmap(c, 0, STUB_BASE);
        break;
    case PLATFORM_ORDER_COUNT:
        break;
    }
}

/* Fills t->calls from `orders`; returns how many orders fitted. Mappings of one file in a row share one
 * passing of its descriptor, which a close ends. */
static size_t build_calls(struct systrap_thread *t, const struct platform_order *orders,
                          size_t count)
{
    size_t taken = 0;
    unsigned n = 0;
    while (taken < count && n + 2 <= SYSTRAP_CALLS_MAX) {
        const struct platform_order *o = &orders[taken];
        set_order(&t->calls[n], o);
        t->calls[n++].order = (uint16_t)taken;
        taken++;
        if (o->kind != PLATFORM_ORDER_MAP_FILE)
            continue;
        bool more = taken < count && orders[taken].kind == PLATFORM_ORDER_MAP_FILE &&
                    orders[taken].hfd == o->hfd && n + 2 <= SYSTRAP_CALLS_MAX;
        if (more)
            continue;
        call_set(&t->calls[n], SYS_close, 0, 0, 0, 0, 0, 0);
        t->calls[n].always = true;
        t->calls[n++].order = (uint16_t)taken;
    }
    t->call_count = n;
    return taken;
}

/* Tells the stub: the list behind the slot's header, and what to do after it. */
static void publish_calls(struct systrap_thread *t, uint64_t mode)
{
    unsigned char *list = frame_slot(t) + STUB_HDR_CALLS;
    for (unsigned i = 0; i < t->call_count; i++) {
        const struct systrap_call *c = &t->calls[i];
        struct stub_call call = {.nr = c->nr, .flags = c->always ? STUB_CALL_ALWAYS : 0};
        memcpy(call.args, c->args, sizeof call.args);
        memcpy(list + (size_t)i * STUB_CALL_SIZE, &call, sizeof call);
    }
    struct stub_call end = {.nr = (uint64_t)STUB_CALL_END, .args = {mode}};
    memcpy(list + (size_t)t->call_count * STUB_CALL_SIZE, &end, sizeof end);
    t->call_next = 0;
    t->calls_failed = false;
    t->calls_resume = mode == STUB_MODE_RESUME;
}
static_assert(SYSTRAP_CALLS_MAX <= STUB_CALLS_MAX, "the list fits into the header page");

static bool registers_are_there(void *arg)
{
    struct systrap_thread *t = arg;
    return !t->is_fetching || t->space->dead;
}

int thread_fetch(struct platform_thread *thread)
{
    struct systrap_thread *t = systrap_thread_of(thread);
    struct worker *w = t->worker;
    lock_acquire(&w->lock);
    bool dead = t->space->killed;
    if (t->is_light && !dead)
        worker_fetch_locked(t);
    bool wait = t->is_fetching && !dead;
    t->waiter = wait ? fiber_current() : NULL;
    lock_release(&w->lock);
    if (!wait)
        return dead ? -ESRCH : 0;
    bool came = worker_sleep_until(w, registers_are_there, t, host_monotonic_ns() + FETCH_PATIENCE_NS);
    lock_acquire(&w->lock);
    t->waiter = NULL;
    if (!came) /* a guest that made itself deaf to signals by a forged frame */
        notify_violation_locked(t->space, "a thread that does not come when it is kicked");
    dead = t->space->killed;
    lock_release(&w->lock);
    return dead ? -ESRCH : 0;
}

static bool calls_are_over(void *arg)
{
    struct systrap_thread *t = arg;
    return t->state != THREAD_CALLS || t->space->dead;
}

int thread_run_calls(struct systrap_thread *t)
{
    struct worker *w = t->worker;
    int r = thread_fetch(&t->base);
    if (r != 0)
        return r;
    lock_acquire(&w->lock);
    ASSERT(t->state == THREAD_STOPPED);
    if (t->space->killed) {
        lock_release(&w->lock);
        return -ESRCH;
    }
    publish_calls(t, STUB_MODE_STOP);
    t->waiter = fiber_current();
    t->state = THREAD_CALLS;
    struct systrap_reply reply = worker_unhold_locked(t, STUB_REPLY_CALLS);
    lock_release(&w->lock);
    worker_send(w, reply);
    worker_sleep(w, calls_are_over, t);

    lock_acquire(&w->lock);
    bool over = t->state == THREAD_STOPPED;
    t->waiter = NULL;
    t->state = THREAD_STOPPED; /* of a dead process: its owner may still free it */
    t->call_count = t->call_next = 0;
    lock_release(&w->lock);
    return over ? 0 : -ESRCH;
}

/* ---- execute ------------------------------------------------------------------------------------- */

static bool passes_descriptor(const struct platform_order *orders, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (orders[i].kind == PLATFORM_ORDER_MAP_FILE)
            return true;
    return false;
}

static int execute_gated(struct systrap_thread *t, const struct platform_order *orders,
                         size_t count, size_t *ret_done)
{
    size_t done = 0;
    while (done < count) {
        size_t taken = build_calls(t, orders + done, count - done);
        int r = thread_run_calls(t);
        if (r != 0) {
            *ret_done = done;
            return r;
        }
        if (t->done_error != 0) {
            /* The claim is below the number of calls seen, so the index is good. */
            *ret_done = done + t->calls[t->done_count].order;
            return (int)t->done_error;
        }
        done += taken;
    }
    *ret_done = done;
    return 0;
}

static bool has_queued(const struct systrap_thread *t)
{
    return t->queued_count != 0;
}

/* Orders wait in `queued` for a resume; an execute before it runs them first. */
static int flush_queued(struct systrap_thread *t)
{
    unsigned n = t->queued_count;
    t->queued_count = 0;
    memcpy(t->calls, t->queued, n * sizeof t->calls[0]);
    t->call_count = n;
    int r = thread_run_calls(t);
    return r != 0 ? r : (int)t->done_error;
}

int thread_flush(struct platform_thread *thread)
{
    struct systrap_thread *t = systrap_thread_of(thread);
    return has_queued(t) ? flush_queued(t) : 0;
}

int thread_execute(struct platform_thread *thread, const struct platform_order *orders,
                   size_t count, size_t *ret_done)
{
    struct systrap_thread *t = systrap_thread_of(thread);
    *ret_done = 0;
    int r = thread_flush(thread);
    if (r != 0)
        return r;
    if (!passes_descriptor(orders, count))
        return execute_gated(t, orders, count, ret_done);
    bool has_fiber = fiber_current() != NULL; /* without fibers nobody else is there */
    if (has_fiber)
        fmutex_lock(&t->space->gate);
    r = execute_gated(t, orders, count, ret_done);
    if (has_fiber)
        fmutex_unlock(&t->space->gate);
    return r;
}

int thread_queue(struct platform_thread *thread, const struct platform_order *order)
{
    struct systrap_thread *t = systrap_thread_of(thread);
    /* A descriptor needs the space's gate, which a resume can't wait for. */
    if (t->queued_count == PLATFORM_QUEUE_MAX || order->kind == PLATFORM_ORDER_MAP_FILE)
        return -ENOSPC;
    set_order(&t->queued[t->queued_count++], order);
    return 0;
}

/* ---- resume and kick ----------------------------------------------------------------------------- */

/* An event without the stub: the thread is handed out again by its worker. */
static void push_event_locked(struct systrap_thread *t, struct platform_event event)
{
    t->event = event;
    worker_push_locked(t->worker, t);
}

int64_t thread_resume_value_locked(struct systrap_thread *t)
{
    if (unlikely(has_queued(t))) {
        memcpy(t->calls, t->queued, t->queued_count * sizeof t->calls[0]);
        t->call_count = t->queued_count;
        t->queued_count = 0;
        publish_calls(t, STUB_MODE_RESUME);
        (void)frame_store(t, true);
        return STUB_REPLY_CALLS;
    }
    return frame_store(t, false) ? STUB_REPLY_RESUME_BASES : STUB_REPLY_RESUME;
}

static bool only_rax_changed(const struct systrap_thread *t)
{
    const size_t rax = offsetof(struct guest_regs, rax);
    const size_t after = rax + sizeof t->seen.rax;
    const char *now = (const char *)&t->base.regs;
    const char *seen = (const char *)&t->seen;
    return memcmp(now, seen, rax) == 0 &&
           memcmp(now + after, seen + after, sizeof t->seen - after) == 0;
}

/* hot */
void thread_resume(struct platform_thread *thread)
{
    struct systrap_thread *t = systrap_thread_of(thread);
    struct worker *w = t->worker;
    lock_acquire(&w->lock);
    ASSERT(t->state == THREAD_STOPPED);
    t->state = THREAD_RUNNING;
    if (t->space->dead || t->kicked) {
        if (t->space->dead) {
            push_event_locked(t, (struct platform_event){.kind = PLATFORM_EVENT_DEAD,
                                                         .error = t->space->end_signal});
        } else {
            t->kicked = false;
            push_event_locked(t, (struct platform_event){.kind = PLATFORM_EVENT_KICK});
        }
        lock_release(&w->lock);
        wakeable_wake(&w->wake);
        return;
    }
    struct systrap_reply reply;
    if (t->is_light && !has_queued(t) && only_rax_changed(t)) {
        t->is_light = false;
        reply = worker_unhold_locked(t, (int64_t)t->base.regs.rax);
    } else if (t->is_light || t->is_fetching) {
        reply = worker_unhold_locked(t, STUB_REPLY_RESUME); /* once its registers have come */
    } else {
        reply = worker_unhold_locked(t, thread_resume_value_locked(t));
    }
    lock_release(&w->lock);
    /* From here on `t` may have its next event, and be freed. */
    worker_send(w, reply);
}

/* Signals are blocked in all stub code, so the signal reaches guest code only, and interrupts no call
 * of an order.
 * #syscalls tgkill: kicks of guest threads, and whether a host thread belongs to a process */
void thread_kick(struct platform_thread *thread)
{
    struct systrap_thread *t = systrap_thread_of(thread);
    struct worker *w = t->worker;
    lock_acquire(&w->lock);
    if (!t->kicked) {
        t->kicked = true;
        if (t->state == THREAD_RUNNING && !t->is_ready && !t->space->dead)
            (void)host_call3(SYS_tgkill, t->space->pid, t->tid, STUB_KICK_SIGNAL);
    }
    lock_release(&w->lock);
}

/* ---- cmpxchg ------------------------------------------------------------------------------------- */

/* One try: the thread runs the stub's two instructions as if they were guest code, ends in SIGILL at
 * the second or faults at the first. 1 = done, 0 = something else came between, -EFAULT, -ESRCH. */
static bool atomic_is_over(void *arg)
{
    struct systrap_thread *t = arg;
    return t->atomic_done || t->space->dead;
}

static int try_cmpxchg(struct systrap_thread *t, guest_addr addr, uint32_t expected,
                       uint32_t desired, uint32_t *ret_old)
{
    struct worker *w = t->worker;
    const uint64_t *table = w->platform->table;
    t->base.regs = (struct guest_regs){
        .rdi = addr.va,
        .rax = expected,
        .rsi = desired,
        .rip = table[STUB_TABLE_CMPXCHG],
        .eflags = 0x202,
        .csgsfs = 0x33ULL | 0x2bULL << 48,
        .fs_base = t->host_fs,
        .gs_base = t->host_gs,
    };
    lock_acquire(&w->lock);
    if (t->space->killed) {
        lock_release(&w->lock);
        return -ESRCH;
    }
    (void)frame_store(t, false);
    t->waiter = fiber_current();
    t->atomic = true;
    t->atomic_done = false;
    t->state = THREAD_RUNNING;
    struct systrap_reply reply = worker_unhold_locked(t, STUB_REPLY_RESUME);
    lock_release(&w->lock);
    worker_send(w, reply);
    worker_sleep(w, atomic_is_over, t);

    lock_acquire(&w->lock);
    bool done = t->atomic_done;
    t->atomic = t->atomic_done = false;
    t->waiter = NULL;
    t->state = THREAD_STOPPED;
    lock_release(&w->lock);
    if (!done)
        return -ESRCH;
    /* Claims, as all of the frame is: a false one misleads only this guest's futexes. */
    if (t->event.kind == PLATFORM_EVENT_FAULT && t->event.signo == SIGILL &&
        t->base.regs.rip == table[STUB_TABLE_CMPXCHG_END]) {
        *ret_old = (uint32_t)t->base.regs.rax;
        return 1;
    }
    if (t->event.kind == PLATFORM_EVENT_FAULT)
        return -EFAULT;
    if (t->event.kind == PLATFORM_EVENT_KICK)
        t->kicked = true; /* its owner will see it at the next resume */
    return 0;
}

int thread_cmpxchg32(struct platform_thread *thread, guest_addr addr, uint32_t expected,
                     uint32_t desired, uint32_t *ret_old)
{
    struct systrap_thread *t = systrap_thread_of(thread);
    int r = thread_fetch(thread);
    if (r != 0)
        return r;
    struct guest_regs saved = t->base.regs;
    do {
        r = try_cmpxchg(t, addr, expected, desired, ret_old);
    } while (r == 0);
    t->base.regs = saved;
    return r == 1 ? 0 : r;
}
