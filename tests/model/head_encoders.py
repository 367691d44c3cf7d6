# SPDX-License-Identifier: MIT
"""head_encoders.py: heads of encoders and T5, for make_heads.py."""

from head_parts import N_VOCAB, attention, ends, ffn, head_norms, layer_norm


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
