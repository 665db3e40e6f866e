/* SPDX-License-Identifier: Apache-2.0 */
/* Maps, reads and unmaps files in a loop in several processes and threads for some seconds, then idles. */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *g_file;

static void *loop(void *arg)
{
    volatile char sink = 0;
    time_t end = time(NULL) + 3;
    (void)arg;
    while (time(NULL) < end) {
        int fd = open(g_file, O_RDONLY);
        char *at = mmap(NULL, 4096, PROT_READ, fd % 2 ? MAP_PRIVATE : MAP_SHARED, fd, 0);
        close(fd);
        if (fd < 0 || at == MAP_FAILED)
            exit(1);
        sink = (char)(sink + at[0]);
        munmap(at, 4096);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    char line[16];
    if (argc != 2)
        return 2;
    g_file = argv[1];
    puts("start");
    fflush(stdout);
    pid_t pid = fork();
    pthread_t thread;
    if (pthread_create(&thread, NULL, loop, NULL) != 0)
        return 3;
    loop(NULL);
    pthread_join(thread, NULL);
    if (pid == 0)
        _exit(0);
    int status;
    if (waitpid(pid, &status, 0) != pid || status != 0)
        return 4;
    puts("idle");
    fflush(stdout);
    return fgets(line, sizeof line, stdin) == NULL;
}
