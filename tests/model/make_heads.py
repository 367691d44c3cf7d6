#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_heads.py: headers of the tiny models whose architectures have no other fixture.

usage: make_heads.py OUT_DIR [NAME ...]
       make_heads.py --ranks OUT_DIR

Writes NAME.head, a compressed GGUF file without its data: keys and tensors of f32. arch_fixture.c
fills in the weights. llama.cpp's logits of each model lie beside it in tests/model/archs:
`archs_matrix write FOLDER NAME` writes the model, and ../archs.sh shows how to run llama.cpp.
"""

import gzip
import os
import struct
import sys

from head_encoders import gemma_embedding, jina_bert_v2, llama_embed, modern_bert, t5, t5encoder
from head_parts import (
    ARRAY, BOOL, F32, I32, N_VOCAB, STR, U32, attention, base, ends, experts, ffn, fuse_qkv, head,
    head_norms, text, value
)
from head_rwkv import arwkv7, rwkv6, rwkv7


def gemma4(is_window, n_shared, n_per_layer, n_expert, is_fused=False):
    """Windows with shorter heads and more of them for keys; the last layers read caches of earlier ones. Fused: these
    have matrices for keys and values all the same."""
    n_embd, n_layer, n_first = 64, len(is_window), len(is_window) - n_shared
    n_kv = [2 if w else 1 for w in is_window]
    n_ff = [96 if i < n_first else 128 for i in range(n_layer)]
    keys = base(n_embd, n_layer, n_ff, 4, n_kv, 64)
    keys.update({'rope.freq_base': 1e6, 'rope.freq_base_swa': 1e4, 'rope.dimension_count_swa': 32,
                 'attention.key_length_swa': 32, 'attention.value_length_swa': 32,
                 'attention.sliding_window': 8, 'attention.sliding_window_pattern': [bool(w) for w in is_window],
                 'attention.shared_kv_layers': n_shared, 'embedding_length_per_layer_input': n_per_layer,
                 'final_logit_softcapping': 3.0})
    t = ends(n_embd, True)
    t['rope_freqs.weight'] = [32]
    if n_per_layer > 0:
        t.update({'per_layer_token_embd.weight': [n_per_layer * n_layer, N_VOCAB],
                  'per_layer_model_proj.weight': [n_embd, n_per_layer * n_layer],
                  'per_layer_proj_norm.weight': [n_per_layer]})
    if n_expert > 0:
        keys.update({'expert_count': n_expert, 'expert_used_count': 2, 'expert_feed_forward_length': 32})
    for i in range(n_layer):
        at, length = 'blk.%d.' % i, 32 if is_window[i] else 64
        t.update(attention(at, n_embd, 4, n_kv[i], length))
        t.update(head_norms(at, length))
        if is_fused:
            fuse_qkv(t, at)
        elif i >= n_first:
            for name in ('attn_k.weight', 'attn_v.weight', 'attn_k_norm.weight'):
                del t[at + name]
        elif i == 1:
            del t[at + 'attn_v.weight']
        elif i == 0:
            fuse_qkv(t, at)
        t[at + 'post_attention_norm.weight'] = [n_embd]
        t.update(ffn(at, n_embd, n_ff[i]))
        t[at + 'post_ffw_norm.weight'] = [n_embd]
        t[at + 'layer_output_scale.weight'] = [1]
        if n_per_layer > 0:
            t.update({at + 'inp_gate.weight': [n_embd, n_per_layer], at + 'proj.weight': [n_per_layer, n_embd],
                      at + 'post_norm.weight': [n_embd]})
        if n_expert > 0 and i != 2:
            t.update({at + 'ffn_gate_inp.weight': [n_embd, n_expert], at + 'ffn_gate_inp.scale': [n_embd],
                      at + 'pre_ffw_norm_2.weight': [n_embd], at + 'post_ffw_norm_1.weight': [n_embd],
                      at + 'post_ffw_norm_2.weight': [n_embd], at + 'ffn_down_exps.weight': [32, n_embd, n_expert],
                      at + 'ffn_down_exps.scale': [n_expert]})
            if i == 0:
                t[at + 'ffn_gate_up_exps.weight'] = [n_embd, 64, n_expert]
            else:
                t[at + 'ffn_gate_exps.weight'] = t[at + 'ffn_up_exps.weight'] = [n_embd, 32, n_expert]
    return 'gemma4', keys, t


SCALED = ['attn_%s' % name for name in ('q', 'k', 'v', 'qkv', 'gate', 'output')]
SCALED += ['ffn_%s%s' % (name, kind) for name in ('gate', 'up', 'down') for kind in ('', '_exps', '_shexp')]
SCALED += ['ssm_in', 'ssm_out', 'ssm_alpha', 'ssm_beta']


def scaled(model):
    """A model whose matrices have scales, as in files of NVFP4: a number, or one for each expert. Those for
    activations of four bits, which llama.cpp does not use, are there, too."""
    arch, keys, t = model
    for name, shape in list(t.items()):
        if name.startswith('blk.') and name.endswith('.weight') and name.split('.')[-2] in SCALED:
            for suffix in ('.scale', '.input_scale'):
                t[name.replace('.weight', suffix)] = [shape[2] if len(shape) > 2 else 1]
    return arch, keys, t


def llama_dense():
    n_embd = 64
    t = ends(n_embd)
    for i in range(2):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 4, 2, 16))
        t.update(ffn(at, n_embd, 96))
    return 'llama', base(n_embd, 2, 96, 4, 2, 16), t


def deepseek2_ocr():
    """A dense layer and two with experts, of which each layer has a number and a width of its own in the file."""
    n_embd, n_layer = 64, 3
    keys = base(n_embd, n_layer, 96, 4, 4)
    keys.update({'leading_dense_block_count': 1, 'expert_count': 8, 'expert_used_count': [3] * n_layer,
                 'expert_feed_forward_length': [32] * n_layer, 'expert_shared_count': 2, 'expert_weights_scale': 1.5})
    t = ends(n_embd)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 4, 4, 16))
        t.update(ffn(at, n_embd, 96) if i == 0 else experts(at, n_embd, 32, 64, False))
        t[at + 'ffn_norm.weight'] = [n_embd]
    return 'deepseek2-ocr', keys, t


def lfm2_centred():
    """Short convolutions around attention, whose tokens see later ones."""
    n_embd, n_ff, length = 64, 96, 16
    keys = base(n_embd, 3, n_ff, 4, [0, 2, 0], length)
    keys.update({'shortconv.l_cache': 3, 'attention.causal': False, 'pooling_type': 2})
    t = {'token_embd.weight': [n_embd, N_VOCAB], 'token_embd_norm.weight': [n_embd]}
    for i in range(3):
        at = 'blk.%d.' % i
        if i == 1:
            t.update(attention(at, n_embd, 4, 2, length))
            t.update(head_norms(at, length))
        else:
            t.update({at + 'attn_norm.weight': [n_embd], at + 'shortconv.in_proj.weight': [n_embd, 3 * n_embd],
                      at + 'shortconv.conv.weight': [3, n_embd], at + 'shortconv.out_proj.weight': [n_embd, n_embd]})
        t.update(ffn(at, n_embd, n_ff))
    return 'lfm2', keys, t


def qwen_delta(arch, has_experts, is_interleaved):
    """A layer with a delta net, and one with gated attention, whose Q, K and V are one matrix. Interleaved: for each
    head of k its q, k, v and gate."""
    n_embd, n_ff, n_head, n_kv, length, state, n_v, n_k = 64, 48, 4, 2, 32, 16, 4, 2
    keys = base(n_embd, 2, 96, n_head, n_kv, length)
    keys.update({'rope.dimension_count': 16, 'attention.recurrent_layers': [1, 0], 'ssm.conv_kernel': 4,
                 'ssm.inner_size': n_v * state, 'ssm.state_size': state, 'ssm.time_step_rank': n_v,
                 'ssm.group_count': n_k})
    if has_experts:
        keys.update({'expert_count': 8, 'expert_used_count': 2, 'expert_feed_forward_length': n_ff,
                     'expert_shared_feed_forward_length': 32})
    if arch.startswith('qwen35'):
        keys['rope.dimension_sections'] = [3, 3, 2, 0]
    n_qkv = (2 * n_k + n_v) * state
    t = ends(n_embd)
    t.update({'blk.0.attn_norm.weight': [n_embd], 'blk.0.ssm_conv1d.weight': [4, n_qkv], 'blk.0.ssm_dt.bias': [n_v],
              'blk.0.ssm_a': [n_v], 'blk.0.ssm_norm.weight': [state], 'blk.0.ssm_out.weight': [n_v * state, n_embd]})
    if is_interleaved:
        t.update({'blk.0.ssm_in.weight': [n_embd, n_qkv + n_v * state], 'blk.0.ssm_ba.weight': [n_embd, 2 * n_v]})
    else:
        t.update({'blk.0.attn_qkv.weight': [n_embd, n_qkv], 'blk.0.attn_gate.weight': [n_embd, n_v * state],
                  'blk.0.ssm_beta.weight': [n_embd, n_v], 'blk.0.ssm_alpha.weight': [n_embd, n_v]})
    t.update(attention('blk.1.', n_embd, n_head, n_kv, length))
    t['blk.1.attn_q.weight'] = [n_embd, 2 * n_head * length]
    t.update(head_norms('blk.1.', length))
    fuse_qkv(t, 'blk.1.')
    for at in ('blk.0.', 'blk.1.'):
        t.update(experts(at, n_embd, n_ff, 32, False) if has_experts else ffn(at, n_embd, 96))
        t.pop(at + 'ffn_norm.weight', None)
        t[at + 'post_attention_norm.weight'] = [n_embd]
        if has_experts:
            t[at + 'ffn_gate_inp_shexp.weight'] = [n_embd]
    return arch, keys, t


def gemma3n():
    """llama.cpp gives layers from 20 on the caches of layers 18 and 19, and every fifth layer no window."""
    n_embd, n_layer, n_per_layer, n_ff, length = 32, 25, 256, 64, 32
    keys = base(n_embd, n_layer, n_ff, 2, 1, length)
    keys.update({'rope.freq_base': 1e6, 'rope.freq_base_swa': 1e4, 'attention.sliding_window': 8,
                 'attention.sliding_window_pattern': [i % 5 < 4 for i in range(n_layer)],
                 'attention.shared_kv_layers': 5, 'embedding_length_per_layer_input': n_per_layer,
                 'altup.active_idx': 0, 'altup.num_inputs': 4,
                 'activation_sparsity_scale': [1.6448533535003662] * 10 + [float('-inf')] * 15,
                 'final_logit_softcapping': 30.0})
    t = ends(n_embd, True)
    t.update({'altup_proj.weight': [n_embd, n_embd, 3], 'altup_unembd_proj.weight': [n_embd, n_embd, 3],
              'per_layer_token_embd.weight': [n_per_layer * n_layer, N_VOCAB],
              'per_layer_model_proj.weight': [n_embd, n_per_layer * n_layer],
              'per_layer_proj_norm.weight': [n_per_layer]})
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 2, 1, length))
        t.update(head_norms(at, length))
        t.update(ffn(at, n_embd, n_ff))
        t.update({at + 'post_attention_norm.weight': [n_embd], at + 'post_ffw_norm.weight': [n_embd],
                  at + 'inp_gate.weight': [n_embd, n_per_layer], at + 'proj.weight': [n_per_layer, n_embd],
                  at + 'post_norm.weight': [n_embd], at + 'altup_correct_coef.weight': [4, 4],
                  at + 'altup_correct_scale.weight': [n_embd], at + 'altup_predict_coef.weight': [4, 16],
                  at + 'altup_router.weight': [n_embd, 4], at + 'altup_router_norm.weight': [n_embd],
                  at + 'laurel_l.weight': [n_embd, 64], at + 'laurel_r.weight': [64, n_embd],
                  at + 'laurel_post_norm.weight': [n_embd]})
    return 'gemma3n', keys, t


def apertus():
    n_embd, n_layer = 64, 2
    keys = base(n_embd, n_layer, 96, 2, 1, 32)
    keys.update({'xielu.alpha_n': [0.5, -0.3], 'xielu.alpha_p': [0.8, 0.2], 'xielu.beta': [0.5, 0.4],
                 'xielu.eps': [-1e-6, -1e-6]})
    t = ends(n_embd)
    t['rope_freqs.weight'] = [16]
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 2, 1, 32))
        t.update(head_norms(at, 32))
        t.update(ffn(at, n_embd, 96, False))
    return 'apertus', keys, t


def step35():
    """Layers with a window have more heads and rotate all of a head, the others half; limits differ."""
    n_embd, is_window = 64, [False, True, True, False]
    n_head = [6 if w else 4 for w in is_window]
    keys = base(n_embd, 4, 96, n_head, [2] * 4, 32)
    keys.update({'rope.freq_base': 1e6, 'rope.freq_base_swa': 1e4, 'rope.dimension_count_swa': 32,
                 'attention.sliding_window': 8, 'attention.sliding_window_pattern': is_window,
                 'expert_count': 8, 'expert_used_count': 2, 'expert_feed_forward_length': 32,
                 'expert_shared_feed_forward_length': 48, 'leading_dense_block_count': 1,
                 'expert_weights_scale': 2.5, 'expert_weights_norm': True, 'expert_gating_func': 2,
                 'swiglu_clamp_exp': [0.0, 0.0, 0.3, 0.5], 'swiglu_clamp_shexp': [0.4, 0.3, 0.0, 0.0]})
    t = ends(n_embd)
    t['rope_freqs.weight'] = [16]
    for i in range(4):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, n_head[i], 2, 32))
        t.update(head_norms(at, 32))
        t[at + 'attn_gate.weight'] = [n_embd, n_head[i]]
        if i == 0:
            t.update(ffn(at, n_embd, 96))
            continue
        t[at + 'ffn_norm.weight'] = [n_embd]
        t.update(experts(at, n_embd, 32, 48))
    return 'step35', keys, t


def granite_swa():
    """Layers without a rotation, by a pattern; all have experts."""
    n_embd, n_layer = 64, 4
    keys = base(n_embd, n_layer, 48, 4, 2, 16)
    keys.update({'attention.sliding_window': 8, 'attention.sliding_window_pattern': [True, True, False, True],
                 'attention.rope_pattern': [True, False, False, True], 'expert_count': 8, 'expert_used_count': 2,
                 'embedding_scale': 3.0, 'residual_scale': 0.4, 'logit_scale': 2.0, 'attention.scale': 0.2})
    t = ends(n_embd, True)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 4, 2, 16))
        t.update({at + 'attn_sinks.weight': [4], at + 'ffn_norm.weight': [n_embd]})
        t.update(experts(at, n_embd, 48, has_bias=False))
    return 'granite_swa', keys, t


def mimo2():
    """Layers with a window have more heads of keys; values are shorter than keys, and attention is scaled."""
    n_embd, is_window = 64, [False, True, True, False]
    n_kv = [2 if w else 4 for w in is_window]
    keys = base(n_embd, 4, 96, 4, n_kv, 32)
    keys.update({'attention.value_length': 16, 'rope.dimension_count': 16, 'rope.freq_base': 1e6,
                 'rope.freq_base_swa': 1e4, 'attention.sliding_window': 8,
                 'attention.sliding_window_pattern': is_window, 'attention.value_scale': 0.7,
                 'expert_count': 8, 'expert_used_count': 2, 'expert_feed_forward_length': 32})
    t = ends(n_embd)
    for i in range(4):
        at = 'blk.%d.' % i
        t.update({at + 'attn_norm.weight': [n_embd], at + 'attn_q.weight': [n_embd, 4 * 32],
                  at + 'attn_k.weight': [n_embd, n_kv[i] * 32], at + 'attn_v.weight': [n_embd, n_kv[i] * 16],
                  at + 'attn_output.weight': [4 * 16, n_embd]})
        if is_window[i]:
            t[at + 'attn_sinks.weight'] = [4]
        if i == 0:
            t.update(ffn(at, n_embd, 96))
            continue
        t[at + 'ffn_norm.weight'] = [n_embd]
        t.update(experts(at, n_embd, 32))
    return 'mimo2', keys, t


def laguna(n_head, is_window, has_wide_gate, has_pattern=True):
    """Layers have heads of their own number; those with a window rotate all of a head, without scaling. Without a
    pattern each fourth layer has no window, the first of them."""
    n_embd, n_layer, length = 64, len(n_head), 32
    keys = base(n_embd, n_layer, 96, n_head, 2, length)
    keys.update({'rope.dimension_count': 16, 'rope.freq_base': 5e5, 'rope.scaling.type': 'yarn',
                 'rope.scaling.factor': 4.0, 'rope.scaling.original_context_length': 64,
                 'rope.scaling.yarn_attn_factor': 1.138629436, 'leading_dense_block_count': 1, 'expert_count': 8,
                 'expert_used_count': 2, 'expert_feed_forward_length': 32, 'expert_shared_feed_forward_length': 48,
                 'expert_weights_scale': 2.5, 'expert_weights_norm': True, 'expert_gating_func': 2})
    if any(is_window):
        keys.update({'rope.freq_base_swa': 1e4, 'rope.dimension_count_swa': length, 'attention.sliding_window': 8,
                     'attention.sliding_window_pattern': is_window})
    if not has_pattern:
        del keys['attention.sliding_window_pattern']
    t = ends(n_embd)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, n_head[i], 2, length))
        t.update(head_norms(at, length))
        t[at + 'attn_gate.weight'] = [n_embd, n_head[i] * (length if has_wide_gate else 1)]
        if i == 0:
            t.update(ffn(at, n_embd, 96))
            continue
        t[at + 'ffn_norm.weight'] = [n_embd]
        t.update(experts(at, n_embd, 32, 48))
    return 'laguna', keys, t


def nanbeige(n_round, has_norm):
    """Two layers that are computed n_round times."""
    n_embd, n_layer, length = 64, 2, 16
    keys = base(n_embd, n_layer, 96, 4, 2, length)
    keys.update({'num_loops': n_round, 'skip_loop_final_norm': not has_norm})
    t = ends(n_embd)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 4, 2, length))
        t.update(ffn(at, n_embd, 96))
    return 'nanbeige', keys, t


def nemotron_h_moe():
    """Attention, a state space, and three layers whose experts have different columns, of which tokens choose a
    different number. The file has the epsilon of other norms only."""
    n_embd, n_layer, n_state, n_group, n_inner, n_expert = 64, 5, 16, 2, 128, 6
    n_ff, n_used = [0, 0, 48, 32, 64], [0, 0, 3, 1, 4]
    keys = base(n_embd, n_layer, n_ff, 4, [2, 0, 0, 0, 0], 16)
    del keys['attention.layer_norm_rms_epsilon'], keys['rope.freq_base']
    keys.update({'attention.layer_norm_epsilon': 0.01, 'ssm.conv_kernel': 4, 'ssm.inner_size': n_inner,
                 'ssm.state_size': n_state, 'ssm.group_count': n_group, 'ssm.time_step_rank': 4,
                 'expert_count': n_expert, 'expert_used_count': n_used, 'expert_feed_forward_length': n_ff,
                 'expert_shared_feed_forward_length': 80, 'expert_shared_count': 1, 'expert_weights_scale': 2.5,
                 'expert_weights_norm': True})
    t = ends(n_embd)
    n_conv = n_inner + 2 * n_group * n_state
    t.update(attention('blk.0.', n_embd, 4, 2, 16))
    t.update({'blk.1.attn_norm.weight': [n_embd], 'blk.1.ssm_in.weight': [n_embd, n_inner + n_conv + 4],
              'blk.1.ssm_conv1d.weight': [4, n_conv], 'blk.1.ssm_conv1d.bias': [n_conv], 'blk.1.ssm_dt.bias': [4],
              'blk.1.ssm_a': [1, 4], 'blk.1.ssm_d': [1, 4], 'blk.1.ssm_norm.weight': [n_inner // n_group, n_group],
              'blk.1.ssm_out.weight': [n_inner, n_embd]})
    for i in range(2, n_layer):
        at = 'blk.%d.' % i
        t.update({at + 'attn_norm.weight': [n_embd], at + 'ffn_gate_inp.weight': [n_embd, n_expert],
                  at + 'exp_probs_b.bias': [n_expert], at + 'ffn_up_exps.weight': [n_embd, n_ff[i], n_expert],
                  at + 'ffn_down_exps.weight': [n_ff[i], n_embd, n_expert],
                  at + 'ffn_up_shexp.weight': [n_embd, 80], at + 'ffn_down_shexp.weight': [80, n_embd]})
    return 'nemotron_h_moe', keys, t


def exaone4():
    """With 64 layers three of four have a window, also without a key; the others do not rotate their heads."""
    n_embd, n_layer, length = 32, 64, 16
    keys = base(n_embd, n_layer, 32, 2, 1, length)
    t = ends(n_embd, True)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 2, 1, length))
        t.update(head_norms(at, length))
        t.update(ffn(at, n_embd, 32))
        del t[at + 'attn_norm.weight'], t[at + 'ffn_norm.weight']
        t.update({at + 'post_attention_norm.weight': [n_embd], at + 'post_ffw_norm.weight': [n_embd]})
    return 'exaone4', keys, t


def plm():
    n_embd, n_layer, n_head, nope, n_rot, n_v, n_lora = 64, 2, 4, 32, 16, 32, 32
    keys = base(n_embd, n_layer, 96, n_head, n_head)
    keys.update({'attention.key_length': nope + n_rot, 'attention.value_length': n_v, 'attention.kv_lora_rank': n_lora,
                 'rope.dimension_count': n_rot})
    t = ends(n_embd, True)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update({at + 'attn_norm.weight': [n_embd], at + 'attn_q.weight': [n_embd, n_head * (nope + n_rot)],
                  at + 'attn_kv_a_mqa.weight': [n_embd, n_lora + n_rot], at + 'attn_kv_a_norm.weight': [n_lora],
                  at + 'attn_kv_b.weight': [n_lora, n_head * (nope + n_v)],
                  at + 'attn_output.weight': [n_head * n_v, n_embd]})
        t.update(ffn(at, n_embd, 96, False))
    return 'plm', keys, t


def bitnet():
    n_embd, n_layer = 64, 2
    keys = base(n_embd, n_layer, 96, 2, 1)
    t = ends(n_embd, True)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 2, 1, 32))
        t.update(ffn(at, n_embd, 96))
        t.update({at + 'attn_sub_norm.weight': [n_embd], at + 'ffn_sub_norm.weight': [96]})
        for name in ('attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_gate', 'ffn_up', 'ffn_down'):
            if i == 0 or name == 'attn_v':
                t[at + name + '.scale'] = [1]
    return 'bitnet', keys, t


def minimax_m3():
    """Two of four heads have a KV head, which selects 3 of the blocks of 4 tokens; the first layer sees all."""
    n_embd, n_layer, n_head, n_kv, length, n_expert, n_ff = 64, 3, 4, 2, 32, 4, 48
    keys = base(n_embd, n_layer, 96, n_head, n_kv, length)
    keys.update({'rope.dimension_count': 16, 'leading_dense_block_count': 1, 'expert_count': n_expert,
                 'expert_used_count': 2, 'expert_feed_forward_length': n_ff, 'expert_shared_count': 1,
                 'expert_weights_scale': 1.5, 'expert_weights_norm': True, 'expert_gating_func': 2,
                 'attention.indexer.head_count': n_kv, 'attention.indexer.key_length': 24,
                 'attention.indexer.top_k': 3, 'attention.indexer.block_size': 4,
                 'attention.indexer.local_blocks': 1})
    t = ends(n_embd)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, n_head, n_kv, length))
        t.update(head_norms(at, length))
        if i == 0:
            t.update(ffn(at, n_embd, 96))
            continue
        t.update({at + 'ffn_norm.weight': [n_embd], at + 'ffn_gate_inp.weight': [n_embd, n_expert],
                  at + 'exp_probs_b.bias': [n_expert],
                  at + 'ffn_gate_exps.weight': [n_embd, n_ff, n_expert], at + 'ffn_up_exps.weight': [n_embd, n_ff, n_expert],
                  at + 'ffn_down_exps.weight': [n_ff, n_embd, n_expert], at + 'ffn_gate_shexp.weight': [n_embd, n_ff],
                  at + 'ffn_up_shexp.weight': [n_embd, n_ff], at + 'ffn_down_shexp.weight': [n_ff, n_embd],
                  at + 'indexer.q_proj.weight': [n_embd, n_kv * 24], at + 'indexer.k_proj.weight': [n_embd, 24],
                  at + 'indexer.q_norm.weight': [24], at + 'indexer.k_norm.weight': [24]})
    return 'minimax-m3', keys, t


def skip_value(data, at, kind):
    """The place behind a value of a file."""
    if kind == STR:
        return at + 8 + struct.unpack_from('<Q', data, at)[0]
    if kind != ARRAY:
        return at + {0: 1, 1: 1, 2: 2, 3: 2, U32: 4, I32: 4, F32: 4, BOOL: 1, 10: 8, 11: 8, 12: 8}[kind]
    each, n = struct.unpack_from('<IQ', data, at)
    at += 12
    for _ in range(n):
        at = skip_value(data, at, each)
    return at


def extended(name, keys, tensors):
    """The head of a fixture with other keys, and more tensors of f32."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'archs', name + '.head')
    with gzip.open(path) as f:
        data = f.read()
    n_tensor, n_key = struct.unpack_from('<QQ', data, 8)
    kept, at = [], 24
    for _ in range(n_key):
        end = skip_value(data, at, STR)
        key, begin = data[at + 8:end].decode(), at
        at = skip_value(data, end + 4, struct.unpack_from('<I', data, end)[0])
        if key not in keys:
            kept.append(data[begin:at])
    begin, offset = at, 0
    for _ in range(n_tensor):
        at = skip_value(data, at, STR)
        n = struct.unpack_from('<I', data, at)[0]
        shape = struct.unpack_from('<%dQ' % n, data, at + 4)
        size, start = 4, struct.unpack_from('<Q', data, at + 8 + 8 * n)[0]
        for each in shape:
            size *= each
        offset = max(offset, start + -(-size // 32) * 32)
        at += 16 + 8 * n
    out = b'GGUF' + struct.pack('<IQQ', 3, n_tensor + len(tensors), len(kept) + len(keys)) + b''.join(kept)
    for key, v in keys.items():
        kind, bits = value(v)
        out += text(key) + struct.pack('<I', kind) + bits
    out += data[begin:at]
    for key, shape in tensors.items():
        size = 4
        for each in shape:
            size *= each
        out += text(key) + struct.pack('<I%dQ' % len(shape), len(shape), *shape) + struct.pack('<IQ', 0, offset)
        offset += -(-size // 32) * 32
    return out + b'\0' * (-len(out) % 32)


def cls(n_embd, n_mid, n_score, has_norm):
    t = {'cls.weight': [n_embd, n_mid], 'cls.output.weight': [n_mid, n_score]}
    if has_norm:
        t['cls.norm.weight'] = [n_mid]
    else:
        t.update({'cls.bias': [n_mid], 'cls.output.bias': [n_score]})
    return t


def grok_yarn():
    """YaRN without the keys that the architecture has own values for."""
    keys = base(64, 2, 96, 2, 1, 32)
    keys.update({'expert_feed_forward_length': 48, 'expert_count': 4, 'expert_used_count': 2,
                 'rope.scaling.type': 'yarn', 'rope.scaling.factor': 4.0,
                 'rope.scaling.original_context_length': 4096})
    t = ends(64)
    for i in range(2):
        at = 'blk.%d.' % i
        t.update(attention(at, 64, 2, 1, 32))
        t.update({at + 'attn_output_norm.weight': [64], at + 'ffn_norm.weight': [64],
                  at + 'layer_output_norm.weight': [64], at + 'ffn_gate_inp.weight': [64, 4],
                  at + 'ffn_gate_exps.weight': [64, 48, 4], at + 'ffn_up_exps.weight': [64, 48, 4],
                  at + 'ffn_down_exps.weight': [48, 64, 4]})
    return 'grok', keys, t


def qwen3_rank():
    """Scores are the shares of two words."""
    n_embd, n_layer = 64, 2
    keys = base(n_embd, n_layer, 96, 4, 2, 16)
    keys.update({'pooling_type': 4, 'classifier.output_labels': ['yes', 'no']})
    t = ends(n_embd, True)
    t['cls.output.weight'] = [n_embd, 2]
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 4, 2, 16))
        t.update(head_norms(at, 16))
        t.update(ffn(at, n_embd, 96))
    return head('qwen3', keys, t)


# Models that score texts (test_score.c).
RANKS = {
    'bert-rank': lambda: extended('bert-dense', {'bert.pooling_type': 4}, cls(64, 64, 1, False)),
    'bert-classes': lambda: extended('bert-dense', {'bert.pooling_type': 4,
                                                    'bert.classifier.output_labels': ['a', 'b', 'c']},
                                     {'cls.output.weight': [64, 3], 'cls.output.bias': [3]}),
    'modern-bert-rank': lambda: extended('modern-bert-dense', {'modern-bert.pooling_type': 4},
                                         cls(64, 64, 1, True)),
    'jina-bert-v2-rank': lambda: extended('jina-bert-v2-dense', {'jina-bert-v2.pooling_type': 4},
                                          {'cls.weight': [64, 1], 'cls.bias': [1]}),
    'qwen3-rank': qwen3_rank,
    'lfm2-colbert': lambda: extended('lfm2-centred', {'lfm2.embedding_length_out': 24, 'lfm2.pooling_type': 0},
                                     {'dense_2.weight': [64, 24], 'dense_2.bias': [24]}),
}

MODELS = {
    'gemma4-dense': lambda: gemma4([1, 0, 1, 0, 1, 0, 1], 3, 16, 0),
    'gemma4-moe': lambda: gemma4([1, 0, 1], 0, 0, 8),
    'gemma4-fused': lambda: gemma4([1, 1, 0, 1, 0], 2, 0, 0, True),
    'gemma3n-dense': gemma3n,
    'apertus-dense': apertus,
    'step35-moe': step35,
    'granite_swa-moe': granite_swa,
    'mimo2-heads': mimo2,
    'laguna-heads': lambda: laguna([2, 4, 4, 2], [False, True, True, False], False),
    'laguna-period': lambda: laguna([2, 4, 4, 4, 2], [i % 4 > 0 for i in range(5)], False, False),
    'laguna-gates': lambda: laguna([4, 4], [False, False], True),
    'nanbeige-rounds': lambda: nanbeige(2, True),
    'nanbeige-bare': lambda: nanbeige(3, False),
    'nemotron_h_moe-layers': nemotron_h_moe,
    'exaone4-layers': exaone4,
    'plm-dense': plm,
    'bitnet-dense': bitnet,
    'lfm2-centred': lfm2_centred,
    'deepseek2-ocr-moe': deepseek2_ocr,
    'llama-scales': lambda: scaled(llama_dense()),
    'qwen35moe-scales': lambda: scaled(qwen_delta('qwen35moe', True, False)),
    'nemotron_h_moe-scales': lambda: scaled(nemotron_h_moe()),
    'qwen35-fused': lambda: qwen_delta('qwen35', False, False),
    'qwen3next-interleaved': lambda: qwen_delta('qwen3next', True, True),
    'rwkv6-dense': rwkv6,
    'rwkv6-split': lambda: rwkv6(True),
    'rwkv7-dense': rwkv7,
    'arwkv7-dense': lambda: arwkv7(False),
    'arwkv7-gated': lambda: arwkv7(True),
    'jina-bert-v2-dense': jina_bert_v2,
    'gemma-embedding-dense': gemma_embedding,
    'modern-bert-dense': lambda: modern_bert(None),
    'modern-bert-silu': lambda: modern_bert('silu'),
    'llama-embed-dense': llama_embed,
    'minimax-m3-select': minimax_m3,
    'grok-yarn': grok_yarn,
    't5-dense': lambda: t5(True),
    't5-plain': lambda: t5(False),
    't5encoder-dense': lambda: t5encoder(True),
    't5encoder-plain': lambda: t5encoder(False),
}

if __name__ == '__main__':
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    if sys.argv[1] == '--ranks':
        heads = {name: make() for name, make in RANKS.items()}
        folder = sys.argv[2]
    else:
        heads = {name: head(*MODELS[name]()) for name in sys.argv[2:] or MODELS}
        folder = sys.argv[1]
    for each, data in heads.items():
        with open('%s/%s.head' % (folder, each), 'wb') as f:
            f.write(gzip.compress(data, 9, mtime=0))
