/* SPDX-License-Identifier: Apache-2.0 */
/* sentry/mm: which orders reach the platform, queued or executed, and what becomes of failures. */
#include "tests/unit/mm_fixture.h"

TestSuite(mm_order, .init = setup, .fini = teardown);

Test(mm_order, single_orders_of_the_only_thread_ride_on_the_resume)
{
    IS(map_anon(100, 4, rw, MAP_FIXED), 100);
    IS(g_thread.queued, 1);
    IS(last_order()->kind, PLATFORM_ORDER_MAP_ANON);
    IS(last_order()->size, 4 * PAGE_SIZE);
    cr_expect(!host_has(100));
    IS(resume(), 0);
    cr_expect(host_has(103));
    IS(protect(101, 1, PROT_READ), 0);
    IS(g_thread.queued, 1);
    IS(resume(), 0);
    IS(unmap(100, 4), 0);
    IS(g_thread.queued, 1);
    IS(resume(), 0);
    cr_expect(!host_has(100));
}

Test(mm_order, with_two_threads_everything_is_executed_at_once)
{
    mm_thread_added(g_mm);
    IS(map_anon(100, 4, rw, MAP_FIXED), 100);
    IS(g_thread.queued, 0);
    cr_expect(host_has(100));
    mm_thread_removed(g_mm);
    IS(unmap(100, 1), 0);
    IS(g_thread.queued, 1);
}

Test(mm_order, a_second_change_before_the_resume_runs_the_first)
{
    map_anon(100, 4, rw, MAP_FIXED);
    IS(protect(100, 4, PROT_READ), 0);
    IS(g_thread.queued, 1);
    IS(g_thread.space->pages[100].prot, rw);
    IS(resume(), 0);
    IS(g_thread.space->pages[100].prot, PROT_READ);
}

Test(mm_order, a_copy_runs_what_is_queued)
{
    map_anon(100, 1, rw, MAP_FIXED);
    uint32_t value = 7, back = 0;
    IS(copy_out_obj(g_mm, FAKE_AT(100), &value), 0);
    IS(copy_in_obj(g_mm, &back, FAKE_AT(100)), 0);
    IS(back, 7);
    unmap(100, 1);
    IS(copy_in_obj(g_mm, &back, FAKE_AT(100)), -EFAULT);
}

Test(mm_order, a_mapping_of_a_file_is_executed_with_its_descriptor)
{
    file = fake_object(9, true, true);
    IS(map(100, 2, PROT_READ, MAP_SHARED | MAP_FIXED, &file.mappable, 3), 100);
    IS(g_thread.queued, 0);
    IS(last_order()->kind, PLATFORM_ORDER_MAP_FILE);
    IS(last_order()->hfd, 9);
    IS(last_order()->offset, 3 * PAGE_SIZE);
    IS(last_order()->flags, MAP_SHARED);
    IS(file.refs, 2);
    IS(unmap(100, 2), 0);
    IS(file.refs, 1);
}

Test(mm_order, failed_mapping_is_taken_back)
{
    map_anon(100, 4, rw, MAP_FIXED);
    g_fail_next = -ENOMEM;
    IS(resume(), -ENOMEM);
    IS(vma_at(100).end, 0);
    IS(map_anon(100, 4, rw, MAP_FIXED_NOREPLACE), 100);
    IS(resume(), 0);
}

Test(mm_order, failed_mapping_over_another_leaves_a_hole_on_both_sides)
{
    map_anon(100, 8, rw, MAP_FIXED);
    resume();
    map_anon(102, 2, PROT_READ, MAP_FIXED);
    g_fail_next = -ENOMEM;
    IS(resume(), -ENOMEM);
    cr_expect(host_has(101) && !host_has(102) && !host_has(103) && host_has(104));
    IS(pages_of(vma_at(100)), 2);
    IS(vma_at(102).end, 0);
    IS(pages_of(vma_at(104)), 4);
}

