/* SPDX-License-Identifier: Apache-2.0 */
/* loader/elf.c: what binfmt_elf.c of Linux accepts, refuses and maps. */
#include "abi/elf.h"
#include "loader/loader.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static struct linux_elf_ehdr ehdr;
static struct linux_elf_phdr phdr[80];
static struct loader_elf elf;

static void setup(void)
{
    memset(phdr, 0, sizeof(phdr));
    ehdr = (struct linux_elf_ehdr){.e_type = ET_EXEC,
                                   .e_machine = EM_X86_64,
                                   .e_entry = 0x401000,
                                   .e_phoff = 64,
                                   .e_phentsize = 56,
                                   .e_phnum = 2};
    memcpy(ehdr.e_ident, ELFMAG, SELFMAG);
    phdr[0] = (struct linux_elf_phdr){.p_type = PT_LOAD,
                                      .p_flags = PF_R | PF_X,
                                      .p_offset = 0,
                                      .p_vaddr = 0x400000,
                                      .p_filesz = 0x1234,
                                      .p_memsz = 0x1234,
                                      .p_align = 0x1000};
    phdr[1] = (struct linux_elf_phdr){.p_type = PT_LOAD,
                                      .p_flags = PF_R | PF_W,
                                      .p_offset = 0x1500,
                                      .p_vaddr = 0x403500,
                                      .p_filesz = 0x100,
                                      .p_memsz = 0x2000,
                                      .p_align = 0x1000};
}

static int plan(uint64_t file_size)
{
    return loader_plan_elf((uint8_t *)&ehdr, sizeof(ehdr), (uint8_t *)phdr, ehdr.e_phnum * 56UL,
                           file_size, &elf);
}

TestSuite(loader_elf, .init = setup);

Test(loader_elf, maps_text_data_and_bss)
{
    cr_assert(eq(int, plan(0x4000), 0));
    cr_assert(eq(sz, elf.segment_count, 3));
    cr_expect(eq(u64, elf.segments[0].vaddr, 0x400000));
    cr_expect(eq(u64, elf.segments[0].size, 0x2000));
    cr_expect(eq(int, elf.segments[0].prot, PROT_READ | PROT_EXEC));
    cr_expect(eq(u64, elf.segments[0].zero_from, 0));
    cr_expect(eq(u64, elf.segments[1].vaddr, 0x403000));
    cr_expect(eq(u64, elf.segments[1].size, 0x1000));
    cr_expect(eq(u64, elf.segments[1].offset, 0x1000));
    cr_expect(eq(u64, elf.segments[1].zero_from, 0x403600));
    cr_expect(elf.segments[2].is_anonymous);
    cr_expect(eq(u64, elf.segments[2].vaddr, 0x404000));
    cr_expect(eq(u64, elf.segments[2].size, 0x2000));
    cr_expect(eq(int, elf.segments[2].prot, PROT_READ | PROT_WRITE));
    cr_expect(eq(u64, elf.low, 0x400000));
    cr_expect(eq(u64, elf.high, 0x406000));
    cr_expect(eq(u64, elf.brk, 0x405500));
    cr_expect(eq(u64, elf.phdr_vaddr, 0x400040));
    cr_expect(eq(u64, elf.entry, 0x401000));
    cr_expect(not(elf.is_pie));
    cr_expect(not(elf.exec_stack));
    cr_expect(eq(u64, elf.interp_size, 0));
}

Test(loader_elf, bss_that_ends_on_its_file_page_needs_no_mapping)
{
    phdr[1].p_memsz = 0x200;
    cr_assert(eq(int, plan(0x4000), 0));
    cr_expect(eq(sz, elf.segment_count, 2));
    cr_expect(eq(u64, elf.segments[1].zero_from, 0x403600));
}

Test(loader_elf, page_aligned_file_end_clears_nothing)
{
    phdr[1].p_filesz = 0xb00;
    cr_assert(eq(int, plan(0x4000), 0));
    cr_expect(eq(u64, elf.segments[1].zero_from, 0));
    cr_expect(eq(u64, elf.segments[2].vaddr, 0x404000));
}

Test(loader_elf, read_only_tail_keeps_the_file_bytes)
{
    phdr[1].p_flags = PF_R;
    cr_assert(eq(int, plan(0x4000), 0));
    cr_expect(eq(u64, elf.segments[1].zero_from, 0));
    cr_expect(eq(int, elf.segments[1].prot, PROT_READ));
    cr_expect(eq(int, elf.segments[2].prot, PROT_READ | PROT_WRITE));
}

