/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Builds the sandbox inside the sentry: mounts, standard streams, the first process. Runs on the boot
 * fiber. The configuration comes from the CLI (trusted); files that it names are the guest's.
 */
#define LOG_MODULE "boot"
#include "sentry/boot/boot.h"
#include "base/host.h"
#include "base/log.h"
#include "sentry/fs/dev/dev.h"
#include "sentry/fs/gofer/client.h"
#include "sentry/fs/gofer/gofer_fs.h"
#include "sentry/fs/host/host_file.h"
#include "sentry/fs/overlay/overlay.h"
#include "sentry/fs/proc/proc.h"
#include "sentry/fs/pty/pty.h"
#include "sentry/fs/sys/sys.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/syscalls/hooks.h"
#include "sentry/task/host_facts.h"
#include "sentry/task/task.h"
#include "sentry/vfs/vfs.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>

#define EXIT_FAILED 125
#define EXIT_CANNOT_EXECUTE 126
#define EXIT_NOT_FOUND 127
#define PASSWD_MAX KIB(256)

static struct thread_group *g_first;

struct thread_group *boot_first_group(void)
{
    return g_first;
}

void boot_init(const struct control_config *config)
{
    static const struct vfs_hooks hooks = {.open_device = chardev_open};
    vfs_set_hooks(&hooks);
    syscalls_init();
    dev_init();
    pty_init();
    g_sandbox.cpu_count = config->limits.cpu_count > 0 ? config->limits.cpu_count : 1;
    g_sandbox.memory_limit = config->limits.memory_bytes;
    g_sandbox.pids_limit = config->limits.pids;
    g_sandbox.strace = config->strace;
    size_t len = strnlen(config->hostname, sizeof g_sandbox.hostname - 1);
    memcpy(g_sandbox.hostname, config->hostname, len);
    memcpy(g_sandbox.domainname, "(none)", 7);
    g_sandbox.boot_ns = host_monotonic_ns();
    uint64_t memory = config->limits.memory_bytes != 0 ? config->limits.memory_bytes
                                                       : host_facts()->memory_total;
    tmpfs_set_limit(memory / 2);
}

/* ---- mounts ------------------------------------------------------------------------------------- */

struct builder {
    struct walk_context ctx;
    struct creds *root_creds; /* the sandbox's own: all capabilities */
    struct gofer_client *client;
};

/* Makes the directory (or, with `is_file`, the empty file) `path` and what leads to it. */
static int make_mountpoint(struct builder *b, const char *path, bool is_file)
{
    char *copy = strdup(path);
    if (copy == NULL)
        return -ENOMEM;
    int r = 0;
    for (char *slash = strchr(copy + 1, '/'); r == 0; slash = strchr(slash + 1, '/')) {
        if (slash == NULL)
            break;
        *slash = '\0';
        r = vfs_mkdir(&b->ctx, &b->ctx.root, copy, 0755);
        if (r == -EEXIST)
            r = 0;
        *slash = '/';
    }
    if (r == 0) {
        r = is_file ? vfs_mknod(&b->ctx, &b->ctx.root, copy, S_IFREG | 0644, 0)
                    : vfs_mkdir(&b->ctx, &b->ctx.root, copy, 0755);
        if (r == -EEXIST)
            r = 0;
    }
    free(copy);
    return r;
}

/* Mounts and gives up the references to sb and root. */
static int mount_at(struct builder *b, const char *path, struct superblock *sb, struct inode *root,
                    uint32_t flags, const char *source)
{
    struct path at = {0};
    bool is_file = !S_ISDIR(root->mode);
    int r = vfs_walk(&b->ctx, &b->ctx.root, path, WALK_FOLLOW, &at);
    if (r == -ENOENT) {
        r = make_mountpoint(b, path, is_file);
        if (r == 0)
            r = vfs_walk(&b->ctx, &b->ctx.root, path, WALK_FOLLOW, &at);
    }
    if (r == 0 && S_ISDIR(at.dentry->inode->mode) == is_file)
        r = is_file ? -EISDIR : -ENOTDIR;
    if (r == 0)
        r = vfs_mount(g_sandbox.ns, &at, sb, root, flags, source);
    path_put(&at);
    inode_put(root);
    superblock_put(sb);
    return r;
}

