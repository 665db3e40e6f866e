/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Futexes. Theory of operation: a waiter queues itself first and reads the word afterwards. A waker
 * changes the word before it calls us, so either the waiter sees the new value, or the waker finds the
 * waiter in the queue; a waiter found there by a wake that came before its read returns 0, which is a
 * wake-up like any other. So the bucket's short lock is never held across a read of guest memory.
 *
 * Runs on the calling task's fiber. Lock order: two buckets by address → fibers.
 */
#include "sentry/task/futex.h"
#include "sentry/task/table.h"
#include <errno.h>
#include <linux/futex.h>

#define BUCKETS 1024

struct futex_key {
    uint64_t space, offset;
};

struct futex_waiter {
    TAILQ_ENTRY(futex_waiter) entry;
    struct futex_key key;
    struct fiber *fiber;
    uint32_t bitset;
    struct futex_bucket *_Atomic bucket; /* where it is queued; NULL = woken. That bucket's lock */
};

struct futex_bucket {
    struct lock lock;
    TAILQ_HEAD(, futex_waiter) waiters;
} CACHE_ALIGNED;

static struct futex_bucket g_buckets[BUCKETS];

__attribute__((constructor)) static void init_buckets(void)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        lock_init(&g_buckets[i].lock);
        TAILQ_INIT(&g_buckets[i].waiters);
    }
}

static struct futex_bucket *bucket_of(const struct futex_key *key)
{
    uint64_t h = (key->space ^ (key->offset >> 2)) * 0x9e3779b97f4a7c15u;
    return &g_buckets[h >> 54];
}

static bool same_key(const struct futex_key *a, const struct futex_key *b)
{
    return a->space == b->space && a->offset == b->offset;
}

static int get_key(struct task *t, guest_addr addr, bool is_private, struct futex_key *ret)
{
    if (addr.va & 3)
        return -EINVAL;
    return mm_futex_key(t->mm, addr, is_private, &ret->space, &ret->offset);
}

/* Bucket's lock held. */
static void wake_one_locked(struct futex_bucket *b, struct futex_waiter *w)
{
    TAILQ_REMOVE(&b->waiters, w, entry);
    struct fiber *fiber = w->fiber;
    atomic_store(&w->bucket, NULL); /* from here on w may be gone */
    fiber_wake(fiber);
}

/* Leaves the queue it is in, which requeueing may have changed: true if it was still queued. */
static bool leave_queue(struct futex_waiter *w)
{
    for (;;) {
        struct futex_bucket *b = atomic_load(&w->bucket);
        if (b == NULL)
            return false;
        lock_acquire(&b->lock);
        bool is_here = atomic_load(&w->bucket) == b;
        if (is_here) {
            TAILQ_REMOVE(&b->waiters, w, entry);
            atomic_store(&w->bucket, NULL);
        }
        lock_release(&b->lock);
        if (is_here)
            return true;
    }
}

int futex_wait(struct task *t, guest_addr addr, bool is_private, uint32_t expected, uint32_t bitset,
               uint64_t deadline_ns)
{
    struct futex_waiter w = {.fiber = &t->fiber, .bitset = bitset};
    if (bitset == 0)
        return -EINVAL;
    int r = get_key(t, addr, is_private, &w.key);
    if (r != 0)
        return r;
    struct futex_bucket *b = bucket_of(&w.key);
    lock_acquire(&b->lock);
    atomic_store(&w.bucket, b);
    TAILQ_INSERT_TAIL(&b->waiters, &w, entry);
    lock_release(&b->lock);

    uint32_t value;
    r = copy_in_obj(t->mm, &value, addr);
    if (r == 0 && value != expected)
        r = -EAGAIN;
    if (r != 0)
        return leave_queue(&w) ? r : 0;
    t->state = 'S';
    while (atomic_load(&w.bucket) != NULL) {
        r = fiber_park(FIBER_INTERRUPTIBLE, deadline_ns);
        if (r != 0)
            break;
    }
    t->state = 'R';
    return leave_queue(&w) ? r : 0;
}

