#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_make_model.sh: the command line of tandem-make-model ($1): exit codes, messages, equal bytes
# for equal options, and no file left behind by a failure.
set -u
make_model=$1
. "$(dirname "$0")/../tally.sh"

# expect CODE TEXT ARGUMENTS...: TEXT must be in the output, in either stream.
expect() {
    code=$1 text=$2
    shift 2
    said=$("$make_model" "$@" 2>&1)
    found=$?
    case "$said" in
    *"$text"*) ;;
    *) found="$found without '$text'" ;;
    esac
    [ "$found" = "$code" ] && ok || fail "$*: exit code $found, not $code: $said"
}

expect 0 "--rope-scaling" --help
expect 2 "OUT.gguf: is missing"
expect 2 "nope: unknown preset" --preset nope "$work/a"
expect 2 "--preset: needs a value" --preset
expect 2 "--type: unknown type" --type q9_9 "$work/a"
expect 2 "--layers: needs a whole number" --layers 2x "$work/a"
expect 2 "--seed: needs a whole number" --seed 99999999999999999999 "$work/a"
expect 2 "--frob: unknown option" --frob 1 "$work/a"
expect 2 "one output file only" "$work/a" "$work/b"
expect 2 "layers is 0" --layers 0 "$work/a"
expect 2 "multiple of heads-kv" --heads 6 --heads-kv 4 "$work/a"
expect 2 "only a tied retrieval model has one" --window 64 "$work/a"
expect 2 "needs at least 194" --preset retrieval --width 192 -o "$work/a"
expect 2 "a multiple of 4" --preset retrieval-window --layers 6 -o "$work/a"
expect 2 "-o: needs a value" --preset retrieval -o
expect 1 "cannot create" "$work/no/folder/a"
expect 1 "is not a regular file" "$work"
[ -z "$(ls "$work")" ] && ok || fail "left behind: $(ls "$work")"

expect 0 "1.0 M parameters" --preset tiny-llama --type Q4_K "$work/one"
expect 0 "" --type q4_K --preset tiny-llama --threads 1 --quiet "$work/two"
expect 0 "matrices are q8_0, not q4_K" --preset tiny-odd --type q4_K "$work/three"
expect 0 "f16" --preset retrieval -o "$work/four"
same "$work/one" "$work/two" "the same model with one thread"
expect 0 "" --layers 1 --quiet "$work/plain"
expect 0 "" --layers 1 --same-layers --quiet "$work/same"
same "$work/plain" "$work/same" "one layer, and the same in all"
expect 0 "" --layers 3 --quiet "$work/plain"
expect 0 "" --layers 3 --same-layers --quiet "$work/same"
! cmp -s "$work/plain" "$work/same" && ok || fail "three layers are the same without --same-layers"
[ "$(wc -c <"$work/plain")" = "$(wc -c <"$work/same")" ] && ok || fail "the same layers take other room"
expect 2 "cannot be the same" --preset retrieval --same-layers -o "$work/never"
rm "$work/plain" "$work/same"
[ "$(ls "$work" | tr '\n' ' ')" = "four one three two " ] && ok || fail "there is: $(ls "$work")"
tally_end