static int open_attach(struct builder *b, const struct control_mount *m, struct superblock **ret_sb,
                       struct inode **ret_root)
{
    struct superblock *lower_sb;
    struct inode *lower_root;
    int r = gofer_fs_new(b->client, m->attach, m->shared, &lower_sb, &lower_root);
    if (r != 0)
        return r;
    if (m->kind != CONTROL_MOUNT_OVERLAY || !S_ISDIR(lower_root->mode)) {
        *ret_sb = lower_sb;
        *ret_root = lower_root;
        return 0;
    }
    r = overlay_new(lower_root, ret_sb, ret_root);
    inode_put(lower_root);
    superblock_put(lower_sb);
    return r;
}

static int mount_tmpfs(struct builder *b, const char *path, uint32_t mode, uint64_t max_bytes,
                       uint32_t flags)
{
    struct superblock *sb;
    struct inode *root;
    int r = tmpfs_new(mode, 0, 0, max_bytes, &sb, &root);
    return r == 0 ? mount_at(b, path, sb, root, flags, "tmpfs") : r;
}

typedef int (*fs_maker)(struct superblock **ret_sb, struct inode **ret_root);

static int mount_made(struct builder *b, const char *path, fs_maker make, uint32_t flags,
                      const char *source)
{
    struct superblock *sb;
    struct inode *root;
    int r = make(&sb, &root);
    return r == 0 ? mount_at(b, path, sb, root, flags, source) : r;
}

static bool is_absent(struct builder *b, const char *path)
{
    struct path p = {0};
    bool absent = vfs_walk(&b->ctx, &b->ctx.root, path, WALK_FOLLOW, &p) != 0;
    path_put(&p);
    return absent;
}

static int mount_system(struct builder *b)
{
    uint64_t memory = g_sandbox.memory_limit != 0 ? g_sandbox.memory_limit : host_facts()->memory_total;
    int r = mount_made(b, "/proc", proc_new, MS_NOSUID | MS_NODEV | MS_NOEXEC, "proc");
    if (r == 0)
        r = mount_made(b, "/sys", sys_new, MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, "sysfs");
    if (r == 0)
        r = mount_made(b, "/sys/fs/cgroup", sys_cgroup_new,
                       MS_NOSUID | MS_NODEV | MS_NOEXEC | MS_RDONLY, "cgroup");
    if (r == 0)
        r = mount_made(b, "/dev", dev_new, MS_NOSUID, "devtmpfs");
    if (r == 0)
        r = mount_made(b, "/dev/pts", devpts_new, MS_NOSUID | MS_NOEXEC, "devpts");
    if (r == 0)
        r = mount_tmpfs(b, "/dev/shm", 01777, memory / 2, MS_NOSUID | MS_NODEV);
    /* The root's own /tmp stays: a rename out of it must not meet EXDEV. The host's is an empty directory here,
     * because the gofer never shows what is in it. */
    if (r == 0 && is_absent(b, "/tmp"))
        r = mount_tmpfs(b, "/tmp", 01777, 0, MS_NODEV);
    if (r == 0 && is_absent(b, "/run"))
        r = mount_tmpfs(b, "/run", 0755, 0, MS_NOSUID | MS_NODEV);
    return r;
}

static uint32_t mount_flags(const struct control_mount *m)
{
    return MS_NOSUID | MS_NODEV | (m->read_only ? MS_RDONLY : 0);
}

