/* SPDX-License-Identifier: Apache-2.0 */
/*
 * epoll(7). Runs on fibers; note_ready() runs on whatever host thread wakes a watched file's queue.
 *
 * Theory of operation. An item watches one (file, fd) without a reference. It has a callback waiter in
 * each wait queue of the file; a wake-up puts the item on the set's ready list and wakes who waits for the
 * set. That an item is on the list is a hint: the collector asks the file again. A level-triggered item that
 * was reported goes back to the list's end, an edge-triggered one waits for the next wake-up, a one-shot one
 * is silent until EPOLL_CTL_MOD.
 *
 * Lifetime. An item is on its file's list (file->epolls) and in its set's tree, and is taken off both by
 * whoever comes first, the set's end, EPOLL_CTL_DEL or the file's end, under the set's mutex. The file's end
 * (watched_file_gone) keeps the set alive by a reference of its own while it waits for that mutex.
 *
 * Locks: g_nesting (adding a set to a set) → epoll->mutex (outer set before inner) → file's locks, taken by
 * vfs_poll → wait queue of a file → epoll->lock → wait queues of the set → the same of an outer set.
 * file->epolls_lock is a leaf. Cycles of sets are refused, so the order of sets is one.
 */
#include "sentry/fs/anon/epoll.h"

#include "base/lock.h"
#define LOG_MODULE "epoll"
#include "base/log.h"
#include "sentry/sched/wait_queue.h"
#include "sentry/vfs/vfs.h"
#include <bsd/sys/tree.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>

#define NESTING_MAX   4 /* sets above a set */
#define MODIFIERS     ((uint32_t)(EPOLLET | EPOLLONESHOT | EPOLLWAKEUP | EPOLLEXCLUSIVE))
#define EXCLUSIVE_OK  ((uint32_t)(EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE))

struct item_waiter {
    struct waiter waiter;
    struct epoll_item *item;
    SLIST_ENTRY(item_waiter) entry;
};

struct epoll_item {
    RB_ENTRY(epoll_item) node;
    LIST_ENTRY(epoll_item) file_entry; /* file->epolls_lock */
    TAILQ_ENTRY(epoll_item) ready;     /* epoll->lock */
    bool is_ready;                     /* epoll->lock: on the ready list */
    struct epoll *epoll;               /* borrowed: items do not outlive their set */
    struct file *file;                 /* borrowed: its end takes the item away */
    int fd;
    _Atomic uint32_t events; /* epoll->mutex; read by note_ready(). Modifiers only: silent */
    uint64_t data;           /* epoll->mutex */
    SLIST_HEAD(, item_waiter) waiters;
};

TAILQ_HEAD(ready_list, epoll_item);
RB_HEAD(item_tree, epoll_item);

struct epoll {
    _Atomic uint32_t refs;
    struct fmutex mutex;
    struct item_tree items; /* mutex */
    struct lock lock;
    struct ready_list ready; /* lock */
    struct wait_queue wait;       /* epoll_wait(2) */
    struct wait_queue poll_queue; /* who polls the set itself: outer sets, poll(2) */
    int level;                    /* g_nesting: how many sets lie above it, at most so far */
    uint64_t walk;                /* g_nesting: the last walk that came by, and how deep below its start */
    int walk_level;
};

/* file->epolls of a watched file. Made at the first watch and freed with the file. */
struct epoll_links {
    LIST_HEAD(, epoll_item) items; /* file->epolls_lock */
};

/* Taken while a set is added to another: two such at once could make a cycle. */
static struct {
    struct lock lock;
    bool is_ready;
    struct fmutex mutex;
    uint64_t walk; /* mutex: number of the walk under way */
} g_nesting = {.lock = LOCK_INITIALIZER};

static int item_compare(const struct epoll_item *a, const struct epoll_item *b)
{
    if (a->file != b->file)
        return (uintptr_t)a->file < (uintptr_t)b->file ? -1 : 1;
    return a->fd < b->fd ? -1 : a->fd > b->fd;
}

