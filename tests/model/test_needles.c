/* SPDX-License-Identifier: MIT
 *
 * test_needles.c: what stands far back in a long context is recalled, whichever devices hold the
 * model and its cache. Models are made to recall (bench/retrieval.h), so that the right answers are
 * known. Each case fills a cache on one topology and asks for its needles: at once, in steps with
 * drafts that are rejected, after a saved state is loaded on another topology, and after a shift.
 * Every needle must be recalled each time. Two faults, keys that are rotated where queries are not
 * and a page table that is off by one, lose needles.
 *
 * A covering set is run. All models, topologies and cache types at contexts of one's choice
 * (../needles.sh):
 *
 *     NEEDLES_CONTEXTS=8800,14500,60000 test_needles
 */
#include "tests/model/rig.h"

#include <math.h>

#include "llm/cache/state.h"
#include "llm/context_internal.h"
#include "llm/needle.h"
#include "tests/model/group_device.h"
#include "tests/model/preset.h"

enum { N_DEPTH = 5, N_EACH = 8, N_NEEDLE = N_DEPTH * N_EACH, N_ROOM = 64, N_REJECTED = 3 };
static const int32_t depths[N_DEPTH] = {0, 25, 50, 75, 100};

/* ---- What is combined ---- */

/* Smaller than the presets: half as wide codes, so that 4 bits are nearer to a loss. */
static const struct {
    const char *preset;
    int n_head, n_head_kv;
} models[] = {
    {"retrieval", 4, 2},        {"retrieval", 3, 3},        {"retrieval", 2, 1},
    {"retrieval-latent", 4, 1}, {"retrieval-window", 4, 2},
};
enum { GQA, MHA, ONE_KV, LATENT, WINDOW, N_MODEL };

static const struct {
    const char *words;
    group_config group; /* n_member 0: one device */
    bool is_in_host;
} topologies[] = {
    {"one device", {0}, false},
    {"layer", {.n_member = 2, .split = "layer"}, false},
    {"heads 3,1", {.n_member = 2, .shares = "3,1", .attention = "heads"}, false},
    {"heads 5,2,1", {.n_member = 3, .shares = "5,2,1", .attention = "heads"}, false},
    {"heads 1,0,2", {.n_member = 3, .shares = "1,0,2", .attention = "heads"}, false},
    {"replicate 2", {.n_member = 2, .attention = "replicate"}, false},
    {"replicate 5,2,1", {.n_member = 3, .shares = "5,2,1", .attention = "replicate"}, false},
    {"sequence 2", {.n_member = 2, .attention = "sequence"}, false},
    {"sequence 5,2,1", {.n_member = 3, .shares = "5,2,1", .attention = "sequence"}, false},
    {"host cache, heads", {.n_member = 2, .attention = "heads", .is_away = true}, true},
    {"host cache, sequence", {.n_member = 2, .attention = "sequence", .is_away = true}, true},
};
enum {
    ONE,
    LAYER,
    HEADS_2,
    HEADS_3,
    HEADS_0,
    COPIES_2,
    COPIES_3,
    SEQUENCE_2,
    SEQUENCE_3,
    HOST_HEADS,
    HOST_SEQUENCE,
    N_TOPOLOGY
};

static const tdm_type pairs[][2] = {
    {TDM_TYPE_F16, TDM_TYPE_F16},   {TDM_TYPE_Q8_0, TDM_TYPE_Q8_0},
    {TDM_TYPE_Q5_0, TDM_TYPE_Q5_0}, {TDM_TYPE_Q5_1, TDM_TYPE_Q4_1},
    {TDM_TYPE_Q4_0, TDM_TYPE_Q4_0}, {TDM_TYPE_IQ4_NL, TDM_TYPE_IQ4_NL},
    {TDM_TYPE_Q5_0, TDM_TYPE_Q4_0},
};
enum { F16, Q8_0, Q5_0, Q5_1_Q4_1, Q4_0, IQ4_NL, Q5_0_Q4_0, N_PAIR };

