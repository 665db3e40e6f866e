/* SPDX-License-Identifier: Apache-2.0 */
/*
 * sentry/fs/gofer through vfs: on a server in a thread of this process by the channel, and on the real
 * bailey-gofer, confined as it always is, by notifications.
 */
#include "tests/unit/vfs_fixture.h"

#include "gofer/peer.h"
#include "gofer/server.h"
#include "gofer/start.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/fs/gofer/gofer_fs.h"
#include "sentry/fs/gofer/node.h"
#include <dirent.h>
#include <ftw.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

/* ---- a tree on the host -------------------------------------------------------------------------- */

static char g_top[64];

static const char *host(const char *name)
{
    static char path[2][4200];
    static int turn;
    turn ^= 1;
    snprintf(path[turn], sizeof(path[turn]), "%s/%s", g_top, name);
    return path[turn];
}

static void host_write_file(const char *name, const char *content)
{
    FILE *f = fopen(host(name), "w");
    cr_assert_not_null(f, "%s", name);
    fputs(content, f);
    fclose(f);
}

static int host_exists(const char *name)
{
    struct stat st;
    return lstat(host(name), &st) ? -errno : 0;
}

static void make_tree(void)
{
    umask(0);
    strcpy(g_top, "/tmp/bailey-gfs-XXXXXX");
    cr_assert_not_null(mkdtemp(g_top));
    chmod(g_top, 0755);
    mkdir(host("a"), 0755);
    mkdir(host("a/b"), 0755);
    mkdir(host("a/b/c"), 0755);
    host_write_file("a/b/c/file", "deep");
    host_write_file("hello", "hello, world");
    cr_assert_eq(symlink("a/b/c", host("link")), 0);
    cr_assert_eq(symlink("/etc", host("etc")), 0);
    mkfifo(host("fifo"), 0666);
    mkdir(host("many"), 0755);
    for (int i = 0; i < 1500; i++) {
        char name[32];
        snprintf(name, sizeof(name), "many/file%d", i);
        host_write_file(name, "x");
    }
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

static void remove_tree(void)
{
    nftw(g_top, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- a gofer ------------------------------------------------------------------------------------- */

static struct gofer_client *g_client;
static struct gofer_peer *g_peer;
static struct gofer_attach g_attach;
static pthread_t g_thread;
static int g_channel; /* the client's end */
static _Atomic int g_loop_result = 1;
static bool g_is_dead;

static void noted_dead(void *arg)
{
    (void)arg;
    g_is_dead = true;
}

static void *serve(void *arg)
{
    g_loop_result = gofer_peer_loop(g_peer, arg ? *(int *)arg : -1);
    return NULL;
}

static void describe_attach(char *path, bool read_only, bool public_only)
{
    struct stat st;
    cr_assert_eq(stat(path, &st), 0);
    g_attach = (struct gofer_attach){.path = path, .dev = st.st_dev, .ino = st.st_ino,
                                     .read_only = read_only, .public_only = public_only};
}

static int make_peer(bool read_only)
{
    int sockets[2];
    struct gofer_server *server;
    char *why;
    describe_attach(g_top, read_only, false);
    struct gofer_config config = {.as_root = geteuid() == 0, .attaches = &g_attach, .attach_count = 1};
    cr_assert_eq(gofer_server_new_flags(&config, GOFER_SERVER_PLAIN, &server, &why), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    cr_assert_eq(gofer_peer_new(server, sockets[1], &g_peer), 0);
    return sockets[0];
}

static void mount_gofer(bool shared)
{
    struct superblock *sb;
    struct inode *root;
    cr_assert_eq(gofer_fs_new(g_client, 0, shared, &sb, &root), 0);
    fixture_mount(sb, root);
    inode_put(root);
    superblock_put(sb);
}

static void start_gofer(bool read_only, bool shared)
{
    make_tree();
    g_channel = make_peer(read_only);
    cr_assert_eq(pthread_create(&g_thread, NULL, serve, NULL), 0);
    cr_assert_eq(gofer_client_new(g_channel, GOFER_BY_CHANNEL, noted_dead, NULL, &g_client), 0);
    mount_gofer(shared);
}

static void setup_exclusive(void)
{
    start_gofer(false, false);
}

static void setup_shared(void)
{
    start_gofer(false, true);
}

static void setup_read_only(void)
{
    start_gofer(true, false);
}

TestSuite(gofer_fs, .init = setup_exclusive, .fini = remove_tree, .timeout = 60);
TestSuite(gofer_fs_shared, .init = setup_shared, .fini = remove_tree, .timeout = 60);
TestSuite(gofer_fs_read_only, .init = setup_read_only, .fini = remove_tree, .timeout = 60);

static uint64_t calls_made(void)
{
    return gofer_client_calls(g_client);
}

/* ---- reading ------------------------------------------------------------------------------------- */

Test(gofer_fs, reads_files_and_follows_links)
{
    cr_assert_str_eq(text_of("/hello"), "hello, world");
    cr_assert_str_eq(text_of("/a/b/c/file"), "deep");
    cr_assert_str_eq(text_of("/link/file"), "deep");
    cr_assert_eq(open_error("/none", O_RDONLY), -ENOENT);
    cr_assert_eq(open_error("/hello/x", O_RDONLY), -ENOTDIR);
    cr_assert_eq(open_error("/etc/passwd", O_RDONLY), -ELOOP, "absolute links lead to the guest's root");
}

Test(gofer_fs, attributes_are_the_hosts)
{
    struct kstat st;
    struct stat host_st;
    cr_assert_eq(stat_of("/a/b/c/file", 0, &st), 0);
    cr_assert_eq(stat(host("a/b/c/file"), &host_st), 0);
    cr_expect_eq(st.ino, host_st.st_ino);
    cr_expect_eq(st.mode, host_st.st_mode);
    cr_expect_eq(st.size, (uint64_t)host_st.st_size);
    cr_expect_eq(st.blocks, (uint64_t)host_st.st_blocks);
    cr_expect_eq(st.mtime.sec, host_st.st_mtim.tv_sec);
    cr_expect_eq(st.mtime.nsec, host_st.st_mtim.tv_nsec);
    cr_expect_eq(st.uid, host_st.st_uid);
    cr_expect_eq(st.nlink, host_st.st_nlink);
}

Test(gofer_fs, a_deep_walk_is_one_call_and_then_none)
{
    struct kstat st;
    uint64_t before = calls_made();
    cr_assert_eq(stat_of("/a/b/c/file", 0, &st), 0);
    cr_expect_eq(calls_made() - before, 1);
    cr_assert_eq(stat_of("/a/b/c/file", 0, &st), 0);
    cr_assert_eq(exists("/a/b/none"), -ENOENT);
    before = calls_made();
    cr_assert_eq(exists("/a/b/none"), -ENOENT);
    cr_assert_eq(exists("/a/b/c/file"), 0);
    cr_expect_eq(calls_made() - before, 0);
}

Test(gofer_fs, reopening_asks_nobody)
{
    file_put(open_ok("/hello", O_RDONLY, 0));
    uint64_t before = calls_made();
    file_put(open_ok("/hello", O_RDONLY, 0));
    cr_assert_str_eq(text_of("/hello"), "hello, world");
    cr_expect_eq(calls_made() - before, 0);
}

struct entries {
    struct dir_context ctx;
    size_t count, limit;
    uint64_t hash;
    char last[256];
};

static bool list_one(struct dir_context *ctx, const char *name, size_t name_size, uint64_t ino, uint8_t type,
                     int64_t next_pos)
{
    struct entries *l = (struct entries *)ctx;
    (void)ino;
    (void)type;
    (void)next_pos;
    if (l->count == l->limit)
        return false;
    l->count++;
    for (size_t i = 0; i < name_size; i++)
        l->hash = l->hash * 31 + (uint8_t)name[i];
    memcpy(l->last, name, name_size);
    l->last[name_size] = '\0';
    return true;
}

static struct entries list(struct file *f, size_t limit)
{
    struct entries l = {.ctx = {.emit = list_one}, .limit = limit};
    cr_assert_eq(vfs_iterate(f, &l.ctx), 0);
    return l;
}

Test(gofer_fs, lists_large_directories_in_pieces_and_back)
{
    struct file *f = open_ok("/many", O_RDONLY | O_DIRECTORY, 0);
    struct entries all = list(f, 100000);
    cr_assert_eq(all.count, 1502);
    cr_assert_eq(list(f, 100000).count, 0);
    cr_assert_eq(vfs_lseek(f, 0, SEEK_SET), 0);
    struct entries first = list(f, 1000);
    int64_t pos = f->pos;
    struct entries rest = list(f, 100000);
    cr_assert_eq(first.count + rest.count, 1502);
    cr_assert_eq(vfs_lseek(f, pos, SEEK_SET), pos);
    struct entries again = list(f, 100000);
    cr_assert_eq(again.count, rest.count);
    cr_assert_eq(again.hash, rest.hash);
    file_put(f);
}

Test(gofer_fs, stat_after_listing_asks_nobody)
{
    struct file *f = open_ok("/many", O_RDONLY | O_DIRECTORY, 0);
    cr_assert_eq(list(f, 100000).count, 1502);
    uint64_t before = calls_made();
    struct kstat st;
    for (int i = 0; i < 1500; i++) {
        char name[32];
        snprintf(name, sizeof(name), "/many/file%d", i);
        cr_assert_eq(stat_of(name, 0, &st), 0);
        cr_assert_eq(st.size, 1);
    }
    cr_expect_eq(calls_made() - before, 0);
    file_put(f);
}

Test(gofer_fs, hard_links_are_one_inode)
{
    cr_assert_eq(link(host("hello"), host("a/hard")), 0);
    cr_assert_eq(ino_of("/hello"), ino_of("/a/hard"));
    struct path p = {0};
    struct path q = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/hello", 0, &p), 0);
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/a/hard", 0, &q), 0);
    cr_assert_eq(p.dentry->inode, q.dentry->inode);
    path_put(&p);
    path_put(&q);
}

Test(gofer_fs, maps_through_the_donated_descriptor)
{
    struct file *f = open_ok("/hello", O_RDONLY, 0);
    int hfd;
    uint64_t offset;
    cr_assert_eq(f->mappable.ops->map(&f->mappable, 0, 4096, PROT_READ, MAP_PRIVATE, &hfd, &offset), 0);
    char *at = mmap(NULL, 4096, PROT_READ, MAP_PRIVATE, hfd, (off_t)offset);
    cr_assert_neq(at, MAP_FAILED);
    cr_assert_eq(memcmp(at, "hello", 5), 0);
    cr_assert_eq(f->mappable.ops->map(&f->mappable, 0, 4096, PROT_WRITE, MAP_SHARED, &hfd, &offset), -EACCES);
    file_put(f);
}

/* ---- changing ------------------------------------------------------------------------------------ */

Test(gofer_fs, writes_reach_the_host)
{
    struct kstat st;
    make_file("/new", "abc");
    char buffer[8] = "";
    int hfd = open(host("new"), O_RDONLY);
    cr_assert_eq(read(hfd, buffer, 8), 3);
    cr_assert_str_eq(buffer, "abc");
    cr_assert_eq(stat_of("/new", 0, &st), 0);
    cr_assert_eq(st.size, 3);
    struct file *f = open_ok("/new", O_WRONLY | O_APPEND, 0);
    cr_assert_eq(put(f, "def", 3), 3);
    file_put(f);
    cr_assert_str_eq(text_of("/new"), "abcdef");
    f = open_ok("/new", O_RDWR | O_TRUNC, 0);
    cr_assert_eq(stat_of("/new", 0, &st), 0);
    cr_assert_eq(st.size, 0);
    file_put(f);
}

Test(gofer_fs, changes_of_directories_reach_the_host_and_the_cache)
{
    cr_assert_eq(vfs_mkdir(&g_ctx, &g_ctx.cwd, "/d", 0755), 0);
    cr_assert_eq(vfs_symlink(&g_ctx, &g_ctx.cwd, "/d/s", "target"), 0);
    make_file("/d/f", "x");
    struct path p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/d/f", 0, &p), 0);
    cr_assert_eq(vfs_link(&g_ctx, &p, &g_ctx.cwd, "/d/g"), 0);
    path_put(&p);
    cr_assert_eq(vfs_rename(&g_ctx, &g_ctx.cwd, "/d/f", &g_ctx.cwd, "/a/moved", 0), 0);
    cr_expect_eq(host_exists("a/moved"), 0);
    cr_expect_eq(host_exists("d/f"), -ENOENT);
    cr_expect_eq(exists("/d/f"), -ENOENT);
    cr_expect_str_eq(text_of("/a/moved"), "x");
    cr_assert_eq(vfs_rename(&g_ctx, &g_ctx.cwd, "/a/b", &g_ctx.cwd, "/d/b2", 0), 0);
    cr_expect_str_eq(text_of("/d/b2/c/file"), "deep");
    cr_expect_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d"), -ENOTEMPTY);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/g"), 0);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/s"), 0);
    cr_assert_eq(vfs_rename(&g_ctx, &g_ctx.cwd, "/d/b2", &g_ctx.cwd, "/a/b", 0), 0);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d"), 0);
    cr_expect_eq(host_exists("d"), -ENOENT);
    cr_expect_str_eq(text_of("/link/file"), "deep");
}

Test(gofer_fs, an_unlinked_open_file_lives_on)
{
    struct file *f = open_ok("/hello", O_RDWR, 0);
    char buffer[16] = "";
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/hello"), 0);
    cr_assert_eq(host_exists("hello"), -ENOENT);
    cr_assert_eq(get_at(f, buffer, 5, 0), 5);
    cr_assert_eq(put_at(f, "J", 1, 0), 1);
    cr_assert_eq(vfs_ftruncate(f, 3), 0);
    struct kstat st;
    cr_assert_eq(inode_getattr(f->inode, &st), 0);
    cr_assert_eq(st.size, 3);
    cr_assert_eq(st.nlink, 0);
    make_file("/hello", "another"); /* may get the same inode number on the host */
    cr_assert_eq(get_at(f, buffer, 16, 0), 3);
    cr_assert_str_eq(text_of("/hello"), "another");
    file_put(f);
}

Test(gofer_fs, replacing_by_rename_shows_the_new_file)
{
    make_file("/new", "new");
    struct file *old = open_ok("/hello", O_RDONLY, 0);
    cr_assert_eq(vfs_rename(&g_ctx, &g_ctx.cwd, "/new", &g_ctx.cwd, "/hello", 0), 0);
    cr_assert_str_eq(text_of("/hello"), "new");
    char buffer[16] = "";
    cr_assert_eq(get_at(old, buffer, 16, 0), 12);
    file_put(old);
}

Test(gofer_fs, attributes_are_set_on_the_host)
{
    struct path p = {0};
    struct stat st;
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/hello", 0, &p), 0);
    struct iattr attr = {.valid = ATTR_MODE, .mode = 0600};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    attr = (struct iattr){.valid = ATTR_MTIME | ATTR_ATIME | ATTR_TIMES_SET, .mtime = {100, 5}, .atime = {200, 6}};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    attr = (struct iattr){.valid = ATTR_MTIME | ATTR_TIMES_SET, .mtime = {300, 7}, .atime = {0, UTIME_OMIT}};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0, "what isn't valid isn't looked at");
    attr = (struct iattr){.valid = ATTR_SIZE, .size = 4};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    cr_assert_eq(stat(host("hello"), &st), 0);
    cr_expect_eq(st.st_mode & 07777, 0600);
    cr_expect_eq(st.st_size, 4);
    cr_expect_eq(st.st_atim.tv_sec, 200);
    path_put(&p);
}

Test(gofer_fs_read_only, refuses_changes)
{
    cr_expect_eq(open_error("/hello", O_WRONLY), -EROFS);
    cr_expect_eq(open_error("/x", O_WRONLY | O_CREAT), -EROFS);
    cr_expect_eq(vfs_mkdir(&g_ctx, &g_ctx.cwd, "/d", 0755), -EROFS);
    cr_expect_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/hello"), -EROFS);
}

Test(gofer_fs, no_descriptor_for_writing_outlives_its_file)
{
    make_file("/tool", "#!/bin/sh\nexit 3\n");
    cr_assert_eq(chmod(host("tool"), 0755), 0);
    /* The gofer's thread may still be about to close its own. */
    int status = 126 << 8;
    for (int i = 0; i < 100 && WEXITSTATUS(status) != 3; i++) {
        status = system(host("tool"));
        usleep(20000);
    }
    cr_assert_eq(WEXITSTATUS(status), 3, "the host can execute it (not ETXTBSY)");
}

/* ---- shared mode --------------------------------------------------------------------------------- */

Test(gofer_fs_shared, sees_what_others_do)
{
    struct kstat st;
    cr_assert_eq(exists("/new"), -ENOENT);
    host_write_file("new", "12345");
    cr_assert_eq(stat_of("/new", 0, &st), 0);
    cr_assert_eq(st.size, 5);
    host_write_file("new", "123");
    cr_assert_eq(stat_of("/new", 0, &st), 0);
    cr_assert_eq(st.size, 3);
    host_write_file("new2", "other");
    cr_assert_eq(rename(host("new2"), host("new")), 0);
    cr_assert_str_eq(text_of("/new"), "other");
    cr_assert_eq(unlink(host("new")), 0);
    cr_assert_eq(exists("/new"), -ENOENT);
    cr_assert_eq(rename(host("a/b"), host("a/z")), 0);
    cr_assert_eq(exists("/a/b/c/file"), -ENOENT);
    cr_assert_str_eq(text_of("/a/z/c/file"), "deep");
}

/* ---- the end of a gofer -------------------------------------------------------------------------- */

Test(gofer_fs, a_descriptor_from_the_sentry_ends_the_gofer)
{
    char byte[8] = {0};
    struct iovec iov = {byte, sizeof(byte)};
    union {
        char space[CMSG_SPACE(sizeof(int))];
        struct cmsghdr header;
    } control = {.header = {.cmsg_len = CMSG_LEN(sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    int null = open("/dev/null", O_RDONLY);
    memcpy(CMSG_DATA(&control.header), &null, sizeof(null));
    struct msghdr message = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &control,
                             .msg_controllen = sizeof(control.space)};
    cr_assert_eq(sendmsg(g_channel, &message, 0), 8);
    pthread_join(g_thread, NULL);
    cr_assert_eq(g_loop_result, -EPROTO);
}

Test(gofer_fs, a_malformed_request_ends_the_gofer)
{
    uint8_t bad[8] = {GOFER_SLOTS}; /* no such slot */
    cr_assert_eq(send(g_channel, bad, sizeof(bad), 0), 8);
    pthread_join(g_thread, NULL);
    cr_assert_eq(g_loop_result, -EPROTO);
}

Test(gofer_fs, the_end_of_the_sentry_ends_the_gofer)
{
    shutdown(g_channel, SHUT_RDWR);
    pthread_join(g_thread, NULL);
    cr_assert_eq(g_loop_result, 0);
    cr_assert_eq(exists("/a/b/c/file"), -EIO);
    cr_assert(g_is_dead);
}

/* ---- the real process, by notifications ---------------------------------------------------------- */

static pid_t g_gofer;
static int g_start_sock;

static void write_file_or_die(const char *path, const char *text)
{
    int hfd = open(path, O_WRONLY);
    ssize_t n = hfd < 0 ? -1 : write(hfd, text, strlen(text));
    cr_assert_eq(n, (ssize_t)strlen(text), "%s: %s", path, strerror(errno));
    close(hfd);
}

static NORETURN void become_gofer(int sock, int go)
{
    char byte;
    static char *const argv[] = {"bailey-gofer", NULL};
    static char *const envp[] = {NULL};
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP))
        _exit(90);
    if (write(go, "r", 1) != 1 || read(go, &byte, 1) != 1)
        _exit(91);
    int null = open("/dev/null", O_RDWR);
    dup2(sock, 200);
    for (int i = 0; i < 3; i++)
        dup2(null, i);
    dup2(200, GOFER_START_FD);
    execve(GOFER_PROGRAM, argv, envp);
    _exit(92);
}

static void start_process(int sock)
{
    int go[2];
    char byte;
    char map[64];
    char path[64];
    uid_t uid = geteuid();
    gid_t gid = getegid();
    cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, go), 0);
    g_gofer = fork();
    if (g_gofer == 0)
        become_gofer(sock, go[1]);
    cr_assert_eq(read(go[0], &byte, 1), 1);
    if (uid) {
        snprintf(path, sizeof(path), "/proc/%d/setgroups", g_gofer);
        write_file_or_die(path, "deny");
    }
    snprintf(path, sizeof(path), "/proc/%d/uid_map", g_gofer);
    snprintf(map, sizeof(map), uid ? "0 %u 1" : "0 0 4294967295", uid);
    write_file_or_die(path, map);
    snprintf(path, sizeof(path), "/proc/%d/gid_map", g_gofer);
    snprintf(map, sizeof(map), uid ? "0 %u 1" : "0 0 4294967295", gid);
    write_file_or_die(path, map);
    cr_assert_eq(write(go[0], "g", 1), 1);
    close(go[0]);
    close(go[1]);
}

