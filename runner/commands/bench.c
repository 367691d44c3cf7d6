/* SPDX-License-Identifier: MIT
 *
 * bench.c: `tandem bench`: the speed of prompts and of generation, for every combination of the
 * given lists. A model is loaded once for each file, device and number of threads. For each
 * combination of the other parameters it makes a context and fills it once, to the depth; after
 * each measurement the context is truncated to that depth. The speed of memory may change from
 * second to second, so the limits of the device are measured before and after each repetition.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/random.h"
#include "runner/commands/bench_limit.h"
#include "runner/commands/bench_table.h"
#include "runner/plan/fit.h"
#include "runner/plan/pick.h"
#include "runner/interrupt.h"
#include "runner/session.h"

#define SEED_DEFAULT 42 /* any seed will do, as long as it is always the same */

typedef struct bench {
    runner_app *app;
    runner_session session;
    bench_table table;
    char model_type[96];
    /* The combination that is measured. */
    int32_t n_depth, n_batch, n_ubatch;
    int32_t n_ubatch_default; /* where ubatch-size is not set: that of runner_session_ubatch */
    const char *type_k, *type_v;
    bool is_rotated;
    /* Its input and results. */
    int32_t *tokens; /* [n_token] random, as many as the longest test or depth needs */
    int32_t n_token;
    uint64_t *samples_ns; /* [n_sample] time of each repetition */
    int32_t n_sample;
    /* The limits before each repetition and after the last one; cleared (unknown) with
     * --no-limits. */
    tdm_device_limits *measured; /* [n_sample + 1] */
    double *limits_ts;           /* [n_sample] most tokens a second by these limits; 0 = unknown */
    double *values;              /* [n_sample + 1] scratch for medians */
} bench;

static int32_t list_at(const bench *b, const char *key, size_t i) {
    return (int32_t)runner_config_get_int_at(b->app->config, key, i);
}

static size_t list_count(const bench *b, const char *key) {
    return runner_config_get_count(b->app->config, key);
}

static int32_t list_max(const bench *b, const char *key) {
    int32_t max = 0;
    for (size_t i = 0; i < list_count(b, key); i++)
        if (list_at(b, key, i) > max) max = list_at(b, key, i);
    return max;
}

static bool is_ubatch_set(const bench *b) {
    return runner_config_get_origin(b->app->config, "ubatch-size").level != RUNNER_LEVEL_BUILT_IN;
}

/* ---- Random tokens ---- */

static tdm_status tokens_make(bench *b, tdm_error *err) {
    int64_t seed = runner_config_get_int(b->app->config, "seed");
    uint64_t state = seed >= 0 ? (uint64_t)seed : SEED_DEFAULT;
    free(b->tokens);
    b->tokens = malloc(((size_t)b->n_token + 1) * sizeof *b->tokens);
    if (b->tokens == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %d tokens", b->n_token);
    uint64_t n_vocab = (uint64_t)b->session.model->hparams.n_vocab;
    for (int32_t i = 0; i < b->n_token; i++)
        b->tokens[i] = (int32_t)(llm_random_next(&state) % n_vocab);
    return TDM_OK;
}

/* ---- One test ---- */

static tdm_status interrupt_check(tdm_error *err) {
    return runner_interrupt_came() ? tdm_fail(err, TDM_CANCELLED, "interrupted") : TDM_OK;
}

/* Decodes a prompt, then n_gen random tokens one at a time, as if they had been generated. */
static tdm_status test_run(bench *b, int32_t n_prompt, int32_t n_gen, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t at = 0, n; at < n_prompt && status == TDM_OK; at += n) {
        n = n_prompt - at < b->n_batch ? n_prompt - at : b->n_batch;
        llm_batch batch = {b->tokens + at, NULL, NULL, n, TDM_ROLE_PROMPT};
        status = llm_context_decode(b->session.ctx, &batch, err);
        if (status == TDM_OK) status = interrupt_check(err);
    }
    for (int32_t i = 0; i < n_gen && status == TDM_OK; i++) {
        llm_batch batch = {b->tokens + i, NULL, NULL, 1};
        status = llm_context_decode(b->session.ctx, &batch, err);
        if (status == TDM_OK) status = interrupt_check(err);
    }
    return status;
}

