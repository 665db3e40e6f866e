/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /sys/fs/cgroup, a file system of its own: the sandbox as the only cgroup of a v2 hierarchy, read
 * only. It tells the limits, so that language runtimes which ask here (Java, Go, .NET) get the same
 * answer as elsewhere. Any fiber.
 */
#include "sentry/fs/proc/machine.h"
#include "sentry/fs/sys/sys_internal.h"
#include "sentry/task/task.h"
#include <sys/stat.h>

#define TEXT(label, text)                                                                          \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .content = (text)                                 \
    }
#define SHOW(label, function)                                                                      \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .show = (function)                                \
    }
#define PERIOD_US 100000U

static int show_cpu_max(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    text_printf(out, "%u %u\n", g_sandbox.cpu_count * PERIOD_US, PERIOD_US);
    return 0;
}

static int show_cpu_stat(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    unsigned long long us = machine_cpu_ns() / 1000;
    text_printf(out,
                "usage_usec %llu\nuser_usec %llu\nsystem_usec 0\nnr_periods 0\nnr_throttled 0\n"
                "throttled_usec 0\n",
                us, us);
    return 0;
}

static int show_cpus(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    text_put_cpu_list(out, sys_all_cpus());
    text_put(out, "\n");
    return 0;
}

static int show_memory_max(const struct synth_key *key, const struct creds *reader,
                           struct text *out)
{
    (void)key, (void)reader;
    if (g_sandbox.memory_limit != 0)
        text_printf(out, "%llu\n", (unsigned long long)g_sandbox.memory_limit);
    else
        text_put(out, "max\n");
    return 0;
}

static int show_memory_current(const struct synth_key *key, const struct creds *reader,
                               struct text *out)
{
    (void)key, (void)reader;
    text_printf(out, "%llu\n",
                (unsigned long long)(machine_memory_total() - machine_memory_free()));
    return 0;
}

static int show_memory_stat(const struct synth_key *key, const struct creds *reader,
                            struct text *out)
{
    (void)key, (void)reader;
    uint64_t used = machine_memory_total() - machine_memory_free(),
             shared = machine_memory_shared();
    text_printf(out,
                "anon %llu\nfile %llu\nkernel 0\nshmem %llu\nfile_mapped 0\nfile_dirty "
                "0\nfile_writeback 0\n"
                "inactive_anon 0\nactive_anon %llu\ninactive_file 0\nactive_file 0\nunevictable 0\n"
                "pgfault 0\npgmajfault 0\n",
                (unsigned long long)(used > shared ? used - shared : 0), (unsigned long long)shared,
                (unsigned long long)shared, (unsigned long long)used);
    return 0;
}

static int show_pids_max(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    if (g_sandbox.pids_limit != 0)
        text_printf(out, "%u\n", g_sandbox.pids_limit);
    else
        text_put(out, "max\n");
    return 0;
}

static int show_pids_current(const struct synth_key *key, const struct creds *reader,
                             struct text *out)
{
    (void)key, (void)reader;
    text_printf(out, "%u\n", tasks_count());
    return 0;
}

static int show_procs(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    struct thread_group *g;
    for (int from = 1; (g = group_next(from)) != NULL; group_put(g)) {
        from = g->tgid + 1;
        text_printf(out, "%d\n", g->tgid);
    }
    return 0;
}

static int show_threads(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    struct thread_group *g;
    struct task *t;
    for (int from = 1; (g = group_next(from)) != NULL; group_put(g)) {
        from = g->tgid + 1;
        for (int tid = 0; (t = group_next_task(g, tid)) != NULL; task_put(t)) {
            tid = t->tid + 1;
            text_printf(out, "%d\n", t->tid);
        }
    }
    return 0;
}

static const struct synth_row rows[] = {
    TEXT("cgroup.controllers", "cpuset cpu memory pids\n"),
    TEXT("cgroup.events", "populated 1\nfrozen 0\n"),
    TEXT("cgroup.max.depth", "max\n"),
    TEXT("cgroup.max.descendants", "max\n"),
    SHOW("cgroup.procs", show_procs),
    TEXT("cgroup.stat", "nr_descendants 0\nnr_dying_descendants 0\n"),
    TEXT("cgroup.subtree_control", ""),
    SHOW("cgroup.threads", show_threads),
    TEXT("cgroup.type", "domain\n"),
    SHOW("cpu.max", show_cpu_max),
    TEXT("cpu.max.burst", "0\n"),
    SHOW("cpu.stat", show_cpu_stat),
    TEXT("cpu.weight", "100\n"),
    SHOW("cpuset.cpus", show_cpus),
    SHOW("cpuset.cpus.effective", show_cpus),
    TEXT("cpuset.mems", "0\n"),
    TEXT("cpuset.mems.effective", "0\n"),
    SHOW("memory.current", show_memory_current),
    TEXT("memory.events", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\noom_group_kill 0\n"),
    TEXT("memory.high", "max\n"),
    TEXT("memory.low", "0\n"),
    SHOW("memory.max", show_memory_max),
    TEXT("memory.min", "0\n"),
    SHOW("memory.stat", show_memory_stat),
    TEXT("memory.swap.current", "0\n"),
    TEXT("memory.swap.max", "0\n"),
    SHOW("pids.current", show_pids_current),
    SHOW("pids.max", show_pids_max),
};
const struct synth_rows sys_cgroup_rows = SYNTH_ROWS(rows);
