/* SPDX-License-Identifier: MIT
 *
 * schema.c: see schema.h: walks a schema and writes its rules, chooses by types, enum and const,
 * alternatives, references.
 */
#include "server/grammar/schema.h"

#include <stdlib.h>
#include <string.h>

#include "server/grammar/array.h"
#include "server/json/json_load.h"

#define TEXT_MAX (8 << 20) /* bytes of rules */
#define WORK_MAX (1 << 18) /* of schema_work */

/* Rules that the others use. Texts have no white space around them, and little inside: else a model
 * may write spaces without end. */
static const char base_rules[] =
    "ws ::= (\" \" | \"\\n\" [ \\t]{0,20})?\n"
    "hex ::= [0-9a-fA-F]\n"
    "char ::= [^\"\\\\\\x00-\\x1F\\x7F] | \"\\\\\" ([\"\\\\/bfnrt] | \"u\" ([0-9a-cefA-CEF] hex{3} "
    "| "
    "[dD] [0-7] hex{2}))\n"
    "plain ::= [^\"\\\\\\x00-\\x1F\\x7F]\n"
    "string ::= \"\\\"\" char* \"\\\"\"\n"
    "whole ::= \"-\"? (\"0\" | [1-9] [0-9]{0,15})\n"
    "number ::= whole (\".\" [0-9]{1,15})? ([eE] [-+]? [0-9]{1,2})?\n"
    "object ::= \"{\" ws (string \":\" ws value (\",\" ws string \":\" ws value)* ws)? \"}\"\n"
    "array ::= \"[\" ws (value (\",\" ws value)* ws)? \"]\"\n"
    "value ::= object | array | string | number | \"true\" | \"false\" | \"null\"\n";

/* ---- Keywords ---- */

enum { OF_OBJECT = 1, OF_ARRAY = 2, OF_STRING = 4, OF_NUMBER = 8, REFUSED = 16 };

/* Keywords that limit values of some types, and keywords that are refused. All others are handled
 * by schema_flatten and value_write, or are notes. */
static const struct {
    const char *name;
    int kind;
} keywords[] = {
    {"properties", OF_OBJECT},
    {"required", OF_OBJECT},
    {"additionalProperties", OF_OBJECT},
    {"minProperties", OF_OBJECT},
    {"maxProperties", OF_OBJECT},
    {"propertyNames", OF_OBJECT},
    {"items", OF_ARRAY},
    {"prefixItems", OF_ARRAY},
    {"minItems", OF_ARRAY},
    {"maxItems", OF_ARRAY},
    {"uniqueItems", OF_ARRAY},
    {"minLength", OF_STRING},
    {"maxLength", OF_STRING},
    {"pattern", OF_STRING},
    {"format", 0}, /* limits strings; a note on numbers */
    {"minimum", OF_NUMBER},
    {"maximum", OF_NUMBER},
    {"exclusiveMinimum", OF_NUMBER},
    {"exclusiveMaximum", OF_NUMBER},
    {"multipleOf", OF_NUMBER},
    {"not", REFUSED},
    {"if", REFUSED},
    {"then", REFUSED},
    {"else", REFUSED},
    {"contains", REFUSED},
    {"minContains", REFUSED},
    {"maxContains", REFUSED},
    {"patternProperties", REFUSED},
    {"dependentRequired", REFUSED},
    {"dependentSchemas", REFUSED},
    {"dependencies", REFUSED},
    {"additionalItems", REFUSED},
    {"$dynamicRef", REFUSED},
    {"$recursiveRef", REFUSED},
};

bool schema_constrains(const json_t *schema) {
    static const char *const more[] = {"$ref",  "type",  "enum",  "const",
                                       "allOf", "anyOf", "oneOf", "nullable"};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        if (json_object_get(schema, more[i]) != NULL) return true;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (json_object_get(schema, keywords[i].name) != NULL) return true;
    return false;
}

