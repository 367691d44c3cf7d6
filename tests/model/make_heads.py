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

N_VOCAB = 128
U32, I32, F32, BOOL, STR, ARRAY = 4, 5, 6, 7, 8, 9


def text(s):
    data = s.encode()
    return struct.pack('<Q', len(data)) + data


def value(v):
    """A key's value with its type, by the type of v; lists are arrays of their first element's type."""
    if isinstance(v, bool):
        return BOOL, struct.pack('<?', v)
    if isinstance(v, int):
        return U32, struct.pack('<I', v)
    if isinstance(v, float):
        return F32, struct.pack('<f', v)
    if isinstance(v, str):
        return STR, text(v)
    kind = value(v[0])[0] if v else STR
    return ARRAY, struct.pack('<IQ', kind, len(v)) + b''.join(value(each)[1] for each in v)


def head(arch, keys, tensors):
    """The file up to its data."""
    every = {'general.architecture': arch, 'general.name': 'tiny'}
    vocab = {k: v for k, v in keys.items() if k.startswith('tokenizer.')}
    every.update(('%s.%s' % (arch, k) if not k.startswith('xielu.') else k, v) for k, v in keys.items() if k not in vocab)
    if 'token_types.weight' in tensors:
        every['tokenizer.ggml.token_type_count'] = tensors['token_types.weight'][1]
    every.update({
        'tokenizer.ggml.model': 'test',
        'tokenizer.ggml.tokens': ['tok_%d' % i for i in range(N_VOCAB)],
        'tokenizer.ggml.token_type': [1] * N_VOCAB,
        'tokenizer.ggml.scores': [0.0] * N_VOCAB,
        'tokenizer.ggml.merges': [],
        'tokenizer.ggml.add_bos_token': False,
        'tokenizer.ggml.add_eos_token': False,
        'tokenizer.ggml.add_space_prefix': False,
    })
    every.update(vocab)
    out = b'GGUF' + struct.pack('<IQQ', 3, len(tensors), len(every))
    for k, v in every.items():
        kind, data = value(v)
        if k == 'tokenizer.ggml.token_type':
            data = struct.pack('<I', I32) + data[4:]
        out += text(k) + struct.pack('<I', kind) + data
    offset = 0
    for name, shape in tensors.items():
        size = 4
        for n in shape:
            size *= n
        out += text(name) + struct.pack('<I%dQ' % len(shape), len(shape), *shape) + struct.pack('<IQ', 0, offset)
        offset += -(-size // 32) * 32
    return out + b'\0' * (-len(out) % 32)


def attention(at, n_embd, n_head, n_kv, length):
    return {at + 'attn_norm.weight': [n_embd],
            at + 'attn_q.weight': [n_embd, n_head * length],
            at + 'attn_k.weight': [n_embd, n_kv * length],
            at + 'attn_v.weight': [n_embd, n_kv * length],
            at + 'attn_output.weight': [n_head * length, n_embd]}


def ffn(at, n_embd, n_ff, has_gate=True):
    t = {at + 'ffn_norm.weight': [n_embd],
         at + 'ffn_up.weight': [n_embd, n_ff],
         at + 'ffn_down.weight': [n_ff, n_embd]}
    if has_gate:
        t[at + 'ffn_gate.weight'] = [n_embd, n_ff]
    return t


def experts(at, n_embd, n_ff, n_shared=0, has_bias=True):
    """Eight experts, with a bias of their choice, and one for all tokens."""
    t = {at + 'ffn_gate_inp.weight': [n_embd, 8]}
    if has_bias:
        t[at + 'exp_probs_b.bias'] = [8]
    t.update({at + 'ffn_gate_exps.weight': [n_embd, n_ff, 8], at + 'ffn_up_exps.weight': [n_embd, n_ff, 8],
              at + 'ffn_down_exps.weight': [n_ff, n_embd, 8]})
    if n_shared > 0:
        t.update({at + 'ffn_gate_shexp.weight': [n_embd, n_shared], at + 'ffn_up_shexp.weight': [n_embd, n_shared],
                  at + 'ffn_down_shexp.weight': [n_shared, n_embd]})
    return t


def head_norms(at, length):
    return {at + 'attn_q_norm.weight': [length], at + 'attn_k_norm.weight': [length]}


def ends(n_embd, is_tied=False):
    t = {'token_embd.weight': [n_embd, N_VOCAB], 'output_norm.weight': [n_embd]}
    if not is_tied:
        t['output.weight'] = [n_embd, N_VOCAB]
    return t


def base(n_embd, n_layer, n_ff, n_head, n_kv, length=None):
    keys = {'vocab_size': N_VOCAB, 'context_length': 256, 'embedding_length': n_embd, 'block_count': n_layer,
            'feed_forward_length': n_ff, 'attention.head_count': n_head, 'attention.head_count_kv': n_kv,
            'attention.layer_norm_rms_epsilon': 1e-5, 'rope.freq_base': 10000.0}
    if length is not None:
        keys.update({'attention.key_length': length, 'attention.value_length': length, 'rope.dimension_count': length})
    return keys


def fuse_qkv(t, at):
    """Makes Q, K and V of a layer one matrix."""
    q, k, v = (t.pop(at + 'attn_%s.weight' % name) for name in 'qkv')
    t[at + 'attn_qkv.weight'] = [q[0], q[1] + k[1] + v[1]]


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
    else:
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


def rwkv_keys(n_embd, n_layer, n_ff, length, n_shift):
    return {'context_length': 256, 'embedding_length': n_embd, 'block_count': n_layer, 'feed_forward_length': n_ff,
            'attention.head_count': 0, 'wkv.head_size': length, 'token_shift_count': n_shift}


def layer_norm(name, n):
    return {name + '.weight': [n], name + '.bias': [n]}


def rwkv_ends(n_embd):
    t = ends(n_embd)
    t.update(layer_norm('token_embd_norm', n_embd))
    t.update(layer_norm('output_norm', n_embd))
    return t


def rwkv_square(at, n_embd, names):
    return {at + 'time_mix_%s.weight' % name: [n_embd, n_embd] for name in names}


def rwkv_channel(at, n_embd, n_ff, has_gate):
    t = {at + 'channel_mix_lerp_k.weight': [n_embd], at + 'channel_mix_key.weight': [n_embd, n_ff],
         at + 'channel_mix_value.weight': [n_ff, n_embd]}
    if has_gate:
        t.update({at + 'channel_mix_lerp_r.weight': [n_embd], at + 'channel_mix_receptance.weight': [n_embd, n_embd]})
    return t


def rwkv6(is_split=False):
    """The stream is halved behind the second layer. Split: a tensor for each input that is mixed."""
    n_embd, n_layer, n_ff, length, n_mix, n_decay = 96, 3, 160, 16, 12, 20
    keys = rwkv_keys(n_embd, n_layer, n_ff, length, 2)
    keys.update({'attention.layer_norm_epsilon': 1e-5, 'time_mix_extra_dim': n_mix, 'time_decay_extra_dim': n_decay,
                 'rescale_every_n_layers': 2})
    t = rwkv_ends(n_embd)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        for name in ('attn_norm', 'attn_norm_2', 'time_mix_ln'):
            t.update(layer_norm(at + name, n_embd))
        t.update({at + 'time_mix_w1.weight': [n_embd, 5 * n_mix], at + 'time_mix_w2.weight': [n_mix, n_embd, 5],
                  at + 'time_mix_lerp_x.weight': [n_embd], at + 'time_mix_lerp_fused.weight': [n_embd, 1, 1, 5],
                  at + 'time_mix_first.weight': [length, n_embd // length], at + 'time_mix_decay.weight': [n_embd],
                  at + 'time_mix_decay_w1.weight': [n_embd, n_decay],
                  at + 'time_mix_decay_w2.weight': [n_decay, n_embd]})
        if is_split:
            del t[at + 'time_mix_lerp_fused.weight']
            t.update({at + 'time_mix_lerp_%s.weight' % name: [n_embd] for name in 'wkvrg'})
        t.update(rwkv_square(at, n_embd, ('key', 'value', 'receptance', 'gate', 'output')))
        t.update(rwkv_channel(at, n_embd, n_ff, True))
    return 'rwkv6', keys, t


def rwkv7_mixer(at, n_embd, ranks, is_first):
    """ranks: of decay, rate, value and gate; 0 = no gate."""
    n_decay, n_rate, n_value, n_gate = ranks
    t = {at + 'time_mix_lerp_fused.weight': [n_embd, 1, 1, 6 if n_gate > 0 else 5]}
    for name, n in (('w', n_decay), ('a', n_rate), ('v', n_rate if is_first else n_value)):
        t.update({at + 'time_mix_%s0.weight' % name: [n_embd], at + 'time_mix_%s1.weight' % name: [n_embd, n],
                  at + 'time_mix_%s2.weight' % name: [n, n_embd]})
    if n_gate > 0:
        t.update({at + 'time_mix_g1.weight': [n_embd, n_gate], at + 'time_mix_g2.weight': [n_gate, n_embd]})
    t.update({at + 'time_mix_%s.weight' % name: [n_embd] for name in ('k_k', 'k_a', 'r_k')})
    t.update(rwkv_square(at, n_embd, ('key', 'value', 'receptance', 'output')))
    return t


def rwkv7_ranks(keys, ranks):
    for name, n in zip(('decay', 'iclr', 'value_residual_mix', 'gate'), ranks):
        keys['attention.%s_lora_rank' % name] = n


def rwkv7():
    """llama.cpp scans heads of whole vectors only: of 64 elements."""
    n_embd, n_layer, n_ff, length, ranks = 192, 3, 160, 64, (12, 20, 8, 24)
    keys = rwkv_keys(n_embd, n_layer, n_ff, length, 2)
    keys['attention.layer_norm_epsilon'] = 1e-5
    rwkv7_ranks(keys, ranks)
    t = rwkv_ends(n_embd)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        for name in ('attn_norm', 'attn_norm_2', 'time_mix_ln'):
            t.update(layer_norm(at + name, n_embd))
        t.update(rwkv7_mixer(at, n_embd, ranks, i == 0))
        t.update(rwkv_channel(at, n_embd, n_ff, False))
    return 'rwkv7', keys, t


def arwkv7(has_gate):
    """With a gate its heads are normed, too."""
    n_embd, n_layer, n_ff, length, ranks = 192, 3, 160, 64, (12, 20, 8, 24 if has_gate else 0)
    keys = rwkv_keys(n_embd, n_layer, n_ff, length, 1)
    keys['attention.layer_norm_rms_epsilon'] = 1e-6
    rwkv7_ranks(keys, ranks)
    t = ends(n_embd)
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t[at + 'attn_norm.weight'] = [n_embd]
        if has_gate:
            t.update(layer_norm(at + 'time_mix_ln', n_embd))
        t.update(rwkv7_mixer(at, n_embd, ranks, i == 0))
        t.update(ffn(at, n_embd, n_ff))
    return 'arwkv7', keys, t


def encoder(n_embd, n_layer, n_ff, n_head):
    return {'context_length': 96, 'embedding_length': n_embd, 'block_count': n_layer, 'feed_forward_length': n_ff,
            'attention.head_count': n_head, 'attention.causal': False, 'pooling_type': 1}


def jina_bert_v2():
    """Layers have a gate, gate and up in one matrix, or none; the second has norms of queries and keys and a second sum."""
    n_embd, n_layer, n_ff = 64, 3, 96
    keys = encoder(n_embd, n_layer, n_ff, 4)
    keys['attention.layer_norm_epsilon'] = 1e-5
    t = {'token_embd.weight': [n_embd, N_VOCAB], 'token_types.weight': [n_embd, 2]}
    t.update(layer_norm('token_embd_norm', n_embd))
    for i in range(n_layer):
        at = 'blk.%d.' % i
        for name in ('attn_q', 'attn_k', 'attn_v', 'attn_output'):
            t.update({at + name + '.weight': [n_embd, n_embd], at + name + '.bias': [n_embd]})
        for name in ('attn_output_norm', 'layer_output_norm') + (('attn_q_norm', 'attn_k_norm', 'attn_norm_2') if i == 1 else ()):
            t.update(layer_norm(at + name, n_embd))
        t.update({at + 'ffn_up.weight': [n_embd, 2 * n_ff if i == 1 else n_ff],
                  at + 'ffn_down.weight': [n_ff, n_embd], at + 'ffn_down.bias': [n_embd]})
        if i == 0:
            t[at + 'ffn_gate.weight'] = [n_embd, n_ff]
    return 'jina-bert-v2', keys, t


def bare_encoder(n_embd, n_layer, n_ff, n_head, length, eps):
    keys = encoder(n_embd, n_layer, n_ff, n_head)
    keys.update({'attention.%s' % eps: 1e-5, 'attention.key_length': length, 'attention.value_length': length})
    return keys


def gemma_embedding():
    """Windows of 5 tokens before and behind, but for each third layer; matrices behind the pooling."""
    n_embd, n_layer, n_ff, length = 64, 4, 96, 32
    keys = bare_encoder(n_embd, n_layer, n_ff, 4, length, 'layer_norm_rms_epsilon')
    keys.update({'attention.head_count_kv': 2, 'rope.freq_base': 1e6, 'rope.freq_base_swa': 1e4,
                 'attention.sliding_window': 11, 'attention.sliding_window_pattern': 3,
                 'dense_2_feat_in': n_embd, 'dense_2_feat_out': 80, 'dense_3_feat_in': 80, 'dense_3_feat_out': n_embd})
    t = ends(n_embd, True)
    t.update({'dense_2.weight': [n_embd, 80], 'dense_3.weight': [80, n_embd]})
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 4, 2, length))
        t.update(head_norms(at, length))
        t.update(ffn(at, n_embd, n_ff))
        t.update({at + 'post_attention_norm.weight': [n_embd], at + 'post_ffw_norm.weight': [n_embd]})
    return 'gemma-embedding', keys, t


