#!/bin/sh
# SPDX-License-Identifier: MIT
#
# test_template.sh: templates render as Jinja rendered them when the .expected files were written:
#   test_template.sh RENDER_TEMPLATE DIRECTORY [GGUF...]
# A GGUF that is not there is said and left out. To write the files anew, and to compare with the
# Jinja that is installed, see reference.py.
set -u
tool=$1 directory=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export TZ=UTC
failed=0 passed=0

compare() { # NAME EXPECTED ARGUMENTS...
    name=$1 expected=$2
    shift 2
    if "$tool" "$@" >"$work/out" 2>"$work/err" && cmp -s "$work/out" "$expected"; then
        passed=$((passed + 1))
        return
    fi
    echo "FAILED: $name" >&2
    diff "$expected" "$work/out" | head -20 >&2
    failed=$((failed + 1))
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

# What must differ does: the comparison can fail.
printf '[["{{ 1 }}", {}]]' >"$work/one.json"
if "$tool" "$work/one.json" | cmp -s - "$directory/snippets.expected"; then
    echo "FAILED: anything passes" >&2
    failed=$((failed + 1))
fi
echo "$passed files as Jinja renders them, $failed differ"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
