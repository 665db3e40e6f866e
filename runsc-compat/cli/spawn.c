/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The children start as copies of the CLI, so everything between clone3 and execveat is written for a
 * process that must not touch the caller's terminal or files: own session, only the descriptors that the
 * header names.
 *
 * SAFETY: the child may not be dumpable to others between clone and exec; the CLI is not (main.c), and
 * the program makes itself so first of all.
 */
#include "runsc-compat/cli/spawn.h"

#include "base/host.h"
#include "base/log.h"
#include "runsc-compat/cli/drills.h"
#include "sentry/control/control.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/sched.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMESPACES                                                                                 \
    (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS |         \
     CLONE_NEWCGROUP)

/* The descriptors that a starting child uses. */
struct start {
    int program;
    int sock;
    int release;
    int release_write; /* the parent's end, which the copy must not hold open */
    int exec_error;
};

void child_init(struct child *child)
{
    *child = (struct child){.pid = -1, .pidfd = -1, .sock = -1, .release = -1, .exec_error = -1, .oom = -1};
}

/* The program beside our own executable, wherever that was started from. */
static int open_program(const char *program, struct err *err)
{
    char path[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (len < 0)
        return err_errno(err, errno, "can't find my own executable: /proc/self/exe");
    path[len] = '\0';
    char *slash = strrchr(path, '/');
    if (!slash || (size_t)(slash + 1 - path) + strlen(program) + 1 > sizeof(path))
        return err_set(err, "the path of my own executable is too long");
    strcpy(slash + 1, program); /* room was checked */
    int hfd = open(path, O_PATH | O_CLOEXEC);
    if (hfd < 0)
        return err_errno(err, errno, "%s, which belongs beside bailey", path);
    return hfd;
}

static NORETURN void fail(const struct start *start)
{
    int code = errno;
    (void)!write(start->exec_error, &code, sizeof(code));
    _exit(STATUS_FAILED);
}

/* 0, 1, 2 = /dev/null, 3 = socket, 4 = program, 5 = error pipe (both closed by exec), nothing else. */
static void arrange_fds(struct start *start, uint64_t drill)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int sock = fcntl(start->sock, F_DUPFD_CLOEXEC, 10);
    int program = fcntl(start->program, F_DUPFD_CLOEXEC, 10);
    int exec_error = fcntl(start->exec_error, F_DUPFD_CLOEXEC, 10);
    if (null < 0 || sock < 0 || program < 0 || exec_error < 0)
        fail(start);
    for (int hfd = drill_leaves_out(drill, DRILL_HOLE_TTY) ? 1 : 0; hfd < 3; hfd++) {
        if (dup2(null, hfd) < 0)
            fail(start);
    }
    if (dup3(program, 4, O_CLOEXEC) < 0 || dup3(exec_error, 5, O_CLOEXEC) < 0 || dup2(sock, CONTROL_FD) < 0)
        fail(start);
    start->program = 4;
    start->exec_error = 5;
    if (syscall(SYS_close_range, 6u, ~0u, 0u) < 0)
        fail(start);
}

static void reset_signals(void)
{
    sigset_t none;
    sigemptyset(&none);
    for (int signo = 1; signo < NSIG; signo++)
        signal(signo, SIG_DFL); /* fails for those that have no other action anyway */
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static void raise_file_limit(void)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
}

static NORETURN void run_child(struct start start, const struct spawn_config *config)
{
    char go;
    static char *const no_env[] = {NULL};
    char name[32];
    snprintf(name, sizeof(name), "%s", config->program);
    char *argv[] = {name, NULL};

    /* Both before and after the change of ids, which clears it. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        fail(&start);
    close(start.release_write);
    ssize_t got;
    while ((got = read(start.release, &go, 1)) < 0 && errno == EINTR)
        ;
    if (got != 1)
        _exit(STATUS_FAILED); /* the CLI gave up or died */
    setsid();
    reset_signals();
    raise_file_limit();
    umask(0);
    arrange_fds(&start, config->drill);
    if (setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0)
        fail(&start);
    if (config->ids != SPAWN_IDS_CALLER && syscall(SYS_setgroups, 0, NULL) < 0)
        fail(&start);
    if (chdir("/") < 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) < 0)
        fail(&start);
    syscall(SYS_execveat, start.program, "", argv, no_env, AT_EMPTY_PATH);
    fail(&start);
}

static int write_proc(pid_t pid, const char *file, const char *text, struct err *err)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
    AUTO_FD hfd = open(path, O_WRONLY | O_CLOEXEC);
    if (hfd < 0 || write(hfd, text, strlen(text)) < 0)
        return err_errno(err, errno, "can't write %s", path);
    return 0;
}

