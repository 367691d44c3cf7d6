/* SPDX-License-Identifier: MIT
 *
 * moe.c: the MOE_FFN op, from routed tokens to their weighted sum:
 *   y = sum_u weight[u] * down_e(act(gate_e x) * (up_e x)),  e = id[u] - first_expert
 * with the biases and limits of op.h; and the MOE_MATMUL op, one product of each pair.
 *
 * A pair is a token and one of its choices u. Pairs are sorted by expert, so that an expert's
 * weights are read once for all of its tokens. The pairs of an expert are sorted by the role of the
 * token, so that a tile has one role. The addends of a token are summed in the order of u: the
 * result does not depend on the experts or on the number of threads. Choices of experts that this
 * device does not have add nothing. Tokens are computed in chunks, which limits the scratch. The
 * products are in matmul.h, routing is in select.c.
 */
#include <math.h>
#include <string.h>

#include "quant/convert.h"
#include "plugins/cpu/ops/arith.h"
#include "plugins/cpu/ops/matmul.h"
#include "plugins/cpu/ops/ops.h"
#include "plugins/cpu/exec/pool.h"

enum { CHUNK = 256 }; /* tokens */

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

/* Where things lie in the scratch (bytes) and how large they are. A chunk of tokens has at most
 * n_pair pairs; those of this device's experts get slots, sorted by expert. */
typedef struct plan {
    cpu_matmul_kernels gate, up, down;
    int64_t n_tok, n_used, n_expert, n, n_ff;
    int64_t chunk;    /* tokens */
    size_t first_off; /* int32_t[n_expert * CPU_N_ROLE + 1]: tokens of role r have slots first[b] ..
                         first[b + 1] - 1 of expert e, b = e * CPU_N_ROLE + r */
    size_t pair_off;  /* int32_t[n_pair]: slot -> token * n_used + u, tokens as in the chunk */
    size_t slot_off;  /* int32_t[n_pair]: the inverse; -1 = another device's expert */
    size_t gate_x_off, gate_x_pitch; /* the chunk's tokens in the format of the gate's kernel */
    size_t up_x_off, up_x_pitch; /* the same for up: the same bytes where the format is the same */
    size_t h_off;                /* float[n_pair][n_ff], by slot: act(gate) * up */
    size_t hx_off, hx_pitch;     /* h in the format of the down kernel; pitch 0 = floats */
    size_t out_off;              /* float[n_pair][n], by slot: the addends without weight */
    size_t size;
} plan;

static size_t round_up_64(size_t size) {
    return (size + 63) & ~(size_t)63;
}

static size_t place(plan *p, size_t size) {
    size_t off = p->size;
    p->size += round_up_64(size);
    return off;
}

static size_t x_pitch(const cpu_matmul_kernels *kernels, int64_t k) {
    size_t size = cpu_matmul_x_size(kernels, k);
    return size != 0 ? size : round_up_64((size_t)k * sizeof(float));
}

