/* SPDX-License-Identifier: Apache-2.0 */
/* First touch of an anonymous page: 64 MiB by 4 KiB, without huge pages, one mapping for all rounds. */
#include "bench.h"
#include <stdlib.h>
#include <sys/mman.h>

#define SIZE (64u << 20)

static volatile char *area;
static size_t at;

static void once(void)
{
    area[at] = 1;
    at += 4096;
    if (at == SIZE) {
        if (madvise((void *)area, SIZE, MADV_DONTNEED) < 0)
            exit(1);
        at = 0;
    }
}

int main(void)
{
    area = mmap(NULL, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (area == MAP_FAILED)
        return 1;
    madvise((void *)area, SIZE, MADV_NOHUGEPAGE);
    return bench(once, 4 * (SIZE / 4096));
}
