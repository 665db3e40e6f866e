/* SPDX-License-Identifier: Apache-2.0 */
/* The gofer's server on a temporary tree: what it finds, and everything that it must not do. */
#include "gofer/server_private.h"
#include "tests/unit/gofer_fixture.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <errno.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <sys/xattr.h>

static struct tree g_tree;
static struct gofer_attach g_attach;
static struct gofer_server *g_server;
static uint64_t g_root;

static void start(bool read_only, bool public_only)
{
    g_attach = tree_attach(&g_tree);
    g_attach.read_only = read_only;
    g_attach.public_only = public_only;
    g_server = server_on(&g_attach, 1, NULL, 0);
    g_root = root_handle(g_server, 0);
    cr_assert_neq(g_root, 0);
}

static void setup(void)
{
    tree_make(&g_tree);
    start(false, false);
}

static void setup_public(void)
{
    tree_make(&g_tree);
    start(true, true);
}

static void teardown(void)
{
    gofer_server_free(g_server);
    tree_remove(&g_tree);
}

static int walk(uint64_t at, const char *path, struct gofer_walk_reply *reply)
{
    struct gofer_walk_request req = {.at = at, .at_path = path};
    return do_walk(g_server, &req, reply);
}

static int open_file(const char *path, uint32_t access)
{
    struct gofer_open_request req = {.at = g_root, .at_path = path, .access = access};
    struct gofer_open_reply reply;
    int error = do_open(g_server, &req, &reply);
    return error ? error : g_hfd;
}

static int get_stat(const char *path, struct gofer_stat *ret)
{
    struct gofer_getattr_request req = {.at = g_root, .at_path = path};
    struct gofer_getattr_reply reply;
    int error = do_getattr(g_server, &req, &reply);
    if (!error)
        *ret = reply.stat;
    return error;
}

static struct gofer_step step_at(const struct gofer_walk_reply *reply, uint32_t index)
{
    struct wire_reader r;
    struct gofer_step step = {0};
    wire_reader_init(&r, reply->steps, reply->steps_size);
    for (uint32_t i = 0; i <= index; i++)
        gofer_get_step(&r, &step);
    cr_assert(!r.failed);
    return step;
}

/* ---- codec --------------------------------------------------------------------------------------- */

Test(gofer_codec, knows_which_names_and_paths_are_valid)
{
    const char *names[] = {"a", "...", ".a", "a b", "\xff"};
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        cr_expect(gofer_name_is_valid(names[i], strlen(names[i])), "%s", names[i]);
    const char *bad_names[] = {"", ".", "..", "a/b", "/"};
    for (size_t i = 0; i < ARRAY_COUNT(bad_names); i++)
        cr_expect(!gofer_name_is_valid(bad_names[i], strlen(bad_names[i])), "%s", bad_names[i]);
    const char *paths[] = {"", "a", "a/b", "a/b/..c"};
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++)
        cr_expect(gofer_path_is_valid(paths[i], strlen(paths[i])), "%s", paths[i]);
    const char *bad_paths[] = {"/", "/a", "a/", "a//b", "a/../b", "..", "a/.", "./a"};
    for (size_t i = 0; i < ARRAY_COUNT(bad_paths); i++)
        cr_expect(!gofer_path_is_valid(bad_paths[i], strlen(bad_paths[i])), "%s", bad_paths[i]);
}

/* ---- finding ------------------------------------------------------------------------------------- */

Test(gofer_walk, returns_every_component, .init = setup, .fini = teardown)
{
    struct gofer_walk_reply reply;
    cr_assert_eq(walk(g_root, "a/b/c/file", &reply), 0);
    cr_assert_eq(reply.count, 4);
    cr_assert_eq(reply.stop, GOFER_WALK_DONE);
    cr_assert(S_ISDIR(step_at(&reply, 2).stat.mode));
    cr_assert_neq(step_at(&reply, 2).handle, 0);
    cr_assert_eq(step_at(&reply, 3).stat.size, 4);
    cr_assert_eq(step_at(&reply, 3).handle, 0);
    cr_assert_eq(walk(step_at(&reply, 2).handle, "file", &reply), 0);
    cr_assert_eq(reply.count, 1);
}

