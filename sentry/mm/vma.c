/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tree of VMAs: ordered by address, each node knows the free bytes below it and the largest
 * such gap of its subtree, so that places are found in logarithmic time. Neighbours that Linux
 * could join are joined, at least as eagerly as the host does it. Callers hold the locks that
 * mm_private.h names; nothing here fails or sleeps, except tree_stock() and the last clean-up.
 */
#include "sentry/mm/mm_private.h"

#define LOG_MODULE "mm"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* sys/tree.h calls this where it rotates. */
static void augment(struct vma *v);
#undef RB_AUGMENT
#define RB_AUGMENT(v) augment(v)

int vma_compare(const struct vma *a, const struct vma *b)
{
    return a->start < b->start ? -1 : a->start > b->start;
}

RB_GENERATE(vma_tree, vma, node, vma_compare)

static void augment(struct vma *v)
{
    if (v == NULL)
        return;
    uint64_t most = v->gap;
    const struct vma *left = RB_LEFT(v, node), *right = RB_RIGHT(v, node);
    if (left != NULL && left->max_gap > most)
        most = left->max_gap;
    if (right != NULL && right->max_gap > most)
        most = right->max_gap;
    v->max_gap = most;
}

static void augment_up(struct vma *v)
{
    for (; v != NULL; v = RB_PARENT(v, node))
        augment(v);
}

/* ---- looking ------------------------------------------------------------------------------------
 */

struct vma *tree_find(const struct mm *mm, uint64_t addr)
{
    struct vma *v = RB_ROOT(&mm->tree), *best = NULL;
    while (v != NULL) {
        if (v->end > addr) {
            best = v;
            v = RB_LEFT(v, node);
        } else {
            v = RB_RIGHT(v, node);
        }
    }
    return best;
}

struct vma *tree_next(const struct vma *v)
{
    struct vma *next = RB_RIGHT(v, node);
    if (next != NULL) {
        while (RB_LEFT(next, node) != NULL)
            next = RB_LEFT(next, node);
        return next;
    }
    next = RB_PARENT(v, node);
    for (; next != NULL && v == RB_RIGHT(next, node); next = RB_PARENT(next, node))
        v = next;
    return next;
}

struct vma *tree_prev(const struct mm *mm, const struct vma *v)
{
    struct vma *prev = v != NULL ? RB_LEFT(v, node) : RB_ROOT(&mm->tree);
    if (prev != NULL) {
        while (RB_RIGHT(prev, node) != NULL)
            prev = RB_RIGHT(prev, node);
        return prev;
    }
    if (v == NULL)
        return NULL;
    prev = RB_PARENT(v, node);
    for (; prev != NULL && v == RB_LEFT(prev, node); prev = RB_PARENT(prev, node))
        v = prev;
    return prev;
}

bool tree_is_free(const struct mm *mm, uint64_t start, uint64_t end)
{
    const struct vma *v = tree_find(mm, start);
    return v == NULL || v->start >= end;
}

bool tree_is_covered(const struct mm *mm, uint64_t start, uint64_t end)
{
    for (const struct vma *v = tree_find(mm, start); v != NULL && v->start <= start;
         v = tree_next(v)) {
        if (v->end >= end)
            return true;
        start = v->end;
    }
    return false;
}

uint64_t tree_mapped(const struct mm *mm, uint64_t start, uint64_t end)
{
    uint64_t sum = 0;
    for (const struct vma *v = tree_find(mm, start); v != NULL && v->start < end; v = tree_next(v))
        sum += (v->end < end ? v->end : end) - (v->start > start ? v->start : start);
    return sum;
}

bool tree_clear_splits(const struct mm *mm, uint64_t start, uint64_t end)
{
    const struct vma *v = tree_find(mm, start);
    return v != NULL && v->start < start && v->end > end;
}

enum vma_kind vma_kind_of(const struct vma *v)
{
    return v->object != NULL ? VMA_FILE : VMA_ANON;
}

