/* SPDX-License-Identifier: MIT
 *
 * plan.c: `tandem plan`: prints the memory that the configured model needs on each device, and
 * the predicted speed. Loads no weights.
 */
#include <stdlib.h>

#include "runner/draft.h"
#include "runner/plan/fit.h"
#include "runner/plan/pick.h"
#include "runner/config/share_file.h"
#include "runner/lora.h"

/* Writes the shares of the plan into the group's section of the --config file. */
static tdm_status shares_write(const runner_session *session, const runner_plan *plan,
                               tdm_error *err) {
    runner_app *app = session->app;
    const char *path = runner_config_get_string(app->config, "config");
    if (!runner_section_is_group(session->section) || path[0] == '\0' ||
        runner_section_line(session->section) == 0)
        return runner_usage(app, err,
                            "--write-share: '%s' is not a [group NAME] of the --config file; give "
                            "one with --device",
                            tdm_open_device_name(session->dev));
    size_t n = (size_t)(plan->n_member - plan->n_extra);
    double *shares = calloc(n + 1, sizeof *shares);
    if (shares == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "plan: no memory");
    for (size_t i = 0; i < n; i++) shares[i] = plan->members[i].at.share;
    tdm_status status =
        runner_share_file_write(path, runner_section_name(session->section), shares, n, err);
    free(shares);
    if (status == TDM_OK)
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_NOTE,
                              "%s: the share of [group %s] is written", path,
                              runner_section_name(session->section));
    return status;
}

static tdm_status plan_command(runner_app *app, tdm_error *err) {
    runner_session session = {.app = app};
    runner_plan plan = {0};
    runner_draft draft = {0};
    runner_context_wish wish = {.n_seq = (int32_t)runner_config_get_int(app->config, "parallel"),
                                .gives_hidden = runner_draft_is_layer(app)};
    bool is_json = runner_config_get_bool(app->config, "json");
    tdm_status status = runner_config_check(app->config, err);
    if (status == TDM_OK) status = runner_session_open(&session, app, NULL, err);
    if (status == TDM_OK) status = runner_draft_open(&draft, &session, err);
    if (status == TDM_OK) status = runner_session_pick(&session, NULL, 0, err);
    if (status == TDM_OK) runner_draft_join(&draft, &session, &wish);
    /* A plan that does not fit is printed, too, and the command fails. If the plan itself states
     * the reason (runner_plan_check), is_reported suppresses the message. */
    tdm_error why = {0};
    bool fits = status == TDM_OK && runner_fit(&session, &wish, &why) == TDM_OK;
    if (status == TDM_OK) status = runner_plan_make(&session, &wish, true, &plan, err);
    if (status == TDM_OK) {
        (is_json ? runner_plan_print_json : runner_plan_print)(&session, &plan, app->out);
        status = runner_flush(app, err);
    }
    if (status == TDM_OK && fits && runner_config_get_bool(app->config, "write-share"))
        status = shares_write(&session, &plan, err);
    app->is_reported = status == TDM_OK && !fits && runner_plan_check(&plan, NULL) != TDM_OK;
    if (status == TDM_OK && !fits) status = tdm_fail(err, why.status, "%s", why.message);
    runner_plan_clear(&plan);
    runner_draft_close(&draft);
    runner_session_close(&session);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only plan",
     .name = "json",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "print the plan as JSON"},
    {.topic = "Only plan",
     .name = "write-share",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "write the shares in use into the group's section of the --config file"},
};

const runner_command runner_command_plan = {
    .name = "plan",
    .summary = "explain what a configuration takes, and how fast it will be",
    .run = plan_command,
    .keys = RUNNER_KEYS_COMPUTE RUNNER_KEYS_LORA RUNNER_KEYS_DRAFT " ctx-size parallel warmup",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
};
