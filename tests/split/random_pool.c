/* SPDX-License-Identifier: MIT
 *
 * random_pool.c: see random_pool.h.
 */
#include "tests/split/random_pool.h"

#include <math.h>
#include <string.h>

int64_t pool_one_of(pool *p, const int64_t *list, int n) {
    return list[pool_below(p, (uint32_t)n)];
}

int64_t pool_width(pool *p) {
    switch (pool_below(p, 10)) {
    case 0: return POOL_ONE_OF(p, 1, 2, 3, 5, 7, 9, 13);
    case 1:
    case 2:
    case 3: return POOL_ONE_OF(p, 8, 4, 6, 12, 16, 24);
    case 4:
    case 5:
    case 6: return POOL_ONE_OF(p, 32, 64, 96, 40, 48);
    case 7: return POOL_ONE_OF(p, 128, 160, 100, 33, 63);
    case 8: return POOL_ONE_OF(p, 256, 512);
    default: return POOL_ONE_OF(p, 64, 256, 288, 320, 512);
    }
}

int64_t pool_count(const int64_t ne[TDM_MAX_DIMS]) {
    return ne[0] * ne[1] * ne[2] * ne[3];
}

/* ---- Values ---- */

static void strides_of(const int64_t ne[TDM_MAX_DIMS], int64_t nb[TDM_MAX_DIMS]) {
    nb[0] = 1;
    for (int i = 1; i < TDM_MAX_DIMS; i++) nb[i] = nb[i - 1] * ne[i - 1];
}

int pool_add(pool *p, int32_t id, double size) {
    const int64_t *ne = id >= 0 ? tdm_build_shape(p->b, id) : NULL;
    if (ne == NULL || p->n == POOL_MAX) return -1;
    pool_value *v = &p->values[p->n];
    memset(v, 0, sizeof *v);
    v->id = id;
    v->type = TDM_TYPE_F32;
    memcpy(v->ne, ne, sizeof v->ne);
    strides_of(v->ne, v->nb);
    v->size = isfinite(size) && size > 0 ? size : 1;
    return p->n++;
}

int pool_add_view(pool *p, int32_t id, int of, const int64_t nb[TDM_MAX_DIMS]) {
    int i = pool_add(p, id, p->values[of].size);
    if (i < 0) return -1;
    p->values[i].type = p->values[of].type;
    p->values[i].is_view = true;
    if (nb != NULL) memcpy(p->values[i].nb, nb, sizeof p->values[i].nb);
    return i;
}

int32_t pool_use(pool *p, int i) {
    p->values[i].is_used = true;
    return p->values[i].id;
}

int pool_pick_that(pool *p, pool_fits_fn fits, const void *context) {
    int found[POOL_MAX], n = 0;
    for (int i = p->n - 1; i >= 0; i--) {
        const pool_value *v = &p->values[i];
        if (!v->is_hidden && v->type == TDM_TYPE_F32 && fits(p, v, context)) found[n++] = i;
    }
    if (n == 0) return -1;
    /* Mostly among the newest, so that chains grow long. */
    if (n > 3 && pool_below(p, 3) < 2) n = 3;
    return found[pool_below(p, (uint32_t)n)];
}

static bool has_axes(const pool *p, const pool_value *v, const void *context) {
    (void)p;
    for (int i = *(const int *)context; i < TDM_MAX_DIMS; i++)
        if (v->ne[i] != 1) return false;
    return true;
}

int pool_pick(pool *p, int n_axis) {
    return pool_pick_that(p, has_axes, &n_axis);
}

static bool is_tokens(const pool *p, const pool_value *v, const void *context) {
    (void)context;
    return v->ne[1] == p->n_tok && v->ne[2] == 1 && v->ne[3] == 1 && v->ne[0] > 1;
}

int pool_pick_tokens(pool *p) {
    int i = pool_pick_that(p, is_tokens, NULL);
    return i >= 0 ? i : pool_input(p, POOL_SHAPE(pool_width(p) + 1, p->n_tok, 1, 1));
}

bool pool_is_contiguous(const pool_value *v) {
    int64_t expected = 1;
    for (int i = 0; i < TDM_MAX_DIMS; i++) {
        if (v->ne[i] != 1 && v->nb[i] != expected) return false;
        expected *= v->ne[i];
    }
    return true;
}

int pool_contiguous(pool *p, int i) {
    if (pool_is_contiguous(&p->values[i])) return i;
    int32_t id = tdm_build_copy(p->b, pool_use(p, i), (tdm_type)p->values[i].type);
    int copy = pool_add(p, id, p->values[i].size);
    if (copy >= 0) p->values[copy].type = p->values[i].type;
    return copy;
}