/* Writes the types that the schema's keywords limit, as bits OF_*, to *kinds. Fails for a keyword
 * that is refused. */
static bool kinds_find(schema_writer *w, const json_t *schema, int *kinds) {
    *kinds = 0;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++) {
        if (json_object_get(schema, keywords[i].name) == NULL) continue;
        if (keywords[i].kind == REFUSED)
            return schema_fail(w, TDM_UNSUPPORTED,
                               "'%s' is not supported; leave it out and check the result yourself",
                               keywords[i].name);
        *kinds |= keywords[i].kind;
    }
    const json_t *format = json_object_get(schema, "format");
    if (format != NULL && json_object_get(schema, "type") == NULL && *kinds == 0)
        *kinds = OF_STRING;
    return true;
}

/* ---- Writing ---- */

bool schema_fail(schema_writer *w, tdm_status status, const char *format, ...) {
    char message[TDM_ERROR_MESSAGE_SIZE];
    va_list args;
    va_start(args, format);
    vsnprintf(message, sizeof message, format, args);
    va_end(args);
    for (char *c = message; *c != '\0'; c++) /* names in it may have control characters */
        if ((uint8_t)*c < 0x20 || *c == 0x7F) *c = ' ';
    if (w->status == TDM_OK)
        w->status = tdm_fail(w->err, status, "JSON Schema, at #%s: %s", w->place, message);
    return false;
}

bool schema_no_memory(schema_writer *w) {
    return schema_fail(w, TDM_RESOURCE_EXHAUSTED, "no memory");
}

static bool too_large(schema_writer *w) {
    return schema_fail(w, TDM_UNSUPPORTED,
                       "the grammar would be too large; make the schema smaller");
}

bool schema_work(schema_writer *w, size_t n) {
    if (n > WORK_MAX) n = WORK_MAX;
    w->work += (int64_t)n;
    return w->work <= WORK_MAX || too_large(w);
}

size_t schema_enter(schema_writer *w, const char *name) {
    const size_t mark = strlen(w->place);
    snprintf(w->place + mark, sizeof w->place - mark, "/%s", name);
    for (char *c = w->place + mark; *c != '\0'; c++)
        if ((uint8_t)*c < 0x20 || (uint8_t)*c >= 0x7F) *c = '?';
    return mark;
}

void schema_leave(schema_writer *w, size_t mark) {
    w->place[mark] = '\0';
}

FILE *schema_rule_begin(schema_writer *w, char **text, size_t *len) {
    *text = NULL;
    *len = 0;
    FILE *file = open_memstream(text, len);
    if (file == NULL) schema_no_memory(w);
    return file;
}

int32_t schema_rule_end(schema_writer *w, FILE *file, char **text, size_t *len) {
    const bool is_written = ferror(file) == 0;
    int32_t number = 0;
    if (fclose(file) != 0 || !is_written) {
        schema_no_memory(w);
    } else if (w->status == TDM_OK) {
        number = ++w->n_rule;
        fprintf(w->rules, "r%d ::= ", number);
        fwrite(*text, 1, *len, w->rules);
        fputc('\n', w->rules);
        if (ftell(w->rules) > TEXT_MAX) {
            too_large(w);
            number = 0;
        }
    }
    free(*text);
    return number;
}

void schema_literal_write(FILE *out, const char *text, size_t len) {
    fputc('"', out);
    for (size_t i = 0; i < len; i++) {
        const uint8_t c = (uint8_t)text[i];
        if (c == '"' || c == '\\')
            fprintf(out, "\\%c", c);
        else if (c < 0x20 || c == 0x7F)
            fprintf(out, "\\x%02X", c);
        else
            fputc(c, out);
    }
    fputc('"', out);
}

bool schema_json_write(schema_writer *w, const json_t *value, FILE *out) {
    char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);
    if (text == NULL) return schema_no_memory(w);
    schema_literal_write(out, text, strlen(text));
    free(text);
    return true;
}

