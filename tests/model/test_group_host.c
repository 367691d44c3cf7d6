/* SPDX-License-Identifier: MIT
 *
 * test_group_host.c: caches in the host's memory (TDM_KV_IN_HOST) of devices with their own
 * memory, alone and in groups. The logits do not change, the cache is cut as on the members, each
 * part is with the CPU, there are no more exchanges, and the predicted transfers are the actual
 * ones. test_group_cache.c tests shifts, forks and saved states of such caches.
 */
#include "tests/model/rig.h"

#include <math.h>

#include "core/stages/schedule_internal.h"
#include "llm/context_internal.h"
#include "llm/report.h"
#include "plugins/meta/buffer.h"
#include "tests/model/group_device.h"
#include "tests/model/adapted_buffer.h"
#include "tests/model/preset.h"

enum { N_PROMPT = 21, N_NEXT = 6, N_ROW = N_PROMPT + N_NEXT, N_CTX = 64 };

static const char *const attentions[] = {"heads", "replicate", "sequence"};
static const struct {
    int n_member;
    const char *shares;
} splits[] = {{2, "1"}, {2, "3,1"}, {2, "0,1"}, {3, "1"}, {3, "5,2,1"}, {3, "2,0,1"}};
static const struct {
    tdm_type k, v;
} caches[] = {{TDM_TYPE_F16, TDM_TYPE_F16}, {TDM_TYPE_Q8_0, TDM_TYPE_Q4_0}};
static const char *const presets[] = {"tiny-llama", "tiny-deepseek2"};

#define COUNT_OF(a) (sizeof(a) / sizeof *(a))

/* ---- Models ---- */

static const char *model_file(const char *preset, random_model_rope rope) {
    char file[64];
    snprintf(file, sizeof file, "%s-%d.gguf", preset, (int)rope);
    random_model_spec spec = preset_find(preset);
    spec.type = TDM_TYPE_Q8_0;
    if (rope != RANDOM_MODEL_ROPE_NONE) spec.rope = rope;
    return preset_file(file, &spec);
}

/* A latent cache keeps K and V in one type. */
static llm_context_params params_of(const char *preset, size_t cache, bool is_in_host) {
    bool is_latent = strstr(preset, "deepseek") != NULL;
    return (llm_context_params){.struct_size = sizeof(llm_context_params),
                                .n_ctx = N_CTX,
                                .n_ubatch = 16,
                                .page_len = 8,
                                .type_k = &caches[cache].k,
                                .type_v = is_latent ? &caches[cache].k : &caches[cache].v,
                                .is_cache_in_host = is_in_host};
}

/* Logits of a prompt and of tokens one by one behind it; the caller frees them. */
static float *logits_of(llm_model *model, const llm_context_params *params) {
    size_t n = (size_t)model->hparams.n_vocab;
    float *rows = malloc(N_ROW * n * sizeof *rows);
    int32_t tokens[N_ROW];
    assert_non_null(rows);
    for (int i = 0; i < N_ROW; i++)
        tokens[i] = (i * 7919 + i * i * 31 + 13) % model->hparams.n_vocab;
    llm_context *ctx = rig_context(model, params);
    rig_decode(ctx, tokens, N_PROMPT, N_PROMPT, rows);
    for (int i = N_PROMPT; i < N_ROW; i++) rig_decode(ctx, &tokens[i], 1, 1, rows + (size_t)i * n);
    llm_context_destroy(ctx);
    return rows;
}

/* ---- Logits ---- */

