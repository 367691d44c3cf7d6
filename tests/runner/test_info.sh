#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_info.sh: `tandem convert-info` on the demo model, as text and as JSON, and on files that are
# no models.
#   test_info.sh TANDEM MODEL.gguf PYTHON
set -u
tandem=$1 model=$2 python=$3
. "$(dirname "$0")/../tally.sh"
has() { grep -qE -e "$1" "$work/out" && ok || fail "no '$1' in: $(cat "$work/out")"; }

"$tandem" convert-info "$model" >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
[ -s "$work/err" ] && fail "said: $(cat "$work/err")"
has '1 part, 25 keys, 38 tensors$'
has '^general.architecture +string +"llama"$'
has '^llama.rope.freq_base +f32 +10000$'
has '^tokenizer.ggml.tokens +array +\[1024 x string\] .*\.\.\.$'
has '^blk.3.ffn_down.weight +q8_0 +136 KiB +512 x 256$'
has '^q8_0 +29 tensors +3407872 elements +3.45 MiB +8.50 bits each$'
has '^all +38 tensors'

has '^runs: yes$'
grep -q '^missing' "$work/out" && fail "something is missing: $(cat "$work/out")"

"$tandem" convert-info --json "$model" >"$work/out" || fail "no JSON"
"$python" - "$work/out" <<'END' || fail "JSON"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["runs"] is True and d["missing"] == []
assert d["version"] == 3 and d["parts"] == 1 and len(d["keys"]) == 25
assert d["keys"]["llama.block_count"] == 4 and d["keys"]["tokenizer.ggml.add_bos_token"] is True
tokens = d["keys"]["tokenizer.ggml.tokens"]
assert tokens["count"] == 1024 and len(tokens["values"]) == 64 and tokens["type"] == "string"
assert d["tensors"][0] == {"name": "token_embd.weight", "type": "q8_0", "shape": [256, 1024],
                           "size": 278528, "part": 0}
assert [t["type"] for t in d["types"]] == ["q8_0", "f32"] and d["types"][0]["size"] == 3620864
assert d["total"]["size"] == sum(t["size"] for t in d["tensors"]) and d["chat_template"] is None
END

# Files that cannot be run: each missing feature is named. One is the demo model with one change,
# one has an unknown architecture.
"$python" - "$model" "$work" <<'END' || fail "cannot make files"
import struct, sys
def text(s): return struct.pack("<Q", len(s)) + s.encode()
def key(name, value): return text(name) + struct.pack("<I", 8) + text(value)
def strings(name, values):
    return text(name) + struct.pack("<IIQ", 9, 8, len(values)) + b"".join(map(text, values))
def write(path, keys, tensors):
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(keys)) + b"".join(keys)
    off = 0
    for name, kind in tensors:
        head += text(name) + struct.pack("<IQIQ", 1, 32, kind, off)
        off += 128
    open(path, "wb").write(head + b"\0" * (-len(head) % 32 + off))
model, work = sys.argv[1:]
write(work + "/alien.gguf",
      [key("general.architecture", "warp"), key("tokenizer.ggml.model", "runes"),
       strings("tokenizer.ggml.tokens", ["a"]), key("tokenizer.chat_template", "{% frob %}")],
      [("blk.0.time_mix_w9", 0), ("blk.1.time_mix_w9", 0), ("blk.0.attn_q.weight", 0), ("flux", 99)])
data = open(model, "rb").read()
def changed(name, old, new):
    assert len(old) == len(new) and data.count(old) >= 1
    open(work + "/" + name, "wb").write(data.replace(old, new, 1))
changed("shape.gguf", b"llama.embedding_length", b"llama.embedding_lengtX")
changed("role.gguf", b"blk.2.ffn_up.weight", b"blk.2.ffn_uq.weight")
END
"$tandem" convert-info "$work/alien.gguf" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
has '^runs: no$'
has "^missing architecture warp: architecture 'warp' is not supported; supported: .*llama"
has "^missing type 99 \(1 tensor\): type 99 of tensor 'flux' is unknown"
has "^missing tensor time_mix_w9 \(2 tensors\): no block reads tensor 'blk.0.time_mix_w9'"
has "^missing tensor flux \(1 tensor\)"
has "^missing tokenizer: .*'runes'.* is not supported"
has "^missing template: .*line 1.*frob"
grep -q 'attn_q.*no block' "$work/out" && fail "attn_q has a role: $(cat "$work/out")"
"$tandem" convert-info --json "$work/alien.gguf" >"$work/out" || fail "no JSON"
"$python" - "$work/out" <<'END' || fail "JSON of what is missing"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["runs"] is False
kinds = [m["kind"] for m in d["missing"]]
assert kinds == ["architecture", "type", "tensor", "tensor", "tokenizer", "template"], kinds
assert d["missing"][2]["name"] == "time_mix_w9" and d["missing"][2]["tensors"] == 2
assert all(m["reason"] and m["needed"] for m in d["missing"])
END
"$tandem" convert-info "$work/shape.gguf" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
has '^runs: no$'
has '^missing model: .*llama.embedding_length'
"$tandem" convert-info "$work/role.gguf" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
has '^missing tensor ffn_uq.weight'
"$tandem" run -m "$work/role.gguf" -p x -n 1 >"$work/out" 2>&1 && fail "ran what cannot be run"
has 'blk.2.ffn_u[pq].weight'

"$tandem" convert-info "$0" >"$work/out" 2>&1 && fail "took a script for a model"
has 'is not a GGUF file'
"$tandem" convert-info "$work/none" >"$work/out" 2>&1 && fail "took nothing for a model"
has 'none'
"$tandem" convert-info >"$work/out" 2>&1
[ $? = 2 ] || fail "no model: not exit code 2"
has 'needs MODEL.gguf'
"$tandem" convert-info "$model" >/dev/full 2>"$work/out" && fail "a full disk went unnoticed"
has 'cannot write'
tally_end
