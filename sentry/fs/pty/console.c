/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The sandbox's terminal: a tty whose master is the CLI's stream socket. Output is pushed from whoever
 * writes; what the socket doesn't take goes on when the event thread says so.
 */
#define LOG_MODULE "console"
#include "base/host.h"
#include "base/log.h"
#include "sentry/fs/dev/dev.h"
#include "sentry/fs/pty/pty.h"
#include "sentry/fs/pty/pty_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/syscall.h>

static struct {
    struct tty *tty; /* ref; NULL: no console. Set once, before the first process */
    int hfd;
    struct event_source source;
    struct lock push_lock; /* one pusher at a time: keeps the bytes in order */
    uint8_t pending[4096]; /* push_lock: taken from the tty, not yet by the socket */
    size_t pending_size, pending_done;
    uint8_t typed[1024];   /* event thread: bytes that the line discipline had no room for */
    size_t typed_size, typed_done;
} g_console;

struct tty *console_tty(void)
{
    return g_console.tty;
}

static void push_output(struct tty *tty)
{
    lock_acquire(&g_console.push_lock);
    for (;;) {
        if (g_console.pending_done == g_console.pending_size) {
            g_console.pending_done = 0;
            g_console.pending_size = tty_take_output(tty, g_console.pending, sizeof g_console.pending);
            if (g_console.pending_size == 0)
                break;
        }
        /* #syscalls sendto: the terminal's bytes to the CLI */
        long n = host_call6(SYS_sendto, g_console.hfd, g_console.pending + g_console.pending_done,
                            g_console.pending_size - g_console.pending_done,
                            0x4040 /* MSG_DONTWAIT | MSG_NOSIGNAL */, 0, 0);
        if (n == -EINTR)
            continue;
        if (n <= 0) {
            if (n != -EAGAIN) /* nobody sees it any more */
                g_console.pending_done = g_console.pending_size = 0;
            break;
        }
        g_console.pending_done += (size_t)n;
    }
    lock_release(&g_console.push_lock);
}

/* Hands typed bytes on; false while the line discipline has no room. */
static bool deliver_typed(void)
{
    while (g_console.typed_done < g_console.typed_size) {
        size_t n = tty_receive(g_console.tty, g_console.typed + g_console.typed_done,
                               g_console.typed_size - g_console.typed_done);
        if (n == 0)
            return false;
        g_console.typed_done += n;
    }
    return true;
}

static void socket_ready(struct event_source *source, uint32_t events)
{
    (void)source;
    if (events & EPOLLOUT)
        push_output(g_console.tty);
    while (deliver_typed()) {
        /* #syscalls recvfrom: what the person types */
        long n = host_call6(SYS_recvfrom, g_console.hfd, g_console.typed, sizeof g_console.typed,
                            0x40 /* MSG_DONTWAIT */, 0, 0);
        if (n <= 0) {
            if (n == 0)
                tty_hangup(g_console.tty);
            return;
        }
        g_console.typed_size = (size_t)n;
        g_console.typed_done = 0;
    }
}

int console_new(int hfd, uint32_t uid, uint16_t rows, uint16_t cols, uint16_t xpixel,
                uint16_t ypixel)
{
    struct tty *tty;
    int r = tty_new(0, DEV_NUMBER(136, 0), &tty);
    if (r != 0)
        return r;
    tty->winsize = (struct linux_winsize){rows, cols, xpixel, ypixel};
    tty->termios.iflag |= 0x4000; /* IUTF8 */
    tty->output_added = push_output;
    r = pty_add_console(tty, uid);
    if (r != 0) {
        tty_put(tty);
        return r;
    }
    lock_init(&g_console.push_lock);
    g_console.tty = tty;
    g_console.hfd = hfd;
    g_console.source = (struct event_source){
        .hfd = hfd, .ready = socket_ready, .interest = EPOLLIN | EPOLLOUT | EPOLLRDHUP};
    return event_source_add(&g_console.source);
}

int console_open(const struct creds *creds, uint32_t flags, struct file **ret)
{
    struct tty *tty = g_console.tty;
    if (tty == NULL)
        return -ENXIO;
    int r = anon_file_new("/dev/pts/0", tty->slave_inode, 0620, creds, flags | O_NOCTTY, &tty_slave_ops,
                          NULL, ret);
    if (r != 0)
        return r;
    r = tty_open_slave(tty, *ret);
    return r;
}

void console_make_controlling(struct thread_group *g)
{
    if (g_console.tty == NULL)
        return;
    tasks_lock();
    if (g->pgrp != NULL) /* it may be gone already */
        tty_make_controlling_locked(g_console.tty, g->pgrp->session, g->pgrp->pgid);
    tasks_unlock();
}

void console_set_winsize(uint16_t rows, uint16_t cols, uint16_t xpixel, uint16_t ypixel)
{
    const struct linux_winsize w = {rows, cols, xpixel, ypixel};
    if (g_console.tty != NULL)
        tty_set_winsize(g_console.tty, &w);
}

void console_hangup(void)
{
    if (g_console.tty != NULL)
        tty_hangup(g_console.tty);
}

static bool is_drained(void *arg)
{
    struct tty *tty = arg;
    push_output(tty);
    lock_acquire(&tty->lock);
    bool empty = ring_used(&tty->output) == 0 || tty->hung_up || tty->output_stopped;
    lock_release(&tty->lock);
    lock_acquire(&g_console.push_lock);
    empty = empty && g_console.pending_done == g_console.pending_size;
    lock_release(&g_console.push_lock);
    return empty;
}

void console_drain(void)
{
    if (g_console.tty == NULL)
        return;
    int r = wait_queue_sleep(&g_console.tty->wait, is_drained, g_console.tty, FIBER_UNINTERRUPTIBLE,
                             host_monotonic_ns() + 2000000000u);
    if (r != 0)
        log_warn("the terminal's last output was not taken");
}

int console_foreground_pgid(void)
{
    return g_console.tty != NULL ? tty_foreground_pgid(g_console.tty) : 0;
}
