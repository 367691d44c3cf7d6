/* SPDX-License-Identifier: MIT
 *
 * matcher.h: the sets of places that a text may have reached in a grammar, as states of an
 * automaton over bytes that is built while it is used.
 *
 * A place is a node that takes text, how far it is taken, and a frame: what follows at the end of
 * the rule. Frames are shared, so a frame with its parents is a stack. A set of places is a state,
 * and has a number. Each step from a state by a byte is computed once.
 *
 * Not here: masks (mask.c), and the lock that callers hold (grammar.c).
 */
#ifndef TANDEM_SERVER_GRAMMAR_MATCHER_H
#define TANDEM_SERVER_GRAMMAR_MATCHER_H

#include "server/grammar/program.h"

/* Numbers of states that always exist. */
enum {
    GRAMMAR_DEAD = 0,  /* no text goes on */
    GRAMMAR_OVER = 1,  /* behind a token that ends generation */
    GRAMMAR_START = 2, /* the beginning */
};

/* Instead of a state. */
enum { GRAMMAR_UNKNOWN = -1, GRAMMAR_FAILED = -2 };

typedef struct grammar_place {
    int32_t node;  /* LITERAL, CLASS or TOKEN */
    int32_t at;    /* bytes of a LITERAL, state of a CLASS; 0 = nothing taken yet */
    int32_t frame; /* 0 = the end of the text follows */
} grammar_place;

typedef struct grammar_frame {
    int32_t node;   /* where to go on; a LOOP where count >= 0 */
    int32_t count;  /* repetitions complete; -1 = not the body of a LOOP */
    int32_t parent; /* a frame */
} grammar_frame;

typedef struct grammar_set {
    int32_t first, n; /* places, in order */
    bool can_end;
    int32_t plain;  /* the state behind any plain code point, GRAMMAR_DEAD where none is taken,
                    * GRAMMAR_UNKNOWN = not computed; see grammar_matcher_plain */
    bool is_mixed;  /* of plain */
    uint64_t *mask; /* NULL = not computed */
} grammar_set;

/* An open hash table of numbers; 0 = free. */
typedef struct grammar_table {
    int32_t *slots; /* [capacity] a power of 2 */
    int32_t capacity, n;
} grammar_table;

/* What a step has visited, for one step: key -> value. */
typedef struct grammar_visit {
    int32_t a, b, c;
    int32_t value;
    uint32_t step; /* other steps' entries are free */
} grammar_visit;

typedef struct grammar_matcher {
    const grammar_program *program;
    uint8_t byte_class[256]; /* bytes that no node tells apart have one class */
    uint8_t class_byte[256]; /* [n_class] a byte of each */
    int32_t n_class;

    grammar_set *sets;     /* [n_set] the states */
    int32_t *rows;         /* [n_set][n_class] where a byte leads, or GRAMMAR_UNKNOWN */
    grammar_place *places; /* [n_place] of all sets */
    grammar_frame *frames; /* [n_frame] number 0 is not used */
    int32_t n_set, n_place, n_frame;
    int32_t set_capacity, row_capacity, place_capacity, frame_capacity;
    grammar_table set_table, frame_table;

    /* Of one step. */
    grammar_place *found;  /* [n_found] */
    grammar_place *work;   /* [n_work] nodes to visit; `at` is not used */
    grammar_visit *visits; /* [visit_capacity] */
    int32_t n_found, found_capacity, n_work, work_capacity, n_visit, visit_capacity;
    int32_t n_pushed; /* nodes */
    uint32_t step;
    bool can_end;
    bool is_failed; /* no memory, or too many places */

    int64_t effort; /* nodes and places visited; the caller sets it to 0 where its work begins, and
                     * all fails where it gets too large */
} grammar_matcher;

/* Makes the states that always exist; `program` is complete and outlives the matcher. The zeroed
 * *matcher is freed by grammar_matcher_free in any case. False without memory. */
bool grammar_matcher_begin(grammar_matcher *matcher, const grammar_program *program);
void grammar_matcher_free(grammar_matcher *matcher);

/* Computes a step that is not in the rows yet. GRAMMAR_FAILED without memory or with too many
 * places. */
int32_t grammar_matcher_compute(grammar_matcher *matcher, int32_t state, uint8_t byte);

/* Where a byte leads from a state. */
static inline int32_t grammar_matcher_step(grammar_matcher *m, int32_t state, uint8_t byte) {
    const int32_t next = m->rows[(size_t)state * (size_t)m->n_class + m->byte_class[byte]];
    return next != GRAMMAR_UNKNOWN ? next : grammar_matcher_compute(m, state, byte);
}

/* Where a token leads from a state by nodes TOKEN, not by its bytes. by_name: only by those that
 * name it, not by those that name another one that it must not be. */
int32_t grammar_matcher_token(grammar_matcher *matcher, int32_t state, int32_t token, bool by_name);
/* The state that has the places of both. */
int32_t grammar_matcher_join(grammar_matcher *matcher, int32_t a, int32_t b);
/* The state behind one plain code point (token_trie.h), whichever it is. *is_mixed_out: there are
 * places that take some plain code points and not others, so the result is no use. GRAMMAR_FAILED
 * as in grammar_matcher_compute. */
int32_t grammar_matcher_plain(grammar_matcher *matcher, int32_t state, bool *is_mixed_out);

/* Whether so much is kept that grammar_matcher_shrink is due. */
bool grammar_matcher_is_large(const grammar_matcher *matcher);
/* Forgets all states but states[0..n), whose numbers it replaces. False without memory: nothing
 * changed. */
bool grammar_matcher_shrink(grammar_matcher *matcher, int32_t **states, int32_t n);

#endif
