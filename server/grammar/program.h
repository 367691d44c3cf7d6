/* SPDX-License-Identifier: MIT
 *
 * program.h: a grammar as a graph of nodes, which a matcher walks.
 *
 * Each rule is a graph that begins at its entry and leads to nodes END. A node that calls a rule or
 * begins a counted repetition pushes a frame, which holds the node that follows. Repetitions are
 * counted instead of written out, so that {0,100000} is one node.
 */
#ifndef TANDEM_SERVER_GRAMMAR_PROGRAM_H
#define TANDEM_SERVER_GRAMMAR_PROGRAM_H

#include "server/grammar/code_points.h"
#include "server/grammar/grammar.h"

typedef enum grammar_op {
    GRAMMAR_END,     /* the end of a rule, or of the body of a repetition: pops a frame */
    GRAMMAR_LITERAL, /* takes bytes[first .. first + n) */
    GRAMMAR_CLASS,   /* takes a code point of a set */
    GRAMMAR_TOKEN,   /* takes one token by its id, or (is_negated) any one but that */
    GRAMMAR_CALL,    /* takes the text of a rule */
    GRAMMAR_LOOP,    /* takes its body n_min to n_max times */
    GRAMMAR_SPLIT,   /* goes on at any of targets[first .. first + n) */
} grammar_op;

typedef struct grammar_node {
    uint8_t op;       /* grammar_op */
    bool is_negated;  /* TOKEN: any token but this one */
    bool is_nullable; /* END can be reached from here without taking anything */
    bool is_finite;   /* END can be reached from here */
    int32_t next;     /* the node that follows; not used in END and SPLIT */
    int32_t first;    /* LITERAL, SPLIT; CLASS: the set, TOKEN: the id, CALL: the rule, LOOP: the
                       * body's entry */
    int32_t n;        /* LITERAL: bytes, at least 1; SPLIT: targets */
    int32_t n_min;    /* LOOP */
    int32_t n_max;    /* LOOP; -1 = without limit */
} grammar_node;

typedef struct grammar_rule {
    char *name;    /* NUL-terminated */
    int32_t entry; /* a node; -1 = not defined */
    int32_t line;  /* of its definition, or of its first use where it has none; the first is 1 */
} grammar_rule;

/* Zeroed is empty. */
typedef struct grammar_program {
    grammar_node *nodes; /* [n_node] */
    int32_t *targets;    /* [n_target] nodes, of all SPLIT nodes */
    char *bytes;         /* [n_byte] of all LITERAL nodes */
    grammar_rule *rules; /* [n_rule] */
    grammar_classes classes;
    int32_t *names; /* [name_capacity] hash table of rules by name; -1 = free */
    int32_t n_node, n_target, n_byte, n_rule;
    int32_t node_capacity, target_capacity, byte_capacity, rule_capacity, name_capacity;
    int32_t root; /* number of the rule of the whole text; set by grammar_program_finish */
} grammar_program;

/* The number of the rule of that name, which is added without an entry if there is none. -1 without
 * memory. */
int32_t grammar_program_rule(grammar_program *program, const char *name, size_t len, int32_t line);
/* Adds a node; returns its number, -1 without memory. */
int32_t grammar_program_node(grammar_program *program, grammar_node node);
/* Adds n targets, which the caller fills; returns the number of the first, -1 without memory. */
int32_t grammar_program_targets(grammar_program *program, int32_t n);
/* Adds bytes; returns the number of the first, -1 without memory. */
int32_t grammar_program_bytes(grammar_program *program, const char *bytes, size_t n);

/* Checks a complete program, and fills root, is_nullable and is_finite. Repetitions whose body may
 * be empty get n_min = 0, which allows the same texts. TDM_INVALID_ARGUMENT: a rule that is used
 * and not defined, no rule `root`, a root that never ends, left recursion.
 * TDM_RESOURCE_EXHAUSTED. */
tdm_status grammar_program_finish(grammar_program *program, tdm_error *err);
/* Frees what the program owns, and clears it. */
void grammar_program_free(grammar_program *program);

#endif
