#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_models.sh: a whole model on emulated CUDA and HIP devices. Greedy texts equal the CPU's, in
# every order of threads, with waves of 32 and of 64, and in a group of both with the CPU. A failure
# of the driver ends a run with a message that names the call.
#   test_models.sh TANDEM MODEL.gguf TEXT CUDA_DRIVER HIP_DRIVER
# With TANDEM_SANITIZED=yes each token takes long. Texts are shorter, and one order of threads runs
# besides the usual one: the same code, whose results show whether it depends on the order. HIP's kernels
# are CUDA's in waves of 64: they run in the group and for the long prompt, CUDA's for short prompts. Rates
# of members are given: what measures them runs on CPUs in the test group, the kernels in simt_certify_cuda.
set -u
tandem=$1 model=$2 text=$3 cuda_driver=$(realpath "$4") hip_driver=$(realpath "$5")
. "$(dirname "$0")/../tally.sh"

n_token=8 n_behind=8 alone="c h single early all" prompted="c h"
set -- "c reverse 32" "c random 64" "h reverse 64" "h random 32"
if [ "${TANDEM_SANITIZED:-no}" = yes ]; then
    n_token=4 n_behind=2 alone="c single all" prompted=h
    set -- "h random 32"
    export TANDEM_TEST_RATES=4e10,4e11
fi

{
    printf '[device cpu]\nplugin = cpu\nthreads = 2\n'
    printf '[device reference]\nplugin = cpu\npath = reference\n'
    printf '[device c]\nplugin = cuda\ndriver = %s\n' "$cuda_driver"
    printf '[device single]\nplugin = cuda\ndriver = %s\ngraphs = no\nfusion = no\n' "$cuda_driver"
    printf '[device early]\nplugin = cuda\ndriver = %s\nlaunch-early = yes\n' "$cuda_driver"
    printf '[device h]\nplugin = hip\ndriver = %s\n' "$hip_driver"
    printf '[device c1]\nplugin = cuda\ndriver = %s\nindex = 1\n' "$cuda_driver"
    printf '[device demanded]\nplugin = cuda\ndriver = %s\nexchange = plan\n' "$cuda_driver"
    printf '[group all]\nmembers = c, h, cpu\nshare = 2, 1, 1\n'
    printf '[group pair]\nmembers = c, cpu\nshare = 1, 1\n'
    printf '[group cards]\nmembers = c, c1\nshare = 1, 1\n'
} >"$work/simt.ini"

# generate DEVICE FILE: writes a greedy text. Settings of the emulated driver are in the
# environment.
generate() {
    "$tandem" run --config "$work/simt.ini" --device "$1" -m "$model" -p "Once upon a time" -n $n_token --temp 0 \
        --quiet >"$2" 2>"$work/err"
}

generate cpu "$work/cpu" || fail "cpu: $(cat "$work/err")"
[ "$(wc -c <"$work/cpu")" -gt 20 ] && ok || fail "the CPU's text is short"
for device in $alone; do
    generate $device "$work/text" || fail "$device: $(cat "$work/err")"
    same "$work/cpu" "$work/text" "text of $device"
done
for setting in "$@"; do
    # shellcheck disable=SC2086 # three words
    set -- $setting
    TANDEM_SIMT_ORDER=$2 TANDEM_SIMT_WAVE=$3 generate $1 "$work/text" || fail "$setting: $(cat "$work/err")"
    same "$work/cpu" "$work/text" "text of $setting"
done

# `tandem devices` lists the file's sections, with the keys of each.
"$tandem" devices --config "$work/simt.ini" >"$work/out" 2>"$work/err" || fail "devices: $(cat "$work/err")"
for section in c h; do
    grep -q "^$section  .* 0  .* EMULATED" "$work/out" && ok || fail "devices without the section '$section'"
done
grep -q "^c1 .* plugin cuda has no device 1" "$work/out" && ok || fail "devices: $(cat "$work/out")"

# Kernels that exchange have no clock: their time is not listed as 0.
"$tandem" run --config "$work/simt.ini" --device pair -m "$model" -p Once -n 2 --temp 0 --profile \
    >"$work/out" 2>"$work/err" || fail "profile: $(cat "$work/err")"
grep -q "^c  .* -  .* -  .* -$" "$work/err" && grep -q "^-: the member" "$work/err" && ok ||
    fail "profile of a group: $(cat "$work/err")"

