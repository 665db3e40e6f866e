/* SPDX-License-Identifier: Apache-2.0 */
/* msghdr(3) and cmsg(3) of the guest: from and to values of the sentry. On the calling task's fiber. */
#pragma once

#include "abi/guest_addr.h"
#include "abi/socket.h"
#include "base/compiler.h"
#include "sentry/fs/anon/socket.h"
#include <stdbool.h>
#include <stdint.h>

struct task;

/* Control messages of sendmsg(2): descriptors become files, credentials are checked. -EINVAL, -EBADF,
 * -EPERM, -ENOBUFS. On success the caller finishes *ret. */
MUST_CHECK int control_read(struct task *task, guest_addr control, uint64_t size, struct socket_control *ret);
/* Control messages of recvmsg(2): installs the files, which it takes. *ret_size: bytes written;
 * MSG_CTRUNC is set in *flags when something did not fit. */
MUST_CHECK int control_write(struct task *task, guest_addr control, uint64_t size, struct socket_control *c,
                             bool cloexec, uint64_t *ret_size, int *flags);
