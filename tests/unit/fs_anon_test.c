/* SPDX-License-Identifier: Apache-2.0 */
/* Pipes, eventfd, timerfd, epoll sets, socketpairs and poll, as fibers use them; buffers of the sentry. */
#include "sched_fixture.h"
#include "sentry/fs/anon/epoll.h"
#include "sentry/fs/anon/eventfd.h"
#include "sentry/fs/anon/poll.h"
#include "sentry/fs/anon/socket.h"
#include "sentry/fs/anon/timerfd.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/mm/uaccess.h"
#include "sentry/task/restart.h"
#include "sentry/vfs/vfs.h"
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

static struct creds *g_creds;

static void run(void (*body)(void))
{
    fixture_init(2, 1, true);
    g_creds = creds_new(0, 0, NULL, 0);
    pipe_init();
    epoll_init();
    fixture_run(body);
    creds_put(g_creds);
}

static ssize_t put(struct file *f, const void *bytes, size_t size)
{
    struct io io;
    io_init_kernel(&io, (void *)(uintptr_t)bytes, size);
    return vfs_write(f, &io);
}

static ssize_t take(struct file *f, void *bytes, size_t size)
{
    struct io io;
    io_init_kernel(&io, bytes, size);
    return vfs_read(f, &io);
}

/* A second fiber that runs `g_helper` and reports its end. */
static struct fiber g_helper_fiber;
static void (*g_helper)(void);
static _Atomic bool g_helper_done;

static void helper_main(void *arg)
{
    (void)arg;
    g_helper();
    g_helper_done = true;
    fiber_wake(&g_fixture_fiber);
}

static void helper_start(void (*helper)(void))
{
    g_helper = helper;
    g_helper_done = false;
    fiber_init(&g_helper_fiber, 1, "helper");
    fiber_start(&g_helper_fiber, helper_main, NULL);
}

static void helper_join(void)
{
    while (!g_helper_done)
        fiber_park(FIBER_UNINTERRUPTIBLE, in_ms(50));
}

static void pause_ms(unsigned ms)
{
    uint64_t deadline = in_ms(ms);
    while (fiber_park(FIBER_UNINTERRUPTIBLE, deadline) == 0)
        ;
}

/* ---- pipes ------------------------------------------------------------------------------------ */

static struct file *g_read, *g_write;

static void pipe_basics(void)
{
    char buffer[256] = "";
    cr_assert_eq(pipe_new(g_creds, O_NONBLOCK, &g_read, &g_write), 0);
    cr_assert_eq(take(g_read, buffer, 10), -EAGAIN);
    cr_assert_eq(put(g_write, "hello ", 6), 6);
    cr_assert_eq(put(g_write, "world", 5), 5);
    cr_assert_eq(take(g_read, buffer, sizeof(buffer)), 11);
    cr_assert_eq(memcmp(buffer, "hello world", 11), 0);
    cr_assert_eq(vfs_poll(g_read, NULL), 0);
    cr_assert_eq(vfs_poll(g_write, NULL), EPOLLOUT | EPOLLWRNORM);
    unsigned count = 0;
    while (put(g_write, "x", 1) == 1)
        count++;
    cr_assert_eq(count, 65536);
    cr_assert_eq(pipe_set_size(g_write, 4096), -EBUSY);
    cr_assert_eq(pipe_set_size(g_write, 100000), 131072);
    cr_assert_eq(pipe_get_size(g_read), 131072);
    cr_assert_eq(put(g_write, "y", 1), 1);
    file_put(g_read);
    cr_assert_eq(put(g_write, "z", 1), -EPIPE);
    cr_assert_eq(vfs_poll(g_write, NULL) & EPOLLERR, EPOLLERR);
    file_put(g_write);
}

Test(pipe, moves_bytes_and_holds_what_linux_holds)
{
    run(pipe_basics);
}

