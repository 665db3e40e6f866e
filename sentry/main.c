/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bailey-sentry: the user-space kernel of one sandbox. This file is its security policy, top to bottom: take
 * the configuration from the CLI, start the stub templates, give everything up, make the threads, install
 * the filter, serve. How it's started: sentry/control/control.h.
 *
 * It trusts the CLI. It distrusts the guest and, for what it sends, the gofer.
 */
#define LOG_MODULE "main"
#include "base/confine.h"
#include "base/host.h"
#include "base/log.h"
#include "gofer/protocol.h"
#include "sentry/boot/boot.h"
#include "sentry/control/control.h"
#include "sentry/crash.h"
#include "sentry/drills.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/platform/platform.h"
#include "sentry/platform/wakeable.h"
#include "sentry/sanitized.h"
#include "sentry/sched/sched.h"
#include "sentry/task/host_facts.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/seccomp.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#define STANDBY_THREADS 4

/* #syscalls brk,mmap,munmap,mremap,madvise,mprotect: malloc and fiber stacks (never executable: rules)
 * #syscalls futex,exit,rseq,set_robust_list: threads */

static const int allowed[] = {
#define HOST_SYSCALL(name) SYS_##name,
#include "bailey_sentry_syscalls.h"
    SANITIZED_SYSCALLS /* nothing but in test builds */
};

#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif

/* clang-format off */
static const struct confine_rule rules[] = {
    {SYS_ioctl, 1, {{1, CONFINE_EQ, SECCOMP_IOCTL_NOTIF_RECV, 0}}},
    {SYS_ioctl, 1, {{1, CONFINE_EQ, SECCOMP_IOCTL_NOTIF_SEND, 0}}},
    {SYS_ioctl, 1, {{1, CONFINE_EQ, SECCOMP_IOCTL_NOTIF_ADDFD, 0}}},
    {SYS_ioctl, 1, {{1, CONFINE_EQ, SECCOMP_IOCTL_NOTIF_ID_VALID, 0}}},
    {SYS_fcntl, 1, {{1, CONFINE_EQ, F_GETFL, 0}}},
    {SYS_fcntl, 1, {{1, CONFINE_EQ, F_ADD_SEALS, 0}}},
    {SYS_fcntl, 1, {{1, CONFINE_EQ, F_GET_SEALS, 0}}},
    {SYS_fcntl, 1, {{1, CONFINE_EQ, F_DUPFD_CLOEXEC, 0}}},
    {SYS_kill, 1, {{1, CONFINE_EQ, SIGKILL, 0}}},
    {SYS_tgkill, 1, {{2, CONFINE_EQ, SIGUSR1, 0}}}, /* kicks of stubs */
    {SYS_tgkill, 1, {{2, CONFINE_EQ, WAKEABLE_SIGNAL, 0}}}, /* our own threads */
    {SYS_tgkill, 1, {{2, CONFINE_EQ, SIGABRT, 0}}}, /* a failed assertion */
    {SYS_tgkill, 1, {{2, CONFINE_EQ, 0, 0}}},       /* whether it's there */
    {SYS_sendto, 1, {{4, CONFINE_EQ, 0, 0}}},       /* to whom it's connected, nobody else */
    {SYS_mmap, 1, {{2, CONFINE_MASKED_EQ, 0, PROT_EXEC}}},
    {SYS_mprotect, 1, {{2, CONFINE_MASKED_EQ, 0, PROT_EXEC}}},
};
/* clang-format on */

static void fail(const char *what, int error)
{
    char text[200];
    (void)snprintf(text, sizeof text, "sentry: %s: %s", what, strerrordesc_np(-error));
    log_err("%s", text);
    if (control_send(CONTROL_FD, CONTROL_EXIT, 125, 0, text, -1) != 0)
        log_err("the CLI is gone");
    exit(1);
}

static void check(const char *what, int error)
{
    if (error != 0)
        fail(what, error);
}

/* A multithreaded process pays tens of milliseconds to grow this table, a single-threaded one nothing. */
static void grow_descriptor_table(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)setrlimit(RLIMIT_NOFILE, &limit);
    int top = limit.rlim_cur > 20000 ? 19999 : (int)limit.rlim_cur - 1;
    if (dup2(0, top) == top)
        close(top);
}

/* The stubs inherited the highest oom_score_adj; from here on the sentry has its own back. */
static void protect_from_oom(struct control_fds *fds)
{
    if (fds->oom < 0)
        return;
    if (host_write_all(fds->oom, "0", 1) != 0)
        log_warn("oom_score_adj could not be lowered");
    host_close(take_fd(&fds->oom));
}

/* Capabilities, ids, dumpability: everything that needs no filter. The process has one thread. */
static void give_up_rights(uint64_t drill)
{
    if (!drill_leaves_out(drill, DRILL_HOLE_CAPS))
        check("can't drop capabilities", confine_set_caps(0));
    check("can't confine the process", confine_process());
}

