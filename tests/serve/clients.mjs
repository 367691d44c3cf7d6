// SPDX-License-Identifier: MIT
// clients.mjs ADDRESS: what clients.sh runs: each client asks for an answer, a stream, a call of a tool, JSON
// by a schema, an error, and leaves a stream; as far as its API has them.
import assert from "node:assert/strict";
import Anthropic from "@anthropic-ai/sdk";
import {createOpenAICompatible} from "@ai-sdk/openai-compatible";
import {generateObject, generateText, jsonSchema, streamText, tool} from "ai";
import {Ollama} from "ollama";
import OpenAI from "openai";

const address = process.argv[2];
const model = "stories-3m-q8_0";
const messages = [{role: "user", content: "Once upon a time"}];
const parameters = {type: "object", properties: {city: {enum: ["Bonn", "Rome"]}}, required: ["city"],
  additionalProperties: false};
const done = (name) => console.log("passed " + name);
const cancelled = async () => {
  const text = await (await fetch(address + "/metrics")).text();
  return +/reason="cancelled"} (\d+)/.exec(text)[1];
};
const until = async (what, condition) => {
  for (let i = 0; i < 300; i++) {
    if (await condition()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(what);
};

async function openai() {
  const client = new OpenAI({baseURL: address + "/v1", apiKey: "none", maxRetries: 0});
  const ask = {model, messages, max_tokens: 12, temperature: 0};
  assert.equal((await client.models.list()).data[0].id, model);
  const whole = await client.chat.completions.create(ask);
  const text = whole.choices[0].message.content;
  assert.ok(text.length > 10 && whole.usage.completion_tokens === 12);
  let streamed = "", usage = null;
  for await (const chunk of await client.chat.completions.create(
    {...ask, stream: true, stream_options: {include_usage: true}})) {
    streamed += chunk.choices[0]?.delta?.content ?? "";
    usage = chunk.usage ?? usage;
  }
  assert.equal(streamed, text);
  assert.equal(usage.completion_tokens, 12);
  const tools = [{type: "function", function: {name: "weather", parameters}}];
  const choice = {type: "function", function: {name: "weather"}};
  const called = await client.chat.completions.create({...ask, max_tokens: 300, tools, tool_choice: choice});
  assert.equal(called.choices[0].finish_reason, "tool_calls");
  assert.ok(JSON.parse(called.choices[0].message.tool_calls[0].function.arguments).city);
  const runner = client.chat.completions.stream({...ask, max_tokens: 300, tools, tool_choice: choice});
  assert.equal((await runner.finalChatCompletion()).choices[0].message.tool_calls[0].function.name, "weather");
  const json = await client.chat.completions.create({...ask, max_tokens: 300,
    response_format: {type: "json_schema", json_schema: {name: "x", schema: parameters, strict: true}}});
  assert.ok(JSON.parse(json.choices[0].message.content).city);
  const completion = await client.completions.create({model, prompt: "The cat", max_tokens: 5, logprobs: 2});
  assert.equal(completion.choices[0].logprobs.tokens.length, 5);
  const vectors = await client.embeddings.create({model, input: ["a cat", "a dog"]});
  assert.ok(vectors.data.length === 2 && Math.abs(vectors.data[0].embedding.reduce((s, x) => s + x * x, 0) - 1) < 1e-3);
  const response = await client.responses.create({model, input: "Once upon a time", max_output_tokens: 12, temperature: 0});
  assert.equal(response.output_text, text);
  let final = null, delta = "";
  for await (const event of await client.responses.create({model, input: "Once upon a time", stream: true,
    max_output_tokens: 12, temperature: 0})) {
    if (event.type === "response.output_text.delta") delta += event.delta;
    if (event.type === "response.incomplete") final = event.response;
  }
  assert.equal(delta, text);
  assert.equal(final.usage.output_tokens, 12);
  await assert.rejects(client.chat.completions.create({...ask, messages: []}), OpenAI.BadRequestError);
  const before = await cancelled();
  const endless = await client.chat.completions.create(
    {...ask, max_tokens: 3000, stream: true, ignore_eos: true});
  for await (const chunk of endless) if (chunk.choices[0].delta.content) break;
  await until("a stream that was left is cancelled", async () => await cancelled() > before);
  done("openai");
}

async function anthropic() {
  const client = new Anthropic({baseURL: address, apiKey: "none", maxRetries: 0});
  const ask = {model, messages, max_tokens: 12, temperature: 0};
  const whole = await client.messages.create(ask);
  assert.equal(whole.stop_reason, "max_tokens");
  const stream = client.messages.stream(ask);
  let text = "";
  stream.on("text", (piece) => { text += piece; });
  const final = await stream.finalMessage();
  assert.equal(text, whole.content[0].text);
  assert.deepEqual(final.content[0].text, text);
  assert.equal(final.usage.output_tokens, 12);
  const tools = [{name: "weather", input_schema: parameters}];
  const called = await client.messages.stream({...ask, max_tokens: 300, tools,
    tool_choice: {type: "tool", name: "weather"}}).finalMessage();
  assert.equal(called.stop_reason, "tool_use");
  assert.ok(called.content[0].input.city);
  const again = await client.messages.create({...ask, tools, messages: [...messages,
    {role: "assistant", content: called.content},
    {role: "user", content: [{type: "tool_result", tool_use_id: called.content[0].id, content: "sunny"}]}]});
  assert.equal(again.role, "assistant");
  assert.ok((await client.messages.countTokens({model, messages})).input_tokens > 3);
  await assert.rejects(client.messages.create({...ask, messages: []}), Anthropic.BadRequestError);
  done("@anthropic-ai/sdk");
}

async function ollama() {
  const client = new Ollama({host: address});
  const options = {temperature: 0, num_predict: 12};
  assert.equal((await client.list()).models[0].name, model);
  const whole = await client.chat({model, messages, options});
  let text = "";
  for await (const part of await client.chat({model, messages, options, stream: true})) text += part.message.content;
  assert.equal(text, whole.message.content);
  assert.ok((await client.generate({model, prompt: "The cat", options})).response);
  const json = await client.chat({model, messages, format: parameters, options: {...options, num_predict: 300}});
  assert.ok(JSON.parse(json.message.content).city);
  assert.ok((await client.show({model})).capabilities.includes("completion"));
  await assert.rejects(client.chat({model, messages, format: "yaml"}), /format/);
  done("ollama");
}

async function vercel() {
  const provider = createOpenAICompatible({name: "tandem", baseURL: address + "/v1", supportsStructuredOutputs: true});
  const ask = {model: provider(model), prompt: "Once upon a time", maxOutputTokens: 12, temperature: 0, maxRetries: 0};
  const whole = await generateText(ask);
  assert.equal(whole.usage.outputTokens, 12);
  const stream = streamText(ask);
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  assert.equal(text, whole.text);
  const called = await generateText({...ask, maxOutputTokens: 300, toolChoice: {type: "tool", toolName: "weather"},
    tools: {weather: tool({inputSchema: jsonSchema(parameters)})}});
  assert.ok(called.toolCalls[0].input.city);
  const object = await generateObject({...ask, maxOutputTokens: 300, schema: jsonSchema(parameters)});
  assert.ok(object.object.city);
  done("ai");
}

for (const run of [openai, anthropic, ollama, vercel]) await run();
