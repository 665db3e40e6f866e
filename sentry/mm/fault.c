/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Faults of guest code that the host reported: stacks that grow, races that were lost against
 * another thread's order, and what becomes a signal. Runs on the faulting task's fiber; the event
 * is the platform's report, of which the guest may have forged every field: it decides only about
 * its own space.
 */
#include "sentry/mm/mm_private.h"

#include <errno.h>
#include <signal.h>
#include <sys/mman.h>

#define RETRIES_MAX 16

static bool may_grow_to(const struct mm *mm, const struct vma *v, uint64_t start,
                        const struct mm_limits *limits)
{
    uint64_t more = v->start - start;
    if (start < mm->info->min_addr.va || v->end - start > limits->stack)
        return false;
    if (!mm_may_expand(mm, limits, v->prot, v->flags, true, more, 0))
        return false;
    if (v->is_locked && (more > limits->locked || mm->counts.locked > limits->locked - more))
        return false;
    const struct vma *below = tree_prev(mm, v);
    if (below == NULL)
        return true;
    bool needs_guard =
        below->prot != PROT_NONE && !below->is_stack && (below->flags & MAP_GROWSDOWN) == 0;
    return below->end + (needs_guard ? MM_STACK_GUARD : 0) <= start;
}

/* True when the stack now reaches `addr`. */
static bool grow_stack(struct mm *mm, struct platform_thread *pt, struct vma *v, uint64_t addr,
                       const struct mm_limits *limits)
{
    uint64_t start = PAGE_DOWN(addr);
    if ((!v->is_stack && (v->flags & MAP_GROWSDOWN) == 0) || !may_grow_to(mm, v, start, limits))
        return false;
    const struct platform_order order = {.kind = PLATFORM_ORDER_MAP_ANON,
                                         .addr = GUEST_ADDR(start),
                                         .size = v->start - start,
                                         .prot = v->prot,
                                         .flags = MAP_PRIVATE | (v->flags & MAP_NORESERVE),
                                         .hfd = -1};
    /* Executed: a failure becomes a signal here, while a queued one would spoil a register. */
    if (mm_execute(mm, pt, &order, 1, NULL) < 0)
        return false;
    mm_tree_begin(mm);
    tree_extend_down(mm, v, start);
    mm_tree_end(mm);
    return true;
}

/* x86-64 can't withhold reading from what may be written or executed. */
static bool prot_allows(int prot, const struct platform_event *event)
{
    if (event->is_write)
        return (prot & PROT_WRITE) != 0;
    if (event->is_exec)
        return (prot & PROT_EXEC) != 0;
    return prot != PROT_NONE;
}

/* The tree allows what the host refused: another thread's order came in between. Not for ever,
 * since the host may really disagree. */
static bool may_retry(struct mm *mm, uint64_t addr)
{
    if (mm->retry_addr != addr) {
        mm->retry_addr = addr;
        mm->retry_count = 0;
    }
    return ++mm->retry_count <= RETRIES_MAX;
}

static int fault_locked(struct mm *mm, struct platform_thread *pt,
                        const struct platform_event *event, const struct mm_limits *limits,
                        int *ret_code)
{
    uint64_t addr = event->addr.va;
    struct vma *v = tree_find(mm, addr);
    if (v == NULL || v->start > addr) {
        if (v != NULL && grow_stack(mm, pt, v, addr, limits))
            return 0;
        *ret_code = SEGV_MAPERR;
        return SIGSEGV;
    }
    if (prot_allows(v->prot, event) && may_retry(mm, addr))
        return 0;
    *ret_code = SEGV_ACCERR;
    return SIGSEGV;
}

int mm_fault(struct mm *mm, struct platform_thread *pt, const struct platform_event *event,
             uint64_t stack_pointer, const struct mm_limits *limits, int *ret_code)
{
    (void)stack_pointer; /* Linux no longer looks at it, since 5.0 */
    *ret_code = event->code;
    bool is_page_fault = event->code == SEGV_MAPERR || event->code == SEGV_ACCERR;
    if (event->signo != SIGSEGV || !is_page_fault || event->addr.va >= mm->info->max_addr.va)
        return event->signo;
    if (mm_begin(mm) < 0)
        return SIGSEGV; /* being killed anyway */
    int r = fault_locked(mm, pt, event, limits, ret_code);
    mm_end(mm);
    return r;
}

void mm_stack_limit_changed(struct mm *mm, struct platform_thread *pt, uint64_t limit,
                            uint64_t stack_pointer)
{
    if (mm_begin(mm) < 0)
        return;
    for (const struct vma *v = tree_find(mm, 0); v != NULL; v = tree_next(v)) {
        if (!v->is_stack)
            continue;
        uint64_t keep = v->end - v->start > limit ? v->end - PAGE_UP(limit) : v->start;
        /* What is in use stays; so does what another thread's pointer can't tell us of. */
        if (stack_pointer >= v->start && stack_pointer < v->end &&
            keep > PAGE_DOWN(stack_pointer) - PAGE_SIZE)
            keep = PAGE_DOWN(stack_pointer) - PAGE_SIZE;
        if (keep > v->start && mm_unmap_locked(mm, pt, v->start, keep) < 0)
            break; /* the stack only stays larger */
        break;
    }
    mm_end(mm);
}
