/* SPDX-License-Identifier: MIT
 *
 * cache_costs.c: see cache_costs.h. The choice is a knapsack with one item of each slot, the K or V
 * of a layer, solved exactly: by the least cost for each number of bytes.
 */
#include "llm/cache/cache_costs.h"

#include <math.h>
#include <stdlib.h>

#include "llm/arch/forward_graph.h"

#define N_TYPE (TDM_KV_TYPE_COUNT - TDM_KV_FLOAT_TYPE_COUNT)
/* With more units than this, sizes are rounded up to larger ones, so that the tables stay small. */
#define UNITS_MAX (1 << 16)

static const tdm_type types[N_TYPE] = {
#define BLOCK_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_BLOCK_TYPE_LIST(BLOCK_TYPE)
#undef BLOCK_TYPE
};

struct llm_cache_costs {
    int32_t n_layer;
    double values[][LLM_CACHE_SIDES][N_TYPE][2]; /* [n_layer]; [1] = rotated; -1 = not measured */
};

tdm_status llm_cache_costs_create(int32_t n_layer, llm_cache_costs **costs_out, tdm_error *err) {
    llm_cache_costs *costs = malloc(sizeof *costs + (size_t)n_layer * sizeof costs->values[0]);
    if (costs == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cache costs: out of memory");
    costs->n_layer = n_layer;
    for (int32_t l = 0; l < n_layer; l++)
        for (int s = 0; s < LLM_CACHE_SIDES; s++)
            for (int t = 0; t < N_TYPE; t++)
                costs->values[l][s][t][0] = costs->values[l][s][t][1] = -1;
    *costs_out = costs;
    return TDM_OK;
}

void llm_cache_costs_destroy(llm_cache_costs *costs) {
    free(costs);
}

static int type_index(tdm_type type) {
    for (int t = 0; t < N_TYPE; t++)
        if (types[t] == type) return t;
    return -1;
}

bool llm_cache_costs_set(llm_cache_costs *costs, int32_t layer, llm_cache_side side, tdm_type type,
                         bool is_rotated, double cost) {
    const int t = type_index(type);
    if (layer < 0 || layer >= costs->n_layer || t < 0 || !(cost >= 0)) return false;
    costs->values[layer][side][t][is_rotated] = cost;
    return true;
}

double llm_cache_costs_get(const llm_cache_costs *costs, int32_t layer, llm_cache_side side,
                           tdm_type type, bool is_rotated) {
    const int t = type_index(type);
    return t < 0 ? 0 : costs->values[layer][side][t][is_rotated];
}

/* ---- Sizes ---- */

/* Elements that a layer keeps of a token in K or V, and their bytes in a type. */
static int64_t side_size(const llm_model *m, int32_t layer, llm_cache_side side, tdm_type type,
                         uint64_t *bytes_out) {
    llm_cache_shape cache = {.n_page = 1};
    tdm_kv_desc d;
    tdm_partition partition;
    int64_t n = 0;
    *bytes_out = 0;
    llm_cache_desc_fill(m, &cache.desc);
    if (llm_state_desc(m, &cache, LLM_STATE_ROWS, layer, &d, &partition) &&
        (side == LLM_CACHE_K || (d.flags & TDM_KV_V_FROM_K) == 0)) {
        const int32_t len = side == LLM_CACHE_K ? d.head_dim_k : d.head_dim_v;
        n += (int64_t)len * d.n_head_kv;
        *bytes_out += tdm_type_row_size(type, tdm_kv_padded(type, len)) * (uint64_t)d.n_head_kv;
    }
    /* The keys of an index have the type of K. */
    if (side == LLM_CACHE_K && llm_state_desc(m, &cache, LLM_STATE_INDEX, layer, &d, &partition)) {
        n += d.head_dim_k;
        *bytes_out += tdm_type_row_size(type, tdm_kv_padded(type, d.head_dim_k));
    }
    return n;
}

bool llm_cache_has_side(const llm_model *m, int32_t layer, llm_cache_side side) {
    uint64_t ignored;
    return side_size(m, layer, side, TDM_TYPE_F16, &ignored) > 0;
}

static tdm_type side_type(const llm_layer_types *t, int side) {
    return side == LLM_CACHE_K ? t->k : t->v;
}

double llm_layer_types_bits(const llm_model *m, const llm_layer_types *layers) {
    int64_t n = 0;
    uint64_t bytes = 0, each;
    for (int32_t l = 0; l < m->hparams.n_layer; l++)
        for (int s = 0; s < LLM_CACHE_SIDES; s++) {
            n += side_size(m, l, (llm_cache_side)s, side_type(&layers[l], s), &each);
            bytes += each;
        }
    return n > 0 ? 8 * (double)bytes / (double)n : 0;
}

double llm_cache_costs_sum(const llm_cache_costs *costs, const llm_model *m,
                           const llm_layer_types *layers) {
    double sum = 0;
    for (int32_t l = 0; l < m->hparams.n_layer; l++)
        for (int s = 0; s < LLM_CACHE_SIDES; s++) {
            if (!llm_cache_has_side(m, l, (llm_cache_side)s)) continue;
            const double cost =
                llm_cache_costs_get(costs, l, (llm_cache_side)s, side_type(&layers[l], s),
                                    s == LLM_CACHE_K ? layers[l].rotates_k : layers[l].rotates_v);
            if (cost < 0) return -1;
            sum += cost;
        }
    return sum;
}

/* ---- Choices ---- */

/* A type for a slot. */
typedef struct option {
    tdm_type type;
    bool is_rotated;
    double cost;
    uint64_t bytes; /* of a token */
    int64_t units;  /* bytes / unit of slots_solve, rounded up */
} option;

enum { OPTIONS_MAX = N_TYPE + 1 };

typedef struct slot {
    int32_t layer;
    llm_cache_side side;
    option options[OPTIONS_MAX];
    int n_option;
    int chosen; /* index into options, after slots_solve */
} slot;

/* The rotation of a type by `rotation`, and its cost; false if that cost is not measured. */
static bool rotation_find(const llm_cache_costs *costs, int32_t layer, llm_cache_side side,
                          tdm_type type, llm_rotation rotation, bool *is_rotated, double *cost) {
    const double no = llm_cache_costs_get(costs, layer, side, type, false);
    const double yes = llm_cache_costs_get(costs, layer, side, type, true);
    *is_rotated = rotation == LLM_ROTATION_AUTO ? yes >= 0 && (no < 0 || yes <= no)
                                                : rotation == LLM_ROTATION_YES;
    *cost = *is_rotated ? yes : no;
    return *cost >= 0;
}

static void options_fill(const llm_cache_costs *costs, const llm_model *m, llm_rotation rotation,
                         slot *s) {
    /* Rotation does not change the error of floats. All layers of floats get the same value, so
     * that their types are equal. */
    option *at = &s->options[s->n_option++];
    *at = (option){.type = TDM_TYPE_F16, .is_rotated = rotation != LLM_ROTATION_NO};
    side_size(m, s->layer, s->side, at->type, &at->bytes);
    for (int t = 0; t < N_TYPE; t++) {
        at = &s->options[s->n_option];
        *at = (option){.type = types[t]};
        if (!rotation_find(costs, s->layer, s->side, types[t], rotation, &at->is_rotated,
                           &at->cost))
            continue;
        side_size(m, s->layer, s->side, at->type, &at->bytes);
        s->n_option++;
    }
}

static uint64_t common_divisor(uint64_t a, uint64_t b) {
    while (b != 0) {
        const uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Chooses an option of each slot, with at most `units` in all; the smallest options together have
 * no more than that. best[units + 1] is the least cost of the slots so far in at most so many
 * units, +inf where they do not fit; picks[n_slot][units + 1] the option of a slot in it. */
static void knapsack_solve(slot *slots, int32_t n_slot, int64_t units, double *best, double *next,
                           uint8_t *picks) {
    const size_t width = (size_t)units + 1;
    for (size_t u = 0; u < width; u++) best[u] = 0;
    for (int32_t i = 0; i < n_slot; i++) {
        uint8_t *pick = picks + (size_t)i * width;
        for (size_t u = 0; u < width; u++) {
            next[u] = INFINITY;
            pick[u] = 0;
            for (int o = 0; o < slots[i].n_option; o++) {
                const option *at = &slots[i].options[o];
                if (at->units > (int64_t)u) continue;
                const double cost = best[u - (size_t)at->units] + at->cost;
                if (!(cost < next[u])) continue;
                next[u] = cost;
                pick[u] = (uint8_t)o;
            }
        }
        double *swap = best;
        best = next;
        next = swap;
    }
    for (int32_t i = n_slot, u = (int32_t)units; i-- > 0;) {
        slots[i].chosen = picks[(size_t)i * width + (size_t)u];
        u -= (int32_t)slots[i].options[slots[i].chosen].units;
    }
}

/* Sets `chosen` of all slots, so that a token has at most `most` bytes in all. */
static tdm_status slots_solve(slot *slots, int32_t n_slot, uint64_t most, tdm_error *err) {
    uint64_t unit = 0, all = 0;
    for (int32_t i = 0; i < n_slot; i++) {
        uint64_t largest = 0;
        for (int o = 0; o < slots[i].n_option; o++) {
            const uint64_t bytes = slots[i].options[o].bytes;
            unit = common_divisor(bytes, unit);
            if (bytes > largest) largest = bytes;
        }
        all += largest;
    }
    if (most > all) most = all;
    if (unit == 0) unit = 1;
    while (most / unit > UNITS_MAX) unit *= 2;
    const size_t units = (size_t)(most / unit);
    int64_t least = 0;
    for (int32_t i = 0; i < n_slot; i++) {
        int64_t smallest = INT64_MAX;
        for (int o = 0; o < slots[i].n_option; o++) {
            option *at = &slots[i].options[o];
            at->units = (int64_t)((at->bytes + unit - 1) / unit);
            if (at->units < smallest) smallest = at->units;
        }
        least += smallest;
    }
    if (least > (int64_t)units) /* only by rounding up: the caller has compared the bytes */
        return tdm_fail(err, TDM_OUT_OF_RANGE, "cache-budget: too near the smallest; raise it");
    double *rows = malloc(2 * (units + 1) * sizeof *rows);
    uint8_t *picks = malloc((size_t)n_slot * (units + 1) + 1);
    if (rows != NULL && picks != NULL)
        knapsack_solve(slots, n_slot, (int64_t)units, rows, rows + units + 1, picks);
    const bool is_done = rows != NULL && picks != NULL;
    free(rows);
    free(picks);
    return is_done ? TDM_OK : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cache-budget: out of memory");
}

static void side_set(llm_layer_types *t, llm_cache_side side, const option *o, bool is_latent) {
    if (side == LLM_CACHE_K || is_latent) {
        t->k = o->type;
        t->rotates_k = o->is_rotated;
    }
    if (side == LLM_CACHE_V || is_latent) {
        t->v = o->type;
        t->rotates_v = o->is_rotated;
    }
}

tdm_status llm_cache_costs_choose(const llm_cache_costs *costs, const llm_model *m, double bits,
                                  llm_rotation rotation, llm_layer_types *layers_out,
                                  tdm_error *err) {
    const int32_t n_layer = m->hparams.n_layer;
    const bool rotates = rotation != LLM_ROTATION_NO;
    slot *slots = calloc((size_t)n_layer * LLM_CACHE_SIDES, sizeof *slots);
    if (slots == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "cache-budget: out of memory");
    int32_t n_slot = 0;
    int64_t n_elem = 0;
    uint64_t least = 0, ignored;
    for (int32_t l = 0; l < n_layer; l++) {
        layers_out[l] = (llm_layer_types){TDM_TYPE_F16, TDM_TYPE_F16, rotates, rotates};
        for (int s = 0; s < LLM_CACHE_SIDES; s++) {
            const int64_t n = side_size(m, l, (llm_cache_side)s, TDM_TYPE_F16, &ignored);
            if (n == 0) continue;
            slot *at = &slots[n_slot++];
            *at = (slot){.layer = l, .side = (llm_cache_side)s};
            options_fill(costs, m, rotation, at);
            uint64_t smallest = UINT64_MAX;
            for (int o = 0; o < at->n_option; o++)
                if (at->options[o].bytes < smallest) smallest = at->options[o].bytes;
            least += smallest;
            n_elem += n;
        }
    }
    const double most = floor(bits * (double)n_elem / 8);
    tdm_status status = TDM_OK;
    if (n_slot > 0 && !(most >= (double)least))
        status = tdm_fail(err, TDM_OUT_OF_RANGE,
                          "cache-budget %g: the smallest measured types take %.4g bits an element; "
                          "raise it",
                          bits, 8 * (double)least / (double)n_elem);
    if (status == TDM_OK && n_slot > 0)
        status =
            slots_solve(slots, n_slot, most < 0x1p62 ? (uint64_t)most : (uint64_t)1 << 62, err);
    for (int32_t i = 0; i < n_slot && status == TDM_OK; i++)
        side_set(&layers_out[slots[i].layer], slots[i].side, &slots[i].options[slots[i].chosen],
                 !llm_cache_has_side(m, slots[i].layer, LLM_CACHE_V));
    free(slots);
    return status;
}

tdm_status llm_cache_costs_rotate(const llm_cache_costs *costs, const llm_model *m, tdm_type k,
                                  tdm_type v, llm_layer_types *layers_out, tdm_error *err) {
    for (int32_t l = 0; l < m->hparams.n_layer; l++) {
        const bool has_v = llm_cache_has_side(m, l, LLM_CACHE_V);
        layers_out[l] = (llm_layer_types){k, v, true, true};
        for (int s = 0; s < LLM_CACHE_SIDES; s++) {
            const tdm_type type = s == LLM_CACHE_K ? k : v;
            option o = {.type = type};
            if (!llm_cache_has_side(m, l, (llm_cache_side)s)) continue;
            const bool is_measured =
                llm_cache_costs_get(costs, l, (llm_cache_side)s, type, false) >= 0 &&
                rotation_find(costs, l, (llm_cache_side)s, type, LLM_ROTATION_AUTO, &o.is_rotated,
                              &o.cost);
            if (!is_measured)
                return tdm_fail(err, TDM_FAILED_PRECONDITION,
                                "kv-rotate = auto: %s of layer %d was not measured in %s; run "
                                "`tandem calibrate` with that type",
                                s == LLM_CACHE_K ? "K" : "V", l, tdm_type_name(type));
            side_set(&layers_out[l], (llm_cache_side)s, &o, !has_v);
        }
    }
    return TDM_OK;
}
