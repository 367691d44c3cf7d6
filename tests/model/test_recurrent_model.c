/* SPDX-License-Identifier: MIT
 *
 * test_recurrent_model.c: what a context does with recurrent states equals computing afresh:
 * sequences in one step, sharing of a prefix, drafts that are taken back, truncation behind and
 * between snapshots, state files; on one device, on a group whose members hold parts of the states,
 * and beside a device that does not scan. A context shift is refused. The models are fixtures of
 * tests/model/archs.
 *
 * Where RECURRENT_PLUGIN names a plugin of GPUs, the same on its device, and in a group of it and
 * the CPU, against logits of the CPU; RECURRENT_DRIVER is its option `driver`.
 */
#include <unistd.h>

#include "llm/arch/arch.h"
#include "llm/cache/state.h"
#include "llm/gguf/gguf_write.h"
#include "tests/model/arch_fixture.h"
#include "tests/model/changed_model.h"
#include "tests/model/group_device.h"
#include "tests/model/rig.h"

enum { N_TOK = 40, N_SEQ = 3 };

/* Chunks are computed in another order than single tokens on a fast path, and nothing else. */
#define BOUND 1e-10
/* Between devices: f32 sums in another order. */
#define DEVICE_BOUND 1e-9

static const char *const names[] = {"qwen35-dense",        "lfm2-dense",     "qwen3next-moe",
                                    "granitehybrid-dense", "mamba-dense",    "plamo2-dense",
                                    "kimi-linear-heads",   "minimax-01-moe", "rwkv6qwen2-dense",
                                    "qwen4exp-heads",      "rwkv6-dense",    "rwkv7-dense",
                                    "arwkv7-gated",        "deepseek4-long", "qwen4exp-select"};
enum { N_MODEL = sizeof names / sizeof *names };

typedef struct bench {
    llm_model *model;
    size_t n_vocab;
    int32_t tokens[N_SEQ][N_TOK];
    float *fresh[N_SEQ]; /* [N_TOK, n_vocab] logits of each, computed alone, one at a time */
    double bound;        /* NMSE of what is compared with them */
} bench;

static llm_context *context_make(const bench *b, int n_ubatch) {
    const tdm_type f32 = TDM_TYPE_F32;
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = 128,
                                       .n_ubatch = n_ubatch,
                                       .n_seq = N_SEQ,
                                       .page_len = 16,
                                       .type_k = &f32,
                                       .type_v = &f32};
    return rig_context(b->model, &params);
}

/* Appends tokens first .. last-1 of sequence `of` to sequence seq; logits of the last to `out`. */
static void append(const bench *b, llm_context *ctx, int32_t seq, int32_t of, int first, int last,
                   tdm_role role, float *out) {
    tdm_error err = {0};
    int32_t seqs[N_TOK];
    for (int i = 0; i < last - first; i++) seqs[i] = seq;
    const llm_batch batch = {
        .tokens = b->tokens[of] + first, .seqs = seqs, .n_tok = last - first, .role = role};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    if (out != NULL) memcpy(out, llm_context_logits(ctx, 0), b->n_vocab * sizeof *out);
}

static const float *fresh_row(const bench *b, int32_t seq, int at) {
    return b->fresh[seq] + (size_t)at * b->n_vocab;
}

static void judge(const bench *b, const char *what, int32_t seq, int at, const float *found) {
    double error = rig_nmse(fresh_row(b, seq, at), found, b->n_vocab);
    if (!(error <= b->bound))
        fail_msg("%s, %s: token %d of sequence %d: NMSE %g", b->model->hparams.arch, what, at, seq,
                 error);
}

/* The model on devices in turn. */
static llm_model *model_on(const char *path, tdm_open_device *const *devs, int n_dev) {
    llm_model *model = NULL;
    tdm_error err = {0};
    RIG_OK(llm_model_open(path, &model, &err));
    RIG_OK(llm_model_load(model, rig_runtime(), devs, n_dev, NULL, NULL, &err));
    return model;
}

