/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ptrace platform from its own point of view: what a stub is made of, what host calls of all kinds
 * end in, orders, faults, threads, kicks under load. Each test is a process whose only thread is the
 * tracer. Guest code is a handful of bytes.
 */
#include "sentry/platform/platform.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CODE 0x10000000ul
#define DATA (CODE + 4096)
#define FILE_AT 0x20000000ul

static struct platform *g_platform;
static struct platform_space *g_space;
static struct platform_thread *g_thread;
static struct platform_event g_event;

static void map_page(struct platform_thread *t, uint64_t at)
{
    struct platform_order order = {.kind = PLATFORM_ORDER_MAP_ANON,
                                   .addr = GUEST_ADDR(at),
                                   .size = 4096,
                                   .prot = PROT_READ | PROT_WRITE | PROT_EXEC,
                                   .flags = MAP_PRIVATE};
    size_t done;
    cr_assert_eq(platform_execute(t, &order, 1, &done), 0);
    cr_assert_eq(done, 1);
}

static void put_code(const char *bytes, size_t size)
{
    cr_assert_eq(platform_write(g_space, GUEST_ADDR(CODE), bytes, size), (ssize_t)size);
    platform_thread_regs(g_thread)->rip = CODE;
}
#define GUEST_CODE(literal) put_code(literal, sizeof(literal) - 1)

static void start_with(bool open_filter)
{
    struct platform_config config = {.name = "ptrace", .cpu_count = 1, .max_processes = 100,
                                     .open_filter = open_filter};
    const char *why;
    int r = platform_new(&config, &g_platform, &why);
    cr_assert_eq(r, 0, "%s: %d", why, r);
    cr_assert_eq(platform_space_new(g_platform, 0, &g_space, &g_thread), 0);
    map_page(g_thread, CODE);
    map_page(g_thread, DATA);
}

static void start(void)
{
    start_with(false);
}

static void stop(void)
{
    platform_free(g_platform);
}

static struct platform_thread *next(void)
{
    struct platform_thread *t;
    while ((t = platform_wait(g_platform, 0, true, &g_event)) == NULL)
        ;
    return t;
}

/* Resumes `t` and expects that its next event is the next of all. */
static void run(struct platform_thread *t, enum platform_event_kind kind)
{
    platform_thread_resume(t);
    cr_assert(next() == t);
    cr_assert_eq(g_event.kind, kind, "kind %d, signo %d", g_event.kind, g_event.signo);
}

static void expect_fault(int signo, int code)
{
    run(g_thread, PLATFORM_EVENT_FAULT);
    cr_assert_eq(g_event.signo, signo, "signo %d", g_event.signo);
    cr_assert_eq(g_event.code, code, "code %d", g_event.code);
}

TestSuite(ptrace, .init = start, .fini = stop, .timeout = 60);

/* ---- stubs ------------------------------------------------------------------------------------- */

static void read_proc(char *text, size_t size, const char *file)
{
    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/%s", platform_space_host_pid(g_space), file);
    FILE *f = fopen(path, "re");
    cr_assert(f != NULL);
    text[fread(text, 1, size - 1, f)] = '\0';
    fclose(f);
}

Test(ptrace, stub_has_no_rights_and_nothing_of_ours)
{
    char text[8192];
    read_proc(text, sizeof(text), "status");
    /* Without CAP_SETPCAP the bounding set stays; no_new_privs makes it harmless. */
    const char *bounding = geteuid() == 0 ? "CapBnd:\t0000000000000000" : "CapBnd:";
    const char *lines[] = {"NoNewPrivs:\t1", "Seccomp:\t2", "CapPrm:\t0000000000000000",
                           bounding};
    for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
        cr_assert(strstr(text, lines[i]) != NULL, "no %s in %s", lines[i], text);
    read_proc(text, sizeof(text), "limits");
    cr_assert(strstr(text, "Max open files            1                    1 ") != NULL);
    read_proc(text, sizeof(text), "environ");
    cr_assert_eq(text[0], '\0');
}