static tdm_status depth_restore(bench *b, tdm_error *err) {
    return llm_context_truncate(b->session.ctx, 0, b->n_depth, err);
}

/* ---- The limit of a test ---- */

/* Adds the steps of a prompt, cut into batches as test_run does and into ubatches as the context
 * does. Only the last ubatch of a batch computes logits, of one token. */
static tdm_status prompt_limit_add(bench *b, int32_t n_prompt, const tdm_device_limits *limits,
                                   bench_limit *limit, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t batch = 0, end; batch < n_prompt && status == TDM_OK; batch = end) {
        end = n_prompt - batch < b->n_batch ? n_prompt : batch + b->n_batch;
        for (int32_t at = batch, n; at < end && status == TDM_OK; at += n) {
            llm_work work;
            n = end - at < b->n_ubatch ? end - at : b->n_ubatch;
            status =
                llm_context_work(b->session.ctx, n, at + n == end, b->n_depth + at, &work, err);
            if (status == TDM_OK) bench_limit_add(limit, limits, &work, 1);
        }
    }
    return status;
}

/* Adds the steps of generated tokens. Their cost grows with the cache, so that of the token in the
 * middle stands for all. */
static tdm_status gen_limit_add(bench *b, int32_t n_prompt, int32_t n_gen,
                                const tdm_device_limits *limits, bench_limit *limit,
                                tdm_error *err) {
    llm_work work;
    if (n_gen == 0) return TDM_OK;
    tdm_status status =
        llm_context_work(b->session.ctx, 1, 1, b->n_depth + n_prompt + n_gen / 2, &work, err);
    if (status == TDM_OK) bench_limit_add(limit, limits, &work, n_gen);
    return status;
}

/* Computes limits_ts of each repetition, and in *all the sums over the repetitions with a known
 * limit, which tell what limits most of the time. */
static tdm_status limits_fill(bench *b, const bench_row *row, bench_limit *all, tdm_error *err) {
    const double n_token = (double)row->n_prompt + (double)row->n_gen;
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < b->n_sample && status == TDM_OK; i++) {
        const tdm_device_limits limits = bench_limits_between(&b->measured[i], &b->measured[i + 1]);
        bench_limit one = {0};
        status = prompt_limit_add(b, row->n_prompt, &limits, &one, err);
        if (status == TDM_OK)
            status = gen_limit_add(b, row->n_prompt, row->n_gen, &limits, &one, err);
        b->limits_ts[i] = bench_limit_kind(&one) != NULL ? n_token / one.seconds : 0;
        if (b->limits_ts[i] == 0) continue;
        all->seconds += one.seconds;
        all->by_read += one.by_read;
        all->by_int8 += one.by_int8;
        all->by_f32 += one.by_f32;
    }
    return status;
}

/* Fills the limits of a row: medians of the measured limits, of the speeds that they allow, and of
 * the share that each repetition reached of its own limit. */
static tdm_status limit_fill(bench *b, bench_row *row, tdm_error *err) {
    const double n_token = (double)row->n_prompt + (double)row->n_gen;
    const int32_t n_look = b->n_sample + 1;
    bench_limit all = {0};
    tdm_status status = limits_fill(b, row, &all, err);
    if (status != TDM_OK) return status;
    for (int32_t i = 0; i < n_look; i++) b->values[i] = b->measured[i].read_bandwidth;
    row->read_bandwidth = bench_known_median(b->values, n_look);
    for (int32_t i = 0; i < n_look; i++) b->values[i] = b->measured[i].int8_peak;
    row->int8_peak = bench_known_median(b->values, n_look);
    for (int32_t i = 0; i < n_look; i++) b->values[i] = b->measured[i].f32_peak;
    row->f32_peak = bench_known_median(b->values, n_look);
    for (int32_t i = 0; i < b->n_sample; i++) b->values[i] = b->limits_ts[i];
    row->limit_ts = bench_known_median(b->values, b->n_sample);
    for (int32_t i = 0; i < b->n_sample; i++)
        b->values[i] = b->limits_ts[i] > 0 && b->samples_ns[i] > 0
                           ? n_token * 1e9 / (double)b->samples_ns[i] / b->limits_ts[i]
                           : 0;
    row->limit_share = bench_known_median(b->values, b->n_sample);
    row->limits_ts = b->limits_ts;
    row->limit_kind = bench_limit_kind(&all);
    return TDM_OK;
}

