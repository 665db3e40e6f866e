/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A brute-force model of an address space: one record for each page, no tree. The same random
 * operations go to it and to sentry/mm over the fake platform; after each one, result, tree and the
 * fake host's pages must be equal. Used by the random unit test and by the fuzz target, which feed
 * it bytes.
 */
#pragma once

#include "tests/unit/mm_fake_platform.h"
#include <signal.h>

#define MODEL_OBJECTS 3
#define MODEL_GUARD   256u
#define MODEL_HUGE    512u

struct model_page {
    bool mapped, locked, dont_fork, wipe_on_fork, dont_dump, shared_write;
    int prot, max_prot, flags; /* as struct vma */
    int object;                /* index + 1; 0: anonymous */
    uint64_t offset;           /* page in the object */
    uint32_t stamp;            /* what the test wrote */
};

struct model_input {
    const uint8_t *bytes;
    size_t size, at;
};

struct world {
    struct platform_thread thread;
    struct mm *mm;
    struct mm_limits limits;
    struct fake_object objects[MODEL_OBJECTS];
    struct model_page pages[FAKE_PAGES];
    uint64_t start_brk, brk; /* bytes */
    uint32_t stamp;
    bool is_threaded;
    char what[128]; /* the last operation */
};

static void world_fail(const struct world *w, const char *why, long a, long b)
{
    fprintf(stderr, "mm model: %s: %s (%ld, %ld)\n", w->what, why, a, b);
    abort();
}

static uint32_t model_take(struct model_input *in, uint32_t below)
{
    uint32_t value = 0;
    for (int i = 0; i < 2; i++)
        value = value << 8 | (in->at < in->size ? in->bytes[in->at] : 0), in->at++;
    return value % below;
}

/* ---- VMAs of the model: maximal runs of pages that go together
 * ----------------------------------- */

static bool model_same(const struct model_page *a, const struct model_page *b)
{
    return a->mapped == b->mapped && a->locked == b->locked && a->dont_fork == b->dont_fork &&
           a->wipe_on_fork == b->wipe_on_fork && a->dont_dump == b->dont_dump &&
           a->prot == b->prot && a->flags == b->flags && a->object == b->object &&
           (a->object == 0 || b->offset == a->offset + 1);
}

static size_t model_run_end(const struct world *w, size_t page)
{
    while (page + 1 < FAKE_PAGES && model_same(&w->pages[page], &w->pages[page + 1]))
        page++;
    return page + 1;
}

static size_t model_run_start(const struct world *w, size_t page)
{
    while (page > 0 && model_same(&w->pages[page - 1], &w->pages[page]))
        page--;
    return page;
}

static size_t model_count(const struct world *w, size_t first, size_t count)
{
    size_t n = 0;
    for (size_t i = first; i < first + count && i < FAKE_PAGES; i++)
        n += w->pages[i].mapped;
    return n;
}

static bool model_free(const struct world *w, size_t first, size_t count)
{
    return model_count(w, first, count) == 0;
}

/* ---- address choice -----------------------------------------------------------------------------
 */

/* Where the free space below the VMA that starts at `page` ends. */
static size_t model_gap_top(const struct world *w, size_t page)
{
    if ((w->pages[page].flags & MAP_GROWSDOWN) == 0)
        return page;
    return page > MODEL_GUARD ? page - MODEL_GUARD : 0;
}

static void model_blocked(const struct world *w, bool *blocked)
{
    for (size_t i = 0; i < FAKE_PAGES; i++)
        blocked[i] = w->pages[i].mapped;
    for (size_t i = 1; i < FAKE_PAGES; i++) {
        if (!w->pages[i].mapped || w->pages[i - 1].mapped)
            continue;
        for (size_t j = i; j-- > model_gap_top(w, i) && !w->pages[j].mapped;)
            blocked[j] = true;
    }
}

static size_t model_search(const struct world *w, size_t count)
{
    static bool blocked[FAKE_PAGES];
    model_blocked(w, blocked);
    size_t run = 0;
    for (size_t i = FAKE_PAGES; i-- > FAKE_MIN;) {
        run = blocked[i] ? 0 : run + 1;
        if (run == count)
            return i;
    }
    return 0; /* what bottom-up searches lies within that */
}

