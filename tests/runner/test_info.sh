#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_info.sh: `tandem convert-info` on the demo model, as text and as JSON, and on what is no model.
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

"$tandem" convert-info --json "$model" >"$work/out" || fail "no JSON"
"$python" - "$work/out" <<'END' || fail "JSON"
import json, sys
d = json.load(open(sys.argv[1]))
assert d["version"] == 3 and d["parts"] == 1 and len(d["keys"]) == 25
assert d["keys"]["llama.block_count"] == 4 and d["keys"]["tokenizer.ggml.add_bos_token"] is True
tokens = d["keys"]["tokenizer.ggml.tokens"]
assert tokens["count"] == 1024 and len(tokens["values"]) == 64 and tokens["type"] == "string"
assert d["tensors"][0] == {"name": "token_embd.weight", "type": "q8_0", "shape": [256, 1024],
                           "size": 278528, "part": 0}
assert [t["type"] for t in d["types"]] == ["q8_0", "f32"] and d["types"][0]["size"] == 3620864
assert d["total"]["size"] == sum(t["size"] for t in d["tensors"]) and d["chat_template"] is None
END

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
