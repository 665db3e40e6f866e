/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Overlay: a file system that shows another one (the lower, which it never changes) with changes
 * kept in memory (tmpfs content). Any fiber.
 */
#pragma once

#include "sentry/vfs/vfs.h"

/* On `lower_root`, a directory of a file system that nobody else changes while this lives. Takes
 * its own reference. What's written counts towards tmpfs_set_limit(). Both results are references
 * of the caller's, who mounts and puts them. */
MUST_CHECK int overlay_new(struct inode *lower_root, struct superblock **ret_sb,
                           struct inode **ret_root);
/* Forgets all changes to lower files, which else keep the superblock alive for ever. Nobody uses it
 * any more. */
void overlay_shut_down(struct superblock *sb);