bool schema_count_read(schema_writer *w, const json_t *schema, const char *key, int64_t *value) {
    const json_t *count = json_object_get(schema, key);
    if (count == NULL) return true;
    const double number = json_number_value(count);
    if (!json_is_number(count) || number < 0 || number > 1e9 || number != (double)(int64_t)number)
        return schema_fail(w, TDM_INVALID_ARGUMENT, "'%s' must be a whole number, 0 to 1e9", key);
    *value = (int64_t)number;
    return true;
}

/* ---- Types ---- */

static const struct {
    const char *name;
    int kind; /* OF_*; 0 = no keyword limits it */
} types[] = {
    {"object", OF_OBJECT}, {"array", OF_ARRAY}, {"string", OF_STRING}, {"integer", OF_NUMBER},
    {"number", OF_NUMBER}, {"boolean", 0},      {"null", 0},
};
enum { TYPE_COUNT = sizeof types / sizeof *types, TYPE_INTEGER = 3, TYPE_NUMBER = 4 };

static int type_find(const char *name) {
    for (int t = 0; t < TYPE_COUNT; t++)
        if (name != NULL && strcmp(types[t].name, name) == 0) return t;
    return -1;
}

/* Reads the types of a schema as bits, by their place in `types`. Where `type` is absent: the types
 * that the keywords (`kinds`) limit, or 0 = any type. */
static bool types_read(schema_writer *w, const json_t *schema, int kinds, unsigned *set) {
    const json_t *type = json_object_get(schema, "type");
    *set = 0;
    if (type == NULL) {
        for (int t = 0; t < TYPE_COUNT; t++)
            if ((types[t].kind & kinds) != 0 && t != TYPE_INTEGER) *set |= 1u << t;
        return true;
    }
    const size_t n = json_is_array(type) ? json_array_size(type) : 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *one = json_is_array(type) ? json_array_get(type, i) : type;
        const int t = type_find(json_string_value(one));
        if (t < 0)
            return schema_fail(w, TDM_INVALID_ARGUMENT,
                               "'type' must be object, array, string, integer, number, boolean or "
                               "null, or a list of them");
        *set |= 1u << t;
    }
    if ((*set >> TYPE_NUMBER & 1) != 0) *set &= ~(1u << TYPE_INTEGER);
    if (*set == 0) return schema_fail(w, TDM_INVALID_ARGUMENT, "'type' is empty: nothing matches");
    return true;
}

static bool type_write(schema_writer *w, json_t *schema, int type, FILE *out) {
    switch (type) {
    case 0: return schema_object_write(w, schema, out);
    case 1: return schema_array_write(w, schema, out);
    case 2: return schema_string_write(w, schema, out);
    case TYPE_INTEGER: return schema_number_write(w, schema, true, out);
    case TYPE_NUMBER: return schema_number_write(w, schema, false, out);
    case 5: fprintf(out, "(\"true\" | \"false\")"); return true;
    default: fprintf(out, "\"null\""); return true;
    }
}

static bool types_write(schema_writer *w, json_t *schema, FILE *out) {
    int kinds;
    unsigned set;
    if (!kinds_find(w, schema, &kinds) || !types_read(w, schema, kinds, &set)) return false;
    if (set == 0) {
        fprintf(out, "value");
        return true;
    }
    const char *before = "(";
    for (int t = 0; t < TYPE_COUNT; t++) {
        if ((set >> t & 1) == 0) continue;
        fprintf(out, "%s", before);
        before = " | ";
        if (!type_write(w, schema, t, out)) return false;
    }
    fprintf(out, ")");
    return true;
}

/* ---- enum and const ---- */