static long model_choose(const struct world *w, size_t hint, size_t count, int flags, bool is_anon)
{
    if (count > FAKE_PAGES)
        return -ENOMEM;
    if ((flags & (MAP_FIXED | MAP_FIXED_NOREPLACE)) != 0) {
        if (hint > FAKE_PAGES - count)
            return -ENOMEM;
        return hint < FAKE_MIN ? -EPERM : (long)hint;
    }
    if (hint != 0 && hint < FAKE_MIN)
        hint = FAKE_MIN;
    if (hint != 0 && hint <= FAKE_PAGES - count && model_free(w, hint, count)) {
        size_t next = hint;
        while (next < FAKE_PAGES && !w->pages[next].mapped)
            next++;
        if (next == FAKE_PAGES || hint + count <= model_gap_top(w, next))
            return (long)hint;
    }
    size_t found = 0;
    if (is_anon && hint == 0 && count % MODEL_HUGE == 0 &&
        (found = model_search(w, count + MODEL_HUGE)) != 0)
        found += MODEL_HUGE - found % MODEL_HUGE;
    if (found == 0)
        found = model_search(w, count);
    return found != 0 ? (long)found : -ENOMEM;
}

/* ---- the operations -----------------------------------------------------------------------------
 */

static void model_clear(struct world *w, size_t first, size_t count)
{
    memset(&w->pages[first], 0, count * sizeof(w->pages[0]));
}

static long model_pages_of(int64_t result)
{
    return result < 0 ? (long)result : (long)((uint64_t)result / PAGE_SIZE);
}

static void expect_result(const struct world *w, long got, long wanted)
{
    if (got != wanted)
        world_fail(w, "result, wanted", got, wanted);
}

static const int model_prots[] = {PROT_NONE,
                                  PROT_READ,
                                  PROT_READ | PROT_WRITE,
                                  PROT_READ | PROT_WRITE,
                                  PROT_READ | PROT_EXEC,
                                  PROT_WRITE,
                                  PROT_READ | PROT_WRITE | PROT_EXEC};

static size_t take_page(struct model_input *in)
{
    uint32_t v = model_take(in, 8);
    return v == 0 ? model_take(in, FAKE_PAGES)
                  : 64 + model_take(in, 192); /* mostly in a small window */
}

static size_t take_count(struct model_input *in)
{
    uint32_t v = model_take(in, 16);
    return v == 0   ? MODEL_HUGE * (1 + model_take(in, 2))
           : v == 1 ? 1 + model_take(in, 300)
                    : 1 + model_take(in, 12);
}

static int take_prot(struct model_input *in)
{
    return model_prots[model_take(in, ARRAY_COUNT(model_prots))];
}

static void step_mmap(struct world *w, struct model_input *in)
{
    size_t hint = model_take(in, 4) == 0 ? 0 : take_page(in), count = take_count(in);
    int prot = take_prot(in), object = (int)model_take(in, 8) - 4, flags = MAP_PRIVATE;
    object = object < 1 || object > MODEL_OBJECTS ? 0 : object;
    uint64_t offset = model_take(in, 64);
    if (object != 0 && model_take(in, 2) == 0)
        flags = MAP_SHARED;
    static const int more[] = {0,
                               0,
                               MAP_FIXED,
                               MAP_FIXED,
                               MAP_FIXED_NOREPLACE,
                               MAP_NORESERVE,
                               MAP_POPULATE,
                               MAP_GROWSDOWN,
                               MAP_LOCKED,
                               MAP_STACK};
    flags |= more[model_take(in, ARRAY_COUNT(more))];
    bool is_shared = (flags & MAP_TYPE) == MAP_SHARED;
    snprintf(w->what, sizeof(w->what), "mmap %zu+%zu prot %d flags %#x object %d", hint, count,
             prot, flags, object);

    struct mappable *m = object != 0 ? &w->objects[object - 1].mappable : NULL;
    long got = model_pages_of(mm_mmap(w->mm, &w->thread, &w->limits, FAKE_AT(hint),
                                      count * PAGE_SIZE - 7, prot, flags, m, offset * PAGE_SIZE));
    const struct fake_object *o = object != 0 ? &w->objects[object - 1] : NULL;
    long wanted;
    if (object != 0 && (flags & MAP_GROWSDOWN) != 0)
        wanted = -EINVAL;
    else if (o != NULL && ((is_shared && (prot & PROT_WRITE) != 0 && !o->may_write) ||
                           ((prot & PROT_EXEC) != 0 && !o->may_exec)))
        wanted = -EACCES;
    else
        wanted = model_choose(w, hint, count, flags, object == 0);
    if (wanted >= 0 && (flags & MAP_FIXED_NOREPLACE) != 0 && !model_free(w, (size_t)wanted, count))
        wanted = -EEXIST;
    expect_result(w, got, wanted);
    for (size_t i = 0; wanted >= 0 && i < count; i++)
        w->pages[(size_t)wanted + i] =
            (struct model_page){.mapped = true,
                                .locked = (flags & MAP_LOCKED) != 0,
                                .prot = prot,
                                .max_prot = prot | (is_shared ? 0 : PROT_READ | PROT_WRITE),
                                .flags = flags & (MAP_TYPE | MAP_NORESERVE | MAP_GROWSDOWN),
                                .object = object,
                                .shared_write = is_shared && (prot & PROT_WRITE) != 0,
                                .offset = object != 0 ? offset + i : 0};
}

