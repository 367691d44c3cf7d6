/* SPDX-License-Identifier: MIT
 *
 * test_mtp.c: layers that draft tokens (MTP). Their logits equal llama.cpp's, whose numbers are
 * tests/model/archs/NAME.KIND.mtp: the last rows of its MTP graph for the tokens of tokens.txt,
 * over the hidden states of its model. Greedy tokens with drafts equal those without, on models
 * with attention and with recurrent states, on a device and on groups. The model "perfect" of
 * make_mtp.c shows that proposals are right where all of the layer's parts are, and are not where
 * one is missing. No graph is built or planned as drafting and verifying alternate.
 *   test_mtp MAKE_MTP
 */
#include <math.h>
#include <unistd.h>

#include "core/counters.h"
#include "llm/arch/arch.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/group_device.h"
#include "tests/model/rig.h"

enum { N_TOK = 48, N_ROW = 4, N_DRAFT = 4, N_CTX = 128 };
/* Whole steps. Their length is odd, so that they begin with even and with odd tokens of the perfect
 * model's. */
enum { N_TEXT = 1 + 7 * (N_DRAFT + 1) };

/* Only the order of additions differs. */
#define BOUND 1e-5

static const char *make_mtp;
static int32_t tokens[N_TOK];

typedef struct pair {
    llm_model *model, *layer;
    size_t n_vocab, n_embd; /* n_embd: floats of a hidden state */
} pair;

static const char *fixture_path(const char *name, const char *kind, bool is_made) {
    static char file[96];
    snprintf(file, sizeof file, "%s%s%s.gguf", name, is_made ? "." : "", is_made ? kind : "");
    return rig_file(file);
}

/* The fixture with a layer of a kind, loaded on a device. */
static pair pair_open(const char *name, const char *kind, tdm_open_device *dev) {
    tdm_error err = {0};
    char head[128], plain[512], made[512];
    pair p = {0};
    snprintf(head, sizeof head, "tests/model/archs/%s.head", name);
    snprintf(plain, sizeof plain, "%s", fixture_path(name, kind, false));
    snprintf(made, sizeof made, "%s", fixture_path(name, kind, true));
    char *from = rig_source_file(head);
    assert_non_null(from);
    assert_true(access(plain, R_OK) == 0 || arch_fixture_write(from, name, 1, plain));
    free(from);
    const char *argv[] = {make_mtp, plain, made, kind, NULL};
    if (access(made, R_OK) != 0) assert_int_equal(rig_spawn(argv), 0);
    RIG_OK(llm_model_open(made, &p.model, &err));
    RIG_OK(llm_model_open_draft(p.model, &p.layer, &err));
    /* The layer's weights need the model's. */
    assert_int_equal(llm_model_load(p.layer, rig_runtime(), &dev, 1, NULL, NULL, &err),
                     TDM_FAILED_PRECONDITION);
    RIG_OK(llm_model_load(p.model, rig_runtime(), &dev, 1, NULL, NULL, &err));
    RIG_OK(llm_model_load(p.layer, rig_runtime(), &dev, 1, NULL, NULL, &err));
    p.n_vocab = (size_t)p.model->hparams.n_vocab;
    p.n_embd = (size_t)llm_model_hidden_len(p.model);
    return p;
}

static void pair_close(pair *p) {
    llm_model_close(p->layer);
    llm_model_close(p->model);
}

static llm_context *context_make(llm_model *model, int n_ubatch) {
    const tdm_type f32 = TDM_TYPE_F32;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = N_CTX,
                                       .n_ubatch = n_ubatch,
                                       .page_len = 16,
                                       .type_k = &f32,
                                       .type_v = &f32,
                                       .gives_hidden = true};
    return rig_context(model, &params);
}

/* ---- Against llama.cpp ---- */

/* Hidden states [n, n_embd] for the layer: of the token before each; the first row is zeros. */
static float *hidden_take(const pair *p, const llm_context *ctx, int n) {
    float *hidden = calloc((size_t)n * p->n_embd, sizeof *hidden);
    assert_non_null(hidden);
    assert_null(llm_context_hidden(ctx, n));
    assert_null(llm_context_hidden(ctx, -1));
    for (int i = 0; i + 1 < n; i++)
        memcpy(hidden + (size_t)(i + 1) * p->n_embd, llm_context_hidden(ctx, i),
               p->n_embd * sizeof *hidden);
    return hidden;
}

