/* SPDX-License-Identifier: Apache-2.0 */
/* sentry/mm: copies, strings, the cursor and host descriptors by it. */
#include "tests/unit/mm_fixture.h"

#include <fcntl.h>
#include <unistd.h>

TestSuite(mm_uaccess, .init = setup, .fini = teardown);

#define BASE (100 * PAGE_SIZE)

/* Pages 100 to 107 are there, 108 isn't. */
static void area(void)
{
    map_anon(100, 8, rw, MAP_FIXED);
}

static void put(uint64_t addr, const char *text)
{
    cr_assert(copy_out(g_mm, GUEST_ADDR(addr), text, strlen(text) + 1) == 0);
}

Test(mm_uaccess, copies_fail_as_a_whole_on_a_bad_page)
{
    area();
    char bytes[8192] = "x";
    IS(copy_out(g_mm, GUEST_ADDR(BASE + 7 * PAGE_SIZE), bytes, 4096), 0);
    IS(copy_out(g_mm, GUEST_ADDR(BASE + 7 * PAGE_SIZE), bytes, 4097), -EFAULT);
    IS(copy_in(g_mm, bytes, GUEST_ADDR(BASE + 8 * PAGE_SIZE), 1), -EFAULT);
    IS(copy_in(g_mm, bytes, GUEST_ADDR(BASE + 8 * PAGE_SIZE), 0), 0);
    IS(copy_in(g_mm, bytes, GUEST_ADDR(UINT64_MAX - 3), 8), -EFAULT);
    IS(copy_in(NULL, bytes, GUEST_ADDR(BASE), 1), -EFAULT);
    protect(100, 1, PROT_READ);
    IS(copy_out(g_mm, GUEST_ADDR(BASE), bytes, 1), -EFAULT);
    protect(100, 1, PROT_NONE);
    IS(copy_in(g_mm, bytes, GUEST_ADDR(BASE), 1), -EFAULT);
}

Test(mm_uaccess, clears)
{
    area();
    put(BASE + 4090, "0123456789");
    IS(clear_out(g_mm, GUEST_ADDR(BASE + 4092), 3 * PAGE_SIZE), 0);
    char back[12];
    IS(copy_in(g_mm, back, GUEST_ADDR(BASE + 4090), 11), 0);
    cr_expect(back[0] == '0' && back[1] == '1' && back[2] == 0 && back[9] == 0);
    IS(clear_out(g_mm, GUEST_ADDR(BASE + 7 * PAGE_SIZE), 2 * PAGE_SIZE), -EFAULT);
}

Test(mm_uaccess, strings_end_within_their_buffer_and_their_page)
{
    area();
    char text[600];
    put(BASE + 8 * PAGE_SIZE - 5, "abcd");
    IS(copy_in_str(g_mm, text, sizeof(text), GUEST_ADDR(BASE + 8 * PAGE_SIZE - 5)), 4);
    cr_expect_str_eq(text, "abcd");
    IS(copy_in_str(g_mm, text, 4, GUEST_ADDR(BASE + 8 * PAGE_SIZE - 5)), -ENAMETOOLONG);
    IS(copy_in_str(g_mm, text, 5, GUEST_ADDR(BASE + 8 * PAGE_SIZE - 5)), 4);
    IS(copy_out(g_mm, GUEST_ADDR(BASE + 8 * PAGE_SIZE - 5), "abcde", 5), 0);
    IS(copy_in_str(g_mm, text, sizeof(text), GUEST_ADDR(BASE + 8 * PAGE_SIZE - 5)), -EFAULT);
    char longer[501];
    memset(longer, 'l', 500);
    longer[500] = '\0';
    put(BASE + 100, longer);
    IS(copy_in_str(g_mm, text, sizeof(text), GUEST_ADDR(BASE + 100)), 500);
    cr_expect_str_eq(text, longer);
    char *path;
    IS(copy_in_path(g_mm, GUEST_ADDR(BASE), false, &path), -ENOENT);
    IS(copy_in_path(g_mm, GUEST_ADDR(BASE), true, &path), 0);
    free(path);
}

static void put_iovec(uint64_t at, uint64_t base, uint64_t size)
{
    uint64_t pair[2] = {base, size};
    cr_assert(copy_out(g_mm, GUEST_ADDR(at), pair, sizeof(pair)) == 0);
}

