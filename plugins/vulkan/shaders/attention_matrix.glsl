// SPDX-License-Identifier: MIT
//
// attention_matrix.glsl: ATTENTION of many tokens on matrix.glsl, for the rows of
// attention_tile_walk.glsl. Queries, K, p and V are f16; scores, m, l and o are f32. The queries of
// a row are scaled by a power of two so that they fit. Parts are not folded one by one: a row has
// one record of all the parts that its workgroup walks over. For caches of f16 or of types with
// blocks. The includer defines ATTENTION_IS_LATENT: 1 where V is the first part of K's row, else 0.
// See kernel.h.
//
// A workgroup is SUBGROUPS subgroups. The scores of a chunk are matrices of MATRIX_ROWS rows and
// MATRIX_COLUMNS slots, which the subgroups share evenly. Of o a subgroup has one band of
// MATRIX_ROWS rows, and every SUBGROUPS / BANDS-th strip of MATRIX_COLUMNS elements.
//
// Where V is part of K, rows have up to 576 elements and o up to 512. The queries of a tile would
// then take 36 KiB of shared memory: instead each slice of them is loaded anew for each chunk. The
// eight subgroups have o in 64 registers of each of 32 lanes. V is loaded from the page a second
// time, since the tile of K has a slot's elements side by side, and products with p need an
// element's slots side by side.
#define SPEC4_DEFAULT 0x101001
#include "args.glsl"
#include "page.glsl"
#include "attention.glsl"

const int TYPE_K = SPEC0;
const int TYPE_V = SPEC1;
const int STORED_K = SPEC2 > 0 ? SPEC2 : 32;
const int DIM_V = SPEC3 > 0 ? SPEC3 : 32;
const int HEADS = SPEC4 & 255; // query heads of a tile
const int MATRIX_ROWS = SPEC4 >> 8 & 255, MATRIX_COLUMNS = SPEC4 >> 16;
const bool IS_SPLIT = true;
const bool HAS_SLOPES = (SPEC5 & 16) != 0;
const bool HAS_LIST = (SPEC5 & 128) != 0;
const int WINDOW = SPEC6;
#define SOFTCAP intBitsToFloat(SPEC7)
#include "matrix.glsl"

const int TILE_ROWS = 32;
const bool IS_LATENT = ATTENTION_IS_LATENT != 0;
const uint SUBGROUPS = IS_LATENT ? 8 : 4;
const int SLICE = 64; // elements of K or of V that are in shared memory at a time
const int N_SLICE_K = (STORED_K + SLICE - 1) / SLICE, N_SLICE_V = (DIM_V + SLICE - 1) / SLICE;
const bool IS_PAIR = COLUMN_IS_PAIR(TYPE_V);
const int N_COLUMN = IS_PAIR ? DIM_V / 2 : DIM_V;
const uint BANDS = TILE_ROWS / MATRIX_ROWS; // 1, 2 or 4
// Matrices of scores of a subgroup: they are SCORE_BANDS bands of each of SCORE_STRIPS strips.
const uint SCORES = TILE_ROWS * CHUNK / (MATRIX_ROWS * MATRIX_COLUMNS) / SUBGROUPS;
const uint SCORE_BANDS = SCORES < BANDS ? SCORES : BANDS;
const uint SCORE_STRIPS = SCORES / SCORE_BANDS;
const uint STRIPS = SLICE / MATRIX_COLUMNS * BANDS / SUBGROUPS; // of a slice of V, of a subgroup

