/* SPDX-License-Identifier: MIT
 *
 * schema_object.c: objects and arrays of a JSON Schema. See schema.h.
 *
 * Properties come in the order of the schema. There are two chains of rules along them: one for the
 * case that no property is written yet, and one for the case that one is, where a comma comes
 * before each property. So the grammar grows with the number of properties, not with their
 * combinations.
 */
#include <stdlib.h>
#include <string.h>

#include "llm/tokenizer/utf8.h"
#include "server/grammar/array.h"
#include "server/grammar/schema.h"

typedef struct property {
    const char *name;
    json_t *schema;
    bool is_required;
    int32_t rule; /* number of the rule for "name": value */
} property;

typedef struct object {
    property *items; /* [n] */
    int32_t n, capacity;
    json_t *extra;        /* schema of properties that are not listed; NULL = they are not
                             written */
    int32_t extra_rule;   /* number of the rule for such a property */
    int64_t n_min, n_max; /* of properties; INT64_MAX = without limit */
} object;

/* ---- Names that are not listed ---- */

/* Writes a rule for the rest of strings that begin with the `at` bytes that names[0..n) share, and
 * that are none of these names. Returns its number; 0 after a failure. The names are sorted and
 * different. */
static int32_t other_write(schema_writer *w, char **names, int32_t n, size_t at) {
    char *text;
    size_t len;
    FILE *out = schema_rule_begin(w, &text, &len);
    if (out == NULL) return 0;
    bool is_good = w->depth < SCHEMA_DEPTH_MAX ||
                   schema_fail(w, TDM_UNSUPPORTED,
                               "a name in 'properties' has more than about %d characters, which is "
                               "supported without 'additionalProperties' only",
                               SCHEMA_DEPTH_MAX);
    w->depth++;
    const bool is_word = n > 0 && names[0][at] == '\0';
    const int32_t first = is_word ? 1 : 0;
    fprintf(out, is_word ? "(" : "(\"\" | ");
    fprintf(out, "[^\"\\\\\\x00-\\x1F\\x7F");
    for (int32_t i = first; i < n; i++) {
        size_t size;
        llm_utf8_begin(names[i] + at, strlen(names[i] + at), &size);
        const char *c = names[i] + at;
        if (*c == ']' || *c == '[' || *c == '\\' || *c == '-' || *c == '^' || *c == '"')
            fprintf(out, "\\%c", *c);
        else if ((uint8_t)*c >= 0x20 && *c != 0x7F)
            fprintf(out, "%.*s", (int)size, c);
    }
    fprintf(out, "] plain*");
    for (int32_t i = first; i < n && is_good;) {
        size_t size;
        llm_utf8_begin(names[i] + at, strlen(names[i] + at), &size);
        int32_t end = i + 1;
        while (end < n && strncmp(names[i] + at, names[end] + at, size) == 0) end++;
        const uint8_t c = (uint8_t)names[i][at];
        /* A character that JSON escapes needs no rule: such names are not written here. */
        if (c >= 0x20 && c != '"' && c != '\\' && c != 0x7F) {
            const int32_t rule = other_write(w, names + i, end - i, at + size);
            fprintf(out, " | ");
            schema_literal_write(out, names[i] + at, size);
            fprintf(out, " r%d", rule);
            is_good = rule != 0;
        }
        i = end;
    }
    fprintf(out, ")");
    w->depth--;
    const int32_t number = schema_rule_end(w, out, &text, &len);
    return is_good ? number : 0;
}

