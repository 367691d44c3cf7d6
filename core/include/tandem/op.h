/* SPDX-License-Identifier: MIT
 *
 * op.h: the operations of a graph: what each computes, from which shapes, with which parameters.
 *
 * Each op's paragraph is normative: a device computes this, to the accuracy that `tandem certify`
 * states for its level. Sources are in order; one in [brackets] is optional and -1 when absent.
 * Values are f32 unless stated otherwise. A device may fuse, reorder and use other precisions
 * inside, as long as outputs stay within those bounds. No op reads outside its sources or writes
 * outside its destinations; shapes were verified before a device gets them.
 *
 * Indices in parameters are absolute (the head, expert or row number in the whole model), so that
 * a slice of an op means the same as the whole: that is what lets a group cut it.
 */
#ifndef TANDEM_OP_H
#define TANDEM_OP_H

#include "tandem/tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

#define TDM_MAX_SRC 16
#define TDM_MAX_DST 2

/* Views: no bytes move; the device derives the strides. The source may itself be a view, never a
 * private tensor (a weight with usage flags) and never a STATE. Every device accepts view nodes:
 * supports_op returns TDM_OK for them, and running them does nothing.
 *
 *   RESHAPE    x -> same elements, other shape; x is contiguous in canonical order
 *   PERMUTE    x -> y with y.ne[axis[i]] = x.ne[i]
 *   SLICE      x -> x[offset .. offset + y.ne); quantised types: whole blocks of ne[0]
 *
 * Data movement.
 *
 *   COPY       x (any view, f32 f16 bf16 i32) -> contiguous y of y's type; floats convert into one
 *              another, i32 stays i32
 *   CONCAT     a, b -> y: a then b along axis
 *   REPEAT     x -> y[i] = x[i mod x.ne] along each axis: each ne of y is a multiple of x's, and x
 *              fills y from the start, again and again
 *   GET_ROWS   table [n, n_row] any type, id i32 [m] -> y f32 [n, m]; row id - first_row of the
 *              table; a foreign id (outside first_row .. first_row + n_row - 1, -1 included) gives
 *              a row of zeros
 *
 * Arithmetic.
 *
 *   MATMUL     w [k, n] any type, x [k, ...], [role i32 [m]] -> y [n, ...]:
 *              y[j] = sum_i w[i, j] * x[i].
 *              w [k, n, n_head], x [k, n_head, ...] -> y [n, n_head, ...]: matrix h times x's row h
 *              of each token (one for each head). A slice of w along axis 2 with the same slice of
 *              x along axis 1 gives that slice of y along axis 1: so a group cuts it by heads.
 *              role gives the tdm_role (step.h) of each token: m is the product of x's last axes,
 *              without axis 1 where w has several matrices; row r of x has role[r / (rows / m)];
 *              -1 is padding. Absent: every row is TDM_ROLE_GENERATED
 *   ADD        a, b -> a + b; each ne of b equals a's or is 1 (repeated)
 *   MUL        a, b -> a * b; shapes as in ADD
 *   DIV        a, b -> a / b; shapes as in ADD
 *   SCALE      x -> x * scale + bias
 *   CLAMP      x -> min(max(x, min), max); a NaN stays a NaN; min <= max, either may be infinite
 *   SQRT       x -> sqrt(x); NaN below 0
 *   ACT        x -> act(x)
 *   GLU        gate, up -> act(gate) * up
 *   SOFTMAX    x -> softmax over ne[0]; a row of only -inf gives zeros
 *
 * Normalisation over ne[0].
 *
 *   LAYER_NORM x, [weight [ne0]], [bias [ne0]]
 *              -> (x - mean(x)) / sqrt(mean((x - mean(x))^2) + eps) * weight + bias
 *   RMS_NORM   x, [weight [ne0]] -> x / sqrt(mean(x^2) + eps) * weight
 *   SUM_SQ     x -> [1, ...]: sum of squares; for norms over a cut axis
 *   RMS_APPLY  x, sum [1, ...], [weight] -> x / sqrt(sum / n + eps) * weight
 *
 *   ROPE       x [head_dim, n_head, n_tok], pos i32 [n_tok], [factor [n_rot / 2]] -> like x;
 *              elements rope_offset .. + n_rot of each head are turned by their position, the rest
 *              copied; a token at position -1 is copied
 *   SINKHORN   x [n, n, n_tok] -> y: a matrix for each token, made nearly doubly stochastic:
 *              y = softmax(x) over ne[0] + eps, then n_iter times y /= (sum over ne[1] + eps),
 *              between two of them y /= (sum over ne[0] + eps). n <= TDM_MAX_SINKHORN
 *
 * Selection: discrete results. Ties go to the lower index. NaN ranks below everything.
 *
 *   TOP_K      x [n, m] -> value [k, m], id i32 [k, m]: descending; ids + index_base
 *   MOE_ROUTE  logit [n_expert, n_tok], [bias [n_expert]], [id i32 [n_used, n_tok]]
 *              -> id i32 [n_used, n_tok], weight [n_used, n_tok]: see tdm_route_params. With ids
 *              nothing is chosen: these are the experts, and the op gives their weights. Then there
 *              is no bias, n_group is 0 and id_divisor is 0; an id outside 0 .. n_expert - 1 is
 *              given as -1, with weight 0
 *   MOE_FFN    x [n, n_tok], id i32 [n_used, n_tok], weight [n_used, n_tok],
 *              gate [n, n_ff, n_expert], up [n, n_ff, n_expert], down [n_ff, n, n_expert],
 *              [role i32 [n_tok], as in MATMUL], [gate_bias [n_ff, n_expert]],
 *              [up_bias [n_ff, n_expert]], [down_bias [n, n_expert]]
 *              -> y [n, n_tok] = sum_u weight[u] * (down_e h + down_bias_e), e = id[u], with
 *              h = act(g) * p, g = gate_e x + gate_bias_e, p = up_e x + up_bias_e; see
 *              tdm_moe_params for what changes g, p and the weights. Experts outside first_expert
 *              .. + n_expert add nothing
 *   MOE_MATMUL w [k, n, n_expert], x [k, 1 or n_used, n_tok], [role i32 [n_tok], as in MATMUL],
 *              id i32 [n_used, n_tok] -> y [n, n_used, n_tok]: row u of a token is w_e x,
 *              e = id[u], of x's row u, or of its only one. Of the parameters first_expert and
 *              n_expert_all are used. Experts outside first_expert .. + n_expert give zeros
 *
 * Key/value cache. `state` is a STATE value described by graph->kv[params.kv]. A node that changes
 * state has no destination; it runs after every earlier node that touches the same state and before
 * every later one.
 *
 *   KV_WRITE   k [head_dim_k, n_head_kv, n_tok], [v [head_dim_v, n_head_kv, n_tok]], step, state:
 *              each token's rows go to its cell of the step block; v is absent exactly when the
 *              cache is V_FROM_K
 *   ATTENTION  q [head_dim_k, n_head, n_tok], step, state, [sink [n_head]],
 *              [select i32 [n_top, n_tok, n_list]], [bias [2 * n_far + 1, n_head]]
 *              -> o [head_dim_v, n_head, n_tok], [ml [2, n_head, n_tok]]
 *              For token t of sequence s at position p, over every cached token of s at position c
 *              with c <= p (when causal) and, when window > 0, p - c < window; with windows in
 *              chunks c / window >= p / window instead, with symmetric ones |p - c| <= window / 2,
 *              all rounded down:
 *              a_c = scale * t(p) * dot(q, k_c), softcap * tanh(a_c / softcap) where softcap > 0
 *              then a_c - slope(head) * |p - c| where alibi_max_bias > 0; t and slope:
 *              tdm_attention_params
 *              then a_c + bias[n_far + min(max(c - p, -n_far), n_far), head] where there is bias: a
 *              finite number for each distance, the same for all from n_far on
 *              m = max a_c, l = sum exp(a_c - m), o = sum exp(a_c - m) v_c / l
 *              A sink adds one term exp(sink - m) to l and nothing to o. Over nothing, with a sink
 *              or without: o = 0, m = -inf, l = 0.
 *              With select, only cached tokens at the positions that it lists for t count:
 *              positions in rising order, then -1. n_list is 1, or n_head_kv: each KV head of the
 *              state then has a list of its own. The cache is TDM_KV_SPARSE then, and softcap is 0
 *              With bias the cache is TDM_KV_BIASED, and softcap is 0
 *   KV_SELECT  q [head_dim_k, n_head, n_tok], [w [n_head or 1, n_tok or 1]], step, state
 *              -> select i32 [n_top, n_tok, n_list]
 *              For token t of sequence s at position p, over every cached token of s at position
 *              c <= p: score_c = sum_h w[h, t] * max(0, dot(q_h, k_c)), and n_list is 1; one weight
 *              counts for all heads, or all tokens. Without w
 *              there is a list for each head, from score_c = dot(q_h, k_c), and n_list is n_head.
 *              The positions of the n_top highest scores, in rising order, then -1. The cache is
 *              TDM_KV_SPARSE and V_FROM_K, and has one KV head
 *              With block_len > 1 whole blocks are chosen: block b is positions b * block_len ..
 *              + block_len - 1, and its score is the highest of its tokens. The list has the tokens
 *              at positions up to p of the n_top / block_len blocks with the highest scores, of
 *              which the n_local last ones up to the block of p are always among them. Of equal
 *              scores the lower position or block counts as the higher one
 *              With is_of_tokens the n_top / stride rows with the highest scores are chosen, and
 *              the list has positions of tokens: the `stride` positions of each chosen row's run,
 *              then those behind the last row that the token sees, up to p
 *   KV_SHIFT   step, state, [factor]: for each job, the n_rot elements of each K row are turned on
 *              by `arg` positions, without mscale (V untouched), and stored as type_k again
 *   KV_COPY    step, state: for each job, slots first .. + count of page `arg` -> `page`
 *   KV_EXPORT  step, state -> k type_k [padded_k, n_head_kv, n_row],
 *              [v type_v [padded_v, n_head_kv, n_row]]: canonical rows as stored (rotated if so);
 *              job slot first + i goes to row arg + i
 *   KV_IMPORT  k, [v], step, state: the inverse
 *   LSE_MERGE  o [head_dim, n_head, n_tok, n_part], ml [2, n_head, n_tok, n_part]
 *              -> o [head_dim, n_head, n_tok]: attention over the union of the parts
 *
 * Recurrence over the tokens of a sequence. `state` has slots (TDM_KV_RECURRENT, kv.h). Tokens are
 * sorted by sequence, and the block has rs_read and rs_write (step.h). A sequence starts from slot
 * rs_read of the step block, or from zeros where that is -1; after a token whose rs_write is not -1
 * the state is stored in that slot. Tokens that belong to no sequence give zeros. A slot outside
 * the state is as -1. These nodes change the state, and have a destination all the same. They run
 * in order with other nodes that touch it, as above.
 *
 *   CONV1D     x [n_ch, n_tok], w [k, n_ch], [bias [n_ch]], step, state -> y [n_ch, n_tok]:
 *              y[c, t] = bias[c] + sum_i w[i, c] * x[c, t - k + 1 + i], t counted within the
 *              sequence; inputs of earlier steps come from the state. The channels are n_segment
 *              segments, segment s of n_head_kv * unit_len[s] channels: unit u holds channels
 *              u * unit_len[s] .. + unit_len[s] - 1 of each segment, as [n_ch / n_head_kv, k - 1]
 *              inputs, the oldest first. k >= 2
 *   LINEAR_SCAN  q, k [dk, n_k, n_tok], v [dv, n_v, n_tok], g [1 or dk, n_v, n_tok or 1],
 *              [a [1 or dk, n_v]], [beta [1, n_v, n_tok]], step, state, [erase [dk, n_k, n_tok]],
 *              [write [dk, n_k, n_tok]] -> o [dv, n_v, n_tok]:
 *              each head of v has a matrix S[i, j] of dk x dv. For each token, in order:
 *              e[j] = sum_i erase[i] S[i, j], 0 where there is no erase
 *              S[i, j] *= exp(g[i] * a[i]), a = 1 where absent; g and a of one element count for
 *              all i
 *              u[j] = v[j], or beta * (v[j] - sum_i k[i] S[i, j]) where there is beta
 *              S[i, j] += k[i] * u[j] + write[i] * e[j],  o[j] = scale * sum_i q[i] S[i, j]
 *              erase and write are there exactly when the state is TDM_KV_ERASED; beta is absent
 *              then. A head of v reads the head of them that it reads of q and k
 *              Which head of q and k a head of v reads: tdm_scan_params. A unit of the state holds
 *              m = n_v / n_head_kv matrices as [dk, dv, m]: head h of v is matrix h % m of unit
 *              h / m; where is_tiled, matrix h / n_k of unit h % n_k
 *
 *   BLOCK_POOL x [n_part * n, n_tok], score [n_part * n or 1, n_tok or 1],
 *              bias [n_part * n or 1, block_len], step, state -> y [n, n_tok]:
 *              for each channel a mean of x over blocks of block_len positions, with the weights
 *              exp(score[c, t] + bias[c, p % block_len]) for a token t at position p, divided by
 *              their sum. One row of score or bias counts for all, and one token of score. The last
 *              n of x's rows count for the block of their token; with n_part = 2 the first n count
 *              for the block behind it, so that blocks overlap. y of a token is the mean over its
 *              block so far: complete at the last position of the block. n_part is 1 or 2. The
 *              state has one unit of n_part * 3 * n floats: of the present block the highest
 *              exponent, the sum of weights and the weighted sum of each channel, with weights
 *              relative to the highest exponent; then, with n_part = 2, those of the block behind.
 *              A sum of weights of 0 = nothing yet
 *
 *   EXCHANGE   [x], arena (a STATE of bytes), step, [residual], [x2], [peer] -> [y], [y2]: inside a
 *              group's plan; see tdm_exchange_params and collective.h
 */

