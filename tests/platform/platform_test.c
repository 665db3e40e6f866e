/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest sentry there is: one thread, no fibers, one platform, guests of a few instructions.
 * Runs the same checks on each platform: platform_test systrap|ptrace [bench]. Exit status 0 = all good.
 *
 * Without fibers the platform's sleeping functions serve the event loop themselves.
 */
#include "sentry/platform/platform.h"

#include "sentry/platform/stub_range.h"
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#define GUEST_CODE 0x10000000UL
#define GUEST_DATA 0x20000000UL
#define GUEST_STACK 0x30000000UL
#define DATA_SIZE 0x10000UL

extern const unsigned char guest_code[], guest_code_end[];
#define GUEST(name)                                                                                \
    extern const unsigned char guest_##name[];                                                     \
    static uint64_t at_##name(void) { return GUEST_CODE + (uint64_t)(guest_##name - guest_code); }
GUEST(getpid)
GUEST(getpid_loop)
GUEST(scribble)
GUEST(spin)
GUEST(load)
GUEST(store)
GUEST(jump)
GUEST(registers)
GUEST(fs)
GUEST(x32)
GUEST(int80)
GUEST(raw)
GUEST(jump_r11)
GUEST(sigreturn)
GUEST(flags)

static struct platform *g_platform;
static const struct platform_info *g_info;
static const char *g_test;
static int g_failures;

