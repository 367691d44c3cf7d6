/* SPDX-License-Identifier: MIT
 *
 * test_lora.c: adapters (llm/adapter.h). Logits with adapters equal those of models into which this
 * program has merged them, on devices and groups, for several types, ranks, scales and sequences in
 * one batch; and llama.cpp's, which are in lora_llama.f32. What cannot be right is refused by name.
 *   test_lora NAME...        the fixtures of those names alone, with the bound printed
 *   test_lora write FOLDER   the files of which llama.cpp's logits are: NAME.gguf, NAME.0.lora and
 *                            NAME.1.lora of each model
 */
#include <math.h>
#include <unistd.h>

#include "llm/adapter.h"
#include "llm/cache/state.h"
#include "llm/gguf/gguf_write.h"
#include "llm/report.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/group_device.h"
#include "tests/model/lora_file.h"
#include "tests/model/preset.h"

enum { N_TOK = 12, N_VOCAB_MAX = 512, N_CTX = 64 };

/* f32 weights: only the order of additions differs. Adapters of other types are merged as f32, and
 * the CPU rounds what it multiplies them with: to f16, or to 15 bits. */
#define BOUND_F32    1e-9
#define BOUND_OTHERS 1e-6

static const char **chosen; /* names of the command line; NULL = the default ones */

typedef struct logits {
    int n_vocab;
    float rows[N_TOK][N_VOCAB_MAX];
} logits;

static int32_t token_at(int i, int n_vocab) {
    return (i * 7919 + i * i * 31 + 13) % n_vocab;
}

/* The fixture of an architecture, or the random model of a preset, in f32. */
static const char *base_path(const char *name) {
    char file[96], head[160];
    snprintf(file, sizeof file, "%s.gguf", name);
    if (strncmp(name, "tiny-", 5) == 0) {
        random_model_spec spec = preset_find(name);
        spec.type = TDM_TYPE_F32;
        return preset_file(file, &spec);
    }
    const char *path = rig_file(file);
    if (access(path, R_OK) == 0) return path;
    snprintf(head, sizeof head, "tests/model/archs/%s.head", name);
    char *from = rig_source_file(head);
    if (from == NULL || !arch_fixture_write(from, name, 1, path)) fail_msg("no fixture %s", name);
    free(from);
    return path;
}

static llm_model *model_load(const char *path, tdm_open_device *dev, const char *const *adapters,
                             const float *scales, int n) {
    tdm_error err = {0};
    llm_model *m = NULL;
    RIG_OK(llm_model_open(path, &m, &err));
    for (int i = 0; i < n; i++) RIG_OK(llm_model_add_adapter(m, adapters[i], scales[i], &err));
    assert_int_equal(m->n_adapter, n);
    RIG_OK(llm_model_load(m, rig_runtime(), &dev, 1, NULL, NULL, &err));
    return m;
}

static llm_context *context_make(llm_model *m, int n_seq) {
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = N_CTX,
                                       .n_ubatch = 16,
                                       .n_seq = n_seq,
                                       .page_len = 8};
    return rig_context(m, &params);
}

/* A prompt, then single tokens: the last layer has all rows, one of several, and one of one. */
static void logits_take(llm_context *ctx, logits *out) {
    int32_t tokens[N_TOK];
    out->n_vocab = llm_context_model(ctx)->hparams.n_vocab;
    assert_true(out->n_vocab <= N_VOCAB_MAX);
    for (int i = 0; i < N_TOK; i++) tokens[i] = token_at(i, out->n_vocab);
    static float rows[N_TOK * N_VOCAB_MAX];
    rig_decode(ctx, tokens, 4, 4, rows);
    rig_decode(ctx, tokens + 4, N_TOK - 6, 1, rows + 4 * out->n_vocab);
    rig_decode(ctx, tokens + N_TOK - 2, 1, 1, rows + 5 * out->n_vocab);
    rig_decode(ctx, tokens + N_TOK - 1, 1, 1, rows + 6 * out->n_vocab);
    memset(out->rows, 0, sizeof out->rows);
    for (int i = 0; i < 7; i++)
        memcpy(out->rows[i], rows + i * out->n_vocab, (size_t)out->n_vocab * sizeof(float));
}

static void logits_of(const char *path, tdm_open_device *dev, const char *const *adapters,
                      const float *scales, int n, logits *out) {
    llm_model *m = model_load(path, dev, adapters, scales, n);
    llm_context *ctx = context_make(m, 1);
    logits_take(ctx, out);
    llm_context_destroy(ctx);
    llm_model_close(m);
}

