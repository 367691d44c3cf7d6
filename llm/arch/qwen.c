/* SPDX-License-Identifier: MIT
 *
 * qwen.c: Qwen and what derives from it. Bai et al. (arXiv:2309.16609), Yang et al.
 * (arXiv:2407.10671, arXiv:2505.09388).
 */
#include "quant/convert.h"
#include "llm/arch/families.h"

/* The key counts the columns of gate and up together. */
static void qwen_read(llm_key_reader *r, llm_hparams *h) {
    if (r->status == TDM_OK && h->n_ff % 2 != 0)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: key '%s.feed_forward_length' is %d; it must be even",
                             llm_gguf_name(r->gguf), r->arch, h->n_ff);
    h->n_ff /= 2;
}

const llm_arch llm_arch_qwen = {
    .name = "qwen",
    .families = "Qwen",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .read = qwen_read,
};

const llm_arch llm_arch_qwen2 = {
    .name = "qwen2",
    .families = "Qwen 2, 2.5",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
};

/* A text has the same position in all parts of its M-RoPE. */
const llm_arch llm_arch_qwen2vl = {
    .name = "qwen2vl",
    .families = "Qwen 2 VL",
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .harmless = " output.bias ",
};

/* Whether the file has a number other than 0 for a key. */
static bool has_number(llm_key_reader *r, const char *suffix) {
    int32_t number = 0;
    if (llm_key_is_each(r, suffix)) return true;
    llm_key_int(r, suffix, LLM_GGUF_OPTIONAL, 0, LLM_MAX_WIDTH, &number);
    return number != 0;
}

/* Older files of Qwen 1.5 MoE have the columns of the shared expert alone, which are as many as
 * those of all experts that a token chooses. */
static void qwen2moe_read(llm_key_reader *r, llm_hparams *h) {
    if (h->n_expert == 0) return;
    if (!has_number(r, "expert_shared_feed_forward_length")) h->n_ff_shared = h->n_ff;
    if (!has_number(r, "expert_feed_forward_length") && h->n_ff >= h->n_expert_used)
        h->n_ff_expert = h->n_ff / h->n_expert_used;
}

const llm_arch llm_arch_qwen2moe = {
    .name = "qwen2moe",
    .families = "Qwen 1.5 MoE, 2 MoE",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE,
    LLM_PRE_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .has_shared_gate = true,
    .read = qwen2moe_read,
};

#define QWEN3                                                                                      \
    LLM_PRE_NORMS, LLM_HEAD_NORMS, .rope = TDM_ROPE_HALVES, .act = TDM_ACT_SILU,                   \
                                   .has_score_softmax = true, .harmless = " cls.output.weight "

const llm_arch llm_arch_qwen3 = {.name = "qwen3", .families = "Qwen 3", QWEN3};
const llm_arch llm_arch_qwen3vl = {.name = "qwen3vl", .families = "Qwen 3 VL", QWEN3};

/* Files of whole models have a head for codes of sound alone, the last tokens of the vocabulary. */
static void qwen3tts_read(llm_key_reader *r, llm_hparams *h) {
    const llm_gguf_tensor *head = llm_gguf_tensor_find(r->gguf, "output.weight");
    const llm_gguf_tensor *rows = llm_gguf_tensor_find(r->gguf, "token_embd.weight");
    (void)h;
    if (r->status == TDM_OK && head != NULL && rows != NULL && head->ne[1] < rows->ne[1])
        r->status = tdm_fail(
            r->err, TDM_UNSUPPORTED,
            "%s: tensor 'output.weight' has rows for %lld codes of sound, not for the %lld tokens "
            "of the vocabulary; the model writes sound, which is not supported",
            llm_gguf_name(r->gguf), (long long)head->ne[1], (long long)rows->ne[1]);
}

const llm_arch llm_arch_qwen3tts = {
    .name = "qwen3tts", .families = "Qwen 3 TTS", QWEN3, .read = qwen3tts_read};

#define QWEN3MOE                                                                                   \
    LLM_PRE_NORMS, LLM_HEAD_NORMS, .keys = LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE,               \
                                   .rope = TDM_ROPE_HALVES, .act = TDM_ACT_SILU,                   \
                                   .is_route_normalized = true

