#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, and runs every test. The last line is "N passed, N failed".
#   ./test.sh [ARGUMENTS OF meson test, such as a test's name]
# In the environment: BUILD_FOLDER (build-test) and MESON_OPTIONS (none) choose another build.
set -eu
cd "$(dirname "$0")"
. scripts/packages.sh
# shellcheck disable=SC2086 # lists of words
{
    packages_install $packages_build $packages_test
    folder="${BUILD_FOLDER:-build-test}"
    # The tests run CUDA's and HIP's kernels on emulated drivers. Compiled kernels of all cards would
    # take longer than everything else; -Dgpu_kernels=enabled in MESON_OPTIONS compiles them.
    meson_setup "$folder" -Dgpu_kernels=disabled ${MESON_OPTIONS:-}
}
# Everything is built here, except with --suite: then Meson builds what the tests of the suite need.
rebuild=''
case " $* " in
*' --suite '*) ;;
*)
    rebuild=--no-rebuild
    ninja -C "$folder" >"$folder/build.log" 2>&1 || {
        cat "$folder/build.log" >&2
        exit 1
    }
    ;;
esac
status=0
# One test more than processors: some tests only wait for a timeout.
meson test -C "$folder" $rebuild --num-processes $(($(nproc) + 1)) --print-errorlogs "$@" >"$folder/test.log" 2>&1 || status=$?
grep -v '^\[[0-9]*/[0-9]*\] ' "$folder/test.log" || true # without the lines of the build
awk '
    /^Ok:/ { ok += $2 }
    /^(Fail|Unexpected Pass|Timeout):/ { fail += $NF }
    /^Expected Fail:/ { ok += $NF }
    /^Skipped:/ { skip += $2 }
    END {
        printf "%d passed, %d failed", ok, fail
        if (skip > 0) printf ", %d skipped", skip
        print ""
        if (ok + fail == 0) exit 1
    }' "$folder/test.log"
exit "$status"
