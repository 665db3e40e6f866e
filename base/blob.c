/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sealed memfds. The reader insists on the seals, so that what it validates can't change under it.
 */
#include "base/blob.h"

#include "base/host.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <sys/syscall.h>

#define SEALS (F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

int blob_new(const void *bytes, size_t size)
{
    AUTO_FD hfd = (int)host_call2(SYS_memfd_create, "blob", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (hfd < 0)
        return hfd;
    int error = (int)host_write_all(hfd, bytes, size);
    if (error)
        return error;
    long sealed = host_call3(SYS_fcntl, hfd, F_ADD_SEALS, SEALS);
    if (sealed < 0)
        return (int)sealed;
    return take_fd(&hfd);
}

int blob_read(int hfd, size_t size, void **ret)
{
    long seals = host_call2(SYS_fcntl, hfd, F_GET_SEALS);
    if (seals < 0 || (seals & SEALS) != SEALS)
        return -EPROTO;
    AUTO_FREE char *bytes = malloc(size + 1);
    if (!bytes)
        return -ENOMEM;
    size_t done = 0;
    while (done <= size) { /* one byte more than announced, to see that there's none */
        long got = host_call4(SYS_pread64, hfd, bytes + done, size + 1 - done, done);
        if (got == -EINTR)
            continue;
        if (got < 0)
            return (int)got;
        if (got == 0)
            break;
        done += (size_t)got;
    }
    if (done != size)
        return -EPROTO;
    *ret = bytes;
    bytes = NULL;
    return 0;
}
