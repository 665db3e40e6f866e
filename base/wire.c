/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading and writing messages of bailey's own processes. Pure computation on the caller's buffers; any
 * thread. The bytes that are read are not trusted: every length is checked before it's used.
 */
#include "base/wire.h"

#include <stdlib.h>
#include <string.h>

void wire_reader_init(struct wire_reader *r, const void *bytes, size_t size)
{
    *r = (struct wire_reader){.next = bytes, .left = size};
}

/* `size` bytes at the front, or NULL and failed. */
static const uint8_t *take(struct wire_reader *r, size_t size)
{
    if (r->failed || size > r->left) {
        r->failed = true;
        return NULL;
    }
    const uint8_t *bytes = r->next;
    r->next += size;
    r->left -= size;
    return bytes;
}

static uint64_t get_le(struct wire_reader *r, size_t size)
{
    const uint8_t *bytes = take(r, size);
    uint64_t value = 0;
    for (size_t i = 0; bytes && i < size; i++)
        value |= (uint64_t)bytes[i] << (8 * i);
    return value;
}

uint32_t wire_get_u32(struct wire_reader *r)
{
    return (uint32_t)get_le(r, sizeof(uint32_t));
}

uint64_t wire_get_u64(struct wire_reader *r)
{
    return get_le(r, sizeof(uint64_t));
}

char *wire_get_str(struct wire_reader *r, size_t max_len)
{
    size_t len = wire_get_u32(r);
    const uint8_t *bytes = len <= max_len ? take(r, len) : NULL;
    if (!bytes || memchr(bytes, 0, len)) {
        r->failed = true;
        return NULL;
    }
    char *s = malloc(len + 1);
    if (!s) {
        r->failed = true;
        return NULL;
    }
    memcpy(s, bytes, len);
    s[len] = '\0';
    return s;
}

uint32_t wire_get_count(struct wire_reader *r, uint32_t max)
{
    uint32_t count = wire_get_u32(r);
    if (r->failed || count > max) {
        r->failed = true;
        return 0;
    }
    return count;
}

bool wire_reader_done(const struct wire_reader *r)
{
    return !r->failed && r->left == 0;
}

void wire_writer_init(struct wire_writer *w, size_t limit)
{
    *w = (struct wire_writer){.limit = limit};
}

void wire_writer_fini(struct wire_writer *w)
{
    free(w->bytes);
    *w = (struct wire_writer){0};
}

static uint8_t *reserve(struct wire_writer *w, size_t size)
{
    if (w->failed || size > w->limit - w->size) {
        w->failed = true;
        return NULL;
    }
    if (w->size + size > w->capacity) {
        size_t capacity = (w->size + size) * 2 + 256;
        uint8_t *bytes = realloc(w->bytes, capacity);
        if (!bytes) {
            w->failed = true;
            return NULL;
        }
        w->bytes = bytes;
        w->capacity = capacity;
    }
    uint8_t *at = w->bytes + w->size;
    w->size += size;
    return at;
}

static void put_le(struct wire_writer *w, uint64_t value, size_t size)
{
    uint8_t *bytes = reserve(w, size);
    for (size_t i = 0; bytes && i < size; i++)
        bytes[i] = (uint8_t)(value >> (8 * i));
}

void wire_put_u32(struct wire_writer *w, uint32_t value)
{
    put_le(w, value, sizeof(value));
}

void wire_put_u64(struct wire_writer *w, uint64_t value)
{
    put_le(w, value, sizeof(value));
}

void wire_put_str(struct wire_writer *w, const char *s)
{
    size_t len = s ? strlen(s) : 0;
    if (len > UINT32_MAX) {
        w->failed = true;
        return;
    }
    wire_put_u32(w, (uint32_t)len);
    uint8_t *bytes = reserve(w, len);
    if (bytes && len)
        memcpy(bytes, s, len);
}
