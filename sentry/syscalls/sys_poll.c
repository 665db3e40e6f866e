/* SPDX-License-Identifier: Apache-2.0 */
/* poll(2), ppoll(2), select(2), pselect6(2). On the calling task's fiber. */
#define LOG_MODULE "syscalls"
#include "abi/poll.h"
#include "base/host.h"
#include "sentry/fs/anon/poll.h"
#include "sentry/mm/uaccess.h"
#include "sentry/syscalls/deadline.h"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/restart.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>

/* ---- poll ---------------------------------------------------------------------------------------- */

#define FEW 8

struct poll_call {
    struct linux_pollfd *fds;    /* owned */
    struct poll_entry *entries;  /* owned; files are references */
    uint32_t count;
};

static void poll_call_fini(struct poll_call *c)
{
    for (uint32_t i = 0; c->entries && i < c->count; i++)
        file_put(c->entries[i].file);
    free(c->entries);
    free(c->fds);
}

/* poll's bits are epoll's. Returns how many descriptors are not open: they are ready at once. */
static int64_t fill_entries(struct task *task, struct poll_call *c)
{
    int64_t bad = 0;
    for (uint32_t i = 0; i < c->count; i++) {
        struct linux_pollfd *p = &c->fds[i];
        p->revents = 0;
        if (p->fd < 0)
            continue;
        c->entries[i].events = (uint16_t)p->events | (uint32_t)(EPOLLERR | EPOLLHUP);
        c->entries[i].file = fd_table_get_file(task->fds, p->fd);
        if (!c->entries[i].file) {
            p->revents = POLLNVAL;
            bad++;
        }
    }
    return bad;
}

/* Only `revents` is ours to write. A long array goes back as a whole, with what was read beside it: one copy
 * instead of many; only a thread that changes the array meanwhile could tell. */
static int write_revents(struct task *task, const struct poll_call *c, guest_addr fds)
{
    for (uint32_t i = 0; i < c->count; i++) {
        if (c->entries[i].file)
            c->fds[i].revents = (int16_t)(uint16_t)c->entries[i].revents;
    }
    if (c->count > FEW)
        return copy_out(task->mm, fds, c->fds, c->count * sizeof(*c->fds));
    for (uint32_t i = 0; i < c->count; i++) {
        guest_addr at;
        if (!guest_addr_add(fds, i * sizeof(struct linux_pollfd) + offsetof(struct linux_pollfd, revents), &at))
            return -EFAULT;
        int r = copy_out(task->mm, at, &c->fds[i].revents, sizeof(c->fds[i].revents));
        if (r < 0)
            return r;
    }
    return 0;
}

static int64_t run_poll(struct task *task, struct poll_call *c, guest_addr fds, uint64_t deadline_ns)
{
    size_t size = c->count * sizeof(*c->fds);
    c->fds = calloc(c->count ? c->count : 1, sizeof(*c->fds));
    c->entries = calloc(c->count ? c->count : 1, sizeof(*c->entries));
    if (!c->fds || !c->entries)
        return -ENOMEM;
    if (size && copy_in(task->mm, c->fds, fds, size) < 0)
        return -EFAULT;
    int64_t bad = fill_entries(task, c);
    int64_t ready = poll_files(c->entries, c->count, bad ? 0 : deadline_ns);
    if (ready < 0)
        return ready;
    int r = write_revents(task, c, fds);
    return r < 0 ? r : ready + bad;
}

/* A count or -errno; -EINTR when a signal came first. */
static int64_t do_poll(struct task *task, guest_addr fds, uint32_t count, uint64_t deadline_ns)
{
    if (count > task_rlimit(task, RLIMIT_NOFILE))
        return -EINVAL;
    struct poll_call c = {.count = count};
    int64_t r = run_poll(task, &c, fds, deadline_ns);
    poll_call_fini(&c);
    return r;
}