/* The one list of ops: OP(ID, name, number, kind, infer, params, ...) for each, in the order of
 * their numbers, which never change. Tables of ops, here and elsewhere, expand from it.
 *   name    the word of messages and of functions: cpu_op_<name>, meta_rule_<name>
 *   kind    VIEW  the destination is a view of the first source
 *           VALUE computes destinations from sources alone
 *           CACHE its parameters begin with the index of a cache description
 *           GROUP made by groups of devices only
 *   infer   tdm_infer_<infer> of core/graph gives type and shape of the destinations
 *   params  the member of tdm_op_params that it uses; none = all bytes are zero
 *   ...     designated initialisers, 0 where absent; bit i of a mask is source or destination i:
 *           n_src, n_dst              optional ones included; a node has exactly as many
 *           optional_src, optional_dst masks: may be absent
 *           step_src, state_src       masks: is the step block; is a STATE, which no other may be
 *           private_src, usage        mask: may be a WEIGHT with this usage flag
 * The arena of an EXCHANGE is memory that is changed in place, hence a STATE. Its step source need
 * not be the graph's step block: a part of a graph may have nothing else of it. */
#define TDM_OP_LIST(OP)                                                                            \
    OP(RESHAPE, reshape, 1, VIEW, reshape, none, .n_src = 1, .n_dst = 1)                           \
    OP(PERMUTE, permute, 2, VIEW, permute, permute, .n_src = 1, .n_dst = 1)                        \
    OP(SLICE, slice, 3, VIEW, slice, slice, .n_src = 1, .n_dst = 1)                                \
    OP(COPY, copy, 4, VALUE, copy, none, .n_src = 1, .n_dst = 1)                                   \
    OP(CONCAT, concat, 5, VALUE, concat, concat, .n_src = 2, .n_dst = 1)                           \
    OP(GET_ROWS, get_rows, 6, VALUE, get_rows, rows, .n_src = 2, .n_dst = 1, .private_src = 1,     \
       .usage = TDM_USAGE_ROWS)                                                                    \
    OP(MATMUL, matmul, 7, VALUE, matmul, none, .n_src = 3, .n_dst = 1, .optional_src = 4,          \
       .private_src = 1, .usage = TDM_USAGE_MATMUL)                                                \
    OP(ADD, add, 8, VALUE, pair, none, .n_src = 2, .n_dst = 1)                                     \
    OP(MUL, mul, 9, VALUE, pair, none, .n_src = 2, .n_dst = 1)                                     \
    OP(SCALE, scale, 10, VALUE, scale, scale, .n_src = 1, .n_dst = 1)                              \
    OP(ACT, act, 11, VALUE, act, act, .n_src = 1, .n_dst = 1)                                      \
    OP(GLU, glu, 12, VALUE, glu, act, .n_src = 2, .n_dst = 1)                                      \
    OP(SOFTMAX, softmax, 13, VALUE, like, none, .n_src = 1, .n_dst = 1)                            \
    OP(RMS_NORM, rms_norm, 14, VALUE, rms_norm, norm, .n_src = 2, .n_dst = 1, .optional_src = 2)   \
    OP(SUM_SQ, sum_sq, 15, VALUE, sum_sq, none, .n_src = 1, .n_dst = 1)                            \
    OP(RMS_APPLY, rms_apply, 16, VALUE, rms_apply, norm, .n_src = 3, .n_dst = 1,                   \
       .optional_src = 4)                                                                          \
    OP(ROPE, rope, 17, VALUE, rope, rope, .n_src = 3, .n_dst = 1, .optional_src = 4)               \
    OP(TOP_K, top_k, 18, VALUE, top_k, top_k, .n_src = 1, .n_dst = 2)                              \
    OP(MOE_ROUTE, moe_route, 19, VALUE, moe_route, route, .n_src = 3, .n_dst = 2,                  \
       .optional_src = 6)                                                                          \
    OP(MOE_FFN, moe_ffn, 20, VALUE, moe_ffn, moe, .n_src = 10, .n_dst = 1, .optional_src = 0x3c0,  \
       .private_src = 0x38, .usage = TDM_USAGE_EXPERT)                                             \
    OP(KV_WRITE, kv_write, 21, CACHE, kv_write, kv, .n_src = 4, .optional_src = 2, .step_src = 4,  \
       .state_src = 8)                                                                             \
    OP(ATTENTION, attention, 22, CACHE, attention, attention, .n_src = 6, .n_dst = 2,              \
       .optional_src = 0x38, .optional_dst = 2, .step_src = 2, .state_src = 4)                     \
    OP(KV_SHIFT, kv_shift, 23, CACHE, kv_shift, shift, .n_src = 3, .optional_src = 4,              \
       .step_src = 1, .state_src = 2)                                                              \
    OP(KV_COPY, kv_copy, 24, CACHE, kv_copy, kv, .n_src = 2, .step_src = 1, .state_src = 2)        \
    OP(KV_EXPORT, kv_export, 25, CACHE, kv_export, kv, .n_src = 2, .n_dst = 2, .optional_dst = 2,  \
       .step_src = 1, .state_src = 2)                                                              \
    OP(KV_IMPORT, kv_import, 26, CACHE, kv_import, kv, .n_src = 4, .optional_src = 2,              \
       .step_src = 4, .state_src = 8)                                                              \
    OP(LSE_MERGE, lse_merge, 27, VALUE, lse_merge, none, .n_src = 2, .n_dst = 1)                   \
    OP(EXCHANGE, exchange, 28, GROUP, exchange, exchange, .n_src = 6, .n_dst = 2,                  \
       .optional_src = 0x39, .optional_dst = 3, .state_src = 0x22)                                 \
    OP(LAYER_NORM, layer_norm, 29, VALUE, layer_norm, norm, .n_src = 3, .n_dst = 1,                \
       .optional_src = 6)                                                                          \
    OP(CLAMP, clamp, 30, VALUE, clamp, clamp, .n_src = 1, .n_dst = 1)                              \
    OP(DIV, div, 31, VALUE, pair, none, .n_src = 2, .n_dst = 1)                                    \
    OP(SQRT, sqrt, 32, VALUE, like, none, .n_src = 1, .n_dst = 1)                                  \
    OP(REPEAT, repeat, 33, VALUE, repeat, none, .n_src = 1, .n_dst = 1)                            \
    OP(CONV1D, conv1d, 34, CACHE, conv1d, conv, .n_src = 5, .n_dst = 1, .optional_src = 4,         \
       .step_src = 8, .state_src = 16)                                                             \
    OP(LINEAR_SCAN, linear_scan, 35, CACHE, linear_scan, scan, .n_src = 10, .n_dst = 1,            \
       .optional_src = 0x330, .step_src = 0x40, .state_src = 0x80)                                 \
    OP(KV_SELECT, kv_select, 36, CACHE, kv_select, select, .n_src = 4, .n_dst = 1,                 \
       .optional_src = 2, .step_src = 4, .state_src = 8)                                           \
    OP(MOE_MATMUL, moe_matmul, 37, VALUE, moe_matmul, moe, .n_src = 4, .n_dst = 1,                 \
       .optional_src = 4, .private_src = 1, .usage = TDM_USAGE_EXPERT)                             \
    OP(SINKHORN, sinkhorn, 38, VALUE, sinkhorn, sinkhorn, .n_src = 1, .n_dst = 1)                  \
    OP(BLOCK_POOL, block_pool, 39, CACHE, block_pool, pool, .n_src = 5, .n_dst = 1, .step_src = 8, \
       .state_src = 16)

