/* SPDX-License-Identifier: MIT
 *
 * token_trie.h: the bytes of a vocabulary's tokens, in tries that a mask walks depth first.
 *
 * Tokens of plain text only are a trie of their own. Plain code points are those that JSON has in
 * strings as they are: all but quotes, backslashes and control characters. In most places a grammar
 * allows either any plain text up to some length or none, and then a mask takes all those tokens at
 * once, by their number of code points (mask.c). Most tokens are plain. Of the other tokens that
 * begin with k plain code points, only what follows those is walked: one trie for each k.
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

/* Whether a byte may be of a plain code point. */
static inline bool grammar_is_plain(uint8_t byte) {
    return byte >= 0x20 && byte != '"' && byte != '\\' && byte != 0x7F;
}

/* A node stands behind its parent and before its siblings' nodes, so that a walk goes forward. */
typedef struct grammar_trie_node {
    int32_t skip;  /* nodes of the subtree, itself included */
    int32_t token; /* the first token that ends here; -1 = none */
    int16_t depth; /* of its byte: the first byte of a token has 0 */
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
    grammar_trie plain, other;                /* all tokens */
    grammar_trie rest[GRAMMAR_PLAIN_MAX + 1]; /* of `other`, with k plain code points before */
    grammar_trie late;  /* of `other`, whole, with more plain code points before */
    int32_t *twin;      /* [2][n_token] of plain and other; of rest and late */
    int16_t depth_max;  /* bytes of the longest token */
    uint64_t *plain_up; /* [GRAMMAR_PLAIN_MAX + 1][n_word] plain tokens with 1 .. i + 1 code points;
                         * the last row has all plain tokens */
    struct {
        int32_t count, token;
    } * long_plain; /* [n_long] plain tokens with more code points than GRAMMAR_PLAIN_MAX */
    int32_t n_long, long_capacity;
    int32_t plain_max; /* most plain code points that a token is or begins with */
    uint64_t *ends;    /* [n_word] tokens that end generation */
    uint64_t *known;   /* [n_word] tokens of `vocab` */
};

/* The bytes that a token adds to the text; empty for tokens that only a grammar's <token> allows.
 * [any-thread] */
llm_vocab_str grammar_token_bytes(const grammar_vocab *vocab, int32_t token);

#endif