Test(loader_elf, pure_bss_segment_is_anonymous_from_its_first_page)
{
    phdr[1].p_filesz = 0;
    phdr[1].p_offset = 0x123456789; /* not looked at */
    phdr[1].p_flags = PF_R | PF_W | PF_X;
    cr_assert(eq(int, plan(0x4000), 0));
    cr_assert(eq(sz, elf.segment_count, 2));
    cr_expect(elf.segments[1].is_anonymous);
    cr_expect(eq(u64, elf.segments[1].vaddr, 0x403000));
    cr_expect(eq(u64, elf.segments[1].size, 0x3000));
    cr_expect(eq(int, elf.segments[1].prot, PROT_READ | PROT_WRITE | PROT_EXEC));
}

Test(loader_elf, unordered_segments_come_out_sorted)
{
    struct linux_elf_phdr first = phdr[0];
    phdr[0] = phdr[1];
    phdr[1] = first;
    cr_assert(eq(int, plan(0x4000), 0));
    cr_assert(eq(sz, elf.segment_count, 3));
    cr_expect(eq(u64, elf.segments[0].vaddr, 0x400000));
    cr_expect(eq(u64, elf.segments[2].vaddr, 0x404000));
}

Test(loader_elf, later_segment_wins_a_shared_page)
{
    phdr[1].p_vaddr = 0x401500;
    cr_assert(eq(int, plan(0x4000), 0));
    cr_assert(eq(sz, elf.segment_count, 3));
    cr_expect(eq(u64, elf.segments[0].size, 0x1000));
    cr_expect(eq(u64, elf.segments[1].vaddr, 0x401000));
}

Test(loader_elf, refuses_overlapping_bytes)
{
    phdr[1].p_vaddr = 0x400500;
    cr_expect(eq(int, plan(0x4000), -ENOEXEC));
}

Test(loader_elf, refuses_huge_and_wrapping_segments)
{
    phdr[1].p_memsz = LOADER_TASK_SIZE;
    cr_expect(eq(int, plan(0x4000), -EINVAL));
    phdr[1].p_memsz = UINT64_MAX;
    cr_expect(eq(int, plan(0x4000), -EINVAL));
    phdr[1].p_memsz = 0x10; /* less than filesz */
    cr_expect(eq(int, plan(0x4000), -EINVAL));
    phdr[1].p_memsz = 0x2000;
    phdr[1].p_vaddr = LOADER_TASK_SIZE + 0x500;
    cr_expect(eq(int, plan(0x4000), -EINVAL));
    phdr[1].p_vaddr = LOADER_TASK_SIZE - 0x2b00;
    phdr[1].p_memsz = 0x2b00; /* to the very end */
    cr_expect(eq(int, plan(0x4000), 0));
    cr_expect(eq(u64, elf.high, LOADER_TASK_SIZE));
}

Test(loader_elf, refuses_an_offset_that_does_not_fit_its_address)
{
    phdr[1].p_offset = 0x1501;
    cr_expect(eq(int, plan(0x4000), -EINVAL));
}

Test(loader_elf, refuses_pages_beyond_the_file)
{
    cr_expect(eq(int, plan(0x1510), 0), "the rest of the last page reads as zeros");
    cr_expect(eq(int, plan(0x1500), -ENOEXEC));
    cr_expect(eq(int, plan(0x1000), -ENOEXEC));
    phdr[1].p_offset = UINT64_MAX - 0xaff;
    cr_expect(eq(int, plan(0x4000), -ENOEXEC));
    cr_expect(eq(int, plan(UINT64_MAX), -ENOEXEC));
}

Test(loader_elf, refuses_a_file_without_segments)
{
    phdr[0].p_type = phdr[1].p_type = PT_NOTE;
    cr_expect(eq(int, plan(0x4000), -EINVAL));
    phdr[0] = (struct linux_elf_phdr){.p_type = PT_LOAD};
    cr_expect(eq(int, plan(0x4000), -EINVAL));
}

Test(loader_elf, refuses_an_entry_outside_the_task)
{
    ehdr.e_entry = LOADER_TASK_SIZE;
    cr_expect(eq(int, plan(0x4000), -EINVAL));
}

Test(loader_elf, limits_the_number_of_segments)
{
    ehdr.e_phnum = LOADER_SEGMENTS_MAX;
    for (size_t i = 0; i < 80; i++)
        phdr[i] = (struct linux_elf_phdr){
            .p_type = PT_LOAD, .p_vaddr = 0x400000 + i * 0x2000, .p_filesz = 8, .p_memsz = 8};
    cr_assert(eq(int, plan(0x1000), 0));
    cr_expect(eq(sz, elf.segment_count, LOADER_SEGMENTS_MAX));
    ehdr.e_phnum++;
    cr_expect(eq(int, plan(0x1000), -ENOEXEC));
}