static plan plan_get(const cpu_device *device, const tdm_graph *graph, const tdm_node *node) {
    const tdm_value *x = tdm_graph_value(graph, node->src[SRC_X]);
    const tdm_value *id = tdm_graph_value(graph, node->src[SRC_ID]);
    const tdm_value *gate = tdm_graph_value(graph, node->src[SRC_GATE]);
    const tdm_value *up = tdm_graph_value(graph, node->src[SRC_UP]);
    const tdm_value *down = tdm_graph_value(graph, node->src[SRC_DOWN]);
    plan p = {
        .gate = cpu_matmul_kernels_get(device, (tdm_type)gate->type),
        .up = cpu_matmul_kernels_get(device, (tdm_type)up->type),
        .down = cpu_matmul_kernels_get(device, (tdm_type)down->type),
        .n_tok = x->ne[1],
        .n_used = id->ne[0],
        .n_expert = gate->ne[2],
        .n = x->ne[0],
        .n_ff = gate->ne[1],
    };
    p.chunk = p.n_tok < CHUNK ? p.n_tok : CHUNK;
    size_t n_pair = (size_t)(p.chunk * p.n_used);
    p.first_off = place(&p, ((size_t)p.n_expert * CPU_N_ROLE + 1) * sizeof(int32_t));
    p.pair_off = place(&p, n_pair * sizeof(int32_t));
    p.slot_off = place(&p, n_pair * sizeof(int32_t));
    p.gate_x_pitch = x_pitch(&p.gate, p.n);
    p.gate_x_off = place(&p, (size_t)p.chunk * p.gate_x_pitch);
    p.up_x_pitch = x_pitch(&p.up, p.n);
    p.up_x_off = p.gate_x_off;
    if (!cpu_matmul_x_is_same(&p.up, &p.gate)) {
        p.up_x_off = place(&p, (size_t)p.chunk * p.up_x_pitch);
    }
    p.h_off = place(&p, n_pair * (size_t)p.n_ff * sizeof(float));
    p.hx_pitch = cpu_matmul_x_size(&p.down, p.n_ff);
    p.hx_off = place(&p, n_pair * p.hx_pitch);
    p.out_off = place(&p, n_pair * (size_t)p.n * sizeof(float));
    return p;
}

/* Refuses matrices that hold no numbers, or were not uploaded as those of experts. */
static tdm_status matrices_check(const tdm_value *w, const char *op, const char *name,
                                 tdm_error *err) {
    if (tdm_row_codec_get((tdm_type)w->type).dequantize == NULL)
        return tdm_fail(err, TDM_UNSUPPORTED, "%s: %s matrices of type %s are no numbers", op, name,
                        tdm_type_name((tdm_type)w->type));
    if (!(w->usage & TDM_USAGE_EXPERT))
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "%s: the %s matrices were not uploaded for it: their usage lacks EXPERT",
                        op, name);
    return TDM_OK;
}

static tdm_status x_check(const tdm_value *x, const char *op, tdm_error *err) {
    if (x->type == TDM_TYPE_F32) return TDM_OK;
    return tdm_fail(err, TDM_UNSUPPORTED, "%s: activations must be f32, not %s", op,
                    tdm_type_name((tdm_type)x->type));
}

static tdm_status moe_supports(const cpu_device *device, const tdm_graph *graph,
                               const tdm_node *node, tdm_error *err) {
    (void)device;
    static const char *const name[] = {"gate", "up", "down"};
    tdm_status status = TDM_OK;
    for (int i = 0; i < 3 && status == TDM_OK; i++)
        status = matrices_check(tdm_graph_value(graph, node->src[SRC_GATE + i]), "MOE_FFN", name[i],
                                err);
    if (status != TDM_OK) return status;
    return x_check(tdm_graph_value(graph, node->src[SRC_X]), "MOE_FFN", err);
}

static size_t moe_scratch_size(const cpu_device *device, const tdm_graph *graph,
                               const tdm_node *node) {
    return plan_get(device, graph, node).size;
}

static void *element(const cpu_view *v, int64_t i0, int64_t i1) {
    return v->data + i0 * v->nb[0] + i1 * v->nb[1];
}

/* How the choices of a chunk are sorted. */
typedef struct pairs {
    const cpu_view *id; /* [n_used, n_tok] */
    cpu_roles roles;
    int64_t n_used, n_expert;
    int32_t first_expert;
    int32_t *first, *pair, *slot; /* of plan: first_off, pair_off, slot_off */
} pairs;

/* The roles of the tokens; no data where all three products have the same kernels for both
 * roles. */
static cpu_roles roles_get(const cpu_node *n, const plan *p) {
    cpu_roles roles = cpu_roles_get(&n->src[SRC_ROLE], p->n_tok, &p->gate);
    if (roles.data == NULL) roles = cpu_roles_get(&n->src[SRC_ROLE], p->n_tok, &p->up);
    if (roles.data == NULL) roles = cpu_roles_get(&n->src[SRC_ROLE], p->n_tok, &p->down);
    return roles;
}

