/* SPDX-License-Identifier: MIT
 *
 * make_mtp.c: writes a GGUF model again with one more layer, which drafts tokens (MTP, "nextn").
 *
 *   make_mtp IN.gguf OUT.gguf KIND
 *
 * The layer has the weights of the last one that has attention. KIND is one of
 *
 *   random   random projection and norms; embedding, norm and head of the output are the model's
 *   own      the same with an embedding, a norm and a head of its own
 *   still    `own` with blocks that add nothing to the stream
 *   perfect  the layer drafts what the model gives, every time
 *   bare-e   `perfect` with an enorm of ones: what a program computes that leaves its weight out
 *   bare-h   the same with hnorm
 *   swapped  `perfect` with the halves of eh_proj exchanged: of a program with the other order
 *
 * The perfect model: no layer adds anything to the stream. There are N tokens in the middle of the
 * vocabulary of which number i is followed by number f(i) = (i + 7) mod N, and every other token
 * stands for one of them. The embedding of i has 0.8 in element i and 1 in element N + i. The head
 * reads element i alone. So the hidden state of a token determines its successor, and the layer,
 * which has the hidden state of one token and the embedding of the next one, could read either. Of
 * even next tokens it reads the embedding alone, of odd ones the hidden state alone. Elements from
 * N on lead to other tokens, and win unless enorm and hnorm multiply them by 0.1.
 *
 * Where the model has several residual streams of low rank (qwen4exp), hnorm has weights for all of
 * them, and the head of a layer of its own is a mix. Norms of streams are written with one
 * dimension, as converters do.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "llm/gguf/gguf.h"
#include "llm/gguf/gguf_write.h"

enum { N_MAX = 32, STEP = 7, MAX_ADDED = 64 };

typedef struct tensor {
    char name[96];
    int64_t ne[4];
    const llm_gguf_tensor *from; /* its bytes; NULL = `data` */
    float *data;
} tensor;

typedef struct job {
    const llm_gguf *gguf;
    const char *kind;
    char arch[32];
    int32_t n_layer;
    int64_t n_embd, n_vocab, n_cycle;
    int64_t n_stream, n_rank; /* of several residual streams; 1 and 0 = there is one */
    bool is_perfect;
    llm_gguf_writer *w;
    tensor added[MAX_ADDED];
    int n_added;
    uint32_t state;
} job;

static void die(const char *what, const char *why) {
    fprintf(stderr, "make_mtp: %s: %s\n", what, why);
    exit(1);
}

static float *floats(int64_t n) {
    float *data = calloc((size_t)n, sizeof *data);
    if (data == NULL) die("memory", "none left");
    return data;
}

/* In -1 .. 1. */
static float random_next(job *j) {
    j->state = j->state * 1664525u + 1013904223u;
    return (float)(int32_t)j->state / 2147483648.0f;
}

static int64_t successor(const job *j, int64_t i) {
    return (i + STEP) % j->n_cycle;
}

static tensor *add(job *j, const char *suffix, int64_t ne0, int64_t ne1) {
    tensor *t = &j->added[j->n_added++];
    if (j->n_added > MAX_ADDED) die(suffix, "too many tensors");
    *t = (tensor){.ne = {ne0, ne1, 1, 1}, .data = floats(ne0 * ne1)};
    snprintf(t->name, sizeof t->name, "blk.%d.%s.weight", j->n_layer, suffix);
    return t;
}

static void fill(job *j, tensor *t, float mean, float scale) {
    for (int64_t i = 0; i < t->ne[0] * t->ne[1]; i++) t->data[i] = mean + scale * random_next(j);
}

/* A norm that makes elements from the cycle's length on small. */
static void norm_add(job *j, const char *suffix, const char *bare_kind) {
    const int64_t n = j->n_embd * (strcmp(suffix, "nextn.hnorm") == 0 ? j->n_stream : 1);
    tensor *t = add(j, suffix, n, 1);
    if (!j->is_perfect) {
        fill(j, t, 1, 0.3f);
        return;
    }
    for (int64_t i = 0; i < n; i++)
        t->data[i] = i % j->n_embd < j->n_cycle || strcmp(j->kind, bare_kind) == 0 ? 1.0f : 0.1f;
}