Test(mm_uaccess, iovecs_are_checked_as_linux_does)
{
    area();
    struct io io;
    put_iovec(BASE, BASE + 1000, 3);
    put_iovec(BASE + 16, BASE + 2000, 0);
    put_iovec(BASE + 32, BASE + 3000, 4);
    IS(io_init_iovec(&io, g_mm, GUEST_ADDR(BASE), 3), 0);
    IS(io.remaining, 7);
    IS(io_put(&io, "abcdefghi", 9), 7);
    IS(io_put(&io, "x", 1), 0);
    io_rewind(&io, 5);
    char back[8] = "";
    IS(io_get(&io, back, 8), 5);
    cr_expect_str_eq(back, "cdefg");
    io_fini(&io);
    IS(io_init_iovec(&io, g_mm, GUEST_ADDR(BASE), 1025), -EINVAL);
    IS(io_init_iovec(&io, g_mm, GUEST_ADDR(BASE), 0), 0);
    IS(io.remaining, 0);
    io_fini(&io);
    IS(io_init_iovec(&io, g_mm, GUEST_ADDR(BASE + 8 * PAGE_SIZE - 16), 2), -EFAULT);
    put_iovec(BASE, BASE, (uint64_t)INT64_MAX + 1);
    IS(io_init_iovec(&io, g_mm, GUEST_ADDR(BASE), 1), -EINVAL);
    for (int i = 0; i < 6; i++)
        put_iovec(BASE + (uint64_t)i * 16, BASE, 0x40000000);
    IS(io_init_iovec(&io, g_mm, GUEST_ADDR(BASE), 6), 0);
    IS(io.remaining, 0x7ffff000);
    io_fini(&io);
}

Test(mm_uaccess, a_cursor_stops_before_a_bad_page)
{
    area();
    struct io io;
    char bytes[20] = "0123456789abcdefghi";
    io_init_guest(&io, g_mm, GUEST_ADDR(BASE + 8 * PAGE_SIZE - 4), 10);
    IS(io_put(&io, bytes, 10), 4);
    IS(io.remaining, 6);
    IS(io_put(&io, bytes, 6), -EFAULT);
    io_init_kernel(&io, bytes, sizeof(bytes));
    io_skip(&io, 10);
    IS(io_put_zero(&io, 5), 5);
    IS(io_get(&io, bytes, 100), 5);
    cr_expect_str_eq(bytes, "fghi");
}

Test(mm_uaccess, host_files_are_read_and_written_by_the_cursor)
{
    map_anon(200, 200, rw, MAP_FIXED);
    char name[] = "/tmp/mm_uaccess_XXXXXX";
    int hfd = mkstemp(name);
    cr_assert(hfd >= 0);
    unlink(name);
    size_t size = 700000;
    uint8_t *bytes = malloc(size), *back = calloc(1, size);
    for (size_t i = 0; i < size; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 251);
    IS(copy_out(g_mm, FAKE_AT(200), bytes, size), 0);
    struct io io;
    for (int may_block = 0; may_block < 2; may_block++) {
        cr_assert(ftruncate(hfd, 0) == 0);
        io_init_guest(&io, g_mm, FAKE_AT(200), size);
        IS(io_host_write(&io, hfd, 100, may_block), size);
        IS(pread(hfd, back, size, 100), size);
        cr_expect(memcmp(bytes, back, size) == 0);
        IS(clear_out(g_mm, FAKE_AT(200), size), 0);
        io_init_guest(&io, g_mm, FAKE_AT(200), size + 5000);
        IS(io_host_read(&io, hfd, 100, may_block), size);
        IS(io.remaining, 5000);
        IS(copy_in(g_mm, back, FAKE_AT(200), size), 0);
        cr_expect(memcmp(bytes, back, size) == 0);
        io_init_guest(&io, g_mm, FAKE_AT(200), 10);
        IS(io_host_read(&io, hfd, (int64_t)size + 100, may_block), 0);
    }
    io_init_guest(&io, g_mm, FAKE_AT(10), 10);
    IS(io_host_read(&io, hfd, 0, false), -EFAULT);
    IS(io_host_write(&io, hfd, 0, false), -EFAULT);
    io_init_kernel(&io, back, 10);
    IS(io_host_read(&io, hfd, 100, false), 10);
    cr_expect(memcmp(bytes, back, 10) == 0);
    int pipes[2];
    cr_assert(pipe(pipes) == 0);
    io_init_guest(&io, g_mm, FAKE_AT(200), 3000);
    IS(write(pipes[1], "hello", 5), 5);
    IS(io_host_read(&io, pipes[0], -1, false), 5); /* and doesn't wait for more */
    io_init_guest(&io, g_mm, FAKE_AT(200), 5);
    IS(io_host_write(&io, pipes[1], -1, false), 5);
    IS(read(pipes[0], back, 100), 5);
    close(hfd);
    free(bytes);
    free(back);
}