Test(gofer_walk, stops_where_it_must, .init = setup, .fini = teardown)
{
    struct gofer_walk_reply reply;
    cr_assert_eq(walk(g_root, "a/b/none/x", &reply), 0);
    cr_assert_eq(reply.count, 2);
    cr_assert_eq(reply.stop, GOFER_WALK_MISSING);
    cr_assert_eq(walk(g_root, "hello/x", &reply), 0);
    cr_assert_eq(reply.count, 1);
    cr_assert_eq(reply.stop, GOFER_WALK_NOT_DIR);
    cr_assert_eq(walk(g_root, "etc/passwd", &reply), 0);
    cr_assert_eq(reply.count, 1);
    cr_assert_eq(reply.stop, GOFER_WALK_SYMLINK);
    cr_assert_str_eq(reply.target, "/etc");
}

Test(gofer_open, gives_a_descriptor_with_the_access_asked_for, .init = setup, .fini = teardown)
{
    char bytes[16] = "";
    int hfd = open_file("hello", GOFER_OPEN_READ);
    cr_assert_geq(hfd, 0);
    cr_assert_eq(read(hfd, bytes, 12), 12);
    cr_assert_str_eq(bytes, "hello, world");
    cr_assert_eq(write(hfd, "x", 1), -1);
    cr_assert(fcntl(hfd, F_GETFD) & FD_CLOEXEC);
    hfd = open_file("hello", GOFER_OPEN_READ | GOFER_OPEN_WRITE);
    cr_assert_eq(pwrite(hfd, "J", 1, 0), 1);
    cr_assert_eq(open_file("hello", 0), -EINVAL);
    cr_assert_eq(open_file("hello", 4), -EINVAL);
    cr_assert_eq(open_file("a/b", GOFER_OPEN_READ), -EISDIR);
}

Test(gofer_handle, that_is_stale_or_made_up_is_refused, .init = setup, .fini = teardown)
{
    struct gofer_walk_reply reply;
    cr_assert_eq(walk(g_root, "a", &reply), 0);
    uint64_t handle = step_at(&reply, 0).handle;
    struct gofer_close_request close_req = {.handles = (uint8_t *)&handle, .handles_size = 8};
    struct gofer_close_reply close_reply;
    cr_assert_eq(do_close(g_server, &close_req, &close_reply), 0);
    cr_assert_eq(close_reply.count, 1);
    cr_assert_eq(walk(handle, "b", &reply), -EBADF);
    cr_assert_eq(walk(g_root, "a", &reply), 0); /* takes the same place again, with another generation */
    cr_assert_eq(walk(handle, "b", &reply), -EBADF);
    uint64_t made_up[] = {0, 1, UINT64_MAX, UINT32_MAX, g_root + (UINT64_C(1) << 32), g_root + 1000};
    for (size_t i = 0; i < ARRAY_COUNT(made_up); i++)
        cr_expect_eq(walk(made_up[i], "", &reply), -EBADF);
}

Test(gofer_handle, are_limited, .init = setup, .fini = teardown)
{
    struct gofer_walk_reply reply;
    g_server->table.limit = 3;
    cr_assert_eq(walk(g_root, "a/b/c", &reply), 0);
    cr_assert_eq(reply.count, 3);
    cr_assert_neq(step_at(&reply, 1).handle, 0);
    cr_assert_eq(step_at(&reply, 2).handle, 0);
}

static size_t count_entries(const char *path, bool *ret_seen_file)
{
    struct gofer_readdir_request req = {.at = g_root, .at_path = path};
    struct gofer_readdir_reply reply;
    size_t total = 0;
    for (;;) {
        int error = do_readdir(g_server, &req, &reply);
        cr_assert_eq(error, 0, "readdir: %d", error);
        struct wire_reader r;
        wire_reader_init(&r, reply.entries, reply.entries_size);
        for (uint32_t i = 0; i < reply.count; i++) {
            struct gofer_entry entry;
            gofer_get_entry(&r, &entry);
            req.cookie = entry.cookie;
            if (strcmp(entry.name, "file17") == 0)
                *ret_seen_file = entry.stat.size == 3 && S_ISREG(entry.stat.mode);
        }
        cr_assert(wire_reader_done(&r));
        total += reply.count;
        if (reply.is_end)
            return total;
    }
}