static bool value_has_type(const json_t *value, unsigned set) {
    const int t = json_is_object(value)    ? 0
                  : json_is_array(value)   ? 1
                  : json_is_string(value)  ? 2
                  : json_is_integer(value) ? TYPE_INTEGER
                  : json_is_real(value)    ? TYPE_NUMBER
                  : json_is_boolean(value) ? 5
                                           : 6;
    return set == 0 || (set >> t & 1) != 0 || (t == TYPE_INTEGER && (set >> TYPE_NUMBER & 1) != 0);
}

/* Writes the values of enum or const that `type` allows. */
static bool enum_write(schema_writer *w, json_t *schema, FILE *out) {
    json_t *list = json_object_get(schema, "enum");
    json_t *only = json_object_get(schema, "const");
    int kinds;
    unsigned set;
    if (!kinds_find(w, schema, &kinds)) return false;
    for (size_t i = 0; i < sizeof keywords / sizeof *keywords; i++)
        if (json_object_get(schema, keywords[i].name) != NULL &&
            strcmp(keywords[i].name, "format") != 0)
            return schema_fail(w, TDM_UNSUPPORTED,
                               "'%s' beside '%s' is not supported; list only the values that both "
                               "allow",
                               keywords[i].name, only != NULL ? "const" : "enum");
    if (!types_read(w, schema, 0, &set)) return false;
    if (list != NULL && !json_is_array(list))
        return schema_fail(w, TDM_INVALID_ARGUMENT, "'enum' must be a list");
    const size_t n = only != NULL ? 1 : json_array_size(list);
    const char *before = "(";
    for (size_t i = 0; i < n; i++) {
        const json_t *value = only != NULL ? only : json_array_get(list, i);
        bool is_listed = only == NULL || list == NULL;
        for (size_t k = 0; !is_listed && k < json_array_size(list); k++)
            is_listed = json_equal(json_array_get(list, k), value);
        if (!is_listed || !value_has_type(value, set)) continue;
        fprintf(out, "%s", before);
        before = " | ";
        if (!schema_json_write(w, value, out)) return false;
    }
    if (before[0] == '(')
        return schema_fail(w, TDM_INVALID_ARGUMENT,
                           "no value is allowed by '%s' and the keywords beside it",
                           only != NULL ? "const" : "enum");
    fprintf(out, ")");
    return true;
}

/* ---- Alternatives ---- */

/* Prepares the alternatives of oneOf to be written like those of anyOf: no value may match two of
 * them (schema_is_apart). A property that excludes this, and that neither requires, becomes
 * required in both. */
static bool alternatives_part(schema_writer *w, json_t **alternatives, size_t n) {
    json_t *given = json_array(); /* the alternatives before anything is added here */
    bool is_good = given != NULL || schema_no_memory(w);
    for (size_t i = 0; i < n && is_good; i++) {
        json_t *one = schema_resolve(w, alternatives[i]);
        is_good = one != NULL && (json_array_append(given, one) == 0 || schema_no_memory(w));
    }
    for (size_t i = 0; i < n && is_good; i++)
        for (size_t k = i + 1; k < n && is_good; k++) {
            const char *key = NULL;
            if (!schema_is_apart(w, json_array_get(given, i), json_array_get(given, k), &key))
                is_good =
                    schema_fail(w, TDM_UNSUPPORTED,
                                "'oneOf': alternatives %zu and %zu may both match a value; use "
                                "'anyOf', or give each a property with another 'const'",
                                i + 1, k + 1);
            if (!is_good || key == NULL) continue;
            json_t *needs = schema_own(w, json_pack("{s:[s]}", "required", key));
            is_good = needs != NULL &&
                      (alternatives[i] = schema_merge(w, alternatives[i], needs)) != NULL &&
                      (alternatives[k] = schema_merge(w, alternatives[k], needs)) != NULL;
        }
    json_decref(given);
    return is_good;
}

/* Whether no value matches a schema, as far as `false` and its alternatives show. False after a
 * failure. */
