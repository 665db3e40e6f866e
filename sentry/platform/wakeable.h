/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A blocking host call that another host thread can end, without a window in which the wake-up is lost.
 *
 * The waiter's flag is tested in the same few instructions that enter the kernel. WAKEABLE_SIGNAL's
 * handler looks where it interrupted its thread: between the test and the call it moves the thread
 * behind the call, and inside the kernel the signal itself ends the call.
 */
#pragma once

#include "base/compiler.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define WAKEABLE_SIGNAL 40 /* sent by us to our own threads only */

struct wakeable {
    pid_t tgid; /* immutable after init: the thread that waits */
    pid_t tid;
    _Atomic uint32_t woken;   /* set by wakers, taken by wakeable_take() */
    _Atomic uint32_t waiting; /* the thread is in or close to its call */
};

/* Installs the handler: once, before the second thread. 0 or -errno. */
MUST_CHECK int wakeable_install(void);
/* Makes the calling host thread the one that waits on `w`. */
void wakeable_init(struct wakeable *w);
/* Makes host call `nr` unless woken: its result, -EINTR when woken (before or meanwhile). Only the
 * thread of wakeable_init(). The flag stays set until wakeable_take(). */
long wakeable_call(struct wakeable *w, long nr, long a0, long a1, long a2, long a3);
/* Ends the current or next wakeable_call(). Any host thread; never blocks, never lost. */
void wakeable_wake(struct wakeable *w);
/* Whether somebody woke it since the last take. */
bool wakeable_take(struct wakeable *w);
