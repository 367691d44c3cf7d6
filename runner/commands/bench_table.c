/* SPDX-License-Identifier: MIT
 *
 * bench_table.c: prints the fields of CSV and JSON from one table, and the columns of Markdown.
 * bench.c measures.
 */
#include "runner/commands/bench_table.h"

#include <inttypes.h>
#include <math.h>

#include "runner/json.h"

/* ---- Values derived from a row ---- */

static double sample_speed(const bench_row *row, int32_t i) {
    double n = (double)row->n_prompt + (double)row->n_gen;
    return row->samples_ns[i] > 0 ? n * 1e9 / (double)row->samples_ns[i] : 0.0;
}

static double sample_ns(const bench_row *row, int32_t i) {
    return (double)row->samples_ns[i];
}

typedef double (*sample_fn)(const bench_row *row, int32_t i);

static double mean(const bench_row *row, sample_fn sample) {
    double sum = 0;
    for (int32_t i = 0; i < row->n_sample; i++) sum += sample(row, i);
    return sum / row->n_sample;
}

/* The standard deviation of a sample (sum / (n - 1)); 0 for a single value. */
static double deviation(const bench_row *row, sample_fn sample) {
    double average = mean(row, sample), sum = 0;
    if (row->n_sample < 2) return 0;
    for (int32_t i = 0; i < row->n_sample; i++) {
        double off = sample(row, i) - average;
        sum += off * off;
    }
    return sqrt(sum / (row->n_sample - 1));
}

void bench_test_format(const bench_row *row, char *text, size_t text_size) {
    char test[48], depth[24] = "";
    if (row->n_gen == 0)
        snprintf(test, sizeof test, "pp%" PRId32, row->n_prompt);
    else if (row->n_prompt == 0)
        snprintf(test, sizeof test, "tg%" PRId32, row->n_gen);
    else
        snprintf(test, sizeof test, "pp%" PRId32 "+tg%" PRId32, row->n_prompt, row->n_gen);
    if (row->n_depth > 0) snprintf(depth, sizeof depth, " @ d%" PRId32, row->n_depth);
    snprintf(text, text_size, "%s%s", test, depth);
}

/* ---- Fields: CSV and JSON ---- */

typedef enum field_kind {
    FIELD_TEXT,
    FIELD_NUMBER,
    FIELD_LIST /* one number for each sample; only JSON has them */
} field_kind;

typedef enum field_id {
    FIELD_VERSION,
    FIELD_DEVICE,
    FIELD_DEVICE_DESCRIPTION,
    FIELD_PLUGIN,
    FIELD_MODEL_FILENAME,
    FIELD_MODEL_TYPE,
    FIELD_MODEL_SIZE,
    FIELD_MODEL_N_PARAMS,
    FIELD_N_BATCH,
    FIELD_N_UBATCH,
    FIELD_N_THREADS,
    FIELD_TYPE_K,
    FIELD_TYPE_V,
    FIELD_KV_ROTATE,
    FIELD_N_PROMPT,
    FIELD_N_GEN,
    FIELD_N_DEPTH,
    FIELD_TEST_TIME,
    FIELD_AVG_NS,
    FIELD_STDDEV_NS,
    FIELD_AVG_TS,
    FIELD_STDDEV_TS,
    FIELD_KV_ROW_SIZE,
    FIELD_LOAD_NS,
    FIELD_READ_BANDWIDTH,
    FIELD_INT8_PEAK,
    FIELD_F32_PEAK,
    FIELD_LIMIT_KIND,
    FIELD_LIMIT_TS,
    FIELD_LIMIT_SHARE,
    FIELD_LIST_NS,
    FIELD_LIST_TS,
    FIELD_LIST_LIMIT_TS
} field_id;

