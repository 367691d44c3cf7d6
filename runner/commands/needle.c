/* SPDX-License-Identifier: MIT
 *
 * needle.c: `tandem needle`: measures whether a model recalls what stands far back in a long
 * context, for each depth and length. With a text (-f), a sentence is hidden in it, and its first
 * half is repeated at the end. Without one, the model must be one whose weights are made to recall
 * (llm/needle.h). Tokens have the role of generated ones, so that a device with activation-bits =
 * auto computes them with 15 bits.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm/needle.h"
#include "llm/tokenizer/tokenizer.h"
#include "runner/interrupt.h"
#include "runner/json.h"
#include "runner/plan/fit.h"
#include "runner/plan/pick.h"
#include "runner/prompt.h"
#include "runner/session.h"

#define BATCH_MAX 512

/* Results at one depth of one context. */
typedef struct cell {
    int32_t n, n_recalled;           /* answers; those with a margin above 0 */
    double margin_sum, margin_least; /* of llm_needle_margin */
} cell;

/* Ids of a text. */
typedef struct ids {
    int32_t *at;
    int32_t n;
} ids;

typedef struct job {
    runner_session session;
    int32_t *contexts, *depths; /* [n_context] tokens; [n_depth] per cent; both ascending; owned */
    int32_t n_context, n_depth, n_ctx; /* n_ctx: the longest context */
    int32_t n_each;                    /* needles at a depth */
    int32_t class_size;                /* llm_needle_class_size; 0 = a text is searched */
    ids text, hidden;                  /* hidden: the sentence, question and answer; owned */
    int32_t n_question;                /* the first ids of `hidden` */
    cell *cells;                       /* [n_context][n_depth] */
    uint64_t done;                     /* tokens computed, for the progress bar */
} job;

static tdm_status no_memory(tdm_error *err) {
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for the tokens");
}

static void cell_add(cell *c, double margin) {
    if (c->n == 0 || margin < c->margin_least) c->margin_least = margin;
    c->n++;
    c->n_recalled += margin > 0;
    c->margin_sum += margin;
}

/* ---- Contexts, depths and texts ---- */

static int int_compare(const void *a, const void *b) {
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

/* The list of a key, ascending, each value once. */
static tdm_status list_read(const job *j, const char *key, int32_t **items_out, int32_t *n_out,
                            tdm_error *err) {
    runner_config *config = j->session.app->config;
    const size_t n = runner_config_get_count(config, key);
    int32_t *items = malloc((n + 1) * sizeof *items);
    if (items == NULL) return no_memory(err);
    for (size_t i = 0; i < n; i++) items[i] = (int32_t)runner_config_get_int_at(config, key, i);
    qsort(items, n, sizeof *items, int_compare);
    *n_out = 0;
    for (size_t i = 0; i < n; i++)
        if (i == 0 || items[i] != items[i - 1]) items[(*n_out)++] = items[i];
    *items_out = items;
    return TDM_OK;
}

static tdm_status tokenize(const llm_vocab *vocab, const char *text, size_t len, unsigned flags,
                           ids *out, tdm_error *err) {
    size_t n = 0;
    tdm_status status = llm_tokenize(vocab, text, len, flags, &out->at, &n, err);
    if (status == TDM_OK && n > INT32_MAX / 4)
        status = tdm_fail(err, TDM_OUT_OF_RANGE, "the text has too many tokens, %zu", n);
    out->n = (int32_t)n;
    return status;
}

/* Makes the hidden sentence from question and answer. The question are the ids that the sentence
 * has in common with the question alone, since the tokenizer may join the two at their border. */
static tdm_status sentence_read(job *j, const llm_vocab *vocab, tdm_error *err) {
    runner_config *config = j->session.app->config;
    const char *question = runner_config_get_string(config, "question");
    const char *answer = runner_config_get_string(config, "answer");
    const size_t len = strlen(question) + strlen(answer) + 4;
    char *whole = malloc(len);
    ids asked = {0};
    if (whole == NULL) return no_memory(err);
    /* The white space between them has tokens, too, so empty texts are not found by their
     * tokens. */
    const bool is_empty = question[strspn(question, " \t\n")] == '\0' ||
                          answer[strspn(answer, " \t\n")] == '\0';
    snprintf(whole, len, "\n%s", question);
    tdm_status status = tokenize(vocab, whole, strlen(whole), 0, &asked, err);
    snprintf(whole, len, "\n%s %s", question, answer);
    if (status == TDM_OK) status = tokenize(vocab, whole, strlen(whole), 0, &j->hidden, err);
    while (j->n_question < asked.n && j->n_question < j->hidden.n &&
           asked.at[j->n_question] == j->hidden.at[j->n_question])
        j->n_question++;
    free(asked.at);
    free(whole);
    if (status == TDM_OK && (is_empty || j->n_question == 0 || j->n_question == j->hidden.n))
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "--question and --answer: both must have tokens of their own");
    return status;
}

