/* SPDX-License-Identifier: MIT
 *
 * run.c: `tandem run`: prints a prompt and its continuation on standard output, then timings on
 * standard error.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm/prompt.h"
#include "runner/constraint.h"
#include "runner/draft.h"
#include "runner/plan/fit.h"
#include "runner/plan/pick.h"
#include "runner/generation.h"
#include "runner/profile.h"
#include "runner/prompt.h"
#include "runner/prompt_cache.h"
#include "runner/sampling.h"
#include "runner/lora.h"

/* Text of a sequence, kept until the sequences before it are printed. */
typedef struct pending_text {
    char *text;
    size_t len, capacity;
} pending_text;

typedef struct run {
    runner_app *app;
    runner_session session;
    runner_draft draft;
    char *prompt; /* its text */
    size_t prompt_len;
    int32_t *tokens;
    int32_t n_token;
    bool has_bos;  /* the first token is the bos */
    bool has_text; /* the prompt's text has tokens, besides those that the model requires */
    runner_constraint constraint;
    runner_sampling sampling;
    const char *cache_path; /* of --prompt-cache; "" = none */
    int32_t *held;         /* [n_ctx] tokens for the prompt cache that is written; NULL = none is */
    pending_text *pending; /* [n_seq]; unused for sequence 0 */
    int32_t n_seq;
    char last; /* byte written last to standard output; 0 = none yet */
    bool is_prompt_shown;
    bool is_profiled;
    runner_profile_mark marks[3]; /* before the prompt, after it, and at the end */
} run;

/* ---- Output ---- */

static tdm_status text_write(run *r, const char *text, size_t len, tdm_error *err) {
    if (len == 0) return TDM_OK;
    errno = 0;
    if (fwrite(text, 1, len, r->app->out) != len || fflush(r->app->out) != 0)
        return tdm_fail(err, TDM_IO, "cannot write to standard output: %s", strerror(errno));
    r->last = text[len - 1];
    return TDM_OK;
}

/* The first sequence is printed as it is generated, the others after it. */
static tdm_status text_take(void *user, int32_t seq, const char *text, size_t len, tdm_error *err) {
    run *r = user;
    if (seq == 0) return text_write(r, text, len, err);
    pending_text *pending = &r->pending[seq];
    if (pending->capacity - pending->len < len) {
        size_t capacity = (pending->len + len) * 2;
        char *grown = realloc(pending->text, capacity);
        if (grown == NULL)
            return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the text of sequence %d",
                            seq + 1);
        pending->text = grown;
        pending->capacity = capacity;
    }
    memcpy(pending->text + pending->len, text, len);
    pending->len += len;
    return TDM_OK;
}

/* Ends the output with a line end, so that the prompt of the shell begins a line. */
static tdm_status line_end(run *r, tdm_error *err) {
    return r->last != '\n' && r->last != '\0' ? text_write(r, "\n", 1, err) : TDM_OK;
}

static bool has_encoder(const run *r) {
    return r->session.model->hparams.n_layer_encoder > 0;
}

static tdm_status prompt_show(run *r, tdm_error *err) {
    if (!runner_config_get_bool(r->app->config, "display-prompt")) return TDM_OK;
    const tdm_status status = text_write(r, r->prompt, r->prompt_len, err);
    /* The decoder of a model with an encoder does not continue the prompt. */
    return status == TDM_OK && has_encoder(r) ? line_end(r, err) : status;
}

static tdm_status pending_show(run *r, tdm_error *err) {
    tdm_status status = line_end(r, err);
    for (int32_t s = 1; s < r->n_seq && status == TDM_OK; s++) {
        runner_terminal_print(r->app->terminal, RUNNER_MESSAGE_NOTE, "sequence %d of %d:", s + 1,
                              r->n_seq);
        status = prompt_show(r, err);
        if (status == TDM_OK) status = text_write(r, r->pending[s].text, r->pending[s].len, err);
        if (status == TDM_OK) status = line_end(r, err);
    }
    return status;
}

