/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Socket calls: Unix socketpairs. Every other socket answers EAFNOSUPPORT at its making, so what comes later
 * only meets pairs. On the calling task's fiber.
 */
#define LOG_MODULE "syscalls"
#include "abi/socket.h"
#include "base/host.h"
#include "sentry/fs/anon/socket.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/deadline.h"
#include "sentry/syscalls/socket_message.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#define TYPE_MASK       0xf
#define MESSAGES_MAX    1024 /* UIO_MAXIOV */
#define CMSG_CLOEXEC    0x40000000
#define FAMILY_SIZE     ((int32_t)sizeof(uint16_t))
#define OPTION_SIZE_MAX 65536 /* longer values exist; the rest of one is not looked at */

/* The open socket with a reference, or NULL and *ret_error. */
static struct file *get_socket(struct task *task, int fd, int *ret_error)
{
    struct file *f = fd_table_get_file(task->fds, fd);
    *ret_error = f ? 0 : -EBADF;
    if (f && !file_is_socket(f)) {
        file_put(f);
        *ret_error = -ENOTSOCK;
        return NULL;
    }
    return f;
}

static int socket_type(struct file *f)
{
    int type = 0;
    size_t size = sizeof(type);
    return socket_get_option(f, SO_TYPE, &type, &size) < 0 ? 0 : type;
}

/* ---- making ---------------------------------------------------------------------------------------- */

int64_t sys_socket(struct task *task, int domain, int type, int protocol)
{
    (void)task;
    (void)domain;
    (void)protocol;
    if (type & ~(TYPE_MASK | SOCK_CLOEXEC | SOCK_NONBLOCK))
        return -EINVAL;
    return -EAFNOSUPPORT;
}

static int check_pair(int domain, int type, int protocol)
{
    if (type & ~(TYPE_MASK | SOCK_CLOEXEC | SOCK_NONBLOCK))
        return -EINVAL;
    if (domain != AF_UNIX)
        return -EAFNOSUPPORT;
    if (protocol != 0 && protocol != AF_UNIX)
        return -EPROTONOSUPPORT;
    switch (type & TYPE_MASK) {
    case SOCK_STREAM:
    case SOCK_DGRAM:
    case SOCK_SEQPACKET:
    case SOCK_RAW: /* Linux makes a datagram socket of it */
        return 0;
    }
    return -ESOCKTNOSUPPORT;
}

int64_t sys_socketpair(struct task *task, int domain, int type, int protocol, guest_addr fds)
{
    int r = check_pair(domain, type, protocol);
    if (r < 0)
        return r;
    int kind = (type & TYPE_MASK) == SOCK_RAW ? SOCK_DGRAM : type & TYPE_MASK;
    struct linux_ucred owner = {.pid = task->group->tgid, .uid = task->creds->euid, .gid = task->creds->egid};
    AUTO_FILE a = NULL;
    AUTO_FILE b = NULL;
    r = socket_pair_new(task->creds, kind, (uint32_t)type & O_NONBLOCK, &owner, &a, &b);
    if (r < 0)
        return r;
    uint64_t limit = task_rlimit(task, RLIMIT_NOFILE);
    int32_t numbers[2];
    numbers[0] = fd_table_install(task->fds, a, 0, limit, type & SOCK_CLOEXEC);
    if (numbers[0] < 0)
        return numbers[0];
    a = NULL;
    numbers[1] = fd_table_install(task->fds, b, 0, limit, type & SOCK_CLOEXEC);
    if (numbers[1] >= 0)
        b = NULL;
    r = numbers[1] < 0 ? numbers[1] : copy_out_obj(task->mm, fds, &numbers);
    if (r < 0) {
        (void)fd_table_close(task->fds, numbers[0]);
        if (numbers[1] >= 0)
            (void)fd_table_close(task->fds, numbers[1]);
    }
    return r;
}

int64_t sys_connect(struct task *task, int fd, guest_addr addr, uint32_t size)
{
    (void)addr;
    (void)size;
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    return f ? -EISCONN : r;
}

int64_t sys_accept4(struct task *task, int fd, guest_addr addr, guest_addr size, int flags)
{
    (void)addr;
    (void)size;
    (void)flags;
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    return f ? -EINVAL : r;
}

int64_t sys_accept(struct task *task, int fd, guest_addr addr, guest_addr size)
{
    return sys_accept4(task, fd, addr, size, 0);
}

int64_t sys_bind(struct task *task, int fd, guest_addr addr, uint32_t size)
{
    (void)addr;
    (void)size;
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    return f ? -EINVAL : r;
}

