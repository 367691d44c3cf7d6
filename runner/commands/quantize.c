/* SPDX-License-Identifier: MIT
 *
 * quantize.c: `tandem quantize IN OUT TYPE`: writes a model file in a smaller type.
 * llm/quantize/quantize.h chooses the type of each tensor and converts it.
 */
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "llm/quantize/quantize.h"
#include "runner/app.h"
#include "runner/interrupt.h"
#include "runner/session.h"

static tdm_status kind_find(runner_app *app, const llm_quantize_kind **kind_out, tdm_error *err) {
    const char *word = runner_config_positional(app->config, 2), *names[64];
    char list[512] = "";
    size_t n = 0, len = 0;
    *kind_out = llm_quantize_kind_find(word);
    if (*kind_out != NULL) return TDM_OK;
    for (; n < n_llm_quantize_kinds && n < sizeof names / sizeof *names; n++) {
        names[n] = llm_quantize_kinds[n].name;
        if (len < sizeof list)
            len += (size_t)snprintf(list + len, sizeof list - len, "%s%s", n > 0 ? ", " : "",
                                    names[n]);
    }
    const char *nearest = runner_word_nearest(word, names, n);
    if (nearest != NULL)
        return runner_usage(app, err, "unknown type '%.32s'; did you mean '%s'? (there are %s)",
                            word, nearest, list);
    return runner_usage(app, err, "unknown type '%.32s'; there are %s", word, list);
}

/* The source is read while the target is written, so they must be different files. */
static tdm_status paths_check(runner_app *app, const char *in, const char *out, tdm_error *err) {
    struct stat a, b;
    if (stat(in, &a) != 0 || stat(out, &b) != 0) return TDM_OK;
    if (a.st_dev == b.st_dev && a.st_ino == b.st_ino)
        return runner_usage(app, err, "%s: is the model that is read; name another file to write",
                            out);
    if (S_ISDIR(b.st_mode))
        return runner_usage(app, err, "%s: is a folder; name a file to write", out);
    return TDM_OK;
}

static void types_print(FILE *out) {
    fputs("\nTypes\n", out);
    for (size_t i = 0; i < n_llm_quantize_kinds; i++) {
        const llm_quantize_kind *kind = &llm_quantize_kinds[i];
        fprintf(out, "  %-10s %5.4g bits%s%s\n", kind->name, llm_quantize_bits(kind->type),
                kind->mixture != NULL ? "; " : "", kind->mixture != NULL ? kind->mixture : "");
    }
    fputs("\nBits are those of the type that most matrices get. The mix after them lists the "
          "tensors of "
          "another\ntype, as llama.cpp chooses them without an importance matrix. The output "
          "matrix, or "
          "an embedding\nthat is also the output matrix, gets q6_K (q8_0 in q8_0 and mxfp4_moe; "
          "q5_K in "
          "iq3_xxs, iq2 and\niq1). With --pure every matrix gets the type itself. Norms keep their "
          "type. Rows that are not whole\nblocks of 256 get iq4_nl, q4_0, q5_0, q5_1 or q8_0; rows "
          "that are not whole blocks of 32 get f16.\n",
          out);
}

/* Warns if the type does not suit this model, or most models, or is less exact than one may
 * expect. */
static void kind_warn(runner_app *app, const llm_gguf *g, const llm_quantize_kind *kind,
                      bool has_importance, const llm_quantize_choice *choices) {
    uint32_t n_taken = 0;
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++)
        if (choices[i].wanted == kind->type && choices[i].type == kind->type) n_taken++;
    if (kind->mix == LLM_QUANTIZE_MXFP4_MOE && n_taken == 0)
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_WARNING,
                              "this model has no experts, so none of it becomes mxfp4, but q8_0; "
                              "--pure makes all matrices mxfp4");
    if (kind->mix == LLM_QUANTIZE_TERNARY)
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_WARNING,
                              "%s is for weights that were trained to be -1, 0 or 1 times a scale; "
                              "of others little is left",
                              kind->name);
    else if (llm_quantize_bits(kind->type) < 3 && !has_importance)
        runner_terminal_print(
            app->terminal, RUNNER_MESSAGE_WARNING,
            "%s has fewer than 3 bits for a weight and is made without an "
            "importance matrix (--imatrix): its text may be poor; q3_K_S or larger is "
            "safer",
            kind->name);
}

