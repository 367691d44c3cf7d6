/* SPDX-License-Identifier: MIT
 *
 * adapter_load.c: reads adapters and makes their tensors weights of the model. What a product with
 * them is: block/project.c. Their scales: context_lora.c.
 */
#include "llm/adapter.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "llm/arch/forward_graph.h"

/* Bytes of each tensor in the fingerprint. */
#define FINGERPRINT_SIZE 64

/* The tokens and rows of logits of the graph that adapters are tried in: numbers for which several
 * products of a token have other numbers of rows. */
enum { TRIAL_TOKENS = 7, TRIAL_ROWS = 3 };

/* ---- Keys ---- */

static tdm_status word_check(const llm_gguf *g, const char *key, const char *expected,
                             const char *way_out, tdm_error *err) {
    llm_gguf_str text = {"", 0};
    tdm_status status = llm_gguf_get_str(g, key, LLM_GGUF_OPTIONAL, &text, err);
    if (status != TDM_OK || llm_gguf_str_equals(text, expected)) return status;
    char found[48];
    snprintf(found, sizeof found, "%.*s",
             (int)(text.len < sizeof found ? text.len : sizeof found - 1), text.ptr);
    for (char *c = found; *c != 0; c++)
        if ((unsigned char)*c < 0x20) *c = '?'; /* messages are one line */
    return tdm_fail(err, TDM_UNSUPPORTED, "%s: %s is '%s', expected '%s'; %s", llm_gguf_name(g),
                    key, found, expected, way_out);
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
    /* It would have an effect from certain tokens on only. */
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

/* The weight of the model whose tensor has that name; -1 = none. */
static int32_t base_find(const llm_model *m, const char *name, size_t n) {
    for (int32_t i = 0; i < m->n_base; i++) {
        const char *own = m->weights[i].source->name;
        if (!m->weights[i].is_made && strncmp(own, name, n) == 0 && own[n] == '\0') return i;
    }
    return -1;
}

static tdm_status base_check(const llm_adapter *a, const llm_weight *base, tdm_error *err) {
    const char *what = NULL;
    if ((base->usage & TDM_USAGE_ROWS) != 0)
        what = "a table of embeddings";
    else if ((base->usage & TDM_USAGE_EXPERT) != 0 || base->source != base->file)
        what = "the matrices of experts";
    else if (base->usage != TDM_USAGE_MATMUL)
        what = "no matrix";
    else if (base->file->ne[2] != 1 || base->file->ne[3] != 1)
        what = "a matrix for each head";
    if (what == NULL) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s: the adapter changes '%s', which is %s; that is not supported: merge the "
                    "adapter into the model, or train one without it",
                    llm_gguf_name(a->gguf), base->source->name, what);
}

static tdm_status shape_fail(const llm_adapter *a, const llm_gguf_tensor *t, int64_t k, int64_t n,
                             const llm_weight *base, tdm_error *err) {
    return tdm_fail(err, TDM_DATA_LOSS,
                    "%s: tensor '%s' has shape [%lld, %lld, %lld, %lld], expected [%lld, %lld] for "
                    "'%s' [%lld, %lld]; the file is damaged or made for another model",
                    llm_gguf_name(a->gguf), t->name, (long long)t->ne[0], (long long)t->ne[1],
                    (long long)t->ne[2], (long long)t->ne[3], (long long)k, (long long)n,
                    base->file->name, (long long)base->file->ne[0], (long long)base->file->ne[1]);
}

static tdm_status type_check(const llm_adapter *a, const llm_gguf_tensor *t, tdm_error *err) {
    tdm_status status = llm_gguf_tensor_check_type(a->gguf, t, err);
    if (status != TDM_OK || (t->type != TDM_TYPE_I8 && t->type != TDM_TYPE_I32)) return status;
    return tdm_fail(err, TDM_UNSUPPORTED,
                    "%s: tensor '%s' has type %s, expected a float or "
                    "quantised type",
                    llm_gguf_name(a->gguf), t->name, tdm_type_name(t->type));
}

/* Adds A and B of a weight of the model as its next two weights, for which there is room. */
static tdm_status pair_add(llm_model *m, llm_adapter *a, int32_t base, const llm_gguf_tensor *ta,
                           const llm_gguf_tensor *tb, tdm_error *err) {
    const llm_weight *w = &m->weights[base];
    const int64_t k = w->file->ne[0], n = w->file->ne[1], rank = tb->ne[0];
    tdm_status status = base_check(a, w, err);
    if (status == TDM_OK) status = type_check(a, ta, err);
    if (status == TDM_OK) status = type_check(a, tb, err);
    if (status != TDM_OK) return status;
    if (ta->ne[2] != 1 || ta->ne[3] != 1 || ta->ne[0] != k || ta->ne[1] != rank)
        return shape_fail(a, ta, k, rank, w, err);
    if (tb->ne[2] != 1 || tb->ne[3] != 1 || tb->ne[1] != n || rank < 1 || rank > INT32_MAX)
        return shape_fail(a, tb, rank, n, w, err);
    llm_weight pair[2] = {{.file = ta, .source = ta}, {.file = tb, .source = tb}};
    for (int32_t i = 0; i < 2; i++) {
        pair[i].role = w->role;
        pair[i].layer = w->layer;
        pair[i].usage = TDM_USAGE_MATMUL;
        pair[i].adapter = m->n_adapter + 1;
        if (w->partition.id == 0 || w->axis != i) continue;
        pair[i].partition = w->partition;
        pair[i].axis = w->axis;
    }
    if (a->n_pair++ == 0) a->rank = (int32_t)rank;
    a->pair[base] = m->n_weight;
    a->size += ta->size + tb->size;
    m->weights[m->n_weight++] = pair[0];
    m->weights[m->n_weight++] = pair[1];
    return TDM_OK;
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
    const int32_t base = base_find(m, t->name, n);
    if (base < 0)
        return tdm_fail(err, TDM_NOT_FOUND,
                        "%s: tensor '%s' belongs to '%.*s', which %s does not have; use the model "
                        "that the adapter was made for",
                        llm_gguf_name(a->gguf), t->name, (int)n, t->name, m->path);
    return pair_add(m, a, base, t, pair, err);
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
    const size_t n_weight = (size_t)m->n_weight + n_tensor + 1;
    llm_weight *grown = realloc(m->weights, n_weight * sizeof *grown);
    if (grown != NULL) m->weights = grown;
    a->pair = malloc(((size_t)m->n_base + 1) * sizeof *a->pair);
    if (grown == NULL || a->pair == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", llm_gguf_name(a->gguf));
    for (int32_t i = 0; i < m->n_base; i++) a->pair[i] = -1;
    tdm_status status = TDM_OK;
    for (uint32_t i = 0; i < n_tensor && status == TDM_OK; i++)
        status = tensor_add(m, a, llm_gguf_tensor_at(a->gguf, i), err);
    if (status == TDM_OK && a->n_pair == 0)
        status = tdm_fail(err, TDM_DATA_LOSS, "%s: the adapter has no tensors; convert it again",
                          llm_gguf_name(a->gguf));
    return status;
}

/* Builds the forward graph once: every pair must be read by it. */
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
        if (a->pair[i] >= 0 && value[a->pair[i]] < 0)
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
        m->n_weight = n_weight;
        m->n_own = n_own;
        return status;
    }
    llm_gguf_release_all(a.gguf);
    return TDM_OK;
}
