/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading directories: batches of entries with their attributes. The last few directories that were read
 * stay open, because continuing by cookie on a fresh descriptor makes some file systems start over. The
 * gofer's only thread; requests come from a sentry that may be hostile.
 */
#include "gofer/server_private.h"

#include "base/host.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* #syscalls getdents64,lseek: reading directories */

/* As the kernel writes it; the name follows at offset 19. */
#define DIRENT_HEADER 19u
struct dirent_view {
    uint64_t cookie;
    uint16_t size;
    const char *name;
};

static struct dirent_view view_at(const uint8_t *bytes)
{
    struct dirent_view v;
    memcpy(&v.cookie, bytes + 8, sizeof(v.cookie));
    memcpy(&v.size, bytes + 16, sizeof(v.size));
    v.name = (const char *)bytes + DIRENT_HEADER;
    return v;
}

/* An entry of the reply is at most that many times as long as the host's: 122 bytes for 24, if the name is one
 * byte. So what is read into `room left / ENTRY_GROWTH` bytes always fits. */
#define ENTRY_GROWTH 6
#define DIRENT_MAX   280u

static void stream_close(struct dir_stream *stream)
{
    host_close(stream->hfd);
    stream->hfd = -1;
}

/* The stream that stands at `cookie` in this directory; else the least recently used one, closed. */
static struct dir_stream *stream_pick(struct gofer_server *s, const struct file_id *id, uint64_t cookie)
{
    struct dir_stream *oldest = &s->streams[0];
    for (size_t i = 0; i < DIR_STREAMS; i++) {
        struct dir_stream *stream = &s->streams[i];
        if (stream->hfd >= 0 && cookie && stream->cookie == cookie && stream->id.ino == id->ino &&
            stream->id.dev == id->dev)
            return stream;
        if (stream->hfd < 0 || (oldest->hfd >= 0 && stream->used < oldest->used))
            oldest = stream;
    }
    stream_close(oldest);
    return oldest;
}

/* A stream at `cookie` of the directory that parent and name are; NULL and *ret_error. */
static struct dir_stream *stream_open(struct gofer_server *s, const struct place *dir, uint64_t cookie,
                                      int *ret_error)
{
    struct dir_stream *stream = stream_pick(s, &dir->id, cookie);
    stream->used = ++s->clock;
    if (stream->hfd >= 0)
        return stream;
    AUTO_FD hfd = place_open(s, dir, NULL, GOFER_OPEN_READ, NULL);
    long error = hfd < 0 ? hfd : 0;
    if (!error && cookie)
        error = host_call3(SYS_lseek, hfd, cookie, SEEK_SET);
    if (error < 0) {
        *ret_error = (int)error;
        return NULL;
    }
    stream->hfd = take_fd(&hfd);
    stream->id = dir->id;
    stream->cookie = cookie;
    return stream;
}

/* Writes one entry unless it's hidden or has gone meanwhile. */
static void put_entry(struct gofer_server *s, const struct place *dir, const struct dir_stream *stream,
                      const struct dirent_view *v, struct gofer_writer *w, uint32_t *count)
{
    struct statx stx;
    if (!gofer_name_is_valid(v->name, strlen(v->name)) || statx_at(stream->hfd, v->name, &stx))
        return;
    const struct mask *mask;
    enum shown shown = place_shown(s, dir, v->name, &stx, &mask);
    if (shown == HIDDEN)
        return;
    struct gofer_entry entry = {.cookie = v->cookie, .name = v->name};
    stat_from_statx(dir->attach, &stx, &entry.stat);
    if (shown == SHOWN_EMPTY)
        stat_make_empty(&entry.stat);
    gofer_put_entry(w, &entry);
    (*count)++;
}

static int fill(struct gofer_server *s, const struct place *dir, struct dir_stream *stream,
                struct gofer_readdir_reply *reply)
{
    struct gofer_writer w;
    gofer_writer_init(&w, s->batch, sizeof(s->batch));
    for (;;) {
        size_t room = w.left / ENTRY_GROWTH;
        if (room > DIR_BUFFER_SIZE)
            room = DIR_BUFFER_SIZE;
        if (room < DIRENT_MAX && reply->count)
            break; /* full: the rest is another call's */
        long size = host_call3(SYS_getdents64, stream->hfd, s->dir_buffer, room);
        if (size < 0)
            return (int)size;
        if (size == 0) {
            reply->is_end = true;
            break;
        }
        for (long at = 0; at < size;) {
            struct dirent_view v = view_at(s->dir_buffer + at);
            put_entry(s, dir, stream, &v, &w, &reply->count);
            stream->cookie = v.cookie;
            at += v.size;
        }
    }
    reply->entries = s->batch;
    reply->entries_size = (uint32_t)(w.next - s->batch);
    return w.failed ? -EOVERFLOW : 0;
}

int call_readdir(struct gofer_server *s, const struct gofer_readdir_request *req,
                 struct gofer_readdir_reply *reply, int *ret_hfd)
{
    (void)ret_hfd;
    AUTO_PLACE dir = PLACE_NONE;
    int error = place_resolve(s, req->at, req->at_path, &dir);
    if (error)
        return error;
    if (!S_ISDIR(dir.stat.mode))
        return -ENOTDIR;
    *reply = (struct gofer_readdir_reply){.entries = s->batch};
    if (dir.is_empty) {
        reply->is_end = true;
        return 0;
    }
    if (!place_may_read(&dir) || !place_may_search(&dir)) /* also when the stream is open already */
        return -EACCES;
    struct dir_stream *stream = stream_open(s, &dir, req->cookie, &error);
    if (!stream)
        return error;
    error = fill(s, &dir, stream, reply);
    if (error || reply->is_end)
        stream_close(stream);
    if (!error && req->want_handle && dir.is_owned) {
        reply->handle = handle_new(&s->table, dir.hfd, dir.attach, dir.mask);
        dir.is_owned = reply->handle == 0;
    }
    return error;
}
