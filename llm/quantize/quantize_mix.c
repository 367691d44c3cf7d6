/* SPDX-License-Identifier: MIT
 *
 * quantize_mix.c: chooses the type of each tensor of a quantised file. The mixtures are those of
 * llama.cpp, see quantize.h. Their reason: small types of attn_v, ffn_down and the output matrix
 * cost the most quality, and more in the first and last layers than in others.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "quant/convert.h"
#include "llm/arch/role.h"
#include "llm/quantize/quantize.h"

/* Numbers of general.file_type: ggml-org/llama.cpp, include/llama.h, enum llama_ftype. */
const llm_quantize_kind llm_quantize_kinds[] = {
    {"f32", TDM_TYPE_F32, LLM_QUANTIZE_PLAIN, 0, NULL},
    {"f16", TDM_TYPE_F16, LLM_QUANTIZE_PLAIN, 1, NULL},
    {"bf16", TDM_TYPE_BF16, LLM_QUANTIZE_PLAIN, 32, NULL},
    {"q8_0", TDM_TYPE_Q8_0, LLM_QUANTIZE_PLAIN, 7, NULL},
    {"q6_K", TDM_TYPE_Q6_K, LLM_QUANTIZE_PLAIN, 18, NULL},
    {"q5_1", TDM_TYPE_Q5_1, LLM_QUANTIZE_PLAIN, 9, NULL},
    {"q5_K_M", TDM_TYPE_Q5_K, LLM_QUANTIZE_Q5_K_M, 17,
     "attn_v and ffn_down of half the layers q6_K"},
    {"q5_K_S", TDM_TYPE_Q5_K, LLM_QUANTIZE_PLAIN, 16, NULL},
    {"q5_0", TDM_TYPE_Q5_0, LLM_QUANTIZE_PLAIN, 8, NULL},
    {"q4_1", TDM_TYPE_Q4_1, LLM_QUANTIZE_PLAIN, 3, NULL},
    {"q4_K_M", TDM_TYPE_Q4_K, LLM_QUANTIZE_Q4_K_M, 15,
     "attn_v and ffn_down of half the layers q6_K"},
    {"q4_K_S", TDM_TYPE_Q4_K, LLM_QUANTIZE_Q4_K_S, 14,
     "attn_v and ffn_down of the first layers q5_K"},
    {"q4_0", TDM_TYPE_Q4_0, LLM_QUANTIZE_PLAIN, 2, NULL},
    {"iq4_nl", TDM_TYPE_IQ4_NL, LLM_QUANTIZE_IQ4, 25,
     "ffn_down of the first layers q5_K, and attn_v where heads share it"},
    {"iq4_xs", TDM_TYPE_IQ4_XS, LLM_QUANTIZE_IQ4, 30,
     "ffn_down of the first layers q5_K, and attn_v where heads share it"},
    {"mxfp4_moe", TDM_TYPE_MXFP4, LLM_QUANTIZE_MXFP4_MOE, 38, "experts mxfp4, all else q8_0"},
    {"nvfp4", TDM_TYPE_NVFP4, LLM_QUANTIZE_PLAIN, 39, NULL},
    {"q3_K_L", TDM_TYPE_Q3_K, LLM_QUANTIZE_Q3_K_L, 13, "attn_v, attn_output and ffn_down q5_K"},
    {"q3_K_M", TDM_TYPE_Q3_K, LLM_QUANTIZE_Q3_K_M, 12,
     "attn_v, attn_output and ffn_down q4_K or q5_K"},
    {"q3_K_S", TDM_TYPE_Q3_K, LLM_QUANTIZE_Q3_K_S, 11, NULL},
    {"iq3_m", TDM_TYPE_IQ3_S, LLM_QUANTIZE_IQ3_M, 27,
     "iq3_s; attn_v, attn_output, and ffn_down of the first layers q4_K"},
    {"iq3_s", TDM_TYPE_IQ3_S, LLM_QUANTIZE_IQ3_S, 26, "attn_v q4_K where heads share it"},
    {"iq3_xs", TDM_TYPE_IQ3_S, LLM_QUANTIZE_IQ3_XS, 22,
     "iq3_s; attn_q, attn_k, and ffn_gate and ffn_up of most layers iq3_xxs"},
    {"iq3_xxs", TDM_TYPE_IQ3_XXS, LLM_QUANTIZE_IQ3_XXS, 23,
     "attn_q and attn_k iq2_s, attn_v and attn_output iq3_s, ffn_down q3_K"},
    {"q2_K", TDM_TYPE_Q2_K, LLM_QUANTIZE_Q2_K, 10, "attn_v, attn_output and ffn_down q3_K"},
    {"q2_K_S", TDM_TYPE_Q2_K, LLM_QUANTIZE_Q2_K_S, 21,
     "ffn_down of the first layers q4_K, and attn_v where heads share it"},
    {"iq2_m", TDM_TYPE_IQ2_S, LLM_QUANTIZE_IQ2_M, 29,
     "iq2_s; attn_v, attn_output, and ffn_down of the first layers iq3_s"},
    {"iq2_s", TDM_TYPE_IQ2_XS, LLM_QUANTIZE_IQ2_M, 28,
     "iq2_xs; attn_v, attn_output, and ffn_down of the first layers iq3_s"},
    {"iq2_xs", TDM_TYPE_IQ2_XS, LLM_QUANTIZE_IQ2_XS, 20,
     "attn_v, and ffn_down of the first layers q2_K"},
    {"iq2_xxs", TDM_TYPE_IQ2_XXS, LLM_QUANTIZE_IQ2_XS, 19,
     "attn_v, and ffn_down of the first layers q2_K"},
    {"iq1_m", TDM_TYPE_IQ1_M, LLM_QUANTIZE_IQ1, 31,
     "attn_output iq2_xxs; attn_v, and ffn_down of the first layers q2_K"},
    {"iq1_s", TDM_TYPE_IQ1_S, LLM_QUANTIZE_IQ1, 24,
     "attn_output iq2_xxs; attn_v, and ffn_down of the first layers q2_K"},
    {"tq2_0", TDM_TYPE_TQ2_0, LLM_QUANTIZE_TERNARY, 37,
     "token_embd q4_K; for weights that were trained to be -1, 0 or 1"},
    {"tq1_0", TDM_TYPE_TQ1_0, LLM_QUANTIZE_TERNARY, 36,
     "token_embd q4_K; for weights that were trained to be -1, 0 or 1"},
};
const size_t n_llm_quantize_kinds = sizeof llm_quantize_kinds / sizeof *llm_quantize_kinds;

