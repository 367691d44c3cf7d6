#!/bin/sh
# SPDX-License-Identifier: MIT
# clients.sh BUILD [MODEL]: npm's clients, unchanged, against `tandem serve` of a build folder: openai,
# @anthropic-ai/sdk, ollama, ai with @ai-sdk/openai-compatible, and @continuedev/openai-adapters, with which the
# plugin Continue of editors talks. Needs node 20, npm and npm's registry; the packages go to a temporary folder.
# Not a test of the suite. Without npm it ends with status 77.
set -eu
build=${1:?usage: clients.sh BUILD [MODEL]}
here=$(cd "$(dirname "$0")" && pwd)
model=${2:-$here/../../models/stories-3m-q8_0.gguf}
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
    echo "SKIPPED: npm and node are not installed"
    exit 77
fi
TANDEM_PLUGIN_PATH=${TANDEM_PLUGIN_PATH:-$(cd "$build" && pwd)/plugins/cpu}
export TANDEM_PLUGIN_PATH
work=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server"; rm -rf "$work"' EXIT INT TERM

cp "$here/clients.mjs" "$work"
# the versions that were tried
(cd "$work" && npm install --silent --no-audit --no-fund openai@6 @anthropic-ai/sdk ollama ai@6 \
    @ai-sdk/openai-compatible@2 zod >&2)
# it needs other versions of openai and ai
mkdir "$work/editor"
cp "$here/editor.mjs" "$work/editor"
(cd "$work/editor" && npm install --silent --no-audit --no-fund @continuedev/openai-adapters@1 >&2)
# ids that stand for the tokens of completions between two texts
python3 "$here/../support/gguf_keys.py" "$model" "$work/stories-3m-q8_0.gguf" tokenizer.ggml.fim_pre_token_id=4 \
    tokenizer.ggml.fim_suf_token_id=5 tokenizer.ggml.fim_mid_token_id=6
"$build/runner/tandem" serve -m "$work/stories-3m-q8_0.gguf" --template "$here/template.jinja" --port 0 --embeddings \
    --temp 0 >"$work/address" 2>"$work/errors" &
server=$!
while [ ! -s "$work/address" ]; do
    kill -0 "$server" || { cat "$work/errors" >&2; exit 1; }
    sleep 0.1
done
node "$work/clients.mjs" "$(cat "$work/address")"
node "$work/editor/editor.mjs" "$(cat "$work/address")"