Test(gofer_readdir, returns_all_of_a_large_directory, .init = setup, .fini = teardown)
{
    tree_mkdir(&g_tree, "large", 0755);
    for (int i = 0; i < 3000; i++) {
        char name[300];
        snprintf(name, sizeof(name), "large/file%d", i);
        tree_write(&g_tree, name, "abc", 0644);
    }
    bool seen = false;
    cr_assert_eq(count_entries("large", &seen), 3000);
    cr_assert(seen);
}

Test(gofer_readdir, batches_fit_with_short_and_with_long_names, .init = setup, .fini = teardown)
{
    tree_mkdir(&g_tree, "short", 0755);
    tree_mkdir(&g_tree, "long", 0755);
    bool seen = false;
    for (int i = 0; i < 900; i++) {
        char name[300];
        snprintf(name, sizeof(name), "short/%d", i);
        tree_write(&g_tree, name, "", 0644);
        snprintf(name, sizeof(name), "long/%0255d", i);
        tree_write(&g_tree, name, "", 0644);
    }
    cr_assert_eq(count_entries("short", &seen), 900);
    cr_assert_eq(count_entries("long", &seen), 900);
}

Test(gofer_readdir, continues_without_its_open_stream, .init = setup, .fini = teardown)
{
    tree_mkdir(&g_tree, "d", 0755);
    for (int i = 0; i < 800; i++) {
        char name[64];
        snprintf(name, sizeof(name), "d/some-longer-name-%d", i);
        tree_write(&g_tree, name, "", 0644);
    }
    struct gofer_readdir_request req = {.at = g_root, .at_path = "d"};
    struct gofer_readdir_reply reply;
    size_t total = 0;
    do {
        cr_assert_eq(do_readdir(g_server, &req, &reply), 0);
        struct wire_reader r;
        struct gofer_entry entry;
        wire_reader_init(&r, reply.entries, reply.entries_size);
        for (uint32_t i = 0; i < reply.count; i++) {
            gofer_get_entry(&r, &entry);
            req.cookie = entry.cookie;
        }
        total += reply.count;
        for (size_t i = 0; i < DIR_STREAMS; i++) {
            if (g_server->streams[i].hfd >= 0)
                close(g_server->streams[i].hfd);
            g_server->streams[i].hfd = -1;
        }
    } while (!reply.is_end);
    cr_assert_eq(total, 800);
}

/* ---- escapes: invariant I4 ----------------------------------------------------------------------- */

/* Each resolve flag has its line here: taking one out of open_beneath() turns it red. */
Test(gofer_escape, open_beneath_stays_beneath, .init = setup, .fini = teardown)
{
    int dir = open(g_tree.root, O_PATH | O_DIRECTORY);
    cr_expect_eq(open_beneath(dir, "../secret", O_RDONLY, 0, 0), -EXDEV);
    cr_expect_eq(open_beneath(dir, "a/../../secret", O_PATH, 0, 0), -EXDEV);
    cr_expect_eq(open_beneath(dir, "/etc/passwd", O_RDONLY, 0, 0), -EXDEV);
    cr_expect_eq(open_beneath(dir, "link", O_RDONLY, 0, 0), -ELOOP);
    cr_expect_eq(open_beneath(dir, "etc/passwd", O_RDONLY, 0, 0), -ELOOP);
    int proc = open("/proc/self", O_PATH | O_DIRECTORY);
    cr_expect_eq(open_beneath(proc, "root/etc/passwd", O_RDONLY, 0, 0), -ELOOP);
    int hfd = open_beneath(dir, "link", O_PATH, 0, 0);
    struct stat st;
    cr_assert_geq(hfd, 0);
    cr_assert_eq(fstat(hfd, &st), 0);
    cr_expect(S_ISLNK(st.st_mode));
}

