/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a sequence of memory operations: sentry/mm and a page-by-page model stay equal. */
#include "tests/unit/mm_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct world w;
    struct model_input in = {.bytes = bytes, .size = size < 1500 ? size : 1500};
    world_init(&w);
    while (in.at < in.size)
        world_step(&w, &in);
    world_fini(&w);
    return 0;
}
