/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signals: pending queues, dispositions, sending. signal(7), sigaction(2), rt_sigqueueinfo(2).
 */
#pragma once

#include "abi/guest_addr.h"
#include "abi/signal.h"
#include "base/compiler.h"
#include "base/lock.h"
#include "sentry/sched/wait_queue.h"
#include <bsd/sys/queue.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct task;
struct thread_group;

typedef uint64_t signal_set; /* bit signo - 1 */
#define SIGSET_BIT(signo) (1ULL << ((signo)-1))
#define SIGSET_UNMASKABLE (SIGSET_BIT(9) | SIGSET_BIT(19))

struct queued_signal {
    TAILQ_ENTRY(queued_signal) entry;
    struct linux_siginfo info;
};
struct signal_queue {
    signal_set mask; /* what is pending */
    uint32_t count;  /* entries */
    TAILQ_HEAD(, queued_signal) queue;
};
void signal_queue_init(struct signal_queue *q);
void signal_queue_flush(struct signal_queue *q);

/* Dispositions: shared by CLONE_SIGHAND. Its lock also protects the pending sets of its groups. */
struct sighand {
    _Atomic uint32_t refs;
    struct lock lock;
    struct linux_sigaction actions[LINUX_NSIG]; /* [signo - 1] */
    struct wait_queue signalfd_wait; /* signalfds of the group's tasks */
    struct sighand *replaced;        /* ref: what execve took this one's place of; others may be about to lock
                                        it, so it lives as long */
};
struct sighand *sighand_new(void);
struct sighand *sighand_copy(struct sighand *old);
/* Locks the group's present sighand, which an execve may be replacing. */
struct sighand *group_lock_sighand(struct thread_group *g) NO_LOCK_ANALYSIS;
void sighand_put(struct sighand *s);

struct task_signals { /* sighand->lock, written by the task itself only where said */
    struct signal_queue pending;
    _Atomic signal_set blocked;     /* written by the task itself under the lock */
    signal_set saved_mask;          /* task only: sigsuspend, ppoll … restore it after the handler */
    bool restore_saved_mask;
    signal_set waited;              /* sigtimedwait is waiting for these */
    struct linux_stack altstack; /* task only */
};

/* Sends. `info` is copied; signo 0 only checks existence (the caller did permissions). A real-time
 * signal beyond RLIMIT_SIGPENDING is -EAGAIN. Any fiber or the event thread. */
int signal_send_task(struct task *t, const struct linux_siginfo *info);
int signal_send_group(struct thread_group *g, const struct linux_siginfo *info);
/* A signal that can't be blocked or ignored (faults): on the calling task itself. */
void signal_force(struct task *t, const struct linux_siginfo *info);
void signal_info_kernel(struct linux_siginfo *info, int signo, int code); /* zeroed otherwise */
/* Every process of a group (tty, kill(-pgid)): how many were sent to. */
int signal_send_pgrp(int pgid, const struct linux_siginfo *info);

/* The calling task's blocked mask; SIGKILL and SIGSTOP are taken out. Wakes whoever must handle what
 * is now deliverable. */
void signal_set_blocked(struct task *t, signal_set blocked);
bool signal_is_pending(struct task *t); /* deliverable and not blocked: own or the group's */
/* Takes one pending signal out of `set` (signalfd, sigtimedwait): its number or 0. */
int signal_dequeue(struct task *t, signal_set set, struct linux_siginfo *ret);
signal_set signal_pending_set(struct task *t); /* own | group's, blocked included */
/* After a syscall with a temporary mask (sigsuspend, ppoll, epoll_pwait): set for the wait, with the old
 * one put back by signal delivery or signal_mask_restore(). */
void signal_mask_set_temporary(struct task *t, signal_set mask);
void signal_mask_restore(struct task *t);

/* Before a task returns to guest code: delivers what is pending. False: the task has exited. */
MUST_CHECK bool signal_deliver_pending(struct task *t);
int64_t signal_return(struct task *t); /* rt_sigreturn(2) */
