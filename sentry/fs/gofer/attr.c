/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attributes, extended attributes, statfs. Any fiber. In exclusive mode the inode's fields are the truth until
 * somebody writes through a descriptor; then that descriptor, or the gofer, is asked.
 */
#include "sentry/fs/gofer/node.h"

#include "base/host.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* #syscalls fstat: size and times of a host file that is open */

#define STORE(field, value) __atomic_store_n(&(field), (value), __ATOMIC_RELAXED)
#define LOAD(field)         __atomic_load_n(&(field), __ATOMIC_RELAXED)

static void store_time(struct linux_timespec *to, const struct timespec *from)
{
    STORE(to->sec, from->tv_sec);
    STORE(to->nsec, from->tv_nsec);
}

/* Owner and mode aren't taken from here: the sentry's user namespace sees other owners than the gofer's. */
static int refresh_by_descriptor(struct inode *inode, int hfd)
{
    struct stat st;
    long error = host_call2(SYS_fstat, hfd, &st);
    if (error)
        return (int)error;
    STORE(node_of(inode)->blocks, (uint64_t)st.st_blocks);
    atomic_store(&inode->size, (uint64_t)st.st_size);
    atomic_store(&inode->nlink, (uint32_t)st.st_nlink);
    store_time(&inode->mtime, &st.st_mtim);
    store_time(&inode->ctime, &st.st_ctim);
    return 0;
}

static int refresh_by_name(struct inode *inode)
{
    struct gofer_fs *fs = fs_of(inode);
    struct node *node = node_of(inode);
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_getattr_request req = {.at_path = rpc.path[0]};
    struct gofer_getattr_reply reply;
    int error = node_path(fs, node, NULL, rpc.path[0], &req.at, NULL);
    if (!error)
        error = gofer_rpc_getattr(&rpc, &req, &reply);
    if (error)
        return error;
    if (reply.stat.ino != inode->ino || reply.stat.dev_index != node->dev_index ||
        ((reply.stat.mode ^ inode->mode) & S_IFMT))
        return -ESTALE;
    node_apply_stat(node, &reply.stat);
    return 0;
}

int gofer_refresh(struct inode *inode)
{
    struct gofer_fs *fs = fs_of(inode);
    int kind;
    int hfd = -1;
    if (S_ISREG(inode->mode))
        fd_borrow(inode, false, &kind, &hfd);
    int error = -ESTALE;
    if (fs->shared || hfd < 0)
        error = refresh_by_name(inode);
    if (error && hfd >= 0) /* also what has no name any more */
        error = refresh_by_descriptor(inode, hfd);
    if (hfd >= 0)
        fd_put(inode, kind);
    if (error == -ESTALE && !fs->shared)
        return 0; /* unlinked, not open: what we know is all there is */
    return error;
}

int gofer_getattr(struct inode *inode, struct kstat *ret)
{
    struct gofer_fs *fs = fs_of(inode);
    struct node *node = node_of(inode);
    bool is_mapped = atomic_load_explicit(&inode->shared_writes, memory_order_relaxed) > 0;
    if (fs->shared || is_mapped || atomic_load_explicit(&node->is_stale, memory_order_relaxed)) {
        atomic_store(&node->is_stale, false); /* before asking: what is written meanwhile sets it again */
        int error = gofer_refresh(inode);
        if (error)
            return error;
    }
    inode_fill_kstat(inode, ret);
    ret->dev = inode->sb->dev | (uint64_t)node->dev_index << 20; /* minor numbers from 256 on */
    ret->blocks = LOAD(node->blocks);
    ret->blksize = node->blksize ? node->blksize : PAGE_SIZE;
    ret->has_btime = node->has_btime;
    return 0;
}

/* ---- changes ------------------------------------------------------------------------------------- */

static void fill_request(const struct iattr *attr, struct gofer_setattr_request *req)
{
    static const struct {
        uint32_t attr, set;
    } bits[] = {{ATTR_MODE, GOFER_SET_MODE},   {ATTR_UID, GOFER_SET_UID},     {ATTR_GID, GOFER_SET_GID},
                {ATTR_SIZE, GOFER_SET_SIZE},   {ATTR_ATIME, GOFER_SET_ATIME}, {ATTR_MTIME, GOFER_SET_MTIME}};
    for (size_t i = 0; i < ARRAY_COUNT(bits); i++) {
        if (attr->valid & bits[i].attr)
            req->valid |= bits[i].set;
    }
    req->mode = attr->mode & 07777;
    req->uid = attr->uid;
    req->gid = attr->gid;
    req->size = attr->size;
    if (attr->valid & ATTR_ATIME) {
        req->atime = (uint64_t)attr->atime.sec;
        req->atime_nsec = (uint32_t)attr->atime.nsec;
    }
    if (attr->valid & ATTR_MTIME) {
        req->mtime = (uint64_t)attr->mtime.sec;
        req->mtime_nsec = (uint32_t)attr->mtime.nsec;
    }
}

/* A file without a name: its size is changed through its descriptor, the rest only for us. */
static int set_nameless(struct inode *inode, const struct iattr *attr)
{
    if (attr->valid & ATTR_SIZE) {
        int kind;
        int hfd;
        fd_borrow(inode, true, &kind, &hfd);
        if (hfd < 0)
            return -ESTALE;
        long error = host_call2(SYS_ftruncate, hfd, attr->size);
        fd_put(inode, kind);
        if (error)
            return (int)error;
        atomic_store(&inode->size, attr->size);
    }
    inode_apply_iattr(inode, attr);
    return 0;
}

/* #syscalls ftruncate: size of a host file that was unlinked */