int64_t futex_wake(struct task *t, guest_addr addr, bool is_private, uint32_t count, uint32_t bitset)
{
    struct futex_key key;
    if (bitset == 0)
        return -EINVAL;
    int r = get_key(t, addr, is_private, &key);
    if (r != 0)
        return r;
    struct futex_bucket *b = bucket_of(&key);
    struct futex_waiter *w, *next;
    uint32_t woken = 0;
    lock_acquire(&b->lock);
    TAILQ_FOREACH_SAFE(w, &b->waiters, entry, next)
    {
        if (woken >= count)
            break;
        if (same_key(&w->key, &key) && (w->bitset & bitset)) {
            wake_one_locked(b, w);
            woken++;
        }
    }
    lock_release(&b->lock);
    return woken;
}

static void lock_pair(struct futex_bucket *a, struct futex_bucket *b) NO_LOCK_ANALYSIS
{
    struct futex_bucket *first = a < b ? a : b, *second = a < b ? b : a;
    lock_acquire(&first->lock);
    if (second != first)
        lock_acquire(&second->lock);
}

static void unlock_pair(struct futex_bucket *a, struct futex_bucket *b) NO_LOCK_ANALYSIS
{
    lock_release(&a->lock);
    if (b != a)
        lock_release(&b->lock);
}

int64_t futex_requeue(struct task *t, guest_addr from, guest_addr to, bool is_private, uint32_t wake,
                      uint32_t requeue, bool compare, uint32_t expected)
{
    struct futex_key key, key2;
    int r = get_key(t, from, is_private, &key);
    if (r == 0)
        r = get_key(t, to, is_private, &key2);
    if (r == 0 && compare) {
        uint32_t value;
        r = copy_in_obj(t->mm, &value, from);
        if (r == 0 && value != expected)
            r = -EAGAIN;
    }
    if (r != 0)
        return r;
    struct futex_bucket *b = bucket_of(&key), *b2 = bucket_of(&key2);
    struct futex_waiter *w, *next;
    uint32_t woken = 0, moved = 0;
    lock_pair(b, b2);
    TAILQ_FOREACH_SAFE(w, &b->waiters, entry, next)
    {
        if (!same_key(&w->key, &key))
            continue;
        if (woken < wake) {
            wake_one_locked(b, w);
            woken++;
        } else if (moved < requeue) {
            if (!same_key(&key, &key2)) {
                TAILQ_REMOVE(&b->waiters, w, entry);
                w->key = key2;
                TAILQ_INSERT_TAIL(&b2->waiters, w, entry);
                atomic_store(&w->bucket, b2);
            }
            moved++;
        } else {
            break;
        }
    }
    unlock_pair(b, b2);
    return (int64_t)woken + moved;
}

static bool apply_op(uint32_t op, uint32_t old, uint32_t arg, uint32_t *ret)
{
    switch (op) {
    case FUTEX_OP_SET:
        *ret = arg;
        return true;
    case FUTEX_OP_ADD:
        *ret = old + arg;
        return true;
    case FUTEX_OP_OR:
        *ret = old | arg;
        return true;
    case FUTEX_OP_ANDN:
        *ret = old & ~arg;
        return true;
    case FUTEX_OP_XOR:
        *ret = old ^ arg;
        return true;
    default:
        return false;
    }
}

static int compare_op(uint32_t op, int32_t old, int32_t arg)
{
    switch (op) {
    case FUTEX_OP_CMP_EQ:
        return old == arg;
    case FUTEX_OP_CMP_NE:
        return old != arg;
    case FUTEX_OP_CMP_LT:
        return old < arg;
    case FUTEX_OP_CMP_LE:
        return old <= arg;
    case FUTEX_OP_CMP_GT:
        return old > arg;
    case FUTEX_OP_CMP_GE:
        return old >= arg;
    default:
        return -ENOSYS;
    }
}

