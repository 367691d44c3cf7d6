/* SPDX-License-Identifier: MIT
 *
 * test_cache_costs.c: cache types that are chosen by costs: no other choice within the bits costs
 * less, the bits are those of the bytes that are stored, and rotation is the better one.
 */
#include "llm/cache/cache_costs.h"

#include <math.h>

#include "tests/model/preset.h"
#include "tests/model/rig.h"
#include "tests/support/random.h"

static const tdm_type block_types[] = {
#define BLOCK_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_BLOCK_TYPE_LIST(BLOCK_TYPE)
#undef BLOCK_TYPE
};
enum { N_TYPE = sizeof block_types / sizeof *block_types, MAX_LAYER = 4 };

static llm_model *model_open(const char *preset) {
    char file[64];
    tdm_error err = {0};
    llm_model *model = NULL;
    random_model_spec spec = preset_find(preset);
    snprintf(file, sizeof file, "%s.gguf", preset);
    RIG_OK(llm_model_open(preset_file(file, &spec), &model, &err));
    assert_true(model->hparams.n_layer <= MAX_LAYER);
    return model;
}

/* Costs that fall with the size of the type, by a factor of each K and V. */
static llm_cache_costs *costs_make(const llm_model *model, uint64_t *random) {
    tdm_error err = {0};
    llm_cache_costs *costs = NULL;
    RIG_OK(llm_cache_costs_create(model->hparams.n_layer, &costs, &err));
    for (int32_t l = 0; l < model->hparams.n_layer; l++)
        for (int s = 0; s < LLM_CACHE_SIDES; s++) {
            const double factor = 1 + random_u32_below(random, 1000);
            for (int t = 0; t < N_TYPE; t++)
                for (int r = 0; r < 2; r++) {
                    const double bits = (double)tdm_type_row_size(block_types[t], 256) / 32;
                    const double noise = 1 + random_u32_below(random, 100) / 200.0;
                    assert_true(llm_cache_costs_set(costs, l, (llm_cache_side)s, block_types[t],
                                                    r != 0, factor * noise * exp(-bits)));
                }
        }
    return costs;
}

/* The least cost of all choices within `bits`, by trying them: every type of every slot, in the
 * rotation. Negative = there is none. */
static double best_of_all(const llm_cache_costs *costs, const llm_model *m, double bits,
                          llm_rotation rotation) {
    const int n_slot = m->hparams.n_layer * LLM_CACHE_SIDES, n_type = N_TYPE + 1;
    double best = -1;
    long n_choice = 1;
    for (int i = 0; i < n_slot; i++) n_choice *= n_type;
    for (long c = 0; c < n_choice; c++) {
        llm_layer_types layers[MAX_LAYER];
        double sum = 0;
        long rest = c;
        for (int i = 0; i < n_slot; i++, rest /= n_type) {
            const int t = (int)(rest % n_type);
            const tdm_type type = t == N_TYPE ? TDM_TYPE_F16 : block_types[t];
            const llm_cache_side side = (llm_cache_side)(i % LLM_CACHE_SIDES);
            const double no = llm_cache_costs_get(costs, i / LLM_CACHE_SIDES, side, type, false);
            const double yes = llm_cache_costs_get(costs, i / LLM_CACHE_SIDES, side, type, true);
            if (side == LLM_CACHE_K)
                layers[i / LLM_CACHE_SIDES].k = type;
            else
                layers[i / LLM_CACHE_SIDES].v = type;
            sum += rotation == LLM_ROTATION_AUTO ? fmin(no, yes)
                   : rotation == LLM_ROTATION_NO ? no
                                                 : yes;
        }
        if (llm_layer_types_bits(m, layers) > bits || (best >= 0 && sum >= best)) continue;
        best = sum;
    }
    return best;
}

static void test_best(void **state) {
    (void)state;
    static const double budgets[] = {4.5, 4.51, 4.6, 4.9375, 5, 5.3, 5.5, 6, 7.7, 8.5, 9, 12, 16};
    llm_model *model = model_open("tiny-llama"); /* four slots */
    uint64_t random = 1;
    for (int trial = 0; trial < 3; trial++) {
        llm_cache_costs *costs = costs_make(model, &random);
        for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++)
            for (int r = LLM_ROTATION_NO; r <= LLM_ROTATION_AUTO; r++) {
                tdm_error err = {0};
                llm_layer_types layers[MAX_LAYER];
                RIG_OK(llm_cache_costs_choose(costs, model, budgets[b], (llm_rotation)r, layers,
                                              &err));
                const double bits = llm_layer_types_bits(model, layers);
                const double sum = llm_cache_costs_sum(costs, model, layers);
                const double best = best_of_all(costs, model, budgets[b], (llm_rotation)r);
                if (bits > budgets[b] || !(fabs(sum - best) <= 1e-12 * best + 1e-300))
                    fail_msg("budget %g, rotation %d: %g bits at %g, the best is %g", budgets[b], r,
                             bits, sum, best);
            }
        llm_cache_costs_destroy(costs);
    }
    llm_model_close(model);
}

