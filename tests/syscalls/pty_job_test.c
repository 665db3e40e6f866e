/* SPDX-License-Identifier: Apache-2.0 */
/* Job control: controlling terminals, signals from keys, foreground groups, SIGTTIN/SIGTTOU, hang-up. */
#include "show.h"
#include <pty.h>
#include <sys/ioctl.h>
#include <termios.h>

static int master, slave, report[2];
static volatile sig_atomic_t last;

static void on_signal(int sig)
{
    last = sig;
}

static void type(const char *keys)
{
    if (write(master, keys, strlen(keys)) < 0)
        printf("write: %s\n", strerrorname_np(errno));
}

static void wait_for(int sig)
{
    for (int i = 0; i < 2000 && last != sig; i++)
        sleep_ms(1);
    printf("signal %s\n", last ? sigabbrev_np(last) : "none");
    last = 0;
}

static int controlling(void)
{
    pid_t group;
    OK(ioctl(slave, TIOCSCTTY, 0)); /* not a session leader */
    OK(setsid());
    OK(open("/dev/tty", O_RDWR));
    OK(tcgetpgrp(slave));
    OK(ioctl(slave, TIOCSCTTY, 0));
    int tty = open("/dev/tty", O_RDWR);
    YES(tty >= 0 && isatty(tty));
    YES(tcgetpgrp(slave) == getpgrp() && tcgetsid(slave) == getsid(0));
    OK(ioctl(master, TIOCGPGRP, &group));
    YES(group == getpgrp());
    signal(SIGINT, on_signal), signal(SIGQUIT, on_signal), signal(SIGWINCH, on_signal), signal(SIGTSTP, on_signal);
    type("lost\003");
    wait_for(SIGINT);
    type("kept\n");
    char line[32] = "";
    VAL(read(slave, line, sizeof(line)));
    printf("%s", line); /* the interrupt flushed what was typed before */
    type("\034");
    wait_for(SIGQUIT);
    type("\032");
    wait_for(SIGTSTP);
    struct winsize size = {10, 20, 0, 0};
    OK(ioctl(master, TIOCSWINSZ, &size));
    wait_for(SIGWINCH);
    OK(ioctl(master, TIOCSWINSZ, &size)); /* unchanged: no signal */
    sleep_ms(20);
    VAL(last);
    int sig = SIGINT;
    OK(ioctl(master, TIOCSIG, sig));
    wait_for(SIGINT);
    struct termios t;
    tcgetattr(slave, &t);
    t.c_lflag &= ~(tcflag_t)ISIG;
    tcsetattr(slave, TCSANOW, &t);
    type("\003\n");
    VAL(read(slave, line, sizeof(line)));
    VAL(line[0]);
    t.c_lflag |= ISIG;
    tcsetattr(slave, TCSANOW, &t);
    OK(tcsetpgrp(slave, 1 << 29));
    OK(tcsetpgrp(slave, -1));
    OK(tcsetpgrp(slave, getppid()));
    return 0;
}

static pid_t background(void (*body)(void))
{
    pid_t pid = fork();
    if (pid == 0) {
        setpgid(0, 0);
        body();
        _exit(0);
    }
    setpgid(pid, pid);
    return pid;
}

static void read_terminal(void)
{
    char byte;
    if (read(slave, &byte, 1) == 1)
        _exit(byte);
    _exit(errno == EIO ? 101 : 100);
}

static void ignore_and_read(void)
{
    signal(SIGTTIN, SIG_IGN);
    read_terminal();
}

static void write_terminal(void)
{
    _exit(write(slave, "background", 10) == 10 ? 0 : 1);
}

static void take_terminal(void)
{
    _exit(tcsetpgrp(slave, getpgrp()) == 0 ? 0 : 1);
}

static void set_terminal(void)
{
    struct termios t;
    _exit(tcgetattr(slave, &t) == 0 && tcsetattr(slave, TCSANOW, &t) == 0 ? 0 : 1);
}

static void sleep_long(void)
{
    signal(SIGINT, SIG_DFL);
    for (;;)
        pause();
}

static void show_stop(const char *what, pid_t pid)
{
    int status;
    waitpid(pid, &status, WUNTRACED);
    show_status(what, status);
}

