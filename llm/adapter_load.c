/* SPDX-License-Identifier: MIT
 *
 * adapter_load.c: reads the files of adapters and makes their tensors weights of the model. The
 * products with them: block/project.c. The scales of sequences: context_lora.c.
 */
#include "llm/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "llm/arch/forward_graph.h"

/* Bytes of each tensor in the fingerprint. */
#define FINGERPRINT_SIZE 64

/* Tokens and rows of logits of the trial graph (pairs_try). block/project.c refuses a product whose
 * rows are neither as many as the tokens nor as many as the rows of logits. With these numbers, a
 * product that has several rows for each token is neither by chance. */
enum { TRIAL_TOKENS = 7, TRIAL_ROWS = 3 };

/* ---- Keys ---- */

/* Refuses a file where the key is missing or has another text than `expected`; `way_out` says what
 * to do then. */
static tdm_status word_check(const llm_gguf *g, const char *key, const char *expected,
                             const char *way_out, tdm_error *err) {
    llm_gguf_str text = {"", 0};
    tdm_status status = llm_gguf_get_str(g, key, LLM_GGUF_OPTIONAL, &text, err);
    if (status != TDM_OK || llm_gguf_str_equals(text, expected)) return status;
    return tdm_fail(err, TDM_UNSUPPORTED, "%s: %s is '%.*s', expected '%s'; %s", llm_gguf_name(g),
                    key, (int)(text.len < 48 ? text.len : 48), text.ptr, expected, way_out);
}

static tdm_status keys_read(const llm_model *m, llm_adapter *a, tdm_error *err) {
    const llm_gguf *g = a->gguf;
    tdm_status status =
        word_check(g, "general.type", "adapter",
                   "give a file that llama.cpp's convert_lora_to_gguf.py has written", err);
    if (status == TDM_OK)
        status =
            word_check(g, "adapter.type", "lora", "no other kind of adapter is supported", err);
    if (status == TDM_OK)
        status = word_check(g, "general.architecture", m->hparams.arch,
                            "the adapter was made for another model", err);
    if (status == TDM_OK)
        status = llm_gguf_get_f32(g, "adapter.lora.alpha", LLM_GGUF_OPTIONAL, &a->alpha, err);
    if (status != TDM_OK) return status;
    if (!isfinite(a->alpha))
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: adapter.lora.alpha is not a number; convert the "
                        "adapter again",
                        llm_gguf_name(g));
    /* Such an adapter takes effect only behind its invocation tokens; here a scale holds for a
     * whole sequence. */
    if (llm_gguf_key_find(g, "adapter.alora.invocation_tokens") != NULL)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: an activated adapter (adapter.alora.invocation_tokens) is not "
                        "supported; give a plain LoRA adapter",
                        llm_gguf_name(g));
    return TDM_OK;
}

/* ---- Pairs ---- */

/* The length of the name of the model's tensor in `name`, and whether it is A or B; 0 = neither. */
static size_t base_length(const char *name, char *which_out) {
    const size_t n = strlen(name), n_suffix = strlen(".lora_a");
    if (n <= n_suffix) return 0;
    const char *suffix = name + n - n_suffix;
    if (strcmp(suffix, ".lora_a") != 0 && strcmp(suffix, ".lora_b") != 0) return 0;
    *which_out = suffix[n_suffix - 1];
    return n - n_suffix;
}

/* The next weight from `from` on that is a tensor of the model of that name, or a part of it; -1 =
 * none. */
static int32_t base_find(const llm_model *m, int32_t from, const char *name, size_t n) {
    for (int32_t i = from; i < m->n_base; i++) {
        const char *own = m->weights[i].source->name;
        if (!m->weights[i].is_made && strncmp(own, name, n) == 0 && own[n] == '\0') return i;
    }
    return -1;
}

static bool is_embedding(const llm_weight *w) {
    return w->layer < 0 && w->role == LLM_ROLE_TOKEN_EMBD;
}

