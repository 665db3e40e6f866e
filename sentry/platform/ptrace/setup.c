/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Start of the template: a process that runs the one-page stub, with nothing mapped but that page and
 * vvar and vDSO, no descriptor, no right, and a seccomp filter. Every space is a fork of it. Runs once,
 * on the tracer thread, before the sentry's second thread and before its own filter. The template has
 * run no guest code, so what it holds is trusted here.
 */
#include "sentry/platform/ptrace/ptrace_platform.h"

#include "base/host.h"
#include "base/log.h"
#include "sentry/platform/stub_range.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#define VDSO_PAGES_MAX 64 /* pages of vvar or vDSO: more than any kernel has */
#define STACK_WORDS 128   /* of the initial stack that are looked at for the auxiliary vector */
#define X32_BIT 0x40000000u
#define SYS_MSEAL 462
#define LAST_CAPABILITY 63

/* ---- the child, up to its execveat -------------------------------------------------------------- */

/* The calls from here to execveat are made before the sentry's filter and need no declaration. */
static void limit_child(unsigned resource, uint64_t value)
{
    struct rlimit limit = {.rlim_cur = value, .rlim_max = value};
    (void)host_call4(SYS_prlimit64, 0, resource, &limit, NULL);
}

static void drop_capabilities(void)
{
    for (int cap = 0; cap <= LAST_CAPABILITY; cap++)
        (void)host_call2(SYS_prctl, PR_CAPBSET_DROP, cap);
    (void)host_call2(SYS_prctl, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL);
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct none[2] = {{0}};
    (void)host_call2(SYS_capset, &header, none);
}

