/* SPDX-License-Identifier: MIT
 *
 * test_golden_stories.c: trained models (stories/models.txt). As test_golden_tiny.c does: the
 * reference path gives llama.cpp's probabilities, the fast paths give the reference path's, in
 * every weight type; greedy text is what the model's author publishes. The demo model needs nothing
 * but the source tree; the rest is skipped, visibly, where ../shared is absent.
 *
 * Argument: the path of make_variant.
 */
#include "tests/model/rig.h"

#include "llm/tokenizer/tokenizer.h"
#include "tests/model/golden.h"

enum { MAX_TOKENS = 32 };

static const char *make_variant;

/* A line of models.txt. */
typedef struct story {
    char name[32], file[64], type_name[16];
    tdm_type type;
    int n_vocab, first_row, n_tok, n_row;
    int32_t tokens[MAX_TOKENS];
} story;

static bool story_parse(const char *line, story *s) {
    char tokens[256];
    memset(s, 0, sizeof *s);
    if (sscanf(line, "model %31s %63s %15s %d %d %255s", s->name, s->file, s->type_name,
               &s->n_vocab, &s->first_row, tokens) != 6)
        return false;
    for (char *word = strtok(tokens, ","); word != NULL; word = strtok(NULL, ",")) {
        if (s->n_tok == MAX_TOKENS) return false;
        s->tokens[s->n_tok++] = (int32_t)strtol(word, NULL, 10);
    }
    s->n_row = s->n_tok - s->first_row;
    for (int t = 0; t < TDM_TYPE_LIMIT_; t++)
        if (tdm_type_name((tdm_type)t) != NULL &&
            strcmp(tdm_type_name((tdm_type)t), s->type_name) == 0)
            s->type = (tdm_type)t;
    return s->n_row > 0 && strcmp(tdm_type_name(s->type), s->type_name) == 0;
}

/* The model's file: the project's own, or made from the material beside the project; NULL where
 * that is not there. The caller frees it. */
static char *story_file(const story *s) {
    char name[160];
    snprintf(name, sizeof name, "models/%s-%s.gguf", s->name, s->type_name);
    char *own = rig_source_file(name);
    if (own != NULL) return own;
    snprintf(name, sizeof name, "../shared/models/%s", s->file);
    char *source = rig_source_file(name);
    if (source == NULL) return NULL;
    char *made = strdup(rig_file("story.gguf"));
    assert_non_null(made);
    const char *argv[] = {make_variant, source, made, s->type_name, NULL};
    assert_int_equal(rig_spawn(argv), 0);
    free(source);
    return made;
}