static void step_munmap(struct world *w, struct model_input *in)
{
    size_t page = take_page(in), count = take_count(in);
    snprintf(w->what, sizeof(w->what), "munmap %zu+%zu", page, count);
    expect_result(w, mm_munmap(w->mm, &w->thread, FAKE_AT(page), count * PAGE_SIZE - 1), 0);
    if (page < FAKE_MIN) {
        size_t skip = FAKE_MIN - page < count ? FAKE_MIN - page : count;
        page += skip, count -= skip;
    }
    if (page + count > FAKE_PAGES)
        count = FAKE_PAGES - page;
    model_clear(w, page, count);
}

static void step_mprotect(struct world *w, struct model_input *in)
{
    size_t page = take_page(in), count = take_count(in);
    int prot = take_prot(in);
    snprintf(w->what, sizeof(w->what), "mprotect %zu+%zu prot %d", page, count, prot);
    long wanted = 0;
    if (page + count > FAKE_PAGES)
        wanted = -ENOMEM;
    for (size_t i = page; wanted == 0 && i < page + count; i++) {
        struct model_page *p = &w->pages[i];
        const struct fake_object *o = p->object != 0 ? &w->objects[p->object - 1] : NULL;
        if (!p->mapped)
            wanted = -ENOMEM;
        else if (o != NULL && (prot & ~p->max_prot) != 0 &&
                 (((prot & PROT_EXEC) != 0 && !o->may_exec) ||
                  ((p->flags & MAP_TYPE) == MAP_SHARED && (prot & PROT_WRITE) != 0 &&
                   !o->may_write)))
            wanted = -EACCES;
        else
            p->prot = prot, p->max_prot |= prot,
            p->shared_write =
                p->shared_write ||
                (o != NULL && (p->flags & MAP_TYPE) == MAP_SHARED && (prot & PROT_WRITE) != 0);
    }
    expect_result(w, mm_mprotect(w->mm, &w->thread, FAKE_AT(page), count * PAGE_SIZE, prot),
                  wanted);
}

static void model_move(struct world *w, size_t from, size_t old, size_t to, size_t count,
                       bool keeps)
{
    static struct model_page moved[FAKE_PAGES];
    for (size_t i = 0; i < count; i++) {
        moved[i] = w->pages[from];
        moved[i].stamp = i < old ? w->pages[from + i].stamp : 0;
        if (moved[i].object != 0)
            moved[i].offset = w->pages[from].offset + i;
    }
    if (keeps)
        for (size_t i = 0; i < old; i++)
            w->pages[from + i].stamp = 0, w->pages[from + i].locked = false;
    else
        model_clear(w, from, old);
    memcpy(&w->pages[to], moved, count * sizeof(moved[0]));
}

