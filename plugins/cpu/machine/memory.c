/* SPDX-License-Identifier: MIT
 *
 * memory.c: /proc/meminfo and the limits of control groups. Page cache counts as free: the kernel
 * frees it on demand.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "plugins/cpu/machine/cgroup.h"
#include "plugins/cpu/machine/memory.h"
#include "plugins/cpu/machine/sysfile.h"

enum {
    CACHE_LINE = 64,
    SMALL_PAGE = 4096,
    HUGE_PAGE = 2 << 20,
    /* For smaller pieces aligning to huge pages wastes more than the saved misses are worth. */
    HUGE_FROM = 8 << 20
};

uint8_t *cpu_pages_alloc(const tdm_host *host, size_t size) {
    size_t align = size >= HUGE_FROM ? HUGE_PAGE : size >= SMALL_PAGE ? SMALL_PAGE : CACHE_LINE;
    uint8_t *data = host->alloc(host->context, size, align);
    /* Only whole huge pages: the memory behind the piece belongs to others. A kernel without huge
     * pages refuses, which does no harm. */
    if (data != NULL && size >= HUGE_FROM)
        (void)madvise(data, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
    return data;
}

void cpu_pages_free(const tdm_host *host, uint8_t *data, size_t size) {
    if (data != NULL) host->free(host->context, data, size);
}

/* The number behind `key` at the start of a line; UINT64_MAX where there is none. */
static uint64_t field_find(const char *text, const char *key) {
    size_t key_size = strlen(key);
    for (const char *line = text; line != NULL && *line != 0;) {
        if (strncmp(line, key, key_size) == 0) return strtoull(line + key_size, NULL, 10);
        line = strchr(line, '\n');
        if (line != NULL) line++;
    }
    return UINT64_MAX;
}

/* Lowers *total and *available to what the control groups of the process leave it. A group that
 * cannot be read does not limit. */
static void cgroup_limit(uint64_t *total, uint64_t *available) {
    cpu_cgroup group;
    if (!cpu_cgroup_own(&group)) return;
    do {
        char text[4096];
        if (!cpu_cgroup_read(&group, "memory.max", text, sizeof text) ||
            strncmp(text, "max", 3) == 0)
            continue;
        uint64_t limit = strtoull(text, NULL, 10), used = 0, cache = 0;
        if (cpu_cgroup_read(&group, "memory.current", text, sizeof text))
            used = strtoull(text, NULL, 10);
        if (cpu_cgroup_read(&group, "memory.stat", text, sizeof text)) {
            uint64_t inactive = field_find(text, "inactive_file ");
            uint64_t active = field_find(text, "active_file ");
            cache = (inactive != UINT64_MAX ? inactive : 0) + (active != UINT64_MAX ? active : 0);
        }
        used = used > cache ? used - cache : 0;
        uint64_t left = limit > used ? limit - used : 0;
        if (limit < *total) *total = limit;
        if (left < *available) *available = left;
    } while (cpu_cgroup_up(&group));
}

void cpu_memory_query(uint64_t *total_out, uint64_t *free_out) {
    char text[4096];
    uint64_t total = UINT64_MAX, available = UINT64_MAX;
    if (cpu_sysfile_read("/proc/meminfo", text, sizeof text)) {
        total = field_find(text, "MemTotal:");
        available = field_find(text, "MemAvailable:");
        if (total != UINT64_MAX) total *= 1024;
        if (available != UINT64_MAX) available *= 1024;
    }
    cgroup_limit(&total, &available);
    *total_out = total != UINT64_MAX ? total : 0;
    *free_out = available != UINT64_MAX ? available : 0;
}