static void packet_pipe(void)
{
    char buffer[8];
    cr_assert_eq(pipe_new(g_creds, O_DIRECT | O_NONBLOCK, &g_read, &g_write), 0);
    cr_assert_eq(put(g_write, "abcdef", 6), 6);
    cr_assert_eq(put(g_write, "gh", 2), 2);
    cr_assert_eq(take(g_read, buffer, 3), 3);
    cr_assert_eq(take(g_read, buffer, 8), 2);
    cr_assert_eq(buffer[0], 'g');
    file_put(g_write);
    cr_assert_eq(take(g_read, buffer, 8), 0);
    cr_assert_eq(vfs_poll(g_read, NULL), EPOLLHUP);
    file_put(g_read);
}

Test(pipe, keeps_packets_apart_with_o_direct)
{
    run(packet_pipe);
}

#define BULK (1 << 20)
static void bulk_writer(void)
{
    static unsigned char chunk[30000];
    size_t sent = 0;
    while (sent < BULK) {
        size_t size = BULK - sent < sizeof(chunk) ? BULK - sent : sizeof(chunk);
        for (size_t i = 0; i < size; i++)
            chunk[i] = (unsigned char)((sent + i) * 7 >> 3);
        cr_assert_eq(put(g_write, chunk, size), (ssize_t)size);
        sent += size;
    }
    file_put(g_write);
}

static void bulk_reader(void)
{
    static unsigned char chunk[5000];
    size_t got = 0;
    ssize_t r;
    cr_assert_eq(pipe_new(g_creds, 0, &g_read, &g_write), 0);
    helper_start(bulk_writer);
    while ((r = take(g_read, chunk, sizeof(chunk))) > 0) {
        for (ssize_t i = 0; i < r; i++)
            cr_assert_eq(chunk[i], (unsigned char)((got + (size_t)i) * 7 >> 3));
        got += (size_t)r;
    }
    cr_assert_eq(r, 0);
    cr_assert_eq(got, BULK);
    helper_join();
    file_put(g_read);
}

Test(pipe, carries_a_stream_between_workers)
{
    run(bulk_reader);
}

static void interrupt_it(void)
{
    pause_ms(5);
    g_fixture_fiber.interrupted = true;
    fiber_wake(&g_fixture_fiber);
}

static void interrupted_read(void)
{
    char byte;
    cr_assert_eq(pipe_new(g_creds, 0, &g_read, &g_write), 0);
    helper_start(interrupt_it);
    cr_assert_eq(take(g_read, &byte, 1), -ERESTARTSYS);
    g_fixture_fiber.interrupted = false;
    helper_join();
    file_put(g_read);
    file_put(g_write);
}

Test(pipe, read_is_interrupted_by_a_signal)
{
    run(interrupted_read);
}

/* ---- eventfd, timerfd, poll --------------------------------------------------------------------- */

static void eventfds(void)
{
    struct file *f;
    uint64_t value = 5;
    cr_assert_eq(eventfd_new(g_creds, 3, false, O_NONBLOCK, &f), 0);
    cr_assert_eq(put(f, &value, 8), 8);
    cr_assert_eq(take(f, &value, 8), 8);
    cr_assert_eq(value, 8);
    cr_assert_eq(take(f, &value, 8), -EAGAIN);
    value = UINT64_MAX - 1;
    cr_assert_eq(put(f, &value, 8), 8);
    cr_assert_eq(vfs_poll(f, NULL), EPOLLIN);
    cr_assert_eq(put(f, &value, 8), -EAGAIN);
    value = UINT64_MAX;
    cr_assert_eq(put(f, &value, 8), -EINVAL);
    file_put(f);
    cr_assert_eq(eventfd_new(g_creds, 2, true, O_NONBLOCK, &f), 0);
    cr_assert_eq(take(f, &value, 8), 8);
    cr_assert_eq(value, 1);
    cr_assert_eq(take(f, &value, 8), 8);
    cr_assert_eq(take(f, &value, 8), -EAGAIN);
    file_put(f);
}

Test(eventfd, counts)
{
    run(eventfds);
}

