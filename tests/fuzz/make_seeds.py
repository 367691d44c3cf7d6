#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes the seeds of corpus/ that are not text: small whole models, every kind of GGUF value, state
files, texts behind the two bytes that choose a vocabulary and flags. Needed only to change them.
Inputs that fuzzing found (find-*) are not made here. Formats: ggml-org/ggml, docs/gguf.md; llm/cache/state.h."""
import math
import os
import struct
import sys

U8, I8, U16, I16, U32, I32, F32, BOOL, STR, ARR, U64, I64, F64 = range(13)
PACK = {U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
        I64: "q", F64: "d"}
FOLDER = os.path.join(os.path.dirname(os.path.abspath(sys.argv[0])), "corpus")


def save(target, name, data):
    os.makedirs(os.path.join(FOLDER, target), exist_ok=True)
    with open(os.path.join(FOLDER, target, name), "wb") as f:
        f.write(data)


def string(text):
    data = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(data)) + data


def value(kind, v):
    if kind == STR:
        return string(v)
    if kind == ARR:
        inner, items = v
        return struct.pack("<IQ", inner, len(items)) + b"".join(value(inner, x) for x in items)
    return struct.pack("<" + PACK[kind], v)


def gguf(keys, tensors=(), version=3):
    """tensors: (name, ne, type, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, kind, v in keys:
        out += string(name) + struct.pack("<I", kind) + value(kind, v)
    data = b""
    for name, ne, kind, size in tensors:
        out += string(name) + struct.pack("<I", len(ne)) + struct.pack("<%dQ" % len(ne), *ne)
        out += struct.pack("<IQ", kind, len(data))
        data += bytes(i * 7 % 256 for i in range(size))
        data += bytes(-len(data) % 32)
    return out + bytes(-len(out) % 32) + data


def f32(name, *ne):
    size = 4
    for n in ne:
        size *= n
    return (name, ne, 0, size)


SPM = [
    ("tokenizer.ggml.model", STR, "llama"),
    ("tokenizer.ggml.tokens", ARR,
     (STR, ["<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a", "<0x0A>", "<0xC3>", "b", "ab"])),
    ("tokenizer.ggml.scores", ARR, (F32, [0, 0, 0, -1, -2, -3, 0, 0, -4, -5])),
    ("tokenizer.ggml.token_type", ARR, (I32, [2, 3, 3, 1, 1, 1, 6, 6, 1, 4])),
    ("tokenizer.ggml.bos_token_id", U32, 1),
    ("tokenizer.ggml.add_bos_token", BOOL, 1),
    ("tokenizer.ggml.add_space_prefix", BOOL, 1),
]


def llama():
    p = "blk.0."
    keys = [("general.architecture", STR, "llama"), ("general.name", STR, "phi-3"),
            ("llama.block_count", U32, 1), ("llama.embedding_length", U32, 4),
            ("llama.context_length", U32, 64), ("llama.feed_forward_length", U32, 2),
            ("llama.attention.head_count", U32, 2),
            ("llama.attention.head_count_kv", ARR, (U32, [1])),
            ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
            ("llama.rope.scaling.type", STR, "yarn"), ("llama.rope.scaling.factor", F32, 4)] + SPM
    return gguf(keys, [
        f32("token_embd.weight", 4, 10), f32("output_norm.weight", 4),
        f32(p + "attn_norm.weight", 4), f32(p + "attn_q.weight", 4, 4),
        f32(p + "attn_k.weight", 4, 2), f32(p + "attn_v.weight", 4, 2),
        f32(p + "attn_output.weight", 4, 4), f32(p + "ffn_norm.weight", 4),
        f32(p + "ffn_gate.weight", 4, 2), f32(p + "ffn_up.weight", 4, 2),
        f32(p + "ffn_down.weight", 2, 4)])


def mixtral():
    p, q8_0 = "blk.0.", 8
    keys = [("general.architecture", STR, "llama"), ("general.alignment", U32, 32),
            ("llama.block_count", U32, 1), ("llama.embedding_length", U64, 32),
            ("llama.context_length", U32, 64), ("llama.feed_forward_length", I32, 32),
            ("llama.attention.head_count", U16, 1), ("llama.expert_count", U8, 2),
            ("llama.expert_used_count", U8, 1),
            ("llama.attention.layer_norm_rms_epsilon", F64, 1e-5)]
    return gguf(keys, [
        ("token_embd.weight", (32, 4), q8_0, 4 * 34), f32("output_norm.weight", 32),
        ("output.weight", (32, 4), q8_0, 4 * 34), f32("rope_freqs.weight", 16),
        f32(p + "attn_norm.weight", 32), (p + "attn_q.weight", (32, 32), q8_0, 32 * 34),
        (p + "attn_k.weight", (32, 32), 2, 32 * 18), (p + "attn_v.weight", (32, 32), 2, 32 * 18),
        (p + "attn_output.weight", (32, 32), q8_0, 32 * 34), f32(p + "ffn_norm.weight", 32),
        f32(p + "ffn_gate_inp.weight", 32, 2),
        (p + "ffn_gate_exps.weight", (32, 32, 2), 2, 64 * 18),
        (p + "ffn_up_exps.weight", (32, 32, 2), 2, 64 * 18),
        (p + "ffn_down_exps.weight", (32, 32, 2), 2, 64 * 18)])


# Number, and bytes of 256 elements, of the types that the models above do not have.
SMALL = [("mxfp4", 39, 136), ("iq3_s", 21, 110), ("iq3_xxs", 18, 98), ("iq2_s", 22, 82),
         ("iq2_xs", 17, 74), ("iq2_xxs", 16, 66), ("iq1_m", 29, 56), ("iq1_s", 19, 50),
         ("tq2_0", 35, 66), ("tq1_0", 34, 54), ("nvfp4", 40, 144)]


def small(first):
    """A model whose matrices have six of those types, with one block in a row."""
    p, kinds = "blk.0.", SMALL[first:] + SMALL[:first]
    keys = [("general.architecture", STR, "llama"), ("llama.block_count", U32, 1),
            ("llama.embedding_length", U32, 256), ("llama.context_length", U32, 64),
            ("llama.feed_forward_length", U32, 2), ("llama.attention.head_count", U32, 1),
            ("llama.attention.key_length", U32, 4), ("llama.attention.value_length", U32, 4),
            ("llama.rope.dimension_count", U32, 4),
            ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5)]
    names = [("token_embd", 4), (p + "attn_q", 4), (p + "attn_k", 4), (p + "attn_v", 4),
             (p + "ffn_gate", 2), (p + "ffn_up", 2)]
    return gguf(keys, [(name + ".weight", (256, n), kind, n * size)
                       for (name, n), (_, kind, size) in zip(names, kinds)] + [
        f32("output_norm.weight", 256), f32(p + "attn_norm.weight", 256),
        f32(p + "ffn_norm.weight", 256), (p + "attn_output.weight", (4, 256), 1, 2048),
        (p + "ffn_down.weight", (2, 256), 1, 1024)])


