/* SPDX-License-Identifier: Apache-2.0 */
/* /proc/self: maps that agree with mmap, status, stat, fd, exe, cwd, cmdline, environ, and others. */
#include "show.h"
#include <dirent.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#define P 4096UL

static char text[1 << 18];

static ssize_t slurp(const char *path)
{
    int fd = open(path, O_RDONLY);
    size_t len = 0;
    for (ssize_t n; fd >= 0 && len < sizeof(text) - 1 && (n = read(fd, text + len, sizeof(text) - 1 - len)) > 0;)
        len += (size_t)n;
    text[len] = '\0';
    if (fd < 0)
        return -1;
    close(fd);
    return (ssize_t)len;
}

/* The line of /proc/self/maps that holds an address, without addresses and inode. */
static void show_map(const char *what, const void *at)
{
    slurp("/proc/self/maps");
    for (char *line = text, *end; (end = strchr(line, '\n')); line = end + 1) {
        unsigned long from, to, offset, inode;
        char flags[8], device[16], name[128] = "";
        *end = '\0';
        if (sscanf(line, "%lx-%lx %7s %lx %15s %lu %127[^\n]", &from, &to, flags, &offset, device, &inode, name) < 6) {
            printf("%s: bad line\n", what);
            return;
        }
        if ((uintptr_t)at < from || (uintptr_t)at >= to)
            continue;
        char *slash = strrchr(name, '/');
        printf("%s: %lu pages %s offset %lx inode %s name \"%s\"\n", what, (to - from) / P, flags, offset,
               inode ? "some" : "0", slash ? slash : name);
        return;
    }
    printf("%s: not mapped\n", what);
}