// Words of two f16 from a row of a tile to the next. Rows begin in different banks.
const uint PITCH = SLICE / 2 + 4;
const int N_SLICE_Q = IS_LATENT ? 1 : N_SLICE_K; // slices of queries that are in shared memory
const uint Q_PITCH = N_SLICE_Q * SLICE / 2 + 4;
shared uint q_tile[TILE_ROWS * Q_PITCH];
shared uint kv_tile[SLICE * PITCH]; // K: slots of 64 elements; V: elements of 64 slots
#if ATTENTION_IS_LATENT
#define p_tile q_tile // after the scores of a chunk its queries are not in use
#else
shared uint p_tile[TILE_ROWS * PITCH];
#endif
// Whole matrices, in turn: scores; row_keep of the rows; o of each subgroup
shared float stage[TILE_ROWS * CHUNK];
shared float q_factor[TILE_ROWS]; // times a row of q_tile: the query; NaN where it is not finite
shared float row_m[TILE_ROWS];    // m, l and keep as in attention_fold.glsl
shared float row_l[TILE_ROWS];
shared float row_keep[TILE_ROWS];
shared uint row_odd[TILE_ROWS]; // bit i: the row sees a slot where slice i of V is not finite
// Matrices must begin at multiples of 16 bytes. Drivers may order shared memory as they like and
// align it to 4: so each array here has whole units of 16 bytes.
shared uint flags[4];
#define is_scaled    flags[0]       // 1 where not all of row_keep are 1
#define odd_slots(i) flags[2 + (i)] // of 32 slots: a bit where the present slice of V is not finite

#define THREADS int(gl_WorkGroupSize.x)
#include "attention_tile_walk.glsl"

// ---- Queries ----

vec4 query_load(int row, int quad) {
    if (!row_exists(row) || 4 * quad >= STORED_K) return vec4(0.0);
    return F32x4(args.address[1] + uint64_t(row_number(row)) * uint64_t(STORED_K * 4)).at[quad];
}

// Stores q_factor: for each row the inverse of the power of two by which its queries fit f16, as in
// halves.comp. First `stage` has the greatest exponent of each thread's elements.
void factors_store() {
    const int n_share = THREADS / TILE_ROWS; // threads of a row
    int row = thread() % TILE_ROWS, share = thread() / TILE_ROWS;
    uvec4 most = uvec4(0u);
    for (int quad = share; 4 * quad < STORED_K; quad += n_share)
        most = max(most, floatBitsToUint(query_load(row, quad)) & 0x7fffffffu);
    stage[thread()] = float(max(max(most.x, most.y), max(most.z, most.w)) >> 23);
    barrier();
    if (share == 0) {
        float largest = 0.0;
        for (int i = 0; i < n_share; i++) largest = max(largest, stage[i * TILE_ROWS + row]);
        uint exponent = clamp(uint(largest), 15u, 255u);
        q_factor[row] = uintBitsToFloat(exponent < 255u ? exponent - 14u << 23 : 0x7fc00000u);
    }
    barrier();
}

// Stores N_SLICE_Q slices of the queries, from `slice` on, as f16: each row over its q_factor, or 0
// where that is NaN.
void queries_store(int slice) {
    const int n_quad = N_SLICE_Q * SLICE / 4;
    for (int i = thread(); i < TILE_ROWS * n_quad; i += THREADS) {
        int row = i / n_quad, quad = i % n_quad;
        float factor = q_factor[row];
        float times = uintBitsToFloat((254u << 23) - floatBitsToUint(factor));
        vec4 v = vec4(0.0);
        if (!is_nan(factor)) v = query_load(row, slice * (SLICE / 4) + quad) * times;
        q_tile[row * Q_PITCH + 2 * quad] = halves_pack(v.xy);
        q_tile[row * Q_PITCH + 2 * quad + 1] = halves_pack(v.zw);
    }
}

// ---- Scores ----

// Loads a slice of K to kv_tile. Slots outside first .. last - 1 get the elements of another slot:
// their scores are not used.
void keys_load(uint64_t region, int start, int first, int last, int slice) {
    int len = unit_len(TYPE_K), n_unit = SLICE / len;
    for (int i = thread(); i < n_unit * CHUNK; i += THREADS) {
        int slot = i % CHUNK, unit = i / CHUNK, u = slice * n_unit + unit;
        uint at = slot * PITCH + unit * len / 2;
        vec4 x[8];
        if (u * len < STORED_K)
            unit_load(TYPE_K, region, STORED_K / 32, start + clamp(slot, first, last - 1), u, x);
        else
            for (int k = 0; k < len / 4; k++) x[k] = vec4(0.0);
        [[unroll]] for (int k = 0; k < len / 4; k++) {
            kv_tile[at + 2 * k] = halves_pack(x[k].xy);
            kv_tile[at + 2 * k + 1] = halves_pack(x[k].zw);
        }
    }
}

