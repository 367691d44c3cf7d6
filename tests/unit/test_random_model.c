/* SPDX-License-Identifier: MIT
 *
 * test_random_model.c: random models have the contents of their spec and do not depend on the
 * number of threads; `round_type` gives exactly the numbers that the quantised model dequantises
 * to.
 */
#include "tests/unit/gguf_image.h"

#include <math.h>

#include "bench/random_model.h"
#include "quant/convert.h"

#define WEIGHT_FLOAT(ID) TDM_TYPE_##ID,
#define WEIGHT_BLOCK     WEIGHT_FLOAT
#define WEIGHT_INTEGER(ID)
#define WEIGHT_(ID, name, number, kind, ...) WEIGHT_##kind(ID)
static const tdm_type all_types[] = {TDM_TYPE_LIST(WEIGHT_)};
#define N_TYPES (sizeof all_types / sizeof *all_types)

static random_model_spec preset(const char *wanted) {
    const char *name;
    const random_model_spec *spec;
    for (int i = 0; (spec = random_model_preset_at(i, &name)) != NULL; ++i)
        if (strcmp(name, wanted) == 0) return *spec;
    fail_msg("no preset %s", wanted);
    return (random_model_spec){0};
}

static llm_gguf *make(const random_model_spec *spec, const char *file) {
    tdm_error err = {0};
    llm_gguf *g = NULL;
    if (random_model_write(spec, image_path(file), NULL, NULL, NULL, &err) != TDM_OK ||
        llm_gguf_open(image_path(file), &g, &err) != TDM_OK)
        fail_msg("%s", err.message);
    return g;
}

static void test_presets(void **state) {
    (void)state;
    const char *name;
    const random_model_spec *spec;
    int n = 0;
    for (; (spec = random_model_preset_at(n, &name)) != NULL; ++n) {
        if (strncmp(name, "tiny", 4) != 0) continue;
        llm_gguf *g = make(spec, "preset.gguf");
        uint32_t n_layer = 0, n_experts = 0;
        llm_gguf_str text = {"", 0};
        bool is_latent = spec->latent.n_lora_kv > 0;
        const char *arch = is_latent ? "deepseek2" : "llama";
        char key[64];
        snprintf(key, sizeof key, "%s.block_count", arch);
        assert_int_equal(llm_gguf_get_u32(g, key, 1, &n_layer, NULL), TDM_OK);
        assert_int_equal(n_layer, spec->n_layer);
        assert_int_equal(llm_gguf_get_str(g, "general.architecture", 1, &text, NULL), TDM_OK);
        assert_true(llm_gguf_str_equals(text, arch));
        snprintf(key, sizeof key, "%s.expert_count", arch);
        assert_int_equal(llm_gguf_get_u32(g, key, 0, &n_experts, NULL), TDM_OK);
        assert_int_equal(n_experts, spec->n_expert);
        assert_int_equal(llm_gguf_tensor_find(g, "output.weight") == NULL, spec->is_tied);
        const llm_gguf_tensor *down = llm_gguf_tensor_find(
            g, spec->n_expert > 0 ? "blk.1.ffn_down_exps.weight" : "blk.1.ffn_down.weight");
        assert_non_null(down);
        assert_int_equal(down->ne[0], is_latent ? spec->latent.n_ff_expert : spec->n_ff);
        assert_int_equal(down->ne[1], spec->n_embd);
        assert_int_equal(down->ne[2], spec->n_expert > 0 ? spec->n_expert : 1);

        /* The vocabulary has as many different pieces as its size. */
        llm_gguf_array tokens;
        assert_int_equal(
            llm_gguf_get_array(g, "tokenizer.ggml.tokens", LLM_GGUF_STRING, 1, &tokens, NULL),
            TDM_OK);
        assert_int_equal(tokens.n, spec->n_vocab);
        for (uint64_t i = 0; i < tokens.n; ++i)
            for (uint64_t j = 0; j < i; ++j) {
                const llm_gguf_str a = llm_gguf_array_str(&tokens, i);
                const llm_gguf_str b = llm_gguf_array_str(&tokens, j);
                assert_true(a.len > 0);
                assert_false(a.len == b.len && memcmp(a.ptr, b.ptr, a.len) == 0);
            }
        llm_gguf_close(g);
    }
    assert_true(n >= 7);
}

