/* SPDX-License-Identifier: MIT
 *
 * render_template.c: renders a template for every context of a list, as JSON: what tests compare.
 *
 *   render_template TEMPLATE CONTEXTS.json   TEMPLATE is a text file, or a GGUF that carries one
 *   render_template SNIPPETS.json            [[template, context], ...]: each with its own
 *
 * The answer is a list with a text for each, null where the template fails; reasons are printed on
 * standard error. tests/template/reference.py prints the same, rendered by Jinja.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/gguf/gguf.h"
#include "llm/template/template.h"
#include "llm/template/template_json.h"

#define NOW 1753920000 /* 2025-07-31, in reference.py too */

static const llm_tpl_json_style compact = {.item = {", ", 2}, .key = {": ", 2}};
static const llm_tpl_json_style lines = {.indent = {" ", 1}, .item = {",", 1}, .key = {": ", 2}};

static bool file_read(const char *path, char **text_out, size_t *len_out) {
    FILE *file = fopen(path, "rb");
    size_t capacity = (size_t)16 << 20;
    *text_out = malloc(capacity);
    bool ok = file != NULL && *text_out != NULL;
    if (ok) {
        *len_out = fread(*text_out, 1, capacity, file);
        ok = ferror(file) == 0 && *len_out < capacity;
    }
    if (file != NULL) fclose(file);
    if (!ok) fprintf(stderr, "%s: cannot be read\n", path);
    return ok;
}

static bool gguf_read(const char *path, char **text_out, size_t *len_out) {
    llm_gguf *gguf = NULL;
    llm_gguf_str text;
    tdm_error err = {0};
    bool ok = llm_gguf_open(path, &gguf, &err) == TDM_OK &&
              llm_gguf_get_str(gguf, "tokenizer.chat_template", LLM_GGUF_REQUIRED, &text, &err) ==
                  TDM_OK &&
              (*text_out = malloc(text.len + 1)) != NULL;
    if (ok) {
        memcpy(*text_out, text.ptr, text.len);
        *len_out = text.len;
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    llm_gguf_close(gguf);
    return ok;
}

/* Adds the text, or null, to the list. */
static bool render_one(llm_tpl_job *job, llm_tpl_str text, const llm_tpl_value *context,
                       llm_tpl_list *results) {
    llm_template *tpl = NULL;
    llm_tpl_str json;
    tdm_error err = {0};
    char *made = NULL;
    size_t len = 0;
    if (!llm_tpl_json_write(job, &compact, context, &json)) return false;
    tdm_status status =
        llm_template_create("template", text.len > 0 ? text.ptr : "", text.len, &tpl, &err);
    if (status == TDM_OK)
        status = llm_template_render(tpl, json.ptr, json.len, NOW, &made, &len, &err);
    if (status != TDM_OK) fprintf(stderr, "%zu: %s\n", results->n, err.message);
    llm_tpl_buffer buffer = {0};
    bool ok = status != TDM_OK || llm_tpl_put(job, &buffer, (llm_tpl_str){made, len});
    ok = ok && llm_tpl_list_push(job, results,
                                 status == TDM_OK ? llm_tpl_string(llm_tpl_buffer_str(&buffer))
                                                  : llm_tpl_none());
    free(made);
    llm_template_destroy(tpl);
    return ok;
}

static bool render_all(llm_tpl_job *job, const char *text, size_t len, const llm_tpl_value *list,
                       llm_tpl_value *results) {
    if (list->kind != LLM_TPL_LIST) return llm_tpl_fail(job, TDM_DATA_LOSS, "no list");
    if (!llm_tpl_list_make(job, LLM_TPL_PLAIN, results)) return false;
    for (size_t i = 0; i < list->as.list->n; i++) {
        const llm_tpl_value *item = &list->as.list->items[i];
        llm_tpl_str own = {text, len};
        job->n_step = 0;
        if (text == NULL) {
            if (item->kind != LLM_TPL_LIST || item->as.list->n != 2 ||
                item->as.list->items[0].kind != LLM_TPL_STRING)
                return llm_tpl_fail(job, TDM_DATA_LOSS, "item %zu is no snippet", i);
            own = item->as.list->items[0].as.text;
            item = &item->as.list->items[1];
        }
        if (!render_one(job, own, item, results->as.list)) return false;
    }
    return true;
}

int main(int argc, char **argv) {
    tdm_error err = {0};
    llm_tpl_job job = {.name = "render_template", .err = &err};
    llm_tpl_value list, results;
    llm_tpl_str made = {NULL, 0};
    char *text = NULL, *json = NULL;
    size_t len = 0, json_len = 0;
    if (argc < 2 || argc > 3) return 2;
    bool is_gguf = argc == 3 && strstr(argv[1], ".gguf") != NULL;
    bool ok =
        argc == 2 || (is_gguf ? gguf_read(argv[1], &text, &len) : file_read(argv[1], &text, &len));
    ok = ok && file_read(argv[argc - 1], &json, &json_len) &&
         llm_tpl_json_read(&job, (llm_tpl_str){json, json_len}, &list) &&
         render_all(&job, text, len, &list, &results) &&
         llm_tpl_json_write(&job, &lines, &results, &made);
    if (ok)
        printf("%.*s\n", (int)made.len, made.ptr);
    else if (err.message[0] != '\0')
        fprintf(stderr, "%s\n", err.message);
    llm_tpl_job_end(&job);
    free(text);
    free(json);
    return ok ? 0 : 1;
}
