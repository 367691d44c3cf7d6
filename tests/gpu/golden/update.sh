#!/bin/sh
# SPDX-License-Identifier: MIT
#
# update.sh: writes the step lists of this folder from the present plans. Look at `git diff` before
# you commit them.
#
#   tests/gpu/golden/update.sh [BUILD_FOLDER]
set -eu
here=$(cd "$(dirname "$0")" && pwd)
build=${1:-build-test}
ninja -C "$build" tests/gpu/test_golden
"$build/tests/gpu/test_golden" "$here" --update