const llm_arch llm_arch_qwen3moe = {.name = "qwen3moe", .families = "Qwen 3 MoE", QWEN3MOE};
const llm_arch llm_arch_qwen3vlmoe = {.name = "qwen3vlmoe", .families = "Qwen 3 VL MoE", QWEN3MOE};

/* ---- Layers with a gated delta net, others with gated attention ---- */

/* In attn_q the rows of each query head are followed by those of its gate. Older files of Qwen 3
 * Next have ssm_in in place of attn_qkv and attn_gate, others have both. */
static void gated_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                        llm_layer_spec *spec) {
    if (spec->mixer == LLM_MIXER_ATTENTION) spec->q_len = 2 * h->head_dim_k;
    spec->recurrent.is_interleaved = spec->mixer == LLM_MIXER_DELTA &&
                                     llm_layer_has(gguf, LLM_ROLE_DELTA_IN, layer) &&
                                     !llm_layer_has(gguf, LLM_ROLE_DELTA_QKV, layer);
}

/* Head h of v reads head h % n_head_k of q and k. */
static void tiled_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                        llm_layer_spec *spec) {
    gated_layer(gguf, h, layer, spec);
    spec->recurrent.is_tiled = true;
}

/* post_attention_norm is the norm before the channel block. */
#define GATED_DELTA                                                                                \
    .norm_mixer = LLM_ROLE_ATTN_NORM, .norm_channel = LLM_ROLE_ATTN_POST_NORM, LLM_HEAD_NORMS,     \
    .rope = TDM_ROPE_HALVES, .gate = LLM_GATE_QUERY, .recurrent_mixer = LLM_MIXER_DELTA,           \
    .act = TDM_ACT_SILU, .is_route_normalized = true, .has_shared_gate = true

const llm_arch llm_arch_qwen3next = {
    .name = "qwen3next",
    .families = "Qwen 3 Next",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_ATTN_SCALE,
    GATED_DELTA,
    .layer = gated_layer,
    .harmless = " ssm_in.weight ssm_conv1d.weight ",
};

const llm_arch llm_arch_qwen35 = {
    .name = "qwen35",
    .families = "Qwen 3.5, 3.6",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_ATTN_SCALE,
    GATED_DELTA,
    .layer = tiled_layer,
};

const llm_arch llm_arch_qwen35moe = {
    .name = "qwen35moe",
    .families = "Qwen 3.5 MoE, 3.6 MoE",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_ATTN_SCALE,
    GATED_DELTA,
    .layer = tiled_layer,
};

/* ---- The same with several streams, and rows for runs of tokens ---- */

/* Element i of an array of whole numbers of the file; `missing` where it has none. */
static int64_t array_at(const llm_key_reader *r, const char *suffix, int32_t i, int64_t missing) {
    char name[96];
    llm_key_name(r, suffix, name);
    const llm_gguf_key *key = llm_gguf_key_find(r->gguf, name);
    if (key == NULL || key->type != LLM_GGUF_ARRAY || (uint64_t)i >= key->array.n ||
        key->array.type == LLM_GGUF_F32 || key->array.type == LLM_GGUF_F64 ||
        key->array.type == LLM_GGUF_STRING || key->array.type == LLM_GGUF_ARRAY)
        return missing;
    return llm_gguf_array_i64(&key->array, (uint64_t)i);
}

/* The table of rows for runs of tokens. It may be a third of the file and stays there. */
static void ngram_table_find(llm_key_reader *r, llm_ngram *g) {
    static const char name[] = "per_layer_token_embd.weight";
    const llm_gguf_tensor *t = llm_gguf_tensor_find(r->gguf, name);
    if (t == NULL)
        r->status = tdm_fail(r->err, TDM_NOT_FOUND,
                             "%s: tensor '%s' is missing; the file is incomplete or of another "
                             "architecture",
                             llm_gguf_name(r->gguf), name);
    else if (t->ne[0] != g->len || t->ne[1] > INT32_MAX || t->ne[2] != 1 || t->ne[3] != 1 ||
             tdm_row_codec_get(t->type).dequantize == NULL)
        r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                             "%s: tensor '%s' is %s [%lld, %lld], expected rows of %d numbers",
                             llm_gguf_name(r->gguf), name, tdm_type_name(t->type),
                             (long long)t->ne[0], (long long)t->ne[1], g->len);
    g->table = t;
}

