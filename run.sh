#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, and continues a story on this machine:
#   ./run.sh [PROMPT]
set -eu
cd "$(dirname "$0")"
. scripts/packages.sh
# shellcheck disable=SC2086 # a list of words
packages_install $packages_build
meson_setup build-run -Dtests=false -Dbench=false
if ! ninja -C build-run >build-run/build.log 2>&1; then
    cat build-run/build.log >&2
    exit 1
fi
exec build-run/runner/tandem run --config conf/demo.ini --prompt "${1:-Once upon a time}"
