#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_template.sh: templates render as Jinja did when the .expected files were written:
#   test_template.sh RENDER_TEMPLATE DIRECTORY [GGUF...]
# A GGUF file that is absent is skipped, with a message. reference.py writes the files, and compares
# with the Jinja that is installed.
set -u
tool=$1 directory=$2
shift 2
. "$(dirname "$0")/../tally.sh"
export TZ=UTC

compare() { # NAME EXPECTED ARGUMENTS...
    name=$1 expected=$2
    shift 2
    if "$tool" "$@" >"$work/out" 2>"$work/err" && cmp -s "$work/out" "$expected"; then
        ok
        return
    fi
    fail "$name: $(diff "$expected" "$work/out" | head -20)"
}

compare snippets "$directory/snippets.expected" "$directory/snippets.json"
for template in "$directory"/*.jinja; do
    name=$(basename "$template" .jinja)
    compare "$name" "$directory/$name.expected" "$template" "$directory/conversations.json"
done
for gguf in "$@"; do
    name=$(basename "$gguf")
    if [ -f "$gguf" ]; then
        compare "$name" "$directory/${name%.gguf}.expected" "$gguf" "$directory/conversations.json"
    else
        echo "SKIP: $name is not there"
    fi
done

# Unequal output is reported: the comparison can fail.
printf '[["{{ 1 }}", {}]]' >"$work/one.json"
printf '[\n "1"\n]\n' >"$work/one.expected"
printf '[\n "2"\n]\n' >"$work/other.expected"
compare one "$work/one.expected" "$work/one.json"
if (
    json=$work/one.json other=$work/other.expected work=$work/inner
    mkdir "$work"
    compare one "$other" "$json"
    [ ! -e "$work/.failed" ]
) 2>/dev/null; then
    fail "unequal output passes"
fi
tally_end
