/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The hostile sentry, in the test build only. It runs on the first thread after lockdown, before the guest
 * starts, and tells the CLI how the act ended: exit status 40 and the reason when it was refused, 41 when it
 * succeeded. A filter that kills is seen by the CLI.
 *
 * Parameters in argv: 0 a secret file of the host, 1 pid of a victim, 2 address of eight bytes in it, 3 a TCP
 * port, 4 a program that tells the CLI status 41, 5 an abstract socket's name, 6 a SysV key.
 */
#define LOG_MODULE "drill"
#include "sentry/drills.h"

#include "base/confine.h"
#include "base/host.h"
#include "base/log.h"
#include "gofer/protocol.h"
#include "sentry/control/control.h"
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/io_uring.h>
#include <linux/keyctl.h>
#include <linux/perf_event.h>
#include <poll.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>

#define STATUS_REFUSED 40
#define STATUS_SUCCEEDED 41
#define FDS_MAX 64

static char *const *g_argv;
static int g_dirfd = -1;

static pid_t victim(void)
{
    return (pid_t)strtol(g_argv[1], NULL, 10);
}

/* ---- files ------------------------------------------------------------------------------------- */

static long read_secret(long hfd)
{
    char bytes[16];
    return hfd < 0 ? hfd : host_call3(SYS_read, hfd, bytes, sizeof bytes);
}

static long act_open_file(void)
{
    return read_secret(host_call3(SYS_open, g_argv[0], O_RDONLY, 0));
}

static long act_openat_descriptor(void)
{
    const char *name = strrchr(g_argv[0], '/') + 1;
    for (int hfd = 0; hfd < FDS_MAX; hfd++) {
        long r = read_secret(host_call4(SYS_openat, hfd, name, O_RDONLY, 0));
        if (r != -EBADF && r != -ENOTDIR && r != -ENOENT)
            return r;
    }
    return -ENOENT;
}

static long act_proc_mem(void)
{
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/%d/mem", victim());
    long hfd = host_call3(SYS_open, path, O_RDWR, 0);
    return hfd < 0 ? hfd : host_call4(SYS_pwrite64, hfd, "hostile!", 8, strtoull(g_argv[2], NULL, 0));
}

/* ---- network ------------------------------------------------------------------------------------ */

static long act_socket(void)
{
    return host_call3(SYS_socket, AF_INET, SOCK_STREAM, 0);
}

static long act_connect_tcp(void)
{
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(g_argv[3]))};
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    long hfd = act_socket();
    return hfd < 0 ? hfd : host_call3(SYS_connect, hfd, &to, sizeof to);
}

static long act_connect_abstract(void)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    size_t size = strlen(g_argv[5]);
    memcpy(to.sun_path + 1, g_argv[5], size);
    long hfd = host_call3(SYS_socket, AF_UNIX, SOCK_STREAM, 0);
    return hfd < 0 ? hfd : host_call3(SYS_connect, hfd, &to, offsetof(struct sockaddr_un, sun_path) + 1 + size);
}

/* ---- programs and processes --------------------------------------------------------------------- */

static char *const g_no_strings[] = {NULL};

static long act_execve(void)
{
    return host_call3(SYS_execve, g_argv[4], g_no_strings, g_no_strings);
}

static long exec_fd(long hfd)
{
    return host_call5(SYS_execveat, hfd, "", g_no_strings, g_no_strings, AT_EMPTY_PATH);
}

/* Standard input is the program: a donated descriptor. */
static long donated_program(void)
{
    char magic[4];
    for (int hfd = 4; hfd < FDS_MAX; hfd++)
        if (host_call4(SYS_pread64, hfd, magic, 4, 0) == 4 && memcmp(magic, "\177ELF", 4) == 0)
            return hfd;
    return -ENOENT;
}

static long act_execveat_descriptor(void)
{
    long hfd = donated_program();
    return hfd < 0 ? hfd : exec_fd(hfd);
}

static long act_execveat_memfd(void)
{
    static char block[4096];
    long from = donated_program();
    long to = host_call2(SYS_memfd_create, "program", 0);
    if (from < 0 || to < 0)
        return from < 0 ? from : to;
    for (long at = 0, got; (got = host_call4(SYS_pread64, from, block, sizeof block, at)) > 0; at += got)
        if (host_call4(SYS_pwrite64, to, block, got, at) != got)
            return -EIO;
    return exec_fd(to);
}

