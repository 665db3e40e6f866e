/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Path walk: from text to (mount, dentry). path_resolution(7), openat2(2), symlink(7).
 *
 * Theory of operation. The walk stands at (mount, dentry) in one of two ways. *Locked*:
 * g_dcache_lock is held and the place is borrowed; components that are cached cost a hash and a
 * comparison each, no reference. *Pinned*: `pin` refers to the place and the lock is free, because
 * a file system must be asked (lookup, revalidate, readlink, permission). It then goes on locked
 * from the pinned place.
 *
 * A symlink's text is walked where it lies: cached in its inode, which the stack of texts refers
 * to, or owned by the stack. Only unfinished texts are on the stack, so its depth is what the link
 * limit allows.
 */
#include "sentry/vfs/vfs_internal.h"

#define LOG_MODULE "vfs"
#include "base/log.h"
#include <errno.h>
#include <linux/mount.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum walk_goal {
    GOAL_PLACE,  /* the last component's dentry, positive */
    GOAL_PARENT, /* the directory of the last component, which is not looked up */
    GOAL_CHILD,  /* both; the last one may be negative */
};

/* What keeps a text alive: an inode's reference, or the text itself. Both or none may be NULL. */
struct text_hold {
    struct inode *inode;
    char *owned;
};

struct text {
    const char *rest;
    struct text_hold hold;
};

struct walk {
    const struct walk_context *ctx;
    enum walk_goal goal;
    uint32_t flags;
    struct path root; /* borrowed: ".." and absolute links stop here */
    struct mount *mount;
    struct dentry *d; /* borrowed: by the lock, by `pin` or by the caller */
    struct path pin;  /* ref */
    struct text now;  /* what is being walked */
    unsigned links;
    unsigned depth;
    bool must_be_dir; /* a slash followed the last component */
    bool on_top;      /* the walk ended on "/", "." or "..": there is no last name */
    uint32_t hash;    /* of the component in `name`, `size` */
    const char *name;
    size_t size;
    struct path dir; /* ref: GOAL_CHILD, the directory of the last name */
    char *ret_name;  /* GOAL_PARENT, GOAL_CHILD */
};

/* The stack lies beside the walk so that its size shows: 24 bytes each. */
struct text_stack {
    struct text at[VFS_SYMLINKS_MAX];
};
static_assert(sizeof(struct text_stack) <= 1024, "fits a fiber's stack");
/* Only entries below `depth` are read: no need to clear all of it at each walk. */
#if __has_attribute(uninitialized)
#define WRITTEN_BEFORE_READ __attribute__((uninitialized))
#else
#define WRITTEN_BEFORE_READ
#endif

static void hold_release(struct text_hold *hold)
{
    inode_put(hold->inode);
    free(hold->owned);
    *hold = (struct text_hold){0};
}

static const char *skip_slashes(const char *s)
{
    while (*s == '/')
        s++;
    return s;
}

/* Locked → pinned at the place where the walk stands. */
static void pin_and_unlock(struct walk *w) RELEASES(&g_dcache_lock)
{
    struct path fresh = {.mount = w->mount, .dentry = w->d};
    path_get(&fresh);
    lock_release(&g_dcache_lock);
    path_put(&w->pin);
    w->pin = fresh;
}

/* From a path that the caller gives away. */
static void stand_at(struct walk *w, struct path *place)
{
    path_put(&w->pin);
    w->pin = *place;
    *place = (struct path){0};
    w->mount = w->pin.mount;
    w->d = w->pin.dentry;
}

/* hot: may the walk pass through the directory where it stands? */
static int may_pass_locked(struct walk *w) REQUIRES(&g_dcache_lock)
{
    struct inode *dir = w->d->inode;
    if (!dir)
        return -ENOENT;
    if (!S_ISDIR(atomic_load_explicit(&dir->mode, memory_order_relaxed)))
        return -ENOTDIR;
    if (!mode_permits(w->ctx->creds, dir, MAY_EXEC))
        return -EACCES;
    if (unlikely(dir->ops->permission)) {
        pin_and_unlock(w);
        int r = dir->ops->permission(dir, w->ctx->creds, MAY_EXEC);
        lock_acquire(&g_dcache_lock);
        return r;
    }
    return 0;
}

static int step_down_mounts_locked(struct walk *w) REQUIRES(&g_dcache_lock)
{
    while (unlikely(w->d->is_mountpoint)) {
        struct mount *m = mount_find_locked(w->ctx->ns, w->mount, w->d);
        if (!m)
            return 0;
        if (w->flags & WALK_NO_XDEV)
            return -EXDEV;
        w->mount = m;
        w->d = m->root;
    }
    return 0;
}

