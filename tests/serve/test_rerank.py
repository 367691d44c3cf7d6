#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_rerank.py TANDEM MODEL MAKE_FIXTURE RANK.head: rerankers in `tandem serve`: scores of texts for a query."""
import os
import struct
import subprocess
import sys
import tempfile

import client
from client import check, error_of

tandem, model, make_fixture, rank_head = sys.argv[1:]
QUERY, TEXTS = "the cat", ["sat on a mat", "rain falls in Spain", "a dog", "sat on a mat"]


def encoder(path):
    """Scores beside a query, as `tandem embed` gives them, in both forms of the API."""
    subprocess.run([make_fixture, rank_head, "bert-rank", path], check=True)
    lines = subprocess.run([tandem, "embed", "-m", path, "--quiet", "-p", "\n".join(f"{QUERY}\t{t}" for t in TEXTS)],
                           check=True, capture_output=True, text=True).stdout
    scores = [float(line) for line in lines.split()]
    check(len(set(scores)) == 3, scores)
    best = sorted(range(4), key=lambda i: (-scores[i], i))
    with client.Server(tandem, path, "-ctk", "f32", "-ctv", "f32") as server:
        for place in ("/v1/rerank", "/v1/reranking", "/rerank", "/reranking"):
            status, reply = server.post(place, {"query": QUERY, "documents": TEXTS})
            check(status == 200 and [r["index"] for r in reply["results"]] == best, reply)
            check(max(abs(r["relevance_score"] - scores[r["index"]]) for r in reply["results"]) < 1e-5, reply, scores)
            check(reply["usage"]["prompt_tokens"] > 20 and "document" not in reply["results"][0], reply)
        objects = [{"text": text} for text in TEXTS]
        reply = server.post("/v1/rerank", {"query": QUERY, "documents": objects, "top_n": 2, "return_documents": True})[1]
        check([r["document"]["text"] for r in reply["results"]] == [TEXTS[i] for i in best[:2]], reply)
        status, reply = server.post("/rerank", {"query": QUERY, "texts": TEXTS, "return_text": True})
        check(status == 200 and [r["index"] for r in reply] == best and reply[0]["text"] == TEXTS[best[0]], reply)
        check(abs(reply[0]["score"] - scores[best[0]]) < 1e-5, reply)
        many = server.post("/rerank", {"query": QUERY, "documents": [f"dog {i}" for i in range(50)]})[1]["results"]
        check(sorted(r["index"] for r in many) == list(range(50)))
        for body in ({}, {"query": QUERY}, {"query": QUERY, "documents": []}, {"query": QUERY, "documents": "x"},
                     {"query": 3, "documents": TEXTS}, {"query": QUERY, "documents": ["x", 3]},
                     {"query": QUERY, "documents": [{}]}, {"query": QUERY, "documents": TEXTS, "top_n": 0},
                     {"query": QUERY, "documents": TEXTS, "return_documents": 3},
                     {"query": QUERY, "documents": ["a dog " * 5000]}):
            error_of(*server.post("/v1/rerank", body), 400)
        check("/v1/rerank" in error_of(*server.post("/v1/embeddings", {"input": "x"}), 400))
        check("/v1/rerank" in server.post("/api/embed", {"input": "x"})[1]["error"])
        refusal = error_of(*server.post("/v1/completions", {"prompt": "x"}), 400)
        check("is a reranker" in refusal and "/v1/rerank" in refusal, refusal)
        check(server.stop() == 0, server.errors)


def decoder(path):
    """A decoder whose file has pooling rank has the context that scores need without --embeddings, and
    continues texts. This one has no head: its refusal comes from behind that context."""
    with open(model, "rb") as file:
        data = file.read()
    n_pair, key = int.from_bytes(data[16:24], "little"), b"llama.pooling_type"
    pairs = struct.pack("<Q", len(key)) + key + struct.pack("<II", 4, 4)
    pairs += struct.pack("<Q", 5) + b"x.pad" + struct.pack("<IQ", 8, -(len(pairs) + 25) % 32)
    pairs += b" " * (-len(pairs) % 32)  # data stays aligned
    with open(path, "wb") as file:
        file.write(data[:16] + struct.pack("<Q", n_pair + 2) + pairs + data[24:])
    with client.Server(tandem, path) as server:
        refusal = error_of(*server.post("/v1/rerank", {"query": QUERY, "documents": TEXTS}), 400)
        check("no head that scores texts" in refusal, refusal)
        check(server.post("/v1/completions", {"prompt": "x", "max_tokens": 1})[0] == 200)
        check(server.stop() == 0, server.errors)


with tempfile.TemporaryDirectory() as folder:
    encoder(os.path.join(folder, "rank.gguf"))
    decoder(os.path.join(folder, "decoder.gguf"))
