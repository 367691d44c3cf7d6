#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_latent_types.sh: types of a cache whose K and V are one row, of models whose first layer has
# no cache: Kimi Linear begins with linear attention.
#   test_latent_types.sh TANDEM ARCHS_MATRIX
set -u
tandem=$1 matrix=$2
. "$(dirname "$0")/../tally.sh"
model=$work/kimi-linear-heads.gguf
"$matrix" write "$work" kimi-linear-heads >"$work/out" 2>&1 || fail "no model: $(cat "$work/out")"
# plans EXPECTED FLAG...: the line of the plan about the context ends with EXPECTED
plans() {
    expected=$1
    shift
    "$tandem" plan -m "$model" "$@" >"$work/out" 2>&1 || fail "$*: $(cat "$work/out")"
    if grep -q "^context .*; $expected\$" "$work/out"; then ok; else fail "$*: no '$expected'"; fi
}

plans 'K f16, V f16'
plans 'K q8_0, V q8_0' -ctk q8_0
plans 'K q4_0, V q4_0' -ctk q4_0 -ctv q4_0
"$tandem" plan -m "$model" -ctk q8_0 -ctv f16 >"$work/out" 2>&1 && fail 'two types are planned'
if grep -q "cache-type-v f16: .* set cache-type-v to q8_0" "$work/out"; then ok
else fail "no advice: $(cat "$work/out")"; fi
tally_end
