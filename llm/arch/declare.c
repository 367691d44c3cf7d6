/* SPDX-License-Identifier: MIT
 *
 * declare.c: shapes and partitions of weights from the symbols of their roles, and the checks of a
 * declared weight.
 */
#include "llm/arch/declare.h"

#include <stdlib.h>
#include <string.h>

#include "llm/arch/arch.h"

/* ---- Symbols ---- */

/* Values that are cut together have partitions of one id: one for each of these blocks of a layer,
 * and one for the vocabulary. */
enum {
    BLOCK_ATTENTION = 0,
    BLOCK_FFN,
    BLOCK_EXPERTS,
    BLOCK_SHARED,
    BLOCK_CHUNK,
    BLOCK_RECURRENT,
    BLOCK_COUNT_
};
enum { PARTITION_VOCAB = 1, PARTITION_FIRST = 2 };

static tdm_partition partition_make(int32_t id, int32_t layer, int32_t n_unit) {
    tdm_partition p = {0};
    p.id = id;
    p.layer = layer;
    p.n_unit = n_unit;
    p.n_segment = 1;
    p.unit_len[0] = 1;
    return p;
}

/* A unit is a KV head with the query heads that read it. Members may share a unit by query heads,
 * or by groups of them that share an output matrix; each of them then holds its keys and values
 * whole. */
static tdm_partition heads_partition(int32_t layer, const llm_layer_spec *s, int32_t unit_len,
                                     bool is_whole) {
    /* Where a layer reads the cache of another one, its heads are cut as that one's. */
    const int32_t owner = llm_layer_cache(s, layer);
    tdm_partition p = partition_make(PARTITION_FIRST + BLOCK_COUNT_ * owner + BLOCK_ATTENTION,
                                     owner, s->n_head_kv);
    p.n_sub = s->n_out_group > 0 ? s->n_out_group : s->n_head / s->n_head_kv;
    p.unit_len[0] = unit_len;
    p.whole_segments = is_whole;
    return p;
}

static tdm_partition columns_partition(int32_t layer, int32_t block, int32_t n_unit) {
    return partition_make(PARTITION_FIRST + BLOCK_COUNT_ * layer + block, layer, n_unit);
}

/* A unit is a head of q and k with the heads of v that read it. Where those are tiled they are a
 * segment for each; more tiles than a partition has segments are not cut. Interleaved units are one
 * segment. */
static tdm_partition delta_partition(int32_t layer, const llm_layer_spec *s, bool has_keys,
                                     int32_t v_len) {
    const llm_recurrent_spec *r = &s->recurrent;
    int32_t per_k = r->n_head_v / r->n_head_k, n = 0, n_tile = r->is_tiled ? per_k : 1;
    tdm_partition p = partition_make(PARTITION_FIRST + BLOCK_COUNT_ * layer + BLOCK_RECURRENT,
                                     layer, r->n_head_k);
    if (n_tile + 2 > TDM_MAX_SEGMENTS) {
        p = partition_make(0, layer, 1);
        p.unit_len[0] = r->n_head_v * v_len + (has_keys ? 2 * r->n_head_k * r->k_len : 0);
        return p;
    }
    if (has_keys && r->is_interleaved) {
        p.unit_len[0] = 2 * r->k_len + per_k * v_len;
        return p;
    }
    if (has_keys) p.unit_len[n++] = r->k_len, p.unit_len[n++] = r->k_len;
    for (int32_t i = 0; i < n_tile; i++) p.unit_len[n++] = v_len * per_k / n_tile;
    p.n_segment = n;
    return p;
}

/* Units of up to 64 channels, so that a cut suits quantised columns, and at least 8 of them. */
static tdm_partition channels_partition(int32_t layer, int32_t n_channel, int32_t n_segment) {
    int32_t unit = 1;
    while (unit < 64 && n_channel % (2 * unit) == 0 && n_channel / (2 * unit) >= 8) unit *= 2;
    tdm_partition p = partition_make(PARTITION_FIRST + BLOCK_COUNT_ * layer + BLOCK_RECURRENT,
                                     layer, n_channel / unit);
    p.n_segment = n_segment;
    for (int32_t i = 0; i < n_segment; i++) p.unit_len[i] = unit;
    return p;
}

