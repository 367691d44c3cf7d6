// SPDX-License-Identifier: MIT
//
// llama_probabilities.mjs: the probabilities that llama.cpp computes, through npm's node-llama-cpp. Run
// in a folder where that package is installed (see bench/compare.sh --help):
//
//   node .../llama_probabilities.mjs MODEL.gguf OUT.f32 TOKEN,TOKEN,...
//
// writes a row of f32 probabilities for each token, and prints "rows N_VOCAB". The cache is f32, flash
// attention is off, there is one thread.
import { createRequire } from "node:module";
import { writeFileSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [path, out, list] = process.argv.slice(2);
const tokens = (list ?? "").split(",").map(Number);
if (list === undefined || !tokens.every((n) => Number.isInteger(n) && n >= 0)) {
    console.error("Usage: node llama_probabilities.mjs MODEL.gguf OUT.f32 TOKEN,TOKEN,...");
    process.exit(2);
}
// The package is found from the current folder, not from this file's.
const find = createRequire(process.cwd() + "/");
const { getLlama } = await import(pathToFileURL(find.resolve("node-llama-cpp")).href);
const llama = await getLlama({ build: "never", gpu: false, logLevel: "error" });
const model = await llama.loadModel({ modelPath: path, gpuLayers: 0 });
const context = await model.createContext({
    contextSize: tokens.length + 16,
    batchSize: tokens.length + 16,
    threads: { ideal: 1, min: 1 },
    flashAttention: false,
    experimentalKvCacheKeyType: "F32",
    experimentalKvCacheValueType: "F32",
});
// Temperature 1 without any filter: the probabilities of the model itself.
const options = { temperature: 1, topK: 0, topP: 1, minP: 0 };
const results = await context.getSequence().controlledEvaluate(
    tokens.map((t) => [t, { generateNext: { probabilities: true, options } }]));
const nVocab = results[0].next.probabilities.size;
const rows = new Float32Array(tokens.length * nVocab);
results.forEach((result, i) => {
    if (result.next.probabilities.size !== nVocab)
        throw new Error(`token ${i}: ${result.next.probabilities.size} probabilities, not ${nVocab}`);
    for (const [token, p] of result.next.probabilities) rows[i * nVocab + token] = p;
});
writeFileSync(out, rows);
console.log(`rows ${nVocab}`);
process.exit(0);