// Computes the scores of all rows and slots, not yet times q_factor, into `stage`.
void scores_store(uint64_t region, int start, int first, int last) {
    const uint number = gl_SubgroupID * SCORES, strip = number / BANDS, band = number % BANDS;
    MatrixSum s[SCORES];
    [[unroll]] for (uint i = 0; i < SCORES; i++) MATRIX_ZERO(s[i]);
    [[dont_unroll]] for (int slice = 0; slice < N_SLICE_K; slice++) {
        barrier();
        if (IS_LATENT) queries_store(slice);
        keys_load(region, start, first, last, slice);
        barrier();
        [[unroll]] for (uint step = 0; step < SLICE / 16; step++) {
            MatrixB k[SCORE_STRIPS];
            [[unroll]] for (uint j = 0; j < SCORE_STRIPS; j++)
                MATRIX_B_LOAD(k[j], kv_tile, (strip + j) * MATRIX_COLUMNS * PITCH + 8 * step,
                              PITCH);
            [[unroll]] for (uint r = 0; r < SCORE_BANDS; r++) {
                MatrixA q;
                MATRIX_A_LOAD(q, q_tile,
                              (band + r) * MATRIX_ROWS * Q_PITCH +
                                  slice % N_SLICE_Q * (SLICE / 2) + 8 * step,
                              Q_PITCH);
                [[unroll]] for (uint j = 0; j < SCORE_STRIPS; j++)
                    MATRIX_MULTIPLY_ADD(s[j * SCORE_BANDS + r], q, q_tile, k[j], kv_tile);
            }
        }
    }
    [[unroll]] for (uint i = 0; i < SCORES; i++)
        MATRIX_STORE(s[i], stage, (number + i) * (MATRIX_ROWS * MATRIX_COLUMNS));
}

// Where the score of a row and a slot is in `stage`.
uint score_at(uint row, uint slot) {
    uint matrix = slot / MATRIX_COLUMNS * BANDS + row / MATRIX_ROWS;
    return matrix * (MATRIX_ROWS * MATRIX_COLUMNS) + slot % MATRIX_COLUMNS * MATRIX_ROWS +
           row % MATRIX_ROWS;
}

// An octet is eight neighbouring slots of a row. Thread t has octets t, t + THREADS, ...
const int N_OCTET = TILE_ROWS * CHUNK / 8;
int octet_row(int i) {
    return i % TILE_ROWS;
}
int octet_slot(int i) {
    return i / TILE_ROWS * 8;
}

// What a row sees of a chunk.
struct RowView {
    ivec2 sees;   // first and last slot of the chunk
    uvec2 listed; // of these, the slots that are in the token's list: chunk_has
    float slope;  // of ALiBi
    int slot;     // of the row's token, counted from the chunk's slot 0; it may be outside the chunk
};

// start: the chunk's slot 0 in the page.
RowView row_view(int row, int start, int first, int last, int pos) {
    RowView view;
    view.sees = ivec2(max(first, row_sees[row].x - pos), min(last - 1, row_sees[row].y - pos));
    view.listed = uvec2(0u);
    view.slope = 0.0;
    view.slot = 0;
    if (HAS_LIST && row_exists(row))
        view.listed = list_chunk(list_of(args.address[5], row_token(row), chunk_kv), chunk_entry, start);
    if (HAS_SLOPES && row_exists(row)) {
        view.slope = F32(args.address[4]).at[head_first + row % HEADS];
        view.slot = I32(args.address[3]).at[args.word[12] + row_token(row)] - pos;
    }
    return view;
}

// The score of a slot that enters the softmax: score_of.
float score_placed(int row, int slot, RowView view) {
    float score = stage[score_at(row, slot)] * q_factor[row];
    if (HAS_SLOPES) score = score_biased(score, view.slope, view.slot - slot);
    bool is_visible = slot >= view.sees.x && slot <= view.sees.y;
    if (HAS_LIST) is_visible = is_visible && chunk_has(view.listed, slot);
    return score_of(score, SOFTCAP, is_visible);
}

