/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The gofer's loop: waits for a notification (a call of the sentry), a message on the channel (a call where
 * there are no notifications), or the end of either socket. A request is copied out of shared memory once
 * and only the copy is looked at. The gofer's only thread; the sentry may be hostile.
 */
#define LOG_MODULE "gofer"
#include "gofer/peer.h"

#include "base/fdpass.h"
#include "base/host.h"
#include "base/log.h"
#include "gofer/protocol.h"
#include "gofer/server.h"
#include "gofer/start.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/memfd.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* #syscalls poll: waiting for calls and for the end
 * #syscalls ioctl: the seccomp listener (NOTIF_RECV, NOTIF_SEND, NOTIF_SET_FLAGS only) */

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS /* Linux 6.6 */
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS    SECCOMP_IOW(4, __u64)
#define SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP (1UL << 0)
#endif

struct slot_state {
    bool is_answered;
    uint32_t seq;   /* of the last call executed */
    int64_t result; /* its result: given again if the same call is notified again */
};

struct gofer_peer {
    struct gofer_server *server; /* borrowed */
    int channel;                 /* borrowed */
    int listener;                /* owned; -1 until it comes */
    uint8_t *ring;               /* owned: shared with the sentry */
    struct slot_state slots[GOFER_SLOTS];
    uint8_t request[GOFER_REQUEST_MAX]; /* the private copy */
};

