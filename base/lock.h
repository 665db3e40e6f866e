/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The short lock: protects a few fields for a few instructions. It is never held across a fiber's
 * park, a blocking host call or a copy from or to guest memory; a lock that must be is the fiber
 * mutex of sentry/sched. Debug builds record the holder.
 */
#pragma once

#include "base/compiler.h"
#include <pthread.h>
#include <stdbool.h>

struct CAPABILITY("mutex") lock {
    pthread_mutex_t mutex;
    const char *holder_file; /* debug builds: where it was taken */
    int holder_line;
};

#define LOCK_INITIALIZER {.mutex = PTHREAD_MUTEX_INITIALIZER}

void lock_init(struct lock *l);
void lock_fini(struct lock *l);
void lock_acquire_at(struct lock *l, const char *file, int line) ACQUIRES(l);
void lock_release(struct lock *l) RELEASES(l);
void lock_assert_held(struct lock *l); /* debug builds only */
#define lock_acquire(l) lock_acquire_at(l, __FILE__, __LINE__)
