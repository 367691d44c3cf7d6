/* SPDX-License-Identifier: MIT
 *
 * random_model.c: see random_model.h. Tensor names and keys are those that llama.cpp's
 * architectures "llama", "deepseek2" and "cohere2" have (ggml-org/llama.cpp,
 * gguf-py/gguf/constants.py).
 *
 * Weights: w[row][col] = scale * g(hash(seed, name, row) + col), g close to a standard normal.
 * scale = 1 / sqrt(row length) gives a product the size of its input. Matrices that add to the
 * residual stream are smaller by sqrt(2 * layers), as in GPT-2 (Radford et al., 2019, section 2.3),
 * and an embedding that is not the output head has scale 1. So the stream dominates, as in a
 * trained model, and rounding errors grow no faster than in one.
 */
#include "bench/random_model.h"

#include <inttypes.h>
#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "bench/random_row.h"
#include "bench/retrieval.h"
#include "llm/gguf/gguf_write.h"

#define THREADS_MAX 64
#define CHUNK_SIZE  ((int64_t)4 << 20) /* bytes written at a time; bounds memory */

/* ---- The tensors of a spec ---- */

typedef enum weight_kind {
    WEIGHT_MATRIX,
    WEIGHT_ROUTER, /* kept in f32, as converters do: small differences decide the routing */
    WEIGHT_NORM,
    WEIGHT_BIAS, /* of a matrix or the router */
    WEIGHT_ROPE_FREQS,
} weight_kind;

typedef struct weight {
    char name[64];
    const char *short_name; /* without the layer */
    int64_t layer;          /* -1: not in a layer */
    weight_kind kind;
    float scale;               /* standard deviation of the weights of a matrix */
    tdm_type type, round_type; /* stored; values are first rounded to it (F32 = they are not) */
    int32_t n_dims;
    int64_t ne[3];
} weight;

typedef struct weight_list {
    weight *items;
    int64_t n, size;
    bool is_short_of_memory;
} weight_list;

/* `type` if rows are whole blocks of it; else q8_0 if they are whole blocks of that; else f16. */
static tdm_type type_for_rows(tdm_type type, int64_t row) {
    if (row % tdm_type_get_info(type).block_len == 0) return type;
    return row % tdm_type_get_info(TDM_TYPE_Q8_0).block_len == 0 ? TDM_TYPE_Q8_0 : TDM_TYPE_F16;
}

/* Appends a weight. `layer` -1 = it is in no layer. ne1 or ne2 of 0 = it has fewer dimensions. */
static void list_add(weight_list *list, const random_model_spec *spec, int64_t layer,
                     const char *name, weight_kind kind, int64_t ne0, int64_t ne1, int64_t ne2) {
    if (list->n == list->size) {
        int64_t grown_size = list->size == 0 ? 64 : list->size * 2;
        weight *grown = realloc(list->items, (size_t)grown_size * sizeof *grown);
        if (grown == NULL) {
            list->is_short_of_memory = true;
            return;
        }
        list->items = grown;
        list->size = grown_size;
    }
    weight *w = &list->items[list->n++];
    *w = (weight){.short_name = name,
                  .layer = layer,
                  .kind = kind,
                  .scale = 1.0f / sqrtf((float)ne0),
                  .type = TDM_TYPE_F32,
                  .round_type = TDM_TYPE_F32,
                  .n_dims = ne1 == 0   ? 1
                            : ne2 == 0 ? 2
                                       : 3,
                  .ne = {ne0, ne1 == 0 ? 1 : ne1, ne2 == 0 ? 1 : ne2}};
    if (layer < 0)
        snprintf(w->name, sizeof w->name, "%s", name);
    else
        snprintf(w->name, sizeof w->name, "blk.%" PRId64 ".%s", layer, name);
    if (kind == WEIGHT_MATRIX) {
        if (spec->sharpness > 0) w->scale = 1;
        w->type = type_for_rows(spec->type, ne0);
        w->round_type = type_for_rows(spec->round_type, ne0);
    }
}

/* Appends a matrix whose product is added to the residual stream. */
static void list_add_branch(weight_list *list, const random_model_spec *spec, int64_t layer,
                            const char *name, int64_t ne0, int64_t ne1, int64_t ne2) {
    list_add(list, spec, layer, name, WEIGHT_MATRIX, ne0, ne1, ne2);
    if (!list->is_short_of_memory && spec->sharpness == 0)
        list->items[list->n - 1].scale = 1.0f / sqrtf((float)ne0 * 2.0f * (float)spec->n_layer);
}

/* Appends gate, up and down of a feed-forward block; n = number of experts, 0 = plain matrices. */
static void list_add_ffn(weight_list *list, const random_model_spec *s, int64_t layer,
                         const char *const names[3], int64_t n_ff, int64_t n) {
    list_add(list, s, layer, names[0], WEIGHT_MATRIX, s->n_embd, n_ff, n);
    list_add(list, s, layer, names[1], WEIGHT_MATRIX, s->n_embd, n_ff, n);
    list_add_branch(list, s, layer, names[2], n_ff, s->n_embd, n);
}

