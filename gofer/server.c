/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The server's life, and the dispatch of requests by the table in gofer/protocol.def. The gofer's only
 * thread. A request that doesn't decode is reported as malformed: its sender is no sentry of ours.
 */
#include "gofer/server.h"

#include "base/host.h"
#include "gofer/server_private.h"
#include "gofer/start.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define SPARE_FDS 128u /* beyond the handles: streams, objects being opened, our own */

/* As many descriptors as we're allowed to have; the limit of handles follows from it. */
static uint32_t raise_fd_limit(void)
{
    struct rlimit limit = {0, 0};
    if (host_call4(SYS_prlimit64, 0, RLIMIT_NOFILE, NULL, &limit) < 0)
        return 256;
    rlim_t wanted = HANDLES_MAX + SPARE_FDS;
    if (limit.rlim_cur < wanted) {
        struct rlimit raised = {limit.rlim_max < wanted ? limit.rlim_max : wanted, limit.rlim_max};
        if (host_call4(SYS_prlimit64, 0, RLIMIT_NOFILE, &raised, NULL) == 0)
            limit = raised;
    }
    if (limit.rlim_cur >= wanted)
        return HANDLES_MAX;
    return limit.rlim_cur > 2 * SPARE_FDS ? (uint32_t)limit.rlim_cur - SPARE_FDS : SPARE_FDS / 2;
}

/* The mask tree begins at the host's root: an attach point deeper in it begins further down. */
static const struct mask *masks_beneath(const struct gofer_server *s, const char *path)
{
    const struct mask *at = s->masks;
    while (at && *path) {
        size_t len = strcspn(path, "/");
        if (len > 0)
            at = mask_child(at, path, len);
        path += len + (path[len] == '/');
    }
    return at;
}

static int open_attaches(const struct gofer_config *config, unsigned flags, struct gofer_server *s,
                         char **ret_why)
{
    s->attaches = calloc(config->attach_count + 1, sizeof(*s->attaches));
    if (!s->attaches)
        return -ENOMEM;
    for (size_t i = 0; i < config->attach_count; i++) {
        const char *what;
        struct attach *a = &s->attaches[s->attach_count++];
        int error = attach_open(config, i, flags, a, &what);
        if (error) {
            if (asprintf(ret_why, "%s: %s: %s", config->attaches[i].path, what, strerror(-error)) < 0)
                *ret_why = NULL;
            return error;
        }
        a->masks = a->public_only ? masks_beneath(s, config->attaches[i].path) : NULL;
    }
    return 0;
}

int gofer_server_new_flags(const struct gofer_config *config, unsigned flags, struct gofer_server **ret,
                           char **ret_why)
{
    *ret_why = NULL;
    struct gofer_server *s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->as_root = config->as_root;
    for (size_t i = 0; i < DIR_STREAMS; i++)
        s->streams[i].hfd = -1;
    handle_table_init(&s->table, raise_fd_limit());
    int error = masks_new(config, s);
    if (!error)
        error = open_attaches(config, flags, s, ret_why);
    if (error) {
        gofer_server_free(s);
        return error;
    }
    *ret = s;
    return 0;
}

int gofer_server_new(const struct gofer_config *config, struct gofer_server **ret, char **ret_why)
{
    return gofer_server_new_flags(config, 0, ret, ret_why);
}

void gofer_server_free(struct gofer_server *s)
{
    if (!s)
        return;
    handle_table_fini(&s->table);
    for (size_t i = 0; i < s->attach_count; i++)
        attach_fini(&s->attaches[i]);
    for (size_t i = 0; i < DIR_STREAMS; i++)
        host_close(s->streams[i].hfd);
    free(s->attaches);
    free(s->masked);
    mask_free(s->masks);
    free(s);
}

size_t gofer_server_roots(const struct gofer_server *s, struct gofer_root *roots)
{
    for (size_t i = 0; i < s->attach_count; i++)
        roots[i] = (struct gofer_root){s->attaches[i].hfd, !s->attaches[i].read_only};
    return s->attach_count;
}

/* One function for each call: decode, execute, encode. */
#define GOFER_CALL(NAME, name, needs, request, reply)                                              \
    static int64_t serve_##name(struct gofer_server *s, struct wire_reader *r,                     \
                                struct gofer_writer *w, int *ret_hfd, bool *ret_malformed)         \
    {                                                                                              \
        struct gofer_##name##_request req;                                                         \
        struct gofer_##name##_reply fields;                                                        \
        memset(&fields, 0, sizeof(fields));                                                        \
        gofer_get_##name##_request(r, &req);                                                       \
        if (!wire_reader_done(r)) {                                                                \
            *ret_malformed = true;                                                                 \
            return -EPROTO;                                                                        \
        }                                                                                          \
        int error = call_##name(s, &req, &fields, ret_hfd);                                        \
        if (error)                                                                                 \
            return error;                                                                          \
        size_t before = w->left;                                                                   \
        gofer_put_##name##_reply(w, &fields);                                                      \
        return w->failed ? -EOVERFLOW : (int64_t)(before - w->left);                               \
    }
#include "gofer/protocol.def"

typedef int64_t (*serve_fn)(struct gofer_server *s, struct wire_reader *r, struct gofer_writer *w,
                            int *ret_hfd, bool *ret_malformed);

static const serve_fn serve_table[] = {
#define GOFER_CALL(NAME, name, needs, request, reply) serve_##name,
#include "gofer/protocol.def"
};
_Static_assert(ARRAY_COUNT(serve_table) == GOFER_KIND_COUNT, "one function for each call");

int64_t gofer_server_handle(struct gofer_server *s, const uint8_t *request, size_t size, void *reply,
                            size_t reply_size, int *ret_hfd, bool *ret_malformed)
{
    struct gofer_header header;
    *ret_hfd = -1;
    *ret_malformed = false;
    if (size < GOFER_REQUEST_HEADER || gofer_get_header(request, &header) ||
        header.size != size - GOFER_REQUEST_HEADER) {
        *ret_malformed = true;
        return -EPROTO;
    }
    struct wire_reader r;
    struct gofer_writer w;
    wire_reader_init(&r, request + GOFER_REQUEST_HEADER, header.size);
    gofer_writer_init(&w, reply, reply_size);
    int64_t result = serve_table[header.kind](s, &r, &w, ret_hfd, ret_malformed);
    if (result < 0) {
        host_close(*ret_hfd);
        *ret_hfd = -1;
    }
    return result;
}
