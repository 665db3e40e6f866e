/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Content of tmpfs files: in the heap, then in a memfd; and the account of what all of them hold.
 *
 * The account of a memfd is exact where its pages are known (a file written from start to end) and
 * taken from the host's own count (st_blocks) where they aren't: sparse files, and files that a
 * guest mapped.
 */
#include "sentry/fs/tmpfs/tmpfs_internal.h"

#include "base/host.h"
#define LOG_MODULE "tmpfs"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <linux/memfd.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* #syscalls memfd_create: content of large or mapped files
 * #syscalls ftruncate,fallocate,lseek,fstat: the same */

#define HFD_LIMIT_DEFAULT    12000
#define HEAP_MAX_WITHOUT_HFD MIB(4)

static _Atomic uint64_t g_limit = UINT64_MAX;
static _Atomic uint64_t g_used;
static _Atomic uint32_t g_hfd_limit = HFD_LIMIT_DEFAULT;
static _Atomic uint32_t g_hfd_count;

void tmpfs_set_limit(uint64_t bytes)
{
    atomic_store_explicit(&g_limit, bytes, memory_order_relaxed);
}

uint64_t tmpfs_limit(void)
{
    return atomic_load_explicit(&g_limit, memory_order_relaxed);
}

uint64_t tmpfs_used(void)
{
    return atomic_load_explicit(&g_used, memory_order_relaxed);
}

void tmpfs_set_hfd_limit(uint32_t count)
{
    atomic_store_explicit(&g_hfd_limit, count, memory_order_relaxed);
}

/* Adds to a counter unless it would exceed `limit`. */
static bool add_below(_Atomic uint64_t *counter, uint64_t bytes, uint64_t limit)
{
    uint64_t old = atomic_load_explicit(counter, memory_order_relaxed);
    do {
        if (bytes > limit || old > limit - bytes)
            return false;
    } while (!atomic_compare_exchange_weak_explicit(counter, &old, old + bytes,
                                                    memory_order_relaxed, memory_order_relaxed));
    return true;
}

bool tmpfs_charge(uint64_t bytes)
{
    return add_below(&g_used, bytes, tmpfs_limit());
}

void tmpfs_uncharge(uint64_t bytes)
{
    atomic_fetch_sub_explicit(&g_used, bytes, memory_order_relaxed);
}

int tmpfs_xattr_set(struct xattr_list *l, const char *name, const void *value, size_t size,
                    int flags)
{
    uint64_t before = l->bytes;
    uint64_t most = strlen(name) + size + 64; /* what one can take */
    if (!tmpfs_charge(most))
        return -ENOSPC;
    int r = xattr_list_set(l, name, value, size, flags);
    tmpfs_uncharge(most + before - l->bytes);
    return r;
}

int tmpfs_xattr_remove(struct xattr_list *l, const char *name)
{
    uint64_t before = l->bytes;
    int r = xattr_list_remove(l, name);
    tmpfs_uncharge(before - l->bytes);
    return r;
}

void tmpfs_xattr_fini(struct xattr_list *l)
{
    tmpfs_uncharge(l->bytes);
    xattr_list_fini(l);
}

static uint64_t max_of(const struct tmpfs_super *super)
{
    return super->max_bytes ? super->max_bytes : UINT64_MAX;
}

static bool charge_file(struct inode *inode, uint64_t bytes)
{
    struct tmpfs_super *super = tmpfs_super(inode->sb);
    if (!add_below(&super->used_bytes, bytes, max_of(super)))
        return false;
    if (!tmpfs_charge(bytes)) {
        atomic_fetch_sub_explicit(&super->used_bytes, bytes, memory_order_relaxed);
        return false;
    }
    tmpfs_node(inode)->data.charged += bytes;
    return true;
}

static void uncharge_file(struct inode *inode, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&tmpfs_super(inode->sb)->used_bytes, bytes, memory_order_relaxed);
    tmpfs_uncharge(bytes);
    tmpfs_node(inode)->data.charged -= bytes;
}

/* What is there is there: sets the account to `bytes` even above the limit. */
static void set_charge(struct inode *inode, uint64_t bytes)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    if (bytes < d->charged) {
        uncharge_file(inode, d->charged - bytes);
        return;
    }
    uint64_t more = bytes - d->charged;
    atomic_fetch_add_explicit(&tmpfs_super(inode->sb)->used_bytes, more, memory_order_relaxed);
    atomic_fetch_add_explicit(&g_used, more, memory_order_relaxed);
    d->charged = bytes;
}

