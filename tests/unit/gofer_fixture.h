/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A temporary tree of host files with something outside of it that must not be reached, and a gofer server on
 * it in this process. For the gofer's tests.
 */
#pragma once

#include "gofer/protocol.h"
#include "gofer/server.h"
#include "gofer/start.h"
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct tree {
    char top[64];  /* mkdtemp */
    char root[80]; /* top/root: what is attached */
};

static inline void tree_path(const struct tree *t, const char *name, char out[4200])
{
    snprintf(out, 4200, "%s/%s", t->root, name);
}

static inline void tree_write(const struct tree *t, const char *name, const char *content, mode_t mode)
{
    char path[4200];
    tree_path(t, name, path);
    FILE *f = fopen(path, "w");
    if (!f) {
        perror(path);
        abort();
    }
    fputs(content, f);
    fclose(f);
    chmod(path, mode);
}

static inline void tree_mkdir(const struct tree *t, const char *name, mode_t mode)
{
    char path[4200];
    tree_path(t, name, path);
    if (mkdir(path, 0755)) {
        perror(path);
        abort();
    }
    chmod(path, mode);
}

static inline void tree_symlink(const struct tree *t, const char *name, const char *target)
{
    char path[4200];
    tree_path(t, name, path);
    if (symlink(target, path)) {
        perror(path);
        abort();
    }
}

/* root/{a/b/c/file, hello, private, link -> hello, out -> ../secret, etc -> /etc, fifo, shut/}, secret */
static inline void tree_make(struct tree *t)
{
    umask(0);
    strcpy(t->top, "/tmp/bailey-gofer-XXXXXX");
    if (!mkdtemp(t->top)) {
        perror("mkdtemp");
        abort();
    }
    chmod(t->top, 0755);
    snprintf(t->root, sizeof(t->root), "%s/root", t->top);
    mkdir(t->root, 0755);
    tree_mkdir(t, "a", 0755);
    tree_mkdir(t, "a/b", 0755);
    tree_mkdir(t, "a/b/c", 0755);
    tree_write(t, "a/b/c/file", "deep", 0644);
    tree_write(t, "hello", "hello, world", 0644);
    tree_write(t, "private", "nobody's business", 0600);
    tree_write(t, "../secret", "TOKEN", 0644);
    tree_symlink(t, "link", "hello");
    tree_symlink(t, "out", "../secret");
    tree_symlink(t, "etc", "/etc");
    tree_mkdir(t, "shut", 0700);
    tree_write(t, "shut/inside", "x", 0644);
    char path[4200];
    tree_path(t, "fifo", path);
    mkfifo(path, 0666);
}

static inline int tree_remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static inline void tree_remove(const struct tree *t)
{
    nftw(t->top, tree_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline struct gofer_attach tree_attach(struct tree *t)
{
    struct stat st;
    stat(t->root, &st);
    return (struct gofer_attach){.path = t->root, .dev = st.st_dev, .ino = st.st_ino};
}

static inline struct gofer_server *server_on(struct gofer_attach *attaches, size_t count, char **masks,
                                             size_t mask_count)
{
    struct gofer_config config = {.as_root = geteuid() == 0, .attaches = attaches, .attach_count = count,
                                  .masks = masks, .mask_count = mask_count};
    struct gofer_server *server;
    char *why = NULL;
    int error = gofer_server_new_flags(&config, GOFER_SERVER_PLAIN, &server, &why);
    if (error) {
        fprintf(stderr, "server: %s (%d)\n", why ? why : "", error);
        abort();
    }
    return server;
}

/* One call, encoded and decoded as over the wire: do_walk(server, &request, &reply)… The descriptor that came
 * is in g_hfd (-1 if none). Strings of the reply are in a static buffer. */
static int g_hfd = -1;
static uint8_t g_request[GOFER_REQUEST_MAX];
static uint8_t g_reply[GOFER_REPLY_MAX];

#define GOFER_CALL(NAME, name, needs, request, reply)                                              \
    __attribute__((unused)) static int do_##name(struct gofer_server *server,                      \
                                                 const struct gofer_##name##_request *req,         \
                                                 struct gofer_##name##_reply *ret)                 \
    {                                                                                              \
        struct gofer_writer w;                                                                     \
        bool malformed;                                                                            \
        gofer_writer_init(&w, g_request + GOFER_REQUEST_HEADER, sizeof(g_request) - GOFER_REQUEST_HEADER); \
        gofer_put_##name##_request(&w, req);                                                       \
        size_t size = (size_t)(w.next - g_request);                                                \
        gofer_put_header(g_request, &(struct gofer_header){.kind = GOFER_KIND_##NAME,              \
                                                           .size = (uint32_t)size - GOFER_REQUEST_HEADER}); \
        int64_t result =                                                                           \
            gofer_server_handle(server, g_request, size, g_reply, sizeof(g_reply), &g_hfd, &malformed); \
        if (malformed)                                                                             \
            return -EPROTO;                                                                        \
        if (result < 0)                                                                            \
            return (int)result;                                                                    \
        struct wire_reader r;                                                                      \
        wire_reader_init(&r, g_reply, (size_t)result);                                             \
        gofer_get_##name##_reply(&r, ret);                                                         \
        return wire_reader_done(&r) ? 0 : -EBADMSG;                                                \
    }
#include "gofer/protocol.def"

static inline uint64_t root_handle(struct gofer_server *server, uint32_t index)
{
    struct gofer_attach_request req = {.index = index};
    struct gofer_attach_reply reply;
    return do_attach(server, &req, &reply) ? 0 : reply.handle;
}
