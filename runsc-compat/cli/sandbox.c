/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Theory of operation: every step is a state of `struct sandbox`, driven by one poll loop.
 *   STARTING   gofer and sentry have their START; both must report READY (in any order)
 *   RUNNING    the gofer has the sentry's listener, the sentry has GO; signals are forwarded
 *   ENDED      EXIT arrived, or something failed: `status` is final
 * Whichever of the three processes dies first, the loop ends, and end_all() takes down the rest. The
 * sentry is not trusted after READY: its text is escaped, its terminal bytes go to the terminal (that's
 * what they're for), its log lines are stripped of control bytes.
 */
#include "runsc-compat/cli/sandbox.h"

#define LOG_MODULE "sandbox"
#include "base/host.h"
#include "base/log.h"
#include "runsc-compat/cli/cgroup.h"
#include "runsc-compat/cli/monitor.h"
#include "runsc-compat/cli/relay.h"
#include "runsc-compat/cli/spawn.h"
#include "runsc-compat/cli/terminal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define DEATH_WAIT_MS 2000

enum state { STARTING, RUNNING, ENDED };

struct sandbox {
    enum state state;
    int status;
    struct plan *plan;
    struct err *err;
    struct cgroup cgroup;
    struct terminal terminal;
    struct monitor monitor;
    struct child gofer;
    struct child sentry;
    struct relay tty;  /* terminal bytes */
    struct relay_log log;
    int log_hfd;
    int signals; /* signalfd */
    int timer;   /* timerfd of --timeout */
    int listener; /* from the sentry, until the gofer has it */
    bool gofer_ready;
    bool sentry_ready;
    bool gofer_closed;
    bool sentry_closed; /* its socket; its death must follow */
    bool foreground_lost; /* Ctrl-Z: try raw mode again when continued */
};

static const int forwarded[] = {SIGTERM, SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP};

static void end(struct sandbox *s, int status)
{
    if (s->state == ENDED)
        return;
    s->state = ENDED;
    s->status = status;
}

static void fail(struct sandbox *s)
{
    end(s, STATUS_FAILED);
}

/* ---- start ------------------------------------------------------------------------------------- */

static int block_signals(struct sandbox *s)
{
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_COUNT(forwarded); i++)
        sigaddset(&set, forwarded[i]);
    sigaddset(&set, SIGWINCH);
    sigaddset(&set, SIGCONT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    s->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return s->signals < 0 ? err_errno(s->err, errno, "can't make a signalfd") : 0;
}

/* A descriptor of the caller's for the guest as 0, 1 or 2; -1 if the sandbox's terminal is that. */
static int stdio_fd(struct sandbox *s, int hfd)
{
    struct stat st;
    if (s->terminal.mask >> hfd & 1)
        return -1;
    if (fstat(hfd, &st) < 0)
        return err_errno(s->err, errno, "descriptor %d", hfd);
    if (S_ISDIR(st.st_mode) || S_ISBLK(st.st_mode))
        return err_set(s->err, "descriptor %d is a directory or a block device; redirect it", hfd);
    return hfd;
}

static int start_sentry(struct sandbox *s, int channel, int log)
{
    struct control_fds fds;
    int tty[2] = {-1, -1};
    control_fds_init(&fds);
    fds.gofer = channel;
    fds.log = log;
    fds.oom = s->sentry.oom;
    for (int hfd = 0; hfd < 3; hfd++) {
        fds.stdio[hfd] = stdio_fd(s, hfd);
        if (s->err->text[0])
            return -1;
    }
    if (s->terminal.mask && socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, tty) < 0)
        return err_errno(s->err, errno, "can't make a socket");
    AUTO_FD theirs = tty[1];
    fds.tty = theirs;
    relay_init(&s->tty, tty[0], &s->terminal);
    s->plan->sentry.tty_mask = s->terminal.mask;
    s->plan->sentry.winsize = terminal_winsize(&s->terminal);
    int error = control_send_start(s->sentry.sock, &s->plan->sentry, &fds);
    if (error == -E2BIG)
        return err_set(s->err, "arguments and environment are too long together");
    return error ? err_errno(s->err, -error, "can't configure the sentry") : 0;
}

