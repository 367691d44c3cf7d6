#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_certify.sh: the conformance suite on the first Vulkan device, which is the software driver
# where there is no GPU. op.moe-ffn is left out, since that driver compiles its kernels for two
# minutes; vulkan_products tests experts of every type. So is kv.in-host, which is for plugins with
# a cache in host memory. Of the other ops three run. Variants of attention, sparse attention,
# attention over strided caches and the shift of a cache do not run, since their kernels compile for
# two minutes too, nor imports to caches of every type. vulkan_simple_ops,
# _select_ops, _recurrent, _attention, _attention_sparse, _attention_strided, _attention_blocks, _kv
# and _products compare all of these with the CPU's reference (_kv byte for byte), except KV_SELECT
# over strided caches. TANDEM_CASES=all in the environment runs all here too. The checks of a family
# run in one process, so that the driver loads once.
#   test_certify.sh TANDEM VULKAN.so
set -u
tandem=$1 plugin=$2
. "$(dirname "$0")/../tally.sh"
. "$(dirname "$0")/driver.sh"
driver_need
# The first words of the checks' names; an op, or a check of a cache, by itself.
"$tandem" certify --list | awk '$2 ~ /^[a-z-]+[.]/ { split($2, word, "."); print word[1] ~ /^(op|kv|strided)$/ ? $2 : word[1] "." }' |
    sort -u | grep -vx -e 'op[.]moe-ffn' -e 'kv[.]in-host' >"$work/all"
[ "$(wc -l <"$work/all")" -ge 46 ] && ok || fail "parts of the suite: $(cat "$work/all")"
if [ "${TANDEM_CASES:-}" = all ]; then
    cp "$work/all" "$work/parts"
else
    grep -v -e '^op[.]' -e '^kv[.]attention' -e '^kv[.]shift' -e '^kv[.]import' -e '^sparse' -e '^strided[.][as]' "$work/all" >"$work/parts"
    grep -x -e 'op[.]add' -e 'op[.]rms-norm' -e 'op[.]softmax' -e 'kv[.]attention-long' "$work/all" >>"$work/parts"
fi
[ "$(wc -l <"$work/parts")" -ge 22 ] && ok || fail "parts of the suite: $(cat "$work/parts")"
while read -r part; do
    "$tandem" certify "$plugin" --option allow-cpu=yes --check-timeout 600 --batch --only "$part" >"$work/out" 2>&1 ||
        fail "$part: $(grep -A 1 '^FAIL' "$work/out"; tail -n 1 "$work/out")"
    grep -v '^ok' "$work/out"
    grep -q '^[0-9]* passed, 0 failed' "$work/out" && ok || fail "$part: no tally: $(tail -n 1 "$work/out")"
    [ "$part" != recurrent. ] || ! grep '^skip' "$work/out" && ok || fail "recurrent states are skipped"
done <"$work/parts"
# Attention of many tokens as on matrix hardware, which the software driver lacks.
part='kv.attention-long on matrices'
"$tandem" certify "$plugin" --option allow-cpu=yes --option test-limits=matrix=plain --check-timeout 600 \
    --only kv.attention-long >"$work/out" 2>&1 || fail "$part: $(grep -A 1 '^FAIL' "$work/out"; tail -n 1 "$work/out")"
grep -q '^ok .*kv[.]attention-long' "$work/out" && ok || fail "$part: did not run: $(tail -n 2 "$work/out")"
tally_end
