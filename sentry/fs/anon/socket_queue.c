/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages and the files that travel in them. A guest can queue a socket in a socket in a socket…; closing
 * the last one must not recurse, so files of freed messages go to one list that whoever is first works off.
 */
#include "sentry/fs/anon/socket_internal.h"
#include "sentry/vfs/vfs.h"

#include <stdlib.h>

#define IN_FLIGHT_MAX 65536 /* files queued in sockets, in the whole sandbox */

static _Atomic size_t g_in_flight;

static struct {
    struct lock lock;
    /* lock: */
    struct socket_messages dead;
    bool is_ready, is_reaping;
} g_reaper = {.lock = LOCK_INITIALIZER};

bool socket_in_flight_add(size_t count)
{
    if (atomic_fetch_add(&g_in_flight, count) + count <= IN_FLIGHT_MAX)
        return true;
    atomic_fetch_sub(&g_in_flight, count);
    return false;
}

void socket_in_flight_remove(size_t count)
{
    atomic_fetch_sub(&g_in_flight, count);
}

struct socket_message *socket_message_new(size_t size)
{
    struct socket_message *m = malloc(sizeof(*m) + size);
    if (!m)
        return NULL;
    *m = (struct socket_message){.size = size};
    return m;
}

void socket_files_free(struct file **files, size_t count)
{
    for (size_t i = 0; i < count; i++)
        file_put(files[i]);
    free(files);
}

static struct socket_message *next_dead(void)
{
    lock_acquire(&g_reaper.lock);
    struct socket_message *m = TAILQ_FIRST(&g_reaper.dead);
    if (m)
        TAILQ_REMOVE(&g_reaper.dead, m, entry);
    else
        g_reaper.is_reaping = false;
    lock_release(&g_reaper.lock);
    return m;
}

/* Puts the files of `list` on the common list; true: the caller works it off. */
static bool hand_over(struct socket_messages *list)
{
    lock_acquire(&g_reaper.lock);
    if (!g_reaper.is_ready)
        TAILQ_INIT(&g_reaper.dead);
    g_reaper.is_ready = true;
    TAILQ_CONCAT(&g_reaper.dead, list, entry);
    bool is_mine = !g_reaper.is_reaping;
    g_reaper.is_reaping = true;
    lock_release(&g_reaper.lock);
    return is_mine;
}

void socket_messages_free(struct socket_messages *list)
{
    struct socket_messages with_files = TAILQ_HEAD_INITIALIZER(with_files);
    struct socket_message *m;
    while ((m = TAILQ_FIRST(list))) {
        TAILQ_REMOVE(list, m, entry);
        if (m->control.file_count)
            TAILQ_INSERT_TAIL(&with_files, m, entry);
        else
            free(m);
    }
    if (TAILQ_EMPTY(&with_files) || !hand_over(&with_files))
        return;
    while ((m = next_dead())) {
        socket_in_flight_remove(m->control.file_count);
        socket_files_free(m->control.files, m->control.file_count);
        free(m);
    }
}

void socket_message_free(struct socket_message *m)
{
    struct socket_messages list = TAILQ_HEAD_INITIALIZER(list);
    TAILQ_INSERT_TAIL(&list, m, entry);
    socket_messages_free(&list);
}

void socket_control_fini(struct socket_control *c)
{
    socket_files_free(c->files, c->file_count);
    c->files = NULL;
    c->file_count = 0;
}
