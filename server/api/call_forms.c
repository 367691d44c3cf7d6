/* SPDX-License-Identifier: MIT
 *
 * call_forms.c: see call_forms.h. The forms are those of the models' own templates (reply/parse.h
 * lists them). Arguments that are written one by one come in the order of the schema, each at most
 * once; the required ones must come.
 */
#include "server/api/call_forms.h"

#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer.h"
#include "server/grammar/schema.h"

/* ---- Texts ---- */

void api_mark_write(const server_model *model, const char *text, FILE *out) {
    int32_t *ids = NULL;
    size_t n = 0;
    const bool is_token = llm_tokenize(model->vocab, text, strlen(text), LLM_TOKENIZE_PARSE_SPECIAL,
                                       &ids, &n, NULL) == TDM_OK &&
                          n == 1 && llm_vocab_token_type(model->vocab, ids[0]) == LLM_TOKEN_CONTROL;
    if (is_token) fputc('(', out);
    schema_literal_write(out, text, strlen(text));
    if (is_token) fprintf(out, " | <[%d]>)", (int)ids[0]);
    free(ids);
}

/* Writes an expression for any text without NUL that ends with `mark` and has it nowhere else.
 * `mark` begins with '<' and has no other '<'. The text before it is characters other than '<', and
 * beginnings of the mark that go on in another way (`deviations`), before which others may have
 * begun again (`restarts`). */
static void until_write(const char *mark, FILE *out) {
    const size_t n = strlen(mark);
    char deviations[1024] = "", restarts[1024] = "";
    size_t at = 0, more = 0;
    for (size_t k = 1; k < n && at < sizeof deviations && more < sizeof restarts; k++) {
        const int len = (int)k - 1; /* bytes of the mark between '<' and byte k */
        at += (size_t)snprintf(deviations + at, sizeof deviations - at, "%s%s%.*s%s[^\\x00<%s%c]",
                               k > 1 ? " | " : "", len > 0 ? "\"" : "", len, mark + 1,
                               len > 0 ? "\" " : "", strchr("]^\\-", mark[k]) != NULL ? "\\" : "",
                               mark[k]);
        more += (size_t)snprintf(restarts + more, sizeof restarts - more, "%s\"%.*s<\"",
                                 k > 1 ? " | " : "", len, mark + 1);
    }
    fprintf(out, "([^\\x00<] | \"<\" (%s)* (%s))* \"<\" (%s)* \"%s\"", restarts, deviations,
            restarts, mark + 1);
}

/* ---- Tools ---- */

static const char *name_of(const json_t *tool) {
    const char *name =
        json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
    return name != NULL ? name : "";
}

static void name_write(const json_t *tool, FILE *out) {
    schema_literal_write(out, name_of(tool), strlen(name_of(tool)));
}