int64_t futex_wake_op(struct task *t, guest_addr addr, guest_addr addr2, bool is_private, uint32_t wake,
                      uint32_t wake2, uint32_t encoded)
{
    uint32_t op = (encoded >> 28) & 7, cmp = (encoded >> 24) & 15;
    int32_t op_arg = (int32_t)(encoded << 8) >> 20, cmp_arg = (int32_t)(encoded << 20) >> 20;
    struct futex_key unused;
    if ((encoded >> 28) & FUTEX_OP_OPARG_SHIFT)
        op_arg = (int32_t)(1u << (op_arg & 31));
    int r = get_key(t, addr2, is_private, &unused);
    if (r != 0)
        return r;
    uint32_t old, desired, seen;
    r = copy_in_obj(t->mm, &old, addr2);
    while (r == 0) {
        if (!apply_op(op, old, (uint32_t)op_arg, &desired))
            return -ENOSYS;
        r = platform_cmpxchg32(t->pt, addr2, old, desired, &seen);
        if (r == 0 && seen == old)
            break;
        old = seen;
    }
    if (r != 0)
        return r;
    int hit = compare_op(cmp, (int32_t)old, cmp_arg);
    if (hit < 0)
        return hit;
    int64_t woken = futex_wake(t, addr, is_private, wake, UINT32_MAX);
    if (woken < 0 || !hit)
        return woken;
    int64_t more = futex_wake(t, addr2, is_private, wake2, UINT32_MAX);
    return more < 0 ? more : woken + more;
}

/* ---- a task's end: clear_child_tid and the robust list ------------------------------------------- */

struct linux_robust_list_head {
    uint64_t next;
    int64_t futex_offset;
    uint64_t pending;
};
#define ROBUST_LIST_LIMIT 2048

/* The dead owner's lock: marks it and wakes one waiter (set_robust_list(2)). */
static void robust_release(struct task *t, guest_addr futex, bool is_pending)
{
    uint32_t value, seen;
    if ((futex.va & 3) || copy_in_obj(t->mm, &value, futex) != 0)
        return;
    if (is_pending && value == 0) {
        (void)futex_wake(t, futex, false, 1, UINT32_MAX);
        return;
    }
    for (;;) {
        if ((value & FUTEX_TID_MASK) != (uint32_t)t->tid)
            return;
        uint32_t dead = (value & FUTEX_WAITERS) | FUTEX_OWNER_DIED;
        if (platform_cmpxchg32(t->pt, futex, value, dead, &seen) != 0)
            return;
        if (seen == value)
            break;
        value = seen;
    }
    if (value & FUTEX_WAITERS)
        (void)futex_wake(t, futex, false, 1, UINT32_MAX);
}

static void walk_robust_list(struct task *t)
{
    struct linux_robust_list_head head;
    if (copy_in_obj(t->mm, &head, t->robust_list) != 0)
        return;
    uint64_t entry = head.next;
    for (int i = 0; i < ROBUST_LIST_LIMIT && (entry & ~1UL) != t->robust_list.va; i++) {
        uint64_t next, at = entry & ~1UL;
        bool failed = copy_in_obj(t->mm, &next, GUEST_ADDR(at)) != 0;
        if (at != (head.pending & ~1UL) && !(entry & 1)) /* bit 0: a PI futex */
            robust_release(t, GUEST_ADDR(at + (uint64_t)head.futex_offset), false);
        if (failed)
            return;
        entry = next;
    }
    if (head.pending != 0 && !(head.pending & 1))
        robust_release(t, GUEST_ADDR(head.pending + (uint64_t)head.futex_offset), true);
}

void futex_exit(struct task *t)
{
    if (!guest_addr_is_null(t->robust_list))
        walk_robust_list(t);
    t->robust_list = GUEST_NULL;
    if (guest_addr_is_null(t->clear_child_tid))
        return;
    int32_t zero = 0;
    guest_addr addr = t->clear_child_tid;
    t->clear_child_tid = GUEST_NULL;
    if (copy_out_obj(t->mm, addr, &zero) == 0)
        (void)futex_wake(t, addr, false, 1, UINT32_MAX);
}