RB_GENERATE_INTERNAL(item_tree, epoll_item, node, item_compare, static UNUSED)

static const struct file_ops epoll_ops;

bool file_is_epoll(const struct file *f)
{
    return f->ops == &epoll_ops;
}

static void epoll_put(struct epoll *e)
{
    if (atomic_fetch_sub(&e->refs, 1) != 1)
        return;
    fmutex_fini(&e->mutex);
    wait_queue_fini(&e->wait);
    wait_queue_fini(&e->poll_queue);
    lock_fini(&e->lock);
    free(e);
}

/* ---- readiness ---------------------------------------------------------------------------------- */

/* Any host thread, under locks of the file. Returns whether somebody waits for the set. */
static void put_on_list(struct epoll_item *item, bool at_head)
{
    struct epoll *e = item->epoll;
    lock_acquire(&e->lock);
    if (!item->is_ready && at_head)
        TAILQ_INSERT_HEAD(&e->ready, item, ready);
    else if (!item->is_ready)
        TAILQ_INSERT_TAIL(&e->ready, item, ready);
    item->is_ready = true;
    lock_release(&e->lock);
}

static bool mark_ready(struct epoll_item *item)
{
    struct epoll *e = item->epoll;
    put_on_list(item, false);
    bool has_waiter = atomic_load(&e->wait.count) || atomic_load(&e->poll_queue.count);
    wait_queue_wake(&e->wait, EPOLLIN);
    wait_queue_wake(&e->poll_queue, EPOLLIN);
    return has_waiter;
}

static bool note_ready(struct waiter *w, uint32_t events)
{
    struct item_waiter *iw = container_of(w, struct item_waiter, waiter);
    struct epoll_item *item = iw->item;
    uint32_t wanted = atomic_load(&item->events);
    if (!(wanted & ~MODIFIERS))
        return false;
    if (events && !(events & wanted))
        return false;
    bool has_waiter = mark_ready(item);
    return has_waiter || !(wanted & EPOLLEXCLUSIVE);
}

struct hanger {
    struct poll_table table;
    struct epoll_item *item;
    int error;
};

static void hang_waiter(struct poll_table *table, struct wait_queue *queue)
{
    struct hanger *h = container_of(table, struct hanger, table);
    struct item_waiter *iw = calloc(1, sizeof(*iw));
    if (!iw) {
        h->error = -ENOMEM;
        return;
    }
    waiter_init_callback(&iw->waiter, note_ready, 0);
    iw->waiter.exclusive = atomic_load(&h->item->events) & EPOLLEXCLUSIVE;
    iw->item = h->item;
    SLIST_INSERT_HEAD(&h->item->waiters, iw, entry);
    wait_queue_add(queue, &iw->waiter);
}

static uint32_t item_poll(struct epoll_item *item)
{
    return vfs_poll(item->file, NULL) & atomic_load(&item->events) & ~MODIFIERS;
}

/* ---- items: all under epoll->mutex ---------------------------------------------------------------- */

/* Frees the item; the file may go away from the moment when it is off the file's list. */
static void item_remove(struct epoll_item *item)
{
    struct epoll *e = item->epoll;
    struct item_waiter *iw;
    while ((iw = SLIST_FIRST(&item->waiters))) {
        SLIST_REMOVE_HEAD(&item->waiters, entry);
        wait_queue_remove(&iw->waiter);
        free(iw);
    }
    lock_acquire(&e->lock);
    if (item->is_ready)
        TAILQ_REMOVE(&e->ready, item, ready);
    lock_release(&e->lock);
    RB_REMOVE(item_tree, &e->items, item);
    struct file *f = item->file;
    lock_acquire(&f->epolls_lock);
    LIST_REMOVE(item, file_entry);
    lock_release(&f->epolls_lock);
    free(item);
}

