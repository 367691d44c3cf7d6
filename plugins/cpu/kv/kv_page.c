/* SPDX-License-Identifier: MIT
 *
 * kv_page.c: the arrangement of cache pages described in kv_page.h: sizes, and storing and loading
 * a canonical row. Also reading the step block, with bounds checks on its contents.
 */
#include "plugins/cpu/kv/kv_page.h"

#include <string.h>

#include "core/base/kv_check.h"
#include "tandem/block.h"

/* Elements of a head: far above any model, and all sizes fit in 64 bits. */
enum { MAX_HEAD_DIM = 1 << 16 };

static void side_init(cpu_kv_side *side, tdm_type type, int32_t head_dim, bool is_value) {
    tdm_type_info info = tdm_type_get_info(type);
    memset(side, 0, sizeof *side);
    side->type = type;
    side->is_value = is_value;
    side->head_dim = head_dim;
    side->padded = tdm_kv_padded(type, head_dim);
    side->rotation = 1;
    side->block_size = (size_t)info.block_size;
    side->row_size = tdm_type_row_size(type, side->padded);
    side->stride = (side->padded + 15) / 16 * 16;
    if (info.is_quantized) {
        side->n_block = side->padded / CPU_KV_BLOCK;
        side->has_fifth = type == TDM_TYPE_Q5_0 || type == TDM_TYPE_Q5_1;
        side->n_scale = type == TDM_TYPE_Q4_1 || type == TDM_TYPE_Q5_1 ? 2 : 1;
        side->code_size = type == TDM_TYPE_Q8_0 ? 32 : 16;
        side->flip =
            is_value && type == TDM_TYPE_Q4_0 ? 0x88 : 0; /* code - 8 is code ^ 8, signed */
        side->codes_size = CPU_KV_TILE * (size_t)(side->code_size + (side->has_fifth ? 4 : 0));
        side->data_size = (size_t)side->n_block * side->codes_size;
        side->scale_size = (size_t)side->n_block * CPU_KV_TILE * 2 * (size_t)side->n_scale;
    } else {
        int32_t elements = is_value ? side->stride : side->padded;
        side->data_size = (size_t)elements * CPU_KV_TILE * side->block_size;
    }
}

/* Places a side's tiles behind `off`; returns the end. */
static size_t side_place(cpu_kv_side *side, int32_t n_tile, size_t off) {
    int32_t group = side->is_value ? 4 : 2;
    side->group = side->n_block == 0 ? 1 : n_tile < group ? n_tile : group;
    side->data_off = off;
    off = cpu_kv_round(off + (size_t)n_tile * side->data_size);
    side->scale_off = off;
    return cpu_kv_round(off + (size_t)n_tile * side->scale_size);
}

tdm_status cpu_kv_layout_get(const tdm_kv_desc *desc, cpu_kv_layout *layout_out, tdm_error *err) {
    cpu_kv_layout layout;
    int32_t page_len = desc->page_len != 0 ? desc->page_len : TDM_KV_PAGE_LEN_DEFAULT;
    bool v_from_k = (desc->flags & TDM_KV_V_FROM_K) != 0;
    bool rotate_k = (desc->flags & TDM_KV_ROTATE_K) != 0;
    bool rotate_v = (desc->flags & TDM_KV_ROTATE_V) != 0;
    tdm_status status = tdm_kv_page_check(desc, MAX_HEAD_DIM, err);
    if (status != TDM_OK) return status;
    memset(&layout, 0, sizeof layout);
    layout.v_from_k = v_from_k;
    layout.n_head_kv = desc->n_head_kv;
    layout.page_len = page_len;
    layout.stride = desc->stride > 1 ? desc->stride : 1;
    layout.n_slot = (page_len + layout.stride - 1) / layout.stride;
    layout.n_tile = (layout.n_slot + CPU_KV_TILE - 1) / CPU_KV_TILE;
    bool is_recurrent = (desc->flags & TDM_KV_RECURRENT) != 0;
    side_init(&layout.k, desc->type_k, desc->head_dim_k, is_recurrent);
    if (is_recurrent) layout.k.data_size = (size_t)layout.k.stride * layout.k.block_size;
    if (rotate_k && layout.k.n_block > 0)
        layout.k.rotation = tdm_kv_rotation_block(layout.k.padded, desc->rope_offset, desc->n_rot);
    layout.head_size = side_place(&layout.k, layout.n_tile, 0);
    if (v_from_k) {
        layout.v = layout.k;
        layout.v.head_dim = desc->head_dim_v;
    } else {
        side_init(&layout.v, desc->type_v, desc->head_dim_v, true);
        if (rotate_v && layout.v.n_block > 0)
            layout.v.rotation = tdm_kv_rotation_block(layout.v.padded, 0, 0);
        layout.head_size = side_place(&layout.v, layout.n_tile, layout.head_size);
    }
    layout.page_size = layout.head_size * (size_t)layout.n_head_kv;
    *layout_out = layout;
    return TDM_OK;
}

