#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_perplexity.sh: `tandem perplexity` from the command line. With a folder of models that are
# not part of the project: their known perplexities. Without one: the demo model and its own text.
#   test_perplexity.sh TANDEM MODEL.gguf TEXT [FOLDER]
set -u
tandem=$1 model=$2 text=$3
. "$(dirname "$0")/../tally.sh"

# near WHAT VALUE EXPECTED TOLERANCE
near() {
    echo "$1: $2 (expected $3 +- $4)"
    awk -v a="$2" -v b="$3" -v t="$4" 'BEGIN { d = a - b; exit !(a != "" && d <= t && -d <= t) }' && ok ||
        fail "$1: $2 is not $3 +- $4"
}

# fails CODE TEXT ARGUMENTS...
fails() {
    code=$1 part=$2
    shift 2
    "$tandem" perplexity "$@" >"$work/out" 2>"$work/err" </dev/null
    found=$?
    [ "$found" = "$code" ] || fail "$*: exit code $found, not $code: $(cat "$work/err")"
    grep -qF -e "$part" "$work/err" && ok || fail "$*: no '$part' in: $(cat "$work/err")"
}

perplexity() { "$tandem" perplexity --quiet "$@" 2>"$work/err" || fail "$*: $(cat "$work/err")"; }
value() { sed -n "s|^$1 = \([0-9.e+-]*\).*|\1|p"; }

if [ $# -ge 4 ]; then
    [ -d "$4" ] || { echo "skipped: $4 is not there"; exit 77; }
    stories=$4/text/tinystories-200k.txt
    near stories260K "$(perplexity -m "$4/models/stories260K/stories260K-f32.gguf" -f "$stories" \
        --chunks 20 | value PPL)" 3.7884 0.004
    near stories-3m "$(perplexity -m "$4/models/stories-3m.gguf" -f "$stories" \
        --chunks 20 | value PPL)" 16.486 0.02
    tally_end
    exit
fi

set -- -m "$model" -f "$text" -c 128
perplexity "$@" --kl-base "$work/base" >"$work/first"
[ -s "$work/base" ] || fail "no file of reference logits"
ppl=$(value PPL <"$work/first")
near "the demo model on corpus.txt" "$ppl" 40.078 0.01
# The same model again: its divergence from itself is 0.
perplexity "$@" --kl-base "$work/base" >"$work/again"
near "again" "$(value PPL <"$work/again")" "$ppl" 0
near "of the base" "$(value 'PPL of the base' <"$work/again")" "$ppl" 0.0001
near "divergence from itself" "$(value 'mean KL divergence' <"$work/again")" 0 0
near "equal tops" "$(value 'equal top tokens' <"$work/again")" 100 0
# The command ends after the first value where standard output cannot be written.
if [ -w /dev/full ]; then
    "$tandem" perplexity "$@" --kl-base "$work/unread" >/dev/full 2>"$work/err"
    [ $? = 1 ] && grep -q "standard output" "$work/err" && [ ! -e "$work/unread" ] ||
        fail "goes on though standard output is full: $(cat "$work/err")"
fi
# A coarser cache has a small divergence, whose quantile is above the mean. The file has the number
# of tokens of a chunk.
perplexity -m "$model" -f "$text" -ctk q4_0 -ctv q4_0 --kl-base "$work/base" >"$work/coarse"
near "divergence with q4_0" "$(value 'mean KL divergence' <"$work/coarse")" 0.00541 0.0003
near "its quantile" "$(value '99 % quantile of KL' <"$work/coarse")" 0.0439 0.004
# Running values, and the same figure with steps of any size.
"$tandem" perplexity "$@" -ub 16 --chunks 2 >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
grep -q '^\[1\][0-9.]*,\[2\][0-9.]*,$' "$work/out" || fail "no running values: $(cat "$work/out")"
near "in small steps" "$(value PPL <"$work/out")" \
    "$(perplexity "$@" --chunks 2 | value PPL)" 0.001

fails 2 "no text given" -m "$model"
fails 2 "nothing to measure" "$@" --chunks 0
fails 1 "cannot be read" -m "$model" -f "$work/none"
fails 1 "give more text or a smaller ctx-size" -m "$model" -f "$text" -c 1048576
fails 2 "too small" -m "$model" -f "$text" -c 3
fails 1 "change --chunks" "$@" --chunks 2 --kl-base "$work/base"
fails 1 "change ctx-size" -m "$model" -f "$text" -c 64 --kl-base "$work/base"
{ echo "Another beginning."; cat "$text"; } >"$work/other"
fails 1 "another text" -m "$model" -f "$work/other" -c 128 --kl-base "$work/base"
fails 1 "is not a file of reference logits" "$@" --kl-base "$text"
head -c 100000 "$work/base" >"$work/short"
fails 1 "that its head promises" "$@" --kl-base "$work/short"
fails 1 "cannot be written" "$@" --kl-base "$work/none/base"
[ -e "$work/none" ] && fail "a failure left something behind"

# Ctrl-C ends the only chunk between two of its steps: no value is printed and no incomplete file is
# left.
awk 'BEGIN { for (i = 0; i < 20000; i++) print "the dog and the cat" }' >"$work/long"
"$tandem" perplexity -m "$model" -f "$work/long" -t 1 -c 60000 -ub 1 --chunks 1 --kl-base "$work/half" \
    >"$work/out" 2>"$work/err" &
pid=$!
await_handler $pid
await_work $pid
kill -INT $pid
wait $pid
code=$?
[ $code = 130 ] && [ ! -s "$work/out" ] && [ ! -e "$work/half" ] ||
    fail "Ctrl-C: exit code $code: $(cat "$work/out" "$work/err")"
tally_end