/* Reads by what a token selects its rows, and checks that these lie within the table. */
static void ngram_rows_read(llm_key_reader *r, llm_ngram *g) {
    ngram_table_find(r, g);
    const int64_t n_row = r->status == TDM_OK ? g->table->ne[1] : 0;
    for (int32_t i = 0; i < g->n_gram && r->status == TDM_OK; i++) {
        g->factor[i] = (uint64_t)array_at(r, "ple.layer_multipliers", i, 0);
        if (g->factor[i] == 0)
            r->status =
                tdm_fail(r->err, TDM_DATA_LOSS,
                         "%s: key '%s.ple.layer_multipliers' has no element %d other than 0",
                         llm_gguf_name(r->gguf), r->arch, i);
    }
    for (int32_t i = 0; i < llm_ngram_row_count(g) && r->status == TDM_OK; i++) {
        const int64_t first = array_at(r, "ple.head_offsets", i, -1);
        const int64_t size = array_at(r, "ple.head_vocab_sizes", i, -1);
        if (first < 0 || size < 1 || first > n_row || size > n_row - first)
            r->status =
                tdm_fail(r->err, TDM_DATA_LOSS,
                         "%s: keys '%s.ple.head_offsets' and 'ple.head_vocab_sizes' give no "
                         "row %d of tensor 'per_layer_token_embd.weight', which has %lld",
                         llm_gguf_name(r->gguf), r->arch, i, (long long)n_row);
        g->first[i] = (int32_t)first;
        g->size[i] = (int32_t)size;
    }
}

static void ngram_read(llm_key_reader *r, llm_hparams *h) {
    llm_ngram *g = &h->ngram;
    const int64_t layer = array_at(r, "ple.layers", 0, -1);
    if (layer < 0) return;
    if (layer >= h->n_layer || array_at(r, "ple.layers", 1, -1) >= 0) {
        r->status =
            tdm_fail(r->err, TDM_UNSUPPORTED, "%s: key '%s.ple.layers' must name one layer of %d",
                     llm_gguf_name(r->gguf), r->arch, h->n_layer);
        return;
    }
    g->layer = (int32_t)layer;
    llm_key_int(r, "ple.ngram_size", LLM_GGUF_REQUIRED, 2, LLM_MAX_NGRAM, &g->n_gram);
    llm_key_int(r, "ple.heads_per_ngram", LLM_GGUF_REQUIRED, 1,
                LLM_MAX_NGRAM_ROWS / (g->n_gram > 1 ? g->n_gram - 1 : 1), &g->n_head);
    llm_key_int(r, "ple.conv_kernel", LLM_GGUF_REQUIRED, 2, 64, &g->n_conv);
    llm_key_int(r, "ple.eos_token_id", LLM_GGUF_REQUIRED, 0, LLM_MAX_VOCAB, &g->eos);
    llm_key_int(r, "embedding_length_per_layer_input", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH,
                &g->len);
    if (r->status == TDM_OK && (int64_t)g->len * llm_ngram_row_count(g) != h->n_embd)
        r->status =
            tdm_fail(r->err, TDM_DATA_LOSS,
                     "%s: keys '%s.ple.*' give a token %d rows of %d, expected rows of %d "
                     "together",
                     llm_gguf_name(r->gguf), r->arch, llm_ngram_row_count(g), g->len, h->n_embd);
    if (r->status == TDM_OK) ngram_rows_read(r, g);
}

/* Tokens of a run of a layer's index; 0 = the layer attends to all tokens. The key has one number
 * for all layers or one for each; -1 = none for this one. */