static void maps(void)
{
    char *area = mmap(NULL, 64 * P, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), *m = area + 16 * P;
    int fd = make_file("mapped", "x"), local = 0;
    OK(ftruncate(fd, 8 * (off_t)P));
    mmap(m, 6 * P, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
    show_map("reserve", area);
    show_map("anonymous", m + P);
    mprotect(m + 2 * P, P, PROT_READ);
    show_map("split", m);
    show_map("split", m + 2 * P);
    show_map("split", m + 3 * P);
    mprotect(m + 2 * P, P, PROT_READ | PROT_WRITE);
    show_map("merged", m);
    munmap(m + P, P);
    show_map("hole", m + P);
    char *shared = mmap(m + 16 * P, 3 * P, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 2 * (off_t)P);
    show_map("file", shared);
    mmap(m + 20 * P, P, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, (off_t)P);
    show_map("private file", m + 20 * P);
    unlink("mapped");
    show_map("deleted file", shared);
    show_map("shared anonymous", mmap(m + 24 * P, P, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_FIXED, -1, 0));
    show_map("memfd", mmap(m + 28 * P, P, PROT_READ, MAP_SHARED | MAP_FIXED, memfd_create("mem", 0), 0));
    slurp("/proc/self/maps");
    YES(strstr(text, "[stack]") && strstr(text, "[vdso]") && strstr(text, "proc"));
    YES(strstr(text, "[heap]") || malloc(1) == NULL || (slurp("/proc/self/maps"), strstr(text, "[heap]")));
    slurp("/proc/self/smaps");
    YES(strstr(text, "Rss:") && strstr(text, "Pss:") && strstr(text, "Private_Dirty:") && strstr(text, "VmFlags:"));
    VAL(local);
    char byte = 0;
    int mem = open("/proc/self/mem", O_RDWR);
    m[0] = 'm';
    VAL(pread(mem, &byte, 1, (off_t)(uintptr_t)m));
    YES(byte == 'm');
    VAL(pwrite(mem, "w", 1, (off_t)(uintptr_t)m));
    YES(m[0] == 'w');
    OK(pread(mem, &byte, 1, (off_t)(uintptr_t)(m + P)));
    YES(slurp("/proc/self/statm") > 0 && strtol(text, NULL, 10) > 100);
}

/* A field of /proc/self/status, blanks squeezed. */
static void show_field(const char *name)
{
    char key[32];
    snprintf(key, sizeof(key), "\n%s:", name);
    char *at = strncmp(text, key + 1, strlen(key + 1)) == 0 ? text - 1 : strstr(text, key);
    if (!at) {
        printf("%s: missing\n", name);
        return;
    }
    printf("%s:", name);
    for (at += strlen(key); *at && *at != '\n'; at++)
        putchar(*at == '\t' ? ' ' : *at);
    printf("\n");
}

static long field(const char *name)
{
    char key[32];
    snprintf(key, sizeof(key), "\n%s:", name);
    char *at = strstr(text, key);
    return at ? strtol(at + strlen(key), NULL, 10) : -1;
}

static void *sleep_long(void *unused)
{
    sleep(1000);
    return unused;
}

static void status(void)
{
    pthread_t thread;
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1), sigaddset(&set, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    signal(SIGUSR2, SIG_IGN);
    prctl(PR_SET_NAME, "proc \\ test");
    pthread_create(&thread, NULL, sleep_long, NULL);
    slurp("/proc/self/status");
    static const char *const names[] = {"Name", "Umask", "State", "Uid", "Gid", "Threads", "SigPnd", "SigBlk",
                                        "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp", "TracerPid"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        show_field(names[i]);
    YES(field("Pid") == getpid() && field("Tgid") == getpid() && field("PPid") == getppid());
    YES(field("VmSize") > 0 && field("VmRSS") > 0 && field("VmPeak") >= field("VmSize") && field("FDSize") > 0);
    YES(strstr(text, "\nCapEff:\t") && strstr(text, "\nCpus_allowed_list:\t") && strstr(text, "\nvoluntary_ctxt_switches:\t"));
    prctl(PR_SET_NAME, "a) (b");
    slurp("/proc/self/stat");
    char *after = strrchr(text, ')');
    YES(strtol(text, NULL, 10) == getpid() && after && strstr(text, "(a) (b)"));
    char state = 0;
    int ppid = 0, pgrp = 0, session = 0, tty = 0, tpgid = 0;
    long utime = 0, threads = 0;
    unsigned long long start_time = 0;
    VAL(sscanf(after + 2, "%c %d %d %d %d %d %*u %*u %*u %*u %*u %ld %*d %*d %*d %*d %*d %ld %*d %llu", &state, &ppid,
               &pgrp, &session, &tty, &tpgid, &utime, &threads, &start_time));
    YES(state == 'R' && ppid == getppid() && pgrp == getpgrp() && session == getsid(0) && start_time > 0);
    VAL(threads);
    int fields = 2;
    for (char *p = after; *p; p++)
        fields += *p == ' ';
    VAL(fields);
    DIR *tasks = opendir("/proc/self/task");
    int count = 0;
    for (struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    VAL(count);
    closedir(tasks);
    char path[64];
    snprintf(path, sizeof(path), "/proc/self/task/%d/comm", (int)syscall(SYS_gettid));
    YES(slurp(path) > 0 && strcmp(text, "a) (b\n") == 0);
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    YES(readlink("/proc/thread-self", path, sizeof(path)) > 0);
}

static void show_link(const char *path)
{
    char target[256] = "";
    ssize_t n = readlink(path, target, sizeof(target) - 1);
    if (n < 0) {
        printf("%s: %s\n", path, strerrorname_np(errno));
        return;
    }
    char *inside = strstr(target, show_dir), *colon = strchr(target, '[');
    if (colon)
        strcpy(colon, "[N]");
    printf("%s: %s\n", path, inside ? target + strlen(show_dir) : target);
}

static void descriptors(void)
{
    int file = make_file("opened", "0123"), p[2];
    struct stat a, b;
    dup2(file, 100);
    OK(pipe(p));
    dup2(p[0], 101);
    dup2(open("/dev/null", O_RDONLY), 102);
    dup2(memfd_create("name", 0), 103);
    show_link("/proc/self/fd/100");
    show_link("/proc/self/fd/101");
    show_link("/proc/self/fd/102");
    show_link("/proc/self/fd/103");
    show_link("/proc/self/fd/104");
    OK(stat("/proc/self/fd/100", &a));
    OK(fstat(100, &b));
    YES(a.st_ino == b.st_ino);
    OK(lstat("/proc/self/fd/100", &a));
    printf("mode %o\n", a.st_mode);
    lstat("/proc/self/fd/102", &a);
    printf("mode %o\n", a.st_mode);
    OK(unlink("opened"));
    show_link("/proc/self/fd/100");
    int again = open("/proc/self/fd/100", O_RDONLY); /* even though it has no name */
    char byte;
    VAL(read(again, &byte, 1));
    int writer = open("/proc/self/fd/101", O_WRONLY);
    VAL(write(writer, "x", 1));
    VAL(read(p[0], &byte, 1));
    bool seen[104] = {false};
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry; (entry = readdir(dir));) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd < 104)
            seen[fd] = true;
    }
    closedir(dir);
    YES(seen[0] && seen[1] && seen[100] && seen[103] && !seen[99]);
    lseek(100, 3, SEEK_SET);
    slurp("/proc/self/fdinfo/100");
    VAL(strncmp(text, "pos:\t3\nflags:\t0100002\nmnt_id:\t", 30) == 0);
    OK(open("/proc/self/fd/104", O_RDONLY));
    OK(open("/dev/fd/100", O_RDONLY));
}