def deepseek2():
    a = "deepseek2."
    p = "blk.0."
    keys = [("general.architecture", STR, "deepseek2")] + [
        (a + k, U32, v) for k, v in [
            ("block_count", 1), ("embedding_length", 4), ("context_length", 64),
            ("feed_forward_length", 2), ("attention.head_count", 2),
            ("attention.head_count_kv", 1), ("attention.key_length", 6),
            ("attention.value_length", 4), ("rope.dimension_count", 2),
            ("attention.kv_lora_rank", 4), ("attention.key_length_mla", 4),
            ("attention.value_length_mla", 2), ("attention.q_lora_rank", 3),
            ("expert_count", 2), ("expert_used_count", 1), ("expert_feed_forward_length", 2),
            ("expert_shared_count", 1), ("expert_gating_func", 2), ("expert_group_count", 2),
            ("expert_group_used_count", 1)]
    ] + [(a + "attention.layer_norm_rms_epsilon", F32, 1e-5), (a + "expert_weights_scale", F32, 2),
         (a + "expert_weights_norm", BOOL, 1), (a + "rope.scaling.type", STR, "yarn"),
         (a + "rope.scaling.factor", F32, 4), (a + "rope.scaling.yarn_log_multiplier", F32, 0.07)]
    return gguf(keys, [
        f32("token_embd.weight", 4, 4), f32("output_norm.weight", 4),
        f32(p + "attn_norm.weight", 4), f32(p + "attn_q_a.weight", 4, 3),
        f32(p + "attn_q_a_norm.weight", 3), f32(p + "attn_q_b.weight", 3, 8),
        f32(p + "attn_kv_a_mqa.weight", 4, 6), f32(p + "attn_kv_a_norm.weight", 4),
        f32(p + "attn_k_b.weight", 2, 4, 2), f32(p + "attn_v_b.weight", 4, 2, 2),
        f32(p + "attn_output.weight", 4, 4), f32(p + "ffn_norm.weight", 4),
        f32(p + "ffn_gate_inp.weight", 4, 2), f32(p + "exp_probs_b.bias", 2),
        f32(p + "ffn_gate_exps.weight", 4, 2, 2), f32(p + "ffn_up_exps.weight", 4, 2, 2),
        f32(p + "ffn_down_exps.weight", 2, 4, 2), f32(p + "ffn_gate_shexp.weight", 4, 2),
        f32(p + "ffn_up_shexp.weight", 4, 2), f32(p + "ffn_down_shexp.weight", 2, 4)])