def modern_bert(act):
    """The first layer and each third one see all, the others 4 tokens before and behind. With SiLU each second one."""
    n_embd, n_layer, n_ff, n_head = 64, 5, 96, 4
    keys = bare_encoder(n_embd, n_layer, n_ff, n_head, n_embd // n_head, 'layer_norm_epsilon')
    keys.update({'rope.freq_base': 160000.0, 'rope.freq_base_swa': 1e4, 'attention.sliding_window': 8})
    if act is not None:
        keys.update({'hidden_activation': act, 'attention.sliding_window_pattern': 2})
    t = {'token_embd.weight': [n_embd, N_VOCAB], 'token_embd_norm.weight': [n_embd], 'output_norm.weight': [n_embd]}
    for i in range(n_layer):
        at = 'blk.%d.' % i
        if i > 0:
            t[at + 'attn_norm.weight'] = [n_embd]
        t.update({at + 'attn_qkv.weight': [n_embd, 3 * n_embd], at + 'attn_output.weight': [n_embd, n_embd],
                  at + 'ffn_norm.weight': [n_embd], at + 'ffn_up.weight': [n_embd, 2 * n_ff],
                  at + 'ffn_down.weight': [n_ff, n_embd]})
    return 'modern-bert', keys, t


def llama_embed():
    n_embd, n_layer, n_ff, length = 64, 2, 96, 16
    keys = bare_encoder(n_embd, n_layer, n_ff, 4, length, 'layer_norm_rms_epsilon')
    keys.update({'attention.head_count_kv': 2, 'rope.dimension_count': length, 'rope.freq_base': 5e5})
    t = ends(n_embd, True)
    t['rope_freqs.weight'] = [length // 2]
    for i in range(n_layer):
        at = 'blk.%d.' % i
        t.update(attention(at, n_embd, 4, 2, length))
        t.update(ffn(at, n_embd, n_ff))
    return 'llama-embed', keys, t


def t5encoder(has_gate):
    """Heads are wider than the stream together. Without gates the second layer has a bias of its own."""
    n_embd, n_layer, n_ff, n_head, length, n_range = 48, 3, 96, 4, 16, 12
    keys = bare_encoder(n_embd, n_layer, n_ff, n_head, length, 'layer_norm_rms_epsilon')
    keys['attention.relative_buckets_count'] = n_range
    t = {'token_embd.weight': [n_embd, N_VOCAB], 'enc.output_norm.weight': [n_embd]}
    for i in range(n_layer):
        at = 'enc.blk.%d.' % i
        t.update(attention(at, n_embd, n_head, n_head, length))
        t[at + 'attn_o.weight'] = t.pop(at + 'attn_output.weight')
        t.update(ffn(at, n_embd, n_ff, has_gate))
        if i == 0 or (i == 1 and not has_gate):
            t[at + 'attn_rel_b.weight'] = [n_head, n_range]
    return 't5encoder', keys, t


def unigram(start):
    """Words and letters, and behind three special tokens the one that begins an answer, in its place."""
    words = ['\u2581' + w for w in ('the a dog cat house translate English to German is good sees and small big day night sun moon tree '
                                    'river blue red green old new one two three ing er ed s').split()]
    letters = list('abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.,:!?-')
    tokens = ['<pad>', '</s>', '<unk>'] + words[:start - 3] + ['<start>'] + words[start - 3:] + ['\u2581'] + letters
    tokens += ['<extra_id_%d>' % i for i in range(N_VOCAB - len(tokens))]
    kinds = [2 if t == '<unk>' else 3 if t[0] == '<' else 1 for t in tokens]
    return {'tokenizer.ggml.model': 't5', 'tokenizer.ggml.pre': 'default', 'tokenizer.ggml.tokens': tokens,
            'tokenizer.ggml.token_type': kinds,
            'tokenizer.ggml.scores': [-4.0 * len(t) ** 0.5 if k == 1 else 0.0 for t, k in zip(tokens, kinds)],
            'tokenizer.ggml.eos_token_id': 1, 'tokenizer.ggml.unknown_token_id': 2, 'tokenizer.ggml.padding_token_id': 0,
            'tokenizer.ggml.add_eos_token': True, 'tokenizer.ggml.add_space_prefix': True,
            'tokenizer.ggml.remove_extra_whitespaces': True}


def t5(has_gate):
    """With gates the decoder has fewer layers. Without them the head is the embedding, and both stacks have a second
    bias, and there is a vocabulary. llama.cpp reads neither a longer decoder nor shared KV heads."""
    n_embd, n_ff, n_head, length, n_range = 48, 96, 4, 16, 12
    n_layer, n_decoder = 3, 2 if has_gate else 3
    keys = bare_encoder(n_embd, n_layer, n_ff, n_head, length, 'layer_norm_rms_epsilon')
    keys.pop('attention.causal')
    keys.pop('pooling_type')
    keys['attention.relative_buckets_count'] = n_range
    keys['decoder_start_token_id'] = 6  # of the tokens of the fixtures the eighth
    if has_gate:
        keys['decoder_block_count'] = n_decoder
    else:
        keys.update(unigram(6))
    t = {'token_embd.weight': [n_embd, N_VOCAB], 'enc.output_norm.weight': [n_embd],
         'dec.output_norm.weight': [n_embd]}
    if has_gate:
        t['output.weight'] = [n_embd, N_VOCAB]
    for at, i in [('enc.blk.%d.' % i, i) for i in range(n_layer)] + [('dec.blk.%d.' % i, i) for i in range(n_decoder)]:
        t.update(attention(at, n_embd, n_head, n_head, length))
        t[at + 'attn_o.weight'] = t.pop(at + 'attn_output.weight')
        t.update(ffn(at, n_embd, n_ff, has_gate))
        if i == 0 or (i == 1 and not has_gate):
            t[at + 'attn_rel_b.weight'] = [n_head, n_range]
        if at.startswith('dec'):
            cross = attention(at + 'cross_', n_embd, n_head, n_head, length)
            cross[at + 'cross_attn_o.weight'] = cross.pop(at + 'cross_attn_output.weight')
            t.update(cross)
    return 't5', keys, t


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
