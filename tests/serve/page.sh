#!/bin/sh
# SPDX-License-Identifier: MIT
# page.sh BUILD OUT: the page of `tandem serve` in headless Chromium: sends messages, stops an answer, edits,
# regenerates, keeps conversations, shows dangerous markdown as text; writes screenshots, light and dark,
# wide and narrow, to the folder OUT. Needs chromium, node 20, npm and npm's registry. Not a test of the suite.
set -eu
build=${1:?usage: page.sh BUILD OUT}
out=${2:?usage: page.sh BUILD OUT}
here=$(cd "$(dirname "$0")" && pwd)
TANDEM_PLUGIN_PATH=${TANDEM_PLUGIN_PATH:-$(cd "$build" && pwd)/plugins/cpu}
export TANDEM_PLUGIN_PATH
mkdir -p "$out"
out=$(cd "$out" && pwd)
work=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server"; rm -rf "$work"' EXIT INT TERM

cp "$here/page.mjs" "$work"
(cd "$work" && PUPPETEER_SKIP_DOWNLOAD=1 npm install --silent --no-audit --no-fund puppeteer-core@24 axe-core@4 >&2)
"$build/runner/tandem" serve -m "$here/../../models/stories-3m-q8_0.gguf" --template "$here/template.jinja" \
    --port 0 >"$work/address" 2>"$work/errors" &
server=$!
while [ ! -s "$work/address" ]; do
    kill -0 "$server" || { cat "$work/errors" >&2; exit 1; }
    sleep 0.1
done
node "$work/page.mjs" "$(cat "$work/address")" "$out" "$(command -v chromium)"
