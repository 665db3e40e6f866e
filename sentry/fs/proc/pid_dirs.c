/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The directories and links below /proc/PID: fd, fdinfo, task, ns; exe, cwd, root. Any fiber.
 * Following a link gives the caller another process's file, so each asks ptrace(2)'s rule first.
 */
#include "sentry/fs/proc/proc_internal.h"
#include "sentry/task/pidfd.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* For links: the one who follows is the calling task. */
static int get_for_caller(const struct synth_key *key, struct subject *ret)
{
    struct subject s;
    int r = subject_get(key, &s);
    if (r != 0)
        return r == -ESRCH ? -ENOENT : r;
    const struct task *self = task_current();
    if (self != NULL)
        r = subject_may_read(&s, self->creds);
    if (r != 0) {
        subject_put(&s);
        return r;
    }
    *ret = s;
    return 0;
}

static int put_path(const struct path *p, struct text *out)
{
    AUTO_PATH root;
    char *text = NULL;
    proc_reader_root(&root);
    int r = vfs_path_text(p, root.dentry != NULL ? &root : NULL, &text);
    if (r == 0)
        text_put(out, text);
    free(text);
    return r;
}

/* `follow` gave a path: as text. */
static int target_of(int r, struct path *p, struct text *out)
{
    if (r == 0)
        r = put_path(p, out);
    path_put(p);
    return r;
}

/* ---- exe, cwd, root
 * ------------------------------------------------------------------------------ */

int proc_follow_exe(const struct synth_key *key, struct path *ret)
{
    AUTO_SUBJECT s = {0};
    int r = get_for_caller(key, &s);
    if (r != 0)
        return r;
    struct mm *mm = subject_mm(&s); /* zombies have none */
    AUTO_FILE f = mm != NULL ? group_get_exe(s.group) : NULL;
    mm_put(mm);
    if (f == NULL || f->path.dentry == NULL)
        return -ENOENT;
    *ret = f->path;
    path_get(ret);
    return 0;
}

static int follow_fs(const struct synth_key *key, bool is_root, struct path *ret)
{
    AUTO_SUBJECT s = {0};
    int r = get_for_caller(key, &s);
    if (r != 0)
        return r;
    struct fs_context *fs = subject_fs(&s);
    if (fs == NULL)
        return -ENOENT;
    lock_acquire(&fs->lock);
    *ret = is_root ? fs->root : fs->cwd;
    path_get(ret);
    lock_release(&fs->lock);
    fs_context_put(fs);
    return 0;
}

int proc_follow_cwd(const struct synth_key *key, struct path *ret)
{
    return follow_fs(key, false, ret);
}

int proc_follow_root(const struct synth_key *key, struct path *ret)
{
    return follow_fs(key, true, ret);
}

int proc_target_exe(const struct synth_key *key, struct text *out)
{
    struct path p = {0};
    int r = proc_follow_exe(key, &p);
    return target_of(r, &p, out);
}

int proc_target_cwd(const struct synth_key *key, struct text *out)
{
    struct path p = {0};
    int r = proc_follow_cwd(key, &p);
    return target_of(r, &p, out);
}

int proc_target_root(const struct synth_key *key, struct text *out)
{
    struct path p = {0};
    int r = proc_follow_root(key, &p);
    return target_of(r, &p, out);
}

/* ---- fd and fdinfo
 * ------------------------------------------------------------------------------- */

static struct file *get_file(const struct synth_key *key, bool *ret_cloexec)
{
    AUTO_SUBJECT s = {0};
    if (subject_get(key, &s) != 0)
        return NULL;
    struct fd_table *fds = subject_fds(&s);
    if (fds == NULL)
        return NULL;
    struct file *f = fd_table_get_any(fds, key->number);
    if (ret_cloexec != NULL)
        *ret_cloexec = fd_table_get_cloexec(fds, key->number) == 1;
    fd_table_put(fds);
    return f;
}

static int follow_fd(const struct synth_key *key, struct path *ret)
{
    AUTO_SUBJECT s = {0};
    int r = get_for_caller(key, &s);
    if (r != 0)
        return r;
    AUTO_FILE f = get_file(key, NULL);
    if (f == NULL || f->path.dentry == NULL)
        return -ENOENT;
    *ret = f->path;
    path_get(ret);
    return 0;
}

static int target_fd(const struct synth_key *key, struct text *out)
{
    struct path p = {0};
    int r = follow_fd(key, &p);
    return target_of(r, &p, out);
}

