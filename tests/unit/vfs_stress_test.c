/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Several fibers on two workers in one tree at once, with a dentry cache that forgets all the time;
 * waiting file locks. Builds with SCHED_TEST_PLAIN as well (ThreadSanitizer).
 */
#include "tests/unit/sched_fixture.h"

#include "sentry/fs/overlay/overlay.h"
#include "sentry/fs/tmpfs/tmpfs.h"
#include "sentry/vfs/vfs_internal.h"
#include <fcntl.h>
#include <linux/fs.h>
#include <sys/file.h>
#include <sys/stat.h>

#define FIBERS 6
#define ROUNDS 4000
#define DIRS   4
#define NAMES  8

static struct walk_context g_ctx;
static struct fiber g_fibers[2][FIBERS]; /* one set for each run_all() of a test */
static unsigned g_set;
static _Atomic unsigned g_running;

/* The namespace of an overlay's lower: kept, for nothing else names it. */
static struct mount_namespace *g_lower_ns __attribute__((used));

static void mount_root(struct superblock *sb, struct inode *root)
{
    g_ctx.ns = mount_namespace_new(sb, root, 0, "root");
    g_ctx.root = (struct path){g_ctx.ns->root, g_ctx.ns->root->root};
    g_ctx.cwd = g_ctx.root;
}

static unsigned next(unsigned *seed)
{
    *seed = *seed * 1103515245u + 12345u;
    return *seed >> 16;
}

static void some_path(unsigned *seed, char *path, size_t size)
{
    unsigned dir = next(seed) % DIRS;
    if (next(seed) % 4 == 0)
        snprintf(path, size, "/d%u/sub%u/f%u", dir, next(seed) % 2, next(seed) % NAMES);
    else
        snprintf(path, size, "/d%u/f%u", dir, next(seed) % NAMES);
}

static void touch_file(const char *path, unsigned *seed)
{
    struct file *f;
    char buffer[256] = {0};
    int flags = next(seed) % 2 ? O_CREAT | O_RDWR : O_RDONLY;
    if (vfs_open(&g_ctx, &g_ctx.cwd, path, (uint32_t)flags, 0644, 0, &f) < 0)
        return;
    struct io io;
    io_init_kernel(&io, buffer, sizeof(buffer));
    if (flags == O_RDONLY)
        (void)vfs_read(f, &io);
    else
        (void)vfs_pwrite(f, &io, next(seed) % 100000);
    fiber_yield();
    file_put(f);
}

static bool ignore_entry(struct dir_context *ctx, const char *name, size_t size, uint64_t ino,
                         uint8_t type, int64_t next_pos)
{
    (void)ctx, (void)name, (void)size, (void)ino, (void)type, (void)next_pos;
    return true;
}

static void read_dir(unsigned dir)
{
    char path[16];
    struct file *f;
    snprintf(path, sizeof(path), "/d%u", dir);
    if (vfs_open(&g_ctx, &g_ctx.cwd, path, O_RDONLY | O_DIRECTORY, 0, 0, &f) < 0)
        return;
    struct dir_context ctx = {.emit = ignore_entry};
    cr_assert_eq(vfs_iterate(f, &ctx), 0);
    file_put(f);
}

