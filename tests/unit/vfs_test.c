/* SPDX-License-Identifier: Apache-2.0 */
/* sentry/vfs on a tmpfs: path walk, permissions, names, open files, locks, the dentry cache's
 * bound. */
#include "tests/unit/vfs_fixture.h"

#include "sentry/vfs/vfs_internal.h"
#include <linux/fs.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/mount.h>
#include <time.h>

TestSuite(walk, .init = fixture_tmpfs);
TestSuite(names, .init = fixture_tmpfs);
TestSuite(rights, .init = fixture_tmpfs);
TestSuite(files, .init = fixture_tmpfs);
TestSuite(locks, .init = fixture_tmpfs);
TestSuite(mounts, .init = fixture_tmpfs);
TestSuite(cache, .init = fixture_tmpfs);

static int link_to(const char *path, const char *target)
{
    return vfs_symlink(&g_ctx, &g_ctx.cwd, path, target);
}

static int walk_error(const char *path, uint32_t flags)
{
    struct path p = {0};
    int r = vfs_walk(&g_ctx, &g_ctx.cwd, path, flags, &p);
    path_put(&p);
    return r;
}

Test(walk, finds_nested_names_with_dots_and_many_slashes)
{
    cr_assert_eq(make_dir("/a"), 0);
    cr_assert_eq(make_dir("/a/b"), 0);
    make_file("/a/b/c", "x");
    uint64_t ino = ino_of("/a/b/c");
    cr_assert_eq(ino_of("//a/./b/../b///c"), ino);
    cr_assert_eq(ino_of("/../../a/b/c"), ino);
    cr_assert_eq(walk_error("/a/b/c/", 0), -ENOTDIR);
    cr_assert_eq(walk_error("/a/b/c/d", 0), -ENOTDIR);
    cr_assert_eq(walk_error("/a/x/c", 0), -ENOENT);
    cr_assert_eq(walk_error("", 0), -ENOENT);
    cr_assert_eq(walk_error("/a/b/", 0), 0);
}

Test(walk, refuses_a_name_of_256_bytes)
{
    char path[300] = "/";
    memset(path + 1, 'n', 256);
    cr_assert_eq(walk_error(path, 0), -ENAMETOOLONG);
    path[256] = '\0';
    cr_assert_eq(walk_error(path, 0), -ENOENT);
}

Test(walk, follows_links_in_the_middle_and_at_the_end_if_asked)
{
    cr_assert_eq(make_dir("/usr"), 0);
    cr_assert_eq(make_dir("/usr/bin"), 0);
    make_file("/usr/bin/sh", "#");
    cr_assert_eq(link_to("/bin", "usr/bin"), 0);
    cr_assert_eq(link_to("/usr/bin/bash", "../../bin/sh"), 0);
    struct kstat st;
    for (int i = 0; i < 3; i++) { /* uncached, then cached */
        cr_assert_eq(stat_of("/bin/bash", WALK_FOLLOW, &st), 0);
        cr_assert_eq(st.ino, ino_of("/usr/bin/sh"));
        cr_assert_eq(stat_of("/bin/bash", 0, &st), 0);
        cr_assert(S_ISLNK(st.mode));
        cr_assert_eq(stat_of("/bin/", 0, &st), 0);
        cr_assert(S_ISDIR(st.mode));
        cr_assert_eq(stat_of("/bin", 0, &st), 0);
        cr_assert(S_ISLNK(st.mode));
    }
}

Test(walk, ends_a_loop_of_links)
{
    cr_assert_eq(link_to("/x", "y"), 0);
    cr_assert_eq(link_to("/y", "x"), 0);
    cr_assert_eq(walk_error("/x", WALK_FOLLOW), -ELOOP);
    cr_assert_eq(link_to("/self", "self/self/self"), 0);
    cr_assert_eq(walk_error("/self", WALK_FOLLOW), -ELOOP);
    char name[32];
    char target[32];
    make_file("/l0", "");
    for (int i = 1; i <= 41; i++) {
        snprintf(name, sizeof(name), "/l%d", i);
        snprintf(target, sizeof(target), "l%d", i - 1);
        cr_assert_eq(link_to(name, target), 0);
    }
    cr_assert_eq(walk_error("/l40", WALK_FOLLOW), 0);
    cr_assert_eq(walk_error("/l41", WALK_FOLLOW), -ELOOP);
}

