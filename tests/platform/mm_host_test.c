/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sentry/mm on a real platform: random operations, after each of which the tree says the same as
 * the host's /proc/PID/maps of the stub. A program without a scheduler: no fiber, one guest thread
 * that never runs. Usage: mm_host_test systrap|ptrace [seed]
 */
#include "sentry/mm/mm.h"
#include "sentry/mm/uaccess.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define WINDOW       0x10000000UL
#define WINDOW_PAGES 64u
#define STEPS        3000

struct file_object {
    struct mappable mappable;
    int hfd;
};

static struct platform *g_platform;
static struct platform_thread *g_thread;
static struct mm *g_mm;
static const struct mm_limits g_limits = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
static uint64_t g_random;
static char g_what[160];

static void fail(const char *why, unsigned long at)
{
    printf("%s: %s at %#lx\n", g_what, why, at);
    exit(1);
}

static unsigned pick(unsigned below)
{
    g_random = g_random * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(g_random >> 33) % below;
}

static void object_ref(struct mappable *m)
{
    (void)m;
}

static int object_map(struct mappable *m, uint64_t offset, uint64_t size, int prot, int flags,
                      int *ret_hfd, uint64_t *ret_host_offset)
{
    (void)size, (void)prot, (void)flags;
    *ret_hfd = container_of(m, struct file_object, mappable)->hfd;
    *ret_host_offset = offset;
    return 0;
}

static const struct mappable_ops object_ops = {
    .get = object_ref, .put = object_ref, .map = object_map};
static struct file_object g_objects[2];

/* ---- the host's view ----------------------------------------------------------------------------
 */

struct host_vma {
    unsigned long start, end, offset;
    int prot;
    bool shared, is_file;
};

static size_t read_maps(struct host_vma *list, size_t max)
{
    char path[64], line[512];
    snprintf(path, sizeof(path), "/proc/%d/maps", platform_space_host_pid(mm_space(g_mm)));
    FILE *f = fopen(path, "r");
    if (f == NULL)
        fail("no maps", 0);
    size_t n = 0;
    while (n < max && fgets(line, sizeof(line), f) != NULL) {
        struct host_vma *h = &list[n];
        char mode[5];
        unsigned long inode;
        if (sscanf(line, "%lx-%lx %4s %lx %*s %lu", &h->start, &h->end, mode, &h->offset, &inode) !=
                5 ||
            h->start >= platform_info(g_platform)->max_addr.va)
            continue;
        h->prot = (mode[0] == 'r' ? PROT_READ : 0) | (mode[1] == 'w' ? PROT_WRITE : 0) |
                  (mode[2] == 'x' ? PROT_EXEC : 0);
        h->shared = mode[3] == 's';
        h->is_file = inode != 0;
        n++;
    }
    fclose(f);
    return n;
}

static void fail_with_maps(const char *why, unsigned long at)
{
    char command[64];
    struct vma v;
    for (uint64_t from = 0; mm_next_vma(g_mm, from, &v); from = v.end)
        printf("%lx-%lx prot %d flags %#x %lx\n", v.start, v.end, v.prot, (unsigned)v.flags, v.offset);
    fflush(stdout);
    snprintf(command, sizeof(command), "cat /proc/%d/maps", platform_space_host_pid(mm_space(g_mm)));
    if (system(command) != 0)
        printf("no maps\n");
    fail(why, at);
}

/* Each host VMA lies in one of the tree's, with the same attributes; both cover the same. */
static void compare(void)
{
    static struct host_vma host[4096];
    size_t count = read_maps(host, 4096), i = 0;
    struct vma v;
    for (uint64_t at = 0; mm_next_vma(g_mm, at, &v); at = v.end) {
        if (v.is_special)
            continue;
        uint64_t next = v.start;
        while (next < v.end) {
            if (i == count || host[i].start != next || host[i].end > v.end)
                fail_with_maps("the host has other borders", next);
            const struct host_vma *h = &host[i++];
            if (h->prot != v.prot)
                fail("protection", next);
            if (h->shared != ((v.flags & MAP_TYPE) == MAP_SHARED) ||
                h->is_file != (v.object != NULL))
                fail("kind", next);
            if (v.object != NULL && h->offset != v.offset + (next - v.start))
                fail("offset", next);
            next = h->end;
        }
    }
    if (i != count)
        fail("the host has more", host[i].start);
}

/* ---- operations ---------------------------------------------------------------------------------
 */

static guest_addr page(unsigned n)
{
    return GUEST_ADDR(WINDOW + n * PAGE_SIZE);
}

