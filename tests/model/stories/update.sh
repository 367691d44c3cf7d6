#!/bin/sh
# SPDX-License-Identifier: MIT
#
# update.sh: computes the probabilities of the models of models.txt with llama.cpp, and writes them
# to probabilities.f32. It is needed only when models.txt changes. Building and testing do not run
# it.
#
#   npm install --prefix FOLDER --ignore-scripts node-llama-cpp
#   MAKE_VARIANT=BUILD/tests/model/make_variant MODELS=FOLDER PEER_DIR=FOLDER ./update.sh
#
# MODELS has the f32 models. A model of a quantised type is dequantised to f32 and evaluated with an
# f32 cache and without flash attention. Then llama.cpp differs from any other exact implementation
# in the order of f32 additions only.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
make_variant=$(realpath "${MAKE_VARIANT:?path of make_variant}")
models=$(realpath "${MODELS:?folder of the f32 models}")
peer=$here/../llama_probabilities.mjs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
: >"$work/all.f32"
grep '^model ' "$here/models.txt" | while read -r _ name file type n_vocab first_row tokens; do
    "$make_variant" "$models/$file" "$work/model.gguf" "$type" --dequantize 2>/dev/null
    (cd "${PEER_DIR:?folder of node-llama-cpp}" &&
        node "$peer" "$work/model.gguf" "$work/rows.f32" "$tokens" </dev/null >"$work/said")
    [ "$(cut -d' ' -f2 "$work/said")" = "$n_vocab" ] || {
        echo "$name $type: llama.cpp gives $(cat "$work/said"), not $n_vocab" >&2
        exit 1
    }
    tail -c "+$((first_row * n_vocab * 4 + 1))" "$work/rows.f32" >>"$work/all.f32"
    echo "$name $type"
done
mv "$work/all.f32" "$here/probabilities.f32"