/* Assigns the choices of n_tok tokens from `token` on to slots. */
static void pairs_sort(const pairs *p, int64_t token, int64_t n_tok) {
    int32_t *first = p->first, *slot = p->slot;
    int32_t n_pair = (int32_t)(n_tok * p->n_used);
    int64_t n_bucket = p->n_expert * CPU_N_ROLE;
    memset(first, 0, ((size_t)n_bucket + 1) * sizeof *first);
    for (int32_t i = 0; i < n_pair; i++) {
        int64_t t = token + i / p->n_used;
        const int32_t *id = element(p->id, i % p->n_used, t);
        int64_t e = (int64_t)*id - p->first_expert;
        slot[i] = -1;
        if (e < 0 || e >= p->n_expert) continue;
        slot[i] =
            (int32_t)(e * CPU_N_ROLE + (int)cpu_role_of(&p->roles, t)); /* its bucket, for now */
        first[slot[i] + 1]++;
    }
    for (int64_t b = 0; b < n_bucket; b++) first[b + 1] += first[b];
    for (int32_t i = 0; i < n_pair; i++) {
        if (slot[i] < 0) continue;
        int32_t s = first[slot[i]]++; /* moves each bucket's start to its end, ... */
        slot[i] = s;
        p->pair[s] = i;
    }
    for (int64_t b = n_bucket; b > 0; b--) first[b] = first[b - 1]; /* ... and back */
    first[0] = 0;
}

static cpu_matmul_matrix expert_get(const cpu_node *n, int src, int64_t expert) {
    const cpu_view *w = &n->src[src];
    cpu_weight_layout layout = {0};
    cpu_weight_layout_get(n->device, w->type, w->usage, w->ne, &layout, NULL);
    return cpu_matmul_matrix_get(n->device, &layout, w->data, expert);
}

/* The outputs of rows row .. row + CPU_MATMUL_LANE - 1 (a multiple of it) for a tile of tokens. */
typedef struct patch {
    float y[CPU_MATMUL_TOK][CPU_MATMUL_LANE];
} patch;

static void patch_multiply(const cpu_matmul_matrix *m, tdm_role role, int64_t row, bool is_first,
                           cpu_matmul_tile *tile, patch *out) {
    for (int32_t t = 0; t < tile->n_tok; t++) tile->y[t] = out->y[t];
    int64_t first = row / m->n_lane, end = first + CPU_MATMUL_LANE / m->n_lane;
    cpu_matmul_groups(m, role, first, end < m->n_group ? end : m->n_group, is_first, tile);
}

/* Up to CPU_MATMUL_TOK slots from s on, `end` not included, as a tile; *token gets each one's. */
static void tile_start(const cpu_node *n, const plan *p, int64_t s, int64_t end,
                       cpu_matmul_tile *tile, int32_t token[CPU_MATMUL_TOK]) {
    const int32_t *pair = (const int32_t *)(const void *)(n->scratch + p->pair_off);
    tile->n_tok = (int32_t)(end - s < CPU_MATMUL_TOK ? end - s : CPU_MATMUL_TOK);
    for (int32_t t = 0; t < tile->n_tok; t++) token[t] = (int32_t)(pair[s + t] / p->n_used);
}

static float *h_row(const cpu_node *n, const plan *p, int64_t slot) {
    return (float *)(void *)(n->scratch + p->h_off) + slot * p->n_ff;
}

/* Whether h is more than act(gate x) * (up x). */
static bool has_form(const cpu_node *n) {
    const tdm_moe_params *m = &n->node->params.moe;
    return m->limit != 0 || m->alpha > 0 || m->up_offset != 0 || m->is_weighted_first ||
           m->is_soft || n->src[SRC_GATE_BIAS].data != NULL || n->src[SRC_UP_BIAS].data != NULL;
}