static int name_order(const void *a, const void *b) {
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Writes the rule of a property that is not listed. */
static bool extra_write(schema_writer *w, object *o) {
    char **names = malloc(((size_t)o->n + 1) * sizeof *names);
    if (names == NULL) return schema_no_memory(w);
    for (int32_t i = 0; i < o->n; i++) names[i] = (char *)o->items[i].name;
    if (o->n > 1) qsort(names, (size_t)o->n, sizeof *names, name_order);
    const int32_t other = other_write(w, names, o->n, 0);
    free(names);
    char *text;
    size_t len;
    FILE *out = other != 0 ? schema_rule_begin(w, &text, &len) : NULL;
    if (out == NULL) return false;
    fprintf(out, "\"\\\"\" r%d \"\\\":\" ws ", other);
    const size_t mark = schema_enter(w, "additionalProperties");
    const bool is_good = schema_value_write(w, o->extra, out);
    schema_leave(w, mark);
    o->extra_rule = schema_rule_end(w, out, &text, &len);
    return is_good && o->extra_rule != 0;
}

/* ---- Listed properties ---- */

static bool property_add(schema_writer *w, object *o, const char *name, json_t *schema,
                         bool is_required) {
    if (!grammar_reserve((void **)&o->items, &o->capacity, (int64_t)o->n + 1, sizeof *o->items))
        return schema_no_memory(w);
    o->items[o->n++] = (property){.name = name, .schema = schema, .is_required = is_required};
    return true;
}

/* Reads the properties in their order, and the names that are only in `required`. A property whose
 * schema is false is listed, so that it is not an unlisted one, and not written. */
static bool properties_read(schema_writer *w, json_t *schema, object *o) {
    json_t *properties = json_object_get(schema, "properties");
    json_t *required = json_object_get(schema, "required");
    json_t *extra = json_object_get(schema, "additionalProperties");
    const char *name;
    size_t i;
    json_t *value;
    if (properties != NULL && !json_is_object(properties))
        return schema_fail(w, TDM_INVALID_ARGUMENT, "'properties' must be an object");
    if (required != NULL && !json_is_array(required))
        return schema_fail(w, TDM_INVALID_ARGUMENT, "'required' must be a list of names");
    const size_t n_required = json_array_size(required);
    if (!schema_work(w, (json_object_size(properties) + n_required) * n_required / 64))
        return false;
    json_object_foreach(properties, name, value) {
        if (!property_add(w, o, name, value, schema_requires(schema, name))) return false;
    }
    json_array_foreach(required, i, value) {
        if (!json_is_string(value))
            return schema_fail(w, TDM_INVALID_ARGUMENT, "'required' must be a list of names");
        if (json_object_get(properties, json_string_value(value)) != NULL) continue;
        bool is_twice = false;
        for (int32_t k = 0; k < o->n && !is_twice; k++)
            is_twice = strcmp(o->items[k].name, json_string_value(value)) == 0;
        if (!is_twice && !property_add(w, o, json_string_value(value),
                                       extra != NULL ? extra : json_true(), true))
            return false;
    }
    const bool is_any = properties == NULL && required == NULL && extra == NULL;
    o->extra = extra == NULL ? (is_any ? json_true() : NULL) : json_is_false(extra) ? NULL : extra;
    return true;
}

/* Reads minProperties and maxProperties, and refuses those that the rules cannot keep. */
static bool limits_read(schema_writer *w, const json_t *schema, object *o) {
    int32_t n_required = 0, n_listed = 0;
    for (int32_t i = 0; i < o->n; i++) {
        n_required += o->items[i].is_required;
        n_listed += !json_is_false(o->items[i].schema);
    }
    o->n_min = 0;
    o->n_max = INT64_MAX;
    if (!schema_count_read(w, schema, "minProperties", &o->n_min) ||
        !schema_count_read(w, schema, "maxProperties", &o->n_max))
        return false;
    if (o->n_min <= n_required &&
        (o->n_max == INT64_MAX || (o->extra == NULL && o->n_max >= n_listed)))
        return true;
    if (o->n == 0 && o->extra != NULL)
        return o->n_min <= o->n_max ||
               schema_fail(w, TDM_INVALID_ARGUMENT, "'minProperties' is above 'maxProperties'");
    return schema_fail(w, TDM_UNSUPPORTED,
                       "'minProperties' and 'maxProperties' are supported where 'properties' is "
                       "absent, or where they follow from 'required' and 'properties'");
}

static bool property_write(schema_writer *w, property *p) {
    char *text;
    size_t len;
    FILE *out = schema_rule_begin(w, &text, &len);
    if (out == NULL) return false;
    const size_t mark = schema_enter(w, "properties");
    schema_enter(w, p->name);
    json_t *name = json_string(p->name);
    bool is_good = name != NULL ? schema_json_write(w, name, out) : schema_no_memory(w);
    json_decref(name);
    fprintf(out, " \":\" ws ");
    is_good = is_good && schema_value_write(w, p->schema, out);
    schema_leave(w, mark);
    p->rule = schema_rule_end(w, out, &text, &len);
    return is_good && p->rule != 0;
}

/* Writes an expression as a rule; returns its number, 0 after a failure. */
static int32_t TDM_PRINTF(2, 3) rule_write(schema_writer *w, const char *format, ...) {
    char *text;
    size_t len;
    FILE *out = schema_rule_begin(w, &text, &len);
    if (out == NULL) return 0;
    va_list args;
    va_start(args, format);
    vfprintf(out, format, args);
    va_end(args);
    return schema_rule_end(w, out, &text, &len);
}

/* Writes an object without listed properties: any n_min to n_max of them. */
static bool any_write(schema_writer *w, const object *o, FILE *out) {
    char limit[32] = "";
    if (o->n_max == 0) {
        fprintf(out, "(\"{\" ws \"}\")");
        return true;
    }
    if (o->n_max != INT64_MAX) snprintf(limit, sizeof limit, "%lld", (long long)o->n_max - 1);
    /* The grammar cannot exclude equal names, of which a reader keeps one: so it cannot guarantee
     * two properties. */
    if (o->n_min > 1)
        return schema_fail(w, TDM_UNSUPPORTED,
                           "'minProperties' above 1 is not supported where names are free");
    const char *mark = o->n_min == 0 ? "?" : "";
    fprintf(out, "(\"{\" ws (r%d (\",\" ws r%d){0,%s} ws)%s \"}\")", o->extra_rule, o->extra_rule,
            limit, mark);
    return true;
}

static bool object_write(schema_writer *w, object *o, FILE *out) {
    /* From the last to the first property: `head` and `tail` are the numbers of the rules for what
     * follows, where no property is written yet and where one is; 0 = nothing follows. */
    int32_t head = 0, tail = 0;
    bool can_be_empty = true;
    if (o->extra != NULL) {
        if (!extra_write(w, o)) return false;
        if (o->n == 0) return any_write(w, o, out);
        tail = rule_write(w, "(\",\" ws r%d)*", o->extra_rule);
        head = rule_write(w, "r%d r%d", o->extra_rule, tail);
    }
    for (int32_t i = o->n; i-- > 0 && w->status == TDM_OK;) {
        property *p = &o->items[i];
        char rest[24] = "", others[24] = "";
        if (json_is_false(p->schema) && !p->is_required) continue;
        if (!property_write(w, p)) return false;
        if (tail != 0) snprintf(rest, sizeof rest, " r%d", tail);
        if (head != 0 && !p->is_required) snprintf(others, sizeof others, " | r%d", head);
        can_be_empty = can_be_empty && !p->is_required;
        head = rule_write(w, "r%d%s%s", p->rule, rest, others);
        tail =
            rule_write(w, p->is_required ? "\",\" ws r%d%s" : "(\",\" ws r%d)?%s", p->rule, rest);
    }
    if (w->status != TDM_OK) return false;
    if (head == 0)
        fprintf(out, "(\"{\" ws \"}\")");
    else
        fprintf(out, "(\"{\" ws (r%d ws)%s \"}\")", head, can_be_empty ? "?" : "");
    return true;
}

/* Whether propertyNames (NULL = absent) allows every name. */
static bool names_are_free(const json_t *names) {
    const char *type = json_string_value(json_object_get(names, "type"));
    if (names == NULL || json_is_true(names)) return true;
    if (type == NULL || strcmp(type, "string") != 0) return !schema_constrains(names);
    json_t *rest = json_copy((json_t *)names);
    json_object_del(rest, "type");
    const bool is_free = rest != NULL && !schema_constrains(rest);
    json_decref(rest);
    return is_free;
}

bool schema_object_write(schema_writer *w, json_t *schema, FILE *out) {
    object o = {0};
    bool is_good = true;
    if (!names_are_free(json_object_get(schema, "propertyNames")))
        is_good = schema_fail(w, TDM_UNSUPPORTED, "'propertyNames' is not supported");
    is_good = is_good && properties_read(w, schema, &o) && limits_read(w, schema, &o) &&
              object_write(w, &o, out);
    free(o.items);
    return is_good;
}

/* ---- Arrays ---- */

bool schema_array_write(schema_writer *w, json_t *schema, FILE *out) {
    json_t *prefix = json_object_get(schema, "prefixItems");
    json_t *items = json_object_get(schema, "items");
    const int64_t n_prefix = (int64_t)json_array_size(prefix);
    int64_t n_min = 0, n_max = INT64_MAX;
    if (!schema_count_read(w, schema, "minItems", &n_min) ||
        !schema_count_read(w, schema, "maxItems", &n_max))
        return false;
    if (json_is_true(json_object_get(schema, "uniqueItems")) && n_max > 1)
        return schema_fail(w, TDM_UNSUPPORTED,
                           "'uniqueItems' is not supported; leave it out and check the result "
                           "yourself");
    if (json_is_array(items))
        return schema_fail(w, TDM_UNSUPPORTED,
                           "'items' as a list is of older drafts; it is 'prefixItems' now");
    if (json_is_false(items) && n_max > n_prefix) n_max = n_prefix;
    if (n_min > n_max)
        return schema_fail(w, TDM_INVALID_ARGUMENT, "'minItems' is above the number of items");
    if (n_max == 0) {
        fprintf(out, "(\"[\" ws \"]\")");
        return true;
    }
    /* An item that may be left out opens a group, which ends behind all items. */
    const size_t mark = schema_enter(w, "items");
    fprintf(out, "(\"[\" ws ");
    int n_open = 0;
    bool is_good = true;
    for (int64_t i = 0; i < n_prefix && i < n_max && is_good; i++) {
        if (i >= n_min) {
            fprintf(out, "(");
            n_open++;
        }
        if (i > 0) fprintf(out, "\",\" ws ");
        is_good = schema_value_write(w, json_array_get(prefix, (size_t)i), out);
        fprintf(out, " ");
    }
    /* Behind a prefix, items are written only where the schema has `items` or requires more. */
    if (is_good && n_max > n_prefix && (n_prefix == 0 || items != NULL || n_min > n_prefix)) {
        char *text, limit[32] = "";
        size_t len;
        FILE *file = schema_rule_begin(w, &text, &len);
        if (file == NULL) return false;
        is_good = schema_value_write(w, items != NULL ? items : json_true(), file);
        const int32_t rule = schema_rule_end(w, file, &text, &len);
        const int64_t least = n_min > n_prefix ? n_min - n_prefix : 0;
        is_good = is_good && rule != 0;
        if (n_prefix > 0) {
            if (n_max != INT64_MAX)
                snprintf(limit, sizeof limit, "%lld", (long long)(n_max - n_prefix));
            fprintf(out, "(\",\" ws r%d){%lld,%s} ", rule, (long long)least, limit);
        } else {
            if (n_max != INT64_MAX) snprintf(limit, sizeof limit, "%lld", (long long)n_max - 1);
            fprintf(out, "(r%d (\",\" ws r%d){%lld,%s} ws)%s ", rule, rule,
                    (long long)(least > 0 ? least - 1 : 0), limit, least > 0 ? "" : "?");
        }
    }
    for (; n_open > 0; n_open--) fprintf(out, ")? ");
    fprintf(out, "%s\"]\")", n_prefix > 0 ? "ws " : "");
    schema_leave(w, mark);
    return is_good;
}
