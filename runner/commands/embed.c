/* SPDX-License-Identifier: MIT
 *
 * embed.c: `tandem embed`: prints the vectors of texts (embeddings), or a reranker's scores of
 * them, as numbers, JSON or raw f32. Several short texts are computed in one batch, each as a
 * sequence of its own. llm/embedding.h does the pooling.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/embedding.h"
#include "llm/projection.h"
#include "llm/score.h"
#include "llm/tokenizer/tokenizer.h"
#include "runner/config/config_value.h"
#include "runner/interrupt.h"
#include "runner/json.h"
#include "runner/output_file.h"
#include "runner/plan/fit.h"
#include "runner/plan/pick.h"
#include "runner/prompt.h"
#include "runner/session.h"

/* Most texts of one batch. */
#define SEQ_MAX 16

typedef struct text {
    const char *start; /* in job.all */
    size_t len;        /* bytes */
    int32_t *ids;      /* [n_tok] owned */
    int32_t n_tok;
} text;

typedef enum form { FORM_TEXT, FORM_JSON, FORM_RAW } form;

typedef struct job {
    runner_session session;
    char *all; /* the input, with all texts */
    text *texts;
    size_t n_text;
    int32_t longest; /* tokens of the longest text */
    int64_t n_tok;   /* of all */
    llm_pooling pooling;
    char *query_separator;
    int32_t norm; /* llm_embedding_normalize */
    form form;
    runner_json_writer json;
    float *rows;                /* [longest][n_embd] hidden states of one text */
    float *vector;              /* the result of one text or token, n_number numbers */
    llm_projection *projection; /* NULL = the model has none */
    llm_score_head *head;       /* NULL = the model has none; LLM_POOLING_RANK needs one */
    int32_t n_number;           /* of a vector, or with LLM_POOLING_RANK the number of scores */
} job;

/* ---- Texts ---- */

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the texts");
}

/* Cuts the input at each separator. A separator at the end of the input begins no further text. */
static tdm_status texts_cut(job *j, size_t len, tdm_error *err) {
    char *separator = strdup(runner_config_get_string(j->session.app->config, "separator"));
    if (separator == NULL) return no_memory(err);
    runner_text_unescape(separator);
    const size_t n_sep = strlen(separator);
    const bool is_line = strcmp(separator, "\n") == 0;
    const char *at = j->all, *end = j->all + len;
    size_t room = 0;
    tdm_status status = TDM_OK;
    while (at < end && status == TDM_OK) {
        const char *next = n_sep > 0 ? memmem(at, (size_t)(end - at), separator, n_sep) : NULL;
        const char *stop = next != NULL ? next : end;
        if (j->n_text == room) {
            room = room > 0 ? 2 * room : 16;
            text *grown = realloc(j->texts, room * sizeof *grown);
            if (grown == NULL) {
                status = no_memory(err);
                break;
            }
            j->texts = grown;
        }
        size_t n = (size_t)(stop - at);
        if (is_line && n > 0 && at[n - 1] == '\r') n--; /* line ends of Windows */
        j->texts[j->n_text++] = (text){.start = at, .len = n};
        at = next != NULL ? next + n_sep : end;
    }
    free(separator);
    if (status == TDM_OK && j->n_text == 0)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "there is no text to embed: it is empty");
    return status;
}

static tdm_status texts_read(job *j, tdm_error *err) {
    size_t len = 0;
    tdm_status status = runner_prompt_read(j->session.app, &j->all, &len, err);
    return status == TDM_OK ? texts_cut(j, len, err) : status;
}

/* Makes the tokens of a text. With pooling rank, a text that contains the query separator is a
 * query and a document, which get the tokens that the reranker expects around them. */
