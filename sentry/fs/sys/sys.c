/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /sys: the tables of what never changes, processors, the memory node, the cgroup view. Any fiber;
 * read only. A key's id is a processor, its number a cache of it. Agrees with /proc/cpuinfo: one
 * socket, one thread for each core.
 */
#include "sentry/fs/sys/sys.h"
#include "sentry/fs/synth/synth.h"
#include "sentry/fs/sys/sys_internal.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/stat.h>

#define SYSFS_MAGIC         0x62656572U
#define CGROUP2_SUPER_MAGIC 0x63677270U
#define TEXT(label, text)                                                                          \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .content = (text)                                 \
    }
#define SHOW(label, function)                                                                      \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .show = (function)                                \
    }
#define DIR(label, table)                                                                          \
    {                                                                                              \
        .name = (label), .mode = S_IFDIR | 0755, .rows = (table)                                   \
    }
#define LINK(label, function)                                                                      \
    {                                                                                              \
        .name = (label), .mode = S_IFLNK | 0777, .target = (function)                              \
    }
#define TABLE(label)                                                                               \
    static const struct synth_rows label##_rows = {.rows = label, .count = ARRAY_COUNT(label)}

static const struct synth_rows empty_rows;

/* ---- kernel, fs, module
 * -------------------------------------------------------------------------- */

static const struct synth_row khugepaged[] = {TEXT("defrag", "1\n"),
                                              TEXT("max_ptes_none", "511\n")};
TABLE(khugepaged);
static const struct synth_row huge[] = {
    TEXT("defrag", "always defer defer+madvise [madvise] never\n"),
    TEXT("enabled", "always [madvise] never\n"),
    TEXT("hpage_pmd_size", "2097152\n"),
    DIR("khugepaged", &khugepaged_rows),
    TEXT("shmem_enabled", "always within_size advise [never] deny force\n"),
    TEXT("use_zero_page", "1\n"),
};
TABLE(huge);
static const struct synth_row mm[] = {DIR("hugepages", &empty_rows),
                                      DIR("transparent_hugepage", &huge_rows)};
TABLE(mm);
static const struct synth_row kernel[] = {
    DIR("debug", &empty_rows),    DIR("mm", &mm_rows),          TEXT("profiling", "0\n"),
    DIR("security", &empty_rows), TEXT("uevent_seqnum", "0\n"),
};
TABLE(kernel);
static const struct synth_row fs[] = {DIR("cgroup", &empty_rows), DIR("fuse", &empty_rows)};
TABLE(fs);

/* ---- net
 * ----------------------------------------------------------------------------------------- */

static const struct synth_row lo_statistics[] = {
    TEXT("collisions", "0\n"), TEXT("rx_bytes", "0\n"),   TEXT("rx_dropped", "0\n"),
    TEXT("rx_errors", "0\n"),  TEXT("rx_packets", "0\n"), TEXT("tx_bytes", "0\n"),
    TEXT("tx_dropped", "0\n"), TEXT("tx_errors", "0\n"),  TEXT("tx_packets", "0\n"),
};
TABLE(lo_statistics);
static int target_class_net(const struct synth_key *key, struct text *out)
{
    (void)key;
    text_put(out, "../../../../class/net");
    return 0;
}
static const struct synth_row lo[] = {
    TEXT("addr_assign_type", "0\n"),
    TEXT("addr_len", "6\n"),
    TEXT("address", "00:00:00:00:00:00\n"),
    TEXT("broadcast", "00:00:00:00:00:00\n"),
    TEXT("carrier", "1\n"),
    TEXT("dev_id", "0x0\n"),
    TEXT("dormant", "0\n"),
    TEXT("flags", "0x9\n"),
    TEXT("ifindex", "1\n"),
    TEXT("iflink", "1\n"),
    TEXT("link_mode", "0\n"),
    TEXT("mtu", "65536\n"),
    TEXT("operstate", "unknown\n"),
    DIR("statistics", &lo_statistics_rows),
    LINK("subsystem", target_class_net),
    TEXT("tx_queue_len", "1000\n"),
    TEXT("type", "772\n"),
    TEXT("uevent", "INTERFACE=lo\nIFINDEX=1\n"),
};
TABLE(lo);
static const struct synth_row virtual_net[] = {DIR("lo", &lo_rows)};
TABLE(virtual_net);
static const struct synth_row virtual_devices[] = {DIR("net", &virtual_net_rows)};
TABLE(virtual_devices);
static int target_lo(const struct synth_key *key, struct text *out)
{
    (void)key;
    text_put(out, "../../devices/virtual/net/lo");
    return 0;
}
static const struct synth_row class_net[] = {LINK("lo", target_lo)};
TABLE(class_net);
static const struct synth_row class_dir[] = {
    DIR("block", &empty_rows),   DIR("dmi", &empty_rows),     DIR("drm", &empty_rows),
    DIR("hwmon", &empty_rows),   DIR("net", &class_net_rows), DIR("power_supply", &empty_rows),
    DIR("thermal", &empty_rows), DIR("tty", &empty_rows),
};
TABLE(class_dir);

