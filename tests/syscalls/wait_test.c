/* SPDX-License-Identifier: Apache-2.0 */
/* wait4(2), waitid(2), reparenting, subreapers, SIGCHLD. */
#include "show.h"
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

static pid_t spawn(int code)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(code);
    return pid;
}

static pid_t spawn_sleeper(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    return pid;
}

static void show_info(const char *what, const siginfo_t *info, pid_t pid)
{
    printf("%s: signo %d code %d status %d pid %s\n", what, info->si_signo, info->si_code, info->si_status,
           info->si_pid == pid ? "right" : info->si_pid ? "WRONG" : "0");
}

static void errors(void)
{
    siginfo_t info;
    OK(waitpid(-1, NULL, 0));
    OK(waitpid(-1, NULL, WNOHANG));
    OK(waitpid(getpid(), NULL, 0));
    OK(waitpid(-1, NULL, 0x4000));
    OK(waitpid(1 << 30, NULL, 0));
    OK(waitpid(INT32_MIN, NULL, 0));
    OK(waitid(P_ALL, 0, &info, WEXITED));
    OK(waitid(P_ALL, 0, &info, 0));
    OK(waitid(P_ALL, 0, &info, WNOHANG));
    OK(waitid((idtype_t)77, 0, &info, WEXITED));
    OK(waitid(P_PID, 0, &info, WEXITED));
    OK(waitid(P_PIDFD, 0, &info, WEXITED));
    OK(waitid(P_PIDFD, 999, &info, WEXITED));
}

static void options(void)
{
    pid_t pid = spawn_sleeper();
    siginfo_t info;
    int status;
    struct rusage usage;
    VAL(waitpid(pid, &status, WNOHANG));
    memset(&info, 7, sizeof(info));
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG));
    VAL(info.si_pid);
    kill(pid, SIGSTOP);
    OK(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT));
    show_info("stopped", &info, pid);
    YES(waitpid(pid, &status, WUNTRACED) == pid);
    show_status("stopped", status);
    VAL(waitpid(pid, &status, WNOHANG | WUNTRACED)); /* told once */
    kill(pid, SIGCONT);
    OK(waitid(P_PID, (id_t)pid, &info, WCONTINUED));
    show_info("continued", &info, pid);
    kill(pid, SIGTSTP);
    YES(waitpid(pid, &status, WUNTRACED | WCONTINUED) == pid);
    show_status("stopped", status);
    kill(pid, SIGCONT);
    YES(waitpid(pid, &status, WCONTINUED) == pid);
    show_status("continued", status);
    kill(pid, SIGTERM);
    OK(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOWAIT));
    show_info("killed", &info, pid);
    OK(waitid(P_PID, (id_t)pid, NULL, WEXITED | WNOWAIT));
    YES(wait4(pid, &status, 0, &usage) == pid);
    show_status("killed", status);
    YES(usage.ru_utime.tv_sec == 0);
    OK(waitpid(pid, &status, 0));
    pid = spawn(300);
    YES(waitpid(pid, &status, 0) == pid);
    show_status("300", status);
    pid = spawn(7);
    OK(waitid(P_ALL, 0, &info, WEXITED));
    show_info("any", &info, pid);
    pid = spawn(8);
    OK(syscall(SYS_waitid, P_PID, pid, NULL, WEXITED, NULL));
    pid = spawn(9);
    OK(wait4(pid, (int *)8, 0, NULL)); /* it's reaped all the same */
    OK(waitpid(pid, NULL, 0));
    OK(kill(pid, 0));
}

static void groups(void)
{
    pid_t first = spawn_sleeper(), second = spawn_sleeper(), third = spawn(4);
    siginfo_t info;
    OK(setpgid(first, first));
    OK(setpgid(second, first));
    YES(waitpid(0, NULL, 0) == third);
    OK(waitpid(0, NULL, 0));
    VAL(waitpid(-first, NULL, WNOHANG));
    OK(kill(-first, SIGKILL));
    pid_t one = waitpid(-first, NULL, 0);
    YES(one == first || one == second);
    OK(waitid(P_PGID, (id_t)first, &info, WEXITED));
    YES(info.si_pid == first + second - one);
    OK(waitpid(-first, NULL, 0));
}

static volatile sig_atomic_t chld_count, chld_code;

static void on_chld(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    chld_count++;
    chld_code = info->si_code;
}

static void sigchld(void)
{
    struct sigaction act = {.sa_sigaction = on_chld, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(SIGCHLD, &act, NULL);
    reap("handler", spawn(1));
    VAL(chld_count);
    VAL(chld_code == CLD_EXITED);
    pid_t pid = spawn_sleeper();
    kill(pid, SIGSTOP);
    waitpid(pid, NULL, WUNTRACED);
    VAL(chld_code == CLD_STOPPED);
    act.sa_flags |= SA_NOCLDSTOP;
    sigaction(SIGCHLD, &act, NULL);
    chld_count = 0;
    kill(pid, SIGCONT);
    waitpid(pid, NULL, WCONTINUED);
    VAL(chld_count);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    VAL(chld_count);
    VAL(chld_code == CLD_KILLED);
    act.sa_handler = SIG_DFL, act.sa_flags = SA_NOCLDWAIT;
    sigaction(SIGCHLD, &act, NULL);
    pid = spawn(2);
    OK(waitpid(pid, NULL, 0)); /* waits, then there's nothing */
    signal(SIGCHLD, SIG_IGN);
    pid = spawn(2);
    OK(waitpid(pid, NULL, 0));
    OK(kill(pid, 0));
    signal(SIGCHLD, SIG_DFL);
}

static void subreaper(void)
{
    int value = 7, pipes[2];
    OK(prctl(PR_SET_CHILD_SUBREAPER, 1));
    OK(prctl(PR_GET_CHILD_SUBREAPER, &value));
    VAL(value);
    OK(pipe(pipes));
    pid_t me = getpid(), pid = fork(), orphan = 0;
    if (pid == 0) {
        pid_t parent = getpid();
        if (fork() == 0) {
            while (getppid() == parent)
                sleep_ms(1);
            _exit(getppid() == me ? 40 : 41);
        }
        prctl(PR_GET_CHILD_SUBREAPER, &value);
        _exit(value); /* not inherited */
    }
    reap("middle", pid);
    int status;
    orphan = wait(&status);
    YES(orphan > 0 && orphan != pid);
    show_status("orphan", status);
    OK(prctl(PR_SET_CHILD_SUBREAPER, 0));
}

static void on_hup(int sig)
{
    _exit(sig == SIGHUP ? 50 : 51);
}

static int dies_with_parent(void)
{
    int pipes[2], ready[2];
    char byte = 0;
    if (pipe(pipes) < 0 || pipe(ready) < 0)
        return 1;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t parent = fork();
    if (parent == 0) {
        if (fork() == 0) {
            signal(SIGHUP, on_hup);
            prctl(PR_SET_PDEATHSIG, SIGHUP);
            if (write(ready[1], "x", 1) < 1)
                _exit(1);
            for (;;)
                pause();
        }
        if (read(ready[0], &byte, 1) < 1)
            _exit(1);
        _exit(0);
    }
    waitpid(parent, NULL, 0);
    int status;
    wait(&status);
    return WEXITSTATUS(status);
}

int main(void)
{
    start();
    errors();
    options();
    groups();
    sigchld();
    subreaper();
    child("parent death signal", dies_with_parent);
    return 0;
}