static int build_mounts(struct builder *b, const struct control_config *config,
                        const char **ret_where)
{
    struct superblock *sb;
    struct inode *root;
    *ret_where = "/";
    int r = open_attach(b, &config->mounts[0], &sb, &root);
    if (r != 0)
        return r;
    uint32_t flags = config->mounts[0].kind == CONTROL_MOUNT_BIND ? mount_flags(&config->mounts[0])
                                                                   : MS_NODEV;
    g_sandbox.ns = mount_namespace_new(sb, root, flags, "overlay");
    inode_put(root);
    superblock_put(sb);
    if (g_sandbox.ns == NULL)
        return -ENOMEM;
    b->ctx = (struct walk_context){
        .ns = g_sandbox.ns,
        .creds = b->root_creds,
        .root = {g_sandbox.ns->root, g_sandbox.ns->root->root},
        .cwd = {g_sandbox.ns->root, g_sandbox.ns->root->root},
    };
    *ret_where = "/proc, /sys or /dev";
    r = mount_system(b);
    for (size_t i = 1; r == 0 && i < config->mount_count; i++) {
        const struct control_mount *m = &config->mounts[i];
        *ret_where = m->dst;
        r = open_attach(b, m, &sb, &root);
        if (r == 0)
            r = mount_at(b, m->dst, sb, root,
                         m->kind == CONTROL_MOUNT_BIND ? mount_flags(m) : MS_NODEV, m->dst);
    }
    return r;
}

/* ---- who and where ------------------------------------------------------------------------------ */

static char *read_small_file(struct builder *b, const char *path, size_t *ret_size)
{
    struct file *f;
    if (vfs_open(&b->ctx, &b->ctx.root, path, O_RDONLY, 0, 0, &f) != 0)
        return NULL;
    char *bytes = malloc(PASSWD_MAX);
    ssize_t n = bytes != NULL ? file_read_at(f, bytes, PASSWD_MAX, 0) : -1;
    file_put(f);
    if (n < 0) {
        free(bytes);
        return NULL;
    }
    *ret_size = (size_t)n;
    return bytes;
}

struct identity {
    uint32_t uid, gid;
    char home[256];
};

static int find_identity(struct builder *b, const struct control_config *config, struct identity *ret)
{
    size_t size = 0;
    char *passwd = read_small_file(b, "/etc/passwd", &size);
    struct control_user user;
    const char *name = config->user[0] != '\0' ? config->user : NULL;
    int r = passwd != NULL ? control_find_user(passwd, size, name, config->uid, &user) : -ENOENT;
    free(passwd);
    *ret = (struct identity){.uid = config->uid, .gid = config->gid, .home = "/"};
    if (r == 0)
        memcpy(ret->home, user.home, sizeof ret->home);
    if (r == 0 && name != NULL) {
        ret->uid = user.uid;
        ret->gid = user.gid;
    }
    return name != NULL ? r : 0;
}

/* The configuration's environment, with HOME where it has none. */
static int build_environment(const struct control_config *config, const char *home,
                             struct exec_strings *ret)
{
    bool has_home = false;
    ret->strings = calloc(config->envc + 2, sizeof *ret->strings);
    if (ret->strings == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < config->envc; i++) {
        ret->strings[ret->count++] = config->envp[i]; /* borrowed: lives as long as the process */
        has_home |= strncmp(config->envp[i], "HOME=", 5) == 0;
    }
    if (!has_home) {
        char *entry;
        if (asprintf(&entry, "HOME=%s", home) < 0)
            return -ENOMEM;
        ret->strings[ret->count++] = entry;
    }
    return 0;
}

/* ---- standard streams --------------------------------------------------------------------------- */

