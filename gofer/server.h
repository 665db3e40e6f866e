/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gofer's server: attach points, handles, and the calls of gofer/protocol.def. One thread. What it
 * is asked comes from a sentry that may be hostile; its configuration comes from the CLI.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct gofer_config;
struct gofer_server;

/* Makes the attach points (open_tree, mount_setattr; needs CAP_SYS_ADMIN over the mount namespace) and
 * remembers what is masked. Paths are resolved here and never again. 0 or -errno; on failure `*ret_why`
 * (owned by the caller, free(); NULL without memory) is a sentence. `config` is only read here. */
MUST_CHECK int gofer_server_new(const struct gofer_config *config, struct gofer_server **ret,
                                char **ret_why);
void gofer_server_free(struct gofer_server *server); /* NULL is fine */

/* For tests: attach points are plain directory descriptors, because unprivileged tests can't mount. */
#define GOFER_SERVER_PLAIN 1u
MUST_CHECK int gofer_server_new_flags(const struct gofer_config *config, unsigned flags,
                                      struct gofer_server **ret, char **ret_why);

struct gofer_root {
    int hfd;
    int is_writable;
};
/* The attach points' descriptors (borrowed), for Landlock rules; at most GOFER_ATTACHES_MAX. */
size_t gofer_server_roots(const struct gofer_server *server, struct gofer_root *roots);

/* Executes one request (`size` bytes, header included, in private memory) and writes the reply's fields
 * to `reply`, which may be shared memory. Result: the reply's size; -errno of the call; *ret_hfd is a
 * descriptor to send (the caller closes it) or -1. *ret_malformed: the request didn't decode, its sender
 * is not what it should be, and nothing was done. */
MUST_CHECK int64_t gofer_server_handle(struct gofer_server *server, const uint8_t *request, size_t size,
                                       void *reply, size_t reply_size, int *ret_hfd,
                                       bool *ret_malformed);
