/* SPDX-License-Identifier: Apache-2.0 */
/*
 * File locks: POSIX record locks (fcntl F_SETLK), those of open file descriptions (F_OFD_SETLK),
 * and flock(2). Any fiber.
 *
 * One short lock for all of them: they are rare, and deadlock detection walks from inode to inode.
 * A record lock's list is sorted by owner-independent start; an owner's own locks never overlap.
 */
#include "sentry/vfs/vfs_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>

struct record {
    TAILQ_ENTRY(record) entry;
    struct posix_lock l;
};

struct whole { /* a flock(2) lock */
    LIST_ENTRY(whole) entry;
    const struct file *file;
    bool is_exclusive;
};

struct flock_state {
    TAILQ_HEAD(, record) records;
    LIST_HEAD(, whole) wholes;
    struct wait_queue changed;
};

/* Who sleeps for whom: POSIX owners only. */
struct sleeper {
    LIST_ENTRY(sleeper) entry;
    const void *owner;
    const void *blocked_by;
};

static struct lock g_locks_lock = LOCK_INITIALIZER;
static LIST_HEAD(, sleeper) g_sleepers = LIST_HEAD_INITIALIZER(g_sleepers); /* g_locks_lock */

/* A guest's locks are the sentry's memory, and each is looked at by the next. */
#define RECORDS_MAX          131072
#define RECORDS_OF_INODE_MAX 16384
static size_t g_record_count; /* g_locks_lock */

static struct flock_state *state_of(struct inode *inode)
{
    struct flock_state *s = atomic_load_explicit(&inode->locks, memory_order_acquire);
    if (s)
        return s;
    struct flock_state *fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return NULL;
    TAILQ_INIT(&fresh->records);
    LIST_INIT(&fresh->wholes);
    wait_queue_init(&fresh->changed);
    if (atomic_compare_exchange_strong_explicit(&inode->locks, &s, fresh, memory_order_acq_rel,
                                                memory_order_acquire))
        return fresh;
    wait_queue_fini(&fresh->changed);
    free(fresh);
    return s;
}

static void remove_locked(struct flock_state *s, struct record *r) REQUIRES(&g_locks_lock)
{
    TAILQ_REMOVE(&s->records, r, entry);
    g_record_count--;
}

static void free_records(struct record *r)
{
    while (r) {
        struct record *next = TAILQ_NEXT(r, entry);
        free(r);
        r = next;
    }
}

void flock_state_free(struct flock_state *s)
{
    if (!s)
        return;
    struct record *freed = NULL;
    struct record *r;
    lock_acquire(&g_locks_lock);
    while ((r = TAILQ_FIRST(&s->records))) {
        remove_locked(s, r);
        TAILQ_NEXT(r, entry) = freed;
        freed = r;
    }
    lock_release(&g_locks_lock);
    free_records(freed);
    struct whole *w;
    while ((w = LIST_FIRST(&s->wholes))) {
        LIST_REMOVE(w, entry);
        free(w);
    }
    wait_queue_fini(&s->changed);
    free(s);
}

/* ---- record locks -------------------------------------------------------------------------------
 */

static bool overlap(const struct posix_lock *a, const struct posix_lock *b)
{
    return a->start <= b->end && b->start <= a->end;
}

static const struct record *conflict_locked(const struct flock_state *s, const struct posix_lock *l)
    REQUIRES(&g_locks_lock)
{
    const struct record *r;
    TAILQ_FOREACH(r, &s->records, entry)
    {
        if (r->l.owner != l->owner && overlap(&r->l, l) &&
            (r->l.type == F_WRLCK || l->type == F_WRLCK))
            return r;
    }
    return NULL;
}

static void insert_locked(struct flock_state *s, struct record *fresh) REQUIRES(&g_locks_lock)
{
    struct record *r;
    g_record_count++;
    TAILQ_FOREACH(r, &s->records, entry)
    {
        if (r->l.start > fresh->l.start) {
            TAILQ_INSERT_BEFORE(r, fresh, entry);
            return;
        }
    }
    TAILQ_INSERT_TAIL(&s->records, fresh, entry);
}

static bool touches(const struct posix_lock *a, const struct posix_lock *b)
{
    return (a->end == INT64_MAX || b->start <= a->end + 1) &&
           (b->end == INT64_MAX || a->start <= b->end + 1);
}

/* Makes [start, end] of the owner what `l` says. Uses up spare[0] for the lock itself and spare[1]
 * for the rest of one that is cut in two; what's unused stays. `freed` collects what is gone. */
