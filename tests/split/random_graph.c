/* SPDX-License-Identifier: MIT
 *
 * random_graph.c: the ops of a random graph one by one, its outputs, and the graphs that maintain
 * its caches. Blocks of ops are in random_block.c.
 */
#include "tests/split/random_graph.h"

#include <stdlib.h>
#include <string.h>

#include "tests/split/random_pool.h"

/* ---- Views and movement ---- */

static int64_t divisor_of(pool *p, int64_t n) {
    int64_t found[64];
    int n_found = 0;
    for (int64_t d = 2; d <= n && n_found < 64; d++)
        if (n % d == 0) found[n_found++] = d;
    return n_found == 0 ? 1 : found[pool_below(p, (uint32_t)n_found)];
}

static bool is_anything(const pool *p, const pool_value *v, const void *context) {
    (void)p, (void)v, (void)context;
    return true;
}

/* Any f32 value; an input where there is none. */
static int pick_any(pool *p) {
    int i = pool_pick_that(p, is_anything, NULL);
    return i >= 0 ? i : pool_input(p, POOL_SHAPE(pool_width(p), p->n_tok, 1, 1));
}

static int reshape_to(pool *p, int x, const int64_t *ne) {
    int32_t y = tdm_build_reshape(p->b, pool_use(p, x), ne[0], ne[1], ne[2], ne[3]);
    return pool_add_view(p, y, x, NULL);
}

static void add_reshape(pool *p) {
    int x = pool_contiguous(p, pick_any(p));
    if (x < 0) return;
    int64_t ne[TDM_MAX_DIMS], n = pool_count(p->values[x].ne), d;
    memcpy(ne, p->values[x].ne, sizeof ne);
    switch (pool_below(p, 6)) {
    case 0: /* flatten the first two */
        ne[0] *= ne[1], ne[1] = ne[2], ne[2] = ne[3], ne[3] = 1;
        break;
    case 1: /* split the first */
        if (ne[3] != 1) return;
        d = divisor_of(p, ne[0]);
        ne[3] = ne[2], ne[2] = ne[1], ne[1] = ne[0] / d, ne[0] = d;
        break;
    case 2: /* flatten the second and third */ ne[1] *= ne[2], ne[2] = ne[3], ne[3] = 1; break;
    case 3: /* split the second */
        if (ne[3] != 1) return;
        d = divisor_of(p, ne[1]);
        ne[3] = ne[2], ne[2] = ne[1] / d, ne[1] = d;
        break;
    case 4: ne[0] = n, ne[1] = ne[2] = ne[3] = 1; break;
    default:
        ne[0] = divisor_of(p, n);
        ne[1] = divisor_of(p, n / ne[0]);
        ne[2] = n / ne[0] / ne[1];
        ne[3] = 1;
    }
    reshape_to(p, x, ne);
}

static void add_permute(pool *p) {
    int x = pick_any(p), axis[TDM_MAX_DIMS] = {0, 1, 2, 3};
    if (x < 0) return;
    for (int i = 0; i < TDM_MAX_DIMS - 1; i++) {
        int j = i + (int)pool_below(p, (uint32_t)(TDM_MAX_DIMS - i)), t = axis[i];
        axis[i] = axis[j];
        axis[j] = t;
    }
    const pool_value *v = &p->values[x];
    int64_t nb[TDM_MAX_DIMS];
    for (int i = 0; i < TDM_MAX_DIMS; i++) nb[axis[i]] = v->nb[i];
    int32_t y = tdm_build_permute(p->b, pool_use(p, x), axis[0], axis[1], axis[2], axis[3]);
    pool_add_view(p, y, x, nb);
}

static void add_slice(pool *p) {
    int x = pick_any(p);
    if (x < 0) return;
    int64_t off[TDM_MAX_DIMS] = {0}, ne[TDM_MAX_DIMS], nb[TDM_MAX_DIMS];
    memcpy(ne, p->values[x].ne, sizeof ne);
    memcpy(nb, p->values[x].nb, sizeof nb);
    int n_axis = 1 + (int)choice_rarely(p->c, 4);
    for (int i = 0; i < n_axis; i++) {
        int axis = (int)pool_below(p, 3);
        if (ne[axis] < 2) continue;
        int64_t len = 1 + (int64_t)pool_below(p, (uint32_t)ne[axis]);
        off[axis] = (int64_t)pool_below(p, (uint32_t)(ne[axis] - len) + 1);
        ne[axis] = len;
    }
    pool_add_view(p, tdm_build_slice(p->b, pool_use(p, x), off, ne), x, nb);
}