static int64_t poll_restart(struct task *task);

static int64_t poll_result(struct task *task, guest_addr fds, uint32_t count, uint64_t deadline_ns, int64_t r)
{
    if (r != -EINTR)
        return r;
    task->restart.fn = poll_restart;
    task->restart.addr = fds;
    task->restart.args[0] = count;
    task->restart.args[1] = deadline_ns;
    return -ERESTART_RESTARTBLOCK;
}

static int64_t poll_restart(struct task *task)
{
    guest_addr fds = task->restart.addr;
    uint32_t count = (uint32_t)task->restart.args[0];
    uint64_t deadline_ns = task->restart.args[1];
    return poll_result(task, fds, count, deadline_ns, do_poll(task, fds, count, deadline_ns));
}

int64_t sys_poll(struct task *task, guest_addr fds, uint32_t nfds, int timeout)
{
    uint64_t deadline_ns = deadline_from_ms(timeout);
    return poll_result(task, fds, nfds, deadline_ns, do_poll(task, fds, nfds, deadline_ns));
}

/* The end of ppoll, pselect: the time that is left goes back to the guest, and the mask too unless a
 * signal handler is to run under the temporary one. */
static int64_t finish_wait(struct task *task, const struct wait_arguments *w, int64_t r)
{
    if (r == -EINTR)
        r = -ERESTARTNOHAND;
    if (w->has_mask && r != -ERESTARTNOHAND)
        signal_mask_restore(task);
    wait_arguments_write_left(task, w);
    return r;
}

int64_t sys_ppoll(struct task *task, guest_addr fds, uint32_t nfds, guest_addr timeout, guest_addr sigmask,
                  uint64_t sigsetsize)
{
    struct wait_arguments w;
    int r = wait_arguments_read(task, timeout, WAIT_TIMESPEC, sigmask, sigsetsize, &w);
    if (r < 0)
        return r;
    wait_arguments_set_mask(task, &w);
    return finish_wait(task, &w, do_poll(task, fds, nfds, w.deadline_ns));
}

/* ---- select -------------------------------------------------------------------------------------- */

#define SETS 3
static const uint32_t set_events[SETS] = {
    EPOLLIN | EPOLLRDNORM | EPOLLRDBAND | EPOLLHUP | EPOLLERR,
    EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND | EPOLLERR,
    EPOLLPRI,
};

struct select_call {
    int count;
    size_t words;
    guest_addr addrs[SETS];     /* null: not wanted */
    uint64_t *wanted[SETS];     /* owned, or NULL */
    uint64_t *ready;            /* owned: words for one set */
    struct poll_entry *entries; /* owned; files are references */
    int *fds;                   /* owned: of the entries */
    size_t entry_count;
};

static void select_call_fini(struct select_call *c)
{
    for (size_t i = 0; i < c->entry_count; i++)
        file_put(c->entries[i].file);
    for (int i = 0; i < SETS; i++)
        free(c->wanted[i]);
    free(c->ready);
    free(c->entries);
    free(c->fds);
}

static int read_sets(struct task *task, struct select_call *c)
{
    size_t size = c->words * sizeof(uint64_t);
    for (int i = 0; i < SETS; i++) {
        if (guest_addr_is_null(c->addrs[i]))
            continue;
        c->wanted[i] = calloc(c->words + 1, sizeof(uint64_t));
        if (!c->wanted[i])
            return -ENOMEM;
        if (size && copy_in(task->mm, c->wanted[i], c->addrs[i], size) < 0)
            return -EFAULT;
    }
    c->ready = calloc(c->words + 1, sizeof(uint64_t));
    return c->ready ? 0 : -ENOMEM;
}

static uint32_t wanted_events(const struct select_call *c, int fd)
{
    uint32_t events = 0;
    for (int i = 0; i < SETS; i++) {
        if (c->wanted[i] && (c->wanted[i][fd / 64] >> (fd % 64) & 1))
            events |= set_events[i];
    }
    return events;
}

