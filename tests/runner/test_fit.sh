#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_fit.sh: a context that is nobody's choice is made to fit the memory that `reserve` leaves; one
# that was chosen is refused before anything is allocated.
#   test_fit.sh TANDEM MAKE_MODEL
# The model's cache takes 2 GiB, far more than the machine's free memory wavers meanwhile.
set -u
tandem=$1 make_model=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
passed=0

fail() {
    echo "FAILED: $*" >&2
    failed=$((failed + 1))
}
ok() { passed=$((passed + 1)); }

"$make_model" --preset tiny-llama --type q4_0 --layers 4 --width 64 --heads 64 --heads-kv 64 \
    --head-dim 512 --ff 64 --ctx 4096 "$work/wide.gguf" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
# number KEY: the first value of that key in the plan
number() { sed -n "s/^ *\"$1\": \\([0-9]*\\),*\$/\\1/p" "$work/plan" | head -n 1; }

"$tandem" plan -m "$work/wide.gguf" --json >"$work/plan" 2>"$work/err" || {
    grep -q "does not fit" "$work/err" && { echo "skipped: no 3 GiB of memory are free"; exit 77; }
    fail "plan: $(cat "$work/err")"
}
cache=$(number cache_size) weights=$(number weight_size) memory_free=$(number memory_free)
[ "$(number n_ctx)" = 4096 ] && [ "$cache" -gt 2000000000 ] && ok || fail "plan: $(cat "$work/plan")"
if [ "$memory_free" = "" ] || [ "$memory_free" -lt 3000000000 ]; then
    echo "skipped: free memory is ${memory_free:-unknown}"
    exit 77
fi

# Half of the cache fits.
reserve=$((memory_free - weights - cache / 2))
"$tandem" plan -m "$work/wide.gguf" --reserve $reserve --json >"$work/plan" 2>"$work/err" ||
    fail "half: $(cat "$work/err")"
n_ctx=$(number n_ctx)
[ "$n_ctx" -ge 256 ] && [ "$n_ctx" -lt 3840 ] && [ $((n_ctx % 256)) = 0 ] && ok ||
    fail "half: ctx-size $n_ctx"
grep -q "ctx-size $n_ctx instead of 4096" "$work/err" && ok || fail "half: $(cat "$work/err")"
"$tandem" run -m "$work/wide.gguf" --reserve $reserve -p x -n 2 >"$work/out" 2>"$work/err" ||
    fail "run: $(cat "$work/err")"
grep -q "^ctx-size [0-9]* instead of 4096" "$work/err" && ok || fail "run: $(cat "$work/err")"

# A group of two that share the host's memory, with shares given and found.
printf '[device a]\nplugin = cpu\nthreads = 1\n[device b]\nplugin = cpu\nthreads = 1\n' >"$work/two.ini"
for share in 1,1 3,1 auto; do
    "$tandem" plan -m "$work/wide.gguf" --config "$work/two.ini" --device a,b -ts $share \
        --reserve $reserve --json >"$work/plan" 2>"$work/err" || fail "group $share: $(cat "$work/err")"
    n_ctx=$(number n_ctx)
    [ "$n_ctx" -ge 256 ] && [ "$n_ctx" -lt 3840 ] && grep -q "ctx-size $n_ctx instead of 4096" "$work/err" &&
        ok || fail "group $share: ctx-size $n_ctx: $(cat "$work/err")"
done

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

echo "$passed checks passed, $failed failed"
[ "$failed" = 0 ]