typedef struct concat_want {
    int64_t ne[TDM_MAX_DIMS];
    int axis;
} concat_want;

static bool joins(const pool *p, const pool_value *v, const void *context) {
    const concat_want *want = context;
    (void)p;
    for (int i = 0; i < TDM_MAX_DIMS; i++)
        if (i != want->axis && v->ne[i] != want->ne[i]) return false;
    return pool_count(v->ne) + pool_count(want->ne) <= POOL_MAX_ELEMENTS;
}

static void add_concat(pool *p) {
    int x = pick_any(p);
    if (x < 0) return;
    concat_want want = {.axis = (int)pool_below(p, 4)};
    memcpy(want.ne, p->values[x].ne, sizeof want.ne);
    int y = pool_pick_that(p, joins, &want);
    if (y < 0) return;
    double size = p->values[x].size > p->values[y].size ? p->values[x].size : p->values[y].size;
    pool_add(p, tdm_build_concat(p->b, pool_use(p, x), pool_use(p, y), want.axis), size);
}

static void add_repeat(pool *p) {
    int x = pick_any(p);
    if (x < 0) return;
    int64_t ne[TDM_MAX_DIMS];
    memcpy(ne, p->values[x].ne, sizeof ne);
    ne[pool_below(p, 4)] *= 2 + (int64_t)pool_below(p, 2);
    if (pool_count(ne) > POOL_MAX_ELEMENTS) return;
    pool_add(p, tdm_build_repeat(p->b, pool_use(p, x), ne), p->values[x].size);
}

/* To another type and back, with a view in between now and then. */
static void add_copy(pool *p) {
    int x = pick_any(p);
    if (x < 0) return;
    tdm_type type = (tdm_type)POOL_ONE_OF(p, TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16);
    int y = pool_add(p, tdm_build_copy(p->b, pool_use(p, x), type), p->values[x].size);
    if (y < 0 || type == TDM_TYPE_F32) return;
    p->values[y].type = (int32_t)type;
    if (choice_rarely(p->c, 2)) {
        const int64_t *ne = p->values[y].ne;
        const int64_t flat[TDM_MAX_DIMS] = {ne[0] * ne[1], ne[2], ne[3], 1};
        y = reshape_to(p, y, flat);
        if (y < 0) return;
    }
    if (choice_rarely(p->c, 4)) return; /* as a result */
    pool_add(p, tdm_build_copy(p->b, pool_use(p, y), TDM_TYPE_F32), p->values[y].size);
}

/* ---- Arithmetic ---- */

static bool is_multiplied(const pool *p, const pool_value *v, const void *context) {
    (void)p, (void)context;
    return v->ne[0] <= 640 && pool_count(v->ne) / (v->ne[0] > 0 ? v->ne[0] : 1) <= 256;
}

static void add_matmul(pool *p) {
    int x = pool_pick_that(p, is_multiplied, NULL);
    if (x < 0) x = pool_input(p, POOL_SHAPE(pool_width(p), p->n_tok, 1, 1));
    if (x < 0) return;
    const pool_value *v = &p->values[x];
    int64_t n = pool_width(p), rows = pool_count(v->ne) / v->ne[0];
    if (n * rows > POOL_MAX_ELEMENTS || n * v->ne[0] > POOL_MAX_WEIGHT) return;
    int axis = (int)pool_below(p, 3) - 1; /* -1 = not cut */
    int32_t partition = axis >= 0 ? pool_partition(p, axis == 0 ? v->ne[0] : n) : 0;
    int y = pool_project(p, x, n, partition, axis, choice_rarely(p->c, 4));
    if (y >= 0 && choice_rarely(p->c, 6)) pool_residual(p, x, y);
}

/* A matrix for each head, or a matrix that is no weight. */
static void add_matmul_other(pool *p) {
    int x = pool_pick_that(p, is_multiplied, NULL);
    if (x < 0) return;
    const pool_value *v = &p->values[x];
    int64_t n = POOL_ONE_OF(p, 8, 16, 32, 5, 64), rows = pool_count(v->ne) / v->ne[0];
    if (n * rows > POOL_MAX_ELEMENTS || n * v->ne[0] > POOL_MAX_WEIGHT) return;
    int32_t w;
    if (v->ne[1] > 1 && v->ne[1] <= 16 && choice_rarely(p->c, 2)) {
        w = pool_weight(p, TDM_USAGE_MATMUL, POOL_SHAPE(v->ne[0], n, v->ne[1], 1), 7);
    } else { /* for example a rotation that every member holds */
        int m = pool_input(p, POOL_SHAPE(v->ne[0], n, 1, 1));
        if (m < 0) return;
        w = pool_use(p, m);
    }
    int y = pool_add(p, tdm_build_matmul(p->b, w, pool_use(p, x)), p->values[x].size * 4);
    pool_calm(p, y);
}

