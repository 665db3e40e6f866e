/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of sentry/mm share. Private to sentry/mm.
 *
 * A change runs so: mm_begin() takes order_lock and fills the stock of tree nodes; checks on the
 * tree (writers hold order_lock, so reading needs no more); the order; then the tree, under
 * tree_lock, by functions that can't fail; mm_end() releases and puts the objects that left the
 * tree, which may sleep.
 */
#pragma once

#include "sentry/mm/mm.h"
#include <stdbool.h>

#define MM_MAP_COUNT_MAX 65530             /* vm.max_map_count */
#define MM_STACK_GUARD   (256 * PAGE_SIZE) /* stack_guard_gap */
#define MM_SPARE_NODES   6                 /* enough for any one operation */
#define MM_HUGE_PAGE     MIB(2)
#define MM_TASK_SIZE     0x7ffffffff000UL

#ifndef MAP_DROPPABLE
#define MAP_DROPPABLE 0x08
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif

RB_HEAD(vma_tree, vma);

/* How to take back the queued order, should it fail. */
struct mm_undo {
    enum { UNDO_NOTHING, UNDO_MAP, UNDO_MAP_OVER, UNDO_PROTECT, UNDO_UNMAP } kind;
    bool is_brk; /* the system call answers the old break */
    uint64_t start, end;
    int old_prot;
    uint64_t old_brk;
};

struct mm {
    _Atomic uint32_t refs;
    _Atomic uint32_t threads;
    _Atomic uint32_t membarrier;
    const struct platform_info *info;
    struct platform_space *space; /* ref */

    struct fmutex order_lock;
    /* order_lock: */
    struct vma *spare; /* free nodes, linked by node.rbe_left */
    size_t spare_count;
    struct vma *dead; /* left the tree, objects still to be put; linked likewise */
    struct mm_undo undo;
    uint64_t retry_addr; /* a fault that the tree allowed: not for ever */
    unsigned retry_count;
    bool lock_future;
    bool no_random;
    uint64_t mmap_base; /* highest address that the picker gives, exclusive */
    uint64_t stack_top; /* chosen by mm_exec_layout() */
    /* A thread whose queue may hold our order, and the fiber that queued it. Atomic: other fibers
     * look. */
    _Atomic(struct platform_thread *) queued_pt;
    _Atomic(struct fiber *) queued_by;

    struct lock tree_lock;
    /* changed with both locks, read with either: */
    struct vma_tree tree;
    size_t vma_count;
    struct mm_counts counts;
    struct mm_layout layout;
};

/* ---- vma.c: the tree. Writers hold both locks; nodes come from the stock
 * ------------------------- */

RB_PROTOTYPE(vma_tree, vma, node, vma_compare)
int vma_compare(const struct vma *a, const struct vma *b);
MUST_CHECK int tree_stock(struct mm *mm, size_t nodes); /* at least so many spare ones; -ENOMEM */
void tree_fini(struct mm *mm);                          /* the last reference: everything */
/* Puts the objects of a list that `mm->dead` was, and frees its nodes. Sleeps. */
void vma_dispose(struct vma *list);

struct vma *tree_find(const struct mm *mm,
                      uint64_t addr); /* the first that ends above addr, or NULL */
struct vma *tree_next(const struct vma *v);
struct vma *tree_prev(const struct mm *mm, const struct vma *v_or_null); /* NULL: the last */
bool tree_is_free(const struct mm *mm, uint64_t start, uint64_t end);
bool tree_is_covered(const struct mm *mm, uint64_t start, uint64_t end); /* no hole */
uint64_t tree_mapped(const struct mm *mm, uint64_t start, uint64_t end); /* bytes */
/* Whether removing [start, end) cuts one VMA into two. */
bool tree_clear_splits(const struct mm *mm, uint64_t start, uint64_t end);
void tree_clear(struct mm *mm, uint64_t start, uint64_t end);
/* Inserts a copy of `v` (free range), with its own reference on the object, and joins neighbours.
 */
void tree_insert(struct mm *mm, const struct vma *v);
/* Calls change() for each VMA in the range, split to fit, and joins afterwards. */
void tree_change(struct mm *mm, uint64_t start, uint64_t end,
                 void (*change)(struct vma *v, const void *arg), const void *arg);
/* Lets `v` begin at `start`, which lies in the gap below it. */
void tree_extend_down(struct mm *mm, struct vma *v, uint64_t start);
/* The highest/lowest free place for `size` bytes within [low, high), guard gaps respected; 0: none.
 */
uint64_t tree_gap_top_down(const struct mm *mm, uint64_t size, uint64_t low, uint64_t high);
uint64_t tree_gap_bottom_up(const struct mm *mm, uint64_t size, uint64_t low, uint64_t high);
uint64_t vma_gap_top(const struct vma *v); /* start, less the guard of what grows down */

/* ---- mm.c: locking and orders -------------------------------------------------------------------
 */

MUST_CHECK int mm_begin(struct mm *mm); /* -EINTR: being killed; -ENOMEM */
void mm_end(struct mm *mm);
void mm_tree_begin(struct mm *mm);
void mm_tree_end(struct mm *mm);
/* Queues `order` where that is allowed, else executes it. `undo` (copied) describes the caller's
 * change of the tree, in case it fails later. 0 or -errno. */
MUST_CHECK int mm_order(struct mm *mm, struct platform_thread *pt,
                        const struct platform_order *order, const struct mm_undo *undo);
/* Executes now. *ret_done may be NULL. */
MUST_CHECK int mm_execute(struct mm *mm, struct platform_thread *pt,
                          const struct platform_order *orders, size_t count, size_t *ret_done);
void mm_execute_ignore(struct mm *mm, struct platform_thread *pt,
                       const struct platform_order *order);
/* For uaccess: the calling fiber's queued order runs before it copies. */
void mm_flush_before_copy(struct mm *mm);

/* ---- address.c ----------------------------------------------------------------------------------
 */

/* Where a mapping of `size` bytes goes: an address or -errno, as get_unmapped_area() of Linux. */
int64_t address_choose(const struct mm *mm, uint64_t hint, uint64_t size, int flags, bool is_anon);
uint64_t address_random(uint64_t limit); /* below limit */
uint64_t mm_random_brk(const struct mm *mm, uint64_t brk);

/* ---- limits -------------------------------------------------------------------------------------
 */

/* RLIMIT_AS and RLIMIT_DATA for `size` more bytes of this kind; `freed`: bytes that go away. */
MUST_CHECK bool mm_may_expand(const struct mm *mm, const struct mm_limits *limits, int prot,
                              int flags, bool is_stack, uint64_t size, uint64_t freed);
bool mm_count_allows(const struct mm *mm, size_t more);
/* mmap.c: the body of munmap(2), within mm_begin(). */
MUST_CHECK int mm_unmap_locked(struct mm *mm, struct platform_thread *pt, uint64_t start,
                               uint64_t end);