#define CHECK(e)                                                                                   \
    do {                                                                                           \
        if (!(e)) {                                                                                \
            printf("  %s: line %d: %s\n", g_test, __LINE__, #e);                                   \
            g_failures++;                                                                          \
        }                                                                                          \
    } while (0)
#define CHECK_EQ(a, b)                                                                             \
    do {                                                                                           \
        long long a_ = (long long)(a), b_ = (long long)(b);                                        \
        if (a_ != b_) {                                                                            \
            printf("  %s: line %d: %s = %lld, %s = %lld\n", g_test, __LINE__, #a, a_, #b, b_);     \
            g_failures++;                                                                          \
        }                                                                                          \
    } while (0)
#define MUST(e)                                                                                    \
    do {                                                                                           \
        if (!(e)) {                                                                                \
            printf("  %s: line %d: %s; giving up\n", g_test, __LINE__, #e);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

/* ---- a sentry in a few functions ------------------------------------------------------------------ */

static void on_child(int signo)
{
    (void)signo;
    if (g_platform != NULL)
        for (unsigned i = 0; i < g_info->worker_count; i++)
            platform_worker_wake(g_platform, i);
}

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* The next event of any thread. The alarm ends a test in which none comes. */
static struct platform_thread *any_event(struct platform_event *ev)
{
    for (;;) {
        struct platform_thread *t = platform_wait(g_platform, 0, true, ev);
        if (t != NULL)
            return t;
        platform_reap(g_platform);
    }
}

/* An event of `t` within a moment, or else of its death by our hand. */
static struct platform_event brief_event(struct platform_space *s, struct platform_thread *t)
{
    struct platform_event ev = {.kind = PLATFORM_EVENT_COUNT};
    double limit = now_ns() + 300e3;
    while (now_ns() < limit) {
        if (platform_wait(g_platform, 0, false, &ev) == t)
            return ev;
        platform_reap(g_platform);
        usleep(10);
    }
    platform_space_kill(s);
    while (any_event(&ev) != t) {
    }
    return ev;
}

static struct platform_event next_event(struct platform_thread *t)
{
    struct platform_event ev = {.kind = PLATFORM_EVENT_COUNT};
    struct platform_thread *got = any_event(&ev);
    MUST(got == t);
    return ev;
}

static struct platform_event go(struct platform_thread *t)
{
    platform_thread_resume(t);
    return next_event(t);
}

static struct platform_event go_at(struct platform_thread *t, uint64_t rip)
{
    platform_thread_regs(t)->rip = rip;
    return go(t);
}

static int order(struct platform_thread *t, struct platform_order o)
{
    size_t done;
    return platform_execute(t, &o, 1, &done);
}

static struct platform_order map_anon(uint64_t addr, uint64_t size, int prot)
{
    return (struct platform_order){.kind = PLATFORM_ORDER_MAP_ANON, .addr = GUEST_ADDR(addr),
                                   .size = size, .prot = prot, .flags = MAP_PRIVATE};
}

static struct platform_order protect(uint64_t addr, uint64_t size, int prot)
{
    return (struct platform_order){.kind = PLATFORM_ORDER_PROTECT, .addr = GUEST_ADDR(addr),
                                   .size = size, .prot = prot};
}

static struct platform_order unmap(uint64_t addr, uint64_t size)
{
    return (struct platform_order){.kind = PLATFORM_ORDER_UNMAP, .addr = GUEST_ADDR(addr),
                                   .size = size};
}

/* A space with code, data and stack. */
static struct platform_thread *start(struct platform_space **ret_space)
{
    struct platform_space *s;
    struct platform_thread *t;
    MUST(platform_space_new(g_platform, 0, &s, &t) == 0);
    size_t size = (size_t)(guest_code_end - guest_code);
    size_t done;
    struct platform_order orders[] = {
        map_anon(GUEST_CODE, size, PROT_READ | PROT_WRITE),
        map_anon(GUEST_DATA, DATA_SIZE, PROT_READ | PROT_WRITE),
        map_anon(GUEST_STACK, DATA_SIZE, PROT_READ | PROT_WRITE),
    };
    MUST(platform_execute(t, orders, 3, &done) == 0 && done == 3);
    MUST(platform_write(s, GUEST_ADDR(GUEST_CODE), guest_code, size) == (ssize_t)size);
    MUST(order(t, protect(GUEST_CODE, size, PROT_READ | PROT_EXEC)) == 0);
    struct guest_regs *r = platform_thread_regs(t);
    r->rsp = GUEST_STACK + DATA_SIZE - 64;
    r->r12 = GUEST_DATA;
    r->eflags = 0x202;
    *ret_space = s;
    return t;
}

static void end(struct platform_thread *t, struct platform_space *s)
{
    platform_thread_free(t);
    platform_space_put(s);
}

static void expect_dead(struct platform_thread *t)
{
    struct platform_event ev = next_event(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_DEAD);
}

/* ---- the checks ----------------------------------------------------------------------------------- */

static void test_syscall(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct platform_event ev = go_at(t, at_getpid());
    struct guest_regs *r = platform_thread_regs(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 39);
    CHECK_EQ(r->rdi, 0x1111);
    CHECK_EQ(r->rsi, 0x2222);
    CHECK_EQ(r->rdx, 0x3333);
    CHECK_EQ(r->r10, 0x4444);
    CHECK_EQ(r->r8, 0x5555);
    CHECK_EQ(r->r9, 0x6666);
    r->rax = 4242;
    ev = go(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 60);
    CHECK_EQ(r->rdi, 4242);
    ev = go(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_FAULT);
    CHECK_EQ(ev.signo, SIGILL);
    end(t, s);
}

/* What an owner does with a thread whose registers may be known in part only. */
static void test_fetch(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct guest_regs *r = platform_thread_regs(t);
    CHECK_EQ(platform_thread_fetch(t), 0);
    /* Fetched, and gone on with a result. */
    r->rdi = 5;
    struct platform_event ev = go_at(t, at_registers());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    r->rax = 1234;
    CHECK_EQ(platform_thread_fetch(t), 0);
    CHECK_EQ(platform_thread_fetch(t), 0);
    CHECK_EQ(r->rax, 1234);
    CHECK_EQ(r->r15, 5);
    ev = go(t); /* movq %xmm0, %rax; syscall */
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 5);
    /* Single registers written without a fetch: the others stay. */
    r->r14 = 77;
    r->rip = at_getpid();
    ev = go(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(platform_thread_fetch(t), 0);
    CHECK_EQ(r->r14, 77);
    CHECK_EQ(r->r15, 5);
    CHECK_EQ(r->rbx, 1);
    CHECK_EQ(r->r12, GUEST_DATA);
    /* All of them replaced, as when a vfork's parent gets its thread back. */
    struct guest_regs saved = *r;
    r->rdi = 6;
    ev = go_at(t, at_registers());
    *r = saved;
    r->rax = 9;
    ev = go(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 60);
    CHECK_EQ(r->rdi, 9);
    CHECK_EQ(platform_thread_fetch(t), 0);
    CHECK_EQ(r->r14, 77);
    /* The call is made again: rip back, number in rax. */
    ev = go_at(t, at_getpid());
    r->rip -= 2;
    r->rax = 39;
    ev = go(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 39);
    CHECK_EQ(r->rdi, 0x1111);
    /* A kick while it waits for its answer, fetched and not. */
    for (int i = 0; i < 2; i++) {
        ev = go_at(t, at_getpid());
        platform_thread_kick(t);
        if (i == 1)
            CHECK_EQ(platform_thread_fetch(t), 0);
        r->rax = 70;
        ev = go(t);
        CHECK_EQ(ev.kind, PLATFORM_EVENT_KICK);
        CHECK_EQ(platform_thread_fetch(t), 0);
        CHECK_EQ(r->rax, 70);
        while ((ev = go(t)).kind == PLATFORM_EVENT_KICK) {
        }
        CHECK_EQ(r->rax, 60);
        CHECK_EQ(r->rdi, 70);
    }
    /* Orders of all kinds on such a thread. */
    ev = go_at(t, at_getpid());
    struct platform_order queued = map_anon(0x68000000, 4096, PROT_READ);
    CHECK_EQ(platform_queue(t, &queued), 0);
    r->rax = 71;
    ev = go(t);
    CHECK_EQ(r->rdi, 71);
    char byte;
    CHECK_EQ(platform_read(s, GUEST_ADDR(0x68000000), &byte, 1), 1);
    platform_space_kill(s);
    if (strcmp(g_info->name, "systrap") == 0)
        CHECK_EQ(platform_thread_fetch(t), -ESRCH);
    end(t, s);
    /* Ends of such threads: a leader that parks, another that exits. */
    struct platform_thread *other;
    t = start(&s);
    MUST(platform_thread_new(t, &other) == 0);
    ev = go_at(t, at_getpid());
    ev = go_at(other, at_getpid());
    platform_thread_free(t);
    t = other;
    MUST(platform_thread_new(t, &other) == 0);
    ev = go_at(other, at_getpid());
    platform_thread_free(other);
    platform_thread_regs(t)->rax = 3;
    ev = go(t);
    CHECK_EQ(platform_thread_regs(t)->rdi, 3);
    end(t, s);
}

static void test_registers(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct guest_regs *r = platform_thread_regs(t);
    r->rdi = 0x123456789abcdef0;
    struct platform_event ev = go_at(t, at_registers());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(platform_thread_fetch(t), 0);
    CHECK_EQ(r->rax, 39);
    CHECK_EQ(r->rbx, 1);
    CHECK_EQ(r->rbp, 2);
    CHECK_EQ(r->r13, 3);
    CHECK_EQ(r->r14, 4);
    CHECK_EQ(r->r15, 5);
    static unsigned char xstate[GUEST_XSTATE_MAX];
    CHECK_EQ(platform_thread_read_xstate(t, xstate, sizeof xstate), g_info->xstate_size);
    uint64_t xmm0;
    memcpy(&xmm0, xstate + 160, sizeof xmm0);
    CHECK(xmm0 == 0x123456789abcdef0);
    ev = go(t);
    CHECK(r->rax == 0x123456789abcdef0);

    xmm0 = 99;
    memcpy(xstate + 160, &xmm0, sizeof xmm0);
    CHECK_EQ(platform_thread_write_xstate(t, xstate, g_info->xstate_size), 0);
    r->rip = at_registers();
    r->rdi = 55;
    ev = go(t);
    CHECK_EQ(platform_thread_read_xstate(t, xstate, sizeof xstate), g_info->xstate_size);
    memcpy(&xmm0, xstate + 160, sizeof xmm0);
    CHECK_EQ(xmm0, 55);
    xmm0 = 98;
    memcpy(xstate + 160, &xmm0, sizeof xmm0);
    CHECK_EQ(platform_thread_write_xstate(t, xstate, g_info->xstate_size), 0);
    ev = go(t);
    CHECK_EQ(r->rax, 98);
    uint32_t mxcsr = 0xffffffff;
    memcpy(xstate + 24, &mxcsr, sizeof mxcsr);
    CHECK_EQ(platform_thread_write_xstate(t, xstate, g_info->xstate_size), -EINVAL);
    CHECK_EQ(platform_thread_write_xstate(t, NULL, 0), 0);
    r->rip = at_registers();
    r->rdi = 7;
    ev = go(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    ev = go(t);
    CHECK_EQ(r->rax, 7);
    end(t, s);
}

static void test_faults(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct guest_regs *r = platform_thread_regs(t);
    r->rdi = 0x40000123;
    struct platform_event ev = go_at(t, at_load());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_FAULT);
    CHECK_EQ(ev.signo, SIGSEGV);
    CHECK_EQ(ev.code, SEGV_MAPERR);
    CHECK_EQ(ev.addr.va, 0x40000123);
    CHECK(!ev.is_write);
    CHECK_EQ(r->rip, at_load());
    r->rdi = GUEST_CODE;
    ev = go_at(t, at_store());
    CHECK_EQ(ev.signo, SIGSEGV);
    CHECK_EQ(ev.code, SEGV_ACCERR);
    CHECK_EQ(ev.addr.va, GUEST_CODE);
    CHECK(ev.is_write);
    r->rdi = GUEST_DATA; /* not executable */
    ev = go_at(t, at_jump());
    CHECK_EQ(ev.signo, SIGSEGV);
    CHECK(ev.is_exec);
    CHECK_EQ(ev.addr.va, GUEST_DATA);
    /* The sentry maps the page and lets it try again. */
    r->rdi = 0x40000000;
    ev = go_at(t, at_load());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_FAULT);
    CHECK_EQ(order(t, map_anon(0x40000000, 4096, PROT_READ)), 0);
    ev = go(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 1000);
    end(t, s);
}

static void test_memory(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    char in[10000], out[10000];
    memset(in, 'x', sizeof in);
    CHECK_EQ(platform_write(s, GUEST_ADDR(GUEST_DATA + 100), in, sizeof in), sizeof in);
    CHECK_EQ(platform_read(s, GUEST_ADDR(GUEST_DATA + 100), out, sizeof out), sizeof out);
    CHECK(memcmp(in, out, sizeof in) == 0);
    /* Stops at the end of what is mapped. */
    CHECK_EQ(platform_read(s, GUEST_ADDR(GUEST_DATA + DATA_SIZE - 5000), out, sizeof out), 5000);
    CHECK_EQ(platform_read(s, GUEST_ADDR(0x50000000), out, 1), -EFAULT);
    CHECK_EQ(platform_write(s, GUEST_ADDR(GUEST_CODE), in, 1), -EFAULT);
    CHECK_EQ(platform_read(s, GUEST_ADDR(STUB_CODE), out, 8), -EFAULT);
    CHECK_EQ(platform_read(s, GUEST_ADDR(UINT64_MAX - 4), out, 8), -EFAULT);
    end(t, s);
}

static void test_orders(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    size_t done = 99;
    struct platform_order orders[] = {
        map_anon(0x60000000, 8192, PROT_READ),
        protect(0x70000000, 4096, PROT_READ), /* nothing there: ENOMEM */
        map_anon(0x61000000, 4096, PROT_READ),
    };
    CHECK_EQ(platform_execute(t, orders, 3, &done), -ENOMEM);
    CHECK_EQ(done, 1);
    char byte;
    CHECK_EQ(platform_read(s, GUEST_ADDR(0x60000000), &byte, 1), 1);
    CHECK_EQ(platform_read(s, GUEST_ADDR(0x61000000), &byte, 1), -EFAULT);
    CHECK_EQ(order(t, unmap(0x60000000, 8192)), 0);
    CHECK_EQ(platform_read(s, GUEST_ADDR(0x60000000), &byte, 1), -EFAULT);

    struct platform_order move = {.kind = PLATFORM_ORDER_REMAP, .addr = GUEST_ADDR(GUEST_DATA),
                                  .size = 4096, .new_addr = GUEST_ADDR(0x62000000),
                                  .new_size = 4096, .flags = MREMAP_MAYMOVE | MREMAP_FIXED};
    CHECK_EQ(platform_write(s, GUEST_ADDR(GUEST_DATA), "m", 1), 1);
    CHECK_EQ(order(t, move), 0);
    CHECK_EQ(platform_read(s, GUEST_ADDR(0x62000000), &byte, 1), 1);
    CHECK_EQ(byte, 'm');
    struct platform_order advise = {.kind = PLATFORM_ORDER_ADVISE, .addr = GUEST_ADDR(0x62000000),
                                    .size = 4096, .advice = MADV_DONTNEED};
    CHECK_EQ(order(t, advise), 0);
    CHECK_EQ(platform_read(s, GUEST_ADDR(0x62000000), &byte, 1), 1);
    CHECK_EQ(byte, 0);

    CHECK_EQ(order(t, map_anon(0x63000000, 3 * 4096, PROT_READ | PROT_WRITE)), 0);
    CHECK_EQ(platform_write(s, GUEST_ADDR(0x63000000), "m", 1), 1);
    struct platform_order core = {.kind = PLATFORM_ORDER_MINCORE, .addr = GUEST_ADDR(0x63000000),
                                  .size = 2 * 4096, .new_addr = GUEST_ADDR(0x63002001)};
    char resident[2] = {7, 7};
    CHECK_EQ(order(t, core), 0);
    CHECK_EQ(platform_read(s, core.new_addr, resident, 2), 2);
    CHECK_EQ(resident[0] & 1, 1);
    CHECK_EQ(resident[1] & 1, 0);
    core.new_addr = platform_info(g_platform)->max_addr;
    CHECK_EQ(order(t, core), -EINVAL);

    /* Many at once, more than one list. */
    struct platform_order many[40];
    for (int i = 0; i < 40; i++)
        many[i] = map_anon(0x64000000 + (uint64_t)i * 0x10000, 4096, PROT_READ);
    CHECK_EQ(platform_execute(t, many, 40, &done), 0);
    CHECK_EQ(done, 40);
    CHECK_EQ(platform_read(s, GUEST_ADDR(0x64000000 + 39 * 0x10000), &byte, 1), 1);

    /* Queued: they run within the resume. */
    struct platform_order queued = map_anon(0x68000000, 4096, PROT_READ);
    CHECK_EQ(platform_queue(t, &queued), 0);
    queued = map_anon(0x69000000, 4096, PROT_READ);
    CHECK_EQ(platform_queue(t, &queued), 0);
    struct guest_regs *r = platform_thread_regs(t);
    r->rdi = 0x69000000;
    struct platform_event ev = go_at(t, at_load());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 1000);
    queued = protect(0x70000000, 4096, PROT_READ);
    CHECK_EQ(platform_queue(t, &queued), 0);
    ev = go_at(t, at_load());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_ORDER_FAILED);
    CHECK_EQ(ev.error, -ENOMEM);
    CHECK_EQ(r->rip, at_load());
    ev = go(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);

    struct platform_order all = {.kind = PLATFORM_ORDER_UNMAP_ALL};
    CHECK_EQ(order(t, all), 0);
    CHECK_EQ(platform_read(s, GUEST_ADDR(GUEST_CODE), &byte, 1), -EFAULT);
    CHECK_EQ(order(t, map_anon(GUEST_DATA, 4096, PROT_READ)), 0);
    end(t, s);
}

static void test_files(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    int hfd = memfd_create("test", MFD_CLOEXEC);
    int other = memfd_create("other", MFD_CLOEXEC);
    MUST(ftruncate(hfd, 8192) == 0 && pwrite(hfd, "file", 4, 4096) == 4);
    MUST(ftruncate(other, 4096) == 0 && pwrite(other, "else", 4, 0) == 4);
    struct platform_order o[] = {
        {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(0x60000000), .size = 4096,
         .prot = PROT_READ | PROT_WRITE, .flags = MAP_SHARED, .hfd = hfd, .offset = 4096},
        {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(0x60001000), .size = 4096,
         .prot = PROT_READ, .flags = MAP_PRIVATE, .hfd = hfd, .offset = 4096},
        {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(0x60002000), .size = 4096,
         .prot = PROT_READ, .flags = MAP_PRIVATE, .hfd = other, .offset = 0},
    };
    size_t done;
    char text[5] = "";
    CHECK_EQ(platform_execute(t, o, 3, &done), 0);
    CHECK_EQ(done, 3);
    for (int i = 0; i < 3; i++) {
        CHECK_EQ(platform_read(s, GUEST_ADDR(0x60000000 + (uint64_t)i * 4096), text, 4), 4);
        CHECK(strcmp(text, i == 2 ? "else" : "file") == 0);
    }
    struct guest_regs *r = platform_thread_regs(t);
    r->rdi = 0x60000000;
    struct platform_event ev = go_at(t, at_store());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    uint32_t word = 0;
    CHECK_EQ(pread(hfd, &word, 4, 4096), 4);
    CHECK_EQ(word, 77);
    /* A mapping that fails (the memfd is not writable) leaves no descriptor behind and stops there. */
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", hfd);
    FILE *f = fopen(path, "r");
    MUST(f != NULL);
    o[0].hfd = fileno(f);
    o[1].addr = GUEST_ADDR(0x60008000);
    CHECK_EQ(platform_execute(t, o, 3, &done), -EACCES);
    CHECK_EQ(done, 0);
    CHECK_EQ(platform_read(s, GUEST_ADDR(0x60008000), text, 1), -EFAULT);
    o[0].hfd = hfd;
    CHECK_EQ(platform_execute(t, o, 3, &done), 0);
    /* Beyond the end of the file: SIGBUS. */
    MUST(ftruncate(hfd, 4096) == 0);
    r->rdi = 0x60000000;
    ev = go_at(t, at_load());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_FAULT);
    CHECK_EQ(ev.signo, SIGBUS);
    CHECK_EQ(ev.code, BUS_ADRERR);
    fclose(f);
    close(hfd);
    close(other);
    end(t, s);
}

static void test_fs_base(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct guest_regs *r = platform_thread_regs(t);
    uint64_t value = 0xabcdef;
    CHECK_EQ(platform_write(s, GUEST_ADDR(GUEST_DATA + 64), &value, 8), 8);
    r->fs_base = GUEST_DATA + 64;
    struct platform_event ev = go_at(t, at_fs());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rdi, 0xabcdef);
    CHECK_EQ(platform_thread_fetch(t), 0);
    CHECK_EQ(r->fs_base, GUEST_DATA + 64);
    end(t, s);
}

