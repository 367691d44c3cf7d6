/* SPDX-License-Identifier: MIT
 *
 * logits.c: `tandem logits`: writes the logits of every position of given tokens to a file of
 * little-endian f32 rows, with which the results of other programs are compared.
 */
#include <errno.h>
#include <stdlib.h>

#include "runner/plan/fit.h"
#include "runner/plan/pick.h"
#include "runner/interrupt.h"
#include "runner/output_file.h"
#include "runner/session.h"
#include "runner/lora.h"

/* At most so many rows are computed and written at a time, so that memory does not grow with the
 * number of tokens. */
#define ROWS_MAX 512

static tdm_status logits_write(runner_session *session, const int32_t *tokens, int32_t n_tok,
                               runner_output_file *file, tdm_error *err) {
    int32_t n_vocab = session->model->hparams.n_vocab;
    int64_t n_batch = runner_config_get_int(session->app->config, "batch-size");
    bool wanted[ROWS_MAX];
    for (int32_t i = 0; i < ROWS_MAX; i++) wanted[i] = true;
    if (n_batch > ROWS_MAX) n_batch = ROWS_MAX;
    tdm_status status = runner_config_check(session->app->config, err);
    runner_progress_begin(session->app->terminal, "logits", (uint64_t)n_tok, RUNNER_UNIT_TOKENS);
    for (int32_t at = 0, n; at < n_tok && status == TDM_OK; at += n) {
        n = n_tok - at < n_batch ? n_tok - at : (int32_t)n_batch;
        llm_batch batch = {tokens + at, NULL, wanted, n};
        status = llm_context_decode(session->ctx, &batch, err);
        for (int32_t i = 0; i < n && status == TDM_OK; i++) {
            errno = 0;
            if (!runner_output_floats(file->stream, llm_context_logits(session->ctx, i), n_vocab))
                status = runner_output_fail(file, err);
        }
        runner_progress_update(session->app->terminal, (uint64_t)(at + n));
        if (status == TDM_OK && runner_interrupt_came())
            status =
                tdm_fail(err, TDM_CANCELLED, "interrupted after %d of %d tokens", at + n, n_tok);
    }
    runner_progress_end(session->app->terminal);
    return status;
}

static tdm_status tokens_check(runner_config *config, const llm_model *model, const int32_t *tokens,
                               int32_t n_tok, tdm_error *err) {
    for (int32_t i = 0; i < n_tok; i++)
        if (tokens[i] >= model->hparams.n_vocab)
            return runner_config_fail(
                config, "tokens", TDM_INVALID_ARGUMENT, err,
                "entry %d, id %d, is not in the vocabulary of %s, whose ids are 0 to %d", i + 1,
                tokens[i], model->path, model->hparams.n_vocab - 1);
    return TDM_OK;
}

static tdm_status logits_run(runner_session *session, const int32_t *tokens, int32_t n_tok,
                             const char *path, tdm_error *err) {
    runner_output_file file = {0};
    bool is_auto = runner_config_is_auto(session->app->config, "ctx-size");
    runner_context_wish wish = {.n_ctx = is_auto ? n_tok : 0, .has_all_logits = true};
    tdm_status status = runner_session_open(session, session->app, NULL, err);
    if (status == TDM_OK)
        status = tokens_check(session->app->config, session->model, tokens, n_tok, err);
    if (status == TDM_OK) status = runner_output_open(&file, path, err); /* before the long work */
    if (status == TDM_OK) status = runner_session_pick(session, NULL, 0, err);
    if (status == TDM_OK) status = runner_fit(session, &wish, err);
    if (status == TDM_OK) status = runner_session_load(session, err);
    if (status == TDM_OK) status = runner_session_begin(session, &wish, err);
    if (status == TDM_OK && n_tok > llm_context_n_ctx(session->ctx))
        status = runner_config_fail(session->app->config, "ctx-size", TDM_OUT_OF_RANGE, err,
                                    "too small for %d tokens", n_tok);
    if (status == TDM_OK) status = logits_write(session, tokens, n_tok, &file, err);
    status = runner_output_close(&file, status, err);
    if (status == TDM_OK)
        fprintf(session->app->out, "%d %d\n", n_tok, session->model->hparams.n_vocab);
    return status;
}

static tdm_status logits_command(runner_app *app, tdm_error *err) {
    size_t n_tok = runner_config_get_count(app->config, "tokens");
    const char *path = runner_config_get_string(app->config, "output");
    if (n_tok == 0)
        return runner_usage(app, err, "no tokens given: use --tokens 1,2,3 or --tokens @FILE");
    if (path[0] == '\0') return runner_usage(app, err, "no output given: use -o OUT.f32");
    if (n_tok > INT32_MAX) return runner_usage(app, err, "--tokens: too many");
    int32_t *tokens = malloc(n_tok * sizeof *tokens);
    if (tokens == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %zu tokens", n_tok);
    for (size_t i = 0; i < n_tok; i++)
        tokens[i] = (int32_t)runner_config_get_int_at(app->config, "tokens", i);
    runner_session session = {.app = app};
    tdm_status status = runner_config_check(app->config, err);
    if (status == TDM_OK) status = logits_run(&session, tokens, (int32_t)n_tok, path, err);
    runner_session_close(&session);
    free(tokens);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only logits",
     .name = "tokens",
     .type = RUNNER_KEY_INTS,
     .default_value = "",
     .value_name = "ID,ID,...",
     .max = RUNNER_KEY_INT_MAX,
     .traits = RUNNER_KEY_REPEATABLE | RUNNER_KEY_AT_FILE,
     .help = "token ids to evaluate, or @FILE with the ids"},
    {.topic = "Only logits",
     .name = "output",
     .flag = "o",
     .type = RUNNER_KEY_PATH,
     .default_value = "",
     .value_name = "PATH",
     .help = "file to write: little-endian float32, a row of n_vocab for every token"},
};

const runner_command runner_command_logits = {
    .name = "logits",
    .summary = "write the logits of every position of given tokens to a file",
    .run = logits_command,
    .keys = RUNNER_KEYS_COMPUTE RUNNER_KEYS_LORA " ctx-size mlock warmup",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
};
