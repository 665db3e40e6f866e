/* SPDX-License-Identifier: Apache-2.0 */
/* clone(2) and clone3(2): flags, wrong use, threads made by hand, pidfds. */
#include "show.h"
#include <linux/futex.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#ifndef CLONE_CLEAR_SIGHAND
#define CLONE_CLEAR_SIGHAND 0x100000000ULL
#endif

struct args3 {
    uint64_t flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls, set_tid, set_tid_size,
        cgroup;
};

static int shared;
static pid_t tid_child, tid_parent;
static char stack[1 << 16] __attribute__((aligned(16)));

static long clone3(struct args3 *args, size_t size)
{
    return syscall(SYS_clone3, args, size);
}

static int set_shared(void *value)
{
    shared = (int)(intptr_t)value;
    return 3;
}

static int change_all(void *unused)
{
    (void)unused;
    close(0);
    umask(0123);
    signal(SIGUSR1, SIG_IGN);
    return chdir("/usr");
}

static bool is_open(int fd)
{
    return fcntl(fd, F_GETFD) >= 0;
}

static void memory(void)
{
    pid_t pid = clone(set_shared, stack + sizeof(stack), SIGCHLD, (void *)5);
    reap("copy", pid);
    VAL(shared);
    pid = clone(set_shared, stack + sizeof(stack), SIGCHLD | CLONE_VM | CLONE_VFORK, (void *)6);
    VAL(shared);
    reap("CLONE_VM | CLONE_VFORK", pid);
    pid = clone(set_shared, stack + sizeof(stack), SIGCHLD | CLONE_VM, (void *)7);
    reap("CLONE_VM", pid);
    VAL(shared);
}

static void tables(void)
{
    char cwd[64];
    int saved = dup(0);
    OK(chdir("/tmp"));
    pid_t pid = clone(change_all, stack + sizeof(stack), SIGCHLD, NULL);
    reap("nothing shared", pid);
    YES(is_open(0) && strcmp(getcwd(cwd, sizeof(cwd)), "/tmp") == 0);
    pid = clone(change_all, stack + sizeof(stack), SIGCHLD | CLONE_FILES, NULL);
    reap("CLONE_FILES", pid);
    YES(!is_open(0) && strcmp(getcwd(cwd, sizeof(cwd)), "/tmp") == 0);
    OK(dup2(saved, 0));
    pid = clone(change_all, stack + sizeof(stack), SIGCHLD | CLONE_FS, NULL);
    reap("CLONE_FS", pid);
    YES(is_open(0) && strcmp(getcwd(cwd, sizeof(cwd)), "/usr") == 0);
    printf("umask %o\n", umask(022));
    struct sigaction act;
    sigaction(SIGUSR1, NULL, &act);
    YES(act.sa_handler == SIG_DFL);
    pid = clone(change_all, stack + sizeof(stack), SIGCHLD | CLONE_VM | CLONE_SIGHAND, NULL);
    reap("CLONE_SIGHAND", pid);
    sigaction(SIGUSR1, NULL, &act);
    YES(act.sa_handler == SIG_IGN);
    signal(SIGUSR1, SIG_DFL);
}

static int check_tid(void *unused)
{
    (void)unused;
    return tid_child == syscall(SYS_gettid) ? 8 : 9;
}

static void tids(void)
{
    pid_t pid = clone(check_tid, stack + sizeof(stack), SIGCHLD | CLONE_CHILD_SETTID | CLONE_PARENT_SETTID, NULL,
                      &tid_parent, NULL, &tid_child);
    YES(tid_parent == pid && tid_child == 0);
    reap("CLONE_CHILD_SETTID", pid);
    tid_child = 1;
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM |
                CLONE_PARENT_SETTID | CLONE_CHILD_CLEARTID;
    pid_t tid = clone(set_shared, stack + sizeof(stack), flags, (void *)11, &tid_parent, NULL, &tid_child);
    YES(tid > 0 && tid != getpid() && tid_parent == tid);
    while (__atomic_load_n(&tid_child, __ATOMIC_ACQUIRE) != 0)
        syscall(SYS_futex, &tid_child, FUTEX_WAIT, 1, NULL, NULL, 0);
    VAL(shared);
    OK(waitpid(tid, NULL, __WALL)); /* threads aren't children */
}

static int exit_at_once(void *unused)
{
    (void)unused;
    return 4;
}

