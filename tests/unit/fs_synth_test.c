/* SPDX-License-Identifier: Apache-2.0 */
/* sentry/fs/synth: growing texts, sets of processors, and what an open file of computed content
 * does. */
#include "tests/unit/vfs_fixture.h"

#include "sentry/fs/synth/synth.h"

#define LARGE_LINES 2500000 /* more than the texts' budget */

static unsigned g_shown; /* how often the content was made */
static char g_stored[64];

static int show_count(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    text_printf(out, "made %u times\n", ++g_shown);
    return 0;
}

static int show_large(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    for (int i = 0; i < LARGE_LINES; i++)
        text_printf(out, "line %8d\n", i);
    return 0;
}

static int store_word(const struct synth_key *key, const struct creds *writer, const char *bytes,
                      size_t size)
{
    (void)key, (void)writer;
    if (size >= sizeof g_stored)
        return -EINVAL;
    memcpy(g_stored, bytes, size + 1);
    return 0;
}

static int target_key(const struct synth_key *key, struct text *out)
{
    text_printf(out, "to/%d", key->id);
    return 0;
}

static const struct synth_row numbered_rows[] = {
    {.name = "link", .mode = S_IFLNK | 0777, .target = target_key}};
static const struct synth_rows numbered = SYNTH_ROWS(numbered_rows);
static const struct synth_row numbered_row = {
    .name = "", .mode = S_IFDIR | 0555, .rows = &numbered};

static int lookup_number(const struct synth_key *key, const char *name,
                         const struct synth_row **ret_row, struct synth_key *ret_key)
{
    (void)key;
    int n = synth_parse_number(name);
    if (n < 10 || n > 12)
        return -ENOENT;
    *ret_row = &numbered_row;
    ret_key->id = n;
    return 0;
}

static bool next_number(const struct synth_key *key, int64_t from, int64_t *ret_at, char name[32],
                        uint8_t *ret_type)
{
    (void)key;
    if (from > 12)
        return false;
    *ret_at = from < 10 ? 10 : from;
    *ret_type = S_IFDIR >> 12;
    snprintf(name, 32, "%d", (int)*ret_at);
    return true;
}

static const struct synth_dynamic numbers = {.lookup = lookup_number, .next = next_number};
static struct synth_value g_value = {.now = 5, .min = 0, .max = 9};
static const struct synth_row root_rows[] = {
    {.name = "fixed", .mode = S_IFREG | 0444, .content = "always\n"},
    {.name = "count", .mode = S_IFREG | 0444, .show = show_count},
    {.name = "large", .mode = S_IFREG | 0444, .show = show_large},
    {.name = "value", .mode = S_IFREG | 0644, .value = &g_value},
    {.name = "word", .mode = S_IFREG | 0200, .store = store_word},
};
static const struct synth_rows in_root = SYNTH_ROWS(root_rows);
static const struct synth_row root_row = {
    .name = "", .mode = S_IFDIR | 0555, .rows = &in_root, .dynamic = &numbers};

static void fixture_synth(void)
{
    static const struct superblock_ops ops;
    static struct synth_fs fs;
    superblock_init(&fs.sb, &ops, "synth", 1);
    struct inode *root = synth_root_new(&fs, &root_row);
    cr_assert(root);
    fixture_mount(&fs.sb, root);
    inode_put(root);
}

TestSuite(synth, .init = fixture_synth);

static ssize_t read_at(struct file *f, char *buffer, size_t size, int64_t pos)
{
    struct io io;
    io_init_kernel(&io, buffer, size);
    return vfs_pread(f, &io, pos);
}

static ssize_t write_text(struct file *f, const char *text)
{
    char copy[256];
    struct io io;
    snprintf(copy, sizeof copy, "%s", text);
    io_init_kernel(&io, copy, strlen(copy));
    return vfs_write(f, &io);
}

Test(synth, a_text_stays_the_same_until_it_is_read_at_0_again)
{
    char b[64] = {0};
    g_shown = 0;
    struct file *f = open_ok("/count", O_RDONLY, 0);
    cr_assert_eq(g_shown, 0, "nothing is made at open");
    cr_assert_eq(read_at(f, b, 4, 0), 4);
    cr_assert_eq(read_at(f, b, sizeof b, 4), 9);
    cr_assert_eq(memcmp(b, " 1 times\n", 8), 0);
    cr_assert_eq(read_at(f, b, sizeof b, 13), 0);
    cr_assert_eq(g_shown, 1);
    cr_assert_gt(read_at(f, b, sizeof b, 0), 0);
    cr_assert_eq(g_shown, 2);
    file_put(f);
}

Test(synth, a_large_text_is_read_whole_and_then_given_up)
{
    uint64_t before = tmpfs_used();
    char b[4096];
    int64_t at = 0;
    struct file *f = open_ok("/large", O_RDONLY, 0);
    for (ssize_t n; (n = read_at(f, b, sizeof b, at)) > 0; at += n)
        cr_assert_gt(tmpfs_used(), before, "it is charged to the sandbox");
    cr_assert_eq(at, LARGE_LINES * 14LL);
    cr_assert_eq(tmpfs_used(), before);
    file_put(f);
}

Test(synth, without_memory_in_the_sandbox_a_large_text_is_refused)
{
    char b[16];
    struct file *f = open_ok("/large", O_RDONLY, 0);
    tmpfs_set_limit(KIB(100));
    cr_assert_eq(read_at(f, b, sizeof b, 0), -ENOMEM);
    struct file *small = open_ok("/count", O_RDONLY, 0);
    cr_assert_gt(read_at(small, b, sizeof b, 0), 0, "others can still be read");
    file_put(small);
    tmpfs_set_limit(UINT64_MAX);
    cr_assert_eq(read_at(f, b, sizeof b, 0), 16);
    file_put(f);
}

