/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The only way from a guest address to bytes. Every function copies between guest memory and private
 * memory of the sentry; nothing is ever read twice on behalf of a caller, who validates the copy.
 * All may fault guest pages in and may sleep for large sizes (they leave the leadership above 16 KiB):
 * no short lock may be held. -EFAULT on an inaccessible address, -ESRCH mapped to -EFAULT.
 */
#pragma once

#include "abi/guest_addr.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct mm;

MUST_CHECK int copy_in(struct mm *mm, void *dst, guest_addr src, size_t size);
MUST_CHECK int copy_out(struct mm *mm, guest_addr dst, const void *src, size_t size);
MUST_CHECK int clear_out(struct mm *mm, guest_addr dst, size_t size); /* writes zeros */
/* A terminated string of at most size-1 bytes into dst[size]: its length; -ENAMETOOLONG, -EFAULT. */
MUST_CHECK ssize_t copy_in_str(struct mm *mm, char *dst, size_t size, guest_addr src);
/* A path: copy_in_str into a malloc'ed PATH_MAX buffer that the caller frees; -ENOENT if empty unless
 * `allow_empty`. */
MUST_CHECK int copy_in_path(struct mm *mm, guest_addr src, bool allow_empty, char **ret_path);

#define copy_in_obj(mm, object, src) copy_in(mm, object, src, sizeof *(object))
#define copy_out_obj(mm, dst, object) copy_out(mm, dst, object, sizeof *(object))

/*
 * Bulk data: a cursor over guest buffers (an iovec array) or over one buffer of the sentry. File code
 * sees only this, so it runs without a guest in unit tests.
 */
struct io_segment {
    guest_addr addr;
    uint64_t size;
};
#define IO_INLINE_SEGMENTS 4

struct io {
    struct mm *mm;      /* borrowed; NULL: `kernel` is the buffer */
    uint8_t *kernel;    /* borrowed; source or destination in the sentry */
    struct io_segment inline_segments[IO_INLINE_SEGMENTS];
    struct io_segment *segments; /* owned unless it is inline_segments */
    size_t segment_count;
    size_t segment;     /* current */
    uint64_t offset;    /* within the current one */
    uint64_t remaining; /* bytes left in all */
};

void io_init_guest(struct io *io, struct mm *mm, guest_addr addr, uint64_t size);
void io_init_kernel(struct io *io, void *buffer, size_t size);
/* From a guest iovec array, checked as Linux does (at most IOV_MAX = 1024, sum within SSIZE_MAX, capped
 * at MAX_RW_COUNT 0x7ffff000): 0, -EINVAL, -EFAULT, -ENOMEM. io_fini() frees. */
MUST_CHECK int io_init_iovec(struct io *io, struct mm *mm, guest_addr iov, uint64_t count);
void io_fini(struct io *io);
#define AUTO_IO CLEANUP(io_fini) struct io

/* Move up to `size` bytes and advance; bytes moved (short at the end of the cursor or before a bad page)
 * or -EFAULT if none. */
MUST_CHECK ssize_t io_put(struct io *io, const void *src, size_t size); /* sentry → buffer */
MUST_CHECK ssize_t io_get(struct io *io, void *dst, size_t size);       /* buffer → sentry */
MUST_CHECK ssize_t io_put_zero(struct io *io, size_t size);
void io_skip(struct io *io, size_t size);
/* Go back over bytes that were moved but not used (at most those since init). */
void io_rewind(struct io *io, size_t size);

/* pread/pwrite of a host descriptor by the cursor, through a bounce buffer of at most 256 KiB (or in
 * place where that is cheaper). `offset` -1: at the descriptor's own position (pipes, sockets).
 * `may_block`: the host call counts as class B and is wrapped accordingly (RWF_NOWAIT is tried first).
 * Bytes moved or -errno. */
MUST_CHECK ssize_t io_host_read(struct io *io, int hfd, int64_t offset, bool may_block);
MUST_CHECK ssize_t io_host_write(struct io *io, int hfd, int64_t offset, bool may_block);
