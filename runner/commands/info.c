/* SPDX-License-Identifier: MIT
 *
 * info.c: `tandem convert-info MODEL`: what is in a GGUF file, for people or as JSON: its keys,
 * its tensors, the size of each type, its chat template, and what is missing to run it
 * (llm/needs.h). Reads any GGUF file, also of models that Tandem does not run.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "llm/gguf/gguf.h"
#include "llm/needs.h"
#include "runner/app.h"
#include "runner/json.h"

/* In text, a value is cut to one line of VALUE_MAX bytes; in JSON, an array is cut to ELEMENTS_MAX
 * elements, because vocabularies have hundreds of thousands. */
#define VALUE_MAX    120
#define ELEMENTS_MAX 64

#define TEMPLATE_KEY "tokenizer.chat_template"

/* The total size of the tensors of one type. */
typedef struct type_total {
    uint32_t type; /* as in the file */
    uint32_t n_tensor;
    uint32_t n_unknown; /* of types unknown to this build: not in `size` */
    uint64_t n_element, size;
} type_total;

typedef struct totals {
    type_total *types; /* largest first */
    size_t n;
    type_total all;
} totals;

static uint64_t element_count(const llm_gguf_tensor *tensor) {
    uint64_t n = 1;
    for (int i = 0; i < 4; i++) n *= (uint64_t)tensor->ne[i];
    return n;
}

static void total_add(type_total *total, const llm_gguf_tensor *tensor) {
    total->n_tensor++;
    total->n_element += element_count(tensor);
    total->size += tensor->size;
    if (tensor->data == NULL) total->n_unknown++;
}

static void total_join(type_total *total, const type_total *other) {
    total->n_tensor += other->n_tensor;
    total->n_unknown += other->n_unknown;
    total->n_element += other->n_element;
    total->size += other->size;
}

static int type_compare(const void *a, const void *b) {
    const type_total *x = a, *y = b;
    return (x->type > y->type) - (x->type < y->type);
}

static int total_compare(const void *a, const void *b) {
    const type_total *x = a, *y = b;
    if (x->size != y->size) return x->size < y->size ? 1 : -1;
    return (x->type > y->type) - (x->type < y->type);
}

static tdm_status totals_make(const llm_gguf *g, totals *out, tdm_error *err) {
    uint32_t n_tensor = llm_gguf_tensor_count(g);
    memset(out, 0, sizeof *out);
    out->types = calloc((size_t)n_tensor + 1, sizeof *out->types);
    if (out->types == NULL)
        return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory for %" PRIu32 " tensors",
                        llm_gguf_name(g), n_tensor);
    for (uint32_t i = 0; i < n_tensor; i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        out->types[i].type = tensor->type_raw;
        total_add(&out->types[i], tensor);
        total_add(&out->all, tensor);
    }
    qsort(out->types, n_tensor, sizeof *out->types, type_compare);
    for (uint32_t i = 0; i < n_tensor; i++) {
        const type_total *one = &out->types[i];
        if (out->n == 0 || out->types[out->n - 1].type != one->type)
            out->types[out->n++] = *one;
        else
            total_join(&out->types[out->n - 1], one);
    }
    qsort(out->types, out->n, sizeof *out->types, total_compare);
    return TDM_OK;
}

static bool key_is_template(const llm_gguf_key *key) {
    size_t len = sizeof TEMPLATE_KEY - 1;
    return key->type == LLM_GGUF_STRING && strncmp(key->name, TEMPLATE_KEY, len) == 0 &&
           (key->name[len] == '\0' || key->name[len] == '.');
}

static llm_gguf_str key_string(const llm_gguf *g, const llm_gguf_key *key) {
    llm_gguf_str text = {"", 0};
    (void)llm_gguf_get_str(g, key->name, LLM_GGUF_OPTIONAL, &text, NULL);
    return text;
}

/* ---- Text ---- */

/* Prints newlines and tabs as they are, and other control characters as \xNN, so that a file cannot
 * control the terminal. */
static void template_print(FILE *out, llm_gguf_str text) {
    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = (unsigned char)text.ptr[i];
        if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7f)
            fprintf(out, "\\x%02x", byte);
        else
            fputc(byte, out);
    }
    if (text.len == 0 || text.ptr[text.len - 1] != '\n') fputc('\n', out);
}

