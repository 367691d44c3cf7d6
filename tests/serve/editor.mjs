// SPDX-License-Identifier: MIT
// editor.mjs ADDRESS: what clients.sh runs: @continuedev/openai-adapters asks for a chat, a stream with a call of a
// tool and its usage, completions of a text and between two texts, vectors, and leaves a stream.
import assert from "node:assert/strict";
import {constructLlmApi} from "@continuedev/openai-adapters";

const address = process.argv[2];
const model = "stories-3m-q8_0";
const api = constructLlmApi({provider: "openai", apiKey: "none", apiBase: address + "/v1/"});
const never = new AbortController().signal;
const ask = {model, messages: [{role: "user", content: "Once upon a time"}], max_tokens: 12, temperature: 0};
const tools = [{type: "function", function: {name: "read_file", description: "Reads a file.", parameters: {
  type: "object", properties: {path: {type: "string", maxLength: 8}}, required: ["path"],
  additionalProperties: false}}}];

const whole = await api.chatCompletionNonStream({...ask, stream: false}, never);
const text = whole.choices[0].message.content;
assert.ok(text.length > 10 && whole.usage.completion_tokens === 12);
let streamed = "", usage = null;
for await (const chunk of api.chatCompletionStream({...ask, stream: true}, never)) {
  streamed += chunk.choices[0]?.delta?.content ?? "";
  usage = chunk.usage ?? usage;
}
assert.equal(streamed, text);
assert.equal(usage.completion_tokens, 12);
let name = "", args = "";
for await (const chunk of api.chatCompletionStream({...ask, max_tokens: 300, stream: true, tools, tool_choice:
  {type: "function", function: {name: "read_file"}}}, never))
  for (const call of chunk.choices[0]?.delta?.tool_calls ?? []) {
    name += call.function?.name ?? "";
    args += call.function?.arguments ?? "";
  }
assert.equal(name, "read_file");
assert.equal(typeof JSON.parse(args).path, "string");
const completion = await api.completionNonStream({model, prompt: "The cat", max_tokens: 5, stream: false}, never);
assert.equal(completion.usage.completion_tokens, 5);
let middle = "";
const between = {model, prompt: "Once upon a time there was a girl.\nHer name", suffix: "She was happy.\n",
  max_tokens: 12, temperature: 0};
for await (const chunk of api.fimStream({...between, stream: true}, never))
  middle += chunk.choices[0].delta.content ?? "";
const same = await api.completionNonStream({...between, stream: false}, never);
assert.ok(middle.length > 10);
assert.equal(same.choices[0].text, middle);
const vectors = await api.embed({model, input: ["a cat", "a dog"]});
assert.equal(vectors.data.length, 2);
assert.equal((await api.list())[0].id, model);
const leaving = new AbortController();
await assert.rejects(async () => {
  for await (const chunk of api.chatCompletionStream({...ask, max_tokens: 3000, ignore_eos: true, stream: true},
    leaving.signal)) if (chunk.choices[0]?.delta?.content) leaving.abort();
  throw new Error("the stream has ended");
});
console.log("passed @continuedev/openai-adapters");
