/* SPDX-License-Identifier: MIT
 *
 * test_archs.c: tiny models of every architecture (../shared/archs) against llama.cpp's logits with
 * an f32 cache: in one batch, token by token and in ubatches of 7; and over groups of 2 and 3
 * members with even and uneven shares, some with quantised caches. Where ../shared is absent, those
 * of tests/model/archs are compared and the others skipped (arch_scene.h). archs.txt lists the
 * fixtures that must run; one that runs and is not listed fails, too.
 *
 * test_archs NAME ...: these fixtures only, with the error of each.
 */
#include <math.h>

#include "llm/arch/arch.h"
#include "tests/model/arch_scene.h"
#include "tests/model/changed_model.h"
#include "tests/model/group_device.h"

/* Only the order of additions differs. */
#define BOUND 1e-5
/* Beside one device with the same cache of 4 bits: an element may round to the next code. */
#define BOUND_4_BIT 1e-4

static arch_scene scene;
static char **chosen; /* names from the command line, NULL = all */

static bool is_chosen(const arch_fixture *f) {
    if (chosen == NULL) return true;
    for (char **c = chosen; *c != NULL; c++)
        if (strcmp(*c, f->name) == 0) return true;
    return false;
}

typedef struct result {
    double batch, single, ubatch; /* NMSE */
} result;

static double worst(const result *r) {
    double w = r->batch > r->single ? r->batch : r->single;
    return w > r->ubatch ? w : r->ubatch;
}

/* Tokens that see later ones must be in one ubatch with them. */
static void split_refused(llm_model *model) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 512,
                                       .n_ubatch = 7,
                                       .gives_embeddings = model->arch->is_encoder};
    llm_context *ctx = rig_context(model, &params);
    const llm_batch batch = {scene.tokens, NULL, NULL, ARCH_N_TOK};
    tdm_error err = {0};
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "ubatch-size"));
    llm_context_destroy(ctx);
}

/* Attention that would select tokens is refused beyond the contexts in which it selects all. */
static void select_refused(llm_model *model) {
    const int n_select = model->hparams.n_select;
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = n_select + 1};
    llm_context *ctx = NULL;
    tdm_error err = {0};
    char most[16];
    assert_in_range(llm_context_n_ctx_default(model), 1, n_select);
    assert_int_equal(llm_context_create(model, &params, &ctx, &err), TDM_UNSUPPORTED);
    snprintf(most, sizeof most, "%d", n_select);
    assert_non_null(strstr(err.message, most));
}

/* Under a sanitizer a listed fixture of number i runs in ubatches, and every third one in a batch
 * or token by token too: a fixture's graph is built by the same code in all three. */
static bool way_is_left_out(const arch_fixture *f, int i, int rest) {
#ifdef TANDEM_SANITIZED
    return f->is_listed && chosen == NULL && i % 3 != rest;
#else
    (void)f, (void)i, (void)rest;
    return false;
#endif
}

static double nmse_of(const arch_fixture *f, llm_model *model, int n_ubatch, int n_each,
                      float *rows) {
    arch_scene_logits(&scene, model, NULL, NULL, n_ubatch, n_each, rows);
    return arch_scene_nmse(&scene, f, model, rows);
}

static result compare(const arch_fixture *f, int i, llm_model *model) {
    float *rows = arch_scene_rows(model);
    result r = {0};
    if (model->hparams.n_select > 0 && model->hparams.n_index_head == 0) select_refused(model);
    if (model->hparams.is_bidirectional || !way_is_left_out(f, i, 0))
        r.batch = nmse_of(f, model, ARCH_N_TOK, ARCH_N_TOK, rows);
    if (!model->hparams.is_bidirectional) {
        if (!way_is_left_out(f, i, 1)) r.single = nmse_of(f, model, ARCH_N_TOK, 1, rows);
        r.ubatch = nmse_of(f, model, 7, ARCH_N_TOK, rows);
    } else {
        split_refused(model);
    }
    free(rows);
    return r;
}

/* ---- One device ------------------------------------------------------------------------------ */

/* A table whose rows are read in the file takes no memory of a device. */
static void file_table_is_no_weight(const llm_model *model) {
    int32_t n_row;
    const llm_gguf_tensor *table = llm_hparams_file_table(&model->hparams, &n_row);
    for (int32_t i = 0; table != NULL && i < model->n_weight; i++)
        assert_ptr_not_equal(model->weights[i].source, table);
    if (model->hparams.n_per_layer > 0) assert_non_null(table);
}

