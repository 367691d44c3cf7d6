/* SPDX-License-Identifier: MIT
 *
 * schema_merge.c: joins schemas, finds the targets of $ref, and finds whether a value can match two
 * alternatives. See schema.h.
 */
#include <stdlib.h>
#include <string.h>

#include "server/grammar/schema.h"

json_t *schema_own(schema_writer *w, json_t *value) {
    if (value == NULL || json_array_append_new(w->made, value) != 0) {
        schema_no_memory(w);
        return NULL;
    }
    /* It is an object or an array: one of the sizes is 0. */
    return schema_work(w, 1 + json_object_size(value) + json_array_size(value)) ? value : NULL;
}

/* ---- References ---- */

static int hex_value(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Decodes one part of a JSON pointer in a URI (RFC 6901, section 6) in place, up to the next '/'.
 * Returns the next part; NULL at the end. */
static char *part_decode(char *part) {
    char *out = part;
    char *in = part;
    for (; *in != '\0' && *in != '/'; in++) {
        if (*in == '%' && hex_value(in[1]) >= 0 && hex_value(in[2]) >= 0) {
            *out++ = (char)(hex_value(in[1]) * 16 + hex_value(in[2]));
            in += 2;
        } else if (*in == '~' && (in[1] == '0' || in[1] == '1')) {
            *out++ = *++in == '0' ? '~' : '/';
        } else {
            *out++ = *in;
        }
    }
    char *behind = *in == '/' ? in + 1 : NULL;
    *out = '\0';
    return behind;
}

json_t *schema_ref_find(schema_writer *w, const char *ref) {
    if (ref == NULL || ref[0] != '#' || (ref[1] != '\0' && ref[1] != '/')) {
        schema_fail(w, TDM_UNSUPPORTED,
                    "'$ref' to '%.100s' is not supported; only places in the same schema are: '#' "
                    "and '#/...'",
                    ref != NULL ? ref : "");
        return NULL;
    }
    json_t *at = w->root;
    char *copy = strdup(ref);
    if (copy == NULL) {
        schema_no_memory(w);
        return NULL;
    }
    char *part = copy[1] == '/' ? copy + 2 : NULL;
    while (part != NULL && at != NULL) {
        char *next = part_decode(part);
        char *end;
        if (json_is_array(at)) {
            const unsigned long index = strtoul(part, &end, 10);
            at = *part != '\0' && *end == '\0' ? json_array_get(at, index) : NULL;
        } else {
            at = json_object_get(at, part);
        }
        part = next;
    }
    free(copy);
    if (at == NULL)
        schema_fail(w, TDM_INVALID_ARGUMENT, "'$ref' to '%.100s': there is no such place", ref);
    return at;
}

json_t *schema_without(schema_writer *w, json_t *schema, const char *key) {
    json_t *copy = schema_own(w, json_copy(schema));
    if (copy != NULL) json_object_del(copy, key);
    return copy;
}

/* The schema without OpenAPI 3.0's `nullable`; where that is true, null is added to `type`. */
static json_t *nullable_take(schema_writer *w, json_t *schema) {
    const bool is_nullable = json_is_true(json_object_get(schema, "nullable"));
    json_t *type = json_object_get(schema, "type");
    json_t *copy = schema_without(w, schema, "nullable");
    if (copy == NULL || !is_nullable || type == NULL) return copy;
    json_t *list = json_is_array(type) ? json_copy(type) : json_pack("[O]", type);
    if (list == NULL || json_array_append_new(list, json_string("null")) != 0 ||
        json_object_set(copy, "type", list) != 0) {
        schema_no_memory(w);
        copy = NULL;
    }
    json_decref(list);
    return copy;
}

static json_t *flatten(schema_writer *w, json_t *schema) {
    if (!json_is_object(schema)) return schema;
    if (json_object_get(schema, "nullable") != NULL) {
        schema = nullable_take(w, schema);
        return schema != NULL ? schema_flatten(w, schema) : NULL;
    }
    json_t *all = json_object_get(schema, "allOf");
    if (all != NULL) {
        json_t *made = schema_without(w, schema, "allOf");
        if (!json_is_array(all)) {
            schema_fail(w, TDM_INVALID_ARGUMENT, "'allOf' must be a list of schemas");
            return NULL;
        }
        for (size_t i = 0; i < json_array_size(all) && made != NULL; i++)
            made = schema_merge(w, made, json_array_get(all, i));
        return made != NULL ? schema_flatten(w, made) : NULL;
    }
    json_t *ref = json_object_get(schema, "$ref");
    if (ref == NULL) return schema;
    json_t *rest = schema_without(w, schema, "$ref");
    if (rest == NULL) return NULL;
    if (!schema_constrains(rest)) return schema;
    json_t *target = schema_ref_find(w, json_string_value(ref));
    json_t *made = target != NULL ? schema_merge(w, rest, target) : NULL;
    return made != NULL ? schema_flatten(w, made) : NULL;
}

/* Adds 1 to the depth, which bounds the recursion of schema_merge, schema_flatten and
 * schema_resolve. The caller takes it back. */
static bool depth_add(schema_writer *w) {
    if (w->depth < SCHEMA_DEPTH_MAX) {
        w->depth++;
        return true;
    }
    return schema_fail(w, TDM_UNSUPPORTED,
                       "'$ref' and 'allOf' need each other more than %d times; a schema that is a "
                       "part of itself must not have keywords beside '$ref'",
                       SCHEMA_DEPTH_MAX);
}

json_t *schema_flatten(schema_writer *w, json_t *schema) {
    if (!depth_add(w)) return NULL;
    json_t *flat = flatten(w, schema);
    w->depth--;
    return flat;
}

json_t *schema_resolve(schema_writer *w, json_t *schema) {
    if (!depth_add(w)) return NULL;
    json_t *flat = schema_flatten(w, schema);
    json_t *ref = flat != NULL ? json_object_get(flat, "$ref") : NULL;
    if (ref != NULL) {
        json_t *target = schema_ref_find(w, json_string_value(ref));
        flat = target != NULL ? schema_resolve(w, target) : NULL;
    }
    w->depth--;
    return flat;
}

/* ---- Merging ---- */

static bool list_has(const json_t *list, const json_t *value) {
    if (!json_is_array(list)) return json_equal(list, value);
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_equal(json_array_get(list, i), value)) return true;
    return false;
}

