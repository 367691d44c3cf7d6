#!/bin/sh
# SPDX-License-Identifier: MIT
# Tandem's speed on random models, beside that of other programs in the same run, and how near each
# comes to what the machine can do.
#
#   bench/compare.sh [--build DIR] [--preset 1.1b|100m] [--types q4_0,q8_0,q4_K,f16] [--runs 5]
#                    [--pp 512] [--tg 64] [--threads N] [--isa auto|avx512|avx2|plain]
#                    [--depth 2048] [--depth-types f16,q8_0,q4_0] [--models DIR]
#                    [--device 'KEY = VALUE']... [--peer 'COMMAND' [--peer-name NAME]]...
#
# The limits are measured first: bytes read and operations a second (tandem-machine-limits). A share
# is what was reached of the tokens per second that they allow: weights and cache read once a token,
# or two operations for each weight and token of a prompt. --isa holds Tandem and the limits to an
# instruction set; what a peer uses is its own affair. --device gives Tandem's device one more option.
#
# A peer's COMMAND may hold {model} {pp} {tg} {threads}; it must print "ppN X t/s" and "tgN Y t/s".
# One that also holds {depth}, {ctk} and {ctv} is run for the rows at --depth (0 = none), where {pp}
# is 0, and prints "tgN @ dD Y t/s" there; one that prints "load Z s" has a row about loading, beside
# what reading the file takes and what touching as much fresh memory does (tandem-fresh-memory); the
# file is read into the page cache before each. What a peer cannot do is a "-". Runs are interleaved
# (ours, the peers', ours, ...), so that a noisy machine disturbs all alike; medians and ratios are
# printed. Models are made once, and are kept in the folder that is given with
# --models.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build="$here/build-test" preset=1.1b types=q4_0,q8_0,q4_K,f16 runs=5 pp=512 tg=64 isa=auto
depth=2048 depth_types=f16,q8_0,q4_0 threads=$(nproc)
models="${TMPDIR:-/tmp}/tandem-bench-models"
n_peer=0
while [ $# -gt 0 ]; do
    case "$1" in
    --build | --preset | --types | --runs | --pp | --tg | --threads | --models | --isa | --depth | \
        --depth-types | --device | --peer | --peer-name)
        [ $# -ge 2 ] || { echo "compare.sh: $1 needs a value" >&2; exit 2; }
        ;;
    *)
        sed -n '3,24s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
    case "$1" in
    --peer)
        n_peer=$((n_peer + 1))
        printf '%s' "$2" >"$work/peer$n_peer.command"
        printf 'peer %s' "$n_peer" >"$work/peer$n_peer.name"
        ;;
    --peer-name)
        [ "$n_peer" -gt 0 ] || { echo "compare.sh: --peer-name names the --peer before it" >&2; exit 2; }
        printf '%s' "$2" >"$work/peer$n_peer.name"
        ;;
    --depth-types) depth_types=$2 ;;
    --device) printf '%s\n' "$2" >>"$work/options.ini" ;;
    *) eval "${1#--}=\$2" ;;
    esac
    shift 2
done
tandem="$build/runner/tandem" make_model="$build/bench/tandem-make-model"
machine_limits="$build/bench/tandem-machine-limits" fresh_memory="$build/bench/tandem-fresh-memory"
for program in "$tandem" "$make_model" "$machine_limits" "$fresh_memory"; do
    [ -x "$program" ] || { echo "compare.sh: $program is not built; ./test.sh builds it" >&2; exit 1; }
done
TANDEM_PLUGIN_PATH="$build/plugins${TANDEM_PLUGIN_PATH:+:$TANDEM_PLUGIN_PATH}"
export TANDEM_PLUGIN_PATH
mkdir -p "$models"
printf '[device bench]\nplugin = cpu\nthreads = %s\nisa = %s\n' "$threads" "$isa" >"$work/bench.ini"
[ ! -f "$work/options.ini" ] || cat "$work/options.ini" >>"$work/bench.ini"
peers=$(seq "$n_peer")