static void step_mremap(struct world *w, struct model_input *in)
{
    size_t from = take_page(in), old = model_take(in, 10), count = take_count(in),
           to = take_page(in);
    static const int kinds[] = {0,
                                0,
                                MREMAP_MAYMOVE,
                                MREMAP_MAYMOVE,
                                MREMAP_MAYMOVE | MREMAP_FIXED,
                                MREMAP_MAYMOVE | MREMAP_DONTUNMAP,
                                MREMAP_FIXED,
                                MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP};
    int flags = kinds[model_take(in, ARRAY_COUNT(kinds))];
    bool keeps = (flags & MREMAP_DONTUNMAP) != 0, is_fixed = (flags & MREMAP_FIXED) != 0;
    if (keeps && model_take(in, 8) != 0)
        count = old;
    snprintf(w->what, sizeof(w->what), "mremap %zu+%zu to +%zu at %zu flags %d", from, old, count,
             to, flags);
    long got = model_pages_of(mm_mremap(w->mm, &w->thread, &w->limits, FAKE_AT(from),
                                        old * PAGE_SIZE, count * PAGE_SIZE, flags, FAKE_AT(to)));
    long wanted = 0;
    const struct model_page *p = &w->pages[from];
    bool goes_to = is_fixed || keeps;
    if (flags == MREMAP_FIXED || (keeps && old != count) || count == 0)
        wanted = -EINVAL;
    else if (!p->mapped)
        wanted = -EFAULT;
    else if (goes_to && (to + count > FAKE_PAGES || (from + old > to && to + count > from)))
        wanted = -EINVAL;
    else if (is_fixed && to < FAKE_MIN)
        wanted = -EPERM;
    if (wanted == 0 && old > count) {
        size_t end = from + old < FAKE_PAGES ? from + old : FAKE_PAGES;
        if (from + count < end)
            model_clear(w, from + count, end - from - count);
        old = count;
    }
    if (wanted == 0 && (goes_to || old < count)) {
        if (old == 0 && (p->flags & MAP_TYPE) == MAP_PRIVATE)
            wanted = -EINVAL;
        else if (from + old > model_run_end(w, from))
            wanted = -EFAULT;
    }
    if (wanted == 0 && !goes_to) {
        bool at_end = from + old == model_run_end(w, from) && from + count <= FAKE_PAGES;
        if (old == count || (at_end && model_free(w, from + old, count - old)))
            wanted = (long)from;
        else
            wanted = flags == 0 ? -ENOMEM : model_choose(w, 0, count, 0, p->object == 0);
    } else if (wanted == 0) {
        wanted = is_fixed ? (long)to : model_choose(w, to, count, 0, p->object == 0);
    }
    expect_result(w, got, wanted);
    if (wanted < 0)
        return;
    if ((size_t)wanted != from)
        model_move(w, from, old, (size_t)wanted, count, keeps);
    for (size_t i = old; (size_t)wanted == from && i < count; i++) {
        w->pages[from + i] = w->pages[from];
        w->pages[from + i].stamp = 0;
        if (w->pages[from].object != 0)
            w->pages[from + i].offset += i;
    }
}

static long model_advise_page(struct model_page *p, int advice)
{
    switch (advice) {
    case MADV_DONTNEED:
        if (p->locked)
            return -EINVAL;
        p->stamp = 0;
        return 0;
    case MADV_FREE:
        if (p->locked || p->object != 0)
            return -EINVAL;
        p->stamp = 0; /* the fake host is quick */
        return 0;
    case MADV_WIPEONFORK:
        if (p->object != 0)
            return -EINVAL;
        p->wipe_on_fork = true;
        return 0;
    case MADV_KEEPONFORK:
        p->wipe_on_fork = false;
        return 0;
    case MADV_DONTFORK:
    case MADV_DOFORK:
        p->dont_fork = advice == MADV_DONTFORK;
        return 0;
    case MADV_DONTDUMP:
    case MADV_DODUMP:
        p->dont_dump = advice == MADV_DONTDUMP;
        return 0;
    default:
        return 0;
    }
}

