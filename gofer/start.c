/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start of a gofer, both sides: configuration as a blob, three small messages. Runs in the CLI and, before
 * lockdown, in the gofer. The CLI doesn't trust what the gofer answers.
 */
#include "gofer/start.h"

#include "base/blob.h"
#include "base/fdpass.h"
#include "base/host.h"
#include "base/log.h"
#include "base/wire.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define GOFER_START_VERSION 1u
#define HEADER_SIZE 12 /* u32 kind, u64 blob size; then text */
#define MESSAGE_MAX (HEADER_SIZE + GOFER_TEXT_MAX)

struct message {
    uint32_t kind;
    uint64_t size;
    const uint8_t *text; /* borrowed: in the caller's buffer */
    size_t text_size;
};

void gofer_config_fini(struct gofer_config *config)
{
    for (size_t i = 0; config->attaches && i < config->attach_count; i++)
        free(config->attaches[i].path);
    free(config->attaches);
    for (size_t i = 0; config->masks && i < config->mask_count; i++)
        free(config->masks[i]);
    free(config->masks);
    *config = (struct gofer_config){0};
}

void gofer_config_encode(const struct gofer_config *config, struct wire_writer *w)
{
    wire_put_u32(w, GOFER_START_VERSION);
    wire_put_u32(w, config->log_level);
    wire_put_u32(w, config->log_format);
    wire_put_u32(w, config->as_root);
    wire_put_u32(w, config->own_uid);
    wire_put_u32(w, (uint32_t)config->attach_count);
    for (size_t i = 0; i < config->attach_count; i++) {
        const struct gofer_attach *a = &config->attaches[i];
        wire_put_str(w, a->path);
        wire_put_u64(w, a->dev);
        wire_put_u64(w, a->ino);
        wire_put_u32(w, a->read_only);
        wire_put_u32(w, a->is_file);
        wire_put_u32(w, a->public_only);
        wire_put_u32(w, a->one_mount);
    }
    wire_put_u32(w, (uint32_t)config->mask_count);
    for (size_t i = 0; i < config->mask_count; i++)
        wire_put_str(w, config->masks[i]);
}

static bool get_bool(struct wire_reader *r)
{
    return wire_get_count(r, 1) != 0;
}

static char *get_path(struct wire_reader *r)
{
    char *path = wire_get_str(r, GOFER_PATH_MAX);
    if (path && path[0] != '/')
        r->failed = true;
    return path;
}

static void get_attaches(struct wire_reader *r, struct gofer_config *config)
{
    uint32_t count = wire_get_count(r, GOFER_ATTACHES_MAX);
    config->attaches = calloc((size_t)count + 1, sizeof(*config->attaches));
    if (!config->attaches) {
        r->failed = true;
        return;
    }
    config->attach_count = count;
    for (uint32_t i = 0; i < count && !r->failed; i++) {
        struct gofer_attach *a = &config->attaches[i];
        a->path = get_path(r);
        a->dev = wire_get_u64(r);
        a->ino = wire_get_u64(r);
        a->read_only = get_bool(r);
        a->is_file = get_bool(r);
        a->public_only = get_bool(r);
        a->one_mount = get_bool(r);
    }
}

static void get_masks(struct wire_reader *r, struct gofer_config *config)
{
    uint32_t count = wire_get_count(r, GOFER_MASKS_MAX);
    config->masks = calloc((size_t)count + 1, sizeof(*config->masks));
    if (!config->masks) {
        r->failed = true;
        return;
    }
    config->mask_count = count;
    for (uint32_t i = 0; i < count && !r->failed; i++)
        config->masks[i] = get_path(r);
}

int gofer_config_decode(const void *bytes, size_t size, struct gofer_config *ret)
{
    struct wire_reader r;
    struct gofer_config c = {0};
    wire_reader_init(&r, bytes, size);
    if (wire_get_u32(&r) != GOFER_START_VERSION)
        return -EPROTO;
    c.log_level = wire_get_count(&r, LOG_LEVEL_COUNT - 1);
    c.log_format = wire_get_count(&r, LOG_FORMAT_JSON);
    c.as_root = get_bool(&r);
    c.own_uid = wire_get_u32(&r);
    get_attaches(&r, &c);
    get_masks(&r, &c);
    if (!wire_reader_done(&r) || c.attach_count == 0) {
        gofer_config_fini(&c);
        return -EPROTO;
    }
    *ret = c;
    return 0;
}

