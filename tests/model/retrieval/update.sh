#!/bin/sh
# SPDX-License-Identifier: MIT
#
# update.sh: computes with llama.cpp the probabilities of the constructed models of models.txt, and
# writes sums of them to sums.f32. It is needed only when models.txt or the weights change. Building
# and testing do not run it.
#
#   npm install --prefix FOLDER --ignore-scripts node-llama-cpp
#   MAKE_MODEL=BUILD/bench/tandem-make-model PEER_DIR=FOLDER ./update.sh
#
# A model is evaluated in f32, with its weights rounded through the type, an f32 cache and no flash
# attention, as in ../tiny_models/update.sh.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
make_model=$(realpath "${MAKE_MODEL:?path of tandem-make-model}")
peer=$here/../llama_probabilities.mjs
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tokens=$(sed -n 's/^tokens //p' "$here/models.txt")
# The sums of models.txt, of one file of rows of n_vocab.
cat >"$work/sum.mjs" <<'END'
import { readFileSync, appendFileSync } from "node:fs";
const [rows, out, nVocab] = process.argv.slice(2);
const bytes = readFileSync(rows);
const p = new Float32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4);
const n = p.length / nVocab, sums = new Float32Array(4 * n);
for (let r = 0; r < n; r++)
    for (let k = 0; k < 4; k++) {
        let sum = 0;
        for (let t = 0; t < nVocab; t++) {
            const bit = (Math.imul(t + 1, 0x9e3779b1) >>> (28 + k)) & 1;
            sum += bit ? p[r * nVocab + t] : -p[r * nVocab + t];
        }
        sums[4 * r + k] = sum;
    }
appendFileSync(out, sums);
END
: >"$work/sums.f32"
grep '^model ' "$here/models.txt" | while read -r _ preset type n_head_kv; do
    "$make_model" --quiet --preset "$preset" --heads-kv "$n_head_kv" --type f32 --round "$type" \
        -o "$work/model.gguf"
    (cd "${PEER_DIR:?folder of node-llama-cpp}" &&
        node "$peer" "$work/model.gguf" "$work/rows.f32" "$tokens" </dev/null >"$work/said")
    node "$work/sum.mjs" "$work/rows.f32" "$work/sums.f32" "$(cut -d' ' -f2 "$work/said")"
    echo "$preset $type $n_head_kv"
done
mv "$work/sums.f32" "$here/sums.f32"
