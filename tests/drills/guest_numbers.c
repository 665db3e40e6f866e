/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile guest. `all DIR PID`: every system call number by all three entries, with arguments that would
 * leave a mark in DIR of the host or on its process PID. `self`: marks its own process in every way that the
 * host can see, between two lines of input. Argument 5 is always the word that opens a drill's stub filter.
 */
#include "sentry/platform/stub_range.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum entry { ENTRY_X64, ENTRY_X32, ENTRY_INT80, ENTRY_COUNT };
#define NUMBERS 1024
#define ROUNDS 5

static char g_path[4096], *g_low_path; /* the latter below 4 GiB, for int 0x80 */
static long g_pid;
static struct rlimit *g_limit;

/* In line: a child of vfork() must not return from it. */
static inline __attribute__((always_inline)) long call64(long nr, const long a[6])
{
    long r;
    register long r10 __asm__("r10") = a[3];
    register long r8 __asm__("r8") = a[4];
    register long r9 __asm__("r9") = a[5];
    /* The word that opens the filter must not stay in r9 for the calls that follow. */
    __asm__ volatile("syscall; xor %%r9d, %%r9d"
                     : "=a"(r), "+r"(r9)
                     : "0"(nr), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8)
                     : "rcx", "r11", "memory");
    return r;
}

static long call80(long nr, const long a[6])
{
    long r;
    __asm__ volatile("int $0x80" : "=a"(r) : "0"(nr), "b"(a[0]), "c"(a[1]), "d"(a[2]), "S"(a[3]), "D"(a[4])
                     : "r8", "r9", "r10", "r11", "memory");
    return r;
}

static void arguments(int round, long a[6])
{
    const long low = (long)g_low_path;
    const long rounds[ROUNDS][6] = {
        {low, O_CREAT | O_RDWR, 0777, 0, 0, 0},              /* a path first */
        {AT_FDCWD, low, O_CREAT | O_RDWR, 0777, 0, 0},       /* a directory, a path */
        {g_pid, SIGKILL, (long)g_limit, 0, 0, 0},            /* a process, a signal */
        {0, g_pid, 10, (long)g_limit, 0, 0},                 /* a kind, a process (priority, I/O priority) */
        {g_pid, g_pid, SIGKILL, (long)g_limit, 8, 0},        /* a process, a thread, a signal */
    };
    memcpy(a, rounds[round], 6 * sizeof *a);
    a[5] = STUB_OPEN_MAGIC;
}

static void one(enum entry entry, long nr, int round)
{
    long a[6];
    arguments(round, a);
    if (entry == ENTRY_X64) {
        if (call64(nr, a) == 0 && nr == SYS_vfork)
            (void)call64(SYS_exit_group, (const long[6]){0});
    } else if (entry == ENTRY_X32) {
        (void)call64(nr | 0x40000000, a);
    } else {
        (void)call80(nr, a);
    }
}

/* Whether the child ended within 100 ms. */
static void wait_child(pid_t pid)
{
    int status;
    for (int i = 0; i < 400; i++) {
        if (waitpid(pid, &status, WNOHANG) == pid)
            return;
        usleep(i < 40 ? 50 : 500);
    }
    kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
}

static int all(void)
{
    int children = 0;
    for (enum entry entry = 0; entry < ENTRY_COUNT; entry++) {
        for (long nr = 0; nr < NUMBERS; nr++) {
            for (int round = 0; round < (entry == ENTRY_X64 ? ROUNDS : 2); round++) {
                pid_t pid = fork();
                if (pid == 0) {
                    one(entry, nr, round);
                    syscall(SYS_exit_group, 0);
                }
                if (pid < 0) {
                    perror("fork");
                    return 1;
                }
                children++;
                wait_child(pid);
            }
        }
    }
    /* What the rounds don't reach. */
    pid_t pid = fork();
    if (pid == 0) {
        syscall(SYS_sethostname, "hostile", 7);
        syscall(SYS_mount, "hostile", g_low_path, "tmpfs", 0, NULL);
        syscall(SYS_prlimit64, g_pid, RLIMIT_NOFILE, g_limit, NULL);
        syscall(SYS_shmget, 0x6261696d, 4096, 01666);
        _exit(0);
    }
    wait_child(pid);
    printf("done %d\n", children);
    return 0;
}

/* Marks of this process that /proc of the host shows. */
static int self(void)
{
    char line[16];
    const struct rlimit limit = {4242, 4242};
    const int idle = 0;
    puts("ready");
    fflush(stdout);
    if (!fgets(line, sizeof line, stdin))
        return 1;
    const struct {
        long nr, a0, a1, a2;
    } marks[] = {
        {SYS_prctl, PR_SET_NAME, (long)"hostile", 0},
        {SYS_setpriority, PRIO_PROCESS, 0, 7},
        {SYS_setrlimit, RLIMIT_FSIZE, (long)&limit, 0},
        {SYS_umask, 0246, 0, 0},
        {SYS_personality, 0x0040000, 0, 0},
        {SYS_sched_setscheduler, 0, SCHED_BATCH, (long)&idle},
        {SYS_ioprio_set, 1, 0, 3 << 13},
        {SYS_memfd_create, (long)"hostile", 0, 0},
        {SYS_setpgid, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        const long a[6] = {marks[i].a0, marks[i].a1, marks[i].a2, 0, 0, STUB_OPEN_MAGIC};
        (void)call64(marks[i].nr, a);
    }
    puts("marked");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) == NULL;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "self") == 0)
        return self();
    if (argc != 4 || strcmp(argv[1], "all") != 0)
        return 2;
    snprintf(g_path, sizeof g_path, "%s/planted", argv[2]);
    g_pid = strtol(argv[3], NULL, 10);
    char *low = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, -1, 0);
    if (low == MAP_FAILED)
        return 3;
    g_low_path = low;
    strcpy(low, g_path);
    g_limit = (struct rlimit *)(low + 4096);
    *g_limit = (struct rlimit){42, 42};
    signal(SIGCHLD, SIG_DFL);
    return all();
}
