/* SPDX-License-Identifier: MIT
 *
 * constraint.h: the grammar that generated text must follow, from the configuration.
 */
#ifndef TANDEM_RUNNER_CONSTRAINT_H
#define TANDEM_RUNNER_CONSTRAINT_H

#include "runner/app.h"
#include "server/grammar/grammar.h"

/* Cleared = no grammar. */
typedef struct runner_constraint {
    grammar_vocab *vocab;
    grammar *grammar; /* NULL = the text is free */
} runner_constraint;

/* Reads grammar, grammar-file, json-schema or json-schema-file, of which at most one may be given,
 * and compiles it for rows of n_token logits. `vocab` outlives the result. Messages name the key.
 * Call runner_constraint_close in any case, also on failure. [setup] */
tdm_status runner_constraint_open(runner_app *app, const llm_vocab *vocab, int32_t n_token,
                                  runner_constraint *constraint, tdm_error *err);
/* Releases both and clears *constraint. [setup] */
void runner_constraint_close(runner_constraint *constraint);

#endif
