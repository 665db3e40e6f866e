/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Driver of a fuzz target in builds without libFuzzer: runs each seed of a corpus directory once, so
 * that every preset runs every seed. No seeds is a failure: it means that the corpus was lost.
 */
#include <dirent.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static int run_seed(int dir_fd, const char *name)
{
    int hfd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (hfd < 0 || fstat(hfd, &st) < 0) {
        perror(name);
        return -1;
    }
    size_t size = (size_t)st.st_size;
    uint8_t *bytes = malloc(size ? size : 1); /* exact size: a sanitizer sees any overrun */
    if (!bytes || read(hfd, bytes, size) != st.st_size) {
        perror(name);
        close(hfd);
        free(bytes);
        return -1;
    }
    close(hfd);
    LLVMFuzzerTestOneInput(bytes, size);
    free(bytes);
    return 0;
}

int main(int argc, char **argv)
{
    DIR *dir = argc == 2 ? opendir(argv[1]) : NULL;
    if (!dir) {
        fprintf(stderr, "usage: %s CORPUS_DIRECTORY (which must exist)\n", argv[0]);
        return 1;
    }
    int count = 0;
    int failed = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        failed |= run_seed(dirfd(dir), entry->d_name);
        count++;
    }
    closedir(dir);
    printf("%d seeds replayed\n", count);
    return failed || count == 0;
}