/* What the sentry's filter does with this one number. */
static int make_listener(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, GOFER_CALL_NR, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {ARRAY_COUNT(code), code};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    return (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program);
}

static void start_real_on(const char *root, bool read_only, bool public_only, char **masks, size_t mask_count)
{
    int start[2];
    int channel[2];
    char text[GOFER_TEXT_MAX + 1] = "";
    static char path[64];
    make_tree();
    snprintf(path, sizeof(path), "%s", root ? root : g_top);
    describe_attach(path, read_only, public_only);
    g_attach.one_mount = public_only;
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, start), 0);
    cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, channel), 0);
    start_process(start[1]);
    close(start[1]);
    g_start_sock = start[0];
    struct gofer_config config = {.log_level = 3, .as_root = geteuid() == 0, .own_uid = 64123,
                                  .attaches = &g_attach, .attach_count = 1, .masks = masks,
                                  .mask_count = mask_count};
    struct gofer_start_fds fds = {.channel = channel[1], .log = STDERR_FILENO};
    cr_assert_eq(gofer_send_start(g_start_sock, &config, &fds), 0);
    close(channel[1]);
    g_channel = channel[0];
    int error = gofer_recv_ready(g_start_sock, text);
    cr_assert_eq(error, 0, "%d: %s", error, text);
    int listener = make_listener();
    cr_assert_geq(listener, 0, "%s", strerror(errno));
    cr_assert_eq(gofer_send_listener(g_start_sock, listener), 0);
    close(listener);
    cr_assert_eq(gofer_client_new(g_channel, GOFER_BY_NOTIFICATION, noted_dead, NULL, &g_client), 0);
    mount_gofer(false);
}

