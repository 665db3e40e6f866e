/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What systrap and ptrace share: choice of the implementation, owner and registers, references, the
 * check of an order's ranges, and copies by process_vm_*. Runs on any host thread of the sentry; it
 * distrusts every number in an order less than its callers do, for it is the last look at them.
 */
#include "sentry/platform/platform_ops.h"

#include "base/host.h"
#include "base/log.h"
#include <errno.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif
#ifndef MREMAP_DONTUNMAP
#define MREMAP_DONTUNMAP 4
#endif
#ifndef MADV_COLD
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25
#endif

static const struct platform_ops *const g_platforms[] = {
#ifdef PLATFORM_HAVE_SYSTRAP
    &systrap_ops,
#endif
#ifdef PLATFORM_HAVE_PTRACE
    &ptrace_ops,
#endif
    NULL,
};

/* ---- orders ------------------------------------------------------------------------------------ */

static bool range_ok(const struct platform_info *info, guest_addr addr, uint64_t size)
{
    guest_addr end;
    if (size == 0 || ((addr.va | size) & ~PAGE_MASK) != 0 || !guest_addr_add(addr, size, &end))
        return false;
    return addr.va >= info->min_addr.va && end.va <= info->max_addr.va;
}

/* A byte for each page, in memory that is the guest's. */
static bool vector_ok(const struct platform_info *info, guest_addr addr, uint64_t count)
{
    guest_addr end;
    return guest_addr_add(addr, count, &end) && addr.va >= info->min_addr.va &&
           end.va <= info->max_addr.va;
}

static bool prot_ok(int prot)
{
    return (prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC)) == 0;
}

/* What a guest's madvise may reach the host with; docs/platform 4 has what is missing here and why. */
static bool advice_ok(int advice)
{
    switch (advice) {
    case MADV_NORMAL:
    case MADV_RANDOM:
    case MADV_SEQUENTIAL:
    case MADV_WILLNEED:
    case MADV_DONTNEED:
    case MADV_REMOVE:
    case MADV_FREE:
    case MADV_HUGEPAGE:
    case MADV_NOHUGEPAGE:
    case MADV_DONTDUMP:
    case MADV_DODUMP:
    case MADV_DONTFORK:
    case MADV_DOFORK:
    case MADV_WIPEONFORK:
    case MADV_KEEPONFORK:
    case MADV_COLD:
    case MADV_PAGEOUT:
    case MADV_POPULATE_READ:
    case MADV_POPULATE_WRITE:
    case MADV_COLLAPSE:
        return true;
    default:
        return false;
    }
}

static bool remap_ok(const struct platform_info *info, const struct platform_order *o)
{
    if ((o->flags & ~(MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP)) != 0)
        return false;
    if (o->size != 0 && !range_ok(info, o->addr, o->size))
        return false;
    if (o->size == 0 && !range_ok(info, o->addr, PAGE_SIZE)) /* duplicates a shared mapping */
        return false;
    /* Without FIXED the kernel would choose: only growing or shrinking in place is left then. */
    if ((o->flags & MREMAP_FIXED) == 0)
        return (o->flags & (MREMAP_MAYMOVE | MREMAP_DONTUNMAP)) == 0 &&
               range_ok(info, o->addr, o->new_size);
    return (o->flags & MREMAP_MAYMOVE) != 0 && range_ok(info, o->new_addr, o->new_size);
}

int platform_order_check(const struct platform_info *info, const struct platform_order *o)
{
    bool ok = false;
    switch (o->kind) {
    case PLATFORM_ORDER_MAP_ANON:
        ok = range_ok(info, o->addr, o->size) && prot_ok(o->prot) &&
             (o->flags & ~(MAP_PRIVATE | MAP_NORESERVE | MAP_STACK | MAP_ANONYMOUS | MAP_FIXED)) ==
                 0;
        break;
    case PLATFORM_ORDER_MAP_FILE:
        ok = range_ok(info, o->addr, o->size) && prot_ok(o->prot) && o->hfd >= 0 &&
             (o->offset & ~PAGE_MASK) == 0 &&
             (o->flags & ~(MAP_PRIVATE | MAP_SHARED | MAP_NORESERVE | MAP_FIXED)) == 0 &&
             ((o->flags & MAP_PRIVATE) != 0) != ((o->flags & MAP_SHARED) != 0);
        break;
    case PLATFORM_ORDER_UNMAP:
        ok = range_ok(info, o->addr, o->size);
        break;
    case PLATFORM_ORDER_PROTECT:
        ok = range_ok(info, o->addr, o->size) && prot_ok(o->prot);
        break;
    case PLATFORM_ORDER_REMAP:
        ok = remap_ok(info, o);
        break;
    case PLATFORM_ORDER_ADVISE:
        ok = range_ok(info, o->addr, o->size) && advice_ok(o->advice);
        break;
    case PLATFORM_ORDER_MINCORE:
        ok = range_ok(info, o->addr, o->size) && vector_ok(info, o->new_addr, o->size / PAGE_SIZE);
        break;
    case PLATFORM_ORDER_UNMAP_ALL:
        ok = true;
        break;
    case PLATFORM_ORDER_COUNT:
        break;
    }
    return ok ? 0 : -EINVAL;
}

