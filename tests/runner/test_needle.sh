#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_needle.sh: `tandem needle` from the command line: a model that is made to recall finds all
# needles, its table, grid and JSON agree, and a text is searched for a hidden sentence.
#   test_needle.sh TANDEM MAKE_MODEL MODEL.gguf
set -u
tandem=$1 make=$2 model=$3
. "$(dirname "$0")/../tally.sh"
made=$work/retrieval.gguf
"$make" --quiet --preset retrieval -o "$made" || fail "the model cannot be made"

"$tandem" needle -m "$made" --contexts 400,200 --depths 100,0,50 --needles 4 -t 1 --quiet \
    >"$work/table" 2>"$work/err" || fail "needle: $(cat "$work/err")"
[ "$(grep -c '100.0 %' "$work/table")" = 6 ] && ok || fail "not six full rows: $(cat "$work/table")"
awk '$1 == 200 && $2 == 0 { low = NR } $1 == 400 && $2 == 100 { high = NR }
    END { exit !(low > 0 && high > low) }' "$work/table" && ok || fail "not ascending: $(cat "$work/table")"
[ "$(grep -c '██ .*██$' "$work/table")" = 3 ] && ok || fail "not three rows of a grid: $(cat "$work/table")"

"$tandem" needle -m "$made" --contexts 200 --depths 0,100 --needles 4 -t 1 --quiet --json \
    >"$work/json" || fail "needle --json"
[ "$(head -c 1 "$work/json")" = "[" ] && [ "$(grep -c '"recall": 1,' "$work/json")" = 2 ] &&
    grep -q '"context": 200' "$work/json" && grep -q '"depth": 100' "$work/json" && ok ||
    fail "JSON: $(cat "$work/json")"

# A text: 11 sentences, repeated. The model is small and need not recall; the figures are there.
i=0
while [ $i -lt 11 ]; do
    echo "Once upon a time, there was a little girl named Lily. She liked to play outside."
    i=$((i + 1))
done >"$work/text"
"$tandem" needle -m "$model" -f "$work/text" --contexts 300 --depths 50,100 -t 1 --question 'The dog likes' \
    --answer 'the big red ball.' >"$work/table" 2>"$work/err" || fail "needle -f: $(cat "$work/err")"
grep -q 'is repeated' "$work/err" && ok || fail "no note: $(cat "$work/err")"
awk '$1 == 300 && $4 >= 4 && $4 < 30 { n++ } END { exit n != 2 }' "$work/table" && ok ||
    fail "not two rows: $(cat "$work/table")"

expect 2 'use -f FILE' needle -m "$model"
expect 2 'contexts' needle -m "$made" --contexts 63
expect 1 'has no room for 40 needles; at least 124' needle -m "$made" --contexts 100
expect 1 'to the 512 keys' needle -m "$made" --needles 400
expect 1 'both must have tokens of their own' needle -m "$model" -f "$work/text" --contexts 64 --answer ' '
expect 1 'too short for a sentence' needle -m "$model" -f "$work/text" --contexts 64
tally_end