/* Whether the fixture gives llama.cpp's logits on one device. False with a message where it cannot
 * be opened. */
static bool one_device_run(const arch_fixture *f, int i, const char *path) {
    tdm_error err = {0};
    llm_model *model = NULL;
    if (llm_model_open(path, &model, &err) != TDM_OK) {
        if (f->is_listed || chosen != NULL) print_message("%s: %s\n", f->name, err.message);
        return false;
    }
    llm_model_close(model);
    model = rig_model(path, rig_device(NULL, "reference", 2));
    file_table_is_no_weight(model);
    result r = compare(f, i, model);
    bool is_good = worst(&r) <= BOUND;
    if (is_good != f->is_listed || chosen != NULL)
        print_message("%s: batch %.1e, single %.1e, ubatches of 7 %.1e%s\n", f->name, r.batch,
                      r.single, r.ubatch, is_good && !f->is_listed ? ": not listed" : "");
    llm_model_close(model);
    return is_good;
}

/* ---- Groups ---------------------------------------------------------------------------------- */

static const group_config groups[] = {
    {.n_member = 2, .path = "reference"},
    {.n_member = 2, .path = "reference", .shares = "5,2"},
    {.n_member = 2, .path = "reference", .shares = "0,1"},
    {.n_member = 3, .path = "reference"},
    {.n_member = 3, .path = "reference", .shares = "5,2,1"},
    {.n_member = 3, .path = "reference", .shares = "3,0,2"},
};
enum { N_GROUP = sizeof groups / sizeof *groups };

/* NMSE of a group against one device, both with K of q8_0 and V of q4_0; of q8_0 alone where they
 * have one type. */
static double cache_nmse(llm_model *group, const char *path, int n_ubatch, double *bound_out) {
    llm_model *one = rig_model(path, rig_device(NULL, "reference", 2));
    const tdm_type k = TDM_TYPE_Q8_0, v = arch_scene_is_latent(one) ? k : TDM_TYPE_Q4_0;
    float *expected = arch_scene_rows(one), *found = arch_scene_rows(one);
    *bound_out = v == k ? BOUND : BOUND_4_BIT;
    arch_scene_logits(&scene, one, &k, &v, n_ubatch, ARCH_N_TOK, expected);
    arch_scene_logits(&scene, group, &k, &v, n_ubatch, ARCH_N_TOK, found);
    double nmse = rig_nmse(expected, found, ARCH_N_TOK * arch_scene_row_len(one));
    free(expected);
    free(found);
    llm_model_close(one);
    return nmse;
}

/* Whether the fixture, on a group, gives llama.cpp's logits, and with a quantised cache those of
 * one device. */
static bool group_run(const arch_fixture *f, const group_config *c, const char *path,
                      bool with_cache) {
    llm_model *model = rig_model(path, group_device(c));
    const int n_ubatch = model->hparams.is_bidirectional ? ARCH_N_TOK : 7;
    float *rows = arch_scene_rows(model);
    double bound = BOUND, cache = 0, nmse = nmse_of(f, model, n_ubatch, ARCH_N_TOK, rows);
    if (with_cache) cache = cache_nmse(model, path, n_ubatch, &bound);
    bool is_good = nmse <= BOUND && cache <= bound;
    if (!is_good || chosen != NULL)
        print_message("%s, %s: %.1e, quantised cache %.1e\n", f->name, group_words(c), nmse, cache);
    free(rows);
    llm_model_close(model);
    return is_good;
}

/* Every fixture in one group, every group with many fixtures; with quantised caches every fourth
 * fixture, and those of each group. Under a sanitizer every third listed fixture. The whole:
 * archs_matrix.c. */
static bool groups_run(const arch_fixture *f, int i, const char *path) {
    const int n = chosen != NULL ? N_GROUP : 1, first = chosen != NULL ? 0 : i % N_GROUP;
    bool is_good = true;
#ifdef TANDEM_SANITIZED
    if (f->is_listed && chosen == NULL && i / N_GROUP % 3 != 0) return true;
#endif
    for (int c = first; c < first + n; c++)
        is_good = group_run(f, &groups[c], path, chosen != NULL || i / N_GROUP % 4 == 0) && is_good;
    return is_good;
}

