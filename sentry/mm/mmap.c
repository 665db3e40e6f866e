/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mmap(2), munmap(2) and brk(2). Runs on the calling task's fiber; every argument is the guest's.
 */
#include "sentry/mm/mm_private.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 3
#endif
#define MAP_ABOVE4G       0x80
#define MAP_UNINITIALIZED 0x4000000
#define MAP_HUGE_BITS     ((int)(0x3fu << 26))
/* What MAP_SHARED_VALIDATE knows (LEGACY_MAP_MASK). */
#define MAP_KNOWN                                                                                  \
    (MAP_SHARED | MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS | MAP_DENYWRITE | MAP_EXECUTABLE |       \
     MAP_UNINITIALIZED | MAP_GROWSDOWN | MAP_LOCKED | MAP_NORESERVE | MAP_POPULATE |               \
     MAP_NONBLOCK | MAP_STACK | MAP_HUGETLB | MAP_32BIT | MAP_ABOVE4G | MAP_HUGE_BITS)

/* ---- limits -------------------------------------------------------------------------------------
 */

bool mm_may_expand(const struct mm *mm, const struct mm_limits *limits, int prot, int flags,
                   bool is_stack, uint64_t size, uint64_t freed)
{
    uint64_t total = mm->counts.total - freed;
    if (size > limits->address_space || total > limits->address_space - size)
        return false;
    bool is_data = (prot & PROT_WRITE) != 0 && (flags & MAP_TYPE) == MAP_PRIVATE && !is_stack;
    if (!is_data)
        return true;
    return size <= limits->data && mm->counts.data <= limits->data - size;
}

bool mm_count_allows(const struct mm *mm, size_t more)
{
    return mm->vma_count + more <= MM_MAP_COUNT_MAX;
}

/* ---- mmap ---------------------------------------------------------------------------------------
 */

struct request {
    uint64_t hint, size, offset;
    int prot, flags; /* flags: the guest's, without what it may not say of this kind */
    struct mappable *object;
    int hfd;
    uint64_t host_offset;
};

/* MAP_SHARED, MAP_PRIVATE and their kin: leaves one of these two in q->flags. */
static int check_type(struct request *q)
{
    int type = q->flags & MAP_TYPE;
    bool grows = (q->flags & MAP_GROWSDOWN) != 0;
    switch (type) {
    case MAP_SHARED_VALIDATE:
        if (q->object == NULL || (q->flags & MAP_ANONYMOUS) != 0)
            return -EINVAL;
        if ((q->flags & ~(MAP_KNOWN | MAP_TYPE)) != 0)
            return -EOPNOTSUPP;
        q->flags = (q->flags & ~MAP_TYPE) | MAP_SHARED;
        return grows ? -EINVAL : 0;
    case MAP_SHARED:
        return grows || q->object == NULL ? -EINVAL : 0;
    case MAP_PRIVATE:
        return grows && q->object != NULL ? -EINVAL : 0;
    case MAP_DROPPABLE:
        if (q->object != NULL || grows)
            return -EINVAL;
        q->flags |= MAP_NORESERVE;
        return 0;
    default:
        return -EINVAL;
    }
}

static int check_request(struct request *q)
{
    if (q->size == 0)
        return -EINVAL;
    if (PAGE_UP(q->size) < q->size)
        return -ENOMEM;
    q->size = PAGE_UP(q->size);
    if ((q->offset & ~PAGE_MASK) != 0)
        return -EINVAL;
    uint64_t end;
    if (__builtin_add_overflow(q->offset, q->size, &end))
        return -EOVERFLOW;
    if ((q->flags & MAP_HUGETLB) != 0)
        return q->object != NULL && (q->flags & MAP_ANONYMOUS) == 0 ? -EINVAL : -ENOMEM;
    int r = check_type(q);
    if (r < 0)
        return r;
    if (q->object != NULL && end > INT64_MAX)
        return -EOVERFLOW;
    q->prot &= PROT_READ | PROT_WRITE | PROT_EXEC;
    return 0;
}

