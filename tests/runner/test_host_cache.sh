#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_host_cache.sh: kv-offload = no on devices that have memory of their own
# (tests/plugins/shims): the same text on one device, in groups and with a draft model. The plan
# shows where the cache is and which bytes are transferred for it.
#   test_host_cache.sh TANDEM MODEL.gguf
set -u
tandem=$1 model=$2
. "$(dirname "$0")/../tally.sh"

cat >"$work/x.ini" <<END
model = $model
ctx-size = 256
[device a]
plugin = away
threads = 1
[device b]
plugin = away
threads = 1
[device c]
plugin = cpu
threads = 1
[group inner]
members = a, b
share = 3, 1
[group mixed]
members = a, c
share = 1, 1
END

# --- The same text wherever the cache is
text() {
    "$tandem" run -p "Once upon a time" -n 24 --temp 0 --quiet --config "$work/x.ini" "$@" 2>"$work/err" ||
        fail "$*: $(cat "$work/err")"
    [ ! -s "$work/err" ] || fail "$*: $(cat "$work/err")"
}
text --device c >"$work/a"
[ "$(wc -c <"$work/a")" -gt 40 ] && ok || fail "one device: $(cat "$work/a")"
for flags in "--device a" "--device a -md $model" "--device a -ot ffn_up=cpu" "--device a,b -ts 1,1" \
    "--device a,b,c -ts 5,0,1 --attention replicate" "--device a,b,c -ts 5,2,1 --attention sequence" \
    "--device a,b -ts 3,1 -md $model" "--device a,b -ts 3,1 -ot attn_q=c" "--device inner,c -ts 2,1" \
    "--device a,b -ts 1,1 -sm layer" "--device a,c -ts auto"; do
    # shellcheck disable=SC2086 # a list of words
    text $flags -nkvo >"$work/b"
    if cmp -s "$work/a" "$work/b"; then ok; else fail "$flags -nkvo: $(cat "$work/b")"; fi
done

# --- plan: the cache is cut in the same way, and is in the host's memory
plan() {
    "$tandem" plan --config "$work/x.ini" "$@" >"$work/out" 2>"$work/err" && [ ! -s "$work/err" ] ||
        fail "plan $*: $(cat "$work/err")"
}
shows() {
    for word in "$@"; do
        grep -qF "$word" "$work/out" && ok || fail "no '$word' in: $(cat "$work/out")"
    done
}
plan --device a,b -ts 3,1 -nkvo
shows "cut by KV heads: 4, in the host's memory" "host memory" "a: " "of cache in the host's memory; " \
    "to the CPU and back in a step that generates a token" "b: " "expected, without the host" \
    "do not include the CPU's work on caches"
plan --device a,b -ts 3,1
grep -Eq "host's memory|to the CPU|^host" "$work/out" && fail "kv-offload = yes: $(cat "$work/out")" || ok
plan --device a -nkvo
shows "whole on 'cpu (host)'" "to the CPU and back in a step that generates a token" \
    "the speeds above include that."
grep -q "without the host" "$work/out" && fail "plan --device a -nkvo: $(cat "$work/out")" || ok
plan --device a,b -ts 3,1 -ot ffn_up=c
shows "the speeds of members alone do not include that."
plan --device c -nkvo
shows "whole, in the host's memory"
if command -v python3 >/dev/null; then
    for flags in "-nkvo" "-kvo"; do
        "$tandem" plan --config "$work/x.ini" --device a,b,c -ts 2,1,1 --json $flags >"$work/$flags.json" ||
            fail "plan --json $flags"
    done
    python3 - "$work/-nkvo.json" "$work/-kvo.json" <<'END' && ok || fail "plan --json"
import json, sys
there, here = (json.load(open(path)) for path in sys.argv[1:3])
assert there["cache_in_host"] and not here["cache_in_host"]
assert there["exchanges"] == here["exchanges"] or all(
    there["exchanges"][k][f] == here["exchanges"][k][f]
    for k in ("generation", "prompt") for f in ("count", "relayouts", "bytes"))
a, b, c, host = there["members"]
assert [m["name"] for m in there["members"]] == ["a", "b", "c", "host memory"]
assert [m["name"] for m in here["members"]] == ["a", "b", "c"]
for m, was in zip((a, b), here["members"]):
    assert m["cache_size"] == 0 and m["host_cache_size"] == was["cache_size"] > 0
    assert m["weight_size"] == was["weight_size"]
    assert 0 < m["crossing_bytes"]["generation"] < m["crossing_bytes"]["prompt"]
    assert was["host_cache_size"] == was["crossing_bytes"]["generation"] == 0
assert c["cache_size"] == here["members"][2]["cache_size"] and c["crossing_bytes"]["prompt"] == 0
assert host["cache_size"] == a["host_cache_size"] + b["host_cache_size"] and host["plugin"] == "cpu"
assert host["memory_after"] == c["memory_after"]  # one memory
assert there["speeds_exclude_host_cache"] and not here["speeds_exclude_host_cache"]
END
    # Devices that take turns: their speed is known, and less than that of one that has it all.
    "$tandem" plan --config "$work/x.ini" --device c -ot "ffn_(up|gate|down)=a" --json >"$work/turns.json" &&
        "$tandem" plan --config "$work/x.ini" --device c --json >"$work/one.json" || fail "plan --json -ot"
    python3 - "$work/turns.json" "$work/one.json" <<'END' && ok || fail "plan -ot: speeds"
import json, sys
turns, one = (json.load(open(path))["tokens_per_second"] for path in sys.argv[1:3])
# The rates of both devices are given (TANDEM_TEST_RATES), and are the same.
assert 0 < turns["configured"]["generation"] < one["configured"]["generation"], (turns, one)
assert turns["configured"]["prompt"] > 0 and turns["layer"]["generation"] is None
END
    # A member that is a group reports which of its own members have their caches in the host's
    # memory: all of them, or one of two.
    for device in "inner,c" "mixed,b"; do
        for flags in "-nkvo" "-kvo"; do
            "$tandem" plan --config "$work/x.ini" --device $device -ts 2,1 --json $flags \
                >"$work/$device$flags.json" || fail "plan --json $device $flags"
        done
        python3 - "$work/$device-nkvo.json" "$work/$device-kvo.json" $device <<'END' && ok || fail "plan $device"
import json, sys
there, here = ({m["name"]: m for m in json.load(open(path))["members"]} for path in sys.argv[1:3])
for name in sys.argv[3].split(","):
    m, was = there[name], here[name]
    assert was["host_cache_size"] == 0 and m["cache_size"] + m["host_cache_size"] == was["cache_size"] > 0
    if name == "mixed":
        assert m["host_cache_size"] * 2 == was["cache_size"]
    else:
        assert m["host_cache_size"] == (0 if name == "c" else was["cache_size"])
    assert m["weight_size"] == was["weight_size"]
assert there["host memory"]["cache_size"] == sum(m["host_cache_size"] for m in there.values())
END
    done
fi

tally_end
