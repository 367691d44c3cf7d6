/* SPDX-License-Identifier: MIT
 *
 * case_select.c: selection and experts: test graphs and references.
 */
#include <math.h>
#include <stdlib.h>

#include "certify/trial.h"

/* Ties, NaN or infinities, selected by t->user. */
static void top_k_fill(certify_trial *t, certify_rig *rig) {
    float *x = (float *)(void *)rig->bytes[0];
    size_t n = rig->sizes[0] / sizeof *x;
    for (size_t i = 0; i < n; i++) {
        if (t->user == 1) x[i] = (float)(i % 3);
        if (t->user == 2 && i % 4 == 1) x[i] = NAN;
        if (t->user == 2 && i % 7 == 2) x[i] = -INFINITY;
    }
}

static void top_k_cases(certify_trial *t) {
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

/* True when a ranks before b: larger, NaN below everything; the caller breaks ties by index. */
static bool is_above(double a, double b) {
    if (isnan(a)) return false;
    return isnan(b) || a > b;
}

/* The best of x[n] that is not taken; ties go to the lower index. -1 when all are. */
static int64_t best_take(const double *x, bool *is_taken, int64_t n) {
    int64_t best = -1;
    for (int64_t i = 0; i < n; i++)
        if (!is_taken[i] && (best < 0 || is_above(x[i], x[best]))) best = i;
    if (best >= 0) is_taken[best] = true;
    return best;
}

static void top_k_reference(const certify_operands *o) {
    int64_t n = o->src[0].ne[0], k = o->dst[0].ne[0];
    bool *is_taken = malloc((size_t)n + 1);
    for (int64_t r = 0; is_taken != NULL && r < o->src[0].ne[1]; r++) {
        for (int64_t i = 0; i < n; i++) is_taken[i] = false;
        for (int64_t i = 0; i < k; i++) {
            int64_t best = best_take(o->src[0].x + r * n, is_taken, n);
            o->dst[0].x[r * k + i] = o->src[0].x[r * n + best];
            o->dst[1].x[r * k + i] = (double)(best + o->node->params.top_k.index_base);
        }
    }
    free(is_taken);
}

CERTIFY_OP(
    top_k, "op.top-k", top_k_cases, top_k_reference,
    "op.h: TOP_K: \"descending; ids + index_base\"; \"Ties go to the lower index. NaN ranks below "
    "everything.\"")

/* Logits so far apart that rounding cannot change their order. */
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

/* Experts given for the tokens. Some occur twice, some do not exist, and of token 1 none exists. */
static void given_fill(certify_trial *t, certify_rig *rig) {
    route_fill(t, rig);
    const tdm_value *logit = tdm_graph_value(rig->graph, 0);
    for (int32_t v = 1; v < rig->graph->n_value; v++) {
        const tdm_value *value = tdm_graph_value(rig->graph, v);
        if (value->kind != TDM_VALUE_INPUT || value->type != TDM_TYPE_I32) continue;
        int32_t *id = (int32_t *)(void *)rig->bytes[v];
        const int64_t n_used = value->ne[0], n = logit->ne[0];
        for (int64_t u = 0; u < n_used; u++) {
            id[u] = u == 0 ? -1 : id[u];
            id[n_used + u] = u % 2 == 0 ? (int32_t)n : INT32_MIN;
            id[2 * n_used + u] = id[2 * n_used];
            id[3 * n_used + u] = u == n_used - 1 ? INT32_MAX : (int32_t)(n - 1 - u % n);
        }
    }
}

static void route_given(certify_trial *t, const char *label, int64_t n_expert, bool is_view,
                        const tdm_route_params *p) {
    int32_t weight = -1;
    const int64_t n_tok = 6, n_used = p->n_used;
    if (!certify_trial_begin(t, CERTIFY_NMSE_F32, "moe_route of given experts: %s", label)) return;
    t->fill = given_fill;
    t->id_hi = n_expert - 1;
    int32_t logit =
        tdm_build_input(t->b, "logit", TDM_TYPE_F32, (const int64_t[]){n_expert, n_tok, 1, 1});
    int32_t given = tdm_build_input(t->b, "given", TDM_TYPE_I32,
                                    (const int64_t[]){n_used + 2 * is_view, n_tok, 1, 1});
    if (is_view)
        given = tdm_build_slice(t->b, given, (const int64_t[]){1, 0, 0, 0},
                                (const int64_t[]){n_used, n_tok, 1, 1});
    int32_t id = tdm_build_moe_route_given(t->b, logit, given, p, &weight);
    tdm_build_output(t->b, weight, "weight");
    certify_trial_end(t, id);
}

static void given_cases(certify_trial *t) {
    route_given(t, "softmax", 8, false, &(tdm_route_params){.n_used = 3});
    route_given(t, "softmax normalised and scaled", 8, true,
                &(tdm_route_params){.n_used = 3, .normalize = 1, .scale = 2.5f});
    route_given(t, "softmax of those alone", 12, false,
                &(tdm_route_params){.n_used = 4, .score = TDM_ROUTE_TOP_SOFTMAX});
    route_given(t, "sigmoid, a view", 13, true,
                &(tdm_route_params){.n_used = 4, .score = TDM_ROUTE_SIGMOID, .normalize = 1});
    route_given(t, "square root of softplus", 200, false,
                &(tdm_route_params){
                    .n_used = 6, .score = TDM_ROUTE_SQRT_SOFTPLUS, .normalize = 1, .scale = 1.5f});
    route_given(t, "one expert", 1, false, &(tdm_route_params){.n_used = 1, .normalize = 1});
}

static void moe_route_cases(certify_trial *t) {
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
    route(t, "square root of softplus with bias", 16, true,
          &(tdm_route_params){
              .n_used = 4, .score = TDM_ROUTE_SQRT_SOFTPLUS, .normalize = 1, .scale = 1.5f});
    route(t, "square root of softplus in groups", 16, false,
          &(tdm_route_params){
              .n_used = 3, .score = TDM_ROUTE_SQRT_SOFTPLUS, .n_group = 4, .n_group_used = 2});
    route(t, "one expert", 1, false, &(tdm_route_params){.n_used = 1});
    route(t, "ids divided", 12, false,
          &(tdm_route_params){.n_used = 4, .normalize = 1, .id_divisor = 5});
    given_cases(t);
}

/* Marks the experts of all groups but the best as taken. */
static void groups_drop(const tdm_route_params *p, const double *choice, bool *is_taken,
                        int64_t n) {
    int64_t size = n / p->n_group;
    double *rank = calloc((size_t)p->n_group, sizeof *rank);
    bool *is_kept = calloc((size_t)p->n_group, sizeof *is_kept);
    for (int32_t g = 0; rank != NULL && is_kept != NULL && g < p->n_group; g++) {
        double first = -INFINITY, second = -INFINITY;
        for (int64_t i = g * size; i < (g + 1) * size; i++) {
            if (choice[i] > first)
                second = first, first = choice[i];
            else if (choice[i] > second)
                second = choice[i];
        }
        const bool has_two = p->score == TDM_ROUTE_SIGMOID || p->score == TDM_ROUTE_SQRT_SOFTPLUS;
        rank[g] = has_two && size > 1 ? first + second : first;
    }
    for (int32_t k = 0; rank != NULL && is_kept != NULL && k < p->n_group_used; k++)
        (void)best_take(rank, is_kept, p->n_group);
    for (int64_t i = 0; is_kept != NULL && i < n; i++)
        if (!is_kept[i / size]) is_taken[i] = true;
    free(rank);
    free(is_kept);
}

static void scores(const tdm_route_params *p, const double *logit, double *score, int64_t n) {
    double max = -INFINITY, sum = 0;
    for (int64_t i = 0; i < n; i++) max = fmax(max, logit[i]);
    for (int64_t i = 0; i < n; i++) sum += exp(logit[i] - max);
    for (int64_t i = 0; i < n; i++) {
        if (p->score == TDM_ROUTE_SOFTMAX) score[i] = exp(logit[i] - max) / sum;
        if (p->score == TDM_ROUTE_SIGMOID) score[i] = 1 / (1 + exp(-logit[i]));
        if (p->score == TDM_ROUTE_TOP_SOFTMAX) score[i] = logit[i];
        if (p->score == TDM_ROUTE_SQRT_SOFTPLUS) score[i] = sqrt(log1p(exp(logit[i])));
    }
}

static void weights(const tdm_route_params *p, double *weight) {
    double scale = p->scale != 0 ? (double)p->scale : 1, sum = 0;
    if (p->score == TDM_ROUTE_TOP_SOFTMAX) {
        double max = -INFINITY, total = 0;
        for (int32_t u = 0; u < p->n_used; u++) max = fmax(max, weight[u]);
        for (int32_t u = 0; u < p->n_used; u++)
            total += weight[u] = weight[u] == -INFINITY ? 0 : exp(weight[u] - max);
        for (int32_t u = 0; u < p->n_used && total > 0; u++) weight[u] /= total;
    }
    for (int32_t u = 0; u < p->n_used; u++) sum += weight[u];
    for (int32_t u = 0; u < p->n_used; u++)
        weight[u] *= scale / (p->normalize && sum != 0 ? sum : 1);
}

/* The scores of experts that are given. An expert that does not exist has weight 0; for a softmax
 * over the given ones alone, that is a logit of -inf. */
static void given_take(const certify_operands *o, int64_t t, const double *score) {
    const tdm_route_params *p = &o->node->params.route;
    for (int32_t u = 0; u < p->n_used; u++) {
        const double id = o->src[2].x[t * p->n_used + u];
        const bool is_there = id >= 0 && id < (double)o->src[0].ne[0];
        const double none = p->score == TDM_ROUTE_TOP_SOFTMAX ? -INFINITY : 0;
        o->dst[0].x[t * p->n_used + u] = is_there ? id : -1;
        o->dst[1].x[t * p->n_used + u] = is_there ? score[(int64_t)id] : none;
    }
}

static void route_reference(const certify_operands *o) {
    const tdm_route_params *p = &o->node->params.route;
    int64_t n = o->src[0].ne[0];
    double *score = malloc((size_t)n * 2 * sizeof *score);
    bool *is_taken = malloc((size_t)n);
    for (int64_t t = 0; score != NULL && is_taken != NULL && t < o->src[0].ne[1]; t++) {
        double *choice = score + n, *weight = o->dst[1].x + t * p->n_used;
        scores(p, o->src[0].x + t * n, score, n);
        for (int64_t i = 0; i < n; i++) {
            is_taken[i] = false;
            choice[i] = score[i] + (o->src[1].x != NULL ? o->src[1].x[i] : 0);
        }
        if (p->n_group > 1) groups_drop(p, choice, is_taken, n);
        if (o->src[2].x != NULL) given_take(o, t, score);
        for (int32_t u = 0; u < p->n_used && o->src[2].x == NULL; u++) {
            int64_t best = best_take(choice, is_taken, n);
            o->dst[0].x[t * p->n_used + u] =
                (double)(best / (p->id_divisor > 1 ? p->id_divisor : 1));
            weight[u] = score[best];
        }
        weights(p, weight);
    }
    free(score);
    free(is_taken);
}

CERTIFY_OP(
    moe_route, "op.moe-route", moe_route_cases, route_reference,
    "op.h: MOE_ROUTE and tdm_route_params; \"an id outside 0 .. n_expert - 1 is given as -1, "
    "with weight 0\"")

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

/* Experts of f32 with what changes h and the sum; `biases` mask: of gate, up, down. */
static void ffn_form(certify_trial *t, const char *label, const tdm_moe_params *p, int biases,
                     int64_t n_tok) {
    enum { N = 20, N_FF = 24, N_EXPERT = 5, N_USED = 3 };
    static const char *const names[] = {"gate_bias", "up_bias", "down_bias"};
    if (!certify_trial_begin(t, certify_trial_bound(TDM_TYPE_F32) * 3, "moe_ffn f32, %s, %d tokens",
                             label, (int)n_tok))
        return;
    t->scale = 1;
    t->id_lo = 0;
    t->id_hi = p->n_expert_all > 0 ? p->n_expert_all - 1 : N_EXPERT - 1;
    int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, (const int64_t[]){N, n_tok, 1, 1});
    int32_t id = tdm_build_input(t->b, "id", TDM_TYPE_I32, (const int64_t[]){N_USED, n_tok, 1, 1});
    int32_t w =
        tdm_build_input(t->b, "weight", TDM_TYPE_F32, (const int64_t[]){N_USED, n_tok, 1, 1});
    const int64_t wide[] = {N, N_FF, N_EXPERT, 1}, narrow[] = {N_FF, N, N_EXPERT, 1};
    const int32_t matrix[3] = {
        tdm_build_weight(t->b, "gate", TDM_TYPE_F32, wide, TDM_USAGE_EXPERT),
        tdm_build_weight(t->b, "up", TDM_TYPE_F32, wide, TDM_USAGE_EXPERT),
        tdm_build_weight(t->b, "down", TDM_TYPE_F32, narrow, TDM_USAGE_EXPERT)};
    int32_t bias[3] = {-1, -1, -1};
    for (int i = 0; i < 3; i++)
        if ((biases >> i & 1) != 0)
            bias[i] = tdm_build_weight(t->b, names[i], TDM_TYPE_F32,
                                       (const int64_t[]){i == 2 ? N : N_FF, N_EXPERT, 1, 1}, 0);
    certify_trial_end(t, tdm_build_moe_ffn_biased(t->b, x, id, w, matrix, bias, p));
}

