#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gguf_keys.py IN OUT KEY=ID...: a copy of a GGUF file with more keys, each a u32. The keys are put before the
others, with a text behind them that fills up to the alignment, so that no offset in the file changes."""
import struct
import sys

U32, STRING = 4, 8
ALIGN = 32
HEAD = struct.Struct("<4sIQQ")  # magic, version, tensors, keys


def text(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def add(source, target, keys):
    """keys: {name: number}."""
    with open(source, "rb") as file:
        data = file.read()
    magic, version, n_tensor, n_key = HEAD.unpack_from(data)
    assert (magic, version) == (b"GGUF", 3), source
    more = b"".join(text(name) + struct.pack("<II", U32, number) for name, number in keys.items())
    filler = text("test.filler") + struct.pack("<I", STRING)
    more += filler + text("x" * (-(len(more) + len(filler) + 8) % ALIGN))
    with open(target, "wb") as file:
        file.write(HEAD.pack(magic, version, n_tensor, n_key + len(keys) + 1) + more + data[HEAD.size:])


if __name__ == "__main__":
    add(sys.argv[1], sys.argv[2], {name: int(number) for name, number in
                                   (part.split("=") for part in sys.argv[3:])})
