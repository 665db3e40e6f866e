/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/{mounts,mountinfo,mountstats}: what is mounted, seen from the process's root directory.
 * Any fiber.
 */
#include "sentry/fs/proc/proc_internal.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>

#define ESCAPED " \t\n#"

/* The next mount by id, with a reference, so that nothing is locked while its text is written. */
static struct mount *next_mount(struct mount_namespace *ns, int after)
{
    struct mount *best = NULL, *m;
    lock_acquire(&ns->lock);
    TAILQ_FOREACH(m, &ns->mounts, entry)
    {
        if (m->id > after && (best == NULL || m->id < best->id))
            best = m;
    }
    if (best != NULL)
        atomic_fetch_add(&best->refs, 1);
    lock_release(&ns->lock);
    return best;
}

static void put_mount_options(struct text *out, const struct mount *m)
{
    static const struct {
        uint32_t flag;
        const char *name;
    } names[] = {{MS_NOSUID, ",nosuid"},
                 {MS_NODEV, ",nodev"},
                 {MS_NOEXEC, ",noexec"},
                 {MS_NOATIME, ",noatime"},
                 {MS_NODIRATIME, ",nodiratime"}};
    text_put(out, m->flags & MS_RDONLY ? "ro" : "rw");
    for (size_t i = 0; i < ARRAY_COUNT(names); i++)
        if (m->flags & names[i].flag)
            text_put(out, names[i].name);
    if (!(m->flags & MS_NOATIME))
        text_put(out, ",relatime");
}

static void put_mounts_line(struct text *out, const struct mount *m, const char *at)
{
    text_put_escaped(out, m->source, ESCAPED);
    text_put(out, " ");
    text_put_escaped(out, at, ESCAPED);
    text_printf(out, " %s ", m->sb->type_name);
    put_mount_options(out, m);
    text_put(out, " 0 0\n");
}

static void put_mountinfo_line(struct text *out, const struct mount *m, const char *at)
{
    const struct path inside = {.dentry = m->root};
    char *root = NULL;
    text_printf(out, "%d %d %u:%u ", m->id, m->parent != NULL ? m->parent->id : m->id,
                (unsigned)(m->sb->dev >> 8 & 0xfff), (unsigned)(m->sb->dev & 0xff));
    if (vfs_path_text(&inside, NULL, &root) == 0)
        text_put_escaped(out, root, ESCAPED);
    else
        text_put(out, "/");
    free(root);
    text_put(out, " ");
    text_put_escaped(out, at, ESCAPED);
    text_put(out, " ");
    put_mount_options(out, m);
    text_printf(out, " - %s ", m->sb->type_name);
    text_put_escaped(out, m->source, ESCAPED);
    text_put(out, m->flags & MS_RDONLY ? " ro\n" : " rw\n");
}

static void put_mountstats_line(struct text *out, const struct mount *m, const char *at)
{
    text_put(out, "device ");
    text_put_escaped(out, m->source, ESCAPED);
    text_put(out, " mounted on ");
    text_put_escaped(out, at, ESCAPED);
    text_printf(out, " with fstype %s\n", m->sb->type_name);
}

static int put_all(const struct synth_key *key, struct text *out,
                   void (*put)(struct text *out, const struct mount *m, const char *at))
{
    AUTO_SUBJECT s = {0};
    int r = subject_get(key, &s);
    if (r != 0)
        return r;
    struct fs_context *fs = subject_fs(&s);
    if (fs == NULL)
        return s.group->is_init ? 0 : -EINVAL; /* EINVAL is Linux's answer for zombies */
    lock_acquire(&fs->lock);
    AUTO_PATH root = fs->root;
    path_get(&root);
    lock_release(&fs->lock);
    struct mount *m;
    for (int after = -1; (m = next_mount(fs->ns, after)) != NULL;) {
        after = m->id;
        struct path place = {.mount = m, .dentry = m->root};
        char *at = NULL;
        dentry_get(place.dentry);
        if (vfs_path_text(&place, &root, &at) == 0 && at[0] == '/')
            put(out, m, at);
        free(at);
        path_put(&place); /* takes next_mount()'s reference */
    }
    fs_context_put(fs);
    return 0;
}

int proc_show_mounts(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    return put_all(key, out, put_mounts_line);
}

int proc_show_mountinfo(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    return put_all(key, out, put_mountinfo_line);
}

int proc_show_mountstats(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)reader;
    return put_all(key, out, put_mountstats_line);
}