static int step_up_locked(struct walk *w) REQUIRES(&g_dcache_lock)
{
    for (;;) {
        if (w->d == w->root.dentry && w->mount == w->root.mount)
            return w->flags & WALK_BENEATH ? -EXDEV : 0;
        if (w->d != w->mount->root)
            break;
        if (!w->mount->parent)
            return 0;
        if (w->flags & WALK_NO_XDEV)
            return -EXDEV;
        w->d = w->mount->mountpoint;
        w->mount = w->mount->parent;
    }
    w->d = w->d->parent;
    return step_down_mounts_locked(w);
}

int lookup_child_locked(struct dentry *dir, const char *name, struct dentry **ret)
{
    struct inode *inode = dentry_inode(dir);
    size_t size = strlen(name);
    struct dentry *child = dcache_lookup(dir, name, size);
    if (child && inode->sb->revalidate && !child->is_mountpoint) {
        struct inode *old = dentry_inode(child);
        int valid = inode->ops->revalidate ? inode->ops->revalidate(inode, name, old) : 0;
        if (valid <= 0) {
            dcache_drop(child);
            dentry_put(child);
            child = NULL;
            if (valid < 0)
                return valid;
        }
    }
    if (!child) {
        if (!inode->ops->lookup)
            return -ENOTDIR;
        struct inode *found = NULL;
        int r = inode->ops->lookup(inode, name, &found);
        if (r < 0)
            return r;
        child = dcache_add(dir, name, found);
        inode_put(found);
        if (!child)
            return -ENOMEM;
    }
    *ret = child;
    return 0;
}

/* The component is not cached, or must be revalidated. Called locked, leaves pinned with the child
 * at *ret (a reference) and the lock held again. */
static int look_up_slowly(struct walk *w, struct dentry **ret) REQUIRES(&g_dcache_lock)
{
    char name[VFS_NAME_MAX + 1];
    memcpy(name, w->name, w->size);
    name[w->size] = '\0';
    pin_and_unlock(w);
    struct dentry *dir = w->d;
    struct inode *inode = dentry_inode(dir);
    const char *rest = skip_slashes(w->name + w->size);
    fmutex_lock(&inode->lock);
    if (*rest && inode->ops->lookup_ahead)
        inode->ops->lookup_ahead(inode, dir, w->name);
    int r = lookup_child_locked(dir, name, ret);
    fmutex_unlock(&inode->lock);
    lock_acquire(&g_dcache_lock);
    return r;
}

/* A text begins: relative to where the walk stands, or from the root. */
static int begin_text_locked(struct walk *w) REQUIRES(&g_dcache_lock)
{
    if (*w->now.rest != '/')
        return 0;
    w->now.rest = skip_slashes(w->now.rest);
    if (w->flags & WALK_BENEATH)
        return -EXDEV;
    if ((w->flags & WALK_NO_XDEV) && w->mount != w->root.mount)
        return -EXDEV;
    w->mount = w->root.mount;
    w->d = w->root.dentry;
    return step_down_mounts_locked(w);
}

/* The text of a symlink, with what keeps it alive. Pinned, unlocked. */
static int read_link(struct inode *link, struct text *ret)
{
    char *cached = atomic_load_explicit(&link->link_target, memory_order_acquire);
    if (!cached) {
        if (!link->ops->readlink)
            return -EINVAL;
        char *target;
        int r = link->ops->readlink(link, &target);
        if (r < 0)
            return r;
        if (link->sb->revalidate) {
            *ret = (struct text){.rest = target, .hold.owned = target};
            return 0;
        }
        if (atomic_compare_exchange_strong_explicit(&link->link_target, &cached, target,
                                                    memory_order_acq_rel, memory_order_acquire))
            cached = target;
        else
            free(target);
    }
    inode_get(link);
    *ret = (struct text){.rest = cached, .hold.inode = link};
    return 0;
}

/* Goes on with a symlink's text; what is left of the present one waits on the stack. `link` is
 * pinned by its dentry in the cache or by the caller. Called locked. */
