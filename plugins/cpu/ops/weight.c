/* SPDX-License-Identifier: MIT
 *
 * weight.c: converts canonical rows (block.h) to the interleaved groups of weight.h and back, in
 * pieces of any size. The kernels in vector/matmul_*.h read the groups.
 */
#include <string.h>

#include "quant/convert.h"
#include "plugins/cpu/ops/lane_move.h"
#include "plugins/cpu/ops/matmul.h"
#include "plugins/cpu/ops/weight.h"

/* One field of a canonical block. The fields of a front, and those of a body, are stored in the
 * order of the list, which is the order in which the kernels read them. */
typedef struct field {
    uint8_t off;  /* in the canonical block, bytes */
    uint8_t size; /* bytes; 0 ends the list */
    uint8_t unit; /* bytes of a row that stay together: 1, 2 or 4; BITS */
    uint8_t part; /* FRONT or BODY */
} field;

enum { FRONT, BODY, N_PART };

/* A unit of BITS is a 32-bit word of fifth bits. In a canonical block element i is bit i. It is
 * stored with element 4 * c + j at bit c of byte j: for every c the fifth bit of a code is then in
 * the same byte of a lane as its nibble. */
enum { BITS = 5 };
enum { MAX_FIELDS = 6, MAX_BLOCK_SIZE = 256 };

typedef struct recipe {
    field fields[MAX_FIELDS];
} recipe;

static const recipe recipes[TDM_TYPE_LIMIT_] = {
    [TDM_TYPE_F32] = {{{0, 4, 4, BODY}}},
    [TDM_TYPE_F16] = {{{0, 2, 2, BODY}}},
    [TDM_TYPE_BF16] = {{{0, 2, 2, BODY}}},
    /* d, then m; codes (and fifth bits) */
    [TDM_TYPE_Q4_0] = {{{0, 2, 2, FRONT}, {2, 16, 4, BODY}}},
    [TDM_TYPE_Q4_1] = {{{0, 2, 2, FRONT}, {2, 2, 2, FRONT}, {4, 16, 4, BODY}}},
    [TDM_TYPE_Q5_0] = {{{0, 2, 2, FRONT}, {6, 16, 4, BODY}, {2, 4, BITS, BODY}}},
    [TDM_TYPE_Q5_1] = {{{0, 2, 2, FRONT}, {2, 2, 2, FRONT}, {8, 16, 4, BODY}, {4, 4, BITS, BODY}}},
    [TDM_TYPE_Q8_0] = {{{0, 2, 2, FRONT}, {2, 32, 4, BODY}}},
    [TDM_TYPE_IQ4_NL] = {{{0, 2, 2, FRONT}, {2, 16, 4, BODY}}},
    [TDM_TYPE_MXFP4] = {{{0, 1, 1, FRONT}, {1, 16, 4, BODY}}},
    [TDM_TYPE_NVFP4] = {{{0, 4, 1, BODY}, {4, 32, 4, BODY}}},
    /* packed scales, d, dmin, further bits, codes */
    [TDM_TYPE_Q2_K] = {{{0, 16, 1, BODY}, {80, 2, 2, BODY}, {82, 2, 2, BODY}, {16, 64, 4, BODY}}},
    [TDM_TYPE_Q3_K] =
        {{{108, 2, 2, FRONT}, {96, 12, 1, BODY}, {0, 32, 4, BODY}, {32, 64, 4, BODY}}},
    [TDM_TYPE_Q4_K] = {{{4, 12, 1, BODY}, {0, 2, 2, BODY}, {2, 2, 2, BODY}, {16, 128, 4, BODY}}},
    [TDM_TYPE_Q5_K] = {{{4, 12, 1, BODY},
                        {0, 2, 2, BODY},
                        {2, 2, 2, BODY},
                        {16, 32, 4, BODY},
                        {48, 128, 4, BODY}}},
    /* the high bits of each half before its low ones */
    [TDM_TYPE_Q6_K] = {{{208, 2, 2, FRONT},
                        {192, 16, 1, BODY},
                        {128, 32, 4, BODY},
                        {0, 64, 4, BODY},
                        {160, 32, 4, BODY},
                        {64, 64, 4, BODY}}},
    /* scales_l, scales_h, d, codes */
    [TDM_TYPE_IQ4_XS] = {{{4, 4, 1, BODY}, {2, 2, 2, BODY}, {0, 2, 2, BODY}, {8, 128, 4, BODY}}},
    /* d; indices (with or beside words of signs), further signs, high bits, scales */
    [TDM_TYPE_IQ2_XXS] = {{{0, 2, 2, FRONT}, {2, 64, 4, BODY}}},
    [TDM_TYPE_IQ2_XS] = {{{0, 2, 2, FRONT}, {2, 64, 4, BODY}, {66, 8, 1, BODY}}},
    [TDM_TYPE_IQ2_S] = {{{0, 2, 2, FRONT},
                         {2, 32, 4, BODY},
                         {34, 32, 4, BODY},
                         {66, 8, 1, BODY},
                         {74, 8, 1, BODY}}},
    [TDM_TYPE_IQ3_XXS] = {{{0, 2, 2, FRONT}, {2, 64, 4, BODY}, {66, 32, 4, BODY}}},
    [TDM_TYPE_IQ3_S] = {{{0, 2, 2, FRONT},
                         {2, 64, 4, BODY},
                         {74, 32, 4, BODY},
                         {66, 8, 1, BODY},
                         {106, 4, 1, BODY}}},
    [TDM_TYPE_IQ1_S] = {{{0, 2, 2, FRONT}, {2, 32, 4, BODY}, {34, 16, 2, BODY}}},
    [TDM_TYPE_IQ1_M] = {{{0, 32, 4, BODY}, {32, 16, 2, BODY}, {48, 8, 2, BODY}}},
    /* d, codes */
    [TDM_TYPE_TQ1_0] = {{{52, 2, 2, FRONT}, {0, 48, 4, BODY}, {48, 4, 4, BODY}}},
    [TDM_TYPE_TQ2_0] = {{{64, 2, 2, FRONT}, {0, 64, 4, BODY}}},
};

