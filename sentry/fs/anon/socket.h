/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unix socketpairs: unix(7), socketpair(2). Everything runs on fibers and works on values of the sentry;
 * addresses, control messages and descriptor numbers are the system call's affair.
 */
#pragma once

#include "abi/socket.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct creds;
struct file;
struct io;

#define SOCKET_FILES_MAX 253 /* SCM_MAX_FD */

/* What travels beside the bytes. */
struct socket_control {
    struct file **files; /* owned array of references */
    size_t file_count;
    struct linux_ucred creds; /* of the sender */
    bool has_creds;
};
void socket_control_fini(struct socket_control *c); /* puts files; may sleep */

/* `type`: SOCK_STREAM, SOCK_DGRAM or SOCK_SEQPACKET; `flags`: O_NONBLOCK; `owner`: for SO_PEERCRED. */
MUST_CHECK int socket_pair_new(const struct creds *creds, int type, uint32_t flags,
                               const struct linux_ucred *owner, struct file **ret_a, struct file **ret_b);
bool file_is_socket(const struct file *f);

/* Bytes sent, or -errno. `control` may be NULL; its files are taken (left empty) once anything is sent.
 * `flags`: MSG_DONTWAIT, MSG_NOSIGNAL, MSG_EOR; MSG_OOB is -EOPNOTSUPP. */
MUST_CHECK ssize_t socket_send(struct file *f, struct io *io, struct socket_control *control, int flags);
/* Bytes received, or -errno. `*ret_control` (may be NULL: files are dropped) is the caller's to finish;
 * has_creds only if SO_PASSCRED is on. `*ret_flags`: MSG_TRUNC, MSG_EOR. With MSG_TRUNC in `flags` a
 * datagram's whole size is returned. */
MUST_CHECK ssize_t socket_receive(struct file *f, struct io *io, int flags, struct socket_control *ret_control,
                                  int *ret_flags);
MUST_CHECK int socket_shutdown(struct file *f, int how);
/* SOL_SOCKET options in the guest's representation; `*size` in: room, out: used. */
MUST_CHECK int socket_get_option(struct file *f, int name, void *value, size_t *size);
MUST_CHECK int socket_set_option(struct file *f, int name, const void *value, size_t size);
#define SOCKET_OPTION_SIZE_MAX 64

/* Fills in the credentials of the calling task, for messages without explicit ones. Set at start by the
 * layer that knows tasks; NULL: those of the pair's maker. */
extern void (*g_sender_creds_hook)(struct linux_ucred *ret);
