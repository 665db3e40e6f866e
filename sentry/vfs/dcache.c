/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The dentry cache: one hash table over (parent, name), negative entries included, bounded.
 *
 * Theory of operation. A dentry is hashed or not. A hashed one holds a reference of the cache's
 * own, so its count is at least one; a reference beyond that is taken under g_dcache_lock, or by
 * somebody who has one. So under the lock a count of one means that nobody else can see it, and it
 * may be forgotten. Unhashed dentries live by their users alone. A child refers to its parent.
 * Eviction is second chance over the order of insertion: a walk only sets is_recent.
 *
 * Nothing that sleeps happens under the lock: what is to be freed is collected first.
 */
#include "sentry/vfs/vfs_internal.h"

#define LOG_MODULE "vfs"
#include "base/log.h"
#include <stdlib.h>
#include <string.h>

#define BUCKETS       16384u
#define LIMIT_DEFAULT 32768u
#define SCAN_MAX      64 /* of one insertion, so that it stays short */

LIST_HEAD(dentry_list, dentry);
TAILQ_HEAD(dentry_queue, dentry);

struct lock g_dcache_lock = LOCK_INITIALIZER;
static struct dentry_list g_buckets[BUCKETS];                     /* g_dcache_lock */
static struct dentry_queue g_lru = TAILQ_HEAD_INITIALIZER(g_lru); /* g_dcache_lock */
static size_t g_count;                                            /* g_dcache_lock */
static size_t g_limit = LIMIT_DEFAULT;                            /* g_dcache_lock */

/* hot */
uint32_t dcache_hash(const char *name, size_t size)
{
    uint64_t h = size;
    uint64_t word;
    for (; size >= 8; size -= 8, name += 8) {
        memcpy(&word, name, 8);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 29;
    }
    word = 0;
    for (size_t i = 0; i < size; i++)
        word = word << 8 | (uint8_t)name[i];
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32);
}

static struct dentry_list *bucket_of(const struct dentry *parent, uint32_t hash)
{
    uint64_t mix = ((uint64_t)(uintptr_t)parent >> 5) * UINT64_C(0x9e3779b97f4a7c15);
    return &g_buckets[(hash ^ (uint32_t)(mix >> 40)) % BUCKETS];
}

static struct dentry *alloc_dentry(const char *name, size_t size, struct inode *inode)
{
    size_t capacity = size + 1;
    struct dentry *d = malloc(sizeof(*d) + capacity);
    if (!d)
        return NULL;
    memset(d, 0, sizeof(*d));
    atomic_init(&d->refs, 1);
    d->parent = d;
    d->inode = inode;
    if (inode)
        inode_get(inode);
    d->unhashed = true;
    LIST_INIT(&d->children);
    d->name_size = (uint16_t)size;
    d->name_capacity = (uint16_t)capacity;
    memcpy(d->inline_name, name, size);
    d->inline_name[size] = '\0';
    d->name = d->inline_name;
    return d;
}

struct dentry *dentry_new_detached(const char *name, size_t size, struct inode *inode)
{
    return alloc_dentry(name, size, inode);
}

struct dentry *dentry_new_root(struct inode *inode)
{
    struct dentry *d = alloc_dentry("/", 1, inode);
    if (d)
        d->unhashed = false; /* never "(deleted)"; in no chain either */
    return d;
}

void dentry_get(struct dentry *d)
{
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
}

static void free_name(struct dentry *d)
{
    if (d->name != d->inline_name)
        free((char *)(uintptr_t)d->name);
}

/* The last reference went: nobody else can see it. Returns the parent whose reference it held, or
 * NULL. */
static struct dentry *free_dentry(struct dentry *d)
{
    struct dentry *parent = d->parent == d ? NULL : d->parent;
    if (parent) {
        lock_acquire(&g_dcache_lock);
        LIST_REMOVE(d, sibling);
        lock_release(&g_dcache_lock);
    }
    inode_put(d->inode);
    free_name(d);
    free(d);
    return parent;
}

void dentry_put(struct dentry *d)
{
    while (d && atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) == 1)
        d = free_dentry(d);
}

/* hot */
struct dentry *dcache_find_locked(struct dentry *parent, const char *name, size_t size,
                                  uint32_t hash)
{
    struct dentry *d;
    LIST_FOREACH(d, bucket_of(parent, hash), hash_entry)
    {
        if (d->hash == hash && d->parent == parent && d->name_size == size &&
            memcmp(d->name, name, size) == 0) {
            if (!d->is_recent)
                d->is_recent = true;
            return d;
        }
    }
    return NULL;
}

