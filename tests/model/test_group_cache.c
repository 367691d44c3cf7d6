/* SPDX-License-Identifier: MIT
 *
 * test_group_cache.c: cached tokens on a group behave as on one device: several sequences in a
 * step, shared prefixes, truncation, shifts, and a sequence that is saved with one topology and
 * loaded with another.
 */
#include "tests/model/rig.h"

#include <math.h>

#include "llm/cache/state.h"
#include "tests/model/group_device.h"
#include "tests/model/preset.h"
#include "tests/support/random.h"

enum { N_CTX = 256, N_ROW_MAX = 400, N_SAVED = 70, N_NEXT = 6 };

/* Models with what their caches are kept in. The bound is 1e-6, for the keys of 5 bits 1e-5: where
 * a difference in the last bit rounds an element to the next code, that step is the error. With
 * keys of f16 the same model and groups stay below 1e-7. */
static const struct {
    const char *preset;
    tdm_type weights, k, v;
    bool is_unrotated;
    double bound;    /* NMSE of logits */
    bool is_layered; /* the types are those of `layered` instead */
} setups[] = {
    {"tiny-llama", TDM_TYPE_Q8_0, TDM_TYPE_F32, TDM_TYPE_F32, false, 1e-7},
    {"tiny-llama", TDM_TYPE_Q4_0, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, false, 1e-6},
    {"tiny-mixtral", TDM_TYPE_Q8_0, TDM_TYPE_F16, TDM_TYPE_Q8_0, true, 1e-6},
    {"tiny-one-kv-head", TDM_TYPE_Q8_0, TDM_TYPE_Q5_1, TDM_TYPE_F16, false, 1e-5},
    {"tiny-deepseek2", TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, false, 1e-6},
    {"tiny-odd", TDM_TYPE_Q8_0, TDM_TYPE_F16, TDM_TYPE_F16, false, 1e-6},
    {"tiny-llama", TDM_TYPE_Q8_0, TDM_TYPE_F16, TDM_TYPE_F16, false, 1e-5, true},
};
enum { N_SETUP = sizeof setups / sizeof *setups };

/* Types that differ between the layers of a model of two, and between their K and V. */
static const llm_layer_types layered[] = {
    {TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, true, false},
    {TDM_TYPE_Q5_1, TDM_TYPE_F16, false, true},
};

static const group_config groups[] = {
    {.n_member = 2, .shares = "3,1", .attention = "heads"},
    {.n_member = 3, .shares = "5,2,1", .attention = "replicate"},
    {.n_member = 2, .attention = "sequence"},
    {.n_member = 4, .shares = "1,0,2", .attention = "sequence"},
    {.n_member = 3, .shares = "0,1", .attention = "heads", .check = "replicas"},
    {.n_member = 2, .split = "layer"},
    /* their caches in the host's memory */
    {.n_member = 2, .shares = "3,1", .attention = "heads", .is_away = true},
    {.n_member = 3, .shares = "5,0,1", .attention = "replicate", .is_away = true},
    {.n_member = 3, .shares = "5,2,1", .attention = "sequence", .is_away = true},
};
enum { N_GROUP = sizeof groups / sizeof *groups };

/* Whether types of each layer are tried there: on one device (-1), heads on two members, replicas
 * on three, tokens on two, whole layers. */
static bool is_for_layers(int group) {
    return group < 3 || group == 5;
}

static const char *model_path(int setup) {
    char file[64];
    snprintf(file, sizeof file, "%d.gguf", setup);
    random_model_spec spec = preset_find(setups[setup].preset);
    spec.type = setups[setup].weights;
    return preset_file(file, &spec);
}

static llm_context *context_make(llm_model *model, int setup, int page_len, bool is_in_host) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = N_CTX,
                                       .n_ubatch = 32,
                                       .n_seq = 4,
                                       .page_len = page_len,
                                       .type_k = &setups[setup].k,
                                       .type_v = &setups[setup].v,
                                       .layer_types = setups[setup].is_layered ? layered : NULL,
                                       .is_unrotated = setups[setup].is_unrotated,
                                       .is_cache_in_host = is_in_host};
    return rig_context(model, &params);
}

/* ---- One story on any device ---- */

typedef struct tale {
    llm_context *ctx;
    int n_vocab;
    float *rows; /* [N_ROW_MAX, n_vocab] the requested logits */
    int n_row;
    uint64_t random;
} tale;

static uint32_t tale_next(tale *t, uint32_t n) {
    return random_u32_below(&t->random, n);
}

static void take_rows(tale *t, int n) {
    assert_true(t->n_row + n <= N_ROW_MAX);
    for (int i = 0; i < n; i++)
        memcpy(t->rows + (size_t)t->n_row++ * (size_t)t->n_vocab, llm_context_logits(t->ctx, i),
               (size_t)t->n_vocab * sizeof *t->rows);
}

