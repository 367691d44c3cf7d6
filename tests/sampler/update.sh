#!/bin/sh
# SPDX-License-Identifier: MIT
#
# update.sh: records in steps.txt what llama.cpp's samplers leave in the cases of cases.h. It is needed
# only when the cases change. Building and testing do not run it.
#
#   LLAMA_INCLUDE="DIR DIR" LLAMA_LIBRARY=DIR/libllama.so VOCAB=ggml-vocab-gpt-2.gguf ./update.sh
set -eu
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
flags=
for folder in ${LLAMA_INCLUDE:?folders of llama.h and ggml.h}; do flags="$flags -I$folder"; done
library=${LLAMA_LIBRARY:?path of libllama}
# shellcheck disable=SC2086 # a list of flags
cc -O1 $flags "$here/peer_steps.c" -o "$work/peer" "$library" -Wl,--allow-shlib-undefined \
    -Wl,-rpath,"$(dirname "$library")" -lm
"$work/peer" "${VOCAB:?a file with the vocabulary of GPT-2}" >"$work/steps.txt"
mv "$work/steps.txt" "$here/steps.txt"
