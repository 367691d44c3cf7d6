/* SPDX-License-Identifier: MIT
 *
 * moe.c: the steps of MOE_FFN:
 *   y = sum_u weight[u] * down_e(act(gate_e x) * (up_e x)),  e = id[u] - first_expert
 * with the biases and limits of op.h; and of MOE_MATMUL: one product of each pair.
 *
 * A pair is a token and one of its experts: number u + n_used * token. With few tokens, or matrices
 * of canonical blocks, there is a product for each pair, and the kernel reads from the ids which
 * matrix it multiplies. Else a step first sorts the pairs by expert, so that a matrix is read once
 * for several pairs. In both cases the results of gate, up and down are stored by the number of the
 * pair, and the last step adds them in the order of u, so that sums do not depend on how pairs are
 * sorted. Tokens are computed in chunks, which bounds the scratch. Roles: as in matmul.c.
 */
#include <string.h>

#include "plugins/gpu/ops/ops.h"
#include "plugins/gpu/ops/product.h"

enum {
    SRC_X,
    SRC_ID,
    SRC_WEIGHT,
    SRC_GATE,
    SRC_UP,
    SRC_DOWN,
    SRC_ROLE,
    SRC_GATE_BIAS,
    SRC_UP_BIAS,
    SRC_DOWN_BIAS
};
enum {
    SORT_FROM = 9, /* tokens from which pairs are sorted */
    SORT_GROUP = 128,
    SUM_GROUP = 128,
    MAX_EXPERT = 2048,     /* MOE_SORT has two words of shared memory for each */
    CHUNK_BYTES = 64 << 20 /* scratch of a chunk, at most, if one token takes no more */
};

enum { PRODUCT_W, PRODUCT_X, PRODUCT_ROLE, PRODUCT_ID }; /* of MOE_MATMUL */

/* The tokens that are computed together. */
typedef struct chunk {
    const gpu_value *id, *role; /* of all tokens of the node */
    int64_t n_expert;           /* matrices of the node */
    int64_t token, n_tok;       /* first token, number of tokens */
    int64_t n_pair;
    int64_t n_tile;      /* tiles of sorted pairs; 0 = not sorted */
    gpu_operand sorted;  /* the table of MOE_SORT */
    bool is_whole;       /* the chunk has all tokens of the node */
    gpu_operand x_bytes; /* without is_whole: x as bytes (gpu_product.bytes); absent = not made */
} chunk;

/* The part of a value from token `token` on; tokens are its axis `axis`. */
static gpu_operand part_from(const gpu_value *v, int axis, int64_t token) {
    gpu_operand place = v->place;
    uint64_t skipped = (uint64_t)(token * v->nb[axis]);
    place.off += skipped;
    place.size -= skipped;
    return place;
}

static int64_t stride_of(const gpu_value *v, int axis) {
    return v->nb[axis] / tdm_type_get_info(v->type).block_size;
}

/* True where the pairs of the chunk are to be sorted. Canonical blocks are multiplied with one
 * column at a time: no kernel computes a tile of pairs with them. */
static bool sorts_pairs(const chunk *c, const gpu_value *w, int n_w) {
    bool sorts = c->n_tok >= SORT_FROM;
    for (int i = 0; i < n_w; i++) sorts = sorts && !gpu_product_is_canonical(&w[i]);
    return sorts;
}

static tdm_status sort_emit(gpu_emit *e, chunk *c, tdm_error *err) {
    const gpu_value *id = c->id;
    int64_t n_expert = c->n_expert;
    int32_t columns = gpu_product_sorted_columns(e->target);
    gpu_step step = gpu_step_make(e, GPU_KERNEL_MOE_SORT, SORT_GROUP);
    int64_t most = c->n_pair < n_expert ? c->n_pair : n_expert; /* experts with a partial tile */
    c->n_tile = c->n_pair / columns + most;
    c->sorted = gpu_emit_scratch(e, (uint64_t)(3 * c->n_tile + c->n_pair) * sizeof(int32_t));
    tdm_status status = gpu_word(e, &step.word[0], c->n_pair, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[1], c->n_tile, err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[2], id->ne[0], err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[3], stride_of(id, 0), err);
    if (status == TDM_OK) status = gpu_word(e, &step.word[4], stride_of(id, 1), err);
    if (status != TDM_OK) return status;
    step.word[5] = e->node->params.moe.first_expert;
    step.spec[0] = (int32_t)n_expert;
    step.spec[1] = columns;
    step.operand[0] = c->sorted;
    step.operand[1] = part_from(id, 1, c->token);
    step.trips = 3 * ((c->n_pair + n_expert) / SORT_GROUP + 1) + n_expert + 2 * c->n_tile;
    return gpu_emit_step(e, &step, err);
}