static void timerfds(void)
{
    struct file *f;
    uint64_t count;
    struct linux_itimerspec old, value = {.interval = {0, 2000000}, .value = {0, 5000000}};
    cr_assert_eq(timerfd_new(g_creds, CLOCK_MONOTONIC, 0, &f), 0);
    cr_assert_eq(timerfd_set(f, false, &value, &old), 0);
    cr_assert_eq(old.value.nsec, 0);
    cr_assert_eq(vfs_poll(f, NULL), 0);
    cr_assert_eq(take(f, &count, 8), 8);
    cr_assert(count >= 1);
    pause_ms(20);
    cr_assert_eq(take(f, &count, 8), 8);
    cr_assert(count >= 5);
    value = (struct linux_itimerspec){0};
    cr_assert_eq(timerfd_set(f, false, &value, &old), 0);
    cr_assert_eq(old.interval.nsec, 2000000);
    cr_assert_eq(timerfd_get(f, &old), 0);
    cr_assert_eq(old.value.sec + old.value.nsec, 0);
    f->flags |= O_NONBLOCK;
    cr_assert_eq(take(f, &count, 8), -EAGAIN);
    /* an absolute time of the real clock in the past is due at once */
    value.value.sec = 1;
    file_put(f);
    cr_assert_eq(timerfd_new(g_creds, CLOCK_REALTIME, 0, &f), 0);
    cr_assert_eq(timerfd_set(f, true, &value, &old), 0);
    cr_assert_eq(take(f, &count, 8), 8);
    cr_assert_eq(count, 1);
    file_put(f);
}

Test(timerfd, fires_and_counts_periods)
{
    run(timerfds);
}

static void write_later(void)
{
    pause_ms(5);
    cr_assert_eq(put(g_write, "x", 1), 1);
}

static void polls(void)
{
    struct file *event;
    cr_assert_eq(pipe_new(g_creds, 0, &g_read, &g_write), 0);
    cr_assert_eq(eventfd_new(g_creds, 0, false, 0, &event), 0);
    struct poll_entry entries[] = {{.file = g_read, .events = EPOLLIN}, {.file = NULL}, {.file = event, .events = EPOLLIN}};
    cr_assert_eq(poll_files(entries, 3, 0), 0);
    cr_assert_eq(poll_files(entries, 3, in_ms(3)), 0);
    helper_start(write_later);
    cr_assert_eq(poll_files(entries, 3, FIBER_NO_DEADLINE), 1);
    cr_assert_eq(entries[0].revents, EPOLLIN);
    cr_assert_eq(entries[2].revents, 0);
    helper_join();
    file_put(event);
    file_put(g_read);
    file_put(g_write);
}

Test(poll, waits_for_any_of_several_files)
{
    run(polls);
}

/* ---- epoll -------------------------------------------------------------------------------------- */

static struct file *g_epoll;

static int control(int op, int fd, struct file *f, uint32_t events)
{
    struct linux_epoll_event e = {.events = events, .data = (uint64_t)fd};
    return epoll_control(g_epoll, op, fd, f, &e);
}

static int collect(struct linux_epoll_event *events, int max, uint64_t deadline)
{
    return epoll_collect(g_epoll, events, max, deadline);
}

