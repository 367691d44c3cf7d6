/* SPDX-License-Identifier: MIT
 *
 * cache_file.h: the measured costs of cache types (llm/cache/cache_costs.h) in a file next to the
 * model: `tandem calibrate` writes it, cache-budget and kv-rotate = auto read it. docs/config.md
 * describes its form, an INI file.
 */
#ifndef TANDEM_RUNNER_CACHE_FILE_H
#define TANDEM_RUNNER_CACHE_FILE_H

#include <stdio.h>

#include "llm/cache/cache_costs.h"
#include "runner/app.h"

/* The path of the file: the key cache-file, or `model_path` with ".cache.ini" appended. *path_out
 * is the caller's to free(). [setup] */
tdm_status runner_cache_file_path(runner_app *app, const char *model_path, char **path_out,
                                  tdm_error *err);

/* Reads the costs of a model; the caller destroys *costs_out. TDM_NOT_FOUND where there is no file:
 * the message has the command that makes one. TDM_FAILED_PRECONDITION where it was measured with
 * another model, TDM_UNSUPPORTED where it has another version, TDM_INVALID_ARGUMENT with the line
 * or the layer where its content is wrong, TDM_IO where it cannot be read. [setup] */
tdm_status runner_cache_file_read(const char *path, const llm_model *model,
                                  llm_cache_costs **costs_out, tdm_error *err);

/* Prints the costs in the form of the file; n_tok: tokens that they were measured on. The caller
 * checks the stream. [setup] */
void runner_cache_file_print(FILE *stream, const llm_model *model, const llm_cache_costs *costs,
                             int64_t n_tok);

#endif
