/* SPDX-License-Identifier: Apache-2.0 */
/* sentry/mm: Linux's rules for arguments, limits, files and joins. */
#include "tests/unit/mm_fixture.h"

#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 3
#endif

TestSuite(mm_rules, .init = setup, .fini = teardown);

Test(mm_rules, mmap_refuses_as_linux_does)
{
    file = fake_object(9, true, true);
    struct mappable *m = &file.mappable;
    IS(mm_mmap(g_mm, &g_thread, &g_limits, GUEST_NULL, 0, rw, MAP_PRIVATE, NULL, 0), -EINVAL);
    IS(mm_mmap(g_mm, &g_thread, &g_limits, GUEST_NULL, -PAGE_SIZE + 1, rw, MAP_PRIVATE, NULL, 0),
       -ENOMEM);
    IS(mm_mmap(g_mm, &g_thread, &g_limits, GUEST_NULL, -PAGE_SIZE, rw, MAP_PRIVATE, NULL, 0),
       -ENOMEM);
    IS(mm_mmap(g_mm, &g_thread, &g_limits, GUEST_ADDR(12345), 1, rw, MAP_PRIVATE | MAP_FIXED, NULL,
               0),
       -EINVAL);
    IS(mm_mmap(g_mm, &g_thread, &g_limits, GUEST_NULL, 1, rw, MAP_SHARED, m, 7), -EINVAL);
    IS(mm_mmap(g_mm, &g_thread, &g_limits, GUEST_NULL, 1, rw, MAP_SHARED, m, INT64_MAX - 4095),
       -EOVERFLOW);
    IS(map(0, 1, rw, MAP_ANONYMOUS, NULL, 0), -EINVAL);
    IS(map(0, 1, rw, MAP_SHARED_VALIDATE | MAP_SYNC, m, 0), -EOPNOTSUPP);
    IS(map(0, 1, rw, MAP_SHARED_VALIDATE, m, 0), FAKE_PAGES - 1);
    IS(map(0, 1, rw, MAP_SHARED_VALIDATE | MAP_ANONYMOUS, NULL, 0), -EINVAL);
    IS(map_anon(0, 1, rw, MAP_HUGETLB), -ENOMEM);
    IS(map(0, 1, rw, MAP_PRIVATE | MAP_HUGETLB, m, 0), -EINVAL);
    IS(map(0, 1, rw, MAP_PRIVATE | MAP_GROWSDOWN, m, 0), -EINVAL);
    IS(map_anon(1, 1, rw, MAP_FIXED), -EPERM);
    IS(map_anon(FAKE_PAGES - 1, 2, rw, MAP_FIXED), -ENOMEM);
    IS(map_anon(0, FAKE_PAGES + 1, rw, 0), -ENOMEM);
    IS(map_anon(FAKE_PAGES - 3, 3, rw, MAP_FIXED_NOREPLACE), -EEXIST);
    IS(map(0, 1, PROT_READ, 0x08 /* MAP_DROPPABLE */ | MAP_ANONYMOUS, NULL, 0), FAKE_PAGES - 2);
    cr_expect(vma_at(FAKE_PAGES - 2).wipe_on_fork);
    IS(vma_at(FAKE_PAGES - 2).flags & MAP_TYPE, MAP_PRIVATE);
}

Test(mm_rules, places_go_top_down_and_hints_are_honoured_when_free)
{
    IS(map_anon(0, 1, rw, 0), FAKE_PAGES - 1);
    IS(map_anon(0, 2, rw, 0), FAKE_PAGES - 3);
    IS(map_anon(500, 2, rw, 0), 500);
    IS(map_anon(501, 2, rw, 0), FAKE_PAGES - 5);
    IS(map_anon(3, 1, rw, 0), FAKE_MIN);
    IS(unmap(FAKE_PAGES - 2, 1), 0);
    IS(map_anon(0, 1, rw, 0), FAKE_PAGES - 2);
    /* Multiples of 2 MiB are aligned, other large ones not. */
    IS(map_anon(0, 512, rw, 0), FAKE_PAGES - 1024);
    IS(map_anon(0, 513, rw, 0), FAKE_PAGES - 1024 - 513);
    file = fake_object(9, true, true);
    IS(map(0, 512, rw, MAP_SHARED, &file.mappable, 0), FAKE_PAGES - 1024 - 513 - 512);
}

