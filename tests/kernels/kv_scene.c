/* SPDX-License-Identifier: MIT
 *
 * kv_scene.c: see kv_scene.h.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/kernels/kv_scene.h"

const tdm_type kv_types[TDM_KV_TYPE_COUNT] = {
#define KV_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_TYPE_LIST(KV_TYPE)
#undef KV_TYPE
};

static void *take(size_t n, size_t size) {
    void *memory = calloc(n + 1, size);
    if (memory == NULL) fail_msg("no memory");
    return memory;
}

static void graph_finish(tdm_builder *b, tdm_graph **graph) {
    tdm_error err = {0};
    if (tdm_builder_finish(b, graph, &err) != TDM_OK) fail_msg("builder: %s", err.message);
    tdm_builder_destroy(b);
}

static tdm_builder *builder_create(void) {
    tdm_builder *b;
    tdm_error err = {0};
    if (tdm_builder_create(&b, &err) != TDM_OK) fail_msg("builder: %s", err.message);
    return b;
}

/* ---- planning -------------------------------------------------------------------------------- */

static void add_entry(kv_scene *s, int32_t page, int32_t first, int32_t count, int32_t base) {
    int32_t *n = &s->first_entry[s->n_seq];
    if (*n >= SCENE_MAX_ENTRY) fail_msg("the scene has too many pages");
    s->entries[(*n)++] = (tdm_page_entry){page, first, count, base};
    for (int32_t i = 0; i < count; i++) s->is_used[page * s->page_len + first + i] = true;
}

void kv_scene_init(kv_scene *s, const tdm_kv_desc *desc, int32_t n_seq, const int32_t *len,
                   int32_t shared, uint64_t *seed) {
    kv_scene_init_behind(s, desc, n_seq, len, shared, 0, seed);
}

void kv_scene_init_behind(kv_scene *s, const tdm_kv_desc *desc, int32_t n_seq, const int32_t *len,
                          int32_t shared, int32_t behind, uint64_t *seed) {
    int32_t n_page = 2, order[SCENE_MAX_ENTRY + 2];
    memset(s, 0, sizeof *s);
    s->desc = *desc;
    s->page_len = desc->page_len != 0 ? desc->page_len : TDM_KV_PAGE_LEN_DEFAULT;
    for (int32_t i = 0; i < n_seq; i++) n_page += (len[i] + s->page_len - 1) / s->page_len + 1;
    if (n_page > SCENE_MAX_ENTRY) fail_msg("the scene has too many pages");
    s->n_page = n_page;
    s->n_cell = n_page * s->page_len;
    for (int32_t i = 0; i < n_page; i++) order[i] = i;
    for (int32_t i = n_page - 1; i > 0; i--) {
        int32_t j = (int32_t)(op_random_next(seed) % (uint64_t)(i + 1)), page = order[i];
        order[i] = order[j];
        order[j] = page;
    }
    size_t n_k = (size_t)desc->head_dim_k * (size_t)desc->n_head_kv * (size_t)s->n_cell;
    size_t n_v = (size_t)desc->head_dim_v * (size_t)desc->n_head_kv * (size_t)s->n_cell;
    s->k = take(n_k, sizeof *s->k);
    s->v = take(n_v, sizeof *s->v);
    s->k_row = take(n_k, sizeof *s->k_row);
    s->v_row = take(n_v, sizeof *s->v_row);
    s->is_used = take((size_t)s->n_cell, sizeof *s->is_used);
    op_random_fill(seed, s->k, n_k, 2);
    op_random_fill(seed, s->v, n_v, 1);

    int32_t next = 0;
    for (int32_t q = 0; q < n_seq; q++) {
        int32_t at = 0, n_shared = q == 0 ? 0 : shared;
        if (n_shared > len[0]) n_shared = len[0];
        if (n_shared > len[q]) n_shared = len[q];
        s->n_seq = q + 1;
        s->first_entry[q + 1] = s->first_entry[q];
        for (int32_t e = s->first_entry[0]; e < s->first_entry[1] && at < n_shared; e++) {
            tdm_page_entry entry = s->entries[e];
            int32_t count = n_shared - at < entry.count ? n_shared - at : entry.count;
            add_entry(s, entry.page, entry.first, count, at);
            at += count;
        }
        while (at < len[q]) {
            int32_t first = at == 0 ? behind : at % s->page_len, count = s->page_len - first;
            if (count > len[q] - at) count = len[q] - at;
            add_entry(s, order[next++], first, count, at);
            at += count;
        }
        s->len[q] = len[q];
    }
}

