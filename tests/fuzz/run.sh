#!/bin/sh
# SPDX-License-Identifier: MIT
# Fuzzes each target for the given time, two at a time.
#   tests/fuzz/run.sh [-seed=N] BUILD_FOLDER SECONDS [TARGET...]    targets: config gguf ...; none = all
# The build folder is configured with -Dfuzz=true (README.md).
#
# Without -seed it searches: it begins with the inputs that earlier runs found to reach new code,
# keeps its own in BUILD_FOLDER/fuzz/TARGET, and tries other inputs in every run. With -seed it is a
# test: it begins with the corpus alone and tries the same inputs in the same order each time, as
# many as a small machine tries in SECONDS, however long that takes. Its result depends on the tree
# only.
#
# Fails where an input breaks a rule. That input is kept in BUILD_FOLDER/fuzz/find-TARGET-*, beside
# the log. The broken rule and the input (gzip, base64) are also printed, in lines that begin with
# "fuzz TARGET:": at once and again at the end, so that a log that is cut at either end has both.
set -eu
seed=''
case "${1-}" in
-seed=*[!0-9]* | -seed= | -seed=0)
    echo "$1: expected a number above 0" >&2
    exit 2
    ;;
-seed=*)
    seed=${1#-seed=}
    shift
    ;;
esac
build=$(cd "$1" && pwd) seconds="$2"
shift 2
here=$(cd "$(dirname "$0")" && pwd)
if [ $# -eq 0 ]; then
    for program in "$build"/tests/fuzz/fuzz_*; do
        [ -d "$program" ] || set -- "$@" "${program##*/fuzz_}"
    done
fi
export TANDEM_PLUGIN_PATH="$build/plugins/cpu:$build/plugins/meta" TANDEM_SOURCE_ROOT="$here/../.."
# Threads of the CPU plugin may outlive the last input.
export ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=32"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"

# Largest input in bytes: enough to reach all code, and no more.
limit() {
    case "$1" in
    gguf | model) echo 12288 ;;
    http) echo 4096 ;;
    *) echo 2048 ;;
    esac
}

# Seconds that one input may take on a busy machine. Templates may loop until they have used their
# steps, which takes long with sanitizers.
time_limit() {
    case "$1" in
    template) echo 120 ;;
    *) echo 20 ;;
    esac
}

# Inputs that a small machine (two cores, one for each of two targets) tries in a second.
pace() {
    case "$1" in
    config | schema) echo 1000 ;;
    gbnf) echo 200 ;;
    http) echo 1000 ;;
    gguf) echo 3000 ;;
    kl_file) echo 4000 ;;
    model | state) echo 400 ;;
    template) echo 2000 ;;
    tokenizer) echo 1500 ;;
    server) echo 2500 ;;
    *) echo 100 ;;
    esac
}

# finding TARGET: what the log reports, and the input.
finding() {
    log="$build/fuzz/$1.log"
    echo "fuzz $1: FOUND"
    # the broken rule and what follows it, or the first words of a sanitizer
    awk -v prefix="fuzz $1: " '
        /: demanded: / { n = 4 }
        /ERROR: |runtime error: |^SUMMARY: / && n < 1 { n = 1 }
        n > 0 && shown < 12 { print prefix substr($0, 1, 400); n--; shown++ }
    ' "$log"
    input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
    if [ ! -f "$input" ]; then
        echo "fuzz $1: no input was left, see $log"
        return
    fi
    echo "fuzz $1: replay: $build/tests/fuzz/fuzz_$1 $input"
    echo "fuzz $1: the input: what follows '=' below, through base64 -d | gunzip"
    gzip -9n <"$input" | base64 -w 120 | head -n 400 | sed "s/^/fuzz $1: = /"
}

fuzz() {
    name="$1" folder="$build/fuzz/$1" dictionary="$here/$1.dict" seeds="$here/corpus/$1"
    rm -f "$build/fuzz/$name.found"
    set -- "$seeds"
    [ "$name" = config ] && set -- "$@" "$here/../../conf"
    [ "$name" = model ] && set -- "$@" "$here/corpus/gguf" && dictionary="$here/gguf.dict"
    if [ -n "$seed" ]; then
        # in the order of their names; new ones are not kept
        inputs=$(find "$@" -type f | LC_ALL=C sort | tr '\n' ',')
        set -- "-seed=$seed" "-runs=$((seconds * $(pace "$name")))" "-seed_inputs=${inputs%,}"
    else
        mkdir -p "$folder"
        set -- "-max_total_time=$seconds" "$folder" "$@"
    fi
    [ -f "$dictionary" ] && set -- "$@" "-dict=$dictionary"
    status=0
    $fixed "$build/tests/fuzz/fuzz_$name" "$@" -max_len="$(limit "$name")" \
        -timeout="$(time_limit "$name")" -report_slow_units="$(time_limit "$name")" \
        -rss_limit_mb=1500 -malloc_limit_mb=512 -print_final_stats=1 \
        -artifact_prefix="$build/fuzz/find-$name-" >"$build/fuzz/$name.log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        # not cat: copy_file_range() does not lock the offset that both targets share in a log
        finding "$name" | tee "$build/fuzz/$name.found"
        grep -v '^#' "$build/fuzz/$name.log" | head -n 80
        return 1
    fi
    awk -v name="$name" '
        /^stat::number_of_executed_units/ { n = $2 }
        /^stat::average_exec_per_sec/ { speed = $2 } # 0 where it took less than a second
        / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
        END { printf "fuzz %s: %d inputs, %d a second, %d branches reached\n", name, n, speed, cov }
    ' "$build/fuzz/$name.log"
}

# libFuzzer puts words that were compared, addresses among them, into inputs. They must be the same
# in each run.
fixed=''
[ -z "$seed" ] || ! setarch -R true 2>/dev/null || fixed='setarch -R'

mkdir -p "$build/fuzz"
failed='' targets="$*"
while [ $# -gt 0 ]; do
    fuzz "$1" &
    first=$! other="$1"
    if [ $# -gt 1 ]; then
        shift
        fuzz "$1" || failed="$failed $1"
    fi
    wait "$first" || failed="$failed $other"
    shift
done
for name in $targets; do
    [ ! -f "$build/fuzz/$name.found" ] || cat "$build/fuzz/$name.found"
done
[ -z "$failed" ]
