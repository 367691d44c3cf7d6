/* SPDX-License-Identifier: MIT
 *
 * cache_attention.c: attention over a certify_cache on the device, and over the model in double
 * precision by the formula of op.h.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "certify/cache_graph.h"

/* Whether a token at position `pos` sees the cached one at `cached`. This function and the next two
 * follow tdm_attention_params of op.h. */
static bool is_seen(const tdm_attention_params *p, int32_t pos, int32_t cached) {
    if (p->is_causal && cached > pos) return false;
    if (p->window <= 0) return true;
    if (p->window_kind == TDM_WINDOW_SYMMETRIC) return abs(pos - cached) <= p->window / 2;
    return p->window_kind == TDM_WINDOW_CHUNKED ? cached / p->window >= pos / p->window
                                                : pos - cached < p->window;
}

/* t(pos). */
static double temperature_of(const tdm_attention_params *p, int32_t pos) {
    if (p->temperature_scale == 0) return 1;
    int64_t step = ((int64_t)pos + p->temperature_offset) / p->temperature_length;
    return 1 + (double)p->temperature_scale * log(1 + (double)step);
}

/* ALiBi's slope of an absolute head. */
static double slope_of(const tdm_attention_params *p, int32_t head) {
    int32_t n = 1;
    while (n <= p->n_head_all / 2) n *= 2;
    if (!(p->alibi_max_bias > 0)) return 0;
    return head < n ? exp2(-(double)p->alibi_max_bias * (head + 1) / n)
                    : exp2(-(double)p->alibi_max_bias / 2 * (2 * (head - n) + 1) / n);
}

/* What a head adds for a token at `cached`, seen from `pos`; bias[n] NULL: nothing. */
static double bias_of(const double *bias, int32_t n, int32_t pos, int32_t cached) {
    const int32_t n_far = n / 2, distance = cached - pos;
    if (bias == NULL) return 0;
    if (distance < -n_far) return bias[0];
    return distance > n_far ? bias[n - 1] : bias[n_far + distance];
}

/* The sources of one head as numbers; NULL = absent. */
typedef struct head_sources {
    const double *q, *sink, *bias;
} head_sources;

/* One query head of one token. o[head_dim_v]; ml[2] = m, l. */
static void head_model(const certify_cache *cache, const certify_attention *a, int32_t token,
                       int32_t head, const head_sources *s, double *o, double ml[2]) {
    const double *q = s->q, *sink = s->sink;
    const tdm_attention_params *p = &a->params;
    int32_t dk = cache->desc.head_dim_k, dv = cache->desc.head_dim_v, n_kv = cache->desc.n_head_kv;
    int32_t kv = (p->first_head + head) / p->heads_per_kv - p->first_head_kv;
    double scale = p->scale != 0 ? (double)p->scale : 1 / sqrt((double)dk), max = -INFINITY, l = 0;
    int32_t pos = a->pos[token], seq = a->seq[token];
    for (int32_t i = 0; i < dv; i++) o[i] = 0;
    ml[0] = -INFINITY;
    ml[1] = 0;
    if (pos < 0) return;
    for (int pass = 0; pass < 2; pass++) { /* the maximum first, then the sums */
        for (int32_t e = a->first_entry[seq]; e < a->first_entry[seq + 1]; e++)
            for (int32_t i = 0; i < a->entries[e].count; i++) {
                int32_t c = a->entries[e].base_pos + i;
                int32_t cell = a->entries[e].page * cache->page_len + a->entries[e].first + i;
                if (!is_seen(p, pos, c)) continue;
                const double *k = cache->k + (size_t)(cell * n_kv + kv) * (size_t)dk;
                const double *v = cache->v + (size_t)(cell * n_kv + kv) * (size_t)dv;
                double x = 0;
                for (int32_t d = 0; d < dk; d++) x += q[d] * k[d];
                x *= scale * temperature_of(p, pos);
                if (p->softcap > 0) x = (double)p->softcap * tanh(x / (double)p->softcap);
                x -= slope_of(p, p->first_head + head) * abs(pos - c);
                x += bias_of(s->bias, a->n_distance, pos, c);
                if (pass == 0 && x > max) max = x;
                if (pass == 0) continue;
                l += exp(x - max);
                for (int32_t d = 0; d < dv; d++) o[d] += exp(x - max) * v[d];
            }
    }
    if (max == -INFINITY) return;
    if (sink != NULL) l += exp(*sink - max);
    for (int32_t d = 0; d < dv; d++) o[d] /= l;
    ml[0] = max;
    ml[1] = l;
}

