#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_compilers.sh: what compilers of cards make of the kernels, without such a card. Mesa's driver
# for AMD compiles for every processor; compile_driver.c replaces the rest of it. Each pipeline must
# compile, without spilled registers and without private memory, in which a driver keeps arrays that
# it cannot keep in registers. Nothing is computed here.
#   test_compilers.sh TANDEM VULKAN_PLUGIN COMPILE_DRIVER MAKE_MODEL CPU_PLUGIN [PROCESSOR...]
# With processors, as in RADV_FORCE_FAMILY, it prints a table of their pipelines. COMPILE_ICD in the
# environment is the manifest of another version of the driver: those from Mesa 24 on have matrices.
set -u
tandem=$1 plugin=$2 driver=$(realpath "$3") make_model=$4 cpu_folder=$(dirname "$(realpath "$5")")
shift 5
icd=${COMPILE_ICD:-$(find /usr/share/vulkan/icd.d /etc/vulkan/icd.d -name 'radeon_icd*.json' 2>/dev/null | head -n 1)}
if [ -z "$icd" ]; then
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
    VK_ICD_FILENAMES="$icd" VK_DRIVER_FILES="$icd" NODEVICE_SELECT=1
export LD_LIBRARY_PATH=$work/driver:${LD_LIBRARY_PATH:-}
printf '[device dots]\nplugin = vulkan\n[device plain]\nplugin = vulkan\ntest-limits = dot=no\n' >"$work/x.ini"
# compiled MODELS FLAGS...: adds the pipelines of a prompt and of generation to the table
compiled() {
    doing="$processor, $*" models=$1
    shift
    # shellcheck disable=SC2046 # a list of words
    "$tandem" bench $(printf -- "-m $work/%s.gguf " $models) --config "$work/x.ini" -p 512 -n 2 -r 1 --no-limits \
        --no-warmup "$@" >"$work/out" 2>"$work/err" && ok || fail "$doing: $(cat "$work/err")"
}

for processor in ${*:-NAVI21 VEGA10}; do
    export RADV_FORCE_FAMILY="$processor" COMPILE_DRIVER_TABLE="$work/$processor"
    # Drivers differ in the processors that they know.
    if ! "$tandem" devices 2>&1 | grep -q '^vulkan0 '; then
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
        grep -q "^$kernel	.*VGPRs=" "$work/table" && ok || fail "$processor: no $kernel among the pipelines"
    done
    grep '^unknown' "$work/table" >"$work/bad" && fail "$processor: kernels without a name: $(cat "$work/bad")"
    awk -F '\t' '/refused=|\tScratch size=[1-9]|\tSpilled [SV]GPRs=[1-9]/' "$work/table" >"$work/bad"
    [ ! -s "$work/bad" ] && ok || fail "$processor: $(cat "$work/bad")"
    echo "$processor: $(wc -l <"$work/table") pipelines"
    [ $# = 0 ] || cat "$work/table"
done
tally_end
