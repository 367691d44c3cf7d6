#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_group.sh: groups from the command line: the same text on one device and on any group of such
# devices, plans, profiles, the choice of `auto`, and mistakes.
#   test_group.sh TANDEM MODEL.gguf
set -u
tandem=$1 model=$2
. "$(dirname "$0")/../tally.sh"

cat >"$work/x.ini" <<END
model = $model
ctx-size = 256
[device a]
plugin = cpu
threads = 1
[device b]
plugin = cpu
threads = 1
[device c]
plugin = cpu
threads = 1
END
cp "$work/x.ini" "$work/groups.ini"
cat >>"$work/groups.ini" <<END
[group inner]
members = a, b
share = 3, 1
[group outer]
members = inner, c
share = 2, 1
timeout = 30
END
cp "$work/x.ini" "$work/self.ini"
printf '[group g]\nmembers = a, h\n[group h]\nmembers = b, g\n' >>"$work/self.ini"

# --- The same text, however the work is divided
text() {
    "$tandem" run -p "Once upon a time" -n 24 --quiet "$@" 2>"$work/err" || fail "$*: $(cat "$work/err")"
}
text --temp 0 --config "$work/x.ini" --device a >"$work/a"
[ "$(wc -c <"$work/a")" -gt 40 ] && ok || fail "one device: $(cat "$work/a")"
# Automatic shares take seconds to find, so they are used only where they are tested: with two
# members, with three, and with members that are groups.
for flags in "--device a,b" "--device a,b -ts 3,1" "--device a/b --tensor-split 3/1" "--device a,b -ts 0,1" \
    "--device a,b,c" "--device a,b,c -ts 5,2,1 --attention replicate" \
    "--device a,b,c -ts 5,2,1 --attention sequence" "--device a,b -ts 1,1 -sm layer" "--device a,b -sm none" \
    "--device a,b -ts 3,1 --check replicas" "--device a,b -ts 1,1 -ub 3 -b 5" \
    "--device a,b -ts 3,1 -md $model" "--device a,b -ts 1,1 -nkvo" \
    "--device a,b -ts 3,1 -ot ffn_up=cpu,attn_q=c" "--device a"; do
    # shellcheck disable=SC2086 # a list of words
    text --temp 0 --config "$work/x.ini" $flags >"$work/b"
    if cmp -s "$work/a" "$work/b"; then ok; else fail "$flags: $(cat "$work/b")"; fi
done
for flags in "" "--device inner" "--device outer -sm none" "--device inner,c"; do
    # shellcheck disable=SC2086
    text --temp 0 --config "$work/groups.ini" $flags >"$work/b"
    if cmp -s "$work/a" "$work/b"; then ok; else fail "groups $flags: $(cat "$work/b")"; fi
done
for flags in "--temp 1 --seed 4 -np 3" "--temp 0 --ignore-eos -c 64 -n 120 --context-shift --keep 4"; do
    # shellcheck disable=SC2086
    text --config "$work/x.ini" --device a $flags >"$work/one"
    # shellcheck disable=SC2086
    text --config "$work/x.ini" --device a,b -ts 3,1 $flags >"$work/b"
    if cmp -s "$work/one" "$work/b"; then ok; else fail "$flags: $(cat "$work/b")"; fi
done
"$tandem" logits --config "$work/x.ini" --device a --tokens 1-20 -o "$work/one.f32" >"$work/out" &&
    "$tandem" logits --config "$work/x.ini" --device a,b -ts 3,1 --tokens 1-20 -o "$work/two.f32" \
        >"$work/b" && cmp -s "$work/out" "$work/b" &&
    [ "$(wc -c <"$work/one.f32")" = "$(wc -c <"$work/two.f32")" ] && ok || fail "logits"

# --- plan: members, layouts, exchanges, speeds, and a recommendation
"$tandem" plan --config "$work/x.ini" --device a,b -ts 3,1 -ctk q8_0 -ctv q4_0 >"$work/out" 2>"$work/err" &&
    [ ! -s "$work/err" ] && ok || fail "plan: $(cat "$work/err")"
for word in "2 members" "75.0 %" "25.0 %" "together" "cut along axis 1" "whole on every member" \
    "cut by KV heads: 4" "in a step that generates a token" "transport" "a+b as configured" \
    "split = layer " "b alone" "It fits."; do
    grep -qF "$word" "$work/out" && ok || fail "plan: no '$word' in: $(cat "$work/out")"
done
grep -q "unknown" "$work/out" && fail "plan: a speed is unknown: $(cat "$work/out")"
grep -Eq "The group is slower: '[ab]' alone|The group is expected to generate" "$work/out" && ok ||
    fail "plan: no verdict in: $(cat "$work/out")"
"$tandem" plan --config "$work/groups.ini" >"$work/out" 2>"$work/err" && grep -q "^inner .* meta" "$work/out" &&
    ok || fail "plan of groups: $(cat "$work/out" "$work/err")"
