/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The command line: one table of options gives parsing, help and shell completion. Pure: looks at nothing
 * but its arguments (and the environment for `--env K`).
 */
#pragma once

#include "runsc-compat/cli/err.h"
#include "runsc-compat/cli/values.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct global_options {
    const char *platform;   /* "" = best */
    const char *log_file;   /* NULL = standard error */
    bool log_json;
    bool debug;
    bool strace;
    bool help;
    bool version;
};

#define DO_MOUNTS_MAX 60

struct do_options {
    const char *root;     /* NULL = the host's root */
    const char *cwd;      /* NULL = default */
    const char *hostname; /* NULL = default */
    bool has_user;
    struct value_user user;
    const char **envs; /* owned array of "K=V" (owned strings) */
    size_t env_count;
    struct value_mount *mounts; /* owned */
    size_t mount_count;
    uint64_t memory_bytes;
    uint32_t cpu_millis;
    uint32_t pids;
    uint64_t timeout_ns;
    char **command; /* NULL-terminated tail of argv */
};

enum command { COMMAND_NONE, COMMAND_DO, COMMAND_FEATURES, COMMAND_COMPLETION, COMMAND_COUNT };

struct options {
    enum command command;
    struct global_options global;
    struct do_options run;
    char **rest; /* arguments of commands other than `do`, NULL-terminated tail of argv */
};

/* Parses the command line. 0, or -1 with `err`. The result points into argv. */
MUST_CHECK int options_parse(char **argv, struct options *ret, struct err *err);
void options_fini(struct options *options);

void options_print_help(enum command command);
/* A completion script for `shell`: "bash". -1 for others. */
MUST_CHECK int options_print_completion(const char *shell, struct err *err);