# median FILE: of one number a line; "-" of none.
median() {
    [ -f "$1" ] || { echo -; return; }
    sort -g "$1" | awk '{ v[NR] = $1 } END { print NR == 0 ? "-" : NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# field NAME TEST CSV: of the row of that test ("pp", "tg", or "tg@" for the one at the depth).
field() {
    awk -F '","' -v name="$1" -v test="$2" '
        { gsub(/^"|"$/, "") }
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { is = $at["n_gen"] > 0 ? $at["n_depth"] > 0 ? "tg@" : "tg" : "pp"
          if (is == test) print $at[name] }' "$3"
}

ours_run() { # MODEL OPTION...
    ours_model=$1
    shift
    "$tandem" bench --config "$work/bench.ini" --device bench -m "$ours_model" -r 1 -o csv --quiet \
        "$@" >"$work/ours.csv"
}

# peer_run PEER MODEL PP DEPTH CACHE-TYPE: what it prints goes to $work/peer.out.
peer_run() {
    command=$(model=$2 pp=$3 tg=$tg threads=$threads depth=$4 ctk=$5 ctv=$5 awk '{
        line = $0
        for (said = ""; match(line, /[{][a-z]+[}]/); line = substr(line, RSTART + RLENGTH)) {
            word = substr(line, RSTART + 1, RLENGTH - 2)
            said = said substr(line, 1, RSTART - 1)
            said = said (word in ENVIRON ? ENVIRON[word] : "{" word "}")
        }
        print said line }' "$work/peer$1.command")
    sh -c "$command" >"$work/peer.out" 2>"$work/peer.err" ||
        echo "compare.sh: $(cat "$work/peer$1.name") failed with $2: $(tail -n 1 "$work/peer.err")" >&2
}

# file_warm FILE: reads it, so that whoever opens it next finds it in the system's memory: that may
# have let go of it for a run that took long.
file_warm() { cat "$1" >/dev/null; }

# printed TEST UNIT: the number that a peer printed behind that word.
printed() { sed -n "s#^\(.*[^0-9A-Za-z]\)\{0,1\}$1 \([0-9.][0-9.]*\) $2.*#\2#p" "$work/peer.out"; }

peer_head() { # COLUMN...
    for peer in $peers; do
        for column in "$@"; do printf ' %s %s |' "$(cat "$work/peer$peer.name")" "$column"; done
    done
    echo
}

rule() { # N
    printf '|'
    for column in $(seq "$1"); do printf -- '---|'; done
    echo
}

# quotient A B FORMAT: "-" where one of them is not known.
quotient() {
    awk -v a="$1" -v b="$2" -v format="$3" 'BEGIN {
        if (a + 0 > 0 && b + 0 > 0) printf format, a / b; else printf "-" }'
}

model_find() { # TYPE: its path
    path="$models/$preset-$1.gguf"
    [ -f "$path" ] || "$make_model" --preset "$preset" --type "$1" "$path" >"$work/make.log" 2>&1 || {
        cat "$work/make.log" >&2
        exit 1
    }
    echo "$path"
}

# ---- Limits ----

"$machine_limits" --isa "$isa" --threads "$threads" --output csv >"$work/limits.csv"
limit() { awk -F, -v name="$1" 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next } { print $at[name] }' "$work/limits.csv"; }
read_bandwidth=$(limit read_bandwidth) int8_peak=$(limit int8_peak) f32_peak=$(limit f32_peak)

# limit_of TEST CSV: what the limits above allow, "SPEED KIND". The run had measured limits itself;
# what it made of them is scaled to those, so that all rows are held against the same.
limit_of() {
    kind=$(field limit_kind "$1" "$2")
    case "$kind" in
    bw) rate=read_bandwidth limit=$read_bandwidth ;;
    int8) rate=int8_peak limit=$int8_peak ;;
    f32) rate=f32_peak limit=$f32_peak ;;
    *) echo "- -"; return ;;
    esac
    awk -v ts="$(field limit_ts "$1" "$2")" -v had="$(field "$rate" "$1" "$2")" -v has="$limit" \
        -v kind="$kind" 'BEGIN { if (had > 0 && has > 0) print ts * has / had, kind; else print "- -" }'
}