/* Measures the limits into measured[i]. This takes about a quarter of a second and evicts the model
 * from the processor's caches, so one token is then decoded without being measured. Limits are
 * those of one device: where others take part (override-tensor), they stay unknown. */
static tdm_status limits_look(bench *b, int32_t i, tdm_error *err) {
    b->measured[i] = (tdm_device_limits){.struct_size = sizeof b->measured[i]};
    if (!runner_config_get_bool(b->app->config, "limits") || b->session.placement.n_dev > 1)
        return TDM_OK;
    tdm_status status = tdm_open_device_measure_limits(b->session.dev, &b->measured[i], err);
    if (status == TDM_OK) status = interrupt_check(err);
    if (status != TDM_OK || i == b->n_sample || !runner_config_get_bool(b->app->config, "warmup"))
        return status;
    status = test_run(b, 0, 1, err);
    return status == TDM_OK ? depth_restore(b, err) : status;
}

/* ---- Measuring one test ---- */

static tdm_status test_measure(bench *b, int32_t n_prompt, int32_t n_gen, tdm_error *err) {
    tdm_status status = TDM_OK;
    if (n_prompt == 0 && n_gen == 0) return TDM_OK;
    time_t test_time = time(NULL);
    if (runner_config_get_bool(b->app->config, "warmup")) {
        status = test_run(b, n_prompt, n_gen > 0 ? 1 : 0, err);
        if (status == TDM_OK) status = depth_restore(b, err);
    }
    for (int32_t i = 0; i < b->n_sample && status == TDM_OK; i++) {
        status = limits_look(b, i, err);
        if (status != TDM_OK) return status;
        uint64_t start = runner_clock();
        status = test_run(b, n_prompt, n_gen, err);
        b->samples_ns[i] = runner_clock() - start;
        if (status == TDM_OK) status = depth_restore(b, err);
    }
    if (status == TDM_OK) status = limits_look(b, b->n_sample, err);
    if (status != TDM_OK) return status;
    const runner_session *s = &b->session;
    const bool is_mixed = llm_context_has_layer_types(s->ctx);
    bench_row row = {
        .version = TANDEM_VERSION,
        .model_filename = s->model->path,
        .model_type = b->model_type,
        .model_size = s->model->file_size,
        .model_n_params = s->model->n_param,
        .device = tdm_open_device_name(s->dev),
        .device_description = s->info.description,
        .plugin = tdm_open_device_plugin(s->dev)->name,
        .n_threads = s->info.n_thread,
        .n_batch = b->n_batch,
        .n_ubatch = b->n_ubatch,
        .type_k = is_mixed ? "layers" : tdm_type_name(llm_context_kv_desc(s->ctx)->type_k),
        .type_v = is_mixed ? "layers" /* K's in a latent cache */
                           : tdm_type_name(llm_context_kv_desc(s->ctx)->type_v),
        .is_rotated = b->is_rotated,
        .n_prompt = n_prompt,
        .n_gen = n_gen,
        .n_depth = b->n_depth,
        .test_time = test_time,
        .samples_ns = b->samples_ns,
        .n_sample = b->n_sample,
        .kv_row_size = llm_context_rows_size(s->ctx, 1),
        .load_ns = s->load_ns,
    };
    status = limit_fill(b, &row, err);
    if (status != TDM_OK) return status;
    bench_table_add(&b->table, &row);
    return runner_flush(b->app, err);
}

/* Measures each prompt length alone, each number of generated tokens alone, then the pairs. */
static tdm_status tests_measure(bench *b, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (size_t i = 0; i < list_count(b, "n-prompt") && status == TDM_OK; i++)
        status = test_measure(b, list_at(b, "n-prompt", i), 0, err);
    for (size_t i = 0; i < list_count(b, "n-gen") && status == TDM_OK; i++)
        status = test_measure(b, 0, list_at(b, "n-gen", i), err);
    for (size_t i = 0; i + 1 < list_count(b, "n-prompt-gen") && status == TDM_OK; i += 2)
        status =
            test_measure(b, list_at(b, "n-prompt-gen", i), list_at(b, "n-prompt-gen", i + 1), err);
    return status;
}