static void list_add_attention(weight_list *list, const random_model_spec *s, int64_t l) {
    const int64_t q_width = s->n_head * s->head_dim, kv_width = s->n_head_kv * s->head_dim;
    list_add(list, s, l, "attn_q.weight", WEIGHT_MATRIX, s->n_embd, q_width, 0);
    list_add(list, s, l, "attn_k.weight", WEIGHT_MATRIX, s->n_embd, kv_width, 0);
    list_add(list, s, l, "attn_v.weight", WEIGHT_MATRIX, s->n_embd, kv_width, 0);
    list_add_branch(list, s, l, "attn_output.weight", q_width, s->n_embd, 0);
    if (!s->has_biases) return;
    list_add(list, s, l, "attn_q.bias", WEIGHT_BIAS, q_width, 0, 0);
    list_add(list, s, l, "attn_k.bias", WEIGHT_BIAS, kv_width, 0, 0);
    list_add(list, s, l, "attn_v.bias", WEIGHT_BIAS, kv_width, 0, 0);
    list_add(list, s, l, "attn_output.bias", WEIGHT_BIAS, s->n_embd, 0, 0);
    if (s->n_expert > 0) return;
    list_add(list, s, l, "ffn_gate.bias", WEIGHT_BIAS, s->n_ff, 0, 0);
    list_add(list, s, l, "ffn_up.bias", WEIGHT_BIAS, s->n_ff, 0, 0);
    list_add(list, s, l, "ffn_down.bias", WEIGHT_BIAS, s->n_embd, 0, 0);
}

static void list_add_latent_attention(weight_list *list, const random_model_spec *s, int64_t l) {
    const random_model_latent *t = &s->latent;
    const int64_t q_width = s->n_head * s->head_dim, row = t->n_lora_kv + t->n_rot;
    if (t->n_lora_q > 0) {
        list_add(list, s, l, "attn_q_a.weight", WEIGHT_MATRIX, s->n_embd, t->n_lora_q, 0);
        list_add(list, s, l, "attn_q_a_norm.weight", WEIGHT_NORM, t->n_lora_q, 0, 0);
        list_add(list, s, l, "attn_q_b.weight", WEIGHT_MATRIX, t->n_lora_q, q_width, 0);
    } else {
        list_add(list, s, l, "attn_q.weight", WEIGHT_MATRIX, s->n_embd, q_width, 0);
    }
    list_add(list, s, l, "attn_kv_a_mqa.weight", WEIGHT_MATRIX, s->n_embd, row, 0);
    list_add(list, s, l, "attn_kv_a_norm.weight", WEIGHT_NORM, t->n_lora_kv, 0, 0);
    list_add(list, s, l, "attn_k_b.weight", WEIGHT_MATRIX, s->head_dim - t->n_rot, t->n_lora_kv,
             s->n_head);
    list_add(list, s, l, "attn_v_b.weight", WEIGHT_MATRIX, t->n_lora_kv, t->head_dim_v, s->n_head);
    list_add_branch(list, s, l, "attn_output.weight", s->n_head * t->head_dim_v, s->n_embd, 0);
}

static void list_fill(weight_list *list, const random_model_spec *s) {
    static const char *const dense[] = {"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"};
    static const char *const experts[] = {"ffn_gate_exps.weight", "ffn_up_exps.weight",
                                          "ffn_down_exps.weight"};
    static const char *const shared[] = {"ffn_gate_shexp.weight", "ffn_up_shexp.weight",
                                         "ffn_down_shexp.weight"};
    const random_model_latent *t = &s->latent;
    const bool is_latent = t->n_lora_kv > 0;
    list_add(list, s, -1, "token_embd.weight", WEIGHT_MATRIX, s->n_embd, s->n_vocab, 0);
    if (!s->is_tied && !list->is_short_of_memory) list->items[list->n - 1].scale = 1.0f;
    if (s->rope == RANDOM_MODEL_ROPE_LLAMA3)
        list_add(list, s, -1, "rope_freqs.weight", WEIGHT_ROPE_FREQS, s->head_dim / 2, 0, 0);
    for (int64_t l = 0; l < s->n_layer; ++l) {
        list_add(list, s, l, "attn_norm.weight", WEIGHT_NORM, s->n_embd, 0, 0);
        if (is_latent)
            list_add_latent_attention(list, s, l);
        else
            list_add_attention(list, s, l);
        if (s->n_window == 0) list_add(list, s, l, "ffn_norm.weight", WEIGHT_NORM, s->n_embd, 0, 0);
        if (s->n_expert == 0 || l < t->n_layer_dense) {
            list_add_ffn(list, s, l, dense, s->n_ff, 0);
            continue;
        }
        list_add(list, s, l, "ffn_gate_inp.weight", WEIGHT_ROUTER, s->n_embd, s->n_expert, 0);
        if (t->is_sigmoid) list_add(list, s, l, "exp_probs_b.bias", WEIGHT_BIAS, s->n_expert, 0, 0);
        list_add_ffn(list, s, l, experts, is_latent ? t->n_ff_expert : s->n_ff, s->n_expert);
        if (t->n_expert_shared > 0)
            list_add_ffn(list, s, l, shared, t->n_ff_expert * t->n_expert_shared, 0);
    }
    list_add(list, s, -1, "output_norm.weight", WEIGHT_NORM, s->n_embd, 0, 0);
    if (!s->is_tied)
        list_add(list, s, -1, "output.weight", WEIGHT_MATRIX, s->n_embd, s->n_vocab, 0);
}

