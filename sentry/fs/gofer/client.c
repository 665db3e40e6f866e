/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls to the gofer: slots, both transports, donated descriptors. Any fiber. It distrusts the gofer: see
 * client.h. Locks: call_lock (fiber mutex, channel transport only) → slot_lock; fd_lock is a leaf.
 */
#define LOG_MODULE "gofer"
#include "sentry/fs/gofer/client.h"

#include "base/fdpass.h"
#include "base/host.h"
#include "base/lock.h"
#include "base/log.h"
#include "sentry/sched/sched.h"
#include "sentry/sched/wait_queue.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* The call itself, GOFER_CALL_NR, is no system call that exists: the filter notifies it. */

#define PRIVATE_SIZE (GOFER_REPLY_MAX + 2 * GOFER_RPC_PATH_SIZE)
#define ERRNO_MAX    133 /* EHWPOISON; what is above is internal to a kernel */

static_assert(GOFER_SLOTS <= 32, "one bit for each slot");

struct pending_fd {
    bool is_there;
    uint32_t seq;
    int hfd; /* owned; -ENFILE: it came when we had no room for one more */
};

struct gofer_client {
    enum gofer_transport transport; /* immutable after init */
    int channel;                    /* owned, immutable */
    uint8_t *ring;                  /* owned: shared with the gofer */
    uint8_t *copies;                /* owned: PRIVATE_SIZE for each slot, its caller's alone */
    void (*dead)(void *arg);
    void *dead_arg;
    gofer_answer_fn answer; /* GOFER_BY_FUNCTION, with dead_arg */
    atomic_bool is_dead;
    _Atomic uint64_t calls;
    struct fmutex call_lock; /* channel transport: one call at a time */
    struct lock slot_lock;
    uint32_t busy; /* slot_lock: bit for each slot */
    struct wait_queue slot_free;
    uint32_t seqs[GOFER_SLOTS]; /* the slot's caller */
    struct lock fd_lock;        /* held while the channel is read (without blocking) */
    struct pending_fd pending[GOFER_SLOTS]; /* fd_lock: received by another caller */
};

static int set_dead(struct gofer_client *c, const char *why)
{
    if (!atomic_exchange(&c->is_dead, true)) {
        log_err("the gofer %s", why);
        if (c->dead)
            c->dead(c->dead_arg);
    }
    return -EIO;
}

/* ---- life ---------------------------------------------------------------------------------------- */

static int check_ring(int hfd)
{
    struct stat st;
    long error = host_call2(SYS_fstat, hfd, &st);
    if (error)
        return (int)error;
    long seals = host_call2(SYS_fcntl, hfd, F_GET_SEALS);
    /* Without these seals the gofer could shrink it and end us by SIGBUS. */
    if (seals < 0 || !(seals & F_SEAL_SHRINK) || !(seals & F_SEAL_GROW))
        return -EPROTO;
    return st.st_size == (off_t)GOFER_RING_SIZE ? 0 : -EPROTO;
}

static int receive_hello(struct gofer_client *c)
{
    uint8_t bytes[GOFER_NOTE_SIZE];
    struct gofer_note note;
    size_t count = 0;
    AUTO_FD hfd = -1;
    ssize_t size = fdpass_recv(c->channel, bytes, sizeof(bytes), &hfd, 1, &count);
    if (size < 0)
        return (int)size;
    if (size == 0)
        return -EPIPE;
    if (count != 1 || gofer_get_note(bytes, (size_t)size, &note) || note.kind != GOFER_NOTE_HELLO ||
        note.seq != GOFER_PROTOCOL_VERSION)
        return -EPROTO;
    int error = check_ring(hfd);
    if (error)
        return error;
    long at = host_call6(SYS_mmap, 0, GOFER_RING_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, hfd, 0);
    if (at < 0 && at > -4096)
        return (int)at;
    c->ring = (uint8_t *)at;
    return 0;
}

/* Descriptors are only looked for when a reply says that one came first: reading never waits then. */
static int make_nonblocking(int hfd)
{
    long flags = host_call2(SYS_fcntl, hfd, F_GETFL);
    return flags < 0 ? (int)flags : (int)host_call3(SYS_fcntl, hfd, F_SETFL, flags | O_NONBLOCK);
}

