/* SPDX-License-Identifier: Apache-2.0 */
/* Clocks, sleeping, alarm, interval timers, POSIX timers. */
#include "show.h"
#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/times.h>

static volatile sig_atomic_t count, last_code, last_value, last_overrun, most_overruns;

static void on_signal(int sig, siginfo_t *info, void *context)
{
    (void)sig, (void)context;
    count++;
    last_code = info->si_code;
    last_value = info->si_int;
    last_overrun = info->si_overrun;
    if (last_overrun > most_overruns)
        most_overruns = last_overrun;
}

static void handle(int sig)
{
    struct sigaction act = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    sigaction(sig, &act, NULL);
}

static void burn(long ms)
{
    struct timespec now;
    long start_ns, ns;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    start_ns = now.tv_sec * 1000000000 + now.tv_nsec;
    do {
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        ns = now.tv_sec * 1000000000 + now.tv_nsec - start_ns;
    } while (ns < ms * 1000000);
}

static void clocks(void)
{
    struct timespec a, b, resolution;
    struct timeval tv;
    static const clockid_t ids[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_PROCESS_CPUTIME_ID, CLOCK_THREAD_CPUTIME_ID,
                                    CLOCK_MONOTONIC_RAW, CLOCK_REALTIME_COARSE, CLOCK_MONOTONIC_COARSE, CLOCK_BOOTTIME};
    for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
        bool fine = clock_gettime(ids[i], &a) == 0 && clock_gettime(ids[i], &b) == 0;
        fine = fine && syscall(SYS_clock_gettime, ids[i], &b) == 0;
        fine = fine && (b.tv_sec > a.tv_sec || (b.tv_sec == a.tv_sec && b.tv_nsec >= a.tv_nsec));
        printf("clock %d %s, resolution %s\n", ids[i], fine ? "goes on" : "is WRONG",
               clock_getres(ids[i], &resolution) == 0 && resolution.tv_sec == 0 ? "below a second" : "ODD");
    }
    OK(clock_gettime(99, &a));
    OK(syscall(SYS_clock_gettime, CLOCK_REALTIME, 8));
    OK(clock_getres(99, &a));
    gettimeofday(&tv, NULL);
    clock_gettime(CLOCK_REALTIME, &a);
    YES(a.tv_sec - tv.tv_sec <= 1 && time(NULL) - tv.tv_sec <= 1);
    clockid_t own;
    ERR(clock_getcpuclockid(getpid(), &own));
    OK(clock_gettime(own, &a));
    struct tms before, after;
    times(&before);
    burn(40);
    times(&after);
    YES(after.tms_utime + after.tms_stime - before.tms_utime - before.tms_stime >= 2);
}

static void sleeping(void)
{
    struct timespec ts = {0, 20000000}, left = {7, 7}, bad = {0, 1000000000}, negative = {-1, 0};
    long before = now_ms();
    OK(nanosleep(&ts, &left));
    YES(now_ms() - before >= 20 && left.tv_sec == 7);
    OK(nanosleep(&bad, NULL));
    OK(nanosleep(&negative, NULL));
    OK(syscall(SYS_nanosleep, 8, 0));
    OK(nanosleep(&(struct timespec){0, 0}, NULL));
    ERR(clock_nanosleep(CLOCK_MONOTONIC, 0, &ts, NULL));
    ERR(clock_nanosleep(99, 0, &ts, NULL));
    clock_gettime(CLOCK_MONOTONIC, &ts);
    ts.tv_nsec += 20000000;
    if (ts.tv_nsec >= 1000000000)
        ts.tv_sec++, ts.tv_nsec -= 1000000000;
    before = now_ms();
    ERR(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL));
    YES(now_ms() - before >= 18);
    ts.tv_sec -= 100;
    ERR(clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &ts, NULL));
    handle(SIGALRM);
    struct itimerval timer = {.it_value = {0, 20000}};
    setitimer(ITIMER_REAL, &timer, NULL);
    ts = (struct timespec){2, 0};
    before = now_ms();
    OK(nanosleep(&ts, &left));
    YES(left.tv_sec == 1 && now_ms() - before < 1500);
    setitimer(ITIMER_REAL, &timer, NULL);
    ERR(clock_nanosleep(CLOCK_REALTIME, 0, &ts, &left));
    YES(left.tv_sec == 1);
}

