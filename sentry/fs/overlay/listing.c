/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The names of a lower directory, read once and kept while the overlay directory is open, so that a
 * name's place in it is a position that readdir can come back to. Charged to the sandbox's memory.
 */
#include "sentry/fs/overlay/overlay_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX (UINT32_MAX / 2)

struct reading {
    struct dir_context ctx;
    struct lower_listing *listing;
    size_t taken; /* in this round */
    int error;
};

/* Twice as large as before; false without memory. */
static bool grow(struct lower_listing *l, void **array, size_t *capacity, size_t item, size_t need)
{
    size_t fresh = *capacity ? *capacity : 64;
    while (fresh < need)
        fresh *= 2;
    uint64_t more = (fresh - *capacity) * item;
    if (!tmpfs_charge(more))
        return false;
    void *bigger = realloc(*array, fresh * item);
    if (!bigger) {
        tmpfs_uncharge(more);
        return false;
    }
    l->charged += more;
    *array = bigger;
    *capacity = fresh;
    return true;
}

static bool add_name(struct lower_listing *l, const char *name, size_t size, uint64_t ino,
                     uint8_t type)
{
    void *entries = l->entries;
    void *names = l->names;
    bool fits = l->names_size + size + 1 < NAMES_MAX;
    if (fits && l->count == l->capacity)
        fits = grow(l, &entries, &l->capacity, sizeof(*l->entries), l->count + 1);
    l->entries = entries;
    if (fits && l->names_size + size + 1 > l->names_capacity)
        fits = grow(l, &names, &l->names_capacity, 1, l->names_size + size + 1);
    l->names = names;
    if (!fits)
        return false;
    l->entries[l->count++] = (struct lower_name){
        .ino = ino, .name_at = (uint32_t)l->names_size, .name_size = (uint16_t)size, .type = type};
    memcpy(l->names + l->names_size, name, size);
    l->names[l->names_size + size] = '\0';
    l->names_size += size + 1;
    return true;
}

static bool take(struct dir_context *ctx, const char *name, size_t size, uint64_t ino, uint8_t type,
                 int64_t next_pos)
{
    struct reading *r = container_of(ctx, struct reading, ctx);
    bool is_dots = (size == 1 && name[0] == '.') || (size == 2 && name[0] == '.' && name[1] == '.');
    if (!is_dots && size <= VFS_NAME_MAX && !add_name(r->listing, name, size, ino, type)) {
        r->error = -ENOMEM;
        return false;
    }
    (void)next_pos;
    r->taken++;
    return true;
}

static int read_all(struct inode *lower, struct lower_listing *l)
{
    struct creds *creds = creds_new(0, 0, NULL, 0);
    if (!creds)
        return -ENOMEM;
    AUTO_FILE f = NULL;
    int r = file_open_inode(lower, creds, O_RDONLY | O_DIRECTORY, &f);
    creds_put(creds);
    if (r < 0)
        return r;
    struct reading reading = {.ctx.emit = take, .listing = l};
    do {
        reading.taken = 0;
        r = vfs_iterate(f, &reading.ctx);
    } while (r == 0 && !reading.error && reading.taken);
    return reading.error ? reading.error : r;
}

int overlay_listing_get(struct inode *dir, struct lower_listing **ret)
{
    struct overlay_node *node = overlay_node(dir);
    if (!node->listing) {
        struct lower_listing *l = calloc(1, sizeof(*l));
        if (!l)
            return -ENOMEM;
        int r = node->lower ? read_all(node->lower, l) : 0;
        if (r < 0) {
            overlay_listing_free(l);
            return r;
        }
        node->listing = l;
    }
    *ret = node->listing;
    return 0;
}

void overlay_listing_free(struct lower_listing *l)
{
    if (!l)
        return;
    tmpfs_uncharge(l->charged);
    free(l->entries);
    free(l->names);
    free(l);
}