const llm_quantize_kind *llm_quantize_kind_find(const char *name) {
    static const char *const others[][2] = {
        {"q3_K", "q3_K_M"}, {"q4_K", "q4_K_M"}, {"q5_K", "q5_K_M"}, {"mxfp4", "mxfp4_moe"}};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcasecmp(name, others[i][0]) == 0) name = others[i][1];
    for (size_t i = 0; i < n_llm_quantize_kinds; i++)
        if (strcasecmp(name, llm_quantize_kinds[i].name) == 0) return &llm_quantize_kinds[i];
    return NULL;
}

double llm_quantize_bits(tdm_type type) {
    tdm_type_info info = tdm_type_get_info(type);
    return 8 * (double)info.block_size / (double)info.block_len;
}

/* ---- Parts of the model, by tensor name ---- */

typedef enum part {
    PART_KEPT, /* not converted */
    PART_OTHER,
    PART_OUTPUT,
    PART_TOKEN_EMBD,
    PART_ATTN_V,
    PART_ATTN_K,
    PART_ATTN_Q,
    PART_ATTN_OUT,
    PART_FFN_UP,
    PART_FFN_GATE,
    PART_FFN_DOWN
} part;

/* Substrings of the names of small tensors that are not quantised: the loss of quality would be
 * greater than the gain. Tensors whose role has no quantised form: has_plain_role. */
static const char *const kept_names[] = {
    "_norm.weight",
    "ffn_gate_inp.weight",
    "ffn_gate_tid2eid.weight",
    "altup",
    "laurel",
    "per_layer_model_proj",
    "position_embd",
    "ssm_conv1d",
    "indexer.k_proj.weight",
    "indexer.q_proj.weight",
    "time_mix_w1.weight",
    "time_mix_w2.weight",
    "time_mix_v1.weight",
    "time_mix_v2.weight",
    "time_mix_a1.weight",
    "time_mix_a2.weight",
    "time_mix_g1.weight",
    "time_mix_g2.weight",
    "time_mix_decay_w1.weight",
    "time_mix_decay_w2.weight",
};

