/* SPDX-License-Identifier: MIT
 *
 * test_importance.c: importance matrices from files: their sums, several files, experts, and what is
 * refused; and that quantising weighs each expert by its own.
 */
#include <float.h>
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

#include "llm/gguf/gguf_write.h"
#include "llm/quantize/quantize.h"
#include "quant/convert.h"
#include "tests/support/random.h"

enum { N_IN = 64, N_EXPERT = 3, N_ROW = 5 };

static char folder[] = "/tmp/tandem-importance-XXXXXX", paths[4][64];

static int set_up(void **state) {
    (void)state;
    if (mkdtemp(folder) == NULL) return -1;
    for (int i = 0; i < 4; i++) snprintf(paths[i], sizeof paths[i], "%s/%d.gguf", folder, i);
    return 0;
}

static int tear_down(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) unlink(paths[i]);
    return rmdir(folder);
}

/* ---- Files ---- */

/* What a file has: sums of input i of expert e are (i + 1) * (e + 1) * scale, counts the given. */
typedef struct matrix {
    const char *type;      /* general.type; NULL = imatrix */
    int64_t n, n_part;     /* 0 = N_IN, N_EXPERT */
    float scale, sum_zero; /* sum_zero: of the first input */
    float counts[N_EXPERT];
    bool has_no_counts, has_no_tensor;
} matrix;

static void matrix_write(int file, matrix m) {
    tdm_error err = {0};
    llm_gguf_writer *w = NULL;
    if (m.n == 0) m.n = N_IN;
    if (m.n_part == 0) m.n_part = N_EXPERT;
    const int64_t ne[] = {m.n, m.n_part}, ne_counts[] = {1, m.n_part};
    assert_int_equal(llm_gguf_writer_create(paths[file], &w, &err), TDM_OK);
    llm_gguf_writer_put_text(w, "general.type", m.type != NULL ? m.type : "imatrix");
    if (m.has_no_tensor) {
        llm_gguf_writer_add_tensor(w, "other", TDM_TYPE_F32, 2, ne_counts);
    } else {
        llm_gguf_writer_add_tensor(w, "blk.0.ffn_up_exps.weight.in_sum2", TDM_TYPE_F32, 2, ne);
        if (!m.has_no_counts)
            llm_gguf_writer_add_tensor(w, "blk.0.ffn_up_exps.weight.counts", TDM_TYPE_F32, 2,
                                       ne_counts);
        for (int64_t i = 0; i < m.n * m.n_part; i++) {
            float sum = (float)((i % m.n + 1) * (i / m.n + 1)) * m.scale;
            if (i % m.n == 0) sum = m.sum_zero;
            assert_int_equal(llm_gguf_writer_write(w, &sum, sizeof sum, &err), TDM_OK);
        }
    }
    if (!m.has_no_counts)
        assert_int_equal(
            llm_gguf_writer_write(w, m.counts, (size_t)m.n_part * sizeof *m.counts, &err), TDM_OK);
    assert_int_equal(llm_gguf_writer_finish(w, &err), TDM_OK);
    llm_gguf_writer_destroy(w);
}

static llm_gguf_tensor tensor_of(int64_t n, int64_t n_part) {
    return (llm_gguf_tensor){
        .name = "blk.0.ffn_up_exps.weight", .n_dims = 3, .ne = {n, N_ROW, n_part, 1}};
}

static void test_sums(void **state) {
    (void)state;
    tdm_error err = {0};
    llm_importance *m = NULL;
    const float *values = NULL;
    const llm_gguf_tensor tensor = tensor_of(N_IN, N_EXPERT), narrow = tensor_of(32, N_EXPERT);
    llm_gguf_tensor other = tensor;
    const char *const files[] = {paths[0], paths[1]};
    other.name = "blk.1.ffn_up_exps.weight";
    matrix_write(0, (matrix){.scale = 1, .counts = {1, 2, 0}});
    matrix_write(1, (matrix){.scale = 3, .counts = {3, 0, 0}});
    if (llm_importance_read(files, 2, &m, &err) != TDM_OK) fail_msg("%s", err.message);
    assert_int_equal(llm_importance_count(m), 1);
    assert_int_equal(llm_importance_find(m, &tensor, &values, &err), TDM_OK);
    assert_non_null(values);
    for (int i = 1; i < N_IN; i++) {
        assert_true(fabsf(values[i] - (float)(i + 1) * 4 / 4) < 1e-4f);
        assert_true(fabsf(values[N_IN + i] - (float)(i + 1) * 2 * 4 / 2) < 1e-3f);
        assert_true(values[2 * N_IN + i] == 1);
    }
    /* An input that was always 0 keeps a little. */
    assert_true(values[0] > 0 && values[0] < 1e-3f);
    assert_int_equal(llm_importance_find(m, &other, &values, &err), TDM_OK);
    assert_null(values);
    assert_int_equal(llm_importance_find(m, &narrow, &values, &err), TDM_FAILED_PRECONDITION);
    assert_non_null(strstr(err.message, "64 inputs and 3 experts"));
    llm_importance_destroy(m);
    /* Means beyond a float stay positive and finite. */
    matrix_write(0, (matrix){.scale = 1e-42f, .counts = {1e6f, 1, 1}});
    matrix_write(1, (matrix){.scale = 1e30f, .counts = {1e6f, 1e-30f, 1}});
    for (int file = 0; file < 2; file++) {
        assert_int_equal(llm_importance_read(&files[file], 1, &m, &err), TDM_OK);
        assert_int_equal(llm_importance_find(m, &tensor, &values, &err), TDM_OK);
        for (int i = 0; i < N_IN * N_EXPERT; i++)
            assert_true(values[i] > 0 && values[i] <= FLT_MAX);
        llm_importance_destroy(m);
    }
}