static int install_filter(bool is_ptrace)
{
    static int numbers[ARRAY_COUNT(allowed)];
    size_t count = 0;
    for (size_t i = 0; i < ARRAY_COUNT(allowed); i++)
        if (allowed[i] != SYS_ptrace || is_ptrace) /* the one call that only one platform has */
            numbers[count++] = allowed[i];
    const struct confine_filter filter = {
        .allowed = numbers,
        .allowed_count = count,
        .rules = rules,
        .rule_count = ARRAY_COUNT(rules),
        .notify_nr = GOFER_CALL_NR,
    };
    int listener = -1;
    check("can't install the filter", confine_install_filter(&filter, &listener));
    return listener;
}

static void gofer_died(void *arg)
{
    (void)arg;
    session_exit(125, "the gofer ended unexpectedly: see the log");
}

static void wake_worker(void *arg, unsigned worker)
{
    platform_worker_wake(arg, worker);
}

static void child_died(void *arg)
{
    platform_reap(arg);
    const char *why = platform_failure(arg);
    if (why != NULL)
        session_exit(125, why);
}

static struct platform *start_platform(const struct control_config *config)
{
    const char *why = "";
    struct platform *p;
    const struct platform_config wanted = {
        .name = config->platform[0] != '\0' ? config->platform : NULL,
        .cpu_count = config->limits.cpu_count > 0 ? config->limits.cpu_count : 1,
        .max_processes = TASK_PID_MAX,
        .open_filter = drill_leaves_out(config->drill, DRILL_HOLE_STUB_FILTER),
    };
    int r = platform_new(&wanted, &p, &why);
    if (r != 0) {
        char text[160];
        (void)snprintf(text, sizeof text, "can't start the platform (%s)", why);
        fail(text, r);
    }
    g_sandbox.platform = p;
    g_sandbox.info = platform_info(p);
    return p;
}

/* `bailey features`: what the platform found, line by line, and the end. */
static NORETURN void describe_and_exit(struct platform *p)
{
    static char text[CONTROL_TEXT_MAX + 1];
    platform_describe(p, text, sizeof text);
    if (control_send(CONTROL_FD, CONTROL_TEXT, 0, 0, text, -1) != 0 ||
        control_send(CONTROL_FD, CONTROL_EXIT, 0, 0, NULL, -1) != 0)
        exit(1);
    exit(0);
}

static void start_scheduler(struct platform *p)
{
    const struct sched_config config = {
        .workers = g_sandbox.info->worker_count,
        .standby = g_sandbox.info->may_hand_off ? STANDBY_THREADS : 0,
        .may_hand_off = g_sandbox.info->may_hand_off,
        .ops = {.poll = task_poll, .wake_worker = wake_worker, .child_died = child_died, .arg = p},
    };
    check("can't start the scheduler", sched_init(&config));
}

int main(void)
{
    static struct control_config config;
    static struct control_fds fds;
    const int inherited[] = {0, 1, 2, CONTROL_FD};
    check("can't close inherited descriptors",
          confine_close_fds(inherited, ARRAY_COUNT(inherited)));
    grow_descriptor_table();
    check("can't read the configuration", control_recv_start(CONTROL_FD, &config, &fds));
    log_init(fds.log, (enum log_format)config.log_format, (enum log_level)config.log_level, "sentry");
    crash_init();
    sanitized_init(fds.log);
    /* One arena: further ones open /proc/sys/vm/overcommit_memory when they shrink, and only waste memory. */
    (void)mallopt(M_ARENA_MAX, 1);
    host_facts_init();

    /* Landlock forbids mounts, and stubs have to be of our Landlock domain: so this order. */
    drill_prepare(&config);
    if (!drill_leaves_out(config.drill, DRILL_HOLE_ROOT))
        check("can't enter an empty root", confine_enter_empty_root());
    int landlock_abi = 0;
    if (!drill_leaves_out(config.drill, DRILL_HOLE_LANDLOCK))
        check("can't restrict itself by Landlock", confine_landlock(&landlock_abi));
    struct platform *p = start_platform(&config);
    if (config.mode == CONTROL_MODE_FEATURES)
        describe_and_exit(p);
    protect_from_oom(&fds);

    give_up_rights(config.drill);
    tasks_init();
    boot_init(&config);
    start_scheduler(p);
    struct gofer_client *client;
    check("can't reach the gofer",
          gofer_client_new(take_fd(&fds.gofer), GOFER_BY_NOTIFICATION, gofer_died, NULL, &client));
    int listener = drill_leaves_out(config.drill, DRILL_HOLE_FILTER)
                       ? drill_open_filter()
                       : install_filter(!g_sandbox.info->may_hand_off);

    check("can't tell the CLI", control_send(CONTROL_FD, CONTROL_READY, 0, 0, NULL, listener));
    host_close(listener);
    drill_run(&config);
    check("can't listen to the CLI", session_start(&config, &fds, client));
    sched_run();
    return 0;
}