static void quoted_write(const json_t *tool, FILE *out) {
    json_t *name = json_string(name_of(tool));
    char *text = name != NULL ? json_dumps(name, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
    schema_literal_write(out, text != NULL ? text : "", text != NULL ? strlen(text) : 0);
    free(text);
    json_decref(name);
}

static bool has_parameters(reply_family family) {
    return family == REPLY_GLM || family == REPLY_QWEN_XML;
}

bool api_call_is_string(const json_t *schema) {
    const json_t *type = json_object_get(schema, "type");
    return json_is_string(type) && strcmp(json_string_value(type), "string") == 0;
}

/* The properties of the schema of tool i; NULL = it lists none. Writes the tool's rule to
 * `rule`. */
static const json_t *properties_of(const json_t *definitions, size_t i, char *rule, size_t size) {
    snprintf(rule, size, API_CALL_RULE, i);
    return json_object_get(json_object_get(definitions, rule), "properties");
}

bool api_call_parameters_define(reply_family family, json_t *definitions) {
    const size_t n_tool = json_object_size(definitions);
    bool is_good = true;
    for (size_t i = 0; i < n_tool && has_parameters(family); i++) {
        char rule[32], name[64];
        const char *key;
        size_t k = 0;
        json_t *one;
        json_t *properties = (json_t *)(uintptr_t)properties_of(definitions, i, rule, sizeof rule);
        json_object_foreach(properties, key, one) {
            snprintf(name, sizeof name, "%s-%zu", rule, k++);
            if (api_call_is_string(one)) continue;
            is_good = json_object_set_new(definitions, name, json_deep_copy(one)) == 0 && is_good;
        }
    }
    return is_good;
}

/* ---- Arguments one by one ---- */

/* The texts around a family's names and values. */
typedef struct parameter_form {
    const char *before_name, *behind_name, *before_value, *behind_value;
} parameter_form;

static const parameter_form glm = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
static const parameter_form qwen = {"<parameter=", ">", "", "</parameter>"};

/* Writes what is between a name and its value. */
static void between_write(const parameter_form *form, FILE *out) {
    fputc(' ', out);
    schema_literal_write(out, form->behind_name, strlen(form->behind_name));
    fputs(" \"\\n\"? ", out);
    schema_literal_write(out, form->before_value, strlen(form->before_value));
    fputc(' ', out);
}

/* Writes a value with the mark behind it. A string with `enum` is one of those; other keywords of
 * strings are not enforced. Other types follow their rule. */
static void value_write(const parameter_form *form, const json_t *schema, const char *rule,
                        FILE *out) {
    const json_t *values = json_object_get(schema, "enum"), *one;
    size_t i;
    if (api_call_is_string(schema) && !json_is_array(values)) {
        until_write(form->behind_value, out);
        return;
    }
    if (api_call_is_string(schema)) {
        fputc('(', out);
        json_array_foreach(values, i, one) {
            if (i > 0) fputs(" | ", out);
            schema_literal_write(out, json_is_string(one) ? json_string_value(one) : "",
                                 json_string_length(one));
        }
        fputc(')', out);
    } else {
        fputs(rule, out);
    }
    fputs(form == &qwen ? " \"\\n\"? " : " ", out);
    schema_literal_write(out, form->behind_value, strlen(form->behind_value));
}

/* Writes the arguments of tool i. A tool whose schema lists none takes any, unless the schema
 * forbids it. */
static void parameters_write(const parameter_form *form, const json_t *definitions, size_t i,
                             FILE *out) {
    char rule[32], name[64];
    const json_t *properties = properties_of(definitions, i, rule, sizeof rule);
    const json_t *schema = json_object_get(definitions, rule);
    const char *key;
    size_t k = 0;
    json_t *one;
    if (properties == NULL && !json_is_false(json_object_get(schema, "additionalProperties"))) {
        fputc('(', out);
        schema_literal_write(out, form->before_name, strlen(form->before_name));
        fputs(" [^<>\\n]{1,64}", out);
        between_write(form, out);
        until_write(form->behind_value, out);
        fputs(" \"\\n\"?)*", out);
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)properties, key, one) {
        snprintf(name, sizeof name, "%s-%zu", rule, k++);
        fputc('(', out);
        schema_literal_write(out, form->before_name, strlen(form->before_name));
        fputc(' ', out);
        schema_literal_write(out, key, strlen(key));
        between_write(form, out);
        value_write(form, one, name, out);
        fprintf(out, " \"\\n\"?)%s ", schema_requires(schema, key) ? "" : "?");
    }
}

/* ---- Families ---- */

/* {"name": N, "arguments": {...}} of an array, or NAME[CALL_ID]ID[ARGS]{...} where the template has
 * that. */
static void mistral_write(const server_model *model, size_t i, const json_t *tool, FILE *out) {
    if (strstr(model->tpl_text, "[ARGS]") == NULL) {
        fputs("\"{\" ws \"\\\"name\\\":\" ws ", out);
        quoted_write(tool, out);
        fprintf(out, " \",\" ws \"\\\"arguments\\\":\" ws " API_CALL_RULE " ws \"}\"", i);
        return;
    }
    name_write(tool, out);
    if (strstr(model->tpl_text, "[CALL_ID]") != NULL) {
        fputs(" (", out);
        api_mark_write(model, "[CALL_ID]", out);
        fputs(" [a-zA-Z0-9]{1,16})?", out);
    }
    fputc(' ', out);
    api_mark_write(model, "[ARGS]", out);
    fprintf(out, " ws " API_CALL_RULE, i);
}

