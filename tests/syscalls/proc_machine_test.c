/* SPDX-License-Identifier: Apache-2.0 */
/* What /proc and /sys say of processors, memory and settings agrees with each other and with the calls. */
#include "show.h"
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <sys/vfs.h>

static char text[1 << 20];

static ssize_t slurp(const char *path)
{
    int fd = open(path, O_RDONLY);
    size_t len = 0;
    for (ssize_t n; fd >= 0 && (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0;)
        len += (size_t)n;
    text[len] = '\0';
    if (fd < 0)
        return -1;
    close(fd);
    return (ssize_t)len;
}

static int count(const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

static long number(const char *path)
{
    return slurp(path) > 0 ? strtol(text, NULL, 10) : -1;
}

/* "0-3,7" */
static int count_list(const char *path)
{
    int n = 0;
    slurp(path);
    for (char *at = text; *at >= '0' && *at <= '9';) {
        long first = strtol(at, &at, 10), last = first;
        if (*at == '-')
            last = strtol(at + 1, &at, 10);
        n += (int)(last - first + 1);
        if (*at == ',')
            at++;
    }
    return n;
}

static void processors(void)
{
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    YES(online == get_nprocs() && online > 0);
    YES(count_list("/sys/devices/system/cpu/online") == online);
    YES(count_list("/sys/devices/system/cpu/possible") >= online);
    YES(sysconf(_SC_NPROCESSORS_CONF) >= online);
    YES(slurp("/proc/cpuinfo") > 0 && count("processor\t:") == online && count("\n\n") == online);
    YES(count("physical id\t:") == online && count("core id\t") == online && count("\nflags\t\t:") == online);
    YES(slurp("/proc/stat") > 0 && count("\ncpu") == online);
    YES(count_list("/sys/devices/system/node/node0/cpulist") == online);
    YES(number("/sys/devices/system/cpu/cpu0/topology/core_id") == 0);
    YES(number("/sys/devices/system/cpu/cpu0/topology/physical_package_id") == 0);
    YES(number("/sys/devices/system/cpu/cpu0/cache/index0/level") == 1);
    YES(number("/sys/devices/system/cpu/cpu0/cache/index0/coherency_line_size") ==
        sysconf(_SC_LEVEL1_DCACHE_LINESIZE));
    YES(slurp("/sys/devices/system/cpu/cpu0/cache/index0/type") > 0 && strcmp(text, "Data\n") == 0);
    int dirs = 0;
    DIR *dir = opendir("/sys/devices/system/cpu");
    for (struct dirent *e; (e = readdir(dir));)
        dirs += strncmp(e->d_name, "cpu", 3) == 0 && e->d_name[3] >= '0' && e->d_name[3] <= '9';
    closedir(dir);
    YES(dirs == online);
    cpu_set_t set;
    OK(sched_getaffinity(0, sizeof(set), &set));
    YES(CPU_COUNT(&set) == online);
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    OK(sched_setaffinity(0, sizeof(set), &set));
    YES(slurp("/proc/self/status") > 0 && strstr(text, "\nCpus_allowed_list:\t0\n"));
}

static void memory(void)
{
    struct sysinfo info;
    unsigned long total = 0, available = 0;
    OK(sysinfo(&info));
    YES(slurp("/proc/meminfo") > 0 && sscanf(text, "MemTotal: %lu kB", &total) == 1);
    YES(strstr(text, "\nMemAvailable:") && sscanf(strstr(text, "\nMemAvailable:"), "\nMemAvailable: %lu kB", &available) == 1);
    YES(total == info.totalram * info.mem_unit / 1024 && available <= total && available > 0);
    YES(sysconf(_SC_PHYS_PAGES) == (long)(total / 4));
    double up = 0, idle = 0;
    struct timespec boot;
    clock_gettime(CLOCK_BOOTTIME, &boot);
    YES(slurp("/proc/uptime") > 0 && sscanf(text, "%lf %lf", &up, &idle) == 2);
    YES(up > (double)boot.tv_sec - 2 && up < (double)boot.tv_sec + 3 && info.uptime > boot.tv_sec - 2);
    long btime = 0, start = 0;
    YES(slurp("/proc/stat") > 0 && sscanf(strstr(text, "\nbtime"), "\nbtime %ld", &btime) == 1);
    YES(labs(time(NULL) - boot.tv_sec - btime) < 3);
    slurp("/proc/self/stat");
    sscanf(strrchr(text, ')') + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %*d %*d %ld", &start);
    YES(start / sysconf(_SC_CLK_TCK) <= boot.tv_sec && start / sysconf(_SC_CLK_TCK) > boot.tv_sec - 100);
    YES(slurp("/sys/kernel/mm/transparent_hugepage/enabled") > 0 && strchr(text, '['));
    VAL(number("/sys/kernel/mm/transparent_hugepage/hpage_pmd_size"));
}

static void settings(void)
{
    static const char *const paths[] = {
        "/proc/sys/kernel/ostype", "/proc/sys/kernel/ngroups_max", "/proc/sys/kernel/cap_last_cap",
        "/proc/sys/kernel/randomize_va_space", "/proc/sys/vm/overcommit_memory", "/proc/sys/fs/nr_open",
        "/proc/sys/kernel/shmmni", "/proc/sys/kernel/msgmax", "/proc/sys/kernel/overflowuid",
        "/proc/sys/fs/pipe-max-size", "/proc/sys/net/core/somaxconn", "/proc/sys/net/ipv4/ip_local_port_range",
        "/proc/self/setgroups", "/proc/self/uid_map", "/proc/self/oom_score_adj", "/proc/self/coredump_filter",
        "/proc/self/sessionid"};
    for (size_t i = 0; i < sizeof(paths) / sizeof(paths[0]); i++) {
        ssize_t n = slurp(paths[i]);
        printf("%s: %s", paths[i], n < 0 ? "missing" : text);
        printf("%s", n > 0 && text[n - 1] == '\n' ? "" : "\n");
    }
    struct utsname name;
    OK(uname(&name));
    YES(slurp("/proc/sys/kernel/osrelease") > 0 && strncmp(text, name.release, strlen(name.release)) == 0);
    YES(slurp("/proc/version") > 0 && strncmp(text, "Linux version ", 14) == 0 && strstr(text, name.release) && strstr(text, name.version));
    YES(slurp("/proc/sys/kernel/hostname") > 0 && strncmp(text, name.nodename, strlen(name.nodename)) == 0);
    char first[64];
    slurp("/proc/sys/kernel/random/uuid");
    memcpy(first, text, 37);
    YES(slurp("/proc/sys/kernel/random/uuid") == 37 && memcmp(first, text, 37) != 0 && text[14] == '4');
    slurp("/proc/sys/kernel/random/boot_id");
    memcpy(first, text, 37);
    YES(slurp("/proc/sys/kernel/random/boot_id") == 37 && memcmp(first, text, 37) == 0);
    struct statfs fs;
    OK(statfs("/proc", &fs));
    YES(fs.f_type == 0x9fa0);
    OK(statfs("/sys", &fs));
    YES(fs.f_type == 0x62656572);
    char buffer[8];
    int fd = open("/proc/sys/kernel/ostype", O_RDONLY);
    VAL(pread(fd, buffer, 3, 2)); /* in the middle, without a read from 0 before */
    YES(memcmp(buffer, "nux", 3) == 0);
    VAL(read(fd, buffer, 8));
    VAL(read(fd, buffer, 8));
    VAL(lseek(fd, 1, SEEK_SET));
    VAL(read(fd, buffer, 2));
    OK(fchmod(fd, 0777));
    OK(ftruncate(fd, 0));
    close(fd);
    OK(open("/proc/sys/kernel/ostype", O_RDONLY | O_DIRECTORY));
    OK(open("/proc/sys/kernel/no_such_thing", O_RDONLY));
    OK(access("/sys/dev/block", F_OK));
    OK(access("/sys/dev/char", F_OK));
    OK(access("/proc/net/dev", R_OK));
    YES(slurp("/proc/net/dev") > 0 && strstr(text, "lo:") && slurp("/proc/net/if_inet6") >= 0);
    OK(access("/sys/class/net/lo/mtu", R_OK));
    VAL(number("/sys/class/net/lo/mtu"));
}

int main(void)
{
    memory();
    settings();
    processors();
    return 0;
}
