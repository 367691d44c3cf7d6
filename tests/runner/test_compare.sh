#!/bin/sh
# SPDX-License-Identifier: MIT
# bench/compare.sh on a tiny model beside invented programs: how it reads their output, and its
# arithmetic. Then with every figure invented, to the last digit. The real speed does not matter.
#   test_compare.sh COMPARE.SH BUILD
set -eu
compare=$1 build=$2
. "$(dirname "$0")/../tally.sh"

# The first program supports everything, the second neither depths nor loading, the third nothing.
cat >"$work/whole" <<'END'
[ "$1" = -m ] && [ -f "$2" ] || exit 1
case "$4" in
0) echo "load 2.5 s"; echo "x pp$3 400.00 t/s   tg$6 100.00 t/s" ;;
*) [ "$5" = q4_0 ] && echo "tg$6 @ d$4 80.00 t/s" ;;
esac
END
echo 'echo "pp8 200 t/s"; echo "tg4 50.0 t/s"' >"$work/part"
echo 'echo "cannot read this" >&2; exit 3' >"$work/none"
# The limits are measured once, and that result is repeated: it saves time, and shares can be
# checked.
once="$work/once"
mkdir -p "$once/bench"
for part in runner plugins bench/tandem-make-model bench/tandem-fresh-memory; do
    ln -s "$build/$part" "$once/$part"
done
cat >"$once/bench/tandem-machine-limits" <<END
#!/bin/sh
[ -f "$once/look" ] || "$build/bench/tandem-machine-limits" "\$@" >"$once/look"
cat "$once/look"
END
chmod +x "$once/bench/tandem-machine-limits"
sh "$compare" --build "$once" --preset tiny-llama --types q8_0,f16 --runs 2 --pp 8 --tg 4 --threads 1 \
    --isa plain --depth 32 --depth-types f16,q4_0 --models "$work/odd & | name" --device 'activation-bits = 8' \
    --peer "sh $work/whole -m '{model}' {pp} {depth} {ctk} {tg}" --peer-name 'the whole' \
    --peer "sh $work/part" --peer "sh $work/none" --peer-name none \
    >"$work/out" 2>"$work/err" || fail "exit code $?"
cat "$work/out" "$work/err"

grep -q "^tiny-llama, 1 threads, medians of 2 runs" "$work/out" && ok || fail "heading"
number='[0-9.]* ([0-9.]* to [0-9.]*)' # one thread: operations are never unknown
grep -q "^limits with isa = plain (plain C), medians of 48 looks: reading .* GB/s, 8-bit integers $number TOP/s, f32 $number TFLOP/s$" \
    "$work/out" || fail "no limits"
grep -q "^with activation-bits = 8" "$work/out" && ok || fail "option"
grep -q "none failed with .*: cannot read this" "$work/err" && ok || fail "no word of the peer that fails"
grep -q '| the whole t/s | the whole share | the whole tandem ÷ it | peer 2 t/s |' "$work/out" ||
    fail "names of peers"
# every row has as many cells as its heading
awk -F '|' '/^\| (type|cache)/ { n = NF } /^\|/ && NF != n { print "cells: " $0; bad = 1 } END { exit bad }' \
    "$work/out" || fail "cells"
[ "$(grep -c '^| [qf]' "$work/out")" = 8 ] && ok || fail "rows"

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

