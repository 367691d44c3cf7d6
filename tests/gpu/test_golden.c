/* SPDX-License-Identifier: MIT
 *
 * test_golden.c: compares the step lists of every model family, from graphs of the language layer,
 * with the files of tests/gpu/golden. Models are presets of random weights, or fixtures of
 * tests/model/archs for what presets do not have: streams, and recurrent states. A changed list is
 * either intended or a mistake. After a change of kernels or of the planner, read the difference,
 * then run tests/gpu/golden/update.sh.
 *
 * test_golden FOLDER [--update | --graphs]
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "bench/random_model.h"
#include "core/graph/builder.h"
#include "llm/arch/arch.h"
#include "llm/arch/forward_graph.h"
#include "llm/model.h"
#include "plugins/gpu/layout/page.h"
#include "plugins/gpu/plan/print.h"
#include "tests/gpu/plan_check.h"
#include "tests/gpu/plan_text.h"
#include "tests/model/arch_fixture.h"
#include "tests/support/graph_print.h"

static tdm_error error, *err = &error;
static const char *folder = ".";
static bool is_update, has_graphs;

#define OK(call)                                                                                   \
    do {                                                                                           \
        if ((call) != TDM_OK) fail_msg("%s: %s", #call, error.message);                            \
    } while (0)

/* `card` is of the usual size, `matrix` the same with matrix hardware, `few` has few registers, and
 * `software` has the limits of Mesa's software driver. */
static const gpu_target card = {.name = "card",
                                .subgroup_min = 32,
                                .subgroup_max = 32,
                                .max_group_size = 1024,
                                .max_grid = {INT32_MAX, 65535, 65535},
                                .shared_size = 49152,
                                .n_unit = 60,
                                .has_f16 = true,
                                .has_dot8 = true,
                                .product = {.rows_quantize = true}};
static const gpu_target matrix = {.name = "matrix",
                                  .subgroup_min = 32,
                                  .subgroup_max = 32,
                                  .max_group_size = 1024,
                                  .max_grid = {INT32_MAX, 65535, 65535},
                                  .shared_size = 49152,
                                  .n_unit = 60,
                                  .has_f16 = true,
                                  .has_dot8 = true,
                                  .matrix_rows = 16,
                                  .matrix_columns = 16,
                                  .product = {.rows_quantize = true}};
/* As plugins/vulkan/device.c sets it for Intel's GPUs. */
static const gpu_target few = {
    .name = "few",
    .subgroup_min = 16,
    .subgroup_max = 16,
    .max_group_size = 1024,
    .max_grid = {INT32_MAX, 65535, 65535},
    .shared_size = 49152,
    .is_host = true,
    .has_f16 = true,
    .has_dot8 = true,
    .product = {.row_rows = 2, .rows_quantize = true},
    .attention = {.tile_registers = 24, .tile_group = 512, .part_sums = 32}};
/* Matrix hardware of all kinds that CUDA's kernels use, and what plugins/gpu/rt/device.c sets. */
static const gpu_target hopper = {
    .name = "hopper",
    .subgroup_min = 32,
    .subgroup_max = 32,
    .max_group_size = 1024,
    .max_grid = {0x7fffffff, 65535, 1},
    .shared_size = 49152,
    .shared_most = 232448,
    .n_unit = 132,
    .has_f16 = true,
    .has_dot8 = true,
    .counts_groups = true,
    .product = {.lane_max_subgroup = -1,
                .row_group = 64,
                .has_fixed_tiles = true,
                .has_wide_matrices = true,
                .has_block_matrices = true,
                .dot_one_k = 1,
                .quantize_lanes = 8,
                .rows_quantize = true},
    .attention = {.has_matrices = true, .matrix_least_tok = 1, .part_teams = 4},
    .norm = {.share = 4, .long_share = 32}};