Test(gofer_escape, dotdot_in_a_request_is_malformed, .init = setup, .fini = teardown)
{
    struct gofer_walk_reply reply;
    const char *paths[] = {"..", "../secret", "a/../../secret", "/etc/passwd", "a//b", "."};
    for (size_t i = 0; i < ARRAY_COUNT(paths); i++) {
        cr_expect_eq(walk(g_root, paths[i], &reply), -EPROTO, "%s", paths[i]);
        cr_expect_eq(open_file(paths[i], GOFER_OPEN_READ), -EPROTO, "%s", paths[i]);
    }
    struct gofer_unlink_request req = {.dir = g_root, .dir_path = "a", .name = "../hello"};
    struct gofer_unlink_reply unlink_reply;
    cr_expect_eq(do_unlink(g_server, &req, &unlink_reply), -EPROTO);
    req.name = "..";
    cr_expect_eq(do_unlink(g_server, &req, &unlink_reply), -EPROTO);
}

Test(gofer_escape, symlinks_are_never_followed, .init = setup, .fini = teardown)
{
    cr_expect_eq(open_file("out", GOFER_OPEN_READ), -ENXIO);
    cr_expect_eq(open_file("link", GOFER_OPEN_READ), -ENXIO);
    cr_expect_eq(open_file("etc/passwd", GOFER_OPEN_READ), -ENOTDIR);
    struct gofer_stat st;
    cr_assert_eq(get_stat("out", &st), 0);
    cr_expect(S_ISLNK(st.mode));
    struct gofer_create_request req = {.dir = g_root, .dir_path = "etc", .name = "x", .mode = 0644};
    struct gofer_create_reply reply;
    cr_expect_eq(do_create(g_server, &req, &reply), -ENOTDIR);
    struct gofer_setattr_request set = {.at = g_root, .at_path = "out", .valid = GOFER_SET_SIZE};
    struct gofer_setattr_reply set_reply;
    cr_expect_neq(do_setattr(g_server, &set, &set_reply), 0);
    set.valid = GOFER_SET_MODE;
    cr_expect_eq(do_setattr(g_server, &set, &set_reply), -EOPNOTSUPP);
    char path[4200];
    tree_path(&g_tree, "../secret", path);
    struct stat secret;
    stat(path, &secret);
    cr_expect_eq(secret.st_size, 5);
    cr_expect_eq(secret.st_mode & 07777, 0644);
}

Test(gofer_escape, fifos_and_devices_are_never_opened, .init = setup, .fini = teardown, .timeout = 20)
{
    cr_expect_eq(open_file("fifo", GOFER_OPEN_READ), -ENXIO);
    cr_expect_eq(open_file("fifo", GOFER_OPEN_READ | GOFER_OPEN_WRITE), -ENXIO);
    char path[4200];
    tree_path(&g_tree, "null", path);
    if (mknod(path, S_IFCHR | 0666, makedev(1, 3)) == 0)
        cr_expect_eq(open_file("null", GOFER_OPEN_READ), -ENXIO);
    struct gofer_setattr_request set = {.at = g_root, .at_path = "fifo", .valid = GOFER_SET_SIZE};
    struct gofer_setattr_reply set_reply;
    cr_expect_eq(do_setattr(g_server, &set, &set_reply), -EINVAL);
    struct gofer_getxattr_request get = {.at = g_root, .at_path = "fifo", .name = "user.x"};
    struct gofer_getxattr_reply get_reply;
    cr_expect_eq(do_getxattr(g_server, &get, &get_reply), -ENODATA);
}

static _Atomic bool g_stop;

/* a/b is a directory one moment and a symlink to what is outside the next; so is the file a/x. */
static void *swap(void *arg)
{
    (void)arg;
    int dir = open(g_tree.root, O_PATH | O_DIRECTORY);
    while (!g_stop) {
        renameat2(dir, "real", dir, "a/x", RENAME_EXCHANGE);
        renameat2(dir, "outdir", dir, "a/b", RENAME_EXCHANGE);
    }
    close(dir);
    return NULL;
}

