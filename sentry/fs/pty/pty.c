/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pseudoterminals: /dev/ptmx, its files, /dev/pts, /dev/tty. pty(7), pts(4). Runs on fibers.
 */
#define LOG_MODULE "pty"
#include "sentry/fs/pty/pty.h"
#include "base/log.h"
#include "sentry/fs/dev/dev.h"
#include "sentry/fs/pty/pty_internal.h"
#include "sentry/task/restart.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <termios.h>

#define PTYS_MAX 4096
#define PTS_MAJOR 136

/* Slaves by number: under g_lock. The master's file owns the entry. */
static struct lock g_lock = LOCK_INITIALIZER;
static struct tty *g_slaves[PTYS_MAX]; /* ref */
static struct superblock *g_devpts;    /* borrowed: mounted for the sandbox's life */

static struct tty *slave_get(int number)
{
    lock_acquire(&g_lock);
    struct tty *tty = number >= 0 && number < PTYS_MAX ? g_slaves[number] : NULL;
    if (tty != NULL)
        tty_get(tty);
    lock_release(&g_lock);
    return tty;
}

/* ---- slave inodes ------------------------------------------------------------------------------- */

#define SLAVE_INO(number) ((uint64_t)(number) + 3)

/* The inode may outlive its terminal, in a path that somebody holds: so it's looked up, and may be another
 * by now. */
static int slave_open(struct inode *inode, struct file *file)
{
    struct tty *tty = slave_get((int)(inode->ino - SLAVE_INO(0)));
    int r = tty != NULL && tty->slave_inode == inode ? tty_open_slave(tty, file) : -EIO;
    tty_put(tty);
    return r;
}

static const struct inode_ops slave_inode_ops = {.open = slave_open};

static int add_slave(uint32_t uid, uint32_t gid, struct tty **ret)
{
    struct tty *tty;
    int number = 0;
    lock_acquire(&g_lock);
    while (number < PTYS_MAX && g_slaves[number] != NULL)
        number++;
    lock_release(&g_lock);
    if (number == PTYS_MAX || g_devpts == NULL)
        return -ENOSPC;
    int r = tty_new(number, DEV_NUMBER(PTS_MAJOR, (unsigned)number), &tty);
    if (r != 0)
        return r;
    tty->is_locked = true;
    tty->slave_inode =
        inode_new(g_devpts, &slave_inode_ops, SLAVE_INO(number), S_IFCHR | 0620, uid, gid);
    if (tty->slave_inode == NULL) {
        tty_put(tty);
        return -ENOMEM;
    }
    tty->slave_inode->rdev = tty->rdev;
    lock_acquire(&g_lock);
    bool taken = g_slaves[number] != NULL;
    if (!taken) {
        g_slaves[number] = tty;
        tty_get(tty);
    }
    lock_release(&g_lock);
    if (taken) { /* somebody was faster: once more */
        tty_put(tty);
        return add_slave(uid, gid, ret);
    }
    *ret = tty;
    return 0;
}

int pty_add_console(struct tty *tty, uint32_t uid)
{
    if (g_devpts == NULL)
        return -ENXIO;
    tty->slave_inode = inode_new(g_devpts, &slave_inode_ops, SLAVE_INO(0), S_IFCHR | 0620, uid, 5);
    if (tty->slave_inode == NULL)
        return -ENOMEM;
    tty->slave_inode->rdev = tty->rdev;
    lock_acquire(&g_lock);
    g_slaves[0] = tty; /* before the first process: nobody can have taken it */
    tty_get(tty);
    lock_release(&g_lock);
    return 0;
}

/* ---- the master's file --------------------------------------------------------------------------- */