static const gpu_target software = {.name = "software",
                                    .subgroup_min = 8,
                                    .subgroup_max = 8,
                                    .max_group_size = 1024,
                                    .max_grid = {65535, 65535, 65535},
                                    .shared_size = 32768,
                                    .max_trips = 65535,
                                    .has_f16 = true};

enum { DECODE = 1, VERIFY = 4, PROMPT = 256 }; /* tokens of a step */

static const struct {
    const char *preset; /* or fixture */
    int32_t n_tok;
    tdm_type type; /* of weights; of a fixture f32 */
    tdm_type type_k, type_v;
    const gpu_target *target;
} cases[] = {
    {"tiny-llama", DECODE, TDM_TYPE_Q4_0, TDM_TYPE_F16, TDM_TYPE_F16, &card},
    {"tiny-llama", VERIFY, TDM_TYPE_F16, TDM_TYPE_F16, TDM_TYPE_F16, &card},
    {"tiny-llama", PROMPT, TDM_TYPE_Q4_0, TDM_TYPE_F16, TDM_TYPE_F16, &card},
    {"tiny-llama", PROMPT, TDM_TYPE_F16, TDM_TYPE_F16, TDM_TYPE_F16, &matrix},
    {"tiny-mixtral", PROMPT, TDM_TYPE_Q4_K, TDM_TYPE_F16, TDM_TYPE_F16, &matrix},
    {"tiny-llama", PROMPT, TDM_TYPE_Q4_0, TDM_TYPE_F16, TDM_TYPE_F16, &hopper},
    {"tiny-llama", DECODE, TDM_TYPE_Q4_0, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, &hopper},
    {"tiny-mixtral", PROMPT, TDM_TYPE_Q4_K, TDM_TYPE_Q8_0, TDM_TYPE_IQ4_NL, &hopper},
    {"tiny-one-kv-head", PROMPT, TDM_TYPE_F16, TDM_TYPE_F32, TDM_TYPE_F16, &hopper},
    {"tiny-llama", DECODE, TDM_TYPE_Q8_0, TDM_TYPE_F16, TDM_TYPE_F16, &software},
    {"tiny-llama", PROMPT, TDM_TYPE_Q8_0, TDM_TYPE_F16, TDM_TYPE_F16, &software},
    {"tiny-llama", DECODE, TDM_TYPE_Q4_0, TDM_TYPE_F16, TDM_TYPE_F16, &few},
    {"tiny-llama", PROMPT, TDM_TYPE_Q4_0, TDM_TYPE_F16, TDM_TYPE_F16, &few},
    {"tiny-mistral", PROMPT, TDM_TYPE_Q6_K, TDM_TYPE_Q4_0, TDM_TYPE_Q4_0, &few},
    {"tiny-deepseek2", PROMPT, TDM_TYPE_Q4_0, TDM_TYPE_F16, TDM_TYPE_F16, &few},
    {"tiny-llama-bias", DECODE, TDM_TYPE_Q4_K, TDM_TYPE_F16, TDM_TYPE_F16, &card},
    {"tiny-mistral", DECODE, TDM_TYPE_Q6_K, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, &card},
    {"tiny-mistral", PROMPT, TDM_TYPE_Q6_K, TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, &card},
    {"tiny-mixtral", DECODE, TDM_TYPE_Q4_K, TDM_TYPE_F16, TDM_TYPE_IQ4_NL, &card},
    {"tiny-mixtral", PROMPT, TDM_TYPE_Q4_K, TDM_TYPE_F16, TDM_TYPE_IQ4_NL, &card},
    {"tiny-one-kv-head", DECODE, TDM_TYPE_BF16, TDM_TYPE_F32, TDM_TYPE_BF16, &card},
    {"tiny-odd", PROMPT, TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_F16, &card},
    {"tiny-deepseek2-lite", DECODE, TDM_TYPE_Q8_0, TDM_TYPE_F16, TDM_TYPE_F16, &card},
    {"tiny-deepseek2", DECODE, TDM_TYPE_Q4_0, TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, &card},
    {"tiny-deepseek2", PROMPT, TDM_TYPE_Q4_0, TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, &card},
    {"tiny-deepseek2", PROMPT, TDM_TYPE_Q4_0, TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, &matrix},
    {"tiny-deepseek2", PROMPT, TDM_TYPE_Q4_0, TDM_TYPE_Q8_0, TDM_TYPE_Q8_0, &hopper},
    {"tiny-deepseek2-lite", DECODE, TDM_TYPE_Q8_0, TDM_TYPE_F16, TDM_TYPE_F16, &hopper},
    {"deepseek4-long", DECODE, TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_F16, &card},
    {"qwen4exp-heads", DECODE, TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_F16, &card},
    {"qwen35-dense", DECODE, TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_F16, &card},
};
enum { N_CASE = sizeof cases / sizeof *cases };

