/* SPDX-License-Identifier: Apache-2.0 */
/* process_vm_readv(2), process_vm_writev(2), process_madvise(2). */
#include "show.h"
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define P 4096UL

static char *anon(size_t pages)
{
    return mmap(NULL, pages * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static ssize_t get(pid_t pid, void *local, size_t local_size, void *remote, size_t size)
{
    struct iovec l = {local, local_size}, r = {remote, size};
    return process_vm_readv(pid, &l, 1, &r, 1, 0);
}

static ssize_t put(pid_t pid, void *local, void *remote, size_t size)
{
    struct iovec l = {local, size}, r = {remote, size};
    return process_vm_writev(pid, &l, 1, &r, 1, 0);
}

/* A child with memory of its own, at the same addresses. */
static void other_process(void)
{
    char *m = anon(4), *mine = anon(4), *big = anon(64);
    memset(m, 'p', 4 * P);
    memset(big, 'b', 64 * P);
    int ready[2], go[2];
    if (pipe(ready) < 0 || pipe(go) < 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        char byte = 0;
        memset(m, 'c', 4 * P);
        memset(big, 'd', 64 * P);
        munmap(m + 2 * P, P);
        mprotect(m + 3 * P, P, PROT_READ);
        if (write(ready[1], &byte, 1) != 1 || read(go[0], &byte, 1) != 1)
            _exit(9);
        _exit(m[5] == 'w' && m[P] == 'w' ? 3 : 4);
    }
    char byte;
    VAL(read(ready[0], &byte, 1));
    VAL(get(pid, mine, P, m, P));
    YES(mine[0] == 'c' && m[0] == 'p');
    VAL(get(pid, mine, 10, m, P));
    VAL(get(pid, mine, P, m + 2 * P - 100, P)); /* up to the hole */
    VAL(get(pid, mine, P, m + 2 * P, P));
    struct iovec local[2] = {{mine, 3}, {mine + 100, 7}};
    struct iovec remote[3] = {{m, 4}, {m + 3 * P, 2}, {m + 2 * P, 9}};
    VAL(process_vm_readv(pid, local, 2, remote, 3, 0)); /* the last one is bad */
    VAL(get(pid, big, 64 * P, big, 64 * P));
    YES(big[0] == 'd' && big[64 * P - 1] == 'd');
    memset(mine, 'w', P);
    VAL(put(pid, mine, m + 5, 1));
    VAL(put(pid, mine, m + P, 10));
    OK(put(pid, mine, m + 3 * P, 10)); /* read-only there */
    OK(get(pid, (void *)8, 10, m, 10));
    OK(get(pid, mine, 10, (void *)8, 10));
    OK(process_vm_readv(pid, local, 1, remote, 1, 1));
    OK(process_vm_readv(pid, local, 0, remote, 1, 0));
    OK(process_vm_readv(pid, local, 1, remote, 0, 0));
    OK(process_vm_readv(pid, local, 2000, remote, 1, 0));
    OK(process_vm_readv(pid, (void *)8, 1, remote, 1, 0));
    VAL(write(go[1], &byte, 1));
    reap("child", pid);
    OK(get(pid, mine, 10, m, 10));
}

static void self(void)
{
    char *m = anon(2);
    m[0] = 's';
    char got = 0;
    VAL(get(getpid(), &got, 1, m, 1));
    YES(got == 's');
    got = 'x';
    VAL(put(getpid(), &got, m + 1, 1));
    YES(m[1] == 'x');
}

static void not_ours(void)
{
    if (geteuid() != 0) {
        printf("child: not allowed\nexited 0\n");
        return;
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (setuid(1234) < 0)
            _exit(2);
        char byte;
        ssize_t r = get(getppid(), &byte, 1, &byte, 1);
        printf("child: %s\n", r < 0 && errno == EPERM ? "not allowed" : "ALLOWED");
        exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    printf("exited %d\n", WEXITSTATUS(status));
}

int main(void)
{
    start();
    other_process();
    self();
    fflush(stdout);
    not_ours();
    return 0;
}
