/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The protocol between the sentry and its gofer; calls and their fields are in gofer/protocol.def.
 * Neither side trusts the other: both copy a message into private memory once, then decode it.
 *
 * Theory of operation. The gofer makes a memory file ("ring") of GOFER_SLOTS slots, seals its size and
 * sends it with HELLO over the channel (a seqpacket socket). A caller owns a slot for the length of one
 * call. The slot's first part is written by the sentry alone, the second by the gofer alone:
 *
 *   request   u32 kind (enum gofer_kind), u32 seq, u32 size, u32 0, then `size` bytes of fields
 *   reply     fields
 *
 * The call itself is the system call GOFER_CALL_NR with the slot as its only argument; the sentry's
 * filter turns it into a notification that the gofer answers. Its result is -errno or the reply's size,
 * plus GOFER_RESULT_FD if a descriptor was sent (note FD) over the channel before. Or, where there is
 * no notification, the sentry sends {u32 slot, u32 seq} over the channel and gets a note REPLY.
 *
 * `seq` differs from call to call of one slot. A notification that a signal interrupted comes again
 * with the same seq, and gets the same answer without being executed again.
 *
 * A handle stands for a directory (or an attach point that is one file): slot number and generation in
 * one word; 0 is none. Everything else is named from a handle by a path, never by a descriptor.
 *
 * Descriptors travel from gofer to sentry only. One that comes from the sentry, or a message that
 * doesn't decode, ends the gofer.
 */
#pragma once

#include "base/compiler.h"
#include "base/wire.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GOFER_PROTOCOL_VERSION 1u
#define GOFER_CALL_NR 0x3fff0001 /* beyond every system call, below the x32 bit */

#define GOFER_SLOTS 32u
#define GOFER_REQUEST_MAX KIB(80)
#define GOFER_REPLY_MAX KIB(80)
#define GOFER_SLOT_SIZE (GOFER_REQUEST_MAX + GOFER_REPLY_MAX)
#define GOFER_RING_SIZE (GOFER_SLOTS * GOFER_SLOT_SIZE)
#define GOFER_REQUEST_HEADER 16u

#define GOFER_NAME_MAX 255u
#define GOFER_TEXT_SIZE_MAX 4095u
#define GOFER_BYTES_MAX KIB(64)
#define GOFER_BATCH_MAX KIB(64) /* bytes of steps or entries in one reply */
#define GOFER_CLOSE_MAX 512u    /* handles in one CLOSE */
#define GOFER_STEPS_MAX 256u    /* components in one WALK; the rest is another walk's */

#define GOFER_RESULT_FD (INT64_C(1) << 32)

enum gofer_kind {
#define GOFER_CALL(NAME, name, needs, request, reply) GOFER_KIND_##NAME,
#include "gofer/protocol.def"
    GOFER_KIND_COUNT,
};

#define GOFER_STAT_BTIME 1u     /* btime is there */
#define GOFER_STAT_SYNTHETIC 2u /* shown instead of what is there: an empty directory */
#define GOFER_STAT_ALL 3u

#define GOFER_ATTACH_READ_ONLY 1u
#define GOFER_ATTACH_FILE 2u

enum gofer_walk_stop {
    GOFER_WALK_DONE,    /* every component is there */
    GOFER_WALK_MISSING, /* the component after the last step isn't there */
    GOFER_WALK_SYMLINK, /* the last step is a symlink (the path may go on, or not) */
    GOFER_WALK_NOT_DIR, /* the last step is no directory and the path goes on */
    GOFER_WALK_DENIED,  /* the last step is a directory that may not be searched */
    GOFER_WALK_MORE,    /* the reply is full, or some other reason: walk on from there */
    GOFER_WALK_STOP_COUNT,
};

#define GOFER_OPEN_READ 1u
#define GOFER_OPEN_WRITE 2u

#define GOFER_SET_MODE 0x01u
#define GOFER_SET_UID 0x02u
#define GOFER_SET_GID 0x04u
#define GOFER_SET_SIZE 0x08u
#define GOFER_SET_ATIME 0x10u
#define GOFER_SET_MTIME 0x20u
#define GOFER_SET_ALL 0x3fu