Test(synth, modes_decide_who_may_write)
{
    use_creds(g_user);
    cr_assert_eq(open_error("/value", O_WRONLY), -EACCES);
    cr_assert_eq(open_error("/word", O_RDONLY), -EACCES);
    cr_assert_eq(open_error("/fixed", O_RDONLY), 0);
    use_creds(g_root);
}

Test(synth, values_are_parsed_and_kept_within_their_bounds)
{
    char b[16] = {0};
    struct file *f = open_ok("/value", O_RDWR | O_TRUNC, 0);
    cr_assert_eq(write_text(f, " 7\n"), 3);
    cr_assert_eq(read_at(f, b, sizeof b, 0), 2);
    cr_assert_str_eq(b, "7\n");
    cr_assert_eq(write_text(f, "10"), -EINVAL);
    cr_assert_eq(write_text(f, "x"), -EINVAL);
    cr_assert_eq(write_text(f, "1 2"), -EINVAL);
    cr_assert_eq(write_text(f, "99999999999999999999"), -ERANGE);
    cr_assert_eq(g_value.now, 7);
    file_put(f);
    f = open_ok("/word", O_WRONLY, 0);
    cr_assert_eq(write_text(f, "hello"), 5);
    cr_assert_str_eq(g_stored, "hello");
    file_put(f);
}

struct small_listing {
    struct dir_context ctx;
    char names[256];
    unsigned room; /* entries until the buffer is full */
};

static bool collect_some(struct dir_context *ctx, const char *name, size_t size, uint64_t ino,
                         uint8_t type, int64_t next_pos)
{
    struct small_listing *l = container_of(ctx, struct small_listing, ctx);
    (void)size, (void)type, (void)next_pos;
    cr_assert_neq(ino, 0);
    if (l->room-- == 0)
        return false;
    strcat(l->names, name);
    strcat(l->names, " ");
    return true;
}

Test(synth, a_listing_has_every_entry_once_whatever_the_buffer)
{
    for (unsigned room = 1; room < 12; room++) {
        struct small_listing l = {.ctx = {.emit = collect_some}};
        struct file *f = open_ok("/", O_RDONLY, 0);
        for (size_t before = SIZE_MAX; before != strlen(l.names);) {
            before = strlen(l.names);
            l.room = room;
            cr_assert_eq(vfs_iterate(f, &l.ctx), 0);
        }
        cr_assert_str_eq(l.names, ". .. fixed count large value word 10 11 12 ");
        file_put(f);
    }
}

Test(synth, names_that_do_not_exist_are_enoent_and_nothing_can_be_made)
{
    cr_assert_eq(open_error("/missing", O_RDONLY), -ENOENT);
    cr_assert_eq(open_error("/missing", O_RDWR | O_CREAT), -ENOENT);
    cr_assert_eq(open_error("/13/link", O_RDONLY), -ENOENT);
    cr_assert_eq(open_error("/010", O_RDONLY), -ENOENT);
    cr_assert_eq(vfs_mkdir(&g_ctx, &g_ctx.cwd, "/dir", 0755), -ENOENT);
    cr_assert_eq(vfs_unlink(&g_ctx, &g_ctx.cwd, "/fixed"), -EPERM);
    struct path p = {0};
    char *target = NULL;
    cr_assert_eq(vfs_walk(&g_ctx, &g_ctx.cwd, "/11/link", 0, &p), 0);
    cr_assert_eq(vfs_readlink(&p, &target), 0);
    cr_assert_str_eq(target, "to/11");
    free(target);
    path_put(&p);
}

Test(text, writes_processors_as_linux_does)
{
    static const struct {
        uint64_t mask;
        unsigned count;
        const char *list, *bits;
    } cases[] = {{1, 1, "0", "1"},
                 {3, 2, "0-1", "3"},
                 {0xff, 8, "0-7", "ff"},
                 {0x15, 5, "0,2,4", "15"},
                 {0x8f, 8, "0-3,7", "8f"},
                 {0xffffffffffffULL, 48, "0-47", "ffff,ffffffff"},
                 {UINT64_MAX, 64, "0-63", "ffffffff,ffffffff"}};
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct text t = {0};
        text_put_cpu_list(&t, cases[i].mask);
        text_put(&t, " ");
        text_put_cpu_mask(&t, cases[i].mask, cases[i].count);
        text_append(&t, "", 1);
        char expected[64];
        snprintf(expected, sizeof expected, "%s %s", cases[i].list, cases[i].bits);
        cr_assert_str_eq(t.bytes, expected);
        text_fini(&t);
    }
}

Test(text, escapes_pads_and_grows)
{
    struct text t = {0};
    text_put_escaped(&t, "a b\\c\n", " \n");
    text_pad(&t, 0, 20);
    text_append(&t, "", 1);
    cr_assert_str_eq(t.bytes, "a\\040b\\134c\\012     ");
    t.size = 0;
    for (int i = 0; i < 5000; i++)
        text_printf(&t, "%d,", i);
    cr_assert_eq(t.error, 0);
    cr_assert_eq(t.size, 10 * 2 + 90 * 3 + 900 * 4 + 4000 * 5);
    text_fini(&t);
    cr_assert_eq(tmpfs_used(), 0);
}