/* The weights have the mean and deviation that keep activations sane. */
static void test_distribution(void **state) {
    (void)state;
    random_model_spec spec = preset("tiny-llama");
    llm_gguf *g = make(&spec, "numbers.gguf");
    const llm_gguf_tensor *q = llm_gguf_tensor_find(g, "blk.0.attn_q.weight");
    const float *w = q->data;
    double sum = 0, sum2 = 0;
    const int64_t n = q->ne[0] * q->ne[1];
    for (int64_t i = 0; i < n; ++i) {
        sum += w[i];
        sum2 += (double)w[i] * w[i];
    }
    assert_true(fabs(sum / (double)n) < 0.001);
    assert_true(fabs(sum2 / (double)n * (double)spec.n_embd - 1) < 0.03);
    assert_memory_not_equal(w, w + q->ne[0], (size_t)q->ne[0] * sizeof *w);
    const llm_gguf_tensor *other = llm_gguf_tensor_find(g, "blk.1.attn_q.weight");
    assert_memory_not_equal(w, other->data, 64);
    /* Exact, on every machine: expected results kept elsewhere depend on these numbers. */
    static const uint32_t golden[4] = {0x3dc4fe65u, 0x3ccaad51u, 0x3d27ad6bu, 0xbd62f22fu};
    uint32_t found[4];
    memcpy(found, w, sizeof found);
    for (int i = 0; i < 4; ++i) assert_int_equal(found[i], golden[i]);
    const float *norm = llm_gguf_tensor_find(g, "output_norm.weight")->data;
    for (int i = 0; i < 256; ++i) assert_true(norm[i] > 0.6f && norm[i] < 1.4f);
    llm_gguf_close(g);
    spec.seed = 2;
    g = make(&spec, "numbers.gguf");
    assert_memory_not_equal(found, llm_gguf_tensor_find(g, "blk.0.attn_q.weight")->data,
                            sizeof found);
    llm_gguf_close(g);
}

static void test_threads(void **state) {
    (void)state;
    random_model_spec spec = preset("tiny-mixtral");
    spec.type = TDM_TYPE_Q4_0;
    llm_gguf *one = NULL, *many = NULL;
    spec.n_thread = 1;
    one = make(&spec, "one.gguf");
    spec.n_thread = 5;
    many = make(&spec, "many.gguf");
    assert_int_equal(llm_gguf_tensor_count(one), llm_gguf_tensor_count(many));
    for (uint32_t i = 0; i < llm_gguf_tensor_count(one); ++i) {
        const llm_gguf_tensor *a = llm_gguf_tensor_at(one, i), *b = llm_gguf_tensor_at(many, i);
        assert_string_equal(a->name, b->name);
        assert_int_equal(a->size, b->size);
        assert_memory_equal(a->data, b->data, a->size);
    }
    llm_gguf_close(one);
    llm_gguf_close(many);
}

static void test_rounding(void **state) {
    (void)state;
    const char *const presets[] = {"tiny-one-kv-head", "tiny-odd"};
    for (size_t p = 0; p < 2; ++p)
        for (size_t t = 0; t < N_TYPES; ++t) {
            random_model_spec spec = preset(presets[p]);
            spec.n_layer = 1; /* searching for the points of a grid takes its time */
            spec.type = all_types[t];
            llm_gguf *coarse = make(&spec, "coarse.gguf");
            spec.type = TDM_TYPE_F32;
            spec.round_type = all_types[t];
            llm_gguf *fine = make(&spec, "fine.gguf");
            uint32_t n_of_type = 0;
            for (uint32_t i = 0; i < llm_gguf_tensor_count(coarse); ++i) {
                const llm_gguf_tensor *a = llm_gguf_tensor_at(coarse, i);
                const llm_gguf_tensor *b = llm_gguf_tensor_at(fine, i);
                float row[512];
                assert_true(a->ne[0] <= 512);
                assert_int_equal(b->type, TDM_TYPE_F32);
                n_of_type += a->type == all_types[t] && a->n_dims > 1;
                for (int64_t r = 0; r < a->ne[1] * a->ne[2]; ++r) {
                    const uint8_t *from =
                        (const uint8_t *)a->data + (size_t)r * tdm_type_row_size(a->type, a->ne[0]);
                    assert_int_equal(tdm_row_dequantize(a->type, from, row, a->ne[0]), TDM_OK);
                    assert_memory_equal(row, (const float *)b->data + r * b->ne[0],
                                        (size_t)a->ne[0] * sizeof *row);
                }
            }
            if (p == 0) assert_int_equal(n_of_type, 1 + 7);
            llm_gguf_close(coarse);
            llm_gguf_close(fine);
        }
}

static void test_fallback(void **state) {
    (void)state;
    random_model_spec spec = preset("tiny-odd");
    spec.type = TDM_TYPE_Q4_K;
    random_model_facts facts;
    tdm_error err = {0};
    assert_int_equal(random_model_write(&spec, image_path("odd.gguf"), &facts, NULL, NULL, &err),
                     TDM_OK);
    assert_int_equal(facts.n_fallback, 2 + 3 * 7);
    assert_string_equal(facts.fallback_name, "token_embd.weight");
    assert_int_equal(facts.fallback_type, TDM_TYPE_Q8_0);
    assert_int_equal(facts.fallback_row, 96);
    llm_gguf *g = NULL;
    assert_int_equal(llm_gguf_open(image_path("odd.gguf"), &g, &err), TDM_OK);
    assert_int_equal(llm_gguf_tensor_find(g, "blk.0.ffn_down.weight")->type, TDM_TYPE_F16);
    int64_t n_param = 0, size = 0;
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); ++i) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(g, i);
        n_param += t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
        size += (int64_t)t->size;
    }
    assert_int_equal(n_param, facts.n_param);
    assert_int_equal(size, facts.size);
    llm_gguf_close(g);
}