"$tandem" plan --config "$work/x.ini" --device a,b -ts 1,1 --reserve 900000G >"$work/out" 2>"$work/err"
[ $? = 1 ] && grep -q "It does not fit: 'a' would need .* with the others in the host's memory" "$work/out" &&
    [ ! -s "$work/err" ] &&
    ok || fail "plan that does not fit: $(cat "$work/err")"
if command -v python3 >/dev/null; then
    "$tandem" plan --config "$work/x.ini" --device a,b -ts 3,1 --json | python3 -c '
import json, sys
plan = json.load(sys.stdin)
a, b = plan["members"]
assert plan["device"]["is_group"] and plan["fits"]
assert (a["name"], b["name"]) == ("a", "b") and a["share"] == 0.75 and b["share"] == 0.25
whole = a["weight_size"] + b["weight_size"] - a["replicated_size"]
assert abs(whole / plan["model"]["file_size"] - 1) < 0.01, whole
assert 2.5 < a["weight_size"] / b["weight_size"] < 3.5 and a["cache_size"] == 3 * b["cache_size"]
assert plan["exchanges"]["generation"]["count"] > 0 < plan["exchanges"]["generation"]["bytes"]
for rates in plan["tokens_per_second"].values():
    assert rates["generation"] > 0 and rates["prompt"] > 0
for m in (a, b):
    assert m["alone"]["generation"] > 0 and m["fits_alone"]
# the given rates (TANDEM_TEST_RATES)
assert (a["bandwidth"], b["bandwidth"]) == (4e10, 2e10)' && ok || fail "plan --json"
    (unset TANDEM_TEST_RATES; "$tandem" plan --config "$work/x.ini" --device a,b -ts 3,1 --json) | python3 -c '
import json, sys
for m in json.load(sys.stdin)["members"]:
    assert m["bandwidth"] > 0 and m["bandwidth"] not in (2e10, 4e10)' && ok || fail "plan: measured rates"
else
    echo "skipped: no python3 to read JSON with"
fi

# --- plan --write-share: the file has the shares that were found, and nothing else has changed
cp "$work/x.ini" "$work/auto.ini"
printf '# ours\n[ group  g ]   # here\nmembers = a, b\n  share=auto # to be found\ncheck = off\n' >>"$work/auto.ini"
printf '[group h]\nmembers = a, c\n' >>"$work/auto.ini"
for group in g h; do
    "$tandem" plan --config "$work/auto.ini" --device $group --write-share >"$work/out" 2>"$work/err" ||
        fail "--write-share $group: $(cat "$work/err")"
    grep -q "the share of \[group $group\] is written" "$work/err" && ok || fail "$(cat "$work/err")"
done
grep -v "^share = " "$work/auto.ini" >"$work/rest"
{ cat "$work/x.ini"; printf '# ours\n[ group  g ]   # here\nmembers = a, b\ncheck = off\n[group h]\nmembers = a, c\n'; } \
    >"$work/expected"
cmp -s "$work/rest" "$work/expected" && [ "$(grep -c '^share = [0-9.]*, [0-9.]*$' "$work/auto.ini")" = 2 ] && ok ||
    fail "--write-share: $(cat "$work/auto.ini")"
# a has twice the rates of b (TANDEM_TEST_RATES)
sed -n 's/^share = \([0-9.]*\), \([0-9.]*\)$/\1 \2/p' "$work/auto.ini" | head -n 1 >"$work/share"
awk '{ found = $1 / $2 > 1.5 && $1 / $2 < 3.5 } END { exit !found }' "$work/share" && ok ||
    fail "--write-share: $(cat "$work/share"), not about 2 : 1"
text --temp 0 --config "$work/auto.ini" --device g >"$work/b"
cmp -s "$work/a" "$work/b" && ok || fail "--write-share: other text"

# --- run --profile: a row for each member; in steady decoding nothing is built, planned or
# allocated, with and without drafts
for flags in "" "-md $model"; do
    # shellcheck disable=SC2086
    "$tandem" run --config "$work/x.ini" --device a,b -ts 3,1 -p "Once" -n 60 --ignore-eos --profile $flags \
        >"$work/out" 2>"$work/err"
    grep -Eq "^a  .* ms .* ms .* ms .* ms .* %" "$work/err" && grep -Eq "^b  .* ms .* %" "$work/err" &&
        grep -q "of generation" "$work/err" && ok || fail "profile: $(cat "$work/err")"
    sed -n '/per token when steady/,/^member/p' "$work/err" | grep -v "steady\|^member" >"$work/counters"
    # A draft takes one submission for each of at most 8 proposals, and one to check them.
    steady_counters 1 "$([ -z "$flags" ] && echo 1 || echo 9)" "$flags"
done

