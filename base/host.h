/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host system calls that return 0/count or -errno and never touch `errno`: fibers move between host
 * threads, so sentry code may not use thread-local storage across a switch. Any thread.
 *
 * Callers declare each system call that they make in a comment of the form
 *     #syscalls NAME[,NAME...]: reason
 * The build collects these lines of a process's sources into its seccomp filter.
 */
#pragma once

#include "base/compiler.h"
#include <stdint.h>
#include <sys/types.h>

/* SAFETY: a raw system call; the wrappers below and in the modules that own a descriptor type are its
 * only users. Returns the kernel's value: -errno on failure. */
long host_syscall(long nr, long a0, long a1, long a2, long a3, long a4, long a5);

#define HOST_ARG(x) ((long)(x))
#define host_call0(nr) host_syscall(nr, 0, 0, 0, 0, 0, 0)
#define host_call1(nr, a) host_syscall(nr, HOST_ARG(a), 0, 0, 0, 0, 0)
#define host_call2(nr, a, b) host_syscall(nr, HOST_ARG(a), HOST_ARG(b), 0, 0, 0, 0)
#define host_call3(nr, a, b, c) host_syscall(nr, HOST_ARG(a), HOST_ARG(b), HOST_ARG(c), 0, 0, 0)
#define host_call4(nr, a, b, c, d)                                                                 \
    host_syscall(nr, HOST_ARG(a), HOST_ARG(b), HOST_ARG(c), HOST_ARG(d), 0, 0)
#define host_call5(nr, a, b, c, d, e)                                                              \
    host_syscall(nr, HOST_ARG(a), HOST_ARG(b), HOST_ARG(c), HOST_ARG(d), HOST_ARG(e), 0)
#define host_call6(nr, a, b, c, d, e, f)                                                           \
    host_syscall(nr, HOST_ARG(a), HOST_ARG(b), HOST_ARG(c), HOST_ARG(d), HOST_ARG(e), HOST_ARG(f))

void host_close(int hfd); /* closing -1 is a no-op; errors are ignored (the descriptor is gone) */
ssize_t host_write_all(int hfd, const void *bytes, size_t size); /* 0 or -errno; retries EINTR */

/* CLOCK_MONOTONIC / CLOCK_REALTIME in nanoseconds, by the vDSO: never fails, no system call. */
uint64_t host_monotonic_ns(void);
int64_t host_realtime_ns(void);

/* Local descriptors that release themselves: AUTO_FD(hfd) = -1; leave by `return take_fd(&hfd)`. */
void host_close_auto(int *hfd);
int take_fd(int *hfd);
#define AUTO_FD CLEANUP(host_close_auto) int

void free_auto(void *pointer_to_pointer);
#define AUTO_FREE CLEANUP(free_auto)
