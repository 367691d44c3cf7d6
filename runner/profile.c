/* SPDX-License-Identifier: MIT
 *
 * profile.c: see profile.h.
 */
#include "runner/profile.h"

#include <stdlib.h>
#include <string.h>

#include "llm/report.h"

static const char row_format[] = "%-20s %14s %14s %14s %14s %10s";

/* The counts are the same in the report of any step. That of a step of one token takes the least
 * time to make. */
static tdm_status report_get(runner_session *session, tdm_split_member *members,
                             tdm_split_report *report, tdm_error *err) {
    runner_context_request request;
    tdm_status status = runner_session_context(session, NULL, &request, err);
    if (status != TDM_OK) return status;
    if (session->ctx != NULL) request.params.n_ctx = llm_context_n_ctx(session->ctx);
    *report = (tdm_split_report){.struct_size = sizeof *report,
                                 .member_size = sizeof *members,
                                 .members = members,
                                 .capacity = TDM_MAX_MEMBERS,
                                 .is_brief = 1};
    return llm_model_report(session->model, session->dev, &request.params, 1, 1, report, err);
}

void runner_profile_take(runner_session *session, runner_profile_mark *mark) {
    memset(mark, 0, sizeof *mark);
    if (session->dev == NULL || !tdm_open_device_is_group(session->dev)) return;
    tdm_split_member *members = calloc(TDM_MAX_MEMBERS, sizeof *members);
    tdm_split_report report;
    tdm_error why = {0};
    if (members != NULL && report_get(session, members, &report, &why) == TDM_OK) {
        mark->n_member = report.n_member < TDM_MAX_MEMBERS ? report.n_member : TDM_MAX_MEMBERS;
        mark->n_run = report.n_run;
        for (int32_t i = 0; i < mark->n_member; i++) {
            mark->run_ns[i] = members[i].run_ns;
            mark->exchange_ns[i] = members[i].exchange_ns;
        }
    } else {
        runner_terminal_print(session->app->terminal, RUNNER_MESSAGE_DEBUG,
                              "no times of the group's members: %s", why.message);
    }
    free(members);
}

/* Whether member i exchanges without measuring it: it ran, as others did, and its time in exchanges
 * did not grow. The kernels of such a member exchange themselves and read no clock. */
static bool is_unmeasured(const runner_profile_mark *begin, const runner_profile_mark *end,
                          int32_t i) {
    int32_t n_running = 0;
    for (int32_t k = 0; k < end->n_member; k++) n_running += end->run_ns[k] > begin->run_ns[k];
    return n_running > 1 && end->run_ns[i] > begin->run_ns[i] &&
           end->exchange_ns[i] == begin->exchange_ns[i];
}

static void time_cell(uint64_t ns, char *text, size_t text_size) {
    snprintf(text, text_size, "%.1f ms", (double)ns / 1e6);
}

void runner_profile_print(runner_session *session, const runner_profile_mark *begin,
                          const runner_profile_mark *middle, const runner_profile_mark *end) {
    runner_terminal *terminal = session->app->terminal;
    runner_config *config = session->app->config;
    if (end->n_member == 0 || middle->n_member != end->n_member || begin->n_member != end->n_member)
        return;
    bool has_unmeasured = false;
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE, row_format, "member", "prompt: own",
                          "exchanges", "generating: own", "exchanges", "exchanges");
    for (int32_t i = 0; i < end->n_member; i++) {
        const uint64_t ns[] = {
            middle->run_ns[i] - begin->run_ns[i], middle->exchange_ns[i] - begin->exchange_ns[i],
            end->run_ns[i] - middle->run_ns[i], end->exchange_ns[i] - middle->exchange_ns[i]};
        char cells[4][32], part[16];
        for (int k = 0; k < 4; k++) time_cell(ns[k], cells[k], sizeof cells[k]);
        uint64_t all = ns[0] + ns[1] + ns[2] + ns[3];
        snprintf(part, sizeof part, "%.1f %%",
                 all > 0 ? 100.0 * (double)(ns[1] + ns[3]) / (double)all : 0.0);
        if (is_unmeasured(begin, end, i)) {
            has_unmeasured = true;
            strcpy(cells[1], "-");
            strcpy(cells[3], "-");
            strcpy(part, "-");
        }
        const char *name = "";
        if (runner_section_is_group(session->section) &&
            (size_t)i < runner_section_get_count(config, session->section, "members"))
            name = runner_section_get_string_at(config, session->section, "members", (size_t)i);
        runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE, row_format, name, cells[0], cells[1],
                              cells[2], cells[3], part);
    }
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE,
                          "%llu steps of the prompt, %llu of generation; exchanges include waiting "
                          "for others",
                          (unsigned long long)(middle->n_run - begin->n_run),
                          (unsigned long long)(end->n_run - middle->n_run));
    if (has_unmeasured)
        runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE,
                              "-: the member's kernels exchange themselves, so that its own time "
                              "includes that of exchanges");
}
