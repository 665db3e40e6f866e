/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a sandbox sees of the host is decided here: the root, its masks, the working directory, mounts.
 * Runs with the caller's own rights in the CLI; the paths are the caller's, and the gofer checks later
 * that it opened the same inodes.
 */
#include "runsc-compat/cli/plan.h"

#include "base/host.h"
#include "base/log.h"
#include "runsc-compat/cli/drills.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define DEFAULT_PATH "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
/* Beyond what distributions and containers hand out; the CLI's pid, unique while it lives, is added. */
#define UID_BASE 0x70000000u

/* Never part of the host's root as a guest sees it. */
static const char *const masked[] = {"/proc", "/sys", "/dev", "/run", "/tmp", "/root", "/home"};
/* The system's own: a working directory in here is shown as part of the root or not at all. */
static const char *const system_dirs[] = {"/bin",    "/boot",   "/dev",  "/etc",  "/lib", "/lib32",
                                          "/lib64",  "/libx32", "/proc", "/run",  "/sbin", "/sys",
                                          "/usr",    "/var"};

static void *out_of_memory(struct err *err)
{
    err_set(err, "out of memory");
    return NULL;
}

static char *copy(const char *s, struct err *err)
{
    char *result = strdup(s);
    return result ? result : out_of_memory(err);
}

/* Adds an attach point for `path`, resolved. Its index, or -1. */
static int add_attach(struct plan *plan, const char *option, const char *path, bool read_only,
                      struct err *err)
{
    struct gofer_config *g = &plan->gofer;
    struct stat st;
    AUTO_FREE char *real = realpath(path, NULL);
    if (!real || stat(real, &st) < 0)
        return err_errno(err, errno, "%s: %s", option, path);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode))
        return err_set(err, "%s: %s is neither a directory nor a regular file", option, path);
    if (access(real, S_ISDIR(st.st_mode) ? R_OK | X_OK : R_OK) < 0)
        return err_errno(err, errno, "%s: can't read %s", option, path);
    if (g->attach_count == GOFER_ATTACHES_MAX)
        return err_set(err, "%s: too many mounts", option);
    struct gofer_attach *a = &g->attaches[g->attach_count];
    *a = (struct gofer_attach){.dev = st.st_dev, .ino = st.st_ino, .read_only = read_only,
                               .is_file = S_ISREG(st.st_mode)};
    a->path = real;
    real = NULL;
    return (int)g->attach_count++;
}

static int add_mount(struct plan *plan, enum control_mount_kind kind, int attach, const char *dst,
                     bool read_only, bool shared, struct err *err)
{
    struct control_config *s = &plan->sentry;
    if (s->mount_count == CONTROL_MOUNTS_MAX)
        return err_set(err, "--mount: too many mounts");
    char *copied = copy(dst, err);
    if (!copied)
        return -1;
    s->mounts[s->mount_count++] = (struct control_mount){.kind = kind, .attach = (uint32_t)attach,
                                                         .read_only = read_only, .shared = shared,
                                                         .dst = copied};
    return 0;
}

static int add_mask(struct plan *plan, const char *path, struct err *err)
{
    char *copied = copy(path, err);
    if (!copied)
        return -1;
    plan->gofer.masks[plan->gofer.mask_count++] = copied;
    return 0;
}

/* The caller's home directory, where it's really the caller's: some accounts have a system directory. */
static bool own_home(char *out)
{
    const char *home = getenv("HOME");
    struct stat st;
    return home && home[0] == '/' && realpath(home, out) && stat(out, &st) == 0 && out[1] &&
           st.st_uid == getuid();
}

static int add_host_root(struct plan *plan, struct err *err)
{
    char home[PATH_MAX];
    int attach = add_attach(plan, "root", "/", true, err);
    if (attach < 0)
        return -1;
    plan->gofer.attaches[attach].public_only = true;
    plan->gofer.attaches[attach].one_mount = true;
    for (size_t i = 0; i < ARRAY_COUNT(masked); i++) {
        if (add_mask(plan, masked[i], err) < 0)
            return -1;
    }
    if (own_home(home) && add_mask(plan, home, err) < 0)
        return -1;
    return add_mount(plan, CONTROL_MOUNT_OVERLAY, attach, "/", false, false, err);
}

static bool is_empty_dir(const char *path)
{
    DIR *dir = opendir(path);
    bool empty = true;
    if (!dir)
        return false;
    for (struct dirent *entry; empty && (entry = readdir(dir));)
        empty = strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0;
    closedir(dir);
    return empty;
}