/* Of a state space whose heads share B and C a unit is a head. */
static tdm_partition ssm_heads_partition(const llm_recurrent_spec *r, int32_t layer, llm_dim dim) {
    tdm_partition p = partition_make(PARTITION_FIRST + BLOCK_COUNT_ * layer + BLOCK_RECURRENT,
                                     layer, r->n_head_v);
    if (dim != LLM_DIM_SSM_HEADS) p.unit_len[0] = r->v_len;
    if (dim == LLM_DIM_SSM_INNER_TWICE) p.unit_len[0] *= 2; /* the gate of a head, then its x */
    return p;
}

/* Of a state space of heads a unit is a group, of one of channels it is some channels. */
static tdm_partition ssm_partition(const llm_layer_spec *s, int32_t layer, llm_dim dim) {
    const llm_recurrent_spec *r = &s->recurrent;
    if (r->kind == LLM_MIXER_MAMBA)
        return channels_partition(layer, r->n_head_v, dim == LLM_DIM_SSM_INNER_TWICE ? 2 : 1);
    if (r->kind == LLM_MIXER_MAMBA_HEADS) return ssm_heads_partition(r, layer, dim);
    tdm_partition p = partition_make(PARTITION_FIRST + BLOCK_COUNT_ * layer + BLOCK_RECURRENT,
                                     layer, r->n_head_k);
    const int32_t n_head = r->n_head_v / r->n_head_k, inner = n_head * r->v_len;
    int32_t n = 0;
    switch (dim) {
    case LLM_DIM_SSM_HEADS: p.unit_len[n++] = n_head; break;
    case LLM_DIM_SSM_GROUPS: p.unit_len[n++] = 1; break;
    default: p.unit_len[n++] = inner;
    }
    if (dim == LLM_DIM_SSM_ALL) p.unit_len[n++] = inner;
    if (dim == LLM_DIM_SSM_ALL || dim == LLM_DIM_SSM_XBC)
        p.unit_len[n++] = r->k_len, p.unit_len[n++] = r->k_len;
    if (dim == LLM_DIM_SSM_ALL) p.unit_len[n++] = n_head;
    p.n_segment = n;
    return p;
}

