/* SPDX-License-Identifier: MIT
 *
 * test_kv.c: KV_WRITE, KV_COPY, KV_EXPORT, KV_IMPORT and KV_SHIFT, byte for byte where the
 * contract gives bytes; descriptions that the device refuses; and step blocks with invalid
 * contents.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "quant/convert.h"
#include "tests/kernels/kv_scene.h"

enum { N_RIG = 7 };

static const struct {
    const char *isa, *path;
    int n_thread;
} rig_rows[N_RIG] = {{"plain", "reference", 1}, {"plain", "fast", 3},  {"avx2", "fast", 2},
                     {"avx512", "fast", 3},     {"avx512", "fast", 1}, {"neon", "fast", 3},
                     {"neon", "fast", 1}};

static op_rig *rigs[N_RIG];

/* With OP_CASE_PLUGIN: the reference and that plugin's device. */
static int open_rigs(void **state) {
    (void)state;
    const char *plugin = getenv("OP_CASE_PLUGIN");
    if (plugin != NULL) {
        rigs[0] = op_rig_open(rig_rows[0].isa, rig_rows[0].path, rig_rows[0].n_thread);
        rigs[1] = op_rig_open_plugin(plugin, &(const tdm_option){"allow-cpu", "yes"}, 1);
        return 0;
    }
    for (int i = 0; i < N_RIG; i++)
        rigs[i] = op_rig_open(rig_rows[i].isa, rig_rows[i].path, rig_rows[i].n_thread);
    return 0;
}

static int close_rigs(void **state) {
    (void)state;
    for (int i = 0; i < N_RIG; i++) op_rig_close(rigs[i]);
    return 0;
}

static tdm_kv_desc make_desc(tdm_type type_k, tdm_type type_v, int32_t page_len, uint32_t flags) {
    return (tdm_kv_desc){.struct_size = sizeof(tdm_kv_desc),
                         .type_k = type_k,
                         .type_v = type_v,
                         .head_dim_k = 80,
                         .head_dim_v = 72,
                         .n_head_kv = 3,
                         .page_len = page_len,
                         .flags = flags};
}

static size_t row_size(tdm_type type, int32_t head_dim) {
    return tdm_type_row_size(type, tdm_kv_padded(type, head_dim));
}

/* The transform by the definition of its passes, in f32: KV_WRITE's sums must be these. */
static void rotate(float *x, int32_t n, int32_t block) {
    for (int32_t at = 0; at < n && block > 1; at += block) {
        float *b = x + at;
        for (int32_t half = 1; half < block; half *= 2) {
            for (int32_t i = 0; i < block; i++) {
                if ((i & half) != 0) continue;
                float lo = b[i] + b[i + half], hi = b[i] - b[i + half];
                b[i] = lo;
                b[i + half] = hi;
            }
        }
        for (int32_t i = 0; i < block; i++) b[i] *= 1 / sqrtf((float)block);
    }
}

/* What KV_WRITE must store for one head. */
static void quantize_row(const tdm_kv_desc *d, bool is_value, const float *x, uint8_t *row) {
    tdm_type type = is_value ? d->type_v : d->type_k;
    int32_t head_dim = is_value ? d->head_dim_v : d->head_dim_k;
    int32_t padded = tdm_kv_padded(type, head_dim);
    float copy[256] = {0};
    memcpy(copy, x, (size_t)head_dim * sizeof *copy);
    if (tdm_type_get_info(type).is_quantized &&
        (d->flags & (is_value ? TDM_KV_ROTATE_V : TDM_KV_ROTATE_K)) != 0)
        rotate(
            copy, padded,
            tdm_kv_rotation_block(padded, is_value ? 0 : d->rope_offset, is_value ? 0 : d->n_rot));
    assert_int_equal(tdm_row_quantize(type, copy, row, padded, NULL), TDM_OK);
}

