#!/bin/bash
# SPDX-License-Identifier: MIT
#
# arm.sh: builds Tandem for 64-bit ARM on another Debian machine, and runs tests with qemu's
# user-mode emulation. It shows whether the NEON kernels compute what the reference path computes,
# and whether the rest runs on this architecture; not how fast anything is, nor how an ARM
# processor orders memory. On an ARM machine ./test.sh runs all tests without emulation.
#
#   tests/arm.sh [BUILD_FOLDER [TEST...]]
#
# BUILD_FOLDER: build-arm by default. TEST: names of tests that are programs, as `meson test --list`
# prints them; without, those of the kernels. Scripts cannot run so. Needs the packages that it
# names where they are missing; it installs none, since they belong to another architecture.
set -u
usage() { sed -n 's/^#   //p' "$0"; exit 2; }
case "${1:-}" in -*) usage ;; esac
build=${1:-build-arm}
[ $# -gt 0 ] && shift
cd "$(dirname "$0")/.." || exit 1
. scripts/packages.sh
packages="gcc-aarch64-linux-gnu g++-aarch64-linux-gnu qemu-user libc6-dev:arm64 libinih-dev:arm64"
packages="$packages libpcre2-dev:arm64 libutf8proc-dev:arm64 libcmocka-dev:arm64 libjansson-dev:arm64"
missing=""
for name in $packages; do
    case "$(dpkg-query -W -f '${Status}' "$name" 2>/dev/null)" in
    *"install ok installed"*) ;;
    *) missing="$missing $name" ;;
    esac
done
if [ -n "$missing" ]; then
    echo "arm.sh: missing packages; install them, as root:" >&2
    echo "    dpkg --add-architecture arm64 && apt-get update && apt-get install$missing" >&2
    exit 1
fi
# The compilers are those of the cross file.
unset CC CXX
meson_setup "$build" --cross-file scripts/aarch64.ini -Dgpu_kernels=disabled -Dvulkan=disabled || exit 1
if [ $# -eq 0 ]; then set -- --suite kernels; fi
exec meson test -C "$build" --timeout-multiplier 20 "$@"