static int send_message(int sock, enum gofer_start_kind kind, uint64_t size, const char *text,
                        const int *hfds, size_t count)
{
    uint8_t bytes[MESSAGE_MAX];
    size_t text_size = text ? strnlen(text, GOFER_TEXT_MAX) : 0;
    for (size_t i = 0; i < 4; i++)
        bytes[i] = (uint8_t)((uint32_t)kind >> (8 * i));
    for (size_t i = 0; i < 8; i++)
        bytes[4 + i] = (uint8_t)(size >> (8 * i));
    if (text_size)
        memcpy(bytes + HEADER_SIZE, text, text_size);
    return fdpass_send(sock, bytes, HEADER_SIZE + text_size, hfds, count);
}

/* One message of `kind` or `other` with exactly `count` descriptors; 0 or -errno, nothing left open. */
static int recv_message(int sock, uint8_t bytes[MESSAGE_MAX], enum gofer_start_kind kind,
                        enum gofer_start_kind other, int *hfds, size_t count, struct message *ret)
{
    size_t got = 0;
    ssize_t size = fdpass_recv(sock, bytes, MESSAGE_MAX, hfds, count, &got);
    if (size == 0 || size == -ECONNRESET)
        return -EPIPE;
    if (size < 0)
        return size == -EMSGSIZE ? -EPROTO : (int)size;
    struct wire_reader r;
    wire_reader_init(&r, bytes, (size_t)size);
    ret->kind = wire_get_u32(&r);
    ret->size = wire_get_u64(&r);
    ret->text = r.next;
    ret->text_size = r.left;
    if (!r.failed && (ret->kind == (uint32_t)kind || ret->kind == (uint32_t)other) && got == count)
        return 0;
    for (size_t i = 0; i < got; i++)
        host_close(hfds[i]);
    return -EPROTO;
}

int gofer_recv_start(int sock, struct gofer_config *ret, struct gofer_start_fds *ret_fds)
{
    uint8_t bytes[MESSAGE_MAX];
    struct message message;
    int hfds[3];
    int error = recv_message(sock, bytes, GOFER_START, GOFER_START, hfds, ARRAY_COUNT(hfds), &message);
    if (error)
        return error;
    AUTO_FD blob = hfds[0];
    AUTO_FD channel = hfds[1];
    AUTO_FD log = hfds[2];
    AUTO_FREE void *config = NULL;
    if (message.size > GOFER_BLOB_MAX)
        return -EPROTO;
    error = blob_read(blob, (size_t)message.size, &config);
    if (error)
        return error;
    error = gofer_config_decode(config, (size_t)message.size, ret);
    if (error)
        return error;
    *ret_fds = (struct gofer_start_fds){.channel = take_fd(&channel), .log = take_fd(&log)};
    return 0;
}

int gofer_send_ready(int sock)
{
    return send_message(sock, GOFER_READY, 0, NULL, NULL, 0);
}

int gofer_send_failed(int sock, const char *text)
{
    return send_message(sock, GOFER_FAILED, 0, text, NULL, 0);
}

int gofer_recv_listener(int sock, int *ret_hfd)
{
    uint8_t bytes[MESSAGE_MAX];
    struct message message;
    return recv_message(sock, bytes, GOFER_LISTENER, GOFER_LISTENER, ret_hfd, 1, &message);
}

int gofer_send_start(int sock, const struct gofer_config *config, const struct gofer_start_fds *fds)
{
    struct wire_writer w;
    wire_writer_init(&w, GOFER_BLOB_MAX);
    gofer_config_encode(config, &w);
    size_t size = w.size;
    AUTO_FD blob = w.failed ? -E2BIG : blob_new(w.bytes, w.size);
    wire_writer_fini(&w);
    if (blob < 0)
        return blob;
    const int hfds[] = {blob, fds->channel, fds->log};
    return send_message(sock, GOFER_START, size, NULL, hfds, ARRAY_COUNT(hfds));
}

int gofer_recv_ready(int sock, char ret_text[GOFER_TEXT_MAX + 1])
{
    uint8_t bytes[MESSAGE_MAX];
    struct message message;
    int error = recv_message(sock, bytes, GOFER_READY, GOFER_FAILED, NULL, 0, &message);
    if (error || message.kind == GOFER_READY)
        return error;
    log_escape(ret_text, GOFER_TEXT_MAX + 1, message.text, message.text_size);
    return -ECANCELED;
}

int gofer_send_listener(int sock, int listener_hfd)
{
    return send_message(sock, GOFER_LISTENER, 0, NULL, &listener_hfd, 1);
}
