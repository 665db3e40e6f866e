/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory of a stub: copies, and the atomic exchange. Tracer thread only. Where the host forbids
 * process_vm_* (Yama), a stopped thread of the space moves the bytes through a register: slow, but
 * with the process's own protections.
 */
#include "sentry/platform/ptrace/ptrace_platform.h"

#include <errno.h>
#include <string.h>

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

/* One load or store of `*word`, of eight bytes or one. */
static int step(struct tracee *t, const unsigned char *label, uint64_t addr, uint64_t *word)
{
    struct tracee_call call = {.rip = tracee_code(label), .rdi = addr, .rax = *word};
    int r = tracee_start(t, &call);
    return r != 0 ? r : tracee_finish(t, word);
}

/* Eight bytes only where they lie in one page: then all or none of them are accessible. */
static size_t step_size(uint64_t addr, size_t left)
{
    size_t in_page = PAGE_SIZE - (size_t)(addr & ~PAGE_MASK);
    return left >= sizeof(uint64_t) && in_page >= sizeof(uint64_t) ? sizeof(uint64_t) : 1;
}

static ssize_t load_slowly(struct tracee_space *s, uint64_t addr, uint8_t *bytes, size_t size)
{
    struct tracee *t = any_stopped(s);
    if (t == NULL)
        return -ESRCH;
    for (size_t done = 0; done < size;) {
        uint64_t word = 0;
        size_t n = step_size(addr + done, size - done);
        int r = step(t, n == 1 ? ptrace_stub_load : ptrace_stub_load8, addr + done, &word);
        if (r != 0)
            return done != 0 ? (ssize_t)done : r;
        memcpy(bytes + done, &word, n);
        done += n;
    }
    return (ssize_t)size;
}

static ssize_t store_slowly(struct tracee_space *s, uint64_t addr, const uint8_t *bytes, size_t size)
{
    struct tracee *t = any_stopped(s);
    if (t == NULL)
        return -ESRCH;
    for (size_t done = 0; done < size;) {
        uint64_t word = 0;
        size_t n = step_size(addr + done, size - done);
        memcpy(&word, bytes + done, n);
        int r = step(t, n == 1 ? ptrace_stub_store : ptrace_stub_store8, addr + done, &word);
        if (r != 0)
            return done != 0 ? (ssize_t)done : r;
        done += n;
    }
    return (ssize_t)size;
}

ssize_t tracee_read(struct platform_space *space, guest_addr src, void *dst, size_t size)
{
    struct tracee_space *s = container_of(space, struct tracee_space, space);
    if (s->killed)
        return -ESRCH;
    ssize_t r = platform_vm_read(s->pid, src, dst, size);
    return r == -EPERM || r == -ENOSYS ? load_slowly(s, src.va, dst, size) : r;
}

ssize_t tracee_write(struct platform_space *space, guest_addr dst, const void *src, size_t size)
{
    struct tracee_space *s = container_of(space, struct tracee_space, space);
    if (s->killed)
        return -ESRCH;
    ssize_t r = platform_vm_write(s->pid, dst, src, size);
    return r == -EPERM || r == -ENOSYS ? store_slowly(s, dst.va, src, size) : r;
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