Test(walk, keeps_within_what_openat2_asks)
{
    cr_assert_eq(make_dir("/jail"), 0);
    cr_assert_eq(make_dir("/jail/in"), 0);
    make_file("/secret", "s");
    make_file("/jail/secret", "j");
    cr_assert_eq(link_to("/jail/abs", "/secret"), 0);
    cr_assert_eq(link_to("/jail/rel", "in/../../secret"), 0);
    AUTO_PATH jail = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/jail", 0, &jail), 0);
    struct path p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &jail, "../secret", WALK_BENEATH, &p), -EXDEV);
    cr_assert_eq(vfs_walk(&g_ctx, &jail, "abs", WALK_BENEATH | WALK_FOLLOW, &p), -EXDEV);
    cr_assert_eq(vfs_walk(&g_ctx, &jail, "rel", WALK_BENEATH | WALK_FOLLOW, &p), -EXDEV);
    cr_assert_eq(vfs_walk(&g_ctx, &jail, "abs", WALK_NO_SYMLINKS | WALK_FOLLOW, &p), -ELOOP);
    cr_assert_eq(vfs_walk(&g_ctx, &jail, "abs", WALK_IN_ROOT | WALK_FOLLOW, &p), 0);
    char *text;
    cr_assert_eq(vfs_path_text(&p, &g_ctx.root, &text), 0);
    cr_assert_str_eq(text, "/jail/secret");
    free(text);
    path_put(&p);
    cr_assert_eq(vfs_walk(&g_ctx, &jail, "../../rel", WALK_IN_ROOT | WALK_FOLLOW, &p), 0);
    path_put(&p);
}

Test(walk, a_cached_walk_is_fast)
{
    cr_assert_eq(make_dir("/usr"), 0);
    cr_assert_eq(make_dir("/usr/lib"), 0);
    cr_assert_eq(make_dir("/usr/lib/python3"), 0);
    make_file("/usr/lib/python3/os.py", "");
    cr_assert_eq(link_to("/lib", "usr/lib"), 0);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    int r = exists("/lib/python3/os.py");
    for (int i = 0; i < 100000; i++)
        r |= exists("/lib/python3/os.py");
    clock_gettime(CLOCK_MONOTONIC, &b);
    cr_assert_eq(r, 0);
    /* A figure for whoever reads the log; never compared. */
    fprintf(stderr, "cached stat: %ld ns\n",
            ((b.tv_sec - a.tv_sec) * 1000000000L + b.tv_nsec - a.tv_nsec) / 100000);
}

Test(names, exist_once_and_go_away)
{
    cr_assert_eq(make_dir("/d"), 0);
    cr_assert_eq(make_dir("/d"), -EEXIST);
    cr_assert_eq(make_dir("/"), -EEXIST);
    cr_assert_eq(make_dir("/d/."), -EEXIST);
    cr_assert_eq(make_dir("/n/m"), -ENOENT);
    cr_assert_eq(make_dir("/e/"), 0);
    make_file("/d/f", "1");
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d"), -ENOTEMPTY);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d/."), -EINVAL);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d/.."), -ENOTEMPTY);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/"), -EBUSY);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d/f"), -ENOTDIR);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d"), -EISDIR);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/f/"), -ENOTDIR);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/f"), 0);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/f"), -ENOENT);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d/"), 0);
    cr_assert_eq(exists("/d"), -ENOENT);
}

Test(names, a_removed_directory_takes_no_more_entries)
{
    cr_assert_eq(make_dir("/d"), 0);
    AUTO_PATH d = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/d", 0, &d), 0);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d"), 0);
    cr_assert_eq(vfs_mkdir(&g_ctx, &d, "x", 0755), -ENOENT);
    char *text;
    cr_assert_eq(vfs_path_text(&d, &g_ctx.root, &text), 0);
    cr_assert_str_eq(text, "/d (deleted)");
    free(text);
}

