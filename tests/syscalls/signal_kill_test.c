/* SPDX-License-Identifier: Apache-2.0 */
/* kill(2) permission, stop and continue, pidfds, signals to stopped and blocked processes. */
#include "show.h"
#include <poll.h>
#include <sys/syscall.h>

static pid_t sleeper(uid_t uid)
{
    int pipes[2];
    char byte;
    if (pipe(pipes) < 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        if (uid && setresuid(uid, uid, uid) < 0)
            _exit(1);
        if (write(pipes[1], "r", 1) != 1)
            _exit(1);
        for (;;)
            pause();
    }
    if (read(pipes[0], &byte, 1) != 1)
        exit(1);
    close(pipes[0]), close(pipes[1]);
    return pid;
}

static pid_t roots, other;

static int as_nobody(void)
{
    OK(setresuid(65534, 65534, 65534));
    OK(kill(roots, 0));
    OK(kill(roots, SIGTERM));
    OK(kill(roots, SIGCONT)); /* same session: allowed */
    OK(kill(other, 0));
    OK(syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, roots, 0), SIGTERM, NULL, 0));
    OK(kill(other, SIGKILL));
    return 0;
}

static int with_saved_id(void)
{
    pid_t pid = sleeper(12345);
    OK(setresuid(0, 65534, 12345)); /* real and effective decide for the sender */
    OK(kill(pid, 0));
    OK(seteuid(0));
    OK(setresuid(12345, 65534, 0));
    OK(kill(pid, SIGKILL));
    waitpid(pid, NULL, 0);
    return 0;
}

static void stops(void)
{
    int status;
    pid_t pid = sleeper(0);
    OK(kill(pid, SIGSTOP));
    YES(waitpid(pid, &status, WUNTRACED) == pid);
    OK(kill(pid, SIGTERM)); /* waits until it's continued */
    sleep_ms(20);
    VAL(waitpid(pid, &status, WNOHANG));
    OK(kill(pid, SIGCONT));
    reap("terminated", pid);
    pid = sleeper(0);
    OK(kill(pid, SIGSTOP));
    waitpid(pid, &status, WUNTRACED);
    OK(kill(pid, SIGKILL)); /* doesn't wait */
    reap("killed", pid);
}

static volatile sig_atomic_t count;

static void on_cont(int sig)
{
    (void)sig;
    count++;
}

static int cont_handler(void)
{
    signal(SIGCONT, on_cont);
    raise(SIGCONT); /* even though it isn't stopped */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    kill(getpid(), SIGCONT);
    return count;
}

static void pidfds(void)
{
    pid_t pid = sleeper(0);
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    YES(fd >= 0);
    VAL(fcntl(fd, F_GETFD));
    struct pollfd poller = {fd, POLLIN, 0};
    VAL(poll(&poller, 1, 0));
    siginfo_t info = {.si_signo = SIGTERM, .si_code = SI_QUEUE};
    OK(syscall(SYS_pidfd_send_signal, fd, 0, NULL, 0));
    OK(syscall(SYS_pidfd_send_signal, fd, SIGUSR1, &info, 0)); /* not the same signal */
    OK(syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 99));
    OK(syscall(SYS_pidfd_send_signal, fd, 65, NULL, 0));
    OK(syscall(SYS_pidfd_send_signal, 0, SIGTERM, NULL, 0));
    OK(syscall(SYS_pidfd_send_signal, fd, SIGTERM, &info, 0));
    VAL(poll(&poller, 1, 10000));
    YES(poller.revents & POLLIN);
    reap("by pidfd", pid);
    OK(syscall(SYS_pidfd_open, pid, 0));
    OK(syscall(SYS_pidfd_open, -1, 0));
    OK(syscall(SYS_pidfd_open, getpid(), 0x1000000));
    char byte;
    OK(read(fd, &byte, 1));
}

int main(void)
{
    start();
    if (geteuid() == 0) {
        roots = sleeper(0);
        other = sleeper(65534);
        child("nobody", as_nobody);
        reap("other", other);
        kill(roots, SIGKILL);
        reap("root's", roots);
        child("saved ids", with_saved_id);
    } else {
        OK(kill(1, 0));
    }
    stops();
    child("SIGCONT", cont_handler);
    pidfds();
    return 0;
}
