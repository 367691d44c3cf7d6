#!/bin/sh
# SPDX-License-Identifier: MIT
# programs.sh BUILD [NAME...]: programs that write code, from npm, unchanged, against `tandem serve` of a build folder:
# claude codex continue opencode qwen cline pi, or those named. Each is asked to read a file, calls its own tool for it,
# and gives the model's answer. The model is that of agents.py. What they sent is in recorded/.
# Needs node, npm and npm's registry; the packages, some of which take hundreds of MB, go to a temporary folder.
# Not a test of the suite. Without npm it ends with status 77.
set -eu
build=$(cd "${1:?usage: programs.sh BUILD [NAME...]}" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
if ! command -v npm >/dev/null || ! command -v node >/dev/null; then
    echo "SKIPPED: npm and node are not installed"
    exit 77
fi
work=$(mktemp -d)
server=
trap 'test -z "$server" || kill "$server"; rm -rf "$work"' EXIT INT TERM

# package NAME PACKAGE...: installed into a folder of its own
package() {
    mkdir -p "$work/$1"
    echo '{"private": true}' >"$work/$1/package.json"
    (cd "$work/$1" && shift && npm install --silent --no-audit --no-fund "$@" >&2)
}

# the newest node that all of them take
package node node@22
PATH=$work/node/node_modules/node/bin:$PATH
mkdir "$work/project" "$work/home"
echo "Tom had a cat." >"$work/project/a.txt"
python3 "$here/agents.py" "$work/t.gguf" "$work/project"
TANDEM_PLUGIN_PATH=${TANDEM_PLUGIN_PATH:-$build/plugins/cpu} "$build/runner/tandem" serve -m "$work/t.gguf" -c 131072 \
    --parallel 2 --port 0 >"$work/address" 2>"$work/errors" &
server=$!
while [ ! -s "$work/address" ]; do
    kill -0 "$server" || { cat "$work/errors" >&2; exit 1; }
    sleep 0.1
done
address=$(cat "$work/address")
export HOME="$work/home"
cd "$work/project"
git init --quiet . 2>/dev/null || true

# asks NAME COMMAND...: runs a program, whose answer must be the model's
asks() {
    name=$1
    shift
    if timeout 120 "$@" </dev/null >"$work/out" 2>&1 && grep -q "The file says that Tom had a cat." "$work/out"; then
        echo "passed $name"
    else
        echo "FAILED $name"
        tail -n 20 "$work/out"
        exit 1
    fi
}

run_claude() {
    package claude @anthropic-ai/claude-code@2
    ANTHROPIC_BASE_URL=$address ANTHROPIC_API_KEY=none CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_TELEMETRY=1 \
        asks "Claude Code" "$work/claude/node_modules/.bin/claude" -p "Read a.txt."
}

run_codex() {
    package codex @openai/codex@0
    mkdir -p "$HOME/.codex"
    cat >"$HOME/.codex/config.toml" <<END
model = "t"
model_provider = "tandem"
[model_providers.tandem]
name = "tandem"
base_url = "$address/v1"
wire_api = "responses"
[analytics]
enabled = false
END
    asks Codex "$work/codex/node_modules/.bin/codex" exec --skip-git-repo-check "Read a.txt."
}

run_continue() {
    package continue @continuedev/cli@1
    for provider in openai ollama; do
        path=$address
        [ $provider = ollama ] || path=$address/v1
        cat >"$HOME/$provider.yaml" <<END
name: local
version: 1.0.0
schema: v1
models:
  - {name: t, provider: $provider, model: t, apiBase: "$path", apiKey: none, capabilities: [tool_use]}
END
        asks "Continue, $provider" "$work/continue/node_modules/.bin/cn" -p "Read a.txt." --auto \
            --config "$HOME/$provider.yaml"
    done
}

run_opencode() {
    package opencode opencode-ai@1
    mkdir -p "$HOME/.config/opencode"
    for kind in openai-compatible anthropic openai; do
        cat >"$HOME/.config/opencode/opencode.json" <<END
{"autoupdate": false, "share": "disabled", "model": "tandem/t", "small_model": "tandem/t", "provider": {"tandem": {
 "npm": "@ai-sdk/$kind", "options": {"baseURL": "$address/v1", "apiKey": "none"},
 "models": {"t": {"limit": {"context": 100000, "output": 4000}}}}}}
END
        asks "opencode, $kind" "$work/opencode/node_modules/.bin/opencode" run "Read a.txt."
    done
}

run_qwen() {
    package qwen @qwen-code/qwen-code
    OPENAI_API_KEY=none OPENAI_BASE_URL=$address/v1 OPENAI_MODEL=t \
        asks "Qwen Code" "$work/qwen/node_modules/.bin/qwen" -p "Read a.txt." --auth-type openai
}

run_cline() {
    package cline cline@3
    cline=$work/cline/node_modules/.bin/cline
    "$cline" auth -p openai-compatible -k none -m t -b "$address/v1" >/dev/null
    asks Cline "$cline" -P openai-compatible -m t "Read a.txt."
}

run_pi() {
    package pi @mariozechner/pi-coding-agent
    mkdir -p "$HOME/.pi/agent"
    for kind in openai-completions anthropic-messages openai-responses; do
        path=$address/v1
        [ $kind != anthropic-messages ] || path=$address
        cat >"$HOME/.pi/agent/models.json" <<END
{"providers": {"tandem": {"baseUrl": "$path", "api": "$kind", "apiKey": "none", "models": [{"id": "t", "name": "t",
 "reasoning": false, "input": ["text"], "contextWindow": 100000, "maxTokens": 4000,
 "cost": {"input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0}}]}}}
END
        PI_OFFLINE=1 asks "pi, $kind" "$work/pi/node_modules/.bin/pi" --provider tandem --model t -p "Read a.txt."
    done
}

[ $# -gt 0 ] || set -- claude codex continue opencode qwen cline pi
for name in "$@"; do
    "run_$name"
done
