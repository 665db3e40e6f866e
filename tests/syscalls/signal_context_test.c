/* SPDX-License-Identifier: Apache-2.0 */
/* What a handler sees and may change: siginfo of faults, registers, FP state, alternate stacks. */
#include "show.h"
#include <setjmp.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/ucontext.h>

#define AUTODISARM INT32_MIN /* SS_AUTODISARM, 1U << 31 */

static siginfo_t info;
static sigjmp_buf back;
static volatile sig_atomic_t was_on_alternate;
static stack_t in_handler;
static char alternate[1 << 16] __attribute__((aligned(16)));

static void on_fault(int sig, siginfo_t *si, void *context)
{
    (void)sig, (void)context;
    info = *si;
    siglongjmp(back, 1);
}

static void handle(int sig, void (*handler)(int, siginfo_t *, void *), int flags)
{
    struct sigaction act = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
    sigaction(sig, &act, NULL);
}

static void show_fault(const char *what, const void *address)
{
    printf("%s: %s code %d address %s\n", what, sigabbrev_np(info.si_signo), info.si_code,
           info.si_addr == address ? "right" : "other");
}

static void faults(void)
{
    static volatile int zero, result, seven = 7;
    static void (*function)(void);
    char *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memcpy(&function, &code, sizeof(code));
    handle(SIGSEGV, on_fault, 0), handle(SIGBUS, on_fault, 0);
    handle(SIGFPE, on_fault, 0), handle(SIGILL, on_fault, 0), handle(SIGTRAP, on_fault, 0);
    if (!sigsetjmp(back, 1))
        result = *(volatile int *)0x1234;
    show_fault("read of 0x1234", (void *)0x1234);
    if (!sigsetjmp(back, 1))
        result = seven / zero;
    VAL(result);
    printf("division: %s code %d\n", sigabbrev_np(info.si_signo), info.si_code);
    memcpy(code, "\x0f\x0b", 2); /* ud2 */
    if (!sigsetjmp(back, 1))
        function();
    show_fault("ud2", code);
    memcpy(code, "\xcc\xc3", 2); /* int3 */
    if (!sigsetjmp(back, 1))
        function();
    printf("int3: %s code %d\n", sigabbrev_np(info.si_signo), info.si_code);
    memcpy(code, "\xf4\xc3", 2); /* hlt */
    if (!sigsetjmp(back, 1))
        function();
    printf("hlt: %s code %d address %d\n", sigabbrev_np(info.si_signo), info.si_code, info.si_addr != NULL);
    memcpy(code, "\x48\xb8\0\0\0\0\0\0\0\x80\x8b\0\xc3", 13); /* a non-canonical address */
    if (!sigsetjmp(back, 1))
        function();
    printf("non-canonical: %s code %d address %d\n", sigabbrev_np(info.si_signo), info.si_code, info.si_addr != NULL);
    memcpy(code, "\xc3", 1);
    mprotect(code, 4096, PROT_READ);
    if (!sigsetjmp(back, 1))
        function();
    show_fault("not executable", code);
    uintptr_t nowhere = 0x5000;
    memcpy(&function, &nowhere, sizeof(function));
    if (!sigsetjmp(back, 1))
        function();
    show_fault("jump to nowhere", (void *)0x5000);
}

/* Skips `mov (%rax),%ebx`-like faults by changing rip and a register. */
static void skip(int sig, siginfo_t *si, void *context)
{
    (void)sig, (void)si;
    ucontext_t *uc = context;
    uc->uc_mcontext.gregs[REG_RIP] += 2;
    uc->uc_mcontext.gregs[REG_RBX] = 4242;
}

static long registers(void)
{
    handle(SIGSEGV, skip, 0);
    unsigned long rbx, r12 = 12, r15 = 15, flags_before, flags_after;
    __asm__ volatile("xor %%eax,%%eax\n\t"
                     "stc\n\t"
                     "pushfq\n\tpop %3\n\t"
                     "mov (%%rax),%%ebx\n\t"
                     "pushfq\n\tpop %4\n\t"
                     : "=&b"(rbx), "+r"(r12), "+r"(r15), "=&r"(flags_before), "=&r"(flags_after)
                     :
                     : "rax", "cc", "memory");
    YES(rbx == 4242 && r12 == 12 && r15 == 15);
    YES((flags_before & 0xed5) == (flags_after & 0xed5) && (flags_before & 1));
    return (long)rbx;
}

static void scribble(int sig)
{
    (void)sig;
    __asm__ volatile("pxor %%xmm0,%%xmm0\n\tpxor %%xmm7,%%xmm7\n\tpxor %%xmm15,%%xmm15\n\t"
                     "fninit\n\tfldpi\n\tfldpi\n\t" ::: "xmm0", "xmm7", "xmm15");
    unsigned mxcsr = 0x1f80 | 0x8000;
    __asm__ volatile("ldmxcsr %0" ::"m"(mxcsr));
    if (__builtin_cpu_supports("avx"))
        __asm__ volatile("vxorps %%ymm3,%%ymm3,%%ymm3" ::: "xmm3");
}

