/* SPDX-License-Identifier: MIT
 *
 * case_move.c: views and data movement: test graphs and references.
 */
#include "certify/trial.h"

static int32_t input(certify_trial *t, tdm_type type, int64_t n0, int64_t n1, int64_t n2,
                     int64_t n3) {
    return tdm_build_input(t->b, "x", type, (const int64_t[]){n0, n1, n2, n3});
}

static const tdm_type plain_types[] = {TDM_TYPE_F32, TDM_TYPE_F16, TDM_TYPE_BF16, TDM_TYPE_I32};
enum { N_PLAIN = sizeof plain_types / sizeof plain_types[0] };

/* RESHAPE and COPY: the same elements in canonical order. */
static void same(const certify_operands *o) {
    for (int64_t i = 0; i < certify_array_count(&o->dst[0]); i++) o->dst[0].x[i] = o->src[0].x[i];
}

/* A view has no memory of its own, so a COPY makes each view a value that can be read. */
static void reshape_cases(certify_trial *t) {
    for (int i = 0; i < N_PLAIN; i++) {
        tdm_type type = plain_types[i];
        if (!certify_trial_begin(t, 0, "reshape of %s [6, 5, 4]", tdm_type_name(type))) return;
        t->id_hi = 1000;
        int32_t y = tdm_build_reshape(t->b, input(t, type, 6, 5, 4, 1), 3, 20, 1, 2);
        certify_trial_end(t, tdm_build_copy(t->b, y, type));
    }
}

CERTIFY_OP(
    reshape, "op.reshape", reshape_cases, same,
    "op.h: Views: \"no bytes move; the device derives the strides. The source may itself be a "
    "view\"")

static void permute_cases(certify_trial *t) {
    static const int orders[][4] = {{1, 0, 2, 3}, {2, 0, 1, 3}, {0, 2, 1, 3}, {3, 2, 1, 0}};
    for (int i = 0; i < N_PLAIN; i++)
        for (size_t k = 0; k < sizeof orders / sizeof orders[0]; k++) {
            tdm_type type = plain_types[i];
            if (!certify_trial_begin(t, 0, "permute %d %d %d %d of %s [7, 3, 2, 5]", orders[k][0],
                                     orders[k][1], orders[k][2], orders[k][3], tdm_type_name(type)))
                return;
            t->id_hi = 1000;
            int32_t y = tdm_build_permute(t->b, input(t, type, 7, 3, 2, 5), orders[k][0],
                                          orders[k][1], orders[k][2], orders[k][3]);
            certify_trial_end(t, tdm_build_copy(t->b, y, type));
        }
}

static void permute(const certify_operands *o) {
    const int32_t *axis = o->node->params.permute.axis;
    CERTIFY_EACH(i, &o->src[0]) {
        int64_t to[4];
        for (int k = 0; k < 4; k++) to[axis[k]] = i[k];
        certify_array_set(&o->dst[0], to, certify_array_get(&o->src[0], i));
    }
}

CERTIFY_OP(
    permute, "op.permute", permute_cases, permute,
    "op.h: Views: \"no bytes move; the device derives the strides. The source may itself be a "
    "view\"")

static void slice_cases(certify_trial *t) {
    for (int i = 0; i < N_PLAIN; i++) {
        tdm_type type = plain_types[i];
        const char *name = tdm_type_name(type);
        if (certify_trial_begin(t, 0, "slice of %s [9, 4, 3, 2]", name)) {
            t->id_hi = 1000;
            int32_t y =
                tdm_build_slice(t->b, input(t, type, 9, 4, 3, 2), (const int64_t[]){2, 1, 1, 0},
                                (const int64_t[]){5, 2, 2, 2});
            certify_trial_end(t, tdm_build_copy(t->b, y, type));
        }
        if (certify_trial_begin(t, 0, "slice of a permute of a slice of %s [8, 6, 5]", name)) {
            t->id_hi = 1000;
            int32_t y =
                tdm_build_slice(t->b, input(t, type, 8, 6, 5, 1), (const int64_t[]){1, 2, 0, 0},
                                (const int64_t[]){6, 4, 5, 1});
            y = tdm_build_permute(t->b, y, 1, 2, 0, 3);
            y = tdm_build_slice(t->b, y, (const int64_t[]){1, 0, 1, 0},
                                (const int64_t[]){4, 5, 2, 1});
            certify_trial_end(t, tdm_build_copy(t->b, y, type));
        }
    }
}

