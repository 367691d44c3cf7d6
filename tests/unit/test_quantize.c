/* SPDX-License-Identifier: MIT
 *
 * test_quantize.c: which types a quantised file's tensors get, that the file holds what the row
 * converters give whatever the number of threads, and how bad input fails.
 *
 * The expected mixtures are what llama.cpp's tool (v0.5.0) made of files with the same keys and
 * names.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "quant/convert.h"
#include "llm/arch/role.h"
#include "llm/gguf/gguf_write.h"
#include "llm/quantize/quantize.h"
#include "tests/support/random.h"

static char in_path[64], out_path[64], other_path[64];

typedef struct shape {
    uint32_t n_layer, n_head, n_head_kv, n_expert;
    int64_t n_embd;
    bool is_tied;
    bool is_backwards; /* layers from the last to the first */
    bool is_unnamed;   /* has no architecture */
    bool has_ids;      /* and a matrix of integers */
    float odd;         /* a number of the token embedding; 0 = like the others */
} shape;

static uint64_t random_state;

static float random_float(void) {
    return (float)(int32_t)(random_u64(&random_state) >> 32) * 0x1p-36f;
}

static int64_t n_float; /* elements of the tensors described so far, all of them 4 bytes */

static void put_tensor(llm_gguf_writer *w, const char *name, tdm_type type, int32_t n_dims,
                       int64_t n, int64_t n_row, int64_t n_expert) {
    int64_t ne[4] = {n, n_row, n_expert, 1};
    llm_gguf_writer_add_tensor(w, name, type, n_dims, ne);
    n_float += n * n_row * n_expert;
}

static void put_layer(llm_gguf_writer *w, const shape *s, uint32_t layer) {
    static const char *const attention[] = {"attn_q", "attn_k", "attn_v", "attn_output"};
    static const char *const feed[] = {"ffn_gate", "ffn_up", "ffn_down"};
    char name[64];
    for (size_t i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, attention[i]);
        put_tensor(w, name, TDM_TYPE_F32, 2, s->n_embd, 2, 1);
    }
    snprintf(name, sizeof name, "blk.%u.attn_q.bias", layer);
    put_tensor(w, name, TDM_TYPE_F32, 1, s->n_embd, 1, 1);
    snprintf(name, sizeof name, "blk.%u.ffn_norm.weight", layer);
    put_tensor(w, name, TDM_TYPE_F32, 1, s->n_embd, 1, 1);
    for (size_t i = 0; i < 3; i++) {
        bool is_moe = s->n_expert > 0;
        snprintf(name, sizeof name, "blk.%u.%s%s.weight", layer, feed[i], is_moe ? "_exps" : "");
        put_tensor(w, name, TDM_TYPE_F32, is_moe ? 3 : 2, s->n_embd, 3, is_moe ? s->n_expert : 1);
    }
    if (s->n_expert == 0) return;
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", layer);
    put_tensor(w, name, TDM_TYPE_F32, 2, s->n_embd, s->n_expert, 1);
}

/* Writes a file with the keys and tensors of a model, and opens it. */
static llm_gguf *model_make(const shape *s) {
    llm_gguf_writer *w = NULL;
    llm_gguf *g = NULL;
    tdm_error err = {0};
    random_state = 1;
    n_float = 0;
    assert_int_equal(llm_gguf_writer_create(in_path, &w, NULL), TDM_OK);
    if (!s->is_unnamed) llm_gguf_writer_put_text(w, "general.architecture", "llama");
    llm_gguf_writer_put_u32(w, "general.alignment", 32);
    llm_gguf_writer_put_u32(w, "general.file_type", 0);
    llm_gguf_writer_put_u32(w, "llama.block_count", s->n_layer);
    llm_gguf_writer_put_u32(w, "llama.attention.head_count", s->n_head);
    uint32_t each[2] = {s->n_head_kv, 1}; /* one for each layer, as some files have it */
    llm_gguf_writer_put_array(w, "llama.attention.head_count_kv", LLM_GGUF_U32, each, 2);
    if (s->n_expert > 0) llm_gguf_writer_put_u32(w, "llama.expert_count", s->n_expert);
    put_tensor(w, "token_embd.weight", TDM_TYPE_F32, 2, s->n_embd, 2, 1);
    if (!s->is_tied) put_tensor(w, "output.weight", TDM_TYPE_F32, 2, s->n_embd, 2, 1);
    put_tensor(w, "table.weight", TDM_TYPE_I32, s->has_ids ? 2 : 1, s->n_embd, s->has_ids ? 2 : 1,
               1);
    for (uint32_t i = 0; i < s->n_layer; i++)
        put_layer(w, s, s->is_backwards ? s->n_layer - 1 - i : i);
    for (int64_t i = 0; i < n_float; i++) {
        float value = random_float();
        if (i == 5 && s->odd != 0) value = s->odd;
        if (llm_gguf_writer_write(w, &value, sizeof value, &err) != TDM_OK)
            fail_msg("%s", err.message);
    }
    if (llm_gguf_writer_finish(w, &err) != TDM_OK) fail_msg("%s", err.message);
    llm_gguf_writer_destroy(w);
    if (llm_gguf_open(in_path, &g, &err) != TDM_OK) fail_msg("%s", err.message);
    return g;
}

