/* SPDX-License-Identifier: Apache-2.0 */
/* Times one operation: the best of five rounds, printed as nanoseconds for one. */
#pragma once

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static inline double now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static inline int bench(void (*once)(void), long count)
{
    double best = 0;
    for (int round = 0; round < 5; round++) {
        double begin = now_ns();
        for (long i = 0; i < count; i++)
            once();
        double each = (now_ns() - begin) / (double)count;
        if (round == 0 || each < best)
            best = each;
    }
    printf("%.1f\n", best);
    return 0;
}
