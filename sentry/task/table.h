/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of ids: one number may name a thread, a process, a process group and a session at once.
 * Everything here needs the tasks lock. Only sentry/task includes this header.
 */
#pragma once

#include "sentry/task/task.h"

struct pid_entry {
    struct task *task;           /* ref */
    struct thread_group *group;  /* ref */
    struct process_group *pgrp;  /* borrowed: removed by its last put */
    struct session *session;     /* borrowed: removed by its last put */
    bool is_reserved;            /* given to a task that isn't linked yet */
};
struct pid_entry *pid_entry(int id);
/* A number that names nothing, reserved until task_link_locked() or pid_release_locked(); -EAGAIN when there's
 * none or the limit of tasks is reached. */
MUST_CHECK int pid_alloc_locked(void);
void pid_release_locked(int id);
void tasks_count_add_locked(int difference);

struct session *session_new_locked(int sid);
void session_put_locked(struct session *s);
struct process_group *pgrp_new_locked(int pgid, struct session *session);
void pgrp_join_locked(struct process_group *pg, struct thread_group *g); /* leaves the old one */
void pgrp_leave_locked(struct thread_group *g);

struct thread_group *group_new(struct sighand *sighand);
struct task *task_new(struct thread_group *group, unsigned worker);
/* Puts a finished task into the lists: tid, threads, and its group's tgid if it's the first. */
void task_link_locked(struct task *t);
void task_unlink_locked(struct task *t);
/* The zombie is waited for: takes it out of the tree and the table. The caller calls group_reap_finish()
 * after the lock, which puts the table's references. */
void group_unlink_locked(struct thread_group *g);
void group_reap_finish(struct thread_group *g);

/* Moves the task's host thread in or out: under its sighand's lock. */
void task_set_pt(struct task *t, struct platform_thread *pt);
/* execve/exit of a vfork child: returns the borrowed host thread to the parent, if it still waits, and
 * wakes it. True when it was given back (t->pt is NULL then). */
bool task_vfork_release(struct task *t);
/* exit.c: kills all other threads of t's group and waits until they are gone. 0 or -EINTR (t itself is
 * being killed, or another thread was first). */
MUST_CHECK int group_kill_others(struct task *t);
/* wake-up helper of signal.c, sighand->lock held */
void task_interrupt_locked(struct task *t, bool kill);
/* exit.c: tells the parent that a child changed its state */
void group_notify_parent_locked(struct thread_group *g, int code, int status);
uint64_t group_cpu_ns(struct thread_group *g); /* host CPU time of the process so far */
/* timers.c */
void group_timers_release(struct thread_group *g, bool exec);
/* futex.c */
void futex_exit(struct task *t);
/* signal.c, sighand->lock held */
int signal_dequeue_locked(struct task *t, signal_set set, struct linux_siginfo *ret);
void signal_drop_ignored_locked(struct thread_group *g, int signo);
/* event.c */
void task_first_entry(void *task);