def letters():
    """The character for each byte in GPT-2's vocabulary."""
    plain = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    other = iter(range(256, 512))
    return [chr(b) if b in plain else chr(next(other)) for b in range(256)]


def bpe(pre, version):
    keys = [("tokenizer.ggml.model", STR, "gpt2"), ("tokenizer.ggml.pre", STR, pre),
            ("tokenizer.ggml.tokens", ARR,
             (STR, letters() + ["he", "ll", "hell", "<|im_start|>", "<|endoftext|>"])),
            ("tokenizer.ggml.token_type", ARR, (I32, [1] * 259 + [3, 3])),
            ("tokenizer.ggml.merges", ARR, (STR, ["h e", "l l", "he ll"])),
            ("tokenizer.ggml.bos_token_id", U32, 260), ("tokenizer.ggml.eos_token_id", U32, 260),
            ("tokenizer.ggml.padding_token_id", I32, -1)]
    return gguf(keys, version=version)


def values():
    keys = [("u8", U8, 255), ("i8", I8, -128), ("u16", U16, 65535), ("i16", I16, -1),
            ("u32", U32, 4294967295), ("i32", I32, -1), ("f32", F32, float("nan")),
            ("bool", BOOL, 1), ("str", STR, b"a\x00\n\xff\"\\"), ("u64", U64, 2**64 - 1),
            ("i64", I64, -2**63), ("f64", F64, 1e308), ("none", ARR, (U32, [])),
            ("words", ARR, (STR, ["", "a", b"\xff\x00"])), ("flags", ARR, (BOOL, [0, 1])),
            ("deep", ARR, (ARR, [(ARR, [(STR, ["x"]), (U8, [1, 2])]), (F64, [0.5])])),
            ("wide", ARR, (U64, [2**64 - 1, 1])), ("general.alignment", U32, 8)]
    tensors = [(n, ne, k, s) for n, ne, k, s in
               [("f16", (3,), 1, 6), ("q4_K", (256, 1, 1, 1), 12, 144), ("i8", (5, 2), 24, 10),
                ("iq2_xxs", (256,), 16, 66)]]
    out = gguf(keys, tensors)
    return out


def split():
    place = lambda no: [("split.no", U16, no), ("split.count", U16, 2),
                        ("split.tensors.count", I32, 3)]
    first = gguf([("general.architecture", STR, "llama")] + place(0), [f32("a", 4), f32("b", 2)])
    return b"PART" + struct.pack("<I", len(first)) + first + gguf(place(1), [f32("c", 3, 2)])


def states():
    # The target writes 88 bytes of magic and header. Then follow ids, rows and the hash.
    body = bytes(88)
    for n in (0, 1, 3, 9, 28):
        rows = bytes((i * 37 + n) % 251 for i in range(56 * n))
        save("state", "rows-%02d" % n, bytes([15]) + body + rows + bytes(8))
    save("state", "raw", bytes([0]) + b"TDMSTAT1" + bytes(120))
    save("state", "hash", bytes([9]) + body[:84] + struct.pack("<i", 2) + bytes(120))
    save("state", "count", bytes([13]) + body[:84] + struct.pack("<i", 2**30) + bytes(120))
    save("state", "ids", bytes([11]) + body + bytes(range(112)) + bytes(8))


