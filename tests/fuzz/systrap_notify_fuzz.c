/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A hostile stub against the systrap platform: notifications of any content from its threads, and any
 * bytes in their slots, between what their owners do (resume, queue, kick, extended state). There is no
 * kernel behind it: the listener is closed and the thread ids are none that a system gives out.
 */
#include "sentry/platform/systrap/systrap.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define THREADS 4
#define FIRST_TID 0x70000000 /* above every pid_max */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct input {
    const uint8_t *bytes;
    size_t left;
};

static uint64_t take(struct input *in, size_t size)
{
    uint64_t value = 0;
    size = size < in->left ? size : in->left;
    memcpy(&value, in->bytes, size);
    in->bytes += size;
    in->left -= size;
    return value;
}

static struct systrap g_systrap;
static struct worker g_worker;
static unsigned char *g_mailbox;

static void start(void)
{
    static int ready;
    if (!ready) {
        ready = 1;
        g_systrap.workers = &g_worker;
        g_systrap.worker_count = 1;
        g_systrap.base.ops = &systrap_ops;
        g_systrap.base.info.max_addr = GUEST_ADDR(STUB_BASE);
        if (frame_probe_xstate(&g_systrap) != 0)
            abort();
        g_systrap.table[STUB_TABLE_TEXT_START] = STUB_CODE;
        g_systrap.table[STUB_TABLE_CALL_IP] = STUB_CODE + 0x100;
        g_systrap.table[STUB_TABLE_TEXT_END] = STUB_CODE + 0x400;
        g_mailbox = mmap(NULL, STUB_MAILBOX_SIZE, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (g_mailbox == MAP_FAILED)
            abort();
    }
    memset(&g_worker, 0, sizeof g_worker);
    g_worker.platform = &g_systrap;
    g_worker.listener = g_worker.template_pidfd = -1;
    g_worker.killable = true;
    lock_init(&g_worker.lock);
    wait_queue_init(&g_worker.pool_waiters);
    TAILQ_INIT(&g_worker.ready);
    TAILQ_INIT(&g_worker.held);
    TAILQ_INIT(&g_worker.pool);
    memset(g_mailbox, 0, THREADS * STUB_SLOT_SIZE);
}

static struct systrap_space *make_space(void)
{
    struct systrap_space *s = calloc(1, sizeof *s);
    s->base = (struct platform_space){.ops = &systrap_ops, .platform = &g_systrap.base};
    atomic_init(&s->base.references, 1000);
    s->worker = &g_worker;
    s->mailbox = g_mailbox;
    s->mailbox_hfd = -1;
    s->pid = FIRST_TID;
    fmutex_init(&s->gate);
    LIST_INSERT_HEAD(&g_worker.spaces, s, entry);
    return s;
}

static struct systrap_thread *make_thread(struct systrap_space *s, unsigned index)
{
    struct systrap_thread *t = calloc(1, sizeof *t);
    t->base = (struct platform_thread){.ops = &systrap_ops, .space = &s->base};
    t->space = s;
    t->worker = &g_worker;
    t->slot = index;
    t->tid = FIRST_TID + (pid_t)index;
    s->slots[0] |= 1ULL << index;
    s->thread_count++;
    LIST_INSERT_HEAD(&s->threads, t, sibling);
    worker_hash_locked(&g_worker, t);
    frame_build(t, NULL);
    t->state = THREAD_STOPPED;
    worker_hold_locked(t, 1 + index);
    return t;
}

static uint64_t any_value(struct input *in, const struct systrap_thread *t)
{
    switch (take(in, 1) % 8) {
    case 0:
        return t->frame;
    case 1:
        return frame_home(&g_systrap, t->slot) - take(in, 2);
    case 2:
        return STUB_MAILBOX + take(in, 3);
    case 3:
        return take(in, 1);
    case 4:
        return STUB_CODE_CHILD + take(in, 1) % 4;
    case 5:
        return SIGSYS;
    case 6:
        return t->calls[take(in, 1) % SYSTRAP_CALLS_MAX].args[take(in, 1) % 6];
    default:
        return take(in, 8);
    }
}

static void notify(struct input *in, const struct systrap_thread *t)
{
    static const int numbers[] = {STUB_DOORBELL, STUB_DOORBELL, SYS_mmap,  SYS_munmap,
                                  SYS_mprotect,  SYS_close,     SYS_clone, SYS_exit};
    struct seccomp_notif n = {.id = take(in, 1) + 1, .pid = (uint32_t)t->tid};
    n.data.nr = numbers[take(in, 1) % ARRAY_COUNT(numbers)];
    n.data.instruction_pointer =
        (take(in, 1) & 3) == 0 ? 0x400000 : g_systrap.table[STUB_TABLE_CALL_IP];
    bool as_ordered = (take(in, 1) & 1) != 0 && t->call_next < t->call_count;
    if (as_ordered)
        n.data.nr = (int)t->calls[t->call_next].nr;
    for (size_t i = 0; i < 6; i++)
        n.data.args[i] = as_ordered ? t->calls[t->call_next].args[i] : any_value(in, t);
    struct platform_event event;
    (void)notify_handle(&g_worker, &n, &event);
}

static void queue_something(struct input *in, struct systrap_thread *t)
{
    struct platform_order o = {.kind = PLATFORM_ORDER_PROTECT,
                               .addr = GUEST_ADDR(0x100000 + take(in, 1) * PAGE_SIZE),
                               .size = PAGE_SIZE};
    if (thread_queue(&t->base, &o) != 0)
        return;
}

/* As thread_run_calls() does, without the sleep. */
static void run_calls(struct input *in, struct systrap_thread *t)
{
    if (t->is_light || t->is_fetching)
        return; /* it fetches first, which sleeps */
    t->call_count = 1 + (unsigned)(take(in, 1) % (SYSTRAP_CALLS_MAX - 1));
    t->call_next = 0;
    t->calls_failed = false;
    for (unsigned i = 0; i < t->call_count; i++) {
        call_set(&t->calls[i], i % 3 == 2 ? SYS_close : SYS_mmap, take(in, 2), PAGE_SIZE, 1, 0, 0, 0);
        t->calls[i].always = i % 3 == 2;
    }
    t->state = THREAD_CALLS;
    (void)worker_unhold_locked(t, STUB_REPLY_CALLS);
}

static void own_stopped(struct input *in, struct systrap_thread *t)
{
    static unsigned char xstate[GUEST_XSTATE_MAX];
    switch (take(in, 1) % 6) {
    case 0:
    case 1:
        thread_resume(&t->base);
        return;
    case 2:
        queue_something(in, t);
        return;
    case 3:
        run_calls(in, t);
        return;
    case 4:
        if (!t->is_light && !t->is_fetching && frame_read_xstate(&t->base, xstate, sizeof xstate) > 0 &&
            frame_write_xstate(&t->base, xstate, sizeof xstate) != 0)
            return;
        return;
    default:
        t->base.regs.fs_base = take(in, 8);
        return;
    }
}

static void scribble(struct input *in, unsigned slot)
{
    size_t at = (size_t)take(in, 2) % (STUB_SLOT_SIZE - 8);
    uint64_t value = take(in, 8);
    memcpy(g_mailbox + (size_t)slot * STUB_SLOT_SIZE + at, &value, sizeof value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {.bytes = data, .left = size};
    start();
    struct systrap_space *s = make_space();
    for (unsigned i = 0; i < THREADS; i++)
        make_thread(s, i);
    while (in.left > 0) {
        uint64_t op = take(&in, 1);
        struct systrap_thread *t = worker_find_locked(&g_worker, FIRST_TID + (pid_t)(op % THREADS));
        if (t == NULL)
            continue; /* it left */
        switch (op / THREADS % 4) {
        case 0:
        case 1:
            notify(&in, t);
            break;
        case 2:
            if (t->state == THREAD_STOPPED)
                own_stopped(&in, t);
            else
                thread_kick(&t->base);
            break;
        default:
            scribble(&in, t->slot);
            break;
        }
    }
    space_set_dead_locked(s, SIGKILL);
    while (!LIST_EMPTY(&s->threads))
        thread_destroy_locked(LIST_FIRST(&s->threads));
    fmutex_fini(&s->gate);
    wait_queue_fini(&g_worker.pool_waiters);
    lock_fini(&g_worker.lock);
    free(s);
    return 0;
}
