/* SPDX-License-Identifier: Apache-2.0 */
/* Attributes: chmod, chown, set-id clearing, umask, times, extended attributes. */
#include "show.h"
#include <grp.h>
#include <sys/syscall.h>
#include <sys/xattr.h>

static void show_mode(const char *name)
{
    struct stat st;
    if (lstat(name, &st) < 0)
        printf("%s: %s\n", name, strerrorname_np(errno));
    else
        printf("%s: mode %o owner %d:%d\n", name, st.st_mode, st.st_uid, st.st_gid);
}

static int write_as_nobody(void)
{
    int fd = open("suid", O_WRONLY);
    if (setgid(65534) < 0 || setuid(65534) < 0)
        return 1;
    return write(fd, "x", 1) == 1 ? 0 : 1;
}

static int group_change(void)
{
    gid_t groups[] = {100, 200};
    OK(setgroups(2, groups));
    OK(setgid(100));
    OK(setuid(1000));
    OK(chown("owned", (uid_t)-1, 200)); /* the owner may give it to a group of his */
    show_mode("owned");
    OK(chown("owned", (uid_t)-1, 300));
    OK(chown("owned", 1001, (gid_t)-1));
    OK(chmod("owned", 02755));
    show_mode("owned");
    OK(chmod("foreign-group", 02755)); /* not in that group: set-gid is dropped */
    show_mode("foreign-group");
    return 0;
}

static void modes(void)
{
    int fd = make_file("f", "x");
    OK(chmod("f", 0));
    show_mode("f");
    OK(fchmod(fd, 07777));
    show_mode("f");
    OK(chmod("missing", 0600));
    OK(fchmod(999, 0600));
    OK(chmod("f", 0170644));
    show_mode("f");
    OK(symlink("f", "l"));
    OK(chmod("l", 0640));
    show_mode("l");
    show_mode("f");
    OK(chown("f", 10, 20));
    OK(lchown("l", 30, 40));
    show_mode("f"), show_mode("l");
    OK(chown("l", (uid_t)-1, 50));
    show_mode("f");
    OK(chmod("f", 06755));
    OK(chown("f", (uid_t)-1, (gid_t)-1)); /* even so set-id bits go */
    show_mode("f");
    OK(chmod("f", 06644));
    OK(chown("f", 11, 21));
    show_mode("f"); /* set-gid without group execution isn't set-gid */
    OK(mkdir("d", 02775));
    OK(chown("d", 5, 6));
    OK(chmod("d", 02775));
    show_mode("d");
    close(make_file("d/inherits", ""));
    show_mode("d/inherits");
    OK(mkdir("d/sub", 0755));
    show_mode("d/sub");
    close(make_file("suid", "abc"));
    OK(chmod("suid", 06777));
    child("write as nobody", write_as_nobody);
    show_mode("suid");
    OK(chmod("suid", 06777));
    int own = open("suid", O_WRONLY);
    VAL(write(own, "x", 1)); /* root's writes keep them */
    show_mode("suid");
    printf("umask %o\n", umask(0177));
    close(make_file("masked", ""));
    OK(mkdir("masked-dir", 0777));
    show_mode("masked"), show_mode("masked-dir");
    printf("umask %o\n", umask(022));
    close(make_file("owned", "")), close(make_file("foreign-group", ""));
    OK(chown("owned", 1000, 100));
    OK(chown("foreign-group", 1000, 300));
    child("group change", group_change);
    OK(fchown(open("f", O_PATH), 1, 1));
    OK(fchmod(open("f", O_RDONLY), 0600));
}

