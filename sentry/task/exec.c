/* SPDX-License-Identifier: Apache-2.0 */
/*
 * execve: finds the image (scripts, interpreter), builds it in a fresh address space, and only when
 * everything stands moves the task over, so that a failure leaves the old program running. Runs on the
 * task's fiber. The files' bytes are hostile; the loader judges them.
 */
#define LOG_MODULE "exec"
#include "base/log.h"
#include "loader/loader.h"
#include "sentry/task/table.h"
#include "sentry/task/host_facts.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>

#ifndef AT_MINSIGSTKSZ
#define AT_MINSIGSTKSZ 51
#endif

#define EXEC_SEGMENTS_MAX (2 * LOADER_SEGMENTS_MAX)
#define STACK_STRINGS_MAX MIB(6)

/* One ELF file of the image: the program or its interpreter. */
struct image {
    struct file *file; /* ref; write-denied while `denied` */
    bool denied;
    uint8_t head[LOADER_HEAD_SIZE];
    size_t head_size;
    struct loader_elf elf;
    uint64_t bias;
};

/* Everything an execve works on: too large for a fiber's stack. */
struct exec_state {
    struct image program, interpreter;
    bool has_interpreter;
    const char *execfn;             /* borrowed */
    bool path_is_lost;
    char **argv;                    /* owned array of owned strings: the scripts' words included */
    size_t argc;
    const struct exec_strings *envp;
    struct loader_script script;
    char interp_path[LOADER_INTERP_MAX];
    struct mm_exec_segment segments[EXEC_SEGMENTS_MAX];
    size_t segment_count;
    struct loader_auxv auxv[LOADER_AUXV_MAX];
    size_t auxv_count;
    struct mm *mm;                  /* the new one; ref */
    struct platform_thread *pt;     /* owned until the task takes it */
    uint64_t stack_top;
    struct creds *creds;            /* ref: what the image runs with */
    bool secure;
};

/* ---- finding the image -------------------------------------------------------------------------- */

static void image_close(struct image *image)
{
    if (image->file == NULL)
        return;
    if (image->denied)
        atomic_fetch_add(&image->file->inode->writers, 1);
    file_put(image->file);
    image->file = NULL;
    image->denied = false;
}

/* Takes over the reference to `f`. */
static int image_open(struct image *image, struct file *f)
{
    image_close(image);
    image->file = f;
    struct inode *inode = f->inode;
    if (!S_ISREG(inode->mode) || (f->path.mount->flags & MS_NOEXEC))
        return -EACCES;
    int32_t writers = atomic_load(&inode->writers);
    do {
        if (writers > 0)
            return -ETXTBSY;
    } while (!atomic_compare_exchange_weak(&inode->writers, &writers, writers - 1));
    image->denied = true;
    ssize_t n = file_read_at(f, image->head, sizeof image->head, 0);
    if (n < 0)
        return (int)n;
    image->head_size = (size_t)n;
    return 0;
}

static int open_by_path(struct task *t, const char *path, struct file **ret)
{
    struct walk_context ctx;
    task_walk_begin(t, &ctx);
    struct path p = {0};
    int r = vfs_walk(&ctx, &ctx.cwd, path, WALK_FOLLOW, &p);
    if (r == 0) {
        r = exec_open_path(&ctx, &p, ret);
        path_put(&p);
    }
    task_walk_end(&ctx);
    return r;
}

int exec_open_path(const struct walk_context *ctx, const struct path *p, struct file **ret)
{
    struct inode *inode = p->dentry->inode;
    if (inode == NULL)
        return -ENOENT;
    return vfs_open_exec(ctx, p, ret);
}

/* argv becomes: interpreter [argument] path argv[1…]. */
static int push_script(struct exec_state *s, const char *script_path)
{
    size_t extra = s->script.has_argument ? 2 : 1;
    size_t keep = s->argc > 0 ? s->argc - 1 : 0;
    char **argv = calloc(keep + extra + 2, sizeof *argv);
    if (argv == NULL)
        return -ENOMEM;
    size_t n = 0;
    argv[n++] = strdup(s->script.interpreter);
    if (s->script.has_argument)
        argv[n++] = strdup(s->script.argument);
    argv[n++] = strdup(script_path);
    for (size_t i = 0; i < keep; i++)
        argv[n + i] = s->argv[i + 1];
    if (s->argc > 0)
        free(s->argv[0]);
    free(s->argv);
    s->argv = argv;
    s->argc = n + keep;
    for (size_t i = 0; i < n; i++)
        if (argv[i] == NULL)
            return -ENOMEM;
    return 0;
}