Test(ptrace, space_is_empty_below_the_stub)
{
    struct platform_order all = {.kind = PLATFORM_ORDER_UNMAP_ALL};
    size_t done;
    cr_assert_eq(platform_execute(g_thread, &all, 1, &done), 0);
    char text[8192];
    read_proc(text, sizeof(text), "maps");
    cr_assert(strtoul(text, NULL, 16) >= platform_info(g_platform)->max_addr.va, "%s", text);
    char *line = strstr(text, "[vdso]");
    cr_assert(line != NULL, "%s", text);
    cr_assert(strstr(text, "[stack]") == NULL, "%s", text);
    GUEST_CODE("");
}

/* ---- host calls of all kinds ------------------------------------------------------------------- */

Test(ptrace, system_call_reaches_us_and_not_the_host)
{
    struct guest_regs *regs = platform_thread_regs(g_thread);
    GUEST_CODE("\x0f\x05\x0f\x05");
    regs->rax = 60; /* exit */
    regs->rdi = 1, regs->rsi = 2, regs->rdx = 3, regs->r10 = 4, regs->r8 = 5, regs->r9 = 6;
    regs->rsp = 0x1234, regs->fs_base = 0x5555, regs->gs_base = 0x6666;
    run(g_thread, PLATFORM_EVENT_SYSCALL);
    cr_assert_eq(regs->rax, 60);
    cr_assert_eq(regs->rip, CODE + 2);
    cr_assert(regs->rdi == 1 && regs->rsi == 2 && regs->rdx == 3);
    cr_assert(regs->r10 == 4 && regs->r8 == 5 && regs->r9 == 6);
    cr_assert(regs->rsp == 0x1234 && regs->fs_base == 0x5555 && regs->gs_base == 0x6666);
    regs->rax = 0x40000000 | 39; /* x32 */
    run(g_thread, PLATFORM_EVENT_SYSCALL);
    cr_assert_eq(regs->rax, 0x40000000 | 39);
}

/* getpid by the guest, with what asks an opened filter to let it through. */
static bool guest_learns_its_host_pid(void)
{
    struct guest_regs *regs = platform_thread_regs(g_thread);
    GUEST_CODE("\x0f\x05\xcc");
    regs->rax = 39;
    regs->r9 = 0x6f70656e;
    platform_thread_resume(g_thread);
    cr_assert(next() == g_thread);
    return g_event.kind == PLATFORM_EVENT_FAULT &&
           regs->rax == (uint64_t)platform_space_host_pid(g_space);
}

Test(ptrace, call_that_asks_to_be_let_through_is_not)
{
    cr_assert(!guest_learns_its_host_pid());
    cr_assert_eq(g_event.kind, PLATFORM_EVENT_SYSCALL);
}

Test(ptrace_control, without_protection_the_call_is_the_hosts)
{
    start_with(true);
    cr_assert(guest_learns_its_host_pid());
    stop();
}

Test(ptrace, stub_code_used_by_a_guest_is_a_system_call_like_any_other)
{
    struct guest_regs *regs = platform_thread_regs(g_thread);
    regs->rip = 0x7fff800100c0; /* STUB_CODE's `syscall` */
    regs->rax = 9;
    run(g_thread, PLATFORM_EVENT_SYSCALL);
    cr_assert_eq(regs->rax, 9);
}

Test(ptrace, vsyscall_is_an_event)
{
    struct guest_regs *regs = platform_thread_regs(g_thread);
    uint64_t back = CODE + 64;
    cr_assert_eq(platform_write(g_space, GUEST_ADDR(DATA), &back, sizeof(back)), 8);
    regs->rip = 0xffffffffff600400;
    regs->rsp = DATA;
    platform_thread_resume(g_thread);
    cr_assert(next() == g_thread);
    if (g_event.kind == PLATFORM_EVENT_FAULT)
        return; /* a host without vsyscall emulation */
    cr_assert_eq(g_event.kind, PLATFORM_EVENT_SYSCALL);
    cr_assert_eq(regs->rax, 201);
    cr_assert_eq(regs->rip, back);
    cr_assert_eq(regs->rsp, DATA + 8);
}

