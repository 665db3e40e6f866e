/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/{status,stat,statm,schedstat,sched,io}: what ps(1) and top(1) read. Any fiber; about
 * any process, which may change or end meanwhile: each part is read under its own lock.
 */
#include "sentry/fs/proc/proc_internal.h"
#include "sentry/fs/pty/tty.h"
#include "sentry/task/host_facts.h"
#include <errno.h>
#include <signal.h>
#include <string.h>

#define NS_PER_TICK (1000000000u / PROC_HZ)

/* ---- what is read under the tasks lock
 * ----------------------------------------------------------- */

struct relations {
    int tgid, tid, parent, pgid, sid, tty, tpgid, exit_signal, exit_code;
    unsigned threads;
    bool is_zombie;
};

static void get_relations(const struct subject *s, struct relations *ret)
{
    const struct thread_group *g = s->group;
    *ret = (struct relations){
        .tgid = g->tgid, .tid = s->task != NULL ? s->task->tid : g->tgid, .tpgid = -1};
    tasks_lock();
    ret->parent = g->parent != NULL ? g->parent->tgid : 0;
    if (g->pgrp != NULL) {
        const struct session *session = g->pgrp->session;
        ret->pgid = g->pgrp->pgid;
        ret->sid = session->sid;
        if (session->tty != NULL) {
            ret->tty = (int)session->tty->rdev;
            ret->tpgid = session->foreground_pgid;
        }
    }
    ret->is_zombie = g->state != GROUP_ALIVE;
    ret->threads = g->live_count > 1 ? g->live_count : 1;
    ret->exit_signal = s->task == NULL || s->task == g->leader ? g->exit_signal : -1;
    ret->exit_code = ret->is_zombie ? g->exit_code : 0;
    tasks_unlock();
}

struct signals {
    signal_set pending, shared, blocked, ignored, caught;
    unsigned queued;
};

/* The tasks lock keeps the process's signal table from being exchanged. */
static void get_signals(const struct subject *s, struct signals *ret)
{
    const struct queued_signal *q;
    *ret = (struct signals){0};
    tasks_lock();
    struct sighand *sh = s->group->sighand;
    lock_acquire(&sh->lock);
    if (s->task != NULL) {
        ret->pending = s->task->signals.pending.mask;
        ret->blocked = atomic_load_explicit(&s->task->signals.blocked, memory_order_relaxed);
        TAILQ_FOREACH(q, &s->task->signals.pending.queue, entry)
        ret->queued++;
    }
    ret->shared = s->group->pending.mask;
    TAILQ_FOREACH(q, &s->group->pending.queue, entry)
    ret->queued++;
    for (int signo = 1; signo <= LINUX_NSIG; signo++) {
        uint64_t handler = sh->actions[signo - 1].handler;
        if (handler == 1)
            ret->ignored |= SIGSET_BIT(signo);
        else if (handler != 0)
            ret->caught |= SIGSET_BIT(signo);
    }
    lock_release(&sh->lock);
    tasks_unlock();
}

static void get_memory(const struct subject *s, struct mm_counts *ret_counts,
                       struct proc_usage *ret_usage, struct mm_layout *ret_layout, bool *ret_has_mm)
{
    struct mm *mm = subject_mm(s);
    *ret_counts = (struct mm_counts){0};
    *ret_usage = (struct proc_usage){0};
    *ret_layout = (struct mm_layout){0};
    *ret_has_mm = mm != NULL;
    if (mm == NULL)
        return;
    mm_get_counts(mm, ret_counts);
    *ret_layout = *mm_layout_of(mm);
    mm_put(mm);
    proc_memory_usage(ret_counts, ret_usage);
}

/* ---- status
 * -------------------------------------------------------------------------------------- */

static const char *state_name(char state)
{
    switch (state) {
    case 'R':
        return "R (running)";
    case 'S':
        return "S (sleeping)";
    case 'D':
        return "D (disk sleep)";
    case 'T':
        return "T (stopped)";
    case 't':
        return "t (tracing stop)";
    case 'Z':
        return "Z (zombie)";
    default:
        return "X (dead)";
    }
}

static void put_comm(struct text *out, const char *comm)
{
    for (; *comm != '\0'; comm++) {
        if (*comm == '\n')
            text_put(out, "\\n");
        else if (*comm == '\\')
            text_put(out, "\\\\");
        else
            text_append(out, comm, 1);
    }
}