static void check_rows(const kv_scene *s, const uint8_t *rows, bool is_value, int rig) {
    const tdm_kv_desc *d = &s->desc;
    tdm_type type = is_value ? d->type_v : d->type_k;
    int32_t head_dim = is_value ? d->head_dim_v : d->head_dim_k;
    size_t size = row_size(type, head_dim);
    uint8_t want[1024];
    for (int32_t cell = 0; cell < s->n_cell; cell++) {
        for (int32_t head = 0; head < d->n_head_kv && s->is_used[cell]; head++) {
            size_t row = (size_t)(cell * d->n_head_kv + head);
            const float *x = (is_value ? s->v : s->k) + row * (size_t)head_dim;
            quantize_row(d, is_value, x, want);
            if (memcmp(want, rows + row * size, size) != 0)
                fail_msg("isa %s, path %s: cell %d, head %d of %s (%s) is not as quantised",
                         rig_rows[rig].isa, rig_rows[rig].path, cell, head, is_value ? "v" : "k",
                         tdm_type_name(type));
        }
    }
}

/* Numbers that a quantiser may stumble over, into some rows. */
static void add_odd_rows(kv_scene *s, uint64_t *seed) {
    size_t n = (size_t)s->desc.head_dim_k * (size_t)s->desc.n_head_kv * (size_t)s->n_cell;
    for (size_t i = 0; i < n; i++) {
        uint64_t dice = op_random_next(seed) % 400;
        if (dice == 0) s->k[i] = 0;
        if (dice == 1) s->k[i] = -2;
        if (dice == 2) s->k[i] = 1e30f;
        if (dice == 3) s->k[i] = NAN;
        if (dice == 4) s->k[i] = -INFINITY;
        if (dice == 5) s->k[i] = 1e-30f;
    }
    for (int32_t i = 0; i < s->desc.head_dim_k * s->desc.n_head_kv * 2; i++) s->k[i] = 0;
}

/* Stored rows are tdm_row_quantize's, on every path. */
static void test_write(void **state) {
    uint64_t seed = 8;
    (void)state;
    print_message("seed 8\n");
    for (int t = 0; t < TDM_KV_TYPE_COUNT; t++) {
        for (int rotation = 0; rotation < 3; rotation++) {
            /* On a GPU each type with one of the three. */
            if (rotation != t % 3 && op_n_case(2, 1) == 1) continue;
            tdm_kv_desc desc =
                make_desc(kv_types[t], kv_types[(t + 4) % TDM_KV_TYPE_COUNT], t % 2 ? 16 : 64,
                          rotation ? TDM_KV_ROTATE_K | TDM_KV_ROTATE_V : 0);
            if (rotation == 2) desc.head_dim_k = 128, desc.rope_offset = 96, desc.n_rot = 32;
            int32_t len[2] = {70, 33};
            kv_scene scene;
            kv_scene_init(&scene, &desc, 2, len, 20, &seed);
            if (rotation == 0) add_odd_rows(&scene, &seed);
            for (int i = 0; i < N_RIG; i++) {
                uint8_t *k, *v;
                if (rigs[i] == NULL) continue;
                op_state *cache = kv_scene_write(&scene, rigs[i], 9 + i);
                kv_scene_export(&scene, rigs[i], cache, &k, &v);
                check_rows(&scene, k, false, i);
                check_rows(&scene, v, true, i);
                op_state_destroy(cache);
                free(k);
                free(v);
            }
            kv_scene_free(&scene);
        }
    }
}

/* ---- jobs ------------------------------------------------------------------------------------ */

typedef enum job_kind { JOB_COPY, JOB_SHIFT, JOB_IMPORT } job_kind;

enum { MAX_FACTOR = 16 };

/* A view [n] of every second element of an input of 2 n floats. */
static int32_t build_spaced(tdm_builder *b, int64_t n, int32_t *input_out) {
    const int64_t all[4] = {2, n, 1, 1}, one[4] = {1, n, 1, 1}, first[4] = {0};
    *input_out = tdm_build_input(b, "factor", TDM_TYPE_F32, all);
    return tdm_build_permute(b, tdm_build_slice(b, *input_out, first, one), 1, 0, 2, 3);
}

/* Runs one graph of a single op with these jobs on a state of the scene. is_spaced: the factors are
 * a view whose elements are not adjacent. */