static double distance(const logits *a, const logits *b) {
    return rig_nmse(&a->rows[0][0], &b->rows[0][0], sizeof a->rows / sizeof(float));
}

/* ---- Merged weights ---- */

static const group_config groups[] = {
    {.n_member = 2, .shares = "3,1"},
    {.n_member = 3, .shares = "5,2,1"},
    {.n_member = 3, .shares = "1,2,1", .attention = "replicate"},
    {.n_member = 2, .split = "layer"},
    {.n_member = 2, .shares = "2,1", .attention = "sequence"},
    {.n_member = 3, .shares = "2,1,1", .experts = "whole"},
};
enum {
    N_GROUP = sizeof groups / sizeof *groups,
    TWO = 1,   /* bits of groups: cut matrices */
    THREE = 2, /* some members hold nothing of a layer */
    REPLICAS = 4,
    LAYERS = 8,
    SEQUENCE = 16,
    WHOLE = 32, /* experts are not cut */
    ALL = 63
};

/* Compares a fixture with an adapter with the merged model: on a device and on the groups of that
 * mask. */
static void fixture_check(const char *name, const lora_spec *spec, float scale, unsigned mask,
                          double bound) {
    static logits plain, merged, found;
    char file[160];
    const char *base = base_path(name);
    snprintf(file, sizeof file, "%s.%s.%d.%s.lora", name, tdm_type_name(spec->type), spec->rank,
             spec->only != NULL ? spec->only : "all");
    const char *adapter = rig_file(file);
    if (access(adapter, R_OK) != 0) assert_true(lora_file_write(base, spec, adapter) > 0);
    snprintf(file, sizeof file, "%s.merged", name);
    const char *whole = rig_file(file);
    lora_merge_write(base, &adapter, &scale, 1, whole);
    logits_of(base, rig_device(NULL, "fast", 1), NULL, NULL, 0, &plain);
    logits_of(whole, rig_device(NULL, "fast", 1), NULL, NULL, 0, &merged);
    /* The adapter shows. */
    if (distance(&merged, &plain) < 1e-3)
        fail_msg("%s: the adapter changes logits by %g only", name, distance(&merged, &plain));
    for (int g = -1; g < N_GROUP; g++) {
        if (g >= 0 && (mask >> g & 1) == 0) continue;
        tdm_open_device *dev = g < 0 ? rig_device(NULL, "fast", 1) : group_device(&groups[g]);
        logits_of(base, dev, &adapter, &scale, 1, &found);
        const double nmse = distance(&merged, &found);
        if (chosen != NULL)
            printf("%s %s group %d: %g of %g\n", name, tdm_type_name(spec->type), g, nmse,
                   distance(&merged, &plain));
        if (!(nmse <= bound))
            fail_msg("%s, %s, %s: NMSE %g, at most %g", name, tdm_type_name(spec->type),
                     g < 0 ? "one device" : group_words(&groups[g]), nmse, bound);
    }
}

static const lora_spec f32_spec = {.rank = 4,
                                   .other_rank = 7,
                                   .alpha = 6,
                                   .strength = 0.7f,
                                   .type = TDM_TYPE_F32,
                                   .seed = 1,
                                   .has_rows = true};

static void test_merged(void **state) {
    (void)state;
    static const struct {
        const char *name;
        unsigned groups;
    } cases[] = {
        {"tiny-llama", TWO | THREE | LAYERS},           /* grouped heads */
        {"tiny-odd", TWO | THREE | REPLICAS},           /* nothing divides evenly; shared heads */
        {"phi3-dense", TWO | THREE},                    /* Q, K and V in one matrix; gate and up */
        {"qwen2moe-moe", TWO | THREE | LAYERS | WHOLE}, /* router, shared experts with a gate */
        {"gemma4-moe", TWO | LAYERS},                   /* gate and up of experts in one; scales */
#ifndef TANDEM_SANITIZED
        {"tiny-mixtral", TWO | THREE | LAYERS | WHOLE},
        {"gpt-oss-moe", TWO | WHOLE},    /* biases of experts, limits */
        {"llama4-moe", TWO | WHOLE},     /* weights before the products */
        {"grovemoe-moe", TWO},           /* chunks of experts */
        {"nemotron_h_moe-latent", TWO},  /* no gate; rows of another length */
        {"qwen35-dense", TWO | THREE},   /* delta rule, gated attention */
        {"bloom-dense", ALL},            /* biases; fused; tied head */
        {"deepseek2-moe", TWO | THREE},  /* latent rows */
        {"minicpm3-dense", TWO | THREE}, /* as keys and values of every head */
        {"bitnet-dense", TWO | THREE},   /* scales of matrices */
#endif
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases && chosen == NULL; i++)
        fixture_check(cases[i].name, &f32_spec, i % 2 == 0 ? 1.0f : -0.5f, cases[i].groups,
                      BOUND_F32);
    for (const char **name = chosen; name != NULL && *name != NULL; name++)
        fixture_check(*name, &f32_spec, 1, ALL, BOUND_F32);
}

