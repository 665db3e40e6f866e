/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /sys, sysfs(5): processors, one memory node, transparent huge pages, the sandbox's cgroup, the
 * loopback interface. Made once from g_sandbox; agrees with /proc, the affinity masks and the
 * limits.
 */
#pragma once

#include "base/compiler.h"

struct superblock;
struct inode;

/* A new /sys; reads g_sandbox and host_facts(). References to both; may sleep. -ENOMEM. */
MUST_CHECK int sys_new(struct superblock **ret_sb, struct inode **ret_root);
/* The cgroup v2 hierarchy to be mounted on its fs/cgroup, the same way: read only, one cgroup. */
MUST_CHECK int sys_cgroup_new(struct superblock **ret_sb, struct inode **ret_root);