static void facts_fill(random_model_facts *facts, const random_model_spec *spec,
                       const weight_list *list) {
    memset(facts, 0, sizeof *facts);
    for (int64_t i = 0; i < list->n; ++i) {
        const weight *w = &list->items[i];
        const int64_t n_row = w->ne[1] * w->ne[2];
        facts->n_param += w->ne[0] * n_row;
        facts->size += (int64_t)tdm_type_row_size(w->type, w->ne[0]) * n_row;
        if (w->kind != WEIGHT_MATRIX || w->type == spec->type) continue;
        if (facts->n_fallback++ > 0) continue;
        facts->fallback_name = w->short_name;
        facts->fallback_type = w->type;
        facts->fallback_row = w->ne[0];
    }
}

/* ---- Values of rope_freqs ---- */

/* Factors by which frequencies are divided, as in Llama 3.1: rope_factor for long waves, 1 for
 * short ones, with a ramp between them (meta-llama/llama-models, models/llama3/reference_impl, and
 * the rope_scaling of its config.json: low 1, high 4). */
static void rope_freqs_fill(float *dst, const random_model_spec *spec) {
    if (spec->sharpness > 0) { /* the upper half of a head does not rotate (retrieval.h) */
        for (int64_t i = 0; i < spec->head_dim / 2; ++i)
            dst[i] = i < spec->head_dim / 4 ? 1.0f : 1e30f;
        return;
    }
    const double low = 1, high = 4, n_old = (double)spec->n_ctx / spec->rope_factor;
    for (int64_t i = 0; i < spec->head_dim / 2; ++i) {
        const double exponent = 2.0 * (double)i / (double)spec->head_dim;
        const double wave = 6.283185307179586 * pow(spec->rope_base, exponent);
        double ramp = (n_old / wave - low) / (high - low);
        ramp = ramp < 0 ? 0 : ramp > 1 ? 1 : ramp;
        dst[i] = (float)(1 / ((1 - ramp) / spec->rope_factor + ramp));
    }
}

/* ---- Rows, made by several threads ---- */

typedef struct row_job {
    const random_model_spec *spec;
    const weight *w;
    int64_t row_begin, row_end; /* rows of the tensor */
    uint8_t *dst;               /* where row_begin goes */
    float *row;                 /* scratch: the values of one row */
    uint8_t *blocks;            /* scratch: one row in round_type */
    tdm_status status;
} row_job;

static void *row_job_run(void *arg) {
    row_job *job = arg;
    const weight *w = job->w;
    const int64_t n = w->ne[0];
    const size_t row_size = tdm_type_row_size(w->type, n);
    const uint64_t key = random_hash_text((uint64_t)job->spec->seed, w->name);
    uint8_t *dst = job->dst;
    for (int64_t r = job->row_begin; r < job->row_end; ++r, dst += row_size) {
        if (w->kind == WEIGHT_ROPE_FREQS)
            rope_freqs_fill(job->row, job->spec);
        else if (w->kind == WEIGHT_NORM)
            random_row_fill(job->row, n, key, 1.0f, job->spec->sharpness > 0 ? 0.0f : 0.1f);
        else if (w->kind == WEIGHT_BIAS)
            random_row_fill(job->row, n, key, 0.0f, 0.1f);
        else
            random_row_fill(job->row, n, random_hash_mix(key + (uint64_t)r), 0.0f, w->scale);
        if (job->spec->sharpness > 0 && w->kind == WEIGHT_MATRIX)
            retrieval_row_make(job->spec, w->short_name, w->layer, r, job->row, n);
        if (w->round_type != TDM_TYPE_F32) {
            job->status = tdm_row_quantize(w->round_type, job->row, job->blocks, n, NULL);
            if (job->status == TDM_OK)
                job->status = tdm_row_dequantize(w->round_type, job->blocks, job->row, n);
            if (job->status != TDM_OK) return NULL;
        }
        job->status = tdm_row_quantize(w->type, job->row, dst, n, NULL);
        if (job->status != TDM_OK) return NULL;
    }
    return NULL;
}

