/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gofer file system: host files, seen through the gofer. Any fiber.
 *
 *   exclusive  nobody else changes the tree: attributes, names and absences are cached for ever
 *   shared     others may: every walk and stat asks the gofer
 *
 * For file systems that stand on this one (overlay): inode_ops.lookup_ahead(dir, NULL, "a/b/c") makes the
 * lookups of these components, one below the other, that come next answer from memory; its dentry argument
 * isn't used. Data never goes through the gofer: open files have a donated host descriptor.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

struct gofer_client;
struct inode;
struct superblock;

/* Attach point `attach` of the gofer as a superblock and its root (a reference each, the caller's). The
 * client outlives it. The root is a regular file where the attach point is one. 0 or -errno. */
MUST_CHECK int gofer_fs_new(struct gofer_client *client, uint32_t attach, bool shared,
                            struct superblock **ret_sb, struct inode **ret_root);