// The maximum and the sum of p of each octet, in kv_tile, which is not in use during the softmax.
#define OCTET_MOST(i) kv_tile[i]
#define OCTET_SUM(i)  kv_tile[N_OCTET + (i)]

// The greatest score of a row so far, the present chunk included.
float row_most(int row) {
    float m = row_m[row];
    [[unroll]] for (int k = 0; k < CHUNK / 8; k++)
        m = max(m, uintBitsToFloat(OCTET_MOST(k * TILE_ROWS + row)));
    return m;
}

// exp(x - m), 0 where x is -inf. The hardware's exp2 is precise enough for f16.
float exp_about(float x, float m) {
    return x == NEGATIVE_INFINITY ? 0.0 : exp2((x - m) * 1.44269504);
}

// The softmax of the present chunk: stores p = exp(score - m) as f16 in p_tile, and updates m and
// l, the sum of the rounded p.
void chunk_softmax(int start, int first, int last, int pos) {
    barrier();
    for (int i = thread(); i < N_OCTET; i += THREADS) {
        int row = octet_row(i);
        RowView view = row_view(row, start, first, last, pos);
        float m = NEGATIVE_INFINITY;
        [[unroll]] for (int k = 0; k < 8; k++) {
            float s = score_placed(row, octet_slot(i) + k, view);
            stage[score_at(row, octet_slot(i) + k)] = s;
            m = max(m, s);
        }
        OCTET_MOST(i) = floatBitsToUint(m);
    }
    barrier();
    for (int i = thread(); i < N_OCTET; i += THREADS) {
        int row = octet_row(i);
        float m = row_most(row), sum = 0.0;
        // A row that has seen no slot has m = -inf; its p must be 0, not NaN.
        float shift = m == NEGATIVE_INFINITY ? 0.0 : m;
        [[unroll]] for (int k = 0; k < 4; k++) {
            uint at = score_at(row, octet_slot(i) + 2 * k);
            float a = stage[at], b = stage[at + MATRIX_ROWS]; // of neighbouring columns
            uint word = halves_pack(vec2(exp_about(a, shift), exp_about(b, shift)));
            p_tile[row * PITCH + octet_slot(i) / 2 + k] = word;
            vec2 rounded = unpackHalf2x16(word);
            sum += rounded.x + rounded.y;
        }
        OCTET_SUM(i) = floatBitsToUint(sum);
    }
    if (thread() == 0) is_scaled = 0;
    barrier();
    for (int row = thread(); row < TILE_ROWS; row += THREADS) {
        float old = row_m[row], m = row_most(row), sum = 0.0;
        float keep = old == m ? 1.0 : exp_about(old, m);
        [[unroll]] for (int k = 0; k < CHUNK / 8; k++)
            sum += uintBitsToFloat(OCTET_SUM(k * TILE_ROWS + row));
        row_m[row] = m;
        row_l[row] = fma(row_l[row], keep, sum);
        row_keep[row] = keep;
        if (keep != 1.0) is_scaled = 1;
    }
    barrier();
}

// ---- Values ----

MatrixSum o[N_SLICE_V * STRIPS];

uint band() {
    return gl_SubgroupID % BANDS;
}
// The first element, in a slice, of strip i of the subgroup.
uint strip_element(uint i) {
    return (gl_SubgroupID / BANDS + i * (SUBGROUPS / BANDS)) * MATRIX_COLUMNS;
}
bool strip_is_used(uint slice, uint i) {
    return slice * SLICE + strip_element(i) < DIM_V;
}

// o *= row_keep.
void sums_scale() {
    if (is_scaled == 0) return;
    for (int e = thread(); e < TILE_ROWS * MATRIX_COLUMNS; e += THREADS)
        stage[e] = row_keep[e / (MATRIX_ROWS * MATRIX_COLUMNS) * MATRIX_ROWS + e % MATRIX_ROWS];
    barrier();
    MatrixSum keep;
    MATRIX_SUM_LOAD(keep, stage, band() * (MATRIX_ROWS * MATRIX_COLUMNS));
    [[unroll]] for (uint i = 0; i < N_SLICE_V * STRIPS; i++) MATRIX_SCALE(o[i], keep);
}

