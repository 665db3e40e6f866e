/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Credentials. credentials(7), capabilities(7), setresuid(2) and kin. Each change publishes a new
 * immutable set. Handlers run on the calling task's fiber.
 */
#define LOG_MODULE "syscalls"
#include "sentry/syscalls/syscalls.h"
#include "sentry/task/task.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CAP_SETGID_BIT 6
#define CAP_SETUID_BIT 7
#define KEEP ((uint32_t)-1)

static void publish(struct task *task, struct creds *c)
{
    lock_acquire(&task->state_lock);
    struct creds *old = task->creds;
    task->creds = c;
    lock_release(&task->state_lock);
    creds_put(old);
}

/* capabilities(7), "Effect of user ID changes on capabilities". */
static void adjust_caps(const struct creds *old, struct creds *c)
{
    if (c->securebits & (1u << 2)) /* SECBIT_NO_SETUID_FIXUP */
        return;
    bool had_root = old->uid == 0 || old->euid == 0 || old->suid == 0;
    bool has_root = c->uid == 0 || c->euid == 0 || c->suid == 0;
    if (had_root && !has_root) {
        if (!(c->securebits & (1u << 4))) { /* SECBIT_KEEP_CAPS */
            c->cap_permitted = 0;
            c->cap_effective = 0;
        }
        c->cap_ambient = 0;
    }
    if (old->euid == 0 && c->euid != 0)
        c->cap_effective = 0;
    if (old->euid != 0 && c->euid == 0)
        c->cap_effective = c->cap_permitted;
}

static bool is_one_of(uint32_t id, uint32_t a, uint32_t b, uint32_t c)
{
    return id == a || id == b || id == c;
}

int64_t sys_getuid(struct task *task)
{
    return task->creds->uid;
}

int64_t sys_geteuid(struct task *task)
{
    return task->creds->euid;
}

int64_t sys_getgid(struct task *task)
{
    return task->creds->gid;
}

int64_t sys_getegid(struct task *task)
{
    return task->creds->egid;
}

static int64_t copy_out_three(struct task *task, guest_addr a, guest_addr b, guest_addr c,
                              const uint32_t ids[3])
{
    if (copy_out_obj(task->mm, a, &ids[0]) != 0 || copy_out_obj(task->mm, b, &ids[1]) != 0 ||
        copy_out_obj(task->mm, c, &ids[2]) != 0)
        return -EFAULT;
    return 0;
}

int64_t sys_getresuid(struct task *task, guest_addr ruid, guest_addr euid, guest_addr suid)
{
    const struct creds *c = task->creds;
    return copy_out_three(task, ruid, euid, suid, (const uint32_t[]){c->uid, c->euid, c->suid});
}

int64_t sys_getresgid(struct task *task, guest_addr rgid, guest_addr egid, guest_addr sgid)
{
    const struct creds *c = task->creds;
    return copy_out_three(task, rgid, egid, sgid, (const uint32_t[]){c->gid, c->egid, c->sgid});
}

/* ---- user ids ----------------------------------------------------------------------------------- */

static int64_t publish_uids(struct task *task, uint32_t uid, uint32_t euid, uint32_t suid)
{
    struct creds *c = creds_copy(task->creds, NULL, 0);
    if (c == NULL)
        return -ENOMEM;
    bool changed = euid != c->euid;
    c->uid = uid;
    c->euid = c->fsuid = euid;
    c->suid = suid;
    adjust_caps(task->creds, c);
    publish(task, c);
    if (changed)
        task->group->dumpable = false;
    return 0;
}

int64_t sys_setuid(struct task *task, uint32_t uid)
{
    const struct creds *c = task->creds;
    if (uid == KEEP)
        return -EINVAL;
    if (creds_capable(c, CAP_SETUID_BIT))
        return publish_uids(task, uid, uid, uid);
    if (uid != c->uid && uid != c->suid)
        return -EPERM;
    return publish_uids(task, c->uid, uid, c->suid);
}

int64_t sys_setreuid(struct task *task, uint32_t ruid, uint32_t euid)
{
    const struct creds *c = task->creds;
    bool privileged = creds_capable(c, CAP_SETUID_BIT);
    uint32_t r = ruid == KEEP ? c->uid : ruid, e = euid == KEEP ? c->euid : euid;
    if (!privileged && r != c->uid && r != c->euid)
        return -EPERM;
    if (!privileged && !is_one_of(e, c->uid, c->euid, c->suid))
        return -EPERM;
    bool saves = ruid != KEEP || (euid != KEEP && euid != c->uid);
    return publish_uids(task, r, e, saves ? e : c->suid);
}

