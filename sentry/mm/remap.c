/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mremap(2). Runs on the calling task's fiber; every argument is the guest's. Everything but a
 * shrink is executed, not queued: only the host knows whether its VMAs are joined as the tree's are
 * (over two of them it answers EFAULT, here as natively).
 */
#include "sentry/mm/mm_private.h"

#include <errno.h>
#include <sys/mman.h>

struct remap {
    uint64_t addr, old_size, new_size, new_addr;
    int flags;
};

static int check_arguments(struct remap *q)
{
    const int known = MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP;
    bool may_move = (q->flags & MREMAP_MAYMOVE) != 0;
    if ((q->flags & ~known) != 0 || ((q->flags & MREMAP_FIXED) != 0 && !may_move))
        return -EINVAL;
    if ((q->flags & MREMAP_DONTUNMAP) != 0 && (!may_move || q->old_size != q->new_size))
        return -EINVAL;
    if ((q->addr & ~PAGE_MASK) != 0)
        return -EINVAL;
    q->old_size = PAGE_UP(q->old_size);
    q->new_size = PAGE_UP(q->new_size);
    return q->new_size == 0 ? -EINVAL : 0;
}

static int check_target(const struct mm *mm, const struct remap *q)
{
    uint64_t end = mm->info->max_addr.va;
    if ((q->new_addr & ~PAGE_MASK) != 0 || q->new_size > end || q->new_addr > end - q->new_size)
        return -EINVAL;
    if (q->addr + q->old_size > q->new_addr && q->new_addr + q->new_size > q->addr)
        return -EINVAL;
    if ((q->flags & MREMAP_FIXED) != 0 && q->new_addr < mm->info->min_addr.va)
        return -EPERM;
    return 0;
}

/* vma_to_resize() of Linux. */
static int check_vma(const struct mm *mm, const struct mm_limits *limits, const struct vma *v,
                     const struct remap *q)
{
    if (q->old_size == 0 && (v->flags & MAP_TYPE) == MAP_PRIVATE)
        return -EINVAL;
    if (q->old_size > v->end - q->addr)
        return -EFAULT;
    if (q->new_size <= q->old_size)
        return 0;
    uint64_t end;
    if (v->object != NULL &&
        __builtin_add_overflow(v->offset + (q->addr - v->start), q->new_size, &end))
        return -EINVAL;
    if (v->is_special)
        return -EFAULT;
    uint64_t more = q->new_size - q->old_size;
    if (v->is_locked && (more > limits->locked || mm->counts.locked > limits->locked - more))
        return -EAGAIN;
    if (!mm_may_expand(mm, limits, v->prot, v->flags, v->is_stack, more, 0))
        return -ENOMEM;
    return 0;
}

static struct platform_order order_of(const struct remap *q, uint64_t new_addr, int flags)
{
    return (struct platform_order){.kind = PLATFORM_ORDER_REMAP,
                                   .addr = GUEST_ADDR(q->addr),
                                   .size = q->old_size,
                                   .new_addr = GUEST_ADDR(new_addr),
                                   .new_size = q->new_size,
                                   .flags = flags,
                                   .hfd = -1};
}

static void populate_locked_part(struct mm *mm, struct platform_thread *pt, const struct vma *v,
                                 uint64_t start, uint64_t end)
{
    if (!v->is_locked || end <= start)
        return;
    const struct platform_order order = {
        .kind = PLATFORM_ORDER_ADVISE,
        .addr = GUEST_ADDR(start),
        .size = end - start,
        .advice = (v->prot & PROT_WRITE) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ};
    mm_execute_ignore(mm, pt, &order);
}

/* The piece of `v` from `addr` on, as a new VMA at `start`. */
static struct vma piece_of(const struct vma *v, uint64_t addr, uint64_t start, uint64_t size)
{
    struct vma piece = *v;
    if (v->object != NULL)
        piece.offset += addr - v->start;
    piece.start = start;
    piece.end = start + size;
    return piece;
}

static bool can_grow_in_place(const struct mm *mm, const struct vma *v, const struct remap *q)
{
    if (q->addr + q->old_size != v->end)
        return false;
    uint64_t end = q->addr + q->new_size;
    return end > v->end && end <= mm->info->max_addr.va && tree_is_free(mm, v->end, end);
}

static int64_t grow_in_place(struct mm *mm, struct platform_thread *pt, const struct vma *v,
                             const struct remap *q)
{
    const struct platform_order order = order_of(q, 0, 0);
    int r = mm_execute(mm, pt, &order, 1, NULL);
    if (r < 0)
        return r;
    uint64_t old_end = q->addr + q->old_size;
    const struct vma more = piece_of(v, old_end, old_end, q->new_size - q->old_size);
    mm_tree_begin(mm);
    tree_insert(mm, &more);
    mm_tree_end(mm);
    populate_locked_part(mm, pt, &more, more.start, more.end);
    return (int64_t)q->addr;
}

