// SPDX-License-Identifier: MIT
//
// node_llama_cpp.mjs: llama.cpp as a peer for bench/compare.sh, through npm's node-llama-cpp, which
// has its libraries. Run in a folder where that package is installed:
//
//   node .../node_llama_cpp.mjs MODEL PP TG THREADS [DEPTH [KEY-TYPE [VALUE-TYPE]]]
//
// It prints "load X s", then "ppN X t/s" and "tgN X t/s" for PP and TG above 0, with " @ dD" behind
// the test if DEPTH tokens are in the cache before. KEY-TYPE and VALUE-TYPE are those of the cache
// ("f16", "q8_0"). Flash attention is on. With LLAMA_GPU=vulkan or cuda in the environment the
// whole model is on the GPUs.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [path, ...rest] = process.argv.slice(2);
const [nPrompt, nGen, nThread, nDepth] = [0, 1, 2, 3].map((i) => Number(rest[i] ?? 0));
const [typeK, typeV] = [rest[4] ?? "f16", rest[5] ?? rest[4] ?? "f16"].map((t) => t.toUpperCase());
if (path === undefined || ![nPrompt, nGen, nThread, nDepth].every((n) => Number.isInteger(n) && n >= 0)) {
    console.error("Usage: node node_llama_cpp.mjs MODEL PP TG THREADS [DEPTH [KEY-TYPE [VALUE-TYPE]]]");
    process.exit(2);
}
// The package is searched from the current folder, not from the folder of this file.
const find = createRequire(process.cwd() + "/");
const { getLlama } = await import(pathToFileURL(find.resolve("node-llama-cpp")).href);
const seconds = (since) => (performance.now() - since) / 1000;

const gpu = process.env.LLAMA_GPU ?? false;
const llama = await getLlama({ build: "never", gpu, logLevel: "error" });
const loading = performance.now();
const model = await llama.loadModel({ modelPath: path, gpuLayers: gpu ? "max" : 0 });
console.log(`load ${seconds(loading).toFixed(3)} s`);

const context = await model.createContext({
    contextSize: nDepth + nPrompt + nGen + 64,
    batchSize: 512,
    threads: { ideal: nThread, min: nThread },
    flashAttention: true,
    experimentalKvCacheKeyType: typeK,
    experimentalKvCacheValueType: typeV,
});
const sequence = context.getSequence();
const nVocab = model.fileInsights.vocabularySize;
const token = (i) => 1 + ((i * 2654435761) % (nVocab - 1));
const read = (n, first) => sequence.evaluateWithoutGeneratingNewTokens(Array.from({ length: n }, (_, i) => token(first + i)));
const generate = async (n) => {
    for (let i = 0; i < n; i++)
        await sequence.controlledEvaluate([[token(7 * i), { generateNext: { token: true, options: { temperature: 0 } } }]]);
};

// A warm-up run of both, as tandem bench has.
await read(Math.min(nPrompt, 64) || 1, 1);
await generate(1);
await sequence.clearHistory();

const behind = nDepth > 0 ? ` @ d${nDepth}` : "";
if (nPrompt > 0) {
    if (nDepth > 0) await read(nDepth, 11);
    const start = performance.now();
    await read(nPrompt, 3);
    console.log(`pp${nPrompt}${behind} ${(nPrompt / seconds(start)).toFixed(2)} t/s`);
    await sequence.clearHistory();
}
if (nGen > 0) {
    if (nDepth > 0) await read(nDepth, 11);
    const start = performance.now();
    await generate(nGen);
    console.log(`tg${nGen}${behind} ${(nGen / seconds(start)).toFixed(2)} t/s`);
}
process.exit(0);