/* How a dimension is cut; of the dimensions from LLM_DIM_FIRST_CUT_ on. */
static tdm_partition dim_partition(const llm_model *m, llm_dim dim, int32_t layer) {
    const llm_hparams *h = &m->hparams;
    if (dim == LLM_DIM_VOCAB) return partition_make(PARTITION_VOCAB, -1, h->n_vocab);
    const llm_layer_spec *s = &m->specs[layer];
    int32_t n_each = s->n_head_kv > 0 ? s->n_head / s->n_head_kv : 0;
    tdm_partition p;
    switch (dim) {
    case LLM_DIM_Q: return heads_partition(layer, s, n_each * s->q_len, false);
    case LLM_DIM_K: return heads_partition(layer, s, s->k_len, true);
    case LLM_DIM_V: return heads_partition(layer, s, s->v_len, true);
    case LLM_DIM_O: return heads_partition(layer, s, n_each * s->o_len, false);
    case LLM_DIM_QKV:
        p = heads_partition(layer, s, n_each * s->q_len, false);
        p.n_segment = 3;
        p.unit_len[1] = s->k_len;
        p.unit_len[2] = s->v_len;
        p.whole_segments = 6;
        return p;
    case LLM_DIM_HEADS: return heads_partition(layer, s, n_each, false);
    case LLM_DIM_OUT_GROUPS: return heads_partition(layer, s, s->n_out_group, false);
    case LLM_DIM_OUT_ROWS: return heads_partition(layer, s, s->n_out_group * h->n_lora_out, false);
    case LLM_DIM_HEADS_KV: return heads_partition(layer, s, 1, true);
    case LLM_DIM_KV: return heads_partition(layer, s, s->k_len - s->rope.n_rot + s->v_len, true);
    case LLM_DIM_LATENT: return heads_partition(layer, s, h->n_lora_kv, true);
    case LLM_DIM_LATENT_ROW: return heads_partition(layer, s, s->k_len, true);
    case LLM_DIM_DELTA_QKV: return delta_partition(layer, s, true, s->recurrent.v_len);
    case LLM_DIM_DELTA_IN: return delta_partition(layer, s, true, 2 * s->recurrent.v_len);
    case LLM_DIM_DELTA_V: return delta_partition(layer, s, false, s->recurrent.v_len);
    case LLM_DIM_DELTA_KV:
        p = delta_partition(layer, s, false, 1);
        p.unit_len[0] = s->recurrent.v_len;
        return p;
    case LLM_DIM_DELTA_EACH: return delta_partition(layer, s, false, 3 * s->recurrent.v_len);
    case LLM_DIM_DELTA_HEADS: return delta_partition(layer, s, false, 1);
    case LLM_DIM_DELTA_HEADS_TWICE: return delta_partition(layer, s, false, 2);
    case LLM_DIM_SSM_INNER:
    case LLM_DIM_SSM_INNER_TWICE:
    case LLM_DIM_SSM_ALL:
    case LLM_DIM_SSM_XBC:
    case LLM_DIM_SSM_HEADS:
    case LLM_DIM_SSM_GROUPS: return ssm_partition(s, layer, dim);
    case LLM_DIM_CHANNELS: return channels_partition(layer, h->n_embd, 1);
    case LLM_DIM_CHANNELS_THRICE: return channels_partition(layer, h->n_embd, 3);
    case LLM_DIM_FF: return columns_partition(layer, BLOCK_FFN, s->n_ff);
    case LLM_DIM_FF_TWICE:
        p = columns_partition(layer, BLOCK_FFN, s->n_ff);
        p.n_segment = 2;
        p.unit_len[1] = 1;
        return p;
    case LLM_DIM_FF_EXPERT: return columns_partition(layer, BLOCK_EXPERTS, s->n_ff_expert);
    case LLM_DIM_FF_EXPERT_TWICE:
        p = columns_partition(layer, BLOCK_EXPERTS, s->n_ff_expert);
        p.n_segment = 2;
        p.unit_len[1] = 1;
        return p;
    case LLM_DIM_FF_CHUNK: return columns_partition(layer, BLOCK_CHUNK, s->n_ff_chunk);
    case LLM_DIM_FF_SHARED: return columns_partition(layer, BLOCK_SHARED, s->n_ff_shared);
    default: return (tdm_partition){0};
    }
}

