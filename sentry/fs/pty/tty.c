/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The line discipline (N_TTY): input editing, echo, signals, output processing, job control. Runs on fibers
 * and, for the console, on the event thread. What both sides send is untrusted and only ever data.
 */
#define LOG_MODULE "tty"
#include "sentry/fs/pty/tty.h"
#include "base/host.h"
#include "base/log.h"
#include "sentry/task/restart.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>

#define CC_DISABLED 0

/* ---- rings -------------------------------------------------------------------------------------- */

static bool ring_init(struct tty_ring *r, uint32_t size)
{
    r->bytes = malloc(size);
    r->size = size;
    return r->bytes != NULL;
}

static void ring_put(struct tty_ring *r, uint8_t byte)
{
    if (ring_free(r) > 0)
        r->bytes[r->head++ & (r->size - 1)] = byte;
}

static bool bit_get(const uint8_t *bits, uint32_t position)
{
    position &= TTY_INPUT_SIZE - 1;
    return (bits[position / 8] >> (position % 8)) & 1;
}

static void bit_set(uint8_t *bits, uint32_t position, bool value)
{
    position &= TTY_INPUT_SIZE - 1;
    uint8_t mask = (uint8_t)(1u << (position % 8));
    bits[position / 8] = (uint8_t)(value ? bits[position / 8] | mask : bits[position / 8] & ~mask);
}

/* ---- life --------------------------------------------------------------------------------------- */

int tty_new(int number, uint64_t rdev, struct tty **ret)
{
    static const uint8_t default_cc[LINUX_NCCS] = {
        [VINTR] = 3,  [VQUIT] = 28,  [VERASE] = 127, [VKILL] = 21,    [VEOF] = 4,
        [VMIN] = 1,   [VSTART] = 17, [VSTOP] = 19,   [VSUSP] = 26,    [VREPRINT] = 18,
        [VDISCARD] = 15, [VWERASE] = 23, [VLNEXT] = 22};
    struct tty *tty = calloc(1, sizeof *tty);
    if (tty == NULL)
        return -ENOMEM;
    if (!ring_init(&tty->input, TTY_INPUT_SIZE) || !ring_init(&tty->output, TTY_OUTPUT_SIZE)) {
        free(tty->input.bytes);
        free(tty);
        return -ENOMEM;
    }
    tty->refs = 1;
    tty->number = number;
    tty->rdev = rdev;
    lock_init(&tty->lock);
    wait_queue_init(&tty->wait);
    tty->termios = (struct linux_termios2){
        .iflag = ICRNL | IXON,
        .oflag = OPOST | ONLCR,
        .cflag = B38400 | CS8 | CREAD,
        .lflag = ISIG | ICANON | ECHO | ECHOE | ECHOK | ECHOCTL | ECHOKE | IEXTEN,
        .ispeed = 38400,
        .ospeed = 38400,
    };
    memcpy(tty->termios.cc, default_cc, sizeof default_cc);
    *ret = tty;
    return 0;
}

void tty_get(struct tty *tty)
{
    atomic_fetch_add(&tty->refs, 1);
}

void tty_put(struct tty *tty)
{
    if (tty == NULL || atomic_fetch_sub(&tty->refs, 1) != 1)
        return;
    if (tty->slave_inode != NULL)
        inode_put(tty->slave_inode);
    wait_queue_fini(&tty->wait);
    lock_fini(&tty->lock);
    free(tty->input.bytes);
    free(tty->output.bytes);
    free(tty);
}

/* ---- output processing --------------------------------------------------------------------------- */

/* Room for the worst case of one byte: eight columns of a tab. */
#define OUTPUT_WORST 8

