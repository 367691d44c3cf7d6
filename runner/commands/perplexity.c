/* SPDX-License-Identifier: MIT
 *
 * perplexity.c: `tandem perplexity`: the perplexity of a text, and the KL divergence from
 * another model.
 *
 * The convention is that of llama.cpp's tool, so that figures can be compared: a chunk of the text
 * (text_chunks.h) is evaluated in an empty context, and the tokens of its second half, which have
 * at least half a context before them, are scored.
 */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "runner/plan/fit.h"
#include "runner/plan/pick.h"
#include "runner/interrupt.h"
#include "runner/commands/kl_file.h"
#include "runner/commands/text_chunks.h"
#include "runner/commands/token_loss.h"
#include "runner/session.h"
#include "runner/lora.h"

#define CTX_DEFAULT 512
/* A chunk is evaluated in batches of at most this many tokens, so that memory for logits does not
 * grow with the context. */
#define BATCH_MAX 512

typedef struct evaluation {
    runner_session session;
    int32_t *tokens; /* [n_chunk][n_ctx] of text_chunks_read */
    int32_t n_ctx, n_chunk;
    const char *base_path; /* --kl-base; NULL = none */
    bool base_is_read;     /* that file exists and is read; else it is written */
    kl_head head;          /* of the file that is read */
    kl_file *base;
    float *row, *reference; /* [n_vocab] log-probabilities */
    token_loss_mean nll, nll_base, divergence;
    double *divergences; /* [divergence.n] of each row, for quantiles */
    uint64_t n_same_top; /* rows in which both models have the same most likely token */
} evaluation;

/* ---- Text ---- */

static tdm_status text_cut(evaluation *e, tdm_error *err) {
    const int64_t n_asked = runner_config_get_int(e->session.app->config, "chunks");
    tdm_status status =
        text_chunks_read(&e->session, e->n_ctx, n_asked, &e->tokens, &e->n_chunk, err);
    if (status == TDM_OK && e->base_is_read && n_asked < 0 && e->head.n_chunk < e->n_chunk)
        e->n_chunk = e->head.n_chunk;
    return status;
}

/* ---- Reference logits ---- */

/* Makes the head of a reference file for these tokens and this model. */
static tdm_status head_make(const evaluation *e, kl_head *head, tdm_error *err) {
    const llm_vocab *vocab = NULL;
    const llm_model *model = e->session.model;
    tdm_status status = llm_model_vocab(model, &vocab, err);
    if (status != TDM_OK) return status;
    *head = (kl_head){
        .n_vocab = model->hparams.n_vocab,
        .n_ctx = e->n_ctx,
        .n_chunk = e->n_chunk,
        .vocabulary = kl_hash_vocabulary(vocab),
        .model = model->fingerprint,
    };
    for (int32_t i = 0; i < e->n_chunk; i++)
        head->text = kl_hash_tokens(head->text, e->tokens + (size_t)i * (size_t)e->n_ctx, e->n_ctx);
    llm_model_describe(model, head->name, sizeof head->name);
    return TDM_OK;
}

static tdm_status base_fail(const evaluation *e, tdm_error *err, const char *what,
                            const char *way) {
    return tdm_fail(err, TDM_FAILED_PRECONDITION,
                    "%s: reference logits of %s; %s, or remove the "
                    "file to write it anew",
                    e->base_path, what, way);
}

static tdm_status head_compare(const evaluation *e, const kl_head *here, tdm_error *err) {
    const kl_head *there = &e->head;
    char what[96];
    if (there->n_vocab != here->n_vocab || there->vocabulary != here->vocabulary)
        return base_fail(e, err, "another vocabulary", "use a model with the same one");
    if (there->n_ctx != here->n_ctx) {
        snprintf(what, sizeof what, "contexts of %d, not %d", there->n_ctx, here->n_ctx);
        return base_fail(e, err, what, "change ctx-size");
    }
    if (there->n_chunk != here->n_chunk) {
        snprintf(what, sizeof what, "%d chunks, not %d", there->n_chunk, here->n_chunk);
        return base_fail(e, err, what, "change --chunks");
    }
    if (there->text != here->text)
        return base_fail(e, err, "another text", "use the text they are of");
    return TDM_OK;
}

/* Opens the reference file, if it exists, before the long work: its head gives ctx-size and the
 * number of chunks where they are not set. */
static tdm_status base_open(evaluation *e, tdm_error *err) {
    e->base_is_read = e->base_path != NULL && access(e->base_path, F_OK) == 0;
    return e->base_is_read ? kl_file_open(e->base_path, &e->head, &e->base, err) : TDM_OK;
}

