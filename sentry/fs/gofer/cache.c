/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the gofer said about names beyond what was asked: walks that went further, and directory batches.
 * Both answer lookups in exclusive mode until something changes. Any fiber; everything under fs->lock.
 */
#include "sentry/fs/gofer/node.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint32_t hash_name(const char *name)
{
    uint32_t h = 2166136261u;
    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return h ^ h >> 15;
}

static struct walked *walked_at(struct gofer_fs *fs, uint32_t dev_index, uint64_t ino, const char *name)
{
    uint64_t h = (ino ^ dev_index) * UINT64_C(0x9e3779b97f4a7c15) ^ hash_name(name);
    return &fs->walked[(h ^ h >> 32) % WALK_CACHE_SIZE];
}

void cache_put_walked(struct gofer_fs *fs, const struct gofer_stat *dir, const char *name, uint64_t changes,
                      const struct gofer_step *step, const char *target)
{
    struct walked fresh = {.dir_dev_index = dir->dev_index, .dir_ino = dir->ino, .changes = changes,
                           .exists = step != NULL, .name = strdup(name)};
    if (step)
        fresh.step = *step;
    if (target && *target)
        fresh.target = strdup(target);
    if (!fresh.name) {
        fs_close_later(fs, fresh.step.handle);
        free(fresh.target);
        return;
    }
    lock_acquire(&fs->lock);
    struct walked *at = walked_at(fs, dir->dev_index, dir->ino, name);
    struct walked old = *at;
    *at = fresh;
    lock_release(&fs->lock);
    if (old.name && old.exists)
        fs_close_later(fs, old.step.handle);
    free(old.name);
    free(old.target);
}

static int find_walked_locked(struct gofer_fs *fs, const struct node *dir, uint64_t ino, const char *name,
                              uint64_t changes, struct gofer_step *ret_step, char **ret_target)
{
    struct walked *at = walked_at(fs, dir->dev_index, ino, name);
    if (!at->name || at->changes != changes || at->dir_ino != ino || at->dir_dev_index != dir->dev_index ||
        strcmp(at->name, name) != 0)
        return -1;
    if (!at->exists)
        return 0;
    *ret_step = at->step;
    at->step.handle = 0; /* the caller's now */
    *ret_target = at->target ? strdup(at->target) : NULL;
    return 1;
}

bool cache_knows(struct gofer_fs *fs, struct inode *dir, const char *name)
{
    const struct node *node = node_of(dir);
    lock_acquire(&fs->lock);
    const struct walked *at = walked_at(fs, node->dev_index, dir->ino, name);
    bool known = at->name && at->changes == atomic_load(&fs->changes) && at->dir_ino == dir->ino &&
                 at->dir_dev_index == node->dev_index && strcmp(at->name, name) == 0;
    lock_release(&fs->lock);
    return known;
}

void batch_entry(const struct batch *b, uint32_t *offset, struct gofer_entry *ret)
{
    struct wire_reader r;
    wire_reader_init(&r, b->bytes + *offset, b->size - *offset);
    gofer_get_entry(&r, ret); /* can't fail: batch_new() has read it before */
    *offset = b->size - (uint32_t)r.left;
}

/* hot: one for each batch of a large directory */
static int find_in_batch(const struct batch *b, const char *name, uint32_t hash, struct gofer_step *ret_step)
{
    for (uint32_t i = hash & b->mask; b->index[i].offset; i = (i + 1) & b->mask) {
        if (b->index[i].hash != hash)
            continue;
        uint32_t offset = b->index[i].offset - 1;
        struct gofer_entry entry;
        batch_entry(b, &offset, &entry);
        if (strcmp(entry.name, name) == 0) {
            *ret_step = (struct gofer_step){.stat = entry.stat};
            return 1;
        }
    }
    return -1;
}

static int find_listed_locked(struct node *dir, const char *name, uint64_t changes, struct gofer_step *ret_step)
{
    uint32_t hash = hash_name(name);
    struct batch *b = dir->recent;
    if (b && b->changes == changes && find_in_batch(b, name, hash, ret_step) > 0)
        return 1;
    SLIST_FOREACH(b, &dir->batches, of_dir) {
        if (b->changes == changes && find_in_batch(b, name, hash, ret_step) > 0) {
            dir->recent = b;
            return 1;
        }
    }
    return -1;
}

int cache_find(struct gofer_fs *fs, struct inode *dir, const char *name, struct gofer_step *ret_step,
               char **ret_target)
{
    struct node *node = node_of(dir);
    *ret_target = NULL;
    if (fs->shared)
        return -1;
    lock_acquire(&fs->lock);
    uint64_t changes = atomic_load(&fs->changes);
    int found = find_walked_locked(fs, node, dir->ino, name, changes, ret_step, ret_target);
    if (found < 0)
        found = find_listed_locked(node, name, changes, ret_step);
    lock_release(&fs->lock);
    return found;
}