static void intervals(void)
{
    struct itimerval timer = {{0, 5000}, {0, 5000}}, old;
    handle(SIGALRM), handle(SIGVTALRM), handle(SIGPROF);
    count = 0;
    OK(setitimer(ITIMER_REAL, &timer, NULL));
    sleep_ms(60);
    OK(getitimer(ITIMER_REAL, &old));
    YES(old.it_interval.tv_usec == 5000 && old.it_value.tv_usec <= 5000);
    YES(count >= 5);
    VAL(last_code == SI_KERNEL);
    OK(setitimer(ITIMER_REAL, &(struct itimerval){0}, &old));
    count = 0;
    sleep_ms(20);
    VAL(count);
    OK(setitimer(ITIMER_VIRTUAL, &timer, NULL));
    burn(60);
    setitimer(ITIMER_VIRTUAL, &(struct itimerval){0}, NULL);
    YES(count > 0);
    count = 0;
    OK(setitimer(ITIMER_PROF, &timer, NULL));
    burn(60);
    setitimer(ITIMER_PROF, &(struct itimerval){0}, NULL);
    YES(count > 0);
    OK(setitimer((__itimer_which_t)9, &timer, NULL));
    timer.it_value.tv_usec = 1000000;
    OK(setitimer(ITIMER_REAL, &timer, NULL));
    OK(getitimer((__itimer_which_t)9, &old));
    VAL(alarm(100));
    YES(alarm(0) >= 99);
    VAL(alarm(0));
    alarm(1);
    OK(pause());
    VAL(last_code == SI_KERNEL);
}

static void on_thread(union sigval value)
{
    __atomic_store_n((int *)value.sival_ptr, 1, __ATOMIC_RELEASE);
}

static void posix(void)
{
    timer_t timer;
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 31};
    struct itimerspec spec = {.it_value = {0, 10000000}}, old;
    handle(SIGUSR1);
    count = 0;
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    OK(timer_gettime(timer, &old));
    YES(old.it_value.tv_nsec == 0);
    OK(timer_settime(timer, 0, &spec, NULL));
    OK(timer_gettime(timer, &old));
    YES(old.it_value.tv_nsec > 0);
    sleep_ms(30);
    VAL(count);
    VAL(last_code == SI_TIMER && last_value == 31);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    spec.it_interval.tv_nsec = spec.it_value.tv_nsec = 2000000;
    count = 0;
    OK(timer_settime(timer, 0, &spec, &old));
    sleep_ms(50);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    OK(timer_settime(timer, 0, &(struct itimerspec){0}, NULL));
    YES(count >= 1 && most_overruns > 10); /* one signal stands for many */
    OK(timer_delete(timer));
    OK(syscall(SYS_timer_delete, 12345));
    OK(syscall(SYS_timer_gettime, 12345, &old));
    OK(syscall(SYS_timer_settime, 12345, 0, &spec, NULL));
    OK(syscall(SYS_timer_getoverrun, 12345));
    OK(timer_create(99, &event, &timer));
    event.sigev_signo = 99;
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    event.sigev_notify = 88;
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    count = 0;
    OK(timer_create(CLOCK_REALTIME, NULL, &timer)); /* SIGALRM by default */
    spec.it_value.tv_nsec = 1000000000;
    OK(timer_settime(timer, 0, &spec, NULL));
    spec.it_value.tv_nsec = 100000000, spec.it_interval.tv_nsec = 0;
    OK(timer_settime(timer, 0, &spec, NULL));
    OK(pause());
    VAL(last_code == SI_TIMER);
    clock_gettime(CLOCK_REALTIME, &spec.it_value);
    spec.it_value.tv_sec -= 5;
    OK(timer_settime(timer, TIMER_ABSTIME, &spec, NULL));
    sleep_ms(10);
    VAL(count);
    pid_t pid = fork();
    if (pid == 0)
        _exit(timer_gettime(timer, &old) < 0 && errno == EINVAL ? 4 : 5); /* not inherited */
    reap("child", pid);
    int done = 0;
    event = (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_thread, .sigev_value.sival_ptr = &done};
    OK(timer_create(CLOCK_MONOTONIC, &event, &timer));
    spec.it_value = (struct timespec){0, 5000000};
    OK(timer_settime(timer, 0, &spec, NULL));
    for (int i = 0; i < 1000 && !__atomic_load_n(&done, __ATOMIC_ACQUIRE); i++)
        sleep_ms(2);
    VAL(done);
    event = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1};
    OK(timer_create(CLOCK_PROCESS_CPUTIME_ID, &event, &timer));
    count = 0;
    OK(timer_settime(timer, 0, &spec, NULL));
    burn(50);
    VAL(count);
}

