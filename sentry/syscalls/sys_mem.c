/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory: mmap(2) and kin, memfd_create(2), memory policy for a single node, membarrier(2).
 * Handlers run on the calling task's fiber.
 */
#define LOG_MODULE "syscalls"
#include "base/host.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

#define TASK_SIZE           0x7ffffffff000UL
#define ZERO_MAJOR          1
#define ZERO_MINOR          5
#define MEMFD_NAME_MAX      249
#define MFD_NOEXEC_SEAL_BIT 0x8u
#define MFD_EXEC_BIT        0x10u

/* ---- mmap ---------------------------------------------------------------------------------------
 */

static bool is_dev_zero(const struct file *f)
{
    const struct inode *inode = f->inode;
    return inode != NULL && S_ISCHR(inode->mode) && inode->rdev == makedev(ZERO_MAJOR, ZERO_MINOR);
}

/* What backs shared memory without a file. */
static int shared_anonymous(struct task *task, uint64_t length, struct file **ret)
{
    if (length == 0)
        return -EINVAL;
    if (length > TASK_SIZE)
        return -ENOMEM;
    return tmpfs_shared_anon_new("/dev/zero (deleted)", PAGE_UP(length), task->creds, ret);
}

/* The file that a mapping is of; NULL for private anonymous memory, which sets MAP_ANONYMOUS. */
static int file_to_map(struct task *task, int *flags, uint64_t length, int fd, struct file **ret)
{
    bool is_shared = (*flags & MAP_TYPE) == MAP_SHARED;
    AUTO_FILE f = NULL;
    if ((*flags & MAP_ANONYMOUS) == 0) {
        f = fd_table_get_file(task->fds, fd);
        if (f == NULL)
            return -EBADF;
        if (!is_dev_zero(f) || (*flags & MAP_TYPE) > MAP_PRIVATE) {
            *ret = f;
            f = NULL;
            return 0;
        }
        if ((atomic_load(&f->flags) & O_ACCMODE) == O_WRONLY)
            return -EACCES;
    }
    *flags |= MAP_ANONYMOUS;
    *ret = NULL;
    return is_shared ? shared_anonymous(task, length, ret) : 0;
}

int64_t sys_mmap(struct task *task, guest_addr addr, uint64_t length, int prot, int flags, int fd,
                 uint64_t offset)
{
    if ((offset & ~PAGE_MASK) != 0)
        return -EINVAL;
    AUTO_FILE f = NULL;
    int r = file_to_map(task, &flags, length, fd, &f);
    if (r < 0)
        return r;
    if ((flags & MAP_ANONYMOUS) != 0)
        offset = 0;
    struct mm_limits limits;
    task_mm_limits(task, &limits);
    return mm_mmap(task->mm, task->pt, &limits, addr, length, prot, flags,
                   f != NULL ? &f->mappable : NULL, offset);
}

int64_t sys_munmap(struct task *task, guest_addr addr, uint64_t length)
{
    return mm_munmap(task->mm, task->pt, addr, length);
}

int64_t sys_mprotect(struct task *task, guest_addr addr, uint64_t length, int prot)
{
    return mm_mprotect(task->mm, task->pt, addr, length, prot);
}

/* No protection keys here: -1 is the plain mprotect(2), as on hardware without them. */
int64_t sys_pkey_mprotect(struct task *task, guest_addr addr, uint64_t length, int prot, int pkey)
{
    return pkey == -1 ? mm_mprotect(task->mm, task->pt, addr, length, prot) : -EINVAL;
}

int64_t sys_pkey_alloc(struct task *task, uint64_t flags, uint64_t rights)
{
    (void)task;
    return flags != 0 || rights > 3 ? -EINVAL : -ENOSPC;
}

int64_t sys_pkey_free(struct task *task, int pkey)
{
    (void)task, (void)pkey;
    return -EINVAL;
}

int64_t sys_mremap(struct task *task, guest_addr old_addr, uint64_t old_size, uint64_t new_size,
                   int flags, guest_addr new_addr)
{
    struct mm_limits limits;
    task_mm_limits(task, &limits);
    return mm_mremap(task->mm, task->pt, &limits, old_addr, old_size, new_size, flags, new_addr);
}

int64_t sys_brk(struct task *task, guest_addr addr)
{
    struct mm_limits limits;
    task_mm_limits(task, &limits);
    return mm_brk(task->mm, task->pt, &limits, addr);
}

int64_t sys_madvise(struct task *task, guest_addr addr, uint64_t length, int advice)
{
    return mm_madvise(task->mm, task->pt, addr, length, advice);
}

int64_t sys_msync(struct task *task, guest_addr addr, uint64_t length, int flags)
{
    return mm_msync(task->mm, addr, length, flags);
}

int64_t sys_mincore(struct task *task, guest_addr addr, uint64_t length, guest_addr vec)
{
    return mm_mincore(task->mm, task->pt, addr, length, vec);
}