/* A schema for values that match both: {"allOf": [a, b]}. A new reference. */
static json_t *both(json_t *a, json_t *b) {
    return json_equal(a, b) ? json_incref(a) : json_pack("{s:[O,O]}", "allOf", a, b);
}

/* The types that both `type` keywords allow. A new reference. */
static json_t *types_join(const json_t *a, const json_t *b) {
    json_t *out = json_array(), *integer = json_string("integer"), *number = json_string("number");
    const size_t n = json_is_array(a) ? json_array_size(a) : 1;
    for (size_t i = 0; i < n && out != NULL && integer != NULL && number != NULL; i++) {
        const json_t *one = json_is_array(a) ? json_array_get(a, i) : a;
        if (list_has(b, one) || (json_equal(one, integer) && list_has(b, number)))
            json_array_append(out, (json_t *)one);
        else if (json_equal(one, number) && list_has(b, integer))
            json_array_append(out, integer);
    }
    json_decref(integer);
    json_decref(number);
    return out;
}

/* The values that are in both lists (needs_both) or in one of them. A new reference. */
static json_t *lists_join(const json_t *a, const json_t *b, bool needs_both) {
    json_t *out = json_array();
    size_t i;
    json_t *value;
    json_array_foreach((json_t *)a, i, value) {
        if (!needs_both || list_has(b, value)) json_array_append(out, value);
    }
    json_array_foreach((json_t *)b, i, value) {
        if (!needs_both && !list_has(a, value)) json_array_append(out, value);
    }
    return out;
}

/* The schema of properties that a schema does not list; NULL = any value. */
static json_t *additional(const json_t *schema) {
    json_t *found = json_object_get(schema, "additionalProperties");
    return found == NULL || json_is_true(found) ? NULL : found;
}

/* The properties of both schemas, each with the schemas that both have for it. A new reference. */
static json_t *properties_join(const json_t *a, const json_t *b) {
    json_t *out = json_object();
    const json_t *sides[2] = {a, b};
    for (int k = 0; k < 2 && out != NULL; k++) {
        json_t *mine = json_object_get(sides[k], "properties");
        json_t *theirs = json_object_get(sides[1 - k], "properties");
        const char *name;
        json_t *value;
        json_object_foreach(mine, name, value) {
            if (json_object_get(out, name) != NULL) continue;
            json_t *other = json_object_get(theirs, name);
            if (other == NULL) other = additional(sides[1 - k]);
            json_object_set_new(out, name, other != NULL ? both(value, other) : json_incref(value));
        }
    }
    return out;
}

