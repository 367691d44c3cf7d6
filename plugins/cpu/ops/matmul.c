/* SPDX-License-Identifier: MIT
 *
 * matmul.c: the MATMUL op: y[j] = sum_i w[i, j] * x[i] for every token; with a matrix for each
 * head, row h of a token is multiplied with matrix h.
 *
 * Activations are brought into the kernel's format once for all products that take it (x_make). The
 * workers share the groups of rows, and each multiplies its own with all tokens: a weight is thus
 * read from memory once however many tokens there are. Kernels are in matmul_*.c, experts in moe.c,
 * the tokens of prompts where there is a matrix unit in panel.c.
 */
#include "quant/convert.h"
#include "plugins/cpu/exec/claims.h"
#include "plugins/cpu/ops/matmul.h"
#include "plugins/cpu/ops/panel.h"
#include "plugins/cpu/ops/strided.h"
#include "plugins/cpu/ops/ops.h"

/* Bytes of weights that stay in a core's second-level cache while all tokens are multiplied. */
enum { CACHED_SIZE = 256 * 1024 };

/* Products of one token with fewer bytes of weights than this take less time than one more
 * barrier. */
enum { CLAIMED_SIZE = 256 * 1024 };

/* Pieces of a worker's share that are claimed one by one. */
enum { N_PIECE = 16 };

enum { SRC_W, SRC_X, SRC_ROLE };

_Static_assert(CPU_SHARE_UNIT % CPU_MATMUL_LANE == 0 && CPU_SHARE_UNIT % CPU_X_LEN == 0,
               "workers get whole groups of rows and whole blocks of activations");

cpu_matmul_matrix cpu_matmul_matrix_get(const cpu_device *device, const cpu_weight_layout *l,
                                        const uint8_t *data, int64_t i) {
    return (cpu_matmul_matrix){
        .kernels = cpu_matmul_kernels_get(device, l->type),
        .n_lane = l->n_lane,
        .type = l->type,
        .data = data + (size_t)(i * l->n_group) * l->group_size,
        .group_pitch = l->group_size,
        .n_block = l->n_block,
        .n_row = l->n_row,
        .n_group = l->n_group,
        .prefetch_each = device->prefetch_each,
    };
}

static size_t round_up_64(size_t size) {
    return (size + 63) & ~(size_t)63;
}

size_t cpu_matmul_x_size(const cpu_matmul_kernels *kernels, int64_t k) {
    size_t most = 0;
    for (int role = 0; role < CPU_N_ROLE; role++) {
        size_t size = cpu_x_block_size(kernels->of[role]->format);
        most = size > most ? size : most;
    }
    return round_up_64((size_t)(k / CPU_X_LEN) * most);
}

/* With sparse prefetches, more than two tokens take so long that prefetching gained nothing. */
static cpu_ahead ahead_choose(const cpu_matmul_matrix *m, bool is_first, int32_t n_tok) {
    if (m->prefetch_each) return is_first ? CPU_AHEAD_EACH : CPU_AHEAD_NONE;
    return n_tok <= 2 ? CPU_AHEAD_SOME : CPU_AHEAD_NONE;
}

void cpu_matmul_groups(const cpu_matmul_matrix *m, tdm_role role, int64_t first, int64_t last,
                       bool is_first, cpu_matmul_tile *tile) {
    const cpu_matmul_kernel *kernel = m->kernels.of[role];
    int32_t n_lane = m->n_lane;
    tile->ahead = ahead_choose(m, is_first, tile->n_tok);
    tile->type = m->type;
    tile->n_block = m->n_block;
    tile->n_row = n_lane;
    tile->group = m->data + (size_t)first * m->group_pitch;
    for (int64_t g = first; g < last; g++) {
        int64_t n_left = m->n_row - g * n_lane;
        if (n_left < n_lane) tile->n_row = (int32_t)n_left;
        kernel->run(tile);
        tile->group += m->group_pitch;
        for (int32_t t = 0; t < tile->n_tok; t++) tile->y[t] += n_lane;
    }
}