static float bias_get(const cpu_node *n, int src, int64_t row, int64_t expert) {
    const cpu_view *v = &n->src[src];
    return v->data != NULL ? *(const float *)element(v, row, expert) : 0;
}

/* h of op.h with is_soft, from g and p. */
static float soft_apply(const tdm_moe_params *m, float (*act_apply)(tdm_act, float), float alpha,
                        float g, float p) {
    const float f = act_apply((tdm_act)m->act, g) * (act_apply(TDM_ACT_TANH, alpha * g) / alpha);
    if (m->limit > 0) p = m->limit * act_apply(TDM_ACT_TANH, p / m->limit);
    return f * (p + m->up_offset);
}

/* h of op.h for n_row rows of a slot, from the products g and u. */
static void form_apply(const cpu_node *n, int64_t expert, int64_t row, int64_t n_row, float weight,
                       const float *g, const float *u, float *h) {
    const tdm_moe_params *m = &n->node->params.moe;
    float (*act_apply)(tdm_act, float) =
        n->device->is_reference ? cpu_act_reference : cpu_act_plain;
    const float alpha = m->alpha > 0 ? m->alpha : 1, limit = fabsf(m->limit);
    for (int64_t j = 0; j < n_row; j++) {
        float a = weight * g[j] + bias_get(n, SRC_GATE_BIAS, row + j, expert);
        float b = weight * u[j] + bias_get(n, SRC_UP_BIAS, row + j, expert);
        if (m->is_soft) {
            h[j] = soft_apply(m, act_apply, alpha, a, b);
            continue;
        }
        if (m->limit > 0) a = a > limit ? limit : a;
        if (m->limit != 0) b = b > limit ? limit : b < -limit ? -limit : b;
        a = act_apply((tdm_act)m->act, alpha * a) / alpha;
        if (m->limit < 0) a = a > limit ? limit : a;
        h[j] = a * (b + m->up_offset);
    }
}

/* The weight that a slot's x gets; `token` is the chunk's first. */
static float slot_weight(const cpu_node *n, const plan *p, int64_t token, int64_t slot) {
    const int32_t *pair = (const int32_t *)(const void *)(n->scratch + p->pair_off);
    if (!n->node->params.moe.is_weighted_first) return 1;
    return *(const float *)element(&n->src[SRC_WEIGHT], pair[slot] % p->n_used,
                                   token + pair[slot] / p->n_used);
}

/* An expert's matrices, and the chunk's first token. */
typedef struct hidden_input {
    cpu_matmul_matrix gate, up;
    int64_t expert, token;
} hidden_input;

/* h for rows row .. row + CPU_MATMUL_LANE - 1 of slots first .. end-1, whose tokens have that
 * role. */
static void hidden_compute(const cpu_node *n, const plan *p, const hidden_input *in, tdm_role role,
                           int64_t row, int64_t first, int64_t end) {
    tdm_act act = (tdm_act)n->node->params.moe.act;
    float (*act_apply)(tdm_act, float) =
        n->device->is_reference ? cpu_act_reference : cpu_act_plain;
    const bool is_formed = has_form(n);
    int64_t n_row = p->n_ff - row < CPU_MATMUL_LANE ? p->n_ff - row : CPU_MATMUL_LANE;
    for (int64_t s = first; s < end; s += CPU_MATMUL_TOK) {
        cpu_matmul_tile tile;
        int32_t token[CPU_MATMUL_TOK];
        patch a, b;
        tile_start(n, p, s, end, &tile, token);
        for (int32_t t = 0; t < tile.n_tok; t++) {
            tile.x[t] = n->scratch + p->gate_x_off + (size_t)token[t] * p->gate_x_pitch;
        }
        patch_multiply(&in->gate, role, row, s == first, &tile, &a);
        for (int32_t t = 0; t < tile.n_tok; t++) {
            tile.x[t] = n->scratch + p->up_x_off + (size_t)token[t] * p->up_x_pitch;
        }
        patch_multiply(&in->up, role, row, s == first, &tile, &b);
        for (int32_t t = 0; t < tile.n_tok; t++) {
            float *h = h_row(n, p, s + t) + row;
            if (is_formed) {
                form_apply(n, in->expert, row, n_row, slot_weight(n, p, in->token, s + t), a.y[t],
                           b.y[t], h);
                continue;
            }
            for (int64_t j = 0; j < n_row; j++) {
                h[j] = act_apply(act, a.y[t][j]) * b.y[t][j];
            }
        }
    }
}

