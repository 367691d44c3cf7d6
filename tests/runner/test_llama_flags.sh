#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_llama_flags.sh: flags of llama.cpp. Those that Tandem implements have an effect. The others
# change nothing and give one line that says so.
#   test_llama_flags.sh TANDEM MODEL [MAKE_MODEL]
# The plugin `example` (examples/backend) is among the plugins: a device that is not a CPU.
set -u
tandem=$1 model=$2 make_model=${3:-}
. "$(dirname "$0")/../tally.sh"

# run FLAGS...: a short greedy text, and its messages without those about the model and timings
run() {
    "$tandem" run -m "$model" --device cpu0 -p Once -n 6 --temp 0 -s 1 "$@" >"$work/text" 2>"$work/err"
    code=$?
    without_progress "$work/err"
    grep -v '^model \|^loading \|^prompt \|^generation \|^draft ' "$work/err" >"$work/notes"
    return $code
}
run && cp "$work/text" "$work/plain" || fail "$(cat "$work/err")"
[ ! -s "$work/notes" ] && ok || fail "notes without a reason: $(cat "$work/notes")"

# --- Without effect: one line, and the same text
for flag in -fa '-fa on' '-fa off' '--flash-attn auto' --no-mmap '-mg 0' '--main-gpu 1' --jinja -no-cnv --prompt-cache-all \
    --no-conversation -cnv --no-warmup '-ngl 99' '--gpu-layers all' '--n-gpu-layers -1' '-ts 1,2' '--tensor-split 1' '-sm layer'; do
    # shellcheck disable=SC2086 # a flag and its value
    run $flag || fail "$flag: $(cat "$work/err")"
    same "$work/text" "$work/plain" "$flag"
    [ "$(wc -l <"$work/notes")" = 1 ] && grep -q -e "^${flag%% *} has no effect: " "$work/notes" && ok ||
        fail "$flag: $(cat "$work/notes")"
done
# Keys of drafts that the chosen way of drafting does not read, or without drafts
for flag in '--draft-ngram 4' '--draft-max 4' '--draft-min 1' '--draft-p-min 0.5' '-ctkd f32' '-ctvd f32' '--draft 4' \
    '--draft-p-min 0.5 --draft ngram' '-ctkd f32 --draft ngram' "--draft-ngram 4 -md $model"; do
    # shellcheck disable=SC2086
    run $flag || fail "$flag: $(cat "$work/err")"
    [ "$(grep -c 'no effect' "$work/err")" = 1 ] && grep -q -e "^${flag%% *} has no effect: " "$work/err" && ok ||
        fail "$flag: $(cat "$work/err")"
done
for flag in '--draft-ngram 4 --draft-max 4 --draft-min 1 --draft ngram' "--draft-p-min 0.1 -ctkd f32 --draft 4 -md $model"; do
    # shellcheck disable=SC2086
    run $flag && ! grep -q 'no effect' "$work/err" && ok || fail "$flag: $(cat "$work/err")"
done
run -fa -mg 1 --quiet && [ ! -s "$work/err" ] && ok || fail "--quiet: $(cat "$work/err")"
printf 'flash-attn = on\nwarmup = no\n' >"$work/x.ini"
run --config "$work/x.ini" && [ "$(wc -l <"$work/notes")" = 2 ] &&
    grep -q "^$work/x.ini:1: 'flash-attn' has no effect: " "$work/notes" && ok || fail "$(cat "$work/notes")"
"$tandem" bench -m "$model" --device cpu0 -p 8 -n 0 -r 1 --no-limits --no-warmup >"$work/text" 2>"$work/err"
grep -q "no effect" "$work/err" && fail "bench --no-warmup: $(cat "$work/err")" || ok

# --- Verbosity: as --quiet and --verbose
run -lv 1 && [ ! -s "$work/err" ] && ok || fail "-lv 1: $(cat "$work/err")"
run -lv 3 && [ -s "$work/err" ] && [ ! -s "$work/notes" ] && ok || fail "-lv 3: $(cat "$work/err")"
"$tandem" run -m "$model" -p Once -n 1 --log-verbosity 4 >"$work/out" 2>"$work/err"
grep -q "^device " "$work/err" && ok || fail "--log-verbosity 4: $(cat "$work/err")"
expect 2 "a whole number from 0 to 9" run -m "$model" -p x --verbosity 10

# --- -ngl 0: the CPU, whatever the configuration says
printf 'model = %s\ndevice = mine\n[device mine]\nplugin = example\nmemory = 1K\n[device a]\nplugin = cpu\n' \
    "$model" >"$work/mine.ini"
printf '[group both]\nmembers = mine, a\n[group cpus]\nmembers = a\n' >>"$work/mine.ini"
expect 1 "memory = 1024" run --config "$work/mine.ini" -p Once -n 6 --temp 0 --quiet
for device in mine both a cpus auto; do
    "$tandem" run --config "$work/mine.ini" --device $device -p Once -n 6 --temp 0 -ngl 0 >"$work/text" 2>"$work/err" ||
        fail "--device $device -ngl 0: $(cat "$work/err")"
    same "$work/text" "$work/plain" "--device $device -ngl 0"
