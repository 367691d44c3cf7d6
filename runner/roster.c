/* SPDX-License-Identifier: MIT
 *
 * roster.c: see roster.h. All names are checked before the first device is opened.
 */
#include "runner/roster.h"

#include <stdlib.h>
#include <string.h>

#define OPTIONS_MAX 32

/* The plugin and index of an enumerated device. */
struct runner_found {
    int32_t plugin, index;
};

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the list of devices");
}

static bool is_declared(const runner_roster *roster, const char *name) {
    for (size_t i = 0; i < roster->n_name; i++)
        if (strcmp(roster->names[i], name) == 0) return true;
    return false;
}

/* Declares a device in the runtime and in the roster. */
static tdm_status spec_declare(runner_roster *roster, const tdm_device_spec *spec, tdm_error *err) {
    char **grown = realloc(roster->names, (roster->n_name + 1) * sizeof *grown);
    if (grown == NULL) return no_memory(err);
    roster->names = grown;
    char *copy = strdup(spec->name);
    if (copy == NULL) return no_memory(err);
    tdm_status status = tdm_runtime_declare(roster->rt, spec, err);
    if (status == TDM_OK)
        roster->names[roster->n_name++] = copy;
    else
        free(copy);
    return status;
}

/* The options of a device. */
typedef struct device_options {
    tdm_option items[OPTIONS_MAX];
    size_t n;
    char threads_text[16];
} device_options;

/* Reads the options of a device of `plugin`: from its section, flags and [*]. `section` NULL = it
 * has none. `name` is for messages. */
static tdm_status options_read(const runner_roster *roster, const runner_section *section,
                               const char *name, const char *plugin, device_options *o,
                               tdm_error *err) {
    o->n = runner_section_get_options(roster->app->config, section, plugin, false, o->items,
                                      OPTIONS_MAX - 1);
    if (o->n > OPTIONS_MAX - 1)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "device '%s': more than %d options", name,
                        OPTIONS_MAX - 1);
    if (roster->threads > 0 && strcmp(plugin, RUNNER_CPU_PLUGIN) == 0) {
        size_t at = 0;
        while (at < o->n && strcmp(o->items[at].key, RUNNER_THREADS_KEY) != 0) at++;
        snprintf(o->threads_text, sizeof o->threads_text, "%d", (int)roster->threads);
        o->items[at] = (tdm_option){RUNNER_THREADS_KEY, o->threads_text};
        if (at == o->n) o->n++;
    }
    return TDM_OK;
}

static tdm_status device_declare(runner_roster *roster, const runner_section *section,
                                 const char *name, const char *plugin, int32_t index,
                                 tdm_error *err) {
    device_options options;
    tdm_status status = options_read(roster, section, name, plugin, &options, err);
    tdm_device_spec spec = {name, plugin, index, options.items, (int32_t)options.n};
    return status == TDM_OK ? spec_declare(roster, &spec, err) : status;
}

/* The text of a key; NULL where it is empty. */
static const char *address_get(runner_config *config, const runner_section *section,
                               const char *key) {
    const char *text = runner_section_get_string(config, section, key);
    return text[0] != '\0' ? text : NULL;
}

/* Declares the device of a [device NAME] by its index, PCI address or UUID. */
static tdm_status section_device_declare(runner_roster *roster, const runner_section *section,
                                         tdm_error *err) {
    runner_config *config = roster->app->config;
    device_options options;
    tdm_device_spec spec = {.name = runner_section_name(section),
                            .plugin = runner_section_get_string(config, section, "plugin"),
                            .index = (int32_t)runner_section_get_int(config, section, "index"),
                            .options = options.items,
                            .pci = address_get(config, section, "pci"),
                            .uuid = address_get(config, section, "uuid"),
                            .has_index =
                                runner_section_get_origin(config, section, "index").level !=
                                RUNNER_LEVEL_BUILT_IN};
    tdm_error why = {0};
    tdm_status status = options_read(roster, section, spec.name, spec.plugin, &options, err);
    if (status != TDM_OK) return status;
    spec.n_option = (int32_t)options.n;
    status = spec_declare(roster, &spec, &why);
    if (status == TDM_OK) return status;
    const char *key = spec.pci != NULL ? "pci" : spec.uuid != NULL ? "uuid" : "plugin";
    char where[320];
    runner_origin_format(runner_section_get_origin(config, section, key), where, sizeof where);
    return tdm_fail(err, status, "%s: %.400s", where, why.message);
}

