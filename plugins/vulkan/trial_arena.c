/* SPDX-License-Identifier: MIT
 *
 * trial_arena.c: trials of the kernels of EXCHANGE: each phase on a small arena in the device's
 * memory. Members must get the same bits, so that results and arenas are compared byte by byte.
 */
#include <stdlib.h>
#include <string.h>

#include "plugins/gpu/plan/arena_scene.h"
#include "plugins/vulkan/trial.h"

/* The arena before an exchange, and after it; its results. */
typedef struct arena_result {
    uint8_t *arena; /* [arena_size] */
    void **out;     /* vk_trial_bytes of the outputs */
} arena_result;

static uint64_t arena_size(const gpu_excerpt *x) {
    return (uint64_t)x->values[GPU_ARENA_STATE].ne[0];
}

static bool result_begin(const gpu_excerpt *x, arena_result *r) {
    r->arena = malloc((size_t)arena_size(x) + 1);
    r->out = vk_trial_bytes(x, true);
    return r->arena != NULL && r->out != NULL && gpu_arena_fill(x, r->arena);
}

static void result_free(const gpu_excerpt *x, arena_result *r) {
    free(r->arena);
    vk_trial_bytes_free(r->out, x->graph.n_value);
}

/* Runs an excerpt on the device and takes over the steps; on the CPU where they are NULL. */
static tdm_status arena_run(vk_trial *trial, const gpu_excerpt *x, gpu_plan *steps, void *const *in,
                            arena_result *r, tdm_error *err) {
    const bool is_cpu = steps == NULL;
    const tdm_buffer_ops *ops = is_cpu ? trial->oracle.plugin->buffer : vk_trial_tables.buffer;
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = arena_size(x), .purpose = TDM_BUFFER_STATE};
    tdm_buffer *state = NULL;
    tdm_status status =
        ops->alloc(is_cpu ? trial->oracle.device : trial->device, &params, &state, err);
    if (status == TDM_OK) status = ops->upload(state, 0, r->arena, params.size, err);
    if (status != TDM_OK)
        gpu_plan_destroy(steps);
    else if (is_cpu)
        status = vk_trial_on_cpu(trial, x, state, in, r->out, err);
    else
        status = vk_trial_on_device(trial, x, steps, state, in, r->out, err);
    if (status == TDM_OK) status = ops->download(state, 0, r->arena, params.size, err);
    if (state != NULL) ops->free(state);
    return status;
}

static bool results_agree(const gpu_excerpt *x, const arena_result *got, const arena_result *want) {
    if (memcmp(got->arena, want->arena, (size_t)arena_size(x)) != 0) return false;
    for (int32_t i = 0; i < x->graph.n_value; i++) {
        const tdm_value *v = &x->values[i];
        if (got->out[i] != NULL && memcmp(got->out[i], want->out[i],
                                          tdm_tensor_canonical_size((tdm_type)v->type, v->ne)) != 0)
            return false;
    }
    return true;
}

/* Runs an excerpt on both and compares. Takes over the steps. */
static vk_verdict arena_try(vk_trial *trial, const gpu_excerpt *x, gpu_plan *steps) {
    arena_result got = {NULL, NULL}, want = {NULL, NULL};
    tdm_error err = {0};
    void **in = vk_trial_bytes(x, false);
    bool has_memory = in != NULL && result_begin(x, &got) && result_begin(x, &want);
    tdm_status status = TDM_RESOURCE_EXHAUSTED;
    vk_verdict verdict = VK_VERDICT_NONE;
    if (has_memory) status = arena_run(trial, x, NULL, in, &want, &err);
    if (status == TDM_OK)
        status = arena_run(trial, x, steps, in, &got, &err);
    else
        gpu_plan_destroy(steps);
    if (status == TDM_OK)
        verdict = results_agree(x, &got, &want) ? VK_VERDICT_RIGHT : VK_VERDICT_WRONG;
    vk_trial_bytes_free(in, x->graph.n_value);
    result_free(x, &got);
    result_free(x, &want);
    return verdict;
}

vk_trial_result vk_trial_arena(vk_trial *trial, const tdm_graph *graph, const gpu_step *step) {
    vk_trial_result result = {.verdict = VK_VERDICT_UNTRIED};
    gpu_target target;
    gpu_excerpt *x = gpu_arena_excerpt(graph, step, &trial->lacks_memory);
    vk_verdicts_target(trial->device, &target);
    gpu_plan *steps = x != NULL ? vk_trial_plan(trial, &target, x, step) : NULL;
    if (steps != NULL) {
        result.tried = vk_trial_steps(steps->steps, steps->n_step);
        result.verdict = arena_try(trial, x, steps);
    }
    gpu_excerpt_free(x);
    return result;
}