static llm_quantize_choice choices[1024];

static void choose(const llm_gguf *g, const char *kind, bool is_pure) {
    tdm_error err = {0};
    assert_true(llm_gguf_tensor_count(g) <= 1024);
    if (llm_quantize_choose(g, llm_quantize_kind_find(kind), is_pure, false, choices, &err) !=
        TDM_OK)
        fail_msg("%s", err.message);
}

static tdm_type chosen(const llm_gguf *g, const char *name) {
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++)
        if (strcmp(llm_gguf_tensor_at(g, i)->name, name) == 0) return choices[i].type;
    fail_msg("no tensor %s", name);
    return TDM_TYPE_F32;
}

static void expect_type(const llm_gguf *g, const char *name, tdm_type type) {
    if (chosen(g, name) != type)
        fail_msg("%s: %s, not %s", name, tdm_type_name(chosen(g, name)), tdm_type_name(type));
}

/* The layers, as a string of their numbers, whose `part` has `type`. */
static void expect_layers(const llm_gguf *g, uint32_t n_layer, const char *part, tdm_type type,
                          const char *expected) {
    char found[256] = "", name[64];
    for (uint32_t i = 0; i < n_layer; i++) {
        snprintf(name, sizeof name, "blk.%u.%s.weight", i, part);
        size_t len = strlen(found);
        if (chosen(g, name) == type)
            snprintf(found + len, sizeof found - len, "%s%u", len > 0 ? " " : "", i);
    }
    assert_string_equal(found, expected);
}

static void test_names(void **state) {
    (void)state;
    for (size_t i = 0; i < n_llm_quantize_kinds; i++) {
        assert_ptr_equal(llm_quantize_kind_find(llm_quantize_kinds[i].name),
                         &llm_quantize_kinds[i]);
        assert_non_null(tdm_row_codec_get(llm_quantize_kinds[i].type).quantize);
        for (size_t k = 0; k < i; k++)
            assert_int_not_equal(llm_quantize_kinds[i].file_type, llm_quantize_kinds[k].file_type);
    }
    assert_string_equal(llm_quantize_kind_find("Q4_K_M")->name, "q4_K_M");
    assert_string_equal(llm_quantize_kind_find("q4_k")->name, "q4_K_M");
    assert_string_equal(llm_quantize_kind_find("Q3_K")->name, "q3_K_M");
    assert_string_equal(llm_quantize_kind_find("MXFP4")->name, "mxfp4_moe");
    assert_null(llm_quantize_kind_find("q9"));
    assert_null(llm_quantize_kind_find(""));
}

/* The values of general.file_type, by llama.cpp's enum llama_ftype. */
static void test_file_types(void **state) {
    (void)state;
    static const struct {
        const char *name;
        uint32_t file_type;
    } cases[] = {
        {"F32", 0},      {"F16", 1},      {"Q4_0", 2},       {"Q4_1", 3},    {"Q8_0", 7},
        {"Q5_0", 8},     {"Q5_1", 9},     {"Q2_K", 10},      {"Q3_K_S", 11}, {"Q3_K_M", 12},
        {"Q3_K_L", 13},  {"Q4_K_S", 14},  {"Q4_K_M", 15},    {"Q5_K_S", 16}, {"Q5_K_M", 17},
        {"Q6_K", 18},    {"IQ2_XXS", 19}, {"IQ2_XS", 20},    {"Q2_K_S", 21}, {"IQ3_XS", 22},
        {"IQ3_XXS", 23}, {"IQ1_S", 24},   {"IQ4_NL", 25},    {"IQ3_S", 26},  {"IQ3_M", 27},
        {"IQ2_S", 28},   {"IQ2_M", 29},   {"IQ4_XS", 30},    {"IQ1_M", 31},  {"BF16", 32},
        {"TQ1_0", 36},   {"TQ2_0", 37},   {"MXFP4_MOE", 38}, {"NVFP4", 39},
    };
    assert_int_equal(sizeof cases / sizeof *cases, n_llm_quantize_kinds);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const llm_quantize_kind *kind = llm_quantize_kind_find(cases[i].name);
        assert_non_null(kind);
        assert_int_equal(kind->file_type, cases[i].file_type);
    }
}