static int64_t dim_size(const llm_model *m, llm_dim dim, int32_t layer) {
    const llm_hparams *h = &m->hparams;
    /* NULL for a role of no layer; such a role has no dimension that reads it. */
    const llm_layer_spec *s = layer >= 0 ? &m->specs[layer] : NULL;
    switch (dim) {
    case LLM_DIM_ONE: return 1;
    case LLM_DIM_EMBD: return h->n_embd;
    case LLM_DIM_EMBD_TWICE: return 2 * (int64_t)h->n_embd;
    case LLM_DIM_EMBD_THRICE: return 3 * (int64_t)h->n_embd;
    case LLM_DIM_STREAMS: return h->n_stream;
    case LLM_DIM_STREAM_MIXES:
        return (int64_t)(h->n_sinkhorn > 0 ? 2 + h->n_stream : 2) * h->n_stream;
    case LLM_DIM_STREAM_SCALES: return h->n_sinkhorn > 0 ? 3 : 2;
    case LLM_DIM_STREAMS_EMBD: return (int64_t)h->n_stream * h->n_embd;
    case LLM_DIM_CTX: return h->n_ctx_train;
    case LLM_DIM_TYPES: return h->n_token_type;
    case LLM_DIM_PAIRS: return h->rope.n_rot / 2;
    case LLM_DIM_HEAD_K: return s->k_len;
    case LLM_DIM_PER_LAYER: return h->n_per_layer;
    case LLM_DIM_PER_LAYER_ALL: return (int64_t)h->n_per_layer * h->n_layer;
    case LLM_DIM_STREAMS_SQUARED: return (int64_t)h->n_stream * h->n_stream;
    case LLM_DIM_OTHER_STREAMS: return h->n_stream - 1;
    case LLM_DIM_LAUREL: return h->n_laurel;
    case LLM_DIM_STREAMS_RANK: return h->n_stream_rank;
    case LLM_DIM_NGRAM_CONV: return llm_ngram_span(&h->ngram);
    case LLM_DIM_HEAD_O: return s->o_len;
    case LLM_DIM_NOPE: return s->q_len - h->rope.n_rot;
    case LLM_DIM_LORA_Q: return h->n_lora_q;
    case LLM_DIM_LORA_KV: return h->n_lora_kv;
    case LLM_DIM_ROT: return h->rope.n_rot;
    case LLM_DIM_DISTANCES: return LLM_N_DISTANCE;
    case LLM_DIM_INDEX: return h->index_len;
    case LLM_DIM_POOL: return (int64_t)llm_pool_parts(s) * s->k_len;
    case LLM_DIM_INDEX_POOL: return (int64_t)llm_pool_parts(s) * h->index_len;
    case LLM_DIM_RUN: return s->run_len;
    case LLM_DIM_INDEX_RUN: return s->index_run;
    case LLM_DIM_GROUP_O: return (int64_t)s->n_head / s->n_out_group * s->o_len;
    case LLM_DIM_LORA_OUT: return h->n_lora_out;
    case LLM_DIM_INDEX_HEADS: return h->n_index_head;
    case LLM_DIM_INDEX_Q: return (int64_t)h->n_index_head * h->index_len;
    case LLM_DIM_KV_ROW: return h->n_lora_kv + h->rope.n_rot;
    case LLM_DIM_EXPERTS: return h->n_expert;
    case LLM_DIM_EXPERT_ROW: return h->n_expert_row > 0 ? h->n_expert_row : h->n_embd;
    case LLM_DIM_CHUNKS: return h->n_expert / h->n_expert_chunk;
    case LLM_DIM_FF_WHOLE: return s->n_ff_expert;
    case LLM_DIM_CONV: return s->recurrent.n_conv;
    case LLM_DIM_HEAD_RV: return s->recurrent.v_len;
    case LLM_DIM_SSM_STATE: return s->recurrent.k_len;
    case LLM_DIM_SSM_RANK: return s->recurrent.rank;
    case LLM_DIM_SSM_ROW: return (int64_t)s->recurrent.rank + 2 * (int64_t)s->recurrent.k_len;
    case LLM_DIM_SSM_GROUP:
        return (int64_t)s->recurrent.n_head_v / s->recurrent.n_head_k * s->recurrent.v_len;
    case LLM_DIM_MIX_ROW: return h->n_mix_row;
    case LLM_DIM_MIX_ROWS: return 5 * (int64_t)h->n_mix_row;
    case LLM_DIM_DECAY_ROW: return h->n_decay_row;
    case LLM_DIM_FIVE: return 5;
    case LLM_DIM_RATE_ROW: return h->n_rate_row;
    case LLM_DIM_VALUE_ROW: return h->n_value_row;
    case LLM_DIM_GATE_ROW: return h->n_gate_row;
    case LLM_DIM_MIXES: return h->n_gate_row > 0 ? 6 : 5;
    default: break;
    }
    const tdm_partition p = dim_partition(m, dim, layer);
    int64_t size = 0;
    for (int32_t i = 0; i < p.n_segment; i++) size += (int64_t)p.n_unit * p.unit_len[i];
    return size;
}

