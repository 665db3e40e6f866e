/* SPDX-License-Identifier: Apache-2.0 */
/* Unix socketpairs: stream, datagram, seqpacket; descriptors and credentials; shutdown, options. */
#include "show.h"
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

static int s[2];

static void new_pair(int type)
{
    if (socketpair(AF_UNIX, type, 0, s) < 0)
        printf("socketpair: %s\n", strerrorname_np(errno));
}

static int events(int fd)
{
    struct pollfd poller = {fd, POLLIN | POLLOUT | POLLRDHUP | POLLPRI, 0};
    poll(&poller, 1, 0);
    return poller.revents;
}

static void streams(void)
{
    char bytes[64] = "";
    int n = 0;
    new_pair(SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC);
    VAL(fcntl(s[0], F_GETFD));
    VAL((fcntl(s[1], F_GETFL) & O_NONBLOCK) != 0);
    VAL(events(s[0]));
    OK(read(s[0], bytes, 1));
    VAL(write(s[0], "hello", 5));
    VAL(send(s[0], " world", 6, 0));
    OK(ioctl(s[1], FIONREAD, &n));
    VAL(n);
    VAL(recv(s[1], bytes, 5, MSG_PEEK));
    VAL(recv(s[1], bytes, 2, 0));
    VAL(recv(s[1], bytes, 64, 0)); /* both writes in one */
    OK(recv(s[1], bytes, 64, 0));
    VAL(send(s[0], "", 0, 0));
    OK(recv(s[1], bytes, 1, 0));
    OK(lseek(s[0], 0, SEEK_CUR));
    VAL(write(s[1], "back", 4));
    VAL(events(s[0]));
    OK(shutdown(s[0], SHUT_WR));
    OK(write(s[0], "x", 1) < 0 && errno == EPIPE ? 0 : -1);
    VAL(read(s[0], bytes, 64));
    VAL(read(s[1], bytes, 64));
    VAL(events(s[1]));
    VAL(events(s[0]));
    VAL(write(s[1], "more", 4));
    OK(shutdown(s[0], SHUT_RD));
    OK(send(s[1], "x", 1, MSG_NOSIGNAL));
    VAL(events(s[0]));
    OK(shutdown(s[0], 99));
    close(s[1]);
    VAL(events(s[0]));
    close(s[0]);
    new_pair(SOCK_STREAM);
    close(s[1]);
    OK(send(s[0], "x", 1, MSG_NOSIGNAL));
    VAL(read(s[0], bytes, 1));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        _exit(write(s[0], "x", 1) < 0 ? 1 : 0);
    }
    reap("writer", pid);
    close(s[0]);
    new_pair(SOCK_STREAM | SOCK_NONBLOCK);
    VAL(write(s[0], "unread", 6));
    close(s[1]); /* with data that nobody read */
    OK(read(s[0], bytes, 1));
    VAL(read(s[0], bytes, 1));
    close(s[0]);
}

static void full(void)
{
    static char block[4096];
    long total = 0, n, got = 0;
    new_pair(SOCK_STREAM | SOCK_NONBLOCK);
    while ((n = write(s[0], block, sizeof(block))) > 0)
        total += n;
    OK(n);
    YES(total >= 65536);
    VAL(events(s[0]));
    while ((n = read(s[1], block, sizeof(block))) > 0)
        got += n;
    YES(got == total);
    VAL(events(s[0]));
    close(s[0]), close(s[1]);
    new_pair(SOCK_STREAM);
    pid_t pid = fork();
    if (pid == 0) {
        static char large[1 << 20];
        close(s[1]);
        _exit(write(s[0], large, sizeof(large)) == (ssize_t)sizeof(large) ? 0 : 1);
    }
    close(s[0]);
    got = 0;
    while ((n = read(s[1], block, sizeof(block))) > 0)
        got += n;
    VAL(got);
    reap("large write", pid);
    close(s[1]);
}

