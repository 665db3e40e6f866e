/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading directories in batches. A position is 2 + the entry's place in the order in which the host gave
 * them out; where each batch began is remembered, so that seeking back works whatever the host's cookies
 * look like. Any fiber; inode->lock is held by vfs during iterate.
 */
#include "sentry/fs/gofer/node.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct start {
    uint64_t index;  /* of the batch's first entry */
    uint64_t cookie; /* how the gofer is asked for it */
};

struct stream {
    struct start *starts; /* owned; starts[0] = {0, 0} */
    uint32_t count, capacity;
    uint32_t current;    /* which start `batch` belongs to */
    struct batch *batch; /* ref; NULL: none yet */
    uint64_t index;      /* of the entry at `offset` */
    uint32_t offset;
};

static int add_start(struct stream *s, uint64_t index, uint64_t cookie)
{
    if (s->count == s->capacity) {
        uint32_t capacity = s->capacity ? s->capacity * 2 : 8;
        struct start *starts = realloc(s->starts, capacity * sizeof(*starts));
        if (!starts)
            return -ENOMEM;
        s->starts = starts;
        s->capacity = capacity;
    }
    s->starts[s->count++] = (struct start){.index = index, .cookie = cookie};
    return 0;
}

static void forget_batch(struct stream *s)
{
    batch_put(s->batch);
    s->batch = NULL;
}

/* Fetches the batch that begins at starts[which]. */
static int fetch(struct inode *inode, struct stream *s, uint32_t which)
{
    struct gofer_fs *fs = fs_of(inode);
    struct node *node = node_of(inode);
    uint64_t changes = atomic_load(&fs->changes);
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_readdir_request req = {.at_path = rpc.path[0], .cookie = s->starts[which].cookie};
    struct gofer_readdir_reply reply;
    uint32_t depth;
    int error = node_path(fs, node, NULL, rpc.path[0], &req.at, &depth);
    req.want_handle = depth > 0;
    if (!error)
        error = gofer_rpc_readdir(&rpc, &req, &reply);
    if (error)
        return error;
    if (reply.handle)
        node_set_handle(fs, node, reply.handle);
    struct batch *batch = batch_new(&reply, changes, &error);
    if (!batch)
        return error;
    if (batch->count == 0 && !batch->is_end) { /* we'd ask for ever */
        batch_put(batch);
        return -EIO;
    }
    if (which == 0)
        cache_drop_batches(fs, node);
    cache_add_batch(fs, node, batch);
    forget_batch(s);
    s->batch = batch;
    s->current = which;
    s->index = s->starts[which].index;
    s->offset = 0;
    return 0;
}

/* Which known batch holds, or comes before, entry `index`. */
static uint32_t start_of(const struct stream *s, uint64_t index)
{
    uint32_t low = 0;
    uint32_t high = s->count;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (s->starts[middle].index <= index)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Makes the stream stand at entry *index, or at the next one if the directory shrank meanwhile: *index says
 * so. 1, 0 at the end of the directory, or -errno. */
static int stand_at(struct inode *inode, struct stream *s, uint64_t *ret_index)
{
    uint64_t index = *ret_index;
    uint32_t which = start_of(s, index);
    for (;;) {
        if (!s->batch || s->current != which) {
            int error = fetch(inode, s, which);
            if (error)
                return error;
        }
        uint64_t first = s->starts[which].index;
        if (index < first)
            index = first;
        if (index < first + s->batch->count)
            break;
        if (s->batch->is_end)
            return 0;
        which++;
        if (which == s->count) {
            int error = add_start(s, first + s->batch->count, s->batch->next_cookie);
            if (error)
                return error;
        }
    }
    if (index < s->index) {
        s->index = s->starts[which].index;
        s->offset = 0;
    }
    while (s->index < index) {
        struct gofer_entry skipped;
        batch_entry(s->batch, &s->offset, &skipped);
        s->index++;
    }
    *ret_index = index;
    return 1;
}

static int iterate(struct file *f, struct dir_context *ctx)
{
    struct stream *s = f->private_data;
    if (!dir_emit_dots(f, ctx))
        return 0;
    if (ctx->pos == 2) { /* from the start: what is there now */
        forget_batch(s);
        s->count = 1;
    }
    for (;;) {
        uint64_t index = (uint64_t)ctx->pos - 2;
        int r = stand_at(f->inode, s, &index);
        if (r <= 0)
            return r;
        int64_t next_pos = (int64_t)index + 3;
        ctx->pos = next_pos - 1;
        struct gofer_entry entry;
        uint32_t next = s->offset;
        batch_entry(s->batch, &next, &entry);
        if (!ctx->emit(ctx, entry.name, strlen(entry.name), entry.stat.ino,
                       (uint8_t)(entry.stat.mode >> 12 & 15), next_pos))
            return 0;
        s->offset = next;
        s->index++;
        ctx->pos = next_pos;
    }
}

static int64_t seek(struct file *f, int64_t offset, int whence)
{
    if (whence == SEEK_CUR)
        offset += f->pos;
    else if (whence != SEEK_SET)
        return -EINVAL;
    if (offset < 0)
        return -EINVAL;
    f->pos = offset;
    return offset;
}

static int sync_dir(struct file *f, bool data_only)
{
    (void)data_only;
    return fs_of(f->inode)->read_only ? 0 : gofer_flush(f->inode);
}

static void release(struct file *f)
{
    struct stream *s = f->private_data;
    batch_put(s->batch);
    free(s->starts);
    free(s);
}

static const struct file_ops ops = {
    .lseek = seek,
    .iterate = iterate,
    .fsync = sync_dir,
    .release = release,
};

int gofer_open_dir(struct inode *inode, struct file *file)
{
    (void)inode;
    struct stream *s = calloc(1, sizeof(*s));
    if (!s || add_start(s, 0, 0)) {
        free(s);
        return -ENOMEM;
    }
    file->ops = &ops;
    file->private_data = s;
    return 0;
}
