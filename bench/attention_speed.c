/* SPDX-License-Identifier: MIT
 *
 * attention_speed.c: the command tandem-attention-speed, which times the cache ops of the CPU
 * plugin, or of another one (--plugin), as a graph runs them, in the shape of a 1.1 B model (32
 * heads of 64 on 8 KV heads): decoding one token behind a deep cache (GB/s of cached rows, from
 * memory), prefilling a batch at depth 0 (billions of operations a second), and writing rows to the
 * cache (millions a second). With --clock cpu it counts the processor time of the process instead
 * of wall time, for software drivers on a busy machine. It checks no results: tests/kernels does.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/flag_word.h"
#include "core/runtime.h"
#include "core/stages/schedule.h"
#include "tests/support/random.h"

enum { HEAD_DIM = 64, N_HEAD = 32, N_HEAD_KV = 8, PAGE_LEN = 64, BATCH = 512, MAX_LAYER = 64 };

/* Bytes. Layers are added until all their caches together have this size, which is larger than the
 * caches of processors. */
static const uint64_t cache_size = 256u << 20;

static const tdm_type types[] = {
#define KV_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_TYPE_LIST(KV_TYPE)
#undef KV_TYPE
};
enum { N_TYPE = sizeof types / sizeof *types };

/* Instruction sets of the CPU plugin, and the tests of --only. */
static const char *const isas[] = {"avx512", "avx2", "neon", "plain"};
enum { N_ISA = sizeof isas / sizeof *isas };
static const char *const tests[] = {"decode", "prefill", "write"};

typedef struct bench {
    tdm_scratch *scratch;
    tdm_open_device *dev;
    tdm_kv_desc desc;
    uint64_t page_size;
    int32_t depth; /* tokens in the cache */
    int32_t n_page;
    int32_t n_layer;  /* 0 = until cache_size is reached */
    const char *only; /* one of decode, prefill, write; NULL = all */
    tdm_mem states[MAX_LAYER];
    int32_t *step;    /* the step block; owned */
    size_t step_size; /* its bytes */
} bench;

static clockid_t clock_id = CLOCK_MONOTONIC;

