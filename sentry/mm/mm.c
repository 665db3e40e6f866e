/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Life of an address space, its locks, and how orders reach the host: queued for the next resume of
 * the only thread, or executed. Runs on fibers. A stub that lies about an order's result makes only
 * its own space disagree with its tree; nothing here relies on it.
 */
#include "sentry/mm/mm_private.h"

#define LOG_MODULE "mm"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* ---- life ---------------------------------------------------------------------------------------
 */

static int mm_alloc(const struct platform_info *info, struct platform_space *space, struct mm **ret)
{
    struct mm *mm = calloc(1, sizeof(*mm));
    if (mm == NULL)
        return -ENOMEM;
    atomic_init(&mm->refs, 1);
    mm->info = info;
    platform_space_get(space);
    mm->space = space;
    fmutex_init(&mm->order_lock);
    lock_init(&mm->tree_lock);
    RB_INIT(&mm->tree);
    mm->mmap_base = info->max_addr.va;
    *ret = mm;
    return 0;
}

static void insert_special(struct mm *mm, uint64_t start, uint64_t size, int prot, const char *name)
{
    struct vma v = {.start = start,
                    .end = start + PAGE_UP(size),
                    .prot = prot,
                    .flags = MAP_PRIVATE,
                    .max_prot = prot,
                    .is_special = true,
                    .dont_dump = true};
    strncpy(v.name, name, sizeof(v.name) - 1);
    mm_tree_begin(mm);
    tree_insert(mm, &v);
    mm_tree_end(mm);
}

int mm_new(struct platform *platform, struct platform_space *space, struct mm **ret)
{
    const struct platform_info *info = platform_info(platform);
    struct mm *mm;
    int r = mm_alloc(info, space, &mm);
    if (r < 0)
        return r;
    r = tree_stock(mm, MM_SPARE_NODES);
    if (r < 0) {
        mm_put(mm);
        return r;
    }
    if (info->vdso.va != 0) {
        insert_special(mm, info->vdso.va, info->vdso_size, PROT_READ | PROT_EXEC, "[vdso]");
        if (info->vvar_size != 0)
            insert_special(mm, info->vdso.va - PAGE_UP(info->vvar_size), info->vvar_size, PROT_READ,
                           "[vvar]");
    }
    *ret = mm;
    return 0;
}

void mm_get(struct mm *mm)
{
    atomic_fetch_add_explicit(&mm->refs, 1, memory_order_relaxed);
}

void mm_put(struct mm *mm)
{
    /* Release: our uses come before the end; acquire: the last one sees everybody's. */
    if (mm == NULL || atomic_fetch_sub_explicit(&mm->refs, 1, memory_order_acq_rel) != 1)
        return;
    tree_fini(mm);
    platform_space_put(mm->space);
    lock_fini(&mm->tree_lock);
    fmutex_fini(&mm->order_lock);
    free(mm);
}

struct platform_space *mm_space(const struct mm *mm)
{
    return mm->space;
}

/* Threads come and go with nothing queued: it ran when the caller's system call began. */
static void forget_queue(struct mm *mm)
{
    atomic_store(&mm->queued_pt, NULL);
    atomic_store(&mm->queued_by, NULL);
}

void mm_thread_added(struct mm *mm)
{
    forget_queue(mm);
    atomic_fetch_add(&mm->threads, 1);
}

void mm_thread_removed(struct mm *mm)
{
    forget_queue(mm);
    atomic_fetch_sub(&mm->threads, 1);
}

/* ---- fork ---------------------------------------------------------------------------------------
 */

void mm_fork_begin(struct mm *mm)
{
    fmutex_lock(&mm->order_lock);
}

void mm_fork_end(struct mm *mm)
{
    fmutex_unlock(&mm->order_lock);
}

static int copy_tree(struct mm *child, const struct mm *parent)
{
    const struct vma *v;
    for (v = tree_find(parent, 0); v != NULL; v = tree_next(v)) {
        if (v->dont_fork)
            continue;
        int r = tree_stock(child, 1);
        if (r < 0)
            return r;
        struct vma copy = *v;
        copy.is_locked = false;
        tree_insert(child, &copy);
    }
    return 0;
}

