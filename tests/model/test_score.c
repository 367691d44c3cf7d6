/* SPDX-License-Identifier: MIT
 *
 * test_score.c: the heads of models that score texts, beside llama.cpp's scores of the same tokens
 * (pooling rank); each comparison fails where a part of the head is left out or another token is
 * read. The tokens of a query and a text. The models: make_heads.py --ranks.
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/embedding.h"
#include "llm/score.h"
#include "llm/tokenizer/tokenizer.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/rig.h"

enum { N_TOK = 40, MAX_SCORE = 3 };

/* llama.cpp rounds the results of GELU to 16 bits. */
#define BOUND 1e-3
/* What is left out shows. */
#define SHOWS 1e-2

typedef enum fault {
    NO_FAULT,
    OTHER_TOKEN, /* the mean instead of the first token, or the first instead of the mean or last */
    OTHER_ACT,
    NO_SOFTMAX
} fault;

typedef struct score_case {
    const char *name;
    int n_score;
    float scores[MAX_SCORE]; /* llama.cpp's */
    fault faults[3];         /* NO_FAULT = the end */
} score_case;

static const score_case cases[] = {
    {"bert-rank", 1, {0.614346921f}, {OTHER_TOKEN, OTHER_ACT}},
    {"bert-classes", 3, {-0.525826454f, -0.690926552f, -0.873953104f}, {OTHER_TOKEN}},
    {"jina-bert-v2-rank", 1, {-0.455119461f}, {OTHER_TOKEN, OTHER_ACT}},
    {"modern-bert-rank", 1, {0.218557596f}, {OTHER_TOKEN, OTHER_ACT}},
    {"qwen3-rank", 2, {0.0988918021f, 0.901108205f}, {OTHER_TOKEN, NO_SOFTMAX}},
};
enum { N_CASE = sizeof cases / sizeof *cases };

static llm_model *model_open(const char *name) {
    char head[128];
    const char *path = rig_file("score.gguf");
    tdm_open_device *dev = rig_device(NULL, RIG_FAST_AUTO, 2);
    tdm_error err = {0};
    llm_model *model = NULL;
    snprintf(head, sizeof head, "tests/model/ranks/%s.head", name);
    char *source = rig_source_file(head);
    assert_non_null(source);
    assert_true(arch_fixture_write(source, name, 1, path));
    free(source);
    RIG_OK(llm_model_open(path, &model, &err));
    RIG_OK(llm_model_load(model, rig_runtime(), &dev, 1, NULL, NULL, &err));
    return model;
}

/* The model's table with a fault. */
static llm_arch arch_change(const llm_arch *arch, fault f) {
    llm_arch changed = *arch;
    if (f == OTHER_TOKEN) changed.is_score_mean = !arch->is_score_mean;
    if (f == OTHER_ACT)
        changed.score_act = arch->score_act == TDM_ACT_GELU ? TDM_ACT_NONE : TDM_ACT_GELU;
    if (f == NO_SOFTMAX) changed.has_score_softmax = false;
    return changed;
}

/* The largest difference to llama.cpp's scores. */
static double difference(const score_case *c, fault f) {
    const tdm_type f32 = TDM_TYPE_F32;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 64,
                                       .n_ubatch = 64,
                                       .type_k = &f32,
                                       .type_v = &f32,
                                       .gives_embeddings = true};
    llm_model *model = model_open(c->name);
    const size_t n_embd = (size_t)model->hparams.n_embd;
    llm_context *ctx = rig_context(model, &params);
    llm_score_head *head = NULL;
    llm_pooling pooling = LLM_POOLING_NONE;
    int32_t tokens[N_TOK];
    float scores[MAX_SCORE];
    double most = 0;
    bool is_given = false;
    tdm_error err = {0};
    for (int i = 0; i < N_TOK; i++) tokens[i] = (37 * i + 11) % 100;
    const llm_batch batch = {.tokens = tokens, .n_tok = N_TOK, .role = TDM_ROLE_PROMPT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    float *rows = malloc(N_TOK * n_embd * sizeof *rows);
    assert_non_null(rows);
    for (int32_t i = 0; i < N_TOK; i++)
        memcpy(rows + (size_t)i * n_embd, llm_context_hidden(ctx, i), n_embd * sizeof *rows);
    RIG_OK(llm_pooling_read(model, &pooling, &is_given, &err));
    assert_true(is_given && pooling == LLM_POOLING_RANK);
    const llm_arch *own = model->arch, changed = arch_change(own, f);
    RIG_OK(llm_score_head_read(model, &head, &err));
    assert_non_null(head);
    assert_int_equal(llm_score_count(head), c->n_score);
    model->arch = &changed;
    llm_score(head, rows, N_TOK, scores);
    model->arch = own;
    for (int i = 0; i < c->n_score; i++)
        most = fmax(most, fabs((double)scores[i] - (double)c->scores[i]));
    print_message("%s, fault %d: %.1e\n", c->name, (int)f, most);
    llm_score_head_free(head);
    free(rows);
    llm_context_destroy(ctx);
    llm_model_close(model);
    return most;
}

