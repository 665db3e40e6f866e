/* SPDX-License-Identifier: Apache-2.0 */
/* Option values: the first byte chooses the parser, the rest is the text. */
#include "base/log.h"
#include "runsc-compat/cli/values.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void parse(unsigned which, const char *text)
{
    static struct value_mount mount;
    struct err err = {0};
    struct value_user user;
    uint64_t big;
    uint32_t small;
    char clean[256];
    int result = 0;
    switch (which % 6) {
    case 0:
        result = value_size("--x", text, &big, &err);
        break;
    case 1:
        result = value_cpus("--x", text, &small, &err);
        break;
    case 2:
        result = value_duration("--x", text, &big, &err);
        break;
    case 3:
        result = value_user("--x", text, &user, &err);
        break;
    case 4:
        result = value_mount("--x", text, &mount, &err);
        break;
    case 5:
        if (path_clean(text, clean, sizeof(clean)))
            ASSERT(clean[0] == '/' && !strstr(clean, "/../") && !strstr(clean, "//"));
        break;
    }
    ASSERT((result == 0) == (err.text[0] == '\0'));
    for (const char *p = err.text; *p; p++)
        ASSERT(*p >= 0x20 && *p < 0x7f);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size < 1)
        return 0;
    char *text = strndup((const char *)bytes + 1, size - 1);
    if (text)
        parse(bytes[0], text);
    free(text);
    return 0;
}