static bool is_known(tdm_type type) {
    return (unsigned)type < TDM_TYPE_LIMIT_ && recipes[type].fields[0].size != 0;
}

/* Bytes of the front of one block of one row. */
static size_t front_size(tdm_type type) {
    size_t size = 0;
    for (int i = 0; i < MAX_FIELDS; i++) {
        const field *f = &recipes[type].fields[i];
        if (f->part == FRONT) size += f->size;
    }
    return size;
}

tdm_status cpu_weight_layout_get(const cpu_device *device, tdm_type type, uint32_t usage,
                                 const int64_t ne[TDM_MAX_DIMS], cpu_weight_layout *layout_out,
                                 tdm_error *err) {
    tdm_type_info info = tdm_type_get_info(type);
    if (info.name == NULL || (usage != 0 && !is_known(type))) {
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "weights of type %s cannot be kept for matmul or "
                        "row lookup: only floating-point and quantised types can",
                        tdm_type_name(type));
    }
    if (ne[0] < 0 || ne[0] % info.block_len != 0 || ne[0] > INT64_MAX / 8) {
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "rows of %lld elements are not whole blocks of %s", (long long)ne[0],
                        info.name);
    }
    cpu_weight_layout l = {
        .type = type, .n_lane = 1, .block_len = info.block_len, .block_size = info.block_size};
    if (usage & (TDM_USAGE_MATMUL | TDM_USAGE_EXPERT)) {
        l.n_lane = cpu_matmul_kernel_get(device, type, TDM_ROLE_GENERATED)->n_lane;
    }
    l.n_block = ne[0] / info.block_len;
    l.n_row = ne[1];
    l.n_group = ne[1] / l.n_lane + (ne[1] % l.n_lane != 0);
    l.row_size = tdm_type_row_size(type, ne[0]);
    int64_t n_row_kept, size;
    if (ne[1] < 0 || ne[2] < 0 || ne[3] < 0 || __builtin_mul_overflow(ne[2], ne[3], &l.n_matrix) ||
        __builtin_mul_overflow(l.n_group, (int64_t)l.n_lane, &n_row_kept) ||
        __builtin_mul_overflow(n_row_kept, l.n_matrix, &n_row_kept) ||
        __builtin_mul_overflow(n_row_kept, (int64_t)l.row_size, &size) || size > INT64_MAX / 2) {
        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                        "a weight of [%lld, %lld, %lld, %lld] has no size in bytes",
                        (long long)ne[0], (long long)ne[1], (long long)ne[2], (long long)ne[3]);
    }
    l.group_size = l.row_size * (size_t)l.n_lane;
    *layout_out = l;
    return TDM_OK;
}

