#!/bin/sh
# SPDX-License-Identifier: MIT
#
# gpu.sh: runs an installed tree on the cards of this machine and prints a table. It needs the tree,
# but no compiler and no package registry. Each stage ends within eight minutes. What did not end by
# then is marked, and a second call with the same --results goes on with it: what it finds there as
# measured is not measured again. The table of all stages so far is printed at the end.
#
#   tests/gpu.sh TREE [STAGE...] [FLAGS]
#
#   certify         the conformance suite on each device of a GPU plugin, of cuda with launch-early too where
#                   the card and the build have it (-Dptx_targets=sm_90a,sm_90,sm_80)
#   groups          the same text and small divergence on each of them, and in groups with the CPU
#   speed           prompts of 2048 tokens and generation, with the share of the device's limits
#   variants        the same without integer dot products, without matrix hardware (Vulkan); with launch-early
#                   (cuda), and generation with it beside generation without it
#   depth           generation behind 8192 and 32768 tokens with f16, q8_0 and q4_0 caches
#   exchange        time of an exchange of 16 KB, between each card and the CPU, and between cards
#   peer            the program of --peer beside ours
#   sanitize        a text, then certify, under compute-sanitizer's memcheck and racecheck, where it is
#                   installed
#                   (default: all, in this order)
#   --model FILE    GGUF file of certify and groups; default: models/stories-3m-q8_0.gguf beside this script
#   --maker FILE    tandem-make-model of a build folder: makes the models of the other stages. Default:
#                   build-test/bench/tandem-make-model beside this script; without it, these use --model
#   --size 8b|1b|tiny   of those models; default 8b (q4_K 4.6 GB, q8_0 8.6 GB, f16 16 GB)
#   --types LIST    their types; default q4_K,q8_0,f16
#   --results DIR   models and results; default: tandem-gpu in TMPDIR, or in /tmp. Another TREE, --size
#                   or --driver needs another one: results do not say what they are of
#   --peer COMMAND  may contain {model} {pp} {tg} {depth} {ctk} {ctv}; prints "ppN X t/s", "tgN Y t/s"
#   --seconds N     limit of a stage; default 480
#   --allow-cpu     software drivers too, for a try without a card
#   --driver PLUGIN=PATH    another library as the driver of cuda or hip: an emulated one (tests/simt)
#   --quick         short tests, for a try without a card
#   --report FILE   write everything there too, with the devices and the system: what to send in
#
# A card that is lent for half an hour: call it with each stage in turn where a command may take ten
# minutes only, else once. Libraries that its machine lacks may lie in TREE/lib, from the machine that
# built the tree: cp $(ldd TREE/bin/tandem | awk '/=>/ && !/lib[cm]\.so/ { print $3 }') TREE/lib
#
# Goals: 85 % of the bandwidth in generation, 50 % of the peak in prompts, a q8_0 cache not slower than
# f16 behind 8192 tokens, an exchange below 10 microseconds.
set -u
usage() { sed -n 's/^#   //p' "$0" | head -n 32; exit 2; }
[ $# -ge 1 ] && [ -d "$1" ] || usage
here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$1" && pwd)
shift
stages='' drivers='' model=$here/../models/stories-3m-q8_0.gguf allow_cpu=no report='' peer='' size=8b
maker=$here/../build-test/bench/tandem-make-model types=q4_K,q8_0,f16 results=${TMPDIR:-/tmp}/tandem-gpu
is_quick=no seconds=480
while [ $# -gt 0 ]; do
    case $1 in
    certify | groups | speed | variants | depth | exchange | peer | sanitize) stages="$stages $1" ;;
    --maker | --size | --types | --results | --peer | --seconds)
        [ $# -ge 2 ] || usage
        eval "${1#--}=\$2"
        shift
        ;;
    --quick) is_quick=yes ;;
    --model) [ $# -ge 2 ] || usage; model=$2; shift ;;
    --report) [ $# -ge 2 ] || usage; report=$2; shift ;;
    --allow-cpu) allow_cpu=yes ;;
    --driver) [ $# -ge 2 ] && [ -f "${2#*=}" ] || usage; drivers="$drivers ${2%%=*}=$(realpath "${2#*=}")"; shift ;;
    *) usage ;;
    esac
    shift
