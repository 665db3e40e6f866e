/* SPDX-License-Identifier: Apache-2.0 */
/* The monitor's own process (a fork of the CLI from before the sandbox) and the CLI's handle of it. */
#include "runsc-compat/cli/monitor.h"

#define LOG_MODULE "monitor"
#include "base/fdpass.h"
#include "base/host.h"
#include "base/log.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define WATCHED_MAX 4
#define DEATH_WAIT_MS 10000

static void kill_watched(const int *pidfds, size_t count)
{
    for (size_t i = 0; i < count; i++)
        (void)host_call4(SYS_pidfd_send_signal, pidfds[i], SIGKILL, NULL, 0);
    for (size_t i = 0; i < count; i++) {
        struct pollfd died = {.fd = pidfds[i], .events = POLLIN};
        (void)poll(&died, 1, DEATH_WAIT_MS);
    }
}

static NORETURN void monitor_main(int sock, struct cgroup cg, struct terminal *terminal, int log_hfd)
{
    int pidfds[WATCHED_MAX];
    size_t count = 0;
    char byte;
    ssize_t got;
    sigset_t all;

    setsid(); /* no signal of the caller's terminal reaches us */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    prctl(PR_SET_NAME, "bailey-monitor", 0, 0, 0);
    prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
    for (;;) {
        size_t received = 0;
        int hfd = -1;
        got = fdpass_recv(sock, &byte, 1, &hfd, 1, &received);
        if (got <= 0)
            break;
        if (received && count < WATCHED_MAX)
            pidfds[count++] = hfd;
    }
    terminal_restore_abandoned(terminal); /* at once: the caller's shell goes on in this moment */
    kill_watched(pidfds, count);
    cg.created = cg.dir_count > 0;
    cgroup_remove(&cg);
    log_init(log_hfd, LOG_FORMAT_TEXT, LOG_LEVEL_ERR, "bailey");
    log_err("the bailey process was killed; the sandbox was ended and cleaned up");
    _exit(0);
}

int monitor_start(const struct cgroup *cg, struct terminal *terminal, int log_hfd, struct monitor *ret,
                  struct err *err)
{
    int socks[2];
    *ret = (struct monitor){.pid = -1, .pidfd = -1, .sock = -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
        return err_errno(err, errno, "can't make a socket");
    AUTO_FD theirs = socks[1];
    ret->sock = socks[0];
    ret->pid = fork();
    if (ret->pid == 0) {
        close(socks[0]);
        monitor_main(theirs, *cg, terminal, log_hfd);
    }
    if (ret->pid > 0)
        ret->pidfd = (int)host_call2(SYS_pidfd_open, ret->pid, 0);
    if (ret->pidfd >= 0)
        return 0;
    err_errno(err, ret->pid < 0 ? errno : -ret->pidfd, "can't start the monitor process");
    monitor_end(ret);
    return -1;
}

int monitor_watch(const struct monitor *m, int pidfd, struct err *err)
{
    int error = fdpass_send(m->sock, "w", 1, &pidfd, 1);
    return error ? err_errno(err, -error, "the monitor process is gone") : 0;
}

void monitor_end(struct monitor *m)
{
    if (m->pid > 0) {
        kill(m->pid, SIGKILL);
        while (waitpid(m->pid, NULL, 0) < 0 && errno == EINTR)
            ;
    }
    host_close(m->pidfd);
    host_close(m->sock);
    *m = (struct monitor){.pid = -1, .pidfd = -1, .sock = -1};
}