/* The addends of slots first .. end-1, whose tokens have that role, for groups of the down
 * matrix. */
static void addends_compute(const cpu_node *n, const plan *p, const cpu_matmul_matrix *down,
                            tdm_role role, int64_t group, int64_t group_end, int64_t first,
                            int64_t end) {
    for (int64_t s = first; s < end; s += CPU_MATMUL_TOK) {
        cpu_matmul_tile tile;
        tile.n_tok = (int32_t)(end - s < CPU_MATMUL_TOK ? end - s : CPU_MATMUL_TOK);
        for (int32_t t = 0; t < tile.n_tok; t++) {
            tile.x[t] = p->hx_pitch != 0
                            ? (const void *)(n->scratch + p->hx_off + (size_t)(s + t) * p->hx_pitch)
                            : (const void *)h_row(n, p, s + t);
            tile.y[t] =
                (float *)(void *)(n->scratch + p->out_off) + (s + t) * p->n + group * down->n_lane;
        }
        cpu_matmul_groups(down, role, group, group_end, s == first, &tile);
    }
}

/* y of one token from its addends, in the order of u. `index` is its number in the chunk. */
static void token_sum(const cpu_node *n, const plan *p, int64_t token, int64_t index) {
    const int32_t *slot = (const int32_t *)(const void *)(n->scratch + p->slot_off);
    float *y = element(&n->dst[0], 0, token);
    memset(y, 0, (size_t)p->n * sizeof *y);
    for (int64_t u = 0; u < p->n_used; u++) {
        int32_t s = slot[index * p->n_used + u];
        if (s < 0) continue;
        float weight = *(const float *)element(&n->src[SRC_WEIGHT], u, token);
        const float *addend = (const float *)(const void *)(n->scratch + p->out_off) + s * p->n;
        if (n->node->params.moe.is_weighted_first) weight = 1;
        if (n->src[SRC_DOWN_BIAS].data == NULL) {
            for (int64_t j = 0; j < p->n; j++) y[j] += weight * addend[j];
            continue;
        }
        int64_t e = *(const int32_t *)element(&n->src[SRC_ID], u, token) -
                    (int64_t)n->node->params.moe.first_expert;
        for (int64_t j = 0; j < p->n; j++)
            y[j] += weight * (addend[j] + bias_get(n, SRC_DOWN_BIAS, j, e));
    }
}

/* Tokens token .. token + n_tok - 1 in the formats that gate and up take. */
static void x_prepare(const cpu_node *n, const plan *p, int64_t token, int64_t n_tok,
                      const cpu_worker *w) {
    int64_t first, last;
    cpu_roles roles = roles_get(n, p);
    cpu_worker_share(w, n_tok, 1, &first, &last);
    for (int64_t t = first; t < last; t++) {
        tdm_role role = cpu_role_of(&roles, token + t);
        cpu_matmul_x_prepare(p->gate.of[role], n->device->isa, &n->src[SRC_X], token + t, 0, p->n,
                             n->scratch + p->gate_x_off + (size_t)t * p->gate_x_pitch);
        if (p->up_x_off == p->gate_x_off) continue;
        cpu_matmul_x_prepare(p->up.of[role], n->device->isa, &n->src[SRC_X], token + t, 0, p->n,
                             n->scratch + p->up_x_off + (size_t)t * p->up_x_pitch);
    }
}