static void test_fork(void)
{
    struct platform_space *s, *cs;
    struct platform_thread *t = start(&s), *ct;
    uint32_t value = 1;
    CHECK_EQ(platform_write(s, GUEST_ADDR(GUEST_DATA), &value, 4), 4);
    struct platform_event ev = go_at(t, at_getpid());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    platform_thread_regs(t)->fs_base = GUEST_DATA;
    MUST(platform_space_fork(t, &cs, &ct) == 0);
    CHECK(memcmp(platform_thread_regs(t), platform_thread_regs(ct), 18 * 8) == 0);
    CHECK_EQ(platform_thread_regs(ct)->fs_base, GUEST_DATA);
    CHECK(platform_space_host_pid(cs) != platform_space_host_pid(s));
    value = 2;
    CHECK_EQ(platform_write(cs, GUEST_ADDR(GUEST_DATA), &value, 4), 4);
    CHECK_EQ(platform_read(s, GUEST_ADDR(GUEST_DATA), &value, 4), 4);
    CHECK_EQ(value, 1);
    platform_thread_regs(ct)->rax = 0;
    ev = go(ct);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(platform_thread_regs(ct)->rdi, 0);
    platform_thread_regs(t)->rax = 5;
    ev = go(t);
    CHECK_EQ(platform_thread_regs(t)->rdi, 5);
    /* A grandchild, and the child ends before it. */
    struct platform_space *gs;
    struct platform_thread *gt;
    MUST(platform_space_fork(ct, &gs, &gt) == 0);
    end(ct, cs);
    ev = go_at(gt, at_getpid());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    end(gt, gs);
    end(t, s);
}