Test(gofer_escape, renames_under_it_lead_nowhere, .init = setup, .fini = teardown)
{
    tree_write(&g_tree, "a/x", "inside", 0644);
    tree_write(&g_tree, "a/b/secret", "inside", 0644);
    tree_symlink(&g_tree, "real", "../../secret");
    tree_symlink(&g_tree, "outdir", "../..");
    pthread_t thread;
    pthread_create(&thread, NULL, swap, NULL);
    int reached = 0;
    for (int i = 0; i < 20000; i++) {
        int hfd = open_file(i & 1 ? "a/x" : "a/b/secret", GOFER_OPEN_READ);
        char bytes[8] = "";
        if (hfd < 0) {
            cr_assert(hfd == -ENXIO || hfd == -ESTALE || hfd == -ENOENT || hfd == -ENOTDIR, "%d", hfd);
            continue;
        }
        cr_assert_eq(read(hfd, bytes, 7), 6);
        cr_assert_str_eq(bytes, "inside");
        close(hfd);
        reached++;
    }
    g_stop = true;
    pthread_join(thread, NULL);
    cr_assert_gt(reached, 0);
}

/* The control of the drill above: the same race against a plain openat() is lost. */
Test(gofer_escape, control_plain_openat_is_led_out, .init = setup, .fini = teardown)
{
    tree_symlink(&g_tree, "a/x", "../../secret");
    int dir = open(g_tree.root, O_PATH | O_DIRECTORY);
    int hfd = openat(dir, "a/x", O_RDONLY);
    char bytes[8] = "";
    cr_assert_eq(read(hfd, bytes, 7), 5);
    cr_assert_str_eq(bytes, "TOKEN");
}

/* ---- what is shown of a public attach point ------------------------------------------------------ */

Test(gofer_public, serves_only_what_everybody_may_read, .init = setup_public, .fini = teardown)
{
    struct gofer_stat st;
    struct gofer_walk_reply reply;
    cr_expect_geq(open_file("hello", GOFER_OPEN_READ), 0);
    cr_expect_eq(get_stat("private", &st), 0);
    cr_expect_eq(open_file("private", GOFER_OPEN_READ), -EACCES);
    cr_expect_eq(open_file("shut/inside", GOFER_OPEN_READ), -EACCES);
    cr_expect_eq(get_stat("shut/inside", &st), -EACCES);
    cr_expect_eq(walk(g_root, "shut/inside", &reply), 0);
    cr_expect_eq(reply.count, 1);
    cr_expect_eq(reply.stop, GOFER_WALK_DENIED);
    struct gofer_readdir_request dir = {.at = step_at(&reply, 0).handle, .at_path = ""};
    struct gofer_readdir_reply dir_reply;
    cr_expect_eq(do_readdir(g_server, &dir, &dir_reply), -EACCES);
    struct gofer_getxattr_request get = {.at = g_root, .at_path = "private", .name = "user.x"};
    struct gofer_getxattr_reply get_reply;
    cr_expect_eq(do_getxattr(g_server, &get, &get_reply), -EACCES);
}

static void check_masked(void)
{
    struct gofer_stat st;
    struct gofer_walk_reply reply;
    cr_expect_eq(walk(g_root, "a/b/c", &reply), 0);
    cr_expect_eq(reply.count, 2);
    cr_expect_eq(reply.stop, GOFER_WALK_MISSING);
    struct gofer_step masked = step_at(&reply, 1);
    cr_expect_eq(masked.handle, 0);
    cr_expect(masked.stat.flags & GOFER_STAT_SYNTHETIC);
    struct gofer_readdir_request dir = {.at = g_root, .at_path = "a/b", .want_handle = 1};
    struct gofer_readdir_reply dir_reply;
    cr_expect_eq(do_readdir(g_server, &dir, &dir_reply), 0);
    cr_expect_eq(dir_reply.count, 0);
    cr_expect_eq(dir_reply.handle, 0);
    cr_expect_eq(open_file("a/b/c/file", GOFER_OPEN_READ), -ENOENT);
    cr_expect_eq(get_stat("hello", &st), -ENOENT);
    cr_expect_eq(open_file("hello", GOFER_OPEN_READ), -ENOENT);
    bool ignored;
    cr_expect_eq(count_entries("", &ignored), 7); /* hello is hidden */
    cr_expect_eq(open_file("a/hard", GOFER_OPEN_READ), -ENOENT, "another name of a masked file");
}