/* Sealed against any change of size: otherwise whoever shrinks it makes the other die by SIGBUS. */
static int make_ring(struct gofer_peer *peer)
{
    AUTO_FD hfd = (int)host_call2(SYS_memfd_create, "bailey-gofer", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (hfd < 0)
        return hfd;
    long error = host_call2(SYS_ftruncate, hfd, GOFER_RING_SIZE);
    if (!error)
        error = host_call3(SYS_fcntl, hfd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    if (error)
        return (int)error;
    long at = host_call6(SYS_mmap, 0, GOFER_RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, hfd, 0);
    if (at < 0 && at > -4096)
        return (int)at;
    peer->ring = (uint8_t *)at; /* NOLINT: the kernel's address */
    uint8_t bytes[GOFER_NOTE_SIZE];
    gofer_put_note(bytes, &(struct gofer_note){.kind = GOFER_NOTE_HELLO, .seq = GOFER_PROTOCOL_VERSION});
    return fdpass_send(peer->channel, bytes, sizeof(bytes), &hfd, 1);
}

int gofer_peer_new(struct gofer_server *server, int channel, struct gofer_peer **ret)
{
    struct gofer_peer *peer = calloc(1, sizeof(*peer));
    if (!peer)
        return -ENOMEM;
    peer->server = server;
    peer->channel = channel;
    peer->listener = -1;
    int error = make_ring(peer);
    if (error) {
        gofer_peer_free(peer);
        return error;
    }
    *ret = peer;
    return 0;
}

void gofer_peer_free(struct gofer_peer *peer)
{
    if (!peer)
        return;
    host_close(peer->listener);
    if (peer->ring)
        (void)host_call2(SYS_munmap, peer->ring, GOFER_RING_SIZE);
    free(peer);
}

/* Copies the request of `slot`, in two steps because the first says how long it is. 0 or -EPROTO. */
static int fetch(struct gofer_peer *peer, uint32_t slot, struct gofer_header *ret, size_t *ret_size)
{
    const uint8_t *shared = peer->ring + (size_t)slot * GOFER_SLOT_SIZE;
    memcpy(peer->request, shared, GOFER_REQUEST_HEADER);
    /* The copy must stay the one read: the compiler may not look at shared memory again. */
    __asm__ volatile("" ::: "memory");
    int error = gofer_get_header(peer->request, ret);
    if (error)
        return error;
    memcpy(peer->request + GOFER_REQUEST_HEADER, shared + GOFER_REQUEST_HEADER, ret->size);
    __asm__ volatile("" ::: "memory");
    *ret_size = GOFER_REQUEST_HEADER + ret->size;
    return 0;
}

/* Executes the call in `slot`. 0 with *ret_result, *ret_seq and maybe a descriptor, or -EPROTO. */
static int serve_slot(struct gofer_peer *peer, uint32_t slot, int64_t *ret_result, uint32_t *ret_seq,
                      int *ret_hfd)
{
    struct gofer_header header;
    size_t size;
    *ret_hfd = -1;
    if (slot >= GOFER_SLOTS || fetch(peer, slot, &header, &size)) {
        log_err("the sentry sent a request that isn't one, ending");
        return -EPROTO;
    }
    struct slot_state *state = &peer->slots[slot];
    *ret_seq = header.seq;
    if (state->is_answered && state->seq == header.seq) {
        *ret_result = state->result;
        return 0;
    }
    uint8_t *reply = peer->ring + (size_t)slot * GOFER_SLOT_SIZE + GOFER_REQUEST_MAX;
    bool is_malformed;
    int64_t result = gofer_server_handle(peer->server, peer->request, size, reply, GOFER_REPLY_MAX,
                                         ret_hfd, &is_malformed);
    if (is_malformed) {
        log_err("the sentry sent a malformed %s request, ending", gofer_kind_name(header.kind));
        return -EPROTO;
    }
    if (result >= 0 && *ret_hfd >= 0)
        result |= GOFER_RESULT_FD;
    *state = (struct slot_state){.is_answered = true, .seq = header.seq, .result = result};
    *ret_result = result;
    return 0;
}

static int send_note(struct gofer_peer *peer, enum gofer_note_kind kind, uint32_t slot, uint32_t seq,
                     int64_t result, int hfd)
{
    uint8_t bytes[GOFER_NOTE_SIZE];
    gofer_put_note(bytes,
                   &(struct gofer_note){.kind = kind, .slot = slot, .seq = seq, .result = result});
    return fdpass_send(peer->channel, bytes, sizeof(bytes), &hfd, hfd >= 0 ? 1 : 0);
}

/* One call over the channel. -EPIPE: the sentry is gone. */
static int serve_channel(struct gofer_peer *peer)
{
    uint8_t bytes[GOFER_CALL_NOTE_SIZE];
    /* No descriptors are taken: a message that carries one is -EPROTO, and they are closed. */
    ssize_t size = fdpass_recv(peer->channel, bytes, sizeof(bytes), NULL, 0, NULL);
    if (size == 0 || size == -ECONNRESET)
        return -EPIPE;
    if (size != (ssize_t)sizeof(bytes)) {
        log_err("the sentry sent something else than a call, ending");
        return -EPROTO;
    }
    struct wire_reader r;
    wire_reader_init(&r, bytes, sizeof(bytes));
    uint32_t slot = wire_get_u32(&r);
    uint32_t seq = wire_get_u32(&r);
    uint32_t request_seq;
    int64_t result;
    AUTO_FD hfd = -1;
    int error = serve_slot(peer, slot, &result, &request_seq, &hfd);
    if (error)
        return error;
    if (seq != request_seq)
        return -EPROTO;
    return send_note(peer, GOFER_NOTE_REPLY, slot, seq, result, hfd);
}

/* One call by notification. */
static int serve_notification(struct gofer_peer *peer)
{
    struct seccomp_notif call;
    memset(&call, 0, sizeof(call)); /* the kernel insists */
    long error = host_call3(SYS_ioctl, peer->listener, SECCOMP_IOCTL_NOTIF_RECV, &call);
    if (error == -ENOENT || error == -EINTR) /* the caller was interrupted before we came */
        return 0;
    if (error)
        return (int)error;
    if (call.data.nr != GOFER_CALL_NR || call.data.args[0] >= GOFER_SLOTS) {
        log_err("the sentry made a call that isn't one, ending");
        return -EPROTO;
    }
    uint32_t slot = (uint32_t)call.data.args[0];
    uint32_t seq;
    int64_t result;
    AUTO_FD hfd = -1;
    error = serve_slot(peer, slot, &result, &seq, &hfd);
    if (!error && hfd >= 0)
        error = send_note(peer, GOFER_NOTE_FD, slot, seq, result, hfd);
    if (error)
        return (int)error;
    host_close(take_fd(&hfd)); /* before the answer: ours must not make a host file busy any longer */
    struct seccomp_notif_resp answer = {.id = call.id};
    if (result < 0)
        answer.error = (int)result;
    else
        answer.val = result;
    error = host_call3(SYS_ioctl, peer->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    return error == -ENOENT ? 0 : (int)error; /* interrupted meanwhile: it will come again */
}

/* The CLI sends the listener, once; anything else but EOF breaks its protocol. */
static int serve_start_sock(struct gofer_peer *peer, int start_sock)
{
    int hfd;
    int error = gofer_recv_listener(start_sock, &hfd);
    if (error)
        return error;
    if (peer->listener >= 0) {
        host_close(hfd);
        return -EPROTO;
    }
    peer->listener = hfd;
    /* Wakes us on the caller's CPU, and it on ours. Older kernels lack it and are slower. */
    (void)host_call3(SYS_ioctl, hfd, SECCOMP_IOCTL_NOTIF_SET_FLAGS, SECCOMP_USER_NOTIF_FD_SYNC_WAKE_UP);
    return 0;
}

int gofer_peer_loop(struct gofer_peer *peer, int start_sock)
{
    for (;;) {
        struct pollfd fds[3] = {{.fd = peer->listener, .events = POLLIN},
                                {.fd = peer->channel, .events = POLLIN},
                                {.fd = start_sock, .events = POLLIN}};
        long count = host_call3(SYS_poll, fds, ARRAY_COUNT(fds), -1);
        if (count == -EINTR)
            continue;
        int error = count < 0 ? (int)count : 0;
        if (!error && (fds[0].revents & POLLIN))
            error = serve_notification(peer);
        else if (!error && fds[0].revents) /* no thread with the filter is left */
            error = -EPIPE;
        if (!error && fds[1].revents)
            error = serve_channel(peer);
        if (!error && fds[2].revents)
            error = serve_start_sock(peer, start_sock);
        if (error)
            return error == -EPIPE ? 0 : error;
    }
}
