/* SPDX-License-Identifier: Apache-2.0 */
/* fork, exit in the child, wait for it. */
#include "bench.h"
#include <stdlib.h>
#include <sys/wait.h>

static void once(void)
{
    pid_t pid = fork();
    if (pid == 0)
        _exit(0);
    if (pid < 0 || waitpid(pid, NULL, 0) != pid)
        exit(1);
}

int main(void)
{
    return bench(once, 1000);
}