void kv_scene_free(kv_scene *s) {
    free(s->k);
    free(s->v);
    free(s->k_row);
    free(s->v_row);
    free(s->is_used);
    memset(s, 0, sizeof *s);
}

tdm_step_caps kv_scene_caps(const kv_scene *s, int32_t n_tok, int32_t n_job) {
    return (tdm_step_caps){.n_tok = n_tok,
                           .n_seq = s->n_seq + 1,
                           .n_entry = s->first_entry[s->n_seq] + 1,
                           .n_job = n_job,
                           .n_class = s->desc.cls + 1};
}

int32_t *kv_step_create(const kv_scene *s, const tdm_step_caps *caps) {
    tdm_step_header header;
    tdm_error err = {0};
    if (tdm_step_layout(caps, &header, &err) != TDM_OK) fail_msg("%s", err.message);
    int32_t *step = take((size_t)header.size, sizeof *step);
    header.n_tok = caps->n_tok;
    header.n_seq = s->n_seq;
    header.n_job = caps->n_job;
    for (int32_t q = 0; q < s->n_seq && !s->hides_longest; q++)
        if (s->len[q] > header.longest) header.longest = s->len[q];
    memcpy(step, &header, sizeof header);
    const tdm_step_class *cls = &header.cls[s->desc.cls];
    for (int32_t i = 0; i < caps->n_tok; i++) kv_step_set_token(step, i, -1, 0, -1);
    for (int32_t i = 0; i < caps->n_job; i++) kv_step_set_job(step, i, (tdm_page_job){.page = -1});
    memcpy(step + cls->first_entry_off, s->first_entry,
           ((size_t)s->n_seq + 1) * sizeof *s->first_entry);
    memcpy(step + cls->entry_off, s->entries,
           (size_t)s->first_entry[s->n_seq] * sizeof *s->entries);
    return step;
}

void kv_step_set_token(int32_t *step, int32_t token, int32_t pos, int32_t seq, int32_t cell) {
    const tdm_step_header *header = (const tdm_step_header *)(const void *)step;
    step[header->pos_off + token] = pos;
    step[header->seq_off + token] = seq;
    for (int32_t c = 0; c < header->n_class; c++) step[header->cls[c].write_off + token] = cell;
}

void kv_step_set_job(int32_t *step, int32_t job, tdm_page_job value) {
    const tdm_step_header *header = (const tdm_step_header *)(const void *)step;
    memcpy(step + header->job_off + 4 * job, &value, sizeof value);
}

/* ---- running --------------------------------------------------------------------------------- */

static bool has_v(const kv_scene *s) {
    return (s->desc.flags & TDM_KV_V_FROM_K) == 0;
}