static ssize_t master_read(struct file *f, struct io *io, int64_t *pos)
{
    struct tty *tty = f->private_data;
    struct waiter w;
    ssize_t r = 0;
    (void)pos;
    waiter_init(&w);
    wait_queue_add(&tty->wait, &w);
    while (io->remaining > 0) {
        uint8_t chunk[512];
        size_t size = io->remaining < sizeof chunk ? (size_t)io->remaining : sizeof chunk;
        size_t header = tty->packet_mode ? 1 : 0;
        size_t n = size > header ? tty_take_output(tty, chunk + header, size - header) : 0;
        lock_acquire(&tty->lock);
        uint8_t flags = tty->packet_mode ? tty->packet_flags : 0;
        tty->packet_flags = 0;
        bool no_slave = tty->has_been_opened && tty->slave_count == 0;
        lock_release(&tty->lock);
        if (n > 0 || flags != 0) {
            chunk[0] = header != 0 ? (n > 0 ? 0 : flags) : chunk[0];
            r = io_put(io, chunk, n + header);
            break;
        }
        if (no_slave)
            r = -EIO;
        else if (f->flags & O_NONBLOCK)
            r = -EAGAIN;
        else
            r = fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE);
        if (r != 0) {
            r = r == -EINTR ? -ERESTARTSYS : r;
            break;
        }
    }
    wait_queue_remove(&w);
    return r;
}

static ssize_t master_write(struct file *f, struct io *io, int64_t *pos)
{
    struct tty *tty = f->private_data;
    struct waiter w;
    ssize_t done = 0, r = 0;
    (void)pos;
    waiter_init(&w);
    wait_queue_add(&tty->wait, &w);
    while (io->remaining > 0 && r == 0) {
        uint8_t chunk[512];
        ssize_t n = io_get(io, chunk, io->remaining < sizeof chunk ? (size_t)io->remaining : sizeof chunk);
        if (n <= 0) {
            r = n;
            break;
        }
        size_t used = tty_receive(tty, chunk, (size_t)n);
        io_rewind(io, (size_t)n - used);
        done += (ssize_t)used;
        if (used > 0)
            continue;
        r = (f->flags & O_NONBLOCK) ? -EAGAIN : fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE);
    }
    wait_queue_remove(&w);
    if (done > 0)
        return done;
    return r == -EINTR ? -ERESTARTSYS : r;
}

static uint32_t master_poll(struct file *f, struct poll_table *table)
{
    struct tty *tty = f->private_data;
    uint32_t events = 0;
    poll_wait(table, &tty->wait);
    lock_acquire(&tty->lock);
    if ((ring_used(&tty->output) > 0 && !tty->output_stopped) || tty->packet_flags != 0)
        events |= EPOLLIN | EPOLLRDNORM;
    if (ring_free(&tty->input) > 1 || (tty->termios.lflag & ICANON))
        events |= EPOLLOUT | EPOLLWRNORM;
    if (tty->has_been_opened && tty->slave_count == 0)
        events |= EPOLLHUP;
    lock_release(&tty->lock);
    return events;
}

/* TIOCGPTPEER: a file of the slave without a path. */
static int64_t open_peer(struct tty *tty, uint64_t flags)
{
    static const struct file_ops not_yet; /* of a file that may fail to become the slave's */
    struct task *t = tty_current_task();
    char name[32];
    struct file *f;
    (void)snprintf(name, sizeof name, "/dev/pts/%d", tty->number);
    int r = anon_file_new(name, tty->slave_inode, 0620, t->creds,
                          (uint32_t)flags & (O_ACCMODE | O_NONBLOCK | O_NOCTTY), &not_yet, NULL, &f);
    if (r != 0)
        return r;
    r = tty_open_slave(tty, f);
    if (r == 0)
        r = fd_table_install(t->fds, f, 0, task_rlimit(t, RLIMIT_NOFILE), (flags & O_CLOEXEC) != 0);
    if (r < 0)
        file_put(f);
    return r;
}