static void run_jobs(const kv_scene *s, op_rig *rig, op_state *state, job_kind kind,
                     const tdm_page_job *jobs, int n_job, const tdm_rope_params *rope,
                     const float *factor, bool is_spaced, uint8_t *k, uint8_t *v, int64_t n_row) {
    float spaced[2 * MAX_FACTOR];
    uint64_t page_size = op_rig_page_size(rig, &s->desc);
    tdm_step_caps caps = kv_scene_caps(s, 0, n_job);
    tdm_builder *b;
    tdm_graph *graph;
    tdm_error err = {0};
    int32_t kv, k_value = -1, v_value = -1, factor_value = -1;
    assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
    int32_t step_value = tdm_build_step(b, &caps);
    int32_t state_value = tdm_build_state(b, "cache", &s->desc, page_size, s->n_page, &kv);
    if (kind == JOB_COPY) tdm_build_kv_copy(b, step_value, state_value, kv);
    if (kind == JOB_SHIFT) {
        int64_t ne[4] = {rope->n_rot / 2, 1, 1, 1};
        int32_t view = -1;
        for (int64_t i = 0; is_spaced && i < ne[0]; i++)
            spaced[2 * i] = factor[i], spaced[2 * i + 1] = NAN;
        if (factor != NULL && !is_spaced)
            view = factor_value = tdm_build_input(b, "factor", TDM_TYPE_F32, ne);
        if (is_spaced) view = build_spaced(b, ne[0], &factor_value);
        tdm_build_kv_shift(b, step_value, state_value, view, kv, rope);
    }
    if (kind == JOB_IMPORT) {
        const tdm_kv_desc *d = &s->desc;
        int64_t k_ne[4] = {tdm_kv_padded(d->type_k, d->head_dim_k), d->n_head_kv, n_row, 1};
        int64_t v_ne[4] = {tdm_kv_padded(d->type_v, d->head_dim_v), d->n_head_kv, n_row, 1};
        k_value = tdm_build_input(b, "k", d->type_k, k_ne);
        if (v != NULL) v_value = tdm_build_input(b, "v", d->type_v, v_ne);
        tdm_build_kv_import(b, k_value, v_value, step_value, state_value, kv);
    }
    if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
    tdm_builder_destroy(b);
    int32_t *step = kv_step_create(s, &caps);
    for (int i = 0; i < n_job; i++) kv_step_set_job(step, i, jobs[i]);
    op_arg args[5] = {{.value = step_value, .data = step}, {.value = state_value, .state = state}};
    int n_arg = 2;
    if (k_value >= 0) args[n_arg++] = (op_arg){.value = k_value, .data = k};
    if (v_value >= 0) args[n_arg++] = (op_arg){.value = v_value, .data = v};
    if (factor_value >= 0)
        args[n_arg++] =
            (op_arg){.value = factor_value, .data = is_spaced ? spaced : (void *)(uintptr_t)factor};
    op_rig_run(rig, graph, args, n_arg);
    free(step);
    tdm_graph_free(graph);
}

/* Copies inside the exported rows what a job copies inside the cache. */
static void copy_rows(const kv_scene *s, uint8_t *rows, size_t size, tdm_page_job job) {
    size_t token = size * (size_t)s->desc.n_head_kv;
    for (int32_t i = job.first; i < job.first + job.count; i++)
        memmove(rows + token * (size_t)(job.page * s->page_len + i),
                rows + token * (size_t)(job.arg * s->page_len + i), token);
}

/* Every cell of two exports, used or not: what no job named must stay. */
static void check_same(const kv_scene *s, const uint8_t *got, const uint8_t *want, size_t size,
                       const char *what) {
    size_t token = size * (size_t)s->desc.n_head_kv;
    for (int32_t cell = 0; cell < s->n_cell; cell++)
        if (memcmp(got + token * (size_t)cell, want + token * (size_t)cell, token) != 0)
            fail_msg("%s: %s %s: cell %d differs", what, tdm_type_name(s->desc.type_k),
                     tdm_type_name(s->desc.type_v), cell);
}

