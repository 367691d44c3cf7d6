/* SPDX-License-Identifier: MIT
 *
 * matcher.h: an automaton over bytes that is built while it is used. Its states are the sets of
 * places that a text may have reached in a grammar.
 *
 * A place is a node that takes text, how much of it the text has taken, and a frame: what follows
 * at the end of the rule. A frame has a parent, so a frame stands for a stack; equal stacks share
 * frames. A set of places is a state, and has a number. Each step from a state by a byte is
 * computed once.
 *
 * Not here: masks (mask.c), and the lock, which the caller holds in all calls (grammar.c).
 */
#ifndef TANDEM_SERVER_GRAMMAR_MATCHER_H
#define TANDEM_SERVER_GRAMMAR_MATCHER_H

#include "server/grammar/program.h"

/* Numbers of states that always exist. */
enum {
    GRAMMAR_DEAD = 0,  /* no place: the grammar does not allow the text */
    GRAMMAR_OVER = 1,  /* behind a token that ends generation */
    GRAMMAR_START = 2, /* the beginning of the grammar */
};

/* Instead of a state: it is not computed yet; it could not be computed. */
enum { GRAMMAR_UNKNOWN = -1, GRAMMAR_FAILED = -2 };

typedef struct grammar_place {
    int32_t node;  /* LITERAL, CLASS or TOKEN */
    int32_t at;    /* LITERAL: bytes taken; CLASS: state (code_points.h); 0 = nothing taken yet */
    int32_t frame; /* what follows at the end of the rule; 0 = the end of the text */
} grammar_place;

typedef struct grammar_frame {
    int32_t node;   /* the node that follows; where count >= 0, the LOOP whose body ends */
    int32_t count;  /* of a LOOP: repetitions that are complete; -1 = the frame of a CALL */
    int32_t parent; /* the frame below it; 0 = the end of the text */
} grammar_frame;

typedef struct grammar_set {
    int32_t first, n; /* places[first .. first + n), sorted */
    bool can_end;     /* the text may end here */
    int32_t plain;    /* the result of grammar_matcher_plain; GRAMMAR_UNKNOWN = not computed */
    bool is_mixed;    /* the same: its *is_mixed_out */
    uint64_t *mask;   /* owned, of the caller's making (grammar.c); NULL = not computed */
} grammar_set;

/* A hash table with open addressing, of numbers of states or frames; 0 = a free slot. */
typedef struct grammar_table {
    int32_t *slots; /* [capacity] a power of 2 */
    int32_t capacity, n;
} grammar_table;

/* An entry of the table of what a step has visited: the key a, b, c has a value. */
typedef struct grammar_visit {
    int32_t a, b, c;
    int32_t value;
    uint32_t step; /* the step that made the entry; entries of other steps count as free */
} grammar_visit;

typedef struct grammar_matcher {
    const grammar_program *program;
    uint8_t byte_class[256]; /* the class of each byte: bytes that no node distinguishes share
                                one */
    uint8_t class_byte[256]; /* [n_class] a byte of each class */
    int32_t n_class;

    grammar_set *sets;     /* [n_set] the states */
    int32_t *rows;         /* [n_set][n_class] where a byte leads, or GRAMMAR_UNKNOWN */
    grammar_place *places; /* [n_place] of all sets */
    grammar_frame *frames; /* [n_frame] number 0 is not used */
    int32_t n_set, n_place, n_frame;
    int32_t set_capacity, row_capacity, place_capacity, frame_capacity;
    grammar_table set_table, frame_table;

    /* Of the step that is being computed. */
    grammar_place *found;  /* [n_found] places of the new state */
    grammar_place *work;   /* [n_work] nodes to visit; `at` is not used */
    grammar_visit *visits; /* [visit_capacity] */
    int32_t n_found, found_capacity, n_work, work_capacity, n_visit, visit_capacity;
    int32_t n_pushed; /* nodes pushed to `work` in all */
    uint32_t step;    /* number of the step, for visits */
    bool can_end;     /* of the new state */
    bool is_failed;   /* no memory, or too many places */

    int64_t effort; /* nodes and places visited since the caller set it to 0, which it does where
                       its work begins. Where it gets too large, every step fails */
} grammar_matcher;

/* Makes the states that always exist in the zeroed *matcher. `program` is finished and outlives the
 * matcher. The caller calls grammar_matcher_free, also after a failure. False without memory, or
 * with too many places at the beginning. */
bool grammar_matcher_begin(grammar_matcher *matcher, const grammar_program *program);
/* Frees what the matcher owns, and clears it. */
void grammar_matcher_free(grammar_matcher *matcher);

/* Computes a step that is not in the rows yet: returns the state that the byte leads to, and keeps
 * it. GRAMMAR_FAILED without memory, with too many places, or too much effort. */
int32_t grammar_matcher_compute(grammar_matcher *matcher, int32_t state, uint8_t byte);

/* The state that a byte leads to from a state; fails as grammar_matcher_compute does. */
static inline int32_t grammar_matcher_step(grammar_matcher *m, int32_t state, uint8_t byte) {
    const int32_t next = m->rows[(size_t)state * (size_t)m->n_class + m->byte_class[byte]];
    return next != GRAMMAR_UNKNOWN ? next : grammar_matcher_compute(m, state, byte);
}

/* The state that a token leads to from a state by nodes TOKEN, not by its bytes. by_name: negated
 * nodes are left out. Fails as grammar_matcher_compute does. */
int32_t grammar_matcher_token(grammar_matcher *matcher, int32_t state, int32_t token, bool by_name);
/* The state that has the places of both states. A failure given as a or b is returned. Fails as
 * grammar_matcher_compute does. */
int32_t grammar_matcher_join(grammar_matcher *matcher, int32_t a, int32_t b);
/* The state behind any one plain code point (token_trie.h); GRAMMAR_DEAD where none is allowed.
 * *is_mixed_out: some plain code points are allowed and others are not, or they lead to different
 * states; then the result has no meaning. Fails as grammar_matcher_compute does. */
int32_t grammar_matcher_plain(grammar_matcher *matcher, int32_t state, bool *is_mixed_out);

/* Whether the matcher keeps so much that grammar_matcher_shrink should be called. */
bool grammar_matcher_is_large(const grammar_matcher *matcher);
/* Drops all states, with their masks, but those that always exist and *states[0..n), which get new
 * numbers: it writes them to *states[i]. False without memory; then nothing is changed. */
bool grammar_matcher_shrink(grammar_matcher *matcher, int32_t **states, int32_t n);

#endif
