# SPDX-License-Identifier: Apache-2.0
set(ptrace_sources
    ptrace/events.c
    ptrace/memory.c
    ptrace/orders.c
    ptrace/platform.c
    ptrace/setup.c
    ptrace/space.c
    ptrace/stub_image_asm.S
    ptrace/tracee.c
    ptrace/xstate.c)
bailey_test(ptrace_platform_test USES platform)