static bool is_empty(schema_writer *w, json_t *schema) {
    json_t *flat = schema_resolve(w, schema);
    if (flat == NULL || json_is_false(flat)) return flat != NULL;
    const char *key = json_object_get(flat, "anyOf") != NULL ? "anyOf" : "oneOf";
    json_t *list = json_object_get(flat, key);
    if (!json_is_array(list)) return false;
    json_t *rest = schema_without(w, flat, key);
    size_t i;
    json_t *one;
    json_array_foreach(list, i, one) {
        json_t *both = rest != NULL ? schema_merge(w, one, rest) : NULL;
        if (both == NULL || both == one || !is_empty(w, both)) return false;
    }
    return true;
}

static bool alternatives_write(schema_writer *w, json_t *schema, const char *key, FILE *out) {
    json_t *list = json_object_get(schema, key);
    const size_t n = json_array_size(list);
    if (n == 0) return schema_fail(w, TDM_INVALID_ARGUMENT, "'%s' must be a list of schemas", key);
    json_t *rest = schema_without(w, schema, key);
    json_t **alternatives = calloc(n, sizeof *alternatives);
    bool is_good = rest != NULL && (alternatives != NULL || schema_no_memory(w));
    const size_t mark = schema_enter(w, key);
    size_t n_left = 0;
    for (size_t i = 0; i < n && is_good; i++) {
        json_t *one = schema_merge(w, json_array_get(list, i), rest);
        const bool is_own = one == json_array_get(list, i) && !json_is_false(one) &&
                            json_object_get(one, "allOf") == NULL;
        const bool is_left = one != NULL && (is_own || !is_empty(w, one));
        is_good = w->status == TDM_OK;
        if (is_good && is_left) alternatives[n_left++] = one;
    }
    if (is_good && strcmp(key, "oneOf") == 0) is_good = alternatives_part(w, alternatives, n_left);
    if (is_good && n_left == 0)
        is_good = schema_fail(w, TDM_INVALID_ARGUMENT, "no alternative allows a value");
    for (size_t i = 0; i < n_left && is_good; i++) {
        fprintf(out, i == 0 ? "(" : " | ");
        is_good = schema_value_write(w, alternatives[i], out);
    }
    fprintf(out, ")");
    free(alternatives);
    schema_leave(w, mark);
    return is_good;
}

/* ---- Values ---- */

/* Writes the name of the rule of a $ref's target, and the rule itself at its first use. The rule
 * may use itself. */
static bool ref_write(schema_writer *w, const char *ref, FILE *out) {
    json_t *target = schema_ref_find(w, ref);
    if (target == NULL) return false;
    for (int32_t i = 0; i < w->n_ref; i++)
        if (w->refs[i].schema == target) {
            fprintf(out, "ref%d", w->refs[i].number);
            return true;
        }
    if (!grammar_reserve((void **)&w->refs, &w->ref_capacity, (int64_t)w->n_ref + 1,
                         sizeof *w->refs))
        return schema_no_memory(w);
    const int32_t number = w->n_ref + 1;
    w->refs[w->n_ref++] = (schema_rule){target, number};
    fprintf(out, "ref%d", number);
    char *text;
    size_t len;
    FILE *file = schema_rule_begin(w, &text, &len);
    if (file == NULL) return false;
    const bool is_good = schema_value_write(w, target, file);
    const int32_t rule = schema_rule_end(w, file, &text, &len);
    if (is_good && rule != 0) fprintf(w->rules, "ref%d ::= r%d\n", number, rule);
    return is_good && rule != 0;
}

