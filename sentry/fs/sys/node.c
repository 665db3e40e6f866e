/* SPDX-License-Identifier: Apache-2.0 */
/* devices/system/node: one node with all processors and all memory. Any fiber. */
#include "sentry/fs/proc/machine.h"
#include "sentry/fs/sys/sys_internal.h"
#include "sentry/task/task.h"
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

static int show_cpulist(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    text_put_cpu_list(out, sys_all_cpus());
    text_put(out, "\n");
    return 0;
}

static int show_cpumap(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    text_put_cpu_mask(out, sys_all_cpus(), g_sandbox.cpu_count);
    text_put(out, "\n");
    return 0;
}

static int show_meminfo(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    uint64_t total = machine_memory_total(), free_bytes = machine_memory_free();
    const struct {
        const char *name;
        uint64_t bytes;
    } lines[] = {{"MemTotal:", total},
                 {"MemFree:", free_bytes},
                 {"MemUsed:", total - free_bytes},
                 {"Shmem:", machine_memory_shared()}};
    for (size_t i = 0; i < ARRAY_COUNT(lines); i++)
        text_printf(out, "Node 0 %-14s %8llu kB\n", lines[i].name,
                    (unsigned long long)(lines[i].bytes >> 10));
    text_put(out, "Node 0 HugePages_Total:     0\nNode 0 HugePages_Free:      0\n"
                  "Node 0 HugePages_Surp:      0\n");
    return 0;
}

static int target_cpu(const struct synth_key *key, struct text *out)
{
    text_printf(out, "../../cpu/cpu%d", key->id);
    return 0;
}

static const struct synth_row cpu_link_row = {
    .name = "", .mode = S_IFLNK | 0777, .target = target_cpu};

static int cpu_lookup(const struct synth_key *key, const char *name,
                      const struct synth_row **ret_row, struct synth_key *ret_key)
{
    (void)key;
    int cpu = strncmp(name, "cpu", 3) == 0 ? synth_parse_number(name + 3) : -1;
    if (cpu < 0 || (unsigned)cpu >= g_sandbox.cpu_count)
        return -ENOENT;
    *ret_row = &cpu_link_row;
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
    *ret_type = S_IFLNK >> 12;
    snprintf(name, 32, "cpu%d", (int)from);
    return true;
}

static const struct synth_dynamic cpus = {.lookup = cpu_lookup, .next = cpu_next};
static const struct synth_rows no_rows;
static const struct synth_row node0_row_list[] = {
    SHOW("cpulist", show_cpulist),
    SHOW("cpumap", show_cpumap),
    TEXT("distance", "10\n"),
    {.name = "hugepages", .mode = S_IFDIR | 0755, .rows = &no_rows},
    SHOW("meminfo", show_meminfo),
    TEXT("numastat",
         "numa_hit 0\nnuma_miss 0\nnuma_foreign 0\ninterleave_hit 0\nlocal_node 0\nother_node 0\n"),
};
static const struct synth_rows node0_rows = SYNTH_ROWS(node0_row_list);
static const struct synth_row node_row_list[] = {
    TEXT("has_cpu", "0\n"),
    TEXT("has_memory", "0\n"),
    TEXT("has_normal_memory", "0\n"),
    {.name = "node0", .mode = S_IFDIR | 0755, .rows = &node0_rows, .dynamic = &cpus},
    TEXT("online", "0\n"),
    TEXT("possible", "0\n"),
};
const struct synth_rows sys_node_rows = SYNTH_ROWS(node_row_list);