static bool name_has(const char *name, const char *piece) {
    return strstr(name, piece) != NULL;
}

/* Whether an architecture reads a tensor of this name as plain floats (llm/arch/role.h). */
static bool has_plain_role(const char *name) {
    const char *suffix = strstr(name, "blk.");
    if (suffix == NULL) {
        suffix = name;
    } else {
        suffix += strlen("blk.");
        suffix += strspn(suffix, "0123456789");
        suffix += *suffix == '.';
    }
    for (int role = LLM_ROLE_NONE + 1; role < LLM_ROLE_COUNT_; role++) {
        const llm_role_info *info = llm_role_get((llm_role)role);
        if (info->usage == 0 && strcmp(info->suffix, suffix) == 0) return true;
    }
    return false;
}

static bool is_kept(const llm_gguf_tensor *tensor) {
    static const char end[] = "weight";
    size_t len = strlen(tensor->name), end_len = sizeof end - 1;
    /* A tensor with only trailing axes of 1 is a vector. */
    bool is_vector = tensor->ne[1] == 1 && tensor->ne[2] == 1 && tensor->ne[3] == 1;
    if (is_vector || len < end_len || strcmp(tensor->name + len - end_len, end) != 0) return true;
    for (size_t i = 0; i < sizeof kept_names / sizeof *kept_names; i++)
        if (name_has(tensor->name, kept_names[i])) return true;
    return has_plain_role(tensor->name);
}

static part part_of(const llm_gguf_tensor *tensor) {
    const char *name = tensor->name;
    if (is_kept(tensor)) return PART_KEPT;
    if (strcmp(name, "output.weight") == 0) return PART_OUTPUT;
    if (strcmp(name, "token_embd.weight") == 0) return PART_TOKEN_EMBD;
    if (strcmp(name, "per_layer_token_embd.weight") == 0) return PART_TOKEN_EMBD;
    /* Fused projections, and the matrix that expands a latent row, contain attn_v. */
    if (name_has(name, "attn_qkv.weight") || name_has(name, "attn_kv_b.weight") ||
        name_has(name, "attn_v.weight"))
        return PART_ATTN_V;
    if (name_has(name, "attn_k.weight")) return PART_ATTN_K;
    if (name_has(name, "attn_q.weight")) return PART_ATTN_Q;
    if (name_has(name, "attn_output.weight")) return PART_ATTN_OUT;
    if (name_has(name, "ffn_up")) return PART_FFN_UP;
    if (name_has(name, "ffn_gate")) return PART_FFN_GATE;
    return name_has(name, "ffn_down") ? PART_FFN_DOWN : PART_OTHER;
}

/* The layer of a tensor; -1 = none. */
static int32_t layer_of(const char *name) {
    const char *suffix;
    return llm_tensor_layer(name, &suffix);
}

/* ---- The model ---- */

/* What the choice depends on, for the whole file. */
typedef struct facts {
    const llm_gguf *g;
    part *parts; /* [n_tensor], owned */
    uint32_t n_tensor;
    int32_t n_layer, n_expert, n_attn_v; /* n_attn_v: tensors of PART_ATTN_V */
    int32_t heads_per_kv; /* Q heads per KV head */
    bool is_70b;          /* Llama 2 and 3 or Qwen 2 of that size */
    bool is_tied;         /* the token embedding is the output matrix too */
    bool has_importance;
} facts;

/* The number of the key "ARCH.key", or the first of an array with one for each layer; `fallback` if
 * the key is missing or cannot be read. */
static int32_t number_get(const llm_gguf *g, const char *arch, const char *key, int32_t fallback) {
    char name[128];
    uint32_t value = 0;
    llm_gguf_array array = {0};
    snprintf(name, sizeof name, "%s.%s", arch, key);
    const llm_gguf_key *found = llm_gguf_key_find(g, name);
    if (found == NULL) return fallback;
    if (found->type == LLM_GGUF_ARRAY) {
        if (llm_gguf_get_array(g, name, LLM_GGUF_U32, LLM_GGUF_REQUIRED, &array, NULL) != TDM_OK ||
            array.n == 0)
            return fallback;
        int64_t first = llm_gguf_array_i64(&array, 0);
        return first < 0 || first > INT32_MAX ? fallback : (int32_t)first;
    }
    if (llm_gguf_get_u32(g, name, LLM_GGUF_REQUIRED, &value, NULL) != TDM_OK || value > INT32_MAX)
        return fallback;
    return (int32_t)value;
}

