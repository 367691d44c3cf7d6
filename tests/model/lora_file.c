/* SPDX-License-Identifier: MIT
 *
 * lora_file.c: see lora_file.h.
 */
#include "tests/model/lora_file.h"

#include <math.h>

#include "llm/gguf/gguf_write.h"
#include "quant/convert.h"

/* Numbers of variance 1 that depend on the tensor's name and a seed: splitmix64. */
static void random_fill(const char *name, int seed, float scale, float *out, int64_t n) {
    uint64_t state = 0xcbf29ce484222325u + (uint64_t)seed * 0x9e3779b97f4a7c15u;
    for (const char *c = name; *c != 0; c++) state = (state ^ (uint8_t)*c) * 0x100000001b3u;
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        const double u = (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
        out[i] = scale * (float)(sqrt(12.0) * (u - 0.5));
    }
}

typedef struct pair_shape {
    char a[96], b[96];
    int64_t a_ne[3], b_ne[3];
    int64_t k, rank;
    tdm_type type_a, type_b;
} pair_shape;

static tdm_type type_fit(tdm_type type, int64_t row) {
    return row % tdm_type_get_info(type).block_len == 0 ? type : TDM_TYPE_F16;
}

/* Whether adapters may change a weight, and this one does; with its pair. The first of the parts of
 * a tensor stands for it. */
static bool pair_of(const llm_weight *w, const lora_spec *spec, int number, pair_shape *p) {
    const char *name = w->source->name;
    const int64_t *ne = w->source->ne;
    const bool is_rows = strcmp(name, "token_embd.weight") == 0;
    const bool is_expert = (w->usage & TDM_USAGE_EXPERT) != 0;
    if (w->is_made || w->source_row > 0 || (spec->only != NULL && strstr(name, spec->only) == NULL))
        return false;
    if (is_rows && !spec->has_rows) return false;
    if (!is_rows && !is_expert &&
        (w->usage != TDM_USAGE_MATMUL || w->source != w->file || ne[2] != 1 || ne[3] != 1 ||
         strstr(name, "attn_k_b") != NULL || strstr(name, "attn_v_b") != NULL))
        return false;
    snprintf(p->a, sizeof p->a, "%.80s.lora_a", name);
    snprintf(p->b, sizeof p->b, "%.80s.lora_b", name);
    p->k = ne[0];
    p->rank = number % 2 == 1 && spec->other_rank > 0 ? spec->other_rank : spec->rank;
    p->a_ne[0] = is_rows ? p->rank : ne[0];
    p->a_ne[1] = is_rows ? ne[1] : p->rank;
    p->b_ne[0] = p->rank;
    p->b_ne[1] = is_rows ? ne[0] : ne[1];
    p->a_ne[2] = p->b_ne[2] = ne[2];
    p->type_a = type_fit(spec->type, p->a_ne[0]);
    p->type_b = type_fit(spec->type, p->rank);
    return true;
}

static void matrix_write(llm_gguf_writer *w, const char *name, const lora_spec *spec, float scale,
                         tdm_type type, int64_t row, int64_t n_row) {
    tdm_error err = {0};
    float *x = malloc((size_t)row * sizeof *x);
    void *blocks = malloc(tdm_type_row_size(type, row));
    char key[128];
    assert_true(x != NULL && blocks != NULL);
    for (int64_t r = 0; r < n_row; r++) {
        snprintf(key, sizeof key, "%s/%lld", name, (long long)r);
        random_fill(key, spec->seed, scale, x, row);
        RIG_OK(tdm_row_quantize(type, x, blocks, row, NULL));
        RIG_OK(llm_gguf_writer_write(w, blocks, tdm_type_row_size(type, row), &err));
    }
    free(x);
    free(blocks);
}