/* ---- Prompt ---- */

/* Makes the prompt's tokens: those that the model requires before a text, then the text. The tokens
 * that a model requires behind a text are left out, because the text is continued; only a text for
 * an encoder gets them (llm_prompt_end). */
static tdm_status prompt_tokenize(run *r, tdm_error *err) {
    const llm_vocab *vocab = NULL;
    int32_t *ids = NULL;
    size_t n = 0;
    tdm_status status = llm_model_vocab(r->session.model, &vocab, err);
    if (status == TDM_OK)
        status = llm_tokenize(vocab, r->prompt, r->prompt_len, LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n,
                              err);
    if (status != TDM_OK) return status;
    int32_t bos = llm_vocab_bos(vocab);
    r->has_bos = bos != LLM_TOKEN_NONE && (llm_vocab_adds_bos(vocab) || n == 0);
    r->has_text = n > 0;
    if (n == 0 && !r->has_bos)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "the prompt is empty, and %s has no token to begin a text with; give one "
                          "with -p",
                          r->session.model->path);
    else if (n >= INT32_MAX - 2)
        status = tdm_fail(err, TDM_OUT_OF_RANGE, "the prompt has %zu tokens", n);
    else if ((r->tokens = malloc((n + 1) * sizeof *r->tokens)) == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %zu tokens", n);
    if (status == TDM_OK) {
        if (r->has_bos) r->tokens[0] = bos;
        memcpy(r->tokens + r->has_bos, ids, n * sizeof *ids);
        n += r->has_bos;
        status = llm_prompt_end(r->session.model, vocab, &r->tokens, &n, err);
        r->n_token = (int32_t)n;
    }
    free(ids);
    return status;
}

/* Reads grammar and sampling. Called before the weights are read, so that a mistake in a grammar is
 * found at once. */
static tdm_status choice_open(run *r, tdm_error *err) {
    const llm_vocab *vocab;
    tdm_status status = llm_model_vocab(r->session.model, &vocab, err);
    if (status != TDM_OK) return status;
    status = runner_constraint_open(r->app, vocab, r->session.model->hparams.n_vocab,
                                    &r->constraint, err);
    return status == TDM_OK ? runner_sampling_read(r->app->config, vocab, &r->sampling, err)
                            : status;
}

static tdm_status prompt_check(run *r, tdm_error *err) {
    int32_t n_ctx = llm_context_n_ctx(r->session.ctx);
    /* After a context shift sequences share no rows, so each has only its part of the context
     * (generation.c). A prompt longer than that part could not be shifted for all sequences. */
    int32_t n_part = n_ctx / r->n_seq;
    if (runner_config_get_bool(r->app->config, "context-shift") && r->n_token > n_part &&
        r->n_token <= n_ctx)
        return runner_config_fail(r->app->config, "ctx-size", TDM_OUT_OF_RANGE, err,
                                  "the prompt has %d tokens; with context-shift each of the %d "
                                  "sequences has room for %d; raise ctx-size, lower parallel or "
                                  "shorten the prompt",
                                  r->n_token, r->n_seq, n_part);
    if (r->n_token <= n_ctx) return TDM_OK;
    return runner_config_fail(r->app->config, "ctx-size", TDM_OUT_OF_RANGE, err,
                              "the prompt has %d tokens, the context room for %d; raise ctx-size "
                              "or shorten the prompt",
                              r->n_token, n_ctx);
}

/* ---- Reports ---- */

static double per_second(int64_t n, uint64_t ns) {
    return ns > 0 ? (double)n * 1e9 / (double)ns : 0.0;
}

