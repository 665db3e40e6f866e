/* SPDX-License-Identifier: Apache-2.0 */
/*
 * bailey: the command line. Trusted: it runs with the caller's rights, decides what a sandbox gets, starts
 * gofer and sentry, and then only waits and relays.
 */
#define LOG_MODULE "cli"
#include "base/host.h"
#include "base/log.h"
#include "runsc-compat/cli/features.h"
#include "runsc-compat/cli/options.h"
#include "runsc-compat/cli/plan.h"
#include "runsc-compat/cli/sandbox.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef BAILEY_VERSION
#define BAILEY_VERSION "unknown"
#endif

/* A missing 0, 1 or 2 would let a descriptor of ours take its place. */
static void fill_stdio(void)
{
    int hfd;
    do {
        hfd = open("/dev/null", O_RDWR | O_CLOEXEC);
    } while (hfd >= 0 && hfd <= 2);
    host_close(hfd);
    for (hfd = 0; hfd < 3; hfd++)
        fcntl(hfd, F_SETFD, 0);
}

/* Where log lines go: a new descriptor. */
static int open_log(const struct global_options *g, struct err *err)
{
    if (!g->log_file)
        return fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 3);
    int hfd = open(g->log_file, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY, 0600);
    return hfd >= 0 ? hfd : err_errno(err, errno, "--log: can't write to %s", g->log_file);
}

static int run_do(const struct options *options, int log_hfd, struct err *err)
{
    struct plan plan;
    if (plan_make(options, &plan, err) < 0)
        return STATUS_FAILED;
    const struct sandbox_config config = {.plan = &plan, .log_hfd = log_hfd};
    int status = sandbox_run(&config, err);
    plan_fini(&plan);
    return status;
}

static int run_command(const struct options *options, struct err *err)
{
    const struct global_options *g = &options->global;
    AUTO_FD log_hfd = open_log(g, err);
    if (log_hfd < 0)
        return STATUS_FAILED;
    log_init(log_hfd, g->log_json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT,
             g->debug ? LOG_LEVEL_DBG : LOG_LEVEL_WARN, "bailey");
    if (options->command == COMMAND_DO)
        return run_do(options, log_hfd, err);
    if (options->command == COMMAND_FEATURES)
        return features_print(g, log_hfd, err);
    const char *shell = options->rest[0] ? options->rest[0] : "";
    return options_print_completion(shell, err) < 0 ? STATUS_FAILED : 0;
}

static int run(char **argv, struct err *err)
{
    struct options options;
    if (options_parse(argv, &options, err) < 0)
        return STATUS_FAILED;
    int status = 0;
    if (options.global.help)
        options_print_help(options.command);
    else if (options.global.version)
        puts("bailey " BAILEY_VERSION);
    else if (options.command == COMMAND_NONE)
        status = err_set(err, "the command is missing; see bailey --help") < 0 ? STATUS_FAILED : 0;
    else
        status = run_command(&options, err);
    options_fini(&options);
    return status;
}

int main(int argc, char **argv)
{
    struct err err = {0};
    (void)argc;
    fill_stdio();
    int status = run(argv, &err);
    if (err.text[0])
        err_print(&err);
    if (fflush(stdout) != 0 && status == 0)
        status = STATUS_FAILED;
    return status;
}
