/* SPDX-License-Identifier: MIT
 *
 * matmul_speed.c: the command tandem-matmul-speed, which times a plugin's MATMUL as a graph runs
 * it: for each weight type and instruction set of the CPU plugin, or each weight type of another
 * plugin's device, decoding one token (GB/s of weights, from memory) and prefilling 512 (billions
 * of operations a second, two for each weight and token). It checks no results: tests/kernels and
 * tandem certify do.
 */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/flag_word.h"
#include "core/runtime.h"
#include "core/stages/schedule.h"

/* Decoding reads a matrix that fits no processor's cache; prefilling reads one as in a small
 * model. */
enum { DECODE_SIZE = 192 << 20, DECODE_K = 4096, PREFILL_K = 2048, PREFILL_N = 4096 };

/* All types but integers, which weights never have. */
#define TYPE_FLOAT(ID) TDM_TYPE_##ID,
#define TYPE_BLOCK(ID) TDM_TYPE_##ID,
#define TYPE_INTEGER(ID)
#define TYPE_ROW(ID, name, number, kind, ...) TYPE_##kind(ID)
static const tdm_type types[] = {TDM_TYPE_LIST(TYPE_ROW)};
enum { N_TYPE = sizeof types / sizeof types[0] };

/* Instruction sets of the CPU plugin. */
static const char *const isas[] = {"amx", "avx512", "avx2", "neon", "plain"};
enum { N_ISA = sizeof isas / sizeof isas[0] };

/* Wall time, or (--clock cpu) the processor time of this process, for software drivers on a busy
 * machine. */
static clockid_t clock_used = CLOCK_MONOTONIC;

