/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From a handle and a path to an object beneath an attach point. The gofer's only thread. Names come from
 * the sentry (valid components by then), and the host's tree may be changed by others at any moment, so
 * whatever is opened is looked at again by its descriptor.
 */
#include "gofer/server_private.h"

#include "base/host.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

/* #syscalls openat2: every object beneath an attach point
 * #syscalls statx: attributes */

#define OVERFLOW_ID 65534u /* what the host shows for an owner outside of our user namespace */

int open_beneath(int dir_hfd, const char *path, uint64_t flags, uint64_t mode, uint64_t extra)
{
    /* SAFETY: this is what keeps the gofer inside (invariant I4). BENEATH refuses absolute paths and
     * "..", NO_SYMLINKS any link on the way (a last one is opened itself with O_PATH | O_NOFOLLOW). */
    struct open_how how = {
        .flags = flags | O_NOFOLLOW | O_CLOEXEC | (flags & O_PATH ? 0 : O_NONBLOCK | O_NOCTTY),
        .mode = mode,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_SYMLINKS | extra};
    return (int)host_call4(SYS_openat2, dir_hfd, path, &how, sizeof(how));
}

int statx_at(int dir_hfd, const char *name, struct statx *ret)
{
    int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH);
    return (int)host_call5(SYS_statx, dir_hfd, name, flags,
                           STATX_BASIC_STATS | STATX_BTIME | STATX_MNT_ID, ret);
}

static uint32_t dev_index(struct attach *a, uint64_t dev)
{
    for (size_t i = 0; i < a->dev_count; i++) {
        if (a->devs[i] == dev)
            return (uint32_t)i;
    }
    if (a->dev_count == ATTACH_DEVS_MAX) /* more file systems than that: the rest shares a number */
        return ATTACH_DEVS_MAX - 1;
    a->devs[a->dev_count] = dev;
    return (uint32_t)a->dev_count++;
}

static uint64_t statx_dev(const struct statx *stx)
{
    return makedev(stx->stx_dev_major, stx->stx_dev_minor);
}

void stat_from_statx(struct attach *a, const struct statx *stx, struct gofer_stat *ret)
{
    *ret = (struct gofer_stat){
        .mode = stx->stx_mode, .uid = stx->stx_uid, .gid = stx->stx_gid, .nlink = stx->stx_nlink,
        .ino = stx->stx_ino, .rdev = makedev(stx->stx_rdev_major, stx->stx_rdev_minor),
        .size = stx->stx_size, .blocks = stx->stx_blocks, .blksize = stx->stx_blksize,
        .dev_index = dev_index(a, statx_dev(stx)),
        .atime = (uint64_t)stx->stx_atime.tv_sec, .atime_nsec = stx->stx_atime.tv_nsec,
        .mtime = (uint64_t)stx->stx_mtime.tv_sec, .mtime_nsec = stx->stx_mtime.tv_nsec,
        .ctime = (uint64_t)stx->stx_ctime.tv_sec, .ctime_nsec = stx->stx_ctime.tv_nsec};
    if (stx->stx_mask & STATX_BTIME) {
        ret->btime = (uint64_t)stx->stx_btime.tv_sec;
        ret->btime_nsec = stx->stx_btime.tv_nsec;
        ret->flags |= GOFER_STAT_BTIME;
    }
    /* An ordinary user's namespace can't name the owners of the host's own files; nearly all of these
     * are root's, and programs that check owners expect that. */
    if (a->root_unmapped_ids && ret->uid == OVERFLOW_ID)
        ret->uid = 0;
    if (a->root_unmapped_ids && ret->gid == OVERFLOW_ID)
        ret->gid = 0;
}

void stat_make_empty(struct gofer_stat *stat)
{
    uint64_t ino = stat->ino;
    uint32_t index = stat->dev_index;
    /* A /tmp stays one that everybody may write to. */
    bool is_tmp = (stat->mode & (S_ISVTX | S_IWOTH)) == (S_ISVTX | S_IWOTH);
    *stat = (struct gofer_stat){.mode = S_IFDIR | (is_tmp ? 01777u : 0755u), .nlink = 2, .ino = ino, .blksize = 4096,
                                .size = 4096, .dev_index = index, .flags = GOFER_STAT_SYNTHETIC};
}