static void test_archs(void **state) {
    (void)state;
    int n_run = 0, n_there = 0, n_bad = 0;
    for (int i = 0; i < scene.n_fixture; i++) {
        const arch_fixture *f = &scene.fixtures[i];
        const char *path = is_chosen(f) ? arch_scene_model(&scene, f) : NULL;
        if (path == NULL) continue;
        n_there++;
        bool is_good = one_device_run(f, i, path);
        n_bad += is_good != f->is_listed;
        n_run += is_good;
        if (is_good && !groups_run(f, i, path)) n_bad++;
    }
    print_message("%d of %d fixtures run; %d are not there\n", n_run, scene.n_fixture,
                  scene.n_fixture - n_there);
    assert_int_equal(n_bad, 0);
    if (chosen == NULL) assert_true(n_run > 30);
}

/* ---- Keys of RoPE ---------------------------------------------------------------------------- */

/* The file of a fixture's model; NULL where it is not there. */
static const char *model_file(const char *name) {
    for (int i = 0; i < scene.n_fixture; i++)
        if (strcmp(scene.fixtures[i].name, name) == 0)
            return arch_scene_model(&scene, &scene.fixtures[i]);
    fail_msg("no fixture %s", name);
    return NULL;
}

static llm_model *model_opened(const char *path) {
    llm_model *model = NULL;
    tdm_error err = {0};
    RIG_OK(llm_model_open(path, &model, &err));
    return model;
}

/* Factors for each frequency, which files with "longrope" have as tensors, apply whatever the type
 * says: llama.cpp's logits of these fixtures are the same with each of these types. */
static void test_rope_types(void **state) {
    static const char *const names[] = {"minicpm3-dense", "phi3-dense"};
    static const char *const types[] = {"longrope", "linear", "none"};
    int n_run = 0;
    (void)state;
    for (int i = 0; i < scene.n_fixture; i++) {
        const arch_fixture *f = &scene.fixtures[i];
        if (strcmp(f->name, names[0]) != 0 && strcmp(f->name, names[1]) != 0) continue;
        const char *from = arch_scene_model(&scene, f);
        assert_non_null(from);
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            const char *path =
                changed_model_copy(from, "type.gguf", "rope.scaling.type", CHANGED_TEXT(types[t]));
            llm_model *model = rig_model(path, rig_device(NULL, "reference", 2));
            float *rows = arch_scene_rows(model);
            const double nmse = nmse_of(f, model, ARCH_N_TOK, ARCH_N_TOK, rows);
            if (!(nmse <= BOUND)) fail_msg("%s, %s: NMSE %g", f->name, types[t], nmse);
            free(rows);
            llm_model_close(model);
        }
        llm_model *none = NULL;
        tdm_error err = {0};
        const char *path =
            changed_model_copy(from, "type.gguf", "rope.scaling.type", CHANGED_TEXT("dynamic"));
        assert_int_equal(llm_model_open(path, &none, &err), TDM_UNSUPPORTED);
        assert_non_null(strstr(err.message, "'dynamic'"));
        n_run++;
    }
    assert_int_equal(n_run, 2);
}

/* Both keys of the factor of attention count, also where the file has the other one as well, as
 * this fixture does. */
