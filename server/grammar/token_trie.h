/* SPDX-License-Identifier: MIT
 *
 * token_trie.h: the bytes of a vocabulary's tokens, in tries that the computation of a mask walks
 * depth first.
 *
 * Plain code points are those that JSON strings have as they are: all but quotes, backslashes and
 * control characters. Most tokens are plain, that is, of plain code points only; they have a trie
 * of their own (`plain`). In most places a grammar allows either any plain text up to some length,
 * or none. Then a mask takes all plain tokens up to that number of code points at once, and their
 * trie is not walked (mask.c). Of the other tokens that begin with k plain code points, only what
 * follows these is walked then: one trie for each k (`rest`).
 */
#ifndef TANDEM_SERVER_GRAMMAR_TOKEN_TRIE_H
#define TANDEM_SERVER_GRAMMAR_TOKEN_TRIE_H

#include "server/grammar/code_points.h"
#include "server/grammar/grammar.h"

/* The plain code points. */
enum { GRAMMAR_PLAIN_RANGES = 5 };
static const grammar_range grammar_plain[GRAMMAR_PLAIN_RANGES] = {
    {0x20, '"' - 1}, {'"' + 1, '\\' - 1}, {'\\' + 1, 0x7E}, {0x80, 0xD7FF}, {0xE000, 0x10FFFF},
};

/* Whether a byte may be a part of a plain code point. */
static inline bool grammar_is_plain(uint8_t byte) {
    return byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7F;
}

/* A node of a trie. The array is in depth-first order: the nodes below a node follow it directly,
 * so a walk goes forward, and skips a subtree by `skip`. */
typedef struct grammar_trie_node {
    int32_t skip;  /* nodes of its subtree, itself included */
    int32_t token; /* the first token that ends here; -1 = none. Others: grammar_trie.twin */
    int16_t depth; /* the place of its byte in a token; the first byte has 0 */
    uint8_t byte;
} grammar_trie_node;

typedef struct grammar_trie {
    grammar_trie_node *nodes; /* [n] */
    const int32_t *twin;      /* [n_token] the next token with the same bytes; -1 = none */
    int32_t n;
} grammar_trie;

/* Plain tokens with more code points than this count as one length. */
enum { GRAMMAR_PLAIN_MAX = 32 };

struct grammar_vocab {
    const llm_vocab *vocab;
    int32_t n_token;                          /* bits of a mask */
    size_t n_word;                            /* words of a mask */
    grammar_trie plain, other;                /* the plain tokens; all others that have bytes */
    grammar_trie rest[GRAMMAR_PLAIN_MAX + 1]; /* [k] the tokens of `other` that begin with exactly k
                                                 plain code points, without these */
    grammar_trie late;  /* the tokens of `other` with more plain code points at the beginning,
                           whole */
    int32_t *twin;      /* [2][n_token] of plain and other; of rest and late */
    int16_t depth_max;  /* bytes of the longest token */
    uint64_t *plain_up; /* [GRAMMAR_PLAIN_MAX + 1][n_word] row i: the plain tokens with 1 .. i + 1
                           code points; the last row: all plain tokens */
    struct {
        int32_t count, token;
    } * long_plain; /* [n_long] plain tokens with more code points than GRAMMAR_PLAIN_MAX */
    int32_t n_long, long_capacity;
    int32_t plain_max; /* the most plain code points that any token begins with */
    uint64_t *ends;    /* [n_word] tokens that end generation */
    uint64_t *known;   /* [n_word] tokens of `vocab` */
};

/* The bytes that a token adds to the text. Empty for tokens that are no text (control tokens and
 * the like): a grammar allows these only where it names them. [any-thread] */
llm_vocab_str grammar_token_bytes(const grammar_vocab *vocab, int32_t token);

#endif