static void prefer_for_oom_kill(void)
{
    long hfd = host_call3(SYS_open, "/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC, 0);
    if (hfd < 0)
        return; /* no procfs here: whoever started the sentry set it */
    (void)host_call3(SYS_write, hfd, "1000", 4);
    (void)host_call1(SYS_close, hfd);
}

/* Runs in the copy of the sentry; whatever fails ends it, or is found out by the tracer afterwards. */
NORETURN static void become_stub(int image)
{
    uint64_t no_signals = 0;
    char *nothing[] = {NULL};
    (void)host_call0(SYS_setsid);
    (void)host_call4(SYS_rt_sigprocmask, SIG_SETMASK, &no_signals, NULL, sizeof(no_signals));
    prefer_for_oom_kill();
    if (image > 0)
        (void)host_call3(SYS_close_range, 0, image - 1, 0);
    (void)host_call3(SYS_close_range, image + 1, UINT32_MAX, 0);
    limit_child(RLIMIT_CORE, 1); /* 0 would not stop a piped core pattern */
    limit_child(RLIMIT_NOFILE, 1);
    drop_capabilities();
    /* Without randomisation stack, vvar and vDSO keep clear of the addresses that we move things to. */
    (void)host_call1(SYS_personality, ADDR_NO_RANDOMIZE);
    if (host_call5(SYS_prctl, PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
        host_call4(SYS_ptrace, PTRACE_TRACEME, 0, 0, 0) == 0)
        (void)host_call5(SYS_execveat, image, "", nothing, nothing, AT_EMPTY_PATH);
    for (;;)
        (void)host_call1(SYS_exit_group, 1);
}

static int image_file(void)
{
    long hfd = host_call2(SYS_memfd_create, "stub", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (hfd < 0)
        return (int)hfd;
    AUTO_FD image = (int)hfd;
    ssize_t r = host_write_all(image, ptrace_stub_image,
                               (size_t)(ptrace_stub_image_end - ptrace_stub_image));
    if (r != 0)
        return (int)r;
    long sealed = host_call3(SYS_fcntl, image, F_ADD_SEALS,
                             F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE);
    return sealed != 0 ? (int)sealed : take_fd(&image);
}

/* Starts the child and waits until it stands at the stub's first instruction. */
static int launch(struct tracer *p, const char **ret_why)
{
    *ret_why = "cannot make a sealed memfd";
    AUTO_FD image = image_file();
    if (image < 0)
        return image;
    *ret_why = "cannot fork";
    long pid = host_call5(SYS_clone, SIGCHLD, 0, 0, 0, 0);
    if (pid == 0)
        become_stub(image);
    if (pid < 0)
        return (int)pid;
    struct tracee_space *s = container_of(p->template->thread.space, struct tracee_space, space);
    p->template->tid = s->pid = (pid_t)pid;
    tracer_add(p, p->template);
    *ret_why = "ptrace or execveat from a memfd is not permitted";
    int status;
    if (tracee_wait(p->template, 0, &status) < 0)
        return -EPERM;
    unsigned long options =
        PTRACE_O_EXITKILL | PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE | PTRACE_O_TRACEFORK;
    if (WSTOPSIG(status) != SIGTRAP || tracee_read_user(p->template) != 0 ||
        host_call4(SYS_ptrace, PTRACE_SETOPTIONS, pid, 0, options) != 0)
        return -EPERM;
    *ret_why = "the stub does not stand where it should";
    return p->template->user.rip == tracee_code(ptrace_stub_call) ? 0 : -ENOEXEC;
}

/* ---- the address space ------------------------------------------------------------------------- */

static long call(struct tracer *p, long nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3)
{
    return tracee_call(p->template, nr, a0, a1, a2, a3, 0, 0);
}

struct initial_stack {
    uint64_t sp;
    uint64_t end;  /* first byte above it */
    uint64_t vdso; /* 0 = the kernel has none */
};

/* argc, argv, NULL, environment, NULL, then pairs: the kernel's own layout. */
static int read_stack(struct tracer *p, struct initial_stack *ret)
{
    uint64_t words[STACK_WORDS];
    *ret = (struct initial_stack){.sp = p->template->user.rsp};
    ssize_t size = platform_vm_read(p->template->tid, GUEST_ADDR(ret->sp), words, sizeof(words));
    if (size < (ssize_t)sizeof(uint64_t))
        return size < 0 ? (int)size : -EFAULT;
    size_t count = (size_t)size / sizeof(uint64_t);
    size_t i = words[0] < count ? (size_t)words[0] + 2 : count;
    while (i < count && words[i] != 0)
        i++;
    for (i++; i + 1 < count && words[i] != AT_NULL; i += 2) {
        if (words[i] == AT_SYSINFO_EHDR)
            ret->vdso = words[i + 1];
        if (words[i] == AT_EXECFN) /* the string at its very top */
            ret->end = PAGE_UP(words[i + 1] + 1);
    }
    return ret->end != 0 ? 0 : -ENOEXEC;
}

static bool is_mapped(struct tracer *p, const struct initial_stack *stack, uint64_t page)
{
    return call(p, SYS_mincore, page, PAGE_SIZE, stack->sp, 0) == 0;
}

/* The pages of vvar and vDSO: all that is mapped without a gap around the vDSO's ELF header. */
static int find_vdso(struct tracer *p, const struct initial_stack *stack)
{
    uint64_t low = stack->vdso;
    uint64_t high = stack->vdso;
    while (low - PAGE_SIZE != stack->end - PAGE_SIZE && is_mapped(p, stack, low - PAGE_SIZE)) {
        low -= PAGE_SIZE;
        if (stack->vdso - low > VDSO_PAGES_MAX * PAGE_SIZE)
            return -ENOEXEC;
    }
    while (is_mapped(p, stack, high)) {
        high += PAGE_SIZE;
        if (high - stack->vdso > VDSO_PAGES_MAX * PAGE_SIZE)
            return -ENOEXEC;
    }
    p->vdso_low = low;
    p->vdso_high = high;
    p->platform.info.vdso = GUEST_ADDR(stack->vdso);
    return 0;
}

/* Special mappings move as a whole only, so the first size that is accepted is the right one. */
static long move_one(struct tracer *p, uint64_t from, uint64_t to, uint64_t limit)
{
    long r = -ENOEXEC;
    for (uint64_t size = PAGE_SIZE; size <= limit; size += PAGE_SIZE) {
        r = tracee_call(p->template, SYS_mremap, from, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, to,
                        0);
        if (r >= 0 || r < -4095)
            return (long)size;
    }
    return r;
}

static int move_vdso(struct tracer *p)
{
    uint64_t size = p->vdso_high - p->vdso_low;
    uint32_t random = 0;
    (void)host_call3(SYS_getrandom, &random, sizeof(random), 0);
    uint64_t pages = (STUB_VDSO_HIGH - STUB_VDSO_LOW - size) / PAGE_SIZE;
    uint64_t target = STUB_VDSO_LOW + random % pages * PAGE_SIZE;
    for (uint64_t done = 0; done < size;) {
        long r = move_one(p, p->vdso_low + done, target + done, size - done);
        if (r == -EPERM && done == 0 && p->vdso_low >= STUB_BASE)
            return 0; /* sealed by the kernel, and in a place where it may stay */
        if (r < 0)
            return (int)r;
        done += (uint64_t)r;
    }
    p->platform.info.vdso.va += target - p->vdso_low;
    p->vdso_low = target;
    p->vdso_high = target + size;
    return 0;
}

static long unmap(struct tracer *p, uint64_t low, uint64_t high)
{
    return low < high ? call(p, SYS_munmap, low, high - low, 0, 0) : 0;
}

/* ---- the filter -------------------------------------------------------------------------------- */

#define LOAD(field) BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))
#define LOAD_HIGH_IP                                                                               \
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, instruction_pointer) + 4)
#define IF_NOT(value, skip) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (uint32_t)(value), 0, skip)
#define ALLOW_CALL(nr) IF_NOT(nr, 1), RETURN(SECCOMP_RET_ALLOW)
#define RETURN(action) BPF_STMT(BPF_RET | BPF_K, action)

/* Guest code never comes here while it runs under SYSEMU; this is the layer beneath it. */
static const struct sock_filter g_filter[] = {
    LOAD(arch),
    IF_NOT(AUDIT_ARCH_X86_64, 1),
    BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
    RETURN(SECCOMP_RET_KILL_PROCESS),
    LOAD(nr),
    BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, X32_BIT, 0, 1),
    RETURN(SECCOMP_RET_TRAP),
    LOAD_HIGH_IP,
    IF_NOT(STUB_CODE >> 32, 1),
    BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
    RETURN(SECCOMP_RET_TRAP),
    LOAD(instruction_pointer),
    IF_NOT(0, 1), /* patched: the low half of the address behind the stub's system call */
    BPF_JUMP(BPF_JMP | BPF_JA, 1, 0, 0),
    RETURN(SECCOMP_RET_TRAP),
    LOAD(nr),
    IF_NOT(TRACEE_DOORBELL, 1),
    RETURN(SECCOMP_RET_USER_NOTIF),
    ALLOW_CALL(SYS_mmap),
    ALLOW_CALL(SYS_munmap),
    ALLOW_CALL(SYS_mprotect),
    ALLOW_CALL(SYS_mremap),
    ALLOW_CALL(SYS_madvise),
    ALLOW_CALL(SYS_mincore),
    ALLOW_CALL(SYS_close),
    ALLOW_CALL(SYS_clone),
    ALLOW_CALL(SYS_exit),
    RETURN(SECCOMP_RET_TRAP),
};
#define FILTER_IP_TEST 12 /* index of the patched instruction */
#define SYSCALL_INSN_SIZE 2

