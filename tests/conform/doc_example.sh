#!/bin/sh
# SPDX-License-Identifier: MIT
#
# doc_example.sh: the code in docs/writing-a-backend.md equals examples/backend/example.c.
#
#   doc_example.sh DOCUMENT EXAMPLE.c
set -eu
. "$(dirname "$0")/../tally.sh"
# The first block that is marked as C.
awk '/^```c$/ { is_in = 1; next } /^```$/ && is_in { exit } is_in' "$1" >"$work/doc.c"
[ -s "$work/doc.c" ] || { echo "$1 has no C in it"; exit 1; }
diff -u "$2" "$work/doc.c"
