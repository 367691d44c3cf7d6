#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_prompt_cache.sh: `tandem run --prompt-cache`, and the cache that `/save` and `/load` of
# `tandem chat` keep. Texts equal those without a cache, and tokens in the file are not computed
# again, on one device and in groups. Files that do not fit are refused, and no file is read or
# written in part.
#   test_prompt_cache.sh TANDEM MODEL.gguf MAKE_VARIANT TEMPLATE.jinja
set -u
tandem=$1 model=$2 make_variant=$3 template=$4
. "$(dirname "$0")/../tally.sh"

cat >"$work/x.ini" <<END
model = $model
ctx-size = 256
temp = 0
activation-bits = 15
[device a]
plugin = cpu
threads = 1
[device b]
plugin = cpu
threads = 1
END
begin='Once upon a time there was a little dog named Tim. Tim had a red ball and a blue ball.'

# run FLAGS...: out, err; it must succeed
run() {
    "$tandem" run --config "$work/x.ini" "$@" >"$work/out" 2>"$work/err" </dev/null ||
        fail "run $*: $(cat "$work/err")"
}

# counted COMPUTED REUSED: the numbers that the last run printed about its prompt
counted() {
    if grep -Eq "^prompt +$1 tokens in .*; $2 more from the prompt cache" "$work/err"; then
        ok
    else
        fail "not $1 computed and $2 reused: $(grep prompt "$work/err")"
    fi
}

# refused TEXT FLAGS...: one line with TEXT, nothing on standard output, the cache is unchanged
refused() {
    text=$1 && shift
    cp "$work/c" "$work/c.before"
    expect 1 "$text" run --config "$work/x.ini" --device a -p "$begin" -n 4 --prompt-cache "$work/c" "$@"
    same "$work/c" "$work/c.before" "a refused cache"
}

# --- The same prompt again: one token is computed, the text is the same
n=$("$tandem" tokenize -m "$model" -p "$begin" --ids | tr ',' '\n' | wc -l)
run --device a -p "$begin" -n 30
cp "$work/out" "$work/plain"
grep -q "from the prompt cache" "$work/err" && fail "a cache without --prompt-cache" || ok
run --device a -p "$begin" -n 30 --prompt-cache "$work/c"
same "$work/plain" "$work/out" "the first run with a cache"
grep -q "cache  *$((n + 29)) tokens saved in $work/c" "$work/err" && ok || fail "saved: $(cat "$work/err")"
run --device a -p "$begin" -n 30 --prompt-cache "$work/c"
same "$work/plain" "$work/out" "the second run with a cache"
counted 1 $((n - 1))

# --- A longer prompt that continues the generated text, which was saved too
cp "$work/c" "$work/first"
longer="$(cat "$work/plain") Then Tim went home and slept."
printf '%s' "$longer" >"$work/longer"
run --device a -f "$work/longer" -n 20
cp "$work/out" "$work/longer.plain"
run --device a -f "$work/longer" -n 20 --prompt-cache "$work/c"
same "$work/longer.plain" "$work/out" "a longer prompt"
reused=$(sed -n 's/^prompt .*; \([0-9]*\) more from the prompt cache/\1/p' "$work/err")
[ "${reused:-0}" -gt "$((n + 10))" ] && ok || fail "of the generated text nothing was reused: $(cat "$work/err")"

# --- A prompt with another end, and one that shares only its beginning
run --device a -p "$begin The cat" -n 20
cp "$work/out" "$work/other.plain"
run --device a -p "$begin The cat" -n 20 --prompt-cache "$work/c" --prompt-cache-ro
same "$work/other.plain" "$work/out" "another end"
grep -q "; $((n - 1)) more\|; $n more" "$work/err" && ok || fail "another end: $(cat "$work/err")"
run --device a -p "Lily saw a bird." -n 20
cp "$work/out" "$work/other.plain"
run --device a -p "Lily saw a bird." -n 20 --prompt-cache "$work/c" --prompt-cache-ro
same "$work/other.plain" "$work/out" "nothing in common"

# --- Read-only: the file does not change; it may be read-only or absent
cp "$work/c" "$work/kept"
run --device a -p "$begin" -n 5 --prompt-cache "$work/c" --prompt-cache-ro
same "$work/c" "$work/kept" "--prompt-cache-ro"
grep -q "saved in" "$work/err" && fail "--prompt-cache-ro saves" || ok
run --device a -p "$begin" -n 5 --prompt-cache "$work/none" --prompt-cache-ro
[ -e "$work/none" ] && fail "--prompt-cache-ro made a file" || ok