static void test_logits(void **state) {
    (void)state;
    double worst = 0;
    int n_case = 0, n_bad = 0;
    for (size_t p = 0; p < COUNT_OF(presets); p++) {
        const char *path = model_file(presets[p], RANDOM_MODEL_ROPE_NONE);
        for (size_t c = 0; c < COUNT_OF(caches); c++) {
            llm_context_params here = params_of(presets[p], c, false);
            llm_context_params there = params_of(presets[p], c, true);
            llm_model *model = rig_model(path, group_single("fast"));
            size_t size = N_ROW * (size_t)model->hparams.n_vocab;
            float *one = logits_of(model, &here);
            llm_model_close(model);
            for (size_t i = 0; i < COUNT_OF(splits) * COUNT_OF(attentions); i++) {
                const group_config config = {.n_member = splits[i / 3].n_member,
                                             .shares = splits[i / 3].shares,
                                             .attention = attentions[i % 3],
                                             .is_away = true};
#ifdef TANDEM_SANITIZED
                if ((i + p + c) % 3 != 0) continue;
#endif
                tdm_open_device *dev = group_device(&config);
                int n_warning = rig_n_warning();
                model = rig_model(path, dev);
                float *with = logits_of(model, &there), *without = logits_of(model, &here);
                double nmse = rig_nmse(one, with, size);
                n_case++;
                if (nmse > worst) worst = nmse;
                /* Where a cache lies changes no bit. */
                if (nmse > 1e-6 || memcmp(with, without, size * sizeof *with) != 0) {
                    n_bad++;
                    printf("WRONG: %s, K %s, %s: NMSE %.1e to one device, %.1e to the same group\n",
                           presets[p], tdm_type_name(caches[c].k), group_words(&config), nmse,
                           rig_nmse(without, with, size));
                }
                /* The placement was requested: no warning. */
                assert_int_equal(rig_n_warning(), n_warning);
                free(with);
                free(without);
                llm_model_close(model);
            }
            free(one);
        }
    }
    printf("%d groups, worst NMSE to one device %.1e\n", n_case, worst);
    assert_int_equal(n_bad, 0);
}

/* ---- What is said of it ---- */

typedef struct sheet {
    tdm_split_report report;
    tdm_split_member members[GROUP_MAX_MEMBER];
} sheet;

static sheet sheet_of(const llm_model *model, tdm_open_device *dev,
                      const llm_context_params *params, int n_tok) {
    tdm_error err = {0};
    sheet s = {.report = {.struct_size = sizeof s.report,
                          .member_size = sizeof s.members[0],
                          .capacity = GROUP_MAX_MEMBER,
                          .is_brief = 1}};
    s.report.members = s.members;
    RIG_OK(llm_model_report(model, dev, params, n_tok, 1, &s.report, &err));
    s.report.members = NULL;
    return s;
}

/* The step block of a step of n_tok tokens. */
static uint64_t step_size(const llm_model *model, const llm_context_params *params, int n_tok) {
    tdm_error err = {0};
    tdm_step_header header;
    llm_context ctx = {0};
    RIG_OK(llm_context_measure(&ctx, model, params, &err));
    const tdm_step_caps caps = {n_tok, ctx.n_seq, 1, ctx.n_entry, 0, 1};
    RIG_OK(tdm_step_layout(&caps, &header, &err));
    return (uint64_t)header.size * sizeof(int32_t);
}

/* q and the new rows go, o comes back, of every head that the members attend with. */
static uint64_t rows_size(const llm_model *model, int n_tok) {
    const llm_hparams *h = &model->hparams;
    bool is_latent = h->n_lora_kv > 0;
    int64_t q = (int64_t)h->n_head * h->head_dim_k, o = (int64_t)h->n_head * h->head_dim_v;
    int64_t rows = (int64_t)h->n_head_kv * (h->head_dim_k + (is_latent ? 0 : h->head_dim_v));
    return (uint64_t)((q + o + rows) * n_tok * h->n_layer) * sizeof(float);
}