static int show_fdinfo(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    bool cloexec = false;
    int r = proc_check_ptrace(key, reader);
    if (r != 0)
        return r;
    AUTO_FILE f = get_file(key, &cloexec);
    if (f == NULL)
        return -ENOENT;
    uint32_t flags = atomic_load_explicit(&f->flags, memory_order_relaxed);
    text_printf(out, "pos:\t%lld\nflags:\t0%o\nmnt_id:\t%d\nino:\t%llu\n", (long long)f->pos,
                flags | (cloexec ? (unsigned)O_CLOEXEC : 0u),
                f->path.mount != NULL ? f->path.mount->id : 0, (unsigned long long)f->inode->ino);
    struct thread_group *g = pidfd_group(f);
    if (g != NULL) { /* glibc's pidfd_getpid(3) reads this */
        tasks_lock();
        int pid = g->state == GROUP_DEAD ? -1 : g->tgid;
        tasks_unlock();
        text_printf(out, "Pid:\t%d\nNSpid:\t%d\n", pid, pid);
        group_put(g);
    }
    return 0;
}

const struct synth_row proc_fd_row = {
    .name = "", .mode = S_IFLNK | 0700, .target = target_fd, .follow = follow_fd};
static const struct synth_row fdinfo_row = {
    .name = "", .mode = S_IFREG | 0400, .show = show_fdinfo};

/* The link's mode tells how the file is open. -ENOENT once the descriptor is closed. */
int proc_fd_refresh(struct inode *inode, const struct synth_key *key)
{
    AUTO_FILE f = get_file(key, NULL);
    if (f == NULL)
        return -ENOENT;
    uint32_t flags = atomic_load_explicit(&f->flags, memory_order_relaxed), mode = S_IFLNK;
    uint32_t access = flags & O_ACCMODE;
    if (!(flags & O_PATH))
        mode |= access == O_RDONLY ? 0500 : access == O_WRONLY ? 0300 : 0700;
    atomic_store_explicit(&inode->mode, mode, memory_order_relaxed);
    return 0;
}

static int lookup_fd(const struct synth_key *key, const char *name, const struct synth_row *row,
                     const struct synth_row **ret_row, struct synth_key *ret_key)
{
    int fd = synth_parse_number(name);
    if (fd < 0)
        return -ENOENT;
    ret_key->number = fd;
    AUTO_FILE f = get_file(ret_key, NULL);
    if (f == NULL)
        return -ENOENT;
    (void)key;
    *ret_row = row;
    return 0;
}

static int fd_lookup(const struct synth_key *key, const char *name,
                     const struct synth_row **ret_row, struct synth_key *ret_key)
{
    return lookup_fd(key, name, &proc_fd_row, ret_row, ret_key);
}

static int fdinfo_lookup(const struct synth_key *key, const char *name,
                         const struct synth_row **ret_row, struct synth_key *ret_key)
{
    return lookup_fd(key, name, &fdinfo_row, ret_row, ret_key);
}

static bool next_fd(const struct synth_key *key, int64_t from, int64_t *ret_at, char name[32])
{
    AUTO_SUBJECT s = {0};
    if (from > INT32_MAX || subject_get(key, &s) != 0)
        return false;
    struct fd_table *fds = subject_fds(&s);
    int fd = fds != NULL ? fd_table_next(fds, (int)from) : -1;
    if (fds != NULL)
        fd_table_put(fds);
    if (fd < 0)
        return false;
    *ret_at = fd;
    snprintf(name, 32, "%d", fd);
    return true;
}

static bool fd_next(const struct synth_key *key, int64_t from, int64_t *ret_at, char name[32],
                    uint8_t *ret_type)
{
    *ret_type = S_IFLNK >> 12;
    return next_fd(key, from, ret_at, name);
}

static bool fdinfo_next(const struct synth_key *key, int64_t from, int64_t *ret_at, char name[32],
                        uint8_t *ret_type)
{
    *ret_type = S_IFREG >> 12;
    return next_fd(key, from, ret_at, name);
}

const struct synth_dynamic proc_fd_dynamic = {.lookup = fd_lookup, .next = fd_next};
const struct synth_dynamic proc_fdinfo_dynamic = {.lookup = fdinfo_lookup, .next = fdinfo_next};

/* ---- task
 * ---------------------------------------------------------------------------------------- */

static int task_lookup(const struct synth_key *key, const char *name,
                       const struct synth_row **ret_row, struct synth_key *ret_key)
{
    AUTO_SUBJECT s = {0};
    int tid = synth_parse_number(name);
    if (tid < 0 || subject_get(key, &s) != 0)
        return -ENOENT;
    struct task *t = task_find(tid);
    int r = t != NULL && t->group == s.group ? 0 : -ENOENT;
    if (r == 0) {
        *ret_key = (struct synth_key){.id = tid, .is_thread = true, .start_ns = t->start_ns};
        *ret_row = &proc_task_row;
    }
    task_put(t);
    return r;
}

static bool task_next(const struct synth_key *key, int64_t from, int64_t *ret_at, char name[32],
                      uint8_t *ret_type)
{
    AUTO_SUBJECT s = {0};
    if (from > INT32_MAX || subject_get(key, &s) != 0)
        return false;
    struct task *t = group_next_task(s.group, (int)from);
    if (t == NULL)
        return false;
    *ret_at = t->tid;
    *ret_type = S_IFDIR >> 12;
    snprintf(name, 32, "%d", t->tid);
    task_put(t);
    return true;
}