static bool is_repeatable(const pool *p, const pool_value *v, const void *context) {
    const int64_t *ne = context;
    (void)p;
    for (int i = 0; i < TDM_MAX_DIMS; i++)
        if (v->ne[i] != ne[i] && v->ne[i] != 1) return false;
    return true;
}

static void add_pair(pool *p) {
    int x = pick_any(p);
    if (x < 0) return;
    int64_t ne[TDM_MAX_DIMS];
    memcpy(ne, p->values[x].ne, sizeof ne);
    uint32_t kind = pool_below(p, 4);
    int32_t y;
    double size = 0.5;
    if (kind == 3) {
        y = pool_plain(p, 'b', ne[0], pool_partition(p, ne[0]));
    } else {
        int i = pool_pick_that(p, is_repeatable, ne);
        if (i < 0) return;
        size = p->values[i].size;
        y = pool_use(p, i);
    }
    if (choice_rarely(p->c, 4)) { /* a divisor in 0.5 .. 1.5 */
        y = tdm_build_scale(p->b, tdm_build_act(p->b, y, TDM_ACT_SIGMOID), 1, 0.5f);
        x = pool_add(p, tdm_build_div(p->b, pool_use(p, x), y), p->values[x].size);
    } else if (pool_below(p, 2) == 0)
        x = pool_add(p, tdm_build_add(p->b, pool_use(p, x), y), p->values[x].size + size);
    else
        x = pool_add(p, tdm_build_mul(p->b, pool_use(p, x), y), p->values[x].size * size);
    pool_calm(p, x);
}

static bool is_alike(const pool *p, const pool_value *v, const void *context) {
    (void)p;
    return memcmp(v->ne, context, sizeof v->ne) == 0;
}

static void add_glu(pool *p) {
    int x = pick_any(p);
    if (x < 0) return;
    int64_t ne[TDM_MAX_DIMS];
    memcpy(ne, p->values[x].ne, sizeof ne);
    int y = pool_pick_that(p, is_alike, ne);
    tdm_act act = (tdm_act)pool_below(p, TDM_ACT_COUNT_);
    double size = p->values[x].size * p->values[y].size;
    pool_calm(p, pool_add(p, tdm_build_glu(p->b, pool_use(p, x), pool_use(p, y), act), size / 2));
}

static void add_one(pool *p) {
    int x = pick_any(p);
    if (x < 0) return;
    double size = p->values[x].size;
    switch (pool_below(p, 5)) {
    case 3: /* away from 0, where its slope is endless */
        x = pool_add(p, tdm_build_sqrt(p->b, tdm_build_act(p->b, pool_use(p, x), TDM_ACT_SIGMOID)),
                     0.7);
        break;
    case 2: x = pool_add(p, tdm_build_clamp(p->b, pool_use(p, x), -0.5f, 0.75f), size * 0.7); break;
    case 0: {
        float scale = (float)pool_below(p, 5) / 2 - 1, bias = (float)pool_below(p, 3) / 4;
        x = pool_add(p, tdm_build_scale(p->b, pool_use(p, x), scale, bias), size + (double)bias);
        break;
    }
    case 1: {
        tdm_act act = (tdm_act)pool_below(p, TDM_ACT_COUNT_);
        x = pool_add(p, tdm_build_act(p->b, pool_use(p, x), act), size * 0.6);
        break;
    }
    default:
        x = pool_add(p, tdm_build_softmax(p->b, pool_use(p, x)), 2 / (double)p->values[x].ne[0]);
    }
    pool_calm(p, x);
}

