/* SPDX-License-Identifier: Apache-2.0 */
/* Arithmetic and memory without system calls. */
#include "bench.h"

static unsigned table[1 << 16];
static unsigned state = 1;

static void once(void)
{
    for (int i = 0; i < 1000000; i++) {
        state = state * 1664525u + 1013904223u;
        table[state >> 16] += state;
    }
}

int main(void)
{
    return bench(once, 500);
}