/* Bits j, j + 4, ... of `word` to byte j; see BITS. */
static uint32_t bits_spread(uint32_t word) {
    uint32_t out = 0;
    for (int j = 0; j < 4; j++) {
        uint32_t t = word >> j & 0x11111111;
        t = (t | t >> 3) & 0x03030303;
        t = (t | t >> 6) & 0x000f000f;
        t = (t | t >> 12) & 0xff;
        out |= t << 8 * j;
    }
    return out;
}

static uint32_t bits_gather(uint32_t word) {
    uint32_t out = 0;
    for (int j = 0; j < 4; j++) {
        uint32_t t = word >> 8 * j & 0xff;
        t = (t | t << 12) & 0x000f000f;
        t = (t | t << 6) & 0x03030303;
        t = (t | t << 3) & 0x11111111;
        out |= t << j;
    }
    return out;
}

/* Moves the units of one field of `n_row` rows, `row_pitch` apart at `src`, to neighbouring lanes,
 * of which the first begins at `to`; `pitch` is the distance of a lane's units in the group. */
static void field_scatter(const field *f, uint8_t *to, size_t pitch, const uint8_t *src,
                          uint64_t row_pitch, int32_t n_row) {
    uint32_t words[CPU_MATMUL_LANE];
    switch (f->unit) {
    case 1: lane_move_1(to, pitch, src, row_pitch, f->size, n_row); break;
    case 2: lane_move_2(to, pitch, src, row_pitch, f->size, n_row); break;
    case 4: lane_move_4(to, pitch, src, row_pitch, f->size, n_row); break;
    default:
        for (int32_t r = 0; r < n_row; r++) memcpy(&words[r], src + (uint64_t)r * row_pitch, 4);
        for (int32_t r = 0; r < n_row; r++) words[r] = bits_spread(words[r]);
        memcpy(to, words, 4 * (size_t)n_row);
    }
}

/* Moves the units of one field from a lane to a canonical block. */
static void field_gather(const field *f, const uint8_t *lane, size_t pitch, uint8_t *block) {
    uint32_t word;
    switch (f->unit) {
    case 1:
        for (int i = 0; i < f->size; i++) block[i] = lane[(size_t)i * pitch];
        break;
    case 2:
        for (int i = 0; i < f->size; i += 2) memcpy(block + i, lane + (size_t)(i / 2) * pitch, 2);
        break;
    case 4:
        for (int i = 0; i < f->size; i += 4) memcpy(block + i, lane + (size_t)(i / 4) * pitch, 4);
        break;
    default:
        memcpy(&word, lane, 4);
        word = bits_gather(word);
        memcpy(block, &word, 4);
    }
}

/* Where front and body of block b begin in an interleaved group. */
static void parts_locate(const cpu_weight_layout *l, int64_t b, size_t off[N_PART]) {
    size_t lanes = (size_t)l->n_lane, front = front_size(l->type);
    int64_t chunk = CPU_WEIGHT_CHUNK / l->n_lane, first = b / chunk * chunk;
    int64_t n = l->n_block - first < chunk ? l->n_block - first : chunk;
    size_t begin = (size_t)first * (size_t)l->block_size;
    off[FRONT] = lanes * (begin + (size_t)(b - first) * front);
    off[BODY] =
        lanes * (begin + (size_t)n * front + (size_t)(b - first) * ((size_t)l->block_size - front));
}

static size_t unit_size(const field *f) {
    return f->unit == BITS ? 4 : f->unit;
}