/* ---- structs of the table: strings and bytes are borrowed from the buffer that was decoded ------- */

#define U32(field) uint32_t field;
#define U64(field) uint64_t field;
#define NAME(field) const char *field;
#define PATH(field) const char *field;
#define TEXT(field) const char *field;
#define BYTES(field)                                                                               \
    const uint8_t *field;                                                                          \
    uint32_t field##_size;
#define STAT(field) struct gofer_stat field;
#define GOFER_FIELDS(...) __VA_ARGS__

#define GOFER_RECORD(name, fields)                                                                 \
    struct gofer_##name {                                                                          \
        GOFER_FIELDS fields                                                                        \
    };
#define GOFER_CALL(NAME, name, needs, request, reply)                                              \
    struct gofer_##name##_request {                                                                \
        GOFER_FIELDS request                                                                       \
    };                                                                                             \
    struct gofer_##name##_reply {                                                                  \
        GOFER_FIELDS reply                                                                         \
    };
#include "gofer/protocol.def"

#undef U32
#undef U64
#undef NAME
#undef PATH
#undef TEXT
#undef BYTES
#undef STAT

/* ---- coding -------------------------------------------------------------------------------------- */

/* Writes into a bounded buffer, which may be shared memory: it's never read back. */
struct gofer_writer {
    uint8_t *next; /* borrowed */
    size_t left;
    bool failed; /* sticks: something didn't fit or was no valid value */
};
void gofer_writer_init(struct gofer_writer *w, void *buffer, size_t size);

/* A name, a path, as the table defines them. */
MUST_CHECK bool gofer_name_is_valid(const char *name, size_t len);
MUST_CHECK bool gofer_path_is_valid(const char *path, size_t len);

/* gofer_put_X writes a struct's fields; gofer_get_X reads them, failing the reader on anything that the
 * table doesn't allow. The caller of a get checks the reader (wire_reader_done). */
#define GOFER_RECORD(name, fields)                                                                 \
    void gofer_put_##name(struct gofer_writer *w, const struct gofer_##name *s);                   \
    void gofer_get_##name(struct wire_reader *r, struct gofer_##name *ret);
#define GOFER_CALL(NAME, name, needs, request, reply)                                              \
    void gofer_put_##name##_request(struct gofer_writer *w, const struct gofer_##name##_request *s); \
    void gofer_get_##name##_request(struct wire_reader *r, struct gofer_##name##_request *ret);    \
    void gofer_put_##name##_reply(struct gofer_writer *w, const struct gofer_##name##_reply *s);   \
    void gofer_get_##name##_reply(struct wire_reader *r, struct gofer_##name##_reply *ret);
#include "gofer/protocol.def"

struct gofer_header {
    uint32_t kind; /* below GOFER_KIND_COUNT */
    uint32_t seq;
    uint32_t size;
};
void gofer_put_header(uint8_t bytes[GOFER_REQUEST_HEADER], const struct gofer_header *h);
/* 0 or -EPROTO. */
MUST_CHECK int gofer_get_header(const uint8_t bytes[GOFER_REQUEST_HEADER], struct gofer_header *ret);

const char *gofer_kind_name(uint32_t kind); /* "walk"; "?" beyond the table */

/* ---- notes: gofer → sentry over the channel ------------------------------------------------------- */

enum gofer_note_kind {
    GOFER_NOTE_HELLO, /* version in seq; the ring's descriptor */
    GOFER_NOTE_FD,    /* for the call `seq` of `slot`; a descriptor */
    GOFER_NOTE_REPLY, /* result of the call `seq` of `slot`; a descriptor if it says so */
    GOFER_NOTE_KIND_COUNT,
};
struct gofer_note {
    uint32_t kind, slot, seq;
    int64_t result;
};
#define GOFER_NOTE_SIZE 20u
#define GOFER_CALL_NOTE_SIZE 8u /* sentry → gofer: u32 slot, u32 seq */
void gofer_put_note(uint8_t bytes[GOFER_NOTE_SIZE], const struct gofer_note *note);
/* 0 or -EPROTO; kind and slot are within bounds then. */
MUST_CHECK int gofer_get_note(const uint8_t *bytes, size_t size, struct gofer_note *ret);
