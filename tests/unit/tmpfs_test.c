/* SPDX-License-Identifier: Apache-2.0 */
/* sentry/fs/tmpfs: content in heap and memfd, limits, directories at scale, seals, xattrs. */
#include "tests/unit/vfs_fixture.h"

#include <linux/falloc.h>
#include <linux/memfd.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

TestSuite(content, .init = fixture_tmpfs);
TestSuite(limits, .init = fixture_tmpfs);
TestSuite(directory, .init = fixture_tmpfs);
TestSuite(memfd, .init = fixture_tmpfs);
TestSuite(xattr, .init = fixture_tmpfs);

static uint8_t pattern(size_t i)
{
    return (uint8_t)(i * 7 + (i >> 8));
}

Test(content, survives_growing_from_heap_to_memfd)
{
    struct file *f = open_ok("/f", O_CREAT | O_RDWR, 0644);
    enum { SIZE = 300000, STEP = 1000 };
    uint8_t out[STEP];
    for (size_t at = 0; at < SIZE; at += STEP) {
        for (size_t i = 0; i < STEP; i++)
            out[i] = pattern(at + i);
        cr_assert_eq(put(f, out, STEP), STEP);
    }
    static uint8_t in[SIZE];
    cr_assert_eq(file_read_at(f, in, SIZE, 0), SIZE);
    for (size_t i = 0; i < SIZE; i++)
        cr_assert_eq(in[i], pattern(i));
    cr_assert_eq(get_at(f, in, 10, SIZE), 0);
    file_put(f);
}