static void messages(int type, const char *name)
{
    char bytes[64] = "";
    struct iovec iov = {bytes, 4};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    printf("%s\n", name);
    new_pair(type | SOCK_NONBLOCK);
    VAL(write(s[0], "first", 5));
    VAL(write(s[0], "second", 6));
    VAL(write(s[0], "", 0));
    VAL(recv(s[1], bytes, 64, MSG_PEEK));
    VAL(read(s[1], bytes, 64));
    VAL(recvmsg(s[1], &msg, 0));
    printf("flags %x\n", msg.msg_flags & ~MSG_CMSG_CLOEXEC);
    VAL(read(s[1], bytes, 64));
    OK(read(s[1], bytes, 64));
    VAL(write(s[0], "truncated", 9));
    VAL(recv(s[1], bytes, 3, MSG_TRUNC));
    VAL(write(s[0], "x", 1));
    VAL(events(s[1]));
    static char huge[1 << 20];
    OK(send(s[0], huge, sizeof(huge), MSG_NOSIGNAL));
    close(s[0]);
    VAL(read(s[1], bytes, 64));
    VAL(events(s[1]));
    OK(send(s[1], "x", 1, MSG_NOSIGNAL));
    close(s[1]);
}

static ssize_t send_fds(int to, const char *text, const int *fds, size_t count)
{
    char control[CMSG_SPACE(sizeof(int) * 300)] = {0};
    struct iovec iov = {(char *)(uintptr_t)text, strlen(text)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control,
                         .msg_controllen = CMSG_SPACE(sizeof(int) * count)};
    struct cmsghdr *header = CMSG_FIRSTHDR(&msg);
    *header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS, .cmsg_len = CMSG_LEN(sizeof(int) * count)};
    memcpy(CMSG_DATA(header), fds, sizeof(int) * count);
    return sendmsg(to, &msg, MSG_NOSIGNAL);
}

/* Receives and prints what kind of control message came; the first descriptor is returned. */
static int receive(int from, size_t control_size, int flags)
{
    char control[2048] = {0}, bytes[64] = "";
    struct iovec iov = {bytes, sizeof(bytes) - 1};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = control_size};
    ssize_t n = recvmsg(from, &msg, flags);
    printf("received %zd \"%s\" flags %x", n, bytes, n < 0 ? 0 : msg.msg_flags);
    int fd = -1;
    if (n < 0)
        msg.msg_controllen = 0;
    for (struct cmsghdr *h = CMSG_FIRSTHDR(&msg); h; h = CMSG_NXTHDR(&msg, h)) {
        if (h->cmsg_type == SCM_RIGHTS) {
            printf(", %zu fds", (h->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(&fd, CMSG_DATA(h), sizeof(fd));
        }
        if (h->cmsg_type == SCM_CREDENTIALS) {
            struct ucred cred;
            memcpy(&cred, CMSG_DATA(h), sizeof(cred));
            printf(", pid %d uid %d gid %d", cred.pid == getpid(), cred.uid, cred.gid);
        }
    }
    printf("\n");
    return fd;
}

static void descriptors(void)
{
    int fds[300], file = make_file("f", "contents"), p[2];
    char bytes[16] = "";
    new_pair(SOCK_STREAM | SOCK_NONBLOCK);
    OK(pipe(p));
    fds[0] = file, fds[1] = p[1];
    VAL(send_fds(s[0], "two", fds, 2));
    close(p[1]);
    int got = receive(s[1], 1024, MSG_CMSG_CLOEXEC);
    VAL(fcntl(got, F_GETFD));
    VAL(pread(got, bytes, 16, 0));
    VAL(lseek(got, 0, SEEK_CUR)); /* the same description */
    YES(got != file);
    VAL(write(got + 1, "x", 1));
    VAL(send_fds(s[0], "A", fds, 1));
    VAL(write(s[0], "B", 1));
    VAL(send_fds(s[0], "C", fds, 1));
    receive(s[1], 1024, 0); /* stops at the next descriptors */
    receive(s[1], 1024, 0);
    VAL(send_fds(s[0], "none wanted", fds, 1));
    receive(s[1], 0, 0);
    for (int i = 0; i < 300; i++)
        fds[i] = file;
    VAL(send_fds(s[0], "few wanted", fds, 10));
    receive(s[1], CMSG_SPACE(sizeof(int) * 2), 0);
    OK(send_fds(s[0], "many", fds, 254));
    VAL(send_fds(s[0], "many", fds, 253));
    receive(s[1], 2048, 0);
    for (int fd = 3; fd < 400; fd++) {
        if (fd != s[0] && fd != s[1] && fd != file)
            close(fd);
    }
    fds[0] = 999;
    OK(send_fds(s[0], "bad", fds, 1));
    fds[0] = s[1]; /* a socket in its own queue */
    VAL(send_fds(s[0], "itself", fds, 1));
    close(receive(s[1], 1024, 0));
    VAL(send_fds(s[0], "closed", (int[]){file}, 1));
    close(file);
    got = receive(s[1], 1024, 0);
    VAL(pread(got, bytes, 16, 0));
    int on = 1;
    OK(setsockopt(s[1], SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)));
    VAL(write(s[0], "cred", 4));
    receive(s[1], 1024, 0);
    struct ucred cred;
    socklen_t size = sizeof(cred);
    OK(getsockopt(s[0], SOL_SOCKET, SO_PEERCRED, &cred, &size));
    YES(cred.pid == getpid() && cred.uid == geteuid() && cred.gid == getegid());
    close(s[0]), close(s[1]), close(got);
}

