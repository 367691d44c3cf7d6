/* SPDX-License-Identifier: MIT
 *
 * cache_claims.c: checks that kv_page_size and supports_op agree: a device without the slot refuses
 * every cache op, and one that accepts a description runs the ops that the description is for. No
 * graph is run here.
 */
#include <string.h>

#include "certify/cache.h"

enum {
    N_TOK = 4,
    N_HEAD = 2,
    DIM = 64,
    N_CHANNEL = 16,
    CONV_K = 4,
    DK = 16,
    DV = 8,
    BLOCK_LEN = 4
};

/* A graph with one node. */
typedef struct claim {
    tdm_builder *b;
    const tdm_kv_desc *desc;
    int32_t step, state, kv;
} claim;

static bool has_flag(const claim *c, uint32_t flag) {
    return (c->desc->flags & flag) != 0;
}

static int32_t input(const claim *c, tdm_type type, int64_t n0, int64_t n1, int64_t n2) {
    return tdm_build_input(c->b, NULL, type, (const int64_t[]){n0, n1, n2, 1});
}

/* ---- A node of each cache op ---- */

static void kv_write_add(const claim *c) {
    const bool has_v = !has_flag(c, TDM_KV_V_FROM_K);
    int32_t k = input(c, TDM_TYPE_F32, DIM, c->desc->n_head_kv, N_TOK);
    int32_t v = has_v ? input(c, TDM_TYPE_F32, DIM, c->desc->n_head_kv, N_TOK) : -1;
    tdm_build_kv_write(c->b, k, v, c->step, c->state, c->kv);
}

static void attention_add(const claim *c) {
    const tdm_attention_params params = {
        .kv = c->kv, .heads_per_kv = 1, .n_head_all = c->desc->n_head_kv, .is_causal = 1};
    tdm_attention_sources sources = {-1, -1, -1};
    int32_t q = input(c, TDM_TYPE_F32, DIM, c->desc->n_head_kv, N_TOK);
    if (has_flag(c, TDM_KV_SPARSE)) sources.select = input(c, TDM_TYPE_I32, N_TOK, N_TOK, 1);
    if (has_flag(c, TDM_KV_BIASED))
        sources.bias = tdm_build_weight(c->b, "bias", TDM_TYPE_F32,
                                        (const int64_t[]){5, c->desc->n_head_kv, 1, 1}, 0);
    tdm_build_output(
        c->b, tdm_build_attention_of(c->b, q, c->step, c->state, &sources, &params, NULL), "o");
}

static void kv_select_add(const claim *c) {
    const tdm_select_params params = {.kv = c->kv, .n_top = N_TOK};
    int32_t q = input(c, TDM_TYPE_F32, DIM, N_HEAD, N_TOK);
    int32_t w = input(c, TDM_TYPE_F32, N_HEAD, N_TOK, 1);
    tdm_build_output(c->b, tdm_build_kv_select(c->b, q, w, c->step, c->state, &params), "select");
}

static void kv_shift_add(const claim *c) {
    const tdm_rope_params rope = {.n_rot = c->desc->n_rot, .rope_offset = c->desc->rope_offset};
    tdm_build_kv_shift(c->b, c->step, c->state, -1, c->kv, &rope);
}

static void kv_copy_add(const claim *c) {
    tdm_build_kv_copy(c->b, c->step, c->state, c->kv);
}

static void kv_export_add(const claim *c) {
    int32_t v = -1;
    int32_t k = tdm_build_kv_export(c->b, c->step, c->state, c->kv, N_TOK, &v);
    tdm_build_output(c->b, k, "k");
    if (v >= 0) tdm_build_output(c->b, v, "v");
}

static void kv_import_add(const claim *c) {
    int32_t k = input(c, c->desc->type_k, DIM, c->desc->n_head_kv, N_TOK);
    int32_t v = input(c, c->desc->type_v, DIM, c->desc->n_head_kv, N_TOK);
    tdm_build_kv_import(c->b, k, v, c->step, c->state, c->kv);
}

static void conv1d_add(const claim *c) {
    const tdm_conv_params params = {.kv = c->kv, .n_segment = 1, .unit_len = {N_CHANNEL}};
    int32_t x = input(c, TDM_TYPE_F32, N_CHANNEL * N_HEAD, N_TOK, 1);
    int32_t w = input(c, TDM_TYPE_F32, CONV_K, N_CHANNEL * N_HEAD, 1);
    tdm_build_output(c->b, tdm_build_conv1d(c->b, x, w, -1, c->step, c->state, &params), "y");
}

