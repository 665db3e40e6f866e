/* SPDX-License-Identifier: Apache-2.0 */
/* read(2) of one byte of /dev/zero. */
#include "bench.h"
#include <fcntl.h>
#include <stdlib.h>

static int fd;

static void once(void)
{
    char byte;
    if (read(fd, &byte, 1) != 1)
        exit(1);
}

int main(void)
{
    fd = open("/dev/zero", O_RDONLY);
    if (fd < 0)
        return 1;
    return bench(once, 100000);
}