/* dst = w_e x for each pair; with `up` (nullable) dst = act(w_e x) * (up_e x). is_source: x is the
 * source of a MOE_FFN. Its products share the bytes of x; where the chunk has all tokens, products
 * of other nodes share them too. */
static tdm_status pairs_emit(gpu_emit *e, chunk *c, const gpu_value *w, const gpu_value *up,
                             gpu_operand x, int64_t x_stride_k, int64_t x_stride,
                             int32_t x_per_token, bool is_source, gpu_operand dst,
                             tdm_error *err) {
    const gpu_value *id = c->id, *role = c->role;
    gpu_product p = {
        .w = w,
        .dst = dst,
        .x = x,
        .mode = c->n_tile > 0 ? GPU_PRODUCT_SORTED : GPU_PRODUCT_PAIRS,
        .n_column = c->n_pair,
        .x_stride_k = x_stride_k,
        .x_stride = {x_stride},
        .y_stride = w->ne[1],
        .x_per_token = x_per_token,
        .index = c->n_tile > 0 ? c->sorted : part_from(id, 1, c->token),
        .n_used = id->ne[0],
        .first_expert = e->node->params.moe.first_expert,
        .id_stride = {stride_of(id, 0), stride_of(id, 1)},
        .n_tile = c->n_tile,
        .up = up,
        .act = up != NULL ? e->node->params.moe.act : TDM_ACT_NONE,
        .form_of = is_source && c->is_whole ? e : NULL,
        .form_x = SRC_X,
        .form_role = SRC_ROLE,
        .bytes = is_source && !c->is_whole ? &c->x_bytes : NULL,
    };
    if (role->is_present) {
        p.role = part_from(role, 0, c->token);
        p.role_stride = stride_of(role, 0);
        p.rows_per_role = id->ne[0] / x_per_token;
    }
    return gpu_product_emit(e, &p, err);
}

/* True where h is more than act(gate x) * (up x), so that MOE_FORM computes it. */
static bool has_form(const gpu_emit *e) {
    const tdm_moe_params *m = &e->node->params.moe;
    return m->limit != 0 || m->alpha > 0 || m->up_offset != 0 || m->is_weighted_first ||
           m->is_soft || e->src[SRC_GATE_BIAS].is_present || e->src[SRC_UP_BIAS].is_present;
}

static int32_t float_word(float x) {
    int32_t word;
    memcpy(&word, &x, sizeof word);
    return word;
}

/* Replaces `hidden`, the products of gate, by h of op.h; `other` has the products of up. */
static tdm_status form_emit(gpu_emit *e, const chunk *c, gpu_operand hidden, gpu_operand other,
                            tdm_error *err) {
    const gpu_value *id = &e->src[SRC_ID], *weight = &e->src[SRC_WEIGHT];
    const gpu_value *gate = &e->src[SRC_GATE_BIAS], *up = &e->src[SRC_UP_BIAS];
    const tdm_moe_params *m = &e->node->params.moe;
    const int64_t n_ff = e->src[SRC_GATE].ne[1];
    gpu_step step = gpu_step_make(e, GPU_KERNEL_MOE_FORM, SUM_GROUP);
    const int64_t words[] = {n_ff,
                             c->n_pair,
                             id->ne[0],
                             stride_of(id, 0),
                             stride_of(id, 1),
                             stride_of(weight, 0),
                             stride_of(weight, 1),
                             m->first_expert,
                             e->src[SRC_GATE].ne[2],
                             gate->is_present ? stride_of(gate, 0) : 0,
                             gate->is_present ? stride_of(gate, 1) : 0,
                             up->is_present ? stride_of(up, 0) : 0,
                             up->is_present ? stride_of(up, 1) : 0};
    tdm_status status = TDM_OK;
    for (int i = 0; i < 13 && status == TDM_OK; i++)
        status = gpu_word(e, &step.word[i], words[i], err);
    if (status == TDM_OK)
        status = gpu_step_grid(e, &step, (n_ff * c->n_pair + SUM_GROUP - 1) / SUM_GROUP, err);
    if (status != TDM_OK) return status;
    step.word[13] = float_word(m->limit);
    step.word[14] = float_word(m->alpha > 0 ? m->alpha : 1);
    step.word[15] = float_word(m->up_offset);
    step.spec[0] = m->act;
    step.spec[1] = m->is_soft;
    step.operand[0] = hidden;
    step.operand[1] = other;
    step.operand[2] = part_from(id, 1, c->token);
    if (gate->is_present) step.operand[3] = gate->place;
    if (up->is_present) step.operand[4] = up->place;
    if (m->is_weighted_first) step.operand[5] = part_from(weight, 1, c->token);
    return gpu_emit_step(e, &step, err);
}

