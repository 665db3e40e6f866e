/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attach points and masks: made once, at the start, from the CLI's configuration, while host paths can
 * still be resolved. Each attach point becomes a detached mount of its own, nosuid and nodev, which no
 * other process can reach by path and which stays when the gofer's root becomes empty.
 */
#include "gofer/server_private.h"

#include "base/host.h"
#include "gofer/start.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

/* Nothing is declared for the filter: all of this happens before it. */

/* A private copy of the mounts at `path`. A copy without the mounts beneath it is only possible where
 * they aren't locked to it, which they are in a namespace made by a less privileged user; then they are
 * copied and RESOLVE_NO_XDEV keeps us out. */
static int clone_tree(const char *path, bool one_mount)
{
    long base = AT_NO_AUTOMOUNT | AT_SYMLINK_NOFOLLOW | OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC;
    long hfd = -EINVAL;
    if (one_mount)
        hfd = host_call3(SYS_open_tree, AT_FDCWD, path, base);
    if (hfd == -EINVAL)
        hfd = host_call3(SYS_open_tree, AT_FDCWD, path, base | AT_RECURSIVE);
    return (int)hfd;
}

static int restrict_tree(int hfd, bool read_only)
{
    struct mount_attr attr = {
        .attr_set = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (read_only ? MOUNT_ATTR_RDONLY : 0)};
    return (int)host_call5(SYS_mount_setattr, hfd, "", AT_EMPTY_PATH | AT_RECURSIVE, &attr, sizeof(attr));
}

/* A mount that is one file: there is no directory to open it from later, so it's opened now. */
static int open_file_root(struct attach *a, const char *path)
{
    int flags = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
    int hfd = (int)host_call3(SYS_openat, AT_FDCWD, path, flags | (a->read_only ? O_RDONLY : O_RDWR));
    a->file_access = GOFER_OPEN_READ | (a->read_only ? 0 : GOFER_OPEN_WRITE);
    if (hfd < 0)
        return hfd;
    a->file_hfd = hfd;
    struct statx seen, opened;
    int error = statx_at(a->hfd, "", &seen);
    if (!error)
        error = statx_at(hfd, "", &opened);
    if (error)
        return error;
    return seen.stx_ino == opened.stx_ino && seen.stx_dev_major == opened.stx_dev_major &&
                   seen.stx_dev_minor == opened.stx_dev_minor
               ? 0
               : -ESTALE;
}

static int check_root(struct attach *a, const struct gofer_attach *asked, const char **ret_what)
{
    struct statx stx;
    int error = statx_at(a->hfd, "", &stx);
    if (error)
        return error;
    uint64_t dev = makedev(stx.stx_dev_major, stx.stx_dev_minor);
    if (dev != asked->dev || stx.stx_ino != asked->ino) {
        *ret_what = "was exchanged while the sandbox started";
        return -ESTALE;
    }
    if ((stx.stx_mode & S_IFMT) != (asked->is_file ? S_IFREG : S_IFDIR)) {
        *ret_what = asked->is_file ? "is no regular file" : "is no directory";
        return -ENOTDIR;
    }
    a->mount_id = stx.stx_mnt_id;
    a->devs[0] = dev;
    a->dev_count = 1;
    return 0;
}

int attach_open(const struct gofer_config *config, size_t index, unsigned flags, struct attach *ret,
                const char **ret_what)
{
    const struct gofer_attach *asked = &config->attaches[index];
    struct attach *a = ret;
    *a = (struct attach){.hfd = -1,
                         .file_hfd = -1,
                         .read_only = asked->read_only || asked->public_only,
                         .is_file = asked->is_file,
                         .public_only = asked->public_only,
                         .one_mount = asked->one_mount,
                         .root_unmapped_ids = asked->public_only && !config->as_root};
    *ret_what = "can't be attached";
    if (flags & GOFER_SERVER_PLAIN)
        a->hfd = (int)host_call3(SYS_openat, AT_FDCWD, asked->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    else
        a->hfd = clone_tree(asked->path, asked->one_mount);
    if (a->hfd < 0)
        return a->hfd;
    int error = check_root(a, asked, ret_what);
    if (!error && !(flags & GOFER_SERVER_PLAIN))
        error = restrict_tree(a->hfd, a->read_only);
    if (!error && a->is_file)
        error = open_file_root(a, asked->path);
    return error;
}

void attach_fini(struct attach *a)
{
    host_close(a->hfd);
    host_close(a->file_hfd);
    *a = (struct attach){.hfd = -1, .file_hfd = -1};
}

/* ---- masks --------------------------------------------------------------------------------------- */

void mask_free(struct mask *mask)
{
    while (mask) { /* depth is bounded by GOFER_PATH_MAX; siblings in a loop */
        struct mask *next = mask->next;
        mask_free(mask->child);
        free(mask);
        mask = next;
    }
}

const struct mask *mask_child(const struct mask *mask, const char *name, size_t len)
{
    for (const struct mask *m = mask ? mask->child : NULL; m; m = m->next) {
        if (strncmp(m->name, name, len) == 0 && m->name[len] == '\0')
            return m;
    }
    return NULL;
}

static struct mask *mask_add(struct mask *parent, const char *name, size_t len)
{
    struct mask *mask = calloc(1, sizeof(*mask) + len + 1);
    if (!mask)
        return NULL;
    memcpy(mask->name, name, len);
    mask->next = parent->child;
    parent->child = mask;
    return mask;
}

static struct mask *mask_get(struct mask *parent, const char *name, size_t len)
{
    for (struct mask *m = parent->child; m; m = m->next) {
        if (strncmp(m->name, name, len) == 0 && m->name[len] == '\0')
            return m;
    }
    return mask_add(parent, name, len);
}

/* "." and ".." would name something else than they say here: such a path is refused. */
static int add_path(struct mask *root, const char *path)
{
    struct mask *at = root;
    while (*path) {
        size_t len = strcspn(path, "/");
        if (len > 0) {
            if (!gofer_name_is_valid(path, len))
                return -EINVAL;
            at = mask_get(at, path, len);
            if (!at)
                return -ENOMEM;
        }
        path += len + (path[len] == '/');
    }
    at->is_end = true;
    return 0;
}

int masks_new(const struct gofer_config *config, struct gofer_server *s)
{
    s->masks = calloc(1, sizeof(*s->masks) + 1);
    s->masked = calloc(config->mask_count + 1, sizeof(*s->masked));
    if (!s->masks || !s->masked)
        return -ENOMEM;
    for (size_t i = 0; i < config->mask_count; i++) {
        int error = add_path(s->masks, config->masks[i]);
        if (error)
            return error;
        /* By identity as well: another name of the same object (bind mount, hard link, symlink on the way)
         * is no way round the mask. What isn't there yet is masked by name only. */
        struct statx stx;
        if (host_call5(SYS_statx, AT_FDCWD, config->masks[i], AT_NO_AUTOMOUNT, STATX_INO, &stx) == 0)
            s->masked[s->masked_count++] = (struct file_id){
                .dev = makedev(stx.stx_dev_major, stx.stx_dev_minor), .ino = stx.stx_ino};
    }
    return 0;
}