typedef struct needle_case {
    int model, topology, pair, n_tok;
} needle_case;

#define SHORT 8800
#define LONG  14500

/* Under a sanitizer the first two, with an eighth of the tokens. */
static const needle_case cases[] = {
    {GQA, SEQUENCE_3, Q4_0, LONG},
    {LATENT, COPIES_2, Q8_0, SHORT},
    {GQA, ONE, F16, LONG},
    {GQA, LAYER, Q8_0, SHORT},
    {GQA, HEADS_2, Q5_0, LONG},
    {GQA, COPIES_2, Q5_1_Q4_1, SHORT},
    {GQA, HOST_HEADS, Q8_0, SHORT},
    {MHA, HEADS_3, Q4_0, SHORT},
    {MHA, HEADS_0, F16, SHORT},
    {ONE_KV, SEQUENCE_2, Q5_0_Q4_0, SHORT},
    {ONE_KV, COPIES_3, IQ4_NL, LONG},
    {LATENT, SEQUENCE_2, Q4_0, SHORT},
    {WINDOW, ONE, Q4_0, SHORT},
    {WINDOW, HEADS_2, Q8_0, SHORT},
    {ONE_KV, HOST_SEQUENCE, Q4_0, SHORT},
};
#define COUNT_OF(a) ((int)(sizeof(a) / sizeof *(a)))

/* ---- Models and contexts ---- */

static bool is_latent(int model) {
    return strcmp(models[model].preset, "retrieval-latent") == 0;
}

static const char *model_file(int model) {
    char file[32];
    random_model_spec spec = preset_find(models[model].preset);
    snprintf(file, sizeof file, "needles-%d.gguf", model);
    spec.n_head = models[model].n_head;
    spec.n_head_kv = models[model].n_head_kv;
    spec.type = model % 2 == 0 ? TDM_TYPE_F16 : TDM_TYPE_Q8_0;
    if (is_latent(model)) {
        spec.head_dim = 64;
        spec.latent.n_rot = 32;
        spec.latent.n_lora_kv = 64;
        spec.latent.head_dim_v = 32;
        spec.n_embd = 128;
    } else {
        spec.head_dim = 64;
        spec.n_embd = spec.n_window > 0 ? 256 : 128;
    }
    return preset_file(file, &spec);
}

static tdm_open_device *topology_device(int topology) {
    const group_config *group = &topologies[topology].group;
    return group->n_member == 0 ? group_single("fast") : group_device(group);
}

/* A model on a topology with an empty context. */
typedef struct scene {
    llm_model *model;
    llm_context *ctx;
} scene;

static scene scene_open(const needle_case *c, int topology, bool is_unrotated) {
    const tdm_type k = pairs[c->pair][0], v = is_latent(c->model) ? k : pairs[c->pair][1];
    const llm_context_params params = {.struct_size = sizeof params,
                                       .n_ctx = c->n_tok + N_ROOM,
                                       .type_k = &k,
                                       .type_v = &v,
                                       .is_unrotated = is_unrotated,
                                       .is_cache_in_host = topologies[topology].is_in_host};
    scene s = {rig_model(model_file(c->model), topology_device(topology)), NULL};
    s.ctx = rig_context(s.model, &params);
    return s;
}

static void scene_close(scene *s) {
    llm_context_destroy(s->ctx);
    llm_model_close(s->model);
}

static llm_haystack haystack_of(const scene *s, int n_tok) {
    llm_haystack h;
    tdm_error err = {0};
    int32_t class_size = 0;
    RIG_OK(llm_needle_class_size(s->model, &class_size, &err));
    assert_true(class_size > 0);
    RIG_OK(llm_haystack_make(class_size, n_tok, depths, N_DEPTH, N_EACH, 1, &h, &err));
    assert_int_equal(h.n_needle, N_NEEDLE);
    return h;
}

