#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""make_lora.py OUT RANK ALPHA SEED STRENGTH NAME:K:N...: writes a LoRA adapter in f32 (GGUF, architecture
llama) for matrices NAME [K, N]: random A of variance 1, and B so small that alpha / rank * B A has STRENGTH
times the variance of a matrix of variance 1 / K."""
import random
import struct
import sys

U32, F32, STRING = 4, 6, 8
ALIGN = 32


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def key(name, kind, data):
    return text(name) + struct.pack("<I", kind) + data


def write(path, rank, alpha, seed, strength, matrices, arch="llama"):
    """matrices: (name, k, n)."""
    dice = random.Random(seed)
    tensors = []
    for name, k, n in matrices:
        scale = strength / (k * rank) ** 0.5 / (alpha / rank if alpha else 1)
        for end, ne, size in ((".lora_a", (k, rank), 1.0), (".lora_b", (rank, n), scale)):
            values = [dice.gauss(0, size) for _ in range(ne[0] * ne[1])]
            tensors.append((name + end, ne, struct.pack(f"<{len(values)}f", *values)))
    keys = [key("general.type", STRING, text("adapter")), key("general.architecture", STRING, text(arch)),
            key("adapter.type", STRING, text("lora")),
            key("adapter.lora.alpha", F32, struct.pack("<f", alpha))]
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(keys)) + b"".join(keys)
    offset = 0
    for name, ne, data in tensors:
        head += text(name) + struct.pack("<IQQIQ", 2, *ne, 0, offset)
        offset += -(-len(data) // ALIGN) * ALIGN
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGN))
        for _, _, data in tensors:
            file.write(data + bytes(-len(data) % ALIGN))


def main():
    matrices = [(name, int(k), int(n)) for name, k, n in (part.split(":") for part in sys.argv[6:])]
    write(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5]), matrices)


if __name__ == "__main__":
    main()
