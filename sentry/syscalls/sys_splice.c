/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between files inside the kernel: sendfile(2), copy_file_range(2), splice(2), tee(2), vmsplice(2).
 * On the calling task's fiber; bytes go through a buffer of the sentry, at most CHUNK at a time.
 */
#define LOG_MODULE "syscalls"
#include "base/host.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/restart.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>

#define CHUNK        65536
#define MAX_RW_COUNT 0x7ffff000
#define SPLICE_ALL   ((uint32_t)(SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT))

/* ---- positions ------------------------------------------------------------------------------------- */

/* Where one side of a copy is: at the guest's offset if it gave one, else at the file's. */
struct cursor {
    struct file *file;
    guest_addr offset; /* null: the file's position */
    int64_t pos;
};

static int cursor_init(struct task *task, struct cursor *c, struct file *f, guest_addr offset)
{
    *c = (struct cursor){.file = f, .offset = offset};
    if (!guest_addr_is_null(offset))
        return copy_in_obj(task->mm, &c->pos, offset);
    fmutex_lock(&f->pos_lock);
    c->pos = f->pos;
    fmutex_unlock(&f->pos_lock);
    return 0;
}

static int cursor_store(struct task *task, const struct cursor *c)
{
    if (!guest_addr_is_null(c->offset))
        return copy_out_obj(task->mm, c->offset, &c->pos);
    fmutex_lock(&c->file->pos_lock);
    c->file->pos = c->pos;
    fmutex_unlock(&c->file->pos_lock);
    return 0;
}

static bool is_seekable(const struct file *f)
{
    return f->ops->lseek != NULL;
}

static ssize_t cursor_read(struct cursor *c, void *bytes, size_t size)
{
    struct io io;
    io_init_kernel(&io, bytes, size);
    return is_seekable(c->file) ? vfs_pread(c->file, &io, c->pos) : vfs_read(c->file, &io);
}

static ssize_t cursor_write(struct cursor *c, void *bytes, size_t size)
{
    struct io io;
    io_init_kernel(&io, bytes, size);
    return is_seekable(c->file) ? vfs_pwrite(c->file, &io, c->pos) : vfs_write(c->file, &io);
}

static bool may_read(const struct file *f)
{
    return (f->flags & O_ACCMODE) != O_WRONLY;
}

static bool may_write(const struct file *f)
{
    return (f->flags & O_ACCMODE) != O_RDONLY;
}

/* Copies until `size`, the end of `in`, or `out` takes no more. `in` is read by position, so what was not
 * written is not lost. Bytes or -errno. */
static ssize_t pump(struct cursor *in, struct cursor *out, uint64_t size)
{
    AUTO_FREE uint8_t *buffer = malloc(CHUNK);
    if (!buffer)
        return -ENOMEM;
    ssize_t done = 0;
    while (size) {
        ssize_t got = cursor_read(in, buffer, size < CHUNK ? size : CHUNK);
        if (got <= 0)
            return done ? done : got;
        ssize_t put = cursor_write(out, buffer, (size_t)got);
        if (put < 0)
            return done ? done : put;
        in->pos += put;
        out->pos += put;
        done += put;
        size -= (uint64_t)put;
        if (put < got)
            break;
    }
    return done;
}

/* ---- sendfile -------------------------------------------------------------------------------------- */

static int check_sendfile(const struct file *in, const struct file *out)
{
    if (!may_read(in) || !may_write(out))
        return -EBADF;
    if (S_ISDIR(in->inode->mode) || !is_seekable(in) || (out->flags & O_APPEND))
        return -EINVAL;
    return 0;
}

int64_t sys_sendfile(struct task *task, int out_fd, int in_fd, guest_addr offset, uint64_t count)
{
    AUTO_FILE in = fd_table_get_file(task->fds, in_fd);
    AUTO_FILE out = fd_table_get_file(task->fds, out_fd);
    if (!in)
        return -EBADF;
    struct cursor from, to;
    if (!guest_addr_is_null(offset) && may_read(in) && !is_seekable(in))
        return -ESPIPE;
    int r = cursor_init(task, &from, in, offset);
    if (r < 0)
        return r;
    if (!out)
        return -EBADF;
    r = check_sendfile(in, out);
    if (r == 0 && from.pos < 0)
        r = -EINVAL;
    if (r == 0)
        r = cursor_init(task, &to, out, GUEST_NULL);
    if (r < 0)
        return r;
    ssize_t done = pump(&from, &to, count < MAX_RW_COUNT ? count : MAX_RW_COUNT);
    if (done <= 0)
        return done;
    r = cursor_store(task, &from);
    if (r == 0 && is_seekable(out))
        r = cursor_store(task, &to);
    return r < 0 ? r : done;
}