/* Every type that has a quantiser is what most matrices of some kind get. */
static void test_types(void **state) {
    (void)state;
    for (int type = 0; type < TDM_TYPE_LIMIT_; type++) {
        if (tdm_row_codec_get((tdm_type)type).quantize == NULL) continue;
        bool is_offered = false;
        for (size_t i = 0; i < n_llm_quantize_kinds; i++)
            is_offered = is_offered || llm_quantize_kinds[i].type == (tdm_type)type;
        if (!is_offered) fail_msg("no kind of %s", tdm_type_name((tdm_type)type));
    }
}

static void test_mixtures(void **state) {
    (void)state;
    shape s = {.n_layer = 32, .n_head = 8, .n_head_kv = 8, .n_embd = 256, .is_backwards = true};
    llm_gguf *g = model_make(&s);
    static const char favoured[] = "0 1 2 3 6 9 12 15 18 21 24 27 28 29 30 31";
    choose(g, "q4_K_M", false);
    expect_layers(g, 32, "attn_v", TDM_TYPE_Q6_K, favoured);
    expect_layers(g, 32, "ffn_down", TDM_TYPE_Q6_K, favoured);
    expect_layers(g, 32, "attn_output", TDM_TYPE_Q6_K, "");
    expect_type(g, "output.weight", TDM_TYPE_Q6_K);
    expect_type(g, "token_embd.weight", TDM_TYPE_Q4_K);
    expect_type(g, "blk.4.ffn_up.weight", TDM_TYPE_Q4_K);
    expect_type(g, "blk.4.ffn_norm.weight", TDM_TYPE_F32);
    expect_type(g, "blk.4.attn_q.bias", TDM_TYPE_F32);
    choose(g, "q4_K_M", true); /* pure */
    expect_type(g, "output.weight", TDM_TYPE_Q4_K);
    expect_layers(g, 32, "attn_v", TDM_TYPE_Q6_K, "");
    choose(g, "q4_K_S", false);
    expect_layers(g, 32, "attn_v", TDM_TYPE_Q5_K, "0 1 2 3");
    expect_layers(g, 32, "ffn_down", TDM_TYPE_Q5_K, "0 1 2 3");
    choose(g, "q5_K_M", false);
    expect_layers(g, 32, "ffn_down", TDM_TYPE_Q6_K, favoured);
    choose(g, "q3_K_M", false);
    expect_layers(g, 32, "attn_v", TDM_TYPE_Q5_K, "0 1");
    expect_layers(g, 32, "ffn_down", TDM_TYPE_Q5_K, "0 1");
    expect_type(g, "blk.9.ffn_down.weight", TDM_TYPE_Q4_K);
    expect_type(g, "blk.9.attn_output.weight", TDM_TYPE_Q4_K);
    expect_type(g, "blk.9.attn_q.weight", TDM_TYPE_Q3_K);
    choose(g, "q2_K", false);
    expect_type(g, "blk.9.attn_v.weight", TDM_TYPE_Q3_K);
    expect_type(g, "blk.9.attn_output.weight", TDM_TYPE_Q3_K);
    choose(g, "q8_0", false);
    expect_type(g, "output.weight", TDM_TYPE_Q8_0);
    choose(g, "f16", false);
    expect_type(g, "output.weight", TDM_TYPE_F16);
    expect_type(g, "blk.4.ffn_norm.weight", TDM_TYPE_F32);
    llm_gguf_close(g);
}