const struct synth_dynamic proc_task_dynamic = {.lookup = task_lookup, .next = task_next};

/* Some programs count their threads by the links of /proc/self/task. */
uint64_t proc_link_count(const struct synth_row *row, const struct synth_key *key)
{
    if (row->dynamic != &proc_task_dynamic)
        return 0;
    AUTO_SUBJECT s = {0};
    if (subject_get(key, &s) != 0)
        return 0;
    tasks_lock();
    uint64_t links = 2 + (uint64_t)s.group->live_count;
    tasks_unlock();
    return links;
}

/* ---- ns
 * ------------------------------------------------------------------------------------------ */

/* One namespace of each kind, with the number of Linux's initial one. */
enum ns_kind { NS_CGROUP, NS_IPC, NS_MNT, NS_NET, NS_PID, NS_TIME, NS_USER, NS_UTS, NS_COUNT };
static const struct {
    const char *name;
    uint32_t ino;
} namespaces[] = {{"cgroup", 4026531835}, {"ipc", 4026531839}, {"mnt", 4026531841},
                  {"net", 4026531840},    {"pid", 4026531836}, {"time", 4026531834},
                  {"user", 4026531837},   {"uts", 4026531838}};
static_assert(ARRAY_COUNT(namespaces) == NS_COUNT, "a name for each kind");

/* The object that stands for a namespace: made once, never given up. */
static struct file *ns_file(enum ns_kind kind)
{
    static struct lock lock = LOCK_INITIALIZER;
    static struct file *files[NS_COUNT];
    static const struct inode_ops inode_ops;
    static const struct file_ops file_ops;
    lock_acquire(&lock);
    struct file *f = files[kind];
    lock_release(&lock);
    const struct task *self = task_current();
    if (f != NULL || self == NULL)
        return f;
    struct inode *inode =
        inode_new(vfs_anon_superblock(), &inode_ops, namespaces[kind].ino, S_IFREG | 0444, 0, 0);
    char name[32];
    snprintf(name, sizeof name, "%s:[%u]", namespaces[kind].name, namespaces[kind].ino);
    if (inode == NULL)
        return NULL;
    struct file *fresh = NULL;
    int r = anon_file_new(name, inode, inode->mode, self->creds, O_RDONLY, &file_ops, NULL, &fresh);
    inode_put(inode);
    if (r != 0)
        return NULL;
    lock_acquire(&lock);
    f = files[kind];
    if (f == NULL) {
        f = files[kind] = fresh;
        fresh = NULL;
    }
    lock_release(&lock);
    file_put(fresh);
    return f;
}

static int follow_ns(const struct synth_key *key, enum ns_kind kind, struct path *ret)
{
    AUTO_SUBJECT s = {0};
    int r = get_for_caller(key, &s);
    if (r != 0)
        return r;
    const struct file *f = ns_file(kind);
    if (f == NULL)
        return -ENOMEM;
    *ret = f->path;
    path_get(ret);
    return 0;
}

static int target_ns(const struct synth_key *key, enum ns_kind kind, struct text *out)
{
    AUTO_SUBJECT s = {0};
    int r = get_for_caller(key, &s);
    if (r == 0)
        text_printf(out, "%s:[%u]", namespaces[kind].name, namespaces[kind].ino);
    return r;
}

#define NS_LINK(kind, suffix)                                                                      \
    static int follow_ns_##suffix(const struct synth_key *key, struct path *ret)                   \
    {                                                                                              \
        return follow_ns(key, kind, ret);                                                          \
    }                                                                                              \
    static int target_ns_##suffix(const struct synth_key *key, struct text *out)                   \
    {                                                                                              \
        return target_ns(key, kind, out);                                                          \
    }
NS_LINK(NS_CGROUP, cgroup)
NS_LINK(NS_IPC, ipc)
NS_LINK(NS_MNT, mnt)
NS_LINK(NS_NET, net)
NS_LINK(NS_PID, pid)
NS_LINK(NS_TIME, time)
NS_LINK(NS_USER, user)
NS_LINK(NS_UTS, uts)

#define NS_ROW(label, suffix)                                                                      \
    {                                                                                              \
        .name = label, .mode = S_IFLNK | 0777, .target = target_ns_##suffix,                       \
        .follow = follow_ns_##suffix                                                               \
    }
static const struct synth_row ns_rows[] = {
    NS_ROW("cgroup", cgroup), NS_ROW("ipc", ipc),
    NS_ROW("mnt", mnt),       NS_ROW("net", net),
    NS_ROW("pid", pid),       NS_ROW("pid_for_children", pid),
    NS_ROW("time", time),     NS_ROW("time_for_children", time),
    NS_ROW("user", user),     NS_ROW("uts", uts),
};
const struct synth_rows proc_ns_rows = SYNTH_ROWS(ns_rows);
