/* SPDX-License-Identifier: MIT
 *
 * trial.c: see trial.h.
 *
 * How equal is equal: with sums in f32, an NMSE of 1e-6 on the fast path, where a cut along rows
 * changes how activations are rounded, and of 1e-8 on the reference path, where it changes nothing
 * but the order of sums. Where an output differs by more, the one device is given inputs with a
 * little noise: an output that changes as much, or is selected otherwise, is not held to the bound.
 */
#include "tests/split/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "quant/convert.h"
#include "tests/kernels/op_run.h"
#include "tests/split/declare.h"
#include "tests/split/random_data.h"
#include "tests/support/graph_print.h"
#include "core/stages/schedule_internal.h"

/* ---- What a side gave ---- */

typedef struct record {
    char label[64];
    tdm_type type;
    int64_t n;
    uint8_t *bytes;
} record;

typedef struct records {
    record *items;
    int n, capacity;
} records;

static void records_free(records *r) {
    for (int i = 0; i < r->n; i++) free(r->items[i].bytes);
    free(r->items);
    memset(r, 0, sizeof *r);
}

/* Room for a value's bytes, filled with what reads as NaN. */
static record *records_add(records *r, const tdm_value *v, const char *label) {
    if (r->n == r->capacity) {
        int capacity = r->capacity == 0 ? 32 : 2 * r->capacity;
        record *items = realloc(r->items, (size_t)capacity * sizeof *items);
        if (items == NULL) return NULL;
        r->items = items;
        r->capacity = capacity;
    }
    size_t size = (size_t)tdm_shape_rows(v->ne) * tdm_type_row_size((tdm_type)v->type, v->ne[0]);
    record *item = &r->items[r->n];
    *item = (record){.type = (tdm_type)v->type, .n = tdm_shape_count(v->ne)};
    snprintf(item->label, sizeof item->label, "%s", label);
    item->bytes = malloc(size + 8);
    if (item->bytes == NULL) return NULL;
    memset(item->bytes, 0xff, size);
    r->n++;
    return item;
}

static size_t record_size(const record *r) {
    return tdm_type_row_size(r->type, r->n);
}

/* ---- One side ---- */

typedef struct side {
    group_rig *rig;
    tdm_open_device *dev;
    choices *c;
    int32_t partition_base;
    double noise;
    const records *guide; /* whose exported rows are imported; NULL = its own */
    random_case facts;
    records *out;
    tdm_error *err;
    bool is_repeated; /* every step is run twice */
    bool is_coarse;   /* numbers are rounded inside */
    bool is_by_page;  /* a group's members have pages of their own */
    const group_topology *topology;
    int32_t n_declared; /* layouts that were */
} side;

static tdm_status page_size_of(void *context, const tdm_kv_desc *desc, uint64_t *size_out,
                               tdm_error *err) {
    const side *s = context;
    return tdm_open_device_kv_page_size(s->dev, desc, size_out, err);
}

/* For a graph that a group prepares before sizes are known. */
static tdm_status any_page_size(void *context, const tdm_kv_desc *desc, uint64_t *size_out,
                                tdm_error *err) {
    (void)context, (void)desc, (void)err;
    *size_out = 64;
    return TDM_OK;
}

static tdm_status graph_make(side *s, random_page_size_fn page_size, tdm_graph **graph_out) {
    uint32_t *drawn = malloc(CHOICES_MAX * sizeof *drawn);
    if (drawn == NULL) return tdm_fail(s->err, TDM_RESOURCE_EXHAUSTED, "no memory for choices");
    int n = s->c->n;
    memcpy(drawn, s->c->drawn, (size_t)n * sizeof *drawn);
    choices_replay(s->c, drawn, n);
    free(drawn);
    return random_graph_make(s->c, s->partition_base, page_size, s, &s->facts, graph_out, s->err);
}

static void *weight_make(void *context, const tdm_graph *graph, int32_t value) {
    const side *s = context;
    return random_weight(graph, value, s->facts.data_seed, s->noise);
}

