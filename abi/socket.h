/* SPDX-License-Identifier: Apache-2.0 */
/* Socket structures of x86-64. Sources: linux/socket.h, linux/un.h. */
#pragma once

#include <assert.h>
#include <stdint.h>

struct linux_msghdr {
    uint64_t name; /* guest address */
    int32_t name_size, pad0;
    uint64_t iov; /* guest address */
    uint64_t iov_count;
    uint64_t control; /* guest address */
    uint64_t control_size;
    uint32_t flags, pad1;
};
static_assert(sizeof(struct linux_msghdr) == 56, "msghdr");

struct linux_mmsghdr {
    struct linux_msghdr header;
    uint32_t size, pad;
};
static_assert(sizeof(struct linux_mmsghdr) == 64, "mmsghdr");

struct linux_cmsghdr {
    uint64_t size; /* header included */
    int32_t level, type;
};
static_assert(sizeof(struct linux_cmsghdr) == 16, "cmsghdr");
#define LINUX_CMSG_ALIGN(size) (((size) + 7) & ~(uint64_t)7)

struct linux_ucred {
    int32_t pid;
    uint32_t uid, gid;
};
static_assert(sizeof(struct linux_ucred) == 12, "ucred");

struct linux_linger {
    int32_t on, seconds;
};
struct linux_timeval {
    int64_t sec, usec;
};