static void test_rope_factors(void **state) {
    static const char *const keys[] = {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor"};
    const char *from = model_file("phi3-dense");
    (void)state;
    assert_non_null(from);
    for (int i = 0; i < 2; i++) {
        llm_gguf *g = NULL;
        tdm_error err = {0};
        RIG_OK(llm_gguf_open(from, &g, &err));
        assert_non_null(llm_gguf_key_find(g, i == 0 ? "phi3.rope.scaling.yarn_attn_factor"
                                                    : "phi3.rope.scaling.attn_factor"));
        llm_gguf_close(g);
        const char *path = changed_model_copy(from, "factor.gguf", keys[i], CHANGED_REAL(1.5f));
        llm_model *model = model_opened(path);
        assert_true(model->hparams.rope.attn_factor == 1.5f);
        llm_model_close(model);
        /* YaRN has the second one itself. */
        model = model_opened(
            changed_model_copy(path, "yarn.gguf", "rope.scaling.type", CHANGED_TEXT("yarn")));
        assert_true(model->hparams.rope.ext_factor == 1);
        assert_true(model->hparams.rope.attn_factor == (i == 0 ? 1.5f : 1.0f));
        llm_model_close(model);
    }
}

/* Hunyuan VL has a base for short contexts and the factor by which it was made longer. */
static void test_rope_alpha(void **state) {
    const char *from = model_file("hunyuan_vl-dense");
    (void)state;
    if (from == NULL) skip();
    llm_model *model = model_opened(from);
    const double base = model->hparams.rope.freq_base, n = model->hparams.head_dim_k;
    llm_model_close(model);
    model = model_opened(
        changed_model_copy(from, "alpha.gguf", "rope.scaling.alpha", CHANGED_REAL(1000)));
    const double wanted = base * pow(1000, n / (n - 2));
    assert_true(fabs(model->hparams.rope.freq_base - wanted) <= 1e-5 * wanted);
    llm_model_close(model);
}

/* Layers with a window have the frequencies, and rotate as many elements of a head, as their own
 * keys say. */
static void test_window_rope(void **state) {
    static const struct {
        const char *name;
        bool has_count; /* changes the number of elements; else the frequencies */
    } rows[] = {{"gemma2-dense", false},  {"smallthinker-moe", false}, {"afmoe-moe", false},
                {"spark2_5-dense", true}, {"maple-moe", true},         {"laguna-heads", true}};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool has_count = rows[i].has_count;
        const char *from = model_file(rows[i].name);
        int n_window = 0;
        if (from == NULL && has_count) continue; /* not all of these are in this folder */
        assert_non_null(from);
        llm_model *model = model_opened(changed_model_copy(
            from, "window.gguf", has_count ? "rope.dimension_count_swa" : "rope.freq_base_swa",
            has_count ? CHANGED_NUMBER(8) : CHANGED_REAL(15000)));
        for (int32_t l = 0; l < model->hparams.n_layer; l++) {
            const llm_layer_spec *s = &model->specs[l];
            const bool is_changed = has_count ? s->rope.n_rot == 8 : s->rope.freq_base == 15000;
            if (is_changed != (s->window > 0)) fail_msg("%s, layer %d", rows[i].name, l);
            n_window += s->window > 0;
        }
        assert_true(n_window > 0);
        llm_model_close(model);
    }
}

/* RoPE is scaled in layers without a window only. */
static void test_window_scaling(void **state) {
    static const char *const names[] = {"laguna-moe", "olmo2-dense",  "mellum-moe",
                                        "mimo2-moe",  "plamo3-dense", "muse-glimmer-dense"};
    int n_run = 0;
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const char *from = model_file(names[i]);
        int n_window = 0, n_whole = 0;
        if (from == NULL) continue;
        const char *yarn =
            changed_model_copy(from, "yarn.gguf", "rope.scaling.type", CHANGED_TEXT("yarn"));
        llm_model *model = model_opened(
            changed_model_copy(yarn, "scaled.gguf", "rope.scaling.factor", CHANGED_REAL(4)));
        for (int32_t l = 0; l < model->hparams.n_layer; l++) {
            const llm_layer_spec *s = &model->specs[l];
            const bool has_window = s->window > 0;
            assert_true(s->rope.freq_scale == (has_window ? 1.0f : 0.25f));
            if (has_window) assert_true(s->rope.ext_factor == 0 && s->rope.attn_factor == 1);
            n_window += has_window;
            n_whole += !has_window;
        }
        assert_true(n_window > 0);
        n_run += n_whole > 0;
        llm_model_close(model);
    }
    assert_true(n_run > 0);
}

/* ---- Scales of matrices ------------------------------------------------------------------------ */

/* Opens the copy of a fixture with one more tensor; NULL where it is refused for that tensor. */
static llm_model *model_with(const char *fixture, const char *tensor, const float *numbers,
                             int64_t n) {
    llm_model *model = NULL;
    tdm_error err = {0};
    const char *path = changed_model_add(model_file(fixture), "added.gguf", tensor, numbers, n);
    const tdm_status status = llm_model_open(path, &model, &err);
    if (status != TDM_OK && strstr(err.message, tensor) == NULL) fail_msg("%s", err.message);
    return model;
}

/* The fixtures *-scales have scales of all matrices of layers. llama.cpp reads that of the output
 * head for heads of NVFP4 alone: here the logits are the fixture's times the scale. */