static tdm_status text_tokenize(job *j, const llm_vocab *vocab, text *t, size_t *n_out,
                                tdm_error *err) {
    const size_t n_sep = j->query_separator != NULL ? strlen(j->query_separator) : 0;
    const char *at = j->pooling == LLM_POOLING_RANK && n_sep > 0
                         ? memmem(t->start, t->len, j->query_separator, n_sep)
                         : NULL;
    if (at == NULL)
        return llm_tokenize(vocab, t->start, t->len,
                            LLM_TOKENIZE_ADD_SPECIAL | LLM_TOKENIZE_PARSE_SPECIAL, &t->ids, n_out,
                            err);
    const char *behind = at + n_sep;
    return llm_score_tokenize(j->session.model, t->start, (size_t)(at - t->start), behind,
                              t->len - (size_t)(behind - t->start), &t->ids, n_out, err);
}

static tdm_status texts_tokenize(job *j, tdm_error *err) {
    const llm_model *model = j->session.model;
    const int32_t most = llm_hparams_n_ctx(&model->hparams);
    const llm_vocab *vocab = NULL;
    tdm_status status = llm_model_vocab(model, &vocab, err);
    for (size_t i = 0; i < j->n_text && status == TDM_OK; i++) {
        text *t = &j->texts[i];
        size_t n = 0;
        status = text_tokenize(j, vocab, t, &n, err);
        if (status == TDM_OK && n == 0)
            status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                              "text %zu is empty and has no tokens; remove it", i + 1);
        if (status == TDM_OK && n > (size_t)most)
            status = tdm_fail(err, TDM_OUT_OF_RANGE,
                              "text %zu has %zu tokens, %s is made for %d; cut the text into parts",
                              i + 1, n, model->path, most);
        if (status != TDM_OK) break;
        t->n_tok = (int32_t)n;
        if (t->n_tok > j->longest) j->longest = t->n_tok;
        j->n_tok += t->n_tok;
    }
    return status;
}

/* ---- Sizes ---- */

static bool is_set(const job *j, const char *key) {
    return runner_config_get_origin(j->session.app->config, key).level != RUNNER_LEVEL_BUILT_IN;
}

/* Makes the wish for a context that holds the longest text, and several texts where they fit a
 * step. Where tokens see later ones (encoders), a text must be computed in one step. The cache is
 * small, so its types are f32 unless they are set. */
static tdm_status wish_make(const job *j, runner_context_wish *wish, tdm_error *err) {
    runner_config *config = j->session.app->config;
    const bool is_whole = j->session.model->hparams.is_bidirectional;
    int32_t n_ubatch = runner_session_ubatch(&j->session);
    if (is_whole && n_ubatch < j->longest) {
        if (is_set(j, "ubatch-size"))
            return runner_config_fail(config, "ubatch-size", TDM_OUT_OF_RANGE, err,
                                      "too small for a text of %d tokens: each token sees all, so "
                                      "a text is computed in one step; set it to %d or more",
                                      j->longest, j->longest);
        n_ubatch = j->longest;
    }
    if (is_whole) wish->n_ubatch = n_ubatch;
    wish->n_ctx = j->n_tok < n_ubatch ? (int32_t)j->n_tok : n_ubatch;
    if (wish->n_ctx < j->longest) wish->n_ctx = j->longest;
    if (is_set(j, "ctx-size") && !runner_config_is_auto(config, "ctx-size")) {
        const int64_t n_ctx = runner_config_get_int(config, "ctx-size");
        if (n_ctx > 0 && n_ctx < j->longest)
            return runner_config_fail(config, "ctx-size", TDM_OUT_OF_RANGE, err,
                                      "too small for a text of %d tokens", j->longest);
        if (n_ctx > 0) wish->n_ctx = (int32_t)n_ctx;
    }
    wish->n_seq = j->n_text < SEQ_MAX ? (int32_t)j->n_text : SEQ_MAX;
    wish->gives_embeddings = true;
    if (runner_session_has_budget(&j->session)) return runner_config_check(config, err);
    if (!is_set(j, "cache-type-k")) wish->type_k = "f32";
    if (!is_set(j, "cache-type-v")) wish->type_v = wish->type_k;
    return runner_config_check(config, err);
}

/* ---- Output ---- */