static void options(void)
{
    int value = 0;
    socklen_t size = sizeof(value);
    struct sockaddr_un address;
    new_pair(SOCK_STREAM);
    OK(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &value, &size));
    VAL(value == SOCK_STREAM);
    OK(getsockopt(s[0], SOL_SOCKET, SO_DOMAIN, &value, &size));
    VAL(value == AF_UNIX);
    OK(getsockopt(s[0], SOL_SOCKET, SO_ERROR, &value, &size));
    VAL(value);
    OK(getsockopt(s[0], SOL_SOCKET, SO_ACCEPTCONN, &value, &size));
    VAL(value);
    size = 1;
    OK(getsockopt(s[0], SOL_SOCKET, SO_TYPE, &value, &size));
    VAL(size);
    OK(getsockopt(s[0], SOL_SOCKET, 9999, &value, &size));
    size = sizeof(address);
    OK(getsockname(s[0], (struct sockaddr *)&address, &size));
    printf("family %d, size %u\n", address.sun_family, size);
    size = sizeof(address);
    OK(getpeername(s[0], (struct sockaddr *)&address, &size));
    struct timeval timeout = {0, 20000};
    OK(setsockopt(s[0], SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout)));
    char byte;
    long before = now_ms();
    OK(recv(s[0], &byte, 1, 0));
    YES(now_ms() - before >= 19);
    OK(recv(s[0], &byte, 1, MSG_DONTWAIT));
    pid_t pid = fork();
    if (pid == 0) {
        sleep_ms(20);
        _exit(write(s[0], "ab", 2) == 2 && (sleep_ms(20), write(s[0], "cd", 2)) == 2 ? 0 : 1);
    }
    char bytes[4];
    VAL(recv(s[1], bytes, 4, MSG_WAITALL));
    reap("writer", pid);
    OK(accept(s[0], NULL, NULL));
    OK(listen(s[0], 1));
    OK(socketpair(AF_UNIX, 99, 0, s));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 77, s));
    OK(syscall(SYS_socketpair, AF_UNIX, SOCK_STREAM, 0, 8));
    OK(socketpair(999, SOCK_STREAM, 0, s));
    OK(send(0, "x", 1, 0));
    OK(send(999, "x", 1, 0));
    struct mmsghdr many[2] = {0};
    struct iovec iov[2] = {{(char[]){"1"}, 1}, {(char[]){"22"}, 2}};
    new_pair(SOCK_DGRAM);
    many[0].msg_hdr.msg_iov = &iov[0], many[0].msg_hdr.msg_iovlen = 1;
    many[1].msg_hdr.msg_iov = &iov[1], many[1].msg_hdr.msg_iovlen = 1;
    VAL(sendmmsg(s[0], many, 2, 0));
    VAL(recvmmsg(s[1], many, 2, 0, NULL));
    printf("%u %u\n", many[0].msg_len, many[1].msg_len);
}

int main(void)
{
    start_in_dir();
    signal(SIGPIPE, SIG_IGN);
    streams();
    full();
    messages(SOCK_DGRAM, "datagrams");
    messages(SOCK_SEQPACKET, "seqpacket");
    descriptors();
    options();
    return 0;
}
