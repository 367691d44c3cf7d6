/* SPDX-License-Identifier: MIT
 *
 * model.c: opening and describing a model. Loading its weights: model_load.c.
 */
#include "llm/model.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/hash.h"
#include "llm/adapter.h"
#include "llm/arch/arch.h"

const llm_gguf *llm_weight_gguf(const llm_model *m, const llm_weight *w) {
    return w->adapter > 0 ? m->adapters[w->adapter - 1].gguf : m->gguf;
}

const char *llm_weight_base_name(const llm_model *m, const llm_weight *w) {
    const int32_t *map = w->layer < 0 ? m->global : m->layer[w->layer];
    return w->adapter > 0 ? m->weights[map[w->role]].file->name : w->file->name;
}

tdm_status llm_weight_read(const llm_model *m, const llm_weight *w, int64_t row, int64_t n_row,
                           int64_t col, int64_t n_col, void *out, tdm_error *err) {
    const llm_gguf_tensor *t = w->source;
    const size_t pitch = tdm_type_row_size(t->type, t->ne[0]);
    uint8_t *at = out;
    if (w->is_made) {
        const uint8_t *from = (const uint8_t *)t->data + (size_t)row * pitch;
        memcpy(at, from + tdm_type_row_size(t->type, col),
               (size_t)n_row * tdm_type_row_size(t->type, n_col));
        return TDM_OK;
    }
    while (n_row > 0) {
        /* Rows of one matrix follow one another in the file. */
        int64_t matrix = row / w->file->ne[1], in = row % w->file->ne[1];
        int64_t n = w->file->ne[1] - in < n_row ? w->file->ne[1] - in : n_row;
        int64_t first = matrix * t->ne[1] + w->source_row + in;
        size_t size = (size_t)n * tdm_type_row_size(t->type, n_col);
        tdm_status status =
            llm_gguf_read(llm_weight_gguf(m, w), t,
                          (size_t)first * pitch + tdm_type_row_size(t->type, col), size, at, err);
        if (status != TDM_OK) return status;
        at += size;
        row += n;
        n_row -= n;
    }
    return TDM_OK;
}

/* First bytes of each tensor that are hashed: they differ between models of the same shapes. */
#define FINGERPRINT_SIZE 64

/* Sets fingerprint, n_param and file_size. */
static tdm_status model_measure(llm_model *m, tdm_error *err) {
    /* Prefetch all of the bytes first, so that the reads below wait for storage together. */
    for (int32_t i = 0; i < m->n_own; i++)
        if (!m->weights[i].is_made)
            llm_gguf_prefetch(m->gguf, m->weights[i].source, 0, FINGERPRINT_SIZE);
    m->fingerprint = tdm_hash_add(TDM_HASH_BEGIN, m->hparams.arch, strlen(m->hparams.arch));
    for (int32_t i = 0; i < m->n_own; i++) {
        const llm_gguf_tensor *t = m->weights[i].file;
        uint8_t first[FINGERPRINT_SIZE];
        const size_t size = t->size < FINGERPRINT_SIZE ? t->size : FINGERPRINT_SIZE;
        /* A part of a tensor is hashed from its own first byte. */
        const size_t off = (size_t)m->weights[i].source_row * tdm_type_row_size(t->type, t->ne[0]);
        tdm_status status = TDM_OK;
        if (m->weights[i].is_made)
            memcpy(first, t->data, size);
        else
            status = llm_gguf_read(m->gguf, m->weights[i].source, off, size, first, err);
        if (status != TDM_OK) return status;
        m->fingerprint = tdm_hash_add(m->fingerprint, t->name, strlen(t->name));
        m->fingerprint = tdm_hash_add(m->fingerprint, &t->type_raw, sizeof t->type_raw);
        m->fingerprint = tdm_hash_add(m->fingerprint, t->ne, sizeof t->ne);
        m->fingerprint = tdm_hash_add(m->fingerprint, first, size);
        m->n_param += (uint64_t)tdm_shape_count(t->ne);
        m->file_size += t->size;
    }
    /* The system has read ahead around each page. Release these pages: nothing reads them soon. */
    llm_gguf_release_all(m->gguf);
    return TDM_OK;
}

/* Whether a tensor belongs to another model of the file: to a layer that only drafts tokens, or, of
 * such a layer, to anything else. */
static bool is_foreign(const llm_hparams *h, const char *tensor) {
    const char *suffix;
    const int32_t layer = llm_tensor_layer(tensor, &suffix);
    if (h->layer_first > 0) return layer != h->layer_first;
    return layer >= h->n_layer && layer < h->n_layer + h->n_layer_draft;
}

