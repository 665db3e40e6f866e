/* SPDX-License-Identifier: Apache-2.0 */
/* Device files and POSIX shared memory: null, zero, full, random, fd, stdin, ptmx, shm. */
#include "show.h"
#include <dirent.h>
#include <poll.h>
#include <semaphore.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>

static void show_device(const char *path)
{
    struct stat st;
    if (stat(path, &st) < 0)
        printf("%s: %s\n", path, strerrorname_np(errno));
    else
        printf("%s: %s %u:%u mode %o owner %d\n", path, S_ISCHR(st.st_mode) ? "char" : "OTHER", major(st.st_rdev),
               minor(st.st_rdev), st.st_mode & 0777, st.st_uid);
}

static void memory_devices(void)
{
    char bytes[4096];
    show_device("/dev/null"), show_device("/dev/zero"), show_device("/dev/full");
    show_device("/dev/random"), show_device("/dev/urandom"), show_device("/dev/tty");
    int null = open("/dev/null", O_RDWR), zero = open("/dev/zero", O_RDWR), full = open("/dev/full", O_RDWR);
    VAL(read(null, bytes, 10));
    VAL(write(null, bytes, 4096));
    VAL(lseek(null, 100, SEEK_SET));
    OK(ftruncate(null, 0));
    OK(open("/dev/null", O_WRONLY | O_CREAT | O_TRUNC | O_APPEND, 0600));
    memset(bytes, 1, sizeof(bytes));
    VAL(read(zero, bytes, sizeof(bytes)));
    VAL(bytes[0] | bytes[4095]);
    VAL(write(zero, bytes, 10));
    VAL(pread(zero, bytes, 10, 1L << 40));
    memset(bytes, 1, sizeof(bytes));
    VAL(read(full, bytes, 10));
    VAL(bytes[9] | bytes[10]);
    OK(write(full, bytes, 10));
    VAL(write(full, bytes, 0));
    OK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, null, 0));
    OK(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, zero, 0));
    struct pollfd fds[2] = {{null, POLLIN | POLLOUT, 0}, {zero, POLLIN | POLLOUT, 0}};
    VAL(poll(fds, 2, 0));
    printf("%x %x\n", fds[0].revents, fds[1].revents);
    int random = open("/dev/urandom", O_RDWR);
    VAL(read(random, bytes, 4096));
    VAL(write(random, bytes, 16));
    int n = -1;
    OK(ioctl(null, FIONREAD, &n));
    OK(ioctl(null, TIOCGWINSZ, bytes));
    struct iovec iov[2] = {{bytes, 3}, {bytes + 100, 4}};
    VAL(readv(zero, iov, 2));
    OK(fsync(null));
    OK(mkdir("/dev/null/x", 0700));
}

static void links(void)
{
    char target[64] = "";
    static const char *const names[] = {"/dev/fd", "/dev/stdin", "/dev/stdout", "/dev/stderr"};
    for (int i = 0; i < 4; i++) {
        memset(target, 0, sizeof(target));
        printf("%s: %s\n", names[i], readlink(names[i], target, sizeof(target) - 1) > 0 ? target : strerrorname_np(errno));
    }
    int p[2];
    OK(pipe(p));
    char path[32], byte = 0;
    snprintf(path, sizeof(path), "/dev/fd/%d", p[1]);
    int writer = open(path, O_WRONLY);
    VAL(write(writer, "x", 1));
    VAL(read(p[0], &byte, 1));
    int saved = dup(0), file = make_file("in", "typed");
    lseek(file, 0, SEEK_SET);
    dup2(file, 0);
    VAL(read(open("/dev/stdin", O_RDONLY), target, 64)); /* opened anew */
    VAL(lseek(0, 0, SEEK_CUR));
    dup2(saved, 0);
    YES(access("/dev/ptmx", R_OK | W_OK) == 0 && access("/dev/pts", X_OK) == 0);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        setsid();
        _exit(open("/dev/tty", O_RDWR) < 0 ? errno : 0);
    }
    reap("/dev/tty", pid);
}

static void shared_memory(void)
{
    struct stat st;
    char name[64];
    snprintf(name, sizeof(name), "/syscall-test-%d", getpid());
    int fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
    YES(fd >= 0);
    OK(shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600));
    OK(ftruncate(fd, 8192));
    char *m = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pid_t pid = fork();
    if (pid == 0) {
        int own = shm_open(name, O_RDWR, 0);
        char *mine = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
        mine[5000] = 'c';
        _exit(0);
    }
    reap("writer", pid);
    VAL(m[5000] == 'c');
    OK(shm_unlink(name));
    OK(shm_unlink(name));
    m[0] = 'x';
    OK(fstat(fd, &st));
    VAL((long)st.st_nlink);
    OK(stat("/dev/shm", &st));
    printf("mode %o\n", st.st_mode);
    sem_t *sem = sem_open(name, O_CREAT | O_EXCL, 0600, 0);
    YES(sem != SEM_FAILED);
    pid = fork();
    if (pid == 0) {
        sem_t *own = sem_open(name, 0);
        _exit(own != SEM_FAILED && sem_post(own) == 0 ? 0 : 1);
    }
    OK(sem_wait(sem));
    reap("poster", pid);
    OK(sem_unlink(name));
}

int main(void)
{
    start_in_dir();
    memory_devices();
    links();
    shared_memory();
    return 0;
}
