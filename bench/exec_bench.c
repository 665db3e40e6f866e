/* SPDX-License-Identifier: Apache-2.0 */
/* fork, exec of a dynamic program, wait for it. */
#include "bench.h"
#include <stdlib.h>
#include <sys/wait.h>

static void once(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/true", "true", (char *)NULL);
        _exit(127);
    }
    int status;
    if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
        exit(1);
}

int main(void)
{
    return bench(once, 200);
}
