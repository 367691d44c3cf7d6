/* SPDX-License-Identifier: MIT
 *
 * test_golden_retrieval.c: the constructed models of retrieval/models.txt over 512 tokens: the
 * reference path gives llama.cpp's probabilities for the first model of each preset, the fast path
 * for all, and the keys at the end of the tokens are answered with their values.
 */
#include "tests/model/rig.h"

#include "tests/model/golden.h"
#include "tests/model/preset.h"

enum { N_TOK_MAX = 512, N_ASKED = 48, N_MODEL_MAX = 16, N_SUM = 4 };
/* Under a sanitizer, the first tokens: their rows do not depend on those behind them. */
#ifdef TANDEM_SANITIZED
enum { N_TOK = 96 };
#else
enum { N_TOK = N_TOK_MAX };
#endif

static struct {
    int32_t tokens[N_TOK_MAX];
    struct {
        char preset[32], type[16];
        int n_head_kv;
    } models[N_MODEL_MAX];
    int n_model;
    float sums[N_MODEL_MAX][N_TOK_MAX][N_SUM];
} list;

static bool list_read(const char *folder) {
    char path[512], line[4096];
    int n_tok = 0;
    snprintf(path, sizeof path, "%s/models.txt", folder);
    FILE *f = fopen(path, "r");
    if (f == NULL) return false;
    while (fgets(line, sizeof line, f) != NULL) {
        int i = list.n_model;
        if (strncmp(line, "tokens ", 7) == 0)
            for (char *p = line + 7; n_tok < N_TOK_MAX && *p != '\0'; p += *p == ',')
                list.tokens[n_tok++] = (int32_t)strtol(p, &p, 10);
        if (i < N_MODEL_MAX && sscanf(line, "model %31s %15s %d", list.models[i].preset,
                                      list.models[i].type, &list.models[i].n_head_kv) == 3)
            list.n_model++;
    }
    fclose(f);
    snprintf(path, sizeof path, "%s/sums.f32", folder);
    f = fopen(path, "rb");
    if (f == NULL) return false;
    size_t n = fread(list.sums, sizeof list.sums[0], (size_t)list.n_model, f);
    bool is_at_end = fgetc(f) == EOF;
    fclose(f);
    return n_tok == N_TOK_MAX && list.n_model > 0 && n == (size_t)list.n_model && is_at_end;
}

static tdm_type type_find(const char *name) {
    for (int i = 0; i < TDM_TYPE_LIMIT_; i++) {
        const char *known = tdm_type_get_info((tdm_type)i).name;
        if (known != NULL && strcmp(known, name) == 0) return (tdm_type)i;
    }
    fail_msg("no type %s", name);
    return TDM_TYPE_F32;
}

/* Probabilities behind each token. */
static void model_run(const char *path, tdm_open_device *dev, float *rows_out) {
    llm_model *model = rig_model(path, dev);
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = N_TOK_MAX};
    llm_context *ctx = rig_context(model, &params);
    rig_decode(ctx, list.tokens, N_TOK, N_TOK, rows_out);
    rig_softmax(rows_out, N_TOK, model->hparams.n_vocab);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* The sums that models.txt describes. */
static void rows_sum(const float *rows, int n_vocab, float (*sums)[N_SUM]) {
    for (int r = 0; r < N_TOK; r++)
        for (int k = 0; k < N_SUM; k++) {
            double sum = 0;
            for (int t = 0; t < n_vocab; t++) {
                bool is_added = ((uint32_t)(t + 1) * 0x9e3779b1u >> (28 + k) & 1) != 0;
                double p = (double)rows[(size_t)r * (size_t)n_vocab + (size_t)t];
                sum += is_added ? p : -p;
            }
            sums[r][k] = (float)sum;
        }
}

/* Keys at the end of the tokens whose value is the most likely token behind them. */
static int recalled_count(const float *rows, int n_vocab) {
    int n = 0;
    for (int r = N_TOK_MAX - N_ASKED; r < N_TOK; r++) {
        const float *row = rows + (size_t)r * (size_t)n_vocab;
        int best = 0, want = -1;
        for (int t = 1; t < n_vocab; t++)
            if (row[t] > row[best]) best = t;
        for (int i = 0; i < N_TOK_MAX - N_ASKED; i++)
            if (list.tokens[i] == list.tokens[r]) want = list.tokens[i + 1];
        n += best == want;
    }
    return n;
}

/* NMSE of the sums of model i from llama.cpp's, on a path. Adds keys that are not answered to
 * n_lost. */
static double model_compare(int i, const random_model_spec *spec, const char *way, int *n_lost) {
    static float sums[N_TOK_MAX][N_SUM];
    const int n_vocab = (int)spec->n_vocab;
    float *rows = malloc((size_t)N_TOK * (size_t)n_vocab * sizeof *rows);
    assert_non_null(rows);
    model_run(rig_file("model.gguf"), rig_device(NULL, way, 1), rows);
    rows_sum(rows, n_vocab, sums);
    if ((int)N_TOK == (int)N_TOK_MAX) *n_lost += N_ASKED - recalled_count(rows, n_vocab);
    free(rows);
    return rig_nmse(list.sums[i][0], sums[0], (size_t)N_TOK * N_SUM);
}

static void test_models(void **state) {
    (void)state;
    int n_bad = 0;
    printf("NMSE of probabilities from llama.cpp's\n");
    for (int i = 0; i < list.n_model; i++) {
        random_model_spec spec = preset_find(list.models[i].preset);
        tdm_error err = {0};
        int n_lost = 0;
        spec.type = type_find(list.models[i].type);
        spec.n_head_kv = list.models[i].n_head_kv;
        RIG_OK(random_model_write(&spec, rig_file("model.gguf"), NULL, NULL, NULL, &err));
        double fast = model_compare(i, &spec, "fast", &n_lost),
               bound = golden_fast_bound(spec.type);
        if (bound < GOLDEN_REFERENCE_BOUND) bound = GOLDEN_REFERENCE_BOUND;
        bool is_bad = fast > bound;
        printf("%-17s %-5s %d KV heads: fast %.1e", list.models[i].preset, list.models[i].type,
               list.models[i].n_head_kv, fast);
        if (i == 0 || strcmp(list.models[i].preset, list.models[i - 1].preset) != 0) {
            double nmse = model_compare(i, &spec, "reference", &n_lost);
            is_bad = is_bad || nmse > GOLDEN_REFERENCE_BOUND;
            printf(", reference %.1e", nmse);
        }
        printf(", %d keys lost%s\n", n_lost, is_bad || n_lost > 0 ? " WRONG" : "");
        n_bad += is_bad || n_lost > 0;
    }
    assert_int_equal(n_bad, 0);
}

/* Two models must not pass for each other: the comparison can fail. */
static void test_comparison(void **state) {
    (void)state;
    for (int i = 1; i < list.n_model; i++)
        assert_true(rig_nmse(list.sums[i - 1][0], list.sums[i][0], (size_t)N_TOK * N_SUM) >
                    GOLDEN_REFERENCE_BOUND);
}

int main(void) {
    char *folder = rig_source_file("tests/model/retrieval");
    if (folder == NULL || !list_read(folder)) {
        fprintf(stderr, "tests/model/retrieval: no golden data; run update.sh\n");
        free(folder);
        return 1;
    }
    free(folder);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_comparison),
                                       cmocka_unit_test(test_models)};
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
