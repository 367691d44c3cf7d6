/* SPDX-License-Identifier: MIT
 *
 * test_perplexity.c: the arithmetic behind `tandem perplexity` against sums done by hand, and its
 * file of reference logits, whole and damaged.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

#include "runner/commands/kl_file.h"
#include "runner/commands/token_loss.h"

static void assert_near(double a, double b, double tolerance) {
    if (!(fabs(a - b) <= tolerance)) fail_msg("%.17g is not %.17g", a, b);
}

static void test_log_probs(void **state) {
    (void)state;
    float row[4] = {1000, 1000 + logf(2), 1000 + logf(5), -INFINITY}, out[4];
    token_loss_log_probs(row, 4, out);
    assert_near(out[0], log(1.0 / 8), 1e-4); /* floats near 1000 are 2^-14 apart */
    assert_near(out[2], log(5.0 / 8), 1e-4);
    assert_true(isinf(out[3]) && out[3] < 0);
    assert_int_equal(token_loss_top(row, 4), 2);
    row[1] = NAN;
    token_loss_log_probs(row, 4, row);
    assert_true(isnan(row[0]));
    float equal[3] = {1, 2, 2};
    assert_int_equal(token_loss_top(equal, 3), 1);
}

static void test_divergence(void **state) {
    (void)state;
    float p[3] = {logf(0.5f), logf(0.25f), logf(0.25f)},
          q[3] = {logf(0.25f), logf(0.25f), logf(0.5f)};
    assert_near(token_loss_divergence(p, q, 3), 0.5 * log(2) - 0.25 * log(2), 1e-7);
    assert_near(token_loss_divergence(p, p, 3), 0, 0);
    float zero[3] = {logf(0.5f), logf(0.5f), -INFINITY},
          one[3] = {logf(0.5f), -INFINITY, logf(0.5f)};
    assert_near(token_loss_divergence(zero, p, 3), 0.5 * log(2), 1e-7); /* p_ref = 0 adds nothing */
    assert_true(isinf(token_loss_divergence(zero, one, 3)));
    /* A p_ref whose exp is 0 in a double, or that is far below p, does not become inf * 0. */
    float far[3] = {-800, 0, -INFINITY}, other[3] = {-0.7f, -0.7f, -7};
    assert_near(token_loss_divergence(far, other, 3), 0.7 + 2 * exp(-0.7) - 1 + exp(-7), 1e-7);
    far[0] = -730; /* its exp is a finite number, the exp of its negative is not */
    assert_near(token_loss_divergence(far, other, 3), 0.7 + 2 * exp(-0.7) - 1 + exp(-7), 1e-7);
    far[0] = -800;
    other[0] = -INFINITY;
    assert_near(token_loss_divergence(far, other, 3), 0.7 + exp(-0.7) - 1 + exp(-7), 1e-7);
    /* A small divergence is not lost in the rounding of logarithms: for 1/2 beside 1/2 + e and
     * 1/2 - e it is 2 e^2. */
    float near[2] = {logf(0.5f + 1e-4f), logf(0.5f - 1e-4f)}, half[2] = {logf(0.5f), logf(0.5f)};
    assert_near(token_loss_divergence(half, near, 2), 2e-8, 2e-11);
}

static void test_means(void **state) {
    (void)state;
    token_loss_mean mean = {0};
    double spread;
    assert_near(token_loss_mean_get(&mean), 0, 0);
    assert_near(token_loss_mean_uncertainty(&mean), 0, 0);
    token_loss_mean_add(&mean, log(2));
    assert_near(token_loss_perplexity(&mean, &spread), 2, 1e-12);
    assert_near(spread, 0, 0);
    token_loss_mean_add(&mean, log(8));
    assert_near(token_loss_perplexity(&mean, &spread), 4, 1e-12);
    /* deviation log 2 each way; divided by sqrt(n - 1) */
    assert_near(spread, 4 * log(2), 1e-12);
    double values[5] = {5, 1, 4, 2, 3};
    assert_near(token_loss_quantile(values, 5, 0.99), 4.96, 1e-12);
    assert_near(token_loss_quantile(values, 5, 0), 1, 0);
    assert_near(token_loss_quantile(values, 5, 1), 5, 0);
    assert_near(token_loss_quantile(values, 0, 0.5), 0, 0);
}

/* ---- The file ---- */

static char path[64];

static kl_head head_example(void) {
    kl_head head = {.n_vocab = 3, .n_ctx = 6, .n_chunk = 2, .vocabulary = 1, .model = UINT64_MAX};
    int32_t tokens[3] = {1, -1, 70000};
    head.text = kl_hash_tokens(0, tokens, 3);
    assert_true(head.text == kl_hash_tokens(kl_hash_tokens(0, tokens, 1), tokens + 1, 2));
    strcpy(head.name, "a model");
    return head;
}

/* Row `i` of the example: probabilities p, 0 and 1 - p. */
static void row_make(int i, float *row) {
    double p = (i + 1) / 8.0;
    row[0] = (float)log(p);
    row[1] = -INFINITY;
    row[2] = (float)log1p(-p);
}