int64_t pty_master_ioctl(struct tty *tty, struct file *f, struct mm *mm, uint32_t cmd, uint64_t arg)
{
    guest_addr addr = GUEST_ADDR(arg);
    int32_t value;
    (void)f;
    switch (cmd) {
    case TIOCGPTN:
        value = tty->number;
        return copy_out_obj(mm, addr, &value);
    case TIOCSPTLCK:
        if (copy_in_obj(mm, &value, addr) != 0)
            return -EFAULT;
        tty->is_locked = value != 0;
        return 0;
    case TIOCGPTLCK:
        value = tty->is_locked;
        return copy_out_obj(mm, addr, &value);
    case TIOCGPTPEER:
        return open_peer(tty, arg);
    case TIOCPKT:
        if (copy_in_obj(mm, &value, addr) != 0)
            return -EFAULT;
        tty->packet_mode = value != 0;
        return 0;
    case TIOCGPKT:
        value = tty->packet_mode;
        return copy_out_obj(mm, addr, &value);
    case TIOCSIG: {
        struct linux_siginfo info;
        if (arg != SIGINT && arg != SIGQUIT && arg != SIGTSTP)
            return -EINVAL;
        signal_info_kernel(&info, (int)arg, SI_KERNEL);
        int pgid = tty_foreground_pgid(tty);
        if (pgid > 0)
            (void)signal_send_pgrp(pgid, &info);
        return 0;
    }
    default:
        return -ENOTTY;
    }
}

static int64_t master_ioctl(struct file *f, struct mm *mm, uint32_t cmd, uint64_t arg)
{
    return tty_ioctl(f->private_data, f, true, mm, cmd, arg);
}

static void master_release(struct file *f)
{
    struct tty *tty = f->private_data;
    lock_acquire(&g_lock);
    g_slaves[tty->number] = NULL;
    lock_release(&g_lock);
    tty_hangup(tty);
    tty_put(tty); /* the table's */
    tty_put(tty); /* the file's */
}

static const struct file_ops master_ops = {
    .read = master_read,
    .write = master_write,
    .poll = master_poll,
    .ioctl = master_ioctl,
    .release = master_release,
};

static int ptmx_open(struct inode *inode, struct file *file)
{
    struct tty *tty;
    (void)inode;
    int r = add_slave(file->creds->fsuid, file->creds->fsgid, &tty);
    if (r != 0)
        return r;
    file->ops = &master_ops;
    file->private_data = tty;
    return 0;
}

/* ---- /dev/tty ----------------------------------------------------------------------------------- */

static int tty_device_open(struct inode *inode, struct file *file)
{
    (void)inode;
    struct tty *tty = tty_of_current();
    if (tty == NULL)
        return -ENXIO;
    bool was_locked = tty->is_locked;
    tty->is_locked = false;
    int r = tty_open_slave(tty, file);
    tty->is_locked = was_locked;
    tty_put(tty);
    return r;
}

static int console_device_open(struct inode *inode, struct file *file)
{
    (void)inode;
    struct tty *tty = console_tty();
    return tty != NULL ? tty_open_slave(tty, file) : -ENXIO;
}

/* ---- devpts ------------------------------------------------------------------------------------- */

static const struct inode_ops ptmx_inode_ops = {.open = ptmx_open};

static int devpts_lookup(struct inode *dir, const char *name, struct inode **ret_inode)
{
    *ret_inode = NULL;
    if (strcmp(name, "ptmx") == 0) {
        struct inode *ptmx = inode_new(dir->sb, &ptmx_inode_ops, 2,
                                       S_IFCHR | 0666, 0, 0);
        if (ptmx == NULL)
            return -ENOMEM;
        ptmx->rdev = DEV_NUMBER(5, 2);
        *ret_inode = ptmx;
        return 0;
    }
    char *end;
    unsigned long number = strtoul(name, &end, 10);
    if (name[0] < '0' || name[0] > '9' || *end != '\0' || (name[0] == '0' && name[1] != '\0'))
        return 0;
    struct tty *tty = slave_get(number < PTYS_MAX ? (int)number : -1);
    if (tty == NULL)
        return 0;
    inode_get(tty->slave_inode);
    *ret_inode = tty->slave_inode;
    tty_put(tty);
    return 0;
}

