/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Extended state between the kernel's regset (NT_X86_XSTATE: a bare XSAVE area in standard format) and
 * what platform.h promises: the same area as in a signal frame, with the software words that describe
 * it and FP_XSTATE_MAGIC2 behind it, and without the features that guests don't have (AMX). Tracer
 * thread only. What is written comes from a guest's signal frame: nothing in it is believed.
 */
#include "sentry/platform/ptrace/ptrace_platform.h"

#include "base/host.h"
#include <cpuid.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/uio.h>

#define LEGACY_SIZE 512u
#define HEADER_SIZE 64u
#define MXCSR_OFFSET 24
#define SOFTWARE_OFFSET 464
#define FEATURES_OFFSET 512 /* XSTATE_BV; XCOMP_BV and six reserved words follow */
#define MAGIC1 0x46505853u  /* FP_XSTATE_MAGIC1, 2 of asm/sigcontext.h */
#define MAGIC2 0x46505845u
#define FEATURE_FP_SSE 3u
#define FEATURE_PKRU 9
#define FEATURES_AMX (3ull << 17)
#define INITIAL_FCW 0x37f
#define INITIAL_MXCSR 0x1f80
#define INITIAL_PKRU 0x55555554 /* the kernel's: key 0 only */

struct software_words { /* struct _fpx_sw_bytes */
    uint32_t magic1;
    uint32_t extended_size;
    uint64_t features;
    uint32_t xstate_size;
    uint32_t padding[7];
};
_Static_assert(sizeof(struct software_words) == LEGACY_SIZE - SOFTWARE_OFFSET, "asm/sigcontext.h");

static uint32_t component_end(unsigned feature)
{
    uint32_t size, offset, ecx, edx;
    if (!__get_cpuid_count(0xd, feature, &size, &offset, &ecx, &edx) || (ecx & 1) != 0)
        return 0; /* supervisor state is not in the standard format */
    return offset + size;
}

static uint32_t pkru_offset(const struct tracer *p)
{
    uint32_t size, offset, ecx, edx;
    if ((p->xstate_mask >> FEATURE_PKRU & 1) == 0 ||
        !__get_cpuid_count(0xd, FEATURE_PKRU, &size, &offset, &ecx, &edx))
        return 0;
    return offset;
}

/* Fetches the whole regset into p->xstate: its size or -errno. */
static ssize_t fetch(struct tracee *t)
{
    struct tracer *p = t->tracer;
    struct iovec all = {.iov_base = p->xstate, .iov_len = sizeof(p->xstate)};
    if (t->gone)
        return -ESRCH;
    long r = tracee_request(t, PTRACE_GETREGSET, NT_X86_XSTATE, &all);
    return r < 0 ? r : (ssize_t)all.iov_len;
}

int tracer_xstate_probe(struct tracer *p)
{
    ssize_t size = fetch(p->template);
    if (size < (ssize_t)(LEGACY_SIZE + HEADER_SIZE))
        return -ENOSYS;
    /* The kernel puts XCR0 into the first software word. */
    memcpy(&p->xstate_mask, p->xstate + SOFTWARE_OFFSET, sizeof(p->xstate_mask));
    p->xstate_mask &= ~FEATURES_AMX;
    p->xstate_size = LEGACY_SIZE + HEADER_SIZE;
    for (unsigned feature = 2; feature < 63; feature++) {
        if ((p->xstate_mask >> feature & 1) == 0)
            continue;
        uint32_t end = component_end(feature);
        if (end > p->xstate_size)
            p->xstate_size = end;
    }
    uint32_t with_magic = p->xstate_size + (uint32_t)sizeof(uint32_t);
    if ((p->xstate_mask & FEATURE_FP_SSE) != FEATURE_FP_SSE || with_magic > GUEST_XSTATE_MAX)
        return -ENOSYS;
    p->platform.info.xstate_size = with_magic;
    return 0;
}