/* Each kind of weight alone: its adapter shows, and is not hidden by others. */
static void test_kinds(void **state) {
    static const struct {
        const char *name, *only;
    } cases[] = {
        {"tiny-llama", "token_embd"},  {"bloom-dense", "token_embd"}, /* tied */
        {"tiny-mixtral", "gate_exps"}, {"tiny-mixtral", "up_exps"},
        {"tiny-mixtral", "down_exps"}, {"gemma4-moe", "gate_up_exps"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        lora_spec spec = f32_spec;
        spec.only = cases[i].only;
        fixture_check(cases[i].name, &spec, 1, TWO | LAYERS, BOUND_F32);
    }
}

static void test_types(void **state) {
    static const lora_spec specs[] = {
        {.rank = 8,
         .alpha = 16,
         .strength = 0.7f,
         .type = TDM_TYPE_F16,
         .seed = 2,
         .has_rows = true},
        {.rank = 32,
         .alpha = 0,
         .strength = 0.7f,
         .type = TDM_TYPE_Q8_0,
         .seed = 3,
         .has_rows = true},
        {.rank = 1,
         .alpha = 1,
         .strength = 0.7f,
         .type = TDM_TYPE_BF16,
         .seed = 4,
         .has_rows = true},
    };
    (void)state;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
        fixture_check("tiny-llama", &specs[i], 0.5f, TWO | THREE, BOUND_OTHERS);
        fixture_check("tiny-mixtral", &specs[i], 0.5f, TWO | WHOLE, BOUND_OTHERS);
    }
}

/* ---- Several adapters ---- */

typedef struct duo {
    const char *base, *files[2];
} duo;

/* Two adapters of unlike ranks, of which one has attention's matrices alone. */
static const lora_spec duo_specs[2] = {
    {.rank = 5, .alpha = 10, .strength = 0.5f, .type = TDM_TYPE_F32, .seed = 11},
    {.rank = 2, .alpha = 3, .strength = 0.6f, .type = TDM_TYPE_F32, .seed = 12, .only = "attn"},
};
/* The same with the token embedding, and with matrices of experts alone. */
static const lora_spec expert_specs[2] = {
    {.rank = 5,
     .other_rank = 3,
     .alpha = 10,
     .strength = 0.5f,
     .type = TDM_TYPE_F32,
     .seed = 13,
     .has_rows = true},
    {.rank = 2, .alpha = 3, .strength = 0.6f, .type = TDM_TYPE_F32, .seed = 14, .only = "exps"},
};

static const lora_spec *specs_of(const char *name) {
    return strcmp(name, "tiny-mixtral") == 0 ? expert_specs : duo_specs;
}

static duo duo_make(const char *name) {
    duo d = {.base = base_path(name)};
    for (int i = 0; i < 2; i++) {
        char file[96];
        snprintf(file, sizeof file, "%s.%d.lora", name, i);
        d.files[i] = rig_file(file);
        if (access(d.files[i], R_OK) != 0) lora_file_write(d.base, &specs_of(name)[i], d.files[i]);
    }
    return d;
}

static void merged_logits(const duo *d, const float scales[2], logits *out) {
    const char *path = rig_file("duo.merged");
    lora_merge_write(d->base, d->files, scales, 2, path);
    logits_of(path, rig_device(NULL, "fast", 1), NULL, NULL, 0, out);
}

static void two_check(const char *name) {
    static const float sets[][2] = {{1, 1}, {1, -0.5f}, {0, 1}};
    static logits merged, found, plain;
    static const float none[2] = {0, 0};
    const duo d = duo_make(name);
    for (int i = 0; i < 3; i++) {
        merged_logits(&d, sets[i], &merged);
        for (int g = -1; g < 2; g++) {
            tdm_open_device *dev = g < 0 ? rig_device(NULL, "fast", 1) : group_device(&groups[g]);
            logits_of(d.base, dev, d.files, sets[i], 2, &found);
            assert_true(distance(&merged, &found) <= BOUND_F32);
        }
    }
    /* With scales of 0 the bits are those of the model alone. */
    logits_of(d.base, rig_device(NULL, "fast", 1), NULL, NULL, 0, &plain);
    logits_of(d.base, rig_device(NULL, "fast", 1), d.files, none, 2, &found);
    assert_memory_equal(plain.rows, found.rows, sizeof plain.rows);
}