/* Blocks first .. first + n - 1 of n_row rows, to lanes `lane` and on. */
static void blocks_scatter(const cpu_weight_layout *l, uint8_t *group, int32_t lane, int64_t first,
                           int64_t n, const uint8_t *src, uint64_t row_pitch, int32_t n_row) {
    const field *fields = recipes[l->type].fields;
    const size_t lanes = (size_t)l->n_lane, front = lanes * front_size(l->type);
    const size_t body = lanes * (size_t)l->block_size - front;
    const int64_t chunk = CPU_WEIGHT_CHUNK / l->n_lane, end = first + n;
    for (int64_t b = first; b < end;) {
        size_t chunk_off[N_PART];
        parts_locate(l, b, chunk_off);
        int64_t chunk_end = (b / chunk + 1) * chunk < end ? (b / chunk + 1) * chunk : end;
        for (; b < chunk_end; b++, src += l->block_size) {
            size_t off[N_PART] = {chunk_off[FRONT], chunk_off[BODY]};
            for (const field *f = fields; f < fields + MAX_FIELDS && f->size != 0; f++) {
                size_t unit = unit_size(f);
                field_scatter(f, group + off[f->part] + (size_t)lane * unit, unit * lanes,
                              src + f->off, row_pitch, n_row);
                off[f->part] += f->size * lanes;
            }
            chunk_off[FRONT] += front;
            chunk_off[BODY] += body;
        }
    }
}

static void block_gather(const cpu_weight_layout *l, const uint8_t *group, int64_t b, int32_t lane,
                         uint8_t *block) {
    size_t off[N_PART];
    parts_locate(l, b, off);
    for (const field *f = recipes[l->type].fields, *end = f + MAX_FIELDS; f < end && f->size; f++) {
        size_t unit = unit_size(f);
        field_gather(f, group + off[f->part] + (size_t)lane * unit, unit * (size_t)l->n_lane,
                     block + f->off);
        off[f->part] += f->size * (size_t)l->n_lane;
    }
}

/* Elements of a plain type: a field of n_block units. Rows are often a power of two apart, and a
 * cache holds few such lines at a time. So a piece of each row is copied first. */
static void elements_scatter(const cpu_weight_layout *l, uint8_t *group, int64_t first, int64_t n,
                             int32_t lane, const uint8_t *src, uint64_t row_pitch, int32_t n_row) {
    enum { PIECE_SIZE = 64 };
    uint8_t pieces[CPU_MATMUL_LANE][PIECE_SIZE];
    size_t size = (size_t)l->block_size, pitch = size * (size_t)l->n_lane;
    uint8_t *to = group + (size_t)first * pitch + (size_t)lane * size;
    for (int64_t n_piece; n > 0; n -= n_piece, src += (size_t)n_piece * size) {
        n_piece = PIECE_SIZE / (int64_t)size < n ? PIECE_SIZE / (int64_t)size : n;
        if (n_piece == PIECE_SIZE / (int64_t)size) {
            for (int32_t r = 0; r < n_row; r++)
                memcpy(pieces[r], src + (uint64_t)r * row_pitch, PIECE_SIZE);
        } else {
            for (int32_t r = 0; r < n_row; r++)
                memcpy(pieces[r], src + (uint64_t)r * row_pitch, (size_t)n_piece * size);
        }
        if (size == 2)
            lane_move_2(to, pitch, pieces[0], PIECE_SIZE, (int32_t)n_piece * 2, n_row);
        else
            lane_move_4(to, pitch, pieces[0], PIECE_SIZE, (int32_t)n_piece * 4, n_row);
        to += (size_t)n_piece * pitch;
    }
}

static void elements_gather(const cpu_weight_layout *l, const uint8_t *group, int64_t first,
                            int64_t n, int32_t lane, uint8_t *dst) {
    size_t size = (size_t)l->block_size, pitch = size * (size_t)l->n_lane;
    const uint8_t *from = group + (size_t)first * pitch + (size_t)lane * size;
    if (size == 2) {
        for (int64_t i = 0; i < n; i++, from += pitch, dst += 2) memcpy(dst, from, 2);
    } else {
        for (int64_t i = 0; i < n; i++, from += pitch, dst += 4) memcpy(dst, from, 4);
    }
}

/* Blocks first .. first + n - 1 of n_row rows, to lanes `lane` and on of one group. */
static void rows_scatter(const cpu_weight_layout *l, uint8_t *group, int32_t lane, int64_t first,
                         int64_t n, const uint8_t *src, uint64_t row_pitch, int32_t n_row) {
    if (l->n_lane == 1) { /* and n_row */
        memcpy(group + (size_t)first * (size_t)l->block_size, src,
               (size_t)n * (size_t)l->block_size);
    } else if (l->block_len == 1) {
        elements_scatter(l, group, first, n, lane, src, row_pitch, n_row);
    } else {
        blocks_scatter(l, group, lane, first, n, src, row_pitch, n_row);
    }
}