static tdm_status text_read(job *j, tdm_error *err) {
    const llm_vocab *vocab = NULL;
    char *text = NULL;
    size_t len = 0;
    tdm_status status = llm_model_vocab(j->session.model, &vocab, err);
    if (status == TDM_OK) status = runner_prompt_read(j->session.app, &text, &len, err);
    if (status == TDM_OK)
        status = tokenize(vocab, text, len, LLM_TOKENIZE_ADD_SPECIAL, &j->text, err);
    free(text);
    if (status == TDM_OK) status = sentence_read(j, vocab, err);
    if (status == TDM_OK && j->text.n < 16)
        status = tdm_fail(err, TDM_OUT_OF_RANGE, "%s: has %d tokens, too few to hide a sentence in",
                          runner_config_get_string(j->session.app->config, "file"), j->text.n);
    if (status == TDM_OK && j->text.n < j->n_ctx)
        runner_terminal_print(j->session.app->terminal, RUNNER_MESSAGE_NOTE,
                              "the text has %d tokens and is repeated for longer contexts",
                              j->text.n);
    return status;
}

/* Token i of the text. Beyond its end the text is repeated, without its first token, usually a
 * bos. */
static int32_t text_at(const job *j, int32_t i) {
    return j->text.at[i < j->text.n ? i : 1 + (i - 1) % (j->text.n - 1)];
}

/* ---- Computing ---- */

/* Appends tokens to the sequence. Behind each of the last n_answer (0 = none) tokens an answer is
 * expected: margins_out[k] is the llm_needle_margin of answers[k]. */
static tdm_status tokens_compute(job *j, const int32_t *tokens, int32_t n_tok,
                                 const int32_t *answers, int32_t n_answer, float *margins_out,
                                 tdm_error *err) {
    llm_context *ctx = j->session.ctx;
    const int32_t n_vocab = j->session.model->hparams.n_vocab;
    bool wanted[BATCH_MAX];
    tdm_status status = TDM_OK;
    for (int32_t at = 0, n; at < n_tok && status == TDM_OK; at += n) {
        int32_t n_row = 0;
        n = n_tok - at < BATCH_MAX ? n_tok - at : BATCH_MAX;
        for (int32_t i = 0; i < n; i++) wanted[i] = at + i >= n_tok - n_answer;
        const llm_batch batch = {.tokens = tokens + at, .wanted = wanted, .n_tok = n};
        status = llm_context_decode(ctx, &batch, err);
        for (int32_t i = 0; i < n && status == TDM_OK; i++) {
            const int32_t k = at + i - (n_tok - n_answer);
            if (wanted[i])
                margins_out[k] =
                    llm_needle_margin(llm_context_logits(ctx, n_row++), n_vocab, answers[k]);
        }
        j->done += (uint64_t)n;
        runner_progress_update(j->session.app->terminal, j->done);
        if (status == TDM_OK && runner_interrupt_came())
            status = tdm_fail(err, TDM_CANCELLED, "interrupted after %" PRIu64 " tokens", j->done);
    }
    return status;
}