static struct gofer_client *make(int channel, enum gofer_transport transport)
{
    struct gofer_client *c = calloc(1, sizeof(*c));
    if (!c)
        return NULL;
    c->copies = calloc(GOFER_SLOTS, PRIVATE_SIZE); /* untouched pages cost nothing */
    if (!c->copies) {
        free(c);
        return NULL;
    }
    c->transport = transport;
    c->channel = channel;
    fmutex_init(&c->call_lock);
    lock_init(&c->slot_lock);
    lock_init(&c->fd_lock);
    wait_queue_init(&c->slot_free);
    return c;
}

int gofer_client_new_by_function(gofer_answer_fn answer, void *arg, struct gofer_client **ret)
{
    struct gofer_client *c = make(-1, GOFER_BY_FUNCTION);
    if (!c)
        return -ENOMEM;
    c->answer = answer;
    c->dead_arg = arg;
    long at = host_call6(SYS_mmap, 0, GOFER_RING_SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at < 0 && at > -4096) {
        gofer_client_free(c);
        return (int)at;
    }
    c->ring = (uint8_t *)at;
    *ret = c;
    return 0;
}

int gofer_client_new(int channel, enum gofer_transport transport, void (*dead)(void *arg), void *arg,
                     struct gofer_client **ret)
{
    struct gofer_client *c = make(channel, transport);
    if (!c) {
        host_close(channel);
        return -ENOMEM;
    }
    c->dead = dead;
    c->dead_arg = arg;
    int error = receive_hello(c);
    if (!error && transport == GOFER_BY_NOTIFICATION)
        error = make_nonblocking(channel);
    if (error) {
        gofer_client_free(c);
        return error;
    }
    *ret = c;
    return 0;
}

static void drop_pending(struct pending_fd *p)
{
    if (p->is_there)
        host_close(p->hfd);
    p->is_there = false;
}

void gofer_client_free(struct gofer_client *c)
{
    if (!c)
        return;
    for (size_t i = 0; i < GOFER_SLOTS; i++)
        drop_pending(&c->pending[i]);
    host_close(c->channel);
    if (c->ring)
        (void)host_call2(SYS_munmap, c->ring, GOFER_RING_SIZE);
    free(c->copies);
    wait_queue_fini(&c->slot_free);
    lock_fini(&c->fd_lock);
    lock_fini(&c->slot_lock);
    fmutex_fini(&c->call_lock);
    free(c);
}

uint64_t gofer_client_calls(const struct gofer_client *c)
{
    return atomic_load_explicit(&c->calls, memory_order_relaxed);
}

/* ---- slots --------------------------------------------------------------------------------------- */

static bool take_slot(struct gofer_client *c, uint32_t *ret)
{
    lock_acquire(&c->slot_lock);
    uint32_t slot = c->busy == UINT32_MAX ? GOFER_SLOTS : (uint32_t)__builtin_ctz(~c->busy);
    bool taken = slot < GOFER_SLOTS;
    if (taken)
        c->busy |= 1u << slot;
    lock_release(&c->slot_lock);
    *ret = slot;
    return taken;
}

struct slot_wanted {
    struct gofer_client *client;
    uint32_t slot;
};

static bool got_slot(void *arg)
{
    struct slot_wanted *w = arg;
    return take_slot(w->client, &w->slot);
}

void gofer_rpc_begin(struct gofer_client *c, struct gofer_rpc *rpc, bool may_block) NO_LOCK_ANALYSIS
{
    /* The lock before the slot: else those who wait for it would hold all slots. */
    if (c->transport == GOFER_BY_CHANNEL)
        fmutex_lock(&c->call_lock);
    struct slot_wanted wanted = {.client = c};
    if (!got_slot(&wanted)) {
        while (wait_queue_sleep(&c->slot_free, got_slot, &wanted, FIBER_UNINTERRUPTIBLE, FIBER_NO_DEADLINE))
            ;
    }
    *rpc = (struct gofer_rpc){.client = c, .slot = wanted.slot, .may_block = may_block, .hfd = -1};
    uint8_t *own = c->copies + (size_t)rpc->slot * PRIVATE_SIZE + GOFER_REPLY_MAX;
    rpc->path[0] = (char *)own;
    rpc->path[1] = (char *)own + GOFER_RPC_PATH_SIZE;
}