static void epoll_triggers(void)
{
    struct linux_epoll_event e[4];
    char buffer[16];
    cr_assert_eq(pipe_new(g_creds, O_NONBLOCK, &g_read, &g_write), 0);
    cr_assert_eq(epoll_new(g_creds, &g_epoll), 0);
    cr_assert_eq(control(EPOLL_CTL_MOD, 5, g_read, EPOLLIN), -ENOENT);
    cr_assert_eq(control(EPOLL_CTL_ADD, 5, g_read, EPOLLIN), 0);
    cr_assert_eq(control(EPOLL_CTL_ADD, 5, g_read, EPOLLIN), -EEXIST);
    cr_assert_eq(collect(e, 4, 0), 0);
    cr_assert_eq(put(g_write, "ab", 2), 2);
    for (int i = 0; i < 3; i++) { /* level: again and again */
        cr_assert_eq(collect(e, 4, 0), 1);
        cr_assert_eq(e[0].events, EPOLLIN);
        cr_assert_eq(e[0].data, 5);
    }
    cr_assert_eq(control(EPOLL_CTL_MOD, 5, g_read, EPOLLIN | EPOLLET), 0);
    cr_assert_eq(collect(e, 4, 0), 1);
    cr_assert_eq(collect(e, 4, 0), 0); /* edge: once */
    cr_assert_eq(put(g_write, "c", 1), 1);
    cr_assert_eq(collect(e, 4, 0), 1); /* each write is one */
    cr_assert_eq(control(EPOLL_CTL_MOD, 5, g_read, EPOLLIN | EPOLLONESHOT), 0);
    cr_assert_eq(collect(e, 4, 0), 1);
    cr_assert_eq(put(g_write, "d", 1), 1);
    cr_assert_eq(collect(e, 4, 0), 0);
    cr_assert_eq(control(EPOLL_CTL_MOD, 5, g_read, EPOLLIN), 0);
    cr_assert_eq(collect(e, 4, 0), 1);
    cr_assert_eq(take(g_read, buffer, sizeof(buffer)), 4);
    cr_assert_eq(collect(e, 4, 0), 0);
    helper_start(write_later);
    cr_assert_eq(collect(e, 4, FIBER_NO_DEADLINE), 1);
    helper_join();
    cr_assert_eq(collect(e, 4, in_ms(1)), 1);
    file_put(g_read); /* the watched file goes away: its item too */
    cr_assert_eq(collect(e, 4, 0), 0);
    file_put(g_write);
    file_put(g_epoll);
}

Test(epoll, reports_levels_edges_and_single_shots)
{
    run(epoll_triggers);
}

static void epoll_nesting(void)
{
    struct file *sets[7];
    struct linux_epoll_event e = {.events = EPOLLIN, .data = 9};
    struct linux_epoll_event out[2];
    cr_assert_eq(pipe_new(g_creds, O_NONBLOCK, &g_read, &g_write), 0);
    for (int i = 0; i < 7; i++)
        cr_assert_eq(epoll_new(g_creds, &sets[i]), 0);
    cr_assert_eq(epoll_control(sets[0], EPOLL_CTL_ADD, 1, sets[0], &e), -EINVAL);
    cr_assert_eq(epoll_control(sets[0], EPOLL_CTL_ADD, 1, sets[1], &e), 0);
    cr_assert_eq(epoll_control(sets[1], EPOLL_CTL_ADD, 2, sets[2], &e), 0);
    cr_assert_eq(epoll_control(sets[2], EPOLL_CTL_ADD, 0, sets[0], &e), -ELOOP);
    cr_assert_eq(epoll_control(sets[2], EPOLL_CTL_ADD, 10, g_read, &e), 0);
    cr_assert_eq(epoll_collect(sets[0], out, 2, 0), 0);
    cr_assert_eq(put(g_write, "x", 1), 1);
    cr_assert_eq(epoll_collect(sets[0], out, 2, 0), 1);
    cr_assert_eq(out[0].data, 9);
    cr_assert_eq(vfs_poll(sets[1], NULL), EPOLLIN | EPOLLRDNORM);
    /* A chain that is too long is refused from either end. */
    cr_assert_eq(epoll_control(sets[2], EPOLL_CTL_ADD, 3, sets[3], &e), 0);
    cr_assert_eq(epoll_control(sets[3], EPOLL_CTL_ADD, 4, sets[4], &e), 0);
    cr_assert_eq(epoll_control(sets[4], EPOLL_CTL_ADD, 5, sets[5], &e), -ELOOP);
    cr_assert_eq(epoll_control(sets[6], EPOLL_CTL_ADD, 0, sets[0], &e), -ELOOP);
    file_put(sets[1]);
    cr_assert_eq(epoll_collect(sets[0], out, 2, 0), 0);
    file_put(sets[0]);
    for (int i = 2; i < 7; i++)
        file_put(sets[i]);
    file_put(g_read);
    file_put(g_write);
}

