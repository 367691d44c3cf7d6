/* SPDX-License-Identifier: MIT
 *
 * changed_model.h: copies of a model file in which one key differs.
 */
#ifndef TANDEM_TESTS_MODEL_CHANGED_MODEL_H
#define TANDEM_TESTS_MODEL_CHANGED_MODEL_H

#include "llm/gguf/gguf.h"

/* Writes the file again to `path`, with key ARCHITECTURE.suffix, which the file may lack, set to a
 * whole number, a text or a real number. Fails the running test on failure. */
void changed_model_write(const llm_gguf *g, const char *path, const char *suffix, uint32_t number);
void changed_model_write_text(const llm_gguf *g, const char *path, const char *suffix,
                              const char *text);
void changed_model_write_real(const llm_gguf *g, const char *path, const char *suffix,
                              float number);
/* The same with a key of that full name set to a list of i32. */
void changed_model_write_ids(const llm_gguf *g, const char *path, const char *name,
                             const int32_t *ids, size_t n);

#endif