int64_t sys_setresuid(struct task *task, uint32_t ruid, uint32_t euid, uint32_t suid)
{
    const struct creds *c = task->creds;
    uint32_t r = ruid == KEEP ? c->uid : ruid, e = euid == KEEP ? c->euid : euid;
    uint32_t s = suid == KEEP ? c->suid : suid;
    if (!creds_capable(c, CAP_SETUID_BIT) &&
        (!is_one_of(r, c->uid, c->euid, c->suid) || !is_one_of(e, c->uid, c->euid, c->suid) ||
         !is_one_of(s, c->uid, c->euid, c->suid)))
        return -EPERM;
    return publish_uids(task, r, e, s);
}

int64_t sys_setfsuid(struct task *task, uint32_t uid)
{
    const struct creds *old = task->creds;
    uint32_t before = old->fsuid;
    bool allowed = creds_capable(old, CAP_SETUID_BIT) || uid == old->fsuid ||
                   is_one_of(uid, old->uid, old->euid, old->suid);
    struct creds *c = allowed && uid != KEEP ? creds_copy(old, NULL, 0) : NULL;
    if (c != NULL) {
        c->fsuid = uid;
        publish(task, c);
    }
    return before;
}

/* ---- group ids ---------------------------------------------------------------------------------- */

static int64_t publish_gids(struct task *task, uint32_t gid, uint32_t egid, uint32_t sgid)
{
    struct creds *c = creds_copy(task->creds, NULL, 0);
    if (c == NULL)
        return -ENOMEM;
    c->gid = gid;
    c->egid = c->fsgid = egid;
    c->sgid = sgid;
    publish(task, c);
    return 0;
}

int64_t sys_setgid(struct task *task, uint32_t gid)
{
    const struct creds *c = task->creds;
    if (gid == KEEP)
        return -EINVAL;
    if (creds_capable(c, CAP_SETGID_BIT))
        return publish_gids(task, gid, gid, gid);
    if (gid != c->gid && gid != c->sgid)
        return -EPERM;
    return publish_gids(task, c->gid, gid, c->sgid);
}

int64_t sys_setregid(struct task *task, uint32_t rgid, uint32_t egid)
{
    const struct creds *c = task->creds;
    bool privileged = creds_capable(c, CAP_SETGID_BIT);
    uint32_t r = rgid == KEEP ? c->gid : rgid, e = egid == KEEP ? c->egid : egid;
    if (!privileged && r != c->gid && r != c->egid)
        return -EPERM;
    if (!privileged && !is_one_of(e, c->gid, c->egid, c->sgid))
        return -EPERM;
    bool saves = rgid != KEEP || (egid != KEEP && egid != c->gid);
    return publish_gids(task, r, e, saves ? e : c->sgid);
}

int64_t sys_setresgid(struct task *task, uint32_t rgid, uint32_t egid, uint32_t sgid)
{
    const struct creds *c = task->creds;
    uint32_t r = rgid == KEEP ? c->gid : rgid, e = egid == KEEP ? c->egid : egid;
    uint32_t s = sgid == KEEP ? c->sgid : sgid;
    if (!creds_capable(c, CAP_SETGID_BIT) &&
        (!is_one_of(r, c->gid, c->egid, c->sgid) || !is_one_of(e, c->gid, c->egid, c->sgid) ||
         !is_one_of(s, c->gid, c->egid, c->sgid)))
        return -EPERM;
    return publish_gids(task, r, e, s);
}

int64_t sys_setfsgid(struct task *task, uint32_t gid)
{
    const struct creds *old = task->creds;
    uint32_t before = old->fsgid;
    bool allowed = creds_capable(old, CAP_SETGID_BIT) || gid == old->fsgid ||
                   is_one_of(gid, old->gid, old->egid, old->sgid);
    struct creds *c = allowed && gid != KEEP ? creds_copy(old, NULL, 0) : NULL;
    if (c != NULL) {
        c->fsgid = gid;
        publish(task, c);
    }
    return before;
}

int64_t sys_getgroups(struct task *task, int size, guest_addr list)
{
    const struct creds *c = task->creds;
    if (size < 0)
        return -EINVAL;
    if (size == 0)
        return (int64_t)c->group_count;
    if ((size_t)size < c->group_count)
        return -EINVAL;
    if (copy_out(task->mm, list, c->groups, c->group_count * sizeof c->groups[0]) != 0)
        return -EFAULT;
    return (int64_t)c->group_count;
}