#define IS_TABLE "a table of rows other than the token embedding"

static tdm_status base_refuse(const llm_adapter *a, const char *name, const char *what,
                              tdm_error *err) {
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s: the adapter changes '%s', which is %s; that is not supported: merge the "
                    "adapter into the model, or train one without it",
                    llm_gguf_name(a->gguf), name, what);
}

static tdm_status base_check(const llm_adapter *a, const llm_weight *base, tdm_error *err) {
    const bool is_expert = (base->usage & TDM_USAGE_EXPERT) != 0;
    const char *what = NULL;
    if (is_embedding(base)) return TDM_OK;
    if ((base->usage & TDM_USAGE_ROWS) != 0)
        what = IS_TABLE;
    else if (base->source != base->file && !is_expert)
        what = "a matrix in parts";
    else if (base->usage != TDM_USAGE_MATMUL && !is_expert)
        what = "no matrix";
    else if ((base->file->ne[2] != 1 && !is_expert) || base->file->ne[3] != 1)
        what = "a matrix for each head";
    return what == NULL ? TDM_OK : base_refuse(a, base->source->name, what, err);
}

/* Whether a tensor has the shape of A or B, of n_matrix matrices. */
static tdm_status pair_shape_check(const llm_adapter *a, const llm_gguf_tensor *t, int64_t ne0,
                                   int64_t ne1, int64_t n_matrix, const llm_weight *base,
                                   tdm_error *err) {
    const llm_gguf_tensor *w = base->source;
    char expected[72], own[72];
    if (t->ne[0] == ne0 && t->ne[1] == ne1 && t->ne[2] == n_matrix && t->ne[3] == 1) return TDM_OK;
    const bool has_three = w->ne[2] != 1;
    snprintf(expected, sizeof expected, has_three ? "%lld, %lld, %lld" : "%lld, %lld",
             (long long)ne0, (long long)ne1, (long long)n_matrix);
    snprintf(own, sizeof own, has_three ? "%lld, %lld, %lld" : "%lld, %lld", (long long)w->ne[0],
             (long long)w->ne[1], (long long)w->ne[2]);
    return tdm_fail(err, TDM_DATA_LOSS,
                    "%s: tensor '%s' has shape [%lld, %lld, %lld, %lld], expected [%s] for '%s' "
                    "[%s]; the file is damaged or made for another model",
                    llm_gguf_name(a->gguf), t->name, (long long)t->ne[0], (long long)t->ne[1],
                    (long long)t->ne[2], (long long)t->ne[3], expected, w->name, own);
}

static tdm_status type_check(const llm_adapter *a, const llm_gguf_tensor *t, tdm_error *err) {
    tdm_status status = llm_gguf_tensor_check_type(a->gguf, t, err);
    if (status != TDM_OK || (t->type != TDM_TYPE_I8 && t->type != TDM_TYPE_I32)) return status;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s: tensor '%s' has type %s, expected a float or "
                    "quantised type",
                    llm_gguf_name(a->gguf), t->name, tdm_type_name(t->type));
}

/* Whether A and B fit a weight of the model. */
static tdm_status pair_check(const llm_adapter *a, const llm_weight *w, const llm_gguf_tensor *ta,
                             const llm_gguf_tensor *tb, tdm_error *err) {
    const int64_t *ne = w->source->ne, rank = tb->ne[0];
    tdm_status status = base_check(a, w, err);
    if (status == TDM_OK) status = type_check(a, ta, err);
    if (status == TDM_OK) status = type_check(a, tb, err);
    if (status != TDM_OK) return status;
    /* The embedding's A has a row for each token. */
    status = is_embedding(w) ? pair_shape_check(a, ta, rank, ne[1], 1, w, err)
                             : pair_shape_check(a, ta, ne[0], rank, ne[2], w, err);
    if (status == TDM_OK)
        status = pair_shape_check(a, tb, rank, is_embedding(w) ? ne[0] : ne[1], ne[2], w, err);
    if (status == TDM_OK && (rank < 1 || rank > INT32_MAX))
        status = tdm_fail(err, TDM_DATA_LOSS,
                          "%s: tensor '%s' has rank %lld, expected 1 or more; the file is damaged: "
                          "convert the adapter again",
                          llm_gguf_name(a->gguf), tb->name, (long long)rank);
    return status;
}