/* Makes rows [begin, end) of a weight in dst, divided among n_thread threads, of which this is
 * one. */
static tdm_status rows_make(row_job *jobs, int64_t n_thread, const weight *w, int64_t begin,
                            int64_t end, uint8_t *dst, tdm_error *err) {
    const size_t row_size = tdm_type_row_size(w->type, w->ne[0]);
    const int64_t n = end - begin;
    pthread_t threads[THREADS_MAX];
    bool is_running[THREADS_MAX] = {false};
    for (int64_t t = 0; t < n_thread; ++t) {
        row_job *job = &jobs[t];
        job->w = w;
        job->row_begin = begin + n * t / n_thread;
        job->row_end = begin + n * (t + 1) / n_thread;
        job->dst = dst + (size_t)(job->row_begin - begin) * row_size;
        job->status = TDM_OK;
        /* A single row is not worth a thread. Rows for which no thread can be created are made
         * here. */
        if (t + 1 < n_thread && n > 1)
            is_running[t] = pthread_create(&threads[t], NULL, row_job_run, job) == 0;
        if (!is_running[t]) row_job_run(job);
    }
    tdm_status status = TDM_OK;
    for (int64_t t = 0; t < n_thread; ++t) {
        if (is_running[t]) pthread_join(threads[t], NULL);
        if (jobs[t].status != TDM_OK) status = jobs[t].status;
    }
    if (status == TDM_OK) return TDM_OK;
    return tdm_fail(err, status, "tensor '%s': rows of %" PRId64 " cannot be made in type %s",
                    w->name, w->ne[0], tdm_type_name(w->type));
}

/* ---- The vocabulary ---- */

#define VOCAB_SPECIAL 3                     /* <unk> <s> </s> */
#define VOCAB_BYTES   (VOCAB_SPECIAL + 256) /* with <0x00> to <0xFF> */
#define VOCAB_MAX     400000
#define VOCAB_SPACE   "\xe2\x96\x81" /* U+2581, SentencePiece's space */

/* Piece i behind the byte tokens: the space, printable characters, then all words of one to four
 * small letters, each with and without a space before it. All pieces are different, and with the
 * bytes any text can be encoded. */
static void vocab_piece(int64_t i, char *text, size_t text_size) {
    if (i == 0) {
        snprintf(text, text_size, VOCAB_SPACE);
        return;
    }
    i -= 1;
    if (i < 94) {
        snprintf(text, text_size, "%c", (int)('!' + i));
        return;
    }
    i -= 94;
    int64_t n_words = 26;
    for (int len = 1; len <= 4; ++len, n_words *= 26) {
        for (int with_space = 1; with_space >= 0; --with_space) {
            if (len == 1 && with_space == 0) continue; /* a single letter is there already */
            if (i >= n_words) {
                i -= n_words;
                continue;
            }
            char word[5] = {0};
            for (int c = len - 1; c >= 0; --c, i /= 26) word[c] = (char)('a' + i % 26);
            snprintf(text, text_size, "%s%s", with_space ? VOCAB_SPACE : "", word);
            return;
        }
    }
    text[0] = '\0';
}

static tdm_status vocab_put(llm_gguf_writer *writer, int64_t n, tdm_error *err) {
    enum { PIECE_SIZE = 16, NORMAL = 1, UNKNOWN = 2, CONTROL = 3, BYTE = 6 };
    char(*text)[PIECE_SIZE] = malloc((size_t)n * sizeof *text);
    llm_gguf_str *pieces = malloc((size_t)n * sizeof *pieces);
    float *scores = malloc((size_t)n * sizeof *scores);
    int32_t *kinds = malloc((size_t)n * sizeof *kinds);
    tdm_status status = TDM_OK;
    if (text == NULL || pieces == NULL || scores == NULL || kinds == NULL) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED,
                          "not enough memory for a vocabulary of %" PRId64, n);
    } else {
        static const char *const special[VOCAB_SPECIAL] = {"<unk>", "<s>", "</s>"};
        for (int64_t i = 0; i < n; ++i) {
            kinds[i] = i == 0 ? UNKNOWN : i < VOCAB_SPECIAL ? CONTROL : BYTE;
            scores[i] = 0;
            if (i < VOCAB_SPECIAL) {
                snprintf(text[i], PIECE_SIZE, "%s", special[i]);
            } else if (i < VOCAB_BYTES) {
                snprintf(text[i], PIECE_SIZE, "<0x%02X>", (unsigned)(i - VOCAB_SPECIAL));
            } else {
                vocab_piece(i - VOCAB_BYTES, text[i], PIECE_SIZE);
                kinds[i] = NORMAL;
                scores[i] = -(float)(i - VOCAB_BYTES); /* SentencePiece: the rank, negated */
            }
            pieces[i] = (llm_gguf_str){text[i], strlen(text[i])};
        }
        llm_gguf_writer_put_text(writer, "tokenizer.ggml.model", "llama");
        llm_gguf_writer_put_text(writer, "tokenizer.ggml.pre", "default");
        llm_gguf_writer_put_strings(writer, "tokenizer.ggml.tokens", pieces, (uint64_t)n);
        llm_gguf_writer_put_array(writer, "tokenizer.ggml.scores", LLM_GGUF_F32, scores,
                                  (uint64_t)n);
        llm_gguf_writer_put_array(writer, "tokenizer.ggml.token_type", LLM_GGUF_I32, kinds,
                                  (uint64_t)n);
        llm_gguf_writer_put_u32(writer, "tokenizer.ggml.bos_token_id", 1);
        llm_gguf_writer_put_u32(writer, "tokenizer.ggml.eos_token_id", 2);
        llm_gguf_writer_put_u32(writer, "tokenizer.ggml.unknown_token_id", 0);
        llm_gguf_writer_put_bool(writer, "tokenizer.ggml.add_bos_token", true);
        llm_gguf_writer_put_bool(writer, "tokenizer.ggml.add_eos_token", false);
    }
    free(text);
    free(pieces);
    free(scores);
    free(kinds);
    return status;
}