static void one_round(unsigned *seed)
{
    char a[64];
    char b[64];
    struct path p = {0};
    struct kstat st;
    some_path(seed, a, sizeof(a));
    some_path(seed, b, sizeof(b));
    switch (next(seed) % 10) {
    case 0:
        (void)vfs_unlink(&g_ctx, &g_ctx.cwd, a);
        break;
    case 1:
        (void)vfs_rename(&g_ctx, &g_ctx.cwd, a, &g_ctx.cwd, b,
                         next(seed) % 3 ? 0 : RENAME_EXCHANGE);
        break;
    case 2:
        snprintf(a, sizeof(a), "/d%u/sub%u", next(seed) % DIRS, next(seed) % 2);
        snprintf(b, sizeof(b), "/d%u/sub%u", next(seed) % DIRS, next(seed) % 2);
        (void)vfs_rename(&g_ctx, &g_ctx.cwd, a, &g_ctx.cwd, b, 0);
        break;
    case 3:
        snprintf(a, sizeof(a), "/d%u/sub%u", next(seed) % DIRS, next(seed) % 2);
        if (next(seed) % 2)
            (void)vfs_mkdir(&g_ctx, &g_ctx.cwd, a, 0755);
        else
            (void)vfs_rmdir(&g_ctx, &g_ctx.cwd, a);
        break;
    case 4:
        if (vfs_walk(&g_ctx, &g_ctx.cwd, a, 0, &p) == 0) {
            if (!S_ISDIR(p.dentry->inode->mode))
                (void)vfs_link(&g_ctx, &p, &g_ctx.cwd, b);
            path_put(&p);
        }
        break;
    case 5:
        read_dir(next(seed) % DIRS);
        break;
    case 6:
    case 7:
        touch_file(a, seed);
        break;
    default:
        if (vfs_walk(&g_ctx, &g_ctx.cwd, a, WALK_FOLLOW, &p) == 0) {
            char *text;
            (void)vfs_getattr(&p, &st);
            if (vfs_path_text(&p, &g_ctx.root, &text) == 0)
                free(text);
            struct iattr attr = {.valid = ATTR_MODE, .mode = 0644};
            (void)vfs_setattr(g_ctx.creds, &p, &attr);
            path_put(&p);
        }
        break;
    }
}

static void stress_fiber(void *arg)
{
    unsigned seed = (unsigned)(uintptr_t)arg * 7919u + 1;
    for (int i = 0; i < ROUNDS; i++) {
        one_round(&seed);
        if (i % 8 == 0)
            fiber_yield();
    }
    g_running--;
}

static void run_all(void (*entry)(void *), unsigned count)
{
    g_running = count;
    for (unsigned i = 0; i < count; i++) {
        fiber_init(&g_fibers[g_set][i], i % 2, "stress");
        fiber_start(&g_fibers[g_set][i], entry, (void *)(uintptr_t)i);
    }
    g_set++;
    while (g_running)
        fiber_park(FIBER_UNINTERRUPTIBLE, in_ms(2));
}

static void make_tree(void)
{
    char path[32];
    for (unsigned d = 0; d < DIRS; d++) {
        snprintf(path, sizeof(path), "/d%u", d);
        cr_assert_eq(vfs_mkdir(&g_ctx, &g_ctx.cwd, path, 0755), 0);
        for (unsigned n = 0; n < NAMES; n += 2) {
            struct file *f;
            snprintf(path, sizeof(path), "/d%u/f%u", d, n);
            cr_assert_eq(vfs_open(&g_ctx, &g_ctx.cwd, path, O_CREAT | O_RDWR, 0644, 0, &f), 0);
            file_put(f);
        }
    }
}

static void remove_tree(void)
{
    char path[64];
    for (unsigned d = 0; d < DIRS; d++) {
        for (unsigned s = 0; s < 3; s++) {
            for (unsigned n = 0; n < NAMES; n++) {
                if (s < 2)
                    snprintf(path, sizeof(path), "/d%u/sub%u/f%u", d, s, n);
                else
                    snprintf(path, sizeof(path), "/d%u/f%u", d, n);
                (void)vfs_unlink(&g_ctx, &g_ctx.cwd, path);
            }
            snprintf(path, sizeof(path), "/d%u/sub%u", d, s);
            (void)vfs_rmdir(&g_ctx, &g_ctx.cwd, path);
        }
        snprintf(path, sizeof(path), "/d%u", d);
        cr_assert_eq(vfs_rmdir(&g_ctx, &g_ctx.cwd, path), 0);
    }
    dcache_drop_subtree(g_ctx.root.dentry);
}

