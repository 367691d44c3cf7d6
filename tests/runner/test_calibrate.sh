#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_calibrate.sh: `tandem calibrate` writes what each cache type costs in each layer; cache-budget and
# kv-rotate = auto choose by it, within the bits, and `plan` shows what they choose. Wrong files are
# refused. The choice itself: tests/model/test_cache_costs.c.
#   test_calibrate.sh TANDEM MODEL.gguf TEXT MAKE_VARIANT
set -u
tandem=$1 model=$2 corpus=$3 make_variant=$4
. "$(dirname "$0")/../tally.sh"
is_sanitized=${TANDEM_SANITIZED:-no}
cp "$model" "$work/m.gguf"
model=$work/m.gguf file=$work/m.gguf.cache.ini

expect 1 "m.gguf.cache.ini: there is no such file; make it with \`tandem calibrate" \
    plan -m "$model" --cache-budget 5.5
expect 1 'there is no such file' plan -m "$model" --kv-rotate auto -ctk q8_0
expect 0 'K f16, V bf16' plan -m "$model" --kv-rotate auto -ctv bf16
expect 2 'use -f FILE' calibrate -m "$model"
expect 2 '--chunks 0' calibrate -m "$model" -f "$corpus" --chunks 0
expect 2 "'f16' is no quantised cache type" calibrate -m "$model" -f "$corpus" --types q8_0,f16
# An output that cannot be written is found before the long work, here before the text is read.
expect 1 'none/x: cannot be written' calibrate -m "$model" -f "$work/none" -o "$work/none/x"
expect 1 'none/x: cannot be written' calibrate -m "$model" -f "$work/none" --cache-file "$work/none/x"
[ ! -e "$file" ] && ok || fail 'a file after a failure'

set -- -c 64 --chunks 2 --types iq4_nl,q8_0
[ "$is_sanitized" = yes ] || set -- -c 128 --chunks 3 --types iq4_nl,q5_0,q8_0
"$tandem" calibrate -m "$model" -f "$corpus" "$@" >"$work/table" 2>"$work/err" || fail "calibrate: $(cat "$work/err")"
grep -q 'm.gguf.cache.ini: written' "$work/err" && ok || fail "no note: $(cat "$work/err")"
cat "$work/table"
# Each budget of the table is kept, and predicted to cost no more than one pair.
awk 'NR > 1 { n++; bad += $2 > $1 || ($4 != "-" && $3 > $4 * 1.0001) } END { exit bad > 0 || n < 3 }' "$work/table" && ok ||
    fail "the table: $(cat "$work/table")"
# The same tokens give the same file.
for name in once twice; do
    "$tandem" calibrate --quiet -m "$model" -f "$corpus" -c 16 --chunks 2 --types iq4_nl -o "$work/$name" >"$work/out" ||
        fail "$name"
done
same "$work/once" "$work/twice" 'two files of the same text'

# bits BITS FLAGS...: the plan says that a cache takes so many bits, at most.
bits() {
    most=$1
    shift
    "$tandem" plan -m "$model" --cache-budget "$most" "$@" >"$work/out" 2>&1 || fail "plan $most: $(cat "$work/out")"
    found=$(sed -n 's/^context .* \([0-9.]*\) bits for an element of the cache$/\1/p' "$work/out")
    awk -v a="$found" -v b="$most" 'BEGIN { exit !(a > 0.9 * b && a <= b) }' && ok || fail "$most: $found bits"
    [ "$(grep -c '^layer [0-3] *K [a-z0-9_]*\( unrotated\)\?, V [a-z0-9_]*\( unrotated\)\?$' "$work/out")" = 4 ] && ok ||
        fail "$most: no 4 layers: $(cat "$work/out")"
}
bits 4.5
bits 5.5
grep -q unrotated "$work/out" && fail 'unrotated without kv-rotate'
bits 5.5 --kv-rotate auto
bits 5.5 --kv-rotate no
[ "$(grep -c 'K .* unrotated, V .* unrotated$' "$work/out")" = 4 ] && ok || fail "rotated: $(cat "$work/out")"
bits 8.5
"$tandem" plan --json -m "$model" --cache-budget 5.5 >"$work/json" || fail 'plan --json'
grep -q '"cache_bits": [45]' "$work/json" && [ "$(grep -c '"is_rotated_v": true' "$work/json")" = 4 ] && ok ||
    fail "JSON: $(cat "$work/json")"
# 16 bits leave all as it is; a flag of types is stronger than a budget of a file.
"$tandem" plan -m "$model" --cache-budget 16 >"$work/out" && grep -q '^layer 3 *K f16, V f16$' "$work/out" && ok ||
    fail "16 bits: $(cat "$work/out")"
printf 'model = %s\ncache-budget = 5.5\n' "$model" >"$work/c.ini"
"$tandem" plan --config "$work/c.ini" >"$work/out" && grep -q '^layer 0' "$work/out" && ok || fail 'a key of the file'
"$tandem" plan --config "$work/c.ini" -ctk q8_0 >"$work/out" && grep -q '; K q8_0, V f16$' "$work/out" && ok ||
    fail "a flag against the file: $(cat "$work/out")"
expect 2 'ctk q8_0: cache-budget chooses the types' plan -m "$model" --cache-budget 5.5 -ctk q8_0
expect 1 'cache-budget 4: the smallest measured types take 4.5 bits' plan -m "$model" --cache-budget 4
expect 1 'kv-rotate = auto: K of layer 0 was not measured in q4_1' plan -m "$model" --kv-rotate auto -ctk q4_1