int pool_calm(pool *p, int i) {
    if (i < 0 || (p->values[i].size < 20 && p->values[i].size > 0.05)) return i;
    float by = (float)(1 / p->values[i].size);
    return pool_add(p, tdm_build_scale(p->b, pool_use(p, i), by, 0), 1);
}

/* ---- Leaves ---- */

int pool_input(pool *p, const int64_t ne[TDM_MAX_DIMS]) {
    char name[16];
    snprintf(name, sizeof name, "in%d", p->n_input++);
    int i = pool_add(p, tdm_build_input(p->b, name, TDM_TYPE_F32, ne), 1);
    if (i >= 0) p->values[i].is_leaf = true;
    return i;
}

/* is_simple: one segment of units that may be cut anywhere; rows that are looked up are cut in no
 * other way. */
static int32_t partition_draw(pool *p, int64_t n, bool is_simple);

static tdm_type weight_type(pool *p, int64_t n) {
    static const tdm_type plain[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16};
    static const tdm_type blocks[] = {TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, TDM_TYPE_Q4_1,
                                      TDM_TYPE_Q5_0, TDM_TYPE_Q5_1, TDM_TYPE_IQ4_NL};
    static const tdm_type superblocks[] = {TDM_TYPE_Q4_K, TDM_TYPE_Q2_K, TDM_TYPE_Q3_K,
                                           TDM_TYPE_Q5_K, TDM_TYPE_Q6_K, TDM_TYPE_IQ4_XS};
    /* Cut between blocks only. Not drawn, so that a seed's other choices are what they were. */
    static const tdm_type whole[] = {TDM_TYPE_IQ2_XXS, TDM_TYPE_IQ3_S, TDM_TYPE_IQ1_S,
                                     TDM_TYPE_TQ1_0};
    uint32_t kind = pool_below(p, 4);
    if (kind >= 2 && n % 256 == 0 && n > 0) {
        tdm_type type = superblocks[pool_below(p, 6)];
        return p->n_weight % 4 == 3 ? whole[p->n_weight / 4 % 4] : type;
    }
    if (kind >= 1 && n % 32 == 0 && n > 0) return blocks[pool_below(p, 6)];
    return plain[pool_below(p, 3)];
}

int32_t pool_weight_cut(pool *p, uint32_t usage, const int64_t ne[TDM_MAX_DIMS], int32_t partition,
                        int32_t axis) {
    char name[16];
    snprintf(name, sizeof name, "w%d", p->n_weight++);
    /* Products take a plain weight too. */
    if (usage == TDM_USAGE_MATMUL && choice_rarely(p->c, 8)) usage = 0;
    int32_t w = tdm_build_weight(p->b, name, weight_type(p, ne[0]), ne, usage);
    if (partition != 0) tdm_build_set_partition(p->b, w, partition, axis);
    return w;
}

int32_t pool_weight(pool *p, uint32_t usage, const int64_t ne[TDM_MAX_DIMS], unsigned axis_mask) {
    int axes[TDM_MAX_DIMS], n = 0;
    for (int i = 0; i < TDM_MAX_DIMS; i++)
        if ((axis_mask >> i & 1) != 0) axes[n++] = i;
    uint32_t which = pool_below(p, (uint32_t)n + 1);
    int axis = which > 0 ? axes[which - 1] : 0;
    bool is_simple = axis_mask == 3 && axis == 1; /* a table, whatever its usage */
    int32_t partition = which > 0 ? partition_draw(p, ne[axis], is_simple) : 0;
    return pool_weight_cut(p, usage, ne, partition, partition != 0 ? axis : 0);
}

int32_t pool_plain(pool *p, char kind, int64_t n, int32_t partition) {
    char name[16];
    snprintf(name, sizeof name, "%c%d", kind, p->n_weight++);
    int32_t w = tdm_build_weight(p->b, name, TDM_TYPE_F32, POOL_SHAPE(n, 1, 1, 1), 0);
    if (partition != 0) tdm_build_set_partition(p->b, w, partition, 0);
    return w;
}

/* ---- Cuts ---- */

pool_cut pool_new_cut(pool *p, int32_t n_unit, int32_t n_sub) {
    pool_cut cut = {p->partition_base + p->n_cut + 1, (int32_t)pool_below(p, 4) - 1, n_unit, n_sub};
    if (p->n_cut < POOL_MAX_CUT) p->cuts[p->n_cut++] = cut;
    return cut;
}

