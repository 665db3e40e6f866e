/* SPDX-License-Identifier: Apache-2.0 */
/* poll(2), epoll(7), timerfd and signalfd structures of x86-64. Sources: asm-generic/poll.h,
 * linux/eventpoll.h, linux/time.h, linux/signalfd.h. */
#pragma once

#include "abi/stat.h"
#include "base/compiler.h"
#include <assert.h>
#include <stdint.h>

struct linux_pollfd {
    int32_t fd;
    int16_t events, revents;
};
static_assert(sizeof(struct linux_pollfd) == 8, "pollfd");

struct PACKED linux_epoll_event {
    uint32_t events;
    uint64_t data;
};
static_assert(sizeof(struct linux_epoll_event) == 12, "epoll_event");

struct linux_itimerspec {
    struct linux_timespec interval, value;
};
static_assert(sizeof(struct linux_itimerspec) == 32, "itimerspec");

struct linux_signalfd_siginfo {
    uint32_t signo;
    int32_t error, code;
    uint32_t pid, uid;
    int32_t fd;
    uint32_t tid, band, overrun, trapno;
    int32_t status, value_int;
    uint64_t value_ptr, utime, stime, addr;
    uint16_t addr_lsb, pad2;
    int32_t syscall;
    uint64_t call_addr;
    uint32_t arch;
    uint8_t pad[28];
};
static_assert(sizeof(struct linux_signalfd_siginfo) == 128, "signalfd_siginfo");

/* The last argument of pselect6(2). */
struct linux_sigset_argument {
    uint64_t mask; /* guest address */
    uint64_t size;
};
static_assert(sizeof(struct linux_sigset_argument) == 16, "pselect6's sigset argument");
