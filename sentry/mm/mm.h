/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A guest address space: the VMA tree, address choice, and the orders that make the host agree.
 *
 * Guest memory is memory of the stub process; the tree is the sentry's truth about it. Each change
 * checks and updates the tree and orders the stub. While a space has one thread, single orders ride on
 * the thread's next resume (platform_queue); with several threads they are executed synchronously under
 * order_lock, because another thread could otherwise be given a range whose munmap is still to come.
 *
 * Locks (order): order_lock (fiber mutex; held across orders) → tree_lock (short). Readers of other
 * processes' maps (/proc/PID/maps) take tree_lock only, so a guest that stalls an order stops nobody
 * outside its own space.
 *
 * Functions that take a `struct platform_thread *pt` need the calling guest thread, stopped; they sleep.
 *
 * Queued orders: between a call and the resume the host lags behind the tree by at most one order. Copies
 * by the calling fiber (uaccess.h) flush it first; other fibers see the old state, as if they had been
 * quicker. A platform event ORDER_FAILED goes to mm_order_failed(). Code that pushes a signal frame calls
 * mm_flush() before it saves the registers, so that the frame holds the system call's true result.
 *
 * Sources: mmap(2), mremap(2), brk(2), madvise(2), mincore(2), msync(2), mlock(2), proc(5).
 */
#pragma once

#include "abi/guest_addr.h"
#include "base/lock.h"
#include "sentry/platform/platform.h"
#include "sentry/sched/wait_queue.h"
#include <bsd/sys/tree.h>
#include <stdatomic.h>
#include <stdint.h>

/* ---- what can be mapped: filled by vfs (embedded in struct file) ------------------------------- */

struct mappable;
struct mappable_ops {
    void (*get)(struct mappable *m); /* under tree_lock: an atomic increment */
    void (*put)(struct mappable *m); /* may sleep */
    /* A host descriptor whose bytes [offset, offset+size) are the object's, good for `prot` and for
     * MAP_SHARED or MAP_PRIVATE in `flags`. `*ret_hfd` is borrowed and stays open while the mappable is
     * referenced; the object's host offsets stay contiguous. -1: private zero pages (/dev/zero).
     * Sleeps. -ENODEV: not mappable; -EACCES: mode of the open file forbids it; -EPERM: noexec mount or a
     * seal. Called again with more `prot` when mprotect(2) wants it. */
    int (*map)(struct mappable *m, uint64_t offset, uint64_t size, int prot, int flags, int *ret_hfd,
               uint64_t *ret_host_offset);
    /* For /proc/PID/maps: device, inode and path (the caller frees it). */
    void (*describe)(struct mappable *m, uint64_t *ret_dev, uint64_t *ret_ino, char **ret_path);
    /* msync(MS_SYNC) of a shared mapping; NULL = nothing to do. Sleeps. */
    int (*sync)(struct mappable *m, uint64_t offset, uint64_t size);
    /* A shared writable VMA appears/disappears (write seals, ETXTBSY); one call for each VMA, so splits
     * and forks add too. NULL = ignored. Under tree_lock: may not sleep; takes short locks only. Only
     * the first add of an mmap(2) may be refused (-EPERM). */
    int (*shared_write)(struct mappable *m, bool add);
    /* What futexes in a shared mapping are keyed by: stays the same for all opens of the object. */
    uint64_t (*identity)(struct mappable *m);
};
struct mappable {
    const struct mappable_ops *ops;
};

/* ---- VMAs --------------------------------------------------------------------------------------- */

enum vma_kind { VMA_ANON, VMA_FILE };

struct vma {
    RB_ENTRY(vma) node;
    uint64_t gap, max_gap; /* the tree's: free bytes just below; the largest in this subtree */
    uint64_t start, end; /* page-aligned guest addresses, [start, end) */
    int prot;            /* PROT_* now */
    int max_prot;        /* what the object is known to allow; for more it is asked again */
    int flags;           /* MAP_SHARED or MAP_PRIVATE, MAP_NORESERVE, MAP_GROWSDOWN (ours: see stack) */
    uint64_t offset;     /* of `start` in the object */
    struct mappable *object; /* ref; NULL for private anonymous memory */
    bool is_stack, is_heap, is_locked, dont_fork, wipe_on_fork, dont_dump;
    bool is_shared_write; /* shared, and writable now or once: object's shared_write() counts it */
    bool is_special;     /* vDSO and vvar: the host's, in no limit */
    char name[16];       /* "[stack]" "[heap]" "[vdso]" "[vvar]" or "" */
};
enum vma_kind vma_kind_of(const struct vma *v);

struct mm_limits { /* from the task's rlimits, in bytes; UINT64_MAX = none */
    uint64_t address_space, data, stack, locked;
};

struct mm;

/* For exec: an empty mm on `space` (takes its own reference), with no thread counted. Not shared with
 * anybody yet. */
MUST_CHECK int mm_new(struct platform *platform, struct platform_space *space, struct mm **ret);
/* fork: copies the tree for the space that platform_space_fork() made from it; the host's fork has
 * heeded DONTFORK and WIPEONFORK. The caller holds the parent's order lock around both by
 * mm_fork_begin/end. The new mm has one thread. */
MUST_CHECK int mm_fork(struct mm *parent, struct platform_space *child_space,
                       struct platform_thread *child, struct mm **ret);
void mm_fork_begin(struct mm *parent);
void mm_fork_end(struct mm *parent);
void mm_get(struct mm *mm);
void mm_put(struct mm *mm); /* the last one releases the space; may sleep */
struct platform_space *mm_space(const struct mm *mm);
/* Guest threads that share it (CLONE_VM): decides between queued and synchronous orders. A vfork child
 * that borrows its parent's host thread doesn't count. */
