/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ioctls of terminals, both sides. tty_ioctl(4), pty(7). Runs on the calling task's fiber.
 */
#define LOG_MODULE "tty"
#include "sentry/fs/pty/tty.h"
#include "sentry/fs/pty/pty_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <termios.h>

#define OUT(object) copy_out_obj(mm, GUEST_ADDR(arg), object)
#define IN(object) copy_in_obj(mm, object, GUEST_ADDR(arg))

/* ---- termios ------------------------------------------------------------------------------------ */

static int wait_output_drained(struct tty *tty, bool is_master)
{
    struct waiter w;
    int r = 0;
    if (is_master)
        return 0;
    waiter_init(&w);
    wait_queue_add(&tty->wait, &w);
    for (;;) {
        lock_acquire(&tty->lock);
        bool empty = ring_used(&tty->output) == 0 || tty->hung_up || tty->output_added == NULL;
        lock_release(&tty->lock);
        if (empty)
            break;
        r = fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE);
        if (r != 0)
            break;
    }
    wait_queue_remove(&w);
    return r;
}

static void flush_input(struct tty *tty)
{
    lock_acquire(&tty->lock);
    tty->input.tail = tty->canon_tail = tty->input.head;
    lock_release(&tty->lock);
}

static void flush_output(struct tty *tty)
{
    lock_acquire(&tty->lock);
    tty->output.tail = tty->output.head;
    lock_release(&tty->lock);
    wait_queue_wake_all(&tty->wait, EPOLLOUT);
}

static int64_t get_termios(struct tty *tty, struct mm *mm, uint64_t arg, size_t size)
{
    lock_acquire(&tty->lock);
    struct linux_termios2 t = tty->termios;
    lock_release(&tty->lock);
    return copy_out(mm, GUEST_ADDR(arg), &t, size);
}

static int64_t set_termios(struct tty *tty, bool is_master, struct mm *mm, uint64_t arg, size_t size,
                           bool drain, bool flush)
{
    struct linux_termios2 t;
    int r = is_master ? 0 : tty_check_background(tty, SIGTTOU);
    if (r != 0)
        return r;
    lock_acquire(&tty->lock);
    t = tty->termios;
    lock_release(&tty->lock);
    if (copy_in(mm, &t, GUEST_ADDR(arg), size) != 0)
        return -EFAULT;
    if (drain)
        r = wait_output_drained(tty, is_master);
    if (r != 0)
        return r;
    if (flush)
        flush_input(tty);
    lock_acquire(&tty->lock);
    bool was_canonical = (tty->termios.lflag & ICANON) != 0, is_canonical = (t.lflag & ICANON) != 0;
    tty->termios = t;
    if (was_canonical != is_canonical)
        tty->canon_tail = tty->input.head; /* what was typed so far can be read */
    if (!(t.iflag & IXON))
        tty->output_stopped = false;
    lock_release(&tty->lock);
    wait_queue_wake_all(&tty->wait, 0);
    return 0;
}

/* ---- sessions ----------------------------------------------------------------------------------- */

static int64_t get_foreground(struct tty *tty, bool is_master, struct mm *mm, uint64_t arg)
{
    struct task *t = tty_current_task();
    tasks_lock();
    bool mine = is_master || (tty->session != NULL && t->group->pgrp->session == tty->session);
    int32_t pgid = tty->session != NULL ? tty->session->foreground_pgid : 0;
    tasks_unlock();
    return mine ? OUT(&pgid) : -ENOTTY;
}

static int64_t set_foreground(struct tty *tty, bool is_master, struct mm *mm, uint64_t arg)
{
    struct task *t = tty_current_task();
    int32_t pgid;
    int r = is_master ? 0 : tty_check_background(tty, SIGTTOU);
    if (r != 0)
        return r;
    if (IN(&pgid) != 0)
        return -EFAULT;
    if (pgid < 0)
        return -EINVAL;
    tasks_lock();
    struct process_group *pg = pgrp_find_locked(pgid);
    if (tty->session == NULL || t->group->pgrp->session != tty->session)
        r = -ENOTTY;
    else if (pg == NULL)
        r = -ESRCH;
    else if (pg->session != tty->session)
        r = -EPERM;
    else
        tty->session->foreground_pgid = pgid;
    tasks_unlock();
    return r;
}

static int64_t get_session(struct tty *tty, struct mm *mm, uint64_t arg)
{
    struct task *t = tty_current_task();
    tasks_lock();
    bool mine = tty->session != NULL && t->group->pgrp->session == tty->session;
    int32_t sid = mine ? tty->session->sid : 0;
    tasks_unlock();
    return mine ? OUT(&sid) : -ENOTTY;
}

static int64_t acquire(struct tty *tty, uint64_t arg)
{
    struct task *t = tty_current_task();
    int r = 0;
    tasks_lock();
    struct process_group *pg = t->group->pgrp;
    struct session *s = pg->session;
    if (tty->hung_up) { /* tty_hangup() sets it before it clears sessions under this lock */
        r = -EIO;
    } else if (s->tty == tty && s->sid == t->group->tgid) {
        r = 0;
    } else if (s->sid != t->group->tgid || s->tty != NULL) {
        r = -EPERM;
    } else if (tty->session != NULL && !(arg == 1 && creds_capable(t->creds, 21))) {
        r = -EPERM;
    } else {
        if (tty->session != NULL)
            tty->session->tty = NULL;
        tty_make_controlling_locked(tty, s, pg->pgid);
    }
    tasks_unlock();
    return r;
}