static void test_two_adapters(void **state) {
    (void)state;
    two_check("tiny-llama");
    two_check("tiny-mixtral");
}

/* llama.cpp's logits of the last three tokens for scales of 1 and -0.5: f32 cache, one thread, no
 * flash attention. */
static void llama_check(const char *name, const char *file) {
    enum { N_ROW = 3, N_VOCAB = 384 };
    static const float scales[2] = {1, -0.5f};
    static float expected[N_ROW][N_VOCAB];
    static logits found;
    const duo d = duo_make(name);
    char *path = rig_source_file(file);
    assert_non_null(path);
    FILE *f = fopen(path, "rb");
    free(path);
    assert_non_null(f);
    assert_int_equal(fread(expected, sizeof expected[0], N_ROW, f), N_ROW);
    fclose(f);
    logits_of(d.base, rig_device(NULL, "fast", 1), d.files, scales, 2, &found);
    assert_int_equal(found.n_vocab, N_VOCAB);
    for (int i = 0; i < N_ROW; i++) {
        const double nmse = rig_nmse(expected[i], found.rows[4 + i], N_VOCAB);
        if (!(nmse <= BOUND_F32)) fail_msg("%s, row %d: NMSE %g from llama.cpp", name, i, nmse);
    }
}

static void test_beside_llama(void **state) {
    (void)state;
    llama_check("tiny-llama", "tests/model/lora_llama.f32");
    llama_check("tiny-mixtral", "tests/model/lora_experts_llama.f32");
}

/* ---- Sequences ---- */

enum { N_SET = 4 };
static const float set_scales[N_SET][2] = {{0, 0}, {1, 0}, {-0.5f, 0.75f}, {0, 2}};

/* Four sequences of unlike scales, in batches that mix their tokens; each has the logits of its own
 * merged model. */
static void sequences_check(const duo *d, tdm_open_device *dev, const logits *merged) {
    static const float start[2] = {3, 3};
    tdm_error err = {0};
    llm_model *m = model_load(d->base, dev, d->files, start, 2);
    llm_context *ctx = context_make(m, N_SET);
    const int n_vocab = m->hparams.n_vocab;
    for (int s = 0; s < N_SET; s++) {
        assert_true(llm_context_scales(ctx, s)[0] == 3);
        RIG_OK(llm_context_set_scales(ctx, s, set_scales[s], &err));
    }
    /* The first four tokens together, then one of each, as a server does. */
    int32_t tokens[4 * N_SET], seqs[4 * N_SET];
    bool wanted[4 * N_SET];
    for (int at = 0, n; at < N_TOK - 1; at += n) {
        n = at == 0 ? 4 : at == 4 ? 3 : 1;
        for (int i = 0; i < n * N_SET; i++) {
            seqs[i] = i % N_SET;
            tokens[i] = token_at(at + i / N_SET, n_vocab);
            wanted[i] = at == 0 || i / N_SET == n - 1;
        }
        const llm_batch batch = {
            .tokens = tokens, .seqs = seqs, .wanted = wanted, .n_tok = n * N_SET};
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        if (at > 0) continue;
        for (int i = 0; i < 4 * N_SET; i++) {
            const double nmse = rig_nmse(merged[i % N_SET].rows[i / N_SET],
                                         llm_context_logits(ctx, i), (size_t)n_vocab);
            if (!(nmse <= BOUND_F32)) fail_msg("sequence %d: NMSE %g", i % N_SET, nmse);
        }
    }
    for (int s = 0; s < N_SET; s++) tokens[s] = token_at(N_TOK - 1, n_vocab), seqs[s] = s;
    for (int s = 0; s < N_SET; s++) wanted[s] = true;
    const llm_batch last = {.tokens = tokens, .seqs = seqs, .wanted = wanted, .n_tok = N_SET};
    RIG_OK(llm_context_decode(ctx, &last, &err));
    for (int s = 0; s < N_SET; s++) {
        const double nmse =
            rig_nmse(merged[s].rows[6], llm_context_logits(ctx, s), (size_t)n_vocab);
        if (!(nmse <= BOUND_F32)) fail_msg("sequence %d at the end: NMSE %g", s, nmse);
    }
    /* Scales belong to cached tokens. */
    assert_int_equal(llm_context_set_scales(ctx, 1, set_scales[2], &err), TDM_FAILED_PRECONDITION);
    RIG_OK(llm_context_set_scales(ctx, 1, set_scales[1], &err));
    assert_int_equal(llm_context_set_scales(ctx, N_SET, set_scales[1], &err), TDM_INVALID_ARGUMENT);
    static const float bad[2] = {NAN, 0};
    assert_int_equal(llm_context_set_scales(ctx, 1, bad, &err), TDM_INVALID_ARGUMENT);
    /* A fork has the scales of its source, and goes on as it does. */
    RIG_OK(llm_context_truncate(ctx, 0, 0, &err));
    RIG_OK(llm_context_fork(ctx, 0, 2, N_TOK - 1, &err));
    assert_memory_equal(llm_context_scales(ctx, 0), set_scales[2], sizeof set_scales[2]);
    assert_true(llm_context_scales_hash(ctx, 0) == llm_context_scales_hash(ctx, 2));
    assert_true(llm_context_scales_hash(ctx, 0) != llm_context_scales_hash(ctx, 1));
    /* Tokens that are computed again for states have the sequence's scales. */
    RIG_OK(llm_context_truncate(ctx, 0, N_TOK - 3, &err));
    static float row[N_VOCAB_MAX];
    for (int i = 0; i < 3; i++) tokens[i] = token_at(N_TOK - 3 + i, n_vocab);
    rig_decode(ctx, tokens, 3, 1, row);
    const double nmse = rig_nmse(merged[2].rows[6], row, (size_t)n_vocab);
    if (!(nmse <= BOUND_F32)) fail_msg("a fork that was cut: NMSE %g", nmse);
    llm_context_destroy(ctx);
    llm_model_close(m);
}