typedef enum tdm_op {
    TDM_OP_NONE = 0,
#define TDM_OP_ENUM_(ID, name, number, ...) TDM_OP_##ID = number,
    /* clang-format off */
    TDM_OP_LIST(TDM_OP_ENUM_)
#undef TDM_OP_ENUM_
    TDM_OP_COUNT_
    /* clang-format on */
} tdm_op;

/* The one list of activations: ACT(ID, name, number), in the order of their numbers.
 *   NONE      x, named "identity" in texts
 *   SILU      x / (1 + exp(-x))
 *   GELU      tanh approximation
 *   GELU_ERF  exact
 *   RELU      max(x, 0)
 *   SIGMOID   1 / (1 + exp(-x))
 *   TANH      tanh(x)
 *   SOFTPLUS  ln(1 + exp(x)), without overflow: x for large x, exp(x) for very negative x */
#define TDM_ACT_LIST(ACT)                                                                          \
    ACT(NONE, identity, 0)                                                                         \
    ACT(SILU, silu, 1)                                                                             \
    ACT(GELU, gelu, 2)                                                                             \
    ACT(GELU_ERF, gelu_erf, 3)                                                                     \
    ACT(RELU, relu, 4)                                                                             \
    ACT(SIGMOID, sigmoid, 5)                                                                       \
    ACT(TANH, tanh, 6)                                                                             \
    ACT(SOFTPLUS, softplus, 7)

