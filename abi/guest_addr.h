/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An address in a guest's address space. It is a type of its own so that no cast to a host pointer
 * compiles; only sentry/mm/uaccess.c turns one into bytes.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stdint.h>

typedef struct {
    uint64_t va;
} guest_addr;

#define GUEST_ADDR(x) ((guest_addr){.va = (x)})
#define GUEST_NULL GUEST_ADDR(0)

static inline bool guest_addr_is_null(guest_addr a)
{
    return a.va == 0;
}

/* False when addr + size wraps around; then *ret is untouched. */
MUST_CHECK static inline bool guest_addr_add(guest_addr a, uint64_t size, guest_addr *ret)
{
    return !__builtin_add_overflow(a.va, size, &ret->va);
}