static void size_format(bool is_known, uint64_t size, char *text, size_t text_size) {
    if (!is_known)
        snprintf(text, text_size, "unknown");
    else
        runner_bytes_format(size, text, text_size);
}

static void shape_format(const llm_gguf_tensor *tensor, char *text, size_t text_size) {
    size_t n = 0;
    for (int32_t i = 0; i < tensor->n_dims && n < text_size; i++)
        n += (size_t)snprintf(text + n, text_size - n, "%s%" PRId64, i > 0 ? " x " : "",
                              tensor->ne[i]);
}

static void keys_print(const llm_gguf *g, FILE *out) {
    int width = 0;
    for (uint32_t i = 0; i < llm_gguf_key_count(g); i++) {
        int len = (int)strlen(llm_gguf_key_at(g, i)->name);
        if (len > width) width = len < 48 ? len : 48;
    }
    for (uint32_t i = 0; i < llm_gguf_key_count(g); i++) {
        const llm_gguf_key *key = llm_gguf_key_at(g, i);
        char value[VALUE_MAX];
        llm_gguf_key_print(key, value, sizeof value);
        fprintf(out, "%-*s  %-6s  %s\n", width, key->name, llm_gguf_type_name(key->type), value);
    }
}

static void tensors_print(const llm_gguf *g, FILE *out) {
    int width = 0;
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++) {
        int len = (int)strlen(llm_gguf_tensor_at(g, i)->name);
        if (len > width) width = len < 48 ? len : 48;
    }
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        char shape[96], size[32];
        shape_format(tensor, shape, sizeof shape);
        size_format(tensor->data != NULL, tensor->size, size, sizeof size);
        fprintf(out, "%-*s  %-7s  %11s  %s\n", width, tensor->name,
                llm_gguf_tensor_type_name(tensor->type_raw), size, shape);
    }
}

static void total_print(FILE *out, const char *name, const type_total *total) {
    char size[32], bits[16] = "?";
    size_format(total->n_unknown == 0, total->size, size, sizeof size);
    if (total->n_unknown == 0 && total->n_element > 0)
        snprintf(bits, sizeof bits, "%.2f", 8 * (double)total->size / (double)total->n_element);
    fprintf(out, "%-7s  %7" PRIu32 " tensors  %14" PRIu64 " elements  %11s  %5s bits each\n", name,
            total->n_tensor, total->n_element, size, bits);
}

static void needs_print(const llm_needs *needs, FILE *out) {
    fprintf(out, "runs: %s\n", needs->can_run ? "yes" : "no");
    for (size_t i = 0; i < needs->n; i++) {
        const llm_need *need = &needs->needs[i];
        fprintf(out, "missing %s", llm_need_kind_name(need->kind));
        if (need->name[0] != '\0') fprintf(out, " %s", need->name);
        if (need->n_tensor > 0)
            fprintf(out, " (%" PRIu32 " tensor%s)", need->n_tensor, need->n_tensor == 1 ? "" : "s");
        fprintf(out, ": %s\n    needed: %s\n", need->reason, llm_need_remedy(need->kind));
    }
    fputc('\n', out);
}

static void info_print(const llm_gguf *g, const totals *sums, const llm_needs *needs, FILE *out) {
    fprintf(out,
            "%s: GGUF version %" PRIu32 ", %" PRIu32 " part%s, %" PRIu32 " keys, %" PRIu32
            " tensors\n\n",
            llm_gguf_name(g), llm_gguf_version(g), llm_gguf_part_count(g),
            llm_gguf_part_count(g) == 1 ? "" : "s", llm_gguf_key_count(g),
            llm_gguf_tensor_count(g));
    needs_print(needs, out);
    keys_print(g, out);
    if (llm_gguf_tensor_count(g) > 0) {
        fputc('\n', out);
        tensors_print(g, out);
        fputc('\n', out);
        for (size_t i = 0; i < sums->n; i++)
            total_print(out, llm_gguf_tensor_type_name(sums->types[i].type), &sums->types[i]);
        total_print(out, "all", &sums->all);
    }
    for (uint32_t i = 0; i < llm_gguf_key_count(g); i++) {
        const llm_gguf_key *key = llm_gguf_key_at(g, i);
        if (!key_is_template(key)) continue;
        fprintf(out, "\n%s:\n", key->name);
        template_print(out, key_string(g, key));
    }
}

/* ---- JSON ---- */

