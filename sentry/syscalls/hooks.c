/* SPDX-License-Identifier: Apache-2.0 */
/* What lower layers need to know of tasks: who is writing to a broken pipe, who sends a message. */
#include "sentry/syscalls/hooks.h"
#include "sentry/syscalls/syscalls.h"

#include "sentry/fs/anon/epoll.h"
#include "sentry/fs/anon/socket.h"
#include "sentry/fs/pipe/pipe.h"
#include "sentry/task/task.h"
#include <signal.h>

/* Boot and other fibers of the sentry's own have another entry. */
struct task *calling_task(void)
{
    struct fiber *f = fiber_current();
    return f && f->entry == task_event_entry ? container_of(f, struct task, fiber) : NULL;
}

static void send_sigpipe(void)
{
    struct task *task = calling_task();
    if (!task)
        return;
    struct linux_siginfo info;
    signal_info_kernel(&info, SIGPIPE, SI_USER);
    info.rt.pid = task->group->tgid;
    info.rt.uid = task->creds->uid;
    (void)signal_send_task(task, &info);
}

static void fill_sender(struct linux_ucred *ret)
{
    struct task *task = calling_task();
    *ret = (struct linux_ucred){0};
    if (task)
        *ret = (struct linux_ucred){
            .pid = task->group->tgid, .uid = task->creds->uid, .gid = task->creds->gid};
}

static const struct creds *calling_creds(void)
{
    struct task *task = calling_task();
    return task ? task->creds : NULL;
}

void syscalls_init(void)
{
    static const struct vfs_hooks hooks = {.current_creds = calling_creds};
    vfs_set_hooks(&hooks);
    g_sandbox.dispatch = syscall_dispatch;
    pipe_init();
    epoll_init();
    g_broken_pipe_hook = send_sigpipe;
    g_sender_creds_hook = fill_sender;
}