static void stop_real(void)
{
    remove_tree();
    close(g_start_sock);
    int status = -1;
    cr_assert_eq(waitpid(g_gofer, &status, 0), g_gofer);
    cr_assert_eq(status, 0);
}

static void setup_real(void)
{
    start_real_on(NULL, false, false, NULL, 0);
}

static void setup_real_public(void)
{
    start_real_on(NULL, true, true, NULL, 0);
}

TestSuite(gofer_real, .init = setup_real, .fini = stop_real, .timeout = 60);
TestSuite(gofer_real_public, .init = setup_real_public, .fini = stop_real, .timeout = 60);

Test(gofer_real, reads_lists_and_writes)
{
    cr_assert_str_eq(text_of("/a/b/c/file"), "deep");
    struct file *f = open_ok("/many", O_RDONLY | O_DIRECTORY, 0);
    cr_assert_eq(list(f, 100000).count, 1502);
    file_put(f);
    make_file("/new", "abc");
    cr_assert_eq(vfs_mkdir(&g_ctx, &g_ctx.cwd, "/d", 0755), 0);
    cr_assert_eq(vfs_rename(&g_ctx, &g_ctx.cwd, "/new", &g_ctx.cwd, "/d/new", 0), 0);
    cr_assert_str_eq(text_of("/d/new"), "abc");
    cr_assert_eq(host_exists("d/new"), 0);
    struct stat st;
    cr_assert_eq(stat(host("d/new"), &st), 0);
    cr_assert_eq(st.st_uid, geteuid());
    struct path p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/d/new", 0, &p), 0);
    struct iattr attr = {.valid = ATTR_MODE, .mode = 04711};
    cr_assert_eq(vfs_setattr(g_root, &p, &attr), 0);
    cr_assert_eq(vfs_link(&g_ctx, &p, &g_ctx.cwd, "/d/hard"), 0);
    path_put(&p);
    cr_assert_eq(stat(host("d/new"), &st), 0);
    cr_assert_eq(st.st_mode & 07777, 0711);
    cr_assert_eq(vfs_symlink(&g_ctx, &g_ctx.cwd, "/d/s", "x"), 0);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/s"), 0);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/hard"), 0);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/d/new"), 0);
    cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, "/d"), 0);
    struct linux_statfs fs;
    struct path root = g_ctx.root;
    cr_assert_eq(vfs_statfs(&root, &fs), 0);
    cr_assert_gt(fs.blocks, 0);
}