static void story_run(const story *s, const char *path, tdm_open_device *dev, float *rows_out) {
    llm_model *model = rig_model(path, dev);
    llm_context *ctx = rig_context(model, NULL);
    assert_int_equal(model->hparams.n_vocab, s->n_vocab);
    rig_decode_prompt(ctx, s->tokens, s->n_tok, s->n_row, rows_out);
    rig_softmax(rows_out, s->n_row, s->n_vocab);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* Under a sanitizer a float type, one of blocks and one of superblocks: test_golden_tiny.c runs all
 * there, and what these models add is that they were trained. */
static bool is_left_out(const story *s) {
#ifdef TANDEM_SANITIZED
    return s->type != TDM_TYPE_F32 && s->type != TDM_TYPE_Q8_0 && s->type != TDM_TYPE_Q4_K;
#else
    (void)s;
    return false;
#endif
}

/* Number of things wrong with a model. */
static int story_check(const story *s, const char *path, const float *golden) {
    size_t n = (size_t)s->n_row * (size_t)s->n_vocab;
    float *reference = calloc(3 * n, sizeof *reference), *rows = reference + n;
    assert_non_null(reference);
    story_run(s, path, rig_device(NULL, "reference", 2), reference);
    double nmse = rig_nmse(golden, reference, n);
    int n_bad = nmse > GOLDEN_REFERENCE_BOUND;
    printf("%-10s %-6s %.1e%s", s->name, s->type_name, nmse, n_bad > 0 ? " OVER" : "");
    for (int k = 0; rig_isas[k / 2] != NULL; k++) {
        const char *isa = rig_isas[k / 2], *way = k % 2 == 0 ? "fast" : RIG_FAST_8;
        double bound = k % 2 == 0 ? golden_fast_bound(s->type) : golden_8_bound(s->type);
        if (!rig_has_isa(isa)) continue;
        story_run(s, path, rig_device(isa, way, 1), rows);
        story_run(s, path, rig_device(isa, way, 2), rows + n);
        bool is_same = memcmp(rows, rows + n, n * sizeof *rows) == 0;
        nmse = rig_nmse(reference, rows, n);
        printf("  %s%s %.1e", isa, k % 2 == 0 ? "" : "/8", nmse);
        if (!is_same) printf(" DIFFERS WITH 2 THREADS");
        if (nmse > bound) printf(" OVER %.0e", bound);
        n_bad += !is_same || nmse > bound;
    }
    printf("\n");
    free(reference);
    return n_bad;
}

static void test_probabilities(void **state) {
    (void)state;
    char line[512], *list_path = rig_source_file("tests/model/stories/models.txt");
    char *data_path = rig_source_file("tests/model/stories/probabilities.f32");
    assert_true(list_path != NULL && data_path != NULL);
    FILE *lines = fopen(list_path, "r"), *data = fopen(data_path, "rb");
    assert_true(lines != NULL && data != NULL);
    int n_bad = 0, n_checked = 0, n_skipped = 0;
    printf("NMSE of probabilities: reference path against llama.cpp, fast paths against it\n");
    while (fgets(line, sizeof line, lines) != NULL) {
        story s;
        if (line[0] == '#') continue;
        assert_true(story_parse(line, &s));
        size_t n = (size_t)s.n_row * (size_t)s.n_vocab;
        float *golden = malloc(n * sizeof *golden);
        assert_non_null(golden);
        assert_int_equal(fread(golden, sizeof *golden, n, data), n);
        if (is_left_out(&s)) {
            free(golden);
            continue;
        }
        char *path = story_file(&s);
        if (path != NULL) n_bad += story_check(&s, path, golden);
        n_checked += path != NULL;
        n_skipped += path == NULL;
        free(path);
        free(golden);
    }
    assert_int_equal(fgetc(data), EOF);
    fclose(lines);
    fclose(data);
    free(list_path);
    free(data_path);
    if (n_skipped > 0) printf("SKIPPED: %d models, because ../shared is not there\n", n_skipped);
    assert_true(n_checked > 0);
    assert_int_equal(n_bad, 0);
}

/* ---- Greedy text ---- */

static int32_t best_of(const float *logits, int n) {
    int best = 0;
    for (int i = 1; i < n; i++)
        if (logits[i] > logits[best]) best = i;
    return best;
}

/* n_token greedy tokens after the ids given, as text; the caller frees it. */
static char *greedy_text(const char *path, tdm_open_device *dev, const int32_t *ids, int n_id,
                         int n_token) {
    tdm_error err = {0};
    const llm_vocab *vocab;
    char *text = NULL;
    size_t len;
    llm_model *model = rig_model(path, dev);
    llm_context *ctx = rig_context(model, NULL);
    float *logits = malloc((size_t)model->hparams.n_vocab * sizeof *logits);
    int32_t *found = malloc((size_t)n_token * sizeof *found);
    assert_true(logits != NULL && found != NULL);
    RIG_OK(llm_model_vocab(model, &vocab, &err));
    rig_decode(ctx, ids, n_id, 1, logits);
    for (int i = 0; i < n_token; i++) {
        found[i] = best_of(logits, model->hparams.n_vocab);
        if (i + 1 < n_token) rig_decode(ctx, &found[i], 1, 1, logits);
    }
    RIG_OK(llm_detokenize(vocab, found, (size_t)n_token, 0, &text, &len, &err));
    free(logits);
    free(found);
    llm_context_destroy(ctx);
    llm_model_close(model);
    return text;
}

static void test_greedy(void **state) {
    (void)state;
    static const int32_t bos = 1;
    char *path = rig_source_file("../shared/models/stories260K/stories260K-f32.gguf");
    char *expected_path = rig_source_file("../shared/models/stories260K/greedy_200_expected.txt");
    if (path == NULL || expected_path == NULL) {
        free(path);
        free(expected_path);
        printf("SKIPPED: stories260K's greedy text, because ../shared is not there\n");
        skip();
    }
    char expected[2048] = {0};
    FILE *f = fopen(expected_path, "rb");
    assert_non_null(f);
    size_t n = fread(expected, 1, sizeof expected - 1, f);
    fclose(f);
    while (n > 0 && expected[n - 1] == '\n') expected[--n] = 0;
    assert_true(n > 100);
    for (int k = -1; k < 0 || rig_isas[k] != NULL; k++) {
        if (k >= 0 && !rig_has_isa(rig_isas[k])) continue;
        tdm_open_device *dev =
            k < 0 ? rig_device(NULL, "reference", 1) : rig_device(rig_isas[k], "fast", 2);
        char *text = greedy_text(path, dev, &bos, 1, 200);
        size_t len = strlen(text);
        while (len > 0 && text[len - 1] == '\n') text[--len] = 0;
        if (strcmp(text, expected) != 0)
            fail_msg("%s: the text is\n%s\ninstead of\n%s", tdm_open_device_name(dev), text,
                     expected);
        free(text);
    }
    free(path);
    free(expected_path);
}

/* The vocabulary has no newline and no bytes to write one with. */
static void test_newline(void **state) {
    (void)state;
    char *path = rig_source_file("../shared/models/babyllama-tok105/babyllama-tok105-f32.gguf");
    if (path == NULL) {
        printf("SKIPPED: babyllama and its missing newline, because ../shared is not there\n");
        skip();
    }
    tdm_error err = {0};
    const llm_vocab *vocab;
    int32_t *ids = NULL;
    size_t n;
    llm_model *model = NULL;
    RIG_OK(llm_model_open(path, &model, &err));
    RIG_OK(llm_model_vocab(model, &vocab, &err));
    RIG_OK(llm_tokenize(vocab, "a\nb", 3, LLM_TOKENIZE_ADD_SPECIAL, &ids, &n, &err));
    llm_model_close(model);
    assert_true(n > 0);
    char *text = greedy_text(path, rig_device(NULL, "fast", 2), ids, (int)n, 20);
    assert_string_equal(text, "ig dog named Spot wa");
    free(text);
    free(ids);
    free(path);
}

int main(int argc, char **argv) {
    if (argc < 2) {
        fprintf(stderr, "usage: test_golden_stories MAKE_VARIANT\n");
        return 2;
    }
    make_variant = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_probabilities),
        cmocka_unit_test(test_greedy),
        cmocka_unit_test(test_newline),
    };
    return cmocka_run_group_tests(tests, rig_begin, rig_end);
}