/* Ignoring a tensor that has no role would give wrong results. */
static tdm_status unused_tensors_refuse(const llm_model *m, tdm_error *err) {
    uint32_t n_tensor = llm_gguf_tensor_count(m->gguf);
    int32_t n_row;
    const llm_gguf_tensor *table = llm_hparams_file_table(&m->hparams, &n_row);
    for (uint32_t i = 0; i < n_tensor; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(m->gguf, i);
        bool is_taken = t == table || llm_arch_is_harmless(m->arch, t->name) ||
                        is_foreign(&m->hparams, t->name);
        /* Scales for activations of 4 bits, which no device computes with. */
        if (llm_tensor_is_scale(m->gguf, t->name, ".input_scale")) is_taken = true;
        /* Factors of rotations do not count where nothing is rotated. */
        if (m->hparams.rope.n_rot == 0 && strncmp(t->name, "rope_", 5) == 0) is_taken = true;
        for (int32_t w = 0; w < m->n_weight && !is_taken; w++)
            is_taken = m->weights[w].source->data == t->data;
        if (!is_taken)
            return tdm_fail(
                err, TDM_UNSUPPORTED,
                "%s: tensor '%s' has no place in architecture '%s' as supported; without it "
                "results would be wrong",
                llm_gguf_part_name(m->gguf, t->part), t->name, m->hparams.arch);
    }
    return TDM_OK;
}

/* Takes ids that no other model of the process uses: a group compares partitions by id. After 2^30
 * ids they start again at 0; models that used those are closed by then. */
static int32_t partition_base_take(const llm_hparams *h) {
    static _Atomic uint32_t next;
    uint32_t base = atomic_fetch_add(&next, (uint32_t)llm_partition_limit(h));
    return (int32_t)(base & ((1u << 30) - 1));
}

/* Reads the layers' specs and finds the model's weights in the file; checks that no tensor is
 * missing, of a wrong shape, or unused. */
static tdm_status model_declare(llm_model *m, tdm_error *err) {
    size_t n_layer = (size_t)m->hparams.n_layer;
    m->weights = calloc(2 * (size_t)llm_gguf_tensor_count(m->gguf) + 1, sizeof *m->weights);
    m->parts = calloc(LLM_MAX_PARTS * n_layer, sizeof *m->parts);
    m->layer = malloc(n_layer * sizeof *m->layer);
    m->specs = calloc(n_layer, sizeof *m->specs);
    if (m->weights == NULL || m->parts == NULL || m->layer == NULL || m->specs == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    tdm_status status = llm_layer_specs_read(m->gguf, m->arch, &m->hparams, m->specs, err);
    if (status != TDM_OK) return status;
    memset(m->layer, 0xff, n_layer * sizeof *m->layer);
    memset(m->global, 0xff, sizeof m->global);
    m->partition_base =
        m->lender != NULL ? m->lender->partition_base : partition_base_take(&m->hparams);
    status = llm_layers_maker.declare(m, err);
    return status == TDM_OK ? unused_tensors_refuse(m, err) : status;
}

/* Runs before the keys are read: an unknown architecture may have other keys than Llama, and the
 * message would then be about missing keys. */
static tdm_status arch_find(llm_model *m, tdm_error *err) {
    llm_gguf_str text = {"", 0};
    char name[sizeof m->hparams.arch];
    tdm_error inner = {0};
    tdm_status status =
        llm_gguf_get_str(m->gguf, "general.architecture", LLM_GGUF_REQUIRED, &text, err);
    if (status != TDM_OK) return status;
    snprintf(name, sizeof name, "%.*s", (int)(text.len < sizeof name ? text.len : sizeof name),
             text.ptr);
    status = llm_arch_find(name, &m->arch, &inner);
    if (status != TDM_OK)
        return tdm_fail(err, status, "%s: %s", llm_gguf_name(m->gguf), inner.message);
    return TDM_OK;
}

tdm_status llm_model_open(const char *path, llm_model **model_out, tdm_error *err) {
    llm_model *m = calloc(1, sizeof *m);
    if (m == NULL || (m->path = strdup(path)) == NULL) {
        free(m);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", path);
    }
    tdm_status status = llm_gguf_open(path, &m->gguf, err);
    if (status == TDM_OK) status = arch_find(m, err);
    if (status == TDM_OK) status = llm_hparams_read(m->gguf, m->arch, &m->hparams, err);
    if (status == TDM_OK) status = model_declare(m, err);
    if (status == TDM_OK && llm_vocab_from_gguf(m->gguf, &m->vocab, &m->vocab_error) != TDM_OK)
        m->vocab = NULL;
    if (status == TDM_OK && m->vocab != NULL && llm_vocab_n_token(m->vocab) > m->hparams.n_vocab)
        status =
            tdm_fail(err, TDM_DATA_LOSS,
                     "%s: the tokenizer has %d tokens, tensor 'token_embd.weight' only %d rows",
                     llm_gguf_name(m->gguf), llm_vocab_n_token(m->vocab), m->hparams.n_vocab);
    if (status == TDM_OK) status = model_measure(m, err);
    if (status != TDM_OK) {
        llm_model_close(m);
        return status;
    }
    *model_out = m;
    return TDM_OK;
}

int32_t llm_model_hidden_len(const llm_model *model) {
    const bool has_streams = model->arch->stream == LLM_STREAM_HYPER;
    return model->hparams.n_embd * (has_streams ? model->hparams.n_stream : 1);
}

tdm_status llm_model_open_draft(const llm_model *model, llm_model **draft_out, tdm_error *err) {
    const int32_t first = model->hparams.n_layer;
    const bool is_hyper =
        model->arch->stream == LLM_STREAM_HYPER && model->hparams.n_stream_rank > 0;
    if (model->hparams.n_layer_draft > 0 && model->arch->stream != LLM_STREAM_ONE && !is_hyper)
        return tdm_fail(
            err, TDM_UNSUPPORTED,
            "%s: layer %d drafts tokens, but architecture '%s' has residual streams for "
            "which this is not supported; leave out `draft = mtp` or give a draft model",
            llm_gguf_name(model->gguf), first, model->hparams.arch);
    if (model->hparams.n_layer_draft == 0 ||
        !llm_layer_has(model->gguf, LLM_ROLE_NEXTN_PROJ, first))
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s has no layer that drafts tokens: there is no tensor "
                        "'blk.%d.nextn.eh_proj.weight'; leave out `draft = mtp` or give a draft "
                        "model",
                        llm_gguf_name(model->gguf), first);
    llm_model *m = calloc(1, sizeof *m);
    if (m == NULL || (m->path = strdup(model->path)) == NULL) {
        free(m);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", model->path);
    }
    m->lender = model;
    m->gguf = model->gguf;
    m->arch = model->arch;
    m->vocab = model->vocab;
    m->vocab_error = model->vocab_error;
    m->hparams = model->hparams;
    m->hparams.layer_first = first;
    m->hparams.n_layer = first + 1;
    m->hparams.n_layer_draft--;
    m->hparams.ngram.n_gram = 0; /* no such layer reads rows for runs of tokens */
    tdm_status status = model_declare(m, err);
    if (status == TDM_OK) status = model_measure(m, err);
    /* Why not recurrent states: to truncate a sequence with such states, tokens are computed again
     * (context_cache.c). This layer would read their hidden states, which a context does not
     * keep. */
    const bool has_cache = status == TDM_OK && llm_layer_has_cache(&m->specs[first]);
    if (status == TDM_OK && (!has_cache || m->specs[first].recurrent.kind != LLM_MIXER_ATTENTION))
        status = tdm_fail(err, TDM_UNSUPPORTED,
                          "%s: layer %d, which drafts tokens, has %s; such layers of architecture "
                          "'%s' are not supported",
                          llm_gguf_name(m->gguf), first,
                          has_cache ? "recurrent states" : "no attention", m->hparams.arch);
    if (status != TDM_OK) {
        llm_model_close(m);
        return status;
    }
    *draft_out = m;
    return TDM_OK;
}

