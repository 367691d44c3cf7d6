/* SPDX-License-Identifier: MIT
 *
 * test_group_models.c: whole models on a group give the results of one device: the logits of a
 * prompt and of every generated token, and the same greedy tokens.
 *
 * Of models, members, shares, cache types, ways to cut attention and the rest, every pair of levels
 * is run together (group_cover.h). All combinations, some 80,000, for machines with hours to spare:
 *
 *     TANDEM_FULL=1 meson test -C BUILD group_models --timeout-multiplier 0
 *     TANDEM_FULL=K/N: the K-th of N parts of them
 */
#include "tests/model/rig.h"

#include <math.h>

#include "llm/report.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/group_cover.h"
#include "tests/model/group_device.h"
#include "tests/model/preset.h"

enum { N_PROMPT = 21, N_NEXT = 10 };

/* ---- Factors ---- */

enum factor {
    MODEL,
    TYPE,
    MEMBERS,
    SHARES,
    TYPE_K,
    TYPE_V,
    ATTENTION,
    ROTATION,
    EXPERTS,
    SPLIT,
    PATH,
    CHECK,
    N_FACTOR
};

static const char *const models[] = {"stories-3m",     "tiny-llama",          "tiny-mistral",
                                     "tiny-mixtral",   "tiny-one-kv-head",    "tiny-odd",
                                     "tiny-deepseek2", "tiny-deepseek2-lite", "tiny-llama-bias"};
enum { BIASED = 8 }; /* the last model, which has a test of its own */
static const tdm_type weight_types[] = {TDM_TYPE_Q8_0,   TDM_TYPE_Q4_0, TDM_TYPE_Q4_K,
                                        TDM_TYPE_Q6_K,   TDM_TYPE_F16,  TDM_TYPE_MXFP4,
                                        TDM_TYPE_IQ2_XS, TDM_TYPE_TQ1_0};
static const int member_counts[] = {1, 2, 3, 4, 7};
static const char *const shares[] = {"1", "3,1", "5,2,1", "1,0,2"};
static const tdm_type cache_types[] = {
#define KV_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_TYPE_LIST(KV_TYPE)
#undef KV_TYPE
};
static const char *const attentions[] = {"heads", "replicate", "sequence"};
static const char *const experts[] = {"hidden", "whole"};
static const char *const splits[] = {"tensor", "tensor", "layer"};
static const char *const paths[] = {"fast", "reference"};
static const char *const checks[] = {"off", "replicas"};

#define COUNT_OF(a) ((int)(sizeof(a) / sizeof *(a)))
static const int n_level[N_FACTOR] = {BIASED,
                                      COUNT_OF(weight_types),
                                      COUNT_OF(member_counts),
                                      COUNT_OF(shares),
                                      COUNT_OF(cache_types),
                                      COUNT_OF(cache_types),
                                      COUNT_OF(attentions),
                                      2,
                                      COUNT_OF(experts),
                                      COUNT_OF(splits),
                                      COUNT_OF(paths),
                                      COUNT_OF(checks)};

/* ---- Models ---- */

/* The fixture of tests/model/archs whose attention has an index. */
#define SPARSE "deepseek32-select"

/* The file of a model, written at the first call. */
static const char *model_file(const char *name, tdm_type type) {
    static char *stories;
    char file[64];
    if (strcmp(name, "stories-3m") == 0) {
        if (stories == NULL) stories = rig_source_file("models/stories-3m-q8_0.gguf");
        assert_non_null(stories);
        return stories;
    }
    if (strcmp(name, SPARSE) == 0) {
        const char *path = rig_file(SPARSE ".gguf");
        char *head = rig_source_file("tests/model/archs/" SPARSE ".head");
        assert_true(head != NULL && arch_fixture_write(head, SPARSE, 1, path));
        free(head);
        return path;
    }
    snprintf(file, sizeof file, "%s-%s.gguf", name, tdm_type_name(type));
    random_model_spec spec = preset_find(name);
    spec.type = type;
    return preset_file(file, &spec);
}

/* A latent cache has one type; every model of that kind is called so. */
static bool is_latent(const char *name) {
    return strstr(name, "deepseek") != NULL;
}

/* ---- Running ---- */

typedef struct run {
    int n_vocab;
    float *logits; /* [N_PROMPT + N_NEXT, n_vocab] */
    int32_t tokens[N_PROMPT + N_NEXT];
} run;