static void output_byte_locked(struct tty *tty, uint8_t c)
{
    uint32_t oflag = tty->termios.oflag;
    if (!(oflag & OPOST)) {
        ring_put(&tty->output, c);
        return;
    }
    switch (c) {
    case '\n':
        if (oflag & ONLRET)
            tty->column = 0;
        if (oflag & ONLCR) {
            ring_put(&tty->output, '\r');
            tty->column = 0;
        }
        break;
    case '\r':
        if ((oflag & ONOCR) && tty->column == 0)
            return;
        tty->column = 0;
        if (oflag & OCRNL)
            c = '\n';
        break;
    case '\t': {
        uint32_t spaces = 8 - (tty->column & 7);
        tty->column += spaces;
        if ((oflag & TABDLY) != XTABS)
            break;
        while (spaces-- > 0)
            ring_put(&tty->output, ' ');
        return;
    }
    case '\b':
        if (tty->column > 0)
            tty->column--;
        break;
    default:
        if (c >= ' ' && (c & 0xc0) != 0x80)
            tty->column++;
        break;
    }
    ring_put(&tty->output, c);
}

size_t tty_take_output(struct tty *tty, uint8_t *bytes, size_t size)
{
    size_t n = 0;
    lock_acquire(&tty->lock);
    while (n < size && ring_used(&tty->output) > 0 && !tty->output_stopped)
        bytes[n++] = tty->output.bytes[tty->output.tail++ & (tty->output.size - 1)];
    lock_release(&tty->lock);
    if (n > 0)
        wait_queue_wake_all(&tty->wait, EPOLLOUT);
    return n;
}

static void announce_output(struct tty *tty)
{
    wait_queue_wake_all(&tty->wait, EPOLLIN);
    if (tty->output_added != NULL)
        tty->output_added(tty);
}

/* ---- echo --------------------------------------------------------------------------------------- */

static void echo_locked(struct tty *tty, uint8_t c)
{
    uint32_t lflag = tty->termios.lflag;
    if (!(lflag & ECHO) && !((lflag & ECHONL) && c == '\n'))
        return;
    if ((lflag & ECHOCTL) && c < ' ' && c != '\n' && c != '\t') {
        output_byte_locked(tty, '^');
        output_byte_locked(tty, c ^ 0x40);
    } else if ((lflag & ECHOCTL) && c == 127) {
        output_byte_locked(tty, '^');
        output_byte_locked(tty, '?');
    } else {
        output_byte_locked(tty, c);
    }
}

static void rub_out_locked(struct tty *tty, uint8_t c)
{
    uint32_t lflag = tty->termios.lflag;
    if (!(lflag & ECHO))
        return;
    if (!(lflag & ECHOE)) {
        echo_locked(tty, tty->termios.cc[VERASE]);
        return;
    }
    int width = (c < ' ' || c == 127) && (lflag & ECHOCTL) && c != '\t' ? 2 : 1;
    while (width-- > 0) {
        output_byte_locked(tty, '\b');
        output_byte_locked(tty, ' ');
        output_byte_locked(tty, '\b');
    }
}

/* ---- line editing ------------------------------------------------------------------------------- */

static bool erase_one_locked(struct tty *tty, uint8_t *ret)
{
    if (tty->input.head == tty->canon_tail)
        return false;
    tty->input.head--;
    *ret = tty->input.bytes[tty->input.head & (TTY_INPUT_SIZE - 1)];
    /* A UTF-8 character goes as a whole. */
    while ((tty->termios.iflag & IUTF8) && (*ret & 0xc0) == 0x80 && tty->input.head != tty->canon_tail) {
        tty->input.head--;
        *ret = tty->input.bytes[tty->input.head & (TTY_INPUT_SIZE - 1)];
    }
    return true;
}

static void erase_word_locked(struct tty *tty)
{
    uint8_t c;
    bool in_word = false;
    while (tty->input.head != tty->canon_tail) {
        c = tty->input.bytes[(tty->input.head - 1) & (TTY_INPUT_SIZE - 1)];
        bool is_word = c != ' ' && c != '\t';
        if (in_word && !is_word)
            return;
        in_word |= is_word;
        if (erase_one_locked(tty, &c))
            rub_out_locked(tty, c);
    }
}