static struct vma vma_of_request(const struct mm *mm, const struct request *q, uint64_t addr)
{
    bool is_droppable = (q->flags & MAP_TYPE) == MAP_DROPPABLE;
    int type = is_droppable ? MAP_PRIVATE : q->flags & MAP_TYPE;
    struct vma v = {.start = addr,
                    .end = addr + q->size,
                    .prot = q->prot,
                    .max_prot = q->prot,
                    .flags = type | (q->flags & (MAP_NORESERVE | MAP_GROWSDOWN)),
                    .offset = q->object != NULL ? q->offset : 0,
                    .object = q->object,
                    .is_locked = (q->flags & MAP_LOCKED) != 0 || mm->lock_future,
                    .wipe_on_fork = is_droppable,
                    .dont_dump = is_droppable};
    if (type == MAP_PRIVATE)
        v.max_prot |= PROT_READ | PROT_WRITE;
    v.is_shared_write = type == MAP_SHARED && (q->prot & PROT_WRITE) != 0;
    return v;
}

static struct platform_order order_of_request(const struct request *q, const struct vma *v)
{
    struct platform_order order = {.kind = PLATFORM_ORDER_MAP_ANON,
                                   .addr = GUEST_ADDR(v->start),
                                   .size = q->size,
                                   .prot = q->prot,
                                   .flags = (v->flags & (MAP_TYPE | MAP_NORESERVE)),
                                   .hfd = -1};
    if (q->hfd >= 0) {
        order.kind = PLATFORM_ORDER_MAP_FILE;
        order.hfd = q->hfd;
        order.offset = q->host_offset;
    } else {
        order.flags |= q->flags & MAP_STACK;
    }
    return order;
}

static int check_limits(const struct mm *mm, const struct mm_limits *limits,
                        const struct request *q, uint64_t addr)
{
    if (!mm_count_allows(mm, 3)) /* a new one and the ends of what it replaces */
        return -ENOMEM;
    if ((q->flags & MAP_LOCKED) != 0 && limits->locked == 0)
        return -EPERM;
    if (((q->flags & MAP_LOCKED) != 0 || mm->lock_future) &&
        (q->size > limits->locked || mm->counts.locked > limits->locked - q->size))
        return -EAGAIN;
    uint64_t freed = tree_mapped(mm, addr, addr + q->size);
    if (!mm_may_expand(mm, limits, q->prot, q->flags, (q->flags & MAP_GROWSDOWN) != 0, q->size,
                       freed))
        return -ENOMEM;
    return 0;
}

/* MAP_POPULATE and the like: best effort, as in Linux. */
static void populate(struct mm *mm, struct platform_thread *pt, const struct vma *v)
{
    if ((v->prot & (PROT_READ | PROT_WRITE | PROT_EXEC)) == 0)
        return;
    const struct platform_order order = {
        .kind = PLATFORM_ORDER_ADVISE,
        .addr = GUEST_ADDR(v->start),
        .size = v->end - v->start,
        .advice = (v->prot & PROT_WRITE) != 0 ? MADV_POPULATE_WRITE : MADV_POPULATE_READ};
    mm_execute_ignore(mm, pt, &order);
}

static int order_mapping(struct mm *mm, struct platform_thread *pt, const struct request *q,
                         const struct vma *v)
{
    const struct platform_order order = order_of_request(q, v);
    /* The stack guard of a neighbour doesn't count: MAP_FIXED may go there. */
    bool is_free = tree_is_free(mm, v->start, v->end);
    const struct mm_undo undo = {
        .kind = is_free ? UNDO_MAP : UNDO_MAP_OVER, .start = v->start, .end = v->end};
    bool is_populated = (q->flags & (MAP_POPULATE | MAP_NONBLOCK)) == MAP_POPULATE || v->is_locked;
    if (!is_populated && !v->wipe_on_fork && q->hfd < 0)
        return mm_order(mm, pt, &order, &undo);
    int r = mm_execute(mm, pt, &order, 1, NULL);
    if (r < 0 && !is_free) {
        mm_tree_begin(mm);
        tree_clear(mm, v->start, v->end); /* the host may have unmapped before it failed */
        mm_tree_end(mm);
        const struct platform_order unmap = {
            .kind = PLATFORM_ORDER_UNMAP, .addr = order.addr, .size = order.size};
        mm_execute_ignore(mm, pt, &unmap);
    }
    if (r < 0)
        return r;
    if (v->wipe_on_fork) {
        const struct platform_order wipe = {.kind = PLATFORM_ORDER_ADVISE,
                                            .addr = order.addr,
                                            .size = order.size,
                                            .advice = MADV_WIPEONFORK};
        mm_execute_ignore(mm, pt, &wipe);
    }
    if (is_populated)
        populate(mm, pt, v);
    return 0;
}