# The size of a step follows the device, unless it is set or a group computes. The plan of a group measures
# its members, which takes long on emulated ones: it has one of them.
for want in "2048 --device c" "512 --device pair" "64 --device c --ubatch-size 64"; do
    # shellcheck disable=SC2086 # words
    "$tandem" plan --config "$work/simt.ini" ${want#* } -m "$model" --ctx-size 4096 --json >"$work/plan" 2>"$work/err"
    grep -q "\"n_ubatch\": *${want%% *}[,}]*\$" "$work/plan" && ok || fail "plan of $want: $(grep n_ubatch "$work/plan") $(cat "$work/err")"
done

# A driver that ends long kernels: they do not wait for other members.
! TANDEM_SIMT_KERNEL_TIMEOUT=1 generate demanded "$work/text" &&
    grep -q 'cuda0.*exchange = plan.*ends kernels that run long.*phases' "$work/err" && ok ||
    fail "kernels wait on a driver with a timeout: $(cat "$work/err")"
TANDEM_SIMT_KERNEL_TIMEOUT=1 generate all "$work/text" || fail "phases: $(cat "$work/err")"
same "$work/cpu" "$work/text" "text of a group on drivers with a timeout"

# A prompt with whole tiles of 8-bit activations.
story="Once upon a time there was a little girl who had a red ball and a big dog. They went to the park to play. The \
sun was warm and the sky was blue. The dog ran and ran. The girl saw a boy who was sad. He had lost his toy car under \
a tree and did not know"
long_prompt() {
    "$tandem" run --config "$work/simt.ini" --device "$1" -m "$model" --temp 0 --quiet -n $n_behind \
        -p "$story" >"$2" 2>"$work/err"
}
long_prompt cpu "$work/long" || fail "cpu: $(cat "$work/err")"
for device in $prompted; do
    long_prompt $device "$work/text" || fail "$device: $(cat "$work/err")"
    same "$work/long" "$work/text" "text behind a long prompt of $device"
done

# Grids with a second axis, where the first one has its most workgroups.
TANDEM_SIMT_GRID=24 generate c "$work/text" || fail "small grids: $(cat "$work/err")"
same "$work/cpu" "$work/text" "text with small grids"

# Two devices of one driver: both use the same memory for exchanges, and the driver locks it once.
# They reach each other's memory, where the exchanges lie if that is faster.
export TANDEM_TEST_EXCHANGE=2e-5,1e-5
TANDEM_SIMT_DEVICES=2 generate cards "$work/text" || fail "cards: $(cat "$work/err")"
same "$work/cpu" "$work/text" "text of two devices of a driver"
for want in "yes exchanges.go.through.memory.of.member.'c',.the.faster" \
    "no exchanges.go.through.host.memory:.member.'c1'.does.not.reach.memory.of.'c'"; do
    TANDEM_SIMT_PEER=${want%% *} TANDEM_SIMT_DEVICES=2 "$tandem" run --config "$work/simt.ini" --device cards -m "$model" \
        -p Once -n 1 --temp 0 --verbose >"$work/out" 2>&1 || fail "cards: $(cat "$work/out")"
    ! grep 'exchanges through the host' "$work/out" && ok || fail "two devices of a driver share no memory"
    grep -q "${want#* }" "$work/out" && ok || fail "no '${want#* }' in: $(cat "$work/out")"
done
unset TANDEM_TEST_EXCHANGE

# A token in steady state is one submission of a captured graph and one wait; nothing is copied, bound, planned
# or allocated.
"$tandem" run --config "$work/simt.ini" --device c -m "$model" -p Once -n 10 --temp 0 --profile \
    >"$work/out" 2>"$work/err" || fail "profile: $(cat "$work/err")"
sed -n '/per token when steady/,$p' "$work/err" | sed 1d >"$work/counters"
steady_counters 1 1 "of an emulated device"

# Divergence from the CPU's reference path.
for device in reference c; do
    "$tandem" perplexity --config "$work/simt.ini" --device $device -m "$model" -f "$text" -c 32 --chunks 1 \
        --cache-type-k q8_0 --cache-type-v q4_0 --kl-base "$work/base" --quiet >"$work/out" 2>"$work/err" ||
        fail "$device: $(cat "$work/err")"
done
awk '/^mean KL/ { kl = $5 } END { exit !(kl ~ /^-?[0-9]/ && kl + 0 <= 1e-3) }' "$work/out" && ok ||
    fail "divergence: $(cat "$work/out")"

# The device reports its name; a missing driver is not an error.
"$tandem" run --config "$work/simt.ini" --device c -m "$model" -p Once -n 1 --temp 0 >"$work/out" 2>&1
grep -q 'EMULATED: NVIDIA.*(CUDA 12\.4)' "$work/out" && ok || fail "not labelled: $(cat "$work/out")"
"$tandem" run --config "$work/simt.ini" --device h -m "$model" -p Once -n 1 --temp 0 >"$work/out" 2>&1
grep -q 'EMULATED: AMD.*(HIP 6\.2)' "$work/out" && ok || fail "not labelled: $(cat "$work/out")"

# fails FAILURE TEXT: the run fails with that text, and does not hang or crash.
fails() {
    TANDEM_SIMT_FAIL=$1 timeout 60 "$tandem" run --config "$work/simt.ini" --device c -m "$model" -p Once -n 3 \
        --temp 0 --quiet >"$work/out" 2>"$work/err"
    status=$?
    [ $status -eq 1 ] && ok || fail "$1: exit status $status"
    grep -q "$2" "$work/err" && ok || fail "$1: no '$2' in: $(cat "$work/err")"
}
fails event_record:1:1 "tensor '.*': cuda0 .*cuEventRecord failed: SIMT_INVALID_VALUE" # while it is loaded
# The prompt is printed once it is computed, since its bar clears the line; the message begins a line.
for launch in 1 3; do
    TANDEM_SIMT_FAIL=graph_launch:$launch:719 "$tandem" run --config "$work/simt.ini" --device c -m "$model" \
        -p Once -n 5 --temp 0 >"$work/out" 2>&1 && fail "launch $launch did not fail"
    grep -q "^tandem: error: cuda0 .*cuGraphLaunch failed" "$work/out" &&
        [ "$(grep -c "^Once" "$work/out")" = $((launch / 3)) ] && ok || fail "launch $launch: $(cat "$work/out")"
done
fails module_load:3:1 'cuModuleLoadDataEx failed: SIMT_INVALID_VALUE: emulated: nothing is compiled$'
fails module_load:1:999 'cuModuleLoadDataEx failed'
fails graph_launch:2:700 'the device is lost: cuGraphLaunch failed: SIMT_ILLEGAL_ADDRESS'
fails event_query:1:719 'the device is lost'
fails event_sync:1:719 'the device is lost: cuEventSynchronize failed'

# A driver given as a flag: its devices are listed, and have names.
"$tandem" devices --driver "$cuda_driver" >"$work/out" 2>"$work/err" && grep -q "^cuda0 .*EMULATED" "$work/out" &&
    grep -q "the library is a driver of CUDA, not of HIP" "$work/out" && ok ||
    fail "devices --driver: $(cat "$work/out" "$work/err")"
"$tandem" run --device cuda0 --driver "$cuda_driver" -m "$model" -p Once -n 1 --temp 0 >"$work/out" 2>"$work/err" &&
    ok || fail "--device cuda0 --driver: $(cat "$work/err")"

# does_without FAILURE TEXT: a plan is no graph, with that text in a warning; the run succeeds.
does_without() {
    TANDEM_SIMT_FAIL=$1 timeout 60 "$tandem" run --config "$work/simt.ini" --device c -m "$model" -p Once -n 3 \
        --temp 0 >"$work/out" 2>"$work/err"
    status=$?
    [ $status -eq 0 ] && ok || fail "$1: exit status $status: $(cat "$work/err")"
    grep -q "$2" "$work/err" && ok || fail "$1: no '$2' in: $(cat "$work/err")"
}
does_without capture_end:1:900 'cuStreamEndCapture failed: error 900; graphs are not used'
does_without stream_wait:1:1 'cuStreamWaitEvent failed: SIMT_INVALID_VALUE; graphs are not used'
does_without graph_instantiate:1:2 'cuGraphInstantiateWithFlags failed: SIMT_OUT_OF_MEMORY; computations'
TANDEM_SIMT_MEMORY=3000000 generate c "$work/out" && fail "a model fits 3 MB"
grep -q 'free\|fit' "$work/err" && ok || fail "no memory: $(cat "$work/err")"
tally_end
