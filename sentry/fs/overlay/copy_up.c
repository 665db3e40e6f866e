/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copying a lower file's content up, at the first time that somebody may write it. The calling
 * fiber's.
 */
#include "sentry/fs/overlay/overlay_internal.h"

#include "base/host.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK KIB(128)

static bool is_zero(const uint8_t *bytes, size_t size)
{
    return size == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, size - 1) == 0);
}

/* Pages of zeros are left as holes. */
static int write_chunk(struct file *to, uint8_t *chunk, size_t size, int64_t pos)
{
    for (size_t at = 0; at < size;) {
        size_t end = at;
        while (end < size && !is_zero(chunk + end, size - end < PAGE_SIZE ? size - end : PAGE_SIZE))
            end += size - end < PAGE_SIZE ? size - end : PAGE_SIZE;
        if (end > at) {
            struct io io;
            io_init_kernel(&io, chunk + at, end - at);
            ssize_t n = vfs_pwrite(to, &io, pos + (int64_t)at);
            if (n < 0)
                return (int)n;
            if ((size_t)n < end - at)
                return -ENOSPC;
        }
        at = end;
        while (at < size && is_zero(chunk + at, size - at < PAGE_SIZE ? size - at : PAGE_SIZE))
            at += size - at < PAGE_SIZE ? size - at : PAGE_SIZE;
    }
    return 0;
}

static int copy_content(struct file *from, struct file *to, uint64_t size)
{
    AUTO_FREE uint8_t *chunk = malloc(size < CHUNK ? (size_t)size + 1 : CHUNK);
    if (!chunk)
        return -ENOMEM;
    for (uint64_t pos = 0; pos < size;) {
        size_t want = size - pos < CHUNK ? (size_t)(size - pos) : CHUNK;
        ssize_t n = file_read_at(from, chunk, want, (int64_t)pos);
        if (n < 0)
            return (int)n;
        if (n == 0)
            break; /* shorter than it said */
        int r = write_chunk(to, chunk, (size_t)n, (int64_t)pos);
        if (r < 0)
            return r;
        pos += (uint64_t)n;
    }
    return vfs_ftruncate(to, size);
}

static int copy_to(struct inode *inode, struct inode *upper, uint64_t size)
{
    struct creds *creds = creds_new(0, 0, NULL, 0);
    if (!creds)
        return -ENOMEM;
    AUTO_FILE from = NULL;
    AUTO_FILE to = NULL;
    int r = file_open_inode(overlay_node(inode)->lower, creds, O_RDONLY, &from);
    if (r == 0)
        r = file_open_inode(upper, creds, O_RDWR, &to);
    creds_put(creds);
    return r < 0 ? r : copy_content(from, to, size);
}

int overlay_copy_up(struct inode *inode, uint64_t size)
{
    struct overlay_node *node = overlay_node(inode);
    if (atomic_load_explicit(&node->upper, memory_order_relaxed))
        return 0;
    int r = overlay_pin(inode);
    if (r < 0)
        return r;
    struct inode *upper;
    r = tmpfs_regular_new(overlay_super(inode->sb)->upper_sb, inode->mode, inode->uid, inode->gid,
                          &upper);
    if (r < 0)
        return r;
    uint64_t lower_size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    if (size > lower_size)
        size = lower_size;
    if (size)
        r = copy_to(inode, upper, size);
    if (r < 0) {
        inode_put(upper);
        return r;
    }
    atomic_store_explicit(&node->upper, upper, memory_order_release);
    return 0;
}
