/* SPDX-License-Identifier: Apache-2.0 */
/* File locks: POSIX, open file description, flock. */
#include "show.h"
#include <sys/file.h>

static int fd, to_child[2], to_parent[2];

static int posix(int on, int cmd, short type, off_t start, off_t len)
{
    struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = start, .l_len = len};
    return fcntl(on, cmd, &lock);
}

/* Who would stop us, as "type start+len owner". */
static void show_blocker(const char *what, int on, int cmd, off_t start, off_t len)
{
    struct flock lock = {.l_type = F_WRLCK, .l_start = start, .l_len = len};
    if (fcntl(on, cmd, &lock) < 0)
        printf("%s: %s\n", what, strerrorname_np(errno));
    else if (lock.l_type == F_UNLCK)
        printf("%s: free\n", what);
    else
        printf("%s: %s %ld+%ld by %s\n", what, lock.l_type == F_RDLCK ? "read" : "write", (long)lock.l_start,
               (long)lock.l_len, lock.l_pid == -1 ? "a description" : lock.l_pid == getppid() ? "parent" : "other");
}

static int check_posix(void)
{
    int own = open("f", O_RDWR);
    show_blocker("0+10", own, F_GETLK, 0, 10);
    show_blocker("20+10", own, F_GETLK, 20, 10);
    show_blocker("30+0", own, F_GETLK, 30, 0);
    show_blocker("all", own, F_GETLK, 0, 0);
    OK(posix(own, F_SETLK, F_RDLCK, 0, 10));
    OK(posix(own, F_SETLK, F_WRLCK, 0, 10));
    OK(posix(own, F_SETLK, F_WRLCK, 12, 2));
    OK(posix(own, F_SETLK, F_RDLCK, 100, 1));
    OK(posix(own, F_SETLK, F_UNLCK, 0, 0));
    return 0;
}

static int check_free(void)
{
    int own = open("f", O_RDWR);
    show_blocker("all", own, F_GETLK, 0, 0);
    return 0;
}

static void records(void)
{
    OK(posix(fd, F_SETLK, F_WRLCK, 0, 10));
    OK(posix(fd, F_SETLK, F_RDLCK, 20, 10));
    OK(posix(fd, F_SETLK, F_WRLCK, 100, 0)); /* to the end of time */
    OK(posix(fd, F_SETLK, F_RDLCK, 4, 3)); /* splits the first */
    child("posix", check_posix);
    OK(posix(fd, F_SETLK, F_UNLCK, 0, 25));
    child("partly unlocked", check_posix);
    close(dup(fd)); /* closing any descriptor of the file drops them all */
    child("closed", check_free);
    OK(posix(fd, F_SETLK, F_WRLCK, -1, 0));
    OK(posix(fd, F_SETLK, F_WRLCK, 5, -5));
    OK(posix(fd, F_SETLK, F_WRLCK, 5, -6));
    OK(posix(fd, F_SETLK, 77, 0, 0));
    struct flock bad = {.l_type = F_WRLCK, .l_whence = 9};
    OK(fcntl(fd, F_SETLK, &bad));
    OK(posix(open("f", O_RDONLY), F_SETLK, F_WRLCK, 0, 0));
    OK(posix(open("f", O_WRONLY), F_SETLK, F_RDLCK, 0, 0));
    OK(posix(open("f", O_PATH), F_SETLK, F_RDLCK, 0, 0));
    OK(posix(999, F_SETLK, F_RDLCK, 0, 0));
    struct flock end = {.l_type = F_WRLCK, .l_whence = SEEK_END, .l_start = -3, .l_len = 2};
    OK(fcntl(fd, F_SETLK, &end));
    child("from the end", check_free);
    OK(posix(fd, F_SETLK, F_UNLCK, 0, 0));
}

static int ofd_child(void)
{
    int own = open("f", O_RDWR);
    OK(posix(fd, F_OFD_SETLK, F_WRLCK, 0, 10)); /* inherited description: the same owner */
    OK(posix(own, F_OFD_SETLK, F_WRLCK, 5, 1));
    show_blocker("OFD", own, F_OFD_GETLK, 0, 0);
    show_blocker("posix", own, F_GETLK, 0, 0);
    return 0;
}