static void moe_ffn_forms(certify_trial *t, int64_t n_tok) {
    ffn_form(t, "biases", &(tdm_moe_params){.act = TDM_ACT_SILU}, 7, n_tok);
    ffn_form(t, "bias of down, foreign experts",
             &(tdm_moe_params){.act = TDM_ACT_GELU, .first_expert = 4, .n_expert_all = 12}, 4,
             n_tok);
    ffn_form(t, "limits", &(tdm_moe_params){.act = TDM_ACT_SILU, .limit = 0.75f}, 0, n_tok);
    ffn_form(
        t, "biases, limits, alpha and offset",
        &(tdm_moe_params){.act = TDM_ACT_SILU, .limit = 1.5f, .alpha = 1.702f, .up_offset = 1.0f},
        7, n_tok);
    ffn_form(t, "biases, limits of act", &(tdm_moe_params){.act = TDM_ACT_SILU, .limit = -0.25f}, 7,
             n_tok);
    ffn_form(t, "biases and soft limits",
             &(tdm_moe_params){.act = TDM_ACT_SIGMOID, .alpha = 0.5f, .limit = 0.75f, .is_soft = 1},
             7, n_tok);
    ffn_form(t, "a soft limit of the gate, offset, foreign experts",
             &(tdm_moe_params){.act = TDM_ACT_SIGMOID,
                               .first_expert = 4,
                               .n_expert_all = 12,
                               .up_offset = 0.5f,
                               .is_soft = 1},
             0, n_tok);
    ffn_form(t, "weights first", &(tdm_moe_params){.act = TDM_ACT_SILU, .is_weighted_first = 1}, 0,
             n_tok);
    ffn_form(t, "weights first and biases",
             &(tdm_moe_params){.act = TDM_ACT_SILU, .is_weighted_first = 1}, 6, n_tok);
}