static int64_t give_up(struct tty *tty)
{
    struct task *t = tty_current_task();
    int foreground = 0;
    tasks_lock();
    struct session *s = t->group->pgrp->session;
    int r = s->tty == tty ? 0 : -ENOTTY;
    if (r == 0 && s->sid == t->group->tgid) {
        foreground = s->foreground_pgid;
        s->tty = NULL;
        tty->session = NULL;
    }
    tasks_unlock();
    if (foreground != 0) {
        struct linux_siginfo info;
        signal_info_kernel(&info, SIGHUP, SI_KERNEL);
        (void)signal_send_pgrp(foreground, &info);
        signal_info_kernel(&info, SIGCONT, SI_KERNEL);
        (void)signal_send_pgrp(foreground, &info);
    }
    return r;
}

/* ---- the rest ----------------------------------------------------------------------------------- */

static int64_t set_winsize(struct tty *tty, struct mm *mm, uint64_t arg)
{
    struct linux_winsize w;
    if (IN(&w) != 0)
        return -EFAULT;
    tty_set_winsize(tty, &w);
    return 0;
}

static int64_t get_winsize(struct tty *tty, struct mm *mm, uint64_t arg)
{
    lock_acquire(&tty->lock);
    struct linux_winsize w = tty->winsize;
    lock_release(&tty->lock);
    return OUT(&w);
}

static int64_t flush(struct tty *tty, bool is_master, uint64_t which)
{
    if (which > TCIOFLUSH)
        return -EINVAL;
    /* "Input" is what the caller would read. */
    bool input = which != TCOFLUSH, output = which != TCIFLUSH;
    if (is_master ? output : input)
        flush_input(tty);
    if (is_master ? input : output)
        flush_output(tty);
    if (!is_master) { /* TIOCPKT: the master hears of it */
        lock_acquire(&tty->lock);
        if (tty->packet_mode)
            tty->packet_flags |=
                (uint8_t)((input ? TIOCPKT_FLUSHREAD : 0) | (output ? TIOCPKT_FLUSHWRITE : 0));
        lock_release(&tty->lock);
        wait_queue_wake_all(&tty->wait, EPOLLIN | EPOLLPRI);
    }
    return 0;
}

static int64_t flow(struct tty *tty, uint64_t action)
{
    if (action > TCION)
        return -EINVAL;
    lock_acquire(&tty->lock);
    if (action == TCOOFF)
        tty->output_stopped = true;
    else if (action == TCOON)
        tty->output_stopped = false;
    lock_release(&tty->lock);
    if (action == TCOON) {
        wait_queue_wake_all(&tty->wait, 0);
        if (tty->output_added != NULL)
            tty->output_added(tty);
    }
    return 0;
}

static int64_t queued(struct tty *tty, bool input, struct mm *mm, uint64_t arg)
{
    lock_acquire(&tty->lock);
    int32_t n = (int32_t)(input ? tty_readable_locked(tty) : ring_used(&tty->output));
    lock_release(&tty->lock);
    return OUT(&n);
}

int64_t tty_ioctl(struct tty *tty, struct file *f, bool is_master, struct mm *mm, uint32_t cmd,
                  uint64_t arg)
{
    int32_t value;
    switch (cmd) {
    case TCGETS:
        return get_termios(tty, mm, arg, LINUX_TERMIOS_SIZE);
    case LINUX_TCGETS2:
        return get_termios(tty, mm, arg, sizeof(struct linux_termios2));
    case TCSETS:
    case TCSETSW:
    case TCSETSF:
        return set_termios(tty, is_master, mm, arg, LINUX_TERMIOS_SIZE, cmd != TCSETS, cmd == TCSETSF);
    case LINUX_TCSETS2:
    case LINUX_TCSETSW2:
    case LINUX_TCSETSF2:
        return set_termios(tty, is_master, mm, arg, sizeof(struct linux_termios2),
                           cmd != LINUX_TCSETS2, cmd == LINUX_TCSETSF2);
    case TIOCGPGRP:
        return get_foreground(tty, is_master, mm, arg);
    case TIOCSPGRP:
        return set_foreground(tty, is_master, mm, arg);
    case TIOCGSID:
        return get_session(tty, mm, arg);
    case TIOCSCTTY:
        return is_master ? -ENOTTY : acquire(tty, arg);
    case TIOCNOTTY:
        return give_up(tty);
    case TIOCGWINSZ:
        return get_winsize(tty, mm, arg);
    case TIOCSWINSZ:
        return set_winsize(tty, mm, arg);
    case TCSBRK:
    case TCSBRKP:
        return arg != 0 || cmd == TCSBRKP ? wait_output_drained(tty, is_master) : 0;
    case TCFLSH:
        return flush(tty, is_master, arg);
    case TCXONC:
        return flow(tty, arg);
    case FIONREAD:
        return queued(tty, !is_master, mm, arg);
    case TIOCOUTQ:
        return queued(tty, is_master, mm, arg);
    case TIOCGETD:
        value = 0; /* N_TTY */
        return OUT(&value);
    case TIOCSETD:
        return IN(&value) != 0 ? -EFAULT : value == 0 ? 0 : -EINVAL;
    case TIOCEXCL:
    case TIOCNXCL:
        tty->exclusive = cmd == TIOCEXCL;
        return 0;
    case TIOCGEXCL:
        value = tty->exclusive;
        return OUT(&value);
    case TIOCSTI: /* typing into another's terminal: as a kernel without legacy_tiocsti */
        return -EIO;
    default:
        return is_master ? pty_master_ioctl(tty, f, mm, cmd, arg) : -ENOTTY;
    }
}