static void test_scales(void **state) {
    const float half = 0.5f, two[2] = {1, 1};
    (void)state;
    llm_model *model = model_with("llama-scales", "output.scale", &half, 1);
    llm_model *plain = rig_model(model_file("llama-scales"), rig_device(NULL, "reference", 2));
    assert_non_null(model);
    llm_model_close(model);
    model = rig_model(rig_file("added.gguf"), rig_device(NULL, "reference", 2));
    const arch_fixture f = {.name = "llama-scales"};
    float *scaled = arch_scene_rows(model), *logits = arch_scene_rows(plain);
    (void)nmse_of(&f, model, ARCH_N_TOK, ARCH_N_TOK, scaled);
    assert_true(nmse_of(&f, plain, ARCH_N_TOK, ARCH_N_TOK, logits) <= BOUND);
    for (int i = 0; i < ARCH_N_TOK * model->hparams.n_vocab; i++)
        assert_true(scaled[i] == half * logits[i]);
    free(scaled);
    free(logits);
    llm_model_close(model);
    llm_model_close(plain);
    /* A scale for each of two parts of a matrix, of what is looked up, and of no matrix. */
    assert_null(model_with("llama-scales", "output.scale", two, 2));
    assert_null(model_with("llama-scales", "token_embd.scale", &half, 1));
    assert_null(model_with("llama-scales", "blk.0.attn_gate.scale", &half, 1));
    assert_null(model_with("llama-scales", "blk.0.attn_gate.input_scale", &half, 1));
    model = model_with("llama-scales", "output.input_scale", &half, 1);
    assert_non_null(model);
    llm_model_close(model);
}

/* ---- Other keys ------------------------------------------------------------------------------ */

/* Keys that change what is computed, beside llama.cpp's logits with them (LOGITS.f32); and keys
 * that change nothing, beside those of the fixture. */
static void test_changed_keys(void **state) {
    static const struct {
        const char *name, *logits; /* logits NULL = those of the fixture */
        struct {
            const char *suffix;
            changed_value value;
        } keys[3];
    } rows[] = {
        /* Tokens see later ones in layers with a window alone. */
        {"gemma4-dense",
         "gemma4-dense.noncausal",
         {{"attention.causal", {LLM_GGUF_BOOL, .number = 0}}}},
        /* The tokens of an encoder always see later ones. */
        {"bert-dense", NULL, {{"attention.causal", {LLM_GGUF_BOOL, .number = 1}}}},
        {"modern-bert-dense", NULL, {{"attention.causal", {LLM_GGUF_BOOL, .number = 1}}}},
        /* It allows marks in prompts; a prompt without marks is computed as before. */
        {"hrm_text-dense", NULL, {{"hrm.prefix_lm", {LLM_GGUF_BOOL, .number = 1}}}},
        /* the length of the config's heads, which converters of this model write */
        {"kimi-linear-heads", NULL, {{"attention.value_length", {LLM_GGUF_U32, .number = 72}}}},
        {"kimi-linear-heads", NULL, {{"attention.value_length", {.is_absent = true}}}},
        {"llama-embed-dense", NULL, {{"attention.causal", {.is_absent = true}}}},
        /* it rotates no heads */
        {"kimi-linear-heads",
         NULL,
         {{"rope.scaling.type", {LLM_GGUF_STRING, .text = "yarn"}},
          {"rope.scaling.factor", {LLM_GGUF_F32, .real = 4}},
          {"rope.scaling.yarn_log_multiplier", {LLM_GGUF_F32, .real = 0.1f}}}},
        /* layers with a window are rotated by 10000 then, as by the key of this fixture */
        {"mimo2-heads", NULL, {{"rope.freq_base_swa", {.is_absent = true}}}},
        /* shared experts have the limit of the others */
        {"deepseek4-long", "deepseek4-long.limit", {{"swiglu_clamp_shexp", {.is_absent = true}}}},
        /* as files were before converters wrote these */
        {"minicpm-dense",
         "minicpm-dense.old",
         {{"embedding_scale", {.is_absent = true}},
          {"residual_scale", {.is_absent = true}},
          {"logit_scale", {.is_absent = true}}}},
        {"mimo2-heads",
         "mimo2-heads.groups",
         {{"expert_group_count", {LLM_GGUF_U32, .number = 4}},
          {"expert_group_used_count", {LLM_GGUF_U32, .number = 2}}}},
        {"kimi-k3-heads",
         "kimi-k3-heads.unbound",
         {{"kda.gate_lower_bound", {LLM_GGUF_F32, .real = -INFINITY}}}},
    };
    static const char *const files[] = {"changed-1.gguf", "changed-2.gguf", "changed-3.gguf"};
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *path = model_file(rows[i].name);
        arch_fixture f = {0};
        assert_non_null(path);
        for (int k = 0; k < 3 && rows[i].keys[k].suffix != NULL; k++)
            path =
                changed_model_copy(path, files[k], rows[i].keys[k].suffix, rows[i].keys[k].value);
        llm_model *model = rig_model(path, rig_device(NULL, "reference", 2));
        float *logits = arch_scene_rows(model);
        snprintf(f.name, sizeof f.name, "%s",
                 rows[i].logits != NULL ? rows[i].logits : rows[i].name);
        const double nmse = nmse_of(&f, model, ARCH_N_TOK, ARCH_N_TOK, logits);
        if (!(nmse <= BOUND)) fail_msg("%s, %s: NMSE %g", f.name, rows[i].keys[0].suffix, nmse);
        free(logits);
        llm_model_close(model);
    }
}