Test(gofer_public, never_shows_what_is_masked, .fini = teardown)
{
    tree_make(&g_tree);
    char from[4200];
    char to[4200];
    tree_path(&g_tree, "hello", from);
    tree_path(&g_tree, "a/hard", to);
    cr_assert_eq(link(from, to), 0);
    char masks[3][4200];
    tree_path(&g_tree, "a/b", masks[0]);
    tree_path(&g_tree, "hello", masks[1]);
    tree_path(&g_tree, "not/there", masks[2]);
    char *pointers[] = {masks[0], masks[1], masks[2]};
    g_attach = tree_attach(&g_tree);
    g_attach.public_only = true;
    g_server = server_on(&g_attach, 1, pointers, 3);
    g_root = root_handle(g_server, 0);
    check_masked();
    /* What comes into being later is masked by its name. */
    struct gofer_readdir_request dir = {.at = g_root, .at_path = "not/there"};
    struct gofer_readdir_reply dir_reply;
    tree_mkdir(&g_tree, "not", 0755);
    tree_mkdir(&g_tree, "not/there", 0755);
    tree_write(&g_tree, "not/there/x", "x", 0644);
    cr_expect_eq(do_readdir(g_server, &dir, &dir_reply), 0);
    cr_expect_eq(dir_reply.count, 0);
    cr_expect_eq(open_file("not/there/x", GOFER_OPEN_READ), -ENOENT);
}

static void *swap_private(void *arg)
{
    (void)arg;
    int dir = open(g_tree.root, O_PATH | O_DIRECTORY);
    while (!g_stop)
        renameat2(dir, "hello", dir, "private", RENAME_EXCHANGE);
    close(dir);
    return NULL;
}

/* What is opened is what was looked at. */
Test(gofer_public, a_file_exchanged_during_the_open_is_not_given_away, .init = setup_public, .fini = teardown)
{
    pthread_t thread;
    int reached = 0;
    pthread_create(&thread, NULL, swap_private, NULL);
    for (int i = 0; i < 40000; i++) {
        char bytes[8] = "";
        int hfd = open_file("hello", GOFER_OPEN_READ);
        if (hfd < 0)
            continue;
        cr_assert_eq(read(hfd, bytes, 5), 5);
        cr_assert_str_eq(bytes, "hello");
        close(hfd);
        reached++;
    }
    g_stop = true;
    pthread_join(thread, NULL);
    cr_assert_gt(reached, 0);
}

/* ---- changes ------------------------------------------------------------------------------------- */

Test(gofer_change, works_on_a_writable_attach_point, .init = setup, .fini = teardown)
{
    struct gofer_create_request create = {.dir = g_root, .dir_path = "a", .name = "new", .mode = 0640,
                                          .uid = geteuid(), .gid = getegid()};
    struct gofer_create_reply created;
    cr_assert_eq(do_create(g_server, &create, &created), 0);
    cr_assert_geq(g_hfd, 0);
    cr_assert_eq(write(g_hfd, "abc", 3), 3);
    cr_assert_eq(do_create(g_server, &create, &created), -EEXIST);
    struct gofer_mkdir_request mk = {.dir = g_root, .dir_path = "", .name = "dir", .mode = 0755,
                                     .uid = geteuid(), .gid = getegid()};
    struct gofer_mkdir_reply made;
    cr_assert_eq(do_mkdir(g_server, &mk, &made), 0);
    struct gofer_symlink_request sym = {.dir = g_root, .dir_path = "dir", .name = "s", .target = "/etc/passwd",
                                        .uid = geteuid(), .gid = getegid()};
    struct gofer_symlink_reply symlinked;
    cr_assert_eq(do_symlink(g_server, &sym, &symlinked), 0);
    cr_assert(S_ISLNK(symlinked.stat.mode));
    struct gofer_link_request ln = {.old = g_root, .old_path = "a/new", .dir = g_root, .dir_path = "dir",
                                    .name = "hard"};
    struct gofer_link_reply linked;
    cr_assert_eq(do_link(g_server, &ln, &linked), 0);
    cr_assert_eq(linked.stat.nlink, 2);
    struct gofer_rename_request mv = {.old_dir = g_root, .old_dir_path = "a", .old_name = "new",
                                      .new_dir = g_root, .new_dir_path = "dir", .new_name = "moved"};
    struct gofer_rename_reply moved;
    cr_assert_eq(do_rename(g_server, &mv, &moved), 0);
    struct gofer_stat st;
    cr_assert_eq(get_stat("dir/moved", &st), 0);
    cr_assert_eq(st.size, 3);
    cr_assert_eq(get_stat("a/new", &st), -ENOENT);
    struct gofer_rmdir_request rm = {.dir = g_root, .dir_path = "", .name = "dir"};
    struct gofer_rmdir_reply removed;
    cr_assert_eq(do_rmdir(g_server, &rm, &removed), -ENOTEMPTY);
    const char *names[] = {"s", "hard", "moved"};
    for (size_t i = 0; i < 3; i++) {
        struct gofer_unlink_request un = {.dir = g_root, .dir_path = "dir", .name = names[i]};
        struct gofer_unlink_reply unlinked;
        cr_assert_eq(do_unlink(g_server, &un, &unlinked), 0);
    }
    cr_assert_eq(do_rmdir(g_server, &rm, &removed), 0);
}