# The same text on one device and on groups, and behind a saved state. A state of other types is refused.
cat >"$work/x.ini" <<END
model = $model
cache-budget = 5.5
kv-rotate = auto
ctx-size = 256
[device a]
plugin = cpu
threads = 1
[device b]
plugin = cpu
threads = 1
[device c]
plugin = cpu
threads = 1
END
written() {
    "$tandem" run --quiet --config "$work/x.ini" --temp 0 -n 20 -p 'Once upon a time' "$@" 2>"$work/err" ||
        fail "$*: $(cat "$work/err")"
}
written --device a >"$work/first"
[ "$(wc -c <"$work/first")" -gt 40 ] && ok || fail "one device: $(cat "$work/first")"
for flags in '--device a,b -ts 3,1' '--device a,b -ts 1,1 -sm layer' '--device a,b,c -ts 5,2,1 --attention sequence'; do
    # shellcheck disable=SC2086 # a list of words
    written $flags >"$work/text"
    same "$work/first" "$work/text" "the text of $flags"
done
written --device a --prompt-cache "$work/state" >"$work/text"
written --device a,b,c -ts 5,2,1 --prompt-cache "$work/state" --prompt-cache-ro >"$work/text"
same "$work/first" "$work/text" 'the text behind a saved state'
expect 1 'saved with other cache types of layer' run --config "$work/x.ini" --device a -n 1 -p 'Once upon a time' \
    --prompt-cache "$work/state" --cache-budget 5.25
expect 1 'types for each layer' run --config "$work/x.ini" --device a -n 1 -p 'Once upon a time' \
    --prompt-cache "$work/state" -ctk q8_0 --kv-rotate yes

# kl FLAGS...: the divergence from a cache of f16
kl() {
    "$tandem" perplexity --quiet -m "$model" -f "$corpus" -c 128 --chunks 4 --kl-base "$work/base" "$@" |
        sed -n 's/^mean KL divergence = \([0-9.e+-]*\).*/\1/p'
}
if [ "$is_sanitized" = no ]; then
    kl >"$work/out"
    "$tandem" perplexity --quiet -m "$model" -f "$corpus" -c 128 --chunks 4 --kl-base "$work/base" -ctk q8_0 -ctv q8_0 >"$work/out"
    awk '/ratio/ { n += $NF > 0.9 && $NF <= 1.001 } END { exit n != 1 }' "$work/out" && ok || fail "q8_0: $(cat "$work/out")"
    budget=$(kl --cache-budget 5.5 --kv-rotate auto) pair=$(kl -ctk q5_0 -ctv q5_0)
    echo "KL of 5.5 bits by layers $budget, of q5_0 for all $pair"
    awk -v a="$budget" -v b="$pair" 'BEGIN { exit !(a > 0 && a < b) }' && ok || fail "KL $budget, the pair $pair"
fi

# wrong TEXT SED: the file changed by a sed script is refused with TEXT
wrong() {
    sed "$2" "$file" >"$work/bad.ini"
    cmp -s "$file" "$work/bad.ini" && fail "'$2' changes nothing"
    expect 1 "$1" plan -m "$model" --cache-budget 5.5 --cache-file "$work/bad.ini"
}
wrong 'layer 7; the model has 4' 's/^\[layer 3\]/[layer 7]/'
wrong '[layer 3] lacks' '/^\[layer 3\]/,$d'
wrong '[layer 2] lacks v.q8_0' '/^\[layer 2\]/,/^\[layer 3\]/{/^v.q8_0/d}'
wrong "bad.ini:5: measured with another model" 's/^model = ./model = x/'
wrong "'q4_2' is no quantised cache type" 's/^k.q8_0/k.q4_2/'
wrong "'f16' is no quantised cache type" 's/^v.q8_0/v.f16/'
wrong "unknown key 'w.q8_0'" 's/^k.q8_0/w.q8_0/'
wrong "expected two numbers, at least 0" 's/^\(k.q8_0 = \)[^ ]*/\1-1/'
wrong "expected two numbers, at least 0" 's/^\(k.q8_0 = \)[^ ]*/\1nan/'
wrong "expected two numbers, at least 0" 's/^\(k.q8_0 = [^ ]*\).*/\1/'
wrong "expected two numbers, at least 0" 's/^\(k.q8_0 = .*\)/\1 1/'
wrong 'version 2; this program reads 1' 's/^version = 1/version = 2/'
wrong "'version' and 'model'" '/^version/d'
wrong "'version' and 'model'" '/^model/d'
wrong "unknown key 'colour'" 's/^tokens/colour/'
wrong 'unknown section [layers 0]' 's/^\[layer 0\]/[layers 0]/'
wrong "expected 'key = value'" 's/^k.q8_0.*/k.q8_0/'
# Of two bad lines the message has the first, with what is wrong there.
wrong "bad.ini:4: expected 'key = value'" 's/^version.*/version/;s/^model = ./model = x/'
wrong "bad.ini:5: measured with another model" 's/^model = ./model = x/;s/^tokens.*/tokens/'
: >"$work/bad.ini"
expect 1 'not a file of `tandem calibrate`' plan -m "$model" --cache-budget 5 --cache-file "$work/bad.ini"
"$make_variant" "$model" "$work/f32.gguf" f32 || fail 'no f32 model'
expect 1 'measured with another model' plan -m "$work/f32.gguf" --cache-budget 5 --cache-file "$file"
expect 2 'bench takes yes and no' bench -m "$model" --kv-rotate auto
tally_end