static int argmax(const float *x, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (x[i] > x[best]) best = i;
    return best;
}

/* A prompt in ubatches, whose tokens have that role, then greedy tokens one by one, or those of
 * `given` (nullable). */
static run model_run_as(const char *path, tdm_open_device *dev, const llm_context_params *params,
                        tdm_role role, const run *given) {
    uint8_t roles[N_PROMPT];
    run r = {0};
    llm_model *model = rig_model(path, dev);
    llm_context *ctx = rig_context(model, params);
    r.n_vocab = model->hparams.n_vocab;
    size_t n = (size_t)r.n_vocab;
    r.logits = malloc((N_PROMPT + N_NEXT) * n * sizeof *r.logits);
    assert_non_null(r.logits);
    for (int i = 0; i < N_PROMPT; i++) r.tokens[i] = (i * 7919 + i * i * 31 + 13) % r.n_vocab;
    memset(roles, (int)role, sizeof roles);
    rig_decode_as(ctx, r.tokens, roles, N_PROMPT, N_PROMPT, r.logits);
    for (int i = N_PROMPT; i < N_PROMPT + N_NEXT; i++) {
        r.tokens[i] = argmax(r.logits + (size_t)(i - 1) * n, r.n_vocab);
        int32_t token = given != NULL ? given->tokens[i] : r.tokens[i];
        rig_decode(ctx, &token, 1, 1, r.logits + (size_t)i * n);
    }
    llm_context_destroy(ctx);
    llm_model_close(model);
    return r;
}

/* With 15 bits throughout: what a group must repeat. */
static run model_run(const char *path, tdm_open_device *dev, const llm_context_params *params,
                     const run *given) {
    return model_run_as(path, dev, params, TDM_ROLE_GENERATED, given);
}

/* How far the largest logit is above the second. */
static double margin_of(const float *x, int n) {
    int best = argmax(x, n);
    float second = -INFINITY;
    for (int i = 0; i < n; i++)
        if (i != best && x[i] > second) second = x[i];
    return (double)x[best] - (double)second;
}

static double rms_of(const float *a, const float *b, int n) {
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += ((double)a[i] - (double)b[i]) * ((double)a[i] - (double)b[i]);
    return sqrt(sum / n);
}

typedef struct totals {
    int n_row, n_bad, n_token, n_close, n_coarse;
    double worst;
} totals;

static double moved_by(const char *path, const char *device_path, const llm_context_params *params,
                       const run *one) {
    run again = model_run(path, group_single(device_path), params, one);
    double by = rig_nmse(one->logits, again.logits, (N_PROMPT + N_NEXT) * (size_t)one->n_vocab);
    free(again.logits);
    return by;
}

/* Where the cache has few bits, a difference in the last bit of a number can become a whole step of
 * that type. The bound is then by how much runs of one device differ. On the fast path: 4 times the
 * largest difference to a run with other ubatches and pages. On the reference path, which these do
 * not change: the difference to the fast path. */
static bool is_as_one_device(const char *path, const group_config *config,
                             const llm_context_params *params, const run *one, double nmse) {
    llm_context_params other = *params;
    double moved = 0;
    if (nmse > 1e-4 || (!tdm_type_get_info(*params->type_k).is_quantized &&
                        !tdm_type_get_info(*params->type_v).is_quantized))
        return false;
    if (strcmp(config->path, "reference") == 0) return nmse <= moved_by(path, "fast", params, one);
    for (int i = 0; i < 3; i++) {
        other.n_ubatch = 5 + 3 * i;
        other.page_len = 2 << i;
        double by = moved_by(path, config->path, &other, one);
        if (by > moved) moved = by;
    }
    return nmse <= 4 * moved;
}

/* How many greedy tokens differ where one device's margin is above 8 times the RMS error; counts
 * them all and those that are too close to call. */
static int wrong_count(const run *one, const run *many, totals *sum) {
    size_t n_vocab = (size_t)one->n_vocab;
    int n_wrong = 0;
    for (int i = N_PROMPT; i < N_PROMPT + N_NEXT; i++) {
        const float *a = one->logits + (size_t)(i - 1) * n_vocab;
        const float *b = many->logits + (size_t)(i - 1) * n_vocab;
        bool is_close = margin_of(a, one->n_vocab) <= 8 * rms_of(a, b, one->n_vocab);
        sum->n_token++;
        sum->n_close += is_close;
        n_wrong += one->tokens[i] != many->tokens[i] && !is_close;
    }
    return n_wrong;
}