static void test_many_forks(void)
{
    struct platform_space *s, *cs;
    struct platform_thread *t = start(&s), *ct;
    double begin = now_ns();
    int n = 1000;
    for (int i = 0; i < n; i++) {
        MUST(platform_space_fork(t, &cs, &ct) == 0);
        struct platform_event ev = go_at(ct, at_getpid());
        CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
        end(ct, cs);
        platform_reap(g_platform);
    }
    printf("  %d x fork, one call, exit: %.1f us each\n", n, (now_ns() - begin) / n / 1e3);
    end(t, s);
}

static void test_threads(void)
{
    struct platform_space *s;
    struct platform_thread *leader = start(&s), *t[20];
    for (int i = 0; i < 20; i++) {
        MUST(platform_thread_new(leader, &t[i]) == 0);
        CHECK(platform_thread_space(t[i]) == s);
        struct guest_regs *r = platform_thread_regs(t[i]);
        r->rsp = GUEST_STACK + 0x1000 * (uint64_t)(i % 8 + 1);
        r->fs_base = GUEST_DATA + 64 * (uint64_t)i;
        uint64_t value = (uint64_t)i + 1000;
        CHECK_EQ(platform_write(s, GUEST_ADDR(GUEST_DATA + 64 * (uint64_t)i), &value, 8), 8);
        struct platform_event ev = go_at(t[i], at_fs());
        CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
        CHECK_EQ(r->rdi, i + 1000);
    }
    /* The leader's guest thread ends first; memory stays reachable, and orders work. */
    platform_thread_free(leader);
    char byte;
    CHECK_EQ(platform_read(s, GUEST_ADDR(GUEST_DATA), &byte, 1), 1);
    CHECK_EQ(order(t[0], map_anon(0x60000000, 4096, PROT_READ)), 0);
    for (int i = 1; i < 20; i++)
        platform_thread_free(t[i]);
    struct platform_thread *again;
    MUST(platform_thread_new(t[0], &again) == 0);
    struct platform_event ev = go_at(again, at_getpid());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    struct platform_space *cs;
    struct platform_thread *ct;
    MUST(platform_space_fork(again, &cs, &ct) == 0);
    ev = go_at(ct, at_getpid());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    end(ct, cs);
    platform_thread_free(again);
    end(t[0], s);
}

