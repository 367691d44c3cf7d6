# SPDX-License-Identifier: MIT
"""scripted_model.py: writes a Llama in GGUF that says known texts. Its blocks are zero, so the next token follows from
the last one alone, and the weights of the head name it. A chat template ends its prompt with the control token
`<|say NAME|>`, behind which the pieces of the script NAME come, and then the end of the text. Whatever else is in the
prompt is not read: it is tokens of one byte each, and the marks below.

With it a test makes a server answer with a call, with reasoning or without end, as a trained model would."""
import array
import struct

U32, F32, STRING, ARRAY, I32 = 4, 6, 8, 9, 5
NORMAL, CONTROL, USER = 1, 3, 4
ALIGN = 32
HEAD_DIM = 32
SHARPNESS = 6.0  # times the root of the width: how far the next token's logit is above all others
# marks of templates
MARKS = [("<|end|>", CONTROL), ("<|turn|>", CONTROL), ("<think>", USER), ("</think>", USER), ("<tool_call>", USER),
         ("</tool_call>", USER)]


def byte_letters():
    """The letters that stand for bytes in vocabularies of the kind of GPT-2."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in plain]
    return {**{byte: chr(byte) for byte in plain}, **{byte: chr(256 + i) for i, byte in enumerate(others)}}


LETTERS = byte_letters()


def letters(text):
    return "".join(LETTERS[byte] for byte in text.encode())


def text_value(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, kind, value):
    head = text_value(name)
    if kind == STRING:
        return head + struct.pack("<I", STRING) + text_value(value)
    if kind == ARRAY:
        packed = [text_value(one) if isinstance(one, str) else struct.pack("<i", one) for one in value]
        item = STRING if isinstance(value[0], str) else I32
        return head + struct.pack("<IIQ", ARRAY, item, len(value)) + b"".join(packed)
    return head + struct.pack("<I" + ("f" if kind == F32 else "I"), kind, value)


def states(scripts, tokens):
    """What follows what: {id: id}, with the scripts' pieces added to the tokens."""
    following, seen = {}, {token: i for i, (token, _) in enumerate(tokens)}

    def state(token, kind):
        if token not in seen:
            seen[token] = len(tokens)
            tokens.append((token, kind))
        return seen[token]

    for name, pieces in scripts.items():
        last = state(f"<|say {name}|>", CONTROL)
        is_endless = pieces[-1] is ...
        line = [state(piece if piece in seen else letters(piece), NORMAL) for piece in pieces if piece is not ...]
        for one in [*line, line[0] if is_endless else seen["<|end|>"]]:
            if following.setdefault(last, one) != one:
                raise ValueError(f"script {name}: what follows {tokens[last][0]!r} is not the same everywhere")
            last = one
    return following


def write(path, scripts, template, n_ctx=32768):
    """scripts: {NAME: [piece, ...]}. A piece has one follower wherever it is. A script that ends with ... begins again
    and never ends."""
    tokens = [(LETTERS[byte], NORMAL) for byte in range(256)] + list(MARKS)
    following = states(scripts, tokens)
    n, width = len(tokens), -(-(len(following) + 1) // HEAD_DIM) * HEAD_DIM
    place = {one: 1 + i for i, one in enumerate(following)}  # place 0: a token that nothing follows
    embedding, head = array.array("f", bytes(4 * n * width)), array.array("f", bytes(4 * n * width))
    for one in range(n):
        embedding[one * width + place.get(one, 0)] = 1.0
    for one, after in following.items():
        head[after * width + place[one]] = SHARPNESS
    ones, square = array.array("f", [1.0] * width), array.array("f", bytes(4 * width * width))
    tensors = {"token_embd.weight": ([width, n], embedding), "output.weight": ([width, n], head),
               "output_norm.weight": ([width], ones), "blk.0.attn_norm.weight": ([width], ones),
               "blk.0.ffn_norm.weight": ([width], ones)}
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        tensors[f"blk.0.{name}.weight"] = ([width, width], square)
    names = [token for token, _ in tokens]
    keys = [key("general.architecture", STRING, "llama"), key("general.name", STRING, "scripted"),
            key("llama.context_length", U32, n_ctx), key("llama.embedding_length", U32, width),
            key("llama.block_count", U32, 1), key("llama.feed_forward_length", U32, width),
            key("llama.attention.head_count", U32, width // HEAD_DIM),
            key("llama.attention.head_count_kv", U32, width // HEAD_DIM),
            key("llama.rope.dimension_count", U32, HEAD_DIM), key("llama.attention.layer_norm_rms_epsilon", F32, 1e-6),
            key("tokenizer.ggml.model", STRING, "gpt2"), key("tokenizer.ggml.pre", STRING, "gpt-2"),
            key("tokenizer.ggml.tokens", ARRAY, names), key("tokenizer.ggml.token_type", ARRAY, [k for _, k in tokens]),
            key("tokenizer.ggml.merges", ARRAY, ["a b"]),
            key("tokenizer.ggml.eos_token_id", U32, names.index("<|end|>")),
            key("tokenizer.ggml.bos_token_id", U32, names.index("<|turn|>")),
            key("tokenizer.chat_template", STRING, template)]
    infos, data = b"", b""
    for name, (shape, values) in tensors.items():
        infos += text_value(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(data))
        data += values.tobytes() + bytes(-4 * len(values) % ALIGN)
    start = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(keys) + infos
    with open(path, "wb") as file:
        file.write(start + bytes(-len(start) % ALIGN) + data)