/* n tokens for each of the sequences in `mask`, in one batch; logits of each one's last two. */
static void append(tale *t, unsigned mask, int n) {
    int32_t tokens[4 * 80], seqs[4 * 80];
    bool wanted[4 * 80];
    tdm_error err = {0};
    int at = 0, n_wanted = 0;
    for (int i = 0; i < n; i++)
        for (int s = 0; s < 4; s++) {
            if ((mask >> s & 1) == 0) continue;
            tokens[at] = (int32_t)tale_next(t, (uint32_t)t->n_vocab);
            seqs[at] = s;
            wanted[at] = i >= n - 2;
            n_wanted += wanted[at++];
        }
    const llm_batch batch = {tokens, seqs, wanted, at};
    RIG_OK(llm_context_decode(t->ctx, &batch, &err));
    take_rows(t, n_wanted);
}

static void tale_tell(tale *t) {
    tdm_error err = {0};
    append(t, 1, 37);
    append(t, 6, 13); /* two at once */
    append(t, 7, 1);
    append(t, 7, 1);
    /* a prefix that is shared, then two ways to go on */
    RIG_OK(llm_context_fork(t->ctx, 3, 0, 30, &err));
    append(t, 9, 5);
    append(t, 8, 1);
    RIG_OK(llm_context_truncate(t->ctx, 0, 20, &err));
    append(t, 1, 3);
    append(t, 1, 1);
    /* shifted, alone and where pages are shared */
    RIG_OK(llm_context_shift(t->ctx, 1, 2, 5, &err));
    append(t, 2, 1);
    RIG_OK(llm_context_shift(t->ctx, 3, 4, 9, &err));
    append(t, 15, 2);
    RIG_OK(llm_context_shift(t->ctx, 0, 0, 7, &err));
    append(t, 1, 40);
    RIG_OK(llm_context_truncate(t->ctx, 2, 0, &err));
    append(t, 4, 11);
    append(t, 15, 1);
}

static tale tale_run(const char *path, tdm_open_device *dev, int setup, bool is_in_host) {
    /* Of these draws few elements of a cache of 4 or 5 bits lie so near the middle of two codes
     * that a difference in the last bit rounds them to the other. */
    tale t = {.random = 2};
    llm_model *model = rig_model(path, dev);
    t.n_vocab = model->hparams.n_vocab;
    t.rows = calloc(N_ROW_MAX * (size_t)t.n_vocab, sizeof *t.rows);
    assert_non_null(t.rows);
    t.ctx = context_make(model, setup, 16, is_in_host);
    tale_tell(&t);
    llm_context_destroy(t.ctx);
    llm_model_close(model);
    return t;
}

static void test_tales(void **state) {
    (void)state;
    double worst = 0;
    int n_bad = 0;
    for (int s = 0; s < N_SETUP; s++) {
        const char *path = model_path(s);
        tale one = tale_run(path, group_single("fast"), s, false);
        for (int g = 0; g < N_GROUP; g++) {
            if (setups[s].is_layered && !is_for_layers(g)) continue;
            tale many = tale_run(path, group_device(&groups[g]), s, groups[g].is_away);
            double nmse = INFINITY;
            assert_int_equal(one.n_row, many.n_row);
            for (int r = 0; r < one.n_row; r++) {
                size_t at = (size_t)r * (size_t)one.n_vocab;
                nmse = rig_nmse(one.rows + at, many.rows + at, (size_t)one.n_vocab);
                if (nmse > worst) worst = nmse;
                if (nmse <= setups[s].bound) continue;
                n_bad++;
                printf("WRONG: %s, cache %s %s%s, %s: row %d of %d: NMSE %.1e\n", setups[s].preset,
                       tdm_type_name(setups[s].k), tdm_type_name(setups[s].v),
                       setups[s].is_layered ? " by layers" : "", group_words(&groups[g]), r,
                       one.n_row, nmse);
                break;
            }
            free(many.rows);
        }
        free(one.rows);
    }
    printf("%d models on %d groups, worst NMSE of a row %.1e\n", N_SETUP, N_GROUP, worst);
    assert_int_equal(n_bad, 0);
}

/* ---- States from one topology to another ---- */

static int32_t saved[N_SAVED + N_NEXT];