/* Types with grids, in a model where no head shares its values and in one where four do. */
static void test_mixtures_of_grids(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        tdm_type output, token_embd, q, k, v, shared_v, attn_output, up, first_down, down;
    } cases[] = {
#define T(name) TDM_TYPE_##name
        {"iq3_m", T(Q6_K), T(IQ3_S), T(IQ3_S), T(IQ3_S), T(Q4_K), T(Q4_K), T(Q4_K), T(IQ3_S),
         T(Q4_K), T(IQ3_S)},
        {"iq3_s", T(Q6_K), T(IQ3_S), T(IQ3_S), T(IQ3_S), T(IQ3_S), T(Q4_K), T(IQ3_S), T(IQ3_S),
         T(IQ3_S), T(IQ3_S)},
        {"iq3_xs", T(Q6_K), T(IQ3_S), T(IQ3_XXS), T(IQ3_XXS), T(IQ3_S), T(Q4_K), T(IQ3_S),
         T(IQ3_XXS), T(IQ3_S), T(IQ3_S)},
        {"iq3_xxs", T(Q5_K), T(IQ3_S), T(IQ2_S), T(IQ2_S), T(IQ3_S), T(Q4_K), T(IQ3_S), T(IQ3_XXS),
         T(Q4_K), T(Q3_K)},
        {"iq2_m", T(Q5_K), T(IQ3_S), T(IQ2_S), T(IQ2_S), T(IQ3_S), T(Q4_K), T(IQ3_S), T(IQ2_S),
         T(IQ3_S), T(IQ2_S)},
        {"iq2_s", T(Q5_K), T(IQ3_S), T(IQ2_XS), T(IQ2_XS), T(IQ3_S), T(Q4_K), T(IQ3_S), T(IQ2_XS),
         T(IQ3_S), T(IQ2_XS)},
        {"iq2_xs", T(Q5_K), T(Q2_K), T(IQ2_XS), T(IQ2_XS), T(Q2_K), T(Q4_K), T(IQ2_XS), T(IQ2_XS),
         T(Q2_K), T(IQ2_XS)},
        {"iq2_xxs", T(Q5_K), T(Q2_K), T(IQ2_XXS), T(IQ2_XXS), T(Q2_K), T(Q4_K), T(IQ2_XXS),
         T(IQ2_XXS), T(Q2_K), T(IQ2_XXS)},
        {"iq1_m", T(Q5_K), T(Q2_K), T(IQ1_M), T(IQ1_M), T(Q2_K), T(Q4_K), T(IQ2_XXS), T(IQ1_M),
         T(Q2_K), T(IQ1_M)},
        {"iq1_s", T(Q5_K), T(Q2_K), T(IQ1_S), T(IQ1_S), T(Q2_K), T(Q4_K), T(IQ2_XXS), T(IQ1_S),
         T(Q2_K), T(IQ1_S)},
        {"tq1_0", T(Q6_K), T(Q4_K), T(TQ1_0), T(TQ1_0), T(TQ1_0), T(TQ1_0), T(TQ1_0), T(TQ1_0),
         T(TQ1_0), T(TQ1_0)},
        {"tq2_0", T(Q6_K), T(Q4_K), T(TQ2_0), T(TQ2_0), T(TQ2_0), T(TQ2_0), T(TQ2_0), T(TQ2_0),
         T(TQ2_0), T(TQ2_0)},
        {"nvfp4", T(Q6_K), T(NVFP4), T(NVFP4), T(NVFP4), T(NVFP4), T(NVFP4), T(NVFP4), T(NVFP4),
         T(NVFP4), T(NVFP4)},
        {"mxfp4", T(Q8_0), T(Q8_0), T(Q8_0), T(Q8_0), T(Q8_0), T(Q8_0), T(Q8_0), T(Q8_0), T(Q8_0),
         T(Q8_0)},
#undef T
    };
    for (uint32_t n_head_kv = 2; n_head_kv <= 8; n_head_kv += 6) {
        shape s = {.n_layer = 16, .n_head = 8, .n_head_kv = n_head_kv, .n_embd = 256};
        llm_gguf *g = model_make(&s);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            choose(g, cases[i].kind, false);
            expect_type(g, "output.weight", cases[i].output);
            expect_type(g, "token_embd.weight", cases[i].token_embd);
            expect_type(g, "blk.5.attn_q.weight", cases[i].q);
            expect_type(g, "blk.5.attn_k.weight", cases[i].k);
            expect_type(g, "blk.5.attn_v.weight", n_head_kv == 2 ? cases[i].shared_v : cases[i].v);
            expect_type(g, "blk.5.attn_output.weight", cases[i].attn_output);
            expect_type(g, "blk.5.ffn_up.weight", cases[i].up);
            expect_type(g, "blk.5.ffn_gate.weight", cases[i].up);
            expect_type(g, "blk.1.ffn_down.weight", cases[i].first_down);
            expect_type(g, "blk.2.ffn_down.weight", cases[i].down);
            choose(g, cases[i].kind, true); /* pure */
            tdm_type type = llm_quantize_kind_find(cases[i].kind)->type;
            expect_type(g, "output.weight", type);
            expect_type(g, "blk.5.attn_v.weight", type);
        }
        choose(g, "iq3_xs", false);
        expect_layers(g, 16, "ffn_up", TDM_TYPE_IQ3_S, "0 1 14 15");
        expect_layers(g, 16, "ffn_gate", TDM_TYPE_IQ3_S, "0 1 14 15");
        llm_gguf_close(g);
    }
}

