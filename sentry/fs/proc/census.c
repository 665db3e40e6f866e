/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sums over all processes, for /proc/stat, meminfo and loadavg. Any fiber. Programs poll those
 * files, so the processes are counted at most every tenth of a second, whoever asks.
 */
#include "base/host.h"
#include "sentry/fs/proc/machine.h"
#include "sentry/fs/proc/proc_internal.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/task/host_facts.h"

#define CENSUS_AGE_NS    100000000u
#define LOAD_INTERVAL_NS 5000000000u
#define LOAD_ONE         2048U
#define STACK_TOUCHED                                                                              \
    KIB(136) /* the main stack is mapped whole; Linux would show about this much */

static struct {
    struct lock lock;
    uint64_t taken_ns, load_ns; /* lock, as all that follows */
    struct census last;
} g_census = {.lock = LOCK_INITIALIZER};

static uint64_t min_u64(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* An upper bound: the host knows what is resident, the sentry what could be. Reserved memory
 * (PROT_NONE) doesn't count, of the stack only what programs touch; files count as if they were
 * read whole. */
void proc_memory_usage(const struct mm_counts *counts, struct proc_usage *ret)
{
    uint64_t anon = counts->data + min_u64(counts->stack, STACK_TOUCHED);
    anon = min_u64(min_u64(anon, counts->total), proc_memory_total());
    uint64_t file = min_u64(counts->shared_file, counts->total - anon);
    file = min_u64(file, proc_memory_total() - anon);
    *ret = (struct proc_usage){.resident = anon + file, .anon = anon, .file = file};
}

uint64_t proc_memory_total(void)
{
    return g_sandbox.memory_limit != 0 ? g_sandbox.memory_limit : host_facts()->memory_total;
}

/* Since what is used is only bounded from above, an eighth is always called free: programs that
 * size their caches by this shall not be stopped by an estimate. */
uint64_t proc_memory_free(const struct census *c)
{
    uint64_t total = proc_memory_total(), used = c->anon + tmpfs_used();
    return used > total - total / 8 ? total / 8 : total - used;
}

uint64_t proc_uptime_ns(void)
{
    return host_monotonic_ns() + host_facts()->boot_ns;
}

uint64_t proc_all_cpus(void)
{
    return g_sandbox.cpu_count >= 64 ? UINT64_MAX : (1ULL << g_sandbox.cpu_count) - 1;
}

/* ---- counting
 * ------------------------------------------------------------------------------------ */

/* The threads of one process; a living one with a reference, if there is one. */
static struct task *count_threads(struct thread_group *g, struct census *c)
{
    struct task *alive = NULL, *t;
    tasks_lock();
    TAILQ_FOREACH(t, &g->threads, thread_entry)
    {
        if (t->tid > c->last_pid)
            c->last_pid = t->tid;
        if (t->exiting)
            continue;
        c->threads++;
        if (atomic_load_explicit(&t->state, memory_order_relaxed) == 'R' &&
            !fiber_is_parked(&t->fiber))
            c->running++;
        if (alive == NULL)
            alive = t;
    }
    if (alive != NULL)
        task_get(alive);
    tasks_unlock();
    return alive;
}

static void count_group(struct thread_group *g, struct census *c)
{
    c->cpu_ns += g->child_utime_ns + g->child_stime_ns + g->stime_ns;
    struct task *t = count_threads(g, c);
    struct mm *mm = t != NULL ? task_get_mm(t) : NULL;
    task_put(t);
    if (mm == NULL) {
        c->cpu_ns += g->utime_ns;
        return;
    }
    struct mm_counts counts;
    struct proc_usage usage;
    mm_get_counts(mm, &counts);
    mm_put(mm);
    proc_memory_usage(&counts, &usage);
    c->cpu_ns += group_cpu_ns(g);
    c->anon += usage.anon;
    c->file += usage.file;
}

static void count_all(struct census *c)
{
    struct thread_group *g;
    for (int from = 1; (g = group_next(from)) != NULL; group_put(g)) {
        from = g->tgid + 1;
        count_group(g, c);
    }
}

/* The exponential averages of Linux, at the moments when somebody looks. */
static void update_load_locked(struct census *next, uint64_t now)
{
    static const uint64_t keep[3] = {1884, 2014, 2037}; /* exp(-5/60), exp(-5/300), exp(-5/900) */
    uint64_t steps = (now - g_census.load_ns) / LOAD_INTERVAL_NS;
    g_census.load_ns += steps * LOAD_INTERVAL_NS;
    if (steps > 500)
        steps = 500;
    uint64_t active =
        (next->running > 1 ? next->running - 1 : 0) * (uint64_t)LOAD_ONE; /* not the reader */
    for (int i = 0; i < 3; i++) {
        next->load[i] = g_census.last.load[i];
        for (uint64_t s = 0; s < steps; s++)
            next->load[i] = (next->load[i] * keep[i] + active * (LOAD_ONE - keep[i])) / LOAD_ONE;
    }
}

void proc_census(struct census *ret)
{
    uint64_t now = host_monotonic_ns();
    lock_acquire(&g_census.lock);
    bool is_fresh = g_census.taken_ns != 0 && now - g_census.taken_ns < CENSUS_AGE_NS;
    if (g_census.taken_ns == 0)
        g_census.load_ns = now;
    *ret = g_census.last;
    lock_release(&g_census.lock);
    if (is_fresh)
        return;
    struct census next = {0};
    count_all(&next);
    lock_acquire(&g_census.lock);
    if (next.cpu_ns < g_census.last.cpu_ns) /* a process was between two accounts */
        next.cpu_ns = g_census.last.cpu_ns;
    update_load_locked(&next, now > g_census.load_ns ? now : g_census.load_ns);
    g_census.last = next;
    g_census.taken_ns = now;
    lock_release(&g_census.lock);
    *ret = next;
}

/* ---- for others
 * ---------------------------------------------------------------------------------- */

uint64_t machine_memory_total(void)
{
    return proc_memory_total();
}

uint64_t machine_memory_free(void)
{
    struct census c;
    proc_census(&c);
    return proc_memory_free(&c);
}

uint64_t machine_memory_shared(void)
{
    return tmpfs_used();
}

uint64_t machine_cpu_ns(void)
{
    struct census c;
    proc_census(&c);
    return c.cpu_ns;
}

uint64_t machine_uptime_ns(void)
{
    return proc_uptime_ns();
}

void machine_load(uint64_t ret_load[3])
{
    struct census c;
    proc_census(&c);
    for (int i = 0; i < 3; i++)
        ret_load[i] = c.load[i] * (65536 / LOAD_ONE);
}
