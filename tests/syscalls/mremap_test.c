/* SPDX-License-Identifier: Apache-2.0 */
/* mremap(2): shrink, grow in place and by move, fixed, dontunmap, wrong use. */
#include "show.h"
#include <sys/mman.h>

#define P 4096UL

static char *anon(size_t pages)
{
    return mmap(NULL, pages * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static int old_place_is_gone(void)
{
    char *m = anon(2), *there = anon(4);
    m[0] = 1;
    mremap(m, 2 * P, 2 * P, MREMAP_MAYMOVE | MREMAP_FIXED, there);
    return *(volatile char *)m;
}

static bool is_mapped(void *p)
{
    return msync(p, P, MS_ASYNC) == 0;
}

static void anonymous(void)
{
    char *area = anon(32);
    munmap(area, 32 * P); /* a hole of our own to play in */
    char *m = mmap(area, 4 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    for (size_t i = 0; i < 4; i++)
        m[i * P] = (char)(i + 1);
    YES(mremap(m, 4 * P, 2 * P, 0) == m);
    YES(is_mapped(m + P) && !is_mapped(m + 2 * P));
    YES(mremap(m, 2 * P, 8 * P, 0) == m);
    YES(m[P] == 2 && m[2 * P] == 0 && m[7 * P] == 0);
    YES(mmap(m + 8 * P, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == m + 8 * P);
    OK(mremap(m, 8 * P, 12 * P, 0));
    char *moved = mremap(m, 8 * P, 12 * P, MREMAP_MAYMOVE);
    YES(moved != MAP_FAILED && moved != m && moved[0] == 1 && moved[P] == 2 && moved[11 * P] == 0);
    YES(!is_mapped(m));
    YES(mremap(moved, 12 * P, 3 * P, MREMAP_MAYMOVE | MREMAP_FIXED, m) == m);
    YES(m[0] == 1 && m[P] == 2 && !is_mapped(moved) && !is_mapped(m + 3 * P));
    YES(mremap(m, 3 * P - 5, 3 * P - 100, 0) == m);
    char *middle = mremap(m + P, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, m + 20 * P);
    YES(middle == m + 20 * P && *middle == 2 && is_mapped(m) && !is_mapped(m + P) && is_mapped(m + 2 * P));
    char *left = mremap(m, P, P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0);
    YES(left != MAP_FAILED && left[0] == 1 && is_mapped(m) && m[0] == 0);
}

static void wrong_use(void)
{
    char *m = anon(8);
    OK(mremap(m + 1, P, 2 * P, MREMAP_MAYMOVE));
    OK(mremap(m, P, 0, 0));
    OK(mremap(m, P, P, 64));
    OK(mremap(m, P, P, MREMAP_FIXED, m + 4 * P));
    OK(mremap(m, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, m + 1));
    OK(mremap(m, 4 * P, 4 * P, MREMAP_MAYMOVE | MREMAP_FIXED, m + 2 * P));
    OK(mremap(m, P, 2 * P, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0));
    OK(mremap((void *)0x10000, P, 2 * P, MREMAP_MAYMOVE));
    OK(mremap(m, 0, P, MREMAP_MAYMOVE)); /* only for shared mappings */
    munmap(m + P, P);
    OK(mremap(m, 3 * P, 4 * P, MREMAP_MAYMOVE));
    mprotect(m + 3 * P, P, PROT_READ);
    OK(mremap(m + 2 * P, 3 * P, 9 * P, MREMAP_MAYMOVE)); /* spans two mappings */
}

static void files_and_shared(void)
{
    int fd = make_file("f", "abc");
    OK(ftruncate(fd, 8 * (off_t)P));
    OK(pwrite(fd, "five", 4, 5 * (off_t)P));
    char *m = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    m = mremap(m, 2 * P, 8 * P, MREMAP_MAYMOVE);
    YES(m != MAP_FAILED && strcmp(m, "abc") == 0 && strcmp(m + 5 * P, "five") == 0);
    m[1] = 'B';
    char byte = 0;
    VAL(pread(fd, &byte, 1, 1));
    YES(byte == 'B');
    char *again = mremap(m, 0, 8 * P, MREMAP_MAYMOVE); /* a second view */
    YES(again != MAP_FAILED && again != m && again[1] == 'B');
    again[2] = 'C';
    YES(m[2] == 'C');
    char *shared = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shared[0] = 4;
    char *moved = mremap(shared, P, P, MREMAP_MAYMOVE | MREMAP_FIXED, anon(1));
    YES(moved != MAP_FAILED && moved[0] == 4);
    pid_t pid = fork();
    if (pid == 0) {
        moved[0] = 6;
        _exit(0);
    }
    reap("writer", pid);
    YES(moved[0] == 6);
}

/* As malloc does for large blocks. */
static void many(void)
{
    size_t pages = 1;
    char *m = anon(1);
    m[0] = 77;
    bool fine = true;
    while (pages < 4096) {
        m = mremap(m, pages * P, pages * 2 * P, MREMAP_MAYMOVE);
        pages *= 2;
        fine = fine && m != MAP_FAILED && m[0] == 77 && m[pages / 2 * P] == 0;
        m[(pages - 1) * P] = 1;
    }
    YES(fine);
}

int main(void)
{
    start_in_dir();
    anonymous();
    wrong_use();
    files_and_shared();
    many();
    child("old place", old_place_is_gone);
    return 0;
}
