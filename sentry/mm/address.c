/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where things go: address choice as Linux does it on x86-64 (top-down below a random base, hints,
 * guard gaps, huge-page alignment), and the random layout of a new image. Under order_lock.
 * Sources: mmap(2), Linux mm/mmap.c, arch/x86/mm/mmap.c, mm/huge_memory.c and fs/binfmt_elf.c for
 * behaviour.
 */
#include "sentry/mm/mm_private.h"

#include "base/host.h"
#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define STACK_RANDOM_PAGES 0x400000ULL /* 16 GiB */
#define MMAP_RANDOM_PAGES  (1ULL << 28)
#define MMAP_GAP_MIN       MIB(128)
#define BRK_RANDOM         GIB(1)
#define LOW_32BIT          0x40000000ULL /* MAP_32BIT: the second GiB */
#define HIGH_32BIT         0x80000000ULL

/* #syscalls getrandom: address space layout of guests */
uint64_t address_random(uint64_t limit)
{
    uint64_t value = 0;
    /* A failure leaves 0: a poor address, no harm to us. */
    (void)host_call3(SYS_getrandom, &value, sizeof(value), 0);
    return limit != 0 ? value % limit : 0;
}

static uint64_t task_end(const struct mm *mm)
{
    return mm->info->max_addr.va;
}

static bool hint_is_good(const struct mm *mm, uint64_t hint, uint64_t size, uint64_t end)
{
    if (hint == 0 || hint < mm->info->min_addr.va || size > end || hint > end - size)
        return false;
    const struct vma *v = tree_find(mm, hint);
    return v == NULL || hint + size <= vma_gap_top(v);
}

static uint64_t search_bottom_up(const struct mm *mm, uint64_t size)
{
    return tree_gap_bottom_up(mm, size, PAGE_DOWN(task_end(mm) / 3), task_end(mm));
}

static uint64_t search(const struct mm *mm, uint64_t size)
{
    uint64_t found = tree_gap_top_down(mm, size, mm->info->min_addr.va, mm->mmap_base);
    return found != 0 ? found : search_bottom_up(mm, size);
}

/* Lengths that are multiples of a huge page get an aligned place; 0: there is none. */
static uint64_t search_huge(const struct mm *mm, uint64_t size)
{
    uint64_t found = search(mm, size + MM_HUGE_PAGE);
    if (found == 0)
        return 0;
    uint64_t off = found % MM_HUGE_PAGE;
    return off == 0 ? found + MM_HUGE_PAGE : found + (MM_HUGE_PAGE - off);
}

int64_t address_choose(const struct mm *mm, uint64_t hint, uint64_t size, int flags, bool is_anon)
{
    uint64_t end = task_end(mm), found = 0;
    if (size > end)
        return -ENOMEM;
    if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0) {
        if ((hint & ~PAGE_MASK) != 0)
            return -EINVAL;
        if (hint > end - size)
            return -ENOMEM;
        return hint < mm->info->min_addr.va ? -EPERM : (int64_t)hint;
    }
    hint = PAGE_DOWN(hint);
    if (hint != 0 && hint < mm->info->min_addr.va)
        hint = PAGE_UP(mm->info->min_addr.va);
    if ((flags & MAP_32BIT) != 0) {
        if (hint_is_good(mm, hint, size, HIGH_32BIT))
            return (int64_t)hint;
        uint64_t low = LOW_32BIT + (mm->no_random ? 0 : PAGE_DOWN(address_random(MIB(32))));
        found = tree_gap_bottom_up(mm, size, low, HIGH_32BIT);
        return found != 0 ? (int64_t)found : -ENOMEM;
    }
    if (hint_is_good(mm, hint, size, end))
        return (int64_t)hint;
    if (is_anon && hint == 0 && size % MM_HUGE_PAGE == 0)
        found = search_huge(mm, size);
    if (found == 0)
        found = search(mm, size);
    return found != 0 ? (int64_t)found : -ENOMEM;
}

/* ---- exec ---------------------------------------------------------------------------------------
 */

void mm_exec_no_random(struct mm *mm)
{
    mm->no_random = true;
}

uint64_t mm_exec_layout(struct mm *mm, uint64_t stack_limit)
{
    uint64_t end = task_end(mm), random_span = STACK_RANDOM_PAGES * PAGE_SIZE;
    uint64_t top = end, base_random = 0;
    uint64_t gap = PAGE_UP(stack_limit < end ? stack_limit : end) + MM_STACK_GUARD;
    if (!mm->no_random) {
        top -= address_random(STACK_RANDOM_PAGES) * PAGE_SIZE;
        base_random = address_random(MMAP_RANDOM_PAGES) * PAGE_SIZE;
        gap += random_span;
    }
    if (gap < MMAP_GAP_MIN)
        gap = MMAP_GAP_MIN;
    if (gap > end / 6 * 5)
        gap = end / 6 * 5;
    mm->mmap_base = PAGE_DOWN(end - gap - base_random);
    mm->stack_top = top;
    return top;
}

uint64_t mm_exec_choose_base(struct mm *mm, uint64_t span, uint64_t align, bool is_interpreter)
{
    uint64_t end = task_end(mm), base;
    if (align < PAGE_SIZE || align > end)
        align = PAGE_SIZE;
    if (!is_interpreter) {
        base = PAGE_DOWN(end / 3 * 2);
        if (!mm->no_random)
            base += address_random(MMAP_RANDOM_PAGES) * PAGE_SIZE;
        base -= base % align;
        if (span <= end && base <= end - span && tree_is_free(mm, base, base + span))
            return base;
    }
    if (span > end - align)
        return 0;
    base = search(mm, PAGE_UP(span) + align - PAGE_SIZE);
    return base != 0 ? (base + align - 1) / align * align : 0;
}

uint64_t mm_random_brk(const struct mm *mm, uint64_t brk)
{
    return mm->no_random ? brk : brk + PAGE_DOWN(address_random(BRK_RANDOM));
}