Test(mm_order, failed_protection_keeps_the_old_one)
{
    map_anon(100, 8, rw, MAP_FIXED);
    resume();
    protect(102, 2, PROT_READ);
    g_fail_next = -ENOMEM;
    IS(resume(), -ENOMEM);
    IS(pages_of(vma_at(100)), 8);
    IS(vma_at(102).prot, rw);
}

Test(mm_order, failed_brk_answers_the_old_break)
{
    mm_layout_of(g_mm)->start_brk = mm_layout_of(g_mm)->brk = 50 * PAGE_SIZE;
    IS(mm_brk(g_mm, &g_thread, &g_limits, FAKE_AT(53)), 53 * PAGE_SIZE);
    g_fail_next = -ENOMEM;
    IS(resume(), 50 * PAGE_SIZE);
    IS(mm_brk(g_mm, &g_thread, &g_limits, GUEST_NULL), 50 * PAGE_SIZE);
    IS(vma_at(50).end, 0);
}

Test(mm_order, an_executed_failure_changes_nothing)
{
    mm_thread_added(g_mm);
    map_anon(100, 4, rw, MAP_FIXED);
    g_fail_next = -ENOMEM;
    IS(protect(100, 2, PROT_READ), -ENOMEM);
    IS(pages_of(vma_at(100)), 4);
    g_fail_next = -ENOMEM;
    IS(unmap(101, 1), -ENOMEM);
    IS(pages_of(vma_at(100)), 4);
    g_fail_next = -EFAULT;
    IS(remap(100, 4, 2000, MREMAP_MAYMOVE, 0), -EFAULT);
    IS(pages_of(vma_at(100)), 4);
    g_fail_next = 5; /* a lie that is no errno */
    IS(unmap(101, 1), -ENOMEM);
}

Test(mm_order, flush_tells_the_result_to_return)
{
    int64_t result = 1;
    IS(mm_flush(g_mm, &g_thread, &result), 0);
    map_anon(100, 1, rw, MAP_FIXED);
    g_fail_next = -EPERM;
    IS(mm_flush(g_mm, &g_thread, &result), -EPERM);
    IS(result, -EPERM);
    IS(vma_at(100).end, 0);
    IS(g_thread.queued, 0);
}

Test(mm_order, populate_comes_after_the_mapping)
{
    IS(map_anon(100, 2, rw, MAP_FIXED | MAP_POPULATE), 100);
    IS(last_order()->kind, PLATFORM_ORDER_ADVISE);
    IS(last_order()->advice, MADV_POPULATE_WRITE);
    IS(map_anon(110, 2, PROT_READ, MAP_FIXED | MAP_LOCKED), 110);
    IS(last_order()->advice, MADV_POPULATE_READ);
}

Test(mm_order, growsdown_is_not_given_to_the_host_and_grows_on_the_fault)
{
    IS(map_anon(1000, 1, rw, MAP_FIXED | MAP_GROWSDOWN), 1000);
    IS(last_order()->flags, MAP_PRIVATE);
    resume();
    struct platform_event event = {
        .signo = SIGSEGV, .code = SEGV_MAPERR, .addr = FAKE_AT(990), .is_write = true};
    int code;
    IS(mm_fault(g_mm, &g_thread, &event, 0, &g_limits, &code), 0);
    resume();
    cr_expect(host_has(990) && host_has(999));
    struct mm_limits small = g_limits;
    small.stack = 20 * PAGE_SIZE;
    event.addr = FAKE_AT(900);
    IS(mm_fault(g_mm, &g_thread, &event, 0, &small, &code), SIGSEGV);
    IS(code, SEGV_MAPERR);
}