static tdm_status facts_make(const llm_gguf *g, facts *f, tdm_error *err) {
    llm_gguf_str text = {"", 0};
    char arch[64];
    tdm_status status = llm_gguf_get_str(g, "general.architecture", LLM_GGUF_REQUIRED, &text, err);
    if (status != TDM_OK) return status;
    snprintf(arch, sizeof arch, "%.*s", text.len < 63 ? (int)text.len : 63, text.ptr);
    int32_t n_head = number_get(g, arch, "attention.head_count", 1);
    int32_t n_head_kv = number_get(g, arch, "attention.head_count_kv", n_head);
    *f = (facts){
        .g = g,
        .n_tensor = llm_gguf_tensor_count(g),
        .n_layer = number_get(g, arch, "block_count", 0),
        .n_expert = number_get(g, arch, "expert_count", 0),
        .heads_per_kv = n_head_kv > 0 ? n_head / n_head_kv : 0,
        .is_tied = true,
    };
    f->is_70b = f->n_layer == 80 &&
                ((strcmp(arch, "llama") == 0 && n_head != n_head_kv) || strcmp(arch, "qwen2") == 0);
    f->parts = calloc((size_t)f->n_tensor + 1, sizeof *f->parts);
    if (f->parts == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for %u tensors",
                        llm_gguf_name(g), f->n_tensor);
    for (uint32_t i = 0; i < f->n_tensor; i++) {
        f->parts[i] = part_of(llm_gguf_tensor_at(g, i));
        if (f->parts[i] == PART_ATTN_V) f->n_attn_v++;
        if (strcmp(llm_gguf_tensor_at(g, i)->name, "output.weight") == 0) f->is_tied = false;
    }
    return TDM_OK;
}

/* The number of tensors of the same part before this one, ordered by layer and then by name; files
 * may have another order. */
static int32_t place_among(const facts *f, uint32_t tensor) {
    const char *name = llm_gguf_tensor_at(f->g, tensor)->name;
    int32_t layer = layer_of(name), place = 0;
    for (uint32_t i = 0; i < f->n_tensor; i++) {
        if (f->parts[i] != f->parts[tensor] || i == tensor) continue;
        const char *other = llm_gguf_tensor_at(f->g, i)->name;
        int32_t other_layer = layer_of(other);
        if (other_layer < layer || (other_layer == layer && strcmp(other, name) < 0)) place++;
    }
    return place;
}

/* ---- The mixtures ---- */

/* Whether layer i of n gets a larger type: the first and last eighth, and every third between. */
static bool has_larger_type(int32_t i, int32_t n) {
    return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
}

static tdm_type attn_v_type(const facts *f, llm_quantize_mix mix, tdm_type type, uint32_t tensor) {
    int32_t place = place_among(f, tensor);
    bool is_shared = f->heads_per_kv >= 4;
    switch (mix) {
    case LLM_QUANTIZE_Q2_K: type = is_shared ? TDM_TYPE_Q4_K : TDM_TYPE_Q3_K; break;
    case LLM_QUANTIZE_IQ3_XXS:
        type = is_shared ? TDM_TYPE_Q4_K : f->has_importance ? TDM_TYPE_IQ3_XXS : TDM_TYPE_IQ3_S;
        break;
    case LLM_QUANTIZE_Q2_K_S:
    case LLM_QUANTIZE_IQ3_XS:
    case LLM_QUANTIZE_IQ3_S: type = is_shared ? TDM_TYPE_Q4_K : type; break;
    case LLM_QUANTIZE_IQ3_M: type = TDM_TYPE_Q4_K; break;
    case LLM_QUANTIZE_Q3_K_M: type = place < 2 ? TDM_TYPE_Q5_K : TDM_TYPE_Q4_K; break;
    case LLM_QUANTIZE_Q3_K_L: type = TDM_TYPE_Q5_K; break;
    case LLM_QUANTIZE_IQ4: type = is_shared ? TDM_TYPE_Q5_K : type; break;
    case LLM_QUANTIZE_Q4_K_S: type = place < 4 ? TDM_TYPE_Q5_K : type; break;
    case LLM_QUANTIZE_Q4_K_M:
    case LLM_QUANTIZE_Q5_K_M:
        type = has_larger_type(place, f->n_attn_v) ? TDM_TYPE_Q6_K : type;
        break;
    default: break;
    }
    /* Eight query heads share each head of this matrix, so it is small compared with the others. */
    if (f->is_70b && (type == TDM_TYPE_Q3_K || type == TDM_TYPE_Q4_K)) type = TDM_TYPE_Q5_K;
    return f->n_expert == 8 ? TDM_TYPE_Q8_0 : type;
}

