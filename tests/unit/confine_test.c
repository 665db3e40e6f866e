/* SPDX-License-Identifier: Apache-2.0 */
/*
 * base/confine: each step takes away what it says. Every case runs in a child process and does first, as
 * the control, what must fail afterwards.
 */
#include "base/confine.h"

#include "base/compiler.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Runs `body` in a child; its wait status. */
static int run_child(int (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(body());
    int status;
    cr_assert_eq(waitpid(pid, &status, 0), pid);
    return status;
}

static void expect_exit(int (*body)(void), int code)
{
    int status = run_child(body);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == code, "status 0x%x, wanted exit %d", status, code);
}

#define CHECK(e)                                                                                   \
    do {                                                                                           \
        if (!(e)) {                                                                                \
            fprintf(stderr, "%d: %s (errno %d)\n", __LINE__, #e, errno);                           \
            return 1;                                                                              \
        }                                                                                          \
    } while (0)

#ifdef BAILEY_SANITIZED
#define EXTRA SYS_mmap, SYS_munmap, SYS_sigaltstack, SYS_getpid, SYS_gettid, SYS_futex, SYS_readlink, SYS_prctl,
#else
#define EXTRA
#endif
static const int basic[] = {EXTRA SYS_exit_group, SYS_write, SYS_getpid, SYS_brk, SYS_munmap, SYS_close, SYS_fcntl};

static const struct confine_filter plain_filter = {
    .allowed = basic, .allowed_count = ARRAY_COUNT(basic), .notify_nr = -1};

static int forbidden_call(void)
{
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    CHECK(getppid() > 0);
    CHECK(confine_install_filter(&plain_filter, NULL) == 0);
    CHECK(getpid() > 0);
    getppid();
    return 0;
}

Test(filter, kills_at_a_call_that_is_not_listed)
{
    int status = run_child(forbidden_call);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "status 0x%x", status);
}

static int x32_call(void)
{
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    CHECK(confine_install_filter(&plain_filter, NULL) == 0);
    syscall(0x40000000 + SYS_getpid);
    return 0;
}

Test(filter, kills_x32_calls)
{
    int status = run_child(x32_call);
    cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSYS, "status 0x%x", status);
}

static int reported_call(void)
{
    struct confine_filter filter = plain_filter;
    filter.only_report = true;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    CHECK(confine_install_filter(&filter, NULL) == 0);
    CHECK(syscall(SYS_getppid) == -1 && errno == EPERM);
    return 7;
}

Test(filter, reports_instead_when_told_to)
{
    expect_exit(reported_call, 7);
}

static int argument_rules(void)
{
    static const struct confine_rule rules[] = {
        {.nr = SYS_fcntl, .count = 1, .cmps = {{.arg = 1, .op = CONFINE_EQ, .value = F_GETFL}}},
        {.nr = SYS_fcntl, .count = 2, .cmps = {{.arg = 1, .op = CONFINE_EQ, .value = F_SETFD},
                                               {.arg = 2, .op = CONFINE_MASKED_EQ, .mask = 1, .value = 1}}}};
    struct confine_filter filter = plain_filter;
    filter.rules = rules;
    filter.rule_count = ARRAY_COUNT(rules);
    filter.only_report = true;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    CHECK(fcntl(2, F_GETFD) >= 0);
    CHECK(confine_install_filter(&filter, NULL) == 0);
    CHECK(fcntl(2, F_GETFL) >= 0);
    CHECK(fcntl(2, F_SETFD, 1) == 0);
    CHECK(fcntl(2, F_SETFD, 0) == -1 && errno == EPERM);
    CHECK(fcntl(2, F_GETFD) == -1 && errno == EPERM); /* listed in `allowed`, but it has rules */
    return 7;
}

Test(filter, allows_a_call_with_rules_by_its_rules_only)
{
    expect_exit(argument_rules, 7);
}

