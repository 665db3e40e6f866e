/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The region of stacks and its pool. Any host thread. Slots are made usable in chunks as they're needed
 * and never unmapped; the pool keeps the last HOT_MAX returned ones as they are (first out: the hottest)
 * and gives the memory of others back to the host.
 */
#include "sentry/sched/stack.h"

#include "base/host.h"
#include "base/lock.h"
#define LOG_MODULE "sched"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* #syscalls mprotect,madvise: stacks get usable in chunks; unused ones give their memory back (mmap and
 * munmap come before lockdown) */

#ifndef MADV_GUARD_INSTALL
#define MADV_GUARD_INSTALL 102 /* Linux 6.13: a guard without a mapping of its own */
#endif

#define CHUNK   16u /* slots made usable at once */
#define HOT_MAX 24u

static uintptr_t g_region; /* immutable after init, like the next one */
static struct fiber_stack *g_records;

static struct {
    struct lock lock;
    /* protected by lock: */
    struct fiber_stack_list hot, cold;
    unsigned hot_count;
    unsigned made; /* slots 0 .. made-1 are usable */
    bool guards_by_mprotect;
    TAILQ_HEAD(, fiber) waiting; /* fibers without a stack, linked by `runnable` */
    _Atomic bool is_wanted;      /* `waiting` is not empty; read without the lock as a hint */
} g_pool = {.lock = LOCK_INITIALIZER};

static long host_mmap(size_t size, int protection)
{
    return host_call6(SYS_mmap, NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1, 0);
}

int stack_region_init(void)
{
    size_t size = (size_t)STACK_COUNT * STACK_SLOT;
    long records = host_mmap(STACK_COUNT * sizeof(struct fiber_stack), PROT_READ | PROT_WRITE);
    if (records < 0 && records > -4096)
        return (int)records;
    long region = host_mmap(size + STACK_SLOT, PROT_NONE);
    if (region < 0 && region > -4096) {
        (void)host_call2(SYS_munmap, records, STACK_COUNT * sizeof(struct fiber_stack));
        return (int)region;
    }
    uintptr_t start = ((uintptr_t)region + STACK_SLOT - 1) & ~(STACK_SLOT - 1);
    (void)host_call3(SYS_madvise, start, size, MADV_NOHUGEPAGE);
    TAILQ_INIT(&g_pool.waiting);
    g_records = (struct fiber_stack *)records; // NOLINT: the kernel's result
    g_region = start;
    return 0;
}

static uintptr_t slot_address(const struct fiber_stack *s)
{
    return g_region + (uintptr_t)(s - g_records) * STACK_SLOT;
}

void *stack_bottom(const struct fiber_stack *s)
{
    return (void *)(slot_address(s) + STACK_SLOT - STACK_SIZE);
}

/* hot */
struct fiber_stack *stack_here(void)
{
    uintptr_t offset = (uintptr_t)__builtin_frame_address(0) - g_region;
    if (!g_region || offset >= (uintptr_t)STACK_COUNT * STACK_SLOT)
        return NULL;
    return &g_records[offset / STACK_SLOT];
}

static int install_guard(const struct fiber_stack *s)
{
    uintptr_t slot = slot_address(s);
    if (!g_pool.guards_by_mprotect) {
        long r = host_call3(SYS_madvise, slot, STACK_SLOT - STACK_SIZE, MADV_GUARD_INSTALL);
        if (r == 0)
            return 0;
        g_pool.guards_by_mprotect = true;
    }
    return (int)host_call3(SYS_mprotect, slot, STACK_SLOT - STACK_SIZE, PROT_NONE);
}

/* Makes the next chunk usable; its stacks become cold ones. */
static void pool_grow_locked(void) REQUIRES(&g_pool.lock)
{
    if (g_pool.made + CHUNK > STACK_COUNT)
        return;
    uintptr_t start = slot_address(&g_records[g_pool.made]);
    long r = host_call3(SYS_mprotect, start, CHUNK * STACK_SLOT, PROT_READ | PROT_WRITE);
    if (r < 0)
        return;
    unsigned end = g_pool.made + CHUNK;
    while (g_pool.made < end) {
        struct fiber_stack *s = &g_records[g_pool.made];
        if (install_guard(s) < 0)
            return; /* the slots that are left are tried again: RW without a guard is never handed out */
        g_pool.made++;
        SLIST_INSERT_HEAD(&g_pool.cold, s, free);
    }
}