/* Prints notes and warnings on the chosen types, before the work begins. */
static void choices_tell(runner_app *app, const llm_gguf *g, const llm_quantize_choice *choices) {
    uint32_t n_short = 0, n_again = 0;
    const llm_gguf_tensor *example = NULL;
    tdm_type wanted = TDM_TYPE_F32, taken = TDM_TYPE_F32;
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_DEBUG, "%s: %s becomes %s",
                              tensor->name, tdm_type_name(tensor->type),
                              tdm_type_name(choices[i].type));
        if (choices[i].type != tensor->type && tdm_type_get_info(tensor->type).is_quantized)
            n_again++;
        if (choices[i].type == choices[i].wanted) continue;
        if (n_short++ > 0) continue;
        example = tensor;
        wanted = choices[i].wanted;
        taken = choices[i].type;
    }
    if (n_short > 0)
        runner_terminal_print(
            app->terminal, RUNNER_MESSAGE_NOTE,
            "%u tensors have rows that are not whole blocks of their type and get "
            "another, such as %s: %lld elements, %s instead of %s",
            n_short, example->name, (long long)example->ne[0], tdm_type_name(taken),
            tdm_type_name(wanted));
    if (n_again > 0)
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_WARNING,
                              "%u tensors are quantised already, and lose more than those of the "
                              "original model would",
                              n_again);
}

static bool progress_update(void *context, uint64_t done, uint64_t total) {
    runner_app *app = context;
    (void)total;
    runner_progress_update(app->terminal, done);
    return !runner_interrupt_came();
}

static void result_print(runner_app *app, const llm_gguf *g, const llm_quantize_choice *choices,
                         const char *path, uint64_t ns) {
    uint64_t before = 0, after = 0, n_element = 0;
    char from[32], to[32];
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        int64_t n_row = tensor->ne[1] * tensor->ne[2] * tensor->ne[3];
        before += tensor->size;
        after += tdm_type_row_size(choices[i].type, tensor->ne[0]) * (uint64_t)n_row;
        n_element += (uint64_t)(tensor->ne[0] * n_row);
    }
    runner_bytes_format(before, from, sizeof from);
    runner_bytes_format(after, to, sizeof to);
    if (!runner_config_is_quiet(app->config))
        fprintf(app->out, "%s: %s of tensors from %s, %.2f bits each, in %.1f s\n", path, to, from,
                n_element > 0 ? 8 * (double)after / (double)n_element : 0, (double)ns / 1e9);
}

/* Processors that this process may use. Linux fails where a mask is too small for the machine, and
 * one cpu_set_t has room for 1024. */
static int core_count(void) {
    cpu_set_t sets[8];
    return sched_getaffinity(0, sizeof sets, sets) == 0 ? CPU_COUNT_S(sizeof sets, sets) : 1;
}

/* Reads and adds up the files of --imatrix; *out stays NULL if there is none. */
static tdm_status importance_read(runner_app *app, llm_importance **out, tdm_error *err) {
    const size_t n = runner_config_get_count(app->config, "imatrix");
    if (n == 0) return TDM_OK;
    const char **paths = malloc(n * sizeof *paths);
    if (paths == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %zu paths", n);
    for (size_t i = 0; i < n; i++)
        paths[i] = runner_config_get_string_at(app->config, "imatrix", i);
    tdm_status status = llm_importance_read(paths, n, out, err);
    free(paths);
    return status;
}

/* Warns if the importance matrix lacks matrices of layers that are quantised. Fails if it has none
 * of them: then it is of another model. Embedding and output matrix are not expected in it. */
static tdm_status importance_tell(runner_app *app, const llm_gguf *g,
                                  const llm_quantize_choice *choices,
                                  const llm_importance *importance, tdm_error *err) {
    uint32_t n_with = 0, n_without = 0;
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        const float *values = NULL;
        if (choices[i].type == tensor->type) continue;
        tdm_status status = llm_importance_find(importance, tensor, &values, err);
        if (status != TDM_OK) return status;
        if (values != NULL)
            n_with++;
        else if (strncmp(tensor->name, "blk.", 4) == 0)
            n_without++;
    }
    if (n_with == 0)
        return tdm_fail(err, TDM_FAILED_PRECONDITION,
                        "%s: has %zu matrices, none of which the model has; use the importance "
                        "matrix of this model",
                        runner_config_get_string_at(app->config, "imatrix", 0),
                        llm_importance_count(importance));
    if (n_without > 0)
        runner_terminal_print(app->terminal, RUNNER_MESSAGE_WARNING,
                              "the importance matrix lacks %u matrices of layers, which are "
                              "quantised without",
                              n_without);
    return TDM_OK;
}