/* An index does not select among later tokens. */
static void test_select_noncausal(void **state) {
    const char *from = model_file("deepseek32-select");
    (void)state;
    assert_non_null(from);
    llm_model *model = model_opened(from);
    assert_true(model->hparams.n_index_head > 0);
    assert_true(llm_hparams_n_ctx(&model->hparams) > model->hparams.n_select);
    llm_model_close(model);
    const changed_value is_false = {.type = LLM_GGUF_BOOL};
    from = changed_model_copy(from, "both.gguf", "attention.causal", is_false);
    model = rig_model(from, rig_device(NULL, "reference", 2));
    select_refused(model);
    llm_model_close(model);
}

/* The hidden states of `n` tokens, which belong to these sequences (NULL = one). */
static void hidden_give(llm_model *model, const int32_t *tokens, const int32_t *seqs, int n,
                        float *rows) {
    const size_t len = (size_t)model->hparams.n_embd;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 512,
                                       .n_ubatch = 64,
                                       .n_seq = 2,
                                       .gives_embeddings = true};
    llm_context *ctx = rig_context(model, &params);
    const llm_batch batch = {.tokens = tokens, .seqs = seqs, .n_tok = n};
    tdm_error err = {0};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    for (int32_t i = 0; i < n; i++)
        memcpy(rows + (size_t)i * len, llm_context_hidden(ctx, i), len * sizeof *rows);
    llm_context_destroy(ctx);
}

/* A convolution that reads the next token reads that of the same text: of two texts in a step, one
 * of which is a single token. */
static void test_next_tokens(void **state) {
    enum { N = 12, ODD = 5, MAX_EMBD = 64 };
    int32_t seqs[N] = {0}, first[N];
    static float both[N * MAX_EMBD], alone[N * MAX_EMBD];
    (void)state;
    const char *from = model_file("lfm2-centred");
    assert_non_null(from);
    llm_model *model = rig_model(from, rig_device(NULL, "reference", 2));
    const size_t len = (size_t)model->hparams.n_embd;
    assert_in_range(len, 1, MAX_EMBD);
    seqs[ODD] = 1;
    for (int i = 0, n = 0; i < N; i++)
        if (i != ODD) first[n++] = scene.tokens[i];
    hidden_give(model, scene.tokens, seqs, N, both);
    hidden_give(model, &scene.tokens[ODD], NULL, 1, alone);
    assert_true(rig_nmse(alone, both + ODD * len, len) <= BOUND);
    hidden_give(model, first, NULL, N - 1, alone);
    memmove(both + ODD * len, both + (ODD + 1) * len, (N - 1 - ODD) * len * sizeof *both);
    assert_true(rig_nmse(alone, both, (N - 1) * len) <= BOUND);
    /* And the next token counts. */
    hidden_give(model, first, NULL, N - 2, both);
    assert_true(rig_nmse(alone, both, (N - 2) * len) > 1e-3);
    llm_model_close(model);
}

/* Older files of Qwen 1.5 MoE have one width: of the shared expert, and of all that a token
 * chooses. */
