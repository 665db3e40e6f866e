/* SPDX-License-Identifier: Apache-2.0 */
/* sentry/fs/overlay on a tmpfs as its lower, which must never change. */
#include "tests/unit/vfs_fixture.h"

#include "sentry/fs/overlay/overlay.h"
#include "sentry/vfs/vfs_internal.h"
#include <linux/fs.h>
#include <sys/mman.h>
#include <sys/xattr.h>
#include <unistd.h>

static struct walk_context g_lower_ctx;
static struct inode *g_lower_root;

/* The lower: /etc/passwd, /etc/sub/deep, /bin/tool and its hard link /bin/tool2, /lib → usr/lib,
 * /many/00…99. */
static void fixture_overlay(void)
{
    struct superblock *sb;
    cr_assert_eq(tmpfs_new(0755, 0, 0, 0, &sb, &g_lower_root), 0);
    fixture_mount(sb, g_lower_root);
    cr_assert_eq(make_dir("/etc"), 0);
    make_file("/etc/passwd", "root");
    cr_assert_eq(make_dir("/etc/sub"), 0);
    make_file("/etc/sub/deep", "deep");
    cr_assert_eq(make_dir("/bin"), 0);
    make_file("/bin/tool", "#!tool");
    AUTO_PATH tool = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/bin/tool", 0, &tool), 0);
    cr_assert_eq(vfs_link(&g_ctx, &tool, &g_ctx.cwd, "/bin/tool2"), 0);
    cr_assert_eq(vfs_symlink(&g_ctx, &g_ctx.cwd, "/lib", "usr/lib"), 0);
    cr_assert_eq(make_dir("/usr"), 0);
    cr_assert_eq(make_dir("/usr/lib"), 0);
    make_file("/usr/lib/libc.so", "elf");
    cr_assert_eq(make_dir("/many"), 0);
    char name[32];
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "/many/%02d", i);
        make_file(name, "");
    }
    g_lower_ctx = g_ctx;
    struct inode *root;
    cr_assert_eq(overlay_new(g_lower_root, &sb, &root), 0);
    fixture_mount(sb, root);
}

TestSuite(overlay, .init = fixture_overlay);

static const char *lower_text(const char *path)
{
    struct walk_context upper = g_ctx;
    g_ctx = g_lower_ctx;
    const char *text = exists(path) == 0 ? text_of(path) : NULL;
    g_ctx = upper;
    return text;
}

/* Forgets every dentry and unchanged inode. */
static void forget(void)
{
    dcache_drop_subtree(g_ctx.root.dentry);
}

Test(overlay, shows_the_lower)
{
    cr_assert_str_eq(text_of("/etc/passwd"), "root");
    cr_assert_str_eq(text_of("/lib/libc.so"), "elf");
    struct listing *l = list_of("/");
    cr_assert_eq(l->count, 7u, "%s", l->names);
    cr_assert(lists(l, "etc"));
    cr_assert_eq(exists("/nope"), -ENOENT);
}

Test(overlay, a_write_copies_up_and_keeps_the_inode_number)
{
    uint64_t ino = ino_of("/etc/passwd");
    struct file *f = open_ok("/etc/passwd", O_RDWR, 0);
    cr_assert_eq(put_at(f, "W", 1, 0), 1);
    file_put(f);
    cr_assert_str_eq(text_of("/etc/passwd"), "Woot");
    cr_assert_eq(ino_of("/etc/passwd"), ino);
    cr_assert_str_eq(lower_text("/etc/passwd"), "root");
    forget();
    cr_assert_str_eq(text_of("/etc/passwd"), "Woot");
    cr_assert_eq(ino_of("/etc/passwd"), ino);
    struct kstat st;
    cr_assert_eq(stat_of("/etc/passwd", 0, &st), 0);
    cr_assert_eq(st.size, 4u);
}

Test(overlay, truncation_at_open_leaves_the_lower_alone)
{
    make_file("/etc/passwd", "x");
    cr_assert_str_eq(text_of("/etc/passwd"), "x");
    cr_assert_str_eq(lower_text("/etc/passwd"), "root");
}

Test(overlay, a_reader_sees_what_is_written_after_its_open)
{
    struct file *r = open_ok("/etc/passwd", O_RDONLY, 0);
    char b[8] = {0};
    cr_assert_eq(get_at(r, b, 4, 0), 4);
    struct file *w = open_ok("/etc/passwd", O_WRONLY | O_APPEND, 0);
    cr_assert_eq(put(w, "ed", 2), 2);
    cr_assert_eq(get_at(r, b, 8, 0), 6);
    cr_assert_eq(memcmp(b, "rooted", 6), 0);
    cr_assert_eq(vfs_lseek(r, 0, SEEK_END), 6);
    file_put(w);
    file_put(r);
}

