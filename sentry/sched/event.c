/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The event thread: sleeps in epoll_wait for the timerfd, SIGCHLD, donated descriptors and the stop, and
 * runs their callbacks one at a time. Events name their source by a number that is never used twice, so
 * an event that was fetched before its source was removed finds nobody.
 */
#include "sentry/sched/sched.h"

#include "base/host.h"
#include "base/lock.h"
#define LOG_MODULE "sched"
#include "base/log.h"
#include "sentry/sched/futex.h"
#include "sentry/sched/quiesce.h"
#include "sentry/sched/stack.h"
#include "sentry/sched/worker.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>

/* What sched_init() needs beside these (epoll_create1, timerfd_create, clone…) comes before lockdown.
 * #syscalls epoll_ctl,epoll_wait: the event thread
 * #syscalls read: timerfd, signalfd
 * #syscalls write: stops the event thread
 * #syscalls gettid: event_source_remove() asks whether it runs on the event thread
 * #syscalls exit,madvise: the end of a host thread, by the libc */

enum { ID_TIMER, ID_CHILD, ID_STOP, ID_FIRST_SOURCE };
#define EVENTS_MAX 16

static int source_compare(const struct event_source *a, const struct event_source *b)
{
    return a->id < b->id ? -1 : a->id > b->id;
}

RB_HEAD(source_tree, event_source);
RB_GENERATE_INTERNAL(source_tree, event_source, node, source_compare, static UNUSED)

static struct {
    /* immutable after init: */
    int epoll_hfd, timer_hfd, child_hfd, stop_hfd;
    const struct sched_ops *ops;
    pthread_t thread;
    unsigned thread_index;
    _Atomic uint32_t tid;
    _Atomic uint32_t has_begun; /* futex */
    struct lock lock;
    /* protected by lock: */
    struct source_tree sources;
    uint64_t next_id;
    struct quiesce quiesce;
} g_events = {.lock = LOCK_INITIALIZER, .next_id = ID_FIRST_SOURCE};

static int watch(int hfd, uint32_t events, uint64_t id)
{
    struct epoll_event e = {.events = events, .data.u64 = id};
    return (int)host_call4(SYS_epoll_ctl, g_events.epoll_hfd, EPOLL_CTL_ADD, hfd, &e);
}

/* ---- sources ----------------------------------------------------------------------------------- */

int event_source_add(struct event_source *s)
{
    lock_acquire(&g_events.lock);
    s->id = g_events.next_id++;
    RB_INSERT(source_tree, &g_events.sources, s);
    int r = watch(s->hfd, s->interest | EPOLLET, s->id);
    if (r < 0)
        RB_REMOVE(source_tree, &g_events.sources, s);
    lock_release(&g_events.lock);
    return r;
}

static bool on_event_thread(void)
{
    return (uint32_t)host_call0(SYS_gettid) == atomic_load(&g_events.tid);
}

void event_source_remove(struct event_source *s)
{
    struct epoll_event unused = {0};
    lock_acquire(&g_events.lock);
    (void)host_call4(SYS_epoll_ctl, g_events.epoll_hfd, EPOLL_CTL_DEL, s->hfd, &unused);
    RB_REMOVE(source_tree, &g_events.sources, s);
    if (g_events.quiesce.running == s && !on_event_thread())
        quiesce_wait_locked(&g_events.quiesce, &g_events.lock, s);
    lock_release(&g_events.lock);
}

static void dispatch_source(uint64_t id, uint32_t events)
{
    struct event_source key = {.id = id};
    lock_acquire(&g_events.lock);
    struct event_source *s = RB_FIND(source_tree, &g_events.sources, &key);
    if (s) {
        g_events.quiesce.running = s;
        lock_release(&g_events.lock);
        s->ready(s, events);
        lock_acquire(&g_events.lock);
        quiesce_end_locked(&g_events.quiesce);
    }
    lock_release(&g_events.lock);
}

/* ---- the thread -------------------------------------------------------------------------------- */

static void drain(int hfd)
{
    struct signalfd_siginfo bytes[4]; /* for the timerfd too */
    while (host_call3(SYS_read, hfd, bytes, sizeof(bytes)) == (long)sizeof(bytes))
        ;
}

static bool handle_event(const struct epoll_event *e)
{
    switch (e->data.u64) {
    case ID_STOP:
        return false;
    case ID_TIMER:
        drain(g_events.timer_hfd);
        timers_run();
        return true;
    case ID_CHILD:
        drain(g_events.child_hfd);
        if (g_events.ops->child_died)
            g_events.ops->child_died(g_events.ops->arg);
        return true;
    }
    dispatch_source(e->data.u64, e->events);
    return true;
}

static void *event_main(void *arg)
{
    (void)arg;
    host_thread_setup(g_events.thread_index);
    atomic_store(&g_events.tid, (uint32_t)host_call0(SYS_gettid));
    host_thread_is_ready();
    while (!atomic_load(&g_events.has_begun))
        futex_wait(&g_events.has_begun, 0, NULL);
    for (;;) {
        struct epoll_event events[EVENTS_MAX];
        long count = host_call4(SYS_epoll_wait, g_events.epoll_hfd, events, EVENTS_MAX, -1);
        for (long i = 0; i < count; i++) {
            if (!handle_event(&events[i]))
                return NULL;
        }
        ASSERT(count >= 0 || count == -EINTR);
    }
}

static int block_child_signal(void)
{
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    pthread_sigmask(SIG_BLOCK, &child, NULL);
    /* 8: the kernel's sigset_t */
    return (int)host_call4(SYS_signalfd4, -1, &child, 8, SFD_CLOEXEC | SFD_NONBLOCK);
}

static int open_descriptors(void)
{
    g_events.epoll_hfd = (int)host_call1(SYS_epoll_create1, EPOLL_CLOEXEC);
    if (g_events.epoll_hfd < 0)
        return g_events.epoll_hfd;
    g_events.stop_hfd = (int)host_call2(SYS_eventfd2, 0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (g_events.stop_hfd < 0)
        return g_events.stop_hfd;
    g_events.child_hfd = block_child_signal();
    if (g_events.child_hfd < 0)
        return g_events.child_hfd;
    int r = timers_init(&g_events.timer_hfd);
    if (r < 0)
        return r;
    r = watch(g_events.timer_hfd, EPOLLIN, ID_TIMER);
    if (r == 0)
        r = watch(g_events.child_hfd, EPOLLIN, ID_CHILD);
    if (r == 0)
        r = watch(g_events.stop_hfd, EPOLLIN, ID_STOP);
    return r;
}

int host_thread_create(void *(*main)(void *arg), void *arg, unsigned long *ret_thread)
{
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK_SIZE);
    pthread_t thread;
    int r = pthread_create(&thread, &attributes, main, arg);
    pthread_attr_destroy(&attributes);
    if (r)
        return -r;
    *ret_thread = thread;
    return 0;
}

int event_thread_start(const struct sched_ops *ops, unsigned thread_index)
{
    g_events.ops = ops;
    g_events.thread_index = thread_index;
    int r = open_descriptors();
    if (r < 0)
        return r;
    return host_thread_create(event_main, NULL, &g_events.thread);
}

void event_thread_go(void)
{
    atomic_store(&g_events.has_begun, 1);
    futex_wake(&g_events.has_begun, 1);
}

void event_thread_stop(void)
{
    uint64_t one = 1;
    (void)host_write_all(g_events.stop_hfd, &one, sizeof(one));
}

void event_thread_join(void)
{
    pthread_join(g_events.thread, NULL);
}