Test(epoll, nests_without_loops)
{
    run(epoll_nesting);
}

/* Sets and watched files that end at the same time on two workers. */
static struct file *g_race_set, *g_race_file;
static _Atomic int g_race_round, g_race_end;

static void race_closer(void)
{
    for (int i = 1; i <= 2000; i++) {
        while (g_race_round < i)
            fiber_yield();
        file_put(g_race_file);
        g_race_end = i;
    }
}

static void epoll_race(void)
{
    struct linux_epoll_event e = {.events = EPOLLIN};
    uint64_t one = 1;
    helper_start(race_closer);
    for (int i = 1; i <= 2000; i++) {
        cr_assert_eq(epoll_new(g_creds, &g_race_set), 0);
        cr_assert_eq(eventfd_new(g_creds, 0, false, 0, &g_race_file), 0);
        cr_assert_eq(epoll_control(g_race_set, EPOLL_CTL_ADD, 1, g_race_file, &e), 0);
        cr_assert_eq(epoll_control(g_race_set, EPOLL_CTL_ADD, 2, g_race_file, &e), 0);
        cr_assert_eq(put(g_race_file, &one, 8), 8);
        struct linux_epoll_event out[2];
        g_race_round = i;
        cr_assert(epoll_collect(g_race_set, out, 2, 0) >= 0);
        file_put(g_race_set);
        while (g_race_end < i)
            fiber_yield();
    }
    helper_join();
}

Test(epoll, sets_and_files_may_end_together)
{
    run(epoll_race);
}

/* ---- socketpairs ----------------------------------------------------------------------------------- */

static const struct linux_ucred g_owner = {.pid = 42, .uid = 1, .gid = 2};
static struct file *g_a, *g_b;

static void stream_pair(void)
{
    char buffer[64];
    cr_assert_eq(socket_pair_new(g_creds, SOCK_STREAM, O_NONBLOCK, &g_owner, &g_a, &g_b), 0);
    cr_assert_eq(take(g_a, buffer, 8), -EAGAIN);
    cr_assert_eq(put(g_a, "abc", 3), 3);
    cr_assert_eq(put(g_a, "def", 3), 3);
    cr_assert_eq(take(g_b, buffer, 4), 4);
    cr_assert_eq(memcmp(buffer, "abcd", 4), 0);
    cr_assert_eq(take(g_b, buffer, 64), 2);
    size_t sent = 0;
    static char bulk[10000];
    ssize_t r;
    while ((r = put(g_a, bulk, sizeof(bulk))) > 0)
        sent += (size_t)r;
    cr_assert_eq(r, -EAGAIN);
    cr_assert(sent >= 150000 && sent < 300000);
    cr_assert_eq(vfs_poll(g_a, NULL) & EPOLLOUT, 0);
    while ((r = take(g_b, bulk, sizeof(bulk))) > 0)
        sent -= (size_t)r;
    cr_assert_eq(sent, 0);
    cr_assert_eq(vfs_poll(g_a, NULL) & EPOLLOUT, EPOLLOUT);
    cr_assert_eq(put(g_a, "x", 1), 1);
    cr_assert_eq(socket_shutdown(g_a, SHUT_WR), 0);
    cr_assert_eq(take(g_b, buffer, 8), 1);
    cr_assert_eq(take(g_b, buffer, 8), 0);
    cr_assert_eq(vfs_poll(g_b, NULL) & (EPOLLIN | EPOLLRDHUP | EPOLLHUP), EPOLLIN | EPOLLRDHUP);
    cr_assert_eq(put(g_b, "unread", 6), 6);
    file_put(g_a);
    cr_assert_eq(take(g_b, buffer, 8), -ECONNRESET);
    cr_assert_eq(take(g_b, buffer, 8), 0);
    cr_assert_eq(put(g_b, "y", 1), -EPIPE);
    file_put(g_b);
}

