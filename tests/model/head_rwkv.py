# SPDX-License-Identifier: MIT
"""head_rwkv.py: heads of RWKV-6, RWKV-7 and models made of them, for make_heads.py."""

from head_parts import ends, ffn, layer_norm


def rwkv_keys(n_embd, n_layer, n_ff, length, n_shift):
    return {'context_length': 256, 'embedding_length': n_embd, 'block_count': n_layer, 'feed_forward_length': n_ff,
            'attention.head_count': 0, 'wkv.head_size': length, 'token_shift_count': n_shift}


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
