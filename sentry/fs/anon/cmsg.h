/* SPDX-License-Identifier: Apache-2.0 */
/* The control messages in a buffer of the guest: cmsg(3). No side effects. */
#pragma once

#include "abi/socket.h"
#include "base/compiler.h"
#include <stddef.h>
#include <stdint.h>

typedef int (*cmsg_visitor)(void *arg, const struct linux_cmsghdr *header, const uint8_t *bytes, size_t size);
/* Calls visit() for each message until it returns something but 0, which is returned. -EINVAL at a message
 * whose size is less than its header's or more than what is left of the buffer. */
MUST_CHECK int cmsg_walk(const uint8_t *buffer, size_t size, cmsg_visitor visit, void *arg);