Test(names, rename_moves_replaces_and_exchanges)
{
    make_file("/a", "A");
    make_file("/b", "B");
    cr_assert_eq(exists("/c"), -ENOENT); /* negative entry */
    cr_assert_eq(move("/a", "/c", 0), 0);
    cr_assert_str_eq(text_of("/c"), "A");
    cr_assert_eq(exists("/a"), -ENOENT);
    cr_assert_eq(move("/c", "/b", RENAME_NOREPLACE), -EEXIST);
    cr_assert_eq(move("/c", "/b", RENAME_EXCHANGE), 0);
    cr_assert_str_eq(text_of("/b"), "A");
    cr_assert_str_eq(text_of("/c"), "B");
    cr_assert_eq(move("/c", "/b", 0), 0);
    cr_assert_str_eq(text_of("/b"), "B");
    cr_assert_eq(exists("/c"), -ENOENT);
}

Test(names, rename_of_directories_keeps_what_is_below)
{
    cr_assert_eq(make_dir("/d"), 0);
    cr_assert_eq(make_dir("/d/e"), 0);
    make_file("/d/e/f", "F");
    cr_assert_eq(make_dir("/t"), 0);
    AUTO_PATH e = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/d/e", 0, &e), 0);
    cr_assert_eq(move("/d", "/t/a-much-longer-name-than-the-old-one", 0), 0);
    cr_assert_str_eq(text_of("/t/a-much-longer-name-than-the-old-one/e/f"), "F");
    char *text;
    cr_assert_eq(vfs_path_text(&e, &g_ctx.root, &text), 0);
    cr_assert_str_eq(text, "/t/a-much-longer-name-than-the-old-one/e");
    free(text);
    cr_assert_eq(move("/t", "/t/a-much-longer-name-than-the-old-one/e/x", 0), -EINVAL);
    cr_assert_eq(move("/t/a-much-longer-name-than-the-old-one/e", "/t", 0), -ENOTEMPTY);
    cr_assert_eq(make_dir("/empty"), 0);
    cr_assert_eq(move("/t", "/empty", 0), 0);
    struct kstat st;
    cr_assert_eq(stat_of("/", 0, &st), 0);
    cr_assert_eq(st.nlink, 3u);
    make_file("/file", "");
    cr_assert_eq(move("/file", "/empty", 0), -EISDIR);
    cr_assert_eq(move("/empty", "/file", 0), -ENOTDIR);
}

Test(names, hard_links_share_an_inode)
{
    make_file("/a", "A");
    AUTO_PATH a = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/a", 0, &a), 0);
    cr_assert_eq(vfs_link(&g_ctx, &a, &g_ctx.cwd, "/b"), 0);
    cr_assert_eq(vfs_link(&g_ctx, &a, &g_ctx.cwd, "/b"), -EEXIST);
    struct kstat st;
    cr_assert_eq(stat_of("/b", 0, &st), 0);
    cr_assert_eq(st.nlink, 2u);
    cr_assert_eq(st.ino, ino_of("/a"));
    cr_assert_eq(move("/a", "/b", 0), 0); /* same file: nothing happens */
    cr_assert_eq(exists("/a"), 0);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/a"), 0);
    cr_assert_str_eq(text_of("/b"), "A");
}

Test(names, a_tmpfile_gets_a_name_by_linkat)
{
    cr_assert_eq(make_dir("/d"), 0);
    struct file *f = open_ok("/d", O_TMPFILE | O_RDWR, 0600);
    cr_assert_eq(put(f, "t", 1), 1);
    cr_assert_eq(list_of("/d")->count, 2u);
    cr_assert_eq(vfs_link(&g_ctx, &f->path, &g_ctx.cwd, "/d/named"), 0);
    file_put(f);
    cr_assert_str_eq(text_of("/d/named"), "t");
    f = open_ok("/d", O_TMPFILE | O_RDWR | O_EXCL, 0600);
    cr_assert_eq(vfs_link(&g_ctx, &f->path, &g_ctx.cwd, "/d/other"), -ENOENT);
    file_put(f);
}

Test(rights, follow_mode_bits_and_capabilities)
{
    make_file("/f", "x");
    struct iattr attr = {.valid = ATTR_MODE, .mode = 0600};
    AUTO_PATH p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/f", 0, &p), 0);
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    use_creds(g_user);
    cr_assert_eq(open_error("/f", O_RDONLY), -EACCES);
    cr_assert_eq(make_dir("/d"), -EACCES);
    cr_assert_eq(vfs_setattr(g_user, &p, &attr), -EPERM);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/f"), -EACCES);
    use_creds(g_root);
    cr_assert_eq(open_error("/f", O_RDWR), 0);
    cr_assert_eq(vfs_permission(g_root, dentry_inode(p.dentry), MAY_EXEC), -EACCES);
}

