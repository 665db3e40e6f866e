# SPDX-License-Identifier: Apache-2.0
# The stub is a program of its own: freestanding, without our flags and sanitizers.
add_executable(systrap_stub systrap/stub/entry.S systrap/stub/start.c)
set_target_properties(systrap_stub PROPERTIES POSITION_INDEPENDENT_CODE OFF
    C_STANDARD 11 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}
    LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/systrap/stub/stub.ld)
target_compile_options(systrap_stub PRIVATE
    $<$<COMPILE_LANGUAGE:C>:-O2 -ffreestanding -fno-builtin -fno-stack-protector -fpie
    -fcf-protection=branch -fno-asynchronous-unwind-tables -fno-sanitize=all -mgeneral-regs-only
    -Wall -Wextra>)
target_link_options(systrap_stub PRIVATE -nostdlib -static -fno-sanitize=all
    -Wl,--build-id=none -Wl,-z,max-page-size=4096 -Wl,-z,noexecstack
    -Wl,-T,${CMAKE_CURRENT_SOURCE_DIR}/systrap/stub/stub.ld)

set_source_files_properties(systrap/embed_asm.S PROPERTIES
    COMPILE_DEFINITIONS "SYSTRAP_STUB_FILE=\"${CMAKE_CURRENT_BINARY_DIR}/systrap_stub\""
    OBJECT_DEPENDS ${CMAKE_CURRENT_BINARY_DIR}/systrap_stub)
set(systrap_sources
    systrap/embed_asm.S
    systrap/frame.c
    systrap/notify.c
    systrap/order.c
    systrap/space.c
    systrap/systrap.c
    systrap/template.c
    systrap/worker.c)