printf '%s, %s threads, medians of %s runs, %s: %s\n' "$preset" "$threads" "$runs" "$(date -u +%Y-%m-%d)" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
[ ! -f "$work/options.ini" ] || sed 's/^/with /' "$work/options.ini"
awk -v isa="$isa" -v name="$(limit arithmetic)" -v bw="$read_bandwidth" -v int8="$int8_peak" -v f32="$f32_peak" '
    function show(value, unit, format) { return value > 0 ? sprintf(format, value / unit) : "-" }
    BEGIN { printf "limits with isa = %s (%s): reading %s GB/s, 8-bit integers %s TOP/s, f32 %s TFLOP/s\n\n",
        isa, name, show(bw, 1e9, "%.1f"), show(int8, 1e12, "%.3f"), show(f32, 1e12, "%.3f") }'

# ---- Speed ----

speed_row() { # TYPE TEST N
    set -- "$1" "$2" "$3" $(cat "$work/limit.$2")
    limit_ts=$4 ours=$(median "$work/ours.$2")
    printf '| %s | %s%s | %s %s | %.1f | %s |' "$1" "$2" "$3" "$(quotient "$limit_ts" 1 %.1f)" \
        "$5" "$ours" "$(quotient "$ours" "$limit_ts" %.2f)"
    for peer in $peers; do
        theirs=$(median "$work/peer$peer.$2")
        printf ' %s | %s | %s |' "$(quotient "$theirs" 1 %.1f)" "$(quotient "$theirs" "$limit_ts" %.2f)" \
            "$(quotient "$ours" "$theirs" %.2f)"
    done
    echo
}

printf '| type | test | limit t/s | tandem t/s | share |'
peer_head t/s share 'tandem ÷ it'
rule $((5 + 3 * n_peer))
for type in $(echo "$types" | tr ',' ' '); do
    model=$(model_find "$type")
    rm -f "$work"/ours.pp "$work"/ours.tg "$work"/peer*.pp "$work"/peer*.tg
    limits=--limits # in the first run: they do not change
    for run in $(seq "$runs"); do
        # Before our load, so that what the host of a virtual machine has to find is found for both.
        "$fresh_memory" "$(wc -c <"$model")" "$threads" >>"$work/touch.$type"
        file_warm "$model"
        ours_run "$model" -p "$pp" -n "$tg" "$limits"
        if [ "$limits" = --limits ]; then
            limit_of pp "$work/ours.csv" >"$work/limit.pp"
            limit_of tg "$work/ours.csv" >"$work/limit.tg"
        fi
        limits=--no-limits
        field avg_ts pp "$work/ours.csv" >>"$work/ours.pp"
        field avg_ts tg "$work/ours.csv" >>"$work/ours.tg"
        field load_ns tg "$work/ours.csv" >>"$work/load.$type"
        file_warm "$model"
        before=$(date +%s%N)
        cat "$model" >/dev/null
        echo $(($(date +%s%N) - before)) >>"$work/read.$type"
        for peer in $peers; do
            file_warm "$model"
            peer_run "$peer" "$model" "$pp" 0 f16
            printed "pp$pp" t/s >>"$work/peer$peer.pp"
            printed "tg$tg" t/s >>"$work/peer$peer.tg"
            printed load s >>"$work/peer$peer.load.$type"
        done
    done
    speed_row "$type" pp "$pp"
    speed_row "$type" tg "$tg"
done

# ---- Behind a cache ----

