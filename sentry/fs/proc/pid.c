/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of /proc/PID and /proc/PID/task/TID. */
#include "sentry/fs/proc/pid_values.h"
#include <sys/stat.h>

#define FILE_ROW(label, bits, ...)                                                                 \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | (bits), __VA_ARGS__                                     \
    }
#define DIR_ROW(label, bits, ...)                                                                  \
    {                                                                                              \
        .name = (label), .mode = S_IFDIR | (bits), __VA_ARGS__                                     \
    }
#define LINK_ROW(label, which)                                                                     \
    {                                                                                              \
        .name = (label), .mode = S_IFLNK | 0777, .target = proc_target_##which,                    \
        .follow = proc_follow_##which                                                              \
    }
#define ID_MAP "         0          0 4294967295\n"

static const struct synth_row attr_rows[] = {
    FILE_ROW("current", 0666, .show = proc_show_attr),
    FILE_ROW("exec", 0666, .show = proc_show_attr),
    FILE_ROW("fscreate", 0666, .show = proc_show_attr),
    FILE_ROW("prev", 0444, .show = proc_show_attr),
};

static const struct synth_rows attr = SYNTH_ROWS(attr_rows);

/* What a process and each of its threads have. */
/* clang-format off */
#define COMMON_ROWS                                                                                          \
    FILE_ROW("auxv", 0400, .show = proc_show_auxv, .check = proc_check_ptrace),                              \
    FILE_ROW("cgroup", 0444, .content = "0::/\n"),                                                           \
    FILE_ROW("clear_refs", 0200, .store = proc_store_ignored),                                               \
    FILE_ROW("cmdline", 0444, .show = proc_show_cmdline),                                                    \
    FILE_ROW("comm", 0644, .show = proc_show_comm, .store = proc_store_comm),                                \
    FILE_ROW("cpuset", 0444, .content = "/\n"),                                                              \
    FILE_ROW("environ", 0400, .show = proc_show_environ, .check = proc_check_ptrace),                        \
    FILE_ROW("gid_map", 0644, .content = ID_MAP, .store = proc_store_refused),                               \
    FILE_ROW("io", 0400, .show = proc_show_io),                                                              \
    FILE_ROW("limits", 0644, .show = proc_show_limits),                                                      \
    FILE_ROW("loginuid", 0644, .content = "4294967295", .store = proc_store_refused),                        \
    FILE_ROW("maps", 0444, .show = proc_show_maps, .check = proc_check_ptrace),                              \
    FILE_ROW("mem", 0600, .open = proc_open_mem),                                                            \
    FILE_ROW("mountinfo", 0444, .show = proc_show_mountinfo),                                                \
    FILE_ROW("mounts", 0444, .show = proc_show_mounts),                                                      \
    FILE_ROW("numa_maps", 0444, .show = proc_show_numa_maps, .check = proc_check_ptrace),                    \
    FILE_ROW("oom_adj", 0644, .show = proc_show_oom_adj, .store = proc_store_oom_adj),                       \
    FILE_ROW("oom_score", 0444, .show = proc_show_oom_score),                                                \
    FILE_ROW("oom_score_adj", 0644, .show = proc_show_oom_score_adj, .store = proc_store_oom_score_adj),     \
    FILE_ROW("personality", 0400, .show = proc_show_personality),                                            \
    FILE_ROW("projid_map", 0644, .content = ID_MAP, .store = proc_store_refused),                            \
    FILE_ROW("sched", 0644, .show = proc_show_sched, .store = proc_store_ignored),                           \
    FILE_ROW("schedstat", 0444, .show = proc_show_schedstat),                                                \
    FILE_ROW("sessionid", 0444, .content = "4294967295"),                                                    \
    FILE_ROW("setgroups", 0644, .content = "allow\n", .store = proc_store_setgroups),                        \
    FILE_ROW("smaps", 0444, .show = proc_show_smaps, .check = proc_check_ptrace),                            \
    FILE_ROW("smaps_rollup", 0444, .show = proc_show_smaps_rollup, .check = proc_check_ptrace),              \
    FILE_ROW("stat", 0444, .show = proc_show_stat),                                                          \
    FILE_ROW("statm", 0444, .show = proc_show_statm),                                                        \
    FILE_ROW("status", 0444, .show = proc_show_status),                                                      \
    FILE_ROW("uid_map", 0644, .content = ID_MAP, .store = proc_store_refused),                               \
    FILE_ROW("wchan", 0444, .show = proc_show_wchan),                                                        \
    DIR_ROW("attr", 0555, .rows = &attr),                                                    \
    DIR_ROW("fd", 0500, .dynamic = &proc_fd_dynamic, .check = proc_check_ptrace),                            \
    DIR_ROW("fdinfo", 0555, .dynamic = &proc_fdinfo_dynamic, .check = proc_check_ptrace),                    \
    DIR_ROW("net", 0555, .rows = &proc_net_rows),                                                             \
    DIR_ROW("ns", 0511, .rows = &proc_ns_rows, .check = proc_check_ptrace),                                   \
    LINK_ROW("cwd", cwd),                                                                                    \
    LINK_ROW("exe", exe),                                                                                    \
    LINK_ROW("root", root)

static const struct synth_row process_rows[] = {
    COMMON_ROWS,
    DIR_ROW("task", 0555, .dynamic = &proc_task_dynamic),
    /* No core is ever dumped, so there's nothing that the filter would choose from. */
    FILE_ROW("coredump_filter", 0644, .content = "00000033\n", .store = proc_store_ignored),
    FILE_ROW("mountstats", 0400, .show = proc_show_mountstats),
    FILE_ROW("timerslack_ns", 0666, .show = proc_show_timerslack, .store = proc_store_timerslack),
};
static const struct synth_row task_rows[] = {
    COMMON_ROWS,
    FILE_ROW("children", 0444, .show = proc_show_children),
};
/* clang-format on */

static const struct synth_rows in_process = SYNTH_ROWS(process_rows),
                               in_task = SYNTH_ROWS(task_rows);

const struct synth_row proc_process_row = {.name = "", .mode = S_IFDIR | 0555, .rows = &in_process};
const struct synth_row proc_task_row = {.name = "", .mode = S_IFDIR | 0555, .rows = &in_task};
