/* SPDX-License-Identifier: MIT
 *
 * code_points.h: sets of code points, as automata over the bytes of UTF-8.
 *
 * All sets of a grammar share their inner states: the place behind E2 82 in a set is a state that
 * says which byte may follow. So a set takes one step for each byte, whatever its ranges are.
 */
#ifndef TANDEM_SERVER_GRAMMAR_CODE_POINTS_H
#define TANDEM_SERVER_GRAMMAR_CODE_POINTS_H

#include <stdbool.h>
#include <stdint.h>

/* Code points lo .. hi. */
typedef struct grammar_range {
    uint32_t lo, hi;
} grammar_range;

/* What a byte leads to: a state (> 0), or one of these. */
enum { GRAMMAR_BYTE_LAST = 0, GRAMMAR_BYTE_BAD = -1 };

/* A set. */
typedef struct grammar_class {
    int32_t lead[256];   /* what the first byte leads to */
    int32_t first_range; /* of grammar_classes.ranges: in order, apart, without surrogates */
    int32_t n_range;
    bool has_plain; /* has all plain code points (token_trie.h) */
    bool no_plain;  /* has none of them */
} grammar_class;

/* A state: what the next byte, 80 .. BF, leads to. */
typedef struct grammar_follow {
    int32_t next[64];
} grammar_follow;

/* The sets of a grammar. Zeroed is empty. */
typedef struct grammar_classes {
    grammar_class *classes; /* [n] */
    grammar_follow *states; /* [n_state] number 0 is not used */
    grammar_range *ranges;  /* [n_range] of all sets */
    int32_t n, n_state, n_range;
    int32_t capacity, state_capacity, range_capacity;
} grammar_classes;

/* The number of the set of ranges[0..n), or of all other code points where it is negated. Equal
 * sets have one number. The ranges may overlap, and are changed. -1 without memory. */
int32_t grammar_classes_add(grammar_classes *set, grammar_range *ranges, int32_t n,
                            bool is_negated);
void grammar_classes_free(grammar_classes *set);

/* Where a byte leads from place `at` of a set: 0 = its beginning, else a state. */
static inline int32_t grammar_class_step(const grammar_classes *set, int32_t index, int32_t at,
                                         uint8_t byte) {
    if (at == 0) return set->classes[index].lead[byte];
    return (byte & 0xC0) == 0x80 ? set->states[at].next[byte & 0x3F] : GRAMMAR_BYTE_BAD;
}

/* Writes the bytes of a code point; returns how many. */
int32_t grammar_code_point_write(uint32_t code, char out[4]);

#endif
