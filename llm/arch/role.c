/* SPDX-License-Identifier: MIT
 *
 * role.c: see role.h. Names are GGUF's (ggml-org/ggml, docs/gguf.md, "Standardized tensor names").
 */
#include "llm/arch/role.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "tandem/tensor.h"

/* clang-format off */
#define PLAIN(ROLE, name, ...)  [LLM_ROLE_##ROLE] = {name, 0, {__VA_ARGS__}}
#define ROWS(ROLE, name, ...)   [LLM_ROLE_##ROLE] = {name, TDM_USAGE_ROWS, {__VA_ARGS__}}
#define MATRIX(ROLE, name, ...) [LLM_ROLE_##ROLE] = {name, TDM_USAGE_MATMUL, {__VA_ARGS__}}
#define EXPERT(ROLE, name, ...) [LLM_ROLE_##ROLE] = {name, TDM_USAGE_EXPERT, {__VA_ARGS__}}
#define NORM(ROLE, name, ...)                                                                      \
    PLAIN(ROLE, name ".weight", __VA_ARGS__), PLAIN(ROLE##_BIAS, name ".bias", __VA_ARGS__)
#define D(symbol) LLM_DIM_##symbol

static const llm_role_info roles[LLM_ROLE_COUNT_] = {
    [LLM_ROLE_NONE] = {"", 0, {LLM_DIM_ONE}},
    [LLM_ROLE_GLOBAL_SCALE] = {"", 0, {LLM_DIM_ONE}},
    [LLM_ROLE_MATRIX_SCALE] = {"", 0, {LLM_DIM_ONE}},
    ROWS(TOKEN_EMBD, "token_embd.weight", D(EMBD), D(VOCAB)),
    NORM(TOKEN_EMBD_NORM, "token_embd_norm", D(EMBD)),
    ROWS(POSITION_EMBD, "position_embd.weight", D(EMBD), D(CTX)),
    PLAIN(TOKEN_TYPES, "token_types.weight", D(EMBD), D(TYPES)),
    NORM(OUTPUT_NORM, "output_norm", D(EMBD)),
    NORM(ENC_OUTPUT_NORM, "enc.output_norm", D(EMBD)),
    NORM(DEC_OUTPUT_NORM, "dec.output_norm", D(EMBD)),
    MATRIX(OUTPUT, "output.weight", D(EMBD), D(VOCAB)),
    PLAIN(OUTPUT_BIAS, "output.bias", D(VOCAB)),
    PLAIN(ROPE_FREQS, "rope_freqs.weight", D(PAIRS)),
    PLAIN(ROPE_FACTORS_LONG, "rope_factors_long.weight", D(PAIRS)),
    PLAIN(ROPE_FACTORS_SHORT, "rope_factors_short.weight", D(PAIRS)),
    PLAIN(STACK_START, "hrm.z_l_init", D(EMBD)),
    MATRIX(HYPER_HEAD, "output_hc_fn.weight", D(STREAMS_EMBD), D(STREAMS)),
    PLAIN(HYPER_HEAD_BASE, "output_hc_base.weight", D(STREAMS)),
    PLAIN(HYPER_HEAD_SCALE, "output_hc_scale.weight", D(ONE)),
    PLAIN(STREAMS_HEAD_NORM, "output_hc_norm.weight", D(EMBD), D(STREAMS)),
    MATRIX(STREAMS_HEAD_DOWN, "output_hc_down.weight", D(STREAMS_EMBD), D(STREAMS_RANK)),
    MATRIX(STREAMS_HEAD_UP, "output_hc_up.weight", D(STREAMS_RANK), D(STREAMS_EMBD)),
    MATRIX(DEPTH_HEAD, "output_res_score.weight", D(EMBD)),
    ROWS(PER_LAYER_EMBD, "per_layer_token_embd.weight", D(PER_LAYER_ALL), D(VOCAB)),
    MATRIX(PER_LAYER_MODEL_PROJ, "per_layer_model_proj.weight", D(EMBD), D(PER_LAYER_ALL)),
    NORM(PER_LAYER_PROJ_NORM, "per_layer_proj_norm", D(PER_LAYER)),
    MATRIX(ALTUP_PROJ, "altup_proj.weight", D(EMBD), D(EMBD), D(OTHER_STREAMS)),
    MATRIX(ALTUP_UNEMBD, "altup_unembd_proj.weight", D(EMBD), D(EMBD), D(OTHER_STREAMS)),
    NORM(ATTN_NORM, "attn_norm", D(EMBD)),
    NORM(ATTN_NORM_2, "attn_norm_2", D(EMBD)),
    NORM(ATTN_POST_NORM, "post_attention_norm", D(EMBD)),
    NORM(ATTN_OUT_NORM, "attn_output_norm", D(EMBD)),
    MATRIX(ATTN_Q, "attn_q.weight", D(EMBD), D(Q)),
    MATRIX(ATTN_K, "attn_k.weight", D(EMBD), D(K)),
    MATRIX(ATTN_V, "attn_v.weight", D(EMBD), D(V)),
    PLAIN(ATTN_Q_BIAS, "attn_q.bias", D(Q)),
    PLAIN(ATTN_K_BIAS, "attn_k.bias", D(K)),
    PLAIN(ATTN_V_BIAS, "attn_v.bias", D(V)),
    MATRIX(ATTN_QKV, "attn_qkv.weight", D(EMBD), D(QKV)),
    PLAIN(ATTN_QKV_BIAS, "attn_qkv.bias", D(QKV)),
    NORM(ATTN_Q_NORM, "attn_q_norm", D(HEAD_K)),
    NORM(ATTN_K_NORM, "attn_k_norm", D(HEAD_K)),
    NORM(ATTN_Q_NORM_ROW, "attn_q_norm", D(Q)),
    NORM(ATTN_K_NORM_ROW, "attn_k_norm", D(K)),
    PLAIN(ATTN_Q_NORM_EACH, "attn_q_norm.weight", D(HEAD_K), D(HEADS)),
    PLAIN(ATTN_K_NORM_EACH, "attn_k_norm.weight", D(HEAD_K), D(HEADS_KV)),
    PLAIN(ATTN_Q_GAIN, "attn_q_norm.weight", D(ONE), D(HEADS)),
    PLAIN(LAYER_SCALE, "layer_output_scale.weight", D(ONE)),
    MATRIX(ATTN_GATE, "attn_gate.weight", D(EMBD), D(O)),
    MATRIX(ATTN_GATE_HEAD, "attn_gate.weight", D(EMBD), D(HEADS)),
    PLAIN(ATTN_SINKS, "attn_sinks.weight", D(HEADS)),
    PLAIN(ATTN_DISTANCE_BIAS, "attn_rel_b.weight", D(DISTANCES), D(HEADS)),
    MATRIX(ATTN_OUT, "attn_output.weight", D(O), D(EMBD)),
    PLAIN(ATTN_OUT_BIAS, "attn_output.bias", D(EMBD)),
    NORM(CROSS_NORM, "cross_attn_norm", D(EMBD)),
    MATRIX(CROSS_Q, "cross_attn_q.weight", D(EMBD), D(Q)),
    MATRIX(CROSS_K, "cross_attn_k.weight", D(EMBD), D(K)),
    MATRIX(CROSS_V, "cross_attn_v.weight", D(EMBD), D(V)),
    MATRIX(CROSS_OUT, "cross_attn_o.weight", D(O), D(EMBD)),
    MATRIX(LINEAR_OUT, "attn_output.weight", D(EMBD), D(EMBD)),
    MATRIX(ATTN_KV, "attn_kv.weight", D(EMBD), D(HEAD_K)),
    NORM(ATTN_KV_NORM, "attn_kv_a_norm", D(HEAD_K)),
    MATRIX(ATTN_OUT_A, "attn_output_a.weight", D(GROUP_O), D(LORA_OUT), D(OUT_GROUPS)),
    MATRIX(ATTN_OUT_B, "attn_output_b.weight", D(OUT_ROWS), D(EMBD)),
    MATRIX(POOL_KV, "attn_compressor_kv.weight", D(EMBD), D(POOL)),
    MATRIX(POOL_SCORE, "attn_compressor_gate.weight", D(EMBD), D(POOL)),
    PLAIN(POOL_BIAS, "attn_compressor_ape.weight", D(POOL), D(RUN)),
    NORM(POOL_NORM, "attn_compressor_norm", D(HEAD_K)),
    MATRIX(INDEX_POOL_KV, "indexer_compressor_kv.weight", D(EMBD), D(INDEX_POOL)),
    MATRIX(INDEX_POOL_SCORE, "indexer_compressor_gate.weight", D(EMBD), D(INDEX_POOL)),
    PLAIN(INDEX_POOL_BIAS, "indexer_compressor_ape.weight", D(INDEX_POOL), D(RUN)),
    NORM(INDEX_POOL_NORM, "indexer_compressor_norm", D(INDEX)),
    PLAIN(INDEX_ONE, "indexer_one", D(ONE)),
    PLAIN(INDEX_EACH, "indexer_each", D(ONE), D(INDEX_RUN)),
    MATRIX(ATTN_Q_A, "attn_q_a.weight", D(EMBD), D(LORA_Q)),
    NORM(ATTN_Q_A_NORM, "attn_q_a_norm", D(LORA_Q)),
    MATRIX(ATTN_Q_B, "attn_q_b.weight", D(LORA_Q), D(Q)),
    MATRIX(ATTN_KV_A, "attn_kv_a_mqa.weight", D(EMBD), D(LATENT_ROW)),
    NORM(ATTN_KV_A_NORM, "attn_kv_a_norm", D(LATENT)),
    MATRIX(ATTN_KV_A_WHOLE, "attn_kv_a_mqa.weight", D(EMBD), D(KV_ROW)),
    NORM(ATTN_KV_A_NORM_WHOLE, "attn_kv_a_norm", D(LORA_KV)),
    MATRIX(ATTN_KV_B, "attn_kv_b.weight", D(LORA_KV), D(KV)),
    NORM(ATTN_K_ROPE_NORM, "attn_k_norm", D(ROT)),
    MATRIX(INDEX_Q, "indexer.attn_q_b.weight", D(LORA_Q), D(INDEX_Q)),
    MATRIX(INDEX_K, "indexer.attn_k.weight", D(EMBD), D(INDEX)),
    NORM(INDEX_K_NORM, "indexer.k_norm", D(INDEX)),
    MATRIX(INDEX_WEIGHT, "indexer.proj.weight", D(EMBD), D(INDEX_HEADS)),
    MATRIX(INDEX_Q_HEADS, "indexer.q_proj.weight", D(EMBD), D(INDEX_Q)),
    NORM(INDEX_Q_NORM, "indexer.q_norm", D(INDEX)),
    MATRIX(INDEX_K_ROW, "indexer.k_proj.weight", D(EMBD), D(INDEX)),
    MATRIX(ATTN_K_B, "attn_k_b.weight", D(NOPE), D(LORA_KV), D(HEADS)),
    MATRIX(ATTN_V_B, "attn_v_b.weight", D(LORA_KV), D(HEAD_O), D(HEADS)),
    MATRIX(DELTA_QKV, "attn_qkv.weight", D(EMBD), D(DELTA_QKV)),
    MATRIX(DELTA_IN, "ssm_in.weight", D(EMBD), D(DELTA_IN)),
    MATRIX(DELTA_GATE, "attn_gate.weight", D(EMBD), D(DELTA_V)),
    PLAIN(DELTA_CONV, "ssm_conv1d.weight", D(CONV), D(DELTA_QKV)),
    MATRIX(DELTA_BETA_ALPHA, "ssm_ba.weight", D(EMBD), D(DELTA_HEADS_TWICE)),
    MATRIX(DELTA_BETA, "ssm_beta.weight", D(EMBD), D(DELTA_HEADS)),
    MATRIX(DELTA_ALPHA, "ssm_alpha.weight", D(EMBD), D(DELTA_HEADS)),
    PLAIN(DELTA_DT_BIAS, "ssm_dt.bias", D(DELTA_HEADS)),
    PLAIN(DELTA_A, "ssm_a", D(DELTA_HEADS)),
    PLAIN(DELTA_NORM, "ssm_norm.weight", D(HEAD_RV)),
    MATRIX(DELTA_OUT, "ssm_out.weight", D(DELTA_V), D(EMBD)),
    MATRIX(DELTA_ATTN_OUT, "attn_output.weight", D(DELTA_V), D(EMBD)),
    MATRIX(KDA_Q, "attn_q.weight", D(EMBD), D(DELTA_V)),
    MATRIX(KDA_K, "attn_k.weight", D(EMBD), D(DELTA_V)),
    MATRIX(KDA_V, "attn_v.weight", D(EMBD), D(DELTA_V)),
    PLAIN(KDA_CONV_Q, "ssm_conv1d_q.weight", D(CONV), D(ONE), D(DELTA_V)),
    PLAIN(KDA_CONV_K, "ssm_conv1d_k.weight", D(CONV), D(ONE), D(DELTA_V)),
    PLAIN(KDA_CONV_V, "ssm_conv1d_v.weight", D(CONV), D(ONE), D(DELTA_V)),
    MATRIX(KDA_F, "ssm_f_a.weight", D(EMBD), D(DELTA_V)),
    MATRIX(KDA_F_A, "ssm_f_a.weight", D(EMBD), D(HEAD_RV)),
    MATRIX(KDA_F_B, "ssm_f_b.weight", D(HEAD_RV), D(DELTA_V)),
    PLAIN(KDA_DT_BIAS, "ssm_dt.bias", D(DELTA_V)),
    PLAIN(KDA_A, "ssm_a", D(ONE), D(DELTA_HEADS)),
    MATRIX(KDA_GATE, "ssm_g_a.weight", D(EMBD), D(DELTA_V)),
    MATRIX(KDA_GATE_A, "ssm_g_a.weight", D(EMBD), D(HEAD_RV)),
    MATRIX(KDA_GATE_B, "ssm_g_b.weight", D(HEAD_RV), D(DELTA_V)),
    MATRIX(KDA_GATE_WIDE, "ssm_g.weight", D(EMBD), D(DELTA_V)),
    MATRIX(LIGHTNING_QKV, "attn_qkv.weight", D(EMBD), D(DELTA_EACH)),
    PLAIN(LIGHTNING_NORM, "attn_norm_2.weight", D(DELTA_V)),
    PLAIN(LIGHTNING_DECAY, "attn_decay", D(ONE), D(DELTA_HEADS)),
    MATRIX(MAMBA_IN, "ssm_in.weight", D(EMBD), D(SSM_INNER_TWICE)),
    MATRIX(MAMBA2_IN, "ssm_in.weight", D(EMBD), D(SSM_ALL)),
    PLAIN(MAMBA_CONV, "ssm_conv1d.weight", D(CONV), D(SSM_INNER)),
    PLAIN(MAMBA_CONV_BIAS, "ssm_conv1d.bias", D(SSM_INNER)),
    PLAIN(MAMBA2_CONV, "ssm_conv1d.weight", D(CONV), D(SSM_XBC)),
    PLAIN(MAMBA2_CONV_BIAS, "ssm_conv1d.bias", D(SSM_XBC)),
    MATRIX(MAMBA_X, "ssm_x.weight", D(SSM_INNER), D(SSM_ROW)),
    MATRIX(MAMBA_DT, "ssm_dt.weight", D(SSM_RANK), D(SSM_INNER)),
    PLAIN(MAMBA_DT_BIAS, "ssm_dt.bias", D(SSM_INNER)),
    PLAIN(MAMBA_DT_NORM, "ssm_dt_norm.weight", D(SSM_RANK)),
    PLAIN(MAMBA_B_NORM, "ssm_b_norm.weight", D(SSM_STATE)),
    PLAIN(MAMBA_C_NORM, "ssm_c_norm.weight", D(SSM_STATE)),
    PLAIN(MAMBA_A, "ssm_a", D(SSM_STATE), D(SSM_INNER)),
    PLAIN(MAMBA_D, "ssm_d", D(SSM_INNER)),
    PLAIN(MAMBA2_A, "ssm_a", D(ONE), D(SSM_HEADS)),
    PLAIN(MAMBA2_D, "ssm_d", D(ONE), D(SSM_HEADS)),
    PLAIN(MAMBA2_DT_BIAS, "ssm_dt.bias", D(SSM_HEADS)),
    PLAIN(MAMBA2_NORM, "ssm_norm.weight", D(SSM_GROUP), D(SSM_GROUPS)),
    MATRIX(MAMBA_HEADS_DT, "ssm_dt.weight", D(SSM_RANK), D(SSM_HEADS)),
    PLAIN(MAMBA_HEADS_A, "ssm_a", D(SSM_HEADS)),
    PLAIN(MAMBA_HEADS_D, "ssm_d", D(SSM_HEADS)),
    MATRIX(MAMBA_OUT, "ssm_out.weight", D(SSM_INNER), D(EMBD)),
    PLAIN(RWKV_LERP_X, "time_mix_lerp_x.weight", D(EMBD)),
    PLAIN(RWKV_LERP, "time_mix_lerp_fused.weight", D(EMBD), D(ONE), D(ONE), D(FIVE)),
    MATRIX(RWKV_MIX_A, "time_mix_w1.weight", D(EMBD), D(MIX_ROWS)),
    MATRIX(RWKV_MIX_B, "time_mix_w2.weight", D(MIX_ROW), D(EMBD), D(FIVE)),
    PLAIN(RWKV_DECAY, "time_mix_decay.weight", D(DELTA_V)),
    MATRIX(RWKV_DECAY_A, "time_mix_decay_w1.weight", D(EMBD), D(DECAY_ROW)),
    MATRIX(RWKV_DECAY_B, "time_mix_decay_w2.weight", D(DECAY_ROW), D(DELTA_V)),
    MATRIX(RWKV_R, "time_mix_receptance.weight", D(EMBD), D(DELTA_V)),
    MATRIX(RWKV_K, "time_mix_key.weight", D(EMBD), D(DELTA_KV)),
    MATRIX(RWKV_V, "time_mix_value.weight", D(EMBD), D(DELTA_KV)),
    PLAIN(RWKV_R_BIAS, "time_mix_receptance.bias", D(DELTA_V)),
    PLAIN(RWKV_K_BIAS, "time_mix_key.bias", D(DELTA_KV)),
    PLAIN(RWKV_V_BIAS, "time_mix_value.bias", D(DELTA_KV)),
    MATRIX(RWKV_GATE, "time_mix_gate.weight", D(EMBD), D(DELTA_V)),
    MATRIX(RWKV_OUT, "time_mix_output.weight", D(DELTA_V), D(EMBD)),
    PLAIN(RWKV_SHIFT, "time_mix_shift", D(CONV), D(EMBD)),
    PLAIN(RWKV_DELAY, "time_mix_delay", D(CONV), D(EMBD_THRICE)),
    PLAIN(RWKV_FIRST, "time_mix_first.weight", D(HEAD_RV), D(DELTA_HEADS)),
    NORM(RWKV_NORM, "time_mix_ln", D(DELTA_V)),
    PLAIN(RWKV7_LERP, "time_mix_lerp_fused.weight", D(EMBD), D(ONE), D(ONE), D(MIXES)),
    PLAIN(RWKV7_DECAY, "time_mix_w0.weight", D(DELTA_V)),
    MATRIX(RWKV7_DECAY_A, "time_mix_w1.weight", D(EMBD), D(DECAY_ROW)),
    MATRIX(RWKV7_DECAY_B, "time_mix_w2.weight", D(DECAY_ROW), D(DELTA_V)),
    PLAIN(RWKV7_RATE, "time_mix_a0.weight", D(DELTA_V)),
    MATRIX(RWKV7_RATE_A, "time_mix_a1.weight", D(EMBD), D(RATE_ROW)),
    MATRIX(RWKV7_RATE_B, "time_mix_a2.weight", D(RATE_ROW), D(DELTA_V)),
    PLAIN(RWKV7_VALUE, "time_mix_v0.weight", D(DELTA_V)),
    MATRIX(RWKV7_VALUE_A, "time_mix_v1.weight", D(EMBD), D(VALUE_ROW)),
    MATRIX(RWKV7_VALUE_B, "time_mix_v2.weight", D(VALUE_ROW), D(DELTA_V)),
    MATRIX(RWKV7_GATE_A, "time_mix_g1.weight", D(EMBD), D(GATE_ROW)),
    MATRIX(RWKV7_GATE_B, "time_mix_g2.weight", D(GATE_ROW), D(DELTA_V)),
    PLAIN(RWKV7_ERASED, "time_mix_k_k.weight", D(DELTA_V)),
    PLAIN(RWKV7_KEPT, "time_mix_k_a.weight", D(DELTA_V)),
    PLAIN(RWKV7_OWN, "time_mix_r_k.weight", D(DELTA_V)),
    PLAIN(CHANNEL_LERP_K, "channel_mix_lerp_k.weight", D(EMBD)),
    PLAIN(CHANNEL_LERP_R, "channel_mix_lerp_r.weight", D(EMBD)),
    MATRIX(CHANNEL_KEY, "channel_mix_key.weight", D(EMBD), D(FF)),
    MATRIX(CHANNEL_VALUE, "channel_mix_value.weight", D(FF), D(EMBD)),
    MATRIX(CHANNEL_GATE, "channel_mix_receptance.weight", D(EMBD), D(EMBD)),
    MATRIX(SHORT_CONV_IN, "shortconv.in_proj.weight", D(EMBD), D(CHANNELS_THRICE)),
    PLAIN(SHORT_CONV, "shortconv.conv.weight", D(CONV), D(CHANNELS)),
    PLAIN(SHORT_CONV_NEXT, "shortconv.conv.next", D(CHANNELS)),
    MATRIX(SHORT_CONV_OUT, "shortconv.out_proj.weight", D(CHANNELS), D(EMBD)),
    NORM(FFN_NORM, "ffn_norm", D(EMBD)),
    NORM(FFN_POST_NORM, "post_ffw_norm", D(EMBD)),
    NORM(LAYER_OUT_NORM, "layer_output_norm", D(EMBD)),
    NORM(FFN_EXPERT_NORM, "ffn_norm_exps", D(EMBD)),
    MATRIX(FFN_GATE, "ffn_gate.weight", D(EMBD), D(FF)),
    MATRIX(FFN_UP, "ffn_up.weight", D(EMBD), D(FF)),
    MATRIX(FFN_DOWN, "ffn_down.weight", D(FF), D(EMBD)),
    MATRIX(FFN_GATE_UP, "ffn_up.weight", D(EMBD), D(FF_TWICE)),
    PLAIN(FFN_GATE_BIAS, "ffn_gate.bias", D(FF)),
    PLAIN(FFN_UP_BIAS, "ffn_up.bias", D(FF)),
    PLAIN(FFN_DOWN_BIAS, "ffn_down.bias", D(EMBD)),
    PLAIN(FFN_ACT_SCALES, "ffn.act.scales", D(FF)),
    MATRIX(FFN_ROUTER, "ffn_gate_inp.weight", D(EMBD), D(EXPERTS)),
    EXPERT(FFN_GATE_EXPS, "ffn_gate_exps.weight", D(EXPERT_ROW), D(FF_EXPERT), D(EXPERTS)),
    EXPERT(FFN_UP_EXPS, "ffn_up_exps.weight", D(EXPERT_ROW), D(FF_EXPERT), D(EXPERTS)),
    EXPERT(FFN_DOWN_EXPS, "ffn_down_exps.weight", D(FF_EXPERT), D(EXPERT_ROW), D(EXPERTS)),
    EXPERT(FFN_GATE_UP_EXPS, "ffn_gate_up_exps.weight", D(EXPERT_ROW), D(FF_EXPERT_TWICE), D(EXPERTS)),
    MATRIX(FFN_LATENT_DOWN, "ffn_latent_down.weight", D(EMBD), D(EXPERT_ROW)),
    MATRIX(FFN_LATENT_UP, "ffn_latent_up.weight", D(EXPERT_ROW), D(EMBD)),
    MATRIX(FFN_ROUTED_DOWN, "ffn_routed_down.weight", D(EMBD), D(EXPERT_ROW)),
    MATRIX(FFN_ROUTED_UP, "ffn_routed_up.weight", D(EXPERT_ROW), D(EMBD)),
    NORM(FFN_ROUTED_NORM, "ffn_routed_norm", D(EXPERT_ROW)),
    PLAIN(FFN_ROUTER_BIAS, "exp_probs_b.bias", D(EXPERTS)),
    PLAIN(FFN_ROUTER_BIAS_2, "exp_probs_b", D(EXPERTS)),
    PLAIN(FFN_LOGIT_BIAS, "ffn_gate_inp.bias", D(EXPERTS)),
    PLAIN(FFN_GATE_EXPS_BIAS, "ffn_gate_exps.bias", D(FF_WHOLE), D(EXPERTS)),
    PLAIN(FFN_UP_EXPS_BIAS, "ffn_up_exps.bias", D(FF_WHOLE), D(EXPERTS)),
    PLAIN(FFN_DOWN_EXPS_BIAS, "ffn_down_exps.bias", D(EMBD), D(EXPERTS)),
    EXPERT(FFN_GATE_CHUNK, "ffn_gate_chexps.weight", D(EMBD), D(FF_CHUNK), D(CHUNKS)),
    EXPERT(FFN_UP_CHUNK, "ffn_up_chexps.weight", D(EMBD), D(FF_CHUNK), D(CHUNKS)),
    EXPERT(FFN_DOWN_CHUNK, "ffn_down_chexps.weight", D(FF_CHUNK), D(EMBD), D(CHUNKS)),
    MATRIX(FFN_GATE_SHARED, "ffn_gate_shexp.weight", D(EMBD), D(FF_SHARED)),
    MATRIX(FFN_UP_SHARED, "ffn_up_shexp.weight", D(EMBD), D(FF_SHARED)),
    MATRIX(FFN_DOWN_SHARED, "ffn_down_shexp.weight", D(FF_SHARED), D(EMBD)),
    MATRIX(FFN_SHARED_GATE, "ffn_gate_inp_shexp.weight", D(EMBD)),
    MATRIX(HYPER_MIXER, "hc_attn_fn.weight", D(STREAMS_EMBD), D(STREAM_MIXES)),
    PLAIN(HYPER_MIXER_BASE, "hc_attn_base.weight", D(STREAM_MIXES)),
    PLAIN(HYPER_MIXER_SCALE, "hc_attn_scale.weight", D(STREAM_SCALES)),
    MATRIX(HYPER_CHANNEL, "hc_ffn_fn.weight", D(STREAMS_EMBD), D(STREAM_MIXES)),
    PLAIN(HYPER_CHANNEL_BASE, "hc_ffn_base.weight", D(STREAM_MIXES)),
    PLAIN(HYPER_CHANNEL_SCALE, "hc_ffn_scale.weight", D(STREAM_SCALES)),
    PLAIN(STREAMS_MIXER_NORM, "hc_attn_norm.weight", D(EMBD), D(STREAMS)),
    MATRIX(STREAMS_MIXER_DOWN, "hc_attn_down.weight", D(STREAMS_EMBD), D(STREAMS_RANK)),
    MATRIX(STREAMS_MIXER_UP, "hc_attn_up.weight", D(STREAMS_RANK), D(STREAMS_EMBD)),
    MATRIX(STREAMS_MIXER_WRITE, "hc_attn_inject.weight", D(STREAMS_EMBD), D(STREAMS)),
    PLAIN(STREAMS_CHANNEL_NORM, "hc_ffn_norm.weight", D(EMBD), D(STREAMS)),
    MATRIX(STREAMS_CHANNEL_DOWN, "hc_ffn_down.weight", D(STREAMS_EMBD), D(STREAMS_RANK)),
    MATRIX(STREAMS_CHANNEL_UP, "hc_ffn_up.weight", D(STREAMS_RANK), D(STREAMS_EMBD)),
    MATRIX(STREAMS_CHANNEL_WRITE, "hc_ffn_inject.weight", D(STREAMS_EMBD), D(STREAMS)),
    MATRIX(NGRAM_KEY, "ple_key.weight", D(EMBD), D(STREAMS_EMBD)),
    MATRIX(NGRAM_VALUE, "ple_value.weight", D(EMBD), D(EMBD)),
    PLAIN(NGRAM_KEY_NORM, "ple_norm_key.weight", D(EMBD), D(STREAMS)),
    PLAIN(NGRAM_QUERY_NORM, "ple_norm_query.weight", D(EMBD), D(STREAMS)),
    PLAIN(NGRAM_CONV_NORM, "ple_norm_conv.weight", D(EMBD), D(STREAMS)),
    PLAIN(NGRAM_CONV, "ple_conv1d.weight", D(NGRAM_CONV), D(STREAMS_EMBD)),
    MATRIX(NGRAM_SUM, "ple_sum", D(EMBD), D(ONE)),
    MATRIX(DEPTH_MIXER, "attn_res_score.weight", D(EMBD)),
    MATRIX(DEPTH_CHANNEL, "ffn_res_score.weight", D(EMBD)),
    NORM(ATTN_SUB_NORM, "attn_sub_norm", D(O)),
    NORM(FFN_SUB_NORM, "ffn_sub_norm", D(FF)),
    NORM(FFN_PRE_NORM_2, "pre_ffw_norm_2", D(EMBD)),
    NORM(FFN_POST_NORM_1, "post_ffw_norm_1", D(EMBD)),
    NORM(FFN_POST_NORM_2, "post_ffw_norm_2", D(EMBD)),
    PLAIN(FFN_ROUTER_NORM, "ffn_gate_inp.scale", D(EMBD)),
    MATRIX(FFN_SUM, "ffn_sum", D(FF), D(ONE)),
    MATRIX(PER_LAYER_GATE, "inp_gate.weight", D(EMBD), D(PER_LAYER)),
    MATRIX(PER_LAYER_PROJ, "proj.weight", D(PER_LAYER), D(EMBD)),
    NORM(PER_LAYER_POST_NORM, "post_norm", D(EMBD)),
    MATRIX(ALTUP_ROUTER, "altup_router.weight", D(EMBD), D(STREAMS)),
    NORM(ALTUP_ROUTER_NORM, "altup_router_norm", D(EMBD)),
    MATRIX(ALTUP_PREDICT, "altup_predict_coef.weight", D(STREAMS), D(STREAMS_SQUARED)),
    MATRIX(ALTUP_CORRECT, "altup_correct_coef.weight", D(STREAMS), D(STREAMS)),
    PLAIN(ALTUP_CORRECT_SCALE, "altup_correct_scale.weight", D(EMBD)),
    MATRIX(LAUREL_L, "laurel_l.weight", D(EMBD), D(LAUREL)),
    MATRIX(LAUREL_R, "laurel_r.weight", D(LAUREL), D(EMBD)),
    NORM(LAUREL_NORM, "laurel_post_norm", D(EMBD)),
    MATRIX(NEXTN_PROJ, "nextn.eh_proj.weight", D(EMBD_TWICE), D(EMBD)),
    NORM(NEXTN_EMBD_NORM, "nextn.enorm", D(EMBD)),
    NORM(NEXTN_HIDDEN_NORM, "nextn.hnorm", D(EMBD)),
    PLAIN(NEXTN_STREAMS_NORM, "nextn.hnorm.weight", D(EMBD), D(STREAMS)),
    PLAIN(NEXTN_MIX_NORM, "nextn.hc_head_norm.weight", D(EMBD), D(STREAMS)),
    MATRIX(NEXTN_MIX_DOWN, "nextn.hc_head_down.weight", D(STREAMS_EMBD), D(STREAMS_RANK)),
    MATRIX(NEXTN_MIX_UP, "nextn.hc_head_up.weight", D(STREAMS_RANK), D(STREAMS_EMBD)),
    ROWS(NEXTN_EMBD, "nextn.embed_tokens.weight", D(EMBD), D(VOCAB)),
    MATRIX(NEXTN_HEAD, "nextn.shared_head_head.weight", D(EMBD), D(VOCAB)),
    NORM(NEXTN_HEAD_NORM, "nextn.shared_head_norm", D(EMBD)),
};
/* clang-format on */

const llm_role_info *llm_role_get(llm_role role) {
    return &roles[role];
}

void llm_role_name(llm_role role, int32_t layer, char name[LLM_TENSOR_NAME_SIZE]) {
    if (layer < 0)
        snprintf(name, LLM_TENSOR_NAME_SIZE, "%s", roles[role].suffix);
    else
        snprintf(name, LLM_TENSOR_NAME_SIZE, "blk.%d.%s", layer, roles[role].suffix);
}

int32_t llm_tensor_layer(const char *name, const char **suffix_out) {
    int32_t layer = 0, n_digit = 0;
    *suffix_out = name;
    if (strncmp(name, "blk.", 4) != 0) return -1;
    const char *at = name + 4;
    for (; *at >= '0' && *at <= '9' && n_digit < 9; at++, n_digit++)
        layer = 10 * layer + (*at - '0');
    if (n_digit == 0 || *at != '.') return -1;
    *suffix_out = at + 1;
    return layer;
}

/* How many of the first layers are named as the encoder's of T5; those behind them are named as the
 * decoder's. 0 = layers have the usual names. */
static int32_t t5_encoder_layers(const llm_gguf *gguf) {
    llm_gguf_str arch = {"", 0};
    uint32_t n = 0;
    llm_gguf_get_str(gguf, "general.architecture", LLM_GGUF_OPTIONAL, &arch, NULL);
    if (llm_gguf_str_equals(arch, "t5encoder")) return INT32_MAX;
    if (!llm_gguf_str_equals(arch, "t5")) return 0;
    llm_gguf_get_u32(gguf, "t5.block_count", LLM_GGUF_OPTIONAL, &n, NULL);
    return n < INT32_MAX ? (int32_t)n : INT32_MAX;
}

void llm_role_name_in(const llm_gguf *gguf, llm_role role, int32_t layer,
                      char name[LLM_TENSOR_NAME_SIZE]) {
    const int32_t n_encoder = layer >= 0 ? t5_encoder_layers(gguf) : 0;
    const bool is_encoder = layer < n_encoder;
    if (n_encoder == 0)
        llm_role_name(role, layer, name);
    else
        snprintf(name, LLM_TENSOR_NAME_SIZE, "%s.blk.%d.%s", is_encoder ? "enc" : "dec",
                 is_encoder ? layer : layer - n_encoder,
                 role == LLM_ROLE_ATTN_OUT ? "attn_o.weight" : roles[role].suffix);
}

const llm_gguf_tensor *llm_tensor_beside(const llm_gguf *gguf, const char *matrix,
                                         const char *suffix) {
    static const char weight[] = ".weight";
    char name[LLM_TENSOR_NAME_SIZE];
    const size_t len = strlen(matrix);
    if (len < sizeof weight || strcmp(matrix + len - strlen(weight), weight) != 0) return NULL;
    const int n = (int)(len - strlen(weight));
    if (snprintf(name, sizeof name, "%.*s%s", n, matrix, suffix) >= (int)sizeof name) return NULL;
    return llm_gguf_tensor_find(gguf, name);
}

bool llm_tensor_is_scale(const llm_gguf *gguf, const char *name, const char *suffix) {
    char matrix[LLM_TENSOR_NAME_SIZE];
    const size_t len = strlen(name), n = strlen(suffix);
    if (len <= n || strcmp(name + len - n, suffix) != 0) return false;
    if (snprintf(matrix, sizeof matrix, "%.*s.weight", (int)(len - n), name) >= (int)sizeof matrix)
        return false;
    return llm_gguf_tensor_find(gguf, matrix) != NULL;
}

const llm_gguf_tensor *llm_role_tensor(const llm_gguf *gguf, llm_role role, int32_t layer) {
    char name[LLM_TENSOR_NAME_SIZE];
    llm_role_name_in(gguf, role, layer, name);
    const llm_gguf_tensor *t = llm_gguf_tensor_find(gguf, name);
    char *end = strrchr(name, '.');
    if (t != NULL || end == NULL || strcmp(end, ".weight") != 0) return t;
    *end = '\0';
    return llm_gguf_tensor_find(gguf, name);
}