static void timings_print(run *r, const runner_generation_params *params,
                          const runner_generation_result *result) {
    static const char *const stops[] = {"", "", "", "; the context is full", "; interrupted"};
    runner_terminal *terminal = r->app->terminal;
    char model[96];
    llm_model_describe(r->session.model, model, sizeof model);
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE, "model       %s on %s, seed %llu", model,
                          r->session.info.description[0] != '\0'
                              ? r->session.info.description
                              : tdm_open_device_name(r->session.dev),
                          (unsigned long long)params->sampler.seed);
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE, "loading     %.1f ms",
                          (double)r->session.load_ns / 1e6);
    char reused[64] = "";
    if (result->n_reused > 0)
        snprintf(reused, sizeof reused, "; %d more from the prompt cache", result->n_reused);
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE,
                          "prompt      %d tokens in %.1f ms, %.1f t/s%s", result->n_prompt,
                          (double)result->prompt_ns / 1e6,
                          per_second(result->n_prompt, result->prompt_ns), reused);
    /* The first token comes from the prompt; a single one has no rate. */
    char rate[32] = "";
    if (result->n_decoded > 0)
        snprintf(rate, sizeof rate, ", %.1f t/s", per_second(result->n_decoded, result->decode_ns));
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE, "generation  %lld tokens in %.1f ms%s%s",
                          (long long)result->n_generated, (double)result->decode_ns / 1e6, rate,
                          stops[result->stop]);
    if (params->draft != NULL)
        runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE,
                              "draft       %lld of %lld proposed tokens accepted, %.1f %%",
                              (long long)result->n_accepted, (long long)result->n_proposed,
                              result->n_proposed > 0
                                  ? 100.0 * (double)result->n_accepted / (double)result->n_proposed
                                  : 0.0);
    if (result->n_shift > 0)
        runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE, "context     shifted %d times",
                              result->n_shift);
}

static void profile_print(run *r, const runner_generation_result *result) {
    runner_terminal *terminal = r->app->terminal;
    llm_context_memory memory = llm_context_get_memory(r->session.ctx);
    char cache[32], window[32], compute[32];
    runner_bytes_format(memory.cache, cache, sizeof cache);
    runner_bytes_format(memory.window, window, sizeof window);
    runner_bytes_format(memory.compute, compute, sizeof compute);
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE, "memory      cache %s, compute %s", cache,
                          compute);
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE,
                          "cache       %s for windows, %d pages of all are free", window,
                          (int)llm_context_free_pages(r->session.ctx));
    runner_terminal_print(terminal, RUNNER_MESSAGE_NOTE, "%-18s %14s %24s", "counter", "in all",
                          "per token when steady");
    for (int i = 0; i < TDM_COUNTER_COUNT_; i++)
        runner_terminal_print(
            terminal, RUNNER_MESSAGE_NOTE, "%-18s %14llu %24g", tdm_counter_name((tdm_counter)i),
            (unsigned long long)tdm_counter_get((tdm_counter)i),
            result->n_steady > 0 ? (double)result->steady[i] / (double)result->n_steady : 0.0);
    runner_profile_print(&r->session, &r->marks[0], &r->marks[1], &r->marks[2]);
}

/* Prints the prompt once it has been computed: the progress bar before it would clear its line. */
static tdm_status prompt_done(void *user, tdm_error *err) {
    run *r = user;
    if (r->is_profiled) runner_profile_take(&r->session, &r->marks[1]);
    r->is_prompt_shown = true;
    return prompt_show(r, err);
}

/* ---- The command ---- */

/* Number of tokens that a context shift keeps: those of `keep`, and the bos. */
static int32_t keep_find(run *r) {
    int64_t n_keep = runner_config_get_int(r->app->config, "keep");
    if (n_keep < 0 || n_keep >= r->n_token) return r->n_token;
    return (int32_t)n_keep + r->has_bos;
}