static void bench_begin(bench *b, const char *name, tdm_open_device *const *devs, int n_dev) {
    char head[128], file[96];
    uint32_t state = 12345;
    snprintf(head, sizeof head, "tests/model/archs/%s.head", name);
    snprintf(file, sizeof file, "%s.gguf", name);
    char *from = rig_source_file(head);
    assert_non_null(from);
    const char *path = rig_file(file);
    assert_true(access(path, R_OK) == 0 || arch_fixture_write(from, name, 1, path));
    free(from);
    memset(b, 0, sizeof *b);
    b->bound = BOUND;
    b->model = model_on(path, devs, n_dev);
    b->n_vocab = (size_t)b->model->hparams.n_vocab;
    /* Sequences begin alike, so that they can share a prefix. */
    for (int s = 0; s < N_SEQ; s++)
        for (int i = 0; i < N_TOK; i++) {
            state = state * 1664525u + 1013904223u;
            b->tokens[s][i] = s > 0 && i < 9 * s ? b->tokens[0][i] : (int32_t)((state >> 8) % 100);
        }
    for (int s = 0; s < N_SEQ; s++) {
        llm_context *ctx = context_make(b, 1);
        b->fresh[s] = malloc(N_TOK * b->n_vocab * sizeof(float));
        assert_non_null(b->fresh[s]);
        for (int i = 0; i < N_TOK; i++)
            append(b, ctx, 0, s, i, i + 1, TDM_ROLE_GENERATED,
                   b->fresh[s] + (size_t)i * b->n_vocab);
        llm_context_destroy(ctx);
    }
}

static void bench_end(bench *b) {
    for (int s = 0; s < N_SEQ; s++) free(b->fresh[s]);
    llm_model_close(b->model);
}

/* Several sequences in a step, with different numbers of tokens, in ubatches that cut them. */
static void check_together(const bench *b) {
    static const int lengths[N_SEQ] = {17, 3, 11};
    for (int n_ubatch = 5; n_ubatch <= 64; n_ubatch += 59) {
        llm_context *ctx = context_make(b, n_ubatch);
        int32_t tokens[N_SEQ * N_TOK], seqs[N_SEQ * N_TOK];
        bool wanted[N_SEQ * N_TOK];
        tdm_error err = {0};
        for (int round = 0; round < 2; round++) {
            int n = 0, row = 0;
            for (int i = 0; i < 17; i++) /* their tokens take turns */
                for (int s = 0; s < N_SEQ; s++) {
                    if (i >= lengths[s]) continue;
                    tokens[n] = b->tokens[s][round * lengths[s] + i];
                    wanted[n] = i == lengths[s] - 1;
                    seqs[n++] = s;
                }
            const llm_batch batch = {.tokens = tokens, .seqs = seqs, .wanted = wanted, .n_tok = n};
            RIG_OK(llm_context_decode(ctx, &batch, &err));
            for (int i = 0; i < n; i++)
                if (wanted[i])
                    judge(b, "together", seqs[i], (round + 1) * lengths[seqs[i]] - 1,
                          llm_context_logits(ctx, row++));
        }
        llm_context_destroy(ctx);
    }
}

static bool never_goes_on(void *context, uint64_t done, uint64_t total) {
    (void)context, (void)done, (void)total;
    return false;
}

/* Sequences 1 and 2 share what they have in common with sequence 0: its end, and its middle. A fork
 * that fails leaves its target empty. */
static void check_forks(const bench *b) {
    llm_context *ctx = context_make(b, 7);
    float *row = malloc(b->n_vocab * sizeof *row);
    tdm_error err = {0};
    assert_non_null(row);
    append(b, ctx, 0, 0, 0, 18, TDM_ROLE_PROMPT, row);
    RIG_OK(llm_context_fork(ctx, 2, 0, 18, &err)); /* no snapshot, no recomputing */
    append(b, ctx, 2, 2, 18, 25, TDM_ROLE_GENERATED, row);
    judge(b, "fork of the end", 2, 24, row);
    assert_int_equal(llm_context_fork(ctx, 1, 0, -1, &err), TDM_OUT_OF_RANGE);
    llm_context_set_progress(ctx, never_goes_on, NULL);
    assert_int_equal(llm_context_fork(ctx, 1, 0, 9, &err), TDM_CANCELLED);
    llm_context_set_progress(ctx, NULL, NULL);
    assert_int_equal(llm_context_length(ctx, 1), 0);
    RIG_OK(llm_context_fork(ctx, 1, 0, 9, &err)); /* inside the prompt */
    append(b, ctx, 1, 1, 9, 12, TDM_ROLE_GENERATED, row);
    judge(b, "fork of the middle", 1, 11, row);
    append(b, ctx, 0, 0, 18, 20, TDM_ROLE_GENERATED, row);
    judge(b, "behind forks", 0, 19, row);
    free(row);
    llm_context_destroy(ctx);
}