/* The bits are those of the rows that a context stores. */
static void test_bits_are_stored(void **state) {
    (void)state;
    static const char *const presets[] = {"tiny-llama", "tiny-odd", "tiny-deepseek2"};
    uint64_t random = 7;
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        tdm_error err = {0};
        llm_model *closed = model_open(presets[i]);
        llm_model *model = rig_model(closed->path, rig_device(NULL, "fast", 1));
        llm_cache_costs *costs = costs_make(model, &random);
        llm_layer_types layers[MAX_LAYER], f16[MAX_LAYER];
        for (int l = 0; l < MAX_LAYER; l++)
            f16[l] = (llm_layer_types){TDM_TYPE_F16, TDM_TYPE_F16, true, true};
        RIG_OK(llm_cache_costs_choose(costs, model, 7, LLM_ROTATION_AUTO, layers, &err));
        llm_context_params params = {.struct_size = sizeof params, .n_ctx = 64, .layer_types = f16};
        llm_context *ctx = rig_context(model, &params);
        const double n_elem = (double)llm_context_rows_size(ctx, 1) / 2;
        assert_true(llm_layer_types_bits(model, f16) == 16);
        llm_context_destroy(ctx);
        params.layer_types = layers;
        ctx = rig_context(model, &params);
        const double bits = 8 * (double)llm_context_rows_size(ctx, 1) / n_elem;
        assert_true(bits <= 7 && fabs(bits - llm_layer_types_bits(model, layers)) < 1e-9);
        llm_context_destroy(ctx);
        llm_cache_costs_destroy(costs);
        llm_model_close(model);
        llm_model_close(closed);
    }
}

static void test_rotation(void **state) {
    (void)state;
    tdm_error err = {0};
    uint64_t random = 3;
    llm_model *model = model_open("tiny-llama");
    llm_cache_costs *costs = costs_make(model, &random);
    llm_layer_types layers[MAX_LAYER];
    int n_rotated = 0;
    for (int t = 0; t < N_TYPE; t++) {
        const tdm_type k = block_types[t], v = block_types[N_TYPE - 1 - t];
        RIG_OK(llm_cache_costs_rotate(costs, model, k, v, layers, &err));
        for (int32_t l = 0; l < model->hparams.n_layer; l++) {
            assert_true(layers[l].k == k && layers[l].v == v);
            n_rotated += layers[l].rotates_k + layers[l].rotates_v;
            assert_true(llm_cache_costs_get(costs, l, LLM_CACHE_K, k, layers[l].rotates_k) <=
                        llm_cache_costs_get(costs, l, LLM_CACHE_K, k, !layers[l].rotates_k));
            assert_true(llm_cache_costs_get(costs, l, LLM_CACHE_V, v, layers[l].rotates_v) <=
                        llm_cache_costs_get(costs, l, LLM_CACHE_V, v, !layers[l].rotates_v));
        }
    }
    assert_true(n_rotated > 0 && n_rotated < N_TYPE * 4); /* both ways are met */
    llm_cache_costs_destroy(costs);
    llm_model_close(model);
}

static void test_refusals(void **state) {
    (void)state;
    tdm_error err = {0};
    uint64_t random = 5;
    llm_model *model = model_open("tiny-llama");
    llm_cache_costs *costs = costs_make(model, &random), *empty = NULL;
    llm_layer_types layers[MAX_LAYER];
    assert_int_equal(llm_cache_costs_choose(costs, model, 4.4, LLM_ROTATION_YES, layers, &err),
                     TDM_OUT_OF_RANGE);
    assert_non_null(strstr(err.message, "4.5 bits"));
    RIG_OK(llm_cache_costs_create(model->hparams.n_layer, &empty, &err));
    assert_int_equal(llm_cache_costs_choose(empty, model, 8, LLM_ROTATION_YES, layers, &err),
                     TDM_OUT_OF_RANGE);
    RIG_OK(llm_cache_costs_choose(empty, model, 16, LLM_ROTATION_YES, layers, &err));
    assert_int_equal(layers[1].v, TDM_TYPE_F16);
    assert_int_equal(
        llm_cache_costs_rotate(empty, model, TDM_TYPE_Q4_0, TDM_TYPE_Q8_0, layers, &err),
        TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "q4_0"));
    RIG_OK(llm_cache_costs_rotate(empty, model, TDM_TYPE_F16, TDM_TYPE_BF16, layers, &err));
    assert_false(
        llm_cache_costs_set(costs, model->hparams.n_layer, LLM_CACHE_K, TDM_TYPE_Q8_0, 1, 1));
    assert_false(llm_cache_costs_set(costs, 0, LLM_CACHE_K, TDM_TYPE_F16, true, 1));
    assert_false(llm_cache_costs_set(costs, 0, LLM_CACHE_K, TDM_TYPE_Q8_0, true, (double)NAN));
    llm_cache_costs_destroy(costs);
    llm_cache_costs_destroy(empty);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_bits_are_stored),
        cmocka_unit_test(test_rotation),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
