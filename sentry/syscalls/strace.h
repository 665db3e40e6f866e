/* SPDX-License-Identifier: Apache-2.0 */
/* `--strace`: one log line for each guest system call, arguments in hexadecimal, strings escaped. */
#pragma once

#include <stdint.h>

struct task;
void strace_enter(struct task *task, uint64_t nr, const uint64_t args[6]);
void strace_exit(struct task *task, uint64_t nr, const uint64_t args[6], int64_t result);