typedef enum tdm_act {
#define TDM_ACT_ENUM_(ID, name, number) TDM_ACT_##ID = number,
    TDM_ACT_LIST(TDM_ACT_ENUM_)
#undef TDM_ACT_ENUM_
        TDM_ACT_COUNT_
} tdm_act;

typedef enum tdm_rope_mode {
    TDM_ROPE_ADJACENT = 0, /* pairs (2i, 2i + 1): GGUF's "llama" order */
    TDM_ROPE_HALVES = 1    /* pairs (i, i + n_rot / 2): "neox" */
} tdm_rope_mode;

/* Limit of tdm_rope_params.pos_add, positions. */
#define TDM_MAX_POS_ADD 65536

/* The angle of pair i at position p, after Su et al. (arXiv:2104.09864) and YaRN
 * (arXiv:2309.00071):
 *   theta = p * freq_base^(-2i / n_rot) / factor[i]           factor = 1 where absent
 *   interpolated = theta * freq_scale
 *   ext_factor == 0: angle = interpolated
 *   else: r = clamp((i - low) / max(0.001, high - low), 0, 1), ramp = (1 - r) * ext_factor,
 *         angle = interpolated * (1 - ramp) + theta * ramp, and
 *         mscale = attn_factor * (1 + 0.1 * ln(1 / freq_scale))
 *         with low = max(0, floor(d(beta_fast))), high = min(n_rot - 1, ceil(d(beta_slow))),
 *         d(beta) = n_rot * ln(n_ctx_orig / (beta * 2 * pi)) / (2 * ln(freq_base))
 * cos and sin are multiplied by mscale (attn_factor itself where ext_factor is 0). p is the token's
 * position + pos_add; where is_inverse, the angle is turned back instead: its sign changes. */