static void apply_locked(struct flock_state *s, const struct posix_lock *l, struct record **spare,
                         struct record **freed) REQUIRES(&g_locks_lock)
{
    struct posix_lock add = *l;
    struct record *next;
    for (struct record *r = TAILQ_FIRST(&s->records); r; r = next) {
        next = TAILQ_NEXT(r, entry);
        if (r->l.owner != l->owner)
            continue;
        if (r->l.type == l->type && touches(&r->l, &add)) { /* merge */
            add.start = r->l.start < add.start ? r->l.start : add.start;
            add.end = r->l.end > add.end ? r->l.end : add.end;
        } else if (!overlap(&r->l, l)) {
            continue;
        } else if (r->l.start < l->start) {
            if (r->l.end > l->end) {
                struct record *rest = spare[1];
                spare[1] = NULL;
                rest->l = r->l;
                rest->l.start = l->end + 1;
                insert_locked(s, rest);
            }
            r->l.end = l->start - 1;
            continue;
        } else if (r->l.end > l->end) {
            r->l.start = l->end + 1;
            remove_locked(s, r);
            insert_locked(s, r);
            continue;
        }
        remove_locked(s, r);
        TAILQ_NEXT(r, entry) = *freed;
        *freed = r;
    }
    if (l->type != F_UNLCK) {
        spare[0]->l = add;
        insert_locked(s, spare[0]);
        spare[0] = NULL;
    }
}

/* Would `owner` waiting for `blocker` close a circle? */
static bool is_deadlock_locked(const void *owner, const void *blocker) REQUIRES(&g_locks_lock)
{
    for (int steps = 0; steps < 64; steps++) {
        if (blocker == owner)
            return true;
        const struct sleeper *s;
        LIST_FOREACH(s, &g_sleepers, entry)
        {
            if (s->owner == blocker)
                break;
        }
        if (!s)
            return false;
        blocker = s->blocked_by;
    }
    return false; /* as Linux: a chain that long is not looked at */
}

static size_t count_locked(const struct flock_state *s) REQUIRES(&g_locks_lock)
{
    size_t count = 0;
    const struct record *r;
    TAILQ_FOREACH(r, &s->records, entry)
    count++;
    return count;
}

/* One attempt: 0, -EAGAIN with *ret_blocker, -ENOLCK. */
static int try_set(struct flock_state *s, const struct posix_lock *l, struct record **spare,
                   struct sleeper *sleeper)
{
    struct record *freed = NULL;
    int r = 0;
    lock_acquire(&g_locks_lock);
    const struct record *blocker = l->type == F_UNLCK ? NULL : conflict_locked(s, l);
    if (blocker && sleeper) {
        bool is_posix = l->pid != -1;
        if (is_posix && is_deadlock_locked(l->owner, blocker->l.owner)) {
            r = -EDEADLK;
        } else {
            r = -EAGAIN;
            sleeper->owner = l->owner;
            sleeper->blocked_by = blocker->l.owner;
            LIST_INSERT_HEAD(&g_sleepers, sleeper, entry);
        }
    } else if (blocker) {
        r = -EAGAIN;
    } else if (l->type != F_UNLCK &&
               (g_record_count >= RECORDS_MAX || count_locked(s) >= RECORDS_OF_INODE_MAX)) {
        r = -ENOLCK;
    } else {
        apply_locked(s, l, spare, &freed);
    }
    lock_release(&g_locks_lock);
    free_records(freed);
    if (r == 0)
        wait_queue_wake_all(&s->changed, 0);
    return r;
}

static void stop_sleeping(struct sleeper *sleeper)
{
    lock_acquire(&g_locks_lock);
    LIST_REMOVE(sleeper, entry);
    lock_release(&g_locks_lock);
}

static int set_waiting(struct flock_state *s, const struct posix_lock *l, struct record **spare)
{
    struct waiter w;
    struct sleeper sleeper;
    int r = try_set(s, l, spare, NULL);
    if (r != -EAGAIN)
        return r;
    waiter_init(&w);
    wait_queue_add(&s->changed, &w);
    for (;;) {
        r = try_set(s, l, spare, &sleeper);
        if (r != -EAGAIN)
            break;
        int woken = fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE);
        stop_sleeping(&sleeper);
        if (woken < 0) {
            r = woken;
            break;
        }
    }
    wait_queue_remove(&w);
    return r;
}

int posix_lock_set(struct file *f, const struct posix_lock *l, bool wait)
{
    struct flock_state *s = state_of(f->inode);
    struct record *spare[2] = {malloc(sizeof(struct record)), malloc(sizeof(struct record))};
    int r = -ENOLCK;
    if (s && spare[0] && spare[1])
        r = wait ? set_waiting(s, l, spare) : try_set(s, l, spare, NULL);
    free(spare[0]);
    free(spare[1]);
    return r;
}