static long clone_with(unsigned long flags)
{
    long pid = host_call5(SYS_clone, flags | SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        host_call1(SYS_exit_group, 0);
    return pid;
}

static long act_clone_process(void)
{
    return clone_with(0);
}

static long act_clone_namespaces(void)
{
    return clone_with(CLONE_NEWUSER | CLONE_NEWNS);
}

static long act_ptrace(void)
{
    return host_call4(SYS_ptrace, PTRACE_ATTACH, victim(), 0, 0);
}

static long act_kill_term(void)
{
    return host_call2(SYS_kill, victim(), SIGTERM);
}

static long act_kill_kill(void)
{
    return host_call2(SYS_kill, victim(), SIGKILL);
}

static long act_tgkill(void)
{
    return host_call3(SYS_tgkill, victim(), victim(), 0);
}

static long act_pidfd_signal(void)
{
    long hfd = host_call2(SYS_pidfd_open, victim(), 0);
    return hfd < 0 ? hfd : host_call4(SYS_pidfd_send_signal, hfd, SIGKILL, NULL, 0);
}

static long vm(long nr)
{
    static char bytes[8] = "hostile";
    const struct iovec here = {bytes, sizeof bytes};
    const struct iovec there = {(void *)strtoull(g_argv[2], NULL, 0), sizeof bytes}; /* NOLINT */
    return host_call6(nr, victim(), &here, 1, &there, 1, 0);
}

static long act_vm_readv(void)
{
    return vm(SYS_process_vm_readv);
}

static long act_vm_writev(void)
{
    return vm(SYS_process_vm_writev);
}

static long act_affinity(void)
{
    const unsigned long first = 1;
    return host_call3(SYS_sched_setaffinity, victim(), sizeof first, &first);
}

/* ---- rights ------------------------------------------------------------------------------------- */

static long act_mount(void)
{
    return host_call5(SYS_mount, "hostile", "/", "tmpfs", 0, NULL);
}

static long act_umount(void)
{
    long r = act_mount();
    return r < 0 ? r : host_call2(SYS_umount2, "/..", MNT_DETACH); /* what is on top of the root */
}

static long act_pivot_root(void)
{
    return confine_enter_empty_root();
}

static long act_unshare(void)
{
    return host_call1(SYS_unshare, CLONE_NEWUTS);
}

static long act_setns(void)
{
    long self = host_call2(SYS_pidfd_open, host_call0(SYS_getpid), 0);
    return self < 0 ? self : host_call2(SYS_setns, self, CLONE_NEWUTS);
}

static long act_setuid(void)
{
    return host_call3(SYS_setresuid, 1, 1, 1);
}

static long act_dumpable(void)
{
    return host_call5(SYS_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0);
}

/* ---- large parts of the kernel ------------------------------------------------------------------ */

static long act_bpf(void)
{
    union bpf_attr attr = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    return host_call3(SYS_bpf, BPF_MAP_CREATE, &attr, sizeof attr);
}

static long act_perf_event(void)
{
    struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attr,
                                   .config = PERF_COUNT_SW_CPU_CLOCK};
    return host_call5(SYS_perf_event_open, &attr, 0, -1, -1, 0);
}

static long act_io_uring(void)
{
    struct io_uring_params params = {0};
    return host_call2(SYS_io_uring_setup, 4, &params);
}

static long act_userfaultfd(void)
{
    return host_call1(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);
}

static long act_add_key(void)
{
    return host_call5(SYS_add_key, "user", "hostile", "x", 1, KEY_SPEC_SESSION_KEYRING);
}

static long act_keyctl(void)
{
    return host_call3(SYS_keyctl, KEYCTL_GET_KEYRING_ID, KEY_SPEC_SESSION_KEYRING, 0);
}

static long act_shm(void)
{
    return host_call3(SYS_shmget, strtol(g_argv[6], NULL, 0), 8, 0);
}

static long act_tiocsti(void)
{
    long r = -ENOTTY;
    for (int hfd = 0; hfd < FDS_MAX && r < 0; hfd++)
        r = host_call3(SYS_ioctl, hfd, TIOCSTI, "!");
    return r;
}

/* ---- new code ----------------------------------------------------------------------------------- */

static const unsigned char g_code[] = {0xb8, 42, 0, 0, 0, 0xc3}; /* mov $42, %eax; ret */

static long call_code(long at)
{
    union {
        long at;
        int (*call)(void);
    } u = {at};
    return u.call() == 42 ? 0 : -EIO;
}

static long act_map_exec(void)
{
    long hfd = host_call2(SYS_memfd_create, "code", 0);
    if (hfd < 0 || host_call4(SYS_pwrite64, hfd, g_code, sizeof g_code, 0) < 0)
        return -EIO;
    long at = host_call6(SYS_mmap, NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, hfd, 0);
    return at < 0 && at > -4096 ? at : call_code(at);
}