static void test_expert_widths(void **state) {
    const char *from = model_file("qwen2moe-moe");
    (void)state;
    assert_non_null(from);
    const char *path =
        changed_model_copy(from, "one.gguf", "expert_feed_forward_length", CHANGED_NUMBER(0));
    path = changed_model_copy(path, "two.gguf", "feed_forward_length", CHANGED_NUMBER(768));
    llm_model *model = model_opened(path); /* the matrices of its two experts have 384 columns */
    assert_int_equal(model->hparams.n_ff_expert, 384);
    assert_int_equal(model->hparams.n_ff_shared, 192); /* its key */
    llm_model_close(model);
    path = changed_model_copy(path, "three.gguf", "expert_shared_feed_forward_length",
                              CHANGED_NUMBER(0));
    llm_hparams h;
    llm_gguf *g = NULL;
    const llm_arch *arch = NULL;
    tdm_error err = {0};
    RIG_OK(llm_gguf_open(path, &g, &err));
    RIG_OK(llm_arch_find("qwen2moe", &arch, &err));
    RIG_OK(llm_hparams_read(g, arch, &h, &err));
    llm_gguf_close(g);
    assert_int_equal(h.n_ff_shared, 768);
}

/* Layers may have their experts in other numbers than each other, in any architecture. */
static void test_expert_counts(void **state) {
    static const int32_t each[3] = {0, 3, 1}, none[3] = {0, 0, 3};
    const char *from = model_file("deepseek2-ocr-moe"), *path = rig_file("each.gguf");
    llm_model *model = NULL;
    llm_gguf *g = NULL;
    tdm_error err = {0};
    (void)state;
    RIG_OK(llm_gguf_open(from, &g, &err));
    changed_model_write_ids(g, path, "deepseek2-ocr.expert_used_count", each, 3);
    model = model_opened(path);
    assert_int_equal(model->hparams.n_expert_used, 3);
    assert_int_equal(model->specs[1].n_expert_used, 3);
    assert_int_equal(model->specs[2].n_expert_used, 1);
    llm_model_close(model);
    /* Another number gives other logits. */
    model = rig_model(path, rig_device(NULL, "reference", 2));
    float *rows = arch_scene_rows(model);
    const arch_fixture f = {.name = "deepseek2-ocr-moe"};
    assert_true(nmse_of(&f, model, ARCH_N_TOK, ARCH_N_TOK, rows) > 1e-3);
    free(rows);
    llm_model_close(model);
    changed_model_write_ids(g, path, "deepseek2-ocr.expert_used_count", none, 3);
    assert_int_equal(llm_model_open(path, &model, &err), TDM_DATA_LOSS);
    assert_non_null(strstr(err.message, "layer 1 has a router"));
    llm_gguf_close(g);
}

/* A head for codes of sound has fewer rows than the vocabulary has tokens. */
static void test_sound_head(void **state) {
    const char *from = model_file("qwen3tts-dense"), *path = rig_file("sound.gguf");
    llm_model *model = NULL;
    llm_gguf *g = NULL;
    tdm_error err = {0};
    (void)state;
    if (from == NULL) {
        print_message("qwen3tts-dense is not there\n");
        skip();
    }
    RIG_OK(llm_gguf_open(from, &g, &err));
    llm_gguf_tensor *t = (llm_gguf_tensor *)(uintptr_t)llm_gguf_tensor_find(g, "output.weight");
    assert_non_null(t);
    t->size -= t->size / (size_t)t->ne[1];
    t->ne[1]--;
    changed_model_write(g, path, "context_length", CHANGED_NUMBER(128));
    llm_gguf_close(g);
    assert_int_equal(llm_model_open(path, &model, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "codes of sound"));
}

/* What absent keys mean: old files of Gemma 2 lack some whose values change too little in tiny
 * models to be seen. */