static double clock_s(void) {
    struct timespec t;
    clock_gettime(clock_id, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Fills the step block for n_tok tokens from position first_pos on. Pages lie 7 apart, so that no
 * prefetcher predicts the next one. */
static tdm_status step_fill(bench *b, const tdm_step_caps *caps, int32_t first_pos,
                            tdm_error *err) {
    tdm_step_header header;
    tdm_status status = tdm_step_layout(caps, &header, err);
    if (status != TDM_OK) return status;
    free(b->step);
    b->step_size = (size_t)header.size * sizeof *b->step;
    b->step = calloc(1, b->step_size);
    if (b->step == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    header.n_tok = caps->n_tok;
    header.n_seq = 1;
    memcpy(b->step, &header, sizeof header);
    int32_t end = first_pos + caps->n_tok, n_entry = (end + PAGE_LEN - 1) / PAGE_LEN;
    for (int32_t e = 0; e < n_entry; e++) {
        int32_t count = end - e * PAGE_LEN < PAGE_LEN ? end - e * PAGE_LEN : PAGE_LEN;
        tdm_page_entry entry = {(int32_t)(e * 7LL % b->n_page), 0, count, e * PAGE_LEN};
        memcpy(b->step + header.cls[0].entry_off + 4 * e, &entry, sizeof entry);
    }
    b->step[header.cls[0].first_entry_off + 1] = n_entry;
    for (int32_t i = 0; i < caps->n_tok; i++) {
        int32_t pos = first_pos + i, page = (int32_t)(pos / PAGE_LEN * 7LL % b->n_page);
        b->step[header.pos_off + i] = pos;
        b->step[header.cls[0].write_off + i] = page * PAGE_LEN + pos % PAGE_LEN;
    }
    return TDM_OK;
}

/* Makes a graph that, for the tokens of b->step, writes K and V to every layer (is_write) or
 * attends to every layer. Runs it once, then as often as fits `seconds`, at least three times;
 * *best_out is the shortest time in seconds. With `seconds` 0 it only runs once. */
static tdm_status graph_time(bench *b, bool is_write, const tdm_step_caps *caps, double seconds,
                             double *best_out, tdm_error *err) {
    int64_t q_ne[] = {HEAD_DIM, is_write ? N_HEAD_KV : N_HEAD, caps->n_tok, 1};
    size_t x_size = (size_t)(q_ne[0] * q_ne[1] * q_ne[2]) * sizeof(float);
    int32_t state_values[MAX_LAYER], kv;
    tdm_builder *builder = NULL;
    tdm_graph *graph = NULL;
    tdm_schedule *schedule = NULL;
    tdm_slot_mem *slots = NULL;
    float *x = malloc(x_size);
    if (x == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    uint64_t random = 1;
    for (size_t i = 0; i < x_size / sizeof *x; i++)
        x[i] = (float)(int32_t)(random_u64(&random) >> 32) * 0x1p-30f;
    tdm_status status = tdm_builder_create(&builder, err);
    if (status != TDM_OK) goto done;
    int32_t step = tdm_build_step(builder, caps);
    int32_t q = tdm_build_input(builder, "q", TDM_TYPE_F32, q_ne);
    for (int32_t i = 0; i < b->n_layer; i++) {
        state_values[i] = tdm_build_state(builder, "cache", &b->desc, b->page_size, b->n_page, &kv);
        tdm_attention_params params = {
            .kv = kv, .heads_per_kv = N_HEAD / N_HEAD_KV, .n_head_all = N_HEAD, .is_causal = 1};
        if (is_write)
            tdm_build_kv_write(builder, q, q, step, state_values[i], kv);
        else
            tdm_build_output(
                builder, tdm_build_attention(builder, q, step, state_values[i], -1, &params, NULL),
                "o");
    }
    status = tdm_builder_finish(builder, &graph, err);
    if (status != TDM_OK) goto done;
    slots = calloc((size_t)graph->n_slot, sizeof *slots);
    if (slots == NULL) {
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
        goto done;
    }
    for (int32_t i = 0; i < b->n_layer; i++)
        slots[tdm_graph_value(graph, state_values[i])->slot] =
            (tdm_slot_mem){b->states[i], 0, b->page_size * (uint64_t)b->n_page};
    status = tdm_schedule_create(b->scratch, graph, slots, &schedule, err);
    graph = NULL; /* the schedule owns it now, also on failure */
    if (status != TDM_OK) goto done;
    tdm_io inputs[] = {{step, b->step, b->step_size}, {q, x, x_size}};
    status = tdm_schedule_run(schedule, inputs, 2, NULL, 0, err);
    double best = 1e30, end = clock_s() + seconds;
    for (int i = 0; status == TDM_OK && (i < 3 || clock_s() < end) && seconds > 0; i++) {
        double start = clock_s();
        status = tdm_schedule_run(schedule, NULL, 0, NULL, 0, err);
        double spent = clock_s() - start;
        if (spent < best) best = spent;
    }
    *best_out = best;
done:
    tdm_schedule_destroy(schedule);
    tdm_graph_free(graph);
    tdm_builder_destroy(builder);
    free(slots);
    free(x);
    return status;
}

/* Seconds for timing `what`. A test that --only leaves out runs three times, because others need
 * its result; its figure is not exact. */
static double wanted(const bench *b, const char *what, double seconds) {
    return b->only == NULL || strcmp(b->only, what) == 0 ? seconds : 0.001;
}

static tdm_status type_time(bench *b, const char *isa, tdm_error *err) {
    tdm_step_caps caps = {.n_tok = BATCH, .n_seq = 1, .n_entry = b->n_page, .n_class = 1};
    double write = 0, decode = 0, shallow = 0, prefill = 0, ignored = 0;
    tdm_status status = TDM_OK;
    for (int32_t pos = 0; pos + BATCH <= b->depth + BATCH && status == TDM_OK; pos += BATCH) {
        status = step_fill(b, &caps, pos, err);
        if (status == TDM_OK) status = graph_time(b, true, &caps, 0, &ignored, err);
    }
    if (status == TDM_OK) status = graph_time(b, true, &caps, wanted(b, "write", 0.3), &write, err);
    if (status == TDM_OK) status = step_fill(b, &caps, 0, err);
    if (status == TDM_OK)
        status = graph_time(b, false, &caps, wanted(b, "prefill", 0.3), &prefill, err);
    caps.n_tok = 1;
    if (status == TDM_OK) status = step_fill(b, &caps, b->depth - 1, err);
    if (status == TDM_OK)
        status = graph_time(b, false, &caps, wanted(b, "decode", 0.7), &decode, err);
    if (status == TDM_OK) status = step_fill(b, &caps, 0, err);
    if (status == TDM_OK)
        status = graph_time(b, false, &caps, wanted(b, "decode", 0.2), &shallow, err);
    if (status != TDM_OK) return status;
    double layers = b->n_layer, rows = N_HEAD_KV * layers;
    double bytes = (double)b->depth * rows *
                   (double)(tdm_type_row_size(b->desc.type_k, HEAD_DIM) +
                            tdm_type_row_size(b->desc.type_v, HEAD_DIM));
    double operations = 4.0 * HEAD_DIM * N_HEAD * layers * BATCH * (BATCH + 1) / 2;
    printf("%-8s %-7s %-7s %8.2f %12.3f %10.1f %10.2f\n", isa, tdm_type_name(b->desc.type_k),
           tdm_type_name(b->desc.type_v), bytes / (decode - shallow) * 1e-9,
           (decode - shallow) / layers * 1e3, operations / prefill * 1e-9,
           2 * rows * BATCH / write * 1e-6);
    fflush(stdout);
    return TDM_OK;
}

static tdm_status pair_time(tdm_scratch *scratch, tdm_open_device *dev, const char *isa,
                            tdm_type type_k, tdm_type type_v, int32_t depth, int32_t n_layer,
                            const char *only, tdm_error *err) {
    bench b = {.scratch = scratch, .dev = dev, .depth = depth, .n_layer = n_layer, .only = only};
    b.desc = (tdm_kv_desc){.struct_size = sizeof b.desc,
                           .type_k = type_k,
                           .type_v = type_v,
                           .head_dim_k = HEAD_DIM,
                           .head_dim_v = HEAD_DIM,
                           .n_head_kv = N_HEAD_KV,
                           .page_len = PAGE_LEN,
                           .n_rot = HEAD_DIM,
                           .flags = TDM_KV_ROTATE_K | TDM_KV_ROTATE_V};
    b.n_page = (depth + BATCH + PAGE_LEN - 1) / PAGE_LEN + 1;
    while (b.n_page % 7 == 0) b.n_page++;
    tdm_status status = tdm_open_device_kv_page_size(dev, &b.desc, &b.page_size, err);
    if (status == TDM_OK && n_layer == 0) {
        uint64_t layers = cache_size / (b.page_size * (uint64_t)b.n_page) + 1;
        b.n_layer = layers < MAX_LAYER ? (int32_t)layers : MAX_LAYER;
    }
    for (int32_t i = 0; i < b.n_layer && status == TDM_OK; i++)
        status = tdm_mem_alloc(dev, b.page_size * (uint64_t)b.n_page, TDM_BUFFER_STATE,
                               &b.states[i], err);
    if (status == TDM_OK) status = type_time(&b, isa, err);
    for (int32_t i = 0; i < b.n_layer; i++) tdm_mem_free(&b.states[i]);
    free(b.step);
    return status;
}

static tdm_status device_time(tdm_runtime *rt, const char *isa, const char *type_k,
                              const char *type_v, int32_t depth, int32_t n_layer, const char *only,
                              tdm_error *err) {
    tdm_open_device *dev = NULL;
    tdm_scratch *scratch = NULL;
    tdm_status status = tdm_runtime_open(rt, isa, &dev, err);
    if (status == TDM_UNSUPPORTED) {
        printf("%-8s skipped: %s\n", isa, err->message);
        return TDM_OK;
    }
    if (status == TDM_OK) status = tdm_scratch_create(rt, &dev, 1, &scratch, err);
    for (size_t i = 0; i < N_TYPE && status == TDM_OK; i++) {
        if (type_k != NULL && strcmp(type_k, tdm_type_name(types[i])) != 0) continue;
        tdm_type v = types[i];
        for (size_t j = 0; j < N_TYPE && type_v != NULL; j++)
            if (strcmp(type_v, tdm_type_name(types[j])) == 0) v = types[j];
        status = pair_time(scratch, dev, isa, types[i], v, depth, n_layer, only, err);
    }
    tdm_scratch_destroy(scratch);
    return status;
}

/* False, with a message, where a flag has a word that is none of its words. NULL = not given. */
static bool words_check(const char *isa, const char *type_k, const char *type_v, const char *only) {
    static const char program[] = "tandem-attention-speed";
    const char *names[N_TYPE];
    for (size_t i = 0; i < N_TYPE; i++) names[i] = tdm_type_name(types[i]);
    return flag_word_check(program, "--isa", isa, isas, N_ISA) &&
           flag_word_check(program, "--type-k", type_k, names, N_TYPE) &&
           flag_word_check(program, "--type-v", type_v, names, N_TYPE) &&
           flag_word_check(program, "--only", only, tests, sizeof tests / sizeof *tests);
}

int main(int argc, char **argv) {
    const char *isa = NULL, *type_k = NULL, *type_v = NULL, *threads = NULL, *folder = NULL,
               *only = NULL, *bits = "15", *plugin = NULL;
    int32_t depth = 8192, n_layer = 0;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (value != NULL && strcmp(argv[i], "--isa") == 0)
            isa = value;
        else if (value != NULL && strcmp(argv[i], "--type-k") == 0)
            type_k = value;
        else if (value != NULL && strcmp(argv[i], "--type-v") == 0)
            type_v = value;
        else if (value != NULL && strcmp(argv[i], "--threads") == 0)
            threads = value;
        else if (value != NULL && strcmp(argv[i], "--activation-bits") == 0)
            bits = value;
        else if (value != NULL && strcmp(argv[i], "--only") == 0)
            only = value;
        else if (value != NULL && strcmp(argv[i], "--plugin") == 0)
            plugin = value;
        else if (value != NULL && strcmp(argv[i], "--clock") == 0 && strcmp(value, "cpu") == 0)
            clock_id = CLOCK_PROCESS_CPUTIME_ID;
        else if (value != NULL && strcmp(argv[i], "--plugin-path") == 0)
            folder = value;
        else if (value != NULL && strcmp(argv[i], "--depth") == 0 && atoi(value) > 0 &&
                 atoi(value) <= 1 << 20)
            depth = (atoi(value) + BATCH - 1) / BATCH * BATCH;
        else if (value != NULL && strcmp(argv[i], "--layers") == 0 && atoi(value) > 0 &&
                 atoi(value) <= MAX_LAYER)
            n_layer = atoi(value);
        else {
            fprintf(stderr,
                    "Usage: tandem-attention-speed [--isa plain|avx2|avx512|neon] [--type-k TYPE] "
                    "[--type-v TYPE] [--threads N] [--activation-bits 8|15] [--depth TOKENS] "
                    "[--layers N] [--only WHAT] [--plugin-path FOLDER] [--plugin NAME] "
                    "[--clock cpu]\n");
            return 2;
        }
    }
    if (!words_check(isa, type_k, type_v, only)) return 2;
    tdm_runtime *rt = NULL;
    tdm_error err = {0};
    tdm_runtime_params params = {.struct_size = sizeof params, .plugin_path = folder};
    tdm_status status = tdm_runtime_create(&params, &rt, &err);
    printf("%-8s %-7s %-7s %8s %12s %10s %10s\n", plugin != NULL ? "plugin" : "isa", "type_k",
           "type_v", "GB/s", "ms/layer", "Gop/s", "Mrow/s");
    if (plugin != NULL && status == TDM_OK) {
        tdm_option options[] = {{"allow-cpu", "yes"}}; /* a software driver is timed too */
        tdm_device_spec spec = {plugin, plugin, 0, options, strcmp(plugin, "vulkan") == 0};
        status = tdm_runtime_declare(rt, &spec, &err);
        if (status == TDM_OK)
            status = device_time(rt, plugin, type_k, type_v, depth, n_layer, only, &err);
    }
    for (size_t i = 0; i < N_ISA && plugin == NULL && status == TDM_OK; i++) {
        if (isa != NULL && strcmp(isa, isas[i]) != 0) continue;
        tdm_option options[] = {{"isa", isas[i]}, {"activation-bits", bits}, {"threads", threads}};
        tdm_device_spec spec = {isas[i], "cpu", 0, options, threads != NULL ? 3 : 2};
        status = tdm_runtime_declare(rt, &spec, &err);
        if (status == TDM_OK)
            status = device_time(rt, isas[i], type_k, type_v, depth, n_layer, only, &err);
    }
    tdm_runtime_destroy(rt);
    if (status != TDM_OK) fprintf(stderr, "tandem-attention-speed: %s\n", err.message);
    return status == TDM_OK ? 0 : 1;
}