static void add_norm(pool *p) {
    int x = pick_any(p);
    if (x < 0) return;
    int64_t n = p->values[x].ne[0];
    int32_t weight = -1;
    if (choice_rarely(p->c, 2))
        weight = pool_plain(p, 'n', n, choice_rarely(p->c, 2) ? pool_partition(p, n) : 0);
    if (choice_rarely(p->c, 3)) {
        int32_t bias = choice_rarely(p->c, 2) ? pool_plain(p, 'b', n, 0) : -1;
        pool_add(p, tdm_build_layer_norm(p->b, pool_use(p, x), weight, bias, 1e-2f), 1);
        return;
    }
    if (!choice_rarely(p->c, 3)) {
        pool_add(p, tdm_build_rms_norm(p->b, pool_use(p, x), weight, 1e-5f), 1);
        return;
    }
    double size = p->values[x].size;
    int sum = pool_add(p, tdm_build_sum_sq(p->b, pool_use(p, x)), (double)n * size * size);
    if (sum < 0) return;
    int64_t whole = choice_rarely(p->c, 3) ? 2 * n : 0;
    pool_add(p, tdm_build_rms_apply(p->b, pool_use(p, x), pool_use(p, sum), weight, 1e-5f, whole),
             1);
}

static bool is_heads(const pool *p, const pool_value *v, const void *context) {
    (void)context;
    return v->ne[2] == p->n_tok && v->ne[3] == 1 && v->ne[0] >= 2;
}

static void add_rope(pool *p) {
    int x = p->pos >= 0 ? pool_pick_that(p, is_heads, NULL) : -1;
    if (x < 0) return;
    int64_t n = p->values[x].ne[0];
    tdm_rope_params rope = {0};
    rope.n_rot = (int32_t)(2 * (1 + pool_below(p, (uint32_t)(n / 2))));
    rope.rope_offset = (int32_t)pool_below(p, (uint32_t)(n - rope.n_rot) + 1);
    rope.mode = (int32_t)pool_below(p, 2);
    int32_t factor = choice_rarely(p->c, 3) ? pool_plain(p, 'f', rope.n_rot / 2, 0) : -1;
    pool_add(p, tdm_build_rope(p->b, pool_use(p, x), p->pos, factor, &rope), p->values[x].size);
}

/* ---- Rows and selection ---- */

static int32_t ids_of(pool *p) {
    char name[16];
    if (p->step >= 0 && !choice_rarely(p->c, 3))
        return tdm_build_step_field(p->b, choice_rarely(p->c, 3) && p->facts->caps.n_out > 0
                                              ? TDM_STEP_OUT_ROW
                                              : TDM_STEP_TOKEN);
    snprintf(name, sizeof name, "id%d", p->n_input++);
    return tdm_build_input(p->b, name, TDM_TYPE_I32,
                           POOL_SHAPE(choice_rarely(p->c, 2) ? 3 : p->n_tok, 1, 1, 1));
}

static void add_embedding(pool *p) {
    int64_t n = pool_width(p), n_row = POOL_ONE_OF(p, 8, 24, 40, 100, 7);
    int64_t first = choice_rarely(p->c, 4) ? 3 : 0;
    uint32_t usage = choice_rarely(p->c, 4) ? 0 : TDM_USAGE_ROWS;
    if (usage != 0 && choice_rarely(p->c, 3)) usage |= TDM_USAGE_MATMUL;
    int32_t table = pool_weight(p, usage, POOL_SHAPE(n, n_row, 1, 1), 3);
    int x = pool_add(p, tdm_build_get_rows(p->b, table, ids_of(p), first), 0.5);
    if (x >= 0 && (usage & TDM_USAGE_MATMUL) != 0) /* tied */
        pool_add(p, tdm_build_matmul(p->b, table, pool_use(p, x)), 0.5);
}

static bool is_table(const pool *p, const pool_value *v, const void *context) {
    (void)p, (void)context;
    return v->ne[2] == 1 && v->ne[3] == 1;
}

static void add_get_rows(pool *p) {
    int x = pool_pick_that(p, is_table, NULL);
    if (x < 0) return;
    int64_t first = choice_rarely(p->c, 4) ? 2 : 0;
    pool_add(p, tdm_build_get_rows(p->b, pool_use(p, x), ids_of(p), first), p->values[x].size);
}