/* ---- Keys ---- */

/* general.file_type: `enum llama_ftype` (ggml-org/llama.cpp, include/llama.h). */
static uint32_t file_type_of(tdm_type type) {
    switch ((int)type) {
    case TDM_TYPE_F32: return 0;
    case TDM_TYPE_F16: return 1;
    case TDM_TYPE_Q4_0: return 2;
    case TDM_TYPE_Q4_1: return 3;
    case TDM_TYPE_Q8_0: return 7;
    case TDM_TYPE_Q5_0: return 8;
    case TDM_TYPE_Q5_1: return 9;
    case TDM_TYPE_Q2_K: return 10;
    case TDM_TYPE_Q3_K: return 11;
    case TDM_TYPE_Q4_K: return 14;
    case TDM_TYPE_Q5_K: return 16;
    case TDM_TYPE_Q6_K: return 18;
    case TDM_TYPE_IQ2_XXS: return 19;
    case TDM_TYPE_IQ2_XS: return 20;
    case TDM_TYPE_IQ3_XXS: return 23;
    case TDM_TYPE_IQ1_S: return 24;
    case TDM_TYPE_IQ4_NL: return 25;
    case TDM_TYPE_IQ3_S: return 26;
    case TDM_TYPE_IQ2_S: return 28;
    case TDM_TYPE_IQ4_XS: return 30;
    case TDM_TYPE_IQ1_M: return 31;
    case TDM_TYPE_BF16: return 32;
    case TDM_TYPE_TQ1_0: return 36;
    case TDM_TYPE_TQ2_0: return 37;
    case TDM_TYPE_MXFP4: return 38;
    case TDM_TYPE_NVFP4: return 39;
    default: return 1024; /* "guessed" */
    }
}

typedef struct key {
    const char *name; /* behind "ARCHITECTURE." */
    int64_t value;
} key;

static void key_name(char name[96], const char *arch, const char *suffix) {
    snprintf(name, 96, "%s.%s", arch, suffix);
}

static void key_put_f32(llm_gguf_writer *writer, const char *arch, const char *suffix, float x) {
    char name[96];
    key_name(name, arch, suffix);
    llm_gguf_writer_put_f32(writer, name, x);
}

/* Writes the keys whose value is above 0. */
static void keys_put_positive(llm_gguf_writer *writer, const char *arch, const key *keys,
                              size_t n) {
    char name[96];
    for (size_t i = 0; i < n; ++i) {
        if (keys[i].value <= 0) continue;
        key_name(name, arch, keys[i].name);
        llm_gguf_writer_put_u32(writer, name, (uint32_t)keys[i].value);
    }
}

/* expert_gating_func: 1 is a softmax, 2 the sigmoid (`llama_expert_gating_func_type` in
 * ggml-org/llama.cpp, src/llama-hparams.h). */
