/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Descriptor tables. Any fiber; files are put only after the table's lock is released, because the last
 * reference may sleep.
 */
#include "sentry/task/fd_table.h"
#include "sentry/vfs/vfs.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

struct fd_slot {
    struct file *file; /* ref; NULL = free */
    bool cloexec;
};

struct fd_table {
    _Atomic uint32_t refs;
    struct lock lock;
    struct fd_slot *slots; /* owned */
    int size;              /* slots allocated */
    int first_free;        /* no free slot is below it */
    unsigned count;
};

#define FD_TABLE_START 64

struct fd_table *fd_table_new(void)
{
    struct fd_table *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    t->slots = calloc(FD_TABLE_START, sizeof *t->slots);
    if (t->slots == NULL) {
        free(t);
        return NULL;
    }
    t->refs = 1;
    t->size = FD_TABLE_START;
    lock_init(&t->lock);
    return t;
}

static int last_used_locked(const struct fd_table *t)
{
    int last = t->size - 1;
    while (last >= 0 && t->slots[last].file == NULL)
        last--;
    return last;
}

struct fd_table *fd_table_copy(struct fd_table *old)
{
    struct fd_table *t = calloc(1, sizeof *t);
    if (t == NULL)
        return NULL;
    lock_init(&t->lock);
    t->refs = 1;
    lock_acquire(&old->lock);
    int used = last_used_locked(old) + 1;
    t->size = used < FD_TABLE_START ? FD_TABLE_START : used;
    t->slots = calloc((size_t)t->size, sizeof *t->slots);
    if (t->slots != NULL) {
        memcpy(t->slots, old->slots, (size_t)used * sizeof *t->slots);
        for (int fd = 0; fd < used; fd++)
            if (t->slots[fd].file != NULL)
                file_get(t->slots[fd].file);
        t->first_free = old->first_free;
        t->count = old->count;
    }
    lock_release(&old->lock);
    if (t->slots == NULL) {
        free(t);
        return NULL;
    }
    return t;
}

void fd_table_get(struct fd_table *t)
{
    atomic_fetch_add_explicit(&t->refs, 1, memory_order_relaxed);
}

bool fd_table_is_shared(const struct fd_table *t)
{
    return atomic_load(&t->refs) > 1;
}

/* close(2)'s part that belongs to the descriptor and not to the description. */
static int close_file(struct fd_table *t, struct file *f)
{
    int r = 0;
    if (f->ops->flush != NULL)
        r = f->ops->flush(f);
    if (f->inode != NULL)
        posix_lock_release_owner(f->inode, t);
    file_put(f);
    return r;
}

void fd_table_put(struct fd_table *t)
{
    if (t == NULL || atomic_fetch_sub(&t->refs, 1) != 1)
        return;
    for (int fd = 0; fd < t->size; fd++)
        if (t->slots[fd].file != NULL)
            (void)close_file(t, t->slots[fd].file);
    lock_fini(&t->lock);
    free(t->slots);
    free(t);
}

struct file *fd_table_get_any(struct fd_table *t, int fd)
{
    struct file *f = NULL;
    lock_acquire(&t->lock);
    if (fd >= 0 && fd < t->size)
        f = t->slots[fd].file;
    if (f != NULL)
        file_get(f);
    lock_release(&t->lock);
    return f;
}

struct file *fd_table_get_file(struct fd_table *t, int fd)
{
    struct file *f = fd_table_get_any(t, fd);
    if (f == NULL || !(f->flags & O_PATH))
        return f;
    file_put(f);
    return NULL;
}

/* Makes room for `fd`. */
static int grow_locked(struct fd_table *t, int fd)
{
    if (fd < t->size)
        return 0;
    int size = t->size;
    while (size <= fd)
        size *= 2;
    struct fd_slot *slots = realloc(t->slots, (size_t)size * sizeof *slots);
    if (slots == NULL)
        return -ENOMEM;
    memset(slots + t->size, 0, (size_t)(size - t->size) * sizeof *slots);
    t->slots = slots;
    t->size = size;
    return 0;
}

static int install_locked(struct fd_table *t, struct file *f, int min, uint64_t limit, bool cloexec)
{
    int fd = min > t->first_free ? min : t->first_free;
    while (fd < t->size && t->slots[fd].file != NULL)
        fd++;
    if ((uint64_t)fd >= limit || fd >= FD_TABLE_MAX)
        return -EMFILE;
    int r = grow_locked(t, fd);
    if (r != 0)
        return r;
    t->slots[fd] = (struct fd_slot){.file = f, .cloexec = cloexec};
    t->count++;
    if (min <= t->first_free)
        t->first_free = fd + 1;
    return fd;
}