static int64_t mmap_locked(struct mm *mm, struct platform_thread *pt,
                           const struct mm_limits *limits, const struct request *q)
{
    int64_t addr = address_choose(mm, q->hint, q->size, q->flags, q->object == NULL);
    if (addr < 0)
        return addr;
    uint64_t start = (uint64_t)addr;
    if ((q->flags & MAP_FIXED_NOREPLACE) != 0 && !tree_is_free(mm, start, start + q->size))
        return -EEXIST;
    int r = check_limits(mm, limits, q, start);
    if (r < 0)
        return r;
    const struct vma v = vma_of_request(mm, q, start);
    r = order_mapping(mm, pt, q, &v);
    if (r < 0)
        return r;
    mm_tree_begin(mm);
    tree_clear(mm, v.start, v.end);
    tree_insert(mm, &v);
    mm_tree_end(mm);
    return addr;
}

/* Seals may forbid a shared writable mapping: counted while the tree doesn't hold it yet. */
static int add_shared_write(struct mappable *object, bool *ret_added)
{
    *ret_added = false;
    if (object->ops->shared_write == NULL)
        return 0;
    int r = object->ops->shared_write(object, true);
    *ret_added = r == 0;
    return r;
}

int64_t mm_mmap(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
                guest_addr hint, uint64_t size, int prot, int flags, struct mappable *object,
                uint64_t offset)
{
    struct request q = {.hint = hint.va,
                        .size = size,
                        .offset = offset,
                        .prot = prot,
                        .flags = flags,
                        .object = object,
                        .hfd = -1};
    int64_t r = check_request(&q);
    if (r < 0)
        return r;
    bool added = false;
    if (object != NULL) {
        int type = q.flags & MAP_TYPE;
        /* Before map(), so that a seal that comes in between sees it. */
        if (type == MAP_SHARED && (q.prot & PROT_WRITE) != 0)
            r = add_shared_write(object, &added);
        if (r == 0)
            r = object->ops->map(object, q.offset, q.size, q.prot, type, &q.hfd, &q.host_offset);
        if (r == 0 && q.hfd < 0 && type == MAP_SHARED)
            r = -ENODEV;
    }
    if (r == 0)
        r = mm_begin(mm);
    if (r == 0) {
        r = mmap_locked(mm, pt, limits, &q);
        mm_end(mm);
    }
    if (added)
        (void)object->ops->shared_write(object, false);
    return r;
}

/* ---- munmap -------------------------------------------------------------------------------------
 */

/* The part of [start, end) that a guest can have mapped. */
static void clip(const struct mm *mm, uint64_t *start, uint64_t *end)
{
    uint64_t low = mm->info->min_addr.va, high = mm->info->max_addr.va;
    *start = *start < low ? low : *start;
    *end = *end > high ? high : *end;
}

int mm_unmap_locked(struct mm *mm, struct platform_thread *pt, uint64_t start, uint64_t end)
{
    clip(mm, &start, &end);
    const struct vma *first = tree_find(mm, start);
    if (start >= end || first == NULL || first->start >= end)
        return 0;
    bool splits = tree_clear_splits(mm, start, end);
    if (splits && !mm_count_allows(mm, 1))
        return -ENOMEM;
    const struct platform_order order = {
        .kind = PLATFORM_ORDER_UNMAP, .addr = GUEST_ADDR(start), .size = end - start};
    const struct mm_undo undo = {.kind = UNDO_UNMAP, .start = start, .end = end};
    int r = mm_order(mm, pt, &order, &undo);
    if (r < 0)
        return r;
    mm_tree_begin(mm);
    tree_clear(mm, start, end);
    mm_tree_end(mm);
    return 0;
}

