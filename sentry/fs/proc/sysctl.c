/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/sys: what libraries and installers ask the kernel about. Any fiber. Values that can be
 * written are kept and shown; they change nothing where the sentry has no such knob.
 */
#include "sentry/fs/proc/proc_internal.h"
#include "sentry/task/host_facts.h"
#include "sentry/task/release.h"
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#define TEXT(label, text)                                                                          \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .content = (text)                                 \
    }
#define SHOW(label, function)                                                                      \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0444, .show = (function)                                \
    }
#define NUMBER(label, start, least, most)                                                          \
    {                                                                                              \
        .name = (label), .mode = S_IFREG | 0644, .value = &(struct synth_value)                    \
        {                                                                                          \
            .now = (start), .min = (least), .max = (most)                                          \
        }                                                                                          \
    }
#define DIR(label, table)                                                                          \
    {                                                                                              \
        .name = (label), .mode = S_IFDIR | 0555, .rows = (table)                                   \
    }
#define TABLE(label)                                                                               \
    static const struct synth_rows label##_rows = {.rows = label, .count = ARRAY_COUNT(label)}
#define ANY INT32_MAX

/* ---- kernel
 * -------------------------------------------------------------------------------------- */

static void put_uuid(struct text *out, const uint8_t bytes[16])
{
    for (int i = 0; i < 16; i++)
        text_printf(out, i == 4 || i == 6 || i == 8 || i == 10 ? "-%02x" : "%02x", bytes[i]);
    text_put(out, "\n");
}

static void make_uuid(uint8_t bytes[16])
{
    host_random(bytes, 16);
    bytes[6] = (uint8_t)((bytes[6] & 0x0f) | 0x40);
    bytes[8] = (uint8_t)((bytes[8] & 0x3f) | 0x80);
}

static int show_uuid(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    uint8_t bytes[16];
    make_uuid(bytes);
    put_uuid(out, bytes);
    return 0;
}

static int show_boot_id(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    static struct lock lock = LOCK_INITIALIZER;
    static uint8_t id[16];
    uint8_t fresh[16];
    make_uuid(fresh);
    lock_acquire(&lock);
    if (id[6] == 0)
        memcpy(id, fresh, sizeof id);
    memcpy(fresh, id, sizeof id);
    lock_release(&lock);
    put_uuid(out, fresh);
    return 0;
}

static void put_name(const char name[65], struct text *out)
{
    char copy[65];
    lock_acquire(&g_sandbox.uts_lock);
    memcpy(copy, name, sizeof copy);
    lock_release(&g_sandbox.uts_lock);
    text_printf(out, "%.64s\n", copy);
}

static int set_name(char name[65], const struct creds *writer, const char *bytes, size_t size)
{
    char copy[65] = {0};
    const char *end = memchr(bytes, '\n', size);
    size_t len = strnlen(bytes, end != NULL ? (size_t)(end - bytes) : size);
    if (!creds_capable(writer, CAP_SYS_ADMIN_BIT))
        return -EPERM;
    memcpy(copy, bytes, len < 64 ? len : 64);
    lock_acquire(&g_sandbox.uts_lock);
    memcpy(name, copy, sizeof copy);
    lock_release(&g_sandbox.uts_lock);
    return 0;
}

static int show_hostname(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    put_name(g_sandbox.hostname, out);
    return 0;
}

static int store_hostname(const struct synth_key *key, const struct creds *writer,
                          const char *bytes, size_t size)
{
    (void)key;
    return set_name(g_sandbox.hostname, writer, bytes, size);
}

static int show_domainname(const struct synth_key *key, const struct creds *reader,
                           struct text *out)
{
    (void)key, (void)reader;
    put_name(g_sandbox.domainname, out);
    return 0;
}

static int store_domainname(const struct synth_key *key, const struct creds *writer,
                            const char *bytes, size_t size)
{
    (void)key;
    return set_name(g_sandbox.domainname, writer, bytes, size);
}

static int show_threads_max(const struct synth_key *key, const struct creds *reader,
                            struct text *out)
{
    (void)key, (void)reader;
    text_printf(out, "%u\n", g_sandbox.pids_limit != 0 ? g_sandbox.pids_limit : TASK_PID_MAX);
    return 0;
}

