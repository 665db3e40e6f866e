/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Host facts, gathered by the sentry's main before it locks itself down.
 */
#define LOG_MODULE "host"
#include "sentry/task/host_facts.h"
#include "base/host.h"
#include "base/log.h"
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <time.h>
#include <unistd.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

static struct host_facts g_facts = {.min_sigstack_size = 2048, .cpu_count = 1};

/* The first processor's block: "processor : 0" up to the empty line. 3 to 4 ms on large hosts if it were
 * read whole, so it isn't. */
static char *read_cpuinfo(void)
{
    enum { MAX = 8192 };
    char *text = calloc(1, MAX + 1);
    int hfd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t n = hfd >= 0 && text != NULL ? read(hfd, text, MAX) : -1;
    if (hfd >= 0)
        close(hfd);
    if (text == NULL)
        return NULL;
    text[n > 0 ? n : 0] = '\0';
    char *end = strstr(text, "\n\n");
    if (end != NULL)
        end[1] = '\0';
    return text;
}

static unsigned count_cpus(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0)
        return 1;
    int count = CPU_COUNT(&set);
    return count > 0 ? (unsigned)count : 1;
}

void host_facts_init(void)
{
    g_facts.hwcap = getauxval(AT_HWCAP);
    g_facts.hwcap2 = getauxval(AT_HWCAP2);
    unsigned long size = getauxval(AT_MINSIGSTKSZ);
    if (size != 0)
        g_facts.min_sigstack_size = size;
    struct sysinfo si;
    if (sysinfo(&si) == 0)
        g_facts.memory_total = (uint64_t)si.totalram * si.mem_unit;
    struct timespec boot, mono;
    clock_gettime(CLOCK_BOOTTIME, &boot);
    clock_gettime(CLOCK_MONOTONIC, &mono);
    g_facts.boot_ns = (uint64_t)(boot.tv_sec - mono.tv_sec) * 1000000000u;
    g_facts.cpuinfo = read_cpuinfo();
    g_facts.cpu_count = count_cpus();
}

const struct host_facts *host_facts(void)
{
    return &g_facts;
}

void host_random(void *bytes, size_t size)
{
    uint8_t *at = bytes;
    while (size > 0) {
        /* #syscalls getrandom: AT_RANDOM, /dev/urandom, address choice */
        long n = host_call3(SYS_getrandom, at, size, 0);
        ASSERT(n > 0 || n == -4 /* EINTR */);
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        }
    }
}
