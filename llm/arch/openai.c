/* SPDX-License-Identifier: MIT
 *
 * openai.c: gpt-oss, and architectures with its limited SwiGLU: min(g, 7) sigmoid(1.702 g) (u + 1)
 * with u in -7 .. 7. OpenAI (arXiv:2508.10925).
 */
#include <math.h>

#include "llm/arch/families.h"

#define OAI_GLU .act = TDM_ACT_SILU, .glu = {.limit = 7.0f, .alpha = 1.702f, .up_offset = 1.0f}

const llm_arch llm_arch_gpt_oss = {
    .name = "gpt-oss",
    .families = "gpt-oss",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE,
    .norm_mixer = LLM_ROLE_ATTN_NORM,
    .norm_channel = LLM_ROLE_ATTN_POST_NORM,
    .rope = TDM_ROPE_HALVES,
    .window_period = 2,
    OAI_GLU,
    .route_score = TDM_ROUTE_TOP_SOFTMAX,
    .has_expert_bias = true,
};

/* Attention selects blocks of tokens by an index with a head for each KV head
 * (block/block_index.c). The key for n_select counts blocks here; hparams.h counts tokens. */
static void minimax_m3_read(llm_key_reader *r, llm_hparams *h) {
    const int32_t n_block = h->n_select;
    llm_key_int(r, "attention.indexer.block_size", LLM_GGUF_REQUIRED, 1, LLM_MAX_CTX,
                &h->select_block);
    llm_key_int(r, "attention.indexer.local_blocks", LLM_GGUF_REQUIRED, 0, n_block,
                &h->n_select_local);
    llm_key_int(r, "attention.indexer.head_count", LLM_GGUF_REQUIRED, h->n_head_kv, h->n_head_kv,
                &h->n_index_head);
    llm_key_int(r, "attention.indexer.key_length", LLM_GGUF_REQUIRED,
                h->rope.n_rot > 1 ? h->rope.n_rot : 1, LLM_MAX_HEAD_DIM, &h->index_len);
    if (r->status != TDM_OK) return;
    h->n_select = n_block > LLM_MAX_CTX / h->select_block ? LLM_MAX_CTX : n_block * h->select_block;
    h->index_rope = TDM_ROPE_HALVES;
}

/* The first layers see all tokens. */
static void minimax_m3_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                             llm_layer_spec *spec) {
    (void)gguf;
    if (layer < h->n_layer_dense) spec->index = LLM_INDEX_NONE;
}

const llm_arch llm_arch_minimax_m3 = {
    .name = "minimax-m3",
    .families = "MiniMax M3",
    .keys = LLM_KEYS_EXPERTS | LLM_KEY_SELECT,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    OAI_GLU,
    .has_dense_glu = true,
    .read = minimax_m3_read,
    .layer = minimax_m3_layer,
};

/* A limit for each layer, or one for all; 7 in files without the key. */
static float maple_limit(const llm_gguf *gguf, const char *arch, int32_t layer) {
    char name[96];
    const llm_key_reader r = {.gguf = gguf, .arch = arch};
    float limit = 7.0f;
    llm_gguf_array each;
    tdm_error unused;
    llm_key_name(&r, "swiglu_clamp_exp", name);
    const llm_gguf_key *key = llm_gguf_key_find(gguf, name);
    if (key == NULL) return limit;
    if (key->type == LLM_GGUF_ARRAY) {
        if (llm_gguf_get_array(gguf, name, LLM_GGUF_F32, LLM_GGUF_REQUIRED, &each, &unused) !=
                TDM_OK ||
            (uint64_t)layer >= each.n)
            return -1;
        return llm_gguf_array_f32(&each, (uint64_t)layer);
    }
    return llm_gguf_get_f32(gguf, name, LLM_GGUF_REQUIRED, &limit, &unused) == TDM_OK ? limit : -1;
}

static void maple_read(llm_key_reader *r, llm_hparams *h) {
    for (int32_t layer = 0; layer < h->n_layer && r->status == TDM_OK; layer++) {
        const float limit = maple_limit(r->gguf, r->arch, layer);
        if (!(limit >= 0 && isfinite(limit)))
            r->status = tdm_fail(r->err, TDM_DATA_LOSS,
                                 "%s: key '%s.swiglu_clamp_exp' has no finite limit of at least 0 "
                                 "for layer %d",
                                 llm_gguf_name(r->gguf), r->arch, layer);
    }
}

/* Layers that see all tokens do not rotate their heads. maple_read does not check a layer that
 * drafts: without a number in the key it has no limit. */
static void maple_layer(const llm_gguf *gguf, const llm_hparams *h, int32_t layer,
                        llm_layer_spec *spec) {
    const float limit = maple_limit(gguf, h->arch, layer);
    if (spec->window == 0) spec->rope.n_rot = 0;
    spec->glu.limit = limit > 0 && isfinite(limit) ? limit : 0;
}

const llm_arch llm_arch_maple = {
    .name = "maple",
    .families = "Maple",
    .keys = LLM_KEY_EXPERT_FF | LLM_KEY_WINDOW | LLM_KEY_WINDOW_ROPE | LLM_KEY_WINDOW_HEADS,
    LLM_PRE_NORMS,
    LLM_HEAD_NORMS,
    .rope = TDM_ROPE_HALVES,
    .act = TDM_ACT_SILU,
    .is_route_normalized = true,
    .read = maple_read,
    .layer = maple_layer,
};
