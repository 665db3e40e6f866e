/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table of options. Global options may stand before or after the command; for `do`, everything from
 * "--" or from the first word that is no option on is the command to run.
 */
#include "runsc-compat/cli/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_id {
    OPT_PLATFORM,
    OPT_LOG,
    OPT_LOG_FORMAT,
    OPT_DEBUG,
    OPT_STRACE,
    OPT_HELP,
    OPT_VERSION,
    OPT_ROOT,
    OPT_CWD,
    OPT_ENV,
    OPT_USER,
    OPT_HOSTNAME,
    OPT_MOUNT,
    OPT_MEMORY,
    OPT_CPUS,
    OPT_PIDS,
    OPT_TIMEOUT,
    OPT_COUNT,
};

struct option_spec {
    const char *name;
    char letter; /* 0 = none */
    const char *arg; /* NULL = takes none */
    enum command command; /* COMMAND_NONE = global */
    const char *help;
    const char *choices; /* for completion: words, or "FILE" or "DIR" */
};

/* clang-format off */
static const struct option_spec specs[OPT_COUNT] = {
    [OPT_PLATFORM]   = {"--platform", 0, "NAME", COMMAND_NONE, "systrap or ptrace (default: the best that works here)", "systrap ptrace"},
    [OPT_LOG]        = {"--log", 0, "FILE", COMMAND_NONE, "append log lines to FILE instead of standard error", "FILE"},
    [OPT_LOG_FORMAT] = {"--log-format", 0, "FORMAT", COMMAND_NONE, "text (default) or json", "text json"},
    [OPT_DEBUG]      = {"--debug", 0, NULL, COMMAND_NONE, "log what bailey does", NULL},
    [OPT_STRACE]     = {"--strace", 0, NULL, COMMAND_NONE, "log every system call of the guest", NULL},
    [OPT_HELP]       = {"--help", 'h', NULL, COMMAND_NONE, "show this help", NULL},
    [OPT_VERSION]    = {"--version", 0, NULL, COMMAND_NONE, "show the version", NULL},
    [OPT_ROOT]       = {"--root", 0, "DIR", COMMAND_DO, "root file system, read-only beneath memory (default: the host's)", "DIR"},
    [OPT_CWD]        = {"--cwd", 0, "DIR", COMMAND_DO, "working directory inside", NULL},
    [OPT_ENV]        = {"--env", 'e', "K=V", COMMAND_DO, "set a variable; K alone passes the caller's on (repeatable)", NULL},
    [OPT_USER]       = {"--user", 'u', "USER", COMMAND_DO, "UID, UID:GID or a name of the guest's /etc/passwd (default: 0)", NULL},
    [OPT_HOSTNAME]   = {"--hostname", 0, "NAME", COMMAND_DO, "host name inside (default: bailey)", NULL},
    [OPT_MOUNT]      = {"--mount", 0, "SRC:DST[:rw]", COMMAND_DO, "show a directory or file of the host, read-only unless :rw (repeatable)", "FILE"},
    [OPT_MEMORY]     = {"--memory", 0, "SIZE", COMMAND_DO, "memory limit, like 512m or 2g", NULL},
    [OPT_CPUS]       = {"--cpus", 0, "N", COMMAND_DO, "CPU limit, like 2 or 0.5", NULL},
    [OPT_PIDS]       = {"--pids", 0, "N", COMMAND_DO, "processes and threads alive at once", NULL},
    [OPT_TIMEOUT]    = {"--timeout", 0, "TIME", COMMAND_DO, "end the sandbox after TIME, like 60s or 5m (status 124)", NULL},
};

static const struct {
    const char *name;
    const char *help;
} commands[COMMAND_COUNT] = {
    [COMMAND_DO]         = {"do", "run a command in a sandbox"},
    [COMMAND_FEATURES]   = {"features", "show what this host gives bailey, as JSON"},
    [COMMAND_COMPLETION] = {"completion", "print a completion script: bailey completion bash"},
};
/* clang-format on */

#define MEMORY_MIN MIB(16)

static int add_env(struct do_options *o, const char *text, struct err *err)
{
    const char *equals = strchr(text, '=');
    char *entry = NULL;
    if (equals == text || !*text)
        return err_set(err, "--env: \"%s\": the name of the variable is missing", text);
    if (equals) {
        entry = strdup(text);
    } else {
        const char *value = getenv(text);
        if (!value)
            return err_set(err, "--env: %s is not set here; set it or write --env %s=VALUE", text, text);
        if (asprintf(&entry, "%s=%s", text, value) < 0)
            entry = NULL;
    }
    const char **envs = entry ? realloc(o->envs, (o->env_count + 1) * sizeof(*envs)) : NULL;
    if (!envs) {
        free(entry);
        return err_set(err, "out of memory");
    }
    o->envs = envs;
    o->envs[o->env_count++] = entry;
    return 0;
}

