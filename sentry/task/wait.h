/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for children: wait4(2), waitid(2). */
#pragma once

#include "base/compiler.h"
#include <stdint.h>

struct task;

enum wait_which { WAIT_FOR_ANY, WAIT_FOR_PID, WAIT_FOR_PGRP };
struct wait_request {
    enum wait_which which;
    int id;      /* pid or pgid */
    int options; /* WEXITED WSTOPPED WCONTINUED WNOHANG WNOWAIT __WALL __WCLONE */
};
struct wait_result {
    int pid;
    uint32_t uid;
    int code;        /* CLD_* */
    int status;      /* exit status or signal */
    int wait_status; /* as wait4 packs it */
    uint64_t utime_ns, stime_ns;
};
/* 1 and *ret filled; 0 with WNOHANG and nothing to report; -ECHILD, -ERESTARTSYS. Sleeps. */
MUST_CHECK int task_wait(struct task *t, const struct wait_request *request, struct wait_result *ret);
