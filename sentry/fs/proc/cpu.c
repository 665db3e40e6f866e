/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/cpuinfo and /proc/interrupts: the host's model of processor, as many as the sandbox has,
 * numbered like one socket without hyperthreads. Any fiber.
 */
#include "sentry/fs/proc/proc_internal.h"
#include "sentry/task/host_facts.h"
#include <string.h>

enum { TOPOLOGY_CPU, TOPOLOGY_ZERO, TOPOLOGY_COUNT_OF_CPUS };
static const struct {
    const char *key;
    int kind;
} topology[] = {
    {"processor", TOPOLOGY_CPU},           {"physical id", TOPOLOGY_ZERO},
    {"siblings", TOPOLOGY_COUNT_OF_CPUS},  {"core id", TOPOLOGY_CPU},
    {"cpu cores", TOPOLOGY_COUNT_OF_CPUS}, {"apicid", TOPOLOGY_CPU},
    {"initial apicid", TOPOLOGY_CPU},
};

static unsigned topology_value(int kind, unsigned cpu)
{
    if (kind == TOPOLOGY_CPU)
        return cpu;
    return kind == TOPOLOGY_ZERO ? 0 : g_sandbox.cpu_count;
}

/* The number that replaces the value of this line, or -1. `key_size` excludes blanks before the
 * colon. */
static int replacement(const char *key, size_t key_size, unsigned cpu)
{
    for (size_t i = 0; i < ARRAY_COUNT(topology); i++)
        if (strlen(topology[i].key) == key_size && memcmp(topology[i].key, key, key_size) == 0)
            return (int)topology_value(topology[i].kind, cpu);
    return -1;
}

static void put_line(struct text *out, const char *line, size_t size, unsigned cpu)
{
    const char *colon = memchr(line, ':', size);
    size_t key_size = colon != NULL ? (size_t)(colon - line) : size;
    while (key_size > 0 && (line[key_size - 1] == '\t' || line[key_size - 1] == ' '))
        key_size--;
    int value = replacement(line, key_size, cpu);
    if (value < 0 || colon == NULL) {
        text_append(out, line, size);
        text_put(out, "\n");
        return;
    }
    text_append(out, line, (size_t)(colon - line));
    text_printf(out, ": %d\n", value);
}

int proc_show_cpuinfo(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    static const char unknown[] =
        "processor\t:\nvendor_id\t: unknown\nphysical id\t:\nsiblings\t:\ncore id\t\t:\n"
        "cpu cores\t:\n";
    const char *block = host_facts()->cpuinfo;
    if (block == NULL || block[0] == '\0')
        block = unknown;
    for (unsigned cpu = 0; cpu < g_sandbox.cpu_count; cpu++) {
        for (const char *line = block, *end; *line != '\0'; line = *end != '\0' ? end + 1 : end) {
            end = strchr(line, '\n');
            if (end == NULL)
                end = line + strlen(line);
            if (end > line)
                put_line(out, line, (size_t)(end - line), cpu);
        }
        text_put(out, "\n");
    }
    return 0;
}

int proc_show_interrupts(const struct synth_key *key, const struct creds *reader, struct text *out)
{
    (void)key, (void)reader;
    static const char *const names[][2] = {{"NMI", "Non-maskable interrupts"},
                                           {"LOC", "Local timer interrupts"},
                                           {"RES", "Rescheduling interrupts"}};
    text_put(out, "     ");
    for (unsigned cpu = 0; cpu < g_sandbox.cpu_count; cpu++)
        text_printf(out, "       CPU%-3u", cpu);
    text_put(out, "\n");
    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        text_printf(out, "%s: ", names[i][0]);
        for (unsigned cpu = 0; cpu < g_sandbox.cpu_count; cpu++)
            text_put(out, "         0 ");
        text_printf(out, "  %s\n", names[i][1]);
    }
    return 0;
}