static void erase_line_locked(struct tty *tty)
{
    uint8_t c;
    bool silent = !(tty->termios.lflag & ECHOKE);
    while (erase_one_locked(tty, &c))
        if (!silent)
            rub_out_locked(tty, c);
    if (silent && (tty->termios.lflag & ECHOK)) {
        echo_locked(tty, tty->termios.cc[VKILL]);
        output_byte_locked(tty, '\n');
    }
}

static void store_locked(struct tty *tty, uint8_t c, bool ends_line, bool is_eof)
{
    uint32_t at = tty->input.head;
    if (ring_free(&tty->input) <= (ends_line ? 0u : 1u)) /* the last place is kept for the line's end */
        return;
    bit_set(tty->line_end, at, ends_line);
    bit_set(tty->end_of_file, at, is_eof);
    ring_put(&tty->input, c);
    if (ends_line)
        tty->canon_tail = tty->input.head;
}

static bool is_cc(const struct tty *tty, int which, uint8_t c)
{
    return tty->termios.cc[which] != CC_DISABLED && tty->termios.cc[which] == c;
}

static void canonical_byte_locked(struct tty *tty, uint8_t c)
{
    bool extended = (tty->termios.lflag & IEXTEN) != 0;
    uint8_t erased;
    if (is_cc(tty, VERASE, c)) {
        if (erase_one_locked(tty, &erased))
            rub_out_locked(tty, erased);
    } else if (is_cc(tty, VWERASE, c) && extended) {
        erase_word_locked(tty);
    } else if (is_cc(tty, VKILL, c)) {
        erase_line_locked(tty);
    } else if (is_cc(tty, VREPRINT, c) && extended) {
        echo_locked(tty, c);
        output_byte_locked(tty, '\n');
        for (uint32_t at = tty->canon_tail; at != tty->input.head; at++)
            echo_locked(tty, tty->input.bytes[at & (TTY_INPUT_SIZE - 1)]);
    } else if (c == '\n') {
        echo_locked(tty, c);
        store_locked(tty, c, true, false);
    } else if (is_cc(tty, VEOF, c)) {
        store_locked(tty, c, true, true);
    } else if (is_cc(tty, VEOL, c) || (is_cc(tty, VEOL2, c) && extended)) {
        echo_locked(tty, c);
        store_locked(tty, c, true, false);
    } else {
        echo_locked(tty, c);
        store_locked(tty, c, false, false);
    }
}

/* ---- input processing ---------------------------------------------------------------------------- */

static int signal_of(const struct tty *tty, uint8_t c)
{
    if (!(tty->termios.lflag & ISIG))
        return 0;
    return is_cc(tty, VINTR, c) ? SIGINT : is_cc(tty, VQUIT, c) ? SIGQUIT : is_cc(tty, VSUSP, c) ? SIGTSTP : 0;
}

static void flush_input_locked(struct tty *tty)
{
    tty->input.tail = tty->input.head;
    tty->canon_tail = tty->input.head;
    tty->literal_next = false;
}