/* True if elements of the value may not be adjacent: one of its views is a PERMUTE. */
static bool may_be_strided(const tdm_graph *graph, int32_t value) {
    for (int32_t i = graph->n_node - 1; i >= 0; i--) {
        const tdm_node *node = tdm_graph_node(graph, i);
        if (node->dst[0] != value || !tdm_op_is_view(node->op)) continue;
        if (node->op == TDM_OP_PERMUTE) return true;
        value = node->src[0]; /* an earlier value: the search goes backwards */
    }
    return false;
}

static tdm_status matmul_supports(const cpu_device *device, const tdm_graph *graph,
                                  const tdm_node *node, tdm_error *err) {
    (void)device;
    const tdm_value *w = tdm_graph_value(graph, node->src[0]);
    const tdm_value *x = tdm_graph_value(graph, node->src[1]);
    const tdm_value *y = tdm_graph_value(graph, node->dst[0]);
    if (tdm_row_codec_get((tdm_type)w->type).dequantize == NULL) {
        return tdm_fail(err, TDM_UNSUPPORTED, "MATMUL: weights of type %s are no numbers",
                        tdm_type_name((tdm_type)w->type));
    }
    if (x->type != TDM_TYPE_F32 || y->type != TDM_TYPE_F32) {
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "MATMUL: activations must be f32, not %s -> %s: put a COPY before it",
                        tdm_type_name((tdm_type)x->type), tdm_type_name((tdm_type)y->type));
    }
    if (w->usage != 0 && !(w->usage & TDM_USAGE_MATMUL)) {
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "MATMUL: weight %s was not uploaded for matmul: its "
                        "usage lacks MATMUL",
                        tdm_graph_value_name(graph, node->src[0]));
    }
    if (w->ne[3] != 1) {
        return tdm_fail(err, TDM_UNSUPPORTED,
                        "MATMUL: a weight has two dimensions, or three with one matrix for each "
                        "head, not [%lld, %lld, %lld, %lld]",
                        (long long)w->ne[0], (long long)w->ne[1], (long long)w->ne[2],
                        (long long)w->ne[3]);
    }
    return TDM_OK;
}

/* A row of weights for each worker, where the rows of a plain matrix cannot be read in place. */
static size_t row_pitch(tdm_type type, int64_t k) {
    return round_up_64(tdm_type_row_size(type, k));
}

/* The strides of views are not known yet, so every value that may need copying counts. */
static size_t matmul_scratch_size(const cpu_device *device, const tdm_graph *graph,
                                  const tdm_node *node) {
    const tdm_value *w = tdm_graph_value(graph, node->src[SRC_W]);
    if (w->usage != 0) {
        bool has_panels = device->panel_kernels[w->type] != NULL && node->src[SRC_ROLE] >= 0;
        return has_panels ? cpu_panel_scratch_size(w->ne[0]) * (size_t)device->n_thread : 0;
    }
    if (!may_be_strided(graph, node->src[SRC_W])) return 0;
    return row_pitch((tdm_type)w->type, w->ne[0]) * (size_t)device->n_thread;
}

/* Copies n units of `size` bytes that lie `pitch` apart. */
static void units_gather(const uint8_t *src, int64_t pitch, size_t size, int64_t n, uint8_t *dst) {
    for (int64_t i = 0; i < n; i++, src += pitch, dst += size) memcpy(dst, src, size);
}

bool cpu_matmul_x_is_same(const cpu_matmul_kernels *a, const cpu_matmul_kernels *b) {
    for (int role = 0; role < CPU_N_ROLE; role++) {
        const cpu_matmul_kernel *p = a->of[role], *q = b->of[role];
        if (p->format != q->format || (p->format != CPU_X_F32 && p->code_offset != q->code_offset))
            return false;
    }
    return true;
}

void cpu_matmul_x_prepare(const cpu_matmul_kernel *kernel, uint32_t isa, const cpu_view *x,
                          int64_t token, int64_t first, int64_t last, uint8_t *out) {
    const uint8_t *row = cpu_view_row(x, token) + first * x->nb[0];
    bool is_dense = x->nb[0] == (int64_t)sizeof(float);
    if (kernel->format == CPU_X_F32) {
        units_gather(row, x->nb[0], sizeof(float), last - first,
                     out + (size_t)first * sizeof(float));
        return;
    }
    cpu_quantize_row_fn quantize = cpu_quantize_row_get(isa, kernel->format);
    size_t block_size = cpu_x_block_size(kernel->format);
    out += (size_t)(first / CPU_X_LEN) * block_size;
    if (is_dense) {
        quantize((const float *)(const void *)row, last - first, kernel->code_offset, out);
        return;
    }
    for (int64_t i = first; i < last; i += CPU_X_LEN, row += CPU_X_LEN * x->nb[0]) {
        float piece[CPU_X_LEN];
        units_gather(row, x->nb[0], sizeof(float), CPU_X_LEN, (uint8_t *)piece);
        quantize(piece, CPU_X_LEN, kernel->code_offset, out);
        out += block_size;
    }
}