static void test_sequences(void **state) {
    static logits merged[N_SET];
    static const char *const names[] = {"tiny-llama", "qwen35-dense", "tiny-mixtral"};
    (void)state;
    for (int i = 0; i < 3; i++) {
        const duo d = duo_make(names[i]);
        for (int s = 0; s < N_SET; s++) merged_logits(&d, set_scales[s], &merged[s]);
        sequences_check(&d, rig_device(NULL, "fast", 1), merged);
        sequences_check(&d, group_device(&groups[0]), merged);
        if (i == 2) sequences_check(&d, group_device(&groups[3]), merged);
    }
}

/* A file of cached rows is refused by a sequence of other scales. */
static void test_state(void **state) {
    tdm_error err = {0};
    (void)state;
    const duo d = duo_make("tiny-llama");
    const char *file = rig_file("rows");
    llm_model *m = model_load(d.base, rig_device(NULL, "fast", 1), d.files, set_scales[1], 2);
    llm_context *ctx = context_make(m, 2);
    static float rows[4 * N_VOCAB_MAX];
    int32_t tokens[4], *loaded = NULL, n = 0;
    for (int i = 0; i < 4; i++) tokens[i] = token_at(i, m->hparams.n_vocab);
    rig_decode(ctx, tokens, 4, 4, rows);
    RIG_OK(llm_state_save(ctx, 0, tokens, 4, file, &err));
    RIG_OK(llm_context_set_scales(ctx, 1, set_scales[2], &err));
    assert_int_equal(llm_state_load(ctx, 1, file, &loaded, &n, &err), TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "other adapters or scales"));
    RIG_OK(llm_context_set_scales(ctx, 1, set_scales[1], &err));
    RIG_OK(llm_state_load(ctx, 1, file, &loaded, &n, &err));
    assert_int_equal(n, 4);
    free(loaded);
    llm_context_destroy(ctx);
    llm_model_close(m);
}

/* ---- Reports ---- */

static tdm_split_report report_of(llm_model *m, tdm_open_device *dev, uint64_t *weights_out) {
    tdm_error err = {0};
    tdm_split_member members[GROUP_MAX_MEMBER];
    memset(members, 0, sizeof members);
    tdm_split_report r = {.struct_size = sizeof r,
                          .member_size = sizeof members[0],
                          .members = members,
                          .capacity = GROUP_MAX_MEMBER};
    const llm_context_params params = {.struct_size = sizeof params, .n_ctx = N_CTX};
    RIG_OK(llm_model_report(m, dev, &params, 1, 1, &r, &err));
    *weights_out = 0;
    for (int i = 0; i < r.n_member; i++) *weights_out += members[i].weight_size;
    r.members = NULL;
    return r;
}

