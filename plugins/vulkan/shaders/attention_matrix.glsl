// SPDX-License-Identifier: MIT
//
// attention_matrix.glsl: ATTENTION of many tokens on matrix.glsl, for the rows of
// attention_tile_walk.glsl. A workgroup is four subgroups. Queries, K, p and V are f16; scores, m,
// l and o are f32. The queries of a row are scaled by a power of two so that they fit. Parts are
// not folded one by one: a row has one record of all the parts that its workgroup walks over. For
// caches of f16 or of types with blocks whose V is not part of K. See kernel.h.
//
// A subgroup computes the scores of 16 slots of a chunk for all rows. Of o it has one band of
// MATRIX_ROWS rows, and every 4 / BANDS-th strip of MATRIX_COLUMNS elements.
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
const bool HAS_LIST = false;
const int WINDOW = SPEC6;
#define SOFTCAP intBitsToFloat(SPEC7)
#include "matrix.glsl"

const int TILE_ROWS = 32;
const int SLICE = 64; // elements of K or of V that are in shared memory at a time
const int N_SLICE_K = (STORED_K + SLICE - 1) / SLICE, N_SLICE_V = (DIM_V + SLICE - 1) / SLICE;
const bool IS_PAIR = COLUMN_IS_PAIR(TYPE_V);
const int N_COLUMN = IS_PAIR ? DIM_V / 2 : DIM_V;
const uint BANDS = TILE_ROWS / MATRIX_ROWS;             // 1, 2 or 4
const uint SCORE_STRIPS = 16 / MATRIX_COLUMNS;          // of a subgroup
const uint STRIPS = SLICE / MATRIX_COLUMNS * BANDS / 4; // of a slice, of a subgroup

// Words of two f16 from a row of a tile to the next. Rows begin in different banks.
const uint PITCH = SLICE / 2 + 4;
const uint Q_PITCH = N_SLICE_K * SLICE / 2 + 4;
shared uint q_tile[TILE_ROWS * Q_PITCH];
shared uint kv_tile[SLICE * PITCH]; // K: slots of 64 elements; V: elements of 64 slots
shared uint p_tile[TILE_ROWS * PITCH];
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

