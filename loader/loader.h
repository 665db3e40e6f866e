/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The loader: from the bytes of an executable to a plan of mappings. Pure: no side effects, no guest
 * memory, no file access; every byte it reads is hostile. It runs in the sentry and under its fuzzer.
 * Sources: elf(5), System V ABI AMD64 chapter 3 and 5, execve(2), Linux fs/binfmt_elf.c and
 * fs/binfmt_script.c for behaviour.
 */
#pragma once

#include "abi/guest_addr.h"
#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The first bytes of a file that are enough for every decision but the program headers. */
#define LOADER_HEAD_SIZE 256
#define LOADER_PHDRS_MAX 1170          /* program headers we accept: 64 KiB / 56 rounded down, as Linux */
#define LOADER_SEGMENTS_MAX 64         /* mappings of one object */
#define LOADER_INTERP_MAX 4096         /* PATH_MAX */
#define LOADER_SCRIPT_DEPTH_MAX 5      /* execve(2): nested interpreters; beyond it ELOOP */
#define LOADER_TASK_SIZE 0x7ffffffff000UL /* end of the guest's address space (4-level x86-64) */

enum loader_kind { LOADER_SCRIPT, LOADER_ELF };

struct loader_script {
    char interpreter[LOADER_HEAD_SIZE];
    char argument[LOADER_HEAD_SIZE]; /* "" if there's none; an argument may be "" too */
    bool has_argument;
};

struct loader_segment {
    uint64_t vaddr;       /* page-aligned, before the load bias is added */
    uint64_t size;        /* bytes, multiple of a page */
    uint64_t offset;      /* page-aligned file offset; unused if anonymous */
    int prot;             /* PROT_* */
    bool is_anonymous;    /* bss pages beyond the file */
    uint64_t zero_from;   /* vaddr from which to the segment's end (same page) bytes are cleared;
                           * 0 = nothing. Only in writable segments: in others the file's bytes stay. */
};

struct loader_elf {
    bool is_pie;          /* ET_DYN: needs a load bias */
    bool exec_stack;      /* PT_GNU_STACK with PF_X (or none: Linux's default for x86-64 is no exec) */
    uint64_t entry, phdr_vaddr; /* before the bias; phdr_vaddr 0 if no segment holds the headers */
    uint16_t phdr_count;
    uint64_t low, high;   /* the span of all segments, page-aligned, before the bias */
    uint64_t align;       /* largest p_align that is a power of two, at least a page; up to 2^63 */
    uint64_t brk;         /* end of the last segment's memory, before the bias, not rounded */
    size_t segment_count;
    struct loader_segment segments[LOADER_SEGMENTS_MAX]; /* ascending, disjoint */
    /* PT_INTERP: where its string lies in the file; size 0 if there's none. */
    uint64_t interp_offset;
    uint64_t interp_size;
};

/* What kind of file starts with these bytes: -ENOEXEC if neither. */
MUST_CHECK int loader_identify(const uint8_t *head, size_t size, enum loader_kind *ret_kind);
/* `#!` line: 0; -ENOEXEC if malformed (no interpreter, line truncated inside the interpreter). The
 * interpreter may be "" when a NUL follows `#!`: the caller answers EACCES, as Linux, which opens the
 * working directory then. */
MUST_CHECK int loader_parse_script(const uint8_t *head, size_t size, struct loader_script *ret);
/* Where the program headers are, so that the caller can read them: -ENOEXEC for another architecture
 * or type, or a header that lies. `*ret_size` is at most LOADER_PHDRS_MAX * 56. Of an interpreter
 * (PT_INTERP) the caller answers -ELIBBAD instead of -ENOEXEC. */
MUST_CHECK int loader_parse_ehdr(const uint8_t *head, size_t size, uint64_t file_size,
                                 uint64_t *ret_phdr_offset, size_t *ret_phdr_size);
/* The plan. `phdrs` are the bytes found by loader_parse_ehdr(). -EINVAL as Linux for huge or wrapping
 * segments, offsets that don't fit their address, nothing to load, an entry outside the task;
 * -ENOEXEC for overlapping segments, more than LOADER_SEGMENTS_MAX, pages beyond `file_size`;
 * -EIO if the interpreter's name lies beyond it. `*ret` is garbage on failure. The caller checks
 * entry + bias again. */
MUST_CHECK int loader_plan_elf(const uint8_t *head, size_t head_size, const uint8_t *phdrs,
                               size_t phdrs_size, uint64_t file_size, struct loader_elf *ret);
/* Checks the PT_INTERP bytes, then a C string of at most `size` - 1 bytes: 0 or -ENOEXEC if they don't
 * end in NUL. The string may be shorter; when it's empty the caller answers EACCES. */
MUST_CHECK int loader_check_interp(const uint8_t *bytes, size_t size);

/* ---- initial stack ----------------------------------------------------------------------------- */

struct loader_auxv {
    uint64_t type, value;
};
#define LOADER_AUXV_MAX 32

struct loader_stack_input {
    const char *const *argv; /* argc strings, borrowed */
    size_t argc;
    const char *const *envp;
    size_t envc;
    const char *execfn;      /* AT_EXECFN */
    uint8_t random[16];      /* AT_RANDOM */
    /* Everything but RANDOM, EXECFN, PLATFORM and NULL, which loader_build_stack() adds. */
    const struct loader_auxv *auxv;
    size_t auxv_count;
    uint64_t top;            /* page-aligned end of the stack mapping; the image ends 8 bytes below */
};
/* What `limit` is for this RLIMIT_STACK: a quarter of it, at most 6 MiB, at least 128 KiB. */
uint64_t loader_stack_limit(uint64_t rlimit_stack);
/* Bytes that the image needs (a multiple of 16), or -E2BIG when strings and their pointers exceed
 * `limit` or one string is longer than 128 KiB (MAX_ARG_STRLEN); -EINVAL if `auxv_count` is more than
 * LOADER_AUXV_MAX - 4. An empty argv becomes {""}, as on Linux since 5.18. */
MUST_CHECK int loader_stack_size(const struct loader_stack_input *in, uint64_t limit, uint64_t *ret);
/* Writes the image, which will lie at [top - size, top), into `image` of exactly loader_stack_size()
 * bytes. `*ret_sp`: initial rsp, 16-byte aligned. `*ret_arg_start` … : what /proc/PID/stat tells. */
struct loader_stack_layout {
    uint64_t sp, arg_start, arg_end, env_start, env_end, auxv_start, auxv_size;
};
void loader_build_stack(const struct loader_stack_input *in, uint8_t *image, uint64_t size,
                        struct loader_stack_layout *ret);
