#!/bin/sh
# SPDX-License-Identifier: MIT
# Installs what is missing, builds, shows what conf/demo.ini will take of its two devices, and
# continues a story on them:
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
build-run/runner/tandem plan --config conf/demo.ini
echo
exec build-run/runner/tandem run --config conf/demo.ini --prompt "${1:-Once upon a time}"