typedef struct tdm_rope_params {
    int32_t n_rot;       /* even; 0 = nothing is turned */
    int32_t rope_offset; /* first turned element of a head */
    int32_t mode;        /* tdm_rope_mode */
    int32_t n_ctx_orig;  /* context the model was trained with; used by YaRN only */
    float freq_base;     /* 0 = 10000 */
    float freq_scale;    /* 0 = 1 */
    float ext_factor;    /* 0 = no YaRN */
    float attn_factor;   /* 0 = 1 */
    float beta_fast;     /* 0 = 32 */
    float beta_slow;     /* 0 = 1 */
    int32_t pos_add;     /* of ROPE only: added to positions other than -1; at most
                            TDM_MAX_POS_ADD, and at least as much below 0 */
    int32_t is_inverse;  /* of ROPE only: 0 or 1 */
} tdm_rope_params;

/* score = softmax, sigmoid or sqrt(softplus) of the logits; choice = score + bias. With n_group > 1
 * the experts form equal groups, a group's rank is the sum of its two best choices (its best one
 * where scores are softmax), and only experts of the n_group_used best groups stay. The n_used best
 * by choice are taken, in descending order; weight = their score (without bias), divided by their
 * sum where `normalize`, times scale. Scoring TDM_ROUTE_TOP_SOFTMAX instead takes the best logits
 * and applies softmax to those alone. With id_divisor > 1 neighbouring experts share one: the ids
 * that the op gives are those of the chosen experts divided by it, rounded down, so an id may occur
 * more than once. */
