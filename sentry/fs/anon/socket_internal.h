/* SPDX-License-Identifier: Apache-2.0 */
/* Private to socket.c, socket_option.c and socket_queue.c. */
#pragma once

#include "base/lock.h"
#include "sentry/fs/anon/socket.h"
#include "sentry/sched/wait_queue.h"
#include <bsd/sys/queue.h>

struct socket_message {
    TAILQ_ENTRY(socket_message) entry;
    size_t size, consumed; /* consumed: receive_mutex */
    bool is_end_of_record;
    struct socket_control control; /* files leave with the first byte */
    uint8_t bytes[];
};
TAILQ_HEAD(socket_messages, socket_message);

struct socket_pair;

/* One socket. */
struct socket_end {
    struct socket_pair *pair;
    struct socket_end *peer;
    struct fmutex receive_mutex; /* one receiver at a time; held while bytes move */
    struct wait_queue wait;
    struct linux_ucred owner; /* immutable: who made it */
    /* pair->lock: */
    struct socket_messages queue; /* to be received here; removal by who holds receive_mutex */
    size_t queued;                /* what the queue counts against the peer's send buffer */
    size_t queued_bytes;          /* not yet consumed */
    bool is_closed, is_read_shut, is_write_shut, is_refused;
    int error; /* SO_ERROR, positive */
    bool pass_creds;
    uint32_t send_size, receive_size;
    uint64_t send_timeout_ns, receive_timeout_ns; /* 0: none */
    uint32_t flags_set;                           /* boolean options without effect here */
};

struct socket_pair {
    struct lock lock;
    int type;              /* immutable */
    unsigned open_count;   /* lock */
    struct socket_end ends[2];
};

#define MESSAGE_OVERHEAD 576 /* what Linux charges for a message beside its bytes, about */

/* socket_queue.c */
struct socket_message *socket_message_new(size_t size); /* NULL without memory */
/* Frees messages and puts their files, iteratively however deep sockets are queued in sockets. */
void socket_messages_free(struct socket_messages *list);
void socket_message_free(struct socket_message *m);
void socket_files_free(struct file **files, size_t count);
MUST_CHECK bool socket_in_flight_add(size_t count); /* false: too many files are queued in sockets */
void socket_in_flight_remove(size_t count);
