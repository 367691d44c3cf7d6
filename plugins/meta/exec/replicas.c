/* SPDX-License-Identifier: MIT
 *
 * replicas.c: see replicas.h. deliver.c reads the members' bytes.
 */
#include "plugins/meta/exec/replicas.h"

#include <math.h>
#include <string.h>

#include "quant/convert.h"
#include "plugins/meta/exec/deliver.h"

/* The tolerance between members of different kinds. Rounding activations to 8 bits moves an element
 * by about 0.01 of the root mean square, and seldom by 0.05. */
#define RMS_TOLERANCE   0.1
#define VALUE_TOLERANCE 0.02

enum { CHUNK = 1024 }; /* elements at a time; whole blocks of every type */

/* One variant after a run. */
typedef struct comparison {
    const meta_plan *plan;
    const meta_variant *variant;
    const tdm_layout *layout;
    const tdm_value *value;
    bool is_exact;
    double rms; /* of the numbers of member `a` */
    const uint8_t *bytes[TDM_MAX_MEMBERS];
    tdm_error *err;
} comparison;

static const char *member_name(const comparison *k, int32_t d) {
    return k->plan->device->members[d].name;
}

static bool is_number(tdm_type type) {
    return tdm_type_get_info(type).is_quantized || type == TDM_TYPE_F32 || type == TDM_TYPE_F16 ||
           type == TDM_TYPE_BF16;
}

static bool is_close(const comparison *k, float a, float b) {
    if (a == b || (isnan(a) && isnan(b))) return true;
    return fabs((double)a - (double)b) <=
           RMS_TOLERANCE * k->rms + VALUE_TOLERANCE * fabs((double)a);
}

/* The first element of a chunk that differs by more than is allowed, and its two values; -1 = none.
 * The chunks are not equal by bits. */
static int64_t chunk_differs(const comparison *k, const uint8_t *a, const uint8_t *b, int64_t n,
                             float *a_out, float *b_out) {
    const tdm_type type = (tdm_type)k->value->type;
    float x[CHUNK], y[CHUNK];
    size_t size = tdm_type_row_size(type, n) / (size_t)n;
    *a_out = *b_out = 0;
    for (int64_t i = 0; i < n && !is_number(type); i++) {
        if (memcmp(a + (size_t)i * size, b + (size_t)i * size, size) == 0) continue;
        int32_t ints[2] = {0, 0};
        memcpy(&ints[0], a + (size_t)i * size, size < sizeof *ints ? size : sizeof *ints);
        memcpy(&ints[1], b + (size_t)i * size, size < sizeof *ints ? size : sizeof *ints);
        *a_out = (float)ints[0];
        *b_out = (float)ints[1];
        return i;
    }
    if (!is_number(type)) return -1;
    tdm_row_dequantize(type, a, x, n);
    tdm_row_dequantize(type, b, y, n);
    for (int64_t i = 0; i < n; i++) {
        if (k->is_exact ? memcmp(&x[i], &y[i], sizeof *x) == 0 : is_close(k, x[i], y[i])) continue;
        *a_out = x[i];
        *b_out = y[i];
        return i;
    }
    return k->is_exact ? 0 : -1; /* the blocks differ, but their numbers are equal */
}

/* Compares n elements of members a and b. a_off and b_off are offsets in their parts, `whole` is
 * the offset in the value, for the message. */
static tdm_status run_compare(const comparison *k, int32_t a, int32_t b, int64_t a_off,
                              int64_t b_off, int64_t whole, int64_t n) {
    const tdm_type type = (tdm_type)k->value->type;
    for (int64_t at = 0; at < n; at += CHUNK) {
        int64_t len = n - at < CHUNK ? n - at : CHUNK;
        const uint8_t *p = k->bytes[a] + tdm_type_row_size(type, a_off + at);
        const uint8_t *q = k->bytes[b] + tdm_type_row_size(type, b_off + at);
        float x, y;
        if (memcmp(p, q, tdm_type_row_size(type, len)) == 0) continue;
        int64_t i = chunk_differs(k, p, q, len, &x, &y);
        if (i < 0) continue;
        return tdm_fail(
            k->err, TDM_DATA_LOSS,
            "check = replicas: '%s' (value %d): members '%s' and '%s' have %.9g and "
            "%.9g at element %lld of %lld, %s",
            tdm_graph_value_name(k->plan->graph, k->variant->value), (int)k->variant->value,
            member_name(k, a), member_name(k, b), (double)x, (double)y, (long long)(whole + at + i),
            (long long)tdm_shape_count(k->value->ne),
            k->is_exact ? "which must be equal by bits" : "which is more than rounding explains");
    }
    return TDM_OK;
}

