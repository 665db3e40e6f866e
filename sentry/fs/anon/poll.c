/* SPDX-License-Identifier: Apache-2.0 */
/*
 * poll(2) and select(2): look once; if nothing is ready, hang a waiter on every wait queue of every file,
 * look again, and sleep. Runs on the calling fiber. The number of waiters is bounded by the caller's number
 * of files times the few queues that a file has.
 */
#include "sentry/fs/anon/poll.h"

#include "sentry/sched/wait_queue.h"
#include "sentry/vfs/vfs.h"
#include <errno.h>
#include <stdlib.h>

#define CHUNK_WAITERS 32

struct waiter_chunk {
    struct waiter_chunk *next; /* owned */
    size_t used;
    struct waiter waiters[CHUNK_WAITERS];
};

struct poll_set {
    struct poll_table table;
    uint32_t events; /* of the entry that is being hung up */
    struct waiter_chunk *chunks; /* owned; the newest */
    int error;
};

static struct waiter *waiter_new(struct poll_set *set)
{
    struct waiter_chunk *c = set->chunks;
    if (!c || c->used == CHUNK_WAITERS) {
        c = malloc(sizeof(*c));
        if (!c) {
            set->error = -ENOMEM;
            return NULL;
        }
        c->next = set->chunks;
        c->used = 0;
        set->chunks = c;
    }
    return &c->waiters[c->used++];
}

static void add_waiter(struct poll_table *table, struct wait_queue *queue)
{
    struct poll_set *set = container_of(table, struct poll_set, table);
    struct waiter *w = waiter_new(set);
    if (!w)
        return;
    waiter_init(w);
    w->events = set->events;
    wait_queue_add(queue, w);
}

static void poll_set_fini(struct poll_set *set)
{
    while (set->chunks) {
        struct waiter_chunk *c = set->chunks;
        for (size_t i = 0; i < c->used; i++)
            wait_queue_remove(&c->waiters[i]);
        set->chunks = c->next;
        free(c);
    }
}

/* One look at every file; with `set`, waiters are hung up meanwhile. */
static int64_t look(struct poll_entry *entries, size_t count, struct poll_set *set)
{
    int64_t ready = 0;
    for (size_t i = 0; i < count; i++) {
        struct poll_entry *e = &entries[i];
        e->revents = 0;
        if (!e->file)
            continue;
        if (set)
            set->events = e->events;
        e->revents = vfs_poll(e->file, set ? &set->table : NULL) & e->events;
        ready += e->revents != 0;
    }
    return ready;
}

int64_t poll_files(struct poll_entry *entries, size_t count, uint64_t deadline_ns)
{
    int64_t ready = look(entries, count, NULL);
    if (ready || deadline_ns == 0)
        return ready;
    struct poll_set set = {.table.add = add_waiter};
    ready = look(entries, count, &set);
    int r = set.error;
    while (!ready && r == 0) {
        r = fiber_park(FIBER_INTERRUPTIBLE, deadline_ns);
        ready = look(entries, count, NULL);
    }
    poll_set_fini(&set);
    if (ready || r == -ETIMEDOUT)
        return ready;
    return r;
}
