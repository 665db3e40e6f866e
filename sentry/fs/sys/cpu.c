/* SPDX-License-Identifier: Apache-2.0 */
/*
 * devices/system/cpu: as many processors as the sandbox has. Any fiber. Libraries choose their
 * number of threads and their block sizes by this; the caches are what the processor itself tells
 * (cpuid).
 */
#include "sentry/fs/sys/sys_internal.h"
#include "sentry/task/task.h"
#include <cpuid.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define TEXT(label, text)                                                                          \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .content = (text)                                 \
    }
#define SHOW(label, function)                                                                      \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .show = (function)                                \
    }
#define CACHES_MAX 8

uint64_t sys_all_cpus(void)
{
    return g_sandbox.cpu_count >= 64 ? UINT64_MAX : (1ULL << g_sandbox.cpu_count) - 1;
}

static uint64_t own_mask(const struct synth_key *key)
{
    return 1ULL << (key->id & 63);
}

/* ---- files about all
 * ----------------------------------------------------------------------------- */

static int show_all_list(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    text_put_cpu_list(out, sys_all_cpus());
    text_put(out, "\n");
    return 0;
}

static int show_all_mask(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    text_put_cpu_mask(out, sys_all_cpus(), g_sandbox.cpu_count);
    text_put(out, "\n");
    return 0;
}

static int show_own_list(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    text_put_cpu_list(out, own_mask(key));
    text_put(out, "\n");
    return 0;
}

static int show_own_mask(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    text_put_cpu_mask(out, own_mask(key), g_sandbox.cpu_count);
    text_put(out, "\n");
    return 0;
}

static int show_id(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    text_printf(out, "%d\n", key->id);
    return 0;
}

/* ---- caches
 * -------------------------------------------------------------------------------------- */

struct cache {
    unsigned type; /* 1 data, 2 instruction, 3 unified; 0 = there's none */
    unsigned level, line_size, partitions, ways, sets;
};

/* Leaf 4 of Intel's and, with the same layout, 0x8000001d of AMD's processors. */
static struct cache read_cache(unsigned index)
{
    unsigned a = 0, b = 0, c = 0, d = 0;
    if (!__get_cpuid_count(4, index, &a, &b, &c, &d) || (a & 31) == 0) {
        a = b = c = 0;
        (void)__get_cpuid_count(0x8000001d, index, &a, &b, &c, &d);
    }
    return (struct cache){.type = a & 31,
                          .level = a >> 5 & 7,
                          .line_size = (b & 0xfff) + 1,
                          .partitions = (b >> 12 & 0x3ff) + 1,
                          .ways = (b >> 22) + 1,
                          .sets = c + 1};
}

static unsigned count_caches(void)
{
    unsigned count = 0;
    while (count < CACHES_MAX && read_cache(count).type != 0)
        count++;
    return count;
}

static int show_cache_number(const struct synth_key *key, struct text *out, size_t offset)
{
    struct cache c = read_cache((unsigned)key->number);
    unsigned value;
    memcpy(&value, (const char *)&c + offset, sizeof value);
    text_printf(out, "%u\n", value);
    return 0;
}

#define CACHE_NUMBER(field)                                                                        \
    static int show_cache_##field(const struct synth_key *key, const struct creds *reader,         \
                                  struct text *out)                                                \
    {                                                                                              \
        (void)reader;                                                                              \
        return show_cache_number(key, out, offsetof(struct cache, field));                         \
    }
CACHE_NUMBER(level)
CACHE_NUMBER(line_size)
CACHE_NUMBER(partitions)
CACHE_NUMBER(sets)
CACHE_NUMBER(ways)

static int show_cache_size(const struct synth_key *key, const struct creds *reader,
                           struct text *out)
{
    (void)reader;
    struct cache c = read_cache((unsigned)key->number);
    uint64_t bytes = (uint64_t)c.line_size * c.partitions * c.ways * c.sets;
    text_printf(out, "%lluK\n", (unsigned long long)(bytes >> 10));
    return 0;
}

static int show_cache_type(const struct synth_key *key, const struct creds *reader,
                           struct text *out)
{
    (void)reader;
    static const char *const names[] = {"Unknown", "Data", "Instruction", "Unified"};
    text_printf(out, "%s\n", names[read_cache((unsigned)key->number).type & 3]);
    return 0;
}

/* From the third level on all share it. */
static uint64_t cache_mask(const struct synth_key *key)
{
    return read_cache((unsigned)key->number).level >= 3 ? sys_all_cpus() : own_mask(key);
}

static int show_cache_id(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    text_printf(out, "%d\n", read_cache((unsigned)key->number).level >= 3 ? 0 : key->id);
    return 0;
}

static int show_cache_list(const struct synth_key *key, const struct creds *reader,
                           struct text *out)
{
    (void)reader;
    text_put_cpu_list(out, cache_mask(key));
    text_put(out, "\n");
    return 0;
}

static int show_cache_mask(const struct synth_key *key, const struct creds *reader,
                           struct text *out)
{
    (void)reader;
    text_put_cpu_mask(out, cache_mask(key), g_sandbox.cpu_count);
    text_put(out, "\n");
    return 0;
}

