/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Mounts, mount namespaces, paths as pairs of both, and paths as text. mount(2), umount2(2).
 *
 * A namespace's list changes under both g_dcache_lock and the namespace's lock (in this order), so
 * a reader needs either.
 */
#include "sentry/vfs/vfs_internal.h"

#define LOG_MODULE "vfs"
#include "base/log.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

/* What a locked mount keeps. */
#define MOUNT_PROTECTIONS ((uint32_t)(MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC))

/* Takes over the reference to `d`. */
static struct mount *mount_on_dentry(struct superblock *sb, struct dentry *d, uint32_t flags,
                                     const char *source)
{
    static _Atomic int next_id = 20;
    struct mount *m = calloc(1, sizeof(*m));
    char *text = strdup(source);
    if (!m || !d || !text) {
        free(m);
        dentry_put(d);
        free(text);
        return NULL;
    }
    atomic_init(&m->refs, 1);
    m->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
    m->sb = sb;
    superblock_get(sb);
    m->root = d;
    m->flags = flags & ~MOUNT_BY_GUEST;
    m->is_locked = m->is_permanent = !(flags & MOUNT_BY_GUEST);
    m->source = text;
    return m;
}

static struct mount *mount_new(struct superblock *sb, struct inode *root, uint32_t flags,
                               const char *source)
{
    return mount_on_dentry(sb, dentry_new_root(root), flags, source);
}

void mount_put(struct mount *m)
{
    while (m && atomic_fetch_sub_explicit(&m->refs, 1, memory_order_acq_rel) == 1) {
        struct mount *parent = m->parent;
        dcache_drop_subtree(m->root);
        dentry_put(m->root);
        dentry_put(m->mountpoint);
        superblock_put(m->sb);
        free((char *)(uintptr_t)m->source);
        free(m);
        m = parent;
    }
}

void path_get(const struct path *p)
{
    if (p->mount)
        atomic_fetch_add_explicit(&p->mount->refs, 1, memory_order_relaxed);
    if (p->dentry)
        dentry_get(p->dentry);
}

void path_put(struct path *p)
{
    dentry_put(p->dentry);
    mount_put(p->mount);
    *p = (struct path){0};
}

struct mount_namespace *mount_namespace_new(struct superblock *root_sb, struct inode *root_inode,
                                            uint32_t flags, const char *source)
{
    struct mount_namespace *ns = calloc(1, sizeof(*ns));
    struct mount *m = mount_new(root_sb, root_inode, flags, source);
    if (!ns || !m) {
        free(ns);
        mount_put(m);
        return NULL;
    }
    lock_init(&ns->lock);
    TAILQ_INIT(&ns->mounts);
    TAILQ_INSERT_TAIL(&ns->mounts, m, entry);
    ns->root = m;
    atomic_init(&ns->refs, 1);
    return ns;
}

struct mount *mount_anon(void)
{
    static struct lock init_lock = LOCK_INITIALIZER;
    static _Atomic(struct mount *) anon;
    struct mount *m = atomic_load_explicit(&anon, memory_order_acquire);
    if (m)
        return m;
    lock_acquire(&init_lock);
    m = atomic_load_explicit(&anon, memory_order_relaxed);
    if (!m) {
        m = mount_new(vfs_anon_superblock(), NULL, 0, "anon_inodefs");
        atomic_store_explicit(&anon, m, memory_order_release);
    }
    lock_release(&init_lock);
    return m;
}

struct mount *mount_find_locked(const struct mount_namespace *ns, const struct mount *parent,
                                const struct dentry *d)
{
    struct mount *m;
    /* The newest one lies on top of older ones at the same place only if it was mounted on their
     * root, so there is one at most. */
    TAILQ_FOREACH(m, &ns->mounts, entry)
    {
        if (m->mountpoint == d && m->parent == parent)
            return m;
    }
    return NULL;
}

/* Takes over the reference to `m`, which may be NULL. */
static int attach(struct mount_namespace *ns, const struct path *at, struct mount *m)
{
    if (!m)
        return -ENOMEM;
    struct path where = *at;
    path_get(&where);
    int r = 0;
    lock_acquire(&g_dcache_lock);
    lock_acquire(&ns->lock);
    if (where.dentry->unhashed) {
        r = -ENOENT;
    } else if (ns->count >= MOUNTS_MAX) {
        r = -ENOSPC;
    } else if (where.dentry->is_mountpoint && mount_find_locked(ns, where.mount, where.dentry)) {
        r = -EBUSY;
    } else {
        m->parent = where.mount;
        m->mountpoint = where.dentry;
        where.dentry->is_mountpoint = true;
        ns->count++;
        TAILQ_INSERT_TAIL(&ns->mounts, m, entry);
    }
    lock_release(&ns->lock);
    lock_release(&g_dcache_lock);
    if (r < 0) {
        path_put(&where);
        mount_put(m);
    }
    return r;
}

int vfs_mount(struct mount_namespace *ns, const struct path *at, struct superblock *sb,
              struct inode *root, uint32_t flags, const char *source)
{
    return attach(ns, at, mount_new(sb, root, flags, source));
}

int vfs_bind(struct mount_namespace *ns, const struct path *at, const struct path *from)
{
    dentry_get(from->dentry);
    struct mount *m = mount_on_dentry(from->mount->sb, from->dentry,
                                      from->mount->flags | MOUNT_BY_GUEST, from->mount->source);
    if (m)
        m->is_locked = from->mount->is_locked;
    return attach(ns, at, m);
}

