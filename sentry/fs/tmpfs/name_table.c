/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Directory entries in memory; see the header.
 */
#include "sentry/fs/tmpfs/name_table.h"

#include "sentry/vfs/vfs.h"
#include <stdlib.h>
#include <string.h>

#define BUCKETS_MIN 8

static int compare_cookies(const struct name_entry *a, const struct name_entry *b)
{
    return (a->cookie > b->cookie) - (a->cookie < b->cookie);
}

RB_GENERATE_INTERNAL(name_tree, name_entry, node, compare_cookies, static UNUSED)

static uint32_t hash_name(const char *name, size_t size)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        h = (h ^ (uint8_t)name[i]) * 16777619u;
    return h ^ h >> 15;
}

void name_table_init(struct name_table *t)
{
    *t = (struct name_table){.next_cookie = NAME_TABLE_FIRST_COOKIE};
    RB_INIT(&t->tree);
}

struct name_entry *name_table_find(struct name_table *t, const char *name)
{
    if (!t->buckets)
        return NULL;
    size_t size = strlen(name);
    uint32_t hash = hash_name(name, size);
    struct name_entry *e = t->buckets[hash & (t->bucket_count - 1)];
    while (e && (e->hash != hash || e->name_size != size || memcmp(e->name, name, size) != 0))
        e = e->hash_next;
    return e;
}

/* To `count` buckets, a power of two. False without memory. */
static bool resize(struct name_table *t, size_t count)
{
    struct name_entry **fresh = calloc(count, sizeof(struct name_entry *));
    if (!fresh)
        return false;
    struct name_entry *e;
    RB_FOREACH(e, name_tree, &t->tree)
    {
        struct name_entry **bucket = &fresh[e->hash & (count - 1)];
        e->hash_next = *bucket;
        *bucket = e;
    }
    free(t->buckets);
    t->buckets = fresh;
    t->bucket_count = count;
    return true;
}

struct name_entry *name_table_insert(struct name_table *t, const char *name, struct inode *inode)
{
    if (!t->buckets && !resize(t, BUCKETS_MIN))
        return NULL;
    if (t->count >= t->bucket_count)
        (void)resize(t, t->bucket_count * 2); /* without memory it only gets slower */
    size_t size = strlen(name);
    struct name_entry *e = malloc(sizeof(*e) + size + 1);
    if (!e)
        return NULL;
    *e = (struct name_entry){
        .cookie = t->next_cookie++, .inode = inode, .name_size = (uint16_t)size};
    memcpy(e->name, name, size + 1);
    e->hash = hash_name(name, size);
    if (inode)
        inode_get(inode);
    struct name_entry **bucket = &t->buckets[e->hash & (t->bucket_count - 1)];
    e->hash_next = *bucket;
    *bucket = e;
    RB_INSERT(name_tree, &t->tree, e);
    t->count++;
    return e;
}

static void unlink_entry(struct name_table *t, struct name_entry *e)
{
    struct name_entry **at = &t->buckets[e->hash & (t->bucket_count - 1)];
    while (*at != e)
        at = &(*at)->hash_next;
    *at = e->hash_next;
    RB_REMOVE(name_tree, &t->tree, e);
    t->count--;
}

void name_table_remove(struct name_table *t, struct name_entry *e)
{
    unlink_entry(t, e);
    inode_put(e->inode);
    free(e);
}

struct name_entry *name_table_next(struct name_table *t, uint64_t cookie)
{
    struct name_entry key = {.cookie = cookie};
    return RB_NFIND(name_tree, &t->tree, &key);
}

/* Moves all entries onto a list that is linked by hash_next. */
static void splice(struct name_table *t, struct name_entry **list)
{
    struct name_entry *e;
    while ((e = RB_MIN(name_tree, &t->tree))) {
        unlink_entry(t, e);
        e->hash_next = *list;
        *list = e;
    }
    free(t->buckets);
    t->buckets = NULL;
    t->bucket_count = 0;
}

size_t name_table_fini(struct name_table *t, struct name_table *(*table_of)(struct inode *inode))
{
    struct name_entry *list = NULL;
    size_t count = 0;
    splice(t, &list);
    while (list) {
        struct name_entry *e = list;
        list = e->hash_next;
        struct name_table *below = e->inode ? table_of(e->inode) : NULL;
        if (below && atomic_load_explicit(&e->inode->refs, memory_order_acquire) == 1)
            splice(below, &list);
        inode_put(e->inode);
        free(e);
        count++;
    }
    return count;
}
