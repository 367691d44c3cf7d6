#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_certify.sh: the whole conformance suite on the first Vulkan device, the software driver where there
# is no GPU.
#   test_certify.sh TANDEM VULKAN.so
set -u
tandem=$1 plugin=$2
. "$(dirname "$0")/../tally.sh"
. "$(dirname "$0")/driver.sh"
driver_need
"$tandem" certify "$plugin" --option allow-cpu=yes >"$work/out" 2>&1 ||
    fail "$(grep -A 1 '^FAIL' "$work/out"; tail -n 1 "$work/out")"
grep -v '^ok' "$work/out"
grep -q '^[1-9][0-9]* passed, 0 failed' "$work/out" && ok || fail "no tally: $(tail -n 1 "$work/out")"
tally_end
