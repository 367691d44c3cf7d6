/* SPDX-License-Identifier: MIT
 *
 * calls.c: the grammar of calls of tools. It joins the JSON Schemas of the tools' arguments with
 * the form in which a family writes calls (call_forms.c). It begins behind the text that opens a
 * call, and ends with the call. prompt.c decides where it is used.
 */
#include <stdlib.h>
#include <string.h>

#include "server/api/call_forms.h"
#include "server/api/state.h"
#include "server/grammar/grammar.h"

bool api_call_has_grammar(reply_family family) {
    return family != REPLY_PLAIN;
}

bool api_call_is_json(reply_family family) {
    return family == REPLY_HERMES || family == REPLY_LLAMA;
}

const char *api_call_behind(reply_family family) {
    /* gpt-oss has no text that opens a call: a call is a message with a recipient */
    return family == REPLY_GPT_OSS ? " to=functions." : reply_family_call_open(family);
}

/* A copy of a schema that becomes a part of another one, at `place` (a JSON pointer with '#'): its
 * references "#..." become references to `place`. Recursion is bounded: JSON of a request is at
 * most API_JSON_DEPTH_MAX deep. NULL = no memory. */
static json_t *schema_move(json_t *schema, const char *place) {
    const char *key;
    size_t i;
    json_t *value, *copy;
    bool is_good = true;
    if (json_is_array(schema)) {
        copy = json_array();
        json_array_foreach(schema, i, value) is_good =
            json_array_append_new(copy, schema_move(value, place)) == 0 && is_good;
    } else if (json_is_object(schema)) {
        copy = json_object();
        json_object_foreach(schema, key, value) {
            const char *target = strcmp(key, "$ref") == 0 ? json_string_value(value) : NULL;
            json_t *moved = target != NULL && target[0] == '#'
                                ? json_sprintf("%s%s", place, target + 1)
                                : schema_move(value, place);
            is_good = json_object_set_new(copy, key, moved) == 0 && is_good;
        }
    } else {
        return json_deep_copy(schema);
    }
    if (is_good) return copy;
    json_decref(copy);
    return NULL;
}

static json_t *parameters_of(const json_t *tool) {
    return api_get(json_object_get(tool, "function"), "parameters");
}

/* Whether a grammar can be made of the schema of a tool's arguments. */
static bool is_supported(const json_t *parameters) {
    tdm_error reason = {0};
    char *text = json_dumps(parameters, JSON_COMPACT | JSON_ENCODE_ANY), *rules = NULL;
    const bool is_good = text != NULL && grammar_schema_to_gbnf(text, strlen(text), "root", &rules,
                                                                &reason) == TDM_OK;
    free(rules);
    free(text);
    return is_good;
}

/* The schema of a tool's arguments, moved to `place`, as a new value; NULL = no memory. A tool
 * without a schema takes no arguments. is_tolerant: a schema that is not supported is replaced by
 * one for any object. */
static json_t *arguments_schema(const json_t *tool, const char *place, bool is_tolerant) {
    json_t *parameters = parameters_of(tool);
    if (parameters == NULL)
        return json_pack("{s:s, s:b}", "type", "object", "additionalProperties", 0);
    if (is_tolerant && !is_supported(parameters)) return json_pack("{s:s}", "type", "object");
    return schema_move(parameters, place);
}

json_t *api_call_schema(reply_family family, const json_t *tools, bool is_tolerant) {
    const char *arguments = family == REPLY_LLAMA ? "parameters" : "arguments";
    json_t *calls = json_array(), *schemas = json_object(), *tool;
    bool is_good = true;
    size_t i;
    json_array_foreach(tools, i, tool) {
        char name[32], place[48];
        snprintf(name, sizeof name, "tool%zu", i);
        snprintf(place, sizeof place, "#/$defs/%s", name);
        json_t *call = json_pack(
            "{s:s, s:{s:{s:O}, s:{s:s}}, s:[s,s], s:b}", "type", "object", "properties", "name",
            "const", json_object_get(json_object_get(tool, "function"), "name"), arguments, "$ref",
            place, "required", "name", arguments, "additionalProperties", 0);
        is_good =
            json_object_set_new(schemas, name, arguments_schema(tool, place, is_tolerant)) == 0 &&
            json_array_append_new(calls, call) == 0 && is_good;
    }
    json_t *schema = json_pack("{s:o, s:o}", "$defs", schemas, "anyOf", calls);
    if (is_good) return schema;
    json_decref(schema);
    return NULL;
}

/* ---- The grammar of a call ---- */