int platform_execute(struct platform_thread *t, const struct platform_order *orders, size_t count,
                     size_t *ret_done)
{
    const struct platform_info *info = &t->space->platform->info;
    for (size_t i = 0; i < count; i++) {
        if (platform_order_check(info, &orders[i]) != 0) {
            *ret_done = 0;
            return -EINVAL;
        }
    }
    return t->ops->execute(t, orders, count, ret_done);
}

int platform_queue(struct platform_thread *t, const struct platform_order *order)
{
    if (platform_order_check(&t->space->platform->info, order) != 0)
        return -EINVAL;
    return t->ops->queue(t, order);
}

/* ---- start and event loop ---------------------------------------------------------------------- */

static cpu_set_t g_cpus; /* what the sentry may use; immutable after platform_new() */

int platform_new(const struct platform_config *config, struct platform **ret, const char **ret_why)
{
    if (host_call3(SYS_sched_getaffinity, 0, sizeof g_cpus, &g_cpus) < 0)
        CPU_SET(0, &g_cpus);
    int r = -ENOSYS;
    *ret_why = config->name != NULL ? "no platform of that name in this build"
                                    : "no platform in this build";
    for (size_t i = 0; g_platforms[i] != NULL; i++) {
        if (config->name != NULL && strcmp(config->name, g_platforms[i]->name) != 0)
            continue;
        r = g_platforms[i]->new(config, ret, ret_why);
        if (r == 0 || config->name != NULL)
            return r;
        log_info("platform %s is not available here: %s", g_platforms[i]->name, *ret_why);
    }
    return r;
}

const struct platform_info *platform_info(const struct platform *p)
{
    return &p->info;
}

void platform_free(struct platform *p)
{
    if (p != NULL)
        p->ops->free(p);
}

struct platform_thread *platform_wait(struct platform *p, unsigned worker, bool may_block,
                                      struct platform_event *ret_event)
{
    return p->ops->wait(p, worker, may_block, ret_event);
}

void platform_worker_wake(struct platform *p, unsigned worker)
{
    p->ops->worker_wake(p, worker);
}

void platform_reap(struct platform *p)
{
    p->ops->reap(p);
}

const char *platform_failure(const struct platform *p)
{
    return atomic_load(&p->failure);
}

void platform_describe(const struct platform *p, char *out, size_t size)
{
    p->ops->describe(p, out, size);
}

/* ---- spaces ------------------------------------------------------------------------------------ */

int platform_space_new(struct platform *p, unsigned worker, struct platform_space **ret,
                       struct platform_thread **ret_leader)
{
    return p->ops->space_new(p, worker, ret, ret_leader);
}

int platform_space_fork(struct platform_thread *parent, struct platform_space **ret_space,
                        struct platform_thread **ret_child)
{
    return parent->ops->space_fork(parent, ret_space, ret_child);
}

int platform_thread_new(struct platform_thread *parent, struct platform_thread **ret)
{
    return parent->ops->thread_new(parent, ret);
}

struct platform_space *platform_thread_space(struct platform_thread *t)
{
    return t->space;
}

void platform_space_get(struct platform_space *s)
{
    /* Relaxed: whoever takes a reference holds one already. */
    uint32_t old = atomic_fetch_add_explicit(&s->references, 1, memory_order_relaxed);
    ASSERT(old != 0 && old < UINT32_MAX / 2);
}

void platform_space_put(struct platform_space *s)
{
    if (s == NULL)
        return;
    /* Release: our uses of `s` come before; acquire: they are visible to who frees it. */
    uint32_t old = atomic_fetch_sub_explicit(&s->references, 1, memory_order_acq_rel);
    ASSERT(old != 0);
    if (old == 1)
        s->ops->space_release(s);
}

void platform_space_kill(struct platform_space *s)
{
    s->ops->space_kill(s);
}

pid_t platform_space_host_pid(const struct platform_space *s)
{
    return s->ops->space_host_pid(s);
}

/* ---- threads ----------------------------------------------------------------------------------- */

/* #syscalls sched_setaffinity: the CPUs that a guest thread chose */
void platform_thread_set_affinity(struct platform_thread *t, uint64_t mask)
{
    cpu_set_t set;
    pid_t tid = t->ops->host_tid(t);
    unsigned k = 0;
    CPU_ZERO(&set);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && k < 64; cpu++) {
        if (!CPU_ISSET(cpu, &g_cpus))
            continue;
        if (mask >> k & 1)
            CPU_SET(cpu, &set);
        k++;
    }
    if (tid > 0 && CPU_COUNT(&set) > 0)
        (void)host_call3(SYS_sched_setaffinity, tid, sizeof set, &set);
}

