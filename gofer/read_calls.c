/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls that change nothing, directories and extended attributes apart. The gofer's only thread; requests
 * come from a sentry that may be hostile and are decoded by then.
 */
#include "gofer/server_private.h"

#include "base/host.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>

/* #syscalls readlinkat: targets of symlinks
 * #syscalls fstatfs: statfs of an attach point
 * #syscalls fsync: FLUSH
 * #syscalls fcntl: a second descriptor of an attach point that is one file */

int call_attach(struct gofer_server *s, const struct gofer_attach_request *req,
                struct gofer_attach_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    if (req->index >= s->attach_count)
        return -ENOENT;
    struct attach *a = &s->attaches[req->index];
    const struct mask *mask = a->masks;
    struct place p = {.attach = a, .mask = mask, .hfd = a->hfd};
    int error = place_refresh(&p);
    if (error)
        return error;
    AUTO_FD hfd = (int)host_call3(SYS_fcntl, a->hfd, F_DUPFD_CLOEXEC, 0);
    if (hfd < 0)
        return hfd;
    uint64_t handle = handle_new(&s->table, hfd, a, mask);
    if (!handle)
        return -ENFILE;
    (void)take_fd(&hfd); /* the handle's */
    *reply = (struct gofer_attach_reply){.handle = handle, .stat = p.stat};
    reply->flags = (a->read_only ? GOFER_ATTACH_READ_ONLY : 0) | (a->is_file ? GOFER_ATTACH_FILE : 0);
    return 0;
}

static int read_target(struct gofer_server *s, const struct place *p)
{
    long size = host_call4(SYS_readlinkat, p->hfd, "", s->text, GOFER_TEXT_SIZE_MAX + 1);
    if (size < 0)
        return (int)size;
    if (size > (long)GOFER_TEXT_SIZE_MAX)
        return -ENAMETOOLONG;
    s->text[size] = '\0';
    return 0;
}

/* Why a walk that got -errno at a component stops there; DONE = not a reason, the errno is the answer. */
static enum gofer_walk_stop stop_of(int error)
{
    switch (error) {
    case -ENOENT:
        return GOFER_WALK_MISSING;
    case -ENOTDIR:
        return GOFER_WALK_NOT_DIR;
    case -EACCES:
        return GOFER_WALK_DENIED;
    default:
        return GOFER_WALK_DONE;
    }
}

/* One component: steps on, gives a directory a handle, writes the step. */
static int walk_one(struct gofer_server *s, struct place *at, const char *name, struct gofer_writer *w)
{
    struct place next;
    int error = place_step(s, at, name, &next);
    if (error)
        return error;
    struct gofer_step step = {.stat = next.stat};
    if (S_ISDIR(next.stat.mode) && !next.is_empty) {
        step.handle = handle_new(&s->table, next.hfd, next.attach, next.mask);
        next.is_owned = step.handle == 0;
    }
    place_put(at);
    *at = next;
    gofer_put_step(w, &step);
    return 0;
}

/* Copies the next component of a valid path into `name`, and returns what follows it. */
static const char *next_component(const char *path, char name[GOFER_NAME_MAX + 1])
{
    size_t len = strcspn(path, "/");
    memcpy(name, path, len);
    name[len] = '\0';
    return path + len + (path[len] == '/');
}

int call_walk(struct gofer_server *s, const struct gofer_walk_request *req, struct gofer_walk_reply *reply,
              int *ret_hfd)
{
    (void)ret_hfd;
    AUTO_PLACE at = PLACE_NONE;
    int error = place_from_handle(s, req->at, &at);
    if (error)
        return error;
    struct gofer_writer w;
    gofer_writer_init(&w, s->batch, sizeof(s->batch));
    *reply = (struct gofer_walk_reply){.stop = GOFER_WALK_DONE, .target = "", .steps = s->batch};
    const char *rest = req->at_path;
    while (*rest && reply->stop == GOFER_WALK_DONE) {
        char name[GOFER_NAME_MAX + 1];
        if (reply->count == GOFER_STEPS_MAX) {
            reply->stop = GOFER_WALK_MORE;
            break;
        }
        rest = next_component(rest, name);
        error = walk_one(s, &at, name, &w);
        if (!error) {
            reply->count++;
            if (S_ISLNK(at.stat.mode))
                reply->stop = GOFER_WALK_SYMLINK;
            continue;
        }
        reply->stop = stop_of(error);
        if (reply->stop == GOFER_WALK_DONE) {
            if (reply->count == 0)
                return error;
            reply->stop = GOFER_WALK_MORE;
        }
    }
    if (reply->stop == GOFER_WALK_SYMLINK) {
        /* Handles are given out by now, so this is no reason to fail: without it the sentry asks. */
        reply->target = read_target(s, &at) ? "" : s->text;
    }
    reply->steps_size = (uint32_t)(w.next - s->batch);
    return 0;
}

