#!/bin/sh
# SPDX-License-Identifier: MIT
# A group of CPU devices beside one device with as many threads, on random models.
#
#   bench/group.sh [--build DIR] [--preset 1.1b|100m] [--types q4_0,q8_0] [--runs 5] [--pp 512]
#                  [--tg 64] [--models DIR] [--search no|yes]
#
# Runs are interleaved (one device, the group, one device, ...), so that other load affects both
# alike. Printed are medians with their ratio, the prediction of `tandem plan`, and the part of the
# group's time that exchanges take, waiting included. --search yes also runs a group of unlike
# members (the second without AVX-512) with every fixed share in steps of a twentieth, and prints
# `share = auto` beside the best of them.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build="$here/build-test" preset=1.1b types=q4_0,q8_0 runs=5 pp=512 tg=64 search=no
models="${TMPDIR:-/tmp}/tandem-bench-models"
while [ $# -gt 0 ]; do
    case "$1" in
    --build | --preset | --types | --runs | --pp | --tg | --models | --search)
        [ $# -ge 2 ] || { echo "group.sh: $1 needs a value" >&2; exit 2; }
        eval "${1#--}=\$2"
        shift 2
        ;;
    *)
        sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done
tandem="$build/runner/tandem" make_model="$build/bench/tandem-make-model"
for program in "$tandem" "$make_model"; do
    [ -x "$program" ] || { echo "group.sh: $program is not built; ./test.sh builds it" >&2; exit 1; }
done
mkdir -p "$models"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

cat >"$work/devices.ini" <<END
[device one]
plugin = cpu
threads = 2
[device a]
plugin = cpu
threads = 1
[device b]
plugin = cpu
threads = 1
[device slow]
plugin = cpu
threads = 1
isa = avx2
[group pair]
members = a, b
share = 1, 1
[group automatic]
members = a, slow
share = auto
END
for twentieth in 7 8 9 10 11 12 13 14 15 16 17; do
    printf '[group fixed-%d]\nmembers = a, slow\nshare = %d, %d\n' \
        "$twentieth" "$twentieth" $((20 - twentieth)) >>"$work/devices.ini"
done

# median FILE: the median of numbers, one on a line.
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print NR == 0 ? "-" : NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

run() { # DEVICE: adds to DEVICE.pp and DEVICE.tg
    "$tandem" bench --config "$work/devices.ini" --device "$1" -m "$model" -p "$pp" -n "$tg" -r 1 \
        -o csv --quiet >"$work/run.csv"
    # Descriptions of devices may contain commas, so values are separated by their quotes.
    awk -v pp="$work/$1.pp" -v tg="$work/$1.tg" '
        NR == 1 { gsub(/"/, ""); n = split($0, names, ","); for (i = 1; i <= n; i++) at[names[i]] = i; next }
        {
            gsub(/^"|"$/, "")
            split($0, value, /","/)
            if (value[at["n_gen"]] + 0 == 0) print value[at["avg_ts"]] >>pp
            if (value[at["n_prompt"]] + 0 == 0) print value[at["avg_ts"]] >>tg
        }' "$work/run.csv"
}

# Tokens per second that the plan predicts for the group `pair`; empty if it predicts none.
expected() { # pp|tg
    "$tandem" plan --config "$work/devices.ini" --device pair -m "$model" -c $((pp + tg)) --json |
        awk -v want="$([ "$1" = tg ] && echo generation || echo prompt)" '
            /"configured"/ { inside = 1 }
            inside && $1 == "\"" want "\":" { gsub(/,/, "", $2); print $2; exit }'
}

# The part of the time that exchanges take, waiting included, in percent: the worst member's.
exchanges() { # pp|tg
    yes 'the quick brown fox jumps over the lazy dog' | head -c $((pp * 2)) >"$work/prompt.txt"
    "$tandem" run --config "$work/devices.ini" --device pair -m "$model" -c $((4 * pp + tg)) \
        -f "$work/prompt.txt" -n "$tg" --profile 2>&1 >/dev/null |
        awk -v column="$([ "$1" = tg ] && echo 6 || echo 2)" '
            /^member / { inside = 1; next }
            inside && $3 == "ms" {
                part = 100 * $(column + 2) / ($column + $(column + 2))
                if (part > worst) worst = part
            }
            END { printf "%.1f", worst }'
}

model_find() {
    model="$models/$preset-$type.gguf"
    [ -f "$model" ] || "$make_model" --preset "$preset" --type "$type" "$model" >"$work/make.log" 2>&1 || {
        cat "$work/make.log" >&2
        exit 1
    }
}

printf '%s, median of %s interleaved runs: %s\n\n' "$preset" "$runs" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
echo "| type | test | 1 device, 2 threads: t/s | 2 devices, 1 thread each: t/s | ratio | planned t/s | exchanges |"
echo "|---|---|---|---|---|---|---|"
for type in $(echo "$types" | tr ',' ' '); do
    model_find
    rm -f "$work"/*.pp "$work"/*.tg
    for _ in $(seq "$runs"); do
        run one
        run pair
    done
    for test in pp tg; do
        n=$pp
        [ "$test" = pp ] || n=$tg
        awk -v type="$type" -v name="$test$n" -v one="$(median "$work/one.$test")" \
            -v group="$(median "$work/pair.$test")" -v plan="$(expected "$test")" \
            -v part="$(exchanges "$test")" 'BEGIN {
            said = plan == "" ? "-" : sprintf("%.1f (%+.0f %%)", plan, 100 * (plan / group - 1))
            printf "| %s | %s | %.1f | %.1f | %.1f %% | %s | %s %% |\n", type, name, one, group,
                100 * group / one, said, part }'
    done
done
[ "$search" = yes ] || exit 0

# The last column is the time of a prompt and an answer for which automatic shares are the best
# (plugins/meta/share/solve.c).
echo
echo "| type | shares | pp$pp: t/s | tg$tg: t/s | prompt of $((4 * tg)) and answer of $tg: s |"
echo "|---|---|---|---|---|"
for type in $(echo "$types" | tr ',' ' '); do
    model_find
    rm -f "$work"/*.pp "$work"/*.tg
    for _ in $(seq "$runs"); do
        for group in automatic fixed-7 fixed-8 fixed-9 fixed-10 fixed-11 fixed-12 fixed-13 fixed-14 \
            fixed-15 fixed-16 fixed-17; do
            run "$group"
        done
    done
    for group in automatic fixed-7 fixed-8 fixed-9 fixed-10 fixed-11 fixed-12 fixed-13 fixed-14 fixed-15 \
        fixed-16 fixed-17; do
        awk -v type="$type" -v group="$group" -v pp="$(median "$work/$group.pp")" \
            -v tg="$(median "$work/$group.tg")" -v n="$tg" 'BEGIN {
            sub(/fixed-/, "", group)
            shares = group == "automatic" ? "auto" : sprintf("%d : %d", group, 20 - group)
            printf "| %s | %s | %.1f | %.1f | %.2f |\n", type, shares, pp, tg, 4 * n / pp + n / tg }'
    done
done