typedef enum tdm_route_score {
    TDM_ROUTE_SOFTMAX = 0,
    TDM_ROUTE_SIGMOID = 1,
    TDM_ROUTE_TOP_SOFTMAX = 2,
    TDM_ROUTE_SQRT_SOFTPLUS = 3
} tdm_route_score;

typedef struct tdm_route_params {
    int32_t n_used;
    int32_t score;        /* tdm_route_score */
    int32_t normalize;    /* 0 or 1 */
    int32_t n_group;      /* 0 or 1 = no groups */
    int32_t n_group_used; /* groups kept */
    float scale;          /* 0 = 1 */
    int32_t id_divisor;   /* 0 = 1 */
} tdm_route_params;

/* Of MOE_FFN: h = f * (p + up_offset), f = act(alpha * g) / alpha. A limit clamps p to -|limit| ..
 * |limit|; where it is > 0, g becomes min(g, limit), where < 0, f becomes min(f, -limit). With
 * is_soft nothing is cut off: f = act(g) * tanh(alpha * g) / alpha, and with a limit, which is > 0
 * then, p becomes limit * tanh(p / limit). With is_weighted_first gate and up get weight[u] * x
 * instead of x, and the sum has no weights. */
typedef struct tdm_moe_params {
    int32_t act;               /* tdm_act */
    int32_t first_expert;      /* absolute number of the matrices' first expert */
    int32_t n_expert_all;      /* experts in the whole layer; 0 = those of the matrices */
    int32_t is_weighted_first; /* 0 or 1 */
    float limit;               /* 0 = none; < 0: of f, not of g */
    float alpha;               /* >= 0; 0 = 1 */
    float up_offset;
    int32_t is_soft; /* 0 or 1 */
} tdm_moe_params;