/* Makes the part of B for a weight that is a part of its source: of each matrix the same rows that
 * the weight has of its source. The adapter owns it. */
static const llm_gguf_tensor *half_make(llm_adapter *a, const llm_weight *w,
                                        const llm_gguf_tensor *tb) {
    llm_gguf_tensor *half = &a->halves[a->n_half++];
    *half = *tb;
    half->ne[1] = w->file->ne[1];
    half->size = tb->size / (size_t)tb->ne[1] * (size_t)half->ne[1];
    half->data =
        (const uint8_t *)tb->data + (size_t)w->source_row * tdm_type_row_size(tb->type, tb->ne[0]);
    return half;
}

/* Appends a matrix of a pair of weight w to the model's weights, which have room for it
 * (pairs_add); returns its number. is_cut: a group cuts its `axis` by the partition of w. file,
 * source: those of llm_weight. */
static int32_t weight_add(llm_model *m, const llm_weight *w, uint32_t usage, bool is_cut,
                          int32_t axis, const llm_gguf_tensor *file,
                          const llm_gguf_tensor *source) {
    llm_weight own = {.file = file,
                      .source = source,
                      .role = w->role,
                      .layer = w->layer,
                      .usage = usage,
                      .adapter = m->n_adapter + 1};
    if (is_cut && w->partition.id != 0) {
        own.partition = w->partition;
        own.axis = axis;
    }
    m->weights[m->n_weight] = own;
    return m->n_weight++;
}

/* Adds A and B of the weight `base` of the model. `shared`: the number of the weight of this A,
 * where another half of the same matrix has added it; -1 = A is added, too. */
static tdm_status pair_add(llm_model *m, llm_adapter *a, int32_t base, const llm_gguf_tensor *ta,
                           const llm_gguf_tensor *tb, int32_t shared, tdm_error *err) {
    const llm_weight w = m->weights[base];
    const uint32_t usage = w.usage & (TDM_USAGE_MATMUL | TDM_USAGE_EXPERT);
    llm_adapter_pair pair = {shared, -1};
    tdm_status status = pair_check(a, &w, ta, tb, err);
    if (status != TDM_OK) return status;
    if (is_embedding(&w)) { /* columns of W are rows of B, rows of W are rows of A */
        pair.a = weight_add(m, &w, TDM_USAGE_ROWS, w.axis == 1, 1, ta, ta);
        pair.b = weight_add(m, &w, TDM_USAGE_MATMUL, w.axis == 0, 1, tb, tb);
    } else {
        const llm_gguf_tensor *file = w.source != w.file ? half_make(a, &w, tb) : tb;
        if (shared < 0) pair.a = weight_add(m, &w, usage, w.axis == 0, 0, ta, ta);
        pair.b = weight_add(m, &w, usage, w.axis == 1, 1, file, tb);
        m->weights[pair.b].source_row = w.source_row;
    }
    if (shared < 0) {
        if (a->n_pair++ == 0) a->rank = (int32_t)tb->ne[0];
        a->size += ta->size + tb->size;
    }
    a->pair[base] = pair;
    return TDM_OK;
}