void mm_thread_added(struct mm *mm);
void mm_thread_removed(struct mm *mm);

/* The queued order of `pt` failed (event ORDER_FAILED with `error`): makes the tree agree with the host and
 * returns what the system call must return instead of its result so far. May sleep. */
int64_t mm_order_failed(struct mm *mm, struct platform_thread *pt, int error);
/* Runs what is queued for the calling thread. 0, or -errno: then *ret_result is what the system call
 * must return instead. Cheap when nothing is queued. */
int mm_flush(struct mm *mm, struct platform_thread *pt, int64_t *ret_result);

/* mmap(2) with `object` (borrowed) or NULL for anonymous. MAP_SHARED|MAP_ANONYMOUS: the caller passes a
 * memfd-backed object. Returns the address or -errno. */
int64_t mm_mmap(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
                guest_addr hint, uint64_t size, int prot, int flags, struct mappable *object,
                uint64_t offset);
int mm_munmap(struct mm *mm, struct platform_thread *pt, guest_addr addr, uint64_t size);
int mm_mprotect(struct mm *mm, struct platform_thread *pt, guest_addr addr, uint64_t size, int prot);
int64_t mm_mremap(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
                  guest_addr old_addr, uint64_t old_size, uint64_t new_size, int flags,
                  guest_addr new_addr);
int64_t mm_brk(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits,
               guest_addr brk);
int mm_madvise(struct mm *mm, struct platform_thread *pt, guest_addr addr, uint64_t size, int advice);
int mm_msync(struct mm *mm, guest_addr addr, uint64_t size, int flags);
int mm_mincore(struct mm *mm, struct platform_thread *pt, guest_addr addr, uint64_t size, guest_addr vec);
/* `populate`: also fault the pages in, as mlock(2) does, best effort. */
int mm_mlock(struct mm *mm, struct platform_thread *pt, const struct mm_limits *limits, guest_addr addr,
             uint64_t size, bool lock, bool populate);
int mm_mlockall(struct mm *mm, const struct mm_limits *limits, int flags, bool lock);

/* RLIMIT_STACK became `limit`: gives up the part of the main stack that lies beyond it and below
 * `stack_pointer` (the stack is mapped whole, Linux would not have grown it). */
void mm_stack_limit_changed(struct mm *mm, struct platform_thread *pt, uint64_t limit,
                            uint64_t stack_pointer);

/* A fault that the host reported: 0 = resolved (stack grown, or the tree allows it: run again),
 * else the signal to deliver (SIGSEGV, SIGBUS) with *ret_code (SEGV_MAPERR, SEGV_ACCERR, BUS_ADRERR). */
int mm_fault(struct mm *mm, struct platform_thread *pt, const struct platform_event *event,
             uint64_t stack_pointer, const struct mm_limits *limits, int *ret_code);

/* ---- exec --------------------------------------------------------------------------------------- */

struct mm_exec_segment { /* one mapping of the loader's plan, bias applied */
    uint64_t addr, size, offset;
    int prot;
    struct mappable *object; /* borrowed; NULL = anonymous */
    uint64_t zero_from;      /* absolute address from which the rest of the segment is cleared; 0 */
};
struct mm_exec {
    const struct mm_exec_segment *segments;
    size_t count;
    uint64_t brk;                    /* start of the heap, absolute, before randomisation */
    uint64_t stack_size;             /* bytes of the stack mapping (from RLIMIT_STACK) */
    bool exec_stack;
};
/* Where a PIE (or its interpreter) of `span` bytes and `align` shall go: random, below the mmap base. */
uint64_t mm_exec_choose_base(struct mm *mm, uint64_t span, uint64_t align, bool is_interpreter);
/* personality(ADDR_NO_RANDOMIZE): no randomness from here on; before mm_exec_layout(). */
void mm_exec_no_random(struct mm *mm);
/* Address layout for a new image: picks the random stack top and mmap base. Call first.
 * Returns the page-aligned top of the stack. */
uint64_t mm_exec_layout(struct mm *mm, uint64_t stack_limit);
/* Executes the plan on the fresh space's thread with as few crossings as possible, including the stack
 * mapping; clears the bss tails. 0 or -errno (the task is lost then). Sleeps. */
MUST_CHECK int mm_exec_map(struct mm *mm, struct platform_thread *pt, const struct mm_exec *exec);

/* ---- looking at it ------------------------------------------------------------------------------ */

struct mm_layout { /* for /proc/PID/stat and prctl(PR_SET_MM) */
    uint64_t start_code, end_code, start_data, end_data, start_brk, brk, start_stack;
    uint64_t arg_start, arg_end, env_start, env_end, auxv_start, auxv_size;
};
struct mm_layout *mm_layout_of(struct mm *mm); /* fields: task thread only, read without a lock */

/* membarrier(2): which MEMBARRIER_CMD_REGISTER_* were made, a mask; inherited by fork. */
_Atomic uint32_t *mm_membarrier_registered(struct mm *mm);

struct mm_counts { /* bytes */
    uint64_t total, data, stack, exec, shared_file, locked;
    uint64_t peak_total;
};
void mm_get_counts(struct mm *mm, struct mm_counts *ret);
/* Walks the VMAs in ascending order without holding a lock across calls: the first VMA that ends above
 * `from` is copied out (with a reference on its object, which the caller puts). False at the end. */
bool mm_next_vma(struct mm *mm, uint64_t from, struct vma *ret);
/* What a futex at `addr` is keyed by: private (mm, addr) or shared (identity, offset). 0 or -EFAULT. */
MUST_CHECK int mm_futex_key(struct mm *mm, guest_addr addr, bool is_private, uint64_t *ret_space,
                            uint64_t *ret_offset);
/* Any executable file mapped (for /proc/PID/exe) is kept by the task, not here. */
