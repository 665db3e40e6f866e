/* SPDX-License-Identifier: Apache-2.0 */
/* Between the two halves of sentry/fs/synth. */
#pragma once

#include <stdint.h>

/* The inode number of `name` in the directory with number `dir_ino`. */
uint64_t synth_ino(uint64_t dir_ino, const char *name);