# --- bench: a group is one of several devices
"$tandem" bench -m "$model" --config "$work/x.ini" -dev a,a/b -p 8 -n 4 -r 1 >"$work/out" 2>"$work/err" &&
    [ "$(grep -c '| a+b ' "$work/out")" = 2 ] && [ "$(grep -c '| a  ' "$work/out")" = 2 ] && ok ||
    fail "bench: $(cat "$work/out" "$work/err")"

# --- auto: compares devices where there are several, and prints one line about it, but not with
# --quiet
"$tandem" run --config "$work/x.ini" -p "Once" -n 2 >"$work/out" 2>"$work/err" || fail "$(cat "$work/err")"
[ "$(grep -c '^device  ' "$work/err")" = 1 ] && ok || fail "auto: $(cat "$work/err")"
text --temp 0 --config "$work/x.ini" >"$work/b"
cmp -s "$work/a" "$work/b" && [ ! -s "$work/err" ] && ok || fail "auto --quiet: $(cat "$work/err")"
"$tandem" run -m "$model" -p "Once" -n 2 -c 64 >"$work/out" 2>"$work/err" && ! grep -q "^device " "$work/err" &&
    ok || fail "auto with one device: $(cat "$work/err")"
"$tandem" run --config "$work/x.ini" -sm none -p "Once" -n 2 >"$work/out" 2>"$work/err" &&
    grep -q "^device      'a': split is none" "$work/err" && ok || fail "auto -sm none: $(cat "$work/err")"

"$tandem" run --config "$work/x.ini" -ts 3,2,1 -p "Once" -n 2 >"$work/out" 2>"$work/err" &&
    grep -q "^device      all 3 devices as a group: shares are given" "$work/err" && ok ||
    fail "auto -ts: $(cat "$work/err")"
sed '/device a/a reserve = 900000G' "$work/x.ini" >"$work/full.ini"
"$tandem" run --config "$work/full.ini" -p "Once" -n 2 >"$work/out" 2>"$work/err" &&
    grep -q "^device      '[bc]': " "$work/err" && ok || fail "auto without memory on a: $(cat "$work/err")"

# A device that is not there leaves the others, and the line says which one it was.
sed '/^\[device c\]/,$d' "$work/x.ini" >"$work/gone.ini"
printf '[device gone]\nplugin = cpu\nindex = 7\n' >>"$work/gone.ini"
"$tandem" run --config "$work/gone.ini" -p Once -n 2 >"$work/out" 2>"$work/err" || fail "gone: $(cat "$work/err")"
grep -q "^device      'a': there is no group of all devices: .*'gone'" "$work/err" && ok ||
    fail "gone: $(cat "$work/err")"

# --- Mistakes: one line, before any device is opened
refused() {
    code=$1 word=$2
    shift 2
    "$tandem" "$@" >"$work/out" 2>"$work/err"
    found=$?
    without_progress "$work/err"
    [ $found = "$code" ] && [ "$(wc -l <"$work/err")" = 1 ] && grep -qF -e "$word" "$work/err" && ok ||
        fail "$*: $found: $(cat "$work/err")"
}
refused 1 "share = auto: the members have memory for 0 %" run --config "$work/x.ini" -p x --device a,b \
    --reserve 900000G
refused 2 "is not a [group NAME] of the" plan --quiet --config "$work/x.ini" --device a --write-share
refused 1 "directly or through others" run --config "$work/self.ini" -p x
refused 2 "1 number for the 2 members" plan --config "$work/x.ini" --device a,b -ts 1
refused 2 "no device 'd'; there are 'a', 'b', 'c', 'cpu0'" run --config "$work/x.ini" -p x --device a,d
refused 2 "expected one of tensor, layer, none" run --config "$work/x.ini" -p x --device a,b -sm row
refused 2 "expected a whole number from 1 to 86400" run --config "$work/x.ini" -p x --device a,b --timeout 0
sed 's/share = 2, 1/share = 0, 0/' "$work/groups.ini" >"$work/zero.ini"
refused 1 "not all 0" run --config "$work/zero.ini" -p x

# --- Weights on a group beside the device, or beside a group, that runs the model
for flags in "--device c -ot ffn_(up|down)=inner" "--device inner -ot attn_q=outer,token_embd=c" \
    "--device c -ot .=outer -nkvo"; do
    # shellcheck disable=SC2086 # a list of words
    text --temp 0 --config "$work/groups.ini" $flags >"$work/b"
    same "$work/a" "$work/b" "$flags"
done
"$tandem" plan --config "$work/groups.ini" --device c -ot "ffn_(up|down)=inner" >"$work/out" 2>"$work/err" &&
    grep -q "^inner  *meta " "$work/out" && ! grep -q "unknown" "$work/out" && ok ||
    fail "plan with weights on a group: $(cat "$work/out" "$work/err")"

tally_end
