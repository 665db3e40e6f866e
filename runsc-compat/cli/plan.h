/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From options to what sentry and gofer are told. Looks at the host (paths, ids, CPUs) but changes nothing:
 * every mistake of the caller is found here, before anything starts.
 */
#pragma once

#include "gofer/start.h"
#include "runsc-compat/cli/err.h"
#include "runsc-compat/cli/options.h"
#include "sentry/control/control.h"

struct plan {
    struct control_config sentry;
    struct gofer_config gofer;
    bool as_root;
    uint32_t sentry_uid; /* host uids set aside for this sandbox; as_root only */
    uint64_t timeout_ns; /* 0 = none */
};

/* 0, or -1 with `err` and nothing to free. */
MUST_CHECK int plan_make(const struct options *options, struct plan *ret, struct err *err);
void plan_fini(struct plan *plan);