Test(ptrace, i386_entry_kills)
{
    GUEST_CODE("\xcd\x80");
    platform_thread_regs(g_thread)->rax = 20;
    platform_thread_resume(g_thread);
    cr_assert(next() == g_thread);
    if (g_event.kind == PLATFORM_EVENT_FAULT)
        return; /* a host without IA32 emulation */
    cr_assert_eq(g_event.kind, PLATFORM_EVENT_DEAD);
    cr_assert_eq(g_event.error, SIGSYS);
}

Test(ptrace, thread_in_32_bit_mode_is_caught_and_can_be_sent_back)
{
    /* ljmp *(%rdi) with selector 0x23 to CODE + 16: int3, then int 0x80 */
    struct guest_regs *regs = platform_thread_regs(g_thread);
    uint64_t target = (CODE + 16) | 0x23ull << 32;
    cr_assert_eq(platform_write(g_space, GUEST_ADDR(DATA), &target, sizeof(target)), 8);
    GUEST_CODE("\xff\x2f\x0f\x05............\xcc\xcd\x80");
    regs->rdi = DATA;
    expect_fault(SIGTRAP, SI_KERNEL);
    cr_assert_eq(regs->csgsfs & 0xffff, 0x23);
    regs->rip = CODE + 2;
    regs->rax = 39;
    run(g_thread, PLATFORM_EVENT_SYSCALL);
    cr_assert_eq(regs->csgsfs & 0xffff, 0x33);
    regs->rip = CODE;
    expect_fault(SIGTRAP, SI_KERNEL);
    run(g_thread, PLATFORM_EVENT_DEAD);
}

Test(ptrace, segment_bases_of_the_kernels_half_do_no_harm)
{
    /* wrfsbase %rax; syscall; wrgsbase %rax; syscall; mov %fs:0, %eax */
    struct guest_regs *regs = platform_thread_regs(g_thread);
    GUEST_CODE("\xf3\x48\x0f\xae\xd0\x0f\x05\xf3\x48\x0f\xae\xd8\x0f\x05"
               "\x64\x8b\x04\x25\x00\x00\x00\x00");
    regs->rax = 0xffffffff81000000;
    platform_thread_resume(g_thread);
    cr_assert(next() == g_thread);
    if (g_event.kind == PLATFORM_EVENT_FAULT)
        return; /* a CPU without FSGSBASE */
    cr_assert_eq(regs->fs_base, 0xffffffff81000000);
    regs->rbx = 99;
    regs->gs_base = 0x7777;
    regs->rip += 5;
    run(g_thread, PLATFORM_EVENT_SYSCALL);
    cr_assert(regs->rbx == 99 && regs->fs_base == 0xffffffff81000000 && regs->gs_base == 0x7777);
    expect_fault(SIGSEGV, SEGV_MAPERR);
    map_page(g_thread, FILE_AT);
    regs->rip = CODE + 7;
    regs->rax = 0xffffffff81000000;
    run(g_thread, PLATFORM_EVENT_SYSCALL);
    regs->fs_base = 0x8888; /* a valid one over an invalid one */
    regs->rip = CODE + 12;
    run(g_thread, PLATFORM_EVENT_SYSCALL);
    cr_assert_eq(regs->fs_base, 0x8888);
}

/* ---- faults ------------------------------------------------------------------------------------ */

