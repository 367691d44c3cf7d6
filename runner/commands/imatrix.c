/* SPDX-License-Identifier: MIT
 *
 * imatrix.c: `tandem imatrix`: measures on a text how much each input of each matrix matters, for
 * `tandem quantize --imatrix`. For each matrix of a layer, and each expert, it sums the squares of
 * each element of the vectors that the matrix is multiplied with, and writes the sums in
 * llama.cpp's GGUF form (llm/quantize/importance.h).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "llm/gguf/gguf_write.h"
#include "runner/commands/text_chunks.h"
#include "runner/interrupt.h"
#include "runner/plan/fit.h"
#include "runner/plan/pick.h"

#define CTX_DEFAULT 512 /* tokens of a chunk where ctx-size is auto */
/* The inputs of one step are kept in host memory: about so many bytes at most. */
#define STEP_BYTES_MAX ((int64_t)128 << 20)

/* The sums of one tensor: a matrix, or one matrix for each expert. */
typedef struct sums {
    char name[128];      /* of the tensor */
    int64_t n, n_matrix; /* elements of an input; matrices */
    double *squares;     /* [n_matrix][n] sums of squared elements; owned */
    double *counts;      /* [n_matrix] inputs that were added; owned */
} sums;

typedef struct job {
    runner_session session;
    int32_t n_ctx, n_chunk;
    int32_t *tokens; /* [n_chunk][n_ctx] */
    sums *items;     /* [n] in the order of the first step, with room for `room`; owned */
    size_t n, room;
    size_t next; /* where the next product is searched first: the order is the same in every step */
    bool is_short_of_memory;
    llm_gguf_writer *writer; /* of the output */
} job;

/* ---- Sums ---- */

/* The sums of the product's tensor, added where it is new; NULL = no memory. */
static sums *sums_get(job *j, const llm_product *p) {
    for (size_t i = 0; i < j->n; i++) {
        sums *s = &j->items[(j->next + i) % j->n];
        if (strcmp(s->name, p->name) != 0) continue;
        j->next = (j->next + i + 1) % j->n;
        return s;
    }
    if (j->n == j->room) {
        const size_t room = j->room == 0 ? 64 : 2 * j->room;
        sums *grown = realloc(j->items, room * sizeof *grown);
        if (grown == NULL) return NULL;
        j->items = grown;
        j->room = room;
    }
    sums *s = &j->items[j->n];
    *s = (sums){.n = p->n, .n_matrix = p->n_matrix};
    snprintf(s->name, sizeof s->name, "%s", p->name);
    s->squares = calloc((size_t)p->n * (size_t)p->n_matrix, sizeof *s->squares);
    s->counts = calloc((size_t)p->n_matrix, sizeof *s->counts);
    j->n++;
    return s->squares != NULL && s->counts != NULL ? s : NULL;
}

static void row_add(sums *s, int64_t matrix, const float *row) {
    double *squares = s->squares + matrix * s->n;
    for (int64_t i = 0; i < s->n; i++) squares[i] += (double)row[i] * (double)row[i];
    s->counts[matrix] += 1;
}

/* An llm_product_fn. A row of `rows` is one input; with `ids` (experts) each token has n_used of
 * them. */
static void product_add(void *user, const llm_product *p) {
    job *j = user;
    sums *s = j->is_short_of_memory ? NULL : sums_get(j, p);
    if (s == NULL) {
        j->is_short_of_memory = true;
        return;
    }
    for (int64_t t = 0; t < p->n_tok; t++) {
        const float *row = p->rows + t * p->n_each * p->n;
        for (int64_t m = 0; p->ids == NULL && m < p->n_each; m++) row_add(s, m, row + m * p->n);
        for (int64_t u = 0; p->ids != NULL && u < p->n_used; u++) {
            const int32_t id = p->ids[t * p->n_used + u];
            const int64_t own = p->n_each > 1 ? u : 0;
            if (id >= 0 && id < p->n_matrix) row_add(s, id, row + own * p->n);
        }
    }
}

/* ---- The file ---- */

