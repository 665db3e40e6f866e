/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts sentry and gofer: clone3 with new namespaces, id maps written from outside, execution by
 * descriptor. The child waits until spawn_release(), so that the parent can put it into its cgroup first.
 */
#pragma once

#include "runsc-compat/cli/err.h"
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum spawn_ids {
    SPAWN_IDS_CALLER,   /* ordinary user: the caller is 0, nothing else is mapped */
    SPAWN_IDS_OWN,      /* root: `host_uid` is 0, nothing else is mapped */
    SPAWN_IDS_IDENTITY, /* root: every id is itself */
};

struct spawn_config {
    const char *program; /* file name, beside bailey's own executable */
    enum spawn_ids ids;
    uint32_t host_uid;   /* SPAWN_IDS_OWN: uid and gid */
    bool raise_oom;      /* oom_score_adj 1000, and a descriptor that can lower it again */
    uint64_t drill;      /* test builds: protections that are left out (drills.h); else 0 */
};

struct child {
    pid_t pid;
    int pidfd;
    int sock;    /* our end of its start socket (descriptor 3 there) */
    int release; /* write end that lets it go on; -1 after spawn_release */
    int exec_error; /* read end: an errno if it couldn't be executed */
    int oom;     /* writes to the child's oom_score_adj, or -1 */
};

void child_init(struct child *child); /* nothing there */
/* 0, or -1 with `err`. */
MUST_CHECK int spawn(const struct spawn_config *config, struct child *ret, struct err *err);
/* Lets it execute its program; returns once it has, or with `err` when it couldn't. */
MUST_CHECK int spawn_release(struct child *child, const char *program, struct err *err);
/* Kills it if it runs still, reaps it, closes everything. Its wait status, or 0. Idempotent. */
int child_end(struct child *child);