Test(mm_rules, a_growing_stack_keeps_others_away)
{
    map_anon(2000, 4, rw, MAP_FIXED | MAP_GROWSDOWN);
    map_anon(2004, FAKE_PAGES - 2004, PROT_NONE, MAP_FIXED);
    IS(map_anon(0, 1, rw, 0), 2000 - 257);
    IS(map_anon(1900, 1, rw, 0), 2000 - 258);
    IS(map_anon(1900, 1, rw, MAP_FIXED), 1900);
}

Test(mm_rules, limits_of_address_space_data_and_locked_memory)
{
    g_limits.address_space = 10 * PAGE_SIZE;
    IS(map_anon(100, 8, PROT_READ, MAP_FIXED), 100);
    IS(map_anon(0, 3, PROT_READ, 0), -ENOMEM);
    IS(map_anon(104, 4, rw, MAP_FIXED), 104); /* replaces: nothing more */
    IS(remap(100, 4, 8, MREMAP_MAYMOVE, 0), -ENOMEM);
    g_limits.address_space = UINT64_MAX;
    g_limits.data = 6 * PAGE_SIZE;
    IS(map_anon(0, 3, rw, 0), -ENOMEM);
    IS(map_anon(0, 3, PROT_READ, 0), FAKE_PAGES - 3);
    IS(map_anon(0, 2, rw, 0), FAKE_PAGES - 5);
    mm_layout_of(g_mm)->start_brk = mm_layout_of(g_mm)->brk = 50 * PAGE_SIZE;
    IS(mm_brk(g_mm, &g_thread, &g_limits, FAKE_AT(51)), 50 * PAGE_SIZE);
    g_limits.data = UINT64_MAX;
    g_limits.locked = 3 * PAGE_SIZE;
    IS(map_anon(0, 4, rw, MAP_LOCKED), -EAGAIN);
    IS(mm_mlock(g_mm, &g_thread, &g_limits, FAKE_AT(100), 3 * PAGE_SIZE, true, false), 0);
    IS(mm_mlock(g_mm, &g_thread, &g_limits, GUEST_ADDR(100 * PAGE_SIZE + 5), 2 * PAGE_SIZE, true,
                false),
       0);
    IS(mm_mlock(g_mm, &g_thread, &g_limits, FAKE_AT(103), 1, true, false), -ENOMEM);
    IS(mm_mlockall(g_mm, &g_limits, MCL_CURRENT, true), -ENOMEM);
    IS(mm_mlockall(g_mm, &g_limits, 64, true), -EINVAL);
    IS(mm_mlockall(g_mm, &g_limits, 0, false), 0);
    struct mm_counts counts;
    mm_get_counts(g_mm, &counts);
    IS(counts.locked, 0);
    g_limits.locked = 0;
    IS(mm_mlock(g_mm, &g_thread, &g_limits, FAKE_AT(100), 1, true, false), -EPERM);
}

Test(mm_rules, mprotect_stops_at_a_hole)
{
    map_anon(100, 4, rw, MAP_FIXED);
    map_anon(105, 4, rw, MAP_FIXED);
    IS(protect(102, 5, PROT_READ), -ENOMEM);
    IS(vma_at(103).prot, PROT_READ);
    IS(vma_at(105).prot, rw);
    IS(protect(104, 1, PROT_READ), -ENOMEM);
    IS(protect(100, 1, PROT_READ | 0x100), -EINVAL);
    IS(protect(100, 1, PROT_READ | PROT_GROWSDOWN), -EINVAL);
    IS(mm_mprotect(g_mm, &g_thread, GUEST_ADDR(1), 1, PROT_READ), -EINVAL);
    IS(protect(100, 0, PROT_READ), 0);
    IS(mm_mprotect(g_mm, &g_thread, FAKE_AT(100), -PAGE_SIZE, PROT_READ), -ENOMEM);
}