int mm_fork(struct mm *parent, struct platform_space *child_space, struct platform_thread *child,
            struct mm **ret)
{
    (void)child; /* the host's fork has done everything */
    struct mm *mm;
    int r = mm_alloc(parent->info, child_space, &mm);
    if (r < 0)
        return r;
    atomic_init(&mm->threads, 1);
    atomic_init(&mm->membarrier, atomic_load(&parent->membarrier));
    mm->mmap_base = parent->mmap_base;
    mm->stack_top = parent->stack_top;
    mm->no_random = parent->no_random;
    mm->layout = parent->layout;
    mm_tree_begin(mm);
    r = copy_tree(mm, parent);
    mm_tree_end(mm);
    struct vma *dead = mm->dead; /* what was joined */
    mm->dead = NULL;
    vma_dispose(dead);
    if (r < 0) {
        mm_put(mm);
        return r;
    }
    *ret = mm;
    return 0;
}

/* ---- locks --------------------------------------------------------------------------------------
 */

int mm_begin(struct mm *mm)
{
    int r = fmutex_lock_killable(&mm->order_lock);
    if (r < 0)
        return r;
    r = tree_stock(mm, MM_SPARE_NODES);
    if (r < 0)
        fmutex_unlock(&mm->order_lock);
    return r;
}

void mm_end(struct mm *mm)
{
    struct vma *dead = mm->dead;
    mm->dead = NULL;
    fmutex_unlock(&mm->order_lock);
    vma_dispose(dead);
}

void mm_tree_begin(struct mm *mm)
{
    lock_acquire(&mm->tree_lock);
}

void mm_tree_end(struct mm *mm)
{
    lock_release(&mm->tree_lock);
}

/* ---- orders -------------------------------------------------------------------------------------
 */

/* An order's error is the stub's claim: only a plausible errno goes on. */
static int checked_error(int error)
{
    return error < 0 && error >= -4095 ? error : -ENOMEM;
}

int mm_execute(struct mm *mm, struct platform_thread *pt, const struct platform_order *orders,
               size_t count, size_t *ret_done)
{
    size_t done = 0;
    int64_t unused;
    int r = mm_flush(mm, pt, &unused);
    if (r == 0)
        r = platform_execute(pt, orders, count, &done);
    if (ret_done != NULL)
        *ret_done = done;
    return r == 0 ? 0 : checked_error(r);
}

void mm_execute_ignore(struct mm *mm, struct platform_thread *pt,
                       const struct platform_order *order)
{
    (void)(mm_execute(mm, pt, order, 1, NULL) == 0);
}

int mm_order(struct mm *mm, struct platform_thread *pt, const struct platform_order *order,
             const struct mm_undo *undo)
{
    int64_t unused;
    int r = mm_flush(mm, pt, &unused);
    if (r < 0)
        return r;
    if (atomic_load(&mm->threads) == 1 && platform_queue(pt, order) == 0) {
        mm->undo = *undo;
        atomic_store(&mm->queued_by, fiber_current());
        atomic_store(&mm->queued_pt, pt);
        return 0;
    }
    return mm_execute(mm, pt, order, 1, NULL);
}

static void set_prot(struct vma *v, const void *arg)
{
    v->prot = *(const int *)arg;
}

static void undo_locked(struct mm *mm, struct platform_thread *pt, const struct mm_undo *undo)
{
    if (undo->kind == UNDO_MAP_OVER || undo->kind == UNDO_UNMAP) {
        /* What was there may be gone or not: make it gone. */
        const struct platform_order order = {.kind = PLATFORM_ORDER_UNMAP,
                                             .addr = GUEST_ADDR(undo->start),
                                             .size = undo->end - undo->start};
        size_t done;
        if (platform_execute(pt, &order, 1, &done) != 0)
            log_dbg("a range stays mapped in the host that the tree calls free");
    }
    mm_tree_begin(mm);
    if (undo->kind == UNDO_MAP || undo->kind == UNDO_MAP_OVER)
        tree_clear(mm, undo->start, undo->end);
    if (undo->kind == UNDO_PROTECT)
        tree_change(mm, undo->start, undo->end, set_prot, &undo->old_prot);
    if (undo->is_brk)
        mm->layout.brk = undo->old_brk;
    mm_tree_end(mm);
}

