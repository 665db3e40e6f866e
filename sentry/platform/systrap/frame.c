/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The signal frame in a thread's slot: how the kernel laid it out, and how registers and extended state
 * move between it and the sentry. Runs on any host thread for the owner of a stopped thread.
 *
 * The slot is shared with the stub: every byte may change at any time, and pointers in it lead
 * anywhere. Each value is copied once into private memory and checked there. What is written here may
 * be overwritten by the guest's other threads, which then only misguide their own kernel entry.
 */
#include "sentry/platform/systrap/systrap.h"

#include "base/host.h"
#include <cpuid.h>
#include <errno.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

/* arch/x86/include/asm/sigframe.h: struct rt_sigframe, without the extended state. */
struct frame {
    uint64_t restorer;
    uint64_t uc_flags;
    uint64_t uc_link;
    uint64_t stack_base;
    uint64_t stack_flags;
    uint64_t stack_size;
    uint64_t regs[23];
    uint64_t fpstate;
    uint64_t reserved[8];
    uint64_t mask;
    uint32_t signo, error, code, pad;
    uint64_t fault_addr;
    uint64_t rest_of_info[13];
};
static_assert(sizeof(struct frame) == 440, "kernel ABI");
static_assert(offsetof(struct frame, regs) == 48 && offsetof(struct frame, mask) == 304, "ABI");
static_assert(offsetof(struct guest_regs, fs_base) == 23 * 8, "same order as the frame's");

#define UC_FLAGS 7 /* FP_XSTATE | SIGCONTEXT_SS | STRICT_RESTORE_SS */
#define SELECTORS_64 (0x33ULL | 0x2bULL << 48)

/* FXSAVE area and what the kernel keeps in its last 48 bytes. */
#define FX_SIZE 512
#define FX_MXCSR 24
#define FX_MXCSR_MASK 28
#define FX_SW 464
#define XSAVE_HEADER 512
#define XSAVE_MIN 576
#define MAGIC1 0x46505853U
#define MAGIC2 0x46505845U
#define XFEATURE_PKRU 9
#define PKRU_INITIAL 0x55555554U /* Linux's: no access by any key but 0, which PROT_EXEC alone relies on */

struct fx_software {
    uint32_t magic1;
    uint32_t extended_size;
    uint64_t xfeatures;
    uint32_t xstate_size;
    uint32_t pad[7];
};
static_assert(sizeof(struct fx_software) == 48, "kernel ABI");

/* The compiler may not read the source again after this. */
static void copy_once(void *dst, const void *src, size_t size)
{
    memcpy(dst, src, size);
    __asm__ volatile("" ::: "memory");
}

unsigned char *frame_slot(const struct systrap_thread *t)
{
    return t->space->mailbox + ((size_t)t->slot << STUB_SLOT_SHIFT);
}

static uint64_t slot_address(unsigned slot)
{
    return STUB_MAILBOX + ((uint64_t)slot << STUB_SLOT_SHIFT);
}

static struct systrap *platform_of(const struct systrap_thread *t)
{
    return t->worker->platform;
}

/* ---- places -------------------------------------------------------------------------------------- */

static uint64_t xstate_home(const struct systrap *p, unsigned slot)
{
    return (slot_address(slot) + STUB_SLOT_SIZE - p->base.info.xstate_size) & ~63ULL;
}

uint64_t frame_home(const struct systrap *p, unsigned slot)
{
    return ((xstate_home(p, slot) - sizeof(struct frame)) & ~15ULL) - 8;
}

bool frame_is_valid(const struct systrap_thread *t, uint64_t frame)
{
    uint64_t base = slot_address(t->slot);
    return frame >= base + STUB_STACK_OFFSET &&
           frame <= base + STUB_SLOT_SIZE - sizeof(struct frame) && (frame & 7) == 0;
}

/* SAFETY: t->frame passed frame_is_valid(), so the whole struct lies in the slot. */
static unsigned char *frame_bytes(const struct systrap_thread *t)
{
    return frame_slot(t) + (t->frame - slot_address(t->slot));
}

/* The extended state that the frame points to; NULL if that is not within the slot. */
static unsigned char *xstate_bytes(const struct systrap_thread *t)
{
    uint64_t pointer;
    copy_once(&pointer, frame_bytes(t) + offsetof(struct frame, fpstate), sizeof pointer);
    uint64_t base = slot_address(t->slot);
    uint64_t size = platform_of(t)->base.info.xstate_size;
    if (pointer < base + STUB_STACK_OFFSET || pointer > base + STUB_SLOT_SIZE - size ||
        (pointer & 63) != 0)
        return NULL;
    return frame_slot(t) + (pointer - base);
}

/* ---- registers ----------------------------------------------------------------------------------- */