static int64_t lock_range(struct task *task, guest_addr addr, uint64_t length, bool lock,
                          bool populate)
{
    struct mm_limits limits;
    task_mm_limits(task, &limits);
    return mm_mlock(task->mm, task->pt, &limits, addr, length, lock, populate);
}

int64_t sys_mlock(struct task *task, guest_addr addr, uint64_t length)
{
    return lock_range(task, addr, length, true, true);
}

int64_t sys_mlock2(struct task *task, guest_addr addr, uint64_t length, int flags)
{
    if ((flags & ~(int)MLOCK_ONFAULT) != 0)
        return -EINVAL;
    return lock_range(task, addr, length, true, flags == 0);
}

int64_t sys_munlock(struct task *task, guest_addr addr, uint64_t length)
{
    return lock_range(task, addr, length, false, false);
}

int64_t sys_mlockall(struct task *task, int flags)
{
    struct mm_limits limits;
    task_mm_limits(task, &limits);
    return mm_mlockall(task->mm, &limits, flags, true);
}

int64_t sys_munlockall(struct task *task)
{
    struct mm_limits limits;
    task_mm_limits(task, &limits);
    return mm_mlockall(task->mm, &limits, 0, false);
}

/* ---- memfd --------------------------------------------------------------------------------------
 */

int64_t sys_memfd_create(struct task *task, guest_addr name, uint32_t flags)
{
    const uint32_t known = MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL_BIT | MFD_EXEC_BIT;
    const uint32_t exec = MFD_NOEXEC_SEAL_BIT | MFD_EXEC_BIT;
    if ((flags & MFD_HUGETLB) != 0)
        return -ENOMEM; /* no huge pages are reserved */
    if ((flags & ~known) != 0 || (flags & exec) == exec)
        return -EINVAL;
    char text[MEMFD_NAME_MAX + 1];
    ssize_t len = copy_in_str(task->mm, text, sizeof(text), name);
    if (len < 0)
        return len == -ENAMETOOLONG ? -EINVAL : len;
    AUTO_FILE f = NULL;
    int r = tmpfs_memfd_new(text, flags, task->creds, &f);
    if (r < 0)
        return r;
    r = fd_table_install(task->fds, f, 0, task_rlimit(task, RLIMIT_NOFILE),
                         (flags & MFD_CLOEXEC) != 0);
    if (r >= 0)
        f = NULL;
    return r;
}

/* ---- memory policy: one node, so nothing changes
 * ------------------------------------------------- */

enum policy {
    POLICY_DEFAULT,
    POLICY_PREFERRED,
    POLICY_BIND,
    POLICY_INTERLEAVE,
    POLICY_LOCAL,
    POLICY_PREFERRED_MANY,
    POLICY_WEIGHTED_INTERLEAVE,
    POLICY_COUNT,
};
#define POLICY_MODE_FLAGS     0xe000 /* STATIC_NODES, RELATIVE_NODES, NUMA_BALANCING */
#define POLICY_F_NODE         1u
#define POLICY_F_ADDR         2u
#define POLICY_F_MEMS_ALLOWED 4u
#define POLICY_MASK_BITS_MAX  (PAGE_SIZE * 8)

/* *ret_mask: bit 0 = our node, bit 1 = any other. */
static int copy_in_nodes(struct task *task, guest_addr mask, uint64_t maxnode, unsigned *ret_mask)
{
    *ret_mask = 0;
    if (guest_addr_is_null(mask) || maxnode <= 1)
        return 0;
    uint64_t bits = maxnode - 1;
    if (bits > POLICY_MASK_BITS_MAX)
        return -EINVAL;
    for (uint64_t at = 0; at < bits; at += 64) {
        uint64_t word;
        if (copy_in_obj(task->mm, &word, mask) != 0)
            return -EFAULT;
        mask.va += sizeof(word);
        if (bits - at < 64)
            word &= ((uint64_t)1 << (bits - at)) - 1;
        if (at == 0 && (word & 1) != 0)
            *ret_mask |= 1;
        if ((at == 0 ? word & ~(uint64_t)1 : word) != 0)
            *ret_mask |= 2;
    }
    return 0;
}

static int check_policy(struct task *task, int mode, guest_addr mask, uint64_t maxnode)
{
    unsigned nodes;
    int r = copy_in_nodes(task, mask, maxnode, &nodes);
    if (r < 0)
        return r;
    mode &= ~POLICY_MODE_FLAGS;
    if (mode < 0 || mode >= POLICY_COUNT)
        return -EINVAL;
    if (mode == POLICY_DEFAULT || mode == POLICY_LOCAL)
        return nodes != 0 ? -EINVAL : 0;
    if (mode == POLICY_PREFERRED && nodes == 0)
        return 0;
    return (nodes & 1) == 0 ? -EINVAL : 0;
}

