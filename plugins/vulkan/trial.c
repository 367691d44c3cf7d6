/* SPDX-License-Identifier: MIT
 *
 * trial.c: runs a small graph on the device and on the CPU's reference path, and compares.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/ops/quantize.h"
#include "plugins/vulkan/pipeline.h"
#include "plugins/vulkan/plan.h"
#include "plugins/vulkan/trial.h"
#include "quant/convert.h"

enum { MAX_COUNT = 1 << 25 /* elements of a trial */, MAX_WORK = 1 << 27 /* multiply-adds */ };

/* Normalised mean squared error up to which results agree: far above that of rounding in any type,
 * quantised activations included (1e-4), and below that of one wrong row among some hundreds. */
static const double max_nmse = 1e-3;
/* Share of ids that may differ: where two scores are nearly equal, device and CPU may choose
 * differently. */
static const double max_other_ids = 0.02;

const tdm_plugin vk_trial_tables = {
    .struct_size = sizeof(tdm_plugin), .name = "vulkan", .buffer = &vk_buffer_ops};

vk_trial *vk_trial_create(vk_device *device) {
    vk_trial *trial = calloc(1, sizeof *trial);
    if (trial != NULL) trial->device = device;
    return trial;
}

void vk_trial_destroy(vk_trial *trial) {
    if (trial == NULL) return;
    vk_oracle_close(&trial->oracle);
    free(trial);
}

/* ---- Bytes of values ------------------------------------------------------------------------- */

void vk_trial_bytes_free(void **bytes, int32_t n) {
    for (int32_t i = 0; bytes != NULL && i < n; i++) free(bytes[i]);
    free(bytes);
}

void **vk_trial_bytes(const gpu_excerpt *x, bool is_output) {
    int32_t n = x->graph.n_value;
    void **bytes = calloc((size_t)n + 1, sizeof *bytes);
    for (int32_t i = 0; bytes != NULL && i < n; i++) {
        const tdm_value *v = &x->values[i];
        bool is_read = v->kind == TDM_VALUE_INPUT || v->kind == TDM_VALUE_WEIGHT;
        bool is_wanted = is_output ? v->kind == TDM_VALUE_OUTPUT : is_read;
        if (v->slot < 0 || !is_wanted) continue;
        bytes[i] = calloc(1, tdm_tensor_canonical_size((tdm_type)v->type, v->ne) + 1);
        if (bytes[i] != NULL && (is_output || gpu_excerpt_fill(x, i, bytes[i]))) continue;
        vk_trial_bytes_free(bytes, n);
        return NULL;
    }
    return bytes;
}

static tdm_status outputs_read(const vk_slots *slots, const gpu_excerpt *x, void **out,
                               tdm_error *err) {
    tdm_status status = TDM_OK;
    for (int32_t i = 0; i < x->graph.n_value && status == TDM_OK; i++)
        if (out[i] != NULL) status = vk_slots_read(slots, x, i, out[i], err);
    return status;
}

/* ---- Running --------------------------------------------------------------------------------- */

tdm_status vk_trial_on_cpu(vk_trial *trial, const gpu_excerpt *x, tdm_buffer *state,
                           void *const *in, void **out, tdm_error *err) {
    const vk_oracle *oracle = &trial->oracle;
    vk_slots slots;
    tdm_status status = vk_slots_make(oracle->plugin, oracle->device, x, state, in, &slots, err);
    if (status == TDM_OK)
        status = oracle->plugin->device->graph_compute_sync(oracle->device, &x->graph,
                                                            slots.bindings, slots.n_slot, err);
    if (status == TDM_OK) status = outputs_read(&slots, x, out, err);
    vk_slots_free(&slots);
    return status;
}

