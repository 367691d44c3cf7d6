/* SPDX-License-Identifier: MIT
 *
 * test_vendors.c: one group of a CUDA, a HIP and a Vulkan device and the CPU, with shares
 * 4 : 3 : 2 : 1 and with `share = auto`. CUDA and HIP are emulated, Vulkan is the machine's driver,
 * the software driver where there is no card. Skipped where no Vulkan device is found.
 *
 *     test_vendors CUDA_DRIVER HIP_DRIVER
 *
 * Two comparisons. Greedy text equals the CPU's. And logits: the RMS error of a group against the
 * CPU's reference path is at most twice that of its worst member alone; a most likely token differs
 * from the reference's only where the reference's margin is at most 8 times that row's RMS error,
 * and in at most twice as many rows (plus 1 %) as on the worst member alone.
 */
#include "tests/simt/vendors.h"

#include <math.h>

#include "core/runtime.h"
#include "llm/cache/state.h"
#include "llm/report.h"
#include "tests/model/preset.h"

enum {
    N_CTX = 128,
    N_PROMPT = 17,
    N_NEXT = 4,
    N_DRAFT = 4,
    MAX_ROW = 64,
    N_TEXT = 12,
    SKIP_CODE = 77
};

/* HIP has the same kernels as CUDA, and Vulkan's have tests of their own. Measuring fewer members
 * alone can only make the bound smaller. */
static const bool is_measured_alone[N_VENDOR] = {true, false, false, true};

/* The group of all members, made at the first call. `share` NULL = auto, by given rates. */
static tdm_open_device *group_of_all(const char *share, const char *attention,
                                     const char *experts) {
    char name[96];
    tdm_open_device *dev = NULL;
    tdm_error err = {0};
    snprintf(name, sizeof name, "all %s %s %s", share != NULL ? share : "auto", attention, experts);
    if (tdm_runtime_open(rig_runtime(), name, &dev, &err) == TDM_OK) return dev;
    const tdm_option options[] = {{"members", "nvidia, amd, vulkan, cpu"},
                                  {"share", share != NULL ? share : "auto"},
                                  {"attention", attention},
                                  {"experts", experts}};
    const tdm_device_spec spec = {name, "meta", 0, options, 4};
    RIG_OK(tdm_runtime_declare(rig_runtime(), &spec, &err));
    RIG_OK(tdm_runtime_open(rig_runtime(), name, &dev, &err));
    return dev;
}

/* ---- Setups ---------------------------------------------------------------------------------- */

typedef struct setup {
    const char *name;
    random_model_spec spec;
    tdm_type k, v;
    const char *attention, *experts;
    const char *share; /* NULL = auto */
    bool is_cache_in_host;
} setup;

static random_model_spec changed(const char *preset, tdm_type type, int n_head, int n_head_kv) {
    random_model_spec spec = preset_find(preset);
    spec.type = type;
    if (n_head > 0) spec.n_head = n_head, spec.n_head_kv = n_head_kv;
    return spec;
}

static llm_context_params params_of(const setup *s, int page_len) {
    return (llm_context_params){.struct_size = sizeof(llm_context_params),
                                .n_ctx = N_CTX,
                                .n_ubatch = 32,
                                .n_seq = 2,
                                .page_len = page_len,
                                .type_k = &s->k,
                                .type_v = &s->v,
                                .is_cache_in_host = s->is_cache_in_host};
}

static llm_context *context_make(llm_model *model, const setup *s, int page_len) {
    const llm_context_params params = params_of(s, page_len);
    return rig_context(model, &params);
}

/* ---- What is done on each device ------------------------------------------------------------- */

/* Appends n tokens, counted from `first`, to a sequence, and keeps all their logits. */
static void append(llm_context *ctx, rows *r, int seq, int first, int n) {
    int32_t tokens[N_PROMPT], seqs[N_PROMPT];
    bool wanted[N_PROMPT];
    tdm_error err = {0};
    assert_true(n <= N_PROMPT && r->n + n <= MAX_ROW);
    for (int i = 0; i < n; i++) {
        tokens[i] = vendor_token(first + i, r->n_vocab);
        seqs[i] = seq;
        wanted[i] = true;
    }
    const llm_batch batch = {.tokens = tokens, .seqs = seqs, .wanted = wanted, .n_tok = n};
    RIG_OK(llm_context_decode(ctx, &batch, &err));
    for (int i = 0; i < n; i++)
        memcpy(r->logits + (size_t)r->n++ * (size_t)r->n_vocab, llm_context_logits(ctx, i),
               (size_t)r->n_vocab * sizeof *r->logits);
}

/* A prompt, tokens one by one, drafted tokens of which all but one are dropped again, a context
 * shift, and the sequence saved and loaded into another one with pages of another length. */
