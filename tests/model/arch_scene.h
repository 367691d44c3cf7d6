/* SPDX-License-Identifier: MIT
 *
 * arch_scene.h: the fixtures of archs.txt as models: which there are, what tokens they are given,
 * their files, and their logits beside llama.cpp's. It bounds nothing: the tests do.
 *
 * The headers and llama.cpp's logits are those of ../shared/archs. Where that is absent, they are
 * those of tests/model/archs: a few of each family, with the last rows of logits. Some are only
 * there: forms that no fixture of ../shared has.
 */
#ifndef TANDEM_TESTS_MODEL_ARCH_SCENE_H
#define TANDEM_TESTS_MODEL_ARCH_SCENE_H

#include "llm/arch/arch.h"
#include "tests/model/rig.h"

enum { ARCH_N_TOK = 48, ARCH_MAX_FIXTURE = 200 };
/* Short pages, so that layers with a window have page tables of their own. */
enum { ARCH_PAGE_LEN = 8 };

typedef struct arch_fixture {
    char name[48];  /* "ARCH-KIND" */
    bool is_listed; /* it must run */
} arch_fixture;

typedef struct arch_scene {
    arch_fixture fixtures[ARCH_MAX_FIXTURE];
    int n_fixture;
    int32_t tokens[ARCH_N_TOK];
    const char *folder;        /* of the headers, from the root of the source tree */
    const char *logits_folder; /* of llama.cpp's logits, likewise or an absolute path */
    int seed;                  /* of the weights */
    int n_compared;            /* tokens that are compared with llama.cpp, from the first on */
} arch_scene;

/* Reads the lists; false, with a line on standard error, where one cannot be read. The weights are
 * those of seed 1, and the logits those that are stored of it. */
bool arch_scene_read(arch_scene *scene);
/* Writes the fixture's model to `path`. False where its header is not there; fails the running test
 * where it is damaged. */
bool arch_scene_write(const arch_scene *scene, const arch_fixture *f, const char *path);
/* The file of the fixture's model, valid until the next call; NULL without a header. */
const char *arch_scene_model(const arch_scene *scene, const arch_fixture *f);

/* Elements of a row of the model's results: logits of the vocabulary, of an encoder the hidden
 * state of a token. */
size_t arch_scene_row_len(const llm_model *model);
/* The first token that has a row: 0, or with an encoder and a decoder the token that begins the
 * decoder's text. */
int arch_scene_first(const arch_scene *scene, const llm_model *model);
/* rows_out[ARCH_N_TOK, arch_scene_row_len]: the results for the scene's tokens; rows before
 * arch_scene_first are 0. The context has 512 tokens and computes n_ubatch at a time. A decoder
 * gets the tokens in batches of n_each, an encoder in one. type_k, type_v: of the cache, NULL
 * for f32. */
void arch_scene_logits(const arch_scene *scene, llm_model *model, const tdm_type *type_k,
                       const tdm_type *type_v, int n_ubatch, int n_each, float *rows_out);
/* Whether K and V of its cache have one type. */
bool arch_scene_is_latent(llm_model *model);
/* Room for these logits; the caller frees it. */
float *arch_scene_rows(const llm_model *model);
/* Whether there is a file of llama.cpp's logits of the fixture. */
bool arch_scene_has_logits(const arch_scene *scene, const arch_fixture *f);
/* NMSE of such logits against llama.cpp's, which may be those of the last tokens only. */
double arch_scene_nmse(const arch_scene *scene, const arch_fixture *f, const llm_model *model,
                       const float *rows);

#endif
