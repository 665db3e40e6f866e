/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an implementation of platform.h fills in. platform.c keeps the parts that both share (owner,
 * registers, references, the check of an order's ranges) and calls through this table for the rest.
 *
 * Each implementation embeds the three structs below as the first member of its own and sets `ops`,
 * and for threads `space` and `worker`, before it hands the object out. Slots without a comment behave
 * as the function of the same name in platform.h says.
 */
#pragma once

#include "sentry/platform/platform.h"
#include <stdatomic.h>

struct platform_ops {
    const char *name;
    int (*new)(const struct platform_config *config, struct platform **ret, const char **ret_why);
    void (*free)(struct platform *p);

    struct platform_thread *(*wait)(struct platform *p, unsigned worker, bool may_block,
                                    struct platform_event *ret_event);
    void (*worker_wake)(struct platform *p, unsigned worker);
    void (*reap)(struct platform *p);

    /* A new space starts with one reference, the caller's; each of its threads holds one more. */
    int (*space_new)(struct platform *p, unsigned worker, struct platform_space **ret,
                     struct platform_thread **ret_leader);
    int (*space_fork)(struct platform_thread *parent, struct platform_space **ret_space,
                      struct platform_thread **ret_child);
    int (*thread_new)(struct platform_thread *parent, struct platform_thread **ret);
    /* The last reference is gone: kills what still runs and frees `s` (now or after its reaping). */
    void (*space_release)(struct platform_space *s);
    void (*space_kill)(struct platform_space *s);
    pid_t (*space_host_pid)(const struct platform_space *s);

    int (*fetch)(struct platform_thread *t); /* NULL: registers are always complete */
    ssize_t (*read_xstate)(struct platform_thread *t, void *bytes, size_t size);
    int (*write_xstate)(struct platform_thread *t, const void *bytes, size_t size);
    void (*resume)(struct platform_thread *t);
    pid_t (*host_tid)(const struct platform_thread *t); /* 0: gone */
    void (*kick)(struct platform_thread *t);
    /* Frees `t` and puts its reference on the space. */
    void (*thread_free)(struct platform_thread *t);

    /* The ranges, flags and protections were checked by platform_order_check(). */
    int (*execute)(struct platform_thread *t, const struct platform_order *orders, size_t count,
                   size_t *ret_done);
    int (*queue)(struct platform_thread *t, const struct platform_order *order);

    /* Only ranges inside [min_addr, max_addr) come here. */
    ssize_t (*read)(struct platform_space *s, guest_addr src, void *dst, size_t size);
    ssize_t (*write)(struct platform_space *s, guest_addr dst, const void *src, size_t size);
    int (*cmpxchg32)(struct platform_thread *t, guest_addr addr, uint32_t expected,
                     uint32_t desired, uint32_t *ret_old);
    void (*describe)(const struct platform *p, char *out, size_t size);
};

struct platform {
    const struct platform_ops *ops;
    struct platform_info info; /* immutable after new */
    const char *_Atomic failure; /* static storage; see platform_failure() */
};

struct platform_space {
    const struct platform_ops *ops;
    struct platform *platform;
    _Atomic uint32_t references;
};

struct platform_thread {
    const struct platform_ops *ops;
    struct platform_space *space; /* ref */
    void *owner;
    unsigned worker;        /* immutable */
    struct guest_regs regs; /* the owner's while stopped */
};

extern const struct platform_ops systrap_ops;
extern const struct platform_ops ptrace_ops; /* ptrace/sources.cmake sets PLATFORM_HAVE_PTRACE */

/* The one function that decides whether an order may reach a stub: 0 or -EINVAL. */
MUST_CHECK int platform_order_check(const struct platform_info *info,
                                    const struct platform_order *order);

/* process_vm_readv/writev on `host_pid` with the semantics of platform_read/write, for both. */
MUST_CHECK ssize_t platform_vm_read(pid_t host_pid, guest_addr src, void *dst, size_t size);
MUST_CHECK ssize_t platform_vm_write(pid_t host_pid, guest_addr dst, const void *src, size_t size);
