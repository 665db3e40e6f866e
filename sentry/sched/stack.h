/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks of fibers and of worker loops: slots of one reserved region, so that who is executing follows
 * from the stack pointer, without thread-local storage. Private to sentry/sched.
 *
 * A slot is SLOT bytes, aligned: the lower half is the guard, the upper half the stack. Its record lies
 * in a separate array, out of reach of a stack that overflows.
 */
#pragma once

#include "base/compiler.h"
#include "sentry/sched/fiber.h"
#include <bsd/sys/queue.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef BAILEY_SANITIZED /* sanitizers make frames larger */
#define STACK_SIZE KIB(256)
#else
#define STACK_SIZE KIB(64)
#endif
#define STACK_SLOT  (2 * STACK_SIZE)
#define STACK_COUNT 32768u

struct host_thread;

struct fiber_stack {
    SLIST_ENTRY(fiber_stack) free;
    struct host_thread *thread;    /* that runs on it now; meaningless while switched out */
    struct fiber *fiber;           /* NULL: a loop's stack */
    void (*epilogue)(void *arg);   /* of this activation, may be NULL */
    void *epilogue_arg;
    void *tsan_fiber;
};
SLIST_HEAD(fiber_stack_list, fiber_stack);

/* Reserves the region. Once. 0 or -errno. */
MUST_CHECK int stack_region_init(void);
/* A stack for `f`: the last one that was given back, else a new one. NULL when there is none; then, if `f`
 * is not NULL, it waits in the pool until stack_put() hands it out. Any thread. */
struct fiber_stack *stack_get(struct fiber *f);
/* Gives a stack back. Returns the fiber that has waited longest for one, for the caller to queue, or NULL. */
MUST_CHECK struct fiber *stack_put(struct fiber_stack *s);
bool stack_is_wanted(void); /* a fiber waits: caches give their stacks back */

/* The record of the stack that the caller executes on; NULL on a stack that is not of the region. */
struct fiber_stack *stack_here(void);
void *stack_bottom(const struct fiber_stack *s);
/* Builds the first frame: a switch to the result runs stack_main(s) on `s`. */
void *stack_prepare(struct fiber_stack *s);

/* fiber_asm.S */
void stack_switch(void **save_sp, void *to_sp);
void stack_begin(void);
/* sched.c: the first function on every stack; never returns. */
NORETURN void stack_main(struct fiber_stack *s);
