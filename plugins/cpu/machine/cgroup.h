/* SPDX-License-Identifier: MIT
 *
 * cgroup.h: the control groups of version 2 that hold this process, from its own up to the topmost
 * one that is visible, and the files that describe them (kernel documentation,
 * admin-guide/cgroup-v2.rst). A limit of any of them limits the process.
 */
#ifndef TANDEM_CPU_CGROUP_H
#define TANDEM_CPU_CGROUP_H

#include <string.h>

#include "plugins/cpu/machine/sysfile.h"

typedef struct cpu_cgroup {
    char path[256]; /* "/a/b" below the topmost group, which is "" */
} cpu_cgroup;

/* The group that the process is in; the topmost one where its path is too long. False where the
 * system has no groups of version 2. [any-thread] */
static inline bool cpu_cgroup_own(cpu_cgroup *group_out) {
    char text[4096];
    if (!cpu_sysfile_read("/proc/self/cgroup", text, sizeof text)) return false;
    const char *own = strstr(text, "0::"); /* the line of version 2 */
    if (own == NULL) return false;
    own += 3;
    size_t size = strcspn(own, "\n");
    if (size >= sizeof group_out->path || (size == 1 && own[0] == '/')) size = 0;
    memcpy(group_out->path, own, size);
    group_out->path[size] = 0;
    return true;
}

/* Moves to the group above; false at the topmost one. [any-thread] */
static inline bool cpu_cgroup_up(cpu_cgroup *group) {
    char *last = strrchr(group->path, '/');
    if (last == NULL) return false;
    *last = 0;
    return true;
}

/* Reads a file of the group, such as "memory.max", as cpu_sysfile_read does. [any-thread] */
static inline bool cpu_cgroup_read(const cpu_cgroup *group, const char *file, char *text,
                                   size_t text_size) {
    char path[sizeof group->path + 64];
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group->path, file);
    return cpu_sysfile_read(path, text, text_size);
}

#endif
