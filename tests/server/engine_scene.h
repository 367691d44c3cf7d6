/* SPDX-License-Identifier: MIT
 *
 * engine_scene.h: a small model on a CPU device, an engine on it, and the plain answer that the
 * engine's are compared with: a context of its own, one request at a time, without engine.
 */
#ifndef TANDEM_TESTS_SERVER_ENGINE_SCENE_H
#define TANDEM_TESTS_SERVER_ENGINE_SCENE_H

#include "tests/server/engine_rig.h"

/* A model of two layers and 384 ids, with activations of 15 bits. */
llm_model *scene_model(void);
/* Contexts for it: steps of 64 tokens, pages of 16, an f16 cache. */
llm_context_params scene_context(int32_t n_ctx);
/* limits NULL = the defaults. It gives embeddings, too. */
server_engine *scene_engine(llm_model *model, int32_t n_ctx, const server_limits *limits);
/* n random ids. */
void scene_prompt(uint64_t *random, int32_t *prompt, int32_t n);
server_stats scene_stats(server_engine *engine);
/* Fails the test unless the answer has these tokens. */
void scene_answer_is(const char *what, const rig_answer *answer, const int32_t *tokens, int32_t n);
/* The greedy answer to a prompt, computed by ctx alone in sequence 0, which is emptied first. Returns
 * its tokens. */
int32_t scene_plain(llm_context *ctx, const int32_t *prompt, int32_t n_prompt, int32_t max_tokens,
                    bool ignores_end, int32_t *tokens_out);

#endif