static int open_stdio(const struct control_config *config, struct control_fds *fds,
                      const struct creds *creds, struct fd_table *table)
{
    for (int fd = 0; fd < 3; fd++) {
        struct file *f = NULL;
        int r;
        if (config->tty_mask & (1u << fd))
            r = console_open(creds, O_RDWR, &f);
        else if (fds->stdio[fd] >= 0)
            r = host_file_new(take_fd(&fds->stdio[fd]), creds, &f);
        else
            continue; /* closed at the caller's: closed here */
        if (r == 0)
            r = fd_table_install_at(table, f, fd, 1024, false);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- all of it ---------------------------------------------------------------------------------- */

static int fail(char *text, int status, const char *what, int error)
{
    const char *cut = strlen(what) > 200 ? "..." : "";
    (void)snprintf(text, CONTROL_TEXT_MAX + 1, "%.200s%s: %s", what, cut, strerrordesc_np(-error));
    return status;
}

/* What is the command's fault, and what is the sandbox's: no memory, descriptors or processes. */
static int exec_failure_status(int error)
{
    switch (-error) {
    case ENOENT:
        return EXIT_NOT_FOUND;
    case EAGAIN:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case ENOSPC:
    case EIO:
    case ESRCH:
        return EXIT_FAILED;
    default:
        return EXIT_CANNOT_EXECUTE;
    }
}

static int start_command(struct builder *b, const struct control_config *config,
                         struct control_fds *fds, const struct identity *id, char *text)
{
    struct exec_strings argv = {.strings = config->argv, .count = config->argc}, envp = {0};
    int r = build_environment(config, id->home, &envp);
    struct path cwd = {0};
    if (r == 0)
        r = vfs_walk(&b->ctx, &b->ctx.root, config->cwd, WALK_FOLLOW | WALK_DIRECTORY, &cwd);
    if (r != 0 && config->cwd_optional)
        r = vfs_walk(&b->ctx, &b->ctx.root, "/", WALK_DIRECTORY, &cwd);
    if (r != 0)
        return fail(text, EXIT_FAILED, config->cwd, r);
    struct creds *creds = creds_new(id->uid, id->gid, &id->gid, 1);
    struct fd_table *table = fd_table_new();
    if (creds == NULL || table == NULL)
        return fail(text, EXIT_FAILED, "standard streams", -ENOMEM);
    r = open_stdio(config, fds, creds, table);
    creds_put(creds);
    if (r != 0)
        return fail(text, EXIT_FAILED, "standard streams", r);
    const struct task_first first = {
        .path_or_name = config->argv[0],
        .argv = &argv,
        .envp = &envp,
        .fds = table,
        .cwd = &cwd,
        .uid = id->uid,
        .gid = id->gid,
        .own_session = true,
    };
    struct thread_group *group;
    r = task_start_first(&first, &group);
    path_put(&cwd);
    free(envp.strings);
    if (r != 0)
        return fail(text, exec_failure_status(r), config->argv[0], r);
    g_first = group;
    if (config->tty_mask != 0)
        console_make_controlling(group);
    return 0;
}

int boot_run(const struct control_config *config, struct control_fds *fds, struct gofer_client *client,
             char text[CONTROL_TEXT_MAX + 1])
{
    struct builder b = {.client = client, .root_creds = creds_new(0, 0, NULL, 0)};
    const char *where = "/";
    if (b.root_creds == NULL)
        return fail(text, EXIT_FAILED, "start", -ENOMEM);
    b.root_creds->cap_effective = b.root_creds->cap_permitted = UINT64_MAX;
    int r = build_mounts(&b, config, &where);
    if (r != 0)
        return fail(text, EXIT_FAILED, where, r);
    struct identity id;
    r = find_identity(&b, config, &id);
    if (r != 0)
        return fail(text, EXIT_FAILED, config->user, r);
    if (fds->tty >= 0) {
        const struct control_winsize *w = &config->winsize;
        r = console_new(take_fd(&fds->tty), id.uid, w->rows, w->cols, w->xpixel, w->ypixel);
        if (r != 0)
            return fail(text, EXIT_FAILED, "terminal", r);
    }
    return start_command(&b, config, fds, &id, text);
}
