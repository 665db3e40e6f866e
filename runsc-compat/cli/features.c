/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each platform is probed by a sentry of its own that makes the platform, describes it and ends; the rest is
 * looked up here. A sentry that fails is a finding, not an error of the command.
 */
#include "runsc-compat/cli/features.h"

#include "base/host.h"
#include "base/log.h"
#include "runsc-compat/cli/cgroup.h"
#include "runsc-compat/cli/relay.h"
#include "runsc-compat/cli/spawn.h"
#include "sentry/control/control.h"
#include <errno.h>
#include <linux/landlock.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define PROBE_TIMEOUT_MS 10000

static void print_json_string(const char *s, size_t len)
{
    putchar('"');
    for (size_t i = 0; i < len; i++) {
        unsigned char c = (unsigned char)s[i];
        if (c < 0x20 || c > 0x7e)
            printf("\\u%04x", c);
        else
            printf("%s%c", c == '"' || c == '\\' ? "\\" : "", c);
    }
    putchar('"');
}

static void print_annotation(const char *prefix, const char *key, size_t key_len, const char *value,
                             size_t value_len)
{
    char name[160];
    snprintf(name, sizeof(name), "bailey.%s%.*s", prefix, (int)key_len, key);
    printf(",\n        ");
    print_json_string(name, strlen(name));
    printf(": ");
    print_json_string(value, value_len);
}

static void print_finding(const char *key, const char *value)
{
    print_annotation("", key, strlen(key), value, strlen(value));
}

/* Lines "key=value" of a platform's description. */
static void print_lines(const char *prefix, const char *text)
{
    while (*text) {
        size_t len = strcspn(text, "\n");
        size_t key = strcspn(text, "=\n");
        if (key < len)
            print_annotation(prefix, text, key, text + key + 1, len - key - 1);
        text += len + (text[len] == '\n');
    }
}

/* Reads the probe's messages until EXIT; false if it failed. */
static bool read_probe(struct child *sentry, const char *prefix, struct err *err)
{
    struct control_message m;
    for (;;) {
        struct pollfd ready = {.fd = sentry->sock, .events = POLLIN};
        if (poll(&ready, 1, PROBE_TIMEOUT_MS) != 1)
            return err_set(err, "the probe gave no answer in time") == 0;
        if (control_recv(sentry->sock, &m, NULL) < 0)
            return err_set(err, "the probe died") == 0;
        if (m.kind == CONTROL_TEXT)
            print_lines(prefix, m.text);
        if (m.kind == CONTROL_EXIT)
            return m.a == 0 || err_set(err, "%s", m.text_size ? m.text : "failed") == 0;
    }
}

static bool probe(const char *platform, const struct global_options *g, int log_hfd, struct err *err)
{
    bool root = geteuid() == 0;
    char name[16];
    char none[] = "";
    char slash[] = "/";
    struct child sentry;
    struct relay_log log;
    int log_write;
    const struct spawn_config config = {.program = "bailey-sentry",
                                        .ids = root ? SPAWN_IDS_OWN : SPAWN_IDS_CALLER,
                                        .host_uid = 0x70000000u + (uint32_t)getpid() * 2,
                                        .raise_oom = true};
    if (spawn(&config, &sentry, err) < 0)
        return false;
    if (relay_log_init(&log, log_hfd, &log_write) < 0) {
        child_end(&sentry);
        return err_errno(err, errno, "can't make a pipe") == 0;
    }
    snprintf(name, sizeof(name), "%s", platform);
    struct control_config c = {.mode = CONTROL_MODE_FEATURES,
                               .platform = name,
                               .log_level = g->debug ? LOG_LEVEL_DBG : LOG_LEVEL_ERR,
                               .log_format = g->log_json ? LOG_FORMAT_JSON : LOG_FORMAT_TEXT,
                               .cwd = slash, .hostname = none, .user = none,
                               .limits = {.cpu_count = 1}};
    struct control_fds fds;
    char prefix[24];
    control_fds_init(&fds);
    fds.log = log_write;
    fds.oom = sentry.oom;
    snprintf(prefix, sizeof(prefix), "%s.", platform);
    bool works = control_send_start(sentry.sock, &c, &fds) == 0 &&
                 spawn_release(&sentry, "bailey-sentry", err) == 0 && read_probe(&sentry, prefix, err);
    close(log_write);
    child_end(&sentry);
    relay_log_fini(&log);
    return works;
}

static const char *cgroup_version(uint64_t memory, uint32_t cpu, uint32_t pids)
{
    static struct cgroup cg;
    struct err ignored = {0};
    const struct control_limits limits = {.memory_bytes = memory, .cpu_millis = cpu, .pids = pids};
    if (cgroup_plan(&limits, &cg, &ignored) < 0)
        return "none";
    return cg.enable_count ? "v2" : "v1";
}

int features_print(const struct global_options *g, int log_hfd, struct err *err)
{
    static const char *const platforms[] = {"systrap", "ptrace"};
    struct utsname uts = {0};
    char number[24];
    uname(&uts);
    long landlock = syscall(SYS_landlock_create_ruleset, NULL, 0, LANDLOCK_CREATE_RULESET_VERSION);
    snprintf(number, sizeof(number), "%ld", landlock > 0 ? landlock : 0);
    printf("{\n    \"ociVersionMin\": \"1.0.0\",\n    \"ociVersionMax\": \"1.2.0\",\n"
           "    \"annotations\": {\n        \"bailey.arch\": \"x86_64\"");
    print_finding("kernel", uts.release);
    print_finding("landlock", number);
    print_finding("cgroup.memory", cgroup_version(1 << 30, 0, 0));
    print_finding("cgroup.cpu", cgroup_version(0, 1000, 0));
    print_finding("cgroup.pids", cgroup_version(0, 0, 100));
    for (size_t i = 0; i < ARRAY_COUNT(platforms); i++) {
        struct err why = {0};
        bool works = probe(platforms[i], g, log_hfd, &why);
        print_annotation("platform.", platforms[i], strlen(platforms[i]), works ? "works" : why.text,
                         works ? strlen("works") : strlen(why.text));
    }
    puts("\n    }\n}");
    return ferror(stdout) ? err_set(err, "can't write to standard output") & STATUS_FAILED : 0;
}
