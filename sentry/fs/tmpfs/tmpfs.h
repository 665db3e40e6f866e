/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tmpfs(5): a file system in memory, and the objects that are like its files without a name: memfds
 * and shared anonymous memory. Any fiber.
 *
 * A small file's bytes lie in the sentry's heap; one that is mapped or grows beyond TMPFS_HEAP_MAX
 * gets a host memfd of its own, never a slice of a common one (a stub that lies about an munmap
 * must not see the next owner's page). What all of them hold together is bounded: beyond the limit
 * writes give -ENOSPC.
 */
#pragma once

#include "sentry/vfs/vfs.h"
#include <stdint.h>

#define TMPFS_HEAP_MAX KIB(64)
#define TMPFS_SIZE_MAX (GIB(16384) - PAGE_SIZE) /* of a file: what ext4 allows */

/* The sandbox's limit in bytes for all tmpfs, memfd and overlay upper content; UINT64_MAX at first.
 */
void tmpfs_set_limit(uint64_t bytes);
uint64_t tmpfs_limit(void);
uint64_t tmpfs_used(void);
/* Host descriptors that memfds may take, beyond which files stay in the heap. Default 12,000. */
void tmpfs_set_hfd_limit(uint32_t count);

/* A file system with an empty root directory; `max_bytes` of its own (0: the sandbox's limit
 * alone). References to both go to the caller, who mounts and puts them. */
MUST_CHECK int tmpfs_new(uint32_t mode, uint32_t uid, uint32_t gid, uint64_t max_bytes,
                         struct superblock **ret_sb, struct inode **ret_root);
/* mount(2)'s options: "size=", "nr_inodes=" (ignored), "mode=", "uid=", "gid=". -EINVAL. */
MUST_CHECK int tmpfs_new_from_options(const char *options, const struct creds *creds,
                                      struct superblock **ret_sb, struct inode **ret_root);

/* A regular file without a name in `sb`, which tmpfs_new() made: what overlay copies up into. */
MUST_CHECK int tmpfs_regular_new(struct superblock *sb, uint32_t mode, uint32_t uid, uint32_t gid,
                                 struct inode **ret);
/* Accounts for `bytes` of the sentry's memory that a guest made it take; false above the limit. */
MUST_CHECK bool tmpfs_charge(uint64_t bytes);
void tmpfs_uncharge(uint64_t bytes);

/* Lists of extended attributes whose bytes are charged. inode->lock held in the first two. */
struct xattr_list;
MUST_CHECK int tmpfs_xattr_set(struct xattr_list *l, const char *name, const void *value,
                               size_t size, int flags);
MUST_CHECK int tmpfs_xattr_remove(struct xattr_list *l, const char *name);
void tmpfs_xattr_fini(struct xattr_list *l);

/* memfd_create(2) after its flags were checked: MFD_ALLOW_SEALING and MFD_NOEXEC_SEAL matter here.
 */
MUST_CHECK int tmpfs_memfd_new(const char *name, uint32_t flags, const struct creds *creds,
                               struct file **ret);
/* What MAP_SHARED | MAP_ANONYMOUS maps (`name` "/dev/zero (deleted)") and SysV segments: `size`
 * bytes. */
MUST_CHECK int tmpfs_shared_anon_new(const char *name, uint64_t size, const struct creds *creds,
                                     struct file **ret);
/* fcntl F_GET_SEALS: the seals; -EINVAL for files of other kinds. F_ADD_SEALS: 0, -EPERM, -EBUSY.
 */
int tmpfs_get_seals(struct file *f);
int tmpfs_add_seals(struct file *f, uint32_t seals);