static json_t *number_join(json_t *a, json_t *b, bool wants_larger) {
    return json_incref((json_number_value(a) > json_number_value(b)) == wants_larger ? a : b);
}

/* The alternatives of `a`, each joined with all those of `b`. A new reference. */
static json_t *alternatives_join(const char *key, json_t *a, json_t *b) {
    json_t *out = json_array();
    size_t i;
    json_t *one;
    json_array_foreach(a, i, one) {
        json_array_append_new(out, json_pack("{s:[O,{s:O}]}", "allOf", one, key, b));
    }
    return out;
}

/* The value of a keyword that limits as much as a and b together; a new reference. NULL: there is
 * none, or no memory. */
static json_t *keyword_join(const char *key, json_t *a, json_t *b) {
    static const char *const larger[] = {"minimum", "exclusiveMinimum", "minItems", "minLength",
                                         "minProperties"};
    static const char *const smaller[] = {"maximum", "exclusiveMaximum", "maxItems", "maxLength",
                                          "maxProperties"};
    for (size_t i = 0; i < sizeof larger / sizeof *larger; i++) {
        if (strcmp(key, larger[i]) == 0) return number_join(a, b, true);
        if (strcmp(key, smaller[i]) == 0) return number_join(a, b, false);
    }
    if (strcmp(key, "type") == 0) return types_join(a, b);
    if (strcmp(key, "enum") == 0) return lists_join(a, b, true);
    if (strcmp(key, "required") == 0) return lists_join(a, b, false);
    if (strcmp(key, "items") == 0) return both(a, b);
    if (strcmp(key, "additionalProperties") == 0)
        return json_is_false(a) || json_is_false(b) ? json_false()
               : json_is_true(a)                    ? json_incref(b)
               : json_is_true(b)                    ? json_incref(a)
                                                    : both(a, b);
    if (strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0) return alternatives_join(key, a, b);
    if (strcmp(key, "uniqueItems") == 0) return json_boolean(json_is_true(a) || json_is_true(b));
    return NULL;
}

/* Whether a keyword only describes: of two different notes the first is kept. */
static bool is_note(const char *key, json_t *value) {
    json_t *alone = json_pack("{s:O}", key, value);
    const bool constrains = alone != NULL && schema_constrains(alone);
    json_decref(alone);
    return !constrains;
}

static json_t *merge(schema_writer *w, json_t *a, json_t *b) {
    if (json_is_true(a) || json_is_false(b)) return b;
    if (json_is_true(b) || json_is_false(a)) return a;
    if (!json_is_object(a) || !json_is_object(b)) {
        schema_fail(w, TDM_INVALID_ARGUMENT, "a schema must be an object, true or false");
        return NULL;
    }
    if (!schema_constrains(b)) return a;
    if (!schema_constrains(a)) return b;
    if ((a = schema_resolve(w, a)) == NULL || (b = schema_resolve(w, b)) == NULL) return NULL;
    if (!json_is_object(a) || !json_is_object(b)) return schema_merge(w, a, b);
    if ((json_object_get(a, "prefixItems") != NULL &&
         (json_object_get(b, "items") != NULL || json_object_get(b, "prefixItems") != NULL)) ||
        (json_object_get(b, "prefixItems") != NULL && json_object_get(a, "items") != NULL)) {
        schema_fail(w, TDM_UNSUPPORTED,
                    "'prefixItems' cannot be joined with 'items' of another schema ('allOf' or "
                    "'$ref'); write one list");
        return NULL;
    }
    json_t *out = schema_own(w, json_copy(a));
    json_t *properties = schema_own(w, properties_join(a, b));
    if (out == NULL || properties == NULL) return NULL;
    if (json_object_size(properties) > 0 && json_object_set(out, "properties", properties) != 0) {
        schema_no_memory(w);
        return NULL;
    }
    const char *key;
    json_t *value;
    json_object_foreach(b, key, value) {
        json_t *mine = json_object_get(out, key);
        if (strcmp(key, "properties") == 0) continue;
        if (mine != NULL && (json_equal(mine, value) || is_note(key, value))) continue;
        if (mine != NULL && strcmp(key, "const") == 0) return schema_own(w, json_false());
        if (mine != NULL && strcmp(key, "required") == 0 &&
            !(json_is_array(mine) && json_is_array(value))) {
            schema_fail(w, TDM_INVALID_ARGUMENT, "'required' must be a list of names");
            return NULL;
        }
        if (!schema_work(w, json_array_size(mine) * json_array_size(value) / 64)) return NULL;
        json_t *joined = mine != NULL ? keyword_join(key, mine, value) : json_incref(value);
        if (joined == NULL) {
            schema_fail(w, TDM_UNSUPPORTED,
                        "two schemas with different '%s' ('allOf' or '$ref') cannot be joined",
                        key);
            return NULL;
        }
        const bool is_empty = json_is_array(joined) && json_array_size(joined) == 0 &&
                              (strcmp(key, "type") == 0 || strcmp(key, "enum") == 0);
        if (json_object_set_new(out, key, joined) != 0) {
            schema_no_memory(w);
            return NULL;
        }
        if (is_empty) return schema_own(w, json_false());
    }
    return out;
}

