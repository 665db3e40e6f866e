/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a sequence of memory operations: sentry/mm and a page-by-page model stay equal. */
#include "tests/unit/mm_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct world w;
    struct model_input in = {.bytes = bytes, .size = size < 1500 ? size : 1500};
    world_init(&w);
    for (int i = 1; in.at < in.size; i++) {
        world_step(&w, &in);
        if (i % 16 == 0)
            world_check(&w);
    }
    world_check(&w);
    world_fini(&w);
    return 0;
}