static void kill_group(pid_t pid)
{
    kill(-pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static int jobs(void)
{
    struct termios t;
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    signal(SIGTTOU, SIG_IGN);
    pid_t pid = background(read_terminal);
    show_stop("background read", pid);
    OK(tcsetpgrp(slave, pid));
    YES(tcgetpgrp(slave) == pid);
    type("A\n");
    kill(-pid, SIGCONT);
    show_stop("in the foreground", pid);
    OK(tcsetpgrp(slave, getpgrp()));
    pid = background(ignore_and_read);
    show_stop("SIGTTIN ignored", pid);
    signal(SIGTTOU, SIG_DFL);
    pid = background(write_terminal);
    show_stop("background write", pid); /* TOSTOP isn't set */
    tcgetattr(slave, &t);
    t.c_lflag |= TOSTOP;
    tcsetattr(slave, TCSANOW, &t);
    pid = background(write_terminal);
    show_stop("with TOSTOP", pid);
    kill_group(pid);
    pid = background(take_terminal);
    show_stop("background tcsetpgrp", pid);
    kill_group(pid);
    pid = background(set_terminal);
    show_stop("background tcsetattr", pid);
    kill_group(pid);
    pid = background(sleep_long);
    OK(tcsetpgrp(slave, pid));
    signal(SIGTTOU, SIG_IGN);
    type("\003");
    show_stop("interrupt of the foreground", pid);
    OK(tcsetpgrp(slave, getpgrp()));
    pid = background(sleep_long);
    OK(tcsetpgrp(slave, pid));
    sleep_ms(20);
    type("\032");
    show_stop("stop key", pid);
    kill_group(pid);
    return 0;
}

static void tell(int sig)
{
    char code = (char)sig;
    if (write(report[1], &code, 1) < 0)
        _exit(1);
}

/* The leader dies: the foreground group gets SIGHUP and SIGCONT, and the terminal is nobody's. */
static int leader_exits(void)
{
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    sigset_t hup, none;
    sigemptyset(&none);
    sigemptyset(&hup);
    sigaddset(&hup, SIGHUP);
    sigprocmask(SIG_BLOCK, &hup, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGHUP, tell);
        char ready = 'r';
        if (write(report[1], &ready, 1) < 0)
            _exit(1);
        sigsuspend(&none); /* it may have come already */
        sleep_ms(10);
        char end = open("/dev/tty", O_RDWR) < 0 && errno == ENXIO ? 'n' : 't';
        if (write(report[1], &end, 1) < 0)
            _exit(1);
        _exit(0);
    }
    char byte;
    return read(report[0], &byte, 1) == 1 && byte == 'r' ? 5 : 1;
}

static int master_closes(void)
{
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    signal(SIGHUP, on_signal);
    char ready = 'r';
    close(master);
    if (write(report[1], &ready, 1) < 0)
        return 1;
    wait_for(SIGHUP);
    char byte;
    VAL(read(slave, &byte, 1));
    OK(write(slave, "x", 1));
    return 0;
}

static int gives_up(void)
{
    setsid();
    ioctl(slave, TIOCSCTTY, 0);
    signal(SIGHUP, on_signal);
    OK(ioctl(slave, TIOCNOTTY, 0));
    VAL(last == SIGHUP);
    OK(open("/dev/tty", O_RDWR));
    OK(tcgetpgrp(slave));
    return 0;
}

static void new_pty(void)
{
    close(master), close(slave);
    if (openpty(&master, &slave, NULL, NULL, NULL) < 0)
        printf("openpty: %s\n", strerrorname_np(errno));
}

int main(void)
{
    start();
    char byte = 0;
    OK(pipe(report));
    master = slave = -1;
    new_pty();
    child("controlling", controlling);
    new_pty();
    child("jobs", jobs);
    new_pty();
    child("leader exits", leader_exits);
    VAL(read(report[0], &byte, 1));
    VAL(byte == SIGHUP);
    VAL(read(report[0], &byte, 1));
    VAL(byte == 'n');
    new_pty();
    child("gives up", gives_up);
    new_pty();
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0)
        _exit(master_closes());
    VAL(read(report[0], &byte, 1));
    close(master);
    reap("master closes", pid);
    /* forkpty and a shell, as terminals do it. */
    fflush(stdout);
    pid = forkpty(&master, NULL, NULL, &(struct winsize){30, 90, 0, 0});
    if (pid == 0) {
        execl("/bin/sh", "sh", "-c", "stty size; echo done; exit 3", (char *)NULL);
        _exit(1);
    }
    char text[128] = "";
    size_t len = 0;
    for (ssize_t n; len < sizeof(text) - 1 && (n = read(master, text + len, sizeof(text) - 1 - len)) > 0;)
        len += (size_t)n;
    printf("%s", text);
    reap("shell", pid);
    return 0;
}
