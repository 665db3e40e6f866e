/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Character devices by number, and the file system at /dev. Any fiber.
 */
#pragma once

#include "base/compiler.h"
#include <stdint.h>

struct creds;
struct file;
struct inode;
struct superblock;

#define DEV_NUMBER(major, minor) (((uint64_t)(major) << 8) | (minor))

/* How a device number is opened: fills file->ops and private_data. -ENXIO when there's no such thing. */
struct chardev {
    uint64_t rdev;
    const char *name; /* below /dev; NULL = no node is made */
    uint32_t mode;
    int (*open)(struct inode *inode, struct file *file);
};
/* Registers a device for opens by number and for /dev's nodes. At start; `device` is static. */
void chardev_register(const struct chardev *device);
/* vfs's open_device hook. */
int chardev_open(struct inode *inode, struct file *file);
/* null zero full random urandom. */
void dev_init(void);
/* A tmpfs with a node for each registered device, fd stdin stdout stderr core links, and empty pts, shm,
 * mqueue directories. Takes its references as tmpfs_new(). */
MUST_CHECK int dev_new(struct superblock **ret_sb, struct inode **ret_root);