Test(ptrace, faults_say_what_happened)
{
    struct guest_regs *regs = platform_thread_regs(g_thread);
    GUEST_CODE("\x8b\x07\xcc\x0f\x0b\x89\x07\xf7\xf1");
    regs->rdi = 0x12345678;
    expect_fault(SIGSEGV, SEGV_MAPERR);
    cr_assert_eq(g_event.addr.va, 0x12345678);
    cr_assert(!g_event.is_exec && !g_event.is_write);
    cr_assert_eq(regs->rip, CODE);
    regs->rip = CODE + 2;
    expect_fault(SIGTRAP, SI_KERNEL);
    cr_assert_eq(regs->rip, CODE + 3);
    expect_fault(SIGILL, ILL_ILLOPN);
    regs->rip = CODE + 7;
    regs->rcx = 0;
    expect_fault(SIGFPE, FPE_INTDIV);
    regs->rip = 0x66660000;
    expect_fault(SIGSEGV, SEGV_MAPERR);
    cr_assert(g_event.is_exec);

    struct platform_order protect = {.kind = PLATFORM_ORDER_PROTECT,
                                     .addr = GUEST_ADDR(DATA),
                                     .size = 4096,
                                     .prot = PROT_READ};
    size_t done;
    cr_assert_eq(platform_execute(g_thread, &protect, 1, &done), 0);
    regs->rdi = DATA;
    regs->rip = CODE + 5;
    expect_fault(SIGSEGV, SEGV_ACCERR);
    cr_assert(g_event.is_write && !g_event.is_exec);
    regs->rip = DATA;
    expect_fault(SIGSEGV, SEGV_ACCERR);
    cr_assert(!g_event.is_write && g_event.is_exec);
}

/* ---- orders ------------------------------------------------------------------------------------ */

static int small_file(void)
{
    int hfd = memfd_create("test", MFD_CLOEXEC);
    cr_assert(hfd >= 0 && write(hfd, "hello", 5) == 5 && ftruncate(hfd, 8192) == 0);
    return hfd;
}

Test(ptrace, files_are_mapped_and_the_descriptor_is_gone_afterwards)
{
    int hfd = small_file();
    struct platform_order orders[] = {
        {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(FILE_AT), .size = 4096,
         .prot = PROT_READ | PROT_WRITE, .flags = MAP_SHARED, .hfd = hfd},
        {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(FILE_AT + 4096), .size = 4096,
         .prot = PROT_READ, .flags = MAP_PRIVATE, .hfd = hfd},
        {.kind = PLATFORM_ORDER_PROTECT, .addr = GUEST_ADDR(FILE_AT + 65536), .size = 4096,
         .prot = PROT_READ},
    };
    size_t done;
    cr_assert_eq(platform_execute(g_thread, orders, 3, &done), -ENOMEM);
    cr_assert_eq(done, 2);
    char bytes[8];
    cr_assert_eq(platform_read(g_space, GUEST_ADDR(FILE_AT + 4096), bytes, 5), 5);
    cr_assert_eq(memcmp(bytes, "hello", 5), 0);
    cr_assert_eq(platform_write(g_space, GUEST_ADDR(FILE_AT), "J", 1), 1);
    cr_assert(pread(hfd, bytes, 1, 0) == 1 && bytes[0] == 'J');
    cr_assert_eq(platform_write(g_space, GUEST_ADDR(FILE_AT + 4096), "J", 1), -EFAULT);
    cr_assert_eq(platform_read(g_space, GUEST_ADDR(FILE_AT + 8190), bytes, 8), 2);

    char path[64];
    snprintf(path, sizeof(path), "/proc/%d/fd/0", platform_space_host_pid(g_space));
    cr_assert_eq(access(path, F_OK), -1);
}

Test(ptrace, bad_descriptor_fails_the_order_only)
{
    struct platform_order order = {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(FILE_AT),
                                   .size = 4096, .prot = PROT_READ, .flags = MAP_PRIVATE,
                                   .hfd = 9999};
    size_t done;
    cr_assert_eq(platform_execute(g_thread, &order, 1, &done), -EBADF);
    cr_assert_eq(done, 0);
    GUEST_CODE("\x0f\x05");
    run(g_thread, PLATFORM_EVENT_SYSCALL);
}

