/* SPDX-License-Identifier: Apache-2.0 */
/* futex(2): wait and wake, bitsets, requeue, wake_op, timeouts, between processes; robust lists. */
#include "show.h"
#include <linux/futex.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>

static uint32_t word, second;
static int woken, waiting;

static long futex(uint32_t *at, int op, uint32_t value, void *timeout, uint32_t *at2, uint32_t value3)
{
    return syscall(SYS_futex, at, op, value, timeout, at2, value3);
}

static void *wait_on(void *bits)
{
    __atomic_add_fetch(&waiting, 1, __ATOMIC_SEQ_CST);
    if (bits)
        futex(&word, FUTEX_WAIT_BITSET_PRIVATE, 0, NULL, NULL, (uint32_t)(uintptr_t)bits);
    else
        futex(&word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
    __atomic_add_fetch(&woken, 1, __ATOMIC_SEQ_CST);
    return NULL;
}

static pthread_t threads[8];

/* `count` threads that wait; the sleep lets the last of them get there. */
static void start_waiters(int count, uintptr_t bits)
{
    waiting = woken = 0;
    for (int i = 0; i < count; i++)
        pthread_create(&threads[i], NULL, wait_on, (void *)bits);
    while (__atomic_load_n(&waiting, __ATOMIC_SEQ_CST) < count)
        sleep_ms(1);
    sleep_ms(50);
}

static void join(int count)
{
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static void errors(void)
{
    struct timespec soon = {0, 10000000}, bad = {0, 1000000000}, negative = {-1, 0}, past = {1, 0};
    OK(futex(&word, FUTEX_WAIT, 1, NULL, NULL, 0));
    OK(futex(&word, FUTEX_WAIT, 0, &soon, NULL, 0));
    OK(futex(&word, FUTEX_WAIT, 0, &bad, NULL, 0));
    OK(futex(&word, FUTEX_WAIT, 0, &negative, NULL, 0));
    OK(futex(&word, FUTEX_WAIT_BITSET, 0, &past, NULL, 1));
    OK(futex(&word, FUTEX_WAIT_BITSET | FUTEX_CLOCK_REALTIME, 0, &past, NULL, 1));
    OK(futex(&word, FUTEX_WAIT_BITSET, 0, NULL, NULL, 0));
    OK(futex(&word, FUTEX_WAKE_BITSET, 1, NULL, NULL, 0));
    OK(futex((uint32_t *)((char *)&word + 1), FUTEX_WAIT, 0, NULL, NULL, 0));
    OK(futex((uint32_t *)8, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0));
    OK(futex((uint32_t *)8, FUTEX_WAKE, 1, NULL, NULL, 0));
    OK(futex((uint32_t *)8, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    OK(futex((uint32_t *)9, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0));
    OK(futex(&word, 77, 0, NULL, NULL, 0));
    OK(futex(&word, FUTEX_WAKE | FUTEX_CLOCK_REALTIME, 1, NULL, NULL, 0));
    OK(futex(&word, FUTEX_CMP_REQUEUE, 1, (void *)1, &second, 5));
    OK(futex(&word, FUTEX_REQUEUE, (uint32_t)-1, (void *)1, &second, 0));
    VAL(futex(&word, FUTEX_WAKE, 1, NULL, NULL, 0));
    long before = now_ms();
    soon.tv_nsec = 25000000;
    OK(futex(&word, FUTEX_WAIT_PRIVATE, 0, &soon, NULL, 0));
    YES(now_ms() - before >= 24);
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    before = now_ms();
    OK(futex(&word, FUTEX_WAIT_BITSET_PRIVATE | FUTEX_CLOCK_REALTIME, 0, &until, NULL, 1));
    YES(now_ms() - before >= 990);
}

static void waking(void)
{
    start_waiters(5, 0);
    VAL(futex(&word, FUTEX_WAKE_PRIVATE, 2, NULL, NULL, 0));
    sleep_ms(50);
    VAL(__atomic_load_n(&woken, __ATOMIC_SEQ_CST));
    VAL(futex(&word, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0));
    join(5);
    VAL(woken);
    start_waiters(3, 2);
    VAL(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 10, NULL, NULL, 1));
    VAL(futex(&word, FUTEX_WAKE_BITSET_PRIVATE, 1, NULL, NULL, 6));
    VAL(futex(&word, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0));
    join(3);
    start_waiters(4, 0);
    VAL(futex(&word, FUTEX_REQUEUE_PRIVATE, 1, (void *)2, &second, 0));
    VAL(futex(&second, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0));
    VAL(futex(&word, FUTEX_CMP_REQUEUE_PRIVATE, 0, (void *)10, &second, 0));
    VAL(futex(&word, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0));
    VAL(futex(&second, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0));
    join(4);
    start_waiters(2, 0);
    second = 5;
    uint32_t op = (uint32_t)FUTEX_OP(FUTEX_OP_ADD, 7, FUTEX_OP_CMP_EQ, 4);
    VAL(futex(&word, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &second, op));
    VAL((int)second);
    second = 9;
    op = (uint32_t)FUTEX_OP(FUTEX_OP_ANDN, 1, FUTEX_OP_CMP_GT, 8);
    VAL(futex(&second, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &second, op));
    VAL((int)second);
    op = (uint32_t)FUTEX_OP(FUTEX_OP_SET, 3, FUTEX_OP_CMP_EQ, 8);
    uint32_t third = 0;
    VAL(futex(&third, FUTEX_WAKE_OP_PRIVATE, 1, (void *)1, &second, op));
    VAL((int)second);
    VAL(futex(&word, FUTEX_WAKE_PRIVATE, 10, NULL, NULL, 0));
    join(2);
}

static void between_processes(void)
{
    uint32_t *shared = mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pid = fork();
    if (pid == 0) {
        while (__atomic_load_n(&shared[0], __ATOMIC_SEQ_CST) == 0)
            futex(shared, FUTEX_WAIT, 0, NULL, NULL, 0);
        _exit(6);
    }
    sleep_ms(50);
    __atomic_store_n(&shared[0], 1, __ATOMIC_SEQ_CST);
    VAL(futex(shared, FUTEX_WAKE, 1, NULL, NULL, 0));
    reap("anonymous", pid);
    int fd = memfd_create("futex", 0);
    OK(ftruncate(fd, 4096));
    uint32_t *one = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    uint32_t *two = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    pid = fork();
    if (pid == 0)
        _exit(futex(&one[5], FUTEX_WAIT, 0, NULL, NULL, 0) == 0 ? 7 : 1);
    sleep_ms(50);
    VAL(futex(&two[5], FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0)); /* another key */
    VAL(futex(&two[5], FUTEX_WAKE, 1, NULL, NULL, 0));
    reap("other address", pid);
    static pthread_mutex_t *mutex;
    mutex = (pthread_mutex_t *)(void *)(one + 64);
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(mutex, &attr);
    pid = fork();
    if (pid == 0) {
        pthread_mutex_lock(mutex);
        _exit(8); /* while it holds it */
    }
    reap("holder", pid);
    ERR(pthread_mutex_lock(mutex));
    ERR(pthread_mutex_consistent(mutex));
    ERR(pthread_mutex_unlock(mutex));
    pid = fork();
    if (pid == 0) {
        pthread_mutex_lock(mutex);
        one[0] = 1;
        futex(one, FUTEX_WAKE, 1, NULL, NULL, 0);
        sleep_ms(60);
        raise(SIGKILL);
    }
    while (__atomic_load_n(&one[0], __ATOMIC_SEQ_CST) == 0)
        futex(one, FUTEX_WAIT, 0, NULL, NULL, 0);
    ERR(pthread_mutex_lock(mutex)); /* waits, and is woken by its death */
    reap("killed holder", pid);
    ERR(pthread_mutex_unlock(mutex)); /* without making it consistent */
    ERR(pthread_mutex_lock(mutex));
}

static void *hold_and_exit(void *mutex)
{
    pthread_mutex_lock(mutex);
    return NULL;
}

static void robust(void)
{
    struct robust_list_head *head, *mine, own = {.list.next = &own.list};
    size_t size;
    OK(syscall(SYS_get_robust_list, 0, &head, &size));
    VAL((long)size);
    OK(syscall(SYS_set_robust_list, &own, 7));
    OK(syscall(SYS_set_robust_list, &own, sizeof(own)));
    OK(syscall(SYS_get_robust_list, 0, &mine, &size));
    YES(mine == &own);
    OK(syscall(SYS_set_robust_list, head, sizeof(own)));
    OK(syscall(SYS_get_robust_list, 1 << 29, &mine, &size));
    pthread_mutexattr_t attr;
    pthread_mutex_t mutex;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_setrobust(&attr, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&mutex, &attr);
    pthread_create(&threads[0], NULL, hold_and_exit, &mutex);
    pthread_join(threads[0], NULL);
    ERR(pthread_mutex_trylock(&mutex));
    ERR(pthread_mutex_consistent(&mutex));
    ERR(pthread_mutex_unlock(&mutex));
    ERR(pthread_mutex_lock(&mutex));
}

int main(void)
{
    start();
    errors();
    waking();
    between_processes();
    robust();
    return 0;
}
