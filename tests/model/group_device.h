/* SPDX-License-Identifier: MIT
 *
 * group_device.h: groups of CPU devices of one thread for the tests of whole models, in the rig's
 * runtime (rig.h).
 */
#ifndef TANDEM_TESTS_GROUP_DEVICE_H
#define TANDEM_TESTS_GROUP_DEVICE_H

#include "tests/model/rig.h"

enum { GROUP_MAX_MEMBER = 8 };

/* NULL = the plugin's default. */
typedef struct group_config {
    int n_member;         /* 1 .. GROUP_MAX_MEMBER */
    const char *shares;   /* "3,1"; shorter than the members: begun again; NULL = even */
    const char *path;     /* of the members: "fast" */
    const char *odd_path; /* of every second member; NULL = `path` */
    const char *split, *attention, *experts, *reduce_type, *check;
    /* Members whose memory is not the host's and has no host addresses. Every second one cannot
     * read the host's memory. They are the plugin "fault" of tests/split, over CPU devices. */
    bool is_away;
    /* such members report that they read caches in the host's memory themselves */
    bool has_host_kv;
    /* of a group that others of that configuration do not share; NULL = they do */
    const char *name;
} group_config;

/* The group; made and opened at first, then kept until rig_end. Fails the running test where it
 * cannot be opened. */
tdm_open_device *group_device(const group_config *config);
/* The one device that groups of that path are compared with. */
tdm_open_device *group_single(const char *path);
/* A device of one thread that is away, as members are; the fast path. */
tdm_open_device *group_away(void);
/* The configuration in words, valid until the next call. */
const char *group_words(const group_config *config);

#endif