static void test_scores(void **state) {
    (void)state;
    for (int i = 0; i < N_CASE; i++) assert_true(difference(&cases[i], NO_FAULT) <= BOUND);
}

static void test_faults_show(void **state) {
    (void)state;
    for (int i = 0; i < N_CASE; i++)
        for (const fault *f = cases[i].faults; *f != NO_FAULT; f++)
            assert_true(difference(&cases[i], *f) >= SHOWS);
}

static llm_gguf_tensor *tensor_of(llm_model *model, const char *name) {
    llm_gguf_tensor *t = (llm_gguf_tensor *)(uintptr_t)llm_gguf_tensor_find(model->gguf, name);
    assert_non_null(t);
    return t;
}

/* A head must lead from the model's width to scores. */
static void test_bad_heads(void **state) {
    static const char *const names[] = {"cls.weight", "cls.bias", "cls.output.weight",
                                        "cls.output.bias"};
    llm_model *model = model_open("bert-rank");
    tdm_error err = {0};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        llm_score_head *head = NULL;
        llm_gguf_tensor *t = tensor_of(model, names[i]);
        const int64_t n = t->ne[0];
        if (n > 1)
            t->ne[0]--;
        else
            t->ne[1] = 0;
        assert_int_equal(llm_score_head_read(model, &head, &err), TDM_DATA_LOSS);
        assert_non_null(strstr(err.message, "cls."));
        assert_null(head);
        t->ne[0] = n;
        if (n == 1) t->ne[1] = 1;
    }
    llm_gguf_tensor *t = tensor_of(model, "cls.weight");
    llm_score_head *head = NULL;
    t->ne[2] = 2;
    assert_int_equal(llm_score_head_read(model, &head, &err), TDM_DATA_LOSS);
    assert_non_null(strstr(err.message, "no matrix"));
    t->ne[2] = 1;
    llm_model_close(model);
}

/* [CLS] a [SEP] b [SEP]: what the query has and what the text has stay apart. */
static void test_pair(void **state) {
    const char query[] = "the cat", text[] = "a dog";
    const llm_vocab *vocab = NULL;
    llm_model *model = model_open("bert-rank");
    int32_t *ids = NULL, *parts[2] = {NULL, NULL};
    size_t n = 0, n_part[2], at = 0;
    tdm_error err = {0};
    (void)state;
    RIG_OK(llm_model_vocab(model, &vocab, &err));
    RIG_OK(llm_score_tokenize(model, query, strlen(query), text, strlen(text), &ids, &n, &err));
    RIG_OK(llm_tokenize(vocab, query, strlen(query), 0, &parts[0], &n_part[0], &err));
    RIG_OK(llm_tokenize(vocab, text, strlen(text), 0, &parts[1], &n_part[1], &err));
    assert_int_equal(n, n_part[0] + n_part[1] + 3);
    assert_int_equal(ids[at++], llm_vocab_bos(vocab));
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(ids + at, parts[i], n_part[i] * sizeof *ids);
        at += n_part[i];
        assert_int_equal(ids[at++], llm_vocab_sep(vocab));
        free(parts[i]);
    }
    free(ids);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores),
        cmocka_unit_test(test_faults_show),
        cmocka_unit_test(test_bad_heads),
        cmocka_unit_test(test_pair),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
