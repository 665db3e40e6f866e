/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended attributes of files and directories: "user.*", and "security.capability" for reading. All
 * others would be the host's business. The gofer's only thread; requests come from a sentry that may be
 * hostile.
 */
#include "gofer/server_private.h"

#include "base/host.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

/* #syscalls fgetxattr,flistxattr,fsetxattr,fremovexattr: extended attributes */

static bool is_user(const char *name)
{
    size_t len = strlen(name);
    return strncmp(name, "user.", 5) == 0 && len > 5 && len <= 255;
}

static bool may_show(const char *name)
{
    return is_user(name) || strcmp(name, "security.capability") == 0;
}

/* The object opened for reading, and its place to look at again after a change. Other types than files and
 * directories have none of these attributes. */
static int open_object(struct gofer_server *s, uint64_t handle, const char *path, bool is_change)
{
    AUTO_PLACE parent = PLACE_NONE;
    const char *name;
    int error = place_resolve_parent(s, handle, path, &parent, &name);
    if (error)
        return error;
    if (is_change && parent.attach->read_only)
        return -EROFS;
    int hfd = place_open(s, &parent, name, GOFER_OPEN_READ, NULL);
    return hfd == -ENXIO ? (is_change ? -EPERM : -ENODATA) : hfd;
}

int call_getxattr(struct gofer_server *s, const struct gofer_getxattr_request *req,
                  struct gofer_getxattr_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    if (!may_show(req->name))
        return -EOPNOTSUPP;
    AUTO_FD hfd = open_object(s, req->at, req->at_path, false);
    if (hfd < 0)
        return hfd;
    long size = host_call4(SYS_fgetxattr, hfd, req->name, s->value, sizeof(s->value));
    if (size < 0)
        return (int)size;
    reply->value = s->value;
    reply->value_size = (uint32_t)size;
    return 0;
}

int call_listxattr(struct gofer_server *s, const struct gofer_listxattr_request *req,
                   struct gofer_listxattr_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    *reply = (struct gofer_listxattr_reply){.names = s->names};
    AUTO_FD hfd = open_object(s, req->at, req->at_path, false);
    if (hfd < 0)
        return hfd == -ENODATA ? 0 : hfd;
    long size = host_call3(SYS_flistxattr, hfd, s->value, sizeof(s->value));
    if (size < 0)
        return size == -EOPNOTSUPP ? 0 : (int)size;
    for (long at = 0; at < size;) {
        const char *name = (const char *)s->value + at;
        size_t here = strnlen(name, (size_t)(size - at)) + 1;
        if (here > (size_t)(size - at))
            break;
        if (may_show(name)) {
            memcpy(s->names + reply->names_size, name, here);
            reply->names_size += (uint32_t)here;
        }
        at += (long)here;
    }
    return 0;
}

static int stat_of(struct gofer_server *s, uint64_t handle, const char *path, struct gofer_stat *ret)
{
    AUTO_PLACE at = PLACE_NONE;
    int error = place_resolve(s, handle, path, &at);
    if (!error)
        *ret = at.stat;
    return error;
}

int call_setxattr(struct gofer_server *s, const struct gofer_setxattr_request *req,
                  struct gofer_setxattr_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    if (!is_user(req->name))
        return -EOPNOTSUPP;
    if (req->flags & ~(uint32_t)(XATTR_CREATE | XATTR_REPLACE))
        return -EINVAL;
    AUTO_FD hfd = open_object(s, req->at, req->at_path, true);
    if (hfd < 0)
        return hfd;
    int error =
        (int)host_call5(SYS_fsetxattr, hfd, req->name, req->value, req->value_size, req->flags);
    return error ? error : stat_of(s, req->at, req->at_path, &reply->stat);
}

int call_removexattr(struct gofer_server *s, const struct gofer_removexattr_request *req,
                     struct gofer_removexattr_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    if (!is_user(req->name))
        return -EOPNOTSUPP;
    AUTO_FD hfd = open_object(s, req->at, req->at_path, true);
    if (hfd < 0)
        return hfd;
    int error = (int)host_call2(SYS_fremovexattr, hfd, req->name);
    return error ? error : stat_of(s, req->at, req->at_path, &reply->stat);
}
