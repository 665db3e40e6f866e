/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration too large for a socket message: an immutable memfd. Start-up only, any process.
 */
#pragma once

#include "base/compiler.h"
#include <stddef.h>

/* A sealed memfd with these bytes (O_CLOEXEC, the caller's) or -errno. */
MUST_CHECK int blob_new(const void *bytes, size_t size);
/* Reads the whole blob, which must hold exactly `size` bytes and be sealed against change. `*ret` is the
 * caller's (free()). 0, -EPROTO or -errno. */
MUST_CHECK int blob_read(int hfd, size_t size, void **ret);