static void test_copy(void **state) {
    uint64_t seed = 21;
    (void)state;
    for (int t = 0; t < TDM_KV_TYPE_COUNT; t++) {
        tdm_kv_desc desc =
            make_desc(kv_types[t], kv_types[TDM_KV_TYPE_COUNT - 1 - t], 64, TDM_KV_ROTATE_K);
        int32_t len = 4 * 64;
        kv_scene scene;
        kv_scene_init(&scene, &desc, 1, &len, 0, &seed);
        /* A part, a chain, a whole page, then what must be skipped. */
        tdm_page_job jobs[] = {{0, 3, 30, 1},  {2, 5, 40, 0},  {3, 0, 64, 2},  {-1, 0, 64, 1},
                               {1, 60, 9, 3},  {99, 0, 64, 1}, {1, 0, 64, 99}, {1, 0, 64, -1},
                               {1, -4, 10, 2}, {1, 70, 5, 2},  {1, 0, -5, 2},  {1, 0, 64, 1}};
        for (int i = 0; i < N_RIG; i++) {
            uint8_t *k, *v, *k_got, *v_got;
            if (rigs[i] == NULL) continue;
            op_state *cache = kv_scene_write(&scene, rigs[i], 32);
            kv_scene_export(&scene, rigs[i], cache, &k, &v);
            run_jobs(&scene, rigs[i], cache, JOB_COPY, jobs, 12, NULL, NULL, false, NULL, NULL, 0);
            kv_scene_export(&scene, rigs[i], cache, &k_got, &v_got);
            size_t size_k = row_size(desc.type_k, desc.head_dim_k);
            size_t size_v = row_size(desc.type_v, desc.head_dim_v);
            for (int j = 0; j < 5; j++) {
                tdm_page_job job = jobs[j];
                if (job.page < 0) continue;
                if (job.first + job.count > 64) job.count = 64 - job.first;
                copy_rows(&scene, k, size_k, job);
                copy_rows(&scene, v, size_v, job);
            }
            check_same(&scene, k_got, k, size_k, "copy of k");
            check_same(&scene, v_got, v, size_v, "copy of v");
            op_state_destroy(cache);
            free(k), free(v), free(k_got), free(v_got);
        }
        kv_scene_free(&scene);
    }
}

/* Rows exported from one cache, imported into another with pages of another length, and exported
 * from there are the same bytes. */
static void test_import(void **state) {
    uint64_t seed = 31;
    (void)state;
    for (int t = 0; t < TDM_KV_TYPE_COUNT; t++) {
        tdm_kv_desc desc = make_desc(kv_types[t], kv_types[(t + 2) % TDM_KV_TYPE_COUNT], 64,
                                     TDM_KV_ROTATE_K | TDM_KV_ROTATE_V);
        tdm_kv_desc other = desc;
        other.page_len = t % 2 ? 8 : 256;
        int32_t len = 2 * 64;
        kv_scene scene, target;
        kv_scene_init(&scene, &desc, 1, &len, 0, &seed);
        kv_scene_init(&target, &other, 1, &scene.n_cell, 0, &seed);
        for (int i = 0; i < N_RIG; i++) {
            uint8_t *k, *v, *k_got, *v_got;
            tdm_page_job jobs[64];
            int n_job = 0;
            if (rigs[i] == NULL) continue;
            /* Rows that the reference has stored: they load on any device. */
            op_state *cache = kv_scene_write(&scene, rigs[0], 32);
            kv_scene_export(&scene, rigs[0], cache, &k, &v);
            op_state *copy = kv_scene_write(&target, rigs[i], 32);
            for (int32_t at = 0; at < scene.n_cell; at += other.page_len)
                jobs[n_job++] = (tdm_page_job){
                    at / other.page_len, 0,
                    scene.n_cell - at < other.page_len ? scene.n_cell - at : other.page_len, at};
            jobs[n_job++] = (tdm_page_job){0, 0, 8, -3};
            jobs[n_job++] = (tdm_page_job){0, 0, 8, scene.n_cell};
            run_jobs(&target, rigs[i], copy, JOB_IMPORT, jobs, n_job, NULL, NULL, false, k, v,
                     scene.n_cell);
            kv_scene_export(&target, rigs[i], copy, &k_got, &v_got);
            assert_true(target.n_cell >= scene.n_cell);
            check_same(&scene, k_got, k, row_size(desc.type_k, desc.head_dim_k), "import of k");
            check_same(&scene, v_got, v, row_size(desc.type_v, desc.head_dim_v), "import of v");
            op_state_destroy(cache);
            op_state_destroy(copy);
            free(k), free(v), free(k_got), free(v_got);
        }
        kv_scene_free(&scene);
        kv_scene_free(&target);
    }
}

