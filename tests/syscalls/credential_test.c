/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials: the set*id family, groups, capabilities, set-id programs, no_new_privs. */
#include "show.h"
#include <grp.h>
#include <linux/capability.h>
#include <linux/securebits.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

static void show_ids(const char *what)
{
    uid_t r, e, s;
    gid_t gr, ge, gs;
    getresuid(&r, &e, &s);
    getresgid(&gr, &ge, &gs);
    printf("%s: uid %d %d %d fs %d, gid %d %d %d\n", what, r, e, s, setfsuid((uid_t)-1), gr, ge, gs);
}

static bool has_cap(int cap)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    syscall(SYS_capget, &header, data);
    return data[cap / 32].effective & (1U << (cap % 32));
}

static bool permits_cap(int cap)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    syscall(SYS_capget, &header, data);
    return data[cap / 32].permitted & (1U << (cap % 32));
}

static int drop_for_good(void)
{
    OK(setuid(1000));
    show_ids("setuid by root");
    OK(setuid(0));
    OK(seteuid(0));
    OK(setresuid(0, -1U, -1U));
    OK(setgid(5));
    OK(setgroups(0, NULL));
    YES(!has_cap(CAP_CHOWN) && !permits_cap(CAP_CHOWN));
    return 0;
}

static int drop_for_now(void)
{
    OK(seteuid(1000));
    show_ids("seteuid");
    YES(!has_cap(CAP_CHOWN) && permits_cap(CAP_CHOWN));
    OK(setuid(500));
    OK(setreuid(1000, 0));
    show_ids("setreuid");
    YES(has_cap(CAP_CHOWN));
    OK(setresuid(1, 2, 3));
    show_ids("setresuid");
    YES(!permits_cap(CAP_CHOWN));
    OK(setresuid(3, 1, 2));
    OK(setresuid(4, -1U, -1U));
    OK(setreuid(-1U, 3));
    show_ids("setreuid");
    OK(setuid(1));
    return 0;
}

static int saved_follows(void)
{
    OK(setreuid(7, 8)); /* a changed real id sets the saved one to the effective */
    show_ids("setreuid 7 8");
    return 0;
}

static int groups(void)
{
    gid_t list[40] = {0}, set[3] = {30, 10, 20};
    OK(setgroups(3, set));
    VAL(getgroups(0, NULL));
    OK(getgroups(2, list));
    VAL(getgroups(40, list));
    printf("%d %d %d\n", list[0], list[1], list[2]);
    OK(syscall(SYS_getgroups, -1, list));
    OK(syscall(SYS_setgroups, 65537, list));
    OK(syscall(SYS_setgroups, 2, 8));
    OK(setresgid(1, 2, 3));
    show_ids("setresgid");
    OK(setgid(9));
    show_ids("setgid");
    OK(setegid(4));
    show_ids("setegid");
    OK(setregid(5, -1U));
    show_ids("setregid");
    VAL(setfsgid(77));
    VAL(setfsgid(-1U));
    OK(setegid(6));
    VAL(setfsgid(-1U));
    return 0;
}

static int capabilities(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2], none[2] = {{0}};
    OK(syscall(SYS_capget, &header, data));
    uint32_t full = data[0].permitted;
    header.version = 1;
    OK(syscall(SYS_capget, &header, data));
    YES(header.version == _LINUX_CAPABILITY_VERSION_3);
    OK(syscall(SYS_capget, &header, NULL));
    header.pid = 1 << 29;
    OK(syscall(SYS_capget, &header, data));
    header.pid = getppid();
    OK(syscall(SYS_capset, &header, data));
    header.pid = 0;
    data[0] = (struct __user_cap_data_struct){full & ~(1U << CAP_CHOWN), full, 0};
    OK(syscall(SYS_capset, &header, data));
    OK(close(make_file("capfile", "")));
    OK(chown("capfile", 5, 5));
    data[0].effective = full & ~(1U << CAP_DAC_OVERRIDE) & ~(1U << CAP_DAC_READ_SEARCH);
    OK(syscall(SYS_capset, &header, data));
    OK(chown("capfile", 5, 5));
    OK(chmod("capfile", 0600));
    OK(open("capfile", O_RDONLY));
    data[0].effective = full;
    OK(syscall(SYS_capset, &header, data));
    OK(open("capfile", O_RDONLY));
    data[0].permitted = full & ~(1U << CAP_KILL);
    data[0].effective = data[0].permitted;
    OK(syscall(SYS_capset, &header, data));
    data[0].permitted = full;
    OK(syscall(SYS_capset, &header, data)); /* what's gone is gone */
    VAL(prctl(PR_CAPBSET_READ, CAP_CHOWN));
    OK(prctl(PR_CAPBSET_DROP, CAP_CHOWN));
    VAL(prctl(PR_CAPBSET_READ, CAP_CHOWN));
    OK(prctl(PR_CAPBSET_READ, 99));
    OK(syscall(SYS_capset, &header, none));
    OK(setuid(5));
    OK(chown("capfile", 0, 0));
    return 0;
}