/* Hundreds of stopped threads: each still does what it is told, in any order. */
static void test_many_stopped(void)
{
    enum { COUNT = 300 };
    static struct platform_thread *t[COUNT];
    struct platform_space *s;
    struct platform_thread *leader = start(&s);
    for (int i = 0; i < COUNT; i++) {
        MUST(platform_thread_new(leader, &t[i]) == 0);
        platform_thread_regs(t[i])->rsp = GUEST_STACK + 0x8000;
        struct platform_event ev = go_at(t[i], at_getpid());
        CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    }
    for (int i = 0; i < COUNT; i += 3) /* the oldest first: they are parked if any is */
        CHECK_EQ(order(t[i], map_anon(0x60000000, 4096, PROT_READ)), 0);
    for (int i = 0; i < COUNT; i++) {
        if (i % 7 == 0)
            platform_thread_kick(t[i]);
        platform_thread_regs(t[i])->rax = (uint64_t)i;
        struct platform_event ev = go(t[i]);
        if (ev.kind == PLATFORM_EVENT_KICK)
            ev = go(t[i]);
        CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
        CHECK_EQ(platform_thread_regs(t[i])->rdi, i);
    }
    uint32_t old;
    CHECK_EQ(platform_cmpxchg32(t[0], GUEST_ADDR(GUEST_DATA), 0, 1, &old), 0);
    platform_thread_free(leader);
    for (int i = 1; i < COUNT; i++)
        platform_thread_free(t[i]);
    struct platform_event ev = go_at(t[0], at_getpid());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    end(t[0], s);
}

static void test_kick(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct platform_event ev;
    for (int i = 0; i < 50; i++) {
        platform_thread_regs(t)->rip = at_spin();
        platform_thread_resume(t);
        if ((i & 1) != 0)
            usleep(100);
        platform_thread_kick(t);
        ev = next_event(t);
        CHECK_EQ(ev.kind, PLATFORM_EVENT_KICK);
        CHECK_EQ(platform_thread_regs(t)->rip, at_spin());
    }
    /* While stopped: the next resume yields it before guest code runs. */
    platform_thread_kick(t);
    platform_thread_kick(t);
    ev = go_at(t, at_getpid());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_KICK);
    CHECK_EQ(platform_thread_regs(t)->rip, at_getpid());
    while ((ev = go(t)).kind == PLATFORM_EVENT_KICK) {
    }
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    end(t, s);
}

static void test_cmpxchg(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    uint32_t word = 5, old = 0;
    CHECK_EQ(platform_write(s, GUEST_ADDR(GUEST_DATA), &word, 4), 4);
    struct platform_event ev = go_at(t, at_getpid());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(platform_cmpxchg32(t, GUEST_ADDR(GUEST_DATA), 5, 6, &old), 0);
    CHECK_EQ(old, 5);
    CHECK_EQ(platform_cmpxchg32(t, GUEST_ADDR(GUEST_DATA), 5, 7, &old), 0);
    CHECK_EQ(old, 6);
    CHECK_EQ(platform_read(s, GUEST_ADDR(GUEST_DATA), &word, 4), 4);
    CHECK_EQ(word, 6);
    CHECK_EQ(platform_cmpxchg32(t, GUEST_ADDR(0x50000000), 5, 7, &old), -EFAULT);
    CHECK_EQ(platform_cmpxchg32(t, GUEST_ADDR(GUEST_CODE), 5, 7, &old), -EFAULT);
    CHECK_EQ(platform_cmpxchg32(t, GUEST_ADDR(STUB_CODE), 5, 7, &old), -EFAULT);
    struct guest_regs *r = platform_thread_regs(t);
    CHECK_EQ(r->r9, 0x6666);
    r->rax = 11;
    ev = go(t);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rdi, 11);
    end(t, s);
}

static void test_kill(void)
{
    struct platform_space *s;
    struct platform_thread *leader = start(&s), *t;
    MUST(platform_thread_new(leader, &t) == 0);
    platform_thread_regs(t)->rip = at_spin();
    platform_thread_resume(t);
    usleep(1000);
    platform_space_kill(s);
    expect_dead(t);
    CHECK_EQ(order(leader, map_anon(0x60000000, 4096, PROT_READ)), -ESRCH);
    char byte;
    CHECK_EQ(platform_read(s, GUEST_ADDR(GUEST_DATA), &byte, 1), -ESRCH);
    uint32_t old;
    CHECK_EQ(platform_cmpxchg32(leader, GUEST_ADDR(GUEST_DATA), 0, 0, &old), -ESRCH);
    struct platform_event ev = go(leader);
    CHECK_EQ(ev.kind, PLATFORM_EVENT_DEAD);
    platform_thread_free(leader);
    end(t, s);
    /* The host kills it. */
    t = start(&s);
    platform_thread_regs(t)->rip = at_spin();
    platform_thread_resume(t);
    kill(platform_space_host_pid(s), SIGKILL);
    expect_dead(t);
    end(t, s);
}