Test(overlay, attributes_change_without_copying)
{
    AUTO_PATH p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/bin/tool", 0, &p), 0);
    struct iattr attr = {.valid = ATTR_MODE, .mode = 0755};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    attr = (struct iattr){.valid = ATTR_UID, .uid = 7};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    path_put(&p);
    forget();
    struct kstat st;
    cr_assert_eq(stat_of("/bin/tool", 0, &st), 0);
    cr_assert_eq(st.mode & 07777, 0755u);
    cr_assert_eq(st.uid, 7u);
    cr_assert_str_eq(text_of("/bin/tool"), "#!tool");
}

Test(overlay, hard_links_of_the_lower_stay_one_file)
{
    make_file("/bin/tool", "changed");
    forget();
    cr_assert_str_eq(text_of("/bin/tool2"), "changed");
    cr_assert_eq(ino_of("/bin/tool"), ino_of("/bin/tool2"));
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/bin/tool"), 0);
    forget();
    struct kstat st;
    cr_assert_eq(stat_of("/bin/tool2", 0, &st), 0);
    cr_assert_eq(st.nlink, 1u);
    cr_assert_str_eq(text_of("/bin/tool2"), "changed");
    cr_assert_str_eq(lower_text("/bin/tool"), "#!tool");
}

Test(overlay, what_is_removed_stays_removed)
{
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/etc/passwd"), 0);
    cr_assert_eq(exists("/etc/passwd"), -ENOENT);
    forget();
    cr_assert_eq(exists("/etc/passwd"), -ENOENT);
    cr_assert_not(lists(list_of("/etc"), "passwd"));
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/etc"), -ENOTEMPTY);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/etc/sub/deep"), 0);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/etc/sub"), 0);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/etc"), 0);
    forget();
    cr_assert_eq(exists("/etc"), -ENOENT);
    cr_assert_eq(make_dir("/etc"), 0); /* opaque: nothing of the lower comes back */
    cr_assert_eq(list_of("/etc")->count, 2u);
    cr_assert_eq(exists("/etc/passwd"), -ENOENT);
    make_file("/etc/passwd", "new");
    forget();
    cr_assert_str_eq(text_of("/etc/passwd"), "new");
    cr_assert_str_eq(lower_text("/etc/passwd"), "root");
    cr_assert(lists(list_of("/"), "etc"));
    cr_assert_eq(list_of("/")->count, 7u);
}

Test(overlay, directories_of_the_lower_can_be_renamed)
{
    make_file("/etc/new", "n");
    uint64_t ino = ino_of("/etc/sub");
    cr_assert_eq(move("/etc", "/usr/config", 0), 0);
    forget();
    cr_assert_eq(exists("/etc"), -ENOENT);
    cr_assert_str_eq(text_of("/usr/config/passwd"), "root");
    cr_assert_str_eq(text_of("/usr/config/sub/deep"), "deep");
    cr_assert_str_eq(text_of("/usr/config/new"), "n");
    cr_assert_eq(ino_of("/usr/config/sub"), ino);
    cr_assert(lists(list_of("/usr"), "config"));
    cr_assert_not(lists(list_of("/"), "etc"));
    cr_assert_eq(move("/usr/config", "/etc", 0), 0);
    cr_assert_str_eq(text_of("/etc/passwd"), "root");
    cr_assert_eq(list_of("/")->count, 7u);
    cr_assert_eq(list_of("/usr")->count, 3u);
}

Test(overlay, rename_replaces_lower_files_and_exchanges)
{
    make_file("/etc/tmp", "fresh");
    cr_assert_eq(move("/etc/tmp", "/etc/passwd", 0), 0);
    forget();
    cr_assert_str_eq(text_of("/etc/passwd"), "fresh");
    cr_assert_eq(list_of("/etc")->count, 4u);
    cr_assert_eq(move("/etc/passwd", "/bin/tool", RENAME_EXCHANGE), 0);
    forget();
    cr_assert_str_eq(text_of("/etc/passwd"), "#!tool");
    cr_assert_str_eq(text_of("/bin/tool"), "fresh");
    cr_assert_str_eq(text_of("/bin/tool2"), "#!tool");
    cr_assert_eq(move("/bin/tool2", "/etc/sub/tool3", 0), 0);
    forget();
    cr_assert_eq(exists("/bin/tool2"), -ENOENT);
    cr_assert_str_eq(text_of("/etc/sub/tool3"), "#!tool");
    cr_assert_eq(move("/etc/sub", "/bin", 0), -ENOTEMPTY);
}

