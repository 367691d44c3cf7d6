#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_fences.sh: what clang-19, and hipcc where it is installed, make of fences at system scope for
# AMD's processors: each write-back or invalidation of caches is waited for before the next store,
# barrier or branch (plugins/hip/words.h).
#   test_fences.sh SOURCE_ROOT; skipped where there is no clang-19
set -u
source=$1
command -v clang-19 >/dev/null || { echo "skipped: there is no clang-19"; exit 77; }
. "$(dirname "$0")/../tally.sh"

# assembly TARGET KERNEL: the kernel in $work/text, by $compiler
assembly() {
    # shellcheck disable=SC2086 # words of a command
    $compiler -std=c++17 -include "$source/plugins/gpu/kernels/on_device.h" "-I$source" \
        "-I$source/plugins/hip" --cuda-device-only -O2 -Wno-parentheses -x hip -nogpuinc -nogpulib \
        --no-gpu-bundle-output "--offload-arch=$1" -mcode-object-version=4 -mllvm \
        -inline-threshold=100000 -S -o "$work/text" "$source/plugins/gpu/kernels/$2.cu" ||
        fail "$2 is not translated for $1 by $compiler"
}

# waited TARGET KERNEL PATTERN WAIT: behind an instruction of PATTERN comes one of WAIT first.
waited() {
    if awk -v what="$3" -v wait="$4" '
        !/^\t[a-z]/ { next }
        pending && $0 ~ wait { pending = 0 }
        pending && /(flat|global)_store|ds_(write|store)|s_barrier|s_c?branch|s_endpgm/ {
            print "line " NR ": " $0
            exit bad = 1
        }
        $0 ~ what { pending = 1; n++ }
        END { exit bad || n == 0 }' "$work/text" >"$work/found"; then
        ok
    else
        fail "$2 for $1 by $compiler: no wait behind $3: $(cat "$work/found")"
    fi
}

# targets_check TARGET...
# drops, writes: invalidation and write-back of caches; no write-back where stores go past them.
targets_check() {
    for target in "$@"; do
        loads='vmcnt.0.' stores='vmcnt.0.' writes=''
        case $target in
        gfx906) drops=buffer_wbinvl1 ;;
        gfx90a) drops=buffer_invl2 writes=buffer_wbl2 ;;
        gfx942) drops='buffer_inv sc0 sc1' writes='buffer_wbl2 sc0 sc1' ;;
        gfx1201)
            drops='global_inv scope:SCOPE_SYS' writes='global_wb scope:SCOPE_SYS'
            loads='s_wait_loadcnt(_dscnt)? 0x0' stores='s_wait_storecnt(_dscnt)? 0x0'
            ;;
        *) drops=buffer_gl1_inv ;;
        esac
        for kernel in wire_wait wire_reduce; do
            assembly "$target" "$kernel"
            waited "$target" "$kernel" "$drops" "$loads"
            [ -z "$writes" ] || waited "$target" "$kernel" "$writes" "$stores"
        done
    done
}
compiler=clang-19
targets_check gfx906 gfx90a gfx942 gfx1030 gfx1100 gfx1201
if command -v hipcc >/dev/null; then
    compiler='hipcc --genco'
    targets_check gfx906 gfx90a gfx1030 gfx1100 # those of Debian's hipcc 5.2.3
fi
tally_end