static tdm_type attn_qk_type(llm_quantize_mix mix, tdm_type type) {
    if (mix == LLM_QUANTIZE_IQ3_XS) return TDM_TYPE_IQ3_XXS;
    return mix == LLM_QUANTIZE_IQ3_XXS ? TDM_TYPE_IQ2_S : type;
}

/* The position of an ffn tensor for the rules of early and late layers. Where there are experts, it
 * is the number of the layer. */
static int32_t ffn_place(const facts *f, uint32_t tensor) {
    return f->n_expert > 1 ? layer_of(llm_gguf_tensor_at(f->g, tensor)->name)
                           : place_among(f, tensor);
}

static tdm_type ffn_down_type(const facts *f, llm_quantize_mix mix, tdm_type type,
                              uint32_t tensor) {
    int32_t n = f->n_layer, place = ffn_place(f, tensor);
    bool is_early = place < n / 8;
    switch (mix) {
    case LLM_QUANTIZE_Q2_K: return TDM_TYPE_Q3_K;
    case LLM_QUANTIZE_Q2_K_S: return is_early ? TDM_TYPE_Q4_K : type;
    case LLM_QUANTIZE_IQ3_XXS:
        if (f->has_importance) return type;
        return is_early ? TDM_TYPE_Q4_K : TDM_TYPE_Q3_K;
    case LLM_QUANTIZE_IQ3_M:
        return is_early || (f->n_expert == 8 && has_larger_type(place, n)) ? TDM_TYPE_Q4_K : type;
    case LLM_QUANTIZE_Q3_K_M: return place < n / 16 ? TDM_TYPE_Q5_K : TDM_TYPE_Q4_K;
    case LLM_QUANTIZE_Q3_K_L: return TDM_TYPE_Q5_K;
    case LLM_QUANTIZE_Q4_K_S: return is_early ? TDM_TYPE_Q5_K : type;
    case LLM_QUANTIZE_IQ4: return is_early && !f->has_importance ? TDM_TYPE_Q5_K : type;
    case LLM_QUANTIZE_Q4_K_M:
    case LLM_QUANTIZE_Q5_K_M: return has_larger_type(place, n) ? TDM_TYPE_Q6_K : type;
    case LLM_QUANTIZE_PLAIN:
        if (!f->has_importance || !is_early) return type;
        return type == TDM_TYPE_Q4_0 ? TDM_TYPE_Q4_1 : type == TDM_TYPE_Q5_0 ? TDM_TYPE_Q5_1 : type;
    default: return type;
    }
}

/* ffn_gate and ffn_up. */
static tdm_type ffn_in_type(const facts *f, llm_quantize_mix mix, tdm_type type, uint32_t tensor) {
    if (mix != LLM_QUANTIZE_IQ3_XS) return type;
    int32_t n = f->n_layer, place = ffn_place(f, tensor);
    return place >= n / 8 && place < 7 * n / 8 ? TDM_TYPE_IQ3_XXS : type;
}