static void test_flags_and_vdso(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct guest_regs *r = platform_thread_regs(t);
    struct platform_event ev = go_at(t, at_flags());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 1007);
    CHECK_EQ(platform_thread_fetch(t), 0);
    CHECK((r->eflags & 0x40400) == 0x40400);
    ev = go(t);
    CHECK_EQ(r->rax, 1008);
    CHECK_EQ(platform_thread_fetch(t), 0);
    CHECK((r->eflags & 0x40400) == 0);
    /* TF: one step, one SIGTRAP. */
    r->eflags |= 0x100;
    ev = go_at(t, at_getpid());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_FAULT);
    CHECK_EQ(ev.signo, SIGTRAP);
    CHECK_EQ(r->rip, at_getpid() + 5);
    r->eflags &= ~0x100UL;
    if (g_info->vdso.va != 0) {
        unsigned char head[4];
        CHECK(g_info->vdso.va >= STUB_BASE);
        r->rdi = g_info->vdso.va;
        ev = go_at(t, at_load());
        CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
        (void)head;
    }
    end(t, s);
}

/* ---- what a stub has ------------------------------------------------------------------------------ */

static void read_proc(pid_t pid, const char *name, char *text, size_t size)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/%s", (int)pid, name);
    FILE *f = fopen(path, "r");
    MUST(f != NULL);
    text[fread(text, 1, size - 1, f)] = '\0';
    fclose(f);
}

static int count_descriptors(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *d = opendir(path);
    MUST(d != NULL);
    int count = -2; /* . and .. */
    while (readdir(d) != NULL)
        count++;
    closedir(d);
    return count;
}

/* Invariant I2 and the set-up of docs/platform 4, as the kernel tells it. */
static void check_stub(pid_t pid, bool has_guest)
{
    static char text[65536];
    CHECK_EQ(count_descriptors(pid), 0);
    read_proc(pid, "status", text, sizeof text);
    CHECK(strstr(text, "NoNewPrivs:\t1") != NULL);
    CHECK(strstr(text, "Seccomp:\t2") != NULL);
    CHECK(strstr(text, "CapPrm:\t0000000000000000") != NULL);
    CHECK(strstr(text, "CapEff:\t0000000000000000") != NULL);
    CHECK(strstr(text, "CapAmb:\t0000000000000000") != NULL);
    read_proc(pid, "limits", text, sizeof text);
    CHECK(strstr(text, "Max core file size        1                    1") != NULL);
    CHECK(strstr(text, "Max open files            1                    1") != NULL);
    read_proc(pid, "oom_score_adj", text, sizeof text);
    CHECK(strcmp(text, "1000\n") == 0);
    read_proc(pid, "environ", text, sizeof text);
    CHECK_EQ(text[0], 0);
    /* Nothing is mapped outside the stub's range but the guest's three areas; nothing there is both
     * writable and executable, and no file of the host shows. */
    read_proc(pid, "maps", text, sizeof text);
    int below = 0;
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        uint64_t from = strtoull(line, NULL, 16);
        if (strstr(line, "[vsyscall]") != NULL)
            continue;
        below += from < STUB_BASE;
        CHECK(strstr(line, "rwx") == NULL);
        CHECK(strchr(line, '/') == NULL || strstr(line, "/memfd:") != NULL);
        CHECK(strstr(line, "[stack]") == NULL && strstr(line, "[heap]") == NULL);
    }
    CHECK_EQ(below, has_guest ? 3 : 0);
}

static void test_stub_state(void)
{
    struct platform_space *s, *cs, *fresh;
    struct platform_thread *t = start(&s), *ct, *ft;
    check_stub(platform_space_host_pid(s), true);
    MUST(platform_space_fork(t, &cs, &ct) == 0);
    check_stub(platform_space_host_pid(cs), true);
    MUST(platform_space_new(g_platform, 0, &fresh, &ft) == 0);
    check_stub(platform_space_host_pid(fresh), false);
    end(ft, fresh);
    end(ct, cs);
    end(t, s);
}

/* ---- hostile guests ------------------------------------------------------------------------------- */

static void test_ranges(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    uint64_t max = g_info->max_addr.va;
    CHECK_EQ(order(t, map_anon(max, 4096, PROT_READ)), -EINVAL);
    CHECK_EQ(order(t, map_anon(max - 4096, 8192, PROT_READ)), -EINVAL);
    CHECK_EQ(order(t, map_anon(max - 4096, 4096, PROT_READ)), 0);
    CHECK_EQ(order(t, map_anon(STUB_CODE, 4096, PROT_READ)), -EINVAL);
    CHECK_EQ(order(t, unmap(STUB_CODE, 4096)), -EINVAL);
    CHECK_EQ(order(t, protect(STUB_CODE, 4096, 7)), -EINVAL);
    CHECK_EQ(order(t, map_anon(0x1000, 4096, PROT_READ)), -EINVAL);
    CHECK_EQ(order(t, map_anon(0x60000000, UINT64_MAX & ~4095UL, PROT_READ)), -EINVAL);
    CHECK_EQ(order(t, map_anon(0x60000001, 4096, PROT_READ)), -EINVAL);
    CHECK_EQ(order(t, map_anon(0x60000000, 0, PROT_READ)), -EINVAL);
    struct platform_order move = {.kind = PLATFORM_ORDER_REMAP, .addr = GUEST_ADDR(GUEST_DATA),
                                  .size = 4096, .new_addr = GUEST_ADDR(STUB_CODE),
                                  .new_size = 4096, .flags = MREMAP_MAYMOVE | MREMAP_FIXED};
    CHECK_EQ(order(t, move), -EINVAL);
    move.flags = MREMAP_MAYMOVE; /* the kernel would choose */
    CHECK_EQ(order(t, move), -EINVAL);
    end(t, s);
}

/* Whatever it ends in, the platform goes on: a witness in another space still works. */
static void check_witness(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct platform_event ev = go_at(t, at_getpid());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    end(t, s);
}

