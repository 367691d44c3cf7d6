/* SPDX-License-Identifier: MIT
 *
 * trial_cache.c: trials of the kernels of ATTENTION and of the other ops on a cache, recurrent
 * states included. A kernel is tried by itself: the host puts canonical rows into the device's
 * pages and reads them out again, and the CPU imports and exports the same rows.
 */
#include <stdlib.h>
#include <string.h>

#include "core/base/op_state.h"
#include "plugins/gpu/layout/page.h"
#include "plugins/gpu/ops/quantize.h"
#include "plugins/gpu/plan/scene.h"
#include "plugins/vulkan/pipeline.h"
#include "plugins/vulkan/trial.h"

enum { N_SIDE = 2, K = 0, V = 1 };

/* One node on one scene. */
typedef struct cache_case {
    vk_trial *trial;
    const tdm_graph *graph;
    int32_t node;
    int32_t rope;    /* the ROPE node that is fused into it; -1 = none */
    int32_t product; /* tdm_type of the weight of a product of what it gives; -1 = none */
    gpu_scene_size size;
    gpu_scene scene;
    gpu_page page;
    gpu_excerpt *excerpt; /* of the device */
    tdm_type type[N_SIDE];
    size_t row_size[N_SIDE]; /* bytes of a canonical row; 0 where V is part of K */
    int64_t n_row;           /* n_cell * n_head_kv */
    /* Canonical rows [n_row], owned: of the cache before the node ran, and after it on the device
     * and on the CPU. NULL = not there yet, or V is part of K */
    uint8_t *before[N_SIDE], *device[N_SIDE], *cpu[N_SIDE];
} cache_case;

static void case_free(cache_case *c) {
    gpu_excerpt_free(c->excerpt);
    for (int i = 0; i < N_SIDE; i++) {
        free(c->before[i]);
        free(c->device[i]);
        free(c->cpu[i]);
    }
    *c = (cache_case){0};
}

/* ---- A case ---------------------------------------------------------------------------------- */

/* The ROPE node that is fused into a node, so that it has no step of its own. -1 = none. */
static int32_t rope_find(const tdm_graph *graph, const gpu_plan *plan, int32_t node) {
    const tdm_node *reader = tdm_graph_node(graph, node);
    if (reader->op != TDM_OP_ATTENTION && reader->op != TDM_OP_KV_WRITE) return -1;
    for (int32_t i = node - 1; i >= 0; i--) {
        const tdm_node *rope = tdm_graph_node(graph, i);
        if (rope->op != TDM_OP_ROPE || rope->dst[0] != reader->src[0]) continue;
        for (int32_t k = 0; k < plan->n_step; k++)
            if (plan->steps[k].node == i && plan->steps[k].kernel == GPU_KERNEL_ROPE) return -1;
        return i;
    }
    return -1;
}

/* Makes the scene and the device's excerpt. False where there are none, or without memory. The
 * caller frees the case with case_free, also then. */
static bool case_begin(vk_trial *trial, const tdm_graph *graph, int32_t rope, int32_t product,
                       int32_t node, gpu_scene_size size, cache_case *c) {
    *c = (cache_case){.trial = trial,
                      .graph = graph,
                      .node = node,
                      .rope = rope,
                      .product = product,
                      .size = size};
    if (!gpu_scene_plan(graph, node, size, &c->scene) ||
        gpu_page_get(&trial->device->target, &c->scene.desc, &c->page, NULL) != TDM_OK)
        return false;
    const tdm_kv_desc *d = &c->scene.desc;
    c->n_row = (int64_t)c->scene.n_cell * d->n_head_kv;
    c->type[K] = d->type_k;
    c->type[V] = d->type_v;
    c->row_size[K] = tdm_type_row_size(d->type_k, tdm_kv_padded(d->type_k, d->head_dim_k));
    if (!c->page.v_from_k)
        c->row_size[V] = tdm_type_row_size(d->type_v, tdm_kv_padded(d->type_v, d->head_dim_v));
    c->excerpt =
        gpu_scene_node(&c->scene, graph, node, c->rope, c->product, (uint64_t)c->page.page_size);
    if (c->excerpt == NULL) trial->lacks_memory = true;
    return c->excerpt != NULL;
}

/* ---- On the CPU ------------------------------------------------------------------------------ */

/* Runs an import into all pages of `state`, or an export of them. rows[N_SIDE] get the rows that
 * the import read or the export wrote, for the caller to free. */
