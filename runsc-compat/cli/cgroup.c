/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cgroups by their files. Runs in the CLI with the caller's rights; the monitor calls cgroup_remove() when
 * the CLI is gone.
 */
#include "runsc-compat/cli/cgroup.h"

#include "base/host.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <mntent.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CPU_PERIOD_US 100000u
#define RESERVE MIB(64)
/* Stub templates and helpers of the platform count as tasks, too. */
#define PIDS_RESERVE 64u

struct hierarchy {
    char dir[400]; /* where our directories go */
    bool v2;
};

/* True if the comma- or space-separated `list` names `word`. */
static bool names(const char *list, const char *word)
{
    size_t len = strlen(word);
    for (const char *p = list; *p;) {
        size_t here = strcspn(p, ", \n");
        if (here == len && memcmp(p, word, len) == 0)
            return true;
        p += here;
        p += strspn(p, ", \n");
    }
    return false;
}

static bool read_file(const char *path, char *out, size_t size)
{
    AUTO_FD hfd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = hfd >= 0 ? read(hfd, out, size - 1) : -1;
    out[got > 0 ? got : 0] = '\0';
    return got >= 0;
}

static int write_file(const char *path, const char *text)
{
    AUTO_FD hfd = open(path, O_WRONLY | O_CLOEXEC);
    if (hfd < 0)
        return -errno;
    return write(hfd, text, strlen(text)) < 0 ? -errno : 0;
}

static bool v2_has(const char *dir, const char *controller)
{
    char path[PATH_MAX];
    char list[512];
    snprintf(path, sizeof(path), "%s/cgroup.controllers", dir);
    return read_file(path, list, sizeof(list)) && names(list, controller);
}

/* Our own group of the hierarchy with `controller` (NULL: v2) as /proc/self/cgroup has it; "/" if none. */
static void own_group(const char *controller, char *out, size_t size)
{
    FILE *file = fopen("/proc/self/cgroup", "re");
    char line[1024];
    snprintf(out, size, "/");
    while (file && fgets(line, sizeof(line), file)) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path)
            continue;
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (controller ? names(list + 1, controller) : list[1] == '\0')
            snprintf(out, size, "%s", path);
    }
    if (file)
        fclose(file);
}

/* v2: groups with processes can't have children with controllers, so the sandbox goes to the nearest
 * ancestor of our own group where we may create one; for root that is usually the top. */
static bool place_v2(const char *mount_dir, const char *controller, char *out, size_t size)
{
    char group[256];
    own_group(NULL, group, sizeof(group));
    if (geteuid() == 0 || strcmp(group, "/") == 0) {
        snprintf(out, size, "%s", mount_dir);
        return v2_has(out, controller);
    }
    for (char *slash; (slash = strrchr(group, '/')) != NULL;) {
        *slash = '\0';
        snprintf(out, size, "%s%s", mount_dir, group);
        if (access(out, W_OK) == 0 && v2_has(out, controller))
            return true;
    }
    return false;
}

static bool place_v1(const char *mount_dir, const char *controller, char *out, size_t size)
{
    char group[256];
    own_group(controller, group, sizeof(group));
    snprintf(out, size, "%s%s", mount_dir, strcmp(group, "/") == 0 ? "" : group);
    if (access(out, F_OK) < 0) /* in a container the path may be the host's */
        snprintf(out, size, "%s", mount_dir);
    return true;
}

static bool find_hierarchy(const char *controller, struct hierarchy *ret)
{
    FILE *mounts = setmntent("/proc/self/mounts", "re");
    struct mntent entry;
    char buffer[4096];
    bool found = false;
    while (mounts && !found && getmntent_r(mounts, &entry, buffer, sizeof(buffer))) {
        bool v2 = strcmp(entry.mnt_type, "cgroup2") == 0;
        if (v2 ? v2_has(entry.mnt_dir, controller)
               : strcmp(entry.mnt_type, "cgroup") == 0 && names(entry.mnt_opts, controller)) {
            ret->v2 = v2;
            found = v2 ? place_v2(entry.mnt_dir, controller, ret->dir, sizeof(ret->dir))
                       : place_v1(entry.mnt_dir, controller, ret->dir, sizeof(ret->dir));
        }
    }
    if (mounts)
        endmntent(mounts);
    return found;
}

