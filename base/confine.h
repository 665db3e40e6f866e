/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps by which a process of bailey gives up its rights. A main.c calls them in the order that is
 * its policy. All return 0 or -errno, and the caller ends on any failure: there is no half-confined
 * process. Everything but confine_install_filter() acts on the calling thread only, so it runs before
 * the second thread starts.
 *
 * Order that matters: confine_landlock() before stubs are made (a process may only reach into processes of
 * its own Landlock domain); confine_set_ids() clears the parent-death signal, so confine_process() after
 * it; confine_install_filter() last.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* no_new_privs, not dumpable, no core files, SIGKILL when the parent dies, a fresh session keyring. */
MUST_CHECK int confine_process(void);

/* Drops the supplementary groups. -EPERM where the user namespace forbids it (an ordinary user's: they
 * stay the caller's own). */
MUST_CHECK int confine_drop_groups(void);
/* Real, effective and saved ids; `keep_caps`: the capabilities survive leaving uid 0 (confine_set_caps
 * then says which). */
MUST_CHECK int confine_set_ids(uid_t uid, gid_t gid, bool keep_caps);
/* Effective and permitted sets become `keep` (bits 1 << CAP_x) of what is there; the inheritable, ambient
 * and bounding sets become empty; uid 0 gives no capability any more (locked securebits). */
MUST_CHECK int confine_set_caps(uint64_t keep);

/* The root and working directory become an empty read-only tmpfs; nothing else is mounted in this mount
 * namespace any more, which must be the process's own, with CAP_SYS_ADMIN over it. */
MUST_CHECK int confine_enter_empty_root(void);

/* Every file system and network right that this kernel's Landlock can take. *ret_abi = its version, 0 if
 * the kernel has none (then nothing happened and 0 is returned). */
MUST_CHECK int confine_landlock(int *ret_abi);

/* Closes every descriptor but `keep` (at most 32; -1 entries are ignored). */
MUST_CHECK int confine_close_fds(const int *keep, size_t count);

enum confine_op {
    CONFINE_EQ,        /* argument == value */
    CONFINE_NE,        /* argument != value */
    CONFINE_LE,        /* argument <= value */
    CONFINE_MASKED_EQ, /* (argument & mask) == value */
    CONFINE_OP_COUNT,
};

struct confine_cmp {
    unsigned arg;
    enum confine_op op;
    uint64_t value;
    uint64_t mask;
};

/* A system call with conditions on its arguments, all of which must hold. Several rules for one number
 * are alternatives. A number with a rule is allowed by its rules only, listed in `allowed` or not. */
#define CONFINE_CMPS_MAX 4
struct confine_rule {
    int nr;
    unsigned count;
    struct confine_cmp cmps[CONFINE_CMPS_MAX];
};

struct confine_filter {
    const int *allowed; /* usually made from the generated HOST_SYSCALL list */
    size_t allowed_count;
    const struct confine_rule *rules;
    size_t rule_count;
    int notify_nr;    /* this number, whatever its arguments, goes to the listener; -1 = none */
    bool only_report; /* debugging: what is not allowed fails with EPERM instead of ending the process */
};

/* Installs the filter on all threads. Everything else, and every architecture but x86-64, kills the
 * process. With notify_nr, *ret_listener is the listener (O_CLOEXEC, the caller's); ret_listener may be
 * NULL otherwise. Allocates. */
MUST_CHECK int confine_install_filter(const struct confine_filter *filter, int *ret_listener);