/* Several workers at once: everybody gets the descriptor that they asked for. */
static void *open_many(void *arg)
{
    struct inode *dir = arg;
    static _Atomic int turn;
    int me = turn++;
    for (int i = 0; i < 1500; i++) {
        char name[32];
        struct inode *inode = NULL;
        struct stat st;
        int kind;
        int hfd;
        snprintf(name, sizeof(name), "file%d", (i * 7 + me * 311) % 1500);
        if (gofer_lookup(dir, name, &inode) || !inode)
            return "lookup";
        if (fd_get(inode, O_RDONLY, &kind, &hfd))
            return "open";
        if (fstat(hfd, &st) || st.st_ino != inode->ino)
            return "another file's descriptor";
        fd_put(inode, kind);
        fd_close_idle(inode);
        inode_put(inode);
    }
    return NULL;
}

Test(gofer_real, serves_many_threads_at_once)
{
    struct path p = {0};
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/many", 0, &p), 0);
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        pthread_create(&threads[i], NULL, open_many, p.dentry->inode);
    for (int i = 0; i < 4; i++) {
        void *what;
        pthread_join(threads[i], &what);
        cr_expect_null(what, "%s", what ? (char *)what : "");
    }
    path_put(&p);
}

/* No room for a descriptor is the caller's problem, not the gofer's end; idle ones make room. */
Test(gofer_real, survives_the_limit_of_descriptors)
{
    static struct file *files[300];
    char name[32];
    int opened = 0;
    for (int i = 0; i < 100; i++) {
        snprintf(name, sizeof(name), "/many/file%d", i + 500);
        file_put(open_ok(name, O_RDONLY, 0));
    }
    struct rlimit limit = {150, 150};
    cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    int error = 0;
    for (; opened < 300; opened++) {
        snprintf(name, sizeof(name), "/many/file%d", opened);
        error = vfs_open(&g_ctx, &g_ctx.cwd, name, O_RDONLY, 0, 0, &files[opened]);
        if (error)
            break;
    }
    cr_expect_eq(error, -ENFILE);
    cr_expect_gt(opened, 100);
    while (opened--)
        file_put(files[opened]);
    cr_assert_str_eq(text_of("/hello"), "hello, world");
    cr_assert(!g_is_dead);
}