int lora_file_write(const char *base, const lora_spec *spec, const char *path) {
    tdm_error err = {0};
    llm_model *m = NULL;
    llm_gguf_writer *w = NULL;
    pair_shape p;
    int n = 0;
    RIG_OK(llm_model_open(base, &m, &err));
    RIG_OK(llm_gguf_writer_create(path, &w, &err));
    llm_gguf_writer_put_text(w, "general.type", "adapter");
    llm_gguf_writer_put_text(w, "general.architecture", m->hparams.arch);
    llm_gguf_writer_put_text(w, "adapter.type", "lora");
    if (spec->alpha != 0) llm_gguf_writer_put_f32(w, "adapter.lora.alpha", spec->alpha);
    for (int i = 0; i < m->n_weight; i++) {
        if (!pair_of(&m->weights[i], spec, n, &p)) continue;
        const int32_t n_dims = p.a_ne[2] > 1 ? 3 : 2;
        llm_gguf_writer_add_tensor(w, p.a, p.type_a, n_dims, p.a_ne);
        llm_gguf_writer_add_tensor(w, p.b, p.type_b, n_dims, p.b_ne);
        n++;
    }
    for (int i = 0, at = 0; i < m->n_weight; i++) {
        if (!pair_of(&m->weights[i], spec, at, &p)) continue;
        const float factor = spec->alpha != 0 ? spec->alpha / (float)p.rank : 1;
        const float scale = spec->strength / sqrtf((float)p.k * (float)p.rank) / factor;
        matrix_write(w, p.a, spec, 1, p.type_a, p.a_ne[0], p.a_ne[1] * p.a_ne[2]);
        matrix_write(w, p.b, spec, scale, p.type_b, p.b_ne[0], p.b_ne[1] * p.b_ne[2]);
        at++;
    }
    RIG_OK(llm_gguf_writer_finish(w, &err));
    llm_gguf_writer_destroy(w);
    llm_model_close(m);
    return n;
}

/* ---- Merged models ---- */

/* All elements of a tensor as f32; the caller frees them. */
static float *floats_of(const llm_gguf_tensor *t) {
    const int64_t n_row = t->ne[1] * t->ne[2] * t->ne[3];
    float *x = malloc((size_t)(t->ne[0] * n_row) * sizeof *x + 1);
    assert_non_null(x);
    for (int64_t r = 0; r < n_row; r++)
        tdm_row_dequantize(
            t->type, (const uint8_t *)t->data + (size_t)r * tdm_type_row_size(t->type, t->ne[0]),
            x + r * t->ne[0], t->ne[0]);
    return x;
}

/* w += scale * B A in f64, of a matrix or of one of experts. */
static void matrix_add(double *w, const float *a, const float *b, int64_t k, int64_t rank,
                       int64_t n, double scale) {
    for (int64_t i = 0; i < n; i++)
        for (int64_t r = 0; r < rank; r++) {
            const double f = scale * (double)b[i * rank + r];
            for (int64_t j = 0; j < k; j++) w[i * k + j] += f * (double)a[r * k + j];
        }
}

/* The same of the embedding: row v of w gets scale * B a_v. */
static void rows_add(double *w, const float *a, const float *b, int64_t k, int64_t rank, int64_t n,
                     double scale) {
    for (int64_t v = 0; v < n; v++)
        for (int64_t j = 0; j < k; j++)
            for (int64_t r = 0; r < rank; r++)
                w[v * k + j] += scale * (double)b[j * rank + r] * (double)a[v * rank + r];
}

/* The number by which products with a matrix, or one of experts, are multiplied, without those of
 * adapters. */
static double scale_of(const llm_gguf *in, const char *name, int64_t matrix) {
    char text[96];
    snprintf(text, sizeof text, "%.80s", name);
    char *end = strrchr(text, '.');
    if (end == NULL || strcmp(end, ".weight") != 0) return 1;
    if (strstr(text, "ffn_gate_inp") != NULL) return 1; /* .scale is that of the router's norm */
    memcpy(end, ".scale", sizeof ".scale");
    const llm_gguf_tensor *t = llm_gguf_tensor_find(in, text);
    return t != NULL ? (double)((const float *)t->data)[matrix] : 1;
}

/* w += scale * B A for a tensor of the model. */
static void product_add(double *w, const llm_gguf *in, const llm_gguf_tensor *t,
                        const llm_gguf_tensor *ta, const llm_gguf_tensor *tb, double scale) {
    float *a = floats_of(ta), *b = floats_of(tb);
    const int64_t k = t->ne[0], n = t->ne[1], rank = tb->ne[0];
    if (strcmp(t->name, "token_embd.weight") == 0)
        rows_add(w, a, b, k, rank, n, scale);
    else
        for (int64_t e = 0; e < t->ne[2]; e++)
            matrix_add(w + e * k * n, a + e * k * rank, b + e * rank * n, k, rank, n,
                       scale / scale_of(in, t->name, e));
    free(a);
    free(b);
}

