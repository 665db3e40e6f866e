/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ELF64 little-endian file structures (elf(5)). The constants are those of <elf.h>. Any process; the
 * bytes behind these structs come from hostile files.
 */
#pragma once

#include <assert.h>
#include <stdint.h>

struct linux_elf_ehdr {
    uint8_t e_ident[16];
    uint16_t e_type;
    uint16_t e_machine;
    uint32_t e_version;
    uint64_t e_entry;
    uint64_t e_phoff;
    uint64_t e_shoff;
    uint32_t e_flags;
    uint16_t e_ehsize;
    uint16_t e_phentsize;
    uint16_t e_phnum;
    uint16_t e_shentsize;
    uint16_t e_shnum;
    uint16_t e_shstrndx;
};
static_assert(sizeof(struct linux_elf_ehdr) == 64, "elf(5)");

struct linux_elf_phdr {
    uint32_t p_type;
    uint32_t p_flags;
    uint64_t p_offset;
    uint64_t p_vaddr;
    uint64_t p_paddr;
    uint64_t p_filesz;
    uint64_t p_memsz;
    uint64_t p_align;
};
static_assert(sizeof(struct linux_elf_phdr) == 56, "elf(5)");