/* How many of `wanted` bytes would fit. */
static uint64_t room_for(const struct inode *inode, uint64_t wanted)
{
    const struct tmpfs_super *super = tmpfs_super(inode->sb);
    uint64_t limit = tmpfs_limit();
    uint64_t used = tmpfs_used();
    uint64_t room = used < limit ? limit - used : 0;
    uint64_t own_max = max_of(super);
    uint64_t own_used = atomic_load_explicit(&super->used_bytes, memory_order_relaxed);
    uint64_t own_room = own_used < own_max ? own_max - own_used : 0;
    if (own_room < room)
        room = own_room;
    return wanted < room ? wanted : room;
}

void tmpfs_data_init(struct tmpfs_data *d)
{
    *d = (struct tmpfs_data){.seals = F_SEAL_SEAL};
    atomic_init(&d->hfd, -1);
}

void tmpfs_data_fini(struct inode *inode)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    uncharge_file(inode, d->charged);
    free(d->heap);
    int hfd = atomic_load_explicit(&d->hfd, memory_order_relaxed);
    if (hfd >= 0) {
        host_close(hfd);
        atomic_fetch_sub_explicit(&g_hfd_count, 1, memory_order_relaxed);
    }
}

static int hfd_of(const struct tmpfs_data *d)
{
    return atomic_load_explicit(&d->hfd, memory_order_acquire);
}

static void recount(struct inode *inode)
{
    struct stat st;
    if (host_call2(SYS_fstat, hfd_of(&tmpfs_node(inode)->data), &st) == 0)
        set_charge(inode, (uint64_t)st.st_blocks * 512);
}

/* ---- heap ---------------------------------------------------------------------------------------
 */

static size_t round_capacity(uint64_t size)
{
    size_t capacity = 64;
    while (capacity < size)
        capacity *= 2;
    return capacity;
}

/* Room for `size` bytes; what's new is zero. */
static int heap_reserve(struct inode *inode, uint64_t size)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    if (size <= d->capacity)
        return 0;
    size_t capacity = round_capacity(size);
    if (!charge_file(inode, capacity - d->capacity))
        return -ENOSPC;
    uint8_t *heap = realloc(d->heap, capacity);
    if (!heap) {
        uncharge_file(inode, capacity - d->capacity);
        return -ENOSPC;
    }
    memset(heap + d->capacity, 0, capacity - d->capacity);
    d->heap = heap;
    __atomic_store_n(&d->capacity, capacity, __ATOMIC_RELAXED);
    return 0;
}

/* Zeros [from, to) as far as it lies in the buffer: nothing beyond the size is known to be zero. */
static void heap_clear(struct tmpfs_data *d, uint64_t from, uint64_t to)
{
    if (to > d->capacity)
        to = d->capacity;
    if (from < to)
        memset(d->heap + from, 0, to - from);
}

static ssize_t heap_read(struct inode *inode, struct io *io, uint64_t pos)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    if (pos >= size)
        return 0;
    uint64_t left = size - pos < io->remaining ? size - pos : io->remaining;
    ssize_t done = 0;
    if (pos < d->capacity) {
        uint64_t part = d->capacity - pos < left ? d->capacity - pos : left;
        done = io_put(io, d->heap + pos, part);
        if (done < 0 || (uint64_t)done < part)
            return done;
        left -= part;
    }
    if (left) {
        ssize_t zeros = io_put_zero(io, left);
        if (zeros < 0)
            return done ? done : zeros;
        done += zeros;
    }
    return done;
}

static ssize_t heap_write(struct inode *inode, struct io *io, uint64_t pos)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    int r = heap_reserve(inode, pos + io->remaining);
    if (r < 0)
        return r;
    if (pos > size)
        heap_clear(d, size, pos);
    ssize_t n = io_get(io, d->heap + pos, io->remaining);
    if (n > 0 && pos + (uint64_t)n > size)
        atomic_store_explicit(&inode->size, pos + (uint64_t)n, memory_order_relaxed);
    return n;
}

/* ---- memfd --------------------------------------------------------------------------------------
 */

static bool take_hfd_slot(void)
{
    uint32_t limit = atomic_load_explicit(&g_hfd_limit, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&g_hfd_count, 1, memory_order_relaxed) < limit)
        return true;
    atomic_fetch_sub_explicit(&g_hfd_count, 1, memory_order_relaxed);
    return false;
}