typedef enum tdm_window_kind {
    TDM_WINDOW_SLIDING = 0,  /* the last `window` tokens */
    TDM_WINDOW_CHUNKED = 1,  /* tokens of the same chunk: chunks of `window` from position 0 on */
    TDM_WINDOW_SYMMETRIC = 2 /* window / 2 tokens before and, where not causal, as many behind */
} tdm_window_kind;

/* slope(h) of ALiBi (arXiv:2108.12409) for absolute head h, with n the largest power of two that is
 * not above n_head_all:
 *   h < n: 2^(-alibi_max_bias * (h + 1) / n), else 2^(-alibi_max_bias / 2 * (2 * (h - n) + 1) / n)
 * t(p) = 1 + temperature_scale * ln(1 + floor((p + temperature_offset) / temperature_length)) */
typedef struct tdm_attention_params {
    int32_t kv;            /* index into graph->kv */
    int32_t first_head;    /* absolute number of this node's first query head */
    int32_t first_head_kv; /* absolute number of the state's first KV head */
    int32_t heads_per_kv;  /* query heads that share a KV head, >= 1: absolute head h reads KV head
                              h / heads_per_kv - first_head_kv of the state */
    int32_t n_head_all;    /* query heads in the whole model */
    int32_t is_causal;     /* 0 or 1 */
    int32_t window;        /* tokens; 0 = no window */
    float scale;           /* 0 = 1 / sqrt(head_dim_k) */
    float softcap;         /* 0 = none */
    int32_t window_kind;   /* tdm_window_kind; 0 where there is no window */
    float alibi_max_bias;  /* >= 0; 0 = none; not together with a softcap */
    float temperature_scale;    /* 0 = none: t(p) = 1 */
    int32_t temperature_length; /* positions; >= 1 with a temperature_scale, else 0 */
    int32_t temperature_offset; /* positions, >= 0; 0 without a temperature_scale */
} tdm_attention_params;

typedef struct tdm_select_params {
    int32_t kv;        /* index into graph->kv; TDM_KV_SPARSE */
    int32_t n_top;     /* positions in a list, >= 1; a multiple of block_len */
    int32_t block_len; /* positions that are chosen together; 0 = 1 */
    int32_t n_local;   /* last blocks that are always chosen, 0 .. n_top / block_len */
    /* 0 or 1. 1: the cache is TDM_KV_STRIDED, block_len and n_local are 0, and n_top is a multiple
     * of the stride, plus stride - 1. */
    int32_t is_of_tokens;
} tdm_select_params;

/* Segments of the channels of a CONV1D; see there. A cut by units keeps unit_len. */
typedef struct tdm_conv_params {
    int32_t kv;                         /* index into graph->kv; TDM_KV_RECURRENT */
    int32_t n_segment;                  /* 1 .. TDM_MAX_SEGMENTS */
    int32_t unit_len[TDM_MAX_SEGMENTS]; /* channels that a unit of the state has in each segment;
                                           0 from n_segment on */
} tdm_conv_params;

/* Which head of q and k head h of v reads. Grouped: (first_head + h) / heads_per_k - first_head_k.
 * Tiled: h % n_k; first_head and first_head_k are 0, and n_head_kv of the state is n_k. */
typedef struct tdm_scan_params {
    int32_t kv;           /* index into graph->kv; TDM_KV_RECURRENT */
    int32_t heads_per_k;  /* heads of v that read one head of q and k, >= 1; tiled: n_v / n_k */
    int32_t is_tiled;     /* 0 or 1 */
    int32_t first_head;   /* absolute number of this node's first head of v */
    int32_t first_head_k; /* absolute number of its first head of q and k */
    float scale;          /* of the result; 0 = 1 */
} tdm_scan_params;

/* Most rows of a matrix of SINKHORN. */
#define TDM_MAX_SINKHORN 16

typedef struct tdm_sinkhorn_params {
    int32_t n_iter; /* >= 1 */
    float eps;      /* >= 0 */
} tdm_sinkhorn_params;

/* Of BLOCK_POOL. n and block_len follow from the shapes. */
typedef struct tdm_pool_params {
    int32_t kv;     /* index into graph->kv; TDM_KV_RECURRENT */
    int32_t n_part; /* 1 or 2 */
} tdm_pool_params;

/* What an EXCHANGE gives; `senders` are the members that have something to send. The node states
 * the destination's shape, because a member that sends nothing has no x to infer it from. x and
 * residual may be any views. The step source is the step block, or any INPUT of i32 that begins
 * with a tdm_step_header: epoch and exchange_base are all that is read of it.
 *
 * A GATHER may carry a second payload, x2 -> y2, of a type and shape of its own and with the same
 * senders: both cross at once, with one flag. */