uint64_t vma_gap_top(const struct vma *v)
{
    if (!v->is_stack && (v->flags & MAP_GROWSDOWN) == 0)
        return v->start;
    return v->start > MM_STACK_GUARD ? v->start - MM_STACK_GUARD : 0;
}

/* ---- accounts -----------------------------------------------------------------------------------
 */

static bool grows_down(const struct vma *v)
{
    return v->is_stack || (v->flags & MAP_GROWSDOWN) != 0;
}

static void adjust(uint64_t *sum, uint64_t size, bool add)
{
    *sum = add ? *sum + size : *sum - size;
}

/* Which totals `v` belongs to: as vm_stat_account() of Linux. */
static void account(struct mm *mm, const struct vma *v, bool add)
{
    if (v->is_special)
        return;
    struct mm_counts *c = &mm->counts;
    uint64_t size = v->end - v->start;
    bool is_private = (v->flags & MAP_TYPE) == MAP_PRIVATE;
    adjust(&c->total, size, add);
    if (grows_down(v))
        adjust(&c->stack, size, add);
    else if ((v->prot & PROT_EXEC) != 0 && (v->prot & PROT_WRITE) == 0)
        adjust(&c->exec, size, add);
    else if ((v->prot & PROT_WRITE) != 0 && is_private)
        adjust(&c->data, size, add);
    if (v->object != NULL)
        adjust(&c->shared_file, size, add);
    if (v->is_locked)
        adjust(&c->locked, size, add);
    if (c->total > c->peak_total)
        c->peak_total = c->total;
}

static void count_shared_write(const struct vma *v, bool add)
{
    /* Not the mapping's first VMA where it adds, so it isn't refused (see mappable_ops). */
    if (v->is_shared_write && v->object->ops->shared_write != NULL)
        (void)v->object->ops->shared_write(v->object, add);
}

static void hold_object(const struct vma *v)
{
    if (v->object == NULL)
        return;
    v->object->ops->get(v->object);
    count_shared_write(v, true);
}

/* ---- nodes --------------------------------------------------------------------------------------
 */

static struct vma *pop(struct vma **list)
{
    struct vma *v = *list;
    if (v != NULL)
        *list = v->node.rbe_left;
    return v;
}

static void push(struct vma **list, struct vma *v)
{
    v->node.rbe_left = *list;
    *list = v;
}

int tree_stock(struct mm *mm, size_t nodes)
{
    while (mm->spare_count < nodes) {
        struct vma *v = malloc(sizeof(*v));
        if (v == NULL)
            return -ENOMEM;
        push(&mm->spare, v);
        mm->spare_count++;
    }
    return 0;
}

static struct vma *take_spare(struct mm *mm)
{
    struct vma *v = pop(&mm->spare);
    ASSERT(v != NULL); /* mm_begin() stocked enough */
    mm->spare_count--;
    return v;
}

void vma_dispose(struct vma *list)
{
    struct vma *v;
    while ((v = pop(&list)) != NULL) {
        if (v->object != NULL)
            v->object->ops->put(v->object);
        free(v);
    }
}

/* The node's own gap, and with it the maxima above it. */
static void refresh(struct mm *mm, struct vma *v)
{
    if (v == NULL)
        return;
    const struct vma *prev = tree_prev(mm, v);
    uint64_t low = prev != NULL ? prev->end : 0, top = vma_gap_top(v);
    v->gap = top > low ? top - low : 0;
    augment_up(v);
}

static void link_node(struct mm *mm, struct vma *v)
{
    v->gap = v->max_gap = 0;
    struct vma *twin = RB_INSERT(vma_tree, &mm->tree, v);
    ASSERT(twin == NULL);
    mm->vma_count++;
    account(mm, v, true);
    refresh(mm, v);
    refresh(mm, tree_next(v));
}

