/* SPDX-License-Identifier: Apache-2.0 */
/* `bailey features`: what this host gives bailey, found by trying it. */
#pragma once

#include "runsc-compat/cli/err.h"
#include "runsc-compat/cli/options.h"

/* Prints OCI's features document with bailey's findings as annotations. The exit status. */
int features_print(const struct global_options *g, int log_hfd, struct err *err);