static void test_reports(void **state) {
    (void)state;
    tdm_error err = {0};
    for (size_t p = 0; p < COUNT_OF(presets); p++) {
        llm_model *model = NULL;
        RIG_OK(llm_model_open(model_file(presets[p], RANDOM_MODEL_ROPE_NONE), &model, &err));
        for (size_t i = 0; i < COUNT_OF(splits) * COUNT_OF(attentions); i++) {
            const group_config config = {.n_member = splits[i / 3].n_member,
                                         .shares = splits[i / 3].shares,
                                         .attention = attentions[i % 3],
                                         .is_away = true};
            bool is_sequence = i % 3 == 2;
            llm_context_params here = params_of(presets[p], 1, false);
            llm_context_params there = params_of(presets[p], 1, true);
            tdm_open_device *dev = group_device(&config);
            uint64_t whole = sheet_of(model, group_single("fast"), &here, 1).members[0].state_size;
            for (int n_tok = 1; n_tok <= 16; n_tok += 15) {
                sheet a = sheet_of(model, dev, &here, n_tok),
                      b = sheet_of(model, dev, &there, n_tok);
                uint64_t crossing = 0, cached = 0, n_holder = 0;
                /* The head cut is not lost: nothing is gathered for it. */
                assert_int_equal(a.report.n_exchange, b.report.n_exchange);
                assert_int_equal(a.report.n_relayout, b.report.n_relayout);
                assert_int_equal(a.report.exchange_size, b.report.exchange_size);
                for (int d = 0; d < config.n_member; d++) {
                    assert_int_equal(a.members[d].host_state_size + a.members[d].crossing_size, 0);
                    assert_int_equal(b.members[d].state_size, a.members[d].state_size);
                    assert_int_equal(b.members[d].host_state_size, b.members[d].state_size);
                    assert_int_equal(b.members[d].weight_size, a.members[d].weight_size);
                    cached += b.members[d].state_size;
                    crossing += b.members[d].crossing_size;
                    n_holder += b.members[d].state_size > 0;
                    if (b.members[d].share == 0)
                        assert_int_equal(b.members[d].state_size + b.members[d].crossing_size, 0);
                }
                bool is_one_head = model->hparams.n_head_kv == 1 && !is_sequence;
                /* No member has all of it. Together they have it once, but for alignment and for
                 * heads that attention = replicate holds twice. */
                bool is_once = !is_one_head && strcmp(config.attention, "replicate") != 0;
                uint64_t rounding = (uint64_t)model->hparams.n_layer * LLM_STATE_ALIGN;
                if (is_once) assert_in_range(cached, whole - rounding, whole + whole / 8);
                for (int d = 0; d < config.n_member && n_holder > 1 && is_once; d++)
                    assert_true(b.members[d].state_size < whole);
                /* Cut by heads every row crosses once. */
                if (is_sequence || !is_once || model->hparams.n_lora_kv > 0) {
                    assert_true(crossing > rows_size(model, n_tok));
                    continue;
                }
                /* Besides the step block, once in each of a member's plans with attention: a member
                 * that cannot read the host's memory has a plan for each stage between
                 * exchanges. */
                uint64_t rest = crossing - rows_size(model, n_tok);
                uint64_t step = step_size(model, &there, n_tok);
                assert_int_equal(rest % step, 0);
                assert_in_range(rest / step, n_holder, n_holder * (uint64_t)model->hparams.n_layer);
            }
        }
        llm_model_close(model);
    }
}

/* ---- Where it is ---- */

/* Each member's part lies with the CPU, or on the member where that is in the host's memory or
 * reads it there. */
static void test_where(void **state) {
    (void)state;
    static const group_config configs[] = {
        {.n_member = 2, .shares = "3,1", .is_away = true},
        {.n_member = 3, .shares = "5,0,1", .attention = "sequence", .is_away = true},
        {.n_member = 2, .shares = "3,1", .is_away = true, .has_host_kv = true},
        {.n_member = 2, .shares = "3,1"},
    };
    const char *path = model_file("tiny-llama", RANDOM_MODEL_ROPE_NONE);
    for (size_t i = 0; i < COUNT_OF(configs) * 2; i++) {
        const group_config *config = &configs[i / 2];
        llm_context_params params = params_of("tiny-llama", 1, i % 2 == 1);
        llm_model *model = rig_model(path, group_device(config));
        llm_context *ctx = rig_context(model, &params);
        sheet s = sheet_of(model, group_device(config), &params, 1);
        const meta_buffer *cache = ctx->store.mems[0].buffer;
        for (int d = 0; d < config->n_member; d++) {
            uint64_t own = 0, help = 0;
            if (!meta_is_active(cache->device, d)) {
                assert_null(cache->members[d]);
                continue;
            }
            assert_non_null(cache->members[d]);
            assert_int_equal(s.members[d].host_state_size,
                             config->is_away && params.is_cache_in_host ? s.members[d].state_size
                                                                        : 0);
            if (!config->is_away) continue; /* no adapter, so no sizes of one */
            adapted_buffer_sizes(cache->members[d], &own, &help);
            bool is_with_cpu = params.is_cache_in_host && !config->has_host_kv;
            assert_int_equal(is_with_cpu ? own : help, 0);
            assert_true((is_with_cpu ? help : own) > 0);
            assert_int_equal(s.members[d].crossing_size > 0, is_with_cpu);
        }
        llm_context_destroy(ctx);
        llm_model_close(model);
    }
}