/* Threads that disarm a timer which another one deletes. */
static volatile int contended, ended;

static void *disarm(void *arg)
{
    struct itimerspec none = {0};
    while (!ended)
        (void)syscall(SYS_timer_settime, contended, 0, &none, NULL);
    return arg;
}

static void races(void)
{
    pthread_t threads[3];
    struct sigevent event = {.sigev_notify = SIGEV_NONE};
    for (int i = 0; i < 3; i++)
        pthread_create(&threads[i], NULL, disarm, NULL);
    for (int i = 0; i < 3000; i++) {
        int id;
        if (syscall(SYS_timer_create, CLOCK_MONOTONIC, &event, &id) == 0) {
            contended = id;
            (void)syscall(SYS_timer_delete, id);
        }
    }
    ended = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
}

/* What claims to come of a timer counts like any other queued signal; and timers themselves do. */
static void limits(void)
{
    const struct rlimit limit = {100, 100};
    sigset_t set;
    siginfo_t info;
    sigemptyset(&set);
    sigaddset(&set, SIGRTMIN + 1);
    sigprocmask(SIG_BLOCK, &set, NULL);
    pid_t pid = fork();
    if (pid == 0) {
        int queued = 0, timers = 0, id;
        (void)setrlimit(RLIMIT_SIGPENDING, &limit);
        do {
            memset(&info, 0, sizeof info);
            info.si_code = SI_TIMER;
        } while (queued++ < 1000 && syscall(SYS_rt_sigqueueinfo, getpid(), SIGRTMIN + 1, &info) == 0);
        while (timers++ < 1000 && syscall(SYS_timer_create, CLOCK_MONOTONIC, NULL, &id) == 0)
            ;
        YES(queued < 1000);
        YES(timers < 1000);
        fflush(stdout);
        _exit(0);
    }
    waitpid(pid, NULL, 0);
}

/* Threads whose ends overlap, because each has robust locks to give up, in a process with timers. */
static void *hold_locks(void *arg)
{
    enum { LOCKS = 64 };
    pthread_mutex_t *locks = calloc(LOCKS, sizeof *locks);
    pthread_mutexattr_t robust;
    pthread_mutexattr_init(&robust);
    pthread_mutexattr_setrobust(&robust, PTHREAD_MUTEX_ROBUST);
    for (int i = 0; locks != NULL && i < LOCKS; i++) {
        pthread_mutex_init(&locks[i], &robust);
        pthread_mutex_lock(&locks[i]);
    }
    pthread_barrier_wait(arg);
    pause();
    return arg;
}

static void ends_with_timers(void)
{
    for (int round = 0; round < 20; round++) {
        pid_t pid = fork();
        if (pid == 0) {
            struct itimerval often = {{0, 3000}, {0, 20000}};
            pthread_barrier_t all;
            pthread_t thread;
            pthread_barrier_init(&all, NULL, 7);
            setitimer(ITIMER_REAL, &often, NULL);
            for (int i = 0; i < 6; i++)
                pthread_create(&thread, NULL, hold_locks, &all);
            pthread_barrier_wait(&all);
            _exit(0);
        }
        waitpid(pid, NULL, 0);
    }
    sleep_ms(50);
}

int main(void)
{
    start();
    races();
    ends_with_timers();
    limits();
    clocks();
    sleeping();
    intervals();
    posix();
    return 0;
}