Test(socketpair, streams_bytes)
{
    run(stream_pair);
}

static void packet_pair(void)
{
    char buffer[64];
    int flags;
    struct io io;
    cr_assert_eq(socket_pair_new(g_creds, SOCK_SEQPACKET, O_NONBLOCK, &g_owner, &g_a, &g_b), 0);
    cr_assert_eq(put(g_a, "one", 3), 3);
    cr_assert_eq(put(g_a, "", 0), 0);
    cr_assert_eq(put(g_a, "three", 5), 5);
    cr_assert_eq(take(g_b, buffer, 64), 3);
    cr_assert_eq(take(g_b, buffer, 64), 0);
    io_init_kernel(&io, buffer, 2);
    cr_assert_eq(socket_receive(g_b, &io, MSG_TRUNC, NULL, &flags), 5);
    cr_assert_eq(flags, MSG_TRUNC);
    cr_assert_eq(take(g_b, buffer, 64), -EAGAIN);
    static char big[300000];
    cr_assert_eq(put(g_a, big, sizeof(big)), -EMSGSIZE);
    file_put(g_a);
    cr_assert_eq(take(g_b, buffer, 64), 0);
    file_put(g_b);
}

Test(socketpair, keeps_records_apart)
{
    run(packet_pair);
}

static void send_file(struct file *through, struct file *what)
{
    struct socket_control c = {.files = calloc(1, sizeof(struct file *)), .file_count = 1};
    struct io io;
    char byte = 'f';
    c.files[0] = what;
    file_get(what);
    io_init_kernel(&io, &byte, 1);
    cr_assert_eq(socket_send(through, &io, &c, 0), 1);
    cr_assert_eq(c.file_count, 0);
    socket_control_fini(&c);
}

static void passed_files(void)
{
    char buffer[64];
    int flags;
    struct io io;
    struct socket_control c;
    uint64_t one = 1;
    struct file *event;
    cr_assert_eq(socket_pair_new(g_creds, SOCK_STREAM, O_NONBLOCK, &g_owner, &g_a, &g_b), 0);
    cr_assert_eq(eventfd_new(g_creds, 7, false, 0, &event), 0);
    cr_assert_eq(put(g_a, "ab", 2), 2);
    send_file(g_a, event);
    cr_assert_eq(put(g_a, "cd", 2), 2);
    io_init_kernel(&io, buffer, sizeof(buffer));
    cr_assert_eq(socket_receive(g_b, &io, 0, &c, &flags), 3); /* ends after the file */
    cr_assert_eq(c.file_count, 1);
    cr_assert_eq(take(c.files[0], &one, 8), 8);
    cr_assert_eq(one, 7);
    socket_control_fini(&c);
    cr_assert_eq(take(g_b, buffer, 64), 2);
    /* credentials of the pair's maker, when asked for */
    int on = 1;
    cr_assert_eq(socket_set_option(g_b, SO_PASSCRED, &on, sizeof(on)), 0);
    cr_assert_eq(put(g_a, "e", 1), 1);
    io_init_kernel(&io, buffer, sizeof(buffer));
    cr_assert_eq(socket_receive(g_b, &io, 0, &c, &flags), 1);
    cr_assert(c.has_creds);
    cr_assert_eq(c.creds.pid, 42);
    socket_control_fini(&c);
    struct linux_ucred peer;
    size_t size = sizeof(peer);
    cr_assert_eq(socket_get_option(g_b, SO_PEERCRED, &peer, &size), 0);
    cr_assert_eq(peer.uid, 1);
    file_put(event);
    file_put(g_a);
    file_put(g_b);
}

Test(socketpair, carries_files_and_credentials)
{
    run(passed_files);
}