static int read_elf(struct image *image)
{
    struct kstat st;
    int r = inode_getattr(image->file->inode, &st);
    if (r != 0)
        return r;
    uint64_t offset;
    size_t size;
    r = loader_parse_ehdr(image->head, image->head_size, st.size, &offset, &size);
    if (r != 0)
        return r;
    uint8_t *phdrs = malloc(size + 1);
    if (phdrs == NULL)
        return -ENOMEM;
    ssize_t n = file_read_at(image->file, phdrs, size, (int64_t)offset);
    if (n == (ssize_t)size)
        r = loader_plan_elf(image->head, image->head_size, phdrs, size, st.size, &image->elf);
    else
        r = n < 0 ? (int)n : -ENOEXEC;
    free(phdrs);
    return r;
}

static int open_interpreter(struct task *t, struct exec_state *s)
{
    const struct loader_elf *elf = &s->program.elf;
    if (elf->interp_size == 0)
        return 0;
    if (elf->interp_size > sizeof s->interp_path)
        return -ENOEXEC;
    ssize_t n = file_read_at(s->program.file, s->interp_path, elf->interp_size,
                             (int64_t)elf->interp_offset);
    if (n != (ssize_t)elf->interp_size)
        return n < 0 ? (int)n : -EIO;
    int r = loader_check_interp((const uint8_t *)s->interp_path, elf->interp_size);
    struct file *f = NULL;
    if (r == 0)
        r = open_by_path(t, s->interp_path, &f);
    if (r != 0)
        return r;
    r = image_open(&s->interpreter, f);
    enum loader_kind kind;
    if (r == 0)
        r = loader_identify(s->interpreter.head, s->interpreter.head_size, &kind);
    if (r == 0)
        r = kind == LOADER_ELF ? read_elf(&s->interpreter) : -ELIBBAD;
    s->has_interpreter = r == 0;
    return r == -ENOEXEC ? -ELIBBAD : r;
}

/* Follows scripts until an ELF file is found. `path` names the file that was opened. */
static int find_image(struct task *t, struct exec_state *s, struct file *file, const char *path)
{
    file_get(file);
    int r = image_open(&s->program, file);
    for (int depth = 0; r == 0; depth++) {
        enum loader_kind kind;
        r = loader_identify(s->program.head, s->program.head_size, &kind);
        if (r != 0)
            return r;
        if (kind == LOADER_ELF) {
            r = read_elf(&s->program);
            return r == 0 ? open_interpreter(t, s) : r;
        }
        if (depth == 0 && s->path_is_lost)
            return -ENOENT;
        if (depth >= LOADER_SCRIPT_DEPTH_MAX)
            return -ELOOP;
        r = loader_parse_script(s->program.head, s->program.head_size, &s->script);
        if (r == 0)
            r = push_script(s, depth == 0 ? path : s->interp_path);
        if (r != 0)
            return r;
        memcpy(s->interp_path, s->script.interpreter, sizeof s->script.interpreter);
        struct file *f;
        r = open_by_path(t, s->interp_path, &f);
        if (r == 0)
            r = image_open(&s->program, f);
    }
    return r;
}

/* ---- credentials -------------------------------------------------------------------------------- */

/* capabilities(7), "Transformation of capabilities during execve()"; set-id bits. */
static int choose_creds(struct task *t, struct exec_state *s)
{
    const struct creds *old = t->creds;
    struct inode *inode = s->program.file->inode;
    struct creds *c = creds_copy(old, NULL, 0);
    if (c == NULL)
        return -ENOMEM;
    bool honours = !old->no_new_privs && !(s->program.file->path.mount->flags & MS_NOSUID);
    if (honours && (inode->mode & S_ISUID))
        c->euid = inode->uid;
    if (honours && (inode->mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP))
        c->egid = inode->gid;
    bool changed = c->euid != old->euid || c->egid != old->egid;
    c->suid = c->fsuid = c->euid;
    c->sgid = c->fsgid = c->egid;
    uint64_t ambient = changed ? 0 : c->cap_ambient;
    bool root = (c->uid == 0 || c->euid == 0) && !(c->securebits & 1u /* SECBIT_NOROOT */);
    c->cap_permitted = root ? (c->cap_inheritable | c->cap_bounding) : ambient;
    c->cap_effective = root && c->euid == 0 ? c->cap_permitted : ambient;
    c->cap_ambient = ambient;
    c->securebits &= ~(1u << 4); /* SECBIT_KEEP_CAPS */
    s->secure = changed || c->uid != c->euid || c->gid != c->egid;
    s->creds = c;
    return 0;
}

