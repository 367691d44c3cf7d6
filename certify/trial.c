/* SPDX-License-Identifier: MIT
 *
 * trial.c: runs one graph of a list of cases, or compares what supports_op returns for it with what
 * running does.
 */
#include "certify/trial.h"

#include <stdlib.h>
#include <string.h>

#define WEIGHT_FLOAT(ID) TDM_TYPE_##ID,
#define WEIGHT_BLOCK     WEIGHT_FLOAT
#define WEIGHT_INTEGER(ID)
#define WEIGHT_(ID, name, number, kind, ...) WEIGHT_##kind(ID)
const tdm_type certify_weight_types[] = {TDM_TYPE_LIST(WEIGHT_)};
const size_t n_certify_weight_types = sizeof certify_weight_types / sizeof certify_weight_types[0];

double certify_trial_bound(tdm_type type) {
    if (tdm_type_get_info(type).is_quantized) return CERTIFY_NMSE_QUANT;
    return type == TDM_TYPE_BF16 ? CERTIFY_NMSE_BF16 : CERTIFY_NMSE_MATMUL;
}

bool certify_trial_begin(certify_trial *t, double nmse, const char *format, ...) {
    va_list args;
    if (t->verdict != CERTIFY_PASSED) return false;
    va_start(args, format);
    vsnprintf(t->label, sizeof t->label, format, args);
    va_end(args);
    t->nmse = nmse;
    t->scale = 2;
    t->rms = 0;
    t->id_lo = 0;
    t->id_hi = 0;
    t->fill = NULL;
    if (tdm_builder_create(&t->b, NULL) == TDM_OK) return true;
    t->verdict = certify_skip(t->c, "out of memory");
    return false;
}

static void rig_fill(certify_trial *t, certify_rig *rig) {
    for (int32_t i = 0; i < rig->graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(rig->graph, i);
        if (v->kind != TDM_VALUE_WEIGHT && v->kind != TDM_VALUE_INPUT) continue;
        if (v->type == TDM_TYPE_I32)
            certify_rig_fill_ids(rig, i, t->id_lo, t->id_hi);
        else
            certify_rig_fill(rig, i, t->scale);
    }
    if (t->fill != NULL) t->fill(t, rig);
}

static certify_verdict numbers_judge(certify_trial *t, certify_rig *rig) {
    if (!certify_rig_is_supported(rig)) {
        t->n_refused++;
        return CERTIFY_PASSED;
    }
    t->n_run++;
    rig->rms = t->rms;
    rig_fill(t, rig);
    certify_verdict verdict = certify_rig_run(rig);
    if (verdict == CERTIFY_PASSED)
        verdict = certify_rig_judge(rig, "against the reference", t->nmse);
    return verdict;
}

/* A graph that supports_op refused must not run. Its inputs stay zeros: their numbers do not matter,
 * and quantising weights takes long. */
static certify_verdict refused_judge(certify_trial *t, certify_rig *rig) {
    tdm_error err = {.struct_size = sizeof err};
    certify_verdict verdict = certify_rig_upload(rig);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (certify_rig_compute(rig, &err) == TDM_OK)
        return certify_fail(t->c, "supports_op refuses it (%.200s), and it runs",
                            t->c->failure.message);
    return CERTIFY_PASSED;
}

static certify_verdict truth_judge(certify_trial *t, certify_rig *rig) {
    const tdm_device_ops *ops = t->c->plugin->device;
    uint8_t *answers = malloc((size_t)rig->graph->n_node + 1);
    certify_verdict verdict = CERTIFY_PASSED;
    bool is_whole = true;
    if (answers == NULL) return certify_skip(t->c, "out of memory");
    memset(answers, 0x77, (size_t)rig->graph->n_node + 1);
    if (TDM_HAS(ops, graph_supports) &&
        ops->graph_supports(t->c->device, rig->graph, answers, NULL) != TDM_OK)
        verdict = certify_fail(t->c, "graph_supports failed");
    for (int32_t i = 0; verdict == CERTIFY_PASSED && i < rig->graph->n_node; i++) {
        tdm_error err = {.struct_size = sizeof err};
        tdm_status status = ops->supports_op(t->c->device, rig->graph, i, &err);
        if (status != TDM_OK && is_whole) t->c->failure = err;
        if (status != TDM_OK) is_whole = false;
        if (status != TDM_OK && status != TDM_UNSUPPORTED)
            verdict = certify_fail(t->c, "supports_op returned '%s'", tdm_status_text(status));
        else if (status != TDM_OK && err.message[0] == 0)
            verdict = certify_fail(t->c, "supports_op refuses without a reason");
        else if (TDM_HAS(ops, graph_supports) && answers[i] != (status == TDM_OK ? 1 : 0))
            verdict = certify_fail(t->c, "graph_supports returns %d for node %d, supports_op %d",
                                   answers[i], (int)i, status == TDM_OK);
    }
    if (verdict == CERTIFY_PASSED && answers[rig->graph->n_node] != 0x77)
        verdict = certify_fail(t->c, "graph_supports wrote behind its array");
    free(answers);
    if (verdict != CERTIFY_PASSED) return verdict;
    t->n_run += is_whole;
    t->n_refused += !is_whole;
    return is_whole ? CERTIFY_PASSED : refused_judge(t, rig);
}

void certify_trial_end(certify_trial *t, int32_t y) {
    certify_rig rig = {0};
    tdm_build_output(t->b, y, "y");
    certify_verdict verdict = certify_rig_create(t->c, t->b, &rig);
    t->b = NULL;
    if (verdict == CERTIFY_PASSED)
        verdict = t->mode == CERTIFY_TRIAL_TRUTH ? truth_judge(t, &rig) : numbers_judge(t, &rig);
    t->verdict = certify_prefix(t->c, verdict, "%s", t->label);
    certify_rig_destroy(&rig);
}

void certify_trial_run(certify *c, const certify_op *op, certify_trial_mode mode,
                       certify_trial *trial_out) {
    *trial_out = (certify_trial){.c = c, .mode = mode, .verdict = CERTIFY_PASSED};
    op->cases(trial_out);
}
