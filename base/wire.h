/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bounded buffers with typed accessors for messages between bailey's processes: little-endian, no
 * padding, strings as a u32 length and their bytes. A reader never runs over its end: the first
 * failure sticks, later values read as zero, and the caller checks `failed` once.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct wire_reader {
    const uint8_t *next; /* borrowed: the caller's private copy of the message */
    size_t left;
    bool failed;
};

void wire_reader_init(struct wire_reader *r, const void *bytes, size_t size);
uint32_t wire_get_u32(struct wire_reader *r);
uint64_t wire_get_u64(struct wire_reader *r);
/* A string of at most `max_len` bytes without a NUL in it, as a fresh allocation (owned by the caller,
 * free()); NULL once failed. */
char *wire_get_str(struct wire_reader *r, size_t max_len);
/* A count that may not exceed `max`; 0 once failed. */
uint32_t wire_get_count(struct wire_reader *r, uint32_t max);
/* True if everything was read and nothing failed. */
MUST_CHECK bool wire_reader_done(const struct wire_reader *r);

struct wire_writer {
    uint8_t *bytes; /* owned: wire_writer_fini */
    size_t size;
    size_t capacity;
    size_t limit; /* growth beyond it sets `failed` */
    bool failed;
};

void wire_writer_init(struct wire_writer *w, size_t limit);
void wire_writer_fini(struct wire_writer *w);
void wire_put_u32(struct wire_writer *w, uint32_t value);
void wire_put_u64(struct wire_writer *w, uint64_t value);
void wire_put_str(struct wire_writer *w, const char *s); /* NULL is written as "" */