/* ---- Combinations ---- */

/* Tokens that the longest test adds to the depth. */
static int64_t longest_test(const bench *b) {
    int64_t n = list_max(b, "n-prompt");
    if (list_max(b, "n-gen") > n) n = list_max(b, "n-gen");
    for (size_t i = 0; i + 1 < list_count(b, "n-prompt-gen"); i += 2) {
        int64_t pair = (int64_t)list_at(b, "n-prompt-gen", i) + list_at(b, "n-prompt-gen", i + 1);
        if (pair > n) n = pair;
    }
    return n;
}

static tdm_status context_measure(bench *b, tdm_error *err) {
    runner_context_wish wish = {
        .n_ctx = b->n_depth + (int32_t)longest_test(b),
        .n_ubatch = b->n_ubatch,
    };
    if (!runner_session_has_budget(&b->session)) {
        wish.type_k = b->type_k;
        wish.type_v = b->type_v;
        wish.rotate = b->is_rotated ? 1 : -1;
    }
    tdm_status status = runner_session_begin(&b->session, &wish, err);
    if (status == TDM_OK && b->n_depth > 0)
        status = runner_session_prefill(&b->session, b->tokens, b->n_depth, b->n_batch, false, err);
    if (status == TDM_OK) status = tests_measure(b, err);
    llm_context_destroy(b->session.ctx);
    b->session.ctx = NULL;
    return status;
}

/* Measures every combination of the lists. They are counted like the digits of a number: the index
 * into the last list changes fastest. */
static tdm_status contexts_measure(bench *b, tdm_error *err) {
    static const char *const keys[] = {"n-depth",      "batch-size",   "ubatch-size",
                                       "cache-type-k", "cache-type-v", "kv-rotate"};
    enum { N_KEY = sizeof keys / sizeof keys[0] };
    size_t at[N_KEY] = {0}, count[N_KEY];
    runner_config *config = b->app->config;
    for (size_t k = 0; k < N_KEY; k++) count[k] = list_count(b, keys[k]);
    tdm_status status = TDM_OK;
    for (size_t k = N_KEY; k > 0 && status == TDM_OK;) {
        b->n_depth = list_at(b, keys[0], at[0]);
        b->n_batch = list_at(b, keys[1], at[1]);
        b->n_ubatch = is_ubatch_set(b) ? list_at(b, keys[2], at[2]) : b->n_ubatch_default;
        b->type_k = runner_config_get_string_at(config, keys[3], at[3]);
        b->type_v = runner_config_get_string_at(config, keys[4], at[4]);
        b->is_rotated = list_at(b, keys[5], at[5]) != 0;
        status = runner_config_check(config, err);
        if (status == TDM_OK) status = context_measure(b, err);
        for (k = N_KEY; k > 0 && ++at[k - 1] == count[k - 1]; k--) at[k - 1] = 0;
    }
    return status;
}

static tdm_status model_measure(bench *b, const char *path, const char *device, int32_t threads,
                                tdm_error *err) {
    tdm_status status = runner_session_open(&b->session, b->app, path, err);
    runner_context_wish largest = {.n_ctx = list_max(b, "n-depth") + (int32_t)longest_test(b),
                                   .n_ubatch = is_ubatch_set(b) ? list_max(b, "ubatch-size") : 0};
    if (status == TDM_OK) status = tokens_make(b, err);
    if (status == TDM_OK) status = runner_session_pick(&b->session, device, threads, err);
    if (status == TDM_OK) status = runner_fit(&b->session, &largest, err);
    if (status == TDM_OK) status = runner_session_load(&b->session, err);
    if (status == TDM_OK) {
        b->n_ubatch_default =
            largest.n_ubatch != 0 ? largest.n_ubatch : runner_session_ubatch(&b->session);
        llm_model_describe(b->session.model, b->model_type, sizeof b->model_type);
        status = contexts_measure(b, err);
    }
    runner_session_close(&b->session);
    return status;
}

