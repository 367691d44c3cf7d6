#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_layers.sh: the validation layer, with synchronisation validation, reports nothing while the
# conformance suite and a model run on a Vulkan device. First the test makes a call that is known to
# be wrong: where the layer does not report it, the test cannot show anything.
#   test_layers.sh TANDEM VULKAN.so MODEL.gguf BAD_CALL
set -u
tandem=$1 plugin=$2 model=$3 bad_call=$4
. "$(dirname "$0")/../tally.sh"
. "$(dirname "$0")/driver.sh"
driver_need
config plain
config dots 'test-limits = dot=any map=no'

# Each process opens the file of messages anew, which would empty a plain file. So it is opened for
# appending: see messages.
mkfifo "$work/pipe"
exec 3<>"$work/pipe"
cat <&3 >>"$work/messages" &
reader=$!
trap 'kill $reader; rm -rf "$work"' EXIT
cat >"$work/vk_layer_settings.txt" <<END
khronos_validation.report_flags = error,warn
khronos_validation.debug_action = VK_DBG_LAYER_ACTION_LOG_MSG
khronos_validation.enables = VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT
khronos_validation.log_filename = $work/pipe
END
export VK_LAYER_SETTINGS_PATH="$work/vk_layer_settings.txt" VK_INSTANCE_LAYERS=VK_LAYER_KHRONOS_validation

# Messages of the layer since the last call. A marker line ends them.
messages() {
    echo end-of-messages >&3
    while ! grep -q end-of-messages "$work/messages"; do sleep 0.05; done
    grep -v end-of-messages "$work/messages"
    : >"$work/messages"
}

"$bad_call" >"$work/out" 2>&1
case "$(messages)" in
*VUID-VkBufferCreateInfo-size*) ok ;;
*) echo "skipped: no validation layer (Debian: vulkan-validationlayers)"; exit 77 ;;
esac

quiet() { # WHAT
    messages >"$work/said"
    [ ! -s "$work/said" ] && ok || fail "$1: $(head -n 5 "$work/said" | cut -c 1-600)"
}
for part in buffer. memory. tensor. queue.run order.across kv.write op.add op.softmax op.top-k; do
    "$tandem" certify "$plugin" --option allow-cpu=yes --only $part >"$work/out" 2>&1 ||
        fail "certify $part: $(grep -A 1 '^FAIL' "$work/out")"
    quiet "certify $part"
done
# Copies that go through staging memory, and those from page-locked memory.
for part in memory. tensor.; do
    "$tandem" certify "$plugin" --option allow-cpu=yes --option test-limits=map=no --only $part >"$work/out" 2>&1 ||
        fail "certify $part, staged: $(grep -A 1 '^FAIL' "$work/out")"
    quiet "certify $part, staged"
done
"$tandem" run --config "$work/plain.ini" --device vc -m "$model" -p "Once upon a time" -n 8 --temp 0 --quiet \
    >"$work/out" 2>"$work/err" || fail "run: $(cat "$work/err")"
quiet "a model in a group"
# Integer dot products need a feature of the device and a capability of each shader. The weights of
# this model come by copies.
"$tandem" run --config "$work/dots.ini" --device v -m "$model" -p "Once upon a time" -n 2 --temp 0 --quiet \
    >"$work/out" 2>"$work/err" || fail "run with integer dot products: $(cat "$work/err")"
quiet "a model with integer dot products"
tally_end