/* ---- Graphs ---- */

/* Writes the model of a preset, or else of a fixture, to `path`. */
static void model_write(const char *name, tdm_type type, const char *path) {
    const random_model_spec *found = NULL;
    const char *preset = "";
    char head[600];
    for (int i = 0; (found = random_model_preset_at(i, &preset)) != NULL; i++)
        if (strcmp(preset, name) == 0) break;
    if (found != NULL) {
        random_model_spec spec = *found;
        spec.type = type;
        OK(random_model_write(&spec, path, NULL, NULL, NULL, err));
        return;
    }
    snprintf(head, sizeof head, "%s/../../model/archs/%s.head", folder, name);
    assert_true(arch_fixture_write(head, name, 1, path));
}

static llm_model *model_open(const char *name, tdm_type type) {
    char path[] = "/tmp/tandem-golden-XXXXXX";
    llm_model *model = NULL;
    int file = mkstemp(path);
    assert_true(file >= 0);
    close(file);
    model_write(name, type, path);
    tdm_status status = llm_model_open(path, &model, err);
    unlink(path);
    OK(status);
    return model;
}

/* The forward graph, as llm_forward_graph makes it, with caches and states whose pages have the
 * target's sizes. */
static tdm_graph *graph_make(const llm_model *model, int i) {
    const int32_t n_tok = cases[i].n_tok;
    const size_t n_layer = (size_t)model->hparams.n_layer, n_state = LLM_STATE_KINDS * n_layer;
    const size_t n_weight = (size_t)model->n_weight;
    uint64_t *sizes = calloc(n_state, sizeof *sizes);
    int32_t *maps = malloc((n_weight + 2 * n_state) * sizeof *maps);
    llm_cache_shape cache = {.n_page = 16, .n_slot = 1, .page_size = sizes};
    llm_step_shape shape = {
        .n_tok = n_tok, .n_out = n_tok == VERIFY ? VERIFY : 1, .n_seq = 1, .n_entry = 16};
    tdm_builder *b = NULL;
    tdm_graph *graph = NULL;
    assert_non_null(sizes);
    assert_non_null(maps);
    memset(maps, 0xff, (n_weight + 2 * n_state) * sizeof *maps);
    llm_cache_desc_fill(model, &cache.desc);
    cache.desc.type_k = cases[i].type_k;
    cache.desc.type_v = cases[i].type_v;
    cache.desc.flags |= TDM_KV_ROTATE_K | TDM_KV_ROTATE_V;
    for (size_t k = 0; k < n_state; k++) {
        tdm_kv_desc desc;
        tdm_partition partition;
        if (llm_state_desc(model, &cache, (llm_state_kind)(k / n_layer), (int32_t)(k % n_layer),
                           &desc, &partition))
            OK(gpu_page_size(cases[i].target, &desc, &sizes[k], err));
    }
    OK(tdm_builder_create(&b, err));
    llm_graph_builder g = {b,  model, &cache, maps, maps + n_weight, maps + n_weight + n_state,
                           -1, -1,    -1,     -1};
    const tdm_step_caps caps = {shape.n_tok,
                                shape.n_seq,
                                shape.n_out,
                                shape.n_entry,
                                0,
                                llm_cache_class_count(model, &cache),
                                llm_model_is_recurrent(model)};
    g.step = tdm_build_step(b, &caps);
    llm_layers_maker.build(&g, &shape);
    OK(tdm_builder_finish(b, &graph, err));
    tdm_builder_destroy(b);
    free(sizes);
    free(maps);
    return graph;
}