/* ---- shift ----------------------------------------------------------------------------------- */

static void turn(const tdm_rope_params *p, const float *factor, double pos, double *x) {
    for (int32_t i = 0; i < p->n_rot / 2; i++) {
        double angle = pos * pow((double)p->freq_base, -2.0 * i / p->n_rot) *
                       (double)p->freq_scale / (factor != NULL ? (double)factor[i] : 1);
        bool is_adjacent = p->mode == TDM_ROPE_ADJACENT;
        double *a = x + p->rope_offset + (is_adjacent ? 2 * i : i);
        double *b = x + p->rope_offset + (is_adjacent ? 2 * i + 1 : i + p->n_rot / 2);
        double c = cos(angle), s = sin(angle), a_old = *a;
        *a = a_old * c - *b * s;
        *b = a_old * s + *b * c;
    }
}

/* Squared error and power over the cells of one page. */
static double page_nmse(const kv_scene *s, const double *got, const double *want, int32_t page) {
    double error = 0, power = 0;
    size_t token = (size_t)(s->desc.head_dim_k * s->desc.n_head_kv);
    for (int32_t slot = 0; slot < s->page_len; slot++) {
        size_t cell = (size_t)(page * s->page_len + slot);
        for (size_t i = 0; i < token && s->is_used[cell]; i++) {
            double d = got[cell * token + i] - want[cell * token + i];
            error += d * d;
            power += want[cell * token + i] * want[cell * token + i];
        }
    }
    return power > 0 ? error / power : 0;
}

/* Bounds on the error that one more quantisation adds, in NMSE; uniform random rows. */
static double shift_bound(tdm_type type) {
    switch ((int)type) {
    case TDM_TYPE_F32: return 1e-11;
    case TDM_TYPE_F16: return 1e-6;
    case TDM_TYPE_BF16: return 1e-5;
    case TDM_TYPE_Q8_0: return 1e-4;
    case TDM_TYPE_Q5_0:
    case TDM_TYPE_Q5_1: return 5e-3;
    default: return 2e-2;
    }
}

