/* SPDX-License-Identifier: Apache-2.0 */
/* SOL_SOCKET options of Unix sockets: socket(7), unix(7). Fibers; values are the guest's, sizes checked. */
#include "sentry/fs/anon/socket_internal.h"
#include "sentry/vfs/vfs.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define SEND_SIZE_MIN    4608
#define RECEIVE_SIZE_MIN 2304
#define SIZE_MAX_SYSCTL  212992 /* wmem_max, rmem_max */
#define NS_PER_SECOND    1000000000u

static int get_bytes(void *value, size_t *size, const void *from, size_t from_size)
{
    if (*size > from_size)
        *size = from_size;
    memcpy(value, from, *size); /* a short buffer gets a part, as in Linux */
    return 0;
}

static int get_int(void *value, size_t *size, int number)
{
    return get_bytes(value, size, &number, sizeof(number));
}

static int get_timeout(void *value, size_t *size, uint64_t ns)
{
    struct linux_timeval t = {.sec = (int64_t)(ns / NS_PER_SECOND), .usec = (int64_t)(ns % NS_PER_SECOND / 1000)};
    return get_bytes(value, size, &t, sizeof(t));
}

static int take_error(struct socket_end *s)
{
    lock_acquire(&s->pair->lock);
    int error = s->error;
    s->error = 0;
    lock_release(&s->pair->lock);
    return error;
}

/* Options that are only remembered: their bit, or 0. */
static uint32_t remembered_bit(int name)
{
    switch (name) {
    case SO_DEBUG:
    case SO_REUSEADDR:
    case SO_REUSEPORT:
    case SO_KEEPALIVE:
    case SO_OOBINLINE:
    case SO_BROADCAST:
    case SO_DONTROUTE:
    case SO_TIMESTAMP:
        return 1u << (name & 31);
    }
    return 0;
}

int socket_get_option(struct file *f, int name, void *value, size_t *size)
{
    struct socket_end *s = f->private_data;
    uint32_t bit = remembered_bit(name);
    if (bit)
        return get_int(value, size, (s->flags_set & bit) != 0);
    switch (name) {
    case SO_TYPE:
        return get_int(value, size, s->pair->type);
    case SO_DOMAIN:
        return get_int(value, size, AF_UNIX);
    case SO_PROTOCOL:
    case SO_ACCEPTCONN:
    case SO_PRIORITY:
    case SO_MARK:
        return get_int(value, size, 0);
    case SO_ERROR:
        return get_int(value, size, take_error(s));
    case SO_SNDBUF:
        return get_int(value, size, (int)s->send_size);
    case SO_RCVBUF:
        return get_int(value, size, (int)s->receive_size);
    case SO_RCVLOWAT:
    case SO_SNDLOWAT:
        return get_int(value, size, 1);
    case SO_PASSCRED:
        return get_int(value, size, s->pass_creds);
    case SO_PEERCRED:
        return get_bytes(value, size, &s->peer->owner, sizeof(s->peer->owner));
    case SO_RCVTIMEO:
        return get_timeout(value, size, s->receive_timeout_ns);
    case SO_SNDTIMEO:
        return get_timeout(value, size, s->send_timeout_ns);
    case SO_LINGER:
        return get_bytes(value, size, &(struct linux_linger){0}, sizeof(struct linux_linger));
    }
    return -ENOPROTOOPT;
}

static uint32_t buffer_size(int asked, uint32_t min)
{
    uint32_t size = asked < 0 || asked > SIZE_MAX_SYSCTL ? SIZE_MAX_SYSCTL : (uint32_t)asked;
    return size * 2 < min ? min : size * 2;
}

static int set_timeout(struct socket_end *s, int name, const void *value, size_t size)
{
    struct linux_timeval t;
    if (size < sizeof(t))
        return -EINVAL;
    memcpy(&t, value, sizeof(t));
    if (t.usec < 0 || t.usec >= 1000000)
        return -EDOM;
    uint64_t ns = 0;
    if (t.sec < 0)
        ns = 1; /* Linux: no waiting at all */
    else if (t.sec < INT32_MAX)
        ns = (uint64_t)t.sec * NS_PER_SECOND + (uint64_t)t.usec * 1000;
    lock_acquire(&s->pair->lock);
    *(name == SO_RCVTIMEO ? &s->receive_timeout_ns : &s->send_timeout_ns) = ns;
    lock_release(&s->pair->lock);
    return 0;
}

static int set_number(struct socket_end *s, int name, int number)
{
    uint32_t bit = remembered_bit(name);
    int r = 0;
    lock_acquire(&s->pair->lock);
    if (bit)
        s->flags_set = number ? s->flags_set | bit : s->flags_set & ~bit;
    else if (name == SO_PASSCRED)
        s->pass_creds = number;
    else if (name == SO_SNDBUF)
        s->send_size = buffer_size(number, SEND_SIZE_MIN);
    else if (name == SO_RCVBUF)
        s->receive_size = buffer_size(number, RECEIVE_SIZE_MIN);
    else if (name != SO_LINGER && name != SO_RCVLOWAT && name != SO_PRIORITY)
        r = -ENOPROTOOPT;
    lock_release(&s->pair->lock);
    return r;
}

int socket_set_option(struct file *f, int name, const void *value, size_t size)
{
    struct socket_end *s = f->private_data;
    int number;
    if (name == SO_RCVTIMEO || name == SO_SNDTIMEO)
        return set_timeout(s, name, value, size);
    if (size < sizeof(number))
        return -EINVAL;
    memcpy(&number, value, sizeof(number));
    return set_number(s, name, number);
}
