/* SPDX-License-Identifier: Apache-2.0 */
/* Memory policy on a machine with one node, membarrier(2), protection keys' errors. */
#include "show.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define P 4096UL
#define get_policy(mode, mask, max, addr, flags)                                                   \
    syscall(SYS_get_mempolicy, mode, mask, max, addr, flags)
#define set_policy(mode, mask, max) syscall(SYS_set_mempolicy, mode, mask, max)
#define bind_range(addr, size, mode, mask, max, flags)                                             \
    syscall(SYS_mbind, addr, size, mode, mask, max, flags)

static void policy(void)
{
    int mode = 99;
    unsigned long mask[16], one = 1, two = 2, zero = 0;
    memset(mask, 0xff, sizeof(mask));
    char *m = mmap(NULL, 4 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    m[0] = 1;
    OK(get_policy(&mode, NULL, 0, NULL, 0));
    VAL(mode);
    OK(get_policy(&mode, mask, sizeof(mask) * 8, NULL, 0));
    YES(mask[0] == 0);
    OK(get_policy(NULL, mask, sizeof(mask) * 8, NULL, 4)); /* MPOL_F_MEMS_ALLOWED */
    YES(mask[0] == 1);
    OK(get_policy(&mode, NULL, 0, m, 2)); /* MPOL_F_ADDR */
    OK(get_policy(&mode, NULL, 0, m, 3)); /* and MPOL_F_NODE */
    VAL(mode);
    OK(get_policy(&mode, NULL, 0, (void *)16, 2));
    OK(get_policy(&mode, NULL, 0, m, 0));
    OK(get_policy(&mode, NULL, 0, NULL, 64));
    OK(get_policy((void *)8, NULL, 0, NULL, 0));
    OK(set_policy(0, NULL, 0));
    OK(set_policy(0, &one, 64));
    OK(set_policy(2, &zero, 64));
    OK(set_policy(2, &two, 64));
    OK(set_policy(2, &one, 1000000));
    OK(set_policy(77, NULL, 0));
    OK(set_policy(1, (void *)8, 64));
    OK(bind_range(m, 4 * P, 2, &one, 64, 0));
    OK(bind_range(m, 4 * P, 0, NULL, 0, 0));
    OK(bind_range(m + 1, P, 2, &one, 64, 0));
    OK(bind_range(m, P, 2, &one, 64, 99));
    munmap(m + P, P);
    OK(bind_range(m, 4 * P, 2, &one, 64, 0));
}

static _Atomic int turn;

static void *spin(void *unused)
{
    (void)unused;
    while (atomic_load(&turn) < 20)
        atomic_fetch_add(&turn, 0);
    return NULL;
}

static void barriers(void)
{
    long known = syscall(SYS_membarrier, 0, 0, 0);
    YES(known > 0 && (known & 1) && (known & 8) && (known & 16));
    OK(syscall(SYS_membarrier, 8, 0, 0)); /* not registered */
    OK(syscall(SYS_membarrier, 16, 0, 0));
    OK(syscall(SYS_membarrier, 8, 0, 0));
    OK(syscall(SYS_membarrier, 4, 0, 0));
    OK(syscall(SYS_membarrier, 2, 0, 0));
    OK(syscall(SYS_membarrier, 1 << 20, 0, 0));
    pthread_t thread;
    ERR(pthread_create(&thread, NULL, spin, NULL));
    bool fine = true;
    for (int i = 0; i < 20; i++) {
        fine = fine && syscall(SYS_membarrier, 8, 0, 0) == 0;
        atomic_fetch_add(&turn, 1);
    }
    YES(fine);
    ERR(pthread_join(thread, NULL));
}

int main(void)
{
    start();
    policy();
    barriers();
    return 0;
}
