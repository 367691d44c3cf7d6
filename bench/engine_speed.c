/* SPDX-License-Identifier: MIT
 *
 * engine_speed.c: the command tandem-engine-speed, which times the engine behind `tandem serve` on
 * a CPU device, without HTTP, as ratios within one run:
 *
 *     streams    tokens a second of n requests at a time, beside those of one request
 *     first      time to the first token of a short prompt that comes while a long one is read,
 *                beside the time of a step that reads its share of the long one
 *     prefix     time to the first token of a prompt whose begin is cached, beside the first time
 *     drafts     with -d: tokens a second of 1, 2, 4 ... requests with drafts, beside those without
 *
 * -d takes the path of a draft model; `mtp` for the model's own layer, which decodes all tokens,
 * also of requests without drafts; or `ngram` for repeated tokens. Prompts are random ids and
 * answers have a fixed length. Times are those of the engine's events. -c counts the processor time
 * of the process instead of wall time, for a busy machine; use it with one thread.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/runtime.h"
#include "llm/draft.h"
#include "server/engine.h"
#include "tests/support/random.h"

enum { N_ANSWER = 48, N_SHORT = 16, MAX_STREAM = 64, MAX_LONG = 1 << 16 };

static clockid_t clock_id = CLOCK_MONOTONIC;

static uint64_t clock_ns(void) {
    struct timespec now;
    clock_gettime(clock_id, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* One request and the times of its events, in nanoseconds. */
typedef struct stream {
    pthread_mutex_t *lock;
    pthread_cond_t *changed;
    uint64_t submitted, first, last;
    int32_t n, n_prompt_step;           /* tokens so far; steps of its prompt so far */
    uint64_t prompt_first, prompt_last; /* ends of the first and the last of these steps */
    bool is_over;
    const char *failure;
} stream;

typedef struct bench {
    server_engine *engine;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int32_t n_vocab, n_long, n_stream;
    int32_t *prompt;   /* [MAX_LONG] */
    int32_t max_draft; /* server_request.max_draft */
} bench;

static void note(stream *s, bool is_over, const char *failure) {
    pthread_mutex_lock(s->lock);
    s->is_over = is_over;
    s->failure = failure;
    pthread_cond_broadcast(s->changed);
    pthread_mutex_unlock(s->lock);
}

static bool token_come(void *user, server_request_id id, const server_token *token) {
    stream *s = user;
    (void)id;
    (void)token;
    s->last = clock_ns();
    if (s->n++ == 0) s->first = s->last;
    if (s->n == 1) note(s, false, NULL);
    return true;
}

static void prompt_come(void *user, server_request_id id, int32_t n_done, int32_t n_prompt) {
    stream *s = user;
    (void)id;
    (void)n_done;
    (void)n_prompt;
    pthread_mutex_lock(s->lock);
    s->prompt_last = clock_ns();
    if (s->n_prompt_step++ == 0) s->prompt_first = s->prompt_last;
    pthread_cond_broadcast(s->changed);
    pthread_mutex_unlock(s->lock);
}

static void finish_come(void *user, server_request_id id, const server_result *result) {
    (void)id;
    (void)result;
    note(user, true, NULL);
}

static void failure_come(void *user, server_request_id id, tdm_status status, const char *message) {
    (void)id;
    fprintf(stderr, "tandem-engine-speed: %s\n", message);
    note(user, true, tdm_status_text(status));
}

static tdm_status stream_begin(bench *b, stream *s, const int32_t *prompt, int32_t n_prompt,
                               int32_t n_answer, int scope, tdm_error *err) {
    server_request_id id;
    *s = (stream){.lock = &b->lock, .changed = &b->changed, .submitted = clock_ns()};
    const server_request request = {
        .struct_size = sizeof request,
        .prompt = prompt,
        .n_prompt = n_prompt,
        .max_tokens = n_answer,
        .sampler = {.struct_size = sizeof(llm_sampler_params)},
        .ignores_end = true,
        .is_uncached = scope == 0,
        .max_draft = b->max_draft,
        .scope = (uint64_t)scope,
        .sink = {token_come, finish_come, failure_come, prompt_come, s}};
    return server_engine_submit(b->engine, &request, &id, NULL, err);
}

/* Waits for the end of a stream, or for its first step of the prompt. */
static bool stream_wait(bench *b, stream *s, bool of_prompt) {
    pthread_mutex_lock(&b->lock);
    while (!s->is_over && (!of_prompt || s->n_prompt_step == 0))
        pthread_cond_wait(&b->changed, &b->lock);
    const bool is_ok = s->failure == NULL;
    pthread_mutex_unlock(&b->lock);
    return is_ok;
}

