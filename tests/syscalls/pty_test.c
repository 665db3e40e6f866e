/* SPDX-License-Identifier: Apache-2.0 */
/* Pseudo-terminals: opening, line discipline, sizes, hang-up. */
#include "show.h"
#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/sysmacros.h>
#include <termios.h>

static int master, slave;

static int events(int fd)
{
    struct pollfd poller = {fd, POLLIN | POLLOUT, 0};
    poll(&poller, 1, 0);
    return poller.revents;
}

/* Reads what's there and prints it with control characters visible. */
static void drain(const char *what, int fd)
{
    char bytes[512];
    sleep_ms(5);
    ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n < 0) {
        printf("%s: %s\n", what, strerrorname_np(errno));
        return;
    }
    printf("%s: %zd \"", what, n);
    for (ssize_t i = 0; i < n; i++) {
        if (bytes[i] >= ' ' && bytes[i] < 127)
            putchar(bytes[i]);
        else
            printf("\\%03o", (unsigned char)bytes[i]);
    }
    printf("\"\n");
}

static void type(const char *keys)
{
    if (write(master, keys, strlen(keys)) < 0)
        printf("write: %s\n", strerrorname_np(errno));
}

static void opening(void)
{
    struct stat st;
    char name[64];
    master = posix_openpt(O_RDWR | O_NOCTTY | O_NONBLOCK);
    YES(master >= 0 && ptsname_r(master, name, sizeof(name)) == 0 && strncmp(name, "/dev/pts/", 9) == 0);
    OK(open(name, O_RDWR | O_NOCTTY)); /* locked */
    OK(grantpt(master));
    int lock = -1, number = -1;
    OK(ioctl(master, TIOCGPTLCK, &lock));
    VAL(lock);
    OK(unlockpt(master));
    OK(ioctl(master, TIOCGPTN, &number));
    YES(number == atoi(name + 9));
    slave = open(name, O_RDWR | O_NOCTTY | O_NONBLOCK);
    YES(slave >= 0);
    OK(fstat(slave, &st));
    printf("char %d, major %u, minor %d, mode %o\n", S_ISCHR(st.st_mode), major(st.st_rdev), minor(st.st_rdev) == (unsigned)number, st.st_mode & 0757); /* group writing is the mount's choice */
    VAL(isatty(slave));
    VAL(isatty(master));
    char tty[64];
    YES(ttyname_r(slave, tty, sizeof(tty)) == 0 && strcmp(tty, name) == 0);
    int peer = ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY);
    YES(peer >= 0 && ttyname_r(peer, tty, sizeof(tty)) == 0 && strcmp(tty, name) == 0);
    close(peer);
    OK(fstat(master, &st));
    printf("master %u:%u\n", major(st.st_rdev), minor(st.st_rdev));
    OK(isatty(0) ? 0 : errno == ENOTTY ? 0 : -1);
    int p[2];
    OK(pipe(p));
    OK(tcgetattr(p[0], &(struct termios){0}));
    OK(lseek(slave, 0, SEEK_SET));
}

static void settings(void)
{
    struct termios t, raw;
    OK(tcgetattr(slave, &t));
    printf("iflag %o oflag %o cflag %o lflag %o\n", t.c_iflag, t.c_oflag, t.c_cflag, t.c_lflag);
    for (int i = 0; i < 17; i++)
        printf(" %d", t.c_cc[i]);
    printf("\n");
    OK(tcgetattr(master, &raw));
    YES(memcmp(&t.c_cc, &raw.c_cc, 17) == 0 && t.c_lflag == raw.c_lflag);
    VAL(cfgetospeed(&t));
    struct winsize size = {0};
    OK(ioctl(slave, TIOCGWINSZ, &size));
    printf("%d x %d\n", size.ws_row, size.ws_col);
    size = (struct winsize){24, 80, 1, 2};
    OK(ioctl(master, TIOCSWINSZ, &size));
    memset(&size, 0, sizeof(size));
    OK(ioctl(slave, TIOCGWINSZ, &size));
    printf("%d x %d, %d x %d\n", size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel);
    OK(ioctl(slave, 0x54ff, 0));
    OK(tcdrain(slave));
    OK(tcflow(slave, TCOON));
    OK(tcsendbreak(slave, 0));
    OK(ioctl(slave, TIOCEXCL, 0));
    OK(ioctl(slave, TIOCNXCL, 0));
}

static void canonical(void)
{
    int n = -1;
    VAL(events(slave));
    OK(read(slave, &n, 1));
    type("hello");
    VAL(events(slave)); /* no line yet */
    drain("echo", master);
    type("\r");
    drain("echo", master);
    OK(ioctl(slave, FIONREAD, &n));
    VAL(n);
    VAL(events(slave));
    drain("line", slave);
    type("abc\177\177X\nsecond\n");
    drain("echo", master);
    drain("edited", slave);
    drain("second", slave);
    type("one two\027\027new\n");
    drain("word erase", slave);
    type("gone\025kept\n");
    drain("kill", slave);
    type("part\004");
    drain("end of file pushes", slave);
    type("\004");
    drain("end of file", slave);
    type("lit\026\003eral\n");
    drain("literal next", slave);
    char two[2];
    type("long line\n");
    VAL(read(slave, two, 2));
    drain("rest", slave);
    drain("echo of all", master);
    VAL(write(slave, "out\nput\t\n", 9));
    drain("output", master);
    type("\001");
    drain("control echo", master);
    type("\n");
    drain("control", slave);
    drain("echo", master);
}