/* Fills cells[n_depth] for one context of a model that is made to recall: one haystack has the
 * needles of all depths. */
static tdm_status haystack_search(job *j, int32_t n_ctx, cell *cells, tdm_error *err) {
    llm_haystack h;
    const int64_t seed = runner_config_get_int(j->session.app->config, "needle-seed");
    tdm_status status = llm_haystack_make(j->class_size, n_ctx, j->depths, j->n_depth, j->n_each,
                                          (uint64_t)seed, &h, err);
    if (status != TDM_OK) return status;
    int32_t *answers = malloc((size_t)h.n_needle * sizeof *answers);
    float *margins = malloc((size_t)h.n_needle * sizeof *margins);
    if (answers == NULL || margins == NULL) status = no_memory(err);
    if (status == TDM_OK) status = llm_context_truncate(j->session.ctx, 0, 0, err);
    for (int32_t i = 0; i < h.n_needle && status == TDM_OK; i++) answers[i] = h.needles[i].value;
    if (status == TDM_OK)
        status = tokens_compute(j, h.tokens, n_ctx, answers, h.n_needle, margins, err);
    for (int32_t i = 0; i < h.n_needle && status == TDM_OK; i++)
        cell_add(&cells[h.needles[i].depth], (double)margins[i]);
    free(answers);
    free(margins);
    llm_haystack_clear(&h);
    return status;
}

/* Fills cells[n_depth] for one context of a text, one depth after the other. The tokens before the
 * sentence stay in the cache for the next, larger depth. */
static tdm_status text_search(job *j, int32_t n_ctx, cell *cells, tdm_error *err) {
    const int32_t n_answer = j->hidden.n - j->n_question;
    const int32_t n_text = n_ctx - 2 * j->hidden.n + 1;
    tdm_status status = TDM_OK;
    if (n_text < 16)
        return tdm_fail(err, TDM_OUT_OF_RANGE,
                        "a context of %d tokens is too short for a sentence of %d", n_ctx,
                        j->hidden.n);
    int32_t *tokens = malloc((size_t)n_ctx * sizeof *tokens);
    float *margins = malloc((size_t)n_answer * sizeof *margins);
    if (tokens == NULL || margins == NULL) status = no_memory(err);
    for (int32_t d = 0, kept = 0; d < j->n_depth && status == TDM_OK; d++) {
        const int32_t at = 1 + (int32_t)((int64_t)j->depths[d] * (n_text - 1) / 100);
        int32_t n = 0;
        for (int32_t i = 0; i < at; i++) tokens[n++] = text_at(j, i);
        for (int32_t i = 0; i < j->hidden.n; i++) tokens[n++] = j->hidden.at[i];
        for (int32_t i = at; i < n_text; i++) tokens[n++] = text_at(j, i);
        for (int32_t i = 0; i + 1 < j->hidden.n; i++) tokens[n++] = j->hidden.at[i];
        status = llm_context_truncate(j->session.ctx, 0, kept, err);
        if (status == TDM_OK)
            status = tokens_compute(j, tokens + kept, n - kept, j->hidden.at + j->n_question,
                                    n_answer, margins, err);
        for (int32_t i = 0; i < n_answer && status == TDM_OK; i++)
            cell_add(&cells[d], (double)margins[i]);
        kept = at;
    }
    free(tokens);
    free(margins);
    return status;
}