static rows story_run(const setup *s, tdm_open_device *dev) {
    tdm_error err = {0};
    int32_t ids[N_CTX], *loaded = NULL, n_loaded = 0;
    const char *path = preset_file(s->name, &s->spec), *state = rig_file("state");
    llm_model *model = vendor_model(path, dev);
    rows r = {.n_vocab = model->hparams.n_vocab};
    r.logits = calloc((size_t)MAX_ROW * (size_t)r.n_vocab, sizeof *r.logits);
    assert_non_null(r.logits);
    llm_context *ctx = context_make(model, s, 16);
    append(ctx, &r, 0, 0, N_PROMPT);
    for (int i = 0; i < N_NEXT; i++) append(ctx, &r, 0, N_PROMPT + i, 1);
    int at = N_PROMPT + N_NEXT;
    append(ctx, &r, 0, at, N_DRAFT);
    RIG_OK(llm_context_truncate(ctx, 0, at + 1, &err));
    append(ctx, &r, 0, at + N_DRAFT, 1);
    RIG_OK(llm_context_shift(ctx, 0, 3, 6, &err));
    append(ctx, &r, 0, at + N_DRAFT + 1, 1);
    int n = llm_context_length(ctx, 0);
    assert_int_equal(n, at + 1 + 1 - 6 + 1);
    for (int i = 0; i < n; i++) ids[i] = vendor_token(i, r.n_vocab);
    RIG_OK(llm_state_save(ctx, 0, ids, n, state, &err));
    llm_context_destroy(ctx);
    ctx = context_make(model, s, 8);
    RIG_OK(llm_state_load(ctx, 1, state, &loaded, &n_loaded, &err));
    assert_int_equal(n_loaded, n);
    append(ctx, &r, 1, 99, 1);
    free(loaded);
    llm_context_destroy(ctx);
    llm_model_close(model);
    return r;
}

/* ---- Comparison ------------------------------------------------------------------------------ */

/* Every member holds weights and a part of the cache, in the given shares. */
static void report_check(const setup *s, tdm_open_device *group) {
    static const double given[N_VENDOR] = {0.4, 0.3, 0.2, 0.1};
    tdm_split_member found[N_VENDOR] = {{.name = {0}}};
    tdm_split_report report = {.struct_size = sizeof report,
                               .member_size = sizeof *found,
                               .members = found,
                               .capacity = N_VENDOR};
    const llm_context_params params = params_of(s, 16);
    tdm_error err = {0};
    llm_model *model = NULL;
    RIG_OK(llm_model_open(preset_file(s->name, &s->spec), &model, &err));
    RIG_OK(llm_model_report(model, group, &params, 1, 1, &report, &err));
    llm_model_close(model);
    assert_int_equal(report.n_member, N_VENDOR);
    for (int i = 0; i < N_VENDOR; i++) {
        printf("%s: %s has %.3f of the work\n", s->name, vendor_names[i], found[i].share);
        assert_string_equal(found[i].name, vendor_names[i]);
        assert_true(found[i].share > 0 && found[i].weight_size > 0 && found[i].state_size > 0);
        if (s->share != NULL) assert_true(fabs(found[i].share - given[i]) < 1e-9);
    }
}

static void setup_check(const setup *s) {
    rows reference = story_run(s, rig_device(NULL, "reference", 1));
    rows_verdict worst = {0};
    for (int i = 0; i < N_VENDOR; i++) {
        if (!is_measured_alone[i]) continue;
        rows one = story_run(s, vendor_device(i));
        rows_verdict v = rows_compare(&reference, &one);
        printf("%s: %s alone: error %.1e, %d other tokens\n", s->name, vendor_names[i], v.error,
               v.n_other);
        if (v.error > worst.error) worst.error = v.error;
        if (v.n_other > worst.n_other) worst.n_other = v.n_other;
        free(one.logits);
    }
    tdm_open_device *group = group_of_all(s->share, s->attention, s->experts);
    report_check(s, group);
    rows many = story_run(s, group);
    rows_verdict v = rows_compare(&reference, &many);
    printf("%s: group, share %s, attention %s: error %.1e, %d other tokens\n", s->name,
           s->share != NULL ? s->share : "auto", s->attention, v.error, v.n_other);
    if (v.error > 2 * worst.error + 1e-7)
        fail_msg("%s: more than twice %.1e", s->name, worst.error);
    if (v.n_wrong > 0) fail_msg("%s: %d tokens differ at a clear margin", s->name, v.n_wrong);
    if (v.n_other > 2 * worst.n_other + reference.n / 100)
        fail_msg("%s: %d other tokens, on one member %d", s->name, v.n_other, worst.n_other);
    free(many.logits);
    free(reference.logits);
}

/* ---- Tests ----------------------------------------------------------------------------------- */

/* Greedy tokens of a trained model, and the same by drafts: some of those proposed are wrong, and
 * are dropped again. */
