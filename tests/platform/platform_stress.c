/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Guests by the dozen on the real scheduler: several workers, fibers that sleep in orders, forks, threads,
 * file mappings, atomic operations, kicks from another host thread, killed spaces, deaths reported by
 * the event thread. platform_stress systrap|ptrace [operations]. Exit status 0 = everything ended.
 */
#include "sentry/platform/platform.h"
#include "sentry/sched/sched.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define GUEST_CODE 0x10000000UL
#define GUEST_DATA 0x20000000UL
#define TASKS_MAX 65536 /* never used again: a fiber outlives its task by a moment */
#define LIVE_MAX 250

extern const unsigned char guest_code[], guest_code_end[], guest_getpid_loop[];

struct task {
    struct fiber fiber;
    struct platform_thread *thread;
    struct platform_space *space; /* ref */
    struct platform_event event;
    unsigned seed;
    _Atomic int in_use;
};

static struct platform *g_platform;
static struct task g_tasks[TASKS_MAX];
static pthread_mutex_t g_lock = PTHREAD_MUTEX_INITIALIZER; /* kicks against ends of tasks */
static _Atomic int g_task_count;
static _Atomic int g_live, g_operations, g_events[PLATFORM_EVENT_COUNT], g_forks, g_threads, g_kills;
static int g_memfd;