static void step_madvise(struct world *w, struct model_input *in)
{
    static const int advices[] = {MADV_DONTNEED, MADV_FREE,     MADV_WIPEONFORK, MADV_KEEPONFORK,
                                  MADV_DONTFORK, MADV_DOFORK,   MADV_DONTDUMP,   MADV_DODUMP,
                                  MADV_WILLNEED, MADV_MERGEABLE};
    size_t page = take_page(in), count = take_count(in);
    int advice = advices[model_take(in, ARRAY_COUNT(advices))];
    snprintf(w->what, sizeof(w->what), "madvise %zu+%zu advice %d", page, count, advice);
    long got = mm_madvise(w->mm, &w->thread, FAKE_AT(page), count * PAGE_SIZE, advice), wanted = 0;
    bool hole = false;
    if (page < FAKE_MIN || page + count > FAKE_PAGES) {
        expect_result(w, got, -ENOMEM);
        return;
    }
    for (size_t i = page; i < page + count && wanted == 0; i++) {
        if (!w->pages[i].mapped)
            hole = true;
        else
            wanted = model_advise_page(&w->pages[i], advice);
    }
    expect_result(w, got, wanted == 0 && hole ? -ENOMEM : wanted);
}

static void step_mlock(struct world *w, struct model_input *in)
{
    size_t page = take_page(in), count = take_count(in);
    bool lock = model_take(in, 2) == 0;
    snprintf(w->what, sizeof(w->what), "%s %zu+%zu", lock ? "mlock" : "munlock", page, count);
    long got =
             mm_mlock(w->mm, &w->thread, &w->limits, FAKE_AT(page), count * PAGE_SIZE, lock, true),
         wanted = 0;
    for (size_t i = page; i < page + count; i++) {
        if (i >= FAKE_PAGES || !w->pages[i].mapped) {
            wanted = -ENOMEM;
            break;
        }
        w->pages[i].locked = lock;
    }
    expect_result(w, got, wanted);
}

/* Writes by the sentry's own copy: what the tree allows must work, and nothing else. */
static void step_touch(struct world *w, struct model_input *in)
{
    size_t page = take_page(in);
    uint32_t stamp = ++w->stamp;
    snprintf(w->what, sizeof(w->what), "touch %zu", page);
    struct model_page *p = &w->pages[page];
    bool ok = p->mapped && (p->prot & PROT_WRITE) != 0;
    expect_result(w, copy_out_obj(w->mm, FAKE_AT(page), &stamp), ok ? 0 : -EFAULT);
    if (ok)
        p->stamp = stamp;
}

static void step_brk(struct world *w, struct model_input *in)
{
    uint64_t brk = w->start_brk - 5000 + model_take(in, 60000);
    snprintf(w->what, sizeof(w->what), "brk %+ld", (long)(brk - w->start_brk));
    size_t old_end = PAGE_UP(w->brk) / PAGE_SIZE, end = PAGE_UP(brk) / PAGE_SIZE;
    bool ok = brk >= w->start_brk;
    if (ok && end > old_end) {
        ok = end <= FAKE_PAGES && model_free(w, old_end, end - old_end);
        size_t next = end;
        while (next < FAKE_PAGES && !w->pages[next].mapped)
            next++;
        ok = ok && (next == FAKE_PAGES || end + 1 <= model_gap_top(w, next));
    }
    if (ok && end < old_end)
        model_clear(w, end, old_end - end);
    for (size_t i = old_end; ok && i < end; i++)
        w->pages[i] = (struct model_page){.mapped = true,
                                          .prot = PROT_READ | PROT_WRITE,
                                          .max_prot = PROT_READ | PROT_WRITE,
                                          .flags = MAP_PRIVATE};
    if (ok)
        w->brk = brk;
    int64_t got = mm_brk(w->mm, &w->thread, &w->limits, GUEST_ADDR(brk));
    expect_result(w, (long)got, (long)w->brk);
}

static void step_fault(struct world *w, struct model_input *in)
{
    size_t page = take_page(in);
    snprintf(w->what, sizeof(w->what), "fault %zu", page);
    struct platform_event event = {.kind = PLATFORM_EVENT_FAULT,
                                   .signo = SIGSEGV,
                                   .code = SEGV_MAPERR,
                                   .addr = FAKE_AT(page),
                                   .is_write = true};
    event.addr.va += 9;
    bool mapped = w->pages[page].mapped;
    size_t next = page, below = page;
    while (next < FAKE_PAGES && !w->pages[next].mapped)
        next++;
    while (below > 0 && !w->pages[below - 1].mapped)
        below--;
    bool grows = !mapped && next < FAKE_PAGES && (w->pages[next].flags & MAP_GROWSDOWN) != 0 &&
                 page >= FAKE_MIN;
    if (grows && below > 0) {
        const struct model_page *b = &w->pages[below - 1];
        if (b->prot != PROT_NONE && (b->flags & MAP_GROWSDOWN) == 0 &&
            page < below - 1 + 1 + MODEL_GUARD)
            grows = false;
    }
    int code = 0, got = mm_fault(w->mm, &w->thread, &event, 0, &w->limits, &code);
    if (mapped) {
        bool ok = (w->pages[page].prot & PROT_WRITE) != 0;
        if (!ok)
            expect_result(w, code, SEGV_ACCERR);
        if (!ok)
            expect_result(w, got, SIGSEGV);
        return;
    }
    expect_result(w, got, grows ? 0 : SIGSEGV);
    for (size_t i = page; grows && i < next; i++) {
        w->pages[i] = w->pages[next];
        w->pages[i].stamp = 0;
        w->pages[i].dont_fork = w->pages[next].dont_fork;
    }
}

