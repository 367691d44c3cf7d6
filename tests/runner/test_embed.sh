#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_embed.sh: `tandem embed` from the command line, with a tiny encoder. embed.f32 has llama.cpp's
# vectors of $text without normalisation: the mean, that of the first token, that of the last.
# Rerankers: llama.cpp's scores of the same tokens.
#   test_embed.sh TANDEM MAKE_FIXTURE BERT.head MODEL.gguf RANK.head
set -u
tandem=$1 make=$2 head=$3 decoder=$4 rank_head=$5
. "$(dirname "$0")/../tally.sh"
bert=$work/bert.gguf
text='The cat sat on a mat, and rain falls in Spain!'
"$make" "$head" bert-dense "$bert" || fail "the encoder cannot be made"

embed() { "$tandem" embed --quiet "$@" 2>"$work/err" </dev/null || fail "$*: $(cat "$work/err")"; }
floats() { od -An -v -tf4 -w4 "$@"; }

# alike WHAT BOUND: files `expected` and `found` of numbers, one a line: NMSE
alike() {
    paste "$work/expected" "$work/found" | awk -v bound="$2" '
        NF != 2 { bad = 1 } { d += ($1 - $2) ^ 2; s += $1 * $1 }
        END { printf "%s NMSE %.1e\n", NR, d / s; exit !(!bad && NR > 0 && d <= bound * s) }' \
        >"$work/nmse" && ok || fail "$1: $(cat "$work/nmse")"
}

# fails CODE TEXT ARGUMENTS...
fails() {
    code=$1 part=$2
    shift 2
    "$tandem" "$@" >"$work/out" 2>"$work/err" </dev/null
    found=$?
    [ "$found" = "$code" ] || fail "$*: exit code $found, not $code: $(cat "$work/err")"
    grep -qF -e "$part" "$work/err" && ok || fail "$*: no '$part' in: $(cat "$work/err")"
}

# As llama.cpp; the model's own pooling is the mean.
at=0
for pooling in mean cls last; do
    floats -j $((at * 256)) -N 256 "$(dirname "$0")/embed.f32" >"$work/expected"
    embed -m "$bert" -p "$text" --pooling $pooling --normalize -1 --raw | floats >"$work/found"
    alike "pooling $pooling" 1e-5
    at=$((at + 1))
done
floats -N 256 "$(dirname "$0")/embed.f32" | awk '
    { x[NR] = $1; s += $1 * $1 } END { for (i = 1; i <= NR; i++) print x[i] / sqrt(s) }' >"$work/expected"
embed -m "$bert" -p "$text" | tr ' ' '\n' >"$work/found"
alike "normalised" 1e-5

# A vector for each token.
[ "$(embed -m "$bert" -p "$text" --pooling none | wc -l)" = 15 ] && ok || fail "not a vector a token"
# Several texts give what each gives alone; 40 are more than a step has. The empty line is a text.
{
    printf 'a cat\n\nthe king and the queen\r\n'
    for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19; do printf 'dog %s\ncat on %s\n' $i $i; done
} >"$work/texts"
embed -m "$bert" -f "$work/texts" >"$work/all"
[ "$(wc -l <"$work/all")" = 41 ] && ok || fail "41 texts give $(wc -l <"$work/all") vectors"
sed -n 3p "$work/all" | tr ' ' '\n' >"$work/expected"
embed -m "$bert" -p 'the king and the queen' | tr ' ' '\n' >"$work/found"
alike "text 3 of many" 1e-10
sed -n 41p "$work/all" | tr ' ' '\n' >"$work/expected"
embed -m "$bert" -p 'dog 1<>cat on 19' --separator '<>' | tail -n 1 | tr ' ' '\n' >"$work/found"
alike "the last text, and another separator" 1e-10
# JSON has the same numbers.
embed -m "$bert" -p 'a cat\ndog' --json >"$work/json"
[ "$(grep -c '"object": "embedding"' "$work/json")" = 2 ] && grep -q '"prompt_tokens": 7' "$work/json" && ok ||
    fail "JSON: $(cut -c1-100 "$work/json")"
awk '/"embedding": \[/ { n++; next } /\]/ { if (n == 1) exit } n == 1 { sub(",", ""); print $1 }' \
    "$work/json" >"$work/found"
sed -n 1p "$work/all" | tr ' ' '\n' >"$work/expected"
alike "JSON" 1e-10
# Other norms.
embed -m "$bert" -p 'a cat' --normalize 1 | tr ' ' '\n' | awk '{ s += $1 < 0 ? -$1 : $1 }
    END { exit !(s > 0.9999 && s < 1.0001) }' && ok || fail "the sum of absolute values is not 1"
embed -m "$bert" -p 'a cat' --normalize 0 | tr ' ' '\n' | awk '{ a = $1 < 0 ? -$1 : $1; if (a > m) m = a }
    END { exit !(m > 32759 && m < 32761) }' && ok || fail "the largest value is not 32760"

# Scores of texts beside a query, and of a text alone: of the tokens [CLS] query [SEP] text [SEP].
rank=$work/rank.gguf
"$make" "$rank_head" bert-rank "$rank" || fail "the reranker cannot be made"
printf 'the cat\tsat on a mat\nthe cat\train falls in Spain\nalone\n' >"$work/pairs"
printf '0.598888755\n0.691554725\n0.514212191\n' >"$work/expected"
embed -m "$rank" -f "$work/pairs" >"$work/found"
alike "scores" 1e-6
sed -n 2p "$work/expected" >"$work/second"
mv "$work/second" "$work/expected"
embed -m "$rank" -p 'the cat => rain falls in Spain' --query-separator ' => ' --normalize 2 >"$work/found"
alike "a score with another separator" 1e-6
[ "$(embed -m "$rank" -p 'a cat' --pooling mean | wc -w)" = 64 ] && ok || fail "a reranker gives no vector"
fails 1 'no head that scores texts' embed -m "$bert" -p x --pooling rank

# A decoder: the last token's vector, and a note.
"$tandem" embed -m "$decoder" -p 'Once upon a time' >"$work/out" 2>"$work/err" </dev/null
grep -q "'last' is used" "$work/err" && [ "$(wc -l <"$work/out")" = 1 ] && ok ||
    fail "decoder: $(cat "$work/err")"
embed -m "$decoder" -p 'Once upon a time' --pooling none | tail -n 1 | cmp -s - "$work/out" && ok ||
    fail "the last token's vector is another"

long=$(awk 'BEGIN { for (i = 0; i < 60; i++) printf "cat " }')
embed -m "$bert" -p "$long" >/dev/null && ok
fails 1 'set it to 62 or more' embed -m "$bert" -p "$long" -ub 32
fails 1 'too small for a text of 62' embed -m "$bert" -p "$long" -c 32
fails 1 'cut the text into parts' embed -m "$bert" -p "$long$long"
fails 1 'there is no text' embed -m "$bert" -p ''
fails 1 'tandem embed' run -m "$bert" -p "$text" -n 1
fails 2 'give one of them' embed -m "$bert" -p "$text" --json --raw
tally_end