op_state *kv_scene_write(const kv_scene *s, op_rig *rig, int32_t batch) {
    uint64_t page_size = op_rig_page_size(rig, &s->desc);
    op_state *state = op_state_create(rig, page_size * (uint64_t)s->n_page);
    tdm_step_caps caps = kv_scene_caps(s, batch, 0);
    tdm_builder *b = builder_create();
    tdm_graph *graph;
    int32_t kv;
    int64_t k_ne[4] = {s->desc.head_dim_k, s->desc.n_head_kv, batch, 1};
    int64_t v_ne[4] = {s->desc.head_dim_v, s->desc.n_head_kv, batch, 1};
    int32_t step_value = tdm_build_step(b, &caps);
    int32_t state_value = tdm_build_state(b, "cache", &s->desc, page_size, s->n_page, &kv);
    int32_t k = tdm_build_input(b, "k", TDM_TYPE_F32, k_ne);
    int32_t v = has_v(s) ? tdm_build_input(b, "v", TDM_TYPE_F32, v_ne) : -1;
    tdm_build_kv_write(b, k, v, step_value, state_value, kv);
    graph_finish(b, &graph);
    int32_t *step = kv_step_create(s, &caps);
    size_t k_len = (size_t)s->desc.head_dim_k * (size_t)s->desc.n_head_kv;
    size_t v_len = (size_t)s->desc.head_dim_v * (size_t)s->desc.n_head_kv;
    float *k_in = take(k_len * (size_t)batch, sizeof *k_in);
    float *v_in = take(v_len * (size_t)batch, sizeof *v_in);
    for (int32_t cell = 0; cell < s->n_cell;) {
        int32_t n = 0;
        for (; n < batch && cell < s->n_cell; cell++) {
            /* Now and then a padding token in between. */
            if (!s->is_used[cell]) continue;
            if (n == 1 && batch > 2) kv_step_set_token(step, n++, -1, 0, -1);
            memcpy(k_in + k_len * (size_t)n, s->k + k_len * (size_t)cell, k_len * sizeof *k_in);
            memcpy(v_in + v_len * (size_t)n, s->v + v_len * (size_t)cell, v_len * sizeof *v_in);
            kv_step_set_token(step, n++, 0, 0, cell);
        }
        for (; n < batch; n++) kv_step_set_token(step, n, -1, 0, -1);
        op_arg args[] = {{.value = step_value, .data = step},
                         {.value = state_value, .state = state},
                         {.value = k, .data = k_in},
                         {.value = v, .data = v_in}};
        op_rig_run(rig, graph, args, has_v(s) ? 4 : 3);
    }
    free(step);
    free(k_in);
    free(v_in);
    tdm_graph_free(graph);
    return state;
}

void kv_scene_export(const kv_scene *s, op_rig *rig, op_state *state, uint8_t **k_out,
                     uint8_t **v_out) {
    uint64_t page_size = op_rig_page_size(rig, &s->desc);
    tdm_step_caps caps = kv_scene_caps(s, 1, s->n_page);
    tdm_builder *b = builder_create();
    tdm_graph *graph;
    int32_t kv, v = -1;
    int32_t step_value = tdm_build_step(b, &caps);
    int32_t state_value = tdm_build_state(b, "cache", &s->desc, page_size, s->n_page, &kv);
    int32_t k =
        tdm_build_kv_export(b, step_value, state_value, kv, s->n_cell, has_v(s) ? &v : NULL);
    tdm_build_output(b, k, "k");
    if (has_v(s)) tdm_build_output(b, v, "v");
    graph_finish(b, &graph);
    int32_t *step = kv_step_create(s, &caps);
    for (int32_t page = 0; page < s->n_page; page++)
        kv_step_set_job(step, page, (tdm_page_job){page, 0, s->page_len, page * s->page_len});
    size_t rows = (size_t)s->desc.n_head_kv * (size_t)s->n_cell;
    tdm_type type_k = s->desc.type_k, type_v = s->desc.type_v;
    size_t k_size = tdm_type_row_size(type_k, tdm_kv_padded(type_k, s->desc.head_dim_k));
    size_t v_size = tdm_type_row_size(type_v, tdm_kv_padded(type_v, s->desc.head_dim_v));
    *k_out = take(rows * k_size, 1);
    *v_out = has_v(s) ? take(rows * v_size, 1) : NULL;
    op_arg args[] = {{.value = step_value, .data = step},
                     {.value = state_value, .state = state},
                     {.value = k, .data = *k_out},
                     {.value = v, .data = *v_out}};
    op_rig_run(rig, graph, args, has_v(s) ? 4 : 3);
    free(step);
    tdm_graph_free(graph);
}