static const struct {
    const char *name;
    field_id id;
    field_kind kind;
} fields[] = {
    {"tandem_version", FIELD_VERSION, FIELD_TEXT},
    {"device", FIELD_DEVICE, FIELD_TEXT},
    {"device_description", FIELD_DEVICE_DESCRIPTION, FIELD_TEXT},
    {"plugin", FIELD_PLUGIN, FIELD_TEXT},
    {"model_filename", FIELD_MODEL_FILENAME, FIELD_TEXT},
    {"model_type", FIELD_MODEL_TYPE, FIELD_TEXT},
    {"model_size", FIELD_MODEL_SIZE, FIELD_NUMBER},
    {"model_n_params", FIELD_MODEL_N_PARAMS, FIELD_NUMBER},
    {"n_batch", FIELD_N_BATCH, FIELD_NUMBER},
    {"n_ubatch", FIELD_N_UBATCH, FIELD_NUMBER},
    {"n_threads", FIELD_N_THREADS, FIELD_NUMBER},
    {"type_k", FIELD_TYPE_K, FIELD_TEXT},
    {"type_v", FIELD_TYPE_V, FIELD_TEXT},
    {"kv_rotate", FIELD_KV_ROTATE, FIELD_NUMBER},
    {"n_prompt", FIELD_N_PROMPT, FIELD_NUMBER},
    {"n_gen", FIELD_N_GEN, FIELD_NUMBER},
    {"n_depth", FIELD_N_DEPTH, FIELD_NUMBER},
    {"test_time", FIELD_TEST_TIME, FIELD_TEXT},
    {"avg_ns", FIELD_AVG_NS, FIELD_NUMBER},
    {"stddev_ns", FIELD_STDDEV_NS, FIELD_NUMBER},
    {"avg_ts", FIELD_AVG_TS, FIELD_NUMBER},
    {"stddev_ts", FIELD_STDDEV_TS, FIELD_NUMBER},
    {"kv_row_size", FIELD_KV_ROW_SIZE, FIELD_NUMBER},
    {"load_ns", FIELD_LOAD_NS, FIELD_NUMBER},
    {"read_bandwidth", FIELD_READ_BANDWIDTH, FIELD_NUMBER},
    {"int8_peak", FIELD_INT8_PEAK, FIELD_NUMBER},
    {"f32_peak", FIELD_F32_PEAK, FIELD_NUMBER},
    {"limit_kind", FIELD_LIMIT_KIND, FIELD_TEXT},
    {"limit_ts", FIELD_LIMIT_TS, FIELD_NUMBER},
    {"limit_share", FIELD_LIMIT_SHARE, FIELD_NUMBER},
    {"samples_ns", FIELD_LIST_NS, FIELD_LIST},
    {"samples_ts", FIELD_LIST_TS, FIELD_LIST},
    {"samples_limit_ts", FIELD_LIST_LIMIT_TS, FIELD_LIST},
};
#define N_FIELD (sizeof fields / sizeof fields[0])