done
tandem=$tree/bin/tandem
[ -x "$tandem" ] || { echo "$tandem is not there: $tree is no installed tree (meson install)" >&2; exit 2; }
[ -f "$model" ] || { echo "$model is not there; give another with --model" >&2; exit 2; }
case $size in
8b) shape='--layers 32 --width 4096 --heads 32 --heads-kv 8 --head-dim 128 --ff 14336 --vocab 128256 --ctx 65536' ;;
1b) shape='--preset 1.1b --ctx 65536' ;;
tiny) shape='--preset tiny-llama --ctx 65536' ;;
*) usage ;;
esac
pp=2048 tg=64 runs=3 depths='8192 32768'
[ $is_quick = no ] || { pp=16 tg=4 runs=1 depths='32'; }
unset TANDEM_PLUGIN_PATH
export LD_LIBRARY_PATH="$tree/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
"$tandem" --version >/dev/null || { echo "$tandem does not start here" >&2; exit 2; }
mkdir -p "$results" || exit 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/report"
touch "$results/rows"
n_failed=0

say() { printf '%s\n' "$*" | tee -a "$work/report"; }
row() { printf '%-8s %-22s %-26s %s\n' "$@" | tee -a "$work/report"; }
failed() { n_failed=$((n_failed + 1)); }

# limited COMMAND...: runs it with the time that is left of the stage.
limited() {
    left=$((began + seconds - $(date +%s)))
    [ $left -gt 0 ] || return 124
    timeout "$left" "$@"
}

# ---- The devices: lines "PLUGIN INDEX" of all but cpu and meta.
"$tandem" devices >"$work/devices" 2>"$work/err"
awk '$2 != "cpu" && $2 != "meta" && $3 ~ /^[0-9]+$/ { print $2, $3 }' "$work/devices" >"$work/list"
if [ $allow_cpu = yes ] && [ -f "$tree/lib/tandem/plugins/vulkan.so" ] && ! grep -q '^vulkan ' "$work/list"; then
    echo 'vulkan 0' >>"$work/list"
fi
for driver in $drivers; do
    grep -v "^${driver%%=*} " "$work/list" >"$work/others"
    { cat "$work/others"; echo "${driver%%=*} 0"; } >"$work/list"
done
# driver_of PLUGIN: the library that --driver gave; empty without one.
driver_of() { for driver in $drivers; do [ "${driver%%=*}" = "$1" ] && echo "${driver#*=}"; done; }
say "tandem $("$tandem" --version 2>&1 | head -n 1)"
say "system $(uname -srm)"
say "model $(basename "$model")"
cat "$work/devices" | tee -a "$work/report"
if [ ! -s "$work/list" ]; then
    say "no device of a GPU plugin was found; the reasons stand above"
    [ -z "$report" ] || cp "$work/report" "$report"
    exit 77
fi
# Lines "PLUGIN INDEX" of devices that open with launch-early = yes; the reasons of others go to the report.
: >"$work/early"
while read -r plugin index; do
    [ "$plugin" = cuda ] || continue
    printf '[device early]\nplugin = cuda\nindex = %s\nlaunch-early = yes\n' "$index" >"$work/early.ini"
    [ -z "$(driver_of cuda)" ] || echo "driver = $(driver_of cuda)" >>"$work/early.ini"
    if timeout 120 "$tandem" run --config "$work/early.ini" --device early -m "$model" -p Once -n 1 --temp 0 --quiet \
        >"$work/out" 2>"$work/err" </dev/null; then
        echo "$plugin $index" >>"$work/early"
    else
        say "$plugin$index: not run with launch-early: $(grep -m 1 error "$work/err")"
    fi