/* What an importance matrix changes (llama.cpp, src/llama-quant.cpp: has_imatrix). */
static void test_mixtures_with_importance(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        tdm_type v, first_down, down;
    } cases[] = {
        {"iq3_xxs", TDM_TYPE_IQ3_XXS, TDM_TYPE_IQ3_XXS, TDM_TYPE_IQ3_XXS},
        {"iq4_xs", TDM_TYPE_IQ4_XS, TDM_TYPE_IQ4_XS, TDM_TYPE_IQ4_XS},
        {"iq4_nl", TDM_TYPE_IQ4_NL, TDM_TYPE_IQ4_NL, TDM_TYPE_IQ4_NL},
        {"q4_0", TDM_TYPE_Q4_0, TDM_TYPE_Q4_1, TDM_TYPE_Q4_0},
        {"q5_0", TDM_TYPE_Q5_0, TDM_TYPE_Q5_1, TDM_TYPE_Q5_0},
        {"q2_K", TDM_TYPE_Q3_K, TDM_TYPE_Q3_K, TDM_TYPE_Q3_K},
        {"iq2_xs", TDM_TYPE_Q2_K, TDM_TYPE_Q2_K, TDM_TYPE_IQ2_XS},
    };
    const shape s = {.n_layer = 16, .n_head = 8, .n_head_kv = 8, .n_embd = 256};
    llm_gguf *g = model_make(&s);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tdm_error err = {0};
        assert_int_equal(llm_quantize_choose(g, llm_quantize_kind_find(cases[i].kind), false, true,
                                             choices, &err),
                         TDM_OK);
        expect_type(g, "blk.5.attn_v.weight", cases[i].v);
        expect_type(g, "blk.1.ffn_down.weight", cases[i].first_down);
        expect_type(g, "blk.2.ffn_down.weight", cases[i].down);
    }
    llm_gguf_close(g);
}

/* The same types where eight experts, or four, make a block. */
static void test_mixtures_of_experts(void **state) {
    (void)state;
    shape s = {.n_layer = 16, .n_head = 8, .n_head_kv = 8, .n_expert = 8, .n_embd = 256};
    llm_gguf *g = model_make(&s);
    choose(g, "mxfp4_moe", false);
    expect_type(g, "blk.5.ffn_up_exps.weight", TDM_TYPE_MXFP4);
    expect_type(g, "blk.5.ffn_down_exps.weight", TDM_TYPE_MXFP4);
    expect_type(g, "blk.5.attn_v.weight", TDM_TYPE_Q8_0);
    expect_type(g, "blk.5.ffn_gate_inp.weight", TDM_TYPE_F32);
    expect_type(g, "output.weight", TDM_TYPE_Q8_0);
    choose(g, "iq3_m", false);
    expect_layers(g, 16, "ffn_down_exps", TDM_TYPE_Q4_K, "0 1 4 7 10 13 14 15");
    expect_type(g, "blk.5.attn_v.weight", TDM_TYPE_Q8_0);
    expect_type(g, "blk.5.attn_k.weight", TDM_TYPE_Q8_0);
    expect_type(g, "blk.5.attn_output.weight", TDM_TYPE_Q5_K);
    choose(g, "iq2_xs", false);
    expect_type(g, "blk.5.attn_v.weight", TDM_TYPE_Q4_K);
    expect_type(g, "blk.5.attn_k.weight", TDM_TYPE_Q4_K);
    expect_type(g, "blk.5.attn_output.weight", TDM_TYPE_Q5_K);
    llm_gguf_close(g);
    s.n_expert = 4;
    s.is_tied = true;
    g = model_make(&s);
    choose(g, "iq1_s", false);
    expect_type(g, "token_embd.weight", TDM_TYPE_Q5_K); /* is the output matrix, too */
    expect_type(g, "blk.5.attn_v.weight", TDM_TYPE_Q4_K);
    expect_type(g, "blk.5.attn_k.weight", TDM_TYPE_IQ1_S);
    expect_type(g, "blk.5.attn_output.weight", TDM_TYPE_IQ2_XXS);
    llm_gguf_close(g);
}

static void test_mixtures_of_kinds(void **state) {
    (void)state;
    shape moe = {.n_layer = 16, .n_head = 8, .n_head_kv = 2, .n_expert = 8, .n_embd = 256};
    llm_gguf *g = model_make(&moe);
    choose(g, "q4_K_M", false);
    expect_type(g, "blk.5.attn_v.weight", TDM_TYPE_Q8_0);
    expect_type(g, "blk.5.attn_k.weight", TDM_TYPE_Q8_0);
    expect_type(g, "blk.5.attn_output.weight", TDM_TYPE_Q5_K);
    expect_type(g, "blk.5.ffn_gate_inp.weight", TDM_TYPE_F32);
    expect_layers(g, 16, "ffn_down_exps", TDM_TYPE_Q6_K, "0 1 4 7 10 13 14 15");
    llm_gguf_close(g);
    shape shared = {.n_layer = 16, .n_head = 8, .n_head_kv = 2, .n_embd = 256, .is_tied = true};
    g = model_make(&shared);
    choose(g, "q2_K", false);
    expect_type(g, "blk.5.attn_v.weight", TDM_TYPE_Q4_K);
    expect_type(g, "token_embd.weight", TDM_TYPE_Q6_K); /* is the output matrix, too */
    choose(g, "iq4_xs", false);
    expect_type(g, "blk.5.attn_v.weight", TDM_TYPE_Q5_K);
    expect_layers(g, 16, "ffn_down", TDM_TYPE_Q5_K, "0 1");
    llm_gguf_close(g);
    shape large = {.n_layer = 80, .n_head = 8, .n_head_kv = 1, .n_embd = 256};
    g = model_make(&large);
    choose(g, "q4_K_S", false);
    expect_type(g, "blk.50.attn_v.weight", TDM_TYPE_Q5_K);
    llm_gguf_close(g);
}