/* ---- Prepared activations ------------------------------------------------------------- */

static cpu_matmul_kernels kernels_of_node(const cpu_node *n) {
    const cpu_matmul_kernel *r = cpu_matmul_kernel_reference();
    if (n->src[SRC_W].usage == 0) return (cpu_matmul_kernels){{r, r}};
    const tdm_type type = n->src[SRC_W].type;
    cpu_matmul_kernels kernels = cpu_matmul_kernels_get(n->device, type);
    const cpu_matmul_kernel *panel = n->device->panel_kernels[type];
    if (panel != NULL && n->node->src[SRC_ROLE] >= 0) kernels.of[TDM_ROLE_PROMPT] = panel;
    return kernels;
}

static bool has_panels(const cpu_matmul_kernels *kernels) {
    return kernels->of[TDM_ROLE_PROMPT]->unpack != NULL;
}

static cpu_roles roles_of_node(const cpu_node *n, const cpu_matmul_kernels *kernels) {
    return cpu_roles_get(&n->src[SRC_ROLE], tdm_shape_rows(n->src[SRC_X].ne), kernels);
}

/* Bytes from one token to the next; 0 = floats are read where they are. */
static size_t x_pitch(const cpu_matmul_kernels *kernels, const cpu_view *x) {
    size_t pitch = cpu_matmul_x_size(kernels, x->ne[0]);
    if (pitch == 0 && x->nb[0] != (int64_t)sizeof(float))
        pitch = round_up_64((size_t)x->ne[0] * sizeof(float));
    return pitch;
}

/* The tokens of prompts for panels, behind those of the other kernels: those of matrix number
 * `head`. */
static cpu_panel_x *panel_x_get(const cpu_node *n, const cpu_matmul_kernels *kernels,
                                int64_t head) {
    const cpu_view *x = &n->src[SRC_X];
    int64_t n_row = tdm_shape_rows(x->ne), n_matrix = n->src[SRC_W].ne[2];
    size_t size = cpu_panel_x_size(n_row / n_matrix, x->ne[0]);
    return (cpu_panel_x *)(void *)(n->prepared + (size_t)n_row * x_pitch(kernels, x) +
                                   (size_t)head * size);
}

static void panel_x_make(const cpu_node *n, const cpu_matmul_kernels *kernels, int64_t row,
                         int64_t first, int64_t last) {
    const cpu_view *x = &n->src[SRC_X];
    const int64_t n_matrix = n->src[SRC_W].ne[2], token = row / n_matrix;
    cpu_panel_x *to = panel_x_get(n, kernels, row % n_matrix);
    const uint8_t *src = cpu_view_row(x, row) + first * x->nb[0];
    if (x->nb[0] == (int64_t)sizeof(float)) {
        cpu_panel_x_write(to, token, x->ne[0], n->device->isa, (const float *)(const void *)src,
                          first, last - first);
        return;
    }
    for (int64_t i = first; i < last; i += CPU_X_LEN, src += CPU_X_LEN * x->nb[0]) {
        float piece[CPU_X_LEN];
        units_gather(src, x->nb[0], sizeof(float), CPU_X_LEN, (uint8_t *)piece);
        cpu_panel_x_write(to, token, x->ne[0], n->device->isa, piece, i, CPU_X_LEN);
    }
}