Test(mm_rules, a_read_only_file_never_becomes_shared_writable)
{
    file = fake_object(9, false, false);
    struct mappable *m = &file.mappable;
    IS(map(100, 1, rw, MAP_SHARED | MAP_FIXED, m, 0), -EACCES);
    IS(map(100, 1, PROT_READ, MAP_SHARED | MAP_FIXED, m, 0), 100);
    IS(protect(100, 1, rw), -EACCES);
    IS(map(101, 1, PROT_READ, MAP_PRIVATE | MAP_FIXED, m, 1), 101);
    IS(protect(101, 1, rw), 0);
    IS(protect(101, 1, PROT_READ | PROT_EXEC), -EACCES);
    IS(unmap(100, 2), 0);
}

Test(mm_rules, a_shared_mapping_that_becomes_writable_is_mapped_anew)
{
    file = fake_object(9, true, true);
    IS(map(100, 4, PROT_READ, MAP_SHARED | MAP_FIXED, &file.mappable, 0), 100);
    IS(file.shared_writes, 0);
    IS(protect(101, 2, rw), 0);
    IS(last_order()->kind, PLATFORM_ORDER_MAP_FILE);
    IS(last_order()->offset, PAGE_SIZE);
    IS(file.shared_writes, 1);
    IS(protect(101, 2, PROT_READ), 0);
    IS(last_order()->kind, PLATFORM_ORDER_PROTECT);
    IS(pages_of(vma_at(100)), 4);
    IS(protect(101, 2, rw), 0); /* joined with what was never writable: anew again */
    IS(last_order()->kind, PLATFORM_ORDER_MAP_FILE);
    IS(protect(101, 2, PROT_NONE), 0);
    IS(protect(101, 2, rw), 0);
    IS(last_order()->kind, PLATFORM_ORDER_PROTECT);
    IS(unmap(100, 4), 0);
    IS(file.shared_writes, 0);
    IS(file.refs, 1);
}

Test(mm_rules, a_seal_refuses_the_mapping)
{
    file = fake_object(9, true, true);
    file.sealed = true;
    IS(map(100, 1, rw, MAP_SHARED | MAP_FIXED, &file.mappable, 0), -EPERM);
    IS(map(100, 1, rw, MAP_PRIVATE | MAP_FIXED, &file.mappable, 0), 100);
    IS(file.shared_writes, 0);
    unmap(100, 1);
}

Test(mm_rules, mremap_needs_one_mapping)
{
    map_anon(100, 4, rw, MAP_FIXED);
    map_anon(104, 4, PROT_READ, MAP_FIXED);
    IS(remap(100, 8, 16, MREMAP_MAYMOVE, 0), -EFAULT);
    IS(remap(50, 1, 2, MREMAP_MAYMOVE, 0), -EFAULT);
    IS(remap(100, 4, 8, 0, 0), -ENOMEM);
    IS(remap(104, 4, 6, 0, 0), 104);
    IS(pages_of(vma_at(104)), 6);
    IS(remap(104, 6, 2, 0, 0), 104);
    IS(remap(100, 0, 4, MREMAP_MAYMOVE, 0), -EINVAL);
    map_anon(FAKE_PAGES - 9, 4, rw, MAP_FIXED);
    IS(remap(FAKE_PAGES - 9, 5000, 1, 0, 0), FAKE_PAGES - 9); /* a shrink takes what follows */
    IS(vma_at(FAKE_PAGES - 8).end, 0);
    IS(remap(100, 2, 2, MREMAP_MAYMOVE | MREMAP_FIXED, 101), -EINVAL);
    IS(remap(100, 2, 0, 0, 0), -EINVAL);
    IS(remap(100, 2, 2, 64, 0), -EINVAL);
    IS(remap(100, 2, 2, MREMAP_FIXED, 200), -EINVAL);
    IS(remap(100, 2, 3, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 200), -EINVAL);
    IS(remap(100, 2, 2, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0), FAKE_PAGES - 2);
    cr_expect(host_has(100) && host_has(FAKE_PAGES - 2));
}