static void test_absent_keys(void **state) {
    static const char *const keys[] = {"attn_logit_softcapping", "final_logit_softcapping",
                                       "attention.sliding_window"};
    static const char *const files[] = {"old-1.gguf", "old-2.gguf", "old-3.gguf"};
    const char *path = model_file("gemma2-dense");
    (void)state;
    assert_non_null(path);
    for (int k = 0; k < 3; k++) path = changed_model_copy(path, files[k], keys[k], CHANGED_ABSENT);
    llm_model *model = model_opened(path);
    assert_true(model->hparams.attention_softcap == 50.0f);
    assert_true(model->hparams.logit_softcap == 30.0f);
    assert_int_equal(model->specs[0].window, 4096);
    assert_int_equal(model->specs[1].window, 0);
    llm_model_close(model);
    path = model_file("grok-moe");
    assert_non_null(path);
    model = model_opened(
        changed_model_copy(path, files[0], "rope.scaling.yarn_beta_fast", CHANGED_ABSENT));
    assert_true(model->hparams.rope.beta_fast == 8.0f);
    llm_model_close(model);
}

/* Keys with which the model would compute something else are refused. A fixture that is not there
 * is left out. */
static void test_refused_keys(void **state) {
    static const struct {
        const char *name, *suffix;
        changed_value value;
        tdm_status status;
    } rows[] = {
        {"nanbeige-rounds", "num_loops", {LLM_GGUF_U32, .number = 0}, TDM_DATA_LOSS},
        {"nanbeige-rounds", "num_loops", {LLM_GGUF_U32, .number = 1024}, TDM_DATA_LOSS},
        {"nanbeige-rounds", "num_loops", {LLM_GGUF_U32, .number = 1}, TDM_OK},
        {"nemotron_h_moe-layers", "expert_used_count", {LLM_GGUF_U32, .number = 2}, TDM_OK},
        {"bailingmoe3-heads", "kda.safe_gate", {LLM_GGUF_BOOL, .number = 0}, TDM_UNSUPPORTED},
        {"bailingmoe3-heads", "kda.safe_gate", {LLM_GGUF_BOOL, .number = 1}, TDM_OK},
        {"bailingmoe3-heads", "kda.safe_gate", {.is_absent = true}, TDM_OK},
        {"deepseek4-long", "attention.causal", {LLM_GGUF_BOOL, .number = 0}, TDM_UNSUPPORTED},
        /* A centred convolution reads three tokens. */
        {"lfm2-centred", "shortconv.l_cache", {LLM_GGUF_U32, .number = 4}, TDM_UNSUPPORTED},
        {"granite_swa-moe", "attention.rope_pattern", {LLM_GGUF_U32, .number = 2}, TDM_DATA_LOSS},
        {"granite_swa-moe", "attention.rope_pattern", {LLM_GGUF_U32, .number = 1}, TDM_OK},
        /* of another model */
        {"granite_swa-moe", "attention.value_scale", {LLM_GGUF_U32, .number = 2}, TDM_OK},
        {"mimo2-heads", "attention.value_scale", {LLM_GGUF_STRING, .text = "half"}, TDM_DATA_LOSS},
    };
    int n_run = 0;
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *from = model_file(rows[i].name);
        llm_model *model = NULL;
        tdm_error err = {0};
        if (from == NULL) continue;
        const char *path = changed_model_copy(from, "key.gguf", rows[i].suffix, rows[i].value);
        const tdm_status status = llm_model_open(path, &model, &err);
        if (status != rows[i].status)
            fail_msg("%s, %s: %d %s", rows[i].name, rows[i].suffix, (int)status, err.message);
        if (status != TDM_OK) assert_non_null(strstr(err.message, rows[i].suffix));
        llm_model_close(model);
        n_run++;
    }
    assert_in_range(n_run, 4, sizeof rows / sizeof *rows);
}

int main(int argc, char **argv) {
    if (argc > 1) chosen = argv + 1;
    if (!arch_scene_read(&scene)) return 1;
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_archs),
                                       cmocka_unit_test(test_scales),
                                       cmocka_unit_test(test_rope_types),
                                       cmocka_unit_test(test_rope_factors),
                                       cmocka_unit_test(test_rope_alpha),
                                       cmocka_unit_test(test_window_rope),
                                       cmocka_unit_test(test_window_scaling),
                                       cmocka_unit_test(test_changed_keys),
                                       cmocka_unit_test(test_absent_keys),
                                       cmocka_unit_test(test_next_tokens),
                                       cmocka_unit_test(test_select_noncausal),
                                       cmocka_unit_test(test_expert_widths),
                                       cmocka_unit_test(test_expert_counts),
                                       cmocka_unit_test(test_sound_head),
                                       cmocka_unit_test(test_refused_keys)};
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
