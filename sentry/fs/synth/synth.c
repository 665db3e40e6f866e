/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inodes of computed file systems, from tables. Any fiber; names come from guests.
 */
#include "sentry/fs/synth/synth.h"
#include "sentry/fs/synth/synth_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const struct inode_ops directory_ops, file_ops, link_ops, magic_link_ops;

static struct synth_fs *fs_of(const struct inode *inode)
{
    return inode->sb->private_data;
}

static const struct inode_ops *ops_for(const struct synth_row *row)
{
    if (S_ISDIR(row->mode))
        return &directory_ops;
    if (S_ISLNK(row->mode))
        return row->follow != NULL ? &magic_link_ops : &link_ops;
    return &file_ops;
}

static int node_new(struct superblock *sb, const struct synth_row *row, const struct synth_key *key,
                    uint64_t ino, struct inode **ret)
{
    struct synth_fs *fs = sb->private_data;
    struct synth_node *n = malloc(sizeof *n);
    struct inode *inode = n != NULL ? inode_new(sb, ops_for(row), ino, row->mode, 0, 0) : NULL;
    if (inode == NULL) {
        free(n);
        return -ENOMEM;
    }
    *n = (struct synth_node){.row = row, .key = *key};
    inode->private_data = n;
    int r = fs->refresh != NULL ? fs->refresh(inode, row, key) : 0;
    if (r != 0) {
        inode_put(inode);
        return r;
    }
    *ret = inode;
    return 0;
}

static void destroy(struct inode *inode)
{
    free(inode->private_data);
}

/* What doesn't exist is an error, not a negative entry: so mkdir(2) and the like say ENOENT, as
 * Linux's /proc does. */
static int lookup(struct inode *dir, const char *name, struct inode **ret_inode)
{
    const struct synth_node *n = dir->private_data;
    const struct synth_row *row = NULL;
    struct synth_key key = n->key;
    const struct synth_rows *rows = n->row->rows;
    for (size_t i = 0; rows != NULL && i < rows->count && row == NULL; i++)
        if (strcmp(rows->rows[i].name, name) == 0)
            row = &rows->rows[i];
    bool is_dynamic = row == NULL;
    if (is_dynamic) {
        if (n->row->dynamic == NULL)
            return -ENOENT;
        int r = n->row->dynamic->lookup(&n->key, name, &row, &key);
        if (r != 0)
            return r;
    }
    int r = node_new(dir->sb, row, &key, synth_ino(dir->ino, name), ret_inode);
    return r == -ENOENT && !is_dynamic ? -ESRCH : r; /* the directory's own process is gone */
}

static int revalidate(struct inode *dir, const char *name, struct inode *inode)
{
    (void)dir, (void)name;
    if (inode == NULL)
        return 0;
    const struct synth_node *n = inode->private_data;
    struct synth_fs *fs = fs_of(inode);
    return fs->refresh == NULL || fs->refresh(inode, n->row, &n->key) == 0;
}

static int getattr(struct inode *inode, struct kstat *ret)
{
    const struct synth_node *n = inode->private_data;
    struct synth_fs *fs = fs_of(inode);
    inode_fill_kstat(inode, ret);
    ret->blocks = 0;
    if (S_ISDIR(inode->mode)) {
        uint64_t links = fs->link_count != NULL ? fs->link_count(n->row, &n->key) : 0;
        ret->nlink = links != 0 ? links : 2;
    }
    return 0;
}

/* Times and owners may be set, to no lasting effect; O_TRUNC is fine. */
static int setattr(struct inode *inode, const struct iattr *attr)
{
    (void)inode;
    return attr->valid & ATTR_MODE ? -EPERM : 0;
}

static int take_text(struct text *t, int r, char **ret)
{
    text_append(t, "", 1);
    if (r == 0)
        r = t->error;
    if (r == 0) {
        *ret = t->bytes;
        t->bytes = NULL;
    }
    text_fini(t);
    return r;
}

static int readlink_node(struct inode *inode, char **ret_target)
{
    const struct synth_node *n = inode->private_data;
    struct text t = {0};
    int r = n->row->target(&n->key, &t);
    return take_text(&t, r, ret_target);
}

static int follow_node(struct inode *inode, struct path *ret_path)
{
    const struct synth_node *n = inode->private_data;
    return n->row->follow(&n->key, ret_path);
}

static const struct inode_ops directory_ops = {
    .lookup = lookup,
    .revalidate = revalidate,
    .getattr = getattr,
    .setattr = setattr,
    .open = synth_open,
    .destroy = destroy,
};
static const struct inode_ops file_ops = {
    .getattr = getattr, .setattr = setattr, .open = synth_open, .destroy = destroy};
static const struct inode_ops link_ops = {
    .readlink = readlink_node, .getattr = getattr, .setattr = setattr, .destroy = destroy};
static const struct inode_ops magic_link_ops = {.readlink = readlink_node,
                                                .follow = follow_node,
                                                .getattr = getattr,
                                                .setattr = setattr,
                                                .destroy = destroy};

struct inode *synth_root_new(struct synth_fs *fs, const struct synth_row *root)
{
    static const struct synth_key no_key;
    struct inode *inode = NULL;
    fs->sb.private_data = fs;
    return node_new(&fs->sb, root, &no_key, 1, &inode) == 0 ? inode : NULL;
}

int synth_parse_number(const char *name)
{
    int64_t value = 0;
    if (*name < '0' || *name > '9' || (name[0] == '0' && name[1] != '\0'))
        return -1;
    for (; *name >= '0' && *name <= '9'; name++) {
        value = value * 10 + (*name - '0');
        if (value > INT32_MAX)
            return -1;
    }
    return *name == '\0' ? (int)value : -1;
}

static const char *skip_blanks(const char *s)
{
    while (*s == ' ' || *s == '\t' || *s == '\n')
        s++;
    return s;
}

int synth_parse_value(const char *bytes, int64_t min, int64_t max, int64_t *ret)
{
    const char *s = skip_blanks(bytes);
    bool negative = *s == '-';
    if (*s == '-' || *s == '+')
        s++;
    if (*s < '0' || *s > '9')
        return -EINVAL;
    int64_t value = 0;
    for (; *s >= '0' && *s <= '9'; s++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, *s - '0', &value))
            return -ERANGE;
    }
    if (*skip_blanks(s) != '\0')
        return -EINVAL;
    value = negative ? -value : value;
    if (value < min || value > max)
        return -EINVAL;
    *ret = value;
    return 0;
}
