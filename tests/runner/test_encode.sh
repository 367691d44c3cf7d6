#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_encode.sh: `tandem run` with a model that has an encoder and a decoder: its answers are
# llama.cpp's for the same texts, and what is not supported is refused in one line.
#   test_encode.sh TANDEM ARCHS_MATRIX
set -u
tandem=$1 archs_matrix=$2
. "$(dirname "$0")/../tally.sh"
"$archs_matrix" write "$work" t5-plain >"$work/out" || fail "no model: $(cat "$work/out")"
model=$work/t5-plain.gguf

run() { "$tandem" run -m "$model" --temp 0 -n 24 "$@" 2>"$work/err" </dev/null; }

# answers PROMPT TEXT: llama.cpp's answer of 24 tokens, or up to the end.
answers() {
    doing=$1
    printf '%s\n' "$2" >"$work/expected"
    run -p "$1" --no-display-prompt >"$work/out" || fail "$1: $(cat "$work/err")"
    same "$work/expected" "$work/out" "$1"
}

answers 'a dog sees the big cat!' 'goodUGc'
answers 'The  new day, one two three' ':mmUUUkUkUkUkU redU red'
answers 'x' ':::::::::::::::::'

# The answer does not continue the prompt.
printf 'a dog sees the big cat!\ngoodUGc\n' >"$work/expected"
run -p 'a dog sees the big cat!' >"$work/out" || fail "with the prompt: $(cat "$work/err")"
same "$work/expected" "$work/out" 'with the prompt'

# Two sequences share the prompt.
run -p 'a dog sees the big cat!' --parallel 2 --no-display-prompt >"$work/out" || fail "two: $(cat "$work/err")"
[ "$(grep -c goodUGc "$work/out")" = 2 ] && ok || fail "two sequences: $(cat "$work/out")"

# A prompt may have the beginning of the answer, behind the token that begins an answer (<start>). Here
# that beginning has a token that is not printed.
run -p 'a dog sees the big cat!</s><start><extra_id_13> good' --no-display-prompt >"$work/out" || fail "begun: $(cat "$work/err")"
[ "$(sed 's/^ *//' "$work/out")" = UGc ] && ok || fail "an answer that is begun: $(cat "$work/out")"

# refused TEXT COMMAND ARGUMENTS...: the last line of standard error has the text.
refused() {
    part=$1
    shift
    doing=$*
    "$tandem" "$@" -m "$model" >"$work/out" 2>"$work/err" </dev/null && fail "$*: not refused"
    tail -n 1 "$work/err" | grep -qF -e "$part" && ok || fail "$*: no '$part' in: $(cat "$work/err")"
    [ -s "$work/out" ] && fail "$*: output besides the error"
}

long=$(printf 'dog %.0s' 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20)
refused ctx-size run -p "$long" --ctx-size 16
refused ubatch-size run -p "$long" --no-display-prompt --ubatch-size 16
refused prompt-cache run -p dog --prompt-cache "$work/cache"
[ -e "$work/cache" ] && fail 'a cache was left behind'
refused model-draft run -p dog --model-draft "$model"
refused "draft = ngram" run -p dog --draft ngram
refused 'tandem run' bench
refused 'tandem run' embed -p dog
printf '%s' "$long" >"$work/text"
refused 'tandem run' perplexity -f "$work/text" --ctx-size 8
tally_end