/* Drafts: some tokens at once, of which those behind the first wrong one are taken back. */
static void check_drafts(const bench *b) {
    llm_context *ctx = context_make(b, 32);
    float *row = malloc(b->n_vocab * sizeof *row);
    tdm_error err = {0};
    int at = 10;
    assert_non_null(row);
    append(b, ctx, 0, 0, 0, at, TDM_ROLE_PROMPT, NULL);
    for (int kept = 0; kept < 5 && at + kept < N_TOK; kept++) {
        int32_t drafted[6], seqs[6] = {0};
        for (int i = 0; i < 6; i++)
            drafted[i] = i < kept ? b->tokens[0][at + i] : (b->tokens[0][at + i] + 1) % 100;
        const llm_batch batch = {.tokens = drafted, .seqs = seqs, .n_tok = 6};
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        RIG_OK(llm_context_truncate(ctx, 0, at + kept, &err));
        at += kept;
        append(b, ctx, 0, 0, at, at + 1, TDM_ROLE_GENERATED, row);
        judge(b, "drafts", 0, at++, row);
    }
    free(row);
    llm_context_destroy(ctx);
}

/* Back to the end of the prompt, to a place without a snapshot, and to the start. */
static void check_truncation(const bench *b) {
    static const int places[] = {12, 19, 5, 0};
    llm_context *ctx = context_make(b, 8);
    float *row = malloc(b->n_vocab * sizeof *row);
    tdm_error err = {0};
    assert_non_null(row);
    append(b, ctx, 0, 0, 0, 12, TDM_ROLE_PROMPT, NULL);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        int length = llm_context_length(ctx, 0);
        for (int k = length; k < 22; k++) append(b, ctx, 0, 0, k, k + 1, TDM_ROLE_GENERATED, NULL);
        RIG_OK(llm_context_truncate(ctx, 0, places[i], &err));
        assert_int_equal(llm_context_length(ctx, 0), places[i]);
        append(b, ctx, 0, 0, places[i], places[i] + 2, TDM_ROLE_GENERATED, row);
        judge(b, "truncation", 0, places[i] + 1, row);
    }
    free(row);
    llm_context_destroy(ctx);
}

/* A file that one context saved goes on in another; a prompt takes all of it or nothing. */
static void check_file(const bench *b) {
    const char *path = rig_file("recurrent.state");
    llm_context *ctx = context_make(b, 16);
    float *row = malloc(b->n_vocab * sizeof *row);
    tdm_error err = {0};
    int32_t *tokens = NULL, n = 0;
    assert_non_null(row);
    append(b, ctx, 1, 0, 0, 15, TDM_ROLE_PROMPT, NULL);
    RIG_OK(llm_state_save(ctx, 1, b->tokens[0], 15, path, &err));
    llm_context_destroy(ctx);
    ctx = context_make(b, 16);
    RIG_OK(llm_state_load(ctx, 0, path, &tokens, &n, &err));
    assert_int_equal(n, 15);
    free(tokens);
    append(b, ctx, 0, 0, 15, 17, TDM_ROLE_GENERATED, row);
    judge(b, "loaded", 0, 16, row);
    RIG_OK(llm_context_truncate(ctx, 0, 14, &err)); /* computed again from the start */
    append(b, ctx, 0, 0, 14, 16, TDM_ROLE_GENERATED, row);
    judge(b, "loaded and truncated", 0, 15, row);
    RIG_OK(llm_state_load_prefix(ctx, 1, path, b->tokens[0], 20, &n, &err));
    assert_int_equal(n, 15);
    append(b, ctx, 1, 0, 15, 16, TDM_ROLE_GENERATED, row);
    judge(b, "loaded as a prefix", 0, 15, row);
    RIG_OK(llm_state_load_prefix(ctx, 2, path, b->tokens[0], 10, &n, &err));
    assert_int_equal(n, 0);
    assert_int_equal(llm_context_length(ctx, 2), 0);
    free(row);
    llm_context_destroy(ctx);
}