static void linear_scan_add(const claim *c) {
    const tdm_scan_params params = {.kv = c->kv, .heads_per_k = 1};
    const bool has_erase = has_flag(c, TDM_KV_ERASED);
    const tdm_scan_sources sources = {
        .q = input(c, TDM_TYPE_F32, DK, N_HEAD, N_TOK),
        .k = input(c, TDM_TYPE_F32, DK, N_HEAD, N_TOK),
        .v = input(c, TDM_TYPE_F32, DV, N_HEAD, N_TOK),
        .g = input(c, TDM_TYPE_F32, 1, N_HEAD, N_TOK),
        .a = -1,
        .beta = -1,
    };
    int32_t erase = has_erase ? input(c, TDM_TYPE_F32, DK, N_HEAD, N_TOK) : -1;
    int32_t write = has_erase ? input(c, TDM_TYPE_F32, DK, N_HEAD, N_TOK) : -1;
    int32_t o =
        tdm_build_linear_scan_erased(c->b, &sources, erase, write, c->step, c->state, &params);
    tdm_build_output(c->b, o, "o");
}

static void block_pool_add(const claim *c) {
    const tdm_pool_params params = {.kv = c->kv, .n_part = 1};
    int32_t x = input(c, TDM_TYPE_F32, N_CHANNEL, N_TOK, 1);
    int32_t score = input(c, TDM_TYPE_F32, N_CHANNEL, N_TOK, 1);
    int32_t bias = tdm_build_weight(c->b, "bias", TDM_TYPE_F32,
                                    (const int64_t[]){N_CHANNEL, BLOCK_LEN, 1, 1}, 0);
    tdm_build_output(c->b, tdm_build_block_pool(c->b, x, score, bias, c->step, c->state, &params),
                     "y");
}

#define ADD_VIEW(name)                    NULL
#define ADD_VALUE(name)                   NULL
#define ADD_GROUP(name)                   NULL
#define ADD_CACHE(name)                   name##_add
#define ADD_(ID, name, number, kind, ...) [TDM_OP_##ID] = ADD_##kind(name),
static void (*const adds[TDM_OP_COUNT_])(const claim *) = {TDM_OP_LIST(ADD_)};

/* ---- Descriptions ---- */

static tdm_kv_desc slots_desc(int32_t head_dim, int32_t n_unit, int32_t dk, uint32_t flags) {
    return (tdm_kv_desc){.struct_size = sizeof(tdm_kv_desc),
                         .type_k = TDM_TYPE_F32,
                         .type_v = TDM_TYPE_F32,
                         .head_dim_k = head_dim,
                         .head_dim_v = head_dim,
                         .n_head_kv = n_unit,
                         .page_len = 1,
                         .rope_offset = dk,
                         .flags = flags | TDM_KV_RECURRENT | TDM_KV_V_FROM_K};
}

/* What `op` works on, with `flags` beside those that the op always needs. */
static tdm_kv_desc desc_of(int32_t op, uint32_t flags) {
    tdm_kv_desc desc = {.struct_size = sizeof desc,
                        .type_k = TDM_TYPE_F32,
                        .type_v = TDM_TYPE_F32,
                        .head_dim_k = DIM,
                        .head_dim_v = DIM,
                        .n_head_kv = N_HEAD,
                        .page_len = 16,
                        .n_rot = DIM,
                        .flags = flags};
    switch (op) {
    case TDM_OP_CONV1D: return slots_desc(N_CHANNEL * (CONV_K - 1), N_HEAD, 0, flags);
    case TDM_OP_LINEAR_SCAN: return slots_desc(DK * DV, N_HEAD, DK, flags);
    case TDM_OP_BLOCK_POOL: return slots_desc(3 * N_CHANNEL, 1, 0, flags | TDM_KV_POOLED);
    case TDM_OP_KV_SELECT: /* an index */
        desc.flags |= TDM_KV_SPARSE | TDM_KV_V_FROM_K;
        desc.n_head_kv = 1;
        break;
    default: break;
    }
    if ((flags & TDM_KV_STRIDED) != 0) desc.stride = 4;
    return desc;
}

/* ---- Checks ---- */

/* Whether supports_op takes the op on a STATE of pages of page_size bytes; a refusal is in
 * c->failure. */