/* hot */
void frame_load(struct systrap_thread *t, int signo, struct platform_event *ret)
{
    const unsigned char *bytes = frame_bytes(t);
    copy_once(&t->base.regs, bytes + offsetof(struct frame, regs), 23 * sizeof(uint64_t));
    *ret = (struct platform_event){.kind = PLATFORM_EVENT_SYSCALL};
    if (signo == SIGSYS)
        return;
    if (signo == STUB_KICK_SIGNAL) {
        ret->kind = PLATFORM_EVENT_KICK;
        return;
    }
    uint32_t code;
    copy_once(&code, bytes + offsetof(struct frame, code), sizeof code);
    copy_once(&ret->addr.va, bytes + offsetof(struct frame, fault_addr), sizeof ret->addr.va);
    ret->kind = PLATFORM_EVENT_FAULT;
    ret->signo = signo;
    ret->code = (int)code;
    if (signo == SIGSEGV && t->base.regs.trapno == 14) {
        ret->is_write = (t->base.regs.err & 2) != 0;
        ret->is_exec = (t->base.regs.err & 16) != 0;
    }
}

/* wrfsbase faults on an address that is not canonical, and a fault in the stub kills it. */
static uint64_t canonical(uint64_t base)
{
    uint64_t high = base >> 47;
    return high == 0 || high == 0x1ffff ? base : 0;
}

/* hot */
bool frame_store(struct systrap_thread *t, bool always_bases)
{
    struct guest_regs *regs = &t->base.regs;
    if ((regs->csgsfs & 0xffff) == 0) /* a space's first registers are all zero */
        regs->csgsfs = SELECTORS_64;
    memcpy(frame_bytes(t) + offsetof(struct frame, regs), regs, 23 * sizeof(uint64_t));
    if (!always_bases && regs->fs_base == t->host_fs && regs->gs_base == t->host_gs)
        return false;
    regs->fs_base = t->host_fs = canonical(regs->fs_base);
    regs->gs_base = t->host_gs = canonical(regs->gs_base);
    memcpy(frame_slot(t) + STUB_HDR_FS, &regs->fs_base, sizeof regs->fs_base);
    memcpy(frame_slot(t) + STUB_HDR_GS, &regs->gs_base, sizeof regs->gs_base);
    return true;
}

/* ---- extended state ------------------------------------------------------------------------------ */

static void write_trailer(const struct systrap *p, unsigned char *xstate)
{
    struct fx_software sw = {
        .magic1 = MAGIC1,
        .extended_size = (uint32_t)p->base.info.xstate_size,
        .xfeatures = p->xfeatures,
        .xstate_size = p->xstate_size,
    };
    memcpy(xstate + FX_SW, &sw, sizeof sw);
    uint32_t magic2 = MAGIC2;
    memcpy(xstate + p->xstate_size, &magic2, sizeof magic2);
}

static void write_initial(const struct systrap *p, unsigned char *xstate)
{
    uint16_t control = 0x37f;
    uint32_t mxcsr = 0x1f80;
    memset(xstate, 0, p->xstate_size);
    memcpy(xstate, &control, sizeof control);
    memcpy(xstate + FX_MXCSR, &mxcsr, sizeof mxcsr);
    if (p->pkru_offset != 0) {
        uint32_t pkru = PKRU_INITIAL;
        uint64_t present = 1ULL << XFEATURE_PKRU;
        memcpy(xstate + p->pkru_offset, &pkru, sizeof pkru);
        memcpy(xstate + XSAVE_HEADER, &present, sizeof present);
    }
    write_trailer(p, xstate);
}

/* Whether XRSTOR takes this header: known features, standard format, nothing reserved; MXCSR too. */
static bool xstate_is_sound(const struct systrap *p, const unsigned char *fx_and_header)
{
    uint32_t mxcsr;
    uint64_t header[8];
    memcpy(&mxcsr, fx_and_header + FX_MXCSR, sizeof mxcsr);
    memcpy(header, fx_and_header + XSAVE_HEADER, sizeof header);
    if ((mxcsr & ~p->mxcsr_mask) != 0 || (header[0] & ~p->xfeatures) != 0)
        return false;
    for (size_t i = 1; i < ARRAY_COUNT(header); i++)
        if (header[i] != 0)
            return false;
    return true;
}

/* `src` is private or `from`'s slot; what it brings is made sound after the copy, in private memory. */
static void write_xstate(const struct systrap *p, unsigned char *xstate, const unsigned char *src)
{
    unsigned char head[XSAVE_MIN];
    copy_once(head, src, sizeof head);
    if (!xstate_is_sound(p, head)) {
        write_initial(p, xstate);
        return;
    }
    memcpy(xstate, head, sizeof head);
    memcpy(xstate + XSAVE_MIN, src + XSAVE_MIN, p->xstate_size - XSAVE_MIN);
    write_trailer(p, xstate);
}

