/* SPDX-License-Identifier: Apache-2.0 */
/* Files: open flags, append, exclusive, temporary, truncate, vectors and positions, wrong use. */
#include "show.h"
#include <limits.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

static void show_content(const char *what, const char *name)
{
    char bytes[64] = "";
    int fd = open(name, O_RDONLY);
    ssize_t n = read(fd, bytes, sizeof(bytes) - 1);
    printf("%s: %zd bytes", what, n);
    for (ssize_t i = 0; i < n; i++)
        printf(i ? "%c" : " %c", bytes[i] ? bytes[i] : '.');
    printf("\n");
    close(fd);
}

static void opening(void)
{
    struct stat st;
    OK(open("missing", O_RDONLY));
    OK(open("", O_RDONLY));
    OK(open("a", O_CREAT | O_EXCL | O_WRONLY, 0666));
    OK(open("a", O_CREAT | O_EXCL | O_WRONLY, 0666));
    stat("a", &st);
    printf("mode %o\n", st.st_mode);
    umask(027);
    OK(open("b", O_CREAT | O_RDWR, 07777));
    stat("b", &st);
    printf("mode %o\n", st.st_mode);
    umask(022);
    OK(open("a/b", O_RDONLY));
    OK(open("a/", O_RDONLY));
    OK(open("c/", O_CREAT | O_WRONLY, 0600));
    OK(open(".", O_WRONLY));
    OK(open(".", O_RDWR));
    OK(open(".", O_RDONLY | O_CREAT, 0600));
    OK(open("a", O_RDONLY | O_DIRECTORY));
    OK(open("a", O_RDONLY | O_CREAT | O_DIRECTORY | O_EXCL, 0600));
    OK(mkdir("d", 0755));
    OK(open("d", O_DIRECTORY));
    OK(read(open("d", O_RDONLY), &st, 10));
    OK(symlink("a", "link"));
    OK(symlink("nowhere", "dangling"));
    OK(open("link", O_RDONLY | O_NOFOLLOW));
    OK(open("link", O_PATH | O_NOFOLLOW));
    OK(open("dangling", O_RDONLY));
    OK(open("dangling", O_CREAT | O_EXCL, 0600));
    OK(open("dangling", O_CREAT | O_WRONLY, 0600));
    OK(stat("nowhere", &st));
    int fd = open("a", O_RDONLY);
    OK(write(fd, "x", 1));
    fd = open("a", O_WRONLY);
    OK(read(fd, &st, 1));
    VAL(write(fd, "12345", 5));
    OK(open("a", O_WRONLY | O_TRUNC));
    OK(fstat(fd, &st));
    VAL(st.st_size);
    VAL(write(fd, "x", 1)); /* at its old position */
    show_content("hole", "a");
    OK(open("a", O_RDONLY | O_SYNC));
    OK(creat("a", 0600));
    OK(open("a", O_RDONLY | O_NOATIME));
    OK(open("/dev/null/x", O_RDONLY));
}

static void appending(void)
{
    int first = open("log", O_WRONLY | O_CREAT | O_APPEND, 0644), second = open("log", O_RDWR);
    VAL(write(first, "aaa", 3));
    VAL(write(second, "B", 1));
    VAL(write(first, "c", 1));
    VAL(lseek(first, 0, SEEK_CUR));
    VAL(pwrite(first, "d", 1, 0)); /* Linux appends here too */
    lseek(first, 0, SEEK_SET);
    VAL(write(first, "e", 1));
    show_content("log", "log");
    for (int i = 0; i < 4; i++) {
        if (fork() == 0) {
            for (int k = 0; k < 50; k++) {
                if (write(first, "12345678", 8) != 8)
                    _exit(1);
            }
            _exit(0);
        }
    }
    while (wait(NULL) > 0)
        continue;
    VAL(lseek(second, 0, SEEK_END));
}