static tdm_status contexts_search(job *j, tdm_error *err) {
    tdm_status status = TDM_OK;
    uint64_t total = 0;
    j->cells = calloc((size_t)j->n_context * (size_t)j->n_depth, sizeof *j->cells);
    if (j->cells == NULL) return no_memory(err);
    /* Of a text, the tokens behind the previous depth are computed again for each depth. */
    for (int32_t c = 0; c < j->n_context; c++)
        for (int32_t d = 0; d < (j->class_size > 0 ? 1 : j->n_depth); d++)
            total +=
                (uint64_t)((int64_t)j->contexts[c] * (100 - (d == 0 ? 0 : j->depths[d - 1])) / 100);
    runner_progress_begin(j->session.app->terminal, "searching", total, RUNNER_UNIT_TOKENS);
    for (int32_t c = 0; c < j->n_context && status == TDM_OK; c++) {
        cell *cells = j->cells + (size_t)c * (size_t)j->n_depth;
        status = j->class_size > 0 ? haystack_search(j, j->contexts[c], cells, err)
                                   : text_search(j, j->contexts[c], cells, err);
    }
    runner_progress_end(j->session.app->terminal);
    return status;
}

/* ---- Results ---- */

static const cell *cell_at(const job *j, int32_t context, int32_t depth) {
    return &j->cells[(size_t)context * (size_t)j->n_depth + (size_t)depth];
}

static double recall(const cell *c) {
    return c->n > 0 ? (double)c->n_recalled / (double)c->n : 0;
}

static double mean_margin(const cell *c) {
    return c->n > 0 ? c->margin_sum / (double)c->n : 0;
}

static void json_print(const job *j, FILE *out) {
    runner_json_writer w = {.out = out};
    runner_json_begin_array(&w, NULL);
    for (int32_t c = 0; c < j->n_context; c++)
        for (int32_t d = 0; d < j->n_depth; d++) {
            const cell *found = cell_at(j, c, d);
            runner_json_begin_object(&w, NULL);
            runner_json_int(&w, "context", j->contexts[c]);
            runner_json_int(&w, "depth", j->depths[d]);
            runner_json_int(&w, "needles", found->n);
            runner_json_number(&w, "recall", recall(found));
            runner_json_number(&w, "margin", mean_margin(found));
            runner_json_number(&w, "margin_least", found->margin_least);
            runner_json_end_object(&w);
        }
    runner_json_end_array(&w);
}

static void table_print(const job *j, FILE *out) {
    fprintf(out, "%8s %6s %8s %7s %8s %8s\n", "context", "depth", "needles", "recall", "margin",
            "least");
    for (int32_t c = 0; c < j->n_context; c++)
        for (int32_t d = 0; d < j->n_depth; d++) {
            const cell *found = cell_at(j, c, d);
            fprintf(out, "%8d %4d %% %8d %5.1f %% %8.3f %8.3f\n", j->contexts[c], j->depths[d],
                    found->n, 100 * recall(found), mean_margin(found), found->margin_least);
        }
}

/* Prints a block for each depth and context; a fuller block means that more is recalled. */
static void grid_print(const job *j, FILE *out) {
    static const char *const blocks[] = {"··", "░░", "▒▒", "▓▓", "██"};
    fputs("\ndepth ", out);
    for (int32_t c = 0; c < j->n_context; c++) fprintf(out, " %8d", j->contexts[c]);
    fputc('\n', out);
    for (int32_t d = 0; d < j->n_depth; d++) {
        fprintf(out, "%3d %% ", j->depths[d]);
        for (int32_t c = 0; c < j->n_context; c++)
            fprintf(out, " %6s%s", "", blocks[(int)(4 * recall(cell_at(j, c, d)))]);
        fputc('\n', out);
    }
    fprintf(out, "recalled: %s all  %s 3/4  %s half  %s 1/4  %s less\n", blocks[4], blocks[3],
            blocks[2], blocks[1], blocks[0]);
}

/* ---- The command ---- */