/* Members that read the host's caches themselves compute what others do. */
static void test_readers(void **state) {
    (void)state;
    const group_config config = {
        .n_member = 2, .shares = "3,1", .is_away = true, .has_host_kv = true};
    const char *path = model_file("tiny-llama", RANDOM_MODEL_ROPE_NONE);
    llm_context_params params = params_of("tiny-llama", 1, true);
    llm_model *model = rig_model(path, group_device(&config));
    float *with = logits_of(model, &params);
    params.is_cache_in_host = false;
    float *without = logits_of(model, &params);
    assert_memory_equal(with, without, N_ROW * (size_t)model->hparams.n_vocab * sizeof *with);
    free(with);
    free(without);
    llm_model_close(model);
}

/* ---- One device ---- */

/* What the report says of device 0 is what the context has allocated there for its largest step. */
static void compute_check(const llm_model *model, const llm_context *ctx,
                          const llm_context_params *params) {
    tdm_plan_info plans = {.struct_size = sizeof plans};
    const tdm_split_member said = sheet_of(model, model->devs[0], params, 0).members[0];
    assert_int_equal(ctx->n_plan, 1);
    tdm_stages_add_plan_info(&ctx->plans[0].schedule->stages, 0, &plans, NULL);
    assert_int_equal(said.compute_size, tdm_scratch_size(ctx->scratch, 0) + plans.device_size +
                                            plans.host_size + plans.scratch_size);
}

/* A device with memory of its own, the CPU behind it: prompt, tokens, shift, tokens. */
static float *single_run(const char *path, tdm_open_device *const *devs, int n_dev, bool is_in_host,
                         int *state_dev_out) {
    tdm_error err = {0};
    llm_model *model = NULL;
    llm_context_params params = params_of("tiny-llama", 1, is_in_host);
    RIG_OK(llm_model_open(path, &model, &err));
    RIG_OK(llm_model_load(model, rig_runtime(), devs, n_dev, NULL, NULL, &err));
    size_t n = (size_t)model->hparams.n_vocab;
    float *rows = malloc(3 * n * sizeof *rows);
    int32_t tokens[N_PROMPT], next[2] = {7, 11};
    assert_non_null(rows);
    for (int i = 0; i < N_PROMPT; i++) tokens[i] = (i * 7919 + 13) % model->hparams.n_vocab;
    llm_context *ctx = rig_context(model, &params);
    compute_check(model, ctx, &params);
    rig_decode(ctx, tokens, N_PROMPT, 1, rows);
    rig_decode(ctx, next, 1, 1, rows + n);
    RIG_OK(llm_context_shift(ctx, 0, 2, 5, &err));
    rig_decode(ctx, next, 2, 1, rows + 2 * n);
    *state_dev_out = ctx->state_dev[0];
    llm_context_destroy(ctx);
    llm_model_close(model);
    return rows;
}

