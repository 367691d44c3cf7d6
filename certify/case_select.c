/* SPDX-License-Identifier: MIT
 *
 * case_select.c: graphs of selection and experts.
 */
#include <math.h>

#include "certify/trial.h"

/* Ties, NaN and infinities: t->user says which. */
static void top_k_fill(certify_trial *t, certify_rig *rig) {
    float *x = (float *)(void *)rig->bytes[0];
    size_t n = rig->sizes[0] / sizeof *x;
    for (size_t i = 0; i < n; i++) {
        if (t->user == 1) x[i] = (float)(i % 3);
        if (t->user == 2 && i % 4 == 1) x[i] = NAN;
        if (t->user == 2 && i % 7 == 2) x[i] = -INFINITY;
    }
}

void certify_case_top_k(certify_trial *t) {
    static const int64_t sizes[][3] = {
        {1, 1, 1}, {50, 3, 1}, {50, 3, 8}, {1000, 2, 40}, {12, 4, 12}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++)
        for (int user = 0; user < 3; user++) {
            static const char *const words[] = {"", " with ties", " with NaN and -inf"};
            int32_t id = -1;
            if (!certify_trial_begin(t, 0, "top_k %d of [%d, %d]%s", (int)sizes[s][2],
                                     (int)sizes[s][0], (int)sizes[s][1], words[user]))
                return;
            t->user = user;
            t->fill = top_k_fill;
            int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32,
                                        (const int64_t[]){sizes[s][0], sizes[s][1], 1, 1});
            int32_t y = tdm_build_top_k(t->b, x, (int32_t)sizes[s][2], user * 100, &id);
            tdm_build_output(t->b, id, "id");
            certify_trial_end(t, y);
        }
}

/* Logits far enough apart that rounding cannot change who is best. */
static void route_fill(certify_trial *t, certify_rig *rig) {
    const tdm_value *v = tdm_graph_value(rig->graph, 0);
    float *x = (float *)(void *)rig->bytes[0];
    int64_t n = v->ne[0];
    for (int64_t r = 0; r < v->ne[1]; r++) {
        for (int64_t i = 0; i < n; i++) x[r * n + i] = (float)i * 0.11f - 1;
        for (int64_t i = n - 1; i > 0; i--) {
            int64_t k = certify_random_in(t->c, 0, i);
            float swap = x[r * n + i];
            x[r * n + i] = x[r * n + k];
            x[r * n + k] = swap;
        }
    }
    for (int32_t b = 1; b < rig->graph->n_value; b++) {
        if (tdm_graph_value(rig->graph, b)->kind != TDM_VALUE_WEIGHT) continue;
        float *bias = (float *)(void *)rig->bytes[b];
        for (int64_t i = 0; i < n; i++) bias[i] = (float)(i * 7 % n) * 0.173f;
    }
}

static void route(certify_trial *t, const char *label, int64_t n_expert, bool has_bias,
                  const tdm_route_params *p) {
    int32_t weight = -1, bias = -1;
    if (!certify_trial_begin(t, CERTIFY_NMSE_F32, "moe_route: %s", label)) return;
    t->fill = route_fill;
    int32_t logit =
        tdm_build_input(t->b, "logit", TDM_TYPE_F32, (const int64_t[]){n_expert, 5, 1, 1});
    if (has_bias)
        bias =
            tdm_build_weight(t->b, "bias", TDM_TYPE_F32, (const int64_t[]){n_expert, 1, 1, 1}, 0);
    int32_t id = tdm_build_moe_route(t->b, logit, bias, p, &weight);
    tdm_build_output(t->b, weight, "weight");
    certify_trial_end(t, id);
}

void certify_case_moe_route(certify_trial *t) {
    route(t, "softmax, 2 of 8", 8, false, &(tdm_route_params){.n_used = 2});
    route(t, "softmax normalised and scaled", 8, false,
          &(tdm_route_params){.n_used = 3, .normalize = 1, .scale = 2.5f});
    route(t, "softmax of the best", 8, false,
          &(tdm_route_params){.n_used = 2, .score = TDM_ROUTE_TOP_SOFTMAX});
    route(t, "sigmoid", 13, false, &(tdm_route_params){.n_used = 4, .score = TDM_ROUTE_SIGMOID});
    route(t, "sigmoid with bias", 16, true,
          &(tdm_route_params){.n_used = 4, .score = TDM_ROUTE_SIGMOID, .normalize = 1});
    route(t, "softmax with bias", 16, true, &(tdm_route_params){.n_used = 4});
    route(t, "sigmoid in groups", 16, true,
          &(tdm_route_params){.n_used = 3,
                              .score = TDM_ROUTE_SIGMOID,
                              .normalize = 1,
                              .n_group = 4,
                              .n_group_used = 2});
    route(t, "softmax in groups", 24, false,
          &(tdm_route_params){.n_used = 5, .n_group = 6, .n_group_used = 3});
    route(t, "one expert", 1, false, &(tdm_route_params){.n_used = 1});
}

static void ffn(certify_trial *t, tdm_type type, int32_t first, int32_t all, uint32_t usage,
                int64_t n_tok) {
    int64_t len = tdm_type_get_info(type).block_len, n = len == 1 ? 20 : len;
    int64_t n_ff = len == 1 ? 24 : 2 * len, n_expert = 5, n_used = 3;
    if (len > 32) n_expert = 3, n_ff = len;
    if (!certify_trial_begin(t, certify_trial_bound(type) * 3,
                             "moe_ffn %s%s, experts %d .. of %d, %d tokens", tdm_type_name(type),
                             usage ? " (private)" : "", (int)first, (int)all, (int)n_tok))
        return;
    t->scale = 1;
    t->id_lo = 0;
    t->id_hi = all > 0 ? all - 1 : n_expert - 1;
    int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, (const int64_t[]){n, n_tok, 1, 1});
    int32_t id = tdm_build_input(t->b, "id", TDM_TYPE_I32, (const int64_t[]){n_used, n_tok, 1, 1});
    int32_t w =
        tdm_build_input(t->b, "weight", TDM_TYPE_F32, (const int64_t[]){n_used, n_tok, 1, 1});
    const int64_t wide[] = {n, n_ff, n_expert, 1}, narrow[] = {n_ff, n, n_expert, 1};
    int32_t gate = tdm_build_weight(t->b, "gate", type, wide, usage);
    int32_t up = tdm_build_weight(t->b, "up", type, wide, usage);
    int32_t down = tdm_build_weight(t->b, "down", type, narrow, usage);
    certify_trial_end(t,
                      tdm_build_moe_ffn(t->b, x, id, w, gate, up, down, TDM_ACT_SILU, first, all));
}

void certify_case_moe_ffn(certify_trial *t) {
    for (size_t i = 0; i < n_certify_weight_types; i++) {
        tdm_type type = certify_weight_types[i];
        ffn(t, type, 0, 0, TDM_USAGE_EXPERT, 1);
        ffn(t, type, 0, 0, 0, 4);
        ffn(t, type, 4, 12, TDM_USAGE_EXPERT, 9); /* foreign experts on both sides */
    }
}
