/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ELF64 executables and interpreters: from headers to a plan of mappings. Behaves as
 * fs/binfmt_elf.c of Linux, which looks at fewer fields than elf(5) describes (class, data encoding
 * and version are not checked). Runs in the sentry; every byte is hostile: headers are copied into
 * structs once, and each sum is checked before it's formed.
 */
#include "abi/elf.h"
#include "loader/loader.h"

#include <elf.h>
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_OFFSET(x)  ((x) & (PAGE_SIZE - 1))
#define INTERP_SIZE_MIN 2

static int read_ehdr(const uint8_t *head, size_t size, struct linux_elf_ehdr *ret)
{
    struct linux_elf_ehdr ehdr = {0}; /* a shorter file reads as if zeros followed */
    memcpy(&ehdr, head, size < sizeof(ehdr) ? size : sizeof(ehdr));
    if (memcmp(ehdr.e_ident, ELFMAG, SELFMAG) != 0)
        return -ENOEXEC;
    if (ehdr.e_type != ET_EXEC && ehdr.e_type != ET_DYN)
        return -ENOEXEC;
    if (ehdr.e_machine != EM_X86_64)
        return -ENOEXEC;
    if (ehdr.e_phentsize != sizeof(struct linux_elf_phdr))
        return -ENOEXEC;
    if (ehdr.e_phnum == 0 || ehdr.e_phnum > LOADER_PHDRS_MAX)
        return -ENOEXEC;
    *ret = ehdr;
    return 0;
}

int loader_parse_ehdr(const uint8_t *head, size_t size, uint64_t file_size,
                      uint64_t *ret_phdr_offset, size_t *ret_phdr_size)
{
    struct linux_elf_ehdr ehdr;
    int err = read_ehdr(head, size, &ehdr);
    if (err < 0)
        return err;
    size_t phdr_size = ehdr.e_phnum * sizeof(struct linux_elf_phdr);
    if (ehdr.e_phoff > file_size || phdr_size > file_size - ehdr.e_phoff)
        return -ENOEXEC;
    *ret_phdr_offset = ehdr.e_phoff;
    *ret_phdr_size = phdr_size;
    return 0;
}

static struct linux_elf_phdr read_phdr(const uint8_t *phdrs, size_t index)
{
    struct linux_elf_phdr phdr;
    memcpy(&phdr, phdrs + index * sizeof(phdr), sizeof(phdr));
    return phdr;
}

/* Only the first PT_INTERP counts. */
static int plan_interp(const struct linux_elf_phdr *phdr, uint64_t file_size,
                       struct loader_elf *elf)
{
    if (elf->interp_size != 0)
        return 0;
    if (phdr->p_filesz < INTERP_SIZE_MIN || phdr->p_filesz > LOADER_INTERP_MAX)
        return -ENOEXEC;
    if (phdr->p_offset > file_size || phdr->p_filesz > file_size - phdr->p_offset)
        return -EIO;
    elf->interp_offset = phdr->p_offset;
    elf->interp_size = phdr->p_filesz;
    return 0;
}

/* A PT_LOAD whose sums below can't wrap, whose addresses are in the task, whose pages are in the
 * file. */
static int check_load(const struct linux_elf_phdr *phdr, uint64_t file_size)
{
    if (phdr->p_vaddr >= LOADER_TASK_SIZE || phdr->p_filesz > phdr->p_memsz ||
        phdr->p_memsz > LOADER_TASK_SIZE - phdr->p_vaddr)
        return -EINVAL;
    if (phdr->p_filesz == 0)
        return 0;
    if (PAGE_OFFSET(phdr->p_offset) != PAGE_OFFSET(phdr->p_vaddr))
        return -EINVAL;
    /* Linux maps pages beyond the file and the program dies of SIGBUS; such a file is truncated.
     * The rest of the file's last page is fine: it reads as zeros. */
    if (file_size > INT64_MAX || phdr->p_offset >= file_size ||
        phdr->p_filesz > PAGE_UP(file_size) - phdr->p_offset)
        return -ENOEXEC;
    return 0;
}

static int prot_of(uint32_t flags)
{
    return (flags & PF_R ? PROT_READ : 0) | (flags & PF_W ? PROT_WRITE : 0) |
           (flags & PF_X ? PROT_EXEC : 0);
}

/* Appends a mapping. Where two share a page the later one has it, as with MAP_FIXED. */
static int append_segment(struct loader_elf *elf, const struct loader_segment *segment)
{
    if (elf->segment_count > 0) {
        struct loader_segment *last = &elf->segments[elf->segment_count - 1];
        if (segment->vaddr < last->vaddr)
            return -ENOEXEC;
        if (segment->vaddr < last->vaddr + last->size) {
            last->size = segment->vaddr - last->vaddr;
            last->zero_from = 0; /* the bytes to clear were in its last page */
            if (last->size == 0)
                elf->segment_count--;
        }
    }
    if (elf->segment_count == LOADER_SEGMENTS_MAX)
        return -ENOEXEC;
    elf->segments[elf->segment_count++] = *segment;
    return 0;
}

