/* SPDX-License-Identifier: Apache-2.0 */
/* What lower layers need to know of tasks. */
#pragma once

struct task;

/* Plugs pipes, sockets and epoll into vfs, and tasks into them. At start, before the first task. */
void syscalls_init(void);

/* The task whose fiber is executing; NULL on other fibers and host threads. Borrowed. */
struct task *calling_task(void);