void place_put(struct place *p)
{
    if (p->is_owned)
        host_close(p->hfd);
    *p = (struct place)PLACE_NONE;
}

static int look(struct place *p)
{
    struct statx stx;
    int error = statx_at(p->hfd, "", &stx);
    if (error)
        return error;
    p->id = (struct file_id){.dev = statx_dev(&stx), .ino = stx.stx_ino};
    stat_from_statx(p->attach, &stx, &p->stat);
    return 0;
}

int place_refresh(struct place *p)
{
    return p->is_empty ? 0 : look(p);
}

int place_from_handle(struct gofer_server *s, uint64_t handle, struct place *ret)
{
    struct handle *h = handle_find(&s->table, handle);
    if (!h)
        return -EBADF;
    struct place p = {.attach = h->attach, .mask = h->mask, .hfd = h->hfd};
    int error = look(&p);
    if (error)
        return error;
    *ret = p;
    return 0;
}

bool place_may_search(const struct place *p)
{
    return !p->attach->public_only || (p->stat.mode & S_IXOTH);
}

bool place_may_read(const struct place *p)
{
    return !p->attach->public_only || (p->stat.mode & S_IROTH);
}

static bool is_masked_id(const struct gofer_server *s, const struct statx *stx)
{
    uint64_t dev = statx_dev(stx);
    for (size_t i = 0; i < s->masked_count; i++) {
        if (s->masked[i].ino == stx->stx_ino && s->masked[i].dev == dev)
            return true;
    }
    return false;
}

enum shown place_shown(const struct gofer_server *s, const struct place *dir, const char *name,
                       const struct statx *stx, const struct mask **ret_mask)
{
    const struct attach *a = dir->attach;
    const struct mask *mask = mask_child(dir->mask, name, strlen(name));
    bool is_hidden = mask && mask->is_end;
    if (a->public_only && is_masked_id(s, stx))
        is_hidden = true;
    if (a->one_mount && (stx->stx_mask & STATX_MNT_ID) && stx->stx_mnt_id != a->mount_id)
        is_hidden = true;
    *ret_mask = is_hidden ? NULL : mask;
    if (!is_hidden)
        return SHOWN;
    return S_ISDIR(stx->stx_mode) ? SHOWN_EMPTY : HIDDEN;
}

/* One component. Where mounts may be crossed, EXDEV only says that the entry was renamed away while it was
 * being opened: then look again. */
static int open_component(const struct place *dir, const char *name, uint64_t flags)
{
    uint64_t extra = dir->attach->one_mount ? RESOLVE_NO_XDEV : 0;
    int hfd = -ESTALE;
    for (int attempt = 0; attempt < 8; attempt++) {
        hfd = open_beneath(dir->hfd, name, flags, 0, extra);
        if (hfd != -EAGAIN && (hfd != -EXDEV || extra))
            return hfd;
    }
    return -ESTALE;
}

/* O_PATH descriptor of an entry, or -ENOENT-like errors. *ret_crossed: it's a mount point that this attach
 * point doesn't cross, and nothing was opened. */
static int open_entry(const struct place *dir, const char *name, bool *ret_crossed)
{
    int hfd = open_component(dir, name, O_PATH);
    *ret_crossed = hfd == -EXDEV && dir->attach->one_mount;
    return *ret_crossed ? 0 : hfd;
}

int place_step(struct gofer_server *s, const struct place *dir, const char *name, struct place *ret)
{
    if (dir->is_empty)
        return -ENOENT;
    if (!S_ISDIR(dir->stat.mode))
        return -ENOTDIR;
    if (!place_may_search(dir))
        return -EACCES;
    bool crossed;
    AUTO_FD hfd = open_entry(dir, name, &crossed);
    if (hfd < 0)
        return hfd;
    struct statx stx;
    if (crossed)
        hfd = -1; /* nothing was opened */
    int error = crossed ? statx_at(dir->hfd, name, &stx) : statx_at(hfd, "", &stx);
    if (error)
        return error;
    const struct mask *mask;
    enum shown shown = place_shown(s, dir, name, &stx, &mask);
    if (crossed && shown == SHOWN) /* the mount went away between the two calls */
        return -ESTALE;
    if (shown == HIDDEN)
        return -ENOENT;
    struct place p = {.attach = dir->attach, .mask = mask, .hfd = -1, .is_empty = shown == SHOWN_EMPTY};
    p.id = (struct file_id){.dev = statx_dev(&stx), .ino = stx.stx_ino};
    stat_from_statx(dir->attach, &stx, &p.stat);
    if (p.is_empty) {
        stat_make_empty(&p.stat);
    } else {
        p.hfd = take_fd(&hfd);
        p.is_owned = true;
    }
    *ret = p;
    return 0;
}