Test(ptrace, queued_orders_run_at_resume_and_may_fail_it)
{
    struct guest_regs *regs = platform_thread_regs(g_thread);
    struct platform_order order = {.kind = PLATFORM_ORDER_MAP_ANON, .addr = GUEST_ADDR(FILE_AT),
                                   .size = 4096, .prot = PROT_READ, .flags = MAP_PRIVATE};
    char byte;
    GUEST_CODE("\x0f\x05\x0f\x05");
    cr_assert_eq(platform_queue(g_thread, &order), 0);
    cr_assert_eq(platform_read(g_space, order.addr, &byte, 1), -EFAULT);
    run(g_thread, PLATFORM_EVENT_SYSCALL);
    cr_assert_eq(platform_read(g_space, order.addr, &byte, 1), 1);
    order.kind = PLATFORM_ORDER_PROTECT;
    order.addr.va += 65536;
    for (int i = 0; i < PLATFORM_QUEUE_MAX; i++)
        cr_assert_eq(platform_queue(g_thread, &order), 0);
    cr_assert_eq(platform_queue(g_thread, &order), -ENOSPC);
    run(g_thread, PLATFORM_EVENT_ORDER_FAILED);
    cr_assert_eq(g_event.error, -ENOMEM);
    cr_assert_eq(regs->rip, CODE + 2);
    run(g_thread, PLATFORM_EVENT_SYSCALL);
}

Test(ptrace, cmpxchg_exchanges_or_faults)
{
    uint32_t old;
    cr_assert_eq(platform_cmpxchg32(g_thread, GUEST_ADDR(DATA), 0, 5, &old), 0);
    cr_assert_eq(old, 0);
    cr_assert_eq(platform_cmpxchg32(g_thread, GUEST_ADDR(DATA), 0, 6, &old), 0);
    cr_assert_eq(old, 5);
    cr_assert_eq(platform_cmpxchg32(g_thread, GUEST_ADDR(FILE_AT), 0, 6, &old), -EFAULT);
}

static void forbid_process_vm(void)
{
    struct sock_filter program[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog filter = {.len = sizeof(program) / sizeof(program[0]), .filter = program};
    cr_assert_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    cr_assert_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter), 0);
}

Test(ptrace, copies_work_where_the_host_forbids_process_vm)
{
    char out[100], in[100];
    forbid_process_vm();
    for (size_t i = 0; i < sizeof(out); i++)
        out[i] = (char)(i + 1);
    cr_assert_eq(platform_write(g_space, GUEST_ADDR(DATA - 45), out, 100), 100);
    cr_assert_eq(platform_read(g_space, GUEST_ADDR(DATA - 45), in, 100), 100);
    cr_assert_eq(memcmp(in, out, 100), 0);
    cr_assert_eq(platform_write(g_space, GUEST_ADDR(DATA + 4096 - 45), out, 100), 45);
    cr_assert_eq(platform_read(g_space, GUEST_ADDR(DATA + 4096 - 45), in, 100), 45);
    cr_assert_eq(memcmp(in, out, 45), 0);
    cr_assert_eq(platform_read(g_space, GUEST_ADDR(FILE_AT), in, 100), -EFAULT);
}

/* ---- extended state ---------------------------------------------------------------------------- */