int gofer_setattr(struct inode *inode, const struct iattr *attr)
{
    struct gofer_fs *fs = fs_of(inode);
    struct node *node = node_of(inode);
    if (fs->read_only)
        return -EROFS;
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_setattr_request req = {.at_path = rpc.path[0]};
    struct gofer_setattr_reply reply;
    int error = node_path(fs, node, NULL, rpc.path[0], &req.at, NULL);
    if (error == -ESTALE) {
        gofer_rpc_end(&rpc);
        return set_nameless(inode, attr);
    }
    if (error)
        return error;
    fill_request(attr, &req);
    if (!req.valid)
        return 0; /* ctime alone is the host's business */
    fs_changed(fs);
    error = gofer_rpc_setattr(&rpc, &req, &reply);
    fs_changed(fs);
    if (!error)
        node_apply_stat(node, &reply.stat);
    return error;
}

int gofer_flush(struct inode *inode)
{
    struct gofer_fs *fs = fs_of(inode);
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, true);
    struct gofer_flush_request req = {.at_path = rpc.path[0]};
    struct gofer_flush_reply reply;
    int error = node_path(fs, node_of(inode), NULL, rpc.path[0], &req.at, NULL);
    return error ? error : gofer_rpc_flush(&rpc, &req, &reply);
}

/* ---- extended attributes ------------------------------------------------------------------------- */

/* What can't be there is answered without the gofer. */
static bool may_exist(const struct inode *inode, const char *name)
{
    if (!S_ISREG(inode->mode) && !S_ISDIR(inode->mode))
        return false;
    return strncmp(name, "user.", 5) == 0 || strcmp(name, "security.capability") == 0;
}

static ssize_t give_back(const uint8_t *bytes, uint32_t count, void *to, size_t size)
{
    if (size && count > size)
        return -ERANGE;
    if (size && count)
        memcpy(to, bytes, count);
    return count;
}

ssize_t gofer_getxattr(struct inode *inode, const char *name, void *value, size_t size)
{
    struct gofer_fs *fs = fs_of(inode);
    if (!may_exist(inode, name))
        return -ENODATA;
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_getxattr_request req = {.at_path = rpc.path[0], .name = name};
    struct gofer_getxattr_reply reply;
    int error = node_path(fs, node_of(inode), NULL, rpc.path[0], &req.at, NULL);
    if (!error)
        error = gofer_rpc_getxattr(&rpc, &req, &reply);
    return error ? error : give_back(reply.value, reply.value_size, value, size);
}

ssize_t gofer_listxattr(struct inode *inode, char *list, size_t size)
{
    struct gofer_fs *fs = fs_of(inode);
    if (!S_ISREG(inode->mode) && !S_ISDIR(inode->mode))
        return 0;
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_listxattr_request req = {.at_path = rpc.path[0]};
    struct gofer_listxattr_reply reply;
    int error = node_path(fs, node_of(inode), NULL, rpc.path[0], &req.at, NULL);
    if (!error)
        error = gofer_rpc_listxattr(&rpc, &req, &reply);
    if (error == -EACCES || error == -EROFS)
        return 0; /* the gofer may not open it: then there's nothing to see */
    if (error)
        return error;
    /* Names end with a NUL each: the guest is given whole ones only. */
    if (reply.names_size && reply.names[reply.names_size - 1] != '\0')
        return -EIO;
    return give_back(reply.names, reply.names_size, list, size);
}

int gofer_setxattr(struct inode *inode, const char *name, const void *value, size_t size, int flags)
{
    struct gofer_fs *fs = fs_of(inode);
    if (fs->read_only)
        return -EROFS;
    if (strncmp(name, "user.", 5) != 0)
        return -EOPNOTSUPP;
    if (size > GOFER_BYTES_MAX)
        return -E2BIG;
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_setxattr_request req = {.at_path = rpc.path[0], .name = name, .flags = (uint32_t)flags,
                                         .value = value, .value_size = (uint32_t)size};
    struct gofer_setxattr_reply reply;
    int error = node_path(fs, node_of(inode), NULL, rpc.path[0], &req.at, NULL);
    if (!error)
        error = gofer_rpc_setxattr(&rpc, &req, &reply);
    if (!error)
        fs_changed(fs);
    if (!error)
        node_apply_stat(node_of(inode), &reply.stat);
    return error;
}

int gofer_removexattr(struct inode *inode, const char *name)
{
    struct gofer_fs *fs = fs_of(inode);
    if (fs->read_only)
        return -EROFS;
    if (strncmp(name, "user.", 5) != 0)
        return -EOPNOTSUPP;
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_removexattr_request req = {.at_path = rpc.path[0], .name = name};
    struct gofer_removexattr_reply reply;
    int error = node_path(fs, node_of(inode), NULL, rpc.path[0], &req.at, NULL);
    if (!error)
        error = gofer_rpc_removexattr(&rpc, &req, &reply);
    if (!error)
        fs_changed(fs);
    if (!error)
        node_apply_stat(node_of(inode), &reply.stat);
    return error;
}

int gofer_statfs(struct superblock *sb, struct linux_statfs *ret)
{
    struct gofer_fs *fs = sb->private_data;
    AUTO_RPC rpc = {0};
    gofer_rpc_begin(fs->client, &rpc, fs->shared);
    struct gofer_statfs_request req = {.at = fs->root_handle, .at_path = ""};
    struct gofer_statfs_reply reply;
    int error = gofer_rpc_statfs(&rpc, &req, &reply);
    if (error)
        return error;
    ret->type = (int64_t)reply.type;
    ret->bsize = (int64_t)reply.bsize;
    ret->blocks = reply.blocks;
    ret->bfree = reply.bfree;
    ret->bavail = reply.bavail;
    ret->files = reply.files;
    ret->ffree = reply.ffree;
    ret->namelen = (int64_t)reply.namelen;
    ret->frsize = (int64_t)reply.frsize;
    return 0;
}