static void floating_point(void)
{
    uint64_t in[2] = {0x1122334455667788, 0x99aabbccddeeff00}, out[2] = {0, 0}, out15[2] = {0, 0};
    unsigned mxcsr = 0, pid = (unsigned)getpid();
    unsigned short control = 0;
    double top = 0, value = 2.5;
    long r;
    signal(SIGUSR1, scribble);
    __asm__ volatile("movdqu %5,%%xmm0\n\tmovdqu %5,%%xmm15\n\tfldl %6\n\t"
                     "syscall\n\t"
                     "movdqu %%xmm0,%0\n\tmovdqu %%xmm15,%1\n\tstmxcsr %2\n\tfnstcw %3\n\tfstpl %4\n\t"
                     : "=m"(out), "=m"(out15), "=m"(mxcsr), "=m"(control), "=m"(top)
                     : "m"(in), "m"(value), "a"((long)SYS_kill), "D"((long)pid), "S"((long)SIGUSR1)
                     : "rcx", "r11", "xmm0", "xmm15", "memory");
    YES(memcmp(in, out, 16) == 0 && memcmp(in, out15, 16) == 0);
    printf("mxcsr %x, control %x, top %.1f\n", mxcsr & 0xffc0, control, top);
    if (__builtin_cpu_supports("avx")) {
        uint64_t wide[4] = {1, 2, 3, 4}, wide_out[4] = {0};
        __asm__ volatile("vmovdqu %2,%%ymm3\n\tsyscall\n\tvmovdqu %%ymm3,%0"
                         : "=m"(wide_out), "=a"(r)
                         : "m"(wide), "a"((long)SYS_kill), "D"((long)pid), "S"((long)SIGUSR1)
                         : "rcx", "r11", "xmm3", "memory");
        if (r != 0 || memcmp(wide, wide_out, 32) != 0)
            printf("ymm LOST\n");
    }
}

static void on_stack(int sig)
{
    char local;
    (void)sig;
    was_on_alternate = &local >= alternate && &local < alternate + sizeof(alternate);
    sigaltstack(NULL, &in_handler);
}

static void try_change(int sig)
{
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
    (void)sig;
    OK(sigaltstack(&stack, NULL));
}

static void alternate_stack(void)
{
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)}, old;
    OK(sigaltstack(NULL, &old));
    YES(old.ss_flags == SS_DISABLE);
    stack.ss_size = 1000;
    OK(sigaltstack(&stack, NULL));
    stack.ss_size = sizeof(alternate), stack.ss_flags = 77;
    OK(sigaltstack(&stack, NULL));
    stack.ss_flags = 0;
    OK(sigaltstack(&stack, NULL));
    struct sigaction act = {.sa_handler = on_stack, .sa_flags = SA_ONSTACK};
    sigaction(SIGUSR1, &act, NULL);
    raise(SIGUSR1);
    VAL(was_on_alternate);
    VAL(in_handler.ss_flags == SS_ONSTACK && in_handler.ss_sp == alternate && in_handler.ss_size == sizeof(alternate));
    act.sa_flags = 0;
    sigaction(SIGUSR1, &act, NULL);
    raise(SIGUSR1);
    VAL(was_on_alternate);
    act.sa_handler = try_change, act.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &act, NULL);
    raise(SIGUSR1);
    stack.ss_flags = AUTODISARM;
    OK(sigaltstack(&stack, NULL));
    act.sa_handler = on_stack;
    sigaction(SIGUSR1, &act, NULL);
    raise(SIGUSR1);
    YES(was_on_alternate && in_handler.ss_flags == SS_DISABLE);
    OK(sigaltstack(NULL, &old));
    YES(old.ss_sp == alternate && old.ss_flags == AUTODISARM);
    stack.ss_flags = SS_DISABLE;
    OK(sigaltstack(&stack, NULL));
}

static __attribute__((noinline)) int endless(int depth)
{
    volatile char frame[4096];
    frame[0] = (char)depth;
    return depth < INT32_MAX ? endless(depth + 1) + frame[0] : 0;
}

static void survive(int sig, siginfo_t *si, void *context)
{
    (void)si, (void)context;
    _exit(sig == SIGSEGV ? 33 : 34);
}

static int overflow(void)
{
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
    sigaltstack(&stack, NULL);
    handle(SIGSEGV, survive, SA_ONSTACK);
    return endless(0);
}

static int overflow_without(void)
{
    handle(SIGSEGV, survive, 0);
    return endless(0);
}

static void mask_saved(int sig, siginfo_t *si, void *context)
{
    ucontext_t *uc = context;
    (void)sig, (void)si;
    sigaddset(&uc->uc_sigmask, SIGUSR2); /* takes effect at sigreturn */
}

int main(void)
{
    start();
    faults();
    VAL(registers());
    floating_point();
    alternate_stack();
    child("overflow on an alternate stack", overflow);
    child("overflow without one", overflow_without);
    handle(SIGUSR1, mask_saved, 0);
    raise(SIGUSR1);
    sigset_t set;
    sigprocmask(SIG_BLOCK, NULL, &set);
    YES(sigismember(&set, SIGUSR2) && !sigismember(&set, SIGUSR1));
    return 0;
}