static int keep(void)
{
    VAL(prctl(PR_GET_KEEPCAPS));
    OK(prctl(PR_SET_KEEPCAPS, 1));
    OK(setuid(1000));
    YES(permits_cap(CAP_CHOWN) && !has_cap(CAP_CHOWN));
    OK(prctl(PR_SET_KEEPCAPS, 2));
    return 0;
}

static int ambient(void)
{
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2];
    VAL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0));
    OK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0)); /* not inheritable yet */
    syscall(SYS_capget, &header, data);
    data[0].inheritable |= 1U << CAP_CHOWN;
    OK(syscall(SYS_capset, &header, data));
    OK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_CHOWN, 0, 0));
    VAL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0));
    OK(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0));
    VAL(prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_IS_SET, CAP_CHOWN, 0, 0));
    VAL(prctl(PR_GET_SECUREBITS));
    OK(prctl(PR_SET_SECUREBITS, SECBIT_NOROOT));
    VAL(prctl(PR_GET_SECUREBITS) == SECBIT_NOROOT);
    return 0;
}

/* A copy of this program, set-uid to 1234, tells which ids it runs with. */
static char suid_path[80];

static int run_suid(void)
{
    if (setgid(1000) < 0 || setuid(1000) < 0)
        return 1;
    execl(suid_path, "suid", "ids", (char *)NULL);
    return errno;
}

static int run_suid_no_new_privs(void)
{
    OK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    VAL(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0));
    OK(prctl(PR_SET_NO_NEW_PRIVS, 0, 0, 0, 0));
    return run_suid();
}

static int root_execs(void)
{
    execl(suid_path, "suid", "ids", (char *)NULL);
    return errno;
}

static bool copy_self(const char *to)
{
    char bytes[4096];
    ssize_t n;
    int in = open("/proc/self/exe", O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_EXCL, 0755);
    while ((n = read(in, bytes, sizeof(bytes))) > 0) {
        if (write(out, bytes, (size_t)n) != n)
            return false;
    }
    return close(in) == 0 && close(out) == 0;
}

int main(int argc, char **argv)
{
    start();
    if (argc > 1 && strcmp(argv[1], "ids") == 0) {
        show_ids("set-id program");
        printf("caps %d\n", has_cap(CAP_CHOWN));
        return 0;
    }
    start_in_dir();
    show_ids("start");
    child("for good", drop_for_good);
    child("for now", drop_for_now);
    child("saved", saved_follows);
    child("groups", groups);
    child("capabilities", capabilities);
    child("keepcaps", keep);
    child("ambient", ambient);
    snprintf(suid_path, sizeof(suid_path), "%s/suid", show_dir);
    YES(copy_self(suid_path));
    OK(chown(suid_path, 1234, 5678));
    OK(chmod(suid_path, 06755));
    child("set-uid", run_suid);
    child("no_new_privs", run_suid_no_new_privs);
    child("root runs set-uid", root_execs);
    OK(chown(suid_path, 0, 0));
    OK(chmod(suid_path, 04755));
    child("set-uid root", run_suid);
    OK(setuid(-1U));
    OK(setresuid(-1U, -1U, -1U));
    return 0;
}