static tdm_status rows_run(cache_case *c, bool is_import, uint64_t page_size, tdm_buffer *state,
                           uint8_t **rows, tdm_error *err) {
    gpu_excerpt *x = gpu_scene_rows(&c->scene, is_import, page_size);
    void **in = x != NULL ? vk_trial_bytes(x, false) : NULL;
    void **out = x != NULL ? vk_trial_bytes(x, true) : NULL;
    tdm_status status = TDM_RESOURCE_EXHAUSTED;
    if (in != NULL && out != NULL) status = vk_trial_on_cpu(c->trial, x, state, in, out, err);
    void **from = is_import ? in : out;
    for (int i = 0; i < N_SIDE && status == TDM_OK && c->row_size[i] > 0; i++) {
        rows[i] = from[GPU_SCENE_K + i];
        from[GPU_SCENE_K + i] = NULL;
    }
    if (x != NULL) vk_trial_bytes_free(in, x->graph.n_value);
    if (x != NULL) vk_trial_bytes_free(out, x->graph.n_value);
    gpu_excerpt_free(x);
    return status;
}

/* Runs the node on the CPU: imports rows into a cache, runs the node on it, exports the rows. Fills
 * c->before and c->cpu. */
static tdm_status cpu_run(cache_case *c, void *const *in, void **out, tdm_error *err) {
    const vk_oracle *oracle = &c->trial->oracle;
    tdm_buffer_params params = {.struct_size = sizeof params, .purpose = TDM_BUFFER_STATE};
    tdm_buffer *state = NULL;
    uint64_t page_size = 0;
    tdm_status status =
        oracle->plugin->buffer->kv_page_size(oracle->device, &c->scene.desc, &page_size, err);
    if (status != TDM_OK) return status;
    gpu_excerpt *x = gpu_scene_node(&c->scene, c->graph, c->node, c->rope, c->product, page_size);
    if (x == NULL) return TDM_RESOURCE_EXHAUSTED;
    params.size = page_size * (uint64_t)c->scene.n_page;
    status = oracle->plugin->buffer->alloc(oracle->device, &params, &state, err);
    if (status == TDM_OK) status = rows_run(c, true, page_size, state, c->before, err);
    if (status == TDM_OK) status = vk_trial_on_cpu(c->trial, x, state, in, out, err);
    if (status == TDM_OK) status = rows_run(c, false, page_size, state, c->cpu, err);
    if (state != NULL) oracle->plugin->buffer->free(state);
    gpu_excerpt_free(x);
    return status;
}

/* ---- On the device --------------------------------------------------------------------------- */

/* The slot, in tokens, of a page that row `row` belongs to; -1 for a row before the page's first
 * token (gpu_scene_rows). */
static int32_t token_slot(const cache_case *c, int64_t row) {
    const int64_t cell = row / c->page.n_head_kv;
    const int32_t before = c->scene.pitch - c->page.page_len;
    const int32_t at = (int32_t)(cell % c->scene.pitch);
    return at < before ? -1 : at - before;
}

/* Moves all rows into pages (is_put), or out of them. */
static void pages_move(const cache_case *c, uint8_t *pages, uint8_t *const *rows, bool is_put) {
    const gpu_page *p = &c->page;
    for (int side = 0; side < N_SIDE && rows[side] != NULL; side++)
        for (int64_t i = 0; i < c->n_row; i++) {
            int64_t cell = i / p->n_head_kv, head = i % p->n_head_kv;
            uint8_t *region = pages + cell / c->scene.pitch * p->page_size + head * p->head_size;
            uint8_t *row = rows[side] + (size_t)i * c->row_size[side];
            int32_t slot = token_slot(c, i) / p->stride;
            if ((cell + 1) % p->stride != 0) { /* as KV_EXPORT and KV_IMPORT do */
                if (!is_put) memset(row, 0, c->row_size[side]);
                continue;
            }
            if (is_put)
                gpu_page_row_put(p, region, slot, side == V, row);
            else
                gpu_page_row_get(p, region, slot, side == V, row);
        }
}

/* Runs the node on the device, on a cache that holds the rows c->before. Fills c->device. Takes
 * over the steps. */