enum { MAX_IO = 512 };

typedef struct io_list {
    tdm_io items[MAX_IO];
    void *owned[MAX_IO];
    int32_t n, n_owned;
} io_list;

static tdm_status out_of_memory(side *s) {
    return tdm_fail(s->err, TDM_RESOURCE_EXHAUSTED, "no memory for inputs and outputs");
}

static uint64_t value_size(const tdm_value *v) {
    return (uint64_t)tdm_shape_rows(v->ne) * tdm_type_row_size((tdm_type)v->type, v->ne[0]);
}

/* Inputs of step `at`; the step block is given. */
static tdm_status inputs_make(side *s, const tdm_graph *graph, int32_t at, int32_t *step,
                              io_list *io) {
    for (int32_t i = 0; i < graph->n_value && io->n < MAX_IO; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind != TDM_VALUE_INPUT) continue;
        void *data = step;
        if (i != graph->step) {
            data = random_input(graph, i, s->facts.data_seed, at, s->facts.n_row_max, s->noise);
            if (data == NULL) return out_of_memory(s);
            io->owned[io->n_owned++] = data;
        }
        io->items[io->n++] = (tdm_io){i, data, value_size(v)};
    }
    return TDM_OK;
}

static void inputs_free(io_list *io) {
    for (int32_t i = 0; i < io->n_owned; i++) free(io->owned[i]);
    free(io);
}

static tdm_status outputs_make(side *s, const tdm_graph *graph, records *out, const char *when,
                               int32_t at, io_list *io) {
    char label[64];
    for (int32_t i = 0; i < graph->n_value && io->n < MAX_IO; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind != TDM_VALUE_OUTPUT) continue;
        snprintf(label, sizeof label, "%.20s %s %d", tdm_graph_value_name(graph, i), when, (int)at);
        record *r = records_add(out, v, label);
        if (r == NULL) return out_of_memory(s);
        io->items[io->n++] = (tdm_io){i, r->bytes, value_size(v)};
    }
    return TDM_OK;
}

/* A repeated step must give the same bits. */
static tdm_status repeat(side *s, tdm_schedule *schedule, const io_list *in, int first) {
    const tdm_graph *graph = schedule->graph;
    records again = {0};
    io_list *out = calloc(1, sizeof *out);
    tdm_status status = out != NULL ? outputs_make(s, graph, &again, "", 0, out) : out_of_memory(s);
    if (status == TDM_OK)
        status = tdm_schedule_run(schedule, in->items, in->n, out->items, out->n, s->err);
    for (int i = 0; i < again.n && status == TDM_OK; i++) {
        const record *r = &s->out->items[first + i];
        if (memcmp(r->bytes, again.items[i].bytes, record_size(r)) != 0)
            status = tdm_fail(s->err, TDM_DATA_LOSS, "%s: run twice, other bits", r->label);
    }
    records_free(&again);
    free(out);
    return status;
}

static tdm_status step_run(side *s, tdm_schedule *schedule, int32_t at, int32_t *step) {
    const tdm_graph *graph = schedule->graph;
    io_list *in = calloc(1, sizeof *in), *out = calloc(1, sizeof *out);
    int first = s->out->n;
    tdm_status status = in != NULL && out != NULL ? TDM_OK : out_of_memory(s);
    if (status == TDM_OK) status = inputs_make(s, graph, at, step, in);
    if (status == TDM_OK) status = outputs_make(s, graph, s->out, "in step", at, out);
    if (status == TDM_OK)
        status = tdm_schedule_run(schedule, in->items, in->n, out->items, out->n, s->err);
    if (status == TDM_OK && s->is_repeated) status = repeat(s, schedule, in, first);
    free(out);
    if (in != NULL) inputs_free(in);
    return status;
}

/* ---- Upkeep of caches ---- */

static const record *record_find(const records *r, const char *label) {
    for (int i = 0; i < r->n; i++)
        if (strcmp(r->items[i].label, label) == 0) return &r->items[i];
    return NULL;
}