ssize_t frame_read_xstate(struct platform_thread *thread, void *bytes, size_t size)
{
    struct systrap_thread *t = container_of(thread, struct systrap_thread, base);
    const struct systrap *p = platform_of(t);
    int r = thread_fetch(thread);
    if (r != 0)
        return r;
    const unsigned char *xstate = xstate_bytes(t);
    if (xstate == NULL)
        return -EFAULT;
    size = size < p->base.info.xstate_size ? size : p->base.info.xstate_size;
    copy_once(bytes, xstate, size);
    return (ssize_t)size;
}

int frame_write_xstate(struct platform_thread *thread, const void *bytes, size_t size)
{
    struct systrap_thread *t = container_of(thread, struct systrap_thread, base);
    const struct systrap *p = platform_of(t);
    int r = thread_fetch(thread);
    if (r != 0)
        return r;
    unsigned char *xstate = xstate_bytes(t);
    if (xstate == NULL)
        return -EFAULT;
    if (bytes == NULL) {
        write_initial(p, xstate);
        return 0;
    }
    if (size == FX_SIZE) { /* the legacy part alone: the rest becomes initial */
        uint32_t mxcsr;
        memcpy(&mxcsr, (const unsigned char *)bytes + FX_MXCSR, sizeof mxcsr);
        if ((mxcsr & ~p->mxcsr_mask) != 0)
            return -EINVAL;
        write_initial(p, xstate);
        memcpy(xstate, bytes, FX_SW);
        uint64_t present;
        memcpy(&present, xstate + XSAVE_HEADER, sizeof present);
        present = (present & 1ULL << XFEATURE_PKRU) | 3;
        memcpy(xstate + XSAVE_HEADER, &present, sizeof present);
        return 0;
    }
    if (size < p->xstate_size || !xstate_is_sound(p, bytes))
        return -EINVAL;
    write_xstate(p, xstate, bytes);
    return 0;
}

/* ---- whole frames -------------------------------------------------------------------------------- */

void frame_build(struct systrap_thread *t, const struct systrap_thread *from)
{
    const struct systrap *p = platform_of(t);
    t->frame = frame_home(p, t->slot);
    struct frame f = {
        .uc_flags = UC_FLAGS,
        .stack_base = slot_address(t->slot) + STUB_STACK_OFFSET,
        .stack_size = STUB_SLOT_SIZE - STUB_STACK_OFFSET,
        .fpstate = xstate_home(p, t->slot),
    };
    memcpy(frame_bytes(t), &f, sizeof f);
    unsigned char *xstate = frame_slot(t) + (f.fpstate - slot_address(t->slot));
    const unsigned char *source = from != NULL ? xstate_bytes(from) : NULL;
    if (source != NULL)
        write_xstate(p, xstate, source);
    else
        write_initial(p, xstate);
}

/* ---- what the kernel saves here ------------------------------------------------------------------ */

static struct fx_software g_probed; /* written by the handler below, once, at start-up */
static uint32_t g_probed_mxcsr_mask;

static void on_probe(int signo, siginfo_t *info, void *context)
{
    (void)signo, (void)info;
    const ucontext_t *uc = context;
    const unsigned char *xstate = (const unsigned char *)uc->uc_mcontext.fpregs;
    memcpy(&g_probed, xstate + FX_SW, sizeof g_probed);
    memcpy(&g_probed_mxcsr_mask, xstate + FX_MXCSR_MASK, sizeof g_probed_mxcsr_mask);
}

/* Takes one signal and looks at the frame. Before the second thread. */
int frame_probe_xstate(struct systrap *p)
{
    struct sigaction action = {.sa_sigaction = on_probe, .sa_flags = SA_SIGINFO};
    struct sigaction before;
    sigset_t only, mask;
    sigemptyset(&action.sa_mask);
    sigemptyset(&only);
    sigaddset(&only, SIGUSR2);
    if (sigaction(SIGUSR2, &action, &before) != 0)
        return -EINVAL;
    sigprocmask(SIG_UNBLOCK, &only, &mask);
    raise(SIGUSR2);
    sigprocmask(SIG_SETMASK, &mask, NULL);
    sigaction(SIGUSR2, &before, NULL);
    if (g_probed.magic1 != MAGIC1 || g_probed.xstate_size < XSAVE_MIN ||
        g_probed.extended_size != g_probed.xstate_size + sizeof(uint32_t) ||
        g_probed.extended_size > GUEST_XSTATE_MAX)
        return -ENOTSUP;
    p->xfeatures = g_probed.xfeatures;
    p->xstate_size = g_probed.xstate_size;
    p->mxcsr_mask = g_probed_mxcsr_mask != 0 ? g_probed_mxcsr_mask : 0xffbf;
    p->base.info.xstate_size = g_probed.extended_size;
    unsigned size, offset, unused;
    if ((p->xfeatures & 1ULL << XFEATURE_PKRU) != 0 &&
        __get_cpuid_count(0xd, XFEATURE_PKRU, &size, &offset, &unused, &unused) != 0 && size >= 4 &&
        offset >= XSAVE_MIN && offset + 4 <= p->xstate_size)
        p->pkru_offset = offset;
    return 0;
}
