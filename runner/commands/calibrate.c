/* SPDX-License-Identifier: MIT
 *
 * calibrate.c: `tandem calibrate`: measures on a text what it costs to keep K or V of each layer in
 * each quantised cache type, for cache-budget and kv-rotate = auto (runner/cache_file.h).
 *
 * Each cost is the mean KL divergence of the model with only that K or V quantised from the model
 * with a cache of f16, on the tokens that `tandem perplexity` scores: the second half of each
 * chunk.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "runner/cache_file.h"
#include "runner/commands/text_chunks.h"
#include "runner/commands/token_loss.h"
#include "runner/interrupt.h"
#include "runner/output_file.h"
#include "runner/plan/fit.h"
#include "runner/plan/pick.h"

#define CTX_DEFAULT 512 /* tokens of a chunk where ctx-size is auto */

typedef struct job {
    runner_session session;
    int32_t n_ctx, n_chunk, n_row; /* n_row: rows of a chunk that are scored */
    int32_t *tokens;               /* [n_chunk][n_ctx] */
    bool *wanted;                  /* [n_ctx] */
    float *base;                   /* [n_chunk][n_row][n_vocab] log-probabilities with f16 */
    float *row;                    /* [n_vocab] */
    tdm_type types[TDM_KV_TYPE_COUNT];
    int n_type;
    llm_layer_types *layers; /* [n_layer] of the context that is measured */
    llm_cache_costs *costs;
} job;