/* Llama 3's factors: 1 for short waves, the factor for long ones, rising between. */
static void test_rope(void **state) {
    (void)state;
    random_model_spec spec = preset("tiny-llama");
    spec.rope = RANDOM_MODEL_ROPE_LLAMA3;
    llm_gguf *g = make(&spec, "rope.gguf");
    const llm_gguf_tensor *freqs = llm_gguf_tensor_find(g, "rope_freqs.weight");
    assert_non_null(freqs);
    assert_int_equal(freqs->ne[0], spec.head_dim / 2);
    const float *f = freqs->data;
    assert_true(f[0] == 1.0f);
    assert_true(f[spec.head_dim / 2 - 1] == spec.rope_factor);
    int n_between = 0;
    for (int64_t i = 1; i < spec.head_dim / 2; ++i) {
        assert_true(f[i] >= f[i - 1]);
        n_between += f[i] > 1.0f && f[i] < spec.rope_factor;
    }
    assert_true(n_between > 0);
    assert_null(llm_gguf_key_find(g, "llama.rope.scaling.type"));
    llm_gguf_close(g);
    spec.rope = RANDOM_MODEL_ROPE_YARN;
    g = make(&spec, "rope.gguf");
    llm_gguf_str text = {"", 0};
    uint32_t n_old = 0;
    assert_int_equal(llm_gguf_get_str(g, "llama.rope.scaling.type", 1, &text, NULL), TDM_OK);
    assert_true(llm_gguf_str_equals(text, "yarn"));
    assert_int_equal(
        llm_gguf_get_u32(g, "llama.rope.scaling.original_context_length", 1, &n_old, NULL), TDM_OK);
    assert_int_equal(n_old, 128);
    llm_gguf_close(g);
}

static void test_refused(void **state) {
    (void)state;
    static const struct {
        const char *text;
        size_t off;
        int64_t value;
    } cases[] = {
        {"layers is 0", offsetof(random_model_spec, n_layer), 0},
        {"layers is 1025", offsetof(random_model_spec, n_layer), 1025},
        {"width is -1", offsetof(random_model_spec, n_embd), -1},
        {"width is 9223372036854775807", offsetof(random_model_spec, n_embd), INT64_MAX},
        {"heads-kv is 0", offsetof(random_model_spec, n_head_kv), 0},
        {"heads-kv is 5", offsetof(random_model_spec, n_head_kv), 5},
        {"multiple of heads-kv", offsetof(random_model_spec, n_head_kv), 3},
        {"head-dim is 7, but must be even", offsetof(random_model_spec, head_dim), 7},
        {"ff is 0", offsetof(random_model_spec, n_ff), 0},
        {"vocab is 258", offsetof(random_model_spec, n_vocab), 258},
        {"experts-used is 0", offsetof(random_model_spec, n_expert), 4},
        {"experts-used is 2", offsetof(random_model_spec, n_expert_used), 2},
        {"seed is -1", offsetof(random_model_spec, seed), -1},
        {"threads is 65", offsetof(random_model_spec, n_thread), 65},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; ++i) {
        random_model_spec spec = preset("tiny-llama");
        tdm_error err = {0};
        memcpy((char *)&spec + cases[i].off, &cases[i].value, sizeof cases[i].value);
        assert_int_equal(random_model_write(&spec, image_path("no.gguf"), NULL, NULL, NULL, &err),
                         TDM_INVALID_ARGUMENT);
        if (strstr(err.message, cases[i].text) == NULL) fail_msg("message: %s", err.message);
    }
    random_model_spec spec = preset("tiny-llama");
    tdm_error err = {0};
    spec.type = TDM_TYPE_I32;
    assert_int_equal(random_model_write(&spec, image_path("no.gguf"), NULL, NULL, NULL, &err),
                     TDM_INVALID_ARGUMENT);
    assert_non_null(strstr(err.message, "weights cannot have type i32"));
    spec = preset("tiny-llama");
    spec.rope_factor = NAN;
    assert_int_equal(random_model_write(&spec, image_path("no.gguf"), NULL, NULL, NULL, &err),
                     TDM_INVALID_ARGUMENT);
    assert_int_not_equal(access(image_path("no.gguf"), F_OK), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_presets),  cmocka_unit_test(test_distribution),
        cmocka_unit_test(test_threads),  cmocka_unit_test(test_rounding),
        cmocka_unit_test(test_fallback), cmocka_unit_test(test_rope),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, image_folder_remove);
}