ssize_t tracee_read_xstate(struct platform_thread *thread, void *bytes, size_t size)
{
    struct tracee *t = container_of(thread, struct tracee, thread);
    struct tracer *p = t->tracer;
    ssize_t r = fetch(t);
    if (r < 0)
        return r;
    uint64_t features;
    memcpy(&features, p->xstate + FEATURES_OFFSET, sizeof(features));
    /* The kernel leaves FP and SSE bits out while they are in their initial state, but fills the area;
     * in a signal frame they are always there. */
    features = (features & p->xstate_mask) | FEATURE_FP_SSE;
    memcpy(p->xstate + FEATURES_OFFSET, &features, sizeof(features));
    struct software_words words = {.magic1 = MAGIC1,
                                   .extended_size = p->xstate_size + (uint32_t)sizeof(uint32_t),
                                   .features = p->xstate_mask,
                                   .xstate_size = p->xstate_size};
    memcpy(p->xstate + SOFTWARE_OFFSET, &words, sizeof(words));
    uint32_t magic2 = MAGIC2;
    memcpy(p->xstate + p->xstate_size, &magic2, sizeof(magic2));
    size_t count = size < p->platform.info.xstate_size ? size : p->platform.info.xstate_size;
    memcpy(bytes, p->xstate, count);
    return (ssize_t)count;
}

static ssize_t store(struct tracee *t, size_t size)
{
    struct iovec all = {.iov_base = t->tracer->xstate, .iov_len = size};
    return tracee_request(t, PTRACE_SETREGSET, NT_X86_XSTATE, &all);
}

/* Makes p->xstate the initial state. */
static void fill_initial(struct tracer *p)
{
    uint16_t fcw = INITIAL_FCW;
    uint32_t mxcsr = INITIAL_MXCSR;
    uint64_t features = FEATURE_FP_SSE;
    memset(p->xstate, 0, sizeof(p->xstate));
    memcpy(p->xstate, &fcw, sizeof(fcw));
    memcpy(p->xstate + MXCSR_OFFSET, &mxcsr, sizeof(mxcsr));
    uint32_t offset = pkru_offset(p);
    if (offset != 0) {
        uint32_t pkru = INITIAL_PKRU;
        memcpy(p->xstate + offset, &pkru, sizeof(pkru));
        features |= 1ull << FEATURE_PKRU;
    }
    memcpy(p->xstate + FEATURES_OFFSET, &features, sizeof(features));
}

/* Whether the copy in p->xstate describes itself as an extended one, by the kernel's own rules. */
static bool is_extended(const struct tracer *p, size_t size)
{
    struct software_words words;
    uint32_t magic2;
    memcpy(&words, p->xstate + SOFTWARE_OFFSET, sizeof(words));
    if (size < p->platform.info.xstate_size || words.magic1 != MAGIC1 ||
        words.xstate_size != p->xstate_size ||
        words.extended_size != p->xstate_size + sizeof(magic2))
        return false;
    memcpy(&magic2, p->xstate + p->xstate_size, sizeof(magic2));
    return magic2 == MAGIC2;
}

/* Takes the copy in p->xstate apart into what the kernel accepts. */
static int sanitise(struct tracer *p, size_t size)
{
    uint64_t header[HEADER_SIZE / sizeof(uint64_t)];
    bool extended = is_extended(p, size);
    memcpy(header, p->xstate + LEGACY_SIZE, sizeof(header));
    if (!extended) {
        memset(header, 0, sizeof(header));
        header[0] = FEATURE_FP_SSE;
        memset(p->xstate + LEGACY_SIZE, 0, sizeof(p->xstate) - LEGACY_SIZE);
    }
    for (size_t i = 1; i < ARRAY_COUNT(header); i++) {
        if (header[i] != 0)
            return -EINVAL; /* compacted format or reserved bits: XRSTOR faults on them */
    }
    header[0] &= p->xstate_mask;
    memcpy(p->xstate + LEGACY_SIZE, header, sizeof(header));
    memset(p->xstate + SOFTWARE_OFFSET, 0, sizeof(struct software_words));
    size_t tail = extended ? p->xstate_size : LEGACY_SIZE + HEADER_SIZE;
    memset(p->xstate + tail, 0, sizeof(p->xstate) - tail);
    return 0;
}

int tracee_write_xstate(struct platform_thread *thread, const void *bytes, size_t size)
{
    struct tracee *t = container_of(thread, struct tracee, thread);
    struct tracer *p = t->tracer;
    ssize_t whole = fetch(t);
    if (whole < 0)
        return (int)whole;
    if (bytes == NULL) {
        fill_initial(p);
    } else {
        if (size < LEGACY_SIZE)
            return -EINVAL;
        size_t count = size < p->platform.info.xstate_size ? size : p->platform.info.xstate_size;
        memset(p->xstate, 0, sizeof(p->xstate));
        memcpy(p->xstate, bytes, count);
        int r = sanitise(p, count);
        if (r != 0)
            return r;
    }
    ssize_t r = store(t, (size_t)whole);
    if (r == -ESRCH)
        return -ESRCH;
    return r == 0 ? 0 : -EINVAL; /* MXCSR bits that the CPU has not */
}