static certify_verdict node_try(certify *c, int32_t op, const tdm_kv_desc *desc, uint64_t page_size,
                                bool *is_taken_out) {
    const tdm_step_caps caps = {
        .n_tok = N_TOK, .n_seq = 1, .n_entry = 1, .n_job = 1, .n_class = 1, .has_rs = 1};
    claim node = {.desc = desc};
    certify_rig rig = {0};
    *is_taken_out = false;
    if (tdm_builder_create(&node.b, NULL) != TDM_OK) return certify_skip(c, "out of memory");
    node.step = tdm_build_step(node.b, &caps);
    node.state = tdm_build_state(node.b, "state", desc, page_size, 2, &node.kv);
    adds[op](&node);
    certify_verdict verdict = certify_rig_create(c, node.b, &rig);
    if (verdict != CERTIFY_PASSED) return certify_prefix(c, verdict, "%s", tdm_op_name(op));
    *is_taken_out = certify_rig_is_supported(&rig);
    certify_rig_destroy(&rig);
    return CERTIFY_PASSED;
}

/* Bytes of a page without any padding; those of a head or unit are a multiple of 64 here. The
 * graphs of a device that does not give a size have this one. */
static uint64_t plain_size(const tdm_kv_desc *desc) {
    const int32_t len =
        desc->head_dim_k + ((desc->flags & TDM_KV_V_FROM_K) != 0 ? 0 : desc->head_dim_v);
    return (uint64_t)(desc->n_head_kv * desc->page_len * len) * sizeof(float);
}

certify_verdict certify_cache_required_check(certify *c) {
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    if (TDM_HAS(c->plugin->buffer, kv_page_size)) return CERTIFY_PASSED;
    for (int32_t op = 0; op < TDM_OP_COUNT_; op++) {
        const tdm_kv_desc desc = desc_of(op, 0);
        bool is_taken;
        if (adds[op] == NULL) continue;
        verdict = node_try(c, op, &desc, plain_size(&desc), &is_taken);
        if (verdict != CERTIFY_PASSED) return verdict;
        if (is_taken)
            return certify_fail(c, "takes %s and has no slot kv_page_size", tdm_op_name(op));
    }
    return certify_skip(c, "no cache ops: %.300s", c->failure.message);
}

certify_verdict certify_cache_described_check(certify *c) {
    static const struct {
        int32_t op;
        uint32_t flags;
        const char *words;
    } cases[] = {
        {TDM_OP_KV_SELECT, TDM_KV_SPARSE, "an index (TDM_KV_SPARSE)"},
        {TDM_OP_ATTENTION, TDM_KV_SPARSE, "TDM_KV_SPARSE"},
        {TDM_OP_ATTENTION, TDM_KV_BIASED, "TDM_KV_BIASED"},
        {TDM_OP_KV_WRITE, TDM_KV_STRIDED, "TDM_KV_STRIDED"},
        {TDM_OP_ATTENTION, TDM_KV_STRIDED, "TDM_KV_STRIDED"},
        {TDM_OP_KV_SELECT, TDM_KV_STRIDED, "an index with TDM_KV_STRIDED"},
        {TDM_OP_LINEAR_SCAN, TDM_KV_ERASED, "TDM_KV_ERASED"},
        {TDM_OP_BLOCK_POOL, TDM_KV_POOLED, "TDM_KV_POOLED"},
    };
    int n_run = 0;
    certify_verdict verdict = certify_open(c);
    if (verdict != CERTIFY_PASSED) return verdict;
    const tdm_buffer_ops *ops = c->plugin->buffer;
    if (!TDM_HAS(ops, kv_page_size)) return certify_skip(c, "no slot kv_page_size");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const tdm_kv_desc desc = desc_of(cases[i].op, cases[i].flags);
        uint64_t page_size = 0;
        bool is_taken;
        if (ops->kv_page_size(c->device, &desc, &page_size, NULL) != TDM_OK) continue;
        verdict = node_try(c, cases[i].op, &desc, page_size, &is_taken);
        if (verdict != CERTIFY_PASSED) return verdict;
        if (!is_taken)
            return certify_fail(c, "kv_page_size accepts %s, supports_op refuses %s: %.300s",
                                cases[i].words, tdm_op_name(cases[i].op), c->failure.message);
        n_run++;
    }
    return n_run > 0 ? CERTIFY_PASSED : certify_skip(c, "kv_page_size refuses all of these caches");
}