static void times(void)
{
    struct stat st;
    struct timespec ts[2] = {{1000000000, 123456789}, {1100000000, 987654321}};
    int fd = make_file("t", "x");
    OK(utimensat(AT_FDCWD, "t", ts, 0));
    OK(stat("t", &st));
    printf("%ld.%09ld %ld.%09ld\n", st.st_atim.tv_sec, st.st_atim.tv_nsec, st.st_mtim.tv_sec, st.st_mtim.tv_nsec);
    ts[0].tv_nsec = UTIME_OMIT, ts[1].tv_sec = 5, ts[1].tv_nsec = 0;
    OK(utimensat(AT_FDCWD, "t", ts, 0));
    OK(stat("t", &st));
    printf("%ld %ld\n", st.st_atim.tv_sec, st.st_mtim.tv_sec);
    ts[0].tv_nsec = UTIME_NOW, ts[1].tv_nsec = UTIME_OMIT;
    OK(futimens(fd, ts));
    OK(fstat(fd, &st));
    YES(labs(st.st_atim.tv_sec - time(NULL)) <= 2 && st.st_mtim.tv_sec == 5);
    ts[0].tv_nsec = 1000000000;
    OK(futimens(fd, ts));
    OK(utimensat(AT_FDCWD, "missing", NULL, 0));
    OK(utimensat(AT_FDCWD, "t", NULL, 0x8000));
    OK(syscall(SYS_utimensat, fd, "", NULL, AT_EMPTY_PATH));
    OK(syscall(SYS_utimensat, fd, NULL, NULL, 0));
    OK(symlink("t", "tl"));
    ts[0] = (struct timespec){77, 0}, ts[1] = (struct timespec){88, 0};
    OK(utimensat(AT_FDCWD, "tl", ts, AT_SYMLINK_NOFOLLOW));
    OK(lstat("tl", &st));
    printf("%ld %ld\n", st.st_atim.tv_sec, st.st_mtim.tv_sec);
    ts[1].tv_sec = -100;
    OK(utimensat(AT_FDCWD, "t", ts, 0));
    OK(stat("t", &st));
    printf("%ld\n", st.st_mtim.tv_sec);
    VAL(write(fd, "y", 1));
    OK(fstat(fd, &st));
    YES(labs(st.st_mtim.tv_sec - time(NULL)) <= 2);
    ts[1].tv_sec = 9;
    OK(mkdir("td", 0700));
    OK(utimensat(AT_FDCWD, "td", ts, 0));
    close(make_file("td/new", ""));
    OK(stat("td", &st));
    YES(st.st_mtim.tv_sec != 9); /* a new entry changes the directory */
    OK(utimensat(AT_FDCWD, "td/new", ts, 0));
    OK(utimensat(AT_FDCWD, "td", ts, 0));
    OK(chmod("td/new", 0600));
    OK(stat("td", &st));
    YES(st.st_mtim.tv_sec == 9);
    OK(stat("td/new", &st));
    YES(st.st_mtim.tv_sec == 9 && labs(st.st_ctim.tv_sec - time(NULL)) <= 2);
}

static void extended(void)
{
    char value[32] = "", list[256];
    static char large[70000];
    int fd = make_file("x", "");
    OK(setxattr("x", "user.one", "value", 5, 0));
    VAL(getxattr("x", "user.one", value, sizeof(value)));
    printf("%s\n", value);
    VAL(getxattr("x", "user.one", NULL, 0));
    OK(getxattr("x", "user.one", value, 2));
    OK(getxattr("x", "user.two", value, 2));
    OK(setxattr("x", "user.one", "again", 5, XATTR_CREATE));
    OK(setxattr("x", "user.two", "b", 1, XATTR_REPLACE));
    OK(setxattr("x", "user.one", "", 0, XATTR_REPLACE));
    VAL(fgetxattr(fd, "user.one", value, sizeof(value)));
    OK(fsetxattr(fd, "user.two", "b", 1, XATTR_CREATE));
    long n = listxattr("x", list, sizeof(list));
    int user = 0;
    for (char *p = list; n > 0 && p < list + n; p += strlen(p) + 1)
        user += strncmp(p, "user.", 5) == 0;
    VAL(user);
    OK(listxattr("x", list, 1));
    OK(removexattr("x", "user.one"));
    OK(removexattr("x", "user.one"));
    OK(setxattr("x", "nonsense", "a", 1, 0));
    OK(setxattr("x", "user.", "a", 1, 0));
    OK(setxattr("x", "", "a", 1, 0));
    OK(setxattr("x", "user.flags", "a", 1, 99));
    OK(setxattr("x", "user.large", large, sizeof(large), 0));
    OK(setxattr("missing", "user.one", "a", 1, 0));
    char name[300];
    memset(name, 'n', sizeof(name));
    memcpy(name, "user.", 5);
    name[256] = '\0';
    OK(setxattr("x", name, "a", 1, 0));
    OK(symlink("x", "xl"));
    OK(lsetxattr("xl", "user.link", "a", 1, 0)); /* not on symlinks */
    VAL(getxattr("xl", "user.two", value, sizeof(value)));
    OK(setxattr("x", "trusted.t", "a", 1, 0));
    OK(mkdir("xd", 0700));
    OK(setxattr("xd", "user.dir", "a", 1, 0));
    OK(mkfifo("xf", 0600));
    OK(setxattr("xf", "user.fifo", "a", 1, 0));
    OK(fsetxattr(open("x", O_PATH), "user.path", "a", 1, 0));
    OK(fgetxattr(999, "user.two", value, 1));
}

int main(void)
{
    start_in_dir();
    modes();
    times();
    extended();
    return 0;
}
