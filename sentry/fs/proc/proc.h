/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc, proc(5): what the sandbox's processes read about themselves and about the machine that the
 * sandbox pretends to be. Nothing of the host shows except the processor's model.
 */
#pragma once

#include "base/compiler.h"

struct superblock;
struct inode;

/* A new /proc; reads g_sandbox and host_facts(). References to both; may sleep. -ENOMEM. */
MUST_CHECK int proc_new(struct superblock **ret_sb, struct inode **ret_root);