/* ---- batches ------------------------------------------------------------------------------------- */

static void index_add(struct batch *b, uint32_t offset, const char *name)
{
    uint32_t hash = hash_name(name);
    uint32_t i = hash & b->mask;
    while (b->index[i].offset)
        i = (i + 1) & b->mask;
    b->index[i] = (struct batch_slot){.hash = hash, .offset = offset + 1};
}

/* Reads every entry once, so that later readers may rely on it. */
static int check_and_index(struct batch *b)
{
    struct wire_reader r;
    wire_reader_init(&r, b->bytes, b->size);
    for (uint32_t i = 0; i < b->count; i++) {
        uint32_t offset = b->size - (uint32_t)r.left;
        struct gofer_entry entry;
        gofer_get_entry(&r, &entry);
        if (r.failed)
            return -EPROTO;
        index_add(b, offset, entry.name);
        b->next_cookie = entry.cookie;
    }
    return wire_reader_done(&r) ? 0 : -EPROTO;
}

struct batch *batch_new(const struct gofer_readdir_reply *reply, uint64_t changes, int *ret_error)
{
    if (reply->count > reply->entries_size) { /* an entry is longer than a byte */
        *ret_error = -EPROTO;
        return NULL;
    }
    uint32_t slots = 16;
    while (slots < 2 * reply->count)
        slots *= 2;
    struct batch *b = malloc(sizeof(*b) + reply->entries_size);
    if (b) {
        *b = (struct batch){.changes = changes, .size = reply->entries_size, .count = reply->count,
                            .is_end = reply->is_end, .mask = slots - 1};
        atomic_init(&b->refs, 1);
        b->index = calloc(slots, sizeof(*b->index));
    }
    if (!b || !b->index) {
        free(b);
        *ret_error = -ENOMEM;
        return NULL;
    }
    if (b->size)
        memcpy(b->bytes, reply->entries, b->size);
    *ret_error = check_and_index(b);
    if (*ret_error) {
        batch_put(b);
        return NULL;
    }
    return b;
}

void batch_put(struct batch *b)
{
    if (!b || atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(b->index);
    free(b);
}

static size_t cost(const struct batch *b)
{
    return sizeof(*b) + b->size + (b->mask + 1) * sizeof(*b->index);
}

/* Out of the cache; its reference is the caller's. fs->lock held. */
static void remove_locked(struct gofer_fs *fs, struct batch *b)
{
    SLIST_REMOVE(&b->owner->batches, b, batch, of_dir);
    if (b->owner->recent == b)
        b->owner->recent = NULL;
    TAILQ_REMOVE(&fs->batches, b, fifo);
    fs->batch_bytes -= cost(b);
    b->owner = NULL;
}

void cache_add_batch(struct gofer_fs *fs, struct node *dir, struct batch *b)
{
    SLIST_HEAD(, batch) dropped = SLIST_HEAD_INITIALIZER(dropped);
    if (fs->shared || b->count == 0)
        return;
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
    b->made = vfs_now().sec;
    lock_acquire(&fs->lock);
    b->owner = dir;
    SLIST_INSERT_HEAD(&dir->batches, b, of_dir);
    TAILQ_INSERT_TAIL(&fs->batches, b, fifo);
    fs->batch_bytes += cost(b);
    for (;;) {
        struct batch *old = TAILQ_FIRST(&fs->batches);
        bool is_old = old->owner != dir && old->made + BATCH_SECONDS < b->made;
        if (!is_old && fs->batch_bytes <= BATCH_BYTES_MAX)
            break;
        remove_locked(fs, old);
        SLIST_INSERT_HEAD(&dropped, old, of_dir);
    }
    lock_release(&fs->lock);
    while ((b = SLIST_FIRST(&dropped))) {
        SLIST_REMOVE_HEAD(&dropped, of_dir);
        batch_put(b);
    }
}

void cache_drop_batches(struct gofer_fs *fs, struct node *dir)
{
    for (;;) {
        lock_acquire(&fs->lock);
        struct batch *b = SLIST_FIRST(&dir->batches);
        if (b)
            remove_locked(fs, b);
        lock_release(&fs->lock);
        if (!b)
            return;
        batch_put(b);
    }
}

void cache_drop_all(struct gofer_fs *fs)
{
    for (size_t i = 0; i < WALK_CACHE_SIZE; i++) {
        free(fs->walked[i].name);
        free(fs->walked[i].target);
        fs->walked[i] = (struct walked){0};
    }
}
