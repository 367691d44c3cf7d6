#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_quantize.sh: `tandem quantize` from the command line: the result runs and is close to the
# original, and a failure leaves no file.
#   test_quantize.sh TANDEM MODEL.gguf TEXT MAKE_VARIANT
# With TANDEM_SANITIZED=yes each token takes long: a float type, and one type each of blocks,
# superblocks and grids. test_block_quantize.c makes blocks of all types, and test_golden_tiny.c
# runs them.
set -u
tandem=$1 model=$2 text=$3 make_variant=$4
. "$(dirname "$0")/../tally.sh"

# fails CODE TEXT ARGUMENTS...: one line on standard error, nothing on standard output, no new file.
fails() {
    code=$1 part=$2
    shift 2
    before=$(ls "$work")
    "$tandem" quantize "$@" >"$work/out" 2>"$work/err" </dev/null
    found=$?
    without_progress "$work/err"
    [ "$found" = "$code" ] || fail "$*: exit code $found, not $code: $(cat "$work/err")"
    grep -qF -e "$part" "$work/err" || fail "$*: no '$part' in: $(cat "$work/err")"
    [ "$(wc -l <"$work/err")" = 1 ] || fail "$*: not one line: $(cat "$work/err")"
    [ -s "$work/out" ] && fail "$*: output besides the error"
    [ "$(ls "$work")" = "$before" ] && ok || fail "$*: left something behind"
}

# The original: the demo model in f32.
"$make_variant" "$model" "$work/f32.gguf" f32 || fail "no f32 model"
score() { "$tandem" perplexity --quiet -m "$1" -f "$text" -c 128 --chunks 4 --kl-base "$work/base"; }
score "$work/f32.gguf" >"$work/out" || fail "the original does not run"

# less TYPE KL: the divergence of the type is below KL
less() {
    "$tandem" quantize --quiet -t 2 "$work/f32.gguf" "$work/$1.gguf" "$1" >"$work/out" 2>"$work/err" ||
        fail "$1: $(cat "$work/err")"
    [ -s "$work/out" ] && fail "$1: output in spite of --quiet"
    score "$work/$1.gguf" >"$work/out" 2>"$work/err" || fail "$1 does not run: $(cat "$work/err")"
    kl=$(sed -n 's/^mean KL divergence = \([0-9.e+-]*\).*/\1/p' "$work/out")
    echo "$1: KL $kl"
    awk -v kl="$kl" -v most="$2" 'BEGIN { exit !(kl ~ /^-?[0-9]/ && kl + 0 <= most) }' && ok ||
        fail "$1: divergence $kl is more than $2"
}
less f16 0.0001
less q8_0 0.001
less q4_K_M 0.1
less iq3_s 0.2
if [ "${TANDEM_SANITIZED:-no}" = no ]; then
    less bf16 0.001
    less q6_K 0.01
    less q5_K_M 0.02
    less q5_0 0.05
    less q4_0 0.2
    less iq4_xs 0.2
    less q3_K_M 0.4
    less q2_K 2
    less iq1_s 1.2
fi

# Types below 3 bits give a warning of one line. --help names every type.
"$tandem" quantize --quiet "$work/f32.gguf" "$work/x.gguf" iq1_s 2>"$work/err" || fail "iq1_s"
grep -q 'fewer than 3 bits' "$work/err" || fail "no warning: $(cat "$work/err")"
[ "$(wc -l <"$work/err")" = 1 ] || fail "more than a warning: $(cat "$work/err")"
"$tandem" quantize --help >"$work/help" || fail "--help"
"$tandem" quantize "$work/f32.gguf" "$work/x.gguf" zebra 2>&1 | sed 's/.*there are //; s/,//g' |
    tr ' ' '\n' >"$work/names"
[ "$(wc -l <"$work/names")" -ge 33 ] || fail "few names: $(cat "$work/names")"
while read -r name; do
    grep -q "^  $name  *[0-9.]* bits" "$work/help" || fail "--help does not know $name"
done <"$work/names"
"$tandem" quantize "$work/f32.gguf" "$work/x.gguf" mxfp4 >"$work/out" 2>"$work/err" || fail "mxfp4"
grep -q 'has no experts' "$work/err" || fail "no warning: $(cat "$work/err")"
"$tandem" quantize --pure "$work/f32.gguf" "$work/x.gguf" mxfp4 >"$work/out" 2>"$work/err" ||
    fail "mxfp4 --pure"
grep -q warning "$work/err" && fail "a warning: $(cat "$work/err")"
"$tandem" quantize "$work/f32.gguf" "$work/x.gguf" tq2_0 >"$work/out" 2>"$work/err" || fail "tq2_0"
grep -q 'trained to be -1, 0 or 1' "$work/err" || fail "no warning: $(cat "$work/err")"
rm "$work/x.gguf"

"$tandem" quantize "$work/f32.gguf" "$work/again.gguf" Q4_K >"$work/out" 2>"$work/err" || fail "Q4_K"
cmp -s "$work/again.gguf" "$work/q4_K_M.gguf" || fail "Q4_K and q4_K_M differ"
grep -q '4.91 bits each' "$work/out" || fail "no summary: $(cat "$work/out")"
"$tandem" quantize --pure "$work/f32.gguf" "$work/pure.gguf" q4_K_M >/dev/null 2>&1 || fail "--pure"
"$tandem" convert-info "$work/pure.gguf" | grep -q '^q4_K  *29 tensors' || fail "--pure is not"
# A model that is quantised already is reported.
"$tandem" quantize "$model" "$work/twice.gguf" q4_0 >"$work/out" 2>"$work/err" || fail "from q8_0"
grep -q 'quantised already' "$work/err" || fail "no warning: $(cat "$work/err")"

fails 2 "did you mean 'q4_K_M'?" "$work/f32.gguf" "$work/x.gguf" q4_K_N
fails 2 "unknown type" "$work/f32.gguf" "$work/x.gguf" zebra
fails 2 "needs" "$work/f32.gguf" "$work/x.gguf"
fails 2 "is the model that is read" "$work/f32.gguf" "$work/../${work##*/}/f32.gguf" q4_0
fails 2 "is a folder" "$work/f32.gguf" "$work" q4_0
fails 2 "OUT.gguf is empty" "$work/f32.gguf" "" q4_0
fails 1 "none.gguf" "$work/none.gguf" "$work/x.gguf" q4_0
fails 1 "is not a GGUF file" "$text" "$work/x.gguf" q4_0
fails 1 "$work/none/x.gguf" "$work/f32.gguf" "$work/none/x.gguf" q4_0
tally_end
