#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_lora.sh: `lora` and `lora-scaled` of the commands: flags, files, plan, groups, mistakes. The
# numbers of adapters are compared in tests/model/test_lora.c, requests in tests/serve.
#   test_lora.sh TANDEM MODEL.gguf PYTHON MAKE_LORA.py
set -u
tandem=$(realpath "$1") model=$2 python=$3 make_lora=$4
. "$(dirname "$0")/../tally.sh"

mkdir "$work/files"
one=$work/files/one.gguf two=$work/files/two.gguf
for layer in 0 1 2 3; do
    matrices="${matrices:-} blk.$layer.attn_q.weight:256:512 blk.$layer.attn_output.weight:512:256"
done
# shellcheck disable=SC2086
"$python" "$make_lora" "$one" 4 8 1 1.0 $matrices || fail "make_lora"
"$python" "$make_lora" "$two" 3 0 2 3.0 blk.1.ffn_up.weight:256:512 blk.2.ffn_down.weight:512:256
"$python" "$make_lora" "$work/files/wide.gguf" 4 8 1 1.0 blk.0.attn_q.weight:256:513
cat >"$work/x.ini" <<END
model = $model
ctx-size = 128
temp = 0
predict = 12
ignore-eos = yes
activation-bits = 15
device = a
[device a]
plugin = cpu
threads = 1
[device b]
plugin = cpu
threads = 1
[group g]
members = a, b
share = 3, 1
[model tuned]
model = $model
lora = files/one.gguf
lora-scaled = files/two.gguf:-0.5
END
cp "$work/x.ini" "$work/y.ini"

# text FLAGS...: what `run` writes
text() {
    "$tandem" run --config "$work/x.ini" -p "Once upon a time" --quiet "$@" 2>"$work/err" </dev/null ||
        fail "run $*: $(cat "$work/err")"
}
unlike() {
    cmp -s "$1" "$2" && fail "$3: the texts do not differ" || ok
}

text -m "$model" >"$work/plain"
text -m "$model" --lora "$one" >"$work/one"
text -m "$model" --lora "$one" --lora-scaled "$two:-0.5" >"$work/both"
unlike "$work/plain" "$work/one" "one adapter"
unlike "$work/one" "$work/both" "two adapters"
text -m "$model" --lora-scaled "$one:0,$two:0" >"$work/out"
same "$work/out" "$work/plain" "scales of 0"
text -m "$model" --lora-scaled "$one:1" --lora-scaled "$two:-.5" >"$work/out"
same "$work/out" "$work/both" "a flag given twice"
text -m tuned >"$work/out"
same "$work/out" "$work/both" "a file, with paths relative to its folder"
(cd "$work/files" && "$tandem" run --config ../x.ini -m "$model" -p "Once upon a time" --quiet \
    --lora one.gguf --lora-scaled two.gguf:-0.5 >"$work/out" 2>"$work/err" </dev/null) ||
    fail "relative flags: $(cat "$work/err")"
same "$work/out" "$work/both" "flags with relative paths"
text -m tuned --device g >"$work/out"
same "$work/out" "$work/both" "a group"
text -m tuned --device g --split layer >"$work/out"
same "$work/out" "$work/both" "a group that is split by layers"
text -m tuned -ot 'attn_q=b' >"$work/out"
same "$work/out" "$work/both" "matrices on another device, with their adapters"

# A file that `config` writes gives the same values, wherever it is.
"$tandem" config --config "$work/x.ini" -m tuned >"$work/files/again.ini" 2>"$work/err" || fail "config"
grep -q "^lora-scaled = $two:-0.5 " "$work/files/again.ini" && ok || fail "config: $(cat "$work/files/again.ini")"

# Bytes of the plan: at least those of the adapters more.
bytes() {
    "$tandem" plan --config "$work/x.ini" --json "$@" 2>"$work/err" |
        "$python" -c 'import json, sys; print(sum(m["weight_size"] for m in json.load(sys.stdin)["members"]))'
}
size=$("$python" -c 'import os, sys; print(os.path.getsize(sys.argv[1]))' "$one")
for device in a g; do
    plain=$(bytes -m "$model" --device $device) with=$(bytes -m "$model" --device $device --lora "$one")
    [ "${with:-0}" -ge $((plain + size - 4096)) ] && ok || fail "plan: $with bytes with, $plain without"
done
"$tandem" plan --config "$work/x.ini" -m tuned --device g >"$work/out" 2>"$work/err" || fail "plan"
grep -q 'attn_q.weight.lora_b *4 f32 *4 x 512 *cut along axis 1' "$work/out" && ok || fail "plan: $(cat "$work/out")"
grep -q 'attn_output.weight.lora_a *4 f32 *512 x 4 *cut along axis 0' "$work/out" && ok || fail "plan"

# Cached rows belong to adapters. Quiet, since a slow machine shows the progress of loading.
text -m "$model" --lora "$one" --prompt-cache "$work/cache" >"$work/out"
expect 1 "saved with another model or with other adapters or scales" run --quiet --config "$work/x.ini" \
    -m "$model" -p "Once upon a time" --prompt-cache "$work/cache" --lora-scaled "$one:0.5"
expect 1 "saved with another model" run --quiet --config "$work/x.ini" -m "$model" \
    -p "Once upon a time" --prompt-cache "$work/cache"

# The other commands.
"$tandem" logits --config "$work/x.ini" -m "$model" --tokens 5,6,7 -o "$work/a.f32" >/dev/null 2>"$work/err" || fail "logits"
"$tandem" logits --config "$work/x.ini" -m tuned --tokens 5,6,7 -o "$work/b.f32" >/dev/null 2>"$work/err" || fail "logits"
unlike "$work/a.f32" "$work/b.f32" "logits"
for name in "$model" tuned; do
    "$tandem" perplexity --config "$work/x.ini" -m "$name" -f "$0" -c 32 --chunks 2 --quiet 2>"$work/err" |
        grep '^PPL' >>"$work/ppl" || fail "perplexity: $(cat "$work/err")"
done
[ "$(sort -u "$work/ppl" | wc -l)" = 2 ] && ok || fail "perplexity: $(cat "$work/ppl")"

# Mistakes.
expect 2 "'$two': expected FILE:X with a number X" run -m "$model" -p x --lora-scaled "$two"
expect 2 "'$two:x': expected FILE:X with a number X" run -m "$model" -p x --lora-scaled "$two:x"
expect 1 "wide.gguf: tensor 'blk.0.attn_q.weight.lora_b' has shape" run -m "$model" -p x \
    --lora "$work/files/wide.gguf"
expect 1 "', expected 'adapter'" run -m "$model" -p x --lora "$model"
expect 1 "nowhere.gguf" run -m "$model" -p x --lora "$work/nowhere.gguf"
expect 2 "none of them twice" run -m "$model" -p x --lora "$one,$one"
expect 2 "does not take" imatrix -m "$model" -f "$0" --lora "$one"
tally_end