static void projection_add(job *j) {
    const int64_t n = j->n_embd, n_cycle = j->n_cycle;
    tensor *t = add(j, "nextn.eh_proj", 2 * n, n);
    if (!j->is_perfect) {
        fill(j, t, 0, 1.7f / 8);
        return;
    }
    const bool is_swapped = strcmp(j->kind, "swapped") == 0;
    for (int64_t i = 0; i < n_cycle; i += 2) {
        const int64_t e = is_swapped ? n : 0, h = is_swapped ? 0 : n, next = successor(j, i);
        t->data[i * 2 * n + e + i] = 1;
        t->data[(i + 2) % n_cycle * 2 * n + e + n_cycle + i] = 1;
        t->data[next * 2 * n + h + i] = 1;
        t->data[(next + 2) % n_cycle * 2 * n + h + n_cycle + i] = 1;
    }
}

/* The tensors of the new layer. */
static void layer_add(job *j) {
    char prefix[32];
    int32_t from = -1;
    for (int32_t l = 0; l < j->n_layer; l++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.attn_output.weight", l);
        if (llm_gguf_tensor_find(j->gguf, name) != NULL) from = l;
    }
    if (from < 0) die("layers", "none has attention");
    int n = snprintf(prefix, sizeof prefix, "blk.%d.", from);
    for (uint32_t i = 0; i < llm_gguf_tensor_count(j->gguf); i++) {
        const llm_gguf_tensor *t = llm_gguf_tensor_at(j->gguf, i);
        if (strncmp(t->name, prefix, (size_t)n) != 0) continue;
        if (j->n_added == MAX_ADDED) die(t->name, "too many tensors");
        tensor *copy = &j->added[j->n_added++];
        copy->from = t;
        memcpy(copy->ne, t->ne, sizeof copy->ne);
        snprintf(copy->name, sizeof copy->name, "blk.%d.%s", j->n_layer, t->name + n);
    }
    projection_add(j);
    norm_add(j, "nextn.enorm", "bare-e");
    norm_add(j, "nextn.hnorm", "bare-h");
    if (strcmp(j->kind, "own") != 0 && strcmp(j->kind, "still") != 0) return;
    fill(j, add(j, "nextn.embed_tokens", j->n_embd, j->n_vocab), 0, 1);
    fill(j, add(j, "nextn.shared_head_head", j->n_embd, j->n_vocab), 0, 0.3f);
    if (j->n_stream == 1) {
        fill(j, add(j, "nextn.shared_head_norm", j->n_embd, 1), 1, 0.3f);
        return;
    }
    const int64_t n_all = j->n_stream * j->n_embd;
    fill(j, add(j, "nextn.hc_head_norm", n_all, 1), 1, 0.3f);
    fill(j, add(j, "nextn.hc_head_down", n_all, j->n_rank), 0, 0.1f);
    fill(j, add(j, "nextn.hc_head_up", j->n_rank, n_all), 0, 1);
}

/* Copies a key. Arrays of numbers with an element for each layer get one more. */
static void key_copy(job *j, const llm_gguf_key *key) {
    uint32_t each[64];
    const bool is_wide = key->type == LLM_GGUF_ARRAY &&
                         (key->array.type == LLM_GGUF_U32 || key->array.type == LLM_GGUF_I32);
    if (!is_wide || key->array.n != (uint64_t)j->n_layer || j->n_layer >= 64) {
        llm_gguf_writer_put_key(j->w, key);
        return;
    }
    memcpy(each, key->array.data, (size_t)j->n_layer * sizeof *each);
    each[j->n_layer] = each[j->n_layer - 1];
    llm_gguf_writer_put_array(j->w, key->name, key->array.type, each, (uint64_t)j->n_layer + 1);
}

