#!/bin/sh
# SPDX-License-Identifier: MIT
#
# out_of_tree.sh: builds the example backend outside this tree, from a copy of the installed headers
# and tandem-backend.pc alone, and certifies it. Then sets its option in an INI file and on the
# command line.
#
#   out_of_tree.sh BUILD_FOLDER EXAMPLE_FOLDER TEST_CERTIFY TANDEM MODEL.gguf [MESON]
set -eu
build=$1 example=$2 certify=$3 tandem=$4 model=$5 meson=${6:-}

skip() {
    echo "SKIP: $1"
    exit 77
}
[ -n "$meson" ] || skip "no meson to install with"
for tool in make pkg-config "${CC:-cc}"; do
    command -v "$tool" >/dev/null || skip "no $tool"
done

. "$(dirname "$0")/../tally.sh"
# meson install writes logs into the build folder. DESTDIR and the flags of our own make are not
# inherited.
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

set +e

# --- Its own option, `memory`: in a file, as a flag, in the help, refused, and as a limit.
printf 'model = %s\nplugin-path = %s\n[device mine]\nplugin = example\nmemory = 16M\n' \
    "$model" "$work/backend" >"$work/mine.ini"
expect 0 "memory = 16M" config --config "$work/mine.ini"
expect 0 "--memory SIZE" run --plugin-path "$work/backend" --help
expect 0 "Once upon" run --config "$work/mine.ini" -p "Once upon" -n 8 --temp 0
cp "$work/out" "$work/enough"
expect 1 "memory = 65536" run --config "$work/mine.ini" -p "Once upon" -n 8 --temp 0 --quiet --memory 64K
expect 0 "Once upon" run --config "$work/mine.ini" -p "Once upon" -n 8 --temp 0 --memory 1G
same "$work/out" "$work/enough" "memory changes what fits, not what is computed"
expect 2 "no device of this command has such an option" \
    run --config "$work/mine.ini" --device cpu0 -p x -n 1 --memory 1G
expect 2 "bad value '1X' for 'memory'" run --config "$work/mine.ini" -p x --memory 1X
sed 's/memory/memroy/' "$work/mine.ini" >"$work/typo.ini"
expect 1 "typo.ini:5: unknown key 'memroy'; did you mean 'memory'?" config --config "$work/typo.ini"
sed 's/16M/lots/' "$work/mine.ini" >"$work/word.ini"
expect 1 "word.ini:5: bad value 'lots' for 'memory'" config --config "$work/word.ini"
rm "$work/backend/example.so"
expect 1 "mine.ini:5: 'memory' can only be an option of the plugin 'example', which cannot be loaded" \
    config --config "$work/mine.ini"
tally_end