/* Writes a string that may contain NULs. The JSON writer takes C strings, so each NUL becomes a
 * byte that is not UTF-8, which the writer prints as U+FFFD. */
static tdm_status string_write(runner_json_writer *w, const char *key, llm_gguf_str text,
                               tdm_error *err) {
    char *copy = malloc(text.len + 1);
    if (copy == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for a string");
    for (size_t i = 0; i < text.len; i++) copy[i] = text.ptr[i] == '\0' ? '\xff' : text.ptr[i];
    copy[text.len] = '\0';
    runner_json_string(w, key, copy);
    free(copy);
    return TDM_OK;
}

static tdm_status array_write(runner_json_writer *w, const llm_gguf_key *key, tdm_error *err) {
    const llm_gguf_array *array = &key->array;
    tdm_status status = TDM_OK;
    uint64_t n = array->type == LLM_GGUF_ARRAY ? 0 : array->n;
    runner_json_begin_object(w, key->name);
    runner_json_string(w, "type", llm_gguf_type_name(array->type));
    runner_json_uint(w, "count", array->n);
    runner_json_begin_array(w, "values");
    for (uint64_t i = 0; i < n && i < ELEMENTS_MAX && status == TDM_OK; i++) {
        if (array->type == LLM_GGUF_STRING)
            status = string_write(w, NULL, llm_gguf_array_str(array, i), err);
        else if (array->type == LLM_GGUF_F32 || array->type == LLM_GGUF_F64)
            runner_json_number(w, NULL, llm_gguf_array_f32(array, i));
        else if (array->type == LLM_GGUF_BOOL)
            runner_json_bool(w, NULL, llm_gguf_array_i64(array, i) != 0);
        else
            runner_json_int(w, NULL, llm_gguf_array_i64(array, i));
    }
    runner_json_end_array(w);
    runner_json_end_object(w);
    return status;
}

static void number_write(runner_json_writer *w, const llm_gguf *g, const llm_gguf_key *key) {
    int64_t integer = 0;
    uint64_t natural = 0;
    double wide = 0;
    float real = 0;
    bool flag = false;
    switch (key->type) {
    case LLM_GGUF_F64:
        memcpy(&wide, key->data, sizeof wide);
        runner_json_number(w, key->name, wide);
        break;
    case LLM_GGUF_F32:
        memcpy(&real, key->data, sizeof real);
        runner_json_number(w, key->name, real);
        break;
    case LLM_GGUF_BOOL:
        (void)llm_gguf_get_bool(g, key->name, LLM_GGUF_OPTIONAL, &flag, NULL);
        runner_json_bool(w, key->name, flag);
        break;
    case LLM_GGUF_U64:
        memcpy(&natural, key->data, sizeof natural);
        runner_json_uint(w, key->name, natural);
        break;
    default:
        (void)llm_gguf_get_i64(g, key->name, LLM_GGUF_OPTIONAL, &integer, NULL);
        runner_json_int(w, key->name, integer);
    }
}

static tdm_status keys_write(runner_json_writer *w, const llm_gguf *g, tdm_error *err) {
    tdm_status status = TDM_OK;
    runner_json_begin_object(w, "keys");
    for (uint32_t i = 0; i < llm_gguf_key_count(g) && status == TDM_OK; i++) {
        const llm_gguf_key *key = llm_gguf_key_at(g, i);
        if (key->type == LLM_GGUF_ARRAY)
            status = array_write(w, key, err);
        else if (key->type == LLM_GGUF_STRING)
            status = string_write(w, key->name, key_string(g, key), err);
        else
            number_write(w, g, key);
    }
    runner_json_end_object(w);
    return status;
}

static void size_write(runner_json_writer *w, bool is_known, uint64_t size) {
    if (!is_known)
        runner_json_null(w, "size");
    else
        runner_json_uint(w, "size", size);
}

static void tensors_write(runner_json_writer *w, const llm_gguf *g) {
    runner_json_begin_array(w, "tensors");
    for (uint32_t i = 0; i < llm_gguf_tensor_count(g); i++) {
        const llm_gguf_tensor *tensor = llm_gguf_tensor_at(g, i);
        runner_json_begin_object(w, NULL);
        runner_json_string(w, "name", tensor->name);
        runner_json_string(w, "type", llm_gguf_tensor_type_name(tensor->type_raw));
        runner_json_begin_array(w, "shape");
        for (int32_t k = 0; k < tensor->n_dims; k++) runner_json_int(w, NULL, tensor->ne[k]);
        runner_json_end_array(w);
        size_write(w, tensor->data != NULL, tensor->size);
        runner_json_uint(w, "part", tensor->part);
        runner_json_end_object(w);
    }
    runner_json_end_array(w);
}

static void total_write(runner_json_writer *w, const char *key, const char *type,
                        const type_total *sum) {
    runner_json_begin_object(w, key);
    if (type != NULL) runner_json_string(w, "type", type);
    runner_json_uint(w, "tensors", sum->n_tensor);
    runner_json_uint(w, "elements", sum->n_element);
    size_write(w, sum->n_unknown == 0, sum->size);
    runner_json_end_object(w);
}

static void needs_write(runner_json_writer *w, const llm_needs *needs) {
    runner_json_bool(w, "runs", needs->can_run);
    runner_json_begin_array(w, "missing");
    for (size_t i = 0; i < needs->n; i++) {
        const llm_need *need = &needs->needs[i];
        runner_json_begin_object(w, NULL);
        runner_json_string(w, "kind", llm_need_kind_name(need->kind));
        runner_json_string(w, "name", need->name);
        runner_json_uint(w, "tensors", need->n_tensor);
        runner_json_string(w, "reason", need->reason);
        runner_json_string(w, "needed", llm_need_remedy(need->kind));
        runner_json_end_object(w);
    }
    runner_json_end_array(w);
}

static tdm_status info_write(const llm_gguf *g, const totals *sums, const llm_needs *needs,
                             FILE *out, tdm_error *err) {
    runner_json_writer w = {.out = out};
    const llm_gguf_key *template = llm_gguf_key_find(g, TEMPLATE_KEY);
    runner_json_begin_object(&w, NULL);
    runner_json_string(&w, "file", llm_gguf_name(g));
    runner_json_uint(&w, "version", llm_gguf_version(g));
    runner_json_uint(&w, "parts", llm_gguf_part_count(g));
    needs_write(&w, needs);
    tdm_status status = keys_write(&w, g, err);
    if (status != TDM_OK) return status;
    tensors_write(&w, g);
    runner_json_begin_array(&w, "types");
    for (size_t i = 0; i < sums->n; i++)
        total_write(&w, NULL, llm_gguf_tensor_type_name(sums->types[i].type), &sums->types[i]);
    runner_json_end_array(&w);
    total_write(&w, "total", NULL, &sums->all);
    if (template != NULL && template->type == LLM_GGUF_STRING)
        status = string_write(&w, "chat_template", key_string(g, template), err);
    else
        runner_json_null(&w, "chat_template");
    runner_json_end_object(&w);
    return status;
}

static tdm_status info_command(runner_app *app, tdm_error *err) {
    llm_gguf *gguf = NULL;
    totals sums = {0};
    llm_needs needs = {0};
    const char *path = NULL;
    bool is_json = runner_config_get_bool(app->config, "json");
    tdm_status status = runner_config_check(app->config, err);
    if (status == TDM_OK)
        status = llm_gguf_open(path = runner_config_positional(app->config, 0), &gguf, err);
    if (status == TDM_OK) status = totals_make(gguf, &sums, err);
    if (status == TDM_OK) status = llm_needs_find(gguf, path, &needs, err);
    if (status == TDM_OK && is_json)
        status = info_write(gguf, &sums, &needs, app->out, err);
    else if (status == TDM_OK)
        info_print(gguf, &sums, &needs, app->out);
    llm_needs_free(&needs);
    free(sums.types);
    llm_gguf_close(gguf);
    return status;
}

static const runner_key own_keys[] = {
    {.topic = "Only convert-info",
     .name = "json",
     .type = RUNNER_KEY_BOOL,
     .default_value = "no",
     .help = "print all of it as JSON; of long arrays, such as vocabularies, the first 64 values"},
};

const runner_command runner_command_info = {
    .name = "convert-info",
    .positional = "MODEL.gguf",
    .n_positional_min = 1,
    .n_positional_max = 1,
    .summary = "show what is in a GGUF file, and what is missing to run it",
    .run = info_command,
    .keys = RUNNER_KEYS_EVERY,
    .own_keys = own_keys,
    .n_own_key = sizeof own_keys / sizeof own_keys[0],
};