static void hay_decode(const scene *s, const llm_haystack *h) {
    static float ignored[1 << 12];
    assert_true(s->model->hparams.n_vocab <= COUNT_OF(ignored));
    rig_decode(s->ctx, h->tokens, h->n_hay, 1, ignored);
}

/* ---- Asking ---- */

typedef struct answers {
    int n_recalled, n_asked;
    double margin; /* mean */
} answers;

static void answers_add(answers *a, const float *row, int32_t n_vocab, const llm_needle *needle) {
    const double margin = (double)llm_needle_margin(row, n_vocab, needle->value);
    a->n_recalled += margin > 0;
    a->margin = (a->margin * a->n_asked + margin) / (a->n_asked + 1);
    a->n_asked++;
}

/* All keys in a batch, behind the first n_hay tokens of the sequence; they are removed again. */
static answers ask(const scene *s, const llm_haystack *h, int n_hay) {
    const int32_t n_vocab = s->model->hparams.n_vocab;
    float *rows = malloc((size_t)N_NEEDLE * (size_t)n_vocab * sizeof *rows);
    tdm_error err = {0};
    answers a = {0};
    assert_non_null(rows);
    rig_decode(s->ctx, h->tokens + h->n_hay, N_NEEDLE, N_NEEDLE, rows);
    for (int i = 0; i < N_NEEDLE; i++)
        answers_add(&a, rows + (size_t)i * (size_t)n_vocab, n_vocab, &h->needles[i]);
    RIG_OK(llm_context_truncate(s->ctx, 0, n_hay, &err));
    free(rows);
    return a;
}

/* A key and drafted tokens in a step, of which only the key stays. */
static answers ask_with_drafts(const scene *s, const llm_haystack *h) {
    const int32_t n_vocab = s->model->hparams.n_vocab;
    float *rows = malloc((size_t)(1 + N_REJECTED) * (size_t)n_vocab * sizeof *rows);
    tdm_error err = {0};
    answers a = {0};
    assert_non_null(rows);
    for (int i = 0; i < N_NEEDLE; i++) {
        int32_t step[1 + N_REJECTED];
        step[0] = h->needles[i].key;
        for (int k = 0; k < N_REJECTED; k++) step[1 + k] = h->tokens[1 + i + k];
        rig_decode(s->ctx, step, 1 + N_REJECTED, 1 + N_REJECTED, rows);
        answers_add(&a, rows, n_vocab, &h->needles[i]);
        RIG_OK(llm_context_truncate(s->ctx, 0, h->n_hay + i + 1, &err));
    }
    RIG_OK(llm_context_truncate(s->ctx, 0, h->n_hay, &err));
    free(rows);
    return a;
}

/* Of a cache that another topology loads from a file. */
static answers ask_elsewhere(const scene *s, const needle_case *c, const llm_haystack *h) {
    const char *path = rig_file("needles.state");
    const int other = c->topology == ONE ? SEQUENCE_2 : ONE;
    int32_t *ids = NULL, n_id = 0;
    tdm_error err = {0};
    RIG_OK(llm_state_save(s->ctx, 0, h->tokens, h->n_hay, path, &err));
    scene there = scene_open(c, other, false);
    RIG_OK(llm_state_load(there.ctx, 0, path, &ids, &n_id, &err));
    assert_int_equal(n_id, h->n_hay);
    free(ids);
    answers a = ask(&there, h, h->n_hay);
    scene_close(&there);
    return a;
}

/* Fillers between the first and the second depth leave the sequence. */
static answers ask_after_shift(const scene *s, const llm_haystack *h) {
    const int n_keep = h->n_hay / 8, n_discard = h->n_hay / 16;
    tdm_error err = {0};
    RIG_OK(llm_context_shift(s->ctx, 0, n_keep, n_discard, &err));
    return ask(s, h, h->n_hay - n_discard);
}

/* Prints the answers; whether a needle was lost, or the margin is more than `share` away from that
 * of the first answers. */
