/* SPDX-License-Identifier: MIT
 *
 * gbnf.h: reads GBNF, the grammar language of llama.cpp (its grammars/README.md).
 */
#ifndef TANDEM_SERVER_GRAMMAR_GBNF_H
#define TANDEM_SERVER_GRAMMAR_GBNF_H

#include "server/grammar/program.h"

/* Reads text[0..len) into the zeroed *program, and finishes it (grammar_program_finish). Names of
 * tokens are those of `vocab` (NULL = there are none). The caller calls grammar_program_free, also
 * after a failure. Fails as grammar_compile does. */
tdm_status grammar_gbnf_read(const grammar_vocab *vocab, const char *text, size_t len,
                             grammar_program *program, tdm_error *err);

#endif