struct dentry *dcache_lookup(struct dentry *parent, const char *name, size_t size)
{
    uint32_t hash = dcache_hash(name, size);
    lock_acquire(&g_dcache_lock);
    struct dentry *d = dcache_find_locked(parent, name, size, hash);
    if (d)
        dentry_get(d);
    lock_release(&g_dcache_lock);
    return d;
}

static void hash_locked(struct dentry *d) REQUIRES(&g_dcache_lock)
{
    dentry_get(d);
    d->unhashed = false;
    LIST_INSERT_HEAD(bucket_of(d->parent, d->hash), d, hash_entry);
    TAILQ_INSERT_TAIL(&g_lru, d, lru);
    g_count++;
}

/* Takes it out of the cache; the caller owns the cache's reference now. False if it was out
 * already. */
static bool unhash_locked(struct dentry *d) REQUIRES(&g_dcache_lock)
{
    if (d->unhashed || d->parent == d)
        return false;
    d->unhashed = true;
    LIST_REMOVE(d, hash_entry);
    TAILQ_REMOVE(&g_lru, d, lru);
    g_count--;
    return true;
}

/* Forgets some of what nobody holds, onto `out`. */
static void shrink_locked(struct dentry_queue *out) REQUIRES(&g_dcache_lock)
{
    for (int scanned = 0; g_count > g_limit && scanned < SCAN_MAX; scanned++) {
        struct dentry *d = TAILQ_FIRST(&g_lru);
        if (!d)
            return;
        if (d->is_recent || atomic_load_explicit(&d->refs, memory_order_acquire) > 1) {
            d->is_recent = false;
            TAILQ_REMOVE(&g_lru, d, lru);
            TAILQ_INSERT_TAIL(&g_lru, d, lru);
            continue;
        }
        (void)unhash_locked(d);
        TAILQ_INSERT_TAIL(out, d, lru);
    }
}

static void put_all(struct dentry_queue *queue)
{
    struct dentry *d;
    while ((d = TAILQ_FIRST(queue))) {
        TAILQ_REMOVE(queue, d, lru);
        dentry_put(d);
    }
}

struct dentry *dcache_add(struct dentry *parent, const char *name, struct inode *inode)
{
    size_t size = strlen(name);
    struct dentry *fresh = alloc_dentry(name, size, inode);
    if (!fresh)
        return NULL;
    fresh->hash = dcache_hash(name, size);

    struct dentry_queue drop = TAILQ_HEAD_INITIALIZER(drop);
    lock_acquire(&g_dcache_lock);
    struct dentry *old = dcache_find_locked(parent, name, size, fresh->hash);
    struct dentry *result = NULL;
    if (old && old->inode == inode) {
        result = old;
    } else if (old && !old->inode) {
        inode_get(inode);
        __atomic_store_n(&old->inode, inode, __ATOMIC_RELEASE);
        result = old;
    } else if (old && !old->inode->sb->revalidate) {
        result = old;
    } else if (old) {
        (void)unhash_locked(old);
        TAILQ_INSERT_TAIL(&drop, old, lru);
    }
    if (result) {
        dentry_get(result);
    } else {
        result = fresh;
        fresh = NULL;
        dentry_get(parent);
        result->parent = parent;
        LIST_INSERT_HEAD(&parent->children, result, sibling);
        hash_locked(result);
    }
    shrink_locked(&drop);
    lock_release(&g_dcache_lock);
    put_all(&drop);
    dentry_put(fresh);
    return result;
}

struct dentry *dcache_new_tmpfile(struct dentry *parent, struct inode *inode)
{
    char name[24] = "#";
    size_t size = 1;
    for (uint64_t n = inode->ino, div = UINT64_C(10000000000000000000); div; div /= 10) {
        if (size > 1 || n / div % 10 || div == 1)
            name[size++] = (char)('0' + n / div % 10);
    }
    struct dentry *d = alloc_dentry(name, size, inode);
    if (!d)
        return NULL;
    lock_acquire(&g_dcache_lock);
    dentry_get(parent);
    d->parent = parent;
    LIST_INSERT_HEAD(&parent->children, d, sibling);
    lock_release(&g_dcache_lock);
    return d;
}

void dcache_drop(struct dentry *d)
{
    lock_acquire(&g_dcache_lock);
    bool was_hashed = unhash_locked(d);
    lock_release(&g_dcache_lock);
    if (was_hashed)
        dentry_put(d);
}

