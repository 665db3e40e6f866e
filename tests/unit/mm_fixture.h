/* SPDX-License-Identifier: Apache-2.0 */
/* One fake guest for the directed tests of sentry/mm: Criterion gives each test a process of its
 * own. */
#pragma once

#include "tests/unit/mm_fake_platform.h"
#include <criterion/criterion.h>
#include <signal.h>

static struct platform_thread g_thread;
static struct mm *g_mm;
static struct mm_limits g_limits = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};

UNUSED static struct fake_object file; /* outlives the mappings that a test leaves to teardown() */
static const int rw = PROT_READ | PROT_WRITE;

static void setup(void)
{
    g_thread.space = fake_space_new();
    cr_assert(mm_new(&g_fake, g_thread.space, &g_mm) == 0);
    mm_thread_added(g_mm);
}

static void teardown(void)
{
    mm_put(g_mm);
    platform_space_put(g_thread.space);
}

/* Page numbers in, page number or errno out. */
static long map(size_t page, size_t count, int prot, int flags, struct mappable *m, uint64_t offset)
{
    int64_t r = mm_mmap(g_mm, &g_thread, &g_limits, FAKE_AT(page), count * PAGE_SIZE, prot, flags,
                        m, offset * PAGE_SIZE);
    return r < 0 ? (long)r : (long)(r / (int64_t)PAGE_SIZE);
}

static inline long map_anon(size_t page, size_t count, int prot, int flags)
{
    return map(page, count, prot, MAP_PRIVATE | MAP_ANONYMOUS | flags, NULL, 0);
}

static inline int unmap(size_t page, size_t count)
{
    return mm_munmap(g_mm, &g_thread, FAKE_AT(page), count * PAGE_SIZE);
}

static inline int protect(size_t page, size_t count, int prot)
{
    return mm_mprotect(g_mm, &g_thread, FAKE_AT(page), count * PAGE_SIZE, prot);
}

static inline long remap(size_t page, size_t old, size_t new, int flags, size_t to)
{
    int64_t r = mm_mremap(g_mm, &g_thread, &g_limits, FAKE_AT(page), old * PAGE_SIZE,
                          new *PAGE_SIZE, flags, FAKE_AT(to));
    return r < 0 ? (long)r : (long)(r / (int64_t)PAGE_SIZE);
}

static inline int advise(size_t page, size_t count, int advice)
{
    return mm_madvise(g_mm, &g_thread, FAKE_AT(page), count * PAGE_SIZE, advice);
}

/* What the next resume does: 0, or what the system call then returns. */
static inline long resume(void)
{
    int r = fake_resume(&g_thread);
    return r == 0 ? 0 : (long)mm_order_failed(g_mm, &g_thread, r);
}

static inline bool host_has(size_t page)
{
    return g_thread.space->pages[page].mapped;
}

/* The VMA at `page`; end 0 if there is none. */
static inline struct vma vma_at(size_t page)
{
    struct vma v;
    if (!mm_next_vma(g_mm, page * PAGE_SIZE, &v) || v.start > page * PAGE_SIZE) {
        memset(&v, 0, sizeof(v));
        return v;
    }
    if (v.object != NULL)
        v.object->ops->put(v.object);
    return v;
}

static inline size_t pages_of(struct vma v)
{
    return (v.end - v.start) / PAGE_SIZE;
}

static inline const struct platform_order *last_order(void)
{
    return &g_orders[(g_order_count - 1) % FAKE_ORDERS];
}

/* One test: the expression gives this number. */
#define IS(expression, wanted)                                                                     \
    do {                                                                                           \
        long got_ = (long)(expression), wanted_ = (long)(wanted);                                  \
        cr_expect(got_ == wanted_, "%s = %ld, not %ld", #expression, got_, wanted_);               \
    } while (0)
