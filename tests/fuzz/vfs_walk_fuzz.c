/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Path walk on a small tree that the input describes: lines "d PATH" (mkdir), "f PATH" (file), "l
 * PATH TARGET" (symlink), "m FROM TO" (rename), "u PATH" (unlink, rmdir), "w FLAGS PATH" (walk,
 * flags a decimal number). A walk beneath a directory must end beneath it, and a place's text must
 * lead to the same place.
 */
#include "base/log.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/vfs/vfs_internal.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#define INPUT_MAX 4096
#define CHECKED_FLAGS                                                                              \
    (WALK_FOLLOW | WALK_DIRECTORY | WALK_EMPTY | WALK_NO_SYMLINKS | WALK_BENEATH | WALK_IN_ROOT)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const struct walk_context *ctx, const struct path *p)
{
    char *text = NULL;
    struct path again = {0};
    if (vfs_path_text(p, &ctx->root, &text) < 0)
        return;
    ASSERT(text[0] == '/');
    ASSERT(vfs_walk(ctx, &ctx->cwd, text, 0, &again) == 0);
    ASSERT(again.dentry == p->dentry);
    path_put(&again);
    free(text);
}

static void walk(const struct walk_context *ctx, char *arguments)
{
    char *end;
    uint32_t flags = (uint32_t)strtoul(arguments, &end, 10) & CHECKED_FLAGS;
    if (*end == ' ')
        end++;
    struct path base = {0};
    struct path found = {0};
    if (vfs_walk(ctx, &ctx->cwd, "/a", WALK_DIRECTORY, &base) < 0) {
        base = ctx->root;
        path_get(&base);
    }
    if (vfs_walk(ctx, &base, end, flags, &found) == 0) {
        if (flags & (WALK_BENEATH | WALK_IN_ROOT))
            ASSERT(dcache_is_ancestor(base.dentry, found.dentry));
        check_text(ctx, &found);
        path_put(&found);
    }
    char name[VFS_NAME_MAX + 1];
    bool slash;
    bool special;
    if (vfs_walk_parent(ctx, &base, end, flags & ~(uint32_t)WALK_FOLLOW, &found, name, &slash,
                        &special) == 0) {
        ASSERT(special || (name[0] && !strchr(name, '/')));
        path_put(&found);
    }
    path_put(&base);
}

/* The second word of "A B", which it cuts off. */
static char *second(char *words)
{
    char *space = strchr(words, ' ');
    if (!space)
        return words + strlen(words);
    *space = '\0';
    return space + 1;
}

static void run_line(const struct walk_context *ctx, char *line)
{
    struct file *f;
    if (!line[0] || line[1] != ' ')
        return;
    char *a = line + 2;
    char *b = line[0] == 'l' || line[0] == 'm' ? second(a) : NULL;
    switch (line[0]) {
    case 'd':
        (void)vfs_mkdir(ctx, &ctx->cwd, a, 0755);
        break;
    case 'f':
        if (vfs_open(ctx, &ctx->cwd, a, O_CREAT | O_RDWR, 0644, 0, &f) == 0)
            file_put(f);
        break;
    case 'l':
        (void)vfs_symlink(ctx, &ctx->cwd, a, b);
        break;
    case 'm':
        (void)vfs_rename(ctx, &ctx->cwd, a, &ctx->cwd, b, 0);
        break;
    case 'u':
        if (vfs_unlink(ctx, &ctx->cwd, a) < 0)
            (void)vfs_rmdir(ctx, &ctx->cwd, a);
        break;
    case 'w':
        walk(ctx, a);
        break;
    default:
        break;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > INPUT_MAX)
        return 0;
    struct superblock *sb;
    struct inode *root;
    struct creds *creds = creds_new(0, 0, NULL, 0);
    char *text = malloc(size + 1);
    ASSERT(creds && text && tmpfs_new(0755, 0, 0, 0, &sb, &root) == 0);
    memcpy(text, data, size);
    text[size] = '\0';
    struct mount_namespace *ns = mount_namespace_new(sb, root, 0, "fuzz");
    ASSERT(ns);
    struct walk_context ctx = {.ns = ns, .creds = creds, .root = {ns->root, ns->root->root}};
    ctx.cwd = ctx.root;
    dcache_set_limit(8);

    char *rest = text;
    for (char *line; (line = strsep(&rest, "\n"));)
        run_line(&ctx, line);

    mount_put(ns->root);
    lock_fini(&ns->lock);
    free(ns);
    inode_put(root);
    superblock_put(sb);
    creds_put(creds);
    free(text);
    ASSERT(tmpfs_used() == 0);
    return 0;
}