static void keys_put_latent(llm_gguf_writer *writer, const random_model_spec *s) {
    const random_model_latent *t = &s->latent;
    const key keys[] = {
        {"attention.kv_lora_rank", t->n_lora_kv},
        {"attention.key_length_mla", s->head_dim},
        {"attention.value_length_mla", t->head_dim_v},
        {"leading_dense_block_count", t->n_layer_dense},
        {"expert_feed_forward_length", t->n_ff_expert},
        {"expert_shared_count", t->n_expert_shared},
        {"expert_group_count", t->n_group},
        {"expert_group_used_count", t->n_group_used},
        {"expert_gating_func", t->is_sigmoid ? 2 : 1},
    };
    keys_put_positive(writer, "deepseek2", keys, sizeof keys / sizeof *keys);
    /* Always written, also 0: without this key, llama.cpp reads the smaller variant, which has no
     * such matrices, only at some numbers of layers. */
    llm_gguf_writer_put_u32(writer, "deepseek2.attention.q_lora_rank", (uint32_t)t->n_lora_q);
    key_put_f32(writer, "deepseek2", "expert_weights_scale", t->expert_scale);
    llm_gguf_writer_put_bool(writer, "deepseek2.expert_weights_norm", t->is_sigmoid);
    if (s->rope == RANDOM_MODEL_ROPE_YARN) /* a tenth of DeepSeek-V2's mscale_all_dim */
        key_put_f32(writer, "deepseek2", "rope.scaling.yarn_log_multiplier", 0.0707f);
}

static void keys_put(llm_gguf_writer *writer, const random_model_spec *s) {
    const random_model_latent *t = &s->latent;
    const bool is_latent = t->n_lora_kv > 0;
    const char *arch = is_latent ? "deepseek2" : s->n_window > 0 ? "cohere2" : "llama";
    char name[96];
    const key keys[] = {
        {"context_length", s->n_ctx},
        {"embedding_length", s->n_embd},
        {"block_count", s->n_layer},
        {"feed_forward_length", s->n_ff},
        {"attention.head_count", s->n_head},
        {"attention.head_count_kv", s->n_head_kv},
        {"attention.key_length", is_latent ? t->n_lora_kv + t->n_rot : s->head_dim},
        {"attention.value_length", is_latent ? t->n_lora_kv : s->head_dim},
        {"rope.dimension_count", is_latent ? t->n_rot : s->head_dim},
        {"vocab_size", s->n_vocab},
        {"expert_count", s->n_expert},
        {"expert_used_count", s->n_expert_used},
        {"attention.sliding_window", s->n_window},
    };
    llm_gguf_writer_put_text(writer, "general.architecture", arch);
    llm_gguf_writer_put_text(writer, "general.name", s->name);
    llm_gguf_writer_put_u32(writer, "general.file_type", file_type_of(s->type));
    llm_gguf_writer_put_u32(writer, "general.quantization_version", 2);
    keys_put_positive(writer, arch, keys, sizeof keys / sizeof *keys);
    key_put_f32(writer, arch,
                s->n_window > 0 ? "attention.layer_norm_epsilon"
                                : "attention.layer_norm_rms_epsilon",
                1e-5f);
    if (s->n_window > 0) key_put_f32(writer, arch, "logit_scale", 1);
    key_put_f32(writer, arch, "rope.freq_base", s->rope_base);
    if (is_latent) keys_put_latent(writer, s);
    if (s->sharpness > 0)
        llm_gguf_writer_put_u32(writer, RANDOM_MODEL_CLASS_KEY, (uint32_t)retrieval_class_size(s));
    if (s->rope != RANDOM_MODEL_ROPE_LINEAR && s->rope != RANDOM_MODEL_ROPE_YARN) return;
    key_name(name, arch, "rope.scaling.type");
    llm_gguf_writer_put_text(writer, name, s->rope == RANDOM_MODEL_ROPE_YARN ? "yarn" : "linear");
    key_put_f32(writer, arch, "rope.scaling.factor", s->rope_factor);
    key_name(name, arch, "rope.scaling.original_context_length");
    llm_gguf_writer_put_u32(writer, name, (uint32_t)((float)s->n_ctx / s->rope_factor));
}

/* ---- The file ---- */

typedef struct range {
    const char *name;
    int64_t value, low, high;
} range;

static tdm_status ranges_check(const range *ranges, size_t n, tdm_error *err) {
    for (size_t i = 0; i < n; ++i)
        if (ranges[i].value < ranges[i].low || ranges[i].value > ranges[i].high)
            return tdm_fail(err, TDM_INVALID_ARGUMENT,
                            "%s is %" PRId64 ", but must be from %" PRId64 " to %" PRId64,
                            ranges[i].name, ranges[i].value, ranges[i].low, ranges[i].high);
    return TDM_OK;
}

