/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of /proc that are about the machine: memory, processor time, uptime, load. Any fiber.
 * All of them cost the same however many processes there are (see census.c).
 */
#include "base/host.h"
#include "sentry/fs/proc/proc_internal.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/task/host_facts.h"

#define NS_PER_TICK (1000000000u / PROC_HZ)

static void put_kb(struct text *out, const char *name, uint64_t bytes)
{
    size_t start = out->size;
    text_printf(out, "%s:", name);
    text_pad(out, start, 16);
    text_printf(out, "%8llu kB\n", (unsigned long long)(bytes >> 10));
}

int proc_show_meminfo(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    struct census c;
    proc_census(&c);
    uint64_t total = proc_memory_total(), available = proc_memory_free(&c), shmem = tmpfs_used();
    uint64_t cached = shmem;
    uint64_t anon = total - available > shmem ? total - available - shmem : 0;
    const struct {
        const char *name;
        uint64_t bytes;
    } lines[] = {
        {"MemTotal", total},
        {"MemFree", available},
        {"MemAvailable", available},
        {"Buffers", 0},
        {"Cached", cached},
        {"SwapCached", 0},
        {"Active", anon + cached},
        {"Inactive", 0},
        {"Active(anon)", anon + shmem},
        {"Inactive(anon)", 0},
        {"Active(file)", 0},
        {"Inactive(file)", 0},
        {"Unevictable", 0},
        {"Mlocked", 0},
        {"SwapTotal", 0},
        {"SwapFree", 0},
        {"Dirty", 0},
        {"Writeback", 0},
        {"AnonPages", anon},
        {"Mapped", c.file < total ? c.file : total},
        {"Shmem", shmem},
        {"KReclaimable", 0},
        {"Slab", 0},
        {"SReclaimable", 0},
        {"SUnreclaim", 0},
        {"KernelStack", 0},
        {"PageTables", 0},
        {"NFS_Unstable", 0},
        {"Bounce", 0},
        {"WritebackTmp", 0},
        {"CommitLimit", total},
        {"Committed_AS", anon + shmem},
        {"VmallocTotal", 34359738367ULL << 10},
        {"VmallocUsed", 0},
        {"VmallocChunk", 0},
        {"Percpu", 0},
        {"AnonHugePages", 0},
        {"ShmemHugePages", 0},
        {"ShmemPmdMapped", 0},
        {"FileHugePages", 0},
        {"FilePmdMapped", 0},
    };
    for (size_t i = 0; i < ARRAY_COUNT(lines); i++)
        put_kb(out, lines[i].name, lines[i].bytes);
    text_put(out, "HugePages_Total:       0\nHugePages_Free:        0\nHugePages_Rsvd:        0\n"
                  "HugePages_Surp:        0\n");
    put_kb(out, "Hugepagesize", MIB(2));
    put_kb(out, "Hugetlb", 0);
    return 0;
}

static void put_cpu_line(struct text *out, const char *name, uint64_t busy_ns, uint64_t total_ns)
{
    uint64_t idle = total_ns > busy_ns ? total_ns - busy_ns : 0;
    text_printf(out, "%s %llu 0 0 %llu 0 0 0 0 0 0\n", name,
                (unsigned long long)(busy_ns / NS_PER_TICK),
                (unsigned long long)(idle / NS_PER_TICK));
}

/* Since the machine's start, as uptime; what the host did before is idle time. */
int proc_show_system_stat(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    struct census c;
    proc_census(&c);
    uint64_t uptime = proc_uptime_ns(), cpus = g_sandbox.cpu_count;
    put_cpu_line(out, "cpu ", c.cpu_ns, uptime * cpus);
    for (unsigned cpu = 0; cpu < cpus; cpu++) {
        text_printf(out, "cpu%u", cpu);
        put_cpu_line(out, "", c.cpu_ns / cpus, uptime);
    }
    int64_t boot = (host_realtime_ns() - (int64_t)uptime) / 1000000000;
    text_printf(out,
                "intr 0\nctxt %llu\nbtime %lld\nprocesses %llu\nprocs_running %u\nprocs_blocked 0\n"
                "softirq 0 0 0 0 0 0 0 0 0 0 0\n",
                (unsigned long long)tasks_forks_total(), (long long)boot,
                (unsigned long long)tasks_forks_total(), c.running > 0 ? c.running : 1);
    return 0;
}

int proc_show_uptime(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    struct census c;
    proc_census(&c);
    uint64_t uptime = proc_uptime_ns() / 10000000u;
    uint64_t all = uptime * g_sandbox.cpu_count, busy = c.cpu_ns / 10000000u;
    uint64_t idle = all > busy ? all - busy : 0;
    text_printf(out, "%llu.%02u %llu.%02u\n", (unsigned long long)(uptime / 100),
                (unsigned)(uptime % 100), (unsigned long long)(idle / 100), (unsigned)(idle % 100));
    return 0;
}

int proc_show_loadavg(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    struct census c;
    proc_census(&c);
    for (int i = 0; i < 3; i++) {
        uint64_t hundredths = (c.load[i] * 100 + 1024) / 2048;
        text_printf(out, "%u.%02u ", (unsigned)(hundredths / 100), (unsigned)(hundredths % 100));
    }
    text_printf(out, "%u/%u %d\n", c.running, c.threads, c.last_pid);
    return 0;
}

int proc_show_vmstat(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    static const char *const zeros[] = {"nr_dirty", "nr_writeback",  "pgpgin",         "pgpgout",
                                        "pswpin",   "pswpout",       "pgfault",        "pgmajfault",
                                        "pgfree",   "pgscan_kswapd", "pgsteal_kswapd", "oom_kill"};
    struct census c;
    proc_census(&c);
    text_printf(out, "nr_free_pages %llu\nnr_anon_pages %llu\nnr_mapped %llu\nnr_shmem %llu\n",
                (unsigned long long)(proc_memory_free(&c) / PAGE_SIZE),
                (unsigned long long)(c.anon / PAGE_SIZE), (unsigned long long)(c.file / PAGE_SIZE),
                (unsigned long long)(tmpfs_used() / PAGE_SIZE));
    for (size_t i = 0; i < ARRAY_COUNT(zeros); i++)
        text_printf(out, "%s 0\n", zeros[i]);
    return 0;
}
