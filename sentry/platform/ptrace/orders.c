/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Orders: host calls on the stub's address space that the sentry computed, executed one by one while
 * the tracer waits. Tracer thread only. The result comes from the kernel, through the registers, and
 * not from the guest.
 *
 * A file is mapped through a descriptor that the kernel puts into the stub's table as number 0 for
 * just these mappings: the doorbell call makes a notification of the stub's seccomp filter, and
 * SECCOMP_IOCTL_NOTIF_ADDFD answers it. So a stub holds no socket, and RLIMIT_NOFILE can be 1.
 */
#include "sentry/platform/ptrace/ptrace_platform.h"

#include "base/host.h"
#include "base/log.h"
#include <errno.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define STUB_FD 0      /* the only number that RLIMIT_NOFILE 1 allows */
#define LOOK_MS 5      /* how often a stub that does not ring is looked at */

/* ---- passing a descriptor ---------------------------------------------------------------------- */

/* #syscalls ioctl: SECCOMP_IOCTL_NOTIF_RECV, _SEND, _ADDFD: descriptors for mappings of stubs */
static long answer(struct tracer *p, uint64_t id, int error)
{
    struct seccomp_notif_resp response = {.id = id, .error = error};
    return host_call3(SYS_ioctl, p->listener, SECCOMP_IOCTL_NOTIF_SEND, &response);
}

/* Serves one notification if there is one. True when `t` has the descriptor and was let go, or got an
 * error, in which case *ret_error says which. */
static bool serve_doorbell(struct tracee *t, int hfd, int *ret_error)
{
    struct tracer *p = t->tracer;
    struct seccomp_notif call;
    memset(&call, 0, sizeof(call)); /* the kernel insists */
    if (host_call3(SYS_ioctl, p->listener, SECCOMP_IOCTL_NOTIF_RECV, &call) != 0)
        return false; /* taken back by a signal */
    if ((pid_t)call.pid != t->tid || call.data.nr != TRACEE_DOORBELL) {
        log_err("stub %u rang without an order, ignoring", call.pid);
        (void)answer(p, call.id, -ENOSYS);
        return false;
    }
    struct seccomp_notif_addfd pass = {.id = call.id,
                                       .flags = SECCOMP_ADDFD_FLAG_SETFD,
                                       .srcfd = (uint32_t)hfd,
                                       .newfd = STUB_FD};
    long r = host_call3(SYS_ioctl, p->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &pass);
    if (r == -ENOENT || r == -EINPROGRESS)
        return false;
    /* Not sent: a signal took the call back; it comes again and replaces the descriptor. */
    if (answer(p, call.id, 0) != 0)
        return false;
    *ret_error = r < 0 ? (int)r : 0;
    return true;
}

/* #syscalls poll: waits for a stub's doorbell */
static int pass_descriptor(struct tracee *t, int hfd)
{
    struct tracee_call ring = {.rip = tracee_code(ptrace_stub_call), .rax = TRACEE_DOORBELL};
    int r = tracee_start(t, &ring);
    if (r != 0)
        return r;
    int error = 0;
    for (;;) {
        struct pollfd bell = {.fd = t->tracer->listener, .events = POLLIN};
        long ready = host_call3(SYS_poll, &bell, 1, LOOK_MS);
        if (ready > 0 && (bell.revents & POLLIN) != 0 && serve_doorbell(t, hfd, &error))
            break;
        int status;
        bool done;
        uint64_t rax;
        r = tracee_wait(t, WNOHANG, &status);
        if (r < 0)
            return r;
        if (r > 0) { /* a late kick; anything that ends the call here is wrong */
            r = tracee_step(t, status, &done, &rax);
            if (r != 0 || done)
                return r != 0 ? r : -EIO;
        }
    }
    uint64_t rax;
    r = tracee_finish(t, &rax);
    return r != 0 ? r : error;
}

/* ---- execution --------------------------------------------------------------------------------- */

static long map_anonymous(struct tracee *t, const struct platform_order *o)
{
    int flags = o->flags | MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    return tracee_call(t, SYS_mmap, o->addr.va, o->size, (uint64_t)o->prot, (uint64_t)flags,
                       UINT64_MAX, 0);
}

static long map_file(struct tracee *t, const struct platform_order *o)
{
    int flags = o->flags | MAP_FIXED;
    return tracee_call(t, SYS_mmap, o->addr.va, o->size, (uint64_t)o->prot, (uint64_t)flags,
                       STUB_FD, o->offset);
}

