/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of a stub's address space that belongs to the platform: guests map below STUB_BASE only.
 * Read by C and by the assembler.
 */
#pragma once

#define STUB_BASE 0x7fff80000000
#define STUB_CODE 0x7fff80010000
#define STUB_VDSO_LOW 0x7fffc0000000  /* vvar and vDSO: at an offset chosen for each sandbox */
#define STUB_VDSO_HIGH 0x7fffe0000000
#define STUB_USER_END 0x7ffffffff000

/* Drills: with platform_config.open_filter a guest call with this as argument 5 runs on the host. */
#define STUB_OPEN_MAGIC 0x6f70656e
