/* SPDX-License-Identifier: Apache-2.0 */
/* Large numbers: 500 threads, 200 processes, 10,000 descriptors, a 4 GiB file, many mappings and pipes. */
#include "show.h"
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>

static pthread_barrier_t barrier;
static int count;

static void *meet(void *unused)
{
    pthread_barrier_wait(&barrier);
    __atomic_add_fetch(&count, 1, __ATOMIC_RELAXED);
    return unused;
}

static void threads(void)
{
    static pthread_t all[500];
    pthread_attr_t attr;
    int created = 0;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, 65536);
    pthread_barrier_init(&barrier, NULL, 501);
    for (int i = 0; i < 500; i++)
        created += pthread_create(&all[i], &attr, meet, NULL) == 0;
    VAL(created);
    if (created < 500)
        exit(1);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 500; i++)
        pthread_join(all[i], NULL);
    VAL(count);
}

static void processes(void)
{
    int go[2], sum = 0, forked = 0, status;
    char byte;
    OK(pipe(go));
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (pid == 0) {
            close(go[1]);
            _exit(read(go[0], &byte, 1) == 0 ? i : 255); /* all are alive until the pipe closes */
        }
        forked += pid > 0;
    }
    VAL(forked);
    close(go[1]);
    while (wait(&status) > 0)
        sum += WEXITSTATUS(status);
    VAL(sum);
}

static void descriptors(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    if (limit.rlim_max < 10100) {
        limit.rlim_max = 20000;
    }
    limit.rlim_cur = limit.rlim_max;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    int opened = 0, first = -1;
    for (int i = 0; i < 10000; i++) {
        int fd = open("/dev/null", O_RDONLY);
        opened += fd >= 0;
        if (first < 0)
            first = fd;
    }
    VAL(opened);
    for (int i = 0; i < 10000; i++)
        close(first + i);
    OK(fcntl(first + 9999, F_GETFD));
}

static void large_file(void)
{
    off_t end = (4L << 30) - 1;
    char byte = 0;
    int fd = make_file("large", "");
    VAL(pwrite(fd, "e", 1, end));
    VAL(lseek(fd, 0, SEEK_END));
    VAL(pread(fd, &byte, 1, end));
    VAL(byte == 'e');
    char *m = mmap(NULL, 4UL << 30, PROT_READ, MAP_SHARED, fd, 0);
    YES(m != MAP_FAILED && m[end] == 'e' && m[2L << 30] == 0);
    munmap(m, 4UL << 30);
    struct stat st;
    fstat(fd, &st);
    YES(st.st_blocks < 1000);
}

static void mappings(void)
{
    size_t page = 4096, made = 0;
    char *m = mmap(NULL, 20000 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < 20000; i += 2)
        made += mprotect(m + i * page, page, PROT_READ) == 0;
    VAL((long)made);
    m[page] = 1;
    YES(m[page] == 1 && m[0] == 0);
    OK(munmap(m, 20000 * page));
}

static void many_pipes(void)
{
    static int p[1000][2];
    struct epoll_event event = {.events = EPOLLIN};
    int ep = epoll_create1(0), made = 0, ready = 0;
    for (int i = 0; i < 1000; i++) {
        made += pipe(p[i]) == 0;
        event.data.fd = p[i][0];
        epoll_ctl(ep, EPOLL_CTL_ADD, p[i][0], &event);
    }
    VAL(made);
    char byte = 'x';
    for (int i = 0; i < 1000; i += 10)
        made -= write(p[i][1], &byte, 1) == 1;
    while (epoll_wait(ep, &event, 1, 0) == 1)
        ready += read(event.data.fd, &byte, 1) == 1;
    VAL(ready);
}

int main(void)
{
    start_in_dir();
    threads();
    processes();
    descriptors();
    large_file();
    mappings();
    many_pipes();
    return 0;
}
