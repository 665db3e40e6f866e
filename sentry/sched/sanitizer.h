/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What AddressSanitizer and ThreadSanitizer have to know about a switch of stacks; nothing in other
 * builds. Private to sentry/sched.
 */
#pragma once

#include <stddef.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SWITCH_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define SWITCH_TSAN 1
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define SWITCH_ASAN 1
#endif
#ifdef __SANITIZE_THREAD__
#define SWITCH_TSAN 1
#endif

#ifdef SWITCH_ASAN
void __sanitizer_start_switch_fiber(void **fake_stack_save, const void *bottom, size_t size);
void __sanitizer_finish_switch_fiber(void *fake_stack, const void **bottom_old, size_t *size_old);
#else
#define __sanitizer_start_switch_fiber(save, bottom, size) ((void)sizeof(save))
#define __sanitizer_finish_switch_fiber(fake, bottom, size) ((void)sizeof(fake))
#endif

#ifdef SWITCH_TSAN
void *__tsan_get_current_fiber(void);
void *__tsan_create_fiber(unsigned flags);
void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#else
#define __tsan_get_current_fiber()           NULL
#define __tsan_create_fiber(flags)           NULL
#define __tsan_switch_to_fiber(fiber, flags) ((void)sizeof(fiber))
#endif

/* A function that enters on one stack and leaves on another must not be instrumented. */
#define SWITCHES_STACKS __attribute__((noinline, no_sanitize("address"), no_sanitize("thread")))
