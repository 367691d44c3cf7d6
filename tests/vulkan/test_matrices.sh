#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_matrices.sh: kernels on cooperative matrices, compared with the CPU's reference path, on a
# driver that has them and computes: with matrix_driver.c Mesa's software driver offers the shapes of
# cards. That of Debian 12 has no matrices, and the test is skipped there; Mesa 26.2's has.
#   test_matrices.sh TANDEM MATRIX_DRIVER PRODUCTS ATTENTION SPARSE STRIDED
# Another version of the driver is tried with scripts in the place of the programs, which run them
# with another system's dynamic loader and libraries, and with LD_LIBRARY_PATH before these. Then
# MATRIX_DRIVER_LOADER in the environment is the other Vulkan loader, and VK_ICD_FILENAMES the
# driver's manifest. TANDEM_CASES=all: also every pair of cache types.
set -u
tandem=$1 driver=$(realpath "$2") products=$3 attention=$4 sparse=$5 strided=$6
. "$(dirname "$0")/../tally.sh"
. "$(dirname "$0")/driver.sh"
driver_need
mkdir "$work/driver" "$work/cache"
ln -s "$driver" "$work/driver/libvulkan.so.1"
loader=$(ldconfig -p 2>/dev/null | sed -n 's/^.*libvulkan\.so\.1 .*x86-64.*=> //p' | head -n 1)
export MATRIX_DRIVER_LOADER="${MATRIX_DRIVER_LOADER:-$loader}" XDG_CACHE_HOME="$work/cache" \
    MATRIX_DRIVER_MODULES="$work/modules" MATRIX_DRIVER_SHAPE=16x16 \
    LD_LIBRARY_PATH="$work/driver:${LD_LIBRARY_PATH:-}"
# The rigs for matrices get a limit without effect: they use what the driver has.
export OP_CASE_PLUGIN=vulkan OP_CASE_MATRIX=grid=65535

printf '[device v]\nplugin = vulkan\nallow-cpu = yes\n' >"$work/v.ini"
"$tandem" devices --config "$work/v.ini" >"$work/out" 2>&1
grep -q '^v .*matrices' "$work/out" || {
    echo "skipped: no driver with matrices of flexible sizes (VK_NV_cooperative_matrix2): $(grep '^v ' "$work/out")"
    exit 77
}

# computed SHAPE PROGRAM [PATTERN]: tests of a program that use matrices. Subgroups have 8 invocations:
# with vectors of 512 bits Mesa 26.2's driver ends the process, without matrices too.
computed() {
    shape=$1 program=$2
    shift 2
    doing="$(basename "$program") $*, sums of $shape"
    rm -f "$work/modules"
    MATRIX_DRIVER_SHAPE=$shape LP_NATIVE_VECTOR_WIDTH=256 "$program" "$@" >"$work/out" 2>&1 && ok ||
        fail "$doing: $(grep -v '^\[ *\(OK\|RUN\) ' "$work/out")"
    [ -s "$work/modules" ] && ok || fail "$doing: no kernel on matrices"
}

for shape in 16x16 8x16 16x8 32x8; do
    computed $shape "$products" matrices
    computed $shape "$attention" test_lengths
    computed $shape "$attention" test_latent_matrix
done
computed 16x16 "$products" extreme_rows
computed 16x16 "$attention" test_extremes
computed 16x16 "$sparse"
computed 16x16 "$strided"
[ "${TANDEM_CASES:-}" != all ] || computed 16x16 "$attention" test_pairs
tally_end
