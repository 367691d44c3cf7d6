/* SPDX-License-Identifier: MIT
 *
 * score.c: see score.h.
 */
#include "llm/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"
#include "llm/dense.h"
#include "llm/embedding.h"
#include "llm/tokenizer/tokenizer.h"

/* ---- The head -------------------------------------------------------------------------------- */

struct llm_score_head {
    const llm_model *model;
    llm_dense cls, cls_bias, norm, out, out_bias; /* vectors are matrices of one row */
    int32_t n_score;
    float *rooms[2]; /* scratch, as long as the widest vector: input and output of a matrix */
};

/* Reads a tensor of the head. *out is cleared if the file has no such tensor, or the architecture
 * no such head. */
static tdm_status part_read(const llm_model *m, const char *name, llm_dense *out, tdm_error *err) {
    const llm_gguf_tensor *t = llm_gguf_tensor_find(m->gguf, name);
    *out = (llm_dense){0};
    if (t == NULL || !llm_arch_is_harmless(m->arch, name)) return TDM_OK;
    return llm_dense_read(m, t, out, err);
}

/* Whether a vector is absent or has n numbers. */
static bool is_vector(const llm_dense *d, int32_t n) {
    return d->rows == NULL || (d->n_in == n && d->n_out == 1);
}

/* Sets n_score; TDM_DATA_LOSS if the shapes of the parts do not fit each other. */
static tdm_status parts_check(llm_score_head *h, tdm_error *err) {
    const int32_t n_embd = h->model->hparams.n_embd;
    const bool has_cls = h->cls.rows != NULL, has_out = h->out.rows != NULL;
    const int32_t n_mid = has_cls ? h->cls.n_out : n_embd;
    h->n_score = has_out ? h->out.n_out : n_mid;
    if ((!has_cls || h->cls.n_in == n_embd) && (!has_out || h->out.n_in == n_mid) &&
        (!has_cls || (is_vector(&h->cls_bias, n_mid) && is_vector(&h->norm, n_mid))) &&
        is_vector(&h->out_bias, h->n_score))
        return TDM_OK;
    return tdm_fail(err, TDM_DATA_LOSS,
                    "%s: tensors 'cls.*' do not lead from %d numbers to scores; the file is "
                    "damaged or of another architecture",
                    llm_gguf_name(h->model->gguf), n_embd);
}

