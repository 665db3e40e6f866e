/* SPDX-License-Identifier: Apache-2.0 */
/* mprotect(2): splits, errors, effect on system calls, threads and forks. */
#include "show.h"
#include <setjmp.h>
#include <sys/mman.h>

#define P 4096UL

static sigjmp_buf back;

static void on_fault(int sig)
{
    siglongjmp(back, sig);
}

static const char *try(volatile char *p, bool is_write)
{
    int sig = sigsetjmp(back, 1);
    if (sig)
        return sigabbrev_np(sig);
    if (is_write)
        *p = 1;
    else
        (void)*p;
    return "fine";
}

static void access_all(const char *what, char *m, size_t pages)
{
    printf("%s:", what);
    for (size_t i = 0; i < pages; i++)
        printf(" %s/%s", try(m + i * P, false), try(m + i * P, true));
    printf("\n");
}

static int in_child(void)
{
    char *m = mmap(NULL, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return mprotect(m, P, PROT_READ | PROT_WRITE) == 0 && (*m = 3) == 3 ? 3 : 1;
}

int main(void)
{
    start_in_dir();
    signal(SIGSEGV, on_fault);
    char *m = mmap(NULL, 6 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(m, 9, 6 * P);
    OK(mprotect(m + P, P, PROT_READ));
    OK(mprotect(m + 2 * P, P, PROT_NONE));
    OK(mprotect(m + 3 * P, P, PROT_WRITE)); /* x86 can't withhold reading */
    OK(mprotect(m + 4 * P, P, PROT_EXEC));
    access_all("split", m, 6);
    int pipes[2];
    OK(pipe(pipes));
    VAL(write(pipes[1], m + P, 4));
    OK(write(pipes[1], m + 2 * P, 4));
    OK(read(pipes[0], m + P, 4));
    VAL(read(pipes[0], m, 4));
    OK(mprotect(m, 6 * P, PROT_READ | PROT_WRITE));
    access_all("joined", m, 6);
    YES(m[2 * P + 1] == 9);
    OK(mprotect(m + 1, P, PROT_READ));
    OK(mprotect(m, 0, PROT_READ));
    OK(mprotect(m, 1, PROT_READ));
    access_all("length rounds up", m, 2);
    OK(mprotect(m, 6 * P, PROT_READ | 0x100));
    OK(mprotect(m, P, PROT_READ | PROT_GROWSDOWN));
    OK(mprotect(m, -P, PROT_READ));
    munmap(m + 4 * P, P);
    OK(mprotect(m + 3 * P, 3 * P, PROT_READ)); /* the part before the hole is changed */
    access_all("before the hole", m + 3 * P, 1);
    access_all("behind the hole", m + 5 * P, 1);
    OK(mprotect((void *)0x10000, P, PROT_READ));

    int fd = make_file("f", "text"), ro = open("f", O_RDONLY);
    char *shared = mmap(NULL, P, PROT_READ, MAP_SHARED, ro, 0);
    OK(mprotect(shared, P, PROT_READ | PROT_WRITE));
    char *private = mmap(NULL, P, PROT_READ, MAP_PRIVATE, ro, 0);
    OK(mprotect(private, P, PROT_READ | PROT_WRITE));
    private[0] = 'N';
    YES(shared[0] == 't' && private[0] == 'N');
    char *rw = mmap(NULL, P, PROT_READ, MAP_SHARED, fd, 0);
    OK(mprotect(rw, P, PROT_READ | PROT_WRITE));
    rw[0] = 'T';
    YES(shared[0] == 'T');
    child("child", in_child);
    OK(pkey_mprotect(rw, P, PROT_READ, -1));
    access_all("pkey -1", rw, 1);
    return 0;
}
