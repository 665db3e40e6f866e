/* SPDX-License-Identifier: Apache-2.0 */
/* stat(2), statx(2), statfs(2), getdents64(2) structures of x86-64. Source: asm/stat.h, linux/stat.h. */
#pragma once

#include <assert.h>
#include <stdint.h>

struct linux_timespec {
    int64_t sec, nsec;
};
static_assert(sizeof(struct linux_timespec) == 16, "timespec");

struct linux_stat {
    uint64_t dev, ino, nlink;
    uint32_t mode, uid, gid, pad0;
    uint64_t rdev;
    int64_t size, blksize, blocks;
    struct linux_timespec atime, mtime, ctime;
    int64_t unused[3];
};
static_assert(sizeof(struct linux_stat) == 144, "stat");

struct linux_statx_timestamp {
    int64_t sec;
    uint32_t nsec;
    int32_t reserved;
};
struct linux_statx {
    uint32_t mask, blksize;
    uint64_t attributes;
    uint32_t nlink, uid, gid;
    uint16_t mode, spare0;
    uint64_t ino, size, blocks, attributes_mask;
    struct linux_statx_timestamp atime, btime, ctime, mtime;
    uint32_t rdev_major, rdev_minor, dev_major, dev_minor;
    uint64_t mnt_id;
    uint32_t dio_mem_align, dio_offset_align;
    uint64_t spare3[12];
};
static_assert(sizeof(struct linux_statx) == 256, "statx");

struct linux_statfs {
    int64_t type, bsize;
    uint64_t blocks, bfree, bavail, files, ffree;
    int32_t fsid[2];
    int64_t namelen, frsize, flags, spare[4];
};
static_assert(sizeof(struct linux_statfs) == 120, "statfs");