static const int g_prots[] = {PROT_NONE, PROT_READ, PROT_READ | PROT_WRITE, PROT_READ | PROT_EXEC,
                              PROT_READ | PROT_WRITE | PROT_EXEC};

static void step_mmap(void)
{
    static const int kinds[] = {MAP_PRIVATE, MAP_PRIVATE | MAP_NORESERVE,
                                MAP_PRIVATE | MAP_POPULATE, MAP_SHARED};
    unsigned at = pick(WINDOW_PAGES), count = 1 + pick(8), object = pick(4);
    int prot = g_prots[pick(5)], flags = kinds[pick(4)];
    if (object >= 2 && flags == MAP_SHARED)
        flags = MAP_PRIVATE;
    flags |= pick(3) != 0 ? MAP_FIXED : 0;
    snprintf(g_what, sizeof(g_what), "mmap %u+%u prot %d flags %#x object %u", at, count, prot,
             flags, object);
    int64_t r = mm_mmap(g_mm, g_thread, &g_limits, page(at), count * PAGE_SIZE, prot, flags,
                        object < 2 ? &g_objects[object].mappable : NULL, pick(16) * PAGE_SIZE);
    if (r < 0)
        fail("refused", (unsigned long)-r);
}

static void step_touch(void)
{
    unsigned at = pick(WINDOW_PAGES);
    snprintf(g_what, sizeof(g_what), "touch %u", at);
    int r = copy_out(g_mm, page(at), "x", 1);
    (void)r; /* beyond a file's end it is EFAULT, too */
}

static void step(void)
{
    unsigned at = pick(WINDOW_PAGES), count = 1 + pick(8), to = pick(WINDOW_PAGES),
             more = 1 + pick(10);
    static const int moves[] = {0, MREMAP_MAYMOVE, MREMAP_MAYMOVE | MREMAP_FIXED,
                                MREMAP_MAYMOVE | 4};
    int flags = moves[pick(4)], prot = g_prots[pick(5)];
    switch (pick(8)) {
    case 0:
    case 1:
    case 2:
        step_mmap();
        break;
    case 3:
        snprintf(g_what, sizeof(g_what), "munmap %u+%u", at, count);
        if (mm_munmap(g_mm, g_thread, page(at), count * PAGE_SIZE) != 0)
            fail("refused", at);
        break;
    case 4:
        snprintf(g_what, sizeof(g_what), "mprotect %u+%u prot %d", at, count, prot);
        (void)mm_mprotect(g_mm, g_thread, page(at), count * PAGE_SIZE, prot);
        break;
    case 5:
        snprintf(g_what, sizeof(g_what), "mremap %u+%u to +%u at %u flags %d", at, count, more, to,
                 flags);
        (void)mm_mremap(g_mm, g_thread, &g_limits, page(at), count * PAGE_SIZE,
                        flags & 4 ? count * PAGE_SIZE : more * PAGE_SIZE, flags, page(to));
        break;
    case 6:
        snprintf(g_what, sizeof(g_what), "madvise %u+%u", at, count);
        (void)mm_madvise(g_mm, g_thread, page(at), count * PAGE_SIZE,
                         pick(2)   ? MADV_DONTNEED
                         : pick(2) ? MADV_DONTFORK
                                   : MADV_DOFORK);
        break;
    default:
        step_touch();
        break;
    }
}

int main(int argc, char **argv)
{
    if (argc < 2)
        return 2;
    g_random = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
    signal(SIGALRM, SIG_DFL);
    alarm(120);
    struct platform_config config = {.name = argv[1], .cpu_count = 1, .max_processes = 8};
    const char *why;
    if (platform_new(&config, &g_platform, &why) != 0) {
        printf("no platform: %s\n", why);
        return 1;
    }
    struct platform_space *space;
    if (platform_space_new(g_platform, 0, &space, &g_thread) != 0 ||
        mm_new(g_platform, space, &g_mm) != 0)
        return 1;
    mm_thread_added(g_mm);
    for (int i = 0; i < 2; i++) {
        g_objects[i] = (struct file_object){{&object_ops}, memfd_create("object", MFD_CLOEXEC)};
        if (ftruncate(g_objects[i].hfd, 20 * PAGE_SIZE) != 0)
            return 1;
    }
    for (int i = 0; i < STEPS; i++) {
        step();
        int64_t result;
        if (mm_flush(g_mm, g_thread, &result) != 0)
            printf("%s: failed later: %ld\n", g_what, (long)result);
        compare();
    }
    mm_put(g_mm);
    platform_space_put(space);
    platform_thread_free(g_thread);
    platform_free(g_platform);
    printf("%d steps on %s\n", STEPS, argv[1]);
    return 0;
}