def kl_files():
    def head(n_vocab, n_ctx, n_chunk, name=b"llama 3.10M Q8_0"):
        return (b"TDMKLREF" + struct.pack("<IIII", 1, n_vocab, n_ctx, n_chunk) +
                struct.pack("<QQQ", 1, 2, 3) + name.ljust(80, b"\0"))

    def logs(*parts):
        return struct.pack("<%df" % len(parts), *[math.log(p / sum(parts)) if p > 0 else -math.inf for p in parts])

    # Complete valid files, then logits from which the target computes probabilities.
    save("kl_file", "whole", bytes([0]) + head(3, 6, 2) + logs(1, 2, 5) + logs(0, 0, 1) + logs(1, 0, 1) + logs(1, 1, 1))
    save("kl_file", "one", bytes([0]) + head(1, 4, 3) + logs(1) * 3)
    save("kl_file", "name", bytes([0]) + head(2, 4, 1, bytes(range(1, 81))) + logs(1, 3))
    save("kl_file", "logits", bytes([15]) + head(4, 1, 1) + struct.pack("<12f", *[i * 37 % 11 for i in range(12)]))
    save("kl_file", "far", bytes([15]) + head(2, 1, 1) + struct.pack("<6f", 0, -740, 800, 0, -1e38, 1e38))
    save("kl_file", "none", bytes([7]) + head(3, 4, 1) + struct.pack("<3f", math.nan, 1, math.inf))
    save("kl_file", "large", bytes([1]) + head(2**28 - 1, 2**30 - 1, 2**31 - 1))


def texts():
    lines = ["Hello world, it's 12345 o'clock!\n\n  \tAnd we'LL go", "h\u00e9llo \U0001f600 \u4f60\u597d\u3002 12\u0663",
             "<|endoftext|> <|tool|>hello<|x|>y<s> abc\u2581a", "\u0e20\u0e32\u0e29\u0e32 \u0915\u094d\u0937 A\u0301 \u00a0\u3000\u2003",
             b"\xff\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80 \xe2\x82", "    \r\n\r\n ", "aaaaaaaaaaaaaaaa"]
    for i, line in enumerate(lines):
        data = line if isinstance(line, bytes) else line.encode()
        for which in range(13):
            if which in (i, i + 6, 11, 12):
                save("tokenizer", "text-%d-%02d" % (i, which), bytes([which, i * 5 % 16]) + data)
    # WordPiece, Unigram, RWKV, PLaMo-2, code points; then the rules of a Unigram vocabulary.
    kinds = ["Hello, hello \u4e2d\u00c9 [SEP]", "ab a  b <u> x", "hello\n\n\\x<s>", "abc\u00e9z\ufeff",
             "a a\n\n\u4e2d"]
    for which, text in enumerate(kinds, 1):
        save("tokenizer", "kind-%d" % which, bytes([which, which * 5 % 16]) + text.encode())
    nodes = [0] * 67
    nodes[0], nodes[64], nodes[66] = 1 << 10, 65 | 1 << 8 | 2 << 10, 1 << 31
    save("tokenizer", "kind-rules", bytes([2, 0]) + struct.pack("<I67I", 4 * 67, *nodes) + b"ab\0")


save("gguf", "llama", llama())
save("gguf", "mixtral", mixtral())
save("gguf", "deepseek2", deepseek2())
# The last byte chooses the types of the cache.
save("model", "q8_0-f16", llama() + bytes([2]))
save("model", "q4_0-q8_0", mixtral() + bytes([11]))
save("model", "mxfp4-iq1_m", small(0) + bytes([0]))
save("model", "iq2_xxs-tq1_0", small(5) + bytes([0]))
save("gguf", "bpe-qwen2", bpe("qwen2", 3))
save("gguf", "bpe-v2", bpe("gpt-2", 2))
save("gguf", "values", values())
save("gguf", "split", split())
save("gguf", "lfs", b"version https://git-lfs.github.com/spec/v1\n")
states()
kl_files()
texts()