int32_t pool_cut_partition(pool *p, const pool_cut *cut, const int32_t *lens, int n_segment,
                           bool is_whole) {
    tdm_partition partition = {.id = cut->id,
                               .layer = cut->layer,
                               .n_unit = cut->n_unit,
                               .n_segment = n_segment,
                               .n_sub = cut->n_sub,
                               .whole_segments = is_whole ? (1 << n_segment) - 1 : 0};
    memcpy(partition.unit_len, lens, (size_t)n_segment * sizeof *lens);
    return tdm_build_partition(p->b, &partition);
}

/* Splits the elements of a unit into segments, each of a multiple of n_sub elements. */
static int segments_draw(pool *p, int64_t unit, int32_t n_sub, int32_t *lens) {
    int64_t left = unit / n_sub;
    int n = 0, most = (int)(left < TDM_MAX_SEGMENTS ? left : TDM_MAX_SEGMENTS);
    int wanted = choice_rarely(p->c, 3) ? 1 + (int)pool_below(p, (uint32_t)most) : 1;
    for (; n < wanted - 1; n++) {
        int64_t room = left - (wanted - 1 - n);
        int64_t len = 1 + (int64_t)pool_below(p, (uint32_t)room);
        lens[n] = (int32_t)len * n_sub;
        left -= len;
    }
    lens[n++] = (int32_t)left * n_sub;
    return n;
}

static int64_t divisor_draw(pool *p, int64_t n) {
    int64_t found[64];
    int n_found = 0;
    for (int64_t d = n; d >= 1 && n_found < 64; d--)
        if (n % d == 0) found[n_found++] = d;
    return found[pool_below(p, (uint32_t)n_found)];
}

static int32_t partition_draw(pool *p, int64_t n, bool is_simple) {
    int fitting[POOL_MAX_CUT], n_fitting = 0;
    int32_t lens[TDM_MAX_SEGMENTS];
    pool_cut cut;
    if (n < 1 || p->n_cut == POOL_MAX_CUT || choice_rarely(p->c, 8)) return 0;
    for (int i = 0; i < p->n_cut; i++)
        if (n % ((int64_t)p->cuts[i].n_unit * p->cuts[i].n_sub) == 0) fitting[n_fitting++] = i;
    if (n_fitting > 0 && pool_below(p, 3) < 2) {
        cut = p->cuts[fitting[pool_below(p, (uint32_t)n_fitting)]];
    } else {
        int64_t n_unit = divisor_draw(p, n);
        int32_t n_sub = choice_rarely(p->c, 4) ? (int32_t)divisor_draw(p, n / n_unit) : 1;
        cut = pool_new_cut(p, (int32_t)n_unit, n_sub);
    }
    if (is_simple) {
        lens[0] = (int32_t)(n / cut.n_unit);
        return pool_cut_partition(p, &cut, lens, 1, false);
    }
    bool is_whole = cut.n_sub > 1 && choice_rarely(p->c, 4);
    int n_segment = segments_draw(p, n / cut.n_unit, is_whole ? 1 : cut.n_sub, lens);
    return pool_cut_partition(p, &cut, lens, n_segment, is_whole);
}

int32_t pool_partition(pool *p, int64_t n) {
    return partition_draw(p, n, false);
}

/* ---- Small patterns ---- */

int pool_project(pool *p, int x, int64_t n, int32_t partition, int32_t axis, bool has_bias) {
    int64_t k = p->values[x].ne[0];
    int32_t w = pool_weight_cut(p, TDM_USAGE_MATMUL, POOL_SHAPE(k, n, 1, 1), partition,
                                partition ? axis : 0);
    int y = pool_add(p, tdm_build_matmul(p->b, w, pool_use(p, x)), p->values[x].size);
    if (y < 0 || !has_bias) return y;
    int32_t bias = pool_plain(p, 'b', n, axis == 1 ? partition : 0);
    return pool_add(p, tdm_build_add(p->b, pool_use(p, y), bias), p->values[y].size + 0.3);
}

int pool_residual(pool *p, int x, int y) {
    if (x < 0 || y < 0 || memcmp(p->values[x].ne, p->values[y].ne, sizeof p->values[x].ne) != 0)
        return y;
    bool is_swapped = pool_below(p, 2) != 0;
    int32_t sum =
        tdm_build_add(p->b, pool_use(p, is_swapped ? y : x), pool_use(p, is_swapped ? x : y));
    return pool_add(p, sum, p->values[x].size + p->values[y].size);
}