done <"$work/list"
{
    printf '[device cpu]\nplugin = cpu\n[device reference]\nplugin = cpu\npath = reference\n'
    while read -r plugin index; do
        name=$plugin$index
        printf '[device %s]\nplugin = %s\nindex = %s\n' "$name" "$plugin" "$index"
        [ "$plugin" = vulkan ] && [ $allow_cpu = yes ] && echo 'allow-cpu = yes'
        [ -z "$(driver_of "$plugin")" ] || echo "driver = $(driver_of "$plugin")"
        printf '[group %s-cpu]\nmembers = %s, cpu\nshare = 3, 1\n' "$name" "$name"
        printf '[group %s-auto]\nmembers = %s, cpu\nshare = auto\n' "$name" "$name"
        printf '[group %s-even]\nmembers = %s, cpu\nshare = 1, 1\n' "$name" "$name"
        [ "$plugin" = vulkan ] || continue
        for limit in dot matrix; do
            printf '[device %s-without-%s]\nplugin = vulkan\nindex = %s\ntest-limits = %s=no\n' "$name" $limit "$index" $limit
            [ $allow_cpu = no ] || echo 'allow-cpu = yes'
        done
    done <"$work/list"
    while read -r plugin index; do
        printf '[device %s-with-early]\nplugin = %s\nindex = %s\nlaunch-early = yes\n' "$plugin$index" "$plugin" "$index"
        [ -z "$(driver_of "$plugin")" ] || echo "driver = $(driver_of "$plugin")"
    done <"$work/early"
} >"$work/all.ini"
if [ "$(wc -l <"$work/list")" -gt 1 ]; then
    # Two plugins may see the same card: then both are members, with the CPU as a third.
    names=$(awk '{ printf "%s%s%s", (NR > 1 ? ", " : ""), $1, $2 }' "$work/list")
    {
        printf '[group gpus]\nmembers = %s\nallow-duplicate = yes\n' "$names"
        printf '[group gpus-even]\nmembers = %s\nallow-duplicate = yes\nshare = %s\n' "$names" "$(sed 's/.*/1/' "$work/list" | paste -sd ,)"
        printf '[group all]\nmembers = %s, cpu\nallow-duplicate = yes\n' "$names"
    } >>"$work/all.ini"
fi

# ---- Results: lines "STAGE|NAME|TEST|NUMBER|UNIT|LIMIT|SHARE|WORD" of what was measured.

# is_done STAGE NAME TEST: an earlier call has measured it. TEST is the beginning of a test.
is_done() { grep -qF "$1|$2|$3" "$results/rows"; }
# result STAGE NAME TEST NUMBER UNIT LIMIT SHARE WORD
result() {
    (IFS='|' && printf '%s\n' "$*") >>"$results/rows"
    row "$1" "$2" "$3" "$4 $5${6:+, limit $6}${7:+, $7 %}: $8"
}
# What was not measured is not kept, so that the next call tries it again.
unmeasured() {
    failed
    word=FAILED
    [ "$4" -ne 124 ] || word='no time'
    row "$1" "$2" "$3" "$word: $(head -n 1 "$work/err")"
}
# verdict NUMBER GOAL: of a number that has to reach a goal.
verdict() { awk -v n="$1" -v goal="$2" 'BEGIN { print(n == "" || n + 0 == 0 ? "-" : n + 0 >= goal + 0 ? "ok" : "below") }'; }

# certify_try PLUGIN INDEX NAME OPTION...
certify_try() {
    plugin=$1 index=$2 name=$3
    shift 3
    is_done certify "$name" suite && return
    [ -z "$(driver_of "$plugin")" ] || set -- "$@" --option "driver=$(driver_of "$plugin")"
    limited "$tandem" certify "$tree/lib/tandem/plugins/$plugin.so" --device-index "$index" "$@" \
        >"$work/out" 2>&1 </dev/null
    code=$?
    counts=$(grep ' passed, ' "$work/out" | tail -n 1)
    if [ $code -eq 0 ]; then
        result certify "$name" suite "$counts" '' '' '' ok
    else
        echo "$counts" >"$work/err"
        unmeasured certify "$name" suite $code
    fi
    grep -A 1 '^FAIL' "$work/out" | tee -a "$work/report"
}

stage_certify() {
    while read -r plugin index; do
        set --
        [ "$plugin" = vulkan ] && [ $allow_cpu = yes ] && set -- --option allow-cpu=yes
        certify_try "$plugin" "$index" "$plugin$index" "$@"
    done <"$work/list"
    while read -r plugin index; do
        certify_try "$plugin" "$index" "$plugin$index-with-early" --option launch-early=yes
    done <"$work/early"
}

