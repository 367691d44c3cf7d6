/* SPDX-License-Identifier: MIT
 *
 * test_variant.c: the tool make_variant on a small file: which tensors it converts, to which type,
 * and that the bytes are those of the quantiser. The first argument is the path of the tool.
 */
#include <fcntl.h>
#include <setjmp.h>
#include <spawn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "llm/gguf/gguf.h"
#include "llm/gguf/gguf_write.h"

extern char **environ;

static const char *tool;
static char in_path[256], out_path[256];

static const struct {
    const char *name;
    int32_t n_dims;
    int64_t ne[4];
} tensors[] = {
    {"matrix", 2, {512, 3, 1, 1}}, {"experts", 3, {256, 2, 2, 1}},
    {"norm", 1, {256, 1, 1, 1}},   {"blk.0.ffn_gate_inp.weight", 2, {256, 2, 1, 1}},
    {"small", 2, {96, 2, 1, 1}}, /* whole blocks of 32 only */
    {"odd", 2, {20, 2, 1, 1}},   /* no whole blocks at all */
};
enum { N_TENSOR = sizeof tensors / sizeof *tensors };

static int64_t count_elements(int t) {
    return tensors[t].ne[0] * tensors[t].ne[1] * tensors[t].ne[2] * tensors[t].ne[3];
}

static void make_data(int t, float *x) {
    for (int64_t i = 0; i < count_elements(t); i++) {
        x[i] = (float)((i * 7919 + t * 31) % 1009 - 504) / 512;
    }
}

/* Runs the tool with its messages discarded; its exit code, or -1. */
static int run_tool(const char *in, const char *out, const char *type, const char *option) {
    char *argv[] = {(char *)tool, (char *)in, (char *)out, (char *)type, (char *)option, NULL};
    posix_spawn_file_actions_t actions;
    pid_t pid;
    int state = -1;
    if (posix_spawn_file_actions_init(&actions) != 0) return -1;
    posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
    if (posix_spawn(&pid, tool, &actions, NULL, argv, environ) == 0) waitpid(pid, &state, 0);
    posix_spawn_file_actions_destroy(&actions);
    return WIFEXITED(state) ? WEXITSTATUS(state) : -1;
}

static int set_up(void **state) {
    (void)state;
    const char *folder = getenv("TMPDIR");
    if (folder == NULL) folder = "/tmp";
    snprintf(in_path, sizeof in_path, "%s/tandem-variant-%ld-in.gguf", folder, (long)getpid());
    snprintf(out_path, sizeof out_path, "%s/tandem-variant-%ld-out.gguf", folder, (long)getpid());
    llm_gguf_writer *w = NULL;
    tdm_error err = {0};
    float x[1 << 11];
    if (llm_gguf_writer_create(in_path, &w, &err) != TDM_OK) return 1;
    llm_gguf_writer_put_text(w, "general.architecture", "llama");
    llm_gguf_writer_put_u32(w, "general.file_type", 0);
    llm_gguf_writer_put_u32(w, "split.count", 1);
    for (int t = 0; t < N_TENSOR; t++) {
        llm_gguf_writer_add_tensor(w, tensors[t].name, TDM_TYPE_F32, tensors[t].n_dims,
                                   tensors[t].ne);
    }
    tdm_status status = TDM_OK;
    for (int t = 0; t < N_TENSOR && status == TDM_OK; t++) {
        make_data(t, x);
        status = llm_gguf_writer_write(w, x, (size_t)count_elements(t) * sizeof *x, &err);
    }
    if (status == TDM_OK) status = llm_gguf_writer_finish(w, &err);
    llm_gguf_writer_destroy(w);
    if (status != TDM_OK) fprintf(stderr, "%s\n", err.message);
    return status != TDM_OK;
}

static int tear_down(void **state) {
    (void)state;
    unlink(in_path);
    unlink(out_path);
    return 0;
}