/* The index of directory `path`, added if it's new. */
static size_t need_dir(struct cgroup *cg, const char *parent, const char *name)
{
    struct cgroup_dir *dir = &cg->dirs[cg->dir_count];
    snprintf(dir->path, sizeof(dir->path), "%s/%s", parent, name);
    for (size_t i = 0; i < cg->dir_count; i++) {
        if (strcmp(cg->dirs[i].path, dir->path) == 0)
            return i;
    }
    return cg->dir_count++;
}

static void need_setting(struct cgroup *cg, size_t dir, const char *file, uint64_t value, bool optional)
{
    struct cgroup_setting *s = &cg->settings[cg->setting_count++];
    *s = (struct cgroup_setting){.dir = dir, .optional = optional};
    snprintf(s->file, sizeof(s->file), "%s", file);
    snprintf(s->value, sizeof(s->value), "%llu", (unsigned long long)value);
}

static void need_enabled(struct cgroup *cg, const char *dir, const char *controller)
{
    char path[512];
    snprintf(path, sizeof(path), "%.480s/cgroup.subtree_control", dir);
    size_t len = strlen(cg->controllers);
    if (!names(cg->controllers, controller))
        snprintf(cg->controllers + len, sizeof(cg->controllers) - len, "%s%s", len ? " " : "", controller);
    for (size_t i = 0; i < cg->enable_count; i++) {
        if (strcmp(cg->enable[i], path) == 0)
            return;
    }
    snprintf(cg->enable[cg->enable_count++], sizeof(cg->enable[0]), "%s", path);
}

struct layout {
    bool v2;
    size_t top;
    size_t guest;
};

/* The directories of one controller's hierarchy. */
static int lay_out(struct cgroup *cg, const char *controller, const char *option, struct layout *ret,
                   struct err *err)
{
    struct hierarchy h;
    char name[32];
    if (!find_hierarchy(controller, &h))
        return err_set(err,
                       "%s: this host gives me no cgroup with the %s controller, so the limit can't be "
                       "enforced; run as root, have it delegated, or leave the limit out",
                       option, controller);
    snprintf(name, sizeof(name), "bailey-%d", getpid());
    ret->v2 = h.v2;
    ret->top = need_dir(cg, h.dir, name);
    ret->guest = need_dir(cg, cg->dirs[ret->top].path, "guest");
    cg->dirs[ret->guest].for_guest = true;
    if (h.v2) {
        size_t core = need_dir(cg, cg->dirs[ret->top].path, "core");
        cg->dirs[core].for_core = true;
        need_enabled(cg, h.dir, controller);
        need_enabled(cg, cg->dirs[ret->top].path, controller);
    } else {
        cg->dirs[ret->top].for_core = true;
    }
    return 0;
}

static int plan_memory(struct cgroup *cg, uint64_t bytes, struct err *err)
{
    struct layout l;
    if (lay_out(cg, "memory", "--memory", &l, err) < 0)
        return -1;
    need_setting(cg, l.top, l.v2 ? "memory.max" : "memory.limit_in_bytes", bytes + RESERVE, false);
    need_setting(cg, l.guest, l.v2 ? "memory.max" : "memory.limit_in_bytes", bytes, false);
    if (l.v2)
        need_setting(cg, l.top, "memory.swap.max", 0, true);
    else
        need_setting(cg, l.guest, "memory.memsw.limit_in_bytes", bytes, true);
    return 0;
}

static int plan_cpu(struct cgroup *cg, uint32_t millis, struct err *err)
{
    struct layout l;
    uint64_t quota = (uint64_t)millis * CPU_PERIOD_US / 1000;
    if (lay_out(cg, "cpu", "--cpus", &l, err) < 0)
        return -1;
    if (!l.v2) {
        need_setting(cg, l.top, "cpu.cfs_period_us", CPU_PERIOD_US, false);
        need_setting(cg, l.top, "cpu.cfs_quota_us", quota, false);
        return 0;
    }
    need_setting(cg, l.top, "cpu.max", quota, false);
    struct cgroup_setting *s = &cg->settings[cg->setting_count - 1];
    snprintf(s->value, sizeof(s->value), "%llu %u", (unsigned long long)quota, CPU_PERIOD_US);
    return 0;
}