static int show_last_pid(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    struct census c;
    proc_census(&c);
    text_printf(out, "%d\n", c.last_pid);
    return 0;
}

static const struct synth_row keys[] = {
    TEXT("maxkeys", "200\n"),
    TEXT("maxbytes", "20000\n"),
    TEXT("root_maxkeys", "1000000\n"),
    TEXT("root_maxbytes", "25000000\n"),
};
TABLE(keys);
static const struct synth_row pty[] = {TEXT("max", "4096\n"), TEXT("nr", "0\n"),
                                       TEXT("reserve", "1024\n")};
TABLE(pty);
static const struct synth_row random_dir[] = {
    TEXT("entropy_avail", "256\n"),          TEXT("poolsize", "256\n"),
    TEXT("urandom_min_reseed_secs", "60\n"), TEXT("write_wakeup_threshold", "256\n"),
    SHOW("boot_id", show_boot_id),           SHOW("uuid", show_uuid),
};
TABLE(random_dir);
static const struct synth_row yama[] = {TEXT("ptrace_scope", "0\n")};
TABLE(yama);
static const struct synth_row kernel[] = {
    TEXT("auto_msgmni", "0\n"),
    TEXT("cap_last_cap", "40\n"),
    TEXT("core_pattern", "core\n"),
    TEXT("core_pipe_limit", "0\n"),
    TEXT("core_uses_pid", "1\n"),
    TEXT("dmesg_restrict", "1\n"),
    {.name = "domainname",
     .mode = S_IFREG | 0644,
     .show = show_domainname,
     .store = store_domainname},
    {.name = "hostname", .mode = S_IFREG | 0644, .show = show_hostname, .store = store_hostname},
    TEXT("io_uring_disabled", "2\n"),
    DIR("keys", &keys_rows),
    TEXT("kptr_restrict", "1\n"),
    TEXT("msgmax", "8192\n"),
    TEXT("msgmnb", "16384\n"),
    TEXT("msgmni", "32000\n"),
    TEXT("ngroups_max", "65536\n"),
    SHOW("ns_last_pid", show_last_pid),
    TEXT("numa_balancing", "0\n"),
    TEXT("osrelease", SENTRY_RELEASE "\n"),
    TEXT("ostype", "Linux\n"),
    TEXT("overflowgid", "65534\n"),
    TEXT("overflowuid", "65534\n"),
    NUMBER("panic", 0, 0, ANY),
    TEXT("perf_event_paranoid", "3\n"),
    TEXT("pid_max", "32768\n"),
    TEXT("printk", "4\t4\t1\t7\n"),
    DIR("pty", &pty_rows),
    DIR("random", &random_dir_rows),
    NUMBER("randomize_va_space", 2, 0, 2),
    TEXT("sched_autogroup_enabled", "0\n"),
    TEXT("sched_child_runs_first", "0\n"),
    TEXT("sched_rt_period_us", "1000000\n"),
    TEXT("sched_rt_runtime_us", "950000\n"),
    TEXT("sem", "32000\t1024000000\t500\t32000\n"),
    TEXT("shm_rmid_forced", "0\n"),
    NUMBER("shmall", INT64_MAX / 4096, 0, INT64_MAX),
    NUMBER("shmmax", INT64_MAX / 4096 * 4096, 0, INT64_MAX),
    TEXT("shmmni", "4096\n"),
    TEXT("sysctl_writes_strict", "1\n"),
    TEXT("tainted", "0\n"),
    SHOW("threads-max", show_threads_max),
    TEXT("unprivileged_bpf_disabled", "2\n"),
    TEXT("version", SENTRY_VERSION "\n"),
    DIR("yama", &yama_rows),
};
TABLE(kernel);

/* ---- vm
 * ------------------------------------------------------------------------------------------ */

static int show_mmap_min_addr(const struct synth_key *key, const struct creds *reader,
                              struct text *out)
{
    (void)key, (void)reader;
    text_printf(out, "%llu\n",
                g_sandbox.info != NULL ? (unsigned long long)g_sandbox.info->min_addr.va : 65536);
    return 0;
}

