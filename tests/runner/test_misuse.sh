#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_misuse.sh: a wrong argument gives one line on standard error that names it, and nothing on
# standard output: empty words, files of another kind, one wrong name among several.
#   test_misuse.sh TANDEM MODEL.gguf [MATMUL_SPEED ATTENTION_SPEED]
set -u
tandem=$1 model=$2 matmul_speed=${3-} attention_speed=${4-}
. "$(dirname "$0")/../tally.sh"

: >"$work/empty"
printf ' \n\t\n' >"$work/blank"
mkdir "$work/folder"

# --- Empty words, as of a script whose variable is empty
expect 2 "MODEL.gguf is empty; \`tandem convert-info\` needs MODEL.gguf" convert-info ""
expect 2 "IN.gguf is empty" quantize "" "$work/x.gguf" q4_0
expect 2 "OUT.gguf is empty" quantize "$model" "" q4_0
expect 2 "TYPE is empty" quantize "$model" "$work/x.gguf" ""
expect 2 "PLUGIN.so is empty" certify ""
expect 2 "no tokens given: use --decode" tokenize -m "$model" --decode ""
expect 2 "no tokens given: use --tokens" logits -m "$model" --tokens "" -o "$work/x"
expect 2 "no output given" logits -m "$model" --tokens 1 -o ""
for command in run chat plan "perplexity -f x"; do
    # shellcheck disable=SC2086 # a list of words
    expect 2 "no model given" $command -m ""
done
expect 2 "expected a path" bench -m ""

# --- A word with a line end
expect 2 "unknown command 'a?b'; " "$(printf 'a\nb')"

# --- Files that do not exist, are of another kind, or are empty
for command in "run -p x" chat plan bench "perplexity -f $model" "tokenize -p x"; do
    # shellcheck disable=SC2086
    expect 1 "empty: is empty" $command -m "$work/empty"
    # shellcheck disable=SC2086
    expect 1 "folder: is not a regular file" $command -m "$work/folder"
done
expect 1 "empty: is empty" convert-info "$work/empty"
expect 1 "empty: is empty" quantize "$work/empty" "$work/x.gguf" q4_0
expect 1 "empty: is empty; give a chat template" chat -m "$model" --template "$work/empty"
expect 1 "blank: is empty; give a chat template" chat -m "$model" --template "$work/blank"
expect 1 "folder: cannot be read" chat -m "$model" --template "$work/folder"
expect 1 "folder: is a folder; --config takes an INI file" plan -m "$model" --config "$work/folder"
expect 1 "at least 1024 are needed" perplexity -m "$model" -f "$work/empty"
[ ! -e "$work/x" ] && [ ! -e "$work/x.gguf" ] && ok || fail "left something behind"

# --- One wrong name among several: reported before the others are measured
expect 1 "none.gguf: cannot open" bench -m "$model,$work/none.gguf" -p 8 -n 0 -r 1
expect 2 "no device 'nope'" bench -m "$model" --device cpu0,nope -p 8 -n 0 -r 1
expect 2 "'auto' stands alone" bench -m "$model" --device cpu0,auto/cpu0 -p 8 -n 0 -r 1

# --- Numbers out of range
expect 2 "expected numbers from 0 to 1023" run -m "$model" -p x --cores 4000
expect 1 "it does not fit" run -m "$model" -p x -c 268435456
expect 1 "it does not fit" bench -m "$model" -p 268435456 -n 0
expect 2 "expected a whole number" run -m "$model" -p x -n 99999999999999999999
expect 2 "expected bytes" plan -m "$model" --reserve 99999999T

# --- The value of a flag that only its command finds wrong; the same in a file, and a file that is
# wrong, are no mistake of the command line
expect 2 "ctx-size" perplexity -m "$model" -f "$model" --ctx-size 1
expect 2 "ctx-size" calibrate -m "$model" -f "$model" --ctx-size 3
expect 2 "'x=y' is not a token number" run -m "$model" -p x --logit-bias x=y
printf 'ctx-size = 1\nsamplers = zebra\n' >"$work/wrong.ini"
expect 1 "wrong.ini:1: ctx-size = 1: too small" perplexity -m "$model" -f "$model" --config "$work/wrong.ini"
expect 1 "wrong.ini:2: samplers = zebra: " run -m "$model" -p x -c 64 --config "$work/wrong.ini"
expect 1 "blank: " run -m "$model" -p x --grammar-file "$work/blank"

# --- Words of the benchmarks of kernels, which would measure nothing for an unknown word
if [ -n "$attention_speed" ]; then
    tandem=$matmul_speed
    expect 2 "bad value 'avx3' for '--isa': expected one of amx, avx512, avx2, neon, plain" --isa avx3
    expect 2 "bad value 'q8' for '--type': expected one of f32, " --type q8
    tandem=$attention_speed
    expect 2 "bad value 'avx3' for '--isa': expected one of avx512, avx2, neon, plain" --isa avx3
    expect 2 "bad value 'q8' for '--type-k': expected one of f32, " --type-k q8
    expect 2 "bad value 'q8' for '--type-v': expected one of f32, " --type-v q8
    expect 2 "bad value 'read' for '--only': expected one of decode, prefill, write" --only read
fi

tally_end