static void rows_check(const pair *p, const llm_context *ctx, const char *name, const char *kind,
                       const char *where) {
    char file[128];
    float expected[512];
    snprintf(file, sizeof file, "tests/model/archs/%s.%s.mtp", name, kind);
    char *path = rig_source_file(file);
    assert_non_null(path);
    FILE *f = fopen(path, "rb");
    free(path);
    assert_non_null(f);
    assert_true(p->n_vocab <= 512);
    for (int i = 0; i < N_ROW; i++) {
        assert_int_equal(fread(expected, sizeof *expected, p->n_vocab, f), p->n_vocab);
        double error = rig_nmse(expected, llm_context_logits(ctx, i), p->n_vocab);
        if (!(error <= BOUND)) fail_msg("%s, %s, %s: row %d: NMSE %g", name, kind, where, i, error);
        assert_non_null(llm_context_hidden(ctx, i));
    }
    assert_null(llm_context_hidden(ctx, N_ROW));
    fclose(f);
}

static void fixture_check(const char *name, const char *kind, tdm_open_device *dev,
                          const char *where) {
    static const int ubatches[] = {64, 7};
    tdm_error err = {0};
    pair p = pair_open(name, kind, dev);
    bool wanted[N_TOK] = {false};
    for (int u = 0; u < 2; u++) {
        llm_context *ctx = context_make(p.model, ubatches[u]);
        llm_context *drafts = context_make(p.layer, ubatches[1 - u]);
        llm_batch batch = {.tokens = tokens, .wanted = wanted, .n_tok = N_TOK};
        memset(wanted, 0, sizeof wanted);
        if (u == 1) wanted[3] = wanted[20] = true; /* whichever give logits */
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        float *hidden = hidden_take(&p, ctx, N_TOK);
        assert_int_equal(llm_context_decode(drafts, &batch, &err), TDM_INVALID_ARGUMENT);
        batch.hidden = hidden;
        for (int i = 0; i < N_TOK; i++) wanted[i] = i >= N_TOK - N_ROW;
        RIG_OK(llm_context_decode(drafts, &batch, &err));
        rows_check(&p, drafts, name, kind, where);
        free(hidden);
        llm_context_destroy(drafts);
        llm_context_destroy(ctx);
    }
    pair_close(&p);
}

static const struct {
    const char *name, *kind;
} recorded[] = {
    {"qwen35-dense", "random"},  {"qwen35-dense", "own"},   {"qwen3next-moe", "random"},
    {"deepseek2-moe", "random"}, {"cohere2moe-moe", "own"}, {"deepseek32-moe", "random"},
};

static void test_logits(void **state) {
    static const group_config group = {.n_member = 2, .shares = "3,1", .path = "reference"};
    (void)state;
    for (size_t i = 0; i < sizeof recorded / sizeof *recorded; i++) {
        fixture_check(recorded[i].name, recorded[i].kind, rig_device(NULL, "reference", 1),
                      "one device");
        fixture_check(recorded[i].name, recorded[i].kind, group_device(&group), "a group");
    }
}

/* ---- Text ---- */

static int32_t best(const pair *p, const llm_context *ctx, int row) {
    const float *logits = llm_context_logits(ctx, row);
    int32_t at = 0;
    assert_non_null(logits);
    for (size_t i = 1; i < p->n_vocab; i++)
        if (logits[i] > logits[at]) at = (int32_t)i;
    return at;
}