json_t *schema_merge(schema_writer *w, json_t *a, json_t *b) {
    if (!depth_add(w)) return NULL;
    json_t *out = merge(w, a, b);
    w->depth--;
    return out;
}

/* ---- Alternatives that no value matches together ---- */

/* Bits of the types of a schema's values; 0 = unknown. Numbers have one bit. */
static unsigned types_of(const json_t *schema) {
    static const char *const names[] = {"object", "array",   "string", "number",
                                        "null",   "boolean", "integer"};
    const json_t *type = json_object_get(schema, "type");
    const bool is_short = json_array_size(type) <= sizeof names / sizeof *names;
    unsigned set = 0;
    for (size_t t = 0; t < sizeof names / sizeof *names && is_short; t++) {
        json_t *name = json_string(names[t]);
        if (type != NULL && list_has(type, name)) set |= 1u << (t == 6 ? 3 : t);
        json_decref(name);
    }
    return set;
}

/* Whether both schemas list their values, and the lists share none. */
static bool lists_are_apart(schema_writer *w, const json_t *a, const json_t *b) {
    const json_t *sides[2] = {a, b};
    json_t *lists[2];
    for (int k = 0; k < 2; k++) {
        json_t *only = json_object_get(sides[k], "const");
        json_t *list = json_object_get(sides[k], "enum");
        lists[k] = only != NULL ? json_pack("[O]", only) : list != NULL ? json_incref(list) : NULL;
    }
    bool are_apart = lists[0] != NULL && lists[1] != NULL &&
                     schema_work(w, json_array_size(lists[0]) * json_array_size(lists[1]) / 64);
    for (size_t i = 0; are_apart && i < json_array_size(lists[0]); i++)
        are_apart = !list_has(lists[1], json_array_get(lists[0], i));
    json_decref(lists[0]);
    json_decref(lists[1]);
    return are_apart;
}

bool schema_requires(const json_t *schema, const char *name) {
    size_t i;
    json_t *one;
    json_array_foreach(json_object_get(schema, "required"), i, one) {
        if (json_is_string(one) && strcmp(json_string_value(one), name) == 0) return true;
    }
    return false;
}

/* Whether `a` requires a property that `b` forbids. */
static bool is_forbidden(const json_t *a, const json_t *b) {
    size_t i;
    json_t *name;
    if (!json_is_false(json_object_get(b, "additionalProperties"))) return false;
    json_array_foreach(json_object_get(a, "required"), i, name) {
        if (json_is_string(name) &&
            json_object_get(json_object_get(b, "properties"), json_string_value(name)) == NULL)
            return true;
    }
    return false;
}

bool schema_is_apart(schema_writer *w, const json_t *a, const json_t *b, const char **key_out) {
    const size_t n_property = json_object_size(json_object_get(a, "properties"));
    const size_t n_required = json_array_size(json_object_get(a, "required")) +
                              json_array_size(json_object_get(b, "required"));
    if (!schema_work(w, 1 + (n_property + 1) * (n_required + 16) / 64)) return false;
    const unsigned types_a = types_of(a), types_b = types_of(b);
    if (types_a != 0 && types_b != 0 && (types_a & types_b) == 0) return true;
    if (lists_are_apart(w, a, b)) return true;
    if (is_forbidden(a, b) || is_forbidden(b, a)) return true;
    json_t *of_b = json_object_get(b, "properties");
    const char *name, *optional = NULL;
    json_t *value;
    json_object_foreach(json_object_get(a, "properties"), name, value) {
        const json_t *other = json_object_get(of_b, name);
        if (other == NULL || !lists_are_apart(w, value, other)) continue;
        if (schema_requires(a, name) || schema_requires(b, name)) return true;
        optional = name;
    }
    *key_out = optional;
    return optional != NULL;
}