static void test_foreign_calls(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct guest_regs *r = platform_thread_regs(t);
    struct platform_event ev = go_at(t, at_x32());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 0x40000027);
    ev = go(t);
    CHECK_EQ(r->rax, 1003);
    ev = go_at(t, at_sigreturn());
    CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    CHECK_EQ(r->rax, 15);
    /* int 0x80 is killed, or comes out as a call or fault; never executed. */
    ev = go_at(t, at_int80());
    if (ev.kind != PLATFORM_EVENT_DEAD)
        CHECK(ev.kind == PLATFORM_EVENT_FAULT || ev.kind == PLATFORM_EVENT_SYSCALL);
    end(t, s);
    check_witness();
}

/* Every number from guest code comes out as an event, sched_yield excepted, which may run. uretprobe
 * and uprobe (335, 336) pass every seccomp filter since Linux 6.14; from where no probe is they are SIGILL. */
static bool number_is_served(uint64_t nr, const struct platform_event *ev, uint64_t rax)
{
    if (nr == 335 || nr == 336)
        return ev->kind == PLATFORM_EVENT_SYSCALL ||
               (ev->kind == PLATFORM_EVENT_FAULT && ev->signo == SIGILL);
    return ev->kind == PLATFORM_EVENT_SYSCALL && (rax == nr || (nr == 24 && rax == 1005));
}

static void test_every_number(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct guest_regs *r = platform_thread_regs(t);
    for (uint64_t nr = 0; nr < 1024; nr++) {
        r->rax = nr;
        r->rdi = r->rsi = r->rdx = r->r10 = r->r8 = r->r9 = 0;
        struct platform_event ev = go_at(t, at_raw());
        if (!number_is_served(nr, &ev, r->rax)) {
            printf("  number %lu: kind %d, rax %lu\n", (unsigned long)nr, ev.kind,
                   (unsigned long)r->rax);
            g_failures++;
        }
    }
    static const uint64_t odd[] = {0xffffffffffffffff, 0x0ba11e70, 0x7fffffff, 0x80000000};
    for (size_t i = 0; i < 4; i++) {
        r->rax = odd[i];
        struct platform_event ev = go_at(t, at_raw());
        CHECK_EQ(ev.kind, PLATFORM_EVENT_SYSCALL);
    }
    end(t, s);
}

/* Whether a guest's own getppid, marked as a drill marks its calls, runs on the host. So does its next
 * call then, and it comes to the ud2. */
static bool marked_call_executes(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct guest_regs *r = platform_thread_regs(t);
    r->rax = 110;
    r->r9 = STUB_OPEN_MAGIC;
    struct platform_event ev = go_at(t, at_raw());
    bool executed = ev.kind == PLATFORM_EVENT_FAULT && ev.signo == SIGILL;
    CHECK(executed || ev.kind == PLATFORM_EVENT_SYSCALL);
    if (executed)
        CHECK_EQ(r->rdi, getpid());
    end(t, s);
    return executed;
}

static void test_marked_call(void)
{
    CHECK(!marked_call_executes());
}

/* Jumps to every byte of the stub's first page with registers that ask for something. */
static void test_jump_into_stub(void)
{
    static const uint64_t first_args[] = {9, 10, 11, 25, 28, 3, 56, 60, 202, 0x0ba11e70, 15};
    for (unsigned offset = 0; offset < 1100; offset += 1) {
        struct platform_space *s;
        struct platform_thread *t = start(&s);
        struct guest_regs *r = platform_thread_regs(t);
        r->rax = first_args[offset % 11];
        r->rdi = offset % 3 == 0 ? 0x66000000 : 1;
        r->rsi = offset % 5 == 0 ? 100 : 4096;
        r->rdx = 7;
        r->r10 = 0x32;
        r->r8 = UINT64_MAX;
        r->rbx = r->r14 = GUEST_DATA + 0x800;
        r->rsp = GUEST_STACK + 0x8000;
        r->r11 = STUB_CODE + offset;
        r->rip = at_jump_r11();
        platform_thread_resume(t);
        /* It may spin or park in there for ever. */
        struct platform_event ev = brief_event(s, t);
        char byte;
        if (ev.kind != PLATFORM_EVENT_DEAD)
            CHECK_EQ(platform_read(s, GUEST_ADDR(0x66000000), &byte, 1), -EFAULT);
        end(t, s);
    }
    check_witness();
}

/* A guest thread that overwrites the list of orders of another one: what comes of it is either what was
 * ordered or the end of the space, and never a writable stub. */
static void test_hostile_orders(void)
{
    if (strcmp(g_info->name, "systrap") != 0)
        return;
    int deaths = 0;
    for (int i = 0; i < 60; i++) {
        struct platform_space *s;
        struct platform_thread *leader = start(&s), *writer;
        MUST(platform_thread_new(leader, &writer) == 0);
        struct guest_regs *r = platform_thread_regs(writer);
        /* Slot 0 is the leader's: its first call's number, arguments or end mark. */
        r->rdi = 0x7fff90000000 + 128 + 64 * (uint64_t)(i % 4) + 8 * (uint64_t)(i % 7);
        r->rsi = i % 3 == 0 ? STUB_CODE : i % 3 == 1 ? 10 : 4096;
        r->rip = at_scribble();
        platform_thread_resume(writer);
        int failed = 0;
        for (int k = 0; k < 50 && failed == 0; k++) {
            size_t done;
            struct platform_order o[4] = {
                map_anon(0x60000000, 4096, PROT_READ), protect(0x60000000, 4096, PROT_NONE),
                map_anon(0x61000000, 4096, PROT_READ), protect(0x61000000, 4096, PROT_NONE)};
            failed = platform_execute(leader, o, 4, &done);
        }
        deaths += failed == -ESRCH;
        platform_space_kill(s);
        expect_dead(writer);
        platform_thread_free(writer);
        end(leader, s);
    }
    printf("  %d of 60 spaces died of it\n", deaths);
    check_witness();
}

