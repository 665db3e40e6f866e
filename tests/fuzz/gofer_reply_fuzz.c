/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile gofer: its answers to what the sentry's file system asks come from the input. For each call a byte
 * says how: 0 an errno (the next byte), 1 raw bytes (u16 size, bytes), 2 and more a walk, entries or attributes
 * that decode, with types and numbers from the input. Nothing may crash, hang or leak.
 */
#include "base/log.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/fs/gofer/gofer_fs.h"
#include "sentry/fs/gofer/node.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

struct input {
    const uint8_t *bytes;
    size_t size;
    int calls;
};

static uint8_t get(struct input *in)
{
    if (!in->size)
        return 0;
    in->size--;
    return *in->bytes++;
}

static struct gofer_stat make_stat(struct input *in)
{
    static const uint32_t types[] = {S_IFDIR, S_IFREG, S_IFLNK, S_IFIFO, S_IFCHR, S_IFSOCK, S_IFDIR, 0};
    uint8_t b = get(in);
    return (struct gofer_stat){.mode = types[b & 7] | 0755, .ino = b >> 3 & 7, .dev_index = b >> 6,
                               .nlink = b & 1, .size = get(in), .blksize = 4096};
}

static int64_t make_walk(struct input *in, struct gofer_writer *w)
{
    static uint8_t steps[8192];
    struct gofer_writer sw;
    size_t before = w->left;
    gofer_writer_init(&sw, steps, sizeof(steps));
    uint8_t b = get(in);
    struct gofer_walk_reply reply = {.count = b & 7, .stop = b >> 3 & 7, .target = b & 64 ? "x/y" : ""};
    for (uint32_t i = 0; i < reply.count; i++) {
        struct gofer_step step = {.stat = make_stat(in)};
        step.handle = S_ISDIR(step.stat.mode) ? get(in) : 0;
        gofer_put_step(&sw, &step);
    }
    reply.steps = steps;
    reply.steps_size = (uint32_t)(sw.next - steps);
    gofer_put_walk_reply(w, &reply);
    return (int64_t)(before - w->left);
}

static int64_t make_entries(struct input *in, struct gofer_writer *w)
{
    static uint8_t entries[8192];
    static const char *const names[] = {"a", "b", "c", "a", "long name", "d", "e", "f"};
    struct gofer_writer ew;
    size_t before = w->left;
    gofer_writer_init(&ew, entries, sizeof(entries));
    uint8_t b = get(in);
    struct gofer_readdir_reply reply = {.count = b & 15, .is_end = b >> 4 & 1, .handle = b >> 5};
    for (uint32_t i = 0; i < reply.count; i++) {
        struct gofer_entry entry = {.cookie = get(in), .stat = make_stat(in), .name = names[get(in) & 7]};
        gofer_put_entry(&ew, &entry);
    }
    reply.entries = entries;
    reply.entries_size = (uint32_t)(ew.next - entries);
    gofer_put_readdir_reply(w, &reply);
    return (int64_t)(before - w->left);
}

static int64_t make_raw(struct input *in, uint8_t *reply)
{
    size_t size = get(in);
    size |= (size_t)get(in) << 8;
    if (size > in->size)
        size = in->size;
    memcpy(reply, in->bytes, size);
    in->bytes += size;
    in->size -= size;
    return (int64_t)size;
}

static int64_t make_attributes(struct input *in, struct gofer_writer *w, uint32_t kind)
{
    size_t before = w->left;
    struct gofer_stat stat = make_stat(in);
    gofer_put_stat(w, &stat);
    if (kind == GOFER_KIND_CREATE || kind == GOFER_KIND_MKDIR || kind == GOFER_KIND_SYMLINK ||
        kind == GOFER_KIND_LINK || kind == GOFER_KIND_RENAME)
        gofer_put_stat(w, &stat);
    return (int64_t)(before - w->left);
}

static int64_t answer(void *arg, uint8_t *slot, int *ret_hfd)
{
    struct input *in = arg;
    struct gofer_header header;
    struct gofer_writer w;
    uint8_t *reply = slot + GOFER_REQUEST_MAX;
    ASSERT(gofer_get_header(slot, &header) == 0);
    gofer_writer_init(&w, reply, GOFER_REPLY_MAX);
    if (in->calls++ == 0) {
        struct gofer_attach_reply attach = {.handle = 1, .stat = {.mode = S_IFDIR | 0755, .ino = 1, .nlink = 2}};
        gofer_put_attach_reply(&w, &attach);
        return (int64_t)(GOFER_REPLY_MAX - w.left);
    }
    uint8_t how = get(in);
    if (how == 0)
        return -(int64_t)get(in);
    if (how == 1)
        return make_raw(in, reply);
    if (how == 3)
        return INT64_MAX - get(in);
    int64_t size = header.kind == GOFER_KIND_WALK      ? make_walk(in, &w)
                   : header.kind == GOFER_KIND_READDIR ? make_entries(in, &w)
                                                       : make_attributes(in, &w, header.kind);
    if (how & 64) {
        *ret_hfd = memfd_create("donated", MFD_CLOEXEC);
        size |= GOFER_RESULT_FD;
    }
    return size;
}