Test(loader_elf, knows_pie_alignment_and_stack_flags)
{
    ehdr.e_type = ET_DYN;
    ehdr.e_phnum = 4;
    phdr[0].p_align = 0x200000;
    phdr[1].p_align = 0x300000; /* no power of two: ignored */
    phdr[2].p_type = PT_GNU_STACK;
    phdr[2].p_flags = PF_R | PF_W;
    phdr[3].p_type = PT_GNU_STACK;
    phdr[3].p_flags = PF_R | PF_W | PF_X;
    cr_assert(eq(int, plan(0x4000), 0));
    cr_expect(elf.is_pie);
    cr_expect(elf.exec_stack, "the last one counts");
    cr_expect(eq(u64, elf.align, 0x200000));
}

Test(loader_elf, finds_the_first_interpreter)
{
    ehdr.e_phnum = 4;
    phdr[2] = (struct linux_elf_phdr){.p_type = PT_INTERP, .p_offset = 0x200, .p_filesz = 28};
    phdr[3] = (struct linux_elf_phdr){.p_type = PT_INTERP, .p_offset = 0x300, .p_filesz = 1};
    cr_assert(eq(int, plan(0x4000), 0));
    cr_expect(eq(u64, elf.interp_offset, 0x200));
    cr_expect(eq(u64, elf.interp_size, 28));
    phdr[2].p_filesz = 1;
    cr_expect(eq(int, plan(0x4000), -ENOEXEC));
    phdr[2].p_filesz = 4097;
    cr_expect(eq(int, plan(0x4000), -ENOEXEC));
    phdr[2].p_filesz = 28;
    phdr[2].p_offset = 0x3ff0;
    cr_expect(eq(int, plan(0x4000), -EIO));
    phdr[2].p_offset = UINT64_MAX;
    cr_expect(eq(int, plan(0x4000), -EIO));
}

Test(loader_elf, interpreter_name_must_be_terminated)
{
    cr_expect(eq(int, loader_check_interp((const uint8_t *)"/lib/ld", 8), 0));
    cr_expect(eq(int, loader_check_interp((const uint8_t *)"/lib/ld", 7), -ENOEXEC));
    cr_expect(eq(int, loader_check_interp((const uint8_t *)"", 1), -ENOEXEC));
    cr_expect(eq(int, loader_check_interp((const uint8_t *)"", 0), -ENOEXEC));
}

Test(loader_elf, headers_must_be_ours_and_in_the_file)
{
    uint64_t offset = 7;
    size_t size = 7;
    const uint8_t *head = (const uint8_t *)&ehdr;
    cr_assert(eq(int, loader_parse_ehdr(head, 64, 64 + 112, &offset, &size), 0));
    cr_expect(eq(u64, offset, 64));
    cr_expect(eq(sz, size, 112));
    cr_expect(eq(int, loader_parse_ehdr(head, 64, 64 + 111, &offset, &size), -ENOEXEC));
    cr_expect(eq(int, loader_parse_ehdr(head, 17, 4096, &offset, &size), -ENOEXEC), "truncated");
    ehdr.e_phoff = UINT64_MAX;
    cr_expect(eq(int, loader_parse_ehdr(head, 64, UINT64_MAX, &offset, &size), -ENOEXEC));
    setup();
    ehdr.e_machine = EM_AARCH64;
    cr_expect(eq(int, loader_parse_ehdr(head, 64, 4096, &offset, &size), -ENOEXEC));
    setup();
    ehdr.e_type = ET_REL;
    cr_expect(eq(int, loader_parse_ehdr(head, 64, 4096, &offset, &size), -ENOEXEC));
    setup();
    ehdr.e_phentsize = 32;
    cr_expect(eq(int, loader_parse_ehdr(head, 64, 4096, &offset, &size), -ENOEXEC));
    setup();
    ehdr.e_phnum = 0;
    cr_expect(eq(int, loader_parse_ehdr(head, 64, 4096, &offset, &size), -ENOEXEC));
    ehdr.e_phnum = LOADER_PHDRS_MAX;
    cr_expect(eq(int, loader_parse_ehdr(head, 64, 1 << 20, &offset, &size), 0));
    ehdr.e_phnum++;
    cr_expect(eq(int, loader_parse_ehdr(head, 64, 1 << 20, &offset, &size), -ENOEXEC));
    ehdr.e_ident[0] = 0;
    cr_expect(eq(int, loader_parse_ehdr(head, 64, 1 << 20, &offset, &size), -ENOEXEC));
}
