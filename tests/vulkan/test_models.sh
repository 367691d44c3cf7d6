#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_models.sh: whole models on a Vulkan device, with its cache in the host's memory, with drafts
# and shifts, with a cache that another device saved, and in groups with the CPU and with a second
# Vulkan device. Greedy texts equal the CPU's. The divergence from the CPU's reference path is
# small; that of a group is at most twice that of its worst member alone.
#   test_models.sh TANDEM MODEL.gguf TEXT FOLDER [MAKE_MODEL]
# FOLDER has models that are not part of the project, and need not exist.
#
# Mesa's software driver optimises nothing (GALLIVM_PERF), except in two of the first texts: measuring a device
# takes twice as long without.
set -u
tandem=$1 model=$2 text=$3 make=${5-}
. "$(dirname "$0")/../tally.sh"
. "$(dirname "$0")/driver.sh"
driver_need
config plain
config rows "$by_rows"
config dots "$by_dots"
config matrices 'test-limits = matrix=plain'

# divergence DEVICE MODEL FLAGS...: mean KL divergence from the base, and the share of equal top
# tokens, with the configuration $config.
divergence() {
    device=$1 of=$2
    shift 2
    "$tandem" perplexity --config "$work/$config.ini" --device "$device" -m "$of" -f "$text" -c 96 --chunks 2 \
        --kl-base "$work/base" --quiet "$@" >"$work/out" 2>"$work/err" || fail "$device: $(cat "$work/err")"
    awk '/^mean KL/ { kl = $5 } /^equal top/ { top = $5 } END { print kl == "" ? "none" : kl, top }' "$work/out"
}

# at_most WHAT VALUE BOUND
at_most() {
    awk -v a="$2" -v b="$3" 'BEGIN { exit !(a ~ /^-?[0-9]/ && a + 0 <= b + 0) }' && ok || fail "$1: $2 is above $3"
}

# compare CONFIG NAME MODEL BOUND GROUPS FLAGS...
compare() {
    config=$1 name=$2 of=$3 bound=$4 groups=$5
    shift 5
    rm -f "$work/base"
    divergence reference "$of" "$@" >/dev/null
    set_cpu=$(divergence cpu "$of" "$@")
    set_v=$(divergence v "$of" "$@")
    echo "$name: cpu $set_cpu, vulkan $set_v"
    at_most "$name on vulkan" "${set_v% *}" "$bound"
    at_most "$name on vulkan: other top tokens" "$(echo "${set_v#* }" | awk '{ print 100 - $1 }')" 2
    worst=$(printf '%s\n%s\n' "${set_cpu% *}" "${set_v% *}" | sort -g | tail -n 1)
    for group in $groups; do
        set_group=$(divergence "$group" "$of" "$@")
        echo "$name: $group $set_group"
        at_most "$name in the group $group" "${set_group% *}" "$(awk -v w="$worst" 'BEGIN { print 2 * w + 1e-7 }')"
    done
}

# The same text on each device.
for device in cpu v vc measured vw vwc; do
    case $device in
    v) config=plain ;;
    vw) config=dots ;;
    *) config=rows ;;
    esac
    case $device in
    v | measured) perf= ;;
    *) perf=nopt ;;
    esac
    GALLIVM_PERF=$perf "$tandem" run --config "$work/$config.ini" --device $device -m "$model" -p "Once upon a time" \
        -n 24 --temp 0 --quiet >"$work/text.$device" 2>"$work/err" || fail "$device: $(cat "$work/err")"
    [ "$(wc -c <"$work/text.$device")" -gt 60 ] || fail "$device: a short text"
    same "$work/text.cpu" "$work/text.$device" "text of $device"
done
# text_with NAME DEVICE FLAGS...: greedy text, to $work/text.NAME.DEVICE.
text_with() {
    out=$work/text.$1.$2 on=$2
    shift 2
    "$tandem" run --config "$work/rows.ini" --device "$on" -m "$model" -p "Once upon a time" --temp 0 --quiet "$@" \
        >"$out" 2>"$work/err" || fail "$on $*: $(cat "$work/err")"
}
# The cache in the host's memory, where the CPU attends. Drafts that the device proposes and
# verifies, in a context that is shifted.
for device in cpu v; do
    text_with host $device -n 24 --no-kv-offload
    text_with shift $device -n 70 -c 64 --context-shift --page-size 8 --model-draft "$model" --draft-max 2