Test(rights, sticky_directories_protect_others_files)
{
    cr_assert_eq(vfs_mkdir(&g_ctx, &g_ctx.cwd, "/tmp", 01777), 0);
    make_file("/tmp/roots", "x");
    use_creds(g_user);
    make_file("/tmp/mine", "x");
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/tmp/roots"), -EPERM);
    cr_assert_eq(move("/tmp/mine", "/tmp/roots", 0), -EPERM);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/tmp/mine"), 0);
}

Test(rights, chown_and_writes_drop_set_id_bits)
{
    make_file("/f", "x");
    AUTO_PATH p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/f", 0, &p), 0);
    struct iattr attr = {.valid = ATTR_MODE, .mode = 06777};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    use_creds(g_user);
    struct file *f = open_ok("/f", O_WRONLY, 0);
    cr_assert_eq(put(f, "y", 1), 1);
    struct kstat st;
    cr_assert_eq(vfs_getattr(&p, &st), 0);
    cr_assert_eq(st.mode & 07777, 0777u, "%o", st.mode);
    file_put(f);
    attr = (struct iattr){.valid = ATTR_MODE, .mode = 04755};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    attr = (struct iattr){.valid = ATTR_UID, .uid = 5};
    cr_assert_eq(vfs_setattr(g_user, &p, &attr), -EPERM);
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    cr_assert_eq(vfs_getattr(&p, &st), 0);
    cr_assert_eq(st.mode & 07777, 0755u);
    cr_assert_eq(st.uid, 5u);
}

Test(rights, a_set_group_id_directory_gives_its_group)
{
    cr_assert_eq(make_dir("/g"), 0);
    AUTO_PATH p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/g", 0, &p), 0);
    struct iattr attr = {.valid = ATTR_GID, .gid = 77};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    attr = (struct iattr){.valid = ATTR_MODE, .mode = 02777};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    cr_assert_eq(make_dir("/g/sub"), 0);
    struct kstat st;
    cr_assert_eq(stat_of("/g/sub", 0, &st), 0);
    cr_assert_eq(st.gid, 77u);
    cr_assert(st.mode & S_ISGID);
}

Test(rights, an_execution_and_a_writer_exclude_each_other)
{
    make_file("/prog", "x");
    struct file *f = open_ok("/prog", O_RDONLY, 0);
    cr_assert_eq(inode_deny_write(f->inode), 0);
    cr_assert_eq(open_error("/prog", O_WRONLY), -ETXTBSY);
    inode_allow_write(f->inode);
    struct file *w = open_ok("/prog", O_WRONLY, 0);
    cr_assert_eq(inode_deny_write(f->inode), -ETXTBSY);
    file_put(w);
    cr_assert_eq(inode_deny_write(f->inode), 0);
    inode_allow_write(f->inode);
    file_put(f);
}

Test(files, open_has_linux_errors)
{
    make_file("/f", "x");
    cr_assert_eq(make_dir("/d"), 0);
    cr_assert_eq(link_to("/dangling", "nowhere"), 0);
    cr_assert_eq(open_error("/f", O_CREAT | O_EXCL | O_RDWR), -EEXIST);
    cr_assert_eq(open_error("/dangling", O_CREAT | O_EXCL | O_RDWR), -EEXIST);
    cr_assert_eq(open_error("/d", O_RDWR), -EISDIR);
    cr_assert_eq(open_error("/d", O_CREAT | O_RDONLY), -EISDIR);
    cr_assert_eq(open_error("/new/", O_CREAT | O_RDWR), -EISDIR);
    cr_assert_eq(open_error("/f/", O_CREAT | O_RDWR), -ENOTDIR);
    cr_assert_eq(open_error("/f", O_DIRECTORY), -ENOTDIR);
    cr_assert_eq(open_error("/dangling", O_RDONLY), -ENOENT);
    cr_assert_eq(open_error("/dangling", O_RDONLY | O_NOFOLLOW), -ELOOP);
    cr_assert_eq(open_error("/dangling", O_CREAT | O_RDWR), 0);
    cr_assert_eq(exists("/nowhere"), 0);
}

