/* SPDX-License-Identifier: Apache-2.0 */
/* Directories: mkdir, rmdir, getdents at scale, rename variants, links, long names, loops. */
#include "show.h"
#include <dirent.h>
#include <limits.h>
#include <sys/syscall.h>

static ino_t inode(const char *name)
{
    struct stat st;
    return lstat(name, &st) < 0 ? 0 : st.st_ino;
}

static long links(const char *name)
{
    struct stat st;
    return lstat(name, &st) < 0 ? -1 : (long)st.st_nlink;
}

static bool exists(const char *name)
{
    struct stat st;
    return lstat(name, &st) == 0;
}

static void touch(const char *name)
{
    close(make_file(name, name));
}

static int exchange(const char *from, const char *to, unsigned flags)
{
    return (int)syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, flags);
}

static void making(void)
{
    char long_name[300];
    OK(mkdir("d", 0777));
    OK(mkdir("d", 0777));
    OK(mkdir("missing/d", 0777));
    OK(mkdir("", 0777));
    OK(mkdir("d/e/", 0700));
    OK(mkdir("d/.", 0700));
    OK(mkdir("d/..", 0700));
    OK(mkdir("/", 0700));
    YES(links("d") == 3 || links("d") == 1);
    touch("f");
    OK(mkdir("f", 0700));
    OK(mkdir("f/d", 0700));
    OK(rmdir("d"));
    OK(rmdir("f"));
    OK(rmdir("missing"));
    OK(rmdir("d/."));
    OK(rmdir("d/e/.."));
    OK(rmdir("."));
    OK(rmdir("/"));
    OK(unlink("d"));
    OK(unlink("f/"));
    OK(unlink("missing"));
    OK(rmdir("d/e"));
    OK(rmdir("d"));
    memset(long_name, 'n', sizeof(long_name));
    long_name[255] = '\0';
    OK(mkdir(long_name, 0700));
    OK(rmdir(long_name));
    long_name[255] = 'n', long_name[256] = '\0';
    OK(mkdir(long_name, 0700));
    OK(open(long_name, O_RDONLY));
    static char path[5000];
    for (size_t i = 0; i < 4094; i += 2)
        memcpy(path + i, "./", 2);
    path[4094] = '.', path[4095] = '\0';
    YES(exists(path));
    memcpy(path + 4094, "./.", 4);
    OK(mkdir(path, 0700));
    OK(mknod("node", S_IFREG | 0644, 0));
    YES(exists("node"));
    OK(mknod("bad", S_IFDIR | 0644, 0));
    OK(mknod("socket", S_IFSOCK | 0644, 0));
    OK(unlink("node"));
    OK(unlink("socket"));
}

static void removed_cwd(void)
{
    char path[PATH_MAX];
    OK(mkdir("away", 0700));
    OK(chdir("away"));
    OK(rmdir("../away"));
    errno = 0;
    YES(syscall(SYS_getcwd, path, sizeof(path)) < 0 && errno == ENOENT);
    OK(open("x", O_CREAT, 0600));
    OK(mkdir("x", 0700));
    OK(open(".", O_RDONLY));
    OK(stat("x", &(struct stat){0}));
    OK(chdir(show_dir));
    OK(chdir("f"));
    OK(chdir("missing"));
    OK(syscall(SYS_getcwd, path, 3));
    OK(fchdir(open("f", O_RDONLY)));
    int fd = open(".", O_RDONLY | O_DIRECTORY);
    OK(chdir("/"));
    OK(fchdir(fd));
    YES(getcwd(path, sizeof(path)) && strcmp(path, show_dir) == 0);
}

static void renaming(void)
{
    touch("a"), touch("b");
    ino_t a = inode("a"), b = inode("b");
    OK(rename("a", "c"));
    YES(!exists("a") && inode("c") == a);
    OK(rename("c", "b"));
    YES(inode("b") == a);
    OK(rename("b", "b"));
    touch("a");
    b = inode("a"), a = inode("b");
    OK(exchange("a", "b", RENAME_EXCHANGE));
    YES(inode("a") == a && inode("b") == b);
    OK(exchange("a", "b", RENAME_NOREPLACE));
    OK(exchange("a", "new", RENAME_NOREPLACE));
    OK(exchange("new", "missing", RENAME_EXCHANGE));
    OK(exchange("new", "b", RENAME_EXCHANGE | RENAME_NOREPLACE));
    OK(exchange("new", "b", 0x100));
    OK(mkdir("d", 0700));
    OK(mkdir("d/sub", 0700));
    OK(mkdir("empty", 0700));
    OK(rename("b", "d"));
    OK(rename("d", "b"));
    OK(rename("empty", "d"));
    OK(rename("d", "empty"));
    YES(!exists("d") && exists("empty/sub"));
    OK(rename("empty", "empty/sub/below"));
    OK(rename("empty", "empty/sub"));
    OK(rename("empty/sub", "empty"));
    OK(exchange("b", "empty", RENAME_EXCHANGE));
    YES(exists("b/sub"));
    OK(exchange("b", "b/sub", RENAME_EXCHANGE));
    OK(rename("missing", "x"));
    OK(rename("b", "missing/x"));
    OK(rename(".", "x"));
    OK(rename("b", ".."));
    OK(rename("empty/", "x"));
    OK(rename("b/", "x/"));
    OK(rename("x", "b"));
    OK(link("empty", "hard"));
    OK(rename("empty", "hard")); /* the same file: nothing happens */
    YES(exists("empty") && exists("hard"));
    int fd = open("b/sub", O_RDONLY | O_DIRECTORY);
    OK(rename("b", "moved"));
    OK(openat(fd, "../sub", O_RDONLY));
    int open_file = make_file("target", "old content");
    touch("source");
    OK(rename("source", "target"));
    char bytes[12] = "";
    VAL(pread(open_file, bytes, 11, 0));
    YES(strcmp(bytes, "old content") == 0);
}

