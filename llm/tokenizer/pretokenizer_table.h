/* SPDX-License-Identifier: MIT
 *
 * pretokenizer_table.h: what a pre-tokenizer consists of: expressions that cut text, and how words
 * become tokens. Data only; cutting is in pretokenizer.c.
 */
#ifndef LLM_PRETOKENIZER_TABLE_H
#define LLM_PRETOKENIZER_TABLE_H

#include <stdbool.h>
#include <stddef.h>

/* How a match of an expression is cut. */
typedef enum llm_pre_cut {
    LLM_PRE_WORD, /* a word; the text between two matches is a word, too */
    /* A number: cut into groups of three characters, counted from its end. */
    LLM_PRE_THREES_JOINED, /* no cut before the number: its first group joins the text before it */
    LLM_PRE_THREES_INSIDE, /* cuts before whole groups only: no cut at the end of the number */
} llm_pre_cut;

enum { LLM_PRE_MAX_PASSES = 6 };

typedef struct llm_pre_kind {
    const char *names;   /* separated by spaces */
    bool ignores_merges; /* a word that is a token is that token */
    bool adds_bos;       /* the default of tokenizer.ggml.add_bos_token */
    bool is_raw;      /* symbols are code points, and bytes have tokens such as <0x0A>; else symbols
                          * are bytes in GPT-2's alphabet */
    bool marks_space; /* a space is U+2581 in tokens */
    bool keeps_lines; /* a word of newlines that is a token is that token */
    struct {
        const char *expression; /* NULL behind the last one */
        llm_pre_cut cut;
    } passes[LLM_PRE_MAX_PASSES];
} llm_pre_kind;

/* The kind with this name, or NULL. [any-thread] */
const llm_pre_kind *llm_pre_kind_find(const char *name);

/* The kinds in order, for lists; NULL behind the last one. [any-thread] */
const llm_pre_kind *llm_pre_kind_at(size_t i);

#endif