/* With order_lock held. */
static int64_t order_failed_locked(struct mm *mm, struct platform_thread *pt, int error)
{
    struct mm_undo undo = mm->undo;
    mm->undo = (struct mm_undo){.kind = UNDO_NOTHING};
    forget_queue(mm);
    if (tree_stock(mm, MM_SPARE_NODES) == 0)
        undo_locked(mm, pt, &undo);
    else
        platform_space_kill(mm->space); /* without memory the tree can't be made true again */
    return undo.is_brk ? (int64_t)undo.old_brk : checked_error(error);
}

int64_t mm_order_failed(struct mm *mm, struct platform_thread *pt, int error)
{
    int r = mm_begin(mm);
    if (r < 0)
        return r;
    int64_t result = order_failed_locked(mm, pt, error);
    mm_end(mm);
    return result;
}

/* Also called with order_lock held (from mm_order and mm_execute), and before copies without it:
 * then the caller is the only thread of the space, so nobody else is at work in it. */
int mm_flush(struct mm *mm, struct platform_thread *pt, int64_t *ret_result)
{
    if (likely(atomic_load_explicit(&mm->queued_pt, memory_order_relaxed) != pt))
        return 0;
    forget_queue(mm);
    size_t done;
    int r = platform_execute(pt, NULL, 0, &done);
    if (likely(r == 0))
        return 0;
    *ret_result = order_failed_locked(mm, pt, r);
    return checked_error(r);
}

void mm_flush_before_copy(struct mm *mm)
{
    /* Relaxed: only the fiber that queued something has to see it, and it wrote these itself. */
    struct platform_thread *pt = atomic_load_explicit(&mm->queued_pt, memory_order_relaxed);
    if (likely(pt == NULL) ||
        atomic_load_explicit(&mm->queued_by, memory_order_relaxed) != fiber_current())
        return;
    int64_t unused;
    if (mm_flush(mm, pt, &unused) < 0)
        log_dbg("a queued order failed before a copy");
}

/* ---- looking at it ------------------------------------------------------------------------------
 */

struct mm_layout *mm_layout_of(struct mm *mm)
{
    return &mm->layout;
}

_Atomic uint32_t *mm_membarrier_registered(struct mm *mm)
{
    return &mm->membarrier;
}

void mm_get_counts(struct mm *mm, struct mm_counts *ret)
{
    lock_acquire(&mm->tree_lock);
    *ret = mm->counts;
    lock_release(&mm->tree_lock);
}

static void name_vma(const struct mm *mm, struct vma *v)
{
    if (v->name[0] != '\0' || v->object != NULL)
        return;
    const struct mm_layout *l = &mm->layout;
    v->is_heap = v->start < PAGE_UP(l->brk) && v->end > l->start_brk && l->brk > l->start_brk;
    if (v->is_stack)
        memcpy(v->name, "[stack]", sizeof("[stack]"));
    else if (v->is_heap)
        memcpy(v->name, "[heap]", sizeof("[heap]"));
}

bool mm_next_vma(struct mm *mm, uint64_t from, struct vma *ret)
{
    lock_acquire(&mm->tree_lock);
    const struct vma *v = tree_find(mm, from);
    if (v != NULL) {
        *ret = *v;
        if (ret->object != NULL)
            ret->object->ops->get(ret->object);
        name_vma(mm, ret);
    }
    lock_release(&mm->tree_lock);
    return v != NULL;
}

int mm_futex_key(struct mm *mm, guest_addr addr, bool is_private, uint64_t *ret_space,
                 uint64_t *ret_offset)
{
    *ret_space = (uint64_t)(uintptr_t)mm;
    *ret_offset = addr.va;
    if (is_private)
        return addr.va < mm->info->max_addr.va ? 0 : -EFAULT;
    lock_acquire(&mm->tree_lock);
    const struct vma *v = tree_find(mm, addr.va);
    int r = v != NULL && v->start <= addr.va ? 0 : -EFAULT;
    if (r == 0 && v->object != NULL && (v->flags & MAP_TYPE) != MAP_PRIVATE &&
        v->object->ops->identity != NULL) {
        *ret_space = v->object->ops->identity(v->object);
        *ret_offset = v->offset + (addr.va - v->start);
    }
    lock_release(&mm->tree_lock);
    return r;
}