static void moe_ffn_cases(certify_trial *t) {
    for (size_t i = 0; i < n_certify_weight_types; i++) {
        tdm_type type = certify_weight_types[i];
        ffn(t, type, 0, 0, TDM_USAGE_EXPERT, 1);
        ffn(t, type, 0, 0, 0, 4);
        if (tdm_type_get_info(type).block_len <= 32) ffn(t, type, 0, 0, 0, 9);
        ffn(t, type, 4, 12, TDM_USAGE_EXPERT, 9); /* foreign experts on both sides */
    }
    moe_ffn_forms(t, 2);
    moe_ffn_forms(t, 11);
}

static double dot(const double *a, const double *b, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* h of one expert (op.h, tdm_moe_params), with weight * x instead of x. */
static void hidden_reference(const certify_operands *o, int64_t expert, const double *x,
                             double weight, double *hidden) {
    const tdm_moe_params *p = &o->node->params.moe;
    const int64_t n = o->src[0].ne[0], n_ff = o->src[3].ne[1], at = expert * n * n_ff;
    const double alpha = p->alpha > 0 ? (double)p->alpha : 1, limit = fabs((double)p->limit);
    for (int64_t j = 0; j < n_ff; j++) {
        double g = weight * dot(o->src[3].x + at + j * n, x, n);
        double u = weight * dot(o->src[4].x + at + j * n, x, n);
        if (o->src[7].x != NULL) g += o->src[7].x[expert * n_ff + j];
        if (o->src[8].x != NULL) u += o->src[8].x[expert * n_ff + j];
        if (p->is_soft) {
            if (limit > 0) u = limit * tanh(u / limit);
            hidden[j] =
                certify_act(p->act, g) * tanh(alpha * g) / alpha * (u + (double)p->up_offset);
            continue;
        }
        if (limit > 0) u = fmax(-limit, fmin(u, limit));
        if (p->limit > 0) g = fmin(g, limit);
        g = certify_act(p->act, alpha * g) / alpha;
        if (p->limit < 0) g = fmin(g, limit);
        hidden[j] = g * (u + (double)p->up_offset);
    }
}

static void experts_reference(const certify_operands *o) {
    const tdm_moe_params *p = &o->node->params.moe;
    int64_t n = o->src[0].ne[0], n_ff = o->src[3].ne[1], n_expert = o->src[3].ne[2];
    int64_t n_used = o->src[1].ne[0];
    double *hidden = malloc(((size_t)n_ff + 1) * sizeof *hidden);
    for (int64_t t = 0; hidden != NULL && t < o->src[0].ne[1]; t++) {
        const double *x = o->src[0].x + t * n;
        double *y = o->dst[0].x + t * n;
        for (int64_t i = 0; i < n; i++) y[i] = 0;
        for (int64_t u = 0; u < n_used; u++) {
            double e = o->src[1].x[t * n_used + u] - p->first_expert;
            double weight = o->src[2].x[t * n_used + u];
            if (e < 0 || e >= (double)n_expert) continue;
            int64_t expert = (int64_t)e, at = expert * n * n_ff;
            hidden_reference(o, expert, x, p->is_weighted_first ? weight : 1, hidden);
            for (int64_t i = 0; i < n; i++) {
                double sum = dot(o->src[5].x + at + i * n_ff, hidden, n_ff);
                if (o->src[9].x != NULL) sum += o->src[9].x[expert * n + i];
                y[i] += p->is_weighted_first ? sum : weight * sum;
            }
        }
    }
    free(hidden);
}

CERTIFY_OP(moe_ffn, "op.moe-ffn", moe_ffn_cases, experts_reference,
           "op.h: MOE_FFN and tdm_moe_params: \"sum_u weight[u] * (down_e h + down_bias_e)\", "
           "\"h = act(g) * p\", \"Experts outside first_expert .. + n_expert add nothing\"")

/* `n_row`: rows of x that a token has. */
static void products(certify_trial *t, tdm_type type, int32_t first, int32_t all, int64_t n_row,
                     int64_t n_tok) {
    const int64_t len = tdm_type_get_info(type).block_len, k = len == 1 ? 20 : len;
    const int64_t n = len == 1 ? 24 : 40, n_expert = 5, n_used = 3;
    if (!certify_trial_begin(t, certify_trial_bound(type),
                             "moe_matmul %s, experts %d .. of %d, %d tokens of %d rows",
                             tdm_type_name(type), (int)first, (int)all, (int)n_tok, (int)n_row))
        return;
    t->scale = 1;
    t->id_lo = 0;
    t->id_hi = all > 0 ? all - 1 : n_expert - 1;
    int32_t w =
        tdm_build_weight(t->b, "w", type, (const int64_t[]){k, n, n_expert, 1}, TDM_USAGE_EXPERT);
    int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, (const int64_t[]){k, n_row, n_tok, 1});
    int32_t id = tdm_build_input(t->b, "id", TDM_TYPE_I32, (const int64_t[]){n_used, n_tok, 1, 1});
    certify_trial_end(t, tdm_build_moe_matmul(t->b, w, x, id, first, all));
}