Test(ptrace, extended_state_is_that_of_a_signal_frame)
{
    static unsigned char state[GUEST_XSTATE_MAX], again[GUEST_XSTATE_MAX];
    size_t size = platform_info(g_platform)->xstate_size;
    cr_assert_eq(platform_thread_read_xstate(g_thread, state, sizeof(state)), (ssize_t)size);
    uint32_t magic;
    memcpy(&magic, state + 464, 4);
    cr_assert_eq(magic, 0x46505853);
    memcpy(&magic, state + size - 4, 4);
    cr_assert_eq(magic, 0x46505845);

    /* movups %xmm1, (%rdi); mov $-1, %eax; cvtsi2sd %eax, %xmm2; syscall */
    GUEST_CODE("\x0f\x11\x0f\xb8\xff\xff\xff\xff\xf2\x0f\x2a\xd0\x0f\x05");
    state[160 + 16] = 0x77; /* xmm1 */
    cr_assert_eq(platform_thread_write_xstate(g_thread, state, size), 0);
    platform_thread_regs(g_thread)->rdi = DATA;
    run(g_thread, PLATFORM_EVENT_SYSCALL);
    unsigned char byte;
    cr_assert_eq(platform_read(g_space, GUEST_ADDR(DATA), &byte, 1), 1);
    cr_assert_eq(byte, 0x77);
    cr_assert_eq(platform_thread_read_xstate(g_thread, again, size), (ssize_t)size);
    double minus_one;
    memcpy(&minus_one, again + 160 + 32, sizeof(minus_one));
    cr_assert_eq(minus_one, -1.0);

    cr_assert_eq(platform_thread_write_xstate(g_thread, NULL, 0), 0);
    cr_assert_eq(platform_thread_read_xstate(g_thread, again, size), (ssize_t)size);
    cr_assert_eq(again[160 + 16], 0);
    state[520] = 1; /* compacted format */
    cr_assert_eq(platform_thread_write_xstate(g_thread, state, size), -EINVAL);
    state[520] = 0;
    state[27] = 0xff; /* MXCSR */
    cr_assert_eq(platform_thread_write_xstate(g_thread, state, size), -EINVAL);
}

/* ---- spaces and threads ------------------------------------------------------------------------ */

Test(ptrace, fork_copies_memory_and_registers)
{
    struct platform_space *space;
    struct platform_thread *child;
    char byte;
    GUEST_CODE("\x0f\x05");
    platform_thread_regs(g_thread)->rbx = 77;
    cr_assert_eq(platform_space_fork(g_thread, &space, &child), 0);
    cr_assert_eq(platform_thread_regs(child)->rbx, 77);
    cr_assert_eq(platform_write(space, GUEST_ADDR(DATA), "Z", 1), 1);
    cr_assert(platform_read(g_space, GUEST_ADDR(DATA), &byte, 1) == 1 && byte == 0);
    run(child, PLATFORM_EVENT_SYSCALL);
    cr_assert_eq(platform_thread_regs(child)->rbx, 77);
    platform_thread_free(child);
    platform_space_put(space);
}

Test(ptrace, number_of_spaces_is_limited_and_comes_back)
{
    struct platform_space *spaces[100];
    struct platform_thread *threads[100];
    for (int round = 0; round < 2; round++) {
        int count = 0;
        int r;
        while ((r = platform_space_new(g_platform, 0, &spaces[count], &threads[count])) == 0)
            count++;
        cr_assert_eq(r, -EAGAIN);
        cr_assert_eq(count, 99);
        while (count-- > 0) {
            platform_thread_free(threads[count]);
            platform_space_put(spaces[count]);
        }
        /* The processes end on their own; meanwhile they count. */
        struct platform_space *s;
        struct platform_thread *t;
        for (int i = 0; i < 1000 && platform_space_new(g_platform, 0, &s, &t) == 0; i++) {
            platform_thread_free(t);
            platform_space_put(s);
            cr_assert(platform_wait(g_platform, 0, false, &g_event) == NULL);
        }
        for (int i = 0; i < 100; i++) {
            usleep(1000);
            cr_assert(platform_wait(g_platform, 0, false, &g_event) == NULL);
        }
    }
}

Test(ptrace, threads_take_turns)
{
    enum { COUNT = 100 };
    struct platform_thread *threads[COUNT];
    int turns[COUNT] = {0};
    GUEST_CODE("\x0f\x05\xeb\xfc");
    for (int i = 0; i < COUNT; i++) {
        cr_assert_eq(platform_thread_new(g_thread, &threads[i]), 0);
        platform_thread_set_owner(threads[i], &turns[i]);
    }
    for (int i = 0; i < COUNT; i++)
        platform_thread_resume(threads[i]);
    for (int i = 0; i < 20 * COUNT; i++) {
        struct platform_thread *t = next();
        cr_assert_eq(g_event.kind, PLATFORM_EVENT_SYSCALL);
        ++*(int *)platform_thread_owner(t);
        platform_thread_resume(t);
    }
    for (int i = 0; i < COUNT; i++) {
        struct platform_thread *t = next();
        cr_assert(*(int *)platform_thread_owner(t) > 5, "starved");
        platform_thread_free(t);
    }
}