Test(mm_rules, madvise_refuses_as_linux_does)
{
    map_anon(100, 4, rw, MAP_FIXED);
    IS(advise(100, 1, 9999), -EINVAL);
    IS(advise(100, 1, MADV_HWPOISON), -EPERM);
    IS(advise(100, 1, MADV_MERGEABLE), 0);
    IS(advise(100, 5, MADV_WILLNEED), -ENOMEM);
    IS(advise(100, 1, MADV_REMOVE), -EINVAL);
    IS(mm_madvise(g_mm, &g_thread, GUEST_ADDR(1), 1, MADV_DONTNEED), -EINVAL);
    IS(mm_madvise(g_mm, &g_thread, FAKE_AT(100), -PAGE_SIZE, MADV_DONTNEED), -EINVAL);
    IS(advise(100, 0, MADV_DONTNEED), 0);
    mm_mlock(g_mm, &g_thread, &g_limits, FAKE_AT(101), PAGE_SIZE, true, false);
    IS(advise(100, 4, MADV_DONTNEED), -EINVAL);
    IS(last_order()->size, PAGE_SIZE); /* what lies before */
    file = fake_object(9, true, true);
    map(110, 1, PROT_READ, MAP_SHARED | MAP_FIXED, &file.mappable, 0);
    IS(advise(110, 1, MADV_REMOVE), -EACCES);
    IS(advise(110, 1, MADV_FREE), -EINVAL);
    IS(advise(110, 1, MADV_WIPEONFORK), -EINVAL);
    unmap(110, 1);
}

Test(mm_rules, msync_syncs_shared_mappings_and_finds_holes)
{
    file = fake_object(9, true, true);
    map(100, 4, rw, MAP_SHARED | MAP_FIXED, &file.mappable, 0);
    IS(mm_msync(g_mm, FAKE_AT(101), 2 * PAGE_SIZE, MS_SYNC), 0);
    IS(file.synced, 2 * PAGE_SIZE);
    IS(mm_msync(g_mm, FAKE_AT(101), 9 * PAGE_SIZE, MS_ASYNC), -ENOMEM);
    IS(mm_msync(g_mm, FAKE_AT(101), PAGE_SIZE, MS_SYNC | MS_ASYNC), -EINVAL);
    IS(mm_msync(g_mm, FAKE_AT(101), PAGE_SIZE, 64), -EINVAL);
    mm_mlock(g_mm, &g_thread, &g_limits, FAKE_AT(100), PAGE_SIZE, true, false);
    IS(mm_msync(g_mm, FAKE_AT(100), PAGE_SIZE, MS_INVALIDATE), -EBUSY);
    IS(file.refs, 3);
    unmap(100, 4);
}

Test(mm_rules, neighbours_that_go_together_are_one_mapping)
{
    map_anon(100, 2, rw, MAP_FIXED);
    map_anon(104, 2, rw, MAP_FIXED);
    map_anon(102, 2, rw, MAP_FIXED);
    IS(pages_of(vma_at(100)), 6);
    protect(102, 1, PROT_READ);
    IS(pages_of(vma_at(100)), 2);
    protect(102, 1, rw);
    IS(pages_of(vma_at(100)), 6);
    file = fake_object(9, true, true);
    map(110, 1, PROT_READ, MAP_SHARED | MAP_FIXED, &file.mappable, 0);
    map(111, 1, PROT_READ, MAP_SHARED | MAP_FIXED, &file.mappable, 1);
    map(112, 1, PROT_READ, MAP_SHARED | MAP_FIXED, &file.mappable, 5);
    IS(pages_of(vma_at(110)), 2);
    IS(file.refs, 3);
    unmap(110, 3);
}