static void moe_matmul_cases(certify_trial *t) {
    for (size_t i = 0; i < n_certify_weight_types; i++) {
        const tdm_type type = certify_weight_types[i];
        products(t, type, 0, 0, 1, 1);
        products(t, type, 0, 0, 3, 2);
        if (tdm_type_get_info(type).block_len <= 32) products(t, type, 0, 5, 1, 11);
        products(t, type, 4, 12, 3, 9); /* foreign experts on both sides */
    }
}

static void products_reference(const certify_operands *o) {
    const int64_t k = o->src[0].ne[0], n = o->src[0].ne[1], n_expert = o->src[0].ne[2];
    const int64_t n_row = o->src[1].ne[1], n_used = o->src[3].ne[0];
    for (int64_t pair = 0; pair < n_used * o->src[1].ne[2]; pair++) {
        const double e = o->src[3].x[pair] - o->node->params.moe.first_expert;
        const double *x = o->src[1].x + (n_row == 1 ? pair / n_used : pair) * k;
        const bool is_there = e >= 0 && e < (double)n_expert;
        for (int64_t j = 0; j < n; j++)
            o->dst[0].x[pair * n + j] =
                is_there ? dot(o->src[0].x + ((int64_t)e * n + j) * k, x, k) : 0;
    }
}

CERTIFY_OP(moe_matmul, "op.moe-matmul", moe_matmul_cases, products_reference,
           "op.h: MOE_MATMUL: \"row u of a token is w_e x\", \"Experts outside first_expert .. + "
           "n_expert give zeros\"")