/* The first item of `f`, with a reference on its set. */
static struct epoll *any_watcher(struct file *f, struct epoll_links *links)
{
    lock_acquire(&f->epolls_lock);
    struct epoll_item *item = LIST_FIRST(&links->items);
    struct epoll *e = item ? item->epoll : NULL;
    if (e)
        atomic_fetch_add(&e->refs, 1);
    lock_release(&f->epolls_lock);
    return e;
}

/* Takes one item of `f` out of `e`, if there still is one. */
static void remove_item_of(struct epoll *e, struct file *f)
{
    struct epoll_item key = {.file = f, .fd = 0};
    fmutex_lock(&e->mutex);
    struct epoll_item *item = RB_NFIND(item_tree, &e->items, &key);
    if (item && item->file == f)
        item_remove(item);
    fmutex_unlock(&e->mutex);
}

static void watched_file_gone(struct file *f)
{
    struct epoll_links *links = f->epolls;
    struct epoll *e;
    while ((e = any_watcher(f, links))) {
        remove_item_of(e, f);
        epoll_put(e);
    }
    f->epolls = NULL;
    free(links);
}

static int link_to_file(struct epoll_item *item)
{
    struct file *f = item->file;
    struct epoll_links *fresh = calloc(1, sizeof(*fresh));
    if (!fresh)
        return -ENOMEM;
    lock_acquire(&f->epolls_lock);
    if (!f->epolls) {
        f->epolls = fresh;
        fresh = NULL;
    }
    LIST_INSERT_HEAD(&f->epolls->items, item, file_entry);
    lock_release(&f->epolls_lock);
    free(fresh);
    return 0;
}

static int item_add(struct epoll *e, struct file *target, int fd, const struct linux_epoll_event *event)
{
    struct epoll_item *item = calloc(1, sizeof(*item));
    if (!item)
        return -ENOMEM;
    item->epoll = e;
    item->file = target;
    item->fd = fd;
    item->data = event->data;
    atomic_init(&item->events, event->events | EPOLLERR | EPOLLHUP);
    int r = link_to_file(item);
    if (r < 0) {
        free(item);
        return r;
    }
    RB_INSERT(item_tree, &e->items, item);
    struct hanger h = {.table.add = hang_waiter, .item = item};
    uint32_t now = vfs_poll(target, &h.table) & item->events & ~MODIFIERS;
    if (h.error) {
        item_remove(item);
        return h.error;
    }
    if (now)
        (void)mark_ready(item);
    return 0;
}

static int item_modify(struct epoll_item *item, const struct linux_epoll_event *event)
{
    if (atomic_load(&item->events) & EPOLLEXCLUSIVE)
        return -EINVAL;
    item->data = event->data;
    atomic_store(&item->events, event->events | EPOLLERR | EPOLLHUP);
    if (item_poll(item))
        (void)mark_ready(item);
    return 0;
}

/* ---- sets in sets -------------------------------------------------------------------------------- */

/* Puts `e` and what is below it `level` sets deep: -ELOOP if that leads to `wanted` or too deep. With
 * `commit` notes the levels. Recursion is NESTING_MAX deep at most, and a set is looked at once for each
 * depth however many ways lead to it. */
static int check_below(struct epoll *e, const struct epoll *wanted, int level, bool commit)
{
    if (e == wanted || level > NESTING_MAX)
        return -ELOOP;
    if (e->walk == g_nesting.walk && e->walk_level >= level)
        return 0;
    e->walk = g_nesting.walk;
    e->walk_level = level;
    if (commit && e->level < level)
        e->level = level;
    int r = 0;
    struct epoll_item *item;
    fmutex_lock(&e->mutex);
    RB_FOREACH(item, item_tree, &e->items)
    {
        if (file_is_epoll(item->file))
            r = check_below(item->file->private_data, wanted, level + 1, commit);
        if (r < 0)
            break;
    }
    fmutex_unlock(&e->mutex);
    return r;
}