tdm_status runner_roster_set_fallback(runner_roster *roster, tdm_error *err) {
    device_options options;
    tdm_status status =
        options_read(roster, NULL, "cpu (fallback)", RUNNER_CPU_PLUGIN, &options, err);
    return status == TDM_OK
               ? tdm_runtime_set_fallback(roster->rt, options.items, (int32_t)options.n, err)
               : status;
}

/* ---- Devices that plugins enumerate ---- */

static tdm_status found_add(runner_roster *roster, const char *name, int32_t plugin, int32_t index,
                            tdm_error *err) {
    char **names = realloc(roster->found, (roster->n_found + 1) * sizeof *names);
    if (names == NULL) return no_memory(err);
    roster->found = names;
    struct runner_found *places = realloc(roster->places, (roster->n_found + 1) * sizeof *places);
    if (places == NULL) return no_memory(err);
    roster->places = places;
    names[roster->n_found] = strdup(name);
    if (names[roster->n_found] == NULL) return no_memory(err);
    places[roster->n_found++] = (struct runner_found){plugin, index};
    return TDM_OK;
}

tdm_status runner_roster_enumerate(runner_roster *roster, const char *const **names_out,
                                   size_t *n_out, tdm_error *err) {
    int32_t n_plugin = 0;
    bool is_new = roster->n_found == 0;
    tdm_status status = is_new ? tdm_runtime_load_all(roster->rt, &n_plugin, err) : TDM_OK;
    for (int32_t p = 0; p < n_plugin && status == TDM_OK; p++) {
        int32_t n_device = 0;
        if (tdm_runtime_device_count(roster->rt, p, NULL, &n_device, NULL) != TDM_OK) continue;
        for (int32_t i = 0; i < n_device && status == TDM_OK; i++) {
            tdm_device_info info;
            if (tdm_runtime_device_describe(roster->rt, p, i, NULL, &info, NULL) == TDM_OK)
                status = found_add(roster, info.name, p, i, err);
        }
    }
    *names_out = (const char *const *)roster->found;
    *n_out = roster->n_found;
    return status;
}

/* Declares device `name` of a plugin that enumerates it only with the options that flags and [*]
 * give, such as a software driver with allow-cpu. `device = auto` does not choose from these. Sets
 * *is_there if there is one. */
static tdm_status flagged_declare(runner_roster *roster, const char *name, bool *is_there,
                                  tdm_error *err) {
    tdm_status status = TDM_OK;
    const int32_t n_plugin = tdm_runtime_plugin_count(roster->rt);
    for (int32_t p = 0; p < n_plugin && status == TDM_OK && !*is_there; p++) {
        const char *plugin = tdm_runtime_plugin(roster->rt, p)->name;
        device_options options;
        int32_t n_device = 0;
        status = options_read(roster, NULL, name, plugin, &options, err);
        const tdm_device_params params = {
            .struct_size = sizeof params, .n_option = (int32_t)options.n, .options = options.items};
        if (status != TDM_OK || options.n == 0 ||
            tdm_runtime_device_count(roster->rt, p, &params, &n_device, NULL) != TDM_OK)
            continue;
        for (int32_t i = 0; i < n_device && !*is_there; i++) {
            tdm_device_info info;
            if (tdm_runtime_device_describe(roster->rt, p, i, &params, &info, NULL) != TDM_OK ||
                strcmp(info.name, name) != 0)
                continue;
            *is_there = true;
            status = device_declare(roster, NULL, name, plugin, i, err);
        }
    }
    return status;
}

