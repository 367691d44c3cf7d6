/* SPDX-License-Identifier: MIT
 *
 * pick.c: see pick.h.
 */
#include "runner/plan/pick.h"

#include <string.h>

#include "runner/llama_flags.h"
#include "runner/plan/choice.h"

#define CPU_ONLY_NAME "cpu (-ngl 0)" /* no section can have this name */
#define FALLBACK_NAME "cpu (fallback)" /* no section can have this name */

/* Replaces a group with `split = none` by its first member, repeatedly: sets session->section (NULL
 * = the member has none) and *name. */
static tdm_status undivided_follow(runner_session *session, const char **name, tdm_error *err) {
    runner_config *config = session->app->config;
    /* The file was checked for cycles, so this ends. */
    while (runner_section_is_group(session->section) &&
           runner_section_is_undivided(config, session->section, true)) {
        *name = runner_section_get_string_at(config, session->section, "members", 0);
        session->section = runner_config_find_name(config, *name);
    }
    return runner_config_check(config, err);
}

/* Whether a section is a CPU device, or a group of CPU devices only. The file was checked for
 * cycles. */
static bool section_is_cpu(runner_config *config, const runner_section *section) {
    if (section == NULL) return false;
    if (!runner_section_is_group(section))
        return strcmp(runner_section_get_string(config, section, "plugin"), RUNNER_CPU_PLUGIN) == 0;
    for (size_t i = 0; i < runner_section_get_count(config, section, "members"); i++)
        if (!section_is_cpu(
                config, runner_config_find_name(
                            config, runner_section_get_string_at(config, section, "members", i))))
            return false;
    return true;
}

/* `gpu-layers = 0`: opens the device of the file if that is a CPU, else a CPU device without a
 * section. */
static tdm_status cpu_open(runner_session *session, tdm_error *err) {
    const char *name = CPU_ONLY_NAME;
    tdm_status status;
    if (!section_is_cpu(session->app->config, session->section)) session->section = NULL;
    if (session->section != NULL) name = runner_section_name(session->section);
    status = undivided_follow(session, &name, err);
    if (status == TDM_OK && session->section != NULL)
        status = runner_roster_declare_section(&session->roster, session->section, true, err);
    else if (status == TDM_OK)
        status = runner_roster_declare_cpu(&session->roster, name, err);
    return status == TDM_OK ? tdm_runtime_open(session->rt, name, &session->dev, err) : status;
}

/* Opens the device `name`, a value of the key `device`. */
static tdm_status device_open(runner_session *session, const char *name, tdm_error *err) {
    runner_config *config = session->app->config;
    bool is_cpu_only = runner_wants_cpu(session->app);
    tdm_status status = runner_config_find_device(config, name, &session->section, err);
    if (is_cpu_only && (status == TDM_OK || strcmp(name, "auto") == 0))
        return cpu_open(session, err);
    bool is_flag = runner_config_get_origin(config, "device").level == RUNNER_LEVEL_FLAG;
    session->app->is_usage = status != TDM_OK && is_flag;
    if (status != TDM_OK) return status;
    if (session->section == NULL && strcmp(name, "auto") == 0) return runner_choose(session, err);
    if (session->section != NULL) name = runner_section_name(session->section);
    status = undivided_follow(session, &name, err);
    if (status == TDM_OK && session->section != NULL)
        status = runner_roster_declare_section(&session->roster, session->section, true, err);
    else if (status == TDM_OK)
        status = runner_roster_declare(&session->roster, name, NULL, err);
    return status == TDM_OK ? tdm_runtime_open(session->rt, name, &session->dev, err) : status;
}

/* Opens the CPU for the ops that the device refuses. Not for a CPU, nor for a group, which has
 * fallbacks for its members. Without a CPU there is no fallback, which is no failure. */
static void fallback_open(runner_session *session) {
    tdm_error why = {0};
    if (strcmp(tdm_open_device_plugin(session->dev)->name, RUNNER_CPU_PLUGIN) == 0 ||
        tdm_open_device_is_group(session->dev))
        return;
    /* A CPU of the placement serves as the fallback, too. */
    for (int32_t i = 1; i < session->placement.n_dev; i++)
        if (strcmp(tdm_open_device_plugin(session->placement.devs[i])->name, RUNNER_CPU_PLUGIN) ==
            0)
            return;
    tdm_status status = runner_roster_declare_cpu(&session->roster, FALLBACK_NAME, &why);
    if (status == TDM_OK)
        status = tdm_runtime_open(session->rt, FALLBACK_NAME, &session->fallback, &why);
    if (status != TDM_OK)
        runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_DEBUG,
                              "no CPU to run what '%s' refuses: %s",
                              tdm_open_device_name(session->dev), why.message);
}

/* Prints a note for keys of groups that are set although one device was opened. With `split = none`
 * that is what the user wants. */
static void group_keys_note(const runner_session *session) {
    runner_app *app = session->app;
    const bool is_undivided = strcmp(runner_config_get_string(app->config, "split"), "none") == 0;
    const char *const keys[] = {"share", is_undivided ? NULL : "split"};
    if (tdm_open_device_is_group(session->dev)) return;
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (keys[i] != NULL &&
            runner_config_get_origin(app->config, keys[i]).level != RUNNER_LEVEL_BUILT_IN)
            runner_key_note(app, keys[i], "one device is used, not a group");
}

tdm_status runner_session_pick(runner_session *session, const char *device, int32_t threads,
                               tdm_error *err) {
    uint64_t start = runner_clock();
    runner_app *app = session->app;
    const char *name = device != NULL ? device : runner_config_get_string(app->config, "device");
    tdm_status status = runner_runtime_create(app, &session->rt, err);
    session->roster = (runner_roster){.app = app, .rt = session->rt, .threads = threads};
    if (status == TDM_OK) status = runner_roster_set_fallback(&session->roster, err);
    if (status == TDM_OK) status = device_open(session, name, err);
    if (status == TDM_OK) status = runner_config_check(app->config, err);
    if (status == TDM_OK) status = tdm_open_device_get_info(session->dev, &session->info, err);
    if (status == TDM_OK)
        status = runner_placement_read(&session->placement, &session->roster, session->dev,
                                       session->model, err);
    if (status == TDM_OK && (status = runner_config_check_taken(app->config, err)) != TDM_OK)
        app->is_usage = true;
    if (status == TDM_OK) group_keys_note(session);
    if (status == TDM_OK) fallback_open(session);
    session->load_ns += runner_clock() - start;
    return status;
}
