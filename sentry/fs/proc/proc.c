/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root of /proc: its table, its processes, and the file system itself. Any fiber. Every name is
 * looked up anew at each walk, for processes come and go.
 */
#include "sentry/fs/proc/proc.h"
#include "sentry/fs/proc/proc_internal.h"
#include "sentry/task/release.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#define PROC_SUPER_MAGIC 0x9fa0U
#define TEXT(label, text)                                                                          \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .content = (text)                                 \
    }
#define SHOW(label, function)                                                                      \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .show = (function)                                \
    }
#define LINK(label, function)                                                                      \
    {                                                                                              \
        .name = (label), .mode = S_IFLNK | 0777, .target = (function)                              \
    }

/* ---- links to the reader
 * ------------------------------------------------------------------------- */

static int target_self(const struct synth_key *key, struct text *out)
{
    (void)key;
    const struct task *t = task_current();
    if (t == NULL)
        return -ENOENT;
    text_printf(out, "%d", t->group->tgid);
    return 0;
}

static int target_thread_self(const struct synth_key *key, struct text *out)
{
    (void)key;
    const struct task *t = task_current();
    if (t == NULL)
        return -ENOENT;
    text_printf(out, "%d/task/%d", t->group->tgid, t->tid);
    return 0;
}

static int target_mounts(const struct synth_key *key, struct text *out)
{
    (void)key;
    text_put(out, "self/mounts");
    return 0;
}

static int target_net(const struct synth_key *key, struct text *out)
{
    (void)key;
    text_put(out, "self/net");
    return 0;
}

/* ---- processes
 * ----------------------------------------------------------------------------------- */

/* Threads can be reached by their ids, too, but aren't listed. */
static int root_lookup(const struct synth_key *key, const char *name,
                       const struct synth_row **ret_row, struct synth_key *ret_key)
{
    (void)key;
    int id = synth_parse_number(name);
    struct synth_key found = {.id = id};
    tasks_lock();
    const struct thread_group *g = group_find_locked(id);
    const struct task *t = g == NULL ? task_find_locked(id) : NULL;
    found.is_thread = t != NULL;
    found.start_ns = g != NULL ? g->start_ns : t != NULL ? t->start_ns : 0;
    tasks_unlock();
    if (g == NULL && t == NULL)
        return -ENOENT;
    *ret_row = &proc_process_row;
    *ret_key = found;
    return 0;
}

static bool root_next(const struct synth_key *key, int64_t from, int64_t *ret_at, char name[32],
                      uint8_t *ret_type)
{
    (void)key;
    struct thread_group *g = from <= TASK_PID_MAX ? group_next((int)from) : NULL;
    if (g == NULL)
        return false;
    *ret_at = g->tgid;
    *ret_type = S_IFDIR >> 12;
    snprintf(name, 32, "%d", g->tgid);
    group_put(g);
    return true;
}

/* ---- the table
 * ----------------------------------------------------------------------------------- */

static const struct synth_rows empty;
static const struct synth_row sysvipc_rows[] = {
    TEXT("msg", "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid  cuid  "
                "cgid      stime "
                "     rtime      ctime\n"),
    TEXT("sem",
         "       key      semid perms      nsems   uid   gid  cuid  cgid      otime      ctime\n"),
    TEXT("shm", "       key      shmid perms                  size  cpid  lpid nattch   uid   gid  "
                "cuid  cgid     "
                " atime      dtime      ctime                   rss                  swap\n"),
};
static const struct synth_rows sysvipc = SYNTH_ROWS(sysvipc_rows);
static const struct synth_row pressure_rows[] = {
    TEXT("cpu",
         "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
         "total=0\n"),
    TEXT("io",
         "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
         "total=0\n"),
    TEXT("memory",
         "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
         "total=0\n"),
};
static const struct synth_rows pressure = SYNTH_ROWS(pressure_rows);

