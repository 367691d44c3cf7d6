#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/compare.sh on a tiny model beside programs made up here: what it reads of them, and its
# arithmetic. How fast anything is does not matter.
#   test_compare.sh COMPARE.SH BUILD
set -eu
compare=$1 build=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
fail() {
    echo "FAILED: $*"
    failed=1
}

# The first does all that is asked of it, the second neither depths nor loading, the third nothing.
cat >"$work/whole" <<'END'
[ "$1" = -m ] && [ -f "$2" ] || exit 1
case "$4" in
0) echo "load 2.5 s"; echo "x pp$3 400.00 t/s   tg$6 100.00 t/s" ;;
*) [ "$5" = q4_0 ] && echo "tg$6 @ d$4 80.00 t/s" ;;
esac
END
echo 'echo "pp8 200 t/s"; echo "tg4 50.0 t/s"' >"$work/part"
echo 'echo "cannot read this" >&2; exit 3' >"$work/none"
sh "$compare" --build "$build" --preset tiny-llama --types q8_0,f16 --runs 2 --pp 8 --tg 4 --threads 1 \
    --isa plain --depth 32 --depth-types f16,q4_0 --models "$work/odd & | name" --device 'activation-bits = 8' \
    --peer "sh $work/whole -m '{model}' {pp} {depth} {ctk} {tg}" --peer-name 'the whole' \
    --peer "sh $work/part" --peer "sh $work/none" --peer-name none \
    >"$work/out" 2>"$work/err" || fail "exit code $?"
cat "$work/out" "$work/err"

grep -q "^tiny-llama, 1 threads, medians of 2 runs" "$work/out" || fail "heading"
grep -q "^limits with isa = plain (plain C): reading .* TOP/s, f32 [0-9.]* TFLOP/s" "$work/out" ||
    fail "no limits"
grep -q "^with activation-bits = 8" "$work/out" || fail "option"
grep -q "none failed with .*: cannot read this" "$work/err" || fail "no word of the peer that fails"
grep -q '| the whole t/s | the whole share | the whole tandem ÷ it | peer 2 t/s |' "$work/out" ||
    fail "names of peers"
# every row has as many cells as its heading
awk -F '|' '/^\| (type|cache)/ { n = NF } /^\|/ && NF != n { print "cells: " $0; bad = 1 } END { exit bad }' \
    "$work/out" || fail "cells"
[ "$(grep -c '^| [qf]' "$work/out")" = 8 ] || fail "rows"

# A peer's share is of the same limit as ours; the ratio is ours to its.
awk -F ' *[|] *' '
    function near(a, b) { return a - b < 0.02 * b + 0.011 && b - a < 0.02 * b + 0.011 }
    /^\| [a-z0-9_]+ \| (pp8|tg4)/ {
        n++
        split($4, limit, " ")
        theirs = $3 == "pp8" ? 400 : 100
        half = theirs / 2
        if ($7 + 0 != theirs || $10 + 0 != half) { print "speed of peers: " $0; bad = 1 }
        if ($13 != "-" || $14 != "-" || $15 != "-") { print "a peer that failed: " $0; bad = 1 }
        if (!near($5 / theirs, $9) || !near($5 / half, $12)) { print "ratio: " $0; bad = 1 }
        if (limit[1] == "-") next
        if (limit[2] !~ /^(bw|int8|f32)$/) { print "kind: " $0; bad = 1 }
        if (!near($5 / limit[1], $6) || !near(theirs / limit[1], $8)) { print "share: " $0; bad = 1 }
    }
    # 80 tokens a second behind the depth, 100 without: 2.5 ms more
    /^\| q4_0 \| .*2\.50/ { depth = $8 == "80.0" && $9 == "2.50" && $11 == "-" && $14 == "-" }
    /^\| q8_0 \| .*2\.500/ { load = $5 != "-" && $8 == "2.500" && $9 + 0 > 0 && $10 == "-" }
    END {
        if (n != 4) { print n " rows of speeds"; bad = 1 }
        if (!depth) { print "no row of the depth"; bad = 1 }
        if (!load) { print "no row of loading"; bad = 1 }
        exit bad
    }' "$work/out" || fail "numbers"

# usage
code=0
sh "$compare" --build "$build" --peer-name x >/dev/null 2>&1 || code=$?
[ "$code" = 2 ] || fail "a name of no peer: exit code $code"
code=0
sh "$compare" --build "$build" --preset tiny-llama --types q8_0 --runs 1 --models "$work" --isa plain \
    --device 'nonsense = 1' >/dev/null 2>"$work/err" || code=$?
[ "$code" != 0 ] && grep -q nonsense "$work/err" || fail "an option that there is not: exit code $code"
code=0
sh "$compare" --help >"$work/out" 2>&1 || code=$?
[ "$code" = 2 ] && grep -q -- "--peer-name NAME" "$work/out" && grep -q -- "^--models\." "$work/out" ||
    fail "usage"
[ "$failed" = 0 ] && echo "compare: ok"
exit "$failed"
