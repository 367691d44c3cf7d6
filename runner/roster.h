/* SPDX-License-Identifier: MIT
 *
 * roster.h: declares devices in a runtime before any is opened: sections of the configuration,
 * members of groups, and devices that plugins enumerate. session.h opens them, plan/choice.h
 * chooses among several.
 */
#ifndef TANDEM_RUNNER_ROSTER_H
#define TANDEM_RUNNER_ROSTER_H

#include "core/device/runtime.h"
#include "runner/app.h"

typedef struct runner_roster {
    runner_app *app;
    tdm_runtime *rt;
    int32_t threads; /* for every CPU device; 0 = as configured */
    char **names;    /* [n_name] declared so far; owned */
    size_t n_name;
    char *
        *found; /* [n_found] names of devices that plugins enumerate, filled on first use; owned */
    size_t n_found;
    struct runner_found *places; /* [n_found] plugin and index of each; owned */
} runner_roster;

/* Declares device or group `name` and all its members, unless it is declared already. A name
 * without a section is searched among the plugins' devices. Opens nothing. TDM_NOT_FOUND names the
 * key and lists the devices. *section_out (nullable) is its section, NULL where it has none.
 * [setup] */
tdm_status runner_roster_declare(runner_roster *roster, const char *name,
                                 const runner_section **section_out, tdm_error *err);

/* The same for a name that stands in `key` instead of `device`; messages name that key. [setup] */
tdm_status runner_roster_declare_for(runner_roster *roster, const char *key, const char *name,
                                     tdm_error *err);

/* The same for a section, also one that is not in the file (runner_config_make_group). `is_main`:
 * it is the device that a command runs on, not a member of a group. [setup] */
tdm_status runner_roster_declare_section(runner_roster *roster, const runner_section *section,
                                         bool is_main, tdm_error *err);

/* Declares a CPU device that the configuration does not name; no section can have `name`.
 * [setup] */
tdm_status runner_roster_declare_cpu(runner_roster *roster, const char *name, tdm_error *err);

/* Sets the options of the runtime's fallback: the CPU that runs the ops that a group's members
 * refuse. [setup] */
tdm_status runner_roster_set_fallback(runner_roster *roster, tdm_error *err);

/* Loads every plugin and lists all devices: *n_out names, owned by the roster. [setup] */
tdm_status runner_roster_enumerate(runner_roster *roster, const char *const **names_out,
                                   size_t *n_out, tdm_error *err);

/* Releases what the roster owns, not the runtime; a cleared roster is a no-op. [setup] */
void runner_roster_clear(runner_roster *roster);

#endif
