/* SPDX-License-Identifier: Apache-2.0 */
/* A guest's passwd file. */
#include "base/log.h"
#include "sentry/control/control.h"

#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    struct control_user user;
    if (control_find_user((const char *)bytes, size, "root", 0, &user) == 0)
        ASSERT(user.home[0] == '/' && memchr(user.home, 0, sizeof(user.home)));
    if (control_find_user((const char *)bytes, size, NULL, 1000, &user) == 0)
        ASSERT(user.uid == 1000);
    return 0;
}
