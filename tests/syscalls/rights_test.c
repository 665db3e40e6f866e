/* SPDX-License-Identifier: Apache-2.0 */
/* What the real user of a set-user-ID program may do to its process: as little as any stranger. */
#include "show.h"
#include <grp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>

/* A process as a set-user-ID program of root's would be that user 1234 started. */
static pid_t privileged(void)
{
    int ready[2];
    char byte = 0;
    if (pipe(ready) != 0)
        exit(1);
    pid_t pid = fork();
    if (pid == 0) {
        bool done = setresgid(1234, 0, 0) == 0 && setresuid(1234, 0, 0) == 0;
        (void)!write(ready[1], done ? "y" : "n", 1);
        pause();
        _exit(0);
    }
    (void)!read(ready[0], &byte, 1);
    YES(byte == 'y');
    return pid;
}

static void stranger(pid_t target)
{
    struct rlimit limit = {100, 100}, old;
    struct sched_param param = {0};
    cpu_set_t cpus;
    void *head;
    size_t size;
    char bytes[16];
    struct iovec local = {bytes, sizeof bytes}, remote = {bytes, sizeof bytes};
    if (setgroups(0, NULL) != 0 || setresgid(1234, 1234, 1234) != 0 || setresuid(1234, 1234, 1234) != 0)
        exit(1);
    int fd = (int)syscall(SYS_pidfd_open, target, 0);
    OK(syscall(SYS_pidfd_getfd, fd, 1, 0));
    OK(prlimit(target, RLIMIT_NOFILE, NULL, &old));
    OK(prlimit(target, RLIMIT_NOFILE, &limit, NULL));
    CPU_ZERO(&cpus);
    CPU_SET(0, &cpus);
    OK(sched_setaffinity(target, sizeof cpus, &cpus));
    OK(sched_setscheduler(target, SCHED_BATCH, &param));
    OK(sched_setscheduler(getppid(), SCHED_BATCH, &param));
    OK(syscall(SYS_ioprio_set, 1, target, 2 << 13));
    OK(syscall(SYS_ioprio_set, 1, getppid(), 2 << 13));
    OK(setpriority(PRIO_PROCESS, (id_t)target, 5));
    OK(setpriority(PRIO_PROCESS, (id_t)getpid(), 5));
    OK(sched_setaffinity(0, sizeof cpus, &cpus));
    OK(syscall(SYS_get_robust_list, target, &head, &size));
    OK(syscall(SYS_process_vm_readv, target, &local, 1UL, &remote, 1UL, 0UL));
}

int main(void)
{
    start();
    if (geteuid() != 0)
        return 0;
    pid_t target = privileged();
    pid_t pid = fork();
    if (pid == 0) {
        stranger(target);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    show_status("stranger", status);
    kill(target, SIGKILL);
    waitpid(target, &status, 0);
    show_status("target", status);
    return 0;
}