/* Prints one vector; as JSON it is an array under `key` (NULL inside of an array). */
static void vector_print(job *j, const char *key, const float *vector) {
    const int32_t n = j->n_number;
    FILE *out = j->session.app->out;
    if (j->form == FORM_RAW) {
        runner_output_floats(out, vector, n); /* a failure stays in the stream: runner_flush */
    } else if (j->form == FORM_JSON) {
        runner_json_begin_array(&j->json, key);
        for (int32_t i = 0; i < n; i++) runner_json_number(&j->json, NULL, (double)vector[i]);
        runner_json_end_array(&j->json);
    } else {
        for (int32_t i = 0; i < n; i++) fprintf(out, "%s%.9g", i > 0 ? " " : "", (double)vector[i]);
        fputc('\n', out);
    }
}

/* Prints the vector of text `index`, or one for each of its n_tok tokens, from j->rows. */
static void text_print(job *j, size_t index, int32_t n_tok) {
    const int32_t n_embd = j->session.model->hparams.n_embd;
    const bool is_json = j->form == FORM_JSON, is_each = j->pooling == LLM_POOLING_NONE;
    if (is_json) {
        runner_json_begin_object(&j->json, NULL);
        runner_json_string(&j->json, "object", "embedding");
        runner_json_uint(&j->json, "index", index);
        if (is_each) runner_json_begin_array(&j->json, "embedding");
    }
    for (int32_t t = 0; t < (is_each ? n_tok : 1); t++) {
        if (j->pooling == LLM_POOLING_RANK) {
            llm_score(j->head, j->rows, n_tok, j->vector);
            vector_print(j, "embedding", j->vector);
            break;
        }
        if (is_each)
            memcpy(j->vector, j->rows + (size_t)t * (size_t)n_embd,
                   (size_t)n_embd * sizeof *j->vector);
        else
            llm_pool(j->pooling, j->rows, n_tok, n_embd, j->vector);
        llm_project(j->projection, j->vector);
        llm_embedding_normalize(j->vector, j->n_number, j->norm);
        vector_print(j, is_each ? NULL : "embedding", j->vector);
    }
    if (is_json && is_each) runner_json_end_array(&j->json);
    if (is_json) runner_json_end_object(&j->json);
}

static void output_begin(job *j) {
    if (j->form != FORM_JSON) return;
    j->json = (runner_json_writer){.out = j->session.app->out};
    runner_json_begin_object(&j->json, NULL);
    runner_json_string(&j->json, "object", "list");
    runner_json_string(&j->json, "model", j->session.model->path);
    runner_json_begin_array(&j->json, "data");
}

static void output_end(job *j) {
    if (j->form != FORM_JSON) return;
    runner_json_end_array(&j->json);
    runner_json_begin_object(&j->json, "usage");
    runner_json_int(&j->json, "prompt_tokens", j->n_tok);
    runner_json_int(&j->json, "total_tokens", j->n_tok);
    runner_json_end_object(&j->json);
    runner_json_end_object(&j->json);
}

/* ---- Steps ---- */

/* Number of texts from `first` on that fit one batch of `room` tokens and n_seq sequences; at least
 * 1. *n_tok_out is the number of their tokens. */
static int32_t texts_taken(const job *j, size_t first, int32_t room, int32_t n_seq,
                           int32_t *n_tok_out) {
    int32_t n = 0, n_tok = 0;
    while (n < n_seq && first + (size_t)n < j->n_text &&
           (n == 0 || j->texts[first + (size_t)n].n_tok <= room - n_tok))
        n_tok += j->texts[first + (size_t)n++].n_tok;
    *n_tok_out = n_tok;
    return n;
}