static const struct synth_row vm[] = {
    TEXT("dirty_background_ratio", "10\n"),
    TEXT("dirty_ratio", "20\n"),
    NUMBER("drop_caches", 0, 0, 4),
    TEXT("legacy_va_layout", "0\n"),
    NUMBER("max_map_count", 65530, 0, ANY),
    TEXT("memfd_noexec", "0\n"),
    TEXT("min_free_kbytes", "67584\n"),
    SHOW("mmap_min_addr", show_mmap_min_addr),
    TEXT("mmap_rnd_bits", "28\n"),
    NUMBER("nr_hugepages", 0, 0, 0),
    TEXT("nr_overcommit_hugepages", "0\n"),
    TEXT("oom_kill_allocating_task", "0\n"),
    NUMBER("overcommit_kbytes", 0, 0, ANY),
    NUMBER("overcommit_memory", 0, 0, 2),
    NUMBER("overcommit_ratio", 50, 0, 100),
    TEXT("page-cluster", "3\n"),
    TEXT("panic_on_oom", "0\n"),
    NUMBER("swappiness", 60, 0, 200),
    TEXT("unprivileged_userfaultfd", "0\n"),
    NUMBER("vfs_cache_pressure", 100, 0, ANY),
    TEXT("zone_reclaim_mode", "0\n"),
};
TABLE(vm);

/* ---- fs
 * ------------------------------------------------------------------------------------------ */

static const struct synth_row epoll[] = {NUMBER("max_user_watches", 5000000, 0, ANY)};
TABLE(epoll);
static const struct synth_row inotify[] = {
    NUMBER("max_queued_events", 16384, 0, ANY),
    NUMBER("max_user_instances", 8192, 0, ANY),
    NUMBER("max_user_watches", 1048576, 0, ANY),
};
TABLE(inotify);
static const struct synth_row mqueue[] = {
    NUMBER("msg_default", 10, 1, 65536),       NUMBER("msg_max", 10, 1, 65536),
    NUMBER("msgsize_default", 8192, 128, ANY), NUMBER("msgsize_max", 8192, 128, ANY),
    NUMBER("queues_max", 256, 0, ANY),
};
TABLE(mqueue);
static const struct synth_row fs[] = {
    NUMBER("aio-max-nr", 65536, 0, ANY),
    TEXT("aio-nr", "0\n"),
    TEXT("dentry-state", "0\t0\t45\t0\t0\t0\n"),
    DIR("epoll", &epoll_rows),
    NUMBER("file-max", INT64_MAX, 0, INT64_MAX),
    TEXT("file-nr", "1024\t0\t9223372036854775807\n"),
    TEXT("inode-nr", "1024\t0\n"),
    TEXT("inode-state", "1024\t0\t0\t0\t0\t0\t0\n"),
    DIR("inotify", &inotify_rows),
    TEXT("lease-break-time", "45\n"),
    TEXT("leases-enable", "1\n"),
    TEXT("mount-max", "100000\n"),
    DIR("mqueue", &mqueue_rows),
    TEXT("nr_open", "1048576\n"),
    TEXT("overflowgid", "65534\n"),
    TEXT("overflowuid", "65534\n"),
    NUMBER("pipe-max-size", 1048576, 4096, ANY),
    NUMBER("pipe-user-pages-hard", 0, 0, ANY),
    NUMBER("pipe-user-pages-soft", 16384, 0, ANY),
    TEXT("protected_fifos", "0\n"),
    TEXT("protected_hardlinks", "0\n"),
    TEXT("protected_regular", "0\n"),
    TEXT("protected_symlinks", "0\n"),
    TEXT("suid_dumpable", "0\n"),
};
TABLE(fs);

/* ---- net
 * ----------------------------------------------------------------------------------------- */