static void tmpfs_body(void)
{
    struct superblock *sb;
    struct inode *root;
    cr_assert_eq(tmpfs_new(0755, 0, 0, 0, &sb, &root), 0);
    mount_root(sb, root);
    dcache_set_limit(20);
    uint64_t before = tmpfs_used();
    make_tree();
    run_all(stress_fiber, FIBERS);
    remove_tree();
    cr_assert_eq(tmpfs_used(), before);
    cr_assert_eq(root->nlink, 2);
}

static void overlay_body(void)
{
    struct superblock *sb;
    struct inode *lower;
    struct inode *root;
    cr_assert_eq(tmpfs_new(0755, 0, 0, 0, &sb, &lower), 0);
    mount_root(sb, lower);
    make_tree();
    g_lower_ns = g_ctx.ns;
    cr_assert_eq(overlay_new(lower, &sb, &root), 0);
    mount_root(sb, root);
    dcache_set_limit(20);
    run_all(stress_fiber, FIBERS);
    remove_tree();
    cr_assert_eq(root->nlink, 2);
}

Test(stress, a_tmpfs_under_several_fibers)
{
    g_ctx.creds = creds_new(0, 0, NULL, 0);
    fixture_init(2, 1, true);
    fixture_run(tmpfs_body);
}

Test(stress, an_overlay_under_several_fibers)
{
    g_ctx.creds = creds_new(0, 0, NULL, 0);
    fixture_init(2, 1, true);
    fixture_run(overlay_body);
}

/* ---- locks --------------------------------------------------------------------------------------
 */

static struct file *g_locked[2];
static _Atomic int g_inside;
static int g_deadlocks;
static char g_owners[2];

static void flock_fiber(void *arg)
{
    struct file *f = g_locked[(uintptr_t)arg];
    for (int i = 0; i < 500; i++) {
        cr_assert_eq(flock_set(f, LOCK_EX), 0);
        cr_assert_eq(g_inside++, 0);
        fiber_yield();
        cr_assert_eq(g_inside--, 1);
        cr_assert_eq(flock_set(f, LOCK_UN), 0);
    }
    g_running--;
}

static int take(int who, int64_t at)
{
    struct posix_lock l = {
        .type = F_WRLCK, .start = at, .end = at, .owner = &g_owners[who], .pid = who + 1};
    return posix_lock_set(g_locked[who], &l, true);
}

static void deadlock_fiber(void *arg)
{
    int who = (int)(uintptr_t)arg;
    cr_assert_eq(take(who, who), 0);
    while (g_inside < 2 && g_inside != -1) {
        if (who == 0 && g_inside == 0)
            g_inside = 1;
        if (who == 1 && g_inside == 1)
            g_inside = 2;
        fiber_yield();
    }
    int r = take(who, 1 - who);
    if (r == -EDEADLK)
        g_deadlocks++;
    else
        cr_assert_eq(r, 0);
    posix_lock_release_owner(g_locked[who]->inode, &g_owners[who]);
    g_running--;
}

static void locks_body(void)
{
    struct superblock *sb;
    struct inode *root;
    cr_assert_eq(tmpfs_new(0755, 0, 0, 0, &sb, &root), 0);
    mount_root(sb, root);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(vfs_open(&g_ctx, &g_ctx.cwd, "/l", O_CREAT | O_RDWR, 0644, 0, &g_locked[i]),
                     0);
    run_all(flock_fiber, 2);
    g_inside = 0;
    run_all(deadlock_fiber, 2);
    cr_assert_eq(g_deadlocks, 1);
    file_put(g_locked[0]);
    file_put(g_locked[1]);
}

Test(stress, locks_that_wait_exclude_and_deadlocks_are_found)
{
    g_ctx.creds = creds_new(0, 0, NULL, 0);
    fixture_init(2, 1, true);
    fixture_run(locks_body);
}