static int write_maps(pid_t pid, const struct spawn_config *config, struct err *err)
{
    char uids[64];
    char gids[64];
    if (drill_leaves_out(config->drill, DRILL_HOLE_USER))
        return 0;
    if (config->ids == SPAWN_IDS_IDENTITY) {
        snprintf(uids, sizeof(uids), "0 0 4294967295");
        snprintf(gids, sizeof(gids), "0 0 4294967295");
    } else {
        bool own = config->ids == SPAWN_IDS_OWN;
        snprintf(uids, sizeof(uids), "0 %u 1", own ? config->host_uid : geteuid());
        snprintf(gids, sizeof(gids), "0 %u 1", own ? config->host_uid : getegid());
    }
    if (write_proc(pid, "uid_map", uids, err) < 0)
        return -1;
    if (config->ids == SPAWN_IDS_CALLER && write_proc(pid, "setgroups", "deny", err) < 0)
        return -1;
    return write_proc(pid, "gid_map", gids, err);
}

static int raise_oom(struct child *child, struct err *err)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/oom_score_adj", child->pid);
    child->oom = open(path, O_WRONLY | O_CLOEXEC);
    if (child->oom < 0 || write(child->oom, "1000", 4) != 4)
        return err_errno(err, errno, "can't write %s", path);
    return 0;
}

static int explain_clone(int code, struct err *err)
{
    if (code == EPERM || code == ENOSPC || code == EUSERS || code == EINVAL)
        return err_errno(err, code,
                         "this host doesn't let me create user namespaces; an administrator can allow "
                         "it with sysctl user.max_user_namespaces (or kernel.unprivileged_userns_clone=1)");
    return err_errno(err, code, "can't start a process");
}

static int clone_child(struct start *start, const struct spawn_config *config, struct child *child,
                       struct err *err)
{
    int pidfd = -1;
    struct clone_args args = {.flags = (NAMESPACES & ~drill_shared_namespaces(config->drill)) | CLONE_PIDFD,
                              .pidfd = (uint64_t)(uintptr_t)&pidfd,
                              .exit_signal = SIGCHLD};
    long pid = syscall(SYS_clone3, &args, sizeof(args));
    if (pid == 0)
        run_child(*start, config);
    if (pid < 0)
        return explain_clone(errno, err);
    child->pid = (pid_t)pid;
    child->pidfd = pidfd;
    return 0;
}

int spawn(const struct spawn_config *config, struct child *ret, struct err *err)
{
    int socks[2];
    int release[2];
    int exec_error[2];
    child_init(ret);
    AUTO_FD program = open_program(config->program, err);
    if (program < 0)
        return -1;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, socks) < 0)
        return err_errno(err, errno, "can't make a socket");
    ret->sock = socks[0];
    AUTO_FD child_sock = socks[1];
    if (pipe2(release, O_CLOEXEC) < 0)
        return err_errno(err, errno, "can't make a pipe");
    ret->release = release[1];
    AUTO_FD child_release = release[0];
    if (pipe2(exec_error, O_CLOEXEC) < 0)
        return err_errno(err, errno, "can't make a pipe");
    ret->exec_error = exec_error[0];
    AUTO_FD child_exec_error = exec_error[1];

    struct start start = {.program = program, .sock = child_sock, .release = child_release,
                          .release_write = ret->release, .exec_error = child_exec_error};
    int error = clone_child(&start, config, ret, err);
    if (!error)
        error = write_maps(ret->pid, config, err);
    if (!error && config->raise_oom)
        error = raise_oom(ret, err);
    if (error)
        child_end(ret);
    return error;
}

int spawn_release(struct child *child, const char *program, struct err *err)
{
    int code = 0;
    if (write(child->release, "g", 1) != 1)
        return err_errno(err, errno, "can't start %s", program);
    host_close(child->release);
    child->release = -1;
    ssize_t got;
    while ((got = read(child->exec_error, &code, sizeof(code))) < 0 && errno == EINTR)
        ;
    host_close(child->exec_error);
    child->exec_error = -1;
    if (got == (ssize_t)sizeof(code))
        return err_errno(err, code, "can't execute %s beside bailey%s", program,
                         code == EACCES ? " (it must be executable for everybody)" : "");
    return 0;
}

int child_end(struct child *child)
{
    int status = 0;
    if (child->pid > 0) {
        kill(child->pid, SIGKILL); /* our own unreaped child: the pid is its */
        while (waitpid(child->pid, &status, 0) < 0 && errno == EINTR)
            ;
    }
    host_close(child->pidfd);
    host_close(child->sock);
    host_close(child->release);
    host_close(child->exec_error);
    host_close(child->oom);
    child_init(child);
    return status;
}
