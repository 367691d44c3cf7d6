/* SPDX-License-Identifier: MIT
 *
 * links.c: the costs of submissions and exchanges: given, measured (links_measure.c), or a default.
 */
#include "plugins/meta/share/links.h"

#include <stdio.h>
#include <stdlib.h>

/* Where nothing was measured: seconds of an exchange inside the members' plans, and of one that
 * goes through the host or cuts the plan, with its submission. Measured on CPUs. */
#define EXCHANGE_SECONDS      1e-5
#define HOST_EXCHANGE_SECONDS 6e-5

static bool links_given(meta_device *device, tdm_error *err, tdm_status *status_out) {
    const char *text = getenv("TANDEM_TEST_LINKS");
    double submit = 0, crossing = 0;
    int length = 0;
    *status_out = TDM_OK;
    if (text == NULL || strcmp(text, "measure") == 0) return false;
    for (int32_t d = 0; d < device->n_member; d++) {
        meta_member *m = &device->members[d];
        if (sscanf(text, "%lf,%lf%n", &submit, &crossing, &length) == 2) text += length;
        if (!(submit > 0) || !(crossing > 0)) {
            *status_out =
                tdm_fail(err, TDM_INVALID_ARGUMENT,
                         "group: TANDEM_TEST_LINKS: expected SUBMIT,CROSSING, got '%s'", text);
            return true;
        }
        m->submit_seconds = submit;
        m->crossing_seconds = crossing;
    }
    return true;
}

tdm_status meta_links_find(meta_device *device, tdm_error *err) {
    tdm_status status = TDM_OK;
    if (links_given(device, err, &status)) return status;
    /* Given rates come without links where a test names no links. */
    const bool has_rates = getenv("TANDEM_TEST_RATES") != NULL;
    if ((has_rates && getenv("TANDEM_TEST_LINKS") == NULL) || device->n_active < 2) return TDM_OK;
    return meta_links_measure(device, err);
}

static bool is_cut(const meta_member *member) {
    return member->exchange != META_EXCHANGE_IN_PLAN;
}

double meta_crossing_seconds(const meta_member *member) {
    if (member->crossing_seconds > 0) return member->crossing_seconds;
    if (!is_cut(member)) return EXCHANGE_SECONDS;
    /* Copies by the host take about as long on any device; phases copy nothing. */
    if (member->exchange == META_EXCHANGE_IN_PHASES && member->submit_seconds > 0)
        return EXCHANGE_SECONDS;
    return HOST_EXCHANGE_SECONDS;
}

double meta_exchange_seconds(const meta_member *member) {
    return meta_crossing_seconds(member) + (is_cut(member) ? member->submit_seconds : 0);
}
