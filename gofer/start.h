/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a gofer is started; its peer here is the CLI, which it trusts (the sentry it doesn't: see the
 * gofer's protocol for that side).
 *
 * The CLI makes the gofer by clone3 with new user, mount, pid, net, ipc, uts and cgroup namespaces, in
 * its own session, and executes it by descriptor with argv {"bailey-gofer"}, an empty environment,
 * descriptors 0, 1, 2 = /dev/null and 3 = GOFER_START_FD, a seqpacket socket. It is pid 1 of its pid
 * namespace, PR_SET_PDEATHSIG SIGKILL, umask 0, and has all capabilities over its user namespace:
 *   as root          every id is mapped to itself, so that CAP_DAC_* and CAP_CHOWN work on host files;
 *                    the gofer keeps of them only what its attach points need
 *   ordinary user    the caller is uid and gid 0, nothing else is mapped
 * Its mount namespace is a copy of the host's, all private. The gofer itself makes of every attach path a
 * detached mount (open_tree with OPEN_TREE_CLONE | AT_RECURSIVE, then mount_setattr with nosuid, nodev,
 * and read-only where asked), checks device and inode against what the CLI saw, and then enters an
 * empty root, so that no path of the host is left.
 *
 *   CLI → gofer    START     + descriptors; the configuration is a blob in a sealed memfd
 *   gofer → CLI    READY     locked down, attach points open   (or FAILED with a line of text)
 *   CLI → gofer    LISTENER  + the sentry's seccomp listener
 * After that only EOF is expected: the gofer exits when either of its sockets is closed.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GOFER_START_FD 3
#define GOFER_ATTACHES_MAX 64u
#define GOFER_MASKS_MAX 64u
#define GOFER_PATH_MAX 4096u
#define GOFER_BLOB_MAX MIB(1)
#define GOFER_TEXT_MAX 500

struct gofer_attach {
    char *path;   /* canonical host path of a directory (or of a regular file: `is_file`) */
    uint64_t dev; /* st_dev and st_ino that the CLI saw there */
    uint64_t ino;
    bool read_only;
    bool is_file;
    bool public_only; /* the host's own root: serve only what mode bits give to everybody, and `masks` */
    bool one_mount;   /* don't cross into other mounts beneath it (the host's root: not recursive) */
};

struct gofer_config {
    uint32_t log_level;  /* enum log_level */
    uint32_t log_format; /* enum log_format */
    bool as_root;        /* started by real root (see above) */
    uint32_t own_uid;    /* as_root: host uid and gid set aside for this gofer */
    struct gofer_attach *attaches; /* index = attach number in the protocol */
    size_t attach_count;
    char **masks; /* absolute paths that attach points with public_only never show (subtrees) */
    size_t mask_count;
};

struct gofer_start_fds {
    int channel; /* seqpacket socket to the sentry */
    int log;     /* write end of a pipe */
};

enum gofer_start_kind {
    GOFER_START,    /* CLI → gofer; descriptors: blob, channel, log */
    GOFER_READY,    /* gofer → CLI */
    GOFER_FAILED,   /* gofer → CLI; text says why */
    GOFER_LISTENER, /* CLI → gofer; one descriptor */
    GOFER_START_KIND_COUNT,
};

void gofer_config_fini(struct gofer_config *config);
struct wire_writer;
void gofer_config_encode(const struct gofer_config *config, struct wire_writer *w);
/* 0, or -EPROTO with nothing to free. */
MUST_CHECK int gofer_config_decode(const void *bytes, size_t size, struct gofer_config *ret);

/* The gofer's side. Descriptors become the caller's. 0 or -errno; -EPIPE at EOF. */
MUST_CHECK int gofer_recv_start(int sock, struct gofer_config *ret, struct gofer_start_fds *ret_fds);
MUST_CHECK int gofer_send_ready(int sock);
MUST_CHECK int gofer_send_failed(int sock, const char *text);
MUST_CHECK int gofer_recv_listener(int sock, int *ret_hfd);

/* The CLI's side. Descriptors are borrowed. gofer_recv_ready: 0, or -ECANCELED with the gofer's text
 * (escaped, terminated) in `ret_text`, or -errno; -EPIPE if the gofer died. */
MUST_CHECK int gofer_send_start(int sock, const struct gofer_config *config,
                                const struct gofer_start_fds *fds);
MUST_CHECK int gofer_recv_ready(int sock, char ret_text[GOFER_TEXT_MAX + 1]);
MUST_CHECK int gofer_send_listener(int sock, int listener_hfd);