/* Slaves come and go: a cached name is true if it would be found again. */
static int devpts_revalidate(struct inode *dir, const char *name, struct inode *inode)
{
    struct inode *now = NULL;
    if (strcmp(name, "ptmx") == 0)
        return inode != NULL;
    if (devpts_lookup(dir, name, &now) != 0)
        return 0;
    bool same = now == inode;
    if (now != NULL)
        inode_put(now);
    return same;
}

static int devpts_iterate(struct file *f, struct dir_context *ctx)
{
    char name[16];
    if (!dir_emit_dots(f, ctx))
        return 0;
    if (ctx->pos == 2) {
        if (!ctx->emit(ctx, "ptmx", 4, 2, DT_CHR, 3))
            return 0;
        ctx->pos = 3;
    }
    for (int number = (int)ctx->pos - 3; number < PTYS_MAX; number++) {
        struct tty *tty = slave_get(number);
        if (tty == NULL)
            continue;
        tty_put(tty);
        int len = snprintf(name, sizeof name, "%d", number);
        if (!ctx->emit(ctx, name, (size_t)len, (uint64_t)number + 3, DT_CHR, number + 4))
            return 0;
        ctx->pos = number + 4;
    }
    return 0;
}

static const struct file_ops devpts_dir_ops = {.iterate = devpts_iterate, .lseek = file_lseek_dir};

static int devpts_open(struct inode *inode, struct file *file)
{
    (void)inode;
    file->ops = &devpts_dir_ops;
    return 0;
}

static const struct inode_ops devpts_root_ops = {
    .lookup = devpts_lookup, .revalidate = devpts_revalidate, .open = devpts_open};

static int devpts_statfs(struct superblock *sb, struct linux_statfs *ret)
{
    *ret = (struct linux_statfs){.type = sb->magic, .bsize = 4096, .namelen = 255, .frsize = 4096};
    return 0;
}

static void devpts_destroy(struct superblock *sb)
{
    free(sb);
}

int devpts_new(struct superblock **ret_sb, struct inode **ret_root)
{
    static const struct superblock_ops ops = {.statfs = devpts_statfs, .destroy = devpts_destroy};
    struct superblock *sb = calloc(1, sizeof *sb);
    if (sb == NULL)
        return -ENOMEM;
    superblock_init(sb, &ops, "devpts", 0x1cd1);
    sb->revalidate = true;
    struct inode *root = inode_new(sb, &devpts_root_ops, 1, S_IFDIR | 0755, 0, 0);
    if (root == NULL) {
        superblock_put(sb);
        return -ENOMEM;
    }
    atomic_store(&root->nlink, 2);
    g_devpts = sb;
    *ret_sb = sb;
    *ret_root = root;
    return 0;
}

/* ---- start -------------------------------------------------------------------------------------- */

static void session_leader_exits(struct thread_group *g)
{
    tasks_lock();
    struct tty *tty = g->pgrp != NULL ? g->pgrp->session->tty : NULL;
    int foreground = tty != NULL ? g->pgrp->session->foreground_pgid : 0;
    if (tty != NULL) {
        tty->session->tty = NULL;
        tty->session = NULL;
    }
    tasks_unlock();
    if (foreground == 0)
        return;
    struct linux_siginfo info;
    signal_info_kernel(&info, SIGHUP, SI_KERNEL);
    (void)signal_send_pgrp(foreground, &info);
}

void pty_init(void)
{
    static const struct chardev devices[] = {
        {DEV_NUMBER(5, 0), "tty", 0666, tty_device_open},
        {DEV_NUMBER(5, 1), "console", 0600, console_device_open},
        {DEV_NUMBER(5, 2), "ptmx", 0666, ptmx_open},
    };
    for (size_t i = 0; i < ARRAY_COUNT(devices); i++)
        chardev_register(&devices[i]);
    g_session_leader_exit_hook = session_leader_exits;
}
