/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handles: directories that the sentry has walked to, kept open with O_PATH. A handle is an index and a
 * generation, so that a stale one is refused. The gofer's only thread; ids come from the sentry.
 */
#include "gofer/server_private.h"

#include "base/host.h"
#include <stdlib.h>

void handle_table_init(struct handle_table *t, uint32_t limit)
{
    *t = (struct handle_table){.limit = limit < HANDLES_MAX ? limit : HANDLES_MAX};
}

void handle_table_fini(struct handle_table *t)
{
    for (uint32_t i = 0; i < t->count; i++)
        host_close(t->handles[i].hfd);
    free(t->handles);
    *t = (struct handle_table){0};
}

static bool grow(struct handle_table *t)
{
    uint32_t capacity = t->capacity ? t->capacity * 2 : 64;
    struct handle *handles = realloc(t->handles, capacity * sizeof(*handles));
    if (!handles)
        return false;
    t->handles = handles;
    t->capacity = capacity;
    return true;
}

uint64_t handle_new(struct handle_table *t, int hfd, struct attach *attach, const struct mask *mask)
{
    if (t->open_count >= t->limit)
        return 0;
    uint32_t index;
    if (t->first_free) {
        index = t->first_free - 1;
        t->first_free = t->handles[index].next_free;
    } else {
        if (t->count == t->capacity && !grow(t))
            return 0;
        index = t->count++;
        t->handles[index].generation = 0;
    }
    struct handle *h = &t->handles[index];
    h->generation++;
    h->hfd = hfd;
    h->attach = attach;
    h->mask = mask;
    t->open_count++;
    return (uint64_t)h->generation << 32 | (index + 1);
}

struct handle *handle_find(struct handle_table *t, uint64_t id)
{
    uint32_t index = (uint32_t)id - 1;
    if (index >= t->count)
        return NULL;
    struct handle *h = &t->handles[index];
    return h->hfd >= 0 && h->generation == id >> 32 ? h : NULL;
}

bool handle_close(struct handle_table *t, uint64_t id)
{
    struct handle *h = handle_find(t, id);
    if (!h)
        return false;
    host_close(h->hfd);
    h->hfd = -1;
    h->next_free = t->first_free;
    t->first_free = (uint32_t)id;
    t->open_count--;
    return true;
}
