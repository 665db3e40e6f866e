/* SPDX-License-Identifier: Apache-2.0 */
/* memfd_create(2) and its seals. */
#include "show.h"
#include <sys/mman.h>

#define P 4096UL

static void basics(void)
{
    int fd = memfd_create("some name", MFD_CLOEXEC);
    struct stat st;
    char link[64] = "", path[32];
    YES(fd >= 0);
    VAL(fcntl(fd, F_GETFD));
    VAL(fcntl(fd, F_GETFL) & O_ACCMODE & ~O_RDWR);
    OK(fstat(fd, &st));
    YES(S_ISREG(st.st_mode) && st.st_size == 0 && st.st_nlink == 0);
    printf("mode %o\n", st.st_mode & 07777);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    YES(readlink(path, link, sizeof(link) - 1) > 0);
    printf("%s\n", link);
    VAL(write(fd, "12345", 5));
    VAL(lseek(fd, 0, SEEK_CUR));
    OK(ftruncate(fd, (off_t)P));
    VAL(fcntl(fd, F_GET_SEALS));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    int again = open(path, O_RDWR);
    char bytes[6] = "";
    VAL(read(again, bytes, 5));
    printf("%s\n", bytes);
    OK(memfd_create("x", 0x8000));
    OK(memfd_create((char *)8, 0));
    char name[300];
    memset(name, 'n', sizeof(name));
    name[249] = '\0';
    OK(memfd_create(name, 0));
    name[249] = 'n', name[250] = '\0';
    OK(memfd_create(name, 0));
}

static void seals(void)
{
    int fd = memfd_create("sealed", MFD_ALLOW_SEALING);
    VAL(fcntl(fd, F_GET_SEALS));
    VAL(write(fd, "0123456789", 10));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
    OK(ftruncate(fd, 5));
    OK(ftruncate(fd, 20));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW));
    OK(ftruncate(fd, 21));
    VAL(pwrite(fd, "ab", 2, 19));
    VAL(pwrite(fd, "ab", 2, 18));
    OK(fallocate(fd, 0, 0, 100));
    char *m = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    OK(munmap(m, P));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE));
    OK(write(fd, "x", 1));
    OK(mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
    OK(mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0));
    VAL(fcntl(fd, F_GET_SEALS));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL));
    OK(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK));
    VAL(fcntl(fd, F_GET_SEALS));
    OK(fcntl(fd, F_ADD_SEALS, 0x100));
    char byte = 0;
    VAL(pread(fd, &byte, 1, 3));
    YES(byte == '3');

    int future = memfd_create("future", MFD_ALLOW_SEALING);
    OK(ftruncate(future, (off_t)P));
    m = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED, future, 0);
    OK(fcntl(future, F_ADD_SEALS, F_SEAL_FUTURE_WRITE));
    m[0] = 'w';
    VAL(pread(future, &byte, 1, 0));
    YES(byte == 'w');
    OK(write(future, "x", 1));
    OK(mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED, future, 0));
    int file = make_file("f", "");
    OK(fcntl(file, F_GET_SEALS) >= 0 ? 0 : -1);
}

static void sharing(void)
{
    int fd = memfd_create("shared", 0);
    OK(ftruncate(fd, 3 * (off_t)P));
    volatile char *m = mmap(NULL, 3 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pid_t pid = fork();
    if (pid == 0) {
        char *mine = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)P);
        mine[5] = 'c';
        _exit(write(fd, "child", 5) == 5 ? 0 : 1);
    }
    reap("child", pid);
    YES(m[P + 5] == 'c' && m[0] == 'c' && m[4] == 'd');
    VAL(lseek(fd, 0, SEEK_CUR)); /* shared with the child */
    OK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)P, (off_t)P));
    YES(m[P + 5] == 0 && m[0] == 'c');
    VAL(lseek(fd, 0, SEEK_END));
}

int main(void)
{
    start_in_dir();
    basics();
    seals();
    sharing();
    return 0;
}