tdm_partition llm_cache_rows_partition(const llm_model *m, int32_t layer) {
    /* Every member has the whole rows, which are few. */
    if (m->specs[layer].mixer == LLM_MIXER_COMPRESSED) return (tdm_partition){0};
    llm_dim rows = m->specs[layer].mixer == LLM_MIXER_LATENT ? LLM_DIM_LATENT_ROW : LLM_DIM_K;
    tdm_partition p = dim_partition(m, rows, m->specs[layer].weight_layer);
    p.id += m->partition_base;
    return p;
}

tdm_partition llm_recurrent_partition(const llm_model *m, int32_t layer) {
    llm_dim dim = LLM_DIM_CHANNELS;
    switch (m->specs[layer].recurrent.kind) {
    case LLM_MIXER_DELTA:
    case LLM_MIXER_KDA:
    case LLM_MIXER_RWKV:
    case LLM_MIXER_RWKV7:
    case LLM_MIXER_LIGHTNING: dim = LLM_DIM_DELTA_HEADS; break;
    case LLM_MIXER_MAMBA:
    case LLM_MIXER_MAMBA_HEADS: dim = LLM_DIM_SSM_INNER; break;
    case LLM_MIXER_MAMBA2: dim = LLM_DIM_SSM_GROUPS; break;
    default: break;
    }
    tdm_partition p = dim_partition(m, dim, layer);
    if (p.id == 0) return (tdm_partition){0};
    p.id += m->partition_base;
    return p;
}

/* ---- Weights ---- */

static tdm_status shape_check(const llm_model *model, const llm_gguf_tensor *t,
                              const int64_t ne[TDM_MAX_DIMS], tdm_error *err) {
    if (memcmp(t->ne, ne, sizeof t->ne) == 0) return TDM_OK;
    return tdm_fail(
        err, TDM_DATA_LOSS,
        "%s: tensor '%s' has shape [%lld, %lld, %lld, %lld], expected [%lld, %lld, %lld, "
        "%lld] by the keys of the file; the file is damaged or of another architecture",
        llm_gguf_part_name(model->gguf, t->part), t->name, (long long)t->ne[0], (long long)t->ne[1],
        (long long)t->ne[2], (long long)t->ne[3], (long long)ne[0], (long long)ne[1],
        (long long)ne[2], (long long)ne[3]);
}

static tdm_status type_check(const llm_model *m, const llm_gguf_tensor *t, bool is_plain,
                             tdm_error *err) {
    tdm_status status = llm_gguf_tensor_check_type(m->gguf, t, err);
    if (status != TDM_OK) return status;
    if (t->type == TDM_TYPE_I8 || t->type == TDM_TYPE_I32 || (is_plain && t->type != TDM_TYPE_F32))
        return tdm_fail(err, TDM_UNSUPPORTED, "%s: tensor '%s' has type %s, expected %s",
                        llm_gguf_part_name(m->gguf, t->part), t->name, tdm_type_name(t->type),
                        is_plain ? "f32" : "a float or quantised type");
    return TDM_OK;
}

/* Adds a weight; the caller has checked shape and type of its tensor. A group cuts the first
 * dimension that can be cut. */
static void weight_add(llm_model *m, llm_role role, int32_t layer, const llm_gguf_tensor *t) {
    const llm_role_info *info = llm_role_get(role);
    int32_t index = m->n_weight++;
    llm_weight *w = &m->weights[index];
    *w = (llm_weight){.file = t, .source = t, .role = role, .layer = layer, .usage = info->usage};
    for (int32_t axis = 0; axis < TDM_MAX_DIMS; axis++) {
        if (info->dim[axis] < LLM_DIM_FIRST_CUT_) continue;
        w->partition = dim_partition(m, info->dim[axis], layer);
        if (w->partition.id == 0) { /* not cut */
            w->partition = (tdm_partition){0};
            break;
        }
        w->partition.id += m->partition_base;
        w->axis = axis;
        break;
    }
    /* Its rows are read and it is not the output head, so it has a partition of its own, as the
     * model's embedding in llm_declare_ends. */
    if (role == LLM_ROLE_NEXTN_EMBD) {
        w->partition.id = m->partition_base + llm_partition_limit(&m->hparams) - 2;
        w->partition.layer = layer < 0 ? 0 : layer;
    }
    if (layer < 0)
        m->global[role] = index;
    else
        m->layer[layer][role] = index;
}

