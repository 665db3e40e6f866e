/* SPDX-License-Identifier: Apache-2.0 */
/* The stub's ELF image, from which templates are started. */
    .section .rodata, "a", @progbits
    .balign 16
    .globl systrap_stub_image, systrap_stub_image_end
    .hidden systrap_stub_image, systrap_stub_image_end
systrap_stub_image:
    .incbin SYSTRAP_STUB_FILE
systrap_stub_image_end:
    .section .note.GNU-stack, "", @progbits