int64_t sys_set_mempolicy(struct task *task, int mode, guest_addr mask, uint64_t maxnode)
{
    return check_policy(task, mode, mask, maxnode);
}

int64_t sys_mbind(struct task *task, guest_addr addr, uint64_t length, int mode, guest_addr mask,
                  uint64_t maxnode, uint32_t flags)
{
    if ((addr.va & ~PAGE_MASK) != 0 || (flags & ~7u) != 0)
        return -EINVAL;
    int r = check_policy(task, mode, mask, maxnode);
    if (r < 0)
        return r;
    /* A range with a hole is EFAULT; msync(2) without flags looks for holes and does nothing. */
    r = mm_msync(task->mm, addr, length, 0);
    return r == -ENOMEM ? (PAGE_UP(length) < length ? -EINVAL : -EFAULT) : r;
}

static int copy_out_node_zero(struct task *task, guest_addr mask, uint64_t maxnode, bool has_node)
{
    if (guest_addr_is_null(mask))
        return 0;
    uint64_t bytes = (maxnode - 1 + 63) / 64 * 8, first = has_node;
    if (bytes == 0)
        return 0;
    if (bytes > PAGE_SIZE)
        return -EINVAL;
    if (copy_out_obj(task->mm, mask, &first) != 0)
        return -EFAULT;
    return clear_out(task->mm, GUEST_ADDR(mask.va + sizeof(first)), bytes - sizeof(first));
}

int64_t sys_get_mempolicy(struct task *task, guest_addr mode, guest_addr mask, uint64_t maxnode,
                          guest_addr addr, uint64_t flags)
{
    if ((flags & ~(uint64_t)(POLICY_F_NODE | POLICY_F_ADDR | POLICY_F_MEMS_ALLOWED)) != 0 ||
        (!guest_addr_is_null(mask) && maxnode < 1))
        return -EINVAL;
    bool wants_all = (flags & POLICY_F_MEMS_ALLOWED) != 0, by_addr = (flags & POLICY_F_ADDR) != 0;
    if ((wants_all && flags != POLICY_F_MEMS_ALLOWED) || (!by_addr && !guest_addr_is_null(addr)) ||
        (flags == POLICY_F_NODE))
        return -EINVAL;
    if (by_addr && mm_msync(task->mm, GUEST_ADDR(PAGE_DOWN(addr.va)), 1, 0) != 0)
        return -EFAULT;
    int zero = 0; /* MPOL_DEFAULT, and the number of the only node */
    if (!wants_all && !guest_addr_is_null(mode) && copy_out_obj(task->mm, mode, &zero) != 0)
        return -EFAULT;
    return copy_out_node_zero(task, mask, maxnode, wants_all);
}

/* ---- membarrier ---------------------------------------------------------------------------------
 */

enum membarrier {
    MEMBARRIER_QUERY = 0,
    MEMBARRIER_GLOBAL = 1,
    MEMBARRIER_GLOBAL_EXPEDITED = 2,
    MEMBARRIER_REGISTER_GLOBAL_EXPEDITED = 4,
    MEMBARRIER_PRIVATE_EXPEDITED = 8,
    MEMBARRIER_REGISTER_PRIVATE_EXPEDITED = 16,
};

/* #syscalls membarrier: a barrier in every running thread of the guest */
static int64_t barrier_everywhere(void)
{
    sched_blocking_begin();
    long r = host_call3(SYS_membarrier, MEMBARRIER_GLOBAL, 0, 0);
    sched_blocking_end();
    return r;
}

int64_t sys_membarrier(struct task *task, int cmd, uint32_t flags, int cpu)
{
    (void)cpu; /* only read with a flag that we don't have */
    _Atomic uint32_t *registered = mm_membarrier_registered(task->mm);
    if (flags != 0)
        return -EINVAL;
    switch (cmd) {
    case MEMBARRIER_QUERY:
        return MEMBARRIER_GLOBAL | MEMBARRIER_GLOBAL_EXPEDITED |
               MEMBARRIER_REGISTER_GLOBAL_EXPEDITED | MEMBARRIER_PRIVATE_EXPEDITED |
               MEMBARRIER_REGISTER_PRIVATE_EXPEDITED;
    case MEMBARRIER_REGISTER_GLOBAL_EXPEDITED:
    case MEMBARRIER_REGISTER_PRIVATE_EXPEDITED:
        atomic_fetch_or(registered, (uint32_t)cmd);
        return 0;
    case MEMBARRIER_PRIVATE_EXPEDITED:
        if ((atomic_load(registered) & MEMBARRIER_REGISTER_PRIVATE_EXPEDITED) == 0)
            return -EPERM;
        return barrier_everywhere();
    case MEMBARRIER_GLOBAL:
    case MEMBARRIER_GLOBAL_EXPEDITED:
        return barrier_everywhere();
    default:
        return -EINVAL;
    }
}
