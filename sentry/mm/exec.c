/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The mappings of a new image, made with one execution of orders on a fresh space. Runs on the
 * fiber of the task that calls execve(2). The plan is the loader's: checked there, but built from a
 * hostile file.
 */
#include "sentry/mm/mm_private.h"

#include "sentry/mm/uaccess.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define STACK_SIZE_MIN KIB(128)
#define STACK_SIZE_MAX                                                                             \
    GIB(1) /* with an unlimited RLIMIT_STACK; beyond it the stack grows on faults */

static int segment_order(const struct mm_exec_segment *s, struct platform_order *ret)
{
    *ret = (struct platform_order){.kind = PLATFORM_ORDER_MAP_ANON,
                                   .addr = GUEST_ADDR(s->addr),
                                   .size = s->size,
                                   .prot = s->prot,
                                   .flags = MAP_PRIVATE,
                                   .hfd = -1};
    if (s->object == NULL)
        return 0;
    int hfd;
    uint64_t host_offset = 0;
    int r = s->object->ops->map(s->object, s->offset, s->size, s->prot, MAP_PRIVATE, &hfd,
                                &host_offset);
    if (r < 0 || hfd < 0)
        return r;
    ret->kind = PLATFORM_ORDER_MAP_FILE;
    ret->hfd = hfd;
    ret->offset = host_offset;
    return 0;
}

static void insert_segment(struct mm *mm, const struct mm_exec_segment *s)
{
    const struct vma v = {.start = s->addr,
                          .end = s->addr + s->size,
                          .prot = s->prot,
                          .max_prot = s->prot | PROT_READ | PROT_WRITE,
                          .flags = MAP_PRIVATE,
                          .offset = s->object != NULL ? s->offset : 0,
                          .object = s->object};
    mm_tree_begin(mm);
    tree_clear(mm, v.start, v.end);
    tree_insert(mm, &v);
    mm_tree_end(mm);
}

/* The main stack: whole, below the guest's highest address that mm_exec_layout() gave. */
static struct vma stack_vma(const struct mm *mm, const struct mm_exec *exec)
{
    uint64_t size = PAGE_UP(exec->stack_size < STACK_SIZE_MAX ? exec->stack_size : STACK_SIZE_MAX);
    if (size < STACK_SIZE_MIN)
        size = STACK_SIZE_MIN;
    int prot = PROT_READ | PROT_WRITE | (exec->exec_stack ? PROT_EXEC : 0);
    return (struct vma){.start = mm->stack_top - size,
                        .end = mm->stack_top,
                        .prot = prot,
                        .max_prot = prot,
                        .flags = MAP_PRIVATE,
                        .is_stack = true};
}

static bool segment_is_sane(const struct mm *mm, const struct mm_exec_segment *s)
{
    uint64_t end;
    return s->size != 0 && ((s->addr | s->size) & ~PAGE_MASK) == 0 &&
           !__builtin_add_overflow(s->addr, s->size, &end) && s->addr >= mm->info->min_addr.va &&
           end <= mm->info->max_addr.va;
}

static int map_all(struct mm *mm, struct platform_thread *pt, const struct mm_exec *exec)
{
    struct platform_order *orders = calloc(exec->count + 1, sizeof(*orders));
    if (orders == NULL)
        return -ENOMEM;
    int r = 0;
    for (size_t i = 0; i < exec->count && r == 0; i++)
        r = segment_is_sane(mm, &exec->segments[i]) ? segment_order(&exec->segments[i], &orders[i])
                                                    : -ENOMEM;
    const struct vma stack = stack_vma(mm, exec);
    orders[exec->count] = (struct platform_order){.kind = PLATFORM_ORDER_MAP_ANON,
                                                  .addr = GUEST_ADDR(stack.start),
                                                  .prot = stack.prot,
                                                  .size = stack.end - stack.start,
                                                  .flags = MAP_PRIVATE | MAP_NORESERVE | MAP_STACK,
                                                  .hfd = -1};
    if (r == 0)
        r = mm_execute(mm, pt, orders, exec->count + 1, NULL);
    free(orders);
    for (size_t i = 0; i < exec->count && r == 0; i++) {
        r = tree_stock(mm, MM_SPARE_NODES);
        if (r == 0)
            insert_segment(mm, &exec->segments[i]);
    }
    if (r == 0)
        r = tree_stock(mm, MM_SPARE_NODES);
    if (r < 0)
        return r;
    mm_tree_begin(mm);
    tree_clear(mm, stack.start, stack.end);
    tree_insert(mm, &stack);
    mm_tree_end(mm);
    return 0;
}

/* Linux ignores failures here where the page can't be written. */
static int clear_tails(struct mm *mm, const struct mm_exec *exec)
{
    for (size_t i = 0; i < exec->count; i++) {
        const struct mm_exec_segment *s = &exec->segments[i];
        uint64_t end = s->addr + s->size;
        if (s->zero_from == 0 || s->zero_from <= s->addr || s->zero_from >= end ||
            (s->prot & PROT_WRITE) == 0)
            continue;
        int r = clear_out(mm, GUEST_ADDR(s->zero_from), end - s->zero_from);
        if (r < 0)
            return r;
    }
    return 0;
}

int mm_exec_map(struct mm *mm, struct platform_thread *pt, const struct mm_exec *exec)
{
    int r = mm_begin(mm);
    if (r < 0)
        return r;
    r = map_all(mm, pt, exec);
    if (r == 0) {
        uint64_t brk = mm_random_brk(mm, PAGE_UP(exec->brk));
        mm->layout.start_brk = mm->layout.brk = brk;
    }
    mm_end(mm);
    return r == 0 ? clear_tails(mm, exec) : r;
}
