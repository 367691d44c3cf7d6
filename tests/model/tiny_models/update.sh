#!/bin/sh
# SPDX-License-Identifier: MIT
#
# update.sh: computes the probabilities of the tiny random models of models.txt with llama.cpp, and
# writes them to probabilities.f32. It is needed only when models.txt or the random weights change.
# Building and testing do not run it.
#
#   npm install --prefix FOLDER --ignore-scripts node-llama-cpp
#   MAKE_MODEL=BUILD/bench/tandem-make-model PEER_DIR=FOLDER ./update.sh
#
# A model of a quantised type is evaluated in f32, with its weights rounded through the type, an f32
# cache and no flash attention. Then llama.cpp differs from any other exact implementation in the
# order of f32 additions only.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
make_model=$(realpath "${MAKE_MODEL:?path of tandem-make-model}")
peer=$here/../llama_probabilities.mjs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tokens=$(sed -n 's/^tokens //p' "$here/models.txt")
first_row=$(sed -n 's/^first_row //p' "$here/models.txt")
: >"$work/all.f32"
grep '^model ' "$here/models.txt" | while read -r _ preset type rope head n_vocab; do
    "$make_model" --quiet --preset "$preset" --type f32 --round "$type" --rope-scaling "$rope" \
        "--$head" "$work/model.gguf"
    (cd "${PEER_DIR:?folder of node-llama-cpp}" &&
        node "$peer" "$work/model.gguf" "$work/rows.f32" "$tokens" </dev/null >"$work/said")
    [ "$(cut -d' ' -f2 "$work/said")" = "$n_vocab" ] || {
        echo "$preset $type: llama.cpp gives $(cat "$work/said"), not $n_vocab" >&2
        exit 1
    }
    tail -c "+$((first_row * n_vocab * 4 + 1))" "$work/rows.f32" >>"$work/all.f32"
    echo "$preset $type $rope $head"
done
mv "$work/all.f32" "$here/probabilities.f32"