static double clock_s(void) {
    struct timespec t;
    clock_gettime(clock_used, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* The inputs of a graph; `role`, that of each token, is -1 for generated tokens. */
typedef struct inputs {
    int32_t x, role;
} inputs;

static tdm_status graph_make(tdm_type type, int64_t k, int64_t n, int64_t n_tok, bool is_prompt,
                             tdm_graph **graph_out, inputs *in, tdm_error *err) {
    int64_t w_ne[] = {k, n, 1, 1}, x_ne[] = {k, n_tok, 1, 1}, role_ne[] = {n_tok, 1, 1, 1};
    tdm_builder *b = NULL;
    tdm_status status = tdm_builder_create(&b, err);
    if (status != TDM_OK) return status;
    int32_t w = tdm_build_weight(b, "w", type, w_ne, TDM_USAGE_MATMUL);
    in->x = tdm_build_input(b, "x", TDM_TYPE_F32, x_ne);
    in->role = is_prompt ? tdm_build_input(b, "role", TDM_TYPE_I32, role_ne) : -1;
    tdm_build_set_role(b, in->role);
    tdm_build_output(b, tdm_build_matmul(b, w, in->x), "y");
    status = tdm_builder_finish(b, graph_out, err);
    tdm_builder_destroy(b);
    return status;
}

/* Seconds of the fastest run, of as many as fit half a second, at least three. */
static tdm_status schedule_time(tdm_schedule *schedule, double *best_out, tdm_error *err) {
    double best = 1e30, end = clock_s() + 0.5;
    for (int i = 0; i < 3 || clock_s() < end; i++) {
        double start = clock_s();
        tdm_status status = tdm_schedule_run(schedule, NULL, 0, NULL, 0, err);
        if (status != TDM_OK) return status;
        double spent = clock_s() - start;
        if (spent < best) best = spent;
    }
    *best_out = best;
    return TDM_OK;
}

/* Seconds of one product. All bytes of the weights are equal, since their values do not change the
 * time. */
static tdm_status product_time(tdm_scratch *scratch, tdm_open_device *dev, tdm_type type, int64_t k,
                               int64_t n, int64_t n_tok, bool is_prompt, double *best_out,
                               tdm_error *err) {
    tdm_tensor_desc desc = {sizeof desc, type, TDM_USAGE_MATMUL, {k, n, 1, 1}};
    size_t row_size = tdm_type_row_size(type, k), x_size = (size_t)(k * n_tok) * sizeof(float);
    tdm_graph *graph = NULL;
    tdm_schedule *schedule = NULL;
    tdm_slot_mem *slots = NULL;
    tdm_mem w = {0};
    uint64_t w_size = 0;
    inputs in = {-1, -1};
    uint8_t *row = malloc(row_size);
    float *x = malloc(x_size);
    int32_t *roles = malloc((size_t)n_tok * sizeof *roles);
    tdm_status status = TDM_OK;
    if (row == NULL || x == NULL || roles == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    if (status == TDM_OK) status = graph_make(type, k, n, n_tok, is_prompt, &graph, &in, err);
    if (status == TDM_OK) status = tdm_open_device_tensor_size(dev, &desc, &w_size, err);
    if (status == TDM_OK) status = tdm_mem_alloc(dev, w_size, TDM_BUFFER_WEIGHT, &w, err);
    if (status == TDM_OK) {
        memset(row, 0x11, row_size);
        status = tdm_mem_tensor_upload(&w, 0, &desc, row, 0, 0, n, 0, k, err);
    }
    if (status == TDM_OK) {
        slots = calloc((size_t)graph->n_slot, sizeof *slots);
        if (slots == NULL) status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    }
    if (status == TDM_OK) {
        slots[tdm_graph_value(graph, 0)->slot] = (tdm_slot_mem){w, 0, w_size};
        status = tdm_schedule_create(scratch, graph, slots, &schedule, err);
        graph = NULL; /* the schedule owns it now, also on failure */
    }
    if (status == TDM_OK) {
        for (size_t i = 0; i < x_size / sizeof *x; i++) x[i] = (float)(i % 13) - 6.0f;
        for (int64_t t = 0; t < n_tok; t++) roles[t] = TDM_ROLE_PROMPT;
        tdm_io given[] = {{in.x, x, x_size}, {in.role, roles, (size_t)n_tok * sizeof *roles}};
        status = tdm_schedule_run(schedule, given, is_prompt ? 2 : 1, NULL, 0, err);
    }
    if (status == TDM_OK) status = schedule_time(schedule, best_out, err);
    tdm_schedule_destroy(schedule);
    tdm_graph_free(graph);
    tdm_mem_free(&w);
    free(slots);
    free(row);
    free(x);
    free(roles);
    return status;
}

/* Decoding multiplies a matrix with rows of decode_k elements and decode_size bytes in all by
 * decode_tok tokens. Prefilling multiplies [prefill_k, prefill_n] by n_tok tokens. */
typedef struct sizes {
    int64_t decode_size, decode_k, decode_tok, prefill_k, prefill_n, n_tok;
} sizes;

/* Prints the lines of one device. */
static tdm_status device_time(tdm_runtime *rt, const char *isa, const char *only, const sizes *s,
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
        if (only != NULL && strcmp(only, tdm_type_name(types[i])) != 0) continue;
        double decode = 0, prefill = 0;
        size_t row_size = tdm_type_row_size(types[i], s->decode_k);
        int64_t n = s->decode_size / (int64_t)row_size;
        status = product_time(scratch, dev, types[i], s->decode_k, n, s->decode_tok, false, &decode,
                              err);
        if (status == TDM_OK)
            status = product_time(scratch, dev, types[i], s->prefill_k, s->prefill_n, s->n_tok,
                                  true, &prefill, err);
        if (status != TDM_OK) break;
        printf("%-8s %-7s %8.1f %10.0f\n", isa, tdm_type_name(types[i]),
               (double)row_size * (double)n / decode * 1e-9,
               2.0 * (double)(s->prefill_k * s->prefill_n * s->n_tok) / prefill * 1e-9);
        fflush(stdout);
    }
    tdm_scratch_destroy(scratch);
    return status;
}

enum { MAX_OPTION = 16 };

typedef struct arguments {
    const char *plugin; /* NULL = the CPU plugin, once for each instruction set */
    const char *isa, *type, *folder, *clock; /* NULL = all, all, the installed one, wall */
    int64_t index;                           /* of the plugin's device */
    sizes sizes;
    tdm_option options[MAX_OPTION];
    int32_t n_option;
} arguments;

/* Adds the option KEY=VALUE, cutting `text` in place; false = no '=' or too many options. */
static bool option_add(arguments *a, char *text) {
    char *equals = strchr(text, '=');
    if (equals == NULL || a->n_option == MAX_OPTION - 1) return false;
    *equals = 0;
    a->options[a->n_option++] = (tdm_option){text, equals + 1};
    return true;
}

static bool arguments_read(int argc, char **argv, arguments *a) {
    const struct {
        const char *name, **text;
        int64_t *number;
    } flags[] = {
        {"--plugin", &a->plugin, NULL},
        {"--isa", &a->isa, NULL},
        {"--type", &a->type, NULL},
        {"--plugin-path", &a->folder, NULL},
        {"--clock", &a->clock, NULL},
        {"--device-index", NULL, &a->index},
        {"--tokens", NULL, &a->sizes.n_tok},
        {"--decode-tokens", NULL, &a->sizes.decode_tok},
        {"--decode-mib", NULL, &a->sizes.decode_size},
    };
    for (int i = 1; i < argc; i += 2) {
        char *value = i + 1 < argc ? argv[i + 1] : NULL;
        size_t f = 0;
        if (value == NULL) return false;
        if (strcmp(argv[i], "--option") == 0) {
            if (!option_add(a, value)) return false;
            continue;
        }
        if (strcmp(argv[i], "--threads") == 0 && a->n_option < MAX_OPTION - 1) {
            a->options[a->n_option++] = (tdm_option){"threads", value};
            continue;
        }
        while (f < sizeof flags / sizeof flags[0] && strcmp(argv[i], flags[f].name) != 0) f++;
        if (f == sizeof flags / sizeof flags[0]) return false;
        if (flags[f].text != NULL)
            *flags[f].text = value;
        else
            *flags[f].number = atoll(value);
    }
    return true;
}

/* False, with a message, where a flag has a word that is none of its words. */
static bool words_check(const arguments *a) {
    static const char program[] = "tandem-matmul-speed";
    const char *names[N_TYPE];
    for (size_t i = 0; i < N_TYPE; i++) names[i] = tdm_type_name(types[i]);
    return flag_word_check(program, "--isa", a->isa, isas, N_ISA) &&
           flag_word_check(program, "--type", a->type, names, N_TYPE);
}

int main(int argc, char **argv) {
    arguments a = {.sizes = {DECODE_SIZE >> 20, DECODE_K, 1, PREFILL_K, PREFILL_N, 512}};
    if (!arguments_read(argc, argv, &a) || a.sizes.n_tok < 1 || a.sizes.decode_tok < 1 ||
        a.sizes.decode_size < 1) {
        fprintf(
            stderr,
            "Usage: tandem-matmul-speed [--plugin NAME] [--device-index N] "
            "[--option KEY=VALUE]...\n"
            "         [--isa plain|avx2|avx512|amx|neon] [--threads N] [--type TYPE] [--tokens N]\n"
            "         [--decode-tokens N] [--decode-mib N] [--plugin-path FOLDER]\n"
            "         [--clock wall|cpu]\n");
        return 2;
    }
    if (!words_check(&a)) return 2;
    a.sizes.decode_size <<= 20;
    if (a.clock != NULL && strcmp(a.clock, "cpu") == 0) clock_used = CLOCK_PROCESS_CPUTIME_ID;
    tdm_runtime *rt = NULL;
    tdm_error err = {.struct_size = sizeof err};
    tdm_runtime_params params = {.struct_size = sizeof params, .plugin_path = a.folder};
    tdm_status status = tdm_runtime_create(&params, &rt, &err);
    printf("%-8s %-7s %8s %10s\n", a.plugin != NULL ? "device" : "isa", "type", "GB/s", "Gop/s");
    if (a.plugin != NULL && status == TDM_OK) {
        tdm_device_spec spec = {a.plugin, a.plugin, (int32_t)a.index, a.options, a.n_option};
        status = tdm_runtime_declare(rt, &spec, &err);
        if (status == TDM_OK) status = device_time(rt, a.plugin, a.type, &a.sizes, &err);
    }
    for (size_t i = 0; a.plugin == NULL && i < N_ISA && status == TDM_OK; i++) {
        if (a.isa != NULL && strcmp(a.isa, isas[i]) != 0) continue;
        a.options[a.n_option] = (tdm_option){"isa", isas[i]};
        tdm_device_spec spec = {isas[i], "cpu", 0, a.options, a.n_option + 1};
        status = tdm_runtime_declare(rt, &spec, &err);
        if (status == TDM_OK) status = device_time(rt, isas[i], a.type, &a.sizes, &err);
    }
    tdm_runtime_destroy(rt);
    if (status != TDM_OK) fprintf(stderr, "tandem-matmul-speed: %s\n", err.message);
    return status == TDM_OK ? 0 : 1;
}
