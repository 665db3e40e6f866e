/* SPDX-License-Identifier: Apache-2.0 */
/* sentry/control: what the CLI sends is what the sentry gets; nonsense is refused. */
#include "sentry/control/control.h"

#include "base/log.h"
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int g_socks[2];

static void setup(void)
{
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, g_socks), 0);
}

static struct control_mount g_mounts[] = {
    {.kind = CONTROL_MOUNT_OVERLAY, .attach = 0, .dst = "/"},
    {.kind = CONTROL_MOUNT_BIND, .attach = 1, .read_only = true, .shared = true, .dst = "/mnt/x"},
};

static struct control_config sample(void)
{
    static char *argv[] = {"sh", "-c", "exit 7", NULL};
    static char *envp[] = {"PATH=/bin", NULL};
    return (struct control_config){
        .platform = "ptrace", .log_level = LOG_LEVEL_INFO, .argv = argv, .argc = 3,
        .envp = envp, .envc = 1, .cwd = "/", .hostname = "bailey", .user = "",
        .uid = 5, .gid = 6, .limits = {.memory_bytes = 1ull << 33, .cpu_millis = 1500, .cpu_count = 2},
        .mounts = g_mounts, .mount_count = 2, .tty_mask = 5, .winsize = {24, 80, 1, 2}};
}

Test(control_start, arrives_with_its_descriptors, .init = setup)
{
    struct control_config config = sample();
    struct control_fds fds;
    control_fds_init(&fds);
    fds.log = open("/dev/null", O_RDWR | O_CLOEXEC);
    fds.stdio[1] = fds.log;
    cr_assert_eq(control_send_start(g_socks[0], &config, &fds), 0);
    struct control_config got;
    struct control_fds got_fds;
    cr_assert_eq(control_recv_start(g_socks[1], &got, &got_fds), 0);
    cr_assert_str_eq(got.argv[2], "exit 7");
    cr_assert_null(got.argv[3]);
    cr_assert_str_eq(got.envp[0], "PATH=/bin");
    cr_assert_eq(got.limits.memory_bytes, 1ull << 33);
    cr_assert_eq(got.mounts[1].shared, true);
    cr_assert_str_eq(got.mounts[1].dst, "/mnt/x");
    cr_assert_eq(got.tty_mask, 5);
    cr_assert_eq(got.winsize.cols, 80);
    cr_assert_eq(got_fds.gofer, -1);
    cr_assert_eq(got_fds.stdio[0], -1);
    cr_assert_geq(got_fds.log, 0);
    cr_assert_geq(got_fds.stdio[1], 0);
    control_fds_close(&got_fds);
    control_config_fini(&got);
}

static int round_trip(const struct control_config *config)
{
    struct control_fds fds;
    control_fds_init(&fds);
    cr_assert_eq(control_send_start(g_socks[0], config, &fds), 0);
    struct control_config got;
    int error = control_recv_start(g_socks[1], &got, &fds);
    if (!error)
        control_config_fini(&got);
    return error;
}

Test(control_start, refuses_a_mount_path_that_is_not_clean, .init = setup)
{
    struct control_config config = sample();
    char *bad[] = {"mnt", "/a/../b", "/a//b", "/a/", "/./a", "/..", ""};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        g_mounts[1].dst = bad[i];
        cr_assert_eq(round_trip(&config), -EPROTO, "%s", bad[i]);
    }
    g_mounts[1].dst = "/..a/.b";
    cr_assert_eq(round_trip(&config), 0);
}

Test(control_start, refuses_an_empty_command, .init = setup)
{
    struct control_config config = sample();
    config.argc = 0;
    cr_assert_eq(round_trip(&config), -EPROTO);
}

Test(control_message, carries_text_and_a_descriptor, .init = setup)
{
    struct control_message message;
    int hfd = -1;
    cr_assert_eq(control_send(g_socks[0], CONTROL_EXIT, 127, 0, "sh: not found", g_socks[0]), 0);
    cr_assert_eq(control_recv(g_socks[1], &message, &hfd), 0);
    cr_assert_eq(message.kind, CONTROL_EXIT);
    cr_assert_eq(message.a, 127);
    cr_assert_str_eq(message.text, "sh: not found");
    cr_assert_geq(hfd, 0);
}

Test(control_message, refuses_a_descriptor_nobody_asked_for, .init = setup)
{
    struct control_message message;
    cr_assert_eq(control_send(g_socks[0], CONTROL_EXIT, 0, 0, NULL, g_socks[0]), 0);
    cr_assert_eq(control_recv(g_socks[1], &message, NULL), -EPROTO);
}

Test(control_message, reports_the_end_of_the_peer, .init = setup)
{
    struct control_message message;
    close(g_socks[0]);
    cr_assert_eq(control_recv(g_socks[1], &message, NULL), -EPIPE);
}

Test(control_find_user, finds_by_name_and_by_uid)
{
    static const char passwd[] = "root:x:0:0:root:/root:/bin/sh\nbroken\nx:x:-1:5::/x:\n"
                                 "me:x:1000:100::/home/me:/bin/sh";
    struct control_user user;
    cr_assert_eq(control_find_user(passwd, sizeof(passwd) - 1, "me", 0, &user), 0);
    cr_assert_eq(user.uid, 1000);
    cr_assert_eq(user.gid, 100);
    cr_assert_str_eq(user.home, "/home/me");
    cr_assert_eq(control_find_user(passwd, sizeof(passwd) - 1, NULL, 0, &user), 0);
    cr_assert_str_eq(user.home, "/root");
    cr_assert_eq(control_find_user(passwd, sizeof(passwd) - 1, "x", 0, &user), -ENOENT);
    cr_assert_eq(control_find_user(passwd, sizeof(passwd) - 1, "m", 0, &user), -ENOENT);
    cr_assert_eq(control_find_user("", 0, "root", 0, &user), -ENOENT);
}