static const struct synth_row root_rows[] = {
    TEXT("cgroups", "#subsys_name\thierarchy\tnum_cgroups\tenabled\ncpuset\t0\t1\t1\ncpu\t0\t1\t1\n"
                    "cpuacct\t0\t1\t1\nblkio\t0\t1\t1\nmemory\t0\t1\t1\ndevices\t0\t1\t1\n"
                    "freezer\t0\t1\t1\nperf_event\t0\t1\t1\nhugetlb\t0\t1\t1\npids\t0\t1\t1\n"),
    TEXT("cmdline", "quiet\n"),
    SHOW("cpuinfo", proc_show_cpuinfo),
    TEXT("crypto", ""),
    TEXT("devices",
         "Character devices:\n  1 mem\n  5 /dev/tty\n  5 /dev/console\n  5 /dev/ptmx\n128 ptm\n"
         "136 pts\n\nBlock devices:\n"),
    TEXT("diskstats", ""),
    {.name = "driver", .mode = S_IFDIR | 0555, .rows = &empty},
    TEXT("filesystems", "nodev\tsysfs\nnodev\ttmpfs\nnodev\tproc\nnodev\tcgroup2\nnodev\tdevtmpfs\n"
                        "nodev\tdevpts\nnodev\toverlay\nnodev\tpipefs\nnodev\tsockfs\n"),
    {.name = "fs", .mode = S_IFDIR | 0555, .rows = &empty},
    SHOW("interrupts", proc_show_interrupts),
    TEXT("key-users", ""),
    TEXT("keys", ""),
    SHOW("loadavg", proc_show_loadavg),
    TEXT("locks", ""),
    SHOW("meminfo", proc_show_meminfo),
    TEXT("misc", ""),
    TEXT("modules", ""),
    LINK("mounts", target_mounts),
    LINK("net", target_net),
    TEXT("partitions", "major minor  #blocks  name\n\n"),
    {.name = "pressure", .mode = S_IFDIR | 0555, .rows = &pressure},
    LINK("self", target_self),
    SHOW("stat", proc_show_system_stat),
    TEXT("swaps", "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority\n"),
    {.name = "sys", .mode = S_IFDIR | 0555, .rows = &proc_sysctl_rows},
    {.name = "sysvipc", .mode = S_IFDIR | 0555, .rows = &sysvipc},
    LINK("thread-self", target_thread_self),
    {.name = "tty", .mode = S_IFDIR | 0555, .rows = &empty},
    SHOW("uptime", proc_show_uptime),
    TEXT("version", "Linux version " SENTRY_RELEASE " (bailey@bailey) " SENTRY_VERSION "\n"),
    SHOW("vmstat", proc_show_vmstat),
    TEXT("zoneinfo", ""),
};
static const struct synth_rows in_root = SYNTH_ROWS(root_rows);
static const struct synth_dynamic processes = {.lookup = root_lookup, .next = root_next};
static const struct synth_row root_row = {
    .name = "", .mode = S_IFDIR | 0555, .rows = &in_root, .dynamic = &processes};

/* ---- the file system
 * ----------------------------------------------------------------------------- */

static void destroy(struct superblock *sb)
{
    free(container_of(sb, struct synth_fs, sb));
}

int proc_new(struct superblock **ret_sb, struct inode **ret_root)
{
    static const struct superblock_ops ops = {.destroy = destroy};
    struct synth_fs *fs = calloc(1, sizeof *fs);
    if (fs == NULL)
        return -ENOMEM;
    superblock_init(&fs->sb, &ops, "proc", PROC_SUPER_MAGIC);
    fs->sb.revalidate = true;
    fs->sb.no_xattr_user = true;
    fs->refresh = proc_refresh;
    fs->link_count = proc_link_count;
    struct inode *root = synth_root_new(fs, &root_row);
    if (root == NULL) {
        superblock_put(&fs->sb);
        return -ENOMEM;
    }
    *ret_sb = &fs->sb;
    *ret_root = root;
    return 0;
}