/* Adds the schema of an answer that is no call to the definitions (NULL = there is none). False =
 * no memory. */
static bool answer_define(const json_t *answer, json_t *definitions) {
    if (answer == NULL) return true;
    json_t *moved = schema_move((json_t *)(uintptr_t)answer, "#/$defs/answer");
    return json_object_set_new(definitions, "answer", moved) == 0;
}

/* Writes the rule `body` of a family whose calls are JSON objects, and the rules that it uses. */
static tdm_status object_write(const server_model *model, reply_family family, const json_t *tools,
                               const json_t *answer, bool is_tolerant, FILE *out, tdm_error *err) {
    char *rules = NULL, *text = NULL;
    json_t *schema = api_call_schema(family, tools, is_tolerant);
    json_t *definitions = json_object_get(schema, "$defs");
    json_t *call = json_pack("{s:O*}", "anyOf", json_object_get(schema, "anyOf"));
    if (json_object_set_new(definitions, "call", call) == 0 && answer_define(answer, definitions) &&
        json_object_del(schema, "anyOf") == 0)
        text = json_dumps(schema, JSON_COMPACT);
    json_decref(schema);
    const tdm_status status = text != NULL
                                  ? grammar_definitions_to_gbnf(text, strlen(text), &rules, err)
                                  : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for tools");
    if (status == TDM_OK) {
        const char *close = reply_family_call_close(family);
        fprintf(out, "%sbody ::= [ \\n]{0,2} call", rules);
        if (close[0] != '\0') {
            fputs(" [ \\n]{0,2} ", out);
            api_mark_write(model, close, out);
        }
        fputc('\n', out);
    }
    free(rules);
    free(text);
    return status;
}

/* The same of a family whose calls have another form: their arguments are rules made of the tools'
 * schemas. */
static tdm_status form_write(const server_model *model, reply_family family, const json_t *tools,
                             const json_t *answer, bool is_tolerant, FILE *out, tdm_error *err) {
    char *rules = NULL;
    json_t *definitions = json_object(), *tool;
    size_t i;
    bool is_good = definitions != NULL;
    json_array_foreach(tools, i, tool) {
        char name[32], place[48];
        snprintf(name, sizeof name, API_CALL_RULE, i);
        snprintf(place, sizeof place, "#/$defs/%s", name);
        is_good = is_good && json_object_set_new(definitions, name,
                                                 arguments_schema(tool, place, is_tolerant)) == 0;
    }
    is_good = is_good && api_call_parameters_define(family, definitions) &&
              answer_define(answer, definitions);
    json_t *schema = json_pack("{s:o}", "$defs", definitions);
    char *text = is_good && schema != NULL ? json_dumps(schema, JSON_COMPACT) : NULL;
    const tdm_status status = text != NULL
                                  ? grammar_definitions_to_gbnf(text, strlen(text), &rules, err)
                                  : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for tools");
    if (status == TDM_OK) {
        fputs(rules, out);
        api_call_form_write(model, family, tools, definitions, out);
    }
    free(rules);
    free(text);
    json_decref(schema);
    return status;
}

tdm_status api_call_text(const server_model *model, reply_family family, const json_t *tools,
                         const json_t *answer, bool is_tolerant, bool is_whole, char **text_out,
                         tdm_error *err) {
    size_t len;
    FILE *out = open_memstream(text_out, &len);
    if (out == NULL) return tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for tools");
    tdm_status status = api_call_is_json(family)
                            ? object_write(model, family, tools, answer, is_tolerant, out, err)
                            : form_write(model, family, tools, answer, is_tolerant, out, err);
    const bool repeats = family == REPLY_HERMES || family == REPLY_QWEN_XML || family == REPLY_GLM;
    fputs(answer != NULL ? "root ::= answer | (" : "root ::= ", out);
    if (is_whole) api_call_open_write(model, family, out);
    fputs(answer == NULL ? "body\n" : repeats ? "body)+\n" : "body)\n", out);
    if (fclose(out) != 0 && status == TDM_OK)
        status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for tools");
    if (status == TDM_OK) return TDM_OK;
    free(*text_out);
    *text_out = NULL;
    return status;
}

tdm_status api_call_grammar(const server_model *model, reply_family family, const json_t *tools,
                            struct grammar **out, tdm_error *err) {
    char *text = NULL;
    tdm_status status = api_call_text(model, family, tools, NULL, true, false, &text, err);
    if (status == TDM_OK)
        status = grammar_compile(model->grammar_vocab, text, strlen(text), out, err);
    free(text);
    return status;
}