static void add_top_k(pool *p) {
    int x = pool_pick_that(p, is_table, NULL);
    if (x < 0) return;
    int64_t n = p->values[x].ne[0], m = p->values[x].ne[1];
    int32_t k = 1 + (int32_t)pool_below(p, (uint32_t)(n < 6 ? n : 6)), id = -1;
    int32_t base = choice_rarely(p->c, 3) ? 4 : 0;
    int y = pool_add(p, tdm_build_top_k(p->b, pool_use(p, x), k, base, &id), p->values[x].size);
    int i = pool_add(p, id, 1);
    if (y < 0 || i < 0) return;
    p->values[i].type = TDM_TYPE_I32;
    p->values[i].is_hidden = true;
    if (!choice_rarely(p->c, 2)) return;
    id = tdm_build_reshape(p->b, pool_use(p, i), k * m, 1, 1, 1);
    int64_t width = pool_width(p);
    if (width * k * m > POOL_MAX_ELEMENTS) return;
    int32_t table = pool_weight(p, TDM_USAGE_ROWS, POOL_SHAPE(width, n, 1, 1), 3);
    pool_add(p, tdm_build_get_rows(p->b, table, id, base), 0.5);
}

/* ---- The whole ---- */

typedef void (*add_fn)(pool *p);
/* The simplest first; those that matter most, more than once. */
static const add_fn ops[] = {
    add_matmul,
    add_pair,
    add_one,
    add_norm,
    add_reshape,
    add_permute,
    add_slice,
    add_matmul,
    add_matmul,
    add_pair,
    add_glu,
    add_concat,
    add_repeat,
    add_copy,
    add_rope,
    add_embedding,
    add_top_k,
    add_get_rows,
    add_matmul_other,
    add_reshape,
    pool_block_ffn,
    add_norm,
    pool_block_moe,
    pool_block_ffn,
    pool_block_attention,
    pool_block_recurrent,
    pool_block_compressed,
    pool_block_attention,
};
enum { N_OPS = sizeof ops / sizeof ops[0] };

static void step_begin(pool *p) {
    random_case *f = p->facts;
    p->n_tok = (int32_t)POOL_ONE_OF(p, 1, 2, 3, 4, 5, 7, 8, 16, 17);
    f->n_step = 1 + (int32_t)pool_below(p, 3);
    f->n_seq = 1 + (int32_t)pool_below(p, RANDOM_MAX_SEQ);
    p->step = p->pos = -1;
    f->has_step = pool_below(p, 5) != 0;
    for (int i = 0; i < RANDOM_MAX_CLASS; i++) {
        f->page_len[i] = (int32_t)POOL_ONE_OF(p, 4, 8, 1, 16, 64);
        /* Each run of a sequence's tokens in a step may open a page and a bit; upkeep takes as many
         * pages again. */
        f->n_page[i] = 2 * (int64_t)(f->n_step + 1) *
                           (f->n_seq * 2 + (p->n_tok + f->page_len[i] - 1) / f->page_len[i]) +
                       2;
    }
    if (!f->has_step) return;
    f->caps = (tdm_step_caps){.n_tok = p->n_tok,
                              .n_seq = f->n_seq + (int32_t)pool_below(p, 2),
                              .n_out = (int32_t)pool_below(p, 3),
                              .n_entry = 4 * (int32_t)(f->n_page[0] + f->n_page[1]),
                              .n_class = RANDOM_MAX_CLASS,
                              .has_rs = 1};
    uint32_t upkeep = pool_below(p, 6);
    f->shift = upkeep == 3 ? 1 + (int32_t)pool_below(p, 9) : 0;
    f->moves_page = upkeep == 4;
    f->reimports = upkeep == 5;
    p->step = tdm_build_step(p->b, &f->caps);
    p->pos = tdm_build_step_field(p->b, TDM_STEP_POS);
}

/* Whatever nothing reads is a result, and now and then something that is read. */
static void outputs_mark(pool *p) {
    char name[16];
    int n = p->n, n_output = 0;
    for (int i = 0; i < n; i++) {
        pool_value *v = &p->values[i];
        if (v->is_leaf || (v->is_used && !choice_rarely(p->c, 12))) continue;
        int32_t id = v->id;
        if (v->is_view) id = tdm_build_copy(p->b, id, (tdm_type)v->type);
        snprintf(name, sizeof name, "out%d", n_output++);
        tdm_build_output(p->b, id, name);
    }
    if (n_output > 0) return;
    int x = pool_input(p, POOL_SHAPE(8, p->n_tok, 1, 1));
    if (x >= 0) tdm_build_output(p->b, tdm_build_scale(p->b, pool_use(p, x), 2, 0), "out");
}

