/* SPDX-License-Identifier: MIT
 *
 * exchange_speed.c: the command tandem-exchange-speed, which times EXCHANGE between CPU devices in
 * this process, of one thread each or of the given number: sums of f32 from 64 bytes to 4 MB for
 * groups of 2 to 4. Times are those that each member adds behind its flag (tandem/collective.h). It
 * prints the best of many runs, beside the time that the additions alone take. A '*' marks groups
 * with more threads than the machine has processors, which take turns. It checks no results:
 * tests/kernels does.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "bench/exchange_scene.h"

enum {
    LINE = 64,
    N_WARM = 4, /* first exchanges of a run, not counted: members do not start at the same time */
    MAX_SIZE = 4 << 20,
    RUN_NS = 400000000 /* time for each figure */
};

static uint64_t clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static scene_node node_of(int32_t index, int32_t n_member, int64_t count) {
    scene_node n = {.type = TDM_TYPE_F32, .ne = {count, 1, 1, 1}, .has_residual = true};
    uint64_t data = (uint64_t)(1 + SCENE_MAX_NODE * n_member) * LINE;
    uint64_t stride = ((uint64_t)count * sizeof(float) + LINE - 1) / LINE * LINE;
    n.params = (tdm_exchange_params){.stage = index,
                                     .n_member = n_member,
                                     .wire_type = TDM_TYPE_F32,
                                     .data_stride = stride,
                                     .flag_off = (uint64_t)(1 + index * n_member) * LINE,
                                     .senders = (UINT64_C(1) << n_member) - 1};
    /* Exchanges use two areas in turn, as in a group (tandem/collective.h). */
    n.params.data_off = data + (uint64_t)(index % 2) * (uint64_t)n_member * stride;
    return n;
}

/* The nanoseconds that each member has spent so far in the exchanges that count. */
static void spent_read(scene *s, const scene_node *nodes, int32_t n_node, uint64_t *ns_out) {
    for (int32_t m = 0; m < nodes[0].params.n_member; m++) {
        ns_out[m] = 0;
        for (int32_t i = N_WARM; i < n_node; i++)
            ns_out[m] += ((const uint64_t *)(const void *)(scene_arena(s) +
                                                           nodes[i].params.flag_off + m * LINE))[1];
    }
}

/* The shortest time of an exchange, in nanoseconds. */
static tdm_status exchange_time(const char *folder, int32_t n_thread, int32_t n_member,
                                int64_t count, double *ns_out, tdm_error *err) {
    const uint64_t size = (uint64_t)count * sizeof(float);
    /* Even, so that the two areas are used in turn across runs, too. */
    const int32_t n_node = size <= 65536 ? SCENE_MAX_NODE : N_WARM + 4;
    scene_params params = {.plugin_path = folder, .n_member = n_member};
    scene_node nodes[SCENE_MAX_NODE];
    scene *s = NULL;
    uint64_t best = UINT64_MAX, end;
    uint32_t epoch = 1;
    params.arena_size =
        (uint64_t)(1 + SCENE_MAX_NODE * n_member) * LINE + 2 * (uint64_t)n_member * (size + LINE);
    for (int32_t m = 0; m < n_member; m++) params.threads[m] = n_thread;
    for (int32_t i = 0; i < n_node; i++) nodes[i] = node_of(i, n_member, count);
    tdm_status status = scene_open(&params, &s, err);
    if (status == TDM_OK) status = scene_prepare(s, nodes, n_node, err);
    float *x = calloc((size_t)count, sizeof *x);
    if (status == TDM_OK && x == NULL) status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory");
    for (int32_t i = 0; i < n_node && status == TDM_OK; i++)
        for (int32_t m = 0; m < n_member; m++) {
            scene_put_x(s, i, m, x);
            scene_put_residual(s, i, m, x);
        }
    for (end = clock_ns() + RUN_NS; status == TDM_OK && clock_ns() < end; epoch++) {
        uint64_t before[SCENE_MAX_MEMBER] = {0}, after[SCENE_MAX_MEMBER] = {0}, spent = 0;
        spent_read(s, nodes, n_node, before);
        for (int32_t m = 0; m < n_member && status == TDM_OK; m++)
            status = scene_start(s, m, epoch, err);
        for (int32_t m = 0; m < n_member && status == TDM_OK; m++) status = scene_wait(s, m, err);
        spent_read(s, nodes, n_node, after);
        /* The longest time of a member: the last one to start does not wait for others. */
        for (int32_t m = 0; m < n_member; m++)
            if (after[m] - before[m] > spent) spent = after[m] - before[m];
        if (spent < best) best = spent;
    }
    free(x);
    scene_close(s);
    *ns_out = (double)best / (n_node - N_WARM);
    return status;
}

/* Nanoseconds of n_member additions of `count` numbers by one thread, without any exchange. */
static double sum_time(int32_t n_member, int64_t count) {
    float *x = calloc((size_t)count * 2, sizeof *x);
    uint64_t best = UINT64_MAX, end;
    if (x == NULL) return 0;
    for (end = clock_ns() + RUN_NS / 10; clock_ns() < end;) {
        const int n_repeat = count < 65536 ? (int)(65536 / count) : 1;
        uint64_t start = clock_ns();
        for (int i = 0; i < n_repeat; i++)
            for (int32_t m = 0; m < n_member; m++) {
                float *y = x + (m % 2 == 0 ? count : 0), *z = x + (m % 2 == 0 ? 0 : count);
                for (int64_t k = 0; k < count; k++) y[k] += z[k];
                __asm__ volatile("" : : "r"(x) : "memory");
            }
        uint64_t spent = (clock_ns() - start) / (uint64_t)n_repeat;
        if (spent < best) best = spent;
    }
    free(x);
    return (double)best;
}

int main(int argc, char **argv) {
    const char *folder = argc > 1 ? argv[1] : getenv("TANDEM_PLUGIN_PATH");
    long n_core = sysconf(_SC_NPROCESSORS_ONLN);
    int n_thread = argc > 2 ? atoi(argv[2]) : 1;
    tdm_error err = {0};
    if (folder == NULL || n_thread < 1) {
        fprintf(stderr, "usage: tandem-exchange-speed FOLDER-OF-PLUGINS [THREADS]\n");
        return 2;
    }
    printf("%10s", "bytes");
    for (int32_t m = 2; m <= SCENE_MAX_MEMBER; m++)
        printf("  %d members%s ns   sum ns   beyond", (int)m, m * n_thread > n_core ? "*" : "");
    printf("\n");
    for (int64_t size = 64; size <= MAX_SIZE; size *= 4) {
        printf("%10" PRId64, size);
        for (int32_t m = 2; m <= SCENE_MAX_MEMBER; m++) {
            double ns = 0, sum = sum_time(m, size / 4);
            tdm_status status = exchange_time(folder, n_thread, m, size / 4, &ns, &err);
            if (status != TDM_OK) {
                fprintf(stderr, "\n%s: %s\n", tdm_status_text(status), err.message);
                return 1;
            }
            printf(" %*.0f %8.0f %8.0f", m * n_thread > n_core ? 14 : 13, ns, sum, ns - sum);
            fflush(stdout);
        }
        printf("\n");
    }
    if (n_core < (long)SCENE_MAX_MEMBER * n_thread)
        printf("* more threads than this machine's %ld processors: they take turns\n", n_core);
    return 0;
}
