/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A sentry built with sanitizers (BAILEY_SANITIZED: tests only): their report goes into the log, and their run
 * time may make the few calls that it needs to write one. Nothing in every other build.
 */
#pragma once

#ifdef BAILEY_SANITIZED
/* Host calls of the run times, for the filter. */
#define SANITIZED_SYSCALLS                                                                         \
    SYS_getpid, SYS_gettid, SYS_open, SYS_openat, SYS_readlink, SYS_stat, SYS_rt_sigprocmask,          \
        SYS_rt_sigaction, SYS_sigaltstack, SYS_sched_yield, SYS_getrlimit, SYS_prlimit64, SYS_writev,  \
        SYS_clock_gettime, SYS_nanosleep, SYS_clock_nanosleep, SYS_getuid, SYS_getrusage, SYS_dup,     \
        SYS_sysinfo, SYS_pipe2, SYS_read,
/* Reports go to `log_hfd` (borrowed) from now on. */
void sanitized_init(int log_hfd);
#else
#define SANITIZED_SYSCALLS
static inline void sanitized_init(int log_hfd)
{
    (void)log_hfd;
}
#endif
