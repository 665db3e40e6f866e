/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/{maps,smaps,smaps_rollup,numa_maps}: the VMA tree as text. Any fiber; no lock is held
 * from one VMA to the next, so a process that changes its maps meanwhile sees a mixture, as on
 * Linux.
 */
#include "sentry/fs/proc/proc_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define NAME_COLUMN   73
#define VMAS_PER_TURN 256 /* then others may run */

struct vma_walk {
    struct mm *mm;  /* ref; NULL: nothing to show */
    struct vma vma; /* with a reference on its object */
    uint64_t from;
    unsigned turn;
};

static bool walk_next(struct vma_walk *w)
{
    if (w->mm == NULL || !mm_next_vma(w->mm, w->from, &w->vma))
        return false;
    w->from = w->vma.end;
    if (++w->turn % VMAS_PER_TURN == 0)
        fiber_yield();
    return true;
}

static void walk_done_with(struct vma_walk *w)
{
    if (w->vma.object != NULL)
        w->vma.object->ops->put(w->vma.object);
    w->vma.object = NULL;
}

static bool is_shared(const struct vma *v)
{
    return (v->flags & MAP_TYPE) != MAP_PRIVATE;
}

struct vma_file {
    uint64_t dev, ino;
    char *path; /* owned; NULL = none */
};

static void describe(const struct vma *v, struct vma_file *ret)
{
    *ret = (struct vma_file){0};
    if (v->object != NULL && v->object->ops->describe != NULL)
        v->object->ops->describe(v->object, &ret->dev, &ret->ino, &ret->path);
}

static void put_header(struct text *out, const struct vma *v, const struct vma_file *file)
{
    size_t start = out->size;
    text_printf(out, "%08llx-%08llx %c%c%c%c %08llx %02x:%02x %llu ", (unsigned long long)v->start,
                (unsigned long long)v->end, v->prot & PROT_READ ? 'r' : '-',
                v->prot & PROT_WRITE ? 'w' : '-', v->prot & PROT_EXEC ? 'x' : '-',
                is_shared(v) ? 's' : 'p', v->object != NULL ? (unsigned long long)v->offset : 0,
                (unsigned)(file->dev >> 8 & 0xfff), (unsigned)(file->dev & 0xff),
                (unsigned long long)file->ino);
    const char *name = file->path != NULL ? file->path : v->name;
    if (name[0] != '\0') {
        text_pad(out, start, NAME_COLUMN);
        for (const char *c = name; *c != '\0'; c++) {
            if (*c == '\n')
                text_put(out, "\\012");
            else
                text_append(out, c, 1);
        }
    }
    text_put(out, "\n");
}

int proc_show_maps(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    struct vma_walk w = {0};
    int r = subject_open_mm(key, reader, &w.mm);
    if (r != 0)
        return r;
    while (walk_next(&w)) {
        struct vma_file file;
        describe(&w.vma, &file);
        put_header(out, &w.vma, &file);
        free(file.path);
        walk_done_with(&w);
    }
    mm_put(w.mm);
    return 0;
}

/* ---- with sizes
 * ---------------------------------------------------------------------------------- */

/* As proc_memory_usage(): what may be resident, not what is. */
struct vma_usage {
    uint64_t resident, anon, clean, dirty, shared_clean, shared_dirty, locked;
};

static void add_usage(const struct vma *v, struct vma_usage *sum)
{
    uint64_t size = v->end - v->start;
    if (v->is_stack && size > KIB(136))
        size = KIB(136);
    if (v->prot == PROT_NONE)
        return;
    sum->resident += size;
    sum->locked += v->is_locked ? size : 0;
    if (v->object == NULL || (!is_shared(v) && (v->prot & PROT_WRITE) != 0)) {
        sum->anon += size;
        sum->dirty += size;
    } else if (is_shared(v) && (v->prot & PROT_WRITE) != 0) {
        sum->shared_dirty += size;
    } else {
        sum->shared_clean += size;
    }
}

static void put_kb(struct text *out, const char *name, uint64_t bytes)
{
    size_t start = out->size;
    text_printf(out, "%s:", name);
    text_pad(out, start, 16);
    text_printf(out, "%8llu kB\n", (unsigned long long)(bytes >> 10));
}

static void put_usage(struct text *out, const struct vma_usage *u, bool is_rollup)
{
    put_kb(out, "Rss", u->resident);
    put_kb(out, "Pss", u->resident);
    put_kb(out, "Pss_Dirty", u->dirty + u->shared_dirty);
    if (is_rollup) {
        put_kb(out, "Pss_Anon", u->anon);
        put_kb(out, "Pss_File", u->shared_clean + u->clean);
        put_kb(out, "Pss_Shmem", u->shared_dirty);
    }
    put_kb(out, "Shared_Clean", u->shared_clean);
    put_kb(out, "Shared_Dirty", u->shared_dirty);
    put_kb(out, "Private_Clean", u->clean);
    put_kb(out, "Private_Dirty", u->dirty);
    put_kb(out, "Referenced", u->resident);
    put_kb(out, "Anonymous", u->anon);
    static const char *const none[] = {
        "KSM",           "LazyFree",       "AnonHugePages",   "ShmemPmdMapped",
        "FilePmdMapped", "Shared_Hugetlb", "Private_Hugetlb", "Swap",
        "SwapPss"};
    for (size_t i = 0; i < ARRAY_COUNT(none); i++)
        put_kb(out, none[i], 0);
    put_kb(out, "Locked", u->locked);
}