static void exit_signals(void)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigaddset(&set, SIGUSR2);
    sigprocmask(SIG_BLOCK, &set, NULL);
    struct timespec zero = {0, 0};
    pid_t pid = clone(exit_at_once, stack + sizeof(stack), SIGUSR2, NULL);
    siginfo_t info;
    YES(sigwaitinfo(&set, &info) == SIGUSR2);
    YES(info.si_pid == pid && info.si_status == 4 && info.si_code == CLD_EXITED);
    OK(waitpid(pid, NULL, 0));
    int status;
    YES(waitpid(pid, &status, (int)__WCLONE) == pid);
    pid = clone(exit_at_once, stack + sizeof(stack), 0, NULL);
    YES(waitpid(pid, &status, __WALL) == pid && WEXITSTATUS(status) == 4);
    OK(sigtimedwait(&set, &info, &zero));
    pid = clone(exit_at_once, stack + sizeof(stack), SIGCHLD, NULL);
    YES(sigwaitinfo(&set, &info) == SIGCHLD);
    reap("SIGCHLD", pid);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static void wrong_use(void)
{
    OK(syscall(SYS_clone, CLONE_SIGHAND, stack + sizeof(stack), 0, 0, 0));
    OK(syscall(SYS_clone, CLONE_THREAD | CLONE_VM, stack + sizeof(stack), 0, 0, 0));
    OK(syscall(SYS_clone, CLONE_FS | CLONE_NEWNS, stack + sizeof(stack), 0, 0, 0));
    OK(syscall(SYS_clone, CLONE_PIDFD | CLONE_PARENT_SETTID | SIGCHLD, 0, 0, 0, 0));
    struct args3 args = {.exit_signal = SIGCHLD};
    OK(clone3(&args, 8));
    OK(clone3(NULL, sizeof(args)));
    OK(clone3(&args, 5000));
    args.flags = 1ULL << 60;
    OK(clone3(&args, sizeof(args)));
    args.flags = CLONE_THREAD | CLONE_SIGHAND | CLONE_VM;
    OK(clone3(&args, sizeof(args))); /* a thread has no exit signal */
    args.flags = 0;
    args.stack = (uintptr_t)stack;
    OK(clone3(&args, sizeof(args)));
    args.stack = 0;
    args.stack_size = 100;
    OK(clone3(&args, sizeof(args)));
    args.stack_size = 0;
    args.exit_signal = 65;
    OK(clone3(&args, sizeof(args)));
    args.exit_signal = SIGCHLD;
    args.flags = CLONE_CLEAR_SIGHAND | CLONE_SIGHAND | CLONE_VM;
    OK(clone3(&args, sizeof(args)));
    struct {
        struct args3 args;
        uint64_t more;
    } larger = {{.exit_signal = SIGCHLD}, 1};
    OK(clone3(&larger.args, sizeof(larger)));
}

static void noop(int sig)
{
    (void)sig;
}

static void clone3_works(void)
{
    int pidfd = -1;
    struct args3 args = {.flags = CLONE_PIDFD, .pidfd = (uintptr_t)&pidfd, .exit_signal = SIGCHLD};
    pid_t pid = (pid_t)clone3(&args, sizeof(args));
    if (pid == 0)
        _exit(12);
    YES(pid > 0 && pidfd >= 0);
    VAL(fcntl(pidfd, F_GETFD));
    struct pollfd poller = {.fd = pidfd, .events = POLLIN};
    VAL(poll(&poller, 1, 10000));
    siginfo_t info;
    OK(waitid(P_PIDFD, (id_t)pidfd, &info, WEXITED));
    VAL(info.si_status);
    OK(syscall(SYS_pidfd_send_signal, pidfd, 0, NULL, 0));
    close(pidfd);

    signal(SIGUSR1, noop);
    signal(SIGUSR2, SIG_IGN);
    struct args3 clear = {.flags = CLONE_CLEAR_SIGHAND, .exit_signal = SIGCHLD};
    pid = (pid_t)clone3(&clear, sizeof(clear));
    if (pid == 0) {
        struct sigaction one, two;
        sigaction(SIGUSR1, NULL, &one);
        sigaction(SIGUSR2, NULL, &two);
        _exit((one.sa_handler == SIG_DFL) + 2 * (two.sa_handler == SIG_IGN));
    }
    reap("CLONE_CLEAR_SIGHAND", pid);

    pid = fork();
    if (pid == 0) {
        struct args3 sibling = {.flags = CLONE_PARENT};
        long sibling_pid = clone3(&sibling, sizeof(sibling));
        _exit(sibling_pid == 0 ? 20 : 10);
    }
    int status[2];
    waitpid(-1, &status[0], 0), waitpid(-1, &status[1], 0);
    YES(WEXITSTATUS(status[0]) + WEXITSTATUS(status[1]) == 30); /* both are ours */
    struct args3 small = {.exit_signal = SIGCHLD};
    pid = (pid_t)clone3(&small, 64);
    if (pid == 0)
        _exit(13);
    reap("clone3 of 64 bytes", pid);
}

/* clone(2) takes any number as exit signal and sends those that are signals. */
static void exit_signals_beyond(void)
{
    for (long signo = 65; signo < 256; signo += 38) {
        long pid = syscall(SYS_clone, signo, NULL, NULL, NULL, 0);
        if (pid == 0)
            _exit(3);
        int status = 0;
        YES(waitpid((pid_t)pid, &status, __WALL) == pid);
        show_status("ended", status);
    }
}

int main(void)
{
    start();
    exit_signals_beyond();
    memory();
    tables();
    tids();
    exit_signals();
    wrong_use();
    clone3_works();
    return 0;
}