/* Computes texts first .. first + n - 1, of n_tok tokens, and prints their vectors. */
static tdm_status texts_embed(job *j, size_t first, int32_t n, int32_t n_tok, tdm_error *err) {
    llm_context *ctx = j->session.ctx;
    const size_t n_embd = (size_t)j->session.model->hparams.n_embd;
    int32_t *ids = malloc(2 * (size_t)n_tok * sizeof *ids), at = 0;
    if (ids == NULL) return no_memory(err);
    int32_t *seqs = ids + n_tok;
    for (int32_t i = 0; i < n; i++)
        for (int32_t k = 0; k < j->texts[first + (size_t)i].n_tok; k++, at++) {
            ids[at] = j->texts[first + (size_t)i].ids[k];
            seqs[at] = i;
        }
    const llm_batch batch = {.tokens = ids, .seqs = seqs, .n_tok = n_tok, .role = TDM_ROLE_PROMPT};
    tdm_status status = llm_context_decode(ctx, &batch, err);
    at = 0;
    for (int32_t i = 0; i < n && status == TDM_OK; i++) {
        const int32_t n_row = j->texts[first + (size_t)i].n_tok;
        for (int32_t k = 0; k < n_row; k++)
            memcpy(j->rows + (size_t)k * n_embd, llm_context_hidden(ctx, at++),
                   n_embd * sizeof *j->rows);
        text_print(j, first + (size_t)i, n_row);
    }
    for (int32_t i = 0; i < n && status == TDM_OK; i++)
        status = llm_context_truncate(ctx, i, 0, err);
    free(ids);
    return status;
}

static tdm_status job_compute(job *j, const runner_context_wish *wish, tdm_error *err) {
    runner_app *app = j->session.app;
    const size_t n_embd = (size_t)j->session.model->hparams.n_embd;
    tdm_status status = TDM_OK;
    int64_t done = 0;
    j->rows = malloc((size_t)j->longest * n_embd * sizeof *j->rows);
    const size_t n_most = (size_t)j->n_number > n_embd ? (size_t)j->n_number : n_embd;
    j->vector = malloc(n_most * sizeof *j->vector);
    if (j->rows == NULL || j->vector == NULL) return no_memory(err);
    output_begin(j);
    for (size_t at = 0; at < j->n_text && status == TDM_OK;) {
        int32_t n_tok = 0, n = texts_taken(j, at, wish->n_ctx, wish->n_seq, &n_tok);
        if (j->session.model->hparams.is_bidirectional && n_tok > wish->n_ubatch)
            n = texts_taken(j, at, wish->n_ubatch, wish->n_seq, &n_tok);
        status = texts_embed(j, at, n, n_tok, err);
        at += (size_t)n;
        done += n_tok;
        if (status == TDM_OK && j->form != FORM_JSON) status = runner_flush(app, err);
        if (status == TDM_OK && at < j->n_text && runner_interrupt_came())
            status = tdm_fail(err, TDM_CANCELLED, "interrupted after %lld of %lld tokens",
                              (long long)done, (long long)j->n_tok);
    }
    if (status == TDM_OK) output_end(j);
    return status == TDM_OK ? runner_flush(app, err) : status;
}

/* ---- The command ---- */

static const char *const pooling_words[] = {"auto", "none", "mean", "cls", "last", "rank", NULL};

/* Sets j->pooling: that of --pooling, else the model's. A note says if the model names none. */
static tdm_status pooling_find(job *j, tdm_error *err) {
    runner_app *app = j->session.app;
    const int set = (int)runner_config_get_enum(app->config, "pooling");
    bool is_given = true;
    if (set > 0) {
        j->pooling = (llm_pooling)(set - 1);
        return TDM_OK;
    }
    tdm_status status = llm_pooling_read(j->session.model, &j->pooling, &is_given, err);
    if (status == TDM_OK && !is_given)
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_NOTE,
                              "%s does not name a pooling; '%s' is used, --pooling sets another",
                              j->session.model->path, pooling_words[j->pooling + 1]);
    return status;
}

/* Finds what is computed from a text, a vector or the scores of the model's head, and reads the
 * weights for it. */