static tdm_type attn_out_type(const facts *f, llm_quantize_mix mix, tdm_type type) {
    if (f->n_expert == 8) {
        switch (mix) {
        case LLM_QUANTIZE_Q2_K:
        case LLM_QUANTIZE_Q3_K_S:
        case LLM_QUANTIZE_Q3_K_M:
        case LLM_QUANTIZE_Q4_K_S:
        case LLM_QUANTIZE_Q4_K_M:
        case LLM_QUANTIZE_IQ3_XXS:
        case LLM_QUANTIZE_IQ3_XS:
        case LLM_QUANTIZE_IQ3_S:
        case LLM_QUANTIZE_IQ3_M:
        case LLM_QUANTIZE_IQ4: return TDM_TYPE_Q5_K;
        default: return type;
        }
    }
    switch (mix) {
    case LLM_QUANTIZE_Q2_K: return TDM_TYPE_Q3_K;
    case LLM_QUANTIZE_IQ3_XXS: return TDM_TYPE_IQ3_S;
    case LLM_QUANTIZE_IQ3_M:
    case LLM_QUANTIZE_Q3_K_M: return TDM_TYPE_Q4_K;
    case LLM_QUANTIZE_Q3_K_L: return TDM_TYPE_Q5_K;
    default: return type;
    }
}

/* Whether the mixture is one of a type below three bits: these have a rule of their own,
 * coarse_type. */
static bool is_coarse(llm_quantize_mix mix) {
    return mix == LLM_QUANTIZE_IQ2_M || mix == LLM_QUANTIZE_IQ2_XS || mix == LLM_QUANTIZE_IQ1;
}

static tdm_type coarse_type(const facts *f, llm_quantize_mix mix, tdm_type type, uint32_t tensor) {
    tdm_type larger = mix == LLM_QUANTIZE_IQ2_M ? TDM_TYPE_IQ3_S : TDM_TYPE_Q2_K;
    switch (f->parts[tensor]) {
    case PART_ATTN_V: return f->heads_per_kv >= 4 || f->n_expert >= 4 ? TDM_TYPE_Q4_K : larger;
    case PART_ATTN_K: return f->n_expert == 8 ? TDM_TYPE_Q4_K : type;
    case PART_ATTN_OUT:
        if (f->n_expert == 8) return TDM_TYPE_Q5_K;
        if (mix == LLM_QUANTIZE_IQ2_M) return TDM_TYPE_IQ3_S;
        return mix == LLM_QUANTIZE_IQ1 ? TDM_TYPE_IQ2_XXS : type;
    case PART_FFN_DOWN: return place_among(f, tensor) < f->n_layer / 8 ? larger : type;
    default: return type;
    }
}

static tdm_type output_type(const llm_quantize_kind *kind) {
    if (kind->type == TDM_TYPE_Q8_0 || kind->mix == LLM_QUANTIZE_MXFP4_MOE) return TDM_TYPE_Q8_0;
    bool is_small = is_coarse(kind->mix) || kind->mix == LLM_QUANTIZE_IQ3_XXS;
    return is_small ? TDM_TYPE_Q5_K : TDM_TYPE_Q6_K;
}

static tdm_type token_embd_type(llm_quantize_mix mix, tdm_type type) {
    switch (mix) {
    case LLM_QUANTIZE_IQ3_XXS:
    case LLM_QUANTIZE_IQ2_M: return TDM_TYPE_IQ3_S;
    case LLM_QUANTIZE_IQ2_XS:
    case LLM_QUANTIZE_IQ1: return TDM_TYPE_Q2_K;
    case LLM_QUANTIZE_TERNARY: return TDM_TYPE_Q4_K;
    default: return type;
    }
}

static bool is_whole(tdm_type type, int64_t n) {
    return n % tdm_type_get_info(type).block_len == 0;
}

static tdm_type mixed_type(const facts *f, const llm_quantize_kind *kind, uint32_t tensor) {
    const llm_gguf_tensor *matrix = llm_gguf_tensor_at(f->g, tensor);
    part what = f->parts[tensor];
    if (what == PART_TOKEN_EMBD && f->is_tied) what = PART_OUTPUT;
    if (what == PART_OUTPUT)
        return is_whole(kind->type, matrix->ne[0]) ? output_type(kind) : TDM_TYPE_Q8_0;
    if (kind->mix == LLM_QUANTIZE_MXFP4_MOE) /* experts are a third axis */
        return matrix->ne[2] > 1 ? kind->type : TDM_TYPE_Q8_0;
    if (what == PART_TOKEN_EMBD) return token_embd_type(kind->mix, kind->type);
    if (is_coarse(kind->mix)) return coarse_type(f, kind->mix, kind->type, tensor);
    switch (what) {
    case PART_ATTN_V: return attn_v_type(f, kind->mix, kind->type, tensor);
    case PART_ATTN_K:
        if (f->n_expert == 8) return TDM_TYPE_Q8_0;
        return attn_qk_type(kind->mix, kind->type);
    case PART_ATTN_Q: return attn_qk_type(kind->mix, kind->type);
    case PART_ATTN_OUT: return attn_out_type(f, kind->mix, kind->type);
    case PART_FFN_UP:
    case PART_FFN_GATE: return ffn_in_type(f, kind->mix, kind->type, tensor);
    case PART_FFN_DOWN: return ffn_down_type(f, kind->mix, kind->type, tensor);
    default: return kind->type;
    }
}