static bool emit(struct dir_context *ctx, const char *name, size_t size, uint64_t ino, uint8_t type, int64_t next)
{
    (void)ctx;
    (void)ino;
    (void)type;
    (void)next;
    ASSERT(size > 0 && size <= GOFER_NAME_MAX && strlen(name) == size);
    return true;
}

static void use_directory(struct inode *dir)
{
    struct file f = {.inode = dir, .flags = O_RDONLY};
    struct dir_context ctx = {.emit = emit};
    if (dir->ops->open(dir, &f))
        return;
    (void)f.ops->iterate(&f, &ctx);
    ctx.pos = 5;
    (void)f.ops->iterate(&f, &ctx);
    f.ops->release(&f);
}

static void use_file(struct inode *inode, uint8_t how)
{
    struct file f = {.inode = inode, .flags = how & 1 ? O_RDWR : O_RDONLY};
    char buffer[16];
    struct io io;
    int64_t pos = 0;
    if (inode->ops->open(inode, &f))
        return;
    struct creds *creds = creds_new(0, 0, NULL, 0);
    f.creds = creds;
    io_init_kernel(&io, buffer, sizeof(buffer));
    (void)!f.ops->read(&f, &io, &pos);
    io_init_kernel(&io, buffer, sizeof(buffer));
    if (how & 1)
        (void)!f.ops->write(&f, &io, &pos);
    f.ops->release(&f);
    creds_put(creds);
}

static void use(struct inode *inode, uint8_t how)
{
    struct kstat st;
    char *target = NULL;
    (void)inode->ops->getattr(inode, &st);
    struct iattr attr = {.valid = ATTR_MODE | ATTR_SIZE, .mode = 0600, .size = 3};
    if (how & 2)
        (void)inode->ops->setattr(inode, &attr);
    if (inode->ops->getxattr && (how & 4)) {
        char list[64];
        (void)!inode->ops->getxattr(inode, "user.x", list, sizeof(list));
        (void)!inode->ops->listxattr(inode, list, sizeof(list));
    }
    if (S_ISDIR(inode->mode))
        use_directory(inode);
    else if (S_ISREG(inode->mode))
        use_file(inode, how);
    else if (inode->ops->readlink && inode->ops->readlink(inode, &target) == 0)
        free(target);
}

/* Walks down from `dir`, and does to each object what the input says. */
static void explore(struct input *in, struct inode *root)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    struct inode *at = root;
    inode_get(at);
    for (int i = 0; i < 24 && in->size; i++) {
        uint8_t how = get(in);
        const char *name = names[how & 3];
        struct inode *next = NULL;
        if (how & 128)
            at->ops->lookup_ahead(at, NULL, "a/b/c/d");
        if (how & 64 && (how & 32 ? at->ops->create(at, name, 0644, 0, 0, &next)
                                  : at->ops->mkdir(at, name, 0755, 0, 0, &next)))
            next = NULL;
        if (!next && at->ops->lookup(at, name, &next))
            next = NULL;
        if (!next) {
            inode_put(at);
            at = root;
            inode_get(at);
            continue;
        }
        use(next, how);
        if (how == 17)
            (void)at->ops->unlink(at, name, next);
        if (how == 18)
            (void)at->ops->rename(at, name, next, root, "a", NULL, 0);
        if (how == 19)
            (void)at->ops->link(at, "d", next);
        if (S_ISDIR(next->mode)) {
            inode_put(at);
            at = next;
        } else {
            inode_put(next);
        }
    }
    inode_put(at);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct input in = {.bytes = bytes, .size = size};
    struct gofer_client *client;
    struct superblock *sb;
    struct inode *root;
    log_init(-1, LOG_FORMAT_TEXT, LOG_LEVEL_ERR, "fuzz");
    bool shared = get(&in) & 1;
    ASSERT(gofer_client_new_by_function(answer, &in, &client) == 0);
    ASSERT(gofer_fs_new(client, 0, shared, &sb, &root) == 0);
    explore(&in, root);
    inode_put(root);
    superblock_put(sb);
    gofer_client_free(client);
    return 0;
}
