/* SPDX-License-Identifier: MIT
 *
 * roster.h: the devices that a runtime is told of before any is opened: the sections of the
 * configuration, members of groups, and what plugins enumerate under the name asked for. Opening
 * them is session.h's, choosing among several is choice.h's.
 */
#ifndef TANDEM_RUNNER_ROSTER_H
#define TANDEM_RUNNER_ROSTER_H

#include "core/device/runtime.h"
#include "runner/commands/commands.h"

typedef struct runner_roster {
    runner_app *app;
    tdm_runtime *rt;
    int32_t threads; /* for every CPU device; 0 = as configured */
    char **names;    /* [n_name] declared so far; owned */
    size_t n_name;
    char *
        *found; /* [n_found] names of what the plugins have, known once one was asked for; owned */
    size_t n_found;
    struct runner_found *places; /* [n_found] where they are; owned */
} runner_roster;

/* Declares the device or group called `name` with everything it is made of, unless it is declared
 * already; names that are no sections are looked for among the plugins' devices. Fails before
 * anything is opened: TDM_NOT_FOUND names the key and what there is. *section_out (nullable) is its
 * section, NULL where it has none. [setup] */
tdm_status runner_roster_declare(runner_roster *roster, const char *name,
                                 const runner_section **section_out, tdm_error *err);

/* The same for a name that stands in another key than `device`, which messages then name. [setup] */
tdm_status runner_roster_declare_for(runner_roster *roster, const char *key, const char *name,
                                     tdm_error *err);

/* The same for a section, such as a group that no file has. `is_main`: what a command runs on,
 * rather than a group's member. [setup] */
tdm_status runner_roster_declare_section(runner_roster *roster, const runner_section *section,
                                         bool is_main, tdm_error *err);

/* Declares a CPU device that is nobody's choice under a name that no section can have. [setup] */
tdm_status runner_roster_declare_cpu(runner_roster *roster, const char *name, tdm_error *err);

/* Tells the runtime what the CPU is opened with that works in the stead of a group's members. [setup] */
tdm_status runner_roster_set_fallback(runner_roster *roster, tdm_error *err);

/* Loads every plugin and lists what they have: *n_out names, the roster's. [setup] */
tdm_status runner_roster_enumerate(runner_roster *roster, const char *const **names_out,
                                   size_t *n_out, tdm_error *err);

/* Releases what the roster holds, not the runtime; a cleared roster is a no-op. [setup] */
void runner_roster_clear(runner_roster *roster);

#endif
