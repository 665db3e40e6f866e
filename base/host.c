/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one place of raw host system calls in C code (the stub has its own). Any thread or fiber: no
 * errno, no thread-local storage.
 */
#include "base/host.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

/* #syscalls close: descriptors that release themselves
 * #syscalls write: host_write_all
 * #syscalls clock_gettime: only where the host's clock source has no vDSO fast path */

/* SAFETY: the x86-64 system call convention: number in rax, arguments in rdi rsi rdx r10 r8 r9; rcx and
 * r11 are clobbered. "memory", for the kernel reads and writes what the arguments point to. */
long host_syscall(long nr, long a0, long a1, long a2, long a3, long a4, long a5)
{
    long result;
    register long r10 __asm__("r10") = a3;
    register long r8 __asm__("r8") = a4;
    register long r9 __asm__("r9") = a5;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "0"(nr), "D"(a0), "S"(a1), "d"(a2), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}

void host_close(int hfd)
{
    if (hfd >= 0)
        (void)host_call1(SYS_close, hfd);
}

ssize_t host_write_all(int hfd, const void *bytes, size_t size)
{
    const char *next = bytes;
    while (size) {
        long written = host_call3(SYS_write, hfd, next, size);
        if (written == -EINTR)
            continue;
        if (written < 0)
            return written;
        if (written == 0)
            return -EIO;
        next += written;
        size -= (size_t)written;
    }
    return 0;
}

/* The libc enters the vDSO and sets errno only on failure, which these two clocks never have. */
uint64_t host_monotonic_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int64_t host_realtime_ns(void)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

void host_close_auto(int *hfd)
{
    host_close(*hfd);
    *hfd = -1;
}

int take_fd(int *hfd)
{
    int taken = *hfd;
    *hfd = -1;
    return taken;
}

void free_auto(void *pointer_to_pointer)
{
    free(*(void **)pointer_to_pointer);
}
