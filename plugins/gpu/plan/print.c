/* SPDX-License-Identifier: MIT
 *
 * print.c: see print.h.
 */
#include "plugins/gpu/plan/print.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- Values of slots ------------------------------------------------------------------------- */

int32_t *gpu_slot_values(const tdm_graph *graph) {
    int32_t *values = malloc(((size_t)graph->n_slot + 1) * sizeof *values);
    if (values == NULL) return NULL;
    for (int32_t i = 0; i < graph->n_slot; i++) values[i] = -1;
    for (int32_t i = 0; i < graph->n_value; i++) {
        int32_t slot = tdm_graph_value(graph, i)->slot;
        if (slot >= 0) values[slot] = i;
    }
    return values;
}

const char *gpu_slot_name(const tdm_graph *graph, const int32_t *values, int32_t slot) {
    return values[slot] < 0 ? "" : tdm_graph_value_name(graph, values[slot]);
}

/* ---- Costs ----------------------------------------------------------------------------------- */

typedef struct cost {
    int64_t n_step, n_barrier;
    uint64_t weights, temporaries, others; /* bytes */
} cost;

enum { LAYER_NONE = -1, LAYER_UNKNOWN = -2, LAYER_LIMIT = 65536 };

/* The layer of a value's name; LAYER_NONE where it names none. */
static int32_t layer_of_name(const char *name) {
    char *end = NULL;
    if (strncmp(name, "blk.", 4) != 0) return LAYER_NONE;
    long layer = strtol(name + 4, &end, 10);
    return end == name + 4 || layer < 0 || layer >= LAYER_LIMIT ? LAYER_NONE : (int32_t)layer;
}

/* The layer whose weight or state the step touches; LAYER_UNKNOWN where it touches none. */
static int32_t layer_of_step(const gpu_step *s, const tdm_graph *graph, const int32_t *values) {
    int32_t layer = LAYER_UNKNOWN;
    for (int k = 0; k < GPU_MAX_OPERAND; k++) {
        const gpu_operand *o = &s->operand[k];
        if (o->space != GPU_SPACE_SLOT || values[o->index] < 0) continue;
        int32_t kind = tdm_graph_value(graph, values[o->index])->kind;
        if (kind != TDM_VALUE_WEIGHT && kind != TDM_VALUE_STATE) continue;
        int32_t found = layer_of_name(gpu_slot_name(graph, values, o->index));
        if (found > layer) layer = found;
    }
    return layer;
}

static void cost_add(cost *c, const gpu_step *s, const tdm_graph *graph, const int32_t *values) {
    c->n_step++;
    c->n_barrier += s->has_barrier;
    for (int k = 0; k < GPU_MAX_OPERAND; k++) {
        const gpu_operand *o = &s->operand[k];
        int32_t kind = o->space == GPU_SPACE_SLOT && values[o->index] >= 0
                           ? tdm_graph_value(graph, values[o->index])->kind
                           : TDM_VALUE_TEMP;
        if (o->space == GPU_SPACE_SCRATCH)
            c->temporaries += o->size;
        else if (kind == TDM_VALUE_WEIGHT)
            c->weights += s->weight_size != 0 ? s->weight_size : o->size;
        else if (kind != TDM_VALUE_STATE && o->space != GPU_SPACE_NONE)
            c->others += o->size;
    }
}

static bool cost_is_equal(const cost *a, const cost *b) {
    return a->n_step == b->n_step && a->n_barrier == b->n_barrier && a->weights == b->weights &&
           a->temporaries == b->temporaries && a->others == b->others;
}

static void cost_print(FILE *out, const char *what, const cost *c) {
    fprintf(out,
            "%s: %lld dispatches, %lld barriers, %llu bytes of weights, %llu of temporaries, "
            "%llu of inputs and outputs\n",
            what, (long long)c->n_step, (long long)c->n_barrier, (unsigned long long)c->weights,
            (unsigned long long)c->temporaries, (unsigned long long)c->others);
}

/* costs[0] is of no layer, costs[1 + l] of layer l. */
static void costs_print(FILE *out, const cost *costs, int32_t n_layer) {
    cost sum = {0};
    char what[64];
    for (int32_t i = 0, next; i <= n_layer; i = next) {
        for (next = i + 1; i > 0 && next <= n_layer && cost_is_equal(&costs[i], &costs[next]);)
            next++;
        if (i == 0)
            snprintf(what, sizeof what, "outside layers");
        else if (next == i + 1)
            snprintf(what, sizeof what, "layer %d", (int)i - 1);
        else
            snprintf(what, sizeof what, "layers %d to %d, each", (int)i - 1, (int)next - 2);
        cost_print(out, what, &costs[i]);
        for (int32_t k = i; k < next; k++) {
            sum.n_step += costs[k].n_step;
            sum.n_barrier += costs[k].n_barrier;
            sum.weights += costs[k].weights;
            sum.temporaries += costs[k].temporaries;
            sum.others += costs[k].others;
        }
    }
    cost_print(out, "all", &sum);
}

/* Layers of steps by their emission number, in `layers`; how many layers there are. */
static int32_t layers_find(const gpu_plan *plan, const tdm_graph *graph, const int32_t *values,
                           int32_t *layers) {
    int32_t n_layer = 0, last = LAYER_NONE;
    for (int32_t i = 0; i < plan->n_step; i++)
        layers[plan->steps[i].order] = layer_of_step(&plan->steps[i], graph, values);
    for (int32_t i = 0; i < plan->n_step; i++) {
        if (layers[i] == LAYER_UNKNOWN) layers[i] = last;
        last = layers[i];
        if (last >= n_layer) n_layer = last + 1;
    }
    return n_layer;
}

char *gpu_plan_cost_text(const gpu_plan *plan, const tdm_graph *graph) {
    char *text = NULL;
    size_t size = 0;
    int32_t *values = gpu_slot_values(graph);
    int32_t *layers = calloc((size_t)plan->n_step + 1, sizeof *layers);
    if (values != NULL && layers != NULL) {
        int32_t n_layer = layers_find(plan, graph, values, layers);
        cost *costs = calloc((size_t)n_layer + 1, sizeof *costs);
        FILE *out = costs == NULL ? NULL : open_memstream(&text, &size);
        if (out != NULL) {
            for (int32_t i = 0; i < plan->n_step; i++)
                cost_add(&costs[layers[plan->steps[i].order] + 1], &plan->steps[i], graph, values);
            costs_print(out, costs, n_layer);
            if (fclose(out) != 0) {
                free(text);
                text = NULL;
            }
        }
        free(costs);
    }
    free(values);
    free(layers);
    return text;
}

void gpu_plan_cost_log(const gpu_plan *plan, const tdm_graph *graph, const tdm_host *host,
                       const char *name) {
    if (!TDM_HAS(host, log)) return;
    char *text = gpu_plan_cost_text(plan, graph), *rest = text, *line;
    while (text != NULL && (line = strtok_r(rest, "\n", &rest)) != NULL)
        host->log(host->context, TDM_LOG_DEBUG, "%s: plan of %d tokens: %s", name,
                  (int)graph->step_caps.n_tok, line);
    free(text);
}
