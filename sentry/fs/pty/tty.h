/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A terminal: the line discipline between a guest's side (the "slave") and a master, which is a guest's
 * /dev/ptmx file or the CLI. termios(3), tty_ioctl(4). Internal to sentry/fs/pty.
 *
 * Lock order: tasks lock → tty.lock (short) → wait queues. Signals are sent after both are released.
 */
#pragma once

#include "abi/termios.h"
#include "sentry/task/task.h"
#include "sentry/vfs/vfs.h"

#define TTY_INPUT_SIZE 4096U   /* MAX_CANON and the raw buffer */
#define TTY_OUTPUT_SIZE 16384U /* what the master hasn't taken yet */

struct tty_ring {
    uint8_t *bytes; /* owned */
    uint32_t size;  /* power of two */
    uint32_t head, tail; /* free-running */
};

struct tty {
    _Atomic uint32_t refs;
    struct lock lock;
    struct linux_termios2 termios;
    struct linux_winsize winsize;
    struct tty_ring input;    /* what the slave will read; with ICANON: up to `lines` complete lines */
    uint32_t canon_tail;      /* input position after the last complete line */
    uint8_t line_end[TTY_INPUT_SIZE / 8]; /* bit per position: a line ends here */
    uint8_t end_of_file[TTY_INPUT_SIZE / 8]; /* … and the byte itself is VEOF: not delivered */
    struct tty_ring output;   /* towards the master */
    uint32_t column;
    bool literal_next;
    bool output_stopped;      /* ^S */
    bool packet_mode;
    uint8_t packet_flags;
    bool is_locked;           /* TIOCSPTLCK: slave can't be opened yet */
    bool exclusive;           /* TIOCEXCL */
    _Atomic bool hung_up;     /* the master is gone: reads give EOF, writes EIO */
    bool has_been_opened;     /* a slave file existed: the master sees a hang-up when none is left */
    uint32_t slave_count;     /* open slave files */
    int number;               /* /dev/pts/N; the console is 0 */
    uint64_t rdev;
    struct wait_queue wait;   /* both sides */
    struct session *session;  /* borrowed: cleared when it goes; tasks lock */
    /* The console's own way out: called without the lock after output was added. NULL for ptys. */
    void (*output_added)(struct tty *tty);
    struct inode *slave_inode; /* ref */
};

MUST_CHECK int tty_new(int number, uint64_t rdev, struct tty **ret);
void tty_get(struct tty *tty);
void tty_put(struct tty *tty);

/* Bytes from the master through input processing; how many were taken (less when the buffer is full and
 * the line discipline doesn't drop). Sends the signals of ISIG. Any host thread. */
size_t tty_receive(struct tty *tty, const uint8_t *bytes, size_t size);
/* Takes bytes for the master: up to `size`. */
size_t tty_take_output(struct tty *tty, uint8_t *bytes, size_t size);
/* The master went away: SIGHUP and SIGCONT to the foreground group, EOF for readers. */
void tty_hangup(struct tty *tty);
void tty_set_winsize(struct tty *tty, const struct linux_winsize *winsize);

extern const struct file_ops tty_slave_ops;
/* Opens the slave: fills file->ops and private_data, counts, and acquires it as controlling terminal unless
 * O_NOCTTY. */
MUST_CHECK int tty_open_slave(struct tty *tty, struct file *file);
bool file_is_slave_of(const struct file *f, const struct tty *tty);
int64_t tty_ioctl(struct tty *tty, struct file *f, bool is_master, struct mm *mm, uint32_t cmd,
                  uint64_t arg);
/* The controlling terminal of the calling task's session with a reference, or NULL. */
struct tty *tty_of_current(void);
struct task *tty_current_task(void);
/* Would `tty` stop the calling task for doing this from the background? 0 or -ERESTARTSYS / -EIO. */
int tty_check_background(struct tty *tty, int signo);
/* tasks lock held: makes `tty` the session's terminal. */
void tty_make_controlling_locked(struct tty *tty, struct session *session, int foreground_pgid);
int tty_foreground_pgid(struct tty *tty);

/* ring helpers (tty.c) */
static inline uint32_t ring_used(const struct tty_ring *r)
{
    return r->head - r->tail;
}
static inline uint32_t ring_free(const struct tty_ring *r)
{
    return r->size - ring_used(r);
}
uint32_t tty_readable_locked(const struct tty *tty); /* bytes that a read would give now */