static void test_single(void **state) {
    (void)state;
    static const random_model_rope ropes[] = {RANDOM_MODEL_ROPE_NONE, RANDOM_MODEL_ROPE_LLAMA3};
    tdm_error err = {0};
    int at, n_warning = rig_n_warning();
    for (size_t r = 0; r < COUNT_OF(ropes); r++) {
        const char *path = model_file("tiny-llama", ropes[r]);
        tdm_open_device *devs[] = {group_away(), group_single("fast")};
        float *one = single_run(path, &devs[1], 1, true, &at);
        assert_int_equal(at, 0); /* the CPU's memory is the host's */
        float *here = single_run(path, devs, 2, false, &at);
        assert_int_equal(at, 0);
        float *there = single_run(path, devs, 2, true, &at);
        assert_int_equal(at, 1);
        llm_model *model = NULL;
        RIG_OK(llm_model_open(path, &model, &err));
        size_t size = 3 * (size_t)model->hparams.n_vocab * sizeof *one;
        assert_memory_equal(one, here, size);
        assert_memory_equal(one, there, size);
        /* The device's own memory has none of it; the step block comes from the host anyway. */
        llm_context_params params = params_of("tiny-llama", 1, true);
        tdm_split_member said = sheet_of(model, devs[0], &params, 3).members[0];
        assert_int_equal(said.state_size + said.host_state_size, 0);
        assert_int_equal(said.crossing_size, rows_size(model, 3));
        said = sheet_of(model, devs[1], &params, 3).members[0];
        assert_true(said.state_size > 0);
        assert_int_equal(said.host_state_size + said.crossing_size, 0);
        llm_model_close(model);
        free(one);
        free(here);
        free(there);
    }
    assert_int_equal(rig_n_warning(), n_warning);
}

/* Without the CPU no device can work on it. */
static void test_no_worker(void **state) {
    (void)state;
    tdm_error err = {0};
    tdm_open_device *dev = group_away();
    llm_context *ctx = NULL;
    llm_context_params params = params_of("tiny-llama", 0, true);
    llm_model *model = rig_model(model_file("tiny-llama", RANDOM_MODEL_ROPE_NONE), dev);
    assert_int_equal(llm_context_create(model, &params, &ctx, &err), TDM_UNSUPPORTED);
    assert_null(ctx);
    if (strstr(err.message, "'away'") == NULL || strstr(err.message, "host's memory") == NULL)
        fail_msg("%s", err.message);
    llm_model_close(model);
}

/* What a member keeps free of its own memory is not asked of the host's. */
static void test_reserve(void **state) {
    (void)state;
    static const tdm_option behind[] = {{"path", "fast"}, {"threads", "1"}};
    static const tdm_option small[] = {
        {"member", "behind small"}, {"memory", "3000000"}, {"host-pointer", "no"}};
    static const tdm_option group[] = {{"members", "small"}, {"reserve", "1000000"}};
    static const tdm_device_spec specs[] = {{"behind small", "cpu", 0, behind, 2},
                                            {"small", "fault", 0, small, 3},
                                            {"tight", "meta", 0, group, 2}};
    tdm_error err = {0};
    tdm_open_device *dev = NULL;
    for (size_t i = 0; i < COUNT_OF(specs); i++)
        RIG_OK(tdm_runtime_declare(rig_runtime(), &specs[i], &err));
    RIG_OK(tdm_runtime_open(rig_runtime(), "tight", &dev, &err));
    llm_model *model = rig_model(model_file("tiny-llama", RANDOM_MODEL_ROPE_NONE), dev);
    llm_context_params params = params_of("tiny-llama", 0, false);
    llm_context *ctx = NULL;
    params.n_ctx = 16384;
    assert_int_equal(llm_context_create(model, &params, &ctx, &err), TDM_RESOURCE_EXHAUSTED);
    if (strstr(err.message, "reserved") == NULL) fail_msg("%s", err.message);
    params.is_cache_in_host = true;
    RIG_OK(llm_context_create(model, &params, &ctx, &err));
    llm_context_destroy(ctx);
    llm_model_close(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logits),  cmocka_unit_test(test_reports),
        cmocka_unit_test(test_where),   cmocka_unit_test(test_readers),
        cmocka_unit_test(test_single),  cmocka_unit_test(test_no_worker),
        cmocka_unit_test(test_reserve),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
