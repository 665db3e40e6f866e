/* SPDX-License-Identifier: Apache-2.0 */
/* A control message as a hostile sentry may send it to the CLI. */
#include "base/log.h"
#include "sentry/control/control.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct control_message message;
    if (control_decode(bytes, size, &message) < 0)
        return 0;
    ASSERT(message.kind < CONTROL_KIND_COUNT);
    ASSERT(strlen(message.text) == message.text_size);
    return 0;
}
