/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The small files of /proc/PID: limits, names, out-of-memory scores, and what can be written. Any
 * fiber. What is written comes from guests and is parsed here.
 */
#include "sentry/fs/proc/pid_values.h"
#include <errno.h>
#include <string.h>

int proc_show_comm(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    char comm[TASK_COMM_SIZE];
    subject_comm(&s, comm);
    text_printf(out, "%s\n", comm);
    return 0;
}

int proc_store_comm(const struct synth_key *key, const struct creds *writer, const char *bytes,
                    size_t size)
{
    (void)writer;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    const struct task *self = task_current();
    if (s.task == NULL || self == NULL || self->group != s.group)
        return -EINVAL;
    char comm[TASK_COMM_SIZE] = {0};
    size_t len = strnlen(bytes, size); /* a newline is part of it, as on Linux */
    memcpy(comm, bytes, len < sizeof comm - 1 ? len : sizeof comm - 1);
    lock_acquire(&s.task->state_lock);
    memcpy(s.task->comm, comm, sizeof comm);
    lock_release(&s.task->state_lock);
    return 0;
}

int proc_show_limits(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    static const struct {
        int resource;
        const char *name, *unit;
    } rows[] = {
        {RLIMIT_CPU, "Max cpu time", "seconds"},
        {RLIMIT_FSIZE, "Max file size", "bytes"},
        {RLIMIT_DATA, "Max data size", "bytes"},
        {RLIMIT_STACK, "Max stack size", "bytes"},
        {RLIMIT_CORE, "Max core file size", "bytes"},
        {RLIMIT_RSS, "Max resident set", "bytes"},
        {RLIMIT_NPROC, "Max processes", "processes"},
        {RLIMIT_NOFILE, "Max open files", "files"},
        {RLIMIT_MEMLOCK, "Max locked memory", "bytes"},
        {RLIMIT_AS, "Max address space", "bytes"},
        {RLIMIT_LOCKS, "Max file locks", "locks"},
        {RLIMIT_SIGPENDING, "Max pending signals", "signals"},
        {RLIMIT_MSGQUEUE, "Max msgqueue size", "bytes"},
        {RLIMIT_NICE, "Max nice priority", ""},
        {RLIMIT_RTPRIO, "Max realtime priority", ""},
        {RLIMIT_RTTIME, "Max realtime timeout", "us"},
    };
    static_assert(ARRAY_COUNT(rows) == RLIM_NLIMITS, "a row for each limit");
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    text_put(out,
             "Limit                     Soft Limit           Hard Limit           Units     \n");
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        size_t line = out->size;
        const struct rlimit_pair *l = &s.group->rlimits[rows[i].resource];
        const uint64_t values[2] = {l->soft, l->hard};
        text_printf(out, "%-26s", rows[i].name);
        for (size_t v = 0; v < 2; v++) {
            if (values[v] == UINT64_MAX)
                text_put(out, "unlimited");
            else
                text_printf(out, "%llu", (unsigned long long)values[v]);
            text_pad(out, line, 26 + 21 * (v + 1));
        }
        text_printf(out, "%-10s\n", rows[i].unit);
    }
    return 0;
}

/* ---- out of memory
 * ------------------------------------------------------------------------------- */

int proc_show_oom_score(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    int64_t score = 0;
    struct mm *mm = subject_mm(&s);
    if (mm != NULL) {
        struct mm_counts counts;
        struct proc_usage usage;
        mm_get_counts(mm, &counts);
        mm_put(mm);
        proc_memory_usage(&counts, &usage);
        score =
            (int64_t)(usage.resident / (proc_memory_total() / 1000 + 1)) + s.group->oom_score_adj;
        score = score < 0 ? 0 : 666 + score * 2 / 3;
    }
    text_printf(out, "%lld\n", (long long)score);
    return 0;
}

int proc_show_oom_score_adj(const struct synth_key *key, const struct creds *reader,
                            struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r == 0)
        text_printf(out, "%d\n", s.group->oom_score_adj);
    return r;
}