/* The tensor's bytes are those of `type`, or with is_dequantized the f32 that they stand for. */
static void check_tensor(const llm_gguf *g, int t, tdm_type type, bool is_dequantized) {
    float x[1 << 11];
    uint8_t blocks[sizeof x];
    int64_t n = count_elements(t);
    const llm_gguf_tensor *tensor = llm_gguf_tensor_find(g, tensors[t].name);
    assert_non_null(tensor);
    assert_int_equal(tensor->n_dims, tensors[t].n_dims);
    assert_memory_equal(tensor->ne, tensors[t].ne, sizeof tensors[t].ne);
    make_data(t, x);
    assert_int_equal(tdm_row_quantize(type, x, blocks, n, NULL), TDM_OK);
    if (is_dequantized) {
        assert_int_equal(tdm_row_dequantize(type, blocks, x, n), TDM_OK);
        assert_int_equal(tensor->type, TDM_TYPE_F32);
        assert_memory_equal(tensor->data, x, (size_t)n * sizeof *x);
    } else {
        assert_int_equal(tensor->type, type);
        assert_int_equal(tensor->size, tdm_type_row_size(type, n));
        assert_memory_equal(tensor->data, blocks, tensor->size);
    }
}

static void test_types(void **state) {
    (void)state;
    static const struct {
        tdm_type type, small, odd;
        uint32_t file_type;
    } rows[] = {
        {TDM_TYPE_F16, TDM_TYPE_F16, TDM_TYPE_F16, 1},
        {TDM_TYPE_BF16, TDM_TYPE_BF16, TDM_TYPE_BF16, 32},
        {TDM_TYPE_Q4_0, TDM_TYPE_Q4_0, TDM_TYPE_F16, 2},
        {TDM_TYPE_Q4_K, TDM_TYPE_Q5_0, TDM_TYPE_F16, 15},
        {TDM_TYPE_Q6_K, TDM_TYPE_Q8_0, TDM_TYPE_F16, 18},
        {TDM_TYPE_IQ4_XS, TDM_TYPE_IQ4_NL, TDM_TYPE_F16, 30},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        for (int is_dequantized = 0; is_dequantized < 2; is_dequantized++) {
            const char *name = tdm_type_name(rows[i].type);
            assert_int_equal(
                run_tool(in_path, out_path, name, is_dequantized ? "--dequantize" : NULL), 0);
            llm_gguf *g = NULL;
            uint32_t file_type = 99;
            assert_int_equal(llm_gguf_open(out_path, &g, NULL), TDM_OK);
            assert_int_equal(llm_gguf_tensor_count(g), N_TENSOR);
            check_tensor(g, 0, rows[i].type, is_dequantized);
            check_tensor(g, 1, rows[i].type, is_dequantized);
            check_tensor(g, 2, TDM_TYPE_F32, false);
            check_tensor(g, 3, TDM_TYPE_F32, false);
            check_tensor(g, 4, rows[i].small, is_dequantized);
            check_tensor(g, 5, rows[i].odd, is_dequantized);
            llm_gguf_get_u32(g, "general.file_type", LLM_GGUF_REQUIRED, &file_type, NULL);
            assert_int_equal(file_type, is_dequantized ? 0 : rows[i].file_type);
            assert_non_null(llm_gguf_key_find(g, "general.architecture"));
            assert_null(llm_gguf_key_find(g, "split.count"));
            llm_gguf_close(g);
        }
    }
}

static void test_refusals(void **state) {
    (void)state;
    unlink(out_path);
    assert_int_equal(run_tool(in_path, out_path, "q9_Z", NULL), 2);
    assert_int_equal(run_tool(in_path, out_path, "q4_K", "--requantize"), 2);
    assert_int_equal(run_tool("/nonexistent.gguf", out_path, "q4_K", NULL), 1);
    assert_int_equal(run_tool(in_path, "/nonexistent/out.gguf", "q4_K", NULL), 1);
    assert_int_equal(run_tool(tool, out_path, "q4_K", NULL), 1); /* not a GGUF file */
    assert_int_not_equal(access(out_path, F_OK), 0);             /* nothing half-written */
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: test_variant PATH-OF-make_variant\n");
        return 2;
    }
    tool = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_types),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