# --- -n 0 computes and saves the prompt
run --device a -p "$begin" -n 0 --prompt-cache "$work/zero"
grep -q "cache  *$n tokens saved" "$work/err" && ok || fail "-n 0: $(cat "$work/err")"
run --device a -p "$begin" -n 30 --prompt-cache "$work/zero" --prompt-cache-ro
same "$work/plain" "$work/out" "after -n 0"
counted 1 $((n - 1))

# --- Several sequences, a draft model, a context that is too small for the file
run --device a -p "$begin" -n 20 -np 3 --temp 1 --seed 4
cp "$work/out" "$work/three"
run --device a -p "$begin" -n 20 -np 3 --temp 1 --seed 4 --prompt-cache "$work/zero"
same "$work/three" "$work/out" "three sequences"
counted 1 $((n - 1))
run --device a -p "$begin" -n 30 -md "$model" --prompt-cache "$work/c"
same "$work/plain" "$work/out" "with a draft model"
counted 1 $((n - 1))
run --device a -p "$begin" -n 30 --prompt-cache "$work/c"
same "$work/plain" "$work/out" "saved with a draft model"
run --device a -p "$begin" -c $((n + 4)) -n 3 --prompt-cache "$work/c" --prompt-cache-ro
counted 1 $((n - 1))

# --- A shifted context is not saved
run --device a -p "$begin" -c 64 -n 80 --ignore-eos --context-shift --prompt-cache "$work/shifted"
grep -q "not saved: the context was shifted" "$work/err" && [ ! -e "$work/shifted" ] && ok ||
    fail "shifted: $(cat "$work/err")"

# --- Where the path is a link, its target is written
cp "$work/first" "$work/target" && cp "$work/target" "$work/target.before"
ln -s target "$work/link"
run --device a -p "$begin" -n 9 --prompt-cache "$work/link"
[ -L "$work/link" ] && ! cmp -s "$work/target" "$work/target.before" && ok || fail "the link was replaced"

# --- Groups: a device's file in a group, and a group's file on a device
for flags in "--device a,b -ts 3,1" "--device a,b -ts 1,1 -sm layer" "--device a,b -ts 1,1 --attention sequence"; do
    cp "$work/first" "$work/g"
    # shellcheck disable=SC2086 # a list of words
    run $flags -p "$begin" -n 30 --prompt-cache "$work/g"
    same "$work/plain" "$work/out" "$flags with a device's cache"
    counted 1 $((n - 1))
    rm "$work/g"
    # shellcheck disable=SC2086
    run $flags -p "$begin" -n 30 --prompt-cache "$work/g"
    run --device a -p "$begin" -n 30 --prompt-cache "$work/g"
    same "$work/plain" "$work/out" "a device with the cache of $flags"
    counted 1 $((n - 1))
done

# --- Files that do not fit
"$make_variant" "$model" "$work/q4.gguf" q4_0 2>"$work/err" || fail "q4_0: $(cat "$work/err")"
cp "$work/first" "$work/c"
refused "c: saved with another model; use that model, or remove the file" -m "$work/q4.gguf"
refused "c: saved with a cache of K f16, V f16, this one has K q8_0, V f16; set cache-type-k" -ctk q8_0
"$tandem" run --config "$work/x.ini" --device a -p "$begin" -n 4 -ctk q8_0 -ctv q8_0 --no-kv-rotate \
    --prompt-cache "$work/rotated" >"$work/out" 2>"$work/err" || fail "unrotated: $(cat "$work/err")"
cp "$work/rotated" "$work/c"
refused "c: saved without rotation; set kv-rotate = no, or remove the file" -ctk q8_0 -ctv q8_0
{ printf 'TDMSTAT9'; tail -c +9 "$work/first"; } >"$work/c"
refused "c: a state file of version 9, this program reads versions 1 to 3" -n 1
for text in 'GGUF, or so it says' hi; do
    printf %s "$text" >"$work/c"
    refused "c: not a state file" -n 1