static void row_run(const unsigned char *level, totals *sum) {
    const char *name = models[level[MODEL]];
    const char *path = model_file(name, weight_types[level[TYPE]]);
    tdm_type k = cache_types[level[TYPE_K]];
    tdm_type v = is_latent(name) ? k : cache_types[level[TYPE_V]];
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 64,
                                       .n_ubatch = 16,
                                       .page_len = 8,
                                       .type_k = &k,
                                       .type_v = &v,
                                       .is_unrotated = level[ROTATION] != 0};
    const group_config config = {.n_member = member_counts[level[MEMBERS]],
                                 .shares = shares[level[SHARES]],
                                 .path = paths[level[PATH]],
                                 .split = splits[level[SPLIT]],
                                 .attention = attentions[level[ATTENTION]],
                                 .experts = experts[level[EXPERTS]],
                                 .check = checks[level[CHECK]]};
    int n_warning = rig_n_warning();
    run one = model_run(path, group_single(config.path), &params, NULL);
    run many = model_run(path, group_device(&config), &params, &one);
    size_t n_vocab = (size_t)one.n_vocab;
    double nmse = rig_nmse(one.logits, many.logits, (N_PROMPT + N_NEXT) * n_vocab);
    int n_wrong = wrong_count(&one, &many, sum);
    sum->n_row++;
    if (nmse > sum->worst) sum->worst = nmse;
    bool is_coarse = nmse > 1e-6 && is_as_one_device(path, &config, &params, &one, nmse);
    sum->n_coarse += is_coarse;
    if ((nmse > 1e-6 && !is_coarse) || n_wrong > 0 || rig_n_warning() != n_warning) {
        sum->n_bad++;
        printf("WRONG: %s %s, cache %s %s%s, %s: NMSE %.1e, %d greedy tokens differ%s\n", name,
               tdm_type_name(weight_types[level[TYPE]]), tdm_type_name(k), tdm_type_name(v),
               params.is_unrotated ? " unrotated" : "", group_words(&config), nmse, n_wrong,
               rig_n_warning() != n_warning ? ", and a warning" : "");
    }
    free(one.logits);
    free(many.logits);
}

/* ---- Tests ---- */

static void test_cover(void **state) {
    (void)state;
    static cover c = {.n_factor = 4, .n_level = {3, 4, 2, 5}};
    assert_true(cover_make(&c));
    assert_int_equal(cover_missing(&c), 0);
    assert_true(c.n_row >= 20 && c.n_row <= 26);
    c.n_row = 19; /* 4 x 5 pairs need 20 */
    assert_true(cover_missing(&c) > 0);
}

/* Every combination of what matters to the cut of a cache; the rest comes in turns. */
static void rows_all(const char *part, totals *sum) {
    static const int crossed[] = {MODEL, MEMBERS, SHARES, TYPE_K, TYPE_V, ATTENTION, ROTATION};
    static const int in_turn[] = {TYPE, EXPERTS, SPLIT, PATH, CHECK};
    unsigned char level[N_FACTOR] = {0};
    long long at = 0, k = 1, n = 1;
    if (strchr(part, '/') != NULL && (sscanf(part, "%lld/%lld", &k, &n) != 2 || n < 1))
        fail_msg("TANDEM_FULL=%s is not K/N", part);
    for (int i = 0; i >= 0;) {
        uint32_t turn = (uint32_t)at * 2654435761u >> 8;
        for (int f = 0; f < COUNT_OF(in_turn); f++) {
            level[in_turn[f]] = (unsigned char)(turn % (uint32_t)n_level[in_turn[f]]);
            turn /= (uint32_t)n_level[in_turn[f]];
        }
        if (at++ % n == k % n) row_run(level, sum);
        for (i = COUNT_OF(crossed) - 1; i >= 0; i--) {
            if (++level[crossed[i]] < n_level[crossed[i]]) break;
            level[crossed[i]] = 0;
        }
    }
    printf("%lld combinations in all\n", at);
}

