/* SPDX-License-Identifier: MIT
 *
 * choice.c: see choice.h. Compares the speeds and sizes that plan.c computes.
 */
#include "runner/plan/choice.h"

#include <stdlib.h>
#include <string.h>

#define GROUP_NAME "auto" /* no section can have this name */

/* ---- Candidates ---- */

typedef struct candidates {
    const char **names; /* [n] the array is owned; the configuration or the roster owns the names */
    size_t n;
} candidates;

static tdm_status candidates_collect(runner_session *session, candidates *c, tdm_error *err) {
    runner_config *config = session->app->config;
    const char *const *found = NULL;
    size_t n_section = runner_config_n_devices(config), n_found = 0;
    tdm_status status = TDM_OK;
    if (n_section == 0) status = runner_roster_enumerate(&session->roster, &found, &n_found, err);
    c->n = n_section > 0 ? n_section : n_found;
    if (status == TDM_OK && c->n == 0)
        return tdm_fail(err, TDM_NOT_FOUND,
                        "no device was found; `tandem devices` prints the reason of each plugin");
    if (c->n > TDM_MAX_MEMBERS) c->n = TDM_MAX_MEMBERS;
    if (status == TDM_OK && (c->names = calloc(c->n, sizeof *c->names)) == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the list of devices");
    for (size_t i = 0; status == TDM_OK && i < c->n; i++)
        c->names[i] =
            n_section > 0 ? runner_section_name(runner_config_device(config, i)) : found[i];
    return status;
}

/* Opens one candidate as session->dev. */
static tdm_status device_open(runner_session *session, const char *name, tdm_error *err) {
    tdm_status status = runner_roster_declare(&session->roster, name, &session->section, err);
    if (status != TDM_OK) return status;
    return tdm_runtime_open(session->rt, name, &session->dev, err);
}

/* Opens the group of all candidates as session->dev. */
static tdm_status group_open(runner_session *session, const candidates *c, tdm_error *err) {
    size_t size = 1;
    for (size_t i = 0; i < c->n; i++) size += strlen(c->names[i]) + 1;
    char *members = calloc(1, size);
    if (members == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the list of devices");
    for (size_t i = 0; i < c->n; i++) {
        if (i > 0) strcat(members, ",");
        strcat(members, c->names[i]);
    }
    tdm_status status =
        runner_config_make_group(session->app->config, GROUP_NAME, members, &session->section, err);
    free(members);
    if (status == TDM_OK)
        status = runner_roster_declare_section(&session->roster, session->section, true, err);
    return status == TDM_OK ? tdm_runtime_open(session->rt, GROUP_NAME, &session->dev, err)
                            : status;
}

/* ---- Choosing ---- */

/* The index of the device to use where there is no group to compare with: the first device that
 * holds model and context, a CPU only if no other does; 0 if none does. */
static size_t single_find(runner_session *session, const candidates *c) {
    size_t best = c->n, cpu = c->n;
    for (size_t i = 0; i < c->n; i++) {
        runner_plan plan = {0};
        tdm_device_info info;
        tdm_error why = {0};
        tdm_status status = device_open(session, c->names[i], &why);
        if (status == TDM_OK) status = tdm_open_device_get_info(session->dev, &info, &why);
        if (status == TDM_OK) status = runner_plan_make(session, NULL, false, &plan, &why);
        if (status == TDM_OK) status = runner_plan_check(&plan, &why);
        runner_plan_clear(&plan);
        if (status != TDM_OK) {
            runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_DEBUG, "not '%s': %s",
                                  c->names[i], why.message);
            continue;
        }
        size_t *place = (info.flags & TDM_DEVICE_IS_HOST) != 0 ? &cpu : &best;
        if (*place == c->n) *place = i;
    }
    return best < c->n ? best : cpu < c->n ? cpu : 0;
}

static tdm_status single_open(runner_session *session, const char *name, const char *why,
                              tdm_error *err) {
    runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_NOTE, "device      '%s': %s", name,
                          why);
    return device_open(session, name, err);
}

/* Compares the group, which is session->dev, with its members by the group's plan. Opens the best
 * member instead if the group is no faster. */
static tdm_status compare(runner_session *session, const candidates *c, tdm_error *err) {
    runner_plan plan;
    char why[256];
    tdm_status status = runner_plan_make(session, NULL, true, &plan, err);
    if (status == TDM_RESOURCE_EXHAUSTED)
        return single_open(session, c->names[single_find(session, c)],
                           "there is no memory for a group of all devices", err);
    if (status != TDM_OK) return status;
    const runner_plan_member *best = plan.best >= 0 ? &plan.members[plan.best] : NULL;
    int32_t n_member = plan.n_member, n_active = 0;
    for (int32_t i = 0; i < n_member; i++) n_active += plan.members[i].at.share > 0;
    bool is_single = best != NULL && (!plan.fits || plan.decode_rate <= best->alone_decode_rate);
    if (is_single) {
        snprintf(why, sizeof why,
                 "holds the model, and all %d devices together would generate %.1f tokens per "
                 "second instead of %.1f",
                 (int)n_member, plan.decode_rate, best->alone_decode_rate);
        size_t i = (size_t)plan.best;
        runner_plan_clear(&plan);
        return single_open(session, c->names[i < c->n ? i : 0], why, err);
    }
    if (best != NULL)
        snprintf(why, sizeof why, "expected to generate %.2f times as fast as '%.31s' alone",
                 plan.decode_rate / best->alone_decode_rate, best->at.name);
    else
        snprintf(why, sizeof why, "none of them could hold the model alone");
    runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_NOTE,
                          "device      %d of %d devices as a group: %s", (int)n_active,
                          (int)n_member, why);
    runner_plan_clear(&plan);
    return TDM_OK;
}

tdm_status runner_choose(runner_session *session, tdm_error *err) {
    runner_config *config = session->app->config;
    candidates c = {0};
    tdm_error why = {0};
    tdm_status status = candidates_collect(session, &c, err);
    /* Shares are for a group: where they are set, the group is not compared with one device. */
    bool has_shares = runner_config_get_count(config, "share") > 1;
    bool is_undivided = strcmp(runner_config_get_string(config, "split"), "none") == 0;
    if (status == TDM_OK && c.n == 1) {
        status = device_open(session, c.names[0], err);
        if (status == TDM_OK)
            runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_DEBUG,
                                  "device      '%s', the only one", c.names[0]);
    } else if (status == TDM_OK && is_undivided) {
        status = single_open(session, c.names[single_find(session, &c)], "split is none", err);
    } else if (status == TDM_OK) {
        tdm_status opened = group_open(session, &c, &why);
        /* a wrong configuration is an error in any case; where the group does not open, one device
         * is used */
        if (opened == TDM_OK && has_shares)
            runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_NOTE,
                                  "device      all %zu devices as a group: shares are given", c.n);
        else if (opened == TDM_OK)
            status = compare(session, &c, err);
        else if (opened == TDM_INVALID_ARGUMENT)
            status = tdm_fail(err, opened, "%s", why.message);
        else {
            char text[sizeof why.message + 64];
            snprintf(text, sizeof text, "there is no group of all devices: %s", why.message);
            status = single_open(session, c.names[single_find(session, &c)], text, err);
        }
    }
    free(c.names);
    return status;
}
