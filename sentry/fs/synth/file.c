/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open files and directories of computed file systems. Any fiber. What is written comes from
 * guests: it is copied once, bounded, and given to the row's function.
 */
#include "sentry/fs/synth/synth.h"
#include "sentry/fs/synth/synth_internal.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEPT_AT_END KIB(16) /* larger texts are given up when they have been read to their end */

struct synth_open {
    struct fmutex lock;
    struct text text; /* lock */
    bool is_valid;    /* lock */
};

static const struct synth_node *node_of(const struct file *f)
{
    return f->inode->private_data;
}

static int show(const struct synth_node *n, const struct creds *reader, struct text *out)
{
    const struct synth_row *row = n->row;
    if (row->content != NULL) {
        text_put(out, row->content);
        return 0;
    }
    if (row->value != NULL) {
        text_printf(out, "%lld\n", (long long)atomic_load(&row->value->now));
        return 0;
    }
    return row->show != NULL ? row->show(&n->key, reader, out) : -EINVAL;
}

static int store(const struct synth_node *n, const struct creds *writer, const char *bytes,
                 size_t size)
{
    const struct synth_row *row = n->row;
    if (row->value != NULL) {
        int64_t value;
        int r = synth_parse_value(bytes, row->value->min, row->value->max, &value);
        if (r == 0)
            atomic_store(&row->value->now, value);
        return r;
    }
    return row->store(&n->key, writer, bytes, size);
}

static int generate_locked(struct file *f, struct synth_open *o)
{
    const struct synth_node *n = node_of(f);
    o->text.size = 0;
    o->text.error = 0;
    o->is_valid = false;
    int r = show(n, f->creds, &o->text);
    if (r == 0)
        r = o->text.error;
    o->is_valid = r == 0;
    return r;
}

static ssize_t read_text(struct file *f, struct io *io, int64_t *pos)
{
    struct synth_open *o = f->private_data;
    fmutex_lock(&o->lock);
    ssize_t n = !o->is_valid || *pos == 0 ? generate_locked(f, o) : 0;
    if (n == 0 && (uint64_t)*pos < o->text.size) {
        size_t left = o->text.size - (size_t)*pos;
        n = io_put(io, o->text.bytes + *pos, left < io->remaining ? left : (size_t)io->remaining);
        if (n > 0)
            *pos += n;
    } else if (n == 0 && o->text.capacity > KEPT_AT_END) {
        text_fini(&o->text);
        o->is_valid = false;
    }
    fmutex_unlock(&o->lock);
    return n;
}

static ssize_t write_text(struct file *f, struct io *io, int64_t *pos)
{
    const struct synth_node *node = node_of(f);
    if (node->row->store == NULL && node->row->value == NULL)
        return -EINVAL;
    size_t size = io->remaining < SYNTH_WRITE_MAX ? (size_t)io->remaining : SYNTH_WRITE_MAX;
    char *bytes = malloc(size + 1);
    if (bytes == NULL)
        return -ENOMEM;
    ssize_t n = size > 0 ? io_get(io, bytes, size) : 0;
    if (n >= 0) {
        bytes[n] = '\0';
        int r = store(node, f->creds, bytes, (size_t)n);
        if (r == 0)
            *pos += n;
        else
            n = r;
    }
    free(bytes);
    return n;
}

static int64_t lseek_text(struct file *f, int64_t offset, int whence)
{
    return file_lseek_dir(f, offset, whence); /* there is no end to count from */
}

static void release_text(struct file *f)
{
    struct synth_open *o = f->private_data;
    text_fini(&o->text);
    fmutex_fini(&o->lock);
    free(o);
}

static const struct file_ops text_ops = {
    .read = read_text, .write = write_text, .lseek = lseek_text, .release = release_text};

/* ---- directories --------------------------------------------------------------------------------
 */

/* Stable while the name lives, and says nothing about addresses: FNV-1a over the directory's
 * number. */
uint64_t synth_ino(uint64_t dir_ino, const char *name)
{
    uint64_t h = 0xcbf29ce484222325u ^ dir_ino;
    for (; *name != '\0'; name++)
        h = (h ^ (uint8_t)*name) * 0x100000001b3u;
    h ^= h >> 29;
    return (h & 0xffffffffffffu) | 0x100000000u; /* above the small numbers of roots */
}

/* Positions: 2 and on are the rows, then the others at 2 + count + what next() says. */
static int iterate(struct file *f, struct dir_context *ctx)
{
    const struct synth_node *n = node_of(f);
    static const struct synth_rows none;
    const struct synth_rows *rows = n->row->rows != NULL ? n->row->rows : &none;
    if (!dir_emit_dots(f, ctx))
        return 0;
    for (int64_t pos = ctx->pos; pos < 2 + (int64_t)rows->count; pos++) {
        const struct synth_row *row = &rows->rows[pos - 2];
        uint64_t ino = synth_ino(f->inode->ino, row->name);
        if (!ctx->emit(ctx, row->name, strlen(row->name), ino,
                       (uint8_t)((row->mode & S_IFMT) >> 12), pos + 1))
            return 0;
        ctx->pos = pos + 1;
    }
    if (n->row->dynamic == NULL)
        return 0;
    const int64_t first = 2 + (int64_t)rows->count;
    for (;;) {
        char name[32];
        int64_t at;
        uint8_t type;
        if (!n->row->dynamic->next(&n->key, ctx->pos - first, &at, name, &type))
            return 0;
        if (!ctx->emit(ctx, name, strlen(name), synth_ino(f->inode->ino, name), type,
                       first + at + 1))
            return 0;
        ctx->pos = first + at + 1;
    }
}

static const struct file_ops directory_ops = {.iterate = iterate, .lseek = file_lseek_dir};

/* ---- opening ------------------------------------------------------------------------------------
 */

int synth_open(struct inode *inode, struct file *file)
{
    const struct synth_node *n = inode->private_data;
    int r = n->row->check != NULL ? n->row->check(&n->key, file->creds) : 0;
    if (r != 0)
        return r;
    if (S_ISDIR(inode->mode)) {
        file->ops = &directory_ops;
        return 0;
    }
    if (n->row->open != NULL)
        return n->row->open(&n->key, file);
    struct synth_open *o = calloc(1, sizeof *o);
    if (o == NULL)
        return -ENOMEM;
    fmutex_init(&o->lock);
    file->private_data = o;
    file->ops = &text_ops;
    return 0;
}
