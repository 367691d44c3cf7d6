/* SPDX-License-Identifier: MIT
 *
 * test_tiny_models.c: the golden probabilities of the tiny models are whole (every row sums to 1,
 * no two models share theirs), cover every weight type for each of Llama, Mistral and Mixtral, both
 * kinds of DeepSeek-2, every RoPE scaling and a Llama with biases. That each of them can be made,
 * and that Tandem computes the same probabilities, is test_golden_tiny.c's.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <math.h>
#include <unistd.h>
#include <cmocka.h>

#include "llm/gguf/gguf.h"
#include "tests/model/tiny_models.h"

static tiny_models list;

/* tq1_0 and tq2_0 keep the same codes and scales, packed otherwise. */
static bool is_same_model(const tiny_model *a, const tiny_model *b) {
    const char *type_a = strstr(a->name, " tq2_0 "), *type_b = strstr(b->name, " tq1_0 ");
    return type_a != NULL && type_b != NULL && type_a - a->name == type_b - b->name &&
           memcmp(a->name, b->name, (size_t)(type_a - a->name)) == 0 &&
           strcmp(type_a + 7, type_b + 7) == 0;
}

static void test_rows(void **state) {
    (void)state;
    for (int i = 0; i < list.n; ++i) {
        const tiny_model *m = &list.items[i];
        for (int r = 0; r < list.n_rows; ++r) {
            double sum = 0;
            for (int t = 0; t < m->n_vocab; ++t) {
                const float p = m->probabilities[r * m->n_vocab + t];
                assert_true(p > 0 && p < 0.9f); /* rounding shows only where nothing is certain */
                sum += (double)p;
            }
            if (!(fabs(sum - 1) < 1e-4)) fail_msg("%s: row %d sums to %f", m->name, r, sum);
        }
        for (int j = 0; j < i; ++j)
            if ((memcmp(m->probabilities, list.items[j].probabilities, 64) == 0) !=
                is_same_model(m, &list.items[j]))
                fail_msg("%s and %s: the same probabilities, or should have", m->name,
                         list.items[j].name);
    }
    for (int t = 0; t < list.n_tokens; ++t) assert_in_range(list.tokens[t], 0, 290);
}

static void test_coverage(void **state) {
    (void)state;
    static const char *const presets[] = {"tiny-llama ", "tiny-mistral ", "tiny-mixtral "};
    static const int expected[] = {26, 15, 21};
    for (size_t p = 0; p < 3; ++p) {
        int n_types = 0;
        for (int i = 0; i < list.n; ++i)
            n_types += strncmp(list.items[i].name, presets[p], strlen(presets[p])) == 0 &&
                       strstr(list.items[i].name, " none untied") != NULL;
        assert_int_equal(n_types, expected[p]);
    }
    int n_biased = 0;
    for (int i = 0; i < list.n; ++i) n_biased += list.items[i].spec.has_biases;
    assert_int_equal(n_biased, 3);
    int n_rope[RANDOM_MODEL_ROPE_COUNT_] = {0}, n_tied = 0, n_latent = 0, n_stretched = 0;
    for (int i = 0; i < list.n; ++i) {
        n_rope[list.items[i].spec.rope] += 1;
        n_tied += list.items[i].spec.is_tied;
        n_latent += list.items[i].spec.latent.n_lora_kv > 0;
        n_stretched += list.items[i].spec.latent.n_lora_kv > 0 &&
                       list.items[i].spec.rope == RANDOM_MODEL_ROPE_YARN;
    }
    for (int r = 0; r < RANDOM_MODEL_ROPE_COUNT_; ++r) assert_true(n_rope[r] > 0);
    assert_true(n_tied > 0);
    assert_true(n_latent > 8 && n_stretched > 1);
}

int main(void) {
    const char *root = getenv("TANDEM_SOURCE_ROOT");
    char folder[400];
    snprintf(folder, sizeof folder, "%s/tests/model/tiny_models", root != NULL ? root : ".");
    if (!tiny_models_read(folder, &list)) {
        fprintf(stderr,
                "%s: models.txt and probabilities.f32 are missing or do not agree; run "
                "update.sh\n",
                folder);
        free(list.data);
        return 1;
    }
    printf("%d models, %d tokens, rows from %d\n", list.n, list.n_tokens, list.first_row);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_coverage),
    };
    const int n_failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(list.data);
    return n_failed;
}