/* ---- copy_file_range ------------------------------------------------------------------------------- */

static int check_range(const struct cursor *in, const struct cursor *out, uint64_t size)
{
    const struct file *f = in->file, *g = out->file;
    if (S_ISDIR(f->inode->mode) || S_ISDIR(g->inode->mode))
        return -EISDIR;
    if (!S_ISREG(f->inode->mode) || !S_ISREG(g->inode->mode))
        return -EINVAL;
    if (!may_read(f) || !may_write(g) || (g->flags & O_APPEND))
        return -EBADF;
    int64_t in_end, out_end;
    if (in->pos < 0 || out->pos < 0)
        return -EINVAL;
    if (__builtin_add_overflow(in->pos, (int64_t)size, &in_end) ||
        __builtin_add_overflow(out->pos, (int64_t)size, &out_end))
        return -EOVERFLOW;
    if (f->inode == g->inode && out_end > in->pos && out->pos < in_end)
        return -EINVAL;
    return 0;
}

int64_t sys_copy_file_range(struct task *task, int fd_in, guest_addr off_in, int fd_out, guest_addr off_out,
                            uint64_t size, uint32_t flags)
{
    AUTO_FILE in = fd_table_get_file(task->fds, fd_in);
    AUTO_FILE out = fd_table_get_file(task->fds, fd_out);
    if (!in || !out)
        return -EBADF;
    if (flags)
        return -EINVAL;
    struct cursor from, to;
    int r = cursor_init(task, &from, in, off_in);
    if (r == 0)
        r = cursor_init(task, &to, out, off_out);
    if (size > MAX_RW_COUNT)
        size = MAX_RW_COUNT;
    /* Beyond the end there is nothing that could overlap. */
    uint64_t file_size = atomic_load_explicit(&in->inode->size, memory_order_relaxed);
    if (r == 0 && from.pos >= 0 && S_ISREG(in->inode->mode)) {
        uint64_t left = file_size > (uint64_t)from.pos ? file_size - (uint64_t)from.pos : 0;
        size = size < left ? size : left;
    }
    if (r == 0)
        r = check_range(&from, &to, size);
    if (r < 0)
        return r;
    ssize_t done = pump(&from, &to, size);
    if (done <= 0)
        return done;
    r = cursor_store(task, &from);
    if (r == 0)
        r = cursor_store(task, &to);
    return r < 0 ? r : done;
}

/* ---- splice ---------------------------------------------------------------------------------------- */

static ssize_t sink_write(void *arg, struct io *io)
{
    struct cursor *c = arg;
    ssize_t n = is_seekable(c->file) ? vfs_pwrite(c->file, io, c->pos) : vfs_write(c->file, io);
    if (n > 0)
        c->pos += n;
    return n;
}

static ssize_t splice_out(struct task *task, struct file *pipe, struct file *out, guest_addr offset,
                          uint64_t size, bool non_block)
{
    struct cursor to;
    if (!may_write(out))
        return -EBADF;
    if (!guest_addr_is_null(offset) && !is_seekable(out))
        return -EINVAL;
    if (out->flags & O_APPEND)
        return -EINVAL;
    int r = cursor_init(task, &to, out, offset);
    if (r < 0)
        return r;
    ssize_t done = pipe_drain(pipe, size, non_block, sink_write, &to);
    if (done > 0 && is_seekable(out))
        r = cursor_store(task, &to);
    return r < 0 ? r : done;
}

