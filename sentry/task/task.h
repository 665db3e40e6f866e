/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guest threads (tasks), processes (thread groups), sessions and process groups.
 *
 * A task has a fiber, active while one of its events is being handled, and a platform thread, which
 * runs its guest code. `task thread only` fields are touched only by the task's own fiber (or before it
 * first runs).
 *
 * Locks (order): mm's and vfs's → tasks lock (g_tasks: process tree, pid table, groups' exit states)
 * → sighand->lock (handlers, pending signals of a group and its tasks) → wait queues, fibers.
 * Both are short locks.
 */
#pragma once

#include "abi/guest_addr.h"
#include "base/lock.h"
#include "sentry/mm/mm.h"
#include "sentry/platform/platform.h"
#include "sentry/sched/sched.h"
#include "sentry/sched/wait_queue.h"
#include "sentry/task/fd_table.h"
#include "sentry/task/signal.h"
#include "sentry/vfs/vfs.h"
#include <bsd/sys/queue.h>
#include <stdatomic.h>
#include <sys/resource.h>

#define TASK_COMM_SIZE 16
#define TASK_PID_MAX 32768

/* cwd, root and umask: shared by CLONE_FS. */
struct fs_context {
    _Atomic uint32_t refs;
    struct lock lock;
    struct path root, cwd; /* refs; lock */
    uint32_t umask;
    struct mount_namespace *ns; /* ref */
};
struct fs_context *fs_context_new(struct mount_namespace *ns, const struct path *root,
                                  const struct path *cwd);
struct fs_context *fs_context_copy(struct fs_context *old);
void fs_context_put(struct fs_context *fs);

struct process_group;
struct session;
struct session {
    _Atomic uint32_t refs;
    int sid;
    struct tty *tty;           /* controlling terminal, ref; tasks lock */
    int foreground_pgid;       /* of that terminal; kept here; tasks lock */
};
struct process_group {
    _Atomic uint32_t refs;
    int pgid;
    struct session *session;   /* ref */
    TAILQ_HEAD(, thread_group) members; /* tasks lock */
};

struct rlimit_pair {
    uint64_t soft, hard;
};

struct posix_timer;
enum group_state { GROUP_ALIVE, GROUP_ZOMBIE, GROUP_DEAD };

/* A process. */
struct thread_group {
    _Atomic uint32_t refs;
    int tgid;
    TAILQ_HEAD(, task) threads;        /* tasks lock; the leader stays until it is reaped */
    unsigned live_count;               /* tasks lock: threads that haven't exited */
    struct task *leader;               /* tasks lock */
    struct task *reaped_leader;        /* ref that was the table's, between unlinking and reaping */
    struct thread_group *parent;       /* borrowed; tasks lock */
    TAILQ_HEAD(, thread_group) children; /* tasks lock */
    TAILQ_ENTRY(thread_group) sibling;
    TAILQ_ENTRY(thread_group) pgrp_entry;
    struct process_group *pgrp;        /* ref; tasks lock */
    bool is_init;                      /* `do`'s built-in pid 1: has no task */
    bool is_first;                     /* the command: init looks after it as a shell after a job */
    bool is_subreaper, has_execed;
    int exit_signal;                   /* to the parent; 0 = none; SIGCHLD usually */

    struct sighand *sighand;           /* ref */
    struct signal_queue pending;       /* sighand->lock: sent to the process */
    bool group_exiting;                /* sighand->lock: exit_group or a fatal signal */
    int exit_code;                     /* wait status once group_exiting, or of the last thread */
    struct task *exec_task;            /* execve by this thread kills all others; sighand->lock */
    /* job control; sighand->lock */
    bool stopped;                      /* all threads park in signal delivery until SIGCONT */
    int stop_signal;
    bool stop_reported, continued_pending; /* for wait4(WUNTRACED | WCONTINUED); tasks lock */
    struct wait_queue stop_wait;

    enum group_state state;            /* tasks lock */
    struct wait_queue child_wait;      /* its wait4() callers sleep here */
    struct wait_queue exit_wait;       /* pidfd readiness */

    struct rlimit_pair rlimits[RLIM_NLIMITS]; /* group lock-free: written under tasks lock */
    struct file *exe;                  /* ref: /proc/PID/exe; tasks lock */
    struct lock timers_lock;
    struct itimer_state {
        struct timer timer;
        struct thread_group *group;
        uint64_t interval_ns;
        uint64_t cpu_deadline_ns; /* of the process's CPU time; 0 = disarmed */
    } itimers[4];                      /* ITIMER_REAL, _VIRTUAL, _PROF; ITIMER_CPU_LIMIT */
    TAILQ_HEAD(, posix_timer) posix_timers; /* timers_lock */
    int next_timer_id;
    unsigned posix_timer_count;        /* timers_lock */
    bool timers_released;              /* timers_lock: the last thread is exiting, nothing is armed any more */

    uint64_t start_ns;                 /* monotonic */
    _Atomic uint64_t utime_ns, stime_ns;         /* of threads that exited */
    _Atomic uint64_t child_utime_ns, child_stime_ns; /* of reaped children */
    uint64_t min_flt, maj_flt;
    int oom_score_adj;
    bool dumpable;
};

/* A guest thread. */
struct task {
    struct fiber fiber;
    _Atomic uint32_t refs;
    int tid;
    struct thread_group *group;        /* ref */
    TAILQ_ENTRY(task) thread_entry;    /* tasks lock */
    struct platform_thread *pt;        /* owned; NULL while lent to a vfork child. Read by the task's own
                                          fiber; changed under sighand->lock, for kicks by others */
    struct platform_event event;       /* what started the current activation */
    struct mm *mm;                     /* ref; task thread only; others: task_get_mm() */
    struct lock state_lock;            /* mm, fds, fs, creds, comm against other tasks' reads */
    struct fd_table *fds;              /* ref */
    struct fs_context *fs;             /* ref */
    struct creds *creds;               /* ref: subjective = objective */
    char comm[TASK_COMM_SIZE];

    struct task_signals signals;       /* sighand->lock, see signal.h */

    guest_addr set_child_tid, clear_child_tid;
    guest_addr robust_list;
    uint64_t robust_list_size;
    struct task *vfork_parent;         /* borrowed: sleeps until vfork_done; tasks lock */
    bool mm_borrowed;                  /* vfork child: mm and host thread are the parent's */
    struct wait_queue vfork_wait;
    bool vfork_done;                   /* atomic enough: set once, under vfork_wait's wake */

    /* vfork: what the borrowed host thread held before; restored when it's given back */
    struct guest_regs vfork_regs;
    uint8_t *vfork_xstate;             /* owned */
    ssize_t vfork_xstate_size;

    int64_t syscall_nr;                /* of the current activation; -1 = none */
    int restart_code;                  /* ERESTART* that the call ended with; 0 = none */
    bool regs_replaced;                /* the call set all registers (execve, rt_sigreturn) */
    bool exit_requested;               /* exit(2) or exit_group(2): exit_code is set */
    uint8_t *xstate_buffer;            /* owned: info->xstate_size bytes, for signal frames */
    struct restart_block {             /* restart_syscall(2) of nanosleep, futex, poll */
        int64_t (*fn)(struct task *task);
        uint64_t args[6];
        guest_addr addr;
    } restart;

    bool exiting;                      /* tasks lock: task_exit() has begun */
    int exit_code;                     /* wait status */
    uint32_t personality;
    uint64_t cpu_mask;                 /* sched_setaffinity */
    _Atomic bool affinity_changed;     /* the host thread is to follow before guest code runs */
    int nice, sched_policy, sched_priority, ioprio;
    int pdeath_signal;
    bool no_new_privs;                 /* mirrors creds */
    uint64_t timer_slack_ns;
    _Atomic uint64_t utime_ns, stime_ns;
    _Atomic uint64_t voluntary_switches, involuntary_switches;
    const char *wait_channel;          /* static storage: for /proc/PID/wchan and state letter */
    _Atomic char state;                /* 'R' 'S' 'D' 'T' 'Z' 'X' for /proc */
    uint64_t start_ns;
};

/* ---- the sandbox -------------------------------------------------------------------------------- */

struct sandbox { /* one for each sentry process; immutable after start except where said */
    /* Serves one system call; set by the layer above (sentry/syscalls) at start. */
    int64_t (*dispatch)(struct task *task, uint64_t nr, const uint64_t args[6]);
    struct platform *platform;
    const struct platform_info *info;
    struct mount_namespace *ns;
    unsigned cpu_count;
    uint64_t memory_limit; /* bytes; 0 = the host's */
    uint32_t pids_limit;
    bool strace;
    char hostname[65], domainname[65]; /* uts_lock */
    struct lock uts_lock;
    uint64_t boot_ns;      /* monotonic at start: /proc/uptime counts from the host's boot like Linux */
    struct thread_group *init_group;
};
extern struct sandbox g_sandbox;

/* ---- lookup ------------------------------------------------------------------------------------- */

void task_get(struct task *t);
void task_put(struct task *t);
void group_get(struct thread_group *g);
void group_put(struct thread_group *g);
struct task *task_find(int tid);            /* ref or NULL */
struct thread_group *group_find(int tgid);  /* ref or NULL; zombies too */
/* Would nobody in the session outside `pg` be left who could continue it (setpgid(2))? `ignoring` is about
 * to exit, or NULL. */
bool pgrp_is_orphaned_locked(struct process_group *pg, const struct thread_group *ignoring);
/* Walks all processes in ascending tgid: the first with tgid >= from, ref; NULL at the end. */
struct thread_group *group_next(int from);
/* Walks threads: the first with tid >= from, ref. */
struct task *group_next_task(struct thread_group *g, int from);
struct mm *task_get_mm(struct task *t);           /* ref; NULL once it exited. Any fiber */
struct fd_table *task_get_fds(struct task *t);    /* ref; NULL once it exited */
struct creds *task_get_creds(struct task *t);     /* ref */
/* The ids of any task, another one's too: its credentials may be replaced and freed at any time, so nobody but
 * the task itself reads `creds`. Short locks may be held. */
struct task_ids {
    uint32_t uid, euid, suid, gid, egid, sgid;
};
struct task_ids task_get_ids(struct task *t);
struct file *group_get_exe(struct thread_group *g); /* ref or NULL */
/* The task whose fiber is executing; NULL on the sentry's own fibers and threads. */
struct task *task_current(void);
uint64_t group_cpu_ns(struct thread_group *g);     /* host CPU time of the process so far */
unsigned tasks_count(void);                        /* threads alive */
uint64_t tasks_forks_total(void);
extern struct lock g_tasks_lock;
#define tasks_lock() lock_acquire(&g_tasks_lock)
#define tasks_unlock() lock_release(&g_tasks_lock)
/* The same lookups with the tasks lock held: borrowed pointers, valid while it is. */
struct task *task_find_locked(int tid);
struct thread_group *group_find_locked(int tgid);
struct process_group *pgrp_find_locked(int pgid);

/* What path functions need, borrowed from the calling task (valid until its next chdir etc. by another
 * thread: so it takes references). */
void task_walk_begin(struct task *t, struct walk_context *ret); /* refs on root and cwd */
void task_walk_end(struct walk_context *ctx);
/* Where a *at() path starts: AT_FDCWD or a descriptor. The path owned by the caller. 0, -EBADF. */
MUST_CHECK int task_at_base(struct task *t, int dirfd, struct path *ret);

uint64_t task_rlimit(const struct task *t, int resource); /* soft */
void task_mm_limits(const struct task *t, struct mm_limits *ret);

/* ---- life --------------------------------------------------------------------------------------- */

struct task_clone_args { /* clone3(2) */
    uint64_t flags;
    guest_addr pidfd, child_tid, parent_tid;
    int exit_signal;
    guest_addr stack; /* new rsp; null: the parent's */
    uint64_t tls;
};
int64_t task_clone(struct task *parent, const struct task_clone_args *args); /* tid or -errno */

/* execve: `file` open for execution, `path` as given (AT_EXECFN). argv/envp are sentry copies. On
 * success the task's registers are those of the new image. */
struct exec_strings {
    char **strings; /* owned, NULL-terminated */
    size_t count;
    uint64_t bytes;
};
/* `path_is_lost`: the new image couldn't open `path` (a close-on-exec descriptor): no scripts. */
int task_exec(struct task *t, struct file *file, const char *path, bool path_is_lost,
              const struct exec_strings *argv, const struct exec_strings *envp);
/* The first process of the sandbox (pid 2 of `do`, pid 1 of `run`): made, loaded and started. On failure
 * -errno of the exec; *ret_tgid untouched. Runs on a fiber. */
struct task_first {
    const char *path_or_name; /* searched in PATH of envp if without '/' */
    const struct exec_strings *argv, *envp;
    struct fd_table *fds;     /* taken */
    const struct path *cwd;
    uint32_t uid, gid;
    bool own_session;
};
MUST_CHECK int task_start_first(const struct task_first *first, struct thread_group **ret_group);

/* Ends the calling task: runs everything up to the zombie; the activation must return right after. */
void task_exit(struct task *t, int wait_status);
/* exit_group(2) or a fatal signal: makes all other threads exit too. */
void group_exit(struct thread_group *g, int wait_status);
/* Called with an event of a task's platform thread: entry of every activation. */
void task_event_entry(void *task);
/* Makes a task that runs guest code come by the sentry soon, without a signal. */
void task_nudge(struct task *t);
/* Event plumbing for sched_ops. */
void task_poll(void *arg, unsigned worker, bool may_block);

/* Everybody gone? Called when a process became unreachable; main waits for the first process. */
typedef void (*group_exit_hook)(struct thread_group *g, int wait_status);
extern group_exit_hook g_first_exit_hook; /* first process became a zombie */
extern void (*g_session_leader_exit_hook)(struct thread_group *g); /* before its session goes */
extern void (*g_first_stop_hook)(int signo); /* first process stopped (Ctrl-Z) with an orphaned pgrp rule off */

void tasks_init(void);
/* For execve and fexecve: checks that `p` may be executed and opens it for the sentry. */
MUST_CHECK int exec_open_path(const struct walk_context *ctx, const struct path *p, struct file **ret);
