/* SPDX-License-Identifier: Apache-2.0 */
/* The *at calls, openat2, stat family, access. */
#include "show.h"
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>

static long openat2(int dir, const char *path, uint64_t flags, uint64_t mode, uint64_t resolve)
{
    struct open_how how = {.flags = flags, .mode = mode, .resolve = resolve};
    return syscall(SYS_openat2, dir, path, &how, sizeof(how));
}

static void relative(void)
{
    struct stat st;
    char target[64];
    OK(mkdir("d", 0755));
    int dir = open("d", O_RDONLY | O_DIRECTORY), file = make_file("f", "content"), path = open("d", O_PATH);
    OK(openat(dir, "x", O_CREAT | O_WRONLY, 0644));
    OK(openat(path, "x", O_RDONLY));
    OK(openat(file, "x", O_RDONLY));
    OK(openat(999, "x", O_RDONLY));
    OK(openat(999, show_dir, O_RDONLY)); /* absolute: not looked at */
    OK(openat(AT_FDCWD, "d/x", O_RDONLY));
    OK(openat(dir, "", O_RDONLY));
    OK(mkdirat(dir, "e", 0700));
    OK(mkdirat(file, "e", 0700));
    OK(symlinkat("x", dir, "l"));
    VAL(readlinkat(dir, "l", target, sizeof(target)));
    OK(linkat(dir, "x", dir, "y", 0));
    OK(renameat(dir, "y", AT_FDCWD, "moved"));
    OK(fstatat(dir, "x", &st, 0));
    OK(fstatat(dir, "l", &st, AT_SYMLINK_NOFOLLOW));
    YES(S_ISLNK(st.st_mode));
    OK(fstatat(dir, "", &st, 0));
    OK(fstatat(dir, "", &st, AT_EMPTY_PATH));
    YES(S_ISDIR(st.st_mode));
    OK(fstatat(file, "", &st, AT_EMPTY_PATH));
    VAL(st.st_size);
    OK(fstatat(dir, "x", &st, 0x8000));
    OK(unlinkat(dir, "e", 0));
    OK(unlinkat(dir, "e", AT_REMOVEDIR));
    OK(unlinkat(dir, "x", AT_REMOVEDIR));
    OK(unlinkat(dir, "x", 1));
    OK(fchmodat(dir, "x", 0600, 0));
    OK(fchownat(dir, "l", 1, 2, AT_SYMLINK_NOFOLLOW));
    OK(fstatat(dir, "l", &st, AT_SYMLINK_NOFOLLOW));
    printf("owner %d:%d\n", st.st_uid, st.st_gid);
    OK(fchownat(file, "", 3, 4, AT_EMPTY_PATH));
    OK(fstat(file, &st));
    printf("owner %d:%d\n", st.st_uid, st.st_gid);
    OK(mknodat(dir, "fifo", S_IFIFO | 0600, 0));
    int link = open("d/l", O_PATH | O_NOFOLLOW);
    VAL(readlinkat(link, "", target, sizeof(target)));
    OK(readlinkat(file, "", target, sizeof(target)));
    OK(rename("d", "d2"));
    OK(openat(dir, "x", O_RDONLY));
    OK(rename("d2", "d"));
}

static void resolving(void)
{
    int dir = open("d", O_PATH | O_DIRECTORY);
    OK(symlink("/", "d/root"));
    OK(symlink("../f", "d/up"));
    OK(mkdir("d/sub", 0700));
    OK(symlink("../x", "d/sub/inside"));
    OK(openat2(dir, "x", O_RDONLY, 0, 0));
    OK(openat2(dir, "../f", O_RDONLY, 0, RESOLVE_BENEATH));
    OK(openat2(dir, "sub/../x", O_RDONLY, 0, RESOLVE_BENEATH));
    OK(openat2(dir, "up", O_RDONLY, 0, RESOLVE_BENEATH));
    OK(openat2(dir, "sub/inside", O_RDONLY, 0, RESOLVE_BENEATH));
    OK(openat2(dir, "root", O_RDONLY, 0, RESOLVE_BENEATH));
    OK(openat2(dir, "/tmp", O_RDONLY, 0, RESOLVE_BENEATH));
    OK(openat2(dir, "/x", O_RDONLY, 0, RESOLVE_IN_ROOT));
    OK(openat2(dir, "../../x", O_RDONLY, 0, RESOLVE_IN_ROOT));
    OK(openat2(dir, "root/x", O_RDONLY, 0, RESOLVE_IN_ROOT));
    OK(openat2(dir, "up", O_RDONLY, 0, RESOLVE_IN_ROOT));
    OK(openat2(dir, "l", O_RDONLY, 0, RESOLVE_NO_SYMLINKS));
    OK(openat2(dir, "x", O_RDONLY, 0, RESOLVE_NO_SYMLINKS));
    OK(openat2(AT_FDCWD, "/proc/self/exe", O_RDONLY, 0, RESOLVE_NO_MAGICLINKS));
    OK(openat2(AT_FDCWD, "/proc/self/status", O_RDONLY, 0, RESOLVE_NO_XDEV));
    OK(openat2(dir, "new", O_CREAT | O_WRONLY, 0600, RESOLVE_BENEATH));
    OK(openat2(dir, "x", O_RDONLY, 0600, 0));
    OK(openat2(dir, "x", O_CREAT, 010000, 0));
    OK(openat2(dir, "x", 1ULL << 40, 0, 0));
    OK(openat2(dir, "x", O_RDONLY, 0, 0x1000));
    OK(openat2(dir, "x", O_RDONLY, 0, RESOLVE_BENEATH | RESOLVE_IN_ROOT));
    OK(openat2(dir, "missing", O_RDONLY, 0, 0));
    struct open_how how = {0};
    OK(syscall(SYS_openat2, dir, "x", &how, 8));
    OK(syscall(SYS_openat2, dir, "x", &how, 5000));
    OK(syscall(SYS_openat2, dir, "x", NULL, sizeof(how)));
    struct {
        struct open_how how;
        uint64_t more;
    } larger = {.more = 0};
    OK(syscall(SYS_openat2, dir, "x", &larger, sizeof(larger)));
    larger.more = 1;
    OK(syscall(SYS_openat2, dir, "x", &larger, sizeof(larger)));
}