static int open_entries(struct task *task, struct select_call *c)
{
    size_t count = 0;
    for (int fd = 0; fd < c->count; fd++)
        count += wanted_events(c, fd) != 0;
    c->entries = calloc(count + 1, sizeof(*c->entries));
    c->fds = calloc(count + 1, sizeof(*c->fds));
    if (!c->entries || !c->fds)
        return -ENOMEM;
    for (int fd = 0; fd < c->count; fd++) {
        uint32_t events = wanted_events(c, fd);
        if (!events)
            continue;
        struct file *f = fd_table_get_file(task->fds, fd);
        if (!f)
            return -EBADF;
        c->fds[c->entry_count] = fd;
        c->entries[c->entry_count++] = (struct poll_entry){.file = f, .events = events};
    }
    return 0;
}

/* How many bits are set in all sets. */
static int64_t write_sets(struct task *task, struct select_call *c)
{
    int64_t total = 0;
    for (int i = 0; i < SETS; i++) {
        if (!c->wanted[i])
            continue;
        memset(c->ready, 0, c->words * sizeof(uint64_t));
        for (size_t n = 0; n < c->entry_count; n++) {
            int fd = c->fds[n];
            uint64_t bit = 1ULL << (fd % 64);
            if (!(c->entries[n].revents & set_events[i]) || !(c->wanted[i][fd / 64] & bit))
                continue;
            c->ready[fd / 64] |= bit;
            total++;
        }
        if (c->words && copy_out(task->mm, c->addrs[i], c->ready, c->words * sizeof(uint64_t)) < 0)
            return -EFAULT;
    }
    return total;
}

static int64_t run_select(struct task *task, struct select_call *c, uint64_t deadline_ns)
{
    int r = read_sets(task, c);
    if (r == 0)
        r = open_entries(task, c);
    if (r < 0)
        return r;
    int64_t ready = poll_files(c->entries, c->entry_count, deadline_ns);
    return ready < 0 ? ready : write_sets(task, c);
}

static int64_t do_select(struct task *task, int nfds, guest_addr in, guest_addr out, guest_addr ex,
                         uint64_t deadline_ns)
{
    if (nfds < 0)
        return -EINVAL;
    uint64_t limit = task_rlimit(task, RLIMIT_NOFILE);
    struct select_call c = {.count = (uint64_t)nfds > limit ? (int)limit : nfds, .addrs = {in, out, ex}};
    c.words = ((size_t)c.count + 63) / 64;
    int64_t r = run_select(task, &c, deadline_ns);
    select_call_fini(&c);
    return r;
}

int64_t sys_select(struct task *task, int nfds, guest_addr readfds, guest_addr writefds, guest_addr exceptfds,
                   guest_addr timeout)
{
    struct wait_arguments w;
    int r = wait_arguments_read(task, timeout, WAIT_TIMEVAL, GUEST_NULL, 0, &w);
    if (r < 0)
        return r;
    return finish_wait(task, &w, do_select(task, nfds, readfds, writefds, exceptfds, w.deadline_ns));
}

int64_t sys_pselect6(struct task *task, int nfds, guest_addr readfds, guest_addr writefds,
                     guest_addr exceptfds, guest_addr timeout, guest_addr sigmask)
{
    struct linux_sigset_argument mask = {0};
    if (!guest_addr_is_null(sigmask) && copy_in_obj(task->mm, &mask, sigmask) < 0)
        return -EFAULT;
    struct wait_arguments w;
    int r = wait_arguments_read(task, timeout, WAIT_TIMESPEC, GUEST_ADDR(mask.mask), mask.size, &w);
    if (r < 0)
        return r;
    wait_arguments_set_mask(task, &w);
    return finish_wait(task, &w, do_select(task, nfds, readfds, writefds, exceptfds, w.deadline_ns));
}