int64_t sys_listen(struct task *task, int fd, int backlog)
{
    (void)backlog;
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    return socket_type(f) == SOCK_DGRAM ? -EOPNOTSUPP : -EINVAL;
}

int64_t sys_shutdown(struct task *task, int fd, int how)
{
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    return f ? socket_shutdown(f, how) : r;
}

/* ---- send ------------------------------------------------------------------------------------------ */

/* An address beside a connected socket. */
static int check_destination(struct file *f, bool has_address)
{
    if (!has_address || socket_type(f) == SOCK_SEQPACKET)
        return 0;
    return socket_type(f) == SOCK_STREAM ? -EISCONN : -ECONNREFUSED;
}

int64_t sys_sendto(struct task *task, int fd, guest_addr buf, uint64_t size, int flags, guest_addr addr,
                   uint32_t addr_size)
{
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    r = check_destination(f, !guest_addr_is_null(addr) && addr_size);
    if (r < 0)
        return r;
    AUTO_IO io = {0};
    io_init_guest(&io, task->mm, buf, size);
    return socket_send(f, &io, NULL, flags);
}

static int64_t send_message(struct task *task, struct file *f, const struct linux_msghdr *h, int flags)
{
    int r = check_destination(f, h->name && h->name_size);
    if (r < 0)
        return r;
    AUTO_IO io = {0};
    r = io_init_iovec(&io, task->mm, GUEST_ADDR(h->iov), h->iov_count);
    if (r < 0)
        return r == -EINVAL && h->iov_count > MESSAGES_MAX ? -EMSGSIZE : r;
    struct socket_control control;
    r = control_read(task, GUEST_ADDR(h->control), h->control ? h->control_size : 0, &control);
    if (r < 0)
        return r;
    int64_t sent = socket_send(f, &io, &control, flags);
    socket_control_fini(&control);
    return sent;
}

int64_t sys_sendmsg(struct task *task, int fd, guest_addr msg, int flags)
{
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    struct linux_msghdr h;
    if (copy_in_obj(task->mm, &h, msg) < 0)
        return -EFAULT;
    return send_message(task, f, &h, flags);
}

int64_t sys_sendmmsg(struct task *task, int fd, guest_addr vec, uint32_t count, int flags)
{
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    if (count > MESSAGES_MAX)
        count = MESSAGES_MAX;
    int64_t done = 0;
    for (uint32_t i = 0; i < count; i++) {
        struct linux_mmsghdr m;
        guest_addr at;
        if (!guest_addr_add(vec, i * sizeof(m), &at) || copy_in_obj(task->mm, &m, at) < 0)
            return done ? done : -EFAULT;
        int64_t sent = send_message(task, f, &m.header, flags);
        if (sent < 0)
            return done ? done : sent;
        m.size = (uint32_t)sent;
        if (copy_out_obj(task->mm, at, &m) < 0)
            return done ? done : -EFAULT;
        done++;
    }
    return done;
}

/* ---- receive --------------------------------------------------------------------------------------- */

int64_t sys_recvfrom(struct task *task, int fd, guest_addr buf, uint64_t size, int flags, guest_addr addr,
                     guest_addr addr_size)
{
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    AUTO_IO io = {0};
    io_init_guest(&io, task->mm, buf, size);
    int out_flags;
    int64_t got = socket_receive(f, &io, flags, NULL, &out_flags);
    int32_t none = 0; /* the peer has no address */
    if (got >= 0 && !guest_addr_is_null(addr) && copy_out_obj(task->mm, addr_size, &none) < 0)
        return -EFAULT;
    return got;
}

/* *h is updated as the guest is to see it. */
static int64_t receive_message(struct task *task, struct file *f, struct linux_msghdr *h, int flags)
{
    AUTO_IO io = {0};
    int r = io_init_iovec(&io, task->mm, GUEST_ADDR(h->iov), h->iov_count);
    if (r < 0)
        return r == -EINVAL && h->iov_count > MESSAGES_MAX ? -EMSGSIZE : r;
    struct socket_control control;
    int out_flags;
    int64_t got = socket_receive(f, &io, flags, &control, &out_flags);
    if (got < 0)
        return got;
    r = control_write(task, GUEST_ADDR(h->control), h->control ? h->control_size : 0, &control,
                      flags & CMSG_CLOEXEC, &h->control_size, &out_flags);
    h->name_size = 0;
    h->flags = (uint32_t)(out_flags | (flags & CMSG_CLOEXEC));
    return r < 0 ? r : got;
}

