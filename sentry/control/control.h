/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The control protocol between the CLI and the sentry, and how a sentry is started. The CLI includes
 * this header and nothing else of the sentry's.
 *
 * Start. The CLI makes the sentry by clone3 with new user, mount, pid, net, ipc, uts and cgroup
 * namespaces (uid and gid 0 of that user namespace are its own uid on the host), in its own session,
 * and executes it by descriptor with argv {"bailey-sentry"}, an empty environment, and exactly these
 * descriptors: 0, 1, 2 = /dev/null, 3 = CONTROL_FD, a seqpacket socket. It is pid 1 of its pid
 * namespace, has all capabilities over its user namespace (it drops them itself), PR_SET_PDEATHSIG
 * SIGKILL, oom_score_adj 1000 (what it forks before it lowers its own inherits that), umask 0.
 *
 *   CLI → sentry   START      + descriptors; the configuration is a blob in a sealed memfd
 *   sentry → CLI   READY      + the seccomp listener for the gofer; the sentry is locked down
 *   CLI → sentry   GO         the gofer has the listener: mount, load, run the command
 *   CLI → sentry   SIGNAL WINSIZE HANGUP CONTINUE        at any time after GO
 *   sentry → CLI   STOPPED    the command stopped (Ctrl-Z): everything of the sandbox is to be frozen
 *   sentry → CLI   TEXT       mode FEATURES only: "key=value" lines
 *   sentry → CLI   EXIT       the last message; then the sentry exits
 *
 * EOF on the socket ends the sentry at once (the CLI is gone). The sentry trusts the CLI but bounds
 * every length; the CLI trusts nothing after READY: text is escaped before a person sees it. Until EXIT
 * arrives the sentry has failed; its death without EXIT is status 125.
 */
#pragma once

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CONTROL_FD 3
#define CONTROL_VERSION 1u

/* ---- configuration ----------------------------------------------------------------------------- */

#define CONTROL_BLOB_MAX MIB(8)
#define CONTROL_ARGS_MAX 65536u /* argv and environment strings, each */
#define CONTROL_MOUNTS_MAX 64u
#define CONTROL_PATH_MAX 4096u
#define CONTROL_STR_MAX 131072u

enum control_mode {
    CONTROL_MODE_RUN,
    CONTROL_MODE_FEATURES, /* make the platform, send its description as TEXT, EXIT 0; no gofer */
    CONTROL_MODE_COUNT,
};

enum control_mount_kind {
    CONTROL_MOUNT_OVERLAY, /* the gofer's attach point read-only beneath memory */
    CONTROL_MOUNT_BIND,    /* the gofer's attach point itself (read-only if `read_only`) */
    CONTROL_MOUNT_COUNT,
};

/* mounts[0] is the root ("/"). The others follow in the order in which they are to be mounted. The
 * sentry mounts /proc /sys /dev /dev/pts /dev/shm /tmp /run itself right after the root, and creates
 * destinations that aren't there (in memory; on a BIND only if it can). */
struct control_mount {
    uint32_t kind;   /* enum control_mount_kind */
    uint32_t attach; /* index of the gofer's attach point (gofer/start.h) */
    bool read_only;
    bool shared;     /* others write to it: revalidate instead of trusting caches */
    char *dst;       /* absolute, lexically clean (no "." "..", "//") */
};

struct control_limits {
    uint64_t memory_bytes; /* 0 = none. The cgroup enforces it; the sentry caps memory files at half */
    uint32_t cpu_millis;   /* 0 = none; 1500 = one and a half CPUs */
    uint32_t cpu_count;    /* CPUs that the guest sees: affinity, /proc/cpuinfo, sysfs; at least 1 */
    uint32_t pids;         /* 0 = none; guest tasks alive at once */
};

struct control_winsize {
    uint16_t rows, cols, xpixel, ypixel;
};

struct control_config {
    uint32_t mode;       /* enum control_mode */
    char *platform;      /* "systrap", "ptrace" or "" for the best that works */
    bool strace;         /* log each guest system call */
    uint32_t log_level;  /* enum log_level */
    uint32_t log_format; /* enum log_format */

    char **argv; /* NULL-terminated, argc >= 1 with mode RUN */
    size_t argc;
    char **envp; /* NULL-terminated. Without HOME the sentry adds it: passwd's, or "/" */
    size_t envc;
    char *cwd;      /* absolute guest path; chdir fails => EXIT 125 unless cwd_optional, then "/" */
    bool cwd_optional;
    char *hostname;
    char *user; /* "" = uid and gid as given; else a name to look up in the guest's /etc/passwd */
    uint32_t uid;
    uint32_t gid;
    struct control_limits limits;
    struct control_mount *mounts;
    size_t mount_count;