static tdm_status base_begin(evaluation *e, tdm_error *err) {
    kl_head here;
    if (e->base_path == NULL) return TDM_OK;
    tdm_status status = head_make(e, &here, err);
    if (status == TDM_OK && e->base_is_read) return head_compare(e, &here, err);
    return status == TDM_OK ? kl_file_create(e->base_path, &here, &e->base, err) : status;
}

/* ---- Scoring ---- */

static tdm_status row_compare(evaluation *e, int32_t next, tdm_error *err) {
    int32_t n_vocab = e->session.model->hparams.n_vocab;
    tdm_status status = kl_file_read(e->base, e->reference, err);
    if (status != TDM_OK) return status;
    double divergence = token_loss_divergence(e->reference, e->row, n_vocab);
    token_loss_mean_add(&e->nll_base, -(double)e->reference[next]);
    e->divergences[e->divergence.n] = divergence;
    token_loss_mean_add(&e->divergence, divergence);
    if (token_loss_top(e->reference, n_vocab) == token_loss_top(e->row, n_vocab)) e->n_same_top++;
    return TDM_OK;
}

static tdm_status row_score(evaluation *e, const float *logits, int32_t next, tdm_error *err) {
    token_loss_log_probs(logits, e->session.model->hparams.n_vocab, e->row);
    if (isnan(e->row[next]))
        return tdm_fail(err, TDM_DATA_LOSS, "%s: computes logits that are not numbers",
                        e->session.model->path);
    token_loss_mean_add(&e->nll, -(double)e->row[next]);
    if (e->base == NULL) return TDM_OK;
    return e->base_is_read ? row_compare(e, next, err) : kl_file_write(e->base, e->row, err);
}

