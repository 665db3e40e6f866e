/* SPDX-License-Identifier: Apache-2.0 */
/* Sparse files and copies in the kernel: SEEK_DATA, fallocate, sendfile, copy_file_range. */
#include "show.h"
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>

#ifndef FICLONE
#define FICLONE 0x40049409
#endif

static void show_file(const char *what, int fd)
{
    char bytes[64];
    ssize_t n = pread(fd, bytes, sizeof(bytes), 0);
    printf("%s: ", what);
    for (ssize_t i = 0; i < n; i++)
        putchar(bytes[i] ? bytes[i] : '.');
    printf("\n");
}

static void holes(void)
{
    int fd = make_file("sparse", "");
    off_t mib = 1 << 20;
    OK(lseek(fd, 0, SEEK_DATA));
    OK(lseek(fd, 0, SEEK_HOLE));
    OK(ftruncate(fd, 4 * mib));
    OK(lseek(fd, 0, SEEK_DATA));
    VAL(lseek(fd, 0, SEEK_HOLE));
    VAL(pwrite(fd, "x", 1, 2 * mib));
    VAL(lseek(fd, 0, SEEK_DATA));
    VAL(lseek(fd, 2 * mib, SEEK_DATA));
    YES(lseek(fd, 2 * mib, SEEK_HOLE) > 2 * mib);
    OK(lseek(fd, 3 * mib, SEEK_DATA));
    VAL(lseek(fd, 3 * mib + 5, SEEK_HOLE));
    OK(lseek(fd, 4 * mib, SEEK_HOLE));
    OK(lseek(fd, -1, SEEK_DATA));
    char byte = 1;
    VAL(pread(fd, &byte, 1, mib));
    VAL(byte);
    struct stat st;
    fstat(fd, &st);
    YES(st.st_size == 4 * mib && st.st_blocks * 512 < mib);
}

static void allocate(void)
{
    int fd = make_file("alloc", "0123456789");
    struct stat st;
    OK(fallocate(fd, 0, 0, 20));
    fstat(fd, &st);
    VAL(st.st_size);
    OK(fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, 100000));
    fstat(fd, &st);
    VAL(st.st_size);
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 2, 5));
    show_file("punched", fd);
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE, 2, 5));
    OK(fallocate(fd, 0, -1, 5));
    OK(fallocate(fd, 0, 0, 0));
    OK(fallocate(fd, 0, 5, INT64_MAX));
    OK(fallocate(open("alloc", O_RDONLY), 0, 0, 10));
    OK(fallocate(open(".", O_RDONLY), 0, 0, 10));
    int p[2];
    OK(pipe(p));
    OK(fallocate(p[1], 0, 0, 10));
    ERR(posix_fallocate(fd, 0, 30));
    fstat(fd, &st);
    VAL(st.st_size);
}

static void send_files(void)
{
    int in = make_file("in", "0123456789"), out = make_file("out", ""), p[2], s[2];
    off_t offset = 4;
    VAL(sendfile(out, in, &offset, 3));
    VAL(offset);
    VAL(lseek(in, 0, SEEK_CUR)); /* where make_file left it */
    lseek(in, 0, SEEK_SET);
    VAL(sendfile(out, in, NULL, 2));
    VAL(lseek(in, 0, SEEK_CUR));
    VAL(sendfile(out, in, NULL, 100));
    VAL(sendfile(out, in, NULL, 100));
    show_file("out", out);
    OK(pipe(p));
    offset = 0;
    VAL(sendfile(p[1], in, &offset, 4));
    OK(socketpair(AF_UNIX, SOCK_STREAM, 0, s));
    VAL(sendfile(s[0], in, &offset, 4));
    char bytes[16] = "";
    VAL(read(s[1], bytes, 16));
    printf("%s\n", bytes);
    OK(sendfile(open("out", O_RDONLY), in, NULL, 1));
    OK(sendfile(out, open("in", O_WRONLY), NULL, 1));
    OK(sendfile(open("out", O_WRONLY | O_APPEND), in, NULL, 1));
    offset = -1;
    OK(sendfile(out, in, &offset, 1));
    OK(sendfile(out, s[0], &offset, 1));
    OK(sendfile(999, in, NULL, 1));
}

static void copy_ranges(void)
{
    int in = make_file("cin", "0123456789"), out = make_file("cout", "");
    loff_t from = 2, to = 5;
    VAL(copy_file_range(in, &from, out, &to, 4, 0));
    printf("%ld %ld\n", (long)from, (long)to);
    show_file("copied", out);
    lseek(in, 0, SEEK_SET);
    lseek(out, 0, SEEK_SET);
    VAL(copy_file_range(in, NULL, out, NULL, 3, 0));
    VAL(lseek(out, 0, SEEK_CUR));
    show_file("copied", out);
    from = 8;
    VAL(copy_file_range(in, &from, out, NULL, 100, 0));
    from = 100;
    VAL(copy_file_range(in, &from, out, NULL, 100, 0));
    from = 0, to = 2;
    OK(copy_file_range(in, &from, in, &to, 5, 0)); /* overlapping */
    to = 20;
    VAL(copy_file_range(in, &from, in, &to, 5, 0));
    show_file("within", in);
    OK(copy_file_range(in, NULL, out, NULL, 1, 1));
    OK(copy_file_range(in, NULL, open("cout", O_RDONLY), NULL, 1, 0));
    OK(copy_file_range(open("cin", O_WRONLY), NULL, out, NULL, 1, 0));
    OK(copy_file_range(in, NULL, open("cout", O_WRONLY | O_APPEND), NULL, 1, 0));
    OK(copy_file_range(open(".", O_RDONLY), NULL, out, NULL, 1, 0));
    int p[2];
    OK(pipe(p));
    OK(copy_file_range(p[0], NULL, out, NULL, 1, 0));
    OK(copy_file_range(999, NULL, out, NULL, 1, 0));
    YES(ioctl(out, FICLONE, in) == 0 || errno == EOPNOTSUPP || errno == EINVAL);
}

static void large(void)
{
    static char block[65536], got[65536];
    int in = make_file("lin", ""), out = make_file("lout", "");
    for (size_t i = 0; i < sizeof(block); i++)
        block[i] = (char)(i * 31 >> 3);
    for (int i = 0; i < 64; i++) {
        if (write(in, block, sizeof(block)) != sizeof(block))
            printf("short write\n");
    }
    lseek(in, 0, SEEK_SET);
    long total = 0, n;
    while ((n = sendfile(out, in, NULL, 1 << 20)) > 0)
        total += n;
    VAL(total);
    lseek(in, 0, SEEK_SET);
    total = 0;
    while ((n = copy_file_range(in, NULL, out, NULL, 1 << 22, 0)) > 0)
        total += n;
    VAL(total);
    VAL(lseek(out, 0, SEEK_END));
    VAL(pread(out, got, sizeof(got), 100 * 65536));
    YES(memcmp(block, got, sizeof(got)) == 0);
}

int main(void)
{
    start_in_dir();
    holes();
    allocate();
    send_files();
    copy_ranges();
    large();
    return 0;
}