int vfs_remount(struct mount_namespace *ns, const struct path *at, uint32_t flags)
{
    if (at->dentry != at->mount->root)
        return -EINVAL;
    int r = 0;
    lock_acquire(&ns->lock);
    if (at->mount->is_locked && (at->mount->flags & MOUNT_PROTECTIONS & ~flags))
        r = -EPERM;
    else
        at->mount->flags = flags;
    lock_release(&ns->lock);
    return r;
}

/* The next mount after `id` in the list's order, a reference. */
static struct mount *next_mount(struct mount_namespace *ns, int id)
{
    struct mount *best = NULL;
    struct mount *m;
    lock_acquire(&ns->lock);
    TAILQ_FOREACH(m, &ns->mounts, entry)
    {
        if (m->id > id && (!best || m->id < best->id))
            best = m;
    }
    if (best)
        atomic_fetch_add_explicit(&best->refs, 1, memory_order_relaxed);
    lock_release(&ns->lock);
    return best;
}

int vfs_sync(struct mount_namespace *ns)
{
    int id = -1;
    struct mount *m;
    while ((m = next_mount(ns, id))) {
        id = m->id;
        if (m->sb->ops->sync)
            (void)m->sb->ops->sync(m->sb); /* sync(2) reports nothing */
        mount_put(m);
    }
    return 0;
}
static bool has_children(const struct mount_namespace *ns, const struct mount *m)
{
    const struct mount *child;
    TAILQ_FOREACH(child, &ns->mounts, entry)
    {
        if (child->parent == m)
            return true;
    }
    return false;
}

static bool is_mountpoint_elsewhere(const struct mount_namespace *ns, const struct dentry *d)
{
    const struct mount *m;
    TAILQ_FOREACH(m, &ns->mounts, entry)
    {
        if (m->mountpoint == d)
            return true;
    }
    return false;
}

/* References of a mount nobody uses: the namespace's and the caller's path. */
#define IDLE_REFS 2

int vfs_umount(struct mount_namespace *ns, const struct path *at, int flags)
{
    struct mount *m = at->mount;
    if (at->dentry != m->root)
        return -EINVAL;
    if (!m->parent)
        return flags & MNT_DETACH ? -EINVAL : -EBUSY;
    if (m->is_permanent)
        return -EINVAL;
    int r = 0;
    lock_acquire(&g_dcache_lock);
    lock_acquire(&ns->lock);
    if (has_children(ns, m)) {
        r = -EBUSY;
    } else if (!(flags & MNT_DETACH) &&
               atomic_load_explicit(&m->refs, memory_order_acquire) > IDLE_REFS) {
        r = -EBUSY;
    } else {
        TAILQ_REMOVE(&ns->mounts, m, entry);
        ns->count--;
        m->mountpoint->is_mountpoint = is_mountpoint_elsewhere(ns, m->mountpoint);
    }
    lock_release(&ns->lock);
    lock_release(&g_dcache_lock);
    if (r == 0)
        mount_put(m);
    return r;
}

/* ---- as text ------------------------------------------------------------------------------------
 */

struct text {
    char *buffer;
    size_t start; /* grows downwards */
};

static bool text_prepend(struct text *t, const char *bytes, size_t size)
{
    if (t->start < size)
        return false;
    t->start -= size;
    memcpy(t->buffer + t->start, bytes, size);
    return true;
}

/* True when everything fitted. */
static bool prepend_path_locked(struct text *t, const struct path *path, const struct path *root)
    REQUIRES(&g_dcache_lock)
{
    const struct mount *m = path->mount;
    const struct dentry *d = path->dentry;
    if (m == mount_anon())
        return text_prepend(t, d->name, d->name_size);
    if (d->unhashed && d->parent != d && !text_prepend(t, " (deleted)", 10))
        return false;
    bool is_empty = true;
    for (;;) {
        if (root && d == root->dentry && m == root->mount)
            break;
        if (m && d == m->root && m->parent) {
            d = m->mountpoint;
            m = m->parent;
            continue;
        }
        if (d->parent == d) {
            if (root &&
                !text_prepend(t, is_empty ? "(unreachable)/" : "(unreachable)", is_empty ? 14 : 13))
                return false;
            if (root)
                return true;
            break;
        }
        if (!text_prepend(t, d->name, d->name_size) || !text_prepend(t, "/", 1))
            return false;
        is_empty = false;
        d = d->parent;
    }
    return is_empty ? text_prepend(t, "/", 1) : true;
}

int vfs_path_text(const struct path *path, const struct path *root, char **ret)
{
    if (!path->dentry)
        return -ENOENT;
    (void)mount_anon(); /* made before the lock */
    char *buffer = malloc(VFS_PATH_MAX);
    if (!buffer)
        return -ENOMEM;
    struct text t = {.buffer = buffer, .start = VFS_PATH_MAX - 1};
    buffer[VFS_PATH_MAX - 1] = '\0';
    lock_acquire(&g_dcache_lock);
    bool fits = prepend_path_locked(&t, path, root);
    lock_release(&g_dcache_lock);
    if (!fits) {
        free(buffer);
        return -ENAMETOOLONG;
    }
    memmove(buffer, buffer + t.start, VFS_PATH_MAX - t.start);
    *ret = buffer;
    return 0;
}