static void x_make_run(const cpu_node *n, cpu_worker *w) {
    const cpu_view *x = &n->src[SRC_X];
    cpu_matmul_kernels kernels = kernels_of_node(n);
    cpu_roles roles = roles_of_node(n, &kernels);
    size_t pitch = x_pitch(&kernels, x);
    cpu_tile t = cpu_tile_share(n, w, tdm_shape_rows(x->ne), x->ne[0]);
    if (t.col_first >= t.col_last) return;
    for (int64_t i = t.row_first; i < t.row_last; i++) {
        const cpu_matmul_kernel *kernel = kernels.of[cpu_role_of(&roles, i)];
        if (kernel->unpack != NULL)
            panel_x_make(n, &kernels, i, t.col_first, t.col_last);
        else
            cpu_matmul_x_prepare(kernel, n->device->isa, x, i, t.col_first, t.col_last,
                                 n->prepared + (size_t)i * pitch);
    }
}

static int64_t x_make_share_unit(const cpu_node *n, int32_t arg) {
    const cpu_view *x = &n->src[1];
    if (arg != 1 || !cpu_view_is_dense(x)) return 0;
    return cpu_tile_unit(n, tdm_shape_rows(x->ne), x->ne[0]);
}

static const cpu_op_impl x_make = {.share_unit = x_make_share_unit, .run = x_make_run};

/* Panels have the tokens of each matrix by themselves. */
static bool x_is_same(const cpu_node *a, const cpu_node *b) {
    cpu_matmul_kernels p = kernels_of_node(a), q = kernels_of_node(b);
    if (has_panels(&p) && a->src[SRC_W].ne[2] != b->src[SRC_W].ne[2]) return false;
    return cpu_matmul_x_is_same(&p, &q);
}

static cpu_prepared matmul_prepared(const cpu_node *n) {
    const cpu_view *x = &n->src[SRC_X];
    const int64_t n_row = tdm_shape_rows(x->ne), n_matrix = n->src[SRC_W].ne[2];
    cpu_matmul_kernels kernels = kernels_of_node(n);
    size_t size = x_pitch(&kernels, x) * (size_t)n_row;
    if (has_panels(&kernels) && n_matrix > 0)
        size += cpu_panel_x_size(n_row / n_matrix, x->ne[0]) * (size_t)n_matrix;
    return (cpu_prepared){
        .maker = &x_make,
        .made_of = 1u << SRC_X,
        .reads = 1u << SRC_ROLE,
        .is_same = x_is_same,
        .size = size,
    };
}

/* ---- Multiplying ----------------------------------------------------------------------------- */

/* Fills a tile with the next tokens of that role, from number *t on; their outputs begin at row
 * `column` of the matrix. False where no token is left. */
static bool tile_fill(const cpu_node *n, const cpu_roles *roles, tdm_role role, int64_t head,
                      size_t pitch, int64_t column, int64_t *t, cpu_matmul_tile *tile) {
    int64_t n_matrix = n->src[SRC_W].ne[2], n_row = tdm_shape_rows(n->src[SRC_X].ne);
    tile->n_tok = 0;
    for (; tile->n_tok < CPU_MATMUL_TOK; (*t)++) {
        int64_t row = head + *t * n_matrix;
        if (row >= n_row) break;
        if (cpu_role_of(roles, row) != role) continue;
        tile->x[tile->n_tok] =
            pitch != 0 ? n->prepared + (size_t)row * pitch : cpu_view_row(&n->src[SRC_X], row);
        tile->y[tile->n_tok++] = (float *)(void *)cpu_view_row(&n->dst[0], row) + column;
    }
    return tile->n_tok > 0;
}

/* The next tokens of prompts of matrix number `head`, from number *t on, as tiles for panels; at
 * most `most`. Returns how many: 0 where no token is left. */
static int32_t panel_tiles_fill(const cpu_node *n, const cpu_matmul_kernels *kernels,
                                const cpu_roles *roles, int64_t head, int64_t *t,
                                cpu_panel_tile *tiles, int32_t most) {
    const int64_t k = n->src[SRC_X].ne[0], n_matrix = n->src[SRC_W].ne[2];
    const int64_t n_tok = tdm_shape_rows(n->src[SRC_X].ne) / n_matrix;
    const cpu_panel_x *x = panel_x_get(n, kernels, head);
    int32_t n_tile = 0;
    for (; *t < n_tok && n_tile < most; *t += CPU_PANEL_TOK) {
        cpu_panel_tile *tile = &tiles[n_tile];
        *tile = (cpu_panel_tile){.x = x + *t / CPU_PANEL_TOK * (k / CPU_X_LEN)};
        for (int32_t i = 0; i < CPU_PANEL_TOK && *t + i < n_tok; i++) {
            const int64_t row = head + (*t + i) * n_matrix;
            if (cpu_role_of(roles, row) != TDM_ROLE_PROMPT) continue;
            tile->y[i] = (float *)(void *)cpu_view_row(&n->dst[0], row);
            tile->n_tok = i + 1;
        }
        if (tile->n_tok > 0) n_tile++;
    }
    return n_tile;
}

