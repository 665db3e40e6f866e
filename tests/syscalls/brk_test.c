/* SPDX-License-Identifier: Apache-2.0 */
/* brk(2), raw: on failure it returns the old break; rlimits; fork. */
#include "show.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define P 4096UL

static char *set(char *to)
{
    return (char *)syscall(SYS_brk, to);
}

static int shrunk_is_gone(void)
{
    char *now = set(NULL);
    char *end = (char *)(((uintptr_t)now + P - 1) & ~(P - 1));
    set(end + 2 * P);
    end[P] = 1;
    set(end);
    return *(volatile char *)(end + P);
}

static int limited(void)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_DATA, &limit);
    char *now = set(NULL);
    return set(now + (64 << 20)) == now ? 5 : 6;
}

int main(void)
{
    start();
    char *first = set(NULL);
    YES(first != NULL && set(NULL) == first);
    YES(set(first + 10000) == first + 10000);
    bool zeroed = true;
    for (int i = 0; i < 10000; i++)
        zeroed = zeroed && first[i] == 0;
    YES(zeroed);
    memset(first, 3, 10000);
    YES(set(first + 100) == first + 100);
    YES(set(first + 20000) == first + 20000);
    YES(first[99] == 3 && first[19000] == 0 && first[9999] == 0);
    YES(set((char *)1) == first + 20000);
    YES(set((char *)(1UL << 50)) == first + 20000);
    YES(set(NULL) == first + 20000);
    char *page = (char *)(((uintptr_t)first + 20000 + 16 * P) & ~(P - 1));
    YES(mmap(page, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == page);
    YES(set(page + 5 * P) == first + 20000); /* something is in the way */
    munmap(page, P);
    YES(set(page + 5 * P) == page + 5 * P);
    OK(mprotect(page, P, PROT_READ));
    YES(set(first) == first);
    pid_t pid = fork();
    if (pid == 0)
        _exit(set(NULL) == first && set(first + 8192) == first + 8192 ? 0 : 1);
    reap("child has its own", pid);
    YES(set(NULL) == first);
    child("below the break", shrunk_is_gone);
    child("RLIMIT_DATA", limited);
    void *m = malloc(100000);
    YES(m != NULL && (memset(m, 1, 100000), true));
    free(m);
    return 0;
}