/* The slots' h in the format that down takes; `token` is the chunk's first. */
static void hx_prepare(const cpu_node *n, const plan *p, int64_t token, int64_t n_slot,
                       const cpu_worker *w) {
    const int32_t *pair = (const int32_t *)(const void *)(n->scratch + p->pair_off);
    int64_t first, last;
    cpu_roles roles = roles_get(n, p);
    cpu_worker_share(w, n_slot, 1, &first, &last);
    for (int64_t s = first; s < last; s++) {
        const cpu_matmul_kernel *kernel =
            p->down.of[cpu_role_of(&roles, token + pair[s] / p->n_used)];
        cpu_quantize_row_get(n->device->isa,
                             kernel->format)(h_row(n, p, s), p->n_ff, kernel->code_offset,
                                             n->scratch + p->hx_off + (size_t)s * p->hx_pitch);
    }
}

/* The worker's rows of h for every slot, expert by expert; `token` is the chunk's first. */
static void hidden_share(const cpu_node *n, const plan *p, int64_t token, const cpu_worker *w) {
    const int32_t *slots = (const int32_t *)(const void *)(n->scratch + p->first_off);
    int64_t first, last;
    cpu_worker_share(w, p->n_ff, CPU_MATMUL_LANE, &first, &last);
    for (int64_t e = 0; e < p->n_expert; e++, slots += CPU_N_ROLE) {
        if (slots[0] == slots[CPU_N_ROLE]) continue;
        const hidden_input in = {expert_get(n, SRC_GATE, e), expert_get(n, SRC_UP, e), e, token};
        for (int64_t row = first; row < last; row += CPU_MATMUL_LANE)
            for (int role = 0; role < CPU_N_ROLE; role++)
                hidden_compute(n, p, &in, (tdm_role)role, row, slots[role], slots[role + 1]);
    }
}

/* The worker's rows of the addends of every slot, expert by expert. */
static void addends_share(const cpu_node *n, const plan *p, const cpu_worker *w) {
    const int32_t *slots = (const int32_t *)(const void *)(n->scratch + p->first_off);
    int64_t first, last;
    for (int64_t e = 0; e < p->n_expert; e++, slots += CPU_N_ROLE) {
        if (slots[0] == slots[CPU_N_ROLE]) continue;
        cpu_matmul_matrix down = expert_get(n, SRC_DOWN, e);
        cpu_worker_share(w, down.n_group, 1, &first, &last);
        for (int64_t g = first; g < last; g++)
            for (int role = 0; role < CPU_N_ROLE; role++)
                addends_compute(n, p, &down, (tdm_role)role, g, g + 1, slots[role],
                                slots[role + 1]);
    }
}

static void moe_run(const cpu_node *n, cpu_worker *w) {
    plan p = plan_get(n->device, n->graph, n->node);
    const int32_t *slot_first = (const int32_t *)(const void *)(n->scratch + p.first_off);
    const pairs sorting = {
        .id = &n->src[SRC_ID],
        .roles = roles_get(n, &p),
        .n_used = p.n_used,
        .n_expert = p.n_expert,
        .first_expert = n->node->params.moe.first_expert,
        .first = (int32_t *)(void *)(n->scratch + p.first_off),
        .pair = (int32_t *)(void *)(n->scratch + p.pair_off),
        .slot = (int32_t *)(void *)(n->scratch + p.slot_off),
    };
    int64_t first, last;
    for (int64_t token = 0; token < p.n_tok; token += p.chunk) {
        int64_t n_tok = p.n_tok - token < p.chunk ? p.n_tok - token : p.chunk;
        if (token > 0) cpu_worker_barrier(w); /* the scratch is still being read */
        if (w->ith == 0) pairs_sort(&sorting, token, n_tok);
        x_prepare(n, &p, token, n_tok, w);
        cpu_worker_barrier(w);
        hidden_share(n, &p, token, w);
        cpu_worker_barrier(w);
        if (p.hx_pitch != 0) {
            hx_prepare(n, &p, token, slot_first[p.n_expert * CPU_N_ROLE], w);
            cpu_worker_barrier(w);
        }
        addends_share(n, &p, w);
        cpu_worker_barrier(w);
        cpu_worker_share(w, n_tok, 1, &first, &last);
        for (int64_t t = first; t < last; t++) token_sum(n, &p, token + t, t);
    }
}

