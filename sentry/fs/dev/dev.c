/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /dev: the memory devices of mem(4) and random(4), and the tree of nodes. Runs on any fiber.
 */
#define LOG_MODULE "dev"
#include "sentry/fs/dev/dev.h"
#include "base/log.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/task/host_facts.h"
#include "sentry/vfs/vfs.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define CHARDEVS_MAX 32

static const struct chardev *g_devices[CHARDEVS_MAX]; /* written at start only */
static size_t g_device_count;

/* ---- memory devices ----------------------------------------------------------------------------- */

static ssize_t null_read(struct file *f, struct io *io, int64_t *pos)
{
    (void)f, (void)io, (void)pos;
    return 0;
}

static ssize_t sink_write(struct file *f, struct io *io, int64_t *pos)
{
    (void)f, (void)pos;
    ssize_t size = (ssize_t)io->remaining;
    io_skip(io, (size_t)size);
    return size;
}

static ssize_t zero_read(struct file *f, struct io *io, int64_t *pos)
{
    (void)f, (void)pos;
    size_t done = 0;
    while (io->remaining > 0) { /* long ones let others run */
        size_t chunk = io->remaining < KIB(256) ? (size_t)io->remaining : KIB(256);
        ssize_t n = io_put_zero(io, chunk);
        if (n <= 0)
            return done > 0 ? (ssize_t)done : n;
        done += (size_t)n;
        if (io->remaining > 0)
            fiber_yield();
    }
    return (ssize_t)done;
}

static ssize_t full_write(struct file *f, struct io *io, int64_t *pos)
{
    (void)f, (void)io, (void)pos;
    return -ENOSPC;
}

static ssize_t random_read(struct file *f, struct io *io, int64_t *pos)
{
    (void)f, (void)pos;
    uint8_t chunk[512];
    size_t done = 0;
    while (io->remaining > 0 && done < MIB(32)) {
        size_t size = io->remaining < sizeof chunk ? (size_t)io->remaining : sizeof chunk;
        host_random(chunk, size);
        ssize_t n = io_put(io, chunk, size);
        if (n <= 0)
            return done > 0 ? (ssize_t)done : n;
        done += (size_t)n;
        if ((done & 0xffff) == 0)
            fiber_yield();
    }
    return (ssize_t)done;
}

static int64_t device_lseek(struct file *f, int64_t offset, int whence)
{
    (void)f, (void)offset, (void)whence;
    return 0;
}

/* Private mappings of /dev/zero are anonymous memory: an object that maps a memfd of zeros. */
static int zero_map(struct file *f, uint64_t offset, uint64_t size, int prot, int flags, int *ret_hfd,
                    uint64_t *ret_host_offset)
{
    struct file *shared = f->private_data;
    if (shared == NULL) {
        int r = tmpfs_shared_anon_new("/dev/zero (deleted)", offset + size, f->creds, &shared);
        if (r != 0)
            return r;
        f->private_data = shared;
    }
    return shared->ops->map(shared, offset, size, prot, flags, ret_hfd, ret_host_offset);
}

static void zero_release(struct file *f)
{
    if (f->private_data != NULL)
        file_put(f->private_data);
}

static const struct file_ops null_ops = {.read = null_read, .write = sink_write, .lseek = device_lseek};
static const struct file_ops zero_ops = {.read = zero_read,
                                         .write = sink_write,
                                         .lseek = device_lseek,
                                         .map = zero_map,
                                         .release = zero_release};
static const struct file_ops full_ops = {.read = zero_read, .write = full_write, .lseek = device_lseek};
static const struct file_ops random_ops = {
    .read = random_read, .write = sink_write, .lseek = device_lseek};

#define OPENER(name)                                                                               \
    static int name##_open(struct inode *inode, struct file *file)                                 \
    {                                                                                              \
        (void)inode;                                                                               \
        file->ops = &name##_ops;                                                                   \
        return 0;                                                                                  \
    }
OPENER(null)
OPENER(zero)
OPENER(full)
OPENER(random)

static const struct chardev memory_devices[] = {
    {DEV_NUMBER(1, 3), "null", 0666, null_open},     {DEV_NUMBER(1, 5), "zero", 0666, zero_open},
    {DEV_NUMBER(1, 7), "full", 0666, full_open},     {DEV_NUMBER(1, 8), "random", 0666, random_open},
    {DEV_NUMBER(1, 9), "urandom", 0666, random_open},
};

/* ---- registry ----------------------------------------------------------------------------------- */

void chardev_register(const struct chardev *device)
{
    ASSERT(g_device_count < CHARDEVS_MAX);
    g_devices[g_device_count++] = device;
}

int chardev_open(struct inode *inode, struct file *file)
{
    for (size_t i = 0; S_ISCHR(inode->mode) && i < g_device_count; i++)
        if (g_devices[i]->rdev == inode->rdev)
            return g_devices[i]->open(inode, file);
    return -ENXIO;
}

void dev_init(void)
{
    for (size_t i = 0; i < ARRAY_COUNT(memory_devices); i++)
        chardev_register(&memory_devices[i]);
}

/* ---- the tree ----------------------------------------------------------------------------------- */

static int add_directory(struct inode *root, const char *name, uint32_t mode)
{
    struct inode *dir;
    int r = root->ops->mkdir(root, name, S_IFDIR | mode, 0, 0, &dir);
    if (r == 0)
        inode_put(dir);
    return r;
}

static int add_link(struct inode *root, const char *name, const char *target)
{
    struct inode *link;
    int r = root->ops->symlink(root, name, target, 0, 0, &link);
    if (r == 0)
        inode_put(link);
    return r;
}

static int add_device(struct inode *root, const struct chardev *device)
{
    struct inode *node;
    int r = root->ops->mknod(root, device->name, S_IFCHR | device->mode, device->rdev, 0, 0, &node);
    if (r == 0)
        inode_put(node);
    return r;
}

int dev_new(struct superblock **ret_sb, struct inode **ret_root)
{
    static const char *const links[][2] = {{"fd", "/proc/self/fd"},
                                           {"stdin", "/proc/self/fd/0"},
                                           {"stdout", "/proc/self/fd/1"},
                                           {"stderr", "/proc/self/fd/2"},
                                           {"core", "/proc/kcore"}};
    struct superblock *sb;
    struct inode *root;
    int r = tmpfs_new(0755, 0, 0, 0, &sb, &root);
    if (r != 0)
        return r;
    sb->type_name = "devtmpfs";
    fmutex_lock(&root->lock);
    for (size_t i = 0; r == 0 && i < g_device_count; i++)
        if (g_devices[i]->name != NULL)
            r = add_device(root, g_devices[i]);
    for (size_t i = 0; r == 0 && i < ARRAY_COUNT(links); i++)
        r = add_link(root, links[i][0], links[i][1]);
    if (r == 0)
        r = add_directory(root, "pts", 0755);
    if (r == 0)
        r = add_directory(root, "shm", 01777);
    if (r == 0)
        r = add_directory(root, "mqueue", 01777);
    fmutex_unlock(&root->lock);
    if (r != 0) {
        inode_put(root);
        superblock_put(sb);
        return r;
    }
    *ret_sb = sb;
    *ret_root = root;
    return 0;
}
