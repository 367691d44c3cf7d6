/* SPDX-License-Identifier: MIT
 *
 * calls.c: the grammar of calls of tools, for the families that write a call as one JSON object. A
 * request that must call a tool is answered by such an object alone (prompt.c). Otherwise the grammar
 * begins behind the text that opens a call, and ends with the call.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/tokenizer.h"
#include "server/api/state.h"
#include "server/grammar/grammar.h"

bool api_call_is_json(reply_family family) {
    return family == REPLY_HERMES || family == REPLY_LLAMA;
}

/* A copy of a tool's schema in which references to its root are references to `place`. JSON is at
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

/* Whether the schema of a tool's arguments can be made into a grammar. */
static bool is_supported(const json_t *parameters) {
    tdm_error reason = {0};
    char *text = json_dumps(parameters, JSON_COMPACT | JSON_ENCODE_ANY), *rules = NULL;
    const bool is_good = text != NULL && grammar_schema_to_gbnf(text, strlen(text), "root", &rules,
                                                                &reason) == TDM_OK;
    free(rules);
    free(text);
    return is_good;
}

/* The schema of a tool's arguments: without one it takes none. Where is_tolerant, any object stands
 * for a schema that is not supported. A new value. */
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

/* What ends a call: its text, which may be a control token. */
static tdm_status close_write(const server_model *model, reply_family family, char *text,
                              size_t size, tdm_error *err) {
    const char *close = reply_family_call_close(family);
    int32_t *ids = NULL;
    size_t n = 0;
    text[0] = '\0';
    if (close[0] == '\0') return TDM_OK;
    tdm_status status =
        llm_tokenize(model->vocab, close, strlen(close), LLM_TOKENIZE_PARSE_SPECIAL, &ids, &n, err);
    if (status == TDM_OK && n == 1 &&
        llm_vocab_token_type(model->vocab, ids[0]) == LLM_TOKEN_CONTROL)
        snprintf(text, size, "[ \\n]{0,2} (\"%s\" | <[%d]>)", close, (int)ids[0]);
    else if (status == TDM_OK)
        snprintf(text, size, "[ \\n]{0,2} \"%s\"", close);
    free(ids);
    return status;
}

tdm_status api_call_grammar(const server_model *model, reply_family family, const json_t *tools,
                            struct grammar **out, tdm_error *err) {
    char *rules = NULL, *whole = NULL, close[96];
    json_t *schema = api_call_schema(family, tools, true);
    char *text = schema != NULL ? json_dumps(schema, JSON_COMPACT) : NULL;
    json_decref(schema);
    tdm_status status = text != NULL
                            ? grammar_schema_to_gbnf(text, strlen(text), "call", &rules, err)
                            : tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for tools");
    if (status == TDM_OK) status = close_write(model, family, close, sizeof close, err);
    if (status == TDM_OK) {
        whole = malloc(strlen(rules) + sizeof close + 64);
        if (whole == NULL) status = tdm_fail(err, TDM_RESOURCE_EXHAUSTED, "no memory for tools");
    }
    if (status == TDM_OK) {
        sprintf(whole, "%s\nroot ::= [ \\n]{0,2} call %s\n", rules, close);
        status = grammar_compile(model->grammar_vocab, whole, strlen(whole), out, err);
    }
    free(whole);
    free(rules);
    free(text);
    return status;
}
