/* SPDX-License-Identifier: Apache-2.0 */
/* Pipes and fifos: capacity, atomic writes, ends, packets, splice, tee, vmsplice. */
#include "show.h"
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static char large[1 << 17];

static int events(int fd)
{
    struct pollfd poller = {fd, POLLIN | POLLOUT, 0};
    poll(&poller, 1, 0);
    return poller.revents;
}

static int readable(int fd)
{
    int n = -1;
    return ioctl(fd, FIONREAD, &n) < 0 ? -1 : n;
}

static long fill(int fd, size_t chunk)
{
    long total = 0, n;
    while ((n = write(fd, large, chunk)) > 0)
        total += n;
    return total;
}

static void basics(void)
{
    int p[2];
    char bytes[16] = "";
    struct stat st;
    OK(pipe2(p, O_NONBLOCK | O_CLOEXEC));
    VAL(fcntl(p[0], F_GETFD));
    printf("flags %o %o\n", fcntl(p[0], F_GETFL) & ~O_LARGEFILE, fcntl(p[1], F_GETFL) & ~O_LARGEFILE);
    OK(fstat(p[0], &st));
    printf("fifo %d, mode %o, size %ld\n", S_ISFIFO(st.st_mode), st.st_mode & 0777, (long)st.st_size);
    VAL(events(p[0]));
    VAL(events(p[1]));
    OK(read(p[0], bytes, 1));
    OK(read(p[1], bytes, 1));
    OK(write(p[0], bytes, 1));
    VAL(write(p[1], "hello", 5));
    VAL(readable(p[0]));
    VAL(events(p[0]));
    VAL(read(p[0], bytes, 2));
    VAL(read(p[0], bytes, 0));
    VAL(read(p[0], bytes, 16));
    VAL(write(p[1], "", 0));
    OK(lseek(p[0], 0, SEEK_CUR));
    OK(pread(p[0], bytes, 1, 0));
    OK(ftruncate(p[1], 0));
    OK(fsync(p[1]));
    OK(pipe2(p, 0x4000000));
    OK(syscall(SYS_pipe2, 8, 0));
}

static void capacity(void)
{
    int p[2];
    OK(pipe2(p, O_NONBLOCK));
    VAL(fcntl(p[0], F_GETPIPE_SZ));
    VAL(fill(p[1], 4096));
    VAL(events(p[1]));
    VAL(readable(p[0]));
    VAL(read(p[0], large, 100));
    VAL(events(p[1])); /* writable again only when a page is free */
    OK(write(p[1], large, 100));
    VAL(read(p[0], large, 3996));
    VAL(events(p[1]));
    OK(fcntl(p[1], F_SETPIPE_SZ, 4096));
    VAL(fcntl(p[1], F_SETPIPE_SZ, 131072));
    VAL(fill(p[1], 4096));
    while (read(p[0], large, sizeof(large)) > 0)
        continue;
    VAL(fcntl(p[1], F_SETPIPE_SZ, 5000));
    VAL(fcntl(p[1], F_SETPIPE_SZ, 1));
    OK(fcntl(p[1], F_SETPIPE_SZ, -1));
    VAL(fill(p[1], 1000)); /* appended to the same page */
    while (read(p[0], large, sizeof(large)) > 0)
        continue;
    VAL(write(p[1], large, sizeof(large))); /* larger than the pipe: what fits */
    OK(write(p[1], large, 4096));
    OK(fcntl(0, F_GETPIPE_SZ));
}

static void ends(void)
{
    int p[2];
    char byte;
    OK(pipe(p));
    VAL(write(p[1], "x", 1));
    close(p[1]);
    VAL(events(p[0]));
    VAL(read(p[0], &byte, 1));
    VAL(events(p[0]));
    VAL(read(p[0], &byte, 1));
    close(p[0]);
    OK(pipe(p));
    close(p[0]);
    VAL(events(p[1]));
    signal(SIGPIPE, SIG_IGN);
    OK(write(p[1], "x", 1));
    VAL(write(p[1], "", 0));
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGPIPE, SIG_DFL);
        _exit(write(p[1], "x", 1) < 0 ? 1 : 0);
    }
    reap("writer", pid);
    close(p[1]);
}

static void blocking(void)
{
    int p[2], back[2];
    static char got[(1 << 17) + 5000];
    size_t total = 0;
    OK(pipe(p));
    OK(pipe(back));
    for (size_t i = 0; i < sizeof(large); i++)
        large[i] = (char)(i * 7);
    pid_t pid = fork();
    if (pid == 0) {
        close(p[0]);
        _exit(write(p[1], large, sizeof(large)) == (ssize_t)sizeof(large) ? 0 : 1);
    }
    close(p[1]);
    for (ssize_t n; (n = read(p[0], got + total, 5000)) > 0;)
        total += (size_t)n;
    VAL(total);
    YES(memcmp(large, got, sizeof(large)) == 0);
    reap("large write", pid);
    OK(pipe(p));
    pid = fork();
    if (pid == 0) {
        char byte;
        long n = read(p[0], &byte, 1);
        _exit(n == 1 && byte == 'q' ? 3 : 1);
    }
    sleep_ms(20);
    VAL(write(p[1], "q", 1));
    reap("reader", pid);
    pid = fork();
    if (pid == 0) {
        char bytes[2];
        close(p[1]);
        _exit((int)read(p[0], bytes, 2) + 5);
    }
    sleep_ms(20);
    close(p[1]);
    reap("reader at the end", pid);
    /* Writes up to PIPE_BUF don't mix. */
    OK(pipe(p));
    for (int i = 0; i < 4; i++) {
        if (fork() == 0) {
            char block[512];
            memset(block, 'a' + i, sizeof(block));
            for (int k = 0; k < 100; k++) {
                if (write(p[1], block, sizeof(block)) != sizeof(block))
                    _exit(1);
            }
            _exit(0);
        }
    }
    close(p[1]);
    bool is_whole = true;
    char block[512];
    long blocks = 0;
    while (read(p[0], block, sizeof(block)) == (ssize_t)sizeof(block)) {
        for (size_t i = 1; i < sizeof(block); i++)
            is_whole = is_whole && block[i] == block[0];
        blocks++;
    }
    YES(is_whole);
    VAL(blocks);
    while (wait(NULL) > 0)
        continue;
}

