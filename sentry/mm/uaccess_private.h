/* SPDX-License-Identifier: Apache-2.0 */
/* What io.c needs of uaccess.c. Private to sentry/mm. Each returns the bytes moved before a bad
 * page. */
#pragma once

#include <stddef.h>
#include <stdint.h>

struct mm;
size_t uaccess_read(struct mm *mm, uint64_t guest, void *dst, size_t size);
size_t uaccess_write(struct mm *mm, uint64_t guest, const void *src, size_t size);
size_t uaccess_clear(struct mm *mm, uint64_t guest, size_t size);
