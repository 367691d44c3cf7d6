#!/bin/bash
# SPDX-License-Identifier: MIT
#
# archs.sh: all that is compared of the fixtures of tests/model/archs.txt, of which the tests run a
# covering set. It takes about 20 minutes on two processors. The last line of a stage has the number
# of fixtures that keep their bounds, and the worst error.
#
#   tests/archs.sh BUILD_FOLDER [STAGE ...] [-- NAME ...]
#
#   seeds       weights of seeds 1, 2 and 3 beside llama.cpp, on one CPU device. Logits of seeds 2 and
#               3 come from llama.cpp itself: TANDEM_PEER is the folder in which
#               ../shared/tools/peer-build.sh built it
#   groups      groups of 2 and 3 CPU devices with quantised caches beside one device
#   vulkan      the first Vulkan device, the software driver too, alone and with the CPU
#   cuda, hip   the same on the emulated drivers of tests/simt
#
# Without stages all of them run. NAME ... restricts each to these fixtures.
set -u
usage() { sed -n 's/^#   //p' "$0"; exit 2; }
[ $# -ge 1 ] && [ -d "$1/tests/model" ] || usage
build=$(cd "$1" && pwd)
root=$(cd "$(dirname "$0")/.." && pwd)
shift
stages=()
while [ $# -gt 0 ] && [ "$1" != -- ]; do stages+=("$1"); shift; done
[ $# -eq 0 ] || shift
names=("$@")
[ ${#stages[@]} -gt 0 ] || stages=(seeds groups vulkan cuda hip)

matrix=$build/tests/model/archs_matrix
simt=$build/tests/simt
shared=$root/../shared
export TANDEM_SOURCE_ROOT=$root TANDEM_PLUGIN_PATH=$build/plugins:$build/tests/split
# The software driver's memory comes from malloc.
export MALLOC_PERTURB_=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
n_failed=0

# stage WHAT ARGUMENT...: one run of the matrix.
stage() {
    echo "---- $1"
    shift
    "$matrix" "$@" ${names[@]+"${names[@]}"} >"$work/log" 2>&1 || n_failed=$((n_failed + 1))
    grep -v '^\[  *\(RUN\|OK\) ' "$work/log"
}

# peer_logits SEED: llama.cpp's logits of each fixture's weights of that seed, to $work/SEED. Logits
# of models that it cannot read are left out.
peer_logits() {
    local list=(${names[@]+"${names[@]}"}) tokens bins libraries name fa
    bins=$TANDEM_PEER/node_modules/@node-llama-cpp
    libraries=$bins/linux-x64/bins/linux-x64
    tokens=$(tr -d '\n ' <"$shared/archs/logits/tokens.txt")
    [ ${#list[@]} -gt 0 ] || mapfile -t list < <(awk '/^[^-#]/ { print $1 }' "$root/tests/model/archs.txt")
    mkdir -p "$work/$1"
    for name in "${list[@]}"; do
        fa=off
        # llama.cpp selects blocks of tokens with flash attention only.
        [[ $name == minimax-m3-select ]] && fa=on
        "$matrix" write "$work" --seed "$1" "$name" >/dev/null &&
            "$TANDEM_PEER/peer-cpu" logits "$work/$name.gguf" "$work/$1/$name.f32" "$tokens" \
                dir="$libraries" fa=$fa ctk=f32 ctv=f32 >"$work/log" 2>&1 ||
            {
                echo "llama.cpp gives no logits of $name: $(tail -n 1 "$work/log")"
                rm -f "$work/$1/$name.f32"
            }
        rm -f "$work/$name.gguf"
    done
}

for s in "${stages[@]}"; do
    case $s in
    seeds)
        stage 'seed 1' peer
        if [ -x "${TANDEM_PEER:-}/peer-cpu" ]; then
            for seed in 2 3; do
                peer_logits $seed
                stage "seed $seed" peer --seed $seed --logits "$work/$seed"
            done
        else
            echo 'seeds 2 and 3 are left out: TANDEM_PEER has no peer-cpu'
        fi
        ;;
    groups) stage groups groups ;;
    vulkan) stage vulkan vulkan ;;
    cuda) stage 'cuda, emulated' cuda --driver "$simt/libcuda_simt.so" ;;
    hip) stage 'hip, emulated' hip --driver "$simt/libamdhip64_simt.so" ;;
    *) usage ;;
    esac
done
echo "$n_failed stages failed"
[ $n_failed -eq 0 ]
