/* SPDX-License-Identifier: MIT
 *
 * rerank.c: /v1/rerank: a query and texts in, a score for each text out, the highest first. In the
 * form of Jina's and Cohere's API (`documents`) and of text-embeddings-inference (`texts`).
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/vectors.h"

/* The text of a document, which is a string or an object with one. NULL = it is neither. */
static const json_t *document_text(const json_t *document) {
    const json_t *text = json_is_object(document) ? json_object_get(document, "text") : document;
    return json_is_string(text) ? text : NULL;
}

/* ---- Replies ---- */

typedef struct rank {
    float score;
    int index;
} rank;

static int rank_compare(const void *a, const void *b) {
    const rank *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->index - y->index;
}

/* The n_top best texts of v->request, as a new array. With `texts` in v->request, each has its
 * text. NULL without memory. */
static json_t *results_make(const api_vectors *v, bool is_tei) {
    const json_t *texts = json_object_get(v->request, "texts");
    json_int_t n = json_integer_value(json_object_get(v->request, "n_top"));
    rank *ranks = malloc(((size_t)v->n_input + 1) * sizeof *ranks);
    json_t *results = json_array();
    for (int i = 0; i < v->n_input && ranks != NULL; i++)
        ranks[i] = (rank){v->inputs[i].values[0], i};
    bool is_good = ranks != NULL && results != NULL;
    if (n > v->n_input) n = v->n_input;
    if (ranks != NULL) qsort(ranks, (size_t)v->n_input, sizeof *ranks, rank_compare);
    for (json_int_t i = 0; i < n && is_good; i++) {
        json_t *text = json_array_get(texts, (size_t)ranks[i].index); /* NULL = not requested */
        json_t *one = json_pack("{s:i, s:f}", "index", ranks[i].index,
                                is_tei ? "score" : "relevance_score", (double)ranks[i].score);
        if (text != NULL && is_tei) json_object_set(one, "text", text);
        if (text != NULL && !is_tei)
            json_object_set_new(one, "document", json_pack("{s:O}", "text", text));
        is_good = json_array_append_new(results, one) == 0;
    }
    free(ranks);
    if (is_good) return results;
    json_decref(results);
    return NULL;
}

static json_t *plain_reply(const api_vectors *v) {
    return json_pack("{s:s, s:s, s:o, s:{s:I, s:I}}", "object", "list", "model", v->model->name,
                     "results", results_make(v, false), "usage", "prompt_tokens",
                     (json_int_t)v->n_token, "total_tokens", (json_int_t)v->n_token);
}

static json_t *tei_reply(const api_vectors *v) {
    return results_make(v, true);
}

/* ---- Requests ---- */

/* Adds a prompt of the query and each document to the settings, and copies of the documents' texts
 * to `texts` (NULL = not requested). */
static tdm_status documents_add(const api_context *c, const json_t *query, const json_t *documents,
                                api_settings *settings, json_t *texts, tdm_error *err) {
    size_t i;
    const json_t *one;
    tdm_status status = TDM_OK;
    json_array_foreach(documents, i, one) {
        const json_t *text = document_text(one);
        if (status != TDM_OK) break;
        if (text == NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "document %zu is no text and no object with a 'text'", i);
        status = api_pair_add(c, query, text, settings, err);
        if (texts != NULL) json_array_append_new(texts, json_deep_copy(text));
    }
    return status;
}

tdm_status api_rerank(api_context *c, tdm_error *err) {
    const json_t *query = api_get(c->body, "query"), *documents = api_get(c->body, "documents");
    const json_t *texts = api_get(c->body, "texts");
    const bool is_tei = documents == NULL && texts != NULL;
    const char *returns = is_tei ? "return_text" : "return_documents";
    bool returns_texts = false;
    int64_t n_top = INT32_MAX;
    api_settings settings;
    if (is_tei) documents = texts;
    if (c->model->pooling != LLM_POOLING_RANK)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "'%s' is no reranker: its file does not have pooling rank", c->model->name);
    if (!json_is_string(query))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "'query' must be a text");
    if (!json_is_array(documents) || json_array_size(documents) == 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "'documents' must be an array of texts with at least one");
    tdm_status status = api_get_bool(c->body, returns, &returns_texts, err);
    if (status == TDM_OK) status = api_get_int(c->body, "top_n", 1, INT32_MAX, &n_top, err);
    if (status != TDM_OK) return status;
    json_t *copies = returns_texts ? json_array() : NULL;
    api_settings_default(c, &settings);
    status = documents_add(c, query, documents, &settings, copies, err);
    const api_vectors kind = {
        .shape = API_SHAPE_OPENAI,
        .reply_make = is_tei ? tei_reply : plain_reply,
        .pooling = LLM_POOLING_RANK,
        .normalize = -1,
        .request = json_pack("{s:I, s:o*}", "n_top", (json_int_t)n_top, "texts", copies),
    };
    if (status == TDM_OK && kind.request == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a request");
    if (status == TDM_OK)
        status = api_vectors_start(c, &kind, &settings, err);
    else
        json_decref(kind.request);
    api_settings_clear(&settings);
    return status;
}
