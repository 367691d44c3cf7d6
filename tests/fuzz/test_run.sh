#!/bin/sh
# SPDX-License-Identifier: MIT
# run.sh prints each finding and keeps its input, also where the log is cut; a seed fixes the
# inputs. The fuzzers of this test are scripts that print what libFuzzer prints.
set -eu
run="$(cd "$(dirname "$0")" && pwd)/run.sh"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$scratch/build/tests/fuzz"
fail() {
    echo "$1"
    sed 's/^/    /' "$scratch/log"
    exit 1
}

# A target without faults. It writes its arguments to a file.
cat >"$scratch/build/tests/fuzz/fuzz_gguf" <<'SCRIPT'
#!/bin/sh
for word; do echo "$word"; done >"$(dirname "$0")/words"
echo '#2 INITED cov: 7 ft: 8'
echo 'stat::number_of_executed_units: 5'
SCRIPT
# A target that reports a finding after many other lines.
cat >"$scratch/build/tests/fuzz/fuzz_config" <<'SCRIPT'
#!/bin/sh
for word; do case "$word" in -artifact_prefix=*) prefix="${word#*=}" ;; esac; done
i=0
while [ $i -lt 200 ]; do echo "noise $i"; i=$((i + 1)); done
echo 'tests/fuzz/fuzz_config.c:9: demanded: again != NULL'
echo 'x.ini:3: the reason'
i=0
while [ $i -lt 200 ]; do echo "the print $i"; i=$((i + 1)); done
echo '==7== ERROR: libFuzzer: deadly signal'
printf 'a\0b\377c' >"${prefix}crash-1"
echo "artifact_prefix='$prefix'; Test unit written to ${prefix}crash-1"
exit 77
SCRIPT
chmod +x "$scratch"/build/tests/fuzz/fuzz_*

"$run" "$scratch/build" 3 gguf >"$scratch/log" 2>&1 || fail "a run that found nothing failed"
grep -q '^fuzz gguf: 5 inputs, ' "$scratch/log" || fail "no count"
grep -qx -- '-max_total_time=3' "$scratch/build/tests/fuzz/words" || fail "no limit of time"
"$run" -seed=9 "$scratch/build" 3 gguf >"$scratch/log" 2>&1 || fail "a run with a seed failed"
grep -qx -- '-seed=9' "$scratch/build/tests/fuzz/words" || fail "the seed is not passed on"
grep -q -- '^-runs=[1-9]' "$scratch/build/tests/fuzz/words" || fail "the number of inputs is left open"
if grep -q -- '-max_total_time' "$scratch/build/tests/fuzz/words"; then fail "time decides"; fi

for order in "gguf config" "config gguf" "config"; do
    # shellcheck disable=SC2086 # a list of words
    if "$run" "$scratch/build" 1 $order >"$scratch/log" 2>&1; then fail "$order: a finding is no failure"; fi
    for cut in head tail; do
        $cut -n 12 "$scratch/log" >"$scratch/part"
        grep -q '^fuzz config: x.ini:3: the reason$' "$scratch/part" || fail "$order, $cut: no reason"
        sed -n 's/^ *fuzz config: = //p' "$scratch/part" | base64 -d | gunzip >"$scratch/input"
        printf 'a\0b\377c' | cmp - "$scratch/input" || fail "$order, $cut: the input is lost"
    done
done
for word in -seed=0 -seed= -seed=x; do
    if "$run" "$word" "$scratch/build" 1 gguf >"$scratch/log" 2>&1; then fail "$word is taken"; fi
done