/* ---- comparing ----------------------------------------------------------------------------------
 */

static uint32_t host_stamp(const struct fake_page *p)
{
    uint32_t stamp = 0;
    if (p->bytes != NULL)
        memcpy(&stamp, p->bytes, sizeof(stamp));
    return stamp;
}

static void check_host(const struct world *w, const struct platform_space *s)
{
    for (size_t i = 0; i < FAKE_PAGES; i++) {
        const struct fake_page *h = &s->pages[i];
        const struct model_page *p = &w->pages[i];
        if (h->mapped != p->mapped)
            world_fail(w, "host and model differ in what is mapped at", (long)i, p->mapped);
        if (!p->mapped)
            continue;
        if (h->prot != p->prot)
            world_fail(w, "host protection", (long)i, h->prot);
        if (h->hfd != (p->object != 0 ? 100 + p->object : -1))
            world_fail(w, "host object", (long)i, h->hfd);
        if (p->object != 0 && h->offset != p->offset * PAGE_SIZE)
            world_fail(w, "host offset", (long)i, (long)h->offset);
        if (host_stamp(h) != p->stamp)
            world_fail(w, "content", (long)i, p->stamp);
    }
}

static void check_vma(const struct world *w, const struct vma *v)
{
    size_t first = v->start / PAGE_SIZE, end = v->end / PAGE_SIZE;
    const struct model_page *p = &w->pages[first];
    if (!p->mapped || model_run_end(w, first) != end || model_run_start(w, first) != first)
        world_fail(w, "a VMA's borders", (long)first, (long)end);
    if (v->prot != p->prot || v->flags != p->flags || v->is_locked != p->locked ||
        v->dont_fork != p->dont_fork || v->wipe_on_fork != p->wipe_on_fork ||
        v->dont_dump != p->dont_dump)
        world_fail(w, "a VMA's attributes", (long)first, v->prot);
    if (p->object != 0 && v->offset != p->offset * PAGE_SIZE)
        world_fail(w, "a VMA's offset", (long)first, (long)v->offset);
}

static void check_tree(const struct world *w, struct mm *mm)
{
    struct vma v;
    size_t at = 0, total = 0, locked = 0;
    while (mm_next_vma(mm, at * PAGE_SIZE, &v)) {
        if (!model_free(w, at, v.start / PAGE_SIZE - at))
            world_fail(w, "the tree lacks what is mapped below", (long)(v.start / PAGE_SIZE),
                       (long)at);
        check_vma(w, &v);
        at = v.end / PAGE_SIZE;
        total += v.end - v.start;
        locked += v.is_locked ? v.end - v.start : 0;
        if (v.object != NULL)
            v.object->ops->put(v.object);
    }
    if (!model_free(w, at, FAKE_PAGES - at))
        world_fail(w, "the tree lacks what is mapped from", (long)at, 0);
    struct mm_counts counts;
    mm_get_counts(mm, &counts);
    if (counts.total != total || counts.locked != locked)
        world_fail(w, "counts", (long)counts.total, (long)total);
}

/* Shared writable VMAs are counted one by one. */
static void check_objects(const struct world *w)
{
    for (int o = 1; o <= MODEL_OBJECTS; o++) {
        int vmas = 0, shared = 0;
        for (size_t i = 0; i < FAKE_PAGES; i = model_run_end(w, i)) {
            const struct model_page *p = &w->pages[i];
            if (!p->mapped || p->object != o)
                continue;
            vmas++;
            shared += p->shared_write;
        }
        if (w->objects[o - 1].refs != vmas + 1 || w->objects[o - 1].shared_writes != shared)
            world_fail(w, "references of an object", w->objects[o - 1].refs, vmas);
    }
}