static void row_gather(const cpu_weight_layout *l, const uint8_t *group, int32_t lane,
                       int64_t first, int64_t n, uint8_t *dst) {
    if (l->n_lane == 1) {
        memcpy(dst, group + (size_t)first * (size_t)l->block_size,
               (size_t)n * (size_t)l->block_size);
    } else if (l->block_len == 1) {
        elements_gather(l, group, first, n, lane, dst);
    } else {
        for (int64_t b = first; b < first + n; b++, dst += l->block_size)
            block_gather(l, group, b, lane, dst);
    }
}

/* Where the group of row `row` (numbered over all matrices) begins; *lane is its lane there. */
static size_t group_off(const cpu_weight_layout *l, int64_t row, int32_t *lane) {
    int64_t matrix = row / l->n_row, in_matrix = row % l->n_row;
    *lane = (int32_t)(in_matrix % l->n_lane);
    return (size_t)(matrix * l->n_group + in_matrix / l->n_lane) * l->group_size;
}

tdm_status cpu_weight_size(const cpu_device *device, const tdm_tensor_desc *desc,
                           uint64_t *size_out, tdm_error *err) {
    cpu_weight_layout l;
    tdm_status status = cpu_weight_layout_get(device, desc->type, desc->usage, desc->ne, &l, err);
    if (status != TDM_OK) return status;
    *size_out = (uint64_t)(l.n_matrix * l.n_group) * l.group_size;
    return TDM_OK;
}

void cpu_weight_upload(const cpu_weight_layout *l, uint8_t *dst, const void *src,
                       uint64_t row_pitch, int64_t row_first, int64_t n_row, int64_t col_first,
                       int64_t n_col) {
    const uint8_t *from = src;
    int64_t end = row_first + n_row;
    for (int64_t row = row_first; row < end;) {
        int32_t lane;
        uint8_t *group = dst + group_off(l, row, &lane);
        /* To the end of the group or of the matrix, whichever is first. */
        int64_t n = l->n_lane - lane, n_left = l->n_row - row % l->n_row;
        if (n > n_left) n = n_left;
        if (n > end - row) n = end - row;
        rows_scatter(l, group, lane, col_first / l->block_len, n_col / l->block_len, from,
                     row_pitch, (int32_t)n);
        row += n;
        from += (uint64_t)n * row_pitch;
    }
}

void cpu_weight_download(const cpu_weight_layout *l, const uint8_t *src, void *dst,
                         uint64_t row_pitch, int64_t row_first, int64_t n_row, int64_t col_first,
                         int64_t n_col) {
    uint8_t *row_dst = dst;
    for (int64_t row = row_first; row < row_first + n_row; row++, row_dst += row_pitch) {
        int32_t lane;
        const uint8_t *group = src + group_off(l, row, &lane);
        row_gather(l, group, lane, col_first / l->block_len, n_col / l->block_len, row_dst);
    }
}

void cpu_weight_get_row(const cpu_device *device, const cpu_view *table, int64_t row, float *out) {
    cpu_weight_layout l;
    if (cpu_weight_layout_get(device, table->type, table->usage, table->ne, &l, NULL) != TDM_OK) {
        return; /* never fails: cpu_weight_size accepted this type and shape */
    }
    tdm_row_dequantize_fn dequantize = tdm_row_codec_get(table->type).dequantize;
    int32_t lane;
    const uint8_t *group = table->data + group_off(&l, row, &lane);
    if (l.n_lane == 1) {
        dequantize(group, out, table->ne[0]);
        return;
    }
    /* Canonical bytes of a piece of the row at a time: one block, or as many elements as fit. */
    union {
        uint32_t align;
        uint8_t bytes[MAX_BLOCK_SIZE];
    } piece;
    int64_t n_step = l.block_len > 1 ? 1 : MAX_BLOCK_SIZE / l.block_size;
    for (int64_t b = 0; b < l.n_block; b += n_step) {
        int64_t n = l.n_block - b < n_step ? l.n_block - b : n_step;
        row_gather(&l, group, lane, b, n, piece.bytes);
        dequantize(piece.bytes, out + b * l.block_len, n * l.block_len);
    }
}