/* One byte; the signal that it stands for, or 0. */
static int receive_byte_locked(struct tty *tty, uint8_t c)
{
    const struct linux_termios2 *t = &tty->termios;
    if (t->iflag & ISTRIP)
        c &= 0x7f;
    if (tty->literal_next) {
        tty->literal_next = false;
        echo_locked(tty, c);
        store_locked(tty, c, false, false);
        return 0;
    }
    if (t->iflag & IXON) {
        if (is_cc(tty, VSTOP, c)) {
            tty->output_stopped = true;
            return 0;
        }
        if (is_cc(tty, VSTART, c) || ((t->iflag & IXANY) && tty->output_stopped)) {
            tty->output_stopped = false;
            if (is_cc(tty, VSTART, c))
                return 0;
        }
    }
    int signo = signal_of(tty, c);
    if (signo != 0) {
        if (!(t->lflag & NOFLSH)) {
            flush_input_locked(tty);
            tty->output.tail = tty->output.head;
        }
        tty->output_stopped = false;
        echo_locked(tty, c);
        return signo;
    }
    if (c == '\r') {
        if (t->iflag & IGNCR)
            return 0;
        if (t->iflag & ICRNL)
            c = '\n';
    } else if (c == '\n' && (t->iflag & INLCR)) {
        c = '\r';
    }
    if ((t->lflag & ICANON) && (t->lflag & IEXTEN) && is_cc(tty, VLNEXT, c)) {
        tty->literal_next = true;
        if (t->lflag & ECHOCTL) {
            output_byte_locked(tty, '^');
            output_byte_locked(tty, '\b');
        }
        return 0;
    }
    if (t->lflag & ICANON) {
        canonical_byte_locked(tty, c);
        return 0;
    }
    echo_locked(tty, c);
    bit_set(tty->line_end, tty->input.head, false);
    bit_set(tty->end_of_file, tty->input.head, false);
    ring_put(&tty->input, c);
    return 0;
}

size_t tty_receive(struct tty *tty, const uint8_t *bytes, size_t size)
{
    size_t n = 0;
    while (n < size) {
        int signo = 0;
        lock_acquire(&tty->lock);
        while (n < size && signo == 0) {
            bool raw_full = !(tty->termios.lflag & ICANON) && ring_free(&tty->input) == 0;
            bool echo_full = ring_free(&tty->output) < 2 * OUTPUT_WORST;
            if (raw_full || (echo_full && (tty->termios.lflag & ECHO) && !tty->output_stopped))
                break;
            signo = receive_byte_locked(tty, bytes[n++]);
        }
        bool is_full = n < size && signo == 0;
        lock_release(&tty->lock);
        int pgid = signo != 0 ? tty_foreground_pgid(tty) : 0;
        if (pgid > 0) {
            struct linux_siginfo info;
            signal_info_kernel(&info, signo, SI_KERNEL);
            (void)signal_send_pgrp(pgid, &info);
        }
        if (is_full)
            break;
    }
    if (n > 0)
        wait_queue_wake_all(&tty->wait, EPOLLIN);
    announce_output(tty);
    return n;
}

/* ---- job control --------------------------------------------------------------------------------- */

struct task *tty_current_task(void)
{
    struct fiber *f = fiber_current();
    return f != NULL ? container_of(f, struct task, fiber) : NULL;
}

int tty_foreground_pgid(struct tty *tty)
{
    tasks_lock();
    int pgid = tty->session != NULL ? tty->session->foreground_pgid : 0;
    tasks_unlock();
    return pgid;
}

struct tty *tty_of_current(void)
{
    struct task *t = tty_current_task();
    tasks_lock();
    struct tty *tty = t != NULL && t->group->pgrp != NULL ? t->group->pgrp->session->tty : NULL;
    if (tty != NULL)
        tty_get(tty);
    tasks_unlock();
    return tty;
}

void tty_make_controlling_locked(struct tty *tty, struct session *session, int foreground_pgid)
{
    session->tty = tty; /* borrowed both ways: cleared at hang-up and when the session's leader exits */
    session->foreground_pgid = foreground_pgid;
    tty->session = session;
}

int tty_check_background(struct tty *tty, int signo)
{
    struct task *t = tty_current_task();
    if (t == NULL)
        return 0;
    tasks_lock();
    struct process_group *pg = t->group->pgrp;
    bool background = pg != NULL && pg->session == tty->session && tty->session != NULL &&
                      pg->session->foreground_pgid != pg->pgid;
    int pgid = pg != NULL ? pg->pgid : 0;
    bool orphaned = background && pgrp_is_orphaned_locked(pg, NULL);
    tasks_unlock();
    if (!background)
        return 0;
    uint64_t handler = t->group->sighand->actions[signo - 1].handler;
    bool unheard = (t->signals.blocked & SIGSET_BIT(signo)) || handler == (uint64_t)(uintptr_t)SIG_IGN;
    if (unheard)
        return signo == SIGTTIN ? -EIO : 0;
    if (orphaned)
        return -EIO;
    struct linux_siginfo info;
    signal_info_kernel(&info, signo, SI_KERNEL);
    (void)signal_send_pgrp(pgid, &info);
    return -ERESTARTSYS;
}

