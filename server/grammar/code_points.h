/* SPDX-License-Identifier: MIT
 *
 * code_points.h: sets of code points, as automata over the bytes of UTF-8.
 *
 * A set takes one step for each byte, whatever its ranges are. Behind the bytes E2 82, for
 * instance, a set is in a state, which holds for each next byte what it leads to. All sets of a
 * grammar share their states.
 */
#ifndef TANDEM_SERVER_GRAMMAR_CODE_POINTS_H
#define TANDEM_SERVER_GRAMMAR_CODE_POINTS_H

#include <stdbool.h>
#include <stdint.h>

/* Code points lo .. hi. */
typedef struct grammar_range {
    uint32_t lo, hi;
} grammar_range;

/* What a byte leads to: a state (> 0), the end of a code point of the set, or nothing. */
enum { GRAMMAR_BYTE_LAST = 0, GRAMMAR_BYTE_BAD = -1 };

/* A set. */
typedef struct grammar_class {
    int32_t lead[256];   /* what the first byte leads to */
    int32_t first_range; /* ranges[first_range .. + n_range): sorted, with gaps between them,
                            without surrogates; so equal sets have equal ranges */
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

/* Adds the set of ranges[0..n), or (is_negated) of all other code points; returns its number, that
 * of an equal set where there is one. The ranges may overlap; they are sorted. -1 without memory,
 * or with too many sets or states; then the sets are not to be used any more. */
int32_t grammar_classes_add(grammar_classes *set, grammar_range *ranges, int32_t n,
                            bool is_negated);
/* Frees the sets, and clears them. */
void grammar_classes_free(grammar_classes *set);

/* What a byte leads to from place `at` of a set: 0 = its beginning, else a state. */
static inline int32_t grammar_class_step(const grammar_classes *set, int32_t index, int32_t at,
                                         uint8_t byte) {
    if (at == 0) return set->classes[index].lead[byte];
    return (byte & 0xC0) == 0x80 ? set->states[at].next[byte & 0x3F] : GRAMMAR_BYTE_BAD;
}

/* Writes the UTF-8 bytes of a code point, 1 to 4; returns how many. */
int32_t grammar_code_point_write(uint32_t code, char out[4]);

#endif
