#!/bin/bash
# SPDX-License-Identifier: MIT
#
# needles.sh: needles in long contexts on all topologies, of which the test `needles` runs a covering
# set: five models that recall (GQA, every head its own K and V, one KV head, latent, with windows),
# eleven topologies (one device; groups of two and three members, split by layers, by heads,
# replicated and by sequence, with even and uneven shares and one of zero; caches in the host's
# memory) and seven pairs of cache types. Each is asked at once, with drafts that are rejected,
# after a saved state was loaded on another topology, and after a shift. A line that ends with LOST
# names what was not recalled.
#
#   tests/needles.sh BUILD_FOLDER [CONTEXTS]
#
# CONTEXTS are lengths in tokens, separated by commas; without, 8800,14500. 60000 is possible too: the
# time grows with the square of the length. A context of 8800 takes about 10 minutes of a processor.
set -u
usage() { sed -n 's/^#   //p' "$0"; exit 2; }
[ $# -ge 1 ] && [ -d "$1/tests/model" ] || usage
build=$(cd "$1" && pwd)
TANDEM_SOURCE_ROOT=$(cd "$(dirname "$0")/.." && pwd)
TANDEM_PLUGIN_PATH=$build/plugins:$build/tests/plugins/faults
NEEDLES_CONTEXTS=${2:-8800,14500}
export TANDEM_SOURCE_ROOT TANDEM_PLUGIN_PATH NEEDLES_CONTEXTS
exec "$build/tests/model/test_needles"
