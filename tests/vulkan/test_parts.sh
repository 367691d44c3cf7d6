#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_parts.sh: a long plan is submitted in parts, and gives the same bits as in one. The option
# test-limits part=N shortens parts to N estimated microseconds, so that the plans of a small model
# have several, and parts of one step's workgroups.
#   test_parts.sh TANDEM MODEL.gguf TEXT
set -u
tandem=$1 model=$2 text=$3
. "$(dirname "$0")/../tally.sh"
. "$(dirname "$0")/driver.sh"
driver_need
config plain
config whole "$by_rows"
# Grids of up to 32 workgroups along x are sliced along y.
config single "$by_rows grid=32 part=1"
config some "$by_rows part=2000"

# perplexity NAME: results in $work/out, messages in $work/err.
perplexity() {
    "$tandem" perplexity --config "$work/$1.ini" --device v -m "$model" -f "$text" -c 96 --chunks 1 \
        --kl-base "$work/base" --verbose >"$work/out" 2>"$work/err" || fail "$1: $(cat "$work/err")"
}
perplexity plain
! grep -q 'is submitted in' "$work/err" && ok || fail "a small plan in parts: $(grep 'is submitted in' "$work/err")"
# The base is of a device with the same kernels.
rm -f "$work/base"
perplexity whole
for name in some single; do
    perplexity $name
    grep -q 'a plan of [0-9]* steps is submitted in [1-9][0-9]* parts' "$work/err" && ok || fail "$name: one part"
    # Equal logits have a divergence of 0.
    grep -q '^mean KL divergence *0\(\.0*\)\?\( \|$\)\|^mean KL.* 0\.0*\(e[-+]0*\)\?\( \|$\)' "$work/out" && ok ||
        fail "$name: other logits: $(cat "$work/out")"
done
# Each step is a part, or several.
awk '/is submitted in/ { for (i = 1; i < NF; i++) { if ($(i + 1) == "steps") steps = $i; if ($(i + 1) == "parts") parts = $i }
        n++; bad += parts < steps; sliced += parts > steps } END { exit !(n > 0 && bad == 0 && sliced > 0) }' "$work/err" && ok ||
    fail "parts of more than a step, or no slices: $(grep 'is submitted in' "$work/err")"
tally_end
