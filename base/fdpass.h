/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages with descriptors over a Unix seqpacket socket (unix(7), SCM_RIGHTS). Any thread; several
 * threads may not receive on one socket at once.
 */
#pragma once

#include "base/compiler.h"
#include <stddef.h>
#include <sys/types.h>

#define FDPASS_MAX 8

/* Sends one message of `size` bytes with `count` descriptors (borrowed). 0 or -errno. */
MUST_CHECK int fdpass_send(int sock, const void *bytes, size_t size, const int *hfds, size_t count);

/* Receives one message: its size (0 = peer gone) or -errno; -EMSGSIZE if it did not fit, -EPROTO on
 * truncated descriptors. `*ret_count` descriptors (owned by the caller, O_CLOEXEC) are in `hfds`.
 * With `max_fds` 0 a message that carries descriptors is -EPROTO and they are closed at once. */
MUST_CHECK ssize_t fdpass_recv(int sock, void *bytes, size_t size, int *hfds, size_t max_fds,
                               size_t *ret_count);
