/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Encoders and decoders of the table in gofer/protocol.def. Pure computation on the caller's buffers,
 * in sentry and gofer. What is decoded comes from the other side and is not trusted; it must already be
 * in private memory.
 */
#include "gofer/protocol.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

void gofer_writer_init(struct gofer_writer *w, void *buffer, size_t size)
{
    *w = (struct gofer_writer){.next = buffer, .left = size};
}

/* hot: directory batches and walks are thousands of these. */
static void put_raw(struct gofer_writer *w, const void *value, size_t size)
{
    if (unlikely(w->failed || size > w->left)) {
        w->failed = true;
        return;
    }
    memcpy(w->next, value, size);
    w->next += size;
    w->left -= size;
}

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are copied as they lie in memory");

static void put_u32(struct gofer_writer *w, uint32_t value)
{
    put_raw(w, &value, sizeof(value));
}

static void put_u64(struct gofer_writer *w, uint64_t value)
{
    put_raw(w, &value, sizeof(value));
}

static void get_raw(struct wire_reader *r, void *value, size_t size)
{
    if (unlikely(r->failed || size > r->left)) {
        r->failed = true;
        memset(value, 0, size);
        return;
    }
    memcpy(value, r->next, size);
    r->next += size;
    r->left -= size;
}

static uint32_t get_u32(struct wire_reader *r)
{
    uint32_t value;
    get_raw(r, &value, sizeof(value));
    return value;
}

static uint64_t get_u64(struct wire_reader *r)
{
    uint64_t value;
    get_raw(r, &value, sizeof(value));
    return value;
}

static void put_bytes(struct gofer_writer *w, const void *bytes, size_t size)
{
    if (size > GOFER_BYTES_MAX) {
        w->failed = true;
        return;
    }
    put_u32(w, (uint32_t)size);
    if (w->failed || size > w->left) {
        w->failed = true;
        return;
    }
    if (size)
        memcpy(w->next, bytes, size);
    w->next += size;
    w->left -= size;
}

/* NULL is written as "". */
static void put_text(struct gofer_writer *w, const char *text)
{
    size_t len = text ? strlen(text) : 0;
    if (len > GOFER_TEXT_SIZE_MAX)
        w->failed = true;
    put_bytes(w, text, len);
    put_raw(w, "", 1);
}

bool gofer_name_is_valid(const char *name, size_t len)
{
    if (len == 0 || len > GOFER_NAME_MAX || memchr(name, '/', len) || memchr(name, 0, len))
        return false;
    if (name[0] != '.')
        return true;
    return !(len == 1 || (len == 2 && name[1] == '.'));
}

bool gofer_path_is_valid(const char *path, size_t len)
{
    if (len == 0)
        return true;
    if (len > GOFER_TEXT_SIZE_MAX)
        return false;
    for (;;) {
        const char *slash = memchr(path, '/', len);
        size_t part = slash ? (size_t)(slash - path) : len;
        if (!gofer_name_is_valid(path, part))
            return false;
        if (!slash)
            return true;
        path += part + 1;
        len -= part + 1;
    }
}

static const uint8_t *get_bytes(struct wire_reader *r, uint32_t *ret_size)
{
    uint32_t size = get_u32(r);
    *ret_size = 0;
    if (r->failed || size > GOFER_BYTES_MAX || size > r->left) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *bytes = r->next;
    r->next += size;
    r->left -= size;
    *ret_size = size;
    return bytes;
}

/* "" once failed, never NULL. */
static const char *get_text(struct wire_reader *r, size_t *ret_len)
{
    uint32_t len;
    const uint8_t *bytes = get_bytes(r, &len);
    *ret_len = 0;
    if (r->failed || len > GOFER_TEXT_SIZE_MAX || r->left == 0 || *r->next != 0 ||
        memchr(bytes, 0, len)) {
        r->failed = true;
        return "";
    }
    r->next++;
    r->left--;
    *ret_len = len;
    return (const char *)bytes;
}

static const char *get_name(struct wire_reader *r)
{
    size_t len;
    const char *name = get_text(r, &len);
    if (!gofer_name_is_valid(name, len)) {
        r->failed = true;
        return "";
    }
    return name;
}

static const char *get_path(struct wire_reader *r)
{
    size_t len;
    const char *path = get_text(r, &len);
    if (!gofer_path_is_valid(path, len)) {
        r->failed = true;
        return "";
    }
    return path;
}

static const char *get_any_text(struct wire_reader *r)
{
    size_t len;
    return get_text(r, &len);
}

/* ---- encoders ------------------------------------------------------------------------------------ */

#define U32(field) put_u32(w, s->field);
#define U64(field) put_u64(w, s->field);
#define NAME(field) put_text(w, s->field);
#define PATH(field) put_text(w, s->field);
#define TEXT(field) put_text(w, s->field);
#define BYTES(field) put_bytes(w, s->field, s->field##_size);
#define STAT(field) gofer_put_stat(w, &s->field);