static int listener(void)
{
    struct confine_filter filter = plain_filter;
    int hfd = -1;
    filter.notify_nr = SYS_getpriority;
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    CHECK(confine_install_filter(&filter, &hfd) == 0);
    CHECK(hfd >= 0 && fcntl(hfd, F_GETFD) == FD_CLOEXEC);
    close(hfd);
    /* Without a listener the call answers ENOSYS. */
    CHECK(syscall(SYS_getpriority, 0, 0) == -1 && errno == ENOSYS);
    return 7;
}

Test(filter, hands_out_a_listener)
{
    expect_exit(listener, 7);
}

static int close_fds(void)
{
    int a = dup(2), b = dup(2), c = dup(2), d = dup(2);
    const int keep[] = {c, -1, 2, a};
    CHECK(confine_close_fds(keep, ARRAY_COUNT(keep)) == 0);
    CHECK(fcntl(a, F_GETFD) >= 0 && fcntl(c, F_GETFD) >= 0 && fcntl(2, F_GETFD) >= 0);
    CHECK(fcntl(b, F_GETFD) == -1 && fcntl(d, F_GETFD) == -1 && fcntl(0, F_GETFD) == -1);
    return 7;
}

Test(close_fds, keeps_only_what_is_listed)
{
    expect_exit(close_fds, 7);
}

static int process(void)
{
    struct rlimit core;
    int signal = 0;
    CHECK(confine_process() == 0);
    CHECK(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1);
    CHECK(prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) == 0);
    CHECK(getrlimit(RLIMIT_CORE, &core) == 0 && core.rlim_max == 0);
    CHECK(prctl(PR_GET_PDEATHSIG, &signal, 0, 0, 0) == 0 && signal == SIGKILL);
    return 7;
}

Test(process, gives_up_what_the_header_says)
{
    expect_exit(process, 7);
}

static int landlock(void)
{
    int abi = -1;
    CHECK(open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0);
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    CHECK(confine_landlock(&abi) == 0);
    if (abi == 0)
        return 8;
    CHECK(open("/etc/passwd", O_RDONLY | O_CLOEXEC) == -1 && errno == EACCES);
    CHECK(mkdir("/tmp/landlock-test", 0700) == -1 && errno == EACCES);
    return 7;
}

Test(landlock, denies_files)
{
    int status = run_child(landlock);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 8)
        cr_skip_test("this kernel has no Landlock");
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 7, "status 0x%x", status);
}

/* A user namespace in which we are root, as the CLI's children have it. */
static int enter_namespaces(void)
{
    uid_t uid = getuid();
    char map[64];
    int len = snprintf(map, sizeof(map), "0 %u 1", uid);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
        return -1;
    int hfd = open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC);
    return write(hfd, map, (size_t)len) == len ? 0 : -1;
}

static int empty_root(void)
{
    CHECK(enter_namespaces() == 0);
    CHECK(access("/etc/passwd", R_OK) == 0);
    CHECK(confine_enter_empty_root() == 0);
    CHECK(access("/etc", F_OK) == -1 && errno == ENOENT);
    CHECK(access("..", F_OK) == 0 && access("../etc", F_OK) == -1);
    CHECK(mkdir("/x", 0700) == -1 && errno == EROFS);
    return 7;
}

Test(empty_root, leaves_nothing_of_the_host)
{
    expect_exit(empty_root, 7);
}

static int caps(void)
{
    CHECK(enter_namespaces() == 0);
    CHECK(prctl(PR_CAPBSET_READ, 21, 0, 0, 0) == 1);
    CHECK(confine_set_caps(1u << 1) == 0); /* CAP_DAC_OVERRIDE stays */
    for (unsigned long cap = 0; cap < 40; cap++)
        CHECK(prctl(PR_CAPBSET_READ, cap, 0, 0, 0) == 0);
    CHECK(mount(NULL, "/", NULL, 0, NULL) == -1 && errno == EPERM);
    CHECK(confine_set_caps(0) == 0);
    return 7;
}

Test(caps, bounding_set_is_empty_and_mount_is_gone)
{
    expect_exit(caps, 7);
}
