/* SPDX-License-Identifier: MIT
 *
 * test_matrix.c: models of several architectures on groups of emulated CUDA and HIP devices and the
 * CPU: a set of combinations in which every pair of levels of two factors occurs (group_cover.h).
 * Every type of K and of V is among the levels. The bound is that of unlike members: the RMS error
 * against the CPU's reference path is at most twice that of the worst of CUDA and the CPU alone.
 *
 *     test_matrix CUDA_DRIVER HIP_DRIVER
 */
#include "tests/simt/vendors.h"

#include "core/runtime.h"
#include "tests/model/group_cover.h"
#include "tests/model/preset.h"

enum { N_PROMPT = 9, N_NEXT = 2, N_ROW = N_PROMPT + N_NEXT };

/* ---- Factors --------------------------------------------------------------------------------- */

enum factor { MODEL, CACHE, MEMBERS, SHARES, ATTENTION, SPLIT, N_FACTOR };

static const struct {
    const char *preset;
    tdm_type type;
} models[] = {{"tiny-llama-bias", TDM_TYPE_Q8_0},
              {"tiny-mixtral", TDM_TYPE_Q4_K},
              {"tiny-one-kv-head", TDM_TYPE_Q4_0},
              {"tiny-deepseek2", TDM_TYPE_F16},
              {"tiny-odd", TDM_TYPE_F32}};
static const tdm_type cache_types[] = {
#define KV_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_TYPE_LIST(KV_TYPE)
#undef KV_TYPE
};
static const char *const members[] = {"nvidia, cpu", "amd, nvidia", "nvidia, amd, cpu"};
static const char *const shares[] = {"3, 1, 2", "1, 2, 1", "0, 1, 1"};
static const char *const attentions[] = {"heads", "replicate", "sequence"};
static const char *const splits[] = {"tensor", "layer"};

#define COUNT_OF(a) ((int)(sizeof(a) / sizeof *(a)))
static const int n_level[N_FACTOR] = {COUNT_OF(models), COUNT_OF(cache_types), COUNT_OF(members),
                                      COUNT_OF(shares), COUNT_OF(attentions),  COUNT_OF(splits)};

/* ---- Running --------------------------------------------------------------------------------- */

static const char *model_file(int model) {
    random_model_spec spec = preset_find(models[model].preset);
    spec.type = models[model].type;
    return preset_file(models[model].preset, &spec);
}

static rows model_run(int model, tdm_type k, tdm_type v, tdm_open_device *dev) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 32,
                                       .n_ubatch = 16,
                                       .page_len = 4,
                                       .type_k = &k,
                                       .type_v = &v};
    int32_t tokens[N_ROW];
    llm_model *m = vendor_model(model_file(model), dev);
    rows r = {.n = N_ROW, .n_vocab = m->hparams.n_vocab};
    r.logits = calloc((size_t)N_ROW * (size_t)r.n_vocab, sizeof *r.logits);
    assert_non_null(r.logits);
    for (int i = 0; i < N_ROW; i++) tokens[i] = vendor_token(i, r.n_vocab);
    llm_context *ctx = rig_context(m, &params);
    rig_decode(ctx, tokens, N_PROMPT, N_PROMPT, r.logits);
    for (int i = N_PROMPT; i < N_ROW; i++)
        rig_decode(ctx, &tokens[i], 1, 1, r.logits + (size_t)i * (size_t)r.n_vocab);
    llm_context_destroy(ctx);
    llm_model_close(m);
    return r;
}

/* The group of a row, with as many shares as members. */
static tdm_open_device *group_open(const unsigned char *level) {
    char name[128], share[16];
    tdm_open_device *dev = NULL;
    tdm_error err = {0};
    int n_member = level[MEMBERS] == 2 ? 3 : 2;
    snprintf(share, sizeof share, "%.*s", 3 * n_member - 2, shares[level[SHARES]]);
    snprintf(name, sizeof name, "%s: %s, attention %s, split %s", members[level[MEMBERS]], share,
             attentions[level[ATTENTION]], splits[level[SPLIT]]);
    for (char *c = name; *c != '\0'; c++)
        if (*c == ',') *c = '/'; /* no list of devices */
    if (tdm_runtime_open(rig_runtime(), name, &dev, &err) == TDM_OK) return dev;
    const tdm_option options[] = {{"members", members[level[MEMBERS]]},
                                  {"share", share},
                                  {"attention", attentions[level[ATTENTION]]},
                                  {"split", splits[level[SPLIT]]}};
    const tdm_device_spec spec = {name, "meta", 0, options, 4};
    RIG_OK(tdm_runtime_declare(rig_runtime(), &spec, &err));
    RIG_OK(tdm_runtime_open(rig_runtime(), name, &dev, &err));
    return dev;
}

