/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the files of the gofer's server share. Nothing outside gofer/ includes it.
 *
 * A *place* is one object beneath an attach point that a request named, opened with O_PATH, with its
 * attributes as they were when it was opened. Every way to a place goes through place_step(), which
 * applies the attach point's rules (masks, public_only, one_mount).
 */
#pragma once

#include "gofer/protocol.h"
#include "gofer/server.h"
#include <linux/stat.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct statx;

/* One component of a masked path: the rest of the tree is beside it or beneath it. */
struct mask {
    struct mask *next;  /* sibling */
    struct mask *child; /* owned */
    bool is_end;        /* the masked path ends here: nothing from here on is shown */
    char name[];
};

struct file_id {
    uint64_t dev, ino;
};

#define ATTACH_DEVS_MAX 32

struct attach {
    int hfd; /* owned: O_PATH root of a detached mount */
    bool read_only, is_file, public_only, one_mount;
    bool root_unmapped_ids; /* owners outside of our user namespace are shown as root */
    const struct mask *masks; /* borrowed: the server's; NULL = none */
    uint64_t mount_id;
    int file_hfd;     /* owned: with is_file, the file opened as the attach point allows; else -1 */
    uint32_t file_access; /* GOFER_OPEN_* of file_hfd */
    uint64_t devs[ATTACH_DEVS_MAX]; /* host devices seen beneath it; [0] = the root's */
    size_t dev_count;
};

struct handle {
    int hfd; /* owned; -1 = free */
    uint32_t generation;
    struct attach *attach;    /* borrowed: attach points live as long as the server */
    const struct mask *mask;  /* borrowed: what is masked beneath */
    uint32_t next_free;
};
#define HANDLES_MAX 20000u

struct handle_table {
    struct handle *handles; /* owned */
    uint32_t count;         /* ever used */
    uint32_t capacity;
    uint32_t first_free; /* index + 1, 0 = none */
    uint32_t open_count;
    uint32_t limit;
};

/* A directory that is being read, kept open between the batches. */
struct dir_stream {
    int hfd; /* owned; -1 = unused */
    struct file_id id;
    uint64_t cookie; /* where it stands */
    uint64_t used;   /* for LRU */
};
#define DIR_STREAMS 8
#define DIR_BUFFER_SIZE KIB(11)

struct gofer_server {
    bool as_root;
    struct attach *attaches; /* owned */
    size_t attach_count;
    struct mask *masks; /* owned: root of the tree, beneath "/" */
    struct file_id *masked; /* owned: what the masks led to at the start */
    size_t masked_count;
    struct handle_table table;
    struct dir_stream streams[DIR_STREAMS];
    uint64_t clock;
    uint8_t batch[GOFER_BATCH_MAX]; /* steps or entries of the reply that is being made */
    char text[GOFER_TEXT_SIZE_MAX + 2];
    uint8_t value[GOFER_BYTES_MAX];
    uint8_t names[GOFER_BYTES_MAX];
    _Alignas(8) uint8_t dir_buffer[DIR_BUFFER_SIZE];
};

struct place {
    struct attach *attach;   /* borrowed */
    const struct mask *mask; /* borrowed; NULL = nothing masked beneath */
    int hfd;                 /* O_PATH; -1 with is_empty */
    bool is_owned;           /* of hfd; else a handle's or attach point's */
    bool is_empty;           /* a directory that is shown empty, whatever is there */
    struct file_id id;
    struct gofer_stat stat;
};
#define PLACE_NONE {.hfd = -1}
void place_put(struct place *p);
#define AUTO_PLACE CLEANUP(place_put) struct place

/* place.c */

/* Opens `path` beneath dir_hfd without following any symlink or magic link: the only function of the
 * gofer that opens by path after the start. `extra`: 0 or RESOLVE_NO_XDEV. Descriptor or -errno. */
MUST_CHECK int open_beneath(int dir_hfd, const char *path, uint64_t flags, uint64_t mode, uint64_t extra);
/* The place that a handle stands for, borrowed from it. -EBADF: no such handle. */
MUST_CHECK int place_from_handle(struct gofer_server *s, uint64_t handle, struct place *ret);
/* One component down. -ENOENT, -ENOTDIR, -EACCES (not public)… */
MUST_CHECK int place_step(struct gofer_server *s, const struct place *dir, const char *name,
                          struct place *ret);
/* All components of a valid path, "" = the handle's own place. */
MUST_CHECK int place_resolve(struct gofer_server *s, uint64_t handle, const char *path,
                             struct place *ret);
/* The directory of the last component and that name (points into `path`); with "" the handle's own place
 * and NULL. */
MUST_CHECK int place_resolve_parent(struct gofer_server *s, uint64_t handle, const char *path,
                                    struct place *ret, const char **ret_name);
bool place_may_search(const struct place *p); /* a directory that may be walked through */
bool place_may_read(const struct place *p);
/* Attributes anew, after a change. */
MUST_CHECK int place_refresh(struct place *p);
/* The object for real: a regular file (access GOFER_OPEN_*) or a directory (GOFER_OPEN_READ). Never
 * anything else: -ENXIO. `parent` and `name` as place_resolve_parent() gave them; *ret_stat may be NULL.
 * The descriptor (the caller's) or -errno; -ESTALE if it was exchanged meanwhile. */
MUST_CHECK int place_open(struct gofer_server *s, const struct place *parent, const char *name,
                          uint32_t access, struct gofer_stat *ret_stat);

enum shown { SHOWN, SHOWN_EMPTY, HIDDEN };
/* How an entry of `dir` may be shown. `ret_mask`: what is masked beneath it. */
enum shown place_shown(const struct gofer_server *s, const struct place *dir, const char *name,
                       const struct statx *stx, const struct mask **ret_mask);
void stat_from_statx(struct attach *a, const struct statx *stx, struct gofer_stat *ret);
void stat_make_empty(struct gofer_stat *stat); /* what a directory shown empty looks like */
MUST_CHECK int statx_at(int dir_hfd, const char *name, struct statx *ret);

/* handle.c */
void handle_table_init(struct handle_table *t, uint32_t limit);
void handle_table_fini(struct handle_table *t);
/* A handle that takes `hfd` over, or 0 (then hfd stays the caller's): the table is full. */
uint64_t handle_new(struct handle_table *t, int hfd, struct attach *attach, const struct mask *mask);
struct handle *handle_find(struct handle_table *t, uint64_t id); /* NULL: no such handle */
bool handle_close(struct handle_table *t, uint64_t id);

/* attach.c */
MUST_CHECK int attach_open(const struct gofer_config *config, size_t index, unsigned flags,
                           struct attach *ret, const char **ret_what);
void attach_fini(struct attach *a);
MUST_CHECK int masks_new(const struct gofer_config *config, struct gofer_server *s);
void mask_free(struct mask *mask);
const struct mask *mask_child(const struct mask *mask, const char *name, size_t len);

/* The calls: read_calls.c, dir_calls.c, write_calls.c, xattr_calls.c. Fields of the reply are in *reply; its
 * strings and bytes point into buffers of the server. 0 or -errno. */
#define GOFER_CALL(NAME, name, needs, request, reply)                                              \
    int call_##name(struct gofer_server *s, const struct gofer_##name##_request *req,              \
                    struct gofer_##name##_reply *reply_fields, int *ret_hfd);
#include "gofer/protocol.def"