static void modes(void)
{
    struct termios t, saved;
    tcgetattr(slave, &saved);
    t = saved;
    t.c_lflag &= ~(tcflag_t)ECHO;
    OK(tcsetattr(slave, TCSANOW, &t));
    type("secret\n");
    drain("no echo", master);
    drain("line", slave);
    type("partial");
    cfmakeraw(&t);
    OK(tcsetattr(slave, TCSANOW, &t)); /* what was typed becomes readable */
    drain("partial", slave);
    type("\003\r\n\177");
    drain("raw", slave);
    VAL(write(slave, "a\nb", 3));
    drain("raw output", master);
    t.c_cc[VMIN] = 3, t.c_cc[VTIME] = 0;
    OK(tcsetattr(slave, TCSANOW, &t));
    type("ab");
    VAL(events(slave) & POLLIN);
    type("c");
    VAL(events(slave) & POLLIN);
    drain("three", slave);
    t.c_cc[VMIN] = 0, t.c_cc[VTIME] = 1;
    OK(tcsetattr(slave, TCSANOW, &t));
    OK(fcntl(slave, F_SETFL, 0));
    long before = now_ms();
    char byte;
    VAL(read(slave, &byte, 1));
    YES(now_ms() - before >= 90);
    OK(fcntl(slave, F_SETFL, O_NONBLOCK));
    type("dropped");
    sleep_ms(5);
    OK(tcsetattr(slave, TCSAFLUSH, &saved));
    drain("flushed", slave);
    type("dropped");
    sleep_ms(10);
    OK(tcflush(slave, TCIFLUSH));
    type("x\n");
    drain("after flush", slave);
    OK(tcflush(slave, 99));
    drain("echo", master);
    t = saved;
    t.c_iflag |= IUCLC | ISTRIP;
    t.c_iflag &= ~(tcflag_t)ICRNL;
    t.c_oflag &= ~(tcflag_t)ONLCR;
    OK(tcsetattr(slave, TCSADRAIN, &t));
    type("a\rb\n");
    drain("no ICRNL", slave);
    VAL(write(slave, "x\n", 2));
    drain("no ONLCR", master);
    OK(tcsetattr(slave, TCSANOW, &saved));
}

static void packets(void)
{
    int on = 1;
    OK(ioctl(master, TIOCPKT, &on));
    VAL(write(slave, "data", 4));
    drain("packet", master);
    OK(tcflush(slave, TCIFLUSH));
    drain("flush", master);
    on = 0;
    OK(ioctl(master, TIOCPKT, &on));
}

static void large(void)
{
    char block[1000];
    long total = 0, n;
    struct termios t;
    tcgetattr(slave, &t);
    cfmakeraw(&t);
    tcsetattr(slave, TCSANOW, &t);
    pid_t pid = fork();
    if (pid == 0) {
        fcntl(slave, F_SETFL, 0);
        memset(block, 'z', sizeof(block));
        for (int i = 0; i < 100; i++) {
            for (size_t at = 0; at < sizeof(block); at += (size_t)n) {
                n = write(slave, block + at, sizeof(block) - at);
                if (n <= 0)
                    _exit(1);
            }
        }
        _exit(0);
    }
    fcntl(master, F_SETFL, 0);
    while (total < 100000 && (n = read(master, block, sizeof(block))) > 0)
        total += n;
    VAL(total);
    reap("writer", pid);
    fcntl(master, F_SETFL, O_NONBLOCK);
}

static void hang_up(void)
{
    VAL(write(slave, "last words", 10));
    close(slave);
    drain("last words", master);
    drain("closed", master);
    VAL(events(master) & POLLHUP);
    slave = open(ptsname(master), O_RDWR | O_NOCTTY | O_NONBLOCK);
    VAL(events(master) & POLLHUP);
    close(master);
    VAL(events(slave) & (POLLIN | POLLHUP | POLLERR));
    drain("end", slave);
    OK(write(slave, "x", 1));
    struct termios t;
    OK(tcgetattr(slave, &t));
    int more[2];
    OK(openpty(&more[0], &more[1], NULL, NULL, NULL));
    close(more[0]), close(more[1]);
}

/* A path to a terminal that is gone, when its number may be another's. */
static void outlived(void)
{
    char path[64];
    for (int again = 0; again < 2; again++) {
        int first = posix_openpt(O_RDWR | O_NOCTTY), other = -1;
        unlockpt(first);
        int place = open(ptsname(first), O_PATH);
        close(first);
        if (again)
            other = posix_openpt(O_RDWR | O_NOCTTY);
        snprintf(path, sizeof path, "/proc/self/fd/%d", place);
        OK(open(path, O_RDWR | O_NOCTTY));
        close(place);
        if (again)
            close(other);
    }
    int master = posix_openpt(O_RDWR | O_NOCTTY), locked = 1;
    ioctl(master, TIOCSPTLCK, &locked);
    OK(ioctl(master, TIOCGPTPEER, O_RDWR | O_NOCTTY));
    close(master);
}

int main(void)
{
    start();
    outlived();
    opening();
    settings();
    canonical();
    modes();
    packets();
    large();
    hang_up();
    return 0;
}
