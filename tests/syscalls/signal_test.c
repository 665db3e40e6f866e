/* SPDX-License-Identifier: Apache-2.0 */
/* Signals: sigaction flags, masks, order of delivery, queues, waiting for them. */
#include "show.h"
#include <sys/resource.h>
#include <sys/syscall.h>

static char order[64];
static volatile sig_atomic_t count;
static siginfo_t last;
static sigset_t mask_in_handler;

static void note(int sig)
{
    size_t len = strlen(order);
    if (len < sizeof(order) - 1)
        order[len] = sig >= SIGRTMIN ? (char)('0' + sig - SIGRTMIN) : sig == SIGUSR1 ? 'a' : sig == SIGUSR2 ? 'b' : 'x';
    count++;
    sigprocmask(SIG_BLOCK, NULL, &mask_in_handler);
}

static void on_info(int sig, siginfo_t *info, void *context)
{
    (void)context;
    note(sig);
    last = *info;
}

static void set_handler(int sig, int flags, int blocked)
{
    struct sigaction act = {.sa_sigaction = on_info, .sa_flags = SA_SIGINFO | flags};
    sigemptyset(&act.sa_mask);
    if (blocked)
        sigaddset(&act.sa_mask, blocked);
    sigaction(sig, &act, NULL);
}

static void change(int how, int sig)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, sig);
    sigprocmask(how, &set, NULL);
}

static void show_order(const char *what)
{
    printf("%s: %s\n", what, order);
    memset(order, 0, sizeof(order));
}

static void nested(int sig)
{
    note(sig);
    if (count < 3)
        raise(sig);
    order[strlen(order)] = ')';
}

static void flags(void)
{
    struct sigaction act;
    set_handler(SIGUSR1, 0, SIGUSR2);
    raise(SIGUSR1);
    show_order("once");
    YES(sigismember(&mask_in_handler, SIGUSR1) && sigismember(&mask_in_handler, SIGUSR2));
    sigprocmask(SIG_BLOCK, NULL, &mask_in_handler);
    YES(!sigismember(&mask_in_handler, SIGUSR1) && !sigismember(&mask_in_handler, SIGUSR2));
    VAL(last.si_code == SI_TKILL && last.si_pid == getpid() && last.si_uid == getuid());
    set_handler(SIGUSR1, SA_NODEFER, 0);
    raise(SIGUSR1);
    YES(!sigismember(&mask_in_handler, SIGUSR1));
    memset(order, 0, sizeof(order));
    act = (struct sigaction){.sa_handler = nested, .sa_flags = SA_NODEFER};
    sigaction(SIGUSR1, &act, NULL);
    count = 0;
    raise(SIGUSR1);
    show_order("SA_NODEFER nests");
    act.sa_flags = 0;
    sigaction(SIGUSR1, &act, NULL);
    count = 0;
    raise(SIGUSR1);
    show_order("otherwise follows");
    set_handler(SIGUSR1, (int)SA_RESETHAND, 0);
    raise(SIGUSR1);
    show_order("SA_RESETHAND");
    sigaction(SIGUSR1, NULL, &act);
    YES(act.sa_handler == SIG_DFL);
    set_handler(SIGUSR1, SA_RESTART, SIGHUP);
    sigaction(SIGUSR1, NULL, &act);
    YES((act.sa_flags & (int)(SA_SIGINFO | SA_RESTART)) == (SA_SIGINFO | SA_RESTART) && sigismember(&act.sa_mask, SIGHUP));
}

static void errors(void)
{
    struct sigaction act = {.sa_handler = SIG_IGN};
    OK(sigaction(SIGKILL, &act, NULL));
    OK(sigaction(SIGSTOP, &act, NULL));
    OK(sigaction(SIGKILL, NULL, &act));
    OK(syscall(SYS_rt_sigaction, 0, NULL, NULL, 8));
    OK(syscall(SYS_rt_sigaction, 65, NULL, NULL, 8));
    OK(syscall(SYS_rt_sigaction, 1, NULL, NULL, 4));
    OK(syscall(SYS_rt_sigprocmask, 99, &act, NULL, 8));
    OK(syscall(SYS_rt_sigprocmask, 99, NULL, NULL, 8));
    OK(syscall(SYS_rt_sigprocmask, SIG_BLOCK, NULL, NULL, 16));
    OK(kill(getpid(), 65));
    OK(kill(getpid(), -1));
    OK(kill(getpid(), 0));
    OK(kill(1 << 29, 0));
    uint64_t all = UINT64_MAX, now = 0, old;
    OK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, 8));
    OK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, &now, 8));
    YES(now == ~((1UL << (SIGKILL - 1)) | (1UL << (SIGSTOP - 1))));
}