void tty_hangup(struct tty *tty)
{
    lock_acquire(&tty->lock);
    tty->hung_up = true;
    tty->output_stopped = false;
    lock_release(&tty->lock);
    int leader = 0, foreground = 0;
    tasks_lock();
    if (tty->session != NULL) {
        leader = tty->session->sid;
        foreground = tty->session->foreground_pgid;
        tty->session->tty = NULL;
        tty->session = NULL;
    }
    tasks_unlock();
    struct linux_siginfo info;
    struct thread_group *g = leader != 0 ? group_find(leader) : NULL;
    if (g != NULL) {
        signal_info_kernel(&info, SIGHUP, SI_KERNEL);
        (void)signal_send_group(g, &info);
        signal_info_kernel(&info, SIGCONT, SI_KERNEL);
        (void)signal_send_group(g, &info);
        group_put(g);
    }
    if (foreground != 0 && foreground != leader) {
        signal_info_kernel(&info, SIGHUP, SI_KERNEL);
        (void)signal_send_pgrp(foreground, &info);
        signal_info_kernel(&info, SIGCONT, SI_KERNEL);
        (void)signal_send_pgrp(foreground, &info);
    }
    wait_queue_wake_all(&tty->wait, EPOLLHUP | EPOLLIN | EPOLLOUT);
}

void tty_set_winsize(struct tty *tty, const struct linux_winsize *winsize)
{
    lock_acquire(&tty->lock);
    bool changed = memcmp(&tty->winsize, winsize, sizeof *winsize) != 0;
    tty->winsize = *winsize;
    lock_release(&tty->lock);
    int pgid = changed ? tty_foreground_pgid(tty) : 0;
    if (pgid > 0) {
        struct linux_siginfo info;
        signal_info_kernel(&info, SIGWINCH, SI_KERNEL);
        (void)signal_send_pgrp(pgid, &info);
    }
}

/* ---- the slave's file ---------------------------------------------------------------------------- */

uint32_t tty_readable_locked(const struct tty *tty)
{
    if (!(tty->termios.lflag & ICANON))
        return ring_used(&tty->input);
    return tty->canon_tail - tty->input.tail;
}

/* Moves out at most `size` bytes of one line (or of anything, raw); *ret_line_done: a line ended. */
static size_t take_input_locked(struct tty *tty, uint8_t *bytes, size_t size, bool *ret_line_done)
{
    size_t n = 0;
    bool canonical = (tty->termios.lflag & ICANON) != 0;
    while (n < size && tty_readable_locked(tty) > 0) {
        uint32_t at = tty->input.tail++;
        if (canonical && bit_get(tty->end_of_file, at)) {
            *ret_line_done = true;
            break;
        }
        bytes[n++] = tty->input.bytes[at & (TTY_INPUT_SIZE - 1)];
        if (canonical && bit_get(tty->line_end, at)) {
            *ret_line_done = true;
            break;
        }
    }
    if (!canonical && (int32_t)(tty->canon_tail - tty->input.tail) < 0)
        tty->canon_tail = tty->input.tail;
    return n;
}

/* How long a raw read waits: VMIN and VTIME (termios(3), "noncanonical mode"). */
struct raw_timing {
    uint32_t min;
    uint64_t timeout_ns;
};