/* Walks `len` bytes of a valid path from `from`, which is consumed. */
static int walk(struct gofer_server *s, struct place *from, const char *path, size_t len,
                struct place *ret)
{
    struct place at = *from;
    *from = (struct place)PLACE_NONE;
    while (len > 0) {
        char name[GOFER_NAME_MAX + 1];
        const char *slash = memchr(path, '/', len);
        size_t part = slash ? (size_t)(slash - path) : len;
        memcpy(name, path, part);
        name[part] = '\0';
        struct place next;
        int error = place_step(s, &at, name, &next);
        place_put(&at);
        if (error)
            return error;
        at = next;
        path += part + (slash != NULL);
        len -= part + (slash != NULL);
    }
    *ret = at;
    return 0;
}

int place_resolve(struct gofer_server *s, uint64_t handle, const char *path, struct place *ret)
{
    struct place from;
    int error = place_from_handle(s, handle, &from);
    return error ? error : walk(s, &from, path, strlen(path), ret);
}

int place_resolve_parent(struct gofer_server *s, uint64_t handle, const char *path, struct place *ret,
                         const char **ret_name)
{
    struct place from;
    int error = place_from_handle(s, handle, &from);
    if (error)
        return error;
    const char *slash = strrchr(path, '/');
    size_t len = slash ? (size_t)(slash - path) : 0;
    error = walk(s, &from, path, len, ret);
    if (!error)
        *ret_name = *path ? path + len + (slash != NULL) : NULL;
    return error;
}

/* Opens `name` in `dir` (NULL: `dir` itself) and makes sure that it's the object that was looked at. */
static int open_same(const struct place *dir, const char *name, const struct place *object, uint64_t flags)
{
    AUTO_FD hfd = open_component(dir, name ? name : ".", flags);
    if (hfd < 0) /* something else was put in its place */
        return hfd == -ELOOP || hfd == -ENXIO || hfd == -EXDEV ? -ESTALE : hfd;
    struct statx stx;
    int error = statx_at(hfd, "", &stx);
    if (error)
        return error;
    if (stx.stx_ino != object->id.ino || statx_dev(&stx) != object->id.dev)
        return -ESTALE;
    return take_fd(&hfd);
}

int place_open(struct gofer_server *s, const struct place *parent, const char *name, uint32_t access,
               struct gofer_stat *ret_stat)
{
    AUTO_PLACE stepped = PLACE_NONE;
    const struct place *object = parent;
    if (name) {
        int error = place_step(s, parent, name, &stepped);
        if (error)
            return error;
        object = &stepped;
    }
    if (object->is_empty || !place_may_read(object))
        return -EACCES;
    if ((access & GOFER_OPEN_WRITE) && object->attach->read_only)
        return -EROFS;
    if (ret_stat)
        *ret_stat = object->stat;
    if (S_ISDIR(object->stat.mode)) {
        if (access != GOFER_OPEN_READ)
            return -EISDIR;
        /* Listing a directory shows attributes, too, so both bits are asked for. */
        return place_may_search(object) ? open_same(parent, name, object, O_RDONLY | O_DIRECTORY) : -EACCES;
    }
    if (!S_ISREG(object->stat.mode))
        return -ENXIO;
    if (!name) { /* an attach point that is a file */
        if (!object->attach->is_file)
            return -ESTALE;
        return (int)host_call3(SYS_fcntl, object->attach->file_hfd, F_DUPFD_CLOEXEC, 0);
    }
    uint64_t flags = access == GOFER_OPEN_READ    ? O_RDONLY
                     : access == GOFER_OPEN_WRITE ? O_WRONLY
                                                  : O_RDWR;
    return open_same(parent, name, object, flags);
}