static void file_write(const kl_head *head, tdm_status end) {
    kl_file *file = NULL;
    assert_int_equal(kl_file_create(path, head, &file, NULL), TDM_OK);
    for (int i = 0; i < 4; i++) {
        float row[3];
        row_make(i, row);
        assert_int_equal(kl_file_write(file, row, NULL), TDM_OK);
    }
    assert_int_equal(kl_file_close(file, end, NULL), end);
}

static void test_file(void **state) {
    (void)state;
    kl_head head = head_example(), found;
    kl_file *file = NULL;
    assert_int_equal(kl_head_n_row(&head), 2);
    file_write(&head, TDM_CANCELLED);
    assert_int_equal(access(path, F_OK), -1); /* nothing is left of a file that was not finished */
    file_write(&head, TDM_OK);
    assert_int_equal(kl_file_open(path, &found, &file, NULL), TDM_OK);
    /* field by field: the bytes of padding may differ */
    assert_int_equal(found.n_vocab, head.n_vocab);
    assert_int_equal(found.n_ctx, head.n_ctx);
    assert_int_equal(found.n_chunk, head.n_chunk);
    assert_true(found.vocabulary == head.vocabulary && found.text == head.text);
    assert_true(found.model == head.model);
    assert_string_equal(found.name, head.name);
    for (int i = 0; i < 4; i++) {
        float row[3], expected[3];
        row_make(i, expected);
        assert_int_equal(kl_file_read(file, row, NULL), TDM_OK);
        assert_memory_equal(row, expected, sizeof row);
    }
    float row[3];
    assert_int_equal(kl_file_read(file, row, NULL), TDM_IO); /* past the end */
    assert_int_equal(kl_file_close(file, TDM_OK, NULL), TDM_OK);
    assert_int_equal(kl_file_close(NULL, TDM_IO, NULL), TDM_IO);
    unlink(path);
}

/* Every bit of the numbers in the head, and every length, is either harmless or refused. */
static void test_damaged(void **state) {
    (void)state;
    kl_head head = head_example(), found;
    kl_file *file = NULL;
    uint8_t bytes[128 + 4 * 12];
    file_write(&head, TDM_OK);
    FILE *stream = fopen(path, "rb");
    assert_non_null(stream);
    assert_int_equal(fread(bytes, 1, sizeof bytes, stream), sizeof bytes);
    assert_int_equal(fgetc(stream), EOF);
    fclose(stream);
    for (size_t trial = 0; trial < 24 * 8 + sizeof bytes; trial++) {
        bool is_bit = trial < 24 * 8;
        if (is_bit) bytes[trial / 8] ^= (uint8_t)(1 << trial % 8);
        stream = fopen(path, "wb");
        assert_non_null(stream);
        size_t size = is_bit ? sizeof bytes : trial - 24 * 8;
        assert_int_equal(fwrite(bytes, 1, size, stream), size);
        assert_int_equal(fclose(stream), 0);
        tdm_error err = {0};
        tdm_status status = kl_file_open(path, &found, &file, &err);
        if (status == TDM_OK) fail_msg("trial %zu was taken", trial);
        assert_null(file);
        assert_non_null(strstr(err.message, path));
        if (is_bit) bytes[trial / 8] ^= (uint8_t)(1 << trial % 8);
    }
    unlink(path);
    assert_int_equal(kl_file_open(path, &found, &file, NULL), TDM_NOT_FOUND);
    assert_int_equal(kl_file_create("/nonexistent/x", &head, &file, NULL), TDM_IO);
    assert_null(file);
}

/* A row that is no distribution is refused. In the model's name control characters, which could
 * move a terminal's cursor, are replaced. */
static void test_no_probabilities(void **state) {
    (void)state;
    static const float rows[][3] = {{0.1f, -INFINITY, -2},    {NAN, -1, -1},
                                    {INFINITY, 0, -INFINITY}, {-INFINITY, -INFINITY, -INFINITY},
                                    {-0.5f, -0.5f, -9},       {-1, -1, -9}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kl_head head = head_example(), found;
        kl_file *file = NULL;
        float row[3];
        tdm_error err = {0};
        strcpy(head.name, "a\033[2J\n\x7f model");
        assert_int_equal(kl_file_create(path, &head, &file, NULL), TDM_OK);
        for (int k = 0; k < 4; k++) {
            row_make(k, row);
            assert_int_equal(kl_file_write(file, k == 1 ? rows[i] : row, NULL), TDM_OK);
        }
        assert_int_equal(kl_file_close(file, TDM_OK, NULL), TDM_OK);
        assert_int_equal(kl_file_open(path, &found, &file, NULL), TDM_OK);
        assert_string_equal(found.name, "a?[2J?? model");
        assert_int_equal(kl_file_read(file, row, NULL), TDM_OK);
        assert_int_equal(kl_file_read(file, row, &err), TDM_DATA_LOSS);
        assert_non_null(strstr(err.message, ": its row 2 holds no probabilities; remove the file"));
        assert_int_equal(kl_file_close(file, TDM_OK, NULL), TDM_OK);
        unlink(path);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_log_probs), cmocka_unit_test(test_divergence),
        cmocka_unit_test(test_means),     cmocka_unit_test(test_file),
        cmocka_unit_test(test_damaged),   cmocka_unit_test(test_no_probabilities),
    };
    snprintf(path, sizeof path, "test_perplexity.%ld.kl", (long)getpid());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