/* A batch that is cancelled between two ubatches leaves the sequence as it was. */
static void check_cancelled(const bench *b) {
    llm_context *ctx = context_make(b, 7);
    float *row = malloc(b->n_vocab * sizeof *row);
    const llm_batch batch = {.tokens = b->tokens[0] + 10, .n_tok = 15};
    tdm_error err = {0};
    assert_non_null(row);
    append(b, ctx, 0, 0, 0, 10, TDM_ROLE_PROMPT, NULL);
    llm_context_set_progress(ctx, never_goes_on, NULL);
    assert_int_equal(llm_context_decode(ctx, &batch, &err), TDM_CANCELLED);
    llm_context_set_progress(ctx, NULL, NULL);
    assert_int_equal(llm_context_length(ctx, 0), 10);
    append(b, ctx, 0, 0, 10, 12, TDM_ROLE_GENERATED, row);
    judge(b, "cancelled", 0, 11, row);
    free(row);
    llm_context_destroy(ctx);
}

static void check_shift(const bench *b) {
    llm_context *ctx = context_make(b, 16);
    tdm_error err = {0};
    append(b, ctx, 0, 0, 0, 12, TDM_ROLE_PROMPT, NULL);
    assert_false(llm_context_can_shift(ctx));
    assert_int_equal(llm_context_shift(ctx, 0, 2, 4, &err), TDM_UNSUPPORTED);
    assert_non_null(strstr(err.message, "recurrent states"));
    assert_non_null(strstr(err.message, b->model->hparams.arch));
    assert_int_equal(llm_context_length(ctx, 0), 12);
    llm_context_destroy(ctx);
}

static void check_all(bench *b) {
    check_together(b);
    check_forks(b);
    check_drafts(b);
    check_truncation(b);
    check_file(b);
    check_cancelled(b);
    check_shift(b);
    bench_end(b);
}

static void test_one_device(void **state) {
    bench b;
    (void)state;
    for (int i = 0; i < N_MODEL; i++) {
        tdm_open_device *dev = rig_device(NULL, "fast", 2);
        bench_begin(&b, names[i], &dev, 1);
        check_all(&b);
    }
}

#ifdef TANDEM_SANITIZED /* the code of a group is the same for each; the one device has all */
enum { GROUP_STEP = 3 };
#else
enum { GROUP_STEP = 1 };
#endif

static void test_group(void **state) {
    static const group_config config = {.n_member = 2, .path = "fast", .shares = "5,3"};
    bench b;
    (void)state;
    for (int i = 0; i < N_MODEL; i += GROUP_STEP) {
        tdm_open_device *dev = group_device(&config);
        bench_begin(&b, names[i], &dev, 1);
        check_all(&b);
    }
}

/* The models on a device with memory of its own that refuses an op, as the first of two and as a
 * member of a group. */
static void refusing_check(int32_t op, size_t n_model) {
    static const char *const beside[] = {"qwen35-dense", "lfm2-dense", "rwkv7-dense"};
    char number[8], names_of[4][32], members[72];
    snprintf(number, sizeof number, "%d", op);
    for (int i = 0; i < 4; i++) {
        static const char *const parts[] = {"behind", "beside", "without", "group"};
        snprintf(names_of[i], sizeof names_of[i], "%s-%d", parts[i], op);
    }
    snprintf(members, sizeof members, "%s,%s", names_of[2], names_of[1]);
    const tdm_option cpu[] = {{"path", "fast"}, {"activation-bits", "15"}, {"threads", "1"}};
    const tdm_option away[] = {{"member", names_of[0]},
                               {"memory", "1000000000000"},
                               {"host-pointer", "no"},
                               {"refuse", number}};
    const tdm_option group[] = {{"members", members}, {"share", "2,1"}};
    const tdm_device_spec specs[] = {{names_of[0], "cpu", 0, cpu, 3},
                                     {names_of[1], "cpu", 0, cpu, 3},
                                     {names_of[2], "fault", 0, away, 4},
                                     {names_of[3], "meta", 0, group, 2}};
    tdm_open_device *devs[2] = {NULL, NULL};
    tdm_error err = {0};
    bench b;
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        RIG_OK(tdm_runtime_declare(rig_runtime(), &specs[i], &err));
    RIG_OK(tdm_runtime_open(rig_runtime(), names_of[2], &devs[0], &err));
    devs[1] = rig_device(NULL, "fast", 1);
    for (size_t i = 0; i < n_model; i++) {
        bench_begin(&b, beside[i], devs, 2);
        check_all(&b);
    }
    RIG_OK(tdm_runtime_open(rig_runtime(), names_of[3], &devs[0], &err));
    for (size_t i = 0; i < n_model; i++) {
        bench_begin(&b, beside[i], devs, 1);
        check_all(&b);
    }
}