/* A sum over the pairs of a token: of n_used addends [n] for each of n_tok. */
typedef struct sum {
    gpu_operand y, addends, id, weight; /* weight absent = all are 1 */
    const gpu_value *bias;              /* NULL or not present = none */
    int64_t n, n_tok, n_used;
    int64_t id_stride[2], weight_stride[2];
} sum;

static tdm_status sum_emit(gpu_emit *e, const chunk *c, const sum *s, tdm_error *err) {
    const bool has_bias = s->bias != NULL && s->bias->is_present;
    gpu_step step = gpu_step_make(e, GPU_KERNEL_MOE_SUM, SUM_GROUP);
    const int64_t words[] = {s->n,
                             s->n_tok,
                             s->n_used,
                             s->id_stride[0],
                             s->id_stride[1],
                             s->weight_stride[0],
                             s->weight_stride[1],
                             e->node->params.moe.first_expert,
                             c->n_expert,
                             has_bias ? stride_of(s->bias, 0) : 0,
                             has_bias ? stride_of(s->bias, 1) : 0};
    tdm_status status = TDM_OK;
    for (int i = 0; i < 11 && status == TDM_OK; i++)
        status = gpu_word(e, &step.word[i], words[i], err);
    if (status == TDM_OK)
        status = gpu_step_grid(e, &step, (s->n * s->n_tok + SUM_GROUP - 1) / SUM_GROUP, err);
    if (status != TDM_OK) return status;
    step.trips = s->n_used;
    step.operand[0] = s->y;
    step.operand[0].size = (uint64_t)(s->n * s->n_tok) * sizeof(float);
    step.operand[1] = s->addends;
    step.operand[2] = s->id;
    step.operand[3] = s->weight;
    if (has_bias) step.operand[4] = s->bias->place;
    return gpu_emit_step(e, &step, err);
}

/* y of the chunk's tokens from the addends of their pairs. */
static tdm_status tokens_sum(gpu_emit *e, const chunk *c, gpu_operand addends, tdm_error *err) {
    const gpu_value *weight = &e->src[SRC_WEIGHT], *y = &e->dst[0];
    sum s = {
        .y = part_from(y, 1, c->token),
        .addends = addends,
        .id = part_from(c->id, 1, c->token),
        .bias = &e->src[SRC_DOWN_BIAS],
        .n = y->ne[0],
        .n_tok = c->n_tok,
        .n_used = c->id->ne[0],
        .id_stride = {stride_of(c->id, 0), stride_of(c->id, 1)},
        .weight_stride = {stride_of(weight, 0), stride_of(weight, 1)},
    };
    if (!e->node->params.moe.is_weighted_first) s.weight = part_from(weight, 1, c->token);
    return sum_emit(e, c, &s, err);
}

static tdm_status chunk_emit(gpu_emit *e, chunk *c, tdm_error *err) {
    const gpu_value *x = &e->src[SRC_X];
    int64_t n = x->ne[0], n_ff = e->src[SRC_GATE].ne[1];
    int32_t n_used = (int32_t)e->src[SRC_ID].ne[0];
    uint64_t h_size = (uint64_t)(c->n_pair * n_ff) * sizeof(float);
    const gpu_value *gate = &e->src[SRC_GATE], *up = &e->src[SRC_UP];
    const bool is_formed = has_form(e);
    bool is_fused = !e->target->is_unfused && !is_formed && gpu_product_is_pair(gate, up);
    gpu_operand hidden = gpu_emit_scratch(e, h_size), other = {0};
    gpu_operand out = gpu_emit_scratch(e, (uint64_t)(c->n_pair * n) * sizeof(float));
    if (n_used == 0) return tokens_sum(e, c, out, err); /* zeros */
    gpu_operand x_part = part_from(x, 1, c->token);
    int64_t x_k = n == 1 ? 1 : stride_of(x, 0), x_row = stride_of(x, 1);
    tdm_status status = sorts_pairs(c, gate, 3) ? sort_emit(e, c, err) : TDM_OK;
    if (status == TDM_OK)
        status = pairs_emit(e, c, gate, is_fused ? up : NULL, x_part, x_k, x_row, n_used,
                            true, hidden, err);
    if (!is_fused && status == TDM_OK) {
        other = gpu_emit_scratch(e, h_size);
        status = pairs_emit(e, c, up, NULL, x_part, x_k, x_row, n_used, true, other, err);
        if (status == TDM_OK && n_ff > 0 && is_formed)
            status = form_emit(e, c, hidden, other, err);
        else if (status == TDM_OK && n_ff > 0)
            status = gpu_emit_glu(e, (tdm_act)e->node->params.moe.act, hidden, hidden, other,
                                  c->n_pair * n_ff, err);
    }
    if (status == TDM_OK)
        status = pairs_emit(e, c, &e->src[SRC_DOWN], NULL, hidden, 1, n_ff, 1, false, out, err);
    return status != TDM_OK ? status : tokens_sum(e, c, out, err);
}

