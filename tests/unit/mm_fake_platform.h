/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A platform without a host, for the tests of sentry/mm: it records orders and applies them to an
 * array of pages, as a kernel would. Linked instead of the module `platform`; include it once in a
 * program.
 */
#pragma once

#include "sentry/mm/mm.h"
#include "sentry/mm/uaccess.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

#define FAKE_PAGES    4096u /* the whole address space of a fake guest */
#define FAKE_MIN      16u   /* first page that may be mapped */
#define FAKE_ORDERS   64u
#define FAKE_AT(page) GUEST_ADDR((uint64_t)(page)*PAGE_SIZE)

struct fake_page {
    bool mapped, shared, dont_fork, wipe_on_fork;
    int prot;
    int hfd; /* -1: anonymous */
    uint64_t offset;
    uint8_t *bytes; /* NULL: zeros */
};

struct platform {
    struct platform_info info;
};
struct platform_space {
    int refs;
    struct fake_page pages[FAKE_PAGES];
};
struct platform_thread {
    struct platform_space *space;
    struct platform_order queue[PLATFORM_QUEUE_MAX];
    size_t queued;
};

static struct platform g_fake = {.info = {.name = "fake",
                                          .min_addr = {FAKE_MIN * PAGE_SIZE},
                                          .max_addr = {(uint64_t)FAKE_PAGES * PAGE_SIZE}}};
static struct platform_order g_orders[FAKE_ORDERS]; /* the last ones, executed or queued */
static size_t g_order_count;
static int g_fail_next; /* what the next order that runs answers */

static struct platform_space *fake_space_new(void)
{
    struct platform_space *s = calloc(1, sizeof(*s));
    if (s == NULL)
        abort();
    s->refs = 1;
    return s;
}

static void fake_page_clear(struct fake_page *p)
{
    free(p->bytes);
    *p = (struct fake_page){.hfd = -1};
}

/* fork: the child's pages. */
static inline struct platform_space *fake_space_fork(const struct platform_space *old)
{
    struct platform_space *s = fake_space_new();
    for (size_t i = 0; i < FAKE_PAGES; i++) {
        const struct fake_page *p = &old->pages[i];
        if (!p->mapped || p->dont_fork)
            continue;
        s->pages[i] = *p;
        s->pages[i].bytes = NULL;
        if (p->bytes == NULL || p->wipe_on_fork)
            continue;
        if ((s->pages[i].bytes = malloc(PAGE_SIZE)) == NULL)
            abort();
        memcpy(s->pages[i].bytes, p->bytes, PAGE_SIZE);
    }
    return s;
}

/* ---- what the host's kernel does ----------------------------------------------------------------
 */

static void fake_unmap(struct platform_space *s, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        fake_page_clear(&s->pages[i]);
}

static void fake_map(struct platform_space *s, const struct platform_order *o)
{
    size_t first = o->addr.va / PAGE_SIZE, count = o->size / PAGE_SIZE;
    fake_unmap(s, first, count);
    for (size_t i = 0; i < count; i++)
        s->pages[first + i] = (struct fake_page){
            .mapped = true,
            .prot = o->prot,
            .shared = (o->flags & MAP_TYPE) == MAP_SHARED,
            .hfd = o->kind == PLATFORM_ORDER_MAP_FILE ? o->hfd : -1,
            .offset = o->kind == PLATFORM_ORDER_MAP_FILE ? o->offset + i * PAGE_SIZE : 0};
}

static bool fake_all_mapped(const struct platform_space *s, size_t first, size_t count)
{
    for (size_t i = first; i < first + count; i++)
        if (!s->pages[i].mapped)
            return false;
    return true;
}

static int fake_remap(struct platform_space *s, const struct platform_order *o)
{
    size_t from = o->addr.va / PAGE_SIZE, old = o->size / PAGE_SIZE,
           count = o->new_size / PAGE_SIZE;
    bool moves = (o->flags & MREMAP_FIXED) != 0, keeps = (o->flags & MREMAP_DONTUNMAP) != 0;
    size_t to = moves ? o->new_addr.va / PAGE_SIZE : from;
    if (moves)
        fake_unmap(s, to, count);
    if (!fake_all_mapped(s, from, old == 0 ? 1 : old))
        return -EFAULT;
    for (size_t i = 1; i < old; i++)
        if (s->pages[from + i].prot != s->pages[from].prot ||
            s->pages[from + i].hfd != s->pages[from].hfd)
            return -EFAULT;
    if (!moves)
        for (size_t i = old; i < count; i++)
            if (s->pages[from + i].mapped)
                return -ENOMEM;
    struct fake_page first = s->pages[from];
    first.bytes = NULL;
    for (size_t i = 0; i < count; i++) {
        struct fake_page *target = &s->pages[to + i], *source = &s->pages[from + i];
        if (i < old && moves) {
            *target = *source;
            source->bytes = NULL;
            if (!keeps)
                fake_page_clear(source);
        } else if (i >= old) {
            *target = first;
            if (first.hfd >= 0)
                target->offset = first.offset + i * PAGE_SIZE;
        }
    }
    return 0;
}