static runner_generation_params params_read(run *r) {
    runner_config *config = r->app->config;
    runner_generation_params params = {
        .prompt = r->tokens,
        .n_prompt = r->n_token,
        .n_batch = (int32_t)runner_config_get_int(config, "batch-size"),
        .continues_text = r->has_text && !has_encoder(r),
        .sampler = r->sampling.params,
        .grammar = r->constraint.grammar,
        .n_seq = r->n_seq,
        .n_predict = (int32_t)runner_config_get_int(config, "predict"),
        .n_keep = keep_find(r),
        .ignores_end = runner_config_get_bool(config, "ignore-eos"),
        .shows_special = runner_config_get_bool(config, "special"),
        .shifts_context = runner_config_get_bool(config, "context-shift"),
        .draft = r->draft.draft != NULL ? &r->draft : NULL,
        .held = r->held,
        .prompt_done = prompt_done,
        .text = text_take,
        .user = r,
    };
    return params;
}

/* Opens the drafter, if the keys choose one. Mistakes in them are found before weights are read. */
static tdm_status draft_open(run *r, tdm_error *err) {
    const bool is_layer = runner_draft_is_layer(r->app);
    const char *path = runner_config_get_string(r->app->config, "model-draft");
    if (r->n_seq > 1 && runner_draft_is_set(r->app))
        return runner_usage(r->app, err,
                            "drafts work for one sequence: leave out %s or parallel = %d",
                            path[0] != '\0' ? "model-draft" : "draft", r->n_seq);
    if (is_layer && runner_config_get_string(r->app->config, "prompt-cache")[0] != '\0')
        return runner_usage(r->app, err,
                            "a prompt cache has no hidden states, which `draft = mtp` reads: leave "
                            "out one of them");
    return runner_draft_open(&r->draft, &r->session, err);
}

static tdm_status draft_begin(run *r, tdm_error *err) {
    /* n_ctx: the size of the model's context, which runner_fit may have reduced. */
    runner_context_wish wish = {.n_ctx = llm_context_n_ctx(r->session.ctx)};
    const tdm_status status = runner_draft_load(&r->draft, &r->session, &wish, err);
    return status == TDM_OK ? runner_draft_begin(&r->draft, &r->session, &wish, err) : status;
}

/* Refuses a prompt cache for a model with an encoder, before the weights are read. */
static tdm_status cache_check(run *r, tdm_error *err) {
    r->cache_path = runner_config_get_string(r->app->config, "prompt-cache");
    if (r->cache_path[0] == '\0' || !has_encoder(r)) return TDM_OK;
    return runner_config_fail(
        r->app->config, "prompt-cache", TDM_UNSUPPORTED, err,
        "architecture '%s' has an encoder, of whose text nothing can be saved; "
        "leave it out",
        r->session.model->hparams.arch);
}

/* Loads the prompt cache, and allocates the list of tokens that is saved at the end. */
static tdm_status cache_begin(run *r, tdm_error *err) {
    bool is_read_only = runner_config_get_bool(r->app->config, "prompt-cache-ro");
    if (r->cache_path[0] == '\0') return TDM_OK;
    tdm_status status = is_read_only ? TDM_OK : runner_prompt_cache_check(r->cache_path, err);
    if (status == TDM_OK)
        status = runner_prompt_cache_load(&r->session, r->cache_path, r->tokens, r->n_token, err);
    if (status != TDM_OK || is_read_only) return status;
    size_t n_ctx = (size_t)llm_context_n_ctx(r->session.ctx);
    r->held = malloc(n_ctx * sizeof *r->held);
    return r->held != NULL
               ? TDM_OK
               : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %zu tokens", n_ctx);
}

/* Saves the prompt cache. After a context shift it is not saved: the rows that were moved depend on
 * tokens that are no longer there, so that no prompt would give the same rows. */
static tdm_status cache_end(run *r, const runner_generation_result *result, tdm_error *err) {
    if (r->held == NULL) return TDM_OK;
    if (result->n_shift == 0)
        return runner_prompt_cache_save(&r->session, r->cache_path, r->held, result->n_held, err);
    runner_terminal_print(r->app->terminal, RUNNER_MESSAGE_NOTE,
                          "cache       not saved: the context was shifted; %s is as it was",
                          r->cache_path);
    return TDM_OK;
}