int mm_munmap(struct mm *mm, struct platform_thread *pt, guest_addr addr, uint64_t size)
{
    uint64_t start = addr.va;
    if ((start & ~PAGE_MASK) != 0 || start > MM_TASK_SIZE || size > MM_TASK_SIZE - start)
        return -EINVAL;
    size = PAGE_UP(size);
    if (size == 0)
        return -EINVAL;
    uint64_t end = start + size;
    int r = mm_begin(mm);
    if (r < 0)
        return r;
    r = mm_unmap_locked(mm, pt, start, end);
    mm_end(mm);
    return r;
}

/* ---- brk ----------------------------------------------------------------------------------------
 */

static int brk_shrink(struct mm *mm, struct platform_thread *pt, uint64_t old_end, uint64_t new_end,
                      uint64_t brk)
{
    if (tree_is_free(mm, new_end, old_end))
        return 0;
    const struct platform_order order = {
        .kind = PLATFORM_ORDER_UNMAP, .addr = GUEST_ADDR(new_end), .size = old_end - new_end};
    const struct mm_undo undo = {
        .kind = UNDO_UNMAP, .is_brk = true, .start = new_end, .end = old_end, .old_brk = brk};
    int r = mm_order(mm, pt, &order, &undo);
    if (r < 0)
        return r;
    mm_tree_begin(mm);
    tree_clear(mm, new_end, old_end);
    mm_tree_end(mm);
    return 0;
}

static int brk_grow(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
                    uint64_t old_end, uint64_t new_end)
{
    uint64_t size = new_end - old_end;
    const struct vma *next = tree_find(mm, old_end);
    if (new_end > mm->info->max_addr.va || old_end < mm->info->min_addr.va ||
        (next != NULL && new_end + PAGE_SIZE > vma_gap_top(next)))
        return -ENOMEM;
    if (!mm_count_allows(mm, 1) ||
        !mm_may_expand(mm, limits, PROT_WRITE, MAP_PRIVATE, false, size, 0))
        return -ENOMEM;
    if (mm->lock_future && (size > limits->locked || mm->counts.locked > limits->locked - size))
        return -EAGAIN;
    const struct vma v = {.start = old_end,
                          .end = new_end,
                          .prot = PROT_READ | PROT_WRITE,
                          .max_prot = PROT_READ | PROT_WRITE,
                          .flags = MAP_PRIVATE,
                          .is_locked = mm->lock_future};
    const struct platform_order order = {.kind = PLATFORM_ORDER_MAP_ANON,
                                         .addr = GUEST_ADDR(old_end),
                                         .size = size,
                                         .prot = v.prot,
                                         .flags = MAP_PRIVATE,
                                         .hfd = -1};
    const struct mm_undo undo = {.kind = UNDO_MAP,
                                 .is_brk = true,
                                 .start = old_end,
                                 .end = new_end,
                                 .old_brk = mm->layout.brk};
    int r = mm_order(mm, pt, &order, &undo);
    if (r < 0)
        return r;
    mm_tree_begin(mm);
    tree_insert(mm, &v);
    mm_tree_end(mm);
    return 0;
}

static int set_brk(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
                   uint64_t brk)
{
    const struct mm_layout *l = &mm->layout;
    if (brk < l->start_brk || brk > mm->info->max_addr.va)
        return -ENOMEM;
    uint64_t data = l->end_data - l->start_data;
    if (limits->data != UINT64_MAX &&
        (brk - l->start_brk > limits->data || data > limits->data - (brk - l->start_brk)))
        return -ENOMEM;
    uint64_t old_end = PAGE_UP(l->brk), new_end = PAGE_UP(brk);
    int r = 0;
    if (new_end < old_end)
        r = brk_shrink(mm, pt, old_end, new_end, brk);
    else if (new_end > old_end)
        r = brk_grow(mm, pt, limits, old_end, new_end);
    if (r < 0)
        return r;
    mm_tree_begin(mm);
    mm->layout.brk = brk;
    mm_tree_end(mm);
    return 0;
}

int64_t mm_brk(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
               guest_addr brk)
{
    if (mm_begin(mm) < 0)
        return (int64_t)mm->layout.brk;
    (void)(set_brk(mm, pt, limits, brk.va) == 0); /* the answer is the break, moved or not */
    int64_t result = (int64_t)mm->layout.brk;
    mm_end(mm);
    return result;
}
