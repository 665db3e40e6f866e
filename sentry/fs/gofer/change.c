/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of directories, written through to the host. Any fiber; the directories' locks are held by vfs. Each
 * change is counted before and after, so that what a walk or a batch saw meanwhile isn't believed later.
 */
#include "sentry/fs/gofer/node.h"

#include "base/host.h"
#include <errno.h>
#include <linux/fs.h>
#include <stdlib.h>
#include <sys/stat.h>

/* A call that changes something in `dir` is being prepared: its place is in rpc->path[0], *ret_handle. */
static int begin(struct gofer_rpc *rpc, struct inode *dir, uint64_t *ret_handle)
{
    struct gofer_fs *fs = fs_of(dir);
    if (fs->read_only)
        return -EROFS;
    gofer_rpc_begin(fs->client, rpc, fs->shared);
    int error = node_path(fs, node_of(dir), NULL, rpc->path[0], ret_handle, NULL);
    if (!error)
        fs_changed(fs);
    return error;
}

static void end(struct inode *dir, const struct gofer_stat *dir_stat)
{
    fs_changed(fs_of(dir));
    if (dir_stat)
        node_apply_stat(node_of(dir), dir_stat);
}

static int made(struct inode *dir, const char *name, const struct gofer_stat *stat, struct inode **ret)
{
    *ret = node_get(fs_of(dir), stat, 0, dir, name);
    return *ret ? 0 : -ENOMEM;
}

int gofer_create(struct inode *dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid,
                 struct inode **ret)
{
    AUTO_RPC rpc = {0};
    struct gofer_create_request req = {.name = name, .mode = mode & 07777, .uid = uid, .gid = gid};
    struct gofer_create_reply reply;
    int error = begin(&rpc, dir, &req.dir);
    if (error)
        return error;
    req.dir_path = rpc.path[0];
    error = gofer_rpc_create(&rpc, &req, &reply);
    end(dir, error ? NULL : &reply.dir_stat);
    if (!error && !S_ISREG(reply.stat.mode))
        error = -EIO;
    if (!error)
        error = made(dir, name, &reply.stat, ret);
    if (!error && rpc.hfd >= 0)
        fd_add(*ret, FD_BOTH, take_fd(&rpc.hfd));
    return error;
}

int gofer_mkdir(struct inode *dir, const char *name, uint32_t mode, uint32_t uid, uint32_t gid,
                struct inode **ret)
{
    AUTO_RPC rpc = {0};
    struct gofer_mkdir_request req = {.name = name, .mode = mode & 07777, .uid = uid, .gid = gid};
    struct gofer_mkdir_reply reply;
    int error = begin(&rpc, dir, &req.dir);
    if (error)
        return error;
    req.dir_path = rpc.path[0];
    error = gofer_rpc_mkdir(&rpc, &req, &reply);
    end(dir, error ? NULL : &reply.dir_stat);
    if (!error && !S_ISDIR(reply.stat.mode))
        error = -EIO;
    return error ? error : made(dir, name, &reply.stat, ret);
}

int gofer_symlink(struct inode *dir, const char *name, const char *target, uint32_t uid, uint32_t gid,
                  struct inode **ret)
{
    AUTO_RPC rpc = {0};
    struct gofer_symlink_request req = {.name = name, .target = target, .uid = uid, .gid = gid};
    struct gofer_symlink_reply reply;
    int error = begin(&rpc, dir, &req.dir);
    if (error)
        return error;
    req.dir_path = rpc.path[0];
    error = gofer_rpc_symlink(&rpc, &req, &reply);
    end(dir, error ? NULL : &reply.dir_stat);
    if (!error && !S_ISLNK(reply.stat.mode))
        error = -EIO;
    return error ? error : made(dir, name, &reply.stat, ret);
}

