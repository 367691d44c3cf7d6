# SPDX-License-Identifier: MIT
#
# tally.sh: the beginning of shell tests: a temporary folder, $work, and the count of checks. A test
# sources it after the check whether it is skipped:
#   . "$(dirname "$0")/../tally.sh"
# A failure counts in a subshell or a pipe too. A test ends with tally_end.
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
passed=0 doing=
# Meson ends a test that takes too long. Then this says where it was.
trap 'echo "FAILED: ended after $passed passed checks, behind: $doing" >&2; exit 1' TERM

ok() { passed=$((passed + 1)); }
fail() {
    echo "FAILED: $*" >&2
    echo >>"$work/.failed"
}
# same A B WHAT: the two files are equal
same() { if cmp -s "$1" "$2"; then ok; else fail "$3: $1 and $2 differ"; fi; }

# without_progress FILE: takes lines of progress out of a file. They are printed by work of more than a
# fifth of a second, which any work is on a busy machine.
without_progress() { sed -i -E '/^[a-z]+: ([0-9]+ % \(.*|[0-9.]+ (B|[KMGT]iB|tokens)( in [0-9.]+ s)?)$/d' "$1"; }

# Prints the counts. False where a check failed or none was made.
tally_end() {
    failed=0
    [ ! -e "$work/.failed" ] || failed=$(($(wc -l <"$work/.failed")))
    echo "$passed checks passed, $failed failed"
    [ $failed = 0 ] && [ $passed -gt 0 ]
}

# await_handler PID: waits until that process catches Ctrl-C, a minute at most. An earlier signal would
# be lost: a shell lets commands in the background ignore it.
await_handler() {
    i=0
    while [ $i -lt 600 ] && ! grep -q '^SigCgt:.*[2367abef]$' "/proc/$1/status" 2>/dev/null; do
        sleep 0.1
        i=$((i + 1))
    done
}

# await_work PID: waits until that process has used a second of CPU time, five minutes at most. A
# fixed sleep would be too short on a busy machine.
await_work() {
    i=0 ticks=$(getconf CLK_TCK)
    while [ $i -lt 3000 ] && used=$(sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 12,13) &&
        [ -n "$used" ] && [ $((${used% *} + ${used#* })) -lt "$ticks" ]; do
        sleep 0.1
        i=$((i + 1))
    done
}

# await_end PID: the exit code of a process of this shell that was told to end, in $code. One that
# goes on for a minute is killed, and what its threads wait for is printed.
await_end() {
    i=0
    while [ $i -lt 600 ] && grep -q '^State:.[^Z]' "/proc/$1/status" 2>/dev/null; do
        sleep 0.1
        i=$((i + 1))
    done
    if [ $i = 600 ]; then
        fail "process $1 does not end"
        for task in "/proc/$1/task"/*; do
            echo "$(cut -d ' ' -f 2,3 "$task/stat"), waits in $(cat "$task/wchan")" >&2
        done
        kill -KILL "$1"
    fi
    wait "$1"
    code=$?
}

# expect CODE TEXT ARGUMENTS...: the exit code of $tandem, and TEXT in its output. A failure is one
# line on standard error, with nothing on standard output.
expect() {
    code=$1 text=$2
    shift 2
    doing=$*
    "$tandem" "$@" >"$work/out" 2>"$work/err" </dev/null
    found=$?
    without_progress "$work/err"
    [ "$found" = "$code" ] || { fail "$*: exit code $found, not $code: $(cat "$work/err")"; return; }
    grep -qF -e "$text" "$work/out" "$work/err" ||
        { fail "$*: no '$text' in: $(cat "$work/out" "$work/err")"; return; }
    if [ "$code" != 0 ]; then
        [ "$(wc -l <"$work/err")" = 1 ] || { fail "$*: not one line: $(cat "$work/err")"; return; }
        [ ! -s "$work/out" ] || { fail "$*: output besides the error: $(cat "$work/out")"; return; }
    fi
    ok
}

# steady_counters LEAST MOST WHAT: checks the counters in $work/counters, which `tandem run
# --profile` printed for devices whose memory is the host's. In steady decoding nothing is built,
# planned, allocated, bound or copied. A token takes LEAST to MOST submissions, and the host waits
# as often.
steady_counters() {
    if awk -v least="$1" -v most="$2" '
        { name = $1; for (i = 2; i < NF - 1; i++) name = name " " $i; value[name] = $NF }
        END {
            n = split("graphs built,graphs hashed,graphs planned,allocations,bytes allocated,binds," \
                      "uploads,downloads", zeros, ",")
            for (i = 1; i <= n; i++) if (value[zeros[i]] != "0") exit 1
            exit !(NR == n + 4 && value["input bytes"] > 0 && value["output bytes"] > 0 &&
                   value["submissions"] == value["host waits"] &&
                   value["submissions"] >= least && value["submissions"] <= most)
        }' "$work/counters"; then ok; else fail "counters $3: $(cat "$work/err")"; fi
}