static int compare_ids(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

int64_t sys_setgroups(struct task *task, int size, guest_addr list)
{
    if (!creds_capable(task->creds, CAP_SETGID_BIT))
        return -EPERM;
    if (size < 0 || size > CREDS_GROUPS_MAX)
        return -EINVAL;
    size_t count = (size_t)size;
    uint32_t *groups = malloc((count + 1) * sizeof *groups);
    if (groups == NULL)
        return -ENOMEM;
    int64_t r = count > 0 ? copy_in(task->mm, groups, list, count * sizeof *groups) : 0;
    if (r == 0) {
        qsort(groups, count, sizeof *groups, compare_ids);
        struct creds *c = creds_copy(task->creds, groups, count);
        if (c != NULL)
            publish(task, c);
        else
            r = -ENOMEM;
    }
    free(groups);
    return r;
}

/* ---- capabilities ------------------------------------------------------------------------------- */

struct linux_cap_header {
    uint32_t version;
    int32_t pid;
};
struct linux_cap_data {
    uint32_t effective, permitted, inheritable;
};
#define CAP_VERSION_1 0x19980330u
#define CAP_VERSION_2 0x20071026u
#define CAP_VERSION_3 0x20080522u

/* How many data elements the version has; 0 = unknown, and the header then tells ours. */
static int cap_elements(struct task *task, guest_addr addr, struct linux_cap_header *header,
                        size_t *ret_count)
{
    if (copy_in_obj(task->mm, header, addr) != 0)
        return -EFAULT;
    *ret_count = header->version == CAP_VERSION_1 ? 1
                 : header->version == CAP_VERSION_2 || header->version == CAP_VERSION_3 ? 2 : 0;
    if (*ret_count != 0)
        return 0;
    header->version = CAP_VERSION_3;
    return copy_out_obj(task->mm, addr, header) != 0 ? -EFAULT : -EINVAL;
}

int64_t sys_capget(struct task *task, guest_addr header_addr, guest_addr data)
{
    struct linux_cap_header header;
    size_t count;
    int r = cap_elements(task, header_addr, &header, &count);
    if (guest_addr_is_null(data) && (r == 0 || r == -EINVAL))
        return 0; /* only asks for the version */
    if (r != 0)
        return r;
    if (header.pid < 0)
        return -EINVAL;
    struct task *t = header.pid == 0 ? task : task_find(header.pid);
    if (t == NULL)
        return -ESRCH;
    struct creds *c = task_get_creds(t);
    if (t != task)
        task_put(t);
    struct linux_cap_data out[2] = {
        {(uint32_t)c->cap_effective, (uint32_t)c->cap_permitted, (uint32_t)c->cap_inheritable},
        {(uint32_t)(c->cap_effective >> 32), (uint32_t)(c->cap_permitted >> 32),
         (uint32_t)(c->cap_inheritable >> 32)}};
    creds_put(c);
    return copy_out(task->mm, data, out, count * sizeof out[0]);
}

int64_t sys_capset(struct task *task, guest_addr header_addr, guest_addr data)
{
    struct linux_cap_header header;
    struct linux_cap_data in[2] = {{0}};
    size_t count;
    int r = cap_elements(task, header_addr, &header, &count);
    if (r != 0)
        return r;
    if (header.pid != 0 && header.pid != task->tid)
        return -EPERM;
    if (copy_in(task->mm, in, data, count * sizeof in[0]) != 0)
        return -EFAULT;
    const struct creds *old = task->creds;
    uint64_t effective = in[0].effective | (uint64_t)in[1].effective << 32;
    uint64_t permitted = in[0].permitted | (uint64_t)in[1].permitted << 32;
    uint64_t inheritable = in[0].inheritable | (uint64_t)in[1].inheritable << 32;
    uint64_t all = (1ULL << 41) - 1;
    effective &= all;
    permitted &= all;
    inheritable &= all;
    bool setpcap = creds_capable(old, 8);
    if ((permitted & ~old->cap_permitted) || (effective & ~permitted))
        return -EPERM;
    if (!setpcap && (inheritable & ~(old->cap_inheritable | old->cap_permitted)))
        return -EPERM;
    if (inheritable & ~(old->cap_inheritable | old->cap_bounding))
        return -EPERM;
    struct creds *c = creds_copy(old, NULL, 0);
    if (c == NULL)
        return -ENOMEM;
    c->cap_effective = effective;
    c->cap_permitted = permitted;
    c->cap_inheritable = inheritable;
    c->cap_ambient &= permitted & inheritable;
    publish(task, c);
    return 0;
}