int fd_table_install(struct fd_table *t, struct file *f, int min, uint64_t limit, bool cloexec)
{
    if (min < 0 || (uint64_t)min >= limit)
        return min < 0 || limit > 0 ? -EINVAL : -EMFILE;
    lock_acquire(&t->lock);
    int fd = install_locked(t, f, min, limit, cloexec);
    lock_release(&t->lock);
    return fd;
}

int fd_table_install_at(struct fd_table *t, struct file *f, int fd, uint64_t limit, bool cloexec)
{
    if (fd < 0 || (uint64_t)fd >= limit || fd >= FD_TABLE_MAX)
        return -EBADF;
    lock_acquire(&t->lock);
    int r = grow_locked(t, fd);
    struct file *old = NULL;
    if (r == 0) {
        old = t->slots[fd].file;
        t->slots[fd] = (struct fd_slot){.file = f, .cloexec = cloexec};
        if (old == NULL)
            t->count++;
    }
    lock_release(&t->lock);
    if (old != NULL)
        (void)close_file(t, old);
    return r == 0 ? fd : r;
}

static struct file *take_locked(struct fd_table *t, int fd)
{
    struct file *f = t->slots[fd].file;
    if (f == NULL)
        return NULL;
    t->slots[fd] = (struct fd_slot){0};
    t->count--;
    if (fd < t->first_free)
        t->first_free = fd;
    return f;
}

int fd_table_close(struct fd_table *t, int fd)
{
    struct file *f = NULL;
    lock_acquire(&t->lock);
    if (fd >= 0 && fd < t->size)
        f = take_locked(t, fd);
    lock_release(&t->lock);
    return f != NULL ? close_file(t, f) : -EBADF;
}

/* Closes what `wanted` picks, one file at a time. */
static void close_matching(struct fd_table *t, unsigned first, unsigned last, bool cloexec_only)
{
    for (unsigned fd = first; fd <= last; fd++) {
        struct file *f = NULL;
        lock_acquire(&t->lock);
        while (fd < (unsigned)t->size && fd <= last &&
               (t->slots[fd].file == NULL || (cloexec_only && !t->slots[fd].cloexec)))
            fd++;
        bool at_end = fd >= (unsigned)t->size || fd > last;
        if (!at_end)
            f = take_locked(t, (int)fd);
        lock_release(&t->lock);
        if (at_end)
            return;
        (void)close_file(t, f);
    }
}

int fd_table_close_range(struct fd_table *t, unsigned first, unsigned last, bool cloexec_only)
{
    if (first > last)
        return -EINVAL;
    if (last >= FD_TABLE_MAX)
        last = FD_TABLE_MAX - 1;
    if (!cloexec_only) {
        if (first <= last)
            close_matching(t, first, last, false);
        return 0;
    }
    lock_acquire(&t->lock);
    for (unsigned fd = first; fd <= last && fd < (unsigned)t->size; fd++)
        if (t->slots[fd].file != NULL)
            t->slots[fd].cloexec = true;
    lock_release(&t->lock);
    return 0;
}

void fd_table_close_on_exec(struct fd_table *t)
{
    close_matching(t, 0, FD_TABLE_MAX - 1, true);
}

int fd_table_get_cloexec(struct fd_table *t, int fd)
{
    int r = -EBADF;
    lock_acquire(&t->lock);
    if (fd >= 0 && fd < t->size && t->slots[fd].file != NULL)
        r = t->slots[fd].cloexec;
    lock_release(&t->lock);
    return r;
}

int fd_table_set_cloexec(struct fd_table *t, int fd, bool cloexec)
{
    int r = -EBADF;
    lock_acquire(&t->lock);
    if (fd >= 0 && fd < t->size && t->slots[fd].file != NULL) {
        t->slots[fd].cloexec = cloexec;
        r = 0;
    }
    lock_release(&t->lock);
    return r;
}

int fd_table_next(struct fd_table *t, int from)
{
    lock_acquire(&t->lock);
    int fd = from < 0 ? 0 : from;
    while (fd < t->size && t->slots[fd].file == NULL)
        fd++;
    if (fd >= t->size)
        fd = -1;
    lock_release(&t->lock);
    return fd;
}

unsigned fd_table_count(struct fd_table *t)
{
    lock_acquire(&t->lock);
    unsigned count = t->count;
    lock_release(&t->lock);
    return count;
}
