/* SPDX-License-Identifier: Apache-2.0 */
/* Terminal settings of the caller. CLI and monitor; no threads. */
#include "runsc-compat/cli/terminal.h"

#include <errno.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <unistd.h>

int terminal_init(struct terminal *t)
{
    *t = (struct terminal){.in = -1, .out = -1};
    for (int hfd = 0; hfd < 3; hfd++) {
        if (isatty(hfd))
            t->mask |= 1u << hfd;
    }
    if (!t->mask)
        return 0;
    if (t->mask & 1)
        t->in = 0;
    t->out = t->mask & 2 ? 1 : t->mask & 4 ? 2 : 0;
    void *shared = mmap(NULL, sizeof(*t->shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return -errno;
    t->shared = shared;
    return 0;
}

bool terminal_enter_raw(struct terminal *t)
{
    struct termios raw;
    if (t->in < 0 || t->shared->raw)
        return t->in >= 0;
    if (tcgetpgrp(t->in) != getpgrp() || tcgetattr(t->in, &t->shared->saved) < 0)
        return false;
    raw = t->shared->saved;
    cfmakeraw(&raw);
    t->shared->raw = true; /* first: a kill between the two restores what is there already */
    if (tcsetattr(t->in, TCSANOW, &raw) == 0)
        return true;
    t->shared->raw = false;
    return false;
}

void terminal_restore(struct terminal *t)
{
    sigset_t ttou;
    sigset_t old;
    if (t->in < 0 || !t->shared->raw)
        return;
    /* From the background SIGTTOU would stop us; blocked, the call goes through. */
    sigemptyset(&ttou);
    sigaddset(&ttou, SIGTTOU);
    sigprocmask(SIG_BLOCK, &ttou, &old);
    while (tcsetattr(t->in, TCSANOW, &t->shared->saved) < 0 && errno == EINTR)
        ;
    t->shared->raw = false;
    sigprocmask(SIG_SETMASK, &old, NULL);
}

void terminal_restore_abandoned(struct terminal *t)
{
    struct termios now;
    if (t->in < 0 || !t->shared->raw || tcgetattr(t->in, &now) < 0)
        return;
    struct termios raw = t->shared->saved;
    cfmakeraw(&raw);
    if (now.c_lflag == raw.c_lflag && now.c_iflag == raw.c_iflag && now.c_oflag == raw.c_oflag)
        terminal_restore(t);
}

struct control_winsize terminal_winsize(const struct terminal *t)
{
    struct winsize size = {0};
    if (t->out >= 0)
        (void)ioctl(t->out, TIOCGWINSZ, &size);
    return (struct control_winsize){size.ws_row, size.ws_col, size.ws_xpixel, size.ws_ypixel};
}