static bool value_write(schema_writer *w, json_t *schema, FILE *out) {
    if (json_is_true(schema)) {
        fprintf(out, "value");
        return true;
    }
    if (json_is_false(schema))
        return schema_fail(w, TDM_INVALID_ARGUMENT, "the schema 'false' allows no value");
    if (!json_is_object(schema))
        return schema_fail(w, TDM_INVALID_ARGUMENT, "a schema must be an object, true or false");
    json_t *flat = schema_flatten(w, schema);
    if (flat == NULL) return false;
    if (!json_is_object(flat)) return value_write(w, flat, out);
    const json_t *ref = json_object_get(flat, "$ref");
    if (ref != NULL) return ref_write(w, json_string_value(ref), out);
    if (json_object_get(flat, "anyOf") != NULL) return alternatives_write(w, flat, "anyOf", out);
    if (json_object_get(flat, "oneOf") != NULL) return alternatives_write(w, flat, "oneOf", out);
    if (json_object_get(flat, "enum") != NULL || json_object_get(flat, "const") != NULL)
        return enum_write(w, flat, out);
    return types_write(w, flat, out);
}

bool schema_value_write(schema_writer *w, json_t *schema, FILE *out) {
    if (w->depth >= SCHEMA_DEPTH_MAX)
        return schema_fail(w, TDM_UNSUPPORTED,
                           "more than %d schemas in each other; use $ref to '$defs'",
                           SCHEMA_DEPTH_MAX);
    if (!schema_work(w, 1)) return false;
    w->depth++;
    const bool is_good = value_write(w, schema, out);
    w->depth--;
    return is_good && (ftell(out) <= TEXT_MAX || too_large(w));
}

/* Writes a schema as the rule of that name. */
static bool named_write(schema_writer *w, const char *rule, json_t *schema) {
    char *text;
    size_t len;
    FILE *file = schema_rule_begin(w, &text, &len);
    if (file == NULL) return false;
    const bool is_good = schema_value_write(w, schema, file);
    const int32_t number = schema_rule_end(w, file, &text, &len);
    if (is_good && number != 0) fprintf(w->rules, "%s ::= r%d\n", rule, number);
    return is_good && number != 0;
}

/* Writes all rules to *text_out: the schema as `rule`; or, for NULL, a rule for each member of
 * "$defs". */
static tdm_status text_write(schema_writer *w, const char *rule, char **text_out) {
    size_t len;
    const char *key;
    json_t *one;
    bool is_good = true;
    *text_out = NULL;
    w->rules = open_memstream(text_out, &len);
    if (w->rules == NULL) {
        schema_no_memory(w);
        return w->status;
    }
    fputs(base_rules, w->rules);
    if (rule != NULL) {
        named_write(w, rule, w->root);
    } else {
        json_object_foreach(json_object_get(w->root, "$defs"), key, one) is_good =
            is_good && named_write(w, key, one);
    }
    const bool is_written = ferror(w->rules) == 0;
    if ((fclose(w->rules) != 0 || !is_written) && w->status == TDM_OK) schema_no_memory(w);
    if (w->status != TDM_OK) {
        free(*text_out);
        *text_out = NULL;
    }
    return w->status;
}

static tdm_status gbnf_make(const char *schema, size_t len, const char *rule, char **text_out,
                            tdm_error *err) {
    json_error_t problem;
    schema_writer w = {.err = err};
    *text_out = NULL;
    w.root = server_json_load(schema, len, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &problem);
    if (w.root == NULL)
        return tdm_fail(err, TDM_INVALID_ARGUMENT, "JSON Schema, line %d, column %d: %.200s",
                        problem.line, problem.column, problem.text);
    w.made = json_array();
    if (w.made == NULL)
        schema_no_memory(&w);
    else
        text_write(&w, rule, text_out);
    json_decref(w.made);
    json_decref(w.root);
    free(w.refs);
    return w.status;
}

tdm_status grammar_schema_to_gbnf(const char *schema, size_t len, const char *rule, char **text_out,
                                  tdm_error *err) {
    return gbnf_make(schema, len, rule, text_out, err);
}

tdm_status grammar_definitions_to_gbnf(const char *schema, size_t len, char **text_out,
                                       tdm_error *err) {
    return gbnf_make(schema, len, NULL, text_out, err);
}