Test(overlay, reading_in_pieces_while_removing_shows_each_name_once)
{
    char name[32];
    for (int i = 100; i < 150; i++) {
        snprintf(name, sizeof(name), "/many/%d", i);
        make_file(name, "");
    }
    struct file *f = open_ok("/many", O_RDONLY | O_DIRECTORY, 0);
    size_t removed = 0;
    for (;;) {
        struct listing l = {.ctx.emit = collect, .stop_after = 7};
        cr_assert_eq(vfs_iterate(f, &l.ctx), 0);
        if (!l.count)
            break;
        for (char *save, *n = strtok_r(l.names, " ", &save); n; n = strtok_r(NULL, " ", &save)) {
            if (n[0] == '.')
                continue;
            snprintf(name, sizeof(name), "/many/%s", n);
            cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, name), 0, "%s", name);
            removed++;
        }
    }
    file_put(f);
    cr_assert_eq(removed, 150u);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/many"), 0);
}

Test(overlay, mappings_come_from_the_lower_until_copied_up)
{
    struct file *f = open_ok("/bin/tool", O_RDONLY, 0);
    int before, after;
    uint64_t offset;
    cr_assert_eq(
        f->mappable.ops->map(&f->mappable, 0, 4096, PROT_READ, MAP_PRIVATE, &before, &offset), 0);
    make_file("/bin/tool", "new");
    cr_assert_eq(
        f->mappable.ops->map(&f->mappable, 0, 4096, PROT_READ, MAP_PRIVATE, &after, &offset), 0);
    cr_assert_neq(before, after);
    char b[8] = {0};
    cr_assert_eq(pread(after, b, 8, 0), 3);
    cr_assert_str_eq(b, "new");
    cr_assert_eq(pread(before, b, 8, 0), 6);
    file_put(f);
}

Test(overlay, xattrs_of_the_lower_are_kept_when_one_changes)
{
    AUTO_PATH low = {0};
    cr_assert_eq(vfs_walk(&g_lower_ctx, &g_lower_ctx.cwd, "/etc/passwd", 0, &low), 0);
    cr_assert_eq(vfs_setxattr(g_root, &low, "user.a", "1", 1, 0), 0);
    AUTO_PATH p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/etc/passwd", 0, &p), 0);
    char b[64];
    cr_assert_eq(vfs_getxattr(g_root, &p, "user.a", b, sizeof(b)), 1);
    cr_assert_eq(vfs_setxattr(g_root, &p, "user.b", "22", 2, 0), 0);
    cr_assert_eq(vfs_getxattr(g_root, &p, "user.a", b, sizeof(b)), 1);
    cr_assert_eq(vfs_getxattr(g_root, &p, "user.b", b, sizeof(b)), 2);
    cr_assert_eq(vfs_removexattr(g_root, &p, "user.a"), 0);
    cr_assert_eq(vfs_getxattr(g_root, &low, "user.a", b, sizeof(b)), 1);
    cr_assert_eq(vfs_getxattr(g_root, &low, "user.b", b, sizeof(b)), -ENODATA);
}

Test(overlay, tmpfiles_and_new_hard_links)
{
    struct file *f = open_ok("/etc", O_TMPFILE | O_RDWR, 0600);
    cr_assert_eq(put(f, "t", 1), 1);
    cr_assert_eq(vfs_link(&g_ctx, &f->path, &g_ctx.cwd, "/etc/named"), 0);
    file_put(f);
    AUTO_PATH p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/etc/passwd", 0, &p), 0);
    cr_assert_eq(vfs_link(&g_ctx, &p, &g_ctx.cwd, "/bin/pw"), 0);
    path_put(&p);
    make_file("/bin/pw", "both");
    forget();
    cr_assert_str_eq(text_of("/etc/passwd"), "both");
    cr_assert_str_eq(text_of("/etc/named"), "t");
}

Test(overlay, memory_is_limited_and_given_back)
{
    uint64_t before = tmpfs_used();
    static char block[MIB(1)];
    memset(block, 'z', sizeof(block));
    struct file *f = open_ok("/big", O_CREAT | O_RDWR, 0644);
    cr_assert_eq(put(f, block, sizeof(block)), (ssize_t)sizeof(block));
    file_put(f);
    cr_assert_geq(tmpfs_used() - before, sizeof(block));
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/big"), 0);
    forget();
    cr_assert_leq(tmpfs_used() - before, 2048u); /* the changed root stays */
    tmpfs_set_limit(tmpfs_used() + 3000);        /* one copy-up */
    cr_assert_eq(open_error("/bin/tool", O_RDWR), 0);
    cr_assert_eq(open_error("/etc/passwd", O_RDWR), -ENOSPC);
    cr_assert_str_eq(text_of("/etc/passwd"), "root");
    tmpfs_set_limit(UINT64_MAX);
}