#define MUST(e)                                                                                    \
    do {                                                                                           \
        if (!(e)) {                                                                                \
            printf("line %d: %s\n", __LINE__, #e);                                                 \
            fflush(stdout);                                                                        \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

static void task_entry(void *arg);

static struct task *task_new(struct platform_space *s, struct platform_thread *t)
{
    if (atomic_load(&g_live) >= LIVE_MAX)
        return NULL;
    int i = atomic_fetch_add(&g_task_count, 1);
    if (i >= TASKS_MAX)
        return NULL;
    struct task *task = &g_tasks[i];
    task->thread = t;
    task->space = s;
    task->seed = (unsigned)i;
    fiber_init(&task->fiber, platform_thread_worker(t), "guest");
    platform_thread_set_owner(t, task);
    atomic_fetch_add(&g_live, 1);
    atomic_store(&task->in_use, 1);
    return task;
}

static void task_end(struct task *task)
{
    pthread_mutex_lock(&g_lock);
    struct platform_thread *t = task->thread;
    struct platform_space *s = task->space;
    atomic_store(&task->in_use, 0);
    pthread_mutex_unlock(&g_lock);
    platform_thread_free(t);
    platform_space_put(s);
    if (atomic_fetch_sub(&g_live, 1) == 1)
        sched_stop();
}

static int map(struct task *task, uint64_t addr, int prot)
{
    size_t done;
    struct platform_order o = {.kind = PLATFORM_ORDER_MAP_ANON, .addr = GUEST_ADDR(addr),
                               .size = 65536, .prot = prot, .flags = MAP_PRIVATE};
    return platform_execute(task->thread, &o, 1, &done);
}

static int map_file(struct task *task)
{
    size_t done;
    struct platform_order o[2] = {
        {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(0x50000000), .size = 4096,
         .prot = PROT_READ, .flags = MAP_PRIVATE, .hfd = g_memfd},
        {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(0x50001000), .size = 4096,
         .prot = PROT_READ, .flags = MAP_SHARED, .hfd = g_memfd}};
    int r = platform_execute(task->thread, o, 2, &done);
    char text[5] = "";
    if (r == 0 && platform_read(task->space, GUEST_ADDR(0x50001000), text, 4) == 4)
        MUST(strcmp(text, "file") == 0);
    return r;
}

static void start_child(struct platform_space *s, struct platform_thread *t)
{
    struct task *child = task_new(s, t);
    if (child == NULL) {
        platform_thread_free(t);
        platform_space_put(s);
        return;
    }
    platform_thread_resume(t);
}

static int operate(struct task *task)
{
    struct platform_space *s;
    struct platform_thread *t;
    uint32_t old;
    int r;
    switch (rand_r(&task->seed) % 12) {
    case 0:
        return map(task, 0x40000000, PROT_READ);
    case 1:
        return map_file(task);
    case 2:
        r = platform_space_fork(task->thread, &s, &t);
        if (r == 0) {
            atomic_fetch_add(&g_forks, 1);
            start_child(s, t);
        }
        return r == -EAGAIN ? 0 : r;
    case 3:
        r = platform_thread_new(task->thread, &t);
        if (r == 0) {
            atomic_fetch_add(&g_threads, 1);
            platform_space_get(task->space);
            start_child(task->space, t);
        }
        return r == -EAGAIN ? 0 : r;
    case 4:
        return platform_cmpxchg32(task->thread, GUEST_ADDR(GUEST_DATA), 0, 1, &old);
    case 5:
        if (rand_r(&task->seed) % 8 == 0) {
            atomic_fetch_add(&g_kills, 1);
            platform_space_kill(task->space);
        }
        return 0;
    case 6:
        return -EINTR; /* exits */
    case 7:
    case 8: { /* sleeps like a guest thread that waits: many are stopped at a time */
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t deadline = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec +
                            (uint64_t)(rand_r(&task->seed) % 20000000);
        while (fiber_park(FIBER_UNINTERRUPTIBLE, deadline) != -ETIMEDOUT) {
        }
        return 0;
    }
    default:
        return 0;
    }
}

/* One event of a guest thread. */
static void task_entry(void *arg)
{
    struct task *task = arg;
    atomic_fetch_add(&g_events[task->event.kind], 1);
    if (task->event.kind == PLATFORM_EVENT_DEAD) {
        task_end(task);
        return;
    }
    MUST(task->event.kind == PLATFORM_EVENT_SYSCALL || task->event.kind == PLATFORM_EVENT_KICK);
    if (task->event.kind == PLATFORM_EVENT_SYSCALL) {
        MUST(platform_thread_regs(task->thread)->rax == 39);
        int r = operate(task);
        MUST(r == 0 || r == -ESRCH || r == -EINTR || r == -EFAULT || r == -ENOMEM);
        if (r == -EINTR || atomic_fetch_sub(&g_operations, 1) <= 0) {
            if (r != -EINTR || atomic_load(&g_live) > 8 || atomic_load(&g_operations) <= 0) {
                task_end(task);
                return;
            }
        }
        platform_thread_regs(task->thread)->rax = 1;
    }
    platform_thread_resume(task->thread);
}

/* The first guest, made by a fiber. */
static void first_entry(void *arg)
{
    struct platform_space *s;
    struct platform_thread *t;
    unsigned worker = (unsigned)(uintptr_t)arg;
    MUST(platform_space_new(g_platform, worker, &s, &t) == 0);
    struct task *task = task_new(s, t);
    size_t size = (size_t)(guest_code_end - guest_code), done;
    MUST(map(task, GUEST_CODE, PROT_READ | PROT_WRITE) == 0);
    MUST(map(task, GUEST_DATA, PROT_READ | PROT_WRITE) == 0);
    MUST(platform_write(s, GUEST_ADDR(GUEST_CODE), guest_code, size) == (ssize_t)size);
    struct platform_order o = {.kind = PLATFORM_ORDER_PROTECT, .addr = GUEST_ADDR(GUEST_CODE),
                               .size = size, .prot = PROT_READ | PROT_EXEC};
    MUST(platform_execute(t, &o, 1, &done) == 0);
    struct guest_regs *r = platform_thread_regs(t);
    r->rip = GUEST_CODE + (uint64_t)(guest_getpid_loop - guest_code);
    r->rsp = GUEST_DATA + 32768;
    r->eflags = 0x202;
    platform_thread_resume(t);
}

static void poll_events(void *arg, unsigned worker, bool may_block)
{
    (void)arg;
    struct platform_event ev;
    struct platform_thread *t = platform_wait(g_platform, worker, may_block, &ev);
    if (t == NULL)
        return;
    struct task *task = platform_thread_owner(t);
    task->event = ev;
    fiber_start(&task->fiber, task_entry, task);
}

static void wake_worker(void *arg, unsigned worker)
{
    (void)arg;
    platform_worker_wake(g_platform, worker);
}

static void child_died(void *arg)
{
    (void)arg;
    platform_reap(g_platform);
}

static _Atomic int g_kicker_stop;

static void *kicker(void *arg)
{
    (void)arg;
    unsigned seed = 1;
    while (!atomic_load(&g_kicker_stop)) {
        int count = atomic_load(&g_task_count);
        int back = (int)((unsigned)rand_r(&seed) % LIVE_MAX) + 1;
        if (count == 0 || count > TASKS_MAX)
            continue;
        struct task *task = &g_tasks[count > back ? count - back : 0];
        pthread_mutex_lock(&g_lock);
        if (atomic_load(&task->in_use) == 1)
            platform_thread_kick(task->thread);
        pthread_mutex_unlock(&g_lock);
        struct timespec pause = {.tv_nsec = 200000};
        nanosleep(&pause, NULL);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    struct platform_config config = {.name = argc > 1 ? argv[1] : NULL, .cpu_count = 2,
                                     .max_processes = 150};
    const char *why = "";
    int r = platform_new(&config, &g_platform, &why);
    if (r != 0) {
        printf("platform_new: %s (%d)\n", why, r);
        return 1;
    }
    atomic_store(&g_operations, argc > 2 ? atoi(argv[2]) : 20000);
    g_memfd = memfd_create("stress", MFD_CLOEXEC);
    MUST(ftruncate(g_memfd, 8192) == 0 && pwrite(g_memfd, "file", 4, 0) == 4);
    const struct platform_info *info = platform_info(g_platform);
    struct sched_config sched = {
        .workers = info->worker_count,
        .standby = info->may_hand_off ? 1 : 0,
        .may_hand_off = info->may_hand_off,
        .ops = {.poll = poll_events, .wake_worker = wake_worker, .child_died = child_died},
    };
    MUST(sched_init(&sched) == 0);
    alarm(120);
    static struct fiber first[SCHED_WORKERS_MAX];
    for (unsigned i = 0; i < info->worker_count; i++) {
        fiber_init(&first[i], i, "first");
        fiber_start(&first[i], first_entry, (void *)(uintptr_t)i);
    }
    pthread_t thread;
    pthread_create(&thread, NULL, kicker, NULL);
    sched_run();
    atomic_store(&g_kicker_stop, 1);
    pthread_join(thread, NULL);
    printf("syscalls %d, kicks %d, dead %d, forks %d, threads %d, kills %d; live %d\n",
           g_events[PLATFORM_EVENT_SYSCALL], g_events[PLATFORM_EVENT_KICK],
           g_events[PLATFORM_EVENT_DEAD], g_forks, g_threads, g_kills, g_live);
    platform_free(g_platform);
    return g_live != 0;
}
