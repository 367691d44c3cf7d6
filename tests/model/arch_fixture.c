/* SPDX-License-Identifier: MIT
 *
 * arch_fixture.c: see arch_fixture.h. The weights are those of the generator beside the headers, to
 * the bit: splitmix64 from a hash of "TENSOR/SEED", matrices of variance 1 / ne[0], norms around 1,
 * small biases.
 */
#include "tests/model/arch_fixture.h"

#include <fcntl.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "llm/gguf/gguf.h"
#include "tandem/tensor.h"

/* Larger than the weights of any fixture; the file is cut when they are written. */
#define DATA_ROOM ((off_t)512 << 20)

/* Copies the header to `path`; its size, 0 if it cannot be read. */
static size_t header_copy(const char *head, const char *path) {
    char command[1200], bytes[65536];
    size_t size = 0, n;
    if (strchr(head, '\'') != NULL) return 0;
    snprintf(command, sizeof command, "gzip -dc < '%s'", head);
    FILE *in = popen(command, "r"), *out = fopen(path, "wb");
    while (in != NULL && out != NULL && (n = fread(bytes, 1, sizeof bytes, in)) > 0)
        size += fwrite(bytes, 1, n, out);
    bool is_good = in != NULL && pclose(in) == 0;
    if (out != NULL) is_good = fclose(out) == 0 && is_good;
    if (is_good && truncate(path, (off_t)size + DATA_ROOM) != 0) is_good = false;
    return is_good && out != NULL ? size : 0;
}

static bool ends_with(const char *text, const char *end) {
    size_t n = strlen(text), m = strlen(end);
    return n >= m && strcmp(text + n - m, end) == 0;
}

static bool is_one_of(const char *text, const char *const *list) {
    for (; *list != NULL; list++)
        if (strcmp(text, *list) == 0) return true;
    return false;
}

/* The last part of a name before ".weight" or ".bias". */
static void stem_of(const char *name, char stem[64]) {
    char copy[128];
    snprintf(copy, sizeof copy, "%s", name);
    char *dot = strrchr(copy, '.');
    if (dot != NULL) *dot = 0;
    dot = strrchr(copy, '.');
    snprintf(stem, 64, "%.63s", dot != NULL ? dot + 1 : copy);
}

/* Embeddings are small, so that what layers add is seen beside them. */
static double embedding_scale(const char *arch) {
    static const char *const gemma[] = {"gemma", "gemma2", "gemma3", "gemma-embedding", NULL};
    static const char *const minicpm[] = {"minicpm", "minicpm3", NULL};
    return is_one_of(arch, gemma)         ? 1.0 / 64
           : strcmp(arch, "gemma3n") == 0 ? 1.0
           : strcmp(arch, "grok") == 0    ? 1.0 / 256
           : is_one_of(arch, minicpm)     ? 1.0 / 48
                                          : 0.25;
}

typedef enum kind {
    FACTOR,
    DECAY,
    STEP,
    SKIP,
    SINK,
    NORM,
    GAIN,
    QUIET,
    SMALL,
    EMBEDDING,
    OUT,
    ROUTER,
    MATRIX
} kind;

static kind kind_of(const llm_gguf_tensor *t, const char *arch) {
    static const char *const factors[] = {"rope_factors_long", "rope_factors_short", NULL};
    static const char *const decays[] = {"ssm_a", "ssm_a_log", NULL};
    static const char *const embeddings[] = {"token_embd", "position_embd", "token_types", NULL};
    static const char *const outs[] = {"attn_output",   "attn_out",       "attn_o",  "ffn_down",
                                       "ffn_down_exps", "ffn_down_shexp", "ssm_out", NULL};
    static const char *const mixes[] = {"altup_predict_coef", "altup_correct_coef", NULL};
    static const char *const quiet[] = {"attn_q_norm",      "post_attention_norm", "post_ffw_norm",
                                        "laurel_post_norm", "post_norm",           NULL};
    char stem[64];
    stem_of(t->name, stem);
    if (strncmp(t->name, "rope_freqs", 10) == 0 || is_one_of(stem, factors)) return FACTOR;
    if (is_one_of(stem, decays)) return DECAY;
    if (strcmp(stem, "ssm_dt") == 0 && ends_with(t->name, "bias")) return STEP;
    if (strcmp(stem, "ssm_d") == 0) return SKIP;
    if (ends_with(stem, "sinks")) return SINK;
    /* Of 25 layers, one after the other; with more, rounding would grow beyond the bound. */
    if (strcmp(arch, "gemma3n") == 0 && is_one_of(stem, quiet)) return QUIET;
    if (ends_with(stem, "norm") || strstr(stem, "_norm") != NULL) return NORM;
    if (ends_with(t->name, ".scale") || strcmp(stem, "altup_correct_scale") == 0) return GAIN;
    if (strcmp(stem, "layer_output_scale") == 0 && strcmp(arch, "gemma4") == 0) return GAIN;
    if (strcmp(stem, "altup_router") == 0) return ROUTER; /* the model divides its input by ne[0] */
    /* Streams that are mixed more grow from layer to layer. */
    if (is_one_of(stem, mixes)) return SMALL;
    if (ends_with(t->name, ".bias") || t->n_dims == 1) return SMALL;
    if (is_one_of(stem, embeddings)) return EMBEDDING;
    return is_one_of(stem, outs) ? OUT : MATRIX;
}