static int enter_link(struct walk *w, struct text_stack *stack, struct dentry *child)
    REQUIRES(&g_dcache_lock)
{
    struct inode *link = child->inode;
    if (w->flags & WALK_NO_SYMLINKS)
        return -ELOOP;
    if (++w->links > VFS_SYMLINKS_MAX)
        return -ELOOP;
    if (w->mount->flags & MS_NOSYMFOLLOW)
        return -ELOOP;

    struct text target;
    char *cached = atomic_load_explicit(&link->link_target, memory_order_acquire);
    if (likely(cached != NULL)) {
        inode_get(link);
        target = (struct text){.rest = cached, .hold.inode = link};
    } else {
        struct path jump = {0};
        inode_get(link);
        pin_and_unlock(w);
        int r;
        if (link->ops->follow)
            r = w->flags & (WALK_NO_MAGICLINKS | WALK_BENEATH | WALK_IN_ROOT)
                    ? -ELOOP
                    : link->ops->follow(link, &jump);
        else
            r = read_link(link, &target);
        inode_put(link);
        if (r == 0 && link->ops->follow) {
            if ((w->flags & WALK_NO_XDEV) && jump.mount != w->mount) {
                path_put(&jump);
                r = -EXDEV;
            } else {
                stand_at(w, &jump);
            }
        }
        lock_acquire(&g_dcache_lock);
        if (r < 0)
            return r;
        if (link->ops->follow)
            return 0;
    }
    if (!*target.rest) {
        lock_release(&g_dcache_lock);
        hold_release(&target.hold);
        lock_acquire(&g_dcache_lock);
        return -ENOENT;
    }
    if (*w->now.rest) {
        stack->at[w->depth++] = w->now;
        w->now = target;
    } else {
        struct text_hold done = w->now.hold;
        w->now = target;
        if (done.inode || done.owned) {
            pin_and_unlock(w);
            hold_release(&done);
            lock_acquire(&g_dcache_lock);
        }
    }
    return begin_text_locked(w);
}

/* Cuts the next component off the text. */
static int next_component(struct walk *w)
{
    const char *s = w->now.rest;
    const char *end = s;
    while (*end && *end != '/')
        end++;
    w->name = s;
    w->size = (size_t)(end - s);
    if (w->size > VFS_NAME_MAX)
        return -ENAMETOOLONG;
    w->hash = dcache_hash(s, w->size);
    w->now.rest = skip_slashes(end);
    if (!*w->now.rest && !w->depth && *end == '/')
        w->must_be_dir = true;
    return 0;
}

static bool is_dot(const struct walk *w)
{
    return w->size == 1 && w->name[0] == '.';
}

static bool is_dotdot(const struct walk *w)
{
    return w->size == 2 && w->name[0] == '.' && w->name[1] == '.';
}

static void keep_name(struct walk *w)
{
    memcpy(w->ret_name, w->name, w->size);
    w->ret_name[w->size] = '\0';
}

/* The child of the component, locked: borrowed, or held by *ret_held. */
static int find_child(struct walk *w, struct dentry **ret_child, struct dentry **ret_held)
    REQUIRES(&g_dcache_lock)
{
    struct inode *dir = w->d->inode;
    *ret_held = NULL;
    struct dentry *child = dcache_find_locked(w->d, w->name, w->size, w->hash);
    if (unlikely(!child || (dir->sb->revalidate && !child->is_mountpoint))) {
        int r = look_up_slowly(w, ret_held);
        if (r < 0)
            return r;
        child = *ret_held;
    }
    *ret_child = child;
    return 0;
}

/* The walk now stands at `child`. A held one becomes the pin. */
static void step_to(struct walk *w, struct dentry *child, struct dentry *held)
    REQUIRES(&g_dcache_lock)
{
    w->d = child;
    if (held) {
        pin_and_unlock(w);
        dentry_put(held);
        lock_acquire(&g_dcache_lock);
    }
}

static int step_into(struct walk *w, struct text_stack *stack, bool is_last)
    REQUIRES(&g_dcache_lock)
{
    struct dentry *child;
    struct dentry *held;
    int r = find_child(w, &child, &held);
    if (r < 0)
        return r;
    bool is_link =
        child->inode && S_ISLNK(atomic_load_explicit(&child->inode->mode, memory_order_relaxed));
    if (is_link && (!is_last || (w->flags & WALK_FOLLOW) || w->must_be_dir)) {
        r = enter_link(w, stack, child);
        if (held) {
            pin_and_unlock(w);
            dentry_put(held); /* the text's hold keeps the link's inode */
            lock_acquire(&g_dcache_lock);
        }
        return r;
    }
    if (is_last && w->goal == GOAL_CHILD) {
        keep_name(w);
        w->dir = (struct path){.mount = w->mount, .dentry = w->d};
        path_get(&w->dir);
    }
    bool is_missing = !child->inode;
    step_to(w, child, held);
    if (is_missing)
        return is_last && w->goal == GOAL_CHILD ? 0 : -ENOENT;
    return step_down_mounts_locked(w);
}