/* H x by the definition: H[i][j] = (-1)^popcount(i & j) / sqrt(block). */
static void unrotate(const float *x, double *y, int32_t n, int32_t block) {
    for (int32_t i = 0; i < n; i++) {
        double sum = 0;
        for (int32_t j = 0; j < block; j++) {
            int bits = i % block & j, odd = 0;
            for (; bits != 0; bits &= bits - 1) odd ^= 1;
            sum += (odd ? -1.0 : 1.0) * (double)x[i / block * block + j];
        }
        y[i] = sum / sqrt((double)block);
    }
}

static void decode_side(const kv_scene *s, const uint8_t *rows, bool is_value, double *out) {
    const tdm_kv_desc *d = &s->desc;
    bool from_k = is_value && !has_v(s);
    tdm_type type = is_value ? d->type_v : d->type_k;
    int32_t head_dim = is_value ? d->head_dim_v : d->head_dim_k;
    int32_t padded = tdm_kv_padded(type, from_k ? d->head_dim_k : head_dim), block = 1;
    bool is_turned = !is_value || from_k;
    uint32_t flag = is_value ? TDM_KV_ROTATE_V : TDM_KV_ROTATE_K;
    if (tdm_type_get_info(type).is_quantized && (d->flags & flag) != 0)
        block =
            tdm_kv_rotation_block(padded, is_turned ? d->rope_offset : 0, is_turned ? d->n_rot : 0);
    size_t size = tdm_type_row_size(type, padded);
    float *x = take((size_t)padded, sizeof *x);
    double *y = take((size_t)padded, sizeof *y);
    for (int32_t cell = 0; cell < s->n_cell; cell++) {
        for (int32_t head = 0; head < d->n_head_kv && s->is_used[cell]; head++) {
            size_t row = (size_t)cell * (size_t)d->n_head_kv + (size_t)head;
            if (tdm_row_dequantize(type, rows + row * size, x, padded) != TDM_OK)
                fail_msg("cannot dequantise %s", tdm_type_name(type));
            unrotate(x, y, padded, block);
            memcpy(out + row * (size_t)head_dim, y, (size_t)head_dim * sizeof *y);
        }
    }
    free(x);
    free(y);
}

void kv_scene_decode(kv_scene *s, const uint8_t *k, const uint8_t *v) {
    decode_side(s, k, false, s->k_row);
    decode_side(s, has_v(s) ? v : k, true, s->v_row);
}

void kv_scene_learn(kv_scene *s, op_rig *rig, op_state *state) {
    uint8_t *k, *v;
    kv_scene_export(s, rig, state, &k, &v);
    kv_scene_decode(s, k, v);
    free(k);
    free(v);
}

static bool in_window(const tdm_attention_params *p, int32_t pos, int32_t cached) {
    if (p->window_kind == TDM_WINDOW_SYMMETRIC) return 2 * abs(pos - cached) <= p->window;
    if (p->window_kind == TDM_WINDOW_CHUNKED) return cached / p->window >= pos / p->window;
    return pos - cached < p->window;
}

/* op.h, tdm_attention_params. */
static double slope(const tdm_attention_params *p, int32_t head) {
    double bias = (double)p->alibi_max_bias, n = 1;
    if (bias == 0) return 0;
    while (2 * n <= p->n_head_all) n *= 2;
    return head < n ? pow(2, -bias * (head + 1) / n) : pow(2, -bias / 2 * (2 * (head - n) + 1) / n);
}

static double temperature(const tdm_attention_params *p, int32_t pos) {
    if (p->temperature_scale == 0) return 1;
    double step = floor((double)(pos + p->temperature_offset) / p->temperature_length);
    return 1 + (double)p->temperature_scale * log(1 + step);
}