struct fiber_stack *stack_get(struct fiber *f)
{
    lock_acquire(&g_pool.lock);
    if (SLIST_EMPTY(&g_pool.hot) && SLIST_EMPTY(&g_pool.cold))
        pool_grow_locked();
    struct fiber_stack *s = SLIST_FIRST(&g_pool.hot);
    if (s) {
        SLIST_REMOVE_HEAD(&g_pool.hot, free);
        g_pool.hot_count--;
    } else if ((s = SLIST_FIRST(&g_pool.cold))) {
        SLIST_REMOVE_HEAD(&g_pool.cold, free);
    } else if (f) {
        TAILQ_INSERT_TAIL(&g_pool.waiting, f, runnable);
        atomic_store_explicit(&g_pool.is_wanted, true, memory_order_relaxed);
    }
    lock_release(&g_pool.lock);
    return s;
}

struct fiber *stack_put(struct fiber_stack *s)
{
    s->fiber = NULL;
    s->epilogue = NULL;
    lock_acquire(&g_pool.lock);
    bool is_hot = g_pool.hot_count < HOT_MAX || !TAILQ_EMPTY(&g_pool.waiting);
    if (is_hot) {
        SLIST_INSERT_HEAD(&g_pool.hot, s, free);
        g_pool.hot_count++;
    }
    struct fiber *f = TAILQ_FIRST(&g_pool.waiting);
    if (f)
        TAILQ_REMOVE(&g_pool.waiting, f, runnable);
    atomic_store_explicit(&g_pool.is_wanted, !TAILQ_EMPTY(&g_pool.waiting), memory_order_relaxed);
    lock_release(&g_pool.lock);
    if (is_hot)
        return f;

    (void)host_call3(SYS_madvise, stack_bottom(s), STACK_SIZE, MADV_DONTNEED);
    lock_acquire(&g_pool.lock);
    SLIST_INSERT_HEAD(&g_pool.cold, s, free);
    lock_release(&g_pool.lock);
    return f;
}

bool stack_is_wanted(void)
{
    return atomic_load_explicit(&g_pool.is_wanted, memory_order_relaxed);
}

/* SAFETY: the layout is what stack_switch() pops: mxcsr and x87 control word, r15 r14 r13 r12 rbx rbp, the
 * address to return to. Above it one word, so that rsp is 16-aligned in stack_begin. */
void *stack_prepare(struct fiber_stack *s)
{
    uint64_t *top = (uint64_t *)((uintptr_t)stack_bottom(s) + STACK_SIZE);
    uint64_t *sp = top - 10;
    memset(sp, 0, 10 * sizeof(*sp));
    uint32_t mxcsr = 0x1f80; /* the ABI's initial values: all exceptions masked, round to nearest */
    uint16_t x87_control = 0x37f;
    memcpy(sp, &mxcsr, sizeof(mxcsr));
    memcpy((char *)sp + 4, &x87_control, sizeof(x87_control));
    sp[4] = (uint64_t)(uintptr_t)s; /* r12 */
    sp[7] = (uint64_t)(uintptr_t)stack_begin;
    return sp;
}

bool fiber_report_overflow(const void *fault_addr)
{
    uintptr_t offset = (uintptr_t)fault_addr - g_region;
    if (!g_region || offset >= (uintptr_t)STACK_COUNT * STACK_SLOT)
        return false;
    if (offset % STACK_SLOT >= STACK_SLOT - STACK_SIZE)
        return false;
    const struct fiber_stack *s = &g_records[offset / STACK_SLOT];
    log_err("stack overflow in %s %s", s->fiber ? "fiber" : "the loop of a worker",
            s->fiber ? s->fiber->name : "");
    return true;
}
