/* SPDX-License-Identifier: Apache-2.0 */
/* Terminal structures of x86-64. Source: asm-generic/termbits.h, asm-generic/termios.h. */
#pragma once

#include <assert.h>
#include <stdint.h>

#define LINUX_NCCS 19

struct linux_termios2 {
    uint32_t iflag, oflag, cflag, lflag;
    uint8_t line;
    uint8_t cc[LINUX_NCCS];
    uint32_t ispeed, ospeed;
};
static_assert(sizeof(struct linux_termios2) == 44, "termios2");
#define LINUX_TERMIOS_SIZE 36 /* struct termios: the same without the speeds */

struct linux_winsize {
    uint16_t rows, cols, xpixel, ypixel;
};

#define LINUX_TCGETS2 0x802C542AU
#define LINUX_TCSETS2 0x402C542BU
#define LINUX_TCSETSW2 0x402C542CU
#define LINUX_TCSETSF2 0x402C542DU
