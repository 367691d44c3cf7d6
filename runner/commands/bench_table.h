/* SPDX-License-Identifier: MIT
 *
 * bench_table.h: results of `tandem bench` as Markdown, CSV, JSON or JSON lines. Fields have
 * the names of llama-bench, so that scripts for its output work. Fields that it does not have
 * follow under names of their own.
 */
#ifndef TANDEM_RUNNER_BENCH_TABLE_H
#define TANDEM_RUNNER_BENCH_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

typedef enum bench_format {
    BENCH_FORMAT_MD,
    BENCH_FORMAT_CSV,
    BENCH_FORMAT_JSON,
    BENCH_FORMAT_JSONL
} bench_format;

/* One test, measured n_sample times. Texts are the caller's. */
typedef struct bench_row {
    const char *version; /* of tandem */
    const char *model_filename;
    const char *model_type; /* "llama 1.10B Q4_0" */
    uint64_t model_size;    /* bytes of its weights in the file */
    uint64_t model_n_params;
    const char *device; /* its name in the configuration */
    const char *device_description;
    const char *plugin;
    int32_t n_threads; /* of a CPU device; 0 = another device */
    int32_t n_batch, n_ubatch;
    const char *type_k, *type_v;
    bool is_rotated;
    int32_t n_prompt, n_gen, n_depth;
    time_t test_time;
    const uint64_t *samples_ns; /* [n_sample], at least 1 */
    int32_t n_sample;
    uint64_t kv_row_size; /* bytes that the cache keeps of a token, in all layers */
    uint64_t load_ns;     /* of opening the file and the device and loading the weights */
    /* The device's limits (tdm_device_limits): medians of what was measured; 0 = unknown. */
    double read_bandwidth, int8_peak, f32_peak;
    const char *limit_kind;  /* the limit of this test (bench_limit_kind); NULL = unknown */
    double limit_ts;         /* tokens per second that it allows, the median; 0 = unknown */
    double limit_share;      /* measured speed / limit of its repetition, the median; 0 = unknown */
    const double *limits_ts; /* [n_sample] limit of each repetition, tokens per second; 0 = unknown.
                              * NULL = all are unknown */
} bench_row;

/* Which of the optional columns a Markdown table has: those whose values are not all the default.
 * The other forms always have all fields. */
typedef struct bench_columns {
    bool n_batch, n_ubatch, type_k, type_v, is_rotated, limit;
} bench_columns;

typedef struct bench_table {
    FILE *out;
    bench_format format;
    bench_columns columns;
    int32_t n_row; /* so far */
} bench_table;

/* Print a row (the first one after the head of the table), and the end of the table. Call
 * bench_table_end in any case, also without a row and after a failure, so that JSON is valid. Write
 * errors stay in the stream (ferror). [setup] */
void bench_table_add(bench_table *table, const bench_row *row);
void bench_table_end(bench_table *table);

/* The name of a test: "pp512", "tg128" or "pp512+tg128", with " @ d4096" where the depth is not
 * 0. */
void bench_test_format(const bench_row *row, char *text, size_t text_size);

#endif
