/* SPDX-License-Identifier: Apache-2.0 */
/* Limits, prctl, uname, sysinfo, usage, randomness, scheduling. */
#include "show.h"
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/times.h>
#include <sys/utsname.h>

static int limits_child(void)
{
    struct rlimit limit = {100, 200}, got;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    OK(getrlimit(RLIMIT_NOFILE, &got));
    printf("%ld %ld\n", (long)got.rlim_cur, (long)got.rlim_max);
    limit.rlim_cur = 201;
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    OK(setrlimit((__rlimit_resource_t)99, &limit));
    OK(getrlimit((__rlimit_resource_t)99, &limit));
    OK(syscall(SYS_setrlimit, RLIMIT_CORE, 8));
    limit = (struct rlimit){64 << 20, 64 << 20};
    limit.rlim_cur = limit.rlim_max = 1UL << 30;
    OK(prlimit(0, RLIMIT_AS, &limit, NULL));
    OK(mmap(NULL, 2UL << 30, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    OK(mmap(NULL, 1UL << 20, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    pid_t pid = fork();
    if (pid == 0)
        _exit(getrlimit(RLIMIT_NOFILE, &got) == 0 && got.rlim_max == 200 ? 3 : 1);
    reap("inherited", pid);
    OK(prlimit(getppid(), RLIMIT_NOFILE, NULL, &got));
    YES(got.rlim_cur != 100);
    OK(prlimit(1 << 29, RLIMIT_NOFILE, NULL, &got));
    if (setuid(65534) < 0)
        return 1;
    limit = (struct rlimit){50, 300};
    OK(setrlimit(RLIMIT_NOFILE, &limit)); /* only root may raise */
    limit = (struct rlimit){200, 200};
    OK(setrlimit(RLIMIT_NOFILE, &limit));
    return 0;
}

static int cpu_limit(void)
{
    struct rlimit limit = {1, 2};
    setrlimit(RLIMIT_CPU, &limit);
    while (clock() < 60 * CLOCKS_PER_SEC)
        continue;
    return 0;
}

static void *thread_name(void *unused)
{
    char name[16] = "";
    prctl(PR_GET_NAME, name);
    printf("thread: %s\n", name);
    prctl(PR_SET_NAME, "other");
    return unused;
}

static void controls(void)
{
    char name[16] = "";
    int value = -1;
    pthread_t thread;
    OK(prctl(PR_SET_NAME, "a name of more than fifteen"));
    OK(prctl(PR_GET_NAME, name));
    printf("%s\n", name);
    pthread_create(&thread, NULL, thread_name, NULL);
    pthread_join(thread, NULL);
    OK(prctl(PR_GET_NAME, name));
    printf("%s\n", name);
    OK(prctl(PR_SET_NAME, 8));
    FILE *comm = fopen("/proc/self/comm", "w+");
    YES(comm && fprintf(comm, "written\n") > 0 && fflush(comm) == 0);
    OK(prctl(PR_GET_NAME, name));
    printf("%s\n", name);
    OK(prctl(PR_SET_PDEATHSIG, SIGUSR1));
    OK(prctl(PR_GET_PDEATHSIG, &value));
    VAL(value);
    OK(prctl(PR_SET_PDEATHSIG, 99));
    OK(prctl(PR_SET_PDEATHSIG, 0));
    VAL(prctl(PR_GET_DUMPABLE));
    OK(prctl(PR_SET_DUMPABLE, 0));
    VAL(prctl(PR_GET_DUMPABLE));
    OK(prctl(PR_SET_DUMPABLE, 2));
    OK(prctl(PR_SET_DUMPABLE, 1));
    VAL(prctl(PR_GET_TIMERSLACK) > 0);
    OK(prctl(PR_SET_TIMERSLACK, 100000));
    VAL(prctl(PR_GET_TIMERSLACK));
    VAL(prctl(PR_GET_SECCOMP));
    OK(prctl(987654));
    OK(prctl(PR_SET_NO_NEW_PRIVS, 2, 0, 0, 0));
}

static void identity(void)
{
    struct utsname name;
    struct sysinfo info;
    char host[65];
    OK(uname(&name));
    YES(strcmp(name.sysname, "Linux") == 0 && strcmp(name.machine, "x86_64") == 0);
    YES(atoi(name.release) >= 5 && name.version[0] && name.nodename[0]);
    OK(gethostname(host, sizeof(host)));
    YES(strcmp(host, name.nodename) == 0);
    OK(syscall(SYS_uname, 8));
    OK(sysinfo(&info));
    YES(info.uptime > 0 && info.totalram > 0 && info.freeram <= info.totalram && info.mem_unit > 0 && info.procs > 0);
    OK(syscall(SYS_sysinfo, 8));
    YES(sysconf(_SC_NPROCESSORS_ONLN) >= 1 && sysconf(_SC_PHYS_PAGES) > 0 && sysconf(_SC_PAGESIZE) == 4096);
}

static void usage(void)
{
    struct rusage before, after, children;
    struct tms t;
    volatile long sum = 0;
    getrusage(RUSAGE_SELF, &before);
    clock_t end = clock() + CLOCKS_PER_SEC / 20;
    while (clock() < end)
        sum++;
    OK(getrusage(RUSAGE_SELF, &after));
    YES(after.ru_utime.tv_sec * 1000000 + after.ru_utime.tv_usec + after.ru_stime.tv_sec * 1000000 +
            after.ru_stime.tv_usec >
        before.ru_utime.tv_sec * 1000000 + before.ru_utime.tv_usec);
    OK(getrusage(RUSAGE_THREAD, &after));
    OK(getrusage(RUSAGE_CHILDREN, &children));
    OK(getrusage(99, &after));
    OK(syscall(SYS_getrusage, RUSAGE_SELF, 8));
    YES(times(&t) != (clock_t)-1);
    VAL(sysconf(_SC_CLK_TCK));
}

static void randomness(void)
{
    unsigned char a[256], b[256];
    VAL(getrandom(a, sizeof(a), 0));
    VAL(getrandom(b, sizeof(b), GRND_NONBLOCK));
    YES(memcmp(a, b, sizeof(a)) != 0);
    VAL(getrandom(a, 16, GRND_RANDOM));
    VAL(getrandom(a, 0, 0));
    OK(getrandom(a, 16, 0x100));
    OK(syscall(SYS_getrandom, 8, 16, 0));
    int fd = open("/dev/urandom", O_RDONLY);
    VAL(read(fd, a, sizeof(a)));
    VAL(read(open("/dev/random", O_RDONLY), b, sizeof(b)));
    YES(memcmp(a, b, sizeof(a)) != 0);
}

static void scheduling(void)
{
    cpu_set_t set, saved;
    unsigned cpu = 999, node = 999;
    OK(sched_getaffinity(0, sizeof(saved), &saved));
    size_t first = 0;
    while (!CPU_ISSET(first, &saved))
        first++;
    CPU_ZERO(&set);
    CPU_SET(first, &set);
    OK(sched_setaffinity(0, sizeof(set), &set));
    OK(sched_getaffinity(0, sizeof(set), &set));
    VAL(CPU_COUNT(&set));
    OK(getcpu(&cpu, &node));
    YES(cpu == first);
    VAL(sched_getcpu() == (int)first);
    CPU_ZERO(&set);
    OK(sched_setaffinity(0, sizeof(set), &set));
    OK(sched_setaffinity(1 << 29, sizeof(saved), &saved));
    OK(sched_setaffinity(0, sizeof(saved), &saved));
    OK(sched_getaffinity(0, sizeof(set), &set));
    YES(CPU_EQUAL(&set, &saved) && CPU_COUNT(&saved) == sysconf(_SC_NPROCESSORS_ONLN));
    OK(syscall(SYS_sched_getaffinity, 0, 1, &set));
    OK(sched_yield());
    struct sched_param param = {0};
    VAL(sched_getscheduler(0));
    OK(sched_getparam(0, &param));
    VAL(param.sched_priority);
    OK(sched_setscheduler(0, SCHED_BATCH, &param));
    VAL(sched_getscheduler(0));
    OK(sched_setscheduler(0, SCHED_OTHER, &param));
    param.sched_priority = 5;
    OK(sched_setscheduler(0, SCHED_OTHER, &param));
    OK(sched_setscheduler(0, 77, &param));
    OK(sched_getscheduler(-1));
    OK(sched_getscheduler(1 << 29));
    VAL(sched_get_priority_max(SCHED_FIFO));
    VAL(sched_get_priority_min(SCHED_RR));
    VAL(sched_get_priority_max(SCHED_OTHER));
    OK(sched_get_priority_max(77));
    struct timespec interval;
    OK(sched_rr_get_interval(0, &interval));
    errno = 0;
    VAL(getpriority(PRIO_PROCESS, 0));
    OK(setpriority(PRIO_PROCESS, 0, 5));
    VAL(getpriority(PRIO_PROCESS, 0));
    OK(setpriority(PRIO_PROCESS, 0, 100));
    VAL(getpriority(PRIO_PROCESS, 0));
    OK(setpriority(99, 0, 0));
    OK(getpriority(PRIO_PROCESS, 1 << 29));
}

int main(void)
{
    start();
    child("limits", limits_child);
    child("RLIMIT_CPU", cpu_limit);
    controls();
    identity();
    usage();
    randomness();
    scheduling();
    return 0;
}