done
same "$work/text.host.cpu" "$work/text.host.v" "text with a cache in the host's memory"
same "$work/text.shift.cpu" "$work/text.shift.v" "text with drafts and shifts"
[ "$(wc -c <"$work/text.shift.v")" -gt 200 ] || fail "a short text: $(cat "$work/text.shift.v")"
# A cache that one device saved is loaded on another: the prompt is not computed again.
# Its next words have a margin: CPUs with and without AVX-512 agree on them.
story="Once upon a time there was a boy named Tim. Tim had a big red car. He liked to play with his car every day. One day, Tim"
# moved FROM TO FLAGS...: text of TO, whose prompt is read from what FROM saved.
moved() {
    from=$1 to=$2
    shift 2
    for device in $from $to; do
        "$tandem" run --config "$work/rows.ini" --device "$device" -m "$model" -p "$story" -n 16 --temp 0 "$@" \
            --prompt-cache "$work/moved" >"$work/moved.$device" 2>"$work/err" || fail "$device: $(cat "$work/err")"
    done
    grep -q ' [2-9][0-9] more from the prompt cache' "$work/err" && ok ||
        fail "$to read nothing from the cache of $from: $(cat "$work/err")"
    same "$work/moved.$from" "$work/moved.$to" "text of $to with the cache of $from"
    rm -f "$work/moved"
}
moved cpu v
moved vc cpu --cache-type-k q8_0 --cache-type-v q4_0
# A token in steady decoding takes one submission and one wait. Nothing is copied, bound (which
# records commands), planned or allocated.
"$tandem" run --config "$work/rows.ini" --device v -m "$model" -p "Once upon a time" -n 40 --temp 0 --profile \
    >"$work/out" 2>"$work/err" || fail "profile: $(cat "$work/err")"
sed -n '/per token when steady/,$p' "$work/err" | awk 'NR > 1 { n = $NF; $NF = ""; $(NF - 1) = ""; sub(/ *$/, ""); print $0 "=" n }' \
    >"$work/counters"
for counter in 'graphs planned=0' 'allocations=0' 'binds=0' 'submissions=1' 'host waits=1' 'uploads=0' 'downloads=0'; do
    grep -qx "$counter" "$work/counters" && ok || fail "per token: no $counter in: $(cat "$work/counters")"
done
# The plans of Vulkan members are cut at exchanges, whose phases their kernels perform.
TANDEM_TEST_RATES=4e10,4e11 "$tandem" plan --config "$work/rows.ini" --device vwc -m "$model" >"$work/out" 2>"$work/err" ||
    fail "plan: $(cat "$work/err")"
[ "$(grep -c 'plan cut: its kernels may not wait' "$work/out")" -eq 2 ] && ok ||
    fail "plan says: $(grep -A 3 '^transport' "$work/out")"
compare plain "q8_0 weights" "$model" 1e-4 "vc"
compare rows "q8_0 weights, by rows" "$model" 1e-4 "vwc"
compare dots "q8_0 weights, K q8_0 and V q4_0" "$model" 1e-3 "vc" --cache-type-k q8_0 --cache-type-v q4_0
compare rows "q8_0 weights, K and V iq4_nl" "$model" 1e-3 "vw" --cache-type-k iq4_nl --cache-type-v iq4_nl
# Latent attention on matrices: prompts of a model like DeepSeek's.
if [ -n "$make" ]; then
    "$make" --preset tiny-deepseek2 --type f16 --quiet "$work/latent.gguf" || fail "no model"
    compare matrices "latent attention, K and V q8_0" "$work/latent.gguf" 1e-5 "" --cache-type-k q8_0 \
        --cache-type-v q8_0
    # Another kernel replaces one that is found wrong: none was.
    "$tandem" run --config "$work/matrices.ini" --device v -m "$work/latent.gguf" -p "$story" -n 1 --temp 0 --verbose \
        --cache-type-k q8_0 --cache-type-v q8_0 >"$work/out" 2>"$work/err" || fail "latent attention: $(cat "$work/err")"
    grep -q '^model ' "$work/err" && ! grep -q '[1-9][0-9]* wrong\|wrong:\|gives wrong' "$work/err" && ok ||
        fail "latent attention: $(grep -e wrong -e '^model ' "$work/err")"
fi
if [ -f "$4/stories-3m.gguf" ]; then
    compare rows "f32 weights" "$4/stories-3m.gguf" 1e-6 "vc"
    # One model of several types. vulkan_products compares the products of every type.
    "$tandem" quantize "$4/stories-3m.gguf" "$work/small.gguf" q4_K_M --quiet >"$work/out" 2>&1 ||
        fail "quantize: $(cat "$work/out")"
    compare dots "q4_K_M weights" "$work/small.gguf" 1e-3 ""
fi
tally_end
