#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_limits.sh: a device with lower limits than the driver of this machine. Each op that it
# accepts is right, and each other op is refused with a reason. At the lowest limits that Vulkan
# allows, no op is refused.
#   test_limits.sh TANDEM VULKAN.so MODEL.gguf
set -u
tandem=$1 plugin=$2 model=$3
. "$(dirname "$0")/../tally.sh"
. "$(dirname "$0")/driver.sh"
driver_need

# certified NAME LIMITS ONLY: the lines of the checks that ran, in $work/NAME. None fails, and each
# refusal has a reason.
certified() {
    "$tandem" certify "$plugin" --option allow-cpu=yes --check-timeout 900 --option "test-limits=$2" --only "$3" >"$work/$1" 2>&1
    if ! grep -q '^[0-9]* passed, 0 failed' "$work/$1"; then
        fail "$2, $3: $(grep -A 1 '^FAIL' "$work/$1"; tail -n 1 "$work/$1")"
    elif grep -q -e '^ok' -e '^skip.*supports_op takes none of [0-9]* graphs: vulkan0: .*: ..*' "$work/$1"; then
        ok
    else
        fail "$2, $3: neither passed nor refused: $(tail -n 2 "$work/$1")"
    fi
}
least='shared=16384 group=128 f16=no dot=no import=no map=no'
for op in op.add op.copy op.get-rows op.layer-norm op.moe-route op.rms-norm op.rope op.softmax op.top-k; do
    certified least "$least" $op
    ! grep -q '^skip.*supports_op takes none' "$work/least" && ok ||
        fail "refused at the least limits: $(grep '^skip' "$work/least")"
done
# Below that, ops may be refused with a reason, and the others are right. Each run compiles its
# kernels anew, so these are a few ops; vulkan_products tests products at low limits.
for limits in 'group=32' 'shared=1024' 'grid=16'; do
    for op in op.rms-norm op.top-k op.copy; do
        certified low "$limits" $op
    done
done
certified small alloc=1048576 buffer.
certified small alloc=1048576 memory.
certified staged map=no tensor.

# A word that is no limit, and a limit above the driver's.
for limits in 'speed=3' 'group=0' 'f16=yes' 'group=x'; do
    "$tandem" certify "$plugin" --option allow-cpu=yes --option "test-limits=$limits" --only op.add >"$work/out" 2>&1 &&
        fail "$limits was accepted"
    grep -q "is not a limit; there are shared=N" "$work/out" && ok || fail "$limits: $(cat "$work/out")"
done

# A device that takes denormal f16 numbers for 0 would lose the scales of weights: it is refused.
"$tandem" certify "$plugin" --option allow-cpu=yes --option test-limits=denormals=no --only op.add >"$work/out" 2>&1 &&
    fail "a device without denormal numbers was accepted"
grep -q 'takes denormal f16 numbers for 0' "$work/out" && ok || fail "denormal numbers: $(cat "$work/out")"

# A model at the lowest limits gives the same text.
config plain
config least "test-limits = $least"
for name in plain least; do
    "$tandem" run --config "$work/$name.ini" --device v -m "$model" -p "Once upon a time" -n 16 --temp 0 --quiet \
        >"$work/text.$name" 2>"$work/err" || fail "$name: $(cat "$work/err")"
done
same "$work/text.plain" "$work/text.least" "text at the least limits"

# More memory than there is: a status that names the device and the sizes, and no crash.
config small 'test-limits = alloc=65536'
"$tandem" run --config "$work/small.ini" --device v -m "$model" -p "Once" -n 2 --temp 0 --quiet >"$work/out" 2>&1 &&
    fail "a model in buffers of 64 KiB"
grep -q "device 'v' has buffers of at most 65536" "$work/out" && ok || fail "too little memory: $(cat "$work/out")"
tally_end