typedef enum tdm_exchange_kind {
    TDM_EXCHANGE_SUM = 0,  /* like addend, f32: the senders' addends, summed, plus the residual */
    TDM_EXCHANGE_SUM_PART, /* a part of the sum: `axis` from `first` on, as long as the result is */
    TDM_EXCHANGE_GATHER    /* the senders' parts side by side along `axis`, any type, as bytes: this
                              member's own begins at `first`; the parts cover the result; no
                              residual */
} tdm_exchange_kind;

/* Which steps of the protocol (collective.h) the node performs. A device whose kernels must not
 * wait (exchange_wait_max_ns, device.h) gets the last two: the group ends a plan after the first
 * and begins the next with the second, and raises and awaits the flags in between. */
typedef enum tdm_exchange_phase {
    TDM_EXCHANGE_WHOLE = 0, /* all of them */
    TDM_EXCHANGE_PUBLISH =
        1, /* step 1 for all chunks, without flags. Only a sender has this node; it
                                 has no residual and no y, y2 */
    TDM_EXCHANGE_COLLECT = 2 /* step 4 for all chunks, without waiting. No x, x2 */
} tdm_exchange_phase;

/* The arena and its words are described in collective.h; offsets count in the peer memory where the
 * node has it, except that of the abort word. Fields that a kind does not have are 0. */
typedef struct tdm_exchange_params {
    int32_t stage;        /* number of the exchange within the plan, 0 .. */
    int32_t member;       /* which member of the group this is */
    int32_t n_member;     /* 1 .. 64 */
    int32_t wire_type;    /* of sums: tdm_type of the addends in the arena: f32 f16 bf16 q8_0 */
    uint64_t data_off;    /* bytes into the arena, in area 0: sums: n_member addends of data_stride
                             bytes; GATHER: the whole result, canonical */
    uint64_t data_stride; /* of sums */
    uint64_t flag_off;    /* bytes into the arena: n_member flag words of 64 bytes */
    uint64_t senders;     /* bit m: member m sends; where this member's is 0 its x is absent */
    int32_t kind;         /* tdm_exchange_kind */
    int32_t axis;         /* of SUM_PART and GATHER */
    int32_t first;        /* likewise: elements along axis; 0 where a GATHER sends nothing */
    int32_t whole;        /* of SUM_PART: elements of the addends along axis; 0 = those of x. Of a
                             GATHER in phase PUBLISH: elements of the result along axis */
    /* bytes from area 0 to area 1: data are in area (exchange_base + stage) % 2; 0 = there is
     * one area */
    uint64_t area_stride;
    int32_t phase;                 /* tdm_exchange_phase */
    int32_t axis2, first2, whole2; /* of the second payload, as axis, first, whole */
    uint64_t data_off2;            /* likewise, in area 0; 0 = there is no second payload */
} tdm_exchange_params;

/* The typed parameters of a node. Unused bytes are zero, so that nodes compare and hash by
 * bytes. */
typedef union tdm_op_params {
    struct {
        int32_t axis[TDM_MAX_DIMS]; /* a permutation of 0..3 */
    } permute;
    struct {
        int64_t offset[TDM_MAX_DIMS]; /* elements along each axis of the source */
    } slice;
    struct {
        int32_t axis; /* 0 .. 3 */
    } concat;
    struct {
        int64_t first_row;
    } rows;
    struct {
        float scale; /* exact: 0 is 0 */
        float bias;
    } scale;
    struct {
        float min;
        float max;
    } clamp;
    struct {
        int32_t act; /* tdm_act; of ACT and GLU */
    } act;
    struct {
        float eps;
        int32_t reserved;
        int64_t n; /* RMS_APPLY: elements of the whole row; 0 = ne[0] */
    } norm;
    tdm_rope_params rope;
    struct {
        int32_t k;
        int32_t index_base;
    } top_k;
    tdm_route_params route;
    tdm_moe_params moe;
    tdm_attention_params attention;
    tdm_select_params select;
    struct {
        int32_t kv; /* index into graph->kv; of KV_WRITE, KV_COPY, KV_EXPORT, KV_IMPORT */
    } kv;
    struct {
        int32_t kv;
        int32_t reserved;
        tdm_rope_params rope;
    } shift;
    tdm_exchange_params exchange;
    tdm_conv_params conv;
    tdm_scan_params scan;
    tdm_sinkhorn_params sinkhorn;
    tdm_pool_params pool;
    uint8_t bytes[128];
} tdm_op_params;

#ifdef __cplusplus
}
#endif

#endif