/* Threads that write into each other's stub memory, forged frames: only that space suffers. */
static void test_forged_frames(void)
{
    static const struct {
        uint64_t offset, value;
    } frames[] = {{168 + 16 * 8 - 128, 0x23}, {0, 0}};
    (void)frames;
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    struct guest_regs *r = platform_thread_regs(t);
    /* A frame in guest memory: restored at the stub's own rt_sigreturn with every signal blocked. */
    uint64_t frame[56] = {0};
    frame[1] = 7;
    frame[6 + 16] = at_spin();
    frame[6 + 15] = GUEST_STACK + 0x8000;
    frame[6 + 17] = 0x202;
    frame[6 + 18] = 0x33 | 0x2bULL << 48;
    frame[38] = ~0ULL;
    CHECK_EQ(platform_write(s, GUEST_ADDR(GUEST_DATA), frame, sizeof frame), sizeof frame);
    for (uint64_t offset = 0x80; offset < 0x110; offset++) {
        r->rax = 15;
        r->rbx = GUEST_DATA;
        r->rsp = GUEST_DATA + 8;
        r->r11 = STUB_CODE + offset;
        r->rip = at_jump_r11();
        platform_thread_resume(t);
        (void)brief_event(s, t);
        end(t, s);
        t = start(&s);
        CHECK_EQ(platform_write(s, GUEST_ADDR(GUEST_DATA), frame, sizeof frame), sizeof frame);
        r = platform_thread_regs(t);
    }
    end(t, s);
    check_witness();
}

/* ---- figures, never judged ------------------------------------------------------------------------ */

static void bench_getpid(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    unsigned worker = platform_thread_worker(t);
    platform_thread_regs(t)->rip = at_getpid_loop();
    int n = strcmp(g_info->name, "ptrace") == 0 ? 500 : 5000;
    double best = 1e9;
    platform_thread_resume(t);
    for (int batch = 0; batch < 20; batch++) {
        double begin = now_ns();
        for (int i = 0; i < n;) {
            struct platform_event ev;
            struct platform_thread *got = platform_wait(g_platform, worker, true, &ev);
            if (got == NULL)
                continue;
            platform_thread_regs(got)->rax = 1;
            platform_thread_resume(got);
            i++;
        }
        double each = (now_ns() - begin) / n;
        best = each < best ? each : best;
    }
    printf("  system call, round trip: %.2f us (best of 20)\n", best / 1e3);
    platform_space_kill(s);
    while (next_event(t).kind != PLATFORM_EVENT_DEAD)
        platform_thread_resume(t);
    end(t, s);
}

static void bench_orders(void)
{
    struct platform_space *s;
    struct platform_thread *t = start(&s);
    int n = 2000;
    double begin = now_ns();
    for (int i = 0; i < n; i++)
        CHECK_EQ(order(t, map_anon(0x60000000, 4096, PROT_READ)), 0);
    printf("  anonymous mapping: %.2f us\n", (now_ns() - begin) / n / 1e3);
    int hfd = memfd_create("bench", MFD_CLOEXEC);
    MUST(ftruncate(hfd, 4096) == 0);
    struct platform_order file = {.kind = PLATFORM_ORDER_MAP_FILE, .addr = GUEST_ADDR(0x60000000),
                                  .size = 4096, .prot = PROT_READ, .flags = MAP_PRIVATE,
                                  .hfd = hfd};
    begin = now_ns();
    for (int i = 0; i < n; i++)
        CHECK_EQ(order(t, file), 0);
    printf("  file mapping: %.2f us\n", (now_ns() - begin) / n / 1e3);
    uint32_t old;
    begin = now_ns();
    for (int i = 0; i < n; i++)
        CHECK_EQ(platform_cmpxchg32(t, GUEST_ADDR(GUEST_DATA), 0, 0, &old), 0);
    printf("  cmpxchg: %.2f us\n", (now_ns() - begin) / n / 1e3);
    begin = now_ns();
    for (int i = 0; i < 200; i++) {
        struct platform_space *s2;
        struct platform_thread *t2 = start(&s2);
        end(t2, s2);
        platform_reap(g_platform);
    }
    printf("  new space with three mappings: %.1f us\n", (now_ns() - begin) / 200 / 1e3);
    close(hfd);
    end(t, s);
}

static const struct {
    const char *name;
    void (*run)(void);
} g_tests[] = {
    {"syscall", test_syscall},
    {"registers", test_registers},
    {"fetch", test_fetch},
    {"faults", test_faults},
    {"memory", test_memory},
    {"orders", test_orders},
    {"files", test_files},
    {"fs_base", test_fs_base},
    {"fork", test_fork},
    {"threads", test_threads},
    {"many_stopped", test_many_stopped},
    {"kick", test_kick},
    {"cmpxchg", test_cmpxchg},
    {"kill", test_kill},
    {"flags_and_vdso", test_flags_and_vdso},
    {"stub_state", test_stub_state},
    {"ranges", test_ranges},
    {"foreign_calls", test_foreign_calls},
    {"every_number", test_every_number},
    {"marked_call", test_marked_call},
    {"jump_into_stub", test_jump_into_stub},
    {"forged_frames", test_forged_frames},
    {"hostile_orders", test_hostile_orders},
    {"many_forks", test_many_forks},
    {"bench_getpid", bench_getpid},
    {"bench_orders", bench_orders},
};

int main(int argc, char **argv)
{
    struct platform_config config = {.name = argc > 1 ? argv[1] : NULL, .cpu_count = 1,
                                     .max_processes = 4096};
    const char *why = "";
    setvbuf(stdout, NULL, _IOLBF, 0);
    int r = platform_new(&config, &g_platform, &why);
    if (r != 0) {
        printf("platform_new: %s (%d)\n", why, r);
        return 1;
    }
    g_info = platform_info(g_platform);
    struct sigaction action = {.sa_handler = on_child};
    sigaction(SIGCHLD, &action, NULL);
    static char text[1024];
    platform_describe(g_platform, text, sizeof text);
    printf("%s", text);
    for (size_t i = 0; i < sizeof g_tests / sizeof g_tests[0]; i++) {
        if (argc > 2 && strcmp(argv[2], g_tests[i].name) != 0)
            continue;
        g_test = g_tests[i].name;
        int before = g_failures;
        alarm(60);
        g_tests[i].run();
        printf("%s %s\n", g_failures == before ? "ok  " : "FAIL", g_test);
    }
    platform_free(g_platform);

    /* The control of all that: with the filter opened, a guest's call does run. */
    if (argc <= 2) {
        g_test = "open_filter";
        config.open_filter = true;
        g_platform = NULL;
        MUST(platform_new(&config, &g_platform, &why) == 0);
        g_info = platform_info(g_platform);
        int before = g_failures;
        CHECK(marked_call_executes());
        printf("%s %s\n", g_failures == before ? "ok  " : "FAIL", g_test);
        platform_free(g_platform);
    }
    return g_failures != 0;
}