// Stores the queries of all rows as f16, each row times a power of two, and that factor's inverse
// in q_factor; both as in halves.comp. First `stage` has the greatest exponent of each thread's
// elements.
void queries_store() {
    const int n_share = THREADS / TILE_ROWS; // threads of a row
    int row = thread() % TILE_ROWS, share = thread() / TILE_ROWS;
    uvec4 most = uvec4(0u);
    for (int quad = share; 4 * quad < STORED_K; quad += n_share)
        most = max(most, floatBitsToUint(query_load(row, quad)) & 0x7fffffffu);
    stage[thread()] = float(max(max(most.x, most.y), max(most.z, most.w)) >> 23);
    barrier();
    float largest = 0.0;
    for (int i = 0; i < n_share; i++) largest = max(largest, stage[i * TILE_ROWS + row]);
    uint exponent = clamp(uint(largest), 15u, 255u);
    bool is_finite = exponent < 255u;
    float times = is_finite ? uintBitsToFloat(268u - exponent << 23) : 0.0;
    if (share == 0)
        q_factor[row] = uintBitsToFloat(is_finite ? exponent - 14u << 23 : 0x7fc00000u);
    for (int quad = share; quad < N_SLICE_K * SLICE / 4; quad += n_share) {
        vec4 v = is_finite ? query_load(row, quad) * times : vec4(0.0);
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
    uint sub = gl_SubgroupID;
    MatrixSum s[BANDS * SCORE_STRIPS];
    [[unroll]] for (uint i = 0; i < BANDS * SCORE_STRIPS; i++) MATRIX_ZERO(s[i]);
    [[dont_unroll]] for (int slice = 0; slice < N_SLICE_K; slice++) {
        barrier();
        keys_load(region, start, first, last, slice);
        barrier();
        [[unroll]] for (uint step = 0; step < SLICE / 16; step++) {
            MatrixB k[SCORE_STRIPS];
            [[unroll]] for (uint j = 0; j < SCORE_STRIPS; j++)
                MATRIX_B_LOAD(k[j], kv_tile, (16 * sub + j * MATRIX_COLUMNS) * PITCH + 8 * step,
                              PITCH);
            [[unroll]] for (uint r = 0; r < BANDS; r++) {
                MatrixA q;
                MATRIX_A_LOAD(q, q_tile, r * MATRIX_ROWS * Q_PITCH + slice * (SLICE / 2) + 8 * step,
                              Q_PITCH);
                [[unroll]] for (uint j = 0; j < SCORE_STRIPS; j++)
                    MATRIX_MULTIPLY_ADD(s[r * SCORE_STRIPS + j], q, q_tile, k[j], kv_tile);
            }
        }
    }
    [[unroll]] for (uint r = 0; r < BANDS; r++) [[unroll]] for (uint j = 0; j < SCORE_STRIPS; j++)
        MATRIX_STORE(s[r * SCORE_STRIPS + j], stage,
                     ((sub * SCORE_STRIPS + j) * BANDS + r) * (MATRIX_ROWS * MATRIX_COLUMNS));
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
    ivec2 sees;  // first and last slot of the chunk
    float slope; // of ALiBi
    int slot;    // of the row's token, counted from the chunk's slot 0; it may be outside the chunk
};

RowView row_view(int row, int first, int last, int pos) {
    RowView view = RowView(ivec2(max(first, row_sees[row].x - pos), min(last - 1, row_sees[row].y - pos)),
                           0.0, 0);
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
    return score_of(score, SOFTCAP, slot >= view.sees.x && slot <= view.sees.y);
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
void chunk_softmax(int first, int last, int pos) {
    barrier();
    for (int i = thread(); i < N_OCTET; i += THREADS) {
        int row = octet_row(i);
        RowView view = row_view(row, first, last, pos);
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
    return (gl_SubgroupID / BANDS + i * (4 / BANDS)) * MATRIX_COLUMNS;
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

// Stores an element of four slots to kv_tile. seen: bits of the slots that some row sees. What is
// not seen, or not finite, becomes 0, since 0 times an infinity would be NaN; odd_slots notes the
// latter.
void value_store(int element, int quad, vec4 v, uint seen) {
    uvec2 words = uvec2(halves_pack(v.xy), halves_pack(v.zw));
    uint odd = (odd_halves(words.x) | odd_halves(words.y) << 2) & seen;
    if (odd != 0) atomicOr(odd_slots(quad / 8), odd << 4 * (quad % 8));
    uint kept = seen & ~odd;
    kv_tile[element * PITCH + 2 * quad] = words.x & halves_of(kept);
    kv_tile[element * PITCH + 2 * quad + 1] = words.y & halves_of(kept >> 2);
}

void values_load(uint64_t region, int start, int first, int last, int slice) {
    int n = SLICE / (IS_PAIR ? 2 : 1);
    for (int i = thread(); i < n * CHUNK / 4; i += THREADS) {
        int column = slice * n + i % n, quad = i / n, slot = 4 * quad;
        vec4 a = vec4(0.0), b = vec4(0.0);
        if (column < N_COLUMN && slot < last && slot + 4 > first)
            column_load(TYPE_V, N_COLUMN, DIM_V / 32, region, start + slot, column, a, b);
        uint seen = 0;
        [[unroll]] for (int k = 0; k < 4; k++)
            if (slot + k >= first && slot + k < last) seen |= 1u << k;
        int element = column_element(TYPE_V, column) - slice * SLICE;
        value_store(element, quad, a, seen);
        if (IS_PAIR) value_store(element + 16, quad, b, seen);
    }
}

void values_add(uint slice) {
    [[unroll]] for (uint step = 0; step < CHUNK / 16; step++) {
        MatrixA p;
        MATRIX_A_LOAD(p, p_tile, band() * MATRIX_ROWS * PITCH + 8 * step, PITCH);
        [[unroll]] for (uint i = 0; i < STRIPS; i++) {
            if (!strip_is_used(slice, i)) continue;
            MatrixB v;
            MATRIX_B_LOAD(v, kv_tile, strip_element(i) * PITCH + 8 * step, PITCH);
            MATRIX_MULTIPLY_ADD(o[slice * STRIPS + i], p, p_tile, v, kv_tile);
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
    queries_store();
}

void chunk_attend(uint64_t region, int start, int first, int last, int pos, bool is_whole) {
    scores_store(region, start, first, last);
    chunk_softmax(first, last, pos);
    sums_scale();
    [[unroll]] for (uint slice = 0; slice < N_SLICE_V; slice++) {
        barrier();
        values_load(region, start, first, last, int(slice));
        barrier();
        if ((odd_slots(0) | odd_slots(1)) != 0) odd_note(slice);
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