Test(files, a_new_file_may_be_written_whatever_its_mode)
{
    use_creds(g_root);
    cr_assert_eq(vfs_mkdir(&g_ctx, &g_ctx.cwd, "/tmp", 01777), 0);
    use_creds(g_user);
    struct file *f = open_ok("/tmp/ro", O_CREAT | O_WRONLY, 0444);
    cr_assert_eq(put(f, "x", 1), 1);
    file_put(f);
    cr_assert_eq(open_error("/tmp/ro", O_WRONLY), -EACCES);
}

Test(files, an_unlinked_file_lives_until_its_last_close)
{
    make_file("/f", "still");
    struct file *f = open_ok("/f", O_RDONLY, 0);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/f"), 0);
    char b[8] = {0};
    cr_assert_eq(get_at(f, b, 5, 0), 5);
    cr_assert_str_eq(b, "still");
    struct kstat st;
    cr_assert_eq(vfs_getattr(&f->path, &st), 0);
    cr_assert_eq(st.nlink, 0u);
    file_put(f);
}

Test(files, path_only_files_read_and_write_nothing)
{
    make_file("/f", "x");
    struct file *f = open_ok("/f", O_PATH, 0);
    char b;
    cr_assert_eq(get_at(f, &b, 1, 0), -EBADF);
    cr_assert_eq(vfs_lseek(f, 0, SEEK_SET), -EBADF);
    file_put(f);
}

static int set_lock(struct file *f, int type, int64_t start, int64_t end, int owner)
{
    static const char owners[8];
    struct posix_lock l = {
        .type = type, .start = start, .end = end, .owner = &owners[owner], .pid = owner};
    return posix_lock_set(f, &l, false);
}

Test(locks, of_records_split_merge_and_conflict)
{
    make_file("/f", "x");
    struct file *f = open_ok("/f", O_RDWR, 0);
    cr_assert_eq(set_lock(f, F_WRLCK, 0, 99, 1), 0);
    cr_assert_eq(set_lock(f, F_RDLCK, 50, 60, 2), -EAGAIN);
    cr_assert_eq(set_lock(f, F_UNLCK, 40, 69, 1), 0);
    cr_assert_eq(set_lock(f, F_RDLCK, 40, 69, 2), 0);
    cr_assert_eq(set_lock(f, F_RDLCK, 50, 60, 3), 0);
    cr_assert_eq(set_lock(f, F_WRLCK, 39, 39, 2), -EAGAIN);
    cr_assert_eq(set_lock(f, F_WRLCK, 50, 50, 2), -EAGAIN);
    struct posix_lock q = {.type = F_WRLCK, .start = 0, .end = INT64_MAX, .owner = NULL, .pid = 9};
    cr_assert_eq(posix_lock_get(f, &q), 0);
    cr_assert_eq(q.type, F_WRLCK);
    cr_assert_eq(q.pid, 1);
    cr_assert_eq(q.start, 0);
    cr_assert_eq(q.end, 39);
    cr_assert_eq(set_lock(f, F_UNLCK, 0, INT64_MAX, 1), 0);
    cr_assert_eq(set_lock(f, F_UNLCK, 0, INT64_MAX, 2), 0);
    cr_assert_eq(set_lock(f, F_UNLCK, 0, INT64_MAX, 3), 0);
    cr_assert_eq(set_lock(f, F_WRLCK, 0, INT64_MAX, 4), 0);
    file_put(f);
}

Test(locks, of_whole_files_belong_to_the_open_description)
{
    make_file("/f", "x");
    struct file *a = open_ok("/f", O_RDWR, 0);
    struct file *b = open_ok("/f", O_RDONLY, 0);
    cr_assert_eq(flock_set(a, LOCK_SH), 0);
    cr_assert_eq(flock_set(b, LOCK_SH | LOCK_NB), 0);
    cr_assert_eq(flock_set(a, LOCK_EX | LOCK_NB), -EAGAIN);
    cr_assert_eq(flock_set(b, LOCK_UN), 0);
    cr_assert_eq(flock_set(a, LOCK_EX | LOCK_NB), 0);
    cr_assert_eq(flock_set(b, LOCK_SH | LOCK_NB), -EAGAIN);
    file_put(a);
    cr_assert_eq(flock_set(b, LOCK_EX | LOCK_NB), 0);
    cr_assert_eq(flock_set(b, 77), -EINVAL);
    file_put(b);
}