static void others(int argc, char **argv)
{
    char path[4096] = "";
    ssize_t n = slurp("/proc/self/cmdline");
    YES(argc == 1 && n == (ssize_t)strlen(argv[0]) + 1 && strcmp(text, argv[0]) == 0);
    pid_t pid = fork();
    if (pid == 0) {
        execle("/bin/sh", "sh", "-c", "tr '\\0' '|' < /proc/self/environ; tr '\\0' '|' < /proc/self/cmdline; echo",
               (char *)NULL, (char *[]){"ONE=1", "TWO=", "PATH=/usr/bin:/bin", NULL});
        _exit(1);
    }
    reap("environ", pid);
    OK(chdir("/usr"));
    show_link("/proc/self/cwd");
    show_link("/proc/self/root");
    YES(readlink("/proc/self/exe", path, sizeof(path)) > 0 && access(path, X_OK) == 0);
    YES(readlink("/proc/self", path, sizeof(path)) > 0 && atoi(path) == getpid());
    n = slurp("/proc/self/auxv");
    YES(n >= 16 && n % 16 == 0 && memcmp(text + n - 16, (char[16]){0}, 16) == 0);
    YES(slurp("/proc/self/limits") > 0 && strstr(text, "Max open files"));
    YES(slurp("/proc/self/mounts") > 0 && strstr(text, " / "));
    YES(slurp("/proc/self/mountinfo") > 0 && strstr(text, " / / "));
    YES(slurp("/proc/self/cgroup") >= 0 && slurp("/proc/self/oom_score_adj") > 0);
    YES(slurp("/proc/meminfo") > 0 && strstr(text, "MemTotal:") && strstr(text, "MemAvailable:"));
    YES(slurp("/proc/stat") > 0 && strncmp(text, "cpu  ", 5) == 0 && strstr(text, "\nbtime "));
    YES(slurp("/proc/cpuinfo") > 0 && strstr(text, "processor\t: 0"));
    YES(slurp("/proc/uptime") > 0 && slurp("/proc/loadavg") > 0 && slurp("/proc/version") > 0);
    YES(slurp("/proc/filesystems") > 0 && strstr(text, "\ttmpfs") && strstr(text, "nodev\tproc"));
    YES(slurp("/proc/sys/kernel/osrelease") > 0 && slurp("/proc/sys/kernel/hostname") > 0);
    YES(slurp("/proc/sys/kernel/pid_max") > 0 && atoi(text) >= 32768);
    YES(slurp("/proc/sys/fs/pipe-max-size") > 0 && slurp("/proc/sys/vm/overcommit_memory") > 0);
    YES(slurp("/proc/sys/kernel/random/uuid") == 37 && slurp("/proc/sys/kernel/random/boot_id") == 37);
    OK(open("/proc/self/missing", O_RDONLY));
    OK(open("/proc/999999999", O_RDONLY));
    OK(mkdir("/proc/x", 0700));
    OK(unlink("/proc/self/status"));
    OK(open("/proc/self/status", O_CREAT | O_EXCL, 0600));
    struct stat st;
    OK(stat("/proc/1", &st));
    printf("mode %o\n", st.st_mode);
    int dir = open("/proc", O_RDONLY);
    pid = fork();
    if (pid == 0)
        _exit(0);
    siginfo_t info;
    waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT);
    snprintf(path, sizeof(path), "%d/stat", pid);
    int fd = openat(dir, path, O_RDONLY);
    n = read(fd, text, 1000);
    YES(n > 0 && strstr(text, ") Z "));
    snprintf(path, sizeof(path), "/proc/%d/cmdline", pid);
    VAL(slurp(path));
    waitpid(pid, NULL, 0);
    OK(pread(fd, text, 1000, 0)); /* the process is gone */
    OK(access(path, F_OK));
}

int main(int argc, char **argv)
{
    start_in_dir();
    maps();
    status();
    descriptors();
    others(argc, argv);
    return 0;
}