static void slice(const certify_operands *o) {
    const int64_t *offset = o->node->params.slice.offset;
    CERTIFY_EACH(i, &o->dst[0]) {
        int64_t from[4];
        for (int k = 0; k < 4; k++) from[k] = offset[k] + i[k];
        certify_array_set(&o->dst[0], i, certify_array_get(&o->src[0], from));
    }
}

CERTIFY_OP(
    slice, "op.slice", slice_cases, slice,
    "op.h: Views: \"no bytes move; the device derives the strides. The source may itself be a "
    "view\"")

static void copy_cases(certify_trial *t) {
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {33, 3, 2, 1}, {7, 5, 1, 3}, {0, 4, 1, 1}};
    /* Narrowing rounds to nearest. The bounds are of half a unit in the last place. */
    for (int from = 0; from < N_PLAIN; from++)
        for (int to = 0; to < N_PLAIN; to++) {
            tdm_type a = plain_types[from], b = plain_types[to];
            double nmse = a == b || b == TDM_TYPE_F32 ? 0 : b == TDM_TYPE_F16 ? 3e-7 : 2e-5;
            if ((a == TDM_TYPE_I32) != (b == TDM_TYPE_I32)) continue;
            for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++)
                if (certify_trial_begin(t, nmse, "copy of %s to %s [%d, %d, %d, %d]",
                                        tdm_type_name(a), tdm_type_name(b), (int)shapes[s][0],
                                        (int)shapes[s][1], (int)shapes[s][2], (int)shapes[s][3])) {
                    t->id_lo = INT32_MIN;
                    t->id_hi = INT32_MAX;
                    int32_t x = tdm_build_input(t->b, "x", a, shapes[s]);
                    certify_trial_end(t, tdm_build_copy(t->b, x, b));
                }
        }
}

CERTIFY_OP(copy, "op.copy", copy_cases, same,
           "op.h: COPY: \"x (any view, f32 f16 bf16 i32) -> contiguous y of y's type\"")

static void concat_cases(certify_trial *t) {
    for (int i = 0; i < N_PLAIN; i++)
        for (int axis = 0; axis < 4; axis++) {
            int64_t ne[4] = {5, 3, 2, 2};
            if (!certify_trial_begin(t, 0, "concat of %s along axis %d",
                                     tdm_type_name(plain_types[i]), axis))
                return;
            t->id_hi = 1000;
            int32_t x = tdm_build_input(t->b, "a", plain_types[i], ne);
            ne[axis] = 4;
            int32_t y = tdm_build_input(t->b, "b", plain_types[i], ne);
            certify_trial_end(t, tdm_build_concat(t->b, x, y, axis));
        }
    if (certify_trial_begin(t, 0, "concat of nothing and f32 [4, 2]")) {
        int32_t x = input(t, TDM_TYPE_F32, 4, 0, 1, 1), y = input(t, TDM_TYPE_F32, 4, 2, 1, 1);
        certify_trial_end(t, tdm_build_concat(t->b, x, y, 1));
    }
    if (certify_trial_begin(t, 0, "concat of a permuted f32")) {
        int32_t x = tdm_build_permute(t->b, input(t, TDM_TYPE_F32, 3, 5, 1, 1), 1, 0, 2, 3);
        certify_trial_end(t, tdm_build_concat(t->b, x, input(t, TDM_TYPE_F32, 5, 2, 1, 1), 1));
    }
}

static void concat(const certify_operands *o) {
    int axis = o->node->params.concat.axis;
    CERTIFY_EACH(i, &o->dst[0]) {
        int64_t from[4] = {i[0], i[1], i[2], i[3]};
        bool is_first = i[axis] < o->src[0].ne[axis];
        if (!is_first) from[axis] -= o->src[0].ne[axis];
        certify_array_set(&o->dst[0], i, certify_array_get(&o->src[is_first ? 0 : 1], from));
    }
}

CERTIFY_OP(concat, "op.concat", concat_cases, concat,
           "op.h: CONCAT: \"a, b -> y: a then b along axis\"")