void gofer_rpc_end(struct gofer_rpc *rpc) NO_LOCK_ANALYSIS
{
    struct gofer_client *c = rpc->client;
    if (!c)
        return;
    rpc->client = NULL;
    host_close(rpc->hfd);
    rpc->hfd = -1;
    lock_acquire(&c->slot_lock);
    c->busy &= ~(1u << rpc->slot);
    lock_release(&c->slot_lock);
    wait_queue_wake(&c->slot_free, 0);
    if (c->transport == GOFER_BY_CHANNEL)
        fmutex_unlock(&c->call_lock);
}

/* ---- transports ---------------------------------------------------------------------------------- */

/* #syscalls recvmsg: notes and descriptors of the gofer */

/* One note with its descriptor: -1 if none came, -ENFILE if this process has no room for it (which is no reason
 * to give the gofer up, so fdpass_recv() won't do). 0 or -errno. */
static int receive_note(struct gofer_client *c, struct gofer_note *ret, int *ret_hfd)
{
    uint8_t bytes[GOFER_NOTE_SIZE + 1];
    union {
        char bytes[CMSG_SPACE(sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = bytes, .iov_len = sizeof(bytes)};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof(control)};
    long size;
    memset(&control, 0, sizeof(control));
    do {
        size = host_call3(SYS_recvmsg, c->channel, &message, MSG_CMSG_CLOEXEC);
    } while (size == -EINTR);
    if (size <= 0)
        return size ? (int)size : -EPIPE;
    AUTO_FD hfd = -1;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_level == SOL_SOCKET && header->cmsg_type == SCM_RIGHTS &&
        header->cmsg_len == CMSG_LEN(sizeof(int)))
        memcpy(&hfd, CMSG_DATA(header), sizeof(hfd));
    if (gofer_get_note(bytes, (size_t)size, ret))
        return -EPROTO;
    *ret_hfd = hfd < 0 && (message.msg_flags & MSG_CTRUNC) ? -ENFILE : take_fd(&hfd);
    return 0;
}

/* The descriptor that the gofer sent before it answered call `seq` of `slot`. Another caller may have
 * received it. -ENFILE: no room for it. */
static int take_descriptor(struct gofer_client *c, uint32_t slot, uint32_t seq)
{
    int found = -EPROTO;
    lock_acquire(&c->fd_lock);
    for (;;) {
        struct pending_fd *mine = &c->pending[slot];
        if (mine->is_there && mine->seq == seq) {
            mine->is_there = false;
            found = mine->hfd;
            break;
        }
        drop_pending(mine); /* of a call that was given up */
        struct gofer_note note;
        int hfd = -1;
        if (receive_note(c, &note, &hfd))
            break;
        if (note.kind != GOFER_NOTE_FD || hfd == -1) {
            host_close(hfd);
            break;
        }
        drop_pending(&c->pending[note.slot]);
        c->pending[note.slot] = (struct pending_fd){.is_there = true, .seq = note.seq, .hfd = hfd};
    }
    lock_release(&c->fd_lock);
    return found;
}

static int64_t call_by_notification(struct gofer_client *c, struct gofer_rpc *rpc, uint32_t seq)
{
    int64_t result = host_call1(GOFER_CALL_NR, rpc->slot);
    if (result == -ENOSYS) /* nobody holds the listener any more */
        return set_dead(c, "is gone");
    if (result >= 0 && (result & GOFER_RESULT_FD)) {
        int hfd = take_descriptor(c, rpc->slot, seq);
        if (hfd == -ENFILE)
            return hfd;
        if (hfd < 0)
            return set_dead(c, "promised a descriptor that didn't come");
        rpc->hfd = hfd;
    }
    return result;
}

