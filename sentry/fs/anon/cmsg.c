/* SPDX-License-Identifier: Apache-2.0 */
/* Walks control messages. The buffer is a private copy; every size in it is the guest's. */
#include "sentry/fs/anon/cmsg.h"

#include <errno.h>
#include <string.h>

int cmsg_walk(const uint8_t *buffer, size_t size, cmsg_visitor visit, void *arg)
{
    size_t at = 0;
    while (size - at >= sizeof(struct linux_cmsghdr)) {
        struct linux_cmsghdr h;
        memcpy(&h, buffer + at, sizeof(h));
        if (h.size < sizeof(h) || h.size > size - at)
            return -EINVAL;
        int r = visit(arg, &h, buffer + at + sizeof(h), (size_t)h.size - sizeof(h));
        if (r)
            return r;
        uint64_t step = LINUX_CMSG_ALIGN(h.size);
        if (step > size - at)
            break;
        at += step;
    }
    return 0;
}
