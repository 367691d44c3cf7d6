#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_draft.sh: `tandem run --model-draft`: the text with a draft model equals the text without
# one, for every draft, at any temperature, and in full and shifted contexts.
# The same with drafts from a layer of the model (`--draft mtp`, MAKE_MTP makes it).
#   test_draft.sh TANDEM MODEL.gguf MAKE_VARIANT MAKE_MTP [MAKE_MODEL]
# With TANDEM_SANITIZED=yes each token takes long: every way of sampling and every device still runs
# with a draft, but only the first one with all drafts of all lengths, and no second seed is used.
# Draft, length and seed change numbers only. Contexts, which texts fill, have half the length.
set -u
tandem=$1 model=$2 make_variant=$3 make_mtp=$4 make_model=${5:-}
. "$(dirname "$0")/../tally.sh"

# The percentage in the line about the draft.
accepted() { sed -n 's/^draft .* accepted, \([0-9]*\).*/\1/p' "$work/err"; }

# True if 85 % are accepted, not counting those of the last proposal, of at most $1 tokens.
nearly_all_accepted() {
    awk -v most="$1" '/^draft .* accepted/ { is_good = $4 - $2 < 0.15 * $4 + most } END { exit !is_good }' "$work/err"
}

is_sanitized=${TANDEM_SANITIZED:-no} seeds='1 2 3 4 5 6' context=256
[ $is_sanitized = no ] || seeds=1 context=128

# The same model, a coarser one, and one whose proposals are rarely right.
"$make_variant" "$model" "$work/q4.gguf" q4_0 2>"$work/err" || fail "q4_0: $(cat "$work/err")"
"$make_variant" "$model" "$work/q2.gguf" q2_K 2>"$work/err" || fail "q2_K: $(cat "$work/err")"
# Contexts are small, so that few tokens fill and shift them. A coarse model that proposes 64 tokens
# for each accepted one takes as long as all others together: with it, the beginning of one text is
# enough.
for flags in "--temp 0" "--temp 0.8 --seed 7" "--temp 1.5 --seed 3 --repeat-penalty 1.3" \
    "--temp 0 --ignore-eos -c 80" "--temp 0 --ignore-eos -c 64 -n 130 --context-shift --keep 4" \
    "--temp 1 --seed 5 --ignore-eos -c 48 -n 90 --context-shift" "--temp 0 -n 1" "--temp 0 -n 2"; do
    case "$flags" in *-n*|*-c*) beginning= ;; *) beginning="-n 40" ;; esac
    # shellcheck disable=SC2086 # a list of words
    "$tandem" run -m "$model" -p "Once upon a time" -t 1 -c $context $flags >"$work/alone" 2>"$work/err" ||
        fail "$flags: $(cat "$work/err")"
    cp "$work/alone" "$work/begun"
    # shellcheck disable=SC2086
    [ -z "$beginning" ] ||
        "$tandem" run -m "$model" -p "Once upon a time" -t 1 -c $context $flags $beginning >"$work/begun" \
            2>"$work/err" || fail "$flags: $(cat "$work/err")"
    for draft in "$model" "$work/q4.gguf" "$work/q2.gguf"; do
        for n in 1 5 64; do
            [ $is_sanitized = no ] || [ "$flags" = "--temp 0" ] || [ "$draft $n" = "$work/q4.gguf 5" ] || continue
            expected=$work/alone only=
            [ "$draft" = "$model" ] || [ $n != 64 ] || { expected=$work/begun only=$beginning; }
            # shellcheck disable=SC2086
            "$tandem" run -m "$model" -p "Once upon a time" -t 1 -c $context $flags $only -md "$draft" \
                --draft-max $n >"$work/drafted" 2>"$work/err" || fail "$flags: $(cat "$work/err")"
            if cmp -s "$expected" "$work/drafted"; then ok; else fail "$draft $n $flags differs"; fi
            # A model that drafts for itself samples the same tokens, so nearly all are accepted.
            # Only a shift makes a difference, and the text's end, behind which nothing is.
            case "$flags" in *"-n 1"|*"-n 2"|*shift*) continue ;; esac
            [ "$draft" != "$model" ] || nearly_all_accepted $n ||
                fail "$flags: only $(accepted) % of the model's own proposals: $(cat "$work/err")"
        done
    done
