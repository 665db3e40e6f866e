/* SPDX-License-Identifier: Apache-2.0 */
/* sentry/mm against a brute-force model: random sequences of operations. */
#include "tests/unit/mm_model.h"

#include <criterion/criterion.h>

#define BYTES_A_RUN 4000

static void run(uint64_t seed)
{
    static uint8_t bytes[BYTES_A_RUN];
    for (size_t i = 0; i < sizeof(bytes); i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        bytes[i] = (uint8_t)(seed >> 56);
    }
    static struct world w;
    struct model_input in = {.bytes = bytes, .size = sizeof(bytes)};
    world_init(&w);
    while (in.at < in.size) {
        world_step(&w, &in);
        world_check(&w);
    }
    world_fini(&w);
}

Test(mm_random, every_operation_agrees_with_a_page_by_page_model)
{
    for (uint64_t seed = 1; seed <= 60; seed++)
        run(seed);
    cr_assert(true);
}
