#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_crashes.sh: a driver whose compiler ends the process at one kernel (crash_driver.c). The first
# start ends; the second compiles by itself each kernel that was being compiled, and ends; later ones
# do without that kernel, and say so once. A process that is killed once while it compiles costs no
# kernel.
#   test_crashes.sh TANDEM MODEL.gguf CRASH_DRIVER
set -u
tandem=$1 model=$2 driver=$(realpath "$3")
. "$(dirname "$0")/../tally.sh"
. "$(dirname "$0")/driver.sh"
driver_need
loader=$(ldconfig -p 2>/dev/null | sed -n 's/^.*libvulkan\.so\.1 .*x86-64.*=> //p' | head -n 1)
MESA_SHADER_CACHE_DIR=${MESA_SHADER_CACHE_DIR:-${XDG_CACHE_HOME:-$HOME/.cache}}
XDG_CACHE_HOME=$work/cache
mkdir "$work/driver"
ln -s "$driver" "$work/driver/libvulkan.so.1"
LD_LIBRARY_PATH=$work/driver:${LD_LIBRARY_PATH:-}
export MESA_SHADER_CACHE_DIR XDG_CACHE_HOME LD_LIBRARY_PATH CRASH_DRIVER_LOADER="$loader"
ulimit -c 0
config plain

# start OUT: writes a greedy text of device v; messages are in $work/err, pipelines in $work/log.
start() {
    : >"$work/log"
    CRASH_DRIVER_LOG=$work/log "$tandem" run --config "$work/plain.ini" --device v -m "$model" \
        -p "Once upon a time" -n 16 --temp 0 --verbose >"$work/$1" 2>"$work/err"
}
says() { # WHAT PATTERN
    grep -q "$2" "$work/err" && ok || fail "$1: no '$2' in: $(grep -v 'plan of' "$work/err")"
}
silent() { # WHAT PATTERN
    ! grep -q "$2" "$work/err" && ok || fail "$1: $(grep "$2" "$work/err")"
}
ends() { # WHAT SIGNAL: the start is ended by that signal
    start text.none
    code=$?
    [ $code = $((128 + $2)) ] && ok || fail "$1: exit code $code: $(tail -n 3 "$work/err")"
}
# The pipelines whose compilation did not end.
unfinished() { awk '$1 == "begin" { n[$2]++ } $1 == "end" { n[$2]-- } END { for (k in n) if (n[k] > 0) print k }' "$work/log"; }
# Each pipeline was compiled while no other was.
by_itself() { # WHAT PIPELINE...
    what=$1
    shift
    for pipeline in "$@"; do
        awk -v pipeline="$pipeline" '
            $1 == "begin" { if (open > 0 && (is_alone || $2 == pipeline)) exit 1; open++; is_alone = $2 == pipeline; n += is_alone }
            $1 == "end" { open--; is_alone = 0 }
            END { exit n == 0 }' "$work/log" && ok || fail "$what: $pipeline was compiled beside others, or not"
    done
}

"$tandem" run --config "$work/plain.ini" --device cpu -m "$model" -p "Once upon a time" -n 16 --temp 0 \
    >"$work/text.cpu" 2>"$work/err" || fail "cpu: $(cat "$work/err")"

# The kernel of the test.
start text.right || fail "without a crash: $(tail -n 3 "$work/err")"
if ! grep -q '^end product_lane/' "$work/log"; then
    echo "skipped: this device has large subgroups, and does not use the kernel product_lane"
    exit 77
fi
same "$work/text.cpu" "$work/text.right" "text without a crash"
rm -r "$XDG_CACHE_HOME"

# A compiler that crashes.
export CRASH_DRIVER_KERNEL=product_lane
ends "first start" 6
silent "first start" 'by itself\|so it is not used'
ends "second start" 6
says "second start" 'an earlier process ended while this driver compiled kernel [a-z_]* or others: each is now'
silent "second start" 'so it is not used'
[ "$(unfinished | sed 's,/.*,,')" = product_lane ] && ok || fail "second start: compiled at the end: $(unfinished)"
"$tandem" devices --config "$work/plain.ini" >"$work/err" 2>&1
says "devices before the third start" 'wrong: product_lane'
start text.third || fail "third start: $(tail -n 3 "$work/err")"
says "third start" "kernel product_lane: this driver ended the last two processes that compiled it or ran it first, so it is not used. To try it again, delete $XDG_CACHE_HOME/.*\.checked$"
[ "$(grep -c 'so it is not used' "$work/err")" = 1 ] && ok || fail "third start: $(grep 'so it' "$work/err")"
silent "third start" ' [1-9][0-9]* wrong'
same "$work/text.cpu" "$work/text.third" "text with a plainer kernel"
verdicts=$(grep -o "$XDG_CACHE_HOME/.*\.checked$" "$work/err")
start text.fourth || fail "fourth start: $(tail -n 3 "$work/err")"
silent "fourth start" 'by itself\|so it is not used\|pipelines checked'
says "fourth start, in the device's description" '^model .*, wrong: product_lane,'
same "$work/text.cpu" "$work/text.fourth" "text of the fourth start"

# With a compiler that works, it is tried again where the file is deleted, as the message says.
rm "$verdicts"
unset CRASH_DRIVER_KERNEL
start text.again || fail "without verdicts: $(tail -n 3 "$work/err")"
grep -q 'end product_lane/' "$work/log" && ok || fail "the kernel was not tried again"
silent "without verdicts" 'wrong: \|so it is not used'
same "$work/text.cpu" "$work/text.again" "text with the kernel again"

# A driver that crashes when it first runs a kernel, which may be when it compiles it.
rm -r "$work/cache"
export CRASH_DRIVER_RUN=product_lane
ends "first start of a run" 6
silent "first start of a run" 'by themselves\|so it is not used'
[ -z "$(unfinished)" ] && ok || fail "first start of a run: not compiled: $(unfinished)"
ends "second start of a run" 6
says "second start of a run" 'an earlier process ended while this driver first ran kernel product_lane or others'
silent "second start of a run" 'so it is not used\|by itself'
start text.run || fail "third start of a run: $(tail -n 3 "$work/err")"
says "third start of a run" "kernel product_lane: this driver ended the last two processes"
[ "$(grep -c 'so it is not used' "$work/err")" = 1 ] && ok ||
    fail "third start of a run: $(grep 'so it is' "$work/err")"
same "$work/text.cpu" "$work/text.run" "text without the kernel that cannot run"
unset CRASH_DRIVER_RUN

# A process that is killed: the kernels are compiled one by one, and all are used.
rm -r "$work/cache"
export CRASH_DRIVER_KERNEL=product_lane CRASH_DRIVER_SIGNAL=9
ends "killed" 9
suspects=$(unfinished)
unset CRASH_DRIVER_KERNEL
start text.killed || fail "after a kill: $(tail -n 3 "$work/err")"
says "after a kill" 'an earlier process ended while this driver compiled kernel'
# shellcheck disable=SC2086 # a list of words
by_itself "after a kill" $suspects
silent "after a kill" 'so it is not used\| [1-9][0-9]* wrong'
same "$work/text.cpu" "$work/text.killed" "text after a kill"

# A process that is killed while it compiles kernels that are known to be right.
export CRASH_DRIVER_KERNEL=product_lane
ends "killed again" 9
unset CRASH_DRIVER_KERNEL
start text.known || fail "after another kill: $(tail -n 3 "$work/err")"
silent "after another kill" 'by itself\|so it is not used\|pipelines checked'
same "$work/text.cpu" "$work/text.known" "text after another kill"
tally_end
