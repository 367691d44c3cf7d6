#!/bin/sh
# SPDX-License-Identifier: MIT
#
# update.sh: asks llama.cpp for the probabilities that the tiny random models of models.txt must
# give, and writes them to probabilities.f32. Needed only when models.txt or the random weights
# change; neither building nor testing runs it.
#
#   MAKE_MODEL=BUILD/bench/tandem-make-model PEER=SCRIPT PEER_DIR=FOLDER ./update.sh
#
# PEER is a script that, run by node in PEER_DIR (where the npm package node-llama-cpp is
# installed), takes `probs MODEL OUT.f32 TOKENS options` and writes a row of probabilities for each
# token. A model of a quantised type is asked about as what it stands for: the same weights rounded
# through the type, in f32, with an f32 cache and without flash attention, so that nothing but the
# order of f32 additions separates llama.cpp from any other exact implementation.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
make_model=$(realpath "${MAKE_MODEL:?path of tandem-make-model}")
peer=$(realpath "${PEER:?path of the script that asks llama.cpp}")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tokens=$(sed -n 's/^tokens //p' "$here/models.txt")
first_row=$(sed -n 's/^first_row //p' "$here/models.txt")
: >"$work/all.f32"
grep '^model ' "$here/models.txt" | while read -r _ preset type rope head n_vocab; do
    "$make_model" --quiet --preset "$preset" --type f32 --round "$type" --rope-scaling "$rope" \
        "--$head" "$work/model.gguf"
    (cd "${PEER_DIR:?folder of node-llama-cpp}" &&
        node "$peer" probs "$work/model.gguf" "$work/rows.f32" "$tokens" \
            ctk=F32 ctv=F32 fa=off </dev/null >"$work/said")
    [ "$(cut -d' ' -f2 "$work/said")" = "$n_vocab" ] || {
        echo "$preset $type: llama.cpp gives $(cat "$work/said"), not $n_vocab" >&2
        exit 1
    }
    tail -c "+$((first_row * n_vocab * 4 + 1))" "$work/rows.f32" >>"$work/all.f32"
    echo "$preset $type $rope $head"
done
mv "$work/all.f32" "$here/probabilities.f32"