/* What is computed once for a model and its types of cache. */
typedef struct baseline {
    rows reference;
    double worst; /* error of the worst member alone */
    int n_other;  /* most other tokens of a member alone */
} baseline;
static baseline baselines[COUNT_OF(models)][COUNT_OF(cache_types)];

static baseline baseline_make(int model, tdm_type k, tdm_type v) {
    static const int alone[] = {VENDOR_NVIDIA, VENDOR_CPU};
    baseline b = {.reference = model_run(model, k, v, rig_device(NULL, "reference", 1))};
    for (int i = 0; i < COUNT_OF(alone); i++) {
        rows one = model_run(model, k, v, vendor_device(alone[i]));
        rows_verdict found = rows_compare(&b.reference, &one);
        if (found.error > b.worst) b.worst = found.error;
        if (found.n_other > b.n_other) b.n_other = found.n_other;
        free(one.logits);
    }
    return b;
}

static rows_verdict group_run(const baseline *b, int model, tdm_type k, tdm_type v,
                              tdm_open_device *group) {
    rows many = model_run(model, k, v, group);
    rows_verdict found = rows_compare(&b->reference, &many);
    free(many.logits);
    return found;
}

static bool is_coarse(tdm_type type) {
    return tdm_type_get_info(type).is_quantized && type != TDM_TYPE_Q8_0;
}

/* With a cache of 4 or 5 bits a difference in the last bit may round an element to the next code,
 * on the group and not on a member alone. Its error is bounded as that of such caches on like
 * members is, by an NMSE of 1e-5; and with caches of f16 the same group keeps the common bound. */
static bool is_as_coarse(int model, tdm_type k, tdm_type v, double error, tdm_open_device *group) {
    if (!(is_coarse(k) || is_coarse(v)) || error * error > 1e-5) return false;
    baseline fine = baseline_make(model, TDM_TYPE_F16, TDM_TYPE_F16);
    rows_verdict found = group_run(&fine, model, TDM_TYPE_F16, TDM_TYPE_F16, group);
    free(fine.reference.logits);
    return found.error <= 2 * fine.worst + 1e-7 && found.n_wrong == 0;
}

static bool row_run(const unsigned char *level, int *n_coarse) {
    int model = level[MODEL];
    tdm_type k = cache_types[level[CACHE]];
    tdm_type v = cache_types[(level[CACHE] + 4) % COUNT_OF(cache_types)];
    if (strstr(models[model].preset, "deepseek") != NULL) v = k; /* a latent cache has one type */
    baseline *b = &baselines[model][level[CACHE]];
    if (b->reference.logits == NULL) *b = baseline_make(model, k, v);
    tdm_open_device *group = group_open(level);
    rows_verdict found = group_run(b, model, k, v, group);
    bool is_good = found.n_wrong == 0 && found.n_other <= 2 * b->n_other + N_ROW / 100;
    if (is_good && found.error > 2 * b->worst + 1e-7) {
        is_good = is_as_coarse(model, k, v, found.error, group);
        *n_coarse += is_good;
    }
    if (!is_good)
        printf("WRONG: %s, cache %s %s, %s: error %.1e, alone %.1e; %d other tokens, alone %d; %d "
               "of them at a clear margin\n",
               models[model].preset, tdm_type_name(k), tdm_type_name(v),
               tdm_open_device_name(group), found.error, b->worst, found.n_other, b->n_other,
               found.n_wrong);
    return is_good;
}

static void test_matrix(void **state) {
    (void)state;
    static cover c = {.n_factor = N_FACTOR};
    int n_bad = 0, n_coarse = 0;
    memcpy(c.n_level, n_level, sizeof n_level);
    assert_true(cover_make(&c));
    assert_int_equal(cover_missing(&c), 0);
    for (int i = 0; i < c.n_row; i++) n_bad += !row_run(c.rows[i], &n_coarse);
    printf("%d combinations, %d wrong; in %d an element of a coarse cache took another code\n",
           c.n_row, n_bad, n_coarse);
    assert_int_equal(n_bad, 0);
    assert_true(n_coarse * 10 <= c.n_row);
    for (int m = 0; m < COUNT_OF(models); m++)
        for (int t = 0; t < COUNT_OF(cache_types); t++) free(baselines[m][t].reference.logits);
}

static int matrix_begin(void **state) {
    static const int used[] = {VENDOR_NVIDIA, VENDOR_AMD, VENDOR_CPU};
    tdm_open_device *dev;
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    for (int i = 0; i < COUNT_OF(used); i++)
        if (vendor_open(used[i], &dev, &err) != TDM_OK) {
            printf("%s\n", err.message);
            return -1;
        }
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_matrix)};
    if (argc != 3) return 2;
    vendor_cuda_driver = argv[1];
    vendor_hip_driver = argv[2];
    return cmocka_run_group_tests(tests, matrix_begin, rig_end);
}