/* A reference device has reference kernels in the same table. */
const cpu_op_impl cpu_op_moe_ffn = {
    .supports = moe_supports,
    .scratch_size = moe_scratch_size,
    .run = moe_run,
};

/* ---- MOE_MATMUL ---- */

enum { PRODUCT_W, PRODUCT_X, PRODUCT_ROLE, PRODUCT_ID };

/* Its scratch: as in `plan`. */
typedef struct product_plan {
    cpu_matmul_kernels kernels;
    int64_t n_tok, n_used, n_expert, k, n;
    int64_t n_row; /* rows of x that a token has */
    int64_t chunk;
    size_t first_off, pair_off, slot_off;
    size_t x_off, x_pitch; /* the chunk's rows of x in the kernel's format */
    size_t size;
} product_plan;

static product_plan product_plan_get(const cpu_device *device, const tdm_graph *graph,
                                     const tdm_node *node) {
    const tdm_value *w = tdm_graph_value(graph, node->src[PRODUCT_W]);
    const tdm_value *x = tdm_graph_value(graph, node->src[PRODUCT_X]);
    product_plan p = {
        .kernels = cpu_matmul_kernels_get(device, (tdm_type)w->type),
        .n_tok = x->ne[2],
        .n_used = tdm_graph_value(graph, node->src[PRODUCT_ID])->ne[0],
        .n_expert = w->ne[2],
        .k = w->ne[0],
        .n = w->ne[1],
        .n_row = x->ne[1],
    };
    p.chunk = p.n_tok < CHUNK ? p.n_tok : CHUNK;
    const size_t n_pair = (size_t)(p.chunk * p.n_used) * sizeof(int32_t);
    p.pair_off = round_up_64(((size_t)p.n_expert * CPU_N_ROLE + 1) * sizeof(int32_t));
    p.slot_off = p.pair_off + round_up_64(n_pair);
    p.x_off = p.slot_off + round_up_64(n_pair);
    p.x_pitch = x_pitch(&p.kernels, p.k);
    p.size = p.x_off + (size_t)(p.chunk * p.n_row) * p.x_pitch;
    return p;
}

static tdm_status product_supports(const cpu_device *device, const tdm_graph *graph,
                                   const tdm_node *node, tdm_error *err) {
    (void)device;
    tdm_status status =
        matrices_check(tdm_graph_value(graph, node->src[PRODUCT_W]), "MOE_MATMUL", "w", err);
    if (status != TDM_OK) return status;
    return x_check(tdm_graph_value(graph, node->src[PRODUCT_X]), "MOE_MATMUL", err);
}

static size_t product_scratch_size(const cpu_device *device, const tdm_graph *graph,
                                   const tdm_node *node) {
    return product_plan_get(device, graph, node).size;
}

static float *product_row(const cpu_node *n, int64_t u, int64_t token) {
    const cpu_view *y = &n->dst[0];
    return (float *)(void *)(y->data + u * y->nb[1] + token * y->nb[2]);
}

/* The worker's rows of a chunk of x in the kernel's format. */
static void product_x_prepare(const cpu_node *n, const product_plan *p, const pairs *pairs,
                              int64_t token, int64_t n_tok, const cpu_worker *w) {
    int64_t first, last;
    cpu_worker_share(w, n_tok * p->n_row, 1, &first, &last);
    for (int64_t i = first; i < last; i++) {
        const tdm_role role = cpu_role_of(&pairs->roles, token + i / p->n_row);
        cpu_matmul_x_prepare(p->kernels.of[role], n->device->isa, &n->src[PRODUCT_X],
                             token * p->n_row + i, 0, p->k,
                             n->scratch + p->x_off + (size_t)i * p->x_pitch);
    }
}

