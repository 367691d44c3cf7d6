#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_imatrix.sh: `tandem imatrix` and `tandem quantize --imatrix` from the command line: the file has
# llama.cpp's form, a model quantised with it is nearer to the original, and nothing is written after a
# failure. The sums themselves: tests/model/test_products.c.
#   test_imatrix.sh TANDEM MODEL.gguf TEXT MAKE_VARIANT
set -u
tandem=$1 model=$2 text=$3 make_variant=$4
. "$(dirname "$0")/../tally.sh"
"$make_variant" "$model" "$work/f32.gguf" f32 || fail "no f32 model"

matrix() { "$tandem" imatrix --quiet -m "$work/f32.gguf" -f "$text" -c 64 "$@" >"$work/out" 2>"$work/err"; }
matrix --chunks 6 -o "$work/a.gguf" || fail "imatrix: $(cat "$work/err")"
[ ! -s "$work/out" ] && [ ! -s "$work/err" ] && ok || fail "output in spite of --quiet"
"$tandem" convert-info "$work/a.gguf" >"$work/info" || fail "convert-info"
for part in 'general.type  *string  *"imatrix"' 'imatrix.chunk_count  *u32  *6' 'imatrix.chunk_size  *u32  *64' \
    'imatrix.datasets' 'blk.0.ffn_down.weight.in_sum2' 'blk.3.attn_output.weight.counts' 'f32  *56 tensors'; do
    grep -q "$part" "$work/info" && ok || fail "no '$part' in: $(cat "$work/info")"
done

# kl FLAGS...: the divergence of an iq2_xs model
kl() {
    "$tandem" quantize --quiet "$@" "$work/f32.gguf" "$work/small.gguf" iq2_xs 2>"$work/err" ||
        fail "quantize $*: $(cat "$work/err")"
    "$tandem" perplexity --quiet -m "$work/small.gguf" -f "$text" -c 128 --chunks 4 --kl-base "$work/base" |
        sed -n 's/^mean KL divergence = \([0-9.e+-]*\).*/\1/p'
}
"$tandem" perplexity --quiet -m "$work/f32.gguf" -f "$text" -c 128 --chunks 4 --kl-base "$work/base" >"$work/out" ||
    fail "the original does not run"
without=$(kl)
grep -q 'importance matrix (--imatrix)' "$work/err" && ok || fail "no warning: $(cat "$work/err")"
with=$(kl --imatrix "$work/a.gguf")
[ ! -s "$work/err" ] && ok || fail "a warning: $(cat "$work/err")"
cp "$work/small.gguf" "$work/once.gguf"
echo "KL $without, with the matrix $with"
awk -v a="$with" -v b="$without" 'BEGIN { exit !(a > 0 && a < 0.95 * b) }' && ok || fail "KL $with, $without without"
# Twice the same sums are the same means.
kl --imatrix "$work/a.gguf" --imatrix "$work/a.gguf" >"$work/out"
same "$work/once.gguf" "$work/small.gguf" "two files of the same sums"

cp "$work/a.gguf" "$work/b.gguf"
matrix --chunks 0 -o "$work/b.gguf"
[ $? = 2 ] && ok || fail "--chunks 0"
matrix -c 100000 -o "$work/b.gguf" && fail "a short text"
grep -q 'at least 200000 are needed' "$work/err" && same "$work/a.gguf" "$work/b.gguf" "a file after a failure" ||
    fail "a short text: $(cat "$work/err")"
# An output that cannot be written is found before the long work, here before the text is read.
expect 1 'none/x.gguf: cannot create' imatrix -m "$model" -f "$work/none" -o "$work/none/x.gguf"
expect 1 'is not a regular file; choose another name' imatrix -m "$model" -f "$work/none" -o /dev/null
expect 2 'use -f FILE' imatrix -m "$model"
expect 1 'is no importance matrix' quantize --imatrix "$model" "$work/f32.gguf" "$work/x.gguf" iq2_xs
expect 1 'is an importance matrix; only models can be quantised' quantize "$work/a.gguf" "$work/x.gguf" q8_0
expect 1 'none.gguf' quantize --imatrix "$work/none.gguf" "$work/f32.gguf" "$work/x.gguf" iq2_xs
[ ! -e "$work/x.gguf" ] && ok || fail "a file after a failure"
tally_end
