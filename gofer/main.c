/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bailey-gofer: the only process of a sandbox that touches host files by path. This file is its security
 * policy, top to bottom: take the configuration from the CLI, turn the host paths in it into detached
 * mounts, give everything else up, serve the sentry. How it's started: gofer/start.h.
 *
 * It trusts the CLI, and the sentry not at all.
 */
#define LOG_MODULE "gofer"
#include "base/confine.h"
#include "base/host.h"
#include "base/log.h"
#include "gofer/landlock.h"
#include "gofer/peer.h"
#include "gofer/protocol.h"
#include "gofer/server.h"
#include "gofer/start.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/seccomp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

/* #syscalls exit_group: the end
 * #syscalls brk,mmap,munmap,mremap,madvise: malloc, for handles (never executable: see the rules) */

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452 /* Linux 6.6 */
#endif
#ifndef SECCOMP_IOCTL_NOTIF_SET_FLAGS
#define SECCOMP_IOCTL_NOTIF_SET_FLAGS SECCOMP_IOW(4, __u64)
#endif
#define CAP(name) (UINT64_C(1) << (name))

static const int allowed[] = {
#define HOST_SYSCALL(name) SYS_##name,
#include "bailey_gofer_syscalls.h"
};

/* clang-format off */
static const struct confine_rule rules[] = {
    {SYS_ioctl, 1, {{1, CONFINE_EQ, SECCOMP_IOCTL_NOTIF_RECV, 0}}},
    {SYS_ioctl, 1, {{1, CONFINE_EQ, SECCOMP_IOCTL_NOTIF_SEND, 0}}},
    {SYS_ioctl, 1, {{1, CONFINE_EQ, SECCOMP_IOCTL_NOTIF_SET_FLAGS, 0}}},
    {SYS_fcntl, 1, {{1, CONFINE_EQ, F_DUPFD_CLOEXEC, 0}}},
    {SYS_mmap,  2, {{2, CONFINE_MASKED_EQ, 0, PROT_EXEC}, {3, CONFINE_MASKED_EQ, MAP_ANONYMOUS, MAP_ANONYMOUS}}},
};
/* clang-format on */

/* The capabilities that the attach points need. None for what everybody may read, and none for an ordinary
 * user, who has no more rights to files here than outside. */
static uint64_t capabilities_needed(const struct gofer_config *config)
{
    uint64_t caps = 0;
    if (!config->as_root)
        return 0;
    for (size_t i = 0; i < config->attach_count; i++) {
        const struct gofer_attach *a = &config->attaches[i];
        if (a->public_only)
            continue;
        caps |= CAP(CAP_DAC_READ_SEARCH);
        if (!a->read_only)
            caps |= CAP(CAP_DAC_OVERRIDE) | CAP(CAP_FOWNER) | CAP(CAP_CHOWN);
    }
    return caps; /* never CAP_FSETID: without it the kernel drops set-id bits on every write */
}

static int lock_down(const struct gofer_config *config, const struct gofer_server *server,
                     const char **ret_step)
{
    int error = 0;
    int landlock_abi = 0;
    *ret_step = "drop supplementary groups";
    if (config->as_root)
        error = confine_drop_groups();
    if (!error) {
        *ret_step = "enter an empty root";
        error = confine_enter_empty_root();
    }
    if (!error && config->as_root) {
        *ret_step = "take a uid of its own";
        error = confine_set_ids(config->own_uid, config->own_uid, true);
    }
    if (!error) {
        *ret_step = "drop capabilities";
        error = confine_set_caps(capabilities_needed(config));
    }
    if (!error) {
        *ret_step = "confine the process";
        error = confine_process();
    }
    if (!error) {
        *ret_step = "restrict itself by Landlock";
        error = gofer_landlock(server, &landlock_abi);
    }
    if (!error) {
        *ret_step = "install the filter";
        const struct confine_filter filter = {.allowed = allowed,
                                              .allowed_count = ARRAY_COUNT(allowed),
                                              .rules = rules,
                                              .rule_count = ARRAY_COUNT(rules),
                                              .notify_nr = -1};
        error = confine_install_filter(&filter, NULL);
    }
    log_dbg("landlock version %d", landlock_abi);
    return error;
}

static NORETURN void fail(const char *what, int error)
{
    char text[GOFER_TEXT_MAX + 1];
    if (error)
        (void)snprintf(text, sizeof(text), "%s: %s", what, strerror(-error));
    else
        (void)snprintf(text, sizeof(text), "%s", what);
    log_err("%s", text);
    if (gofer_send_failed(GOFER_START_FD, text))
        log_err("the CLI is gone");
    exit(1);
}

int main(void)
{
    /* Nothing that was inherited by mistake stays open. */
    const int inherited[] = {0, 1, 2, GOFER_START_FD};
    int error = confine_close_fds(inherited, ARRAY_COUNT(inherited));
    if (error)
        fail("gofer: can't close inherited descriptors", error);

    struct gofer_config config;
    struct gofer_start_fds fds;
    error = gofer_recv_start(GOFER_START_FD, &config, &fds);
    if (error)
        fail("gofer: can't read its configuration", error);
    log_init(fds.log, (enum log_format)config.log_format, (enum log_level)config.log_level, "gofer");

    struct gofer_server *server;
    char *why;
    error = gofer_server_new(&config, &server, &why);
    if (error)
        fail(why ? why : "gofer: can't attach", why ? 0 : error);
    struct gofer_peer *peer;
    error = gofer_peer_new(server, fds.channel, &peer);
    if (error)
        fail("gofer: can't make the ring", error);

    const char *step;
    error = lock_down(&config, server, &step);
    if (error) {
        char what[96];
        (void)snprintf(what, sizeof(what), "gofer: can't %s", step);
        fail(what, error);
    }
    gofer_config_fini(&config);
    error = gofer_send_ready(GOFER_START_FD);
    if (!error)
        error = gofer_peer_loop(peer, GOFER_START_FD);
    if (error)
        log_err("ended: error %d", -error);
    /* No destructors: there is nothing to tidy up that the kernel doesn't. */
    (void)host_call1(SYS_exit_group, error ? 1 : 0);
    return 1;
}