static void test_models(void **state) {
    (void)state;
    static cover c = {.n_factor = N_FACTOR};
    totals sum = {0};
    const char *full = getenv("TANDEM_FULL");
    if (full != NULL && full[0] != '\0') {
        rows_all(full, &sum);
    } else {
        memcpy(c.n_level, n_level, sizeof n_level);
        assert_true(cover_make(&c));
        assert_int_equal(cover_missing(&c), 0);
#ifdef TANDEM_SANITIZED
        c.n_row = 8;
#endif
        for (int i = 0; i < c.n_row; i++) row_run(c.rows[i], &sum);
    }
    printf("%d combinations, worst NMSE %.1e, above 1e-6 in %d, as on one device that rounds "
           "otherwise; "
           "%d of %d greedy tokens too close to call\n",
           sum.n_row, sum.worst, sum.n_coarse, sum.n_close, sum.n_token);
    assert_int_equal(sum.n_bad, 0);
    assert_true(sum.n_coarse * 10 <= sum.n_row);
    assert_true(sum.n_close * 50 <= sum.n_token);
}

/* Every bias that a Llama may have, cut or not, counts once. */
static void test_biases(void **state) {
    (void)state;
    totals sum = {0};
#ifdef TANDEM_SANITIZED
    enum { N_ROW = 3 };
#else
    enum { N_ROW = 15 };
#endif
    for (int i = 0; i < N_ROW; i++) {
        unsigned char level[N_FACTOR] = {0};
        for (int f = 0; f < N_FACTOR; f++) level[f] = (unsigned char)(i % n_level[f]);
        level[MODEL] = BIASED;
        level[TYPE_K] = (unsigned char)(i % 4); /* down to q8_0 */
        level[TYPE_V] = (unsigned char)((i + 1) % 4);
        level[CHECK] = (unsigned char)(i / 2 % 2);
        row_run(level, &sum);
    }
    assert_int_equal(sum.n_row, N_ROW);
    assert_int_equal(sum.n_bad, 0);
    assert_int_equal(sum.n_coarse, 0);
}

/* The logits of a prompt are the same bits however it is cut into ubatches. One model for all,
 * since a group may cut another load of it in other places. Uses `a` and `b` for rows. */
static void chunks_check(const char *path, tdm_open_device *group, const llm_context_params *params,
                         const int32_t *tokens, float *a, float *b) {
    static const int32_t sizes[] = {16, 5, 1, 32};
    llm_model *model = rig_model(path, group);
    size_t n = N_PROMPT * (size_t)model->hparams.n_vocab;
    uint8_t roles[N_PROMPT];
    memset(roles, TDM_ROLE_PROMPT, sizeof roles);
    for (int i = 0; i < COUNT_OF(sizes); i++) {
        llm_context_params p = *params;
        p.n_ubatch = sizes[i];
        llm_context *ctx = rig_context(model, &p);
        rig_decode_as(ctx, tokens, roles, N_PROMPT, N_PROMPT, i == 0 ? a : b);
        llm_context_destroy(ctx);
        if (i > 0 && memcmp(a, b, n * sizeof *a) != 0)
            fail_msg("ubatches of %d: NMSE %.1e", sizes[i], rig_nmse(a, b, n));
    }
    llm_model_close(model);
}

/* A group of devices with activation-bits = auto, which is the default: near one such device, and a
 * prompt's bits do not depend on how it is cut into ubatches. */