static void lost_target(struct mm *mm, struct platform_thread *pt, uint64_t start, uint64_t end)
{
    if (tree_is_free(mm, start, end))
        return;
    const struct platform_order unmap = {
        .kind = PLATFORM_ORDER_UNMAP, .addr = GUEST_ADDR(start), .size = end - start};
    mm_execute_ignore(mm, pt, &unmap);
    mm_tree_begin(mm);
    tree_clear(mm, start, end);
    mm_tree_end(mm);
}

static void unlock_vma(struct vma *v, const void *arg)
{
    (void)arg;
    v->is_locked = false;
}

static int64_t move(struct mm *mm, struct platform_thread *pt, const struct vma *v,
                    const struct remap *q, uint64_t new_addr)
{
    bool keeps = (q->flags & MREMAP_DONTUNMAP) != 0;
    const struct platform_order order =
        order_of(q, new_addr, MREMAP_MAYMOVE | MREMAP_FIXED | (keeps ? MREMAP_DONTUNMAP : 0));
    int r = mm_execute(mm, pt, &order, 1, NULL);
    if (r < 0) {
        lost_target(mm, pt, new_addr, new_addr + q->new_size); /* the host unmaps it first */
        return r;
    }
    const struct vma moved = piece_of(v, q->addr, new_addr, q->new_size);
    mm_tree_begin(mm);
    tree_clear(mm, new_addr, new_addr + q->new_size);
    if (q->old_size != 0 && !keeps)
        tree_clear(mm, q->addr, q->addr + q->old_size);
    tree_insert(mm, &moved);
    if (keeps && moved.is_locked)
        tree_change(mm, q->addr, q->addr + q->old_size, unlock_vma, NULL);
    mm_tree_end(mm);
    populate_locked_part(mm, pt, &moved, moved.start + q->old_size, moved.end);
    return (int64_t)new_addr;
}

/* MREMAP_FIXED and MREMAP_DONTUNMAP. */
static int64_t remap_to(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
                        const struct remap *q)
{
    int64_t r = check_target(mm, q);
    if (r < 0)
        return r;
    if (!mm_count_allows(mm, 5))
        return -ENOMEM;
    struct remap now = *q;
    if (now.old_size > now.new_size) { /* the tail goes, whatever it covers */
        r = mm_unmap_locked(mm, pt, now.addr + now.new_size, now.addr + now.old_size);
        if (r < 0)
            return r;
        now.old_size = now.new_size;
    }
    const struct vma *v = tree_find(mm, now.addr);
    if (v == NULL || v->start > now.addr)
        return -EFAULT;
    r = check_vma(mm, limits, v, &now);
    if (r < 0)
        return r;
    bool keeps = (now.flags & MREMAP_DONTUNMAP) != 0;
    if (keeps && (v->is_special ||
                  !mm_may_expand(mm, limits, v->prot, v->flags, v->is_stack, now.old_size, 0)))
        return v->is_special ? -EINVAL : -ENOMEM;
    uint64_t target = now.new_addr;
    if ((now.flags & MREMAP_FIXED) == 0) {
        r = address_choose(mm, target, now.new_size, 0, v->object == NULL);
        if (r < 0)
            return r;
        target = (uint64_t)r;
    }
    if (tree_stock(mm, MM_SPARE_NODES) < 0)
        return -ENOMEM;
    return move(mm, pt, v, &now, target);
}

static int64_t remap_locked(struct mm *mm, struct platform_thread *pt,
                            const struct mm_limits *limits, const struct remap *q)
{
    const struct vma *v = tree_find(mm, q->addr);
    if (v == NULL || v->start > q->addr || v->start >= mm->info->max_addr.va)
        return -EFAULT;
    if ((q->flags & (MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0)
        return remap_to(mm, pt, limits, q);
    if (q->old_size >= q->new_size) {
        int r = 0;
        if (q->old_size > q->new_size)
            r = mm_unmap_locked(mm, pt, q->addr + q->new_size, q->addr + q->old_size);
        return r < 0 ? r : (int64_t)q->addr;
    }
    int64_t r = check_vma(mm, limits, v, q);
    if (r < 0)
        return r;
    if (can_grow_in_place(mm, v, q))
        return grow_in_place(mm, pt, v, q);
    if ((q->flags & MREMAP_MAYMOVE) == 0 || !mm_count_allows(mm, 3))
        return -ENOMEM;
    r = address_choose(mm, 0, q->new_size, 0, v->object == NULL);
    return r < 0 ? r : move(mm, pt, v, q, (uint64_t)r);
}

int64_t mm_mremap(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
                  guest_addr old_addr, uint64_t old_size, uint64_t new_size, int flags,
                  guest_addr new_addr)
{
    struct remap q = {.addr = old_addr.va,
                      .old_size = old_size,
                      .new_size = new_size,
                      .new_addr = new_addr.va,
                      .flags = flags};
    int64_t r = check_arguments(&q);
    uint64_t end;
    if (r < 0)
        return r;
    if (__builtin_add_overflow(q.addr, q.old_size, &end) || end > MM_TASK_SIZE)
        return q.old_size > q.new_size ? -EINVAL : -EFAULT;
    r = mm_begin(mm);
    if (r < 0)
        return r;
    r = remap_locked(mm, pt, limits, &q);
    mm_end(mm);
    return r;
}