Test(mm_rules, heap_and_brk)
{
    struct mm_layout *l = mm_layout_of(g_mm);
    l->start_brk = l->brk = 50 * PAGE_SIZE + 100;
    IS(mm_brk(g_mm, &g_thread, &g_limits, GUEST_NULL), l->start_brk);
    IS(mm_brk(g_mm, &g_thread, &g_limits, FAKE_AT(60)), 60 * PAGE_SIZE);
    cr_expect_str_eq(vma_at(55).name, "[heap]");
    map_anon(70, 1, rw, MAP_FIXED);
    IS(mm_brk(g_mm, &g_thread, &g_limits, FAKE_AT(71)), 60 * PAGE_SIZE);
    IS(mm_brk(g_mm, &g_thread, &g_limits, FAKE_AT(70)), 60 * PAGE_SIZE); /* a page of distance */
    IS(mm_brk(g_mm, &g_thread, &g_limits, FAKE_AT(69)), 69 * PAGE_SIZE);
    IS(mm_brk(g_mm, &g_thread, &g_limits, FAKE_AT(40)), 69 * PAGE_SIZE);
    IS(mm_brk(g_mm, &g_thread, &g_limits, GUEST_ADDR(UINT64_MAX)), 69 * PAGE_SIZE);
    IS(mm_brk(g_mm, &g_thread, &g_limits, FAKE_AT(52)), 52 * PAGE_SIZE);
    IS(vma_at(53).end, 0);
}

Test(mm_rules, the_number_of_mappings_is_bounded)
{
    /* A fake space has too few pages for 65,530 VMAs: what counts is that the tree counts right. */
    for (size_t i = 20; i < 2020; i += 2)
        map_anon(i, 1, rw, MAP_FIXED);
    size_t count = 0;
    struct vma v;
    for (uint64_t at = 0; mm_next_vma(g_mm, at, &v); at = v.end)
        count++;
    IS(count, 1000);
}

Test(mm_rules, futex_keys_of_shared_memory_are_the_objects)
{
    file = fake_object(9, true, true);
    map(100, 2, rw, MAP_SHARED | MAP_FIXED, &file.mappable, 3);
    map(110, 2, rw, MAP_SHARED | MAP_FIXED, &file.mappable, 3);
    map_anon(120, 1, rw, MAP_FIXED);
    uint64_t space, offset, space2, offset2;
    IS(mm_futex_key(g_mm, GUEST_ADDR(101 * PAGE_SIZE + 8), false, &space, &offset), 0);
    IS(space, 9);
    IS(offset, 4 * PAGE_SIZE + 8);
    IS(mm_futex_key(g_mm, GUEST_ADDR(111 * PAGE_SIZE + 8), false, &space2, &offset2), 0);
    cr_expect(space == space2 && offset == offset2);
    IS(mm_futex_key(g_mm, FAKE_AT(120), false, &space, &offset), 0);
    IS(mm_futex_key(g_mm, FAKE_AT(120), true, &space2, &offset2), 0);
    cr_expect(space == space2 && offset == offset2 && offset == 120 * PAGE_SIZE);
    IS(mm_futex_key(g_mm, FAKE_AT(130), false, &space, &offset), -EFAULT);
    unmap(100, 12);
}

Test(mm_rules, faults_become_signals)
{
    map_anon(100, 1, PROT_READ, MAP_FIXED);
    resume();
    struct platform_event event = {
        .signo = SIGSEGV, .code = SEGV_ACCERR, .addr = FAKE_AT(100), .is_write = true};
    int code;
    IS(mm_fault(g_mm, &g_thread, &event, 0, &g_limits, &code), SIGSEGV);
    IS(code, SEGV_ACCERR);
    event.is_write = false;
    IS(mm_fault(g_mm, &g_thread, &event, 0, &g_limits, &code), 0); /* a race was lost: again */
    int signo = 0;
    for (int i = 0; i < 100 && signo == 0; i++)
        signo = mm_fault(g_mm, &g_thread, &event, 0, &g_limits, &code);
    IS(signo, SIGSEGV); /* but not for ever */
    event.addr = FAKE_AT(200);
    IS(mm_fault(g_mm, &g_thread, &event, 0, &g_limits, &code), SIGSEGV);
    IS(code, SEGV_MAPERR);
    event = (struct platform_event){.signo = SIGBUS, .code = BUS_ADRERR, .addr = FAKE_AT(100)};
    IS(mm_fault(g_mm, &g_thread, &event, 0, &g_limits, &code), SIGBUS);
    IS(code, BUS_ADRERR);
}