static void repeat_cases(certify_trial *t) {
    static const int64_t sizes[][2][4] = {
        {{5, 3, 2, 1}, {5, 3, 2, 1}},  {{5, 3, 2, 1}, {15, 3, 4, 2}},
        {{1, 1, 1, 1}, {33, 2, 1, 3}}, {{64, 1, 7, 1}, {64, 8, 7, 1}},
        {{4, 3, 1, 1}, {8, 0, 1, 1}},  {{4, 0, 1, 1}, {8, 0, 1, 1}}};
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
        const int64_t *from = sizes[s][0], *to = sizes[s][1];
        if (!certify_trial_begin(t, 0, "repeat of [%d, %d, %d, %d] to [%d, %d, %d, %d]",
                                 (int)from[0], (int)from[1], (int)from[2], (int)from[3], (int)to[0],
                                 (int)to[1], (int)to[2], (int)to[3]))
            return;
        int32_t x = tdm_build_input(t->b, "x", TDM_TYPE_F32, from);
        certify_trial_end(t, tdm_build_repeat(t->b, x, to));
    }
    if (certify_trial_begin(t, 0, "repeat of a permuted x")) {
        int32_t x = tdm_build_permute(t->b, input(t, TDM_TYPE_F32, 3, 5, 2, 1), 1, 0, 2, 3);
        certify_trial_end(t, tdm_build_repeat(t->b, x, (const int64_t[]){10, 3, 6, 1}));
    }
}

static void repeat_reference(const certify_operands *o) {
    CERTIFY_EACH(i, &o->dst[0]) {
        int64_t from[4];
        for (int k = 0; k < 4; k++) from[k] = i[k] % o->src[0].ne[k];
        certify_array_set(&o->dst[0], i, certify_array_get(&o->src[0], from));
    }
}

CERTIFY_OP(repeat, "op.repeat", repeat_cases, repeat_reference,
           "op.h: REPEAT: \"y[i] = x[i mod x.ne] along each axis\"")

static void get_rows_cases(certify_trial *t) {
    for (size_t i = 0; i < n_certify_weight_types; i++)
        for (int usage = 0; usage < 2; usage++)
            for (int first = 0; first < 2; first++) {
                tdm_type type = certify_weight_types[i];
                int64_t len = tdm_type_get_info(type).block_len;
                if (!certify_trial_begin(t, 1e-12, "get_rows of %s%s, first_row %d",
                                         tdm_type_name(type), usage ? " (private)" : "",
                                         first * 40))
                    return;
                t->id_lo = -1; /* foreign ids on both sides */
                t->id_hi = first ? 60 : 20;
                int32_t table = tdm_build_weight(
                    t->b, "table", type, (const int64_t[]){len == 1 ? 19 : 2 * len, 17, 1, 1},
                    usage ? TDM_USAGE_ROWS : 0);
                int32_t id = tdm_build_input(t->b, "id", TDM_TYPE_I32,
                                             (const int64_t[]){first ? 90 : 33, 1, 1, 1});
                certify_trial_end(t, tdm_build_get_rows(t->b, table, id, first * 40));
            }
    if (certify_trial_begin(t, 0, "get_rows of no row")) {
        int32_t table = tdm_build_weight(t->b, "table", TDM_TYPE_F32, (const int64_t[]){8, 4, 1, 1},
                                         TDM_USAGE_ROWS);
        certify_trial_end(t,
                          tdm_build_get_rows(t->b, table, input(t, TDM_TYPE_I32, 0, 1, 1, 1), 0));
    }
}

static void get_rows(const certify_operands *o) {
    CERTIFY_EACH(i, &o->dst[0]) {
        double row = o->src[1].x[i[1]] - (double)o->node->params.rows.first_row;
        bool is_foreign = row < 0 || row >= (double)o->src[0].ne[1];
        certify_array_set(&o->dst[0], i,
                          is_foreign ? 0 : *certify_array_at(&o->src[0], i[0], (int64_t)row, 0, 0));
    }
}

CERTIFY_OP(
    get_rows, "op.get-rows", get_rows_cases, get_rows,
    "op.h: GET_ROWS: \"row id - first_row of the table; a foreign id […] gives a row of zeros\"")