static int fake_advise(struct platform_space *s, const struct platform_order *o)
{
    size_t first = o->addr.va / PAGE_SIZE, count = o->size / PAGE_SIZE;
    bool all = fake_all_mapped(s, first, count);
    if (!all && (o->advice == MADV_POPULATE_READ || o->advice == MADV_POPULATE_WRITE))
        return -ENOMEM;
    for (size_t i = first; i < first + count; i++) {
        struct fake_page *p = &s->pages[i];
        if (!p->mapped)
            continue;
        if (o->advice == MADV_DONTNEED || o->advice == MADV_FREE) {
            free(p->bytes);
            p->bytes = NULL;
        } else if (o->advice == MADV_DONTFORK || o->advice == MADV_DOFORK) {
            p->dont_fork = o->advice == MADV_DONTFORK;
        } else if (o->advice == MADV_WIPEONFORK || o->advice == MADV_KEEPONFORK) {
            p->wipe_on_fork = o->advice == MADV_WIPEONFORK;
        }
    }
    return all ? 0 : -ENOMEM;
}

static int fake_apply(struct platform_space *s, const struct platform_order *o)
{
    size_t first = o->addr.va / PAGE_SIZE, count = o->size / PAGE_SIZE;
    if (((o->addr.va | o->size) & ~PAGE_MASK) != 0 || first < FAKE_MIN ||
        first + count > FAKE_PAGES)
        return -EINVAL;
    if (g_fail_next != 0) {
        int r = g_fail_next;
        g_fail_next = 0;
        return r;
    }
    switch (o->kind) {
    case PLATFORM_ORDER_MAP_ANON:
    case PLATFORM_ORDER_MAP_FILE:
        fake_map(s, o);
        return 0;
    case PLATFORM_ORDER_UNMAP:
        fake_unmap(s, first, count);
        return 0;
    case PLATFORM_ORDER_PROTECT:
        if (!fake_all_mapped(s, first, count))
            return -ENOMEM;
        for (size_t i = first; i < first + count; i++)
            s->pages[i].prot = o->prot;
        return 0;
    case PLATFORM_ORDER_REMAP:
        return fake_remap(s, o);
    case PLATFORM_ORDER_ADVISE:
        return fake_advise(s, o);
    case PLATFORM_ORDER_MINCORE:
        for (size_t i = 0; i < count; i++) {
            uint8_t resident = s->pages[first + i].bytes != NULL;
            if (platform_write(s, GUEST_ADDR(o->new_addr.va + i), &resident, 1) != 1)
                return -EFAULT;
        }
        return 0;
    default:
        return -EINVAL;
    }
}

/* ---- platform.h ---------------------------------------------------------------------------------
 */

static void fake_record(const struct platform_order *o)
{
    g_orders[g_order_count++ % FAKE_ORDERS] = *o;
}

/* What the next resume does first: 0 or the error of ORDER_FAILED. */
static int fake_resume(struct platform_thread *t)
{
    int r = 0;
    for (size_t i = 0; i < t->queued && r == 0; i++)
        r = fake_apply(t->space, &t->queue[i]);
    t->queued = 0;
    return r;
}

const struct platform_info *platform_info(const struct platform *p)
{
    return &p->info;
}

void platform_space_get(struct platform_space *s)
{
    s->refs++;
}

void platform_space_kill(struct platform_space *s)
{
    (void)s;
}

void platform_space_put(struct platform_space *s)
{
    if (--s->refs != 0)
        return;
    for (size_t i = 0; i < FAKE_PAGES; i++)
        free(s->pages[i].bytes);
    free(s);
}

