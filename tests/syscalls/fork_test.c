/* SPDX-License-Identifier: Apache-2.0 */
/* fork(2), vfork(2): copy on write, what is inherited and what is not. */
#include "show.h"
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>

static int global = 1;
static char big[1 << 20];
static int pipes[2];

static void send(const char *text)
{
    if (write(pipes[1], text, strlen(text)) < 0)
        _exit(99);
}

static int ids(void)
{
    return getppid() != getpid() && getpid() == (pid_t)syscall(SYS_gettid) ? 0 : 1;
}

static void copy_on_write(void)
{
    int local = 1, *heap = malloc(sizeof(int));
    *heap = 1;
    memset(big, 1, sizeof(big));
    pid_t pid = fork();
    if (pid == 0) {
        global = local = *heap = 2;
        memset(big, 2, sizeof(big));
        _exit(global + local + *heap + big[777]);
    }
    reap("child wrote", pid);
    YES(global == 1 && local == 1 && *heap == 1 && big[777] == 1);
    pid = fork();
    if (pid == 0) {
        pid_t grandchild = fork();
        if (grandchild == 0)
            _exit(big[0] == 1 ? 3 : 4);
        int status;
        waitpid(grandchild, &status, 0);
        _exit(WEXITSTATUS(status));
    }
    global = 5;
    reap("grandchild", pid);
    free(heap);
}

static int inherited(void)
{
    sigset_t set;
    struct sigaction act;
    char cwd[256];
    struct rlimit limit;
    sigprocmask(SIG_BLOCK, NULL, &set);
    sigaction(SIGUSR2, NULL, &act);
    getrlimit(RLIMIT_CORE, &limit);
    mode_t mask = umask(0);
    printf("in child: blocked %d, ignored %d, umask %o, cwd %d, limit %d, nice %d\n",
           sigismember(&set, SIGUSR1), act.sa_handler == SIG_IGN, mask,
           getcwd(cwd, sizeof(cwd)) && strcmp(cwd, "/tmp") == 0, (int)limit.rlim_cur,
           getpriority(PRIO_PROCESS, 0));
    sigpending(&set);
    struct itimerval timer;
    getitimer(ITIMER_REAL, &timer);
    struct tms t;
    times(&t);
    printf("in child: pending %d, alarm %d, children's time %d\n", sigismember(&set, SIGUSR1),
           timer.it_value.tv_sec != 0, (int)(t.tms_cutime + t.tms_cstime));
    return 0;
}

static void attributes(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    raise(SIGUSR1);
    signal(SIGUSR2, SIG_IGN);
    alarm(1000);
    umask(077);
    OK(chdir("/tmp"));
    struct rlimit limit = {0, 0};
    setrlimit(RLIMIT_CORE, &limit);
    child("inherited", inherited);
    sigpending(&set);
    YES(sigismember(&set, SIGUSR1));
    YES(alarm(0) > 0);
}

static void descriptors(void)
{
    char name[] = "/tmp/fork-test.XXXXXX";
    int fd = mkstemp(name);
    unlink(name);
    VAL(write(fd, "abcdef", 6));
    lseek(fd, 1, SEEK_SET);
    pid_t pid = fork();
    if (pid == 0) {
        char byte;
        if (read(fd, &byte, 1) != 1)
            _exit(1);
        fcntl(fd, F_SETFD, FD_CLOEXEC);
        fcntl(fd, F_SETFL, O_APPEND);
        close(pipes[0]);
        _exit(byte == 'b' ? 0 : 1);
    }
    reap("read in child", pid);
    VAL(lseek(fd, 0, SEEK_CUR));
    VAL(fcntl(fd, F_GETFD));
    YES(fcntl(fd, F_GETFL) & O_APPEND);
    VAL(fcntl(pipes[0], F_GETFD));
    close(fd);
}

static void vforks(void)
{
    volatile int shared = 1;
    pid_t pid = vfork();
    if (pid == 0) {
        shared = 7;
        send("child ");
        _exit(9);
    }
    send("parent");
    YES(shared == 7);
    reap("vfork", pid);
    char text[32] = "";
    VAL(read(pipes[0], text, sizeof(text) - 1));
    printf("%s\n", text);
    pid = vfork();
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "exit 4", (char *)NULL);
        _exit(99);
    }
    reap("vfork and exec", pid);
    pid = vfork();
    if (pid == 0) {
        execl("/nonexistent", "x", (char *)NULL);
        _exit(errno == ENOENT ? 5 : 6);
    }
    reap("vfork and failed exec", pid);
    pid = vfork();
    if (pid == 0) {
        kill(getpid(), SIGKILL);
        _exit(1);
    }
    reap("vfork and kill", pid);
}

static void many(void)
{
    pid_t pids[100];
    int sum = 0;
    for (int i = 0; i < 100; i++) {
        pids[i] = fork();
        if (pids[i] == 0)
            _exit(i);
    }
    for (int i = 99; i >= 0; i--) {
        int status;
        waitpid(pids[i], &status, 0);
        sum += WEXITSTATUS(status);
    }
    VAL(sum);
    for (int i = 0; i < 200; i++) {
        pid_t pid = fork();
        if (pid == 0)
            _exit(0);
        waitpid(pid, NULL, 0);
    }
    OK(waitpid(-1, NULL, 0));
}

int main(void)
{
    start();
    OK(pipe(pipes));
    child("ids", ids);
    copy_on_write();
    descriptors();
    vforks();
    many();
    attributes();
    return 0;
}
