/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File systems whose content is computed: a tree described by tables of rows. /proc and /sys stand
 * on it.
 *
 * A row is a name, a mode and functions; an inode is a row and a key, which says of what (which
 * process, which descriptor, which processor). A file's text is made at the first read of an open
 * file and whenever it's read at position 0, and stays as it is for the reads in between.
 *
 * Locks: an open file's text has a fiber mutex of its own, taken after nothing but the file's
 * pos_lock.
 */
#pragma once

#include "sentry/fs/synth/text.h"
#include "sentry/vfs/vfs.h"

struct synth_key {
    int id;            /* /proc: of a process or thread; /sys: of a processor; 0 = none */
    int number;        /* within it: a descriptor, a cache */
    bool is_thread;    /* /proc: `id` is a thread's */
    uint64_t start_ns; /* /proc: tells a process from a later one with the same id */
};

struct synth_row;
struct synth_rows {
    const struct synth_row *rows;
    size_t count;
};
#define SYNTH_ROWS(array)                                                                          \
    {                                                                                              \
        .rows = (array), .count = ARRAY_COUNT(array)                                               \
    }

/* Directories with more in them than their rows. */
struct synth_dynamic {
    /* -ENOENT, or 0 with the row and the key of the child; `*ret_key` starts as the directory's. */
    int (*lookup)(const struct synth_key *key, const char *name, const struct synth_row **ret_row,
                  struct synth_key *ret_key);
    /* The first child whose position is >= `from`, which is >= 0: false at the end. */
    bool (*next)(const struct synth_key *key, int64_t from, int64_t *ret_at, char name[32],
                 uint8_t *ret_type);
};

/* A number that a file shows and, where its mode allows it, takes. */
struct synth_value {
    _Atomic int64_t now;
    int64_t min, max;
};

struct synth_row {
    const char *name;
    uint32_t mode; /* with S_IFMT */
    /* S_IFDIR */
    const struct synth_rows *rows;
    const struct synth_dynamic *dynamic;
    /* S_IFREG, one of content, value, show: */
    const char *content; /* always this */
    struct synth_value *value;
    /* Writes the content; 0 or -errno. `reader` has opened the file. */
    int (*show)(const struct synth_key *key, const struct creds *reader, struct text *out);
    /* The bytes of one write(2), terminated, at most SYNTH_WRITE_MAX. 0 or -errno. */
    int (*store)(const struct synth_key *key, const struct creds *writer, const char *bytes,
                 size_t size);
    int (*open)(const struct synth_key *key,
                struct file *file); /* instead: fills file->ops itself */
    /* S_IFLNK: the text; or, with follow, a "magic link". */
    int (*target)(const struct synth_key *key, struct text *out);
    int (*follow)(const struct synth_key *key, struct path *ret);
    /* May `creds` open, follow or list it? 0 or -errno. NULL: the mode bits decide alone. */
    int (*check)(const struct synth_key *key, const struct creds *creds);
};
#define SYNTH_WRITE_MAX 4095U

/* What a file system adds for all of its inodes; superblock.private_data. */
struct synth_fs {
    struct superblock sb;
    /* A key is still true (0) or not (-ENOENT); adapts the inode's owner and mode. NULL: always. */
    int (*refresh)(struct inode *inode, const struct synth_row *row, const struct synth_key *key);
    /* Directories: number of links, where somebody counts on it; 0 = 2. NULL: always. */
    uint64_t (*link_count)(const struct synth_row *row, const struct synth_key *key);
};

/* The root of a fresh tree whose directory is `root`; `fs` is static or allocated by the caller,
 * with sb set up. NULL without memory. */
struct inode *synth_root_new(struct synth_fs *fs, const struct synth_row *root);

/* Decimal without sign or leading zeros, at most INT32_MAX; -1 if `name` is anything else. */
int synth_parse_number(const char *name);
/* For store functions: one signed number with blanks around it. -EINVAL, -ERANGE. */
MUST_CHECK int synth_parse_value(const char *bytes, int64_t min, int64_t max, int64_t *ret);

/* file.c: open files */
struct synth_node { /* inode->private_data, owned by the inode */
    const struct synth_row *row;
    struct synth_key key;
};
int synth_open(struct inode *inode, struct file *file);