/* Compares the elements of a split value that both members hold. */
static tdm_status overlap_compare(const comparison *k, int32_t a, int32_t b) {
    const tdm_layout *l = k->layout;
    int64_t n_unit = 0, held[2] = {0, 0};
    tdm_status status = TDM_OK;
    for (int32_t s = 0; s < l->n_segment; s++) {
        n_unit += l->segments[s].n_unit;
        held[0] += l->segments[s].hi[a] - l->segments[s].lo[a];
        held[1] += l->segments[s].hi[b] - l->segments[s].lo[b];
    }
    /* Both hold everything: the pattern may then be a single element, which is less than a block of
     * a quantised type, so the value is compared as a whole. */
    if (held[0] == n_unit && held[1] == n_unit)
        return run_compare(k, a, b, 0, 0, 0, l->outer * n_unit * l->inner);
    for (int64_t o = 0; o < l->outer; o++) {
        int64_t whole = o * n_unit, a_off = o * held[0], b_off = o * held[1];
        for (int32_t s = 0; s < l->n_segment && status == TDM_OK; s++) {
            const tdm_layout_segment *t = &l->segments[s];
            int64_t lo = t->lo[a] > t->lo[b] ? t->lo[a] : t->lo[b];
            int64_t hi = t->hi[a] < t->hi[b] ? t->hi[a] : t->hi[b];
            if (lo < hi)
                status = run_compare(k, a, b, (a_off + lo - t->lo[a]) * l->inner,
                                     (b_off + lo - t->lo[b]) * l->inner, (whole + lo) * l->inner,
                                     (hi - lo) * l->inner);
            whole += t->n_unit;
            a_off += t->hi[a] - t->lo[a];
            b_off += t->hi[b] - t->lo[b];
        }
    }
    return status;
}

/* The root mean square of the numbers of a member's part. */
static double rms_of(const comparison *k, int32_t d) {
    const tdm_type type = (tdm_type)k->value->type;
    int64_t n =
        tdm_shape_count(meta_part_value(&k->plan->members[d].part, k->variant->local[d])->ne);
    double sum = 0;
    float x[CHUNK];
    for (int64_t at = 0; at < n && is_number(type); at += CHUNK) {
        int64_t len = n - at < CHUNK ? n - at : CHUNK;
        tdm_row_dequantize(type, k->bytes[d] + tdm_type_row_size(type, at), x, len);
        for (int64_t i = 0; i < len; i++)
            if (isfinite(x[i])) sum += (double)x[i] * (double)x[i];
    }
    return n > 0 ? sqrt(sum / (double)n) : 0;
}

static tdm_status variant_check(meta_plan *plan, int32_t variant, tdm_error *err) {
    const meta_device *device = plan->device;
    const meta_variant *f = &plan->variants[variant];
    comparison k = {.plan = plan,
                    .variant = f,
                    .layout = &plan->layouts.layouts[f->layout],
                    .value = tdm_graph_value(plan->graph, f->value),
                    .err = err};
    bool is_split = k.layout->kind == TDM_LAYOUT_SPLIT;
    tdm_status status = TDM_OK;
    k.is_exact = device->is_uniform || (!is_split && k.layout->replica == TDM_REPLICA_EXACT);
    for (int32_t d = 0; d < device->n_member && status == TDM_OK; d++)
        if (meta_part_is_keepable(&plan->members[d].part, f->local[d]))
            status = meta_part_fetch(plan, d, f->local[d], &k.bytes[d], err);
    for (int32_t b = 1, first = -1; b < device->n_member && status == TDM_OK; b++) {
        for (int32_t a = 0; first < 0 && a < b; a++)
            if (k.bytes[a] != NULL) first = a;
        if (first < 0 || k.bytes[b] == NULL) continue;
        for (int32_t a = first; a < b && status == TDM_OK; a++) {
            if (k.bytes[a] == NULL || (!is_split && a != first)) continue;
            if (!k.is_exact) k.rms = rms_of(&k, a);
            status = is_split ? overlap_compare(&k, a, b)
                              : run_compare(&k, a, b, 0, 0, 0, tdm_shape_count(k.value->ne));
        }
    }
    return status;
}

tdm_status meta_replicas_check(meta_plan *plan, tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < plan->n_check && status == TDM_OK; i++)
        status = variant_check(plan, plan->checks[i], err);
    return status;
}