/* Exported rows that no job filled are whatever they are; here they are 0. */
static void rows_clear(const int32_t *step, const random_case *facts, int32_t cls, record *r) {
    const tdm_step_header *h = (const tdm_step_header *)(const void *)step;
    int64_t n_row = facts->n_page[cls] * facts->page_len[cls];
    size_t size = record_size(r) / (size_t)n_row;
    bool *is_filled = calloc((size_t)n_row + 1, sizeof *is_filled);
    if (is_filled == NULL) return;
    for (int32_t j = 0; j < h->n_job; j++) {
        tdm_page_job job;
        memcpy(&job, step + h->job_off + 4 * j, sizeof job);
        for (int32_t i = 0; job.page >= 0 && i < job.count; i++) is_filled[job.arg + i] = true;
    }
    for (int64_t i = 0; i < n_row; i++)
        if (!is_filled[i]) memset(r->bytes + (size_t)i * size, 0, size);
    free(is_filled);
}

static bool has_class(const random_case *facts, int32_t cls) {
    for (int i = 0; i < facts->n_state; i++)
        if (facts->states[i].desc.cls == cls &&
            (facts->states[i].desc.flags & TDM_KV_RECURRENT) == 0)
            return true;
    return false;
}

/* Rows as the guide exported them in this step. */
static tdm_status import_inputs(side *s, const tdm_graph *graph, int32_t at, int32_t *step,
                                io_list *in) {
    const records *from = s->guide != NULL ? s->guide : s->out;
    char label[64];
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind != TDM_VALUE_INPUT) continue;
        snprintf(label, sizeof label, "%.20s exported behind step %d",
                 tdm_graph_value_name(graph, i), (int)at);
        const record *r = i == graph->step ? NULL : record_find(from, label);
        if (i != graph->step && r == NULL)
            return tdm_fail(s->err, TDM_INTERNAL, "nothing called '%s'", label);
        in->items[in->n++] = (tdm_io){i, r != NULL ? (void *)r->bytes : step, value_size(v)};
    }
    return TDM_OK;
}

static tdm_status upkeep_run(side *s, group_load *load, random_cache *cache, random_upkeep kind,
                             int32_t at) {
    tdm_status status = TDM_OK;
    for (int32_t cls = 0; cls < RANDOM_MAX_CLASS && status == TDM_OK; cls++) {
        tdm_graph *graph = NULL;
        tdm_schedule *schedule = NULL;
        int32_t *step = random_cache_upkeep(cache, kind, cls);
        io_list *in = calloc(1, sizeof *in), *out = calloc(1, sizeof *out);
        int first = s->out->n;
        if (step == NULL || in == NULL || out == NULL) status = out_of_memory(s);
        if (status == TDM_OK && has_class(&s->facts, cls)) {
            status = random_upkeep_make(&s->facts, kind, cls, page_size_of, s, &graph, s->err);
            if (status == TDM_OK) status = group_load_schedule(load, graph, &schedule, s->err);
            if (status == TDM_OK && kind == RANDOM_IMPORT)
                status = import_inputs(s, graph, at, step, in);
            else if (status == TDM_OK)
                in->items[in->n++] =
                    (tdm_io){graph->step, step, value_size(tdm_graph_value(graph, graph->step))};
            if (status == TDM_OK)
                status = outputs_make(s, graph, s->out, "exported behind step", at, out);
            if (status == TDM_OK)
                status = tdm_schedule_run(schedule, in->items, in->n, out->items, out->n, s->err);
            for (int i = first; i < s->out->n; i++)
                rows_clear(step, &s->facts, cls, &s->out->items[i]);
        }
        tdm_schedule_destroy(schedule);
        free(step);
        free(in);
        free(out);
    }
    return status;
}