static struct fmutex *nesting_mutex(void)
{
    lock_acquire(&g_nesting.lock);
    if (!g_nesting.is_ready)
        fmutex_init(&g_nesting.mutex);
    g_nesting.is_ready = true;
    lock_release(&g_nesting.lock);
    return &g_nesting.mutex;
}

/* ---- interface ----------------------------------------------------------------------------------- */

static int control_locked(struct epoll *e, int op, int fd, struct file *target,
                          const struct linux_epoll_event *event)
{
    struct epoll_item key = {.file = target, .fd = fd};
    struct epoll_item *item = RB_FIND(item_tree, &e->items, &key);
    switch (op) {
    case EPOLL_CTL_ADD:
        return item ? -EEXIST : item_add(e, target, fd, event);
    case EPOLL_CTL_MOD:
        return item ? item_modify(item, event) : -ENOENT;
    case EPOLL_CTL_DEL:
        if (!item)
            return -ENOENT;
        item_remove(item);
        return 0;
    }
    return -EINVAL;
}

static int control(struct epoll *e, int op, int fd, struct file *target, const struct linux_epoll_event *event)
{
    fmutex_lock(&e->mutex);
    int r = control_locked(e, op, fd, target, event);
    fmutex_unlock(&e->mutex);
    return r;
}

/* Adds a set to a set. */
static int nest(struct epoll *e, int fd, struct file *target, const struct linux_epoll_event *event)
{
    struct fmutex *nesting = nesting_mutex();
    fmutex_lock(nesting);
    g_nesting.walk++;
    int r = check_below(target->private_data, e, e->level + 1, false);
    g_nesting.walk++;
    if (r == 0)
        r = check_below(target->private_data, e, e->level + 1, true);
    if (r == 0)
        r = control(e, EPOLL_CTL_ADD, fd, target, event);
    fmutex_unlock(nesting);
    return r;
}

static int check_event(int op, const struct file *target, const struct linux_epoll_event *event)
{
    if (op == EPOLL_CTL_DEL || !(event->events & EPOLLEXCLUSIVE))
        return 0;
    if (op == EPOLL_CTL_MOD || file_is_epoll(target) || (event->events & ~EXCLUSIVE_OK))
        return -EINVAL;
    return 0;
}

int epoll_control(struct file *epoll, int op, int fd, struct file *target,
                  const struct linux_epoll_event *event)
{
    if (!target->ops->poll)
        return -EPERM;
    if (!file_is_epoll(epoll) || epoll == target)
        return -EINVAL;
    int r = check_event(op, target, event);
    if (r < 0)
        return r;
    if (op == EPOLL_CTL_ADD && file_is_epoll(target))
        return nest(epoll->private_data, fd, target, event);
    return control(epoll->private_data, op, fd, target, event);
}

/* The item has been reported. Its `events` may not be changed by anyone else: the mutex is held. */
static void after_report(struct epoll_item *item)
{
    uint32_t events = atomic_load(&item->events);
    if (events & EPOLLONESHOT)
        atomic_store(&item->events, events & MODIFIERS);
    else if (!(events & EPOLLET))
        put_on_list(item, false);
}

/* The next item of the ready list, off the list; NULL at its end or when `last` was taken before. */
static struct epoll_item *take_ready(struct epoll *e, bool *past_last, const struct epoll_item *last)
{
    if (*past_last)
        return NULL;
    lock_acquire(&e->lock);
    struct epoll_item *item = TAILQ_FIRST(&e->ready);
    if (item) {
        TAILQ_REMOVE(&e->ready, item, ready);
        item->is_ready = false;
        *past_last = item == last;
    }
    lock_release(&e->lock);
    return item;
}

static struct epoll_item *last_ready(struct epoll *e)
{
    lock_acquire(&e->lock);
    struct epoll_item *last = TAILQ_LAST(&e->ready, ready_list);
    lock_release(&e->lock);
    return last;
}

