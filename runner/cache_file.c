/* SPDX-License-Identifier: MIT
 *
 * cache_file.c: see cache_file.h. inih splits the lines. Each line is checked when inih reports it;
 * whether all layers are there is checked at the end.
 */
#include "runner/cache_file.h"

#include <errno.h>
#include <ini.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#define SUFFIX  ".cache.ini"
#define VERSION "1"

static const char *const sides[LLM_CACHE_SIDES] = {"k", "v"};

static const tdm_type types[] = {
#define BLOCK_TYPE(ID, name) TDM_TYPE_##ID,
    TDM_KV_BLOCK_TYPE_LIST(BLOCK_TYPE)
#undef BLOCK_TYPE
};
enum { N_TYPE = sizeof types / sizeof *types };

tdm_status runner_cache_file_path(runner_app *app, const char *model_path, char **path_out,
                                  tdm_error *err) {
    const char *set = runner_config_get_string(app->config, "cache-file");
    tdm_status status = runner_config_check(app->config, err);
    if (status != TDM_OK) return status;
    const size_t size = strlen(model_path) + sizeof SUFFIX;
    char *path = set[0] != '\0' ? strdup(set) : malloc(size);
    if (path == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: out of memory", model_path);
    if (set[0] == '\0') snprintf(path, size, "%s" SUFFIX, model_path);
    *path_out = path;
    return TDM_OK;
}

/* ---- Reading ---- */

typedef struct reader {
    const char *path;
    const llm_model *model;
    llm_cache_costs *costs;
    bool has_version, has_model; /* both precede the first layer */
    FILE *stream;
    int line;           /* number of the line that inih got last */
    bool is_line_start; /* inih got its end: the next text begins a line */
    int fail_line;      /* of the first failure of line_read; 0 = none */
    tdm_status status;
    char reason[256]; /* of that failure */
} reader;

/* Keeps the first failure. Returns 0, by which a handler reports a failure to inih. */
TDM_PRINTF(3, 4)
static int line_fail(reader *r, tdm_status status, const char *format, ...) {
    va_list args;
    if (r->status != TDM_OK) return 0;
    r->status = status;
    r->fail_line = r->line;
    va_start(args, format);
    vsnprintf(r->reason, sizeof r->reason, format, args);
    va_end(args);
    return 0;
}

static int head_read(reader *r, const char *name, const char *value) {
    char fingerprint[24];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, r->model->fingerprint);
    if (strcmp(name, "version") == 0) {
        r->has_version = true;
        return strcmp(value, VERSION) == 0
                   ? 1
                   : line_fail(r, TDM_UNSUPPORTED, "version %s; this program reads " VERSION,
                               value);
    }
    if (strcmp(name, "model") == 0) {
        r->has_model = true;
        return strcmp(value, fingerprint) == 0 ? 1
                                               : line_fail(r, TDM_FAILED_PRECONDITION,
                                                           "measured with another model (%s, this "
                                                           "one is %s)",
                                                           value, fingerprint);
    }
    return strcmp(name, "tokens") == 0
               ? 1
               : line_fail(r, TDM_INVALID_ARGUMENT, "unknown key '%s'", name);
}

/* `name` is the side and the type: "k.q8_0". */
static int cost_read(reader *r, int32_t layer, const char *name, const char *value) {
    int side = 0, t = 0, used = 0;
    double rotated, plain;
    while (side < LLM_CACHE_SIDES && (strncmp(name, sides[side], 1) != 0 || name[1] != '.')) side++;
    if (side == LLM_CACHE_SIDES)
        return line_fail(r, TDM_INVALID_ARGUMENT, "unknown key '%s': expected k.TYPE or v.TYPE",
                         name);
    while (t < N_TYPE && strcmp(name + 2, tdm_type_name(types[t])) != 0) t++;
    if (t == N_TYPE)
        return line_fail(r, TDM_INVALID_ARGUMENT, "'%s' is no quantised cache type", name + 2);
    if (!llm_cache_has_side(r->model, layer, (llm_cache_side)side))
        return line_fail(r, TDM_INVALID_ARGUMENT, "layer %d keeps no %s", layer,
                         side == LLM_CACHE_K ? "K" : "V");
    if (sscanf(value, "%lf %lf %n", &rotated, &plain, &used) != 2 || value[used] != '\0' ||
        !llm_cache_costs_set(r->costs, layer, (llm_cache_side)side, types[t], true, rotated) ||
        !llm_cache_costs_set(r->costs, layer, (llm_cache_side)side, types[t], false, plain))
        return line_fail(r, TDM_INVALID_ARGUMENT,
                         "bad value '%s' for '%s': expected two numbers, at least 0", value, name);
    return 1;
}

/* An ini_reader: fgets that counts lines. inih may get a long line in several parts. */
static char *line_next(char *text, int size, void *user) {
    reader *r = user;
    if (fgets(text, size, r->stream) == NULL) return NULL;
    if (r->is_line_start) r->line++;
    r->is_line_start = strchr(text, '\n') != NULL;
    return text;
}

