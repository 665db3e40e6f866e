/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/{cmdline,environ,auxv,mem}: bytes of the process's own memory. Any fiber. The process
 * may write what it likes there and move the bounds (prctl): everything is copied once, in bounded
 * pieces.
 */
#include "sentry/fs/proc/proc_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PIECE_SIZE  PAGE_SIZE
#define STRINGS_MAX MIB(8) /* of a command line or environment */

/* Appends guest bytes [start, end) up to the first inaccessible page. */
static void put_range(struct text *out, struct mm *mm, uint64_t start, uint64_t end)
{
    char *piece = malloc(PIECE_SIZE);
    if (piece == NULL) {
        out->error = -ENOMEM;
        return;
    }
    if (end > start && end - start > STRINGS_MAX)
        end = start + STRINGS_MAX;
    while (start < end) {
        uint64_t size = PAGE_DOWN(start) + PAGE_SIZE - start;
        if (size > end - start)
            size = end - start;
        if (copy_in(mm, piece, GUEST_ADDR(start), (size_t)size) != 0)
            break;
        text_append(out, piece, (size_t)size);
        start += size;
    }
    free(piece);
}

/* setproctitle(3)'s trick: a command line without its last NUL goes on into the environment. */
static void put_title(struct text *out, struct mm *mm, const struct mm_layout *l)
{
    put_range(out, mm, l->arg_start, l->arg_end);
    if (out->size == 0 || out->bytes[out->size - 1] == '\0')
        return;
    char *end = memchr(out->bytes, '\0', out->size);
    if (end == NULL && l->env_start == l->arg_end) {
        put_range(out, mm, l->env_start, l->env_end);
        end = out->size != 0 ? memchr(out->bytes, '\0', out->size) : NULL;
    }
    if (end != NULL)
        out->size = (size_t)(end - out->bytes) + 1;
}

int proc_show_cmdline(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    if (s.task == NULL && s.group->is_init)
        text_append(out, "init", 5);
    struct mm *mm = subject_mm(&s);
    if (mm == NULL)
        return 0;
    const struct mm_layout l = *mm_layout_of(mm);
    put_title(out, mm, &l);
    mm_put(mm);
    return 0;
}

int proc_show_environ(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    struct mm *mm;
    int r = subject_open_mm(key, reader, &mm);
    if (r != 0 || mm == NULL)
        return r;
    const struct mm_layout l = *mm_layout_of(mm);
    put_range(out, mm, l.env_start, l.env_end);
    mm_put(mm);
    return 0;
}

int proc_show_auxv(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    struct mm *mm;
    int r = subject_open_mm(key, reader, &mm);
    if (r != 0 || mm == NULL)
        return r;
    const struct mm_layout l = *mm_layout_of(mm);
    if (l.auxv_size <= PAGE_SIZE)
        put_range(out, mm, l.auxv_start, l.auxv_start + l.auxv_size);
    mm_put(mm);
    return 0;
}

/* ---- mem
 * ----------------------------------------------------------------------------------------- */

/* The memory is that of the moment of opening, even after an execve. Page protections hold: unlike
 * Linux, what the process itself can't write can't be written here (breakpoints of gdb: see
 * ptrace). */
typedef int move_fn(struct mm *mm, uint64_t at, struct io *io, char *piece, size_t size);

static int move_out(struct mm *mm, uint64_t at, struct io *io, char *piece, size_t size)
{
    int r = copy_in(mm, piece, GUEST_ADDR(at), size);
    return r == 0 ? (int)io_put(io, piece, size) : -EIO;
}

static int move_in(struct mm *mm, uint64_t at, struct io *io, char *piece, size_t size)
{
    ssize_t n = io_get(io, piece, size);
    if (n <= 0)
        return (int)n;
    return copy_out(mm, GUEST_ADDR(at), piece, (size_t)n) == 0 ? (int)n : -EIO;
}

static ssize_t move(struct file *f, struct io *io, int64_t *pos, move_fn *fn)
{
    struct mm *mm = f->private_data;
    ssize_t done = 0;
    if (mm == NULL)
        return 0;
    char *piece = malloc(PIECE_SIZE);
    if (piece == NULL)
        return -ENOMEM;
    int n = 0;
    while (io->remaining > 0) {
        uint64_t at = (uint64_t)*pos, size = PAGE_DOWN(at) + PAGE_SIZE - at;
        if (size > io->remaining)
            size = io->remaining;
        n = fn(mm, at, io, piece, (size_t)size);
        if (n <= 0)
            break;
        *pos += n;
        done += n;
        if ((done & 0xffff) == 0)
            fiber_yield();
    }
    free(piece);
    return done > 0 ? done : n;
}

static ssize_t mem_read(struct file *f, struct io *io, int64_t *pos)
{
    return move(f, io, pos, move_out);
}

static ssize_t mem_write(struct file *f, struct io *io, int64_t *pos)
{
    return move(f, io, pos, move_in);
}

/* Any address is a position. */
static int64_t mem_lseek(struct file *f, int64_t offset, int whence)
{
    if (whence != SEEK_SET && whence != SEEK_CUR)
        return -EINVAL;
    f->pos = whence == SEEK_SET ? offset : (int64_t)((uint64_t)f->pos + (uint64_t)offset);
    return f->pos;
}

static void mem_release(struct file *f)
{
    if (f->private_data != NULL)
        mm_put(f->private_data);
}

int proc_open_mem(const struct synth_key *key, struct file *file)
{
    static const struct file_ops ops = {
        .read = mem_read, .write = mem_write, .lseek = mem_lseek, .release = mem_release};
    struct mm *mm = NULL;
    int r = subject_open_mm(key, file->creds, &mm);
    if (r != 0)
        return r;
    file->private_data = mm;
    file->ops = &ops;
    return 0;
}