/* Tokens a second of n streams together, from the first token of any stream to the last token of
 * all; 0 = failure. The first token of each stream is not counted. */
static double streams_run(bench *b, int32_t n, tdm_error *err) {
    stream streams[MAX_STREAM];
    int32_t n_begun = 0;
    bool is_ok = true;
    while (n_begun < n && stream_begin(b, &streams[n_begun], b->prompt + n_begun * N_SHORT, N_SHORT,
                                       N_ANSWER, 0, err) == TDM_OK)
        n_begun++;
    uint64_t first = 0, last = 0;
    for (int32_t i = 0; i < n_begun; i++) {
        is_ok = stream_wait(b, &streams[i], false) && is_ok;
        if (first == 0 || streams[i].first < first) first = streams[i].first;
        if (streams[i].last > last) last = streams[i].last;
    }
    if (!is_ok || n_begun < n) return 0;
    return (double)n * (N_ANSWER - 1) / ((double)(last - first) * 1e-9);
}

/* Prints the time to the first token of a short prompt behind a long one. */
static bool first_run(bench *b, tdm_error *err) {
    stream long_one, short_one;
    if (stream_begin(b, &long_one, b->prompt, b->n_long, 1, 0, err) != TDM_OK) return false;
    bool is_ok = stream_wait(b, &long_one, true);
    if (stream_begin(b, &short_one, b->prompt + 7, N_SHORT, 1, 0, err) != TDM_OK)
        is_ok = false;
    else
        is_ok = stream_wait(b, &short_one, false) && is_ok;
    is_ok = stream_wait(b, &long_one, false) && is_ok;
    if (!is_ok || long_one.n_prompt_step < 2) return false;
    const double step = (double)(long_one.prompt_last - long_one.prompt_first) * 1e-6 /
                        (long_one.n_prompt_step - 1);
    const double time = (double)(short_one.first - short_one.submitted) * 1e-6;
    printf("first: %.1f ms beside a prompt of %d tokens, whose steps take %.1f ms: ratio %.2f\n",
           time, b->n_long, step, time / step);
    return true;
}

/* Prints the time to the first token of a prompt of which all but the last token is cached. Nothing
 * is cached yet for `scope`. */
static bool prefix_run(bench *b, int scope, tdm_error *err) {
    stream one, other;
    const int32_t n = b->n_long < 1000 ? b->n_long : 1000;
    if (stream_begin(b, &one, b->prompt, n, 1, scope, err) != TDM_OK ||
        !stream_wait(b, &one, false) ||
        stream_begin(b, &other, b->prompt, n + 1, 1, scope, err) != TDM_OK ||
        !stream_wait(b, &other, false))
        return false;
    const double before = (double)(one.first - one.submitted) * 1e-6;
    const double after = (double)(other.first - other.submitted) * 1e-6;
    printf("prefix: %.1f ms for %d tokens, %.1f ms when they are cached: ratio %.3f\n", before, n,
           after, after / before);
    return true;
}

/* Prints the speed of n streams with drafts beside that without. */
static bool drafts_run(bench *b, int32_t n, tdm_error *err) {
    server_stats before, after;
    b->max_draft = -1;
    const double without = streams_run(b, n, err);
    (void)server_engine_snapshot(b->engine, &before, NULL, 0);
    b->max_draft = 0;
    const double with = streams_run(b, n, err);
    (void)server_engine_snapshot(b->engine, &after, NULL, 0);
    b->max_draft = -1;
    if (without == 0 || with == 0) return false;
    printf("drafts: %d at %.1f tokens/s, %.1f without: ratio %.2f; %llu of %llu accepted\n", n, with,
           without, with / without,
           (unsigned long long)(after.n_draft_accepted - before.n_draft_accepted),
           (unsigned long long)(after.n_draft - before.n_draft));
    return true;
}

static tdm_status draft_open(const char *path, llm_model *model, tdm_runtime *rt,
                             tdm_open_device *dev, llm_model **draft_out, tdm_error *err) {
    if (path == NULL) return TDM_OK;
    tdm_status status = strcmp(path, "mtp") == 0 ? llm_model_open_draft(model, draft_out, err)
                                                 : llm_model_open(path, draft_out, err);
    if (status == TDM_OK && strcmp(path, "mtp") != 0)
        status = llm_draft_check(*draft_out, model, err);
    return status == TDM_OK ? llm_model_load(*draft_out, rt, &dev, 1, NULL, NULL, err) : status;
}

static tdm_status device_make(tdm_runtime **rt_out, const char *threads, const char *bits,
                              tdm_open_device **dev_out, tdm_error *err) {
    const tdm_option options[] = {{"threads", threads}, {"activation-bits", bits}};
    const tdm_device_spec spec = {"cpu", "cpu", 0, options, 2};
    tdm_status status = tdm_runtime_create(NULL, rt_out, err);
    if (status == TDM_OK) status = tdm_runtime_declare(*rt_out, &spec, err);
    return status == TDM_OK ? tdm_runtime_open(*rt_out, "cpu", dev_out, err) : status;
}