/* Takes `v` out; its object stays referenced by whoever disposes of it. */
static void unlink_node(struct mm *mm, struct vma *v)
{
    struct vma *next = tree_next(v);
    struct vma *lowest = RB_PARENT(v, node); /* from here up the maxima are stale */
    if (RB_LEFT(v, node) != NULL && RB_RIGHT(v, node) != NULL)
        lowest = RB_PARENT(next, node) == v ? next : RB_PARENT(next, node);
    account(mm, v, false);
    RB_REMOVE(vma_tree, &mm->tree, v);
    mm->vma_count--;
    augment_up(lowest);
    refresh(mm, next);
}

static void retire(struct mm *mm, struct vma *v)
{
    unlink_node(mm, v);
    count_shared_write(v, false);
    push(&mm->dead, v);
}

static void resize(struct mm *mm, struct vma *v, uint64_t start, uint64_t end)
{
    account(mm, v, false);
    if (v->object != NULL)
        v->offset += start - v->start; /* wraps back where it grows downwards */
    v->start = start;
    v->end = end;
    account(mm, v, true);
    refresh(mm, v);
    refresh(mm, tree_next(v));
}

/* Cuts `v` at `at`; returns the upper part. */
static struct vma *split(struct mm *mm, struct vma *v, uint64_t at)
{
    struct vma *upper = take_spare(mm);
    *upper = *v;
    upper->start = at;
    if (upper->object != NULL)
        upper->offset += at - v->start;
    resize(mm, v, v->start, at);
    hold_object(upper);
    link_node(mm, upper);
    return upper;
}

/* ---- joining ------------------------------------------------------------------------------------
 */

static bool can_join(const struct vma *a, const struct vma *b)
{
    if (a->end != b->start || a->prot != b->prot || a->flags != b->flags || a->object != b->object)
        return false;
    if (a->object != NULL && b->offset != a->offset + (a->end - a->start))
        return false;
    return a->is_stack == b->is_stack && a->is_locked == b->is_locked &&
           a->dont_fork == b->dont_fork && a->wipe_on_fork == b->wipe_on_fork &&
           a->dont_dump == b->dont_dump && !a->is_special && !b->is_special &&
           strcmp(a->name, b->name) == 0;
}

/* Joins `v` with what lies below it, if they fit; returns the node that now holds v's range. */
static struct vma *join_below(struct mm *mm, struct vma *v)
{
    struct vma *below = tree_prev(mm, v);
    if (below == NULL || !can_join(below, v))
        return v;
    uint64_t end = v->end;
    below->max_prot &= v->max_prot; /* for more the object is asked again */
    if (v->is_shared_write && !below->is_shared_write) {
        below->is_shared_write = true;
        count_shared_write(below, true);
    }
    retire(mm, v);
    resize(mm, below, below->start, end);
    return below;
}

/* ---- changing -----------------------------------------------------------------------------------
 */

void tree_clear(struct mm *mm, uint64_t start, uint64_t end)
{
    struct vma *v = tree_find(mm, start);
    if (v != NULL && v->start < start) {
        if (v->end > end)
            (void)split(mm, v, end);
        struct vma *next = tree_next(v);
        resize(mm, v, v->start, start);
        v = next;
    }
    while (v != NULL && v->start < end) {
        struct vma *next = tree_next(v);
        if (v->end > end) {
            resize(mm, v, end, v->end);
            break;
        }
        retire(mm, v);
        v = next;
    }
}

void tree_insert(struct mm *mm, const struct vma *template)
{
    struct vma *v = take_spare(mm);
    *v = *template;
    hold_object(v);
    link_node(mm, v);
    v = join_below(mm, v);
    struct vma *above = tree_next(v);
    if (above != NULL)
        (void)join_below(mm, above);
}

static void change_one(struct mm *mm, struct vma *v, void (*change)(struct vma *v, const void *arg),
                       const void *arg)
{
    account(mm, v, false);
    bool was_shared_write = v->is_shared_write;
    change(v, arg);
    if (!was_shared_write && v->is_shared_write)
        count_shared_write(v, true);
    account(mm, v, true);
}