tdm_status llm_score_head_read(const llm_model *m, llm_score_head **head_out, tdm_error *err) {
    llm_score_head *h = calloc(1, sizeof *h);
    *head_out = NULL;
    if (h == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    h->model = m;
    tdm_status status = part_read(m, "cls.weight", &h->cls, err);
    if (status == TDM_OK) status = part_read(m, "cls.bias", &h->cls_bias, err);
    if (status == TDM_OK) status = part_read(m, "cls.norm.weight", &h->norm, err);
    if (status == TDM_OK) status = part_read(m, "cls.output.weight", &h->out, err);
    if (status == TDM_OK) status = part_read(m, "cls.output.bias", &h->out_bias, err);
    if (status == TDM_OK && h->cls.rows == NULL && h->out.rows == NULL) {
        llm_score_head_free(h);
        return TDM_OK;
    }
    if (status == TDM_OK) status = parts_check(h, err);
    int32_t widest = m->hparams.n_embd;
    if (h->cls.n_out > widest) widest = h->cls.n_out;
    if (h->out.n_out > widest) widest = h->out.n_out;
    for (int i = 0; i < 2 && status == TDM_OK; i++) {
        h->rooms[i] = malloc((size_t)widest * sizeof *h->rooms[i]);
        if (h->rooms[i] == NULL)
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    }
    if (status == TDM_OK)
        *head_out = h;
    else
        llm_score_head_free(h);
    return status;
}

void llm_score_head_free(llm_score_head *h) {
    if (h == NULL) return;
    llm_dense_free(&h->cls);
    llm_dense_free(&h->cls_bias);
    llm_dense_free(&h->norm);
    llm_dense_free(&h->out);
    llm_dense_free(&h->out_bias);
    free(h->rooms[0]);
    free(h->rooms[1]);
    free(h);
}

int32_t llm_score_count(const llm_score_head *h) {
    return h->n_score;
}

static double activate(tdm_act act, double x) {
    const double root = 0.7978845608028654; /* sqrt(2 / pi) */
    if (act == TDM_ACT_GELU) return 0.5 * x * (1 + tanh(root * (x + 0.044715 * x * x * x)));
    return tanh(x);
}

/* LayerNorm with a weight. */
static void norm_apply(const llm_score_head *h, float *x, int32_t n) {
    double mean = 0, square = 0;
    for (int32_t i = 0; i < n; i++) mean += (double)x[i] / n;
    for (int32_t i = 0; i < n; i++) square += ((double)x[i] - mean) * ((double)x[i] - mean) / n;
    const double factor = 1 / sqrt(square + (double)h->model->hparams.norm_eps);
    for (int32_t i = 0; i < n; i++)
        x[i] = (float)(((double)x[i] - mean) * factor * (double)h->norm.rows[i]);
}

static void softmax(float *x, int32_t n) {
    double most = -INFINITY, sum = 0;
    /* No fmax: see llm_embedding_normalize. */
    for (int32_t i = 0; i < n; i++)
        if ((double)x[i] > most) most = (double)x[i];
    for (int32_t i = 0; i < n; i++) sum += exp((double)x[i] - most);
    for (int32_t i = 0; i < n; i++) x[i] = (float)(exp((double)x[i] - most) / sum);
}

void llm_score(llm_score_head *h, const float *rows, int32_t n_tok, float *scores_out) {
    const llm_arch *arch = h->model->arch;
    const llm_pooling pooling = arch->is_score_mean                  ? LLM_POOLING_MEAN
                                : h->model->hparams.is_bidirectional ? LLM_POOLING_CLS
                                                                     : LLM_POOLING_LAST;
    float *x = h->rooms[0], *y = h->rooms[1];
    llm_pool(pooling, rows, n_tok, h->model->hparams.n_embd, x);
    if (h->cls.rows != NULL) {
        llm_dense_apply(&h->cls, x, h->cls_bias.rows, y);
        for (int32_t i = 0; i < h->cls.n_out; i++)
            y[i] = (float)activate(arch->score_act, (double)y[i]);
        if (h->norm.rows != NULL) norm_apply(h, y, h->cls.n_out);
        x = y;
        y = h->rooms[0];
    }
    if (h->out.rows != NULL) {
        llm_dense_apply(&h->out, x, h->out_bias.rows, y);
        x = y;
    }
    if (arch->has_score_softmax) softmax(x, h->n_score);
    memcpy(scores_out, x, (size_t)h->n_score * sizeof *x);
}

/* ---- A query and a text ---------------------------------------------------------------------- */

/* A text that grows. */
typedef struct joined {
    char *bytes;
    size_t len, room;
    bool has_failed;
} joined;

static void join(joined *j, const char *bytes, size_t n) {
    if (j->has_failed) return;
    if (n > j->room - j->len) {
        const size_t room = 2 * (j->len + n) + 64;
        char *grown = realloc(j->bytes, room);
        if (grown == NULL) {
            j->has_failed = true;
            return;
        }
        j->bytes = grown;
        j->room = room;
    }
    if (n > 0) memcpy(j->bytes + j->len, bytes, n);
    j->len += n;
}

/* Appends the template with {query} and {document} replaced. Such words inside the query or the
 * text are not replaced. */
static void template_fill(joined *j, llm_gguf_str tpl, const char *query, size_t query_len,
                          const char *text, size_t text_len) {
    static const char query_word[] = "{query}", text_word[] = "{document}";
    const size_t n_query = sizeof query_word - 1, n_text = sizeof text_word - 1;
    size_t at = 0;
    while (at < tpl.len) {
        const char *from = tpl.ptr + at;
        const size_t left = tpl.len - at;
        if (left >= n_query && memcmp(from, query_word, n_query) == 0) {
            join(j, query, query_len);
            at += n_query;
        } else if (left >= n_text && memcmp(from, text_word, n_text) == 0) {
            join(j, text, text_len);
            at += n_text;
        } else {
            join(j, from, 1);
            at++;
        }
    }
}

static tdm_status template_tokenize(const llm_vocab *vocab, llm_gguf_str tpl, const char *query,
                                    size_t query_len, const char *text, size_t text_len,
                                    int32_t **ids_out, size_t *n_out, tdm_error *err) {
    joined j = {0};
    template_fill(&j, tpl, query, query_len, text, text_len);
    tdm_status status =
        j.has_failed ? tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a query and a text")
                     : llm_tokenize(vocab, j.bytes != NULL ? j.bytes : "", j.len,
                                    LLM_TOKENIZE_PARSE_SPECIAL, ids_out, n_out, err);
    free(j.bytes);
    return status;
}

/* bos query last sep text last; bos, sep and last where the vocabulary adds them. */
static tdm_status pair_tokenize(const llm_vocab *vocab, const char *const texts[2],
                                const size_t lens[2], int32_t **ids_out, size_t *n_out,
                                tdm_error *err) {
    int32_t *parts[2] = {NULL, NULL}, *ids = NULL;
    size_t n_part[2] = {0}, n = 0;
    tdm_status status = TDM_OK;
    for (int i = 0; i < 2 && status == TDM_OK; i++)
        status = llm_tokenize(vocab, texts[i], lens[i], 0, &parts[i], &n_part[i], err);
    if (status == TDM_OK) {
        ids = malloc((n_part[0] + n_part[1] + 4) * sizeof *ids);
        if (ids == NULL)
            status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a query and a text");
    }
    for (int i = 0; i < 2 && status == TDM_OK; i++) {
        if (i == 0 && llm_vocab_adds_bos(vocab)) ids[n++] = llm_vocab_bos(vocab);
        if (i == 1 && llm_vocab_adds_sep(vocab)) ids[n++] = llm_vocab_sep(vocab);
        if (n_part[i] > 0) memcpy(ids + n, parts[i], n_part[i] * sizeof *ids);
        n += n_part[i];
        if (llm_vocab_adds_eos(vocab)) ids[n++] = llm_vocab_last(vocab);
    }
    free(parts[0]);
    free(parts[1]);
    if (status != TDM_OK) return status;
    *ids_out = ids;
    *n_out = n;
    return TDM_OK;
}

tdm_status llm_score_tokenize(const llm_model *m, const char *query, size_t query_len,
                              const char *text, size_t text_len, int32_t **ids_out, size_t *n_out,
                              tdm_error *err) {
    const llm_vocab *vocab = NULL;
    llm_gguf_str tpl = {"", 0};
    *ids_out = NULL;
    *n_out = 0;
    tdm_status status = llm_model_vocab(m, &vocab, err);
    if (status == TDM_OK)
        status = llm_gguf_get_str(m->gguf, "tokenizer.chat_template.rerank", LLM_GGUF_OPTIONAL,
                                  &tpl, err);
    if (status != TDM_OK) return status;
    if (tpl.len > 0)
        return template_tokenize(vocab, tpl, query, query_len, text, text_len, ids_out, n_out, err);
    const char *const texts[2] = {query, text};
    const size_t lens[2] = {query_len, text_len};
    return pair_tokenize(vocab, texts, lens, ids_out, n_out, err);
}
