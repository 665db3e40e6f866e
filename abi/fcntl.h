/* SPDX-License-Identifier: Apache-2.0 */
/* fcntl(2), openat2(2), getdents(2) structures of x86-64. Source: asm-generic/fcntl.h, linux/openat2.h,
 * linux/dirent.h. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

struct linux_flock {
    int16_t type, whence;
    int32_t pad0;
    int64_t start, len;
    int32_t pid, pad1;
};
static_assert(sizeof(struct linux_flock) == 32, "flock");

struct linux_f_owner_ex {
    int32_t type, pid;
};
static_assert(sizeof(struct linux_f_owner_ex) == 8, "f_owner_ex");

struct linux_open_how {
    uint64_t flags, mode, resolve;
};
static_assert(sizeof(struct linux_open_how) == 24, "open_how");

/* Followed by the terminated name; the old form has the type in the record's last byte. */
struct linux_dirent64 {
    uint64_t ino;
    int64_t off;
    uint16_t reclen;
    uint8_t type;
    char name[];
};
static_assert(offsetof(struct linux_dirent64, name) == 19, "dirent64");
struct linux_dirent {
    uint64_t ino;
    uint64_t off;
    uint16_t reclen;
    char name[];
};
static_assert(offsetof(struct linux_dirent, name) == 18, "dirent");
