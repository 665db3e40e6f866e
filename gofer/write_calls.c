/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that change the host's tree, on attach points that aren't read-only. Never a device node, FIFO or
 * socket; never a set-id file. The gofer's only thread; requests come from a sentry that may be hostile.
 */
#include "gofer/server_private.h"

#include "base/host.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

/* #syscalls mkdirat,symlinkat,linkat,unlinkat,renameat2: changes of directories
 * #syscalls fchownat,fchmodat2,fchmod,utimensat,ftruncate: changes of attributes */

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452 /* Linux 6.6 */
#endif

#define PERMISSION_BITS 01777u
#define ID_NONE UINT32_MAX

/* A directory that entries are to be changed in. */
static int resolve_dir(struct gofer_server *s, uint64_t handle, const char *path, struct place *ret)
{
    AUTO_PLACE dir = PLACE_NONE;
    int error = place_resolve(s, handle, path, &dir);
    if (error)
        return error;
    if (dir.attach->read_only)
        return -EROFS;
    if (dir.is_empty)
        return -EACCES;
    if (!S_ISDIR(dir.stat.mode))
        return -ENOTDIR;
    *ret = dir;
    dir = (struct place)PLACE_NONE;
    return 0;
}

/* Names that are masked can be neither made nor removed. (Attach points with masks are read-only as things
 * stand; this keeps the rule where the change is made.) */
static int check_name(const struct place *dir, const char *name)
{
    const struct mask *mask = mask_child(dir->mask, name, strlen(name));
    return mask ? -EACCES : 0;
}

/* The new object belongs to whom the guest says, where we may say so: an ordinary user can't give files
 * away, and then they stay the user's own. */