/* Walks all texts to their end. Locked on return. */
static int walk_all(struct walk *w, struct text_stack *stack) REQUIRES(&g_dcache_lock)
{
    int r = begin_text_locked(w);
    w->on_top = true;
    while (r == 0) {
        if (!*w->now.rest) {
            if (!w->depth)
                break;
            struct text_hold done = w->now.hold;
            w->now = stack->at[--w->depth];
            if (done.inode || done.owned) {
                pin_and_unlock(w);
                hold_release(&done);
                lock_acquire(&g_dcache_lock);
            }
            continue;
        }
        r = next_component(w);
        if (r < 0)
            break;
        r = may_pass_locked(w);
        if (r < 0)
            break;
        bool is_last = !*w->now.rest && !w->depth;
        w->on_top = is_dot(w) || is_dotdot(w);
        if (w->on_top) {
            if (is_last && w->goal == GOAL_PARENT) {
                keep_name(w);
                break;
            }
            if (is_dotdot(w))
                r = step_up_locked(w);
            continue;
        }
        if (is_last && w->goal == GOAL_PARENT) {
            keep_name(w);
            break;
        }
        r = step_into(w, stack, is_last);
    }
    return r;
}

static int check_end(const struct walk *w)
{
    const struct inode *inode = w->d->inode;
    if (w->goal == GOAL_PARENT)
        return !inode                                                              ? -ENOENT
               : S_ISDIR(atomic_load_explicit(&inode->mode, memory_order_relaxed)) ? 0
                                                                                   : -ENOTDIR;
    if (!inode)
        return w->goal == GOAL_CHILD ? 0 : -ENOENT;
    if ((w->must_be_dir || (w->flags & WALK_DIRECTORY)) &&
        !S_ISDIR(atomic_load_explicit(&inode->mode, memory_order_relaxed)))
        return -ENOTDIR;
    return 0;
}

static int run(struct walk *w, const struct path *base, const char *path, struct path *ret)
{
    struct text_stack stack WRITTEN_BEFORE_READ;
    const struct walk_context *ctx = w->ctx;
    w->root = w->flags & (WALK_BENEATH | WALK_IN_ROOT) ? *base : ctx->root;
    w->mount = base->mount;
    w->d = base->dentry;
    w->now = (struct text){.rest = path};
    if (!*path && !(w->flags & WALK_EMPTY))
        return -ENOENT;

    lock_acquire(&g_dcache_lock);
    int r = walk_all(w, &stack);
    if (r == 0)
        r = check_end(w);
    if (r == 0) {
        *ret = (struct path){.mount = w->mount, .dentry = w->d};
        path_get(ret);
    }
    lock_release(&g_dcache_lock);
    hold_release(&w->now.hold);
    while (w->depth)
        hold_release(&stack.at[--w->depth].hold);
    path_put(&w->pin);
    if (r < 0)
        path_put(&w->dir);
    return r;
}

int vfs_walk(const struct walk_context *ctx, const struct path *base, const char *path,
             uint32_t flags, struct path *ret)
{
    struct walk w = {.ctx = ctx, .goal = GOAL_PLACE, .flags = flags};
    return run(&w, base, path, ret);
}

int vfs_walk_parent(const struct walk_context *ctx, const struct path *base, const char *path,
                    uint32_t flags, struct path *ret_dir, char *ret_name, bool *ret_trailing_slash,
                    bool *ret_is_special)
{
    struct walk w = {.ctx = ctx, .goal = GOAL_PARENT, .flags = flags, .ret_name = ret_name};
    ret_name[0] = '\0';
    int r = run(&w, base, path, ret_dir);
    if (r < 0)
        return r;
    *ret_trailing_slash = w.must_be_dir;
    *ret_is_special = w.on_top;
    return 0;
}

int walk_to_child(const struct walk_context *ctx, const struct path *base, const char *path,
                  uint32_t flags, struct walk_result *ret)
{
    struct walk w = {.ctx = ctx, .goal = GOAL_CHILD, .flags = flags, .ret_name = ret->name};
    ret->name[0] = '\0';
    int r = run(&w, base, path, &ret->child);
    if (r < 0)
        return r;
    ret->dir = w.dir;
    ret->trailing_slash = w.must_be_dir;
    return 0;
}

void walk_result_fini(struct walk_result *r)
{
    path_put(&r->child);
    path_put(&r->dir);
}
