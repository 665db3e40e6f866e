/* SPDX-License-Identifier: Apache-2.0 */
/* The sentry's configuration blob: whatever decodes encodes to the same bytes again. */
#include "base/log.h"
#include "base/wire.h"
#include "sentry/control/control.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct control_config config;
    if (control_config_decode(bytes, size, &config) < 0)
        return 0;
    struct wire_writer w;
    wire_writer_init(&w, CONTROL_BLOB_MAX);
    control_config_encode(&config, &w);
    ASSERT(!w.failed && w.size == size && memcmp(w.bytes, bytes, size) == 0);
    wire_writer_fini(&w);
    control_config_fini(&config);
    return 0;
}
