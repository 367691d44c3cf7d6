#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_compilers.sh: kernels of CUDA and HIP by other compilers than clang: -Dptx_compiler, -Damdgpu_compiler.
#   test_compilers.sh wrong SOURCE_ROOT   what the build says of values that are of no use
#   test_compilers.sh nvcc SOURCE_ROOT    two kernels have their entries; skipped where there is no nvcc
#   test_compilers.sh hipcc SOURCE_ROOT   the same; these have no local memory, and waits have a clock
set -u
part=$1 source=$2
. "$(dirname "$0")/../tally.sh"
skip() {
    echo "skipped: $1"
    exit 77
}
command -v meson >/dev/null || skip "there is no meson on PATH"

# configure OPTION...
configure() {
    rm -rf "$work/build"
    meson setup "$work/build" "$source" -Dtests=false -Dbench=false -Dserver=disabled -Dvulkan=disabled \
        -Dgpu_kernels=auto -Dptx_targets= -Damdgpu_targets= "$@" >"$work/log" 2>&1
}

# refused MESSAGE OPTION...
refused() {
    message=$1
    shift
    if configure "$@"; then
        fail "$* is accepted"
    elif grep -q -e "$message" "$work/log"; then
        ok
    else
        fail "$*: no message '$message', but $(tail -n 3 "$work/log")"
    fi
}

# compiled FOLDER SUFFIX BEFORE BEHIND OPTION...: BEFORE and BEHIND are what stands around an entry's name.
compiled() {
    folder=$1 suffix=$2 before=$3 behind=$4
    shift 4
    configure "$@" || fail "$(tail -n 3 "$work/log")"
    for module in merge product_row_8; do
        file=plugins/$folder/$module.$suffix
        ninja -C "$work/build" "$file" >"$work/log" 2>&1 || fail "$(tail -n 20 "$work/log")"
        ! grep -i warning "$work/log" || fail "$module has warnings"
        entry=$module
        [ $module = merge ] || entry=${module}_1
        grep -a -q "$before$entry$behind" "$work/build/$file" && ok || fail "$file has no entry $entry"
    done
}

case "$part" in
wrong)
    refused '-Dptx_compiler=/nonexistent: there is no such program.*-Dptx_compiler= for clang-19' \
        -Dptx_compiler=/nonexistent
    refused '-Damdgpu_compiler=/nonexistent: there is no such program' -Damdgpu_compiler=/nonexistent
    refused '-Dptx_compiler=false makes kernels for none of -Dptx_targets=sm_80,sm_75' \
        -Dptx_compiler=false -Dptx_targets=sm_80,sm_75
    refused '-Damdgpu_compiler=false makes kernels for none of -Damdgpu_targets=gfx1100' \
        -Damdgpu_compiler=false -Damdgpu_targets=gfx1100
    refused 'no CUDA kernels for sm_80: .*Choose other -Dptx_targets' -Dptx_compiler=false -Dptx_targets=sm_80
    refused 'no HIP kernels for gfx1100: .*Other compilers may: clang-19 (-Damdgpu_compiler=)' \
        -Damdgpu_compiler=false -Damdgpu_targets=gfx1100
    ;;
nvcc)
    nvcc=$(command -v nvcc || command -v /usr/local/cuda/bin/nvcc) || skip "there is no nvcc"
    compiled cuda sm_80.fatbin '\.entry ' '(' "-Dptx_compiler=$nvcc" -Dptx_targets=sm_80
    ;;
hipcc)
    command -v hipcc >/dev/null || skip "there is no hipcc"
    compiled hip gfx90a.hsaco '' '\.kd' -Damdgpu_compiler=hipcc -Damdgpu_targets=gfx90a
    ninja -C "$work/build" plugins/hip/wire_wait.gfx90a.hsaco >"$work/log" 2>&1 || fail "$(tail -n 20 "$work/log")"
    objdump=$(command -v llvm-objdump-19 || command -v llvm-objdump || true)
    if [ -n "$objdump" ]; then
        "$objdump" -d "$work/build/plugins/hip/wire_wait.gfx90a.hsaco" >"$work/code"
        grep -q s_memrealtime "$work/code" && ok || fail "wire_wait does not read the clock"
    fi
    # Arguments are not copied to local memory.
    "$source/scripts/kernel-table.sh" "$work/build" --check >"$work/table" 2>"$work/log"
    case $? in
    0 | 77) ok ;;
    *) fail "$(cat "$work/log")" ;;
    esac
    ;;
esac
tally_end