static int new_memfd(uint64_t size)
{
    if (!take_hfd_slot())
        return -ENFILE;
    long hfd = host_call2(SYS_memfd_create, "bailey-file", MFD_CLOEXEC);
    long r = hfd < 0 ? hfd : host_call2(SYS_ftruncate, hfd, size);
    if (r < 0) {
        host_close((int)hfd);
        atomic_fetch_sub_explicit(&g_hfd_count, 1, memory_order_relaxed);
        return (int)r;
    }
    return (int)hfd;
}

/* From the heap into a memfd. */
static int convert(struct inode *inode)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    int hfd = new_memfd(size);
    if (hfd < 0)
        return hfd;
    uint64_t used = size < d->capacity ? size : d->capacity;
    for (uint64_t done = 0; done < used;) {
        long n = host_call4(SYS_pwrite64, hfd, d->heap + done, used - done, done);
        if (n <= 0) {
            host_close(hfd);
            atomic_fetch_sub_explicit(&g_hfd_count, 1, memory_order_relaxed);
            return n < 0 && n != -ENOMEM ? (int)n : -ENOSPC;
        }
        done += (uint64_t)n;
    }
    free(d->heap);
    d->heap = NULL;
    __atomic_store_n(&d->capacity, 0, __ATOMIC_RELAXED);
    set_charge(inode, PAGE_UP(used));
    d->is_dense = PAGE_UP(used) == PAGE_UP(size);
    atomic_store_explicit(&d->hfd, hfd, memory_order_release);
    return 0;
}

int tmpfs_data_hfd(struct inode *inode, int *ret_hfd)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    if (hfd_of(d) < 0) {
        int r = convert(inode);
        if (r < 0)
            return r;
    }
    d->was_mapped = true;
    *ret_hfd = hfd_of(d);
    return 0;
}

static ssize_t memfd_write(struct inode *inode, struct io *io, uint64_t pos)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    uint64_t wanted = io->remaining;
    bool stays_dense = d->is_dense && pos <= PAGE_UP(size);
    uint64_t known = stays_dense ? PAGE_UP(size) : PAGE_DOWN(pos); /* below it nothing is new */
    uint64_t need = PAGE_UP(pos + wanted) > known ? PAGE_UP(pos + wanted) - known : 0;
    if (need && !charge_file(inode, need)) {
        uint64_t room = PAGE_DOWN(room_for(inode, need));
        if (known + room <= pos || !charge_file(inode, room))
            return -ENOSPC;
        wanted = known + room - pos;
        need = room;
    }
    uint64_t held_back = io->remaining - wanted;
    io->remaining = wanted;
    ssize_t n = io_host_write(io, hfd_of(d), (int64_t)pos, false);
    io->remaining += held_back;
    if (n > 0 && pos + (uint64_t)n > size) {
        size = pos + (uint64_t)n;
        atomic_store_explicit(&inode->size, size, memory_order_relaxed);
    }
    if (!stays_dense) {
        d->is_dense = false;
        recount(inode);
    } else if (n < 0 || (uint64_t)n < wanted) {
        set_charge(inode, PAGE_UP(size));
    }
    return n == -ENOMEM ? -ENOSPC : n;
}

/* ---- both ---------------------------------------------------------------------------------------
 */

ssize_t tmpfs_data_read(struct inode *inode, struct io *io, int64_t pos)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    if (hfd_of(d) < 0) {
        fmutex_lock(&inode->lock);
        if (hfd_of(d) < 0) {
            ssize_t n = heap_read(inode, io, (uint64_t)pos);
            fmutex_unlock(&inode->lock);
            return n;
        }
        fmutex_unlock(&inode->lock);
    }
    /* The host's file ends where ours does. */
    if ((uint64_t)pos >= atomic_load_explicit(&inode->size, memory_order_relaxed))
        return 0;
    return io_host_read(io, hfd_of(d), pos, false);
}

/* Which of the two holds content up to `end`: converts when it's time. */
static int place_for(struct inode *inode, uint64_t end)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    if (hfd_of(d) >= 0 || end <= TMPFS_HEAP_MAX)
        return 0;
    int r = convert(inode);
    if ((r == -ENFILE || r == -EMFILE) && end <= HEAP_MAX_WITHOUT_HFD)
        return 0;
    return r == -ENFILE || r == -EMFILE ? -ENOSPC : r;
}