static unsigned fd_table_size(const struct subject *s)
{
    struct fd_table *fds = subject_fds(s);
    if (fds == NULL)
        return 0;
    unsigned count = fd_table_count(fds);
    fd_table_put(fds);
    return (count + 63u) & ~63u;
}

static void put_identity(const struct subject *s, const struct relations *rel, struct text *out)
{
    char comm[TASK_COMM_SIZE];
    subject_comm(s, comm);
    text_put(out, "Name:\t");
    put_comm(out, comm);
    struct fs_context *fs = subject_fs(s);
    if (fs != NULL) {
        text_printf(out, "\nUmask:\t%04o", __atomic_load_n(&fs->umask, __ATOMIC_RELAXED));
        fs_context_put(fs);
    }
    text_printf(out, "\nState:\t%s\nTgid:\t%d\nNgid:\t0\nPid:\t%d\nPPid:\t%d\nTracerPid:\t0\n",
                state_name(subject_state(s)), rel->tgid, rel->tid, rel->parent);
}

static void put_ids(const struct subject *s, const struct creds *c, const struct relations *rel,
                    struct text *out)
{
    text_printf(out, "Uid:\t%u\t%u\t%u\t%u\nGid:\t%u\t%u\t%u\t%u\nFDSize:\t%u\nGroups:\t", c->uid,
                c->euid, c->suid, c->fsuid, c->gid, c->egid, c->sgid, c->fsgid, fd_table_size(s));
    for (size_t i = 0; i < c->group_count; i++)
        text_printf(out, "%u ", c->groups[i]);
    if (c->group_count == 0)
        text_put(out, " ");
    text_printf(out, "\nNStgid:\t%d\nNSpid:\t%d\nNSpgid:\t%d\nNSsid:\t%d\nKthread:\t0\n", rel->tgid,
                rel->tid, rel->pgid, rel->sid);
}

static void put_kb(struct text *out, const char *name, uint64_t bytes)
{
    text_printf(out, "%s:\t%8llu kB\n", name, (unsigned long long)(bytes >> 10));
}

static void put_memory(const struct subject *s, struct text *out)
{
    struct mm_counts counts;
    struct proc_usage usage;
    struct mm_layout layout;
    bool has_mm;
    get_memory(s, &counts, &usage, &layout, &has_mm);
    if (!has_mm)
        return;
    uint64_t text_size = PAGE_UP(layout.end_code) - PAGE_DOWN(layout.start_code);
    if (text_size > counts.exec)
        text_size = counts.exec;
    put_kb(out, "VmPeak", counts.peak_total > counts.total ? counts.peak_total : counts.total);
    put_kb(out, "VmSize", counts.total);
    put_kb(out, "VmLck", counts.locked);
    put_kb(out, "VmPin", 0);
    put_kb(out, "VmHWM", usage.resident);
    put_kb(out, "VmRSS", usage.resident);
    put_kb(out, "RssAnon", usage.anon);
    put_kb(out, "RssFile", usage.file);
    put_kb(out, "RssShmem", usage.shared);
    put_kb(out, "VmData", counts.data);
    put_kb(out, "VmStk", counts.stack);
    put_kb(out, "VmExe", text_size);
    put_kb(out, "VmLib", counts.exec - text_size);
    put_kb(out, "VmPTE", PAGE_UP(counts.total / 512));
    put_kb(out, "VmSwap", 0);
    put_kb(out, "HugetlbPages", 0);
    text_put(out, "CoreDumping:\t0\nTHP_enabled:\t1\nuntag_mask:\t0xffffffffffffffff\n");
}

static void put_signals(const struct subject *s, struct text *out)
{
    struct signals sig;
    get_signals(s, &sig);
    text_printf(
        out,
        "SigQ:\t%u/%llu\nSigPnd:\t%016llx\nShdPnd:\t%016llx\nSigBlk:\t%016llx\nSigIgn:\t%016llx\n"
        "SigCgt:\t%016llx\n",
        sig.queued, (unsigned long long)s->group->rlimits[RLIMIT_SIGPENDING].soft,
        (unsigned long long)sig.pending, (unsigned long long)sig.shared,
        (unsigned long long)sig.blocked, (unsigned long long)sig.ignored,
        (unsigned long long)sig.caught);
}

