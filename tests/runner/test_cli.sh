#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_cli.sh: the program from the command line: streams, exit codes, and one line and no leftover
# file for a failure.
#   test_cli.sh TANDEM MODEL.gguf SOURCE_ROOT FOLDER_OF_SHIM
set -u
case $1 in /*) tandem=$1 ;; *) tandem=$PWD/$1 ;; esac
model=$2 source=$3 shim=$4
. "$(dirname "$0")/../tally.sh"

greedy() { "$tandem" run -m "$model" -t 1 --temp 0 --quiet -c 256 "$@" 2>"$work/err"; }

# --- Help, versions, unknown words
expect 0 "tandem 0." --version
expect 0 "Commands" --help
expect 0 "usage: tandem run" help run
expect 0 "Commands" help help
expect 0 "usage: tandem run" run --help
expect 0 "usage: tandem bench" bench -h
expect 2 "did you mean 'run'?" rnu
expect 2 "unknown command 'frobnicate'" frobnicate
expect 2 "unknown command 'frobnicate'" help frobnicate
expect 2 "did you mean '--temp'?" run --tmep 0
expect 2 "expected a whole number from 1 to 1024" run -m "$model" -t 0
expect 2 "no model given" run -p x
expect 2 "no tokens given" logits -m "$model" -o "$work/x"
expect 2 "no output given" logits -m "$model" --tokens 1
expect 2 "pairs are needed" bench -m "$model" -pg 3
expect 2 "nothing to measure" bench -m "$model" -p 0 -n 0
expect 2 "-p, -n, -pg and -d ask for" bench -m "$model" -p 268435456 -d 1
"$tandem" >"$work/out" 2>"$work/err" && fail "no command: exit code 0"

# --- Generation: streams, and equal texts for equal requests
greedy -p "Once upon a time" -n 24 >"$work/a" || fail "run: $(cat "$work/err")"
[ -s "$work/err" ] && fail "quiet: $(cat "$work/err")"
case $(cat "$work/a") in "Once upon a time"?*) ok ;; *) fail "no prompt in: $(cat "$work/a")" ;; esac
printf 'Once upon a time' >"$work/prompt"
greedy -f "$work/prompt" -n 24 >"$work/b"; same "$work/a" "$work/b" "--file"
greedy -n 24 <"$work/prompt" >"$work/b"; same "$work/a" "$work/b" "standard input"
greedy -p "Once upon a time" -n 24 -ub 2 -b 3 >"$work/b"; same "$work/a" "$work/b" "small batches"
(printf 'Once upon a time'; greedy -p "Once upon a time" -n 24 --no-display-prompt) >"$work/b"
same "$work/a" "$work/b" "--no-display-prompt"
greedy -p "Once upon a time" -n 24 -np 3 >"$work/b"
cat "$work/a" "$work/a" "$work/a" >"$work/c"; same "$work/b" "$work/c" "three sequences"
greedy -p 'a\nb' -n 1 >"$work/b"; [ "$(wc -l <"$work/b")" -ge 2 ] && ok || fail "--escape"
greedy -p 'a\nb' -n 0 --no-escape >"$work/b"
[ "$(cat "$work/b")" = 'a\nb' ] && ok || fail "--no-escape: $(cat "$work/b")"
for cut in "--top-p 0" "--top-k 1" "--min-p 1"; do
    # shellcheck disable=SC2086 # a flag and its value
    greedy -p "Once upon a time" -n 24 --temp 3 --top-k 0 --min-p 0 $cut >"$work/b"
    same "$work/a" "$work/b" "$cut"
done
for seed in 7 7 8; do
    "$tandem" run -m "$model" -p "Once" -n 40 -t 1 --seed $seed --temp 1.5 -c 256 >"$work/s$seed.new" \
        2>"$work/err"
    grep -q "seed $seed" "$work/err" || fail "seed $seed is not printed"
    if [ -e "$work/s$seed" ]; then same "$work/s$seed" "$work/s$seed.new" "same seed"; fi
    mv "$work/s$seed.new" "$work/s$seed"
done
cmp -s "$work/s7" "$work/s8" && fail "another seed gives the same text"
grep -q "t/s" "$work/err" && ok || fail "no timings: $(cat "$work/err")"

# --- Text that follows a grammar, in every sequence, and what is wrong with a grammar
greedy -p "Once upon a time" -n 40 --no-display-prompt -np 2 --grammar 'root ::= " the " ("cat" | "dog"){2} "."' \
    >"$work/b"
[ "$(grep -cE '^ the (cat|dog){2}\.$' "$work/b")" = 2 ] && ok || fail "grammar: $(cat "$work/b")"
printf 'root ::= [0-9]{5} "\\n"\n' >"$work/five.gbnf"
greedy -p "Once" --no-display-prompt --temp 2 --grammar-file "$work/five.gbnf" >"$work/b"
grep -qxE '[0-9]{5}' "$work/b" && ok || fail "grammar-file: $(cat "$work/b")"
expect 2 "grammar, line 1, column 10: the literal has no closing" run -m "$model" -p x --grammar 'root ::= "a'
expect 1 "cannot be read" run -m "$model" -p x --grammar-file "$work/none.gbnf"
expect 2 "exclude each other" run -m "$model" -p x --grammar 'root ::= "a"' -j '{}'
expect 2 "leave out ignore-eos" run -m "$model" -p x --grammar 'root ::= "a"' --ignore-eos
schema='{"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "minimum": 3, "maximum": 99}}, "required": ["name", "age"]}'
if greedy -p "A child: " --no-display-prompt -n 200 -j "$schema" >"$work/b"; then
    python3 -c 'import json, sys; v = json.load(sys.stdin); sys.exit(not (len(v["name"]) <= 12 and 3 <= v["age"] <= 99))' \
        <"$work/b" && ok || fail "json-schema: $(cat "$work/b")"
    expect 1 "'not' is not supported" run -m "$model" -p x -j '{"not": {}}'
else
    grep -q "built without jansson" "$work/err" && ok || fail "json-schema: $(cat "$work/err")"
fi

# --- Steps of sampling
greedy -p "Once upon a time" -n 24 --samplers "top_k;temperature" >"$work/b"; same "$work/a" "$work/b" "--samplers"
greedy -p "Once upon a time" -n 24 --temp 1 --seed 3 --top-k 0 --samplers "top_k;temperature" >"$work/b"
greedy -p "Once upon a time" -n 24 --temp 1 --seed 3 --top-k -1 --samplers "topk;Temp" >"$work/c"
same "$work/b" "$work/c" "other names of steps, and --top-k -1"
greedy -p "Once upon a time" -n 24 --mirostat 2 --dry-multiplier 0.8 >"$work/b"; same "$work/a" "$work/b" "mirostat at temperature 0"
greedy -p "Once upon a time" -n 60 >"$work/b"
greedy -p "Once upon a time" -n 60 --dry-multiplier 5 --dry-allowed-length 1 --presence-penalty 2 >"$work/c"
cmp -s "$work/b" "$work/c" && fail "penalties change nothing" || ok
expect 2 "'12' is not a token number" run -m "$model" -p x -l 12
expect 2 "'top' is no step" run -m "$model" -p x --samplers top
expect 2 "a breaker of DRY has 300 bytes: it may have at most 256" run -m "$model" -p x \
    --dry-sequence-breaker "$(printf '%0300d' 0)"

# --- Tokens that the file suppresses: here all with an 'e'. A second key fills up to the alignment.
cat >"$work/suppress.py" <<'EOF'
import struct
import sys

data = open(sys.argv[1], "rb").read()
name = b"tokenizer.ggml.tokens"
at = data.index(name) + len(name) + 8
n = struct.unpack_from("<Q", data, at)[0]
at += 8
ids = []
for i in range(n):
    size = struct.unpack_from("<Q", data, at)[0]
    if b"e" in data[at + 8:at + 8 + size]:
        ids.append(i)
    at += 8 + size


def text(s):
    return struct.pack("<Q", len(s)) + s


keys = text(b"tokenizer.ggml.suppress_tokens") + struct.pack("<IIQ", 9, 5, len(ids))
keys += struct.pack("<%di" % len(ids), *ids) + text(b"fill") + struct.pack("<I", 8)
keys += text(b"x" * (-(len(keys) + 8) % 32))
n_tensor, n_key = struct.unpack_from("<QQ", data, 8)
with open(sys.argv[2], "wb") as f:
    f.write(data[:8] + struct.pack("<QQ", n_tensor, n_key + 2) + keys + data[24:])
EOF
python3 "$work/suppress.py" "$model" "$work/suppressed.gguf"
greedy -p "Once upon a time" -n 40 --no-display-prompt >"$work/free"
grep -q e "$work/free" && ok || fail "a text without the letter: $(cat "$work/free")"
for flags in "" "-np 2" "--ignore-eos"; do
    # shellcheck disable=SC2086 # flags and their values
    greedy -p "Once upon a time" -n 40 --no-display-prompt -m "$work/suppressed.gguf" $flags >"$work/free"
    if [ ! -s "$work/free" ] || grep -q e "$work/free"; then
        fail "suppressed tokens, $flags: $(cat "$work/free" "$work/err")"
    else
        ok
    fi
done

# --- A context that is full or shifted; prompts that do not fit
"$tandem" run -m "$model" -t 1 -p "Once" -c 32 -n 100 --ignore-eos --temp 0 >"$work/out" 2>"$work/err"
grep -q "the context is full" "$work/err" && ok || fail "full: $(cat "$work/err")"
"$tandem" run -m "$model" -t 1 -p "Once" -c 32 -n 100 --ignore-eos --temp 0 --context-shift --keep 2 \
    >"$work/out" 2>"$work/err"
grep -q "100 tokens in" "$work/err" && grep -q "shifted" "$work/err" && ok ||
    fail "shift: $(cat "$work/err")"
"$tandem" run -m "$model" -t 1 -p "Once upon a time" -c 60 -n 80 --ignore-eos --context-shift -np 3 \
    >"$work/out" 2>"$work/err"
grep -q "240 tokens in" "$work/err" && ok || fail "shift of three: $(cat "$work/err")"
expect 1 "raise ctx-size" run -m "$model" -p "Once upon a time there was a little dog" -c 4
expect 1 "each of the 8 sequences has room for 4" run -m "$model" -c 32 -np 8 --context-shift \
    -p "Once upon a time there was a little dog"

# --- In steady decoding nothing is built, planned or allocated, and a token is one submission
"$tandem" run -m "$model" -p "Once" -n 32 --ignore-eos -c 128 --profile >"$work/out" 2>"$work/err"
sed -n '/per token when steady/,$p' "$work/err" | tail -n +2 >"$work/counters"
steady_counters 1 1 "of one device"

# --- What cannot be read or written
expect 1 "No such file" run -m "$work/none.gguf" -p x
expect 1 "$work" run -m "$work" -p x
expect 1 "cannot be read" run -m "$model" -f "$work/none"
expect 1 "cannot be read" run -m "$model" -f "$work"
head -c 100000 "$model" >"$work/cut.gguf"
expect 1 "cut.gguf" run -m "$work/cut.gguf" -p x
head -c 1 "$model" >"$work/cut.gguf"
expect 1 "cut.gguf" tokenize -m "$work/cut.gguf" -p x
expect 1 "none.ini" run -m "$model" -p x --config "$work/none.ini"
expect 2 "no device 'gpu7'" run -m "$model" -p x --device gpu7
expect 0 "" run -m "$model" -p x -n 1 -c 64 --device cpu0
expect 1 "reserve" run -m "$model" -p x --reserve 900000G
if [ -w /dev/full ]; then
    "$tandem" run -m "$model" -p x -n 4 -c 64 --quiet >/dev/full 2>"$work/err"
    [ $? = 1 ] && grep -q "standard output" "$work/err" && ok || fail "full disk: $(cat "$work/err")"
    "$tandem" tokenize -m "$model" -p x >/dev/full 2>"$work/err"
    [ $? = 1 ] && grep -q "standard output" "$work/err" && ok || fail "full disk: $(cat "$work/err")"
    expect 1 "No space left" logits -m "$model" --tokens 1,2 -o /dev/full
fi
{ "$tandem" run -m "$model" -p x -n 100 -c 128 --ignore-eos --quiet 2>"$work/err"; echo $? \
    >"$work/code"; } | head -c 1 >"$work/out"
[ "$(cat "$work/code")" = 1 ] && grep -q "Broken pipe" "$work/err" && ok ||
    fail "closed pipe: $(cat "$work/code" "$work/err")"

# --- logits: a whole file or none
"$tandem" logits -m "$model" --tokens 1,2,3 -o "$work/l.f32" >"$work/out" || fail "logits"
read -r n_tok n_vocab <"$work/out"
[ "$n_tok" = 3 ] && [ "$(wc -c <"$work/l.f32")" = $((4 * n_tok * n_vocab)) ] && ok ||
    fail "logits: $(cat "$work/out"), $(wc -c <"$work/l.f32") bytes"
printf '1 2\n3\n' >"$work/ids"
"$tandem" logits -m "$model" --tokens @"$work/ids" -o "$work/m.f32" >"$work/out"
same "$work/l.f32" "$work/m.f32" "--tokens @FILE"
# longer than a command line may be, with every separator
seq 1 70000 | awk '{ printf "%d%s", $1 % 1000, NR % 3 == 0 ? ",\t" : NR % 3 == 1 ? "\r\n" : " , " }' >"$work/ids"
[ "$(wc -c <"$work/ids")" -gt 262144 ] && ok || fail "a list of $(wc -c <"$work/ids") bytes"
expect 1 "too small for 70000 tokens" logits -m "$model" --tokens @"$work/ids" -c 64 -o "$work/m.f32"
{ cat "$work/ids"; echo "12x 5"; } >"$work/bad"
expect 2 "entry 70001 is '12x'; expected whole numbers" logits -m "$model" --tokens @"$work/bad" -o "$work/m.f32"
printf '1, -2' >"$work/bad"
expect 2 "entry 2 is '-2'; expected whole numbers" logits -m "$model" --tokens @"$work/bad" -o "$work/m.f32"
printf '1,\n7-3,4' >"$work/bad"
expect 2 "entry 2 is '7-3'; expected whole numbers" logits -m "$model" --tokens @"$work/bad" -o "$work/m.f32"
printf ' \n,, \n' >"$work/bad"
expect 2 "entry 1 is ''; expected whole numbers" logits -m "$model" --tokens @"$work/bad" -o "$work/m.f32"
printf '1 2\0003' >"$work/bad"
expect 2 "not a list of numbers for 'tokens'" logits -m "$model" --tokens @"$work/bad" -o "$work/m.f32"
printf '1 2 3 99999' >"$work/bad"
expect 2 "entry 4, id 99999, is not in the vocabulary" logits -m "$model" --tokens @"$work/bad" -o "$work/m.f32"
expect 2 "entry 2 is 'x'; expected whole numbers" tokenize -m "$model" --decode 1,x
echo older >"$work/far.f32"; ln -s far.f32 "$work/near.f32"
"$tandem" logits -m "$model" --tokens 1,2,3 -o "$work/near.f32" >"$work/out"
[ -L "$work/near.f32" ] && ok || fail "a link was replaced by the file"
same "$work/l.f32" "$work/far.f32" "where a link leads"
expect 2 "bad value '1,x' for 'tokens': entry 2 is 'x'" logits -m "$model" --tokens 1,x -o "$work/m.f32"
expect 1 "cannot be read" logits -m "$model" --tokens @"$work/none" -o "$work/m.f32"
expect 2 "is not in the vocabulary" logits -m "$model" --tokens 1,$n_vocab -o "$work/m.f32"
expect 1 "cannot be written" logits -m "$model" --tokens 1 -o "$work/no/folder"
echo "somebody's" >"$work/m.f32.tmp"; cp "$work/m.f32.tmp" "$work/kept"
expect 1 "too small for 3 tokens" logits -m "$model" --tokens 1,2,3 -c 2 -o "$work/m.f32"
(
    ulimit -f 1 2>/dev/null || exit 3
    "$tandem" logits -m "$model" --tokens 1-40 -o "$work/m.f32" >"$work/out" 2>"$work/err"
    [ $? = 1 ] || exit 1
)
case $? in 0) ok ;; 3) echo "skipped: no limit on the size of files" ;; *) fail "file too large" ;; esac
same "$work/l.f32" "$work/m.f32" "the older file after a failure"
same "$work/m.f32.tmp" "$work/kept" "somebody's own .tmp"; rm "$work/m.f32.tmp"
ls "$work"/*.tmp >/dev/null 2>&1 && fail "left behind: $(ls "$work"/*.tmp)"

"$tandem" logits -m "$model" --tokens 1,2,3 -o "$work/m.f32" >&- 2>"$work/err"
[ $? = 1 ] && grep -q "standard output" "$work/err" && ok || fail "closed output: $(cat "$work/err")"
same "$work/l.f32" "$work/m.f32" "a file written while standard output is closed"

# --- tokenize, in both directions
text='The cat said: "Hello, 123 wörld!" '
"$tandem" tokenize -m "$model" -p "$text" --ids >"$work/ids" && "$tandem" tokenize -m "$model" \
    --decode @"$work/ids" >"$work/out"
[ "$(cat "$work/out")" = "$text" ] && ok || fail "tokenize: $(cat "$work/ids" "$work/out")"
n=$(tr ',' '\n' <"$work/ids" | wc -l)
expect 0 "$n tokens" tokenize -m "$model" -p "$text" --show-count
expect 2 "999999" tokenize -m "$model" --decode 999999
expect 2 "give one of them" tokenize -m "$model" --decode 5 -p x
expect 2 "give one of them" tokenize -m "$model" --decode 5 -f "$work/ids"

# --- bench: rows and forms
bench() { "$tandem" bench -m "$model" -p 8 -n 4 -pg 8,4 -r 2 "$@" 2>"$work/err"; }
bench --no-limits -d 0,16 -ctk f16,q8_0 -t 1 >"$work/out" || fail "bench: $(cat "$work/err")"
[ "$(wc -l <"$work/out")" = 14 ] && ok || fail "bench: $(cat "$work/out")"
for word in "pp8 |" "tg4 |" "pp8+tg4 |" "pp8 @ d16 |" "pp8+tg4 @ d16 |" "type_k" " ± "; do
    grep -qF "$word" "$work/out" && ok || fail "bench: no '$word' in: $(cat "$work/out")"
done
grep -q "n_ubatch" "$work/out" && fail "bench: a column at its default"
bench -t 1 >"$work/out" || fail "bench: $(cat "$work/err")"
[ "$(grep -c ' % bw |$\| % int8 |$\| % f32 |$\|  - |$' "$work/out")" = 3 ] && ok ||
    fail "bench: no shares of the limits: $(cat "$work/out")"
bench --no-limits -t 1 >"$work/out"
grep -q 't/s |$' "$work/out" && ! grep -q " limit |" "$work/out" && ok ||
    fail "bench --no-limits: $(cat "$work/out")"
bench --no-limits -o csv >"$work/out"
[ "$(wc -l <"$work/out")" = 4 ] && grep -q '"avg_ts"' "$work/out" && ok || fail "csv"
if command -v python3 >/dev/null; then
    # one thread, so that no other work can keep threads from running at once: nothing is unknown then
    bench -o json -t 1 | python3 -c '
import json, statistics, sys
rows = json.load(sys.stdin)
assert [(r["n_prompt"], r["n_gen"]) for r in rows] == [(8, 0), (0, 4), (8, 4)]
assert all(len(r["samples_ns"]) == 2 and r["avg_ts"] > 0 for r in rows)
for r in rows:
    assert r["load_ns"] > 0 and r["int8_peak"] > 0 and r["f32_peak"] > 0
    if r["limit_kind"] != "":
        assert r["limit_kind"] in ("bw", "int8", "f32") and r["limit_ts"] > 0
        pairs = [(t, l) for t, l in zip(r["samples_ts"], r["samples_limit_ts"]) if l > 0]
        assert abs(statistics.median(l for t, l in pairs) / r["limit_ts"] - 1) < 1e-5
        # six decimals are printed, of a share that may be small on a busy machine
        share = r["limit_share"]
        assert abs(statistics.median(t / l for t, l in pairs) - share) < 1e-6 + 1e-5 * share' && ok || fail "json"
    bench --no-limits -o jsonl | python3 -c '
import json, sys
assert len([json.loads(line) for line in sys.stdin]) == 3' && ok || fail "jsonl"
else
    echo "skipped: no python3 to read JSON with"
fi

# --- plan of one device: nothing is loaded; what does not fit is named
"$tandem" plan -m "$model" -c 64 -ctk q8_0 >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ] && ok ||
    fail "plan: $(cat "$work/err")"
for word in "64 tokens" "K q8_0, V f16" "cpu0" "blk.*.attn_q.weight" "It fits."; do
    grep -qF "$word" "$work/out" && ok || fail "plan: no '$word' in: $(cat "$work/out")"
done
"$tandem" plan -m "$model" --reserve 900000G >"$work/out" 2>"$work/err"
[ $? = 1 ] && grep -q "It does not fit: 'cpu0' would need" "$work/out" && [ ! -s "$work/err" ] && ok || fail "plan: $(cat "$work/out" "$work/err")"
expect 2 "no model given" plan
expect 1 "No such file" plan -m "$work/none.gguf"
if command -v python3 >/dev/null; then
    "$tandem" plan -m "$model" -c 64 --json | python3 -c '
import json, sys
plan = json.load(sys.stdin)
assert plan["fits"] is True and plan["context"]["n_ctx"] == 64
(m,) = plan["members"]
assert m["name"] == "cpu0" and m["share"] == 1 and m["weight_size"] >= plan["model"]["file_size"]
assert m["memory_after"] == m["memory_free"] - m["weight_size"] - m["cache_size"] - m["compute_size"]
assert sum(t["count"] for t in plan["tensors"]) > 10' && ok || fail "plan --json"
else
    echo "skipped: no python3 to read JSON with"
fi

# --- devices: a plugin that fails is reported, and the others are listed
expect 0 "cpu0" devices
printf '[device near]\nplugin = cpu\nthreads = 3\n[device far]\nplugin = cpu\nindex = 9\n' >"$work/sections.ini"
expect 0 "device 'far': plugin cpu has no device 9" devices --config "$work/sections.ini"
grep -q "^near  *cpu  *0 .* 3 threads" "$work/out" && ok || fail "devices without the sections of a file"
mkdir "$work/plugins"
echo "no plugin" >"$work/plugins/broken.so"
expect 0 "broken.so" devices --plugin-path "$work/plugins"
grep -q "cpu0" "$work/out" && ok || fail "a broken plugin hides the others"
cp "$work/plugins/broken.so" "$work/plugins/cpu.so"
printf '[device a]\nplugin = cpu\n' >"$work/one.ini"
expect 1 "plugins/cpu.so" run -m "$model" -p x --config "$work/one.ini" --plugin-path "$work/plugins"

# --- Configuration: from any folder; the names in groups are checked before anything is opened
(cd / && "$tandem" run --config "$source/conf/demo.ini" -p "Once" -n 2 --quiet) >"$work/out" \
    2>"$work/err" && ok || fail "conf/demo.ini: $(cat "$work/err")"
printf 'model = %s\n[device a]\nplugin = cpu\nthreads = 1\n[device b]\nplugin = cpu\n[group ab]\nmembers = a, b\n' \
    "$model" >"$work/group.ini"
expect 0 "" run --config "$work/group.ini" -p x -n 1 -c 64 --device b
expect 0 "" run --config "$work/group.ini" -p x -n 1 -c 64 -sm none
expect 2 "3 numbers for the 2 members" run --config "$work/group.ini" -p x -ts 1,2,3
expect 2 "did you mean 'cpu0'?" run -m "$model" -p x --device cpu0,cup0
expect 2 "bad value 'a,a' for 'device': expected names separated by ',', none of them twice" run -m "$model" -p x --device a,a
sed 's/a, b/a, bb/' "$work/group.ini" >"$work/member.ini"
expect 1 "member.ini:8: members of [group ab]: no device 'bb'" run --config "$work/member.ini" \
    -p x
expect 0 "" run --config "$work/member.ini" -p x -n 1 -c 64 --device b
printf '[device a]\nplugin = nope\n' >"$work/nope.ini"
expect 1 "nope.so" run --config "$work/nope.ini" -m "$model" -p x

# --- override-tensor and kv-offload: the same text wherever weights are; unknown words are reported
printf '[device a]\nplugin = cpu\nthreads = 1\n[device b]\nplugin = cpu\nthreads = 1\n' >"$work/two.ini"
greedy -p "Once upon a time" -n 24 --config "$work/two.ini" --device a \
    -ot 'ffn_(up|gate)=b,\.[12]\.attn=cpu' -ot 'token_embd=b' -nkvo >"$work/b" || fail "-ot: $(cat "$work/err")"
same "$work/a" "$work/b" "-ot and -nkvo"
"$tandem" plan -m "$model" --config "$work/two.ini" --device a -ot 'ffn_(up|gate)=b' >"$work/out" \
    2>"$work/err" && grep -q "override-tensor ffn_(up|gate): 8 tensors on 'b'" "$work/out" && ok ||
    fail "plan -ot: $(cat "$work/out" "$work/err")"
expect 2 "'ffn' is not REGEX=DEVICE" run -m "$model" -p x -ot ffn
expect 2 "'f(' is not a regular expression: missing closing parenthesis" run -m "$model" -p x -ot 'f(=cpu'
expect 2 "'^(.+)+[#!]' cannot be matched with '" run -m "$model" -p x \
    -ot '^(.+)+[#!]=cpu'
expect 2 "no device 'gpu0'; there are 'cpu0'" run -m "$model" -p x -ot 'ffn=gpu0'
expect 0 "'zzz' applies to no tensor" run -m "$model" -p x -n 1 -c 64 -ot 'zzz=CPU'
expect 2 "unknown flag '-nx'" run -m "$model" -nx

# --- Ctrl-C: a clean end, with timings. The file is emptied before: the loop must not see the
# text of an earlier run, and send the signal before there is a handler.
: >"$work/out"
"$tandem" run -m "$model" -p "Once" -c 64 --ignore-eos --context-shift >"$work/out" 2>"$work/err" &
pid=$!
i=0
while [ "$(wc -c <"$work/out")" -lt 40 ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
kill -INT $pid
await_end $pid
[ $code = 130 ] && grep -q "interrupted" "$work/err" && grep -q "t/s" "$work/err" && ok ||
    fail "Ctrl-C: exit code $code: $(cat "$work/err")"

# --- The same when a terminal closes, and for Ctrl-C while a pipe for the prompt has no writer.
# Under nohup the signal is ignored, and child processes inherit that.
: >"$work/out"
env --default-signal=HUP "$tandem" run -m "$model" -p "Once" -c 64 --ignore-eos --context-shift \
    >"$work/out" 2>"$work/err" &
pid=$!
i=0
while [ "$(wc -c <"$work/out")" -lt 40 ] && [ $i -lt 600 ]; do sleep 0.1; i=$((i + 1)); done
kill -HUP $pid
await_end $pid
[ $code = 129 ] && grep -q "interrupted" "$work/err" && ok || fail "SIGHUP: exit code $code: $(cat "$work/err")"
mkfifo "$work/pipe"
"$tandem" run -m "$model" -f "$work/pipe" >"$work/out" 2>"$work/err" &
pid=$!
i=0
while kill -0 $pid 2>/dev/null && [ $i -lt 100 ]; do # again, should it not have been there yet
    sleep 0.5
    kill -INT $pid 2>/dev/null
    i=$((i + 1))
done
await_end $pid
[ $code = 130 ] && [ ! -s "$work/out" ] && ok || fail "Ctrl-C at a pipe: exit code $code: $(cat "$work/err")"

# --- Folders of plugins that do not exist: an error where this command names them; a warning where
# the environment does, since many programs share it
expect 1 "plugin-path: folder $work/none cannot be read: No such file" devices --plugin-path "$work/none"
expect 1 "plugin-path: folder $work/ids cannot be read" run -m "$model" -p x --plugin-path "$work:$work/ids"
printf 'model = %s\nplugin-path = none\n[device a]\nplugin = cpu\n' "$model" >"$work/folder.ini"
expect 1 "$work/none cannot be read" plan --config "$work/folder.ini"
environment=$TANDEM_PLUGIN_PATH
TANDEM_PLUGIN_PATH=$work/none:$environment
expect 0 "TANDEM_PLUGIN_PATH: folder $work/none cannot be read" devices
[ "$(wc -l <"$work/err")" = 1 ] && ok || fail "told more than once: $(cat "$work/err")"
expect 0 "$work/none cannot be read" run --config "$work/one.ini" -m "$model" -p x -n 1 -c 64
TANDEM_PLUGIN_PATH=$environment

# --- Ctrl-C ends a batch of many steps between two of them
"$tandem" bench -m "$model" -t 1 -p 100000 -b 100000 -ub 1 -n 0 -r 1 --no-limits >"$work/out" 2>"$work/err" &
pid=$!
await_handler $pid
await_work $pid
kill -INT $pid
began=$(date +%s)
await_end $pid
[ $code = 130 ] && [ $(($(date +%s) - began)) -lt 60 ] && ok || # the whole batch takes several minutes
    fail "Ctrl-C in bench: exit code $code, $(($(date +%s) - began)) s later: $(cat "$work/err")"

# --- Ctrl-C while bench measures the limits of the device: before the first repetition, and after the
# last one, when the next thing would be the row
for n in 1 2; do
    TANDEM_PLUGIN_PATH=$shim TANDEM_TEST_LIMITS="1e10,1e12,1e11,$n" "$tandem" bench -m "$model" -t 1 -p 0 -n 1 \
        -r 1 --no-warmup -o csv >"$work/out" 2>"$work/err"
    code=$?
    [ $code = 130 ] && [ "$(wc -l <"$work/out")" -le 1 ] && ok ||
        fail "Ctrl-C at limits $n: exit code $code: $(cat "$work/out" "$work/err")"
done

tally_end
