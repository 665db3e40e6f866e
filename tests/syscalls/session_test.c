/* SPDX-License-Identifier: Apache-2.0 */
/* Sessions and process groups: setsid, setpgid, getsid, orphaned groups, kill(0) and kill(-pgid). */
#include "show.h"
#include <sys/prctl.h>

static pid_t sleeper(void)
{
    pid_t pid = fork();
    if (pid == 0) {
        for (;;)
            pause();
    }
    return pid;
}

static int new_session(void)
{
    pid_t old = getsid(0);
    YES(getpgrp() != getpid());
    YES(setsid() == getpid());
    YES(getsid(0) == getpid() && getpgrp() == getpid() && getsid(0) != old);
    OK(setsid()); /* a leader already */
    OK(setpgid(0, 0)); /* a session leader may not move */
    OK(open("/dev/tty", O_RDWR)); /* no controlling terminal */
    pid_t pid = sleeper();
    YES(getsid(pid) == getpid() && getpgid(pid) == getpid());
    OK(setpgid(pid, pid));
    YES(getpgid(pid) == pid);
    OK(setpgid(pid, getpid()));
    OK(setpgid(pid, 1 << 29)); /* no such group in this session */
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    return 0;
}

static int group_leader(void)
{
    OK(setpgid(0, 0));
    YES(getpgrp() == getpid());
    OK(setsid()); /* a group leader may not */
    return 0;
}

static void errors(void)
{
    OK(setpgid(0, -1));
    OK(setpgid(1 << 29, 0));
    OK(setpgid(-5, 0));
    OK(getpgid(1 << 29));
    OK(getsid(1 << 29));
    YES(getpgid(0) == getpgrp() && getsid(0) == getsid(getpid()));
    pid_t pid = fork();
    if (pid == 0) {
        execl("/bin/sleep", "sleep", "1000", (char *)NULL);
        _exit(1);
    }
    int state = 0;
    for (int i = 0; i < 2000 && !state; i++) { /* once it has exec'ed: EACCES */
        state = setpgid(pid, pid) < 0 ? errno : 0;
        sleep_ms(1);
    }
    ERR(state);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static volatile sig_atomic_t caught;

static void on_signal(int sig)
{
    caught = sig;
}

static int kill_own_group(void)
{
    int pipes[2], status, ok = 0;
    char byte = 0;
    setpgid(0, 0);
    signal(SIGUSR1, on_signal);
    if (pipe(pipes) < 0)
        return 1;
    for (int i = 0; i < 3; i++) {
        if (fork() == 0) {
            if (i == 2)
                setpgid(0, 0); /* out of reach */
            signal(SIGUSR1, SIG_DFL);
            if (write(pipes[1], "r", 1) < 1)
                _exit(1);
            sleep_ms(i == 2 ? 300 : 100000);
            _exit(i);
        }
    }
    for (int i = 0; i < 3; i++) {
        if (read(pipes[0], &byte, 1) != 1)
            return 1;
    }
    OK(kill(0, SIGUSR1));
    VAL(caught == SIGUSR1);
    for (int i = 0; i < 3; i++) {
        wait(&status);
        if (WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR1)
            ok++;
        if (WIFEXITED(status))
            ok += 10 * WEXITSTATUS(status);
    }
    return ok;
}

/* A group that becomes orphaned while it has a stopped member gets SIGHUP and SIGCONT. */
static int orphaned_group(void)
{
    int status;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    pid_t leader = fork();
    if (leader == 0) {
        setsid();
        pid_t pid = fork();
        if (pid == 0) {
            setpgid(0, 0);
            raise(SIGSTOP);
            _exit(1);
        }
        waitpid(pid, NULL, WUNTRACED);
        _exit(0); /* the stopped one's new parent is in another session */
    }
    waitpid(leader, NULL, 0);
    wait(&status);
    show_status("member", status);
    return 0;
}

static int stop_in_orphaned_group(void)
{
    setsid();
    signal(SIGTSTP, SIG_DFL);
    raise(SIGTSTP); /* ignored: nobody could continue us */
    return 11;
}

int main(void)
{
    start();
    child("new session", new_session);
    child("group leader", group_leader);
    errors();
    child("kill(0)", kill_own_group);
    child("orphaned group", orphaned_group);
    child("stop in orphaned group", stop_in_orphaned_group);
    OK(kill(-(1 << 29), 0));
    return 0;
}