static void greedy(llm_context *ctx, bool is_drafted, const int32_t *proposed, int32_t *out) {
    static const int32_t prompt[] = {1, 403, 407, 261, 378};
    const llm_batch first = {.tokens = prompt, .n_tok = sizeof prompt / sizeof *prompt};
    int n_vocab = llm_context_model(ctx)->hparams.n_vocab;
    tdm_error err = {0};
    RIG_OK(llm_context_decode(ctx, &first, &err));
    out[0] = rows_argmax(llm_context_logits(ctx, 0), n_vocab);
    for (int n = 1; n < N_TEXT;) {
        int32_t tokens[N_DRAFT];
        bool wanted[N_DRAFT];
        int n_tok = !is_drafted ? 1 : N_TEXT - n < N_DRAFT ? N_TEXT - n : N_DRAFT;
        int32_t length = llm_context_length(ctx, 0);
        for (int i = 0; i < n_tok; i++) {
            tokens[i] = i == 0 ? out[n - 1] : proposed[n - 1 + i];
            wanted[i] = true;
        }
        const llm_batch batch = {.tokens = tokens, .wanted = wanted, .n_tok = n_tok};
        RIG_OK(llm_context_decode(ctx, &batch, &err));
        int n_right = 0;
        do {
            out[n++] = rows_argmax(llm_context_logits(ctx, n_right++), n_vocab);
        } while (n_right < n_tok && out[n - 1] == tokens[n_right]);
        RIG_OK(llm_context_truncate(ctx, 0, length + n_right, &err));
    }
}

static void text_of(const char *path, tdm_open_device *dev, bool is_drafted,
                    const int32_t *proposed, int32_t *out) {
    static const setup s = {.k = TDM_TYPE_Q8_0, .v = TDM_TYPE_Q4_0};
    llm_model *model = vendor_model(path, dev);
    llm_context *ctx = context_make(model, &s, 64);
    greedy(ctx, is_drafted, proposed, out);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

static void test_text(void **state) {
    (void)state;
    int32_t expected[N_TEXT], found[N_TEXT], proposed[N_TEXT];
    char *path = rig_source_file("models/stories-3m-q8_0.gguf");
    assert_non_null(path);
    text_of(path, vendor_device(VENDOR_CPU), false, NULL, expected);
    for (int i = 0; i < N_TEXT; i++) proposed[i] = i % 3 == 2 ? 5 : expected[i];
    text_of(path, group_of_all("4, 3, 2, 1", "heads", "hidden"), true, proposed, found);
    assert_memory_equal(found, expected, sizeof expected);
    text_of(path, group_of_all(NULL, "heads", "hidden"), false, NULL, found);
    assert_memory_equal(found, expected, sizeof expected);
    free(path);
}

/* Heads and columns in units that the shares divide. */
static void test_dense(void **state) {
    (void)state;
    const setup s = {"dense",       changed("tiny-llama-bias", TDM_TYPE_Q8_0, 10, 10),
                     TDM_TYPE_Q8_0, TDM_TYPE_Q4_0,
                     "heads",       "hidden",
                     "4, 3, 2, 1",  false};
    setup_check(&s);
}

static void test_host_cache(void **state) {
    (void)state;
    const setup s = {"host cache",  changed("tiny-llama", TDM_TYPE_Q4_0, 0, 0),
                     TDM_TYPE_Q8_0, TDM_TYPE_Q4_0,
                     "replicate",   "hidden",
                     NULL,          true};
    setup_check(&s);
}

static void test_experts(void **state) {
    (void)state;
    const setup s = {"experts",     changed("tiny-mixtral", TDM_TYPE_Q8_0, 0, 0),
                     TDM_TYPE_Q8_0, TDM_TYPE_Q4_0,
                     "replicate",   "hidden",
                     "4, 3, 2, 1",  false};
    setup_check(&s);
}

/* A latent cache has one type, and pages of other tokens on each member. */
static void test_latent_by_sequence(void **state) {
    (void)state;
    const setup s = {"latent",      changed("tiny-deepseek2", TDM_TYPE_Q8_0, 0, 0),
                     TDM_TYPE_Q8_0, TDM_TYPE_Q8_0,
                     "sequence",    "whole",
                     NULL,          false};
    setup_check(&s);
}

static int vendors_begin(void **state) {
    tdm_open_device *dev;
    tdm_error err = {0};
    if (rig_begin(state) != 0) return -1;
    /* The members' memory bandwidth and arithmetic as 4 : 3 : 2 : 1, nothing is measured. */
    setenv("TANDEM_TEST_RATES", "4e11,4e12 3e11,3e12 2e11,2e12 1e11,1e12", 1);
    /* Submissions cost nothing: Vulkan's plan is cut at exchanges, those of the others are not. */
    setenv("TANDEM_TEST_LINKS", "1e-12,1e-12", 1);
    if (vendor_open(VENDOR_VULKAN, &dev, &err) != TDM_OK) {
        printf("skipped: %s\n", err.message);
        rig_end(state);
        exit(SKIP_CODE);
    }
    for (int i = 0; i < N_VENDOR; i++)
        if (vendor_open(i, &dev, &err) != TDM_OK) {
            printf("%s\n", err.message);
            return -1;
        }
    return 0;
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_dense),
        cmocka_unit_test(test_host_cache),
        cmocka_unit_test(test_experts),
        cmocka_unit_test(test_latent_by_sequence),
    };
    if (argc != 3) return 2;
    vendor_cuda_driver = argv[1];
    vendor_hip_driver = argv[2];
    return cmocka_run_group_tests(tests, vendors_begin, rig_end);
}