/* Compares m + log(l), which does not depend on how a device includes a sink in m and l. */
static certify_verdict ml_judge(const certify_cache *cache, const double *got, const double *want,
                                size_t n, double nmse) {
    double *sums = malloc(n * 2 * sizeof *sums);
    if (sums == NULL) return certify_skip(cache->c, "out of memory");
    certify_verdict verdict = CERTIFY_PASSED;
    for (size_t i = 0; i < n && verdict == CERTIFY_PASSED; i++) {
        bool is_empty = want[2 * i] == -INFINITY;
        if (is_empty && (got[2 * i] != -INFINITY || got[2 * i + 1] != 0))
            verdict = certify_fail(cache->c, "over nothing m = %g and l = %g, not -inf and 0",
                                   got[2 * i], got[2 * i + 1]);
        sums[i] = is_empty ? 0 : got[2 * i] + log(got[2 * i + 1]);
        sums[n + i] = is_empty ? 0 : want[2 * i] + log(want[2 * i + 1]);
    }
    if (verdict == CERTIFY_PASSED)
        verdict = certify_numbers_judge(cache->c, "m + log(l)", sums, sums + n, n, nmse * 10, 0);
    free(sums);
    return verdict;
}

/* The values of the sources; -1 = absent. */
typedef struct certify_sources {
    int32_t q, sink, bias;
} certify_sources;

static double *optional_numbers(const certify_rig *rig, int32_t value, size_t n) {
    return value >= 0 ? certify_numbers(TDM_TYPE_F32, rig->bytes[value], n) : NULL;
}

static certify_verdict judge(certify_cache *cache, const certify_attention *a,
                             const certify_rig *rig, const certify_sources *at, int32_t o,
                             int32_t ml, double nmse) {
    size_t n = (size_t)a->n_tok * (size_t)a->n_head, dk = (size_t)cache->desc.head_dim_k;
    size_t dv = (size_t)cache->desc.head_dim_v;
    double *qs = certify_numbers(TDM_TYPE_F32, rig->bytes[at->q], n * dk);
    double *sinks = optional_numbers(rig, at->sink, (size_t)a->n_head);
    const size_t n_distance = (size_t)a->n_distance;
    double *biases = optional_numbers(rig, at->bias, n_distance * (size_t)a->n_head);
    double *got = certify_numbers(TDM_TYPE_F32, rig->bytes[o], n * dv);
    double *got_ml = ml >= 0 ? certify_numbers(TDM_TYPE_F32, rig->bytes[ml], n * 2) : NULL;
    double *want = malloc((n * dv + 1) * sizeof *want),
           *want_ml = malloc((n * 2 + 1) * sizeof *want);
    certify_verdict verdict = CERTIFY_PASSED;
    if (qs == NULL || got == NULL || want == NULL || want_ml == NULL ||
        (at->sink >= 0 && sinks == NULL) || (at->bias >= 0 && biases == NULL))
        verdict = certify_skip(cache->c, "out of memory");
    for (int32_t t = 0; verdict == CERTIFY_PASSED && t < a->n_tok; t++)
        for (int32_t h = 0; h < a->n_head; h++) {
            const size_t row = (size_t)t * (size_t)a->n_head + (size_t)h;
            const head_sources s = {qs + row * dk, sinks != NULL ? sinks + h : NULL,
                                    biases != NULL ? biases + (size_t)h * n_distance : NULL};
            head_model(cache, a, t, h, &s, want + row * dv, want_ml + row * 2);
        }
    if (verdict == CERTIFY_PASSED)
        verdict = certify_numbers_judge(cache->c, "o", got, want, n * dv, nmse, 0);
    if (verdict == CERTIFY_PASSED && got_ml != NULL)
        verdict = ml_judge(cache, got_ml, want_ml, n, nmse);
    free(qs);
    free(sinks);
    free(biases);
    free(got);
    free(got_ml);
    free(want);
    free(want_ml);
    return verdict;
}