static int add_given_root(struct plan *plan, const char *root, struct err *err)
{
    int attach = add_attach(plan, "--root", root, true, err);
    if (attach < 0)
        return -1;
    if (plan->gofer.attaches[attach].is_file)
        return err_set(err, "--root: %s is not a directory", root);
    if (is_empty_dir(root))
        return err_set(err, "--root: %s is empty; give a directory with a root file system", root);
    return add_mount(plan, CONTROL_MOUNT_OVERLAY, attach, "/", false, false, err);
}

/* Whether the caller's working directory is shown by itself: neither the root nor a home directory as a
 * whole, nor a masked one, nor the system's (which the root shows as far as it's public). */
static bool shows_cwd(const char *cwd)
{
    char home[PATH_MAX];
    struct stat st;
    if (cwd[1] == '\0' || stat(cwd, &st) < 0 || (own_home(home) && strcmp(cwd, home) == 0))
        return false;
    for (size_t i = 0; i < ARRAY_COUNT(masked); i++) {
        if (strcmp(cwd, masked[i]) == 0)
            return false;
    }
    for (size_t i = 0; i < ARRAY_COUNT(system_dirs); i++) {
        if (path_is_beneath(cwd, system_dirs[i]))
            return strcmp(system_dirs[i], "/var") == 0 && getuid() != 0 && st.st_uid == getuid();
    }
    /* /home/NAME of somebody else, or one's own under another name of $HOME */
    if (path_is_beneath(cwd, "/home") && !strchr(cwd + strlen("/home/"), '/'))
        return false;
    return access(cwd, R_OK | X_OK) == 0;
}

static int add_cwd(struct plan *plan, const struct do_options *o, bool host_root, struct err *err)
{
    char clean[PATH_MAX];
    char cwd[PATH_MAX];
    bool shown = host_root && getcwd(cwd, sizeof(cwd)) && cwd[0] == '/' && shows_cwd(cwd);
    if (shown) {
        int attach = add_attach(plan, "working directory", cwd, true, err);
        if (attach < 0 || add_mount(plan, CONTROL_MOUNT_OVERLAY, attach, cwd, false, true, err) < 0)
            return -1;
    }
    if (o->cwd) {
        if (!path_clean(o->cwd, clean, sizeof(clean)))
            return err_set(err, "--cwd: \"%s\" must be an absolute path", o->cwd);
        plan->sentry.cwd = copy(clean, err);
    } else {
        /* A system directory is there without a mount of its own: optional, for it may not be public. */
        plan->sentry.cwd = copy(host_root && getcwd(cwd, sizeof(cwd)) && cwd[0] == '/' ? cwd : "/", err);
        plan->sentry.cwd_optional = true;
    }
    return plan->sentry.cwd ? 0 : -1;
}

static int add_mounts(struct plan *plan, const struct do_options *o, struct err *err)
{
    for (size_t i = 0; i < o->mount_count; i++) {
        const struct value_mount *m = &o->mounts[i];
        int attach = add_attach(plan, "--mount", m->src, !m->writable, err);
        if (attach < 0)
            return -1;
        if (m->writable && access(m->src, W_OK) < 0)
            return err_errno(err, errno, "--mount: can't write to %s; leave out :rw", m->src);
        if (add_mount(plan, CONTROL_MOUNT_BIND, attach, m->dst, !m->writable, true, err) < 0)
            return -1;
    }
    return 0;
}

static int add_var(struct control_config *s, const char *name, const char *value, struct err *err)
{
    char *entry;
    if (asprintf(&entry, "%s%s%s", name, value ? "=" : "", value ? value : "") < 0)
        return err_set(err, "out of memory");
    size_t len = strcspn(entry, "=");
    for (size_t i = 0; i < s->envc; i++) { /* the last one of a name wins */
        if (strncmp(s->envp[i], entry, len + 1) == 0) {
            free(s->envp[i]);
            s->envp[i] = entry;
            return 0;
        }
    }
    s->envp[s->envc++] = entry;
    return 0;
}

static int make_env(struct control_config *s, const struct do_options *o, struct err *err)
{
    const char *term = getenv("TERM");
    const char *lang = getenv("LANG");
    s->envp = calloc(o->env_count + 8, sizeof(*s->envp));
    if (!s->envp)
        return err_set(err, "out of memory");
    if (add_var(s, DEFAULT_PATH, NULL, err) < 0 || add_var(s, "TERM", term ? term : "dumb", err) < 0 ||
        add_var(s, "LANG", lang ? lang : "C.UTF-8", err) < 0)
        return -1;
    if (s->uid == 0 && !s->user[0] &&
        (add_var(s, "HOME", "/root", err) < 0 || add_var(s, "USER", "root", err) < 0))
        return -1;
    if (s->user[0] && add_var(s, "USER", s->user, err) < 0)
        return -1;
    for (size_t i = 0; i < o->env_count; i++) {
        if (add_var(s, o->envs[i], NULL, err) < 0)
            return -1;
    }
    return 0;
}

