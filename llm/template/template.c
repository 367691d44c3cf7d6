/* SPDX-License-Identifier: MIT
 *
 * template.c: see template.h.
 */
#include "llm/template/template.h"

#include <stdlib.h>
#include <string.h>

#include "llm/template/template_json.h"
#include "llm/template/template_parser.h"
#include "llm/template/template_render.h"

struct llm_template {
    llm_tpl_job job; /* owns the tree */
    char name[96];   /* for messages */
    const char *short_name; /* `name` without folders, for messages of rendering */
    const llm_tpl_node *body;
};

tdm_status llm_template_create(const char *name, const char *text, size_t len, llm_template **out,
                               tdm_error *err) {
    llm_template *tpl = calloc(1, sizeof *tpl);
    *out = NULL;
    if (tpl == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "%s: no memory", name);
    size_t name_len = strlen(name); /* of a long path, keep the end */
    if (name_len < sizeof tpl->name)
        memcpy(tpl->name, name, name_len + 1);
    else
        snprintf(tpl->name, sizeof tpl->name, "...%s", name + name_len - sizeof tpl->name + 4);
    const char *slash = strrchr(tpl->name, '/');
    tpl->short_name = slash != NULL ? slash + 1 : tpl->name;
    tpl->job.name = tpl->name;
    tpl->job.err = err;
    if (!llm_tpl_parse(&tpl->job, (llm_tpl_str){text, len}, &tpl->body)) {
        tdm_status status = tpl->job.status;
        llm_template_destroy(tpl);
        return status;
    }
    tpl->job.err = NULL;
    *out = tpl;
    return TDM_OK;
}

void llm_template_destroy(llm_template *tpl) {
    if (tpl == NULL) return;
    llm_tpl_job_end(&tpl->job);
    free(tpl);
}

/* The context's members become the outermost scope. */
static bool context_open(llm_tpl_job *job, llm_tpl_str text) {
    llm_tpl_value context;
    if (!llm_tpl_json_read(job, text, &context)) return false;
    if (context.kind != LLM_TPL_DICT)
        return llm_tpl_fail(job, TDM_DATA_LOSS, "the context is not a JSON object");
    if (!llm_tpl_scope_open(job, NULL)) return false;
    for (size_t i = 0; i < context.as.dict->n; i++) {
        const llm_tpl_pair *pair = &context.as.dict->pairs[i];
        if (!llm_tpl_assign(job, pair->key.as.text, pair->value)) return false;
    }
    return true;
}

tdm_status llm_template_render(const llm_template *tpl, const char *context, size_t context_len,
                               int64_t now, char **text_out, size_t *len_out, tdm_error *err) {
    llm_tpl_buffer buffer = {0};
    llm_tpl_job job = {.name = tpl->short_name, .err = err, .now = now, .out = &buffer};
    *text_out = NULL;
    *len_out = 0;
    if (context_open(&job, (llm_tpl_str){context, context_len}) && llm_tpl_exec(&job, tpl->body)) {
        *text_out = malloc(buffer.len + 1);
        if (*text_out == NULL) {
            llm_tpl_fail(&job, TDM_RESOURCE_EXHAUSTED, "no memory for %zu bytes", buffer.len);
        } else {
            if (buffer.len > 0) memcpy(*text_out, buffer.ptr, buffer.len);
            (*text_out)[buffer.len] = '\0';
            *len_out = buffer.len;
        }
    }
    llm_tpl_job_end(&job);
    return job.status;
}