static void packets(void)
{
    int p[2];
    char bytes[16];
    OK(pipe2(p, O_DIRECT | O_NONBLOCK));
    VAL(write(p[1], "one", 3));
    VAL(write(p[1], "second", 6));
    VAL(read(p[0], bytes, 16));
    VAL(read(p[0], bytes, 2)); /* the rest of the packet is gone */
    OK(read(p[0], bytes, 16));
    struct iovec iov[2] = {{(char[]){"ab"}, 2}, {(char[]){"cde"}, 3}};
    OK(pipe(p));
    VAL(writev(p[1], iov, 2));
    struct iovec in[2] = {{bytes, 1}, {bytes + 8, 8}};
    VAL(readv(p[0], in, 2));
    YES(bytes[0] == 'a' && memcmp(bytes + 8, "bcde", 4) == 0);
    OK(syscall(SYS_writev, p[1], iov, -1));
    OK(syscall(SYS_writev, p[1], iov, IOV_MAX + 1));
    iov[1].iov_len = SIZE_MAX;
    OK(writev(p[1], iov, 2));
}

static void *open_writer(void *unused)
{
    int fd = open("fifo", O_WRONLY);
    long n = write(fd, "through", 7);
    close(fd);
    (void)unused;
    return (void *)(intptr_t)n;
}

static void fifos(void)
{
    OK(mkfifo("fifo", 0640));
    OK(mkfifo("fifo", 0640));
    OK(open("fifo", O_WRONLY | O_NONBLOCK));
    int reader = open("fifo", O_RDONLY | O_NONBLOCK);
    char bytes[16] = "";
    VAL(read(reader, bytes, 1)); /* no writer yet: end of file */
    VAL(events(reader));
    int writer = open("fifo", O_WRONLY | O_NONBLOCK);
    OK(read(reader, bytes, 1));
    VAL(write(writer, "xy", 2));
    VAL(read(reader, bytes, 16));
    close(writer);
    VAL(events(reader));
    VAL(read(reader, bytes, 16));
    close(reader);
    int both = open("fifo", O_RDWR);
    VAL(write(both, "z", 1));
    VAL(read(both, bytes, 1));
    close(both);
    pthread_t thread;
    pthread_create(&thread, NULL, open_writer, NULL);
    reader = open("fifo", O_RDONLY);
    VAL(read(reader, bytes, 16));
    pthread_join(thread, NULL);
    VAL(read(reader, bytes, 16));
    struct stat st;
    OK(stat("fifo", &st));
    printf("mode %o\n", st.st_mode);
}

static void splicing(void)
{
    int p[2], q[2], in = make_file("in", "0123456789"), out = make_file("out", "");
    char bytes[16] = "";
    loff_t offset = 3;
    OK(pipe(p));
    OK(pipe(q));
    VAL(splice(in, &offset, p[1], NULL, 4, 0));
    VAL(offset);
    VAL(tee(p[0], q[1], 2, 0));
    VAL(readable(p[0]));
    VAL(readable(q[0]));
    VAL(splice(p[0], NULL, out, NULL, 100, SPLICE_F_MOVE));
    VAL(pread(out, bytes, 16, 0));
    printf("%s\n", bytes);
    VAL(lseek(out, 0, SEEK_CUR));
    VAL(splice(q[0], NULL, p[1], NULL, 1, 0));
    VAL(readable(q[0]));
    OK(splice(in, NULL, out, NULL, 1, 0));
    OK(splice(p[0], &offset, out, NULL, 1, 0));
    OK(splice(p[0], NULL, p[1], NULL, 1, 0));
    OK(splice(in, &offset, p[1], NULL, 1, 0x100));
    OK(splice(999, NULL, p[1], NULL, 1, 0));
    OK(splice(p[1], NULL, out, NULL, 1, 0));
    OK(tee(in, p[1], 1, 0));
    VAL(splice(p[0], NULL, out, NULL, 0, 0));
    VAL(splice(p[0], NULL, out, NULL, 1, 0));
    OK(splice(p[0], NULL, out, NULL, 1, SPLICE_F_NONBLOCK));
    offset = 100;
    VAL(splice(in, &offset, p[1], NULL, 10, 0)); /* beyond the end */
    int append = open("out", O_WRONLY | O_APPEND);
    VAL(write(p[1], "a", 1));
    OK(splice(p[0], NULL, append, NULL, 1, 0));
    struct iovec iov[2] = {{(char[]){"vm"}, 2}, {(char[]){"splice"}, 6}};
    VAL(vmsplice(p[1], iov, 2, 0));
    memset(bytes, 0, sizeof(bytes));
    VAL(read(p[0], bytes, 16));
    printf("%s\n", bytes);
    OK(vmsplice(in, iov, 2, 0));
}

int main(void)
{
    start_in_dir();
    basics();
    capacity();
    ends();
    blocking();
    packets();
    fifos();
    splicing();
    return 0;
}