/* A device that would keep all states, and runs CONV1D but not LINEAR_SCAN: the CPU does, and has
 * the matrices. */
static void test_without_slots(void **state) {
    (void)state;
    refusing_check(TDM_OP_LINEAR_SCAN, 3);
}

/* A device that keeps the states, while weights that CONV1D reads are with the CPU, as all that are
 * multiplied element by element. */
static void test_without_mul(void **state) {
    (void)state;
#ifdef TANDEM_SANITIZED /* the same code moves other weights */
    refusing_check(TDM_OP_MUL, 1);
#else
    refusing_check(TDM_OP_MUL, 3);
#endif
}

/* ---- A GPU ---- */

static tdm_open_device *gpu_open(const char *name) {
    const char *driver = getenv("RECURRENT_DRIVER");
    const tdm_option gpu[] = {driver != NULL ? (tdm_option){"driver", driver}
                                             : (tdm_option){"allow-cpu", "yes"}};
    const tdm_option cpu[] = {{"path", "fast"}, {"activation-bits", "15"}, {"threads", "1"}};
    const tdm_option group[] = {{"members", "gpu,beside-gpu"}, {"share", "2,1"}};
    const tdm_device_spec specs[] = {{"gpu", getenv("RECURRENT_PLUGIN"), 0, gpu, 1},
                                     {"beside-gpu", "cpu", 0, cpu, 3},
                                     {"group-gpu", "meta", 0, group, 2}};
    tdm_open_device *dev = NULL;
    tdm_error err = {0};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        tdm_runtime_declare(rig_runtime(), &specs[i], NULL); /* may be there already */
    tdm_status status = tdm_runtime_open(rig_runtime(), name, &dev, &err);
    if (driver == NULL && (status == TDM_NOT_FOUND || status == TDM_UNAVAILABLE)) {
        print_message("SKIPPED: %s\n", err.message);
        skip();
    }
    RIG_OK(status);
    return dev;
}

/* The device keeps the states: nothing of the model runs on the CPU instead. */
static void keeps_states(tdm_open_device *dev, uint32_t flags) {
    const tdm_kv_desc desc = {.struct_size = sizeof desc,
                              .head_dim_k = 4096,
                              .head_dim_v = 4096,
                              .n_head_kv = 3,
                              .page_len = 1,
                              .rope_offset = 64, /* dk of a scan */
                              .flags = TDM_KV_V_FROM_K | TDM_KV_RECURRENT | flags};
    uint64_t size = 0;
    tdm_error err = {0};
    RIG_OK(tdm_open_device_kv_page_size(dev, &desc, &size, &err));
    assert_int_equal(size, 3 * 4096 * sizeof(float)); /* no more than the state */
}

/* The model with what the CPU computes of it, on the device. */
static void gpu_bench_begin(bench *b, tdm_open_device *dev, const char *name) {
    char file[96];
    tdm_open_device *cpu = rig_device(NULL, "fast", 2);
    bench_begin(b, name, &cpu, 1);
    llm_model_close(b->model);
    snprintf(file, sizeof file, "%s.gguf", name);
    b->model = model_on(rig_file(file), &dev, 1);
    b->bound = DEVICE_BOUND;
}

/* Emulated and software devices are slow, and a driver compiles kernels for each shape: one model
 * with convolutions, matrices and an index of means, and one whose matrices are erased. */
static void test_gpu(void **state) {
    tdm_open_device *dev = gpu_open("gpu");
    bench b;
    (void)state;
    keeps_states(dev, 0);
    gpu_bench_begin(&b, dev, "qwen4exp-select");
    check_drafts(&b);
    check_file(&b);
    bench_end(&b);
    keeps_states(dev, TDM_KV_ERASED);
    gpu_bench_begin(&b, dev, "rwkv7-dense");
    check_drafts(&b);
    bench_end(&b);
}

static void test_gpu_group(void **state) {
    bench b;
    (void)state;
    gpu_bench_begin(&b, gpu_open("group-gpu"), "lfm2-dense");
    check_forks(&b);
    check_file(&b);
    bench_end(&b);
}

/* ---- Layers that draft ---- */