// Which of two f16 are infinite or NaN: bit 0 for the lower half of the word, bit 1 for the upper.
uint odd_halves(uint word) {
    uint odd = (word & 0x7c007c00u) + 0x04000400u & 0x80008000u;
    return odd >> 15 & 1u | odd >> 30;
}

// A mask of the f16 of a word whose bits (0 lower, 1 upper) are set.
uint halves_of(uint bits) {
    return (bits & 1u) * 0xffffu | (bits >> 1 & 1u) * 0xffff0000u;
}

// Stores an element of two slots to kv_tile. seen: bits of the slots that some row sees. What is
// not seen, or not finite, becomes 0, since 0 times an infinity would be NaN; odd_slots notes the
// latter. Where V is part of K there is nothing to note: the row's score is not finite either, so
// that p of the slot is NaN, or 0.
void value_store(int element, int pair, vec2 v, uint seen) {
    uint word = halves_pack(v), odd = odd_halves(word) & seen;
    if (!IS_LATENT && odd != 0) atomicOr(odd_slots(pair / 16), odd << 2 * (pair % 16));
    kv_tile[element * PITCH + pair] = word & halves_of(seen & ~odd);
}

// Bits of the slots slot .. slot + n - 1 that some row sees.
uint slots_seen(int slot, int n, int first, int last) {
    uint seen = 0;
    [[unroll]] for (int k = 0; k < n; k++)
        if (slot + k >= first && slot + k < last) seen |= 1u << k;
    return seen;
}

void values_load(uint64_t region, int start, int first, int last, int slice) {
    int n = SLICE / (IS_PAIR ? 2 : 1);
    for (int i = thread(); i < n * CHUNK / 4; i += THREADS) {
        int column = slice * n + i % n, quad = i / n, slot = 4 * quad;
        vec4 a = vec4(0.0), b = vec4(0.0);
        if (column < N_COLUMN && slot < last && slot + 4 > first)
            column_load(TYPE_V, N_COLUMN, DIM_V / 32, region, start + slot, column, a, b);
        uint seen = slots_seen(slot, 4, first, last);
        int element = column_element(TYPE_V, column) - slice * SLICE;
        value_store(element, 2 * quad, a.xy, seen);
        value_store(element, 2 * quad + 1, a.zw, seen >> 2);
        if (!IS_PAIR) continue;
        value_store(element + 16, 2 * quad, b.xy, seen);
        value_store(element + 16, 2 * quad + 1, b.zw, seen >> 2);
    }
}

// The same where V is part of K: a thread has a unit of two neighbouring slots, so that it loads 16
// bytes at a time, and neighbouring threads store neighbouring words.
void values_load_from_k(uint64_t region, int start, int first, int last, int slice) {
    int len = unit_len(TYPE_K), n_unit = SLICE / len;
    for (int i = thread(); i < n_unit * CHUNK / 2; i += THREADS) {
        int pair = i % (CHUNK / 2), unit = i / (CHUNK / 2), u = slice * n_unit + unit;
        uint seen = slots_seen(2 * pair, 2, first, last);
        vec4 a[8], b[8];
        if (seen != 0 && u * len < DIM_V) {
            unit_load(TYPE_K, region, STORED_K / 32, start + 2 * pair, u, a);
            unit_load(TYPE_K, region, STORED_K / 32, start + 2 * pair + 1, u, b);
        } else {
            for (int k = 0; k < len / 4; k++) a[k] = b[k] = vec4(0.0);
        }
        [[unroll]] for (int e = 0; e < len; e++)
            value_store(unit * len + e, pair, vec2(a[e / 4][e % 4], b[e / 4][e % 4]), seen);
    }
}

// p of 16 slots each. Where V is part of K they stay in registers for all slices: a slice then has
// few strips, so that p would be loaded for nearly each product.
MatrixA p[CHUNK / 16];