static const struct synth_row cache_row_list[] = {
    SHOW("coherency_line_size", show_cache_line_size),
    SHOW("id", show_cache_id),
    SHOW("level", show_cache_level),
    SHOW("number_of_sets", show_cache_sets),
    SHOW("physical_line_partition", show_cache_partitions),
    SHOW("shared_cpu_list", show_cache_list),
    SHOW("shared_cpu_map", show_cache_mask),
    SHOW("size", show_cache_size),
    SHOW("type", show_cache_type),
    SHOW("ways_of_associativity", show_cache_ways),
};
static const struct synth_rows cache_rows = SYNTH_ROWS(cache_row_list);
static const struct synth_row index_row = {.name = "", .mode = S_IFDIR | 0755, .rows = &cache_rows};

static int index_lookup(const struct synth_key *key, const char *name,
                        const struct synth_row **ret_row, struct synth_key *ret_key)
{
    (void)key;
    int index = strncmp(name, "index", 5) == 0 ? synth_parse_number(name + 5) : -1;
    if (index < 0 || (unsigned)index >= count_caches())
        return -ENOENT;
    *ret_row = &index_row;
    ret_key->number = index;
    return 0;
}

static bool index_next(const struct synth_key *key, int64_t from, int64_t *ret_at, char name[32],
                       uint8_t *ret_type)
{
    (void)key;
    if (from >= count_caches())
        return false;
    *ret_at = from;
    *ret_type = S_IFDIR >> 12;
    snprintf(name, 32, "index%d", (int)from);
    return true;
}

static const struct synth_dynamic indexes = {.lookup = index_lookup, .next = index_next};

/* ---- one processor
 * ------------------------------------------------------------------------------- */

static const struct synth_row topology_row_list[] = {
    TEXT("cluster_id", "65535\n"),
    SHOW("core_cpus", show_own_mask),
    SHOW("core_cpus_list", show_own_list),
    SHOW("core_id", show_id),
    SHOW("core_siblings", show_all_mask),
    SHOW("core_siblings_list", show_all_list),
    SHOW("die_cpus", show_all_mask),
    SHOW("die_cpus_list", show_all_list),
    TEXT("die_id", "0\n"),
    SHOW("package_cpus", show_all_mask),
    SHOW("package_cpus_list", show_all_list),
    TEXT("physical_package_id", "0\n"),
    SHOW("thread_siblings", show_own_mask),
    SHOW("thread_siblings_list", show_own_list),
};
static const struct synth_rows topology_rows = SYNTH_ROWS(topology_row_list);

static int target_node(const struct synth_key *key, struct text *out)
{
    (void)key;
    text_put(out, "../../node/node0");
    return 0;
}

static const struct synth_row one_cpu_row_list[] = {
    {.name = "cache", .mode = S_IFDIR | 0755, .dynamic = &indexes},
    {.name = "node0", .mode = S_IFLNK | 0777, .target = target_node},
    TEXT("online", "1\n"),
    {.name = "topology", .mode = S_IFDIR | 0755, .rows = &topology_rows},
    TEXT("uevent", ""),
};
static const struct synth_rows one_cpu_rows = SYNTH_ROWS(one_cpu_row_list);
static const struct synth_row one_cpu_row = {
    .name = "", .mode = S_IFDIR | 0755, .rows = &one_cpu_rows};

static int cpu_lookup(const struct synth_key *key, const char *name,
                      const struct synth_row **ret_row, struct synth_key *ret_key)
{
    (void)key;
    int cpu = strncmp(name, "cpu", 3) == 0 ? synth_parse_number(name + 3) : -1;
    if (cpu < 0 || (unsigned)cpu >= g_sandbox.cpu_count)
        return -ENOENT;
    *ret_row = &one_cpu_row;
    ret_key->id = cpu;
    return 0;
}

static bool cpu_next(const struct synth_key *key, int64_t from, int64_t *ret_at, char name[32],
                     uint8_t *ret_type)
{
    (void)key;
    if (from >= g_sandbox.cpu_count)
        return false;
    *ret_at = from;
    *ret_type = S_IFDIR >> 12;
    snprintf(name, 32, "cpu%d", (int)from);
    return true;
}

const struct synth_dynamic sys_cpu_dynamic = {.lookup = cpu_lookup, .next = cpu_next};

/* ---- the directory
 * ------------------------------------------------------------------------------- */

static const struct synth_row smt_row_list[] = {TEXT("active", "0\n"),
                                                TEXT("control", "notsupported\n")};
static const struct synth_rows smt_rows = SYNTH_ROWS(smt_row_list);
static const struct synth_row cpu_row_list[] = {
    TEXT("isolated", "\n"),
    TEXT("kernel_max", "63\n"),
    TEXT("offline", "\n"),
    SHOW("online", show_all_list),
    SHOW("possible", show_all_list),
    SHOW("present", show_all_list),
    {.name = "smt", .mode = S_IFDIR | 0755, .rows = &smt_rows},
};
const struct synth_rows sys_cpu_rows = SYNTH_ROWS(cpu_row_list);