static void panels_multiply(const cpu_node *n, const cpu_worker *w, const cpu_matmul_matrix *m,
                            const cpu_roles *roles, int64_t head, int64_t first, int64_t last) {
    enum {
        MOST = 16
    }; /* 512 tokens: unpacking again for more of them takes little of their time */
    uint8_t *scratch = n->scratch + cpu_panel_scratch_size(n->src[SRC_W].ne[0]) * (size_t)w->ith;
    cpu_panel_tile tiles[MOST];
    int32_t n_tile;
    int64_t t = 0;
    while ((n_tile = panel_tiles_fill(n, &m->kernels, roles, head, &t, tiles, MOST)) > 0)
        cpu_panel_groups(m, m->kernels.of[TDM_ROLE_PROMPT], first, last, tiles, n_tile, scratch);
}

/* Groups first .. last-1 of matrix number `head` times all its tokens: rows head, head + n_matrix
 * and so on of x; those of one role, then those of the other. Which tokens share a tile changes no
 * result. */
static void groups_multiply(const cpu_node *n, const cpu_worker *w, const cpu_matmul_matrix *m,
                            int64_t head, size_t pitch, int64_t first, int64_t last) {
    cpu_roles roles = roles_of_node(n, &m->kernels);
    bool is_first = true;
    for (int role = 0; role < (roles.data != NULL ? CPU_N_ROLE : 1); role++) {
        cpu_matmul_tile tile;
        if (m->kernels.of[role]->unpack != NULL) {
            panels_multiply(n, w, m, &roles, head, first, last);
            continue;
        }
        int64_t t = 0;
        while (tile_fill(n, &roles, (tdm_role)role, head, pitch, first * m->n_lane, &t, &tile)) {
            cpu_matmul_groups(m, (tdm_role)role, first, last, is_first, &tile);
            is_first = false;
        }
    }
}

/* The same for a plain matrix whose elements are not adjacent: each row is copied to `row`. */
static void strided_multiply(const cpu_node *n, const cpu_worker *w, const cpu_matmul_matrix *m,
                             int64_t head, size_t pitch, int64_t first, int64_t last,
                             uint8_t *row) {
    const cpu_view *weight = &n->src[SRC_W];
    size_t unit = (size_t)tdm_type_get_info(weight->type).block_size;
    for (int64_t j = first; j < last; j++) {
        cpu_matmul_matrix one = *m;
        units_gather(m->data + j * weight->nb[1], weight->nb[0], unit, m->n_block, row);
        one.data = row;
        one.group_pitch = 0; /* every group is the row just copied */
        groups_multiply(n, w, &one, head, pitch, j, j + 1);
    }
}

static cpu_matmul_matrix matrix_of(const cpu_node *n, int64_t head) {
    const cpu_view *w = &n->src[0];
    if (w->usage != 0) {
        cpu_weight_layout layout;
        if (cpu_weight_layout_get(n->device, w->type, w->usage, w->ne, &layout, NULL) == TDM_OK) {
            cpu_matmul_matrix m = cpu_matmul_matrix_get(n->device, &layout, w->data, head);
            m.kernels = kernels_of_node(n);
            return m;
        }
    }
    return (cpu_matmul_matrix){
        .kernels = kernels_of_node(n),
        .n_lane = 1,
        .type = w->type,
        .data = w->data + head * w->nb[2],
        .group_pitch = (size_t)w->nb[1],
        .n_block = w->ne[0] / tdm_type_get_info(w->type).block_len,
        .n_row = w->ne[1],
        .n_group = w->ne[1],
    };
}

/* Groups that stay in the cache while tokens are multiplied with them. */
static int64_t cached_count(const cpu_matmul_matrix *m) {
    int64_t least = has_panels(&m->kernels) ? 2 * CPU_PANEL_N : 1;
    int64_t n = m->group_pitch > 0 ? CACHED_SIZE / (int64_t)m->group_pitch : 0;
    return n > least ? n : least;
}

