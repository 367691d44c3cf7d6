#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_native.sh: the AMD processors of a machine, in made folders of the kernel's description, and
# the kernels that are built for them.
#   test_native.sh SOURCE_ROOT
set -u
source=$1
. "$(dirname "$0")/../tally.sh"
export KFD_NODES="$work/nodes"

# nodes VERSION...: a folder for each.
nodes() {
    rm -rf "$KFD_NODES"
    n=0
    for version in "$@"; do
        mkdir -p "$KFD_NODES/$n"
        printf 'cpu_cores_count 0\ngfx_target_version %s\nvendor_id 4098\n' "$version" \
            >"$KFD_NODES/$n/properties"
        n=$((n + 1))
    done
}

# found WORDS VERSION...: what the script prints for these.
found() {
    words=$1
    shift
    nodes "$@"
    printed=$("$source/scripts/amd-processors.sh" | paste -s -d ' ' -) || fail "$*: exit status $?"
    if [ "$printed" = "$words" ]; then ok; else fail "$*: '$printed', not '$words'"; fi
}
found ''
found '' 0 0
found 'gfx1151' 0 110501
found 'gfx906 gfx908 gfx90a gfx942' 90006 90008 90010 90402
found 'gfx1030 gfx1032 gfx1100 gfx1103 gfx1200' 100300 100302 110000 110003 120000
found 'gfx1201' 0 120001 120001
found 'gfx1100' '' big -1 99 '110501x' 110000
nodes
mkdir -p "$KFD_NODES/0"
: >"$KFD_NODES/0/properties"
printed=$("$source/scripts/amd-processors.sh")
if [ -z "$printed" ]; then ok; else fail "an empty file: '$printed'"; fi

# What ./run.sh gives the build, on machines with these libraries.
options() {
    expected=$1 libraries=$2
    shift 2
    nodes "$@"
    printed=$(cd "$source" && . scripts/packages.sh &&
        has_library() { case " $libraries " in *" $1 "*) true ;; *) false ;; esac } &&
        kernel_options)
    if [ "$printed" = "$expected" ]; then ok; else fail "$libraries, $*: '$printed'"; fi
}
options '-Dgpu_kernels=enabled -Dptx_targets= -Damdgpu_targets=gfx1151,gfx1201' libamdhip64.so \
    0 110501 120001
options '-Dgpu_kernels=enabled -Dptx_targets=sm_90a,sm_80,sm_75 -Damdgpu_targets=gfx908' \
    'libcuda.so.1 libamdhip64.so' 0 90008
if [ ! -e /opt/rocm/lib/libamdhip64.so ]; then
    options '-Dgpu_kernels=disabled' '' 0 110501
    options '-Dgpu_kernels=disabled' libamdhip64.so 0
fi

# A build for the machine's cards: those that the compiler knows, and a message for the other.
if command -v clang-19 >/dev/null && command -v meson >/dev/null; then
    nodes 0 110501 990000 110501
    if (cd "$source" && . scripts/packages.sh && meson_setup "$work/build" -Dtests=false \
        -Dbench=false -Dserver=disabled -Dvulkan=disabled -Dgpu_kernels=enabled -Dptx_targets= \
        -Damdgpu_targets=native) 2>"$work/err"; then ok; else fail "not configured: $(cat "$work/err")"; fi
    line='^no HIP kernels for gfx9900: .*clang-19 does not .*-Damdgpu_compiler=hipcc.*Vulkan'
    if [ "$(wc -l <"$work/err")" = 1 ] && grep -q "$line" "$work/err"; then
        ok
    else
        fail "not one line on gfx9900, but: $(cat "$work/err")"
    fi
    ninja -C "$work/build" -t targets all |
        sed -n 's/^.*\/merge\.\(gfx[0-9a-f]*\)\.hsaco:.*/\1/p' >"$work/targets"
    if [ "$(cat "$work/targets")" = gfx1151 ]; then ok; else fail "kernels for $(cat "$work/targets")"; fi
fi
tally_end
