/* SPDX-License-Identifier: Apache-2.0 */
/*
 * madvise(2), msync(2), mincore(2), mlock(2) and kin. Runs on the calling task's fiber; every
 * argument is the guest's. Locked memory is only accounted: the host never locks a guest's pages.
 */
#include "sentry/mm/mm_private.h"

#include <errno.h>
#include <sys/mman.h>

#ifndef MADV_COLD
#define MADV_COLD    20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_SOFT_OFFLINE
#define MADV_SOFT_OFFLINE 101
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif
#ifndef MCL_ONFAULT
#define MCL_ONFAULT 4
#endif

/* ---- madvise ------------------------------------------------------------------------------------
 */

enum advice_class {
    ADVICE_UNKNOWN,
    ADVICE_PRETEND, /* nothing to do */
    ADVICE_TREE,    /* a mark in the tree alone */
    ADVICE_BOTH,    /* a mark in the tree, and the host's fork heeds it */
    ADVICE_HOST,    /* the host's business */
};

static enum advice_class classify(int advice)
{
    switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_DONTNEED:
    case MADV_REMOVE:
    case MADV_FREE:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_POPULATE_READ:
    case MADV_POPULATE_WRITE:
    case MADV_COLLAPSE:
        return ADVICE_HOST;
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK:
        return ADVICE_BOTH;
    case MADV_DONTDUMP:
    case MADV_DODUMP:
        return ADVICE_TREE;
    case MADV_MERGEABLE:
    case MADV_UNMERGEABLE:
        return ADVICE_PRETEND;
    default:
        return ADVICE_UNKNOWN;
    }
}

/* Whether Linux would take this advice for `v`. */
static int check_vma(const struct vma *v, int advice)
{
    bool is_private = (v->flags & MAP_TYPE) == MAP_PRIVATE;
    switch (advice) {
    case MADV_DONTNEED:
    case MADV_COLD:
    case MADV_PAGEOUT:
        return v->is_locked || v->is_special ? -EINVAL : 0;
    case MADV_FREE:
        return v->is_locked || v->is_special || v->object != NULL ? -EINVAL : 0;
    case MADV_REMOVE:
        if (v->is_locked || v->object == NULL)
            return -EINVAL;
        return is_private || !v->is_shared_write ? -EACCES : 0;
    case MADV_WIPEONFORK:
        return v->object != NULL || !is_private ? -EINVAL : 0;
    case MADV_DOFORK:
    case MADV_DODUMP:
        return v->is_special ? -EINVAL : 0;
    default:
        return 0;
    }
}

static void mark(struct vma *v, const void *arg)
{
    switch (*(const int *)arg) {
    case MADV_DONTFORK:
        v->dont_fork = true;
        break;
    case MADV_DOFORK:
        v->dont_fork = false;
        break;
    case MADV_WIPEONFORK:
        v->wipe_on_fork = true;
        break;
    case MADV_KEEPONFORK:
        v->wipe_on_fork = false;
        break;
    case MADV_DONTDUMP:
        v->dont_dump = true;
        break;
    case MADV_DODUMP:
        v->dont_dump = false;
        break;
    default:
        break;
    }
}

/* How far the advice applies: up to `*end`, cut at the first refusal, which is returned. */
static int check_range(const struct mm *mm, uint64_t start, uint64_t *end, int advice)
{
    for (const struct vma *v = tree_find(mm, start); v != NULL && v->start < *end;
         v = tree_next(v)) {
        int r = check_vma(v, advice);
        if (r < 0) {
            *end = v->start > start ? v->start : start;
            return r;
        }
    }
    return 0;
}