/* Groups first .. last-1 of one matrix, as many at a time as stay in the cache. */
static void matrix_multiply(const cpu_node *n, const cpu_worker *w, const cpu_matmul_matrix *m,
                            int64_t head, int64_t first, int64_t last) {
    const cpu_view *weight = &n->src[0];
    size_t pitch = x_pitch(&m->kernels, &n->src[1]);
    if (weight->usage == 0 && weight->nb[0] != tdm_type_get_info(m->type).block_size) {
        uint8_t *row = n->scratch + row_pitch(m->type, weight->ne[0]) * (size_t)w->ith;
        strided_multiply(n, w, m, head, pitch, first, last, row);
        return;
    }
    int64_t n_cached = cached_count(m);
    for (int64_t g = first; g < last; g += n_cached) {
        int64_t end = last - g < n_cached ? last : g + n_cached;
        groups_multiply(n, w, m, head, pitch, g, end);
    }
}

static bool matmul_claims(const cpu_node *n) {
    const cpu_view *w = &n->src[0];
    return tdm_shape_rows(n->src[1].ne) > w->ne[2] ||
           tdm_tensor_canonical_size(w->type, w->ne) >= CLAIMED_SIZE;
}

/* Rows assigned together: the unit of the readers of y, if no worker gets more rows for it. */
static int64_t row_unit(const cpu_node *n) {
    const cpu_view *w = &n->src[0];
    int64_t n_row = w->ne[1] * w->ne[2], share = n->unit * n->device->n_thread;
    bool is_even = share != 0 && n->unit % CPU_SHARE_UNIT == 0 && n_row % share == 0;
    return is_even && n->claims == NULL ? n->unit : CPU_SHARE_UNIT;
}

/* The rows of all matrices are assigned as one list, in whole groups: of one token that is a list
 * of the elements of y, unless a matrix's last group is not full and another matrix follows. */
static int64_t matmul_share_unit(const cpu_node *n, int32_t arg) {
    const cpu_view *w = &n->src[0];
    bool is_one = tdm_shape_rows(n->src[1].ne) == w->ne[2];
    bool is_list = w->ne[2] == 1 || w->ne[1] % CPU_MATMUL_LANE == 0;
    return arg == TDM_MAX_SRC && is_one && is_list && n->claims == NULL ? row_unit(n) : 0;
}

/* Groups that a worker claims at a time. With few tokens the pieces are small, so that the last
 * worker to finish is not far behind the others. With many tokens a piece stays in the cache while
 * all tokens pass. */
static int64_t piece_choose(const cpu_node *n, const cpu_matmul_matrix *m, int64_t unit) {
    int64_t share = m->n_group * n->src[0].ne[2] / n->device->n_thread;
    int64_t piece = share / N_PIECE;
    int64_t n_cached = cached_count(m);
    if (piece > n_cached && m->group_pitch > 0) piece = n_cached;
    return piece > unit ? piece / unit * unit : unit;
}

static void matmul_run(const cpu_node *n, cpu_worker *w) {
    cpu_matmul_matrix m = matrix_of(n, 0);
    int64_t first, last, n_group = m.n_group, head_before = 0;
    int64_t unit = row_unit(n) / m.n_lane;
    cpu_claim_walk walk =
        cpu_claims_walk(n->claims, w, n_group * n->src[0].ne[2], unit, piece_choose(n, &m, unit));
    while (cpu_claims_next(&walk, &first, &last)) {
        while (first < last) {
            /* A piece may begin and end inside a matrix. */
            int64_t head = first / n_group, end = (head + 1) * n_group;
            if (end > last) end = last;
            if (head != head_before) m = matrix_of(n, head);
            head_before = head;
            matrix_multiply(n, w, &m, head, first - head * n_group, end - head * n_group);
            first = end;
        }
    }
}

/* A reference device has reference kernels in the same table. */
const cpu_op_impl cpu_op_matmul = {
    .supports = matmul_supports,
    .scratch_size = matmul_scratch_size,
    .prepared = matmul_prepared,
    .share_unit = matmul_share_unit,
    .claims = matmul_claims,
    .run = matmul_run,
};
