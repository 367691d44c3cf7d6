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

# What must differ does: the comparison can fail.
printf '[["{{ 1 }}", {}]]' >"$work/one.json"
if "$tool" "$work/one.json" | cmp -s - "$directory/snippets.expected"; then
    fail "anything passes"
fi
tally_end