static void test_roles(void **state) {
    (void)state;
    static const struct {
        const char *model;
        tdm_type type;
        group_config config;
    } cases[] = {
        {"stories-3m", TDM_TYPE_Q8_0, {.n_member = 2, .shares = "3,1"}},
        {"tiny-llama", TDM_TYPE_Q4_K, {.n_member = 3, .shares = "5,2,1"}},
        {"tiny-llama", TDM_TYPE_Q4_0, {.n_member = 2, .shares = "1", .attention = "sequence"}},
        {"tiny-mixtral", TDM_TYPE_Q4_0, {.n_member = 2, .shares = "1"}},
        {"tiny-mixtral", TDM_TYPE_Q8_0, {.n_member = 2, .shares = "1", .experts = "whole"}},
        {"tiny-deepseek2",
         TDM_TYPE_Q8_0,
         {.n_member = 2, .shares = "3,1", .attention = "replicate"}},
        {"tiny-llama", TDM_TYPE_Q4_0, {.n_member = 2, .shares = "1", .split = "layer"}},
    };
    totals sum = {0};
    for (int i = 0; i < COUNT_OF(cases); i++) {
        const char *path = model_file(cases[i].model, cases[i].type);
        llm_context_params params = {
            .struct_size = sizeof params, .n_ctx = 64, .n_ubatch = 16, .page_len = 8};
        group_config config = cases[i].config;
        config.path = RIG_FAST_AUTO;
        tdm_open_device *group = group_device(&config);
        run one = model_run_as(path, group_single(RIG_FAST_AUTO), &params, TDM_ROLE_PROMPT, NULL);
        run many = model_run_as(path, group, &params, TDM_ROLE_PROMPT, &one);
        run exact = model_run(path, group, &params, &one);
        size_t n = (N_PROMPT + N_NEXT) * (size_t)one.n_vocab;
        double nmse = rig_nmse(one.logits, many.logits, n);
        int n_wrong = wrong_count(&one, &many, &sum);
        printf("%s %s, %s: NMSE %.1e, %.1e of 15 bits\n", cases[i].model,
               tdm_type_name(cases[i].type), group_words(&config), nmse,
               rig_nmse(exact.logits, many.logits, n));
        assert_true(nmse <= 1e-3);
        assert_int_equal(n_wrong, 0);
        assert_memory_not_equal(exact.logits, many.logits, n * sizeof *exact.logits);
        chunks_check(path, group, &params, many.tokens, many.logits, exact.logits);
        free(exact.logits);
        free(many.logits);
        free(one.logits);
    }
    printf("%d of %d greedy tokens too close to call\n", sum.n_close, sum.n_token);
}

/* Prompts whose sums are of several chunks (tandem/collective.h), and wires that cost precision. */
static void test_long_prompt(void **state) {
    (void)state;
    enum { N_LONG = 300, N_ROW = 5 };
    static const struct {
        group_config config;
        double bound;
    } cases[] = {
        {{.n_member = 3, .shares = "5,2,1"}, 1e-8},
        {{.n_member = 2, .attention = "sequence"}, 1e-8},
        {{.n_member = 4, .attention = "replicate", .check = "replicas"}, 1e-8},
        {{.n_member = 2, .reduce_type = "f16"}, 1e-6},
        {{.n_member = 2, .reduce_type = "bf16"}, 1e-4},
        {{.n_member = 3, .reduce_type = "q8_0"}, 1e-3},
    };
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 512, .n_ubatch = 512, .page_len = 16};
    int32_t tokens[N_LONG];
    const char *path = model_file("tiny-llama", TDM_TYPE_Q8_0);
    llm_model *model = rig_model(path, group_single("fast"));
    size_t n = N_ROW * (size_t)model->hparams.n_vocab;
    float *one = malloc(n * sizeof *one), *many = malloc(n * sizeof *many);
    assert_true(one != NULL && many != NULL);
    assert_true((long)N_LONG * model->hparams.n_embd > TDM_EXCHANGE_CHUNK);
    for (int i = 0; i < N_LONG; i++)
        tokens[i] = (i * 7919 + i * i * 31 + 13) % model->hparams.n_vocab;
    llm_context *ctx = rig_context(model, &params);
    rig_decode(ctx, tokens, N_LONG, N_ROW, one);
    llm_context_destroy(ctx);
    llm_model_close(model);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        model = rig_model(path, group_device(&cases[i].config));
        ctx = rig_context(model, &params);
        rig_decode(ctx, tokens, N_LONG, N_ROW, many);
        llm_context_destroy(ctx);
        llm_model_close(model);
        double nmse = rig_nmse(one, many, n);
        printf("%s: NMSE %.1e\n", group_words(&cases[i].config), nmse);
        if (nmse > cases[i].bound) fail_msg("more than %.0e", cases[i].bound);
    }
    free(one);
    free(many);
}

/* The exchanges of a token are those of the design: the sum of the embedding's rows, one of
 * attention and one of the feed-forward block in each layer, dense or of experts. No layout is
 * lost, which would need a gather. */