done
"$tandem" plan --config "$work/mine.ini" --device cpus -ngl 0 >"$work/out" 2>&1
grep -q "^group  *cpus" "$work/out" && ok || fail "a group of CPUs: $(head -3 "$work/out")"
"$tandem" plan --config "$work/mine.ini" --gpu-layers 0 >"$work/out" 2>&1
grep -q "^device  *cpu (-ngl 0)" "$work/out" && ok || fail "-ngl 0: $(head -3 "$work/out")"

# --- Experts on the CPU: as with -ot, for all layers or the first ones
run --cpu-moe || fail "--cpu-moe: $(cat "$work/err")"
same "$work/text" "$work/plain" "--cpu-moe without experts"
grep -q "cpu-moe: .* applies to no tensor" "$work/notes" && ok || fail "$(cat "$work/notes")"
if [ -n "$make_model" ]; then
    "$make_model" --preset tiny-llama --type q8_0 --layers 12 --experts 4 --experts-used 2 "$work/moe.gguf" \
        >"$work/out" 2>&1 || fail "$(cat "$work/out")"
    # moved N FLAGS...: the plan has that many tensors on the CPU
    moved() {
        count=$1
        shift
        "$tandem" plan -m "$work/moe.gguf" --config "$work/mine.ini" --memory 0 "$@" >"$work/out" 2>"$work/err"
        grep -q ": $count tensors on 'cpu (host)'" "$work/out" && ok || fail "$*: $(grep tensors "$work/out"; cat "$work/err")"
    }
    moved 36 --cpu-moe
    moved 36 -cmoe
    moved 3 -ncmoe 1
    moved 6 --n-cpu-moe 2  # of 12 layers: not the layers 10 and 11
    moved 36 -ncmoe 99
    moved 36 --cpu-moe -ncmoe 1
    "$tandem" run -m "$work/moe.gguf" --device cpu0 -p a -n 6 --temp 0 >"$work/a" 2>"$work/err"
    "$tandem" run -m "$work/moe.gguf" --config "$work/mine.ini" --memory 0 -p a -n 6 --temp 0 -ncmoe 7 \
        >"$work/b" 2>"$work/err" || fail "-ncmoe 7: $(cat "$work/err")"
    same "$work/a" "$work/b" "-ncmoe 7"
fi

# --- The draft model's cache has types of its own
run -md "$model" -ctkd q8_0 -ctvd q4_0 --draft-max 3 || fail "-ctkd: $(cat "$work/err")"
same "$work/text" "$work/plain" "-ctkd, -ctvd"
expect 2 "one of f32" run -m "$model" -p x -ctkd q7

# --- Threads: more than four times as many as processors, 1024 at most
n=$(nproc)
many=$((n < 128 ? 8 * n : 1024))
if [ $many -gt $((4 * n)) ]; then
    run -t $many && grep -q "threads = $many: only $n processors are available" "$work/notes" && ok ||
        fail "-t $many: $(cat "$work/err")"
else
    echo "skipped: -t 1024 is not far more than $n processors"
fi
run -t "$n" && [ ! -s "$work/notes" ] && ok || fail "-t $n: $(cat "$work/notes")"

# --- mlock: locked, or an error that names the limit (a privileged process has none)
locked() { sed -n 's/^VmLck:[^0-9]*\([0-9]*\) kB/\1/p' "/proc/$1/status"; }
can_lock=$((0x$(sed -n 's/^CapEff:[^0-9a-f]*//p' /proc/self/status) >> 14 & 1))
(
    ulimit -l 64
    run --mlock
    code=$?
    if [ $can_lock = 1 ]; then
        [ $code = 0 ] || fail "--mlock: $(cat "$work/err")"
        same "$work/text" "$work/plain" "--mlock"
    else
        [ $code = 1 ] && grep -q "RLIMIT_MEMLOCK is 64.0 KiB" "$work/err" || fail "--mlock: $(cat "$work/err")"
    fi
)
# The address sanitizer replaces mlock by a function that does nothing.
if [ $can_lock = 1 ] && [ "${TANDEM_SANITIZED:-no}" = no ]; then
    mkfifo "$work/typed"
    "$tandem" chat -m "$model" --template "$(dirname "$0")/chat.jinja" --device cpu0 --mlock \
        <"$work/typed" >"$work/out" 2>"$work/err" &
    pid=$! i=0
    exec 3>"$work/typed" # the chat goes on until this is closed
    while [ $i -lt 300 ]; do
        size=$(locked $pid)
        i=$((i + 1))
        [ "${size:-0}" -ge 3000 ] && break
        sleep 0.2
    done
    [ "${size:-0}" -ge 3000 ] && ok || fail "--mlock locks ${size:-nothing} kB: $(cat "$work/err")"
    exec 3>&-
    wait
fi

tally_end