/* Copies a key. Arrays of 32-bit numbers with an element for each layer get one more. */
static void key_copy(llm_gguf_writer *w, const llm_gguf_key *key, int32_t n_layer) {
    uint32_t each[64];
    const bool is_wide = key->type == LLM_GGUF_ARRAY &&
                         (key->array.type == LLM_GGUF_U32 || key->array.type == LLM_GGUF_I32);
    if (!is_wide || key->array.n != (uint64_t)n_layer || n_layer >= 64) {
        llm_gguf_writer_put_key(w, key);
        return;
    }
    memcpy(each, key->array.data, (size_t)n_layer * sizeof *each);
    each[n_layer] = each[n_layer - 1];
    llm_gguf_writer_put_array(w, key->name, key->array.type, each, (uint64_t)n_layer + 1);
}

/* Writes the model again with one more layer, of which two tensors stand for all. n_draft: what its
 * key says; 0 = no key. */
static void draft_model_write(const llm_model *m, const char *path, uint32_t n_draft) {
    static const float zeros[64];
    const int64_t ne[TDM_MAX_DIMS] = {64, 1, 1, 1};
    tdm_error err = {0};
    llm_gguf_writer *w = NULL;
    char name[80], last[2][48];
    RIG_OK(llm_gguf_writer_create(path, &w, &err));
    for (uint32_t i = 0; i < llm_gguf_key_count(m->gguf); i++) {
        const llm_gguf_key *key = llm_gguf_key_at(m->gguf, i);
        snprintf(name, sizeof name, "%s.block_count", m->hparams.arch);
        bool is_count = llm_gguf_key_find(m->gguf, name) == key;
        snprintf(name, sizeof name, "%s.nextn_predict_layers", m->hparams.arch);
        if (llm_gguf_key_find(m->gguf, name) == key) continue;
        if (!is_count) key_copy(w, key, m->hparams.n_layer);
    }
    if (n_draft > 0) llm_gguf_writer_put_u32(w, name, n_draft);
    snprintf(name, sizeof name, "%s.block_count", m->hparams.arch);
    llm_gguf_writer_put_u32(w, name, (uint32_t)m->hparams.n_layer + 1);
    for (int i = 0; i < 2; i++)
        snprintf(last[i], sizeof last[i], "blk.%d.%s.weight", m->hparams.n_layer,
                 i == 0 ? "attn_norm" : "nextn.eh_proj");
    const uint32_t n = llm_gguf_tensor_count(m->gguf);
    for (uint32_t i = 0; i < n; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(m->gguf, i);
        llm_gguf_writer_add_tensor(w, t->name, t->type, t->n_dims, t->ne);
    }
    for (int i = 0; i < 2; i++) llm_gguf_writer_add_tensor(w, last[i], TDM_TYPE_F32, 1, ne);
    for (uint32_t i = 0; i < n; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(m->gguf, i);
        RIG_OK(llm_gguf_writer_write(w, t->data, t->size, &err));
    }
    for (int i = 0; i < 2; i++) RIG_OK(llm_gguf_writer_write(w, zeros, sizeof zeros, &err));
    RIG_OK(llm_gguf_writer_finish(w, &err));
    llm_gguf_writer_destroy(w);
}

/* Layers that only draft tokens change nothing; without their key they are part of the model. A
 * model without such layers may have the key. */
static void check_draft_layers(bench *b, tdm_open_device *dev) {
    const char *path = rig_file("draft.gguf");
    tdm_error err = {0};
    llm_model *plain = b->model, *whole = NULL;
    draft_model_write(plain, path, 1);
    b->model = model_on(path, &dev, 1);
    assert_int_equal(b->model->hparams.n_layer, plain->hparams.n_layer);
    check_truncation(b);
    llm_model_close(b->model);
    draft_model_write(plain, path, 0);
    assert_int_not_equal(llm_model_open(path, &whole, &err), TDM_OK);
    b->model = plain;
    bench_end(b);
}

static void test_draft_layers(void **state) {
    /* The second has keys with an element for each layer, the third no recurrent states. */
    static const char *const drafting[] = {"qwen35-dense", "lfm2-dense", "glm4moe-moe"};
    tdm_open_device *dev = rig_device(NULL, "fast", 2);
    bench b;
    (void)state;
    for (size_t i = 0; i < sizeof drafting / sizeof *drafting; i++) {
        bench_begin(&b, drafting[i], &dev, 1);
        check_draft_layers(&b, dev);
    }
}