static tdm_status types_read(job *j, tdm_error *err) {
    runner_config *config = j->session.app->config;
    const size_t n = runner_config_get_count(config, "types");
    for (size_t i = 0; i < n; i++) {
        const char *name = runner_config_get_string_at(config, "types", i);
        tdm_type found = TDM_TYPE_LIMIT_;
#define BLOCK_TYPE(ID, word)                                                                       \
    if (strcmp(name, #word) == 0) found = TDM_TYPE_##ID;
        TDM_KV_BLOCK_TYPE_LIST(BLOCK_TYPE)
#undef BLOCK_TYPE
        if (found == TDM_TYPE_LIMIT_)
            return runner_config_fail(config, "types", TDM_INVALID_ARGUMENT, err,
                                      "'%s' is no quantised cache type", name);
        bool is_new = true;
        for (int t = 0; t < j->n_type; t++) is_new = is_new && j->types[t] != found;
        if (is_new) j->types[j->n_type++] = found;
    }
    return j->n_type > 0 ? runner_config_check(config, err)
                         : runner_usage(j->session.app, err, "--types: give at least one");
}

/* ---- Measuring ---- */

/* Computes all chunks in a context whose cache has the types of j->layers. mean_out NULL: stores
 * the rows in j->base, as the reference; else *mean_out is their mean divergence from j->base. */
static tdm_status chunks_compute(job *j, double *mean_out, tdm_error *err) {
    runner_session *s = &j->session;
    const size_t n_vocab = (size_t)s->model->hparams.n_vocab;
    const runner_context_wish wish = {
        .n_ctx = j->n_ctx, .layer_types = j->layers, .has_all_logits = true};
    token_loss_mean mean = {0};
    tdm_status status = runner_session_begin(s, &wish, err);
    for (int32_t c = 0; c < j->n_chunk && status == TDM_OK; c++) {
        const llm_batch batch = {j->tokens + (size_t)c * (size_t)j->n_ctx, NULL, j->wanted,
                                 j->n_ctx};
        status = llm_context_truncate(s->ctx, 0, 0, err);
        if (status == TDM_OK) status = llm_context_decode(s->ctx, &batch, err);
        for (int32_t r = 0; r < j->n_row && status == TDM_OK; r++) {
            float *base = j->base + ((size_t)c * (size_t)j->n_row + (size_t)r) * n_vocab;
            token_loss_log_probs(llm_context_logits(s->ctx, r), (int32_t)n_vocab,
                                 mean_out != NULL ? j->row : base);
            if (isnan(mean_out != NULL ? j->row[0] : base[0]))
                status = tdm_fail(err, TDM_DATA_LOSS, "%s: computes logits that are not numbers",
                                  s->model->path);
            else if (mean_out != NULL)
                token_loss_mean_add(&mean, token_loss_divergence(base, j->row, (int32_t)n_vocab));
        }
    }
    llm_context_destroy(s->ctx);
    s->ctx = NULL;
    if (mean_out != NULL) *mean_out = token_loss_mean_get(&mean);
    return status;
}

static llm_layer_types exact_types(void) {
    return (llm_layer_types){TDM_TYPE_F16, TDM_TYPE_F16, true, true};
}

/* Measures the cost of one type and rotation for K or V of a layer; all the rest of the cache is
 * f16. */
static tdm_status cost_measure(job *j, int32_t layer, llm_cache_side side, tdm_type type,
                               bool is_rotated, tdm_error *err) {
    const bool is_latent = !llm_cache_has_side(j->session.model, layer, LLM_CACHE_V);
    llm_layer_types *t = &j->layers[layer];
    double cost = 0;
    if (side == LLM_CACHE_K || is_latent) {
        t->k = type;
        t->rotates_k = is_rotated;
    }
    if (side == LLM_CACHE_V || is_latent) {
        t->v = type;
        t->rotates_v = is_rotated;
    }
    tdm_status status = chunks_compute(j, &cost, err);
    *t = exact_types();
    if (status != TDM_OK) return status;
    if (!isfinite(cost) || !llm_cache_costs_set(j->costs, layer, side, type, is_rotated, cost))
        return tdm_fail(err, TDM_DATA_LOSS, "layer %d with %s %s: the divergence is no number",
                        layer, side == LLM_CACHE_K ? "K" : "V", tdm_type_name(type));
    return TDM_OK;
}

static tdm_status costs_measure(job *j, tdm_error *err) {
    runner_app *app = j->session.app;
    const llm_model *m = j->session.model;
    const int32_t n_layer = m->hparams.n_layer;
    uint64_t n_side = 0, done = 1;
    for (int32_t l = 0; l < n_layer; l++) {
        j->layers[l] = exact_types();
        for (int s = 0; s < LLM_CACHE_SIDES; s++)
            n_side += llm_cache_has_side(m, l, (llm_cache_side)s);
    }
    if (n_side == 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION, "%s: no layer has a cache: nothing to choose",
                        m->path);
    const uint64_t n_run = 1 + n_side * (uint64_t)j->n_type * 2;
    const uint64_t n_each = (uint64_t)j->n_ctx * (uint64_t)j->n_chunk;
    runner_progress_begin(app->terminal, "measuring", n_run * n_each, RUNNER_UNIT_TOKENS);
    tdm_status status = chunks_compute(j, NULL, err);
    for (int32_t l = 0; l < n_layer; l++)
        for (int s = 0; s < LLM_CACHE_SIDES; s++)
            for (int t = 0; t < 2 * j->n_type; t++) {
                const llm_cache_side side = (llm_cache_side)s;
                if (status != TDM_OK || !llm_cache_has_side(m, l, side)) continue;
                status = cost_measure(j, l, side, j->types[t / 2], t % 2 != 0, err);
                runner_progress_update(app->terminal, ++done * n_each);
                if (status == TDM_OK && done < n_run && runner_interrupt_came())
                    status = tdm_fail(err, TDM_CANCELLED, "interrupted after %llu of %llu runs",
                                      (unsigned long long)done, (unsigned long long)n_run);
            }
    runner_progress_end(app->terminal);
    return status;
}

/* ---- The result ---- */

/* The least predicted cost of a cache with the same types for K and V, and the same rotation, in
 * all layers, within `bits`; negative = none fits. `pair` receives the types as text. */
static double uniform_find(const job *j, double bits, llm_layer_types *layers, char *pair,
                           size_t pair_size) {
    const llm_model *m = j->session.model;
    double least = -1;
    for (int i = 0; i < 2 * j->n_type * j->n_type; i++) {
        const bool is_rotated = i % 2 == 0;
        const tdm_type k = j->types[i / 2 / j->n_type], v = j->types[i / 2 % j->n_type];
        for (int32_t l = 0; l < m->hparams.n_layer; l++)
            layers[l] = (llm_layer_types){k, llm_cache_has_side(m, l, LLM_CACHE_V) ? v : k,
                                          is_rotated, is_rotated};
        const double cost = llm_cache_costs_sum(j->costs, m, layers);
        if (llm_layer_types_bits(m, layers) > bits || (least >= 0 && cost >= least)) continue;
        least = cost;
        snprintf(pair, pair_size, "%s %s%s", tdm_type_name(k), tdm_type_name(v),
                 is_rotated ? "" : " unrotated");
    }
    return least;
}

/* Prints what several values of cache-budget would choose, beside the best single pair of types. A
 * cost is the sum of measured costs of layers; the whole choice was not measured. */
static void budgets_print(const job *j, FILE *out) {
    static const double budgets[] = {4.5, 4.75, 5, 5.25, 5.5, 6, 6.5, 7.25, 8.5};
    llm_layer_types *layers = j->layers;
    fprintf(out, "%12s %10s %10s %12s  %s\n", "cache-budget", "bits", "KL", "one pair: KL",
            "the pair");
    for (size_t i = 0; i < sizeof budgets / sizeof *budgets; i++) {
        char pair[64] = "";
        const double uniform = uniform_find(j, budgets[i], layers, pair, sizeof pair);
        if (llm_cache_costs_choose(j->costs, j->session.model, budgets[i], LLM_ROTATION_AUTO,
                                   layers, NULL) != TDM_OK)
            continue;
        fprintf(out, "%12.2f %10.4f %10.2e ", budgets[i],
                llm_layer_types_bits(j->session.model, layers),
                llm_cache_costs_sum(j->costs, j->session.model, layers));
        if (uniform >= 0)
            fprintf(out, "%12.2e  %s\n", uniform, pair);
        else
            fprintf(out, "%12s\n", "-");
    }
}

/* ---- The command ---- */

static tdm_status memory_allocate(job *j, tdm_error *err) {
    const llm_model *m = j->session.model;
    const size_t n_vocab = (size_t)m->hparams.n_vocab;
    j->n_row = text_chunk_n_scored(j->n_ctx);
    const size_t n_all = (size_t)j->n_chunk * (size_t)j->n_row;
    j->wanted = calloc((size_t)j->n_ctx, sizeof *j->wanted);
    j->layers = malloc((size_t)m->hparams.n_layer * sizeof *j->layers);
    j->row = malloc(n_vocab * sizeof *j->row);
    if (n_all < SIZE_MAX / sizeof *j->base / n_vocab)
        j->base = malloc(n_all * n_vocab * sizeof *j->base);
    if (j->wanted == NULL || j->layers == NULL || j->row == NULL || j->base == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                        "no memory for %zu rows of %zu probabilities; reduce --chunks", n_all,
                        n_vocab);
    for (int32_t i = 0; i < j->n_ctx; i++) j->wanted[i] = text_chunk_is_scored(j->n_ctx, i);
    return llm_cache_costs_create(m->hparams.n_layer, &j->costs, err);
}

/* Loads the model and measures. */
static tdm_status job_measure(job *j, tdm_error *err) {
    runner_session *session = &j->session;
    runner_config *config = session->app->config;
    const int64_t asked = runner_config_get_int(config, "ctx-size");
    j->n_ctx = asked > 0    ? (int32_t)asked
               : asked == 0 ? llm_hparams_n_ctx(&session->model->hparams)
                            : CTX_DEFAULT;
    if (j->n_ctx < 4)
        return runner_config_fail(config, "ctx-size", TDM_INVALID_ARGUMENT, err,
                                  "too small: a chunk needs at least 4 tokens");
    tdm_status status = text_chunks_read(session, j->n_ctx, runner_config_get_int(config, "chunks"),
                                         &j->tokens, &j->n_chunk, err);
    if (status == TDM_OK) status = memory_allocate(j, err);
    for (int32_t l = 0; status == TDM_OK && l < session->model->hparams.n_layer; l++)
        j->layers[l] = exact_types();
    runner_context_wish wish = {
        .n_ctx = j->n_ctx, .layer_types = j->layers, .has_all_logits = true};
    if (status == TDM_OK) status = runner_session_pick(session, NULL, 0, err);
    if (status == TDM_OK) status = runner_fit(session, &wish, err);
    if (status == TDM_OK) status = runner_session_load(session, err);
    return status == TDM_OK ? costs_measure(j, err) : status;
}

static tdm_status job_run(job *j, tdm_error *err) {
    runner_session *session = &j->session;
    runner_app *app = session->app;
    runner_output_file file = {0};
    const char *output = runner_config_get_string(app->config, "output");
    char *path = NULL;
    tdm_status status = runner_session_open(session, app, NULL, err);
    if (status == TDM_OK && output[0] == '\0')
        status = runner_cache_file_path(app, session->model->path, &path, err);
    if (path != NULL) output = path;
    if (status == TDM_OK)
        status = runner_output_open(&file, output, err); /* before the long work */
    if (status == TDM_OK) status = job_measure(j, err);
    if (status == TDM_OK)
        runner_cache_file_print(file.stream, session->model, j->costs,
                                (int64_t)j->n_chunk * j->n_row);
    status = runner_output_close(&file, status, err);
    if (status == TDM_OK) {
        budgets_print(j, app->out);
        status = runner_flush(app, err);
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_NOTE,
                              "%s: written; cache-budget reads it", output);
    }
    free(path);
    return status;
}

static tdm_status calibrate_command(runner_app *app, tdm_error *err) {
    job j = {.session = {.app = app}};
    tdm_status status = text_chunks_check(app, err);
    if (status != TDM_OK) return status;
    status = types_read(&j, err);
    if (status == TDM_OK) status = job_run(&j, err);
    runner_session_close(&j.session);
    llm_cache_costs_destroy(j.costs);
    free(j.tokens);
    free(j.wanted);
    free(j.layers);
    free(j.base);
    free(j.row);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only calibrate",
     .name = "output",
     .flag = "o",
     .type = RUNNER_KEY_PATH,
     .default_value = "",
     .value_name = "PATH",
     .help = "file to write; without it, the one that cache-budget reads: cache-file, or "
             "MODEL.cache.ini"},
    {.topic = "Only calibrate",
     .name = "chunks",
     .type = RUNNER_KEY_INT,
     .default_value = "8",
     .value_name = "N",
     .min = -1,
     .max = RUNNER_KEY_INT_MAX,
     .help = "number of chunks of ctx-size tokens, from the start of the text; -1 = all"},
    {.topic = "Only calibrate",
     .name = "types",
     .type = RUNNER_KEY_NAMES,
     .default_value = "q8_0,q5_1,q5_0,q4_1,q4_0,iq4_nl",
     .value_name = "TYPE,TYPE,...",
     .help = "quantised cache types to measure; fewer take less time"},
};

const runner_command runner_command_calibrate = {
    .name = "calibrate",
    .summary = "measure what each cache type costs in each layer, for cache-budget",
    .run = calibrate_command,
    .keys = RUNNER_KEYS_COMPUTE " ctx-size file mlock warmup",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
};
