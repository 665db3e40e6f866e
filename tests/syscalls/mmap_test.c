/* SPDX-License-Identifier: Apache-2.0 */
/* mmap(2): anonymous and file mappings, placement, wrong use. */
#include "show.h"
#include <sys/mman.h>

#define P 4096UL

static char *anon(size_t size, int flags)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | flags, -1, 0);
}

static void wrong_use(int fd)
{
    void *m = NULL;
    OK(mmap(m, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(mmap(m, P, PROT_READ, MAP_ANONYMOUS, -1, 0));
    OK(mmap(m, P, PROT_READ, MAP_PRIVATE, -1, 0));
    OK(mmap(m, P, PROT_READ, MAP_PRIVATE, 999, 0));
    OK(mmap(m, P, PROT_READ, MAP_PRIVATE, fd, 1));
    OK(mmap((void *)1, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    OK(mmap(m, 1UL << 48, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(mmap(m, -P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(mmap((void *)(1UL << 47), P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    OK(mmap((void *)(1UL << 47), P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(mmap(m, P, PROT_READ, MAP_PRIVATE, fd, INT64_MAX & ~(off_t)4095));
    OK(mmap(m, P, PROT_READ, MAP_SHARED_VALIDATE | MAP_SYNC, fd, 0));
    OK(mmap(m, P, PROT_READ, MAP_SHARED_VALIDATE, fd, 0));
    int ro = open("f", O_RDONLY), wo = open("f", O_WRONLY), dir = open(".", O_RDONLY);
    int path = open("f", O_PATH), pipes[2];
    OK(mmap(m, P, PROT_READ | PROT_WRITE, MAP_SHARED, ro, 0));
    OK(mmap(m, P, PROT_READ | PROT_WRITE, MAP_PRIVATE, ro, 0));
    OK(mmap(m, P, PROT_READ, MAP_SHARED, wo, 0));
    OK(mmap(m, P, PROT_WRITE, MAP_PRIVATE, wo, 0));
    OK(mmap(m, P, PROT_READ, MAP_PRIVATE, dir, 0));
    OK(mmap(m, P, PROT_READ, MAP_PRIVATE, path, 0));
    OK(pipe(pipes));
    OK(mmap(m, P, PROT_READ, MAP_PRIVATE, pipes[0], 0));
    OK(munmap((void *)1, P));
    OK(munmap((void *)P, 0));
    OK(munmap((void *)0x10000, P));
    OK(munmap((void *)-P, P));
}

static void placement(void)
{
    char *a = anon(16 * P, MAP_PRIVATE);
    memset(a, 7, 16 * P);
    OK(munmap(a + 4 * P, 4 * P));
    char *hint = mmap(a + 5 * P, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    YES(hint == a + 5 * P);
    char *taken = mmap(a, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    YES(taken != a);
    OK(mmap(a + 3 * P, 3 * P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    YES(mmap(a + 6 * P, 2 * P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) ==
        a + 6 * P);
    YES(mmap(a + 2 * P, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == a + 2 * P);
    YES(a[2 * P] == 0 && a[P] == 7 && a[3 * P] == 7);
    YES(mmap(a + P + 123, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
    OK(mmap(a + 123, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    YES(munmap(a, 16 * P) == 0);
    char *low = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    YES(low != MAP_FAILED && (uintptr_t)low < 0x80000000UL);
    char *low4 = mmap((void *)0x20000000, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    YES(low4 == (void *)0x20000000);
    OK(munmap(low4, P));
    char *first = anon(P, MAP_PRIVATE), *second = anon(P, MAP_PRIVATE);
    YES(second == first - P); /* top-down, adjacent */
    char *odd = anon(100, MAP_PRIVATE);
    odd[P - 1] = 1;
    YES(odd[P - 1] == 1);
    OK(munmap(odd, 1));
    char *populated = anon(64 * P, MAP_PRIVATE | MAP_POPULATE);
    YES(populated != MAP_FAILED && populated[63 * P] == 0);
    char *reserve = mmap(NULL, 64UL << 30, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    YES(reserve != MAP_FAILED);
    OK(munmap(reserve, 64UL << 30));
    OK(anon(P, MAP_PRIVATE | MAP_STACK | MAP_NORESERVE));
}

static void files(int fd)
{
    char *shared = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    char *second = mmap(NULL, P, PROT_READ, MAP_SHARED, fd, (off_t)P);
    char byte = 0;
    YES(strncmp(shared, "hello", 5) == 0 && shared[5] == 0 && shared[P - 1] == 0);
    shared[0] = 'J';
    VAL(pread(fd, &byte, 1, 0));
    YES(byte == 'J' && private[0] == 'J');
    private[1] = 'X';
    VAL(pread(fd, &byte, 1, 1));
    YES(byte == 'e' && shared[1] == 'e');
    OK(pwrite(fd, "Q", 1, 2));
    YES(shared[2] == 'Q' && private[1] == 'X');
    OK(ftruncate(fd, 2 * (off_t)P));
    shared[P + 3] = 'z';
    YES(second[3] == 'z');
    OK(close(fd));
    shared[P + 4] = 'y';
    YES(second[4] == 'y');
    OK(unlink("f"));
    YES(second[4] == 'y');
    OK(munmap(shared, 2 * P));
    OK(munmap(private, 2 * P));
    YES(second[3] == 'z');
}

static void shared_anonymous(void)
{
    char *shared = anon(2 * P, MAP_SHARED), *private = anon(P, MAP_PRIVATE);
    shared[0] = private[0] = 1;
    pid_t pid = fork();
    if (pid == 0) {
        shared[0] = private[0] = 2;
        shared[P] = 5;
        _exit(0);
    }
    reap("writer", pid);
    YES(shared[0] == 2 && shared[P] == 5);
    YES(private[0] == 1);
    int zero = open("/dev/zero", O_RDWR);
    char *z = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_PRIVATE, zero, 0);
    YES(z != MAP_FAILED && z[100] == 0);
    z[100] = 1;
    char *zs = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED, zero, 0);
    YES(zs != MAP_FAILED && zs[100] == 0);
}

/* Code that runs from a mapping of its own. */
static void executable(void)
{
    static const unsigned char code[] = {0xb8, 42, 0, 0, 0, 0xc3};
    unsigned char *m = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(m, code, sizeof(code));
    OK(mprotect(m, P, PROT_READ | PROT_EXEC));
    int (*function)(void);
    memcpy(&function, &m, sizeof(m));
    VAL(function());
}

static int use_after_unmap(void)
{
    char *m = anon(P, MAP_PRIVATE);
    *(volatile char *)m = 1;
    munmap(m, P);
    return *(volatile char *)m;
}

static int write_read_only(void)
{
    char *m = mmap(NULL, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    *(volatile char *)m = 1;
    return 0;
}

static int read_none(void)
{
    char *m = mmap(NULL, P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return *(volatile char *)m;
}

int main(void)
{
    start_in_dir();
    int fd = make_file("f", "hello");
    wrong_use(fd);
    placement();
    files(fd);
    shared_anonymous();
    executable();
    child("use after munmap", use_after_unmap);
    child("write to read-only", write_read_only);
    child("read of PROT_NONE", read_none);
    return 0;
}