static tdm_status device_check(bench *b, runner_roster *roster, const char *name, tdm_error *err) {
    const runner_section *section = NULL;
    tdm_status status = runner_config_find_device(b->app->config, name, &section, err);
    b->app->is_usage = status != TDM_OK;
    if (status != TDM_OK || (section == NULL && strcmp(name, "auto") == 0)) return status;
    return section != NULL ? runner_roster_declare_section(roster, section, true, err)
                           : runner_roster_declare(roster, name, NULL, err);
}

/* Checks all models and devices before the first is measured, which may take hours. */
static tdm_status names_check(bench *b, tdm_error *err) {
    runner_config *config = b->app->config;
    size_t n_model = list_count(b, "model"), n_device = list_count(b, "device");
    tdm_status status = TDM_OK;
    for (size_t i = 0; i < n_model && n_model > 1 && status == TDM_OK; i++) {
        llm_model *model = NULL;
        status = llm_model_open(runner_config_get_string_at(config, "model", i), &model, err);
        if (status == TDM_OK) llm_model_close(model);
    }
    if (status != TDM_OK || n_device < 2) return status;
    runner_roster roster = {.app = b->app};
    status = runner_runtime_create(b->app, &roster.rt, err);
    for (size_t i = 0; i < n_device && status == TDM_OK; i++)
        status = device_check(b, &roster, runner_config_get_string_at(config, "device", i), err);
    tdm_runtime *rt = roster.rt;
    runner_roster_clear(&roster);
    tdm_runtime_destroy(rt);
    return status;
}

/* Measures every combination of model, device and number of threads. Only the flag --threads is a
 * list; a value from the file is an option of its device. */
static tdm_status models_measure(bench *b, tdm_error *err) {
    runner_config *config = b->app->config;
    bool has_threads =
        runner_section_is_given(config, NULL, RUNNER_THREADS_KEY) &&
        runner_config_get_origin(config, RUNNER_THREADS_KEY).level == RUNNER_LEVEL_FLAG;
    size_t n_threads = has_threads ? list_count(b, RUNNER_THREADS_KEY) : 1;
    size_t n_model = list_count(b, "model"), n_device = list_count(b, "device");
    tdm_status status = runner_config_check(config, err);
    if (status == TDM_OK) status = names_check(b, err);
    /* the number of threads varies fastest */
    for (size_t i = 0; i < n_model * n_device * n_threads && status == TDM_OK; i++) {
        size_t t = i % n_threads, d = i / n_threads % n_device, m = i / n_threads / n_device;
        status = model_measure(b, runner_config_get_string_at(config, "model", m),
                               runner_config_get_string_at(config, "device", d),
                               has_threads ? list_at(b, RUNNER_THREADS_KEY, t) : 0, err);
    }
    return status;
}

/* ---- The command ---- */

/* A column is printed if its values are not all the default. */
static bool column_is_needed(runner_config *config, const char *key) {
    const runner_key *k = runner_key_find(runner_config_keys(config), key, NULL);
    char text[32];
    if (runner_config_get_count(config, key) > 1) return true;
    if (k->type == RUNNER_KEY_INT) {
        snprintf(text, sizeof text, "%lld", (long long)runner_config_get_int(config, key));
        return strcmp(text, k->default_value) != 0;
    }
    if (k->type == RUNNER_KEY_BOOL) return !runner_config_get_bool(config, key);
    return strcmp(runner_config_get_string(config, key), k->default_value) != 0;
}