Test(content, is_zero_where_nothing_was_written)
{
    struct file *f = open_ok("/f", O_CREAT | O_RDWR, 0644);
    char b[64];
    cr_assert_eq(put_at(f, "xxxxxxxxxx", 10, 0), 10);
    cr_assert_eq(vfs_ftruncate(f, 3), 0);
    cr_assert_eq(vfs_ftruncate(f, 20), 0);
    cr_assert_eq(get_at(f, b, 64, 0), 20);
    cr_assert_eq(memcmp(b, "xxx\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 20), 0);
    cr_assert_eq(vfs_ftruncate(f, 2), 0);
    cr_assert_eq(put_at(f, "y", 1, 8), 1);
    cr_assert_eq(get_at(f, b, 64, 0), 9);
    cr_assert_eq(memcmp(b, "xx\0\0\0\0\0\0y", 9), 0);
    file_put(f);
}

Test(content, a_sparse_file_of_4_gib_costs_little)
{
    uint64_t before = tmpfs_used();
    struct file *f = open_ok("/f", O_CREAT | O_RDWR, 0644);
    cr_assert_eq(vfs_ftruncate(f, GIB(4)), 0);
    cr_assert_eq(put_at(f, "end", 3, (int64_t)GIB(4) - 3), 3);
    struct kstat st;
    cr_assert_eq(vfs_getattr(&f->path, &st), 0);
    cr_assert_eq(st.size, GIB(4));
    cr_assert_leq(st.blocks, 64u);
    cr_assert_leq(tmpfs_used() - before, 65536u);
    cr_assert_eq(vfs_lseek(f, 0, SEEK_DATA), (int64_t)(GIB(4) - PAGE_SIZE));
    cr_assert_eq(vfs_lseek(f, 0, SEEK_HOLE), 0);
    cr_assert_eq(vfs_lseek(f, (int64_t)GIB(4), SEEK_DATA), -ENXIO);
    file_put(f);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/f"), 0);
}

Test(content, append_goes_to_the_end)
{
    make_file("/f", "abc");
    struct file *f = open_ok("/f", O_WRONLY | O_APPEND, 0);
    cr_assert_eq(put_at(f, "d", 1, 0), 1);
    cr_assert_eq(put(f, "e", 1), 1);
    file_put(f);
    cr_assert_str_eq(text_of("/f"), "abcde");
}

Test(content, fallocate_allocates_and_punches)
{
    struct file *f = open_ok("/f", O_CREAT | O_RDWR, 0644);
    cr_assert_eq(f->ops->fallocate(f, 0, 0, 1 << 20), 0);
    struct kstat st;
    cr_assert_eq(vfs_getattr(&f->path, &st), 0);
    cr_assert_eq(st.size, 1u << 20);
    cr_assert_eq(st.blocks, (1u << 20) / 512);
    cr_assert_eq(f->ops->fallocate(f, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 1 << 19), 0);
    cr_assert_eq(vfs_getattr(&f->path, &st), 0);
    cr_assert_eq(st.blocks, (1u << 19) / 512);
    cr_assert_eq(f->ops->fallocate(f, FALLOC_FL_KEEP_SIZE, 1 << 20, 1 << 19), 0);
    cr_assert_eq(vfs_getattr(&f->path, &st), 0);
    cr_assert_eq(st.size, 1u << 20);
    cr_assert_eq(f->ops->fallocate(f, FALLOC_FL_COLLAPSE_RANGE, 0, 4096), -EOPNOTSUPP);
    file_put(f);
}

Test(content, a_mapping_shows_what_was_written)
{
    make_file("/f", "mapped");
    struct file *f = open_ok("/f", O_RDWR, 0);
    int hfd;
    uint64_t offset;
    cr_assert_eq(f->mappable.ops->map(&f->mappable, 0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED,
                                      &hfd, &offset),
                 0);
    char *m = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, hfd, (off_t)offset);
    cr_assert_neq(m, MAP_FAILED);
    cr_assert_eq(memcmp(m, "mapped", 7), 0);
    m[0] = 'M';
    cr_assert_str_eq(text_of("/f"), "Mapped");
    cr_assert_eq(put_at(f, "X", 1, 1), 1);
    cr_assert_eq(m[1], 'X');
    munmap(m, 4096);
    file_put(f);
    f = open_ok("/f", O_RDONLY, 0);
    cr_assert_eq(f->mappable.ops->map(&f->mappable, 0, 4096, PROT_WRITE, MAP_SHARED, &hfd, &offset),
                 -EACCES);
    file_put(f);
}

Test(limits, writes_beyond_the_sandboxs_bytes_give_enospc)
{
    tmpfs_set_limit(tmpfs_used() + MIB(1));
    struct file *f = open_ok("/f", O_CREAT | O_RDWR, 0644);
    static char block[MIB(2)];
    ssize_t n = put(f, block, sizeof(block));
    cr_assert(n > 0 && n <= (ssize_t)MIB(1), "%zd", n);
    cr_assert_eq(put(f, block, MIB(1)), -ENOSPC);
    cr_assert_eq(vfs_ftruncate(f, 0), 0);
    cr_assert_gt(put(f, block, KIB(512)), 0);
    file_put(f);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/f"), 0);
    f = open_ok("/g", O_CREAT | O_RDWR, 0644);
    cr_assert_eq(put(f, block, KIB(512)), (ssize_t)KIB(512));
    file_put(f);
    char name[32];
    int r = 0;
    for (int i = 0; i < 10000 && r == 0; i++) {
        snprintf(name, sizeof(name), "/n%d", i);
        r = vfs_mkdir(&g_ctx, &g_ctx.cwd, name, 0755);
    }
    cr_assert_eq(r, -ENOSPC);
    tmpfs_set_limit(UINT64_MAX);
}

Test(limits, everything_is_given_back)
{
    uint64_t before = tmpfs_used();
    cr_assert_eq(make_dir("/d"), 0);
    make_file("/d/small", "x");
    struct file *f = open_ok("/d/large", O_CREAT | O_RDWR, 0644);
    static char block[MIB(1)];
    cr_assert_eq(put(f, block, sizeof(block)), (ssize_t)sizeof(block));
    file_put(f);
    cr_assert_geq(tmpfs_used() - before, MIB(1));
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/small"), 0);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/large"), 0);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d"), 0);
    cr_assert_eq(tmpfs_used(), before);
}

