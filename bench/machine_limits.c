/* SPDX-License-Identifier: MIT
 *
 * machine_limits.c: the command tandem-machine-limits, which prints what the CPU can do at most:
 * bytes read and operations a second, as the plugin measures them (tdm_device_limits), with each
 * instruction set. Each thread is pinned to one processor. The limits are the machine's, not those
 * of the plugin's kernels.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "core/runtime.h"

/* Writes a list of processors that this process may run on, "0,2,3", at most n of them; returns how
 * many. The plugin takes only numbers below CPU_SETSIZE. */
static int cores_list(char *text, size_t text_size, int n) {
    cpu_set_t sets[8]; /* Linux fails where a mask is too small for the machine */
    size_t used = 0;
    int count = 0;
    text[0] = 0;
    if (sched_getaffinity(0, sizeof sets, sets) != 0) return 0;
    for (int i = 0; i < CPU_SETSIZE && count < n && used + 8 < text_size; i++) {
        if (!CPU_ISSET(i, &sets[0])) continue;
        used += (size_t)snprintf(text + used, text_size - used, "%s%d", count > 0 ? "," : "", i);
        count++;
    }
    return count;
}

static void larger(double *best, double value) {
    if (value > *best) *best = value;
}

static void number_print(double value, double unit, int n_digit) {
    if (value > 0)
        printf("  %12.*f", n_digit, value / unit);
    else
        printf("  %12s", "-");
}

/* Prints the best of several measurements, because other programs can only make them worse. */
static tdm_status device_measure(tdm_runtime *rt, const char *isa, int rounds, bool is_csv,
                                 tdm_error *err) {
    tdm_device_limits best = {0}, limits;
    tdm_device_info info = {0};
    tdm_open_device *dev = NULL;
    tdm_status status = tdm_runtime_open(rt, isa, &dev, err);
    if (status == TDM_UNSUPPORTED) {
        fprintf(stderr, "%s skipped: %s\n", isa, err->message);
        return TDM_OK;
    }
    if (status == TDM_OK) status = tdm_open_device_get_info(dev, &info, err);
    for (int i = 0; i < rounds && status == TDM_OK; i++) {
        status = tdm_open_device_measure_limits(dev, &limits, err);
        if (status != TDM_OK) break;
        larger(&best.read_bandwidth, limits.read_bandwidth);
        larger(&best.int8_peak, limits.int8_peak);
        larger(&best.f32_peak, limits.f32_peak);
        memcpy(best.arithmetic, limits.arithmetic, sizeof best.arithmetic);
    }
    if (status != TDM_OK) return status;
    if (is_csv) {
        printf("%s,%s,%d,%.0f,%.0f,%.0f\n", isa, best.arithmetic, (int)info.n_thread,
               best.read_bandwidth, best.int8_peak, best.f32_peak);
    } else {
        printf("%-8s %-14s %7d", isa, best.arithmetic, (int)info.n_thread);
        number_print(best.read_bandwidth, 1e9, 1);
        number_print(best.int8_peak, 1e12, 3);
        number_print(best.f32_peak, 1e12, 3);
        printf("\n");
    }
    fflush(stdout);
    return TDM_OK;
}

static int usage(FILE *out) {
    fprintf(
        out,
        "Usage: tandem-machine-limits [--isa auto|amx|avx512|avx2|neon|plain|all] [--threads N]\n"
        "                             [--cores LIST] [--rounds N] [--output text|csv]\n"
        "                             [--plugin-path FOLDER]\n"
        "What the CPU can do at most: bytes read, operations of 8-bit integers and of f32 a\n"
        "second (0 or - = unknown: the threads never ran all at once), reading as a stream of a\n"
        "tenth of a second gets it. The best of N rounds of a quarter of a second each; 12 by\n"
        "default.\n");
    return out == stdout ? 0 : 2;
}

int main(int argc, char **argv) {
    static const char *const all[] = {"auto", "amx", "avx512", "avx2", "neon", "plain"};
    const char *isa = "auto", *threads = NULL, *cores = NULL, *folder = NULL;
    char list[8 * CPU_SETSIZE], count[16];
    int rounds = 12;
    bool is_csv = false;
    for (int i = 1; i < argc; i += 2) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;
        if (strcmp(argv[i], "--help") == 0) return usage(stdout);
        if (value == NULL) return usage(stderr);
        if (strcmp(argv[i], "--isa") == 0)
            isa = value;
        else if (strcmp(argv[i], "--threads") == 0)
            threads = value;
        else if (strcmp(argv[i], "--cores") == 0)
            cores = value;
        else if (strcmp(argv[i], "--plugin-path") == 0)
            folder = value;
        else if (strcmp(argv[i], "--rounds") == 0 && atoi(value) > 0)
            rounds = atoi(value);
        else if (strcmp(argv[i], "--output") == 0 &&
                 (strcmp(value, "text") == 0 || strcmp(value, "csv") == 0))
            is_csv = strcmp(value, "csv") == 0;
        else
            return usage(stderr);
    }
    tdm_option options[3] = {{"isa", NULL}};
    int32_t n_option = 1;
    if (cores == NULL) {
        int n = cores_list(list, sizeof list, threads != NULL ? atoi(threads) : CPU_SETSIZE);
        /* With more threads than processors, threads are not pinned. */
        if (n > 0 && (threads == NULL || atoi(threads) <= n)) cores = list;
        snprintf(count, sizeof count, "%d", n);
        if (threads == NULL && n > 0) threads = count;
    }
    if (cores != NULL) options[n_option++] = (tdm_option){"cores", cores};
    if (threads != NULL) options[n_option++] = (tdm_option){"threads", threads};
    tdm_runtime *rt = NULL;
    tdm_error err = {0};
    tdm_runtime_params params = {.struct_size = sizeof params, .plugin_path = folder};
    tdm_status status = tdm_runtime_create(&params, &rt, &err);
    if (is_csv)
        printf("isa,arithmetic,threads,read_bandwidth,int8_peak,f32_peak\n");
    else
        printf("%-8s %-14s %7s  %12s  %12s  %12s\n", "isa", "arithmetic", "threads", "read GB/s",
               "int8 TOP/s", "f32 TFLOP/s");
    bool wants_all = strcmp(isa, "all") == 0;
    for (size_t i = wants_all ? 1 : 0; i < sizeof all / sizeof all[0] && status == TDM_OK; i++) {
        const char *name = wants_all ? all[i] : isa;
        options[0].value = name;
        tdm_device_spec spec = {name, "cpu", 0, options, n_option};
        status = tdm_runtime_declare(rt, &spec, &err);
        if (status == TDM_OK) status = device_measure(rt, name, rounds, is_csv, &err);
        if (!wants_all) break;
    }
    tdm_runtime_destroy(rt);
    if (status != TDM_OK) fprintf(stderr, "tandem-machine-limits: %s\n", err.message);
    return status == TDM_OK ? 0 : 1;
}