/* `type` if rows of n elements are whole blocks of it, else a type with shorter blocks, at last
 * f16. */
static tdm_type fitting_type(tdm_type type, int64_t n) {
    if (is_whole(type, n)) return type;
    switch (type) {
    case TDM_TYPE_IQ1_S:
    case TDM_TYPE_IQ1_M:
    case TDM_TYPE_IQ2_XXS:
    case TDM_TYPE_IQ2_XS:
    case TDM_TYPE_IQ2_S:
    case TDM_TYPE_IQ3_XXS:
    case TDM_TYPE_IQ3_S:
    case TDM_TYPE_IQ4_XS: type = TDM_TYPE_IQ4_NL; break;
    case TDM_TYPE_TQ1_0:
    case TDM_TYPE_TQ2_0:
    case TDM_TYPE_Q2_K:
    case TDM_TYPE_Q3_K: type = TDM_TYPE_Q4_0; break;
    case TDM_TYPE_Q4_K: type = TDM_TYPE_Q5_0; break;
    case TDM_TYPE_Q5_K: type = TDM_TYPE_Q5_1; break;
    case TDM_TYPE_Q6_K: type = TDM_TYPE_Q8_0; break;
    default: return TDM_TYPE_F16;
    }
    return is_whole(type, n) ? type : TDM_TYPE_F16;
}

/* Refuses adapters and importance matrices, which are GGUF files, too: their readers take the types
 * that they have. A file without general.type is a model. */
static tdm_status model_check(const llm_gguf *g, tdm_error *err) {
    llm_gguf_str type = {"", 0};
    tdm_status status = llm_gguf_get_str(g, "general.type", LLM_GGUF_OPTIONAL, &type, err);
    const bool is_adapter = llm_gguf_str_equals(type, "adapter");
    if (status == TDM_OK && (is_adapter || llm_gguf_str_equals(type, "imatrix")))
        status = tdm_fail(err, TDM_UNSUPPORTED, "%s: is %s; only models can be quantised",
                          llm_gguf_name(g), is_adapter ? "an adapter" : "an importance matrix");
    return status;
}

tdm_status llm_quantize_choose(const llm_gguf *g, const llm_quantize_kind *kind, bool is_pure,
                               bool has_importance, llm_quantize_choice *choices_out,
                               tdm_error *err) {
    facts f = {0};
    bool is_mixed = !is_pure && tdm_type_get_info(kind->type).is_quantized;
    tdm_status status = model_check(g, err);
    if (status == TDM_OK) status = facts_make(g, &f, err);
    f.has_importance = has_importance;
    for (uint32_t i = 0; i < f.n_tensor && status == TDM_OK; i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        status = llm_gguf_tensor_check_type(g, tensor, err);
        if (status != TDM_OK) break;
        tdm_type type = tensor->type;
        if (f.parts[i] != PART_KEPT) type = is_mixed ? mixed_type(&f, kind, i) : kind->type;
        choices_out[i] = (llm_quantize_choice){fitting_type(type, tensor->ne[0]), type};
        bool is_readable = tdm_row_codec_get(tensor->type).dequantize != NULL;
        if (choices_out[i].type != tensor->type && !is_readable)
            status =
                tdm_fail(err, TDM_UNSUPPORTED,
                         "%s: tensor '%.80s' is of type %s, which cannot be converted; quantise "
                         "the original model",
                         llm_gguf_name(g), tensor->name, tdm_type_name(tensor->type));
    }
    free(f.parts);
    return status;
}
