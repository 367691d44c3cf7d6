#!/bin/sh
# SPDX-License-Identifier: MIT
#
# update.sh: computes the ids of random texts with llama.cpp, and writes their hashes to
# peer_ids.txt. It is needed only when made_vocab.c, random_text.c or the names of pre-tokenizers
# change. Building and testing do not run it.
#
#   npm install --prefix FOLDER --ignore-scripts node-llama-cpp
#   git clone FOLDER/node_modules/node-llama-cpp/llama/gitRelease.bundle FOLDER/src
#   TEST_PEER_IDS=BUILD/tests/tokenizer/test_peer_ids PEER_DIR=FOLDER ./update.sh [WORK]
#
# With a folder WORK, the vocabularies and ids are kept there, and this shows each text whose ids differ:
#   test_peer_ids --compare WORK
set -eu
here=$(cd "$(dirname "$0")" && pwd)
tool=$(realpath "${TEST_PEER_IDS:?path of test_peer_ids}")
peer=${PEER_DIR:?folder of node-llama-cpp}
libraries=$(realpath "$peer/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64")
if [ $# -gt 0 ]; then
    work=$1
    mkdir -p "$work"
else
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
fi
gcc -O2 -o "$work/peer_ids" "$here/peer_ids.c" -I"$peer/src/include" -I"$peer/src/ggml/include" \
    "$libraries"/libllama.*so "$libraries"/libggml.*.so "$libraries"/libggml-base.so \
    -Wl,-rpath,"$libraries"
"$tool" --write "$work"
"$work/peer_ids" "$work/list.txt"
"$tool" --hash "$work" >"$work/peer_ids.txt"
mv "$work/peer_ids.txt" "$here/peer_ids.txt"