/* A report counts the bytes of adapters, and they cost no exchange. */
static void test_report(void **state) {
    static const float scales[2] = {1, 1};
    (void)state;
    const duo d = duo_make("tiny-llama");
    for (int g = -1; g < 2; g++) {
        tdm_open_device *dev = g < 0 ? rig_device(NULL, "fast", 1) : group_device(&groups[g]);
        uint64_t with, without;
        llm_model *m = model_load(d.base, dev, d.files, scales, 2);
        const tdm_split_report own = report_of(m, dev, &with);
        const uint64_t size = m->adapter_size;
        llm_model_close(m);
        m = model_load(d.base, dev, NULL, NULL, 0);
        const tdm_split_report plain = report_of(m, dev, &without);
        llm_model_close(m);
        /* Matrices of few rows or columns take more on a device than in the file. */
        assert_true(size > 0 && with >= without + size && with <= without + 8 * size);
        assert_int_equal(own.n_exchange, plain.n_exchange);
        /* Of three members some hold no head of a layer, and send nothing: which, depends on all
         * weights. */
        if (g < 1) assert_int_equal(own.exchange_size, plain.exchange_size);
    }
}

/* ---- Refusals ---- */

typedef struct bad_file {
    const char *type, *arch, *kind; /* NULL = right */
    bool is_activated;
    const char *a, *b;                      /* names without ".lora_a"; NULL = none */
    int64_t k, rank_a, rank_b, n, n_matrix; /* n_matrix 0 = 1 */
    tdm_status status;
    const char *words;
} bad_file;

static void bad_write(const char *path, const bad_file *f) {
    tdm_error err = {0};
    llm_gguf_writer *w = NULL;
    static float zeros[1 << 20];
    const int64_t n_matrix = f->n_matrix > 0 ? f->n_matrix : 1;
    const int64_t a[] = {f->k, f->rank_a, n_matrix}, b[] = {f->rank_b, f->n, n_matrix};
    char name[96];
    RIG_OK(llm_gguf_writer_create(path, &w, &err));
    llm_gguf_writer_put_text(w, "general.type", f->type != NULL ? f->type : "adapter");
    llm_gguf_writer_put_text(w, "general.architecture", f->arch != NULL ? f->arch : "llama");
    llm_gguf_writer_put_text(w, "adapter.type", f->kind != NULL ? f->kind : "lora");
    llm_gguf_writer_put_f32(w, "adapter.lora.alpha", 8);
    if (f->is_activated) {
        static const uint32_t ids[2] = {1, 2};
        llm_gguf_writer_put_array(w, "adapter.alora.invocation_tokens", LLM_GGUF_U32, ids, 2);
    }
    if (f->a != NULL) {
        snprintf(name, sizeof name, "%s.lora_a", f->a);
        llm_gguf_writer_add_tensor(w, name, TDM_TYPE_F32, n_matrix > 1 ? 3 : 2, a);
    }
    if (f->b != NULL) {
        snprintf(name, sizeof name, "%s%s", f->b, f->rank_b > 0 ? ".lora_b" : "");
        const int64_t norm[] = {f->n};
        llm_gguf_writer_add_tensor(w, name, TDM_TYPE_F32,
                                   f->rank_b == 0 ? 1
                                   : n_matrix > 1 ? 3
                                                  : 2,
                                   f->rank_b > 0 ? b : norm);
    }
    const int64_t n_a = f->a != NULL ? f->k * f->rank_a * n_matrix : 0;
    const int64_t n_b = f->b != NULL ? (f->rank_b > 0 ? f->rank_b : 1) * f->n * n_matrix : 0;
    assert_true(n_a <= 1 << 20 && n_b <= 1 << 20);
    if (n_a > 0) RIG_OK(llm_gguf_writer_write(w, zeros, (size_t)n_a * 4, &err));
    if (n_b > 0) RIG_OK(llm_gguf_writer_write(w, zeros, (size_t)n_b * 4, &err));
    RIG_OK(llm_gguf_writer_finish(w, &err));
    llm_gguf_writer_destroy(w);
}

#define Q       "blk.0.attn_q.weight"
#define Q_SHAPE .k = 256, .rank_a = 4, .rank_b = 4, .n = 256

static void bad_check(const char *base, const bad_file *f) {
    tdm_error err = {0};
    llm_model *m = NULL;
    const char *path = rig_file("bad.lora");
    RIG_OK(llm_model_open(base, &m, &err));
    const int n_weight = m->n_weight;
    bad_write(path, f);
    const tdm_status status = llm_model_add_adapter(m, path, 1, &err);
    if (status != f->status || strstr(err.message, f->words) == NULL)
        fail_msg("expected %d with '%s', found %d: %s", f->status, f->words, status, err.message);
    assert_non_null(strstr(err.message, "bad.lora"));
    /* Nothing is left of it. */
    assert_int_equal(m->n_adapter, 0);
    assert_int_equal(m->n_weight, n_weight);
    assert_int_equal(m->n_own, n_weight);
    assert_true(m->adapter_size == 0);
    llm_model_close(m);
}