/* The value of a field as text: borrowed from the row, or written to `text`. */
static const char *field_format(const bench_row *row, field_id id, char *text, size_t text_size) {
    struct tm day;
    text[0] = '\0';
    switch (id) {
    case FIELD_VERSION: return row->version;
    case FIELD_DEVICE: return row->device;
    case FIELD_DEVICE_DESCRIPTION: return row->device_description;
    case FIELD_PLUGIN: return row->plugin;
    case FIELD_MODEL_FILENAME: return row->model_filename;
    case FIELD_MODEL_TYPE: return row->model_type;
    case FIELD_MODEL_SIZE: snprintf(text, text_size, "%" PRIu64, row->model_size); break;
    case FIELD_MODEL_N_PARAMS: snprintf(text, text_size, "%" PRIu64, row->model_n_params); break;
    case FIELD_N_BATCH: snprintf(text, text_size, "%" PRId32, row->n_batch); break;
    case FIELD_N_UBATCH: snprintf(text, text_size, "%" PRId32, row->n_ubatch); break;
    case FIELD_N_THREADS: snprintf(text, text_size, "%" PRId32, row->n_threads); break;
    case FIELD_TYPE_K: return row->type_k;
    case FIELD_TYPE_V: return row->type_v;
    case FIELD_KV_ROTATE: return row->is_rotated ? "1" : "0";
    case FIELD_N_PROMPT: snprintf(text, text_size, "%" PRId32, row->n_prompt); break;
    case FIELD_N_GEN: snprintf(text, text_size, "%" PRId32, row->n_gen); break;
    case FIELD_N_DEPTH: snprintf(text, text_size, "%" PRId32, row->n_depth); break;
    case FIELD_TEST_TIME: /* ISO 8601, UTC */
        if (gmtime_r(&row->test_time, &day) != NULL)
            strftime(text, text_size, "%Y-%m-%dT%H:%M:%SZ", &day);
        break;
    case FIELD_AVG_NS: snprintf(text, text_size, "%.0f", mean(row, sample_ns)); break;
    case FIELD_STDDEV_NS: snprintf(text, text_size, "%.0f", deviation(row, sample_ns)); break;
    case FIELD_AVG_TS: snprintf(text, text_size, "%.6f", mean(row, sample_speed)); break;
    case FIELD_STDDEV_TS: snprintf(text, text_size, "%.6f", deviation(row, sample_speed)); break;
    case FIELD_KV_ROW_SIZE: snprintf(text, text_size, "%" PRIu64, row->kv_row_size); break;
    case FIELD_LOAD_NS: snprintf(text, text_size, "%" PRIu64, row->load_ns); break;
    case FIELD_READ_BANDWIDTH: snprintf(text, text_size, "%.0f", row->read_bandwidth); break;
    case FIELD_INT8_PEAK: snprintf(text, text_size, "%.0f", row->int8_peak); break;
    case FIELD_F32_PEAK: snprintf(text, text_size, "%.0f", row->f32_peak); break;
    case FIELD_LIMIT_KIND: return row->limit_kind != NULL ? row->limit_kind : "";
    case FIELD_LIMIT_TS: snprintf(text, text_size, "%.6f", row->limit_ts); break;
    case FIELD_LIMIT_SHARE: snprintf(text, text_size, "%.6f", row->limit_share); break;
    case FIELD_LIST_NS:
    case FIELD_LIST_TS:
    case FIELD_LIST_LIMIT_TS: break; /* written by json_samples_print */
    }
    return text;
}

/* Every field in quotes, quotes inside doubled (RFC 4180). */
static void csv_print(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text != '\0'; text++) {
        if (*text == '"') fputc('"', out);
        fputc(*text, out);
    }
    fputc('"', out);
}

static void json_samples_print(FILE *out, const bench_row *row, field_id id) {
    const int32_t n = id == FIELD_LIST_LIMIT_TS && row->limits_ts == NULL ? 0 : row->n_sample;
    fputc('[', out);
    for (int32_t i = 0; i < n; i++) {
        if (i > 0) fputs(", ", out);
        if (id == FIELD_LIST_NS)
            fprintf(out, "%" PRIu64, row->samples_ns[i]);
        else
            fprintf(out, "%.6f", id == FIELD_LIST_TS ? sample_speed(row, i) : row->limits_ts[i]);
    }
    fputc(']', out);
}

static void json_row_print(FILE *out, const bench_row *row, const char *before,
                           const char *between) {
    char text[64];
    fputc('{', out);
    for (size_t i = 0; i < N_FIELD; i++) {
        fputs(i > 0 ? between : before, out);
        runner_json_text(out, fields[i].name);
        fputs(": ", out);
        if (fields[i].kind == FIELD_LIST)
            json_samples_print(out, row, fields[i].id);
        else if (fields[i].kind == FIELD_TEXT)
            runner_json_text(out, field_format(row, fields[i].id, text, sizeof text));
        else
            fputs(field_format(row, fields[i].id, text, sizeof text), out);
    }
}

static void csv_row_print(FILE *out, const bench_row *row) {
    char text[64];
    bool is_first = true;
    for (size_t i = 0; i < N_FIELD; i++) {
        if (fields[i].kind == FIELD_LIST) continue;
        if (!is_first) fputc(',', out);
        is_first = false;
        csv_print(out, row != NULL ? field_format(row, fields[i].id, text, sizeof text)
                                   : fields[i].name);
    }
    fputc('\n', out);
}

/* ---- Columns: Markdown ---- */

