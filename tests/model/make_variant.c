/* SPDX-License-Identifier: MIT
 *
 * make_variant.c: writes a GGUF model again with its matrices in another type.
 *
 *   make_variant IN.gguf OUT.gguf TYPE [--dequantize]
 *
 * TYPE is a type's name (q4_K, f16, …) or `keep`. With --dequantize the matrices are converted to
 * TYPE and then back to f32: the model whose results an implementation without any rounding of its
 * own would give for TYPE. The pair of files is how tests tell a wrong layout (the two disagree)
 * from the cost of a coarse type (they agree, and differ from the original together).
 *
 * What llama.cpp's own quantiser leaves alone is left alone: tensors of one dimension and the
 * routers of experts. A row that is no multiple of the type's block takes the type that llama.cpp
 * takes then, and f16 where that does not fit either; each such tensor is named on standard error.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "llm/gguf/gguf.h"
#include "llm/gguf/gguf_write.h"

/* What takes a type's place where rows don't fit it, and the number that general.file_type has in
 * files that are mostly of this type (ggml-org/llama.cpp, include/llama.h, enum llama_ftype). */
static const struct {
    tdm_type type, fallback;
    uint32_t file_type;
} variants[] = {
    {TDM_TYPE_F32, TDM_TYPE_F32, 0},         {TDM_TYPE_F16, TDM_TYPE_F16, 1},
    {TDM_TYPE_BF16, TDM_TYPE_BF16, 32},      {TDM_TYPE_Q4_0, TDM_TYPE_F16, 2},
    {TDM_TYPE_Q4_1, TDM_TYPE_F16, 3},        {TDM_TYPE_Q5_0, TDM_TYPE_F16, 8},
    {TDM_TYPE_Q5_1, TDM_TYPE_F16, 9},        {TDM_TYPE_Q8_0, TDM_TYPE_F16, 7},
    {TDM_TYPE_IQ4_NL, TDM_TYPE_F16, 25},     {TDM_TYPE_Q2_K, TDM_TYPE_IQ4_NL, 10},
    {TDM_TYPE_Q3_K, TDM_TYPE_IQ4_NL, 12},    {TDM_TYPE_IQ4_XS, TDM_TYPE_IQ4_NL, 30},
    {TDM_TYPE_Q4_K, TDM_TYPE_Q5_0, 15},      {TDM_TYPE_Q5_K, TDM_TYPE_Q5_1, 17},
    {TDM_TYPE_Q6_K, TDM_TYPE_Q8_0, 18},      {TDM_TYPE_MXFP4, TDM_TYPE_F16, 38},
    {TDM_TYPE_IQ3_S, TDM_TYPE_IQ4_NL, 26},   {TDM_TYPE_IQ3_XXS, TDM_TYPE_IQ4_NL, 23},
    {TDM_TYPE_IQ2_S, TDM_TYPE_IQ4_NL, 28},   {TDM_TYPE_IQ2_XS, TDM_TYPE_IQ4_NL, 20},
    {TDM_TYPE_IQ2_XXS, TDM_TYPE_IQ4_NL, 19}, {TDM_TYPE_IQ1_M, TDM_TYPE_IQ4_NL, 31},
    {TDM_TYPE_IQ1_S, TDM_TYPE_IQ4_NL, 24},   {TDM_TYPE_TQ1_0, TDM_TYPE_Q4_0, 36},
    {TDM_TYPE_TQ2_0, TDM_TYPE_Q4_0, 37},
};
enum { N_VARIANT = sizeof variants / sizeof *variants, KEEP = -1 };

typedef struct job {
    int variant; /* an index into variants, or KEEP */
    bool is_dequantized;
} job;

static int find_variant(const char *name) {
    for (int i = 0; i < N_VARIANT; i++) {
        if (strcmp(tdm_type_name(variants[i].type), name) == 0) return i;
    }
    return KEEP;
}

static bool is_matrix(const llm_gguf_tensor *tensor) {
    return tensor->n_dims >= 2 && tdm_row_codec_get(tensor->type).dequantize != NULL &&
           strstr(tensor->name, "ffn_gate_inp") == NULL;
}

static bool is_row_fitting(tdm_type type, const llm_gguf_tensor *tensor) {
    return tensor->ne[0] % tdm_type_get_info(type).block_len == 0;
}

/* The type whose rounding the tensor gets. */
static tdm_type choose_type(const job *j, const llm_gguf_tensor *tensor) {
    if (j->variant == KEEP || !is_matrix(tensor)) return tensor->type;
    tdm_type type = variants[j->variant].type;
    if (is_row_fitting(type, tensor)) return type;
    type = variants[j->variant].fallback;
    return is_row_fitting(type, tensor) ? type : TDM_TYPE_F16;
}

static tdm_type choose_stored_type(const job *j, const llm_gguf_tensor *tensor) {
    return j->is_dequantized && is_matrix(tensor) ? TDM_TYPE_F32 : choose_type(j, tensor);
}

