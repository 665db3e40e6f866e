/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a stub: copies, and the atomic exchange. Tracer thread only. Where the host forbids
 * process_vm_* (Yama), a stopped thread of the space moves the bytes one by one through a register:
 * slow, but with the process's own protections.
 */
#include "sentry/platform/ptrace/ptrace_platform.h"

#include <errno.h>

static struct tracee *any_stopped(struct tracee_space *s)
{
    struct tracee *t;
    LIST_FOREACH (t, &s->threads, sibling) {
        int state = atomic_load(&t->state);
        if (t->gone || state == TRACEE_RUNNING)
            continue;
        if (state == TRACEE_STOPPED || t->tid == s->pid)
            return t; /* a parked leader is stopped, too */
    }
    return NULL;
}

static int step_byte(struct tracee *t, const unsigned char *label, uint64_t addr, uint8_t *byte)
{
    struct tracee_call call = {.rip = tracee_code(label), .rdi = addr, .rax = *byte};
    uint64_t rax = 0;
    int r = tracee_start(t, &call);
    if (r == 0)
        r = tracee_finish(t, &rax);
    if (r == 0)
        *byte = (uint8_t)rax;
    return r;
}

static ssize_t through_thread(struct tracee_space *s, const unsigned char *label, guest_addr addr,
                              uint8_t *bytes, size_t size)
{
    struct tracee *t = any_stopped(s);
    if (t == NULL)
        return -ESRCH;
    for (size_t done = 0; done < size; done++) {
        int r = step_byte(t, label, addr.va + done, &bytes[done]);
        if (r != 0)
            return done != 0 ? (ssize_t)done : r;
    }
    return (ssize_t)size;
}

ssize_t tracee_read(struct platform_space *space, guest_addr src, void *dst, size_t size)
{
    struct tracee_space *s = container_of(space, struct tracee_space, space);
    if (s->killed)
        return -ESRCH;
    ssize_t r = platform_vm_read(s->pid, src, dst, size);
    if (r != -EPERM && r != -ENOSYS)
        return r;
    return through_thread(s, ptrace_stub_load, src, dst, size);
}

ssize_t tracee_write(struct platform_space *space, guest_addr dst, const void *src, size_t size)
{
    struct tracee_space *s = container_of(space, struct tracee_space, space);
    if (s->killed)
        return -ESRCH;
    ssize_t r = platform_vm_write(s->pid, dst, src, size);
    if (r != -EPERM && r != -ENOSYS)
        return r;
    struct tracee *t = any_stopped(s);
    if (t == NULL)
        return -ESRCH;
    for (size_t done = 0; done < size; done++) {
        uint8_t byte = ((const uint8_t *)src)[done];
        int error = step_byte(t, ptrace_stub_store, dst.va + done, &byte);
        if (error != 0)
            return done != 0 ? (ssize_t)done : error;
    }
    return (ssize_t)size;
}

int tracee_cmpxchg32(struct platform_thread *thread, guest_addr addr, uint32_t expected,
                     uint32_t desired, uint32_t *ret_old)
{
    struct tracee *t = container_of(thread, struct tracee, thread);
    struct tracee_call call = {.rip = tracee_code(ptrace_stub_cmpxchg),
                               .rdi = addr.va,
                               .rax = expected,
                               .rcx = desired};
    uint64_t rax = 0;
    int r = tracee_start(t, &call);
    if (r == 0)
        r = tracee_finish(t, &rax);
    if (r != 0)
        return r;
    *ret_old = (uint32_t)rax;
    return 0;
}
