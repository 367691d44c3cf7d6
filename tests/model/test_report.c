/* SPDX-License-Identifier: MIT
 *
 * test_report.c: the memory that llm_model_report predicts is what loading and running allocate.
 * Also the identity of a model among several: unique partition ids, and a fingerprint that does
 * not depend on them.
 */
#include "llm/report.h"
#include "tests/model/preset.h"
#include "tests/model/rig.h"

static const char *path;

static int begin(void **state) {
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    random_model_spec spec = preset_find("tiny-mixtral");
    spec.type = TDM_TYPE_Q8_0;
    path = rig_file("report.gguf");
    RIG_OK(random_model_write(&spec, path, NULL, NULL, NULL, &err));
    return 0;
}

static tdm_split_report report_begin(tdm_split_member *members, int32_t capacity) {
    return (tdm_split_report){.struct_size = sizeof(tdm_split_report),
                              .member_size = sizeof *members,
                              .members = members,
                              .capacity = capacity};
}

static void test_sizes_are_those_allocated(void **state) {
    static const tdm_type q8_0 = TDM_TYPE_Q8_0, q4_0 = TDM_TYPE_Q4_0;
    static const llm_layer_types layered[] = {
        {TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, true, false},
        {TDM_TYPE_F16, TDM_TYPE_Q5_1, true, true},
    };
    const llm_context_params cases[] = {
        {.struct_size = sizeof *cases},
        {.struct_size = sizeof *cases, .n_ctx = 300, .n_ubatch = 33},
        {.struct_size = sizeof *cases,
         .n_ctx = 1000,
         .n_ubatch = 8,
         .n_seq = 3,
         .page_len = 16,
         .type_k = &q8_0,
         .type_v = &q4_0},
        {.struct_size = sizeof *cases, .n_ctx = 300, .layer_types = layered},
        {.struct_size = sizeof *cases, .n_ctx = 300, .gives_embeddings = true},
        {.struct_size = sizeof *cases, .n_ctx = 300, .n_ubatch = 33, .gives_hidden = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tdm_error err = {0};
        tdm_open_device *dev = rig_device(NULL, "fast", 2);
        tdm_split_member member = {0};
        tdm_split_report report = report_begin(&member, 1);
        llm_model *closed = NULL;
        RIG_OK(llm_model_open(path, &closed, &err));
        RIG_OK(llm_model_report(closed, dev, &cases[i], 0, 1, &report, &err));
        llm_model_close(closed);
        assert_int_equal(report.n_member, 1);
        assert_string_equal(member.name, tdm_open_device_name(dev));
        assert_string_equal(member.plugin, "cpu");
        assert_true(member.share == 1);
        assert_int_equal(report.n_exchange, 0);

        llm_model *model = rig_model(path, dev);
        llm_context *ctx = NULL;
        RIG_OK(llm_context_create(model, &cases[i], &ctx, &err));
        llm_context_memory memory = llm_context_get_memory(ctx);
        assert_int_equal(member.weight_size, model->store.mems[0].size);
        assert_int_equal(member.state_size, memory.cache);
        assert_int_equal(member.compute_size, memory.compute);
        llm_context_destroy(ctx);
        llm_model_close(model);
    }
}

/* A caller with a smaller struct_size gets the first fields. */
static void test_report_stays_in_its_bounds(void **state) {
    tdm_error err = {0};
    tdm_open_device *dev = rig_device(NULL, "fast", 2);
    llm_model *model = NULL;
    tdm_split_member member;
    (void)state;
    RIG_OK(llm_model_open(path, &model, &err));
    memset(&member, 0x5a, sizeof member);
    tdm_split_report report = report_begin(&member, 1);
    report.member_size = offsetof(tdm_split_member, share);
    report.struct_size = offsetof(tdm_split_report, n_exchange);
    report.n_exchange = 77;
    RIG_OK(llm_model_report(model, dev, NULL, 1, 1, &report, &err));
    assert_int_equal(report.n_member, 1);
    assert_int_equal(report.n_exchange, 77);
    assert_string_equal(member.plugin, "cpu");
    for (size_t i = offsetof(tdm_split_member, share); i < sizeof member; i++)
        assert_int_equal(((uint8_t *)&member)[i], 0x5a);
    report = report_begin(NULL, 0);
    RIG_OK(llm_model_report(model, dev, NULL, 1, 1, &report, &err));
    assert_int_equal(report.n_member, 1);

    assert_int_equal(llm_model_report(model, dev, NULL, -1, 1, &report, &err),
                     TDM_INVALID_ARGUMENT);
    llm_context_params bad = {.struct_size = sizeof bad, .page_len = 3};
    assert_int_equal(llm_model_report(model, dev, &bad, 1, 1, &report, &err), TDM_INVALID_ARGUMENT);
    llm_model_close(model);
}

static void test_partition_ids_are_unique(void **state) {
    tdm_error err = {0};
    llm_model *a = NULL, *b = NULL;
    (void)state;
    RIG_OK(llm_model_open(path, &a, &err));
    RIG_OK(llm_model_open(path, &b, &err));
    assert_int_equal(a->fingerprint, b->fingerprint);
    assert_int_equal(a->n_weight, b->n_weight);
    int32_t n_cut = 0;
    for (int32_t i = 0; i < a->n_weight; i++) {
        const tdm_partition *p = &a->weights[i].partition;
        assert_int_equal(p->id == 0, b->weights[i].partition.id == 0);
        n_cut += p->id != 0;
        for (int32_t j = 0; j < b->n_weight && p->id != 0; j++)
            assert_int_not_equal(p->id, b->weights[j].partition.id);
    }
    assert_true(n_cut > 0);
    llm_model_close(a);
    llm_model_close(b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_those_allocated),
        cmocka_unit_test(test_report_stays_in_its_bounds),
        cmocka_unit_test(test_partition_ids_are_unique),
    };
    return cmocka_run_group_tests(tests, begin, rig_end);
}