static void statuses(void)
{
    struct stat st;
    struct statx sx;
    int fd = make_file("s", "12345");
    OK(chmod("s", 04751));
    OK(statx(AT_FDCWD, "s", 0, STATX_BASIC_STATS | STATX_BTIME, &sx));
    OK(stat("s", &st));
    YES((sx.stx_mask & STATX_BASIC_STATS) == STATX_BASIC_STATS);
    YES(sx.stx_size == 5 && sx.stx_mode == st.st_mode && sx.stx_ino == st.st_ino && sx.stx_nlink == 1);
    YES(makedev(sx.stx_dev_major, sx.stx_dev_minor) == st.st_dev && sx.stx_mtime.tv_sec == st.st_mtim.tv_sec);
    printf("mode %o\n", sx.stx_mode);
    OK(statx(fd, "", AT_EMPTY_PATH, STATX_SIZE, &sx));
    OK(statx(fd, "", 0, STATX_SIZE, &sx));
    OK(statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC | AT_STATX_FORCE_SYNC, STATX_SIZE, &sx));
    OK(statx(AT_FDCWD, "s", 0x8000, STATX_SIZE, &sx));
    OK(statx(AT_FDCWD, "s", 0, STATX__RESERVED, &sx));
    OK(statx(AT_FDCWD, "missing", 0, STATX_SIZE, &sx));
    OK(syscall(SYS_statx, fd, NULL, AT_EMPTY_PATH, STATX_SIZE, 8));
    OK(statx(AT_FDCWD, "d/l", AT_SYMLINK_NOFOLLOW, STATX_TYPE, &sx));
    YES(S_ISLNK(sx.stx_mode));
    OK(stat("/dev/null", &st));
    printf("%o %u:%u\n", st.st_mode & S_IFMT, major(st.st_rdev), minor(st.st_rdev));
    OK(stat("/proc/self", &st));
    YES(S_ISDIR(st.st_mode));
    OK(lstat("/proc/self", &st));
    YES(S_ISLNK(st.st_mode));
    OK(stat("s/", &st));
    OK(stat("", &st));
    OK(fstat(999, &st));
    OK(syscall(SYS_stat, "s", 8));
    YES(st.st_blksize >= 512);
}

static int as_nobody(void)
{
    struct stat st;
    OK(setgid(65534));
    OK(setuid(65534));
    OK(access("private", R_OK));
    OK(access("s", R_OK));
    OK(access("s", X_OK));
    OK(access("s", W_OK));
    OK(access("closed/inside", F_OK));
    OK(stat("closed/inside", &st));
    OK(stat("searchable/inside", &st));
    OK(open("searchable", O_RDONLY));
    OK(open("private", O_RDONLY));
    OK(open("s", O_WRONLY));
    OK(open("new", O_CREAT | O_WRONLY, 0600));
    OK(unlink("s"));
    OK(chmod("s", 0777));
    OK(chown("s", 65534, 65534));
    OK(rename("s", "t"));
    YES(link("private", "t") < 0); /* the errno depends on protected_hardlinks */
    OK(truncate("s", 0));
    OK(open("s", O_RDONLY | O_NOATIME));
    OK(chdir("closed"));
    return 0;
}

static void accessing(void)
{
    OK(close(make_file("private", "x")));
    OK(chmod("private", 0600));
    OK(chmod("s", 0755));
    OK(mkdir("closed", 0700));
    OK(mkdir("searchable", 0711));
    close(make_file("closed/inside", "")), close(make_file("searchable/inside", ""));
    OK(access("s", F_OK));
    OK(access("private", X_OK)); /* not even for root */
    OK(access("missing", F_OK));
    OK(access("s", 8));
    OK(access("", F_OK));
    OK(faccessat(AT_FDCWD, "s", R_OK, AT_EACCESS));
    OK(syscall(SYS_faccessat2, AT_FDCWD, "s", R_OK, 0x8000));
    OK(syscall(SYS_faccessat2, AT_FDCWD, "d/l", F_OK, AT_SYMLINK_NOFOLLOW));
    OK(syscall(SYS_faccessat2, open("s", O_PATH), "", R_OK, AT_EMPTY_PATH));
    child("nobody", as_nobody);
}

int main(void)
{
    start_in_dir();
    relative();
    resolving();
    statuses();
    accessing();
    return 0;
}
