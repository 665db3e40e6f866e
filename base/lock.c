/* SPDX-License-Identifier: Apache-2.0 */
/*
 * struct lock on a pthread mutex: uncontended it makes no system call, contended it sleeps in a futex.
 * The calls return their error instead of setting errno; any error is our own bug.
 */
#include "base/lock.h"

#include "base/log.h"

/* #syscalls futex: contended locks */

void lock_init(struct lock *l)
{
    ASSERT(pthread_mutex_init(&l->mutex, NULL) == 0);
    l->holder_file = NULL;
    l->holder_line = 0;
}

void lock_fini(struct lock *l)
{
    ASSERT(pthread_mutex_destroy(&l->mutex) == 0);
}

NO_LOCK_ANALYSIS void lock_acquire_at(struct lock *l, const char *file, int line)
{
    ASSERT(pthread_mutex_lock(&l->mutex) == 0);
    __atomic_store_n(&l->holder_line, line, __ATOMIC_RELAXED);
    __atomic_store_n(&l->holder_file, file, __ATOMIC_RELAXED);
}

NO_LOCK_ANALYSIS void lock_release(struct lock *l)
{
    __atomic_store_n(&l->holder_file, NULL, __ATOMIC_RELAXED);
    ASSERT(pthread_mutex_unlock(&l->mutex) == 0);
}

/* Finds a lock that nobody holds; that it is this thread's is what clang's analysis checks. */
void lock_assert_held(struct lock *l)
{
    ASSERT(__atomic_load_n(&l->holder_file, __ATOMIC_RELAXED) != NULL);
}