Test(gofer_real_public, is_confined)
{
    cr_assert_str_eq(text_of("/a/b/c/file"), "deep");
    cr_assert_eq(open_error("/hello", O_RDWR), -EROFS);
    char path[64];
    char text[4096] = "";
    snprintf(path, sizeof(path), "/proc/%d/status", g_gofer);
    int hfd = open(path, O_RDONLY);
    cr_assert_gt(read(hfd, text, sizeof(text) - 1), 0);
    cr_expect_not_null(strstr(text, "CapEff:\t0000000000000000"), "%s", text);
    cr_expect_not_null(strstr(text, "CapPrm:\t0000000000000000"));
    cr_expect_not_null(strstr(text, "NoNewPrivs:\t1"));
    cr_expect_not_null(strstr(text, "Seccomp:\t2"));
    if (geteuid() == 0)
        cr_expect_not_null(strstr(text, "Uid:\t64123\t64123\t64123\t64123"), "%s", text);
    snprintf(path, sizeof(path), "/proc/%d/root/etc", g_gofer);
    cr_expect_neq(access(path, F_OK), 0, "the root is empty");
}

static void setup_host_root(void)
{
    static char home[] = "/home";
    static char etc_group[] = "/etc/group";
    char *masks[] = {home, etc_group};
    start_real_on("/", true, true, masks, 2);
}

