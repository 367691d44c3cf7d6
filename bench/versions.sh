#!/bin/sh
# SPDX-License-Identifier: MIT
# Compares two builds of Tandem on random models: does a change make it slower?
#
#   bench/versions.sh --old DIR --new DIR [--preset 1.1b|100m] [--types q4_0,q8_0,q4_K,f16] [--runs 5]
#                     [--pp 512] [--tg 64] [--threads 2] [--models DIR] [--group yes|no]
#                     [--new-device 'KEY = VALUE'] [--depth N] [--depth-types f16,q8_0,q4_0]
#
# DIR is a build folder: DIR/runner/tandem and DIR/plugins. Runs are interleaved (old, new, old
# again, old, ...), so that other load affects all alike. The old build runs twice in each round:
# the ratio of its two medians shows how much a ratio varies without any change. --group yes adds a
# group of two devices with half of the threads each. --new-device gives the devices of the new
# build one more option. --depth adds a row about generating behind N tokens for each of the cache
# types --depth-types.
set -eu
here=$(cd "$(dirname "$0")/.." && pwd)
old='' new="$here/build-test" preset=1.1b types=q4_0,q8_0,q4_K,f16 runs=5 pp=512 tg=64 threads=2 group=yes
models="${TMPDIR:-/tmp}/tandem-bench-models" new_device='' depth=0 depth_types=f16,q8_0,q4_0
while [ $# -gt 0 ]; do
    case "$1" in
    --old | --new | --preset | --types | --runs | --pp | --tg | --threads | --models | --group | --new-device | --depth | --depth-types)
        [ $# -ge 2 ] || { echo "versions.sh: $1 needs a value" >&2; exit 2; }
        ;;
    *)
        sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0" >&2
        exit 2
        ;;
    esac
    case "$1" in
    --new-device) new_device=$2 ;;
    --depth-types) depth_types=$2 ;;
    *) eval "${1#--}=\$2" ;;
    esac
    shift 2
done
[ -n "$old" ] || { echo "versions.sh: --old DIR is missing" >&2; exit 2; }
for program in "$old/runner/tandem" "$new/runner/tandem" "$new/bench/tandem-make-model"; do
    [ -x "$program" ] || { echo "versions.sh: $program is not built" >&2; exit 1; }
done
mkdir -p "$models"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

half=$(((threads + 1) / 2))
devices() { # OPTION
    printf '[device one]\nplugin = cpu\nthreads = %d\n%s\n' "$threads" "$1"
    printf '[device a]\nplugin = cpu\nthreads = %d\n%s\n' "$half" "$1"
    printf '[device b]\nplugin = cpu\nthreads = %d\n%s\n' "$half" "$1"
    printf '[group pair]\nmembers = a, b\nshare = 1, 1\n'
}
devices '' >"$work/old.ini"
devices "$new_device" >"$work/new.ini"
cp "$work/old.ini" "$work/again.ini"
speeds=$work/speeds # files VERSION.DEVICE.TEST: tokens per second, one run on a line

# median FILE: the median of numbers, one on a line.
median() { sort -g "$1" | awk '{ v[NR] = $1 } END { print NR == 0 ? "-" : NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }

# bench VERSION DIR DEVICE FLAGS...: runs it once, to run.csv.
bench() {
    version=$1 dir=$2 device=$3
    shift 3
    TANDEM_PLUGIN_PATH="$dir/plugins:$dir/plugins/cpu:$dir/plugins/meta" "$dir/runner/tandem" bench \
        --config "$work/$version.ini" --device "$device" -m "$model" -r 1 -o csv --quiet "$@" >"$work/run.csv"
}

# collect PP-FILE TG-FILE: adds the speeds of run.csv to these files.
collect() {
    # Descriptions of devices may contain commas, so values are separated by their quotes.
    awk -v pp="$1" -v tg="$2" '
        NR == 1 { gsub(/"/, ""); n = split($0, names, ","); for (i = 1; i <= n; i++) at[names[i]] = i; next }
        {
            gsub(/^"|"$/, "")
            split($0, value, /","/)
            if (value[at["n_gen"]] + 0 == 0) print value[at["avg_ts"]] >>pp
            if (value[at["n_prompt"]] + 0 == 0) print value[at["avg_ts"]] >>tg
        }' "$work/run.csv"
}

# run VERSION DIR DEVICE: adds a run of each test.
run() {
    bench "$1" "$2" "$3" -p "$pp" -n "$tg"
    collect "$speeds/$1.$3.pp" "$speeds/$1.$3.tg"
    for cache in $caches; do
        bench "$1" "$2" "$3" -p 0 -n "$tg" -d "$depth" -ctk "$cache" -ctv "$cache"
        collect "$speeds/none" "$speeds/$1.$3.$cache"
    done
}

printf '%s, median of %s interleaved runs: %s\n\n' "$preset" "$runs" \
    "$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)"
caches=
[ "$depth" = 0 ] || caches=$(echo "$depth_types" | tr ',' ' ')
echo "| type | device | test | old: t/s | new: t/s | new / old | old / old |"
echo "|---|---|---|---|---|---|---|"
for type in $(echo "$types" | tr ',' ' '); do
    model="$models/$preset-$type.gguf"
    [ -f "$model" ] || "$new/bench/tandem-make-model" --preset "$preset" --type "$type" "$model" >"$work/make.log" 2>&1 || {
        cat "$work/make.log" >&2
        exit 1
    }
    rm -rf "$speeds"
    mkdir "$speeds"
    cases=one
    [ "$group" = no ] || cases='one pair'
    for _ in $(seq "$runs"); do
        for device in $cases; do
            run old "$old" "$device"
            run new "$new" "$device"
            run again "$old" "$device"
        done
    done
    for device in $cases; do
        for test in pp tg $caches; do
            case "$test" in
            pp) name=pp$pp ;;
            tg) name=tg$tg ;;
            *) name="tg$tg @ d$depth, cache $test" ;;
            esac
            awk -v type="$type" -v name="$name" -v device="$device" -v old="$(median "$speeds/old.$device.$test")" \
                -v new="$(median "$speeds/new.$device.$test")" -v again="$(median "$speeds/again.$device.$test")" 'BEGIN {
                printf "| %s | %s | %s | %.1f | %.1f | %.3f | %.3f |\n", type,
                    device == "one" ? "1 device" : "2 devices", name, old, new, 2 * new / (old + again), again / old }'
        done
    done
done