static tdm_status chunk_score(evaluation *e, const int32_t *tokens, tdm_error *err) {
    llm_context *ctx = e->session.ctx;
    tdm_status status = llm_context_truncate(ctx, 0, 0, err);
    int32_t n_batch = e->n_ctx < BATCH_MAX ? e->n_ctx : BATCH_MAX;
    bool *marks = calloc((size_t)n_batch, sizeof *marks);
    if (marks == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a batch");
    for (int32_t at = 0, n; at < e->n_ctx && status == TDM_OK; at += n) {
        int32_t n_row = 0;
        n = e->n_ctx - at < n_batch ? e->n_ctx - at : n_batch;
        for (int32_t i = 0; i < n; i++) marks[i] = text_chunk_is_scored(e->n_ctx, at + i);
        llm_batch batch = {tokens + at, NULL, marks, n};
        status = llm_context_decode(ctx, &batch, err);
        for (int32_t i = 0; i < n && status == TDM_OK; i++)
            if (marks[i])
                status = row_score(e, llm_context_logits(ctx, n_row++), tokens[at + i + 1], err);
        if (status == TDM_OK && at + n < e->n_ctx && runner_interrupt_came())
            status = tdm_fail(err, TDM_CANCELLED, "interrupted after %d of %d tokens of a chunk",
                              at + n, e->n_ctx);
    }
    free(marks);
    return status;
}

/* Scores all chunks. Prints the perplexity so far after each of them instead of a progress bar,
 * which would overwrite that line. */
static tdm_status chunks_score(evaluation *e, tdm_error *err) {
    runner_app *app = e->session.app;
    tdm_status status = TDM_OK;
    bool is_quiet = runner_config_is_quiet(app->config), has_line = false;
    for (int32_t i = 0; i < e->n_chunk && status == TDM_OK; i++) {
        double ignored;
        status = chunk_score(e, e->tokens + (size_t)i * (size_t)e->n_ctx, err);
        if (status != TDM_OK) break;
        if (!is_quiet) {
            fprintf(app->out, "[%d]%.4f,", i + 1, token_loss_perplexity(&e->nll, &ignored));
            has_line = true;
            status = runner_flush(app, err); /* stop early if the output is closed */
        }
        if (status == TDM_OK && i + 1 < e->n_chunk && runner_interrupt_came())
            status = tdm_fail(err, TDM_CANCELLED, "interrupted after %d of %d chunks", i + 1,
                              e->n_chunk);
    }
    if (has_line) fputc('\n', app->out);
    return status;
}

static tdm_status rows_allocate(evaluation *e, tdm_error *err) {
    size_t n_vocab = (size_t)e->session.model->hparams.n_vocab;
    size_t n_row = (size_t)text_chunk_n_scored(e->n_ctx) * (size_t)e->n_chunk;
    e->row = malloc(n_vocab * sizeof *e->row);
    e->reference = malloc(n_vocab * sizeof *e->reference);
    e->divergences = malloc((e->base_is_read ? n_row : 1) * sizeof *e->divergences);
    if (e->row != NULL && e->reference != NULL && e->divergences != NULL) return TDM_OK;
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %zu rows", n_row);
}

static void result_print(evaluation *e) {
    FILE *out = e->session.app->out;
    double spread, value = token_loss_perplexity(&e->nll, &spread);
    fprintf(out, "PPL = %.4f +/- %.5f (%" PRIu64 " tokens of %d chunks of %d)\n", value, spread,
            e->nll.n, e->n_chunk, e->n_ctx);
    if (!e->base_is_read) return;
    double base = token_loss_perplexity(&e->nll_base, &spread);
    fprintf(out, "PPL of the base = %.4f +/- %.5f (%s), ratio %.6f\n", base, spread, e->head.name,
            value / base);
    fprintf(out, "mean KL divergence = %.6e +/- %.1e nats\n", token_loss_mean_get(&e->divergence),
            token_loss_mean_uncertainty(&e->divergence));
    fprintf(out, "99 %% quantile of KL = %.6e nats\n",
            token_loss_quantile(e->divergences, e->divergence.n, 0.99));
    fprintf(out, "equal top tokens = %.3f %%\n",
            100 * (double)e->n_same_top / (double)e->divergence.n);
}

/* ---- The command ---- */

static tdm_status evaluate(evaluation *e, tdm_error *err) {
    runner_app *app = e->session.app;
    tdm_status status = base_open(e, err);
    if (status == TDM_OK) status = runner_session_open(&e->session, app, NULL, err);
    if (status != TDM_OK) return status;
    int64_t asked = runner_config_get_int(app->config, "ctx-size");
    e->n_ctx = asked > 0         ? (int32_t)asked
               : asked == 0      ? llm_hparams_n_ctx(&e->session.model->hparams)
               : e->base_is_read ? e->head.n_ctx
                                 : CTX_DEFAULT;
    if (e->n_ctx < 4)
        return runner_config_fail(app->config, "ctx-size", TDM_INVALID_ARGUMENT, err,
                                  "too small: a chunk needs at least 4 tokens");
    runner_context_wish wish = {.n_ctx = e->n_ctx, .has_all_logits = true};
    status = text_cut(e, err);
    if (status == TDM_OK) status = rows_allocate(e, err);
    if (status == TDM_OK) status = base_begin(e, err);
    if (status == TDM_OK) status = runner_session_pick(&e->session, NULL, 0, err);
    if (status == TDM_OK) status = runner_fit(&e->session, &wish, err);
    if (status == TDM_OK) status = runner_session_load(&e->session, err);
    if (status == TDM_OK) status = runner_session_begin(&e->session, &wish, err);
    if (status == TDM_OK) status = chunks_score(e, err);
    return status;
}

static tdm_status perplexity_command(runner_app *app, tdm_error *err) {
    const char *base = runner_config_get_string(app->config, "kl-base");
    evaluation e = {.session = {.app = app}, .base_path = base[0] != '\0' ? base : NULL};
    tdm_status status = text_chunks_check(app, err);
    if (status != TDM_OK) return status;
    status = evaluate(&e, err);
    status = kl_file_close(e.base, status, err);
    if (status == TDM_OK) result_print(&e);
    if (status == TDM_OK && e.base_path != NULL && !e.base_is_read)
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_NOTE,
                              "%s: reference logits are written; the same command with another "
                              "model compares it with them",
                              e.base_path);
    runner_session_close(&e.session);
    free(e.divergences);
    free(e.reference);
    free(e.row);
    free(e.tokens);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only perplexity",
     .name = "chunks",
     .type = RUNNER_KEY_INT,
     .default_value = "-1",
     .value_name = "N",
     .min = -1,
     .max = RUNNER_KEY_INT_MAX,
     .help =
         "number of chunks of ctx-size tokens to measure, from the start of the text; -1 = all"},
    {.topic = "Only perplexity",
     .name = "kl-base",
     .type = RUNNER_KEY_PATH,
     .default_value = "",
     .value_name = "PATH",
     .help = "file of reference logits for the KL divergence: read if it exists, else written"},
};

const runner_command runner_command_perplexity = {
    .name = "perplexity",
    .summary = "measure a text's perplexity, or the KL divergence from another model",
    .run = perplexity_command,
    .keys = RUNNER_KEYS_COMPUTE RUNNER_KEYS_LORA " ctx-size file mlock warmup",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
};
