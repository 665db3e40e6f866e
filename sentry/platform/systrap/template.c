/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts one template for each worker, and fetches the listener of its filter. Runs in platform_new(),
 * on the only thread, before the sentry's own filter.
 *
 * The template is the stub's image, executed from a sealed memfd with an empty environment: never a fork
 * of the sentry, whose heap, canaries and layout would become the guest's.
 */
#include "sentry/platform/systrap/systrap.h"

#include "base/host.h"
#define LOG_MODULE "systrap"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ioctl.h>
#include <sys/personality.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define SYNC_WAKE_UP 1UL
#define SET_FLAGS _IOW('!', 4, uint64_t)
#define WAIT_STEP_NS 20000L
#define WAIT_STEPS_MAX 250000L /* 5 s */
#define IMAGE_TABLE_OFFSET 0x1000

/* A memfd with these bytes that nobody can change. */
static int sealed_memfd(const char *name, const void *bytes, size_t size)
{
    AUTO_FD hfd = (int)host_call2(SYS_memfd_create, name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (hfd < 0)
        return take_fd(&hfd);
    int r = (int)host_write_all(hfd, bytes, size);
    if (r == 0)
        r = (int)host_call3(SYS_fcntl, hfd, F_ADD_SEALS,
                            F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    return r < 0 ? r : take_fd(&hfd);
}

/* ---- the child between fork and exec ------------------------------------------------------------- */

/* The kernel's OOM killer shall take guests first. Inherited by everything that the template makes. */
static bool raise_oom_score(void)
{
    int hfd = (int)host_call3(SYS_open, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);
    if (hfd < 0)
        return false;
    bool ok = host_call3(SYS_write, hfd, "1000", 4) == 4;
    host_close(hfd);
    return ok;
}

/* Descriptor 0 carries the parameters; the stub closes whatever else is open. */
static NORETURN void exec_template(int image_hfd, int params_hfd)
{
    static char *const none[] = {NULL};
    const struct rlimit stack = {.rlim_cur = MIB(8), .rlim_max = RLIM_INFINITY};
    (void)host_call4(SYS_prlimit64, 0, RLIMIT_STACK, &stack, NULL);
    (void)host_call1(SYS_personality, ADDR_NO_RANDOMIZE); /* or its stack may lie on the image */
    long r = host_call2(SYS_dup2, params_hfd, 0);
    if (r == 0)
        (void)host_call5(SYS_execveat, image_hfd, "", none, none, AT_EMPTY_PATH);
    for (;;)
        (void)host_call1(SYS_exit_group, 127);
}

/* Two sets of parameters, because the child learns only then whether it may have the score. */
static pid_t spawn_template(int image_hfd, struct stub_params *params)
{
    params->findings = 0;
    AUTO_FD plain = sealed_memfd("bailey-params", params, sizeof *params);
    params->findings = STUB_FOUND_OOM_SCORE;
    AUTO_FD scored = sealed_memfd("bailey-params", params, sizeof *params);
    if (plain < 0 || scored < 0)
        return -1;
    pid_t pid = fork();
    if (pid == 0)
        exec_template(image_hfd, raise_oom_score() ? scored : plain);
    return pid;
}

/* ---- the listener -------------------------------------------------------------------------------- */

static bool is_listener(int hfd)
{
    uint64_t no_id = 0;
    return host_call3(SYS_ioctl, hfd, SECCOMP_IOCTL_NOTIF_ID_VALID, &no_id) == -ENOENT;
}

static bool has_exited(pid_t pid)
{
    siginfo_t info = {0};
    return host_call5(SYS_waitid, P_PID, pid, &info, WEXITED | WNOHANG | WNOWAIT, 0) != 0 ||
           info.si_pid != 0;
}

/* The template's descriptor 0, once that is its filter's listener. -ETIMEDOUT, -ECHILD if it died. */
static int fetch_listener(pid_t pid, int pidfd)
{
    for (long i = 0; i < WAIT_STEPS_MAX; i++) {
        int hfd = (int)host_call3(SYS_pidfd_getfd, pidfd, 0, 0);
        if (hfd >= 0 && is_listener(hfd))
            return hfd;
        host_close(hfd);
        if (hfd == -EPERM || hfd == -ENOSYS)
            return hfd;
        if (has_exited(pid))
            return -ECHILD;
        struct timespec step = {.tv_nsec = WAIT_STEP_NS};
        (void)host_call2(SYS_nanosleep, &step, NULL);
    }
    return -ETIMEDOUT;
}

static int receive(struct worker *w, struct seccomp_notif *n)
{
    long r;
    do {
        memset(n, 0, sizeof *n);
        r = host_call3(SYS_ioctl, w->listener, SECCOMP_IOCTL_NOTIF_RECV, n);
    } while (r == -EINTR);
    return (int)r;
}

/* First doorbell (what it found), close of the listener, second doorbell (idle, held from now on). */
static int greet_template(struct systrap *p, struct worker *w)
{
    struct seccomp_notif n;
    if (receive(w, &n) != 0 || n.data.nr != STUB_DOORBELL ||
        n.data.args[1] != STUB_CODE_TEMPLATE)
        return -EPROTO;
    p->findings = (uint32_t)n.data.args[2];
    p->base.info.vvar_size = n.data.args[3];
    p->base.info.vdso_size = n.data.args[4];
    w->killable = n.data.args[5] == 0;
    if (worker_reply(w, n.id, 0) != 0 || receive(w, &n) != 0 || n.data.nr != SYS_close ||
        n.data.args[0] != 0 || worker_continue(w, n.id) != 0)
        return -EPROTO;
    if (receive(w, &n) != 0 || n.data.nr != STUB_DOORBELL ||
        n.data.args[1] != STUB_CODE_TEMPLATE)
        return -EPROTO;
    w->template_id = n.id;
    atomic_store(&w->may_refill, true);
    return 0;
}

static int start_template(struct systrap *p, struct worker *w, int image_hfd,
                          struct stub_params *params, const char **ret_why)
{
    *ret_why = "cannot start the stub's template";
    w->template_pid = spawn_template(image_hfd, params);
    if (w->template_pid < 0)
        return -EAGAIN;
    w->template_pidfd = (int)host_call2(SYS_pidfd_open, w->template_pid, 0);
    if (w->template_pidfd < 0) {
        *ret_why = "the kernel has no pidfd_open";
        return w->template_pidfd;
    }
    w->listener = fetch_listener(w->template_pid, w->template_pidfd);
    if (w->listener < 0) {
        *ret_why = w->listener == -ECHILD ? "the stub's template died: no seccomp user notification?"
                                          : "no access to the stub's listener (Yama?)";
        return w->listener;
    }
    (void)host_call3(SYS_fcntl, w->listener, F_SETFD, FD_CLOEXEC);
    w->sync = host_call3(SYS_ioctl, w->listener, SET_FLAGS, SYNC_WAKE_UP) == 0;
    *ret_why = "the stub's template does not answer";
    return greet_template(p, w);
}

/* ---- start and stop ------------------------------------------------------------------------------ */

static int choose_vdso_place(uint64_t *ret)
{
    uint64_t random;
    if (host_call3(SYS_getrandom, &random, sizeof random, 0) != sizeof random)
        return -EAGAIN;
    uint64_t pages = (STUB_VDSO_HIGH - STUB_VDSO_LOW) / PAGE_SIZE - 256;
    *ret = STUB_VDSO_LOW + random % pages * PAGE_SIZE;
    return 0;
}

int templates_start(struct systrap *p, const char **ret_why)
{
    size_t size = (size_t)(systrap_stub_image_end - systrap_stub_image);
    memcpy(p->table, systrap_stub_image + IMAGE_TABLE_OFFSET, sizeof p->table);
    ASSERT(size > IMAGE_TABLE_OFFSET + sizeof p->table && p->table[0] == STUB_TABLE_MAGIC);
    *ret_why = "no memfd for the stub's image";
    AUTO_FD image_hfd = sealed_memfd("bailey-stub", systrap_stub_image, size);
    if (image_hfd < 0)
        return image_hfd;
    struct stub_params params = {.open_filter = p->open_filter};
    int r = choose_vdso_place(&params.vdso_target);
    for (unsigned i = 0; i < p->worker_count && r == 0; i++)
        r = start_template(p, &p->workers[i], image_hfd, &params, ret_why);
    if (r != 0)
        return r;
    if (p->base.info.vdso_size != 0)
        p->base.info.vdso = GUEST_ADDR(params.vdso_target + p->base.info.vvar_size);
    return 0;
}

static void reap_now(pid_t pid)
{
    siginfo_t info;
    while (host_call5(SYS_waitid, P_PID, pid, &info, WEXITED | __WALL, 0) == -EINTR) {
    }
}

void templates_stop(struct systrap *p)
{
    for (unsigned i = 0; i < p->worker_count; i++) {
        struct worker *w = &p->workers[i];
        if (w->template_pid > 0) {
            (void)host_call2(SYS_kill, w->template_pid, SIGKILL);
            reap_now(w->template_pid);
        }
        host_close(w->template_pidfd);
        host_close(w->listener);
    }
}
