/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as the head of a script: what is accepted is terminated, comes from the line, and holds
 * no blank where none may be.
 */
#include "loader/loader.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct loader_script script;
    if (loader_parse_script(bytes, size, &script) < 0)
        return 0;
    require(size >= 2 && bytes[0] == '#' && bytes[1] == '!');
    size_t len = strnlen(script.interpreter, sizeof(script.interpreter));
    size_t argument_len = strnlen(script.argument, sizeof(script.argument));
    require(len + argument_len <= LOADER_HEAD_SIZE - 3);
    require(strpbrk(script.interpreter, " \t\n") == NULL && strchr(script.argument, '\n') == NULL);
    require(script.has_argument || argument_len == 0);
    require(len > 0 || !script.has_argument);
    if (script.has_argument)
        require(script.argument[0] != ' ' && script.argument[0] != '\t');
    require(size >= 2 + len && memmem(bytes, size, script.interpreter, len) != NULL);
    return 0;
}