Test(gofer_change, sets_attributes_but_never_a_set_id_bit_of_a_file, .init = setup, .fini = teardown)
{
    struct gofer_setattr_request set = {.at = g_root, .at_path = "hello", .valid = GOFER_SET_MODE,
                                        .mode = 06755};
    struct gofer_setattr_reply reply;
    cr_assert_eq(do_setattr(g_server, &set, &reply), 0);
    cr_expect_eq(reply.stat.mode & 07777, 0755);
    set = (struct gofer_setattr_request){.at = g_root, .at_path = "hello", .size = 5,
                                         .valid = GOFER_SET_SIZE | GOFER_SET_ATIME | GOFER_SET_MTIME,
                                         .atime = 11, .mtime = (uint64_t)-5, .mtime_nsec = 7};
    cr_assert_eq(do_setattr(g_server, &set, &reply), 0);
    cr_expect_eq(reply.stat.size, 5);
    cr_expect_eq((int64_t)reply.stat.mtime, -5);
    cr_expect_eq(reply.stat.mtime_nsec, 7);
    cr_expect_eq(reply.stat.atime, 11);
    set.valid = 0x100;
    cr_expect_eq(do_setattr(g_server, &set, &reply), -EINVAL);
    set.valid = GOFER_SET_MTIME;
    set.mtime_nsec = 1000000000;
    cr_expect_eq(do_setattr(g_server, &set, &reply), -EINVAL);
    struct gofer_create_request create = {.dir = g_root, .dir_path = "", .name = "suid", .mode = 06777,
                                          .uid = geteuid(), .gid = getegid()};
    struct gofer_create_reply created;
    cr_assert_eq(do_create(g_server, &create, &created), 0);
    cr_expect_eq(created.stat.mode & 07777, 0777);
    struct gofer_mkdir_request mk = {.dir = g_root, .dir_path = "", .name = "sgid", .mode = 07777,
                                     .uid = geteuid(), .gid = getegid()};
    struct gofer_mkdir_reply made;
    cr_assert_eq(do_mkdir(g_server, &mk, &made), 0);
    cr_expect_eq(made.stat.mode & S_ISUID, 0);
}

Test(gofer_change, is_refused_on_a_read_only_attach_point, .fini = teardown)
{
    tree_make(&g_tree);
    start(true, false);
    int refused = 0;
    int writes = 0;
    /* Every call of the table that is marked WRITES, with a request that would work on a writable one. */
#define EXPECT_EROFS(name, ...)                                                                    \
    do {                                                                                           \
        struct gofer_##name##_request req = {__VA_ARGS__};                                         \
        struct gofer_##name##_reply reply;                                                         \
        refused += do_##name(g_server, &req, &reply) == -EROFS;                                    \
    } while (0)
    EXPECT_EROFS(create, .dir = g_root, .dir_path = "", .name = "n");
    EXPECT_EROFS(mkdir, .dir = g_root, .dir_path = "", .name = "n");
    EXPECT_EROFS(symlink, .dir = g_root, .dir_path = "", .name = "n", .target = "t");
    EXPECT_EROFS(link, .old = g_root, .old_path = "hello", .dir = g_root, .dir_path = "", .name = "n");
    EXPECT_EROFS(unlink, .dir = g_root, .dir_path = "", .name = "hello");
    EXPECT_EROFS(rmdir, .dir = g_root, .dir_path = "", .name = "a");
    EXPECT_EROFS(rename, .old_dir = g_root, .old_dir_path = "", .old_name = "hello", .new_dir = g_root,
                 .new_dir_path = "", .new_name = "n");
    EXPECT_EROFS(setattr, .at = g_root, .at_path = "hello", .valid = GOFER_SET_MODE, .mode = 0777);
    EXPECT_EROFS(setxattr, .at = g_root, .at_path = "hello", .name = "user.x");
    EXPECT_EROFS(removexattr, .at = g_root, .at_path = "hello", .name = "user.x");
#define READS 0
#define WRITES 1
#define GOFER_CALL(NAME, name, needs, request, reply) writes += needs;
#include "gofer/protocol.def"
    cr_assert_eq(refused, writes);
    cr_assert_eq(open_file("hello", GOFER_OPEN_WRITE), -EROFS);
}