static tdm_status device_run(cache_case *c, gpu_plan *steps, void *const *in, void **out,
                             tdm_error *err) {
    const tdm_buffer_ops *ops = vk_trial_tables.buffer;
    const uint64_t size = (uint64_t)c->page.page_size * (uint64_t)c->scene.n_page;
    const tdm_buffer_params params = {
        .struct_size = sizeof params, .size = size, .purpose = TDM_BUFFER_STATE};
    tdm_buffer *state = NULL;
    uint8_t *pages = calloc(1, (size_t)size);
    bool has_memory = pages != NULL;
    for (int i = 0; i < N_SIDE && c->row_size[i] > 0; i++) {
        c->device[i] = malloc((size_t)c->n_row * c->row_size[i] + 1);
        has_memory = has_memory && c->device[i] != NULL;
    }
    tdm_status status = has_memory ? TDM_OK : TDM_RESOURCE_EXHAUSTED;
    if (status == TDM_OK) {
        pages_move(c, pages, c->before, true);
        status = ops->alloc(c->trial->device, &params, &state, err);
    }
    if (status == TDM_OK) status = ops->upload(state, 0, pages, size, err);
    if (status == TDM_OK)
        status = vk_trial_on_device(c->trial, c->excerpt, steps, state, in, out, err);
    else
        gpu_plan_destroy(steps);
    if (status == TDM_OK) status = ops->download(state, 0, pages, size, err);
    if (status == TDM_OK) pages_move(c, pages, c->device, false);
    if (state != NULL) ops->free(state);
    free(pages);
    return status;
}

/* ---- Comparing ------------------------------------------------------------------------------- */

/* Compares the rows of K or of V after the node ran. Rows that the node does not change or only
 * moves must have equal bits. Rows that it computes must agree together, since a number between two
 * codes may become either. VK_VERDICT_NONE without memory. */
static vk_verdict side_judge(const cache_case *c, int side) {
    const int32_t op = tdm_graph_node(c->graph, c->node)->op;
    const size_t size = c->row_size[side];
    bool is_exact = !tdm_op_writes_state(op) || op == TDM_OP_KV_COPY || op == TDM_OP_KV_IMPORT;
    bool agrees = true;
    int64_t n_changed = 0;
    uint8_t *got = malloc((size_t)c->n_row * size + 1), *want = malloc((size_t)c->n_row * size + 1);
    const bool has_memory = got != NULL && want != NULL;
    for (int64_t i = 0; i < c->n_row && has_memory; i++) {
        if (token_slot(c, i) < 0) continue;
        const uint8_t *device = c->device[side] + (size_t)i * size;
        const uint8_t *cpu = c->cpu[side] + (size_t)i * size;
        if (is_exact || memcmp(cpu, c->before[side] + (size_t)i * size, size) == 0) {
            if (memcmp(device, cpu, size) != 0) agrees = false;
            continue;
        }
        memcpy(got + (size_t)n_changed * size, device, size);
        memcpy(want + (size_t)n_changed++ * size, cpu, size);
    }
    tdm_type_info info = tdm_type_get_info(c->type[side]);
    int64_t n = (int64_t)size / info.block_size * info.block_len * n_changed;
    if (has_memory && !vk_trial_floats_agree(c->type[side], got, want, n)) agrees = false;
    free(got);
    free(want);
    if (!has_memory) return VK_VERDICT_NONE;
    return agrees ? VK_VERDICT_RIGHT : VK_VERDICT_WRONG;
}

static bool outputs_agree(const cache_case *c, void *const *got, void *const *want) {
    const gpu_excerpt *x = c->excerpt;
    for (int32_t i = 0; i < x->graph.n_value; i++) {
        const tdm_value *v = &x->values[i];
        if (got[i] == NULL) continue;
        size_t size = tdm_tensor_canonical_size((tdm_type)v->type, v->ne);
        bool is_exact = tdm_graph_node(c->graph, c->node)->op == TDM_OP_KV_EXPORT;
        if (v->type == TDM_TYPE_I32) {
            if (!vk_trial_ids_agree(got[i], want[i], tdm_shape_count(v->ne))) return false;
            continue;
        }
        if (is_exact ? memcmp(got[i], want[i], size) != 0
                     : !vk_trial_floats_agree((tdm_type)v->type, got[i], want[i],
                                              tdm_shape_count(v->ne)))
            return false;
    }
    return true;
}

