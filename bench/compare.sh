#!/bin/sh
# SPDX-License-Identifier: MIT
# Speed of Tandem on random models, beside other programs in the same run and beside the limits of
# the machine.
#
#   bench/compare.sh [--build DIR] [--preset 1.1b|100m] [--types q4_0,q8_0,q4_K,f16] [--runs 5]
#                    [--pp 512] [--tg 64] [--threads N] [--isa auto|amx|avx512|avx2|neon|plain]
#                    [--depth 2048] [--depth-types f16,q8_0,q4_0] [--models DIR]
#                    [--plugin cpu] [--device 'KEY = VALUE']... [--peer 'COMMAND' [--peer-name NAME]]...
#
# The limits are bytes read per second and operations per second. tandem-machine-limits measures
# them before and after each run of a program (half a second), since the speed of shared memory
# varies. A share is the tokens per second of a run, divided by the tokens per second that the mean
# of the two measurements allows: weights and cache are read once for each token, or each weight
# takes two operations for each token of a prompt. The table has medians of all runs; its limit is
# that of Tandem's runs.
# --isa sets the instruction set of Tandem and of the limits; it does not affect a peer. --device
# gives Tandem's device one more option. --plugin takes the first device of another plugin: `tandem
# bench` measures its limits in each of our runs, and --threads and --isa are not used for it.
#
# A peer's COMMAND may contain {model} {pp} {tg} {threads}. It must print "ppN X t/s" and "tgN Y
# t/s". A command that also contains {depth}, {ctk} and {ctv} is run for the rows at --depth (0 =
# none) with {pp} = 0, and prints "tgN @ dD Y t/s". A command that prints "load Z s" gets a row
# about loading, beside the time to read the file and the time to write as much fresh memory
# (tandem-fresh-memory). The file is read into the page cache before each load; ours is also loaded
# from storage once. "-" stands for what a peer cannot do.
# Runs are interleaved (ours, the peers', ours, ...), so that other load affects all programs alike.
# Medians and ratios are printed. Models are made once, and kept in the folder of --models (default:
# tandem-bench-models in TMPDIR, or in /tmp).
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
build="$here/build-test" preset=1.1b types=q4_0,q8_0,q4_K,f16 runs=5 pp=512 tg=64 isa=auto
depth=2048 depth_types=f16,q8_0,q4_0 threads=$(nproc) plugin=cpu
models="${TMPDIR:-/tmp}/tandem-bench-models"
n_peer=0
while [ $# -gt 0 ]; do
    case "$1" in
    --build | --preset | --types | --runs | --pp | --tg | --threads | --models | --isa | --depth | \
        --depth-types | --plugin | --device | --peer | --peer-name)
        [ $# -ge 2 ] || { echo "compare.sh: $1 needs a value" >&2; exit 2; }
        ;;
    *)
        sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
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
if [ "$plugin" = cpu ]; then
    printf '[device bench]\nplugin = cpu\nthreads = %s\nisa = %s\n' "$threads" "$isa" >"$work/bench.ini"
else
    printf '[device bench]\nplugin = %s\n' "$plugin" >"$work/bench.ini"
fi
[ ! -f "$work/options.ini" ] || cat "$work/options.ini" >>"$work/bench.ini"
peers=$(seq "$n_peer")

# median FILE: the median of numbers, one on a line; "-" for an empty file.
median() {
    [ -f "$1" ] || { echo -; return; }
    sort -g "$1" | awk '{ v[NR] = $1 } END { print NR == 0 ? "-" : NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'
}

# field NAME TEST CSV: a field of the row of that test ("pp", "tg", or "tg@" for the one at the
# depth).
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

# peer_run PEER MODEL PP DEPTH CACHE-TYPE: runs a peer; its output goes to $work/peer.out.
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

# file_warm FILE: reads it, so that the next program finds it in the page cache. The system may have
# dropped it during a long run.
file_warm() { cat "$1" >/dev/null; }

# file_forget FILE: drops it from the page cache, so that the next program reads it from storage.
file_forget() { dd if="$1" iflag=nocache count=0 2>/dev/null; }

# ns COMMAND...: nanoseconds that it took.
ns() {
    before=$(date +%s%N)
    "$@"
    echo $(($(date +%s%N) - before))
}

# printed TEST UNIT: the number that the peer's output has between TEST and UNIT.
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

# quotient A B FORMAT: A / B; "-" where one of them is unknown.
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

looks="$work/looks.csv"

# look: measures the limits and appends a line to $looks: "ISA,ARITHMETIC,THREADS,READ,INT8,F32".
# For another plugin's device it takes the limits that our last run has measured; 0 = unknown, as
# before the first run.
look() {
    if [ "$plugin" != cpu ]; then
        [ -f "$work/ours.csv" ] || : >"$work/ours.csv"
        awk -v plugin="$plugin" -v read="$(field read_bandwidth tg "$work/ours.csv")" \
            -v int8="$(field int8_peak pp "$work/ours.csv")" -v f32="$(field f32_peak pp "$work/ours.csv")" \
            'BEGIN { printf "-,%s,0,%.0f,%.0f,%.0f\n", plugin, read, int8, f32 }' >>"$looks"
        return
    fi
    "$machine_limits" --isa "$isa" --threads "$threads" --rounds 1 --output csv >"$work/look.csv"
    tail -n 1 "$work/look.csv" >>"$looks"
}