static int start_gofer(struct sandbox *s, int channel, int log)
{
    const struct gofer_start_fds fds = {.channel = channel, .log = log};
    int error = gofer_send_start(s->gofer.sock, &s->plan->gofer, &fds);
    return error ? err_errno(s->err, -error, "can't configure the gofer") : 0;
}

static int configure(struct sandbox *s)
{
    int channel[2];
    int log;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel) < 0)
        return err_errno(s->err, errno, "can't make a socket");
    AUTO_FD gofer_end = channel[0];
    AUTO_FD sentry_end = channel[1];
    if (relay_log_init(&s->log, s->log_hfd, &log) < 0)
        return err_errno(s->err, errno, "can't make a pipe");
    AUTO_FD log_write = log;
    if (start_gofer(s, gofer_end, log_write) < 0)
        return -1;
    return start_sentry(s, sentry_end, log_write);
}

static int spawn_both(struct sandbox *s)
{
    bool root = s->plan->as_root;
    const struct spawn_config gofer = {.program = "bailey-gofer",
                                       .ids = root ? SPAWN_IDS_IDENTITY : SPAWN_IDS_CALLER};
    const struct spawn_config sentry = {.program = "bailey-sentry",
                                        .ids = root ? SPAWN_IDS_OWN : SPAWN_IDS_CALLER,
                                        .host_uid = s->plan->sentry_uid,
                                        .raise_oom = true,
                                        .drill = s->plan->sentry.drill};
    if (spawn(&gofer, &s->gofer, s->err) < 0 || monitor_watch(&s->monitor, s->gofer.pidfd, s->err) < 0)
        return -1;
    if (spawn(&sentry, &s->sentry, s->err) < 0 || monitor_watch(&s->monitor, s->sentry.pidfd, s->err) < 0)
        return -1;
    if (cgroup_add_core(&s->cgroup, s->gofer.pid, s->err) < 0 ||
        cgroup_add_guest(&s->cgroup, s->sentry.pid, s->err) < 0)
        return -1;
    /* Until here others of our uid had to be able to write the children's id maps; now nobody may look
     * into us, or into the children, which start as copies. */
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    if (configure(s) < 0)
        return -1;
    if (spawn_release(&s->gofer, "bailey-gofer", s->err) < 0)
        return -1;
    return spawn_release(&s->sentry, "bailey-sentry", s->err);
}

static int start(struct sandbox *s)
{
    if (cgroup_plan(&s->plan->sentry.limits, &s->cgroup, s->err) < 0 || block_signals(s) < 0)
        return -1;
    if (terminal_init(&s->terminal) < 0)
        return err_errno(s->err, errno, "can't look at the terminal");
    if (s->plan->timeout_ns) {
        s->timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
        if (s->timer < 0)
            return err_errno(s->err, errno, "can't make a timer");
    }
    if (monitor_start(&s->cgroup, &s->terminal, s->log_hfd, &s->monitor, s->err) < 0)
        return -1;
    if (cgroup_create(&s->cgroup, s->err) < 0)
        return -1;
    return spawn_both(s);
}