/* The worker's rows of the matrix of expert e times the slots first .. end - 1, whose tokens have
 * that role. */
static void product_compute(const cpu_node *n, const product_plan *p, const pairs *pairs,
                            int64_t token, const cpu_matmul_matrix *m, tdm_role role,
                            const cpu_worker *w, int64_t first, int64_t end) {
    int64_t group, group_end;
    cpu_worker_share(w, m->n_group, 1, &group, &group_end);
    for (int64_t s = first; s < end && group < group_end; s += CPU_MATMUL_TOK) {
        cpu_matmul_tile tile;
        tile.n_tok = (int32_t)(end - s < CPU_MATMUL_TOK ? end - s : CPU_MATMUL_TOK);
        for (int32_t t = 0; t < tile.n_tok; t++) {
            const int64_t pair = pairs->pair[s + t], at = pair / p->n_used, u = pair % p->n_used;
            const int64_t row = p->n_row == 1 ? at : pair;
            tile.x[t] = n->scratch + p->x_off + (size_t)row * p->x_pitch;
            tile.y[t] = product_row(n, u, token + at) + group * m->n_lane;
        }
        cpu_matmul_groups(m, role, group, group_end, s == first, &tile);
    }
}

/* Zeros for the worker's pairs of experts that this device does not have. */
static void product_zeros(const cpu_node *n, const product_plan *p, const pairs *pairs,
                          int64_t token, int64_t n_tok, const cpu_worker *w) {
    int64_t first, last;
    cpu_worker_share(w, n_tok * p->n_used, 1, &first, &last);
    for (int64_t i = first; i < last; i++)
        if (pairs->slot[i] < 0)
            memset(product_row(n, i % p->n_used, token + i / p->n_used), 0,
                   (size_t)p->n * sizeof(float));
}

static void product_run(const cpu_node *n, cpu_worker *w) {
    const product_plan p = product_plan_get(n->device, n->graph, n->node);
    const pairs sorting = {
        .id = &n->src[PRODUCT_ID],
        .roles = cpu_roles_get(&n->src[PRODUCT_ROLE], p.n_tok, &p.kernels),
        .n_used = p.n_used,
        .n_expert = p.n_expert,
        .first_expert = n->node->params.moe.first_expert,
        .first = (int32_t *)(void *)(n->scratch + p.first_off),
        .pair = (int32_t *)(void *)(n->scratch + p.pair_off),
        .slot = (int32_t *)(void *)(n->scratch + p.slot_off),
    };
    for (int64_t token = 0; token < p.n_tok; token += p.chunk) {
        const int64_t n_tok = p.n_tok - token < p.chunk ? p.n_tok - token : p.chunk;
        if (token > 0) cpu_worker_barrier(w); /* the scratch is still being read */
        if (w->ith == 0) pairs_sort(&sorting, token, n_tok);
        product_x_prepare(n, &p, &sorting, token, n_tok, w);
        cpu_worker_barrier(w);
        product_zeros(n, &p, &sorting, token, n_tok, w);
        const int32_t *slots = sorting.first;
        for (int64_t e = 0; e < p.n_expert; e++, slots += CPU_N_ROLE) {
            if (slots[0] == slots[CPU_N_ROLE]) continue;
            const cpu_matmul_matrix m = expert_get(n, PRODUCT_W, e);
            for (int role = 0; role < CPU_N_ROLE; role++)
                product_compute(n, &p, &sorting, token, &m, (tdm_role)role, w, slots[role],
                                slots[role + 1]);
        }
    }
}

const cpu_op_impl cpu_op_moe_matmul = {
    .supports = product_supports,
    .scratch_size = product_scratch_size,
    .run = product_run,
};