static void put_flags(struct text *out, const struct vma *v)
{
    const struct {
        bool is_set;
        const char *name;
    } flags[] = {
        {v->prot & PROT_READ, "rd"},
        {v->prot & PROT_WRITE, "wr"},
        {v->prot & PROT_EXEC, "ex"},
        {is_shared(v), "sh"},
        {true, "mr"},
        {!is_shared(v) || (v->max_prot & PROT_WRITE), "mw"},
        {true, "me"},
        {is_shared(v), "ms"},
        {v->is_stack || (v->flags & MAP_GROWSDOWN), "gd"},
        {v->is_locked, "lo"},
        {v->dont_fork, "dc"},
        {v->is_special, "de"},
        {(v->flags & MAP_NORESERVE) != 0, "nr"},
        {v->dont_dump, "dd"},
        {v->wipe_on_fork, "wf"},
        {v->object == NULL, "ac"},
    };
    text_put(out, "VmFlags: ");
    for (size_t i = 0; i < ARRAY_COUNT(flags); i++)
        if (flags[i].is_set)
            text_printf(out, "%s ", flags[i].name);
    text_put(out, "\n");
}

int proc_show_smaps(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    struct vma_walk w = {0};
    int r = subject_open_mm(key, reader, &w.mm);
    if (r != 0)
        return r;
    while (walk_next(&w)) {
        struct vma_file file;
        struct vma_usage usage = {0};
        describe(&w.vma, &file);
        put_header(out, &w.vma, &file);
        free(file.path);
        add_usage(&w.vma, &usage);
        put_kb(out, "Size", w.vma.end - w.vma.start);
        put_kb(out, "KernelPageSize", PAGE_SIZE);
        put_kb(out, "MMUPageSize", PAGE_SIZE);
        put_usage(out, &usage, false);
        text_put(out, "THPeligible:           0\nProtectionKey:         0\n");
        put_flags(out, &w.vma);
        walk_done_with(&w);
    }
    mm_put(w.mm);
    return 0;
}

int proc_show_smaps_rollup(const struct synth_key *key, const struct creds *reader,
                           struct text *out)
{
    struct vma_walk w = {0};
    struct vma_usage usage = {0};
    uint64_t start = 0, end = 0;
    int r = subject_open_mm(key, reader, &w.mm);
    if (r == 0 && w.mm == NULL)
        r = -ESRCH;
    if (r != 0)
        return r;
    while (walk_next(&w)) {
        if (end == 0)
            start = w.vma.start;
        end = w.vma.end;
        add_usage(&w.vma, &usage);
        walk_done_with(&w);
    }
    mm_put(w.mm);
    size_t line = out->size;
    text_printf(out, "%08llx-%08llx ---p 00000000 00:00 0 ", (unsigned long long)start,
                (unsigned long long)end);
    text_pad(out, line, NAME_COLUMN);
    text_put(out, "[rollup]\n");
    put_usage(out, &usage, true);
    return 0;
}

static void put_numa_name(struct text *out, const struct vma *v, const struct vma_file *file)
{
    if (file->path != NULL) {
        text_put(out, " file=");
        text_put_escaped(out, file->path, "\n\t= ");
    } else if (v->is_heap) {
        text_put(out, " heap");
    } else if (v->is_stack) {
        text_put(out, " stack");
    }
}

/* One node. */
int proc_show_numa_maps(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    struct vma_walk w = {0};
    int r = subject_open_mm(key, reader, &w.mm);
    if (r != 0)
        return r;
    while (walk_next(&w)) {
        struct vma_file file;
        struct vma_usage usage = {0};
        describe(&w.vma, &file);
        add_usage(&w.vma, &usage);
        text_printf(out, "%08llx default", (unsigned long long)w.vma.start);
        put_numa_name(out, &w.vma, &file);
        free(file.path);
        unsigned long long pages = usage.resident / PAGE_SIZE;
        if (usage.anon != 0)
            text_printf(out, " anon=%llu dirty=%llu", pages, pages);
        else if (pages != 0)
            text_printf(out, " mapped=%llu", pages);
        if (pages != 0)
            text_printf(out, " N0=%llu kernelpagesize_kB=4", pages);
        text_put(out, "\n");
        walk_done_with(&w);
    }
    mm_put(w.mm);
    return 0;
}