static void alone(const pair *p, int n_prompt, int32_t *text) {
    tdm_error err = {0};
    llm_context *ctx = context_make(p->model, 64);
    llm_batch batch = {.tokens = tokens, .n_tok = n_prompt, .role = TDM_ROLE_PROMPT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    text[0] = best(p, ctx, 0);
    for (int i = 1; i < N_TEXT; i++) {
        batch = (llm_batch){.tokens = &text[i - 1], .n_tok = 1};
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        text[i] = best(p, ctx, 0);
    }
    llm_context_destroy(ctx);
}

/* Proposes N_DRAFT tokens behind the n_new in `fresh`, which the layer does not hold yet and whose
 * hidden states are in `hidden`. */
static void propose(const pair *p, llm_context *drafts, const int32_t *fresh, int n_new,
                    const float *hidden, int32_t *out) {
    tdm_error err = {0};
    llm_batch batch = {.tokens = fresh, .n_tok = n_new, .hidden = hidden, .n_room = N_DRAFT + 1};
    for (int i = 0; i < N_DRAFT; i++) {
        RIG_OK(llm_context_decode(drafts, &batch, &err));
        out[i] = best(p, drafts, 0);
        batch = (llm_batch){.tokens = &out[i], .n_tok = 1, .hidden = llm_context_hidden(drafts, 0)};
    }
}

/* Text with drafts; returns the proposals that were accepted, of *n_proposed. The counters of work
 * that a steady loop must not do stay as they are from the third step on. */
static int drafted(const pair *p, int n_prompt, int32_t *text, int *n_proposed, const char *what) {
    static const tdm_counter fixed[] = {TDM_COUNTER_GRAPHS_BUILT, TDM_COUNTER_GRAPHS_PLANNED};
    tdm_error err = {0};
    uint64_t before[2] = {0};
    int n = 1, n_accepted = 0, n_step = 0, n_new = 1;
    llm_context *ctx = context_make(p->model, 64), *drafts = context_make(p->layer, 64);
    bool wanted[N_DRAFT + 1], no[N_TOK] = {false};
    for (int i = 0; i <= N_DRAFT; i++) wanted[i] = true;
    llm_batch batch = {.tokens = tokens, .n_tok = n_prompt, .role = TDM_ROLE_PROMPT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    text[0] = best(p, ctx, 0);
    float *hidden = hidden_take(p, ctx, n_prompt);
    batch.hidden = hidden;
    batch.wanted = no;
    float *fresh = malloc((N_DRAFT + 1) * p->n_embd * sizeof *fresh);
    assert_non_null(fresh);
    memcpy(fresh, llm_context_hidden(ctx, n_prompt - 1), p->n_embd * sizeof *fresh);
    RIG_OK(llm_context_decode(drafts, &batch, &err));
    free(hidden);
    *n_proposed = 0;
    while (n + N_DRAFT < N_TEXT) {
        int32_t step[N_DRAFT + 1], kept = 1, length = llm_context_length(ctx, 0);
        step[0] = text[n - 1];
        propose(p, drafts, text + n - n_new, n_new, fresh, step + 1);
        batch = (llm_batch){.tokens = step, .wanted = wanted, .n_tok = N_DRAFT + 1};
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        for (int i = 0; i <= N_DRAFT; i++, kept++) {
            text[n++] = best(p, ctx, i);
            if (i == N_DRAFT || text[n - 1] != step[i + 1]) break;
        }
        for (int i = 0; i < kept; i++)
            memcpy(fresh + (size_t)i * p->n_embd, llm_context_hidden(ctx, i),
                   p->n_embd * sizeof *fresh);
        n_accepted += kept - 1;
        *n_proposed += N_DRAFT;
        n_new = kept;
        RIG_OK(llm_context_truncate(drafts, 0, length + 1, &err));
        RIG_OK(llm_context_truncate(ctx, 0, length + kept, &err));
        for (int i = 0; i < 2; i++) {
            const uint64_t now = tdm_counter_get(fixed[i]);
            if (n_step > 1 && now != before[i])
                fail_msg("%s: step %d: %llu %s", what, n_step,
                         (unsigned long long)(now - before[i]), tdm_counter_name(fixed[i]));
            before[i] = now;
        }
        n_step++;
    }
    free(fresh);
    llm_context_destroy(drafts);
    llm_context_destroy(ctx);
    return n_accepted;
}

/* The percentage of accepted proposals. */
static int text_check(const char *name, const char *kind, tdm_open_device *dev) {
    static const int prompts[] = {1, 17};
    int n_accepted = 0, n_proposed = 0;
    char what[96];
    pair p = pair_open(name, kind, dev);
    snprintf(what, sizeof what, "%s, %s, %s", name, kind, tdm_open_device_name(dev));
    for (int i = 0; i < 2; i++) {
        int32_t expected[N_TEXT], found[N_TEXT];
        int n = 0;
        memset(found, 0xff, sizeof found);
        alone(&p, prompts[i], expected);
        n_accepted += drafted(&p, prompts[i], found, &n, what);
        n_proposed += n;
        for (int k = 0; k < N_TEXT && found[k] >= 0; k++)
            if (found[k] != expected[k])
                fail_msg("%s: token %d behind a prompt of %d is %d, not %d", what, k, prompts[i],
                         found[k], expected[k]);
    }
    pair_close(&p);
    return 100 * n_accepted / n_proposed;
}

static void test_text(void **state) {
    static const group_config groups[] = {{.n_member = 2, .shares = "3,1"},
                                          {.n_member = 2, .split = "layer"}};
    static const char *const names[] = {"qwen35-dense", "deepseek2-moe", "glm4moe-moe",
                                        "qwen4exp-select"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        text_check(names[i], "random", rig_device(NULL, "fast", 1));
#ifndef TANDEM_SANITIZED /* the groups below have perfect drafts too */
        assert_int_equal(text_check(names[i], "perfect", rig_device(NULL, "fast", 1)), 100);
#endif
        for (int g = 0; g < 2; g++) {
#ifdef TANDEM_SANITIZED /* each model in one group */
            if (g != (int)(i % 2)) continue;
#endif
            text_check(names[i], "own", group_device(&groups[g]));
            assert_int_equal(text_check(names[i], "perfect", group_device(&groups[g])), 100);
        }
    }
}

/* The same proposals without enorm, without hnorm, and in the other order. */
static void test_parts(void **state) {
    static const char *const wrong[] = {"bare-e", "bare-h", "swapped"};
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        tdm_open_device *dev = rig_device(NULL, "fast", 1);
        assert_in_range(text_check("glm4moe-moe", wrong[i], dev), 0, 60);
        assert_in_range(text_check("qwen4exp-select", wrong[i], dev), 0, 60);
    }
}

/* ---- Several residual streams ---- */

/* A tensor of the layer that drafts. */
static const float *tensor_of(const pair *p, const char *suffix) {
    char name[96];
    snprintf(name, sizeof name, "blk.%d.%s.weight", p->layer->hparams.layer_first, suffix);
    const llm_gguf_tensor *t = llm_gguf_tensor_find(p->model->gguf, name);
    assert_non_null(t);
    assert_int_equal(t->type, TDM_TYPE_F32);
    return t->data;
}

/* x normed, times w. */
static void plain_norm(const double *x, const float *w, int n, double eps, double *out) {
    double sum = 0;
    for (int i = 0; i < n; i++) sum += x[i] * x[i];
    for (int i = 0; i < n; i++) out[i] = x[i] / sqrt(sum / n + eps) * (double)w[i];
}

static void plain_product(const float *w, const double *x, int n_in, int n_out, double *out) {
    for (int o = 0; o < n_out; o++) {
        out[o] = 0;
        for (int i = 0; i < n_in; i++) out[o] += (double)w[o * n_in + i] * x[i];
    }
}

enum { MAX_EMBD = 256, MAX_STREAM = 4, MAX_ALL = MAX_EMBD * MAX_STREAM };

/* A layer of the kind "still": what its streams begin with, and the logits of its head. */
static void plain_draft(const pair *p, int32_t token, const float *hidden, float *streams_out,
                        float *logits_out) {
    const llm_hparams *h = &p->model->hparams;
    const int n = h->n_embd, n_stream = h->n_stream, n_all = n * n_stream;
    const double eps = (double)h->norm_eps;
    double both[2 * MAX_EMBD], x[MAX_ALL], normed[MAX_ALL], low[64], gate[MAX_ALL], y[MAX_EMBD];
    double logits[512];
    for (int i = 0; i < n; i++)
        y[i] = (double)tensor_of(p, "nextn.embed_tokens")[(size_t)token * (size_t)n + (size_t)i];
    plain_norm(y, tensor_of(p, "nextn.enorm"), n, eps, both);
    for (int s = 0; s < n_stream; s++) {
        for (int i = 0; i < n; i++) y[i] = (double)hidden[s * n + i];
        plain_norm(y, tensor_of(p, "nextn.hnorm") + s * n, n, eps, both + n);
        plain_product(tensor_of(p, "nextn.eh_proj"), both, 2 * n, n, x + s * n);
        plain_norm(x + s * n, tensor_of(p, "nextn.hc_head_norm") + s * n, n, eps, normed + s * n);
    }
    plain_product(tensor_of(p, "nextn.hc_head_down"), normed, n_all, h->n_stream_rank, low);
    for (int i = 0; i < h->n_stream_rank; i++) {
        low[i] /= n_stream;
        low[i] /= 1 + exp(-low[i]);
    }
    plain_product(tensor_of(p, "nextn.hc_head_up"), low, h->n_stream_rank, n_all, gate);
    for (int i = 0; i < n; i++) {
        y[i] = 0;
        for (int s = 0; s < n_stream; s++)
            y[i] += normed[s * n + i] / (1 + exp(-gate[s * n + i])) / n_stream;
    }
    plain_product(tensor_of(p, "nextn.shared_head_head"), y, n, h->n_vocab, logits);
    for (int i = 0; i < n_all; i++) streams_out[i] = (float)x[i];
    for (int i = 0; i < h->n_vocab; i++) logits_out[i] = (float)logits[i];
}

/* Streams that differ, given to a layer whose blocks add nothing, beside a plain computation. */
static void test_streams(void **state) {
    enum { N = 5 };
    static float hidden[N * MAX_ALL], streams[MAX_ALL], logits[512];
    bool wanted[N];
    tdm_error err = {0};
    (void)state;
    pair p = pair_open("qwen4exp-select", "still", rig_device(NULL, "fast", 1));
    assert_int_equal(p.n_embd, MAX_ALL);
    for (int i = 0; i < N * MAX_ALL; i++)
        hidden[i] = sinf((float)i * 1.7f) * (float)(1 + i / MAX_EMBD % MAX_STREAM * 3);
    for (int i = 0; i < N; i++) wanted[i] = true;
    llm_context *drafts = context_make(p.layer, 64);
    const llm_batch batch = {.tokens = tokens, .wanted = wanted, .n_tok = N, .hidden = hidden};
    RIG_OK(llm_context_decode(drafts, &batch, &err));
    for (int i = 0; i < N; i++) {
        plain_draft(&p, tokens[i], hidden + (size_t)i * MAX_ALL, streams, logits);
        const double in = rig_nmse(streams, llm_context_hidden(drafts, i), MAX_ALL);
        const double out = rig_nmse(logits, llm_context_logits(drafts, i), p.n_vocab);
        if (!(in < 1e-10 && out < 1e-10)) fail_msg("row %d: NMSE %g, %g", i, in, out);
    }
    llm_context_destroy(drafts);
    pair_close(&p);
}

/* The refusal of a file without such a layer names the file. */
static void test_refusal(void **state) {
    llm_model *model = NULL, *layer = NULL;
    tdm_error err = {0};
    (void)state;
    pair p = pair_open("glm4moe-moe", "random", rig_device(NULL, "fast", 1));
    pair_close(&p);
    RIG_OK(llm_model_open(fixture_path("glm4moe-moe", "", false), &model, &err));
    assert_int_equal(llm_model_open_draft(model, &layer, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "glm4moe-moe.gguf has no layer that drafts tokens"));
    assert_null(layer);
    llm_model_close(model);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),  cmocka_unit_test(test_text),
        cmocka_unit_test(test_parts),   cmocka_unit_test(test_streams),
        cmocka_unit_test(test_refusal),
    };
    char *path = rig_source_file("tests/model/archs/tokens.txt");
    FILE *f = path != NULL ? fopen(path, "r") : NULL;
    int n = 0;
    make_mtp = argc > 1 ? argv[1] : NULL;
    while (f != NULL && n < N_TOK && fscanf(f, "%d%*[,]", &tokens[n]) == 1) n++;
    if (f != NULL) fclose(f);
    free(path);
    if (n != N_TOK || make_mtp == NULL) {
        fprintf(stderr, "usage: test_mtp MAKE_MTP, with tests/model/archs/tokens.txt\n");
        return 1;
    }
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
