/* SPDX-License-Identifier: Apache-2.0 */
/* A mount namespace on a tmpfs, and short forms of what the tests of vfs and file systems do with it. */
#pragma once

#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/vfs/vfs.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static struct walk_context g_ctx;
static struct creds *g_root __attribute__((used)); /* used: or a leak checker misses what only they hold */
static struct creds *g_user __attribute__((used));

static UNUSED void use_creds(struct creds *c)
{
    g_ctx.creds = c;
}

static UNUSED void fixture_mount(struct superblock *sb, struct inode *root)
{
    if (!g_root) {
        g_root = creds_new(0, 0, NULL, 0);
        g_user = creds_new(1000, 1000, NULL, 0);
    }
    g_ctx.ns = mount_namespace_new(sb, root, 0, "root");
    cr_assert(g_ctx.ns);
    g_ctx.root = (struct path){g_ctx.ns->root, g_ctx.ns->root->root};
    g_ctx.cwd = g_ctx.root;
    use_creds(g_root);
}

static UNUSED void fixture_tmpfs(void)
{
    struct superblock *sb;
    struct inode *root;
    cr_assert_eq(tmpfs_new(0755, 0, 0, 0, &sb, &root), 0);
    fixture_mount(sb, root);
    inode_put(root);
    superblock_put(sb);
}

static UNUSED struct file *open_ok(const char *path, int flags, uint32_t mode)
{
    struct file *f = NULL;
    int r = vfs_open(&g_ctx, &g_ctx.cwd, path, (uint32_t)flags, mode, 0, &f);
    cr_assert_eq(r, 0, "open %s: %d", path, r);
    return f;
}

static UNUSED int open_error(const char *path, int flags)
{
    struct file *f = NULL;
    int r = vfs_open(&g_ctx, &g_ctx.cwd, path, (uint32_t)flags, 0644, 0, &f);
    if (r == 0)
        file_put(f);
    return r;
}

static UNUSED ssize_t put(struct file *f, const void *bytes, size_t size)
{
    struct io io;
    io_init_kernel(&io, (void *)(uintptr_t)bytes, size);
    return vfs_write(f, &io);
}

static UNUSED ssize_t put_at(struct file *f, const void *bytes, size_t size, int64_t pos)
{
    struct io io;
    io_init_kernel(&io, (void *)(uintptr_t)bytes, size);
    return vfs_pwrite(f, &io, pos);
}

static UNUSED ssize_t get_at(struct file *f, void *buffer, size_t size, int64_t pos)
{
    struct io io;
    io_init_kernel(&io, buffer, size);
    return vfs_pread(f, &io, pos);
}

static UNUSED void make_file(const char *path, const char *text)
{
    struct file *f = open_ok(path, O_CREAT | O_WRONLY | O_TRUNC, 0644);
    cr_assert_eq(put(f, text, strlen(text)), (ssize_t)strlen(text));
    file_put(f);
}

static UNUSED const char *text_of(const char *path)
{
    static char text[4096];
    struct file *f = open_ok(path, O_RDONLY, 0);
    ssize_t n = get_at(f, text, sizeof(text) - 1, 0);
    cr_assert_geq(n, 0);
    text[n] = '\0';
    file_put(f);
    return text;
}

static UNUSED int stat_of(const char *path, uint32_t flags, struct kstat *st)
{
    struct path p = {0};
    int r = vfs_walk(&g_ctx, &g_ctx.cwd, path, flags, &p);
    if (r == 0)
        r = vfs_getattr(&p, st);
    path_put(&p);
    return r;
}

static UNUSED int exists(const char *path)
{
    struct kstat st;
    return stat_of(path, 0, &st);
}

static UNUSED uint64_t ino_of(const char *path)
{
    struct kstat st;
    cr_assert_eq(stat_of(path, 0, &st), 0, "%s", path);
    return st.ino;
}

static UNUSED int make_dir(const char *path)
{
    return vfs_mkdir(&g_ctx, &g_ctx.cwd, path, 0755);
}

static UNUSED int move(const char *from, const char *to, uint32_t flags)
{
    return vfs_rename(&g_ctx, &g_ctx.cwd, from, &g_ctx.cwd, to, flags);
}

struct listing {
    struct dir_context ctx;
    char names[8192]; /* "a b c " */
    size_t count;
    size_t stop_after; /* 0: never */
};

static UNUSED bool collect(struct dir_context *ctx, const char *name, size_t size, uint64_t ino UNUSED,
                           uint8_t type UNUSED, int64_t next UNUSED)
{
    struct listing *l = container_of(ctx, struct listing, ctx);
    if (l->stop_after && l->count == l->stop_after)
        return false;
    l->count++;
    size_t used = strlen(l->names);
    if (used + size + 2 < sizeof(l->names)) {
        memcpy(l->names + used, name, size);
        strcpy(l->names + used + size, " ");
    }
    return true;
}

static UNUSED struct listing *list_of(const char *path)
{
    static struct listing l;
    memset(&l, 0, sizeof(l));
    l.ctx.emit = collect;
    struct file *f = open_ok(path, O_RDONLY | O_DIRECTORY, 0);
    cr_assert_eq(vfs_iterate(f, &l.ctx), 0);
    file_put(f);
    return &l;
}

static UNUSED bool lists(const struct listing *l, const char *name)
{
    char key[300];
    snprintf(key, sizeof(key), "%s ", name);
    for (const char *s = l->names; (s = strstr(s, key)); s++)
        if (s == l->names || s[-1] == ' ')
            return true;
    return false;
}
