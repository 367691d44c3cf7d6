#!/bin/sh
# SPDX-License-Identifier: MIT
# Fuzzes each target for a while, two at a time.
#   tests/fuzz/run.sh BUILD_FOLDER SECONDS [TARGET...]      targets: config gguf ...; none = all
# The build folder is configured with -Dfuzz=true (README.md). New inputs that reach new code are
# kept in BUILD_FOLDER/fuzz/TARGET and used again; an input that breaks something is left in
# BUILD_FOLDER/fuzz/find-TARGET-*, with the log beside it. Fails where there is one.
set -eu
build=$(cd "$1" && pwd) seconds="$2"
shift 2
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck disable=SC2046 # a list of words
[ $# -gt 0 ] || set -- $(cd "$build/tests/fuzz" && ls -d fuzz_*[a-z] | grep -v '\.p$' | sed 's/^fuzz_//')
export TANDEM_PLUGIN_PATH="$build/plugins/cpu" TANDEM_SOURCE_ROOT="$here/../.."
# The CPU plugin's own threads may outlive the last input.
export ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1:quarantine_size_mb=32"
export UBSAN_OPTIONS="halt_on_error=1:print_stacktrace=1"

# Largest input, in bytes: what it takes to reach everything, and no more.
limit() {
    case "$1" in
    gguf | model) echo 12288 ;;
    *) echo 2048 ;;
    esac
}

# Seconds that an input may take on a machine that does other things too. Templates may loop until
# they have had the number of steps that they are allowed, which sanitizers make slow.
patience() {
    case "$1" in
    template) echo 120 ;;
    *) echo 20 ;;
    esac
}

fuzz() {
    name="$1" folder="$build/fuzz/$1" dictionary="$here/$1.dict" seeds="$here/corpus/$1"
    mkdir -p "$folder"
    set -- "$folder" "$seeds"
    [ "$name" = config ] && set -- "$@" "$here/../../conf"
    [ "$name" = model ] && set -- "$@" "$here/corpus/gguf" && dictionary="$here/gguf.dict"
    [ -f "$dictionary" ] && set -- "$@" "-dict=$dictionary"
    status=0
    "$build/tests/fuzz/fuzz_$name" "$@" -max_total_time="$seconds" -max_len="$(limit "$name")" \
        -timeout="$(patience "$name")" -rss_limit_mb=1500 -malloc_limit_mb=512 -print_final_stats=1 \
        -artifact_prefix="$build/fuzz/find-$name-" >"$build/fuzz/$name.log" 2>&1 || status=$?
    if [ "$status" -ne 0 ]; then
        grep -v '^#' "$build/fuzz/$name.log" | head -n 80
        echo "fuzz $name: FOUND, see $build/fuzz/find-$name-*; replay: $build/tests/fuzz/replay_$name FILE"
        return 1
    fi
    awk -v name="$name" '
        /^stat::number_of_executed_units/ { n = $2 }
        /^stat::average_exec_per_sec/ { speed = $2 }
        / cov: / { for (i = 1; i < NF; i++) if ($i == "cov:") cov = $(i + 1) }
        END { printf "fuzz %s: %d inputs, %d a second, %d branches reached\n", name, n, speed, cov }
    ' "$build/fuzz/$name.log"
}

failed=0
while [ $# -gt 0 ]; do
    fuzz "$1" &
    first=$!
    if [ $# -gt 1 ]; then
        shift
        fuzz "$1" || failed=1
    fi
    shift
    wait "$first" || failed=1
done
exit "$failed"