static int set_oom_score_adj(const struct synth_key *key, const struct creds *writer, int value)
{
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    if (value < s.group->oom_score_adj && value < 0 && !creds_capable(writer, CAP_SYS_RESOURCE_BIT))
        return -EACCES;
    s.group->oom_score_adj = value;
    return 0;
}

int proc_store_oom_score_adj(const struct synth_key *key, const struct creds *writer,
                             const char *bytes, size_t size)
{
    (void)size;
    int64_t value;
    int r = synth_parse_value(bytes, -1000, 1000, &value);
    return r == 0 ? set_oom_score_adj(key, writer, (int)value) : r;
}

/* The scale of old: -17 (never) to 15. */
int proc_show_oom_adj(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r == 0) {
        int adj = s.group->oom_score_adj;
        text_printf(out, "%d\n", adj == 1000 ? 15 : adj * 17 / 1000);
    }
    return r;
}

int proc_store_oom_adj(const struct synth_key *key, const struct creds *writer, const char *bytes,
                       size_t size)
{
    (void)size;
    int64_t value;
    int r = synth_parse_value(bytes, -17, 15, &value);
    if (r != 0)
        return r;
    return set_oom_score_adj(key, writer, value == 15 ? 1000 : (int)value * 1000 / 17);
}

/* ---- others
 * -------------------------------------------------------------------------------------- */

int proc_show_wchan(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    bool is_shown = s.task != NULL && s.task->wait_channel != NULL && subject_state(&s) == 'S' &&
                    subject_may_read(&s, reader) == 0;
    text_put(out, is_shown ? s.task->wait_channel : "0");
    return 0;
}

int proc_show_personality(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r == 0)
        r = subject_may_read(&s, reader);
    if (r == 0)
        text_printf(out, "%08x\n", s.task != NULL ? s.task->personality : 0);
    return r;
}

int proc_show_timerslack(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r == 0)
        text_printf(out, "%llu\n", s.task != NULL ? (unsigned long long)s.task->timer_slack_ns : 0);
    return r;
}

int proc_store_timerslack(const struct synth_key *key, const struct creds *writer,
                          const char *bytes, size_t size)
{
    (void)size;
    AUTO_SUBJECT s = {0};
    int64_t value;
    int r = synth_parse_value(bytes, 0, INT64_MAX, &value);
    if (r == 0)
        r = subject_get(key, &s);
    if (r == 0 && subject_may_read(&s, writer) != 0)
        r = -EPERM;
    if (r == 0 && s.task != NULL)
        s.task->timer_slack_ns = value == 0 ? 50000 : (uint64_t)value;
    return r;
}

/* The children whom the process has; Linux tells which thread made them, we say it of the leader.
 */
int proc_show_children(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    const struct thread_group *child;
    tasks_lock();
    if (s.task == s.group->leader) {
        TAILQ_FOREACH(child, &s.group->children, sibling)
        text_printf(out, "%d ", child->tgid);
    }
    tasks_unlock();
    return 0;
}

int proc_show_attr(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader, (void)out;
    return -EINVAL; /* what Linux says without a security module that labels processes */
}

int proc_store_refused(const struct synth_key *key, const struct creds *writer, const char *bytes,
                       size_t size)
{
    (void)key, (void)writer, (void)bytes, (void)size;
    return -EPERM;
}

int proc_store_ignored(const struct synth_key *key, const struct creds *writer, const char *bytes,
                       size_t size)
{
    (void)key, (void)writer, (void)bytes, (void)size;
    return 0;
}

int proc_store_setgroups(const struct synth_key *key, const struct creds *writer, const char *bytes,
                         size_t size)
{
    (void)key, (void)writer;
    size_t len = size > 0 && bytes[size - 1] == '\n' ? size - 1 : size;
    if (len == 5 && memcmp(bytes, "allow", 5) == 0)
        return 0;
    return len == 4 && memcmp(bytes, "deny", 4) == 0 ? -EPERM : -EINVAL;
}