static long unmap_all(struct tracee *t)
{
    const struct platform_info *info = &t->tracer->platform.info;
    return tracee_call(t, SYS_munmap, info->min_addr.va, info->max_addr.va - info->min_addr.va, 0,
                       0, 0, 0);
}

static long execute_one(struct tracee *t, const struct platform_order *o)
{
    switch (o->kind) {
    case PLATFORM_ORDER_MAP_ANON:
        return map_anonymous(t, o);
    case PLATFORM_ORDER_MAP_FILE:
        return map_file(t, o);
    case PLATFORM_ORDER_UNMAP:
        return tracee_call(t, SYS_munmap, o->addr.va, o->size, 0, 0, 0, 0);
    case PLATFORM_ORDER_PROTECT:
        return tracee_call(t, SYS_mprotect, o->addr.va, o->size, (uint64_t)o->prot, 0, 0, 0);
    case PLATFORM_ORDER_REMAP:
        return tracee_call(t, SYS_mremap, o->addr.va, o->size, o->new_size, (uint64_t)o->flags,
                           o->new_addr.va, 0);
    case PLATFORM_ORDER_ADVISE:
        return tracee_call(t, SYS_madvise, o->addr.va, o->size, (uint64_t)o->advice, 0, 0, 0);
    case PLATFORM_ORDER_MINCORE:
        return tracee_call(t, SYS_mincore, o->addr.va, o->size, o->new_addr.va, 0, 0, 0);
    case PLATFORM_ORDER_UNMAP_ALL:
        return unmap_all(t);
    case PLATFORM_ORDER_COUNT:
        break;
    }
    return -EINVAL;
}

/* How many orders from the first on map the same file: they share one passing. */
static size_t same_file(const struct platform_order *orders, size_t count)
{
    size_t n = 1;
    while (n < count && orders[n].kind == PLATFORM_ORDER_MAP_FILE && orders[n].hfd == orders[0].hfd)
        n++;
    return n;
}

static int execute_files(struct tracee *t, const struct platform_order *orders, size_t count,
                         size_t *done)
{
    long r = pass_descriptor(t, orders[0].hfd);
    if (r != 0)
        return (int)r;
    for (size_t i = 0; i < count && r == 0; i++) {
        long mapped = map_file(t, &orders[i]);
        r = mapped < 0 && mapped >= -4095 ? mapped : 0;
        if (r == 0)
            (*done)++;
    }
    long closed = tracee_call(t, SYS_close, STUB_FD, 0, 0, 0, 0, 0);
    if (closed != 0 && closed != -ESRCH) {
        /* I2: no stub runs with a descriptor. */
        log_err("stub %d kept a descriptor; killing it", t->tid);
        tracee_space_kill(t->thread.space);
        return -ESRCH;
    }
    return r != 0 ? (int)r : (int)closed;
}

static int execute_all(struct tracee *t, const struct platform_order *orders, size_t count,
                       size_t *ret_done)
{
    size_t done = 0;
    int r = 0;
    while (done < count && r == 0) {
        const struct platform_order *o = &orders[done];
        if (o->kind == PLATFORM_ORDER_MAP_FILE) {
            r = execute_files(t, o, same_file(o, count - done), &done);
            continue;
        }
        long value = execute_one(t, o);
        if (value < 0 && value >= -4095)
            r = (int)value;
        else
            done++;
    }
    *ret_done = done;
    return r;
}

int tracee_execute_queued(struct tracee *t)
{
    size_t done;
    size_t count = t->order_count;
    t->order_count = 0;
    return execute_all(t, t->orders, count, &done);
}

int tracee_execute(struct platform_thread *thread, const struct platform_order *orders,
                   size_t count, size_t *ret_done)
{
    struct tracee *t = container_of(thread, struct tracee, thread);
    *ret_done = 0;
    if (t->gone)
        return -ESRCH;
    int r = tracee_execute_queued(t);
    return r != 0 ? r : execute_all(t, orders, count, ret_done);
}

int tracee_queue_order(struct platform_thread *thread, const struct platform_order *order)
{
    struct tracee *t = container_of(thread, struct tracee, thread);
    if (t->order_count == PLATFORM_QUEUE_MAX)
        return -ENOSPC;
    t->orders[t->order_count++] = *order;
    return 0;
}