/* Columns that a UTF-8 text takes: its code points, as no wide characters occur here. */
static int text_width(const char *text) {
    int n = 0;
    for (; *text != '\0'; text++) n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

static void md_cell_print(FILE *out, const char *text, int width, bool is_right) {
    int blanks = width - text_width(text);
    if (blanks < 0) blanks = 0;
    fprintf(out, " %*s%s%*s |", is_right ? blanks : 0, "", text, is_right ? 0 : blanks, "");
}

typedef enum md_line { MD_HEAD, MD_RULE, MD_ROW } md_line;

static void md_column_print(FILE *out, md_line line, const char *name, const char *text, int width,
                            bool is_right) {
    if (line == MD_HEAD) {
        md_cell_print(out, name, width, is_right);
    } else if (line == MD_RULE) {
        fputc(' ', out);
        for (int i = is_right ? 1 : 0; i < width; i++) fputc('-', out);
        fputs(is_right ? ": |" : " |", out);
    } else {
        md_cell_print(out, text, width, is_right);
    }
}

static void md_line_print(const bench_table *table, const bench_row *row, md_line line) {
    FILE *out = table->out;
    char text[80], number[64];
    fputc('|', out);
    md_column_print(out, line, "model", row->model_type, 30, false);
    double size = (double)row->model_size, params = (double)row->model_n_params;
    if (row->model_size >= UINT64_C(1) << 30)
        snprintf(text, sizeof text, "%.2f GiB", size / 1073741824.0);
    else
        snprintf(text, sizeof text, "%.2f MiB", size / 1048576.0);
    md_column_print(out, line, "size", text, 10, true);
    if (params >= 1e9)
        snprintf(text, sizeof text, "%.2f B", params / 1e9);
    else
        snprintf(text, sizeof text, "%.2f M", params / 1e6);
    md_column_print(out, line, "params", text, 10, true);
    md_column_print(out, line, "device", row->device, 10, false);
    if (row->n_threads > 0)
        snprintf(text, sizeof text, "%" PRId32, row->n_threads);
    else
        snprintf(text, sizeof text, "-");
    md_column_print(out, line, "threads", text, 7, true);
    if (table->columns.n_batch)
        md_column_print(out, line, "n_batch",
                        field_format(row, FIELD_N_BATCH, number, sizeof number), 7, true);
    if (table->columns.n_ubatch)
        md_column_print(out, line, "n_ubatch",
                        field_format(row, FIELD_N_UBATCH, number, sizeof number), 8, true);
    if (table->columns.type_k) md_column_print(out, line, "type_k", row->type_k, 6, true);
    if (table->columns.type_v) md_column_print(out, line, "type_v", row->type_v, 6, true);
    if (table->columns.is_rotated)
        md_column_print(out, line, "kv_rotate", row->is_rotated ? "1" : "0", 9, true);
    bench_test_format(row, text, sizeof text);
    md_column_print(out, line, "test", text, 15, true);
    snprintf(text, sizeof text, "%.2f ± %.2f", mean(row, sample_speed),
             deviation(row, sample_speed));
    md_column_print(out, line, "t/s", text, 20, true);
    if (row->limit_kind != NULL && row->limit_ts > 0)
        snprintf(text, sizeof text, "%.0f %% %s", 100 * row->limit_share, row->limit_kind);
    else
        snprintf(text, sizeof text, "-");
    if (table->columns.limit) md_column_print(out, line, "limit", text, 10, true);
    fputc('\n', out);
}

/* ---- The table ---- */

void bench_table_add(bench_table *table, const bench_row *row) {
    bool is_first = table->n_row++ == 0;
    switch (table->format) {
    case BENCH_FORMAT_MD:
        if (is_first) {
            md_line_print(table, row, MD_HEAD);
            md_line_print(table, row, MD_RULE);
        }
        md_line_print(table, row, MD_ROW);
        break;
    case BENCH_FORMAT_CSV:
        if (is_first) csv_row_print(table->out, NULL);
        csv_row_print(table->out, row);
        break;
    case BENCH_FORMAT_JSON:
        fputs(is_first ? "[\n  " : ",\n  ", table->out);
        json_row_print(table->out, row, "\n    ", ",\n    ");
        fputs("\n  }", table->out);
        break;
    case BENCH_FORMAT_JSONL:
        json_row_print(table->out, row, "", ", ");
        fputs("}\n", table->out);
        break;
    }
    fflush(table->out);
}

void bench_table_end(bench_table *table) {
    if (table->format == BENCH_FORMAT_JSON) fputs(table->n_row > 0 ? "\n]\n" : "[]\n", table->out);
}