/* ---- the root
 * ------------------------------------------------------------------------------------ */

static const struct synth_row clocksource0[] = {TEXT("available_clocksource", "tsc\n"),
                                                TEXT("current_clocksource", "tsc\n")};
TABLE(clocksource0);
static const struct synth_row clocksource[] = {DIR("clocksource0", &clocksource0_rows)};
TABLE(clocksource);
static const struct synth_row system_dir[] = {
    DIR("clocksource", &clocksource_rows),
    {.name = "cpu", .mode = S_IFDIR | 0755, .rows = &sys_cpu_rows, .dynamic = &sys_cpu_dynamic},
    DIR("node", &sys_node_rows),
};
TABLE(system_dir);
static const struct synth_row devices[] = {DIR("platform", &empty_rows),
                                           DIR("system", &system_dir_rows),
                                           DIR("virtual", &virtual_devices_rows)};
TABLE(devices);
static const struct synth_row bus[] = {DIR("pci", &empty_rows), DIR("usb", &empty_rows)};
TABLE(bus);
static const struct synth_row dev[] = {DIR("block", &empty_rows), DIR("char", &empty_rows)};
TABLE(dev);
static const struct synth_row root[] = {
    DIR("block", &empty_rows), DIR("bus", &bus_rows),         DIR("class", &class_dir_rows),
    DIR("dev", &dev_rows),     DIR("devices", &devices_rows), DIR("firmware", &empty_rows),
    DIR("fs", &fs_rows),       DIR("kernel", &kernel_rows),   DIR("module", &empty_rows),
    DIR("power", &empty_rows),
};
TABLE(root);

static void destroy(struct superblock *sb)
{
    free(container_of(sb, struct synth_fs, sb));
}

static int make(const char *type, uint32_t magic, const struct synth_row *root_row,
                struct superblock **ret_sb, struct inode **ret_root)
{
    static const struct superblock_ops ops = {.destroy = destroy};
    struct synth_fs *made = calloc(1, sizeof *made);
    if (made == NULL)
        return -ENOMEM;
    superblock_init(&made->sb, &ops, type, magic);
    made->sb.no_xattr_user = true;
    struct inode *inode = synth_root_new(made, root_row);
    if (inode == NULL) {
        superblock_put(&made->sb);
        return -ENOMEM;
    }
    *ret_sb = &made->sb;
    *ret_root = inode;
    return 0;
}

int sys_new(struct superblock **ret_sb, struct inode **ret_root)
{
    static const struct synth_row root_row = {
        .name = "", .mode = S_IFDIR | 0555, .rows = &root_rows};
    return make("sysfs", SYSFS_MAGIC, &root_row, ret_sb, ret_root);
}

int sys_cgroup_new(struct superblock **ret_sb, struct inode **ret_root)
{
    static const struct synth_row root_row = {
        .name = "", .mode = S_IFDIR | 0555, .rows = &sys_cgroup_rows};
    return make("cgroup2", CGROUP2_SUPER_MAGIC, &root_row, ret_sb, ret_root);
}