static void merged_write(llm_gguf_writer *out, const llm_gguf *in, const llm_gguf_tensor *t,
                         llm_gguf **adapters, const float *scales, int n) {
    tdm_error err = {0};
    const int64_t count = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    double *sum = NULL;
    for (int i = 0; i < n; i++) {
        char a[96], b[96];
        float alpha = 0;
        snprintf(a, sizeof a, "%.80s.lora_a", t->name);
        snprintf(b, sizeof b, "%.80s.lora_b", t->name);
        const llm_gguf_tensor *ta = llm_gguf_tensor_find(adapters[i], a);
        const llm_gguf_tensor *tb = llm_gguf_tensor_find(adapters[i], b);
        if (ta == NULL) continue;
        assert_non_null(tb);
        assert_int_equal(t->type, TDM_TYPE_F32);
        if (sum == NULL) {
            sum = malloc((size_t)count * sizeof *sum);
            assert_non_null(sum);
            for (int64_t j = 0; j < count; j++) sum[j] = (double)((const float *)t->data)[j];
        }
        RIG_OK(
            llm_gguf_get_f32(adapters[i], "adapter.lora.alpha", LLM_GGUF_OPTIONAL, &alpha, &err));
        const double factor = alpha != 0 ? (double)alpha / (double)tb->ne[0] : 1;
        product_add(sum, in, t, ta, tb, factor * (double)scales[i]);
    }
    if (sum == NULL) {
        RIG_OK(llm_gguf_writer_write(out, t->data, t->size, &err));
        return;
    }
    float *x = (float *)(void *)sum; /* in place: an element is read before it is written over */
    for (int64_t j = 0; j < count; j++) {
        const float value = (float)sum[j];
        memcpy(&x[j], &value, sizeof value);
    }
    RIG_OK(llm_gguf_writer_write(out, x, t->size, &err));
    free(sum);
}

/* The embedding where an adapter changes it and the head is tied to it; NULL = it is not so. */
static const llm_gguf_tensor *tied_find(const llm_gguf *in, llm_gguf **adapters, int n) {
    for (int i = 0; i < n; i++)
        if (llm_gguf_tensor_find(adapters[i], "token_embd.weight.lora_a") != NULL &&
            llm_gguf_tensor_find(in, "output.weight") == NULL)
            return llm_gguf_tensor_find(in, "token_embd.weight");
    return NULL;
}

void lora_merge_write(const char *base, const char *const *paths, const float *scales, int n,
                      const char *path) {
    tdm_error err = {0};
    llm_gguf *in = NULL, *adapters[4] = {NULL};
    llm_gguf_writer *out = NULL;
    assert_true(n <= 4);
    RIG_OK(llm_gguf_open(base, &in, &err));
    for (int i = 0; i < n; i++) RIG_OK(llm_gguf_open(paths[i], &adapters[i], &err));
    RIG_OK(llm_gguf_writer_create(path, &out, &err));
    for (uint32_t i = 0; i < llm_gguf_key_count(in); i++)
        llm_gguf_writer_put_key(out, llm_gguf_key_at(in, i));
    for (uint32_t i = 0; i < llm_gguf_tensor_count(in); i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(in, i);
        llm_gguf_writer_add_tensor(out, t->name, t->type, t->n_dims, t->ne);
    }
    const llm_gguf_tensor *tied = tied_find(in, adapters, n);
    if (tied != NULL)
        llm_gguf_writer_add_tensor(out, "output.weight", tied->type, tied->n_dims, tied->ne);
    for (uint32_t i = 0; i < llm_gguf_tensor_count(in); i++)
        merged_write(out, in, llm_gguf_tensor_at(in, i), adapters, scales, n);
    if (tied != NULL) RIG_OK(llm_gguf_writer_write(out, tied->data, tied->size, &err));
    RIG_OK(llm_gguf_writer_finish(out, &err));
    llm_gguf_writer_destroy(out);
    for (int i = 0; i < n; i++) llm_gguf_close(adapters[i]);
    llm_gguf_close(in);
}