done

# About once in a thousand tokens, the last bits decide between two candidates. So there are several
# seeds, also with 8-bit activations and a coarse cache, and in a group with fixed shares.
cat >"$work/pair.ini" <<EOF
[device a]
plugin = cpu
threads = 1
[device b]
plugin = cpu
threads = 1
[group pair]
members = a, b
share = 1, 1
EOF
for flags in "-t 1" "-t 2 --activation-bits 8 -ctk q4_0 -ctv q4_0" "--config $work/pair.ini -dev pair"; do
    for seed in $seeds; do
        # shellcheck disable=SC2086
        "$tandem" run -m "$model" -p "Once upon a time" $flags -c $context --temp 0.8 --seed $seed \
            >"$work/alone" 2>"$work/err" || fail "$flags: $(cat "$work/err")"
        # shellcheck disable=SC2086
        "$tandem" run -m "$model" -p "Once upon a time" $flags -c $context --temp 0.8 --seed $seed \
            -md "$work/q4.gguf" --draft-max 5 >"$work/drafted" 2>"$work/err" ||
            fail "$flags: $(cat "$work/err")"
        if cmp -s "$work/alone" "$work/drafted"; then ok; else fail "$flags, seed $seed differs"; fi
    done
done

# Drafts follow a grammar. Where it allows one token, a model whose proposals are rarely right is right, too.
for grammar in 'root ::= ("yes" | "no" | " so")+' 'root ::= "Once upon a time, in a large forest" [ a-z]+ "."'; do
    "$tandem" run -m "$model" -p "Once upon a time" -t 1 -c 128 --temp 0.9 --seed 8 -n 40 --grammar "$grammar" \
        >"$work/alone" 2>"$work/err" || fail "$grammar: $(cat "$work/err")"
    for draft in "$model" "$work/q2.gguf"; do
        "$tandem" run -m "$model" -p "Once upon a time" -t 1 -c 128 --temp 0.9 --seed 8 -n 40 --grammar "$grammar" \
            -md "$draft" --draft-max 5 >"$work/drafted" 2>"$work/err" || fail "$grammar: $(cat "$work/err")"
        if cmp -s "$work/alone" "$work/drafted"; then ok; else fail "$draft: $grammar differs"; fi
        echo "$grammar: $(accepted) %"
        [ "$draft" != "$model" ] || [ "$(accepted)" -ge 85 ] || fail "only $(accepted) %: $(cat "$work/err")"
    done
done

# N-grams draft without a draft model. A grammar makes a text that repeats: most of it is drafted and right.
for flags in "--temp 0 --ignore-eos -c $context" "--temp 0.8 --seed 7 --draft-ngram 1" \
    "--temp 0 --ignore-eos -c 64 -n 130 --context-shift --keep 4 --draft-ngram 1" "--temp 0 -n 1"; do
    # shellcheck disable=SC2086
    "$tandem" run -m "$model" -p "Once upon a time" -t 1 $flags >"$work/alone" 2>"$work/err" ||
        fail "$flags: $(cat "$work/err")"
    # shellcheck disable=SC2086
    "$tandem" run -m "$model" -p "Once upon a time" -t 1 $flags --draft ngram --draft-max 5 >"$work/drafted" \
        2>"$work/err" || fail "$flags: $(cat "$work/err")"
    if cmp -s "$work/alone" "$work/drafted"; then ok; else fail "--draft ngram: $flags differs"; fi