int gofer_link(struct inode *dir, const char *name, struct inode *inode)
{
    AUTO_RPC rpc = {0};
    struct gofer_link_request req = {.name = name};
    struct gofer_link_reply reply;
    int error = begin(&rpc, dir, &req.dir);
    if (!error)
        error = node_path(fs_of(dir), node_of(inode), NULL, rpc.path[1], &req.old, NULL);
    if (error)
        return error == -ESTALE ? -ENOENT : error;
    req.dir_path = rpc.path[0];
    req.old_path = rpc.path[1];
    error = gofer_rpc_link(&rpc, &req, &reply);
    end(dir, error ? NULL : &reply.dir_stat);
    if (!error)
        node_apply_stat(node_of(inode), &reply.stat);
    return error;
}

/* One name of `inode` is gone: with the last one its number may be given to another file. */
static void lost_name(struct inode *dir, const char *name, struct inode *inode)
{
    struct gofer_fs *fs = fs_of(dir);
    struct node *node = node_of(inode);
    uint32_t left = 0;
    if (!S_ISDIR(inode->mode)) {
        left = atomic_load(&inode->nlink);
        left -= left > 0;
    }
    atomic_store(&inode->nlink, left);
    inode_touch(inode, ATTR_CTIME);
    if (left == 0)
        node_forget(fs, node);
    (void)name; /* whichever name we knew it by: another one is learnt with the next lookup */
    node_set_place(fs, node, NULL, NULL);
    if (left == 0)
        fd_close_idle(inode);
}

int gofer_unlink(struct inode *dir, const char *name, struct inode *inode)
{
    AUTO_RPC rpc = {0};
    struct gofer_unlink_request req = {.name = name};
    struct gofer_unlink_reply reply;
    int error = begin(&rpc, dir, &req.dir);
    if (error)
        return error;
    req.dir_path = rpc.path[0];
    error = gofer_rpc_unlink(&rpc, &req, &reply);
    end(dir, error ? NULL : &reply.dir_stat);
    if (!error)
        lost_name(dir, name, inode);
    return error;
}

int gofer_rmdir(struct inode *dir, const char *name, struct inode *inode)
{
    AUTO_RPC rpc = {0};
    struct gofer_rmdir_request req = {.name = name};
    struct gofer_rmdir_reply reply;
    int error = begin(&rpc, dir, &req.dir);
    if (error)
        return error;
    req.dir_path = rpc.path[0];
    error = gofer_rpc_rmdir(&rpc, &req, &reply);
    end(dir, error ? NULL : &reply.dir_stat);
    if (!error)
        lost_name(dir, name, inode);
    return error;
}

int gofer_rename(struct inode *old_dir, const char *old_name, struct inode *old_inode,
                 struct inode *new_dir, const char *new_name, struct inode *new_inode, uint32_t flags)
{
    struct gofer_fs *fs = fs_of(old_dir);
    AUTO_RPC rpc = {0};
    struct gofer_rename_request req = {.old_name = old_name, .new_name = new_name, .flags = flags};
    struct gofer_rename_reply reply;
    int error = begin(&rpc, old_dir, &req.old_dir);
    if (!error)
        error = node_path(fs, node_of(new_dir), NULL, rpc.path[1], &req.new_dir, NULL);
    if (error)
        return error;
    req.old_dir_path = rpc.path[0];
    req.new_dir_path = rpc.path[1];
    error = gofer_rpc_rename(&rpc, &req, &reply);
    end(old_dir, error ? NULL : &reply.old_dir_stat);
    if (error)
        return error;
    end(new_dir, &reply.new_dir_stat);
    if (new_inode == old_inode)
        return 0; /* two names of one file: nothing happened */
    if (flags & RENAME_EXCHANGE)
        node_set_place(fs, node_of(new_inode), old_dir, old_name);
    else if (new_inode)
        lost_name(new_dir, new_name, new_inode);
    node_set_place(fs, node_of(old_inode), new_dir, new_name);
    inode_touch(old_inode, ATTR_CTIME);
    return 0;
}