/* V3 and R1: function<sep>NAME, a line end, and the object in a fence. V3.1: NAME<sep>{...}. */
static void deepseek_write(const server_model *model, size_t i, const json_t *tool, FILE *out) {
    const bool is_fenced = strstr(model->tpl_text, "```json") != NULL;
    if (is_fenced) fputs("\"function\" ", out);
    if (!is_fenced) name_write(tool, out);
    fputc(' ', out);
    api_mark_write(model, REPLY_DEEPSEEK_SEP, out);
    fputc(' ', out);
    if (is_fenced) {
        name_write(tool, out);
        fputs(" \"\\n```json\\n\"", out);
    }
    fprintf(out, " " API_CALL_RULE " %s ", i, is_fenced ? "\"\\n```\"" : "ws");
    api_mark_write(model, reply_family_call_close(REPLY_DEEPSEEK), out);
}

static void tagged_write(const server_model *model, reply_family family, size_t i,
                         const json_t *tool, const json_t *definitions, FILE *out) {
    const bool is_glm = family == REPLY_GLM;
    fputs(is_glm ? "\"\\n\"? " : "\"\\n\"? \"<function=\" ", out);
    name_write(tool, out);
    fputs(is_glm ? " \"\\n\"? " : " \">\" \"\\n\"? ", out);
    parameters_write(is_glm ? &glm : &qwen, definitions, i, out);
    if (!is_glm) fputs(" \"</function>\" \"\\n\"? ", out);
    fputc(' ', out);
    api_mark_write(model, reply_family_call_close(family), out);
}

/* NAME, a channel (where it does not stand before the recipient), the type, and the object. */
static void harmony_write(const server_model *model, size_t i, const json_t *tool, FILE *out) {
    name_write(tool, out);
    fputs(" (", out);
    api_mark_write(model, "<|channel|>", out);
    fputs(" (\"commentary\" | \"analysis\"))? (\" json\" | \" \"? ", out);
    api_mark_write(model, "<|constrain|>", out);
    fputs(" \"json\")? ", out);
    api_mark_write(model, "<|message|>", out);
    fprintf(out, " ws " API_CALL_RULE, i);
}

void api_call_form_write(const server_model *model, reply_family family, const json_t *tools,
                         const json_t *definitions, FILE *out) {
    const bool is_list = family == REPLY_MISTRAL && strstr(model->tpl_text, "[ARGS]") == NULL;
    size_t i;
    const json_t *tool;
    fputs("one ::= ", out);
    json_array_foreach(tools, i, tool) {
        if (i > 0) fputs(" | ", out);
        switch (family) {
        case REPLY_MISTRAL: mistral_write(model, i, tool, out); break;
        case REPLY_DEEPSEEK: deepseek_write(model, i, tool, out); break;
        case REPLY_GPT_OSS: harmony_write(model, i, tool, out); break;
        default: tagged_write(model, family, i, tool, definitions, out); break;
        }
    }
    fputs(is_list ? "\nbody ::= ws \"[\" ws one (\",\" ws one)* ws \"]\"\n" : "\nbody ::= one\n",
          out);
}

void api_call_open_write(const server_model *model, reply_family family, FILE *out) {
    fputs("[ \\n]{0,2} ", out);
    if (family == REPLY_DEEPSEEK) api_mark_write(model, REPLY_DEEPSEEK_CALLS_OPEN, out);
    if (family == REPLY_GPT_OSS) {
        api_mark_write(model, "<|channel|>", out);
        fputs(" \"commentary to=functions.\" ", out);
        return;
    }
    fputc(' ', out);
    api_mark_write(model, reply_family_call_open(family), out);
    fputc(' ', out);
}
