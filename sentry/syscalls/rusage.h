/* SPDX-License-Identifier: Apache-2.0 */
/* struct rusage of x86-64 and its filling. getrusage(2). */
#pragma once

#include <assert.h>
#include <stdint.h>

struct linux_timeval {
    int64_t sec, usec;
};
struct linux_rusage {
    struct linux_timeval utime, stime;
    int64_t maxrss, ixrss, idrss, isrss, minflt, majflt, nswap, inblock, oublock, msgsnd, msgrcv;
    int64_t nsignals, nvcsw, nivcsw;
};
static_assert(sizeof(struct linux_rusage) == 144, "rusage");

static inline void rusage_set_times(struct linux_rusage *u, uint64_t utime_ns, uint64_t stime_ns)
{
    u->utime = (struct linux_timeval){(int64_t)(utime_ns / 1000000000u),
                                      (int64_t)(utime_ns % 1000000000u / 1000)};
    u->stime = (struct linux_timeval){(int64_t)(stime_ns / 1000000000u),
                                      (int64_t)(stime_ns % 1000000000u / 1000)};
}