static void queueing(void)
{
    for (int sig = SIGRTMIN; sig < SIGRTMIN + 4; sig++)
        set_handler(sig, 0, 0), change(SIG_BLOCK, sig);
    set_handler(SIGUSR1, 0, 0), set_handler(SIGUSR2, 0, 0);
    change(SIG_BLOCK, SIGUSR1), change(SIG_BLOCK, SIGUSR2);
    for (int i = 0; i < 3; i++) {
        kill(getpid(), SIGRTMIN + 3);
        sigqueue(getpid(), SIGRTMIN + 1, (union sigval){.sival_int = i});
        kill(getpid(), SIGUSR2);
        kill(getpid(), SIGUSR1);
    }
    sigset_t set, pending, old;
    sigpending(&pending);
    YES(sigismember(&pending, SIGUSR1) && sigismember(&pending, SIGRTMIN + 3) && !sigismember(&pending, SIGRTMIN));
    count = 0;
    siginfo_t info;
    struct timespec zero = {0, 0};
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1), sigaddset(&set, SIGRTMIN + 3);
    for (int i = 0; i < 3; i++) {
        int sig = sigtimedwait(&set, &info, &zero);
        printf("took %d, code %d, value %d\n", sig - SIGRTMIN, info.si_code, info.si_value.sival_int);
    }
    VAL(count);
    /* Handlers stack up: the lowest number is entered last and so runs first. */
    sigprocmask(SIG_SETMASK, NULL, &old);
    sigemptyset(&set);
    sigprocmask(SIG_SETMASK, &set, NULL);
    show_order("order");
    change(SIG_BLOCK, SIGUSR1);
    raise(SIGUSR1);
    signal(SIGUSR1, SIG_IGN); /* forgets what's pending */
    set_handler(SIGUSR1, 0, 0);
    change(SIG_UNBLOCK, SIGUSR1);
    show_order("after ignore");
    change(SIG_BLOCK, SIGCHLD);
    raise(SIGCHLD); /* default action is to ignore: not kept... */
    sigpending(&pending);
    VAL(sigismember(&pending, SIGCHLD)); /* ...unless blocked */
    change(SIG_UNBLOCK, SIGCHLD);
    OK(sigqueue(getpid(), 0, (union sigval){0}));
    OK(sigqueue(1 << 29, 0, (union sigval){0}));
    info = (siginfo_t){.si_signo = SIGUSR1, .si_code = SI_USER};
    OK(syscall(SYS_rt_sigqueueinfo, getppid(), SIGCHLD, &info)); /* may not forge a kill */
}

static void queue_limit(void)
{
    struct rlimit limit;
    getrlimit(RLIMIT_SIGPENDING, &limit);
    limit.rlim_cur = 5;
    setrlimit(RLIMIT_SIGPENDING, &limit);
    change(SIG_BLOCK, SIGRTMIN + 5);
    int sent = 0;
    while (sent < 1000 && sigqueue(getpid(), SIGRTMIN + 5, (union sigval){0}) == 0)
        sent++;
    YES(sent <= 5 && errno == EAGAIN);
    OK(kill(getpid(), SIGUSR2));
}

static void waiting(void)
{
    sigset_t set;
    siginfo_t info;
    struct timespec soon = {0, 20000000}, bad = {0, 1000000000};
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    change(SIG_BLOCK, SIGUSR1);
    long before = now_ms();
    OK(sigtimedwait(&set, &info, &soon));
    YES(now_ms() - before >= 19);
    OK(sigtimedwait(&set, &info, &bad));
    pid_t pid = fork();
    if (pid == 0) {
        sleep_ms(80);
        sigqueue(getppid(), SIGUSR1, (union sigval){.sival_int = 77});
        _exit(0);
    }
    YES(sigwaitinfo(&set, &info) == SIGUSR1);
    YES(info.si_code == SI_QUEUE && info.si_int == 77 && info.si_pid == pid && info.si_uid == getuid());
    reap("sender", pid);
    pid = fork();
    if (pid == 0) {
        sleep_ms(80);
        kill(getppid(), SIGUSR2);
        _exit(0);
    }
    OK(sigwaitinfo(&set, &info)); /* another signal's handler */
    show_order("handler");
    reap("sender", pid);
    raise(SIGUSR1);
    sigfillset(&set);
    sigdelset(&set, SIGUSR1);
    OK(sigsuspend(&set));
    show_order("sigsuspend");
    sigprocmask(SIG_BLOCK, NULL, &set);
    YES(sigismember(&set, SIGUSR1) && !sigismember(&set, SIGHUP));
    change(SIG_UNBLOCK, SIGUSR1);
    pid = fork();
    if (pid == 0) {
        sleep_ms(80);
        kill(getppid(), SIGUSR1);
        _exit(0);
    }
    OK(pause());
    show_order("pause");
    reap("sender", pid);
}

static int by_default(int sig)
{
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(sig, SIG_DFL);
        sigset_t set;
        sigemptyset(&set);
        sigprocmask(SIG_SETMASK, &set, NULL);
        raise(sig);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, WUNTRACED);
    if (WIFSTOPPED(status)) {
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    return status;
}

static void defaults(void)
{
    setpgid(0, 0); /* so that job control stops work: our parent is in another group */
    for (int sig = 1; sig <= 64; sig++) {
        if (sig == 32 || sig == 33 || sig == SIGTSTP || sig == SIGTTIN || sig == SIGTTOU)
            continue;
        char what[16];
        snprintf(what, sizeof(what), "default %d", sig);
        int status = by_default(sig);
        if (WIFSIGNALED(status))
            printf("%s: %s\n", what, WTERMSIG(status) == sig ? "dies" : "dies of ANOTHER");
        else
            show_status(what, status);
    }
}

int main(void)
{
    start();
    flags();
    errors();
    queueing();
    waiting();
    defaults();
    queue_limit();
    return 0;
}