int platform_execute(struct platform_thread *t, const struct platform_order *orders, size_t count,
                     size_t *ret_done)
{
    *ret_done = 0;
    int r = fake_resume(t);
    for (size_t i = 0; i < count && r == 0; i++) {
        fake_record(&orders[i]);
        r = fake_apply(t->space, &orders[i]);
        if (r == 0)
            (*ret_done)++;
    }
    return r;
}

int platform_queue(struct platform_thread *t, const struct platform_order *order)
{
    if (t->queued == PLATFORM_QUEUE_MAX)
        return -ENOSPC;
    fake_record(order);
    t->queue[t->queued++] = *order;
    return 0;
}

static ssize_t fake_copy(struct platform_space *s, uint64_t guest, uint8_t *local, size_t size,
                         bool is_write)
{
    size_t done = 0;
    while (done < size) {
        uint64_t at = guest + done;
        size_t piece = PAGE_SIZE - (at & ~PAGE_MASK), page = at / PAGE_SIZE;
        piece = piece < size - done ? piece : size - done;
        if (at / PAGE_SIZE >= FAKE_PAGES || !s->pages[page].mapped ||
            s->pages[page].prot == PROT_NONE ||
            (is_write && (s->pages[page].prot & PROT_WRITE) == 0))
            break;
        struct fake_page *p = &s->pages[page];
        if (is_write) {
            if (p->bytes == NULL && (p->bytes = calloc(1, PAGE_SIZE)) == NULL)
                abort();
            memcpy(p->bytes + (at & ~PAGE_MASK), local + done, piece);
        } else if (p->bytes != NULL) {
            memcpy(local + done, p->bytes + (at & ~PAGE_MASK), piece);
        } else {
            memset(local + done, 0, piece);
        }
        done += piece;
    }
    return done != 0 ? (ssize_t)done : -EFAULT;
}

ssize_t platform_read(struct platform_space *s, guest_addr src, void *dst, size_t size)
{
    return fake_copy(s, src.va, dst, size, false);
}

ssize_t platform_write(struct platform_space *s, guest_addr dst, const void *src, size_t size)
{
    union {
        const void *in;
        void *out;
    } local = {.in = src};
    return fake_copy(s, dst.va, local.out, size, true);
}

/* ---- objects to map -----------------------------------------------------------------------------
 */

struct fake_object {
    struct mappable mappable;
    int hfd, refs, shared_writes;
    bool may_write, may_exec, sealed;
    uint64_t synced;
};

static struct fake_object *fake_object_of(struct mappable *m)
{
    return container_of(m, struct fake_object, mappable);
}

static void fake_object_get(struct mappable *m)
{
    fake_object_of(m)->refs++;
}

static void fake_object_put(struct mappable *m)
{
    fake_object_of(m)->refs--;
}

static int fake_object_map(struct mappable *m, uint64_t offset, uint64_t size, int prot, int flags,
                           int *ret_hfd, uint64_t *ret_host_offset)
{
    struct fake_object *o = fake_object_of(m);
    (void)size;
    if (((flags & MAP_TYPE) == MAP_SHARED && (prot & PROT_WRITE) != 0 && !o->may_write) ||
        ((prot & PROT_EXEC) != 0 && !o->may_exec))
        return -EACCES;
    *ret_hfd = o->hfd;
    *ret_host_offset = offset;
    return 0;
}

static int fake_object_sync(struct mappable *m, uint64_t offset, uint64_t size)
{
    (void)offset;
    fake_object_of(m)->synced += size;
    return 0;
}

static int fake_object_shared_write(struct mappable *m, bool add)
{
    if (add && fake_object_of(m)->sealed)
        return -EPERM;
    fake_object_of(m)->shared_writes += add ? 1 : -1;
    return 0;
}

static uint64_t fake_object_identity(struct mappable *m)
{
    return (uint64_t)fake_object_of(m)->hfd;
}

static const struct mappable_ops fake_object_ops = {.get = fake_object_get,
                                                    .put = fake_object_put,
                                                    .map = fake_object_map,
                                                    .sync = fake_object_sync,
                                                    .shared_write = fake_object_shared_write,
                                                    .identity = fake_object_identity};

static inline struct fake_object fake_object(int hfd, bool may_write, bool may_exec)
{
    return (struct fake_object){.mappable = {&fake_object_ops},
                                .hfd = hfd,
                                .refs = 1,
                                .may_write = may_write,
                                .may_exec = may_exec};
}