static struct raw_timing raw_timing_locked(const struct tty *tty, size_t wanted)
{
    struct raw_timing r = {.min = tty->termios.cc[VMIN],
                           .timeout_ns = (uint64_t)tty->termios.cc[VTIME] * 100000000u};
    if (r.min > wanted)
        r.min = (uint32_t)wanted;
    return r;
}

/* 0: read now; 1: end of file; else what the read returns. */
static int wait_for_input(struct tty *tty, struct file *f, size_t wanted)
{
    struct waiter w;
    int r = 0;
    uint64_t deadline = FIBER_NO_DEADLINE;
    uint32_t seen = 0;
    waiter_init(&w);
    wait_queue_add(&tty->wait, &w);
    for (;;) {
        lock_acquire(&tty->lock);
        bool canonical = (tty->termios.lflag & ICANON) != 0;
        uint32_t ready = tty_readable_locked(tty);
        bool gone = tty->hung_up;
        struct raw_timing timing = raw_timing_locked(tty, wanted);
        lock_release(&tty->lock);
        bool enough = canonical ? ready > 0 : ready > 0 && ready >= timing.min;
        if (enough || gone) {
            r = enough ? 0 : ready > 0 ? 0 : 1;
            break;
        }
        if (f->flags & O_NONBLOCK) {
            r = ready > 0 && !canonical ? 0 : -EAGAIN;
            break;
        }
        if (!canonical && timing.timeout_ns != 0) {
            bool timer_runs = timing.min == 0 || ready > 0;
            if (timer_runs && (deadline == FIBER_NO_DEADLINE || ready != seen))
                deadline = host_monotonic_ns() + timing.timeout_ns;
            seen = ready;
        } else if (!canonical && timing.min == 0) {
            r = ready > 0 ? 0 : 1;
            break;
        }
        r = fiber_park(FIBER_INTERRUPTIBLE, deadline);
        if (r == -ETIMEDOUT) {
            r = ready > 0 ? 0 : 1;
            break;
        }
        if (r != 0) {
            r = -ERESTARTSYS;
            break;
        }
        r = tty_check_background(tty, SIGTTIN);
        if (r != 0)
            break;
    }
    wait_queue_remove(&w);
    return r;
}

static ssize_t slave_read(struct file *f, struct io *io, int64_t *pos)
{
    struct tty *tty = f->private_data;
    (void)pos;
    int r = tty_check_background(tty, SIGTTIN);
    if (r == 0 && io->remaining > 0)
        r = wait_for_input(tty, f, (size_t)io->remaining);
    if (r != 0 || io->remaining == 0)
        return r > 0 ? 0 : r;
    size_t done = 0;
    bool line_done = false;
    uint8_t chunk[512];
    while (io->remaining > 0 && !line_done) {
        size_t size = io->remaining < sizeof chunk ? (size_t)io->remaining : sizeof chunk;
        lock_acquire(&tty->lock);
        size_t n = take_input_locked(tty, chunk, size, &line_done);
        lock_release(&tty->lock);
        if (n == 0)
            break;
        ssize_t put = io_put(io, chunk, n);
        if (put < 0)
            return done > 0 ? (ssize_t)done : put;
        done += (size_t)put;
    }
    wait_queue_wake_all(&tty->wait, EPOLLOUT); /* the master may write again */
    return (ssize_t)done;
}

static int wait_for_room(struct tty *tty, struct file *f)
{
    struct waiter w;
    int r = 0;
    waiter_init(&w);
    wait_queue_add(&tty->wait, &w);
    for (;;) {
        lock_acquire(&tty->lock);
        bool room = ring_free(&tty->output) >= 2 * OUTPUT_WORST, gone = tty->hung_up;
        lock_release(&tty->lock);
        if (gone)
            r = -EIO;
        if (room || gone)
            break;
        r = (f->flags & O_NONBLOCK) ? -EAGAIN : fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE);
        if (r != 0) {
            r = r == -EINTR ? -ERESTARTSYS : r;
            break;
        }
    }
    wait_queue_remove(&w);
    return r;
}