/* ---- Files ---- */

static const char *file_path(int i) {
    static char path[512];
    const int32_t n = cases[i].n_tok;
    snprintf(path, sizeof path, "%s/%s.%s.%s-%s.%s.%s.txt", folder, cases[i].preset,
             tdm_type_get_info(cases[i].type).name, tdm_type_get_info(cases[i].type_k).name,
             tdm_type_get_info(cases[i].type_v).name,
             n == DECODE   ? "decode"
             : n == VERIFY ? "verify"
                           : "prompt",
             cases[i].target->name);
    return path;
}

/* The file's text; empty where there is no file. The caller frees it. */
static char *file_read(const char *path) {
    FILE *file = fopen(path, "rb");
    size_t size = 0;
    char *text = calloc(1, 1);
    assert_non_null(text);
    for (int c; file != NULL && (c = fgetc(file)) != EOF;) {
        text = realloc(text, size + 2);
        assert_non_null(text);
        text[size++] = (char)c;
        text[size] = '\0';
    }
    if (file != NULL) fclose(file);
    return text;
}

/* The first line in which two texts differ. */
static void difference_print(const char *want, const char *got) {
    int line = 1;
    const char *w = want, *g = got;
    for (; *want != '\0' && *want == *got; want++, got++)
        if (*want == '\n') line++, w = want + 1, g = got + 1;
    print_message("line %d\n  file: %.*s\n  plan: %.*s\n", line, (int)strcspn(w, "\n"), w,
                  (int)strcspn(g, "\n"), g);
}

static char *plan_text(const tdm_graph *graph, const gpu_target *target) {
    gpu_plan *plan = NULL;
    char *text = NULL;
    OK(gpu_plan_create(target, graph, &plan, err));
    OK(gpu_plan_check(plan, err));
    char *list = gpu_plan_text(plan, graph, false), *cost = gpu_plan_cost_text(plan, graph);
    assert_non_null(list);
    assert_non_null(cost);
    assert_true(asprintf(&text, "%s\n%s", list, cost) >= 0);
    free(list);
    free(cost);
    gpu_plan_destroy(plan);
    return text;
}

static void test_lists(void **state) {
    int n_different = 0;
    (void)state;
    for (int i = 0; i < N_CASE; i++) {
        llm_model *model = model_open(cases[i].preset, cases[i].type);
        tdm_graph *graph = graph_make(model, i);
        const char *path = file_path(i);
        if (has_graphs) {
            char *text = graph_print(graph);
            printf("%s\n%s\n", path, text);
            free(text);
            tdm_graph_free(graph);
            llm_model_close(model);
            continue;
        }
        char *got = plan_text(graph, cases[i].target), *want = file_read(path);
        if (strcmp(got, want) != 0 && is_update) {
            FILE *file = fopen(path, "wb");
            if (file == NULL || fputs(got, file) < 0 || fclose(file) != 0)
                fail_msg("%s: %s", path, strerror(errno));
            printf("wrote %s\n", path);
        } else if (strcmp(got, want) != 0) {
            print_message("%s differs from the plan: ", path);
            difference_print(want, got);
            n_different++;
        }
        free(want);
        free(got);
        tdm_graph_free(graph);
        llm_model_close(model);
    }
    if (n_different > 0)
        fail_msg("%d of %d lists differ; where the change is meant, run tests/gpu/golden/update.sh",
                 n_different, (int)N_CASE);
}