/* One read of what there is room for. Another writer may take the room meanwhile: then the rest waits. */
static ssize_t fill_from(struct cursor *from, struct file *pipe, uint64_t size, bool non_block)
{
    ssize_t room = pipe_wait_room(pipe, non_block);
    if (room < 0)
        return room;
    if (size > (uint64_t)room)
        size = (uint64_t)room;
    if (size > CHUNK)
        size = CHUNK;
    AUTO_FREE uint8_t *buffer = malloc(size ? size : 1);
    if (!buffer)
        return -ENOMEM;
    ssize_t got = cursor_read(from, buffer, size);
    ssize_t done = 0;
    while (done < got) {
        struct io io;
        io_init_kernel(&io, buffer + done, (size_t)(got - done));
        ssize_t n = pipe_fill(pipe, &io, false);
        if (n <= 0)
            return done ? done : n;
        done += n;
    }
    return got < 0 ? got : done;
}

static ssize_t splice_in(struct task *task, struct file *in, guest_addr offset, struct file *pipe,
                         uint64_t size, bool non_block)
{
    struct cursor from;
    if (!may_read(in))
        return -EBADF;
    if (!guest_addr_is_null(offset) && !is_seekable(in))
        return -EINVAL;
    int r = cursor_init(task, &from, in, offset);
    if (r == 0 && from.pos < 0)
        r = -EINVAL;
    if (r < 0)
        return r;
    ssize_t done = fill_from(&from, pipe, size, non_block);
    if (done > 0 && is_seekable(in)) {
        from.pos += done;
        r = cursor_store(task, &from);
    }
    return r < 0 ? r : done;
}

int64_t sys_splice(struct task *task, int fd_in, guest_addr off_in, int fd_out, guest_addr off_out,
                   uint64_t size, uint32_t flags)
{
    if (size == 0)
        return 0;
    if (flags & ~SPLICE_ALL)
        return -EINVAL;
    AUTO_FILE in = fd_table_get_file(task->fds, fd_in);
    AUTO_FILE out = fd_table_get_file(task->fds, fd_out);
    if (!in || !out)
        return -EBADF;
    if (size > MAX_RW_COUNT)
        size = MAX_RW_COUNT;
    bool non_block = flags & SPLICE_F_NONBLOCK;
    bool from_pipe = file_is_pipe(in), to_pipe = file_is_pipe(out);
    if ((from_pipe && !guest_addr_is_null(off_in)) || (to_pipe && !guest_addr_is_null(off_out)))
        return -ESPIPE;
    if (!may_read(in) || !may_write(out))
        return -EBADF;
    if (from_pipe && to_pipe)
        return pipe_splice(in, out, size, non_block);
    if (from_pipe)
        return splice_out(task, in, out, off_out, size, non_block);
    if (to_pipe)
        return splice_in(task, in, off_in, out, size, non_block);
    return -EINVAL;
}

int64_t sys_tee(struct task *task, int fd_in, int fd_out, uint64_t size, uint32_t flags)
{
    if (flags & ~SPLICE_ALL)
        return -EINVAL;
    if (size == 0)
        return 0;
    AUTO_FILE in = fd_table_get_file(task->fds, fd_in);
    AUTO_FILE out = fd_table_get_file(task->fds, fd_out);
    if (!in || !out)
        return -EBADF;
    return pipe_tee(in, out, size < MAX_RW_COUNT ? size : MAX_RW_COUNT, flags & SPLICE_F_NONBLOCK);
}

static ssize_t sink_io(void *arg, struct io *from)
{
    struct io *to = arg;
    ssize_t n = io_put(to, from->kernel, from->remaining);
    return n;
}

int64_t sys_vmsplice(struct task *task, int fd, guest_addr iov, uint64_t count, uint32_t flags)
{
    if (flags & ~SPLICE_ALL)
        return -EINVAL;
    AUTO_FILE f = fd_table_get_file(task->fds, fd);
    if (!f || !file_is_pipe(f))
        return -EBADF;
    AUTO_IO io = {0};
    int r = io_init_iovec(&io, task->mm, iov, count);
    if (r < 0 || io.remaining == 0)
        return r;
    bool non_block = flags & SPLICE_F_NONBLOCK;
    if (may_write(f))
        return pipe_fill(f, &io, non_block);
    return pipe_drain(f, io.remaining, non_block, sink_io, &io);
}
