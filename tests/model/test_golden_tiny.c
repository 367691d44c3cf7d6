/* SPDX-License-Identifier: MIT
 *
 * test_golden_tiny.c: the tiny random models of tiny_models/models.txt, in every weight type. The
 * reference path gives llama.cpp's probabilities; the fast path of every instruction set gives the
 * reference path's, the nearer the finer the type; threads change nothing. Prints the table that
 * docs/accuracy.md shows.
 */
#include "tests/model/rig.h"

#include "tests/model/golden.h"
#include "tests/model/tiny_models.h"

static tiny_models list;

/* Probabilities of the rows that the golden data have. */
static void model_run(const char *path, tdm_open_device *dev, float *rows_out) {
    llm_model *model = rig_model(path, dev);
    llm_context *ctx = rig_context(model, NULL);
    int32_t tokens[TINY_TOKENS_MAX];
    for (int i = 0; i < list.n_tokens; i++) tokens[i] = list.tokens[i];
    rig_decode_prompt(ctx, tokens, list.n_tokens, list.n_rows, rows_out);
    rig_softmax(rows_out, list.n_rows, model->hparams.n_vocab);
    llm_context_destroy(ctx);
    llm_model_close(model);
}

/* Activations of 8 bits change which experts these two choose from their groups, and with a choice
 * the whole row. llama.cpp's own kernels change them too, for 1.6e-2 and 4.8e-2. */
static double bound_8(const tiny_model *m) {
    static const char *const fickle[] = {"tiny-deepseek2 q4_0 none untied",
                                         "tiny-deepseek2 q4_K yarn tied"};
    for (int i = 0; i < 2; i++)
        if (strcmp(m->name, fickle[i]) == 0) return 2e-2;
    return golden_8_bound(m->spec.type);
}

/* Runs a fast path of an ISA with two threads and with one. Returns 1 where the numbers are wrong.
 * `rows` has space for twice the rows. Under a sanitizer only two threads run: one thread would
 * find nothing more. */
static int fast_check(const tiny_model *m, const char *path, const char *isa, bool is_8,
                      const float *reference, float *rows) {
    const char *way = is_8 ? RIG_FAST_8 : "fast";
    size_t n = (size_t)list.n_rows * (size_t)m->n_vocab;
    model_run(path, rig_device(isa, way, 2), rows);
#ifdef TANDEM_SANITIZED
    bool is_same = true;
#else
    model_run(path, rig_device(isa, way, 1), rows + n);
    bool is_same = memcmp(rows, rows + n, n * sizeof *rows) == 0;
#endif
    double nmse = rig_nmse(reference, rows, n);
    double bound = is_8 ? bound_8(m) : golden_fast_bound(m->spec.type);
    printf("  %s%s %.1e", isa, is_8 ? "/8" : "", nmse);
    if (!is_same) printf(" DIFFERS WITH 2 THREADS");
    if (nmse > bound) printf(" OVER %.0e", bound);
    return !is_same || nmse > bound;
}

/* Under a sanitizer, models whose type, whose preset and whose scaling or head no model before them
 * had: those are what has code of its own. Types meet presets without one, where numbers are looked
 * at, not memory. */
static bool is_left_out(int i) {
#ifdef TANDEM_SANITIZED
    const random_model_spec *s = &list.items[i].spec;
    bool has_type = false, has_preset = false, has_rope = false;
    for (int k = 0; k < i; k++) {
        const random_model_spec *t = &list.items[k].spec;
        bool is_same_preset = strcmp(s->name, t->name) == 0;
        has_type = has_type || s->type == t->type;
        has_preset = has_preset || is_same_preset;
        has_rope = has_rope || ((s->latent.n_lora_kv > 0) == (t->latent.n_lora_kv > 0) &&
                                s->rope == t->rope && s->is_tied == t->is_tied);
    }
    return has_type && has_preset && has_rope;
#else
    (void)i;
    return false;
#endif
}

static void test_models(void **state) {
    (void)state;
    int n_bad = 0, n_run = 0;
    printf("NMSE of probabilities: reference path against llama.cpp, fast paths against it\n");
    for (int i = 0; i < list.n; i++) {
        const tiny_model *m = &list.items[i];
        const char *path = rig_file("tiny.gguf");
        if (is_left_out(i)) continue;
        n_run++;
        tdm_error err = {0};
        size_t n = (size_t)list.n_rows * (size_t)m->n_vocab;
        float *reference = calloc(3 * n, sizeof *reference);
        assert_non_null(reference);
        RIG_OK(random_model_write(&m->spec, path, NULL, NULL, NULL, &err));
        model_run(path, rig_device(NULL, "reference", 1), reference);
        double nmse = rig_nmse(m->probabilities, reference, n);
        bool is_bad = nmse > GOLDEN_REFERENCE_BOUND;
        printf("%-34s %.1e%s", m->name, nmse, is_bad ? " OVER" : "");
        n_bad += is_bad;
        for (int k = 0; rig_isas[k] != NULL; k++)
            for (int is_8 = 0; is_8 < 2 && rig_has_isa(rig_isas[k]); is_8++)
                n_bad += fast_check(m, path, rig_isas[k], is_8, reference, reference + n);
        printf("\n");
        free(reference);
    }
    printf("%d of %d models\n", n_run, list.n);
    assert_int_equal(n_bad, 0);
}

/* Two models must not pass for each other: the comparison can fail. */
static void test_comparison(void **state) {
    (void)state;
    const tiny_model *a = &list.items[0], *b = &list.items[1];
    size_t n = (size_t)list.n_rows * (size_t)a->n_vocab;
    assert_int_equal(a->n_vocab, b->n_vocab);
    assert_true(rig_nmse(a->probabilities, b->probabilities, n) > GOLDEN_REFERENCE_BOUND);
}

int main(void) {
    char *folder = rig_source_file("tests/model/tiny_models");
    if (folder == NULL || !tiny_models_read(folder, &list)) {
        fprintf(stderr, "tests/model/tiny_models: no golden data; run update.sh\n");
        free(folder);
        return 1;
    }
    free(folder);
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_comparison),
                                       cmocka_unit_test(test_models)};
    const int n_failed = cmocka_run_group_tests(tests, rig_begin, rig_end);
    free(list.data);
    return n_failed;
}
