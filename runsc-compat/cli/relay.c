/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's terminal is never made nonblocking (its mode is shared with the caller's shell): it's read
 * only when poll says so, and written blocking. The sandbox's socket is used without blocking, so that a
 * sandbox that doesn't read its terminal can't hang the CLI.
 */
#include "runsc-compat/cli/relay.h"

#include "base/host.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

void relay_init(struct relay *r, int sock, const struct terminal *terminal)
{
    *r = (struct relay){.sock = sock, .in = terminal ? terminal->in : -1,
                        .out = terminal ? terminal->out : -1};
}

void relay_fini(struct relay *r)
{
    host_close(r->sock);
    r->sock = -1;
}

void relay_fill_poll(const struct relay *r, struct pollfd *in, struct pollfd *sock, bool running)
{
    *in = (struct pollfd){.fd = running && !r->pending_size && r->sock >= 0 ? r->in : -1, .events = POLLIN};
    *sock = (struct pollfd){.fd = r->sock, .events = (short)(POLLIN | (r->pending_size ? POLLOUT : 0))};
}

static enum relay_result read_terminal(struct relay *r)
{
    ssize_t got = read(r->in, r->pending, sizeof(r->pending));
    if (got > 0) {
        r->pending_size = (size_t)got;
        return RELAY_OK;
    }
    if (got < 0 && (errno == EINTR || errno == EAGAIN))
        return RELAY_OK;
    r->in = -1; /* EOF or EIO: the terminal was closed */
    return RELAY_HANGUP;
}

static void write_pending(struct relay *r)
{
    ssize_t sent = send(r->sock, r->pending, r->pending_size, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        sent = (ssize_t)r->pending_size; /* nobody reads any more */
    if (sent <= 0)
        return;
    r->pending_size -= (size_t)sent;
    memmove(r->pending, r->pending + sent, r->pending_size);
}

/* One chunk to the terminal; false if there's none now. */
static bool forward_output(struct relay *r)
{
    char bytes[8192];
    ssize_t got = recv(r->sock, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (got < 0)
        return false;
    if (got == 0) {
        host_close(r->sock);
        r->sock = -1;
        return false;
    }
    if (r->out >= 0 && host_write_all(r->out, bytes, (size_t)got) < 0)
        r->out = -1; /* the terminal is gone; the input side reports it */
    return true;
}

enum relay_result relay_move(struct relay *r, const struct pollfd *in, const struct pollfd *sock)
{
    enum relay_result result = RELAY_OK;
    if (sock->fd >= 0 && sock->revents & (POLLIN | POLLHUP))
        (void)forward_output(r);
    if (in->fd >= 0 && in->revents)
        result = read_terminal(r);
    if (r->pending_size && r->sock >= 0)
        write_pending(r);
    return result;
}

void relay_drain(struct relay *r)
{
    while (r->sock >= 0 && forward_output(r))
        ;
}

int relay_log_init(struct relay_log *r, int out, int *ret_write)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return -1;
    fcntl(ends[0], F_SETFL, O_NONBLOCK);
    *r = (struct relay_log){.pipe = ends[0], .out = out};
    *ret_write = ends[1];
    return 0;
}

/* One chunk; false if there's none now. */
static bool forward_log(struct relay_log *r)
{
    char bytes[4096];
    ssize_t got = read(r->pipe, bytes, sizeof(bytes));
    if (got <= 0) {
        if (got == 0) { /* no writer is left */
            host_close(r->pipe);
            r->pipe = -1;
        }
        return false;
    }
    for (ssize_t i = 0; i < got; i++) {
        unsigned char c = (unsigned char)bytes[i];
        if ((c < 0x20 && c != '\n') || c > 0x7e)
            bytes[i] = '?';
    }
    (void)!host_write_all(r->out, bytes, (size_t)got); /* a full disk must not end the sandbox */
    return true;
}

void relay_log_forward(struct relay_log *r)
{
    if (r->pipe >= 0)
        (void)forward_log(r);
}

void relay_log_fini(struct relay_log *r)
{
    while (r->pipe >= 0 && forward_log(r))
        ;
    host_close(r->pipe);
    r->pipe = -1;
}