static void put_keys(const job *j, const llm_gguf *in, llm_gguf_writer *out) {
    bool is_retyped = j->is_dequantized || j->variant != KEEP;
    for (uint32_t i = 0; i < llm_gguf_key_count(in); i++) {
        const llm_gguf_key *key = llm_gguf_key_at(in, i);
        if (strncmp(key->name, "split.", 6) == 0) continue; /* the copy is one file */
        if (is_retyped && strcmp(key->name, "general.file_type") == 0) continue;
        if (is_retyped && strcmp(key->name, "general.quantization_version") == 0) continue;
        llm_gguf_writer_put_key(out, key);
    }
    if (!is_retyped) return;
    uint32_t file_type = j->is_dequantized ? 0 : variants[j->variant].file_type;
    llm_gguf_writer_put_u32(out, "general.file_type", file_type);
    llm_gguf_writer_put_u32(out, "general.quantization_version", 2);
}

/* Converts and writes a tensor row by row. */
static tdm_status write_tensor(const job *j, const llm_gguf_tensor *tensor, llm_gguf_writer *out,
                               tdm_error *err) {
    tdm_type type = choose_type(j, tensor), stored = choose_stored_type(j, tensor);
    if (type == tensor->type && stored == tensor->type) {
        return llm_gguf_writer_write(out, tensor->data, tensor->size, err);
    }
    int64_t n = tensor->ne[0], n_row = tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
    size_t source_size = tdm_type_row_size(tensor->type, n), size = tdm_type_row_size(type, n);
    float *row = calloc((size_t)n + 1, sizeof *row);
    void *blocks = calloc(1, size + 1);
    tdm_status status = TDM_OK;
    if (row == NULL || blocks == NULL) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for a row", tensor->name);
    }
    const uint8_t *source = tensor->data;
    for (int64_t r = 0; r < n_row && status == TDM_OK; r++, source += source_size) {
        tdm_row_dequantize(tensor->type, source, row, n);
        tdm_row_quantize(type, row, blocks, n, NULL);
        if (stored == type) {
            status = llm_gguf_writer_write(out, blocks, size, err);
        } else {
            tdm_row_dequantize(type, blocks, row, n);
            status = llm_gguf_writer_write(out, row, (size_t)n * sizeof *row, err);
        }
    }
    free(row);
    free(blocks);
    return status;
}

static tdm_status write_variant(const job *j, const llm_gguf *in, llm_gguf_writer *out,
                                tdm_error *err) {
    tdm_status status = TDM_OK;
    uint32_t n_tensor = llm_gguf_tensor_count(in);
    for (uint32_t i = 0; i < n_tensor && status == TDM_OK; i++) {
        status = llm_gguf_tensor_check_type(in, llm_gguf_tensor_at(in, i), err);
    }
    if (status != TDM_OK) return status;
    put_keys(j, in, out);
    for (uint32_t i = 0; i < n_tensor; i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(in, i);
        tdm_type type = choose_type(j, tensor);
        if (j->variant != KEEP && is_matrix(tensor) && type != variants[j->variant].type) {
            fprintf(stderr, "%s: rows of %lld are not whole blocks of %s, takes %s\n", tensor->name,
                    (long long)tensor->ne[0], tdm_type_name(variants[j->variant].type),
                    tdm_type_name(type));
        }
        llm_gguf_writer_add_tensor(out, tensor->name, choose_stored_type(j, tensor), tensor->n_dims,
                                   tensor->ne);
    }
    for (uint32_t i = 0; i < n_tensor && status == TDM_OK; i++) {
        status = write_tensor(j, llm_gguf_tensor_at(in, i), out, err);
    }
    return status == TDM_OK ? llm_gguf_writer_finish(out, err) : status;
}

int main(int argc, char **argv) {
    job j = {.variant = KEEP};
    bool is_usage_right = argc == 4 || (argc == 5 && strcmp(argv[4], "--dequantize") == 0);
    if (is_usage_right) {
        j.is_dequantized = argc == 5;
        j.variant = find_variant(argv[3]);
        is_usage_right = j.variant != KEEP || strcmp(argv[3], "keep") == 0;
    }
    if (!is_usage_right) {
        fprintf(stderr, "usage: make_variant IN.gguf OUT.gguf TYPE [--dequantize]\nTYPE: keep");
        for (int i = 0; i < N_VARIANT; i++) fprintf(stderr, " %s", tdm_type_name(variants[i].type));
        fprintf(stderr, "\n");
        return 2;
    }
    llm_gguf *in = NULL;
    llm_gguf_writer *out = NULL;
    tdm_error err = {0};
    tdm_status status = llm_gguf_open(argv[1], &in, &err);
    if (status == TDM_OK) status = llm_gguf_writer_create(argv[2], &out, &err);
    if (status == TDM_OK) status = write_variant(&j, in, out, &err);
    llm_gguf_writer_destroy(out);
    llm_gguf_close(in);
    if (status == TDM_OK) return 0;
    fprintf(stderr, "make_variant: %s\n", err.message);
    return 1;
}
