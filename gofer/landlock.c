/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Landlock rules of the gofer: reading beneath each attach point, changes beneath the writable ones; never
 * execution, device nodes, FIFOs, sockets, the network. Runs once, before the filter.
 */
#include "gofer/landlock.h"

#include "base/host.h"
#include "gofer/server.h"
#include "gofer/start.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/landlock.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/syscall.h>

/* Newer than the headers of the oldest distribution we build on. */
#define ACCESS_REFER    (1u << 13) /* version 2 */
#define ACCESS_TRUNCATE (1u << 14) /* 3 */
#define ACCESS_IOCTL    (1u << 15) /* 5 */
struct ruleset {
    uint64_t fs;
    uint64_t net;
    uint64_t scoped;
};

static struct ruleset everything(long abi, size_t *ret_size)
{
    struct ruleset rules = {.fs = (1u << 13) - 1};
    *ret_size = sizeof(rules.fs);
    if (abi >= 2)
        rules.fs |= ACCESS_REFER;
    if (abi >= 3)
        rules.fs |= ACCESS_TRUNCATE;
    if (abi >= 5)
        rules.fs |= ACCESS_IOCTL;
    if (abi >= 4) {
        rules.net = 3; /* bind and connect of TCP */
        *ret_size = offsetof(struct ruleset, scoped);
    }
    if (abi >= 6) {
        rules.scoped = 3; /* abstract Unix sockets, signals */
        *ret_size = sizeof(rules);
    }
    return rules;
}

static int add_root(int ruleset, const struct gofer_root *root, uint64_t handled)
{
    struct stat st;
    int error = (int)host_call4(SYS_newfstatat, root->hfd, "", &st, AT_EMPTY_PATH);
    if (error)
        return error;
    uint64_t access = LANDLOCK_ACCESS_FS_READ_FILE;
    if (root->is_writable)
        access |= LANDLOCK_ACCESS_FS_WRITE_FILE | ACCESS_TRUNCATE;
    if (S_ISDIR(st.st_mode)) {
        access |= LANDLOCK_ACCESS_FS_READ_DIR;
        if (root->is_writable)
            access |= LANDLOCK_ACCESS_FS_REMOVE_DIR | LANDLOCK_ACCESS_FS_REMOVE_FILE |
                      LANDLOCK_ACCESS_FS_MAKE_DIR | LANDLOCK_ACCESS_FS_MAKE_REG |
                      LANDLOCK_ACCESS_FS_MAKE_SYM | ACCESS_REFER;
    }
    struct landlock_path_beneath_attr rule = {.allowed_access = access & handled, .parent_fd = root->hfd};
    return (int)host_call4(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
}

int gofer_landlock(const struct gofer_server *server, int *ret_abi)
{
    struct gofer_root roots[GOFER_ATTACHES_MAX];
    long abi = host_call3(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    *ret_abi = 0;
    if (abi == -ENOSYS || abi == -EOPNOTSUPP)
        return 0;
    if (abi < 0)
        return (int)abi;
    size_t size;
    struct ruleset rules = everything(abi, &size);
    AUTO_FD ruleset = (int)host_call3(SYS_landlock_create_ruleset, &rules, size, 0);
    if (ruleset < 0)
        return ruleset;
    size_t count = gofer_server_roots(server, roots);
    for (size_t i = 0; i < count; i++) {
        int error = add_root(ruleset, &roots[i], rules.fs);
        if (error)
            return error;
    }
    int error = (int)host_call2(SYS_landlock_restrict_self, ruleset, 0);
    if (!error)
        *ret_abi = (int)abi;
    return error;
}