# What a token takes longer behind the depth, milliseconds: more SPEED-AT-0 SPEED-AT-DEPTH.
more() { awk -v a="$1" -v b="$2" 'BEGIN { if (a > 0 && b > 0) print 1000 / b - 1000 / a }'; }

if [ "$depth" -gt 0 ]; then
    type=${types%%,*}
    model=$(model_find "$type")
    printf '\nA token behind %s others, against one behind none: milliseconds more, beside those that reading the cache takes (%s weights).\n\n' \
        "$depth" "$type"
    printf '| cache | to read | tandem t/s | at depth | ms more | ÷ to read |'
    peer_head 't/s at depth' 'ms more' '÷ to read'
    rule $((6 + 3 * n_peer))
    for cache in $(echo "$depth_types" | tr ',' ' '); do
        rm -f "$work"/depth.*
        for run in $(seq "$runs"); do
            ours_run "$model" -p 0 -n "$tg" -d "0,$depth" -ctk "$cache" -ctv "$cache" --no-limits
            near=$(field avg_ts tg "$work/ours.csv") far=$(field avg_ts tg@ "$work/ours.csv")
            echo "$near" >>"$work/depth.near"
            echo "$far" >>"$work/depth.far"
            more "$near" "$far" >>"$work/depth.more"
            for peer in $peers; do
                grep -q '{depth}' "$work/peer$peer.command" || continue
                peer_run "$peer" "$model" 0 0 "$cache"
                near=$(printed "tg$tg" t/s)
                peer_run "$peer" "$model" 0 "$depth" "$cache"
                far=$(printed "tg$tg @ d$depth" t/s)
                [ -n "$near" ] && [ -n "$far" ] || continue
                echo "$far" >>"$work/depth.$peer.far"
                more "$near" "$far" >>"$work/depth.$peer.more"
            done
        done
        floor=$(awk -v size="$(field kv_row_size tg@ "$work/ours.csv")" -v n="$depth" -v rate="$read_bandwidth" \
            'BEGIN { if (rate > 0) print 1000 * n * size / rate; else print "-" }')
        ours=$(median "$work/depth.more")
        printf '| %s | %s | %.1f | %.1f | %.2f | %s |' "$cache" "$(quotient "$floor" 1 %.2f)" \
            "$(median "$work/depth.near")" "$(median "$work/depth.far")" "$ours" \
            "$(quotient "$ours" "$floor" %.2f)"
        for peer in $peers; do
            theirs=$(median "$work/depth.$peer.more")
            printf ' %s | %s | %s |' "$(quotient "$(median "$work/depth.$peer.far")" 1 %.1f)" \
                "$(quotient "$theirs" 1 %.2f)" "$(quotient "$theirs" "$floor" %.2f)"
        done
        echo
    done
fi

# ---- Loading ----

printf '\nFrom opening a file that the system has in memory to weights ready for work, against reading it (cat);\nto touch: as much memory, for the first time, by %s threads.\n\n' \
    "$threads"
printf '| type | MB | to read, s | to touch, s | tandem, s | ÷ to read |'
peer_head s '÷ to read'
rule $((6 + 2 * n_peer))
for type in $(echo "$types" | tr ',' ' '); do
    reading=$(median "$work/read.$type") loading=$(median "$work/load.$type")
    printf '| %s | %s | %s | %s | %s | %s |' "$type" \
        "$(quotient "$(wc -c <"$models/$preset-$type.gguf")" 1e6 %.0f)" "$(quotient "$reading" 1e9 %.3f)" \
        "$(quotient "$(median "$work/touch.$type")" 1 %.3f)" "$(quotient "$loading" 1e9 %.3f)" \
        "$(quotient "$loading" "$reading" %.2f)"
    for peer in $peers; do
        theirs=$(median "$work/peer$peer.load.$type")
        printf ' %s | %s |' "$(quotient "$theirs" 1 %.3f)" \
            "$(quotient "$(quotient "$theirs" 1e-9 %.0f)" "$reading" %.2f)"
    done
    echo
done
