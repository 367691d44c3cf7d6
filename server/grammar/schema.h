/* SPDX-License-Identifier: MIT
 *
 * schema.h: what the files share that write a JSON Schema (draft 2020-12) as GBNF. docs/grammar.md
 * lists what is supported. server/api/call_forms.c, which writes arguments of calls that are not
 * JSON, uses schema_literal_write and schema_requires, too.
 *
 * schema.c walks the schema; schema_merge.c makes one schema of several (allOf, $ref beside other
 * keywords) and compares alternatives (oneOf); schema_object.c, schema_string.c, schema_pattern.c
 * and schema_number.c write rules for values of one type.
 *
 * Invariant: the rules may allow fewer texts than the schema does, never others. A keyword for
 * which that cannot be kept is refused, and the message names it.
 *
 * Functions that write return false after a failure, which they store in the writer; what they have
 * written then is not used.
 */
#ifndef TANDEM_SERVER_GRAMMAR_SCHEMA_H
#define TANDEM_SERVER_GRAMMAR_SCHEMA_H

#include <jansson.h>
#include <stdio.h>

#include "server/grammar/grammar.h"

enum { SCHEMA_DEPTH_MAX = 80 }; /* of schemas in each other: bounds recursion */

typedef struct schema_rule {
    const json_t *schema; /* the target of a $ref */
    int32_t number;       /* of its rule: ref1, ref2, ... */
} schema_rule;

typedef struct schema_writer {
    json_t *root;      /* the whole schema */
    json_t *made;      /* an array that owns the schemas made by merging */
    schema_rule *refs; /* [n_ref] rules of targets of $ref */
    int32_t n_ref, ref_capacity;
    FILE *rules;       /* text of the complete rules */
    int32_t n_rule;    /* rules with a number so far: r1, r2, ... */
    int depth;         /* schemas that are open in each other, at most SCHEMA_DEPTH_MAX */
    int64_t work;      /* the sum of schema_work */
    char place[200];   /* a JSON pointer, cut where it is long; for messages */
    tdm_status status; /* of the first failure */
    tdm_error *err;
} schema_writer;

/* Stores a failure, unless there is one already: "JSON Schema, at #PLACE: " and the message.
 * Returns false. */
bool schema_fail(schema_writer *w, tdm_status status, const char *format, ...) TDM_PRINTF(3, 4);
/* The same for TDM_RESOURCE_EXHAUSTED. */
bool schema_no_memory(schema_writer *w);
/* Adds n to the work done: a unit is a schema, a keyword, or 64 comparisons. Fails where it is too
 * much: a short schema may have very many combinations of alternatives. */
bool schema_work(schema_writer *w, size_t n);
/* Appends a name to w->place; returns the mark that schema_leave restores it with. */
size_t schema_enter(schema_writer *w, const char *name);
void schema_leave(schema_writer *w, size_t mark);

/* Writes an expression for a schema's values: the name of a rule, or a group in parentheses. */
bool schema_value_write(schema_writer *w, json_t *schema, FILE *out);
/* Begins a rule, whose expression is written to the returned file. *text and *len are used until
 * schema_rule_end gets the same pointers. NULL without memory. */
FILE *schema_rule_begin(schema_writer *w, char **text, size_t *len);
/* Ends the rule, closes the file, adds the rule to the others and returns its number; 0 after a
 * failure. */
int32_t schema_rule_end(schema_writer *w, FILE *file, char **text, size_t *len);

/* Writes a GBNF literal of text. */
void schema_literal_write(FILE *out, const char *text, size_t len);
/* Writes a GBNF literal of a JSON value in its shortest form. */
bool schema_json_write(schema_writer *w, const json_t *value, FILE *out);

/* Write an expression for values of one type; `schema` is an object without $ref, allOf, anyOf,
 * oneOf, enum and const. */
bool schema_object_write(schema_writer *w, json_t *schema, FILE *out);
bool schema_array_write(schema_writer *w, json_t *schema, FILE *out);
bool schema_string_write(schema_writer *w, json_t *schema, FILE *out);
bool schema_number_write(schema_writer *w, json_t *schema, bool is_integer, FILE *out);

/* Writes an expression for the JSON strings that a regular expression matches, without their
 * quotes. */
bool schema_pattern_write(schema_writer *w, const char *pattern, size_t len, FILE *out);

/* Reads a limit such as minItems, 0 .. 1e9; *value is unchanged where it is absent. */
bool schema_count_read(schema_writer *w, const json_t *schema, const char *key, int64_t *value);

/* What a "$ref" points to; NULL after a failure. */
json_t *schema_ref_find(schema_writer *w, const char *ref);
/* One schema that allows what both allow, owned by the writer; NULL after a failure. */
json_t *schema_merge(schema_writer *w, json_t *a, json_t *b);
/* Makes `value` owned by the writer, and returns it; NULL (and a failure) for NULL. */
json_t *schema_own(schema_writer *w, json_t *value);
/* A copy of a schema without one keyword, owned by the writer; NULL after a failure. */
json_t *schema_without(schema_writer *w, json_t *schema, const char *key);
/* The same schema without allOf, `nullable`, and $ref beside other keywords: the result has a $ref
 * beside notes only, or none. NULL after a failure. */
json_t *schema_flatten(schema_writer *w, json_t *schema);
/* The same, with a $ref replaced by its target. */
json_t *schema_resolve(schema_writer *w, json_t *schema);
/* Whether `required` of a schema names a property. */
bool schema_requires(const json_t *schema, const char *name);
/* Whether a schema has keywords that limit its values, not only notes such as `title`. */
bool schema_constrains(const json_t *schema);
/* Whether no value matches both schemas, so that oneOf of them means the same as anyOf. Both are
 * resolved (schema_resolve). Where *key_out is set (the caller has set it to NULL), that holds only
 * if the property of that name is present in both. False after a failure, too. */
bool schema_is_apart(schema_writer *w, const json_t *a, const json_t *b, const char **key_out);

#endif
