/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the files of sentry/fs/proc. Any fiber; functions that take a `struct subject` or a key
 * may sleep.
 */
#pragma once

#include "sentry/fs/synth/synth.h"
#include "sentry/task/task.h"

#define PROC_HZ              100U
#define CAP_SYS_PTRACE_BIT   19
#define CAP_SYS_ADMIN_BIT    21
#define CAP_SYS_RESOURCE_BIT 24

/* ---- whom an inode is about: subject.c ----------------------------------------------------------
 */

struct subject { /* references */
    struct thread_group *group;
    struct task
        *task; /* the thread, or the process's leader; NULL: `do`'s pid 1, which has no threads */
};
/* -ESRCH when the process or thread of `key` is gone. */
MUST_CHECK int subject_get(const struct synth_key *key, struct subject *ret);
void subject_put(struct subject *s);
#define AUTO_SUBJECT CLEANUP(subject_put) struct subject
/* References, or NULL where there's none (zombies, pid 1). */
struct mm *subject_mm(const struct subject *s);
struct fd_table *subject_fds(const struct subject *s);
struct fs_context *subject_fs(const struct subject *s);
struct creds *subject_creds(const struct subject *s); /* never NULL */
/* The memory for a reader: 0 and *ret = NULL for those that have none; -ESRCH, -EACCES. */
MUST_CHECK int subject_open_mm(const struct synth_key *key, const struct creds *reader,
                               struct mm **ret);
void subject_comm(const struct subject *s, char comm[TASK_COMM_SIZE]);
char subject_state(const struct subject *s);
/* ptrace(2)'s PTRACE_MODE_READ_FSCREDS. 0, -EACCES. */
int subject_may_read(const struct subject *s, const struct creds *reader);
int proc_check_ptrace(const struct synth_key *key, const struct creds *reader); /* of rows */
int proc_refresh(struct inode *inode, const struct synth_row *row, const struct synth_key *key);

/* The root directory that the calling task sees; empty outside of tasks. The caller puts it. */
void proc_reader_root(struct path *ret);

/* ---- tables
 * -------------------------------------------------------------------------------------- */

extern const struct synth_row proc_process_row,
    proc_task_row; /* pid.c: /proc/PID, /proc/PID/task/TID */
extern const struct synth_dynamic proc_fd_dynamic, proc_fdinfo_dynamic,
    proc_task_dynamic;                           /* pid_dirs.c */
extern const struct synth_rows proc_sysctl_rows; /* sysctl.c: /proc/sys */
extern const struct synth_rows proc_net_rows;    /* net.c: /proc/PID/net */
extern const struct synth_rows proc_ns_rows;     /* pid_dirs.c */
extern const struct synth_row proc_fd_row;       /* a descriptor's link */
int proc_fd_refresh(struct inode *inode, const struct synth_key *key);
uint64_t proc_link_count(const struct synth_row *row, const struct synth_key *key);

/* ---- content: functions as synth_row.show, .store, .target, .follow
 * ------------------------------ */

typedef int proc_show(const struct synth_key *key, const struct creds *reader, struct text *out);
typedef int proc_store(const struct synth_key *key, const struct creds *writer, const char *bytes,
                       size_t size);
typedef int proc_target(const struct synth_key *key, struct text *out);
typedef int proc_follow(const struct synth_key *key, struct path *ret);

/* pid_status.c */
proc_show proc_show_status, proc_show_stat, proc_show_statm, proc_show_schedstat, proc_show_sched,
    proc_show_io;
/* pid_memory.c */
proc_show proc_show_cmdline, proc_show_environ, proc_show_auxv;
int proc_open_mem(const struct synth_key *key, struct file *file);
/* pid_maps.c */
proc_show proc_show_maps, proc_show_smaps, proc_show_smaps_rollup, proc_show_numa_maps;
/* pid_mounts.c */
proc_show proc_show_mounts, proc_show_mountinfo, proc_show_mountstats;
/* pid_dirs.c */
proc_target proc_target_exe, proc_target_cwd, proc_target_root;
proc_follow proc_follow_exe, proc_follow_cwd, proc_follow_root;
/* system.c, cpu.c */
proc_show proc_show_cpuinfo, proc_show_meminfo, proc_show_system_stat, proc_show_uptime,
    proc_show_loadavg;
proc_show proc_show_vmstat, proc_show_interrupts;

/* ---- what is said in several places: census.c
 * ---------------------------------------------------- */

struct proc_usage { /* bytes */
    uint64_t resident, anon, file, shared;
};
/* What the process at most has resident: the host alone knows what it really has. */
void proc_memory_usage(const struct mm_counts *counts, struct proc_usage *ret);

struct census { /* of the whole sandbox; at most CENSUS_AGE_NS old, so that polling costs O(1) */
    uint64_t cpu_ns;     /* used by all processes that were, monotonic */
    uint64_t anon, file; /* upper bounds, bytes */
    unsigned running, threads;
    uint64_t load[3]; /* 1, 5 and 15 minutes, times 2048 */
    int last_pid;
};
void proc_census(struct census *ret);
uint64_t proc_memory_total(void);
uint64_t proc_memory_free(const struct census *c);
uint64_t proc_uptime_ns(void); /* since the host booted, as CLOCK_BOOTTIME says */
uint64_t proc_all_cpus(void);  /* mask */