static int64_t index_run_of(const llm_key_reader *r, int32_t layer) {
    static const char suffix[] = "attention.compress_ratios";
    char name[96];
    uint32_t one = 0;
    tdm_error err = {0};
    llm_key_name(r, suffix, name);
    const llm_gguf_key *key = llm_gguf_key_find(r->gguf, name);
    if (key == NULL) return 0;
    if (key->type == LLM_GGUF_ARRAY) return array_at(r, suffix, layer, -1);
    return llm_gguf_get_u32(r->gguf, name, LLM_GGUF_REQUIRED, &one, &err) == TDM_OK ? (int64_t)one
                                                                                    : -1;
}

/* The index of sparse attention: block/run_index.c. If no layer has one, n_select is 0, so that
 * contexts of any length are accepted. */
static void run_index_read(llm_key_reader *r, llm_hparams *h) {
    bool is_indexed = false;
    for (int32_t i = 0; i < h->n_layer && r->status == TDM_OK; i++) {
        const int64_t run = index_run_of(r, i);
        is_indexed = is_indexed || run != 0;
        if (run != 0 && (run < 2 || run > LLM_MAX_RUN || h->n_select < run))
            r->status = tdm_fail(
                r->err, TDM_UNSUPPORTED,
                "%s: key '%s.attention.compress_ratios' is %lld for layer %d; 0, and "
                "2 to %d up to attention.indexer.top_k = %d are supported",
                llm_gguf_name(r->gguf), r->arch, (long long)run, i, LLM_MAX_RUN, h->n_select);
    }
    if (!is_indexed) h->n_select = 0;
    if (!is_indexed || r->status != TDM_OK) return;
    llm_key_int(r, "attention.indexer.head_count", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH,
                &h->n_index_head);
    llm_key_int(r, "attention.indexer.key_length", LLM_GGUF_REQUIRED,
                h->rope.n_rot > 1 ? h->rope.n_rot : 1, LLM_MAX_HEAD_DIM, &h->index_len);
    h->index_rope = TDM_ROPE_HALVES;
}

static void qwen4exp_read(llm_key_reader *r, llm_hparams *h) {
    llm_key_int(r, "hyper_connection.count", LLM_GGUF_REQUIRED, 2, LLM_MAX_STREAMS, &h->n_stream);
    llm_key_int(r, "hyper_connection.low_rank", LLM_GGUF_REQUIRED, 1, LLM_MAX_WIDTH,
                &h->n_stream_rank);
    run_index_read(r, h);
    ngram_read(r, h);
}

static void qwen4exp_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                           llm_layer_spec *spec) {
    const llm_key_reader r = {.gguf = gguf, .arch = h->arch};
    const bool is_draft = h->layer_first > 0 && layer >= h->layer_first;
    tiled_layer(gguf, h, layer, spec);
    if (spec->mixer == LLM_MIXER_ATTENTION && !is_draft)
        spec->index_run = (int32_t)index_run_of(&r, layer);
    spec->index = spec->index_run > 0 ? LLM_INDEX_OWN : LLM_INDEX_NONE;
    spec->has_ngram = h->ngram.n_gram > 0 && layer == h->ngram.layer;
}

/* Harmless are biases, the tensors of an index in a layer that attends to all tokens, and the table
 * of rows for runs of tokens, which contexts read in the file. */
const llm_arch llm_arch_qwen4exp = {
    .name = "qwen4exp",
    .families = "Qwen 3.8 Flash-Next",
    .keys = LLM_KEY_RECURRENT | LLM_KEY_EXPERT_FF | LLM_KEY_EXPERT_SCALE | LLM_KEY_ATTN_SCALE |
            LLM_KEY_SELECT,
    LLM_HEAD_NORMS,
    .stream = LLM_STREAM_HYPER,
    .has_no_norm_out = true,
    .rope = TDM_ROPE_HALVES,
    .gate = LLM_GATE_QUERY,
    .recurrent_mixer = LLM_MIXER_DELTA,
    .delta_act = TDM_ACT_SIGMOID,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .has_shared_gate = true,
    .read = qwen4exp_read,
    .layer = qwen4exp_layer,
    .harmless = " indexer.q_proj.weight indexer.k_proj.weight indexer.q_norm.weight "
                "indexer.k_norm.weight attn_q.bias attn_k.bias attn_v.bias ple_conv1d.weight "
                "per_layer_token_embd.weight ",
};
