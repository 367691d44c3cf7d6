#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, and continues a story on this machine:
#   ./run.sh [PROMPT]
set -eu
cd "$(dirname "$0")"
. scripts/packages.sh
# shellcheck disable=SC2086 # a list of words
packages_install $packages_build
meson_setup build -Dtests=false -Dbench=false
if ! ninja -C build >build/build.log 2>&1; then
    cat build/build.log >&2
    exit 1
fi
exec build/runner/tandem run --config conf/demo.ini --prompt "${1:-Once upon a time}"