static tdm_status between_steps(side *s, group_load *load, random_cache *cache, int32_t at) {
    tdm_status status = TDM_OK;
    if (s->facts.shift != 0) status = upkeep_run(s, load, cache, RANDOM_SHIFT, at);
    if (status == TDM_OK && s->facts.moves_page && !s->is_by_page)
        status = upkeep_run(s, load, cache, RANDOM_COPY, at);
    /* From one member to another pages go as rows, as a context moves them
     * (llm/context_cache.c). */
    if (status == TDM_OK && (s->facts.reimports || (s->facts.moves_page && s->is_by_page))) {
        status = upkeep_run(s, load, cache, RANDOM_EXPORT, at);
        if (status == TDM_OK) status = upkeep_run(s, load, cache, RANDOM_IMPORT, at);
    }
    return status;
}

/* ---- A side from start to end ---- */

static tdm_status steps_run(side *s, group_load *load, tdm_schedule *schedule) {
    random_cache *cache = malloc(sizeof *cache);
    if (cache == NULL || !random_cache_begin(cache, &s->facts)) {
        free(cache);
        return out_of_memory(s);
    }
    tdm_status status = TDM_OK;
    for (int32_t at = 0; at < s->facts.n_step && status == TDM_OK; at++) {
        int32_t *step = s->facts.has_step ? random_cache_step(cache) : NULL;
        status =
            step != NULL || !s->facts.has_step ? step_run(s, schedule, at, step) : out_of_memory(s);
        free(step);
        if (status == TDM_OK && at + 1 < s->facts.n_step)
            status = between_steps(s, load, cache, at);
    }
    random_cache_end(cache);
    free(cache);
    return status;
}

/* Layouts of some values at random, of members that have a share. */
static tdm_status layouts_declare(side *s, const tdm_graph *graph) {
    const group_topology *t = s->topology;
    bool is_active[TDM_MAX_MEMBERS];
    for (int32_t d = 0; d < t->n_member; d++) is_active[d] = t->shares[d] > 0;
    return declare_some(s->dev, graph, s->facts.data_seed, t->n_declared, t->n_member, is_active,
                        &s->n_declared, s->err);
}

static tdm_status side_run(side *s) {
    tdm_graph *graph = NULL;
    group_load *load = NULL;
    tdm_schedule *schedule = NULL;
    tdm_status status = TDM_OK;
    if (tdm_open_device_is_group(s->dev)) {
        status = graph_make(s, any_page_size, &graph);
        if (status == TDM_OK) status = group_load_prepare(s->rig, s->dev, graph, s->err);
        tdm_graph_free(graph);
        graph = NULL;
    }
    if (status == TDM_OK) status = graph_make(s, page_size_of, &graph);
    if (status == TDM_OK)
        status = group_load_create(s->rig, s->dev, graph, weight_make, s, &load, s->err);
    if (status == TDM_OK && s->is_repeated)
        status = group_load_verify(load, graph, weight_make, s, s->err);
    if (status == TDM_OK && s->topology != NULL && s->topology->n_declared > 0)
        status = layouts_declare(s, graph);
    if (status == TDM_OK) {
        status = group_load_schedule(load, graph, &schedule, s->err);
        graph = NULL;
    }
    if (status == TDM_OK) status = steps_run(s, load, schedule);
    tdm_schedule_destroy(schedule);
    group_load_destroy(load);
    tdm_graph_free(graph);
    return status;
}

/* ---- Comparing ---- */

static double records_nmse(const record *got, const record *want) {
    if (got->type == TDM_TYPE_I32) {
        int64_t n = 0;
        for (int64_t i = 0; i < got->n * 4; i += 4)
            n += memcmp(got->bytes + i, want->bytes + i, 4) != 0;
        return (double)n;
    }
    size_t n = (size_t)got->n;
    float *x = malloc((n + 1) * sizeof *x), *y = malloc((n + 1) * sizeof *y);
    double nmse = INFINITY;
    if (x != NULL && y != NULL) {
        tdm_row_dequantize(got->type, got->bytes, x, got->n);
        tdm_row_dequantize(want->type, want->bytes, y, want->n);
        nmse = op_nmse(x, y, n);
    }
    free(x);
    free(y);
    return nmse;
}

