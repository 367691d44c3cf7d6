/* SPDX-License-Identifier: MIT
 *
 * recurrent.c: see recurrent.h. The plain kernels sum in double: they are the reference.
 */
#include "plugins/cpu/ops/recurrent.h"

#include <math.h>
#include <string.h>

/* ---- Plain kernels --------------------------------------------------------------------------- */

static void conv_plain(const float *const *rows, const float *w, int64_t stride, int64_t k,
                       const float *bias, float *y, int64_t n) {
    for (int64_t c = 0; c < n; c++) {
        double sum = bias != NULL ? (double)bias[c] : 0;
        for (int64_t i = 0; i < k; i++) sum += (double)w[i * stride + c] * (double)rows[i][c];
        y[c] = (float)sum;
    }
}

static void decay_plain(const float *g, int g_step, const float *a, int a_step, float *y,
                        int64_t n) {
    for (int64_t i = 0; i < n; i++)
        y[i] = expf(a != NULL ? g[i * g_step] * a[i * a_step] : g[i * g_step]);
}

static void scan_plain(float *s, int64_t n_row, int64_t dk, const cpu_scan_token *t) {
    for (int64_t j = 0; j < n_row; j++, s += dk) {
        double held = 0, erased = 0, o = 0;
        for (int64_t i = 0; i < dk; i++) {
            if (t->erase != NULL) erased += (double)t->erase[i] * (double)s[i];
            s[i] *= t->decay != NULL ? t->decay[i] : t->decay_all;
            held += (double)t->k[i] * (double)s[i];
        }
        float u = t->has_beta ? (float)((double)t->beta * ((double)t->v[j] - held)) : t->v[j];
        for (int64_t i = 0; i < dk; i++) {
            s[i] += t->k[i] * u;
            if (t->write != NULL) s[i] += t->write[i] * (float)erased;
            o += (double)t->q[i] * (double)s[i];
        }
        t->o[j] = (float)((double)t->scale * o);
    }
}

static const cpu_recurrent_kernels recurrent_plain = {0, "plain", conv_plain, decay_plain,
                                                      scan_plain};

/* The best first. */
static const cpu_recurrent_kernels *const recurrent_table[] = {
#if defined(__x86_64__)
    &cpu_recurrent_avx512,
    &cpu_recurrent_avx2,
#elif defined(__aarch64__)
    &cpu_recurrent_neon,
#endif
    &recurrent_plain,
};

const cpu_recurrent_kernels *cpu_recurrent_pick(const cpu_device *device) {
    const cpu_recurrent_kernels *const *row = recurrent_table;
    if (device->is_reference) return &recurrent_plain;
    while (((*row)->isa & ~device->isa) != 0) row++;
    return *row;
}

/* ---- Steps and slots ------------------------------------------------------------------------- */

tdm_status cpu_recurrent_supports(const tdm_graph *graph, const tdm_node *node, int step, int state,
                                  tdm_error *err) {
    cpu_kv_layout layout;
    tdm_status status = cpu_kv_supports(graph, node, node->params.kv.kv, step, state, &layout, err);
    if (status == TDM_OK &&
        (tdm_graph_kv(graph, node->params.kv.kv)->flags & TDM_KV_RECURRENT) == 0)
        status = tdm_fail(err, TDM_UNSUPPORTED, "%s: not slots of recurrent states",
                          tdm_graph_value_name(graph, node->src[state]));
    return status;
}

void cpu_recurrence_get(const cpu_node *n, int step, int state, cpu_recurrence *out) {
    const int32_t *words = (const int32_t *)(const void *)n->src[step].data;
    const tdm_step_header *header = (const tdm_step_header *)(const void *)words;
    tdm_step_header at; /* offsets from the capacities: those in the block are not trusted */
    memset(out, 0, sizeof *out);
    if (cpu_kv_layout_get(tdm_graph_kv(n->graph, n->node->params.kv.kv), &out->layout, NULL) !=
            TDM_OK ||
        tdm_step_layout(&n->graph->step_caps, &at, NULL) != TDM_OK ||
        n->src[step].ne[0] < at.size || header->version != TDM_STEP_VERSION)
        return;
    const tdm_step_caps *caps = &n->graph->step_caps;
    out->state = n->src[state].data;
    out->n_slot = n->src[state].ne[1];
    out->first_tok = words + at.first_tok_off;
    out->rs_read = words + at.rs_read_off;
    out->rs_write = words + at.rs_write_off;
    out->n_tok = header->n_tok < 0 ? 0 : header->n_tok < caps->n_tok ? header->n_tok : caps->n_tok;
    out->n_seq = header->n_seq < 0 ? 0 : header->n_seq < caps->n_seq ? header->n_seq : caps->n_seq;
    if (caps->n_seq > 0 && out->first_tok[0] < 0) out->n_seq = 0;
}

bool cpu_recurrence_tokens(const cpu_recurrence *r, int32_t seq, int32_t *first, int32_t *last) {
    *first = r->first_tok[seq];
    *last = r->first_tok[seq + 1];
    if (*last > r->n_tok) *last = r->n_tok;
    return *first >= 0 && *first < *last;
}

float *cpu_recurrence_unit(const cpu_recurrence *r, int32_t slot, int64_t u) {
    if (slot < 0 || slot >= r->n_slot) return NULL;
    return (float *)(void *)cpu_kv_head(&r->layout, r->state, slot, (int32_t)u);
}

void cpu_recurrence_used(const cpu_recurrence *r, int32_t *first, int32_t *last) {
    int32_t from, to;
    *first = *last = 0;
    for (int32_t s = 0; s < r->n_seq; s++) {
        if (!cpu_recurrence_tokens(r, s, &from, &to)) continue;
        if (*first == *last) *first = from;
        *last = to;
    }
}