# Every figure invented. The rates of the limits follow a list; Tandem's speeds, and what limits
# them, are known.
fake="$work/fake"
mkdir -p "$fake/runner" "$fake/bench" "$fake/plugins"
cat >"$fake/bench/tandem-machine-limits" <<'END'
#!/bin/sh
echo look >>"$FAKE/looks"
case " $* " in *" --rounds 1 "*) ;; *) exit 1 ;; esac
n=$(wc -l <"$FAKE/looks")
echo isa,arithmetic,threads,read_bandwidth,int8_peak,f32_peak
sed -n "${n}p" "$FAKE/rates" | awk '{ printf "auto,made up,1,%.0f,%.0f,%.0f\n", $1 * 1e9, $1 * 1e12, $1 * 1e11 }'
END
# At 20 GB/s its limit would be 100 t/s, at 10 TOP/s 1000; 64 bytes of cache a token.
cat >"$fake/runner/tandem" <<'END'
#!/bin/sh
echo run >>"$FAKE/runs"
n=$(wc -l <"$FAKE/runs")
echo '"n_gen","n_depth","avg_ts","load_ns","kv_row_size","limit_kind","limit_ts","read_bandwidth","int8_peak","f32_peak"'
row() { echo "\"$1\",\"$2\",\"$3\",\"1000000\",\"64000000\",\"$4\",\"$5\",\"20000000000\",\"10000000000000\",\"1\""; }
case " $* " in
*" -d 0,4 "*) row 4 0 40 "" 0; row 4 4 $((10 * n)) "" 0 ;;
*" --limits "*) row 0 0 $((100 * n)) int8 1000; row 4 0 $((10 * n)) bw 100 ;;
*) row 0 0 $((100 * n)) "" 0; row 4 0 $((10 * n)) "" 0 ;;
esac
END
printf '#!/bin/sh\nfor file; do :; done\necho model >"$file"\n' >"$fake/bench/tandem-make-model"
printf '#!/bin/sh\necho 0.5\n' >"$fake/bench/tandem-fresh-memory"
chmod +x "$fake"/*/tandem*
# before and after: ours, the peer; three runs of the test, then two of the depth
# means: 20 and 10; 40 and 20; 10 and 40 (one measurement unknown); then 4 and unknown
echo 10 30 5 15 30 50 10 30 0 10 40 40 4 4 0 0 2 6 2 2 8 8 1 1 | tr ' ' '\n' >"$fake/rates"
echo 'case $1 in 0) echo "pp8 400 t/s"; echo "tg4 40 t/s" ;; *) echo "tg4 @ d4 20 t/s" ;; esac' >"$fake/peer"
FAKE=$fake sh "$compare" --build "$fake" --types q8_0 --runs 3 --pp 8 --tg 4 --threads 1 --depth 4 \
    --depth-types f16 --models "$work/fakes" --peer "sh $fake/peer {depth} {ctk} {ctv}" --peer-name it \
    >"$work/out" 2>"$work/err" || fail "made up: exit code $?"
cat "$work/out" "$work/err"
[ "$(wc -l <"$fake/looks")" = 24 ] && ok || fail "made up: $(wc -l <"$fake/looks") looks"
is_there() { grep -qF -- "$1" "$work/out" || fail "made up: no '$1'"; }
# Speeds 100, 200, 300 at limits of 2000, 4000, 1000: shares 0.05, 0.05, 0.30. The peer's 400 at 1000,
# 2000, 4000: 0.4, 0.2, 0.1. So with bytes: 10, 20, 30 of 100, 200, 50; 40 of 50, 100, 200.
is_there '| q8_0 | pp8 | 2000.0 int8 | 200.0 | 0.05 | 400.0 | 0.20 | 0.50 |'
is_there '| q8_0 | tg4 | 100.0 bw | 20.0 | 0.10 | 40.0 | 0.40 | 0.50 |'
# 256 MB at 4, 4 and 8 GB/s take 64, 64 and 32 ms. Ours, 40 against 40, 50 and 60 t/s, took 0, 5 and
# 8.33 ms less. The peer, at unknown rates, 2 and 1 GB/s, took 25 ms more.
is_there '| f16 | 64.00 | 40.0 | 50.0 | -5.00 | -0.08 | 20.0 | 25.00 | 0.15 |'
# Loading takes a millisecond, from memory and from storage; the time to read is the machine's.
grep -Eq '^\| q8_0 \| 0 \| 0\.[0-9]+ \| 0\.500 \| 0\.001 \| [0-9.]+ \| - \| - \| 0\.[0-9]+ \| 0\.001 \| [0-9.]+ \|$' \
    "$work/out" || fail "made up: no row of loading"
is_there 'limits with isa = auto (made up), medians of 24 looks: reading 8.0 (1.0 to 50.0) GB/s'

# usage
code=0
sh "$compare" --build "$build" --peer-name x >/dev/null 2>&1 || code=$?
[ "$code" = 2 ] && ok || fail "a name of no peer: exit code $code"
code=0
sh "$compare" --build "$build" --preset tiny-llama --types q8_0 --runs 1 --models "$work" --isa plain \
    --device 'nonsense = 1' >/dev/null 2>"$work/err" || code=$?
[ "$code" != 0 ] && grep -q nonsense "$work/err" && ok || fail "an option that there is not: exit code $code"
code=0
sh "$compare" --help >"$work/out" 2>&1 || code=$?
[ "$code" = 2 ] && grep -q -- "--peer-name NAME" "$work/out" && grep -q -- "or in /tmp)\.$" "$work/out" && ok ||
    fail "usage"
tally_end
