#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_fit.sh: without ctx-size, the context fits the memory that `reserve` leaves. A given ctx-size
# that does not fit is refused before anything is allocated.
#   test_fit.sh TANDEM MAKE_MODEL
# The free memory is a given number (TANDEM_TEST_MEMORY, tests/plugins/shims): 4 GiB. The cache of
# the model takes half of it; only a few of its pages are used.
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

export TANDEM_TEST_MEMORY=4294967296
n_layer=4
model $n_layer
"$tandem" plan -m "$work/wide.gguf" --json >"$work/plan" 2>"$work/err" || fail "plan: $(cat "$work/err")"
cache=$(number cache_size) weights=$(number weight_size)
[ "$(number memory_free)" = $TANDEM_TEST_MEMORY ] && ok || fail "memory_free: $(number memory_free)"
[ "$(number memory_total)" = $((2 * TANDEM_TEST_MEMORY)) ] && ok || fail "memory_total: $(number memory_total)"
[ "$(number n_ctx)" = 4096 ] && [ "$cache" -ge $((n_layer * 536870912)) ] && ok ||
    fail "plan: $(cat "$work/plan")"

# With this reserve half of the cache fits.
room=$((cache / 2))
reserve=$((TANDEM_TEST_MEMORY - weights - room))
# fits NAME FLAGS...: a plan with that reserve has the number of tokens that fit, up to the memory
# of a step.
fits() {
    name=$1
    shift
    "$tandem" plan -m "$work/wide.gguf" --reserve $reserve --json "$@" >"$work/plan" 2>"$work/err"
    status=$?
    n_ctx=$(number n_ctx)
    expected=$((room / (cache / 4096)))
    [ $status = 0 ] && [ "${n_ctx:-0}" -ge $((expected / 2)) ] && [ "$n_ctx" -le $expected ] &&
        [ "$n_ctx" -lt 4096 ] && [ $((n_ctx % 256)) = 0 ] &&
        grep -q "ctx-size $n_ctx instead of 4096" "$work/err" && ok ||
        fail "$name: ctx-size $n_ctx, not about $expected; $reserve kept: $(cat "$work/err")"
    echo "$name: ctx-size $n_ctx, expected $expected"
}
fits "one device"
"$tandem" run -m "$work/wide.gguf" --reserve $reserve -p x -n 2 >"$work/out" 2>"$work/err" ||
    fail "run: $(cat "$work/err")"
grep -q "^ctx-size [0-9]* instead of 4096" "$work/err" && ok || fail "run: $(cat "$work/err")"

# A group of two members that share the host's memory, with given shares and with automatic ones.
printf '[device a]\nplugin = cpu\nthreads = 1\n[device b]\nplugin = cpu\nthreads = 1\n' >"$work/two.ini"
for share in 1,1 3,1 auto; do
    fits "group $share" --config "$work/two.ini" --device a,b -ts $share
done

# The weights and the cache of the draft model are counted. Here the model drafts for itself, so both
# are needed twice, and memory for one whole cache holds half of the tokens; in a group, too.
drafted() {
    name=$1
    shift
    "$tandem" plan -m "$work/wide.gguf" -md "$work/wide.gguf" -c 1024 --json "$@" >"$work/plan" 2>"$work/err" ||
        fail "$name with a draft: $(cat "$work/err")"
    both=$(sum cache_size)
    draft=$(number draft_cache_size)
    "$tandem" plan -m "$work/wide.gguf" -c 1024 --json "$@" >"$work/plan" 2>"$work/err"
    alone=$(sum cache_size)
    [ "$draft" = "$alone" ] && [ "$both" = $((2 * alone)) ] && ok || fail "$name: $both, of it $draft; $alone"
    fits "$name, with a draft" -md "$work/wide.gguf" -ub 64 "$@" --reserve $((reserve - room))
}
# sum KEY: of all members
sum() { sed -n "s/^ *\"$1\": \\([0-9]*\\),*\$/\\1/p" "$work/plan" | awk '{ n += $1 } END { printf "%.0f", n }'; }
drafted "one device"
drafted "group 3,1" --config "$work/two.ini" --device a,b -ts 3,1
"$tandem" plan -m "$work/wide.gguf" -md "$work/wide.gguf" -c 1024 >"$work/plan" 2>"$work/err"
grep -q "^draft .*weights .*cache 576" "$work/plan" && ok || fail "plan: $(cat "$work/plan" "$work/err")"
"$tandem" run -m "$work/wide.gguf" -md "$work/wide.gguf" --reserve $reserve -p x -n 2 >"$work/out" 2>"$work/err" ||
    fail "run with a draft: $(cat "$work/err")"

# A given size is not changed; one that does not fit is refused with exit code 1 and one line.
refused() {
    "$tandem" "$@" -m "$work/wide.gguf" >"$work/out" 2>"$work/err"
    found=$?
    without_progress "$work/err"
    [ $found = 1 ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -q "it does not fit: 'cpu0'" "$work/err" &&
        ok || fail "$*: $found: $(cat "$work/err")"
}
refused run -p x -c 4096 --reserve $reserve
refused run -p x --reserve 1000000G
refused run -p x --reserve 900000G
refused logits --tokens 1,2 -o "$work/x" -c 4096 --reserve $reserve
refused bench -p 4000 -n 0 --reserve $reserve
[ ! -e "$work/x" ] && ok || fail "logits left a file"
# A plan states it itself.
"$tandem" plan -c 1900 --reserve $reserve -md "$work/wide.gguf" -m "$work/wide.gguf" >"$work/out" 2>"$work/err"
[ $? = 1 ] && [ ! -s "$work/err" ] && grep -q "It does not fit: 'cpu0'" "$work/out" && ok ||
    fail "plan of what does not fit: $(cat "$work/err" "$work/out")"

tally_end