static void test_exchanges(void **state) {
    (void)state;
    static const struct {
        const char *model, *attention, *split, *odd_path;
        int n_member;
        int n_once, n_layer; /* exchanges in all, and of each layer */
    } cases[] = {
        {"tiny-llama", "heads", "tensor", NULL, 2, 1, 2},
        {"tiny-mistral", "replicate", "tensor", NULL, 2, 1, 2},
        {"tiny-mixtral", "heads", "tensor", NULL, 2, 1, 2},
        {"tiny-one-kv-head", "replicate", "tensor", NULL, 2, 1, 2},
        /* Members that round differently: one of them selects the experts. Of a KV head that
         * several members hold, one computes K and V for all. */
        {"tiny-llama", "heads", "tensor", "reference", 2, 1, 2},
        {"tiny-mixtral", "heads", "tensor", "reference", 2, 1, 3},
        {"tiny-one-kv-head", "replicate", "tensor", "reference", 2, 1, 3},
        /* A member sends the next one what its last layer computed, and nothing else. */
        {"tiny-llama", "heads", "layer", NULL, 2, 1, 0},
        {"tiny-mistral", "heads", "layer", NULL, 2, 1, 0},
        {"tiny-mixtral", "heads", "layer", NULL, 2, 1, 0},
        {"tiny-deepseek2", "heads", "layer", NULL, 2, 1, 0},
        {"tiny-deepseek2", "heads", "layer", NULL, 3, 2, 0},
        /* The head is the embedding, which the last member holds: its rows are sent too. */
        {"tiny-one-kv-head", "replicate", "layer", NULL, 2, 2, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tdm_error err = {0};
        llm_model *model = NULL;
        const group_config config = {.n_member = cases[i].n_member,
                                     .odd_path = cases[i].odd_path,
                                     .attention = cases[i].attention,
                                     .split = cases[i].split};
        tdm_split_report report = {.struct_size = sizeof report,
                                   .member_size = sizeof(tdm_split_member)};
        RIG_OK(llm_model_open(model_file(cases[i].model, TDM_TYPE_Q8_0), &model, &err));
        RIG_OK(llm_model_report(model, group_device(&config), NULL, 1, 1, &report, &err));
        int expected = cases[i].n_once + cases[i].n_layer * model->hparams.n_layer;
        if (report.n_exchange != expected || report.n_relayout != 0)
            fail_msg("%s on %s: %d exchanges, %d of them gathers; %d are enough", cases[i].model,
                     group_words(&config), (int)report.n_exchange, (int)report.n_relayout,
                     expected);
        llm_model_close(model);
    }
}

/* attention = auto: the exchanges of a step show which way was chosen. */
static void test_attention_auto(void **state) {
    (void)state;
    static const struct {
        const char *model, *same_as;
        int n_member, n_ctx;
    } cases[] = {
        {"tiny-llama", "heads", 2, 64},
        {"tiny-one-kv-head", "replicate", 2, 64},
        {"tiny-one-kv-head", "sequence", 2, 1 << 18},
        {"tiny-deepseek2", "replicate", 2, 64},
        {"tiny-deepseek2", "sequence", 2, 1 << 18},
        /* KV_SELECT reads whole sequences. */
        {SPARSE, "replicate", 2, 1 << 18},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tdm_split_report reports[2];
        for (int k = 0; k < 2; k++) {
            char name[64];
            tdm_error err = {0};
            llm_model *model = NULL;
            /* Each case has a group of its own, since the first model decides. */
            snprintf(name, sizeof name, "auto %d %d", (int)i, k);
            const group_config config = {.n_member = cases[i].n_member,
                                         .name = name,
                                         .attention = k == 0 ? "auto" : cases[i].same_as};
            const llm_context_params params = {.struct_size = sizeof params,
                                               .n_ctx = cases[i].n_ctx};
            reports[k] = (tdm_split_report){.struct_size = sizeof reports[k],
                                            .member_size = sizeof(tdm_split_member)};
            RIG_OK(llm_model_open(model_file(cases[i].model, TDM_TYPE_Q8_0), &model, &err));
            RIG_OK(
                llm_model_report(model, group_device(&config), &params, 1, 1, &reports[k], &err));
            llm_model_close(model);
        }
        if (reports[0].n_exchange != reports[1].n_exchange ||
            reports[0].exchange_size != reports[1].exchange_size)
            fail_msg("%s, %d tokens: auto has %d exchanges, %s has %d", cases[i].model,
                     cases[i].n_ctx, (int)reports[0].n_exchange, cases[i].same_as,
                     (int)reports[1].n_exchange);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cover),          cmocka_unit_test(test_long_prompt),
        cmocka_unit_test(test_roles),          cmocka_unit_test(test_exchanges),
        cmocka_unit_test(test_models),         cmocka_unit_test(test_biases),
        cmocka_unit_test(test_attention_auto),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