ssize_t tmpfs_data_write(struct inode *inode, struct io *io, int64_t pos)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    uint64_t end;
    if (!io->remaining)
        return 0;
    if (__builtin_add_overflow((uint64_t)pos, io->remaining, &end) || end > TMPFS_SIZE_MAX)
        return -EFBIG;
    int r = place_for(inode, end);
    if (r < 0)
        return r;
    return hfd_of(d) < 0 ? heap_write(inode, io, (uint64_t)pos)
                         : memfd_write(inode, io, (uint64_t)pos);
}

int tmpfs_data_truncate(struct inode *inode, uint64_t size)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    uint64_t old = atomic_load_explicit(&inode->size, memory_order_relaxed);
    if (size > TMPFS_SIZE_MAX)
        return -EFBIG;
    int r = place_for(inode, size);
    if (r < 0)
        return r;
    if (hfd_of(d) < 0) {
        heap_clear(d, old, size);
        if (size == 0) {
            free(d->heap);
            d->heap = NULL;
            __atomic_store_n(&d->capacity, 0, __ATOMIC_RELAXED);
            set_charge(inode, 0);
        }
        atomic_store_explicit(&inode->size, size, memory_order_relaxed);
        return 0;
    }
    long n = host_call2(SYS_ftruncate, hfd_of(d), size);
    if (n < 0)
        return (int)n;
    atomic_store_explicit(&inode->size, size, memory_order_relaxed);
    if (size < old && d->is_dense && !d->was_mapped)
        set_charge(inode, PAGE_UP(size));
    else if (size < old)
        recount(inode);
    else if (PAGE_UP(size) > PAGE_UP(old))
        d->is_dense = false;
    return 0;
}

static int punch_hole(struct inode *inode, uint64_t offset, uint64_t end)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    if (hfd_of(d) < 0) {
        heap_clear(d, offset, end);
        return 0;
    }
    long r = host_call4(SYS_fallocate, hfd_of(d), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                        offset, end - offset);
    d->is_dense = false;
    recount(inode);
    return (int)r;
}

int tmpfs_data_allocate(struct inode *inode, int mode, uint64_t offset, uint64_t bytes)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    uint64_t end;
    if (__builtin_add_overflow(offset, bytes, &end) || end > TMPFS_SIZE_MAX)
        return -EFBIG;
    if (mode & FALLOC_FL_PUNCH_HOLE)
        return punch_hole(inode, offset, end);
    int r = place_for(inode, end);
    if (r < 0)
        return r;
    if (hfd_of(d) < 0) {
        r = heap_reserve(inode, end);
        if (r < 0)
            return r;
        if (end > size && !(mode & FALLOC_FL_KEEP_SIZE)) {
            heap_clear(d, size, end);
            atomic_store_explicit(&inode->size, end, memory_order_relaxed);
        }
        return 0;
    }
    recount(inode);
    uint64_t most = PAGE_UP(end) - PAGE_DOWN(offset);
    if (room_for(inode, most) < most)
        return -ENOSPC;
    long n = host_call4(SYS_fallocate, hfd_of(d), mode & FALLOC_FL_KEEP_SIZE, offset, bytes);
    if (n == 0 && end > size && !(mode & FALLOC_FL_KEEP_SIZE))
        atomic_store_explicit(&inode->size, end, memory_order_relaxed);
    d->is_dense = false;
    recount(inode);
    return n == -ENOMEM ? -ENOSPC : (int)n;
}

int64_t tmpfs_data_seek(struct inode *inode, int64_t offset, int whence)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    if (offset < 0 || (uint64_t)offset >= size)
        return -ENXIO;
    if (hfd_of(d) >= 0)
        return host_call3(SYS_lseek, hfd_of(d), offset, whence);
    return whence == SEEK_DATA ? offset : (int64_t)size;
}

uint64_t tmpfs_data_blocks(struct inode *inode)
{
    struct tmpfs_data *d = &tmpfs_node(inode)->data;
    int hfd = hfd_of(d);
    struct stat st;
    if (hfd >= 0 && host_call2(SYS_fstat, hfd, &st) == 0)
        return (uint64_t)st.st_blocks;
    uint64_t size = atomic_load_explicit(&inode->size, memory_order_relaxed);
    uint64_t held = __atomic_load_n(&d->capacity, __ATOMIC_RELAXED);
    return PAGE_UP(size < held ? size : held) / 512;
}
