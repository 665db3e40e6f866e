/* SPDX-License-Identifier: Apache-2.0 */
/* execve(2), execveat(2): arguments, environment, scripts, errors, what survives. */
#include "show.h"
#include <limits.h>
#include <pthread.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static char *self = (char[PATH_MAX]){0};
static char *const no_env[] = {NULL};

static int try_exec(const char *path, char *const argv[], char *const envp[])
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        execve(path, argv, envp);
        printf("  %s\n", strerrorname_np(errno));
        _exit(126);
    }
    char what[64];
    snprintf(what, sizeof(what), "%.40s", path == self ? "self" : path);
    return reap(what, pid);
}

static void script(const char *name, const char *content)
{
    close(make_file(name, content));
    chmod(name, 0755);
}

/* What the program sees after exec; argv[1] is "show". */
static int show(int argc, char **argv, char **envp)
{
    char exe[PATH_MAX] = "", comm[32] = "";
    printf("  argc %d", argc);
    for (int i = 2; i < argc; i++)
        printf(" [%s]", argv[i]);
    printf(" env");
    for (int i = 0; envp[i]; i++)
        printf(" [%s]", envp[i]);
    FILE *f = fopen("/proc/self/comm", "r");
    bool has_comm = f && fgets(comm, sizeof(comm), f);
    printf("%s exe %s, comm %s", "\n ", readlink("/proc/self/exe", exe, sizeof(exe) - 1) > 0 ? "there" : "NO",
           has_comm ? "there" : "NO");
    sigset_t set, pending;
    sigprocmask(SIG_BLOCK, NULL, &set);
    sigpending(&pending);
    struct sigaction usr1, usr2;
    sigaction(SIGUSR1, NULL, &usr1);
    sigaction(SIGUSR2, NULL, &usr2);
    printf(", blocked %d, pending %d, handler reset %d, ignored %d, fd 50 %d, fd 51 %d, alarm %d\n",
           sigismember(&set, SIGHUP), sigismember(&pending, SIGHUP), usr1.sa_handler == SIG_DFL,
           usr2.sa_handler == SIG_IGN, fcntl(50, F_GETFD), fcntl(51, F_GETFD), alarm(0) > 0);
    return 0;
}

static void arguments(void)
{
    char *plain[] = {"zero", "show", "one", "", "three words here", NULL};
    char *env[] = {"A=1", "B=", "C", NULL};
    try_exec(self, plain, env);
    try_exec(self, plain, no_env);
    try_exec(self, plain, NULL);
    char *true_args[] = {"true", NULL};
    try_exec("/bin/true", true_args, no_env);
    char *sh[] = {"sh", "-c", "echo \"  $0 $# $1 $X\"; exit 9", "name", "arg", NULL};
    char *x[] = {"X=y", NULL};
    try_exec("/bin/sh", sh, x);
    static char large[131072 + 1];
    memset(large, 'a', sizeof(large) - 1);
    char *too_long[] = {"true", large, NULL};
    try_exec("/bin/true", too_long, no_env);
    large[131071] = '\0';
    try_exec("/bin/true", too_long, no_env);
    static char *many[200];
    many[0] = "true";
    for (int i = 1; i < 199; i++)
        many[i] = large;
    try_exec("/bin/true", many, no_env); /* 26 MB: beyond the limit of 6 */
    many[12] = NULL;
    try_exec("/bin/true", many, no_env);
}

static void errors(void)
{
    char *argv[] = {"x", NULL};
    close(make_file("text", "just text\n"));
    try_exec("./text", argv, no_env);
    chmod("text", 0755);
    try_exec("./text", argv, no_env);
    try_exec("./missing", argv, no_env);
    try_exec("", argv, no_env);
    try_exec("text/x", argv, no_env);
    try_exec("/tmp", argv, no_env);
    script("empty", "");
    try_exec("./empty", argv, no_env);
    script("magic", "\177ELF");
    try_exec("./magic", argv, no_env);
    script("gone", "#!/nonexistent/interpreter\n");
    try_exec("./gone", argv, no_env);
    script("none", "#!\n");
    try_exec("./none", argv, no_env);
    script("dir", "#!/tmp\n");
    try_exec("./dir", argv, no_env);
    OK(symlink("loop", "loop"));
    try_exec("./loop", argv, no_env);
    int fd = open("none", O_WRONLY);
    try_exec("./none", argv, no_env);
    close(fd);
    script("busy", "#!/bin/true\n");
    fd = open("busy", O_WRONLY);
    try_exec("./busy", argv, no_env);
    close(fd);
    char long_name[300];
    memset(long_name, 'n', 299);
    long_name[299] = '\0';
    try_exec(long_name, argv, no_env);
    char **volatile bad = (char **)8;
    try_exec("/bin/true", bad, no_env);
    try_exec("/bin/true", argv, bad);
    try_exec("/dev/null", argv, no_env);
}