static void test_shift(void **state) {
    uint64_t seed = 17;
    float factor[MAX_FACTOR];
    (void)state;
    for (int i = 0; i < MAX_FACTOR; i++) factor[i] = 1 + (float)i / 8;
    for (int t = 0; t < 2 * TDM_KV_TYPE_COUNT; t++) {
        /* On a GPU every type with a rotation, and two of them without. */
        if (t >= TDM_KV_TYPE_COUNT && t % 5 != 0 && op_n_case(2, 1) == 1) continue;
        tdm_type type = kv_types[t % TDM_KV_TYPE_COUNT];
        tdm_kv_desc desc = make_desc(type, kv_types[(t + 1) % TDM_KV_TYPE_COUNT], t % 2 ? 64 : 32,
                                     t < TDM_KV_TYPE_COUNT ? TDM_KV_ROTATE_K : 0);
        desc.head_dim_k = 128;
        desc.rope_offset = t % 3 == 0 ? 96 : t % 3 == 1 ? 0 : 40; /* 40: inside a block */
        desc.n_rot = 32;
        tdm_rope_params rope = {.n_rot = 32,
                                .rope_offset = desc.rope_offset,
                                .mode = t % 2,
                                .freq_base = 10000,
                                .freq_scale = 0.5f,
                                .attn_factor = 3}; /* must not show: K has it already */
        int32_t len = 3 * desc.page_len - 5;
        kv_scene scene;
        kv_scene_init(&scene, &desc, 1, &len, 0, &seed);
        int32_t full = scene.entries[0].page, part = scene.entries[1].page;
        int32_t rest = scene.entries[2].page;
        tdm_page_job jobs[] = {{full, 0, desc.page_len, 37},
                               {part, 4, 9, -1000},
                               {full, 0, desc.page_len, -30}, /* jobs on a page run in order */
                               {-1, 0, 5, 3},
                               {77, 0, 5, 3},
                               {rest, 0, 5, 0}};
        for (int i = 0; i < N_RIG; i++) {
            uint8_t *k, *v, *k_got, *v_got;
            if (rigs[i] == NULL) continue;
            op_state *cache = kv_scene_write(&scene, rigs[i], 32);
            kv_scene_export(&scene, rigs[i], cache, &k, &v);
            kv_scene_decode(&scene, k, v);
            size_t token = (size_t)(desc.head_dim_k * desc.n_head_kv);
            size_t n = token * (size_t)scene.n_cell;
            double *want = malloc(n * sizeof *want);
            memcpy(want, scene.k_row, n * sizeof *want);
            run_jobs(&scene, rigs[i], cache, JOB_SHIFT, jobs, 6, &rope, t % 4 == 0 ? factor : NULL,
                     t % 8 == 4, NULL, NULL, 0);
            for (int j = 0; j < 3; j++) {
                for (int32_t s = jobs[j].first; s < jobs[j].first + jobs[j].count; s++) {
                    size_t cell = (size_t)(jobs[j].page * scene.page_len + s);
                    for (int32_t h = 0; h < desc.n_head_kv; h++)
                        turn(&rope, t % 4 == 0 ? factor : NULL, jobs[j].arg,
                             want + cell * token + (size_t)(h * desc.head_dim_k));
                }
            }
            kv_scene_export(&scene, rigs[i], cache, &k_got, &v_got);
            kv_scene_decode(&scene, k_got, v_got);
            for (int32_t page = 0; page < scene.n_page; page++) {
                double error = page_nmse(&scene, scene.k_row, want, page);
                double bound = page == full ? 2 * shift_bound(type) : shift_bound(type);
                if (page == rest) bound = 0;
                if (error > bound)
                    fail_msg("shift of %s on %s %s: page %d: %g > %g", tdm_type_name(type),
                             rig_rows[i].isa, rig_rows[i].path, page, error, bound);
            }
            check_same(&scene, v_got, v, row_size(desc.type_v, desc.head_dim_v), "v in a shift");
            /* Blocks without turned elements keep their bytes. */
            if (desc.rope_offset == 96) {
                size_t size = row_size(type, 128);
                for (size_t row = 0; row < (size_t)(scene.n_cell * desc.n_head_kv); row++)
                    assert_memory_equal(k + row * size, k_got + row * size, size * 3 / 4);
            }
            op_state_destroy(cache);
            free(want), free(k), free(v), free(k_got), free(v_got);
        }
        kv_scene_free(&scene);
    }
}

/* What many small shifts do to K, against one turn of what was stored at first. Printed per type;
 * bounded so that a shift that loses more than its quantisation shows. */
static void test_shift_drift(void **state) {
    enum { N_SHIFT = 100 };
    uint64_t seed = 23;
    (void)state;
    for (int t = 0; t < TDM_KV_TYPE_COUNT; t++) {
        tdm_kv_desc desc = make_desc(kv_types[t], TDM_TYPE_F32, 64, TDM_KV_ROTATE_K);
        desc.head_dim_k = 64;
        desc.n_rot = 64;
        tdm_rope_params rope = {.n_rot = 64, .freq_base = 10000, .freq_scale = 1};
        int32_t len = 64;
        kv_scene scene;
        kv_scene_init(&scene, &desc, 1, &len, 0, &seed);
        int32_t page = scene.entries[0].page;
        tdm_page_job jobs[N_SHIFT];
        for (int j = 0; j < N_SHIFT; j++) jobs[j] = (tdm_page_job){page, 0, 64, j % 7 - 2};
        int32_t total = 0;
        for (int j = 0; j < N_SHIFT; j++) total += jobs[j].arg;
        uint8_t *k, *v;
        op_state *cache = kv_scene_write(&scene, rigs[0], 32);
        kv_scene_export(&scene, rigs[0], cache, &k, &v);
        kv_scene_decode(&scene, k, v);
        free(k), free(v);
        size_t token = (size_t)(desc.head_dim_k * desc.n_head_kv);
        size_t n = token * (size_t)scene.n_cell;
        double *want = malloc(n * sizeof *want);
        assert_non_null(want);
        memcpy(want, scene.k_row, n * sizeof *want);
        for (size_t row = 0; row < n; row += 64) turn(&rope, NULL, total, want + row);
        run_jobs(&scene, rigs[0], cache, JOB_SHIFT, jobs, N_SHIFT, &rope, NULL, false, NULL, NULL,
                 0);
        kv_scene_export(&scene, rigs[0], cache, &k, &v);
        kv_scene_decode(&scene, k, v);
        double drift = page_nmse(&scene, scene.k_row, want, page);
        print_message("%d shifts of %s: NMSE %.2g\n", N_SHIFT, tdm_type_name(kv_types[t]), drift);
        if (drift > 2 * N_SHIFT * shift_bound(kv_types[t]))
            fail_msg("%s drifts by %g", tdm_type_name(kv_types[t]), drift);
        op_state_destroy(cache);
        free(want), free(k), free(v);
        kv_scene_free(&scene);
    }
}

