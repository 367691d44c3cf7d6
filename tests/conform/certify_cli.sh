#!/bin/sh
# SPDX-License-Identifier: MIT
#
# certify_cli.sh: the command `tandem certify`: exit codes, and what is on which stream.
#
#   certify_cli.sh TANDEM NULL_PLUGIN CPU_PLUGIN
set -eu
tandem=$(readlink -f "$1") good=$(readlink -f "$2") cpu=$(readlink -f "$3")
. "$(dirname "$0")/../tally.sh"

# expect CODE ARGUMENTS…: the exit code of `tandem certify ARGUMENTS`
expect() {
    want=$1
    shift
    code=0
    "$tandem" certify "$@" >"$work/out" 2>"$work/err" || code=$?
    [ "$code" = "$want" ] && ok ||
        fail "certify $*: exit code $code, not $want: $(cat "$work/out" "$work/err")"
}
# contains STREAM PATTERN: a line of out or err matches
contains() {
    grep -qE -- "$2" "$work/$1" && ok || fail "no /$2/ in $1: $(cat "$work/$1")"
}

expect 0 "$good" --level 0 --seed 7
contains out '\(seed 7\)$'
contains out '^ok    plugin.load$'
contains out '^skip  device.info: no slot get_info$'
contains out '^levels claimed: 0; reaches level 0$'
contains out '^[0-9]+ passed, 0 failed, [0-9]+ skipped$'
[ ! -s "$work/err" ] && ok || fail "errors printed on success: $(cat "$work/err")"

export TANDEM_TEST_FAULT=upload-range
expect 1 "$good" --only buffer.
unset TANDEM_TEST_FAULT
contains out '^FAIL  buffer.upload-range: '
contains out '^      buffer.h: upload: "A range that is not inside the buffer'
contains out '1 failed'
contains err 'error: .*1 of [0-9]+ checks failed$'

# says STREAM LINES: the stream has that many lines, the other stream none
says() {
    other=out
    [ "$1" = err ] || other=err
    [ "$(wc -l <"$work/$1")" = "$2" ] && [ ! -s "$work/$other" ] && ok ||
        fail "not $2 lines in $1 alone: $(cat "$work/out" "$work/err")"
}
# A missing file gives one line, and no failed checks.
expect 1 "$work/absent.so"
contains err 'error: .*absent.so: cannot be read: No such file'
says err 1
expect 1 "$work"
contains err 'is not a file; a plugin is a NAME.so$'
says err 1
expect 1 /dev/null
says err 1
mkfifo "$work/pipe.so"
expect 1 "$work/pipe.so"
says err 1
: >"$work/empty.so"
expect 1 "$work/empty.so"
contains out '^FAIL  plugin.load: '
contains out 'reaches no level$'
contains out '^skip  [1-9][0-9]+ more checks: the plugin cannot be loaded$'
contains out '^[0-9]+ passed, [0-9]+ failed, [1-9][0-9]{2} skipped$'
[ "$(wc -l <"$work/out")" -lt 40 ] && ok || fail "a plugin that cannot be loaded: $(cat "$work/out")"
cp "$good" "$work/here.so" # a name without a folder is of the current one
(cd "$work" && "$tandem" certify here.so --only plugin.) >/dev/null && ok ||
    fail "a plugin in the current folder"

expect 2
contains err 'needs PLUGIN.so$'
says err 1
expect 2 "$good" "$good"
expect 2 "$good" --level 9
expect 2 "$good" --option threads
expect 1 "$good" --option threads=2 --only device. # refused by the device, by name
contains out '^FAIL  device.open: threads: '
expect 1 "$good" --device-index 3 --only device.
contains out 'FAIL  device.open: there is no device 3'
expect 0 "$cpu" --option threads=1,cores=0 --only plugin.
# Checks that need a device are skipped where it is not there.
for family in kv. recurrent. op.add option.default; do
    expect 1 "$cpu" --device-index 3 --only "$family"
    contains out '^skip  .*: it has 1 devices, none of number 3$'
    contains out '^0 passed, 0 failed, [1-9][0-9]* skipped$'
    contains err 'every check was skipped'
done

expect 0 --list
contains out '^0  plugin.exports$'
[ ! -s "$work/err" ] && ok || fail "errors printed by --list: $(cat "$work/err")"
expect 0 --list "$good"
contains out '^0  plugin.exports$'
contains out '^5  split.unit$'
expect 1 "$good" --only no-such-check
contains err 'no check'

tally_end