static bool bench_run(bench *b, int n_run, bool has_draft, tdm_error *err) {
    for (int run = 0; run < n_run; run++) {
        for (int32_t n = 1; has_draft && n <= b->n_stream; n *= 2)
            if (!drafts_run(b, n, err)) return false;
        if (has_draft) continue;
        const double one = streams_run(b, 1, err), many = streams_run(b, b->n_stream, err);
        if (one == 0 || many == 0) return false;
        printf("streams: 1 at %.1f tokens/s, %d at %.1f: ratio %.2f\n", one, b->n_stream, many,
               many / one);
        if (!first_run(b, err) || !prefix_run(b, run + 1, err)) return false;
    }
    return true;
}

static int usage(void) {
    fputs(
        "usage: tandem-engine-speed [-c] [-t THREADS] [-b 8|15|auto] [-s STREAMS] [-p LONG_PROMPT] "
        "[-n RUNS] [-d DRAFT|mtp|ngram [-k DRAFTS]] MODEL\n"
        "Plugins are found through TANDEM_PLUGIN_PATH.\n",
        stderr);
    return 2;
}

int main(int argc, char **argv) {
    bench b = {.lock = PTHREAD_MUTEX_INITIALIZER,
               .changed = PTHREAD_COND_INITIALIZER,
               .n_long = 4096,
               .n_stream = 16};
    const char *threads = "auto", *bits = "auto", *draft_path = NULL;
    int n_run = 3, n_draft = 8, option;
    while ((option = getopt(argc, argv, "ct:b:s:p:n:d:k:")) != -1) {
        if (option == 'c')
            clock_id = CLOCK_PROCESS_CPUTIME_ID;
        else if (option == 't')
            threads = optarg;
        else if (option == 'b')
            bits = optarg;
        else if (option == 's')
            b.n_stream = atoi(optarg);
        else if (option == 'p')
            b.n_long = atoi(optarg);
        else if (option == 'n')
            n_run = atoi(optarg);
        else if (option == 'd')
            draft_path = optarg;
        else if (option == 'k')
            n_draft = atoi(optarg);
        else
            return usage();
    }
    if (optind + 1 != argc || b.n_stream < 1 || b.n_stream > MAX_STREAM || b.n_long < N_SHORT ||
        b.n_long >= MAX_LONG)
        return usage();
    tdm_runtime *rt = NULL;
    tdm_open_device *dev = NULL;
    llm_model *model = NULL, *draft = NULL;
    tdm_error err = {0};
    tdm_status status = device_make(&rt, threads, bits, &dev, &err);
    if (status == TDM_OK) status = llm_model_open(argv[optind], &model, &err);
    if (status == TDM_OK) status = llm_model_load(model, rt, &dev, 1, NULL, NULL, &err);
    const bool is_ngram = draft_path != NULL && strcmp(draft_path, "ngram") == 0;
    if (status == TDM_OK && !is_ngram)
        status = draft_open(draft_path, model, rt, dev, &draft, &err);
    const llm_context_params context = {.struct_size = sizeof context, .n_ctx = b.n_long + 2048};
    const server_engine_params params = {
        .struct_size = sizeof params,
        .context = context,
        .limits = {.n_running = b.n_stream > 1 ? b.n_stream : 2, .n_held = 4},
        .draft = draft,
        .draft_context = context,
        .n_gram = is_ngram ? 3 : 0,
        .n_draft = n_draft};
    if (status == TDM_OK) status = server_engine_create(model, &params, &b.engine, &err);
    b.prompt = calloc(MAX_LONG, sizeof *b.prompt);
    if (status == TDM_OK && b.prompt == NULL)
        status = tdm_fail(&err, TDM_RESOURCE_EXHAUSTED, "no memory for prompts");
    bool is_ok = status == TDM_OK;
    if (is_ok) {
        uint64_t random = 1;
        for (int32_t i = 0; i < MAX_LONG; i++)
            b.prompt[i] =
                (int32_t)random_u32_below(&random, (uint32_t)model->hparams.n_vocab - 300) + 260;
        is_ok = bench_run(&b, n_run, draft != NULL || is_ngram, &err);
    }
    if (!is_ok) fprintf(stderr, "tandem-engine-speed: %s\n", err.message);
    server_engine_destroy(b.engine);
    llm_model_close(draft);
    llm_model_close(model);
    tdm_runtime_destroy(rt);
    free(b.prompt);
    return is_ok ? 0 : 1;
}