void platform_thread_set_owner(struct platform_thread *t, void *owner)
{
    t->owner = owner;
}

void *platform_thread_owner(const struct platform_thread *t)
{
    return t->owner;
}

unsigned platform_thread_worker(const struct platform_thread *t)
{
    return t->worker;
}

struct guest_regs *platform_thread_regs(struct platform_thread *t)
{
    return &t->regs;
}

int platform_thread_fetch(struct platform_thread *t)
{
    return t->ops->fetch != NULL ? t->ops->fetch(t) : 0;
}

ssize_t platform_thread_read_xstate(struct platform_thread *t, void *bytes, size_t size)
{
    return t->ops->read_xstate(t, bytes, size);
}

int platform_thread_write_xstate(struct platform_thread *t, const void *bytes, size_t size)
{
    return t->ops->write_xstate(t, bytes, size);
}

void platform_thread_resume(struct platform_thread *t)
{
    t->ops->resume(t);
}

void platform_thread_kick(struct platform_thread *t)
{
    t->ops->kick(t);
}

void platform_thread_free(struct platform_thread *t)
{
    if (t != NULL)
        t->ops->thread_free(t);
}

/* ---- memory ------------------------------------------------------------------------------------ */

/* How much of [addr, addr + size) is a guest's: a copy stops short where the stub's range starts. */
static size_t clip_to_guest(const struct platform_info *info, guest_addr addr, size_t size)
{
    if (addr.va < info->min_addr.va || addr.va >= info->max_addr.va)
        return 0;
    uint64_t room = info->max_addr.va - addr.va;
    return size < room ? size : (size_t)room;
}

ssize_t platform_read(struct platform_space *s, guest_addr src, void *dst, size_t size)
{
    if (size == 0)
        return 0;
    size = clip_to_guest(&s->platform->info, src, size);
    return size == 0 ? -EFAULT : s->ops->read(s, src, dst, size);
}

ssize_t platform_write(struct platform_space *s, guest_addr dst, const void *src, size_t size)
{
    if (size == 0)
        return 0;
    size = clip_to_guest(&s->platform->info, dst, size);
    return size == 0 ? -EFAULT : s->ops->write(s, dst, src, size);
}

int platform_cmpxchg32(struct platform_thread *t, guest_addr addr, uint32_t expected,
                       uint32_t desired, uint32_t *ret_old)
{
    if ((addr.va & 3) != 0 || clip_to_guest(&t->space->platform->info, addr, 4) != 4)
        return -EFAULT;
    return t->ops->cmpxchg32(t, addr, expected, desired, ret_old);
}

/* The kernel copies page by page but reports partial progress only between iovec elements, so the
 * remote side is cut at page boundaries, some pages for each call. */
#define VM_PAGES_A_CALL 16

static size_t cut_pages(uint64_t addr, size_t size, struct iovec *pages, size_t *ret_bytes)
{
    size_t count = 0;
    size_t total = 0;
    while (size > 0 && count < VM_PAGES_A_CALL) {
        size_t in_page = PAGE_SIZE - (size_t)(addr & ~PAGE_MASK);
        size_t piece = size < in_page ? size : in_page;
        /* SAFETY: only an address for the kernel to use in the other process; never followed here. */
        pages[count++] = (struct iovec){.iov_base = (void *)(uintptr_t)addr, .iov_len = piece};
        addr += piece;
        size -= piece;
        total += piece;
    }
    *ret_bytes = total;
    return count;
}

/* #syscalls process_vm_readv,process_vm_writev: copies from and to the memory of stubs */
static ssize_t vm_copy(long nr, pid_t host_pid, guest_addr remote, void *local, size_t size)
{
    size_t done = 0;
    while (done < size) {
        struct iovec pages[VM_PAGES_A_CALL];
        size_t wanted;
        size_t count = cut_pages(remote.va + done, size - done, pages, &wanted);
        struct iovec mine = {.iov_base = (char *)local + done, .iov_len = wanted};
        long r = host_call6(nr, host_pid, &mine, 1, pages, count, 0);
        if (r < 0 && done == 0)
            return r;
        if (r <= 0)
            break;
        done += (size_t)r;
        if ((size_t)r < wanted)
            break;
    }
    return done != 0 ? (ssize_t)done : -EFAULT;
}

ssize_t platform_vm_read(pid_t host_pid, guest_addr src, void *dst, size_t size)
{
    return vm_copy(SYS_process_vm_readv, host_pid, src, dst, size);
}

ssize_t platform_vm_write(pid_t host_pid, guest_addr dst, const void *src, size_t size)
{
    /* The call only reads its local side; the iovec's type has no const. */
    union {
        const void *in;
        void *out;
    } local = {.in = src};
    return vm_copy(SYS_process_vm_writev, host_pid, dst, local.out, size);
}