static int add_mount(struct do_options *o, const char *text, struct err *err)
{
    if (o->mount_count == DO_MOUNTS_MAX)
        return err_set(err, "--mount: at most %d are possible", DO_MOUNTS_MAX);
    struct value_mount *mounts = realloc(o->mounts, (o->mount_count + 1) * sizeof(*mounts));
    if (!mounts)
        return err_set(err, "out of memory");
    o->mounts = mounts;
    if (value_mount("--mount", text, &mounts[o->mount_count], err) < 0)
        return -1;
    o->mount_count++;
    return 0;
}

static int apply_global(struct global_options *g, enum option_id id, const char *value, struct err *err)
{
    if (id == OPT_PLATFORM) {
        if (strcmp(value, "systrap") != 0 && strcmp(value, "ptrace") != 0)
            return err_set(err, "--platform: \"%s\" is not a platform; systrap and ptrace are", value);
        g->platform = value;
    } else if (id == OPT_LOG) {
        g->log_file = value;
    } else if (id == OPT_LOG_FORMAT) {
        g->log_json = strcmp(value, "json") == 0;
        if (!g->log_json && strcmp(value, "text") != 0)
            return err_set(err, "--log-format: \"%s\" is not a format; text and json are", value);
    } else if (id == OPT_DEBUG) {
        g->debug = true;
    } else if (id == OPT_STRACE) {
        g->strace = true;
    } else if (id == OPT_HELP) {
        g->help = true;
    } else if (id == OPT_VERSION) {
        g->version = true;
    }
    return 0;
}

static int apply_do(struct do_options *o, enum option_id id, const char *value, struct err *err)
{
    char clean[4096];
    if (id == OPT_ROOT) {
        o->root = value;
    } else if (id == OPT_CWD) {
        if (!path_clean(value, clean, sizeof(clean)))
            return err_set(err, "--cwd: \"%s\" must be an absolute path of less than 4096 bytes", value);
        o->cwd = value;
    } else if (id == OPT_ENV) {
        return add_env(o, value, err);
    } else if (id == OPT_USER) {
        o->has_user = true;
        return value_user("--user", value, &o->user, err);
    } else if (id == OPT_HOSTNAME) {
        o->hostname = value;
        return value_hostname("--hostname", value, err);
    } else if (id == OPT_MOUNT) {
        return add_mount(o, value, err);
    } else if (id == OPT_MEMORY) {
        if (value_size("--memory", value, &o->memory_bytes, err) < 0)
            return -1;
        if (o->memory_bytes < MEMORY_MIN)
            return err_set(err, "--memory: %s is too little; 16m is the least", value);
    } else if (id == OPT_CPUS) {
        return value_cpus("--cpus", value, &o->cpu_millis, err);
    } else if (id == OPT_PIDS) {
        return value_u32("--pids", value, 1, 4000000, &o->pids, err);
    } else if (id == OPT_TIMEOUT) {
        return value_duration("--timeout", value, &o->timeout_ns, err);
    }
    return 0;
}

/* The option that `word` names, with the value after '=' if there is one; OPT_COUNT if none. */
static enum option_id find_option(const char *word, const char **ret_value)
{
    *ret_value = NULL;
    for (enum option_id id = 0; id < OPT_COUNT; id++) {
        const struct option_spec *spec = &specs[id];
        size_t len = strlen(spec->name);
        if (strncmp(word, spec->name, len) == 0 && (word[len] == '\0' || word[len] == '=')) {
            *ret_value = word[len] ? word + len + 1 : NULL;
            return id;
        }
        if (spec->letter && word[0] == '-' && word[1] == spec->letter && word[2] == '\0')
            return id;
    }
    return OPT_COUNT;
}

/* Handles the option at **argv and steps over it and its value. */
static int parse_option(char ***argv, struct options *ret, struct err *err)
{
    const char *word = *(*argv)++;
    const char *value;
    enum option_id id = find_option(word, &value);
    if (id == OPT_COUNT)
        return err_set(err, "unknown option %s; see bailey --help", word);
    const struct option_spec *spec = &specs[id];
    if (spec->command != COMMAND_NONE && spec->command != ret->command)
        return err_set(err, "%s belongs after the command `%s`; see bailey --help", spec->name,
                       commands[spec->command].name);
    if (!spec->arg && value)
        return err_set(err, "%s takes no value", spec->name);
    if (spec->arg && !value && !(value = **argv ? *(*argv)++ : NULL))
        return err_set(err, "%s needs a value: %s %s", spec->name, spec->name, spec->arg);
    if (spec->command == COMMAND_DO)
        return apply_do(&ret->run, id, value, err);
    return apply_global(&ret->global, id, value, err);
}

static enum command find_command(const char *word)
{
    for (enum command c = COMMAND_NONE + 1; c < COMMAND_COUNT; c++) {
        if (strcmp(word, commands[c].name) == 0)
            return c;
    }
    return COMMAND_NONE;
}