done
for flags in "" "--draft ngram"; do
    # shellcheck disable=SC2086
    "$tandem" run -m "$model" -p "Once" -t 1 -c 256 --temp 0.9 --seed 2 -n 100 $flags \
        --grammar 'root ::= ([a-z] ": red, green, blue and yellow; ")+' >"$work/drafted" 2>"$work/err" ||
        fail "$flags: $(cat "$work/err")"
    [ -n "$flags" ] || cp "$work/drafted" "$work/alone"
done
if cmp -s "$work/alone" "$work/drafted"; then ok; else fail "--draft ngram: a grammar differs"; fi
n_right=$(sed -n 's/^draft  *\([0-9]*\) of .*/\1/p' "$work/err")
[ "${n_right:-0}" -ge 50 ] && ok || fail "--draft ngram: $(cat "$work/err")"

# An empty prompt is one token. Shapes that alternate are planned once.
"$tandem" run -m "$model" -p "" --temp 0 -n 20 -c 64 --quiet >"$work/alone" 2>"$work/err" ||
    fail "empty: $(cat "$work/err")"
"$tandem" run -m "$model" -md "$work/q4.gguf" -p "" --temp 0 -n 20 -c 64 --quiet >"$work/drafted" \
    2>"$work/err" && cmp -s "$work/alone" "$work/drafted" && ok || fail "empty: $(cat "$work/err")"
"$tandem" run -m "$model" -md "$work/q2.gguf" -p "Once" -n 100 --draft-max 8 --ignore-eos -c 256 \
    --profile >"$work/drafted" 2>"$work/err"
sed -n '/per token when steady/,$p' "$work/err" | tail -n +2 >"$work/counters"
# One submission for each of at most 8 proposals, and one to check them; 1 to 9 tokens are kept.
steady_counters 1 9 "of drafts"

# A layer of the model drafts: one that always drafts right, and one with random weights.
# mtp KIND FLAGS...: the text with drafts equals the text without
mtp() {
    kind=$1
    shift
    "$tandem" run -m "$work/$kind.gguf" -p "Once upon a time" -t 1 "$@" >"$work/alone" 2>"$work/err" ||
        fail "$kind $*: $(cat "$work/err")"
    "$tandem" run -m "$work/$kind.gguf" -p "Once upon a time" -t 1 "$@" --draft mtp --draft-max 5 --profile \
        >"$work/drafted" 2>"$work/err" || fail "$kind $*: $(cat "$work/err")"
    if cmp -s "$work/alone" "$work/drafted"; then ok; else fail "--draft mtp: $kind $* differs"; fi
}
for kind in random perfect; do
    "$make_mtp" "$model" "$work/$kind.gguf" $kind 2>"$work/err" || fail "$kind: $(cat "$work/err")"
    mtp $kind --temp 0.8 --seed 3 -n 40 -c 256
    mtp $kind --temp 0 --ignore-eos -c 48 -n 90 --context-shift
    mtp $kind --temp 0 --ignore-eos -c 64 -n 60 --config "$work/pair.ini" -dev pair
    # A token of the prompt, then 10 steps that keep 6 tokens.
    mtp $kind --temp 0 --ignore-eos -c 256 -n 61 -b 3
    sed -n '/per token when steady/,$p' "$work/err" | tail -n +2 >"$work/counters"
    steady_counters 1 6 "of drafts from a layer"
    [ $kind = random ] || { [ "$(accepted)" = 100 ] && ok || fail "only $(accepted) %: $(cat "$work/err")"; }
done

# A plan counts the layer's weights and cache, which has as many tokens as that of each other layer.
"$tandem" plan -m "$work/random.gguf" --draft mtp -c 256 --json >"$work/plan" 2>"$work/err" &&
    grep -q '"is_layer": true' "$work/plan" && grep -q '"draft_weight_size": [1-9]' "$work/plan" &&
    grep -q '"draft_cache_size": [1-9]' "$work/plan" && ok || fail "plan: $(cat "$work/plan" "$work/err")"

