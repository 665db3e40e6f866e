/* SPDX-License-Identifier: Apache-2.0 */
/* Who may look at and change what below /proc/PID: other users, processes that aren't dumpable, the dead. */
#include "show.h"
#include <dirent.h>
#include <grp.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static pid_t target;

static const char *path_of(const char *name)
{
    static char path[128];
    snprintf(path, sizeof(path), "/proc/%d/%s", target, name);
    return path;
}

static void show_open(const char *name, int flags)
{
    char byte[64];
    int fd = open(path_of(name), flags);
    if (fd < 0) {
        printf("open %s: %s\n", name, strerrorname_np(errno));
        return;
    }
    ssize_t n = flags == O_RDONLY ? read(fd, byte, sizeof(byte)) : 0;
    printf("open %s: ok, read %s\n", name, n < 0 ? strerrorname_np(errno) : n > 0 ? "some" : "nothing");
    close(fd);
}

static void show_link(const char *name)
{
    char to[512];
    printf("link %s: %s\n", name, readlink(path_of(name), to, sizeof(to)) < 0 ? strerrorname_np(errno) : "ok");
}

static void show_whose(const char *name)
{
    struct stat st;
    if (stat(path_of(name), &st) < 0)
        printf("stat %s: %s\n", name, strerrorname_np(errno));
    else
        printf("stat %s: mode %o uid %u gid %u\n", name, st.st_mode, st.st_uid, st.st_gid);
}

static void show_all(void)
{
    static const char *const files[] = {"stat", "status", "statm", "cmdline", "comm", "limits", "cgroup", "environ", "auxv",
                                        "maps", "smaps", "io", "personality", "oom_score_adj", "task", "mounts"};
    for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
        show_open(files[i], O_RDONLY);
    show_open("mem", O_RDWR);
    show_open("comm", O_WRONLY);
    show_open("fd", O_RDONLY | O_DIRECTORY);
    show_link("exe");
    show_link("cwd");
    show_link("root");
    show_link("fd/0");
    show_link("ns/net");
    show_whose("");
    show_whose("stat");
    show_whose("fd");
    show_whose("task");
    show_whose("environ");
}

static int as_user(void)
{
    if (setgroups(0, NULL) != 0 || setresgid(1234, 1234, 1234) != 0 || setresuid(1234, 1234, 1234) != 0)
        return 1;
    show_all();
    return 0;
}

static int as_user_about_itself(void)
{
    if (setgroups(0, NULL) != 0 || setresgid(1234, 1234, 1234) != 0 || setresuid(1234, 1234, 1234) != 0)
        return 1;
    target = getpid();
    VAL(prctl(PR_GET_DUMPABLE));
    show_whose("environ");
    OK(prctl(PR_SET_DUMPABLE, 1));
    show_whose("environ");
    show_whose("fd");
    show_open("environ", O_RDONLY);
    show_open("maps", O_RDONLY);
    show_link("exe");
    OK(prctl(PR_SET_DUMPABLE, 0));
    show_whose("environ");
    show_whose("stat");
    show_whose("");
    return 0;
}

static void *wait_long(void *unused)
{
    pause();
    return unused;
}

static long write_file(const char *path, const char *bytes)
{
    int fd = open(path, O_WRONLY);
    if (fd < 0)
        return -1;
    ssize_t n = write(fd, bytes, strlen(bytes));
    int error = errno;
    close(fd);
    errno = error;
    return n;
}

static void show_file(const char *path)
{
    char bytes[128] = "";
    int fd = open(path, O_RDONLY);
    ssize_t n = read(fd, bytes, sizeof(bytes) - 1);
    printf("%s: %s", path, n < 0 ? "?\n" : bytes);
    close(fd);
}