tdm_status cpu_kv_page_size(const cpu_device *device, const tdm_kv_desc *desc, uint64_t *size_out,
                            tdm_error *err) {
    cpu_kv_layout layout;
    (void)device;
    tdm_status status = cpu_kv_layout_get(desc, &layout, err);
    if (status == TDM_OK) *size_out = layout.page_size;
    return status;
}

/* ---- fifth bits ------------------------------------------------------------------------------
 * Kernels widen codes to pairs of 16 bits, one pair per 32-bit lane. The two fifth bits of pair i
 * are stored at bits i and i + 16 of a word, so that a shift and a mask put them in place. */

/* K: a word of codes, bytes 4c .. 4c+3, gives pair 4c of elements (4c, 4c+2) from low nibbles,
 * 4c+1 of (4c+16, 4c+18) from high ones, 4c+2 of (4c+1, 4c+3) and 4c+3 of (4c+17, 4c+19). The
 * place of element i's bit follows. */
static int fifth_place_k(int i) {
    int byte = i % 16, is_high = i / 16;
    return byte / 4 * 4 + byte % 2 * 2 + is_high + (byte % 4 / 2) * 16;
}

static uint32_t fifth_to_k(uint32_t bits) {
    uint32_t word = 0;
    for (int i = 0; i < 32; i++) word |= (bits >> i & 1) << fifth_place_k(i);
    return word;
}

static uint32_t fifth_from_k(uint32_t word) {
    uint32_t bits = 0;
    for (int i = 0; i < 32; i++) bits |= (word >> fifth_place_k(i) & 1) << i;
    return bits;
}

/* V: lane j holds elements j and j + 16 of all tokens of the tile; pair 2u is (j; tokens 2u and
 * 2u+1), pair 2u+1 the same of j + 16. */
