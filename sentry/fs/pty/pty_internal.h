/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of sentry/fs/pty share beyond tty.h. */
#pragma once

#include "sentry/fs/pty/tty.h"

/* ioctls that only a /dev/ptmx file has. */
int64_t pty_master_ioctl(struct tty *tty, struct file *f, struct mm *mm, uint32_t cmd, uint64_t arg);
/* console.c: the console's tty (borrowed) or NULL. */
struct tty *console_tty(void);
/* Makes the console's tty /dev/pts/0, which belongs to `uid`: its slave inode, and the entry. */
MUST_CHECK int pty_add_console(struct tty *tty, uint32_t uid);