/* Rows that are no whole blocks. */
static void test_fallbacks(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        tdm_type by_32, by_none;
    } cases[] = {
        {"q4_K_S", TDM_TYPE_Q5_0, TDM_TYPE_F16},    {"q5_K_S", TDM_TYPE_Q5_1, TDM_TYPE_F16},
        {"q6_K", TDM_TYPE_Q8_0, TDM_TYPE_F16},      {"q3_K_S", TDM_TYPE_Q4_0, TDM_TYPE_F16},
        {"q2_K", TDM_TYPE_Q4_0, TDM_TYPE_F16},      {"iq4_xs", TDM_TYPE_IQ4_NL, TDM_TYPE_F16},
        {"q4_0", TDM_TYPE_Q4_0, TDM_TYPE_F16},      {"f16", TDM_TYPE_F16, TDM_TYPE_F16},
        {"iq3_s", TDM_TYPE_IQ4_NL, TDM_TYPE_F16},   {"iq3_xxs", TDM_TYPE_IQ4_NL, TDM_TYPE_F16},
        {"iq2_m", TDM_TYPE_IQ4_NL, TDM_TYPE_F16},   {"iq2_s", TDM_TYPE_IQ4_NL, TDM_TYPE_F16},
        {"iq2_xxs", TDM_TYPE_IQ4_NL, TDM_TYPE_F16}, {"iq1_m", TDM_TYPE_IQ4_NL, TDM_TYPE_F16},
        {"iq1_s", TDM_TYPE_IQ4_NL, TDM_TYPE_F16},   {"tq1_0", TDM_TYPE_Q4_0, TDM_TYPE_F16},
        {"tq2_0", TDM_TYPE_Q4_0, TDM_TYPE_F16},     {"mxfp4", TDM_TYPE_Q8_0, TDM_TYPE_F16},
    };
    for (int64_t n = 172; n <= 192; n += 20) {
        shape s = {.n_layer = 1, .n_head = 2, .n_head_kv = 2, .n_embd = n};
        llm_gguf *g = model_make(&s);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            choose(g, cases[i].kind, false);
            expect_type(g, "blk.0.attn_q.weight", n == 192 ? cases[i].by_32 : cases[i].by_none);
            for (uint32_t k = 0; k < llm_gguf_tensor_count(g); k++)
                assert_int_equal(n % tdm_type_get_info(choices[k].type).block_len, 0);
        }
        llm_gguf_close(g);
    }
}

/* What an architecture reads as plain floats is kept, whatever its shape. */
static void test_plain_roles(void **state) {
    static const float zeros[256 * 4];
    (void)state;
    llm_gguf_writer *w = NULL;
    llm_gguf *g = NULL;
    tdm_error err = {0};
    const int64_t ne[4] = {256, 4, 1, 1};
    char name[LLM_TENSOR_NAME_SIZE];
    int n_plain = 0, n_matrix = 0;
    if (llm_gguf_writer_create(in_path, &w, &err) != TDM_OK) fail_msg("%s", err.message);
    llm_gguf_writer_put_text(w, "general.architecture", "llama");
    llm_gguf_writer_put_u32(w, "llama.block_count", LLM_ROLE_COUNT_);
    llm_gguf_writer_put_u32(w, "llama.attention.head_count", 2);
    for (int role = LLM_ROLE_NONE + 1; role < LLM_ROLE_COUNT_; role++) {
        llm_role_name((llm_role)role, role, name); /* each in a layer of its own */
        llm_gguf_writer_add_tensor(w, name, TDM_TYPE_F32, 2, ne);
    }
    for (int role = LLM_ROLE_NONE + 1; role < LLM_ROLE_COUNT_; role++)
        if (llm_gguf_writer_write(w, zeros, sizeof zeros, &err) != TDM_OK)
            fail_msg("%s", err.message);
    if (llm_gguf_writer_finish(w, &err) != TDM_OK) fail_msg("%s", err.message);
    llm_gguf_writer_destroy(w);
    if (llm_gguf_open(in_path, &g, &err) != TDM_OK) fail_msg("%s", err.message);
    choose(g, "q8_0", false);
    for (int role = LLM_ROLE_NONE + 1; role < LLM_ROLE_COUNT_; role++) {
        llm_role_name((llm_role)role, role, name);
        if (llm_role_get((llm_role)role)->usage == 0) {
            expect_type(g, name, TDM_TYPE_F32);
            n_plain++;
        } else {
            n_matrix += chosen(g, name) == TDM_TYPE_Q8_0;
        }
    }
    assert_true(n_plain > 100 && n_matrix > 80);
    llm_gguf_close(g);
}