static int fifth_place_v(int token, int i) {
    return token / 2 * 2 + i / 16 + token % 2 * 16;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Where the parts of a canonical block begin: d (and m), fifth bits, codes. */
static size_t fifth_off(const cpu_kv_side *side) {
    return 2 * (size_t)side->n_scale;
}
static size_t code_off(const cpu_kv_side *side) {
    return fifth_off(side) + (side->has_fifth ? 4 : 0);
}

static const uint8_t quad_place[4] = {0, 2, 1, 3};

static void store_codes(const cpu_kv_side *side, uint8_t *at, int32_t lane, const uint8_t *block) {
    const uint8_t *codes = block + code_off(side);
    if (side->has_fifth) {
        uint32_t bits, word;
        memcpy(&bits, block + fifth_off(side), 4);
        if (!side->is_value) {
            word = fifth_to_k(bits);
            memcpy(at + 4 * lane, &word, 4);
        } else {
            for (int j = 0; j < 16; j++) {
                uint32_t lo = 1u << fifth_place_v(lane, j), hi = 1u << fifth_place_v(lane, j + 16);
                memcpy(&word, at + 4 * j, 4);
                word = (word & ~(lo | hi)) | (bits >> j & 1 ? lo : 0) |
                       (bits >> (j + 16) & 1 ? hi : 0);
                memcpy(at + 4 * j, &word, 4);
            }
        }
        at += 4 * CPU_KV_TILE;
    }
    if (!side->is_value) {
        for (int c = 0; c < side->code_size / 4; c++)
            memcpy(at + (c * CPU_KV_TILE + lane) * 4, codes + 4 * c, 4);
    } else {
        uint8_t *quad = at + lane / 4 * 4 * side->code_size + quad_place[lane % 4];
        for (int j = 0; j < side->code_size; j++) quad[4 * j] = codes[j] ^ side->flip;
    }
}

static void load_codes(const cpu_kv_side *side, const uint8_t *at, int32_t lane, uint8_t *block) {
    uint8_t *codes = block + code_off(side);
    if (side->has_fifth) {
        uint32_t bits = 0, word;
        if (!side->is_value) {
            memcpy(&word, at + 4 * lane, 4);
            bits = fifth_from_k(word);
        } else {
            for (int j = 0; j < 16; j++) {
                memcpy(&word, at + 4 * j, 4);
                bits |= (word >> fifth_place_v(lane, j) & 1) << j;
                bits |= (word >> fifth_place_v(lane, j + 16) & 1) << (j + 16);
            }
        }
        memcpy(block + fifth_off(side), &bits, 4);
        at += 4 * CPU_KV_TILE;
    }
    if (!side->is_value) {
        for (int c = 0; c < side->code_size / 4; c++)
            memcpy(codes + 4 * c, at + (c * CPU_KV_TILE + lane) * 4, 4);
    } else {
        const uint8_t *quad = at + lane / 4 * 4 * side->code_size + quad_place[lane % 4];
        for (int j = 0; j < side->code_size; j++) codes[j] = quad[4 * j] ^ side->flip;
    }
}

void cpu_kv_store(const cpu_kv_side *side, uint8_t *head, int32_t slot, const uint8_t *row,
                  int32_t first, int32_t n) {
    int32_t lane = slot % CPU_KV_TILE, tile_at = slot / CPU_KV_TILE;
    uint8_t *tile = head + side->data_off + (size_t)tile_at * side->data_size;
    size_t es = side->block_size;
    if (side->n_block == 0 && side->is_value) {
        uint8_t *at = tile + ((size_t)lane * (size_t)side->stride + (size_t)first) * es;
        memcpy(at, row, (size_t)n * es);
    } else if (side->n_block == 0) {
        for (int32_t i = first; i < first + n; i++)
            memcpy(tile + ((size_t)i * CPU_KV_TILE + (size_t)lane) * es,
                   row + (size_t)(i - first) * es, es);
    } else {
        uint8_t *scale = head + side->scale_off + (size_t)tile_at * side->scale_size;
        for (int32_t b = first; b < first + n; b++) {
            const uint8_t *block = row + (size_t)(b - first) * es;
            for (int32_t s = 0; s < side->n_scale; s++)
                memcpy(scale + ((b * side->n_scale + s) * CPU_KV_TILE + lane) * 2, block + 2 * s,
                       2);
            store_codes(side, head + side->data_off + cpu_kv_codes_off(side, tile_at, b), lane,
                        block);
        }
    }
}

void cpu_kv_load(const cpu_kv_side *side, const uint8_t *head, int32_t slot, uint8_t *row,
                 int32_t first, int32_t n) {
    int32_t lane = slot % CPU_KV_TILE, tile_at = slot / CPU_KV_TILE;
    const uint8_t *tile = head + side->data_off + (size_t)tile_at * side->data_size;
    size_t es = side->block_size;
    if (side->n_block == 0 && side->is_value) {
        const uint8_t *at = tile + ((size_t)lane * (size_t)side->stride + (size_t)first) * es;
        memcpy(row, at, (size_t)n * es);
    } else if (side->n_block == 0) {
        for (int32_t i = first; i < first + n; i++)
            memcpy(row + (size_t)(i - first) * es,
                   tile + ((size_t)i * CPU_KV_TILE + (size_t)lane) * es, es);
    } else {
        const uint8_t *scale = head + side->scale_off + (size_t)tile_at * side->scale_size;
        for (int32_t b = first; b < first + n; b++) {
            uint8_t *block = row + (size_t)(b - first) * es;
            for (int32_t s = 0; s < side->n_scale; s++)
                memcpy(block + 2 * s, scale + ((b * side->n_scale + s) * CPU_KV_TILE + lane) * 2,
                       2);
            load_codes(side, head + side->data_off + cpu_kv_codes_off(side, tile_at, b), lane,
                       block);
        }
    }
}

/* ---- step block ------------------------------------------------------------------------------ */

static int32_t limit_count(int32_t count, int32_t cap) {
    return count < 0 ? 0 : count > cap ? cap : count;
}

cpu_step cpu_step_get(const tdm_graph *graph, const cpu_view *step, int32_t cls) {
    const int32_t *words = (const int32_t *)(const void *)step->data;
    const tdm_step_header *header = (const tdm_step_header *)(const void *)step->data;
    tdm_step_header at; /* offsets from the capacities: those in the block are not trusted */
    cpu_step out = {0};
    if (tdm_step_layout(&graph->step_caps, &at, NULL) != TDM_OK || step->ne[0] < at.size ||
        cls < 0 || cls >= at.n_class || header->version != TDM_STEP_VERSION)
        return out;
    out.pos = words + at.pos_off;
    out.seq = words + at.seq_off;
    out.role = words + at.role_off;
    out.cell = words + at.cls[cls].write_off;
    out.first_entry = words + at.cls[cls].first_entry_off;
    out.entries = (const tdm_page_entry *)(const void *)(words + at.cls[cls].entry_off);
    out.jobs = (const tdm_page_job *)(const void *)(words + at.job_off);
    out.n_tok = limit_count(header->n_tok, graph->step_caps.n_tok);
    out.n_seq = limit_count(header->n_seq, graph->step_caps.n_seq);
    out.n_job = limit_count(header->n_job, graph->step_caps.n_job);
    out.n_entry = graph->step_caps.n_entry;
    return out;
}

const tdm_page_entry *cpu_step_entries(const cpu_step *step, int32_t seq, int32_t *n_out) {
    *n_out = 0;
    if (seq < 0 || seq >= step->n_seq) return NULL;
    int32_t first = step->first_entry[seq], last = step->first_entry[seq + 1];
    if (first < 0 || last > step->n_entry || first >= last) return NULL;
    *n_out = last - first;
    return step->entries + first;
}

/* Turns an entry of tokens into one of rows of a strided cache: those of the runs that end at one
 * of the entry's positions. */
static void entry_to_rows(int32_t stride, tdm_page_entry *entry) {
    const int32_t row = entry->base_pos / stride, to_end = stride - 1 - entry->base_pos % stride;
    entry->count = (entry->base_pos + entry->count) / stride - row;
    entry->first = (entry->first + to_end) / stride;
    entry->base_pos = row;
}

bool cpu_kv_entry_clip(const cpu_kv_layout *layout, int64_t n_page, tdm_page_entry *entry) {
    if (entry->page < 0 || entry->page >= n_page || entry->first < 0 || entry->count <= 0 ||
        entry->first >= layout->page_len || entry->base_pos < 0)
        return false;
    if (entry->count > layout->page_len - entry->first)
        entry->count = layout->page_len - entry->first;
    if (entry->base_pos > INT32_MAX - entry->count) entry->count = INT32_MAX - entry->base_pos;
    if (layout->stride > 1) entry_to_rows(layout->stride, entry);
    return entry->count > 0;
}

bool cpu_kv_job_clip(const cpu_kv_layout *layout, int64_t n_page, int64_t n_row,
                     tdm_page_job *job) {
    if (job->page < 0 || job->page >= n_page || job->first < 0 || job->count <= 0 ||
        job->first >= layout->page_len)
        return false;
    if (job->count > layout->page_len - job->first) job->count = layout->page_len - job->first;
    if (n_row < 0) return true;
    if (job->arg < 0 || job->arg >= n_row) return false;
    if (job->count > n_row - job->arg) job->count = (int32_t)(n_row - job->arg);
    return true;
}

tdm_status cpu_kv_supports(const tdm_graph *graph, const tdm_node *node, int32_t kv, int step,
                           int state, cpu_kv_layout *layout_out, tdm_error *err) {
    const tdm_value *state_value = tdm_graph_value(graph, node->src[state]);
    const tdm_value *step_value = tdm_graph_value(graph, node->src[step]);
    tdm_step_header at;
    if (kv < 0 || kv >= graph->n_kv)
        return tdm_fail(err, TDM_UNSUPPORTED, "%s: the graph has no cache %d",
                        tdm_graph_value_name(graph, node->src[state]), kv);
    const tdm_kv_desc *desc = tdm_graph_kv(graph, kv);
    tdm_status status = cpu_kv_layout_get(desc, layout_out, err);
    if (status != TDM_OK) return status;
    status = tdm_step_layout(&graph->step_caps, &at, err);
    if (status != TDM_OK) return status;
    if (desc->cls < 0 || desc->cls >= at.n_class || step_value->ne[0] < at.size)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: its class %d is not in the step block of %d classes",
                        tdm_graph_value_name(graph, node->src[state]), desc->cls, at.n_class);
    if (state_value->ne[0] != (int64_t)layout_out->page_size)
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: pages of %lld bytes, but this device's kv_page_size is %zu",
                        tdm_graph_value_name(graph, node->src[state]),
                        (long long)state_value->ne[0], layout_out->page_size);
    return TDM_OK;
}

void cpu_kv_read_row(const cpu_view *view, int64_t i1, int64_t i2, float *out) {
    const uint8_t *at = view->data + i1 * view->nb[1] + i2 * view->nb[2];
    if (view->nb[0] == (int64_t)sizeof *out) {
        memcpy(out, at, (size_t)view->ne[0] * sizeof *out);
    } else {
        for (int64_t i = 0; i < view->ne[0]; i++) memcpy(out + i, at + i * view->nb[0], 4);
    }
}