static void linking(void)
{
    char target[64];
    struct stat st;
    touch("file");
    OK(link("file", "file2"));
    VAL(links("file"));
    YES(inode("file") == inode("file2"));
    OK(link("file", "file2"));
    OK(link("missing", "x1"));
    OK(link("moved", "x1"));
    OK(symlink("file", "sym"));
    OK(symlink("file", "sym"));
    OK(symlink("", "sym2"));
    OK(link("sym", "sym-hard")); /* links the symlink itself */
    YES(inode("sym") == inode("sym-hard"));
    OK(linkat(AT_FDCWD, "sym", AT_FDCWD, "through", AT_SYMLINK_FOLLOW));
    YES(inode("through") == inode("file"));
    OK(linkat(AT_FDCWD, "file", AT_FDCWD, "x1", 0x8000));
    VAL(readlink("sym", target, sizeof(target)));
    VAL(readlink("sym", target, 2));
    OK(readlink("sym", target, 0));
    OK(readlink("file", target, 10));
    OK(lstat("sym", &st));
    printf("mode %o, size %ld\n", st.st_mode, (long)st.st_size);
    OK(unlink("sym"));
    YES(exists("file"));
    OK(unlink("file"));
    OK(unlink("through"));
    VAL(links("file2"));
    OK(symlink("loop2", "loop1"));
    OK(symlink("loop1", "loop2"));
    OK(open("loop1", O_RDONLY));
    OK(open("loop1/x", O_RDONLY));
    OK(stat("loop1", &st));
    OK(lstat("loop1", &st));
    OK(mkdir("chain", 0700));
    char name[32], previous[32] = "../file2";
    for (int i = 0; i < 42; i++) {
        snprintf(name, sizeof(name), "chain/%d", i);
        if (symlink(previous, name) < 0)
            printf("symlink\n");
        snprintf(previous, sizeof(previous), "%d", i);
    }
    OK(open("chain/39", O_RDONLY)); /* 40 in all */
    OK(open("chain/40", O_RDONLY));
    OK(symlink("moved", "dirlink"));
    YES(exists("dirlink/sub"));
    OK(mkdir("dirlink/sub/deep", 0700));
    YES(exists("moved/sub/deep"));
    OK(rmdir("dirlink"));
    OK(rmdir("dirlink/sub/deep"));
    OK(open("dirlink", O_DIRECTORY | O_NOFOLLOW));
    OK(lstat("dirlink/", &st));
    YES(S_ISDIR(st.st_mode));
}

static void listing(void)
{
    enum { COUNT = 10000 };
    static bool seen[COUNT];
    char name[32];
    int count = 0, others = 0, fd;
    OK(mkdir("many", 0700));
    fd = open("many", O_RDONLY | O_DIRECTORY);
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof(name), "file-%d", i);
        close(openat(fd, name, O_CREAT | O_WRONLY, 0600));
    }
    DIR *dir = opendir("many");
    for (struct dirent *entry; (entry = readdir(dir));) {
        int i = -1;
        if (sscanf(entry->d_name, "file-%d", &i) == 1 && i >= 0 && i < COUNT && !seen[i] && entry->d_type == DT_REG)
            seen[i] = true, count++;
        else
            others++;
    }
    VAL(count);
    VAL(others);
    rewinddir(dir);
    for (int i = 0; i < 5000; i++)
        readdir(dir);
    long position = telldir(dir);
    struct dirent *entry = readdir(dir);
    strcpy(name, entry->d_name);
    for (int i = 0; i < 100; i++)
        readdir(dir);
    seekdir(dir, position);
    YES(strcmp(readdir(dir)->d_name, name) == 0);
    closedir(dir);
    char bytes[16];
    OK(syscall(SYS_getdents64, fd, bytes, 10));
    OK(syscall(SYS_getdents64, 999, bytes, 10));
    OK(syscall(SYS_getdents64, open("file2", O_RDONLY), bytes, 10));
    OK(syscall(SYS_getdents64, fd, 8, 100));
    count = 0;
    dir = opendir("many"); /* deleting while reading misses none */
    while ((entry = readdir(dir))) {
        if (entry->d_name[0] == 'f')
            count += unlinkat(fd, entry->d_name, 0) == 0;
    }
    VAL(count);
    closedir(dir);
    OK(rmdir("many"));
    VAL(syscall(SYS_getdents64, fd, name, sizeof(name)) <= 0);
}

int main(void)
{
    start_in_dir();
    making();
    removed_cwd();
    renaming();
    linking();
    listing();
    return 0;
}