TestSuite(gofer_host_root, .init = setup_host_root, .fini = stop_real, .timeout = 60);

/* Every name of the host's root is there; other mounts and what is masked are empty. */
Test(gofer_host_root, shows_what_everybody_may_see)
{
    struct stat st;
    struct kstat kst;
    cr_expect_not_null(strstr(text_of("/etc/passwd"), "root:"));
    cr_expect_eq(open_error("/etc/shadow", O_RDONLY), stat("/etc/shadow", &st) ? -ENOENT : -EACCES);
    cr_expect_eq(open_error("/etc/group", O_RDONLY), -ENOENT);
    const char *empty[] = {"/proc", "/home"};
    for (size_t i = 0; i < 2; i++) {
        struct file *f = open_ok(empty[i], O_RDONLY | O_DIRECTORY, 0);
        cr_expect_eq(list(f, 100).count, 2, "%s", empty[i]);
        file_put(f);
    }
    cr_expect_eq(exists("/proc/self"), -ENOENT);
    cr_assert_eq(stat_of("/usr/bin/env", WALK_FOLLOW, &kst), 0);
    cr_assert_eq(stat("/usr/bin/env", &st), 0);
    cr_expect_eq(kst.ino, st.st_ino);
    cr_expect_eq(kst.uid, 0, "the host's root, for an ordinary user, too");
    struct file *f = open_ok("/", O_RDONLY | O_DIRECTORY, 0);
    size_t shown = list(f, 1000).count;
    file_put(f);
    DIR *dir = opendir("/");
    size_t there = 0;
    while (readdir(dir))
        there++;
    closedir(dir);
    cr_expect_eq(shown, there);
}

Test(gofer_real_public, ends_when_the_cli_does)
{
    cr_assert_eq(exists("/hello"), 0);
    shutdown(g_start_sock, SHUT_RDWR);
    int status;
    siginfo_t info;
    cr_assert_eq(waitid(P_PID, (id_t)g_gofer, &info, WEXITED | WNOWAIT), 0);
    status = info.si_status;
    cr_assert_eq(status, 0);
    cr_assert_eq(exists("/a/b"), -EIO);
    cr_assert(g_is_dead);
}