void values_add(uint slice) {
    [[unroll]] for (uint step = 0; step < CHUNK / 16; step++) {
        if (!IS_LATENT || slice == 0)
            MATRIX_A_LOAD(p[step], p_tile, band() * MATRIX_ROWS * PITCH + 8 * step, PITCH);
        [[unroll]] for (uint i = 0; i < STRIPS; i++) {
            if (!strip_is_used(slice, i)) continue;
            MatrixB v;
            MATRIX_B_LOAD(v, kv_tile, strip_element(i) * PITCH + 8 * step, PITCH);
            MATRIX_MULTIPLY_ADD(o[slice * STRIPS + i], p[step], p_tile, v, kv_tile);
        }
    }
}

// Notes in row_odd the rows with p != 0 for a slot of odd_slots: values_load has made its elements
// 0, but o of such a row must be NaN in this slice (tile_end).
void odd_note(uint slice) {
    for (int i = thread(); i < TILE_ROWS * CHUNK / 2; i += THREADS) {
        int row = i / (CHUNK / 2), pair = i % (CHUNK / 2);
        uint p = p_tile[row * PITCH + pair], odd = odd_slots(pair / 16) >> pair % 16 * 2;
        bool is_seen = ((odd & 1u) != 0 && (p & 0x7fffu) != 0) ||
                       ((odd & 2u) != 0 && (p & 0x7fff0000u) != 0);
        if (is_seen) atomicOr(row_odd[row], 1u << slice);
    }
    barrier();
    if (thread() < CHUNK / 32) odd_slots(thread()) = 0;
}

// ---- A tile ----

void tile_begin(ivec3 parts) {
    for (int row = thread(); row < TILE_ROWS; row += THREADS) {
        row_m[row] = NEGATIVE_INFINITY;
        row_l[row] = 0.0;
        row_odd[row] = 0;
    }
    if (thread() < CHUNK / 32) odd_slots(thread()) = 0;
    [[unroll]] for (uint i = 0; i < N_SLICE_V * STRIPS; i++) MATRIX_ZERO(o[i]);
    factors_store();
    if (!IS_LATENT) queries_store(0);
}

void chunk_attend(uint64_t region, int start, int first, int last, int pos, bool is_whole) {
    scores_store(region, start, first, last);
    chunk_softmax(start, first, last, pos);
    sums_scale();
    [[unroll]] for (uint slice = 0; slice < N_SLICE_V; slice++) {
        barrier();
        if (IS_LATENT)
            values_load_from_k(region, start, first, last, int(slice));
        else
            values_load(region, start, first, last, int(slice));
        barrier();
        if (!IS_LATENT && (odd_slots(0) | odd_slots(1)) != 0) odd_note(slice);
        values_add(slice);
    }
}

void part_end(int part, int n_part) {}

// Writes a record for each row, of all parts of this workgroup.
void tile_end(ivec3 parts) {
    int count = args.word[19] >> 17;
    int number = parts.x / count, n_record = ((args.word[9] & 0xffff) + count - 1) / count;
    uint at = gl_SubgroupID * (MATRIX_ROWS * MATRIX_COLUMNS);
    barrier();
    for (int row = thread(); row < TILE_ROWS; row += THREADS) {
        if (!row_exists(row)) continue;
        F32 to = F32(record_address(row, number, n_record));
        to.at[0] = row_m[row];
        to.at[1] = row_l[row];
    }
    [[unroll]] for (uint n = 0; n < N_SLICE_V * STRIPS; n++) {
        uint first = n / STRIPS * SLICE + strip_element(n % STRIPS);
        barrier();
        MATRIX_STORE(o[n], stage, at);
        barrier();
        for (uint e = gl_SubgroupInvocationID; e < MATRIX_ROWS * MATRIX_COLUMNS;
             e += gl_SubgroupSize) {
            uint r = e / MATRIX_COLUMNS, c = e % MATRIX_COLUMNS;
            int row = int(band() * MATRIX_ROWS + r);
            if (!row_exists(row) || first + c >= DIM_V || row_m[row] == NEGATIVE_INFINITY) continue;
            bool is_odd = (row_odd[row] >> n / STRIPS & 1u) != 0;
            F32(record_address(row, number, n_record)).at[PART_HEAD + first + c] =
                is_odd ? uintBitsToFloat(0x7fc00000u) : stage[at + c * MATRIX_ROWS + r];
        }
    }
}