static void put_rights(const struct creds *c, struct text *out)
{
    text_printf(
        out,
        "CapInh:\t%016llx\nCapPrm:\t%016llx\nCapEff:\t%016llx\nCapBnd:\t%016llx\nCapAmb:\t%016llx\n"
        "NoNewPrivs:\t%d\nSeccomp:\t0\nSeccomp_filters:\t0\n"
        "Speculation_Store_Bypass:\tthread vulnerable\n"
        "SpeculationIndirectBranch:\tconditional enabled\n",
        (unsigned long long)c->cap_inheritable, (unsigned long long)c->cap_permitted,
        (unsigned long long)c->cap_effective, (unsigned long long)c->cap_bounding,
        (unsigned long long)c->cap_ambient, c->no_new_privs);
}

int proc_show_status(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    struct creds *c = subject_creds(&s);
    if (c == NULL)
        return -ENOMEM;
    struct relations rel;
    get_relations(&s, &rel);
    put_identity(&s, &rel, out);
    put_ids(&s, c, &rel, out);
    put_memory(&s, out);
    text_printf(out, "Threads:\t%u\n", rel.threads);
    put_signals(&s, out);
    put_rights(c, out);
    creds_put(c);
    uint64_t cpus = s.task != NULL ? s.task->cpu_mask & proc_all_cpus() : 0;
    if (cpus == 0)
        cpus = proc_all_cpus();
    text_put(out, "Cpus_allowed:\t");
    text_put_cpu_mask(out, cpus, g_sandbox.cpu_count);
    text_put(out, "\nCpus_allowed_list:\t");
    text_put_cpu_list(out, cpus);
    text_printf(out,
                "\nMems_allowed:\t1\nMems_allowed_list:\t0\nvoluntary_ctxt_switches:\t%llu\n"
                "nonvoluntary_ctxt_switches:\t%llu\n",
                s.task != NULL ? (unsigned long long)s.task->voluntary_switches : 0,
                s.task != NULL ? (unsigned long long)s.task->involuntary_switches : 0);
    return 0;
}

/* ---- stat
 * ---------------------------------------------------------------------------------------- */

static uint64_t cpu_ticks(const struct subject *s, bool is_thread)
{
    uint64_t ns = is_thread && s->task != NULL ? s->task->utime_ns : group_cpu_ns(s->group);
    return ns / NS_PER_TICK;
}

static int priority_of(const struct task *t)
{
    if (t == NULL)
        return 20;
    bool is_realtime = t->sched_policy == 1 || t->sched_policy == 2;
    return is_realtime ? -1 - t->sched_priority : 20 + t->nice;
}

static void put_scheduling(const struct subject *s, bool is_thread, const struct relations *rel,
                           struct text *out)
{
    const struct thread_group *g = s->group;
    uint64_t start = is_thread ? s->task->start_ns : g->start_ns;
    uint64_t system =
        (is_thread && s->task != NULL ? s->task->stime_ns : g->stime_ns) / NS_PER_TICK;
    text_printf(out, " %llu 0 %llu 0 %llu %llu %llu %llu %d %d %u 0 %llu",
                (unsigned long long)g->min_flt, (unsigned long long)g->maj_flt,
                (unsigned long long)cpu_ticks(s, is_thread), (unsigned long long)system,
                (unsigned long long)(g->child_utime_ns / NS_PER_TICK),
                (unsigned long long)(g->child_stime_ns / NS_PER_TICK), priority_of(s->task),
                s->task != NULL ? s->task->nice : 0, rel->threads,
                (unsigned long long)((start + host_facts()->boot_ns) / NS_PER_TICK));
}