void tree_change(struct mm *mm, uint64_t start, uint64_t end,
                 void (*change)(struct vma *v, const void *arg), const void *arg)
{
    struct vma *v = tree_find(mm, start);
    if (v != NULL && v->start < start)
        v = split(mm, v, start);
    for (; v != NULL && v->start < end; v = tree_next(v)) {
        if (v->end > end)
            (void)split(mm, v, end);
        change_one(mm, v, change, arg);
        v = join_below(mm, v);
    }
    if (v != NULL)
        (void)join_below(mm, v);
}

void tree_extend_down(struct mm *mm, struct vma *v, uint64_t start)
{
    resize(mm, v, start, v->end);
}

void tree_fini(struct mm *mm)
{
    struct vma *v;
    while ((v = RB_ROOT(&mm->tree)) != NULL)
        retire(mm, v);
    struct vma *dead = mm->dead;
    mm->dead = NULL;
    vma_dispose(dead);
    while ((v = pop(&mm->spare)) != NULL)
        free(v);
}

/* ---- gaps ---------------------------------------------------------------------------------------
 */

struct gap_search {
    const struct mm *mm;
    uint64_t size, low, high;
};

/* The gap below `v`, clipped to the search's window. */
static bool gap_fits(const struct gap_search *s, const struct vma *v, uint64_t *ret_low,
                     uint64_t *ret_high)
{
    if (v->gap < s->size)
        return false;
    uint64_t high = vma_gap_top(v), low = high - v->gap;
    *ret_low = low > s->low ? low : s->low;
    *ret_high = high < s->high ? high : s->high;
    return *ret_high > *ret_low && *ret_high - *ret_low >= s->size;
}

/* Recursion is as deep as the tree: 2 log2(MM_MAP_COUNT_MAX). */
static uint64_t search_down(const struct gap_search *s, const struct vma *v)
{
    uint64_t found, low, high;
    if (v == NULL || v->max_gap < s->size)
        return 0;
    if (v->end < s->high && (found = search_down(s, RB_RIGHT(v, node))) != 0)
        return found;
    if (gap_fits(s, v, &low, &high))
        return high - s->size;
    return v->start > s->low ? search_down(s, RB_LEFT(v, node)) : 0;
}

static uint64_t search_up(const struct gap_search *s, const struct vma *v)
{
    uint64_t found, low, high;
    if (v == NULL || v->max_gap < s->size)
        return 0;
    if (v->start > s->low && (found = search_up(s, RB_LEFT(v, node))) != 0)
        return found;
    if (gap_fits(s, v, &low, &high))
        return low;
    return v->end < s->high ? search_up(s, RB_RIGHT(v, node)) : 0;
}

/* The free space above the last VMA. */
static bool top_gap_fits(const struct gap_search *s, uint64_t *ret_low)
{
    const struct vma *last = tree_prev(s->mm, NULL);
    *ret_low = last != NULL && last->end > s->low ? last->end : s->low;
    return s->high > *ret_low && s->high - *ret_low >= s->size;
}

uint64_t tree_gap_top_down(const struct mm *mm, uint64_t size, uint64_t low, uint64_t high)
{
    const struct gap_search s = {mm, size, low, high};
    uint64_t top_low;
    if (top_gap_fits(&s, &top_low))
        return high - size;
    return search_down(&s, RB_ROOT(&mm->tree));
}

uint64_t tree_gap_bottom_up(const struct mm *mm, uint64_t size, uint64_t low, uint64_t high)
{
    const struct gap_search s = {mm, size, low, high};
    uint64_t found = search_up(&s, RB_ROOT(&mm->tree)), top_low;
    if (found != 0)
        return found;
    return top_gap_fits(&s, &top_low) ? top_low : 0;
}