tdm_mem llm_model_weight_mem(const llm_model *m, const llm_weight *w) {
    const bool is_lent = m->lender != NULL && w - m->weights >= m->n_own;
    return (is_lent ? m->lender : m)->store.mems[w->mem];
}

void llm_model_close(llm_model *m) {
    if (m == NULL) return;
    llm_store_free(&m->store);
    if (m->lender == NULL) {
        llm_vocab_destroy(m->vocab);
        llm_gguf_close(m->gguf);
    }
    llm_adapters_free(m);
    free(m->weights);
    for (int32_t i = 0; i < m->n_part; i++) free((void *)(uintptr_t)m->parts[i].name);
    free(m->parts);
    free(m->layer);
    free(m->specs);
    free(m->path);
    free(m);
}

tdm_status llm_model_vocab(const llm_model *m, const llm_vocab **vocab_out, tdm_error *err) {
    if (m->vocab == NULL)
        return tdm_fail(err, m->vocab_error.status, "%s; commands that take token ids still work",
                        m->vocab_error.message);
    *vocab_out = m->vocab;
    return TDM_OK;
}

/* The type with the most bytes among the weights. */
static tdm_type main_type(const llm_model *m) {
    size_t size[TDM_TYPE_LIMIT_] = {0};
    tdm_type best = TDM_TYPE_F32;
    for (int32_t i = 0; i < m->n_weight; i++) {
        tdm_type type = m->weights[i].file->type;
        size[type] += m->weights[i].file->size;
        if (size[type] > size[best]) best = type;
    }
    return best;
}

void llm_model_describe(const llm_model *m, char *text, size_t text_size) {
    double n = (double)m->n_param;
    char type[16];
    snprintf(type, sizeof type, "%s", tdm_type_name(main_type(m)));
    for (char *c = type; *c != 0; c++)
        if (*c >= 'a' && *c <= 'z') *c = (char)(*c - 'a' + 'A');
    if (n >= 1e9)
        snprintf(text, text_size, "%s %.2fB %s", m->hparams.arch, n / 1e9, type);
    else if (n >= 1e6)
        snprintf(text, text_size, "%s %.2fM %s", m->hparams.arch, n / 1e6, type);
    else
        snprintf(text, text_size, "%s %.2fK %s", m->hparams.arch, n / 1e3, type);
}
