#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_cli_shared.sh: `tandem run` with models that are not part of the project, on every path:
# stories260K gives the text that its author published, and a newline in the prompt works with a
# model that has neither a token for it nor byte fallback.
#   test_cli_shared.sh TANDEM FOLDER_OF_MODELS
set -u
tandem=$1 models=$2
[ -d "$models" ] || { echo "skipped: $models is not there"; exit 77; }
. "$(dirname "$0")/../tally.sh"

{ cat "$models/stories260K/greedy_200_expected.txt"; echo; } >"$work/expected"
for flags in "" "-t 1 --path reference" "-t 1 --isa plain -ctk f32 -ctv f32 --page-size 16"; do
    # shellcheck disable=SC2086 # a list of words
    "$tandem" run -m "$models/stories260K/stories260K-f32.gguf" -p "" --temp 0 -n 200 --quiet $flags \
        >"$work/out" 2>"$work/err" || fail "stories260K $flags: $(cat "$work/err")"
    cmp -s "$work/out" "$work/expected" && ok || fail "stories260K $flags: $(cat "$work/out")"
done

for model in "$models"/babyllama-tok105/*.gguf; do
    "$tandem" run -m "$model" -p 'a\nb' --temp 0 -n 8 >"$work/out" 2>"$work/err" && ok ||
        fail "babyllama: $(cat "$work/err")"
done
tally_end
