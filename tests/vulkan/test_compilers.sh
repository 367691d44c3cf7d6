#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_compilers.sh: what compilers of cards make of the kernels, without such a card. Mesa's driver
# for AMD compiles for every processor; compile_driver.c replaces the rest of it. Each pipeline must
# compile, without spilled registers and without private memory, in which a driver keeps arrays that
# it cannot keep in registers. Nothing is computed here.
#   test_compilers.sh TANDEM VULKAN_PLUGIN COMPILE_DRIVER MAKE_MODEL CPU_PLUGIN [PROCESSOR...]
# With processors, as in RADV_FORCE_FAMILY or INTEL_STUB_GPU_PLATFORM, it prints a table of their
# pipelines. COMPILE_ICD in the environment is the manifest of another version of AMD's driver: those
# from Mesa 24 on have matrices.
#
# Mesa's driver for Intel compiles for its GPUs where a library answers for the kernel's driver, Mesa's
# libintel_noop_drm_shim.so. Distributions do not have it: build it from Mesa's source of the driver's
# version (src/intel/tools and src/drm-shim; Meson: -Dtools=drm-shim,intel) and set TANDEM_INTEL_SHIM to
# its path. Kernels have few registers there, and some spill (docs/notebook.md): the check is that those
# that can do without spill nothing, and that others spill no more than they did.
set -u
tandem=$1 plugin=$2 driver=$(realpath "$3") make_model=$4 cpu_folder=$(dirname "$(realpath "$5")")
shift 5
# icd_find NAME: the manifest of a driver for this processor, of which others may be installed, too
icd_find() {
    find /usr/share/vulkan/icd.d /etc/vulkan/icd.d -name "$1_icd.json" -o -name "$1_icd.$(uname -m).json" 2>/dev/null |
        head -n 1
}
amd_icd=${COMPILE_ICD:-$(icd_find radeon)} intel_icd=$(icd_find intel) shim=${TANDEM_INTEL_SHIM:-}
if [ -z "$amd_icd" ]; then
    echo "SKIP: no driver of AMD cards (Debian: mesa-vulkan-drivers)" >&2
    exit 77
fi
. "$(dirname "$0")/../tally.sh"
loader=$(ldconfig -p 2>/dev/null | sed -n 's/^.*libvulkan\.so\.1 .*x86-64.*=> //p' | head -n 1)

# A plugin without a CPU plugin beside it does not compare results with the CPU's.
mkdir "$work/plugins" "$work/driver" "$work/cache"
cp "$plugin" "$work/plugins/vulkan.so"
ln -s "$driver" "$work/driver/libvulkan.so.1"

# made NAME FLAGS...: a model of one layer with the shapes of large ones
made() {
    name=$1
    shift
    "$make_model" --layers 1 --vocab 2048 --quiet "$@" "$work/$name.gguf" || fail "make-model $name"
}
types='q4_0 q4_1 q5_0 q5_1 q8_0 q2_K q3_K q4_K q5_K q6_K iq4_nl iq4_xs mxfp4 tq1_0 tq2_0 f16 bf16 f32'
for type in $types; do made $type --width 512 --heads 8 --heads-kv 2 --head-dim 128 --ff 1024 --type $type; done
made experts --width 512 --heads 8 --heads-kv 2 --head-dim 64 --ff 512 --experts 8 --experts-used 2 --type q4_K
made latent --preset 0.6b-deepseek2 --layers 2 --type q4_K

export TANDEM_PLUGIN_PATH="$work/plugins:$cpu_folder" XDG_CACHE_HOME="$work/cache" COMPILE_DRIVER_LOADER="$loader" \
    NODEVICE_SELECT=1
export LD_LIBRARY_PATH="$work/driver:${LD_LIBRARY_PATH:-}"
printf '[device dots]\nplugin = vulkan\n[device plain]\nplugin = vulkan\ntest-limits = dot=no\n' >"$work/x.ini"
# Mesa's names of Intel's GPUs are in small letters (tgl), those of AMD's in capitals (NAVI21).
is_intel() { case $processor in [a-z]*) true ;; *) false ;; esac }
# run ARGUMENTS...: tandem, with the library that Intel's driver needs
run() {
    if is_intel; then LD_PRELOAD=$shim "$tandem" "$@"; else "$tandem" "$@"; fi
}
# compiled MODELS FLAGS...: adds the pipelines of a prompt and of generation to the table
compiled() {
    doing="$processor, $*" models=$1
    shift
    # shellcheck disable=SC2046 # a list of words
    run bench $(printf -- "-m $work/%s.gguf " $models) --config "$work/x.ini" -p 512 -n 2 -r 1 --no-limits \
        --no-warmup "$@" >"$work/out" 2>"$work/err" && ok || fail "$doing: $(cat "$work/err")"
}

# bad_find: lines of the table that should not be there
bad_find() {
    if ! is_intel; then
        awk -F '\t' '/refused=|\tScratch size=[1-9]|\tSpilled [SV]GPRs=[1-9]/' "$work/table"
        return
    fi
    awk -F '\t' '{
        spills = $0
        sub(/.*\tSpill Count=/, "", spills)
        most = 1000
        if ($1 ~ /^(attention_part|attention_merge|product_tile|row|rope)$/) most = 0
        if ($1 == "attention_tile" && $3 ~ /^1,1,128,128,/) most = 0
        if ($1 == "product_tile_dot") most = 16
        if ($1 ~ /^product_row/) most = 128
        if (/refused=/ || spills + 0 > most) print
    }' "$work/table"
}

for processor in ${*:-NAVI21 VEGA10 tgl dg2 skl}; do
    if is_intel && { [ ! -f "$shim" ] || [ -z "$intel_icd" ]; }; then
        echo "skipped: $processor: TANDEM_INTEL_SHIM is no file, or there is no driver of Intel's GPUs"
        continue
    fi
    if is_intel; then icd=$intel_icd; else icd=$amd_icd; fi
    export RADV_FORCE_FAMILY="$processor" INTEL_STUB_GPU_PLATFORM="$processor" VK_ICD_FILENAMES="$icd" \
        VK_DRIVER_FILES="$icd" COMPILE_DRIVER_TABLE="$work/$processor"
    # Drivers differ in the processors that they know.
    if ! run devices 2>&1 | grep -q '^vulkan0 '; then
        echo "skipped: $processor: no processor of this driver"
        continue
    fi
    compiled "$types experts latent" --device dots
    for type in q8_0 q4_0 q5_1 iq4_nl f32; do
        compiled 'q4_0 latent' --device dots -ctk $type -ctv $type
    done
    compiled q4_0 --device plain
    sort -u "$work/$processor" >"$work/table"
    for kernel in attention_part attention_tile product_row product_tile kv_write row rope; do
        grep -q "^$kernel	.*\(VGPRs\|Spill Count\)=" "$work/table" && ok || fail "$processor: no $kernel among the pipelines"
    done
    grep '^unknown' "$work/table" >"$work/bad" && fail "$processor: kernels without a name: $(cat "$work/bad")"
    bad_find >"$work/bad"
    [ ! -s "$work/bad" ] && ok || fail "$processor: $(cat "$work/bad")"
    echo "$processor: $(wc -l <"$work/table") pipelines"
    [ $# = 0 ] || cat "$work/table"
done
tally_end