static tdm_status job_run(job *j, tdm_error *err) {
    runner_session *session = &j->session;
    runner_app *app = session->app;
    const bool has_text = runner_config_get_string(app->config, "file")[0] != '\0';
    tdm_status status = runner_session_open(session, app, NULL, err);
    if (status == TDM_OK && !has_text)
        status = llm_needle_class_size(session->model, &j->class_size, err);
    if (status == TDM_OK && !has_text && j->class_size == 0)
        return runner_usage(app, err,
                            "no text given: use -f FILE (only models that are made to recall "
                            "need none)");
    if (status == TDM_OK && has_text) status = text_read(j, err);
    runner_context_wish wish = {.n_ctx = j->n_ctx};
    if (status == TDM_OK) status = runner_session_pick(session, NULL, 0, err);
    if (status == TDM_OK) status = runner_fit(session, &wish, err);
    if (status == TDM_OK) status = runner_session_load(session, err);
    if (status == TDM_OK) status = runner_session_begin(session, &wish, err);
    return status == TDM_OK ? contexts_search(j, err) : status;
}

static tdm_status needle_command(runner_app *app, tdm_error *err) {
    job j = {.session = {.app = app}};
    const bool is_json = runner_config_get_bool(app->config, "json");
    j.n_each = (int32_t)runner_config_get_int(app->config, "needles");
    tdm_status status = list_read(&j, "contexts", &j.contexts, &j.n_context, err);
    if (status == TDM_OK) status = list_read(&j, "depths", &j.depths, &j.n_depth, err);
    if (status == TDM_OK) status = runner_config_check(app->config, err);
    if (status == TDM_OK && (j.n_context == 0 || j.n_depth == 0))
        status = runner_usage(app, err, "--contexts and --depths: give at least one of each");
    if (status == TDM_OK) j.n_ctx = j.contexts[j.n_context - 1];
    if (status == TDM_OK) status = job_run(&j, err);
    if (status == TDM_OK && is_json) json_print(&j, app->out);
    if (status == TDM_OK && !is_json) table_print(&j, app->out);
    if (status == TDM_OK && !is_json) grid_print(&j, app->out);
    if (status == TDM_OK) status = runner_flush(app, err);
    runner_session_close(&j.session);
    free(j.contexts);
    free(j.depths);
    free(j.text.at);
    free(j.hidden.at);
    free(j.cells);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only needle",
     .name = "contexts",
     .type = RUNNER_KEY_INTS,
     .default_value = "2048,4096",
     .value_name = "N,N,...",
     .min = 64,
     .max = (double)LLM_MAX_CTX,
     .help = "lengths of the contexts in tokens, with the question at their end"},
    {.topic = "Only needle",
     .name = "depths",
     .type = RUNNER_KEY_INTS,
     .default_value = "0,25,50,75,100",
     .value_name = "N,N,...",
     .max = 100,
     .help = "where needles are hidden, in per cent of the context; 0 = at its beginning"},
    {.topic = "Only needle",
     .name = "needles",
     .type = RUNNER_KEY_INT,
     .default_value = "8",
     .value_name = "N",
     .min = 1,
     .max = 4096,
     .help = "needles at each depth, of a model that is made to recall"},
    {.topic = "Only needle",
     .name = "needle-seed",
     .type = RUNNER_KEY_INT,
     .default_value = "1",
     .value_name = "N",
     .max = RUNNER_KEY_INT_MAX,
     .help = "seed of the haystack of a model that is made to recall"},
    {.topic = "Only needle",
     .name = "question",
     .type = RUNNER_KEY_STRING,
     .default_value = "The best thing to do in San Francisco is to",
     .value_name = "TEXT",
     .help = "the beginning of the sentence that is hidden in the text of -f; it is repeated at "
             "the end"},
    {.topic = "Only needle",
     .name = "answer",
     .type = RUNNER_KEY_STRING,
     .default_value = "eat a sandwich and sit in Dolores Park on a sunny day.",
     .value_name = "TEXT",
     .help = "the rest of that sentence; recall is the share of its tokens that are the most "
             "likely ones"},
    {.topic = "Only needle",
     .name = "json",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "print a list of JSON objects, one for each context and depth"},
};

const runner_command runner_command_needle = {
    .name = "needle",
    .summary = "measure whether what stands far back in a long context is recalled",
    .run = needle_command,
    .keys = RUNNER_KEYS_COMPUTE " file mlock warmup",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
};