/* Layers are read from names, also from those that only a hostile file has. */
static void test_layers(void **state) {
    (void)state;
    static const struct {
        const char *name, *suffix;
        int32_t layer;
    } cases[] = {{"blk.0.attn_q.weight", "attn_q.weight", 0},
                 {"blk.31.x", "x", 31},
                 {"blk.999999999.x", "x", 999999999},
                 {"blk.1000000000.x", "blk.1000000000.x", -1},
                 {"blk.4294967297.x", "blk.4294967297.x", -1},
                 {"blk.-1.x", "blk.-1.x", -1},
                 {"blk. 1.x", "blk. 1.x", -1},
                 {"blk.1x", "blk.1x", -1},
                 {"blk.1", "blk.1", -1},
                 {"blk..x", "blk..x", -1},
                 {"output.weight", "output.weight", -1},
                 {"", "", -1}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *suffix = NULL;
        assert_int_equal(llm_tensor_layer(cases[i].name, &suffix), cases[i].layer);
        assert_string_equal(suffix, cases[i].suffix);
    }
}

static void write_file(const llm_gguf *g, const char *kind, const char *path, int32_t n_thread) {
    tdm_error err = {0};
    if (llm_quantize_write(g, llm_quantize_kind_find(kind), choices, NULL, path, n_thread, NULL,
                           NULL, &err) != TDM_OK)
        fail_msg("%s", err.message);
}

/* Each kind's file, read back, holds what the row converters make of the original. */
static void test_content(void **state) {
    (void)state;
    shape s = {.n_layer = 2, .n_head = 4, .n_head_kv = 2, .n_expert = 3, .n_embd = 512};
    llm_gguf *g = model_make(&s);
    for (size_t i = 0; i < n_llm_quantize_kinds; i++) {
        const llm_quantize_kind *kind = &llm_quantize_kinds[i];
        llm_gguf *out = NULL, *other = NULL;
        uint32_t file_type = 0;
        choose(g, kind->name, false);
        write_file(g, kind->name, out_path, 1);
        write_file(g, kind->name, other_path, 3);
        assert_int_equal(llm_gguf_open(out_path, &out, NULL), TDM_OK);
        assert_int_equal(llm_gguf_open(other_path, &other, NULL), TDM_OK);
        assert_int_equal(
            llm_gguf_get_u32(out, "general.file_type", LLM_GGUF_REQUIRED, &file_type, NULL),
            TDM_OK);
        assert_int_equal(file_type, kind->file_type);
        assert_null(llm_gguf_key_find(out, "general.alignment"));
        assert_int_equal(llm_gguf_tensor_count(out), llm_gguf_tensor_count(g));
        for (uint32_t k = 0; k < llm_gguf_tensor_count(g); k++) {
            const llm_gguf_tensor *a = llm_gguf_tensor_at(g, k), *b = llm_gguf_tensor_at(out, k);
            uint8_t row[512 * 4];
            assert_string_equal(a->name, b->name);
            assert_int_equal(b->type, choices[k].type);
            assert_memory_equal(a->ne, b->ne, sizeof a->ne);
            assert_memory_equal(b->data, llm_gguf_tensor_at(other, k)->data, b->size);
            size_t size = tdm_type_row_size(b->type, a->ne[0]);
            for (size_t r = 0; r * size < b->size; r++) {
                const float *source = (const float *)a->data + r * (size_t)a->ne[0];
                if (a->type == b->type)
                    memcpy(row, source, size);
                else
                    tdm_row_quantize(b->type, source, row, a->ne[0], NULL);
                assert_memory_equal((const uint8_t *)b->data + r * size, row, size);
            }
        }
        llm_gguf_close(out);
        llm_gguf_close(other);
    }
    llm_gguf_close(g);
}

static bool progress_stop(void *context, uint64_t done, uint64_t total) {
    uint64_t *last = context;
    assert_true(done > *last && done <= total);
    *last = done;
    return done < total / 2;
}

/* A model that becomes shorter after it was opened is refused, whether the end that is missing is
 * converted or copied, and leaves no file. */
static void test_shortened(void **state) {
    (void)state;
    static const char *const kinds[] = {"q8_0", "f32"};
    shape s = {.n_layer = 2, .n_head = 4, .n_head_kv = 2, .n_embd = 512};
    for (int i = 0; i < 2; i++) {
        tdm_error err = {0};
        llm_gguf *g = model_make(&s);
        struct stat info;
        unlink(out_path);
        choose(g, kinds[i], false);
        assert_int_equal(stat(in_path, &info), 0);
        assert_int_equal(truncate(in_path, info.st_size / 2), 0);
        assert_int_equal(llm_quantize_write(g, llm_quantize_kind_find(kinds[i]), choices, NULL,
                                            out_path, 2, NULL, NULL, &err),
                         TDM_DATA_LOSS);
        assert_non_null(strstr(err.message, "has become shorter"));
        assert_non_null(strstr(err.message, in_path));
        assert_int_equal(access(out_path, F_OK), -1);
        llm_gguf_close(g);
    }
}

