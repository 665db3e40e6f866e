/* SPDX-License-Identifier: Apache-2.0 */
/* madvise, mincore, msync, mlock family. */
#include "show.h"
#include <sys/mman.h>
#include <sys/resource.h>

#define P 4096UL

static char *anon(size_t pages)
{
    return mmap(NULL, pages * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static void advise(int fd)
{
    char *m = anon(8);
    memset(m, 5, 8 * P);
    OK(madvise(m + P, 2 * P, MADV_DONTNEED));
    YES(m[0] == 5 && m[P] == 0 && m[3 * P - 1] == 0 && m[3 * P] == 5);
    OK(madvise(m, 8 * P, MADV_NORMAL));
    OK(madvise(m, 8 * P, MADV_RANDOM));
    OK(madvise(m, 8 * P, MADV_SEQUENTIAL));
    OK(madvise(m, 8 * P, MADV_WILLNEED));
    OK(madvise(m, 8 * P, MADV_FREE));
    m[0] = 6;
    YES(m[0] == 6);
    OK(madvise(m, 8 * P, MADV_HUGEPAGE));
    OK(madvise(m, 8 * P, MADV_NOHUGEPAGE));
    OK(madvise(m, 8 * P, MADV_DONTDUMP));
    OK(madvise(m, 8 * P, MADV_DODUMP));
    OK(madvise(m, 8 * P, MADV_POPULATE_READ));
    OK(madvise(m, 8 * P, MADV_POPULATE_WRITE));
    OK(madvise(m, 8 * P, MADV_COLD));
    OK(madvise(m, 0, MADV_DONTNEED));
    OK(madvise(m + 1, P, MADV_DONTNEED));
    OK(madvise(m, P, 9999));
    OK(madvise(m, -P, MADV_DONTNEED));
    munmap(m + 4 * P, P);
    m[5 * P] = 7;
    OK(madvise(m + 3 * P, 3 * P, MADV_DONTNEED)); /* works around the hole, then says so */
    YES(m[5 * P] == 0);
    OK(madvise(m + 3 * P, 3 * P, MADV_WILLNEED));
    OK(madvise(m, P, MADV_REMOVE));

    char *shared = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    char *private = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    shared[0] = 's';
    private[1] = 'p';
    OK(madvise(shared, P, MADV_DONTNEED));
    OK(madvise(private, P, MADV_DONTNEED));
    YES(shared[0] == 's' && private[0] == 's' && private[1] == 0);
    OK(madvise(shared, P, MADV_FREE));
    char *shm = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    shm[0] = 1;
    OK(madvise(shm, P, MADV_DONTNEED));
    YES(shm[0] == 1);
    OK(madvise(shm, P, MADV_REMOVE));
    YES(shm[0] == 0);
}

static void forks(void)
{
    char *kept = anon(1), *wiped = anon(1), *dropped = anon(1);
    kept[0] = wiped[0] = dropped[0] = 1;
    OK(madvise(wiped, P, MADV_WIPEONFORK));
    OK(madvise(dropped, P, MADV_DONTFORK));
    pid_t pid = fork();
    if (pid == 0) {
        unsigned char vec;
        bool gone = mincore(dropped, P, &vec) < 0 && errno == ENOMEM;
        _exit(kept[0] == 1 && wiped[0] == 0 && gone ? 4 : 1);
    }
    reap("child of wipe and dontfork", pid);
    YES(wiped[0] == 1 && dropped[0] == 1);
    OK(madvise(wiped, P, MADV_KEEPONFORK));
    OK(madvise(dropped, P, MADV_DOFORK));
}

static void core(int fd)
{
    unsigned char vec[8];
    char *m = anon(8);
    m[2 * P] = 1;
    OK(mincore(m, 8 * P, vec));
    YES((vec[2] & 1) == 1 && (vec[5] & 1) == 0);
    OK(mincore(m + 1, P, vec));
    OK(mincore(m, 8 * P, NULL));
    OK(mincore(m, 0, vec));
    munmap(m + 3 * P, P);
    OK(mincore(m, 8 * P, vec));
    char *shared = mmap(NULL, P, PROT_READ, MAP_SHARED, fd, 0);
    (void)*(volatile char *)shared;
    OK(mincore(shared, P, vec));
    YES((vec[0] & 1) == 1);
}

static void sync_and_lock(int fd)
{
    char *m = mmap(NULL, 4 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    m[10] = 'k';
    OK(msync(m, P, MS_SYNC));
    OK(msync(m, P, MS_ASYNC));
    OK(msync(m, P, MS_SYNC | MS_ASYNC));
    OK(msync(m, P, MS_SYNC | MS_INVALIDATE));
    OK(msync(m, P, 64));
    OK(msync(m + 1, P, MS_SYNC));
    OK(msync(m, 0, MS_SYNC));
    munmap(m + P, P);
    OK(msync(m, 3 * P, MS_SYNC));
    OK(mlock(m, P));
    OK(msync(m, P, MS_INVALIDATE));
    OK(munlock(m, P));
    OK(mlock(m, 3 * P));
    char *a = anon(4);
    OK(mlock(a, 4 * P));
    OK(mlock(a + 5, 10));
    OK(mlock2(a, P, MLOCK_ONFAULT));
    OK(mlock2(a, P, 8));
    OK(munlock(a, 4 * P));
    OK(munlock((void *)0x10000, P));
    OK(mlockall(0));
    OK(mlockall(MCL_CURRENT | 64));
    OK(mlockall(MCL_ONFAULT));
    OK(munlockall());
    char *locked = mmap(NULL, P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
    YES(locked != MAP_FAILED && locked[0] == 0);
}

int main(void)
{
    start_in_dir();
    int fd = make_file("f", "");
    OK(ftruncate(fd, 4 * (off_t)P));
    advise(fd);
    forks();
    core(fd);
    sync_and_lock(fd);
    return 0;
}