static void keys_write(job *j) {
    char count[64], draft[64];
    snprintf(count, sizeof count, "%s.block_count", j->arch);
    snprintf(draft, sizeof draft, "%s.nextn_predict_layers", j->arch);
    for (uint32_t i = 0; i < llm_gguf_key_count(j->gguf); i++) {
        const llm_gguf_key *key = llm_gguf_key_at(j->gguf, i);
        if (llm_gguf_key_find(j->gguf, count) != key && llm_gguf_key_find(j->gguf, draft) != key)
            key_copy(j, key);
    }
    llm_gguf_writer_put_u32(j->w, count, (uint32_t)j->n_layer + 1);
    llm_gguf_writer_put_u32(j->w, draft, 1);
}

/* What the perfect model has instead of a tensor of the file; NULL = the tensor. The caller frees
 * it. */
static float *replaced(const job *j, const char *name) {
    static const char *const silent[] = {"attn_output.", "ffn_down", "ssm_out.", "ple_value.",
                                         "output_hc_up."};
    const llm_gguf_tensor *t = llm_gguf_tensor_find(j->gguf, name);
    const int64_t n = j->n_cycle, first = (j->n_vocab - n) / 2;
    if (!j->is_perfect && strcmp(j->kind, "still") != 0) return NULL;
    const bool is_end =
        strcmp(name, "token_embd.weight") == 0 || strcmp(name, "output.weight") == 0;
    if (j->is_perfect && is_end) {
        float *data = floats(j->n_embd * j->n_vocab);
        for (int64_t id = 0; id < j->n_vocab; id++) {
            const int64_t i = id < first || id >= first + n ? id % n : id - first;
            if (*name == 't')
                data[id * j->n_embd + i] = 0.8f, data[id * j->n_embd + n + i] = 1;
            else if (id >= first && id < first + n)
                data[(first + successor(j, i)) * j->n_embd + i] = 1;
        }
        return data;
    }
    bool is_norm = strcmp(name, "output_norm.weight") == 0, is_silent = false;
    is_norm = is_norm || strcmp(name, "output_hc_norm.weight") == 0;
    for (size_t i = 0; i < sizeof silent / sizeof *silent; i++)
        is_silent = is_silent || strstr(name, silent[i]) != NULL;
    if (t == NULL || (!is_norm && !is_silent)) return NULL;
    const int64_t size = t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3];
    float *data = floats(size);
    for (int64_t i = 0; is_norm && i < size; i++) data[i] = 1;
    return data;
}

/* Tensors of the file, then those added; declared at first (is_data false), written at second. */
static void tensors_write(job *j, bool is_data) {
    tdm_error err = {0};
    const uint32_t n = llm_gguf_tensor_count(j->gguf);
    for (uint32_t i = 0; i < n + (uint32_t)j->n_added; i++) {
        const tensor *own = i < n ? NULL : &j->added[i - n];
        const llm_gguf_tensor *t = own == NULL ? llm_gguf_tensor_at(j->gguf, i) : own->from;
        float *fresh = t != NULL ? replaced(j, t->name) : NULL;
        const float *data = fresh != NULL ? fresh : t == NULL ? own->data : NULL;
        const int64_t *ne = own != NULL ? own->ne : t->ne;
        const size_t count = (size_t)(ne[0] * ne[1] * ne[2] * ne[3]);
        const char *name = own != NULL ? own->name : t->name;
        const int64_t flat[4] = {(int64_t)count, 1, 1, 1};
        const bool is_flat = j->n_stream > 1 && strstr(name, "norm") != NULL;
        if (!is_data)
            llm_gguf_writer_add_tensor(j->w, name, data != NULL ? TDM_TYPE_F32 : t->type,
                                       is_flat     ? 1
                                       : t != NULL ? t->n_dims
                                       : ne[1] > 1 ? 2
                                                   : 1,
                                       is_flat ? flat : ne);
        else if (llm_gguf_writer_write(j->w, data != NULL ? (const void *)data : t->data,
                                       data != NULL ? count * sizeof *data : t->size,
                                       &err) != TDM_OK)
            die("writing", err.message);
        free(fresh);
    }
}