static void changes(void)
{
    VAL(write_file("/proc/self/comm", "new name\n"));
    show_file("/proc/self/comm");
    VAL(write_file("/proc/self/comm", "a name that is far too long"));
    show_file("/proc/self/comm");
    VAL(write_file("/proc/self/oom_score_adj", "500"));
    show_file("/proc/self/oom_score_adj");
    show_file("/proc/self/oom_adj");
    VAL(write_file("/proc/self/oom_score_adj", "1001"));
    VAL(write_file("/proc/self/oom_score_adj", "x"));
    VAL(write_file("/proc/self/timerslack_ns", "70000"));
    VAL(prctl(PR_GET_TIMERSLACK));
    VAL(write_file("/proc/self/stat", "x"));
    pthread_t thread;
    pthread_create(&thread, NULL, wait_long, NULL);
    struct stat st;
    OK(stat("/proc/self/task", &st));
    VAL(st.st_nlink);
    char path[64];
    int others = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(dir));) {
        int tid = atoi(e->d_name);
        if (tid == 0 || tid == getpid())
            continue;
        others++;
        snprintf(path, sizeof(path), "/proc/self/task/%d/comm", tid);
        VAL(write_file(path, "worker"));
        snprintf(path, sizeof(path), "/proc/%d/status", tid); /* not listed, but there */
        OK(access(path, F_OK));
        snprintf(path, sizeof(path), "/proc/self/task/%d/task", tid);
        OK(access(path, F_OK));
    }
    closedir(dir);
    VAL(others);
    OK(access("/proc/self/task/1", F_OK));
    OK(access("/proc/thread-self/status", R_OK));
    pthread_cancel(thread);
    pthread_join(thread, NULL);
    char *page = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    munmap(page + 4096, 4096);
    int mem = open("/proc/self/mem", O_RDWR);
    VAL(pwrite(mem, "across", 6, (off_t)(uintptr_t)(page + 4093)));
    YES(memcmp(page + 4093, "acr", 3) == 0);
    char buffer[16];
    VAL(pread(mem, buffer, 6, (off_t)(uintptr_t)(page + 4093)));
    VAL(pread(mem, buffer, 6, (off_t)(uintptr_t)(page + 4096)));
    YES(lseek(mem, (off_t)(uintptr_t)page, SEEK_SET) == (off_t)(uintptr_t)page);
    VAL(read(mem, buffer, 4));
    VAL(lseek(mem, 0, SEEK_END));
}

static void the_dead(void)
{
    int p[2];
    OK(pipe(p));
    target = fork();
    if (target == 0) {
        char byte;
        read(p[0], &byte, 1);
        _exit(0);
    }
    int dir = open(path_of(""), O_RDONLY | O_DIRECTORY), status = open(path_of("status"), O_RDONLY);
    int maps = open(path_of("maps"), O_RDONLY), fds = open(path_of("fd"), O_RDONLY | O_DIRECTORY);
    YES(dir >= 0 && status >= 0 && maps >= 0 && fds >= 0);
    write(p[1], "x", 1);
    siginfo_t info;
    OK(waitid(P_PID, (id_t)target, &info, WEXITED | WNOWAIT));
    show_open("status", O_RDONLY);
    show_open("maps", O_RDONLY);
    show_open("cmdline", O_RDONLY);
    show_link("exe");
    show_link("cwd");
    OK(waitpid(target, NULL, 0));
    char buffer[64];
    VAL(read(status, buffer, sizeof(buffer)));
    OK(openat(dir, "stat", O_RDONLY));
    OK(access(path_of(""), F_OK));
    struct stat st;
    OK(fstat(dir, &st));
    DIR *list = fdopendir(dir);
    errno = 0;
    YES(readdir(list) == NULL || errno == 0);
    show_link("exe");
}

int main(void)
{
    start_in_dir();
    target = getpid();
    printf("about itself\n");
    show_all();
    printf("as another user\n");
    child("user", as_user);
    printf("as a user about itself\n");
    child("itself", as_user_about_itself);
    changes();
    the_dead();
    return 0;
}
