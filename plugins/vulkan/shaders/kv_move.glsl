// SPDX-License-Identifier: MIT
//
// kv_move.glsl: KV_EXPORT and KV_IMPORT: canonical rows out of pages and into them, bit for bit. An
// invocation for each job, slot, head and piece; a piece is a block, or an element of a plain type.
// The includer defines IS_IMPORT and includes args.glsl and page.glsl. See kernel.h.

const int TYPE_K = SPEC0;
const int TYPE_V = SPEC1;
const int DIM_K = SPEC2;
const int DIM_V = SPEC3;
const int N_SIDE = SPEC4;
const int STRIDE = SPEC5 > 1 ? SPEC5 : 1; // of the cache

// Address of code byte or plain element `at` of a row.
uint64_t code_address(int type, int dim, bool is_v, uint64_t region, int slot, int at) {
    uint size = type_is_plain(type) ? uint(type_size(type)) : 1u;
    if (is_v)
        return region + page_v_code() +
               uint((slot / 4 * row_columns(type, dim) + at) * 4 + slot % 4) * size;
    uint off = uint(at) * size;
    return region + uint(off / 16u * uint(page_slots()) + uint(slot)) * 16u + off % 16u;
}

// Moves the bits of a u16 between a place in a page and one in a canonical row.
void half_move(uint64_t page, uint64_t row) {
    if (IS_IMPORT)
        U16(page).at[0] = U16(row).at[0];
    else
        U16(row).at[0] = U16(page).at[0];
}

void block_move(int type, int dim, bool is_v, uint64_t region, int slot, int block, uint64_t row) {
    int n_block = row_blocks(type, dim), n_code = type == TYPE_Q8_0 ? 32 : 16;
    uint at = uint(block * page_slots() + slot);
    uint64_t plane = region + (is_v ? page_v_scale() : page_k_scale());
    uint scale_size = type_has_min(type) ? 4u : 2u;
    for (uint i = 0u; i < scale_size; i += 2u) {
        half_move(plane + at * scale_size + i, row);
        row += 2u;
    }
    if (type_has_fifth(type)) {
        uint64_t fifth = plane + page_fifth(type, n_block) + at * 4u;
        half_move(fifth, row);
        half_move(fifth + 2u, row + 2u);
        row += 4u;
    }
    for (int i = 0; i < n_code; i++) {
        uint64_t page = code_address(type, dim, is_v, region, slot, block * n_code + i);
        if (IS_IMPORT)
            U8(page).at[0] = U8(row + i).at[0];
        else
            U8(row + i).at[0] = U8(page).at[0];
    }
}

void element_move(int type, int dim, bool is_v, uint64_t region, int slot, int at, uint64_t row) {
    uint64_t page = code_address(type, dim, is_v, region, slot, at);
    if (at >= dim) { // padding to a whole unit, which rows do not have
        if (!IS_IMPORT) return;
        if (type == TYPE_F32)
            U32(page).at[0] = 0u;
        else
            U16(page).at[0] = uint16_t(0);
        return;
    }
    half_move(page, row);
    if (type == TYPE_F32) half_move(page + 2u, row + 2u);
}

int block_size(int type) {
    if (type_is_plain(type)) return type_size(type);
    return (type == TYPE_Q8_0 ? 34 : 18) + (type_has_min(type) ? 2 : 0) +
           (type_has_fifth(type) ? 4 : 0);
}

int row_pieces(int type, int dim) {
    return type_is_plain(type) ? row_stored(type, dim) : row_blocks(type, dim);
}

// Zeros for a token that has no row in a cache with a stride.
void piece_clear(int type, int dim, int piece, uint64_t row) {
    if (type_is_plain(type) && piece >= dim) return;
    for (int i = 0; i < block_size(type); i += 2) U16(row + uint64_t(i)).at[0] = uint16_t(0);
}

// at: slot, head, row; slot -1 where the row is cleared
void piece_move(int type, int dim, bool is_v, uint64_t region, ivec3 at, int piece) {
    int first = is_v ? 14 : 11;
    uint64_t row = (is_v ? args.address[2] : args.address[1]) +
                   (int64_t(args.word[first]) * piece + int64_t(args.word[first + 1]) * at.y +
                    int64_t(args.word[first + 2]) * at.z) * block_size(type);
    if (STRIDE > 1 && at.x < 0)
        piece_clear(type, dim, piece, row);
    else if (type_is_plain(type))
        element_move(type, dim, is_v, region, at.x, piece, row);
    else
        block_move(type, dim, is_v, region, at.x, piece, row);
}

void main() {
    int n_k = row_pieces(TYPE_K, DIM_K), n_v = N_SIDE > 1 ? row_pieces(TYPE_V, DIM_V) : 0;
    int n_row = args.word[7], n_head = args.word[8];
    uint number = invocation_number();
    int piece = int(number % uint(n_k + n_v));
    number /= uint(n_k + n_v);
    int head = int(number % uint(n_head));
    number /= uint(n_head);
    int len = args.word[18]; // tokens of a page
    int slot = int(number % uint(len)), j = int(number / uint(len));
    if (j >= min(args.word[10], I32(args.address[3]).at[STEP_N_JOB])) return;
    ivec4 job = job_read(args.address[3], args.word[9], j);
    if (!job_clip(job, len) || slot < job.y || slot >= job.y + job.z) return;
    int row = job.w + slot - job.y;
    if (job.w < 0 || row >= n_row) return;
    if (STRIDE > 1) { // rows are those of the last positions of runs
        bool is_row = (uint(row) + 1u) % uint(STRIDE) == 0u;
        if (IS_IMPORT && !is_row) return;
        slot = is_row ? slot / STRIDE : -1;
    }
    uint64_t region = page_region(args.address[0], job.x, head);
    if (piece < n_k)
        piece_move(TYPE_K, DIM_K, false, region, ivec3(slot, head, row), piece);
    else
        piece_move(TYPE_V, DIM_V, true, region, ivec3(slot, head, row), piece - n_k);
}