static double bias_of(const kv_bias *bias, int32_t head, int32_t pos, int32_t cached) {
    int32_t at = cached - pos + bias->n_distance / 2;
    if (bias->n_distance == 0) return 0;
    if (at < 0) at = 0;
    if (at >= bias->n_distance) at = bias->n_distance - 1;
    return bias->number[head * bias->n_distance + at];
}

void kv_scene_attend(const kv_scene *s, const tdm_attention_params *p, int32_t n_head,
                     const float *q, const float *sink, const kv_query *queries, int32_t n_tok,
                     float *o, float *ml) {
    const kv_bias none = {0, NULL};
    kv_scene_attend_biased(s, p, n_head, q, sink, &none, queries, n_tok, o, ml);
}

void kv_scene_attend_biased(const kv_scene *s, const tdm_attention_params *p, int32_t n_head,
                            const float *q, const float *sink, const kv_bias *bias,
                            const kv_query *queries, int32_t n_tok, float *o, float *ml) {
    int32_t dk = s->desc.head_dim_k, dv = s->desc.head_dim_v, longest = 0;
    double scale = p->scale != 0 ? p->scale : 1 / sqrt((double)dk);
    for (int32_t i = 0; i < s->n_seq; i++) longest = s->len[i] > longest ? s->len[i] : longest;
    double *score = take((size_t)longest, sizeof *score), *sum = take((size_t)dv, sizeof *sum);
    for (int32_t row = 0; row < n_tok * n_head; row++) {
        kv_query query = queries[row / n_head];
        int32_t head = row % n_head;
        int32_t head_kv = (p->first_head + head) / p->heads_per_kv - p->first_head_kv;
        double m = -INFINITY, l = 0;
        memset(sum, 0, (size_t)dv * sizeof *sum);
        /* Pass 0 finds the scores and their maximum, pass 1 sums. */
        for (int pass = 0; pass < 2 && query.pos >= 0; pass++) {
            int32_t e = s->first_entry[query.seq];
            for (int32_t c = 0; c < s->len[query.seq]; c++) {
                while (c >= s->entries[e].base_pos + s->entries[e].count) e++;
                tdm_page_entry entry = s->entries[e];
                size_t cell = (size_t)(entry.page * s->page_len + entry.first + c - entry.base_pos);
                size_t stored = cell * (size_t)s->desc.n_head_kv + (size_t)head_kv;
                if (p->is_causal && c > query.pos) continue;
                if (p->window > 0 && !in_window(p, query.pos, c)) continue;
                if (pass == 0) {
                    double a = 0;
                    for (int32_t i = 0; i < dk; i++)
                        a += (double)q[(size_t)row * (size_t)dk + (size_t)i] *
                             s->k_row[stored * (size_t)dk + (size_t)i];
                    a *= scale * temperature(p, query.pos);
                    if (p->softcap > 0) a = p->softcap * tanh(a / p->softcap);
                    a -= slope(p, p->first_head + head) * abs(query.pos - c);
                    a += bias_of(bias, head, query.pos, c);
                    score[c] = a;
                    if (a > m) m = a;
                } else {
                    double weight = exp(score[c] - m);
                    l += weight;
                    for (int32_t i = 0; i < dv; i++)
                        sum[i] += weight * s->v_row[stored * (size_t)dv + (size_t)i];
                }
            }
        }
        if (m != -INFINITY && sink != NULL) l += exp((double)sink[head] - m);
        for (int32_t i = 0; i < dv; i++)
            o[(size_t)row * (size_t)dv + (size_t)i] = m != -INFINITY ? (float)(sum[i] / l) : 0;
        ml[2 * row] = (float)m;
        ml[2 * row + 1] = (float)l;
    }
    free(score);
    free(sum);
}