typedef struct bad_key {
    const char *suffix;
    uint32_t number;
    const char *text;
} bad_key;

static void check_bad_keys(const char *name, const bad_key *cases, size_t n) {
    tdm_open_device *dev = rig_device(NULL, "fast", 2);
    const char *path = rig_file("changed.gguf");
    bench b;
    bench_begin(&b, name, &dev, 1);
    for (size_t i = 0; i < n; i++) {
        llm_model *model = NULL;
        tdm_error err = {0};
        changed_model_write(b.model->gguf, path, cases[i].suffix, CHANGED_NUMBER(cases[i].number));
        assert_int_not_equal(llm_model_open(path, &model, &err), TDM_OK);
        if (strstr(err.message, cases[i].text) == NULL)
            fail_msg("%s: %s = %u: %s", name, cases[i].suffix, cases[i].number, err.message);
    }
    bench_end(&b);
}

static void test_bad_keys(void **state) {
    static const bad_key rwkv6[] = {
        {"wkv.head_size", 24, "wkv.head_size' = 24"},
        {"wkv.head_size", 0, "wkv.head_size' is 0"},
        {"attention.head_count_kv", 3, "'attention.head_count_kv' = 3"},
        {"token_shift_count", 2, "token_shift_count' is 2"},
        {"time_mix_extra_dim", 13, "time_mix_w1.weight' has shape"},
        {"time_decay_extra_dim", 0, "time_decay_extra_dim' is 0"},
    };
    static const bad_key rwkv7[] = {
        {"wkv.head_size", 100, "wkv.head_size' = 100"},
        {"token_shift_count", 1, "token_shift_count' is 1"},
        {"attention.decay_lora_rank", 0, "decay_lora_rank' is 0"},
        {"attention.iclr_lora_rank", 21, "time_mix_a1.weight' has shape"},
        {"attention.value_residual_mix_lora_rank", 9, "blk.1.time_mix_v1.weight' has shape"},
        {"attention.gate_lora_rank", 0, "gate_lora_rank' is 0"},
    };
    static const bad_key arwkv7[] = {
        {"attention.gate_lora_rank", 24, "time_mix_lerp_fused.weight' has shape"},
        {"token_shift_count", 2, "token_shift_count' is 2"},
    };
    static const bad_key deepseek4[] = {
        {"attention.output_group_count", 3, "output_group_count' does not divide"},
        {"attention.output_lora_rank", 24, "attn_output_a.weight' has shape"},
        {"attention.head_count_kv", 2, "'attention.head_count_kv'"},
        {"attention.compress_ratios", 4, "compress_ratios' has no number for layer 0"},
        {"attention.sliding_window", 0, "sliding_window' is 0"},
        {"attention.indexer.key_length", 8, "key_length' must be rope.dimension_count or more"},
        {"hyper_connection.count", 17, "hyper_connection.count' is 17"},
        {"hyper_connection.sinkhorn_iterations", 0, "sinkhorn_iterations' is 0"},
        {"hash_layer_count", 5, "hash_layer_count' is 5"},
        {"hash_layer_count", 3, "blk.2.ffn_gate_tid2eid.weight' is missing"},
        {"expert_used_count", 3, "ffn_gate_tid2eid.weight' is i32 [2, 128], expected i32 [3, 128]"},
        {"expert_count", 4, "names expert"},
    };
    (void)state;
    check_bad_keys("deepseek4-long", deepseek4, sizeof deepseek4 / sizeof *deepseek4);
    check_bad_keys("rwkv6qwen2-dense", rwkv6, sizeof rwkv6 / sizeof *rwkv6);
    check_bad_keys("rwkv7-dense", rwkv7, sizeof rwkv7 / sizeof *rwkv7);
    check_bad_keys("arwkv7-dense", arwkv7, sizeof arwkv7 / sizeof *arwkv7);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_device),    cmocka_unit_test(test_group),
        cmocka_unit_test(test_without_slots), cmocka_unit_test(test_without_mul),
        cmocka_unit_test(test_draft_layers),  cmocka_unit_test(test_bad_keys),
    };
    const struct CMUnitTest gpu_tests[] = {
        cmocka_unit_test(test_gpu),
        cmocka_unit_test(test_gpu_group),
    };
    if (getenv("RECURRENT_PLUGIN") != NULL)
        return cmocka_run_group_tests(gpu_tests, rig_begin, rig_end);
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