static void test_bad_files(void **state) {
    static const bad_file files[] = {
        {.type = "model", .status = TDM_UNSUPPORTED, .words = "general.type is 'model'"},
        {.kind = "control\nvector", .status = TDM_UNSUPPORTED, .words = "'control?vector'"},
        {.arch = "qwen2", .status = TDM_UNSUPPORTED, .words = "general.architecture is 'qwen2'"},
        {.is_activated = true, .status = TDM_UNSUPPORTED, .words = "invocation_tokens"},
        {.status = TDM_DATA_LOSS, .words = "no tensors"},
        {.a = Q, Q_SHAPE, .status = TDM_DATA_LOSS, .words = "without '" Q ".lora_b'"},
        {.b = Q, Q_SHAPE, .status = TDM_DATA_LOSS, .words = "without '" Q ".lora_a'"},
        {.a = Q,
         .b = "blk.0.attn_norm.weight",
         .k = 256,
         .rank_a = 4,
         .n = 256,
         .status = TDM_DATA_LOSS,
         .words = "without"},
        {.b = "blk.0.attn_norm.weight",
         .n = 256,
         .status = TDM_UNSUPPORTED,
         .words = "'blk.0.attn_norm.weight' is neither"},
        {.a = Q,
         .b = Q,
         .k = 255,
         .rank_a = 4,
         .rank_b = 4,
         .n = 256,
         .status = TDM_DATA_LOSS,
         .words = "'" Q ".lora_a' has shape [255, 4, 1, 1], expected [256, 4]"},
        {.a = Q,
         .b = Q,
         .k = 256,
         .rank_a = 5,
         .rank_b = 4,
         .n = 256,
         .status = TDM_DATA_LOSS,
         .words = "'" Q ".lora_a' has shape"},
        {.a = Q,
         .b = Q,
         .k = 256,
         .rank_a = 4,
         .rank_b = 4,
         .n = 128,
         .status = TDM_DATA_LOSS,
         .words = "'" Q ".lora_b' has shape"},
        {.a = Q,
         .b = Q,
         .k = 256,
         .rank_a = 4,
         .rank_b = 4,
         .n = 256,
         .n_matrix = 2,
         .status = TDM_DATA_LOSS,
         .words = "[256, 4, 2, 1]"},
        {.a = "blk.9.attn_q.weight",
         .b = "blk.9.attn_q.weight",
         Q_SHAPE,
         .status = TDM_NOT_FOUND,
         .words = "'blk.9.attn_q.weight', which"},
        {.a = "blk.0.attn_norm.weight",
         .b = "blk.0.attn_norm.weight",
         Q_SHAPE,
         .status = TDM_UNSUPPORTED,
         .words = "'blk.0.attn_norm.weight', which is no matrix"},
        {.a = "token_embd.weight",
         .b = "token_embd.weight",
         Q_SHAPE,
         .status = TDM_DATA_LOSS,
         .words = "'token_embd.weight.lora_a' has shape [256, 4, 1, 1], expected [4, 384] for "
                  "'token_embd.weight' [256, 384]"},
        {.a = "token_embd.weight",
         .b = "token_embd.weight",
         .k = 4,
         .rank_a = 384,
         .rank_b = 4,
         .n = 384,
         .status = TDM_DATA_LOSS,
         .words = "'token_embd.weight.lora_b' has shape [4, 384, 1, 1], expected [4, 256]"},
        {.a = "token_embd.weight",
         .b = "token_embd.weight",
         .k = 5,
         .rank_a = 384,
         .rank_b = 4,
         .n = 256,
         .status = TDM_DATA_LOSS,
         .words = "'token_embd.weight.lora_a' has shape [5, 384, 1, 1], expected [4, 384]"},
    };
    (void)state;
    tdm_error err = {0};
    const char *base = base_path("tiny-llama");
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) bad_check(base, &files[i]);
#define UP "blk.0.ffn_up_exps.weight"
    const bad_file experts[] = {
        {.a = UP,
         .b = UP,
         .k = 256,
         .rank_a = 4,
         .rank_b = 4,
         .n = 256,
         .n_matrix = 3,
         .status = TDM_DATA_LOSS,
         .words = "'" UP ".lora_a' has shape [256, 4, 3, 1], expected [256, 4, 4] for '" UP "'"},
        {.a = UP,
         .b = UP,
         .k = 256,
         .rank_a = 4,
         .rank_b = 4,
         .n = 128,
         .n_matrix = 4,
         .status = TDM_DATA_LOSS,
         .words = "'" UP ".lora_b' has shape [4, 128, 4, 1], expected [4, 256, 4]"},
        {.a = UP,
         .b = UP,
         .k = 256,
         .rank_a = 4,
         .rank_b = 4,
         .n = 256,
         .status = TDM_DATA_LOSS,
         .words = "'" UP ".lora_a' has shape [256, 4, 1, 1], expected [256, 4, 4]"},
    };
    for (size_t i = 0; i < sizeof experts / sizeof *experts; i++)
        bad_check(base_path("tiny-mixtral"), &experts[i]);
    const bad_file table = {.arch = "gemma3n",
                            .a = "per_layer_token_embd.weight",
                            .b = "per_layer_token_embd.weight",
                            Q_SHAPE,
                            .status = TDM_UNSUPPORTED,
                            .words = "which is a table of rows other than the token embedding"};
    bad_check(base_path("gemma3n-dense"), &table);
    const bad_file heads = {.arch = "deepseek2",
                            .a = "blk.0.attn_k_b.weight",
                            .b = "blk.0.attn_k_b.weight",
                            Q_SHAPE,
                            .status = TDM_UNSUPPORTED,
                            .words = "'blk.0.attn_k_b.weight', which is a matrix for each head"};
    bad_check(base_path("tiny-deepseek2"), &heads);
    /* Its products are of several streams of a token. */
    const bad_file streams = {.arch = "gemma3n",
                              .a = "altup_proj.weight",
                              .b = "altup_proj.weight",
                              Q_SHAPE,
                              .status = TDM_UNSUPPORTED,
                              .words = "'altup_proj.weight'"};
    bad_check(base_path("gemma3n-dense"), &streams);
    llm_model *m = NULL;
    RIG_OK(llm_model_open(base, &m, &err));
    assert_int_equal(llm_model_add_adapter(m, "/nowhere/x.gguf", 1, &err), TDM_NOT_FOUND);
    const duo d = duo_make("tiny-llama");
    assert_int_equal(llm_model_add_adapter(m, d.files[0], INFINITY, &err), TDM_INVALID_ARGUMENT);
    for (int i = 0; i < LLM_MAX_ADAPTERS; i++)
        RIG_OK(llm_model_add_adapter(m, d.files[1], 1, &err));
    assert_int_equal(llm_adapters_all(m), 0xffff);
    assert_int_equal(llm_model_add_adapter(m, d.files[1], 1, &err), TDM_OUT_OF_RANGE);
    llm_model_close(m);
    m = rig_model(base, rig_device(NULL, "fast", 1));
    assert_int_equal(llm_model_add_adapter(m, d.files[0], 1, &err), TDM_FAILED_PRECONDITION);
    llm_model_close(m);
}

