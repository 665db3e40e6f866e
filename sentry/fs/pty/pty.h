/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Terminals: pseudoterminals (pty(7), /dev/ptmx, /dev/pts) and the sandbox's own terminal, whose other
 * side is the CLI. One line discipline for both (termios(3)). Fibers, and the event thread for the CLI's
 * bytes.
 */
#pragma once

#include "base/compiler.h"
#include <stdint.h>

struct creds;
struct file;
struct inode;
struct superblock;
struct thread_group;

/* Registers /dev/tty, /dev/ptmx and /dev/console (fs/dev/dev.h), and the hook for session leaders that
 * exit. At start. */
void pty_init(void);
/* devpts: a superblock whose root lists the slaves and ptmx. A reference each. */
MUST_CHECK int devpts_new(struct superblock **ret_sb, struct inode **ret_root);

/* The sandbox's terminal over the CLI's stream socket `hfd` (becomes the terminal's): bytes from it are
 * what the person types, bytes to it are what the terminal shows. It's /dev/pts/0 and belongs to `uid`. At
 * most one; after devpts_new(), before the first process. */
MUST_CHECK int console_new(int hfd, uint32_t uid, uint16_t rows, uint16_t cols, uint16_t xpixel,
                           uint16_t ypixel);
/* A file of it, for the first process's descriptors and /dev/console. -ENXIO without a console. */
MUST_CHECK int console_open(const struct creds *creds, uint32_t flags, struct file **ret);
/* Makes it the controlling terminal of the session that `g` leads, `g`'s group in the foreground. */
void console_make_controlling(struct thread_group *g);
/* Event thread: */
void console_set_winsize(uint16_t rows, uint16_t cols, uint16_t xpixel, uint16_t ypixel);
void console_hangup(void);
/* Waits (bounded by the peer's death) until what was written has been handed to the CLI. Fiber. */
void console_drain(void);
/* The foreground process group of the console, 0 if there's none: for signals that the CLI forwards. */
int console_foreground_pgid(void);