/* Both are ready: the guest may start. */
static void go(struct sandbox *s)
{
    int error = gofer_send_listener(s->gofer.sock, s->listener);
    host_close(s->listener);
    s->listener = -1;
    if (!error && s->cgroup.created && cgroup_add_core(&s->cgroup, s->sentry.pid, s->err) < 0) {
        fail(s);
        return;
    }
    terminal_enter_raw(&s->terminal);
    if (!error)
        error = control_send(s->sentry.sock, CONTROL_GO, 0, 0, NULL, -1);
    if (error && error != -EPIPE && error != -ECONNRESET) { /* those: its death is the next event */
        err_errno(s->err, -error, "the sandbox died while it started; see the log lines above");
        fail(s);
        return;
    }
    if (s->timer >= 0) {
        const struct itimerspec at = {.it_value = {.tv_sec = (time_t)(s->plan->timeout_ns / 1000000000),
                                                   .tv_nsec = (long)(s->plan->timeout_ns % 1000000000)}};
        timerfd_settime(s->timer, 0, &at, NULL);
    }
    s->state = RUNNING;
}

/* ---- events ------------------------------------------------------------------------------------ */

/* To the sentry; its socket being closed means that it died, which another event reports. */
static void tell_sentry(struct sandbox *s, enum control_kind kind, uint64_t a, uint64_t b)
{
    int error = control_send(s->sentry.sock, kind, a, b, NULL, -1);
    if (error)
        log_dbg("message %d to the sentry: error %d", kind, -error);
}

static void send_winsize(struct sandbox *s)
{
    struct control_winsize w = terminal_winsize(&s->terminal);
    tell_sentry(s, CONTROL_WINSIZE, (uint64_t)w.rows << 16 | w.cols, (uint64_t)w.xpixel << 16 | w.ypixel);
}

/* The command stopped: so do we, as the caller's shell expects, until it continues us. */
static void stop_ourselves(struct sandbox *s)
{
    sigset_t stop;
    terminal_restore(&s->terminal);
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    signal(SIGTSTP, SIG_DFL);
    kill(0, SIGTSTP); /* the whole job, as the terminal would have done */
    sigprocmask(SIG_UNBLOCK, &stop, NULL);
    /* stopped here */
    sigprocmask(SIG_BLOCK, &stop, NULL);
    s->foreground_lost = !terminal_enter_raw(&s->terminal);
    send_winsize(s);
    tell_sentry(s, CONTROL_CONTINUE, 0, 0);
}

static void on_exit_message(struct sandbox *s, const struct control_message *m)
{
    if (m->text_size) {
        err_set(s->err, "%s", m->text);
    }
    end(s, m->a <= 255 ? (int)m->a : STATUS_FAILED);
}

static void on_sentry_message(struct sandbox *s)
{
    struct control_message m;
    int hfd = -1;
    int error = control_recv(s->sentry.sock, &m, &hfd);
    AUTO_FD received = error ? -1 : hfd;
    if (error == -EPIPE) {
        s->sentry_closed = true; /* its death is reported by the pidfd */
        return;
    }
    if (error) {
        err_set(s->err, "the sentry sent a message that can't be right (error %d); the sandbox was ended",
                -error);
        fail(s);
        return;
    }
    if (m.kind == CONTROL_READY && s->state == STARTING && !s->sentry_ready && received >= 0) {
        s->sentry_ready = true;
        s->listener = take_fd(&received);
    } else if (m.kind == CONTROL_STOPPED && s->state == RUNNING && received < 0) {
        stop_ourselves(s);
    } else if (m.kind == CONTROL_EXIT && received < 0) {
        on_exit_message(s, &m);
    } else {
        err_set(s->err, "the sentry sent message %u out of turn; the sandbox was ended", m.kind);
        fail(s);
    }
}

static void on_gofer_message(struct sandbox *s)
{
    char text[GOFER_TEXT_MAX + 1];
    int error = gofer_recv_ready(s->gofer.sock, text);
    if (error == -EPIPE) {
        s->gofer_closed = true;
        return;
    }
    if (error == 0 && !s->gofer_ready) {
        s->gofer_ready = true;
        return;
    }
    if (error == -ECANCELED)
        err_set(s->err, "the gofer can't serve the files: %s", text);
    else
        err_set(s->err, "the gofer sent a message that can't be right; the sandbox was ended");
    fail(s);
}