/* Numbers that are none, what cannot be read, being cancelled: an error, and no file. */
static void test_failures(void **state) {
    (void)state;
    static const float odd[] = {NAN, INFINITY, -INFINITY};
    shape s = {.n_layer = 1, .n_head = 2, .n_head_kv = 2, .n_embd = 256};
    const llm_quantize_kind *kind = llm_quantize_kind_find("q4_K_M");
    tdm_error err = {0};
    unlink(out_path);
    for (int i = 0; i < 3; i++) {
        s.odd = odd[i];
        llm_gguf *g = model_make(&s);
        choose(g, "q4_K_M", false);
        assert_int_equal(
            llm_quantize_write(g, kind, choices, NULL, out_path, 1 + i, NULL, NULL, &err),
            TDM_DATA_LOSS);
        assert_non_null(strstr(err.message, "token_embd.weight"));
        assert_int_equal(access(out_path, F_OK), -1);
        llm_gguf_close(g);
    }
    s.odd = 0;
    llm_gguf *g = model_make(&s);
    choose(g, "q4_K_M", false);
    uint64_t last = 0;
    assert_int_equal(
        llm_quantize_write(g, kind, choices, NULL, out_path, 2, progress_stop, &last, &err),
        TDM_CANCELLED);
    assert_int_equal(access(out_path, F_OK), -1);
    assert_int_equal(
        llm_quantize_write(g, kind, choices, NULL, "/nonexistent/x.gguf", 2, NULL, NULL, &err),
        TDM_IO);
    llm_gguf_close(g);
    s.has_ids = true; /* a matrix of i32 by the name of a weight */
    g = model_make(&s);
    assert_int_equal(llm_quantize_choose(g, kind, false, false, choices, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "table.weight"));
    llm_gguf_close(g);
    s.has_ids = false;
    s.is_unnamed = true;
    g = model_make(&s);
    assert_int_equal(llm_quantize_choose(g, kind, false, false, choices, &err), TDM_NOT_FOUND);
    assert_non_null(strstr(err.message, "general.architecture"));
    llm_gguf_close(g);
}

/* A number that the new type cannot hold is an error, not an infinity in the file; the largest that
 * it can hold is none. */
static void test_range(void **state) {
    (void)state;
    static const struct {
        const char *kind;
        float number;
        tdm_status status;
        const char *way_out;
    } rows[] = {
        {"f16", 65519, TDM_OK, NULL},         {"f16", -65520, TDM_OUT_OF_RANGE, "choose bf16"},
        {"f16", 1e30f, TDM_OUT_OF_RANGE, ""}, {"bf16", 1e30f, TDM_OK, NULL},
        {"bf16", 3.39e38f, TDM_OK, NULL},     {"bf16", 3.4e38f, TDM_OUT_OF_RANGE, "choose f32"},
        {"q8_0", 1e30f, TDM_OK, NULL},
    };
    shape s = {.n_layer = 1, .n_head = 2, .n_head_kv = 2, .n_embd = 256};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tdm_error err = {0};
        unlink(out_path);
        s.odd = rows[i].number;
        llm_gguf *g = model_make(&s);
        choose(g, rows[i].kind, false);
        assert_int_equal(llm_quantize_write(g, llm_quantize_kind_find(rows[i].kind), choices, NULL,
                                            out_path, 2, NULL, NULL, &err),
                         rows[i].status);
        assert_int_equal(access(out_path, F_OK), rows[i].status == TDM_OK ? 0 : -1);
        if (rows[i].status != TDM_OK) {
            assert_non_null(strstr(err.message, "token_embd.weight"));
            assert_non_null(strstr(err.message, rows[i].way_out));
        }
        llm_gguf_close(g);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_file_types),
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_mixtures),
        cmocka_unit_test(test_mixtures_of_kinds),
        cmocka_unit_test(test_mixtures_of_grids),
        cmocka_unit_test(test_mixtures_with_importance),
        cmocka_unit_test(test_mixtures_of_experts),
        cmocka_unit_test(test_fallbacks),
        cmocka_unit_test(test_plain_roles),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_content),
        cmocka_unit_test(test_shortened),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_range),
    };
    long id = (long)getpid();
    snprintf(in_path, sizeof in_path, "test_quantize.%ld.in.gguf", id);
    snprintf(out_path, sizeof out_path, "test_quantize.%ld.out.gguf", id);
    snprintf(other_path, sizeof other_path, "test_quantize.%ld.other.gguf", id);
    int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(in_path);
    unlink(out_path);
    unlink(other_path);
    return n_failed;
}
