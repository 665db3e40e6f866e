/* SPDX-License-Identifier: Apache-2.0 */
/* Faults in mappings: SIGBUS beyond a file, truncation under a mapping, stack growth, EFAULT. */
#include "show.h"
#include <pthread.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#define P 4096UL

static sigjmp_buf back;
static siginfo_t info;

static void on_fault(int sig, siginfo_t *si, void *context)
{
    (void)sig, (void)context;
    info = *si;
    siglongjmp(back, 1);
}

/* Touches a byte and prints what happened. */
static void touch(const char *what, volatile char *p, bool is_write)
{
    if (sigsetjmp(back, 1) == 0) {
        char value = *p;
        if (is_write)
            *p = value;
        printf("%s: fine\n", what);
        return;
    }
    printf("%s: %s code %d, address %s\n", what, sigabbrev_np(info.si_signo), info.si_code,
           info.si_addr == p ? "right" : "WRONG");
}

static void file_end(void)
{
    int fd = make_file("f", "x");
    char *m = mmap(NULL, 4 * P, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    touch("last page", m + P - 1, true);
    touch("page beyond the file", m + P, false);
    touch("page beyond the file, write", m + P + 5, true);
    OK(ftruncate(fd, 3 * (off_t)P));
    touch("after growing", m + 2 * P, true);
    m[2 * P + 7] = 'q';
    touch("still beyond", m + 3 * P, true);
    OK(ftruncate(fd, (off_t)P + 10));
    m[P + 9] = 'a';
    touch("page of the new end", m + P + 11, true);
    touch("truncated away", m + 2 * P + 7, false);
    VAL(write(fd, m + 2 * P, 1));
    VAL(pwrite(fd, m + 3 * P, 1, 0));
    OK(ftruncate(fd, 3 * (off_t)P));
    YES(m[2 * P + 7] == 0);
    char *private = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    private[P] = 'p';
    OK(ftruncate(fd, 0));
    touch("private copy after truncate", private + P, false);
    touch("shared after truncate to 0", m, false);
    int other = open("f", O_RDWR | O_TRUNC);
    OK(pwrite(other, "new", 3, 0));
    YES(m[0] == 'n');
    int empty = make_file("e", "");
    char *e = mmap(NULL, P, PROT_READ, MAP_PRIVATE, empty, 0);
    touch("empty file", e, false);
}

static void segv_codes(void)
{
    char *ro = mmap(NULL, P, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *none = mmap(NULL, P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    touch("read-only, read", ro, false);
    touch("read-only, write", ro + 17, true);
    touch("none", none + 4095, false);
    munmap(none, P);
    touch("unmapped", none + 1, false);
    touch("null", (char *)8, false);
    touch("kernel", (char *)0xffffffff80000000UL, false);
}

/* Bad buffers are an errno, not a signal. */
static void efault(void)
{
    char *m = mmap(NULL, 2 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *volatile bad = (char *)8;
    munmap(m + P, P);
    int pipes[2];
    OK(pipe(pipes));
    OK(write(pipes[1], m + P, 1));
    VAL(write(pipes[1], "0123456789", 10));
    OK(read(pipes[0], bad, 4));
    OK(open(bad, O_RDONLY));
    m[P - 1] = 'a';
    OK(open(m + P - 1, O_CREAT, 0600));
    OK(stat("/", (struct stat *)(m + P - 8)));
    OK(pipe((int *)(m + P - 4)));
    OK(nanosleep((struct timespec *)(m + P - 8), NULL));
    OK(syscall(SYS_rt_sigaction, SIGUSR1, m + P, NULL, 8));
    OK(syscall(SYS_readlink, "/proc/self/exe", m + P, 10));
    OK(syscall(SYS_getcwd, m + P, 1000));
    struct iovec iov[2] = {{m, 1}, {m + P, 1}};
    OK(writev(pipes[1], (struct iovec *)(m + P), 2));
    int fd = make_file("g", "0123456789");
    VAL(pwritev(fd, iov, 2, 0));
    VAL(pread(fd, m + P - 4, 10, 0)); /* the part before the hole */
    VAL(pwrite(fd, m + P - 4, 10, 0));
}

static __attribute__((noinline)) int deep(volatile char *above, int pages)
{
    volatile char frame[4096];
    frame[0] = above ? *above : 0;
    if (pages == 0)
        return frame[0];
    return deep(frame, pages - 1) + frame[0];
}

static int stack_grows(void)
{
    return deep(NULL, 1000); /* 4 MiB of the 8 */
}

static int stack_overflows(void)
{
    struct rlimit limit = {1 << 20, 1 << 20};
    setrlimit(RLIMIT_STACK, &limit);
    signal(SIGSEGV, SIG_DFL);
    return deep(NULL, 1000);
}

static void *grow_in_thread(void *unused)
{
    (void)unused;
    return deep(NULL, 100) == 0 ? (void *)1 : NULL;
}

static void grows_down(void)
{
    char *top = mmap(NULL, 64 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(top, 64 * P);
    char *m = mmap(top + 62 * P, P, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_GROWSDOWN, -1, 0);
    YES(m == top + 62 * P);
    m[0] = 1;
    pthread_t thread;
    void *result;
    ERR(pthread_create(&thread, NULL, grow_in_thread, NULL));
    ERR(pthread_join(thread, &result));
    YES(result == (void *)1);
}

int main(void)
{
    start_in_dir();
    struct sigaction act = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    sigaction(SIGSEGV, &act, NULL);
    sigaction(SIGBUS, &act, NULL);
    file_end();
    segv_codes();
    efault();
    child("stack grows", stack_grows);
    child("stack overflows", stack_overflows);
    grows_down();
    return 0;
}