/* Runs a case on both and compares. Takes over the steps. */
static vk_verdict case_try(cache_case *c, gpu_plan *steps) {
    const int32_t n = c->excerpt->graph.n_value;
    void **in = vk_trial_bytes(c->excerpt, false), **got = vk_trial_bytes(c->excerpt, true);
    void **want = vk_trial_bytes(c->excerpt, true);
    vk_verdict verdict = VK_VERDICT_NONE;
    tdm_error err = {0};
    tdm_status status = TDM_RESOURCE_EXHAUSTED;
    if (in != NULL && got != NULL && want != NULL) status = cpu_run(c, in, want, &err);
    if (status == TDM_OK)
        status = device_run(c, steps, in, got, &err);
    else
        gpu_plan_destroy(steps);
    if (status == TDM_OK)
        verdict = outputs_agree(c, got, want) ? side_judge(c, K) : VK_VERDICT_WRONG;
    if (verdict == VK_VERDICT_RIGHT && c->row_size[V] > 0) verdict = side_judge(c, V);
    vk_trial_bytes_free(in, n);
    vk_trial_bytes_free(got, n);
    vk_trial_bytes_free(want, n);
    return verdict;
}

/* ---- A trial --------------------------------------------------------------------------------- */

/* How many pipelines of `list` are not in `plan`: each must be compiled for the trial. */
static int32_t pipelines_new(const vk_device *device, const gpu_plan *list, const gpu_plan *plan) {
    int32_t n = 0;
    for (int32_t i = 0; i < list->n_step; i++) {
        uint64_t hash = vk_pipeline_hash(device, &list->steps[i]);
        bool is_there = false;
        for (int32_t k = 0; k < plan->n_step && !is_there; k++)
            is_there = vk_pipeline_hash(device, &plan->steps[k]) == hash;
        n += !is_there;
    }
    return n;
}

/* Chooses the case that uses the pipeline of `step` and needs the fewest pipelines that the plan
 * does not have. Returns its steps; NULL where there is none, and *best is then not set. */
static gpu_plan *case_choose(vk_trial *trial, const gpu_target *target, const tdm_graph *graph,
                             const gpu_plan *plan, const gpu_step *step, cache_case *best) {
    const int32_t product = vk_trial_product(plan, step);
    gpu_plan *chosen = NULL;
    int32_t n_chosen = 0;
    for (int size = 0; size < GPU_SCENE_SIZES_; size++) {
        cache_case c;
        gpu_plan *steps = NULL;
        if (case_begin(trial, graph, rope_find(graph, plan, step->node), product, step->node,
                       (gpu_scene_size)size, &c))
            steps = vk_trial_plan(trial, target, c.excerpt, step);
        int32_t n = steps != NULL ? pipelines_new(trial->device, steps, plan) : 0;
        if (steps == NULL || (chosen != NULL && n >= n_chosen)) {
            gpu_plan_destroy(steps);
            case_free(&c);
            continue;
        }
        if (chosen != NULL) case_free(best);
        gpu_plan_destroy(chosen);
        chosen = steps;
        n_chosen = n;
        *best = c;
    }
    return chosen;
}

static const gpu_step *step_of(const gpu_plan *steps, int32_t kernel) {
    for (int32_t i = 0; i < steps->n_step; i++)
        if (steps->steps[i].kernel == kernel) return &steps->steps[i];
    return NULL;
}

/* The step of an ATTENTION that walks over the cache. */
static const gpu_step *walk_of(const gpu_plan *steps) {
    static const int32_t kernels[] = {
        GPU_KERNEL_ATTENTION_LANE,       GPU_KERNEL_ATTENTION_PART,
        GPU_KERNEL_ATTENTION_TILE,       GPU_KERNEL_ATTENTION_TILE_MATRIX,
        GPU_KERNEL_ATTENTION_TILE_HALF,  GPU_KERNEL_ATTENTION_LATENT_MATRIX,
        GPU_KERNEL_ATTENTION_LATENT_HALF};
    const gpu_step *found = NULL;
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0] && found == NULL; i++)
        found = step_of(steps, kernels[i]);
    return found;
}

/* Whether the node of a case is right in another case: planned for `target`, of `size`, with
 * `rope`. Where `walk` is given: only if another kernel than that of `walk` walks over the cache;
 * else false. */
static bool is_right(const cache_case *of, const gpu_target *target, gpu_scene_size size,
                     int32_t rope, const gpu_step *walk) {
    cache_case c;
    gpu_plan *steps = NULL;
    vk_verdict verdict = VK_VERDICT_NONE;
    if (case_begin(of->trial, of->graph, rope, of->product, of->node, size, &c) &&
        gpu_plan_create(target, &c.excerpt->graph, &steps, NULL) == TDM_OK) {
        const gpu_step *other = walk_of(steps);
        if (walk == NULL || (other != NULL && other->kernel != walk->kernel))
            verdict = case_try(&c, steps);
        else
            gpu_plan_destroy(steps);
    }
    case_free(&c);
    return verdict == VK_VERDICT_RIGHT;
}

