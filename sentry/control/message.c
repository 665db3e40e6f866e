/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages over the seqpacket socket, both sides. Neither side trusts the bytes: a message is
 * received into private memory and decoded with every length checked; descriptors nobody asked for are
 * closed before we return (base/fdpass).
 */
#include "sentry/control/control.h"

#include "base/blob.h"
#include "base/fdpass.h"
#include "base/host.h"
#include "base/log.h"
#include "base/wire.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define MESSAGE_MAX (CONTROL_HEADER_SIZE + CONTROL_TEXT_MAX)

enum { FD_BLOB, FD_GOFER, FD_LOG, FD_STDIO0, FD_STDIO1, FD_STDIO2, FD_TTY, FD_OOM, FD_COUNT };
_Static_assert(FD_COUNT <= FDPASS_MAX, "START fits one message");

static void put_le(uint8_t *at, uint64_t value, size_t size)
{
    for (size_t i = 0; i < size; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

static int send_message(int sock, enum control_kind kind, uint64_t a, uint64_t b, const char *text,
                        const int *hfds, size_t count)
{
    uint8_t bytes[MESSAGE_MAX];
    size_t text_size = text ? strnlen(text, CONTROL_TEXT_MAX) : 0;
    put_le(bytes, (uint32_t)kind, 4);
    put_le(bytes + 4, text_size, 4);
    put_le(bytes + 8, a, 8);
    put_le(bytes + 16, b, 8);
    if (text_size)
        memcpy(bytes + CONTROL_HEADER_SIZE, text, text_size);
    return fdpass_send(sock, bytes, CONTROL_HEADER_SIZE + text_size, hfds, count);
}

int control_send(int sock, enum control_kind kind, uint64_t a, uint64_t b, const char *text, int hfd)
{
    return send_message(sock, kind, a, b, text, &hfd, hfd >= 0 ? 1 : 0);
}

int control_decode(const void *bytes, size_t size, struct control_message *ret)
{
    struct wire_reader r;
    wire_reader_init(&r, bytes, size);
    uint32_t kind = wire_get_u32(&r);
    uint32_t text_size = wire_get_u32(&r);
    uint64_t a = wire_get_u64(&r);
    uint64_t b = wire_get_u64(&r);
    if (r.failed || kind >= CONTROL_KIND_COUNT || text_size > CONTROL_TEXT_MAX || text_size != r.left ||
        memchr(r.next, 0, text_size))
        return -EPROTO;
    ret->kind = kind;
    ret->text_size = text_size;
    ret->a = a;
    ret->b = b;
    memcpy(ret->text, r.next, text_size);
    ret->text[text_size] = '\0';
    return 0;
}

static int recv_message(int sock, struct control_message *ret, int *hfds, size_t max, size_t *ret_count)
{
    uint8_t bytes[MESSAGE_MAX];
    size_t count = 0;
    ssize_t size = fdpass_recv(sock, bytes, sizeof(bytes), hfds, max, &count);
    if (size == -ECONNRESET) /* said once, when the peer ended with messages unread; its own come after it */
        size = fdpass_recv(sock, bytes, sizeof(bytes), hfds, max, &count);
    if (size == 0 || size == -ECONNRESET)
        return -EPIPE;
    if (size == -EMSGSIZE)
        return -EPROTO;
    if (size < 0)
        return (int)size;
    int error = control_decode(bytes, (size_t)size, ret);
    if (error) {
        for (size_t i = 0; i < count; i++)
            host_close(hfds[i]);
        return error;
    }
    *ret_count = count;
    return 0;
}

int control_recv(int sock, struct control_message *ret, int *ret_hfd)
{
    int hfd = -1;
    size_t count;
    int error = recv_message(sock, ret, &hfd, ret_hfd ? 1 : 0, &count);
    if (error)
        return error;
    if (ret_hfd)
        *ret_hfd = count ? hfd : -1;
    return 0;
}

void control_fds_init(struct control_fds *fds)
{
    *fds = (struct control_fds){.gofer = -1, .log = -1, .stdio = {-1, -1, -1}, .tty = -1, .oom = -1};
}

void control_fds_close(struct control_fds *fds)
{
    host_close(fds->gofer);
    host_close(fds->log);
    for (size_t i = 0; i < ARRAY_COUNT(fds->stdio); i++)
        host_close(fds->stdio[i]);
    host_close(fds->tty);
    host_close(fds->oom);
    control_fds_init(fds);
}

int control_send_start(int sock, const struct control_config *config, const struct control_fds *fds)
{
    struct wire_writer w;
    wire_writer_init(&w, CONTROL_BLOB_MAX);
    control_config_encode(config, &w);
    size_t size = w.size;
    AUTO_FD blob = w.failed ? -E2BIG : blob_new(w.bytes, w.size);
    wire_writer_fini(&w);
    if (blob < 0)
        return blob;

    const int all[FD_COUNT] = {[FD_BLOB] = blob,
                               [FD_GOFER] = fds->gofer,
                               [FD_LOG] = fds->log,
                               [FD_STDIO0] = fds->stdio[0],
                               [FD_STDIO1] = fds->stdio[1],
                               [FD_STDIO2] = fds->stdio[2],
                               [FD_TTY] = fds->tty,
                               [FD_OOM] = fds->oom};
    int present[FD_COUNT];
    size_t count = 0;
    uint64_t mask = 0;
    for (size_t i = 0; i < FD_COUNT; i++) {
        if (all[i] < 0)
            continue;
        present[count++] = all[i];
        mask |= 1u << i;
    }
    return send_message(sock, CONTROL_START, size, mask, NULL, present, count);
}

/* Sorts the received descriptors into their places; every one has exactly one. */
static int sort_fds(uint64_t mask, const int *hfds, size_t count, int *ret_blob, struct control_fds *ret)
{
    int all[FD_COUNT];
    size_t next = 0;
    if (mask >> FD_COUNT || (size_t)__builtin_popcountll(mask) != count || !(mask & 1u << FD_BLOB))
        return -EPROTO;
    for (size_t i = 0; i < FD_COUNT; i++)
        all[i] = mask >> i & 1 ? hfds[next++] : -1;
    *ret_blob = all[FD_BLOB];
    *ret = (struct control_fds){.gofer = all[FD_GOFER],
                                .log = all[FD_LOG],
                                .stdio = {all[FD_STDIO0], all[FD_STDIO1], all[FD_STDIO2]},
                                .tty = all[FD_TTY],
                                .oom = all[FD_OOM]};
    return 0;
}

static int read_config(int blob, uint64_t size, struct control_config *ret)
{
    AUTO_FREE void *bytes = NULL;
    if (size > CONTROL_BLOB_MAX)
        return -EPROTO;
    int error = blob_read(blob, (size_t)size, &bytes);
    if (error)
        return error;
    return control_config_decode(bytes, (size_t)size, ret);
}

int control_recv_start(int sock, struct control_config *ret, struct control_fds *ret_fds)
{
    struct control_message message;
    int hfds[FD_COUNT];
    size_t count = 0;
    int error = recv_message(sock, &message, hfds, FD_COUNT, &count);
    if (error)
        return error;
    AUTO_FD blob = -1;
    struct control_fds fds;
    control_fds_init(&fds);
    error = message.kind == CONTROL_START ? sort_fds(message.b, hfds, count, &blob, &fds) : -EPROTO;
    if (error) {
        for (size_t i = 0; i < count; i++)
            host_close(hfds[i]);
        return error;
    }
    error = read_config(blob, message.a, ret);
    if (error) {
        control_fds_close(&fds);
        return error;
    }
    *ret_fds = fds;
    return 0;
}