void kv_scene_run(const kv_scene *s, op_rig *rig, op_state *state, const tdm_attention_params *p,
                  int32_t n_head, const float *q, const float *sink, const kv_query *queries,
                  int32_t n_tok, float *o, float *ml) {
    const kv_bias none = {0, NULL};
    kv_scene_run_biased(s, rig, state, p, n_head, q, sink, &none, false, queries, n_tok, o, ml);
}

/* The bias with heads side by side, as a weight that PERMUTE turns back. The caller frees it. */
static float *turned(const kv_bias *bias, int32_t n_head) {
    float *out = take((size_t)n_head * (size_t)bias->n_distance, sizeof *out);
    for (int32_t h = 0; h < n_head; h++)
        for (int32_t i = 0; i < bias->n_distance; i++)
            out[i * n_head + h] = bias->number[h * bias->n_distance + i];
    return out;
}

void kv_scene_run_biased(const kv_scene *s, op_rig *rig, op_state *state,
                         const tdm_attention_params *p, int32_t n_head, const float *q,
                         const float *sink, const kv_bias *bias, bool is_turned,
                         const kv_query *queries, int32_t n_tok, float *o, float *ml) {
    uint64_t page_size = op_rig_page_size(rig, &s->desc);
    tdm_step_caps caps = kv_scene_caps(s, n_tok, 0);
    tdm_builder *b = builder_create();
    tdm_graph *graph;
    tdm_attention_params params = *p;
    int64_t q_ne[4] = {s->desc.head_dim_k, n_head, n_tok, 1}, sink_ne[4] = {n_head, 1, 1, 1};
    int32_t ml_value = -1, step_value = tdm_build_step(b, &caps);
    int32_t state_value = tdm_build_state(b, "cache", &s->desc, page_size, s->n_page, &params.kv);
    int32_t q_value = tdm_build_input(b, "q", TDM_TYPE_F32, q_ne);
    int32_t sink_value = sink != NULL ? tdm_build_input(b, "sink", TDM_TYPE_F32, sink_ne) : -1;
    int32_t bias_value = -1, bias_source = -1;
    float *bias_data = NULL;
    if (bias->n_distance > 0) {
        const int64_t ne[4] = {bias->n_distance, n_head, 1, 1};
        const int64_t turned_ne[4] = {n_head, bias->n_distance, 1, 1};
        bias_source = bias_value =
            tdm_build_input(b, "bias", TDM_TYPE_F32, is_turned ? turned_ne : ne);
        if (is_turned) bias_source = tdm_build_permute(b, bias_value, 1, 0, 2, 3);
        bias_data = is_turned ? turned(bias, n_head) : NULL;
    }
    const tdm_attention_sources sources = {sink_value, -1, bias_source};
    int32_t o_value = tdm_build_attention_of(b, q_value, step_value, state_value, &sources, &params,
                                             ml != NULL ? &ml_value : NULL);
    tdm_build_output(b, o_value, "o");
    if (ml != NULL) tdm_build_output(b, ml_value, "ml");
    graph_finish(b, &graph);
    int32_t *step = kv_step_create(s, &caps);
    for (int32_t t = 0; t < n_tok; t++)
        kv_step_set_token(step, t, queries[t].pos, queries[t].seq, -1);
    op_arg args[7] = {{.value = step_value, .data = step},
                      {.value = state_value, .state = state},
                      {.value = q_value, .data = (void *)(uintptr_t)q},
                      {.value = o_value, .data = o}};
    int n_arg = 4;
    if (ml != NULL) args[n_arg++] = (op_arg){.value = ml_value, .data = ml};
    if (sink != NULL)
        args[n_arg++] = (op_arg){.value = sink_value, .data = (void *)(uintptr_t)sink};
    const float *numbers = bias_data != NULL ? bias_data : bias->number;
    if (bias->n_distance > 0)
        args[n_arg++] = (op_arg){.value = bias_value, .data = (void *)(uintptr_t)numbers};
    op_rig_run(rig, graph, args, n_arg);
    free(bias_data);
    free(step);
    tdm_graph_free(graph);
}
