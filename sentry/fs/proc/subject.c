/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whom a file below /proc/PID is about, and who may look. Inodes hold no references to processes:
 * they keep the id and the time of birth, and look the process up at each use. Any fiber.
 */
#include "sentry/fs/proc/proc_internal.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

int subject_get(const struct synth_key *key, struct subject *ret)
{
    struct subject s = {0};
    tasks_lock();
    if (key->is_thread) {
        s.task = task_find_locked(key->id);
        if (s.task != NULL && s.task->start_ns == key->start_ns)
            s.group = s.task->group;
    } else {
        s.group = group_find_locked(key->id);
        if (s.group != NULL && s.group->start_ns != key->start_ns)
            s.group = NULL;
        if (s.group != NULL)
            s.task = s.group->leader;
    }
    if (s.group != NULL) {
        group_get(s.group);
        if (s.task != NULL)
            task_get(s.task);
    }
    tasks_unlock();
    if (s.group == NULL)
        return -ESRCH;
    *ret = s;
    return 0;
}

void subject_put(struct subject *s)
{
    task_put(s->task);
    group_put(s->group);
    *s = (struct subject){0};
}

struct mm *subject_mm(const struct subject *s)
{
    return s->task != NULL ? task_get_mm(s->task) : NULL;
}

struct fd_table *subject_fds(const struct subject *s)
{
    return s->task != NULL ? task_get_fds(s->task) : NULL;
}

struct fs_context *subject_fs(const struct subject *s)
{
    if (s->task == NULL)
        return NULL;
    lock_acquire(&s->task->state_lock);
    struct fs_context *fs = s->task->fs;
    if (fs != NULL)
        atomic_fetch_add(&fs->refs, 1);
    lock_release(&s->task->state_lock);
    return fs;
}

/* What pid 1, which isn't a guest, looks like: root. */
static struct creds *init_creds(void)
{
    static _Atomic(struct creds *) kept;
    struct creds *c = atomic_load(&kept);
    if (c == NULL) {
        struct creds *fresh = creds_new(0, 0, NULL, 0);
        if (fresh == NULL || atomic_compare_exchange_strong(&kept, &c, fresh))
            c = fresh;
        else
            creds_put(fresh);
    }
    return c != NULL ? creds_get(c) : NULL;
}

struct creds *subject_creds(const struct subject *s)
{
    struct creds *c = s->task != NULL ? task_get_creds(s->task) : NULL;
    return c != NULL ? c : init_creds();
}

void subject_comm(const struct subject *s, char comm[TASK_COMM_SIZE])
{
    static const char init_comm[TASK_COMM_SIZE] = "init";
    if (s->task == NULL) {
        memcpy(comm, init_comm, TASK_COMM_SIZE);
        return;
    }
    lock_acquire(&s->task->state_lock);
    memcpy(comm, s->task->comm, TASK_COMM_SIZE);
    lock_release(&s->task->state_lock);
    comm[TASK_COMM_SIZE - 1] = '\0';
}

char subject_state(const struct subject *s)
{
    if (s->task == NULL)
        return 'S';
    char state = atomic_load_explicit(&s->task->state, memory_order_relaxed);
    return state == 'R' && fiber_is_parked(&s->task->fiber) ? 'S' : state;
}

/* ---- who may look
 * -------------------------------------------------------------------------------- */

int subject_may_read(const struct subject *s, const struct creds *reader)
{
    const struct task *self = task_current();
    if (self != NULL && self->group == s->group)
        return 0;
    if (creds_capable(reader, CAP_SYS_PTRACE_BIT))
        return s->task != NULL ? 0 : -EACCES;
    struct creds *c = subject_creds(s);
    if (c == NULL)
        return -ENOMEM;
    bool same = reader->fsuid == c->euid && reader->fsuid == c->suid && reader->fsuid == c->uid &&
                reader->fsgid == c->egid && reader->fsgid == c->sgid && reader->fsgid == c->gid;
    bool covers = (c->cap_permitted & ~reader->cap_permitted) == 0;
    creds_put(c);
    return same && covers && s->group->dumpable ? 0 : -EACCES;
}

int proc_check_ptrace(const struct synth_key *key, const struct creds *reader)
{
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    return r == 0 ? subject_may_read(&s, reader) : r;
}

int subject_open_mm(const struct synth_key *key, const struct creds *reader, struct mm **ret)
{
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    /* Memory first and rights then: execve(2) publishes both at once, and so the rights that are looked at
     * are never older than the memory that is handed out. */
    struct mm *mm = subject_mm(&s);
    r = subject_may_read(&s, reader);
    if (r == 0)
        *ret = mm;
    else if (mm != NULL)
        mm_put(mm);
    return r;
}

/* Files of a process are its effective user's, or root's if it isn't dumpable; its directories that
 * everybody may list stay its user's. */
int proc_refresh(struct inode *inode, const struct synth_row *row, const struct synth_key *key)
{
    if (key->id == 0)
        return 0;
    AUTO_SUBJECT s = {0};
    if (subject_get(key, &s) != 0)
        return -ENOENT;
    struct creds *c = subject_creds(&s);
    if (c == NULL)
        return -ENOMEM;
    bool is_open_dir = row->mode == (S_IFDIR | 0555);
    bool own = s.group->dumpable || is_open_dir;
    atomic_store_explicit(&inode->uid, own ? c->euid : 0, memory_order_relaxed);
    atomic_store_explicit(&inode->gid, own ? c->egid : 0, memory_order_relaxed);
    creds_put(c);
    return row == &proc_fd_row ? proc_fd_refresh(inode, key) : 0;
}

void proc_reader_root(struct path *ret)
{
    *ret = (struct path){0};
    struct task *self = task_current();
    if (self == NULL || self->fs == NULL)
        return;
    lock_acquire(&self->fs->lock);
    *ret = self->fs->root;
    path_get(ret);
    lock_release(&self->fs->lock);
}