static tdm_status experts_check(const gpu_emit *e, const gpu_value *x, int64_t n_expert,
                                tdm_error *err) {
    if (x->type != TDM_TYPE_F32)
        return gpu_refuse(e, err, "x is %s; kernels multiply f32", tdm_type_name(x->type));
    if (n_expert > MAX_EXPERT || n_expert * 8 > (int64_t)e->target->shared_size)
        return gpu_refuse(e, err, "%lld experts; kernels sort up to %d", (long long)n_expert,
                          (int)MAX_EXPERT);
    return TDM_OK;
}

/* Calls `emit` for each chunk of the n_tok tokens, each of which takes `size` bytes of scratch. */
static tdm_status chunks_emit(gpu_emit *e, const chunk *whole, int64_t n_tok, int64_t size,
                              tdm_status (*emit)(gpu_emit *e, chunk *c, tdm_error *err),
                              tdm_error *err) {
    int64_t most = size > 0 ? CHUNK_BYTES / size : n_tok;
    if (most < 1) most = 1;
    for (int64_t token = 0; token < n_tok; token += most) {
        chunk c = *whole;
        c.token = token;
        c.n_tok = n_tok - token < most ? n_tok - token : most;
        c.n_pair = c.n_tok * c.id->ne[0];
        c.is_whole = c.n_tok == n_tok;
        tdm_status status = emit(e, &c, err);
        if (status != TDM_OK) return status;
    }
    return TDM_OK;
}

tdm_status gpu_op_moe_ffn(gpu_emit *e, tdm_error *err) {
    const gpu_value *x = &e->src[SRC_X], *gate = &e->src[SRC_GATE];
    const chunk whole = {.id = &e->src[SRC_ID], .role = &e->src[SRC_ROLE], .n_expert = gate->ne[2]};
    tdm_status status = experts_check(e, x, gate->ne[2], err);
    if (status != TDM_OK || tdm_shape_count(e->dst[0].ne) == 0) return status;
    return chunks_emit(e, &whole, x->ne[1],
                       whole.id->ne[0] * (2 * gate->ne[1] + x->ne[0]) * (int64_t)sizeof(float),
                       chunk_emit, err);
}

/* ---- MOE_MATMUL ---- */

/* Appends the product of each pair, then a step that stores zeros instead for foreign experts: a
 * MOE_SUM of one addend for each pair. */
static tdm_status products_emit(gpu_emit *e, chunk *c, tdm_error *err) {
    const gpu_value *w = &e->src[PRODUCT_W], *x = &e->src[PRODUCT_X];
    const int64_t n = w->ne[1], n_used = c->id->ne[0], n_row = x->ne[1];
    gpu_operand out = gpu_emit_scratch(e, (uint64_t)(c->n_pair * n) * sizeof(float));
    tdm_status status = sorts_pairs(c, w, 1) ? sort_emit(e, c, err) : TDM_OK;
    if (status == TDM_OK)
        status = pairs_emit(e, c, w, NULL, part_from(x, 2, c->token),
                            x->ne[0] == 1 ? 1 : stride_of(x, 0), stride_of(x, n_row == 1 ? 2 : 1),
                            n_row == 1 ? (int32_t)n_used : 1, false, out, err);
    if (status != TDM_OK) return status;
    const sum s = {
        .y = part_from(&e->dst[0], 2, c->token),
        .addends = out,
        .id = part_from(c->id, 1, c->token),
        .n = n,
        .n_tok = c->n_pair,
        .n_used = 1,
        .id_stride = {0, stride_of(c->id, n_used == 1 ? 1 : 0)},
    };
    return sum_emit(e, c, &s, err);
}

tdm_status gpu_op_moe_matmul(gpu_emit *e, tdm_error *err) {
    const gpu_value *w = &e->src[PRODUCT_W], *x = &e->src[PRODUCT_X], *id = &e->src[PRODUCT_ID];
    const int64_t n_used = id->ne[0];
    const chunk whole = {.id = id, .role = &e->src[PRODUCT_ROLE], .n_expert = w->ne[2]};
    tdm_status status = experts_check(e, x, w->ne[2], err);
    if (status != TDM_OK || tdm_shape_count(e->dst[0].ne) == 0) return status;
    if (n_used > 1 && (id->nb[1] != n_used * id->nb[0] ||
                       (x->ne[1] > 1 && x->ne[2] > 1 && x->nb[2] != n_used * x->nb[1])))
        return gpu_refuse(e, err,
                          "ids or rows of x that do not lie one token after the other; copy them "
                          "first");
    return chunks_emit(e, &whole, x->ne[2], n_used * w->ne[1] * (int64_t)sizeof(float),
                       products_emit, err);
}