done
for size in 0 7 8 60 200 5000 $(($(wc -c <"$work/first") - 1)); do
    head -c "$size" "$work/first" >"$work/c"
    refused "c: the file is truncated; remove it" -n 1
done
{ head -c 9000 "$work/first"; printf '\377\376'; tail -c +9003 "$work/first"; } >"$work/c"
refused "c: the file is damaged; remove it" -n 1
mkdir "$work/folder"
expect 1 "folder: a prompt cache must be a regular file" run -m "$model" -p x -n 1 -c 64 --prompt-cache "$work/folder"
# what cannot be written is refused before the prompt is read
expect 1 "cannot be written" run -m "$model" -p x -n 1 -c 64 --prompt-cache "$work/no/where"
ls "$work"/*.tmp >/dev/null 2>&1 && fail "left behind: $(ls "$work"/*.tmp)"

# --- A full disk: an error after the text; the older file stays
cp "$work/first" "$work/c"
(
    ulimit -f 8 2>/dev/null || exit 3
    "$tandem" run --config "$work/x.ini" --device a -p "$begin" -n 30 --prompt-cache "$work/c" \
        >"$work/out" 2>"$work/err"
    [ $? = 1 ] || exit 1
)
case $? in 0) ok ;; 3) echo "skipped: no limit on the size of files" ;; *) fail "full disk: $(cat "$work/err")" ;; esac
same "$work/c" "$work/first" "the older cache where there is no room for the new"
ls "$work"/*.tmp >/dev/null 2>&1 && fail "left behind: $(ls "$work"/*.tmp)"

# --- chat: /save and /load keep the cache
chat() {
    "$tandem" chat --config "$work/x.ini" --device a --template "$template" "$@" >"$work/out" \
        2>"$work/err" || fail "chat $*: $(cat "$work/err")"
}
says() { if grep -qF -e "$1" "$work/err"; then ok; else fail "no '$1' in: $(cat "$work/err")"; fi; }
printf 'Where is the dog?\nAnd the cat?\n' | chat -n 20 -sys "A story."
tail -n 1 "$work/out" >"$work/second"
printf 'Where is the dog?\n/save %s\n' "$work/talk" | chat -n 20 -sys "A story."
says "tokens saved as $work/talk.cache"
kept=$(sed -n 's/.*the cache of \([0-9]*\) tokens saved.*/\1/p' "$work/err")
printf '/load %s\nAnd the cat?\n/stats\n' "$work/talk" | chat -n 20
says "the cache of $kept tokens loaded from $work/talk.cache"
tail -n 1 "$work/out" >"$work/again"
same "$work/second" "$work/again" "a conversation with its cache"
there=$(sed -n 's/^prompt .* \([0-9]*\) were there already/\1/p' "$work/err")
[ "${there:-0}" -gt $((kept / 2)) ] && ok || fail "computed again: $(cat "$work/err")"
# in a group
printf '/load %s\nAnd the cat?\n/stats\n' "$work/talk" | chat --device a,b -ts 1,1 -n 20
tail -n 1 "$work/out" >"$work/again"
same "$work/second" "$work/again" "a conversation with its cache, in a group"
grep -q "; $there were there already" "$work/err" && ok || fail "in a group: $(cat "$work/err")"
# the file of messages alone, as older versions wrote it
mv "$work/talk.cache" "$work/away"
printf '/load %s\nAnd the cat?\n/stats\n' "$work/talk" | chat -n 20
tail -n 1 "$work/out" >"$work/again"
same "$work/second" "$work/again" "a conversation without its cache"
says "; 0 were there already"
grep -q "computed again" "$work/err" && fail "a cache that is not there is reported" || ok
# a cache of another type, and a damaged one: the conversation continues without it
mv "$work/away" "$work/talk.cache"
printf '/load %s\nAnd the cat?\n/stats\n' "$work/talk" | chat -ctk q8_0 -n 20
says "the conversation is computed again: $work/talk.cache: saved with a cache of K f16"
says "; 0 were there already"
head -c 5000 "$work/talk.cache" >"$work/cut" && mv "$work/cut" "$work/talk.cache"
printf '/load %s\nAnd the cat?\n/stats\n' "$work/talk" | chat -n 20
says "talk.cache: the file is truncated"
tail -n 1 "$work/out" >"$work/again"
same "$work/second" "$work/again" "a conversation with a damaged cache"

tally_end
