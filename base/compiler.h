/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compiler attributes and the few macros that every process uses. No code.
 */
#pragma once

#include <stddef.h>

#define MUST_CHECK __attribute__((warn_unused_result))
#define NORETURN __attribute__((noreturn))
#define PRINTF_LIKE(fmt, args) __attribute__((format(printf, fmt, args)))
#define PACKED __attribute__((packed))
#define CACHE_ALIGNED __attribute__((aligned(64)))
#define UNUSED __attribute__((unused))
#define CLEANUP(fn) __attribute__((cleanup(fn)))

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)

#define ARRAY_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define container_of(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

#define KIB(n) ((size_t)(n) << 10)
#define MIB(n) ((size_t)(n) << 20)
#define GIB(n) ((size_t)(n) << 30)

#define PAGE_SIZE 4096UL
#define PAGE_MASK (~(PAGE_SIZE - 1))
#define PAGE_DOWN(x) ((x) & PAGE_MASK)
#define PAGE_UP(x) (((x) + PAGE_SIZE - 1) & PAGE_MASK)

/* clang's -Wthread-safety; gcc ignores them. `guarded_by` does not compile in C with clang 14. */
#ifdef __clang__
#define CAPABILITY(name) __attribute__((capability(name)))
#define ACQUIRES(...) __attribute__((acquire_capability(__VA_ARGS__)))
#define RELEASES(...) __attribute__((release_capability(__VA_ARGS__)))
#define TRY_ACQUIRES(...) __attribute__((try_acquire_capability(__VA_ARGS__)))
#define REQUIRES(...) __attribute__((requires_capability(__VA_ARGS__)))
#define NO_LOCK_ANALYSIS __attribute__((no_thread_safety_analysis))
#else
#define CAPABILITY(name)
#define ACQUIRES(...)
#define RELEASES(...)
#define TRY_ACQUIRES(...)
#define REQUIRES(...)
#define NO_LOCK_ANALYSIS
#endif