static bool has_ready(void *arg)
{
    return last_ready(arg) != NULL;
}

/* One walk over the list as it is now: what is put back meanwhile comes behind `last`. */
static int collect_now(struct epoll *e, struct linux_epoll_event *events, int max)
{
    int count = 0;
    fmutex_lock(&e->mutex);
    const struct epoll_item *last = last_ready(e);
    bool past_last = !last;
    while (count < max) {
        struct epoll_item *item = take_ready(e, &past_last, last);
        if (!item)
            break;
        uint32_t now = item_poll(item);
        if (!now)
            continue;
        events[count++] = (struct linux_epoll_event){.events = now, .data = item->data};
        after_report(item);
    }
    fmutex_unlock(&e->mutex);
    return count;
}

static int collect_or_wait(struct epoll *e, struct linux_epoll_event *events, int max, uint64_t deadline_ns)
{
    struct waiter w;
    waiter_init(&w);
    w.exclusive = true;
    wait_queue_add(&e->wait, &w);
    int count = 0;
    int r = 0;
    while (!count && r == 0) {
        if (!has_ready(e))
            r = fiber_park(FIBER_INTERRUPTIBLE, deadline_ns);
        if (has_ready(e))
            count = collect_now(e, events, max);
    }
    wait_queue_remove(&w);
    if (count || r == -ETIMEDOUT)
        return count;
    return r;
}

int epoll_collect(struct file *epoll, struct linux_epoll_event *events, int max, uint64_t deadline_ns)
{
    struct epoll *e = epoll->private_data;
    int count = has_ready(e) ? collect_now(e, events, max) : 0;
    if (!count && deadline_ns != 0)
        count = collect_or_wait(e, events, max, deadline_ns);
    /* What is left is for another waiter; so is a wake-up that reached us when we were on our way out. */
    if (has_ready(e))
        wait_queue_wake(&e->wait, EPOLLIN);
    return count;
}

/* Ready if an item is; those that no longer are leave the list on the way. */
static uint32_t epoll_poll(struct file *f, struct poll_table *table)
{
    struct epoll *e = f->private_data;
    poll_wait(table, &e->poll_queue);
    if (!has_ready(e))
        return 0;
    uint32_t events = 0;
    fmutex_lock(&e->mutex);
    const struct epoll_item *last = last_ready(e);
    bool past_last = !last;
    struct epoll_item *item;
    while (!events && (item = take_ready(e, &past_last, last))) {
        if (item_poll(item) == 0)
            continue;
        events = EPOLLIN | EPOLLRDNORM;
        put_on_list(item, true);
    }
    fmutex_unlock(&e->mutex);
    return events;
}

static void epoll_release(struct file *f)
{
    struct epoll *e = f->private_data;
    struct epoll_item *item;
    fmutex_lock(&e->mutex);
    while ((item = RB_MIN(item_tree, &e->items)))
        item_remove(item);
    fmutex_unlock(&e->mutex);
    epoll_put(e);
}

static const struct file_ops epoll_ops = {.poll = epoll_poll, .release = epoll_release, .lseek_is_noop = true};

void epoll_init(void)
{
    struct vfs_hooks hooks = {.file_released = watched_file_gone};
    vfs_set_hooks(&hooks);
}

int epoll_new(const struct creds *creds, struct file **ret)
{
    struct epoll *e = calloc(1, sizeof(*e));
    if (!e)
        return -ENOMEM;
    atomic_init(&e->refs, 1);
    fmutex_init(&e->mutex);
    RB_INIT(&e->items);
    lock_init(&e->lock);
    TAILQ_INIT(&e->ready);
    wait_queue_init(&e->wait);
    wait_queue_init(&e->poll_queue);
    int r = anon_file_new("anon_inode:[eventpoll]", NULL, 0600, creds, O_RDWR, &epoll_ops, e, ret);
    if (r < 0)
        epoll_put(e);
    return r;
}