int main(int argc, char **argv) {
    static const char *const kinds[] = {"random", "own",    "still",  "perfect",
                                        "bare-e", "bare-h", "swapped"};
    static job j = {.state = 1};
    tdm_error err = {0};
    llm_gguf *gguf = NULL;
    llm_gguf_str arch;
    char name[64];
    bool is_known = false;
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && argc == 4; i++)
        is_known = is_known || strcmp(argv[3], kinds[i]) == 0;
    if (!is_known)
        die("usage", "make_mtp IN.gguf OUT.gguf random|own|still|perfect|bare-e|bare-h|swapped");
    if (llm_gguf_open(argv[1], &gguf, &err) != TDM_OK ||
        llm_gguf_get_str(gguf, "general.architecture", LLM_GGUF_REQUIRED, &arch, &err) != TDM_OK)
        die(argv[1], err.message);
    j.gguf = gguf;
    j.kind = argv[3];
    j.is_perfect =
        strcmp(j.kind, "random") != 0 && strcmp(j.kind, "own") != 0 && strcmp(j.kind, "still") != 0;
    snprintf(j.arch, sizeof j.arch, "%.*s", (int)arch.len, arch.ptr);
    snprintf(name, sizeof name, "%s.block_count", j.arch);
    uint32_t n_layer = 0;
    if (llm_gguf_get_u32(gguf, name, LLM_GGUF_REQUIRED, &n_layer, &err) != TDM_OK)
        die(argv[1], err.message);
    j.n_layer = (int32_t)n_layer;
    uint32_t n_stream = 1, n_rank = 0;
    snprintf(name, sizeof name, "%s.hyper_connection.low_rank", j.arch);
    if (llm_gguf_get_u32(gguf, name, LLM_GGUF_OPTIONAL, &n_rank, &err) != TDM_OK)
        die(argv[1], err.message);
    snprintf(name, sizeof name, "%s.hyper_connection.count", j.arch);
    if (n_rank > 0 && llm_gguf_get_u32(gguf, name, LLM_GGUF_REQUIRED, &n_stream, &err) != TDM_OK)
        die(argv[1], err.message);
    j.n_stream = n_stream;
    j.n_rank = n_rank;
    const llm_gguf_tensor *embd = llm_gguf_tensor_find(gguf, "token_embd.weight");
    if (embd == NULL) die(argv[1], "it has no token_embd.weight");
    j.n_embd = embd->ne[0];
    j.n_vocab = embd->ne[1];
    j.n_cycle = j.n_embd / 2 < N_MAX ? j.n_embd / 2 : N_MAX;
    if (j.n_cycle % 2 != 0 || j.n_vocab < j.n_cycle) die(argv[1], "it is too small");
    layer_add(&j);
    if (j.is_perfect && llm_gguf_tensor_find(gguf, "output.weight") == NULL) {
        tensor *t = &j.added[j.n_added++];
        *t = (tensor){.ne = {j.n_embd, j.n_vocab, 1, 1}, .data = replaced(&j, "output.weight")};
        snprintf(t->name, sizeof t->name, "output.weight");
    }
    if (llm_gguf_writer_create(argv[2], &j.w, &err) != TDM_OK) die(argv[2], err.message);
    keys_write(&j);
    tensors_write(&j, false);
    tensors_write(&j, true);
    if (llm_gguf_writer_finish(j.w, &err) != TDM_OK) die(argv[2], err.message);
    llm_gguf_writer_destroy(j.w);
    for (int i = 0; i < j.n_added; i++) free(j.added[i].data);
    llm_gguf_close(gguf);
    return 0;
}