int64_t sys_recvmsg(struct task *task, int fd, guest_addr msg, int flags)
{
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    struct linux_msghdr h;
    if (copy_in_obj(task->mm, &h, msg) < 0)
        return -EFAULT;
    int64_t got = receive_message(task, f, &h, flags);
    if (got < 0)
        return got;
    return copy_out_obj(task->mm, msg, &h) < 0 ? -EFAULT : got;
}

static int64_t receive_at(struct task *task, struct file *f, guest_addr at, int flags)
{
    struct linux_mmsghdr m;
    if (copy_in_obj(task->mm, &m, at) < 0)
        return -EFAULT;
    int64_t got = receive_message(task, f, &m.header, flags);
    if (got < 0)
        return got;
    m.size = (uint32_t)got;
    return copy_out_obj(task->mm, at, &m) < 0 ? -EFAULT : got;
}

int64_t sys_recvmmsg(struct task *task, int fd, guest_addr vec, uint32_t count, int flags, guest_addr timeout)
{
    struct wait_arguments w;
    int r = wait_arguments_read(task, timeout, WAIT_TIMESPEC, GUEST_NULL, 0, &w);
    if (r < 0)
        return r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    if (count > MESSAGES_MAX)
        count = MESSAGES_MAX;
    int64_t done = 0;
    while (done < count) {
        guest_addr at;
        int how = flags & ~MSG_WAITFORONE;
        if (done && (flags & MSG_WAITFORONE))
            how |= MSG_DONTWAIT;
        int64_t got = guest_addr_add(vec, (uint64_t)done * sizeof(struct linux_mmsghdr), &at)
                          ? receive_at(task, f, at, how)
                          : -EFAULT;
        if (got < 0)
            return done ? done : got;
        done++;
        /* As Linux does: the time-out is looked at after each message only. */
        if (w.deadline_ns != FIBER_NO_DEADLINE && host_monotonic_ns() >= w.deadline_ns)
            break;
    }
    wait_arguments_write_left(task, &w);
    return done;
}

/* ---- names and options ------------------------------------------------------------------------------ */

/* Both ends are unnamed: an address of the family alone. */
static int64_t write_unnamed(struct task *task, int fd, guest_addr addr, guest_addr size)
{
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    int32_t room;
    if (copy_in_obj(task->mm, &room, size) < 0)
        return -EFAULT;
    if (room < 0)
        return -EINVAL;
    uint16_t family = AF_UNIX;
    size_t count = room < FAMILY_SIZE ? (size_t)room : sizeof(family);
    int32_t full = FAMILY_SIZE;
    if (count && copy_out(task->mm, addr, &family, count) < 0)
        return -EFAULT;
    return copy_out_obj(task->mm, size, &full);
}

int64_t sys_getsockname(struct task *task, int fd, guest_addr addr, guest_addr size)
{
    return write_unnamed(task, fd, addr, size);
}

int64_t sys_getpeername(struct task *task, int fd, guest_addr addr, guest_addr size)
{
    return write_unnamed(task, fd, addr, size);
}

int64_t sys_getsockopt(struct task *task, int fd, int level, int name, guest_addr value, guest_addr size)
{
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    int32_t room;
    if (copy_in_obj(task->mm, &room, size) < 0)
        return -EFAULT;
    if (room < 0)
        return -EINVAL;
    if (level != SOL_SOCKET)
        return -EOPNOTSUPP;
    uint8_t bytes[SOCKET_OPTION_SIZE_MAX];
    size_t count = (size_t)room < sizeof(bytes) ? (size_t)room : sizeof(bytes);
    r = socket_get_option(f, name, bytes, &count);
    if (r < 0)
        return r;
    int32_t written = (int32_t)count;
    if (count && copy_out(task->mm, value, bytes, count) < 0)
        return -EFAULT;
    return copy_out_obj(task->mm, size, &written);
}

int64_t sys_setsockopt(struct task *task, int fd, int level, int name, guest_addr value, uint32_t size)
{
    int r;
    AUTO_FILE f = get_socket(task, fd, &r);
    if (!f)
        return r;
    if (size > OPTION_SIZE_MAX)
        return -EINVAL;
    if (level != SOL_SOCKET)
        return -EOPNOTSUPP;
    uint8_t bytes[SOCKET_OPTION_SIZE_MAX];
    size_t count = size < sizeof(bytes) ? size : sizeof(bytes);
    if (count && copy_in(task->mm, bytes, value, count) < 0)
        return -EFAULT;
    return socket_set_option(f, name, bytes, count);
}