# Text and divergence of one device or group.
group_try() {
    name=$1
    is_done groups "$name" divergence && return
    limited "$tandem" run --config "$work/all.ini" --device "$name" -m "$model" -p "Once upon a time" -n 48 --temp 0 \
        --quiet >"$work/text" 2>"$work/err" </dev/null ||
        { unmeasured groups "$name" text $?; return; }
    limited "$tandem" perplexity --config "$work/all.ini" --device "$name" -m "$model" -f "$work/corpus" -c 64 \
        --chunks 2 --kl-base "$work/base" --quiet >"$work/out" 2>"$work/err" </dev/null ||
        { unmeasured groups "$name" divergence $?; return; }
    kl=$(awk '/^mean KL/ { print $5 }' "$work/out")
    top=$(awk '/^equal top/ { print $5 }' "$work/out")
    text='the same text'
    cmp -s "$work/text" "$work/text.cpu" || text='ANOTHER text'
    # 4-bit caches and activations of 8 bits stay below this; a wrong kernel is far above it.
    if awk -v kl="$kl" -v top="$top" 'BEGIN { exit !(kl ~ /^-?[0-9]/ && kl + 0 <= 1e-3 && top + 0 >= 95) }'; then
        result groups "$name" divergence "$kl" nats '' '' "$top % equal top tokens, $text"
    else
        echo "divergence ${kl:-none} nats, ${top:-no} % equal top tokens, $text" >"$work/err"
        unmeasured groups "$name" divergence 1
    fi
}

stage_groups() {
    for i in 1 2 3 4 5 6 7 8; do
        echo "Once upon a time there was a little dog named Ben, who lived in house number $i. One day he saw a"
        echo "red ball in the park. He ran to it and said: may I play with you? The girl said yes, and they played."
    done >"$work/corpus"
    limited "$tandem" run --config "$work/all.ini" --device cpu -m "$model" -p "Once upon a time" -n 48 --temp 0 \
        --quiet >"$work/text.cpu" 2>"$work/err" </dev/null || { unmeasured groups cpu text $?; return; }
    limited "$tandem" perplexity --config "$work/all.ini" --device reference -m "$model" -f "$work/corpus" -c 64 \
        --chunks 2 --kl-base "$work/base" --quiet >"$work/out" 2>"$work/err" </dev/null ||
        { unmeasured groups reference divergence $?; return; }
    for name in $(sed -n 's/^\[device \(.*\)\]$/\1/p; s/^\[group \(.*\)\]$/\1/p' "$work/all.ini"); do
        case $name in reference | *-even) continue ;; esac
        group_try "$name"
    done
}

# model_at NAME ARGUMENT...: makes a random model, once.
model_at() {
    file=$results/$1.gguf
    shift
    [ ! -f "$file" ] || return 0
    if ! limited "$maker" "$@" --threads "$(nproc)" --quiet "$file.part" 2>"$work/err" >&2 </dev/null; then
        rm -f "$file.part"
        return 1
    fi
    mv "$file.part" "$file"
}
# model_of TYPE: puts the model to measure into $file.
model_of() {
    file=$model
    [ -x "$maker" ] || return 0
    # shellcheck disable=SC2086 # words
    model_at "$size-$1" $shape --type "$1" --same-layers
}
model_types() { if [ -x "$maker" ]; then echo "$types" | tr ',' ' '; else echo file; fi; }

devices() { awk '{ print $1 $2 }' "$work/list"; }

# bench STAGE DEVICE WHAT ARGUMENT...: a row for each line of `tandem bench`, the last of generation;
# WHAT stands before its test. Nothing where that was measured.
bench() {
    stage=$1 name=$2 what=$3
    shift 3
    is_done "$stage" "$name" "$what tg$tg" && return
    limited "$tandem" bench --config "$work/all.ini" --device "$name" -m "$file" -r $runs -o jsonl --quiet "$@" \
        >"$work/out" 2>"$work/err" </dev/null
    code=$?
    # A field of a line: "name": value
    sed -n 's/.*"n_prompt": \([0-9]*\).*"n_gen": \([0-9]*\).*"n_depth": \([0-9]*\).*"avg_ts": \([0-9.]*\).*"read_bandwidth": \([0-9.]*\).*"int8_peak": \([0-9.]*\).*"limit_kind": "\([^"]*\)".*"limit_ts": \([0-9.]*\).*"limit_share": \([0-9.]*\).*/\1 \2 \3 \4 \5 \6 \8 \9 \7/p' \
        "$work/out" >"$work/fields"
    while read -r n_prompt n_gen n_depth ts bandwidth int8 limit share kind; do
        goal=85 test=tg$n_gen
        [ "$n_gen" -gt 0 ] || goal=50 test=pp$n_prompt
        percent=$(awk -v s="$share" 'BEGIN { if (s > 0) printf "%.0f", 100 * s }')
        text=$(awk -v t="$limit" -v k="$kind" -v b="$bandwidth" -v i="$int8" 'BEGIN {
            if (t > 0) printf "%.1f t/s by %s (%.0f GB/s, %.1f TOP/s)", t, k, b / 1e9, i / 1e12 }')
        result "$stage" "$name" "$what $test @ d$n_depth" "$(printf %.2f "$ts")" t/s "$text" "$percent" "$(verdict "$percent" $goal)"
    done <"$work/fields"
    if [ $code -ne 0 ]; then unmeasured "$stage" "$name" "$what" $code; fi
}

