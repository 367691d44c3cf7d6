#!/bin/sh
# SPDX-License-Identifier: MIT
# Tandem's speed on random models, beside that of another program in the same run.
#
#   bench/compare.sh [--build DIR] [--preset 1.1b|100m] [--types q4_0,q8_0,q4_K,f16] [--runs 5]
#                    [--pp 512] [--tg 64] [--threads N] [--models DIR] [--peer 'COMMAND']
#
# The peer's COMMAND may hold {model} {pp} {tg} {threads}; it must print "ppN X t/s" and
# "tgN Y t/s". Runs are interleaved (ours, the peer's, ours, ...), so that a noisy machine disturbs
# both alike; medians are printed, and their ratio. Models are made once and kept in --models.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
build="$here/build-test" preset=1.1b types=q4_0,q8_0,q4_K,f16 runs=5 pp=512 tg=64 peer=
threads=$(nproc) models="${TMPDIR:-/tmp}/tandem-bench-models"
while [ $# -gt 0 ]; do
    case "$1" in
    --build | --preset | --types | --runs | --pp | --tg | --threads | --models | --peer)
        [ $# -ge 2 ] || { echo "compare.sh: $1 needs a value" >&2; exit 2; }
        eval "${1#--}=\$2"
        shift 2
        ;;
    *)
        sed -n '3,12s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
done
tandem="$build/runner/tandem" make_model="$build/bench/tandem-make-model"
for program in "$tandem" "$make_model"; do
    [ -x "$program" ] || { echo "compare.sh: $program is not built; ./test.sh builds it" >&2; exit 1; }
done
mkdir -p "$models"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# median FILE: of one number a line.
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print NR == 0 ? "-" : NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

ours_run() { # MODEL
    "$tandem" bench -m "$1" -p "$pp" -n "$tg" -t "$threads" -r 1 -o csv --quiet >"$work/ours.csv"
    awk -F, -v pp="$work/ours.pp" -v tg="$work/ours.tg" '
        { gsub(/"/, "") }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        $at["n_prompt"] > 0 && $at["n_gen"] == 0 { print $at["avg_ts"] >>pp }
        $at["n_gen"] > 0 && $at["n_prompt"] == 0 { print $at["avg_ts"] >>tg }' "$work/ours.csv"
}

peer_run() { # MODEL
    command=$(printf '%s' "$peer" | sed "s|{model}|$1|g; s|{pp}|$pp|g; s|{tg}|$tg|g; s|{threads}|$threads|g")
    sh -c "$command" >"$work/peer.out"
    sed -n "s/.*pp$pp \([0-9.]*\) t\/s.*/\1/p" "$work/peer.out" >>"$work/peer.pp"
    sed -n "s/.*tg$tg \([0-9.]*\) t\/s.*/\1/p" "$work/peer.out" >>"$work/peer.tg"
}

row() { # NAME OURS PEER
    awk -v type="$type" -v name="$1" -v ours="$2" -v peer="$3" 'BEGIN {
        ratio = peer + 0 > 0 ? sprintf("%.2f", ours / peer) : "-"
        printf "| %s | %s | %.1f | %s | %s |\n", type, name, ours, peer, ratio }'
}

printf '%s, %s threads, median of %s runs: %s\n\n' "$preset" "$threads" "$runs" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
echo "| type | test | tandem t/s | peer t/s | ratio |"
echo "|---|---|---|---|---|"
for type in $(echo "$types" | tr ',' ' '); do
    model="$models/$preset-$type.gguf"
    [ -f "$model" ] || "$make_model" --preset "$preset" --type "$type" "$model" >"$work/make.log" 2>&1 || {
        cat "$work/make.log" >&2
        exit 1
    }
    rm -f "$work"/ours.?? "$work"/peer.??
    for run in $(seq "$runs"); do
        ours_run "$model"
        [ -z "$peer" ] || peer_run "$model"
    done
    for test in pp tg; do
        eval "n=\$$test"
        theirs=-
        [ -z "$peer" ] || theirs=$(median "$work/peer.$test")
        row "$test$n" "$(median "$work/ours.$test")" "$theirs"
    done
done