int proc_show_stat(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    char comm[TASK_COMM_SIZE];
    struct relations rel;
    struct signals sig;
    struct mm_counts counts;
    struct proc_usage usage;
    struct mm_layout l;
    bool has_mm;
    subject_comm(&s, comm);
    get_relations(&s, &rel);
    get_signals(&s, &sig);
    get_memory(&s, &counts, &usage, &l, &has_mm);
    if (subject_may_read(&s, reader) != 0) {
        l = (struct mm_layout){.start_code = has_mm, .end_code = has_mm};
        rel.exit_code = 0;
    }
    text_printf(out, "%d (%s) %c %d %d %d %d %d %u", rel.tid, comm, subject_state(&s), rel.parent,
                rel.pgid, rel.sid, rel.tty, rel.tpgid,
                0x400000u | (s.group->has_execed ? 0u : 0x40u));
    put_scheduling(&s, key->is_thread, &rel, out);
    text_printf(out, " %llu %llu %llu %llu %llu %llu 0 0", (unsigned long long)counts.total,
                (unsigned long long)(usage.resident / PAGE_SIZE),
                (unsigned long long)s.group->rlimits[RLIMIT_RSS].soft,
                (unsigned long long)l.start_code, (unsigned long long)l.end_code,
                (unsigned long long)l.start_stack);
    const signal_set low = 0x7fffffff; /* what a 32-bit long could hold, as Linux has it */
    text_printf(out, " %llu %llu %llu %llu 0 0 0 %d %u %d %d 0 0 0",
                (unsigned long long)(sig.pending & low), (unsigned long long)(sig.blocked & low),
                (unsigned long long)(sig.ignored & low), (unsigned long long)(sig.caught & low),
                rel.exit_signal, s.task != NULL ? s.task->fiber.worker % g_sandbox.cpu_count : 0,
                s.task != NULL ? s.task->sched_priority : 0,
                s.task != NULL ? s.task->sched_policy : 0);
    text_printf(out, " %llu %llu %llu %llu %llu %llu %llu %d\n", (unsigned long long)l.start_data,
                (unsigned long long)l.end_data, (unsigned long long)l.start_brk,
                (unsigned long long)l.arg_start, (unsigned long long)l.arg_end,
                (unsigned long long)l.env_start, (unsigned long long)l.env_end, rel.exit_code);
    return 0;
}

int proc_show_statm(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    struct mm_counts counts;
    struct proc_usage usage;
    struct mm_layout l;
    bool has_mm;
    get_memory(&s, &counts, &usage, &l, &has_mm);
    uint64_t text_size = PAGE_UP(l.end_code) - PAGE_DOWN(l.start_code);
    text_printf(out, "%llu %llu %llu %llu 0 %llu 0\n",
                (unsigned long long)(counts.total / PAGE_SIZE),
                (unsigned long long)(usage.resident / PAGE_SIZE),
                (unsigned long long)((usage.file + usage.shared) / PAGE_SIZE),
                (unsigned long long)(text_size / PAGE_SIZE),
                (unsigned long long)((counts.data + counts.stack) / PAGE_SIZE));
    return 0;
}

/* ---- small ones
 * ---------------------------------------------------------------------------------- */

int proc_show_schedstat(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r == 0)
        text_printf(out, "%llu 0 %llu\n",
                    (unsigned long long)(cpu_ticks(&s, key->is_thread) * (uint64_t)NS_PER_TICK),
                    s.task != NULL ? (unsigned long long)s.task->voluntary_switches : 0);
    return r;
}

int proc_show_sched(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    char comm[TASK_COMM_SIZE];
    struct relations rel;
    subject_comm(&s, comm);
    get_relations(&s, &rel);
    uint64_t ns = cpu_ticks(&s, key->is_thread) * (uint64_t)NS_PER_TICK;
    uint64_t voluntary = s.task != NULL ? s.task->voluntary_switches : 0;
    uint64_t involuntary = s.task != NULL ? s.task->involuntary_switches : 0;
    text_printf(out,
                "%s (%d, #threads: %u)\n"
                "-------------------------------------------------------------------\n"
                "se.sum_exec_runtime                          : %13llu.%06llu\n"
                "nr_switches                                  : %20llu\n"
                "nr_voluntary_switches                        : %20llu\n"
                "nr_involuntary_switches                      : %20llu\n"
                "policy                                       : %20d\n"
                "prio                                         : %20d\n",
                comm, rel.tid, rel.threads, (unsigned long long)(ns / 1000000u),
                (unsigned long long)(ns % 1000000u), (unsigned long long)(voluntary + involuntary),
                (unsigned long long)voluntary, (unsigned long long)involuntary,
                s.task != NULL ? s.task->sched_policy : 0, 100 + priority_of(s.task));
    return 0;
}

/* Bytes are not counted. */
int proc_show_io(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    int r = proc_check_ptrace(key, reader);
    if (r == 0)
        text_put(out, "rchar: 0\nwchar: 0\nsyscr: 0\nsyscw: 0\nread_bytes: 0\nwrite_bytes: 0\n"
                      "cancelled_write_bytes: 0\n");
    return r;
}