static long act_protect_exec(void)
{
    long at = host_call6(SYS_mmap, NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at < 0 && at > -4096)
        return at;
    memcpy((void *)at, g_code, sizeof g_code); /* NOLINT */
    long r = host_call3(SYS_mprotect, at, 4096, PROT_READ | PROT_EXEC);
    return r < 0 ? r : call_code(at);
}

/* ---- the gofer ---------------------------------------------------------------------------------- */

/* To every descriptor that takes it but the CLI's: one of them is the gofer's channel. */
static long send_to_gofer(const void *bytes, size_t size, bool with_descriptor)
{
    union {
        struct cmsghdr header;
        char space[CMSG_SPACE(sizeof(int))];
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET,
                            .cmsg_type = SCM_RIGHTS}};
    struct iovec iov = {(void *)(uintptr_t)bytes, size};
    struct msghdr m = {.msg_iov = &iov, .msg_iovlen = 1};
    if (with_descriptor) {
        m.msg_control = &control;
        m.msg_controllen = CMSG_LEN(sizeof(int));
    }
    long sent = 0;
    for (int hfd = CONTROL_FD + 1; hfd < FDS_MAX; hfd++)
        sent += host_call3(SYS_sendmsg, hfd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) > 0;
    if (sent == 0)
        return -ENOTCONN;
    (void)host_call3(SYS_poll, NULL, 0, 3000); /* the gofer's end ends us meanwhile */
    return 0;
}

static long act_send_fd_to_gofer(void)
{
    static const char note[GOFER_CALL_NOTE_SIZE];
    return send_to_gofer(note, sizeof note, true);
}

static long act_garbage_to_gofer(void)
{
    return send_to_gofer("garbage", 7, false);
}

/* ---- bugs --------------------------------------------------------------------------------------- */

static void *volatile g_sink;

static long act_use_after_free(void)
{
    char *bytes = malloc(100);
    g_sink = bytes;
    free(g_sink);
    return *(volatile char *)g_sink & 0;
}

static long act_overflow_stack(void)
{
    static volatile size_t size = 64;
    char bytes[16];
    volatile char *at = bytes;
    for (size_t i = 0; i < size; i++)
        at[i] = 'x';
    return bytes[0] & 0;
}

static long act_failed_assertion(void)
{
    ASSERT(g_argv == NULL);
    return 0;
}

static long act_null_dereference(void)
{
    return *(volatile char *)g_sink;
}

/* ---- running it --------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    long (*run)(void);
} g_acts[] = {
    {"nothing", NULL},
#define ACT(name, layers, also) {#name, act_##name},
#include "tests/drills/acts.def"
#undef ACT
};

void drill_prepare(const struct control_config *config)
{
    if (!drill_leaves_out(config->drill, DRILL_HOLE_DIRFD) || config->argc < 1)
        return;
    char dir[256];
    (void)snprintf(dir, sizeof dir, "%s", config->argv[0]);
    *strrchr(dir, '/') = '\0';
    g_dirfd = (int)host_call3(SYS_open, dir, O_PATH | O_DIRECTORY, 0);
}

int drill_open_filter(void)
{
    scmp_filter_ctx ctx = seccomp_init(SCMP_ACT_ALLOW);
    if (ctx == NULL || seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1) != 0 ||
        seccomp_rule_add_exact(ctx, SCMP_ACT_NOTIFY, GOFER_CALL_NR, 0) != 0 || seccomp_load(ctx) != 0)
        return -1;
    int listener = seccomp_notify_fd(ctx);
    seccomp_release(ctx);
    return listener;
}

void drill_run(const struct control_config *config)
{
    char text[128];
    uint32_t number = DRILL_ACT(config->drill);
    if (number == 0 || number >= sizeof g_acts / sizeof *g_acts)
        return;
    if (config->argc < 7)
        log_err("a drill needs seven parameters");
    g_argv = config->argv;
    long r = g_acts[number].run();
    bool refused = r < 0;
    (void)snprintf(text, sizeof text, "drill %s: %s%s", g_acts[number].name,
                   refused ? "refused: " : "succeeded", refused ? strerrorname_np((int)-r) : "");
    if (control_send(CONTROL_FD, CONTROL_EXIT, refused ? STATUS_REFUSED : STATUS_SUCCEEDED, 0, text, -1) != 0)
        log_err("the CLI is gone");
    host_call1(SYS_exit_group, 0);
}
