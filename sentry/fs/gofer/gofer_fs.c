/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A gofer's attach point as a superblock. Any fiber.
 */
#include "sentry/fs/gofer/gofer_fs.h"

#include "sentry/fs/gofer/node.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

/* The host's own magic comes with each statfs. */
#define GOFER_MAGIC 0x62676f66U

const struct inode_ops gofer_dir_inode_ops = {
    .lookup = gofer_lookup,
    .lookup_ahead = gofer_lookup_ahead,
    .revalidate = gofer_revalidate,
    .create = gofer_create,
    .mkdir = gofer_mkdir,
    .symlink = gofer_symlink,
    .link = gofer_link,
    .unlink = gofer_unlink,
    .rmdir = gofer_rmdir,
    .rename = gofer_rename,
    .getattr = gofer_getattr,
    .setattr = gofer_setattr,
    .open = gofer_open_dir,
    .getxattr = gofer_getxattr,
    .setxattr = gofer_setxattr,
    .listxattr = gofer_listxattr,
    .removexattr = gofer_removexattr,
    .destroy = node_destroy,
};

const struct inode_ops gofer_file_inode_ops = {
    .getattr = gofer_getattr,
    .setattr = gofer_setattr,
    .open = gofer_open_file,
    .getxattr = gofer_getxattr,
    .setxattr = gofer_setxattr,
    .listxattr = gofer_listxattr,
    .removexattr = gofer_removexattr,
    .destroy = node_destroy,
};

const struct inode_ops gofer_symlink_inode_ops = {
    .readlink = gofer_readlink,
    .getattr = gofer_getattr,
    .setattr = gofer_setattr,
    .destroy = node_destroy,
};

/* FIFOs are the sandbox's own, by vfs; devices and sockets of the host are only looked at. */
const struct inode_ops gofer_other_inode_ops = {
    .getattr = gofer_getattr,
    .setattr = gofer_setattr,
    .destroy = node_destroy,
};

static void destroy(struct superblock *sb)
{
    struct gofer_fs *fs = sb->private_data;
    for (size_t i = 0; i < WALK_CACHE_SIZE; i++) {
        if (fs->walked[i].name && fs->walked[i].exists)
            fs_close_later(fs, fs->walked[i].step.handle);
    }
    cache_drop_all(fs);
    fs_close_later(fs, fs->root_handle);
    fs_flush_closing(fs, 0);
    lock_fini(&fs->lock);
    free(fs);
}

static const struct superblock_ops sb_ops = {
    .statfs = gofer_statfs,
    .destroy = destroy,
};

static struct gofer_fs *make(struct gofer_client *client, bool shared)
{
    struct gofer_fs *fs = calloc(1, sizeof(*fs));
    if (!fs)
        return NULL;
    superblock_init(&fs->sb, &sb_ops, "gofer", GOFER_MAGIC);
    fs->sb.private_data = fs;
    fs->sb.revalidate = shared;
    fs->client = client;
    fs->shared = shared;
    lock_init(&fs->lock);
    LIST_INIT(&fs->orphans);
    TAILQ_INIT(&fs->handles);
    TAILQ_INIT(&fs->idle);
    TAILQ_INIT(&fs->batches);
    return fs;
}

static int attach(struct gofer_client *client, uint32_t index, bool may_block, struct gofer_attach_reply *ret)
{
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(client, &rpc, may_block);
    struct gofer_attach_request req = {.index = index};
    int error = gofer_rpc_attach(&rpc, &req, ret);
    if (error)
        return error;
    uint32_t type = ret->flags & GOFER_ATTACH_FILE ? S_IFREG : S_IFDIR;
    return ret->handle && (ret->stat.mode & S_IFMT) == type ? 0 : -EIO;
}

int gofer_fs_new(struct gofer_client *client, uint32_t index, bool shared, struct superblock **ret_sb,
                 struct inode **ret_root)
{
    struct gofer_attach_reply reply;
    int error = attach(client, index, shared, &reply);
    if (error)
        return error;
    struct gofer_fs *fs = make(client, shared);
    if (!fs)
        return -ENOMEM;
    fs->read_only = reply.flags & GOFER_ATTACH_READ_ONLY;
    fs->root_handle = reply.handle;
    struct inode *root = node_get(fs, &reply.stat, 0, NULL, NULL);
    if (!root) {
        superblock_put(&fs->sb);
        return -ENOMEM;
    }
    fs->root_node = node_of(root);
    *ret_sb = &fs->sb;
    *ret_root = root;
    return 0;
}
