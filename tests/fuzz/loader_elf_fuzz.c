/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as an executable file: the loader accepts or refuses them, and what it accepts keeps
 * the promises of loader.h that the sentry relies on when it maps.
 */
#include "loader/loader.h"

#include <stdlib.h>
#include <sys/mman.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool condition)
{
    if (!condition)
        abort();
}

static void check_segment(const struct loader_elf *elf, size_t i, uint64_t file_size)
{
    const struct loader_segment *s = &elf->segments[i];
    require(s->size > 0 && s->vaddr % PAGE_SIZE == 0 && s->size % PAGE_SIZE == 0);
    require(s->vaddr < LOADER_TASK_SIZE && s->size <= LOADER_TASK_SIZE - s->vaddr);
    require(s->vaddr >= elf->low && s->vaddr + s->size <= elf->high);
    require((s->prot & ~(PROT_READ | PROT_WRITE | PROT_EXEC)) == 0);
    if (i > 0)
        require(s->vaddr >= elf->segments[i - 1].vaddr + elf->segments[i - 1].size);
    if (!s->is_anonymous) {
        require(s->offset % PAGE_SIZE == 0 && s->offset < file_size);
        require(s->size <= PAGE_UP(file_size) - s->offset);
    }
    if (s->zero_from != 0) {
        require(!s->is_anonymous && (s->prot & PROT_WRITE));
        require(s->zero_from > s->vaddr + s->size - PAGE_SIZE && s->zero_from < s->vaddr + s->size);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    static struct loader_elf elf;
    size_t head_size = size < LOADER_HEAD_SIZE ? size : LOADER_HEAD_SIZE;
    enum loader_kind kind;
    uint64_t offset;
    size_t phdrs_size;

    if (loader_identify(bytes, head_size, &kind) < 0 || kind != LOADER_ELF)
        return 0;
    if (loader_parse_ehdr(bytes, head_size, size, &offset, &phdrs_size) < 0)
        return 0;
    require(phdrs_size <= (size_t)LOADER_PHDRS_MAX * 56 && offset + phdrs_size <= size);
    /* Once with the true size, once as the head of a larger file: more plans are accepted then. */
    const uint64_t file_sizes[] = {size, size + UINT32_MAX};
    for (size_t k = 0; k < ARRAY_COUNT(file_sizes); k++) {
        uint64_t file_size = file_sizes[k];
        if (loader_plan_elf(bytes, head_size, bytes + offset, phdrs_size, file_size, &elf) < 0)
            continue;
        require(elf.segment_count > 0 && elf.segment_count <= LOADER_SEGMENTS_MAX);
        require(elf.low < elf.high && elf.high <= LOADER_TASK_SIZE && elf.brk <= elf.high);
        require(elf.align >= PAGE_SIZE && (elf.align & (elf.align - 1)) == 0);
        for (size_t i = 0; i < elf.segment_count; i++)
            check_segment(&elf, i, file_size);
        require(elf.interp_size <= LOADER_INTERP_MAX);
        if (elf.interp_size == 0)
            continue;
        require(elf.interp_offset + elf.interp_size <= file_size);
        if (elf.interp_offset + elf.interp_size <= size &&
            loader_check_interp(bytes + elf.interp_offset, elf.interp_size) == 0)
            require(bytes[elf.interp_offset + elf.interp_size - 1] == '\0');
    }
    return 0;
}