static int32_t step_count(const tdm_graph *graph, const gpu_target *target, int32_t kernel) {
    gpu_plan *plan = NULL;
    int32_t n = 0;
    OK(gpu_plan_create(target, graph, &plan, err));
    OK(gpu_plan_check(plan, err));
    for (int32_t i = 0; i < plan->n_step; i++) n += plan->steps[i].kernel == kernel;
    gpu_plan_destroy(plan);
    return n;
}

/* The case of a preset with the target `matrix`. */
static int matrix_case(const char *preset) {
    int i = 0;
    while (cases[i].target != &matrix || strcmp(cases[i].preset, preset) != 0) i++;
    return i;
}

/* The kernel of matrix hardware has workgroups of 128 invocations at most, which do not suffice for
 * subgroups of 64: no step uses it then. */
static void test_matrix_subgroups(void **state) {
    const int i = matrix_case("tiny-llama");
    (void)state;
    llm_model *model = model_open(cases[i].preset, cases[i].type);
    tdm_graph *graph = graph_make(model, i);
    for (int32_t subgroup = 8; subgroup <= 64; subgroup *= 2) {
        gpu_target target = matrix;
        target.subgroup_min = target.subgroup_max = subgroup;
        const int32_t n = step_count(graph, &target, GPU_KERNEL_PRODUCT_TILE_MATRIX);
        assert_true(subgroup < 64 ? n > 0 : n == 0);
    }
    tdm_graph_free(graph);
    llm_model_close(model);
}

/* Latent attention of a prompt on matrices of a subgroup: where eight subgroups fit into a
 * workgroup, and the tiles, 22928 bytes, into shared memory. Else, and where a check has found the
 * kernel wrong, ATTENTION_TILE takes its place. */
static void test_latent_tiles(void **state) {
    static const struct {
        int32_t subgroup, group, rows, columns;
        uint32_t shared;
        bool is_wrong, is_used;
    } limits[] = {
        {32, 1024, 16, 16, 49152, false, true},  {32, 256, 16, 16, 22928, false, true},
        {64, 1024, 8, 16, 32768, false, true},   {16, 128, 16, 8, 32768, false, true},
        {8, 128, 32, 8, 32768, false, true},     {32, 1024, 16, 16, 22927, false, false},
        {32, 255, 16, 16, 49152, false, false},  {32, 1024, 16, 16, 49152, true, false},
        {32, 1024, 32, 16, 49152, false, false},
    };
    const int at = matrix_case("tiny-deepseek2");
    (void)state;
    llm_model *model = model_open(cases[at].preset, cases[at].type);
    tdm_graph *graph = graph_make(model, at);
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        gpu_target target = matrix;
        target.subgroup_min = target.subgroup_max = limits[i].subgroup;
        target.max_group_size = limits[i].group;
        target.matrix_rows = limits[i].rows;
        target.matrix_columns = limits[i].columns;
        target.shared_size = limits[i].shared;
        target.attention.has_no_latent_matrices = limits[i].is_wrong;
        const int32_t n = step_count(graph, &target, GPU_KERNEL_ATTENTION_LATENT_MATRIX);
        const int32_t n_tile = step_count(graph, &target, GPU_KERNEL_ATTENTION_TILE);
        assert_int_equal(n, limits[i].is_used ? model->hparams.n_layer : 0);
        assert_int_equal(n_tile, limits[i].is_used ? 0 : model->hparams.n_layer);
    }
    tdm_graph_free(graph);
    llm_model_close(model);
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_lists),
                                       cmocka_unit_test(test_matrix_subgroups),
                                       cmocka_unit_test(test_latent_tiles)};
    if (argc > 1) folder = argv[1];
    is_update = argc > 2 && strcmp(argv[2], "--update") == 0;
    has_graphs = argc > 2 && strcmp(argv[2], "--graphs") == 0;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