static int parse_words(char **argv, struct options *ret, struct err *err)
{
    while (*argv) {
        if (strcmp(*argv, "--") == 0) {
            argv++;
            break;
        }
        if ((*argv)[0] == '-' && (*argv)[1]) {
            if (parse_option(&argv, ret, err) < 0)
                return -1;
            continue;
        }
        if (ret->command == COMMAND_DO)
            break;
        if (ret->command == COMMAND_NONE) {
            ret->command = find_command(*argv);
            if (ret->command == COMMAND_NONE)
                return err_set(err, "there is no command \"%s\"; see bailey --help", *argv);
            argv++;
            continue;
        }
        if (!ret->rest)
            ret->rest = argv;
        argv++;
    }
    if (ret->command == COMMAND_DO)
        ret->run.command = argv;
    return 0;
}

int options_parse(char **argv, struct options *ret, struct err *err)
{
    static char *none[] = {NULL};
    *ret = (struct options){.global = {.platform = ""}};
    ret->run.command = none;
    if (*argv && parse_words(argv + 1, ret, err) < 0) {
        options_fini(ret);
        return -1;
    }
    if (!ret->rest)
        ret->rest = none;
    return 0;
}

void options_fini(struct options *options)
{
    for (size_t i = 0; i < options->run.env_count; i++) {
        char *entry;
        memcpy(&entry, &options->run.envs[i], sizeof(entry));
        free(entry);
    }
    free(options->run.envs);
    free(options->run.mounts);
    options->run = (struct do_options){0};
}

static void print_options(enum command command)
{
    for (enum option_id id = 0; id < OPT_COUNT; id++) {
        const struct option_spec *spec = &specs[id];
        char left[64];
        if (spec->command != command)
            continue;
        snprintf(left, sizeof(left), "%s%c%s%s%s", spec->letter ? "-" : "", spec->letter ? spec->letter : ' ',
                 spec->letter ? ", " : "   ", spec->name, "");
        printf("  %s%s%s%*s %s\n", left, spec->arg ? " " : "", spec->arg ? spec->arg : "",
               (int)(32 - strlen(left) - (spec->arg ? strlen(spec->arg) + 1 : 0)), "", spec->help);
    }
}

void options_print_help(enum command command)
{
    if (command == COMMAND_DO) {
        puts("usage: bailey [global options] do [options] -- COMMAND [ARGUMENT...]\n\n"
             "Runs COMMAND in a sandbox: on the host's root, read-only beneath memory, or on --root DIR.\n"
             "Nothing that it does reaches the host, except through --mount SRC:DST:rw. The network is\n"
             "closed. The exit status is the command's (128 + n for signal n); 124 timeout, 125 bailey's\n"
             "own failure, 126 not executable, 127 not found.\n\nOptions:");
        print_options(COMMAND_DO);
    } else {
        puts("usage: bailey [global options] COMMAND [options]\n\nCommands:");
        for (enum command c = COMMAND_NONE + 1; c < COMMAND_COUNT; c++)
            printf("  %-12s %s\n", commands[c].name, commands[c].help);
    }
    puts("\nGlobal options, before or after the command:");
    print_options(COMMAND_NONE);
}

static void print_words(enum command command)
{
    for (enum option_id id = 0; id < OPT_COUNT; id++) {
        if (specs[id].command == command)
            printf("%s ", specs[id].name);
    }
}

int options_print_completion(const char *shell, struct err *err)
{
    if (strcmp(shell, "bash") != 0)
        return err_set(err, "completion: \"%s\" is not supported; bash is", shell);
    puts("# bash completion for bailey; use: source <(bailey completion bash)\n"
         "_bailey() {\n"
         "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command= word\n"
         "    COMPREPLY=()\n"
         "    for word in \"${COMP_WORDS[@]:1:COMP_CWORD-1}\"; do\n"
         "        if [[ $word == -- && $command == do ]]; then\n"
         "            COMPREPLY=($(compgen -f -c -- \"$cur\")); return\n"
         "        fi");
    printf("        case $word in ");
    for (enum command c = COMMAND_NONE + 1; c < COMMAND_COUNT; c++)
        printf("%s%s", c > COMMAND_NONE + 1 ? "|" : "", commands[c].name);
    puts(") [[ $command ]] || command=$word;; esac\n"
         "    done\n"
         "    case $prev in");
    for (enum option_id id = 0; id < OPT_COUNT; id++) {
        const char *choices = specs[id].choices;
        if (!choices)
            continue;
        if (strcmp(choices, "FILE") == 0 || strcmp(choices, "DIR") == 0)
            printf("        %s) COMPREPLY=($(compgen %s -- \"$cur\")); return;;\n", specs[id].name,
                   choices[0] == 'F' ? "-f" : "-d");
        else
            printf("        %s) COMPREPLY=($(compgen -W \"%s\" -- \"$cur\")); return;;\n", specs[id].name,
                   choices);
    }
    printf("    esac\n    local words=\"");
    print_words(COMMAND_NONE);
    printf("\"\n    case $command in\n        do) words+=\" ");
    print_words(COMMAND_DO);
    printf("--\";;\n        completion) words=bash;;\n        '') words+=\" ");
    for (enum command c = COMMAND_NONE + 1; c < COMMAND_COUNT; c++)
        printf("%s ", commands[c].name);
    puts("\";;\n    esac\n"
         "    COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
         "}\ncomplete -F _bailey bailey");
    return 0;
}