/* ---- building ----------------------------------------------------------------------------------- */

static int add_segments(struct exec_state *s, struct image *image)
{
    const struct loader_elf *elf = &image->elf;
    for (size_t i = 0; i < elf->segment_count; i++) {
        const struct loader_segment *seg = &elf->segments[i];
        if (s->segment_count == EXEC_SEGMENTS_MAX)
            return -ENOEXEC;
        s->segments[s->segment_count++] = (struct mm_exec_segment){
            .addr = seg->vaddr + image->bias,
            .size = seg->size,
            .offset = seg->offset,
            .prot = seg->prot,
            .object = seg->is_anonymous ? NULL : &image->file->mappable,
            .zero_from = seg->zero_from != 0 ? seg->zero_from + image->bias : 0,
        };
    }
    return 0;
}

static void auxv_add(struct exec_state *s, uint64_t type, uint64_t value)
{
    ASSERT(s->auxv_count < LOADER_AUXV_MAX);
    s->auxv[s->auxv_count++] = (struct loader_auxv){type, value};
}

static void fill_auxv(struct exec_state *s)
{
    const struct loader_elf *elf = &s->program.elf;
    const struct host_facts *facts = host_facts();
    uint64_t bias = s->program.bias;
    if (g_sandbox.info->vdso.va != 0)
        auxv_add(s, AT_SYSINFO_EHDR, g_sandbox.info->vdso.va);
    auxv_add(s, AT_MINSIGSTKSZ, facts->min_sigstack_size);
    auxv_add(s, AT_HWCAP, facts->hwcap);
    auxv_add(s, AT_PAGESZ, PAGE_SIZE);
    auxv_add(s, AT_CLKTCK, 100);
    auxv_add(s, AT_PHDR, elf->phdr_vaddr != 0 ? elf->phdr_vaddr + bias : 0);
    auxv_add(s, AT_PHENT, sizeof(Elf64_Phdr));
    auxv_add(s, AT_PHNUM, elf->phdr_count);
    auxv_add(s, AT_BASE, s->has_interpreter ? s->interpreter.bias : 0);
    auxv_add(s, AT_FLAGS, 0);
    auxv_add(s, AT_ENTRY, elf->entry + bias);
    auxv_add(s, AT_UID, s->creds->uid);
    auxv_add(s, AT_EUID, s->creds->euid);
    auxv_add(s, AT_GID, s->creds->gid);
    auxv_add(s, AT_EGID, s->creds->egid);
    auxv_add(s, AT_SECURE, s->secure);
    auxv_add(s, AT_HWCAP2, facts->hwcap2);
}

static int build_stack(struct task *t, struct exec_state *s, uint64_t stack_limit)
{
    struct loader_stack_input in = {
        .argv = (const char *const *)s->argv,
        .argc = s->argc,
        .envp = (const char *const *)s->envp->strings,
        .envc = s->envp->count,
        .execfn = s->execfn,
        .auxv = s->auxv,
        .auxv_count = s->auxv_count,
        .top = s->stack_top,
    };
    host_random(in.random, sizeof in.random);
    uint64_t limit = stack_limit / 4 < STACK_STRINGS_MAX ? stack_limit / 4 : STACK_STRINGS_MAX;
    if (limit < KIB(128))
        limit = KIB(128);
    uint64_t size;
    int r = loader_stack_size(&in, limit, &size);
    if (r != 0)
        return r;
    uint8_t *image = calloc(1, size);
    if (image == NULL)
        return -ENOMEM;
    struct loader_stack_layout stack;
    loader_build_stack(&in, image, size, &stack);
    r = copy_out(s->mm, GUEST_ADDR(s->stack_top - size), image, size);
    free(image);
    if (r != 0)
        return r;
    struct mm_layout *layout = mm_layout_of(s->mm);
    layout->start_stack = stack.sp;
    layout->arg_start = stack.arg_start;
    layout->arg_end = stack.arg_end;
    layout->env_start = stack.env_start;
    layout->env_end = stack.env_end;
    layout->auxv_start = stack.auxv_start;
    layout->auxv_size = stack.auxv_size;
    struct guest_regs *regs = platform_thread_regs(s->pt);
    memset(regs, 0, sizeof *regs);
    const struct image *first = s->has_interpreter ? &s->interpreter : &s->program;
    regs->rip = first->elf.entry + first->bias;
    regs->rsp = stack.sp;
    regs->eflags = 0x202;
    (void)t;
    return 0;
}

