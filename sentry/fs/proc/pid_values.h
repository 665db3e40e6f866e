/* SPDX-License-Identifier: Apache-2.0 */
/* The small files of /proc/PID, for the table in pid.c. */
#pragma once

#include "sentry/fs/proc/proc_internal.h"

proc_show proc_show_comm, proc_show_limits, proc_show_oom_score, proc_show_oom_score_adj,
    proc_show_oom_adj;
proc_show proc_show_wchan, proc_show_personality, proc_show_timerslack, proc_show_children,
    proc_show_attr;
proc_store proc_store_comm, proc_store_oom_score_adj, proc_store_oom_adj, proc_store_timerslack;
proc_store proc_store_setgroups;
proc_store proc_store_refused; /* -EPERM */
proc_store proc_store_ignored; /* fine, to no effect: what it would control doesn't exist here */