static const char *out_folder;

static void files_write(void **state) {
    static const char *const names[] = {"tiny-llama", "tiny-mixtral"};
    tdm_error err = {0};
    char base[512], path[512];
    (void)state;
    for (int m = 0; m < 2; m++) {
        random_model_spec spec = preset_find(names[m]);
        spec.type = TDM_TYPE_F32;
        snprintf(base, sizeof base, "%s/%s.gguf", out_folder, names[m]);
        RIG_OK(random_model_write(&spec, base, NULL, NULL, NULL, &err));
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/%s.%d.lora", out_folder, names[m], i);
            lora_file_write(base, &specs_of(names[m])[i], path);
        }
    }
    for (int i = 0; i < N_TOK; i++) printf("%d%s", token_at(i, 384), i + 1 < N_TOK ? "," : "\n");
}

int main(int argc, char **argv) {
    const struct CMUnitTest all[] = {
        cmocka_unit_test(test_merged),       cmocka_unit_test(test_kinds),
        cmocka_unit_test(test_types),        cmocka_unit_test(test_two_adapters),
        cmocka_unit_test(test_beside_llama), cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_state),        cmocka_unit_test(test_report),
        cmocka_unit_test(test_bad_files),
    };
    const struct CMUnitTest one[] = {cmocka_unit_test(test_merged)};
    const struct CMUnitTest writing[] = {cmocka_unit_test(files_write)};
    if (argc < 2) return cmocka_run_group_tests(all, rig_begin, rig_end);
    out_folder = argc == 3 && strcmp(argv[1], "write") == 0 ? argv[2] : NULL;
    if (out_folder != NULL) return cmocka_run_group_tests(writing, rig_begin, rig_end);
    chosen = (const char **)(void *)(argv + 1);
    return cmocka_run_group_tests(one, rig_begin, rig_end);
}
