/* SPDX-License-Identifier: Apache-2.0 */
/* What a hostile sentry executes: tells the CLI that it did. No libraries are there. */
#include "sentry/control/control.h"
#include <string.h>
#include <unistd.h>

int main(void)
{
    static const char text[] = "drill: a program was executed";
    const uint32_t head[2] = {CONTROL_EXIT, sizeof text - 1};
    const uint64_t values[2] = {41, 0};
    char message[CONTROL_HEADER_SIZE + sizeof text];
    memcpy(message, head, sizeof head);
    memcpy(message + 8, values, sizeof values);
    memcpy(message + CONTROL_HEADER_SIZE, text, sizeof text - 1);
    return write(CONTROL_FD, message, CONTROL_HEADER_SIZE + sizeof text - 1) < 0;
}
