#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_fit.sh: a context that is nobody's choice is made to fit the memory that `reserve` leaves; one
# that was chosen is refused before anything is allocated.
#   test_fit.sh TANDEM MAKE_MODEL
# The model's cache takes about half of the free memory; nothing of it is touched but a few pages. What
# others take or give back meanwhile is told by the free memory that a plan itself has seen.
set -u
tandem=$1 make_model=$2
. "$(dirname "$0")/../tally.sh"

# model LAYERS: one whose cache takes 128 KiB a token and layer, 512 MiB a layer with 4096 tokens.
model() {
    "$make_model" --preset tiny-llama --type q4_0 --layers "$1" --width 64 --heads 64 --heads-kv 64 \
        --head-dim 512 --ff 64 --ctx 4096 "$work/wide.gguf" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
}
# number KEY: the first value of that key in the plan
number() { sed -n "s/^ *\"$1\": \\([0-9]*\\),*\$/\\1/p" "$work/plan" | head -n 1; }

# plan_whole: what is free with nothing kept.
plan_whole() {
    "$tandem" plan -m "$work/wide.gguf" --json >"$work/plan" 2>"$work/err" && return
    grep -q "does not fit" "$work/err" && { echo "skipped: no 1 GiB of memory is free"; exit 77; }
    fail "plan: $(cat "$work/err")"
}
model 1
plan_whole
memory_free=$(number memory_free)
if [ "$memory_free" = "" ] || [ "$memory_free" -lt 4000000000 ]; then
    echo "skipped: free memory is ${memory_free:-unknown}"
    exit 77
fi
n_layer=$((memory_free / 2 / 536870912))
[ $n_layer -le 64 ] || n_layer=64
model $n_layer
plan_whole
cache=$(number cache_size) weights=$(number weight_size) memory_free=$(number memory_free)
[ "$(number n_ctx)" = 4096 ] && [ "$cache" -ge $((n_layer * 536870912)) ] && ok ||
    fail "plan: $(cat "$work/plan")"
[ "$(number memory_total)" -ge "$memory_free" ] && ok || fail "memory_total: $(number memory_total)"

# reserve_half: reserve so that half of the cache fits into what is free now.
reserve_half() {
    plan_whole
    reserve=$(($(number memory_free) - weights - cache / 2))
}
# fits NAME FLAGS...: a plan with that reserve takes as many tokens as the memory that it has seen lets
# fit, give or take what steps need. A plan from whose memory more than a quarter of the cache was
# taken, or to which it was given back, is made again.
fits() {
    name=$1 trial=0
    shift
    while :; do
        reserve_half
        "$tandem" plan -m "$work/wide.gguf" --reserve $reserve --json "$@" >"$work/plan" 2>"$work/err"
        status=$?
        n_ctx=$(number n_ctx) seen=$(number memory_free)
        room=$((${seen:-0} - reserve - weights)) trial=$((trial + 1))
        [ $room -lt $((cache / 4)) ] || [ $room -gt $((cache * 3 / 4)) ] || break
        [ $trial -lt 10 ] || break
    done
    expected=$((room / (cache / 4096)))
    [ $status = 0 ] && [ "${n_ctx:-0}" -ge $((expected / 2)) ] && [ "$n_ctx" -le $((expected * 9 / 8)) ] &&
        [ "$n_ctx" -lt 4096 ] && [ $((n_ctx % 256)) = 0 ] &&
        grep -q "ctx-size $n_ctx instead of 4096" "$work/err" && ok ||
        fail "$name: ctx-size $n_ctx, not about $expected; $seen free, $reserve kept: $(cat "$work/err")"
}
fits "one device"
"$tandem" run -m "$work/wide.gguf" --reserve $reserve -p x -n 2 >"$work/out" 2>"$work/err" ||
    fail "run: $(cat "$work/err")"
grep -q "^ctx-size [0-9]* instead of 4096" "$work/err" && ok || fail "run: $(cat "$work/err")"

# A group of two that share the host's memory, with shares given and found.
printf '[device a]\nplugin = cpu\nthreads = 1\n[device b]\nplugin = cpu\nthreads = 1\n' >"$work/two.ini"
# A sanitizer, where every plan is dear, takes one share of each kind.
shares='1,1 3,1 auto'
[ "${TANDEM_SANITIZED:-no}" = no ] || shares='3,1 auto'
for share in $shares; do
    fits "group $share" --config "$work/two.ini" --device a,b -ts $share
done
reserve_half

# What was chosen is not changed; what cannot fit is refused. Exit code 1, one line.
refused() {
    "$tandem" "$@" -m "$work/wide.gguf" >"$work/out" 2>"$work/err"
    found=$?
    [ $found = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q "it does not fit: 'cpu0'" "$work/err" &&
        ok || fail "$*: $found: $(cat "$work/err")"
}
refused run -p x -c 4096 --reserve $reserve
refused run -p x --reserve 1000000G
refused run -p x --reserve 900G
refused logits --tokens 1,2 -o "$work/x" -c 4096 --reserve $reserve
refused bench -p 4000 -n 0 --reserve $reserve
[ ! -e "$work/x" ] && ok || fail "logits left a file"

tally_end
