/* SPDX-License-Identifier: MIT
 *
 * grammar.h: which tokens may come next, so that generated text follows a grammar.
 *
 * A grammar is written in GBNF, or made from a JSON Schema (docs/grammar.md). It is compiled for
 * one vocabulary, and many texts share it. A state is the place in the grammar that one text has
 * reached. The caller gets a mask, samples a token that the mask allows, and gives the state that
 * token:
 *
 *     grammar_state_mask(state, mask, err);          bit t = token t may come next
 *     row = llm_row_masked(&row, mask, logits);      llm/sampler.h
 *     llm_sampler_pick(sampler, &row, &token, err);
 *     grammar_state_accept(state, token, err);
 *
 * A grammar computes states and masks when they are first needed, and keeps them under a lock for
 * all its states. So all calls below may come from any thread, but only one at a time for one
 * state.
 *
 * The library starts no threads. The caller samples, and decides where in a text a grammar begins.
 */
#ifndef TANDEM_SERVER_GRAMMAR_H
#define TANDEM_SERVER_GRAMMAR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llm/constraint.h"
#include "llm/tokenizer/vocab.h"
#include "tandem/status.h"

/* The bytes of a vocabulary's tokens, as a trie. One for each model. It does not change. */
typedef struct grammar_vocab grammar_vocab;

/* Makes the trie. n_token is the length of a row of logits (n_vocab of the model). Ids that are in
 * the row and not in `vocab`, or the other way round, are never allowed. `vocab` outlives the
 * result. TDM_INVALID_ARGUMENT (n_token below 1), TDM_RESOURCE_EXHAUSTED. On failure *out is NULL.
 * [any-thread] */
tdm_status grammar_vocab_create(const llm_vocab *vocab, int32_t n_token, grammar_vocab **out,
                                tdm_error *err);

/* NULL is a no-op. All grammars that were compiled for it are released before. */
void grammar_vocab_destroy(grammar_vocab *vocab);

/* How many uint64_t a mask has: (n_token + 63) / 64. Bit t % 64 of word t / 64 is token t; bits
 * behind the last token are 0. [any-thread] */
size_t grammar_vocab_mask_words(const grammar_vocab *vocab);

/* A compiled grammar. It has a count of owners, and the last one frees it. */
typedef struct grammar grammar;

/* Compiles GBNF text[0..len) for `vocab`, which outlives the grammar. The caller owns *out.
 * TDM_INVALID_ARGUMENT (also for left recursion and a name without a rule; the message has the
 * line, mostly the column, and what to do), TDM_UNSUPPORTED (too large), TDM_RESOURCE_EXHAUSTED. On
 * failure *out is NULL. [any-thread] */
tdm_status grammar_compile(const grammar_vocab *vocab, const char *text, size_t len, grammar **out,
                           tdm_error *err);

/* The same from a JSON Schema (draft 2020-12), as JSON text. TDM_INVALID_ARGUMENT (no JSON, or no
 * valid schema), TDM_UNSUPPORTED (a keyword that is not supported: the message names it and its
 * place; or a build without jansson). [any-thread] */
tdm_status grammar_compile_schema(const grammar_vocab *vocab, const char *schema, size_t len,
                                  grammar **out, tdm_error *err);

/* Writes the GBNF text that grammar_compile_schema compiles, with a NUL behind it. `rule` names the
 * rule of the schema's values: "root", or another name where the text becomes a part of a larger
 * grammar. The caller frees *text_out with free(). Fails as grammar_compile_schema does; *text_out
 * is NULL then. [any-thread] */
tdm_status grammar_schema_to_gbnf(const char *schema, size_t len, const char *rule, char **text_out,
                                  tdm_error *err);

/* The same for the members of the schema's "$defs": a rule for each, with the member's name. So the
 * name must be one that GBNF has, and not one that the writer uses itself: r1, r2 ..., ref1, ref2
 * ..., or one of ws, hex, char, plain, string, whole, number, object, array, value. [any-thread] */
tdm_status grammar_definitions_to_gbnf(const char *schema, size_t len, char **text_out,
                                       tdm_error *err);

/* Adds an owner, and returns the grammar. [any-thread] */
grammar *grammar_retain(grammar *grammar);
/* Removes an owner; the last one frees the grammar. States are owners too. NULL is a no-op.
 * [any-thread] */
void grammar_release(grammar *grammar);

/* The place that one text has reached. */
typedef struct grammar_state grammar_state;

/* Makes a state at the beginning of the grammar. On failure *out is NULL. TDM_RESOURCE_EXHAUSTED.
 * [any-thread] */
tdm_status grammar_state_create(grammar *grammar, grammar_state **out, tdm_error *err);
/* Makes another state at the same place, for a fork or to return to. Cheap. Fails as
 * grammar_state_create does. [any-thread] */
tdm_status grammar_state_clone(const grammar_state *state, grammar_state **out, tdm_error *err);
/* Moves `state` to the place of `other`, of the same grammar, as to take tokens back. Cannot
 * fail. */
void grammar_state_assign(grammar_state *state, const grammar_state *other);
/* NULL is a no-op. */
void grammar_state_destroy(grammar_state *state);

/* Writes the mask of the tokens that may come next, grammar_vocab_mask_words() words. Tokens that
 * end generation are in it where the grammar may end. Other control tokens are in it only where the
 * grammar names them. After a token that ends generation, the mask has those tokens only.
 * TDM_FAILED_PRECONDITION: no token of the vocabulary goes on from here (the mask is all 0);
 * TDM_RESOURCE_EXHAUSTED: no memory, or too many ways to read the text. */
tdm_status grammar_state_mask(grammar_state *state, uint64_t *mask, tdm_error *err);

/* Moves the state over a token. TDM_INVALID_ARGUMENT: the grammar does not allow the token here;
 * TDM_RESOURCE_EXHAUSTED. On failure the state stays where it was. */
tdm_status grammar_state_accept(grammar_state *state, int32_t token, tdm_error *err);

/* Moves the state over bytes, which may end in the middle of a code point: for text behind a
 * trigger that is in the middle of a token. Fails as grammar_state_accept does. */
tdm_status grammar_state_accept_text(grammar_state *state, const char *text, size_t len,
                                     tdm_error *err);

/* The state as a constraint (llm/constraint.h). The state stays the caller's: the constraint has no
 * `destroy`, and no `clone`. */
llm_constraint grammar_state_constraint(grammar_state *state);

/* Whether the text may end here. */
bool grammar_state_can_end(grammar_state *state);
/* Whether the text must end here: nothing but a token that ends generation may follow. */
bool grammar_state_must_end(const grammar_state *state);

#endif