tdm_status random_graph_make(choices *c, int32_t partition_base, random_page_size_fn page_size,
                             void *context, random_case *case_out, tdm_graph **graph_out,
                             tdm_error *err) {
    pool *p = calloc(1, sizeof *p);
    if (p == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a random graph");
    memset(case_out, 0, sizeof *case_out);
    p->c = c;
    p->facts = case_out;
    p->page_size = page_size;
    p->context = context;
    p->partition_base = partition_base;
    tdm_status status = tdm_builder_create(&p->b, err);
    if (status == TDM_OK) {
        case_out->data_seed = choice_below(c, 1u << 30);
        case_out->n_row_max = 30;
        step_begin(p);
        uint32_t most = 2 + (uint32_t)POOL_ONE_OF(p, 4, 10, 18, 28);
        for (uint32_t i = 0; i < most && p->n < POOL_MAX - 40; i++) {
            choice_mark(c);
            if (choice_below(c, most) == 0) break;
            ops[pool_below(p, N_OPS)](p);
        }
        outputs_mark(p);
        if (p->err.status != TDM_OK)
            status = tdm_fail(err, p->err.status, "%s", p->err.message);
        else
            status = tdm_builder_finish(p->b, graph_out, err);
    }
    tdm_builder_destroy(p->b);
    free(p);
    return status;
}

/* ---- Upkeep ---- */

typedef struct upkeep {
    tdm_builder *b;
    int32_t step;
    int64_t n_row;
} upkeep;

static void upkeep_add(upkeep *u, const random_state *s, random_upkeep kind, int32_t state,
                       int32_t kv) {
    const tdm_kv_desc *d = &s->desc;
    bool has_v = (d->flags & TDM_KV_V_FROM_K) == 0;
    char name[40];
    if (kind == RANDOM_SHIFT) {
        tdm_build_kv_shift(u->b, u->step, state, -1, kv, &s->rope);
    } else if (kind == RANDOM_COPY) {
        tdm_build_kv_copy(u->b, u->step, state, kv);
    } else if (kind == RANDOM_EXPORT) {
        int32_t v = -1;
        int32_t k = tdm_build_kv_export(u->b, u->step, state, kv, u->n_row, has_v ? &v : NULL);
        snprintf(name, sizeof name, "%s.k", s->name);
        tdm_build_output(u->b, k, name);
        snprintf(name, sizeof name, "%s.v", s->name);
        if (has_v) tdm_build_output(u->b, v, name);
    } else {
        int64_t k_ne[] = {tdm_kv_padded(d->type_k, d->head_dim_k), d->n_head_kv, u->n_row, 1};
        int64_t v_ne[] = {tdm_kv_padded(d->type_v, d->head_dim_v), d->n_head_kv, u->n_row, 1};
        snprintf(name, sizeof name, "%s.k", s->name);
        int32_t k = tdm_build_input(u->b, name, d->type_k, k_ne), v = -1;
        snprintf(name, sizeof name, "%s.v", s->name);
        if (has_v) v = tdm_build_input(u->b, name, d->type_v, v_ne);
        tdm_build_kv_import(u->b, k, v, u->step, state, kv);
    }
}

tdm_status random_upkeep_make(const random_case *facts, random_upkeep kind, int32_t cls,
                              random_page_size_fn page_size, void *context, tdm_graph **graph_out,
                              tdm_error *err) {
    upkeep u = {.n_row = facts->n_page[cls] * facts->page_len[cls]};
    tdm_step_caps caps = {.n_job = (int32_t)facts->n_page[cls] * 2, .n_class = RANDOM_MAX_CLASS};
    tdm_status status = tdm_builder_create(&u.b, err);
    if (status != TDM_OK) return status;
    u.step = tdm_build_step(u.b, &caps);
    for (int i = 0; i < facts->n_state && status == TDM_OK; i++) {
        const random_state *s = &facts->states[i];
        uint64_t size = 0;
        int32_t kv = 0;
        if (s->desc.cls != cls || (s->desc.flags & TDM_KV_RECURRENT) != 0) continue;
        /* KV_SHIFT takes no strided cache. */
        if (kind == RANDOM_SHIFT && s->desc.stride > 1) continue;
        status = page_size(context, &s->desc, &size, err);
        if (status != TDM_OK) break;
        int32_t state = tdm_build_state(u.b, s->name, &s->desc, size, s->n_page, &kv);
        if (s->partition.id != 0)
            tdm_build_set_partition(u.b, state, tdm_build_partition(u.b, &s->partition), 0);
        upkeep_add(&u, s, kind, state, kv);
    }
    if (status == TDM_OK) status = tdm_builder_finish(u.b, graph_out, err);
    tdm_builder_destroy(u.b);
    return status;
}
