/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The system call filter of a process, by libseccomp: an allowlist with conditions on arguments. Runs once,
 * as the last step before the process meets anything that it distrusts.
 */
#include "base/confine.h"

#include "base/log.h"
#include <errno.h>
#include <seccomp.h>

static bool has_rule(const struct confine_filter *filter, int nr)
{
    for (size_t i = 0; i < filter->rule_count; i++) {
        if (filter->rules[i].nr == nr)
            return true;
    }
    return nr == filter->notify_nr;
}

static int to_scmp(const struct confine_cmp *cmp, struct scmp_arg_cmp *ret)
{
    *ret = (struct scmp_arg_cmp){.arg = cmp->arg, .datum_a = cmp->value};
    switch (cmp->op) {
    case CONFINE_EQ:
        ret->op = SCMP_CMP_EQ;
        return 0;
    case CONFINE_NE:
        ret->op = SCMP_CMP_NE;
        return 0;
    case CONFINE_LE:
        ret->op = SCMP_CMP_LE;
        return 0;
    case CONFINE_MASKED_EQ:
        ret->op = SCMP_CMP_MASKED_EQ;
        ret->datum_a = cmp->mask;
        ret->datum_b = cmp->value;
        return 0;
    case CONFINE_OP_COUNT:
        break;
    }
    return -EINVAL;
}

static int add_rule(scmp_filter_ctx ctx, const struct confine_rule *rule)
{
    struct scmp_arg_cmp cmps[CONFINE_CMPS_MAX];
    if (rule->count > CONFINE_CMPS_MAX)
        return -EINVAL;
    for (unsigned i = 0; i < rule->count; i++) {
        int error = to_scmp(&rule->cmps[i], &cmps[i]);
        if (error)
            return error;
    }
    return seccomp_rule_add_exact_array(ctx, SCMP_ACT_ALLOW, rule->nr, rule->count, cmps);
}

static int fill(scmp_filter_ctx ctx, const struct confine_filter *filter)
{
    int error = seccomp_attr_set(ctx, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
    if (!error)
        error = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_TSYNC, 1);
    if (!error)
        error = seccomp_attr_set(ctx, SCMP_FLTATR_CTL_OPTIMIZE, 2);
    for (size_t i = 0; !error && i < filter->allowed_count; i++) {
        if (has_rule(filter, filter->allowed[i]))
            continue;
        error = seccomp_rule_add_exact(ctx, SCMP_ACT_ALLOW, filter->allowed[i], 0);
        if (error == -EEXIST)
            error = 0;
    }
    for (size_t i = 0; !error && i < filter->rule_count; i++)
        error = add_rule(ctx, &filter->rules[i]);
    if (!error && filter->notify_nr >= 0)
        error = seccomp_rule_add_exact(ctx, SCMP_ACT_NOTIFY, filter->notify_nr, 0);
    return error;
}

int confine_install_filter(const struct confine_filter *filter, int *ret_listener)
{
    scmp_filter_ctx ctx =
        seccomp_init(filter->only_report ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_KILL_PROCESS);
    if (!ctx)
        return -ENOMEM;
    int error = fill(ctx, filter);
    /* Nothing between here and the end may need a call that the filter forbids: the listener is taken
     * from the context, and releasing it only frees memory. */
    if (!error)
        error = seccomp_load(ctx);
    if (!error && filter->notify_nr >= 0) {
        int listener = seccomp_notify_fd(ctx);
        if (listener < 0)
            error = listener;
        else
            *ret_listener = listener;
    }
    seccomp_release(ctx);
    return error;
}