static const struct synth_row core[] = {
    NUMBER("netdev_max_backlog", 1000, 0, ANY), NUMBER("optmem_max", 131072, 0, ANY),
    NUMBER("rmem_default", 212992, 2304, ANY),  NUMBER("rmem_max", 212992, 2304, ANY),
    NUMBER("somaxconn", 4096, 0, ANY),          NUMBER("wmem_default", 212992, 4608, ANY),
    NUMBER("wmem_max", 212992, 4608, ANY),
};
TABLE(core);
static const struct synth_row ipv4[] = {
    NUMBER("ip_forward", 0, 0, 1),
    TEXT("ip_local_port_range", "32768\t60999\n"),
    TEXT("ip_local_reserved_ports", "\n"),
    NUMBER("ip_nonlocal_bind", 0, 0, 1),
    NUMBER("ip_unprivileged_port_start", 1024, 0, 65535),
    TEXT("ping_group_range", "1\t0\n"),
    TEXT("tcp_available_congestion_control", "reno cubic\n"),
    TEXT("tcp_allowed_congestion_control", "reno cubic\n"),
    TEXT("tcp_congestion_control", "cubic\n"),
    NUMBER("tcp_ecn", 2, 0, 2),
    NUMBER("tcp_fastopen", 1, 0, ANY),
    NUMBER("tcp_fin_timeout", 60, 0, ANY),
    NUMBER("tcp_keepalive_intvl", 75, 0, ANY),
    NUMBER("tcp_keepalive_probes", 9, 0, 255),
    NUMBER("tcp_keepalive_time", 7200, 0, ANY),
    NUMBER("tcp_max_syn_backlog", 1024, 0, ANY),
    TEXT("tcp_mem", "188319\t251093\t376638\n"),
    TEXT("tcp_rmem", "4096\t131072\t6291456\n"),
    NUMBER("tcp_sack", 1, 0, 1),
    NUMBER("tcp_syn_retries", 6, 1, 127),
    NUMBER("tcp_syncookies", 1, 0, 2),
    NUMBER("tcp_timestamps", 1, 0, 2),
    NUMBER("tcp_tw_reuse", 2, 0, 2),
    NUMBER("tcp_window_scaling", 1, 0, 1),
    TEXT("tcp_wmem", "4096\t16384\t4194304\n"),
};
TABLE(ipv4);

#define IPV6_CONF(label)                                                                           \
    static const struct synth_row label##_conf[] = {                                               \
        NUMBER("accept_ra", 1, 0, 2),                                                              \
        NUMBER("autoconf", 1, 0, 1),                                                               \
        NUMBER("disable_ipv6", 0, 0, 1),                                                           \
        NUMBER("forwarding", 0, 0, 1),                                                             \
    };                                                                                             \
    TABLE(label##_conf)
IPV6_CONF(all);
IPV6_CONF(default);
IPV6_CONF(lo);
static const struct synth_row ipv6_conf[] = {
    DIR("all", &all_conf_rows), DIR("default", &default_conf_rows), DIR("lo", &lo_conf_rows)};
TABLE(ipv6_conf);
static const struct synth_row ipv6[] = {NUMBER("bindv6only", 0, 0, 1),
                                        DIR("conf", &ipv6_conf_rows)};
TABLE(ipv6);
static const struct synth_row unix_dir[] = {NUMBER("max_dgram_qlen", 512, 0, ANY)};
TABLE(unix_dir);
static const struct synth_row net[] = {DIR("core", &core_rows), DIR("ipv4", &ipv4_rows),
                                       DIR("ipv6", &ipv6_rows), DIR("unix", &unix_dir_rows)};
TABLE(net);

/* ---- others
 * -------------------------------------------------------------------------------------- */

static const struct synth_row user[] = {
    NUMBER("max_inotify_instances", 8192, 0, ANY), NUMBER("max_inotify_watches", 1048576, 0, ANY),
    NUMBER("max_ipc_namespaces", 0, 0, ANY),       NUMBER("max_mnt_namespaces", 0, 0, ANY),
    NUMBER("max_net_namespaces", 0, 0, ANY),       NUMBER("max_pid_namespaces", 0, 0, ANY),
    NUMBER("max_user_namespaces", 0, 0, ANY),      NUMBER("max_uts_namespaces", 0, 0, ANY),
};
TABLE(user);
static const struct synth_row abi[] = {TEXT("vsyscall32", "1\n")};
TABLE(abi);
static const struct synth_row sys[] = {DIR("abi", &abi_rows),       DIR("fs", &fs_rows),
                                       DIR("kernel", &kernel_rows), DIR("net", &net_rows),
                                       DIR("user", &user_rows),     DIR("vm", &vm_rows)};
const struct synth_rows proc_sysctl_rows = SYNTH_ROWS(sys);