static void on_signal(struct sandbox *s)
{
    struct signalfd_siginfo info;
    if (read(s->signals, &info, sizeof(info)) != (ssize_t)sizeof(info))
        return;
    int signo = (int)info.ssi_signo;
    if (signo == SIGWINCH) {
        send_winsize(s);
        return;
    }
    if (signo == SIGCONT) {
        if (s->state == RUNNING && s->foreground_lost)
            s->foreground_lost = !terminal_enter_raw(&s->terminal);
        return;
    }
    if (s->state == RUNNING) {
        tell_sentry(s, CONTROL_SIGNAL, (uint64_t)signo, 0);
    } else if (signo != SIGTSTP) {
        end(s, 128 + signo);
    }
}

static bool died_within(const struct child *child, int ms)
{
    struct pollfd died = {.fd = child->pidfd, .events = POLLIN};
    return poll(&died, 1, ms) == 1;
}

/* Status 0: it saw the end of a socket. */
static bool exited_cleanly(const struct child *child)
{
    siginfo_t info = {0};
    return waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | WNOWAIT | WNOHANG) == 0 &&
           info.si_code == CLD_EXITED && info.si_status == 0;
}

static void on_death(struct sandbox *s, struct child *child, const char *name)
{
    /* A gofer ends when the sentry's sockets close, and the sentry's own death is reported only after
     * that of all its stubs: wait for the cause before the effect is reported. */
    if (child == &s->gofer && (s->state == RUNNING || exited_cleanly(child)) &&
        died_within(&s->sentry, DEATH_WAIT_MS / 4)) {
        child = &s->sentry;
        name = "sentry";
    }
    if (child == &s->sentry) { /* its last message may be there already */
        while (s->state != ENDED) {
            struct pollfd more = {.fd = s->sentry.sock, .events = POLLIN};
            if (poll(&more, 1, 0) != 1 || !(more.revents & POLLIN))
                break;
            struct control_message m;
            int hfd = -1;
            if (control_recv(s->sentry.sock, &m, &hfd) < 0)
                break;
            host_close(hfd);
            if (m.kind == CONTROL_EXIT)
                on_exit_message(s, &m);
        }
    } else if (!s->gofer_ready && s->state == STARTING) {
        struct pollfd more = {.fd = s->gofer.sock, .events = POLLIN};
        if (poll(&more, 1, 0) == 1)
            on_gofer_message(s);
    }
    if (s->state == ENDED)
        return;
    siginfo_t info = {0};
    waitid(P_PIDFD, (id_t)child->pidfd, &info, WEXITED | WNOWAIT | WNOHANG);
    if (info.si_code == CLD_EXITED)
        err_set(s->err, "the %s ended by itself (status %d); the sandbox was ended", name, info.si_status);
    else
        err_set(s->err, "the %s was killed by signal %d; the sandbox was ended", name, info.si_status);
    log_err("%s", s->err->text);
    fail(s);
}

static void on_timeout(struct sandbox *s)
{
    err_set(s->err, "the time of --timeout is over; the sandbox was ended");
    end(s, STATUS_TIMEOUT);
}

/* ---- loop -------------------------------------------------------------------------------------- */

enum { P_SENTRY, P_GOFER, P_SENTRY_DIED, P_GOFER_DIED, P_MONITOR_DIED, P_SIGNALS, P_TIMER, P_LOG,
       P_TTY_IN, P_TTY_SOCK, P_COUNT };