stage_speed() {
    for type in $(model_types); do
        for name in $(devices) cpu; do
            # The CPU computes an 8 B model for minutes, and bench/compare.sh measures it.
            [ "$name" != cpu ] || [ "$size" = tiny ] || continue
            is_done speed "$name" "$type tg" && continue
            model_of "$type" || { unmeasured speed "$name" "model $type" $?; continue; }
            bench speed "$name" "$type" -p $pp -n $tg
        done
    done
}

stage_variants() {
    for type in $(model_types); do
        [ "$type" != f16 ] || continue
        for name in $(sed -n 's/^\[device \(.*-with.*-.*\)\]$/\1/p' "$work/all.ini"); do
            model_of "$type" || { unmeasured variants "$name" "model $type" $?; continue; }
            bench variants "$name" "$type" -p $pp -n $tg
        done
        while read -r plugin index; do
            name=$plugin$index
            is_done variants "$name" "$type early / not" && continue
            without=$(grep -F "speed|$name|$type tg$tg " "$results/rows" | tail -n 1 | cut -d '|' -f 4)
            with=$(grep -F "variants|$name-with-early|$type tg$tg " "$results/rows" | tail -n 1 | cut -d '|' -f 4)
            [ -n "$without" ] && [ -n "$with" ] || continue
            ratio=$(awk -v a="$with" -v b="$without" 'BEGIN { printf "%.3f", a / b }')
            result variants "$name" "$type early / not" "$ratio" times '' '' "$(verdict "$ratio" 1)"
        done <"$work/early"
    done
}

# A q8_0 cache is to be as fast as f16.
stage_depth() {
    type=$(model_types | cut -d ' ' -f 1)
    for depth in $depths; do
        for cache in f16 q8_0 q4_0; do
            for name in $(devices); do
                model_of "$type" || { unmeasured depth "$name" "model $type" $?; continue; }
                bench depth "$name" "$type cache $cache depth $depth" -p 0 -n $tg -d "$depth" -ctk $cache -ctv $cache
            done
        done
        for name in $(devices); do
            is_done depth "$name" "q8_0 / f16 at $depth" && continue
            f16=$(speed_at "$name" "cache f16 depth $depth")
            q8=$(speed_at "$name" "cache q8_0 depth $depth")
            [ -n "$f16" ] && [ -n "$q8" ] || continue
            ratio=$(awk -v a="$q8" -v b="$f16" 'BEGIN { printf "%.3f", a / b }')
            result depth "$name" "q8_0 / f16 at $depth" "$ratio" times '' '' "$(verdict "$ratio" 1)"
        done
    done
}
# speed_at DEVICE TEXT: tokens per second of a row of stage depth.
speed_at() { grep -F "depth|$1|" "$results/rows" | grep -F " $2 " | tail -n 1 | cut -d '|' -f 4; }

# The time of an exchange, with a model whose layers take little time besides two exchanges of 4096 f32
# (16 KB). In a group of n members each has 1/n of the weights. So an exchange takes at most (time of a
# token in the group - 1/n of the time of a token on its slowest member) / number of exchanges. That
# includes what a member does for each layer besides.
stage_exchange() {
    layers=32
    [ -x "$maker" ] || { row exchange - 'not run' '--maker is needed'; return; }
    model_at exchange --layers $layers --width 4096 --heads 2 --heads-kv 2 --head-dim 32 --ff 64 --vocab 512 \
        --ctx 2048 --type q4_0 || { unmeasured exchange - 'the model' $?; return; }
    for name in $(devices) cpu; do bench exchange "$name" alone -p 0 -n $tg --no-limits; done
    for name in $(sed -n 's/^\[group \(.*-even\)\]$/\1/p' "$work/all.ini"); do
        bench exchange "$name" group -p 0 -n $tg --no-limits
        is_done exchange "$name" 'each, at most' && continue
        members=$(sed -n "/^\[group $name\]/,/^members/s/^members = //p" "$work/all.ini" | tr -d ,)
        slowest=''
        for member in $members; do
            speed=$(grep -F "exchange|$member|alone" "$results/rows" | tail -n 1 | cut -d '|' -f 4)
            slowest=$(awk -v a="$slowest" -v b="$speed" 'BEGIN { print(a == "" || b + 0 < a + 0 ? b : a) }')
        done
        speed=$(grep -F "exchange|$name|group" "$results/rows" | tail -n 1 | cut -d '|' -f 4)
        [ -n "$slowest" ] && [ -n "$speed" ] || continue
        us=$(awk -v g="$speed" -v s="$slowest" -v m="$(echo "$members" | wc -w)" -v n=$((2 * layers)) \
            'BEGIN { printf "%.1f", (1 / g - 1 / (m * s)) * 1e6 / n }')
        word=$(awk -v us="$us" 'BEGIN { print(us <= 0 ? "-" : us < 10 ? "ok" : "above") }')
        result exchange "$name" 'each, at most' "$us" us '' '' "$word"
    done
}