/* Checks a model with latent attention. */
static tdm_status latent_check(const random_model_spec *s, tdm_error *err) {
    const random_model_latent *t = &s->latent;
    const range ranges[] = {
        {"kv-lora", t->n_lora_kv, 1, 65536},
        {"q-lora", t->n_lora_q, 0, 65536},
        {"rot", t->n_rot, 2, s->head_dim - 1},
        {"heads-kv", s->n_head_kv, 1, 1},
        {"head-dim-v", t->head_dim_v, 1, 1024},
        {"layers-dense", t->n_layer_dense, 0, s->n_layer},
        {"experts", s->n_expert, 1, 1024},
        {"ff-expert", t->n_ff_expert, 1, 1 << 20},
        {"experts-shared", t->n_expert_shared, 0, 64},
        {"groups", t->n_group, 0, s->n_expert},
        {"groups-used", t->n_group_used, t->n_group > 0, t->n_group},
    };
    tdm_status status = ranges_check(ranges, sizeof ranges / sizeof *ranges, err);
    if (status != TDM_OK) return status;
    if (t->n_rot % 2 != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "rot is %" PRId64 ", but must be even",
                        t->n_rot);
    if (t->n_group > 0 && (s->n_expert % t->n_group != 0 ||
                           s->n_expert / t->n_group * t->n_group_used < s->n_expert_used))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "groups is %" PRId64 ", but must divide experts, %" PRId64
                        ", and those used must hold experts-used",
                        t->n_group, s->n_expert);
    if (s->has_biases)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "biases are set, but a model with latent attention has none");
    if (s->rope == RANDOM_MODEL_ROPE_LLAMA3)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "rope-scaling is llama3, but must be another with latent attention");
    return TDM_OK;
}

/* Checks a spec. The bounds keep every product of sizes far inside an int64. */
static tdm_status spec_check(const random_model_spec *s, tdm_error *err) {
    const range ranges[] = {
        {"layers", s->n_layer, 1, 1024},
        {"width", s->n_embd, 2, 65536},
        {"heads", s->n_head, 1, 1024},
        {"heads-kv", s->n_head_kv, 1, s->n_head},
        {"head-dim", s->head_dim, 2, 1024},
        {"ff", s->n_ff, 1, 1 << 20},
        {"vocab", s->n_vocab, VOCAB_BYTES, VOCAB_MAX},
        {"ctx", s->n_ctx, 1, 1 << 24},
        {"experts", s->n_expert, 0, 1024},
        {"experts-used", s->n_expert_used, s->n_expert > 0, s->n_expert},
        {"seed", s->seed, 0, INT64_MAX},
        {"window", s->n_window, 0, 1 << 24},
        {"threads", s->n_thread, 1, THREADS_MAX},
    };
    tdm_status status = ranges_check(ranges, sizeof ranges / sizeof *ranges, err);
    if (status != TDM_OK) return status;
    if (s->n_head % s->n_head_kv != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "heads is %" PRId64 ", but must be a multiple of heads-kv, %" PRId64,
                        s->n_head, s->n_head_kv);
    if (s->head_dim % 2 != 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "head-dim is %" PRId64 ", but must be even",
                        s->head_dim);
    if (!(s->rope_base > 1 && s->rope_base < 1e12f))
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "rope-base is %g, but must be above 1",
                        s->rope_base);
    if (!(s->rope_factor >= 1 && s->rope_factor <= (float)s->n_ctx))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "rope-factor is %g, but must be from 1 to the context length",
                        s->rope_factor);
    const tdm_type types[] = {s->type, s->round_type};
    for (size_t i = 0; i < 2; ++i)
        if (tdm_row_codec_get(types[i]).quantize == NULL)
            return tdm_fail(err, TDM_INVALID_ARGUMENT, "weights cannot have type %s",
                            tdm_type_name(types[i]));
    if (s->n_window > 0 && (s->sharpness == 0 || !s->is_tied))
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "window is %" PRId64 ", but only a tied retrieval model has one",
                        s->n_window);
    if (s->has_same_layers && s->sharpness > 0)
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "the layers of a retrieval model differ: they cannot be the same");
    if (s->latent.n_lora_kv > 0) status = latent_check(s, err);
    return status == TDM_OK && s->sharpness != 0 ? retrieval_check(s, err) : status;
}

/* With has_same_layers: the bytes of a weight of layer 0, which the other layers repeat. */
typedef struct kept_weight {
    const weight *w;
    uint8_t *bytes;
    size_t size, n_filled;
} kept_weight;

/* The kept weight of layer 0 with the same name; NULL = none, or `w` is in no layer. */
static kept_weight *kept_find(kept_weight *kept, int64_t n_kept, const weight *w) {
    for (int64_t i = 0; i < n_kept && w->layer >= 0; ++i)
        if (strcmp(kept[i].w->short_name, w->short_name) == 0) return &kept[i];
    return NULL;
}

/* Allocates copies of the weights of layer 0. Call kept_free in any case, also on failure. */
static tdm_status kept_create(const weight_list *list, kept_weight **kept_out, int64_t *n_out,
                              tdm_error *err) {
    kept_weight *kept = calloc((size_t)list->n + 1, sizeof *kept);
    int64_t n = 0;
    *n_out = 0;
    *kept_out = kept;
    for (int64_t i = 0; kept != NULL && i < list->n; ++i) {
        const weight *w = &list->items[i];
        if (w->layer != 0) continue;
        const size_t size =
            tdm_type_row_size(w->type, w->ne[0]) * (size_t)w->ne[1] * (size_t)w->ne[2];
        kept[n] = (kept_weight){.w = w, .bytes = malloc(size), .size = size};
        *n_out = ++n;
        if (kept[n - 1].bytes == NULL) kept = NULL;
    }
    if (kept != NULL) return TDM_OK;
    return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "not enough memory for the weights of a layer");
}