Test(limits, names_links_and_attributes_count)
{
    uint64_t before = tmpfs_used();
    make_file("/f", "");
    AUTO_PATH p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/f", 0, &p), 0);
    static char value[60000];
    cr_assert_eq(vfs_setxattr(g_root, &p, "user.large", value, sizeof(value), 0), 0);
    cr_assert_geq(tmpfs_used() - before, sizeof(value));
    tmpfs_set_limit(tmpfs_used() + 1000);
    cr_assert_eq(vfs_setxattr(g_root, &p, "user.more", value, sizeof(value), 0), -ENOSPC);
    char name[16];
    int r = 0;
    for (int i = 0; i < 100 && r == 0; i++) {
        snprintf(name, sizeof(name), "/l%d", i);
        r = vfs_link(&g_ctx, &p, &g_ctx.cwd, name);
    }
    cr_assert_eq(r, -ENOSPC);
    tmpfs_set_limit(UINT64_MAX);
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "/l%d", i);
        (void)vfs_unlink(&g_ctx, &g_ctx.cwd, name);
    }
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/f"), 0);
    path_put(&p);
    cr_assert_eq(tmpfs_used(), before);
}

Test(limits, without_host_descriptors_files_stay_in_the_heap)
{
    tmpfs_set_hfd_limit(0);
    struct file *f = open_ok("/f", O_CREAT | O_RDWR, 0644);
    static char block[MIB(1)];
    memset(block, 'q', sizeof(block));
    cr_assert_eq(put(f, block, sizeof(block)), (ssize_t)sizeof(block));
    char b;
    cr_assert_eq(get_at(f, &b, 1, MIB(1) - 1), 1);
    cr_assert_eq(b, 'q');
    int hfd;
    uint64_t offset;
    cr_assert_eq(f->mappable.ops->map(&f->mappable, 0, 4096, PROT_READ, MAP_PRIVATE, &hfd, &offset),
                 -ENFILE);
    file_put(f);
}

Test(directory, of_100000_entries_reads_completely_in_pieces)
{
    enum { COUNT = 100000 };
    char name[32];
    cr_assert_eq(make_dir("/d"), 0);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "/d/%06d", i);
        make_file(name, "");
    }
    struct file *f = open_ok("/d", O_RDONLY | O_DIRECTORY, 0);
    size_t total = 0;
    for (;;) {
        struct listing l = {.ctx.emit = collect, .stop_after = 500};
        cr_assert_eq(vfs_iterate(f, &l.ctx), 0);
        if (!l.count)
            break;
        total += l.count;
    }
    cr_assert_eq(total, COUNT + 2u);
    file_put(f);
}

Test(directory, positions_stay_when_entries_come_and_go)
{
    cr_assert_eq(make_dir("/d"), 0);
    char name[32];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "/d/f%02d", i);
        make_file(name, "");
    }
    struct file *f = open_ok("/d", O_RDONLY | O_DIRECTORY, 0);
    struct listing a = {.ctx.emit = collect, .stop_after = 50};
    cr_assert_eq(vfs_iterate(f, &a.ctx), 0);
    for (int i = 0; i < 100; i += 2) {
        snprintf(name, sizeof(name), "/d/f%02d", i);
        cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, name), 0);
    }
    struct listing b = {.ctx.emit = collect};
    cr_assert_eq(vfs_iterate(f, &b.ctx), 0);
    for (int i = 1; i < 100; i += 2) {
        snprintf(name, sizeof(name), "f%02d", i);
        cr_assert_eq(lists(&a, name) + lists(&b, name), 1, "%s", name);
    }
    file_put(f);
}

