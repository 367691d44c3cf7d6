#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_certify.sh: the conformance suite on an emulated device. Checks of ops without a kernel are
# skipped. A lower bound of the checks that pass keeps an op from being skipped unnoticed.
#   test_certify.sh TANDEM PLUGIN.so DRIVER PASSED [OPTION=VALUE...]
# PASSED is the least number of checks that pass.
set -u
tandem=$1 plugin=$2 driver=$3 least=$4
shift 4
options=
for option; do options="$options --option $option"; done
. "$(dirname "$0")/../tally.sh"
# shellcheck disable=SC2086 # a list of words
"$tandem" certify "$plugin" --option "driver=$driver" $options --check-timeout 600 --batch >"$work/out" 2>&1 ||
    fail "$(grep -A 1 '^FAIL' "$work/out"; tail -n 1 "$work/out")"
grep -v '^ok' "$work/out"
n=$(sed -n 's/^\([0-9]*\) passed, 0 failed.*/\1/p' "$work/out")
[ "${n:-0}" -ge "$least" ] && ok || fail "${n:-no} checks passed, at least $least expected"
tally_end