static tdm_status bench_prepare(bench *b, tdm_error *err) {
    runner_config *config = b->app->config;
    b->table.out = b->app->out;
    b->table.format = (bench_format)runner_config_get_enum(config, "output");
    b->table.columns = (bench_columns){
        .n_batch = column_is_needed(config, "batch-size"),
        .n_ubatch = column_is_needed(config, "ubatch-size"),
        .type_k = column_is_needed(config, "cache-type-k"),
        .type_v = column_is_needed(config, "cache-type-v"),
        .is_rotated = column_is_needed(config, "kv-rotate"),
        .limit = runner_config_get_bool(config, "limits"),
    };
    b->n_sample = (int32_t)runner_config_get_int(config, "repetitions");
    int64_t n_token = longest_test(b);
    if (list_max(b, "n-depth") > n_token) n_token = list_max(b, "n-depth");
    tdm_status status = runner_config_check(config, err);
    if (status != TDM_OK) return status;
    if (list_count(b, "n-prompt-gen") % 2 != 0)
        return runner_usage(b->app, err, "-pg: pairs are needed, such as 512,128");
    if (runner_config_is_auto(b->app->config, "kv-rotate"))
        return runner_usage(b->app, err, "kv-rotate auto: bench takes yes and no");
    if (longest_test(b) == 0)
        return runner_usage(b->app, err, "nothing to measure: -p, -n and -pg are all 0");
    if (list_max(b, "n-depth") + longest_test(b) > LLM_MAX_CTX)
        return runner_usage(b->app, err,
                            "-p, -n, -pg and -d ask for a context of more than 268435456 tokens");
    b->n_token = (int32_t)n_token;
    const size_t n_sample = (size_t)b->n_sample;
    b->samples_ns = calloc(n_sample, sizeof *b->samples_ns);
    b->measured = calloc(n_sample + 1, sizeof *b->measured);
    b->limits_ts = calloc(n_sample, sizeof *b->limits_ts);
    b->values = calloc(n_sample + 1, sizeof *b->values);
    if (b->samples_ns == NULL || b->measured == NULL || b->limits_ts == NULL || b->values == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %d measurements", b->n_sample);
    return TDM_OK;
}

static tdm_status bench_command(runner_app *app, tdm_error *err) {
    bench b = {.app = app};
    tdm_status status = bench_prepare(&b, err);
    if (status == TDM_OK) {
        status = models_measure(&b, err);
        bench_table_end(&b.table);
    }
    free(b.tokens);
    free(b.samples_ns);
    free(b.measured);
    free(b.limits_ts);
    free(b.values);
    return status;
}

static const char *const format_words[] = {"md", "csv", "json", "jsonl", NULL};

static const runner_key own_keys[] = {
    {.topic = "Only bench",
     .name = "n-prompt",
     .flag = "p",
     .type = RUNNER_KEY_INTS,
     .default_value = "512",
     .value_name = "N,N,...",
     .max = (double)LLM_MAX_CTX,
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "prompt lengths to measure; 0 = none"},
    {.topic = "Only bench",
     .name = "n-gen",
     .flag = "n",
     .type = RUNNER_KEY_INTS,
     .default_value = "128",
     .value_name = "N,N,...",
     .max = (double)LLM_MAX_CTX,
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "numbers of generated tokens to measure; 0 = none"},
    {.topic = "Only bench",
     .name = "n-prompt-gen",
     .flag = "pg",
     .type = RUNNER_KEY_INTS,
     .default_value = "",
     .value_name = "N,N",
     .max = (double)LLM_MAX_CTX,
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "pairs of a prompt length and a number of generated tokens to measure together"},
    {.topic = "Only bench",
     .name = "n-depth",
     .flag = "d",
     .type = RUNNER_KEY_INTS,
     .default_value = "0",
     .value_name = "N,N,...",
     .max = (double)LLM_MAX_CTX,
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "tokens in the cache before the measured part"},
    {.topic = "Only bench",
     .name = "repetitions",
     .flag = "r",
     .type = RUNNER_KEY_INT,
     .default_value = "5",
     .value_name = "N",
     .min = 1,
     .max = 100000,
     .help = "number of measurements of each test"},
    {.topic = "Only bench",
     .name = "warmup",
     .type = RUNNER_KEY_BOOL,
     .default_value = "yes",
     .help = "run each test's prompt, and one token of it, before it is measured"},
    {.topic = "Only bench",
     .name = "limits",
     .type = RUNNER_KEY_BOOL,
     .default_value = "yes",
     .help = "measure the device's limits before and after each repetition, and print the share of "
             "them that was reached"},
    {.topic = "Only bench",
     .name = "output",
     .flag = "o",
     .type = RUNNER_KEY_ENUM,
     .default_value = "md",
     .words = format_words,
     .help = "form of the table on standard output"},
};

const runner_command runner_command_bench = {
    .name = "bench",
    .summary = "measure prefill and decoding speed, for every combination given",
    .run = bench_command,
    .keys = RUNNER_KEYS_COMPUTE " seed mlock",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
    .has_lists = true,
};