/* Drills only: what happens when the filter protects nothing. */
static const struct sock_filter g_open_filter[] = {
    LOAD(nr),
    IF_NOT(TRACEE_DOORBELL, 1),
    RETURN(SECCOMP_RET_USER_NOTIF),
    RETURN(SECCOMP_RET_ALLOW),
};

/* Writes the filter into the template's stack and has it installed: the listener's number there. */
static long install_filter(struct tracer *p, const struct initial_stack *stack)
{
    struct sock_filter program[ARRAY_COUNT(g_filter)];
    struct sock_fprog head = {.len = ARRAY_COUNT(g_filter)};
    memcpy(program, g_filter, sizeof(g_filter));
    program[FILTER_IP_TEST].k = (uint32_t)(tracee_code(ptrace_stub_call) + SYSCALL_INSN_SIZE);
    if (p->open_filter) {
        memcpy(program, g_open_filter, sizeof(g_open_filter));
        head.len = ARRAY_COUNT(g_open_filter);
    }
    uint64_t at = PAGE_DOWN(stack->sp) - PAGE_SIZE; /* below the stack's used part */
    uint64_t head_at = at + sizeof(program);
    /* SAFETY: an address in the template, for the kernel to read there; never followed here. */
    head.filter = (struct sock_filter *)(uintptr_t)at;
    ssize_t r = platform_vm_write(p->template->tid, GUEST_ADDR(at), program, sizeof(program));
    if (r == (ssize_t)sizeof(program))
        r = platform_vm_write(p->template->tid, GUEST_ADDR(head_at), &head, sizeof(head));
    if (r != (ssize_t)sizeof(head))
        return r < 0 ? r : -EFAULT;
    return call(p, SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_SPEC_ALLOW, head_at, 0);
}