# between: "READ INT8 F32" at the last run: the means of the measurements before and after it. Where
# one of the two is unknown, the other is taken; 0 = both are unknown.
between() {
    tail -n 2 "$looks" | awk -F, '
        { for (i = 4; i <= 6; i++) if ($i > 0) { sum[i] += $i; n[i]++ } }
        END { for (i = 4; i <= 6; i++) printf("%.0f%s", (n[i] > 0 ? sum[i] / n[i] : 0), (i < 6 ? " " : "\n")) }'
}

# record FILE VALUE: appends "VALUE READ INT8 F32" of the last run; appends nothing without a value.
record() { [ -z "$2" ] || echo "$2 $(between)" >>"$1"; }

# work_note TEST: writes "KIND SPEED RATE" of our test to $work/work.TEST: the kind of its limit,
# and the tokens per second that it allows at a rate of the machine. Both are from a run with
# --limits. The limit at other rates follows from them: the work of a test is the same in all runs.
work_note() {
    kind=$(field limit_kind "$1" "$work/ours.csv")
    case "$kind" in
    bw) rate=read_bandwidth ;;
    int8) rate=int8_peak ;;
    f32) rate=f32_peak ;;
    *) return ;;
    esac
    echo "$kind $(field limit_ts "$1" "$work/ours.csv") $(field "$rate" "$1" "$work/ours.csv")" >"$work/work.$1"
}

# against FILE TEST limit|share: the median of the limits, or of the shares, over the recorded runs.
against() {
    [ -f "$1" ] && [ -f "$work/work.$2" ] || { echo -; return; }
    awk -v want="$3" '
        NR == FNR { kind = $1; speed = $2; had = $3; next }
        { rate = kind == "bw" ? $2 : kind == "int8" ? $3 : $4
          limit = had > 0 ? speed * rate / had : 0
          if (limit > 0) print (want == "limit" ? limit : $1 / limit) }' "$work/work.$2" "$1" >"$work/against"
    median "$work/against"
}

printf '%s, %s threads, medians of %s runs, %s: %s\n' "$preset" "$threads" "$runs" "$(date -u +%Y-%m-%d)" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
[ ! -f "$work/options.ini" ] || sed 's/^/with /' "$work/options.ini"
echo

# ---- Speed ----

speed_row() { # TYPE TEST N
    limit_ts=$(against "$work/ours.$2" "$2" limit) kind=
    [ "$limit_ts" = - ] || kind=" $(cut -d ' ' -f 1 "$work/work.$2")"
    ours=$(median "$work/ours.$2")
    printf '| %s | %s%s | %s%s | %.1f | %s |' "$1" "$2" "$3" "$(quotient "$limit_ts" 1 %.1f)" \
        "$kind" "$ours" "$(quotient "$(against "$work/ours.$2" "$2" share)" 1 %.2f)"
    for peer in $peers; do
        theirs=$(median "$work/peer$peer.$2")
        printf ' %s | %s | %s |' "$(quotient "$theirs" 1 %.1f)" \
            "$(quotient "$(against "$work/peer$peer.$2" "$2" share)" 1 %.2f)" \
            "$(quotient "$ours" "$theirs" %.2f)"
    done
    echo
}

printf '| type | test | limit t/s | tandem t/s | share |'
peer_head t/s share 'tandem ÷ it'
rule $((5 + 3 * n_peer))
for type in $(echo "$types" | tr ',' ' '); do
    model=$(model_find "$type")
    rm -f "$work"/ours.pp "$work"/ours.tg "$work"/peer*.pp "$work"/peer*.tg "$work"/work.*
    for run in $(seq "$runs"); do
        # Before our load, so that the host of a virtual machine has provided the memory for both.
        "$fresh_memory" "$(wc -c <"$model")" "$threads" >>"$work/touch.$type"
        # Bench measures limits itself until work_note has both tests; another plugin's device
        # always.
        limits=--no-limits
        [ "$plugin" = cpu ] && [ -f "$work/work.pp" ] && [ -f "$work/work.tg" ] || limits=--limits
        file_warm "$model"
        look
        ours_run "$model" -p "$pp" -n "$tg" "$limits"
        look
        if [ "$limits" = --limits ]; then
            work_note pp
            work_note tg
        fi
        record "$work/ours.pp" "$(field avg_ts pp "$work/ours.csv")"
        record "$work/ours.tg" "$(field avg_ts tg "$work/ours.csv")"
        field load_ns tg "$work/ours.csv" >>"$work/load.$type"
        file_warm "$model"
        ns file_warm "$model" >>"$work/read.$type"
        for peer in $peers; do
            file_warm "$model"
            look
            peer_run "$peer" "$model" "$pp" 0 f16
            look
            record "$work/peer$peer.pp" "$(printed "pp$pp" t/s)"
            record "$work/peer$peer.tg" "$(printed "tg$tg" t/s)"
            printed load s >>"$work/peer$peer.load.$type"
        done
    done
    speed_row "$type" pp "$pp"
    speed_row "$type" tg "$tg"
