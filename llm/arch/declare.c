/* SPDX-License-Identifier: MIT
 *
 * declare.c: the table of roles, and the checks of a declared weight.
 */
#include "llm/arch/declare.h"

#include <string.h>

/* Names are GGUF's (ggml-org/ggml, docs/gguf.md, "Standardized tensor names"). */
static const struct {
    const char *suffix;
    uint32_t usage;
} roles[LLM_ROLE_COUNT_] = {
    [LLM_ROLE_TOKEN_EMBD] = {"token_embd.weight", TDM_USAGE_ROWS},
    [LLM_ROLE_OUTPUT_NORM] = {"output_norm.weight", 0},
    [LLM_ROLE_OUTPUT] = {"output.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_ROPE_FREQS] = {"rope_freqs.weight", 0},
    [LLM_ROLE_ATTN_NORM] = {"attn_norm.weight", 0},
    [LLM_ROLE_ATTN_Q] = {"attn_q.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_ATTN_K] = {"attn_k.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_ATTN_V] = {"attn_v.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_ATTN_Q_BIAS] = {"attn_q.bias", 0},
    [LLM_ROLE_ATTN_K_BIAS] = {"attn_k.bias", 0},
    [LLM_ROLE_ATTN_V_BIAS] = {"attn_v.bias", 0},
    [LLM_ROLE_ATTN_OUT] = {"attn_output.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_ATTN_OUT_BIAS] = {"attn_output.bias", 0},
    [LLM_ROLE_ATTN_Q_A] = {"attn_q_a.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_ATTN_Q_A_NORM] = {"attn_q_a_norm.weight", 0},
    [LLM_ROLE_ATTN_Q_B] = {"attn_q_b.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_ATTN_KV_A] = {"attn_kv_a_mqa.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_ATTN_KV_A_NORM] = {"attn_kv_a_norm.weight", 0},
    [LLM_ROLE_ATTN_K_B] = {"attn_k_b.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_ATTN_V_B] = {"attn_v_b.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_FFN_NORM] = {"ffn_norm.weight", 0},
    [LLM_ROLE_FFN_GATE] = {"ffn_gate.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_FFN_UP] = {"ffn_up.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_FFN_DOWN] = {"ffn_down.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_FFN_GATE_BIAS] = {"ffn_gate.bias", 0},
    [LLM_ROLE_FFN_UP_BIAS] = {"ffn_up.bias", 0},
    [LLM_ROLE_FFN_DOWN_BIAS] = {"ffn_down.bias", 0},
    [LLM_ROLE_FFN_ROUTER] = {"ffn_gate_inp.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_FFN_GATE_EXPS] = {"ffn_gate_exps.weight", TDM_USAGE_EXPERT},
    [LLM_ROLE_FFN_UP_EXPS] = {"ffn_up_exps.weight", TDM_USAGE_EXPERT},
    [LLM_ROLE_FFN_DOWN_EXPS] = {"ffn_down_exps.weight", TDM_USAGE_EXPERT},
    [LLM_ROLE_FFN_ROUTER_BIAS] = {"exp_probs_b.bias", 0},
    [LLM_ROLE_FFN_GATE_SHARED] = {"ffn_gate_shexp.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_FFN_UP_SHARED] = {"ffn_up_shexp.weight", TDM_USAGE_MATMUL},
    [LLM_ROLE_FFN_DOWN_SHARED] = {"ffn_down_shexp.weight", TDM_USAGE_MATMUL},
};

void llm_role_tensor_name(llm_role role, int32_t layer, char *name, size_t name_size) {
    if (layer < 0)
        snprintf(name, name_size, "%s", roles[role].suffix);
    else
        snprintf(name, name_size, "blk.%d.%s", layer, roles[role].suffix);
}

static tdm_status shape_check(const llm_model *model, const llm_gguf_tensor *t,
                              const int64_t ne[TDM_MAX_DIMS], tdm_error *err) {
    if (memcmp(t->ne, ne, sizeof t->ne) == 0) return TDM_OK;
    return tdm_fail(
        err, TDM_DATA_LOSS,
        "%s: tensor '%s' has shape [%lld, %lld, %lld, %lld], expected [%lld, %lld, %lld, "
        "%lld] by the keys of the file; the file is damaged or of another architecture",
        llm_gguf_part_name(model->gguf, t->part), t->name, (long long)t->ne[0], (long long)t->ne[1],
        (long long)t->ne[2], (long long)t->ne[3], (long long)ne[0], (long long)ne[1],
        (long long)ne[2], (long long)ne[3]);
}

tdm_status llm_model_need(llm_model *model, llm_role role, int32_t layer, bool is_required,
                          const int64_t ne[TDM_MAX_DIMS], const tdm_partition *partition,
                          int32_t axis, tdm_error *err) {
    char name[64];
    llm_role_tensor_name(role, layer, name, sizeof name);
    const llm_gguf_tensor *t = llm_gguf_tensor_find(model->gguf, name);
    if (t == NULL) {
        if (!is_required) return TDM_OK;
        return tdm_fail(
            err, TDM_NOT_FOUND,
            "%s: tensor '%s' is missing; the file is incomplete or of another architecture",
            llm_gguf_name(model->gguf), name);
    }
    tdm_status status = llm_gguf_tensor_check_type(model->gguf, t, err);
    if (status == TDM_OK) status = shape_check(model, t, ne, err);
    if (status != TDM_OK) return status;
    bool is_plain = roles[role].usage == 0;
    if (t->type == TDM_TYPE_I8 || t->type == TDM_TYPE_I32 || (is_plain && t->type != TDM_TYPE_F32))
        return tdm_fail(err, TDM_UNSUPPORTED, "%s: tensor '%s' has type %s, expected %s",
                        llm_gguf_part_name(model->gguf, t->part), name, tdm_type_name(t->type),
                        is_plain ? "f32" : "a float or quantised type");
    int32_t index = model->n_weight++;
    llm_weight *w = &model->weights[index];
    memset(w, 0, sizeof *w);
    w->file = t;
    w->role = role;
    w->layer = layer;
    w->usage = roles[role].usage;
    if (partition != NULL) {
        w->partition = *partition;
        if (w->partition.id != 0) w->partition.id += model->partition_base;
        w->axis = axis;
    }
    if (layer < 0)
        model->global[role] = index;
    else
        model->layer[layer][role] = index;
    return TDM_OK;
}