typedef struct tolerance {
    double nmse, noise;
} tolerance;

static tolerance tolerance_of(const group_topology *t) {
    bool is_fast = strcmp(t->path, "fast") == 0;
    if (strcmp(t->reduce_type, "f16") == 0) return (tolerance){1e-5, 2e-3};
    if (strcmp(t->reduce_type, "f32") != 0) return (tolerance){1e-3, 2e-2};
    return is_fast ? (tolerance){1e-6, 2e-4} : (tolerance){1e-8, 2e-6};
}

/* Whether numbers are rounded inside the graph, so that a difference in the last bit can become one
 * of a step of a coarse type. */
static bool is_coarse(const tdm_graph *graph) {
    for (int32_t i = 0; i < graph->n_value; i++) {
        const tdm_value *v = tdm_graph_value(graph, i);
        if (v->kind == TDM_VALUE_TEMP && (v->type == TDM_TYPE_F16 || v->type == TDM_TYPE_BF16))
            return true;
    }
    for (int32_t i = 0; i < graph->n_kv; i++) {
        const tdm_kv_desc *d = tdm_graph_kv(graph, i);
        if (d->type_k != TDM_TYPE_F32 || d->type_v != TDM_TYPE_F32) return true;
    }
    return false;
}

/* Whether noise on the one device moves output i as much as the group did. A step of a coarse type
 * takes more noise to be met by chance; what is then allowed is still no more than such steps. */
static bool is_ill_posed(side *s, const records *want, int i, double nmse, double noise) {
    bool is_moved = false;
    int n_try = s->is_coarse ? 12 : 4;
    for (int n = 0; n < n_try && !is_moved; n++) {
        records moved = {0};
        tdm_error err = {0};
        side noisy = *s;
        noisy.out = &moved;
        noisy.err = &err;
        noisy.noise = noise * (n < 4 ? 1 + n : fmin(1 << n, 2e-3 / noise + n));
        noisy.guide = want;
        if (side_run(&noisy) == TDM_OK && moved.n == want->n) {
            double by = records_nmse(&moved.items[i], &want->items[i]);
            is_moved = want->items[i].type == TDM_TYPE_I32 ? by > 0 : by * 4 >= nmse;
        }
        records_free(&moved);
    }
    return is_moved;
}

/* The largest absolute value of an output, NaN left out; 0 for integers. *is_finite: it has no NaN
 * and no Inf. */
static float record_peak(const record *r, bool *is_finite) {
    float peak = 0, *x = r->type != TDM_TYPE_I32 ? malloc(((size_t)r->n + 1) * sizeof *x) : NULL;
    *is_finite = true;
    if (x != NULL && tdm_row_dequantize(r->type, r->bytes, x, r->n) == TDM_OK)
        for (int64_t i = 0; i < r->n; i++) {
            peak = fmaxf(peak, fabsf(x[i]));
            *is_finite = *is_finite && isfinite(x[i]);
        }
    free(x);
    return peak;
}

/* Whether output i of the group differs because a sum in f16, or in blocks with a scale in f16,
 * cannot carry its numbers. Too small ones: the one device gives none that is larger. Too large
 * ones: the group gives an Inf or a NaN, and the one device has numbers not far from the largest of
 * f16, 65504, in some output: it need not be this one, which a norm may have made from sums; and
 * addends may be larger than their sum. */
static bool is_beyond_f16(const group_topology *t, const records *got, const records *want, int i) {
    const float small = 1e-3f, large = 65504.0f / 16;
    bool is_f16 = strcmp(t->reduce_type, "f16") == 0 || strcmp(t->reduce_type, "q8_0") == 0;
    bool is_finite, ignored;
    if (!is_f16 || want->items[i].type == TDM_TYPE_I32) return false;
    (void)record_peak(&got->items[i], &is_finite);
    if (is_finite) return record_peak(&want->items[i], &ignored) < small;
    for (int k = 0; k < want->n; k++)
        if (record_peak(&want->items[k], &ignored) > large) return true;
    return false;
}

