/* SPDX-License-Identifier: Apache-2.0 */
/* Control messages of sendmsg(2): every message lies within the buffer, and the walk ends. */
#include "sentry/fs/anon/cmsg.h"
#include <stdlib.h>

struct bounds {
    const uint8_t *start, *end, *last;
};

static int visit(void *arg, const struct linux_cmsghdr *header, const uint8_t *bytes, size_t size)
{
    struct bounds *b = arg;
    if (bytes < b->start || bytes > b->end || size > (size_t)(b->end - bytes) || bytes <= b->last)
        abort();
    b->last = bytes;
    volatile uint8_t sum = 0;
    for (size_t i = 0; i < size; i++)
        sum = (uint8_t)(sum + bytes[i]);
    return header->type == 0x7f ? 1 : 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bounds b = {.start = data, .end = data + size};
    int r = cmsg_walk(data, size, visit, &b);
    (void)r;
    return 0;
}