static tdm_status run_all(run *r, tdm_error *err) {
    runner_generation_result result = {0};
    runner_context_wish wish = {
        .n_seq = r->n_seq, .begins_decoder = true, .gives_hidden = runner_draft_is_layer(r->app)};
    tdm_status status = runner_session_open(&r->session, r->app, NULL, err);
    if (status == TDM_OK) status = draft_open(r, err);
    if (status == TDM_OK) status = cache_check(r, err);
    if (status == TDM_OK) status = runner_prompt_read(r->app, &r->prompt, &r->prompt_len, err);
    if (status == TDM_OK) status = prompt_tokenize(r, err);
    if (status == TDM_OK) status = choice_open(r, err);
    if (status == TDM_OK) status = runner_session_pick(&r->session, NULL, 0, err);
    if (status == TDM_OK) runner_draft_join(&r->draft, &r->session, &wish);
    if (status == TDM_OK) status = runner_fit(&r->session, &wish, err);
    if (status == TDM_OK) status = runner_session_load(&r->session, err);
    if (status == TDM_OK) status = runner_session_begin(&r->session, &wish, err);
    if (status == TDM_OK) status = prompt_check(r, err);
    if (status == TDM_OK) status = draft_begin(r, err);
    if (status == TDM_OK) status = cache_begin(r, err);
    runner_generation_params params = params_read(r);
    r->is_profiled = runner_config_get_bool(r->app->config, "profile");
    if (status == TDM_OK) status = runner_config_check(r->app->config, err);
    if (status != TDM_OK) return status;
    if (r->is_profiled) runner_profile_take(&r->session, &r->marks[0]);
    status = runner_generate(&r->session, &params, &result, err);
    if (r->is_profiled) runner_profile_take(&r->session, &r->marks[2]);
    if (status != TDM_OK && status != TDM_CANCELLED) {
        (void)line_end(r, NULL); /* so that the message begins a new line */
        return status;
    }
    tdm_status shown = TDM_OK;
    if (!r->is_prompt_shown) shown = prompt_show(r, status == TDM_OK ? err : NULL);
    if (shown == TDM_OK) shown = pending_show(r, status == TDM_OK ? err : NULL);
    timings_print(r, &params, &result);
    if (r->is_profiled) profile_print(r, &result);
    if (shown == TDM_OK) shown = cache_end(r, &result, status == TDM_OK ? err : NULL);
    return status != TDM_OK ? status : shown;
}

static tdm_status run_command(runner_app *app, tdm_error *err) {
    run r = {.app = app, .n_seq = (int32_t)runner_config_get_int(app->config, "parallel")};
    tdm_status status = runner_config_check(app->config, err);
    if (status != TDM_OK) return status;
    r.pending = calloc((size_t)r.n_seq + 1, sizeof *r.pending);
    status =
        r.pending != NULL ? run_all(&r, err) : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    runner_draft_close(&r.draft); /* before the session whose devices it works on */
    runner_sampling_free(&r.sampling);
    runner_constraint_close(&r.constraint); /* it refers to the model's vocabulary */
    runner_session_close(&r.session);
    for (int32_t s = 0; r.pending != NULL && s < r.n_seq; s++) free(r.pending[s].text);
    free(r.pending);
    free(r.prompt);
    free(r.tokens);
    free(r.held);
    return status;
}

const runner_command runner_command_run = {
    .name = "run",
    .summary = "generate text from a prompt, a file or standard input",
    .run = run_command,
    .keys = RUNNER_KEYS_COMPUTE RUNNER_KEYS_LORA RUNNER_KEYS_DRAFT
    " ctx-size parallel context-shift keep prompt file prompt-cache prompt-cache-ro escape"
    " display-prompt predict ignore-eos special" RUNNER_KEYS_SAMPLING
    " grammar grammar-file json-schema json-schema-file mlock jinja prompt-cache-all"
    " conversation"
    " warmup profile",
    .opens_devices = true,
};