/* What is joined shares the mark, and keeps it when it's split again. */
static void spread_shared_write(struct world *w)
{
    for (size_t i = 0, end; i < FAKE_PAGES; i = end) {
        bool any = false;
        end = model_run_end(w, i);
        for (size_t j = i; j < end; j++)
            any = any || w->pages[j].shared_write;
        for (size_t j = i; any && j < end; j++)
            w->pages[j].shared_write = true;
    }
}

static void world_resume(struct world *w)
{
    spread_shared_write(w);
    if (fake_resume(&w->thread) != 0)
        world_fail(w, "a queued order failed", 0, 0);
}

/* Everything page by page; slow, so the fuzz target doesn't do it after each step. */
static void world_check(struct world *w)
{
    world_resume(w);
    check_host(w, w->thread.space);
    check_tree(w, w->mm);
    check_objects(w);
}

static void step_fork(struct world *w)
{
    snprintf(w->what, sizeof(w->what), "fork");
    world_check(w);
    struct world *child = calloc(1, sizeof(*child));
    if (child == NULL)
        abort();
    *child = *w;
    struct platform_space *space = fake_space_fork(w->thread.space);
    mm_fork_begin(w->mm);
    if (mm_fork(w->mm, space, &child->thread, &child->mm) != 0)
        world_fail(w, "mm_fork", 0, 0);
    mm_fork_end(w->mm);
    for (size_t i = 0; i < FAKE_PAGES; i++) {
        struct model_page *p = &child->pages[i];
        p->locked = false;
        p->stamp = p->wipe_on_fork ? 0 : p->stamp;
        if (p->dont_fork)
            *p = (struct model_page){0};
    }
    check_host(child, space);
    check_tree(child, child->mm);
    mm_put(child->mm);
    platform_space_put(space);
    free(child);
    check_objects(w);
}

/* ---- running ------------------------------------------------------------------------------------
 */

static void world_init(struct world *w)
{
    memset(w, 0, sizeof(*w));
    w->thread.space = fake_space_new();
    w->limits = (struct mm_limits){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
    w->objects[0] = fake_object(101, true, true);
    w->objects[1] = fake_object(102, false, true);
    w->objects[2] = fake_object(103, true, false);
    if (mm_new(&g_fake, w->thread.space, &w->mm) != 0)
        abort();
    mm_thread_added(w->mm);
    w->start_brk = w->brk = 100 * PAGE_SIZE;
    mm_layout_of(w->mm)->start_brk = mm_layout_of(w->mm)->brk = w->brk;
}

static void world_fini(struct world *w)
{
    mm_put(w->mm);
    for (int i = 0; i < MODEL_OBJECTS; i++)
        if (w->objects[i].refs != 1 || w->objects[i].shared_writes != 0)
            world_fail(w, "references left", w->objects[i].refs, i);
    platform_space_put(w->thread.space);
}

static void world_step(struct world *w, struct model_input *in)
{
    switch (model_take(in, 16)) {
    case 0:
    case 1:
    case 2:
    case 3:
        step_mmap(w, in);
        break;
    case 4:
    case 5:
        step_munmap(w, in);
        break;
    case 6:
    case 7:
        step_mprotect(w, in);
        break;
    case 8:
    case 9:
        step_mremap(w, in);
        break;
    case 10:
        step_madvise(w, in);
        break;
    case 11:
        step_mlock(w, in);
        break;
    case 12:
        step_touch(w, in);
        return; /* what is queued stays queued for the next one */
    case 13:
        step_brk(w, in);
        break;
    case 14:
        step_fault(w, in);
        break;
    default:
        if (model_take(in, 8) == 0) {
            (w->is_threaded ? mm_thread_removed : mm_thread_added)(w->mm);
            w->is_threaded = !w->is_threaded;
        } else {
            step_fork(w);
        }
        break;
    }
    if (model_take(in, 4) == 0)
        step_touch(w, in); /* a copy with an order queued */
    world_resume(w);
}