Test(memfd, seals_hold)
{
    struct file *f;
    cr_assert_eq(tmpfs_memfd_new("m", MFD_ALLOW_SEALING, g_root, &f), 0);
    cr_assert_eq(tmpfs_get_seals(f), 0);
    cr_assert_eq(put(f, "12345678", 8), 8);
    cr_assert_eq(tmpfs_add_seals(f, F_SEAL_GROW), 0);
    cr_assert_eq(put_at(f, "xyz", 3, 7), -EPERM);
    cr_assert_eq(vfs_ftruncate(f, 9), -EPERM);
    cr_assert_eq(tmpfs_add_seals(f, F_SEAL_SHRINK), 0);
    cr_assert_eq(vfs_ftruncate(f, 1), -EPERM);
    int hfd;
    uint64_t offset;
    f->mappable.ops->shared_write(&f->mappable, true);
    cr_assert_eq(tmpfs_add_seals(f, F_SEAL_WRITE), -EBUSY);
    f->mappable.ops->shared_write(&f->mappable, false);
    cr_assert_eq(tmpfs_add_seals(f, F_SEAL_WRITE | F_SEAL_SEAL), 0);
    cr_assert_eq(put_at(f, "x", 1, 0), -EPERM);
    cr_assert_eq(
        f->mappable.ops->map(&f->mappable, 0, 8, PROT_WRITE | PROT_READ, MAP_SHARED, &hfd, &offset),
        -EPERM);
    cr_assert_eq(f->mappable.ops->map(&f->mappable, 0, 8, PROT_READ, MAP_SHARED, &hfd, &offset), 0);
    cr_assert_eq(tmpfs_add_seals(f, F_SEAL_GROW), -EPERM);
    char *text;
    cr_assert_eq(vfs_path_text(&f->path, NULL, &text), 0);
    cr_assert_str_eq(text, "/memfd:m (deleted)");
    free(text);
    file_put(f);
    cr_assert_eq(tmpfs_memfd_new("m", 0, g_root, &f), 0);
    cr_assert_eq(tmpfs_get_seals(f), F_SEAL_SEAL);
    file_put(f);
}

Test(memfd, shared_anonymous_memory_has_its_size)
{
    struct file *f;
    cr_assert_eq(tmpfs_shared_anon_new("/dev/zero (deleted)", GIB(1), g_root, &f), 0);
    int hfd;
    uint64_t offset;
    cr_assert_eq(f->mappable.ops->map(&f->mappable, 0, GIB(1), PROT_READ | PROT_WRITE, MAP_SHARED,
                                      &hfd, &offset),
                 0);
    struct stat st;
    cr_assert_eq(fstat(hfd, &st), 0);
    cr_assert_eq((uint64_t)st.st_size, GIB(1));
    file_put(f);
}

Test(xattr, set_get_list_remove)
{
    make_file("/f", "");
    AUTO_PATH p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/f", 0, &p), 0);
    char b[64];
    cr_assert_eq(vfs_getxattr(g_root, &p, "user.a", b, sizeof(b)), -ENODATA);
    cr_assert_eq(vfs_setxattr(g_root, &p, "user.a", "val", 3, XATTR_REPLACE), -ENODATA);
    cr_assert_eq(vfs_setxattr(g_root, &p, "user.a", "val", 3, XATTR_CREATE), 0);
    cr_assert_eq(vfs_setxattr(g_root, &p, "user.a", "val", 3, XATTR_CREATE), -EEXIST);
    cr_assert_eq(vfs_getxattr(g_root, &p, "user.a", NULL, 0), 3);
    cr_assert_eq(vfs_getxattr(g_root, &p, "user.a", b, 2), -ERANGE);
    cr_assert_eq(vfs_getxattr(g_root, &p, "user.a", b, 64), 3);
    cr_assert_eq(vfs_setxattr(g_root, &p, "trusted.x", "v", 1, 0), -EPERM);
    cr_assert_eq(vfs_setxattr(g_root, &p, "system.posix_acl_access", "v", 1, 0), -EOPNOTSUPP);
    cr_assert_eq(vfs_listxattr(g_root, &p, b, sizeof(b)), 7);
    cr_assert_str_eq(b, "user.a");
    cr_assert_eq(vfs_removexattr(g_root, &p, "user.a"), 0);
    cr_assert_eq(vfs_listxattr(g_root, &p, b, sizeof(b)), 0);
}