static void scripts(void)
{
    char line[PATH_MAX + 64];
    char *argv[] = {"ignored", "a", "b c", NULL};
    snprintf(line, sizeof(line), "#! \t%s show  \n", self);
    script("us", line);
    if (strlen(line) < 250)
        try_exec("./us", (char *[]){"ignored", NULL}, no_env);
    script("sh", "#!/bin/sh\necho \"  $0 $1 $2\"\nexit 3\n");
    try_exec("./sh", argv, no_env);
    script("flags", "#!/bin/sh -e\nfalse\nexit 3\n");
    try_exec("./flags", argv, no_env);
    script("echo", "#!/bin/echo one  two \nx");
    try_exec("./echo", argv, no_env);
    script("nested", "#!./echo three\n");
    try_exec("./nested", argv, no_env);
    script("n2", "#!./nested\n"), script("n3", "#!./n2\n"), script("n4", "#!./n3\n"), script("n5", "#!./n4\n");
    try_exec("./n3", argv, no_env);
    try_exec("./n4", argv, no_env);
    try_exec("./n5", argv, no_env);
    script("self-loop", "#!./self-loop\n");
    try_exec("./self-loop", argv, no_env);
    script("crlf", "#!/bin/sh\r\n");
    try_exec("./crlf", argv, no_env);
}

static void noop(int sig)
{
    (void)sig;
}

static void survival(void)
{
    sigset_t set;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        sigemptyset(&set);
        sigaddset(&set, SIGHUP);
        sigprocmask(SIG_BLOCK, &set, NULL);
        raise(SIGHUP);
        signal(SIGUSR1, noop);
        signal(SIGUSR2, SIG_IGN);
        dup2(1, 50);
        dup3(1, 51, O_CLOEXEC);
        alarm(1000);
        char *argv[] = {"x", "show", NULL};
        execve(self, argv, no_env);
        _exit(1);
    }
    reap("survival", pid);
}

static void *exec_here(void *unused)
{
    (void)unused;
    char *argv[] = {"x", "pid", NULL};
    execve(self, argv, no_env);
    _exit(1);
}

static void *sleep_long(void *unused)
{
    sleep(1000);
    return unused;
}

static int from_thread(void)
{
    pthread_t threads[2];
    char text[32];
    snprintf(text, sizeof(text), "%d", getpid());
    close(make_file("pid", text));
    pthread_create(&threads[0], NULL, sleep_long, NULL);
    pthread_create(&threads[1], NULL, exec_here, NULL);
    sleep(1000);
    return 1;
}

static int exec_at(int dirfd, const char *path, int flags)
{
    char *argv[] = {"x", "show", "at", NULL};
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        syscall(SYS_execveat, dirfd, path, argv, no_env, flags);
        printf("  %s\n", strerrorname_np(errno));
        _exit(126);
    }
    return reap("execveat", pid);
}

static void at(void)
{
    int fd = open(self, O_RDONLY | O_CLOEXEC), path = open(self, O_PATH | O_CLOEXEC);
    int dir = open(".", O_RDONLY | O_CLOEXEC);
    exec_at(fd, "", AT_EMPTY_PATH);
    exec_at(path, "", AT_EMPTY_PATH);
    exec_at(fd, "", 0);
    exec_at(dir, "sh", 0);
    exec_at(dir, "text", 0);
    exec_at(dir, "", AT_EMPTY_PATH);
    exec_at(999, "sh", 0);
    exec_at(fd, "sh", 0);
    exec_at(dir, self, 0x4000000);
    OK(symlink("sh", "link"));
    exec_at(dir, "link", 0);
    exec_at(dir, "link", AT_SYMLINK_NOFOLLOW);
    int script_fd = open("sh", O_RDONLY | O_CLOEXEC);
    exec_at(script_fd, "", AT_EMPTY_PATH); /* its interpreter couldn't open it */
}

int main(int argc, char **argv, char **envp)
{
    start();
    if (argc > 1 && strcmp(argv[1], "show") == 0)
        return show(argc, argv, envp);
    if (argc > 1 && strcmp(argv[1], "pid") == 0) {
        char text[32] = "";
        bool has_text = read(open("pid", O_RDONLY), text, 31) > 0;
        return has_text && atoi(text) == getpid() && getpid() == syscall(SYS_gettid) ? 21 : 22;
    }
    start_in_dir();
    if (readlink("/proc/self/exe", self, PATH_MAX - 1) <= 0)
        return 1;
    arguments();
    errors();
    scripts();
    survival();
    child("exec from a thread", from_thread);
    at();
    YES(strcmp((char *)getauxval(AT_PLATFORM), "x86_64") == 0 && getauxval(AT_PAGESZ) == 4096);
    YES(getauxval(AT_RANDOM) && getauxval(AT_EXECFN) && getauxval(AT_ENTRY) && getauxval(AT_PHDR));
    VAL(getauxval(AT_SECURE));
    VAL(getauxval(AT_CLKTCK));
    YES(getauxval(AT_UID) == getuid() && getauxval(AT_EGID) == getegid());
    return 0;
}