/* Each pair's end is queued in the next one: closing the last must not use one frame for each. */
static void deep_queue(void)
{
    struct file *inner;
    cr_assert_eq(pipe_new(g_creds, 0, &g_read, &inner), 0);
    for (int i = 0; i < 20000; i++) {
        cr_assert_eq(socket_pair_new(g_creds, SOCK_STREAM, 0, &g_owner, &g_a, &g_b), 0);
        send_file(g_a, inner);
        file_put(inner);
        file_put(g_a);
        inner = g_b;
    }
    file_put(inner);
    char byte;
    cr_assert_eq(take(g_read, &byte, 1), 0); /* the innermost, the pipe's write end, is closed too */
    file_put(g_read);
}

Test(socketpair, closes_deeply_queued_sockets_without_recursion)
{
    run(deep_queue);
}

static void blocking_writer(void)
{
    static char chunk[50000];
    for (int i = 0; i < 40; i++)
        cr_assert_eq(put(g_a, chunk, sizeof(chunk)), (ssize_t)sizeof(chunk));
    file_put(g_a);
}

static void blocking_reader(void)
{
    static char chunk[7000];
    size_t got = 0;
    ssize_t r;
    cr_assert_eq(socket_pair_new(g_creds, SOCK_STREAM, 0, &g_owner, &g_a, &g_b), 0);
    helper_start(blocking_writer);
    while ((r = take(g_b, chunk, sizeof(chunk))) > 0)
        got += (size_t)r;
    cr_assert_eq(r, 0);
    cr_assert_eq(got, 2000000);
    helper_join();
    file_put(g_b);
}

Test(socketpair, blocks_senders_until_there_is_room)
{
    run(blocking_reader);
}

/* ---- splice ---------------------------------------------------------------------------------------- */

static char g_sunk[64];
static size_t g_sunk_size, g_sink_room;

static ssize_t small_sink(void *arg, struct io *io)
{
    (void)arg;
    size_t size = io->remaining < g_sink_room ? io->remaining : g_sink_room;
    ssize_t n = io_get(io, g_sunk + g_sunk_size, size);
    g_sunk_size += (size_t)n;
    g_sink_room -= (size_t)n;
    return n;
}

static void splices(void)
{
    struct file *other_read, *other_write;
    char buffer[64] = "";
    struct io io;
    cr_assert_eq(pipe_new(g_creds, O_NONBLOCK, &g_read, &g_write), 0);
    cr_assert_eq(pipe_new(g_creds, O_NONBLOCK, &other_read, &other_write), 0);
    cr_assert_eq(pipe_splice(g_read, other_write, 10, true), -EAGAIN);
    cr_assert_eq(pipe_splice(g_read, g_write, 10, true), -EINVAL);
    cr_assert_eq(pipe_splice(g_write, other_write, 10, true), -EBADF);
    cr_assert_eq(put(g_write, "0123456789", 10), 10);
    cr_assert_eq(pipe_tee(g_read, other_write, 4, true), 4);
    cr_assert_eq(pipe_splice(g_read, other_write, 3, true), 3);
    cr_assert_eq(take(other_read, buffer, 64), 7);
    cr_assert_eq(memcmp(buffer, "0123012", 7), 0);
    /* A sink that takes less than it is offered: the rest stays, at the front. */
    cr_assert_eq(put(g_write, "abc", 3), 3);
    g_sink_room = 4;
    cr_assert_eq(pipe_drain(g_read, 100, true, small_sink, NULL), 4);
    cr_assert_eq(memcmp(g_sunk, "3456", 4), 0);
    cr_assert_eq(take(g_read, buffer, 64), 6);
    cr_assert_eq(memcmp(buffer, "789abc", 6), 0);
    cr_assert_eq(pipe_wait_room(g_write, true), 65536);
    io_init_kernel(&io, buffer, 5);
    cr_assert_eq(pipe_fill(g_write, &io, true), 5);
    file_put(other_read);
    cr_assert_eq(pipe_splice(g_read, other_write, 10, true), -EPIPE);
    file_put(other_write);
    file_put(g_read);
    file_put(g_write);
}

Test(splice, moves_between_pipes_and_keeps_what_was_not_taken)
{
    run(splices);
}