static void refuse(matrix m, const char *part) {
    tdm_error err = {0};
    llm_importance *read = NULL;
    const char *const files[] = {paths[0], paths[1]};
    matrix_write(0, (matrix){.scale = 1, .counts = {1, 1, 1}});
    matrix_write(1, m);
    assert_int_equal(llm_importance_read(files, 2, &read, &err), TDM_DATA_LOSS);
    assert_null(read);
    if (strstr(err.message, part) == NULL || strstr(err.message, paths[1]) == NULL)
        fail_msg("no '%s' in: %s", part, err.message);
}

static void test_refusals(void **state) {
    (void)state;
    const char *const none[] = {"/nonexistent/x.gguf"};
    tdm_error err = {0};
    llm_importance *read = NULL;
    refuse((matrix){.type = "model", .scale = 1}, "is no importance matrix");
    refuse((matrix){.scale = 1, .has_no_counts = true}, "lacks its counts");
    refuse((matrix){.scale = -1, .counts = {1, 1, 1}}, "negative or not finite");
    refuse((matrix){.scale = 1, .counts = {1, NAN, 1}}, "negative or not finite");
    refuse((matrix){.n = 32, .scale = 1, .counts = {1, 1, 1}}, "of different models");
    refuse((matrix){.n_part = 1, .scale = 1, .counts = {1}}, "of different models");
    assert_int_equal(llm_importance_read(none, 1, &read, &err), TDM_NOT_FOUND);
    matrix_write(1, (matrix){.has_no_tensor = true, .n_part = 1});
    const char *const empty[] = {paths[1]};
    assert_int_equal(llm_importance_read(empty, 1, &read, &err), TDM_DATA_LOSS);
    assert_non_null(strstr(err.message, "without tensors"));
}

/* ---- Quantising ---- */

static void test_quantize(void **state) {
    (void)state;
    enum { N = N_ROW * N_EXPERT };
    static float rows[N][N_IN];
    uint8_t expected[N_IN / 32 * sizeof(tdm_block_q4_0)], equal[sizeof expected];
    tdm_error err = {0};
    llm_gguf_writer *w = NULL;
    llm_gguf *g = NULL;
    llm_importance *m = NULL;
    const llm_quantize_kind *kind = llm_quantize_kind_find("q4_0");
    llm_quantize_choice choice;
    const float *values = NULL;
    const int64_t ne[] = {N_IN, N_ROW, N_EXPERT};
    const char *const files[] = {paths[0]};
    uint64_t seed = 5;
    int n_changed = 0;
    for (int r = 0; r < N; r++)
        for (int i = 0; i < N_IN; i++) rows[r][i] = (float)random_u32_below(&seed, 2001) / 1000 - 1;
    assert_int_equal(llm_gguf_writer_create(paths[2], &w, &err), TDM_OK);
    llm_gguf_writer_put_text(w, "general.architecture", "llama");
    llm_gguf_writer_add_tensor(w, "blk.0.ffn_up_exps.weight", TDM_TYPE_F32, 3, ne);
    assert_int_equal(llm_gguf_writer_write(w, rows, sizeof rows, &err), TDM_OK);
    assert_int_equal(llm_gguf_writer_finish(w, &err), TDM_OK);
    llm_gguf_writer_destroy(w);
    matrix_write(0, (matrix){.scale = 1, .counts = {1, 1, 0}});
    assert_int_equal(llm_importance_read(files, 1, &m, &err), TDM_OK);
    assert_int_equal(llm_gguf_open(paths[2], &g, &err), TDM_OK);
    assert_int_equal(llm_quantize_choose(g, kind, true, true, &choice, &err), TDM_OK);
    if (llm_quantize_write(g, kind, &choice, m, paths[3], 2, NULL, NULL, &err) != TDM_OK)
        fail_msg("%s", err.message);
    assert_int_equal(llm_importance_find(m, llm_gguf_tensor_at(g, 0), &values, &err), TDM_OK);
    llm_gguf_close(g);
    assert_int_equal(llm_gguf_open(paths[3], &g, &err), TDM_OK);
    const uint8_t *blocks = llm_gguf_tensor_at(g, 0)->data;
    for (int r = 0; r < N; r++) {
        tdm_row_quantize(TDM_TYPE_Q4_0, rows[r], expected, N_IN, values + r / N_ROW * N_IN);
        tdm_row_quantize(TDM_TYPE_Q4_0, rows[r], equal, N_IN, NULL);
        assert_memory_equal(blocks + (size_t)r * sizeof expected, expected, sizeof expected);
        n_changed += memcmp(expected, equal, sizeof equal) != 0;
    }
    assert_true(n_changed > 0);
    llm_gguf_close(g);
    llm_importance_destroy(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_quantize),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
