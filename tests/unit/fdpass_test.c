/* SPDX-License-Identifier: Apache-2.0 */
/* base/fdpass: descriptors arrive, and are refused without a leak where none is wanted. */
#include "base/fdpass.h"

#include <criterion/criterion.h>
#include <dirent.h>
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

static size_t open_count(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

Test(fdpass, passes_bytes_and_descriptors, .init = setup)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    cr_assert_eq(fdpass_send(g_socks[0], "hi", 2, ends, 2), 0);
    char bytes[8];
    int got[FDPASS_MAX];
    size_t count = 99;
    cr_assert_eq(fdpass_recv(g_socks[1], bytes, sizeof(bytes), got, FDPASS_MAX, &count), 2);
    cr_assert_eq(count, 2);
    cr_assert_eq(fcntl(got[0], F_GETFD), FD_CLOEXEC);
    cr_assert_eq(write(got[1], "x", 1), 1);
    cr_assert_eq(read(ends[0], bytes, 1), 1);
}

Test(fdpass, refuses_descriptors_and_closes_them, .init = setup)
{
    int ends[2];
    cr_assert_eq(pipe(ends), 0);
    size_t before = open_count();
    cr_assert_eq(fdpass_send(g_socks[0], "hi", 2, ends, 2), 0);
    char bytes[8];
    cr_assert_eq(fdpass_recv(g_socks[1], bytes, sizeof(bytes), NULL, 0, NULL), -EPROTO);
    cr_assert_eq(open_count(), before);
}

Test(fdpass, refuses_more_descriptors_than_the_buffer_holds, .init = setup)
{
    int many[FDPASS_MAX + 3];
    char control[CMSG_SPACE(sizeof(many))];
    memset(control, 0, sizeof(control));
    for (size_t i = 0; i < FDPASS_MAX + 3; i++)
        many[i] = g_socks[0];
    struct iovec iov = {.iov_base = "x", .iov_len = 1};
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                             .msg_controllen = sizeof(control)};
    struct cmsghdr *c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(many));
    memcpy(CMSG_DATA(c), many, sizeof(many));
    size_t before = open_count();
    cr_assert_eq(sendmsg(g_socks[0], &message, 0), 1);
    char bytes[8];
    int got[FDPASS_MAX];
    cr_assert_eq(fdpass_recv(g_socks[1], bytes, sizeof(bytes), got, FDPASS_MAX, NULL), -EPROTO);
    cr_assert_eq(open_count(), before);
}

Test(fdpass, reports_a_message_that_does_not_fit, .init = setup)
{
    cr_assert_eq(fdpass_send(g_socks[0], "0123456789", 10, NULL, 0), 0);
    char bytes[4];
    cr_assert_eq(fdpass_recv(g_socks[1], bytes, sizeof(bytes), NULL, 0, NULL), -EMSGSIZE);
}

Test(fdpass, reports_a_gone_peer, .init = setup)
{
    close(g_socks[0]);
    char bytes[4];
    cr_assert_eq(fdpass_recv(g_socks[1], bytes, sizeof(bytes), NULL, 0, NULL), 0);
    cr_assert_eq(fdpass_send(g_socks[1], "x", 1, NULL, 0), -EPIPE);
}
