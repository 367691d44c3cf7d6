/* SPDX-License-Identifier: MIT
 *
 * test_work.c: the work of a step as llm_context_work gives it, against sums over the model's
 * weights.
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "llm/work.h"
#include "tests/model/preset.h"
#include "tests/model/rig.h"

/* Sums over the weights of some roles in layers first .. last-1; -1 .. 0 are those of no layer. */
static llm_work sum(const llm_model *m, int32_t first, int32_t last, uint32_t usage, double n_mac,
                    double n_read) {
    llm_work work = {0};
    for (int32_t i = 0; i < m->n_weight; i++) {
        const llm_weight *w = &m->weights[i];
        double count = (double)tdm_shape_count(w->file->ne);
        if (w->layer < first || w->layer >= last || (w->usage & usage) == 0) continue;
        work.read_size += n_read * (double)tdm_tensor_canonical_size(w->file->type, w->file->ne);
        if (tdm_type_get_info(w->file->type).is_quantized)
            work.n_op_int8 += 2 * n_mac * count;
        else
            work.n_op_f32 += 2 * n_mac * count;
    }
    return work;
}

static llm_work plus(llm_work a, llm_work b) {
    return (llm_work){a.read_size + b.read_size, a.n_op_int8 + b.n_op_int8,
                      a.n_op_f32 + b.n_op_f32};
}

static void assert_work(const llm_context *ctx, int32_t n_tok, int32_t n_out, int32_t n_past,
                        llm_work weights) {
    tdm_error err = {0};
    llm_work work;
    RIG_OK(llm_context_work(ctx, n_tok, n_out, n_past, &work, &err));
    weights.read_size += (double)llm_context_rows_size(ctx, 1) * (n_tok + n_past);
    assert_true(fabs(work.read_size - weights.read_size) < 0.5);
    assert_true(fabs(work.n_op_int8 - weights.n_op_int8) < 0.5);
    assert_true(fabs(work.n_op_f32 - weights.n_op_f32) < 0.5);
}

typedef struct opened {
    llm_model *model;
    llm_context *ctx;
} opened;

static opened open_preset(const char *name, tdm_type type, tdm_open_device *dev) {
    static const tdm_type type_k = TDM_TYPE_Q8_0;
    const llm_context_params params = {
        .struct_size = sizeof params, .n_ctx = 64, .n_ubatch = 32, .type_k = &type_k};
    tdm_error err = {0};
    opened o;
    random_model_spec spec = preset_find(name);
    spec.type = type;
    const char *path = rig_file("work.gguf");
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    o.model = rig_model(path, dev);
    o.ctx = NULL;
    RIG_OK(llm_context_create(o.model, &params, &o.ctx, &err));
    return o;
}

static void opened_close(opened *o) {
    llm_context_destroy(o->ctx);
    llm_model_close(o->model);
}

/* Every matrix once, for each token; the output head for rows with logits. */
static void test_dense(void **state) {
    (void)state;
    tdm_open_device *dev = rig_device(NULL, "fast", 1);
    const tdm_type types[] = {TDM_TYPE_Q4_0, TDM_TYPE_F16};
    for (int t = 0; t < 2; t++) {
        opened o = open_preset("tiny-llama", types[t], dev);
        const int32_t n_layer = o.model->hparams.n_layer;
        assert_true(o.model->global[LLM_ROLE_OUTPUT] >= 0);
        llm_work layers = sum(o.model, 0, n_layer, TDM_USAGE_MATMUL, 1, 1);
        llm_work head = sum(o.model, -1, 0, TDM_USAGE_MATMUL, 1, 1);
        assert_true(head.read_size > 0);
        assert_true(types[t] == TDM_TYPE_F16 ? layers.n_op_int8 == 0 : layers.n_op_int8 > 0);
        assert_work(o.ctx, 1, 1, 0, plus(layers, head));
        assert_work(o.ctx, 1, 1, 17, plus(layers, head));
        assert_work(o.ctx, 8, 8, 5,
                    plus(sum(o.model, 0, n_layer, TDM_USAGE_MATMUL, 8, 1),
                         sum(o.model, -1, 0, TDM_USAGE_MATMUL, 8, 1)));
        opened_close(&o);
    }
}

/* Behind the last attention only rows that give logits are computed. */
static void test_prompt(void **state) {
    (void)state;
    tdm_error err = {0};
    opened o = open_preset("tiny-llama", TDM_TYPE_Q8_0, rig_device(NULL, "fast", 1));
    llm_work all, last, none;
    RIG_OK(llm_context_work(o.ctx, 16, 16, 0, &all, &err));
    RIG_OK(llm_context_work(o.ctx, 16, 1, 0, &last, &err));
    RIG_OK(llm_context_work(o.ctx, 16, 0, 0, &none, &err));
    assert_true(fabs(all.read_size - last.read_size) < 0.5);
    assert_true(none.read_size < last.read_size);
    assert_true(none.n_op_int8 < last.n_op_int8 && last.n_op_int8 < all.n_op_int8);
    opened_close(&o);
}

/* A token reads the experts that it chose, many tokens read all; each multiplies as many. */
static void test_experts(void **state) {
    (void)state;
    opened o = open_preset("tiny-mixtral", TDM_TYPE_Q8_0, rig_device(NULL, "fast", 1));
    const llm_hparams *h = &o.model->hparams;
    const double share = (double)h->n_expert_used / h->n_expert;
    assert_true(share < 1);
    for (int32_t n = 1; n <= 32; n *= 32)
        assert_work(o.ctx, n, n, 3,
                    plus(plus(sum(o.model, 0, h->n_layer, TDM_USAGE_MATMUL, n, 1),
                              sum(o.model, -1, 0, TDM_USAGE_MATMUL, n, 1)),
                         sum(o.model, 0, h->n_layer, TDM_USAGE_EXPERT, n * share,
                             n * share < 1 ? n * share : 1)));
    opened_close(&o);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_prompt),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
