/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conversation with the CLI (sentry/control/control.h). Its messages arrive on the event thread;
 * what may sleep is done by fibers of this file. EOF means that the CLI is gone: the sandbox ends.
 */
#define LOG_MODULE "session"
#include "base/host.h"
#include "base/log.h"
#include "sentry/boot/boot.h"
#include "sentry/fs/pty/pty.h"
#include "sentry/sched/sched.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/wait.h>

/* Everything here is set before sched_run() or touched by the event thread alone, but for exit_sent. */
static struct {
    const struct control_config *config;
    struct control_fds *fds;
    struct gofer_client *client;
    struct event_source source;
    struct fiber boot_fiber, exit_fiber;
    _Atomic bool exit_sent;
    _Atomic int exit_status;
    bool has_started;
    char text[CONTROL_TEXT_MAX + 1];
} g_session;

static void send_exit(int status, const char *text)
{
    if (atomic_exchange(&g_session.exit_sent, true))
        return;
    if (control_send(CONTROL_FD, CONTROL_EXIT, (uint64_t)status, 0, text, -1) != 0)
        log_warn("the CLI did not take the exit status %d", status);
}

void session_exit(int status, const char *text)
{
    send_exit(status, text);
    /* #syscalls exit_group: the sandbox's end; as pid 1 it takes every stub along */
    host_call1(SYS_exit_group, 0);
}

/* ---- the first process's end --------------------------------------------------------------------- */

static void exit_entry(void *arg)
{
    (void)arg;
    console_drain();
    session_exit(g_session.exit_status, "");
}

static void first_exited(struct thread_group *g, int wait_status)
{
    (void)g;
    int status = WIFSIGNALED(wait_status) ? 128 + WTERMSIG(wait_status) : WEXITSTATUS(wait_status);
    static _Atomic bool once;
    if (atomic_exchange(&once, true))
        return;
    g_session.exit_status = status;
    fiber_start(&g_session.exit_fiber, exit_entry, NULL);
}

static void first_stopped(int signo)
{
    if (control_send(CONTROL_FD, CONTROL_STOPPED, (uint64_t)signo, 0, NULL, -1) != 0)
        log_warn("the CLI did not take the stop");
}

/* ---- boot --------------------------------------------------------------------------------------- */

static void boot_entry(void *arg)
{
    (void)arg;
    int status = boot_run(g_session.config, g_session.fds, g_session.client, g_session.text);
    if (status != 0)
        session_exit(status, g_session.text);
}

/* ---- messages ----------------------------------------------------------------------------------- */

static void forward_signal(int signo)
{
    struct thread_group *g = boot_first_group();
    struct linux_siginfo info;
    if (g == NULL || signo < 1 || signo > 31)
        return;
    signal_info_kernel(&info, signo, SI_USER);
    int pgid = console_foreground_pgid();
    if ((signo == SIGINT || signo == SIGQUIT) && pgid != 0)
        (void)signal_send_pgrp(pgid, &info);
    else
        (void)signal_send_group(g, &info);
}

static void continue_sandbox(void)
{
    struct linux_siginfo info;
    signal_info_kernel(&info, SIGCONT, SI_USER);
    int pgid = console_foreground_pgid();
    if (pgid != 0)
        (void)signal_send_pgrp(pgid, &info);
    struct thread_group *g = boot_first_group();
    if (g != NULL)
        (void)signal_send_group(g, &info);
}

static void handle_message(const struct control_message *m)
{
    switch (m->kind) {
    case CONTROL_GO:
        if (!g_session.has_started) {
            g_session.has_started = true;
            fiber_start(&g_session.boot_fiber, boot_entry, NULL);
        }
        break;
    case CONTROL_SIGNAL:
        forward_signal((int)m->a);
        break;
    case CONTROL_WINSIZE:
        console_set_winsize((uint16_t)(m->a >> 16), (uint16_t)m->a, (uint16_t)(m->b >> 16),
                            (uint16_t)m->b);
        break;
    case CONTROL_HANGUP:
        console_hangup();
        forward_signal(SIGHUP);
        break;
    case CONTROL_CONTINUE:
        continue_sandbox();
        break;
    default:
        log_err("unexpected message %u from the CLI", m->kind);
        session_exit(125, "the sentry was sent a message that it does not know");
    }
}

/* #syscalls poll: whether the CLI sent another message */
static bool has_message(void)
{
    struct pollfd p = {.fd = CONTROL_FD, .events = POLLIN};
    return host_call3(SYS_poll, &p, 1, 0) > 0;
}

static void control_ready(struct event_source *source, uint32_t events)
{
    static struct control_message message; /* event thread only */
    (void)source, (void)events;
    while (has_message()) { /* the event thread may not sleep in a receive */
        int r = control_recv(CONTROL_FD, &message, NULL);
        if (r == -EAGAIN)
            return;
        if (r != 0) {
            log_info("the CLI is gone: %d", r);
            session_exit(125, "");
        }
        handle_message(&message);
    }
}

int session_start(const struct control_config *config, struct control_fds *fds,
                  struct gofer_client *client)
{
    g_session.config = config;
    g_session.fds = fds;
    g_session.client = client;
    fiber_init(&g_session.boot_fiber, 0, "boot");
    fiber_init(&g_session.exit_fiber, 0, "exit");
    g_first_exit_hook = first_exited;
    if (config->tty_mask != 0)
        g_first_stop_hook = first_stopped;
    g_session.source =
        (struct event_source){.hfd = CONTROL_FD, .ready = control_ready, .interest = EPOLLIN | EPOLLHUP};
    return event_source_add(&g_session.source);
}