static void compare(side *single, const group_topology *t, const records *got, const records *want,
                    trial_result *out) {
    tolerance tol = tolerance_of(t);
    if (got->n != want->n) {
        snprintf(out->why, sizeof out->why, "%d outputs, not %d", got->n, want->n);
        return;
    }
    out->n_output = got->n;
    for (int i = 0; i < got->n; i++) {
        const record *g = &got->items[i], *w = &want->items[i];
        double nmse = records_nmse(g, w);
        if (nmse > out->worst && isfinite(nmse) && g->type != TDM_TYPE_I32) out->worst = nmse;
        /* Rows as stored may fall to the other side of a step. */
        double bound = tdm_type_get_info(g->type).is_quantized ? 100 * tol.nmse : tol.nmse;
        if (nmse <= bound) continue;
        if (is_beyond_f16(t, got, want, i) ||
            (isfinite(nmse) && is_ill_posed(single, want, i, nmse, tol.noise))) {
            out->is_ill_posed = true;
            continue;
        }
        snprintf(out->why, sizeof out->why, "output '%s' (%s): %s %.2e", g->label,
                 tdm_type_name(g->type), g->type == TDM_TYPE_I32 ? "elements that differ:" : "NMSE",
                 nmse);
        return;
    }
}

void trial_run(group_rig *rig, const group_topology *t, choices *c, int32_t partition_base,
               trial_result *out) {
    records want = {0}, got = {0};
    tdm_error err = {0};
    side single = {.rig = rig,
                   .dev = group_rig_single(rig),
                   .c = c,
                   .partition_base = partition_base,
                   .out = &want,
                   .err = &err,
                   .is_by_page = strcmp(t->attention, "sequence") == 0};
    memset(out, 0, sizeof *out);
    tdm_graph *graph = NULL;
    tdm_status status =
        random_graph_make(c, partition_base, any_page_size, NULL, &single.facts, &graph, &err);
    if (status == TDM_OK) {
        out->n_node = graph->n_node;
        single.is_coarse = is_coarse(graph) || strcmp(t->reduce_type, "f32") != 0;
    }
    tdm_graph_free(graph);
    if (status == TDM_OK) status = side_run(&single);
    if (status != TDM_OK) {
        snprintf(out->why, sizeof out->why, "on one device: %.500s", err.message);
    } else if (group_rig_group(rig) != NULL) {
        side group = single;
        group.dev = group_rig_group(rig);
        group.out = &got;
        group.guide = &want;
        group.is_repeated = true;
        group.topology = t;
        int n_warning = group_rig_n_warning(rig);
        status = side_run(&group);
        out->n_declared = group.n_declared;
        /* Refusals that are documented, with their reasons (docs/split-states.md). */
        out->is_refused = status == TDM_UNSUPPORTED && strcmp(t->attention, "sequence") == 0 &&
                          strstr(err.message, "cut by sequence; use attention") != NULL;
        if (out->is_refused)
            out->n_node = 0;
        else if (status != TDM_OK)
            snprintf(out->why, sizeof out->why, "on the group: %.500s", err.message);
        else if (group_rig_n_warning(rig) != n_warning)
            snprintf(out->why, sizeof out->why, "the group warns: %.500s", group_rig_warning(rig));
        else
            compare(&single, t, &got, &want, out);
    }
    records_free(&want);
    records_free(&got);
}

char *trial_print(choices *c) {
    random_case facts;
    tdm_graph *graph = NULL;
    uint32_t *drawn = malloc(CHOICES_MAX * sizeof *drawn);
    if (drawn == NULL) return NULL;
    int n = c->n;
    memcpy(drawn, c->drawn, (size_t)n * sizeof *drawn);
    choices_replay(c, drawn, n);
    free(drawn);
    if (random_graph_make(c, 0, any_page_size, NULL, &facts, &graph, NULL) != TDM_OK) return NULL;
    char *text = graph_print(graph);
    tdm_graph_free(graph);
    return text;
}