tdm_status vk_trial_on_device(vk_trial *trial, const gpu_excerpt *x, gpu_plan *steps,
                              tdm_buffer *state, void *const *in, void **out, tdm_error *err) {
    vk_device *device = trial->device;
    vk_slots slots;
    tdm_queue *queue = NULL;
    tdm_plan *plan = NULL;
    tdm_status status = vk_slots_make(&vk_trial_tables, device, x, state, in, &slots, err);
    if (status == TDM_OK) status = vk_queue_ops.create(device, &queue, err);
    if (status == TDM_OK)
        status = vk_queue_plan(queue, steps, &plan, err);
    else
        gpu_plan_destroy(steps);
    if (status == TDM_OK) {
        const vk_first_run run = vk_verdicts_run_begin(device, steps);
        status = vk_queue_run(queue, plan, slots.bindings, slots.n_slot, err);
        vk_verdicts_run_end(device, &run);
    }
    if (status == TDM_OK) status = outputs_read(&slots, x, out, err);
    vk_plan_destroy(plan);
    vk_queue_ops.destroy(queue);
    vk_slots_free(&slots);
    return status;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

bool vk_trial_floats_agree(tdm_type type, const uint8_t *got, const uint8_t *want, int64_t n) {
    float a[256], b[256];
    size_t size = tdm_type_row_size(type, 256);
    double error = 0, sum = 0;
    for (int64_t i = 0; i < n; i += 256, got += size, want += size) {
        int64_t count = n - i < 256 ? n - i : 256;
        if (tdm_row_dequantize(type, got, a, count) != TDM_OK ||
            tdm_row_dequantize(type, want, b, count) != TDM_OK)
            return true;
        for (int64_t k = 0; k < count; k++) {
            if (isnan(b[k]) && isnan(a[k])) continue;
            if (isnan(a[k]) || isnan(b[k])) return false;
            if (isinf(a[k]) || isinf(b[k])) {
                if (a[k] != b[k]) return false;
                continue;
            }
            error += ((double)a[k] - b[k]) * ((double)a[k] - b[k]);
            sum += (double)b[k] * b[k];
        }
    }
    return error <= max_nmse * sum || error < 1e-20;
}

bool vk_trial_ids_agree(const int32_t *got, const int32_t *want, int64_t n) {
    int64_t n_other = 0;
    for (int64_t i = 0; i < n; i++) n_other += got[i] != want[i];
    return (double)n_other <= max_other_ids * (double)n;
}

static bool outputs_agree(const gpu_excerpt *x, void *const *got, void *const *want) {
    for (int32_t i = 0; i < x->graph.n_value; i++) {
        const tdm_value *v = &x->values[i];
        int64_t n = tdm_shape_count(v->ne);
        if (got[i] == NULL || tdm_type_get_info((tdm_type)v->type).is_quantized) continue;
        if (v->type == TDM_TYPE_I32 ? !vk_trial_ids_agree(got[i], want[i], n)
                                    : !vk_trial_floats_agree((tdm_type)v->type, got[i], want[i], n))
            return false;
    }
    return true;
}

/* ---- A trial --------------------------------------------------------------------------------- */

/* Runs an excerpt on both and compares. Takes over the steps. VK_VERDICT_NONE where it could not
 * run. */
static vk_verdict excerpt_try(vk_trial *trial, const gpu_excerpt *x, gpu_plan *steps) {
    int32_t n = x->graph.n_value;
    void **in = vk_trial_bytes(x, false), **got = vk_trial_bytes(x, true),
         **want = vk_trial_bytes(x, true);
    vk_verdict verdict = VK_VERDICT_NONE;
    tdm_error err = {0};
    tdm_status status = TDM_RESOURCE_EXHAUSTED;
    if (in != NULL && got != NULL && want != NULL)
        status = vk_trial_on_cpu(trial, x, NULL, in, want, &err);
    if (status == TDM_OK)
        status = vk_trial_on_device(trial, x, steps, NULL, in, got, &err);
    else
        gpu_plan_destroy(steps);
    if (status == TDM_OK)
        verdict = outputs_agree(x, got, want) ? VK_VERDICT_RIGHT : VK_VERDICT_WRONG;
    vk_trial_bytes_free(in, n);
    vk_trial_bytes_free(got, n);
    vk_trial_bytes_free(want, n);
    return verdict;
}

static bool has_pipeline(const vk_device *device, const gpu_plan *steps, const gpu_step *step) {
    uint64_t hash = vk_pipeline_hash(device, step);
    for (int32_t i = 0; i < steps->n_step; i++)
        if (vk_pipeline_hash(device, &steps->steps[i]) == hash) return true;
    return false;
}

gpu_plan *vk_trial_plan(vk_trial *trial, const gpu_target *target, const gpu_excerpt *x,
                        const gpu_step *step) {
    vk_device *device = trial->device;
    gpu_plan *steps = NULL;
    tdm_status status = device->instance->host->graph->verify(&x->graph, NULL);
    if (status == TDM_OK) status = gpu_plan_create(target, &x->graph, &steps, NULL);
    if (status == TDM_RESOURCE_EXHAUSTED) trial->lacks_memory = true;
    if (status != TDM_OK) return NULL;
    if (has_pipeline(device, steps, step)) return steps;
    gpu_plan_destroy(steps);
    return NULL;
}

gpu_plan *vk_trial_steps(const gpu_step *steps, int32_t n) {
    gpu_plan *copy = calloc(1, sizeof *copy);
    if (copy == NULL) return NULL;
    copy->steps = malloc(((size_t)n + 1) * sizeof *copy->steps);
    if (copy->steps == NULL) {
        gpu_plan_destroy(copy);
        return NULL;
    }
    memcpy(copy->steps, steps, (size_t)n * sizeof *copy->steps);
    copy->n_step = n;
    return copy;
}

static bool has_oracle(vk_trial *trial) {
    const tdm_host *host = trial->device->instance->host;
    if (!TDM_HAS(host, graph)) return false;
    if (trial->oracle.library == NULL && !trial->has_no_oracle)
        trial->has_no_oracle = vk_oracle_open(host, &trial->oracle, NULL) != TDM_OK;
    return !trial->has_no_oracle;
}

/* ---- Steps that store bytes ------------------------------------------------------------------ */

static bool reads_bytes(const gpu_step *step) {
    return step->kernel == GPU_KERNEL_PRODUCT_ROW_DOT ||
           step->kernel == GPU_KERNEL_PRODUCT_TILE_DOT;
}

int32_t vk_trial_product(const gpu_plan *plan, const gpu_step *step) {
    if (!gpu_step_stores_bytes(step)) return -1;
    for (const gpu_step *s = step + 1; s < plan->steps + plan->n_step; s++)
        for (int i = 0; i < GPU_MAX_OPERAND && reads_bytes(s); i++)
            if (gpu_kernel_writes(step->kernel, i) &&
                gpu_operands_overlap(&step->operand[i], &s->operand[2]))
                return s->spec[0];
    return TDM_TYPE_Q8_0;
}

void vk_trial_bytes_target(gpu_target *target) {
    target->product.dot_one_k = 1;
}

gpu_plan *vk_trial_bytes_suspects(const gpu_step *step, const gpu_plan *tried, vk_verdict apart) {
    for (int32_t i = 0; i < tried->n_step && apart == VK_VERDICT_WRONG; i++)
        if (reads_bytes(&tried->steps[i])) return vk_trial_steps(&tried->steps[i], 1);
    return vk_trial_steps(step, 1);
}

/* The verdict on an excerpt in which a separate step stores the bytes. */
static vk_verdict apart_try(vk_trial *trial, const gpu_target *target, const gpu_excerpt *x) {
    gpu_target apart = *target;
    gpu_plan *steps = NULL;
    apart.product.rows_quantize = false;
    if (gpu_plan_create(&apart, &x->graph, &steps, NULL) != TDM_OK) return VK_VERDICT_NONE;
    return excerpt_try(trial, x, steps);
}

/* ---- Steps of values ------------------------------------------------------------------------- */

/* An excerpt of the nodes of a step, with a product by a weight of type `product` where that is not
 * -1. NULL as of gpu_excerpt_make. */
static gpu_excerpt *values_excerpt(vk_trial *trial, const tdm_graph *graph, const uint8_t *has_step,
                                   int32_t node, int32_t product, bool is_small) {
    gpu_excerpt *x = gpu_excerpt_make(graph, has_step, node, is_small, &trial->lacks_memory);
    if (x == NULL || product < 0) return x;
    const tdm_node *last = &x->nodes[x->graph.n_node - 1];
    gpu_excerpt_multiply(x, x->values[last->dst[0]].ne[0], (tdm_type)product);
    return x;
}

/* The trial of a step whose node uses neither a cache nor an arena: on small shapes or, where these
 * give another pipeline, on those of the node. */
static vk_trial_result values_trial(vk_trial *trial, const tdm_graph *graph,
                                    const uint8_t *has_step, const gpu_plan *plan,
                                    const gpu_step *step) {
    vk_trial_result result = {.verdict = VK_VERDICT_UNTRIED};
    const int32_t product = vk_trial_product(plan, step);
    gpu_target target;
    vk_verdicts_target(trial->device, &target);
    if (product >= 0) {
        vk_trial_bytes_target(&target);
        target.matrix_rows = 0; /* on matrix hardware, products read f16 instead of bytes */
    }
    for (int small = 1; small >= 0; small--) {
        gpu_excerpt *x = values_excerpt(trial, graph, has_step, step->node, product, small);
        gpu_plan *steps = NULL;
        if (x != NULL && gpu_excerpt_count(x) <= MAX_COUNT && gpu_excerpt_work(x) <= MAX_WORK)
            steps = vk_trial_plan(trial, &target, x, step);
        if (steps != NULL) {
            gpu_plan *tried = vk_trial_steps(steps->steps, steps->n_step);
            result.tried = tried;
            result.verdict = excerpt_try(trial, x, steps);
            if (result.verdict == VK_VERDICT_WRONG && product >= 0 && tried != NULL) {
                result.tried = vk_trial_bytes_suspects(step, tried, apart_try(trial, &target, x));
                gpu_plan_destroy(tried);
            }
        }
        gpu_excerpt_free(x);
        if (steps != NULL) return result;
    }
    return result;
}

static bool is_of_cache(int32_t kernel) {
    switch (kernel) {
#define KERNEL_CASE(NAME, ...) case GPU_KERNEL_##NAME:
        GPU_KERNEL_LIST_CACHE(KERNEL_CASE)
        GPU_KERNEL_LIST_RECURRENT(KERNEL_CASE) return true;
#undef KERNEL_CASE
    default: return false;
    }
}

static bool is_of_arena(int32_t kernel) {
    return kernel == GPU_KERNEL_WIRE_STORE || kernel == GPU_KERNEL_WIRE_SUM ||
           kernel == GPU_KERNEL_WIRE_COPY;
}

vk_trial_result vk_trial_run(vk_trial *trial, const tdm_graph *graph, const uint8_t *has_step,
                             const gpu_plan *plan, const gpu_step *step) {
    vk_trial_result result = {.verdict = VK_VERDICT_NONE};
    if (!has_oracle(trial)) return result;
    trial->lacks_memory = false;
    if (is_of_arena(step->kernel))
        result = vk_trial_arena(trial, graph, step);
    else if (is_of_cache(step->kernel))
        result = vk_trial_cache(trial, graph, plan, step);
    else
        result = values_trial(trial, graph, has_step, plan, step);
    /* "No graph uses the pipeline" holds for good. With more memory there may be one. */
    if (result.verdict == VK_VERDICT_UNTRIED && trial->lacks_memory)
        result.verdict = VK_VERDICT_NONE;
    return result;
}