static int advise_locked(struct mm *mm, struct platform_thread *pt, uint64_t start, uint64_t end,
                         int advice)
{
    enum advice_class class = classify(advice);
    bool has_hole = !tree_is_covered(mm, start, end);
    if (class == ADVICE_PRETEND)
        return has_hole ? -ENOMEM : 0;
    int refused = check_range(mm, start, &end, advice), r = 0;
    if (end <= start || tree_is_free(mm, start, end))
        return refused < 0 ? refused : -ENOMEM;
    if (class != ADVICE_HOST && !mm_count_allows(mm, 2))
        return -EAGAIN;
    const struct platform_order order = {.kind = PLATFORM_ORDER_ADVISE,
                                         .addr = GUEST_ADDR(start),
                                         .size = end - start,
                                         .advice = advice};
    const struct mm_undo undo = {.kind = UNDO_NOTHING};
    bool is_plain = !has_hole && refused == 0;
    if (class == ADVICE_HOST && is_plain && advice != MADV_POPULATE_READ &&
        advice != MADV_POPULATE_WRITE)
        r = mm_order(mm, pt, &order, &undo);
    else if (class != ADVICE_TREE)
        r = mm_execute(mm, pt, &order, 1,
                       NULL); /* holes: the host goes around them, then says ENOMEM */
    if (class != ADVICE_HOST && (r == 0 || r == -ENOMEM)) {
        mm_tree_begin(mm);
        tree_change(mm, start, end, mark, &advice);
        mm_tree_end(mm);
    }
    if (r < 0 && r != -ENOMEM)
        return r;
    return refused < 0 ? refused : has_hole ? -ENOMEM : r;
}

int mm_madvise(struct mm *mm, struct platform_thread *pt, guest_addr addr, uint64_t size,
               int advice)
{
    if (advice == MADV_HWPOISON || advice == MADV_SOFT_OFFLINE)
        return -EPERM;
    if (classify(advice) == ADVICE_UNKNOWN || (addr.va & ~PAGE_MASK) != 0)
        return -EINVAL;
    uint64_t start = addr.va, end;
    if (PAGE_UP(size) < size || __builtin_add_overflow(start, PAGE_UP(size), &end))
        return -EINVAL;
    if (size == 0)
        return 0;
    if (start < mm->info->min_addr.va || end > mm->info->max_addr.va)
        return -ENOMEM;
    int r = mm_begin(mm);
    if (r < 0)
        return r;
    r = advise_locked(mm, pt, start, end, advice);
    mm_end(mm);
    return r;
}

/* ---- msync --------------------------------------------------------------------------------------
 */

static int sync_vma(const struct vma *v, uint64_t start, uint64_t end, int flags)
{
    if ((flags & MS_INVALIDATE) != 0 && v->is_locked)
        return -EBUSY;
    if ((flags & MS_SYNC) == 0 || v->object == NULL || v->object->ops->sync == NULL ||
        (v->flags & MAP_TYPE) == MAP_PRIVATE)
        return 0;
    start = start > v->start ? start : v->start;
    end = end < v->end ? end : v->end;
    return v->object->ops->sync(v->object, v->offset + (start - v->start), end - start);
}

int mm_msync(struct mm *mm, guest_addr addr, uint64_t size, int flags)
{
    if ((flags & ~(MS_ASYNC | MS_INVALIDATE | MS_SYNC)) != 0 || (addr.va & ~PAGE_MASK) != 0 ||
        (flags & (MS_ASYNC | MS_SYNC)) == (MS_ASYNC | MS_SYNC))
        return -EINVAL;
    uint64_t start = addr.va, end;
    if (PAGE_UP(size) < size || __builtin_add_overflow(start, PAGE_UP(size), &end))
        return -ENOMEM;
    bool has_hole = false;
    while (start < end) {
        struct vma v;
        if (!mm_next_vma(mm, start, &v))
            return -ENOMEM;
        int r = 0;
        if (v.start > start)
            has_hole = true;
        if (v.start < end)
            r = sync_vma(&v, start, end, flags);
        if (v.object != NULL)
            v.object->ops->put(v.object);
        if (r < 0)
            return r;
        start = v.end;
    }
    return has_hole ? -ENOMEM : 0;
}

/* ---- mincore ------------------------------------------------------------------------------------
 */

/* Only the host knows, and its kernel writes the answer where the guest wants it. */
int mm_mincore(struct mm *mm, struct platform_thread *pt, guest_addr addr, uint64_t size,
               guest_addr vec)
{
    if ((addr.va & ~PAGE_MASK) != 0)
        return -EINVAL;
    uint64_t end, vec_end;
    if (PAGE_UP(size) < size || __builtin_add_overflow(addr.va, PAGE_UP(size), &end) ||
        end > MM_TASK_SIZE)
        return -ENOMEM;
    if (size == 0)
        return 0;
    if (__builtin_add_overflow(vec.va, PAGE_UP(size) / PAGE_SIZE, &vec_end) ||
        vec.va < mm->info->min_addr.va || vec_end > mm->info->max_addr.va)
        return -EFAULT;
    if (addr.va < mm->info->min_addr.va || end > mm->info->max_addr.va)
        return -ENOMEM;
    const struct platform_order order = {.kind = PLATFORM_ORDER_MINCORE,
                                         .addr = addr,
                                         .size = PAGE_UP(size),
                                         .new_addr = vec,
                                         .hfd = -1};
    int r = mm_begin(mm);
    if (r < 0)
        return r;
    r = tree_is_covered(mm, addr.va, end) ? mm_execute(mm, pt, &order, 1, NULL) : -ENOMEM;
    mm_end(mm);
    return r;
}