int call_open(struct gofer_server *s, const struct gofer_open_request *req, struct gofer_open_reply *reply,
              int *ret_hfd)
{
    if (req->access == 0 || (req->access & ~(GOFER_OPEN_READ | GOFER_OPEN_WRITE)))
        return -EINVAL;
    AUTO_PLACE parent = PLACE_NONE;
    const char *name;
    int error = place_resolve_parent(s, req->at, req->at_path, &parent, &name);
    if (error)
        return error;
    AUTO_FD hfd = place_open(s, &parent, name, req->access, &reply->stat);
    if (hfd < 0)
        return hfd;
    if (!S_ISREG(reply->stat.mode)) /* a directory's descriptor never leaves the gofer */
        return -EISDIR;
    *ret_hfd = take_fd(&hfd);
    return 0;
}

int call_getattr(struct gofer_server *s, const struct gofer_getattr_request *req,
                 struct gofer_getattr_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    AUTO_PLACE at = PLACE_NONE;
    int error = place_resolve(s, req->at, req->at_path, &at);
    if (!error)
        reply->stat = at.stat;
    return error;
}

int call_readlink(struct gofer_server *s, const struct gofer_readlink_request *req,
                  struct gofer_readlink_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    AUTO_PLACE at = PLACE_NONE;
    int error = place_resolve(s, req->at, req->at_path, &at);
    if (error)
        return error;
    if (!S_ISLNK(at.stat.mode))
        return -EINVAL;
    error = read_target(s, &at);
    reply->target = s->text;
    return error;
}

int call_statfs(struct gofer_server *s, const struct gofer_statfs_request *req,
                struct gofer_statfs_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    AUTO_PLACE at = PLACE_NONE;
    int error = place_resolve(s, req->at, req->at_path, &at);
    if (error)
        return error;
    struct statfs st;
    error = (int)host_call2(SYS_fstatfs, at.is_empty ? at.attach->hfd : at.hfd, &st);
    if (error)
        return error;
    *reply = (struct gofer_statfs_reply){.type = (uint64_t)st.f_type, .bsize = (uint64_t)st.f_bsize,
                                         .blocks = st.f_blocks, .bfree = st.f_bfree,
                                         .bavail = st.f_bavail, .files = st.f_files,
                                         .ffree = st.f_ffree, .namelen = (uint64_t)st.f_namelen,
                                         .frsize = (uint64_t)st.f_frsize};
    return 0;
}

int call_flush(struct gofer_server *s, const struct gofer_flush_request *req,
               struct gofer_flush_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    AUTO_PLACE parent = PLACE_NONE;
    const char *name;
    int error = place_resolve_parent(s, req->at, req->at_path, &parent, &name);
    if (error)
        return error;
    AUTO_FD hfd = place_open(s, &parent, name, GOFER_OPEN_READ, &reply->stat);
    return hfd < 0 ? hfd : (int)host_call1(SYS_fsync, hfd);
}

int call_close(struct gofer_server *s, const struct gofer_close_request *req,
               struct gofer_close_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    if (req->handles_size % sizeof(uint64_t) || req->handles_size / sizeof(uint64_t) > GOFER_CLOSE_MAX)
        return -EINVAL;
    struct wire_reader r;
    wire_reader_init(&r, req->handles, req->handles_size);
    reply->count = 0;
    while (r.left)
        reply->count += handle_close(&s->table, wire_get_u64(&r));
    return 0;
}
