/* SPDX-License-Identifier: MIT
 *
 * schema.h: what the files that turn a JSON Schema (draft 2020-12) into GBNF share. docs/grammar.md
 * says what is supported.
 *
 * schema.c goes through the schema; schema_merge.c makes one schema of several (allOf, $ref beside
 * other keywords) and compares alternatives (oneOf); schema_object.c, schema_string.c,
 * schema_pattern.c and schema_number.c write rules for values of one type. The rules may allow
 * fewer texts than the schema does, never others. A keyword that would need more is refused by its
 * name.
 */
#ifndef TANDEM_SERVER_GRAMMAR_SCHEMA_H
#define TANDEM_SERVER_GRAMMAR_SCHEMA_H

#include <jansson.h>
#include <stdio.h>

#include "server/grammar/grammar.h"

enum { SCHEMA_DEPTH_MAX = 80 };

typedef struct schema_rule {
    const json_t *schema; /* the target of a $ref */
    int32_t number;
} schema_rule;

typedef struct schema_writer {
    json_t *root;
    json_t *made;      /* an array: owns the schemas that merging made */
    schema_rule *refs; /* [n_ref] rules of targets of $ref */
    int32_t n_ref, ref_capacity;
    FILE *rules;    /* complete rules */
    int32_t n_rule; /* of them, by number: r1, r2, ... */
    int depth;
    int64_t work;      /* see schema_work */
    char place[200];   /* a JSON pointer, cut where it is long; for messages */
    tdm_status status; /* of the first failure */
    tdm_error *err;
} schema_writer;

/* Fails with "JSON Schema, at PLACE: " and the message. Returns false. */
bool schema_fail(schema_writer *w, tdm_status status, const char *format, ...) TDM_PRINTF(3, 4);
bool schema_no_memory(schema_writer *w);
/* Counts n more schemas or keywords, or n times 64 comparisons. False, with a failure, where
 * they are too many: a short schema may stand for very many combinations of alternatives. */
bool schema_work(schema_writer *w, size_t n);
/* A place is entered and left: restores what schema_enter returned. */
size_t schema_enter(schema_writer *w, const char *name);
void schema_leave(schema_writer *w, size_t mark);

/* Writes the expression of a schema's values: a name, or a group in parentheses. */
bool schema_value_write(schema_writer *w, json_t *schema, FILE *out);
/* Begins a rule of its own: what is written to the returned file. NULL without memory. */
FILE *schema_rule_begin(schema_writer *w, char **text, size_t *len);
/* Ends it, adds it to the rules, and gives its number; 0 without memory. */
int32_t schema_rule_end(schema_writer *w, FILE *file, char **text, size_t *len);

/* Writes a GBNF literal of text. */
void schema_literal_write(FILE *out, const char *text, size_t len);
/* Writes a GBNF literal of a JSON value in its shortest form. */
bool schema_json_write(schema_writer *w, const json_t *value, FILE *out);

/* Values of one type; `schema` is an object without $ref, allOf, anyOf, oneOf, enum and const. */
bool schema_object_write(schema_writer *w, json_t *schema, FILE *out);
bool schema_array_write(schema_writer *w, json_t *schema, FILE *out);
bool schema_string_write(schema_writer *w, json_t *schema, FILE *out);
bool schema_number_write(schema_writer *w, json_t *schema, bool is_integer, FILE *out);

/* Writes the expression of JSON strings, without quotes, that a regular expression matches. */
bool schema_pattern_write(schema_writer *w, const char *pattern, size_t len, FILE *out);

/* A limit such as minItems: *value is unchanged where it is absent. */
bool schema_count_read(schema_writer *w, const json_t *schema, const char *key, int64_t *value);

/* What a "$ref" points to; NULL after a failure. */
json_t *schema_ref_find(schema_writer *w, const char *ref);
/* One schema that allows what both allow, owned by the writer; NULL after a failure. */
json_t *schema_merge(schema_writer *w, json_t *a, json_t *b);
/* Makes `value` owned by the writer, and returns it; NULL (and a failure) for NULL. */
json_t *schema_own(schema_writer *w, json_t *value);
/* The schema without allOf, `nullable`, and $ref beside other keywords: the result has a $ref
 * alone, or none. NULL after a failure. */
json_t *schema_flatten(schema_writer *w, json_t *schema);
/* The same without any $ref at the top. */
json_t *schema_resolve(schema_writer *w, json_t *schema);
/* Whether a schema has keywords other than those that only describe. */
bool schema_constrains(const json_t *schema);
/* Whether no value is of both resolved schemas, so that oneOf of them is anyOf. *key_out: a
 * property that must be present for that, or NULL. False after a failure, too. */
bool schema_is_apart(schema_writer *w, const json_t *a, const json_t *b, const char **key_out);

#endif
