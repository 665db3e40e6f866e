/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gofer's second layer: the kernel itself lets it open nothing but what lies beneath its attach points.
 */
#pragma once

#include "base/compiler.h"

struct gofer_server;

/* 0 with *ret_abi = Landlock's version (0: the kernel has none), or -errno. Needs no_new_privs. */
MUST_CHECK int gofer_landlock(const struct gofer_server *server, int *ret_abi);