static ssize_t slave_write(struct file *f, struct io *io, int64_t *pos)
{
    struct tty *tty = f->private_data;
    (void)pos;
    int r = (tty->termios.lflag & TOSTOP) ? tty_check_background(tty, SIGTTOU) : 0;
    if (r != 0)
        return r;
    size_t done = 0;
    uint8_t chunk[512];
    while (io->remaining > 0) {
        r = wait_for_room(tty, f);
        if (r != 0)
            return done > 0 ? (ssize_t)done : r;
        ssize_t n = io_get(io, chunk, io->remaining < sizeof chunk ? (size_t)io->remaining : sizeof chunk);
        if (n <= 0)
            return done > 0 ? (ssize_t)done : n;
        size_t used = 0;
        lock_acquire(&tty->lock);
        while (used < (size_t)n && ring_free(&tty->output) >= OUTPUT_WORST)
            output_byte_locked(tty, chunk[used++]);
        lock_release(&tty->lock);
        io_rewind(io, (size_t)n - used);
        done += used;
        announce_output(tty);
    }
    return (ssize_t)done;
}

static uint32_t slave_poll(struct file *f, struct poll_table *table)
{
    struct tty *tty = f->private_data;
    uint32_t events = 0;
    poll_wait(table, &tty->wait);
    lock_acquire(&tty->lock);
    const uint8_t *cc = tty->termios.cc;
    bool counts = !(tty->termios.lflag & ICANON) && cc[VTIME] == 0 && cc[VMIN] > 1;
    if (tty_readable_locked(tty) >= (counts ? cc[VMIN] : 1u))
        events |= EPOLLIN | EPOLLRDNORM;
    if (ring_free(&tty->output) >= 2 * OUTPUT_WORST)
        events |= EPOLLOUT | EPOLLWRNORM;
    if (tty->hung_up)
        events |= EPOLLHUP | EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM | EPOLLERR;
    lock_release(&tty->lock);
    return events;
}

static int64_t slave_ioctl(struct file *f, struct mm *mm, uint32_t cmd, uint64_t arg)
{
    struct tty *tty = f->private_data;
    if (tty->hung_up)
        return cmd == TIOCSPGRP ? -ENOTTY : -EIO;
    return tty_ioctl(tty, f, false, mm, cmd, arg);
}

static void slave_release(struct file *f)
{
    struct tty *tty = f->private_data;
    lock_acquire(&tty->lock);
    tty->slave_count--;
    lock_release(&tty->lock);
    wait_queue_wake_all(&tty->wait, EPOLLHUP | EPOLLIN);
    tty_put(tty);
}

const struct file_ops tty_slave_ops = {
    .read = slave_read,
    .write = slave_write,
    .poll = slave_poll,
    .ioctl = slave_ioctl,
    .release = slave_release,
};

bool file_is_slave_of(const struct file *f, const struct tty *tty)
{
    return f->ops == &tty_slave_ops && f->private_data == tty;
}

int tty_open_slave(struct tty *tty, struct file *file)
{
    struct task *t = tty_current_task();
    lock_acquire(&tty->lock);
    int r = tty->hung_up || tty->is_locked ? -EIO
            : tty->exclusive && tty->slave_count > 0 ? -EBUSY : 0;
    if (r == 0) {
        tty->slave_count++;
        tty->has_been_opened = true;
    }
    lock_release(&tty->lock);
    if (r != 0)
        return r;
    tty_get(tty);
    file->ops = &tty_slave_ops;
    file->private_data = tty;
    if (t == NULL || (file->flags & O_NOCTTY))
        return 0;
    tasks_lock();
    struct process_group *pg = t->group->pgrp;
    if (pg != NULL && pg->session->sid == t->group->tgid && pg->session->tty == NULL &&
        tty->session == NULL && !tty->hung_up)
        tty_make_controlling_locked(tty, pg->session, pg->pgid);
    tasks_unlock();
    return 0;
}
