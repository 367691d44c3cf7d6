/* SPDX-License-Identifier: MIT
 *
 * cores.c: affinity masks, the topology that the kernel shows in sysfs, and the quotas of
 * control groups. Of machines with more processors than a cpu_set_t holds (1024) the first ones are
 * used.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/cpu/machine/cgroup.h"
#include "plugins/cpu/machine/cores.h"
#include "plugins/cpu/machine/sysfile.h"

/* Room for the mask of any machine: Linux returns nothing where a mask does not fit. */
enum { N_SET = 8 };

/* The affinity mask of the process; processor 0 where it cannot be read. */
static void affinity_read(cpu_set_t *set) {
    cpu_set_t sets[N_SET];
    CPU_ZERO(set);
    if (sched_getaffinity(0, sizeof sets, sets) == 0) *set = sets[0];
    if (CPU_COUNT(set) == 0) CPU_SET(0, set);
}

/* Reads "a", "a-b" or a comma list of them; false where the text is anything else. */
static bool list_read(const char *text, cpu_set_t *set) {
    CPU_ZERO(set);
    const char *at = text;
    for (;;) {
        if (*at < '0' || *at > '9') return false;
        char *end;
        errno = 0;
        unsigned long first = strtoul(at, &end, 10), last = first;
        if (*end == '-') {
            at = end + 1;
            if (*at < '0' || *at > '9') return false;
            last = strtoul(at, &end, 10);
        }
        if (errno != 0 || first > last || last >= CPU_SETSIZE) return false;
        for (unsigned long i = first; i <= last; i++) CPU_SET(i, set);
        if (*end != ',') return *end == 0 || *end == '\n';
        at = end + 1;
    }
}

/* How many processors a quota "<time> <period>" (cpu.max) stands for, rounded, at least 1;
 * INT32_MAX for "max", which is none. */
static int32_t quota_parse(const char *text) {
    char *end;
    double quota = strtod(text, &end), period = strtod(end, NULL);
    if (end == text || period <= 0 || quota <= 0) return INT32_MAX;
    double n = quota / period;
    return n >= INT32_MAX ? INT32_MAX : n <= 1 ? 1 : (int32_t)(n + 0.5);
}

/* The smallest quota of the control groups of the process; INT32_MAX without one. */
static int32_t quota_read(void) {
    int32_t least = INT32_MAX;
    cpu_cgroup group;
    if (!cpu_cgroup_own(&group)) return least;
    do {
        char text[64];
        int32_t n = INT32_MAX;
        if (cpu_cgroup_read(&group, "cpu.max", text, sizeof text)) n = quota_parse(text);
        if (n < least) least = n;
    } while (cpu_cgroup_up(&group));
    return least;
}

int32_t cpu_cores_available(void) {
    cpu_set_t set;
    affinity_read(&set);
    return (int32_t)CPU_COUNT(&set);
}

int32_t cpu_cores_default(void) {
    cpu_set_t set, siblings;
    affinity_read(&set);
    int32_t n = 0;
    for (int i = 0; i < CPU_SETSIZE; i++) {
        if (!CPU_ISSET(i, &set)) continue;
        char path[96], text[256];
        snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list",
                 i);
        int first = i; /* lowest usable processor of the same core */
        if (cpu_sysfile_read(path, text, sizeof text) && list_read(text, &siblings))
            for (first = 0; first < i; first++)
                if (CPU_ISSET(first, &siblings) && CPU_ISSET(first, &set)) break;
        n += first == i;
    }
    int32_t quota = quota_read();
    return n < quota ? n : quota;
}

tdm_status cpu_cores_parse(const char *text, cpu_set_t *set_out, tdm_error *err) {
    cpu_set_t set, usable;
    if (!list_read(text, &set) || strchr(text, '\n') != NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "cores = %s: not a list of processors such as 0-3,6, which are numbered up "
                        "to %d",
                        text, CPU_SETSIZE - 1);
    affinity_read(&usable);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &set) && !CPU_ISSET(i, &usable))
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "cores = %s: this process may not run on processor %d", text, i);
    *set_out = set;
    return TDM_OK;
}