static tdm_status file_quantize(runner_app *app, const llm_quantize_kind *kind, tdm_error *err) {
    const char *in = runner_config_positional(app->config, 0);
    const char *out = runner_config_positional(app->config, 1);
    bool is_pure = runner_config_get_bool(app->config, "pure");
    int64_t n_thread = runner_section_is_given(app->config, NULL, RUNNER_THREADS_KEY)
                           ? runner_config_get_int(app->config, RUNNER_THREADS_KEY)
                           : 0;
    llm_gguf *gguf = NULL;
    llm_importance *importance = NULL;
    llm_quantize_choice *choices = NULL;
    uint64_t start = runner_clock();
    tdm_status status = runner_config_check(app->config, err);
    if (status == TDM_OK) status = llm_gguf_open(in, &gguf, err);
    if (status != TDM_OK) return status;
    uint32_t n_tensor = llm_gguf_tensor_count(gguf);
    if (n_thread == 0) n_thread = core_count();
    choices = calloc((size_t)n_tensor + 1, sizeof *choices);
    if (choices == NULL)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for %u tensors", n_tensor);
    if (status == TDM_OK) status = importance_read(app, &importance, err);
    if (status == TDM_OK)
        status = llm_quantize_choose(gguf, kind, is_pure, importance != NULL, choices, err);
    if (status == TDM_OK && importance != NULL)
        status = importance_tell(app, gguf, choices, importance, err);
    if (status == TDM_OK) {
        uint64_t size = 0;
        for (uint32_t i = 0; i < n_tensor; i++) size += llm_gguf_tensor_at(gguf, i)->size;
        choices_tell(app, gguf, choices);
        kind_warn(app, gguf, kind, importance != NULL, choices);
        runner_progress_begin(app->terminal, "quantising", size, RUNNER_UNIT_BYTES);
        status = llm_quantize_write(gguf, kind, choices, importance, out, (int32_t)n_thread,
                                    progress_update, app, err);
        runner_progress_end(app->terminal);
    }
    if (status == TDM_OK) result_print(app, gguf, choices, out, runner_clock() - start);
    free(choices);
    llm_importance_destroy(importance);
    llm_gguf_close(gguf);
    return status;
}

static tdm_status quantize_command(runner_app *app, tdm_error *err) {
    const llm_quantize_kind *kind = NULL;
    tdm_status status = kind_find(app, &kind, err);
    if (status == TDM_OK)
        status = paths_check(app, runner_config_positional(app->config, 0),
                             runner_config_positional(app->config, 1), err);
    return status == TDM_OK ? file_quantize(app, kind, err) : status;
}

static const runner_key own_keys[] = {
    {.topic = "Only quantize",
     .name = "pure",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "use the given type for every matrix, without larger types where they help most"},
    {.topic = "Only quantize",
     .name = "imatrix",
     .type = RUNNER_KEY_PATHS,
     .default_value = "",
     .value_name = "PATH:PATH",
     .traits = RUNNER_KEY_REPEATABLE,
     .help = "importance matrices of the model in llama.cpp's GGUF form, which are added up: what "
             "matters more on their texts keeps more of its precision"},
};

const runner_command runner_command_quantize = {
    .name = "quantize",
    .positional = "IN.gguf OUT.gguf TYPE",
    .n_positional_min = 3,
    .n_positional_max = 3,
    .summary = "write a model in a smaller type, such as q8_0 or q4_K_M",
    .run = quantize_command,
    .keys = RUNNER_KEYS_EVERY " " RUNNER_THREADS_KEY,
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
    .help_print = types_print,
};