static float value_of(kind k, double u, const llm_gguf_tensor *t, double embedding) {
    switch (k) {
    case FACTOR: return (float)(1.0 + 0.2 * fabs(u));
    case DECAY: return (float)-exp(0.5 * u - 1.0);
    case STEP: return (float)(0.5 * u - 1.0);
    case SKIP: return (float)(1.0 + 0.1 * u);
    case SINK: return (float)(0.5 * u);
    case NORM: return (float)(ends_with(t->name, "weight") ? 1.0 + 0.3 * u : 0.1 * u);
    case GAIN: return (float)(1.0 + 0.3 * u);
    case QUIET: return (float)(0.3 + 0.1 * u);
    case SMALL: return (float)(0.1 * u);
    case EMBEDDING: return (float)(u * embedding);
    case OUT: return (float)(2.0 * u / sqrt((double)t->ne[0]));
    case ROUTER: return (float)(u * sqrt((double)t->ne[0]));
    default: return (float)(u / sqrt((double)t->ne[0]));
    }
}

static void tensor_fill(const llm_gguf_tensor *t, int seed, const char *arch, float *data) {
    char key[160];
    const kind k = kind_of(t, arch);
    const double embedding = embedding_scale(arch);
    uint64_t hash = 1469598103934665603u;
    snprintf(key, sizeof key, "%s/%d", t->name, seed);
    for (const char *c = key; *c != 0; c++) hash = (hash ^ (uint8_t)*c) * 1099511628211u;
    const int64_t n = tdm_shape_count(t->ne);
    for (int64_t i = 0; i < n; i++) {
        uint64_t z = hash + (uint64_t)(i + 1) * 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        z ^= z >> 31;
        double u = ((double)(z >> 40) / (1 << 23) - 1.0) * sqrt(3.0);
        data[i] = value_of(k, u, t, embedding);
    }
}

/* A table of the experts of each token: neighbours, so that those of a token differ. */
static bool experts_fill(const llm_gguf *g, const char *arch, const llm_gguf_tensor *t,
                         int32_t *data) {
    char name[96];
    uint32_t n_expert = 0;
    tdm_error err = {0};
    snprintf(name, sizeof name, "%s.expert_count", arch);
    if (llm_gguf_get_u32(g, name, LLM_GGUF_REQUIRED, &n_expert, &err) != TDM_OK || n_expert == 0)
        return false;
    for (int64_t i = 0; i < tdm_shape_count(t->ne); i++) {
        const uint64_t token = (uint64_t)(i / t->ne[0]) * 2654435761u;
        data[i] = (int32_t)((token / 7 + (uint64_t)(i % t->ne[0])) % n_expert);
    }
    return true;
}

bool arch_fixture_write(const char *head, const char *name, int seed, const char *path) {
    char arch[64];
    tdm_error err = {0};
    llm_gguf *g = NULL;
    snprintf(arch, sizeof arch, "%s", name);
    char *dash = strrchr(arch, '-');
    if (dash != NULL) *dash = 0;
    size_t size = header_copy(head, path);
    if (size == 0 || llm_gguf_open(path, &g, &err) != TDM_OK) {
        fprintf(stderr, "%s: %s\n", head, size == 0 ? "cannot be read" : err.message);
        return false;
    }
    const uint8_t *first = llm_gguf_tensor_at(g, 0)->data;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    off_t end = (off_t)size;
    bool is_good = fd >= 0;
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g) && is_good; i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(g, i);
        off_t at = (off_t)size + (off_t)((const uint8_t *)t->data - first);
        float *data = malloc(t->size);
        is_good = data != NULL && (t->type == TDM_TYPE_F32 || t->type == TDM_TYPE_I32);
        if (is_good && t->type == TDM_TYPE_F32)
            tensor_fill(t, seed, arch, data);
        else if (is_good)
            is_good = experts_fill(g, arch, t, (int32_t *)(void *)data);
        is_good = is_good && pwrite(fd, data, t->size, at) == (ssize_t)t->size;
        free(data);
        if (at + (off_t)t->size > end) end = at + (off_t)t->size;
    }
    llm_gguf_close(g);
    if (is_good) is_good = ftruncate(fd, end) == 0;
    if (fd >= 0) close(fd);
    return is_good;
}