static tdm_status output_find(job *j, tdm_error *err) {
    const llm_model *model = j->session.model;
    tdm_status status = pooling_find(j, err);
    j->query_separator =
        strdup(runner_config_get_string(j->session.app->config, "query-separator"));
    if (j->query_separator == NULL) return no_memory(err);
    runner_text_unescape(j->query_separator);
    if (status == TDM_OK && j->pooling != LLM_POOLING_RANK) {
        status = llm_projection_read(model, &j->projection, err);
        j->n_number = llm_projection_width(j->projection, model->hparams.n_embd);
        return status;
    }
    if (status == TDM_OK) status = llm_score_head_read(model, &j->head, err);
    if (status == TDM_OK && j->head == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s has no head that scores texts (tensors cls.weight, "
                        "cls.output.weight); set pooling to mean, cls or last for its embeddings",
                        model->path);
    if (status == TDM_OK) j->n_number = llm_score_count(j->head);
    return status;
}

static tdm_status job_run(job *j, tdm_error *err) {
    runner_session *session = &j->session;
    runner_context_wish wish = {0};
    tdm_status status = texts_read(j, err);
    if (status == TDM_OK) status = runner_session_open(session, session->app, NULL, err);
    if (status == TDM_OK) status = output_find(j, err);
    if (status == TDM_OK) status = texts_tokenize(j, err);
    if (status == TDM_OK) status = wish_make(j, &wish, err);
    if (status == TDM_OK) status = runner_session_pick(session, NULL, 0, err);
    if (status == TDM_OK) status = runner_fit(session, &wish, err);
    if (status == TDM_OK) status = runner_session_load(session, err);
    if (status == TDM_OK) status = runner_session_begin(session, &wish, err);
    return status == TDM_OK ? job_compute(j, &wish, err) : status;
}

static tdm_status embed_command(runner_app *app, tdm_error *err) {
    job j = {.session = {.app = app}};
    const bool is_json = runner_config_get_bool(app->config, "json");
    const bool is_raw = runner_config_get_bool(app->config, "raw");
    j.norm = (int32_t)runner_config_get_int(app->config, "normalize");
    j.form = is_json ? FORM_JSON : is_raw ? FORM_RAW : FORM_TEXT;
    tdm_status status = runner_config_check(app->config, err);
    if (status != TDM_OK) return status;
    if (is_json && is_raw) return runner_usage(app, err, "--json and --raw: give one of them");
    status = job_run(&j, err);
    for (size_t i = 0; i < j.n_text; i++) free(j.texts[i].ids);
    free(j.texts);
    free(j.all);
    free(j.rows);
    free(j.vector);
    free(j.query_separator);
    llm_projection_free(j.projection);
    llm_score_head_free(j.head);
    runner_session_close(&j.session);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only embed",
     .name = "pooling",
     .type = RUNNER_KEY_ENUM,
     .default_value = "auto",
     .words = pooling_words,
     .help = "how the vectors of tokens become one of the text: their mean, that of the first "
             "(cls) or of the last; none = a vector for each token; rank = scores of the text, or "
             "of a text behind a query, from rerankers; auto = as the model's file says, else mean "
             "where tokens see later ones, and last elsewhere"},
    {.topic = "Only embed",
     .name = "query-separator",
     .alias = "cls-separator",
     .type = RUNNER_KEY_STRING,
     .default_value = "\\t",
     .value_name = "TEXT",
     .help = "with pooling rank: what stands between a query and the text that is scored beside "
             "it, with the escapes of --escape; without it a text is scored alone"},
    {.topic = "Only embed",
     .name = "normalize",
     .alias = "embd-normalize",
     .type = RUNNER_KEY_INT,
     .default_value = "2",
     .value_name = "P",
     .min = -1,
     .max = 1024,
     .help = "scale vectors so that their p-norm is 1: 2 = Euclidean, 1 = sum of absolute values; "
             "0 = largest value 32760, -1 = leave them as they are"},
    {.topic = "Only embed",
     .name = "separator",
     .alias = "embd-separator",
     .type = RUNNER_KEY_STRING,
     .default_value = "\\n",
     .value_name = "TEXT",
     .help = "what stands between texts, with the escapes of --escape"},
    {.topic = "Only embed",
     .name = "json",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "print JSON as OpenAI's API for embeddings gives it"},
    {.topic = "Only embed",
     .name = "raw",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "print little-endian float32, without anything between vectors"},
};

const runner_command runner_command_embed = {
    .name = "embed",
    .summary = "print vectors of texts (embeddings), or scores of rerankers",
    .run = embed_command,
    .keys = RUNNER_KEYS_COMPUTE " ctx-size prompt file escape mlock warmup",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
};
