/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that map, move, protect, drop and unmap at the same time, with forks in between. */
#include "show.h"
#include <pthread.h>
#include <sys/mman.h>

#define P       4096UL
#define THREADS 4
#define AREAS   16
#define STEPS   600

struct area {
    unsigned char *at;
    size_t pages;
    unsigned char mark;
};

static bool holds(const struct area *a, unsigned char value)
{
    for (size_t i = 0; i < a->pages; i++)
        if (a->at[i * P] != value)
            return false;
    return true;
}

static void fill(struct area *a)
{
    for (size_t i = 0; i < a->pages; i++)
        a->at[i * P] = a->mark;
}

static bool make(struct area *a, size_t pages, unsigned char mark, void *at)
{
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0);
    a->at = mmap(at, pages * P, PROT_READ | PROT_WRITE, flags, -1, 0);
    a->pages = pages;
    a->mark = mark;
    bool fine = a->at != MAP_FAILED && (at == NULL || a->at == at) && holds(a, 0);
    if (fine)
        fill(a);
    return fine;
}

static bool move(struct area *a, size_t pages)
{
    unsigned char *at = mremap(a->at, a->pages * P, pages * P, MREMAP_MAYMOVE);
    if (at == MAP_FAILED)
        return false;
    struct area more = {at + a->pages * P, pages > a->pages ? pages - a->pages : 0, 0};
    bool fine = holds(&more, 0);
    *a = (struct area){at, pages, a->mark};
    fine = fine && at[0] == a->mark;
    fill(a);
    return fine;
}

static bool in_child(const struct area *a)
{
    pid_t pid = fork();
    if (pid == 0) {
        struct area mine;
        bool fine =
            holds(a, a->mark) && munmap(a->at, a->pages * P) == 0 && make(&mine, 3, 1, NULL);
        _exit(fine ? 0 : 1);
    }
    int status;
    return waitpid(pid, &status, 0) == pid && status == 0;
}

static bool step(struct area *a, unsigned what, size_t pages, unsigned char mark)
{
    if (a->at == NULL)
        return make(a, pages, mark, NULL);
    if (!holds(a, a->mark))
        return false;
    if (what < 3) {
        unsigned char *old = a->at;
        a->at = NULL;
        return munmap(old, a->pages * P) == 0;
    }
    if (what == 3)
        return mprotect(a->at, a->pages * P, PROT_READ) == 0 && holds(a, a->mark) &&
               mprotect(a->at, a->pages * P, PROT_READ | PROT_WRITE) == 0;
    if (what == 4)
        return move(a, pages);
    if (what == 5) {
        bool fine = madvise(a->at, a->pages * P, MADV_DONTNEED) == 0 && holds(a, 0);
        fill(a);
        return fine;
    }
    if (what == 6 && mark % 16 == 0)
        return in_child(a);
    return make(a, a->pages, mark, a->at);
}

static void *run(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg * 7919 + 1;
    struct area areas[AREAS] = {{0}};
    for (unsigned i = 0; i < STEPS; i++) {
        seed = seed * 1103515245 + 12345;
        unsigned r = seed >> 12;
        if (!step(&areas[r % AREAS], r / AREAS % 8, 1 + r / 128 % 20, (unsigned char)(i + 1)))
            return "wrong";
    }
    return "fine";
}

int main(void)
{
    start();
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++)
        ERR(pthread_create(&threads[i], NULL, run, (void *)i));
    for (int i = 0; i < THREADS; i++) {
        void *result;
        ERR(pthread_join(threads[i], &result));
        printf("%s\n", (char *)result);
    }
    return 0;
}
