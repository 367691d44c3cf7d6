#!/bin/sh
# SPDX-License-Identifier: MIT
#
# gpu.sh: runs an installed tree on the cards of this machine and prints a table. It needs the tree
# and a model, but no compiler and no package registry. Each stage ends within eight minutes. What
# did not end by then is marked in the table.
#
#   tests/gpu.sh TREE [certify|groups|bench] [FLAGS]
#
#   certify         the conformance suite on each device of a GPU plugin (default: all three stages)
#   groups          the same text and small divergence on each of them, and in groups with the CPU
#   bench           speed of each of them beside the CPU
#   --model FILE    GGUF file; default: models/stories-3m-q8_0.gguf beside this script
#   --allow-cpu     software drivers too, for a try without a card
#   --driver PLUGIN=PATH    another library as the driver of cuda or hip: an emulated one (tests/simt)
#   --report FILE   write everything there too, with the devices and the system: what to send in
set -u
usage() { sed -n 's/^#   //p' "$0" | head -n 10; exit 2; }
[ $# -ge 1 ] && [ -d "$1" ] || usage
here=$(cd "$(dirname "$0")" && pwd)
tree=$(cd "$1" && pwd)
shift
stages='' drivers='' model=$here/../models/stories-3m-q8_0.gguf allow_cpu=no report=''
while [ $# -gt 0 ]; do
    case $1 in
    certify | groups | bench) stages="$stages $1" ;;
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
unset TANDEM_PLUGIN_PATH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/report"
n_failed=0
STAGE_SECONDS=480

say() { printf '%s\n' "$*" | tee -a "$work/report"; }
row() { printf '%-8s %-24s %-8s %s\n' "$@" | tee -a "$work/report"; }
failed() { n_failed=$((n_failed + 1)); }

# limited COMMAND...: runs it with the time that is left of the stage.
limited() {
    left=$((began + STAGE_SECONDS - $(date +%s)))
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
{
    printf '[device cpu]\nplugin = cpu\n[device reference]\nplugin = cpu\npath = reference\n'
    while read -r plugin index; do
        name=$plugin$index
        printf '[device %s]\nplugin = %s\nindex = %s\n' "$name" "$plugin" "$index"
        [ "$plugin" = vulkan ] && [ $allow_cpu = yes ] && echo 'allow-cpu = yes'
        [ -z "$(driver_of "$plugin")" ] || echo "driver = $(driver_of "$plugin")"
        printf '[group %s-cpu]\nmembers = %s, cpu\nshare = 3, 1\n' "$name" "$name"
        printf '[group %s-auto]\nmembers = %s, cpu\nshare = auto\n' "$name" "$name"
    done <"$work/list"
} >"$work/all.ini"
if [ "$(wc -l <"$work/list")" -gt 1 ]; then
    # Two plugins may see the same card: then both are members, with the CPU as a third.
    names=$(awk '{ printf "%s%s%s", (NR > 1 ? ", " : ""), $1, $2 }' "$work/list")
    {
        printf '[group gpus]\nmembers = %s\nallow-duplicate = yes\n' "$names"
        printf '[group all]\nmembers = %s, cpu\nallow-duplicate = yes\n' "$names"
    } >>"$work/all.ini"
fi

stage_certify() {
    while read -r plugin index; do
        options=''
        [ "$plugin" = vulkan ] && [ $allow_cpu = yes ] && options='--option allow-cpu=yes'
        [ -z "$(driver_of "$plugin")" ] || options="--option driver=$(driver_of "$plugin")"
        # shellcheck disable=SC2086 # words
        limited "$tandem" certify "$tree/lib/tandem/plugins/$plugin.so" --device-index "$index" $options \
            >"$work/out" 2>&1 </dev/null
        code=$?
        word=ok
        [ $code -eq 0 ] || { word=FAILED; failed; }
        [ $code -ne 124 ] || word='no time'
        row certify "$plugin$index" "$word" "$(grep ' passed, ' "$work/out" | tail -n 1)"
        grep -A 1 '^FAIL' "$work/out" | tee -a "$work/report"
    done <"$work/list"
}

# A group or device that failed in a stage with this exit code, and why.
try_failed() {
    failed
    if [ "$3" -eq 124 ]; then row "$1" "$2" 'no time' ''; else row "$1" "$2" FAILED "$(head -n 1 "$work/err")"; fi
}

# Text and divergence of one device or group.
group_try() {
    name=$1
    limited "$tandem" run --config "$work/all.ini" --device "$name" -m "$model" -p "Once upon a time" -n 48 --temp 0 \
        --quiet >"$work/text" 2>"$work/err" </dev/null ||
        { try_failed groups "$name" $?; return; }
    limited "$tandem" perplexity --config "$work/all.ini" --device "$name" -m "$model" -f "$work/corpus" -c 64 \
        --chunks 2 --kl-base "$work/base" --quiet >"$work/out" 2>"$work/err" </dev/null ||
        { try_failed groups "$name" $?; return; }
    kl=$(awk '/^mean KL/ { print $5 }' "$work/out")
    top=$(awk '/^equal top/ { print $5 }' "$work/out")
    text='the same text'
    cmp -s "$work/text" "$work/text.cpu" || text='ANOTHER text'
    # 4-bit caches and activations of 8 bits stay below this; a wrong kernel is far above it.
    if awk -v kl="$kl" -v top="$top" 'BEGIN { exit !(kl ~ /^-?[0-9]/ && kl + 0 <= 1e-3 && top + 0 >= 95) }'; then
        row groups "$name" ok "divergence $kl nats, $top % equal top tokens, $text"
    else
        failed
        row groups "$name" FAILED "divergence ${kl:-none} nats, ${top:-no} % equal top tokens, $text"
    fi
}

stage_groups() {
    for i in 1 2 3 4 5 6 7 8; do
        echo "Once upon a time there was a little dog named Ben, who lived in house number $i. One day he saw a"
        echo "red ball in the park. He ran to it and said: may I play with you? The girl said yes, and they played."
    done >"$work/corpus"
    limited "$tandem" run --config "$work/all.ini" --device cpu -m "$model" -p "Once upon a time" -n 48 --temp 0 \
        --quiet >"$work/text.cpu" 2>"$work/err" </dev/null || { try_failed groups cpu $?; return; }
    limited "$tandem" perplexity --config "$work/all.ini" --device reference -m "$model" -f "$work/corpus" -c 64 \
        --chunks 2 --kl-base "$work/base" --quiet >"$work/out" 2>"$work/err" </dev/null ||
        { try_failed groups reference $?; return; }
    for name in $(sed -n 's/^\[device \(.*\)\]$/\1/p; s/^\[group \(.*\)\]$/\1/p' "$work/all.ini"); do
        [ "$name" = reference ] || group_try "$name"
    done
}

stage_bench() {
    for name in $(sed -n 's/^\[device \(.*\)\]$/\1/p; s/^\[group \(.*-auto\)\]$/\1/p' "$work/all.ini"); do
        [ "$name" = reference ] && continue
        limited "$tandem" bench --config "$work/all.ini" --device "$name" -m "$model" -p 256 -n 64 -r 3 --quiet \
            >"$work/out" 2>"$work/err" </dev/null
        code=$?
        if [ $code -eq 0 ]; then
            row bench "$name" ok ''
            grep '^|' "$work/out" | tee -a "$work/report"
        else
            try_failed bench "$name" $code
        fi
    done
}

for stage in ${stages:-certify groups bench}; do
    began=$(date +%s)
    "stage_$stage"
    say "$stage: $(($(date +%s) - began)) s"
done
say "$n_failed failed"
[ -z "$report" ] || cp "$work/report" "$report"
[ $n_failed -eq 0 ]
