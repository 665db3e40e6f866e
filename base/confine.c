/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Giving up rights, by raw system calls: the libc's wrappers for ids act on all threads by signals and
 * keep state; here there is one thread. Kernels without a feature are told apart from kernels that
 * refuse it: only the former is passed over.
 */
#include "base/confine.h"

#include "base/host.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/close_range.h>
#include <linux/keyctl.h>
#include <linux/landlock.h>
#include <linux/securebits.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#define CAP_COUNT_MAX 64

static int set_prctl(int option, unsigned long value)
{
    return (int)host_call5(SYS_prctl, option, value, 0, 0, 0);
}

static int join_new_keyring(void)
{
    int error = (int)host_call2(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL);
    /* No keyrings in this kernel, or an outer filter forbids the call: then nobody can use them here. */
    return error < 0 && error != -ENOSYS && error != -EPERM ? error : 0;
}

int confine_process(void)
{
    const struct rlimit none = {0, 0};
    int error = set_prctl(PR_SET_NO_NEW_PRIVS, 1);
    if (!error)
        error = set_prctl(PR_SET_DUMPABLE, 0);
    if (!error)
        error = (int)host_call4(SYS_prlimit64, 0, RLIMIT_CORE, &none, NULL);
    if (!error)
        error = set_prctl(PR_SET_PDEATHSIG, SIGKILL);
    return error ? error : join_new_keyring();
}

int confine_drop_groups(void)
{
    if (host_call2(SYS_getgroups, 0, NULL) == 0)
        return 0;
    return (int)host_call2(SYS_setgroups, 0, NULL);
}

int confine_set_ids(uid_t uid, gid_t gid, bool keep_caps)
{
    int error = set_prctl(PR_SET_KEEPCAPS, keep_caps);
    if (!error)
        error = (int)host_call3(SYS_setresgid, gid, gid, gid);
    if (!error)
        error = (int)host_call3(SYS_setresuid, uid, uid, uid);
    return error;
}

static int empty_bounding_set(void)
{
    for (int cap = 0; cap < CAP_COUNT_MAX; cap++) {
        int present = (int)host_call5(SYS_prctl, PR_CAPBSET_READ, cap, 0, 0, 0);
        if (present == -EINVAL)
            return 0; /* beyond the last one that this kernel has */
        if (present > 0) {
            int error = set_prctl(PR_CAPBSET_DROP, (unsigned long)cap);
            if (error)
                return error;
        }
    }
    return 0;
}

int confine_set_caps(uint64_t keep)
{
    struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[2];
    int error = (int)host_call2(SYS_capget, &header, data);
    if (error)
        return error;
    if (data[0].effective & 1u << CAP_SETPCAP) {
        error = empty_bounding_set();
        if (!error)
            error = set_prctl(PR_SET_SECUREBITS, SECBIT_NOROOT | SECBIT_NOROOT_LOCKED |
                                                     SECBIT_NO_SETUID_FIXUP | SECBIT_NO_SETUID_FIXUP_LOCKED |
                                                     SECBIT_KEEP_CAPS_LOCKED | SECBIT_NO_CAP_AMBIENT_RAISE |
                                                     SECBIT_NO_CAP_AMBIENT_RAISE_LOCKED);
        if (error)
            return error;
    }
    for (int i = 0; i < 2; i++) {
        uint32_t kept = data[i].permitted & (uint32_t)(keep >> (32 * i));
        data[i].permitted = kept;
        data[i].effective = kept;
        data[i].inheritable = 0;
    }
    /* With the inheritable set empty the ambient set is, too. */
    return (int)host_call2(SYS_capset, &header, data);
}

/* A detached empty tmpfs, read-only. */
static int make_empty_tree(void)
{
    AUTO_FD fs = (int)host_call2(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
    if (fs < 0)
        return fs;
    int error = (int)host_call5(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "mode", "0555", 0);
    if (!error)
        error = (int)host_call5(SYS_fsconfig, fs, FSCONFIG_SET_STRING, "nr_inodes", "2", 0);
    if (!error)
        error = (int)host_call5(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0);
    if (error)
        return error;
    return (int)host_call3(SYS_fsmount, fs, FSMOUNT_CLOEXEC,
                           MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC);
}

int confine_enter_empty_root(void)
{
    int error = (int)host_call5(SYS_mount, NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
    if (error)
        return error;
    AUTO_FD tree = make_empty_tree();
    if (tree < 0)
        return tree;
    /* On top of "/", so that no directory of the host is needed as a mount point; then it becomes the
     * root with the old one mounted on it, and that is taken away with all its mounts. */
    error = (int)host_call5(SYS_move_mount, tree, "", AT_FDCWD, "/", MOVE_MOUNT_F_EMPTY_PATH);
    if (!error)
        error = (int)host_call1(SYS_fchdir, tree);
    if (!error)
        error = (int)host_call2(SYS_pivot_root, ".", ".");
    if (!error)
        error = (int)host_call2(SYS_umount2, ".", MNT_DETACH);
    return error ? error : (int)host_call1(SYS_chdir, "/");
}

/* Newer than the headers of the oldest distribution we build on. */
struct landlock_rights {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
};

/* Rights of the file system by Landlock version: bits 0..12, then refer, truncate, ioctl_dev. */
static uint64_t landlock_fs_rights(long abi)
{
    uint64_t bits = (1u << 13) - 1;
    if (abi >= 2)
        bits |= 1u << 13;
    if (abi >= 3)
        bits |= 1u << 14;
    if (abi >= 5)
        bits |= 1u << 15;
    return bits;
}

int confine_landlock(int *ret_abi)
{
    long abi =
        host_call3(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    if (abi == -ENOSYS || abi == -EOPNOTSUPP) {
        *ret_abi = 0;
        return 0;
    }
    if (abi < 0)
        return (int)abi;
    struct landlock_rights rights = {.fs = landlock_fs_rights(abi)};
    size_t size = sizeof(rights.fs);
    if (abi >= 4) {
        rights.net = 3; /* bind and connect of TCP */
        size = offsetof(struct landlock_rights, scoped);
    }
    if (abi >= 6) {
        rights.scoped = 1; /* abstract Unix sockets; not signals: those go to stubs of other domains */
        size = sizeof(rights);
    }
    AUTO_FD ruleset = (int)host_call3(SYS_landlock_create_ruleset, &rights, size, 0);
    if (ruleset < 0)
        return ruleset;
    int error = (int)host_call2(SYS_landlock_restrict_self, ruleset, 0);
    if (error)
        return error;
    *ret_abi = (int)abi;
    return 0;
}

static int close_gap(unsigned first, unsigned last)
{
    if (first > last)
        return 0;
    return (int)host_call3(SYS_close_range, first, last, 0);
}

int confine_close_fds(const int *keep, size_t count)
{
    int sorted[32];
    size_t used = 0;
    if (count > ARRAY_COUNT(sorted))
        return -EINVAL;
    for (size_t i = 0; i < count; i++) { /* insertion sort */
        if (keep[i] < 0)
            continue;
        size_t at = used++;
        for (; at > 0 && sorted[at - 1] > keep[i]; at--)
            sorted[at] = sorted[at - 1];
        sorted[at] = keep[i];
    }
    unsigned first = 0;
    for (size_t i = 0; i < used; i++) {
        unsigned kept = (unsigned)sorted[i];
        int error = kept ? close_gap(first, kept - 1) : 0;
        if (error)
            return error;
        first = kept + 1;
    }
    return close_gap(first, ~0u);
}