Test(mounts, cover_a_directory_and_are_left_by_dotdot)
{
    cr_assert_eq(make_dir("/m"), 0);
    make_file("/m/under", "");
    struct superblock *sb;
    struct inode *root;
    cr_assert_eq(tmpfs_new(01777, 0, 0, 0, &sb, &root), 0);
    AUTO_PATH at = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/m", 0, &at), 0);
    cr_assert_eq(vfs_mount(g_ctx.ns, &at, sb, root, MS_NODEV | MOUNT_BY_GUEST, "tmpfs"), 0);
    cr_assert_eq(vfs_mount(g_ctx.ns, &at, sb, root, 0, "tmpfs"), -EBUSY);
    inode_put(root);
    superblock_put(sb);
    cr_assert_eq(exists("/m/under"), -ENOENT);
    make_file("/m/over", "");
    cr_assert_eq(ino_of("/m/.."), ino_of("/"));
    cr_assert_eq(move("/m/over", "/over", 0), -EXDEV);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/m"), -EBUSY);
    cr_assert_eq(move("/m", "/n", 0), -EBUSY);
    cr_assert_eq(walk_error("/m/over", WALK_NO_XDEV), -EXDEV);
    AUTO_PATH over = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/m/over", 0, &over), 0);
    char *text;
    cr_assert_eq(vfs_path_text(&over, &g_ctx.root, &text), 0);
    cr_assert_str_eq(text, "/m/over");
    free(text);
    AUTO_PATH top = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/m", 0, &top), 0);
    cr_assert_eq(vfs_umount(g_ctx.ns, &top, 0), -EBUSY);
    path_put(&over);
    cr_assert_eq(vfs_umount(g_ctx.ns, &top, 0), 0);
    path_put(&top);
    cr_assert_eq(exists("/m/under"), 0);
}

Test(mounts, of_the_sandbox_keep_their_protections)
{
    cr_assert_eq(make_dir("/m"), 0);
    cr_assert_eq(make_dir("/b"), 0);
    struct superblock *sb;
    struct inode *root;
    cr_assert_eq(tmpfs_new(0755, 0, 0, 0, &sb, &root), 0);
    AUTO_PATH at = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/m", 0, &at), 0);
    cr_assert_eq(vfs_mount(g_ctx.ns, &at, sb, root, MS_RDONLY | MS_NODEV, "tmpfs"), 0);
    inode_put(root);
    superblock_put(sb);
    AUTO_PATH top = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/m", 0, &top), 0);
    cr_assert_eq(vfs_remount(g_ctx.ns, &top, MS_NODEV), -EPERM);
    cr_assert_eq(vfs_remount(g_ctx.ns, &top, MS_RDONLY | MS_NODEV | MS_NOATIME), 0);
    cr_assert_eq(vfs_umount(g_ctx.ns, &top, 0), -EINVAL);
    AUTO_PATH b = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/b", 0, &b), 0);
    cr_assert_eq(vfs_bind(g_ctx.ns, &b, &top), 0);
    AUTO_PATH bound = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/b", 0, &bound), 0);
    cr_assert_eq(bound.dentry, top.dentry);
    cr_assert_eq(vfs_remount(g_ctx.ns, &bound, 0), -EPERM);
}

Test(mounts, that_are_read_only_refuse_changes)
{
    make_file("/f", "x");
    g_ctx.ns->root->flags |= MS_RDONLY;
    cr_assert_eq(open_error("/f", O_WRONLY), -EROFS);
    cr_assert_eq(open_error("/f", O_RDONLY), 0);
    cr_assert_eq(open_error("/g", O_CREAT | O_WRONLY), -EROFS);
    cr_assert_eq(make_dir("/d"), -EROFS);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/f"), -EROFS);
}

Test(cache, stays_below_its_limit)
{
    cr_assert_eq(make_dir("/d"), 0);
    dcache_set_limit(100);
    char name[32];
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "/d/%d", i);
        make_file(name, "");
    }
    cr_assert_leq(dcache_count(), 110u);
    for (int i = 0; i < 5000; i++) {
        snprintf(name, sizeof(name), "/d/%d", i);
        cr_assert_eq(exists(name), 0);
        snprintf(name, sizeof(name), "/d/no%d", i);
        cr_assert_eq(exists(name), -ENOENT);
    }
    cr_assert_leq(dcache_count(), 110u);
}