static void choose_addresses(struct exec_state *s)
{
    struct loader_elf *elf = &s->program.elf;
    if (elf->is_pie)
        s->program.bias =
            mm_exec_choose_base(s->mm, elf->high - elf->low, elf->align, false) - elf->low;
    if (!s->has_interpreter)
        return;
    struct loader_elf *interp = &s->interpreter.elf;
    if (interp->is_pie)
        s->interpreter.bias =
            mm_exec_choose_base(s->mm, interp->high - interp->low, interp->align, true) - interp->low;
}

/* Where the program's code and data lie, for /proc/PID/stat: as Linux's ELF loader has it. */
static void note_layout(struct mm_layout *l, const struct mm_exec_segment *segments, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const struct mm_exec_segment *s = &segments[i];
        uint64_t end = s->zero_from != 0 ? s->zero_from : s->addr + s->size;
        if ((s->prot & PROT_EXEC) != 0) {
            if (l->start_code == 0 || s->addr < l->start_code)
                l->start_code = s->addr;
            if (end > l->end_code)
                l->end_code = end;
        }
        if (s->object != NULL && s->addr > l->start_data)
            l->start_data = s->addr;
        if (s->object != NULL && end > l->end_data)
            l->end_data = end;
    }
}

static int build_space(struct task *t, struct exec_state *s)
{
    struct platform_space *space;
    int r = platform_space_new(g_sandbox.platform, t->fiber.worker, &space, &s->pt);
    if (r != 0)
        return r;
    r = mm_new(g_sandbox.platform, space, &s->mm);
    platform_space_put(space);
    if (r != 0)
        return r;
    uint64_t stack_limit = task_rlimit(t, RLIMIT_STACK);
    s->stack_top = mm_exec_layout(s->mm, stack_limit);
    choose_addresses(s);
    r = add_segments(s, &s->program);
    if (r == 0)
        note_layout(mm_layout_of(s->mm), s->segments, s->segment_count);
    if (r == 0 && s->has_interpreter)
        r = add_segments(s, &s->interpreter);
    if (r != 0)
        return r;
    struct mm_exec exec = {
        .segments = s->segments,
        .count = s->segment_count,
        .brk = s->program.elf.brk + s->program.bias,
        .stack_size = stack_limit,
        .exec_stack = s->program.elf.exec_stack,
    };
    r = mm_exec_map(s->mm, s->pt, &exec);
    if (r != 0)
        return r;
    fill_auxv(s);
    return build_stack(t, s, stack_limit);
}

/* ---- moving over: nothing here fails ------------------------------------------------------------- */

static void reset_signals(struct task *t)
{
    struct sighand *sh = t->group->sighand;
    lock_acquire(&sh->lock);
    for (int i = 0; i < LINUX_NSIG; i++) {
        bool ignored = sh->actions[i].handler == (uint64_t)(uintptr_t)SIG_IGN;
        sh->actions[i] = (struct linux_sigaction){0};
        if (ignored)
            sh->actions[i].handler = (uint64_t)(uintptr_t)SIG_IGN;
    }
    lock_release(&sh->lock);
    t->signals.altstack = (struct linux_stack){.flags = SS_DISABLE};
    t->signals.restore_saved_mask = false;
}

/* A thread that isn't the leader takes over the leader's number (execve(2), "effect on threads"). */
static void become_leader(struct task *t)
{
    struct thread_group *g = t->group;
    struct task *old = NULL;
    tasks_lock();
    if (g->leader != t) {
        old = g->leader;
        struct pid_entry *mine = pid_entry(t->tid), *leaders = pid_entry(g->tgid);
        task_unlink_locked(old);
        mine->task = NULL;
        leaders->task = t; /* the table's reference moves along */
        t->tid = g->tgid;
        g->leader = t;
    }
    tasks_unlock();
    task_put(old);
}

static void set_comm(struct task *t, const char *path)
{
    const char *base = strrchr(path, '/');
    base = base != NULL ? base + 1 : path;
    lock_acquire(&t->state_lock);
    size_t len = strnlen(base, sizeof t->comm - 1);
    memset(t->comm, 0, sizeof t->comm);
    memcpy(t->comm, base, len);
    lock_release(&t->state_lock);
}