/* The listener is made in the template: take it, and leave no descriptor there. */
static int take_listener(struct tracer *p, long stub_fd)
{
    long process = host_call2(SYS_pidfd_open, p->template->tid, 0);
    if (process < 0)
        return (int)process;
    long hfd = host_call3(SYS_pidfd_getfd, process, stub_fd, 0);
    host_close((int)process);
    if (hfd < 0)
        return (int)hfd;
    p->listener = (int)hfd;
    return (int)call(p, SYS_close, (uint64_t)stub_fd, 0, 0, 0);
}

/* ---- all of it --------------------------------------------------------------------------------- */

static int shape_space(struct tracer *p, const struct initial_stack *stack, const char **ret_why)
{
    *ret_why = "cannot move the vDSO";
    int r = stack->vdso != 0 ? find_vdso(p, stack) : 0;
    if (r == 0 && stack->vdso != 0)
        r = move_vdso(p);
    if (r != 0)
        return r;
    *ret_why = "cannot clear the stub's address space";
    uint64_t code_end = STUB_CODE + PAGE_SIZE;
    uint64_t keep = p->vdso_low != 0 ? p->vdso_low : code_end;
    uint64_t keep_end = p->vdso_low != 0 ? p->vdso_high : code_end;
    uint64_t stack_low = PAGE_DOWN(stack->sp) - MIB(1);
    if (keep < code_end || (keep_end > stack_low && keep < stack->end))
        return -ENOEXEC;
    long unmapped = unmap(p, 0, STUB_CODE);
    if (unmapped == 0)
        unmapped = unmap(p, code_end, keep < stack_low ? keep : stack_low);
    if (unmapped == 0 && keep_end < stack_low)
        unmapped = unmap(p, keep_end, stack_low);
    if (unmapped != 0)
        return (int)unmapped;
    /* Old kernels have no mseal; there the check of every order's range has to do. */
    (void)call(p, SYS_MSEAL, STUB_CODE, PAGE_SIZE, 0, 0);
    if (p->vdso_low != 0)
        (void)call(p, SYS_MSEAL, p->vdso_low, p->vdso_high - p->vdso_low, 0, 0);
    return 0;
}

int tracer_setup(struct tracer *p, const char **ret_why)
{
    struct initial_stack stack;
    int r = launch(p, ret_why);
    if (r != 0)
        return r;
    *ret_why = "cannot read the stub's memory";
    r = read_stack(p, &stack);
    if (r == 0)
        r = shape_space(p, &stack, ret_why);
    if (r != 0)
        return r;
    *ret_why = "seccomp has no user notification, or it is not permitted here";
    long stub_fd = install_filter(p, &stack);
    if (stub_fd < 0)
        return (int)stub_fd;
    *ret_why = "pidfd_getfd is not permitted";
    r = take_listener(p, stub_fd);
    if (r != 0)
        return r;
    *ret_why = "cannot unmap the stub's stack";
    uint64_t above = p->vdso_high > stack.end ? p->vdso_high : STUB_USER_END;
    long unmapped = 0;
    if (p->vdso_high > stack.end) {
        unmapped = unmap(p, PAGE_DOWN(stack.sp) - MIB(1), p->vdso_low);
        if (unmapped == 0)
            unmapped = unmap(p, above, STUB_USER_END);
    } else {
        unmapped = unmap(p, PAGE_DOWN(stack.sp) - MIB(1), STUB_USER_END);
    }
    if (unmapped != 0)
        return (int)unmapped;
    *ret_why = "the CPU's extended state is of an unknown kind";
    return tracer_xstate_probe(p);
}
