/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a notification means: the kernel says which thread made which call with which arguments, and the
 * thread's state says what it may do. Runs in the event loop of the thread's worker.
 *
 * Distrusts everything but the notification's pid. Anything that the state does not explain ends the
 * space; nothing that a stub does can touch another space.
 */
#include "sentry/platform/systrap/systrap.h"

#include "base/host.h"
#define LOG_MODULE "systrap"
#include "base/log.h"
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define ARG_FRAME 0
#define ARG_CODE 1

void notify_violation_locked(struct systrap_space *s, const char *why)
{
    if (!s->killed)
        log_dbg("stub %d: %s", (int)s->pid, why);
    space_kill_locked(s);
}

/* Where the call was made, by the kernel's word. A guest may jump to there, so this only tells how the
 * call is to be looked at: what comes from elsewhere is a guest's own and is never continued. */
static bool is_from_stub(const struct worker *w, const struct seccomp_notif *n)
{
    const uint64_t *table = w->platform->table;
    return n->data.instruction_pointer >= table[STUB_TABLE_TEXT_START] &&
           n->data.instruction_pointer <= table[STUB_TABLE_TEXT_END];
}

static bool is_doorbell(const struct seccomp_notif *n)
{
    return n->data.nr == STUB_DOORBELL;
}

/* ---- descriptors --------------------------------------------------------------------------------- */

/* The target has to run once to take the descriptor. On the caller's own CPU that is a switch and
 * back; on an idle other one it is a wake-up of tens of microseconds, so it is steered here first.
 * #syscalls sched_setaffinity,sched_getaffinity: a stub takes a descriptor on the CPU of the worker
 * #syscalls getcpu: which one that is */