/* ---- lies ------------------------------------------------------------------------------------ */

/* A graph of all cache ops on one state; only that nothing outside is touched is checked, by the
 * harness's guards (and the address sanitizer where it is on). */
static void test_lying_step(void **state) {
    uint64_t seed = 1234;
    (void)state;
    print_message("seed 1234\n");
    for (int round = 0; round < op_n_case(40, 6); round++) {
        tdm_kv_desc desc = make_desc(kv_types[round % TDM_KV_TYPE_COUNT],
                                     kv_types[round / TDM_KV_TYPE_COUNT % TDM_KV_TYPE_COUNT],
                                     round % 3 ? 16 : 64, TDM_KV_ROTATE_K | TDM_KV_ROTATE_V);
        desc.n_rot = 32;
        const bool is_strided = round % 4 == 3;
        if (is_strided) desc.flags |= TDM_KV_STRIDED, desc.stride = 3 + round % 5 * 7;
        int32_t len[2] = {40, 90};
        kv_scene scene;
        kv_scene_init(&scene, &desc, 2, len, 10, &seed);
        tdm_step_caps caps = kv_scene_caps(&scene, 5, 6);
        for (int i = 0; i < N_RIG; i++) {
            tdm_builder *b;
            tdm_graph *graph;
            tdm_error err = {0};
            int32_t kv, v_out, ml;
            if (rigs[i] == NULL) continue;
            assert_int_equal(tdm_builder_create(&b, &err), TDM_OK);
            uint64_t page_size = op_rig_page_size(rigs[i], &desc);
            int64_t q_ne[4] = {80, 6, 5, 1}, k_ne[4] = {80, 3, 5, 1}, v_ne[4] = {72, 3, 5, 1};
            int32_t step_value = tdm_build_step(b, &caps);
            int32_t state_value = tdm_build_state(b, "cache", &desc, page_size, scene.n_page, &kv);
            int32_t q = tdm_build_input(b, "q", TDM_TYPE_F32, q_ne);
            int32_t k = tdm_build_input(b, "k", TDM_TYPE_F32, k_ne);
            int32_t v = tdm_build_input(b, "v", TDM_TYPE_F32, v_ne);
            tdm_attention_params params = {.kv = kv,
                                           .heads_per_kv = 2,
                                           .n_head_all = 6,
                                           .is_causal = round % 2,
                                           .window = is_strided ? 0 : round % 5 * 10};
            tdm_rope_params rope = {.n_rot = 32};
            tdm_build_kv_write(b, k, v, step_value, state_value, kv);
            int32_t o = tdm_build_attention(b, q, step_value, state_value, -1, &params, &ml);
            if (!is_strided) tdm_build_kv_shift(b, step_value, state_value, -1, kv, &rope);
            tdm_build_kv_copy(b, step_value, state_value, kv);
            int32_t k_out = tdm_build_kv_export(b, step_value, state_value, kv, 7, &v_out);
            tdm_build_kv_import(b, k_out, v_out, step_value, state_value, kv);
            tdm_build_output(b, o, "o");
            tdm_build_output(b, ml, "ml");
            if (tdm_builder_finish(b, &graph, &err) != TDM_OK) fail_msg("%s", err.message);
            tdm_builder_destroy(b);
            op_state *cache = kv_scene_write(&scene, rigs[i], 20);
            float q_in[80 * 6 * 5], k_in[80 * 3 * 5], v_in[72 * 3 * 5];
            op_random_fill(&seed, q_in, 80 * 6 * 5, 1);
            op_random_fill(&seed, k_in, 80 * 3 * 5, 1);
            op_random_fill(&seed, v_in, 72 * 3 * 5, 1);
            int32_t *step = kv_step_create(&scene, &caps);
            int32_t size = step[1];
            for (int32_t word = 1; word < size; word++) {
                uint64_t dice = op_random_next(&seed);
                if (dice % 4 != 0 && word < 40) continue;
                switch (dice / 4 % 6) {
                case 0: step[word] = (int32_t)(dice >> 32); break;
                case 1: step[word] = INT32_MAX - (int32_t)(dice >> 60); break;
                case 2: step[word] = INT32_MIN + (int32_t)(dice >> 60); break;
                case 3: step[word] = -(int32_t)(dice >> 58); break;
                default: step[word] = (int32_t)(dice >> 57); break;
                }
            }
            op_arg args[] = {{.value = step_value, .data = step},
                             {.value = state_value, .state = cache},
                             {.value = q, .data = q_in},
                             {.value = k, .data = k_in},
                             {.value = v, .data = v_in}};
            op_rig_run(rigs[i], graph, args, 5);
            free(step);
            op_state_destroy(cache);
            tdm_graph_free(graph);
        }
        kv_scene_free(&scene);
    }
}

