/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process's timers: ITIMER_REAL, ITIMER_VIRTUAL/PROF (by host CPU time, checked when armed), and POSIX
 * timers. getitimer(2), timer_create(2). Signals are sent from the event thread.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

struct task;
struct thread_group;

struct timer_setting {
    uint64_t value_ns;    /* until the next expiry; 0 = disarmed */
    uint64_t interval_ns;
};
/* setitimer(2), alarm(2): `which` ITIMER_REAL, ITIMER_VIRTUAL or ITIMER_PROF; the old setting in *ret_old. The
 * latter two run on the host's CPU time of the process, user and system alike. */
void itimer_set(struct thread_group *g, int which, const struct timer_setting *new_setting,
                struct timer_setting *ret_old);
void itimer_get(struct thread_group *g, int which, struct timer_setting *ret);

/* RLIMIT_CPU was set or inherited: SIGXCPU at the soft limit and each second from there, SIGKILL at the hard. */
#define ITIMER_CPU_LIMIT 3
void cpu_limit_changed(struct thread_group *g);

struct posix_timer_config {
    int clock;      /* CLOCK_REALTIME, MONOTONIC, BOOTTIME… */
    int notify;     /* SIGEV_SIGNAL, SIGEV_NONE, SIGEV_THREAD_ID */
    int signo;
    int tid;        /* SIGEV_THREAD_ID */
    uint64_t value; /* sigev_value */
    bool value_is_id; /* no sigevent was given: the value is the timer's id */
};
/* Timers of CPU clocks look at the host's CPU time of the process, a thread's clock included. */
bool timer_clock_is_cpu(int clock);
MUST_CHECK int posix_timer_create(struct thread_group *g, const struct posix_timer_config *config); /* id */
/* `deadline_ns` of the first expiry, CLOCK_MONOTONIC (CPU clocks: of the process's CPU time); 0 = disarm. 0 or -EINVAL (no such timer). */
MUST_CHECK int posix_timer_set(struct thread_group *g, int id, uint64_t deadline_ns, uint64_t interval_ns,
                               struct timer_setting *ret_old);
MUST_CHECK int posix_timer_get(struct thread_group *g, int id, struct timer_setting *ret);
MUST_CHECK int posix_timer_clock(struct thread_group *g, int id);   /* its clock or -EINVAL */
MUST_CHECK int posix_timer_overrun(struct thread_group *g, int id); /* of the last delivery, or -EINVAL */
struct linux_siginfo;
/* sighand->lock held: a timer's signal is being delivered; fills in the overrun count. */
void posix_timer_delivered(struct thread_group *g, struct linux_siginfo *info);
MUST_CHECK int posix_timer_delete(struct thread_group *g, int id);