/* Logits behind the saved tokens in sequence seq; the caller frees them. */
static float *go_on(llm_context *ctx, int seq) {
    tdm_error err = {0};
    size_t n = (size_t)N_NEXT * (size_t)llm_context_model(ctx)->hparams.n_vocab;
    float *rows = malloc(n * sizeof *rows);
    int32_t seqs[N_NEXT];
    bool wanted[N_NEXT];
    assert_non_null(rows);
    for (int i = 0; i < N_NEXT; i++) {
        seqs[i] = seq;
        wanted[i] = true;
    }
    const llm_batch batch = {saved + N_SAVED, seqs, wanted, N_NEXT};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    memcpy(rows, llm_context_logits(ctx, 0), n * sizeof *rows);
    return rows;
}

static tdm_open_device *topology(int i) {
    return i < 0 ? group_single("fast") : group_device(&groups[i]);
}

static bool is_away(int i) {
    return i >= 0 && groups[i].is_away;
}

static const char *topology_words(int i) {
    return i < 0 ? "one device" : group_words(&groups[i]);
}

/* Saves on one topology; logits of what comes next there. */
static float *save(int setup, int from, const char *path, size_t *n_out) {
    tdm_error err = {0};
    llm_model *model = rig_model(model_path(setup), topology(from));
    llm_context *ctx = context_make(model, setup, 16, is_away(from));
    for (int i = 0; i < N_SAVED + N_NEXT; i++)
        saved[i] = (i * 7919 + i * i * 31 + 13) % model->hparams.n_vocab;
    const llm_batch batch = {saved, NULL, NULL, N_SAVED};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    RIG_OK(llm_state_save(ctx, 0, saved, N_SAVED, path, &err));
    *n_out = (size_t)N_NEXT * (size_t)model->hparams.n_vocab;
    float *rows = go_on(ctx, 0);
    llm_context_destroy(ctx);
    llm_model_close(model);
    return rows;
}

static double load_and_compare(int setup, int to, const char *path, const float *expected,
                               size_t n) {
    tdm_error err = {0};
    int32_t *ids = NULL, n_id = 0;
    llm_model *model = rig_model(model_path(setup), topology(to));
    llm_context *ctx = context_make(model, setup, 8, is_away(to)); /* other pages */
    RIG_OK(llm_state_load(ctx, 2, path, &ids, &n_id, &err));
    assert_int_equal(n_id, N_SAVED);
    float *rows = go_on(ctx, 2);
    double nmse = rig_nmse(expected, rows, n);
    free(rows);
    free(ids);
    llm_context_destroy(ctx);
    llm_model_close(model);
    return nmse;
}

static void test_states(void **state) {
    (void)state;
    static const int ways[][2] = {{-1, 0}, {0, -1}, {2, -1}, {-1, 2}, {0, 1},
                                  {1, 2},  {2, 3},  {3, 1},  {5, 0},  {3, 5},
                                  {-1, 6}, {6, -1}, {7, 8},  {8, 0},  {2, 7}};
    double worst = 0;
    int n_bad = 0;
    for (int s = 0; s < N_SETUP; s++) {
        for (size_t w = 0; w < sizeof ways / sizeof *ways; w++) {
            if (setups[s].is_layered && !(is_for_layers(ways[w][0]) && is_for_layers(ways[w][1])))
                continue;
            const char *path = rig_file("saved.state");
            size_t n = 0;
            float *expected = save(s, ways[w][0], path, &n);
            double nmse = load_and_compare(s, ways[w][1], path, expected, n);
            free(expected);
            if (nmse > worst) worst = nmse;
            if (nmse <= setups[s].bound) continue;
            n_bad++;
            printf("WRONG: %s, cache %s %s, saved by %s", setups[s].preset,
                   tdm_type_name(setups[s].k), tdm_type_name(setups[s].v),
                   topology_words(ways[w][0]));
            printf(", loaded by %s: NMSE %.1e\n", topology_words(ways[w][1]), nmse);
        }
    }
    printf("worst NMSE behind a loaded state %.1e\n", worst);
    assert_int_equal(n_bad, 0);
}

/* The file does not depend on the device that wrote it. */
static void test_same_file(void **state) {
    (void)state;
    int n_bad = 0;
    for (int g = 0; g < N_GROUP; g++) {
        const char *one = rig_file("one.state"), *many = rig_file("many.state");
        size_t n = 0;
        free(save(0, -1, one, &n));
        free(save(0, g, many, &n));
        FILE *a = fopen(one, "rb"), *b = fopen(many, "rb");
        assert_non_null(a);
        assert_non_null(b);
        fseek(a, 0, SEEK_END);
        fseek(b, 0, SEEK_END);
        if (ftell(a) != ftell(b)) {
            n_bad++;
            printf("WRONG: %s: a file of %ld bytes, one device's has %ld\n",
                   group_words(&groups[g]), ftell(b), ftell(a));
        }
        fclose(a);
        fclose(b);
    }
    assert_int_equal(n_bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tales),
        cmocka_unit_test(test_states),
        cmocka_unit_test(test_same_file),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