int notify_add_fd(struct worker *w, uint64_t id, pid_t tid, int hfd)
{
    struct seccomp_notif_addfd add = {
        .id = id,
        .flags = SECCOMP_ADDFD_FLAG_SETFD,
        .srcfd = (uint32_t)hfd,
        .newfd = 0,
    };
    cpu_set_t before; /* the guest may have pinned it */
    unsigned cpu = 0;
    bool steered = false;
    if (host_call3(SYS_getcpu, &cpu, NULL, NULL) == 0 && cpu < CPU_SETSIZE &&
        host_call3(SYS_sched_getaffinity, tid, sizeof before, &before) > 0) {
        cpu_set_t here;
        CPU_ZERO(&here);
        CPU_SET(cpu, &here);
        steered = host_call3(SYS_sched_setaffinity, tid, sizeof here, &here) >= 0;
    }
    long r;
    do {
        r = host_call3(SYS_ioctl, w->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
    } while (r == -EINTR || r == -EINPROGRESS);
    if (steered)
        (void)host_call3(SYS_sched_setaffinity, tid, sizeof before, &before);
    return r < 0 ? (int)r : 0;
}

/* ---- orders -------------------------------------------------------------------------------------- */

static bool call_matches(const struct systrap_call *c, const struct seccomp_data *d)
{
    if ((uint64_t)(uint32_t)d->nr != c->nr)
        return false;
    for (size_t i = 0; i < ARRAY_COUNT(c->args); i++)
        if (d->args[i] != c->args[i])
            return false;
    return true;
}

/* The call of the list that this notification is: the next one, or, after a failure, the next that is
 * made in any case. -1: none. */
static int find_call(struct systrap_thread *t, const struct seccomp_data *d)
{
    if (d->instruction_pointer != t->worker->platform->table[STUB_TABLE_CALL_IP])
        return -1;
    unsigned next = t->call_next;
    if (next < t->call_count && (!t->calls_failed || t->calls[next].always) &&
        call_matches(&t->calls[next], d))
        return (int)next;
    if (next == 0)
        return -1; /* nothing can have failed yet */
    while (next < t->call_count && !t->calls[next].always)
        next++;
    if (next >= t->call_count || !call_matches(&t->calls[next], d))
        return -1;
    t->calls_failed = true;
    return (int)next;
}

/* A notified call of a thread with a list. */
static void handle_call_locked(struct systrap_thread *t, const struct seccomp_notif *n)
{
    struct systrap_space *s = t->space;
    int index = find_call(t, &n->data);
    if (index < 0) {
        notify_violation_locked(s, "a call that was not ordered");
        return;
    }
    struct systrap_call *c = &t->calls[index];
    t->call_next = (unsigned)index + 1;
    if (c->hfd >= 0 && s->fd_holder == NULL) {
        int r = notify_add_fd(t->worker, n->id, t->tid, c->hfd);
        if (r != 0) { /* it sees the call fail, and goes on as after any failure */
            struct seccomp_notif_resp refuse = {.id = n->id, .error = r};
            (void)host_call3(SYS_ioctl, t->worker->listener, SECCOMP_IOCTL_NOTIF_SEND, &refuse);
            return;
        }
        s->fd_holder = t;
    }
    if (c->nr == SYS_close)
        s->fd_holder = NULL;
    (void)worker_continue(t->worker, n->id);
}

/* The list is through, or stopped at its first failure. What it says is a claim; it is only made to
 * fit what was seen. */
static bool calls_report(struct systrap_thread *t, const struct seccomp_data *d)
{
    uint64_t done = d->args[2];
    int64_t error = (int64_t)d->args[3];
    if (d->args[ARG_FRAME] != t->frame || t->space->fd_holder == t)
        return false;
    if (error == 0 && (t->calls_failed || done != t->call_count || t->call_next != t->call_count))
        return false;
    if (error != 0 && (error < -4095 || error > 0 || done >= t->call_next))
        return false;
    t->done_count = done;
    t->done_error = error;
    t->done_value = (int64_t)d->args[4];
    return true;
}

static void handle_calls_locked(struct systrap_thread *t, const struct seccomp_notif *n)
{
    if (!is_doorbell(n)) {
        handle_call_locked(t, n);
        return;
    }
    if (n->data.args[ARG_CODE] != STUB_CODE_DONE || !calls_report(t, &n->data)) {
        notify_violation_locked(t->space, "a doorbell in the midst of orders");
        return;
    }
    t->state = THREAD_STOPPED;
    worker_hold_locked(t, n->id);
    worker_wake_waiter_locked(t->worker, t);
}

/* ---- running guest code -------------------------------------------------------------------------- */

static bool is_event_signal(uint64_t code)
{
    return code == SIGSYS || code == SIGSEGV || code == SIGBUS || code == SIGILL ||
           code == SIGFPE || code == SIGTRAP || code == STUB_KICK_SIGNAL;
}

static void stop_locked(struct systrap_thread *t, const struct seccomp_notif *n)
{
    worker_hold_locked(t, n->id);
    t->calls_resume = false;
    t->call_count = t->call_next = 0;
    if (unlikely(t->atomic)) {
        t->atomic_done = true;
        worker_wake_waiter_locked(t->worker, t);
        return;
    }
    worker_push_locked(t->worker, t);
}

/* A guest's own call, notified at its site. What is not known of its registers is poison. */
static void stop_light_locked(struct systrap_thread *t, const struct seccomp_notif *n)
{
    if (t->call_next != t->call_count || t->space->fd_holder == t || t->atomic ||
        !t->worker->killable) {
        notify_violation_locked(t->space, "a guest's call instead of an order");
        return;
    }
    uint64_t unknown = t->worker->platform->poison;
    uint64_t words[sizeof(struct guest_regs) / sizeof(uint64_t)];
    for (size_t i = 0; i < ARRAY_COUNT(words); i++)
        words[i] = unknown;
    memcpy(&t->seen, words, sizeof words);
    t->seen.rax = (uint64_t)n->data.nr;
    t->seen.rdi = n->data.args[0];
    t->seen.rsi = n->data.args[1];
    t->seen.rdx = n->data.args[2];
    t->seen.r10 = n->data.args[3];
    t->seen.r8 = n->data.args[4];
    t->seen.r9 = n->data.args[5];
    t->seen.rip = n->data.instruction_pointer;
    t->base.regs = t->seen;
    t->is_light = true;
    t->event = (struct platform_event){.kind = PLATFORM_EVENT_SYSCALL};
    stop_locked(t, n);
}

/* The frame of a light thread has come: it is as of before the call. What the owner wrote since then is
 * kept, word by word. */
static void merge_fetched(struct systrap_thread *t)
{
    struct guest_regs owners = t->base.regs;
    struct platform_event ignored;
    frame_load(t, STUB_KICK_SIGNAL, &ignored);
    t->base.regs.fs_base = t->host_fs;
    t->base.regs.gs_base = t->host_gs;
    t->base.regs.rip = t->seen.rip;
    t->base.regs.rax = t->seen.rax;
    uint64_t now[sizeof owners / 8], wanted[sizeof owners / 8], seen[sizeof owners / 8];
    memcpy(now, &t->base.regs, sizeof now);
    memcpy(wanted, &owners, sizeof wanted);
    memcpy(seen, &t->seen, sizeof seen);
    for (size_t i = 0; i < ARRAY_COUNT(now); i++)
        if (wanted[i] != seen[i])
            now[i] = wanted[i];
    memcpy(&t->base.regs, now, sizeof now);
}

static void handle_fetched_locked(struct systrap_thread *t, const struct seccomp_notif *n)
{
    const __u64 *args = n->data.args;
    if (!is_doorbell(n) || args[ARG_CODE] != STUB_KICK_SIGNAL ||
        !frame_is_valid(t, args[ARG_FRAME])) {
        notify_violation_locked(t->space, "no registers where they were asked for");
        return;
    }
    t->frame = args[ARG_FRAME];
    t->host_fs = args[2];
    t->host_gs = args[3];
    merge_fetched(t);
    t->is_fetching = false;
    worker_hold_locked(t, n->id);
    if (t->is_ready) /* its event was not even handed out */
        return;
    switch (t->state) {
    case THREAD_STOPPED:
        worker_wake_waiter_locked(t->worker, t);
        return;
    case THREAD_RUNNING:
        if (t->kicked) {
            t->kicked = false;
            t->event = (struct platform_event){.kind = PLATFORM_EVENT_KICK};
            worker_push_locked(t->worker, t);
            return;
        }
        t->pending = thread_resume_value_locked(t);
        break;
    case THREAD_EXITING:
    case THREAD_PARKED:
        break;
    case THREAD_STARTING:
    case THREAD_CALLS:
        notify_violation_locked(t->space, "registers that nobody asked for");
        return;
    }
    worker_send(t->worker, worker_unhold_locked(t, t->pending));
}

/* hot */
static void handle_running_locked(struct systrap_thread *t, const struct seccomp_notif *n)
{
    const __u64 *args = n->data.args;
    if (!is_from_stub(t->worker, n)) {
        stop_light_locked(t, n);
        return;
    }
    if (!is_doorbell(n)) {
        handle_call_locked(t, n); /* with no list nothing matches */
        return;
    }
    if (args[ARG_CODE] == STUB_CODE_DONE && t->calls_resume) {
        if (!calls_report(t, &n->data) || t->done_error == 0) {
            notify_violation_locked(t->space, "orders of a resume ended without reason");
            return;
        }
        t->event = (struct platform_event){.kind = PLATFORM_EVENT_ORDER_FAILED,
                                           .error = (int)t->done_error};
        stop_locked(t, n);
        return;
    }
    if (!is_event_signal(args[ARG_CODE]) || t->call_next != t->call_count ||
        t->space->fd_holder == t || !frame_is_valid(t, args[ARG_FRAME])) {
        notify_violation_locked(t->space, "a doorbell without an event");
        return;
    }
    int signo = (int)args[ARG_CODE];
    t->frame = args[ARG_FRAME];
    frame_load(t, signo, &t->event);
    t->base.regs.fs_base = t->host_fs = args[2];
    t->base.regs.gs_base = t->host_gs = args[3];
    if (signo == STUB_KICK_SIGNAL)
        t->kicked = false;
    stop_locked(t, n);
}

/* ---- new tasks ----------------------------------------------------------------------------------- */

static bool is_call(const struct seccomp_notif *n, int nr, uint64_t a0, uint64_t a1, uint64_t a2)
{
    return n->data.nr == nr && n->data.args[0] == a0 && n->data.args[1] == a1 &&
           n->data.args[2] == a2;
}

static bool is_mailbox_map(const struct seccomp_notif *n)
{
    return is_call(n, SYS_mmap, STUB_MAILBOX, STUB_MAILBOX_SIZE, PROT_READ | PROT_WRITE) &&
           n->data.args[3] == (MAP_SHARED | MAP_FIXED) && n->data.args[4] == 0 &&
           n->data.args[5] == 0;
}

static bool start_step_locked(struct systrap_thread *t, const struct seccomp_notif *n)
{
    struct systrap_space *s = t->space;
    struct worker *w = t->worker;
    switch (t->step) {
    case START_HELLO:
        return false;
    case START_MAP:
        if (!is_mailbox_map(n) || notify_add_fd(w, n->id, t->tid, s->mailbox_hfd) != 0)
            return false;
        host_close(s->mailbox_hfd);
        s->mailbox_hfd = -1;
        t->step = START_CLOSE;
        (void)worker_continue(w, n->id);
        return true;
    case START_CLOSE:
        if (n->data.nr != SYS_close || n->data.args[0] != 0)
            return false;
        t->step = START_ADVISE;
        (void)worker_continue(w, n->id);
        return true;
    case START_ADVISE:
        if (!is_call(n, SYS_madvise, STUB_MAILBOX, STUB_MAILBOX_SIZE, MADV_DONTFORK))
            return false;
        t->step = START_READY;
        (void)worker_continue(w, n->id);
        return true;
    case START_READY:
        if (!is_doorbell(n) || n->data.args[ARG_CODE] != STUB_CODE_READY ||
            n->data.args[ARG_FRAME] != t->frame)
            return false;
        worker_hold_locked(t, n->id);
        t->state = THREAD_STOPPED;
        if (s->is_pooled)
            space_arrived_locked(w, t);
        else
            worker_wake_waiter_locked(w, t);
        return true;
    }
    return false;
}

/* The first sign of life of a host thread. Its nonce says whose it is, and the kernel whether it is a
 * thread of that space or a process of its own. */
static void handle_hello_locked(struct worker *w, const struct seccomp_notif *n)
{
    pid_t tid = (pid_t)n->pid;
    struct systrap_thread *t = NULL;
    if (is_doorbell(n) && n->data.args[ARG_CODE] == STUB_CODE_CHILD)
        LIST_FOREACH(t, &w->starting, starting)
            if (t->nonce == n->data.args[2])
                break;
    pid_t tgid = t != NULL && t->is_thread ? t->space->pid : tid;
    if (t == NULL || host_call3(SYS_tgkill, tgid, tid, 0) != 0) {
        log_dbg("host thread %d belongs to no order", (int)tid);
        (void)host_call2(SYS_kill, tid, SIGKILL);
        return;
    }
    LIST_REMOVE(t, starting);
    t->nonce = 0;
    t->tid = tid;
    worker_hash_locked(w, t);
    if (!t->is_thread)
        t->space->pid = tid;
    t->step = t->is_thread ? START_READY : START_MAP;
    (void)worker_reply(w, n->id, (int64_t)(t->frame | (t->is_thread ? 1 : 0)));
    if (t->space->killed) /* decided before it had a pid */
        (void)host_call2(SYS_kill, t->space->pid, SIGKILL);
}

/* `result` is the template's last clone: a pid, or why there is none. */
static void handle_template_child_locked(struct worker *w, int64_t result)
{
    struct systrap_thread *t;
    LIST_FOREACH(t, &w->starting, starting)
        if (t->nonce == w->template_nonce)
            break;
    if (t == NULL)
        return; /* it has said hello */
    t->claimed = (pid_t)result;
    if (result > 0 && !space_died_unseen_locked(w, t->claimed))
        return;
    struct systrap_space *s = t->space;
    space_set_dead_locked(s, 0);
    space_collect_locked(s);
}

static void handle_template_locked(struct worker *w, const struct seccomp_notif *n)
{
    if (is_doorbell(n) && n->data.args[ARG_CODE] == STUB_CODE_TEMPLATE && !w->template_cloning) {
        w->template_id = n->id;
        atomic_store(&w->may_refill, true);
        handle_template_child_locked(w, (int64_t)n->data.args[2]);
        return;
    }
    if (w->template_cloning && n->data.nr == SYS_clone &&
        is_call(n, SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0) && n->data.args[3] == 0 &&
        n->data.args[4] == 0 && n->data.args[5] == w->template_nonce) {
        w->template_cloning = false;
        (void)worker_continue(w, n->id);
        return;
    }
    /* It never ran guest code, so this is our bug. */
    log_err("template %d made call %d out of order", (int)n->pid, (int)n->data.nr);
    (void)host_call2(SYS_kill, w->template_pid, SIGKILL);
}

/* ---- dispatch ------------------------------------------------------------------------------------ */

/* A thread that was parked while stopped, was woken for `pending`, and asks for it. */
static void handle_parked_locked(struct systrap_thread *t, const struct seccomp_notif *n)
{
    if (t->pending == 0 || !is_doorbell(n) || n->data.args[ARG_CODE] != STUB_CODE_READY ||
        n->data.args[ARG_FRAME] != t->frame) {
        notify_violation_locked(t->space, "a call of a parked thread");
        return;
    }
    t->is_parked = false;
    (void)worker_reply(t->worker, n->id, t->pending);
}

static void handle_thread_locked(struct systrap_thread *t, const struct seccomp_notif *n)
{
    if (unlikely(t->is_parked)) {
        handle_parked_locked(t, n);
        return;
    }
    if (unlikely(t->state != THREAD_RUNNING && !is_from_stub(t->worker, n))) {
        notify_violation_locked(t->space, "guest code of a thread that does not run");
        return;
    }
    if (unlikely(t->is_fetching)) {
        handle_fetched_locked(t, n);
        return;
    }
    if (unlikely(t->is_held)) { /* the kernel would have to notify twice */
        notify_violation_locked(t->space, "a call of a thread whose notification is held");
        return;
    }
    switch (t->state) {
    case THREAD_RUNNING:
        handle_running_locked(t, n);
        return;
    case THREAD_CALLS:
        handle_calls_locked(t, n);
        return;
    case THREAD_STARTING:
        if (!start_step_locked(t, n))
            notify_violation_locked(t->space, "a new task out of step");
        return;
    case THREAD_EXITING:
        if (n->data.nr != SYS_exit || n->data.args[0] != 0) {
            notify_violation_locked(t->space, "a leaving thread made another call");
            return;
        }
        /* The tid may be another thread's as soon as this one goes on. */
        struct worker *w = t->worker;
        thread_destroy_locked(t);
        (void)worker_continue(w, n->id);
        return;
    case THREAD_STOPPED:
    case THREAD_PARKED:
        notify_violation_locked(t->space, "a call of a thread that waits");
        return;
    }
}

/* hot */
struct systrap_thread *notify_handle(struct worker *w, const struct seccomp_notif *n,
                                     struct platform_event *ret_event)
{
    lock_acquire(&w->lock);
    struct systrap_thread *t = worker_find_locked(w, (pid_t)n->pid);
    if (likely(t != NULL))
        handle_thread_locked(t, n);
    else if ((pid_t)n->pid == w->template_pid)
        handle_template_locked(w, n);
    else
        handle_hello_locked(w, n);
    t = worker_pop_locked(w, ret_event);
    lock_release(&w->lock);
    return t;
}