static void fill_poll(struct sandbox *s, struct pollfd polls[P_COUNT])
{
    const int hfds[P_COUNT] = {[P_SENTRY] = s->sentry.sock,        [P_GOFER] = s->gofer.sock,
                               [P_SENTRY_DIED] = s->sentry.pidfd,  [P_GOFER_DIED] = s->gofer.pidfd,
                               [P_MONITOR_DIED] = s->monitor.pidfd, [P_SIGNALS] = s->signals,
                               [P_TIMER] = s->timer,               [P_LOG] = s->log.pipe,
                               [P_TTY_IN] = -1,                    [P_TTY_SOCK] = -1};
    for (int i = 0; i < P_COUNT; i++)
        polls[i] = (struct pollfd){.fd = hfds[i], .events = POLLIN};
    /* After its last message the gofer's socket only reports its end, over and over. */
    if (s->gofer_ready || s->gofer_closed)
        polls[P_GOFER].fd = -1;
    if (s->sentry_closed)
        polls[P_SENTRY].fd = -1;
    relay_fill_poll(&s->tty, &polls[P_TTY_IN], &polls[P_TTY_SOCK], s->state == RUNNING);
}

static void handle(struct sandbox *s, const struct pollfd polls[P_COUNT])
{
    if (polls[P_LOG].revents)
        relay_log_forward(&s->log);
    if (polls[P_TTY_IN].revents || polls[P_TTY_SOCK].revents) {
        if (relay_move(&s->tty, &polls[P_TTY_IN], &polls[P_TTY_SOCK]) == RELAY_HANGUP)
            tell_sentry(s, CONTROL_HANGUP, 0, 0);
    }
    if (polls[P_SIGNALS].revents)
        on_signal(s);
    if (polls[P_SENTRY].revents & POLLIN)
        on_sentry_message(s);
    if (polls[P_GOFER].revents & POLLIN)
        on_gofer_message(s);
    if (s->state == STARTING && s->gofer_ready && s->sentry_ready)
        go(s);
    if (s->state != ENDED && polls[P_TIMER].revents)
        on_timeout(s);
    if (s->state != ENDED && polls[P_SENTRY_DIED].revents)
        on_death(s, &s->sentry, "sentry");
    if (s->state != ENDED && polls[P_GOFER_DIED].revents)
        on_death(s, &s->gofer, "gofer");
    if (s->state != ENDED && polls[P_MONITOR_DIED].revents) {
        err_set(s->err, "the monitor process was killed; the sandbox was ended");
        log_err("%s", s->err->text);
        fail(s);
    }
}

static void loop(struct sandbox *s)
{
    while (s->state != ENDED) {
        struct pollfd polls[P_COUNT];
        fill_poll(s, polls);
        bool dying = s->sentry_closed || s->gofer_closed;
        int count = poll(polls, P_COUNT, dying ? DEATH_WAIT_MS : -1);
        if (count > 0) {
            handle(s, polls);
        } else if (count == 0) {
            err_set(s->err, "the %s closed its socket but didn't end; the sandbox was ended",
                    s->sentry_closed ? "sentry" : "gofer");
            fail(s);
        }
    }
}

static void end_all(struct sandbox *s)
{
    relay_drain(&s->tty);
    child_end(&s->sentry);
    child_end(&s->gofer);
    relay_drain(&s->tty);
    relay_fini(&s->tty);
    relay_log_fini(&s->log);
    terminal_restore(&s->terminal);
    cgroup_remove(&s->cgroup);
    monitor_end(&s->monitor);
    host_close(s->listener);
    host_close(s->timer);
    host_close(s->signals);
}

int sandbox_run(const struct sandbox_config *config, struct err *err)
{
    static struct sandbox s; /* large: the cgroup plan */
    s = (struct sandbox){.plan = config->plan, .err = err, .log_hfd = config->log_hfd, .signals = -1,
                         .timer = -1, .listener = -1,
                         .monitor = {.pid = -1, .pidfd = -1, .sock = -1}};
    s.terminal.in = s.terminal.out = -1;
    child_init(&s.gofer);
    child_init(&s.sentry);
    relay_init(&s.tty, -1, NULL);
    s.log.pipe = -1;
    if (start(&s) < 0)
        fail(&s);
    loop(&s);
    end_all(&s);
    return s.status;
}