Test(ptrace, space_outlives_its_first_thread_and_dies_with_its_last)
{
    struct platform_thread *second;
    char byte;
    GUEST_CODE("\x0f\x05");
    cr_assert_eq(platform_thread_new(g_thread, &second), 0);
    platform_thread_free(g_thread);
    run(second, PLATFORM_EVENT_SYSCALL);
    cr_assert_eq(platform_read(g_space, GUEST_ADDR(CODE), &byte, 1), 1);
    platform_thread_free(second);
    cr_assert_eq(platform_read(g_space, GUEST_ADDR(CODE), &byte, 1), -ESRCH);
    platform_space_put(g_space);
}

Test(ptrace, killed_space_yields_dead_and_esrch)
{
    struct platform_thread *stopped;
    struct platform_order order = {.kind = PLATFORM_ORDER_MAP_ANON, .addr = GUEST_ADDR(FILE_AT),
                                   .size = 4096, .prot = PROT_READ, .flags = MAP_PRIVATE};
    size_t done;
    GUEST_CODE("\xeb\xfe");
    cr_assert_eq(platform_thread_new(g_thread, &stopped), 0);
    platform_thread_resume(g_thread);
    platform_space_kill(g_space);
    cr_assert(next() == g_thread);
    cr_assert_eq(g_event.kind, PLATFORM_EVENT_DEAD);
    cr_assert_eq(g_event.error, SIGKILL);
    cr_assert_eq(platform_execute(stopped, &order, 1, &done), -ESRCH);
    run(stopped, PLATFORM_EVENT_DEAD);
    platform_thread_free(stopped);
    platform_thread_free(g_thread);
    platform_space_put(g_space);
}

static void *kill_later(void *arg)
{
    usleep(*(useconds_t *)arg);
    kill(platform_space_host_pid(g_space), SIGKILL);
    return NULL;
}

/* The leader of a killed process is reported last: nobody may wait for it alone. */
Test(ptrace, killed_in_the_middle_of_its_leaders_orders)
{
    struct platform_order file = {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(FILE_AT),
                                  .size = 4096, .prot = PROT_READ, .flags = MAP_SHARED,
                                  .hfd = small_file()};
    for (useconds_t delay = 0; delay < 3000; delay += 100) {
        struct platform_thread *others[3];
        pthread_t thread;
        size_t done;
        int r;
        GUEST_CODE("\xeb\xfe");
        for (int i = 0; i < 3; i++) {
            cr_assert_eq(platform_thread_new(g_thread, &others[i]), 0);
            if (i > 0)
                platform_thread_resume(others[i]);
        }
        cr_assert_eq(pthread_create(&thread, NULL, kill_later, &delay), 0);
        while ((r = platform_execute(g_thread, &file, 1, &done)) == 0)
            ;
        cr_assert_eq(r, -ESRCH);
        pthread_join(thread, NULL);
        platform_thread_resume(g_thread);
        platform_thread_resume(others[0]);
        for (int i = 0; i < 4; i++) {
            struct platform_thread *t = next();
            cr_assert_eq(g_event.kind, PLATFORM_EVENT_DEAD);
            platform_thread_free(t);
        }
        platform_space_put(g_space);
        cr_assert_eq(platform_space_new(g_platform, 0, &g_space, &g_thread), 0);
        map_page(g_thread, CODE);
    }
}

/* ---- kicks and wake-ups ------------------------------------------------------------------------ */

static _Atomic bool g_storm_over;

static void *kick_once(void *arg)
{
    usleep(20000);
    platform_thread_kick(arg);
    return NULL;
}