static void step_fill(certify_cache_graph *g, const certify_attention *a) {
    g->header.n_tok = a->n_tok_used;
    g->header.longest = 0;
    for (int32_t s = 0; s < a->n_seq; s++) {
        int32_t len = 0;
        for (int32_t i = a->first_entry[s]; i < a->first_entry[s + 1]; i++)
            len += a->entries[i].count > 0 ? a->entries[i].count : 0;
        if (len > g->header.longest) g->header.longest = len;
    }
    memcpy(g->block + g->header.pos_off, a->pos, (size_t)a->n_tok * sizeof(int32_t));
    memcpy(g->block + g->header.seq_off, a->seq, (size_t)a->n_tok * sizeof(int32_t));
    certify_cache_pages_put(g, a->first_entry, a->entries);
}

certify_verdict certify_cache_attend(certify_cache *cache, const certify_attention *a,
                                     double nmse) {
    tdm_step_caps caps = {.n_tok = a->n_tok,
                          .n_seq = a->n_seq,
                          .n_entry = a->first_entry[a->n_seq] + 2,
                          .n_class = cache->n_class};
    certify_cache_graph g;
    tdm_attention_params params = a->params;
    certify_sources at = {-1, -1, -1};
    int32_t ml = -1;
    certify_verdict verdict = certify_cache_graph_begin(cache, &caps, &g);
    if (verdict != CERTIFY_PASSED) return verdict;
    params.kv = g.kv;
    at.q = tdm_build_input(g.b, "q", TDM_TYPE_F32,
                           (const int64_t[]){cache->desc.head_dim_k, a->n_head, a->n_tok, 1});
    if (a->has_sink)
        at.sink =
            tdm_build_weight(g.b, "sink", TDM_TYPE_F32, (const int64_t[]){a->n_head, 1, 1, 1}, 0);
    if (a->n_distance > 0)
        at.bias = tdm_build_weight(g.b, "bias", TDM_TYPE_F32,
                                   (const int64_t[]){a->n_distance, a->n_head, 1, 1}, 0);
    const tdm_attention_sources sources = {at.sink, -1, at.bias};
    int32_t *ml_out = a->has_ml ? &ml : NULL;
    int32_t o = at.bias >= 0
                    ? tdm_build_attention_of(g.b, at.q, g.step, g.state, &sources, &params, ml_out)
                    : tdm_build_attention(g.b, at.q, g.step, g.state, at.sink, &params, ml_out);
    tdm_build_output(g.b, o, "o");
    if (a->has_ml) tdm_build_output(g.b, ml, "ml");
    verdict = certify_cache_graph_end(&g, NULL, 0);
    if (verdict == CERTIFY_PASSED) {
        certify_rig_fill(&g.rig, at.q, 3);
        if (at.sink >= 0) certify_rig_fill(&g.rig, at.sink, 2);
        if (at.bias >= 0) certify_rig_fill(&g.rig, at.bias, 3);
        step_fill(&g, a);
        verdict = certify_cache_graph_run(&g);
    }
    if (verdict == CERTIFY_PASSED) verdict = judge(cache, a, &g.rig, &at, o, ml, nmse);
    certify_rig_destroy(&g.rig);
    return verdict;
}
