/* SPDX-License-Identifier: Apache-2.0 */
/*
 * mprotect(2). Runs on the calling task's fiber; every argument is the guest's.
 *
 * As in Linux the range is changed from its start up to the first hole or refusal. What lies
 * between is cut into runs that one order each can do.
 */
#include "sentry/mm/mm_private.h"

#include <errno.h>
#include <sys/mman.h>

#define PROT_SEM 0x8

/* More than the object is known to allow: ask it. *ret_hfd is a descriptor that a shared mapping,
 * which becomes writable, must be mapped anew from; -1 = the mapping stays. */
static int ask_object(const struct vma *v, uint64_t start, uint64_t end, int prot, int *ret_hfd,
                      uint64_t *ret_host_offset)
{
    *ret_hfd = -1;
    if (v->object == NULL || (prot & ~v->max_prot) == 0)
        return 0;
    int type = v->flags & MAP_TYPE, hfd;
    int r = v->object->ops->map(v->object, v->offset + (start - v->start), end - start, prot, type,
                                &hfd, ret_host_offset);
    if (r < 0)
        return -EACCES;
    if (type == MAP_SHARED && (prot & ~v->max_prot & PROT_WRITE) != 0)
        *ret_hfd = hfd;
    return 0;
}

struct new_prot {
    int prot;
};

static void set_prot(struct vma *v, const void *arg)
{
    const struct new_prot *n = arg;
    v->prot = n->prot;
    v->max_prot |= n->prot;
    if (v->object != NULL && (v->flags & MAP_TYPE) == MAP_SHARED && (n->prot & PROT_WRITE) != 0)
        v->is_shared_write = true;
}

static void update_tree(struct mm *mm, uint64_t start, uint64_t end, int prot)
{
    const struct new_prot n = {prot};
    mm_tree_begin(mm);
    tree_change(mm, start, end, set_prot, &n);
    mm_tree_end(mm);
}

/* A run of VMAs, changed by one order. All had `old_prot`, or `is_mixed`. */
struct run {
    uint64_t start, end;
    int old_prot;
    bool is_mixed, is_needed;
};

static int change_run(struct mm *mm, struct platform_thread *pt, const struct run *run, int prot)
{
    if (run->start == run->end || !run->is_needed)
        return 0;
    if (tree_stock(mm, MM_SPARE_NODES) < 0)
        return -ENOMEM;
    const struct platform_order order = {.kind = PLATFORM_ORDER_PROTECT,
                                         .addr = GUEST_ADDR(run->start),
                                         .size = run->end - run->start,
                                         .prot = prot};
    const struct mm_undo undo = {
        .kind = UNDO_PROTECT, .start = run->start, .end = run->end, .old_prot = run->old_prot};
    int r = run->is_mixed ? mm_execute(mm, pt, &order, 1, NULL) : mm_order(mm, pt, &order, &undo);
    if (r == 0)
        update_tree(mm, run->start, run->end, prot);
    return r;
}

/* A shared mapping that becomes writable: the same pages from a descriptor that may write. */
static int map_anew(struct mm *mm, struct platform_thread *pt, uint64_t start, uint64_t end,
                    int prot, int hfd, uint64_t host_offset)
{
    if (tree_stock(mm, MM_SPARE_NODES) < 0)
        return -ENOMEM;
    const struct platform_order order = {.kind = PLATFORM_ORDER_MAP_FILE,
                                         .addr = GUEST_ADDR(start),
                                         .size = end - start,
                                         .prot = prot,
                                         .flags = MAP_SHARED,
                                         .hfd = hfd,
                                         .offset = host_offset};
    int r = mm_execute(mm, pt, &order, 1, NULL);
    if (r == 0)
        update_tree(mm, start, end, prot);
    return r;
}

static int protect_locked(struct mm *mm, struct platform_thread *pt, uint64_t start, uint64_t end,
                          int prot)
{
    struct run run = {.start = start, .end = start};
    int r = 0;
    while (run.end < end) {
        const struct vma *v = tree_find(mm, run.end);
        if (v == NULL || v->start > run.end) {
            r = -ENOMEM;
            break;
        }
        uint64_t piece = run.end, piece_end = v->end < end ? v->end : end, host_offset = 0;
        int hfd;
        r = ask_object(v, piece, piece_end, prot, &hfd, &host_offset);
        if (r < 0)
            break;
        if (hfd >= 0) {
            r = change_run(mm, pt, &run, prot);
            if (r == 0)
                r = map_anew(mm, pt, piece, piece_end, prot, hfd, host_offset);
            if (r < 0)
                return r;
            run = (struct run){.start = piece_end, .end = piece_end};
            continue;
        }
        if (run.start == run.end)
            run.old_prot = v->prot;
        run.is_mixed = run.is_mixed || v->prot != run.old_prot;
        run.is_needed = run.is_needed || v->prot != prot;
        run.end = piece_end;
    }
    int changed = change_run(mm, pt, &run, prot);
    return changed < 0 ? changed : r;
}

/* PROT_GROWSDOWN: from the start of the stack on. */
static int extend_to_stack_start(const struct mm *mm, uint64_t *start, uint64_t end)
{
    const struct vma *v = tree_find(mm, *start);
    if (v == NULL || v->start >= end)
        return -ENOMEM;
    if (!v->is_stack && (v->flags & MAP_GROWSDOWN) == 0)
        return -EINVAL;
    *start = v->start;
    return 0;
}

int mm_mprotect(struct mm *mm, struct platform_thread *pt, guest_addr addr, uint64_t size, int prot)
{
    int grows = prot & (PROT_GROWSDOWN | PROT_GROWSUP);
    prot &= ~grows;
    if (grows == (PROT_GROWSDOWN | PROT_GROWSUP) || (addr.va & ~PAGE_MASK) != 0)
        return -EINVAL;
    if (size == 0)
        return 0;
    uint64_t start = addr.va, end;
    size = PAGE_UP(size);
    if (size == 0 || __builtin_add_overflow(start, size, &end))
        return -ENOMEM;
    if ((prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC | PROT_SEM)) != 0)
        return -EINVAL;
    prot &= PROT_READ | PROT_WRITE | PROT_EXEC;
    if (end > mm->info->max_addr.va)
        return -ENOMEM;
    int r = mm_begin(mm);
    if (r < 0)
        return r;
    if ((grows & PROT_GROWSDOWN) != 0)
        r = extend_to_stack_start(mm, &start, end);
    else if (grows != 0)
        r = -EINVAL; /* nothing grows up on x86-64 */
    if (r == 0 && !mm_count_allows(mm, 2))
        r = -ENOMEM;
    if (r == 0)
        r = protect_locked(mm, pt, start, end, prot);
    mm_end(mm);
    return r;
}