static int sums_compare(const void *a, const void *b) {
    return strcmp(((const sums *)a)->name, ((const sums *)b)->name);
}

static tdm_status values_write(llm_gguf_writer *w, const double *values, int64_t n,
                               tdm_error *err) {
    float *row = malloc((size_t)n * sizeof *row);
    if (row == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a row of sums");
    for (int64_t i = 0; i < n; i++) row[i] = (float)values[i];
    tdm_status status = llm_gguf_writer_write(w, row, (size_t)n * sizeof *row, err);
    free(row);
    return status;
}

static tdm_status file_write(job *j, tdm_error *err) {
    const char *text = runner_config_get_string(j->session.app->config, "file");
    const llm_gguf_str datasets[] = {{text, strlen(text)}};
    llm_gguf_writer *w = j->writer;
    tdm_status status = TDM_OK;
    qsort(j->items, j->n, sizeof *j->items, sums_compare);
    llm_gguf_writer_put_text(w, "general.type", "imatrix");
    llm_gguf_writer_put_strings(w, "imatrix.datasets", datasets, 1);
    llm_gguf_writer_put_u32(w, "imatrix.chunk_count", (uint32_t)j->n_chunk);
    llm_gguf_writer_put_u32(w, "imatrix.chunk_size", (uint32_t)j->n_ctx);
    for (size_t i = 0; i < j->n; i++) {
        char name[160];
        const int64_t ne[] = {j->items[i].n, j->items[i].n_matrix};
        const int64_t ne_counts[] = {1, j->items[i].n_matrix};
        snprintf(name, sizeof name, "%s.in_sum2", j->items[i].name);
        llm_gguf_writer_add_tensor(w, name, TDM_TYPE_F32, 2, ne);
        snprintf(name, sizeof name, "%s.counts", j->items[i].name);
        llm_gguf_writer_add_tensor(w, name, TDM_TYPE_F32, 2, ne_counts);
    }
    for (size_t i = 0; i < j->n && status == TDM_OK; i++) {
        const sums *s = &j->items[i];
        status = values_write(w, s->squares, s->n * s->n_matrix, err);
        if (status == TDM_OK) status = values_write(w, s->counts, s->n_matrix, err);
    }
    return status == TDM_OK ? llm_gguf_writer_finish(w, err) : status;
}

/* ---- The command ---- */

static tdm_status chunks_compute(job *j, tdm_error *err) {
    runner_app *app = j->session.app;
    tdm_status status = TDM_OK;
    bool *wanted = malloc((size_t)j->n_ctx * sizeof *wanted);
    if (wanted == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a chunk");
    /* All logits are wanted, because the last layer computes only the tokens whose logits are. */
    memset(wanted, true, (size_t)j->n_ctx * sizeof *wanted);
    runner_progress_begin(app->terminal, "measuring", (uint64_t)j->n_ctx * (uint64_t)j->n_chunk,
                          RUNNER_UNIT_TOKENS);
    for (int32_t i = 0; i < j->n_chunk && status == TDM_OK; i++) {
        const llm_batch batch = {.tokens = j->tokens + (size_t)i * (size_t)j->n_ctx,
                                 .wanted = wanted,
                                 .n_tok = j->n_ctx};
        status = llm_context_truncate(j->session.ctx, 0, 0, err);
        if (status == TDM_OK) status = llm_context_decode(j->session.ctx, &batch, err);
        if (status == TDM_OK && j->is_short_of_memory)
            status =
                tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for sums of %zu matrices", j->n);
        runner_progress_update(app->terminal, (uint64_t)(i + 1) * (uint64_t)j->n_ctx);
        if (status == TDM_OK && i + 1 < j->n_chunk && runner_interrupt_came())
            status = tdm_fail(err, TDM_CANCELLED, "interrupted after %d of %d chunks", i + 1,
                              j->n_chunk);
    }
    runner_progress_end(app->terminal);
    free(wanted);
    return status;
}

/* Tokens of a step whose inputs take about STEP_BYTES_MAX; 16 to LLM_N_UBATCH_DEFAULT. */
static int32_t ubatch_of(const llm_model *model) {
    int64_t n_float = 1;
    for (int32_t w = 0; w < model->n_weight; w++) {
        const llm_weight *weight = &model->weights[w];
        if (weight->layer >= 0 && weight->file->n_dims >= 2) n_float += weight->file->ne[0];
    }
    const int64_t n = STEP_BYTES_MAX / (int64_t)sizeof(float) / n_float;
    return n < 16 ? 16 : n > LLM_N_UBATCH_DEFAULT ? LLM_N_UBATCH_DEFAULT : (int32_t)n;
}

static void result_tell(const job *j, const char *path) {
    size_t n_short = 0;
    for (size_t i = 0; i < j->n; i++)
        for (int64_t m = 0; m < j->items[i].n_matrix; m++) n_short += j->items[i].counts[m] < 1;
    if (n_short > 0)
        runner_terminal_print(j->session.app->terminal, RUNNER_MESSAGE_WARNING,
                              "%zu matrices of experts were not used by any token; a longer text "
                              "reaches more",
                              n_short);
    runner_terminal_print(j->session.app->terminal, RUNNER_MESSAGE_NOTE,
                          "%s: %zu matrices over %d chunks of %d tokens", path, j->n, j->n_chunk,
                          j->n_ctx);
}

static tdm_status job_run(job *j, const char *path, tdm_error *err) {
    runner_session *session = &j->session;
    runner_app *app = session->app;
    tdm_status status = runner_session_open(session, app, NULL, err);
    if (status == TDM_OK) /* before the long work */
        status = llm_gguf_writer_create(path, &j->writer, err);
    if (status != TDM_OK) return status;
    const int64_t asked = runner_config_get_int(app->config, "ctx-size");
    j->n_ctx = asked > 0    ? (int32_t)asked
               : asked == 0 ? llm_hparams_n_ctx(&session->model->hparams)
                            : CTX_DEFAULT;
    runner_context_wish wish = {.n_ctx = j->n_ctx,
                                .n_ubatch = ubatch_of(session->model),
                                .has_all_logits = true,
                                .product = product_add,
                                .product_user = j};
    status = text_chunks_read(session, j->n_ctx, runner_config_get_int(app->config, "chunks"),
                              &j->tokens, &j->n_chunk, err);
    if (status == TDM_OK) status = runner_session_pick(session, NULL, 0, err);
    if (status == TDM_OK) status = runner_fit(session, &wish, err);
    if (status == TDM_OK) status = runner_session_load(session, err);
    if (status == TDM_OK) status = runner_session_begin(session, &wish, err);
    if (status == TDM_OK) status = chunks_compute(j, err);
    if (status == TDM_OK) status = file_write(j, err);
    if (status == TDM_OK) result_tell(j, path);
    return status;
}

static tdm_status imatrix_command(runner_app *app, tdm_error *err) {
    job j = {.session = {.app = app}};
    const char *path = runner_config_get_string(app->config, "output");
    tdm_status status = text_chunks_check(app, err);
    if (status != TDM_OK) return status;
    status = job_run(&j, path, err);
    llm_gguf_writer_destroy(j.writer);
    runner_session_close(&j.session);
    for (size_t i = 0; i < j.n; i++) {
        free(j.items[i].squares);
        free(j.items[i].counts);
    }
    free(j.items);
    free(j.tokens);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only imatrix",
     .name = "output",
     .flag = "o",
     .type = RUNNER_KEY_PATH,
     .default_value = "imatrix.gguf",
     .value_name = "PATH",
     .help = "file to write"},
    {.topic = "Only imatrix",
     .name = "chunks",
     .type = RUNNER_KEY_INT,
     .default_value = "-1",
     .value_name = "N",
     .min = -1,
     .max = RUNNER_KEY_INT_MAX,
     .help = "number of chunks of ctx-size tokens, from the start of the text; -1 = all"},
};

const runner_command runner_command_imatrix = {
    .name = "imatrix",
    .summary = "measure which inputs of matrices matter on a text, for quantize",
    .run = imatrix_command,
    .keys = RUNNER_KEYS_COMPUTE " ctx-size file mlock warmup",
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .opens_devices = true,
};