static void *wake_once(void *arg)
{
    usleep(20000);
    platform_worker_wake(arg, 0);
    return NULL;
}

static void *storm(void *arg)
{
    for (unsigned i = 0; !atomic_load(&g_storm_over); i++) {
        platform_thread_kick(arg);
        if (i % 64 == 0)
            platform_worker_wake(g_platform, 0);
        if (i % 8 == 0)
            usleep(1);
    }
    return NULL;
}

Test(ptrace, kick_stops_a_running_thread_and_the_next_resume)
{
    pthread_t thread;
    GUEST_CODE("\xeb\xfe");
    platform_thread_resume(g_thread);
    cr_assert_eq(pthread_create(&thread, NULL, kick_once, g_thread), 0);
    cr_assert(next() == g_thread);
    cr_assert_eq(g_event.kind, PLATFORM_EVENT_KICK);
    cr_assert_eq(platform_thread_regs(g_thread)->rip, CODE);
    pthread_join(thread, NULL);
    platform_thread_kick(g_thread);
    run(g_thread, PLATFORM_EVENT_KICK);
}

Test(ptrace, wake_up_is_never_lost)
{
    pthread_t thread;
    platform_worker_wake(g_platform, 0);
    cr_assert(platform_wait(g_platform, 0, true, &g_event) == NULL);
    cr_assert_eq(pthread_create(&thread, NULL, wake_once, g_platform), 0);
    cr_assert(platform_wait(g_platform, 0, true, &g_event) == NULL);
    pthread_join(thread, NULL);
    cr_assert(platform_wait(g_platform, 0, false, &g_event) == NULL);
}

/* One round of everything that a kick could break. */
static void storm_round(int i, const struct platform_order *file)
{
    const struct guest_regs *regs = platform_thread_regs(g_thread);
    struct platform_space *space;
    struct platform_thread *other;
    uint32_t old;
    size_t done;
    if (i % 3 == 0)
        cr_assert_eq(platform_execute(g_thread, file, 1, &done), 0);
    if (i % 5 == 0) {
        cr_assert_eq(platform_space_fork(g_thread, &space, &other), 0);
        cr_assert_eq(platform_thread_regs(other)->rbx, regs->rbx);
        platform_thread_regs(other)->rip = CODE + 2;
        run(other, PLATFORM_EVENT_SYSCALL);
        platform_thread_free(other);
        platform_space_put(space);
    }
    if (i % 7 == 0) {
        cr_assert_eq(platform_thread_new(g_thread, &other), 0);
        platform_thread_regs(other)->rip = CODE + 2;
        run(other, PLATFORM_EVENT_SYSCALL);
        platform_thread_free(other);
    }
    if (i % 11 == 0)
        cr_assert_eq(platform_cmpxchg32(g_thread, GUEST_ADDR(DATA), 0, 0, &old), 0);
}

Test(ptrace, storm_of_kicks_loses_nothing)
{
    struct guest_regs *regs = platform_thread_regs(g_thread);
    struct platform_order file = {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(FILE_AT),
                                  .size = 4096, .prot = PROT_READ, .flags = MAP_SHARED,
                                  .hfd = small_file()};
    pthread_t thread;
    uint32_t calls = 0;
    GUEST_CODE("\xff\xc3\x0f\x05\xeb\xfa"); /* inc %ebx; syscall; again */
    cr_assert_eq(pthread_create(&thread, NULL, storm, g_thread), 0);
    for (int i = 0; i < 1000; i++) {
        platform_thread_resume(g_thread);
        cr_assert(next() == g_thread);
        if (g_event.kind == PLATFORM_EVENT_SYSCALL) {
            cr_assert_eq((uint32_t)regs->rbx, ++calls);
            cr_assert_eq(regs->rip, CODE + 4);
        } else {
            cr_assert_eq(g_event.kind, PLATFORM_EVENT_KICK);
        }
        storm_round(i, &file);
    }
    atomic_store(&g_storm_over, true);
    pthread_join(thread, NULL);
    cr_assert(calls > 0);
}