static void temporary(void)
{
    struct stat st;
    char path[64];
    int fd = open(".", O_TMPFILE | O_RDWR, 0640);
    VAL(write(fd, "temp", 4));
    OK(fstat(fd, &st));
    printf("links %lu, mode %o\n", (unsigned long)st.st_nlink, st.st_mode);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    OK(linkat(AT_FDCWD, path, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    show_content("linked", "linked");
    OK(fstat(fd, &st));
    VAL((long)st.st_nlink);
    fd = open(".", O_TMPFILE | O_RDWR | O_EXCL, 0600);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    OK(linkat(AT_FDCWD, path, AT_FDCWD, "linked2", AT_SYMLINK_FOLLOW));
    OK(open(".", O_TMPFILE | O_RDONLY, 0600));
    OK(open("a", O_TMPFILE | O_RDWR, 0600));
    OK(open("missing", O_TMPFILE | O_RDWR, 0600));
    fd = make_file("gone", "still here");
    OK(unlink("gone"));
    OK(fstat(fd, &st));
    VAL((long)st.st_nlink);
    VAL(pread(fd, path, 5, 6));
    OK(fchmod(fd, 0600));
    OK(ftruncate(fd, 3));
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    fd = open(path, O_RDONLY);
    VAL(read(fd, path, 10));
}

static void positions(void)
{
    char bytes[32] = "";
    int fd = make_file("p", "0123456789");
    VAL(lseek(fd, 3, SEEK_SET));
    VAL(lseek(fd, 2, SEEK_CUR));
    VAL(lseek(fd, -1, SEEK_END));
    VAL(lseek(fd, 100, SEEK_END));
    VAL(read(fd, bytes, 1));
    OK(lseek(fd, -1, SEEK_SET));
    OK(lseek(fd, 0, 99));
    OK(lseek(fd, INT64_MAX, SEEK_CUR));
    VAL(lseek(fd, 0, SEEK_CUR));
    VAL(pread(fd, bytes, 4, 8));
    OK(pread(fd, bytes, 4, -1));
    OK(pwrite(fd, bytes, 4, -1));
    VAL(pread(fd, bytes, 4, 1000));
    lseek(fd, 0, SEEK_SET);
    struct iovec iov[3] = {{bytes, 2}, {NULL, 0}, {bytes + 10, 3}};
    VAL(readv(fd, iov, 3));
    YES(memcmp(bytes, "01", 2) == 0 && memcmp(bytes + 10, "234", 3) == 0);
    VAL(preadv(fd, iov, 3, 7));
    VAL(pwritev(fd, iov, 3, 8));
    show_content("pwritev", "p");
    VAL(preadv2(fd, iov, 3, -1, 0));
    VAL(lseek(fd, 0, SEEK_CUR));
    OK(preadv2(fd, iov, 3, 0, 0x4000));
    VAL(pwritev2(fd, iov, 1, 0, RWF_APPEND));
    VAL(pwritev2(fd, iov, 1, 0, RWF_DSYNC));
    OK(preadv(fd, iov, 3, -2));
    VAL(readv(fd, iov, 0));
    OK(syscall(SYS_readv, fd, iov, 1025));
    OK(read(999, bytes, 1));
    VAL(read(fd, NULL, 0));
    OK(syscall(SYS_read, fd, 8, 1));
}

static void sizes(void)
{
    int fd = make_file("t", "0123456789");
    struct stat st;
    OK(truncate("t", 4));
    OK(ftruncate(fd, 8));
    show_content("grown", "t");
    OK(truncate("t", -1));
    OK(truncate("missing", 0));
    OK(truncate(".", 0));
    OK(ftruncate(open("t", O_RDONLY), 0));
    OK(truncate("t", INT64_MAX));
    OK(ftruncate(fd, 5L << 30));
    OK(fstat(fd, &st));
    YES(st.st_size == 5L << 30 && st.st_blocks < 100);
    VAL(pwrite(fd, "end", 3, (5L << 30) - 3));
    char bytes[4] = "";
    VAL(pread(fd, bytes, 4, (5L << 30) - 3));
    printf("%s\n", bytes);
    OK(ftruncate(fd, 0));
    OK(fsync(fd));
    OK(fdatasync(fd));
    OK(fsync(999));
    OK(syncfs(fd));
    OK(posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL));
    ERR(posix_fadvise(fd, 0, 0, 99));
    OK(readahead(fd, 0, 10));
}

/* The limit also holds for our own output, so results are printed without it. */
static int size_limit(void)
{
    struct rlimit limit = {10, RLIM_INFINITY}, none = {RLIM_INFINITY, RLIM_INFINITY};
    int fd = make_file("limited", "12345"), errors[3];
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    long written = write(fd, "123456789", 9); /* as much as fits */
    errors[0] = write(fd, "x", 1) < 0 ? errno : 0;
    errors[1] = ftruncate(fd, 11) < 0 ? errno : 0;
    errors[2] = ftruncate(fd, 10) < 0 ? errno : 0;
    setrlimit(RLIMIT_FSIZE, &none);
    VAL(written);
    ERR(errors[0]);
    ERR(errors[1]);
    ERR(errors[2]);
    setrlimit(RLIMIT_FSIZE, &limit);
    signal(SIGXFSZ, SIG_DFL);
    return write(fd, "x", 1) < 0 ? 1 : 2;
}

int main(void)
{
    start_in_dir();
    opening();
    appending();
    temporary();
    positions();
    sizes();
    child("RLIMIT_FSIZE", size_limit);
    return 0;
}