Test(gofer_xattr, only_user_attributes_pass, .init = setup, .fini = teardown)
{
    struct gofer_setxattr_request set = {.at = g_root, .at_path = "hello", .name = "user.color",
                                         .value = (const uint8_t *)"red", .value_size = 3};
    struct gofer_setxattr_reply set_reply;
    int error = do_setxattr(g_server, &set, &set_reply);
    if (error == -EOPNOTSUPP) {
        cr_log_warn("the file system of /tmp has no user attributes");
        return;
    }
    cr_assert_eq(error, 0);
    struct gofer_getxattr_request get = {.at = g_root, .at_path = "hello", .name = "user.color"};
    struct gofer_getxattr_reply value;
    cr_assert_eq(do_getxattr(g_server, &get, &value), 0);
    cr_assert_eq(value.value_size, 3);
    struct gofer_listxattr_request list = {.at = g_root, .at_path = "hello"};
    struct gofer_listxattr_reply names;
    cr_assert_eq(do_listxattr(g_server, &list, &names), 0);
    cr_assert_eq(names.names_size, 11);
    const char *others[] = {"trusted.x", "security.selinux", "system.posix_acl_access", "user.", "x", ""};
    for (size_t i = 0; i < ARRAY_COUNT(others); i++) {
        get.name = set.name = others[i];
        cr_expect_eq(do_getxattr(g_server, &get, &value), -EOPNOTSUPP, "%s", others[i]);
        cr_expect_eq(do_setxattr(g_server, &set, &set_reply), -EOPNOTSUPP, "%s", others[i]);
    }
    set.name = "security.capability";
    cr_expect_eq(do_setxattr(g_server, &set, &set_reply), -EOPNOTSUPP);
}

/* ---- attach points ------------------------------------------------------------------------------- */

Test(gofer_attach, that_is_a_file_serves_that_file, .fini = teardown)
{
    tree_make(&g_tree);
    char path[4200];
    tree_path(&g_tree, "hello", path);
    struct stat st;
    stat(path, &st);
    g_attach = (struct gofer_attach){.path = path, .dev = st.st_dev, .ino = st.st_ino, .is_file = true,
                                     .read_only = true};
    g_server = server_on(&g_attach, 1, NULL, 0);
    g_root = root_handle(g_server, 0);
    int hfd = open_file("", GOFER_OPEN_READ);
    char bytes[6] = "";
    cr_assert_eq(pread(hfd, bytes, 5, 0), 5);
    cr_assert_str_eq(bytes, "hello");
    cr_assert_eq(open_file("", GOFER_OPEN_WRITE), -EROFS);
    struct gofer_walk_reply reply;
    cr_assert_eq(walk(g_root, "x", &reply), 0);
    cr_assert_eq(reply.stop, GOFER_WALK_NOT_DIR);
}

Test(gofer_attach, that_was_exchanged_is_refused, .init = setup, .fini = teardown)
{
    struct gofer_attach wrong = tree_attach(&g_tree);
    wrong.ino++;
    struct gofer_config config = {.attaches = &wrong, .attach_count = 1};
    struct gofer_server *server;
    char *why;
    cr_assert_eq(gofer_server_new_flags(&config, GOFER_SERVER_PLAIN, &server, &why), -ESTALE);
    cr_assert_not_null(strstr(why, "exchanged"));
    free(why);
}