/* Declares the device that a plugin enumerates as `name`. *is_there: whether any plugin does. */
static tdm_status found_declare(runner_roster *roster, const char *name, bool *is_there,
                                tdm_error *err) {
    const char *const *names;
    size_t n = 0;
    *is_there = false;
    tdm_status status = runner_roster_enumerate(roster, &names, &n, err);
    for (size_t i = 0; i < n && status == TDM_OK; i++) {
        if (strcmp(names[i], name) != 0) continue;
        *is_there = true;
        return device_declare(roster, NULL, name,
                              tdm_runtime_plugin(roster->rt, roster->places[i].plugin)->name,
                              roster->places[i].index, err);
    }
    return status == TDM_OK ? flagged_declare(roster, name, is_there, err) : status;
}

/* ---- Sections ---- */

static tdm_status group_declare(runner_roster *roster, const runner_section *group, bool is_main,
                                tdm_error *err) {
    runner_config *config = roster->app->config;
    size_t n_member = runner_section_get_count(config, group, "members");
    for (size_t i = 0; i < n_member; i++) {
        const char *name = runner_section_get_string_at(config, group, "members", i);
        if (is_declared(roster, name)) continue;
        const runner_section *member = runner_config_find_name(config, name);
        bool is_there = true;
        tdm_status status = member != NULL
                                ? runner_roster_declare_section(roster, member, false, err)
                                : found_declare(roster, name, &is_there, err);
        if (status != TDM_OK) return status;
        if (is_there) continue;
        roster->app->is_usage =
            runner_section_get_origin(config, group, "members").level == RUNNER_LEVEL_FLAG;
        return runner_config_member_unknown(config, group, name, (const char *const *)roster->found,
                                            roster->n_found, err);
    }
    runner_group_options options;
    tdm_status status = runner_section_get_group_options(config, group, is_main, &options, err);
    roster->app->is_usage =
        status == TDM_INVALID_ARGUMENT &&
        runner_section_get_origin(config, group, "share").level == RUNNER_LEVEL_FLAG;
    if (status != TDM_OK) return status;
    tdm_device_spec spec = {runner_section_name(group), RUNNER_GROUP_PLUGIN, 0, options.items,
                            options.n};
    return spec_declare(roster, &spec, err);
}

tdm_status runner_roster_declare_section(runner_roster *roster, const runner_section *section,
                                         bool is_main, tdm_error *err) {
    const char *name = runner_section_name(section);
    if (is_declared(roster, name)) return TDM_OK;
    if (runner_section_is_group(section)) return group_declare(roster, section, is_main, err);
    return section_device_declare(roster, section, err);
}

tdm_status runner_roster_declare_for(runner_roster *roster, const char *key, const char *name,
                                     tdm_error *err) {
    runner_config *config = roster->app->config;
    const runner_section *section = runner_config_find_name(config, name);
    if (section != NULL)
        return runner_roster_declare_section(roster, section, strcmp(key, "device") == 0, err);
    if (is_declared(roster, name)) return TDM_OK;
    bool is_there = false;
    tdm_status status = found_declare(roster, name, &is_there, err);
    if (status != TDM_OK || is_there) return status;
    return runner_config_device_unknown(config, key, name, (const char *const *)roster->found,
                                        roster->n_found, err);
}

tdm_status runner_roster_declare(runner_roster *roster, const char *name,
                                 const runner_section **section_out, tdm_error *err) {
    if (section_out != NULL) *section_out = runner_config_find_name(roster->app->config, name);
    return runner_roster_declare_for(roster, "device", name, err);
}

tdm_status runner_roster_declare_cpu(runner_roster *roster, const char *name, tdm_error *err) {
    return is_declared(roster, name)
               ? TDM_OK
               : device_declare(roster, NULL, name, RUNNER_CPU_PLUGIN, 0, err);
}

void runner_roster_clear(runner_roster *roster) {
    for (size_t i = 0; i < roster->n_name; i++) free(roster->names[i]);
    for (size_t i = 0; i < roster->n_found; i++) free(roster->found[i]);
    free(roster->names);
    free(roster->found);
    free(roster->places);
    memset(roster, 0, sizeof *roster);
}