/* The tensor of a role, of the right shape and type; NULL after a failure, and where the file has
 * none. */
static const llm_gguf_tensor *role_find(llm_declarer *d, llm_role role, bool is_required) {
    const llm_model *m = d->model;
    const llm_role_info *info = llm_role_get(role);
    char name[LLM_TENSOR_NAME_SIZE];
    if (d->status != TDM_OK || role == LLM_ROLE_NONE) return NULL;
    llm_role_name_in(m->gguf, role, d->layer, name);
    const llm_gguf_tensor *t = llm_role_tensor(m->gguf, role, d->layer);
    if (t == NULL || (!is_required && llm_arch_is_harmless(m->arch, name))) {
        if (is_required)
            d->status = tdm_fail(
                d->err, TDM_NOT_FOUND,
                "%s: tensor '%s' is missing; the file is incomplete or of another architecture",
                llm_gguf_name(m->gguf), name);
        return NULL;
    }
    int64_t ne[TDM_MAX_DIMS] = {1, 1, 1, 1};
    for (int32_t i = 0; i < TDM_MAX_DIMS; i++) ne[i] = dim_size(m, info->dim[i], d->layer);
    d->status = type_check(m, t, info->usage == 0, d->err);
    if (d->status == TDM_OK) d->status = shape_check(m, t, ne, d->err);
    return d->status == TDM_OK ? t : NULL;
}

/* Adds the scale of the matrix that was added last, if the file has one: a number for the matrix,
 * or for each expert. "ffn_gate_inp.scale" is the norm of a router's input
 * (LLM_ROLE_FFN_ROUTER_NORM).
 */
static void scale_declare(llm_declarer *d, llm_role role) {
    llm_model *m = d->model;
    const int32_t matrix = m->n_weight - 1;
    const llm_gguf_tensor *file = m->weights[matrix].file;
    const uint32_t usage = m->weights[matrix].usage;
    if ((usage & (TDM_USAGE_MATMUL | TDM_USAGE_EXPERT)) == 0 || role == LLM_ROLE_FFN_ROUTER) return;
    const llm_gguf_tensor *t = llm_tensor_beside(m->gguf, file->name, ".scale");
    if (t == NULL || llm_arch_is_harmless(m->arch, t->name)) return;
    const int64_t ne[TDM_MAX_DIMS] = {(usage & TDM_USAGE_EXPERT) != 0 ? file->ne[2] : 1, 1, 1, 1};
    d->status = type_check(m, t, true, d->err);
    if (d->status == TDM_OK) d->status = shape_check(m, t, ne, d->err);
    if (d->status != TDM_OK) return;
    weight_add(m, d->layer < 0 ? LLM_ROLE_GLOBAL_SCALE : LLM_ROLE_MATRIX_SCALE, d->layer, t);
    m->weights[matrix].scale = m->n_weight; /* 1 + its number */
}

void llm_declare(llm_declarer *d, llm_role role, bool is_required) {
    llm_model *m = d->model;
    const llm_gguf_tensor *t = role_find(d, role, is_required);
    if (t == NULL) return;
    if ((uint32_t)m->n_weight + 1 >= 2 * llm_gguf_tensor_count(m->gguf)) {
        d->status =
            tdm_fail(d->err, TDM_INTERNAL, "%s: tensor '%s' has two roles", m->path, t->name);
        return;
    }
    weight_add(m, role, d->layer, t);
    scale_declare(d, role);
}

const llm_gguf_tensor *llm_declare_in_file(llm_declarer *d, llm_role role) {
    return role_find(d, role, true);
}