#define GOFER_RECORD(name, fields)                                                                 \
    void gofer_put_##name(struct gofer_writer *w, const struct gofer_##name *s)                    \
    {                                                                                              \
        GOFER_FIELDS fields                                                                        \
    }
#define GOFER_CALL(NAME, name, needs, request, reply)                                              \
    void gofer_put_##name##_request(struct gofer_writer *w, const struct gofer_##name##_request *s) \
    {                                                                                              \
        GOFER_FIELDS request                                                                       \
    }                                                                                              \
    void gofer_put_##name##_reply(struct gofer_writer *w, const struct gofer_##name##_reply *s)    \
    {                                                                                              \
        GOFER_FIELDS reply                                                                         \
    }
#include "gofer/protocol.def"

#undef U32
#undef U64
#undef NAME
#undef PATH
#undef TEXT
#undef BYTES
#undef STAT

/* ---- decoders ------------------------------------------------------------------------------------ */

#define U32(field) ret->field = get_u32(r);
#define U64(field) ret->field = get_u64(r);
#define NAME(field) ret->field = get_name(r);
#define PATH(field) ret->field = get_path(r);
#define TEXT(field) ret->field = get_any_text(r);
#define BYTES(field) ret->field = get_bytes(r, &ret->field##_size);
#define STAT(field)                                                                                \
    gofer_get_stat(r, &ret->field);                                                                \
    check_stat(r, &ret->field);

static void check_stat(struct wire_reader *r, const struct gofer_stat *s)
{
    const uint32_t second = 1000000000u;
    if (s->atime_nsec >= second || s->mtime_nsec >= second || s->ctime_nsec >= second ||
        s->btime_nsec >= second || (s->flags & ~GOFER_STAT_ALL) || s->size > INT64_MAX)
        r->failed = true;
}

#define GOFER_RECORD(name, fields)                                                                 \
    void gofer_get_##name(struct wire_reader *r, struct gofer_##name *ret)                         \
    {                                                                                              \
        GOFER_FIELDS fields                                                                        \
    }
#define GOFER_CALL(NAME, name, needs, request, reply)                                              \
    void gofer_get_##name##_request(struct wire_reader *r, struct gofer_##name##_request *ret)     \
    {                                                                                              \
        GOFER_FIELDS request                                                                       \
    }                                                                                              \
    void gofer_get_##name##_reply(struct wire_reader *r, struct gofer_##name##_reply *ret)         \
    {                                                                                              \
        GOFER_FIELDS reply                                                                         \
    }
#include "gofer/protocol.def"

/* ---- headers and notes --------------------------------------------------------------------------- */

void gofer_put_header(uint8_t bytes[GOFER_REQUEST_HEADER], const struct gofer_header *h)
{
    struct gofer_writer w;
    gofer_writer_init(&w, bytes, GOFER_REQUEST_HEADER);
    put_u32(&w, h->kind);
    put_u32(&w, h->seq);
    put_u32(&w, h->size);
    put_u32(&w, 0);
}

int gofer_get_header(const uint8_t bytes[GOFER_REQUEST_HEADER], struct gofer_header *ret)
{
    struct wire_reader r;
    wire_reader_init(&r, bytes, GOFER_REQUEST_HEADER);
    struct gofer_header h = {.kind = wire_get_count(&r, GOFER_KIND_COUNT - 1)};
    h.seq = wire_get_u32(&r);
    h.size = wire_get_count(&r, GOFER_REQUEST_MAX - GOFER_REQUEST_HEADER);
    if (wire_get_u32(&r) != 0 || !wire_reader_done(&r))
        return -EPROTO;
    *ret = h;
    return 0;
}

const char *gofer_kind_name(uint32_t kind)
{
    static const char *const names[] = {
#define GOFER_CALL(NAME, name, needs, request, reply) #name,
#include "gofer/protocol.def"
    };
    return kind < ARRAY_COUNT(names) ? names[kind] : "?";
}

void gofer_put_note(uint8_t bytes[GOFER_NOTE_SIZE], const struct gofer_note *note)
{
    struct gofer_writer w;
    gofer_writer_init(&w, bytes, GOFER_NOTE_SIZE);
    put_u32(&w, note->kind);
    put_u32(&w, note->slot);
    put_u32(&w, note->seq);
    put_u64(&w, (uint64_t)note->result);
}

int gofer_get_note(const uint8_t *bytes, size_t size, struct gofer_note *ret)
{
    struct wire_reader r;
    wire_reader_init(&r, bytes, size);
    struct gofer_note note = {.kind = wire_get_count(&r, GOFER_NOTE_KIND_COUNT - 1)};
    note.slot = wire_get_count(&r, GOFER_SLOTS - 1);
    note.seq = wire_get_u32(&r);
    note.result = (int64_t)wire_get_u64(&r);
    if (!wire_reader_done(&r))
        return -EPROTO;
    *ret = note;
    return 0;
}