stage_peer() {
    [ -n "$peer" ] || { row peer - 'not run' '--peer gives its command'; return; }
    for type in $(model_types); do
        is_done peer peer "$type" && continue
        model_of "$type" || { unmeasured peer peer "model $type" $?; continue; }
        command=$(printf '%s' "$peer" | sed "s|{model}|$file|g; s|{pp}|$pp|g; s|{tg}|$tg|g; s|{depth}|0|g; s|{ctk}|f16|g; s|{ctv}|f16|g")
        limited sh -c "$command" >"$work/out" 2>"$work/err" </dev/null || { unmeasured peer peer "$type" $?; continue; }
        for test in pp$pp tg$tg; do
            theirs=$(awk -v test="$test" '$1 == test { print $2 }' "$work/out" | tail -n 1)
            [ -n "$theirs" ] || continue
            result peer peer "$type $test" "$theirs" t/s '' '' -
            for name in $(devices); do
                ours=$(grep -F "speed|$name|$type $test " "$results/rows" | tail -n 1 | cut -d '|' -f 4)
                [ -n "$ours" ] || continue
                ratio=$(awk -v a="$ours" -v b="$theirs" 'BEGIN { printf "%.3f", a / b }')
                result peer "$name" "$type $test beside peer" "$ratio" times '' '' "$(verdict "$ratio" 1.1)"
            done
        done
    done
}

stage_sanitize() {
    sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
    [ -n "$sanitizer" ] || { row sanitize - 'not run' 'compute-sanitizer is not installed'; return; }
    grep -q '^cuda ' "$work/list" && [ -z "$(driver_of cuda)" ] || { row sanitize - 'not run' 'no card of plugin cuda'; return; }
    for what in text certify; do
        set -- certify "$tree/lib/tandem/plugins/cuda.so" --device-index 0
        [ $what = certify ] ||
            set -- run --config "$work/all.ini" --device cuda0 -m "$model" -p "Once upon a time" -n 8 --temp 0 --quiet
        for tool in memcheck racecheck; do
            is_done sanitize cuda0 "$tool $what" && continue
            limited "$sanitizer" --tool $tool --error-exitcode 99 --log-file "$work/found" "$tandem" "$@" \
                >"$work/out" 2>"$work/err" </dev/null
            code=$?
            cat "$work/found" >>"$work/err" 2>/dev/null
            if [ $code -eq 0 ]; then
                result sanitize cuda0 "$tool $what" 0 errors '' '' ok
            else
                unmeasured sanitize cuda0 "$tool $what" $code
                grep -m 5 '=========' "$work/found" | tee -a "$work/report"
            fi
        done
    done
}

for stage in ${stages:-certify groups speed variants depth exchange peer sanitize}; do
    began=$(date +%s)
    "stage_$stage"
    say "$stage: $(($(date +%s) - began)) s"
done
say ''
say 'All that was measured so far:'
printf '| %s | %s | %s | %s | %s | %s | %s |\n' stage device test result limit share verdict >"$work/table"
echo '|---|---|---|---|---|---|---|' >>"$work/table"
awk -F '|' '{ printf "| %s | %s | %s | %s %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6, $7 == "" ? "" : $7 " %", $8 }' \
    "$results/rows" >>"$work/table"
tee -a "$work/report" <"$work/table"
say "$n_failed failed"
[ -z "$report" ] || cp "$work/report" "$report"
[ $n_failed -eq 0 ]