void llm_declare_shaped(llm_declarer *d, llm_role role) {
    llm_model *m = d->model;
    const llm_gguf_tensor *t = llm_role_tensor(m->gguf, role, d->layer);
    const llm_role_info *info = llm_role_get(role);
    int64_t whole[TDM_MAX_DIMS], ne[TDM_MAX_DIMS];
    int32_t last = 0;
    for (int32_t i = 0; i < TDM_MAX_DIMS; i++) {
        whole[i] = ne[i] = dim_size(m, info->dim[i], d->layer);
        if (whole[i] > 1) last = i;
    }
    if (t == NULL || last == 0 || t->ne[last] != 1) {
        llm_declare(d, role, true);
        return;
    }
    if (d->status != TDM_OK) return;
    ne[last - 1] *= ne[last];
    ne[last] = 1;
    d->status = type_check(m, t, info->usage == 0, d->err);
    if (d->status == TDM_OK) d->status = shape_check(m, t, ne, d->err);
    char *name = d->status == TDM_OK ? strdup(t->name) : NULL;
    if (d->status == TDM_OK && name == NULL)
        d->status = tdm_fail(d->err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
    if (d->status != TDM_OK) return;
    llm_gguf_tensor *part = &m->parts[m->n_part++];
    *part = *t;
    part->name = name;
    part->n_dims = (uint32_t)last + 1;
    memcpy(part->ne, whole, sizeof part->ne);
    weight_add(m, role, d->layer, part);
}

float *llm_declare_made(llm_declarer *d, llm_role role) {
    llm_model *m = d->model;
    char name[LLM_TENSOR_NAME_SIZE];
    if (d->status != TDM_OK) return NULL;
    llm_role_name(role, d->layer, name);
    llm_gguf_tensor t = {.type = TDM_TYPE_F32, .n_dims = TDM_MAX_DIMS, .ne = {1, 1, 1, 1}};
    t.size = sizeof(float);
    for (int32_t i = 0; i < TDM_MAX_DIMS; i++) {
        t.ne[i] = dim_size(m, llm_role_get(role)->dim[i], d->layer);
        t.size *= (size_t)t.ne[i];
    }
    /* One allocation: the name, then the elements. */
    char *memory = calloc(1, sizeof name + t.size);
    if (memory == NULL) {
        d->status = tdm_fail(d->err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
        return NULL;
    }
    memcpy(memory, name, sizeof name);
    float *values = (float *)(void *)(memory + sizeof name);
    t.name = memory;
    t.data = values;
    m->parts[m->n_part] = t;
    weight_add(m, role, d->layer, &m->parts[m->n_part++]);
    m->weights[m->n_weight - 1].is_made = true;
    return values;
}

int32_t llm_declared(const llm_declarer *d, llm_role role) {
    return d->layer < 0 ? d->model->global[role] : d->model->layer[d->layer][role];
}

/* Half `index` of the rows of t, as a tensor of its own; NULL without memory. */
static llm_gguf_tensor *part_make(llm_model *m, const llm_gguf_tensor *t, int32_t index) {
    llm_gguf_tensor *part = &m->parts[m->n_part];
    const size_t name_size = strlen(t->name) + 8;
    char *name = malloc(name_size);
    if (name == NULL) return NULL;
    snprintf(name, name_size, "%s[%d]", t->name, index);
    *part = *t;
    part->name = name;
    part->ne[1] /= 2;
    part->size /= 2;
    part->data = (const uint8_t *)t->data +
                 (size_t)index * (size_t)part->ne[1] * tdm_type_row_size(t->type, t->ne[0]);
    m->n_part++;
    return part;
}

bool llm_declare_halves(llm_declarer *d, llm_role both, llm_role first, llm_role second) {
    llm_model *m = d->model;
    const llm_role halves[2] = {first, second};
    if (d->status != TDM_OK) return false;
    const llm_gguf_tensor *t = llm_role_tensor(m->gguf, both, d->layer);
    if (t == NULL) return false;
    int64_t ne[TDM_MAX_DIMS] = {1, 1, 1, 1};
    for (int32_t i = 0; i < TDM_MAX_DIMS; i++)
        ne[i] = dim_size(m, llm_role_get(both)->dim[i], d->layer);
    d->status = type_check(m, t, false, d->err);
    if (d->status == TDM_OK) d->status = shape_check(m, t, ne, d->err);
    for (int32_t i = 0; i < 2 && d->status == TDM_OK; i++) {
        const llm_gguf_tensor *part = part_make(m, t, i);
        if (part == NULL) {
            d->status = tdm_fail(d->err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", m->path);
            break;
        }
        weight_add(m, halves[i], d->layer, part);
        m->weights[m->n_weight - 1].source = t;
        m->weights[m->n_weight - 1].source_row = i * part->ne[1];
    }
    return true;
}

void llm_declare_norm(llm_declarer *d, llm_role role) {
    bool is_gain = role == LLM_ROLE_ATTN_Q_NORM_EACH || role == LLM_ROLE_ATTN_K_NORM_EACH ||
                   role == LLM_ROLE_ATTN_Q_GAIN;
    if (role == LLM_ROLE_NONE || (d->model->arch->has_bare_norms && !is_gain)) return;
    llm_declare(d, role, true);
    if (!is_gain) llm_declare(d, (llm_role)(role + 1), false);
}

void llm_declare_ends(llm_declarer *d) {
    llm_model *m = d->model;
    const llm_arch *arch = m->arch;
    const int32_t *global = m->global;
    if (arch->stream != LLM_STREAM_STACKS && !arch->has_no_norm_out)
        llm_declare_norm(d,
                         arch->norm_out != LLM_ROLE_NONE ? arch->norm_out : LLM_ROLE_OUTPUT_NORM);
    if (m->hparams.n_layer_encoder > 0) llm_declare_norm(d, LLM_ROLE_ENC_OUTPUT_NORM);
    if (arch->stream == LLM_STREAM_STACKS) llm_declare(d, LLM_ROLE_STACK_START, true);
    if (!arch->is_encoder) {
        llm_declare(d, LLM_ROLE_OUTPUT, false);
        llm_declare(d, LLM_ROLE_OUTPUT_BIAS, false);
    }
    llm_declare(d, LLM_ROLE_TOKEN_EMBD, true);
    if (d->status != TDM_OK) return;
    /* The embedding belongs to the first layer, so that a group that is split by layers has it
     * where its rows are read. A tied head is a matrix product with the embedding. */
    llm_weight *embd = &m->weights[global[LLM_ROLE_TOKEN_EMBD]];
    if (global[LLM_ROLE_OUTPUT] < 0 && !arch->is_encoder) {
        embd->usage |= TDM_USAGE_MATMUL;
    } else {
        embd->partition.id = m->partition_base + llm_partition_limit(&m->hparams) - 1;
        embd->partition.layer = 0;
    }
    if (arch->has_token_types) llm_declare(d, LLM_ROLE_TOKEN_TYPES, false);
    if (arch->has_embd_norm) llm_declare_norm(d, LLM_ROLE_TOKEN_EMBD_NORM);
    if (arch->has_position_embd || arch->has_optional_position_embd)
        llm_declare(d, LLM_ROLE_POSITION_EMBD, arch->has_position_embd);
    if (m->hparams.n_per_layer > 0) {
        m->hparams.per_layer_table = llm_declare_in_file(d, LLM_ROLE_PER_LAYER_EMBD);
        llm_declare(d, LLM_ROLE_PER_LAYER_MODEL_PROJ, true);
        llm_declare_norm(d, LLM_ROLE_PER_LAYER_PROJ_NORM);
    }
    if (arch->stream == LLM_STREAM_ALTUP) {
        llm_declare(d, LLM_ROLE_ALTUP_PROJ, true);
        llm_declare(d, LLM_ROLE_ALTUP_UNEMBD, true);
    }
    if (m->hparams.rope.n_rot == 0) return;
    llm_declare(d, LLM_ROLE_ROPE_FREQS, false);
    llm_declare(d, LLM_ROLE_ROPE_FACTORS_LONG, false);
    llm_declare(d, LLM_ROLE_ROPE_FACTORS_SHORT, false);
}
