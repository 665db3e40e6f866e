/* SPDX-License-Identifier: Apache-2.0 */
/* Threads as pthreads uses the kernel: create, join, TLS, mutexes, conditions, signals, exit. */
#include "show.h"
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <sys/syscall.h>

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t cond = PTHREAD_COND_INITIALIZER;
static _Thread_local int local = 1;
static long counter;
static int turn;

static void *count(void *unused)
{
    for (int i = 0; i < 10000; i++) {
        pthread_mutex_lock(&mutex);
        counter++;
        pthread_mutex_unlock(&mutex);
    }
    return unused;
}

static void *tls(void *value)
{
    local += (int)(intptr_t)value;
    sched_yield();
    return (void *)(intptr_t)local;
}

static void *take_turns(void *me)
{
    for (int i = 0; i < 200; i++) {
        pthread_mutex_lock(&mutex);
        while (turn % 2 != (int)(intptr_t)me)
            pthread_cond_wait(&cond, &mutex);
        turn++;
        pthread_cond_broadcast(&cond);
        pthread_mutex_unlock(&mutex);
    }
    return NULL;
}

static void basics(void)
{
    pthread_t threads[50];
    void *result;
    bool fine = true;
    for (int i = 0; i < 8; i++)
        fine = fine && pthread_create(&threads[i], NULL, count, NULL) == 0;
    for (int i = 0; i < 8; i++)
        pthread_join(threads[i], NULL);
    YES(fine && counter == 80000);
    long sum = 0;
    for (intptr_t i = 0; i < 50; i++)
        pthread_create(&threads[i], NULL, tls, (void *)i);
    for (int i = 0; i < 50; i++) {
        pthread_join(threads[i], &result);
        sum += (long)result;
    }
    VAL(sum);
    YES(local == 1);
    for (intptr_t i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, take_turns, (void *)i);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    VAL(turn);
}

static void timed(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 30000000;
    if (until.tv_nsec >= 1000000000)
        until.tv_sec++, until.tv_nsec -= 1000000000;
    long before = now_ms();
    pthread_mutex_lock(&mutex);
    ERR(pthread_cond_timedwait(&cond, &mutex, &until));
    pthread_mutex_unlock(&mutex);
    YES(now_ms() - before >= 25);
    sem_t sem;
    OK(sem_init(&sem, 0, 1));
    OK(sem_wait(&sem));
    OK(sem_trywait(&sem));
    OK(sem_timedwait(&sem, &until));
    pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
    ERR(pthread_rwlock_rdlock(&lock));
    ERR(pthread_rwlock_trywrlock(&lock));
    pthread_barrier_t barrier;
    ERR(pthread_barrier_init(&barrier, NULL, 1));
    VAL(pthread_barrier_wait(&barrier) == PTHREAD_BARRIER_SERIAL_THREAD);
}

static pid_t main_tid;
static volatile sig_atomic_t caught_by;
static volatile sig_atomic_t is_ready;

static void on_signal(int sig)
{
    (void)sig;
    caught_by = (int)syscall(SYS_gettid);
}

static void *wait_for_signal(void *tid)
{
    sigset_t set;
    *(int *)tid = (int)syscall(SYS_gettid);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    __atomic_store_n(&is_ready, 1, __ATOMIC_RELEASE);
    while (caught_by == 0)
        sleep_ms(1);
    return NULL;
}

/* Blocked in the main thread: a signal for the process goes to the other one. */
static void signals(void)
{
    sigset_t set, pending;
    pthread_t thread;
    int tid;
    main_tid = (pid_t)syscall(SYS_gettid);
    signal(SIGUSR1, on_signal);
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    pthread_sigmask(SIG_BLOCK, &set, NULL);
    pthread_create(&thread, NULL, wait_for_signal, &tid);
    while (!__atomic_load_n(&is_ready, __ATOMIC_ACQUIRE))
        sleep_ms(1);
    OK(kill(getpid(), SIGUSR1));
    pthread_join(thread, NULL);
    YES(caught_by == tid && tid != main_tid);
    caught_by = 0;
    OK(syscall(SYS_tgkill, getpid(), main_tid, SIGUSR1));
    sigpending(&pending);
    YES(sigismember(&pending, SIGUSR1) && caught_by == 0);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    YES(caught_by == main_tid);
    OK(syscall(SYS_tgkill, getpid(), -1, 0));
    OK(syscall(SYS_tgkill, 1 << 29, main_tid, 0));
    OK(syscall(SYS_tgkill, getpid(), main_tid, 65));
    OK(syscall(SYS_tkill, main_tid, 0));
}

static void *sleep_long(void *unused)
{
    sleep(1000);
    return unused;
}

static void *exit_process(void *unused)
{
    (void)unused;
    exit(6);
}

static void *exit_thread(void *unused)
{
    (void)unused;
    sleep_ms(30);
    _exit(7);
}

static int exit_from_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, sleep_long, NULL);
    pthread_create(&thread, NULL, exit_process, NULL);
    sleep(1000);
    return 1;
}

static int leader_exits_first(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, exit_thread, NULL);
    syscall(SYS_exit, 3); /* only this thread */
    return 1;
}

static int last_thread_exits(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, tls, NULL);
    pthread_exit(NULL);
}

static void *crash(void *unused)
{
    (void)unused;
    raise(SIGKILL);
    return NULL;
}

static int killed_by_thread(void)
{
    pthread_t thread;
    pthread_create(&thread, NULL, sleep_long, NULL);
    pthread_create(&thread, NULL, crash, NULL);
    sleep(1000);
    return 1;
}

static int cancelled(void)
{
    pthread_t thread;
    void *result;
    pthread_create(&thread, NULL, sleep_long, NULL);
    pthread_cancel(thread);
    pthread_join(thread, &result);
    return result == PTHREAD_CANCELED ? 2 : 1;
}

static void *fork_here(void *unused)
{
    (void)unused;
    pid_t pid = fork();
    if (pid == 0)
        _exit(getpid() == syscall(SYS_gettid) ? 5 : 1);
    int status;
    waitpid(pid, &status, 0);
    return (void *)(intptr_t)WEXITSTATUS(status);
}

static void forks(void)
{
    pthread_t sleeper, forker;
    void *result;
    pthread_create(&sleeper, NULL, sleep_long, NULL);
    pthread_create(&forker, NULL, fork_here, NULL);
    pthread_join(forker, &result);
    VAL((intptr_t)result);
    pthread_cancel(sleeper);
    pthread_join(sleeper, NULL);
}

int main(void)
{
    start();
    basics();
    timed();
    signals();
    child("exit from a thread", exit_from_thread);
    child("leader exits first", leader_exits_first);
    child("last thread exits", last_thread_exits);
    child("killed by a thread", killed_by_thread);
    child("cancelled", cancelled);
    forks();
    return 0;
}