done

# ---- Behind a cache ----

# more SPEED-AT-0 SPEED-AT-DEPTH: by how many milliseconds a token takes longer at the depth.
more() { awk -v a="$1" -v b="$2" 'BEGIN { if (a > 0 && b > 0) print 1000 / b - 1000 / a }'; }

# to_read FILE ms|times: FILE has the milliseconds of runs. Prints the median of the milliseconds
# that reading the cached rows takes at the measured rates, or of the ratio of the run's time to
# them.
to_read() {
    [ -f "$1" ] || { echo -; return; }
    awk -v want="$2" -v size="$(field kv_row_size tg@ "$work/ours.csv")" -v n="$depth" '
        $2 > 0 && size > 0 { floor = 1000 * n * size / $2; print (want == "ms" ? floor : $1 / floor) }' \
        "$1" >"$work/floor"
    median "$work/floor"
}

# signed VALUE: two decimal places; "-" where it is unknown. A difference may be below 0.
signed() { case "$1" in -) echo - ;; *) printf '%.2f' "$1" ;; esac; }

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
            look
            ours_run "$model" -p 0 -n "$tg" -d "0,$depth" -ctk "$cache" -ctv "$cache" --no-limits
            look
            near=$(field avg_ts tg "$work/ours.csv") far=$(field avg_ts tg@ "$work/ours.csv")
            echo "$near" >>"$work/depth.near"
            echo "$far" >>"$work/depth.far"
            record "$work/depth.more" "$(more "$near" "$far")"
            for peer in $peers; do
                grep -q '{depth}' "$work/peer$peer.command" || continue
                look
                peer_run "$peer" "$model" 0 0 "$cache"
                near=$(printed "tg$tg" t/s)
                peer_run "$peer" "$model" 0 "$depth" "$cache"
                far=$(printed "tg$tg @ d$depth" t/s)
                look
                [ -n "$near" ] && [ -n "$far" ] || continue
                echo "$far" >>"$work/depth.$peer.far"
                record "$work/depth.$peer.more" "$(more "$near" "$far")"
            done
        done
        printf '| %s | %s | %.1f | %.1f | %s | %s |' "$cache" \
            "$(quotient "$(to_read "$work/depth.more" ms)" 1 %.2f)" "$(median "$work/depth.near")" \
            "$(median "$work/depth.far")" "$(signed "$(median "$work/depth.more")")" \
            "$(signed "$(to_read "$work/depth.more" times)")"
        for peer in $peers; do
            printf ' %s | %s | %s |' "$(quotient "$(median "$work/depth.$peer.far")" 1 %.1f)" \
                "$(signed "$(median "$work/depth.$peer.more")")" \
                "$(signed "$(to_read "$work/depth.$peer.more" times)")"
        done
        echo
    done
fi

# ---- Loading ----

printf '\nFrom opening a file to weights ready for work, against reading it (cat), when the system has it in\nmemory and, in the last columns, when it has to come from storage. To touch: as much memory, for the\nfirst time, by %s threads.\n\n' \
    "$threads"
printf '| type | MB | to read, s | to touch, s | tandem, s | ÷ to read |'
printf '%s' "$(peer_head s '÷ to read')"
printf ' from storage: to read, s | tandem, s | ÷ to read |\n'
rule $((9 + 2 * n_peer))
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
    model=$models/$preset-$type.gguf
    for _ in $(seq "$runs"); do
        file_forget "$model" || break
        ns file_warm "$model" >>"$work/read_cold.$type"
        file_forget "$model"
        ours_run "$model" -p 0 -n 1 --no-warmup --no-limits
        field load_ns tg "$work/ours.csv" >>"$work/load_cold.$type"
    done
    reading=$(median "$work/read_cold.$type") loading=$(median "$work/load_cold.$type")
    printf ' %s | %s | %s |\n' "$(quotient "$reading" 1e9 %.3f)" "$(quotient "$loading" 1e9 %.3f)" \
        "$(quotient "$loading" "$reading" %.2f)"
done

# ---- The limits that were measured ----

# spread COLUMN UNIT FORMAT: "MEDIAN (LEAST to MOST)" of all measurements; "-" where all are
# unknown.
spread() {
    awk -F, -v i="$1" '$i > 0 { print $i }' "$looks" | sort -g | awk -v unit="$2" -v format="$3" '
        { v[NR] = $1 / unit }
        END {
            if (NR == 0) { print "-"; exit }
            middle = NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2
            printf format " (" format " to " format ")", middle, v[1], v[NR]
        }'
}

printf '\nlimits with isa = %s (%s), medians of %s looks: reading %s GB/s, 8-bit integers %s TOP/s, f32 %s TFLOP/s\n' \
    "$isa" "$(head -n 1 "$looks" | cut -d , -f 2)" "$(($(wc -l <"$looks")))" "$(spread 4 1e9 %.1f)" \
    "$(spread 5 1e12 %.3f)" "$(spread 6 1e12 %.3f)"
