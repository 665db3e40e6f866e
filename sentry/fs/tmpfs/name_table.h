/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The entries of a directory in memory: found by name through a hash table, read in the order of
 * their cookies, which stay the same while an entry lives, whatever happens to others. The
 * directory's inode->lock protects it.
 */
#pragma once

#include "base/compiler.h"
#include <bsd/sys/tree.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct inode;

struct name_entry {
    RB_ENTRY(name_entry) node;
    struct name_entry *hash_next;
    uint64_t cookie;     /* position in readdir; immutable */
    struct inode *inode; /* ref; NULL: a whiteout (overlay) */
    uint32_t hash;
    bool hides_lower; /* overlay: the lower directory has this name */
    uint16_t name_size;
    char name[]; /* terminated */
};
RB_HEAD(name_tree, name_entry);

struct name_table {
    struct name_entry **buckets; /* owned; NULL while empty */
    size_t bucket_count;
    size_t count;
    uint64_t next_cookie;
    struct name_tree tree;
};

#define NAME_TABLE_FIRST_COOKIE 3 /* after "." and ".." */

void name_table_init(struct name_table *t);
/* Drops every entry, and those of directories below that only entries refer to, without recursion.
 * `table_of` says which table an inode has, if any. Returns how many entries went. */
size_t name_table_fini(struct name_table *t, struct name_table *(*table_of)(struct inode *inode));
struct name_entry *name_table_find(struct name_table *t, const char *name); /* borrowed or NULL */
/* Takes its own reference to inode. The name is not in the table. NULL without memory. */
struct name_entry *name_table_insert(struct name_table *t, const char *name, struct inode *inode);
void name_table_remove(struct name_table *t,
                       struct name_entry *e); /* puts the inode, frees the entry */
/* The entry with the lowest cookie >= `cookie`, or NULL. */
struct name_entry *name_table_next(struct name_table *t, uint64_t cookie);