static void leave_old_image(struct task *t)
{
    struct platform_thread *old_pt = t->pt;
    struct mm *old_mm = t->mm;
    bool borrowed = t->mm_borrowed;
    t->mm_borrowed = false;
    if (old_mm == NULL)
        return; /* the first process */
    t->group->utime_ns = borrowed ? t->group->utime_ns : group_cpu_ns(t->group);
    if (old_pt != NULL && !task_vfork_release(t)) {
        task_set_pt(t, NULL);
        platform_thread_free(old_pt);
    }
    lock_acquire(&t->state_lock);
    t->mm = NULL;
    lock_release(&t->state_lock);
    if (!borrowed)
        mm_thread_removed(old_mm);
    mm_put(old_mm);
}

static void enter_new_image(struct task *t, struct exec_state *s)
{
    struct thread_group *g = t->group;
    lock_acquire(&t->state_lock);
    t->mm = s->mm;
    struct creds *old_creds = t->creds;
    t->creds = s->creds;
    lock_release(&t->state_lock);
    mm_thread_added(s->mm);
    creds_put(old_creds);
    s->mm = NULL;
    s->creds = NULL;
    t->fiber.worker = platform_thread_worker(s->pt);
    unsigned cpus = g_sandbox.cpu_count;
    if (t->cpu_mask != (cpus >= 64 ? UINT64_MAX : (1ULL << cpus) - 1))
        atomic_store(&t->affinity_changed, true); /* a fresh stub runs anywhere */
    task_set_pt(t, s->pt);
    s->pt = NULL;
    t->clear_child_tid = t->robust_list = GUEST_NULL;
    tasks_lock();
    struct file *old_exe = g->exe;
    g->exe = s->program.file;
    file_get(g->exe);
    g->has_execed = true;
    g->dumpable = !s->secure;
    tasks_unlock();
    if (old_exe != NULL)
        file_put(old_exe);
    if (s->secure)
        t->pdeath_signal = 0;
    t->regs_replaced = true;
    t->restart_code = 0;
}

static int unshare_tables(struct task *t)
{
    if (t->fds != NULL && fd_table_is_shared(t->fds)) {
        struct fd_table *copy = fd_table_copy(t->fds);
        if (copy == NULL)
            return -ENOMEM;
        struct fd_table *old = t->fds;
        lock_acquire(&t->state_lock);
        t->fds = copy;
        lock_release(&t->state_lock);
        fd_table_put(old);
    }
    struct sighand *old = t->group->sighand;
    if (atomic_load(&old->refs) > 1) { /* CLONE_SIGHAND without CLONE_THREAD */
        struct sighand *copy = sighand_copy(old);
        if (copy == NULL)
            return -ENOMEM;
        lock_acquire(&old->lock);
        copy->replaced = old; /* our reference: see signal.h */
        __atomic_store_n(&t->group->sighand, copy, __ATOMIC_RELEASE);
        lock_release(&old->lock);
    }
    return 0;
}

static void exec_state_free(struct exec_state *s)
{
    image_close(&s->program);
    image_close(&s->interpreter);
    for (size_t i = 0; i < s->argc; i++)
        free(s->argv[i]);
    free(s->argv);
    if (s->pt != NULL)
        platform_thread_free(s->pt);
    if (s->mm != NULL)
        mm_put(s->mm);
    creds_put(s->creds);
    free(s);
}

static int copy_argv(struct exec_state *s, const struct exec_strings *argv)
{
    s->argv = calloc(argv->count + 1, sizeof *s->argv);
    if (s->argv == NULL)
        return -ENOMEM;
    for (s->argc = 0; s->argc < argv->count; s->argc++) {
        s->argv[s->argc] = strdup(argv->strings[s->argc]);
        if (s->argv[s->argc] == NULL)
            return -ENOMEM;
    }
    return 0;
}

int task_exec(struct task *t, struct file *file, const char *path, bool path_is_lost,
              const struct exec_strings *argv, const struct exec_strings *envp)
{
    struct exec_state *s = calloc(1, sizeof *s);
    if (s == NULL)
        return -ENOMEM;
    s->execfn = path;
    s->path_is_lost = path_is_lost;
    s->envp = envp;
    int r = copy_argv(s, argv);
    if (r == 0)
        r = find_image(t, s, file, path);
    if (r == 0)
        r = choose_creds(t, s);
    if (r == 0)
        r = build_space(t, s);
    if (r == 0)
        r = group_kill_others(t);
    if (r == 0)
        r = unshare_tables(t);
    if (r == 0) {
        leave_old_image(t);
        become_leader(t);
        enter_new_image(t, s);
        reset_signals(t);
        group_timers_release(t->group, true);
        fd_table_close_on_exec(t->fds);
        set_comm(t, path);
    }
    exec_state_free(s);
    return r;
}