Test(mm_order, stack_beyond_a_lowered_limit_goes)
{
    struct mm_exec exec = {.stack_size = 1000 * PAGE_SIZE, .brk = 200 * PAGE_SIZE};
    mm_exec_no_random(g_mm);
    uint64_t top = mm_exec_layout(g_mm, MIB(1));
    IS(mm_exec_map(g_mm, &g_thread, &exec), 0);
    size_t end = top / PAGE_SIZE;
    cr_expect(host_has(end - 1) && host_has(end - 1000) && !host_has(end - 1001));
    cr_expect_str_eq(vma_at(end - 1).name, "[stack]");
    mm_stack_limit_changed(g_mm, &g_thread, 100 * PAGE_SIZE, top - 5000);
    resume();
    cr_expect(host_has(end - 100) && !host_has(end - 101));
    mm_stack_limit_changed(g_mm, &g_thread, 10 * PAGE_SIZE, top - 50 * PAGE_SIZE);
    resume();
    cr_expect(host_has(end - 51) && !host_has(end - 52));
}

Test(mm_order, exec_maps_the_plan_in_one_execution_and_clears_the_tail)
{
    file = fake_object(9, true, true);
    struct mm_exec_segment segments[] = {
        {.addr = 100 * PAGE_SIZE,
         .size = 2 * PAGE_SIZE,
         .prot = PROT_READ | PROT_EXEC,
         .object = &file.mappable},
        {.addr = 102 * PAGE_SIZE,
         .size = PAGE_SIZE,
         .offset = 2 * PAGE_SIZE,
         .prot = rw,
         .object = &file.mappable,
         .zero_from = 102 * PAGE_SIZE + 100},
        {.addr = 103 * PAGE_SIZE, .size = PAGE_SIZE, .prot = rw},
    };
    struct mm_exec exec = {
        .segments = segments, .count = 3, .brk = 104 * PAGE_SIZE - 5, .stack_size = KIB(128)};
    mm_exec_no_random(g_mm);
    uint64_t top = mm_exec_layout(g_mm, MIB(1));
    g_order_count = 0;
    IS(mm_exec_map(g_mm, &g_thread, &exec), 0);
    IS(g_order_count, 4);
    IS(g_orders[3].addr.va, top - KIB(128));
    IS(mm_brk(g_mm, &g_thread, &g_limits, GUEST_NULL), 104 * PAGE_SIZE);
    IS(pages_of(vma_at(100)), 2);
    cr_expect(g_thread.space->pages[102].bytes != NULL); /* written to */
    IS(file.refs, 3);
    /* A plan that leaves the guest's range does not reach the platform. */
    segments[0].addr = (FAKE_PAGES - 1) * PAGE_SIZE;
    g_order_count = 0;
    cr_expect(mm_exec_map(g_mm, &g_thread, &exec) < 0);
    IS(g_order_count, 0);
}

Test(mm_order, mincore_is_asked_of_the_host)
{
    map_anon(100, 3, rw, MAP_FIXED);
    uint8_t vec[2], byte = 1;
    IS(copy_out_obj(g_mm, FAKE_AT(101), &byte), 0);
    IS(mm_mincore(g_mm, &g_thread, FAKE_AT(100), 2 * PAGE_SIZE, GUEST_ADDR(102 * PAGE_SIZE + 9)),
       0);
    IS(copy_in(g_mm, vec, GUEST_ADDR(102 * PAGE_SIZE + 9), 2), 0);
    IS(vec[0], 0);
    IS(vec[1], 1);
    IS(mm_mincore(g_mm, &g_thread, FAKE_AT(100), 4 * PAGE_SIZE, FAKE_AT(102)), -ENOMEM);
    IS(mm_mincore(g_mm, &g_thread, FAKE_AT(100), PAGE_SIZE, GUEST_NULL), -EFAULT);
    IS(mm_mincore(g_mm, &g_thread, FAKE_AT(100), PAGE_SIZE, FAKE_AT(FAKE_PAGES)), -EFAULT);
    IS(mm_mincore(g_mm, &g_thread, GUEST_ADDR(1), PAGE_SIZE, FAKE_AT(102)), -EINVAL);
    IS(mm_mincore(g_mm, &g_thread, FAKE_AT(100), 0, GUEST_NULL), 0);
}
