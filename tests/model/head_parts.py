# SPDX-License-Identifier: MIT
"""head_parts.py: the file of a head (keys and tensors of a GGUF file, without its data), and tensors that architectures
have in common. Used by make_heads.py and the files of families beside it."""

import struct

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


def layer_norm(name, n):
    return {name + '.weight': [n], name + '.bias': [n]}
