/* SPDX-License-Identifier: Apache-2.0 */
/*
 * SCM_RIGHTS messages by raw sendmsg/recvmsg. The peer is not trusted: whatever it attaches is either
 * handed to the caller in full or closed before we return.
 */
#include "base/fdpass.h"

#include "base/host.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* #syscalls sendmsg,recvmsg: messages between bailey's own processes */

#define CONTROL_SIZE CMSG_SPACE(FDPASS_MAX * sizeof(int))

int fdpass_send(int sock, const void *bytes, size_t size, const int *hfds, size_t count)
{
    if (count > FDPASS_MAX)
        return -EINVAL;
    union {
        char bytes[CONTROL_SIZE];
        struct cmsghdr align;
    } control;
    memset(&control, 0, sizeof(control));
    struct iovec iov = {.iov_len = size};
    memcpy(&iov.iov_base, &bytes, sizeof(bytes)); /* sendmsg only reads: const is kept in substance */
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1};
    if (count) {
        control.align.cmsg_level = SOL_SOCKET;
        control.align.cmsg_type = SCM_RIGHTS;
        control.align.cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(&control.align), hfds, count * sizeof(int));
        message.msg_control = &control;
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
    }
    for (;;) {
        long sent = host_call3(SYS_sendmsg, sock, &message, MSG_NOSIGNAL);
        if (sent == -EINTR)
            continue;
        if (sent < 0)
            return (int)sent;
        return (size_t)sent == size ? 0 : -EMSGSIZE;
    }
}

static void close_all(const int *hfds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        host_close(hfds[i]);
}

/* Collects the descriptors of all SCM_RIGHTS headers of `message` into `hfds` (room for
 * FDPASS_MAX; the control buffer holds no more). */
static size_t collect(struct msghdr *message, int *hfds)
{
    size_t count = 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c; c = CMSG_NXTHDR(message, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS || c->cmsg_len < CMSG_LEN(0))
            continue;
        size_t here = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < here; i++) {
            int hfd;
            memcpy(&hfd, CMSG_DATA(c) + i * sizeof(int), sizeof(hfd));
            if (count < FDPASS_MAX)
                hfds[count++] = hfd;
            else
                host_close(hfd);
        }
    }
    return count;
}

ssize_t fdpass_recv(int sock, void *bytes, size_t size, int *hfds, size_t max_fds, size_t *ret_count)
{
    union {
        char bytes[CONTROL_SIZE];
        struct cmsghdr align;
    } control;
    memset(&control, 0, sizeof(control));
    struct iovec iov = {.iov_base = bytes, .iov_len = size};
    struct msghdr message = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    long received;
    do {
        received = host_call3(SYS_recvmsg, sock, &message, MSG_CMSG_CLOEXEC);
    } while (received == -EINTR);
    if (received < 0)
        return received;

    int got[FDPASS_MAX];
    size_t count = collect(&message, got);
    int error = 0;
    if ((message.msg_flags & MSG_CTRUNC) || count > max_fds)
        error = -EPROTO;
    else if (message.msg_flags & MSG_TRUNC)
        error = -EMSGSIZE;
    if (error) {
        close_all(got, count);
        return error;
    }
    if (count)
        memcpy(hfds, got, count * sizeof(int));
    if (ret_count)
        *ret_count = count;
    return received;
}