# refused CODE TEXT FLAGS...
refused() {
    code=$1 text=$2
    shift 2
    "$tandem" run -m "$model" -p x "$@" >"$work/out" 2>"$work/err"
    found=$?
    without_progress "$work/err"
    [ $found = "$code" ] && grep -qF -e "$text" "$work/err" && [ "$(wc -l <"$work/err")" = 1 ] && ok ||
        fail "$*: $found: $(cat "$work/err")"
}
refused 2 "one sequence" -md "$model" -np 2
refused 2 "from 1 to 64" -md "$model" --draft-max 0
refused 2 "draft-min = 5: no draft has more than draft-max = 4 tokens" --draft ngram --draft-max 4 --draft-min 5
refused 1 "has no layer that drafts tokens: there is no tensor 'blk." --draft mtp
refused 2 "'mpt' is neither mtp nor ngram nor a whole number from 1 to 64" --draft mpt
refused 2 "leave it out or model-draft" --draft ngram -md "$model"
refused 2 "one sequence" --draft ngram -np 2
refused 2 "from 1 to 16" --draft ngram --draft-ngram 17
refused 2 "leave it out or model-draft" --draft mtp -md "$model"
refused 2 "no hidden states" --draft mtp --prompt-cache "$work/cache"
refused 2 "one sequence" --draft mtp -np 2
"$tandem" run -m "$model" -md "$model" --draft 3 -p Once -n 9 --temp 0 --ignore-eos >"$work/out" 2>"$work/err" &&
    grep -q "^draft  *6 of 6 " "$work/err" && ok || fail "--draft 3: $(cat "$work/err")"
# A flag is stronger than a file. Of two proposals at a time 5 of 6 would be accepted.
echo 'draft = 2' >"$work/two.ini"
"$tandem" run --config "$work/two.ini" -m "$model" -md "$model" --draft-max 3 -p Once -n 9 --temp 0 --ignore-eos \
    >"$work/out" 2>"$work/err" &&
    grep -q "^draft  *6 of 6 " "$work/err" && ok || fail "draft = 2, --draft-max 3: $(cat "$work/err")"
refused 1 "none.gguf" -md "$work/none.gguf"
if [ -n "$make_model" ]; then
    "$make_model" --preset tiny-llama "$work/tiny.gguf" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
    refused 1 "it has 384 tokens, not 1024; a draft model must have the same vocabulary" \
        -md "$work/tiny.gguf"
    # The vocabularies are equal but for the last 8 tokens, which one of the models lacks.
    "$make_model" --preset tiny-llama --vocab 392 "$work/wide.gguf" >"$work/out" 2>&1 || fail "$(cat "$work/out")"
    for pair in "tiny wide" "wide tiny"; do
        for flags in "--temp 0 --ignore-eos" "--temp 0.8 --seed 7 --ignore-eos" \
            "--temp 0 --ignore-eos -c 48 --context-shift" "--temp 0 --grammar root::=[a-z]+"; do
            # shellcheck disable=SC2086 # lists of words
            "$tandem" run -m "$work/${pair% *}.gguf" -p Once -t 1 -c 256 -n 90 $flags >"$work/alone" 2>"$work/err" ||
                fail "$pair $flags: $(cat "$work/err")"
            # shellcheck disable=SC2086
            "$tandem" run -m "$work/${pair% *}.gguf" -md "$work/${pair#* }.gguf" -p Once -t 1 -c 256 -n 90 $flags \
                --draft-max 5 >"$work/drafted" 2>"$work/err" || fail "$pair $flags: $(cat "$work/err")"
            if cmp -s "$work/alone" "$work/drafted"; then ok; else fail "$pair $flags differs"; fi
            case "$flags" in "--temp 0 --ignore-eos") ;; *) continue ;; esac
            [ "$(accepted)" -ge 60 ] && ok || fail "$pair: only $(accepted) %: $(cat "$work/err")"
        done
    done
else
    echo "skipped: no make_model for a model with another vocabulary"
fi

tally_end