/* The pages of a PT_LOAD that come from the file, then those of its bss. */
static int plan_load(struct loader_elf *elf, const struct linux_elf_phdr *phdr)
{
    uint64_t start = PAGE_DOWN(phdr->p_vaddr);
    uint64_t file_end = phdr->p_vaddr + phdr->p_filesz;
    uint64_t anonymous = start;
    if (phdr->p_filesz > 0) {
        struct loader_segment segment = {
            .vaddr = start,
            .size = PAGE_UP(file_end) - start,
            .offset = PAGE_DOWN(phdr->p_offset),
            .prot = prot_of(phdr->p_flags),
        };
        if (phdr->p_memsz > phdr->p_filesz && PAGE_OFFSET(file_end) != 0 && (phdr->p_flags & PF_W))
            segment.zero_from = file_end;
        int err = append_segment(elf, &segment);
        if (err < 0)
            return err;
        anonymous = PAGE_UP(file_end);
    }
    uint64_t end = PAGE_UP(phdr->p_vaddr + phdr->p_memsz);
    if (anonymous >= end)
        return 0;
    struct loader_segment bss = {
        .vaddr = anonymous,
        .size = end - anonymous,
        .prot = PROT_READ | PROT_WRITE |
                (phdr->p_flags & PF_X ? PROT_EXEC : 0), /* whatever PF_R, PF_W */
        .is_anonymous = true,
    };
    return append_segment(elf, &bss);
}

/* The PT_LOAD that follows `*index` in order of address (ties: of headers); false after the last.
 * Files in the wild have unordered ones. Empty ones don't count. */
static bool next_load(const uint8_t *phdrs, size_t count, size_t *index,
                      struct linux_elf_phdr *load)
{
    bool found = false;
    size_t best_index = 0;
    struct linux_elf_phdr best = {0};
    for (size_t i = 0; i < count; i++) {
        struct linux_elf_phdr phdr = read_phdr(phdrs, i);
        if (phdr.p_type != PT_LOAD || phdr.p_memsz == 0)
            continue;
        if (*index < count &&
            (phdr.p_vaddr < load->p_vaddr || (phdr.p_vaddr == load->p_vaddr && i <= *index)))
            continue;
        if (found && phdr.p_vaddr >= best.p_vaddr)
            continue;
        found = true;
        best_index = i;
        best = phdr;
    }
    *index = best_index;
    *load = best;
    return found;
}

/* Segments of all loads, which check_load() accepted; bytes that two of them claim are refused. */
static int plan_loads(struct loader_elf *elf, const uint8_t *phdrs, size_t count)
{
    struct linux_elf_phdr load = {0};
    size_t index = count; /* none yet */
    while (next_load(phdrs, count, &index, &load)) {
        if (load.p_vaddr < elf->brk)
            return -ENOEXEC;
        int err = plan_load(elf, &load);
        if (err < 0)
            return err;
        elf->brk = load.p_vaddr + load.p_memsz;
    }
    if (elf->segment_count == 0)
        return -EINVAL;
    elf->low = elf->segments[0].vaddr;
    elf->high = PAGE_UP(elf->brk);
    return 0;
}

/* What every PT_LOAD tells beside its mapping: where the headers are seen, and the alignment. */
static void note_load(struct loader_elf *elf, const struct linux_elf_ehdr *ehdr,
                      const struct linux_elf_phdr *phdr)
{
    if (phdr->p_offset <= ehdr->e_phoff && ehdr->e_phoff - phdr->p_offset < phdr->p_filesz)
        elf->phdr_vaddr = ehdr->e_phoff - phdr->p_offset + phdr->p_vaddr;
    bool is_power_of_two = phdr->p_align != 0 && (phdr->p_align & (phdr->p_align - 1)) == 0;
    if (is_power_of_two && phdr->p_align > elf->align)
        elf->align = phdr->p_align;
}

/* Checks every header and notes everything but the segments. */
static int read_phdrs(struct loader_elf *elf, const struct linux_elf_ehdr *ehdr,
                      const uint8_t *phdrs, uint64_t file_size)
{
    for (size_t i = 0; i < ehdr->e_phnum; i++) {
        struct linux_elf_phdr phdr = read_phdr(phdrs, i);
        int err = 0;
        if (phdr.p_type == PT_INTERP)
            err = plan_interp(&phdr, file_size, elf);
        if (phdr.p_type == PT_GNU_STACK)
            elf->exec_stack = (phdr.p_flags & PF_X) != 0;
        if (phdr.p_type == PT_LOAD)
            err = check_load(&phdr, file_size);
        if (err < 0)
            return err;
        if (phdr.p_type == PT_LOAD)
            note_load(elf, ehdr, &phdr);
    }
    return 0;
}

int loader_plan_elf(const uint8_t *head, size_t head_size, const uint8_t *phdrs, size_t phdrs_size,
                    uint64_t file_size, struct loader_elf *ret)
{
    struct linux_elf_ehdr ehdr;
    int err = read_ehdr(head, head_size, &ehdr);
    if (err < 0)
        return err;
    if (phdrs_size != ehdr.e_phnum * sizeof(struct linux_elf_phdr))
        return -ENOEXEC;

    memset(ret, 0, sizeof(*ret)); /* no compound literal: it would be 3 KiB of a fiber's stack */
    ret->is_pie = ehdr.e_type == ET_DYN;
    ret->entry = ehdr.e_entry;
    ret->phdr_count = ehdr.e_phnum;
    ret->align = PAGE_SIZE;
    err = read_phdrs(ret, &ehdr, phdrs, file_size);
    if (err < 0)
        return err;
    if (ret->interp_size == 0 && ehdr.e_entry >= LOADER_TASK_SIZE)
        return -EINVAL;
    return plan_loads(ret, phdrs, ehdr.e_phnum);
}

int loader_check_interp(const uint8_t *bytes, size_t size)
{
    if (size < INTERP_SIZE_MIN || size > LOADER_INTERP_MAX || bytes[size - 1] != '\0')
        return -ENOEXEC;
    return 0;
}
