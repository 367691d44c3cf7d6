#!/bin/sh
# SPDX-License-Identifier: MIT
# Prints registers, spilled bytes, local memory and shared memory of the compiled kernels of CUDA
# and HIP as a table of Markdown, a row for each entry and target.
#   scripts/kernel-table.sh BUILD_FOLDER [--check] [--short]
# For CUDA, ptxas (of a CUDA toolkit, on PATH or in /usr/local/cuda/bin) translates PTX, also that
# in nvcc's fat binaries, for the target it was made for, or for PTXAS_TARGET. For HIP, llvm-readelf
# reads the numbers from the notes of code objects. If a tool is missing, its kernels are left out
# with a message.
#   --short: prints only the entry with the most registers of each kernel.
#   --check: fails if an entry has local memory (a stack frame or spills) beyond the list `allowed`
#   below. If a tool is missing and nothing fails, it ends with status 77: skipped.
set -u
folder=$1
shift
check=no short=no left_out=no
for word in "$@"; do
    case "$word" in
    --check) check=yes ;;
    --short) short=yes ;;
    *)
        echo "usage: scripts/kernel-table.sh BUILD_FOLDER [--check] [--short]" >&2
        exit 2
        ;;
    esac
done
# Entries that may have local memory: a pattern of names; the most bytes that the local memory and
# the spills of a thread may have, added up; and a pattern of targets, where the line is not for all
# of them. The first line that matches counts.
#   attention_tile_512_*: each thread has 128 sums
#   attention_tile_matrix_256_0_32: on gfx1102 and gfx1150, which have 1024 registers instead of 1536
#   those for sm_90: ptxas gives the PTX of sm_80 as much for that target
#   product_row_dot_34_1: only as nvcc compiles it
#   others: a few spilled registers
allowed='^attention_latent_matrix_64$ 32 ^sm_90$
^attention_part_2_2_0$ 176 ^sm_90$
^attention_tile_128_0$ 144 ^sm_90$
^attention_part_ 128
^attention_tile_512_ 1024
^attention_tile_matrix_256_0_32$ 288 ^gfx(1102|1150)$
^attention_tile_ 128
^kv_ 64
^product_tile_[0-9]*_32$ 128
^product_tile_block_11_256$ 32
^product_row_[0-9]*_8$ 64
^product_row_dot_34_1$ 128
^product_row_dot_ 64
^product_tile_dot_ 64'
ptxas=$(command -v ptxas || echo /usr/local/cuda/bin/ptxas)
readelf=$(command -v llvm-readelf-19 || command -v llvm-readelf || true)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

# Both kinds of kernels get rows of the form ENTRY TARGET REGISTERS SPILLED LOCAL SHARED. LOCAL has
# the bytes of local memory, with the spilled ones.