/* An ini_handler. */
static int line_read(void *user, const char *section, const char *name, const char *value) {
    reader *r = user;
    int32_t layer;
    int used = 0;
    if (strcmp(section, "cache") == 0) return head_read(r, name, value);
    if (sscanf(section, "layer %" SCNd32 "%n", &layer, &used) != 1 || section[used] != '\0')
        return line_fail(r, TDM_INVALID_ARGUMENT, "unknown section [%s]", section);
    if (!r->has_version || !r->has_model)
        return line_fail(r, TDM_INVALID_ARGUMENT,
                         "a layer before 'version' and 'model' of [cache]");
    if (layer < 0 || layer >= r->model->hparams.n_layer)
        return line_fail(r, TDM_INVALID_ARGUMENT, "layer %d; the model has %d", layer,
                         r->model->hparams.n_layer);
    return cost_read(r, layer, name, value);
}

/* Checks that each layer has costs of the same types of K, and of V: the first pass collects the
 * types that any layer has, the second one finds layers that lack one of them. */
static tdm_status complete_check(const reader *r, tdm_error *err) {
    bool is_measured[LLM_CACHE_SIDES][N_TYPE] = {{0}}, is_any[LLM_CACHE_SIDES] = {0};
    const int32_t n_layer = r->model->hparams.n_layer;
    for (int pass = 0; pass < 2; pass++)
        for (int32_t l = 0; l < n_layer; l++)
            for (int s = 0; s < LLM_CACHE_SIDES; s++) {
                if (!llm_cache_has_side(r->model, l, (llm_cache_side)s)) continue;
                for (int t = 0; t < N_TYPE; t++) {
                    const bool is_here =
                        llm_cache_costs_get(r->costs, l, (llm_cache_side)s, types[t], true) >= 0;
                    if (pass == 0 && is_here) is_measured[s][t] = is_any[s] = true;
                    if (pass == 1 && is_measured[s][t] && !is_here)
                        return tdm_fail(err, TDM_INVALID_ARGUMENT,
                                        "%s: [layer %d] lacks %s.%s; run `tandem calibrate` again",
                                        r->path, l, sides[s], tdm_type_name(types[t]));
                }
                if (pass == 1 && !is_any[s])
                    return tdm_fail(err, TDM_INVALID_ARGUMENT,
                                    "%s: no layer has a cost of %s; run `tandem calibrate` again",
                                    r->path, s == LLM_CACHE_K ? "K" : "V");
            }
    return TDM_OK;
}

tdm_status runner_cache_file_read(const char *path, const llm_model *model,
                                  llm_cache_costs **costs_out, tdm_error *err) {
    reader r = {.path = path, .model = model, .is_line_start = true};
    tdm_status status = llm_cache_costs_create(model->hparams.n_layer, &r.costs, err);
    if (status != TDM_OK) return status;
    errno = 0;
    r.stream = fopen(path, "r");
    /* The first bad line, which inih could not split or line_read refused; below 0: inih failed. */
    const int line = r.stream != NULL ? ini_parse_stream(line_next, &r, line_read, &r) : -1;
    const int error = errno;
    if (r.stream != NULL) fclose(r.stream);
    if (line < 0 && error == ENOENT)
        status =
            tdm_fail(err, TDM_NOT_FOUND,
                     "%s: there is no such file; make it with `tandem calibrate -m %s -f TEXT`",
                     path, model->path);
    else if (line < 0)
        status = tdm_fail(err, TDM_IO, "%s: cannot be read: %s", path, strerror(error));
    else if (r.status != TDM_OK && r.fail_line <= line)
        status = tdm_fail(err, r.status, "%s:%d: %s; run `tandem calibrate` again", path,
                          r.fail_line, r.reason);
    else if (line > 0) /* inih goes on behind a line that it cannot split: the failure came later */
        status = tdm_fail(err, TDM_INVALID_ARGUMENT, "%s:%d: expected 'key = value' or '[section]'",
                          path, line);
    else if (!r.has_version || !r.has_model)
        status = tdm_fail(err, TDM_INVALID_ARGUMENT,
                          "%s: [cache] lacks 'version' or 'model': not a file of `tandem "
                          "calibrate`",
                          path);
    else
        status = complete_check(&r, err);
    if (status != TDM_OK)
        llm_cache_costs_destroy(r.costs);
    else
        *costs_out = r.costs;
    return status;
}

/* ---- Writing ---- */

void runner_cache_file_print(FILE *stream, const llm_model *model, const llm_cache_costs *costs,
                             int64_t n_tok) {
    fprintf(stream,
            "# Cost of each cache type in each layer, by `tandem calibrate`: KL divergence from a\n"
            "# cache of f16 in nats a token, rotated and not.\n"
            "[cache]\nversion = " VERSION "\nmodel = %016" PRIx64 "\ntokens = %" PRId64 "\n",
            model->fingerprint, n_tok);
    for (int32_t l = 0; l < model->hparams.n_layer; l++) {
        fprintf(stream, "\n[layer %d]\n", l);
        for (int s = 0; s < LLM_CACHE_SIDES; s++)
            for (int t = 0; t < N_TYPE; t++) {
                const llm_cache_side side = (llm_cache_side)s;
                const double rotated = llm_cache_costs_get(costs, l, side, types[t], true);
                const double plain = llm_cache_costs_get(costs, l, side, types[t], false);
                if (rotated < 0 || plain < 0 || !llm_cache_has_side(model, l, side)) continue;
                fprintf(stream, "%s.%s = %.6e %.6e\n", sides[s], tdm_type_name(types[t]), rotated,
                        plain);
            }
    }
}