static bool is_lost(const char *how, answers a, double expected, double share) {
    bool is_bad = a.n_recalled != N_NEEDLE || a.n_asked != N_NEEDLE ||
                  !(fabs(a.margin - expected) <= share * expected);
    printf("  %s %d/%d %.2f%s", how, a.n_recalled, a.n_asked, a.margin, is_bad ? " LOST" : "");
    return is_bad;
}

static int case_run(const needle_case *c) {
    int n_bad = 0;
    scene s = scene_open(c, c->topology, false);
    llm_haystack h = haystack_of(&s, c->n_tok);
    printf("%-16s %d/%d, %-20s %s %s, %d:", models[c->model].preset, models[c->model].n_head,
           models[c->model].n_head_kv, topologies[c->topology].words,
           tdm_type_name(pairs[c->pair][0]), tdm_type_name(pairs[c->pair][1]), c->n_tok);
    hay_decode(&s, &h);
    const answers first = ask(&s, &h, h.n_hay);
    n_bad += is_lost("asked", first, first.margin, 0);
    n_bad += is_lost("drafts", ask_with_drafts(&s, &h), first.margin, 0.02);
    n_bad += is_lost("loaded", ask_elsewhere(&s, c, &h), first.margin, 0.02);
    n_bad += is_lost("shifted", ask_after_shift(&s, &h), first.margin, 0.1);
    printf("\n");
    llm_haystack_clear(&h);
    scene_close(&s);
    return n_bad > 0;
}

/* All of them at the contexts of the environment. */
static int all_run(const char *contexts) {
    int n_bad = 0;
    for (const char *p = contexts; *p != '\0'; p += *p == ',') {
        char *end;
        const int n_tok = (int)strtol(p, &end, 10);
        if (end == p) fail_msg("NEEDLES_CONTEXTS is '%s', not a list of numbers", contexts);
        p = end;
        for (int i = 0; i < N_MODEL * N_TOPOLOGY * N_PAIR; i++) {
            const needle_case c = {i / N_TOPOLOGY % N_MODEL, i % N_TOPOLOGY,
                                   i / N_TOPOLOGY / N_MODEL, n_tok};
            n_bad += case_run(&c);
        }
    }
    return n_bad;
}

static void test_needles(void **state) {
    (void)state;
    const char *contexts = getenv("NEEDLES_CONTEXTS");
    int n_bad = 0;
    if (contexts != NULL) {
        n_bad = all_run(contexts);
    } else {
#ifdef TANDEM_SANITIZED
        for (int i = 0; i < 2; i++) {
            needle_case c = cases[i];
            c.n_tok /= 8;
            n_bad += case_run(&c);
        }
#else
        for (int i = 0; i < COUNT_OF(cases); i++) n_bad += case_run(&cases[i]);
#endif
    }
    assert_int_equal(n_bad, 0);
}

/* ---- Faults ---- */

/* Keys of a rotated cache are read by queries that are not rotated. */
static void test_unrotated_queries(void **state) {
    (void)state;
    const needle_case c = {GQA, ONE, Q8_0, 1000};
    scene with = scene_open(&c, ONE, false), without = scene_open(&c, ONE, true);
    llm_haystack h = haystack_of(&with, c.n_tok);
    tdm_error err = {0};
    hay_decode(&with, &h);
    const answers right = ask(&with, &h, h.n_hay);
    void *rows = malloc(llm_context_rows_size(with.ctx, LLM_STATE_CHUNK));
    assert_non_null(rows);
    for (int at = 0, n; at < h.n_hay; at += n) {
        n = h.n_hay - at < LLM_STATE_CHUNK ? h.n_hay - at : LLM_STATE_CHUNK;
        RIG_OK(llm_context_export_rows(with.ctx, 0, at, n, rows, &err));
        RIG_OK(llm_context_import_rows(without.ctx, 0, n, rows, &err));
    }
    const answers wrong = ask(&without, &h, h.n_hay);
    printf("rotated keys, queries not: %d of %d recalled, %d without the fault\n", wrong.n_recalled,
           N_NEEDLE, right.n_recalled);
    assert_int_equal(right.n_recalled, N_NEEDLE);
    assert_true(wrong.n_recalled < N_NEEDLE / 2);
    free(rows);
    llm_haystack_clear(&h);
    scene_close(&with);
    scene_close(&without);
}