# ptx_row FILE: writes the rows of one file to $scratch/NAME.rows.
ptx_row() {
    target=${1%.*} name=$scratch/${1##*/}
    target=${PTXAS_TARGET:-${target##*.}}
    # The text between a fat binary's header and its machine code.
    LC_ALL=C sed -n '/^\.version /,$p' "$1" | LC_ALL=C sed '/[^[:print:][:blank:]]/,$d' >"$name.ptx"
    "$ptxas" -v "-arch=$target" "$name.ptx" -o "$name.cubin" 2>"$name.log" || {
        cat "$name.log" >&2
        return 1
    }
    awk -v target="$target" '
        /Compiling entry function/ { split($0, part, "\047"); name = part[2] }
        /bytes stack frame/ { frame = $1; spill = $5 }
        / Used [0-9]+ registers/ {
            shared = 0
            for (i = 1; i <= NF; i++) {
                if ($i == "Used") registers = $(i + 1)
                if ($i == "smem," || $i == "smem") shared = $(i - 2)
            }
            print name, target, registers, spill, frame, shared
        }' "$name.log" >"$name.rows"
}

# ptx_share NUMBER OF: writes the rows of every OF-th file, from file NUMBER (from 0) on.
ptx_share() {
    number=0
    for file in "$folder"/plugins/cuda/*.*.ptx "$folder"/plugins/cuda/*.*.fatbin; do
        [ -e "$file" ] || continue
        [ "$((number % $2))" -ne "$1" ] || ptx_row "$file" || return 1
        number=$((number + 1))
    done
}

# ptx_rows: prints the rows of all files. Each processor translates a share of the files.
ptx_rows() {
    n_share=$(nproc) share=0 shares=''
    while [ "$share" -lt "$n_share" ]; do
        ptx_share "$share" "$n_share" &
        shares="$shares $!"
        share=$((share + 1))
    done
    failed=no
    for share in $shares; do wait "$share" || failed=yes; done
    [ "$failed" = no ] || return 1
    find "$scratch" -name '*.rows' -exec cat {} +
}

amd_rows() {
    for file in "$folder"/plugins/hip/*.*.hsaco; do
        [ -e "$file" ] || return 0
        target=${file%.hsaco}
        "$readelf" --notes "$file" >"$scratch/notes" || return 1
        awk -v target="${target##*.}" '
            # The keys of a kernel are sorted; .wavefront_size is the last.
            $1 == ".name:" && $2 !~ /^\./ { name = $2 }
            $1 == ".group_segment_fixed_size:" { shared = $2 }
            $1 == ".private_segment_fixed_size:" { local = $2 }
            $1 == ".vgpr_count:" { vgpr = $2 }
            $1 == ".vgpr_spill_count:" { spill = 4 * $2 }
            $1 == ".wavefront_size:" { print name, target, vgpr, spill, local, shared }' "$scratch/notes"
    done
}

: >"$scratch/rows"
if [ -x "$ptxas" ]; then
    ptx_rows >>"$scratch/rows" || exit 1
else
    echo "no ptxas: entries of CUDA are left out" >&2
    left_out=yes
fi
if [ -n "$readelf" ]; then
    amd_rows >>"$scratch/rows" || exit 1
else
    echo "no llvm-readelf: entries of HIP are left out" >&2
    left_out=yes
fi
[ -s "$scratch/rows" ] || {
    echo "skipped: nothing to measure in $folder" >&2
    [ "$check" = no ] || exit 77
    exit 0
}
sort -k 2,2 -k 1,1V "$scratch/rows" >"$scratch/sorted"
if [ "$short" = yes ]; then
    # The name of a kernel is that of an entry without the numbers at its end.
    awk '{
            kernel = $1; sub(/(_[0-9]+)+$/, "", kernel); key = kernel " " $2
            if (!(key in most)) order[++n] = key
            if (!(key in most) || $3 + 0 > most[key] + 0) { most[key] = $3; row[key] = $0 }
        }
        END { for (i = 1; i <= n; i++) print row[order[i]] }' "$scratch/sorted" >"$scratch/short"
    mv "$scratch/short" "$scratch/shown"
else
    cp "$scratch/sorted" "$scratch/shown"
fi
echo "| entry | target | registers | spilled bytes | local bytes | fixed shared bytes |"
echo "|---|---|---|---|---|---|"
awk '{ printf "| %s | %s | %s | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6 }' "$scratch/shown"
[ "$check" = no ] && exit 0
awk -v allowed="$allowed" '
    BEGIN { n = split(allowed, line, "\n") }
    $4 + 0 > 0 || $5 + 0 > 0 {
        most = 0
        for (i = n; i >= 1; i--) { split(line[i], part, " "); if ($1 ~ part[1] && (part[3] == "" || $2 ~ part[3])) most = part[2] }
        if ($4 + $5 > most) {
            printf "%s for %s: %d bytes of local memory, %d spilled; %d are allowed\n", $1, $2, $5, $4, most
            bad = 1
        }
    }
    END { exit bad }' "$scratch/sorted" >&2 || exit 1
[ "$left_out" = no ] || exit 77