static void kept_free(kept_weight *kept, int64_t n_kept) {
    for (int64_t i = 0; i < n_kept; ++i) free(kept[i].bytes);
    free(kept);
}

static tdm_status weights_write(llm_gguf_writer *writer, const random_model_spec *spec,
                                const weight_list *list, int64_t size,
                                random_model_progress progress, void *user, tdm_error *err) {
    const int64_t n_thread = spec->n_thread;
    size_t row_max = 0, row_size_max = 0;
    for (int64_t i = 0; i < list->n; ++i) {
        const weight *w = &list->items[i];
        const size_t row_size = tdm_type_row_size(w->type, w->ne[0]);
        if ((size_t)w->ne[0] > row_max) row_max = (size_t)w->ne[0];
        if (row_size > row_size_max) row_size_max = row_size;
    }
    const size_t chunk_size = row_size_max > (size_t)CHUNK_SIZE ? row_size_max : (size_t)CHUNK_SIZE;
    row_job jobs[THREADS_MAX] = {0};
    uint8_t *chunk = malloc(chunk_size);
    /* No type takes more bytes than f32. */
    float *scratch = malloc((size_t)n_thread * 2 * row_max * sizeof *scratch);
    tdm_status status = TDM_OK;
    if (chunk == NULL || scratch == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "not enough memory to make weights");
    for (int64_t t = 0; status == TDM_OK && t < n_thread; ++t) {
        jobs[t].spec = spec;
        jobs[t].row = scratch + (size_t)(2 * t) * row_max;
        jobs[t].blocks = (uint8_t *)(jobs[t].row + row_max);
    }
    kept_weight *kept = NULL;
    int64_t done = 0, n_kept = 0;
    if (status == TDM_OK && spec->has_same_layers) status = kept_create(list, &kept, &n_kept, err);
    for (int64_t i = 0; i < list->n && status == TDM_OK; ++i) {
        const weight *w = &list->items[i];
        kept_weight *copy = kept_find(kept, n_kept, w);
        if (copy != NULL && w->layer > 0) {
            status = llm_gguf_writer_write(writer, copy->bytes, copy->size, err);
            done += (int64_t)copy->size;
            if (status == TDM_OK && progress != NULL) progress(done, size, user);
            continue;
        }
        const int64_t n_row = w->ne[1] * w->ne[2];
        const size_t row_size = tdm_type_row_size(w->type, w->ne[0]);
        const int64_t step = (int64_t)(chunk_size / row_size);
        for (int64_t r = 0; r < n_row && status == TDM_OK; r += step) {
            const int64_t end = r + step < n_row ? r + step : n_row;
            status = rows_make(jobs, n_thread, w, r, end, chunk, err);
            if (status == TDM_OK && copy != NULL) {
                memcpy(copy->bytes + copy->n_filled, chunk, (size_t)(end - r) * row_size);
                copy->n_filled += (size_t)(end - r) * row_size;
            }
            if (status == TDM_OK)
                status = llm_gguf_writer_write(writer, chunk, (size_t)(end - r) * row_size, err);
            done += (end - r) * (int64_t)row_size;
            if (status == TDM_OK && progress != NULL) progress(done, size, user);
        }
    }
    kept_free(kept, n_kept);
    free(chunk);
    free(scratch);
    return status;
}

tdm_status random_model_write(const random_model_spec *spec, const char *path,
                              random_model_facts *facts, random_model_progress progress, void *user,
                              tdm_error *err) {
    random_model_facts own_facts;
    if (facts == NULL) facts = &own_facts;
    tdm_status status = spec_check(spec, err);
    if (status != TDM_OK) return status;
    weight_list list = {0};
    list_fill(&list, spec);
    if (list.is_short_of_memory) {
        free(list.items);
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "not enough memory for a list of weights");
    }
    facts_fill(facts, spec, &list);
    llm_gguf_writer *writer = NULL;
    status = llm_gguf_writer_create(path, &writer, err);
    if (status == TDM_OK) {
        keys_put(writer, spec);
        status = vocab_put(writer, spec->n_vocab, err);
    }
    if (status == TDM_OK) {
        for (int64_t i = 0; i < list.n; ++i) {
            const weight *w = &list.items[i];
            llm_gguf_writer_add_tensor(writer, w->name, w->type, w->n_dims, w->ne);
        }
        status = weights_write(writer, spec, &list, facts->size, progress, user, err);
    }
    if (status == TDM_OK) status = llm_gguf_writer_finish(writer, err);
    llm_gguf_writer_destroy(writer);
    free(list.items);
    return status;
}
