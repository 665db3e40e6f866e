/* SPDX-License-Identifier: Apache-2.0 */
/* /proc and /sys of a sandbox without guests: what the machine says must agree wherever it is said.
 */
#include "tests/unit/vfs_fixture.h"

#include "sentry/fs/proc/machine.h"
#include "sentry/fs/proc/proc.h"
#include "sentry/fs/sys/sys.h"
#include "sentry/task/host_facts.h"
#include "sentry/task/task.h"

typedef int make_fn(struct superblock **ret_sb, struct inode **ret_root);

/* Namespaces aren't freed: the leak checker shall find them. */
static struct mount_namespace *volatile g_kept[32];
static unsigned g_kept_count;

static void use_machine(unsigned cpus, uint64_t memory)
{
    if (g_sandbox.init_group == NULL) {
        host_facts_init();
        tasks_init();
    }
    g_sandbox.cpu_count = cpus;
    g_sandbox.memory_limit = memory;
}

static void mount_it(make_fn *make)
{
    struct superblock *sb;
    struct inode *root;
    cr_assert_eq(make(&sb, &root), 0);
    fixture_mount(sb, root);
    g_kept[g_kept_count++ % ARRAY_COUNT(g_kept)] = g_ctx.ns;
    inode_put(root);
    superblock_put(sb);
}

static char g_text[1 << 20];

static const char *slurp(const char *path)
{
    struct file *f = open_ok(path, O_RDONLY, 0);
    ssize_t n = file_read_at(f, g_text, sizeof g_text - 1, 0);
    cr_assert_geq(n, 0, "%s: %d", path, (int)n);
    g_text[n] = '\0';
    file_put(f);
    return g_text;
}

static unsigned count(const char *text, const char *what)
{
    unsigned n = 0;
    for (; (text = strstr(text, what)) != NULL; text++)
        n++;
    return n;
}

Test(proc, processors_agree_with_the_sandbox)
{
    static const unsigned sizes[] = {1, 2, 5, 40, 64};
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        use_machine(sizes[i], 0);
        mount_it(proc_new);
        char key[48];
        cr_assert_eq(count(slurp("/cpuinfo"), "processor\t:"), sizes[i]);
        snprintf(key, sizeof key, "cpu cores\t: %u\n", sizes[i]);
        cr_assert_eq(count(g_text, key), sizes[i]);
        cr_assert_eq(count(slurp("/stat"), "\ncpu"), sizes[i]);
        mount_it(sys_new);
        snprintf(key, sizeof key, sizes[i] == 1 ? "0\n" : "0-%u\n", sizes[i] - 1);
        cr_assert_str_eq(slurp("/devices/system/cpu/online"), key);
        cr_assert_str_eq(slurp("/devices/system/node/node0/cpulist"), key);
        snprintf(key, sizeof key, "/devices/system/cpu/cpu%u/topology/core_id", sizes[i] - 1);
        cr_assert_eq(atoi(slurp(key)), (int)sizes[i] - 1);
        snprintf(key, sizeof key, "/devices/system/cpu/cpu%u", sizes[i]);
        cr_assert_eq(open_error(key, O_RDONLY), -ENOENT);
        mount_it(sys_cgroup_new);
        snprintf(key, sizeof key, "%u00000 100000\n", sizes[i]);
        cr_assert_str_eq(slurp("/cpu.max"), key);
    }
}

Test(proc, memory_agrees_with_the_limit)
{
    use_machine(2, MIB(512));
    mount_it(proc_new);
    cr_assert(strstr(slurp("/meminfo"), "MemTotal:         524288 kB\n"), "%s", g_text);
    mount_it(sys_cgroup_new);
    cr_assert_str_eq(slurp("/memory.max"), "536870912\n");
    use_machine(2, 0);
    cr_assert_str_eq(slurp("/memory.max"), "max\n");
    cr_assert_eq(machine_memory_total(), host_facts()->memory_total);
    cr_assert_leq(machine_memory_free(), machine_memory_total());
}

Test(proc, the_first_process_looks_like_one)
{
    use_machine(2, 0);
    mount_it(proc_new);
    cr_assert(strstr(slurp("/1/status"), "Name:\tinit\n") && strstr(g_text, "\nPPid:\t0\n"));
    cr_assert_eq(strncmp(slurp("/1/stat"), "1 (init) S 0 1 1 0 -1 ", 22), 0, "%s", g_text);
    unsigned fields = 1;
    for (const char *c = g_text; *c; c++)
        fields += *c == ' ';
    cr_assert_eq(fields, 52);
    cr_assert_str_eq(slurp("/1/comm"), "init\n");
    cr_assert_str_eq(slurp("/1/maps"), "");
    cr_assert_eq(open_error("/2", O_RDONLY), -ENOENT);
    cr_assert_eq(open_error("/self", O_RDONLY), -ENOENT); /* nobody asks */
    use_creds(g_user);
    cr_assert_eq(open_error("/1/environ", O_RDONLY), -EACCES);
    cr_assert_eq(open_error("/1/fd", O_RDONLY), -EACCES);
    cr_assert_eq(open_error("/sys/kernel/hostname", O_WRONLY), -EACCES);
    use_creds(g_root);
}

Test(proc, random_numbers_are_uuids)
{
    use_machine(1, 0);
    mount_it(proc_new);
    char first[64];
    snprintf(first, sizeof first, "%s", slurp("/sys/kernel/random/uuid"));
    cr_assert_eq(strlen(first), 37);
    cr_assert_eq(first[14], '4');
    cr_assert_str_neq(first, slurp("/sys/kernel/random/uuid"));
    snprintf(first, sizeof first, "%s", slurp("/sys/kernel/random/boot_id"));
    cr_assert_str_eq(first, slurp("/sys/kernel/random/boot_id"));
}

/* Opens, reads and lists everything below `dir`. */
static struct dir_names {
    struct dir_context ctx;
    char names[128][64];
    uint8_t types[128];
    size_t count;
} g_names[8];

static bool collect_names(struct dir_context *ctx, const char *name, size_t size, uint64_t ino,
                          uint8_t type, int64_t next_pos)
{
    struct dir_names *n = container_of(ctx, struct dir_names, ctx);
    (void)ino, (void)next_pos;
    if (name[0] == '.')
        return true;
    cr_assert(n->count < ARRAY_COUNT(n->names) && size < sizeof n->names[0]);
    memcpy(n->names[n->count], name, size + 1);
    n->types[n->count++] = type;
    return true;
}

static unsigned visit(const char *dir, unsigned depth)
{
    struct dir_names *n = &g_names[depth];
    unsigned files = 0;
    cr_assert(depth < ARRAY_COUNT(g_names));
    *n = (struct dir_names){.ctx.emit = collect_names};
    struct file *f = open_ok(dir, O_RDONLY, 0);
    cr_assert_eq(vfs_iterate(f, &n->ctx), 0);
    file_put(f);
    for (size_t i = 0; i < n->count; i++) {
        char path[256];
        snprintf(path, sizeof path, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, n->names[i]);
        if (n->types[i] == S_IFDIR >> 12)
            files += visit(path, depth + 1);
        else if (n->types[i] == S_IFREG >> 12 && strncmp(path, "/1/", 3) != 0)
            files += slurp(path) != NULL;
    }
    return files;
}

Test(proc, every_file_about_the_machine_can_be_read)
{
    use_machine(4, 0);
    mount_it(proc_new);
    cr_assert_gt(visit("/", 0), 150);
    mount_it(sys_new);
    cr_assert_gt(visit("/", 0), 100);
    mount_it(sys_cgroup_new);
    cr_assert_gt(visit("/", 0), 20);
}
