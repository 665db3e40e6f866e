/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How a template gets rid of everything: the only C of the stub. Runs once in each template, right
 * after execveat and before any guest exists, freestanding, with the kernel's initial stack; it ends in
 * stub_finish() (entry.S), which unmaps that stack and installs the filter last.
 *
 * Any failure is ud2: the sentry sees a dead template and says so.
 */
#include "stub_abi.h"

#include <asm/unistd_64.h>
#include <linux/auxvec.h>
#include <linux/capability.h>
#include <linux/prctl.h>
#include <linux/resource.h>
#include <linux/signal.h>
#include <stdbool.h>
#include <stddef.h>

#define PAGE 4096UL
#define VDSO_PAGES_MAX 32UL
#define ENOMEM_RESULT (-12)
#define SA_RESTORER_FLAG 0x04000000UL

struct kernel_sigaction {
    void (*handler)(void);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

#pragma GCC visibility push(hidden) /* reached without a table of offsets */
extern const unsigned long stub_light_filter[2]; /* struct sock_fprog */
extern const unsigned long stub_open_filter[2];
void stub_handler(void);
__attribute__((noreturn)) void stub_finish(unsigned long vvar, const void *filter,
                                           unsigned long findings, unsigned long vvar_size,
                                           unsigned long vdso_size);
__attribute__((noreturn)) void stub_start(const unsigned long *sp);
#pragma GCC visibility pop

/* SAFETY: raw system calls; no guest memory exists yet. */
static long call6(long nr, unsigned long a, unsigned long b, unsigned long c, unsigned long d,
                  unsigned long e, unsigned long f)
{
    long result;
    register unsigned long r10 __asm__("r10") = d;
    register unsigned long r8 __asm__("r8") = e;
    register unsigned long r9 __asm__("r9") = f;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(nr), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
}
#define call0(nr) call6(nr, 0, 0, 0, 0, 0, 0)
#define call1(nr, a) call6(nr, (unsigned long)(a), 0, 0, 0, 0, 0)
#define call2(nr, a, b) call6(nr, (unsigned long)(a), (unsigned long)(b), 0, 0, 0, 0)
#define call4(nr, a, b, c, d)                                                                      \
    call6(nr, (unsigned long)(a), (unsigned long)(b), (unsigned long)(c), (unsigned long)(d), 0, 0)

__attribute__((noreturn)) static void die(void)
{
    for (;;)
        __asm__ volatile("ud2");
}

static void must(bool ok)
{
    if (!ok)
        die();
}

static unsigned long auxv_value(const unsigned long *sp, unsigned long type)
{
    const unsigned long *p = sp + 1 + sp[0] + 1; /* argc, argv, NULL */
    while (*p != 0)
        p++;
    for (p++; p[0] != AT_NULL; p += 2)
        if (p[0] == type)
            return p[1];
    return 0;
}

/* ---- vvar and vDSO ------------------------------------------------------------------------------ */

static bool is_mapped(unsigned long page)
{
    unsigned char in_core;
    return call4(__NR_mincore, page, PAGE, &in_core, 0) != ENOMEM_RESULT;
}

/* Moves one mapping that starts at `from`, whose size only the kernel knows: it refuses to split
 * these, so the first size that it accepts is the right one. Its size, or 0. */
static unsigned long move_mapping(unsigned long from, unsigned long size_max, unsigned long to)
{
    for (unsigned long size = PAGE; size <= size_max; size += PAGE) {
        long r = call6(__NR_mremap, from, size, size, 3 /* MAYMOVE | FIXED */, to, 0);
        if (r >= 0)
            return size;
    }
    return 0;
}

struct vdso_layout {
    unsigned long vvar_size;
    unsigned long vdso_size;
};

static struct vdso_layout move_vdso(const unsigned long *sp, unsigned long target)
{
    struct vdso_layout layout = {0, 0};
    unsigned long vdso = auxv_value(sp, AT_SYSINFO_EHDR);
    if (vdso == 0)
        return layout;
    /* vvar's mappings lie right below; the stack may lie below them. */
    unsigned long floor = vdso - VDSO_PAGES_MAX * PAGE;
    unsigned long stack_top = (auxv_value(sp, AT_EXECFN) + 2 * PAGE) & ~(PAGE - 1);
    if (stack_top <= vdso && stack_top > floor)
        floor = stack_top;
    unsigned long vvar = vdso;
    while (vvar > floor && is_mapped(vvar - PAGE))
        vvar -= PAGE;
    while (vvar + layout.vvar_size < vdso) {
        unsigned long at = vvar + layout.vvar_size;
        unsigned long moved = move_mapping(at, vdso - at, target + layout.vvar_size);
        must(moved != 0);
        layout.vvar_size += moved;
    }
    layout.vdso_size = move_mapping(vdso, VDSO_PAGES_MAX * PAGE, target + layout.vvar_size);
    must(layout.vdso_size != 0);
    return layout;
}

/* ---- rights -------------------------------------------------------------------------------------- */

static void drop_rights(void)
{
    must(call6(__NR_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0, 0) == 0);
    call6(__NR_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0, 0);
    /* Without CAP_SETPCAP this fails, and with no_new_privs nothing can be gained then. */
    for (unsigned long cap = 0; cap < 64; cap++)
        call6(__NR_prctl, PR_CAPBSET_DROP, cap, 0, 0, 0, 0);
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    struct __user_cap_data_struct none[2] = {{0, 0, 0}, {0, 0, 0}};
    must(call2(__NR_capset, &header, none) == 0);
    /* The sentry copies with process_vm_*: after the last change of credentials. */
    must(call6(__NR_prctl, PR_SET_DUMPABLE, 1, 0, 0, 0, 0) == 0);
}

static void set_limits(void)
{
    call0(__NR_setsid); /* fails only where it is a session leader already */
    /* 1, not 0: a core pattern that is a pipe ignores 0 and skips 1. */
    struct rlimit64 core = {.rlim_cur = 1, .rlim_max = 1};
    must(call4(__NR_prlimit64, 0, RLIMIT_CORE, &core, 0) == 0);
    struct rlimit64 files = {.rlim_cur = 1, .rlim_max = 1};
    must(call4(__NR_prlimit64, 0, RLIMIT_NOFILE, &files, 0) == 0);
    call6(__NR_prctl, PR_SET_NAME, (unsigned long)"bailey-stub", 0, 0, 0, 0);
}

static void install_handlers(void)
{
    static const unsigned char signals[] = {SIGSYS, SIGSEGV, SIGBUS, SIGILL,
                                            SIGFPE, SIGTRAP, STUB_KICK_SIGNAL};
    unsigned long all = ~0UL;
    must(call4(__NR_rt_sigprocmask, SIG_SETMASK, &all, 0, sizeof all) == 0);
    struct kernel_sigaction action = {
        .handler = stub_handler,
        /* RESTART: a kick may come while a notified call waits to be received. */
        .flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART | SA_RESTORER_FLAG,
        .restorer = stub_handler, /* never returned to */
        .mask = all,
    };
    for (size_t i = 0; i < sizeof signals; i++)
        must(call4(__NR_rt_sigaction, signals[i], &action, 0, sizeof all) == 0);
}

static void close_everything(void)
{
    if (call4(__NR_close_range, 0, ~0U, 0, 0) == 0)
        return;
    for (unsigned long fd = 0; fd < 65536; fd++)
        call1(__NR_close, fd);
}

void stub_start(const unsigned long *sp)
{
    struct stub_params params;
    must(call4(__NR_pread64, 0, &params, sizeof params, 0) == (long)sizeof params);
    close_everything();
    set_limits();
    drop_rights();
    install_handlers();
    struct vdso_layout layout = move_vdso(sp, params.vdso_target);
    stub_finish(params.vdso_target, params.open_filter ? stub_open_filter : stub_light_filter,
                params.findings, layout.vvar_size, layout.vdso_size);
}