static int64_t call_by_channel(struct gofer_client *c, struct gofer_rpc *rpc, uint32_t seq)
{
    uint8_t call[GOFER_CALL_NOTE_SIZE];
    for (size_t i = 0; i < 4; i++) {
        call[i] = (uint8_t)(rpc->slot >> (8 * i));
        call[4 + i] = (uint8_t)(seq >> (8 * i));
    }
    struct gofer_note note;
    int hfd = -1;
    int error = fdpass_send(c->channel, call, sizeof(call), NULL, 0);
    if (!error)
        error = receive_note(c, &note, &hfd);
    rpc->hfd = hfd >= 0 ? hfd : -1;
    if (error)
        return set_dead(c, error == -EPROTO ? "sent something that isn't a reply" : "is gone");
    bool has_fd = note.result >= 0 && (note.result & GOFER_RESULT_FD);
    if (note.kind != GOFER_NOTE_REPLY || note.slot != rpc->slot || note.seq != seq ||
        has_fd != (hfd != -1))
        return set_dead(c, "sent a reply to something else");
    return hfd == -ENFILE ? hfd : note.result;
}

static int64_t call(struct gofer_client *c, struct gofer_rpc *rpc, uint32_t seq)
{
    switch (c->transport) {
    case GOFER_BY_NOTIFICATION:
        return call_by_notification(c, rpc, seq);
    case GOFER_BY_CHANNEL:
        return call_by_channel(c, rpc, seq);
    case GOFER_BY_FUNCTION:
        return c->answer(c->dead_arg, c->ring + (size_t)rpc->slot * GOFER_SLOT_SIZE, &rpc->hfd);
    }
    return -EIO;
}

/* Makes the call whose fields are in the slot, and copies the reply out of it. Its size or -errno. */
static int64_t exchange(struct gofer_rpc *rpc, uint32_t kind, struct gofer_writer *w)
{
    struct gofer_client *c = rpc->client;
    uint8_t *shared = c->ring + (size_t)rpc->slot * GOFER_SLOT_SIZE;
    if (atomic_load(&c->is_dead))
        return -EIO;
    if (w->failed)
        return -EMSGSIZE;
    atomic_fetch_add_explicit(&c->calls, 1, memory_order_relaxed);
    uint32_t seq = ++c->seqs[rpc->slot];
    size_t size = (size_t)(w->next - (shared + GOFER_REQUEST_HEADER));
    gofer_put_header(shared, &(struct gofer_header){.kind = kind, .seq = seq, .size = (uint32_t)size});

    bool may_block = rpc->may_block || c->transport == GOFER_BY_CHANNEL;
    if (may_block)
        sched_blocking_begin();
    int64_t result = call(c, rpc, seq);
    if (may_block)
        sched_blocking_end();
    if (result < 0)
        return result >= -ERRNO_MAX ? result : -EIO;
    result &= ~GOFER_RESULT_FD;
    if (result > (int64_t)GOFER_REPLY_MAX)
        return set_dead(c, "sent a reply that is too long");
    uint8_t *copy = c->copies + (size_t)rpc->slot * PRIVATE_SIZE;
    memcpy(copy, shared + GOFER_REQUEST_MAX, (size_t)result);
    __asm__ volatile("" ::: "memory"); /* only the copy is looked at from here on */
    return result;
}

#define GOFER_CALL(NAME, name, needs, request, reply)                                              \
    int gofer_rpc_##name(struct gofer_rpc *rpc, const struct gofer_##name##_request *req,          \
                         struct gofer_##name##_reply *ret)                                         \
    {                                                                                              \
        struct gofer_client *c = rpc->client;                                                      \
        struct gofer_writer w;                                                                     \
        gofer_writer_init(&w, c->ring + (size_t)rpc->slot * GOFER_SLOT_SIZE + GOFER_REQUEST_HEADER, \
                          GOFER_REQUEST_MAX - GOFER_REQUEST_HEADER);                               \
        gofer_put_##name##_request(&w, req);                                                       \
        int64_t size = exchange(rpc, GOFER_KIND_##NAME, &w);                                       \
        if (size < 0)                                                                              \
            return (int)size;                                                                      \
        struct wire_reader r;                                                                      \
        wire_reader_init(&r, c->copies + (size_t)rpc->slot * PRIVATE_SIZE, (size_t)size);          \
        gofer_get_##name##_reply(&r, ret);                                                         \
        if (!wire_reader_done(&r))                                                                 \
            return set_dead(c, "sent a malformed " #name " reply");                                \
        return 0;                                                                                  \
    }
#include "gofer/protocol.def"