static int give(struct gofer_server *s, int hfd, uint32_t uid, uint32_t gid)
{
    int error = (int)host_call5(SYS_fchownat, hfd, "", uid, gid, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    return !s->as_root && (error == -EPERM || error == -EINVAL) ? 0 : error;
}

/* Looks at what was just made: owner, then attributes of both. */
static int finish(struct gofer_server *s, struct place *dir, const char *name, uint32_t uid, uint32_t gid,
                  struct gofer_stat *ret_stat, struct gofer_stat *ret_dir)
{
    AUTO_PLACE made = PLACE_NONE;
    int error = place_step(s, dir, name, &made);
    if (!error && uid != ID_NONE)
        error = made.is_empty ? -EACCES : give(s, made.hfd, uid, gid);
    if (!error)
        error = place_refresh(&made);
    if (!error)
        error = place_refresh(dir);
    if (error)
        return error;
    *ret_stat = made.stat;
    *ret_dir = dir->stat;
    return 0;
}

int call_create(struct gofer_server *s, const struct gofer_create_request *req,
                struct gofer_create_reply *reply, int *ret_hfd)
{
    AUTO_PLACE dir = PLACE_NONE;
    int error = resolve_dir(s, req->dir, req->dir_path, &dir);
    if (!error)
        error = check_name(&dir, req->name);
    if (error)
        return error;
    AUTO_FD hfd = open_beneath(dir.hfd, req->name, O_RDWR | O_CREAT | O_EXCL, req->mode & PERMISSION_BITS, 0);
    if (hfd < 0)
        return hfd;
    error = give(s, hfd, req->uid, req->gid);
    if (!error)
        error = finish(s, &dir, req->name, ID_NONE, ID_NONE, &reply->stat, &reply->dir_stat);
    if (error) {
        (void)host_call3(SYS_unlinkat, dir.hfd, req->name, 0);
        return error;
    }
    *ret_hfd = take_fd(&hfd);
    return 0;
}

int call_mkdir(struct gofer_server *s, const struct gofer_mkdir_request *req,
               struct gofer_mkdir_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    AUTO_PLACE dir = PLACE_NONE;
    int error = resolve_dir(s, req->dir, req->dir_path, &dir);
    if (!error)
        error = check_name(&dir, req->name);
    if (!error)
        error = (int)host_call3(SYS_mkdirat, dir.hfd, req->name, req->mode & PERMISSION_BITS);
    if (error)
        return error;
    error = finish(s, &dir, req->name, req->uid, req->gid, &reply->stat, &reply->dir_stat);
    if (error)
        (void)host_call3(SYS_unlinkat, dir.hfd, req->name, AT_REMOVEDIR);
    return error;
}

int call_symlink(struct gofer_server *s, const struct gofer_symlink_request *req,
                 struct gofer_symlink_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    AUTO_PLACE dir = PLACE_NONE;
    int error = resolve_dir(s, req->dir, req->dir_path, &dir);
    if (!error)
        error = check_name(&dir, req->name);
    if (!error)
        error = (int)host_call3(SYS_symlinkat, req->target, dir.hfd, req->name);
    if (error)
        return error;
    error = finish(s, &dir, req->name, req->uid, req->gid, &reply->stat, &reply->dir_stat);
    if (error)
        (void)host_call3(SYS_unlinkat, dir.hfd, req->name, 0);
    return error;
}

int call_link(struct gofer_server *s, const struct gofer_link_request *req, struct gofer_link_reply *reply,
              int *ret_hfd)
{
    (void)ret_hfd;
    AUTO_PLACE from = PLACE_NONE;
    AUTO_PLACE dir = PLACE_NONE;
    AUTO_PLACE object = PLACE_NONE;
    const char *name;
    int error = place_resolve_parent(s, req->old, req->old_path, &from, &name);
    if (!error)
        error = name ? place_step(s, &from, name, &object) : -EPERM;
    if (!error)
        error = resolve_dir(s, req->dir, req->dir_path, &dir);
    if (!error)
        error = check_name(&dir, req->name);
    if (error)
        return error;
    if (object.attach != dir.attach)
        return -EXDEV;
    if (S_ISDIR(object.stat.mode))
        return -EPERM;
    /* No AT_SYMLINK_FOLLOW: a symlink is linked itself. */
    error = (int)host_call5(SYS_linkat, from.hfd, name, dir.hfd, req->name, 0);
    return error ? error : finish(s, &dir, req->name, ID_NONE, ID_NONE, &reply->stat, &reply->dir_stat);
}

static int remove_entry(struct gofer_server *s, uint64_t handle, const char *path, const char *name,
                        int flags, struct gofer_stat *ret_dir)
{
    AUTO_PLACE dir = PLACE_NONE;
    int error = resolve_dir(s, handle, path, &dir);
    if (!error)
        error = check_name(&dir, name);
    if (!error)
        error = (int)host_call3(SYS_unlinkat, dir.hfd, name, flags);
    if (!error)
        error = place_refresh(&dir);
    if (!error)
        *ret_dir = dir.stat;
    return error;
}

int call_unlink(struct gofer_server *s, const struct gofer_unlink_request *req,
                struct gofer_unlink_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    return remove_entry(s, req->dir, req->dir_path, req->name, 0, &reply->dir_stat);
}

int call_rmdir(struct gofer_server *s, const struct gofer_rmdir_request *req,
               struct gofer_rmdir_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    return remove_entry(s, req->dir, req->dir_path, req->name, AT_REMOVEDIR, &reply->dir_stat);
}

int call_rename(struct gofer_server *s, const struct gofer_rename_request *req,
                struct gofer_rename_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    if (req->flags & ~(uint32_t)(RENAME_NOREPLACE | RENAME_EXCHANGE))
        return -EINVAL;
    AUTO_PLACE from = PLACE_NONE;
    AUTO_PLACE to = PLACE_NONE;
    int error = resolve_dir(s, req->old_dir, req->old_dir_path, &from);
    if (!error)
        error = resolve_dir(s, req->new_dir, req->new_dir_path, &to);
    if (!error)
        error = check_name(&from, req->old_name);
    if (!error)
        error = check_name(&to, req->new_name);
    if (error)
        return error;
    if (from.attach != to.attach)
        return -EXDEV;
    error = (int)host_call5(SYS_renameat2, from.hfd, req->old_name, to.hfd, req->new_name, req->flags);
    if (!error)
        error = place_refresh(&from);
    if (!error)
        error = place_refresh(&to);
    if (error)
        return error;
    *reply = (struct gofer_rename_reply){.old_dir_stat = from.stat, .new_dir_stat = to.stat};
    return 0;
}

/* ---- attributes ---------------------------------------------------------------------------------- */

/* What a SETATTR is about: the object, and how to open it for real. */
struct target {
    struct place parent, stepped;
    const char *name;
    struct place *object;
};

static void target_put(struct target *t)
{
    place_put(&t->stepped);
    place_put(&t->parent);
}

static int resolve_target(struct gofer_server *s, uint64_t handle, const char *path, struct target *t)
{
    int error = place_resolve_parent(s, handle, path, &t->parent, &t->name);
    if (error)
        return error;
    t->object = &t->parent;
    if (t->name) {
        error = place_step(s, &t->parent, t->name, &t->stepped);
        if (error)
            return error;
        t->object = &t->stepped;
    }
    if (t->object->attach->read_only)
        return -EROFS;
    return t->object->is_empty ? -EACCES : 0;
}

static int set_size(struct gofer_server *s, const struct target *t, uint64_t size)
{
    AUTO_FD hfd = place_open(s, &t->parent, t->name, GOFER_OPEN_WRITE, NULL);
    if (hfd < 0)
        return hfd == -ENXIO ? -EINVAL : hfd;
    return (int)host_call2(SYS_ftruncate, hfd, size);
}

static int set_owner(struct gofer_server *s, const struct target *t, const struct gofer_setattr_request *req)
{
    uint32_t uid = req->valid & GOFER_SET_UID ? req->uid : ID_NONE;
    uint32_t gid = req->valid & GOFER_SET_GID ? req->gid : ID_NONE;
    int error = (int)host_call5(SYS_fchownat, t->object->hfd, "", uid, gid,
                                AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
    return error == -EINVAL && !s->as_root ? -EPERM : error; /* an id that isn't mapped */
}

static int set_mode(struct gofer_server *s, const struct target *t, uint32_t mode)
{
    bool is_dir = S_ISDIR(t->object->stat.mode);
    if (S_ISLNK(t->object->stat.mode))
        return -EOPNOTSUPP;
    /* Set-id bits on a file would be a way to the host's privileges; on a directory S_ISGID only passes
     * the group on. */
    mode &= is_dir ? 03777u : PERMISSION_BITS;
    int error = (int)host_call4(SYS_fchmodat2, t->object->hfd, "", mode, AT_EMPTY_PATH);
    if (error != -ENOSYS)
        return error;
    AUTO_FD hfd = place_open(s, &t->parent, t->name, GOFER_OPEN_READ, NULL);
    return hfd < 0 ? hfd : (int)host_call2(SYS_fchmod, hfd, mode);
}

static int set_times(const struct target *t, const struct gofer_setattr_request *req)
{
    if (req->atime_nsec >= 1000000000u || req->mtime_nsec >= 1000000000u)
        return -EINVAL;
    struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
    if (req->valid & GOFER_SET_ATIME)
        times[0] = (struct timespec){(time_t)req->atime, (long)req->atime_nsec};
    if (req->valid & GOFER_SET_MTIME)
        times[1] = (struct timespec){(time_t)req->mtime, (long)req->mtime_nsec};
    return (int)host_call4(SYS_utimensat, t->object->hfd, "", times, AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW);
}

static int set_all(struct gofer_server *s, const struct target *t, const struct gofer_setattr_request *req)
{
    int error = 0;
    if (req->valid & GOFER_SET_SIZE)
        error = set_size(s, t, req->size);
    if (!error && (req->valid & (GOFER_SET_UID | GOFER_SET_GID)))
        error = set_owner(s, t, req);
    if (!error && (req->valid & GOFER_SET_MODE))
        error = set_mode(s, t, req->mode);
    if (!error && (req->valid & (GOFER_SET_ATIME | GOFER_SET_MTIME)))
        error = set_times(t, req);
    return error;
}

int call_setattr(struct gofer_server *s, const struct gofer_setattr_request *req,
                 struct gofer_setattr_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    if (req->valid & ~GOFER_SET_ALL)
        return -EINVAL;
    CLEANUP(target_put) struct target t = {.parent = PLACE_NONE, .stepped = PLACE_NONE};
    int error = resolve_target(s, req->at, req->at_path, &t);
    if (!error)
        error = set_all(s, &t, req);
    if (!error)
        error = place_refresh(t.object);
    if (!error)
        reply->stat = t.object->stat;
    return error;
}