/* ---- mlock --------------------------------------------------------------------------------------
 */

static void set_locked(struct vma *v, const void *arg)
{
    if (!v->is_special)
        v->is_locked = *(const bool *)arg;
}

static uint64_t locked_within(const struct mm *mm, uint64_t start, uint64_t end)
{
    uint64_t sum = 0;
    for (const struct vma *v = tree_find(mm, start); v != NULL && v->start < end; v = tree_next(v))
        if (v->is_locked)
            sum += (v->end < end ? v->end : end) - (v->start > start ? v->start : start);
    return sum;
}

/* As Linux: what lies before the first hole is changed, then ENOMEM. */
static int lock_range(struct mm *mm, uint64_t start, uint64_t end, bool lock)
{
    if (!mm_count_allows(mm, 2))
        return -ENOMEM;
    uint64_t reached = start;
    for (const struct vma *v = tree_find(mm, start);
         v != NULL && v->start <= reached && reached < end; v = tree_next(v))
        reached = v->end;
    reached = reached < end ? reached : end;
    if (reached > start) {
        mm_tree_begin(mm);
        tree_change(mm, start, reached, set_locked, &lock);
        mm_tree_end(mm);
    }
    return reached < end ? -ENOMEM : 0;
}

/* Reads where it may not write. Failures are the guest's to meet at its next access. */
static void populate_range(struct mm *mm, struct platform_thread *pt, uint64_t start, uint64_t end)
{
    for (const struct vma *v = tree_find(mm, start); v != NULL && v->start < end;
         v = tree_next(v)) {
        uint64_t low = v->start > start ? v->start : start, high = v->end < end ? v->end : end;
        if (v->prot == PROT_NONE)
            continue;
        const struct platform_order order = {
            .kind = PLATFORM_ORDER_ADVISE,
            .addr = GUEST_ADDR(low),
            .size = high - low,
            .advice = (v->prot & PROT_WRITE) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ};
        mm_execute_ignore(mm, pt, &order);
    }
}

int mm_mlock(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
             guest_addr addr, uint64_t size, bool lock, bool populate)
{
    if (lock && limits->locked == 0)
        return -EPERM;
    uint64_t start = PAGE_DOWN(addr.va), end, padded;
    if (__builtin_add_overflow(size, addr.va - start, &padded) || PAGE_UP(padded) < padded)
        return lock ? -ENOMEM : -EINVAL;
    if (__builtin_add_overflow(start, PAGE_UP(padded), &end))
        return -EINVAL;
    if (end == start)
        return 0;
    int r = mm_begin(mm);
    if (r < 0)
        return r;
    if (lock && limits->locked != UINT64_MAX) {
        uint64_t others = mm->counts.locked - locked_within(mm, start, end);
        if (end - start > limits->locked || others > limits->locked - (end - start))
            r = -ENOMEM;
    }
    if (r == 0)
        r = lock_range(mm, start, end, lock);
    if (r == 0 && lock && populate)
        populate_range(mm, pt, start, end);
    mm_end(mm);
    return r;
}

int mm_mlockall(struct mm *mm, const struct mm_limits *limits, int flags, bool lock)
{
    if (lock && (flags == 0 || flags == MCL_ONFAULT ||
                 (flags & ~(MCL_CURRENT | MCL_FUTURE | MCL_ONFAULT)) != 0))
        return -EINVAL;
    if (lock && limits->locked == 0)
        return -EPERM;
    int r = mm_begin(mm);
    if (r < 0)
        return r;
    if (lock && (flags & MCL_CURRENT) != 0 && mm->counts.total > limits->locked)
        r = -ENOMEM;
    if (r == 0) {
        mm->lock_future = lock && (flags & MCL_FUTURE) != 0;
        mm_tree_begin(mm);
        if (!lock || (flags & MCL_CURRENT) != 0)
            tree_change(mm, 0, mm->info->max_addr.va, set_locked, &lock);
        mm_tree_end(mm);
    }
    mm_end(mm);
    return r;
}