/* Adds the pair of the weights of the model that are the tensor of that name, or parts of it. */
static tdm_status pairs_of_tensor(llm_model *m, llm_adapter *a, const llm_gguf_tensor *ta,
                                  const llm_gguf_tensor *tb, size_t n, tdm_error *err) {
    int32_t base = base_find(m, 0, ta->name, n), shared = -1, n_row;
    tdm_status status = TDM_OK;
    const llm_gguf_tensor *table = llm_hparams_file_table(&m->hparams, &n_row);
    if (table != NULL && strlen(table->name) == n && strncmp(table->name, ta->name, n) == 0)
        return base_refuse(a, table->name, IS_TABLE, err);
    if (base < 0)
        return tdm_fail(err, TDM_NOT_FOUND,
                        "%s: tensor '%s' belongs to '%.*s', which %s does not have; use the model "
                        "that the adapter was made for",
                        llm_gguf_name(a->gguf), ta->name, (int)n, ta->name, m->path);
    for (; base >= 0 && status == TDM_OK; base = base_find(m, base + 1, ta->name, n)) {
        status = pair_add(m, a, base, ta, tb, shared, err);
        shared = a->pair[base].a;
    }
    return status;
}

/* A tensor of the file: with an A its pair is added. */
static tdm_status tensor_add(llm_model *m, llm_adapter *a, const llm_gguf_tensor *t,
                             tdm_error *err) {
    char which = 0, other[LLM_TENSOR_NAME_SIZE + 16];
    const size_t n = base_length(t->name, &which);
    if (n == 0 || n + 8 > sizeof other)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: tensor '%s' is neither NAME.lora_a nor NAME.lora_b; without it "
                        "results would be wrong: convert an adapter that has matrices of low rank "
                        "only",
                        llm_gguf_name(a->gguf), t->name);
    snprintf(other, sizeof other, "%.*s.lora_%c", (int)n, t->name, which == 'a' ? 'b' : 'a');
    const llm_gguf_tensor *pair = llm_gguf_tensor_find(a->gguf, other);
    if (pair == NULL)
        return tdm_fail(err, TDM_DATA_LOSS,
                        "%s: tensor '%s' is there without '%s'; the file is damaged: convert the "
                        "adapter again",
                        llm_gguf_name(a->gguf), t->name, other);
    if (which == 'b') return TDM_OK; /* added with its A */
    return pairs_of_tensor(m, a, t, pair, n, err);
}

static tdm_status fingerprint_make(llm_adapter *a, tdm_error *err) {
    const uint32_t n = llm_gguf_tensor_count(a->gguf);
    a->fingerprint = tdm_hash_add(TDM_HASH_BEGIN, &a->alpha, sizeof a->alpha);
    for (uint32_t i = 0; i < n; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(a->gguf, i);
        uint8_t first[FINGERPRINT_SIZE];
        const size_t size = t->size < FINGERPRINT_SIZE ? t->size : FINGERPRINT_SIZE;
        tdm_status status = llm_gguf_read(a->gguf, t, 0, size, first, err);
        if (status != TDM_OK) return status;
        a->fingerprint = tdm_hash_add(a->fingerprint, t->name, strlen(t->name));
        a->fingerprint = tdm_hash_add(a->fingerprint, &t->type_raw, sizeof t->type_raw);
        a->fingerprint = tdm_hash_add(a->fingerprint, t->ne, sizeof t->ne);
        a->fingerprint = tdm_hash_add(a->fingerprint, first, size);
    }
    return TDM_OK;
}