int cgroup_plan(const struct control_limits *limits, struct cgroup *ret, struct err *err)
{
    struct layout l;
    *ret = (struct cgroup){0};
    if (limits->memory_bytes && plan_memory(ret, limits->memory_bytes, err) < 0)
        return -1;
    if (limits->cpu_millis && plan_cpu(ret, limits->cpu_millis, err) < 0)
        return -1;
    if (limits->pids) {
        if (lay_out(ret, "pids", "--pids", &l, err) < 0)
            return -1;
        need_setting(ret, l.guest, "pids.max", limits->pids + PIDS_RESERVE, false);
    }
    return 0;
}

static int make_dirs(struct cgroup *cg, struct err *err)
{
    for (size_t i = 0; i < cg->dir_count; i++) {
        const char *path = cg->dirs[i].path;
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return err_errno(err, errno,
                             "can't create the cgroup %s for the limits; run as root, have a cgroup "
                             "delegated to you, or leave the limits out",
                             path);
    }
    return 0;
}

static int enable(struct cgroup *cg, const char *file, struct err *err)
{
    char text[160];
    size_t len = 0;
    for (const char *p = cg->controllers; *p;) {
        size_t word = strcspn(p, " ");
        len += (size_t)snprintf(text + len, sizeof(text) - len, "%s+%.*s", len ? " " : "", (int)word, p);
        p += word + strspn(p + word, " ");
    }
    int error = write_file(file, text);
    return error ? err_errno(err, -error, "can't enable %s in %s", cg->controllers, file) : 0;
}

static int create(struct cgroup *cg, struct err *err)
{
    char path[600];
    /* The outer subtree_control first: without it the files of our own directory don't appear. */
    if (cg->enable_count && enable(cg, cg->enable[0], err) < 0)
        return -1;
    if (make_dirs(cg, err) < 0)
        return -1;
    for (size_t i = 1; i < cg->enable_count; i++) {
        if (enable(cg, cg->enable[i], err) < 0)
            return -1;
    }
    for (size_t i = 0; i < cg->setting_count; i++) {
        const struct cgroup_setting *s = &cg->settings[i];
        snprintf(path, sizeof(path), "%s/%s", cg->dirs[s->dir].path, s->file);
        int error = write_file(path, s->value);
        if (error && !(s->optional && (error == -ENOENT || error == -EACCES || error == -EOPNOTSUPP)))
            return err_errno(err, -error, "can't set the limit %s to %s", path, s->value);
    }
    return 0;
}

int cgroup_create(struct cgroup *cg, struct err *err)
{
    cg->created = cg->dir_count > 0;
    if (create(cg, err) == 0)
        return 0;
    cgroup_remove(cg);
    return -1;
}

static int add(const struct cgroup *cg, pid_t pid, bool guest, struct err *err)
{
    char path[600];
    char text[16];
    snprintf(text, sizeof(text), "%d", pid);
    for (size_t i = 0; i < cg->dir_count; i++) {
        if (!(guest ? cg->dirs[i].for_guest : cg->dirs[i].for_core))
            continue;
        snprintf(path, sizeof(path), "%s/cgroup.procs", cg->dirs[i].path);
        int error = write_file(path, text);
        if (error)
            return err_errno(err, -error, "can't move a process into %s", cg->dirs[i].path);
    }
    return 0;
}

int cgroup_add_guest(const struct cgroup *cg, pid_t pid, struct err *err)
{
    return add(cg, pid, true, err);
}

int cgroup_add_core(const struct cgroup *cg, pid_t pid, struct err *err)
{
    return add(cg, pid, false, err);
}

void cgroup_remove(const struct cgroup *cg)
{
    for (size_t i = cg->dir_count; cg->created && i-- > 0;) {
        /* Dead processes leave their group asynchronously; EBUSY until the last one has. */
        for (int tries = 0; tries < 200; tries++) {
            if (rmdir(cg->dirs[i].path) == 0 || errno != EBUSY)
                break;
            poll(NULL, 0, tries < 20 ? 1 : 10);
        }
    }
}