static int make_argv(struct control_config *s, char **command, struct err *err)
{
    size_t count = 0;
    while (command[count])
        count++;
    if (count == 0)
        return err_set(err, "do: the command is missing; write bailey do -- COMMAND");
    if (!command[0][0])
        return err_set(err, "do: the command is empty");
    if (count > CONTROL_ARGS_MAX)
        return err_set(err, "do: more than %u arguments", CONTROL_ARGS_MAX);
    s->argv = calloc(count + 1, sizeof(*s->argv));
    if (!s->argv)
        return err_set(err, "out of memory");
    for (; s->argc < count; s->argc++) {
        s->argv[s->argc] = copy(command[s->argc], err);
        if (!s->argv[s->argc])
            return -1;
    }
    return 0;
}

/* As many CPUs as the caller may use, and no more than the limit rounded up. */
static uint32_t count_cpus(uint32_t cpu_millis)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof(set), &set) == 0 ? CPU_COUNT(&set) : 1;
    uint32_t limit = (cpu_millis + 999) / 1000;
    return limit && limit < (uint32_t)count ? limit : (uint32_t)count;
}

static int make_sentry(struct plan *plan, const struct options *options, struct err *err)
{
    const struct do_options *o = &options->run;
    struct control_config *s = &plan->sentry;
    s->mode = CONTROL_MODE_RUN;
    s->strace = options->global.strace;
    s->uid = o->user.uid;
    s->gid = o->user.gid;
    s->limits = (struct control_limits){.memory_bytes = o->memory_bytes,
                                        .cpu_millis = o->cpu_millis,
                                        .cpu_count = count_cpus(o->cpu_millis),
                                        .pids = o->pids};
    s->drill = drill_wanted();
    s->platform = copy(options->global.platform, err);
    s->hostname = copy(o->hostname ? o->hostname : "bailey", err);
    s->user = copy(o->user.name, err);
    if (!s->platform || !s->hostname || !s->user)
        return -1;
    return make_argv(s, o->command, err) < 0 ? -1 : make_env(s, o, err);
}

static int make(struct plan *plan, const struct options *options, struct err *err)
{
    const struct do_options *o = &options->run;
    char root[PATH_MAX];
    plan->as_root = geteuid() == 0;
    plan->sentry_uid = UID_BASE + (uint32_t)getpid() * 2;
    plan->timeout_ns = o->timeout_ns;
    plan->gofer.as_root = plan->as_root;
    plan->gofer.own_uid = plan->sentry_uid + 1;
    plan->gofer.attaches = calloc(GOFER_ATTACHES_MAX, sizeof(*plan->gofer.attaches));
    plan->gofer.masks = calloc(GOFER_MASKS_MAX, sizeof(*plan->gofer.masks));
    plan->sentry.mounts = calloc(CONTROL_MOUNTS_MAX, sizeof(*plan->sentry.mounts));
    if (!plan->gofer.attaches || !plan->gofer.masks || !plan->sentry.mounts)
        return err_set(err, "out of memory");
    plan->sentry.log_level = options->global.debug ? LOG_LEVEL_DBG
                             : options->global.strace ? LOG_LEVEL_INFO : LOG_LEVEL_WARN;
    plan->sentry.log_format = options->global.log_json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT;
    plan->gofer.log_level = plan->sentry.log_level;
    plan->gofer.log_format = plan->sentry.log_format;
    if (make_sentry(plan, options, err) < 0)
        return -1;

    bool host_root = !o->root || (realpath(o->root, root) && strcmp(root, "/") == 0);
    if ((host_root ? add_host_root(plan, err) : add_given_root(plan, o->root, err)) < 0)
        return -1;
    return add_cwd(plan, o, host_root, err) < 0 ? -1 : add_mounts(plan, o, err);
}

int plan_make(const struct options *options, struct plan *ret, struct err *err)
{
    *ret = (struct plan){0};
    if (make(ret, options, err) == 0)
        return 0;
    plan_fini(ret);
    return -1;
}

void plan_fini(struct plan *plan)
{
    control_config_fini(&plan->sentry);
    gofer_config_fini(&plan->gofer);
}
