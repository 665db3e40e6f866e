/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies between guest memory and private memory of the sentry. Any fiber; the guest may change its
 * memory at any time, so callers validate the copy. A guest address is only handed to the platform
 * here.
 */
#include "sentry/mm/uaccess.h"

#include "sentry/mm/mm_private.h"
#include "sentry/mm/uaccess_private.h"
#include "sentry/sched/sched.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#define BLOCKING_SIZE KIB(16)  /* above it a copy counts as a host call that may block (class B) */
#define PIECE_SIZE    KIB(256) /* others get a turn between pieces */
#define STRING_PIECE  256

typedef ssize_t (*copy_fn)(struct platform_space *space, uint64_t guest, void *local, size_t size);

static ssize_t read_piece(struct platform_space *space, uint64_t guest, void *local, size_t size)
{
    return platform_read(space, GUEST_ADDR(guest), local, size);
}

static ssize_t write_piece(struct platform_space *space, uint64_t guest, void *local, size_t size)
{
    return platform_write(space, GUEST_ADDR(guest), local, size);
}

/* Bytes moved before the first bad page. */
static size_t copy(struct mm *mm, copy_fn fn, uint64_t guest, void *local, size_t size)
{
    size_t done = 0;
    uint64_t end;
    if (mm == NULL || __builtin_add_overflow(guest, size, &end))
        return 0;
    mm_flush_before_copy(mm);
    while (done < size) {
        size_t piece = size - done < PIECE_SIZE ? size - done : PIECE_SIZE;
        bool may_block = piece > BLOCKING_SIZE;
        if (may_block)
            sched_blocking_begin();
        ssize_t r = fn(mm->space, guest + done, (uint8_t *)local + done, piece);
        if (may_block)
            sched_blocking_end();
        if (r <= 0 || (size_t)r > piece)
            break;
        done += (size_t)r;
        if (done < size && may_block)
            fiber_yield();
    }
    return done;
}

/* The platform only reads what it writes to a guest; its type for the local side has no const here.
 */
static void *drop_const(const void *p)
{
    union {
        const void *in;
        void *out;
    } u = {.in = p};
    return u.out;
}

size_t uaccess_read(struct mm *mm, uint64_t guest, void *dst, size_t size)
{
    return copy(mm, read_piece, guest, dst, size);
}

size_t uaccess_write(struct mm *mm, uint64_t guest, const void *src, size_t size)
{
    return copy(mm, write_piece, guest, drop_const(src), size);
}

int copy_in(struct mm *mm, void *dst, guest_addr src, size_t size)
{
    return uaccess_read(mm, src.va, dst, size) == size ? 0 : -EFAULT;
}

int copy_out(struct mm *mm, guest_addr dst, const void *src, size_t size)
{
    return uaccess_write(mm, dst.va, src, size) == size ? 0 : -EFAULT;
}

size_t uaccess_clear(struct mm *mm, uint64_t guest, size_t size)
{
    static uint8_t zeros[KIB(64)]; /* never written: all the host's zero page */
    size_t done = 0;
    while (done < size) {
        size_t piece = size - done < sizeof(zeros) ? size - done : sizeof(zeros);
        size_t moved = uaccess_write(mm, guest + done, zeros, piece);
        done += moved;
        if (moved < piece)
            break;
    }
    return done;
}

int clear_out(struct mm *mm, guest_addr dst, size_t size)
{
    uint64_t end;
    if (__builtin_add_overflow(dst.va, size, &end))
        return -EFAULT;
    return uaccess_clear(mm, dst.va, size) == size ? 0 : -EFAULT;
}

ssize_t copy_in_str(struct mm *mm, char *dst, size_t size, guest_addr src)
{
    size_t done = 0;
    while (done < size) {
        size_t piece = done == 0 ? STRING_PIECE : size - done;
        piece = piece < size - done ? piece : size - done;
        size_t moved = uaccess_read(mm, src.va + done, dst + done, piece);
        const char *nul = memchr(dst + done, '\0', moved);
        if (nul != NULL)
            return nul - dst;
        if (moved < piece)
            return -EFAULT;
        done += moved;
    }
    return -ENAMETOOLONG;
}

int copy_in_path(struct mm *mm, guest_addr src, bool allow_empty, char **ret_path)
{
    char *path = malloc(PATH_MAX);
    if (path == NULL)
        return -ENOMEM;
    ssize_t len = copy_in_str(mm, path, PATH_MAX, src);
    if (len == 0 && !allow_empty)
        len = -ENOENT;
    if (len < 0) {
        free(path);
        return (int)len;
    }
    *ret_path = path;
    return 0;
}