static tdm_status pairs_add(llm_model *m, llm_adapter *a, tdm_error *err) {
    const uint32_t n_tensor = llm_gguf_tensor_count(a->gguf);
    /* A tensor is one weight, or two: halves. */
    const size_t n_weight = (size_t)m->n_weight + 2 * (size_t)n_tensor + 1;
    llm_weight *grown = realloc(m->weights, n_weight * sizeof *grown);
    if (grown != NULL) m->weights = grown;
    a->pair = malloc(((size_t)m->n_base + 1) * sizeof *a->pair);
    a->halves = malloc((2 * (size_t)n_tensor + 1) * sizeof *a->halves);
    if (grown == NULL || a->pair == NULL || a->halves == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", llm_gguf_name(a->gguf));
    for (int32_t i = 0; i < m->n_base; i++) a->pair[i] = (llm_adapter_pair){-1, -1};
    tdm_status status = TDM_OK;
    for (uint32_t i = 0; i < n_tensor && status == TDM_OK; i++)
        status = tensor_add(m, a, llm_gguf_tensor_at(a->gguf, i), err);
    if (status == TDM_OK && a->n_pair == 0)
        status = tdm_fail(err, TDM_DATA_LOSS, "%s: the adapter has no tensors; convert it again",
                          llm_gguf_name(a->gguf));
    return status;
}

/* Builds the forward graph once and refuses the adapter if the graph does not read one of its
 * pairs: such a pair would have no effect. */
static tdm_status pairs_try(const llm_model *m, const llm_adapter *a, tdm_error *err) {
    static const llm_step_shape shape = {TRIAL_TOKENS, TRIAL_ROWS, 1, 1};
    llm_cache_shape cache = {.n_page = 1};
    tdm_graph *graph = NULL;
    int32_t *value = malloc(((size_t)m->n_weight + 1) * sizeof *value);
    if (value == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", llm_gguf_name(a->gguf));
    llm_cache_desc_fill(m, &cache.desc);
    tdm_error inner = {0};
    tdm_status status = llm_forward_graph(m, &cache, 0, &shape, value, &graph, &inner);
    tdm_graph_free(graph);
    if (status != TDM_OK)
        status = tdm_fail(err, status, "%s: %s", llm_gguf_name(a->gguf), inner.message);
    for (int32_t i = 0; i < m->n_base && status == TDM_OK; i++)
        if (a->pair[i].a >= 0 && value[a->pair[i].a] < 0)
            status = tdm_fail(err, TDM_UNSUPPORTED,
                              "%s: the adapter changes '%s', whose products are not supported with "
                              "adapters in architecture '%s': merge the adapter into the model, or "
                              "train one without it",
                              llm_gguf_name(a->gguf), m->weights[i].source->name, m->hparams.arch);
    free(value);
    return status;
}

tdm_status llm_model_add_adapter(llm_model *m, const char *path, float scale, tdm_error *err) {
    const int32_t n_weight = m->n_weight, n_own = m->n_own;
    llm_adapter a = {.scale = scale};
    if (m->n_dev > 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: an adapter must be added before the model is loaded", path);
    if (m->lender != NULL)
        return tdm_fail(err, TDM_UNSUPPORTED, "%s: a layer that drafts takes no adapter", path);
    if (m->n_adapter == LLM_MAX_ADAPTERS)
        return tdm_fail(err, TDM_OUT_OF_RANGE, "%s: a model takes at most %d adapters", path,
                        LLM_MAX_ADAPTERS);
    if (!isfinite(scale))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "%s: the scale of an adapter must be finite",
                        path);
    llm_adapter *grown = realloc(m->adapters, ((size_t)m->n_adapter + 1) * sizeof *grown);
    if (grown == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    m->adapters = grown;
    if (m->n_adapter == 0) m->n_base = m->n_weight;
    tdm_status status = llm_gguf_open(path, &a.gguf, err);
    if (status == TDM_OK) status = keys_read(m, &a, err);
    if (status == TDM_OK) status = pairs_add(m, &a, err);
    if (status == TDM_OK) status = fingerprint_make(&a, err);
    if (status == TDM_OK) {
        m->adapters[m->n_adapter++] = a;
        m->n_own = m->n_weight;
        m->adapter_size += a.size;
        status = pairs_try(m, &a, err);
        if (status != TDM_OK) {
            m->n_adapter--;
            m->adapter_size -= a.size;
        }
    }
    if (status != TDM_OK) {
        llm_gguf_close(a.gguf);
        free(a.pair);
        free(a.halves);
        m->n_weight = n_weight;
        m->n_own = n_own;
        return status;
    }
    llm_gguf_release_all(a.gguf);
    return TDM_OK;
}
