#!/bin/sh
# SPDX-License-Identifier: MIT
#
# out_of_tree.sh: the example backend, built as a stranger would build it: from a copy of the
# installed headers and tandem-backend.pc, in a folder of its own, and certified.
#
#   out_of_tree.sh BUILD_FOLDER EXAMPLE_FOLDER TEST_CERTIFY [MESON]
set -eu
build=$1 example=$2 certify=$3 meson=${4:-}

skip() {
    echo "SKIP: $1"
    exit 77
}
[ -n "$meson" ] || skip "no meson to install with"
for tool in make pkg-config "${CC:-cc}"; do
    command -v "$tool" >/dev/null || skip "no $tool"
done

. "$(dirname "$0")/../tally.sh"
# meson install makes logs in the build folder; DESTDIR and our own make's flags are not inherited.
unset MAKEFLAGS MFLAGS
"$meson" install -C "$build" --no-rebuild --quiet --tags devel --destdir "$work/root" >/dev/null
pc=$(find "$work/root" -name tandem-backend.pc)
[ -n "$pc" ] || { echo "tandem-backend.pc was not installed"; exit 1; }
if grep -q '^Libs' "$pc"; then echo "tandem-backend.pc links something:"; cat "$pc"; exit 1; fi

mkdir "$work/backend"
cp "$example/example.c" "$example/Makefile" "$work/backend"
export PKG_CONFIG_SYSROOT_DIR="$work/root" PKG_CONFIG_PATH="${pc%/*}" PKG_CONFIG_ALLOW_SYSTEM_CFLAGS=1
for variable in abi_version plugindir; do
    value=$(pkg-config "--variable=$variable" tandem-backend)
    [ -n "$value" ] || { echo "tandem-backend.pc has no $variable"; exit 1; }
    echo "$variable = $value"
done
make -C "$work/backend" CFLAGS='-O2 -Wall -Wextra -Wpedantic -Werror'
"$certify" "$work/backend/example.so" -