static void descriptions(void)
{
    int second = open("f", O_RDWR);
    OK(posix(fd, F_OFD_SETLK, F_WRLCK, 0, 10));
    OK(posix(second, F_OFD_SETLK, F_RDLCK, 9, 1)); /* even in one process */
    OK(posix(second, F_OFD_SETLK, F_WRLCK, 10, 1));
    OK(posix(second, F_SETLK, F_WRLCK, 0, 1));
    child("ofd", ofd_child);
    close(dup(fd));
    OK(posix(second, F_OFD_SETLK, F_RDLCK, 9, 1));
    struct flock with_pid = {.l_type = F_WRLCK, .l_pid = 5};
    OK(fcntl(second, F_OFD_SETLK, &with_pid));
    close(second);
    OK(posix(fd, F_OFD_SETLK, F_UNLCK, 0, 0));
}

static int flock_child(void)
{
    int own = open("f", O_RDONLY);
    OK(flock(own, LOCK_EX | LOCK_NB));
    OK(flock(own, LOCK_SH | LOCK_NB));
    OK(flock(fd, LOCK_EX | LOCK_NB)); /* the parent's description */
    OK(flock(fd, LOCK_SH | LOCK_NB));
    return 0;
}

static void whole_files(void)
{
    int second = open("f", O_RDONLY), copy = dup(fd);
    OK(flock(fd, LOCK_EX));
    OK(flock(second, LOCK_SH | LOCK_NB));
    OK(flock(copy, LOCK_EX | LOCK_NB));
    child("flock", flock_child);
    OK(flock(second, LOCK_SH | LOCK_NB)); /* the child made it shared */
    OK(flock(fd, LOCK_EX | LOCK_NB));
    OK(flock(second, LOCK_UN));
    close(fd);
    OK(flock(second, LOCK_EX | LOCK_NB)); /* the copy still holds it */
    close(copy);
    OK(flock(second, LOCK_EX | LOCK_NB));
    OK(flock(second, LOCK_UN));
    OK(flock(second, 0));
    OK(flock(999, LOCK_EX));
    OK(flock(open("f", O_PATH), LOCK_EX));
    close(second);
    fd = open("f", O_RDWR);
}

static void say(int to)
{
    if (write(to, "x", 1) != 1)
        _exit(9);
}

static void hear(int from)
{
    char byte;
    if (read(from, &byte, 1) != 1)
        _exit(9);
}

static void waiting(void)
{
    OK(pipe(to_child));
    OK(pipe(to_parent));
    pid_t pid = fork();
    if (pid == 0) {
        int own = open("f", O_RDWR);
        posix(own, F_SETLK, F_WRLCK, 0, 10);
        flock(own, LOCK_EX);
        say(to_parent[1]);
        hear(to_child[0]);
        sleep_ms(30);
        _exit(0); /* which releases both */
    }
    hear(to_parent[0]);
    OK(posix(fd, F_SETLK, F_WRLCK, 5, 1));
    say(to_child[1]);
    OK(posix(fd, F_SETLKW, F_WRLCK, 5, 1));
    OK(flock(fd, LOCK_EX));
    reap("holder", pid);
    OK(flock(fd, LOCK_UN));
    OK(posix(fd, F_SETLK, F_UNLCK, 0, 0));
    /* A deadlock is noticed: we hold 0 and want 1, it holds 1 and waits for 0. */
    OK(posix(fd, F_SETLK, F_WRLCK, 0, 1));
    pid = fork();
    if (pid == 0) {
        int own = open("f", O_RDWR);
        posix(own, F_SETLK, F_WRLCK, 1, 1);
        say(to_parent[1]);
        _exit(posix(own, F_SETLKW, F_WRLCK, 0, 1) == 0 ? 6 : 7);
    }
    hear(to_parent[0]);
    sleep_ms(60);
    OK(posix(fd, F_SETLKW, F_WRLCK, 1, 1));
    OK(posix(fd, F_SETLK, F_UNLCK, 0, 0));
    reap("waiter", pid);
}

int main(void)
{
    start_in_dir();
    fd = make_file("f", "0123456789");
    records();
    descriptions();
    whole_files();
    waiting();
    return 0;
}