static void expect_refusal(tdm_kv_desc desc, const char *word) {
    uint64_t size;
    tdm_error err = {0};
    tdm_status status =
        op_rig_plugin(rigs[0])->buffer->kv_page_size(op_rig_device(rigs[0]), &desc, &size, &err);
    assert_int_equal(status, TDM_UNSUPPORTED);
    if (strstr(err.message, word) == NULL) fail_msg("'%s' does not say '%s'", err.message, word);
}

static void test_refusals(void **state) {
    tdm_kv_desc good = make_desc(TDM_TYPE_Q8_0, TDM_TYPE_Q4_0, 64, 0), desc = good;
    uint64_t size = 0;
    (void)state;
    assert_true(op_rig_page_size(rigs[0], &good) > 0);
    desc = good, desc.type_k = TDM_TYPE_Q4_K;
    expect_refusal(desc, "q4_K and q4_0: each must be one of f32, f16, bf16, q8_0, ");
    desc = good, desc.type_v = (tdm_type)63;
    expect_refusal(desc, "?");
    desc = good, desc.page_len = 48;
    expect_refusal(desc, "48");
    desc = good, desc.page_len = 2048;
    expect_refusal(desc, "2048");
    desc = good, desc.head_dim_k = 0;
    expect_refusal(desc, "0");
    desc = good, desc.n_head_kv = -1;
    expect_refusal(desc, "-1");
    desc = good, desc.flags = TDM_KV_V_FROM_K;
    expect_refusal(desc, "q8_0");
    desc = good, desc.n_rot = 90;
    expect_refusal(desc, "90");
    /* A page of 0 is the default length; no page is larger than its tokens need but for
     * rounding. */
    desc = good, desc.page_len = 0;
    size = op_rig_page_size(rigs[0], &desc);
    assert_int_equal(size, op_rig_page_size(rigs[0], &good));
    size_t rows = row_size(good.type_k, 80) + row_size(good.type_v, 72);
    assert_true(size >= 64 * 3 * rows && size <= 64 * 3 * rows + 3 * 4 * 64);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_write),       cmocka_unit_test(test_copy),
        cmocka_unit_test(test_import),      cmocka_unit_test(test_shift),
        cmocka_unit_test(test_shift_drift), cmocka_unit_test(test_lying_step),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests(tests, open_rigs, close_rigs);
}
