/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Control messages: SCM_RIGHTS and SCM_CREDENTIALS. The guest's buffer is copied once; cmsg_walk() checks the
 * sizes in it.
 */
#include "sentry/syscalls/socket_message.h"

#include "base/host.h"
#include "sentry/fs/anon/cmsg.h"
#include "sentry/mm/uaccess.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <linux/capability.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#define CONTROL_SIZE_MAX 20480 /* net.core.optmem_max */

static int add_files(struct task *task, const uint8_t *bytes, size_t size, struct socket_control *c)
{
    size_t count = size / sizeof(int32_t);
    if (c->file_count + count > SOCKET_FILES_MAX)
        return -EINVAL;
    if (!c->files)
        c->files = calloc(SOCKET_FILES_MAX, sizeof(*c->files));
    if (!c->files)
        return -ENOMEM;
    for (size_t i = 0; i < count; i++) {
        int32_t fd;
        memcpy(&fd, bytes + i * sizeof(fd), sizeof(fd));
        struct file *f = fd_table_get_any(task->fds, fd);
        if (!f)
            return -EBADF;
        c->files[c->file_count++] = f;
    }
    return 0;
}

static bool may_claim(const struct task *task, const struct linux_ucred *u)
{
    const struct creds *c = task->creds;
    bool pid_ok = u->pid == task->group->tgid || creds_capable(c, CAP_SYS_ADMIN);
    bool uid_ok = u->uid == c->uid || u->uid == c->euid || u->uid == c->suid || creds_capable(c, CAP_SETUID);
    bool gid_ok = u->gid == c->gid || u->gid == c->egid || u->gid == c->sgid || creds_capable(c, CAP_SETGID);
    return pid_ok && uid_ok && gid_ok;
}

static int set_creds(struct task *task, const uint8_t *bytes, size_t size, struct socket_control *c)
{
    if (size != sizeof(c->creds))
        return -EINVAL;
    memcpy(&c->creds, bytes, sizeof(c->creds));
    if (!may_claim(task, &c->creds))
        return -EPERM;
    c->has_creds = true;
    return 0;
}

struct reader {
    struct task *task;
    struct socket_control *control;
};

static int read_one(void *arg, const struct linux_cmsghdr *h, const uint8_t *bytes, size_t size)
{
    struct reader *r = arg;
    if (h->level != SOL_SOCKET)
        return 0;
    if (h->type == SCM_RIGHTS)
        return add_files(r->task, bytes, size, r->control);
    if (h->type == SCM_CREDENTIALS)
        return set_creds(r->task, bytes, size, r->control);
    return -EINVAL;
}

int control_read(struct task *task, guest_addr control, uint64_t size, struct socket_control *ret)
{
    *ret = (struct socket_control){0};
    if (size == 0)
        return 0;
    if (size > CONTROL_SIZE_MAX)
        return -ENOBUFS;
    AUTO_FREE uint8_t *buffer = malloc(size);
    if (!buffer)
        return -ENOMEM;
    if (copy_in(task->mm, buffer, control, size) < 0)
        return -EFAULT;
    struct reader reader = {.task = task, .control = ret};
    int r = cmsg_walk(buffer, size, read_one, &reader);
    if (r < 0)
        socket_control_fini(ret);
    if (r == 0 && !ret->file_count) {
        free(ret->files); /* a message without descriptors in it */
        ret->files = NULL;
    }
    return r;
}

/* ---- receive ------------------------------------------------------------------------------------- */

struct control_out {
    struct task *task;
    guest_addr at;
    uint64_t room, written;
    int *flags;
};

/* One message at the cursor; a part of it when there is no room for all. */
static int put_message(struct control_out *out, int type, const void *bytes, size_t size)
{
    struct linux_cmsghdr h = {.size = sizeof(h) + size, .level = SOL_SOCKET, .type = type};
    if (out->room < sizeof(h)) {
        *out->flags |= MSG_CTRUNC;
        return 0;
    }
    if (h.size > out->room) {
        *out->flags |= MSG_CTRUNC;
        h.size = out->room;
    }
    guest_addr body;
    if (!guest_addr_add(out->at, sizeof(h), &body) || copy_out_obj(out->task->mm, out->at, &h) < 0 ||
        copy_out(out->task->mm, body, bytes, (size_t)h.size - sizeof(h)) < 0)
        return -EFAULT;
    uint64_t step = LINUX_CMSG_ALIGN(h.size);
    if (step > out->room)
        step = out->room;
    out->room -= step;
    out->written += step;
    out->at.va += step;
    return 0;
}

/* Installs as many as there is room and numbers for; the others are put. */
static size_t install_files(struct control_out *out, struct socket_control *c, bool cloexec, int32_t *fds)
{
    size_t max = out->room < sizeof(struct linux_cmsghdr)
                     ? 0
                     : (size_t)(out->room - sizeof(struct linux_cmsghdr)) / sizeof(int32_t);
    size_t count = 0;
    while (count < c->file_count && count < max) {
        int fd = fd_table_install(out->task->fds, c->files[count], 0, task_rlimit(out->task, RLIMIT_NOFILE), cloexec);
        if (fd < 0)
            break;
        c->files[count] = NULL;
        fds[count++] = fd;
    }
    if (count < c->file_count)
        *out->flags |= MSG_CTRUNC;
    return count;
}

static int put_files(struct control_out *out, struct socket_control *c, bool cloexec)
{
    AUTO_FREE int32_t *fds = calloc(SOCKET_FILES_MAX, sizeof(*fds));
    if (!fds)
        return -ENOMEM;
    size_t count = install_files(out, c, cloexec, fds);
    if (!count)
        return 0;
    return put_message(out, SCM_RIGHTS, fds, count * sizeof(*fds));
}

int control_write(struct task *task, guest_addr control, uint64_t size, struct socket_control *c, bool cloexec,
                  uint64_t *ret_size, int *flags)
{
    struct control_out out = {.task = task, .at = control, .room = size, .flags = flags};
    int r = 0;
    if (c->has_creds)
        r = put_message(&out, SCM_CREDENTIALS, &c->creds, sizeof(c->creds));
    if (r == 0 && c->file_count)
        r = put_files(&out, c, cloexec);
    socket_control_fini(c);
    *ret_size = out.written;
    return r;
}