/* Each entry of the page table names the page of the next one. */
static void test_page_off_by_one(void **state) {
    (void)state;
    const needle_case c = {GQA, ONE, F16, 2000};
    scene s = scene_open(&c, ONE, false);
    llm_haystack h = haystack_of(&s, c.n_tok);
    hay_decode(&s, &h);
    const answers right = ask(&s, &h, h.n_hay);
    tdm_page_entry *entries = (tdm_page_entry *)(uintptr_t)llm_kv_entries(s.ctx->kv, 0);
    const int n = llm_kv_entry_count(s.ctx->kv, 0);
    assert_true(n > 2);
    const int32_t first = entries[0].page;
    for (int i = 0; i + 1 < n; i++) entries[i].page = entries[i + 1].page;
    const answers wrong = ask(&s, &h, h.n_hay);
    for (int i = n - 2; i > 0; i--) entries[i].page = entries[i - 1].page;
    entries[0].page = first;
    printf("page table off by one: %d of %d recalled, %d without the fault\n", wrong.n_recalled,
           N_NEEDLE, right.n_recalled);
    assert_int_equal(right.n_recalled, N_NEEDLE);
    assert_true(wrong.n_recalled < N_NEEDLE);
    llm_haystack_clear(&h);
    scene_close(&s);
}

/* ---- Haystacks ---- */

static void test_haystack(void **state) {
    (void)state;
    tdm_error err = {0};
    llm_haystack h, again;
    /* The smallest that has room, with all needles at one end or the other. */
    for (int i = 0; i < 2; i++) {
        const int32_t depth = i == 0 ? 0 : 100, class_size = 40, n_least = 3 * 40 + 4;
        bool is_taken[3 * 40 + 4] = {false};
        assert_int_equal(llm_haystack_make(class_size, n_least - 1, &depth, 1, 40, 1, &h, &err),
                         TDM_OUT_OF_RANGE);
        assert_non_null(strstr(err.message, "at least 124"));
        RIG_OK(llm_haystack_make(class_size, n_least, &depth, 1, 40, 1, &h, &err));
        for (int k = 0; k < h.n_needle; k++) {
            const llm_needle *n = &h.needles[k];
            assert_true(n->at >= 1 && n->at + 1 < h.n_hay && !is_taken[n->at] &&
                        !is_taken[n->at + 1]);
            is_taken[n->at] = is_taken[n->at + 1] = true;
            assert_int_equal(h.tokens[n->at], n->key);
            assert_int_equal(h.tokens[n->at + 1], n->value);
            assert_int_equal(h.tokens[h.n_hay + k], n->key);
        }
        RIG_OK(llm_haystack_make(class_size, n_least, &depth, 1, 40, 1, &again, &err));
        assert_memory_equal(h.tokens, again.tokens, (size_t)n_least * sizeof *h.tokens);
        llm_haystack_clear(&h);
        llm_haystack_clear(&again);
    }
    assert_int_equal(llm_haystack_make(39, 1000, depths, N_DEPTH, N_EACH, 1, &h, &err),
                     TDM_OUT_OF_RANGE);
    const float logits[] = {1, 4, 2}, bad[] = {1, NAN, 2};
    assert_true(llm_needle_margin(logits, 3, 1) == 2 && llm_needle_margin(logits, 3, 0) == -3);
    assert_true(llm_needle_margin(bad, 3, 2) == -INFINITY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_haystack),
        cmocka_unit_test(test_unrotated_queries),
        cmocka_unit_test(test_page_off_by_one),
        cmocka_unit_test(test_needles),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