/* Bounded by what is cached: one pass for each level that had something free. */
void dcache_drop_subtree(struct dentry *top)
{
    bool again = true;
    while (again) {
        struct dentry_queue drop = TAILQ_HEAD_INITIALIZER(drop);
        lock_acquire(&g_dcache_lock);
        struct dentry *next;
        for (struct dentry *d = TAILQ_FIRST(&g_lru); d; d = next) {
            next = TAILQ_NEXT(d, lru);
            if (atomic_load_explicit(&d->refs, memory_order_acquire) > 1)
                continue;
            struct dentry *up = d->parent;
            while (up != top && up->parent != up)
                up = up->parent;
            if (up != top)
                continue;
            (void)unhash_locked(d);
            TAILQ_INSERT_TAIL(&drop, d, lru);
        }
        lock_release(&g_dcache_lock);
        again = !TAILQ_EMPTY(&drop);
        put_all(&drop);
    }
}

bool dcache_is_ancestor(struct dentry *ancestor, struct dentry *d)
{
    lock_acquire(&g_dcache_lock);
    while (d != ancestor && d->parent != d)
        d = d->parent;
    lock_release(&g_dcache_lock);
    return d == ancestor;
}

/* Puts `d` in its new place; `long_name` is memory for a name that doesn't fit, and becomes d's.
 * Returns the parent whose reference is to be put. */
static struct dentry *move_locked(struct dentry *d, struct dentry *parent, const char *name,
                                  size_t size, char **long_name, char **old_name)
    REQUIRES(&g_dcache_lock)
{
    struct dentry *old_parent = d->parent;
    LIST_REMOVE(d, hash_entry);
    LIST_REMOVE(d, sibling);
    dentry_get(parent);
    d->parent = parent;
    if (d->name != d->inline_name)
        *old_name = (char *)(uintptr_t)d->name;
    char *to = d->inline_name;
    if (size >= d->name_capacity) {
        to = *long_name;
        *long_name = NULL;
    }
    memmove(to, name, size);
    to[size] = '\0';
    d->name = to;
    d->name_size = (uint16_t)size;
    d->hash = dcache_hash(name, size);
    LIST_INSERT_HEAD(&parent->children, d, sibling);
    LIST_INSERT_HEAD(bucket_of(parent, d->hash), d, hash_entry);
    return old_parent;
}

void dcache_move(struct dentry *d, struct dentry *new_parent, const char *new_name,
                 struct dentry *other)
{
    size_t size = strlen(new_name);
    char *spare[2] = {malloc(size + 1), malloc(VFS_NAME_MAX + 1)};
    char *old_names[2] = {NULL, NULL};
    struct dentry *parents[2] = {NULL, NULL};
    struct dentry *drop[2] = {NULL, NULL};
    uint32_t new_hash = dcache_hash(new_name, size);

    lock_acquire(&g_dcache_lock);
    if (!spare[0] || !spare[1] || d->unhashed || (other && other->unhashed)) {
        if (unhash_locked(d))
            drop[0] = d;
        struct dentry *at = dcache_find_locked(new_parent, new_name, size, new_hash);
        if (at && at != d && unhash_locked(at))
            drop[1] = at;
    } else if (other) {
        struct dentry *old_parent = d->parent;
        char name[VFS_NAME_MAX + 1];
        size_t old_size = d->name_size;
        memcpy(name, d->name, old_size + 1);
        parents[0] = move_locked(d, new_parent, new_name, size, &spare[0], &old_names[0]);
        parents[1] = move_locked(other, old_parent, name, old_size, &spare[1], &old_names[1]);
    } else {
        struct dentry *at = dcache_find_locked(new_parent, new_name, size, new_hash);
        if (at && at != d && unhash_locked(at))
            drop[1] = at;
        parents[0] = move_locked(d, new_parent, new_name, size, &spare[0], &old_names[0]);
    }
    lock_release(&g_dcache_lock);
    for (int i = 0; i < 2; i++) {
        free(spare[i]);
        free(old_names[i]);
        dentry_put(drop[i]);
        dentry_put(parents[i]);
    }
}

void dcache_set_limit(size_t limit)
{
    lock_acquire(&g_dcache_lock);
    g_limit = limit ? limit : LIMIT_DEFAULT;
    lock_release(&g_dcache_lock);
}

size_t dcache_count(void)
{
    lock_acquire(&g_dcache_lock);
    size_t count = g_count;
    lock_release(&g_dcache_lock);
    return count;
}