int posix_lock_get(struct file *f, struct posix_lock *l)
{
    struct flock_state *s = atomic_load_explicit(&f->inode->locks, memory_order_acquire);
    const struct record *blocker = NULL;
    if (s) {
        lock_acquire(&g_locks_lock);
        blocker = conflict_locked(s, l);
        if (blocker)
            *l = blocker->l;
        lock_release(&g_locks_lock);
    }
    if (!blocker)
        l->type = F_UNLCK;
    return 0;
}

void posix_lock_release_owner(struct inode *inode, const void *owner)
{
    struct flock_state *s = atomic_load_explicit(&inode->locks, memory_order_acquire);
    if (!s)
        return;
    struct record *freed = NULL;
    lock_acquire(&g_locks_lock);
    struct record *next;
    for (struct record *r = TAILQ_FIRST(&s->records); r; r = next) {
        next = TAILQ_NEXT(r, entry);
        if (r->l.owner != owner)
            continue;
        remove_locked(s, r);
        TAILQ_NEXT(r, entry) = freed;
        freed = r;
    }
    lock_release(&g_locks_lock);
    if (freed)
        wait_queue_wake_all(&s->changed, 0);
    free_records(freed);
}

/* ---- flock(2) -----------------------------------------------------------------------------------
 */

static struct whole *find_whole_locked(struct flock_state *s, const struct file *f)
    REQUIRES(&g_locks_lock)
{
    struct whole *w;
    LIST_FOREACH(w, &s->wholes, entry)
    {
        if (w->file == f)
            return w;
    }
    return NULL;
}

/* Takes the file's lock away: the caller frees it and wakes the others. */
static struct whole *take_whole(struct flock_state *s, const struct file *f)
{
    lock_acquire(&g_locks_lock);
    struct whole *w = find_whole_locked(s, f);
    if (w)
        LIST_REMOVE(w, entry);
    lock_release(&g_locks_lock);
    return w;
}

static int try_whole(struct flock_state *s, struct whole **fresh)
{
    int r = 0;
    lock_acquire(&g_locks_lock);
    const struct whole *w;
    LIST_FOREACH(w, &s->wholes, entry)
    {
        if (w->is_exclusive || (*fresh)->is_exclusive) {
            r = -EAGAIN;
            break;
        }
    }
    if (r == 0) {
        LIST_INSERT_HEAD(&s->wholes, *fresh, entry);
        *fresh = NULL;
    }
    lock_release(&g_locks_lock);
    return r;
}

static int lock_whole(struct flock_state *s, struct whole **fresh, bool wait)
{
    int r = try_whole(s, fresh);
    if (r != -EAGAIN || !wait)
        return r;
    struct waiter w;
    waiter_init(&w);
    wait_queue_add(&s->changed, &w);
    while ((r = try_whole(s, fresh)) == -EAGAIN) {
        int woken = fiber_park(FIBER_INTERRUPTIBLE, FIBER_NO_DEADLINE);
        if (woken < 0) {
            r = woken;
            break;
        }
    }
    wait_queue_remove(&w);
    return r;
}

static void unlock_whole(struct flock_state *s, const struct file *f)
{
    struct whole *old = take_whole(s, f);
    if (!old)
        return;
    free(old);
    wait_queue_wake_all(&s->changed, 0);
}

int flock_set(struct file *f, int operation)
{
    struct flock_state *s = state_of(f->inode);
    if (!s)
        return -ENOLCK;
    int kind = operation & ~LOCK_NB;
    if (kind == LOCK_UN) {
        unlock_whole(s, f);
        return 0;
    }
    if (kind != LOCK_SH && kind != LOCK_EX)
        return -EINVAL;
    lock_acquire(&g_locks_lock);
    const struct whole *old = find_whole_locked(s, f);
    bool has_it = old && old->is_exclusive == (kind == LOCK_EX);
    lock_release(&g_locks_lock);
    if (has_it)
        return 0;
    struct whole *fresh = malloc(sizeof(*fresh));
    if (!fresh)
        return -ENOLCK;
    fresh->file = f;
    fresh->is_exclusive = kind == LOCK_EX;
    unlock_whole(s, f); /* a conversion is not atomic: flock(2) */
    int r = lock_whole(s, &fresh, !(operation & LOCK_NB));
    free(fresh);
    return r;
}

void file_locks_release(struct file *f)
{
    struct flock_state *s = atomic_load_explicit(&f->inode->locks, memory_order_acquire);
    if (!s)
        return;
    unlock_whole(s, f);
    posix_lock_release_owner(f->inode, f);
}