    uint32_t tty_mask; /* bit n: the guest's descriptor n (0..2) is the sandbox's terminal */
    struct control_winsize winsize;
    uint64_t drill; /* test builds of the sentry only: which hostile act to try; else 0 */
};

void control_config_fini(struct control_config *config);

struct wire_writer;
/* Appends the configuration as a blob. */
void control_config_encode(const struct control_config *config, struct wire_writer *w);
/* Decodes and validates `size` bytes (a private copy). 0, or -EPROTO with nothing to free. */
MUST_CHECK int control_config_decode(const void *bytes, size_t size, struct control_config *ret);

/* Descriptors that come with START; -1 where absent. All O_CLOEXEC, owned by the receiver. */
struct control_fds {
    int gofer;    /* seqpacket socket to the gofer (RUN only) */
    int log;      /* write end of a pipe; log lines */
    int stdio[3]; /* the caller's descriptors 0..2 where they are no terminals, with O_NONBLOCK as found */
    int tty;      /* stream socket: bytes of the sandbox's terminal, if tty_mask is not 0 */
    int oom;      /* write "0" and close once the stub templates are running */
};
void control_fds_init(struct control_fds *fds); /* all -1 */
void control_fds_close(struct control_fds *fds);

/* ---- messages ---------------------------------------------------------------------------------- */

enum control_kind {
    CONTROL_START,    /* a = blob size; descriptors: blob, then those of control_fds marked in b */
    CONTROL_READY,    /* one descriptor with mode RUN: the seccomp listener */
    CONTROL_GO,
    CONTROL_SIGNAL,   /* a = host signal number (TERM HUP INT QUIT USR1 USR2 TSTP) for the command */
    CONTROL_WINSIZE,  /* a = rows << 16 | cols, b = xpixel << 16 | ypixel */
    CONTROL_HANGUP,   /* the caller's terminal is gone: SIGHUP as Linux does for a closed master */
    CONTROL_CONTINUE, /* after STOPPED: continue the sandbox, SIGCONT to the foreground group */
    CONTROL_STOPPED,  /* a = the stopping signal */
    CONTROL_TEXT,     /* text */
    CONTROL_EXIT,     /* a = exit status 0..255 (128 + n for signals); text: one line for the caller's
                         stderr when bailey and not the command says it (125, 126, 127), else "" */
    CONTROL_KIND_COUNT,
};

#define CONTROL_TEXT_MAX 1000

/* On the wire: little-endian, exactly CONTROL_HEADER_SIZE + text_size bytes. */
struct control_message {
    uint32_t kind;
    uint32_t text_size; /* without the NUL */
    uint64_t a;
    uint64_t b;
    char text[CONTROL_TEXT_MAX + 1]; /* always terminated after control_recv */
};
#define CONTROL_HEADER_SIZE 24

/* Sends kind, a, b and `text` (NULL = none; cut at CONTROL_TEXT_MAX) with `hfd` (borrowed; -1 = none).
 * 0 or -errno. Any thread. About 1 KiB of stack. */
MUST_CHECK int control_send(int sock, enum control_kind kind, uint64_t a, uint64_t b, const char *text,
                            int hfd);
/* Receives one message; `*ret_hfd` (owned by the caller) is its descriptor or -1; with `ret_hfd` NULL a
 * descriptor is a protocol error. 0; -EPIPE at EOF; -EPROTO; -EAGAIN on an empty nonblocking socket. */
MUST_CHECK int control_recv(int sock, struct control_message *ret, int *ret_hfd);
/* The decoder beneath it, for fuzzing: 0 or -EPROTO. */
MUST_CHECK int control_decode(const void *bytes, size_t size, struct control_message *ret);

/* The sentry's side of START: first message on `sock`, blob read and decoded. 0 or -errno. Before
 * lockdown (reads a memfd, allocates). */
MUST_CHECK int control_recv_start(int sock, struct control_config *ret, struct control_fds *ret_fds);
/* The CLI's side. `fds` are borrowed. 0 or -errno (-E2BIG: the blob would be too large). */
MUST_CHECK int control_send_start(int sock, const struct control_config *config,
                                  const struct control_fds *fds);

/* ---- passwd ------------------------------------------------------------------------------------ */

struct control_user {
    uint32_t uid;
    uint32_t gid;
    char home[256]; /* "/" if the entry has none that fits */
};
/* Looks `name` (or, with NULL, `uid`) up in the bytes of a passwd file, which nobody vouches for. 0,
 * -ENOENT. Lines that don't parse are skipped. */
MUST_CHECK int control_find_user(const char *bytes, size_t size, const char *name, uint32_t uid,
                                 struct control_user *ret);