/* The steps that may be wrong, where the steps `tried` of a case gave a wrong result:
 *   - ANGLE, the table of angles, where the result without RoPE is right
 *   - all steps of a LINEAR_SCAN
 *   - SELECT_SCORE and SELECT_CHOOSE of a KV_SELECT
 *   - of an ATTENTION the step that walks over the cache, where the result with another kernel for
 *     that is right; else the steps before and behind it
 * NULL = the step that was tried. These comparisons need pipelines that are compiled for them
 * alone. */
static gpu_plan *suspects_find(const cache_case *c, const gpu_plan *tried) {
    const gpu_step *angle = step_of(tried, GPU_KERNEL_ANGLE), *walk = walk_of(tried);
    const gpu_step *query = step_of(tried, GPU_KERNEL_ATTENTION_QUERY);
    const gpu_step *merge = step_of(tried, GPU_KERNEL_ATTENTION_MERGE);
    const gpu_step *slots = step_of(tried, GPU_KERNEL_SELECT_SLOTS);
    const gpu_step *score = step_of(tried, GPU_KERNEL_SELECT_SCORE);
    const gpu_step *choose = step_of(tried, GPU_KERNEL_SELECT_CHOOSE);
    gpu_target target;
    vk_verdicts_target(c->trial->device, &target);
    if (angle != NULL && is_right(c, &target, c->size, -1, NULL)) return vk_trial_steps(angle, 1);
    if (tdm_graph_node(c->graph, c->node)->op == TDM_OP_LINEAR_SCAN)
        return vk_trial_steps(tried->steps, tried->n_step);
    if (score != NULL && choose != NULL)
        return vk_trial_steps((const gpu_step[]){*score, *choose}, 2);
    if (walk == NULL || query == NULL || merge == NULL) return NULL;
    for (int lanes = 1; lanes >= 0; lanes--) {
        if (lanes == 0) target.attention.has_no_lanes = true;
        if (is_right(c, &target, GPU_SCENE_FEW, c->rope, walk) ||
            is_right(c, &target, GPU_SCENE_MANY, c->rope, walk))
            return vk_trial_steps(walk, 1);
    }
    if (slots != NULL) return vk_trial_steps((const gpu_step[]){*query, *merge, *slots}, 3);
    return vk_trial_steps((const gpu_step[]){*query, *merge}, 2);
}

/* The same for a case with a product: vk_trial_bytes_suspects. */
static gpu_plan *bytes_suspects(cache_case *c, const gpu_target *target, const gpu_step *step,
                                const gpu_plan *tried) {
    gpu_target apart = *target;
    gpu_plan *steps = NULL;
    vk_verdict verdict = VK_VERDICT_NONE;
    cache_case again;
    apart.product.rows_quantize = false;
    if (case_begin(c->trial, c->graph, c->rope, c->product, c->node, c->size, &again) &&
        gpu_plan_create(&apart, &again.excerpt->graph, &steps, NULL) == TDM_OK)
        verdict = case_try(&again, steps);
    case_free(&again);
    return vk_trial_bytes_suspects(step, tried, verdict);
}

vk_trial_result vk_trial_cache(vk_trial *trial, const tdm_graph *graph, const gpu_plan *plan,
                               const gpu_step *step) {
    vk_trial_result result = {.verdict = VK_VERDICT_UNTRIED, .blames_all = true};
    gpu_target target;
    cache_case c;
    vk_verdicts_target(trial->device, &target);
    if (gpu_step_stores_bytes(step)) vk_trial_bytes_target(&target);
    gpu_plan *steps = case_choose(trial, &target, graph, plan, step, &c);
    if (steps == NULL) return result;
    gpu_plan *tried = vk_trial_steps(steps->steps, steps->n_step);
    result.verdict = case_try(&c, steps);
    if (result.verdict == VK_VERDICT_WRONG && tried != NULL) {
        result.tried =
            c.product >= 0 ? bytes_suspects(&c, &target, step, tried) : suspects_find(&c, tried);
        gpu_plan_destroy(tried);
    } else {
        result.tried = tried;
    }
    case_free(&c);
    return result;
}
